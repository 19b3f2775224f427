"""SortedRows: rows that ascend by key, with their keys, as a rewrite hands them on.

Keys of at most eight bytes are compared as 64-bit words, which sorts many times faster than bytes:

    key      00 00 01 F4   (four bytes, big-endian)
    word     500           the same bytes as one number; the order is the same
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import Corruption
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import fixed_bytes

Words: TypeAlias = npt.NDArray[np.uint64]

_WORD_BYTES: Final = 8


class SortedRows:
    """Rows of one input or of several, by key; only an empty one has no `first` and `last`."""

    __slots__ = ("keys", "rows", "words")

    def __init__(self, rows: pa.Table, keys: KeyArray, words: Words | None) -> None:
        self.rows = rows
        self.keys = keys
        self.words = words
        """None for keys that are longer than a word, or of varying length."""

    @classmethod
    def of(cls, rows: pa.Table, keys: KeyArray) -> Self:
        """Return a piece of rows and their keys."""
        assert rows.num_rows == len(keys)
        return cls(rows, keys, words_of(keys))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def first(self) -> bytes:
        """Key of the first row."""
        return self.key_at(0)

    @property
    def last(self) -> bytes:
        """Key of the last row."""
        return self.key_at(len(self.keys) - 1)

    def key_at(self, place: int) -> bytes:
        """Key of the row at a place."""
        key = self.keys[place].as_py()
        assert isinstance(key, bytes)
        return key

    def ascends(self) -> bool:
        """Whether each key is greater than the one before it."""
        if len(self) <= 1:
            return True
        if self.words is not None:
            return bool((self.words[1:] > self.words[:-1]).all())
        return pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py() is True

    def count_through(self, key: bytes) -> int:
        """Return how many rows have this key or a smaller one."""
        if self.words is not None:
            word = np.uint64(int.from_bytes(key, "big"))
            return int(np.searchsorted(self.words, word, side="right"))
        return bisect_right(range(len(self)), key, key=self.key_at)

    def split_at(self, place: int) -> tuple["SortedRows", "SortedRows"]:
        """Return the rows before a place and those from it on."""
        return self._between(0, place), self._between(place, len(self))

    def _between(self, start: int, stop: int) -> "SortedRows":
        words = None if self.words is None else self.words[start:stop]
        return SortedRows(
            self.rows.slice(start, stop - start), self.keys.slice(start, stop - start), words
        )


def merged(pieces: Sequence[SortedRows]) -> SortedRows:
    """Return the rows of pieces as one piece by key; raises Corruption for a repeated key."""
    rows = pa.concat_tables([piece.rows for piece in pieces])
    keys: KeyArray = pa.concat_arrays([piece.keys for piece in pieces])
    words = [piece.words for piece in pieces if piece.words is not None]
    order: object
    if len(words) == len(pieces):
        joined = np.concatenate(words)
        # Stable sorting finds the pieces, which ascend already, and only merges them.
        order = np.argsort(joined, kind="stable")
        result = SortedRows(rows.take(order), keys.take(order), joined[order])
    else:
        order = pc.sort_indices(keys)
        result = SortedRows(rows.take(order), keys.take(order), None)
    if not result.ascends():
        raise Corruption(
            f"two live rows have the key {_repeated_key(result).hex()}",
            hint="Run verify, and write the row of this key again: one of the two is stale",
        )
    return result


def words_of(keys: KeyArray) -> Words | None:
    """Return keys of a fixed width of at most eight bytes as numbers in the same order."""
    if not isinstance(keys, pa.FixedSizeBinaryArray) or keys.type.byte_width > _WORD_BYTES:
        return None
    width = keys.type.byte_width
    stored = fixed_bytes(keys, width=width)
    if width < _WORD_BYTES:
        padded = np.zeros((len(keys), _WORD_BYTES), dtype=np.uint8)
        padded[:, _WORD_BYTES - width :] = stored
        stored = padded
    return np.ascontiguousarray(stored).view(">u8").ravel().astype(np.uint64)


def _repeated_key(piece: SortedRows) -> bytes:
    repeated = pc.index(pc.equal(piece.keys[:-1], piece.keys[1:]), pa.scalar(value=True))
    return piece.key_at(repeated.as_py())
