"""Commits of other engines, of every kind and in any order, against a dictionary."""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

import neve
from neve.catalog.catalog_table import CatalogTable
from neve.catalog.served_lake import ServedLake
from neve.jobs import foreign_commit
from neve.jobs.foreign_commit import AppendRule, ForeignCommit, ForeignSnapshot
from neve.jobs.foreign_files import ForeignFile
from neve.jobs.run import BulkOutcome
from neve.sstable.deletion_vector import encode_vector, read_vector
from tests.gates import Gate

KEYS = range(25)
CITIES = ("a", "b", "c", None)
Model = dict[int, str | None]


@dataclass
class World:
    """A table, what it should hold, and files of a client."""

    random: Random
    lake: neve.Lake
    table: neve.Table
    model: Model
    files: int = 0
    rows_of: dict[str, list[int]] = field(default_factory=dict)

    @property
    def stored(self) -> CatalogTable:
        return self.lake.load_table("s.t")

    @property
    def root(self) -> str:
        return self.stored.stored.paths.root

    def write(self, columns: pa.Table, ids: dict[str, int]) -> ForeignFile:
        """Write a file of a client."""
        self.files += 1
        path = f"{self.root}/clients/data/{self.files}.parquet"
        fields = [
            each.with_metadata({"PARQUET:field_id": str(ids[each.name])}) for each in columns.schema
        ]
        sink = io.BytesIO()
        pq.write_table(columns.cast(pa.schema(fields)), sink)
        ServedLake(self.lake).objects.put(path, sink.getvalue())
        return ForeignFile(location=path)

    def data_file(self, rows: Model) -> ForeignFile:
        table = pa.table(
            {
                "id": pa.array(list(rows), pa.int64()),
                "city": pa.array(list(rows.values()), pa.string()),
            }
        )
        file = self.write(table, {"id": 1, "city": 2})
        self.rows_of[file.location] = list(rows)
        return file

    def keys_in(self, path: str) -> list[int]:
        """Return the keys of a file of the table, by position."""
        payload = ServedLake(self.lake).objects.get(f"{self.root}/{path}").payload
        found = pq.read_table(io.BytesIO(payload), columns=["id"])
        return [int(str(each)) for each in found.column("id").to_pylist()]

    def live_positions(self, path: str) -> list[int]:
        keys = self.keys_in(path)
        live = {(each["file_path"], each["pos"]) for each in live_rows(self.stored)}
        return [place for place in range(len(keys)) if (path, place) in live]


def live_rows(table: CatalogTable) -> list[dict[str, object]]:
    parts = table.job_parts()
    version = parts.versions.snapshot_latest().version
    found: list[dict[str, object]] = []
    for path, file in version.files.items():
        dead: set[int] = set()
        if file.vector is not None:
            dead = set(read_vector(parts.objects, parts.paths, file.vector))
        found += [
            {"file_path": path, "pos": place}
            for place in range(file.row_count)
            if place not in dead
        ]
    return found


def some_rows(random: Random) -> Model:
    keys = random.sample(KEYS, random.randrange(1, 6))
    return {key: random.choice(CITIES) for key in keys}


def one_snapshot(world: World, model: Model) -> ForeignSnapshot:
    """Draw what a snapshot does, and do the same to the model."""
    random = world.random
    version = world.stored.job_parts().versions.snapshot_latest().version
    paths = [path for path in version.files if world.live_positions(path)]
    kind = random.choice(["append", "rewrite", "positions", "vector", "keys", "values", "upsert"])
    if kind in {"rewrite", "positions", "vector"} and not paths:
        kind = "append"
    if kind == "append":
        rows = some_rows(random)
        model.update(rows)
        return ForeignSnapshot(added=(world.data_file(rows),))
    if kind == "keys":
        keys = random.sample(KEYS, 3)
        for key in keys:
            model.pop(key, None)
        deletes = world.write(pa.table({"id": pa.array(keys, pa.int64())}), {"id": 1})
        return ForeignSnapshot(deletes_added=(equality(deletes, 1),))
    if kind == "upsert":
        rows = some_rows(random)
        model.update(rows)
        found = world.write(pa.table({"id": pa.array(list(rows), pa.int64())}), {"id": 1})
        return ForeignSnapshot(added=(world.data_file(rows),), deletes_added=(equality(found, 1),))
    if kind == "values":
        city = random.choice(CITIES)
        for key in [key for key, value in model.items() if value == city]:
            del model[key]
        deletes = world.write(pa.table({"city": pa.array([city], pa.string())}), {"city": 2})
        return ForeignSnapshot(deletes_added=(equality(deletes, 2),))
    path = random.choice(paths)
    keys_ = world.keys_in(path)
    places = world.live_positions(path)
    if kind == "rewrite":
        kept = {
            keys_[place]: model[keys_[place]]
            for place in places
            if keys_[place] in model and random.random() < 0.7
        }
        changed = {key: random.choice([value, "x"]) for key, value in kept.items()}
        for place in places:
            model.pop(keys_[place], None)
        model.update(changed)
        added = (world.data_file(changed),) if changed else ()
        return ForeignSnapshot(removed=(ForeignFile(location=f"{world.root}/{path}"),), added=added)
    chosen = sorted(random.sample(places, random.randrange(1, len(places) + 1)))
    for place in chosen:
        model.pop(keys_[place], None)
    if kind == "vector":
        return ForeignSnapshot(deletes_added=(vector(world, path, chosen),))
    deletes = world.write(
        pa.table(
            {
                "file_path": pa.array([f"{world.root}/{path}"] * len(chosen)),
                "pos": pa.array(chosen, pa.int64()),
            }
        ),
        {"file_path": 2147483546, "pos": 2147483545},
    )
    return ForeignSnapshot(deletes_added=(deletes,))


def equality(file: ForeignFile, column: int) -> ForeignFile:
    return ForeignFile(location=file.location, equality_ids=(column,))


def vector(world: World, path: str, positions: list[int]) -> ForeignFile:
    blob = encode_vector(BitMap64(positions))
    world.files += 1
    place = f"{world.root}/clients/data/{world.files}.puffin"
    ServedLake(world.lake).objects.put(place, b"PFA1" + blob)
    return ForeignFile(
        location=place,
        file_format="PUFFIN",
        referenced=f"{world.root}/{path}",
        offset=4,
        length=len(blob),
    )


def commit(world: World, number: int, snapshots: list[ForeignSnapshot]) -> BulkOutcome:
    table = world.stored
    job = ForeignCommit(
        table.job_parts(),
        job_id=f"iceberg-{number}",
        locate=lambda location: location,
        appends=AppendRule.UPSERT,
    )
    return job.commit(snapshots, base_version=table.version)


def run_history(seed: int) -> bool:
    """Return whether a table had other rows than the model after some commit."""
    random = Random(seed)
    with neve.open(f"memory://foreign-{seed}") as lake:
        table = lake.create_table(
            "s.t",
            {"id": "long!", "city": "string"},
            "id",
            properties={"format-version": random.choice("23")},
            options=neve.TableOptions(background=False),
        )
        world = World(random, lake, table, {})
        for number in range(6):
            if random.random() < 0.4:
                rows = some_rows(random)
                table.upsert([{"id": key, "city": city} for key, city in rows.items()])
                table.flush()
                world.model.update(rows)
            snapshot = one_snapshot(world, world.model)
            commit(world, number, [snapshot])
            found = table.refresh().scan().to_arrow().to_pylist()
            if len(found) != len({each["id"] for each in found}):
                return True
            if {each["id"]: each["city"] for each in found} != world.model:
                return True
        table.verify(independent=True)
    return False


def test_foreign_commits_agree_with_a_dictionary(scoreboard: Callable[[str], None]) -> None:
    gate = Gate("R32 histories of foreign commits, against the model", aim=100, full=20_000)
    for seed in gate.seeds():
        gate.cases += 1
        gate.violations += run_history(seed)
        assert not gate.violations, seed
    scoreboard(gate.line())


def test_a_later_snapshot_of_one_request_deletes_rows_of_an_earlier_one() -> None:
    with neve.open("memory://foreign-several") as lake:
        table = lake.create_table("s.t", {"id": "long!", "city": "string"}, "id")
        world = World(Random(0), lake, table, {})
        first = world.data_file({1: "a", 2: "b", 3: "c"})
        second = world.data_file({4: "d"})
        keys = world.write(pa.table({"id": pa.array([2], pa.int64())}), {"id": 1})
        deletes = world.write(
            pa.table({"file_path": [first.location], "pos": pa.array([0], pa.int64())}),
            {"file_path": 2147483546, "pos": 2147483545},
        )

        commit(
            world,
            1,
            [
                ForeignSnapshot(added=(first, second)),
                ForeignSnapshot(deletes_added=(equality(keys, 1), deletes)),
                ForeignSnapshot(removed=(second,)),
            ],
        )

        assert table.refresh().scan().to_arrow().to_pylist() == [{"id": 3, "city": "c"}]


def test_deletes_that_are_taken_back_are_refused() -> None:
    with neve.open("memory://foreign-back") as lake:
        table = lake.create_table(
            "s.t",
            {"id": "long!", "city": "string"},
            "id",
            options=neve.TableOptions(background=False),
        )
        table.upsert([{"id": key, "city": "a"} for key in range(3)])
        table.flush()
        world = World(Random(0), lake, table, {})
        [path] = world.stored.job_parts().versions.snapshot_latest().version.files
        marks = vector(world, path, [1])
        commit(world, 1, [ForeignSnapshot(deletes_added=(marks,))])

        with pytest.raises(neve.InvalidArgument, match="bring rows back"):
            commit(world, 2, [ForeignSnapshot(deletes_removed=(marks,))])
        with pytest.raises(neve.InvalidArgument, match="after the last"):
            commit(world, 3, [ForeignSnapshot(deletes_added=(vector(world, path, [99]),))])
        assert table.refresh().scan().count() == 2


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        ({"file_path": ["x"], "pos": [0]}, {"file_path": 2147483546, "pos": 2147483545}),
        ({"file_path": ["own"], "pos": [-1]}, {"file_path": 2147483546, "pos": 2147483545}),
        ({"file_path": ["own"], "pos": [None]}, {"file_path": 2147483546, "pos": 2147483545}),
        ({"file_path": ["own"], "pos": ["a"]}, {"file_path": 2147483546, "pos": 2147483545}),
        ({"other": [1]}, {"other": 7}),
    ],
)
def test_deletes_that_make_no_sense_are_refused(
    columns: dict[str, list[object]], ids: dict[str, int]
) -> None:
    with neve.open("memory://foreign-nonsense") as lake:
        table = lake.create_table("s.t", {"id": "long!", "city": "string"}, "id", exists_ok=True)
        table.upsert([{"id": 1, "city": "a"}])
        table.flush()
        world = World(Random(0), lake, table, {})
        [path, *_] = world.stored.job_parts().versions.snapshot_latest().version.files
        own = f"{world.root}/{path}"
        given = {
            name: [own if value == "own" else value for value in values]
            for name, values in columns.items()
        }
        deletes = world.write(pa.table(given), ids)

        with pytest.raises(neve.InvalidArgument):
            commit(world, 1, [ForeignSnapshot(deletes_added=(deletes,))])
        with pytest.raises(neve.InvalidArgument):
            commit(world, 2, [ForeignSnapshot(deletes_added=(equality(deletes, 99),))])
        assert table.refresh().get(1) == {"id": 1, "city": "a"}


def test_rows_that_do_not_fit_are_refused() -> None:
    with neve.open("memory://foreign-unfit") as lake:
        table = lake.create_table("s.t", {"id": "long!", "city": "string"}, "id")
        world = World(Random(0), lake, table, {})
        for columns in (
            pa.table({"id": pa.array([None], pa.int64()), "city": ["a"]}),
            pa.table({"id": ["text"], "city": ["a"]}),
        ):
            file = world.write(columns, {"id": 1, "city": 2})
            with pytest.raises((neve.InvalidArgument, neve.SchemaMismatch)):
                commit(world, 1, [ForeignSnapshot(added=(file,))])
        ServedLake(lake).objects.put(f"{world.root}/clients/data/no.parquet", b"no")
        for location in (f"{world.root}/clients/data/no.parquet", f"{world.root}/no", "manifest/x"):
            with pytest.raises(neve.InvalidArgument):
                commit(world, 1, [ForeignSnapshot(added=(ForeignFile(location=location),))])
        orc = ForeignFile(location=f"{world.root}/clients/data/no.parquet", file_format="ORC")
        with pytest.raises(neve.InvalidArgument, match="ORC"):
            commit(world, 1, [ForeignSnapshot(added=(orc,))])
        assert table.refresh().scan().count() == 0


def test_files_that_are_large_once_decoded_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_commit, "FOREIGN_BYTES_MAX", 100_000)
    with neve.open("memory://foreign-large") as lake:
        table = lake.create_table("s.t", {"id": "long!", "city": "string"}, "id")
        world = World(Random(0), lake, table, {})
        rows = pa.table({"id": range(20_000), "city": ["a"] * 20_000})
        file = world.write(rows, {"id": 1, "city": 2})

        with pytest.raises(neve.LimitExceeded, match="too large"):
            commit(world, 1, [ForeignSnapshot(added=(file,))])

        assert table.refresh().scan().count() == 0
