"""A log taken apart for people: what it is, its blocks, its records, and where reading ends.

Three views of one file, each of them streamed from the file:

    identity   checksum dialect, kind of header, log number
    blocks     every byte of the file as exactly one part of one block
    records    whole logical records with their batches or version edits, damage between them, and
               last of all the Ending (`neve.wal.log_ending`)

WAL-41  No content of the file raises here; what cannot be read is shown as it is.
WAL-42  Memory is bounded by one read of the file and one logical record.

Parts of a block:

    block 0                                     block 1
    ┌────────┬────────┬────────────┬─────────┐  ┌────────┬───────────────────┬───────┐
    │ record │ record │ record     │ padding │  │ record │ damaged           │ zeros │
    └────────┴────────┴────────────┴─────────┘  └────────┴───────────────────┴───────┘

    record    a whole physical record whose checksum is right
    stale     a record that an earlier log left in a recycled file
    padding   a block's end that is too short for a header
    zeros     a header of zeros and the rest of its block: space never written
    damaged   bytes that are not a record, with the reason

WAL-43  The parts of a block follow one another without gap or overlap, from its first to its last
        byte; if reading starts inside a block, from the first record after the start.
WAL-44  No part crosses the end of its block. Blocks of nothing but zeros are only counted.
WAL-45  Memory is bounded by the parts of one block.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from neve.errors import LimitExceeded, Unavailable
from neve.wal.durability import claims_after
from neve.wal.inspected_batch import InspectedBatch, inspect_batch
from neve.wal.log_ending import Ending, EndingJudge, LogIdentity
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER,
    HEADER_BYTES,
    HEADER_BYTES_BY_TYPE,
    IGNORABLE_TYPES_FROM,
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    RECYCLABLE_OFFSET,
    Dialect,
    RecordType,
    is_recyclable,
)
from neve.wal.segment_reader import (
    Damage,
    DamageKind,
    Fragment,
    PhysicalEvent,
    ReadAt,
    Record,
    SegmentEnd,
    SegmentReader,
    Stale,
    Zeros,
)
from neve.wal.version_edits import RocksEdit, read_version_edit

# Reading continues after a record with one of these; other damage drops the rest of its block.
_ONE_RECORD: Final = (DamageKind.UNKNOWN_TYPE, DamageKind.UNSUPPORTED_TYPE)


class RecordHeader(NamedTuple):
    """The header of a physical record, right or wrong."""

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
    """A whole physical record; `ignored` if every reader skips its type."""

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
    """A block's end that is too short for a header."""

    offset: int
    byte_count: int


class ZerosPart(NamedTuple):
    """A header of zeros and what follows it in the block."""

    offset: int
    byte_count: int
    hidden_bytes: int
    """Bytes after the header that are not zero; no reader looks at them."""


class DamagedPart(NamedTuple):
    """Bytes that are not a record."""

    offset: int
    byte_count: int
    kind: DamageKind
    header: RecordHeader | None
    """The bytes where the header should be; None when it is cut off or could not be read."""


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
        # A block without an event holds only padding and records that are skipped.
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
    """Return where the bytes end that could not be read: after the known length of the file."""
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
        """Name bytes that the reader did not report: ignored records, and a block's padding."""
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


_MANIFEST_NAME: Final = re.compile(r"MANIFEST-[0-9]+")
_BEGINNINGS: Final = (RecordType.FULL, RecordType.FIRST)
_FRAGMENT_NAMES: Final = {1: "full", 2: "first", 3: "middle", 4: "last"}


class PayloadKind(StrEnum):
    """What the records of a log hold."""

    BATCH = "batch"
    """Changes of rows: a write-ahead log."""
    EDIT = "edit"
    """Changes of files: a RocksDB or LevelDB MANIFEST."""


class FragmentPlace(NamedTuple):
    """Where one physical record of a logical record is."""

    offset: int
    end_offset: int
    kind: str
    """full, first, middle or last."""
    length: int
    """Bytes of its payload."""

    @property
    def block(self) -> int:
        """Index of its block."""
        return self.offset // BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalRecord:
    """One whole record and its content."""

    offset: int
    fragments: tuple[FragmentPlace, ...]
    payload: bytes
    content: InspectedBatch | RocksEdit
    behind_end: bool
    """Whether recovery stops before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedDamage:
    """Bytes of the log that are not a record."""

    offset: int
    dropped_bytes: int
    kind: DamageKind
    behind_end: bool
    """Whether recovery stops before it."""


RecordItem = LogicalRecord | InspectedDamage | Ending


class LogInspection:
    """Takes one log apart; each view can be asked for again."""

    def __init__(
        self,
        read_at: ReadAt,
        *,
        payload: PayloadKind = PayloadKind.BATCH,
        log_number: int | None = None,
        start_offset: int = 0,
    ) -> None:
        """Without a log number, the first readable record decides."""
        self.identity = _identify(read_at, log_number)
        self.payload = payload
        self.start_offset = start_offset
        self._read_at = read_at

    def looks_like_a_log(self) -> bool:
        """Whether any record is whole, or the first bytes could at least be a header."""
        if self.identity.dialect is not None:
            return True
        header = read_header(self._read_at(0, RECYCLABLE_HEADER_BYTES), 0)
        if header is None:
            return False
        if header.type == RecordType.ZERO:
            return header.length == 0
        return header.type <= RecordType.RECYCLABLE_LAST and header.byte_count <= BLOCK_BYTES

    def other_payload(self) -> PayloadKind | None:
        """Return the kind of the first record if it is not the expected one, otherwise None.

        None also when the kind is not certain.
        """
        if self.identity.is_own:
            return PayloadKind.BATCH if self.payload is PayloadKind.EDIT else None
        first = next((item for item in self.records() if isinstance(item, LogicalRecord)), None)
        if first is None:
            return None
        holds = {
            PayloadKind.BATCH: self._is_batch(first.payload),
            PayloadKind.EDIT: _is_edit(first.payload),
        }
        (other,) = set(PayloadKind) - {self.payload}
        return other if holds[other] and not holds[self.payload] else None

    def blocks(self) -> Iterator[Block | EmptyBlocks]:
        """Return the blocks in file order."""
        return read_blocks(self._reader(), self._read_at, start_offset=self.start_offset)

    def records(self) -> Iterator[RecordItem]:
        """Yield records and damage in file order; the last item is the Ending."""
        reader = self._reader()
        judge = EndingJudge(self._read_at, self.identity, from_start=self.start_offset == 0)
        try:
            for event in reader:
                match event:
                    case Record():
                        yield self._logical_record(event, reader.fragments, judge)
                    case Damage():
                        yield InspectedDamage(
                            offset=event.offset,
                            dropped_bytes=event.dropped_bytes,
                            kind=event.kind,
                            behind_end=judge.has_ended,
                        )
                        judge.saw_damage(event, recyclable=reader.recyclable)
                    case Stale():
                        judge.saw_stale(event)
                    case SegmentEnd():
                        yield judge.ending(event)
                    case _:
                        assert_never(event)
        except LimitExceeded as error:
            yield judge.gave_up(error)

    def _logical_record(
        self, record: Record, fragments: list[FragmentPlace], judge: EndingJudge
    ) -> LogicalRecord:
        byte_count = len(record.payload)
        content: InspectedBatch | RocksEdit
        if self.payload is PayloadKind.EDIT:
            content = read_version_edit(record.payload)
            behind_end = judge.saw_edit(record.offset, content.problem, byte_count=byte_count)
        else:
            content = inspect_batch(record.payload, self.identity.dialect or Dialect.CRC32C)
            end = fragments[-1].end_offset
            behind_end = judge.saw_batch(
                record.offset, content, end_offset=end, byte_count=byte_count
            )
        return LogicalRecord(
            offset=record.offset,
            fragments=tuple(fragments),
            payload=record.payload,
            content=content,
            behind_end=behind_end,
        )

    def _is_batch(self, payload: bytes) -> bool:
        batch = inspect_batch(payload, self.identity.dialect or Dialect.CRC32C)
        return batch.problem is None and batch.unknown_tag is None and bool(batch.entries)

    def _reader(self) -> "_NotingReader":
        reader = _NotingReader(
            self._read_at,
            dialect=self.identity.dialect,
            log_number=self.identity.log_number,
            start_offset=self.start_offset,
        )
        if self.start_offset:
            reader.recyclable = self.identity.recyclable
        return reader


def payload_kind_of(file_name: str) -> PayloadKind:
    """Guess from its name what a log holds."""
    return PayloadKind.EDIT if _MANIFEST_NAME.fullmatch(file_name) else PayloadKind.BATCH


def _is_edit(payload: bytes) -> bool:
    edit = read_version_edit(payload)
    is_known = all(field.name != "unknown" for field in edit.fields)
    return edit.problem is None and is_known and bool(edit.fields)


def _identify(read_at: ReadAt, log_number: int | None) -> LogIdentity:
    reader = SegmentReader(read_at, log_number=log_number)
    for item in reader.physical_records():
        if isinstance(item, Fragment):
            return LogIdentity(
                dialect=reader.dialect, recyclable=item.recyclable, log_number=reader.log_number
            )
        if isinstance(item, Damage):
            # A damaged header may hold a wrong number.
            reader.log_number = log_number
    return _identify_by_claims(read_at, log_number) or LogIdentity(
        dialect=reader.dialect, recyclable=None, log_number=log_number
    )


def _identify_by_claims(read_at: ReadAt, log_number: int | None) -> LogIdentity | None:
    """Identify a log of neve by whole records inside its blocks, even if every block is damaged."""
    try:
        header = read_header(read_at(0, RECYCLABLE_HEADER_BYTES), 0)
        number = header.log_number if header is not None and log_number is None else log_number
        if number is None:
            return None
        claim = next(claims_after(read_at, from_offset=0, log_number=number, nonce=None), None)
    except (LimitExceeded, Unavailable):
        return None
    if claim is None:
        return None
    return LogIdentity(dialect=Dialect.CRC32C, recyclable=True, log_number=number)


class _NotingReader(SegmentReader):
    """Remembers the fragments of the record that is being assembled."""

    fragments: list[FragmentPlace]

    def physical_records(self) -> Iterator[PhysicalEvent]:
        self.fragments = []
        for event in super().physical_records():
            if not isinstance(event, Fragment) or event.kind in _BEGINNINGS:
                self.fragments = []
            if isinstance(event, Fragment) and (self.fragments or event.kind in _BEGINNINGS):
                length = len(event.payload)
                header_bytes = RECYCLABLE_HEADER_BYTES if event.recyclable else HEADER_BYTES
                end = event.offset + header_bytes + length
                kind = _FRAGMENT_NAMES[event.kind]
                self.fragments.append(FragmentPlace(event.offset, end, kind, length))
            yield event
