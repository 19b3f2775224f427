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

_READ_BYTES: Final = 1 << 20
_NOTES: Final = (
    "RocksDB cannot be opened without writing what it replayed as a sorted file.",
    "`bare read` reads the files of neve's log, preallocated space included, and looks at nothing.",
)


def build_replay_rows(scale: Scale, directory: Path) -> Workload:
    """Single rows that were never flushed."""
    rows = sample_rows(scale.rows)
    crashed = directory / "crashed"
    _leave_neve_log(crashed, [encode_put(key, value, schema_version=1) for key, value in rows])
    _leave_rocksdb_log(crashed, rows)
    kept = dict(rows)

    def with_neve(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        answer: dict[bytes, bytes] = {}
        with stopwatch:
            for logged in replay_neve(crashed):
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
            with_neve, crashed, row_count=len(rows), row_bytes=ROW_BYTES, expected=sorted(rows)
        ),
        ratios=(Ratio(of="neve replay", to="RocksDB reopen"),),
        parameters={"rows": scale.rows, "row_bytes": ROW_BYTES, "seed": SEED},
        notes=_NOTES,
    )


def build_replay_batches(scale: Scale, directory: Path) -> Workload:
    """Arrow batches that were never flushed."""
    sample = sample_batches(scale.replay_batches, scale.batch_rows)
    crashed = directory / "crashed"
    _leave_neve_log(
        crashed,
        [
            encode_changes(WriteBatch((UpsertRows(batch),), schema_version=1))
            for batch in sample.batches
        ],
    )
    rows = sorted(row for pairs in sample.pairs for row in pairs)
    _leave_rocksdb_log(crashed, rows)

    def with_neve(_directory: Path, stopwatch: Stopwatch) -> Outcome:
        batches: list[pa.RecordBatch] = []
        with stopwatch:
            for logged in replay_neve(crashed):
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
            with_neve, crashed, row_count=sample.row_count, row_bytes=row_bytes, expected=rows
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
    crashed: Path,
    *,
    row_count: int,
    row_bytes: int,
    expected: Sequence[Row],
) -> Sequence[Candidate]:
    logs = sorted(crashed.rglob("*.wal"))
    checksum = zlib.crc32(b"".join(log.read_bytes() for log in logs))
    logical_bytes = row_count * row_bytes

    def with_rocksdb(directory: Path, stopwatch: Stopwatch) -> Outcome:
        # Opening consumes the log, so each round opens a copy of its own.
        shutil.copytree(crashed / "rocksdb", directory / "rocksdb")
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
        Candidate(name="neve replay", kind=Kind.NEVE, trial=with_neve),
        Candidate(name="RocksDB reopen", kind=Kind.PEER, trial=with_rocksdb),
        Candidate(name="bare read", kind=Kind.LIMIT, trial=bare),
    )


def _leave_neve_log(crashed: Path, changes: Sequence[EncodedChanges]) -> None:
    """Write a log and copy it as a crash would leave it."""
    writing = crashed.with_name("writing")
    log = open_neve(writing, SyncPolicy.NONE)
    for change in changes:
        log.append(change)
    log.sync_once()
    shutil.copytree(writing, crashed)
    log.close()
    shutil.rmtree(writing)


def _leave_rocksdb_log(crashed: Path, rows: Sequence[Row]) -> None:
    writing = crashed.with_name("writing")
    writing.mkdir()
    with open_rocksdb(writing, synced=False) as database:
        for key, value in rows:
            database.put(key, value)
        database.flush_wal(sync=True)
        shutil.copytree(writing / "rocksdb", crashed / "rocksdb")
    shutil.rmtree(writing)
    if any(crashed.rglob("*.sst")):
        raise BadTrial("RocksDB flushed before the crash, so there is less to replay")


def _outcome(row_count: int, logical_bytes: int, *, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=row_count,
        calls=1,
        logical_bytes=logical_bytes,
        answer=answer,
        expected=expected,
    )
