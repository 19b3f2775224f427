"""One value of a key column to its bytes and back; the byte rules are in `key_encoding`.

`value_codec` picks the functions once per column, so that encoding a key does not look at types
again. Which Python values fit a type, and what they mean, is the same as in rows and said once, in
`neve.model.scalar_values`; a key refuses NULL and NaN besides. What decoding gives, encoding takes,
and makes the same bytes of it: a date or timestamp that Python cannot hold is an int both ways.

A value of exactly the class that is expected takes the quick way here. All others are converted.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final, TypeAlias, assert_never, cast
from uuid import UUID

import pyarrow as pa

from neve.errors import Corruption
from neve.keys.columns import KeyColumn, KeyKind
from neve.model.arrow_types import type_name
from neve.model.display import shown, shown_type
from neve.model.scalar_values import Raw, ToRaw, Unfit, scalar_form

EncodeValue: TypeAlias = Callable[[object], bytes]
DecodeValue: TypeAlias = Callable[[bytes, int], object]

# On disk: never change.
TERMINATOR: Final = b"\x00\x00"
NUL: Final = b"\x00"
NUL_ESCAPED: Final = b"\x00\xff"

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_MICROSECONDS: Final = 86_400_000_000

# Wider than any decimal128 can be, so that only real loss of digits is reported as inexact.
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """How one column's values become bytes and come back.

    `decode` takes the value's bytes, for text and binary without escapes and terminator, and the
    offset they came from, which a Corruption names.
    """

    encode: EncodeValue
    decode: DecodeValue


def value_codec(column: KeyColumn) -> ValueCodec:
    """Choose the functions for one column."""
    match column.kind:
        case KeyKind.BOOL:
            return _bool_codec(column)
        case KeyKind.INTEGER:
            return _integer_codec(column)
        case KeyKind.FLOAT:
            return _float_codec(column)
        case KeyKind.DECIMAL:
            return _decimal_codec(column)
        case KeyKind.DATE:
            return _date_codec(column)
        case KeyKind.TIME:
            return _time_codec(column)
        case KeyKind.TIMESTAMP:
            return _timestamp_codec(column)
        case KeyKind.FIXED:
            return _fixed_codec(column)
        case KeyKind.UUID:
            return _uuid_codec(column)
        case KeyKind.TEXT:
            return _text_codec(column)
        case KeyKind.BINARY:
            return _binary_codec(column)
    assert_never(column.kind)


def unescape(key: bytes, start: int) -> tuple[bytes, int]:
    """Read one text or binary value at `start`; gives its bytes and where the next one begins."""
    end = start
    # One turn per NUL byte of the value: a key is at most 65,535 bytes.
    while True:
        end = key.find(NUL, end)
        pair = key[end : end + 2]
        if end < 0 or len(pair) < len(TERMINATOR):
            raise Corruption("key ends inside a text or binary value", offset=len(key))
        if pair == TERMINATOR:
            return key[start:end].replace(NUL_ESCAPED, NUL), end + len(TERMINATOR)
        if pair != NUL_ESCAPED:
            raise Corruption(f"bad escape {pair.hex()} in a key", offset=end)
        end += len(NUL_ESCAPED)


def _converter(column: KeyColumn) -> ToRaw:
    """Make the function that checks any value and gives its raw form; it raises SchemaMismatch."""
    to_raw = scalar_form(column.type).to_raw

    def convert(value: object) -> Raw:
        if value is None:
            raise column.refuses("is NULL", hint="A key column always has a value: pass one")
        try:
            return to_raw(value)
        except Unfit as unfit:
            # Only the reason is told: a value may be secret, or too large to print.
            raise column.refuses(
                f"cannot hold the value: {unfit.reason}",
                hint=f"Pass a {type_name(column.type)} value",
            ) from None

    return convert


def _signed_bytes(column: KeyColumn) -> Callable[[int], bytes]:
    assert column.width is not None
    width = column.width
    bias = 1 << (8 * width - 1)
    return lambda number: (number + bias).to_bytes(width, "big")


def _signed_number(piece: bytes) -> int:
    return int.from_bytes(piece, "big") - (1 << (8 * len(piece) - 1))


def _bool_codec(column: KeyColumn) -> ValueCodec:
    convert = _converter(column)

    def encode(value: object) -> bytes:
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        return b"\x01" if convert(value) else b"\x00"

    def decode(piece: bytes, at: int) -> object:
        if piece[0] > 1:
            raise Corruption(f"byte {piece[0]:02x} is no bool of {shown(column.name)}", offset=at)
        return piece[0] == 1

    return ValueCodec(encode, decode)


def _integer_codec(column: KeyColumn) -> ValueCodec:
    assert column.width is not None
    width = column.width
    bias = 1 << (8 * width - 1)
    convert = _converter(column)

    # Written out instead of calling `_signed_bytes`: this is the most common key of all.
    def encode(value: object) -> bytes:
        try:
            if type(value) is int:
                return (value + bias).to_bytes(width, "big")
        except OverflowError:
            pass  # Converting says what is wrong.
        return (cast("int", convert(value)) + bias).to_bytes(width, "big")

    def decode(piece: bytes, _at: int) -> object:
        return int.from_bytes(piece, "big") - bias

    return ValueCodec(encode, decode)


def _float_codec(column: KeyColumn) -> ValueCodec:
    assert column.width is not None
    width = column.width
    layout = struct.Struct(">f" if column.type == pa.float32() else ">d")
    sign = 1 << (8 * width - 1)
    ones = (sign << 1) - 1
    convert = _converter(column)

    def encode(value: object) -> bytes:
        number = value if type(value) is float else cast("float", convert(value))
        if math.isnan(number):
            raise column.refuses(
                "is NaN", hint="A key has an order and NaN has none: pass a number"
            )
        try:
            piece = layout.pack(number)
        except OverflowError:
            piece = layout.pack(convert(value))
        bits = int.from_bytes(piece, "big")
        # Zero is looked for in the stored width: a tiny double may round to the float32 -0.0.
        if bits & sign and bits != sign:
            return (bits ^ ones).to_bytes(width, "big")
        return (bits | sign).to_bytes(width, "big")

    def decode(piece: bytes, at: int) -> object:
        bits = int.from_bytes(piece, "big")
        bits ^= sign if bits & sign else ones
        number: float = layout.unpack(bits.to_bytes(width, "big"))[0]
        if math.isnan(number) or bits == sign:
            raise Corruption(f"NaN or -0.0 in key column {shown(column.name)}", offset=at)
        return number

    return ValueCodec(encode, decode)


def _decimal_codec(column: KeyColumn) -> ValueCodec:
    assert isinstance(column.type, pa.Decimal128Type)
    scale = column.type.scale
    ceiling = 10**column.type.precision
    convert = _converter(column)

    def encode(value: object) -> bytes:
        # The same two's complement, in the other direction and with its sign flipped.
        stored = cast("bytes", convert(value))
        return bytes((stored[-1] ^ 0x80,)) + stored[-2::-1]

    def decode(piece: bytes, at: int) -> object:
        number = _signed_number(piece)
        if not -ceiling < number < ceiling:
            raise Corruption(
                f"too many digits for {shown_type(column.type)} {shown(column.name)}", offset=at
            )
        return Decimal(number).scaleb(-scale, context=_EXACT)

    return ValueCodec(encode, decode)


def _date_codec(column: KeyColumn) -> ValueCodec:
    to_bytes = _signed_bytes(column)
    convert = _converter(column)
    first = date.min.toordinal() - _EPOCH_ORDINAL
    last = date.max.toordinal() - _EPOCH_ORDINAL

    def encode(value: object) -> bytes:
        if type(value) is date:
            return to_bytes(value.toordinal() - _EPOCH_ORDINAL)
        return to_bytes(cast("int", convert(value)))

    def decode(piece: bytes, _at: int) -> object:
        days = _signed_number(piece)
        return date.fromordinal(days + _EPOCH_ORDINAL) if first <= days <= last else days

    return ValueCodec(encode, decode)


def _time_codec(column: KeyColumn) -> ValueCodec:
    to_bytes = _signed_bytes(column)
    convert = _converter(column)

    def encode(value: object) -> bytes:
        return to_bytes(cast("int", convert(value)))

    def decode(piece: bytes, at: int) -> object:
        number = _signed_number(piece)
        if not 0 <= number < _DAY_MICROSECONDS:
            raise Corruption(f"no time of day in key column {shown(column.name)}", offset=at)
        return (_EPOCH + timedelta(microseconds=number)).time()

    return ValueCodec(encode, decode)


def _timestamp_codec(column: KeyColumn) -> ValueCodec:
    assert isinstance(column.type, pa.TimestampType)
    zoned = column.type.tz is not None
    in_nanoseconds = column.type.unit == "ns"
    to_bytes = _signed_bytes(column)
    convert = _converter(column)
    # A datetime, or the number itself where the column counts nanoseconds.
    expected, quick = scalar_form(column.type).python_type, scalar_form(column.type).quick
    first = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    last = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND

    def encode(value: object) -> bytes:
        try:
            if type(value) is expected:
                return to_bytes(cast("int", value if quick is None else quick(value)))
        except (ValueError, OverflowError):
            pass  # Converting says what is wrong.
        return to_bytes(cast("int", convert(value)))

    def decode(piece: bytes, _at: int) -> object:
        number = _signed_number(piece)
        if in_nanoseconds or not first <= number <= last:
            return number
        moment = _EPOCH + timedelta(microseconds=number)
        return moment if zoned else moment.replace(tzinfo=None)

    return ValueCodec(encode, decode)


def _fixed_codec(column: KeyColumn) -> ValueCodec:
    width = column.width
    convert = _converter(column)

    def encode(value: object) -> bytes:
        if type(value) is bytes and len(value) == width:
            return value
        return cast("bytes", convert(value))

    return ValueCodec(encode, _as_is)


def _uuid_codec(column: KeyColumn) -> ValueCodec:
    convert = _converter(column)

    def encode(value: object) -> bytes:
        return value.bytes if type(value) is UUID else cast("bytes", convert(value))

    def decode(piece: bytes, _at: int) -> object:
        return UUID(bytes=piece)

    return ValueCodec(encode, decode)


def _text_codec(column: KeyColumn) -> ValueCodec:
    convert = _converter(column)

    def encode(value: object) -> bytes:
        try:
            if type(value) is str:
                return value.encode().replace(NUL, NUL_ESCAPED) + TERMINATOR
        except UnicodeEncodeError:
            pass  # Converting says what is wrong.
        return cast("bytes", convert(value)).replace(NUL, NUL_ESCAPED) + TERMINATOR

    def decode(raw: bytes, at: int) -> object:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Corruption(f"key column {shown(column.name)} is not UTF-8", offset=at) from None

    return ValueCodec(encode, decode)


def _binary_codec(column: KeyColumn) -> ValueCodec:
    convert = _converter(column)

    def encode(value: object) -> bytes:
        raw = value if type(value) is bytes else cast("bytes", convert(value))
        return raw.replace(NUL, NUL_ESCAPED) + TERMINATOR

    return ValueCodec(encode, _as_is)


def _as_is(piece: bytes, _at: int) -> object:
    return piece
