"""PlanExecutorContract: the rules of a PlanExecutor, as tests that an implementation inherits.

    class TestMyExecutor(PlanExecutorContract):
        def executor(self, base: JobBase) -> PlanExecutor:
            return MyExecutor()

Tables are in a directory. Each test compares with the in-process executor: every executor of a plan
must make the same table.
"""

# ruff: noqa: D102  the name of a test is its sentence

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.catalog.lake import Lake
from neve.catalog.table import Table, open_table_of
from neve.compaction.plan import CompactionPlan, LevelOptions
from neve.compaction.policy import full_plan, move_plan
from neve.compaction.rewrite_job import PlanExecutor, RewriteJob
from neve.engine.rewrite import LocalExecutor, Rewrite, TaskFiles
from neve.engine.table_options import TableOptions
from neve.errors import Closed, Corruption
from neve.jobs.run import JobBase
from neve.model.data_file import DataFile
from neve.model.version import Version
from neve.observability.events import ignore
from neve.storage.open_store import open_store
from neve.table.file_writers import RunName

COLUMNS: Mapping[str, pa.DataType] = {
    "id": pa.int64(),
    "part": pa.string(),
    "text": pa.string(),
}
OPTIONS = TableOptions(background=False, file_bytes=8_000, compaction_task_rows=500)
"""Small files and tasks, so that a few rows make several of them."""


def local_executor(base: JobBase) -> LocalExecutor:
    """Return the in-process executor, for files of a run."""
    return LocalExecutor(TaskFiles(base.files, run=base.run), base.context)


def facts_of(written: Sequence[tuple[DataFile, ...]]) -> list[list[DataFile]]:
    """Return the facts of files, except their names."""
    return [[replace(file, path="") for file in files] for files in written]


class PlanExecutorContract:
    """Tests of one executor."""

    def executor(self, base: JobBase) -> PlanExecutor:
        """Return the executor under test, for the files of a run on a table."""
        raise NotImplementedError

    @pytest.fixture
    def lake(self, tmp_path: Path) -> Iterator[Lake]:
        with Lake(open_store(str(tmp_path / "lake"))) as lake:
            yield lake

    @pytest.fixture
    def table(self, lake: Lake) -> Table:
        """Return a partitioned table of overlapping files, a third of the rows superseded."""
        table = lake.create_table(
            "a.b",
            pa.schema(COLUMNS),
            ["id"],
            partition_by=["part"],
            options=OPTIONS,
        )
        rng = Random(7)
        for number in range(4):
            ids = rng.sample(range(3_000), 1_200)
            parts = ["even" if key % 2 else "odd" for key in ids]
            texts = [f"{number}-{key}-{'x' * (key % 40)}" for key in ids]
            table.upsert(pa.table({"id": ids, "part": parts, "text": texts}))
            table.delete_many(rng.sample(range(3_000), 50))
            table.flush()
        return table

    def test_files_are_those_of_the_local_executor_but_for_their_names(self, table: Table) -> None:
        with open_job(table) as (base, job):
            here = local_executor(base).execute(job, progress=ignore, check_cancelled=ignore)
            elsewhere = self.executor(base).execute(job, progress=ignore, check_cancelled=ignore)

        assert len(job.tasks) > len(job.plans) > 1
        assert facts_of(elsewhere) == facts_of(here)
        assert {file.path for files in here for file in files}.isdisjoint(
            file.path for files in elsewhere for file in files
        )

    def test_rows_move_to_another_partition_spec_as_they_do_here(self, table: Table) -> None:
        with table.evolve() as change:
            change.set_partition_by(["bucket(3, id)"])
        with open_job(table, move_plan) as (base, job):
            here = local_executor(base).execute(job, progress=ignore, check_cancelled=ignore)
            elsewhere = self.executor(base).execute(job, progress=ignore, check_cancelled=ignore)

        assert facts_of(elsewhere) == facts_of(here)
        moved = [file for files in here for file in files]
        assert {file.spec_id for file in moved} == {table.refresh().spec.spec_id}
        assert len({file.partition for file in moved}) > 1

    def test_the_files_of_a_run_bear_its_name(self, table: Table) -> None:
        with open_job(table) as (base, job):
            written = self.executor(base).execute(job, progress=ignore, check_cancelled=ignore)

        assert all(file.path.startswith(base.run.prefixes) for files in written for file in files)

    def test_progress_adds_up_to_all_rows(self, table: Table) -> None:
        told: list[int] = []
        with open_job(table) as (base, job):
            self.executor(base).execute(job, progress=told.append, check_cancelled=ignore)

        assert sum(told) == sum(plan.live_count for plan in job.plans)

    def test_nothing_is_committed(self, table: Table) -> None:
        before = table.version
        with open_job(table) as (base, job):
            self.executor(base).execute(job, progress=ignore, check_cancelled=ignore)

        assert table.refresh().version == before

    def test_a_damaged_input_is_corruption_and_leaves_no_files(self, table: Table) -> None:
        stored = open_table_of(table).stored
        objects, paths = stored.objects, stored.paths
        path = f"{paths.root}/{table.files()['file_path'][0].as_py()}"
        payload = bytearray(objects.get(path).payload)
        texts = pq.read_metadata(pa.BufferReader(bytes(payload))).row_group(0).column(2)
        payload[texts.data_page_offset + 30] ^= 0xFF  # not in the keys: splitting a plan reads them
        objects.put(path, bytes(payload))
        for info in list(objects.list(f"{paths.index}/")):
            objects.delete(info.path)

        with open_job(table) as (base, job):
            with pytest.raises(Corruption):
                self.executor(base).execute(job, progress=ignore, check_cancelled=ignore)
            left = files_of_run(base)

        assert left == []

    def test_work_that_is_to_end_raises_why(self, table: Table) -> None:
        def stop() -> None:
            raise Closed("the table was closed")

        with open_job(table) as (base, job), pytest.raises(Closed, match="the table was closed"):
            self.executor(base).execute(job, progress=ignore, check_cancelled=stop)


@contextmanager
def open_job(
    table: Table, plans_of: Callable[[Version, LevelOptions], list[CompactionPlan]] = full_plan
) -> Iterator[tuple[JobBase, RewriteJob]]:
    """Yield the newest Version of a table, and a job that rewrites all of it."""
    parts = open_table_of(table).engine.parts
    base = JobBase(
        parts, RunName.drawn(parts.ids), table.refresh().version, file_bytes=OPTIONS.file_bytes
    )
    rewrite = Rewrite(
        base.files,
        parts.committer(),
        run=base.run,
        task_rows=OPTIONS.compaction_task_rows,
    )
    try:
        yield base, rewrite.job(plans_of(base.version, OPTIONS.level_options), base.context)
    finally:
        base.close()


def files_of_run(base: JobBase) -> list[str]:
    """Return the data files that a run left."""
    root = f"{base.parts.paths.root}/"
    return [
        info.path
        for prefix in base.run.prefixes
        for info in base.parts.objects.list(f"{root}{prefix}")
    ]
