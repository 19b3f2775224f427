"""The order of many keys at once, found by sorting numbers.

Keys of a fixed width of at most eight bytes are numbers (see `neve.keys.key_hashes`), and the order
of the numbers is theirs. All other keys are compared by their bytes:

1. Skip the prefix that all keys share.
2. Read the next eight bytes of each key as one big-endian number, zeros after its end, and sort
   the numbers. Keys mostly come as a few runs that ascend, and a stable sort only merges those.
3. Sort rows of the same number by the next eight bytes, and so on. Most of them are two rows of one
   key, which are in order already.
4. Keys that differ only by zeros at their end are the same number: the shorter one comes first.

        key       6e 75 6d 62 65 72 37   seven bytes; the order of numbers is that of the bytes:
        number    6e756d6265723700       the zero says "ended", and no byte is below it
"""

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import Corruption, Phrase, Wording
from neve.keys.arrays import as_large, concat_keys, key_at, key_place, key_spans, keys_ascend
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import HASH_BYTES, Hashes, exact_hash, exact_hashes
from neve.model.arrow_buffers import Flags, Positions, position_array

SortKey: TypeAlias = int | bytes
"""One key; all keys of a table are of the same kind."""

# Masks of a big-endian word, by how many of its bytes belong to the key.
_KEPT: Final = np.array(
    [(1 << 64) - (1 << 8 * (HASH_BYTES - count)) for count in range(HASH_BYTES + 1)], np.uint64
)
# Arrow sorts keys that are the same for more than this many words.
_TURNS_MAX: Final = 16


class RowKeys:
    """Ascending keys of rows: numbers where a number holds a key, otherwise bytes; immutable.

    With numbers, the same keys may also be kept as bytes. Callers then see the bytes; the numbers
    are only used to compare many keys.
    """

    __slots__ = ("_encoded", "_keys")

    def __init__(self, keys: Hashes | KeyArray, encoded: KeyArray | None = None) -> None:
        self._keys = keys
        self._encoded = encoded

    @classmethod
    def of(cls, encoded: KeyArray) -> "RowKeys":
        """Return keys that keep their bytes, in the form that compares fastest."""
        if isinstance(encoded, pa.FixedSizeBinaryArray) and encoded.type.byte_width <= HASH_BYTES:
            return cls(exact_hashes(encoded, width=encoded.type.byte_width), encoded)
        return cls(encoded)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def encoded(self) -> KeyArray:
        """The keys as bytes; only where they were kept."""
        if self._encoded is not None:
            return self._encoded
        assert not isinstance(self._keys, np.ndarray), "the bytes of these keys were not kept"
        return self._keys

    @property
    def keeps_bytes(self) -> bool:
        """Whether the keys were kept as bytes."""
        return self._encoded is not None or self.words is None

    @property
    def words(self) -> Hashes | None:
        """The keys as numbers, where a number holds a key."""
        return self._keys if isinstance(self._keys, np.ndarray) else None

    def at(self, place: int) -> SortKey:
        """Return the key at a place; -1 is the last."""
        if isinstance(self._keys, np.ndarray) and self._encoded is None:
            return int(self._keys[place])
        return key_at(self.encoded, place)

    def between(self, start: int, stop: int) -> "RowKeys":
        """Return the keys between two places."""
        encoded = None if self._encoded is None else self._encoded.slice(start, stop - start)
        if isinstance(self._keys, np.ndarray):
            return RowKeys(self._keys[start:stop], encoded)
        return RowKeys(self._keys.slice(start, stop - start))

    def filtered(self, kept: Flags) -> "RowKeys":
        """Return the keys that a mask keeps."""
        return self.taken(np.flatnonzero(kept))

    def taken(self, places: Positions) -> "RowKeys":
        """Return the keys at some places that ascend."""
        encoded = None if self._encoded is None else self._encoded.take(position_array(places))
        if isinstance(self._keys, np.ndarray):
            return RowKeys(self._keys[places], encoded)
        return RowKeys(self._keys.take(places))

    def count_below(self, bound: SortKey, *, inclusive: bool) -> int:
        """Count the keys below a bound, and the bound itself when inclusive."""
        if isinstance(self._keys, np.ndarray):
            word = np.uint64(bound if isinstance(bound, int) else exact_hash(bound))
            if inclusive:
                return int(np.searchsorted(self._keys, word, side="right"))
            return int(np.searchsorted(self._keys, word))
        assert isinstance(bound, bytes)
        return key_place(self._keys, bound, after=inclusive)

    def ascends(self) -> bool:
        """Return whether each key is above the one before it."""
        if isinstance(self._keys, np.ndarray):
            return bool((self._keys[1:] > self._keys[:-1]).all())
        return keys_ascend(self._keys)

    @staticmethod
    def joined(parts: Sequence["RowKeys"]) -> "RowKeys":
        """Return the concatenated keys of parts, which need not ascend."""
        if len(parts) == 1:
            return parts[0]
        words = [part.words for part in parts if part.words is not None]
        if not words:
            return RowKeys(concat_keys([part.encoded for part in parts]))
        keeps_bytes = all(part.keeps_bytes for part in parts)
        encoded = concat_keys([part.encoded for part in parts]) if keeps_bytes else None
        return RowKeys(np.concatenate(words), encoded)


def merged_order(parts: Sequence[RowKeys]) -> Positions:
    """Return the order by key of the rows of consecutive parts.

    Raises Corruption when a key occurs twice.
    """
    order, is_same = order_of(parts)
    if is_same.any():
        raise _repeated(parts, int(order[is_same.argmax()]))
    return order


def paired_order(left: Sequence[RowKeys], right: Sequence[RowKeys]) -> tuple[Positions, Flags]:
    """Return the order by key of rows on the left, part by part, then those on the right.

    For a key on both sides the left row comes first; the flags, one for each place in the order,
    say whether its key is on both. Raises Corruption when a key is twice on one side.
    """
    order, is_same = order_of([*left, *right])
    is_left = order < sum(map(len, left))
    is_repeated = is_same & (is_left[:-1] == is_left[1:])
    if is_repeated.any():
        raise _repeated([*left, *right], int(order[is_repeated.argmax()]))
    paired = np.zeros(len(order), np.bool_)
    paired[:-1] |= is_same
    paired[1:] |= is_same
    return order, paired


def order_of(parts: Sequence[RowKeys]) -> tuple[Positions, Flags]:
    """Return the order of keys in ascending parts; the sort is stable.

    The flags, one for each place in the order except the last, say where the next key is the same.
    """
    words = [part.words for part in parts if part.words is not None]
    if len(words) < len(parts):
        return byte_order([part.encoded for part in parts])
    # Parts ascend already: a stable sort only merges them.
    return _order_of_words(np.concatenate(words), is_stable=True)


def byte_order(parts: Sequence[KeyArray]) -> tuple[Positions, Flags]:
    """Return the same as `order_of`, for keys as bytes in ascending parts."""
    filled = [part for part in parts if len(part)]
    if sum(map(len, filled)) <= 1:
        return np.arange(len(filled)), np.zeros(0, np.bool_)
    # All keys lie between the lowest first key and the highest last key of the parts.
    lowest = min(key_at(part, 0) for part in filled)
    highest = max(key_at(part, -1) for part in filled)
    return _order_of_bytes(concat_keys(filled), lowest, highest, is_stable=True)


def sorted_groups(keys: KeyArray, width: int | None) -> tuple[Positions, Positions]:
    """Return the positions of keys in any order by key, and where in them each new key begins.

    Positions of one key are next to each other in any order.
    """
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if width is not None and width <= HASH_BYTES:
        words = exact_hashes(keys, width=width)
        order, is_same = _order_of_words(words, is_stable=False)
    else:
        whole = as_large(keys) if isinstance(keys, pa.FixedSizeBinaryArray) else keys
        bounds = cast("dict[str, bytes]", pc.min_max(whole).as_py())
        order, is_same = _order_of_bytes(keys, bounds["min"], bounds["max"], is_stable=False)
    return order, np.concatenate((np.zeros(1, np.int64), np.flatnonzero(~is_same) + 1))


def _order_of_words(words: Hashes, *, is_stable: bool) -> tuple[Positions, Flags]:
    if is_stable:
        order = np.argsort(words, kind="stable")
    elif bool((words[1:] >= words[:-1]).all()):
        order = np.arange(len(words))
    else:
        order = np.argsort(words)
    ordered = words[order]
    return order, ordered[:-1] == ordered[1:]


def _order_of_bytes(
    keys: KeyArray, lowest: bytes, highest: bytes, *, is_stable: bool
) -> tuple[Positions, Flags]:
    """Return the order of at least one key, all of them between two that they may equal."""
    bytes_of = _KeyBytes(keys)
    skipped = _alike(lowest, highest)
    order, is_same = _order_of_words(bytes_of.words(None, skipped), is_stable=is_stable)
    # Bounded by the words of the longest prefix that two keys share.
    for turn in range(1, _TURNS_MAX + 1):
        if not is_same.any():
            return order, is_same
        tied = _Tied(order, is_same)
        at = skipped + turn * HASH_BYTES
        if not bytes_of.any_beyond(tied.rows, at):
            return tied.sorted_by(bytes_of.lengths[tied.rows].astype(np.uint64))
        order, is_same = tied.sorted_by(bytes_of.words(tied.rows, at))
    return _ordered_by_arrow(keys)


class _KeyBytes:
    """Bytes of keys, padded so that a word can be read at any place."""

    __slots__ = ("_at_byte", "_end", "_starts", "lengths")

    def __init__(self, keys: KeyArray) -> None:
        memory, self._starts, ends = key_spans(keys)
        self.lengths: Positions = ends - self._starts
        self._end = len(memory)
        padded = np.zeros(self._end + HASH_BYTES, np.uint8)
        padded[: self._end] = memory
        self._at_byte = np.ndarray((self._end + 1,), ">u8", padded, strides=(1,))

    def words(self, rows: Positions | None, at: int) -> Hashes:
        """Return the eight bytes from a place on of keys, None for all, as numbers."""
        starts, lengths = self._starts, self.lengths
        if rows is not None:
            starts, lengths = starts[rows], lengths[rows]
        found: Hashes = self._at_byte[np.minimum(starts + at, self._end)].astype(np.uint64)
        found &= _KEPT[np.clip(lengths - at, 0, HASH_BYTES)]
        return found

    def any_beyond(self, rows: Positions, at: int) -> bool:
        """Return whether any of these keys continues after a place."""
        return bool((self.lengths[rows] > at).any())


class _Tied:
    """Rows that equal a neighbour as far as they were compared."""

    __slots__ = ("_begins", "_order", "_places", "rows")

    def __init__(self, order: Positions, is_same: Flags) -> None:
        is_tied = np.zeros(len(order), np.bool_)
        is_tied[:-1] = is_same
        is_tied[1:] |= is_same
        self._order = order
        self._places = np.flatnonzero(is_tied)
        # The first of each group is not the same as the one before it.
        self._begins = np.concatenate([[True], ~is_same])[self._places]
        self.rows: Positions = order[self._places]

    def sorted_by(self, numbers: Hashes) -> tuple[Positions, Flags]:
        """Return the order, and the rows still equal, after comparing these numbers too."""
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
    """Return the length of the common prefix."""
    count = min(len(one), len(other))
    differ = np.frombuffer(one, np.uint8, count) != np.frombuffer(other, np.uint8, count)
    return int(differ.argmax()) if differ.any() else count


def _ordered_by_arrow(keys: KeyArray) -> tuple[Positions, Flags]:
    order = pc.sort_indices(keys).to_numpy().astype(np.int64)
    by_key = keys.take(order)
    is_same = pc.equal(by_key.slice(0, len(by_key) - 1), by_key.slice(1))
    return order, is_same.to_numpy(zero_copy_only=False)


def _repeated(parts: Sequence[RowKeys], row: int) -> Corruption:
    joined = RowKeys.joined(parts)
    key = joined.at(row)
    shown = f"{key:016x}" if isinstance(key, int) else key.hex()
    return Corruption(
        f"two live rows have the key {shown}",
        hint=Wording(Phrase.WRITE_AGAIN),
    )
