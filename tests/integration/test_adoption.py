"""Guests that become tables with a key: files that fit are kept, and no row is lost or doubled."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

import neve
from neve.jobs.adoption import Adoption, GuestFile, GuestFiles
from neve.jobs.foreign_files import ForeignFile
from neve.sstable.puffin import write_puffin
from neve.storage.memory_store import forget_memory_stores
from tests.integration.rest_requests import schema_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "city", StringType())
)
ROWS = schema_of(pa.field("id", pa.int64(), nullable=False), pa.field("city", pa.string()))


def rows(*given_rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": key, "city": city} for key, city in given_rows], schema=ROWS
    )


def found(table: neve.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist())


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    impl = "neve.server.pyiceberg_catalog.NeveCatalog"
    given_settings = {"py-catalog-impl": impl, "warehouse": str(tmp_path / "lake")}
    made = load_catalog("lake", **given_settings, **{"neve.create": "true"})
    made.create_namespace("shop")
    try:
        yield made
    finally:
        made.close()


def data_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "lake" / "tables").glob("*/data/**/*.parquet"))


def guest_files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "lake" / "guests").glob("*/data/**/*.parquet"))


def test_files_in_the_order_of_the_key_are_kept(catalog: Catalog, tmp_path: Path) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    guest.append(rows((1, "a"), (2, "b")))
    guest.append(rows((3, "c"), (9, "d")))
    before = {path.stat().st_ino for path in guest_files(tmp_path)}

    with neve.open(tmp_path / "lake") as lake, lake.adopt("shop.clicks", "id") as table:
        assert {path.stat().st_ino for path in data_files(tmp_path)} == before
        assert found(table) == [(1, "a"), (2, "b"), (3, "c"), (9, "d")]
        assert table.get(9) == {"id": 9, "city": "d"}
        assert table.verify().problems == ()
    assert catalog.load_table("shop.clicks").scan().to_arrow().num_rows == 4


def test_the_table_outlives_the_files_of_the_guest(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("shop.clicks", SCHEMA).append(rows((1, "a"), (2, "b")))

    with neve.open(tmp_path / "lake") as lake:
        location = lake.guests.load("shop.clicks").metadata_location
        with lake.adopt("shop.clicks", "id") as table:
            lake.register("shop.again", location)
            lake.guests.drop("shop.again", purge=True)
            assert guest_files(tmp_path) == []
            assert found(table) == [(1, "a"), (2, "b")]


def test_the_files_of_the_guest_outlive_the_table(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("shop.clicks", SCHEMA).append(rows((1, "a"), (2, "b")))

    with neve.open(tmp_path / "lake") as lake:
        location = lake.guests.load("shop.clicks").metadata_location
        lake.adopt("shop.clicks", "id").close()
        guest = lake.register("shop.again", location)
        lake.drop_table("shop.clicks", purge=True)
        assert data_files(tmp_path) == []
        assert guest.to_arrow().num_rows == 2


@pytest.mark.parametrize("groups", [(100, 30, 170), (30, 100), (100, 100, 30)])
def test_row_groups_of_any_length_are_read_and_indexed(
    catalog: Catalog, tmp_path: Path, groups: tuple[int, ...]
) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    guest.append(rows(*((number, f"c{number}") for number in range(sum(groups)))))
    (path,) = guest_files(tmp_path)
    content, schema = pq.read_table(path), pq.read_schema(path)
    with pq.ParquetWriter(path, schema) as writer:
        start = 0
        for count in groups:
            writer.write_table(content.slice(start, count))
            start += count
    options = neve.TableOptions(background=False, cache_bytes=1, row_index_bytes=1 << 20)

    with neve.open(tmp_path / "lake") as lake:
        lake.adopt("shop.clicks", "id").close()
        assert len(data_files(tmp_path)) == 1
        with lake.table("shop.clicks", options=options) as table:
            is_even = groups[0] == groups[1]
            for _ in range(2):
                for number in range(0, start, 10):
                    assert table.get(number) == {"id": number, "city": f"c{number}"}
                assert table._open.engine.writer.index_once() is is_even
                is_even = False  # it has its index now
            assert table.get_many(list(range(start))).num_rows == start
            assert table.verify().problems == ()


def test_of_two_commits_the_later_row_of_a_key_stays(catalog: Catalog, tmp_path: Path) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    for batch in (rows((1, "a"), (2, "b")), rows((2, "new"), (3, "c")), rows((3, "newest"))):
        guest.append(batch)

    with neve.open(tmp_path / "lake") as lake, lake.adopt("shop.clicks", "id") as table:
        assert found(table) == [(1, "a"), (2, "new"), (3, "newest")]
        assert len(data_files(tmp_path)) >= 3
        assert table.verify().problems == ()


def test_an_order_decides_before_the_order_of_commits(catalog: Catalog, tmp_path: Path) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    guest.append(rows((1, "z"), (2, "a"), (2, "b")))
    guest.append(rows((1, "a")))

    with (
        neve.open(tmp_path / "lake") as lake,
        lake.adopt("shop.clicks", "id", order_by="city") as table,
    ):
        assert found(table) == [(1, "z"), (2, "b")]


def test_files_in_another_order_are_copied_and_the_log_says_why(
    catalog: Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    guest.append(rows((7, "a"), (2, "b")))
    guest.append(rows((3, "c")))

    with (
        caplog.at_level(logging.INFO, "neve"),
        neve.open(tmp_path / "lake") as lake,
        lake.adopt("shop.clicks", "id") as table,
    ):
        assert found(table) == [(2, "b"), (3, "c"), (7, "a")]
    assert "reason=its rows are not in the order of the key" in caplog.text
    assert "adopted guest=shop.clicks kept=1 copied=1" in caplog.text


def test_columns_keep_their_ids_when_files_are_older_than_the_schema(
    catalog: Catalog, tmp_path: Path
) -> None:
    guest = catalog.create_table("shop.clicks", SCHEMA)
    guest.append(rows((1, "a")))
    with guest.update_schema() as change:
        change.rename_column("city", "town")
        change.add_column("amount", LongType())
    newer = schema_of(
        pa.field("id", pa.int64(), nullable=False),
        pa.field("town", pa.string()),
        pa.field("amount", pa.int64()),
    )
    guest.append(pa.Table.from_pylist([{"id": 2, "town": "b", "amount": 5}], schema=newer))

    with neve.open(tmp_path / "lake") as lake, lake.adopt("shop.clicks", "id") as table:
        assert found(table) == [(1, "a", None), (2, "b", 5)]
        assert [column.field_id for column in table.schema.columns] == [1, 2, 3]


def test_partitions_of_the_guest_are_those_of_the_table(catalog: Catalog, tmp_path: Path) -> None:
    field = PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="city")
    guest = catalog.create_table("shop.clicks", SCHEMA, partition_spec=PartitionSpec(field))
    guest.append(rows((1, "a"), (2, "b"), (3, "a")))

    with neve.open(tmp_path / "lake") as lake, lake.adopt("shop.clicks", "id") as table:
        assert len(data_files(tmp_path)) == 2
        assert found(table) == [(1, "a"), (2, "b"), (3, "a")]
        table.put({"id": 2, "city": "a"})
        table.flush()
        assert found(table) == [(1, "a"), (2, "a"), (3, "a")]
        assert table.verify().problems == ()


def test_a_table_elsewhere_is_copied(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_table("shop.clicks", SCHEMA).append(rows((1, "a"), (2, "b")))

    with neve.open(tmp_path / "lake") as lake, neve.open(tmp_path / "mine") as mine:
        mine.register("shop.clicks", lake.guests.load("shop.clicks").metadata_location)
        with mine.adopt("shop.clicks", "id") as table:
            assert found(table) == [(1, "a"), (2, "b")]


def test_what_cannot_be_adopted_leaves_the_guest_as_it_is(catalog: Catalog, tmp_path: Path) -> None:
    nullable = Schema(NestedField(1, "id", LongType()), NestedField(2, "city", StringType()))
    guest = catalog.create_table("shop.clicks", nullable)
    guest.append(pa.table({"id": pa.array([1, None], pa.int64()), "city": ["a", "b"]}))

    with neve.open(tmp_path / "lake") as lake:
        with pytest.raises(neve.SchemaMismatch, match="NULL"):
            lake.adopt("shop.clicks", "id")
        with pytest.raises(neve.InvalidArgument, match="nothing"):
            lake.adopt("shop.clicks", "nothing")
        assert (lake.list_tables(), lake.guests.names()) == ([], ["shop.clicks"])
        assert lake.guests.load("shop.clicks").to_arrow().num_rows == 2


DIES = """
import os, sys
import neve
from neve.catalog.catalog_entries import CatalogEntries

CatalogEntries.replace_guest = lambda *_: os._exit(42)
with neve.open(sys.argv[1]) as lake:
    lake.adopt("shop.clicks", "id")
"""


def test_what_a_process_left_that_died_is_dropped_by_the_next_call(
    catalog: Catalog, tmp_path: Path
) -> None:
    catalog.create_table("shop.clicks", SCHEMA).append(rows((1, "a"), (2, "b")))
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "lake")], check=False)
    assert died.returncode == 42

    with neve.open(tmp_path / "lake") as lake:
        assert len(lake.list_tables()) == 1
        assert lake.guests.names() == ["shop.clicks"]
        lake.create_table("shop.clicks__adopted_by_us", {"id": int}, "id").close()

        with lake.adopt("shop.clicks", "id") as table:
            assert found(table) == [(1, "a"), (2, "b")]

        assert lake.list_tables() == ["shop.clicks", "shop.clicks__adopted_by_us"]
        assert lake.guests.names() == []


# Deletes: files of all kinds, made by hand.


class Files:
    """Files of another engine in a lake in memory, with ids."""

    def __init__(self, lake: neve.Lake) -> None:
        self.lake = lake
        self.objects = lake.guests.objects
        self.count = 0

    def _store(self, payload: bytes, suffix: str) -> str:
        self.count += 1
        path = f"guests/g/data/{self.count}.{suffix}"
        self.objects.put(path, payload)
        return f"{self.objects.location.rstrip('/')}/{path}"

    def parquet(self, columns: dict[str, tuple[int, "pa.Array[Any]"]]) -> str:
        fields = [
            pa.field(name, array.type, metadata={"PARQUET:field_id": str(number)})
            for name, (number, array) in columns.items()
        ]
        arrays = [array for _, array in columns.values()]
        sink = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), sink)
        return self._store(sink.getvalue(), "parquet")

    def data(self, keys: Sequence[int], *, sequence: int) -> GuestFile:
        location = self.parquet(
            {
                "id": (1, pa.array(keys, pa.int64())),
                "city": (2, pa.array([f"{key}@{sequence}" for key in keys], pa.string())),
            }
        )
        return GuestFile(
            file=ForeignFile(location=location), sequence=sequence, row_count=len(keys)
        )

    def positions(self, of: GuestFile, places: Sequence[int], *, sequence: int) -> GuestFile:
        path = pa.array([of.file.location] * len(places), pa.string())
        location = self.parquet(
            {
                "file_path": (2147483546, path),
                "pos": (2147483545, pa.array(places, pa.int64())),
            }
        )
        return GuestFile(file=ForeignFile(location=location), sequence=sequence)

    def vector(self, of: GuestFile, places: Sequence[int], *, sequence: int) -> GuestFile:
        marked = {of.file.location: BitMap64(places)}
        payload, at = write_puffin(marked, created_by="a test")
        place = at[of.file.location]
        file = ForeignFile(
            location=self._store(payload, "puffin"),
            file_format="PUFFIN",
            referenced=of.file.location,
            offset=place.offset,
            length=place.length,
        )
        return GuestFile(file=file, sequence=sequence)

    def equal(self, keys: Sequence[int], *, sequence: int) -> GuestFile:
        location = self.parquet({"id": (1, pa.array(keys, pa.int64()))})
        file = ForeignFile(location=location, equality_ids=(1,))
        return GuestFile(file=file, sequence=sequence)

    def adopted(self, data: Sequence[GuestFile], deletes: Sequence[GuestFile]) -> list[Any]:
        self.lake.create_table("shop.t", ROWS, "id").close()
        parts = self.lake.load_table("shop.t").job_parts()
        guests = self.lake.guests
        Adoption(parts, locate=guests.path_of, fetch=guests.read).commit(
            GuestFiles(tuple(data), tuple(deletes))
        )
        with self.lake.table("shop.t") as table:
            assert table.verify().problems == ()
            return found(table)


@pytest.fixture
def files() -> Iterator[Files]:
    with neve.open("memory://adoption", create=True) as lake:
        yield Files(lake)
    forget_memory_stores()


@pytest.mark.parametrize("order", [[1, 2, 3, 4], [4, 3, 2, 1]], ids=["kept", "copied"])
@pytest.mark.parametrize("kind", ["positions", "vector"])
def test_marked_rows_stay_deleted(files: Files, kind: str, order: list[int]) -> None:
    data = files.data(order, sequence=1)
    make = files.positions if kind == "positions" else files.vector

    assert [key for key, _ in files.adopted([data], [make(data, [0, 2], sequence=2)])] == sorted(
        [order[1], order[3]]
    )


def test_equality_deletes_concern_earlier_commits_only(files: Files) -> None:
    old, same, new = (files.data([1, 2, 3], sequence=number) for number in (1, 2, 3))

    assert files.adopted([old], [files.equal([2], sequence=2)]) == [(1, "1@1"), (3, "3@1")]
    files.lake.drop_table("shop.t", purge=True)
    assert files.adopted([old, same], [files.equal([2], sequence=2)]) == [
        (1, "1@2"), (2, "2@2"), (3, "3@2"),
    ]  # fmt: skip
    files.lake.drop_table("shop.t", purge=True)
    everything = [files.equal([1, 2, 3], sequence=4)]
    assert files.adopted([old, same, new], everything) == []


def test_rows_from_before_a_column_have_its_first_default(files: Files) -> None:
    table = files.lake.create_table("shop.t", ROWS, "id")
    with table.evolve() as change:
        change.add_column("amount", "long", default=5)
    table.close()
    guests = files.lake.guests
    parts = files.lake.load_table("shop.t").job_parts()

    done = Adoption(parts, locate=guests.path_of, fetch=guests.read).commit(
        GuestFiles((files.data([1, 2], sequence=1),))
    )

    assert (done.kept, done.copied) == (0, 1)
    with files.lake.table("shop.t") as table:
        assert found(table) == [(1, "1@1", 5), (2, "2@1", 5)]


@settings(max_examples=15, deadline=None)
@given(
    commits=st.lists(
        st.tuples(
            st.lists(st.integers(0, 12), max_size=6, unique=True),
            st.sampled_from(["keep order", "sort"]),
            st.sets(st.integers(0, 5), max_size=3),
            st.sets(st.integers(0, 12), max_size=3),
        ),
        max_size=5,
    )
)
def test_adoption_agrees_with_a_dictionary(
    commits: list[tuple[list[int], str, set[int], set[int]]],
) -> None:
    expected: dict[int, str] = {}
    with neve.open("memory://adoption-model", create=True) as lake:
        files = Files(lake)
        data: list[GuestFile] = []
        deletes: list[GuestFile] = []
        for at, (keys, how, marked, equal) in enumerate(commits):
            sequence = 2 * at + 1
            chosen = sorted(keys) if how == "sort" else keys
            for key in equal:
                expected.pop(key, None)
            deletes += [files.equal(sorted(equal), sequence=sequence)] if equal else []
            if not chosen:
                continue
            file = files.data(chosen, sequence=sequence)
            data.append(file)
            places = sorted(place for place in marked if place < len(chosen))
            deletes += [files.positions(file, places, sequence=sequence + 1)] if places else []
            for place, key in enumerate(chosen):
                if place not in places:
                    expected[key] = f"{key}@{sequence}"
        assert files.adopted(data, deletes) == sorted(expected.items())
    forget_memory_stores()
