"""The rows that one side of a commit has and the other has not, as sorted runs.

1. Of each file, find the positions: by the vectors of both sides, or all live rows of a file that
   the other side lacks.
2. Cut them into pieces, one for each row group that has any; other groups are not read. Small
   pieces of a file are joined to blocks.
3. Files whose keys follow each other are one run (see `neve.keys.merge`).

Of commits that are told together, rows of a file that several of them mark are read once, and each
commit takes its own (see `neve.read.change_plan`).

Rows come in the schema of the feed, whatever schema their file was written with.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.keys.merge import Block, LoadBlock, Source
from neve.keys.order import Flags, Positions, SortKey
from neve.model.data_file import DataFile
from neve.read.change_plan import ChangedFile, CommitChanges, marked_often
from neve.read.memory_rows import keys_of
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import positions_in
from neve.table.file_set import FileAccess
from neve.table.table_context import TableContext

_FEW: Final = 8
# Rows of a file that are held at once, unless a single group has more.
_BLOCK_ROWS: Final = 65_536

Check = Callable[[], None]
"""Raises when the files may be gone, or the table was closed."""
_Placed: TypeAlias = tuple[Positions, Block]
"""Rows with their keys, and their positions, ascending."""


class ChangeRows:
    """Reads changed rows of files in one schema; for one thread."""

    def __init__(self, access: FileAccess, context: TableContext, check: Check) -> None:
        self._access = access
        self._check = check
        self.context = context
        self._often: dict[str, ChangedFile] = {}
        self._shared: dict[str, _Placed] = {}

    def tell_together(self, commits: Iterable[CommitChanges]) -> None:
        """Read what these commits have in common once, when the first of them needs it.

        What others had in common is let go.
        """
        self._often = marked_often(commits)
        self._shared = {}

    def runs(self, changed: Iterable[ChangedFile]) -> list[list[Source]]:
        """Return the changed rows of one side of a commit; the rows of a run ascend by key."""
        by_run: dict[tuple[object, ...], list[ChangedFile]] = {}
        for each in changed:
            file = each.file
            # Files of level 0 may overlap; those above do not within their partition.
            part = file.path if file.level == 0 else (file.spec_id, file.partition)
            by_run.setdefault((file.level, part), []).append(each)
        for members in by_run.values():
            members.sort(key=lambda each: each.file.key_min)
        return [[self._source(each) for each in members] for members in by_run.values()]

    def _source(self, changed: ChangedFile) -> Source:
        words = self.context.words
        nearest: SortKey = changed.file.key_min
        if words.is_exact:
            nearest = words.word(changed.file.key_min)
        return nearest, partial(self._blocks, changed)

    def _blocks(self, changed: ChangedFile) -> Iterator[LoadBlock]:
        self._check()
        if changed.without is not None and changed.file.path in self._often:
            yield partial(self._shared_block, changed, changed.without)
            return
        for reader, pieces in self._pieces(changed):
            yield partial(self._load, reader, pieces)

    def _pieces(self, changed: ChangedFile) -> Iterator[tuple[DataFileReader, Sequence["_Piece"]]]:
        """Cut the changed rows of a file into what is read at once."""
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
                yield reader, pieces
                pieces, row_count = [], 0
            if count:
                pieces.append(_Piece(start, stop, chosen, count))
                row_count += count
        if pieces:
            yield reader, pieces

    def _flags(self, changed: ChangedFile) -> Flags | None:
        """One flag per row of the file, true for those that changed; None: all of them did."""
        file, other = changed.file, changed.without
        if other is None:
            return self._access.keep_mask(file)
        flags = np.zeros(file.row_count, np.bool_)
        flags[self._marked_since(file, other)] = True
        return flags

    def _marked_since(self, file: DataFile, other: DataFile) -> Positions:
        """Return the positions that the other vector of a file marks, and its own does not."""
        return positions_in(self._marked(other) - self._marked(file))

    def _marked(self, file: DataFile) -> BitMap64:
        return self._access.marked(file) or BitMap64()

    def _shared_block(self, changed: ChangedFile, other: DataFile) -> Block | None:
        """Return one commit's rows of a file that several mark; None when it marks none."""
        wanted = self._marked_since(changed.file, other)
        if not len(wanted):
            return None
        path = changed.file.path
        if path not in self._shared:
            self._shared[path] = self._read_alone(self._often[path])
        positions, (rows, keys) = self._shared[path]
        places = np.searchsorted(positions, wanted)
        if not np.array_equal(positions.take(places, mode="clip"), wanted):
            # A vector that marks less than one before it: not ours, and read on its own.
            return self._read_alone(changed)[1]
        return rows.take(places), keys.taken(places)

    def _read_alone(self, changed: ChangedFile) -> _Placed:
        """Read all changed rows of a file that is on both sides."""
        assert changed.without is not None
        positions = self._marked_since(changed.file, changed.without)
        tables = [self._read(reader, pieces) for reader, pieces in self._pieces(changed)]
        rows = pa.concat_tables([self.context.schema.arrow_schema.empty_table(), *tables])
        return positions, self._with_keys(rows.combine_chunks())

    def _load(self, reader: DataFileReader, pieces: Sequence["_Piece"]) -> Block:
        return self._with_keys(self._read(reader, pieces))

    def _with_keys(self, rows: pa.Table) -> Block:
        encoder = self.context.encoder
        encoded = encoder.encode_arrays([rows.column(name) for name in encoder.names])
        return rows, keys_of(encoded, self.context.words)

    def _read(self, reader: DataFileReader, pieces: Sequence["_Piece"]) -> pa.Table:
        mapping = self.context.mapping_from(reader.file.schema_id)
        names = self.context.schema.arrow_schema.names
        sources = mapping.source_names(names)
        tables: list[pa.Table] = []
        for piece in pieces:
            self._check()
            tables.append(piece.chosen_of(reader.read(sources, start=piece.start, stop=piece.stop)))
        return mapping.table(pa.concat_tables(tables), names)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of one row group."""

    start: int
    stop: int
    chosen: Flags
    count: int

    def chosen_of(self, rows: pa.Table) -> pa.Table:
        """Return those of the group's rows that are chosen."""
        if self.count == rows.num_rows:
            return rows
        # Few of many are picked, and most of them filtered: each is the faster way.
        if self.count * _FEW < rows.num_rows:
            return rows.take(np.flatnonzero(self.chosen))
        return rows.filter(pa.array(self.chosen))
