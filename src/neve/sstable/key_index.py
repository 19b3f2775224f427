"""KeyIndex: the positions of the keys of one data file, as a sorted array of search words.

    exact words                      hashed words
    words     u64, ascending         words      u64, ascending
    position  is the array index     positions  u32 for each word: 12 bytes a row

SSTABLE-12  Words ascend; exact ones strictly, since a file has one row per key.
SSTABLE-13  Hashed: of equal words the lower position comes first. A match is only a candidate.
SSTABLE-14  A position is below `row_count`.

One key is found in two steps: every 256th word is also kept in a Python list, where a search makes
no new objects, and the stretch of 256 words it leads to is searched in the array. Many keys are
found by one search with their words in ascending order, which walks through the array once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neve.errors import Corruption, LimitExceeded
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import KeyHashes, Words
from neve.model.arrow_buffers import Positions

StoredPositions: TypeAlias = npt.NDArray[np.uint32]

POSITIONS_MAX: Final = 1 << 32

_STRETCH_BITS: Final = 8
_STRETCH: Final = 1 << _STRETCH_BITS
_NOWHERE: Final = range(0)


class KeyIndex:
    """The search words of one file; immutable, safe for many threads."""

    __slots__ = ("_fences", "_positions", "_view", "_words", "is_exact", "row_count")

    def __init__(self, words: Words, positions: StoredPositions | None) -> None:
        """Take arrays that obey the rules above: `build` makes them, `checked` checks them."""
        # Each search would first copy an array of another type or alignment.
        assert words.dtype == np.uint64
        assert words.flags.aligned
        assert positions is None or positions.dtype == np.uint32
        self.is_exact: Final = positions is None
        self.row_count: Final = len(words)
        self._words: Final = words
        self._positions: Final = positions
        self._view: Final = memoryview(words.data)
        # Made when first needed: two threads that make it at once make the same.
        self._fences: list[int] | None = None

    @classmethod
    def build(cls, keys: KeyArray, words: KeyHashes) -> "KeyIndex":
        """Index the ascending keys of a file; raises LimitExceeded for more than 2^32 rows."""
        if len(keys) > POSITIONS_MAX:
            raise LimitExceeded(
                f"a data file of {len(keys)} rows",
                limit=POSITIONS_MAX,
                actual=len(keys),
                hint="Write smaller files",
            )
        found = words.words(keys)
        if words.is_exact:
            return cls(found, None)
        order = np.argsort(found, kind="stable")
        return cls(found[order], order.astype(np.uint32))

    @classmethod
    def checked(cls, words: Words, positions: StoredPositions | None) -> "KeyIndex":
        """Take arrays that were read; raises Corruption when they break a rule."""
        before, behind = words[:-1], words[1:]
        in_order = before < behind if positions is None else before <= behind
        if not in_order.all():
            raise Corruption("SSTABLE-12: the words of a key index do not ascend")
        if positions is not None:
            if len(positions) != len(words):
                raise Corruption(
                    f"SSTABLE-14: a key index has {len(words)} words and {len(positions)} positions"
                )
            if len(positions) and int(positions.max()) >= len(words):
                raise Corruption("SSTABLE-14: a key index leads beyond the last row")
        return cls(words, positions)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, whether in memory or mapped."""
        return self._words.nbytes + (0 if self._positions is None else self._positions.nbytes)

    @property
    def words(self) -> Words:
        """All words, ascending."""
        return self._words

    @property
    def positions(self) -> StoredPositions | None:
        """Position of the row of each word; None where it is the word's own index."""
        return self._positions

    def find_one(self, word: int) -> int:
        """Return the position of the row with this exact word, or -1."""
        assert self.is_exact, "a hashed word has candidates"
        at = self._lower(word)
        # There is no word to compare with after the last one.
        if at < self.row_count and self._view[at] == word:
            return at
        return -1

    def exact_finder(self) -> Callable[[bytes, int], int]:
        """Return a function of a key and its word that does what `find_one` does in one call."""
        assert self.is_exact, "a hashed word has candidates"
        fences, view, count = self._made_fences(), self._view, self.row_count

        def find(_key: bytes, word: int) -> int:
            end = bisect_left(fences, word) << _STRETCH_BITS
            at = 0
            if end:
                stop = end if end < count else count  # noqa: FURB136 - a call takes longer
                at = bisect_left(view, word, end - _STRETCH + 1, stop)
            return at if at < count and view[at] == word else -1

        return find

    def candidates(self, word: int) -> range | list[int]:
        """Return the positions of all rows with this word, ascending."""
        at = self._lower(word)
        count, view = self.row_count, self._view
        if at == count or view[at] != word:
            return _NOWHERE
        if self._positions is None:
            return range(at, at + 1)
        end = at + 1
        # Other keys of the same hash are rare, unless they were made on purpose.
        if end < count and view[end] == word:
            end = bisect_right(view, word, end + 1)
        found: list[int] = self._positions[at:end].tolist()
        return found

    def find_many(self, words: Words) -> tuple[Positions, Positions]:
        """Return all candidates of many words, in any order: place in `words`, and position.

        The pairs ascend by place, and those of one place by position.
        """
        assert words.dtype == np.uint64, "a search in another type would copy the whole index"
        if not self.row_count or not len(words):
            nothing = np.zeros(0, np.int64)
            return nothing, nothing
        if (words[:-1] <= words[1:]).all():
            return self._find_ascending(words)
        order = np.argsort(words)
        places, found = self._find_ascending(words[order])
        is_unique = bool((places[:-1] != places[1:]).all())
        places = order[places]
        if not is_unique:
            by_place = np.argsort(places, kind="stable")
            return places[by_place], found[by_place]
        # Walking over all places once costs less than sorting those found.
        at_place = np.full(len(words), -1)
        at_place[places] = found
        places = np.flatnonzero(at_place >= 0)
        return places, at_place[places]

    def lower_bound(self, word: int) -> int:
        """Return the position of the first row whose exact word is at least `word`."""
        assert self.is_exact, "hashed words have no order"
        return self._lower(word)

    def upper_bound(self, word: int) -> int:
        """Return the position of the first row whose exact word is above `word`."""
        assert self.is_exact, "hashed words have no order"
        return self._lower(word + 1)

    def _lower(self, word: int) -> int:
        fences = self._fences
        if fences is None:
            fences = self._made_fences()
        # This many stretches begin below the word: it is inside the last of them, or begins the
        # next.
        end = bisect_left(fences, word) << _STRETCH_BITS
        if not end:
            return 0
        start = end - _STRETCH + 1
        return bisect_left(self._view, word, start, min(end, self.row_count))

    def _made_fences(self) -> list[int]:
        fences: list[int] = self._fences or self._words[::_STRETCH].tolist()
        self._fences = fences
        return fences

    def _find_ascending(self, words: Words) -> tuple[Positions, Positions]:
        starts = self._words.searchsorted(words)
        hits = np.flatnonzero(self._words[np.minimum(starts, self.row_count - 1)] == words)
        found = starts[hits]
        if self._positions is None:
            return hits, found
        return self._with_equals(self._positions, hits, found, words[hits])

    def _with_equals(
        self, positions: StoredPositions, places: Positions, starts: Positions, words: Words
    ) -> tuple[Positions, Positions]:
        """Turn the first index of each found word into the positions of all equal words."""
        behind = np.minimum(starts + 1, self.row_count - 1)
        if not ((self._words[behind] == words) & (behind > starts)).any():
            return places, positions[starts].astype(np.int64)
        counts = self._words.searchsorted(words, side="right") - starts
        firsts = np.cumsum(counts) - counts
        nth = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
        indexes = np.repeat(starts, counts) + nth
        return np.repeat(places, counts), positions[indexes].astype(np.int64)
