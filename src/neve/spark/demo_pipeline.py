"""The Spark half of the demo, in a process of its own: what a user's pipeline would do.

    python -m examples.demo.spark_pipeline LAKE TABLE EVENTS

EVENTS is a directory with `orders/` (the first rows), `updates/` (new and changed rows), `changes/`
(raw change events, some of them broken, several of one key) and `stream/` (files that arrive
later), all JSON lines. The steps:

1. load the orders: sorted, divided by partition, one commit
2. upsert the updates
3. clean the changes, keep the last of each key, and merge them: update, insert, cancel
4. stream the later files in, each batch exactly once, while another process writes rows live
5. compact on Spark
6. sum up by SQL

What each step did is told as one JSON line on standard output; `STREAMING` is told when rows begin
to stream in, so that whoever listens can write at the same time.
"""

import json
import sys
from typing import Final

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as sf

from neve import spark as ns
from neve.spark.merging import Clause
from neve.storage.clock import SystemClock

STREAMING: Final = "streaming"

_COLUMNS: Final = "id long, customer string, amount double, ts timestamp, seq long"
_EVENT: Final = f"op string, {_COLUMNS}, _broken string"
_WRITTEN: Final = {name: f"source.{name}" for name in ("customer", "amount", "ts", "seq")}
_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m",
}


def main() -> None:
    """Run the pipeline on the lake, the table and the events named on the command line."""
    lake, table, events = sys.argv[1:]
    clock = SystemClock()
    began_at = clock.monotonic()
    session = ns.session(app_name="neve demo", config=_SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    _tell("started", seconds=clock.monotonic() - began_at)
    for step in (_load, _upsert, _merge, _stream, _compact, _sum_up):
        began_at = clock.monotonic()
        found = step(session, lake, table, events)
        _tell(step.__name__.removeprefix("_"), seconds=clock.monotonic() - began_at, **found)
    session.stop()


def _load(session: SparkSession, lake: str, table: str, events: str) -> dict[str, float]:
    orders = session.read.schema(_COLUMNS).json(f"{events}/orders")
    loaded = ns.load(orders, lake, table)
    return {"rows": loaded.rows_written, "files": loaded.files}


def _upsert(session: SparkSession, lake: str, table: str, events: str) -> dict[str, float]:
    updates = session.read.schema(_COLUMNS).json(f"{events}/updates")
    upserted = ns.upsert(updates, lake, table)
    return {"rows": upserted.rows_written, "superseded": upserted.rows_superseded}


def _merge(session: SparkSession, lake: str, table: str, events: str) -> dict[str, float]:
    reader = session.read.schema(_EVENT).option("columnNameOfCorruptRecord", "_broken")
    raw = reader.json(f"{events}/changes").cache()
    newest = Window.partitionBy("id").orderBy(sf.desc("seq"))
    changes = (
        raw.where("_broken is null and id is not null")
        .withColumn("place", sf.row_number().over(newest))
        .where("place = 1")
        .drop("place", "_broken")
    )
    merged = ns.merge(
        changes,
        lake,
        table,
        when_matched=[
            Clause("delete", "source.op = 'cancel'"),
            Clause("update", set=_WRITTEN),
        ],
        when_not_matched=Clause("insert", "source.op <> 'cancel'", set=_WRITTEN),
    )
    broken = raw.where("_broken is not null").count()
    return {"events": raw.count(), "broken": broken, "rows": merged.rows_written}


def _stream(session: SparkSession, lake: str, table: str, events: str) -> dict[str, float]:
    _tell(STREAMING)
    arriving = (
        session.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 2).json(f"{events}/stream")
    )
    query = (
        arriving.writeStream.foreachBatch(
            ns.upsert_batch(lake, table, app_id="demo", order_by="seq")
        )
        .option("checkpointLocation", f"{events}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    done = [progress["numInputRows"] for progress in query.recentProgress]
    return {"batches": len([rows for rows in done if rows]), "rows": sum(done)}


def _compact(session: SparkSession, lake: str, table: str, _events: str) -> dict[str, float]:
    return {"version": ns.compact(session, lake, table, full=True)}


def _sum_up(session: SparkSession, lake: str, table: str, _events: str) -> dict[str, float]:
    ns.view(session, lake, table, "orders")
    row = session.sql("select count(*) as orders, sum(amount) as amount from orders").first()
    assert row is not None
    return {"rows": row["orders"], "amount": row["amount"]}


def _tell(step: str, **found: float) -> None:
    print(json.dumps({"step": step, **found}), flush=True)  # noqa: T201 - how it is listened to


if __name__ == "__main__":
    main()
