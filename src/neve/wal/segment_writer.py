"""The writer of one log file: frames payloads as physical records and appends them.

It remembers only its offset in the current block. Storage poisons a file whose append failed, so
the two cannot drift apart.
"""

from collections.abc import Sequence
from typing import Final

from neve.errors import LimitExceeded
from neve.storage.object_store import AppendFile
from neve.wal.put_records import put_record
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER,
    HEADER_BYTES,
    RECORD_BYTES_MAX,
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    RECYCLABLE_OFFSET,
    Dialect,
    RecordType,
    checksum_extender,
    checksum_seed,
)

Piece = bytes | memoryview

# One write of joined bytes is cheaper than a vector of small ones; large batches are not copied.
_PIECES_JOINED_MAX: Final = 64
_RECYCLABLE_ROOM: Final = BLOCK_BYTES - RECYCLABLE_HEADER_BYTES
_FULL: Final = int(RecordType.FULL)
_RECYCLABLE_FULL: Final = int(RecordType.RECYCLABLE_FULL)
_PACK: Final = HEADER.pack
_PACK_RECYCLABLE: Final = RECYCLABLE_HEADER.pack


class SegmentWriter:
    """Writes one log file; used by one thread at a time."""

    def __init__(
        self,
        file: AppendFile,
        *,
        log_number: int,
        dialect: Dialect = Dialect.CRC32C,
        recyclable: bool = True,
    ) -> None:
        self.file = file
        self.log_number = log_number
        self.dialect = dialect
        self.recyclable = recyclable
        self._header_bytes = RECYCLABLE_HEADER_BYTES if recyclable else HEADER_BYTES
        offset = RECYCLABLE_OFFSET if recyclable else 0
        self._types = tuple(kind + offset for kind in range(RecordType.LAST + 1))
        self._seeds = tuple(
            checksum_seed(dialect, record_type=kind, log_number=log_number) for kind in self._types
        )
        self._full_seed = self._seeds[_FULL]
        self._extend = checksum_extender(dialect)
        self._log_number_u32 = log_number & 0xFFFFFFFF
        self._block_offset = file.position % BLOCK_BYTES

    @property
    def position(self) -> int:
        """Offset that the next record begins at, without padding."""
        return self.file.position

    def append(self, payloads: Sequence[Sequence[Piece]]) -> None:
        """Write one record per payload with as few system calls as possible; does not sync."""
        if len(payloads) == 1 and self.recyclable:
            # The usual case, and the fastest: one record that fits its block.
            payload = b"".join(payloads[0])
            record = self.whole_record(payload)
            if record is not None:
                self.file.append((record,))
                return
            payloads = ((payload,),)
        framed: list[Piece] = []
        block_offset = self._block_offset
        try:
            for pieces in payloads:
                self._frame(b"".join(pieces), framed)
        except LimitExceeded:
            self._block_offset = block_offset  # nothing of this append reaches the file
            raise
        if len(framed) <= _PIECES_JOINED_MAX:
            self.file.append((b"".join(framed),))
        else:
            self.file.append(framed)

    def whole_record(self, payload: bytes) -> bytes | None:
        """Return the next record, for the caller to append; None when it does not fit its block.

        The log has recyclable records.
        """
        length = len(payload)
        if length > _RECYCLABLE_ROOM - self._block_offset:
            return None
        self._block_offset += RECYCLABLE_HEADER_BYTES + length
        crc = self._extend(self._full_seed, payload)
        return _PACK_RECYCLABLE(crc, length, _RECYCLABLE_FULL, self._log_number_u32) + payload

    def put_record(
        self, row: tuple[bytes, bytes, int], sequence: int, durable_through: int, nonce: int
    ) -> bytes | None:
        """Return the next record, which puts one row, for the caller to append.

        None when it does not fit its block, or is not one of `neve.wal.put_records`.
        """
        record = put_record(
            row,
            sequence,
            durable_through,
            nonce,
            self._full_seed,
            self._log_number_u32,
            _RECYCLABLE_ROOM - self._block_offset,
        )
        if record is not None:
            self._block_offset += len(record)
        return record

    def take_back(self) -> None:
        """Forget an append that ended before its first byte was written."""
        self._block_offset = self.file.position % BLOCK_BYTES

    def _frame(self, payload: bytes, framed: list[Piece]) -> None:
        byte_count = len(payload)
        if byte_count <= BLOCK_BYTES - self._block_offset - self._header_bytes:
            self._frame_fragment(_FULL, payload, framed)
        elif byte_count <= RECORD_BYTES_MAX:
            self._frame_fragments(memoryview(payload), framed)
        else:
            raise LimitExceeded(
                f"a log record of {byte_count:,} bytes is too large",
                limit=RECORD_BYTES_MAX,
                actual=byte_count,
                path=self.file.path,
                hint="write it as several batches",
            )

    def _frame_fragments(self, payload: memoryview, framed: list[Piece]) -> None:
        start = 0
        begun = False  # a First may be empty, so `start` alone does not show it
        while True:
            room = BLOCK_BYTES - self._block_offset
            if room < self._header_bytes:
                framed.append(bytes(room))
                self._block_offset = 0
                room = BLOCK_BYTES
            end = min(len(payload), start + room - self._header_bytes)
            finished = end == len(payload)
            if begun:
                kind = RecordType.LAST if finished else RecordType.MIDDLE
            else:
                kind = RecordType.FULL if finished else RecordType.FIRST
            begun = True
            self._frame_fragment(kind, bytes(payload[start:end]), framed)
            start = end
            if finished:
                return

    def _frame_fragment(self, kind: int, payload: bytes, framed: list[Piece]) -> None:
        crc = self._extend(self._seeds[kind], payload)
        length = len(payload)
        if self.recyclable:
            framed.append(_PACK_RECYCLABLE(crc, length, self._types[kind], self._log_number_u32))
        else:
            framed.append(_PACK(crc, length, self._types[kind]))
        framed.append(payload)
        self._block_offset += self._header_bytes + length
