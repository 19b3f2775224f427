"""Records that hold one put: most of those of a table that is written row by row.

Such a record is whole, of the recyclable kind, and its batch is one Put under a schema version
below 128 (see `neve.wal.record_format` and `neve.wal.batch_codec`):

    crc u32, length u16 │ 05, log number u32 │ sequence u64 │ count u32, 20, version, 21 │
    durable u64 │ nonce u64, 01 │ key length u8, key │ value length varint, value

They are made and read here without the steps that other records need, which take several times as
long. The rest is left to `frame_batch`, `SegmentReader` and `decode_batch`: anything else, and
anything that is wrong.

WAL-90  A put is framed to the same bytes here and by `frame_batch`.
WAL-91  A run has the rows that reading record by record finds, with the same sequence numbers.
WAL-92  A run ends before the first record that is not the next put of its log, under its schema.
"""

import struct
from typing import Final, NamedTuple

from neve.kernel import is_compiled, kernel
from neve.model.write_batch import SEQUENCE_MAX
from neve.wal.batch_codec import STAMPED_FRAME, STAMPS, VARINT_ONE_BYTE, Op, length_of
from neve.wal.record_format import (
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    Dialect,
    RecordType,
    checksum_extender,
    checksum_seed,
)

_RECORD: Final = struct.Struct("<IH5sQ7sQ9sB")
_KEY_AT: Final = STAMPED_FRAME.size + 2
assert _RECORD.size == RECYCLABLE_HEADER_BYTES + _KEY_AT
_FULL: Final = int(RecordType.RECYCLABLE_FULL)
_STAMPS: Final = struct.Struct("<IBBB")
_ONE_ENTRY: Final = (STAMPS + 1, Op.SCHEMA_VERSION, Op.DURABLE_THROUGH)
_VERSION_AT: Final = 5
# The frame, the stamps, the operation, and the length of the key.
_FRAMED_PUT: Final = struct.Struct(f"{STAMPED_FRAME.format}BB").pack
_COUNT: Final = STAMPS + 1
_extend: Final = checksum_extender(Dialect.CRC32C)


def put_record_in_python(  # noqa: PLR0917 - those of the kernel, which takes no names
    row: tuple[bytes, bytes, int],
    sequence: int,
    durable_through: int,
    nonce: int,
    seed: int,
    log_number: int,
    room: int,
) -> bytes | None:
    """Return the record that puts one row: its key, value and schema version.

    None for one that needs other lengths, or has a payload of more than `room` bytes. `seed` is the
    checksum of its type and of the log number.
    """
    key, value, schema_version = row
    key_bytes = len(key)
    if key_bytes >= VARINT_ONE_BYTE or schema_version >= VARINT_ONE_BYTE:
        return None
    payload = (
        _FRAMED_PUT(
            sequence, _COUNT, 0x20, schema_version, 0x21, durable_through, nonce, 0x01, key_bytes
        )
        + key
        + length_of(len(value))
        + value
    )
    if len(payload) > room:
        return None
    crc = _extend(seed, payload)
    return RECYCLABLE_HEADER.pack(crc, len(payload), _FULL, log_number) + payload


put_record: Final = kernel.put_record if is_compiled else put_record_in_python
"""Makes the record of a put: `put_record_in_python`, or the kernel's."""


def read_puts_in_python(  # noqa: PLR0917 - those of the kernel, which takes no names
    block: bytes,
    position: int,
    expected: int,
    limit: int,
    log_number: int,
    nonce: int,
    seed: int,
) -> tuple[list[bytes], list[bytes], int, int, int, int]:
    """Return keys and values of the puts from a position of a block on, which may be none.

    Then the schema version of all, what the last one says is durable, where it begins, and where
    the record after it does.
    """
    extend, unpack = _extend, _RECORD.unpack_from
    mark = struct.pack("<BI", _FULL, log_number)
    own = struct.pack("<QB", nonce, Op.PUT)
    keys: list[bytes] = []
    values: list[bytes] = []
    stamps, durable_through, begun = b"", 0, position
    block_end = len(block)
    while position + _RECORD.size < block_end:
        crc, length, its_mark, sequence, its_stamps, durable, its_own, key_bytes = unpack(
            block, position
        )
        start = position + RECYCLABLE_HEADER_BYTES
        end = start + length
        length_at = _KEY_AT + key_bytes
        if (
            its_mark != mark
            or its_own != own
            or sequence != expected
            or sequence >= limit
            or (its_stamps != stamps and (keys or not _is_one_put(its_stamps)))
            or key_bytes >= VARINT_ONE_BYTE
            or length_at >= length
            or end > block_end
        ):
            break
        payload = block[start:end]
        value_at = length_at + 1
        value_bytes = payload[length_at]
        if value_bytes >= VARINT_ONE_BYTE:
            if value_at == length:
                break
            # Two bytes, which is what most rows have, or three: more do not fit a block.
            value_bytes += (payload[value_at] << 7) - VARINT_ONE_BYTE
            value_at += 1
            if payload[value_at - 1] >= VARINT_ONE_BYTE:
                if value_at == length:
                    break
                value_bytes += (payload[value_at] << 14) - (VARINT_ONE_BYTE << 7)
                value_at += 1
        if value_at + value_bytes != length or extend(seed, payload) != crc:
            break
        keys.append(payload[_KEY_AT:length_at])
        values.append(payload[value_at:])
        stamps, durable_through, begun = its_stamps, durable, position
        expected += 1
        position = end
    version = stamps[_VERSION_AT] if keys else -1
    return keys, values, version, durable_through, begun, position


_read_puts: Final = kernel.read_puts if is_compiled else read_puts_in_python
"""Reads the puts of a block: `read_puts_in_python`, or the kernel's."""


class PutRun(NamedTuple):
    """Consecutive batches of one row each, put under one schema, as they were read."""

    sequence: int
    """Sequence number of the first row."""
    next_sequence: int
    """Sequence number of the row after the last one."""
    keys: list[bytes]
    values: list[bytes]
    schema_version: int
    durable_through: int
    """What the last of them says."""
    offset: int
    """Where the record of the last one begins."""

    @property
    def transaction(self) -> None:
        """None: no row of it is a part of a transaction over several tables."""

    def needed(self, from_sequence: int) -> "PutRun":
        """Return it without the rows below a sequence number."""
        skipped = from_sequence - self.sequence
        if skipped <= 0:
            return self
        first = min(from_sequence, self.next_sequence)
        return self._replace(sequence=first, keys=self.keys[skipped:], values=self.values[skipped:])


class PutReader:
    """Reads runs of puts in one log."""

    __slots__ = ("_limit", "_log_number", "_nonce", "_seed", "expected")

    def __init__(self, *, log_number: int, nonce: int, limit: int | None) -> None:
        """Read the log of this number and nonce, up to the sequence `limit`."""
        self._seed = checksum_seed(Dialect.CRC32C, record_type=_FULL, log_number=log_number)
        self._log_number = log_number & 0xFFFFFFFF
        self._nonce = nonce
        self._limit = SEQUENCE_MAX if limit is None else min(limit, SEQUENCE_MAX)
        self.expected = 0
        """Sequence number of the next row; the reader of other records moves it, too."""

    def read(self, block: bytes, position: int, *, base: int) -> tuple[PutRun | None, int]:
        """Return the puts from a position of a block on, None without any, and where they end.

        `base` is the block's offset in the log.
        """
        first = self.expected
        keys, values, version, durable_through, begun, position = _read_puts(
            block, position, first, self._limit, self._log_number, self._nonce, self._seed
        )
        if not keys:
            return None, position
        self.expected = first + len(keys)
        run = PutRun(first, self.expected, keys, values, version, durable_through, base + begun)
        return run, position


def _is_one_put(stamps: bytes) -> bool:
    """Whether a batch has one entry after its stamps, and a schema version of one byte."""
    count, first, version, second = _STAMPS.unpack(stamps)
    return (count, first, second) == _ONE_ENTRY and version < VARINT_ONE_BYTE
