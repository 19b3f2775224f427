"""Row lineage of Iceberg's format 3: what rewrites keep of it, as published metadata tells it."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve import TableOptions
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.manifest.table_versions import TableVersions
from neve.model.version import Version, VersionEdit
from tests.interop.iceberg_walk import Lineage, Record, read_metadata, walk

LINEAGE = ["_row_id", "_last_updated_sequence_number"]
BY_HAND = TableOptions(
    background=False, level0_files=1_000, level0_files_slow=1_000, level0_files_max=1_000
)
NUMBERED = TableVersions._numbered
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string(), "part": pa.int64()}
SCHEMA = pa.schema(COLUMNS)


def a_table(lake: Lake, *, format_version: int = 3, options: TableOptions = BY_HAND) -> Table:
    return lake.create_table(
        "a.b",
        schema=SCHEMA,
        primary_key=["id"],
        properties={"format-version": str(format_version)},
        options=options,
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return a_table(neve.open(tmp_path))


def commit(table: Table, *keys: int, name: str = "x") -> int:
    table.upsert([{"id": key, "name": name, "part": key % 3} for key in keys])
    return table.flush()


def numbered_by_0_1_0(
    versions: TableVersions, version: Version | None, edit: VersionEdit
) -> VersionEdit:
    """Number an edit without the data sequence numbers of its files."""
    made = NUMBERED(versions, version, edit)
    return replace(made, added=tuple(replace(file, data_sequence=0) for file in made.added))


def published(table: Table) -> tuple[Record, Lineage]:
    """Return the current document and the lineage of all rows, read without neve's code."""
    metadata = read_metadata(table.iceberg_metadata())
    return metadata, walk(metadata, metadata["current-snapshot-id"]).lineage()


def data_columns(table: Table) -> set[tuple[str, ...]]:
    root = Path(table._open.stored.location.removeprefix("file://"))
    paths = table.files().column("file_path").to_pylist()
    return {tuple(pq.read_schema(root / str(path)).names) for path in paths}


def test_a_compaction_leaves_the_lineage_of_every_row(table: Table) -> None:
    commit(table, 1, 3, 5)
    commit(table, 2, 4, 6)
    commit(table, 3, 7)
    _, before = published(table)

    table.compact(full=True)

    metadata, after = published(table)
    assert after == before
    assert before == {
        1: (0, 2), 5: (2, 2), 2: (3, 3), 4: (4, 3), 6: (5, 3), 3: (6, 4), 7: (7, 4)
    }  # fmt: skip
    assert metadata["next-row-id"] > max(row_id for row_id, _ in after.values())
    assert data_columns(table) == {("id", "name", "part", *LINEAGE)}


def test_a_second_compaction_carries_what_the_first_one_stored(table: Table) -> None:
    commit(table, 1, 3)
    commit(table, 2)
    table.compact(full=True)
    commit(table, 3, 4)
    table.delete(1)
    table.flush()
    _, before = published(table)

    table.compact(full=True)

    _, after = published(table)
    assert after == before
    assert sorted(after) == [2, 3, 4]


def test_a_file_of_new_rows_has_no_columns_but_the_users(table: Table) -> None:
    commit(table, 1, 2)

    assert data_columns(table) == {("id", "name", "part")}


def test_an_upsert_is_a_new_row_and_a_new_update(table: Table) -> None:
    commit(table, 1, 2)
    _, before = published(table)
    version = commit(table, 1, name="y")

    _, after = published(table)
    assert after[2] == before[2]
    assert after[1] == (2, version)


def test_a_table_of_format_2_gets_no_such_columns(tmp_path: Path) -> None:
    table = a_table(neve.open(tmp_path), format_version=2)
    commit(table, 1, 3)
    commit(table, 2)
    table.compact(full=True)

    assert data_columns(table) == {("id", "name", "part")}


def test_a_table_that_goes_to_format_3_keeps_lineage_from_then_on(tmp_path: Path) -> None:
    table = a_table(neve.open(tmp_path), format_version=2)
    commit(table, 1, 3)
    commit(table, 2)
    table.compact(full=True)
    commit(table, 3, 4)
    table.set_properties({"format-version": "3"})
    _, before = published(table)

    table.compact(full=True)

    _, after = published(table)
    assert after == before
    assert len({row_id for row_id, _ in after.values()}) == len(after) == 4


def test_a_rollback_brings_lineage_back_with_the_rows(table: Table) -> None:
    commit(table, 1, 2, 3)
    wanted = commit(table, 2)
    _, before = published(table)
    commit(table, 3, 4)
    table.compact(full=True)

    table.rollback(wanted)

    metadata, after = published(table)
    assert after == before
    commit(table, 5)
    table.compact(full=True)
    later, rows = published(table)
    assert {key: rows[key] for key in before} == before
    assert rows[5][0] >= metadata["next-row-id"]
    assert later["next-row-id"] > metadata["next-row-id"]


def test_metadata_that_is_made_again_says_the_same(table: Table) -> None:
    commit(table, 1, 2)
    commit(table, 2, 3)
    for _ in range(3):
        commit(table, 9)
    table.expire(keep_last=1)
    _, before = published(table)
    for path in Path(table._open.stored.location.removeprefix("file://")).glob("metadata/*"):
        path.unlink()

    assert published(table)[1] == before


def test_scans_reads_and_statistics_do_not_show_lineage(table: Table) -> None:
    commit(table, 1, 3)
    commit(table, 2)
    table.compact(full=True)

    assert table.scan().to_arrow().column_names == ["id", "name", "part"]
    assert table.get(1) == {"id": 1, "name": "x", "part": 1}
    assert table.get_many([2]).column_names == ["id", "name", "part"]
    assert set(table.changes(since=0).read_all().column_names).isdisjoint(LINEAGE)
    (file,) = table._open.current().version.files.values()
    assert {each.field_id for each in file.statistics} == {1, 2, 3}
    assert not table.verify().problems


def test_rows_in_the_index_of_a_young_file_do_not_have_lineage(tmp_path: Path) -> None:
    options = TableOptions(
        background=False, level0_files=2, level0_files_slow=50, level0_files_max=60, dual_levels=2
    )
    table = a_table(neve.open(tmp_path), options=options)
    commit(table, 1, 3)
    commit(table, 2)
    commit(table, 4)
    _, before = published(table)

    table.compact()

    assert {file.format.name for file in table._open.current().version.files.values()} == {"DUAL"}
    assert table.get(3) == {"id": 3, "name": "x", "part": 0}
    assert published(table)[1] == before


@pytest.mark.parametrize("keep_last", [1, 3, 50])
def test_files_of_0_1_0_get_the_lineage_that_was_published_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_last: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(TableVersions, "_numbered", numbered_by_0_1_0)
        with neve.open(tmp_path) as lake, a_table(lake) as table:
            commit(table, 1, 3)
            commit(table, 2, 4)
            commit(table, 3, 5)
            table.rollback(3)
            commit(table, 6)
            table.expire(keep_last=keep_last)
            before = published(table)[1]
    assert before == {1: (0, 2), 3: (1, 2), 2: (2, 3), 4: (3, 3), 6: (6, 6)}

    with neve.open(tmp_path) as lake, lake.table("a.b", options=BY_HAND) as table:
        assert {file.data_sequence for file in table._open.current().version.files.values()} == {0}
        table.compact(full=True)

        assert published(table)[1] == before


def test_files_of_0_1_0_come_back_from_a_rollback_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(neve.open(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(TableVersions, "_numbered", numbered_by_0_1_0)
        commit(table, 1, 3)
        wanted = commit(table, 2, 4)
    _, before = published(table)
    commit(table, 2, 5)
    table.compact(full=True)

    table.rollback(wanted)

    assert published(table)[1] == before
