"""Partitions through the whole engine, on a disk: what is pruned, what is touched, what moves."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import neve
from neve.catalog.lake import Lake
from neve.keys.arrays import key_at
from neve.keys.encoding import KeyEncoder
from neve.model.data_file import DataFile
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.sstable.data_file_reader import DataFileReader
from neve.table.partitions import KeyPartitions
from neve.table.table_files import TableFiles

OPTIONS: Final = neve.TableOptions(background=False)
START: Final = datetime(1969, 12, 30, tzinfo=UTC)
COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "number": pa.int64(),
    "name": pa.string(),
    "price": pa.decimal128(9, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "raw": pa.binary(),
}
# A partition, and filters on its source column, some of which prune and some of which cannot.
CASES: Final[dict[str, list[str]]] = {
    "number": ["number = 7", "number > 17", "number in (3, 4)", "number is null", "number != 3"],
    "name": ["name = 'bb3'", "name >= 'cc'", "name like 'aa%'", "name is null"],
    "day": ["day = '1970-01-05'", "day < '1970-01-02'", "day is null"],
    "price": ["price = 1.25", "price < 0", "price is not null"],
    "year(at)": ["at < '1970-01-01T00:00:00+00:00'", "at = '1970-01-03T00:00:00+00:00'"],
    "month(at)": ["at >= '1970-02-01T00:00:00+00:00'", "at is null"],
    "day(at)": ["at >= '1970-01-10T06:00:00+00:00' and at < '1970-01-11T00:00:00+00:00'"],
    "hour(at)": ["at < '1969-12-30T03:00:00+00:00'", "at > '1970-01-20T00:00:00+00:00'"],
    "month(day)": ["day = '1970-02-01'", "day > '1970-02-01'"],
    "bucket(5, number)": ["number = 11", "number in (1, 2)", "number is null"],
    "bucket(4, name)": ["name = 'aa0'", "name = 'nobody'"],
    "bucket(3, at)": ["at = '1970-01-03T00:00:00+00:00'"],
    "bucket(3, price)": ["price = 0.25"],
    "bucket(3, raw)": ["number = 4"],
    "truncate(5, number)": ["number = 7", "number < 0", "number >= 15"],
    "truncate(2, name)": ["name = 'cc4'", "name like 'bb%'", "name > 'bb'"],
    "truncate(100, price)": ["price > 1.50", "price = -0.75"],
}
# What prunes at least one file by its partition, bounds of columns left aside.
PRUNING: Final = [
    ("number", "number = 7"),
    ("name", "name = 'bb3'"),
    ("day", "day < '1970-01-02'"),
    ("year(at)", "at < '1970-01-01T00:00:00+00:00'"),
    ("month(at)", "at >= '1970-02-01T00:00:00+00:00'"),
    ("day(at)", "at < '1970-01-01T00:00:00+00:00'"),
    ("hour(at)", "at < '1969-12-30T03:00:00+00:00'"),
    ("bucket(5, number)", "number = 11"),
    ("truncate(5, number)", "number < 0"),
    ("truncate(2, name)", "name = 'cc4'"),
]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Yield a warehouse on the disk."""
    with neve.open(str(tmp_path / "lake")) as catalog:
        yield catalog


def a_row(key: int, rng: Random) -> dict[str, object]:
    number = rng.randrange(-10, 25)
    return {
        "id": key,
        "number": rng.choice((None, number, number)),
        "name": rng.choice((None, f"{'abc'[number % 3] * 2}{number % 7}", "été")),
        "price": rng.choice((None, Decimal(number) / 4)),
        "day": rng.choice((None, date(1969, 12, 30) + timedelta(days=number + 10))),
        "at": rng.choice((None, START + timedelta(hours=24 * (number + 10)))),
        "raw": rng.choice((None, bytes([number % 251]))),
    }


def a_table(lake: Lake, partition_by: list[str], *, key: list[str] | None = None) -> neve.Table:
    return lake.create_table(
        "a.b", pa.schema(COLUMNS), key or ["id"], partition_by=partition_by, options=OPTIONS
    )


@pytest.mark.parametrize("field", CASES)
def test_a_pruned_file_never_holds_a_matching_row(lake: Lake, field: str) -> None:
    rng = Random(field)
    table = a_table(lake, [field])
    rows = {key: a_row(key, rng) for key in range(60)}
    table.upsert(list(rows.values()))
    table.flush()
    # Rows move between partitions, and some leave.
    for key in rng.sample(range(60), 50):
        rows[key] = a_row(key, rng)
    table.upsert(list(rows.values()))
    table.delete_many([3, 47])
    del rows[3], rows[47]
    table.flush()
    with neve.open(f"memory://{field}") as other:
        whole = other.create_table("a.b", pa.schema(COLUMNS), ["id"], options=OPTIONS)
        whole.upsert(list(rows.values()))

        for is_compacted in (False, True):
            if is_compacted:
                table.compact(full=True)
            for text in CASES[field]:
                found = table.scan(text).to_arrow().sort_by("id").to_pylist()
                assert found == whole.scan(text).to_arrow().sort_by("id").to_pylist()
            assert table.scan().to_arrow().sort_by("id").to_pylist() == list(rows.values())
            check_partitions(table)
            assert not table.verify().problems


def files_of(table: neve.Table) -> list[dict[str, Any]]:
    """Return the files, each with its partition as a dict."""
    return [{**file, "partition": dict(file["partition"])} for file in table.files().to_pylist()]


def check_partitions(table: neve.Table) -> None:
    """Every row of a file is in the file's partition."""
    engine = table._open.engine
    for file in engine.current.view.files.version.files.values():
        spec = engine.parts.definitions.spec(file.spec_id)
        schema = engine.parts.definitions.schema(file.schema_id)
        batch = (
            engine.files.reader(file)
            .read(None, start=0, stop=file.row_count)
            .combine_chunks()
            .to_batches()[0]
        )
        for values in spec.values(batch, schema):
            assert len(values.unique()) == 1


@pytest.mark.parametrize(("field", "text"), PRUNING, ids=[field for field, _ in PRUNING])
def test_pruning_is_shown_by_explain(lake: Lake, field: str, text: str) -> None:
    table = a_table(lake, [field])
    table.upsert([a_row(key, Random(key)) for key in range(200)])
    table.flush()

    explained = table.scan(text).explain()

    assert explained.pruned_by_partition > 0
    assert explained.files_read < explained.files_total
    assert f"{explained.pruned_by_partition:,} by partition" in str(explained)


# Where a key is looked for


class TouchedFiles:
    """Notes the data files that are opened or asked for."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.paths: set[str] = set()
        reader = TableFiles.reader

        def noting(files: TableFiles, file: DataFile) -> DataFileReader:
            self.paths.add(file.path)
            return reader(files, file)

        patch.setattr(TableFiles, "reader", noting)


def bucketed(lake: Lake, buckets: int) -> neve.Table:
    table = a_table(lake, [f"bucket({buckets}, id)"])
    table.upsert([a_row(key, Random(key)) for key in range(400)])
    table.flush()
    assert table.files().num_rows == buckets
    table.close()
    return lake.table("a.b", options=OPTIONS)


@pytest.mark.parametrize("is_compacted", [False, True], ids=["level 0", "compacted"])
def test_a_key_that_tells_its_partition_is_looked_for_in_one_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    table = bucketed(lake, 8)
    if is_compacted:
        table.compact(full=True)
        table.close()
        table = lake.table("a.b", options=OPTIONS)
    touched = TouchedFiles(monkeypatch)

    assert table.get(7) == a_row(7, Random(7))
    assert len(touched.paths) == 1
    assert table.get(-1) is None
    assert table.get_many([7]).num_rows == 1
    assert len(touched.paths) <= 2


def test_a_flush_looks_for_older_rows_in_the_partitions_of_its_keys_only(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bucketed(lake, 8)
    table.put({**a_row(7, Random(7)), "number": 1})
    touched = TouchedFiles(monkeypatch)

    table.flush()

    assert len(touched.paths) == 1
    assert table.scan().count() == 400
    assert not table.verify().problems


def test_a_key_that_does_not_tell_its_partition_is_looked_for_everywhere(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(lake, ["bucket(4, number)"])
    table.upsert([{"id": key, "number": key} for key in range(100)])
    table.flush()
    touched = TouchedFiles(monkeypatch)

    table.put({"id": 50, "number": 51})  # another bucket, or the same
    table.flush()

    assert len(touched.paths) == 4
    assert table.scan("id = 50").to_arrow()["number"].to_pylist() == [51]
    assert table.scan().count() == 100


def test_a_row_moves_to_the_partition_of_its_new_value(lake: Lake) -> None:
    table = a_table(lake, ["name"])
    for place in ("ulm", "köln", "a/b", None, "ulm"):
        table.upsert([{"id": 1, "name": place}, {"id": 2, "name": "bonn"}])
        table.flush()

        live = {
            file["partition"]["name"]: file["record_count"] - file["deleted_count"]
            for file in files_of(table)
            if file["record_count"] > file["deleted_count"]
        }
        assert live == {place: 1, "bonn": 1}
        assert table.get(1) == {**dict.fromkeys(COLUMNS), "id": 1, "name": place}
        assert table.scan().count() == 2
    table.compact(full=True)
    assert {file["partition"]["name"] for file in files_of(table)} == {"ulm", "bonn"}


KEYS: Final[dict[str, pa.DataType]] = {
    "number": pa.int64(),
    "small": pa.int32(),
    "name": pa.string(),
    "price": pa.decimal128(9, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "raw": pa.binary(),
    "yes": pa.bool_(),
}
KEY_FIELDS: Final = [
    "number",
    "small",
    "name",
    "price",
    "day",
    "at",
    "raw",
    "yes",
    "bucket(7, number)",
    "bucket(7, small)",
    "bucket(7, name)",
    "bucket(7, price)",
    "bucket(7, day)",
    "bucket(7, at)",
    "bucket(7, raw)",
    "truncate(3, number)",
    "truncate(3, small)",
    "truncate(1, name)",
    "truncate(50, price)",
    "truncate(1, raw)",
    "year(at)",
    "month(at)",
    "day(at)",
    "hour(at)",
    "year(day)",
    "month(day)",
    "day(day)",
]


def key_rows(count: int) -> pa.Table:
    rng = Random(count)
    rows = [
        {
            "number": rng.randrange(-(1 << 62), 1 << 62) if rng.random() < 0.5 else number - 9,
            "small": rng.randrange(-99, 99),
            "name": rng.choice(("", "a", "äb", "zz", "x\0y")),
            "price": Decimal(rng.randrange(-9999, 9999)) / 100,
            "day": date(1969, 6, 1) + timedelta(days=rng.randrange(500)),
            "at": START + timedelta(microseconds=rng.randrange(-(10**12), 10**14)),
            "raw": rng.choice((b"", b"\0", b"\0\xff", b"abc")),
            "yes": rng.random() < 0.5,
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(KEYS))


@pytest.mark.parametrize("field", KEY_FIELDS)
def test_the_partition_told_by_a_key_is_that_of_its_row(field: str) -> None:
    rows = key_rows(200)
    schema = TableSchema.from_arrow(rows.schema, primary_key=list(KEYS))
    spec = PartitionSpec.parse([field], schema)
    encoder = KeyEncoder([rows.schema.field(name).type for name in KEYS], list(KEYS))
    keys = encoder.encode_arrays([rows.column(name) for name in KEYS])
    partitioning = KeyPartitions(schema, encoder, lambda _id: spec).of_spec(0)
    assert partitioning is not None

    groups = partitioning.groups(keys)

    assert groups is not None
    (values,) = spec.values(rows.combine_chunks().to_batches()[0], schema)
    for place, positions in groups.items():
        assert len(values.take(positions).unique()) == 1
        assert {partitioning.place_of(key_at(keys, at)) for at in positions.tolist()} == {place}
    assert len(groups) == len(values.unique())
    assert sum(map(len, groups.values())) == len(rows)


def test_a_float_in_the_key_does_not_tell_a_partition() -> None:
    columns: dict[str, pa.DataType] = {"share": pa.float64(), "v": pa.int64()}
    with neve.open("memory://floats") as lake:
        table = lake.create_table(
            "a.b", pa.schema(columns), ["share"], partition_by=["share"], options=OPTIONS
        )
        table.put({"share": 0.0, "v": 1})
        table.flush()
        table.put({"share": -0.0, "v": 2})
        table.flush()

        assert table.scan().to_arrow()["v"].to_pylist() == [2]
        assert table.get(0.0) == {"share": 0.0, "v": 2}
        assert not table.verify().problems


# Other partitions from some day on


def test_rows_written_after_a_change_of_partitions_go_to_the_new_ones(lake: Lake) -> None:
    table = a_table(lake, ["bucket(2, id)"])
    table.upsert([{"id": key, "number": key % 3} for key in range(30)])
    table.flush()
    table.upsert([{"id": key, "number": key % 3} for key in range(30, 40)])
    with table.evolve() as change:
        change.set_partition_by(["number"])
    table.upsert([{"id": key, "number": 9} for key in range(10)])
    table.flush()

    files = files_of(table)
    old = [file for file in files if "id_bucket" in file["partition"]]
    new = [file for file in files if "number" in file["partition"]]
    assert len(old) == 2
    assert sum(file["record_count"] - file["deleted_count"] for file in old) == 20
    assert {file["partition"]["number"] for file in new} == {"0", "1", "2", "9"}
    assert table.scan().count() == 40
    assert table.scan("number = 9").explain().pruned_by_partition == 3

    table.compact(full=True)

    files = files_of(table)
    # Each partition of each spec is compacted by itself.
    assert sorted(str(file["partition"]) for file in files) == sorted(
        {str(file["partition"]) for file in files}
    )
    assert table.scan().count() == 40
    assert {row["id"]: row["number"] for row in table.scan().to_arrow().to_pylist()} == {
        key: 9 if key < 10 else key % 3 for key in range(40)
    }
    assert all(table.get(key) is not None for key in range(40))
    assert not table.verify().problems


def test_statistics_of_files_are_those_of_their_partition(lake: Lake) -> None:
    table = a_table(lake, ["truncate(10, number)"])
    table.upsert([{"id": key, "number": key} for key in range(35)])
    table.flush()

    found = {
        file["partition"]["number_trunc"]: (file["record_count"], file["level"])
        for file in files_of(table)
    }

    assert found == {"0": (10, 0), "10": (10, 0), "20": (10, 0), "30": (5, 0)}
    for file in files_of(table):
        lower = int(file["partition"]["number_trunc"])
        path = table._open.engine.parts.paths.root + "/" + file["file_path"]
        stored = table._open.stored.objects.get(path).payload
        numbers = pq.read_table(pa.BufferReader(stored))["number"]
        bounds = cast("dict[str, int]", pc.min_max(numbers).as_py())
        assert bounds == {"min": lower, "max": lower + file["record_count"] - 1}


LOWEST: Final = -(1 << 63)


def test_a_row_that_the_new_partitions_cannot_take_is_flushed_with_the_old_ones(
    lake: Lake,
) -> None:
    table = a_table(lake, ["bucket(2, id)"])
    table.upsert([{"id": 1, "number": LOWEST}, {"id": 2, "number": 20}, {"id": 3, "number": None}])
    with table.evolve() as change:
        change.set_partition_by(["truncate(10, number)"])

    with pytest.raises(neve.SchemaMismatch):
        table.put({"id": 4, "number": LOWEST})
    table.put({"id": 5, "number": 50})
    table.flush()

    numbers = {row["id"]: row["number"] for row in table.scan().to_arrow().to_pylist()}
    assert numbers == {1: LOWEST, 2: 20, 3: None, 5: 50}
    assert table.get(1) is not None
    partitions = [set(file["partition"]) for file in files_of(table)]
    assert partitions.count({"id_bucket"}) == 1
    assert partitions.count({"number_trunc"}) == 3
    table.compact(full=True)
    assert table.scan().count() == 4
    assert not table.verify().problems
