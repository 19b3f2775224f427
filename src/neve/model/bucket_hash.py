"""The hash of Iceberg's bucket transform: Murmur3, x86, 32 bits, seed 0, of a column or one value.

One rule per type says which bytes are hashed:

int32, int64, date, time   the number as a 64-bit little-endian integer
timestamp                  microseconds as the same; nanoseconds are rounded down first
decimal                    the unscaled number, shortest big-endian two's complement
string                     UTF-8
uuid, fixed, binary        the bytes

No library hashes an Arrow column: mmh3 takes one value per call. Values of one width are therefore
hashed here with NumPy, all rows at once; values of varying length go to mmh3 one by one.
"""

import struct
from decimal import Decimal
from typing import Final, TypeAlias, cast

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.model.arrow_buffers import DECIMAL_BYTES, fixed_bytes, integers
from neve.model.plain_values import PlainValue, stored_array, unscaled_of
from neve.model.schema_view import ArrowArray

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


_LONG: Final = struct.Struct("<q")
_NANOS_PER_MICRO: Final = 1_000


def hash_column(array: ArrowArray) -> Hashes:
    """Hash every value of a column; the hash of a NULL means nothing."""
    if isinstance(array, pa.StringArray | pa.BinaryArray):
        return hash_variable(cast("pa.BinaryArray", array.cast(pa.binary())))
    if pa.types.is_decimal128(array.type):
        return _hash_decimals(array)
    stored = stored_array(array)
    if pa.types.is_fixed_size_binary(stored.type):
        return hash_fixed(fixed_bytes(stored, width=stored.type.byte_width))
    numbers = integers(array)
    if isinstance(array.type, pa.TimestampType) and array.type.unit == "ns":
        numbers = np.floor_divide(numbers, _NANOS_PER_MICRO)
    return hash_longs(numbers)


def hash_value(value: PlainValue, type_: pa.DataType) -> int:
    """Hash one plain value of a column of type `type_`."""
    if isinstance(value, bytes):
        return hash_one(value)
    if isinstance(value, str):
        return hash_one(value.encode())
    if isinstance(value, Decimal):
        unscaled = unscaled_of(value, type_)
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return hash_one(unscaled.to_bytes(bits // 8 + 1, "big", signed=True))
    assert isinstance(value, int)
    if isinstance(type_, pa.TimestampType) and type_.unit == "ns":
        value //= _NANOS_PER_MICRO
    return hash_one(_LONG.pack(value))


def _hash_decimals(array: ArrowArray) -> Hashes:
    rows = fixed_bytes(array, width=DECIMAL_BYTES)[:, ::-1]
    negative = rows[:, 0] >> 7
    filler = np.where(negative, np.uint8(0xFF), np.uint8(0))
    # The last byte always stays, and so does a filler byte that carries the sign.
    useful = rows[:, :-1] != filler[:, None]
    first = np.where(useful.any(axis=1), useful.argmax(axis=1), DECIMAL_BYTES - 1)
    sign_lost = rows[np.arange(len(rows)), first] >> 7 != negative
    lengths = DECIMAL_BYTES - first + sign_lost
    hashes = np.zeros(len(rows), dtype=np.int32)
    # At most sixteen turns, one per length.
    for length in np.unique(lengths).tolist():
        chosen = lengths == length
        hashes[chosen] = hash_fixed(rows[chosen, DECIMAL_BYTES - length :])
    return hashes
