"""TableJobs: runs the jobs of one table from the driver: begin, work on Spark, commit once, upkeep.

A job that fails before its commit leaves only files that no Version names, and those are deleted. A
job that depends on the rows it reads runs again when another commit changed them.
"""

from collections.abc import Callable, Mapping
from os import PathLike

from pyspark.sql import DataFrame, SparkSession

import neve
from neve.catalog.catalog_table import CatalogTable
from neve.jobs.commit import DEADLINE_SECONDS, BulkCommitter, BulkRun, commit_tries
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity
from neve.observability.events import Progress
from neve.spark.call_check import check_place, check_progress, check_upkeep, refuse_memory
from neve.spark.job_site import JobSite, TableSite
from neve.spark.maintenance import SparkExecutor
from neve.spark.progress import watched
from neve.spark.task_answers import answer_of
from neve.spark.write_plan import collect
from neve.storage.own_process import Handle
from neve.table.table_context import TableParts

Plan = Callable[[JobSite, JobBase], DataFrame]
"""Takes the site of a job and its rows, and returns a DataFrame of its messages."""


class TableJobs(Handle):
    """Jobs on one table, from the driver; close it when done."""

    def __init__(
        self,
        location: str | PathLike[str],
        name: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        upkeep: bool = True,
    ) -> None:
        """Open the table's definition; raises NotFound. Its rows and its log are not opened.

        `progress` is called with the numbers of finished and of all tasks; when it is None and
        standard error is a terminal, a bar is shown. `upkeep` compacts and cleans up after commits.
        """
        check_place(location, name)
        check_progress(progress)
        check_upkeep(upkeep)
        self._progress = progress
        self._storage_options = storage_options
        self._lake = neve.open(location, storage_options=storage_options, create=False)
        try:
            refuse_memory(self._lake.location)
            self.table: CatalogTable = self._lake.load_table(name)
        except BaseException:
            self._lake.close()
            raise
        table = self.table
        self.parts: TableParts = table.stored.parts(table.properties, is_published=True)
        self.committer = BulkCommitter(self.parts, upkeep=upkeep)
        self.site = TableSite.of(table, storage_options)

    def close(self) -> None:
        """Close the lake; closing twice is not an error."""
        self._lake.close()

    def run(
        self,
        plan: Plan,
        identity: JobIdentity,
        *,
        decided: bool = False,
        replaces: bool = False,
        is_first: bool = False,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> BulkOutcome:
        """Run a job once, however often it is called.

        `decided` says that it depends on the rows it reads, `replaces` that the partitions it
        writes to lose everything else, `is_first` that the table has no rows before it.
        """
        done = self.committer.find_committed(identity)
        if done is not None:
            return done
        # What a merge function returns depends on the rows it is applied to.
        decided = decided or bool(self.table.schema.rules.merge and not replaces)
        for committing in commit_tries(decided=decided):
            run = self.committer.begin(identity, deadline_seconds=deadline_seconds)
            work, session = self._work(plan, run)
            executor = SparkExecutor(session, self._storage_options)
            partitions = frozenset(file.partition for file in work.files) if replaces else None
            with committing:
                return self.committer.commit(
                    run,
                    work,
                    decided=decided,
                    replaces=partitions,
                    is_first=is_first,
                    executor=executor,
                )
        raise AssertionError("the last try returns or raises")

    def _work(self, plan: Plan, run: BulkRun) -> tuple[BulkWork, SparkSession]:
        """Do the work of a run; return it with the session that did it."""
        with self.committer.working(run) as base:
            site = JobSite(table=self.site, run=run.run.digits, base=run.base)
            messages = plan(site, base)
            session = messages.sparkSession
            with watched(session, self.table.name, self._progress):
                return answer_of(collect(messages)).work, session
