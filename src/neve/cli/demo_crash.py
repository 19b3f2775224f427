"""The act in which a writer is killed: every acknowledged row must be there afterwards, none torn.

1. Start a writer in a process of its own; it prints each row's number once it is acknowledged.
2. While it lives, a second writer is refused.
3. Kill it with SIGKILL while it writes, and read what it still had printed.
4. Open the table for writing; its log is replayed. Compare row by row.
5. Write on, flush, and read everything again.
"""

import os
import select
from typing import Final

from examples.demo.killed_writer import THREADS
from examples.demo.order_rows import ARROW_SCHEMA, KEY, PARTITIONS
from examples.demo.stage import Finding, Found, Stage, check, child_process, shown_seconds

from neve.errors import Fenced, Unavailable

_ROWS_BEFORE_KILL: Final = 4_000
_SECONDS_BEFORE_KILL: Final = 5.0
_SECONDS_TO_START: Final = 60.0
_ROWS_AFTERWARDS: Final = 100
_READ_BYTES: Final = 1 << 16


def crash(stage: Stage) -> tuple[Found, ...]:
    """Kill a writer, reopen, and prove that nothing acknowledged is lost."""
    narrator, name = stage.narrator, stage.name("crash")
    stage.lake.create_table(name, ARROW_SCHEMA, KEY, partition_by=PARTITIONS)
    acknowledged = _killed_writer(stage, name)
    narrator.say(f"kill -9 after {len(acknowledged):,} acknowledged rows, while it writes more")
    with stage.timed() as seconds:
        table = stage.lake.table(name)
    with table:
        # One dict per row that was written: a few thousand.
        rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
        lost = acknowledged - rows.keys()
        torn = [number for number, row in rows.items() if row != stage.table.row(number)]
        check(
            not lost and not torn,
            f"{len(lost)} acknowledged rows are lost and {len(torn)} are torn",
        )
        narrator.found(
            f"opened again in {shown_seconds(seconds())}: all {len(acknowledged):,} rows are there"
            ", lost 0, torn 0"
        )
        extra = len(rows) - len(acknowledged)
        check(extra <= THREADS, f"{extra} rows are there that nobody was writing")
        first = max(rows) + 1
        table.upsert(stage.table.rows(range(first, first + _ROWS_AFTERWARDS)))
        table.flush()
        check(
            table.scan().count() == len(rows) + _ROWS_AFTERWARDS,
            "rows written after the crash are not all there",
        )
        narrator.found(f"{_ROWS_AFTERWARDS} more rows written and flushed, as before the crash")
    return (
        Finding("acknowledged", len(acknowledged)),
        Finding("recovered", len(rows)),
        Finding("lost", len(lost), f"of {len(acknowledged):,} acknowledged rows lost by kill -9"),
        Finding("torn", len(torn)),
        Finding("reopen_seconds", round(seconds(), 4)),
    )


def _killed_writer(stage: Stage, name: str) -> set[int]:
    """Run a writer, kill it, and give the numbers of the rows it had acknowledged."""
    with child_process("examples.demo.killed_writer", str(stage.root), name) as writer:
        assert writer.stdout is not None
        handle = writer.stdout.fileno()
        printed = _read(stage, handle, rows_due=1, seconds=_SECONDS_TO_START)
        if not printed:
            raise Unavailable(
                "the writer process acknowledged nothing", hint="Its own words are above; try again"
            )
        _refuse_second_writer(stage, name)
        printed += _read(
            stage, handle, rows_due=_ROWS_BEFORE_KILL, seconds=_SECONDS_BEFORE_KILL, so_far=printed
        )
        writer.kill()
        printed += writer.stdout.read()
    return {int(line) for line in printed.splitlines()}


def _refuse_second_writer(stage: Stage, name: str) -> None:
    """Show that another process cannot write while the writer lives."""
    try:
        stage.lake.table(name).close()
    except Fenced as refused:
        stage.narrator.found(f"while it lives, a second writer is refused: {refused.message}")
    else:
        check(claim=False, what="two processes could open the table for writing")


def _read(
    stage: Stage, handle: int, *, rows_due: int, seconds: float, so_far: bytes = b""
) -> bytes:
    """Read what the writer prints until enough rows are acknowledged, or the time is over."""
    clock = stage.clock
    printed = bytearray()
    rows = so_far.count(b"\n")
    ends_at = clock.monotonic() + seconds
    with stage.narrator.progress("a writer in another process", total=rows_due) as told:
        while rows < rows_due and clock.monotonic() < ends_at:
            ready, _, _ = select.select([handle], [], [], max(0.0, ends_at - clock.monotonic()))
            piece = os.read(handle, _READ_BYTES) if ready else b""
            if not piece:
                break
            printed += piece
            rows += piece.count(b"\n")
            told(min(rows, rows_due))
    return bytes(printed)
