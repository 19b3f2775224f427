"""Batches of a Parquet file in little memory, whatever its pages hold.

INSPECT-1  Before a row group is decoded, its page headers show how large its pages become, and how
           many values they hold; more than the budget is LimitExceeded.
INSPECT-2  Columns are decoded together only while their pages fit into memory together, unless the
           caller needs whole rows.
INSPECT-3  The size of rows is known only when they are decoded: a page of a few bytes may refer to
           one long text a million times. If a batch does not fit into memory, the rest of its
           group is read again in smaller batches.
INSPECT-5  A footer is read only up to its first row group: every group has the same columns.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, InvalidArgument, LimitExceeded
from neve.model.display import shown
from neve.sstable.data_file_footer import ChunkPlaces, chunk_places
from neve.sstable.parquet_pages import (
    LIST,
    PageSize,
    ReadAt,
    Thrift,
    ThriftReader,
    TooShort,
    page_sizes,
)

_TRAILER_BYTES: Final = 8
_ENCRYPTED: Final = b"PARE"
_NO_KEYS: Final = "neve has no keys: decrypt it with the program that wrote it"
_NAMED_MAX: Final = 5
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
    thrift = ThriftReader(footer)
    try:
        for field, kind in thrift.fields():
            if field != _ROW_GROUPS or kind != LIST:
                thrift.value(kind)
                continue
            count, element = thrift.list_head()
            group = thrift.value(element) if count else None
            return _encrypted_in(group)
    except (TooShort, Corruption):
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
