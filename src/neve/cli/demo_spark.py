"""The act in which Spark works on a table that this process writes at the same time.

1. Write raw change events as JSON files, and make a table that is divided by day.
2. Start the pipeline in a process of its own: load, upsert, merge, stream, compact, SQL.
3. While it streams, put rows live here, by key and durable.
4. Compare the table with what the events lead to, read here, by Spark SQL and by DuckDB.
"""

import importlib.util
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from threading import Event, Thread
from typing import Final

import pyarrow.compute as pc
from examples.demo.other_systems import Missing, read_by_duckdb
from examples.demo.spark_act import (
    BROKEN,
    LIVE_FROM,
    ORDERS,
    SCHEMA,
    STREAMED,
    UPDATES,
    EventFiles,
    Order,
)
from examples.demo.spark_act import order as order_of
from examples.demo.stage import Finding, Found, Stage, check, child_process, shown_seconds

from neve.catalog.table import Table
from neve.errors import NeveError, Unavailable

# What Spark does next, after each step that it tells of.
_NEXT: Final = {
    "started": "Spark loads",
    "load": "Spark upserts",
    "upsert": "Spark merges",
    "merge": "Spark streams",
    "streaming": "Spark streams",
    "stream": "Spark compacts",
    "compact": "Spark SQL",
    "sum_up": "Spark stops",
}
_LIVE_ROWS_MAX: Final = 2_000
_PAUSE_SECONDS: Final = 0.01

Told = dict[str, float]


def spark(stage: Stage) -> tuple[Found, ...]:
    """Run the pipeline beside a live writer, or say that Spark is not there."""
    narrator = stage.narrator
    if importlib.util.find_spec("pyspark") is None:
        narrator.left_out("Spark is not installed here: pip install 'neve[spark]'")
        return (Finding("spark_is_installed", value=False),)
    files = EventFiles(stage.root / f"events-{stage.run_id}")
    files.write()
    name = stage.name("by_day")
    with stage.lake.create_table(name, SCHEMA, ["id"], partition_by=["day(ts)"]) as table:
        with stage.timed() as seconds, _pipeline(stage, name, files) as pipeline:
            told, live_rows = _listen(stage, pipeline, table)
        check(told.keys() == _NEXT.keys(), "the pipeline on Spark did not come to its end")
        files.add_live(live_rows)
        _compare(stage, table, files, told)
    return (
        Finding("spark_is_installed", value=True),
        Finding("spark_seconds", round(seconds(), 2), "seconds for the whole pipeline on Spark"),
        *(
            Finding(f"spark_{step}_seconds", round(told[step]["seconds"], 2))
            for step in ("load", "upsert", "merge", "stream", "compact")
        ),
        Finding("live_rows", len(live_rows), "rows put live while Spark wrote the same table"),
    )


@contextmanager
def _pipeline(stage: Stage, name: str, files: EventFiles) -> Iterator[subprocess.Popen[bytes]]:
    log = stage.root / f"spark-{stage.run_id}.log"
    args = (str(stage.root), name, str(files.root))
    with (
        log.open("wb") as errors,
        child_process("examples.demo.spark_pipeline", *args, errors=errors) as process,
    ):
        yield process
        ended = process.wait()
    if ended:
        last = log.read_text(errors="replace").strip().splitlines()[-3:]
        raise Unavailable(f"the pipeline on Spark ended with {ended}: {' / '.join(last)}")


def _listen(
    stage: Stage, pipeline: subprocess.Popen[bytes], table: Table
) -> tuple[dict[str, Told], list[Order]]:
    """Follow the pipeline to its end, writing rows while it streams; gives what both did."""
    told: dict[str, Told] = {}
    written: list[Order] = []
    is_over = Event()
    writer = Thread(target=_write_live, args=(table, written, is_over), daemon=True)
    assert pipeline.stdout is not None
    with stage.narrator.progress("Spark starts", total=len(_NEXT)) as progress:
        try:
            for line in pipeline.stdout:
                found = json.loads(line)
                step = found.pop("step")
                told[step] = found
                _tell(stage, step, found, len(written))
                progress(len(told), _NEXT[step])
                if "streaming" in told and not writer.ident:
                    writer.start()
        finally:
            is_over.set()
            if writer.ident:
                writer.join()
    return told, written


def _write_live(table: Table, written: list[Order], is_over: Event) -> None:
    for seq in count(LIVE_FROM):
        if len(written) >= _LIVE_ROWS_MAX or is_over.wait(_PAUSE_SECONDS):
            return
        row = order_of(seq, seq)
        try:
            table.put({**row, "ts": datetime.fromisoformat(str(row["ts"]))})
        except NeveError:
            return  # the comparison tells that rows are missing
        written.append(row)


def _tell(stage: Stage, step: str, found: Told, live_rows: int) -> None:
    """Check what Spark says of a step, and tell it."""
    narrator, took = stage.narrator, shown_seconds(found.get("seconds", 0.0))
    match step:
        case "started":
            narrator.say(f"a Spark session with a Java VM of its own: {took}")
        case "load":
            check(found["rows"] == ORDERS, "Spark loaded other rows than it was given")
            narrator.say(f"load: {ORDERS:,} orders into {found['files']:.0f} files by day: {took}")
        case "upsert":
            check(found["rows"] == UPDATES, "Spark upserted other rows than it was given")
            narrator.say(
                f"upsert: {UPDATES:,} rows, {found['superseded']:,} of them replace others: {took}"
            )
        case "merge":
            check(found["broken"] == BROKEN, "Spark took broken events for whole ones")
            narrator.say(
                f"merge (update, insert, delete): {found['events'] - BROKEN:,} events, {BROKEN} "
                f"broken left out: {took}"
            )
        case "stream":
            check(found["rows"] == STREAMED, "not every row of the stream arrived")
            narrator.found(
                f"stream: {STREAMED:,} rows exactly once, beside {live_rows:,} live puts from "
                f"here: {took}"
            )
        case "compact":
            narrator.say(f"compact, on Spark's executors: {took}")
        case _:
            pass  # it begins to stream, or ends


def _compare(stage: Stage, table: Table, files: EventFiles, told: dict[str, Told]) -> None:
    narrator = stage.narrator
    table.flush()
    rows = table.scan(columns=["amount"]).to_arrow()
    amount = pc.sum(rows.column("amount")).as_py()
    due = (files.order_count, files.amount)
    check((rows.num_rows, amount) == due, "the table is not what the events lead to")
    committed = told["sum_up"]
    check(committed["rows"] <= due[0], "Spark SQL sees more orders than there are")
    narrator.found(f"{due[0]:,} orders, {due[1]:,.2f} in all: just what events and puts lead to")
    narrator.say(
        f"Spark SQL counted {committed['rows']:,} before: the others were only in the log then"
    )
    read = read_by_duckdb(
        "select count(*) as orders, sum(amount) as amount from iceberg_scan(?)",
        table.iceberg_metadata(),
    )
    if isinstance(read, Missing):
        narrator.left_out(read.hint)
        return
    check(tuple(read.to_pylist()[0].values()) == due, "DuckDB does not see what the table has")
    narrator.found(f"DuckDB counts {due[0]:,} too, flushed since, and the same sum")
