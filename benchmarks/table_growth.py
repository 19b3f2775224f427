"""`table_growth`, `table_columns` and `table_files`: neve alone, at several sizes.

They show what grows with the rows, columns or files of a table, and what must not.
"""

import functools
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import Candidate, Kind, Outcome, Stopwatch, Workload
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.table_calls import Reply
from benchmarks.table_sample import SPREAD_ROWS, WIDE_ROWS, grown_total, spread_total, wide_total
from benchmarks.table_session import BATCH_ROWS, TableSession, outcome

_ANSWER_SECONDS: Final = 3_600.0
_SECONDS_PER_ROW: Final = 2e-4
_PARTITIONS_MAX: Final = 1_000
_MEMORY_NOTE: Final = (
    "MB are how far memory without files behind it rose above where the step began: while loading, "
    "flushing, scanning batch by batch, and compacting everything."
)
_SIZE_NOTE: Final = (
    "`bytes per row` are those of the whole directory after `compact()`, with logs and indexes; "
    "`peak MB` is the most memory that the process had, pages of mapped files among it."
)
_STEPS_NOTE: Final = (
    "CPU of each step. `publish` writes all files to Iceberg's metadata, `publish next` those of "
    "one commit; `plan` is of one partition, `plan all` of the whole table."
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
            "`commit ms` is the flush of one row; `open ms` opens the table and looks for a key.",
            _SIZE_NOTE,
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


def build_files(session: TableSession) -> Workload:
    """The same few rows in each of more and more files."""
    return Workload(
        name="table_files",
        sentence="A table of small files in up to 1,000 partitions is filled, published, planned, "
        "verified, compacted and cleaned, at several numbers of files.",
        unit="rows",
        candidates=[
            Candidate(
                name=f"neve, {files:,} files",
                kind=Kind.NEVE,
                trial=functools.partial(_spread, files=files),
                sync="each batch",
            )
            for files in session.scale.growth_files
        ],
        parameters={"rows_per_file": SPREAD_ROWS, "partitions_max": _PARTITIONS_MAX},
        notes=(
            _STEPS_NOTE,
            "`commit`, `publish next`, `get` and `plan` must not grow; all else as the files do.",
        ),
        rounds_max=1,
    )


def _spread(directory: Path, stopwatch: Stopwatch, *, files: int) -> Outcome:
    process = PeerProcess("benchmarks.peers.table_growing", answer_seconds=_ANSWER_SECONDS)
    try:
        asked = process.ask("spread", directory=str(directory), files=files)
    finally:
        process.close()
    reply = cast("Reply", asked)
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, spread_total(files, partitions=min(files, _PARTITIONS_MAX)))


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
    seconds = _ANSWER_SECONDS + rows * _SECONDS_PER_ROW
    process = PeerProcess("benchmarks.peers.table_growing", answer_seconds=seconds)
    try:
        asked = process.ask("grow", directory=str(directory), rows=rows, batch_rows=BATCH_ROWS)
    finally:
        process.close()
    reply = cast("Reply", asked)
    stopwatch.take(measured_together([reply["timed"]]))
    return outcome(reply, grown_total(rows, batch_rows=BATCH_ROWS))
