"""Whatever happened to a table, other engines read it as neve does, in both formats."""

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from random import Random

import pytest
from pyiceberg.table import StaticTable

import neve
from neve import TableOptions
from neve.catalog.table import Table
from tests.interop.iceberg_history import SCHEMA, History
from tests.interop.iceberg_readers import (
    DuckDb,
    Read,
    Rows,
    in_order,
    open_duckdb,
    read_polars,
    read_pyiceberg,
)
from tests.interop.iceberg_walk import Record, WalkedSnapshot, read_metadata, walk
from tests.unit.iceberg.published_lake import BY_HAND

PARTITIONS = {
    "unpartitioned": [],
    "bucketed": ["bucket(3, id)"],
    "by_day": ["day", "truncate(5, name)"],
}


@pytest.fixture(scope="module")
def duckdb_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDb]:
    with open_duckdb(tmp_path_factory.mktemp("extensions")) as engine:
        yield engine


def rows_of(table: Table, version: int | None = None) -> Rows:
    if version is None:
        return in_order(table.scan().to_arrow())
    with table.at(version) as old:
        return in_order(old.scan().to_arrow())


def check_row_ids(table: Table, metadata: Record, walked: WalkedSnapshot) -> None:
    """Row ids that readers derive are those that neve gave out."""
    if metadata["format-version"] < 3:
        return
    version = table.stored.versions.version(walked.snapshot["snapshot-id"])
    given = {file.path: file.first_row_id for file in version.files.values()}
    derived = {
        path.removeprefix(f"{metadata['location']}/"): each.first_row_id
        for path, each in walked.data.items()
    }
    assert derived == given


def check_readers(table: Table, location: str, readers: Mapping[str, Read]) -> None:
    """Compare the head, and every snapshot that is listed, with what neve reads."""
    metadata = read_metadata(location)
    expected = rows_of(table)
    for name, read in readers.items():
        if metadata["snapshots"]:
            assert read(location, None) == expected, name
    retained = set(table.history().column("version").to_pylist())
    for snapshot in metadata["snapshots"]:
        number = snapshot["snapshot-id"]
        walked = walk(metadata, number)
        if number not in retained:
            continue  # kept for a Version that only changed definitions since
        old = rows_of(table, number)
        live = sum(each.entry["data_file"]["record_count"] for each in walked.data.values())
        marked = sum(each.entry["data_file"]["record_count"] for each in walked.deletes)
        assert live - marked == len(old)
        assert {row["id"] for row in walked.rows({1: "id"}).to_pylist()} == {
            row["id"] for row in old
        }
        check_row_ids(table, metadata, walked)
        assert read_pyiceberg(location, number) == old, number


@pytest.mark.parametrize("format_version", [3, 2], ids=["v3", "v2"])
@pytest.mark.parametrize("partition_by", PARTITIONS.values(), ids=PARTITIONS)
@pytest.mark.parametrize("seed", range(2))
def test_every_reader_agrees_after_a_random_history(
    tmp_path: Path,
    duckdb_engine: DuckDb,
    seed: int,
    partition_by: list[str],
    format_version: int,
) -> None:
    history = History(tmp_path, seed=seed, format_version=format_version, partition_by=partition_by)
    readers = {"pyiceberg": read_pyiceberg, "duckdb": duckdb_engine.read, "polars": read_polars}
    for step in range(24):
        history.step()
        if step % 8 == 7:
            check_readers(history.table, history.table.iceberg_metadata(), readers)
    history.close()


def test_duckdb_reads_the_vectors_of_one_commit_in_whatever_order_they_are_listed(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        # Names of directories lie among those of files, so vectors of two specs take turns.
        for number in range(16):
            with table.evolve() as change:
                change.set_partition_by(["day"] if number % 2 else [])
            day = date(2024, 1, 1)
            table.upsert(
                [{"id": number * 10 + each, "day": day, "small": each} for each in range(10)]
            )
            table.flush()
        table.delete_many([number * 10 + number % 10 for number in range(16)])
        table.flush()

        assert duckdb_engine.read(table.iceberg_metadata(), None) == rows_of(table)
        table.close()


def test_duckdb_with_its_file_cache_reads_the_vectors_of_a_table_with_one_spec(
    tmp_path: Path, duckdb_engine: DuckDb
) -> None:
    dice = Random(7)
    duckdb_engine.connection.execute("SET enable_external_file_cache=true")
    with neve.open(tmp_path) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        for number in range(12):
            table.upsert([{"id": number * 100 + each} for each in range(100)])
            table.flush()
        for _ in range(3):
            table.delete_many(dice.sample(range(1_200), 150))
            table.flush()
            assert duckdb_engine.read(table.iceberg_metadata(), None) == rows_of(table)
        table.close()
    duckdb_engine.connection.execute("SET enable_external_file_cache=false")


def test_a_location_that_a_uri_would_escape_is_read(tmp_path: Path, duckdb_engine: DuckDb) -> None:
    with neve.open(tmp_path / "mein see ü%20") as lake:
        table = lake.create_table(
            "shop.orders",
            SCHEMA,
            ["id"],
            partition_by=["name"],
            options=TableOptions(background=False),
        )
        names = ["a b", "ü/=", "%41", None]
        table.upsert([{"id": key, "name": names[key % 4]} for key in range(8)])
        table.flush()
        table.delete_many([1, 2])
        table.flush()
        location = table.iceberg_metadata()

        assert read_pyiceberg(location, None) == rows_of(table)
        assert duckdb_engine.read(location, None) == rows_of(table)
        table.close()


def test_filters_of_others_prune_and_lose_no_row(tmp_path: Path, duckdb_engine: DuckDb) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table(
            "shop.orders",
            SCHEMA,
            ["id"],
            partition_by=["day"],
            options=TableOptions(background=False),
        )
        for number in range(4):
            day = date(2024, 1, 1 + number)
            table.upsert([{"id": number * 10 + n, "day": day, "small": n} for n in range(10)])
            table.flush()
        with table.evolve() as change:
            change.widen_column("small", "long")
        table.upsert([{"id": 7, "day": date(2024, 1, 1), "small": 1 << 40}])
        table.flush()
        static = StaticTable.from_metadata(table.iceberg_metadata())

        scan = static.scan(row_filter="small > 8 and day <= '2024-01-02'")
        assert [row["id"] for row in in_order(scan.to_arrow())] == [7, 9, 19]
        assert len(list(scan.plan_files())) < 5
        found = duckdb_engine.query(
            f"SELECT id FROM iceberg_scan('{table.iceberg_metadata()}') WHERE small > 8"  # noqa: S608
        )
        assert [row["id"] for row in in_order(found)] == [7, 9, 19, 29, 39]
        table.close()
