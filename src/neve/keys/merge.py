"""The merge of many sorted runs into one, ascending or descending by key, in bounded memory.

A run is a sequence of pieces whose keys follow one another: a file of level 0, the files of a
higher level and partition, the rows in memory. Ascending:

    run 1    ─ a d f ─│─ h k …               read: a d f, b c; the rest comes after f and c
    run 2    ─ b c ─│─ g i …
    run 3               m … (not opened)     nearest key it can have: m

1. A heap orders the runs by the nearest key that each can still have: the bound of a file that is
   not open, or the last key that was read.
2. Read the next piece of the nearest run, until the nearest run is one that was read already, and
   enough rows for a window are held. So a file is not opened before its keys are reached.
3. Rows up to the nearest key are complete: take them from all pieces as one window. All unread rows
   come after them.
4. Sort the rows of a window once, unless its pieces follow each other without overlap, or take
   turns in long stretches: then no row is copied.

Descending is the same from the other end.

Work: each row is sorted once, in a window of all runs, and each window takes some rows of each held
piece; so the rows of a window grow with the number of pieces, and the work is linear in the rows.
Memory: one piece of each run that overlaps others, and a window. A limit stops reading as soon as
that many rows are complete.
"""

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from neve.keys.order import RowKeys, SortKey, merged_order, order_of
from neve.model.arrow_buffers import Positions, position_array

Block: TypeAlias = tuple[pa.Table, RowKeys]
"""Rows and their keys, ascending."""
LoadBlock: TypeAlias = Callable[[], Block | None]
"""Reads a piece; None when no row of it is wanted."""
Source: TypeAlias = tuple[SortKey, Callable[[], Iterable[LoadBlock]]]
"""The nearest key of one file of a run, and how to get its pieces in the order of the merge."""
Window: TypeAlias = list[tuple[int, Block]]
"""All rows between two keys: those of each run that has any, with the number of the run."""

SORTED_BYTES_MAX: Final = 256 << 20
"""Sorting copies rows into single Arrow arrays, whose 32-bit offsets end at 2 GiB."""
# Splitting a piece costs about as much as sorting this many rows.
_ROWS_PER_PIECE: Final = 64
# Pieces that follow each other are joined when they have fewer rows than this on average.
_SMALL_ROWS: Final = 4_096
# Cutting blocks into stretches of this many rows is faster than sorting and copying these. A few
# may be shorter.
_STRETCH_ROWS: Final = 1_024
_SHORT_STRETCHES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSize:
    """How much to read for a window, beyond one piece of each run that overlaps others."""

    rows: int = 65_536
    bytes: int = 32 << 20


DEFAULT_SIZE: Final = WindowSize()


def ordered_rows(
    runs: Sequence[Iterable[Source]],
    *,
    descending: bool,
    limit: int | None,
    size: WindowSize | None = None,
) -> Generator[pa.Table, None, None]:
    """Yield all rows by key, or the first `limit` of them; never an empty table.

    Raises Corruption for a key that occurs twice.
    """
    left = limit
    merge = _Merge(runs, descending=descending, limit=limit, size=size)
    for window in merge.windows():
        for rows in rows_by_key([block for _, block in window], descending=descending):
            if left is not None and rows.num_rows >= left:
                yield rows.slice(0, left)
                return
            left = None if left is None else left - rows.num_rows
            yield rows


def ordered_windows(
    runs: Sequence[Iterable[Source]], *, size: WindowSize | None = None
) -> Generator[Window, None, None]:
    """Return all rows in windows: ascending from one to the next, and block by block within each.

    The blocks of one run ascend.
    """
    return _Merge(runs, descending=False, limit=None, size=size).windows()


def ordered_blocks(
    runs: Sequence[Iterable[Source]], *, size: WindowSize | None = None
) -> Generator[Block, None, None]:
    """Yield all rows with their keys, ascending; raises Corruption for a key that occurs twice."""
    for window in ordered_windows(runs, size=size):
        for blocks, order in _arranged([block for _, block in window]):
            yield _joined(blocks, order)
            # Yielded rows are released before the next pieces are read.
            blocks.clear()
        window.clear()


def rows_by_key(blocks: Sequence[Block], *, descending: bool = False) -> Iterator[pa.Table]:
    """Return the rows of a window by key; raises Corruption for a key that occurs twice."""
    arranged = _arranged(blocks)
    for part, order in reversed(list(arranged)) if descending else arranged:
        rows = _concatenated(part)
        if order is not None:
            rows = rows.take(position_array(order[::-1] if descending else order))
        elif descending:
            rows = rows.take(position_array(np.arange(rows.num_rows - 1, -1, -1)))
        yield rows


class _Descends:
    """A key that comes before every smaller one."""

    __slots__ = ("key",)

    def __init__(self, key: bytes) -> None:
        self.key = key

    def __lt__(self, other: "_Descends") -> bool:
        return self.key > other.key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descends) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


_Rank: TypeAlias = int | bytes | _Descends
"""A key in merge order: the one that comes first is the smallest."""
_Bound: TypeAlias = tuple[_Rank, bool]
"""The complete rows: those before a key, and those of the key as well when true.

A row has the bound of its key and false: it is complete when that is below the bound.
"""


class _Run:
    """The state of one run: its nearest unread key, and the source of its pieces."""

    __slots__ = ("_ahead", "_pieces", "_sources", "is_read", "nearest", "number")

    def __init__(self, number: int, sources: Iterable[Source]) -> None:
        self.number = number
        self._sources = list(sources)[::-1]
        self._pieces: Iterator[LoadBlock] = iter(())
        self._ahead: LoadBlock | None = None
        self.nearest: SortKey | None = None
        """None: the run has ended."""
        self.is_read = False
        """Whether a row of the nearest key was read: all unread rows come after it."""
        self._open_next()

    def look_ahead(self) -> bool:
        """Return whether the current file has another piece; otherwise step to the next file."""
        if self._ahead is None:
            self._ahead = next(self._pieces, None)
            if self._ahead is None:
                self._open_next()
        return self._ahead is not None

    def load(self) -> Block | None:
        """Read the next piece; None when no row of it is wanted."""
        assert self._ahead is not None
        load, self._ahead = self._ahead, None
        block = load()
        return block if block is not None and len(block[1]) else None

    def _open_next(self) -> None:
        self.nearest, self.is_read = None, False
        if self._sources:
            self.nearest, pieces = self._sources.pop()
            self._pieces = _lazily(pieces)


def _lazily(pieces: Callable[[], Iterable[LoadBlock]]) -> Iterator[LoadBlock]:
    yield from pieces()


@dataclass(slots=True)
class _Held:
    """Rows that were read and not yet yielded."""

    number: int
    block: Block
    first: _Bound
    last: _Bound
    byte_count: int


class _Merge:
    """The runs by their nearest keys, and the pieces that are held."""

    def __init__(
        self,
        runs: Sequence[Iterable[Source]],
        *,
        descending: bool,
        limit: int | None,
        size: WindowSize | None,
    ) -> None:
        self._descending = descending
        self._limit = limit
        self._size = size or DEFAULT_SIZE
        self._heap: list[tuple[_Rank, bool, int, _Run]] = []
        for number, sources in enumerate(runs):
            run = _Run(number, sources)
            if run.nearest is not None:
                self._heap.append(self._entry(run, run.nearest))
        heapq.heapify(self._heap)
        self._held: list[_Held] = []
        self._row_count = 0
        self._byte_count = 0
        self._last: _Bound | None = None
        """The last row that is held, or None."""
        self._given: _Bound | None = None
        """Rows of the windows so far."""
        self._limit_row: _Bound | None = None
        """With a limit: a row up to which that many rows are held."""

    def windows(self) -> Generator[Window, None, None]:
        """Yield the windows of the merge, none of them empty."""
        while True:
            self._load()
            if not self._held:
                return
            yield self._cut()

    def _load(self) -> None:
        """Read pieces until the complete rows are enough for a window."""
        loaded = 0
        wanted = max(self._size.rows, len(self._held) * _ROWS_PER_PIECE)
        if self._limit is not None:
            wanted = min(wanted, self._limit)
        while self._heap:
            rank, is_read, _, run = self._heap[0]
            if self._has_limit_rows():
                return
            # A run that was read holds rows up to its bound, unless these were yielded already.
            completes = self._last is not None and (
                (self._given is None or self._given < (rank, is_read))
                if is_read
                else self._last < (rank, False)
            )
            is_full = loaded >= wanted or self._byte_count >= self._size.bytes
            if completes and is_full and (self._limit is not None or not is_read):
                return
            if not run.look_ahead():
                self._step(run)
            elif completes and is_full:
                return
            else:
                block = run.load()
                if block is not None:
                    loaded += len(block[1])
                    self._hold(run, block)
                    self._step(run)

    def _hold(self, run: _Run, block: Block) -> None:
        rows, keys = block
        near, far = (keys.at(-1), keys.at(0)) if self._descending else (keys.at(0), keys.at(-1))
        held = _Held(run.number, block, self._row(near), self._row(far), rows.nbytes)
        self._held.append(held)
        self._row_count += len(keys)
        self._byte_count += held.byte_count
        self._last = held.last if self._last is None else max(self._last, held.last)
        run.nearest, run.is_read = far, True
        if self._limit_row is not None and self._limit is not None and len(keys) >= self._limit:
            near = keys.at(-self._limit if self._descending else self._limit - 1)
            self._limit_row = min(self._limit_row, self._row(near))

    def _step(self, run: _Run) -> None:
        """Move the nearest run, which has changed, to its new place."""
        if run.nearest is None:
            heapq.heappop(self._heap)
        else:
            heapq.heapreplace(self._heap, self._entry(run, run.nearest))

    def _has_limit_rows(self) -> bool:
        """Return whether as many rows as the limit are complete."""
        if self._limit is None or self._row_count < self._limit:
            return False
        if self._limit_row is None:
            parts = [self._nearest_rows(each.block, self._limit)[1] for each in self._held]
            order, _ = order_of(parts)
            place = order[-self._limit if self._descending else self._limit - 1]
            self._limit_row = self._row(RowKeys.joined(parts).at(int(place)))
        return self._limit_row < self._heap[0][:2]

    def _cut(self) -> Window:
        """Take the complete rows out of all pieces; with a limit, no more of each than that."""
        bound = self._heap[0][:2] if self._heap else None
        window: Window = []
        kept: list[_Held] = []
        for held in self._held:
            if bound is None or held.last < bound:
                taken = held.block
            elif not held.first < bound:
                kept.append(held)
                continue
            else:
                taken, left = self._split(held.block, bound)
                held.byte_count = held.byte_count * len(left[1]) // len(held.block[1])
                held.block = left
                held.first = self._row(left[1].at(-1 if self._descending else 0))
                kept.append(held)
            if self._limit is not None:
                taken = self._nearest_rows(taken, self._limit)
            window.append((held.number, taken))
        assert window, "a merge goes on"
        self._given = bound
        self._held = kept
        self._row_count = sum(len(held.block[1]) for held in kept)
        self._byte_count = sum(held.byte_count for held in kept)
        self._last = max((held.last for held in kept), default=None)
        self._limit_row = None
        if self._limit is not None:
            self._limit = max(self._limit - sum(len(block[1]) for _, block in window), 1)
        return window

    def _split(self, block: Block, bound: _Bound) -> tuple[Block, Block]:
        """Return the rows of a block that are complete, and the others."""
        rank, is_complete = bound
        key = self._key(rank)
        if self._descending:
            place = block[1].count_below(key, inclusive=not is_complete)
            return _between(block, place, len(block[1])), _between(block, 0, place)
        place = block[1].count_below(key, inclusive=is_complete)
        return _between(block, 0, place), _between(block, place, len(block[1]))

    def _nearest_rows(self, block: Block, count: int) -> Block:
        held = len(block[1])
        if held <= count:
            return block
        return (
            _between(block, held - count, held) if self._descending else _between(block, 0, count)
        )

    def _entry(self, run: _Run, nearest: SortKey) -> tuple[_Rank, bool, int, _Run]:
        return self._rank(nearest), run.is_read, run.number, run

    def _row(self, key: SortKey) -> _Bound:
        return self._rank(key), False

    def _rank(self, key: SortKey) -> _Rank:
        if not self._descending:
            return key
        return -key if isinstance(key, int) else _Descends(key)

    def _key(self, rank: _Rank) -> SortKey:
        if isinstance(rank, _Descends):
            return rank.key
        return -rank if self._descending and isinstance(rank, int) else rank


def _arranged(blocks: Sequence[Block]) -> Iterator[tuple[list[Block], Positions | None]]:
    """Yield blocks that together come next, ascending, and the order of their rows.

    The order is None when they are sorted already.
    """
    ascending = sorted(blocks, key=lambda block: (block[1].at(0),))
    stretches = ascending if _are_apart(ascending) else _stretches(ascending)
    if stretches is not None:
        if sum(len(keys) for _, keys in stretches) < _SMALL_ROWS * len(stretches):
            yield stretches, None
        else:
            yield from (([block], None) for block in stretches)
    elif sum(rows.nbytes for rows, _ in ascending) <= SORTED_BYTES_MAX:
        yield ascending, merged_order([keys for _, keys in ascending])
    else:
        # Keys overlap, so the longest block has at least two rows, and both halves are smaller.
        longest = max((keys for _, keys in ascending), key=len)
        middle = longest.at((len(longest) - 1) // 2)
        places = [keys.count_below(middle, inclusive=True) for _, keys in ascending]
        pairs = list(zip(ascending, places, strict=True))
        yield from _arranged([_between(each, 0, place) for each, place in pairs if place])
        yield from _arranged(
            [_between(each, place, len(each[1])) for each, place in pairs if place < len(each[1])]
        )


def _are_apart(ascending: Sequence[Block]) -> bool:
    """Return whether blocks, by their smallest keys, follow each other without overlap."""
    pairs = pairwise(keys for _, keys in ascending)
    # Tuples: all keys are of one kind, which their static type does not say.
    return all((left.at(-1),) < (right.at(0),) for left, right in pairs)


def _stretches(blocks: Sequence[Block]) -> list[Block] | None:
    """Cut blocks that alternate in long stretches into these, ascending; None if they are short.

    The next stretch is what the block with the smallest key has below all other blocks.
    """
    left = list(blocks)
    heap = [(block[1].at(0), number) for number, block in enumerate(blocks)]
    heapq.heapify(heap)
    found: list[Block] = []
    row_count = 0
    # Ends with the blocks, or soon after the stretches become short.
    while heap:
        number = heap[0][1]
        rows, keys = left[number]
        heapq.heappop(heap)
        place = len(keys)
        if heap and not (keys.at(-1),) < (heap[0][0],):
            place = keys.count_below(heap[0][0], inclusive=False)
            if not place:
                return None  # a key occurs twice, which sorting reports
            left[number] = _between((rows, keys), place, len(keys))
            heapq.heappush(heap, (keys.at(place), number))
        found.append(_between((rows, keys), 0, place))
        row_count += place
        if row_count < _STRETCH_ROWS * (len(found) - _SHORT_STRETCHES):
            return None
    return found


def _joined(blocks: Sequence[Block], order: Positions | None) -> Block:
    rows, keys = _concatenated(blocks), RowKeys.joined([keys for _, keys in blocks])
    return (rows, keys) if order is None else (rows.take(position_array(order)), keys.taken(order))


def _concatenated(blocks: Sequence[Block]) -> pa.Table:
    rows = pa.concat_tables([rows for rows, _ in blocks])
    # Arrow takes rows from a few chunks as fast as from one, but not from many.
    return rows.combine_chunks() if rows.num_rows < _SMALL_ROWS * len(blocks) else rows


def _between(block: Block, start: int, stop: int) -> Block:
    rows, keys = block
    return rows.slice(start, stop - start), keys.between(start, stop)
