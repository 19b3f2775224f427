"""LogMark: how far a table's newest log went, kept outside of the log.

A log cannot say that its end was cut off, or that it is gone. So its writer keeps one small object
beside the logs, which is replaced as a whole:

    ┌────────┬───────────┬───────────┬────────────┬───────────┬────────────────┐
    │ "NVLM" │ format u8 │ closed u8 │ table 16 B │ epoch u64 │ log number u64 │ ─┐
    └────────┴───────────┴───────────┴────────────┴───────────┴────────────────┘  │
      ┌───────────────────────────────────────────────────────────────────────────┘
      │ ┌────────────────┬───────────────────┬───────────┬────────────────┬────────────┐
      └►│ first row u64  │ next row u64      │ nonce u64 │ owned from u64 │ crc32c u32 │
        └────────────────┴───────────────────┴───────────┴────────────────┴────────────┘

    table, epoch, log number    the log that was being written
    first row, nonce            where that log begins, and the nonce of its records
    next row                    every row below it was durable when the mark was written
    closed                      1: the log was closed in good order, and no row follows
    owned from                  logs of this number and above name their table in LogStart

It is written when a writer has begun its first log, at the first sync of every later log before a
row of it is acknowledged, and when the log is closed. It never runs ahead of the log: what it says
was synced before.

K1  A mark promises only what is durable in the logs or in data files.
K2  A log that the mark names and that the floor has not passed is there, begins as the mark says,
    and holds every row below the next one.
"""

import struct
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import google_crc32c

from neve.errors import Corruption, Phrase, Wording

_MAGIC: Final = b"NVLM"  # on disk: never change
_FORMAT: Final = 1  # on disk: never change, only add
_LAYOUT: Final = struct.Struct("<4sBB16sQQQQQQ")
_CHECKSUM: Final = struct.Struct("<I")
MARK_BYTES: Final = 74  # on disk: never change
assert _LAYOUT.size + _CHECKSUM.size == MARK_BYTES

_HINT: Final = Wording(
    Phrase.SALVAGE_LOG,
    what="it",
    mode="'skip_corrupt', which keeps what can be read and writes another mark",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOwner:
    """Whose logs a writer writes, and where their mark is."""

    table: UUID
    epoch: int
    mark_path: str
    owned_from: int | None = None
    """Lowest log number known to name its table; None when the writer's own first log is that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMark:
    """What is known about a log without reading it."""

    table: UUID
    epoch: int
    log_number: int
    first_sequence: int
    next_sequence: int
    nonce: int
    owned_from: int
    is_closed: bool = False

    def encode(self) -> bytes:
        """Bytes of the mark."""
        payload = _LAYOUT.pack(
            _MAGIC,
            _FORMAT,
            self.is_closed,
            self.table.bytes,
            self.epoch,
            self.log_number,
            self.first_sequence,
            self.next_sequence,
            self.nonce,
            self.owned_from,
        )
        return payload + _CHECKSUM.pack(google_crc32c.value(payload))

    @classmethod
    def decode(cls, payload: bytes, *, path: str) -> "LogMark":
        """Read a mark; raises Corruption."""
        if len(payload) != MARK_BYTES or payload[: len(_MAGIC)] != _MAGIC:
            raise Corruption("this is not the mark of a log", path=path, hint=_HINT)
        (stored,) = _CHECKSUM.unpack_from(payload, _LAYOUT.size)
        if google_crc32c.value(payload[: _LAYOUT.size]) != stored:
            raise Corruption("the mark of the log is damaged", path=path, hint=_HINT)
        _, mark_format, closed, table, epoch, number, first, following, nonce, owned_from = (
            _LAYOUT.unpack_from(payload)
        )
        if mark_format != _FORMAT:
            raise Corruption(
                f"mark format {mark_format} is newer than this neve reads ({_FORMAT})",
                path=path,
                hint="open the table with the neve that wrote it, or a newer one",
            )
        return cls(
            table=UUID(bytes=table),
            epoch=epoch,
            log_number=number,
            first_sequence=first,
            next_sequence=following,
            nonce=nonce,
            owned_from=owned_from,
            is_closed=closed == 1,
        )

    def missing_rows(self, *, due: int) -> str | None:
        """Say which rows are missing when `due` is the first that cannot be read; None if none."""
        count = self.next_sequence - due
        if count > 0:
            known = f"rows {due:,} to {self.next_sequence - 1:,} are missing ({count:,} in all)"
            return known if self.is_closed else f"{known}, and rows after them may be"
        return None if self.is_closed else f"rows from {due:,} on may be missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLog:
    """The mark of a table, and the path of the log it names."""

    mark: LogMark
    path: str
