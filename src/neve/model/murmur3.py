"""Murmur3, x86, 32 bits, seed 0: the hash behind Iceberg's bucket transform.

No library hashes an Arrow column: mmh3 takes one value per call. Values of one width are therefore
hashed here with NumPy, all rows at once; values of varying length go to mmh3 one by one. Both
give the signed 32-bit hash of exactly the bytes passed in.
"""

from typing import Final, TypeAlias

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes: TypeAlias = npt.NDArray[np.int32]

_BLOCK_BYTES: Final = 4
# Bounds the Python bytes alive at once while a long column is hashed.
_ROWS_PER_SLICE: Final = 65_536

_C1: Final = np.uint32(0xCC9E2D51)
_C2: Final = np.uint32(0x1B873593)
_ROUND_ADD: Final = np.uint32(0xE6546B64)
_ROUND_MULTIPLY: Final = np.uint32(5)
_FINAL_1: Final = np.uint32(0x85EBCA6B)
_FINAL_2: Final = np.uint32(0xC2B2AE35)


def hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    """Hash each number as eight little-endian bytes."""
    return hash_fixed(values.astype("<i8").view(np.uint8).reshape(len(values), 8))


def hash_fixed(rows: npt.NDArray[np.uint8]) -> Hashes:
    """Hash each row of a matrix of bytes."""
    width = rows.shape[1]
    whole = width - width % _BLOCK_BYTES
    state = np.zeros(len(rows), dtype=np.uint32)
    blocks = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    for position in range(whole // _BLOCK_BYTES):
        state ^= _scramble(blocks[:, position].astype(np.uint32))
        state = _rotate_left(state, 13) * _ROUND_MULTIPLY + _ROUND_ADD
    if whole < width:
        tail = np.zeros(len(rows), dtype=np.uint32)
        for position in range(whole, width):
            shift = np.uint32(8 * (position - whole))
            tail |= rows[:, position].astype(np.uint32) << shift
        state ^= _scramble(tail)
    state ^= np.uint32(width)
    state ^= state >> np.uint32(16)
    state *= _FINAL_1
    state ^= state >> np.uint32(13)
    state *= _FINAL_2
    state ^= state >> np.uint32(16)
    return state.view(np.int32)


def hash_variable(values: pa.BinaryArray) -> Hashes:
    """Hash each value of a binary column; the hash of a null means nothing."""
    hashes = np.empty(len(values), dtype=np.int32)
    for start in range(0, len(values), _ROWS_PER_SLICE):
        piece = values.slice(start, _ROWS_PER_SLICE).to_pylist()
        # One call per row: rows of different lengths take different numbers of rounds, and mmh3
        # is faster on them than masked NumPy. Bounded by the rows of the batch.
        hashes[start : start + len(piece)] = [mmh3.hash(value or b"") for value in piece]
    return hashes


def hash_one(value: bytes) -> int:
    """Hash one value."""
    return mmh3.hash(value)


def _scramble(block: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    block = block * _C1
    return _rotate_left(block, 15) * _C2


def _rotate_left(value: npt.NDArray[np.uint32], bits: int) -> npt.NDArray[np.uint32]:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))
