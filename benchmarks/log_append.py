"""`append_rows` and `append_batches`: how fast rows enter a log that does not wait for the disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from rocksdict import WriteBatch as RocksBatch

from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from benchmarks.log_peers import (
    BARE_FRAME,
    RawFile,
    open_neve,
    open_rocksdb,
    read_neve_rows,
    read_rocksdb_rows,
    replay_neve,
)
from benchmarks.sample_rows import ROW_BYTES, Row, SampleBatches, sample_batches, sample_rows
from neve.model.write_batch import UpsertRows, WriteBatch
from neve.wal.batch_codec import encode_changes, encode_put
from neve.wal.log_options import SyncPolicy

_NOT_SYNCED: Final = "none"
_EACH_BATCH: Final = "each batch"


def build_append_rows(scale: Scale, _directory: Path) -> Workload:
    """Single rows, one append each, acknowledged when the operating system has them."""
    rows = sample_rows(scale.rows)
    return Workload(
        name="append_rows",
        sentence="Rows of 100 bytes, one append each, acknowledged when the operating system "
        "has them.",
        unit="rows",
        candidates=(
            Candidate(
                name="neve log",
                kind=Kind.NEVE,
                sync=_NOT_SYNCED,
                trial=lambda directory, stopwatch: _rows_with_neve(directory, stopwatch, rows),
            ),
            Candidate(
                name="neve log and dict",
                kind=Kind.NEVE,
                sync=_NOT_SYNCED,
                trial=lambda directory, stopwatch: _rows_with_dict(directory, stopwatch, rows),
            ),
            Candidate(
                name="RocksDB put",
                kind=Kind.PEER,
                sync=_NOT_SYNCED,
                trial=lambda directory, stopwatch: _rows_with_rocksdb(directory, stopwatch, rows),
            ),
            Candidate(
                name="bare pwrite",
                kind=Kind.LIMIT,
                sync=_NOT_SYNCED,
                trial=lambda directory, stopwatch: _rows_bare(directory, stopwatch, rows),
            ),
        ),
        ratios=(
            Ratio(of="neve log and dict", to="RocksDB put", target=3.0),
            Ratio(of="neve log", to="RocksDB put"),
            Ratio(of="neve log", to="bare pwrite"),
        ),
        parameters={"rows": scale.rows, "row_bytes": ROW_BYTES, "threads": 1, "seed": SEED},
        notes=(
            "RocksDB keeps each row in its memtable too; `neve log and dict` keeps it in a dict.",
            "`bare pwrite` writes as many bytes as the log, put together beforehand.",
        ),
    )


def build_append_batches(scale: Scale, _directory: Path) -> Workload:
    """Arrow batches, with and without waiting for the disk after each."""
    sample = sample_batches(scale.batches, scale.batch_rows)
    candidates: list[Candidate] = []
    for synced in (False, True):
        ending = ", synced" if synced else ""
        candidates += _batch_candidates(sample, synced=synced, ending=ending)
    return Workload(
        name="append_batches",
        sentence=f"Batches of {scale.batch_rows:,} rows with five columns, one append each, "
        "without a sync and with one sync per batch.",
        unit="rows",
        candidates=candidates,
        ratios=(
            Ratio(of="neve log", to="RocksDB batch", target=5.0),
            Ratio(of="neve log", to="bare pwrite"),
            Ratio(of="neve log, synced", to="RocksDB batch, synced", target=5.0),
            Ratio(of="neve log, synced", to="bare pwrite, synced"),
        ),
        parameters={
            "rows": sample.row_count,
            "batches": scale.batches,
            "row_bytes": sample.logical_bytes // sample.row_count,
            "threads": 1,
            "seed": SEED,
        },
        notes=(
            "RocksDB gets keys and values put together beforehand, and keeps them in its memtable.",
            "neve gets Arrow batches, serializes and logs them.",
            "`bare pwrite` writes batches that were serialized as Arrow IPC beforehand.",
        ),
    )


def _batch_candidates(sample: SampleBatches, *, synced: bool, ending: str) -> Sequence[Candidate]:
    sync = _EACH_BATCH if synced else _NOT_SYNCED
    return (
        Candidate(
            name=f"neve log{ending}",
            kind=Kind.NEVE,
            sync=sync,
            trial=lambda directory, stopwatch: _batches_with_neve(
                directory, stopwatch, sample, synced=synced
            ),
        ),
        Candidate(
            name=f"RocksDB batch{ending}",
            kind=Kind.PEER,
            sync=sync,
            trial=lambda directory, stopwatch: _batches_with_rocksdb(
                directory, stopwatch, sample, synced=synced
            ),
        ),
        Candidate(
            name=f"bare pwrite{ending}",
            kind=Kind.LIMIT,
            sync=sync,
            trial=lambda directory, stopwatch: _batches_bare(
                directory, stopwatch, sample, synced=synced
            ),
        ),
    )


def _rows_with_neve(directory: Path, stopwatch: Stopwatch, rows: Sequence[Row]) -> Outcome:
    log = open_neve(directory, SyncPolicy.NONE)
    with stopwatch:
        for key, value in rows:
            log.append(encode_put(key, value, schema_version=1))
    log.close()
    return _rows_outcome(rows, answer=read_neve_rows(directory), expected=list(rows))


def _rows_with_dict(directory: Path, stopwatch: Stopwatch, rows: Sequence[Row]) -> Outcome:
    log = open_neve(directory, SyncPolicy.NONE)
    kept: dict[bytes, tuple[int, bytes]] = {}
    with stopwatch:
        for key, value in rows:
            sequence = log.append(encode_put(key, value, schema_version=1))
            kept[key] = (sequence, value)
    log.close()
    return _rows_outcome(
        rows,
        answer=(read_neve_rows(directory), kept),
        expected=(
            list(rows),
            {key: (number, value) for number, (key, value) in enumerate(rows, start=1)},
        ),
    )


def _rows_with_rocksdb(directory: Path, stopwatch: Stopwatch, rows: Sequence[Row]) -> Outcome:
    with open_rocksdb(directory, synced=False) as database:
        with stopwatch:
            for key, value in rows:
                database.put(key, value)
        answer = read_rocksdb_rows(database)
    return _rows_outcome(rows, answer=answer, expected=sorted(rows))


def _rows_bare(directory: Path, stopwatch: Stopwatch, rows: Sequence[Row]) -> Outcome:
    pieces = [BARE_FRAME + key + value for key, value in rows]
    file = RawFile(directory, preallocate_bytes=sum(map(len, pieces)))
    with stopwatch:
        for piece in pieces:
            file.write(piece)
    return _rows_outcome(rows, answer=file.close(), expected=b"".join(pieces))


def _rows_outcome(rows: Sequence[Row], *, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=len(rows),
        calls=len(rows),
        logical_bytes=len(rows) * ROW_BYTES,
        answer=answer,
        expected=expected,
    )


def _batches_with_neve(
    directory: Path, stopwatch: Stopwatch, sample: SampleBatches, *, synced: bool
) -> Outcome:
    log = open_neve(directory, SyncPolicy.GROUP if synced else SyncPolicy.NONE)
    with stopwatch:
        for batch in sample.batches:
            log.append(encode_changes(WriteBatch((UpsertRows(batch),), schema_version=1)))
    log.close()
    read_back = [
        change.rows
        for logged in replay_neve(directory)
        for change in logged.batch.changes
        if isinstance(change, UpsertRows)
    ]
    return _batches_outcome(sample, answer=pa.Table.from_batches(read_back), expected=sample.table)


def _batches_with_rocksdb(
    directory: Path, stopwatch: Stopwatch, sample: SampleBatches, *, synced: bool
) -> Outcome:
    with open_rocksdb(directory, synced=synced) as database:
        with stopwatch:
            for rows in sample.pairs:
                batch = RocksBatch(raw_mode=True)
                for key, value in rows:
                    batch.put(key, value)
                database.write(batch)
        answer = read_rocksdb_rows(database)
    expected = sorted(row for rows in sample.pairs for row in rows)
    return _batches_outcome(sample, answer=answer, expected=expected)


def _batches_bare(
    directory: Path, stopwatch: Stopwatch, sample: SampleBatches, *, synced: bool
) -> Outcome:
    pieces = [batch.serialize().to_pybytes() for batch in sample.batches]
    file = RawFile(directory, preallocate_bytes=sum(map(len, pieces)))
    write = file.write_durably if synced else file.write
    with stopwatch:
        for piece in pieces:
            write(piece)
    return _batches_outcome(sample, answer=file.close(), expected=b"".join(pieces))


def _batches_outcome(sample: SampleBatches, *, answer: object, expected: object) -> Outcome:
    return Outcome(
        rows=sample.row_count,
        calls=len(sample.batches),
        logical_bytes=sample.logical_bytes,
        answer=answer,
        expected=expected,
    )
