"""`table_growth` and `table_columns`: neve alone, at several sizes and at several widths.

They show what grows with the rows or the columns of a table, and what must not.
"""

import functools
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import Candidate, Kind, Outcome, Stopwatch, Workload
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.table_calls import Reply
from benchmarks.table_sample import WIDE_ROWS, grown_total, wide_total
from benchmarks.table_session import BATCH_ROWS, TableSession, outcome

_ANSWER_SECONDS: Final = 1_800.0
_MEMORY_NOTE: Final = (
    "MB are how far memory without files behind it rose above where the step began: while loading, "
    "flushing, scanning batch by batch, and compacting everything."
)


def build_growth(session: TableSession) -> Workload:
    """The same jobs on tables of several sizes."""
    sizes = session.scale.growth_rows
    return Workload(
        name="table_growth",
        sentence="A table is filled, updated, committed to, read and compacted, at several sizes.",
        unit="rows",
        candidates=[
            Candidate(
                name=f"neve, {rows:,} rows",
                kind=Kind.NEVE,
                trial=functools.partial(_grow, rows=rows),
                sync="each batch",
            )
            for rows in sizes
        ],
        parameters={"batch_rows": BATCH_ROWS},
        notes=(
            _MEMORY_NOTE,
            "`commit ms` is the flush of one row.",
            "Default options: 64 MiB of memtable, two of them waiting, and a cache of 256 MiB.",
        ),
        rounds_max=1,
    )


def build_columns(session: TableSession) -> Workload:
    """The same few rows in tables of more and more columns."""
    return Workload(
        name="table_columns",
        sentence="A few rows are written, committed, read, compacted and verified, at several "
        "numbers of columns.",
        unit="rows",
        candidates=[
            Candidate(
                name=f"neve, {columns:,} columns",
                kind=Kind.NEVE,
                trial=functools.partial(_widen, columns=columns),
                sync="each batch",
            )
            for columns in session.scale.growth_columns
        ],
        parameters={"rows": WIDE_ROWS},
        notes=("Each step must grow as the columns do. `commit ms` includes publishing.",),
        rounds_max=1,
    )


def _widen(directory: Path, stopwatch: Stopwatch, *, columns: int) -> Outcome:
    process = PeerProcess("benchmarks.peers.table_growing", answer_seconds=_ANSWER_SECONDS)
    try:
        asked = process.ask("widen", directory=str(directory), columns=columns)
    finally:
        process.close()
    reply = cast("Reply", asked)
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, wide_total(columns))


def _grow(directory: Path, stopwatch: Stopwatch, *, rows: int) -> Outcome:
    process = PeerProcess("benchmarks.peers.table_growing", answer_seconds=_ANSWER_SECONDS)
    try:
        asked = process.ask("grow", directory=str(directory), rows=rows, batch_rows=BATCH_ROWS)
    finally:
        process.close()
    reply = cast("Reply", asked)
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, grown_total(rows, batch_rows=BATCH_ROWS))
