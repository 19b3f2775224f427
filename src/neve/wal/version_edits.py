"""Version edits: the records of a RocksDB or LevelDB MANIFEST, for people to look at.

A MANIFEST is a log of the same framing. Each record is a sequence of fields:

    ┌────────────┬──────────────────────────────────┐
    │ tag varint │ as the tag says                  │ × n
    └────────────┴──────────────────────────────────┘

    1 comparator      name          10 min log to keep    number    203 max family      number
    2 log number      number        100 new file, with sequences    300 atomic group    number
    3 next file       number        102 the same, with path         400 blob file
    4 last sequence   number        103 the same, with extras       401 blob garbage
    5 compact cursor  level, key    200 column family     number    8193 database id    name
    6 deleted file    level, file   201 add family        name      8196-8200 logs kept and deleted
    7 new file                      202 drop family                 others from 8192: bytes
    9 previous log    number

A key here is a user key and eight bytes: little-endian `sequence << 8 | type`. Tags with bit 13 set
(from 8192) have a length, so that older readers can skip them; so do RocksDB's extras of a new
file, except those with bit 6 set.

WAL-53  Nothing here raises: a field that cannot be read ends the edit and is shown as bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from neve.errors import Corruption
from neve.model.varint import read_varint
from neve.wal.inspected_batch import read_prefixed

FIELDS_MAX: Final = 100_000

# Real writers have a dozen; the bound keeps a crafted edit from filling the memory.
_EXTRAS_MAX: Final = 1_000
_IGNORABLE_TAG_BIT: Final = 1 << 13
_KEY_TRAILER_BYTES: Final = 8
_EXTRAS_END: Final = 1
_BLOB_EXTRAS_END: Final = 0
_SYNCED_SIZE: Final = 2


class InternalKey(NamedTuple):
    """A key with the write it belongs to."""

    user_key: bytes
    sequence: int
    type: int


FactValue = int | bool | str | bytes | InternalKey


class Fact(NamedTuple):
    """One named number, name, key or byte string of a field."""

    name: str
    value: FactValue


class EditField(NamedTuple):
    """One field of an edit, in words."""

    tag: int
    name: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksEdit:
    """What could be read of one edit."""

    fields: tuple[EditField, ...]
    omitted_count: int
    """Fields beyond FIELDS_MAX."""
    unknown_tag: int | None
    """Unknown tag that reading stopped at."""
    problem: str | None
    """What is wrong with the bytes; None when they are a whole edit, as far as known."""


class _Cursor:
    """Walks the bytes of one edit; every step is checked and raises Corruption."""

    def __init__(self, buffer: bytes) -> None:
        self.buffer = buffer
        self.position = 0

    @property
    def at_end(self) -> bool:
        return self.position >= len(self.buffer)

    @property
    def rest(self) -> bytes:
        return self.buffer[self.position :]

    def number(self) -> int:
        value, self.position = read_varint(self.buffer, self.position)
        return value

    def prefixed(self) -> bytes:
        content, self.position = read_prefixed(self.buffer, self.position)
        return content

    def name(self) -> str:
        return self.prefixed().decode("utf-8", "backslashreplace")

    def key(self) -> InternalKey:
        content = self.prefixed()
        if len(content) < _KEY_TRAILER_BYTES:
            raise Corruption(f"a key of {len(content)} bytes has no room for its sequence")
        trailer = int.from_bytes(content[-_KEY_TRAILER_BYTES:], "little")
        return InternalKey(content[:-_KEY_TRAILER_BYTES], trailer >> 8, trailer & 0xFF)


_ReadFacts = Callable[[_Cursor], tuple[Fact, ...]]


def _number(name: str) -> _ReadFacts:
    return lambda cursor: (Fact(name, cursor.number()),)


def _name(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("name", cursor.name()),)


def _compact_cursor(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("level", cursor.number()), Fact("key", cursor.key()))


def _deleted_file(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("level", cursor.number()), Fact("file", cursor.number()))


def _new_file(cursor: _Cursor, *, with_path: bool = False) -> tuple[Fact, ...]:
    place = [Fact("level", cursor.number()), Fact("file", cursor.number())]
    if with_path:
        place.append(Fact("path", cursor.number()))
    return (
        *place,
        Fact("bytes", cursor.number()),
        Fact("smallest", cursor.key()),
        Fact("largest", cursor.key()),
    )


def _sequences(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("first_sequence", cursor.number()), Fact("last_sequence", cursor.number()))


def _new_file_with_sequences(cursor: _Cursor) -> tuple[Fact, ...]:
    return (*_new_file(cursor), *_sequences(cursor))


def _new_file_with_path(cursor: _Cursor) -> tuple[Fact, ...]:
    return (*_new_file(cursor, with_path=True), *_sequences(cursor))


def _new_file_with_extras(cursor: _Cursor) -> tuple[Fact, ...]:
    facts = _new_file_with_sequences(cursor)
    extras = (_extra(tag, cursor.prefixed()) for tag in _tags(cursor, end=_EXTRAS_END))
    return (*facts, *extras)


def _tags(cursor: _Cursor, *, end: int) -> Iterator[int]:
    """Yield the tags of extras until the one that ends them."""
    for _ in range(_EXTRAS_MAX):
        tag = cursor.number()
        if tag == end:
            return
        yield tag
    raise Corruption(f"more than {_EXTRAS_MAX:,} extras")


def _blob_file(cursor: _Cursor) -> tuple[Fact, ...]:
    facts = [
        Fact("file", cursor.number()),
        Fact("blobs", cursor.number()),
        Fact("bytes", cursor.number()),
        Fact("checksum_method", cursor.name()),
        Fact("checksum", cursor.prefixed()),
    ]
    return (*facts, *_blob_extras(cursor))


def _blob_garbage(cursor: _Cursor) -> tuple[Fact, ...]:
    facts = [
        Fact("file", cursor.number()),
        Fact("blobs", cursor.number()),
        Fact("bytes", cursor.number()),
    ]
    return (*facts, *_blob_extras(cursor))


def _blob_extras(cursor: _Cursor) -> tuple[Fact, ...]:
    tags = _tags(cursor, end=_BLOB_EXTRAS_END)
    return tuple(Fact(f"extra_{tag}", cursor.prefixed()) for tag in tags)


def _log_kept(cursor: _Cursor) -> tuple[Fact, ...]:
    facts = [Fact("log", cursor.number())]
    for tag in _tags(cursor, end=_EXTRAS_END):
        if tag != _SYNCED_SIZE:
            raise Corruption(f"unknown mark {tag} of a kept log")
        facts.append(Fact("synced_bytes", cursor.number()))
    return tuple(facts)


def _inside(read: _ReadFacts) -> _ReadFacts:
    """Read facts from a byte string with its own length; keep the bytes that are left."""

    def read_inside(cursor: _Cursor) -> tuple[Fact, ...]:
        inner = _Cursor(cursor.prefixed())
        facts = read(inner)
        return facts if inner.at_end else (*facts, Fact("rest", inner.rest))

    return read_inside


def _flag(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("value", any(cursor.prefixed())),)


def _bytes(cursor: _Cursor) -> tuple[Fact, ...]:
    return (Fact("value", cursor.prefixed()),)


def _nothing(_cursor: _Cursor) -> tuple[Fact, ...]:
    return ()


_FIELDS: Final[dict[int, tuple[str, _ReadFacts]]] = {
    1: ("comparator", _name),
    2: ("log number", _number("log")),
    3: ("next file number", _number("file")),
    4: ("last sequence", _number("sequence")),
    5: ("compact cursor", _compact_cursor),
    6: ("deleted file", _deleted_file),
    7: ("new file", _new_file),
    9: ("previous log number", _number("log")),
    10: ("minimum log number to keep", _number("log")),
    100: ("new file", _new_file_with_sequences),
    102: ("new file", _new_file_with_path),
    103: ("new file", _new_file_with_extras),
    200: ("column family", _number("family")),
    201: ("add column family", _name),
    202: ("drop column family", _nothing),
    203: ("maximum column family", _number("family")),
    300: ("atomic group", _number("edits_left")),
    400: ("new blob file", _blob_file),
    401: ("blob file garbage", _blob_garbage),
    8193: ("database id", _name),
    8194: ("new blob file", _blob_file),
    8195: ("blob file garbage", _blob_garbage),
    8196: ("log kept", _log_kept),
    8197: ("logs deleted", _number("before_log")),
    8198: ("full history timestamp", _bytes),
    8199: ("log kept", _inside(_log_kept)),
    8200: ("logs deleted", _inside(_number("before_log"))),
    8201: ("timestamps persisted", _flag),
    8202: ("compaction progress", _bytes),
    8203: ("compacted manifest bytes", _inside(_number("bytes"))),
}

_NUMBER_EXTRAS: Final = {
    4: "oldest_blob_file",
    5: "oldest_ancestor_time",
    6: "created_at",
    13: "epoch",
    14: "range_deletion_bytes",
    15: "tail_bytes",
}
_FLAG_EXTRAS: Final = {2: "needs_compaction", 16: "timestamps_persisted"}
_LITTLE_ENDIAN_EXTRAS: Final = {3: "minimum_log_to_keep", 9: "temperature", 65: "path"}
_BYTES_EXTRAS: Final = {
    7: "checksum",
    10: "minimum_timestamp",
    11: "maximum_timestamp",
    12: "unique_id",
    17: "open_metadata",
}
_CHECKSUM_METHOD: Final = 8


def _extra(tag: int, content: bytes) -> Fact:
    """Name one extra of a new file; one of an unusual form stays bytes."""
    if tag in _NUMBER_EXTRAS:
        value, end = read_varint(content, 0)
        if end == len(content):
            return Fact(_NUMBER_EXTRAS[tag], value)
    elif tag in _FLAG_EXTRAS:
        return Fact(_FLAG_EXTRAS[tag], any(content))
    elif tag in _LITTLE_ENDIAN_EXTRAS:
        return Fact(_LITTLE_ENDIAN_EXTRAS[tag], int.from_bytes(content[:8], "little"))
    elif tag in _BYTES_EXTRAS:
        return Fact(_BYTES_EXTRAS[tag], content)
    elif tag == _CHECKSUM_METHOD:
        return Fact("checksum_method", content.decode("utf-8", "backslashreplace"))
    return Fact(f"extra_{tag}", content)


def read_version_edit(payload: bytes) -> RocksEdit:
    """Read as much of an edit as possible; a problem is reported, not raised."""
    cursor = _Cursor(payload)
    fields: list[EditField] = []
    walked = 0
    unknown_tag: int | None = None
    problem: str | None = None
    while not cursor.at_end:  # ends: every field takes at least its tag
        began_at = cursor.position
        tag, name = 0, "field"
        try:
            tag = cursor.number()
            if tag not in _FIELDS and not tag & _IGNORABLE_TAG_BIT:
                fields.append(EditField(tag, "unknown", (Fact("rest", cursor.rest),)))
                unknown_tag = tag
                break
            name, read = _FIELDS.get(tag, ("unknown", _bytes))
            field = EditField(tag, name, read(cursor))
        except Corruption as error:
            problem = f"{name} at byte {began_at} of the edit: {error.message}"
            fields.append(EditField(tag, "unreadable", (Fact("rest", payload[began_at:]),)))
            break
        walked += 1
        if len(fields) < FIELDS_MAX:
            fields.append(field)
    return RocksEdit(
        fields=tuple(fields),
        omitted_count=max(0, walked - FIELDS_MAX),
        unknown_tag=unknown_tag,
        problem=problem,
    )
