"""Writes of Spark's DataFrames into tables: load, upsert, delete, overwrite_partitions and streams.

    ns.upsert(df, "./lake", "shop.orders", order_by="updated_at", job_id="orders-2024-03-31")

1. Columns and types are checked before anything runs.
2. Workers write sorted data files with their key indexes, and look up the rows they supersede.
3. The driver commits all of it as one Version, even when others commit meanwhile. Rows that a live
   writer has logged and not flushed are newer.

A job with a `job_id` is committed once, however often it runs. `progress` is called with the
numbers of finished and of all tasks; without it a bar shows them if standard error is a terminal.
`merge` is in `neve.spark.merging`.

    stream.writeStream.foreachBatch(ns.upsert_batch("./lake", "shop.orders", app_id="orders"))

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

from neve.errors import InvalidArgument
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.manifest.table_head import transaction_key
from neve.spark.call_check import check_place
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite
from neve.spark.merging import update_columns
from neve.spark.progress import Progress
from neve.spark.read_plan import TableAddress
from neve.spark.row_form import check_columns, check_key_columns
from neve.spark.write_plan import (
    ORDER,
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
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write the first rows of an empty table; raises InvalidArgument when it has rows.

    Otherwise like `upsert`; the files go to a level that compaction does not rewrite. Raises
    Conflict when another committer wrote rows meanwhile.
    """
    with TableJobs(location, name, storage_options=storage_options, progress=progress) as jobs:
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
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write rows, each replacing the one of its key, as one Version.

    The last of several rows of one key by `order_by` counts; without it they are an error that
    shows some of them. `columns` writes only these, and keeps the other columns of existing rows.
    `tasks` is the number of tasks that write, by default as many as Spark shuffles to.
    """
    with TableJobs(location, name, storage_options=storage_options, progress=progress) as jobs:
        identity = JobIdentity(job_id=job_id)
        if columns is not None:
            return update_columns(jobs, df, columns, identity, order_by=order_by, tasks=tasks)
        return _write(jobs, df, identity, order_by=order_by, tasks=tasks)


def upsert_once(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    identity: JobIdentity,
    *,
    order_by: str | None = None,
    tasks: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Write rows as one job or as one batch of an application, at most once."""
    with TableJobs(location, name, storage_options=storage_options, progress=progress) as jobs:
        return _write(jobs, df, identity, order_by=order_by, tasks=tasks)


def delete(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    job_id: str | None = None,
    tasks: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Delete rows by key, as one Version; columns outside the key are ignored."""
    with TableJobs(location, name, storage_options=storage_options, progress=progress) as jobs:
        check_rows(df)
        check_key_columns(df.schema, jobs.table.schema)
        check_tasks(tasks)

        def plan(site: JobSite, base: JobBase) -> DataFrame:
            return delete_plan(df, site, base, tasks=tasks)

        return jobs.run(plan, JobIdentity(job_id=job_id))


def overwrite_partitions(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    order_by: str | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Replace everything in the partitions that the rows are in, as one Version.

    Other partitions stay, except for rows of the same keys, which are superseded. A table without
    partitions is one partition: all of it is replaced. Without rows nothing changes.
    """
    with TableJobs(location, name, storage_options=storage_options, progress=progress) as jobs:
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
        return write_plan(rows, site, base, order_by=order, tasks=tasks)

    return jobs.run(plan, identity, replaces=replaces, is_first=is_first)


logger = logging.getLogger(__name__)


def upsert_batch(
    location: str | PathLike[str],
    name: str,
    *,
    app_id: str,
    order_by: str | None = None,
    tasks: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that upserts each batch once per (app_id, batch id).

    `app_id` names the stream permanently: use a different one for every stream into a table, and a
    new one for a stream that starts over with another checkpoint. A number below the last one of
    `app_id` raises InvalidArgument, which ends the stream. The last of several rows of one key in a
    batch by `order_by` counts; without it they are an error too.
    """
    check_place(location, name, after="")
    transaction_key(app_id)  # refuses an invalid name now
    # Spark Connect runs the function elsewhere: a relative path is resolved in this process.
    address = TableAddress.of(location, name, storage_options)

    def upsert(batch: DataFrame, batch_id: int) -> None:
        outcome = upsert_once(
            batch,
            address.location,
            name,
            JobIdentity(application=(app_id, batch_id)),
            order_by=order_by,
            tasks=tasks,
            storage_options=dict(address.storage_options),
        )
        if outcome.was_already_done:
            logger.info(
                "skipped batch table=%s app_id=%s batch=%d version=%d",
                name,
                app_id,
                batch_id,
                outcome.version,
            )

    return upsert
