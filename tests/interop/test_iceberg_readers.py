"""Whatever happened to a table, other engines read it as neve does, in both formats."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from neve.catalog.table import Table
from tests.interop.iceberg_history import History
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
