"""What neve reads of each published Version, beside what other engines read of it."""

from collections.abc import Mapping

from neve.catalog.table import Table
from tests.interop.iceberg_readers import Read, Rows, in_order
from tests.interop.iceberg_walk import Record, WalkedSnapshot, read_metadata, walk

PARTITIONS = {
    "unpartitioned": [],
    "bucketed": ["bucket(3, id)"],
    "by_day": ["day", "truncate(5, name)"],
}


def rows_of(table: Table, version: int | None = None) -> Rows:
    if version is None:
        return in_order(table.scan().to_arrow())
    with table.at(version) as old:
        return in_order(old.scan().to_arrow())


def published_numbers(table: Table, metadata: Record) -> list[int]:
    """Return the Versions that are listed and that neve still reads.

    One that is listed beyond that is kept for a Version that only changed definitions since.
    """
    retained = set(table.history().column("version").to_pylist())
    listed = [each["snapshot-id"] for each in metadata["snapshots"]]
    return [number for number in listed if number in retained]


def check_row_ids(table: Table, metadata: Record, walked: WalkedSnapshot) -> None:
    """Row ids that readers derive are those that neve gave out."""
    if metadata["format-version"] < 3:
        return
    version = table._open.stored.versions.version(walked.snapshot["snapshot-id"])
    given = {file.path: file.first_row_id for file in version.files.values()}
    derived = {
        path.removeprefix(f"{metadata['location']}/"): each.first_row_id
        for path, each in walked.data.items()
    }
    assert derived == given


def check_head(table: Table, location: str, readers: Mapping[str, Read]) -> None:
    """Compare the current snapshot with what neve reads."""
    if not read_metadata(location)["snapshots"]:
        return
    expected = rows_of(table)
    for name, read in readers.items():
        assert read(location, None) == expected, name


def check_versions(table: Table, location: str, readers: Mapping[str, Read]) -> None:
    """Compare every snapshot that is listed with what neve reads of its Version."""
    for number in published_numbers(table, read_metadata(location)):
        expected = rows_of(table, number)
        for name, read in readers.items():
            assert read(location, number) == expected, (name, number)


def check_walk(table: Table, location: str) -> None:
    """Walk every snapshot that is listed by hand, and compare it with what neve reads."""
    metadata = read_metadata(location)
    walked = {
        each["snapshot-id"]: walk(metadata, each["snapshot-id"]) for each in metadata["snapshots"]
    }
    for number in published_numbers(table, metadata):
        found, old = walked[number], rows_of(table, number)
        live = sum(each.entry["data_file"]["record_count"] for each in found.data.values())
        marked = sum(each.entry["data_file"]["record_count"] for each in found.deletes)
        assert live - marked == len(old)
        assert {row["id"] for row in found.rows({1: "id"}).to_pylist()} == {
            row["id"] for row in old
        }
        check_row_ids(table, metadata, found)
