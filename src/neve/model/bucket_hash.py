"""What Iceberg's bucket transform hashes: one rule per type, for a column and for one value.

int32, int64, date, time   the number as a 64-bit little-endian integer
timestamp                  microseconds as the same; nanoseconds are rounded down first
decimal                    the unscaled number, shortest big-endian two's complement
string                     UTF-8
uuid, fixed, binary        the bytes
"""

import struct
from decimal import Decimal
from typing import Final, cast

import numpy as np
import pyarrow as pa

from neve.model.arrow_buffers import DECIMAL_BYTES, fixed_bytes, integers
from neve.model.bucket_hash import Hashes, hash_fixed, hash_longs, hash_one, hash_variable
from neve.model.plain_values import PlainValue, stored_array, unscaled_of
from neve.model.schema_view import ArrowArray

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
