"""Logs for the tests of inspection, made by the real writers."""

from collections.abc import Sequence

from neve.model.write_batch import Change, DeleteRow, PutRow, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import encode_changes, frame_batch
from neve.wal.inspection import (
    InspectedDamage,
    LogicalRecord,
    LogInspection,
    PayloadKind,
)
from neve.wal.log_ending import Ending
from neve.wal.log_options import LogOptions, LogPlace
from neve.wal.record_format import (
    HEADER,
    RECYCLABLE_HEADER,
    Dialect,
    is_recyclable,
    record_checksum,
)
from neve.wal.segment_reader import ReadAt
from neve.wal.segment_writer import SegmentWriter
from neve.wal.write_ahead_log import WriteAheadLog


def read_of(content: bytes) -> ReadAt:
    return lambda offset, length: content[offset : offset + length]


def inspect(
    content: bytes,
    *,
    payload: PayloadKind = PayloadKind.BATCH,
    log_number: int | None = None,
    start_offset: int = 0,
) -> LogInspection:
    return LogInspection(
        read_of(content), payload=payload, log_number=log_number, start_offset=start_offset
    )


def records_of(inspection: LogInspection) -> list[LogicalRecord]:
    return [item for item in inspection.records() if isinstance(item, LogicalRecord)]


def damage_of(inspection: LogInspection) -> list[InspectedDamage]:
    return [item for item in inspection.records() if isinstance(item, InspectedDamage)]


def ending_of(inspection: LogInspection) -> Ending:
    *_, last = inspection.records()
    assert isinstance(last, Ending)
    return last


def open_log(
    store: MemoryStore, *, first_log: int = 1, options: LogOptions | None = None
) -> WriteAheadLog:
    return WriteAheadLog(
        LogPlace(logs=store, log_path=lambda number: f"{number:06d}.wal"),
        next_log_number=first_log,
        next_sequence=1,
        options=options or LogOptions(preallocate=False, recycle_count=0),
    )


def neve_log(
    *changes: Sequence[Change],
    closed: bool = True,
    schema_version: int = 0,
    options: LogOptions | None = None,
) -> bytes:
    """Return the bytes of log 1 with one batch for each list of changes."""
    store = MemoryStore()
    log = open_log(store, options=options)
    for batch in changes:
        log.append(encode_changes(WriteBatch(tuple(batch), schema_version)))
    if closed:
        log.close()
    return store.get("000001.wal").payload


def segment(
    *payloads: bytes,
    dialect: Dialect = Dialect.ROCKSDB,
    recyclable: bool = False,
    log_number: int = 7,
) -> bytes:
    """Return the bytes of a log with these payloads as records."""
    store = MemoryStore()
    writer = SegmentWriter(
        store.create("log"), log_number=log_number, dialect=dialect, recyclable=recyclable
    )
    for payload in payloads:
        writer.append([[payload]])
    return store.get("log").payload


def batch(sequence: int, *changes: Change) -> bytes:
    """Return the payload of one batch without neve's stamps."""
    encoded = encode_changes(WriteBatch(changes))
    return b"".join(frame_batch(encoded, sequence=sequence, durable_through=0, nonce=None))


def physical_record(
    payload: bytes, *, record_type: int, dialect: Dialect = Dialect.ROCKSDB, log_number: int = 7
) -> bytes:
    """Return one physical record of any type, its checksum right."""
    crc = record_checksum(dialect, record_type=record_type, log_number=log_number, payload=payload)
    if is_recyclable(record_type):
        return RECYCLABLE_HEADER.pack(crc, len(payload), record_type, log_number) + payload
    return HEADER.pack(crc, len(payload), record_type) + payload


def flipped(content: bytes, at: int) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 0x01
    return bytes(changed)


def put(key: bytes, value: bytes = b"value") -> PutRow:
    return PutRow(key, value)


def delete(key: bytes) -> DeleteRow:
    return DeleteRow(key)
