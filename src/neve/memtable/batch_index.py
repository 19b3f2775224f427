"""BatchIndex: finds keys in Arrow batches that are only appended.

Rows of all batches are numbered in the order they were appended; these numbers are *positions*. A
run lists some of them by a hash of their key, and positions of one hash in ascending order:

    hashes     │ 3 │ 7 │ 7 │ 9 │ ...     ascending
    positions  │ 4 │ 0 │ 6 │ 2 │ ...     7 was written at 0 and again, newer, at 6

1. A batch costs nothing until the first search for a key.
2. Then all batches since the last search become one run. It absorbs earlier runs that are not
   clearly larger, so there are few runs, and a row is moved few times.
3. A search goes through the runs from the newest; the first hit is the newest row.

The hash of a key of at most eight bytes is the key itself; for any other it is Python's hash of the
bytes, and each hit is compared with the real key.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import HASH_BYTES, Hashes, exact_hash, exact_hashes
from neve.model.arrow_buffers import Positions

_GROWTH: Final = 4
_HASH_MASK: Final = (1 << 64) - 1

INDEX_ROW_BYTES: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Rows by hash; the memory views are of the same arrays, to search for a single key."""

    hashes: Hashes
    positions: Positions
    hash_view: memoryview
    position_view: memoryview

    @classmethod
    def of(cls, hashes: Hashes, positions: Positions) -> "_Run":
        # Stable: positions of one hash stay ascending.
        order = np.argsort(hashes, kind="stable")
        hashes, positions = hashes[order], positions[order]
        return cls(hashes, positions, hashes.data, positions.data)

    def merged_with(self, newer: "_Run") -> "_Run":
        return _Run.of(
            np.concatenate((self.hashes, newer.hashes)),
            np.concatenate((self.positions, newer.positions)),
        )


class BatchIndex:
    """The first `batch_count` batches of a memtable by key; immutable."""

    __slots__ = ("_runs", "_width", "batch_count", "is_exact")

    def __init__(
        self, width: int | None, *, batch_count: int = 0, runs: tuple[_Run, ...] = ()
    ) -> None:
        self._width: Final = width
        self._runs: Final = runs
        self.batch_count: Final = batch_count
        self.is_exact: Final = width is not None and width <= HASH_BYTES

    def extended(self, added: Sequence[KeyArray], *, first_position: int) -> "BatchIndex":
        """Return an index that also holds these batches, which follow its own."""
        hashes = np.concatenate([self._hashes(keys) for keys in added])
        positions = np.arange(first_position, first_position + len(hashes), dtype=np.int64)
        run = _Run.of(hashes, positions)
        runs = list(self._runs)
        while runs and len(runs[-1].hashes) < _GROWTH * len(run.hashes):
            run = runs.pop().merged_with(run)
        return BatchIndex(self._width, batch_count=self.batch_count + len(added), runs=(*runs, run))

    def find(
        self, key: bytes, key_at: Callable[[int], bytes], *, before: int | None = None
    ) -> int | None:
        """Return the newest position of a key, lower than `before`; `key_at` returns real keys."""
        key_hash = exact_hash(key) if self.is_exact else hash(key) & _HASH_MASK
        for run in reversed(self._runs):
            hashes, positions = run.hash_view, run.position_view
            at = bisect_right(hashes, key_hash)
            if before is not None:
                at = bisect_left(positions, before, bisect_left(hashes, key_hash, 0, at), at)
            # More than one step only if two keys have the same hash.
            while at and hashes[at - 1] == key_hash:
                at -= 1
                position: int = positions[at]
                if self.is_exact or key_at(position) == key:
                    return position
        return None

    def find_many(self, keys: KeyArray, *, before: int | None = None) -> Positions:
        """Return the newest position of the hash of each key, lower than `before`; -1 for none.

        Two keys may have one hash, see `is_exact`: compare the real keys, and use `find` for those
        that differ.
        """
        hashes = self._hashes(keys)
        found = np.full(len(hashes), -1, np.int64)
        for run in reversed(self._runs):
            open_places = np.flatnonzero(found < 0)
            if not len(open_places):
                break
            wanted = hashes[open_places]
            at = np.searchsorted(run.hashes, wanted, side="right") - 1
            while before is not None:
                # Older rows of the same hash come just before.
                is_late = (at >= 0) & (run.hashes[at] == wanted) & (run.positions[at] >= before)
                if not is_late.any():
                    break
                at[is_late] -= 1
            is_hit = (at >= 0) & (run.hashes[at] == wanted)
            found[open_places[is_hit]] = run.positions[at[is_hit]]
        return found

    def _hashes(self, keys: KeyArray) -> Hashes:
        if self.is_exact and self._width is not None:
            return exact_hashes(keys, width=self._width)
        # A loop over rows, inside C functions: once per row of a searched batch.
        hashes = np.fromiter(map(hash, key_objects(keys)), np.int64, len(keys))
        return hashes.view(np.uint64)
