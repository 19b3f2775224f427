"""Batches of a Parquet file in little memory, whatever its pages hold.

B1  Before a row group is decoded, its page headers say how large its pages become, and how many
    values they hold; what is beyond the budget is LimitExceeded.
B2  Columns are decoded together only while their pages fit into memory together, where the caller
    does not need whole rows.
B3  How large rows become is known only when they are decoded: a page of some bytes may name one
    long text a million times. Where a batch does not fit into memory, the rest of its group is
    read again in smaller ones.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from neve.errors import Corruption, LimitExceeded
from neve.inspect.parquet_batches import PageSize, ReadAt, page_sizes
from neve.model.display import shown
from neve.sstable.data_file_footer import ChunkPlaces, chunk_places

# Rows of a batch become fewer by this factor while they do not fit into memory.
_FEWER: Final = 64
# Of the memory, a page as it is stored and as it is decoded may take this part.
_PAGE_PART: Final = 2
# A file may become so many times as large, and always as large as some memory.
_UNPACKED_TIMES: Final = 1_000
_UNPACKED_MEMORIES: Final = 4
STREAM_BYTES: Final = 1 << 16
"""Chunks are read so many bytes at a time, not whole."""
LIMIT_HINT: Final = "Raise the limit if you trust the file: --memory-limit 2GiB"


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
        """Return the leaf columns of a group in bundles that fit into memory together (B1, B2)."""
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
        # A path that is there twice stands for both.
        return [[*dict.fromkeys(bundle)] for bundle in bundles if bundle]

    def _largest(self, group: int, at: int, path: str) -> int:
        """Return the memory that the largest page of a chunk takes; raises LimitExceeded."""
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
            # Arrow knows the mistakes of old writers, and says better what is wrong.
            return


def parquet_batches(
    file: pq.ParquetFile,
    *,
    group: int,
    batch_rows: int,
    tell: Callable[[], None],
    columns: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Return the rows of a row group (B3); `tell` is called before each batch.

    Raises ArrowMemoryError where not even a row fits into memory.
    """
    given, rows = 0, batch_rows
    while True:
        try:
            for batch in _rest(file, group, columns, rows=rows, given=given):
                tell()
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
    """Return the rows of a group but for the first ones."""
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
