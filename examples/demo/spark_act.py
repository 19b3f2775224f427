"""The act in which Spark works on a table that this process writes at the same time.

1. Write raw change events as JSON files, and make a table that is divided by day.
2. Start the pipeline in a process of its own: load, upsert, merge, stream, compact, SQL.
3. While it streams, put rows live here, by key and durable.
4. Compare the table with what the events lead to, read here, by Spark SQL and by DuckDB.

The events are files of JSON lines:

orders/     the first rows, one file
updates/    rows that come later, new and old ones; one of each key
changes/    raw events: new amounts, new orders, cancellations; several of one key, some lines torn
stream/     rows that arrive later, a file for each few hundred

Every event follows from its number, so that the table they lead to is known without Spark.
"""

import importlib.util
import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.other_systems import Missing, read_by_duckdb
from examples.demo.stage import Finding, Found, Stage, check, child_process, shown_seconds
from neve.catalog.table import Table
from neve.errors import NeveError, Unavailable

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.float64(),
    "ts": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
}
SCHEMA: Final = pa.schema(_COLUMNS)
ORDERS: Final = 20_000
UPDATES: Final = 2_000
EVENTS: Final = 8_000
BROKEN: Final = 40
STREAMED: Final = 2_000
STREAM_FILES: Final = 4
LIVE_FROM: Final = 1_000_000
"""First number of the orders that are written live, beside Spark."""

_DAYS: Final = 4
_CUSTOMERS: Final = 500
_CANCELS_EACH: Final = 10
# Coprime to the number of orders: events come back to an order now and then.
_STRIDE: Final = 7_919
# What Spark does next, after each step that it reports.
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

Order = dict[str, object]


def order(number: int, seq: int) -> Order:
    """Return an order as it is after an event."""
    return {
        "id": number,
        "customer": f"customer {number % _CUSTOMERS}",
        "amount": (number * 7 + seq) % 10_000 / 4,
        "ts": f"2026-03-{1 + number % _DAYS:02}T{seq % 24:02}:00:00Z",
        "seq": seq,
    }


class EventFiles:
    """Writes the events, and knows how many orders they leave and what these amount to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._left: dict[int, Order] = {}

    @property
    def order_count(self) -> int:
        """Orders that are left."""
        return len(self._left)

    @property
    def amount(self) -> float:
        """What they amount to; exact, as all amounts are quarters."""
        return sum(float(str(each["amount"])) for each in self._left.values())

    def write(self) -> None:
        """Write all files."""
        first = [order(number, number) for number in range(ORDERS)]
        self._put(first)
        self._write("orders/orders.json", first)
        # Half of them are new.
        updates = [order(ORDERS - UPDATES // 2 + place, ORDERS + place) for place in range(UPDATES)]
        self._put(updates)
        self._write("updates/updates.json", updates)
        first_change = ORDERS + UPDATES
        self._write_changes(range(first_change, first_change + EVENTS))
        share = STREAMED // STREAM_FILES
        for file in range(STREAM_FILES):
            begin = first_change + EVENTS + file * share
            rows = [order(seq * _STRIDE % (2 * ORDERS), seq) for seq in range(begin, begin + share)]
            self._put(rows)
            self._write(f"stream/{file:04}.json", rows)

    def add_live(self, rows: Iterable[Order]) -> None:
        """Count rows that were written beside Spark."""
        self._put(rows)

    def _write_changes(self, numbers: range) -> None:
        lines = []
        for seq in numbers:
            changed = order(seq * _STRIDE % (ORDERS + EVENTS // 4), seq)
            is_cancelled = seq % _CANCELS_EACH == 0
            lines.append(json.dumps({"op": "cancel" if is_cancelled else "upsert", **changed}))
            if is_cancelled:
                self._left.pop(int(str(changed["id"])), None)
            else:
                self._put([changed])
        every = len(lines) // BROKEN
        torn = [line[: len(line) // 2] for line in lines[::every]][:BROKEN]
        path = self.root / "changes" / "changes.json"
        path.parent.mkdir(parents=True)
        path.write_text("\n".join([*lines, *torn]) + "\n")

    def _put(self, rows: Iterable[Order]) -> None:
        self._left |= {int(str(row["id"])): row for row in rows}

    def _write(self, name: str, rows: Iterable[Order]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


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
    """Follow the pipeline to its end, writing rows while it streams; return what both did."""
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
        row = order(seq, seq)
        try:
            table.put({**row, "ts": datetime.fromisoformat(str(row["ts"]))})
        except NeveError:
            return  # the comparison reports the missing rows
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
