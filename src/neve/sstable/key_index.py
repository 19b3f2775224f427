"""KeyIndex: the positions of the keys of one data file, as a sorted array of hashes.

    exact hashes                     other hashes
    hashes    u64, ascending         hashes     u64, ascending
    position  is the array index     positions  u32 for each hash: 12 bytes a row

SSTABLE-12  Hashes ascend; exact ones strictly, since a file has one row per key.
SSTABLE-13  Of equal hashes the lower position comes first. A match is only a candidate.
SSTABLE-14  A position is below `row_count`.

One key is found in two steps: every 256th hash is also kept in a Python list, where a search makes
no new objects, and the stretch of 256 hashes it leads to is searched in the array. Many keys are
found by one search with their hashes in ascending order, which walks through the array once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from neve.errors import Corruption, LimitExceeded
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import Hashes, KeyHashes
from neve.model.arrow_buffers import Positions

StoredPositions: TypeAlias = npt.NDArray[np.uint32]

POSITIONS_MAX: Final = 1 << 32

_STRETCH_BITS: Final = 8
_STRETCH: Final = 1 << _STRETCH_BITS
_NOWHERE: Final = range(0)


class KeyIndex:
    """The hashes of one file; immutable, safe for many threads."""

    __slots__ = ("_fences", "_hashes", "_positions", "_view", "is_exact", "row_count")

    def __init__(self, hashes: Hashes, positions: StoredPositions | None) -> None:
        """Take arrays that obey the rules above: `build` makes them, `checked` checks them."""
        # Each search would first copy an array of another type or alignment.
        assert hashes.dtype == np.uint64
        assert hashes.flags.aligned
        assert positions is None or positions.dtype == np.uint32
        self.is_exact: Final = positions is None
        self.row_count: Final = len(hashes)
        self._hashes: Final = hashes
        self._positions: Final = positions
        self._view: Final = memoryview(hashes.data)
        # Made when first needed: two threads that make it at once make the same.
        self._fences: list[int] | None = None

    @classmethod
    def build(cls, keys: KeyArray, hashes: KeyHashes) -> "KeyIndex":
        """Index the ascending keys of a file; raises LimitExceeded for more than 2^32 rows."""
        if len(keys) > POSITIONS_MAX:
            raise LimitExceeded(
                f"a data file of {len(keys)} rows",
                limit=POSITIONS_MAX,
                actual=len(keys),
                hint="Write smaller files",
            )
        found = hashes.of(keys)
        if hashes.is_exact:
            return cls(found, None)
        order = np.argsort(found, kind="stable")
        return cls(found[order], order.astype(np.uint32))

    @classmethod
    def checked(cls, hashes: Hashes, positions: StoredPositions | None) -> "KeyIndex":
        """Take arrays that were read; raises Corruption when they break a rule."""
        before, behind = hashes[:-1], hashes[1:]
        in_order = before < behind if positions is None else before <= behind
        if not in_order.all():
            raise Corruption("SSTABLE-12: the hashes of a key index do not ascend")
        if positions is not None:
            if len(positions) != len(hashes):
                raise Corruption(
                    f"SSTABLE-14: a key index has {len(hashes)} hashes and {len(positions)} "
                    "positions"
                )
            if len(positions) and int(positions.max()) >= len(hashes):
                raise Corruption("SSTABLE-14: a key index leads beyond the last row")
        return cls(hashes, positions)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, whether in memory or mapped."""
        return self._hashes.nbytes + (0 if self._positions is None else self._positions.nbytes)

    @property
    def hashes(self) -> Hashes:
        """All hashes, ascending."""
        return self._hashes

    @property
    def positions(self) -> StoredPositions | None:
        """Position of the row of each hash; None where it is the hash's own index."""
        return self._positions

    def find_one(self, key_hash: int) -> int:
        """Return the position of the row with this exact hash, or -1."""
        assert self.is_exact, "other hashes have candidates"
        at = self._lower(key_hash)
        # There is no hash to compare with after the last one.
        if at < self.row_count and self._view[at] == key_hash:
            return at
        return -1

    def exact_finder(self) -> Callable[[bytes, int], int]:
        """Return a function of a key and its hash that does what `find_one` does in one call."""
        assert self.is_exact, "other hashes have candidates"
        fences, view, count = self._made_fences(), self._view, self.row_count

        def find(_key: bytes, key_hash: int) -> int:
            end = bisect_left(fences, key_hash) << _STRETCH_BITS
            at = 0
            if end:
                stop = end if end < count else count  # noqa: FURB136 - a call takes longer
                at = bisect_left(view, key_hash, end - _STRETCH + 1, stop)
            return at if at < count and view[at] == key_hash else -1

        return find

    def candidates(self, key_hash: int) -> range | list[int]:
        """Return the positions of all rows with this hash, ascending."""
        at = self._lower(key_hash)
        count, view = self.row_count, self._view
        if at == count or view[at] != key_hash:
            return _NOWHERE
        if self._positions is None:
            return range(at, at + 1)
        end = at + 1
        # Other keys of the same hash are rare, unless they were made on purpose.
        if end < count and view[end] == key_hash:
            end = bisect_right(view, key_hash, end + 1)
        found: list[int] = self._positions[at:end].tolist()
        return found

    def find_many(self, hashes: Hashes) -> tuple[Positions, Positions]:
        """Return all candidates of many hashes, in any order: place in `hashes`, and position.

        The pairs ascend by place, and those of one place by position.
        """
        assert hashes.dtype == np.uint64, "a search in another type would copy the whole index"
        if not self.row_count or not len(hashes):
            nothing = np.zeros(0, np.int64)
            return nothing, nothing
        if (hashes[:-1] <= hashes[1:]).all():
            return self._find_ascending(hashes)
        order = np.argsort(hashes)
        places, found = self._find_ascending(hashes[order])
        is_unique = bool((places[:-1] != places[1:]).all())
        places = order[places]
        if not is_unique:
            by_place = np.argsort(places, kind="stable")
            return places[by_place], found[by_place]
        # Walking over all places once costs less than sorting those found.
        at_place = np.full(len(hashes), -1)
        at_place[places] = found
        places = np.flatnonzero(at_place >= 0)
        return places, at_place[places]

    def lower_bound(self, key_hash: int) -> int:
        """Return the position of the first row whose exact hash is at least `key_hash`."""
        assert self.is_exact, "only exact hashes have an order"
        return self._lower(key_hash)

    def upper_bound(self, key_hash: int) -> int:
        """Return the position of the first row whose exact hash is above `key_hash`."""
        assert self.is_exact, "only exact hashes have an order"
        return self._lower(key_hash + 1)

    def _lower(self, key_hash: int) -> int:
        fences = self._fences
        if fences is None:
            fences = self._made_fences()
        # This many stretches begin below the hash: it is inside the last of them, or begins the
        # next.
        end = bisect_left(fences, key_hash) << _STRETCH_BITS
        if not end:
            return 0
        start = end - _STRETCH + 1
        return bisect_left(self._view, key_hash, start, min(end, self.row_count))

    def _made_fences(self) -> list[int]:
        fences: list[int] = self._fences or self._hashes[::_STRETCH].tolist()
        self._fences = fences
        return fences

    def _find_ascending(self, hashes: Hashes) -> tuple[Positions, Positions]:
        starts = self._hashes.searchsorted(hashes)
        hits = np.flatnonzero(self._hashes[np.minimum(starts, self.row_count - 1)] == hashes)
        found = starts[hits]
        if self._positions is None:
            return hits, found
        return self._with_equals(self._positions, hits, found, hashes[hits])

    def _with_equals(
        self, positions: StoredPositions, places: Positions, starts: Positions, hashes: Hashes
    ) -> tuple[Positions, Positions]:
        """Turn the first index of each found hash into the positions of all equal hashes."""
        behind = np.minimum(starts + 1, self.row_count - 1)
        if not ((self._hashes[behind] == hashes) & (behind > starts)).any():
            return places, positions[starts].astype(np.int64)
        counts = self._hashes.searchsorted(hashes, side="right") - starts
        firsts = np.cumsum(counts) - counts
        nth = np.arange(int(counts.sum())) - np.repeat(firsts, counts)
        indexes = np.repeat(starts, counts) + nth
        return np.repeat(places, counts), positions[indexes].astype(np.int64)
