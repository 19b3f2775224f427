"""One neve table of a given size, in a process of its own, so that its memory can be seen.

1. upsert every row in batches, flush: rows/s and memory of writing
2. upsert a few of them again, flush: how fast a flush finds the rows it replaces
3. flush single rows: what a commit costs
4. rows by key
5. scan batch by batch: rows/s and memory
6. `compact(full=True)`: rows/s and memory

A wide table has few rows, and milliseconds of each step are taken: they are those of its columns.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import neve
from benchmarks.harness import SEED
from benchmarks.memory_peak import MemoryPeak
from benchmarks.peers.json_lines import PartTimer, serve
from benchmarks.peers.table_calls import Reply
from benchmarks.peers.table_neve import NeveStore
from benchmarks.table_sample import WIDE_ROWS, grown_rows, shown_total

_AGAIN_ROWS: Final = 50_000
_COMMITS: Final = 7
_GETS: Final = 5_000

Answer = TypeVar("Answer")


def grow(directory: str, rows: int, batch_rows: int) -> Reply:
    """Make a table and look at it."""
    store = NeveStore(Path(directory))
    facts: dict[str, float] = {}
    with PartTimer() as timer:
        _write(store, rows, batch_rows, facts)
        store.table.compact()
        first_rows = grown_rows(0, batch_rows, rows=rows).to_pylist()
        commits = [_one_commit(store, first_rows, at) for at in range(_COMMITS)]
        facts["commit_ms"] = median(commits) * 1e3
        facts["get_p50_us"] = _get(store, rows)
        total = _scan(store, facts)
        with MemoryPeak() as memory:
            began_at = time.perf_counter()
            store.table.compact(full=True)
            facts["compact_rows_s"] = rows / (time.perf_counter() - began_at)
        facts["compact_MB"] = memory.grown
    store.close()
    return Reply(
        timed=timer.part,
        rows=rows,
        calls=1,
        latencies_ns=[],
        answer=total,
        facts=facts,
        shares=[],
    )


def _write(store: NeveStore, rows: int, batch_rows: int, facts: dict[str, float]) -> None:
    spent = 0.0
    with MemoryPeak() as memory:
        for start in range(0, rows, batch_rows):
            batch = grown_rows(start, min(start + batch_rows, rows), rows=rows)
            began_at = time.perf_counter()
            store.upsert(batch)
            spent += time.perf_counter() - began_at
        began_at = time.perf_counter()
        store.settle()
        facts["load_rows_s"] = rows / (spent + time.perf_counter() - began_at)
    facts["load_MB"] = memory.grown
    again = min(_AGAIN_ROWS, rows) // batch_rows * batch_rows
    # The same values again: the table stays what it was.
    for start in range(0, again, batch_rows):
        store.upsert(grown_rows(start, start + batch_rows, rows=rows))
    with MemoryPeak() as memory:
        began_at = time.perf_counter()
        store.settle()
        facts["flush_rows_s"] = again / (time.perf_counter() - began_at)
    facts["flush_MB"] = memory.grown


def _one_commit(store: NeveStore, first_rows: list[dict[str, object]], at: int) -> float:
    store.put(first_rows[at])
    began_at = time.perf_counter()
    store.settle()
    return time.perf_counter() - began_at


def _get(store: NeveStore, rows: int) -> float:
    keys = (np.random.default_rng(SEED).integers(0, rows, _GETS) * 2).tolist()
    now = time.perf_counter_ns
    for _ in range(2):
        latencies = []
        for key in keys:
            began_at = now()
            row = store.get(key)
            latencies.append(now() - began_at)
            assert row is not None
    return median(latencies) / 1e3


def _scan(store: NeveStore, facts: dict[str, float]) -> str:
    count = ids = visits = 0
    with MemoryPeak() as memory:
        began_at = time.perf_counter()
        for batch in store.table.scan().to_batches():
            count += batch.num_rows
            ids += pc.sum(batch.column("id")).as_py()
            visits += pc.sum(batch.column("visits")).as_py()
        facts["scan_rows_s"] = count / (time.perf_counter() - began_at)
    facts["scan_MB"] = memory.grown
    return shown_total(count, ids, visits)


def widen(directory: str, columns: int) -> Reply:
    """Make a table of so many columns, and do everything to it once."""
    facts: dict[str, float] = {}
    names = [f"c{at}" for at in range(columns - 1)]
    fields: list[pa.Field[Any]] = [pa.field(name, pa.int64()) for name in names]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), *fields])
    values = pa.array(range(WIDE_ROWS), pa.int64())
    rows = pa.table([values] * columns, schema=schema)

    def timed(name: str, step: Callable[[], Answer]) -> Answer:
        began_at = time.perf_counter()
        answer = step()
        facts[f"{name}_ms"] = (time.perf_counter() - began_at) * 1e3
        return answer

    with PartTimer() as timer, neve.open(directory) as lake:
        options = neve.TableOptions(background=False)
        table = timed("create", lambda: lake.create_table("a.t", schema, "id", options=options))
        table.put(dict.fromkeys(["id", *names], 0))
        timed("put", lambda: table.put(dict.fromkeys(["id", *names], 0)))
        timed("upsert", lambda: table.upsert(rows))
        timed("commit", table.flush)
        timed("get", lambda: table.get(1))
        scanned = timed("scan", lambda: table.scan().to_arrow())
        timed("filter", lambda: table.scan("c1 >= 0").to_arrow())
        timed("compact", lambda: table.compact(full=True))
        timed("verify", table.verify)
    total = sum(pc.sum(scanned.column(name)).as_py() for name in names)
    return Reply(
        timed=timer.part,
        rows=WIDE_ROWS,
        calls=1,
        latencies_ns=[],
        answer=shown_total(scanned.num_rows, pc.sum(scanned.column("id")).as_py(), total),
        facts=facts,
        shares=[],
    )


if __name__ == "__main__":
    serve("neve", {"grow": grow, "widen": widen})
