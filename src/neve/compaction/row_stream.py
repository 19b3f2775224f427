"""The live rows of files whose keys follow each other, group by group, all or of one key range.

For each file, in order, and each of its row groups that holds keys of the range:

1. Leave it out when all its rows are marked.
2. Read it, drop the marked rows, and bring the others into the current schema; where row lineage
   is kept, with the columns of `neve.model.row_lineage` after the user's.
3. Encode the keys, and check that they ascend, from group to group and from file to file, within
   the bounds the manifest gives the file. What does not is Corruption, and nothing is published.

Only the group that is handed on is held.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.compaction.sorted_rows import SortedRows
from neve.errors import Corruption
from neve.keys.columns import KeyArray
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile
from neve.model.row_lineage import lineage_of, with_lineage

KeepMask: TypeAlias = npt.NDArray[np.bool_]
"""For each row of a file, whether it is live."""


class RowSource(Protocol):
    """The rows of one data file, readable in stretches."""

    @property
    def group_rows(self) -> int:
        """Rows of each row group but the last."""
        ...

    def read(self, columns: Sequence[str] | None, *, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop) in the file's own schema; None: all columns."""
        ...

    def stored_lineage(self, *, start: int, stop: int) -> pa.Table | None:
        """Return the columns of row lineage of rows [start, stop); None when there are none."""
        ...

    def key_bound(self, key: bytes, *, side: Literal["left"]) -> int:
        """Return the position of the first row whose key is not below `key`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReading:
    """How the files of a rewrite are read."""

    reader_of: Callable[[DataFile], RowSource]
    mask_of: Callable[[DataFile], KeepMask | None]
    """Live rows by the vector that the given file facts name; None: all."""
    project: Callable[[pa.Table, DataFile], pa.Table]
    """Rows of a file in the current schema."""
    encode_keys: Callable[[pa.Table], KeyArray]
    """Keys of rows in the current schema."""
    keeps_lineage: bool
    check_cancelled: Callable[[], None]
    """Raises when the work is to end; asked before each group is read."""


def live_pieces(
    files: Sequence[DataFile], reading: RowReading, key_range: KeyRange
) -> Iterator[SortedRows]:
    """Yield the live rows of files as pieces, never an empty one; keys ascend throughout."""
    last: bytes | None = None
    for file in files:
        for piece in _file_pieces(file, reading, key_range):
            if not piece.ascends() or (last is not None and piece.first <= last):
                raise Corruption(
                    "rows are not in the order of their keys",
                    path=file.path,
                    hint="Restore the file from a copy, or roll the table back",
                )
            last = piece.last
            if piece.first < file.key_min or last > file.key_max:
                raise Corruption(
                    "rows lie outside the key bounds of their file",
                    path=file.path,
                    hint="Restore the file from a copy, or roll the table back",
                )
            yield piece


def _file_pieces(file: DataFile, reading: RowReading, key_range: KeyRange) -> Iterator[SortedRows]:
    mask = reading.mask_of(file)
    if mask is not None and len(mask) != file.row_count:
        raise Corruption(
            f"a vector is for {len(mask):,} rows, the file has {file.row_count:,}", path=file.path
        )
    source = reading.reader_of(file)
    first, end = _rows_within(file, source, key_range)
    rows_max = source.group_rows
    for group_start in range(first - first % rows_max, end, rows_max):
        start, stop = max(group_start, first), min(group_start + rows_max, end)
        kept = None if mask is None else mask[start:stop]
        if kept is not None and not kept.any():
            continue
        reading.check_cancelled()
        rows = source.read(None, start=start, stop=stop)
        lineage: pa.Table | None = None
        if reading.keeps_lineage:
            stored = source.stored_lineage(start=start, stop=stop)
            lineage = lineage_of(file, stored, start=start, stop=stop)
        if kept is not None and not kept.all():
            flags = pa.array(kept)
            rows = rows.filter(flags)
            lineage = None if lineage is None else lineage.filter(flags)
        rows = reading.project(rows, file)
        keys = reading.encode_keys(rows)
        yield SortedRows.of(rows if lineage is None else _joined(rows, lineage), keys)


def _joined(rows: pa.Table, lineage: pa.Table) -> pa.Table:
    return pa.Table.from_arrays([*rows.columns, *lineage.columns], schema=with_lineage(rows.schema))


def _rows_within(file: DataFile, source: RowSource, key_range: KeyRange) -> tuple[int, int]:
    """Return the positions where the keys of a range begin and end; looked up only where needed."""
    first, end = 0, file.row_count
    if key_range.start is not None and file.key_min < key_range.start:
        first = source.key_bound(key_range.start, side="left")
    if key_range.end is not None and file.key_max >= key_range.end:
        end = source.key_bound(key_range.end, side="left")
    return first, end
