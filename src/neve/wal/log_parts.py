"""The parts of a log file, block by block: every byte belongs to exactly one part.

    block 0                                     block 1
    ┌────────┬────────┬────────────┬─────────┐  ┌────────┬───────────────────┬───────┐
    │ record │ record │ record     │ padding │  │ record │ damaged           │ zeros │
    └────────┴────────┴────────────┴─────────┘  └────────┴───────────────────┴───────┘

    record    a whole physical record whose checksum is right
    stale     a record that an earlier log left in a recycled file
    padding   a block's end in which no header fits
    zeros     a header of zeros and with it the rest of the block: space never written
    damaged   bytes that are no record, with the reason

P1  The parts of a block follow one another without gap or overlap, from its first to its last byte;
    where reading starts inside a block, from the first record behind the start.
P2  No part crosses the end of its block. Blocks of nothing but zeros are counted, not given singly.
P3  Memory is bounded by the parts of one block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from neve.errors import Unavailable
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER,
    HEADER_BYTES,
    HEADER_BYTES_BY_TYPE,
    IGNORABLE_TYPES_FROM,
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    RECYCLABLE_OFFSET,
    RecordType,
    is_recyclable,
)
from neve.wal.segment_reader import (
    Damage,
    DamageKind,
    Fragment,
    PhysicalEvent,
    ReadAt,
    SegmentEnd,
    SegmentReader,
    Stale,
    Zeros,
)

# These name one record and let reading go on behind it; other damage takes the rest of its block.
_ONE_RECORD: Final = (DamageKind.UNKNOWN_TYPE, DamageKind.UNSUPPORTED_TYPE)


class RecordHeader(NamedTuple):
    """What the header of a physical record says, right or wrong."""

    type: int
    length: int
    log_number: int | None
    """Low 32 bits; None in the short header."""

    @property
    def byte_count(self) -> int:
        """Bytes of header and payload together."""
        return HEADER_BYTES_BY_TYPE[self.type] + self.length

    @property
    def type_name(self) -> str:
        """Name of the type, in words."""
        try:
            return RecordType(self.type).name.lower().replace("_", " ")
        except ValueError:
            return f"type {self.type}"


class RecordPart(NamedTuple):
    """A whole physical record; one of a type that every reader passes over is `ignored`."""

    offset: int
    byte_count: int
    header: RecordHeader
    ignored: bool = False


class StalePart(NamedTuple):
    """A record of an earlier log."""

    offset: int
    byte_count: int
    log_number: int


class PaddingPart(NamedTuple):
    """A block's end in which no header fits."""

    offset: int
    byte_count: int


class ZerosPart(NamedTuple):
    """A header of zeros and what follows it in the block."""

    offset: int
    byte_count: int
    hidden_bytes: int
    """Bytes behind the header that are not zero, and that no reader looks at."""


class DamagedPart(NamedTuple):
    """Bytes that are no record."""

    offset: int
    byte_count: int
    kind: DamageKind
    header: RecordHeader | None
    """What stands where the header should be; None when it is cut off or could not be read."""


Part = RecordPart | StalePart | PaddingPart | ZerosPart | DamagedPart


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block and its parts; the last one of a file may be short."""

    index: int
    offset: int
    byte_count: int
    parts: tuple[Part, ...]

    @property
    def fill(self) -> float:
        """Share of a whole block that this log's own records take, headers included."""
        taken = sum(part.byte_count for part in self.parts if isinstance(part, RecordPart))
        return taken / BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyBlocks:
    """Consecutive blocks of nothing but zeros."""

    index: int
    block_count: int
    offset: int
    byte_count: int


def read_blocks(
    reader: SegmentReader, read_at: ReadAt, *, start_offset: int
) -> Iterator[Block | EmptyBlocks]:
    """Yield the blocks from the reader's start to the end of the file."""
    empty: list[Block] = []  # first and last of a run
    for block in _filled_blocks(reader, read_at, start_offset):
        if _is_empty(block):
            empty[1:] = [block]
            continue
        if empty:
            yield _joined(empty)
            empty = []
        yield block
    if empty:
        yield _joined(empty)


def read_header(content: bytes, position: int) -> RecordHeader | None:
    """Read the header at `position`; None when it is cut off."""
    if len(content) - position < HEADER_BYTES:
        return None
    _, length, record_type = HEADER.unpack_from(content, position)
    if not is_recyclable(record_type):
        return RecordHeader(record_type, length, None)
    if len(content) - position < RECYCLABLE_HEADER_BYTES:
        return None
    *_, log_number = RECYCLABLE_HEADER.unpack_from(content, position)
    return RecordHeader(record_type, length, log_number)


def _is_empty(block: Block) -> bool:
    return all(isinstance(part, ZerosPart) and part.hidden_bytes == 0 for part in block.parts)


def _joined(run: list[Block]) -> EmptyBlocks:
    first, last = run[0], run[-1]
    return EmptyBlocks(
        index=first.index,
        block_count=last.index - first.index + 1,
        offset=first.offset,
        byte_count=last.offset + last.byte_count - first.offset,
    )


def _filled_blocks(reader: SegmentReader, read_at: ReadAt, start_offset: int) -> Iterator[Block]:
    index = start_offset // BLOCK_BYTES
    events: list[PhysicalEvent] = []
    for event in reader.physical_records():
        if isinstance(event, SegmentEnd):
            end = max(event.file_bytes, _end_of_read_error(events))
            until = -(-end // BLOCK_BYTES)
        else:
            end = (event.offset // BLOCK_BYTES) * BLOCK_BYTES
            until = event.offset // BLOCK_BYTES
        # A block without an event holds only padding and records that are passed over.
        while index < until:
            tiling = _Tiling(read_at, index=index, file_end=end, start_offset=start_offset)
            parts = tuple(tiling.parts(events))
            if parts:
                offset = parts[0].offset
                byte_count = tiling.end - offset
                yield Block(index=index, offset=offset, byte_count=byte_count, parts=parts)
            events = []
            index += 1
        events.append(event)


def _end_of_read_error(events: list[PhysicalEvent]) -> int:
    """Where bytes that could not be read end: behind what is known of the file's length."""
    last = events[-1] if events else None
    if isinstance(last, Damage) and last.kind is DamageKind.READ_ERROR:
        return last.offset + last.dropped_bytes
    return 0


class _Tiling:
    """Lays the events of one block out over its bytes, and names what lies between them."""

    def __init__(self, read_at: ReadAt, *, index: int, file_end: int, start_offset: int) -> None:
        self._base = index * BLOCK_BYTES
        self.end = min(self._base + BLOCK_BYTES, file_end)
        self._starts_inside = self._base < start_offset
        try:
            self._content = read_at(self._base, self.end - self._base)
        except Unavailable:
            self._content = b""

    def parts(self, events: list[PhysicalEvent]) -> Iterator[Part]:
        at: int | None = None if self._starts_inside else self._base
        for event in events:
            part = self._part_of(event)
            if at is not None:
                yield from self._between(at, part.offset)
            yield part
            at = part.offset + part.byte_count
        if at is not None:
            yield from self._between(at, self.end)

    def _part_of(self, event: PhysicalEvent) -> Part:
        offset = event.offset
        header = read_header(self._content, offset - self._base)
        match event:
            case Fragment(kind, _, payload, recyclable):
                # From the event, not from the file: a live log may have changed since.
                record_type = kind + RECYCLABLE_OFFSET if recyclable else kind
                log_number = header.log_number if header is not None else None
                own = RecordHeader(record_type, len(payload), log_number)
                return RecordPart(offset, own.byte_count, own)
            case Stale():
                byte_count = RECYCLABLE_HEADER_BYTES if header is None else header.byte_count
                return StalePart(offset, byte_count, event.log_number)
            case Zeros():
                covered = self._content[offset - self._base :]
                return ZerosPart(offset, event.byte_count, len(covered) - covered.count(0))
            case Damage():
                byte_count = event.dropped_bytes
                if header is not None and event.kind in _ONE_RECORD:
                    byte_count = header.byte_count
                return DamagedPart(offset, byte_count, event.kind, header)
            case SegmentEnd():
                raise AssertionError("the end of the file belongs to no block")
            case _:
                assert_never(event)

    def _between(self, start: int, end: int) -> Iterator[Part]:
        """Name bytes of which the reader said nothing: ignored records, and a block's padding."""
        while start < end:
            header = read_header(self._content, start - self._base)
            if (
                header is None
                or header.type < IGNORABLE_TYPES_FROM
                or start + header.byte_count > end
            ):
                yield PaddingPart(start, end - start)
                return
            yield RecordPart(start, header.byte_count, header, ignored=True)
            start += header.byte_count
