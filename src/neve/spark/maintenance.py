"""Maintenance of tables as Spark jobs: compact, expire, clean up, verify, rebuild indexes.

    ns.compact(session, "./lake", "shop.orders")

What is to be done is decided by the engine, in the driver, and committed there; the workers only
read and write files. All of it works beside a live writer of the table, in this process or another:
a job takes no lock from it, and leaves what is not yet flushed alone.

Each call tells `progress` how much of how much is done, or shows a bar when it is None and standard
error is a terminal. `storage_options` are those of `neve.open`; workers get them too.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from os import PathLike
from typing import Final, TypeAlias, TypeVar

from pyspark.sql import SparkSession

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.moment import Moment, past_moment_ms
from neve.catalog.open_catalog import open as open_catalog
from neve.compaction.rewrite_job import TableDefinition
from neve.engine.rewrite import table_definition
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import ExpireReport, GarbageReport
from neve.engine.verification import FileCheck, RunChecks, VerifyReport, run_check
from neve.errors import InvalidArgument, NeveError
from neve.iceberg.published_check import PublishedCheck
from neve.jobs.maintenance import CommittedMaintenance
from neve.jobs.run import JobBase
from neve.model.data_file import DataFile
from neve.observability.events import unheard
from neve.observability.metrics import NoRecorder
from neve.spark.call_check import check_place, check_session
from neve.spark.job_site import TableSite, pairs_of
from neve.spark.maintenance import SparkExecutor
from neve.spark.progress import Progress, shown
from neve.spark.task_answers import read_error, write_error
from neve.spark.task_run import Watch, answers_of, run_tasks
from neve.spark.worker_table import WorkerTable, site_of
from neve.sstable.index_rebuild import IndexFiles
from neve.storage.clock import SystemClock
from neve.table.file_writers import delete_data_file

Location: TypeAlias = str | PathLike[str]
Item = TypeVar("Item")

_TASK_BYTES: Final = 256 << 20
_TASK_ITEMS: Final = 250
_DELETED_ELSEWHERE_FROM: Final = 1_000


def executor(
    session: SparkSession, *, storage_options: Mapping[str, str] | None = None
) -> SparkExecutor:
    """Return what executes the plans of an open table on Spark: `table.compact(executor=…)`."""
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
    """Rewrite the committed files of a table until no level asks for more; gives the Version.

    `full` rewrites everything. `options` are those of the table's writer, where it has others than
    the defaults: sizes of files and levels. Rows that a live writer has not flushed stay its own.
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
    """Let old Versions go, as retention or the arguments say; tagged and leased ones stay."""
    check_place(location, name, after="")
    older_than_ms = None if older_than is None else past_moment_ms(older_than, SystemClock())
    with _opened(location, name, storage_options) as (table, committed):
        report = committed.expire(keep_last=keep_last, older_than_ms=older_than_ms)
        if report.expired_versions:
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
    """Delete files that no retained Version reaches; a dry run, the default, only says which.

    Files that nobody announced are left alone while the table has a live writer. A thousand files
    and more are deleted by the workers.
    """
    check_session(session)
    with (
        _opened(location, name, storage_options) as (table, committed),
        shown(f"collecting garbage of {name}", progress) as tell,
    ):
        site = _site(table, storage_options)

        def delete(paths: Sequence[str]) -> None:
            tasks = list(_cut(paths, lambda _path: 1, weight_max=_TASK_ITEMS))
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
        work = partial(_check, site_of(table, storage_options), table)

        def run(
            checks: Sequence[FileCheck], tell: Callable[[FileCheck], None]
        ) -> Sequence[NeveError]:
            tasks = list(_cut(checks, lambda check: check.file.file_bytes, weight_max=_TASK_BYTES))
            left = iter(checks)

            def count(done: int) -> None:
                for check in islice(left, done):
                    tell(check)

            answers = answers_of(
                run_tasks(
                    session, tasks, work, what="verifying", weigh=len, watch=Watch(tell=count)
                )
            )
            return [read_error(text.encode()) for answer in answers for text in json.loads(answer)]

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
    """Make key indexes again that are missing or damaged; gives the paths of their data files.

    Without them a table answers the same, but reads keys out of data files first. Raises Corruption
    when a data file itself is damaged.
    """
    check_session(session)

    def elsewhere(
        base: JobBase, files: Sequence[DataFile], tell: Callable[[int], None]
    ) -> Sequence[str]:
        table = _definition(base)
        tasks = list(_cut(files, lambda file: file.file_bytes, weight_max=_TASK_BYTES))
        answers = answers_of(
            run_tasks(
                session,
                tasks,
                partial(_rebuild, site_of(table, storage_options), table),
                what="rebuilding indexes",
                weigh=len,
                watch=Watch(tell=tell),
            )
        )
        return [path for answer in answers for path in json.loads(answer)]

    with (
        _opened(location, name, storage_options) as (_, committed),
        shown(f"rebuilding indexes of {name}", progress) as tell,
    ):
        return committed.rebuild_indexes(run=elsewhere, progress=tell)


# In workers


def _check(site: TableSite, table: TableDefinition, checks: Sequence[FileCheck]) -> bytes:
    worker = WorkerTable(site, table)
    problems = [
        problem for check in checks for problem in run_check(worker.parts, worker.files, check)
    ]
    return json.dumps([write_error(problem).decode() for problem in problems]).encode()


def _rebuild(site: TableSite, table: TableDefinition, files: Sequence[DataFile]) -> bytes:
    worker = WorkerTable(site, table)
    index_files = IndexFiles(worker.parts.objects, worker.parts.paths, worker.context.encoder)
    return json.dumps(index_files.rebuild_useless(files, worker.definitions.schema)).encode()


def _delete(site: TableSite, paths: Sequence[str]) -> bytes:
    parts = site.parts()
    for path in paths:
        delete_data_file(parts, path)
    return b""


# In the driver


@contextmanager
def _opened(
    location: Location,
    name: str,
    storage_options: Mapping[str, str] | None,
    options: TableOptions | None = None,
) -> Iterator[tuple[CatalogTable, CommittedMaintenance]]:
    """Open a table without its rows: nothing is locked, and a live writer is not disturbed."""
    check_place(location, name, after="session")
    if not isinstance(options, TableOptions | None):
        raise InvalidArgument(
            f"the options are a {type(options).__name__}", hint="Give neve.TableOptions(…)"
        )
    with open_catalog(location, storage_options=storage_options, create=False) as lake:
        table = lake.load_table(name)
        parts = table.stored.parts(
            table.properties,
            recorder=NoRecorder(),
            listener=unheard,
            publish=lambda: bool(table.refresh().iceberg_metadata()),
            lineage=table.published_lineage,
        )
        yield table, CommittedMaintenance(parts, options)


def _definition(base: JobBase) -> TableDefinition:
    files = base.version.files.values()
    return table_definition(base.parts, base.definitions, base.schema, files)


def _site(table: CatalogTable, storage_options: Mapping[str, str] | None) -> TableSite:
    stored = table.stored
    return TableSite(
        location=stored.objects.location,
        table_id=stored.table_id,
        storage_options=pairs_of(storage_options),
        properties=pairs_of(table.properties),
    )


def _counting(tell: Progress, total: int) -> Watch:
    """Tell how many of how many are done."""
    done = 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        tell(done, total)

    return Watch(tell=count)


def _cut(
    items: Sequence[Item], weigh: Callable[[Item], int], *, weight_max: int
) -> Iterator[tuple[Item, ...]]:
    """Cut items into tasks of bounded weight and number."""
    task: list[Item] = []
    weight = 0
    for item in items:
        more = weigh(item)
        if task and (weight + more > weight_max or len(task) >= _TASK_ITEMS):
            yield tuple(task)
            task, weight = [], 0
        task.append(item)
        weight += more
    if task:
        yield tuple(task)
