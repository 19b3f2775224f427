"""The order of keys that are compared by their bytes, found by sorting numbers.

1. Leave out the bytes with which all keys begin.
2. Read the next eight bytes of each key as one big-endian number, zeros behind its end, and sort
   the numbers. Keys mostly come as a few runs that ascend, and a stable sort only merges those.
3. Rows whose numbers are the same are sorted among themselves by the next eight bytes, and so on.
   Most of them are two rows of one key, which are in order already.
4. Keys that differ by zeros at their end alone are the same number: the shorter one comes first.

        key       6e 75 6d 62 65 72 37   seven bytes; the order of numbers is that of the bytes:
        number    6e756d6265723700       the zero says "ended", and no byte is below it
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from neve.keys.arrays import as_large, concat_keys, key_at
from neve.keys.columns import KeyArray

_Positions: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]
_Numbers: TypeAlias = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8
# What is left of a big-endian word of which only so many bytes belong to the key.
_KEPT: Final = np.array(
    [(1 << 64) - (1 << 8 * (_WORD_BYTES - count)) for count in range(_WORD_BYTES + 1)], np.uint64
)
# Keys that are the same for longer than this many words are left to Arrow.
_TURNS_MAX: Final = 16


def byte_order(parts: Sequence[KeyArray]) -> tuple[_Positions, _Flags]:
    """Return the order of keys that lie behind one another, in parts that ascend each.

    Equal keys stay as they come. The flags, one for each place in the order but the last, say
    where the next key is the same.
    """
    filled = [part for part in parts if len(part)]
    if sum(map(len, filled)) <= 1:
        return np.arange(len(filled)), np.zeros(0, np.bool_)
    keys = concat_keys(filled)
    bytes_of = _KeyBytes(keys)
    # All keys lie between the first of some part and the last of some.
    lowest = min(key_at(part, 0) for part in filled)
    skipped = _alike(lowest, max(key_at(part, -1) for part in filled))
    words = bytes_of.words(None, skipped)
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    is_same = ordered[:-1] == ordered[1:]
    # Bounded: as many turns as the longest keys that are alike have words.
    for turn in range(1, _TURNS_MAX + 1):
        if not is_same.any():
            return order, is_same
        tied = _Tied(order, is_same)
        at = skipped + turn * _WORD_BYTES
        if not bytes_of.any_beyond(tied.rows, at):
            return tied.sorted_by(bytes_of.lengths[tied.rows].astype(np.uint64))
        order, is_same = tied.sorted_by(bytes_of.words(tied.rows, at))
    return _ordered_by_arrow(keys)


class _KeyBytes:
    """Bytes of keys, from which a word can be read at any place."""

    __slots__ = ("_at_byte", "_end", "_starts", "lengths")

    def __init__(self, keys: KeyArray) -> None:
        large = as_large(keys)
        _, offsets, values = large.buffers()
        assert offsets is not None
        ends = np.frombuffer(memoryview(offsets), np.int64)
        ends = ends[large.offset : large.offset + len(large) + 1]
        self.lengths: _Positions = np.diff(ends)
        self._starts = ends[:-1] - ends[0]
        self._end = int(ends[-1] - ends[0])
        padded = np.zeros(self._end + _WORD_BYTES, np.uint8)
        if values is not None:
            padded[: self._end] = np.frombuffer(memoryview(values), np.uint8)[ends[0] : ends[-1]]
        self._at_byte = np.ndarray((self._end + 1,), ">u8", padded, strides=(1,))

    def words(self, rows: _Positions | None, at: int) -> _Numbers:
        """Return the eight bytes from a place on of keys, None for all, as numbers."""
        starts, lengths = self._starts, self.lengths
        if rows is not None:
            starts, lengths = starts[rows], lengths[rows]
        found: _Numbers = self._at_byte[np.minimum(starts + at, self._end)].astype(np.uint64)
        found &= _KEPT[np.clip(lengths - at, 0, _WORD_BYTES)]
        return found

    def any_beyond(self, rows: _Positions, at: int) -> bool:
        """Return whether any of these keys goes on behind a place."""
        return bool((self.lengths[rows] > at).any())


class _Tied:
    """Rows that are the same as a neighbour as far as they were compared."""

    __slots__ = ("_begins", "_order", "_places", "rows")

    def __init__(self, order: _Positions, is_same: _Flags) -> None:
        is_tied = np.zeros(len(order), np.bool_)
        is_tied[:-1] = is_same
        is_tied[1:] |= is_same
        self._order = order
        self._places = np.flatnonzero(is_tied)
        # The first of each group is not the same as the one before it.
        self._begins = np.concatenate([[True], ~is_same])[self._places]
        self.rows: _Positions = order[self._places]

    def sorted_by(self, numbers: _Numbers) -> tuple[_Positions, _Flags]:
        """Return the order, and what is the same, once numbers of these rows were compared too."""
        is_ascending = (numbers[:-1] <= numbers[1:]) | self._begins[1:]
        order = self._order
        if not is_ascending.all():
            by_number = np.lexsort((numbers, np.cumsum(self._begins)))
            order = order.copy()
            order[self._places] = self.rows[by_number]
            numbers = numbers[by_number]
        is_same = np.zeros(len(order) - 1, np.bool_)
        is_same[self._places[:-1]] = (numbers[:-1] == numbers[1:]) & ~self._begins[1:]
        return order, is_same


def _alike(one: bytes, other: bytes) -> int:
    """Return with how many bytes both begin."""
    count = min(len(one), len(other))
    differ = np.frombuffer(one, np.uint8, count) != np.frombuffer(other, np.uint8, count)
    return int(differ.argmax()) if differ.any() else count


def _ordered_by_arrow(keys: KeyArray) -> tuple[_Positions, _Flags]:
    order = pc.sort_indices(keys).to_numpy().astype(np.int64)
    by_key = keys.take(order)
    is_same = pc.equal(by_key.slice(0, len(by_key) - 1), by_key.slice(1))
    return order, is_same.to_numpy(zero_copy_only=False)
