"""The encoding of one logical log record: a write batch.

The frame is LevelDB's and RocksDB's; entries 00 and 01 are theirs, the others are neve's own.

    ┌──────────────┬───────────┬───────────────────┐
    │ sequence u64 │ count u32 │ count × entry     │        little-endian
    └──────────────┴───────────┴───────────────────┘

    00 Delete          varint key length, key
    01 Put             varint key length, key, varint value length, value (row codec)
    10 ArrowUpsert     varint rows, varint length, Arrow IPC stream: schema and one record batch
    11 ArrowDelete     the same, key columns only
    12 ArrowPartial    varint n, n × varint field id, then as 10: the key, the columns of these ids,
                       and others that are never NULL and have no default, as they were
    13 AppliedBatch    varint length, application (UTF-8), varint batch: whose batch these rows are
    14 Prepared        varint length, transaction (UTF-8): the first entry of a part of a
                       transaction over several tables, whose rows count if it was decided
    20 SchemaVersion   varint version         schema the rows of this batch were written with
    21 DurableThrough  u64 sequence, u64 nonce     every row up to here was synced before this
                       batch; the nonce is the log's own
    22 LogStart        first record of a neve log: u8 format, u64 log number; from format 2 on also
                       16 bytes table uuid, u64 writer epoch, u64 bytes reserved for the file
    23 LogEnd          (nothing)              last record of a log that was closed in good order

WAL-11  `sequence` is that of the first row; entries 00, 01 and 13 take one number, 10-12 take
        `rows`, 14 and 20-23 none.
WAL-12  Every neve batch begins with 20 and 21; the rocksdb and merutable dialects have only 00 and
        01.
WAL-13  merutable's deletes carry a value, the row before: written empty, read and dropped.
WAL-14  A log draws its nonce when it begins, and each of its batches carries it. Bytes of a row
        that look like a record, here or left over in a recycled file, do not contain it.
WAL-15  A log of format 1 does not say whose it is; the first release wrote those. A uuid of zeros
        is a log that belongs to no table. A log that was synced and has no LogEnd is as long as the
        space that was reserved for it.
WAL-16  No length or count is trusted for an allocation unless the bytes at hand confirm it. Arrow
        bodies are uncompressed and validated before they are used: a compressed body could expand
        without bound, even when its checksum is right.

An Arrow stream is a sequence of messages, so the schema message is built once per schema and the
batch message is written as Arrow builds it, without a copy.
"""

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple, assert_never
from uuid import UUID

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError
from neve.model.varint import encode_varint, read_varint
from neve.model.write_batch import (
    SCHEMA_VERSION_MAX,
    SEQUENCE_MAX,
    AppliedBatch,
    Change,
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    SequenceNumber,
    UpsertRows,
    WriteBatch,
)
from neve.wal.record_format import RECORD_BYTES_MAX, Dialect

_RECORD_BATCH_SLOTS: Final = {"header": 2, "compression": 3}
_WORD_BYTES: Final = 8
_I32: Final = struct.Struct("<i")
_U16: Final = struct.Struct("<H")


def schema_message(schema: pa.Schema) -> bytes:
    """Serialize the schema as the first message of a stream."""
    for field in schema:
        if pa.types.is_dictionary(field.type):
            raise InvalidArgument(
                f"column {field.name!r} is dictionary-encoded", hint="cast it to its value type"
            )
    return schema.serialize().to_pybytes()


def read_rows(stream: memoryview, *, row_count: int) -> pa.RecordBatch:
    """Read the one batch of a stream; raises Corruption when it is not exactly that."""
    source = pa.BufferReader(_aligned(pa.py_buffer(stream)))
    try:
        schema = pa.ipc.read_schema(_typed(pa.ipc.read_message(source), "schema"))
        _ = schema.names  # raises for names that are not text
        message = _typed(pa.ipc.read_message(source), "record batch")
        if _is_compressed(message):
            raise Corruption("an Arrow batch in the log is compressed, which neve never writes")
        rows = pa.ipc.read_record_batch(message, schema)
        rows.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise Corruption(f"an Arrow batch in the log cannot be read: {error}") from error
    if source.tell() != len(stream):
        raise Corruption("an Arrow batch in the log has bytes left over")
    if rows.num_rows != row_count:
        raise Corruption(
            f"an Arrow batch of {rows.num_rows:,} rows is announced as {row_count:,} rows"
        )
    return rows


def _aligned(stream: pa.Buffer) -> pa.Buffer:
    """Return the stream aligned to a word, and with it the buffers inside.

    Records begin at any byte of a log, but Arrow's kernels expect aligned buffers.
    """
    if stream.address % _WORD_BYTES == 0:
        return stream
    copied = pa.allocate_buffer(stream.size)
    memoryview(copied)[:] = memoryview(stream)
    return copied


def _typed(message: pa.Message, kind: str) -> pa.Message:
    """Refuse a message of another kind: Arrow does not check, and crashes."""
    if message.type != kind:
        raise Corruption(f"the log has an Arrow {message.type} where a {kind} belongs")
    return message


def _is_compressed(message: pa.Message) -> bool:
    """Read the compression field out of the message's flatbuffer.

    Arrow has no option to refuse compressed bodies, and expands them while reading.
    """
    buffer = message.metadata.to_pybytes()
    (root,) = _I32.unpack_from(buffer, 0)
    header_field = _slot(buffer, root, _RECORD_BATCH_SLOTS["header"])
    if header_field == 0:
        return False
    header_at = root + header_field
    header = header_at + _I32.unpack_from(buffer, header_at)[0]
    return _slot(buffer, header, _RECORD_BATCH_SLOTS["compression"]) != 0


def _slot(buffer: bytes, table: int, index: int) -> int:
    """Offset of a flatbuffer table's field from the table, 0 when it is absent."""
    vtable = table - _I32.unpack_from(buffer, table)[0]
    (vtable_bytes,) = _U16.unpack_from(buffer, vtable)
    position = 4 + 2 * index
    if position + 2 > vtable_bytes:
        return 0
    return int(_U16.unpack_from(buffer, vtable + position)[0])


LOG_FORMAT: Final = 2  # on disk: never change, only add
_FORMAT_WITHOUT_OWNER: Final = 1

_FRAME: Final = struct.Struct("<QI")
STAMPED_FRAME: Final = struct.Struct("<QIBBBQQ")
_STAMP: Final = struct.Struct("<QQ")
_LOG_START: Final = struct.Struct("<BBQ16sQQ")
_LOG_OWNER: Final = struct.Struct("<16sQQ")
FRAME_BYTES: Final = 12  # on disk: never change
assert _FRAME.size == FRAME_BYTES

VARINT_ONE_BYTE: Final = 0x80
_new: Final = tuple.__new__  # a named tuple's own call costs twice as much
# Rows of a table have few different lengths, and looking one up is faster than making it.
length_of: Final = lru_cache(maxsize=1_024)(encode_varint)
STAMPS: Final = 2
BATCH_BYTES_MAX: Final = RECORD_BYTES_MAX - 64
"""Maximum size of a batch's entries: the frame and the stamps take the rest of a record."""
_NO_ROW_BEFORE: Final = b"\x00"
_NO_TABLE: Final = bytes(16)
# A schema version below 128, which is one byte, followed by the durable sequence.
_STAMPED_PREFIX: Final = re.compile(rb"\x20[\x00-\x7f]\x21", re.DOTALL).fullmatch


class Op:
    """First byte of an entry; on disk: never change."""

    DELETE: Final = 0x00
    PUT: Final = 0x01
    ARROW_UPSERT: Final = 0x10
    ARROW_DELETE: Final = 0x11
    ARROW_PARTIAL: Final = 0x12
    APPLIED_BATCH: Final = 0x13
    PREPARED: Final = 0x14
    SCHEMA_VERSION: Final = 0x20
    DURABLE_THROUGH: Final = 0x21
    LOG_START: Final = 0x22
    LOG_END: Final = 0x23


class EncodedChanges(NamedTuple):
    """A batch's entries as bytes, waiting for the sequence number that only the log assigns."""

    pieces: tuple[bytes | memoryview, ...]
    entry_count: int
    row_count: int
    schema_version: int
    byte_count: int


class LogStart(NamedTuple):
    """What a log's first record says about the log."""

    log_number: int
    table: UUID | None = None
    """The table the log belongs to; None when it does not say."""
    epoch: int = 0
    """Epoch of its writer."""
    reserved_bytes: int = 0
    """Length of the file before the first record was written."""


class LoggedBatch(NamedTuple):
    """One batch as it was read from a log."""

    sequence: SequenceNumber
    next_sequence: SequenceNumber
    """Sequence number of the row after this batch."""
    batch: WriteBatch
    durable_through: SequenceNumber
    nonce: int
    log_start: LogStart | None
    log_end: bool

    @property
    def schema_version(self) -> int:
        """The schema its rows were written with."""
        return self.batch.schema_version

    @property
    def transaction(self) -> str | None:
        """The transaction over several tables that it is a part of, if it is one."""
        return self.batch.transaction


def encode_put(key: bytes, value: bytes, schema_version: int) -> EncodedChanges:
    """Encode one row; the fast path for the most frequent batch."""
    if not 0 <= schema_version <= SCHEMA_VERSION_MAX:
        raise InvalidArgument(f"schema version {schema_version} is out of range")
    entry = b"".join((b"\x01", length_of(len(key)), key, length_of(len(value)), value))
    return _new(EncodedChanges, ((entry,), 1, 1, schema_version, len(entry)))


def encode_changes(batch: WriteBatch, *, dialect: Dialect = Dialect.CRC32C) -> EncodedChanges:
    """Encode the entries of a batch in the log's dialect."""
    pieces: list[bytes | memoryview] = []
    for change in batch.changes:
        if dialect is not Dialect.CRC32C and not isinstance(change, PutRow | DeleteRow):
            raise InvalidArgument(
                f"a log in the {dialect} dialect holds single rows, not {type(change).__name__}",
                hint="use PutRow and DeleteRow: other systems do not read Arrow batches",
            )
        pieces.extend(_encode_change(change))
        if dialect is Dialect.MERUTABLE and isinstance(change, DeleteRow):
            pieces.append(_NO_ROW_BEFORE)
    byte_count = sum(len(piece) for piece in pieces)
    return EncodedChanges(
        tuple(pieces), len(batch.changes), batch.row_count, batch.schema_version, byte_count
    )


def too_large(changes: EncodedChanges) -> LimitExceeded:
    """Return the error for a batch that no record can hold, see BATCH_BYTES_MAX."""
    return LimitExceeded(
        f"a batch of {changes.byte_count:,} bytes is larger than one log record may be",
        limit=RECORD_BYTES_MAX,
        actual=changes.byte_count,
        hint="write it as several batches",
    )


def frame_batch(
    changes: EncodedChanges, sequence: int, durable_through: int, nonce: int | None
) -> tuple[bytes | memoryview, ...]:
    """Return the payload of one log record, in pieces: the frame, then the encoded entries.

    Logs in neve's own dialect have a nonce. Without one the batch gets no stamps: other systems
    do not know them.
    """
    if nonce is None:
        return (_FRAME.pack(sequence, changes.entry_count), *changes.pieces)
    version = changes.schema_version
    count = changes.entry_count + STAMPS
    if version < VARINT_ONE_BYTE:
        frame = STAMPED_FRAME.pack(sequence, count, 0x20, version, 0x21, durable_through, nonce)
    else:
        frame = b"".join(
            (
                _FRAME.pack(sequence, count),
                bytes((Op.SCHEMA_VERSION,)),
                encode_varint(version),
                bytes((Op.DURABLE_THROUGH,)),
                _STAMP.pack(durable_through, nonce),
            )
        )
    return (frame, *changes.pieces)


def prepared_for(changes: EncodedChanges, transaction: str) -> EncodedChanges:
    """Return encoded changes as a part of a transaction, which count only if it is decided."""
    name = transaction.encode()
    entry = bytes((Op.PREPARED,)) + encode_varint(len(name)) + name
    return changes._replace(
        pieces=(entry, *changes.pieces),
        entry_count=changes.entry_count + 1,
        byte_count=changes.byte_count + len(entry),
    )


def encode_log_start(start: LogStart) -> EncodedChanges:
    """Return the entry that opens a neve log."""
    table = _NO_TABLE if start.table is None else start.table.bytes
    entry = _LOG_START.pack(
        Op.LOG_START, LOG_FORMAT, start.log_number, table, start.epoch, start.reserved_bytes
    )
    return EncodedChanges((entry,), 1, 0, 0, len(entry))


def encode_log_end() -> EncodedChanges:
    """Return the entry that closes a neve log in good order."""
    return EncodedChanges((bytes((Op.LOG_END,)),), 1, 0, 0, 1)


def decode_batch(
    payload: bytes, *, dialect: Dialect, path: str | None = None, offset: int | None = None
) -> LoggedBatch:
    """Read one logical record; raises Corruption naming path and offset."""
    try:
        single = _decode_single_put(payload) if dialect is Dialect.CRC32C else None
        return single or _decode(payload, deletes_carry_values=dialect is Dialect.MERUTABLE)
    except NeveError as error:
        error.path = path
        error.offset = offset
        raise


class Stamp(NamedTuple):
    """What a batch's DurableThrough says."""

    durable_through: int
    nonce: int


def read_stamp(prefix: bytes) -> Stamp | None:
    """Return a batch's DurableThrough, from the first bytes of its payload; None without one."""
    try:
        if len(prefix) <= FRAME_BYTES or prefix[FRAME_BYTES] != Op.SCHEMA_VERSION:
            return None
        _, position = read_varint(prefix, FRAME_BYTES + 1)
    except Corruption:
        return None
    if len(prefix) < position + 17 or prefix[position] != Op.DURABLE_THROUGH:
        return None
    return Stamp(*_STAMP.unpack_from(prefix, position + 1))


def _encode_change(change: Change) -> Sequence[bytes | memoryview]:
    match change:
        case PutRow(key, value):
            return (
                b"\x01%b%b%b%b" % (encode_varint(len(key)), key, encode_varint(len(value)), value),
            )
        case DeleteRow(key):
            return (b"\x00%b%b" % (encode_varint(len(key)), key),)
        case UpsertRows(rows):
            return _encode_rows(bytes((Op.ARROW_UPSERT,)), rows)
        case DeleteRows(keys):
            return _encode_rows(bytes((Op.ARROW_DELETE,)), keys)
        case PartialRows(rows, field_ids):
            if not field_ids:
                raise InvalidArgument("a partial write names no column")
            mask = b"".join(encode_varint(field_id) for field_id in field_ids)
            head = bytes((Op.ARROW_PARTIAL,)) + encode_varint(len(field_ids)) + mask
            return _encode_rows(head, rows)
        case AppliedBatch(application, number):
            name = application.encode()
            head = bytes((Op.APPLIED_BATCH,)) + encode_varint(len(name))
            return (head + name + encode_varint(number),)
        case _:
            assert_never(change)


@lru_cache(maxsize=64)
def _schema_bytes(schema: pa.Schema) -> bytes:
    return schema_message(schema)


def _encode_rows(head: bytes, rows: pa.RecordBatch) -> Sequence[bytes | memoryview]:
    schema = _schema_bytes(rows.schema)
    body = memoryview(rows.serialize())
    length = encode_varint(len(schema) + len(body))
    return (head + encode_varint(rows.num_rows) + length + schema, body)


def _decode_single_put(payload: bytes) -> LoggedBatch | None:
    """Read a batch of one short row, the most frequent kind; None for any other."""
    length = len(payload)
    if length < STAMPED_FRAME.size + 3:
        return None
    sequence, count, first, version, second, durable_through, nonce = STAMPED_FRAME.unpack_from(
        payload
    )
    key_at = STAMPED_FRAME.size + 2
    if (
        count != STAMPS + 1
        or first != Op.SCHEMA_VERSION
        or second != Op.DURABLE_THROUGH
        or payload[key_at - 2] != Op.PUT
        or version >= VARINT_ONE_BYTE
        or (key_bytes := payload[key_at - 1]) >= VARINT_ONE_BYTE
        or (value_at := key_at + key_bytes + 1) > length
        or payload[value_at - 1] >= VARINT_ONE_BYTE
        or value_at + payload[value_at - 1] != length
        or sequence >= SEQUENCE_MAX
    ):
        return None
    change = PutRow(payload[key_at : value_at - 1], payload[value_at:])
    batch = WriteBatch((change,), version)
    return LoggedBatch(sequence, sequence + 1, batch, durable_through, nonce, None, log_end=False)


def _decode(payload: bytes, *, deletes_carry_values: bool) -> LoggedBatch:
    if len(payload) < FRAME_BYTES:
        raise Corruption(f"a batch of {len(payload)} bytes has no room for its frame")
    sequence, count = _FRAME.unpack_from(payload)
    entries = _EntryReader(payload, deletes_carry_values=deletes_carry_values)
    while count > entries.entry_count:  # ends: each entry takes bytes, and running out raises
        entries.read_entry()
    if entries.position != len(payload):
        raise Corruption(
            f"a batch of {count:,} entries has {len(payload) - entries.position} bytes left over"
        )
    next_sequence = sequence + entries.row_count
    if next_sequence > SEQUENCE_MAX + 1:
        raise Corruption(f"batch sequence {sequence} is beyond the last possible one")
    return LoggedBatch(
        sequence,
        next_sequence,
        WriteBatch(tuple(entries.changes), entries.schema_version, entries.transaction),
        SequenceNumber(entries.durable_through),
        entries.nonce,
        entries.log_start,
        entries.log_end,
    )


class _EntryReader:
    """Walks the entries of one payload; every length is checked against the bytes at hand."""

    def __init__(self, payload: bytes, *, deletes_carry_values: bool) -> None:
        self.payload = payload
        self.deletes_carry_values = deletes_carry_values
        self.changes: list[Change] = []
        self.row_count = 0
        self.transaction: str | None = None
        self.log_start: LogStart | None = None
        self.log_end = False
        if len(payload) >= STAMPED_FRAME.size and _STAMPED_PREFIX(
            payload[FRAME_BYTES : FRAME_BYTES + 3]
        ):
            _, _, _, self.schema_version, _, self.durable_through, self.nonce = (
                STAMPED_FRAME.unpack_from(payload)
            )
            self.position = STAMPED_FRAME.size
            self.entry_count = STAMPS
        else:
            self.schema_version = 0
            self.durable_through = 0
            self.nonce = 0
            self.position = FRAME_BYTES
            self.entry_count = 0

    def read_entry(self) -> None:
        self.entry_count += 1
        op = self._take(1)[0]
        if op == Op.PUT:
            key = self._take_prefixed()
            self._add(PutRow(key, self._take_prefixed()), 1)
        elif op == Op.DELETE:
            key = self._take_prefixed()
            if self.deletes_carry_values:
                self._take_prefixed()
            self._add(DeleteRow(key), 1)
        elif op == Op.ARROW_UPSERT:
            rows = self._take_rows()
            self._add(UpsertRows(rows), rows.num_rows)
        elif op == Op.ARROW_DELETE:
            rows = self._take_rows()
            self._add(DeleteRows(rows), rows.num_rows)
        elif op == Op.ARROW_PARTIAL:
            field_ids = self._take_field_ids()
            rows = self._take_rows()
            self._add(PartialRows(rows, field_ids), rows.num_rows)
        elif op == Op.APPLIED_BATCH:
            self._add(AppliedBatch(self._take_text(), self._take_varint()), 1)
        elif op == Op.PREPARED:
            self.transaction = self._take_text()
        elif op == Op.SCHEMA_VERSION:
            self.schema_version = self._take_varint()
        elif op == Op.DURABLE_THROUGH:
            self.durable_through, self.nonce = _STAMP.unpack(self._take(_STAMP.size))
        elif op == Op.LOG_START:
            self.log_start = self._take_log_start()
        elif op == Op.LOG_END:
            self.log_end = True
        else:
            raise Corruption(f"unknown batch entry {op:#04x}")

    def _add(self, change: Change, row_count: int) -> None:
        self.changes.append(change)
        self.row_count += row_count

    def _take_log_start(self) -> LogStart:
        log_format, log_number = struct.unpack("<BQ", self._take(9))
        if log_format == _FORMAT_WITHOUT_OWNER:
            return LogStart(log_number)
        if log_format != LOG_FORMAT:
            raise Corruption(
                f"log format {log_format} is newer than this neve reads ({LOG_FORMAT})",
                hint="open the table with the neve that wrote it, or a newer one",
            )
        table, epoch, reserved_bytes = _LOG_OWNER.unpack(self._take(_LOG_OWNER.size))
        owner = None if table == _NO_TABLE else UUID(bytes=table)
        return LogStart(log_number, owner, epoch, reserved_bytes)

    def _take(self, length: int) -> bytes:
        end = self.position + length
        if end > len(self.payload):
            raise Corruption(
                f"a batch entry needs {length:,} bytes where {len(self.payload) - self.position:,}"
                " are left"
            )
        taken = self.payload[self.position : end]
        self.position = end
        return taken

    def _take_varint(self) -> int:
        value, self.position = read_varint(self.payload, self.position)
        return value

    def _take_prefixed(self) -> bytes:
        payload = self.payload
        position = self.position
        if position < len(payload) and (length := payload[position]) < VARINT_ONE_BYTE:
            end = position + 1 + length
            if end <= len(payload):
                self.position = end
                return payload[position + 1 : end]
        return self._take(self._take_varint())

    def _take_text(self) -> str:
        try:
            return self._take_prefixed().decode()
        except UnicodeDecodeError as error:
            raise Corruption("the name of an application or transaction is not UTF-8") from error

    def _take_field_ids(self) -> tuple[int, ...]:
        count = self._take_varint()
        if count == 0 or count > len(self.payload) - self.position:
            raise Corruption(f"a partial write names {count:,} columns")
        return tuple(self._take_varint() for _ in range(count))

    def _take_rows(self) -> pa.RecordBatch:
        row_count = self._take_varint()
        length = self._take_varint()
        start = self.position
        if length > len(self.payload) - start:
            raise Corruption(f"an Arrow batch of {length:,} bytes is cut off")
        self.position = start + length
        return read_rows(memoryview(self.payload)[start : start + length], row_count=row_count)
