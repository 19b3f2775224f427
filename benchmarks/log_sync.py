"""`append_synced`: single rows, each durable when its append returns, from one and 16 threads.

A trial writes for a fixed time instead of a fixed number of rows, because disks differ by a factor
of a hundred in how often they sync; it is short and repeated often, because they also differ from
one second to the next.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Final

from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from benchmarks.log_peers import (
    BARE_FRAME,
    CountingDisk,
    RawFile,
    open_neve,
    open_rocksdb,
    read_neve_rows,
    read_rocksdb_rows,
)
from benchmarks.sample_rows import ROW_BYTES, Row, sample_rows
from neve.wal.batch_codec import encode_put
from neve.wal.log_options import SyncPolicy

_THREADS: Final = 16
_ROUNDS_FACTOR: Final = 5
_ROWS_PER_SECOND_MAX: Final = 400_000
_EACH_ROW: Final = "each row"
_BARRIER_SECONDS: Final = 60.0

WriteRow = Callable[[bytes, bytes], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contest:
    """What every candidate is given."""

    rows: Sequence[Row]
    seconds: float
    threads: int

    def write(self, write_row: WriteRow, stopwatch: Stopwatch) -> "_Written":
        """Write from all threads until the time is up or the rows are."""
        shares = [self.rows[thread :: self.threads] for thread in range(self.threads)]
        if self.threads == 1:
            with stopwatch:
                latencies = [write_for(self.seconds, shares[0], write_row)]
            return _Written(shares, latencies)
        barrier = Barrier(self.threads + 1)

        def write_share(share: Sequence[Row]) -> list[int]:
            barrier.wait(_BARRIER_SECONDS)
            return write_for(self.seconds, share, write_row)

        with ThreadPoolExecutor(self.threads) as pool:
            running = [pool.submit(write_share, share) for share in shares]
            with stopwatch:
                barrier.wait(_BARRIER_SECONDS)
                latencies = [thread.result() for thread in running]
        return _Written(shares, latencies)


@dataclass(frozen=True, slots=True)
class _Written:
    """Rows that were acknowledged, and how long each waited."""

    shares: Sequence[Sequence[Row]]
    latencies: Sequence[Sequence[int]]

    def rows(self) -> Iterator[Row]:
        for share, latencies in zip(self.shares, self.latencies, strict=True):
            yield from share[: len(latencies)]


def build_append_synced(scale: Scale, _directory: Path) -> Workload:
    """Single durable rows from one thread and from many."""
    rows = sample_rows(int(scale.synced_seconds * _ROWS_PER_SECOND_MAX))
    one = _Contest(rows=rows, seconds=scale.synced_seconds, threads=1)
    many = _Contest(rows=rows, seconds=scale.synced_seconds, threads=_THREADS)
    return Workload(
        name="append_synced",
        sentence="Rows of 100 bytes, one append each, every one durable when its append returns.",
        unit="rows",
        candidates=(
            *_candidates(one, "1 thread"),
            Candidate(
                name="bare fdatasync, 1 thread",
                kind=Kind.LIMIT,
                sync=_EACH_ROW,
                trial=lambda directory, stopwatch: _sync_bare(directory, stopwatch, one),
            ),
            *_candidates(many, f"{_THREADS} threads"),
        ),
        ratios=(
            Ratio(of="neve group, 1 thread", to="bare fdatasync, 1 thread", target=0.95),
            Ratio(of="neve always, 1 thread", to="bare fdatasync, 1 thread", target=0.95),
            Ratio(of="neve group, 16 threads", to="bare fdatasync, 1 thread", target=6.0),
            Ratio(of="neve group, 1 thread", to="RocksDB put, 1 thread"),
            Ratio(of="neve group, 16 threads", to="RocksDB put, 16 threads"),
        ),
        parameters={
            "seconds_per_trial": scale.synced_seconds,
            "row_bytes": ROW_BYTES,
            "threads": f"1 and {_THREADS}",
            "seed": SEED,
        },
        notes=(
            "`bare fdatasync` is one pwrite and one fdatasync per row, on a preallocated file.",
            "It writes as many bytes as the log does.",
            "Under `group`, appends that wait at the same time share a sync.",
            "Under `always`, each append has a sync of its own.",
        ),
        rounds_factor=_ROUNDS_FACTOR,
    )


def _candidates(contest: _Contest, threads: str) -> Sequence[Candidate]:
    return (
        Candidate(
            name=f"neve group, {threads}",
            kind=Kind.NEVE,
            sync=_EACH_ROW,
            trial=lambda directory, stopwatch: _sync_with_neve(
                directory, stopwatch, contest, SyncPolicy.GROUP
            ),
        ),
        Candidate(
            name=f"neve always, {threads}",
            kind=Kind.NEVE,
            sync=_EACH_ROW,
            trial=lambda directory, stopwatch: _sync_with_neve(
                directory, stopwatch, contest, SyncPolicy.ALWAYS
            ),
        ),
        Candidate(
            name=f"RocksDB put, {threads}",
            kind=Kind.PEER,
            sync=_EACH_ROW,
            trial=lambda directory, stopwatch: _sync_with_rocksdb(directory, stopwatch, contest),
        ),
    )


def _sync_with_neve(
    directory: Path, stopwatch: Stopwatch, contest: _Contest, policy: SyncPolicy
) -> Outcome:
    disk = CountingDisk()
    log = open_neve(directory, policy, disk=disk)
    syncs_before = disk.sync_count

    def write_row(key: bytes, value: bytes) -> None:
        log.append(encode_put(key, value, schema_version=1))

    written = contest.write(write_row, stopwatch)
    durable_through, syncs = log.durable_through, disk.sync_count - syncs_before
    log.close()
    rows = sorted(written.rows())
    return _outcome(
        written,
        answer=(durable_through, sorted(read_neve_rows(directory))),
        expected=(len(rows), rows),
        rows_per_sync=len(rows) / max(syncs, 1),
    )


def _sync_with_rocksdb(directory: Path, stopwatch: Stopwatch, contest: _Contest) -> Outcome:
    with open_rocksdb(directory, synced=True) as database:
        written = contest.write(database.put, stopwatch)
    with open_rocksdb(directory, synced=True) as database:
        answer = read_rocksdb_rows(database)
    return _outcome(written, answer=answer, expected=sorted(written.rows()))


def _sync_bare(directory: Path, stopwatch: Stopwatch, contest: _Contest) -> Outcome:
    record_bytes = len(BARE_FRAME) + ROW_BYTES
    file = RawFile(directory, preallocate_bytes=len(contest.rows) * record_bytes)

    def write_row(key: bytes, value: bytes) -> None:
        file.write_durably(BARE_FRAME + key + value)

    written = contest.write(write_row, stopwatch)
    expected = b"".join(BARE_FRAME + key + value for key, value in written.rows())
    return _outcome(written, answer=file.close(), expected=expected)


def write_for(seconds: float, rows: Sequence[Row], write_row: WriteRow) -> list[int]:
    """Write row after row until the time is up; gives how long each took."""
    now = time.perf_counter_ns
    latencies: list[int] = []
    ends_at = now() + int(seconds * 1e9)
    for key, value in rows:
        began_at = now()
        if began_at >= ends_at:
            break
        write_row(key, value)
        latencies.append(now() - began_at)
    return latencies


def _outcome(written: _Written, *, answer: object, expected: object, **facts: float) -> Outcome:
    latencies = [latency for thread in written.latencies for latency in thread]
    return Outcome(
        rows=len(latencies),
        calls=len(latencies),
        logical_bytes=len(latencies) * ROW_BYTES,
        answer=answer,
        expected=expected,
        latencies_ns=latencies,
        facts=facts,
    )
