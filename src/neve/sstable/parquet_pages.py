"""Pages of a Parquet column chunk: their headers, and where plain values lie in them.

    chunk
    ┌────────┬──────────────────┬────────┬──────────────────┬───
    │ header │ page             │ header │ page             │ …
    └────────┴──────────────────┴────────┴──────────────────┴───

    page of a column without NULL, PLAIN, of fixed width and not compressed
    ┌───────────────────────────────────────┬──────────────────────────────┐
    │ levels of a nullable column: u32, run │ values as Arrow has them     │
    └───────────────────────────────────────┴──────────────────────────────┘

Such values are read to where they stay: nothing is decoded. Headers are Thrift structs in the
compact form, and so is the footer:

    struct   ┌ delta u4 │ type u4 ┐ value … 0x00        delta 0: the id follows, as zigzag varint
    list     ┌ count u4 │ type u4 ┐ element …           count 15: the count follows, as varint
    numbers  zigzag varints; texts: length as varint, then bytes

SSTABLE-28  A length or count that does not fit into the bytes it is read from is refused.
SSTABLE-29  Values are taken as they lie only where the bytes before them say so, byte by byte. All
    other pages are for Arrow to decode.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from neve.errors import Corruption

ReadAt: TypeAlias = Callable[[int, int], bytes]
Thrift: TypeAlias = "bool | int | bytes | float | list[Thrift] | dict[int, Thrift] | None"

# Kinds of values in Thrift's compact form.
_TRUE, _FALSE, LIST = 1, 2, 9
_NUMBERS: Final = frozenset({4, 5, 6})
_NESTING_MAX: Final = 16
_VARINT_BYTES_MAX: Final = 10
_MANY: Final = 15
# A header is a few dozen bytes, and longer where it has statistics.
_HEADER_BYTES: Final = 256
_HEADER_BYTES_MAX: Final = 16 << 20
# Fields of a page header, see parquet.thrift, and of the header of a data page inside it.
_KIND, _UNPACKED, _STORED, _DATA, _DICTIONARY, _DATA_2 = 1, 2, 3, 5, 7, 8
_VALUES, _ENCODING, _LEVELS = 1, 2, 3
_DATA_PAGE, _PLAIN, _RLE = 0, 0, 3


class TooShort(Exception):
    """The bytes end inside a value."""


@dataclass(frozen=True, slots=True)
class PageSize:
    """What the header of one page says."""

    offset: int
    stored_bytes: int
    unpacked_bytes: int
    value_count: int


def page_sizes(read_at: ReadAt, start: int, length: int) -> Iterator[PageSize]:
    """Yield the page headers of a chunk; raises Corruption if they do not fit into it."""
    at, end = start, start + length
    while at < end:
        header, size = _header(read_at, at, end)
        unpacked, stored = header.get(_UNPACKED), header.get(_STORED)
        if not isinstance(unpacked, int) or not isinstance(stored, int):
            raise Corruption("a page header has no sizes", offset=at)
        if unpacked < 0 or not 0 <= stored <= end - at - size:
            raise Corruption("a page does not fit into its column chunk", offset=at)
        yield PageSize(at, stored, unpacked, _value_count(header))
        at += size + stored


def _value_count(header: dict[int, Thrift]) -> int:
    for place in (_DATA, _DICTIONARY, _DATA_2):
        inside = header.get(place)
        count = inside.get(_VALUES) if isinstance(inside, dict) else None
        if isinstance(count, int):
            return max(0, count)
    return 0


def _header(read_at: ReadAt, at: int, end: int) -> tuple[dict[int, Thrift], int]:
    """Return one header, and how many bytes it has."""
    wanted = _HEADER_BYTES
    while True:
        content = read_at(at, min(wanted, end - at))
        thrift = ThriftReader(content)
        try:
            header = thrift.struct()
        except TooShort:
            if wanted >= min(end - at, _HEADER_BYTES_MAX):
                raise Corruption("a page header ends too early", offset=at) from None
            wanted *= 8
            continue
        except Corruption as error:
            error.offset = at
            raise
        return header, thrift.at


def plain_pieces(
    chunk: bytes, *, width: int, row_count: int, is_nullable: bool
) -> tuple[int, ...] | None:
    """Return how a chunk that is not compressed divides: bytes before values, values, and so on.

    None where values are not as Arrow has them, or where a row has none (SSTABLE-29).
    """
    pieces: list[int] = []
    at = found = 0
    try:
        while at < len(chunk):
            header, size = _header(
                lambda start, length: chunk[start : start + length], at, len(chunk)
            )
            data = header.get(_DATA)
            if header.get(_KIND) != _DATA_PAGE or not isinstance(data, dict):
                return None
            count = data.get(_VALUES)
            if data.get(_ENCODING) != _PLAIN or data.get(_LEVELS) != _RLE:
                return None
            if not isinstance(count, int) or not 0 < count <= row_count - found:
                return None
            levels = _all_there(count) if is_nullable else b""
            before, after = at + size, at + size + len(levels)
            stored = len(levels) + count * width
            if not header.get(_UNPACKED) == header.get(_STORED) == stored:
                return None
            if chunk[before:after] != levels or before + stored > len(chunk):
                return None
            pieces += [after - at, count * width]
            at, found = before + stored, found + count
    except Corruption:
        # Arrow reports what is wrong.
        return None
    return tuple(pieces) if found == row_count else None


def _all_there(count: int) -> bytes:
    """Return the levels of so many values that are all there: one run of ones."""
    run, rest = bytearray(), count << 1
    while rest > 0x7F:  # noqa: PLR2004 - more bytes follow
        run.append(rest & 0x7F | 0x80)
        rest >>= 7
    run += bytes((rest, 1))
    return len(run).to_bytes(4, "little") + run


class ThriftReader:
    """Reads values one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0
        """Where the next value begins."""

    def fields(self) -> Iterator[tuple[int, int]]:
        """Return id and kind of each field of a struct; the caller reads its value."""
        field = 0
        while head := self._byte():
            delta, kind = divmod(head, 16)
            field = field + delta if delta else self._number()
            yield field, kind

    def struct(self, depth: int = 0) -> dict[int, Thrift]:
        """Read a struct."""
        return {field: self.value(kind, depth) for field, kind in self.fields()}

    def list_head(self) -> tuple[int, int]:
        """Read how many elements a list has, and their kind."""
        count, kind = divmod(self._byte(), 16)
        if count == _MANY:
            count = self._varint()
        # SSTABLE-28: every element has at least a byte.
        if count > len(self._content) - self.at:
            raise TooShort
        return count, kind

    def value(self, kind: int, depth: int = 0) -> Thrift:
        """Read a value of a field."""
        if depth > _NESTING_MAX:
            raise Corruption("a Thrift value is nested too deeply")
        if kind in _NUMBERS:
            return self._number()
        match kind:
            case 1 | 2:
                return kind == _TRUE
            case 3:
                return self._byte()
            case 7:
                self._take(8)
                return None
            case 8:
                return self._take(self._varint())
            case 9 | 10:
                return self._list(depth)
            case 11:
                self._map(depth)
                return None
            case 12:
                return self.struct(depth + 1)
            case _:
                raise Corruption(f"a Thrift value has the unknown kind {kind}")

    def _list(self, depth: int) -> list[Thrift]:
        count, kind = self.list_head()
        if kind in {_TRUE, _FALSE}:
            return [self._byte() == _TRUE for _ in range(count)]
        return [self.value(kind, depth + 1) for _ in range(count)]

    def _map(self, depth: int) -> None:
        count = self._varint()
        if not count:
            return
        kinds = divmod(self._byte(), 16)
        if count > len(self._content) - self.at:
            raise TooShort
        for _ in range(count):
            for kind in kinds:
                self.value(kind, depth + 1)

    def _number(self) -> int:
        unsigned = self._varint()
        return (unsigned >> 1) ^ -(unsigned & 1)

    def _varint(self) -> int:
        result = 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self._byte()
            result |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:  # noqa: PLR2004 - the last byte of a number
                return result
        raise Corruption("a Thrift number is too long")

    def _byte(self) -> int:
        if self.at >= len(self._content):
            raise TooShort
        self.at += 1
        return self._content[self.at - 1]

    def _take(self, length: int) -> bytes:
        if length > len(self._content) - self.at:
            raise TooShort
        self.at += length
        return self._content[self.at - length : self.at]
