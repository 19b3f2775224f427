"""`replay_rows` and `replay_batches`: how fast a log is read after a crash.

The logs are copied while their writers still have them open, so what is replayed is what a killed
process leaves: preallocated space behind the last record, and no mark of a proper end. All reads
are from memory: the files were just written.
"""

import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.harness import (
    SEED,
    BadTrial,
    Candidate,
    Kind,
    Outcome,
    Ratio,
    Scale,
    Stopwatch,
    Workload,
)
from benchmarks.log_peers import open_neve, open_rocksdb, read_rocksdb_rows, replay_neve
from benchmarks.sample_rows import ROW_BYTES, Row, sample_batches, sample_rows
from neve.model.write_batch import PutRow, UpsertRows, WriteBatch
from neve.wal.batch_codec import EncodedChanges, encode_changes, encode_put
from neve.wal.log_options import SyncPolicy

_CRASHED: Final = "crashed"
_CLOSED: Final = "closed"
_READ_BYTES: Final = 1 << 20
_NOTES: Final = (
    "RocksDB cannot be opened without writing what it replayed as a sorted file.",
    "`neve replay, closed log` reads a log that was closed properly, which ends in a mark.",
    "`bare read` reads the files of neve's log, preallocated space included, and looks at nothing.",
)


def build_replay_rows(scale: Scale, directory: Path) -> Workload:
    """Single rows that were never flushed."""
    rows = sample_rows(scale.rows)
    _leave_neve_logs(directory, [encode_put(key, value, schema_version=1) for key, value in rows])
    _leave_rocksdb_log(directory, rows)
    kept = dict(rows)

    def with_neve(logs: Path, stopwatch: Stopwatch) -> Outcome:
        answer: dict[bytes, bytes] = {}
        with stopwatch:
            for logged in replay_neve(logs):
                for change in logged.batch.changes:
                    if isinstance(change, PutRow):
                        answer[change.key] = change.value
        return _outcome(len(rows), len(rows) * ROW_BYTES, answer=answer, expected=kept)

    return Workload(
        name="replay_rows",
        sentence="Reopening after a crash with single rows of 100 bytes in the log, until all are "
        "in memory by key.",
        unit="rows",
        candidates=_candidates(
            with_neve, directory, row_count=len(rows), row_bytes=ROW_BYTES, expected=sorted(rows)
        ),
        ratios=(Ratio(of="neve replay", to="RocksDB reopen"),),
        parameters={"rows": scale.rows, "row_bytes": ROW_BYTES, "seed": SEED},
        notes=_NOTES,
    )


def build_replay_batches(scale: Scale, directory: Path) -> Workload:
    """Arrow batches that were never flushed."""
    sample = sample_batches(scale.replay_batches, scale.batch_rows)
    _leave_neve_logs(
        directory,
        [
            encode_changes(WriteBatch((UpsertRows(batch),), schema_version=1))
            for batch in sample.batches
        ],
    )
    rows = sorted(row for pairs in sample.pairs for row in pairs)
    _leave_rocksdb_log(directory, rows)

    def with_neve(logs: Path, stopwatch: Stopwatch) -> Outcome:
        batches: list[pa.RecordBatch] = []
        with stopwatch:
            for logged in replay_neve(logs):
                batches += [
                    change.rows for change in logged.batch.changes if isinstance(change, UpsertRows)
                ]
        return _outcome(
            sample.row_count,
            sample.logical_bytes,
            answer=pa.Table.from_batches(batches),
            expected=sample.table,
        )

    row_bytes = sample.logical_bytes // sample.row_count
    return Workload(
        name="replay_batches",
        sentence=f"Reopening after a crash with batches of {scale.batch_rows:,} rows in the log, "
        "until all are in memory and validated.",
        unit="rows",
        candidates=_candidates(
            with_neve, directory, row_count=sample.row_count, row_bytes=row_bytes, expected=rows
        ),
        ratios=(Ratio(of="neve replay", to="RocksDB reopen"),),
        parameters={
            "rows": sample.row_count,
            "batches": scale.replay_batches,
            "row_bytes": row_bytes,
            "seed": SEED,
        },
        notes=_NOTES,
    )


def _candidates(
    with_neve: Callable[[Path, Stopwatch], Outcome],
    shared: Path,
    *,
    row_count: int,
    row_bytes: int,
    expected: Sequence[Row],
) -> Sequence[Candidate]:
    logs = sorted((shared / _CRASHED).rglob("*.wal"))
    checksum = zlib.crc32(b"".join(log.read_bytes() for log in logs))
    logical_bytes = row_count * row_bytes

    def with_rocksdb(directory: Path, stopwatch: Stopwatch) -> Outcome:
        # Opening consumes the log, so each round opens a copy of its own.
        shutil.copytree(shared / _CRASHED / "rocksdb", directory / "rocksdb")
        with ExitStack() as stack:
            with stopwatch:
                database = stack.enter_context(open_rocksdb(directory, synced=False))
            answer = read_rocksdb_rows(database)
        return _outcome(row_count, logical_bytes, answer=answer, expected=expected)

    def bare(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        chunks: list[bytes] = []
        with stopwatch:
            for log in logs:
                with log.open("rb", buffering=0) as file:
                    while chunk := file.read(_READ_BYTES):
                        chunks.append(chunk)
        answer = [zlib.crc32(b"".join(chunks))]
        return _outcome(row_count, logical_bytes, answer=answer, expected=[checksum])

    return (
        Candidate(
            name="neve replay",
            kind=Kind.NEVE,
            trial=lambda _directory, stopwatch: with_neve(shared / _CRASHED, stopwatch),
        ),
        Candidate(
            name="neve replay, closed log",
            kind=Kind.NEVE,
            trial=lambda _directory, stopwatch: with_neve(shared / _CLOSED, stopwatch),
        ),
        Candidate(name="RocksDB reopen", kind=Kind.PEER, trial=with_rocksdb),
        Candidate(name="bare read", kind=Kind.LIMIT, trial=bare),
    )


def _leave_neve_logs(shared: Path, changes: Sequence[EncodedChanges]) -> None:
    """Write a log, keep it as a crash would leave it, and as it is when closed."""
    log = open_neve(shared / _CLOSED, SyncPolicy.NONE)
    for change in changes:
        log.append(change)
    log.sync_once()
    shutil.copytree(shared / _CLOSED, shared / _CRASHED)
    log.close()


def _leave_rocksdb_log(shared: Path, rows: Sequence[Row]) -> None:
    writing = shared / "writing"
    writing.mkdir()
    with open_rocksdb(writing, synced=False) as database:
        for key, value in rows:
            database.put(key, value)
        database.flush_wal(sync=True)
        shutil.copytree(writing / "rocksdb", shared / _CRASHED / "rocksdb")
    shutil.rmtree(writing)
    if any((shared / _CRASHED).rglob("*.sst")):
        raise BadTrial("RocksDB flushed before the crash, so there is less to replay")


def _outcome(row_count: int, logical_bytes: int, *, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=row_count,
        calls=1,
        logical_bytes=logical_bytes,
        answer=answer,
        expected=expected,
    )
