"""A stream whose driver dies at a chosen moment of a chosen batch.

Run as a program: the warehouse, the folder of the source, the checkpoint, the batch, whether to die
before or after its commit, and the way that rows go: upserts, or changes of a feed.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from neve import spark as ns
from neve.compaction.rewrite_job import PlanExecutor
from neve.jobs.commit import BulkCommitter, BulkRun
from neve.jobs.run import BulkOutcome, BulkWork
from neve.model.data_file import PartitionValue
from neve.spark.source import NeveSource
from tests.spark.bulk_tables import DDL, NAME
from tests.spark.conftest import SETTINGS

APP_ID = "killed"
FEED = "op string, id long, v long, text string"
EXIT_CODE = 42


def run_stream(spark: SparkSession, lake: Path, source: Path, checkpoint: Path) -> None:
    """Upsert what the source has, a file at a time, until there is no more: a Version for each."""
    rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
    query = (
        rows.writeStream.foreachBatch(ns.upsert_batch(lake, NAME, app_id=APP_ID, upkeep=False))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run_changes(spark: SparkSession, lake: Path, source: Path, checkpoint: Path) -> None:
    """Apply the changes that the source has, a file at a time, in `foreachBatch`."""
    query = (
        _changes(spark, source)
        .writeStream.foreachBatch(ns.apply_batch(lake, NAME, app_id=APP_ID))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run_sink(spark: SparkSession, lake: Path, source: Path, checkpoint: Path) -> None:
    """Apply the changes that the source has, a file at a time, through the sink."""
    spark.dataSource.register(NeveSource)
    query = (
        _changes(spark, source)
        .repartition(1)
        .writeStream.format(NeveSource.name())
        .option("table", NAME)
        .option("op", "op")
        .option("app_id", APP_ID)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(lake))
    )
    query.awaitTermination()


def _changes(spark: SparkSession, source: Path) -> DataFrame:
    files = spark.readStream.schema(FEED).option("maxFilesPerTrigger", 1)
    return files.parquet(str(source))


WAYS = {"upserts": run_stream, "changes": run_changes, "sink": run_sink}


def die_at(batch: int, *, after_commit: bool) -> None:
    """End this process, without any warning, before or after a batch is committed."""
    commit = BulkCommitter.commit

    def deadly(
        self: BulkCommitter,
        run: BulkRun,
        work: BulkWork,
        *,
        decided: bool = False,
        is_exact: bool = False,
        replaces: frozenset[tuple[PartitionValue, ...]] | None = None,
        is_first: bool = False,
        executor: PlanExecutor | None = None,
    ) -> BulkOutcome:
        is_it = run.identity.application == (APP_ID, batch)
        if is_it and not after_commit:
            os._exit(EXIT_CODE)
        outcome = commit(
            self,
            run,
            work,
            decided=decided,
            is_exact=is_exact,
            replaces=replaces,
            is_first=is_first,
            executor=executor,
        )
        if is_it:
            os._exit(EXIT_CODE)
        return outcome

    BulkCommitter.commit = deadly  # type: ignore[method-assign]


def main() -> None:
    lake, source, checkpoint = (Path(each) for each in sys.argv[1:4])
    die_at(int(sys.argv[4]), after_commit=sys.argv[5] == "after")
    session = ns.session(master="local[2]", config=SETTINGS)
    WAYS[sys.argv[6]](session, lake, source, checkpoint)


if __name__ == "__main__":
    main()
