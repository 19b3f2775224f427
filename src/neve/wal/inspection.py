"""A log taken apart for people: what it is, its blocks, its records, and where reading ends.

Three views of one file, each read again and streamed:

    identity   checksum dialect, kind of header, log number
    blocks     every byte of the file as a part of some block (`neve.wal.inspection`)
    records    whole logical records with their batches or version edits, damage between them, and
               last of all the Ending (`neve.wal.log_ending`)

I1  Nothing here raises for what is in the file; what cannot be read is shown as it is.
I2  Memory is bounded by one read of the file and one logical record.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from neve.errors import LimitExceeded, Unavailable
from neve.wal.durability import claims_after
from neve.wal.inspected_batch import InspectedBatch, inspect_batch
from neve.wal.inspection import Block, EmptyBlocks, read_blocks, read_header
from neve.wal.log_ending import Ending, EndingJudge, LogIdentity
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECYCLABLE_HEADER_BYTES,
    Dialect,
    RecordType,
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
)
from neve.wal.version_edits import VersionEdit, read_version_edit

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
    """Where one physical record of a logical one is."""

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
    """One whole record, with what it holds."""

    offset: int
    fragments: tuple[FragmentPlace, ...]
    payload: bytes
    content: InspectedBatch | VersionEdit
    behind_end: bool
    """Whether recovery stops before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedDamage:
    """Bytes of the log that are no record."""

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
        """Without a log number, the first readable record tells it."""
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
        """Return the kind that the first record holds when it is not the one looked for.

        None where it is, or where nothing is certain.
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
        content: InspectedBatch | VersionEdit
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
            # A damaged header may have told a wrong number.
            reader.log_number = log_number
    return _identify_by_claims(read_at, log_number) or LogIdentity(
        dialect=reader.dialect, recyclable=None, log_number=log_number
    )


def _identify_by_claims(read_at: ReadAt, log_number: int | None) -> LogIdentity | None:
    """Know a log of neve's whose every block is damaged by the whole records inside them."""
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
    """Remembers the fragments of the record that is being put together."""

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
