"""The live rows of files whose keys follow each other, group by group.

For each file, in order, and each of its row groups:

1. Leave it out when all its rows are marked.
2. Read it, drop the marked rows, and bring the others into the current schema.
3. Encode the keys, and check that they ascend, from group to group and from file to file, within
   the bounds the manifest gives the file. What does not is Corruption, and nothing is published.

Only the group that is handed on is held.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.compaction.sorted_rows import SortedRows
from neve.errors import Corruption
from neve.model.data_file import DataFile
from neve.model.key_column import KeyArray

KeepMask: TypeAlias = npt.NDArray[np.bool_]
"""For each row of a file, whether it is live."""


class RowSource(Protocol):
    """The rows of one data file, readable in stretches."""

    @property
    def group_rows(self) -> int:
        """Rows of each row group but the last."""
        ...

    def read(self, columns: Sequence[str] | None, *, start: int, stop: int) -> pa.Table:
        """Give rows [start, stop) in the file's own schema; None: all columns."""
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
    check_cancelled: Callable[[], None]
    """Raises when the work is to end; asked before each group is read."""


def live_pieces(files: Sequence[DataFile], reading: RowReading) -> Iterator[SortedRows]:
    """Give the live rows of files as pieces, never an empty one; keys ascend throughout."""
    last: bytes | None = None
    for file in files:
        for piece in _file_pieces(file, reading):
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


def _file_pieces(file: DataFile, reading: RowReading) -> Iterator[SortedRows]:
    mask = reading.mask_of(file)
    if mask is not None and len(mask) != file.row_count:
        raise Corruption(
            f"a vector is for {len(mask):,} rows, the file has {file.row_count:,}", path=file.path
        )
    source = reading.reader_of(file)
    for start in range(0, file.row_count, source.group_rows):
        stop = min(start + source.group_rows, file.row_count)
        kept = None if mask is None else mask[start:stop]
        if kept is not None and not kept.any():
            continue
        reading.check_cancelled()
        rows = source.read(None, start=start, stop=stop)
        if kept is not None and not kept.all():
            rows = rows.filter(pa.array(kept))
        rows = reading.project(rows, file)
        yield SortedRows.of(rows, reading.encode_keys(rows))
