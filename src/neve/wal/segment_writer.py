"""Frames payloads as physical records and appends them to one log file.

The writer remembers only how far it is into the current block. A file whose append failed is
poisoned by storage, so the two cannot drift apart.
"""

from collections.abc import Sequence

from neve.errors import LimitExceeded
from neve.storage.append_file import AppendFile
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
    checksum_seed,
    finish_checksum,
)

Piece = bytes | memoryview


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
        self._log_number_u32 = log_number & 0xFFFFFFFF
        self._block_offset = file.position % BLOCK_BYTES

    @property
    def position(self) -> int:
        """Offset the next record begins at, padding not counted."""
        return self.file.position

    def append(self, payloads: Sequence[Sequence[Piece]]) -> None:
        """Write one record per payload with as few system calls as there can be; does not sync."""
        framed: list[Piece] = []
        for pieces in payloads:
            self._frame(pieces, framed)
        self.file.append(framed)

    def sync(self) -> None:
        """Make every record appended durable."""
        self.file.sync()

    def _frame(self, pieces: Sequence[Piece], framed: list[Piece]) -> None:
        byte_count = sum(map(len, pieces))
        room = BLOCK_BYTES - self._block_offset - self._header_bytes
        if byte_count <= room:
            payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self._frame_fragment(RecordType.FULL, bytes(payload), framed)
            return
        if byte_count > RECORD_BYTES_MAX:
            raise LimitExceeded(
                f"a log record of {byte_count:,} bytes is too large",
                limit=RECORD_BYTES_MAX,
                actual=byte_count,
                path=self.file.path,
                hint="write it as several batches",
            )
        self._frame_fragments(memoryview(b"".join(pieces)), framed)

    def _frame_fragments(self, payload: memoryview, framed: list[Piece]) -> None:
        start = 0
        begun = False  # a First may hold no bytes, so `start` alone cannot tell
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
        crc = finish_checksum(self.dialect, self._seeds[kind], payload)
        if self.recyclable:
            header = RECYCLABLE_HEADER.pack(
                crc, len(payload), self._types[kind], self._log_number_u32
            )
        else:
            header = HEADER.pack(crc, len(payload), self._types[kind])
        framed.append(header)
        framed.append(payload)
        self._block_offset += len(header) + len(payload)
