"""`table_transactions`: transactions and conditional writes beside plain puts; neve alone.

A transaction reads two rows and writes both. All writes are durable when they return. A trial
lasts a fixed time, because disks differ by a factor of a hundred in how often they sync.
"""

import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import neve
from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Stopwatch, Workload
from benchmarks.table_session import TableSession

_THREADS: Final = 16
_ROWS_MAX: Final = 100_000
_ROW_BYTES: Final = 16
_BARRIER_SECONDS: Final = 60.0
_ROUNDS_FACTOR: Final = 5
_EACH: Final = "each commit"

Commit = Callable[[neve.Table, Random, int], int]
"""Commits once, and returns how much it added to the sum of the table; 0 when refused."""


def build_transactions(session: TableSession) -> Workload:
    """Puts, conditional puts and transactions, from one thread and from many."""
    rows = min(session.scale.rows, _ROWS_MAX)
    seconds = session.scale.synced_seconds
    kinds: tuple[tuple[str, Commit], ...] = (
        ("transaction", _transact),
        ("compare_and_put", _compare),
        ("put", _put),
    )
    names = {threads: f"{threads} thread{'s' * (threads > 1)}" for threads in (1, _THREADS)}
    return Workload(
        name="table_transactions",
        sentence="Rows are read and written by key, each commit durable when it returns.",
        unit="commits",
        candidates=[
            Candidate(
                name=f"neve {kind}, {names[threads]}",
                kind=Kind.NEVE,
                trial=functools.partial(
                    _run, commit=commit, rows=rows, seconds=seconds, threads=threads
                ),
                sync=_EACH,
            )
            for threads in names
            for kind, commit in kinds
        ],
        ratios=[
            Ratio(
                of=f"neve {kind}, {names[threads]}",
                to=f"neve put, {names[threads]}",
                target=0.4 if kind == "transaction" and threads > 1 else None,
            )
            for threads in names
            for kind, _ in kinds[:2]
        ]
        + [
            Ratio(of=f"neve {kind}, {names[_THREADS]}", to=f"neve {kind}, {names[1]}")
            for kind, _ in kinds
        ],
        parameters={"rows": rows, "seconds_per_trial": seconds, "seed": SEED},
        notes=(
            "A transaction reads two random rows and writes both; refused ones do not count.",
            "`compare_and_put` reads the row before; its commits count as well if it was there.",
        ),
        rounds_factor=_ROUNDS_FACTOR,
    )


def _run(
    directory: Path,
    stopwatch: Stopwatch,
    *,
    commit: Commit,
    rows: int,
    seconds: float,
    threads: int,
) -> Outcome:
    with neve.open(directory / "lake") as lake:
        table = lake.create_table(
            "a.b",
            {"id": "long", "n": "long"},
            "id",
            options=neve.TableOptions(background=False, memtable_bytes=1 << 30),
        )
        table.upsert(pa.table({"id": np.arange(rows), "n": np.zeros(rows, np.int64)}))
        table.flush()
        barrier = Barrier(threads + 1)

        def work(number: int) -> tuple[int, list[int]]:
            random, added, latencies = Random(SEED + number), 0, list[int]()
            barrier.wait(_BARRIER_SECONDS)
            began = time.perf_counter_ns()
            ends = began + int(seconds * 1e9)
            while began < ends:
                more = commit(table, random, rows)
                ended = time.perf_counter_ns()
                if more:
                    added += more
                    latencies.append(ended - began)
                began = ended
            return added, latencies

        with ThreadPoolExecutor(threads) as pool:
            running = [pool.submit(work, number) for number in range(threads)]
            with stopwatch:
                barrier.wait(_BARRIER_SECONDS)
                done = [each.result() for each in running]
        found = pc.sum(table.scan(columns=["n"]).to_arrow()["n"]).as_py()
    latencies = [each for _, some in done for each in some]
    return Outcome(
        rows=len(latencies),
        calls=len(latencies),
        logical_bytes=len(latencies) * _ROW_BYTES,
        answer=f"sum {found if commit is not _put else len(latencies):,}",
        expected=f"sum {sum(added for added, _ in done):,}",
        latencies_ns=latencies,
    )


def _put(table: neve.Table, random: Random, rows: int) -> int:
    table.put({"id": random.randrange(rows), "n": 1})
    return 1


def _compare(table: neve.Table, random: Random, rows: int) -> int:
    row = table.get(random.randrange(rows))
    assert row is not None
    return 0 if table.compare_and_put({**row, "n": row["n"] + 1}, row) is None else 1


def _transact(table: neve.Table, random: Random, rows: int) -> int:
    try:
        with table.transaction() as tx:
            for key in random.sample(range(rows), 2):
                row = tx.get(key)
                assert row is not None
                tx.put({**row, "n": row["n"] + 1})
    except neve.Conflict:
        return 0
    return 2
