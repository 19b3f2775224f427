"""The rows that one side of a commit has and the other has not, by key.

1. Of each file, find the positions: by the vectors of both sides, or all live rows of a file that
   the other side lacks.
2. Cut them into pieces, one for each row group that has any; other groups are not read. Small
   pieces of a file are joined to blocks.
3. Merge the blocks of all files by key, as an ordered scan does (see `neve.read.ordered_rows`).

Rows come in the schema of the feed, whatever schema their file was written with.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.model.data_file import DataFile
from neve.read.change_plan import ChangedFile
from neve.read.file_set import FileAccess
from neve.read.memory_rows import keys_of
from neve.read.ordered_rows import Block, LoadBlock, Source, ordered_rows
from neve.read.read_context import ReadContext
from neve.read.row_keys import Flags, RowKeys, SortKey
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import positions_in

_FEW: Final = 8
# Rows of a file that are held at once, unless a single group has more.
_BLOCK_ROWS: Final = 65_536

Check = Callable[[], None]
"""Raises when the files may be gone, or the table was closed."""


class ChangeRows:
    """Reads changed rows of files in one schema; for one thread."""

    def __init__(self, access: FileAccess, context: ReadContext, check: Check) -> None:
        self._access = access
        self._check = check
        self.context = context

    def by_key(self, changed: Iterable[ChangedFile]) -> Generator[pa.Table, None, None]:
        """Give the changed rows of one side of a commit, ascending by key; no table is empty."""
        by_run: dict[tuple[object, ...], list[ChangedFile]] = {}
        for each in changed:
            file = each.file
            # Files of level 0 may overlap; those above do not within their partition.
            part = file.path if file.level == 0 else (file.spec_id, file.partition)
            by_run.setdefault((file.level, part), []).append(each)
        for members in by_run.values():
            members.sort(key=lambda each: each.file.key_min)
        runs = [[self._source(each) for each in members] for members in by_run.values()]
        return ordered_rows(runs, descending=False, limit=None)

    def keys(self, rows: pa.Table) -> RowKeys:
        """Give the keys of rows."""
        encoder = self.context.encoder
        encoded = encoder.encode_arrays([rows.column(name) for name in encoder.names])
        return keys_of(encoded, self.context.words)

    def _source(self, changed: ChangedFile) -> Source:
        words = self.context.words
        nearest: SortKey = changed.file.key_min
        if words.is_exact:
            nearest = words.word(changed.file.key_min)
        return nearest, partial(self._pieces, changed)

    def _pieces(self, changed: ChangedFile) -> Iterator[LoadBlock]:
        self._check()
        flags = self._flags(changed)
        if flags is not None and not flags.any():
            return
        reader = self._access.reader(changed.file)
        pieces: list[_Piece] = []
        row_count = 0
        # As many turns as the file has groups.
        for start, stop in pairwise(reader.group_starts):
            chosen = np.ones(stop - start, np.bool_) if flags is None else flags[start:stop]
            count = int(np.count_nonzero(chosen))
            if pieces and row_count + count > _BLOCK_ROWS:
                yield partial(self._load, reader, pieces)
                pieces, row_count = [], 0
            if count:
                pieces.append(_Piece(start, stop, chosen, count))
                row_count += count
        if pieces:
            yield partial(self._load, reader, pieces)

    def _flags(self, changed: ChangedFile) -> Flags | None:
        """One flag per row of the file, true for those that changed; None: all of them did."""
        file, other = changed.file, changed.without
        if other is None:
            return self._access.keep_mask(file)
        gone = self._marked(other) - self._marked(file)
        flags = np.zeros(file.row_count, np.bool_)
        flags[positions_in(gone)] = True
        return flags

    def _marked(self, file: DataFile) -> BitMap64:
        return self._access.marked(file) or BitMap64()

    def _load(self, reader: DataFileReader, pieces: Sequence["_Piece"]) -> Block:
        mapping = self.context.mapping_from(reader.file.schema_id)
        names = self.context.schema.arrow_schema.names
        sources = mapping.source_names(names)
        tables: list[pa.Table] = []
        for piece in pieces:
            self._check()
            tables.append(piece.chosen_of(reader.read(sources, start=piece.start, stop=piece.stop)))
        rows = mapping.table(pa.concat_tables(tables), names)
        return rows, self.keys(rows)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of one row group."""

    start: int
    stop: int
    chosen: Flags
    count: int

    def chosen_of(self, rows: pa.Table) -> pa.Table:
        """Give those of the group's rows that are chosen."""
        if self.count == rows.num_rows:
            return rows
        # Few of many are picked, and most of them filtered: each is the faster way.
        if self.count * _FEW < rows.num_rows:
            return rows.take(np.flatnonzero(self.chosen))
        return rows.filter(pa.array(self.chosen))
