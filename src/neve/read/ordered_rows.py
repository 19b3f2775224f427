"""Rows of many sorted runs as one, ascending or descending by key, in bounded memory.

A run is a sequence of pieces whose keys follow one another: a file of level 0, the files of a
higher level and partition, the rows in memory. Ascending:

    run 1    ─ a d f ─│─ h k …
    run 2    ─ b c ─│─ g i …                 held: a d f, b c
    run 3               m … (not read)       nearest key it can have: m

1. Hold one piece of each run, but only of runs whose nearest possible key has been reached: a file
   is not opened before.
2. Rows up to the smallest last key held, and before the nearest key of all runs not held, are
   complete: whatever is still to be read comes behind them.
3. Take them from every piece; where pieces overlap, join and sort them once.
4. Runs whose piece is used up wait for their next one, which lies behind it.

Descending is the same from the other end. Memory: one piece of each run that overlaps others.

Who asks for windows gets what step 2 gives, not sorted yet, with the run that each part is of. Runs
then look a piece ahead, without reading it: a piece that is the last of its run holds up nothing.
And runs are held that begin anywhere before the first end of a piece, so that a few small runs are
one window.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from neve.keys.order import RowKeys, SortKey, merged_order

Block: TypeAlias = tuple[pa.Table, RowKeys]
"""Rows and their keys, ascending."""
LoadBlock: TypeAlias = Callable[[], Block | None]
"""Reads a piece; None when no row of it is wanted."""
Source: TypeAlias = tuple[SortKey, Callable[[], Iterable[LoadBlock]]]
"""The nearest key of one file of a run, and how to get its pieces in the order of the scan."""
Window: TypeAlias = list[tuple[int, Block]]
"""All rows between two keys: those of each run that has any, with the number of the run."""

_Reach: TypeAlias = Callable[[Block], SortKey]


class _Run:
    """One run on its way: a held block, or the nearest key of what comes next."""

    __slots__ = (
        "_ahead",
        "_looks_ahead",
        "_pieces",
        "_sources",
        "block",
        "is_last",
        "nearest",
        "number",
    )

    def __init__(self, number: int, sources: Iterable[Source], *, looks_ahead: bool) -> None:
        self.number = number
        self._looks_ahead = looks_ahead
        self._sources = list(sources)[::-1]
        self._pieces: Iterator[LoadBlock] = iter(())
        self._ahead: LoadBlock | None = None
        self.block: Block | None = None
        self.is_last = False
        """Whether it is known that nothing comes behind the block."""
        self.nearest: SortKey | None = None
        """None: the run has ended."""
        self._open_next()

    def load(self) -> None:
        """Hold the next block, or learn that it comes later."""
        load = self._ahead or next(self._pieces, None)
        if load is None:
            self._open_next()
            return
        self._ahead = None
        self.block = load()
        if self._looks_ahead:
            self._ahead = next(self._pieces, None)
            self.is_last = self._ahead is None and not self._sources

    def use_up(self, last: SortKey) -> None:
        """Let go of the block; what comes next lies behind its last key."""
        self.block = None
        self.nearest = last

    def _open_next(self) -> None:
        self.nearest = None
        if self._sources:
            self.nearest, pieces = self._sources.pop()
            self._pieces = _lazily(pieces)


def _lazily(pieces: Callable[[], Iterable[LoadBlock]]) -> Iterator[LoadBlock]:
    yield from pieces()


def ordered_rows(
    runs: Sequence[Iterable[Source]], *, descending: bool, limit: int | None
) -> Generator[pa.Table, None, None]:
    """Yield all rows by key, never an empty table; raises Corruption for a key twice.

    With a limit, at least so many rows are given when there are, but few more are touched.
    """
    direction = _Descending() if descending else _Ascending()
    under_way = [_Run(n, sources, looks_ahead=False) for n, sources in enumerate(runs)]
    for window in _windows(under_way, direction, direction.first, limit):
        yield from direction.by_key([block for _, block in window])


def ordered_windows(runs: Sequence[Iterable[Source]]) -> Generator[Window, None, None]:
    """Return all rows in windows: ascending from one to the next, and run by run within each."""
    under_way = [_Run(n, sources, looks_ahead=True) for n, sources in enumerate(runs)]
    direction = _Ascending()
    return _windows(under_way, direction, direction.last, None)


def rows_by_key(blocks: list[Block]) -> Iterator[pa.Table]:
    """Return the rows of a window ascending; raises Corruption for a key twice."""
    return _Ascending().by_key(blocks)


def _windows(
    runs: list[_Run], direction: "_Direction", reach: _Reach, limit: int | None
) -> Generator[Window, None, None]:
    while True:
        _hold_nearest(runs, direction, reach)
        runs = [run for run in runs if run.block is not None or run.nearest is not None]
        window = _cut(runs, direction, limit)
        if not window:
            return
        yield window


def _hold_nearest(runs: Sequence[_Run], direction: "_Direction", reach: _Reach) -> None:
    """Load blocks until no run that is not held can have a row before what those held reach."""
    while True:
        waiting = [run for run in runs if run.block is None and run.nearest is not None]
        if not waiting:
            return
        nearest = direction.nearest_of(waiting)
        held = [reach(run.block) for run in runs if run.block is not None]
        assert nearest.nearest is not None
        if held and direction.is_before(direction.foremost(held), nearest.nearest):
            return
        nearest.load()


def _cut(runs: Sequence[_Run], direction: "_Direction", limit: int | None) -> Window:
    """Take the complete rows out of all blocks held; no block gives more than the limit."""
    unended = [run.block for run in runs if run.block is not None and not run.is_last]
    complete = direction.foremost(map(direction.last, unended)) if unended else None
    beyond = [run.nearest for run in runs if run.block is None and run.nearest is not None]
    window: Window = []
    for run in runs:
        if run.block is None:
            continue
        taken, left = direction.split(run.block, complete, before=beyond)
        if len(taken[1]):
            window.append((run.number, direction.first_rows(taken, limit)))
        if len(left[1]):
            run.block = left
        else:
            run.use_up(direction.last(taken))
    return window


class _Ascending:
    """From the smallest key to the greatest."""

    def is_before(self, one: SortKey, other: SortKey) -> bool:
        return _less(one, other)

    def foremost(self, keys: Iterable[SortKey]) -> SortKey:
        return min(keys)

    def nearest_of(self, runs: Sequence[_Run]) -> _Run:
        return min(runs, key=lambda run: run.nearest)  # type: ignore[arg-type, return-value]

    def first(self, block: Block) -> SortKey:
        return block[1].at(0)

    def last(self, block: Block) -> SortKey:
        return block[1].at(-1)

    def split(
        self, block: Block, complete: SortKey | None, *, before: Iterable[SortKey]
    ) -> tuple[Block, Block]:
        place = len(block[1])
        if complete is not None:
            place = block[1].count_below(complete, inclusive=True)
        for bound in before:
            place = min(place, block[1].count_below(bound, inclusive=False))
        return _between(block, 0, place), _between(block, place, len(block[1]))

    def first_rows(self, block: Block, limit: int | None) -> Block:
        return block if limit is None else _between(block, 0, min(limit, len(block[1])))

    def by_key(self, window: list[Block]) -> Iterator[pa.Table]:
        window.sort(key=self.first)
        if _are_apart(window):
            yield from (rows for rows, _ in window)
        else:
            yield _merged(window, backwards=False)


class _Descending:
    """From the greatest key to the smallest."""

    def is_before(self, one: SortKey, other: SortKey) -> bool:
        return _less(other, one)

    def foremost(self, keys: Iterable[SortKey]) -> SortKey:
        return max(keys)

    def nearest_of(self, runs: Sequence[_Run]) -> _Run:
        return max(runs, key=lambda run: run.nearest)  # type: ignore[arg-type, return-value]

    def first(self, block: Block) -> SortKey:
        return block[1].at(-1)

    def last(self, block: Block) -> SortKey:
        return block[1].at(0)

    def split(
        self, block: Block, complete: SortKey | None, *, before: Iterable[SortKey]
    ) -> tuple[Block, Block]:
        place = 0
        if complete is not None:
            place = block[1].count_below(complete, inclusive=False)
        for bound in before:
            place = max(place, block[1].count_below(bound, inclusive=True))
        return _between(block, place, len(block[1])), _between(block, 0, place)

    def first_rows(self, block: Block, limit: int | None) -> Block:
        count = len(block[1])
        return block if limit is None else _between(block, max(count - limit, 0), count)

    def by_key(self, window: list[Block]) -> Iterator[pa.Table]:
        window.sort(key=self.last)
        if _are_apart(window):
            for rows, _ in reversed(window):
                yield rows.take(np.arange(rows.num_rows - 1, -1, -1))
        else:
            yield _merged(window, backwards=True)


_Direction: TypeAlias = _Ascending | _Descending


def _less(one: SortKey, other: SortKey) -> bool:
    return one < other  # type: ignore[operator]  # all of one kind


def _between(block: Block, start: int, stop: int) -> Block:
    rows, keys = block
    return rows.slice(start, stop - start), keys.between(start, stop)


def _are_apart(window: Sequence[Block]) -> bool:
    """Whether blocks, by their smallest keys, follow each other without overlap."""
    return all(_less(left[1].at(-1), right[1].at(0)) for left, right in pairwise(window))


def _merged(window: Sequence[Block], *, backwards: bool) -> pa.Table:
    order = merged_order([keys for _, keys in window])
    if backwards:
        order = order[::-1]
    return pa.concat_tables([rows for rows, _ in window]).take(order)
