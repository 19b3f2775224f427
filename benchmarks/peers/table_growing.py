"""One neve table of a given size, in a process of its own, so that its memory can be seen.

1. upsert every row in batches, flush: rows/s and memory of writing
2. upsert a few of them again, flush: how fast a flush finds the rows it replaces
3. flush single rows: what a commit costs
4. close it and open it again; bytes of its directory, and its files
5. rows by key, one by one and a thousand at a time
6. 1 % of the rows, by a range of keys; the sum of a column
7. scan batch by batch: rows/s and memory
8. `compact(full=True)`: rows/s and memory

A wide table has few rows, and milliseconds of each step are taken: they are those of its columns.
So it is with a table of many files, which has two rows in each: they are those of its files.
"""

import resource
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
from benchmarks.table_sample import SPREAD_ROWS, WIDE_ROWS, grown_rows, shown_total

_AGAIN_ROWS: Final = 50_000
_COMMITS: Final = 7
_GETS: Final = 5_000
_MANY_KEYS: Final = 1_000
_MANY_CALLS: Final = 21
_SHORT_READS: Final = 5
_RANGE_SHARE: Final = 100
# Ids are even.
_STEP: Final = 2
_PARTITIONS_MAX: Final = 1_000

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
        store = _reopen(store, directory, rows, facts)
        facts["get_p50_us"] = _get(store, rows)
        _read_some(store, rows, facts)
        total = _scan(store, facts)
        with MemoryPeak() as memory:
            began_at = time.perf_counter()
            store.table.compact(full=True)
            facts["compact_rows_s"] = rows / (time.perf_counter() - began_at)
        facts["compact_MB"] = memory.grown
    facts["peak_MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
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


def _reopen(store: NeveStore, directory: str, rows: int, facts: dict[str, float]) -> NeveStore:
    facts["files"] = store.table.stats().file_count
    store.close()
    found = sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())
    facts["bytes_per_row"] = found / rows
    began_at = time.perf_counter()
    store = NeveStore(Path(directory))
    facts["open_ms"] = (time.perf_counter() - began_at) * 1e3
    return store


def _read_some(store: NeveStore, rows: int, facts: dict[str, float]) -> None:
    generator = np.random.default_rng(SEED)
    taken = []
    for _ in range(_MANY_CALLS):
        keys = (generator.choice(rows, _MANY_KEYS, replace=False) * _STEP).tolist()
        began_at = time.perf_counter()
        found = store.get_many(keys)
        taken.append(time.perf_counter() - began_at)
        assert found.num_rows == _MANY_KEYS
    facts["get_many_us_key"] = median(taken) / _MANY_KEYS * 1e6
    wanted = rows // _RANGE_SHARE
    ranges, sums = [], []
    for first in (generator.integers(0, rows - wanted, _SHORT_READS) * _STEP).tolist():
        began_at = time.perf_counter()
        found = store.scan_range(first, first + wanted * _STEP)
        ranges.append(time.perf_counter() - began_at)
        assert found.num_rows == wanted
        began_at = time.perf_counter()
        batches = store.table.scan(columns=["visits"]).to_batches()
        assert sum(pc.sum(batch.column("visits")).as_py() for batch in batches) > 0
        sums.append(time.perf_counter() - began_at)
    facts["range_rows_s"] = wanted / median(ranges)
    facts["sum_rows_s"] = rows / median(sums)


def _get(store: NeveStore, rows: int) -> float:
    keys = (np.random.default_rng(SEED).integers(0, rows, _GETS) * _STEP).tolist()
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


def spread(directory: str, files: int) -> Reply:
    """Make a table of so many files in up to a thousand partitions, and do everything to it."""
    facts: dict[str, float] = {}
    partitions = min(files, _PARTITIONS_MAX)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("part", pa.int32())])
    options = neve.TableOptions(background=False, iceberg_publish="demand")

    def timed(name: str, step: Callable[[], Answer]) -> Answer:
        began_at = time.process_time()
        answer = step()
        facts[f"{name}_cpu_ms"] = (time.process_time() - began_at) * 1e3
        return answer

    def fill(table: neve.Table) -> None:
        for start in range(0, SPREAD_ROWS * files, SPREAD_ROWS * partitions):
            ids = np.arange(start, start + SPREAD_ROWS * partitions)
            table.upsert(pa.table([ids, (ids % partitions).astype(np.int32)], schema=schema))
            table.flush()

    with PartTimer() as timer:
        with (
            neve.open(directory) as lake,
            lake.create_table("a.t", schema, "id", partition_by=["part"], options=options) as table,
        ):
            timed("fill", lambda: fill(table))
            timed("publish", table.iceberg_metadata)
            table.put({"id": 0, "part": 0})
            timed("commit", table.flush)
            timed("publish_next", table.iceberg_metadata)
        with (
            neve.open(directory) as lake,
            timed("open", lambda: lake.table("a.t", options=options)) as table,
        ):
            timed("get", lambda: table.get(0))
            timed("plan", lambda: table.scan("part = 1").explain())
            timed("plan_all", lambda: table.scan().explain())
            timed("verify", table.verify)
            scanned = timed("scan", lambda: table.scan().to_arrow())
            timed("compact", lambda: table.compact(full=True))
            timed("expire", lambda: table.expire(keep_last=1))
            table.iceberg_metadata()
            collected = timed("gc", lambda: table.collect_garbage(dry_run=False))
            facts["collected"] = collected.file_count
    ids, parts = scanned.column("id"), scanned.column("part")
    return Reply(
        timed=timer.part,
        rows=SPREAD_ROWS * files,
        calls=1,
        latencies_ns=[],
        answer=shown_total(scanned.num_rows, pc.sum(ids).as_py(), pc.sum(parts).as_py()),
        facts=facts,
        shares=[],
    )


if __name__ == "__main__":
    serve("neve", {"grow": grow, "widen": widen, "spread": spread})
