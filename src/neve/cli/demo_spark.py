"""The act in which Spark works on a table that this process writes at the same time.

1. Write raw change events as JSON files, and make a table that is divided by day.
2. Start the pipeline in a process of its own: load, clean and merge, stream, compact, SQL.
3. While it streams, put rows live here, by key and durable.
4. Compare the table with what the events lead to, read here, by Spark SQL and by DuckDB.
"""

import importlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from threading import Event, Thread
from typing import Final

import pyarrow.compute as pc

from neve.catalog.table import Table
from neve.cli.demo_events import BROKEN, LIVE_FROM, ORDERS, SCHEMA, STREAMED, EventFiles, Order
from neve.cli.demo_events import order as order_of
from neve.cli.demo_stage import Finding, Stage, check
from neve.errors import NeveError, Unavailable

_STEPS: Final = 7
_LIVE_ROWS_MAX: Final = 2_000
_PAUSE_SECONDS: Final = 0.01

Told = dict[str, float]


def spark(stage: Stage) -> tuple[Finding, ...]:
    """Run the pipeline beside a live writer, or say that Spark is not there."""
    narrator = stage.narrator
    if importlib.util.find_spec("pyspark") is None:
        narrator.say("Spark is not installed here (`pip install neve[spark]`): this is left out")
        return (Finding("spark_is_installed", value=False),)
    files = EventFiles(stage.root / f"events-{stage.run_id}")
    files.write()
    name = stage.name("by_day")
    with stage.lake.create_table(name, SCHEMA, ["id"], partition_by=["day(ts)"]) as table:
        with stage.timed() as seconds, _pipeline(stage, name, files) as pipeline:
            told, live_rows = _listen(stage, pipeline, table)
        files.add_live(live_rows)
        _tell(stage, told, len(live_rows))
        _compare(stage, table, files, told)
    return (
        Finding("spark_is_installed", value=True),
        Finding("spark_seconds", round(seconds(), 2), "seconds for the pipeline on Spark"),
        Finding("spark_load_seconds", round(told["load"]["seconds"], 2)),
        Finding("spark_merge_seconds", round(told["merge"]["seconds"], 2)),
        Finding("spark_compact_seconds", round(told["compact"]["seconds"], 2)),
        Finding("live_rows", len(live_rows), "rows put live while Spark wrote the same table"),
    )


@contextmanager
def _pipeline(stage: Stage, name: str, files: EventFiles) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "neve.spark.demo_pipeline"]
    command += [str(stage.root), name, str(files.root)]
    log = stage.root / f"spark-{stage.run_id}.log"
    with (
        log.open("wb") as errors,
        # In a session of its own, so that an interrupt from the keyboard reaches only the demo.
        subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
            ended = process.wait()
        except BaseException:
            process.terminate()
            raise
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
    with stage.narrator.progress("Spark", total=_STEPS) as progress:
        try:
            for line in pipeline.stdout:
                found = json.loads(line)
                told[found.pop("step")] = found
                progress(len(told))
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


def _tell(stage: Stage, told: dict[str, Told], live_rows: int) -> None:
    check("sum_up" in told, "the pipeline on Spark did not come to its end")
    narrator = stage.narrator
    load, merge, stream = told["load"], told["merge"], told["stream"]
    check(load["rows"] == ORDERS, "Spark loaded other rows than it was given")
    check(merge["broken"] == BROKEN, "Spark took broken events for whole ones")
    check(stream["rows"] == STREAMED, "not every row of the stream arrived")
    narrator.say(f"a session of Spark in {told['started']['seconds']:.1f} s, with its own Java VM")
    narrator.say(
        f"loaded {load['rows']:,} orders into {load['files']:.0f} files by day, one commit: "
        f"{load['seconds']:.1f} s"
    )
    narrator.say(
        f"{merge['events']:,} raw events, {merge['broken']:,} of them broken: cleaned, the last of "
        f"each order kept, merged (update, insert, delete): {merge['seconds']:.1f} s"
    )
    narrator.found(
        f"{stream['rows']:,} rows streamed in, {stream['batches']:.0f} batches exactly once, while "
        f"this process put {live_rows:,} rows into the same table"
    )
    narrator.say(f"compacted on Spark: {told['compact']['seconds']:.1f} s")


def _compare(stage: Stage, table: Table, files: EventFiles, told: dict[str, Told]) -> None:
    narrator = stage.narrator
    table.flush()
    rows = table.scan(columns=["amount"]).to_arrow()
    amount = pc.sum(rows.column("amount")).as_py()
    due = (files.order_count, files.amount)
    check((rows.num_rows, amount) == due, "the table is not what the events lead to")
    committed = told["sum_up"]
    check(committed["rows"] <= due[0], "Spark SQL sees more orders than there are")
    narrator.found(
        f"{due[0]:,} orders that amount to {due[1]:,.2f}: here exactly what the events lead to; "
        f"Spark SQL had {committed['rows']:,} of them committed"
    )
    found = _read_by_duckdb(table)
    if found is not None:
        check(found == due, "DuckDB does not see what the table has")
        narrator.found("DuckDB, through the table's Iceberg metadata: the same")


def _read_by_duckdb(table: Table) -> tuple[int, float] | None:
    """Give rows and amount as DuckDB reads them; None where its extension is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("duckdb", "duckdb_extensions")):
        return None
    duckdb = importlib.import_module("duckdb")
    load = importlib.import_module("duckdb_extensions").import_extension
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for extension in ("avro", "httpfs", "iceberg"):
            load(extension, con=connection)
        connection.execute("LOAD iceberg")
        row = connection.execute(
            "select count(*), sum(amount) from iceberg_scan(?)", [table.iceberg_metadata()]
        ).fetchone()
    return int(row[0]), float(row[1])
