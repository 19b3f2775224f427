"""RowKeys: keys of rows that ascend, as an ordered scan compares them.

keys of at most eight bytes      their words, one number each
all others                       their bytes, as Arrow holds them
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import Words
from neve.keys.order import byte_order

SortKey: TypeAlias = int | bytes
"""One key; all keys of a table are of the same kind."""
Positions: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class RowKeys:
    """Ascending keys; immutable."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Words | KeyArray) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def at(self, place: int) -> SortKey:
        """Return the key at a place; -1 is the last."""
        if isinstance(self._keys, np.ndarray):
            return int(self._keys[place])
        return key_at(self._keys, place)

    def between(self, start: int, stop: int) -> "RowKeys":
        """Return the keys from a place up to another."""
        if isinstance(self._keys, np.ndarray):
            return RowKeys(self._keys[start:stop])
        return RowKeys(self._keys.slice(start, stop - start))

    def filtered(self, kept: Flags) -> "RowKeys":
        """Return the keys that are kept."""
        if isinstance(self._keys, np.ndarray):
            return RowKeys(self._keys[kept])
        return RowKeys(self._keys.filter(pa.array(kept)))

    def taken(self, places: Positions) -> "RowKeys":
        """Return the keys at some places that ascend."""
        if isinstance(self._keys, np.ndarray):
            return RowKeys(self._keys[places])
        return RowKeys(self._keys.take(places))

    def count_below(self, bound: SortKey, *, inclusive: bool) -> int:
        """Count the keys below a bound, and the bound itself when inclusive."""
        if isinstance(self._keys, np.ndarray):
            assert isinstance(bound, int)
            word = np.uint64(bound)
            if inclusive:
                return int(np.searchsorted(self._keys, word, side="right"))
            return int(np.searchsorted(self._keys, word))
        assert isinstance(bound, bytes)
        return key_place(self._keys, bound, after=inclusive)


def key_place(keys: KeyArray, bound: bytes, *, after: bool = False) -> int:
    """Count the ascending keys below a bound, and the bound itself when `after`."""
    bisect = bisect_right if after else bisect_left
    return bisect(range(len(keys)), bound, key=lambda place: key_at(keys, place))


def merged_order(parts: Sequence[RowKeys]) -> Positions:
    """Return the order by key of rows that lie behind one another, part by part.

    Raises Corruption when a key is there twice.
    """
    order, is_same = _order(parts)
    if is_same.any():
        raise _repeated()
    return order


def paired_order(left: Sequence[RowKeys], right: Sequence[RowKeys]) -> tuple[Positions, Flags]:
    """Return the order by key of rows on the left, part by part, then those on the right.

    Of a key on both sides the left row comes first; the flags, one for each place in the order, say
    whether its key is on both. Raises Corruption when a key is twice on one side.
    """
    order, is_same = _order([*left, *right])
    is_left = order < sum(map(len, left))
    if (is_same & (is_left[:-1] == is_left[1:])).any():
        raise _repeated()
    paired = np.zeros(len(order), np.bool_)
    paired[:-1] |= is_same
    paired[1:] |= is_same
    return order, paired


def _order(parts: Sequence[RowKeys]) -> tuple[Positions, Flags]:
    """Return the order by key, equal ones as they come, and where the next key is the same."""
    arrays = [part._keys for part in parts]  # noqa: SLF001 - of the same kind
    words = [each for each in arrays if isinstance(each, np.ndarray)]
    if len(words) < len(arrays):
        return byte_order([each for each in arrays if not isinstance(each, np.ndarray)])
    joined = np.concatenate(words)
    # Parts ascend already: a stable sort only merges them.
    order = np.argsort(joined, kind="stable")
    ordered = joined[order]
    return order, ordered[:-1] == ordered[1:]


def _repeated() -> Corruption:
    return Corruption(
        "two live rows of the table have the same key",
        hint="Run verify, and write the rows of this key again: one of the two is stale",
    )
