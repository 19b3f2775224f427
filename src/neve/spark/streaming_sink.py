"""`neve.spark.upsert_batch`: the micro-batches of a stream, each upserted exactly once.

    stream.writeStream.foreachBatch(ns.upsert_batch("./lake", "shop.orders", app_id="orders"))

A stream that is started again repeats the batch it was at, under the same number. The application's
last batch is recorded in the very commit that has its rows, so a batch that was committed before
the stream died is not committed again, and one that was not, is.

Spark repeats no batch but the last. A number below it is that of a stream that counts again, with
other rows: it is an error, which ends the stream.
"""

import logging
from collections.abc import Callable, Mapping
from os import PathLike

from pyspark.sql import DataFrame

from neve.jobs.run import JobIdentity
from neve.manifest.table_head import transaction_key
from neve.spark.call_check import check_place
from neve.spark.read_plan import TableAddress
from neve.spark.writing import upsert_once

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

    `app_id` names the stream for good: give every stream into a table its own, and a new one to a
    stream that starts over with another checkpoint. A number below the last one of `app_id` raises
    InvalidArgument, which ends the stream. Of several rows with one key in a batch the last by
    `order_by` counts; without it they are an error too.
    """
    check_place(location, name, after="")
    transaction_key(app_id)  # a name that cannot be kept is told now
    # Spark Connect runs the function elsewhere: a relative path is that of this process.
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
