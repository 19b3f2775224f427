"""One write batch of a log in words, whoever wrote it.

Batches in neve's own and in merutable's dialect are read by `neve.wal.batch_codec`, whole or not at
all; those of RocksDB and LevelDB by `neve.wal.inspected_batch`, as far as they go.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import pyarrow as pa

from neve.errors import NeveError
from neve.model.write_batch import DeleteRow, DeleteRows, PartialRows, PutRow, UpsertRows
from neve.wal.batch_codec import FRAME_BYTES, LoggedBatch, LogStart, Op, decode_batch, read_stamp
from neve.wal.inspected_batch import ENTRIES_MAX, Entry, NamedBytes, read_foreign_batch
from neve.wal.record_format import Dialect


class RowsEntry(NamedTuple):
    """One Arrow batch inside a write batch."""

    op: str
    tag: int
    sequence: int
    rows: pa.RecordBatch
    field_ids: tuple[int, ...]
    """Columns a partial write names; empty for whole rows and deletes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """What a batch of neve's says about the log it is in."""

    schema_version: int
    durable_through: int
    nonce: int
    log_start: LogStart | None
    log_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedBatch:
    """What could be read of one batch."""

    sequence: int | None
    """None when the frame itself is cut off."""
    next_sequence: int | None
    """Sequence number behind the batch's last row; None when the batch cannot be read."""
    entry_count: int
    """Entries the frame announces."""
    entries: tuple[Entry | RowsEntry, ...]
    omitted_count: int
    """Entries beyond ENTRIES_MAX."""
    stamps: Stamps | None
    """None in a log that is not neve's own."""
    unknown_tag: int | None
    """Tag at which reading stopped because nobody here knows it."""
    problem: str | None
    """What is wrong with the bytes; None when they are a batch as far as it is known."""


def inspect_batch(payload: bytes, dialect: Dialect) -> InspectedBatch:
    """Read as much of a batch as can be; what is wrong with it is said, not raised."""
    if dialect is Dialect.ROCKSDB:
        return _foreign_batch(payload)
    try:
        logged = decode_batch(payload, dialect=dialect)
    except NeveError as error:
        return _unreadable_batch(payload, error.message)
    stamps = None
    if read_stamp(payload) is not None:
        stamps = Stamps(
            schema_version=logged.batch.schema_version,
            durable_through=logged.durable_through,
            nonce=logged.nonce,
            log_start=logged.log_start,
            log_end=logged.log_end,
        )
    return InspectedBatch(
        sequence=logged.sequence,
        next_sequence=logged.next_sequence,
        entry_count=_announced_count(payload),
        entries=tuple(_entries(logged)),
        omitted_count=max(0, len(logged.batch.changes) - ENTRIES_MAX),
        stamps=stamps,
        unknown_tag=None,
        problem=None,
    )


def _foreign_batch(payload: bytes) -> InspectedBatch:
    batch = read_foreign_batch(payload)
    return InspectedBatch(
        sequence=batch.sequence,
        next_sequence=batch.next_sequence,
        entry_count=batch.count,
        entries=batch.entries,
        omitted_count=batch.omitted_count,
        stamps=None,
        unknown_tag=batch.unknown_tag,
        problem=batch.problem,
    )


def _unreadable_batch(payload: bytes, problem: str) -> InspectedBatch:
    has_frame = len(payload) >= FRAME_BYTES
    return InspectedBatch(
        sequence=int.from_bytes(payload[:8], "little") if has_frame else None,
        next_sequence=None,
        entry_count=_announced_count(payload) if has_frame else 0,
        entries=(),
        omitted_count=0,
        stamps=None,
        unknown_tag=None,
        problem=problem,
    )


def _announced_count(payload: bytes) -> int:
    return int.from_bytes(payload[8:FRAME_BYTES], "little")


def _entries(logged: LoggedBatch) -> Iterator[Entry | RowsEntry]:
    # One step per entry of one record, at most ENTRIES_MAX.
    sequence: int = logged.sequence
    for change in logged.batch.changes[:ENTRIES_MAX]:
        match change:
            case PutRow(key, value):
                fields = (NamedBytes("key", key), NamedBytes("value", value))
                yield Entry("put", Op.PUT, sequence, None, fields)
            case DeleteRow(key):
                yield Entry("delete", Op.DELETE, sequence, None, (NamedBytes("key", key),))
            case UpsertRows(rows):
                yield RowsEntry("upsert rows", Op.ARROW_UPSERT, sequence, rows, ())
            case DeleteRows(keys):
                yield RowsEntry("delete rows", Op.ARROW_DELETE, sequence, keys, ())
            case PartialRows(rows, field_ids):
                yield RowsEntry("partial rows", Op.ARROW_PARTIAL, sequence, rows, field_ids)
            case _:
                assert_never(change)
        sequence += change.row_count
