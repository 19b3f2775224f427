"""Byte layout of one physical log record, and the three checksum dialects.

A log is a sequence of 32,768-byte blocks; the last one may be short.

    block
    ┌──────────┬──────────┬─────┬──────────┬──────────────┐
    │ record 0 │ record 1 │  …  │ record k │ zero padding │   padding: fewer bytes than a header
    └──────────┴──────────┴─────┴──────────┴──────────────┘

    record                                                      little-endian
    ┌─────────┬────────────┬─────────┬──────────────────┐
    │ crc u32 │ length u16 │ type u8 │ payload (length) │        types 1-4, header 7 bytes
    └─────────┴────────────┴─────────┴──────────────────┘
    ┌─────────┬────────────┬─────────┬────────────────┬──────────────────┐
    │ crc u32 │ length u16 │ type u8 │ log number u32 │ payload (length) │   types 5-8, 11 bytes
    └─────────┴────────────┴─────────┴────────────────┴──────────────────┘

A payload that does not fit is split into First, Middle…, Last over consecutive blocks; one that
fits is Full. If only a header fits into the block, an empty First is written; if not even that,
zeros. The recyclable types (5-8) carry the low 32 bits of the log number, which distinguishes the
bytes an earlier log left in a recycled file from this log's own.

    dialect     polynomial           masked   covers                        written by
    crc32c      CRC-32C              no       type, [log number], payload   neve
    rocksdb     CRC-32C              yes      type, [log number], payload   RocksDB, LevelDB
    merutable   CRC-32/ISO-HDLC      no       type, payload                 merutable

masked: rotate right by 15, add a282ead8. All records of a file have the dialect of its first one.
Unknown types from 128 are skipped, as RocksDB specifies; types 9-11 (compression and user
timestamps) change what a payload means and are refused.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import Final, cast

import google_crc32c

BLOCK_BYTES: Final = 32_768  # on disk: never change
HEADER_BYTES: Final = 7  # on disk: never change
RECYCLABLE_HEADER_BYTES: Final = 11  # on disk: never change
IGNORABLE_TYPES_FROM: Final = 128

# Writers and readers refuse a logical record larger than this.
RECORD_BYTES_MAX: Final = 1 << 30

HEADER: Final = struct.Struct("<IHB")
RECYCLABLE_HEADER: Final = struct.Struct("<IHBI")
assert HEADER.size == HEADER_BYTES
assert RECYCLABLE_HEADER.size == RECYCLABLE_HEADER_BYTES

_MASK_DELTA: Final = 0xA282EAD8
_U32: Final = 0xFFFFFFFF


class RecordType(IntEnum):
    """What a physical record is a part of; on disk: never change."""

    ZERO = 0
    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4
    RECYCLABLE_FULL = 5
    RECYCLABLE_FIRST = 6
    RECYCLABLE_MIDDLE = 7
    RECYCLABLE_LAST = 8
    SET_COMPRESSION = 9
    USER_TIMESTAMP_SIZE = 10
    RECYCLABLE_USER_TIMESTAMP_SIZE = 11
    RECYCLABLE_PREDECESSOR = 131


RECYCLABLE_OFFSET: Final = int(RecordType.RECYCLABLE_FULL - RecordType.FULL)

_RECYCLABLE_TYPES: Final = (
    RecordType.RECYCLABLE_FULL,
    RecordType.RECYCLABLE_FIRST,
    RecordType.RECYCLABLE_MIDDLE,
    RecordType.RECYCLABLE_LAST,
    RecordType.RECYCLABLE_USER_TIMESTAMP_SIZE,
    RecordType.RECYCLABLE_PREDECESSOR,
)
HEADER_BYTES_BY_TYPE: Final = tuple(
    RECYCLABLE_HEADER_BYTES if record_type in _RECYCLABLE_TYPES else HEADER_BYTES
    for record_type in range(256)
)


class Dialect(StrEnum):
    """Who wrote the checksums of a log."""

    CRC32C = "crc32c"
    ROCKSDB = "rocksdb"
    MERUTABLE = "merutable"


def mask(crc: int) -> int:
    """Return RocksDB's stored form of a CRC-32C."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _U32


def record_checksum(dialect: Dialect, *, record_type: int, log_number: int, payload: bytes) -> int:
    """Return the checksum that a header stores for this payload."""
    seed = checksum_seed(dialect, record_type=record_type, log_number=log_number)
    return checksum_extender(dialect)(seed, payload)


def checksum_seed(dialect: Dialect, *, record_type: int, log_number: int) -> int:
    """Return the checksum of what precedes the payload; the same for each type in one log."""
    covered = bytes((record_type,))
    if dialect is Dialect.MERUTABLE:
        return zlib.crc32(covered)
    if is_recyclable(record_type):
        covered += (log_number & _U32).to_bytes(4, "little")
    return int(google_crc32c.value(covered))


def checksum_extender(dialect: Dialect) -> Callable[[int, bytes], int]:
    """Return the function from a seed and a payload to the stored checksum."""
    match dialect:
        case Dialect.CRC32C:
            return cast(Callable[[int, bytes], int], google_crc32c.extend)
        case Dialect.ROCKSDB:
            return lambda seed, payload: mask(google_crc32c.extend(seed, payload))
        case Dialect.MERUTABLE:
            return lambda seed, payload: zlib.crc32(payload, seed)


def is_recyclable(record_type: int) -> bool:
    """Whether a header of this type carries the log number."""
    return HEADER_BYTES_BY_TYPE[record_type] == RECYCLABLE_HEADER_BYTES


def detect_dialect(first_record: bytes) -> Dialect | None:
    """Return the dialect that the physical record at the start of `first_record` is whole in.

    None when no dialect fits: the log is empty, or its first record is damaged.
    """
    if len(first_record) < HEADER_BYTES:
        return None
    crc, length, record_type = HEADER.unpack_from(first_record)
    start = HEADER_BYTES_BY_TYPE[record_type]
    payload = first_record[start : start + length]
    if record_type == RecordType.ZERO or len(payload) < length:
        return None
    log_number = int.from_bytes(first_record[HEADER_BYTES:RECYCLABLE_HEADER_BYTES], "little")
    for dialect in Dialect:
        expected = record_checksum(
            dialect, record_type=record_type, log_number=log_number, payload=payload
        )
        if expected == crc:
            return dialect
    return None
