"""The reader of one log file: a stream of its records and of everything that is wrong with it.

The reader does not decide what damage means: recovery does. It reports what it found, where, and
how many bytes could not be read, and continues where LevelDB and RocksDB continue.

    Record      a whole logical record
    PutRun      several whole records of one put each, for a caller that asks for them
    Damage      bytes that are not a record; three kinds are what a crash leaves at the tail
    Stale       a record of an earlier log in a recycled file
    SegmentEnd  always last: where the readable part ends

Rules, as RocksDB's reader has them:

WAL-61  A length that leaves the block, or a checksum that disagrees, drops the rest of the block:
        the length itself may be wrong, so nothing after it in the block can be trusted.
WAL-62  An all-zero header silently drops the rest of the block (preallocated space).
WAL-63  A fragment without its beginning, or a record without its end, is dropped and reported.
WAL-64  Memory is bounded by one read of the file and one logical record.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, cast

from neve.errors import LimitExceeded, Unavailable
from neve.wal.put_records import PutReader, PutRun
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER,
    HEADER_BYTES,
    HEADER_BYTES_BY_TYPE,
    IGNORABLE_TYPES_FROM,
    RECORD_BYTES_MAX,
    RECYCLABLE_HEADER_BYTES,
    RECYCLABLE_OFFSET,
    Dialect,
    RecordType,
    checksum_extender,
    checksum_seed,
    detect_dialect,
)

ReadAt = Callable[[int, int], bytes]
"""Returns up to `length` bytes from `offset`: fewer only at the end of the file."""

_READ_BYTES: Final = 32 * BLOCK_BYTES
# What a reader that follows a writer finds new is often little.
_FOLLOWED_BYTES: Final = 4 * BLOCK_BYTES
# After this many in a row the whole file is considered unreadable.
_UNREAD_BLOCKS_MAX: Final = 64
_U32: Final = 0xFFFFFFFF
_ZERO: Final = int(RecordType.ZERO)
_FULL: Final = int(RecordType.FULL)
_LAST: Final = int(RecordType.LAST)
_RECORD_ENDS: Final = (_FULL, _LAST)
_UNSUPPORTED: Final = (
    RecordType.SET_COMPRESSION,
    RecordType.USER_TIMESTAMP_SIZE,
    RecordType.RECYCLABLE_USER_TIMESTAMP_SIZE,
)


class DamageKind(StrEnum):
    """What is wrong with some bytes of a log."""

    TRUNCATED_HEADER = "truncated header"
    TRUNCATED_BODY = "truncated record body"
    UNFINISHED_RECORD = "record never finished"
    BAD_LENGTH = "bad record length"
    CHECKSUM_MISMATCH = "checksum mismatch"
    WRONG_HEADER_KIND = "recyclable record in a log that began without them"
    UNKNOWN_TYPE = "unknown record type"
    UNSUPPORTED_TYPE = "record type that neve does not read"
    MISSING_START = "missing start of fragmented record"
    MISSING_END = "partial record without end"
    INTERRUPTED_RECORD = "error in middle of record"
    READ_ERROR = "read error"


TORN_TAIL: Final = frozenset(
    {DamageKind.TRUNCATED_HEADER, DamageKind.TRUNCATED_BODY, DamageKind.UNFINISHED_RECORD}
)
"""What a writer leaves that died in the middle of a write."""


class Record(NamedTuple):
    """One whole logical record."""

    offset: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of the log that are not a record."""

    offset: int
    dropped_bytes: int
    kind: DamageKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A record that an earlier log left in a recycled file."""

    offset: int
    log_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Zeros:
    """A header of zeros and the rest of its block: space never written."""

    offset: int
    byte_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEnd:
    """The end of what there is to read."""

    offset: int
    """End of the last whole physical record, without padding and zeros."""
    resume_offset: int
    """Where a reader that waits for more bytes begins again."""
    file_bytes: int


class Fragment(NamedTuple):
    """One physical record; its type is without the recyclable bit."""

    kind: int
    offset: int
    payload: bytes
    recyclable: bool


Event = Record | Damage | Stale | SegmentEnd
PhysicalEvent = Fragment | Damage | Stale | Zeros | SegmentEnd


class SegmentReader:
    """Iterates over the events of one log file, once."""

    def __init__(
        self,
        read_at: ReadAt,
        *,
        dialect: Dialect | None = None,
        log_number: int | None = None,
        start_offset: int = 0,
        passes_unread: bool = False,
        ends_at_zeros: bool = False,
    ) -> None:
        """Read a file from an offset.

        With `passes_unread`, blocks that storage cannot read are skipped as damage; with
        `ends_at_zeros`, a block that was never written is the end, and none after it is read.
        """
        self.dialect = dialect
        self.log_number = log_number
        self.recyclable: bool | None = None
        """False once a record without a log number was read: the log has only such records."""
        self._read_at = read_at
        self._start_offset = start_offset
        self._passes_unread = passes_unread
        self._ends_at_zeros = ends_at_zeros
        self._puts: PutReader | None = None
        self._is_between = True  # whether the next record may be a whole one
        self._seeds: dict[int, int] = {}
        self._extend = checksum_extender(Dialect.CRC32C)
        self._end_offset = start_offset

    def __iter__(self) -> Iterator[Event]:
        """Yield every event in file order; the last one is the SegmentEnd."""
        return cast("Iterator[Event]", self._events(self.physical_records()))

    def with_runs(self, puts: PutReader) -> Iterator[Event | PutRun]:
        """Yield every event, but puts that follow each other as one.

        A record begins at the offset that the reader begins at.
        """
        self._puts = puts
        return self._events(self._physical_events())

    def _events(self, items: Iterable[PhysicalEvent | PutRun]) -> Iterator[Event | PutRun]:
        assembly = _Assembly()
        resyncing = self._start_offset > 0
        for item in items:
            if isinstance(item, PutRun):
                resyncing = False
                yield item
            elif not isinstance(item, Fragment):
                yield from assembly.interrupt(item)
            elif item.kind == _FULL and not assembly.active:
                resyncing = False
                yield Record(item.offset, item.payload)
            elif resyncing and item.kind in (RecordType.MIDDLE, RecordType.LAST):
                # The record began before the start of this reader.
                resyncing = item.kind == RecordType.MIDDLE
            else:
                resyncing = False
                yield from assembly.add(item)

    def physical_records(self) -> Iterator[PhysicalEvent]:
        """Yield every fragment and everything that is not one; the last one is the SegmentEnd."""
        return cast("Iterator[PhysicalEvent]", self._physical_events())

    def _physical_events(self) -> Iterator[PhysicalEvent | PutRun]:
        base = self._first_block()
        length = _FOLLOWED_BYTES if self._ends_at_zeros else _READ_BYTES
        unread_blocks = 0
        while unread_blocks < _UNREAD_BLOCKS_MAX:
            try:
                chunk = self._read_at(base, length)
            except Unavailable:
                if self._passes_unread and length > BLOCK_BYTES:
                    length = BLOCK_BYTES  # perhaps only some of the blocks are unreadable
                    continue
                yield Damage(offset=base, dropped_bytes=BLOCK_BYTES, kind=DamageKind.READ_ERROR)
                if not self._passes_unread:
                    break
                base += BLOCK_BYTES
                unread_blocks += 1
                continue
            if self._ends_at_zeros:
                chunk = _before_zeros(chunk)
            for start in range(0, len(chunk), BLOCK_BYTES):
                block = chunk[start : start + BLOCK_BYTES]
                yield from self._records_of_block(block, base + start)
            base += len(chunk)
            if len(chunk) < length:
                break
            length = min(2 * length, _READ_BYTES)
            unread_blocks = 0
        end = self._end_offset
        yield SegmentEnd(offset=end, resume_offset=end, file_bytes=base)

    def _first_block(self) -> int:
        block, inside = divmod(self._start_offset, BLOCK_BYTES)
        # No record begins in a block's last six bytes.
        if inside > BLOCK_BYTES - HEADER_BYTES:
            block += 1
        return block * BLOCK_BYTES

    def _records_of_block(self, block: bytes, base: int) -> Iterator[PhysicalEvent | PutRun]:
        block_bytes = len(block)
        last_block = block_bytes < BLOCK_BYTES
        puts = self._puts if self.recyclable is not False else None
        position = 0 if puts is None else max(0, self._start_offset - base)
        while block_bytes - position >= HEADER_BYTES:
            if puts is not None and self._is_between:
                run, position = self._run_at(puts, block, position, base)
                if run is not None:
                    yield run
                    continue
            stored_crc, length, record_type = HEADER.unpack_from(block, position)
            offset = base + position
            start = position + HEADER_BYTES_BY_TYPE[record_type]
            end = start + length
            recyclable = start - position == RECYCLABLE_HEADER_BYTES
            if recyclable and not self.recyclable:
                if self.recyclable is False:
                    yield Damage(
                        offset=offset,
                        dropped_bytes=block_bytes - position,
                        kind=DamageKind.WRONG_HEADER_KIND,
                    )
                    return
                self.recyclable = True
            if end > block_bytes:
                damage = self._overrun(offset, start, block_bytes - position, last_block=last_block)
                if damage is not None:
                    yield damage
                return
            if record_type == _ZERO and length == 0:
                yield Zeros(offset=offset, byte_count=block_bytes - position)
                return
            payload = block[start:end]
            adopts = False
            if recyclable:
                log_number = int.from_bytes(block[start - 4 : start], "little")
                if self.log_number is None:
                    adopts = True
                    self.log_number = log_number
                if log_number != self.log_number & _U32:
                    position = end
                    yield Stale(offset=offset, log_number=log_number)
                    continue
            wrong = self._wrongness(block, position, record_type, stored_crc, payload)
            if wrong is not None:
                if adopts:  # a number from a damaged header belongs to no log
                    self.log_number = None
                    self._seeds.clear()
                yield Damage(offset=offset, dropped_bytes=block_bytes - position, kind=wrong)
                return
            position = end
            event = self._event_of(record_type, offset, payload, recyclable=recyclable)
            if offset >= self._start_offset:
                self._end_offset = base + end
                if event is not None:
                    yield event
        if last_block and position < block_bytes:
            yield Damage(
                offset=base + position,
                dropped_bytes=block_bytes - position,
                kind=DamageKind.TRUNCATED_HEADER,
            )

    def _event_of(
        self, record_type: int, offset: int, payload: bytes, *, recyclable: bool
    ) -> Fragment | Damage | None:
        """Return what a physical record with a matching checksum is; None for one to ignore."""
        kind = record_type - RECYCLABLE_OFFSET if recyclable else record_type
        if self.recyclable is None and kind in _RECORD_ENDS:
            self.recyclable = False
        if _FULL <= kind <= _LAST:
            self._is_between = kind in _RECORD_ENDS
            return Fragment(kind, offset, payload, recyclable)
        if record_type < IGNORABLE_TYPES_FROM:
            return Damage(offset=offset, dropped_bytes=len(payload), kind=_strangeness(record_type))
        return None

    def _run_at(
        self, puts: PutReader, block: bytes, position: int, base: int
    ) -> tuple[PutRun | None, int]:
        run, position = puts.read(block, position, base=base)
        if run is not None:
            self.recyclable = True
            self._end_offset = base + position
        return run, position

    def _overrun(
        self, offset: int, start: int, dropped_bytes: int, *, last_block: bool
    ) -> Damage | None:
        """Return the damage of a record that does not end inside its block, if it is damage."""
        header_is_cut = offset % BLOCK_BYTES + dropped_bytes < start
        if header_is_cut and not last_block:
            return None  # a recyclable header does not fit: the writer padded
        if header_is_cut:
            kind = DamageKind.TRUNCATED_HEADER
        elif last_block:
            kind = DamageKind.TRUNCATED_BODY
        else:
            kind = DamageKind.BAD_LENGTH
        return Damage(offset=offset, dropped_bytes=dropped_bytes, kind=kind)

    def _wrongness(
        self, block: bytes, position: int, record_type: int, stored_crc: int, payload: bytes
    ) -> DamageKind | None:
        """Check one record's checksum; the first right one fixes the dialect."""
        if self.dialect is None:
            self.dialect = detect_dialect(block[position:])
            if self.dialect is None:
                return DamageKind.CHECKSUM_MISMATCH
        seed = self._seeds.get(record_type)
        if seed is None:
            seed = checksum_seed(
                self.dialect, record_type=record_type, log_number=self.log_number or 0
            )
            self._seeds[record_type] = seed
            self._extend = checksum_extender(self.dialect)
        if self._extend(seed, payload) != stored_crc:
            return DamageKind.CHECKSUM_MISMATCH
        return None


class _Assembly:
    """Assembles fragments, and reports those that do not fit."""

    def __init__(self) -> None:
        self.active = False
        self._parts: list[bytes] = []
        self._byte_count = 0
        self._begun_at = 0
        self._awaited_at = -1

    def add(self, fragment: Fragment) -> Iterator[Event]:
        kind, offset, payload, recyclable = fragment
        if kind in (RecordType.FULL, RecordType.FIRST):
            # An empty First may be alone at a block's end: old writers left such.
            if self.active and self._byte_count:
                yield self._drop(DamageKind.MISSING_END)
            self._begin(offset)
        elif not self.active:
            yield Damage(offset=offset, dropped_bytes=len(payload), kind=DamageKind.MISSING_START)
            return
        if payload:  # there may be many empty fragments: they cost nothing
            self._parts.append(payload)
        self._byte_count += len(payload)
        if self._byte_count > RECORD_BYTES_MAX:
            raise LimitExceeded(
                "a log record is larger than any that neve writes",
                limit=RECORD_BYTES_MAX,
                offset=self._begun_at,
                hint="this is not a log that neve can read",
            )
        if kind in _RECORD_ENDS:
            self.active = False
            self._awaited_at = -1
            yield Record(self._begun_at, b"".join(self._parts))
        else:
            header_bytes = RECYCLABLE_HEADER_BYTES if recyclable else HEADER_BYTES
            self._awaited_at = offset + header_bytes + len(payload)

    def interrupt(self, item: Damage | Stale | Zeros | SegmentEnd) -> Iterator[Event]:
        """Report what is not a fragment, and the record it leaves unfinished."""
        if isinstance(item, Damage):
            yield item
        if self.active:
            torn = isinstance(item, SegmentEnd | Stale) or (
                isinstance(item, Damage) and item.kind in TORN_TAIL
            )
            yield self._drop(
                DamageKind.UNFINISHED_RECORD if torn else DamageKind.INTERRUPTED_RECORD
            )
        if isinstance(item, Stale):
            yield item
        elif isinstance(item, SegmentEnd):
            # A reader that waits for an unfinished record begins at its start.
            begun = item.offset == self._awaited_at
            yield replace(item, resume_offset=self._begun_at) if begun else item

    def _begin(self, offset: int) -> None:
        self.active = True
        self._parts = []
        self._byte_count = 0
        self._begun_at = offset

    def _drop(self, kind: DamageKind) -> Damage:
        self.active = False
        return Damage(offset=self._begun_at, dropped_bytes=self._byte_count, kind=kind)


def _before_zeros(chunk: bytes) -> bytes:
    """Return the blocks before the first one that begins with zeros: it has no record yet."""
    for start in range(0, len(chunk), BLOCK_BYTES):
        if not any(chunk[start : start + RECYCLABLE_HEADER_BYTES]):
            return chunk[:start]
    return chunk


def _strangeness(record_type: int) -> DamageKind:
    if record_type in _UNSUPPORTED:
        return DamageKind.UNSUPPORTED_TYPE
    return DamageKind.UNKNOWN_TYPE
