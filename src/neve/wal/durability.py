"""Evidence of how far a table's log was durable: the claims of its records, and the mark beside it.

Claims. Every neve batch states how far the log was durable when the batch was written
(DurableThrough). A power cut leaves damage only after that point. So if a later, whole record
claims that the damaged bytes were durable, the damage happened afterwards and acknowledged rows are
lost. Without such a record the damage is the torn tail of writes that were never acknowledged.
Damage breaks the chain of records, so the search after it tries every byte as a recyclable header
with the right log number and a matching checksum.

A file that was truncated loses such records. But its length was reserved before its first record,
and is released only after LogEnd was synced: a log that was synced, has no LogEnd and is shorter
was truncated.

The mark. A log cannot say that its end was truncated, or that it is gone. So its writer keeps one
small object beside the logs, which is replaced as a whole:

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

It is written when a writer has begun its first log, at the first sync of every later log before any
of its rows is acknowledged, and when the log is closed. It never runs ahead of the log: what it
claims was synced before.

WAL-71  A mark promises only what is durable in the logs or in data files.
WAL-72  A log that the mark names and that is not below the floor exists, begins as the mark says,
        and holds every row below `next row`.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import google_crc32c

from neve.errors import Corruption, Fenced, LimitExceeded, NotFound, Phrase, Wording
from neve.storage.bucket_log import BucketLogs
from neve.storage.object_store import ObjectStore
from neve.wal.batch_codec import read_stamp
from neve.wal.record_format import (
    BLOCK_BYTES,
    HEADER_BYTES,
    RECYCLABLE_HEADER,
    RECYCLABLE_HEADER_BYTES,
    Dialect,
    RecordType,
    record_checksum,
)
from neve.wal.segment_reader import ReadAt

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
        """Return the bytes of the mark."""
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

    def write(self, store: ObjectStore, path: str, *, tag: str | None = None) -> str:
        """Replace the mark, unless that of a later writer is there; raises Fenced.

        A lock keeps an earlier writer from coming late; in a bucket the condition does. Returns the
        tag of the mark. With the `tag` of its last one, a writer need not read it first.
        """
        payload = self.encode()
        if not isinstance(store, BucketLogs):
            return store.put(path, payload)
        written = None if tag is None else store.put_if_match(path, payload, tag=tag)
        while written is None:
            try:
                found = store.get(path)
            except NotFound:
                written = store.put_if_absent(path, payload)
                continue
            if LogMark.decode(found.payload, path=path).epoch > self.epoch:
                raise Fenced("the log of a later writer is marked", path=path)
            written = store.put_if_match(path, payload, tag=found.tag)
        return written

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
        """Describe the missing rows if `due` is the first that cannot be read; None if none is."""
        count = self.next_sequence - due
        if count > 0:
            known = f"rows {due:,} to {self.next_sequence - 1:,} are missing ({count:,} in all)"
            return known if self.is_closed else f"{known}, and rows after them may be"
        return None if self.is_closed else f"rows from {due:,} on may be missing"


class MarkWriter:
    """Writes the mark of the logs of one writer; for one thread at a time."""

    def __init__(self, store: ObjectStore, owner: LogOwner, *, first_log: int) -> None:
        self._store = store
        self._owner = owner
        self._owned_from = first_log if owner.owned_from is None else owner.owned_from
        self._tag: str | None = None

    def write(self, log_number: int, *, rows: range, nonce: int, is_closed: bool) -> None:
        """Say how far a log is durable: its rows, by sequence number."""
        mark = LogMark(
            table=self._owner.table,
            epoch=self._owner.epoch,
            log_number=log_number,
            first_sequence=rows.start,
            next_sequence=rows.stop,
            nonce=nonce,
            owned_from=self._owned_from,
            is_closed=is_closed,
        )
        tag, self._tag = self._tag, None  # not known when this fails
        self._tag = mark.write(self._store, self._owner.mark_path, tag=tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLog:
    """The mark of a table, and the path of the log it names."""

    mark: LogMark
    path: str


# Bounds the work on bytes crafted to look like headers: only false ones count.
_FORGERIES_MAX: Final = 100_000
_READ_BYTES: Final = 32 * BLOCK_BYTES
_ZEROS: Final = bytes(_READ_BYTES)
_BATCH_BEGINS: Final = (RecordType.RECYCLABLE_FULL, RecordType.RECYCLABLE_FIRST)


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableClaim:
    """The claim of a whole batch that every row up to `durable_through` was durable before it."""

    offset: int
    sequence: int
    durable_through: int
    nonce: int


def claims_after(
    read_at: ReadAt, *, from_offset: int, log_number: int, nonce: int | None
) -> Iterator[DurableClaim]:
    """Yield the claims of every whole record of this log that begins at or after `from_offset`.

    Only records with the log's nonce count; any nonce does when the log's start cannot be read.
    Raises LimitExceeded when too many bytes only look like records.
    """
    forgeries = 0
    for base, block in _written_blocks(read_at, from_offset - from_offset % BLOCK_BYTES):
        for position, payload_end in _candidates(block, log_number):
            if base + position < from_offset:
                continue
            claim = _claim_of(block, position, payload_end, log_number)
            if claim is not None and nonce in (None, claim.nonce):
                yield replace(claim, offset=base + position)
                continue
            forgeries += 1
            if forgeries > _FORGERIES_MAX:
                raise LimitExceeded(
                    "too many bytes after damage only look like records",
                    limit=_FORGERIES_MAX,
                    offset=base + position,
                    hint="it cannot be determined whether rows are lost",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRows:
    """Rows that were durable and could not be read."""

    words: str
    durable_through: int


def lost_rows(claims: Iterable[DurableClaim], *, due: int | None) -> LostRows | None:
    """Return the lost rows when `due` is the first that could not be read; None if none is.

    When nothing could be read, the lowest row that any record holds is due.
    """
    first = due
    for claim in claims:
        first = claim.sequence if first is None else first
        if due is None:
            first = min(first, claim.sequence)
        if claim.durable_through >= first:
            words = (
                f"the record at byte {claim.offset:,} shows that rows up to "
                f"{claim.durable_through:,} were durable, and rows from {first:,} cannot be read"
            )
            return LostRows(words=words, durable_through=claim.durable_through)
    return None


def cut_file(*, size: int, reserved_bytes: int, due: int) -> str | None:
    """Describe how a log without LogEnd was truncated; None if it is as long as was reserved."""
    if size >= reserved_bytes:
        return None
    return (
        f"the file has {size:,} bytes where {reserved_bytes:,} were reserved, so it was cut, and "
        f"rows from {due:,} on may be missing"
    )


def _written_blocks(read_at: ReadAt, base: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks that are not all zeros; reserved space is skipped in large steps."""
    while chunk := read_at(base, _READ_BYTES):
        if chunk != _ZEROS[: len(chunk)]:
            for start in range(0, len(chunk), BLOCK_BYTES):
                yield base + start, chunk[start : start + BLOCK_BYTES]
        base += len(chunk)


def _candidates(block: bytes, log_number: int) -> Iterator[tuple[int, int]]:
    """Yield positions that look like the header of a first fragment, with the payload's end."""
    signature = (log_number & 0xFFFFFFFF).to_bytes(4, "little")
    found = block.find(signature, HEADER_BYTES)
    while found >= 0:
        position = found - HEADER_BYTES
        _, length, record_type, _ = RECYCLABLE_HEADER.unpack_from(block, position)
        end = position + RECYCLABLE_HEADER_BYTES + length
        if record_type in _BATCH_BEGINS and end <= len(block):
            yield position, end
        found = block.find(signature, found + 1)


def _claim_of(
    block: bytes, position: int, payload_end: int, log_number: int
) -> DurableClaim | None:
    stored_crc, _, record_type, _ = RECYCLABLE_HEADER.unpack_from(block, position)
    payload = block[position + RECYCLABLE_HEADER_BYTES : payload_end]
    stamp = read_stamp(payload)
    if stamp is None:
        return None
    actual = record_checksum(
        Dialect.CRC32C, record_type=record_type, log_number=log_number, payload=payload
    )
    if actual != stored_crc:
        return None
    return DurableClaim(
        offset=position,
        sequence=int.from_bytes(payload[:8], "little"),
        durable_through=stamp.durable_through,
        nonce=stamp.nonce,
    )
