"""A stream whose driver dies at a chosen moment of a chosen batch.

Run as a program: the warehouse, the folder of the source, the checkpoint, the batch, whether to die
before or after its commit, and the way that rows go: upserts, or changes of a feed.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

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
ENDS = {EXIT_CODE, -signal.SIGKILL}
"""How a driver ends that has died as it should."""


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


def run_sink(
    spark: SparkSession,
    lake: Path,
    source: Path,
    checkpoint: Path,
    kind: type[NeveSource] = NeveSource,
) -> None:
    """Apply the changes that the source has, a file at a time, through the sink."""
    spark.dataSource.register(kind)
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


def die_at(batch: int, *, after_commit: bool, die: Callable[[], None]) -> None:
    """Die without any warning before or after this process commits a batch."""
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
            die()
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
            die()
        return outcome

    BulkCommitter.commit = deadly  # type: ignore[method-assign]


def deadly_sink(batch: int, *, after_commit: bool) -> type[NeveSource]:
    """Return a sink that kills this driver: the sink commits in a worker of Spark."""
    driver = os.getpid()

    def die() -> None:
        os.kill(driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    class Deadly(NeveSource):
        def streamWriter(  # noqa: N802 - the name is Spark's
            self, schema: StructType, overwrite: bool
        ) -> DataSourceStreamWriter:
            die_at(batch, after_commit=after_commit, die=die)
            return super().streamWriter(schema, overwrite)

    return Deadly


def main() -> None:
    lake, source, checkpoint = (Path(each) for each in sys.argv[1:4])
    batch, after_commit, way = int(sys.argv[4]), sys.argv[5] == "after", sys.argv[6]
    session = ns.session(master="local[2]", config=SETTINGS)
    if way == "sink":
        deadly = deadly_sink(batch, after_commit=after_commit)
        run_sink(session, lake, source, checkpoint, deadly)
    else:
        die_at(batch, after_commit=after_commit, die=partial(os._exit, EXIT_CODE))
        WAYS[way](session, lake, source, checkpoint)


if __name__ == "__main__":
    main()
