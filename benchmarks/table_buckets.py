"""`table_buckets`: upserts of random keys into bucketed tables: a row costs about as much in each.

Tables have the rows of the run, ten times as many and, when growth is asked for, fifty times.
"""

import functools
from pathlib import Path
from typing import Final, cast

from benchmarks.harness import Candidate, Kind, Outcome, Ratio, Stopwatch, Workload
from benchmarks.peer_process import PeerProcess, measured_together
from benchmarks.peers.table_bucketing import expected_total
from benchmarks.peers.table_calls import Reply
from benchmarks.table_session import TableSession, outcome

_ANSWER_SECONDS: Final = 1_800.0
_BUCKETS: Final = 16
_ROUNDS: Final = 6
_ROUND_ROWS: Final = 20_000


def build_buckets(session: TableSession) -> Workload:
    """The same upserts into bucketed tables of several sizes."""
    rows = session.scale.rows
    sizes = [rows, 10 * rows]
    if max(session.scale.growth_rows) > rows:
        sizes.append(50 * rows)
    names = [f"neve, {size:,} rows" for size in sizes]
    return Workload(
        name="table_buckets",
        sentence="Rows of random keys are upserted into a bucketed table and flushed.",
        unit="rows",
        candidates=[
            Candidate(
                name=name,
                kind=Kind.NEVE,
                trial=functools.partial(_upsert, rows=size),
                sync="each batch",
            )
            for name, size in zip(names, sizes, strict=True)
        ],
        ratios=[Ratio(of=larger, to=names[0]) for larger in names[1:]],
        parameters={"buckets": _BUCKETS, "upserts": _ROUNDS, "rows_per_upsert": _ROUND_ROWS},
        notes=(
            "The key tells the bucket: a flush looks for older rows in files of its buckets only.",
            "It is flushed after each upsert, and nothing is compacted meanwhile.",
        ),
        rounds_max=1,
    )


def _upsert(directory: Path, stopwatch: Stopwatch, *, rows: int) -> Outcome:
    process = PeerProcess("benchmarks.peers.table_bucketing", answer_seconds=_ANSWER_SECONDS)
    try:
        asked = process.ask(
            "upsert_buckets",
            directory=str(directory),
            rows=rows,
            buckets=_BUCKETS,
            rounds=_ROUNDS,
            round_rows=_ROUND_ROWS,
        )
    finally:
        process.close()
    reply = cast("Reply", asked)
    timed = measured_together([reply["timed"]])
    stopwatch.take(timed)
    return outcome(
        reply,
        expected_total(rows, _ROUNDS, _ROUND_ROWS),
        facts={"row_us": timed.wall_seconds / reply["rows"] * 1e6},
    )
