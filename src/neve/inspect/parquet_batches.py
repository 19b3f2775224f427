"""Batches of a Parquet file in little memory, whatever its pages hold.

INSPECT-1  Before a row group is decoded, its page headers show how large its pages become, and how
           many values they hold; more than the budget is LimitExceeded.
INSPECT-2  Columns are decoded together only while their pages fit into memory together, unless the
           caller needs whole rows.
INSPECT-3  The size of rows is known only when they are decoded: a page of a few bytes may refer to
           one long text a million times. If a batch does not fit into memory, the rest of its
           group is read again in smaller batches.

Page headers and the footer are Thrift structs in the compact form:

    struct   ┌ delta u4 │ type u4 ┐ value … 0x00        delta 0: the id follows, as zigzag varint
    list     ┌ count u4 │ type u4 ┐ element …           count 15: the count follows, as varint
    numbers  zigzag varints; texts: length as varint, then bytes

INSPECT-4  A length or count that does not fit into the bytes it is read from is refused.
INSPECT-5  A footer is read only up to its first row group: every group has the same columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.display import shown
from neve.sstable.data_file_footer import ChunkPlaces, chunk_places

ReadAt: TypeAlias = Callable[[int, int], bytes]
Thrift: TypeAlias = "bool | int | bytes | float | list[Thrift] | dict[int, Thrift] | None"

# Kinds of values in Thrift's compact form.
_TRUE, _FALSE, _LIST = 1, 2, 9
_NUMBERS: Final = frozenset({4, 5, 6})
_TRAILER_BYTES: Final = 8
_ENCRYPTED: Final = b"PARE"
_NO_KEYS: Final = "neve has no keys: decrypt it with the program that wrote it"
_NAMED_MAX: Final = 5
_NESTING_MAX: Final = 16
_VARINT_BYTES_MAX: Final = 10
_MANY: Final = 15
# A header is a few dozen bytes, and longer where it has statistics.
_HEADER_BYTES: Final = 256
_HEADER_BYTES_MAX: Final = 16 << 20
# A batch shrinks by this factor until its rows fit into memory.
_FEWER: Final = 64
# The share of the memory for a page, stored and decoded.
_PAGE_PART: Final = 2
# A file may grow by this factor, and always to a minimum size.
_UNPACKED_TIMES: Final = 1_000
_UNPACKED_MEMORIES: Final = 4
STREAM_BYTES: Final = 1 << 16
"""Chunks are read this many bytes at a time, not whole."""
LIMIT_HINT: Final = "Raise the limit if you trust the file: --memory-limit 2GiB"
# Fields of the footer, see parquet.thrift.
_ROW_GROUPS, _COLUMNS, _CRYPTO, _COLUMN_KEY, _PATH = 4, 1, 8, 2, 1
# Fields of a page header.
_UNPACKED, _STORED, _DATA, _DICTIONARY, _DATA_2, _VALUES = 2, 3, 5, 7, 8, 1


class _TooShort(Exception):
    """The bytes end inside a value."""


@dataclass(frozen=True, slots=True)
class PageSize:
    """What the header of one page says."""

    offset: int
    stored_bytes: int
    unpacked_bytes: int
    value_count: int


def check_not_encrypted(read_at: ReadAt, file_bytes: int, path: str) -> None:
    """Raise InvalidArgument for an encrypted file; a damaged one passes."""
    trailer = read_at(max(0, file_bytes - _TRAILER_BYTES), _TRAILER_BYTES)
    if trailer.endswith(_ENCRYPTED):
        raise InvalidArgument(f"the footer of {path} is encrypted", hint=_NO_KEYS)
    length = int.from_bytes(trailer[:4], "little")
    if length + _TRAILER_BYTES > file_bytes:
        return
    names = encrypted_columns(read_at(file_bytes - _TRAILER_BYTES - length, length))
    if names:
        listed = ", ".join(map(shown, names[:_NAMED_MAX]))
        more = f" and {len(names) - _NAMED_MAX:,} more" if names[_NAMED_MAX:] else ""
        raise InvalidArgument(f"columns of {path} are encrypted: {listed}{more}", hint=_NO_KEYS)


def encrypted_columns(footer: bytes) -> list[str]:
    """Return the encrypted columns of a file whose footer is not encrypted.

    An unreadable footer has none; reading all of it reports what is wrong.
    """
    thrift = _Compact(footer)
    try:
        for field, kind in thrift.fields():
            if field != _ROW_GROUPS or kind != _LIST:
                thrift.value(kind)
                continue
            count, element = thrift.list_head()
            group = thrift.value(element) if count else None
            return _encrypted_in(group)
    except (_TooShort, Corruption):
        return []
    return []


def _encrypted_in(group: Thrift) -> list[str]:
    columns = group.get(_COLUMNS) if isinstance(group, dict) else None
    found = []
    for column in columns if isinstance(columns, list) else ():
        crypto = column.get(_CRYPTO) if isinstance(column, dict) else None
        if not isinstance(crypto, dict):
            continue
        own_key = crypto.get(_COLUMN_KEY)
        path = own_key.get(_PATH) if isinstance(own_key, dict) else None
        parts = path if isinstance(path, list) else []
        names = [part.decode(errors="replace") for part in parts if isinstance(part, bytes)]
        found.append(".".join(names) or "a column")
    return found


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
        thrift = _Compact(content)
        try:
            header = thrift.struct()
        except _TooShort:
            if wanted >= min(end - at, _HEADER_BYTES_MAX):
                raise Corruption("a page header ends too early", offset=at) from None
            wanted *= 8
            continue
        except Corruption as error:
            error.offset = at
            raise
        return header, thrift.at


class _Compact:
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
        # INSPECT-4: every element has at least a byte.
        if count > len(self._content) - self.at:
            raise _TooShort
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
            raise _TooShort
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
            raise _TooShort
        self.at += 1
        return self._content[self.at - 1]

    def _take(self, length: int) -> bytes:
        if length > len(self._content) - self.at:
            raise _TooShort
        self.at += length
        return self._content[self.at - length : self.at]


@dataclass(slots=True)
class ParquetBudget:
    """How much memory and work a file may take, and what its page headers ask for."""

    read_at: ReadAt
    metadata: pq.FileMetaData
    file_bytes: int
    memory_bytes: int
    _places: ChunkPlaces = field(init=False)
    _unpacked: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._places = chunk_places(self.metadata)

    def bundles(self, group: int) -> list[list[str]]:
        """Return the leaf columns of a group in bundles that fit into memory together.

        See INSPECT-1 and INSPECT-2.
        """
        bundles: list[list[str]] = [[]]
        held = 0
        for at in range(self.metadata.num_columns):
            path = self.metadata.schema.column(at).path
            needed = self._largest(group, at, path)
            held += needed
            if bundles[-1] and held > self.memory_bytes // _PAGE_PART:
                bundles.append([])
                held = needed
            bundles[-1].append(path)
        # A path that occurs twice means both columns.
        return [[*dict.fromkeys(bundle)] for bundle in bundles if bundle]

    def _largest(self, group: int, at: int, path: str) -> int:
        """Return the memory that the largest page of a chunk needs; raises LimitExceeded."""
        largest = 0
        for page in self._pages(group, at):
            needed = page.stored_bytes + page.unpacked_bytes
            if needed > self.memory_bytes // _PAGE_PART:
                raise LimitExceeded(
                    f"column {shown(path)} of row group {group} has a page that unpacks to "
                    f"{page.unpacked_bytes:,} bytes",
                    limit=self.memory_bytes,
                    actual=needed,
                    offset=page.offset,
                    hint=LIMIT_HINT,
                )
            largest = max(largest, needed)
            self._unpacked += max(page.unpacked_bytes, page.value_count)
        bound = max(_UNPACKED_TIMES * self.file_bytes, _UNPACKED_MEMORIES * self.memory_bytes)
        if self._unpacked > bound:
            raise LimitExceeded(
                f"a file of {self.file_bytes:,} bytes unpacks to more than {bound:,} bytes",
                limit=bound,
                actual=self._unpacked,
                hint=LIMIT_HINT,
            )
        return largest

    def _pages(self, group: int, at: int) -> Iterator[PageSize]:
        start, length = int(self._places.starts[group, at]), int(self._places.lengths[group, at])
        if not 0 < start <= self.file_bytes or not 0 <= length <= self.file_bytes - start:
            return
        try:
            yield from page_sizes(self.read_at, start, length)
        except Corruption:
            # Arrow knows the bugs of old writers, and reports better what is wrong.
            return


def parquet_batches(
    file: pq.ParquetFile,
    *,
    group: int,
    batch_rows: int,
    report: Callable[[], None],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a row group (INSPECT-3); `report` is called before each batch.

    Raises ArrowMemoryError if not even one row fits into memory.
    """
    given, rows = 0, batch_rows
    while True:
        try:
            for batch in _rest(file, group, columns, rows=rows, given=given):
                report()
                yield batch
                given += batch.num_rows
        except pa.ArrowMemoryError:
            if rows == 1:
                raise
            rows = max(1, rows // _FEWER)
        else:
            return


def _rest(
    file: pq.ParquetFile, group: int, columns: Sequence[str] | None, *, rows: int, given: int
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a group except the first ones."""
    passed = 0
    batches = file.iter_batches(
        batch_size=rows,
        row_groups=[group],
        columns=None if columns is None else [*columns],
        use_threads=False,
    )
    for batch in batches:
        skipped = min(batch.num_rows, max(0, given - passed))
        passed += batch.num_rows
        if skipped < batch.num_rows:
            yield batch.slice(skipped)
