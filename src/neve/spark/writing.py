"""Writes of Spark's DataFrames into tables: load, upsert, delete, apply, streams and others.

    ns.upsert(df, "./lake", "shop.orders", order_by="updated_at", job_id="orders-2024-03-31")

1. Columns and types are checked before anything runs.
2. Workers write sorted data files with their key indexes, and look up the rows they supersede.
3. The driver commits all of it as one Version, even when others commit meanwhile. Rows that a live
   writer has logged and not flushed are newer.
4. What the commit makes due is compacted and cleaned up, unless `upkeep` is False or a live writer
   of the table does it. The driver compacts small files, Spark larger ones. If that fails, it is
   logged, and the job has succeeded.

A job with a `job_id` is committed once, however often it runs. `progress` is called with the
numbers of finished and of all tasks; without it a bar shows them if standard error is a terminal.
`merge` is in `neve.spark.merging`.

    stream.writeStream.foreachBatch(ns.upsert_batch("./lake", "shop.orders", app_id="orders"))

`apply` and `apply_batch` do the same with the upserts and deletes of a change feed.

A restarted stream repeats its last batch, under the same number. The application's last batch is
recorded in the commit of its rows, so each batch is committed exactly once. Spark repeats only the
last batch. A lower number is from a stream that counts from the start, with other rows: it is an
error, which ends the stream.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from os import PathLike

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from neve.engine.applied_changes import ChangeOptions
from neve.errors import InvalidArgument
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.manifest.table_head import transaction_key
from neve.observability.events import Progress
from neve.spark.call_check import check_place, check_upkeep
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite
from neve.spark.merging import update_columns
from neve.spark.read_plan import TableAddress
from neve.spark.row_form import check_change_columns, check_columns, check_key_columns
from neve.spark.write_plan import (
    ORDER,
    change_plan,
    check_order,
    check_rows,
    check_tasks,
    delete_plan,
    order_apart,
    write_plan,
)


def load(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    order_by: str | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write the first rows of an empty table; raises InvalidArgument when it has rows.

    Otherwise like `upsert`; the files go to a level that compaction does not rewrite. Raises
    Conflict when another committer wrote rows meanwhile.
    """
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        identity = JobIdentity(job_id=job_id)
        done = jobs.committer.find_committed(identity)
        if done is not None:
            return done
        if jobs.table.current().version.row_count:
            raise InvalidArgument(
                f"the table {name!a} has rows already", hint="Use upsert to write more"
            )
        return _write(jobs, df, identity, order_by=order_by, tasks=tasks, is_first=True)


def upsert(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    columns: Sequence[str] | None = None,
    order_by: str | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write rows, each replacing the one of its key, as one Version.

    The last of several rows of one key by `order_by` counts; without it they are an error that
    shows some of them. `columns` writes only these, and keeps the other columns of existing rows.
    `tasks` is the number of tasks that write, by default as many as Spark shuffles to.
    """
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        identity = JobIdentity(job_id=job_id)
        if columns is not None:
            return update_columns(jobs, df, columns, identity, order_by=order_by, tasks=tasks)
        return _write(jobs, df, identity, order_by=order_by, tasks=tasks)


def delete(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Delete rows by key, as one Version; columns outside the key are ignored."""
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        check_rows(df)
        check_key_columns(df.schema, jobs.table.schema)
        check_tasks(tasks)

        def plan(site: JobSite, base: JobBase) -> DataFrame:
            return delete_plan(df, site, base, tasks=tasks)

        return jobs.run(plan, JobIdentity(job_id=job_id))


def apply(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    op: str = "op",
    order_by: str | Sequence[str] | None = None,
    operations: Mapping[str, str] | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write the upserts and deletes of a change feed, as one Version.

    `op` names the column with the operation, in the words of `Table.apply`; `operations` maps
    others to "upsert", "delete" or "skip". An unknown operation is InvalidArgument with an example
    row. A delete needs only the key. Of several changes of one key the one with the greatest
    `order_by` wins; without it they are an error. Columns for `op` and `order_by` that the table
    does not have are not stored.
    """
    options = ChangeOptions.of(op, order_by, operations)
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        return _apply(jobs, df, JobIdentity(job_id=job_id), options, tasks=tasks)


def overwrite_partitions(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    order_by: str | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Replace everything in the partitions that the rows are in, as one Version.

    Other partitions stay, except for rows of the same keys, which are superseded. A table without
    partitions is one partition: all of it is replaced. Without rows nothing changes.
    """
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        identity = JobIdentity(job_id=job_id)
        return _write(jobs, df, identity, order_by=order_by, tasks=tasks, replaces=True)


def _write(
    jobs: TableJobs,
    df: DataFrame,
    identity: JobIdentity,
    *,
    order_by: str | None,
    tasks: int | None,
    replaces: bool = False,
    is_first: bool = False,
) -> BulkOutcome:
    check_rows(df)
    rows, order = order_apart(df, order_by, jobs.table.schema)
    check_columns(
        StructType([field for field in rows.schema if field.name != ORDER]), jobs.table.schema
    )
    check_tasks(tasks)

    def plan(site: JobSite, base: JobBase) -> DataFrame:
        return write_plan(rows, site, base, order=order, tasks=tasks, ignores_rules=replaces)

    return jobs.run(plan, identity, replaces=replaces, is_first=is_first)


def _apply(
    jobs: TableJobs,
    df: DataFrame,
    identity: JobIdentity,
    options: ChangeOptions,
    *,
    tasks: int | None,
) -> BulkOutcome:
    options = options.on(jobs.table.schema)
    check_rows(df)
    check_change_columns(df.schema, jobs.table.schema, options)
    for each in options.order_by:
        check_order(df, each)
    check_tasks(tasks)

    def plan(site: JobSite, base: JobBase) -> DataFrame:
        return change_plan(df, site, base, options, tasks=tasks)

    return jobs.run(plan, identity)


logger = logging.getLogger(__name__)


def upsert_batch(
    location: str | PathLike[str],
    name: str,
    *,
    app_id: str,
    order_by: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that upserts each batch once per (app_id, batch id).

    `app_id` names the stream permanently: use a different one for every stream into a table, and a
    new one for a stream that starts over with another checkpoint. A number below the last one of
    `app_id` raises InvalidArgument, which ends the stream. The last of several rows of one key in a
    batch by `order_by` counts; without it they are an error too.
    """

    def write(jobs: TableJobs, batch: DataFrame, identity: JobIdentity) -> BulkOutcome:
        return _write(jobs, batch, identity, order_by=order_by, tasks=tasks)

    return _each_batch_once(write, location, name, app_id, storage_options, upkeep=upkeep)


def apply_batch(
    location: str | PathLike[str],
    name: str,
    *,
    app_id: str,
    op: str = "op",
    order_by: str | Sequence[str] | None = None,
    operations: Mapping[str, str] | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that applies each batch once per (app_id, batch id).

    A batch is a piece of a change feed, as `apply` takes it. Order decides within a batch: a later
    batch comes after all earlier ones. `app_id` means the same as for `upsert_batch`.
    """
    options = ChangeOptions.of(op, order_by, operations)

    def write(jobs: TableJobs, batch: DataFrame, identity: JobIdentity) -> BulkOutcome:
        return _apply(jobs, batch, identity, options, tasks=tasks)

    return _each_batch_once(write, location, name, app_id, storage_options, upkeep=upkeep)


def _each_batch_once(
    write: Callable[[TableJobs, DataFrame, JobIdentity], BulkOutcome],
    location: str | PathLike[str],
    name: str,
    app_id: str,
    storage_options: Mapping[str, str] | None,
    *,
    upkeep: bool,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that commits what `write` does with a batch once."""
    check_place(location, name, after="")
    check_upkeep(upkeep)
    transaction_key(app_id)  # refuses an invalid name now
    # Spark Connect runs the function elsewhere: a relative path is resolved in this process.
    address = TableAddress.of(location, name, storage_options)

    def write_batch(batch: DataFrame, batch_id: int) -> None:
        options = dict(address.storage_options)
        with TableJobs(address.location, name, storage_options=options, upkeep=upkeep) as jobs:
            outcome = write(jobs, batch, JobIdentity(application=(app_id, batch_id)))
        if outcome.was_already_done:
            logger.info(
                "skipped batch table=%s app_id=%s batch=%d version=%d",
                name,
                app_id,
                batch_id,
                outcome.version,
            )

    return write_batch
