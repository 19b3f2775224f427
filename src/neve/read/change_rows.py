"""The rows that one side of a commit has and the other does not, as sorted runs.

1. For each file, find the positions: by the vectors of both sides, or all live rows of a file that
   the other side lacks.
2. Split them into pieces, one for each row group that has any; other groups are not read. Small
   pieces of a file are joined into blocks.
3. Files without overlapping keys are one run (see `neve.keys.merge`). Small files are read together
   and sorted: a block of them is a run.

For commits that are reported together, rows that several of them mark in one file are read once and
sorted, and each commit takes its own (see `neve.read.change_plan`).

Rows have the schema of the feed, whatever schema their file was written with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.keys.arrays import key_at
from neve.keys.merge import Block, LoadBlock, Source
from neve.keys.order import RowKeys, SortKey, merged_order, order_of
from neve.keys.ranges import KeyRange
from neve.model.array_fit import empty_rows
from neve.model.arrow_buffers import Flags, Positions
from neve.model.data_file import DataFile
from neve.read.change_plan import ChangedFile, CommitChanges, marked_often
from neve.read.memory_rows import MemoryRows, keys_of
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import positions_in
from neve.table.file_set import FileAccess
from neve.table.table_context import TableContext

_FEW: Final = 8
# Rows of a file that are held at once, unless a single group has more.
_BLOCK_ROWS: Final = 65_536
# Files up to this size are read together: most of their cost is per file, not per row.
_SMALL_ROWS: Final = 4_096
_SMALL_BYTES: Final = 1 << 20
_JOINT_BYTES: Final = 8 << 20

Check = Callable[[], None]
"""Raises when the files may be gone, or the table was closed."""


@dataclass(frozen=True, slots=True)
class _Shared:
    """Rows of files that several commits mark, all of them by key."""

    block: Block
    places: Mapping[str, tuple[Positions, Positions]]
    """By path: the positions of marked rows in the file, and their places in the block."""


class ChangeRows:
    """Reads changed rows of files in one schema; for one thread."""

    def __init__(self, access: FileAccess, context: TableContext, check: Check) -> None:
        self._access = access
        self._check = check
        self.context = context
        self._often: dict[str, ChangedFile] = {}
        self._marks: dict[str, BitMap64] = {}
        self._shared: _Shared | None = None

    def read_together(self, commits: Iterable[CommitChanges]) -> None:
        """Read the files that these commits share once, when the first of them needs it.

        The shared rows of earlier commits are released.
        """
        self._often = marked_often(commits)
        self._marks = {}
        self._shared = None

    def runs(self, changed: Iterable[ChangedFile]) -> list[list[Source]]:
        """Return the changed rows of one side of a commit; the rows of a run ascend by key."""
        by_run: dict[tuple[object, ...], list[ChangedFile]] = {}
        small: list[ChangedFile] = []
        shared: list[tuple[ChangedFile, BitMap64]] = []
        for each in changed:
            file = each.file
            wanted = self._wanted_of_shared(each)
            if wanted is not None:
                shared.append((each, wanted))
            elif file.row_count <= _SMALL_ROWS and file.file_bytes <= _SMALL_BYTES:
                small.append(each)
            else:
                # Files of level 0 may overlap; those above do not within their partition.
                part = file.path if file.level == 0 else (file.spec_id, file.partition)
                by_run.setdefault((file.level, part), []).append(each)
        for members in by_run.values():
            members.sort(key=lambda each: each.file.key_min)
        runs = [[self._source(each) for each in members] for members in by_run.values()]
        runs += [[self._joint_source(files)] for files in _joint(small)]
        if shared:
            nearest = min(each.file.key_min for each, _ in shared)
            load = partial(self._shared_block, shared)
            runs.append([(self._sort_key(nearest), partial(iter, [load]))])
        return runs

    def run_in_memory(self, memory: MemoryRows) -> list[Source]:
        """Return the live rows in memory, which ascend by key."""
        run: list[Source] = []
        for rows, keys in memory.parts(KeyRange()):
            block = rows, keys_of(keys, self.context.hashes)
            run.append((self._sort_key(key_at(keys, 0)), partial(_loaded, block)))
        return run

    def _source(self, changed: ChangedFile) -> Source:
        return self._sort_key(changed.file.key_min), partial(self._blocks, changed)

    def _joint_source(self, files: Sequence[ChangedFile]) -> Source:
        load = partial(self._joint_block, files)
        return self._sort_key(files[0].file.key_min), partial(iter, [load])

    def _sort_key(self, key: bytes) -> SortKey:
        hashes = self.context.hashes
        return hashes.one(key) if hashes.is_exact else key

    def _blocks(self, changed: ChangedFile) -> Iterator[LoadBlock]:
        self._check()
        for reader, pieces in self._pieces(changed):
            yield partial(self._load, reader, pieces)

    def _pieces(self, changed: ChangedFile) -> Iterator[tuple[DataFileReader, Sequence["_Piece"]]]:
        """Split the changed rows of a file into pieces that are read at once."""
        flags = self._flags(changed)
        if flags is not None and not flags.any():
            return
        reader = self._access.reader(changed.file)
        pieces: list[_Piece] = []
        row_count = 0
        # One iteration per group of the file.
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
        file, other, positions = changed.file, changed.without, changed.replaced
        if positions is None:
            if other is None:
                return self._access.keep_mask(file)
            # Marked by the other vector, and not by its own.
            positions = self._marked(other) - self._marked(file)
        flags = np.zeros(file.row_count, np.bool_)
        flags[positions_in(positions)] = True
        return flags

    def _marked(self, file: DataFile) -> BitMap64:
        return self._access.marked(file) or BitMap64()

    def _wanted_of_shared(self, changed: ChangedFile) -> BitMap64 | None:
        """Return what a commit marks in a file that several mark; None: read it on its own."""
        path, other = changed.file.path, changed.without
        if other is None or path not in self._often:
            return None
        wanted = self._marked(other) - self._marked(changed.file)
        # A vector that marks fewer rows than an earlier one is not neve's.
        return wanted if wanted <= self._all_marks(path) else None

    def _all_marks(self, path: str) -> BitMap64:
        """Return what all commits mark in a file that several mark."""
        if path not in self._marks:
            whole = self._often[path]
            assert whole.without is not None
            self._marks[path] = self._marked(whole.without) - self._marked(whole.file)
        return self._marks[path]

    def _shared_block(self, changed: Sequence[tuple[ChangedFile, BitMap64]]) -> Block | None:
        """Return the rows that one commit marks in files that several mark."""
        if self._shared is None:
            self._shared = self._read_shared()
        taken: list[Positions] = []
        for each, wanted in changed:
            positions, places = self._shared.places[each.file.path]
            taken.append(places[np.searchsorted(positions, positions_in(wanted))])
        # Those of each file ascend already: a stable sort only merges them.
        chosen = np.sort(np.concatenate(taken), kind="stable")
        rows, keys = self._shared.block
        keys = keys.taken(chosen)
        if not keys.ascends():
            merged_order([keys])  # raises: a key occurs twice
        return (rows.take(chosen), keys) if len(chosen) else None

    def _read_shared(self) -> _Shared:
        rows, parts = self._read_together(self._often.values())
        order, _ = order_of(parts)
        place_of = np.empty(len(order), np.int64)
        place_of[order] = np.arange(len(order))
        positions = [positions_in(self._all_marks(path)) for path in self._often]
        places = np.split(place_of, np.cumsum([len(each) for each in positions])[:-1])
        block = _by_key(rows, parts, order)
        both = zip(positions, places, strict=True)
        return _Shared(block, dict(zip(self._often, both, strict=True)))

    def _joint_block(self, files: Sequence[ChangedFile]) -> Block | None:
        """Read all changed rows of small files at once."""
        rows, parts = self._read_together(files)
        order = merged_order(parts)
        return _by_key(rows, parts, order) if len(order) else None

    def _read_together(self, files: Iterable[ChangedFile]) -> tuple[pa.Table, list[RowKeys]]:
        """Return all changed rows of some files, one after another, and their keys in parts."""
        tables = [empty_rows(self.context.schema.arrow_schema)]
        for changed in files:
            self._check()
            tables += [self._read(reader, pieces) for reader, pieces in self._pieces(changed)]
        rows, keys = self._with_keys(pa.concat_tables(tables).combine_chunks())
        ends = np.cumsum([table.num_rows for table in tables]).tolist()
        return rows, [keys.between(start, stop) for start, stop in pairwise((0, *ends))]

    def _load(self, reader: DataFileReader, pieces: Sequence["_Piece"]) -> Block:
        return self._with_keys(self._read(reader, pieces))

    def _with_keys(self, rows: pa.Table) -> Block:
        encoder = self.context.encoder
        encoded = encoder.encode_arrays([rows.column(name) for name in encoder.names])
        return rows, keys_of(encoded, self.context.hashes)

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
        """Return the chosen rows of the group."""
        if self.count == rows.num_rows:
            return rows
        # Taking is faster for few of many rows, filtering for most of them.
        if self.count * _FEW < rows.num_rows:
            return rows.take(np.flatnonzero(self.chosen))
        return rows.filter(pa.array(self.chosen))


def _by_key(rows: pa.Table, parts: Sequence[RowKeys], order: Positions) -> Block:
    """Return the rows of consecutive parts in an order; not copied where they are in it already."""
    keys = RowKeys.joined(parts)
    if (order[1:] > order[:-1]).all():
        return rows, keys
    return rows.take(order), keys.taken(order)


def _loaded(block: Block) -> list[LoadBlock]:
    return [lambda: block]


def _joint(small: Sequence[ChangedFile]) -> Iterator[list[ChangedFile]]:
    """Group small files, by their smallest keys, into blocks that are held at once."""
    together: list[ChangedFile] = []
    row_count = byte_count = 0
    for each in sorted(small, key=lambda each: each.file.key_min):
        row_count += each.file.row_count
        byte_count += each.file.file_bytes
        if together and (row_count > _BLOCK_ROWS or byte_count > _JOINT_BYTES):
            yield together
            together, row_count, byte_count = [], each.file.row_count, each.file.file_bytes
        together.append(each)
    if together:
        yield together
