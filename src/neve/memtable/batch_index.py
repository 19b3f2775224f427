"""BatchIndex: finds keys in Arrow batches that are only appended.

Rows of all batches are numbered in the order they were appended; these numbers are *positions*. A
run lists some of them by a word of their key, and positions of one word in ascending order:

    words      │ 3 │ 7 │ 7 │ 9 │ ...     ascending
    positions  │ 4 │ 0 │ 6 │ 2 │ ...     7 was written at 0 and again, newer, at 6

1. A batch costs nothing until the first search for a key.
2. Then all batches since the last search become one run. It absorbs earlier runs that are not
   clearly larger, so there are few runs, and a row is moved few times.
3. A search goes through the runs from the newest; the first hit is the newest row.

The word of a key of at most eight bytes is the key itself; for any other it is Python's hash of the
bytes, and each hit is compared with the real key.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import WORD_BYTES, Words, exact_word, exact_words
from neve.model.arrow_buffers import Positions

_GROWTH: Final = 4
_HASH_MASK: Final = (1 << 64) - 1

INDEX_ROW_BYTES: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """Rows by word; the memory views are of the same arrays, to search for a single key."""

    words: Words
    positions: Positions
    word_view: memoryview
    position_view: memoryview

    @classmethod
    def of(cls, words: Words, positions: Positions) -> "_Run":
        # Stable: positions of one word stay ascending.
        order = np.argsort(words, kind="stable")
        words, positions = words[order], positions[order]
        return cls(words, positions, words.data, positions.data)

    def merged_with(self, newer: "_Run") -> "_Run":
        return _Run.of(
            np.concatenate((self.words, newer.words)),
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
        self.is_exact: Final = width is not None and width <= WORD_BYTES

    def extended(self, added: Sequence[KeyArray], *, first_position: int) -> "BatchIndex":
        """Return an index that also holds these batches, which follow its own."""
        words = np.concatenate([self._words(keys) for keys in added])
        positions = np.arange(first_position, first_position + len(words), dtype=np.int64)
        run = _Run.of(words, positions)
        runs = list(self._runs)
        while runs and len(runs[-1].words) < _GROWTH * len(run.words):
            run = runs.pop().merged_with(run)
        return BatchIndex(self._width, batch_count=self.batch_count + len(added), runs=(*runs, run))

    def find(
        self, key: bytes, key_at: Callable[[int], bytes], *, before: int | None = None
    ) -> int | None:
        """Return the newest position of a key, lower than `before`; `key_at` returns real keys."""
        word = exact_word(key) if self.is_exact else hash(key) & _HASH_MASK
        for run in reversed(self._runs):
            words, positions = run.word_view, run.position_view
            at = bisect_right(words, word)
            if before is not None:
                at = bisect_left(positions, before, bisect_left(words, word, 0, at), at)
            # More than one step only if two keys have the same hash.
            while at and words[at - 1] == word:
                at -= 1
                position: int = positions[at]
                if self.is_exact or key_at(position) == key:
                    return position
        return None

    def find_many(self, keys: KeyArray, *, before: int | None = None) -> Positions:
        """Return the newest position of the word of each key, lower than `before`; -1 for none.

        Two keys may have one word, see `is_exact`: compare the real keys, and use `find` for those
        that differ.
        """
        words = self._words(keys)
        found = np.full(len(words), -1, np.int64)
        for run in reversed(self._runs):
            open_places = np.flatnonzero(found < 0)
            if not len(open_places):
                break
            wanted = words[open_places]
            at = np.searchsorted(run.words, wanted, side="right") - 1
            while before is not None:
                # Older rows of the same word come just before.
                is_late = (at >= 0) & (run.words[at] == wanted) & (run.positions[at] >= before)
                if not is_late.any():
                    break
                at[is_late] -= 1
            is_hit = (at >= 0) & (run.words[at] == wanted)
            found[open_places[is_hit]] = run.positions[at[is_hit]]
        return found

    def _words(self, keys: KeyArray) -> Words:
        if self.is_exact and self._width is not None:
            return exact_words(keys, width=self._width)
        # A loop over rows, inside C functions: once per row of a searched batch.
        hashes = np.fromiter(map(hash, key_objects(keys)), np.int64, len(keys))
        return hashes.view(np.uint64)
