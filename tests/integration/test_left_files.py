"""Opening a table and running jobs, however often, leaves a bounded number of files."""

from pathlib import Path

import pyarrow as pa

import neve
from neve.jobs.commit import BulkCommitter
from neve.jobs.rows import BulkRows, keyed_rows, sorted_by_key
from neve.jobs.run import JobBase
from neve.model.schema import normalize_batch
from neve.table.table_context import TableParts

_COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
_SCHEMA = pa.schema(_COLUMNS)
_OPTIONS = neve.TableOptions(background=False)
_ROWS = pa.RecordBatch.from_pylist([{"id": at, "name": "job"} for at in range(20)], _SCHEMA)


def _made(folder: Path) -> None:
    with neve.open(folder) as lake:
        lake.create_table("a.t", schema=_SCHEMA, primary_key=["id"])


def _epochs_and_locks(folder: Path) -> int:
    return sum(1 for _ in folder.glob("tables/*/wal/*")) + sum(1 for _ in folder.rglob(".lock"))


def _run_job(parts: TableParts) -> None:
    committer = BulkCommitter(parts)
    run = committer.begin()
    base = JobBase(parts, run.run, run.base)
    rows = sorted_by_key([keyed_rows(normalize_batch(_ROWS, base.schema), base.context.encoder)])
    assert rows is not None
    task = BulkRows(base, by_partition=False)
    task.upsert(*rows)
    committer.commit(run, task.finish())
    base.close()


def test_opening_a_table_200_times_leaves_no_directory_and_no_lock_per_writer(
    tmp_path: Path,
) -> None:
    _made(tmp_path)
    with neve.open(tmp_path) as lake:
        for at in range(200):
            with lake.table("a.t", options=_OPTIONS) as table:
                table.put({"id": at, "name": "a"})
                if at % 10 == 9:
                    table.flush()
        assert _epochs_and_locks(tmp_path) < 40
        with lake.table("a.t", options=_OPTIONS) as table:
            assert table.scan().to_arrow().num_rows == 200
            table.flush()
            table.collect_garbage(dry_run=False)
        assert _epochs_and_locks(tmp_path) < 15


def test_50_bulk_jobs_leave_nothing_once_their_files_are_collected(tmp_path: Path) -> None:
    _made(tmp_path)
    with neve.open(tmp_path) as lake, lake.table("a.t", options=_OPTIONS) as table:
        for _ in range(50):
            _run_job(table._open.engine.parts)
        table.compact(full=True)
        table.expire(keep_last=1)
        table.collect_garbage(dry_run=False)
        assert [each.name for each in tmp_path.glob("tables/*/data/*") if each.is_dir()] == []
        assert _epochs_and_locks(tmp_path) < 15
        assert table.scan().to_arrow().num_rows == 20


def test_the_directory_of_a_job_that_is_announced_stays(tmp_path: Path) -> None:
    _made(tmp_path)
    with neve.open(tmp_path) as lake, lake.table("a.t", options=_OPTIONS) as table:
        parts = table._open.engine.parts
        run = BulkCommitter(parts).begin()
        (root,) = tmp_path.glob("tables/*")
        directory = root / "data" / run.run.digits
        directory.mkdir(parents=True)
        table.collect_garbage(dry_run=False)
        assert directory.is_dir()


def test_maintenance_sees_what_bulk_jobs_committed_without_a_refresh(tmp_path: Path) -> None:
    _made(tmp_path)
    with neve.open(tmp_path) as lake, lake.table("a.t", options=_OPTIONS) as table:
        table.put({"id": 100, "name": "own"})
        table.flush()
        for _ in range(3):
            _run_job(table._open.engine.parts)
        assert table.flush() == 5
        assert table.scan().to_arrow().num_rows == 21

        _run_job(table._open.engine.parts)
        table.compact(full=True)
        assert table.files().num_rows == 1

        _run_job(table._open.engine.parts)
        table.expire(keep_last=1)
        assert table.collect_garbage(dry_run=False).file_count
        assert table.version == 8
        assert table.scan().to_arrow().num_rows == 21
