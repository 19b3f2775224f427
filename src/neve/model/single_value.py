"""Iceberg's single-value form: how column bounds and partition values are stored as bytes.

    boolean                 00 or 01
    int, date               4 bytes, little-endian
    long, time, timestamp   8 bytes, little-endian
    float, double           IEEE 754, little-endian
    decimal                 shortest big-endian two's complement of the unscaled value
    string                  UTF-8
    uuid, fixed, binary     the bytes as they are

A number that was stored before its column was widened has its old length, and reads the same.
"""

import struct
from decimal import Decimal
from typing import Final, cast

import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.display import shown_type
from neve.model.plain_values import PlainValue, decimal_of, unscaled_of

_INT: Final = struct.Struct("<i")  # on disk: never change
_LONG: Final = struct.Struct("<q")
_FLOATS: Final = {4: struct.Struct("<f"), 8: struct.Struct("<d")}
_INTEGERS: Final = {4: _INT, 8: _LONG}
_FOUR_BYTES: Final = frozenset({TypeKind.INT, TypeKind.DATE})
_EIGHT_BYTES: Final = frozenset(
    {
        TypeKind.LONG,
        TypeKind.TIME,
        TypeKind.TIMESTAMP,
        TypeKind.TIMESTAMPTZ,
        TypeKind.TIMESTAMP_NS,
        TypeKind.TIMESTAMPTZ_NS,
    }
)


def encode_single_value(type_: pa.DataType, value: PlainValue) -> bytes:
    """Return the bytes of a plain value of a primitive type."""
    match kind_of(type_):
        case TypeKind.BOOLEAN:
            return b"\1" if value else b"\0"
        case kind if kind in _FOUR_BYTES:
            return _INT.pack(value)
        case kind if kind in _EIGHT_BYTES:
            return _LONG.pack(value)
        case TypeKind.FLOAT:
            return _FLOATS[4].pack(value)
        case TypeKind.DOUBLE:
            return _FLOATS[8].pack(value)
        case TypeKind.DECIMAL:
            unscaled = unscaled_of(cast("Decimal", value), type_)
            # A byte more than needed for 8n bits: the sign takes one of its own.
            length = ((unscaled + (unscaled < 0)).bit_length() + 8) // 8
            return unscaled.to_bytes(length, "big", signed=True)
        case TypeKind.STRING:
            return cast("str", value).encode()
        case _:
            return cast("bytes", value)


def decode_single_value(type_: pa.DataType, stored: bytes) -> PlainValue:
    """Return the plain value of stored bytes; raises Corruption when they are none of the type."""
    try:
        match kind_of(type_):
            case TypeKind.BOOLEAN:
                return {b"\0": False, b"\1": True}[stored]
            case kind if kind in _FOUR_BYTES or kind in _EIGHT_BYTES:
                return cast("int", _INTEGERS[len(stored)].unpack(stored)[0])
            case TypeKind.FLOAT | TypeKind.DOUBLE:
                return cast("float", _FLOATS[len(stored)].unpack(stored)[0])
            case TypeKind.DECIMAL:
                return decimal_of(int.from_bytes(stored, "big", signed=True), type_)
            case TypeKind.STRING:
                return stored.decode()
            case _:
                return stored
    except (KeyError, UnicodeDecodeError, struct.error) as error:
        raise Corruption(
            f"{stored[:32].hex()} is no stored value of {shown_type(type_)}"
        ) from error
