"""SparkExecutor: executes compaction plans as a Spark job, a task for each key range of a plan.

Spark places the tasks and repeats those that fail. Each reads row groups of its own keys with
neve's reader and writes files with neve's writer, exactly as the live table would; files and their
facts come back to the driver, where the engine commits them.
"""

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import SparkSession

from neve.compaction.rewrite_job import RewriteJob, RewriteTask, TableDefinition
from neve.engine.rewrite import TaskFiles
from neve.engine.run_name import RunName
from neve.errors import NeveError
from neve.manifest.version_codec import decode_edit, encode_edit
from neve.model.data_file import DataFile
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.spark.job_site import TableSite
from neve.spark.task_run import Watch, answers_of, run_tasks
from neve.spark.worker_table import site_of, worker_files


class SparkExecutor:
    """Executes jobs of any table that the workers reach; give it to `table.compact(executor=…)`."""

    def __init__(
        self, session: SparkSession, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self._session = session
        self._storage_options = storage_options

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        """Write the files of every task; gives them by task."""
        site = site_of(job.table, self._storage_options)
        outcomes = run_tasks(
            self._session,
            job.tasks,
            partial(_rewrite, site, job.table, job.run),
            what="compacting",
            weigh=lambda task: task.row_share,
            watch=Watch(tell=progress, check=check_cancelled),
        )
        try:
            return [_files_in(answer) for answer in answers_of(outcomes)]
        except NeveError:
            writers = worker_files(site, job.table).writers
            for outcome in outcomes:
                if isinstance(outcome, bytes):
                    writers.discard_files(_files_in(outcome))
            raise


def _rewrite(site: TableSite, table: TableDefinition, run: str | None, task: RewriteTask) -> bytes:
    """Execute one task, in a worker."""
    opened = worker_files(site, table, run=run)
    files = TaskFiles(opened, run=None if run is None else RunName(run)).run(
        task,
        opened.context(table.schema_id),
        progress=lambda _rows: None,
        check_cancelled=lambda: None,
    )
    facts = VersionFacts(
        operation=Operation.REPLACE, timestamp_ms=0, schema_id=table.schema_id, spec_id=0
    )
    return encode_edit(VersionEdit(base=task.part.base, facts=facts, added=files))


def _files_in(answer: bytes) -> tuple[DataFile, ...]:
    return decode_edit(answer, path="the answer of a worker").added
