"""What a process with a store can be asked in the table benchmarks, the same for every store.

Each timed call measures one block and gives, beside the time, a digest of what the store answers:
of the very answers that were timed where it read, of everything in it where it wrote. Whoever asks
knows what the digest must be.

Reads use stores that stay open between the calls and were asked the same once before. Writes work
on a directory of their own, and read back with a store that was opened again.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Final, TypedDict, cast

import pyarrow as pa

from benchmarks.peers.json_lines import PartTimer, TimedPart, serve
from benchmarks.peers.table_rows import (
    BASE,
    CHANGES,
    KEYS,
    ORDERED_SCHEMA,
    UPDATES,
    Row,
    digest,
    read_rows,
    rows_of_tuples,
    shown_sum,
)
from benchmarks.peers.table_store import TableStore

OpenStore = Callable[..., TableStore]

_BARRIER_SECONDS: Final = 60.0
_REPEATS_MAX: Final = 50


class Reply(TypedDict):
    """What a timed call gives."""

    timed: TimedPart
    rows: int
    calls: int
    latencies_ns: list[int]
    answer: str
    facts: dict[str, float]
    shares: list[int]
    """Rows that each thread wrote, where threads write until the time is up."""


class TableCalls:
    """The stores of one process, by directory and kind."""

    def __init__(self, kinds: Mapping[str, OpenStore]) -> None:
        self._kinds = kinds
        self._open: dict[tuple[str, str], TableStore] = {}
        self._asked: set[tuple[str, str, str]] = set()

    def calls(self) -> Mapping[str, Callable[..., object]]:
        """Everything that can be asked."""
        return {
            "load": self.load,
            "update": self.update,
            "leave_unclosed": self.leave_unclosed,
            "release": self.release,
            "put": self.put,
            "upsert": self.upsert,
            "commit": self.commit,
            "apply": self.apply,
            "delete": self.delete,
            "get": self.get,
            "get_first": self.get_first,
            "read": self.read,
            "reopen": self.reopen,
            "tidy": self.tidy,
        }

    # Preparing

    def load(self, directory: str, kind: str, sample: str, rows: int, batch_rows: int) -> None:
        """Fill a new table."""
        store = self._kinds[kind](Path(directory))
        store.load(read_rows(Path(sample, BASE)).slice(0, rows), batch_rows)
        store.close()

    def update(self, directory: str, kind: str, sample: str, batch_rows: int) -> None:
        """Bring the updates into a loaded table."""
        store = self._kinds[kind](Path(directory))
        store.update(read_rows(Path(sample, UPDATES)), batch_rows)
        store.close()

    def leave_unclosed(
        self, *, directory: str, image: str, kind: str, sample: str, rows: int, batch_rows: int
    ) -> None:
        """Write rows durably, and copy what the disk has while the store is open."""
        store = self._kinds[kind](Path(directory))
        for batch in _batches(read_rows(Path(sample, BASE)).slice(0, rows), batch_rows):
            store.upsert(batch)
        # Half-written files come and go meanwhile, and nothing names them.
        shutil.copytree(directory, image, ignore=shutil.ignore_patterns(".tmp-*"))
        store.close()

    def release(self) -> None:
        """Close every store that reads left open."""
        for store in self._open.values():
            store.close()
        self._open.clear()
        self._asked.clear()

    # Writing

    def put(
        self,
        *,
        directory: str,
        kind: str,
        sample: str,
        rows: int,
        seconds: float,
        threads: int,
        synced: bool,
    ) -> Reply:
        """Write single rows from threads until the time is up or the rows are."""
        store = self._kinds[kind](Path(directory), synced=synced)
        ready = store.as_rows(read_rows(Path(sample, BASE)).slice(0, rows))
        shares = [ready[thread::threads] for thread in range(threads)]
        barrier = Barrier(threads)

        def write(share: Sequence[object]) -> list[int]:
            if threads > 1:
                barrier.wait(_BARRIER_SECONDS)
            return _put_for(seconds, share, store.put)

        counted = _Requests(store)
        if threads == 1:
            with PartTimer() as timer:
                latencies = [write(shares[0])]
        else:
            with ThreadPoolExecutor(threads) as pool, PartTimer() as timer:
                latencies = list(pool.map(write, shares))
        flat = [latency for thread in latencies for latency in thread]
        facts = counted.per_call(len(flat))
        store.close()
        return Reply(
            timed=timer.part,
            rows=len(flat),
            calls=len(flat),
            latencies_ns=flat,
            answer=self._read_back(directory, kind),
            facts=facts,
            shares=[len(thread) for thread in latencies],
        )

    def upsert(
        self, directory: str, kind: str, sample: str, rows: int, batch_rows: int
    ) -> tuple[Reply, Reply]:
        """Write batches, each durable before the next, then settle them; gives both times."""
        store = self._kinds[kind](Path(directory))
        batches = _batches(read_rows(Path(sample, BASE)).slice(0, rows), batch_rows)
        counted = _Requests(store)
        with PartTimer() as settled:
            with PartTimer() as durable:
                latencies = _timed_each(batches, store.upsert)
            facts = counted.per_call(len(latencies))
            store.settle()
        store.close()
        answer = self._read_back(directory, kind)
        return (
            _reply(durable, rows, latencies, answer, facts=facts),
            _reply(settled, rows, [], answer),
        )

    def commit(self, directory: str, kind: str, sample: str, rows: int, batch_rows: int) -> Reply:
        """Commit batches one after another, each seen by other readers before the next."""
        store = self._kinds[kind](Path(directory))
        batches = _batches(read_rows(Path(sample, BASE)).slice(0, rows), batch_rows)
        counted = _Requests(store)
        with PartTimer() as timer:
            latencies = _timed_each(batches, store.commit)
        facts = counted.per_call(len(latencies))
        store.close()
        answer = self._read_back(directory, kind)
        return _reply(timer, rows, latencies, answer, facts=facts)

    def apply(
        self, *, directory: str, kind: str, sample: str, batch_rows: int, plainly: bool
    ) -> tuple[Reply, Reply]:
        """Write a feed of changes in batches, then settle them; gives both times.

        `plainly` upserts the rows of all changes instead, in the order of their arrival.
        """
        store = self._kinds[kind](Path(directory))
        changes = read_rows(Path(sample, CHANGES))
        given = changes.select(ORDERED_SCHEMA.names) if plainly else changes
        write = store.upsert if plainly else store.apply
        with PartTimer() as settled:
            with PartTimer() as durable:
                latencies = _timed_each(_batches(given, batch_rows), write)
            store.settle()
        store.close()
        answer = self._read_back(directory, kind)
        return (
            _reply(durable, changes.num_rows, latencies, answer),
            _reply(settled, changes.num_rows, [], answer),
        )

    def delete(self, directory: str, kind: str, sample: str, count: int, batch_rows: int) -> Reply:
        """Delete the first of the updated keys in batches, each durable before the next."""
        store = self._kinds[kind](Path(directory))
        keys = read_rows(Path(sample, UPDATES)).column("id").combine_chunks()
        batches = [keys[at : min(at + batch_rows, count)] for at in range(0, count, batch_rows)]
        with PartTimer() as timer:
            latencies = _timed_each(batches, store.delete)
        store.close()
        return _reply(timer, count, latencies, self._read_back(directory, kind))

    def tidy(self, directory: str, kind: str) -> Reply:
        """Make a table as small as it gets, and count what its directory takes."""
        store = self._kinds[kind](Path(directory))
        with PartTimer() as timer:
            store.tidy()
        store.close()
        taken = sum(path.stat().st_blocks for path in Path(directory).rglob("*")) * 512
        store = self._kinds[kind](Path(directory))
        rows = store.scan()
        store.close()
        return _reply(timer, rows.num_rows, [], digest(rows), facts={"megabytes": taken / 1e6})

    # Reading

    def get(self, directory: str, kind: str, sample: str, start: int, count: int) -> Reply:
        """Read rows by key, one call each, from a store that was asked for others before."""
        store, is_first = self._store(directory, kind, "get")
        if is_first:
            for key in _keys(sample, 0, count):
                store.get(key)
        return _timed_gets(store, _keys(sample, start, count))

    def get_first(self, directory: str, kind: str, sample: str, count: int) -> Reply:
        """Open a table whose files are not in memory, and read rows by key."""
        keys = _keys(sample, 0, count)
        _forget_files(Path(directory))
        began_at = time.perf_counter()
        store = self._kinds[kind](Path(directory))
        opened_ms = (time.perf_counter() - began_at) * 1e3
        reply = _timed_gets(store, keys)
        store.close()
        first_us = reply["latencies_ns"][0] / 1e3
        reply["facts"] |= {"open_ms": opened_ms, "first_get_us": first_us}
        return reply

    def read(
        self, directory: str, kind: str, what: str, arguments: list[object], seconds: float
    ) -> Reply:
        """Call one of the reading methods until the time is up, at least once."""
        store, is_first = self._store(directory, kind, what)
        method = getattr(store, what)
        if is_first:
            method(*arguments)
        latencies: list[int] = []
        counted = _Requests(store)
        with PartTimer() as timer:
            ends_at = time.perf_counter_ns() + int(seconds * 1e9)
            while not latencies or (
                time.perf_counter_ns() < ends_at and len(latencies) < _REPEATS_MAX
            ):
                began_at = time.perf_counter_ns()
                found = method(*arguments)
                latencies.append(time.perf_counter_ns() - began_at)
        if isinstance(found, float):
            return _reply(timer, len(latencies), latencies, shown_sum(found))
        rows = found if isinstance(found, pa.Table) else rows_of_tuples(found)
        facts = counted.per_call(len(latencies))
        return _reply(timer, rows.num_rows * len(latencies), latencies, digest(rows), facts=facts)

    def reopen(self, directory: str, kind: str, key: int) -> Reply:
        """Open a table that was not closed, and read a row of it."""
        with PartTimer() as timer:
            store = self._kinds[kind](Path(directory))
            found = store.get(key)
        store.close()
        del found
        return _reply(timer, 1, [], self._read_back(directory, kind))

    def _store(self, directory: str, kind: str, what: str) -> tuple[TableStore, bool]:
        """Return the open store, and whether this is the first time that it is asked this."""
        store = self._open.get((directory, kind))
        if store is None:
            store = self._open[directory, kind] = self._kinds[kind](Path(directory))
        asked = (directory, kind, what)
        is_first = asked not in self._asked
        self._asked.add(asked)
        return store, is_first

    def _read_back(self, directory: str, kind: str) -> str:
        store = self._kinds[kind](Path(directory))
        found = digest(store.scan())
        store.close()
        return found


class _Requests:
    """Counts the requests of a timed part, for stores that have a server."""

    def __init__(self, store: TableStore) -> None:
        self._store = store
        self._before = store.requests()

    def per_call(self, calls: int) -> dict[str, float]:
        """Return the requests of a call as facts; none for a store without a server."""
        after = self._store.requests()
        if self._before is None or after is None:
            return {}
        made = {kind: count - self._before.get(kind, 0) for kind, count in after.items()}
        each = {f"{kind}_per_call": count / max(calls, 1) for kind, count in made.items() if count}
        return {"requests_per_call": sum(made.values()) / max(calls, 1), **each}


def serve_store(greeting: str, kinds: Mapping[str, OpenStore]) -> None:
    """Answer calls until the input ends."""
    serve(greeting, TableCalls(kinds).calls())


def _batches(rows: pa.Table, batch_rows: int) -> list[pa.Table]:
    return [rows.slice(start, batch_rows) for start in range(0, rows.num_rows, batch_rows)]


def _keys(sample: str, start: int, count: int) -> list[int]:
    found = read_rows(Path(sample, KEYS)).column("id").slice(start, count)
    return cast("list[int]", found.to_pylist())


def _put_for(seconds: float, rows: Sequence[object], put: Callable[[object], None]) -> list[int]:
    now = time.perf_counter_ns
    latencies: list[int] = []
    ends_at = now() + int(seconds * 1e9)
    for row in rows:
        began_at = now()
        if began_at >= ends_at:
            break
        put(row)
        latencies.append(now() - began_at)
    return latencies


def _timed_each(batches: Sequence[object], do: Callable[..., object]) -> list[int]:
    latencies = []
    for batch in batches:
        began_at = time.perf_counter_ns()
        do(batch)
        latencies.append(time.perf_counter_ns() - began_at)
    return latencies


def _timed_gets(store: TableStore, keys: Sequence[int]) -> Reply:
    now, get = time.perf_counter_ns, store.get
    latencies, found = [], []
    counted = _Requests(store)
    with PartTimer() as timer:
        for key in keys:
            began_at = now()
            row = get(key)
            latencies.append(now() - began_at)
            found.append(row)
    facts = counted.per_call(len(keys))
    rows: list[Row] = [store.as_tuple(key, row) for key, row in zip(keys, found, strict=True)]
    answer = digest(rows_of_tuples(rows), in_order=True)
    return _reply(timer, len(keys), latencies, answer, facts=facts)


def _forget_files(directory: Path) -> None:
    """Have the operating system drop what it keeps of the files in memory."""
    for path in directory.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fdatasync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def _reply(
    timer: PartTimer,
    rows: int,
    latencies: list[int],
    answer: str,
    *,
    facts: dict[str, float] | None = None,
) -> Reply:
    return Reply(
        timed=timer.part,
        rows=rows,
        calls=max(len(latencies), 1),
        latencies_ns=latencies,
        answer=answer,
        facts=facts or {},
        shares=[],
    )
