"""A log in memory that tests write, damage and read, in every dialect and with both headers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from neve.errors import Corruption
from neve.storage.memory_store import MemoryStore
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.record_format import Dialect
from neve.wal.replay import LogFile, RecoveryMode
from neve.wal.segment_reader import (
    TORN_TAIL,
    Damage,
    DamageKind,
    Record,
    SegmentEnd,
    SegmentReader,
    Stale,
)
from neve.wal.segment_writer import SegmentWriter
from tests.unit.wal.byte_walker import stored_checksum

LOG_NUMBER: Final = 7


@dataclass(frozen=True, slots=True)
class Layout:
    """A dialect with one of its two headers."""

    dialect: Dialect
    recyclable: bool

    @property
    def header(self) -> int:
        return 11 if self.recyclable else 7

    def type_byte(self, kind: int) -> int:
        return kind + 4 if self.recyclable else kind

    def __str__(self) -> str:
        return f"{self.dialect}-{'recyclable' if self.recyclable else 'standard'}"


LAYOUTS: Final = tuple(
    Layout(dialect, recyclable) for recyclable in (False, True) for dialect in Dialect
)


@dataclass(frozen=True, slots=True)
class Reading:
    """All that one pass over a log gave."""

    records: list[bytes]
    offsets: list[int]
    lost: list[tuple[int, DamageKind]]
    torn: list[tuple[int, DamageKind]]
    stale: list[int]
    end: SegmentEnd


class Bench:
    """A log in memory that is written, damaged and read."""

    def __init__(self, layout: Layout, *, log_number: int = LOG_NUMBER) -> None:
        self.layout = layout
        self.header = layout.header
        self.log_number = log_number
        self._store = MemoryStore()
        self._file = self._store.create("log")
        self.log = bytearray()
        self.reopen()

    def reopen(self) -> None:
        self._writer = SegmentWriter(
            self._file,
            log_number=self.log_number,
            dialect=self.layout.dialect,
            recyclable=self.layout.recyclable,
        )

    def write(self, *payloads: bytes) -> None:
        """Append records; damage done before stays."""
        written = self._file.position
        self._writer.append([(payload,) for payload in payloads])
        self.log += self._store.get("log").payload[written:]

    def set_type(self, kind: int, *, at: int = 0, length: int = 3) -> None:
        """Change a record's type and make its checksum right again."""
        self.log[at + 6] = kind
        recyclable = 5 <= kind <= 8
        start = at + (11 if recyclable else 7)
        crc = stored_checksum(
            self.layout.dialect,
            kind,
            self.log_number if recyclable else None,
            bytes(self.log[start : start + length]),
        )
        self.log[at : at + 4] = crc.to_bytes(4, "little")

    def shrink(self, byte_count: int) -> None:
        del self.log[len(self.log) - byte_count :]

    def read(self, *, start: int = 0, visible: int | None = None) -> Reading:
        """Read what is visible of the log from a place."""
        content = bytes(self.log[:visible])
        return self.read_with(lambda offset, length: content[offset : offset + length], start=start)

    def read_with(self, read_at: Callable[[int, int], bytes], *, start: int = 0) -> Reading:
        events = list(
            SegmentReader(
                read_at,
                dialect=self.layout.dialect,
                log_number=self.log_number,
                start_offset=start,
            )
        )
        end = events[-1]
        assert isinstance(end, SegmentEnd)
        damages = [event for event in events if isinstance(event, Damage)]
        return Reading(
            records=[event.payload for event in events if isinstance(event, Record)],
            offsets=[event.offset for event in events if isinstance(event, Record)],
            lost=[(d.dropped_bytes, d.kind) for d in damages if d.kind not in TORN_TAIL],
            torn=[(d.dropped_bytes, d.kind) for d in damages if d.kind in TORN_TAIL],
            stale=[event.log_number for event in events if isinstance(event, Stale)],
            end=end,
        )

    def refusal(self) -> Corruption:
        """What `absolute` recovery says about the log."""
        self._store.put("copy", bytes(self.log))
        replay = ForeignReplay(
            self._store,
            [LogFile(number=self.log_number, path="copy")],
            mode=RecoveryMode.ABSOLUTE,
            dialect=self.layout.dialect,
        )
        with pytest.raises(Corruption) as refusal:
            list(replay)
        return refusal.value


def repeated(text: bytes, length: int) -> bytes:
    return (text * (length // len(text) + 1))[:length]
