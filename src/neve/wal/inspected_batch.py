"""One write batch of a log, entry by entry, for people to look at.

`neve.wal.batch_codec` reads batches in neve's own and in merutable's dialect, whole or not at all.
This module reads those of RocksDB and LevelDB, as far as they go:

    ┌──────────────┬───────────┬───────────────────────────────────────────────┐
    │ sequence u64 │ count u32 │ entries: tag u8, [column family varint], …    │   little-endian
    └──────────────┴───────────┴───────────────────────────────────────────────┘

    default   with family   entry               after the tag, each a varint length and bytes
    01        05            put                 key, value
    00        04            delete              key
    07        08            single delete       key
    0f        0e            delete range        key, end key (not deleted itself)
    02        06            merge               key, operand
    11        10            put blob index      key, blob index
    16        17            put entity          key, entity
    18        19            timed put           key, value and time
    03                      log data            blob; no sequence number, not counted
    0d                      noop                nothing; likewise
    09 12 13                begin prepare       nothing; likewise
    0a 0b 0c                end prepare, commit, rollback    transaction id; likewise
    15                      commit at           timestamp, transaction id; likewise

WAL-51  Nothing here raises. An unknown tag and everything after it is shown as bytes, because the
        length of its entry is unknown.
WAL-52  At most ENTRIES_MAX entries of a batch are kept; the others are read and counted.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

import pyarrow as pa

from neve.errors import Corruption, NeveError
from neve.model.varint import read_varint
from neve.model.write_batch import (
    AppliedBatch,
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    UpsertRows,
)
from neve.wal.batch_codec import FRAME_BYTES, LoggedBatch, LogStart, Op, decode_batch, read_stamp
from neve.wal.record_format import Dialect

ENTRIES_MAX: Final = 100_000

_FRAME: Final = struct.Struct("<QI")


class NamedBytes(NamedTuple):
    """One byte string of an entry, and what it is."""

    name: str
    content: bytes


class Entry(NamedTuple):
    """One entry of a batch, in words."""

    op: str
    tag: int
    sequence: int | None
    """Sequence number of the entry; None when it does not take one."""
    column_family: int | None
    """None for the default one."""
    fields: tuple[NamedBytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignBatch:
    """What could be read of one batch."""

    sequence: int | None
    """None when the frame itself is cut off."""
    count: int
    """Entries the frame announces."""
    entries: tuple[Entry, ...]
    omitted_count: int
    """Entries beyond ENTRIES_MAX."""
    next_sequence: int | None
    unknown_tag: int | None
    """Unknown tag that reading stopped at."""
    problem: str | None
    """What is wrong with the bytes; None when they are a whole batch, as far as known."""


class _Form(NamedTuple):
    """How the entries of one tag are laid out."""

    op: str
    fields: tuple[str, ...]
    has_family: bool = False
    is_counted: bool = True


_KEY: Final = ("key",)
_ROW: Final = ("key", "value")
_RANGE: Final = ("key", "end_key")
_TRANSACTION: Final = ("transaction",)

_FORMS: Final = {
    0x00: _Form("delete", _KEY),
    0x01: _Form("put", _ROW),
    0x02: _Form("merge", _ROW),
    0x03: _Form("log data", ("blob",), is_counted=False),
    0x04: _Form("delete", _KEY, has_family=True),
    0x05: _Form("put", _ROW, has_family=True),
    0x06: _Form("merge", _ROW, has_family=True),
    0x07: _Form("single delete", _KEY),
    0x08: _Form("single delete", _KEY, has_family=True),
    0x09: _Form("begin prepare", (), is_counted=False),
    0x0A: _Form("end prepare", _TRANSACTION, is_counted=False),
    0x0B: _Form("commit", _TRANSACTION, is_counted=False),
    0x0C: _Form("rollback", _TRANSACTION, is_counted=False),
    0x0D: _Form("noop", (), is_counted=False),
    0x0E: _Form("delete range", _RANGE, has_family=True),
    0x0F: _Form("delete range", _RANGE),
    0x10: _Form("put blob index", _ROW, has_family=True),
    0x11: _Form("put blob index", _ROW),
    0x12: _Form("begin persisted prepare", (), is_counted=False),
    0x13: _Form("begin unprepare", (), is_counted=False),
    0x15: _Form("commit at", ("timestamp", "transaction"), is_counted=False),
    0x16: _Form("put entity", _ROW),
    0x17: _Form("put entity", _ROW, has_family=True),
    0x18: _Form("timed put", _ROW),
    0x19: _Form("timed put", _ROW, has_family=True),
}


def read_foreign_batch(payload: bytes) -> ForeignBatch:
    """Read as much of a batch as possible; a problem is reported, not raised."""
    if len(payload) < _FRAME.size:
        return ForeignBatch(
            sequence=None,
            count=0,
            entries=(),
            omitted_count=0,
            next_sequence=None,
            unknown_tag=None,
            problem=f"a batch of {len(payload)} bytes has no room for its frame",
        )
    sequence, count = _FRAME.unpack_from(payload)
    entries: list[Entry] = []
    walked = counted = 0
    position = _FRAME.size
    unknown_tag: int | None = None
    problem: str | None = None
    while position < len(payload):  # ends: every entry takes at least its tag
        tag = payload[position]
        form = _FORMS.get(tag)
        if form is None:
            rest = NamedBytes("rest", payload[position + 1 :])
            entries.append(Entry("unknown", tag, None, None, (rest,)))
            unknown_tag = tag
            break
        try:
            entry, position = _read_entry(payload, position, form, sequence + counted)
        except Corruption as error:
            problem = f"entry {walked:,} ({form.op}): {error.message}"
            break
        walked += 1
        counted += form.is_counted
        if len(entries) < ENTRIES_MAX:
            entries.append(entry)
    if problem is None and unknown_tag is None and counted != count:
        problem = f"a batch announced with {count:,} entries has {counted:,}"
    return ForeignBatch(
        sequence=sequence,
        count=count,
        entries=tuple(entries),
        omitted_count=max(0, walked - ENTRIES_MAX),
        next_sequence=sequence + counted,
        unknown_tag=unknown_tag,
        problem=problem,
    )


def _read_entry(payload: bytes, position: int, form: _Form, sequence: int) -> tuple[Entry, int]:
    """Return the entry at `position` and where it ends; raises Corruption."""
    tag = payload[position]
    position += 1
    column_family = None
    if form.has_family:
        column_family, position = read_varint(payload, position)
    fields = []
    for name in form.fields:
        content, position = read_prefixed(payload, position)
        fields.append(NamedBytes(name, content))
    counted_sequence = sequence if form.is_counted else None
    return Entry(form.op, tag, counted_sequence, column_family, tuple(fields)), position


def read_prefixed(buffer: bytes, position: int) -> tuple[bytes, int]:
    """Return the byte string whose varint length is at `position`, and its end."""
    length, start = read_varint(buffer, position)
    end = start + length
    if end > len(buffer):
        raise Corruption(f"{length:,} bytes are announced where {len(buffer) - start:,} are left")
    return buffer[start:end], end


class AppliedEntry(NamedTuple):
    """The number of an application's batch, whose rows are the other entries."""

    op: str
    tag: int
    sequence: int
    application: str
    batch: int


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
    """What a batch of neve says about its log."""

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
    """Sequence number after the batch's last row; None when the batch cannot be read."""
    entry_count: int
    """Entries the frame announces."""
    entries: tuple[Entry | RowsEntry | AppliedEntry, ...]
    omitted_count: int
    """Entries beyond ENTRIES_MAX."""
    stamps: Stamps | None
    """None in a log that is not neve's own."""
    unknown_tag: int | None
    """Unknown tag that reading stopped at."""
    problem: str | None
    """What is wrong with the bytes; None when they are a batch, as far as known."""


def inspect_batch(payload: bytes, dialect: Dialect) -> InspectedBatch:
    """Read as much of a batch as possible; a problem is reported, not raised."""
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


def _entries(logged: LoggedBatch) -> Iterator[Entry | RowsEntry | AppliedEntry]:
    # One step per entry of one record, at most ENTRIES_MAX.
    sequence: int = logged.sequence
    if logged.batch.transaction is not None:
        name = NamedBytes("transaction", logged.batch.transaction.encode())
        yield Entry("prepared", Op.PREPARED, None, None, (name,))
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
            case AppliedBatch(application, number):
                yield AppliedEntry("applied batch", Op.APPLIED_BATCH, sequence, application, number)
            case _:
                assert_never(change)
        sequence += change.row_count
