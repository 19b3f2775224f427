"""SlotDirectory: the slots of a log in an object store; creating the next slot is the sync.

A directory of append files is one sequence of numbered slots. Each sync creates the next slot, if
it is absent, with everything appended since the last one:

    wal/7/000000000001.slot  ┐
    wal/7/000000000002.slot  ├─ read together they are wal/7/000001.wal, wal/7/000002.wal, …
    wal/7/000000000003.slot  ┘

    slot
    ┌────────┬───────────┬─────────┬─────────────┬──────────┬────────────┬────────────┐
    │ "NVSL" │ format u8 │ kind u8 │ writer 16 B │ slot u64 │ landed u64 │ pieces u16 │ ─┐
    └────────┴───────────┴─────────┴─────────────┴──────────┴────────────┴────────────┘  │
      ┌──────────────────────────────────────────────────────────────────────────────────┘
      │ ┌───────────────────────────────────────────────────┬─────────┬────────────┐
      └►│ pieces × { name u8+text, offset u64, length u32 } │ bytes … │ crc32c u32 │
        └───────────────────────────────────────────────────┴─────────┴────────────┘

    kind 1  pieces of files: at `offset` of the file `name` there are `length` bytes
    kind 2  end, without pieces: its writer has closed the directory
    kind 3  fence, without pieces and with 8 bytes more: the number of the directory that ended this
    landed  this slot and all before it existed when the slot was begun

What no slot holds reads as zeros. So a lost slot looks like a hole in a preallocated file, and the
reader of the log decides what it means, as after a power cut. The size of an object alone says
whether it is an end or a fence, so a listing needs no reads to find them.

STORAGE-40  A sync returns only when its slot and all slots before it exist. So a writer that finds
            another's slot acknowledges neither that slot nor any after it, ever.
STORAGE-41  The newest slot of an open directory, and the slots before it that it does not call
            landed, are never deleted: a new writer finds the places to fence.
STORAGE-42  A slot whose answer was lost is read back. Its bytes carry the writer's id, so no other
            writer's slot is taken for its own.
"""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from threading import Event, Lock
from typing import Final
from uuid import UUID

import google_crc32c

from neve.errors import Corruption, Fenced, NotFound, OutcomeUnknown, Phrase, Unavailable, Wording
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import join_path, slot_name, slot_number

_MAGIC: Final = b"NVSL"  # on disk: never change
_FORMAT: Final = 1  # on disk: never change, only add
_HEADER: Final = struct.Struct("<4sBB16sQQH")
_PIECE: Final = struct.Struct("<QI")
_NUMBER: Final = struct.Struct("<Q")
_CHECKSUM: Final = struct.Struct("<I")
END_BYTES: Final = 44  # on disk: never change; a slot with pieces is larger than both
FENCE_BYTES: Final = 52  # on disk: never change
assert _HEADER.size + _CHECKSUM.size == END_BYTES
assert _HEADER.size + _NUMBER.size + _CHECKSUM.size == FENCE_BYTES
# A name of one byte and one byte of the file.
assert END_BYTES + 1 + 1 + _PIECE.size + 1 > FENCE_BYTES


class SlotKind(IntEnum):
    """What a slot is; on disk."""

    PIECES = 1
    END = 2
    FENCE = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive bytes of one file, and where they are in the slot."""

    name: str
    offset: int
    length: int
    start: int

    @property
    def end(self) -> int:
        """Offset in the file after the last byte."""
        return self.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """What one slot says."""

    kind: SlotKind
    landed: int = 0
    pieces: tuple[Piece, ...] = ()


def encode_slot(
    writer: UUID,
    number: int,
    pieces: Sequence[tuple[str, int, bytes]] = (),
    *,
    kind: SlotKind = SlotKind.PIECES,
    landed: int = 0,
    fenced_by: int = 0,
) -> bytes:
    """Return the bytes of a slot; a piece is the file's name, the offset in it, and its bytes."""
    parts = [_HEADER.pack(_MAGIC, _FORMAT, kind, writer.bytes, number, landed, len(pieces))]
    for name, offset, content in pieces:
        text = name.encode()
        parts += [bytes([len(text)]), text, _PIECE.pack(offset, len(content))]
    parts += [content for _, _, content in pieces]
    if kind is SlotKind.FENCE:
        parts.append(_NUMBER.pack(fenced_by))
    payload = b"".join(parts)
    return payload + _CHECKSUM.pack(google_crc32c.value(payload))


def decode_slot(payload: bytes, *, path: str) -> Slot:
    """Read a slot; raises Corruption."""
    body = len(payload) - _CHECKSUM.size
    if body < _HEADER.size or payload[: len(_MAGIC)] != _MAGIC:
        raise Corruption("this is not a slot of a log", path=path)
    if google_crc32c.value(payload[:body]) != _CHECKSUM.unpack_from(payload, body)[0]:
        raise Corruption("a slot of the log is damaged", path=path)
    _, slot_format, kind, _, number, landed, count = _HEADER.unpack_from(payload)
    if slot_format != _FORMAT:
        raise Corruption(
            f"slot format {slot_format} is newer than this neve reads ({_FORMAT})",
            path=path,
            hint="Open the table with the neve that wrote it, or a newer one",
        )
    if number != slot_number(path):
        raise Corruption(f"this was slot {number}, and was renamed", path=path)
    try:
        return Slot(kind=SlotKind(kind), landed=landed, pieces=_decode_pieces(payload, count))
    except (ValueError, IndexError, struct.error) as error:
        raise Corruption("a slot of the log was not written by neve", path=path) from error


def _decode_pieces(payload: bytes, count: int) -> tuple[Piece, ...]:
    at = _HEADER.size
    heads = []
    for _ in range(count):
        name_end = at + 1 + payload[at]
        offset, length = _PIECE.unpack_from(payload, name_end)
        heads.append((payload[at + 1 : name_end].decode(), offset, length))
        at = name_end + _PIECE.size
    pieces = []
    for name, offset, length in heads:
        pieces.append(Piece(name, offset, length, at))
        at += length
    if at + _CHECKSUM.size > len(payload):
        raise ValueError
    return tuple(pieces)


class _Flight:
    """One slot that is being created; it lands after all slots before it."""

    def __init__(self, before: "_Flight | None") -> None:
        self.before = before
        self.landed = Event()
        self.failure: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Append:
    """Bytes appended to a file that no slot has yet."""

    name: str
    offset: int
    content: bytes


class SlotDirectory:
    """The slots of one directory, as far as they are known, and what is to be in the next one."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        # Fixed at construction.
        self._store = store
        self.path = path
        # Guarded by _lock.
        self._lock = Lock()
        self._slots: dict[int, Slot] = {}
        # Only for the writer of the directory.
        self._writer: UUID | None = None
        self._names: set[str] = set()
        self._pending: list[Append] = []
        self._last: _Flight | None = None
        self._next = 1
        self._landed = 0

    # Reading

    @property
    def is_own(self) -> bool:
        """Whether this process writes the directory; then it knows all slots."""
        return self._writer is not None

    def slots(self) -> dict[int, Slot]:
        """Return the known slots by number."""
        with self._lock:
            return dict(self._slots)

    def learn(self, found: Mapping[int, Slot], *, gone: Collection[int] = ()) -> None:
        """Add slots that were read, and forget those that are not there any more."""
        with self._lock:
            self._slots |= found
            for number in gone:
                self._slots.pop(number, None)

    def names(self) -> set[str]:
        """Return the names of all files."""
        with self._lock:
            names = {piece.name for slot in self._slots.values() for piece in slot.pieces}
            return names & self._names if self.is_own else names

    def pieces_of(self, name: str) -> tuple[list[tuple[Piece, int]], list[Append]]:
        """Return where the bytes of a file are: pieces with their slot, and what no slot has."""
        with self._lock:
            placed = [
                (piece, number)
                for number, slot in sorted(self._slots.items())
                for piece in slot.pieces
                if piece.name == name
            ]
            return placed, [each for each in self._pending if each.name == name]

    # Writing

    def begin_writing(self, writer: UUID) -> None:
        """Begin after the slots that are there."""
        with self._lock:
            if self._writer is None:
                self._names = {piece.name for slot in self._slots.values() for piece in slot.pieces}
                self._landed = max(self._slots, default=0)
                self._next = self._landed + 1
                self._writer = writer

    def begin_file(self, name: str) -> bool:
        """Take the name of a new file; False when it is taken."""
        with self._lock:
            is_free = name not in self._names
            self._names.add(name)
            return is_free

    def begun_names(self) -> set[str]:
        """Return the files that were begun here, with or without a slot."""
        with self._lock:
            return set(self._names)

    def append(self, name: str, offset: int, content: bytes) -> None:
        """Keep bytes of a file for the next slot."""
        with self._lock:
            self._pending.append(Append(name, offset, content))

    def begin_slot(self) -> Callable[[], None]:
        """Take the next slot for what is kept; the function returned creates it, and waits."""
        with self._lock:
            pieces, self._pending = _joined(self._pending), []
            self._last = flight = _Flight(self._last)
            if not pieces:
                return partial(self._land, flight, 0, b"")
            number, self._next = self._next, self._next + 1
            assert self._writer is not None
            payload = encode_slot(self._writer, number, pieces, landed=self._landed)
        return partial(self._land, flight, number, payload)

    def _land(self, flight: _Flight, number: int, payload: bytes) -> None:
        """Create a slot, and return when all slots before it have landed too (STORAGE-40)."""
        try:
            try:
                if number:
                    self._create(number, payload)
            finally:
                if flight.before is not None:
                    flight.before.landed.wait()
            path = slot_path(self.path, number)
            _refuse_after(None if flight.before is None else flight.before.failure, path=path)
            if number:
                slot = decode_slot(payload, path=path)
                with self._lock:
                    self._slots[number] = slot
                    self._landed = number
        except BaseException as error:
            flight.failure = error
            raise
        finally:
            flight.before = None
            flight.landed.set()

    def _create(self, number: int, payload: bytes) -> None:
        path = slot_path(self.path, number)
        try:
            is_created = self._store.put_if_absent(path, payload) is not None
        except OutcomeUnknown as unknown:
            try:
                is_created = self._store.get(path).payload == payload
            except NotFound:
                raise unknown from None  # it may come yet
        if not is_created:
            raise Fenced(
                "another writer has taken over the log", path=path, hint=Wording(Phrase.OPEN_AGAIN)
            )

    def end_writing(self) -> None:
        """Create an end in the next slot, unless a sync failed; the directory is another's then."""
        with self._lock:
            number, writer, last = self._next, self._writer, self._last
            is_due = bool(self._slots) and (last is None or last.failure is None)
            self._writer = None
            self._names, self._pending = set(), []
        if writer is not None and is_due:
            payload = encode_slot(writer, number, kind=SlotKind.END)
            self._store.put_if_absent(slot_path(self.path, number), payload)
            self.learn({number: Slot(kind=SlotKind.END)})

    def drop(self, name: str) -> list[int]:
        """Forget a file; return the slots that nothing needs any more (STORAGE-41)."""
        with self._lock:
            self._names.discard(name)
            self._pending = [each for each in self._pending if each.name != name]
            names = {piece.name for slot in self._slots.values() for piece in slot.pieces}
            kept = self._names if self.is_own else names - {name}
            newest = max(self._slots, default=0)
            is_open = newest and self._slots[newest].kind is SlotKind.PIECES
            below = min(self._slots[newest].landed + 1, newest) if is_open else newest + 1
            unneeded = [
                number
                for number, slot in self._slots.items()
                if number < below
                and slot.pieces
                and not any(piece.name in kept for piece in slot.pieces)
            ]
            for number in unneeded:
                del self._slots[number]
            return unneeded


def _joined(appends: Sequence[Append]) -> list[tuple[str, int, bytes]]:
    """Join consecutive appends to the same file."""
    joined: list[tuple[str, int, list[bytes]]] = []
    for each in appends:
        if joined and joined[-1][0] == each.name:
            joined[-1][2].append(each.content)
        else:
            joined.append((each.name, each.offset, [each.content]))
    pieces = [(name, offset, b"".join(contents)) for name, offset, contents in joined]
    return [piece for piece in pieces if piece[2]]


def _refuse_after(failure: BaseException | None, *, path: str) -> None:
    """Raise when the slot before failed; the error is a new one, for another thread."""
    if isinstance(failure, Fenced):
        raise Fenced(failure.message, path=failure.path, hint=failure.hint)
    if failure is not None:
        raise Unavailable(f"the sync before this one failed ({failure})", path=path)


def slot_path(directory: str, number: int) -> str:
    """Return the path of a slot."""
    return join_path(directory, slot_name(number))
