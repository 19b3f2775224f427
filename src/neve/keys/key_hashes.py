"""KeyHashes: keys as unsigned 64-bit numbers, which one array holds and one search finds.

A key of a fixed width of at most eight bytes is its own hash, read as a big-endian number. The
order of hashes is then the order of keys, and a hash identifies its key: the hashes are exact.

Of every other key it is the first half of its MurmurHash3 x64 128 with seed 0, as `mmh3` computes
it for one key. Two keys may share a hash, so each match has to be compared with the row's own key.

KEYS-5  `one(key)` is what `of` returns for the same key in a column.
KEYS-6  Hashes are stored (see `neve.sstable.index_file`): the hash of a key never changes.

How `of` hashes a column without a loop over rows:

1. A key is blocks of sixteen bytes, each two little-endian words, and a tail padded with zeros.
   Zeros change nothing: a word of zeros is mixed into the hash as zero.
2. Iteration n mixes block n of all keys that have one. The longest key decides the iterations, and
   keys that have ended are left out, so the work is linear in the bytes.
3. About ten thousand rows are hashed at a time: their words then stay in the processor's cache.
"""

from collections.abc import Callable
from typing import Final, TypeAlias, cast

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.keys.arrays import key_spans
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.arrow_buffers import Positions, fixed_bytes

Hashes: TypeAlias = npt.NDArray[np.uint64]

HASH_BYTES: Final = 8
_BLOCK_BYTES: Final = 16
_SEED: Final = 0  # on disk: never change
_ROWS_AT_ONCE: Final = 16_384

_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_END_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_END_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_FIVE: Final = np.uint64(5)
_ADD_1: Final = np.uint64(0x52DCE729)
_ADD_2: Final = np.uint64(0x38495AB5)
_WORD_BITS: Final = 64
_FOLD: Final = np.uint64(33)

# Masks of a little-endian word, by how many of its bytes belong to the key.
_KEPT: Final = np.array([(1 << 8 * count) - 1 for count in range(HASH_BYTES + 1)], np.uint64)


class KeyHashes:
    """How the keys of one table become hashes."""

    __slots__ = ("is_exact", "key_width", "one")

    def __init__(self, encoder: KeyEncoder) -> None:
        width = encoder.width
        self.is_exact: Final = width is not None and width <= HASH_BYTES
        self.key_width: Final = width if width is not None and self.is_exact else 0
        """Bytes of every key when hashes are exact, otherwise 0."""
        self.one: Final[Callable[[bytes], int]] = exact_hash if self.is_exact else _hash
        """Returns the hash of a whole key."""

    def first(self, key: bytes, *, after: bool = False) -> int:
        """Return the lowest hash whose key is not below `key`, or is above it when `after`.

        Only where hashes are exact. `key` may be any bytes, such as the bound of a range; for bytes
        above every key, the result is one past the highest hash.
        """
        assert self.is_exact, "only exact hashes have an order"
        width = self.key_width
        number = int.from_bytes(key[:width].ljust(width, b"\0"))
        # A key that is a prefix of longer bytes sorts before them.
        return number + (len(key) > width or (after and len(key) == width))

    def of(self, keys: KeyArray) -> Hashes:
        """Return the hashes of a column of keys, in its order."""
        if not self.is_exact:
            return _hashes(keys)
        return exact_hashes(keys, width=self.key_width)


def exact_hashes(keys: KeyArray, *, width: int) -> Hashes:
    """Return keys of a fixed width of at most eight bytes as numbers of the same order."""
    assert width <= HASH_BYTES, "a hash holds eight bytes"
    if not pa.types.is_fixed_size_binary(keys.type):
        keys = cast("KeyArray", keys.cast(pa.binary(width)))
    lines = fixed_bytes(keys, width=width)
    if width < HASH_BYTES:
        padded = np.zeros((len(keys), HASH_BYTES), np.uint8)
        padded[:, HASH_BYTES - width :] = lines
        lines = padded
    return lines.view(">u8").ravel().astype(np.uint64)


exact_hash: Final[Callable[[bytes], int]] = int.from_bytes
"""Returns one key of at most eight bytes as its number."""


def _hash(key: bytes) -> int:
    return mmh3.mmh3_x64_128_utupledigest(key, _SEED)[0]


def _hashes(keys: KeyArray) -> Hashes:
    memory, starts, ends = key_spans(keys)
    lengths = ends - starts
    # Padded, so that eight bytes can be read at every byte of a key, and at the end.
    padded = np.zeros(len(memory) + _BLOCK_BYTES, np.uint8)
    padded[: len(memory)] = memory
    at_byte = np.ndarray((len(memory) + HASH_BYTES,), "<u8", padded, strides=(1,))
    hashes = np.empty(len(keys), np.uint64)
    for first in range(0, len(keys), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        hashes[rows] = _murmur3(at_byte, starts[rows], lengths[rows])
    return hashes


def _murmur3(at_byte: Hashes, starts: Positions, lengths: Positions) -> Hashes:
    low = np.full(len(starts), _SEED, np.uint64)
    high = low.copy()
    blocks = lengths // _BLOCK_BYTES
    longest = int(blocks.max(initial=0))
    shortest = int(blocks.min(initial=longest))
    # At most KEY_BYTES_MAX / 16 iterations.
    for turn in range(longest):
        if turn < shortest:
            low, high = _mix(low, high, at_byte, starts + turn * _BLOCK_BYTES)
        else:
            rows = np.flatnonzero(blocks > turn)
            begins = starts[rows] + turn * _BLOCK_BYTES
            low[rows], high[rows] = _mix(low[rows], high[rows], at_byte, begins)
    tails = starts + blocks * _BLOCK_BYTES
    left = lengths % _BLOCK_BYTES
    if int(left.max(initial=0)) > HASH_BYTES:
        # A key without a second word ignores what follows its first.
        seconds = np.where(left > HASH_BYTES, tails + HASH_BYTES, 0)
        high ^= _mixed_high(at_byte[seconds] & _KEPT[np.maximum(left - HASH_BYTES, 0)])
    low ^= _mixed_low(at_byte[tails] & _KEPT[np.minimum(left, HASH_BYTES)])
    return _finish(low, high, lengths.astype(np.uint64))


def _mix(low: Hashes, high: Hashes, at_byte: Hashes, begins: Positions) -> tuple[Hashes, Hashes]:
    low = low ^ _mixed_low(at_byte[begins])
    low = (_rotated(low, 27) + high) * _FIVE + _ADD_1
    high = high ^ _mixed_high(at_byte[begins + HASH_BYTES])
    high = (_rotated(high, 31) + low) * _FIVE + _ADD_2
    return low, high


def _mixed_low(word: Hashes) -> Hashes:
    return _rotated(word * _C1, 31) * _C2


def _mixed_high(word: Hashes) -> Hashes:
    return _rotated(word * _C2, 33) * _C1


def _rotated(word: Hashes, bits: int) -> Hashes:
    return (word << np.uint64(bits)) | (word >> np.uint64(_WORD_BITS - bits))


def _finish(low: Hashes, high: Hashes, lengths: Hashes) -> Hashes:
    low = low ^ lengths
    high = high ^ lengths
    low = low + high
    high = high + low
    return _folded(low) + _folded(high)


def _folded(word: Hashes) -> Hashes:
    word = (word ^ (word >> _FOLD)) * _END_1
    word = (word ^ (word >> _FOLD)) * _END_2
    return word ^ (word >> _FOLD)
