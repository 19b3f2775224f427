"""Full compaction moves files to the current partition spec; other compaction leaves them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import neve
from neve.compaction.rewrite_job import RewriteJob
from neve.engine.rewrite import LocalExecutor
from neve.engine.table_options import TableOptions
from neve.jobs.maintenance import CommittedMaintenance
from neve.model.data_file import DataFile
from neve.storage.memory_store import MemoryStore
from neve.testing.clean_reader import CleanReader
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, rows

OPTIONS = TableOptions(background=False, file_bytes=4_000, compaction_task_rows=200)
SPECS: list[list[str]] = [["bucket(3, id)"], ["v"], ["truncate(100, id)", "v"], []]


class Executing:
    """Executes where the table is, and does something else before the files are committed."""

    def __init__(self, table: neve.Table, then: Callable[[], object]) -> None:
        engine = table._open.engine
        self._local = LocalExecutor(engine.writer._rewrite.task_files, engine.current.view.context)
        self._then: list[Callable[[], object]] = [then]

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        written = self._local.execute(job, progress=progress, check_cancelled=check_cancelled)
        if self._then:
            self._then.pop()()
        return written


@pytest.fixture
def table() -> Iterator[neve.Table]:
    """Return a table of overlapping files under its first spec, some rows superseded."""
    with a_catalog(MemoryStore()) as lake:
        table = a_table(lake, options=OPTIONS, partition_by=["v"])
        for start in range(0, 600, 150):
            table.upsert(rows(start, start + 200, v=start % 4))
            table.flush()
        table.delete_many(list(range(0, 600, 7)))
        table.flush()
        yield table


def partition_by(table: neve.Table, words: list[str]) -> None:
    with table.evolve() as change:
        change.set_partition_by(words)


def specs_in_use(table: neve.Table) -> set[int]:
    return {file.spec_id for file in table.refresh()._open.current().version.files.values()}


def by_key(table: neve.Table) -> list[dict[str, object]]:
    return table.refresh().scan().to_arrow().sort_by("id").to_pylist()


def committed(table: neve.Table) -> list[dict[str, object]]:
    """Return the committed rows, by a reader that shares no code with the engine's."""
    stored = table._open.stored
    version = stored.versions.snapshot_latest().version
    found = CleanReader(stored.objects, stored.paths.root, ["id"]).rows(version)
    return sorted(found.values(), key=lambda row: str(row["id"]))


def compact_here(table: neve.Table) -> None:
    table.compact(full=True)


def compact_beside(table: neve.Table) -> None:
    CommittedMaintenance(table._open.engine.parts, OPTIONS).compact(full=True)


COMPACTIONS = {"by the writer": compact_here, "by a job": compact_beside}


@pytest.mark.parametrize("compact", COMPACTIONS.values(), ids=COMPACTIONS)
@pytest.mark.parametrize("words", SPECS, ids=[",".join(words) or "none" for words in SPECS])
def test_full_compaction_moves_every_file_to_the_current_spec(
    table: neve.Table, words: list[str], compact: Callable[[neve.Table], None]
) -> None:
    before = by_key(table)
    partition_by(table, words)

    compact(table)

    assert specs_in_use(table) == {table.spec.spec_id}
    assert by_key(table) == before
    assert sorted(committed(table), key=lambda row: str(row["id"])) == sorted(
        before, key=lambda row: str(row["id"])
    )
    assert {file.level for file in table._open.current().version.files.values()}.isdisjoint({0})


def test_files_of_several_former_specs_end_in_one(table: neve.Table) -> None:
    for number, words in enumerate(SPECS):
        partition_by(table, words)
        table.upsert(rows(500 + 60 * number, 650 + 60 * number, v=9 + number))
        table.flush()
    partition_by(table, ["bucket(2, id)"])
    before = by_key(table)
    assert len(specs_in_use(table)) > 3

    table.compact(full=True)

    assert specs_in_use(table) == {table.spec.spec_id}
    assert len({file.partition for file in table._open.current().version.files.values()}) == 2
    assert by_key(table) == before


def test_a_spec_whose_column_was_dropped_is_left_behind(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])
    with table.evolve() as change:
        change.drop_column("v")
    before = by_key(table)

    table.compact(full=True)

    assert specs_in_use(table) == {table.spec.spec_id}
    assert by_key(table) == before


def test_other_compaction_leaves_files_in_their_spec(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])
    former = specs_in_use(table)

    table.compact()

    assert specs_in_use(table) == former


def test_the_change_feed_does_not_report_a_move(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])
    since = table.refresh().version

    table.compact(full=True)

    assert table.changes(since=since).read_all().num_rows == 0


def test_what_the_writer_commits_during_a_move_stays(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])

    def write() -> None:
        table.upsert(rows(100, 120, v=77))
        table.delete_many(list(range(300, 320)))
        table.flush()

    table.compact(full=True, executor=Executing(table, write))

    found = {row["id"]: row for row in by_key(table)}
    assert all(found[key]["v"] == 77 for key in range(100, 120))
    assert found.keys().isdisjoint(range(300, 320))
    assert specs_in_use(table) == {table.spec.spec_id}
    assert len(committed(table)) == len(found)


def test_what_another_committer_commits_during_a_move_stays(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])
    other = OtherCommitter(table)

    def write() -> None:
        other.upsert([{"id": key, "v": 78, "text": "new"} for key in range(90, 110)])
        other.delete(list(range(400, 410)))

    table.compact(full=True, executor=Executing(table, write))

    found = {row["id"]: row for row in by_key(table)}
    assert all(found[key]["text"] == "new" for key in range(90, 110))
    assert found.keys().isdisjoint(range(400, 410))
    assert len(committed(table)) == len(found)


def test_a_move_whose_files_another_one_rewrote_is_planned_again(table: neve.Table) -> None:
    partition_by(table, ["bucket(3, id)"])
    before = by_key(table)

    table.compact(full=True, executor=Executing(table, OtherCommitter(table).compact))

    assert by_key(table) == before
    assert len(committed(table)) == len(before)


def test_rows_that_the_current_spec_has_no_partition_for_stay_where_they_are() -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "ts": pa.timestamp("us")}
    far = pa.scalar((1 << 63) - 1, pa.int64()).cast(pa.timestamp("us"))
    near = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    times = pa.array([near, near + timedelta(days=1)], pa.timestamp("us"))
    with a_catalog(MemoryStore()) as lake:
        table = a_table(lake, columns=columns, options=OPTIONS, partition_by=["day(ts)"])
        ids = pa.array([1, 2, 3], pa.int64())
        stored = pa.concat_arrays([times, pa.array([far])])
        table.upsert(pa.table({"id": ids, "ts": stored}))
        table.flush()
        partition_by(table, ["hour(ts)"])

        table.compact(full=True)

        assert specs_in_use(table) == {0, 1}
        assert table.scan().to_arrow().sort_by("id").column("ts").combine_chunks() == stored
