"""Maintenance of tables as Spark jobs: compact, expire, clean up, verify, rebuild indexes.

    ns.compact(session, "./lake", "shop.orders")

The engine decides and commits in the driver; the workers only read and write files. All jobs work
beside a live writer of the table, in this process or another: a job takes no lock from it, and
ignores rows that are not yet flushed.

Compaction runs a task for each key range of a plan: it reads row groups of its own keys and writes
files with neve's own reader and writer, exactly as the live table would.

`progress` is called with the finished and the whole amount of work; when it is None, a bar is shown
if standard error is a terminal. `storage_options` are those of `neve.open`; workers get them too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from os import PathLike
from typing import Final, TypeAlias

from pyspark.sql import SparkSession

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import open_lake
from neve.catalog.moment import Moment, past_moment_ms
from neve.compaction.rewrite_job import RewriteJob, RewriteTask, TableDefinition
from neve.engine.rewrite import TaskFiles, table_definition
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import ExpireReport, GarbageReport
from neve.engine.verification import FileCheck, RunChecks, VerifyReport, run_check
from neve.errors import InvalidArgument, NeveError
from neve.iceberg.published_check import PublishedCheck
from neve.jobs.maintenance import CommittedMaintenance
from neve.jobs.run import BulkWork, JobBase
from neve.model.data_file import DataFile
from neve.observability.events import Progress, ignore
from neve.spark.call_check import check_place, check_session
from neve.spark.job_site import TableSite, worker_files
from neve.spark.progress import shown
from neve.spark.task_answers import TaskAnswer
from neve.spark.task_run import (
    TASK_ITEMS_MAX,
    Watch,
    answers_of,
    cut_tasks,
    run_tasks,
)
from neve.storage.clock import SystemClock
from neve.table.file_writers import RunName, delete_data_file


class SparkExecutor:
    """Executes jobs of any table that the workers reach; pass it to `table.compact(executor=…)`."""

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
        """Write the files of every task; returns them by task."""
        site = TableSite.of(job.table, self._storage_options)
        outcomes = run_tasks(
            self._session,
            job.tasks,
            partial(_rewrite, site, job.table, job.run),
            what="compacting",
            weigh=lambda task: task.row_share,
            watch=Watch(report=progress, check=check_cancelled),
        )
        try:
            return [answer.work.files for answer in answers_of(outcomes)]
        except NeveError:
            writers = worker_files(site, job.table).writers
            for outcome in outcomes:
                if isinstance(outcome, TaskAnswer):
                    writers.discard_files(outcome.work.files)
            raise


def _rewrite(
    site: TableSite, table: TableDefinition, run: str | None, task: RewriteTask
) -> TaskAnswer:
    """Execute one task, in a worker."""
    opened = worker_files(site, table, run=run)
    files = TaskFiles(opened, run=None if run is None else RunName(run)).run(
        task,
        opened.context(table.schema_id),
        progress=ignore,
        check_cancelled=ignore,
    )
    return TaskAnswer(work=BulkWork(files=tuple(files)))


Location: TypeAlias = str | PathLike[str]

_TASK_BYTES: Final = 256 << 20
_DELETED_ELSEWHERE_FROM: Final = 1_000


def executor(
    session: SparkSession, *, storage_options: Mapping[str, str] | None = None
) -> SparkExecutor:
    """Return an executor for the plans of an open table: `table.compact(executor=…)`."""
    check_session(session)
    return SparkExecutor(session, storage_options)


def compact(
    session: SparkSession,
    location: Location,
    name: str,
    *,
    full: bool = False,
    options: TableOptions | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> int:
    """Rewrite the committed files of a table until no level asks for more; returns the Version.

    `full` rewrites everything. `options` are those of the table's writer, if they are not the
    defaults: sizes of files and levels. Rows that a live writer has not flushed are ignored.
    """
    check_session(session)
    with (
        _opened(location, name, storage_options, options) as (table, committed),
        shown(f"compacting {name}", progress) as tell,
    ):
        version = committed.compact(
            full=full, executor=SparkExecutor(session, storage_options), progress=tell
        )
        table.refresh().publish_committed()
        return version


def expire(
    location: Location,
    name: str,
    *,
    keep_last: int | None = None,
    older_than: Moment | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ExpireReport:
    """Expire old Versions, as retention or the arguments say; tagged and leased ones stay."""
    check_place(location, name, after="")
    older_than_ms = None if older_than is None else past_moment_ms(older_than, SystemClock())
    with _opened(location, name, storage_options) as (table, committed):
        report = committed.expire(keep_last=keep_last, older_than_ms=older_than_ms)
        table.refresh().publish_committed()
        return report


def collect_garbage(
    session: SparkSession,
    location: Location,
    name: str,
    *,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> GarbageReport:
    """Delete files that no retained Version reaches; a dry run, the default, only lists them.

    Files that no job announced stay while the table has a live writer. The workers delete a
    thousand files and more.
    """
    check_session(session)
    with (
        _opened(location, name, storage_options) as (table, committed),
        shown(f"collecting garbage of {name}", progress) as tell,
    ):
        site = TableSite.of(table, storage_options)

        def delete(paths: Sequence[str]) -> None:
            tasks = list(cut_tasks(paths, lambda _path: 1, weight_max=TASK_ITEMS_MAX))
            if len(paths) < _DELETED_ELSEWHERE_FROM:
                for task in tasks:
                    _delete(site, task)
                return
            answers_of(
                run_tasks(
                    session,
                    tasks,
                    partial(_delete, site),
                    what="collecting garbage",
                    weigh=len,
                    watch=_counting(tell, len(paths)),
                )
            )

        return committed.collect_garbage(dry_run=dry_run, delete_paths=delete)


def verify(
    session: SparkSession,
    location: Location,
    name: str,
    *,
    independent: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Read every file of a table and check it; raises Corruption when something is wrong.

    Files are read by the workers; logs, leases and published metadata by the driver, and so are
    the rows that `independent` compares with the published ones.
    """
    check_session(session)

    def elsewhere(base: JobBase) -> RunChecks:
        table = _definition(base)
        work = partial(_check, TableSite.of(table, storage_options), table)

        def run(
            checks: Sequence[FileCheck], tell: Callable[[FileCheck], None]
        ) -> Sequence[NeveError]:
            tasks = list(
                cut_tasks(checks, lambda check: check.file.file_bytes, weight_max=_TASK_BYTES)
            )
            left = iter(checks)

            def count(done: int) -> None:
                for check in islice(left, done):
                    tell(check)

            answers = answers_of(
                run_tasks(
                    session, tasks, work, what="verifying", weigh=len, watch=Watch(report=count)
                )
            )
            return [problem for answer in answers for problem in answer.problems]

        return run

    with (
        _opened(location, name, storage_options) as (_, committed),
        shown(f"verifying {name}", progress) as tell,
    ):
        further = PublishedCheck(independent=independent)
        return committed.verify(run_checks=elsewhere, progress=tell, further=(further,))


def rebuild_indexes(
    session: SparkSession,
    location: Location,
    name: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """Rebuild missing or damaged key indexes; returns the paths of their data files.

    Without them a table returns the same rows, but reads keys from data files first. Raises
    Corruption when a data file itself is damaged.
    """
    check_session(session)

    def elsewhere(
        base: JobBase, files: Sequence[DataFile], tell: Callable[[int], None]
    ) -> Sequence[str]:
        table = _definition(base)
        tasks = list(cut_tasks(files, lambda file: file.file_bytes, weight_max=_TASK_BYTES))
        answers = answers_of(
            run_tasks(
                session,
                tasks,
                partial(_rebuild, TableSite.of(table, storage_options), table),
                what="rebuilding indexes",
                weigh=len,
                watch=Watch(report=tell),
            )
        )
        return [path for answer in answers for path in answer.paths]

    with (
        _opened(location, name, storage_options) as (_, committed),
        shown(f"rebuilding indexes of {name}", progress) as tell,
    ):
        return committed.rebuild_indexes(run=elsewhere, progress=tell)


# In workers


def _check(site: TableSite, table: TableDefinition, checks: Sequence[FileCheck]) -> TaskAnswer:
    opened = worker_files(site, table)
    return TaskAnswer(
        problems=tuple(problem for check in checks for problem in run_check(opened, check))
    )


def _rebuild(site: TableSite, table: TableDefinition, files: Sequence[DataFile]) -> TaskAnswer:
    return TaskAnswer(paths=tuple(worker_files(site, table).rebuild_indexes(files)))


def _delete(site: TableSite, paths: Sequence[str]) -> TaskAnswer:
    parts = site.parts()
    for path in paths:
        delete_data_file(parts, path)
    return TaskAnswer()


# In the driver


@contextmanager
def _opened(
    location: Location,
    name: str,
    storage_options: Mapping[str, str] | None,
    options: TableOptions | None = None,
) -> Iterator[tuple[CatalogTable, CommittedMaintenance]]:
    """Open a table without its rows: it takes no lock, and does not disturb a live writer."""
    check_place(location, name, after="session")
    if not isinstance(options, TableOptions | None):
        raise InvalidArgument(
            f"the options are a {type(options).__name__}", hint="Pass neve.TableOptions(…)"
        )
    with open_lake(location, storage_options=storage_options, create=False) as lake:
        table = lake.load_table(name)
        parts = table.stored.parts(table.properties, is_published=True)
        yield table, CommittedMaintenance(parts, options)


def _definition(base: JobBase) -> TableDefinition:
    files = base.version.files.values()
    return table_definition(base.files, base.schema, files)


def _counting(tell: Progress, total: int) -> Watch:
    """Return a watch that reports finished and total work."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        tell(done, total)

    return Watch(report=count)
