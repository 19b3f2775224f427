"""One value of a key column to its bytes and back; the byte rules are in `key_encoding`.

`value_codec` picks the functions once per column, so that encoding a key does not look at types
again. Values are those that pyarrow's `as_py` gives. Beyond that:

- a float column takes an int that it can hold exactly; a decimal column takes an int;
- a date or microsecond timestamp outside the years 1 to 9999, which Python's types cannot hold,
  is an int: days, or microseconds, since 1970;
- a nanosecond timestamp may be a datetime, and is always given back as an int, nanoseconds since
  1970: Python's datetime stops at microseconds.

What decoding gives, encoding takes, and makes the same bytes of it.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final, TypeAlias, assert_never
from uuid import UUID

import pyarrow as pa

from neve.errors import Corruption, SchemaMismatch
from neve.model.key_column import KeyColumn, KeyKind
from neve.model.shown_value import shown, shown_type

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


def _wrong_type(column: KeyColumn, value: object, *, wanted: str) -> SchemaMismatch:
    if value is None:
        return column.refuses("is NULL", hint=f"A key column always has a value: pass {wanted}")
    # Only the type is named: a value may be secret, or too large to print.
    return column.refuses(f"was given {type(value).__name__}", hint=f"Pass {wanted}")


def _signed_bytes(column: KeyColumn) -> Callable[[int], bytes]:
    assert column.width is not None
    width = column.width
    bias = 1 << (8 * width - 1)

    def to_bytes(number: int) -> bytes:
        try:
            return (number + bias).to_bytes(width, "big")
        except OverflowError:
            raise _out_of_range(column) from None

    return to_bytes


def _out_of_range(column: KeyColumn) -> SchemaMismatch:
    assert column.width is not None
    bits = 8 * column.width - 1
    return column.refuses(
        "was given a value out of range", hint=f"It holds -2^{bits} to 2^{bits} - 1 of its unit"
    )


def _signed_number(piece: bytes) -> int:
    return int.from_bytes(piece, "big") - (1 << (8 * len(piece) - 1))


def _bool_codec(column: KeyColumn) -> ValueCodec:
    def encode(value: object) -> bytes:
        if value is True:
            return b"\x01"
        if value is False:
            return b"\x00"
        raise _wrong_type(column, value, wanted="True or False")

    def decode(piece: bytes, at: int) -> object:
        if piece[0] > 1:
            raise Corruption(f"byte {piece[0]:02x} is no bool of {shown(column.name)}", offset=at)
        return piece[0] == 1

    return ValueCodec(encode, decode)


def _integer_codec(column: KeyColumn) -> ValueCodec:
    assert column.width is not None
    width = column.width
    bias = 1 << (8 * width - 1)

    # Written out instead of calling `_signed_bytes`: this is the most common key of all.
    def encode(value: object) -> bytes:
        if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
            raise _wrong_type(column, value, wanted="an int")
        try:
            return (value + bias).to_bytes(width, "big")
        except OverflowError:
            raise _out_of_range(column) from None

    def decode(piece: bytes, _at: int) -> object:
        return int.from_bytes(piece, "big") - bias

    return ValueCodec(encode, decode)


def _float_codec(column: KeyColumn) -> ValueCodec:
    assert column.width is not None
    width = column.width
    layout = struct.Struct(">f" if column.type == pa.float32() else ">d")
    sign = 1 << (8 * width - 1)
    ones = (sign << 1) - 1

    def exact(value: int) -> float:
        try:
            number = float(value)
            (kept,) = layout.unpack(layout.pack(number))
        except OverflowError:
            raise column.refuses("was given an int out of range", hint="Pass a float") from None
        if kept != value:
            raise column.refuses(
                "was given an int it cannot hold exactly",
                hint="Pass a float where rounding is meant",
            )
        return number

    def encode(value: object) -> bytes:
        if type(value) is not float:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise _wrong_type(column, value, wanted="a float")
            value = exact(value) if isinstance(value, int) else float(value)
        if math.isnan(value):
            raise column.refuses(
                "is NaN", hint="A key has an order and NaN has none: pass a number"
            )
        try:
            bits = int.from_bytes(layout.pack(value), "big")
        except OverflowError:
            raise column.refuses("was given a float out of range", hint="Use float64") from None
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
    unit = Decimal(1).scaleb(-scale)
    ceiling = 10**column.type.precision
    to_bytes = _signed_bytes(column)

    def too_large() -> SchemaMismatch:
        return column.refuses(
            "was given a value out of range", hint="Pass one with fewer digits before the point"
        )

    def unscaled(value: Decimal) -> int:
        if not value.is_finite():
            raise column.refuses("was given a Decimal without value", hint="Pass a finite one")
        if not value:
            return 0
        try:
            return int(value.quantize(unit, context=_EXACT).scaleb(scale, context=_EXACT))
        except Inexact:
            raise column.refuses(
                "was given a Decimal it cannot hold exactly",
                hint=f"Round it to {scale} decimal places",
            ) from None
        except InvalidOperation:
            raise too_large() from None

    def encode(value: object) -> bytes:
        if isinstance(value, Decimal):
            number = unscaled(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value * 10**scale
        else:
            raise _wrong_type(column, value, wanted="a Decimal")
        if not -ceiling < number < ceiling:
            raise too_large()
        return to_bytes(number)

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
    first = date.min.toordinal() - _EPOCH_ORDINAL
    last = date.max.toordinal() - _EPOCH_ORDINAL

    def encode(value: object) -> bytes:
        if isinstance(value, date) and not isinstance(value, datetime):
            return to_bytes(value.toordinal() - _EPOCH_ORDINAL)
        if type(value) is int and not first <= value <= last:
            return to_bytes(value)
        raise _wrong_type(column, value, wanted="a datetime.date")

    def decode(piece: bytes, _at: int) -> object:
        days = _signed_number(piece)
        return date.fromordinal(days + _EPOCH_ORDINAL) if first <= days <= last else days

    return ValueCodec(encode, decode)


def _time_codec(column: KeyColumn) -> ValueCodec:
    to_bytes = _signed_bytes(column)

    def encode(value: object) -> bytes:
        if not isinstance(value, time) or value.tzinfo is not None:
            raise _wrong_type(column, value, wanted="a datetime.time without time zone")
        return to_bytes(_microseconds_of_day(value))

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
    first = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    last = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
    wanted = "a datetime with a time zone" if zoned else "a datetime without time zone"

    def encode(value: object) -> bytes:
        if not isinstance(value, datetime):
            if type(value) is int and (in_nanoseconds or not first <= value <= last):
                return to_bytes(value)
            raise _wrong_type(column, value, wanted=wanted)
        try:
            offset = value.utcoffset()
            days = value.toordinal() - _EPOCH_ORDINAL
        except ValueError:  # pandas.NaT is a datetime that has no day
            raise column.refuses("was given no moment in time", hint=f"Pass {wanted}") from None
        if (offset is not None) != zoned:
            state = "without" if offset is None else "with"
            raise column.refuses(f"was given a datetime {state} time zone", hint=f"Pass {wanted}")
        microseconds = days * _DAY_MICROSECONDS + _microseconds_of_day(value)
        if offset is not None:
            microseconds -= offset // _MICROSECOND
        # pandas.Timestamp is a datetime that goes on below microseconds.
        nanoseconds: int = getattr(value, "nanosecond", 0)
        if in_nanoseconds:
            return to_bytes(microseconds * 1000 + nanoseconds)
        if nanoseconds:
            raise column.refuses(
                "was given nanoseconds", hint="Round it to microseconds, or use timestamp[ns]"
            )
        return to_bytes(microseconds)

    def decode(piece: bytes, _at: int) -> object:
        number = _signed_number(piece)
        if in_nanoseconds or not first <= number <= last:
            return number
        moment = _EPOCH + timedelta(microseconds=number)
        return moment if zoned else moment.replace(tzinfo=None)

    return ValueCodec(encode, decode)


def _microseconds_of_day(value: time | datetime) -> int:
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _fixed_codec(column: KeyColumn) -> ValueCodec:
    width = column.width

    def encode(value: object) -> bytes:
        if not isinstance(value, bytes):
            raise _wrong_type(column, value, wanted=f"{width} bytes")
        if len(value) != width:
            raise column.refuses(f"was given {len(value)} bytes", hint=f"Pass exactly {width}")
        return bytes(value)

    return ValueCodec(encode, _as_is)


def _uuid_codec(column: KeyColumn) -> ValueCodec:
    def encode(value: object) -> bytes:
        if not isinstance(value, UUID):
            raise _wrong_type(column, value, wanted="a uuid.UUID")
        return value.bytes

    def decode(piece: bytes, _at: int) -> object:
        return UUID(bytes=piece)

    return ValueCodec(encode, decode)


def _text_codec(column: KeyColumn) -> ValueCodec:
    def encode(value: object) -> bytes:
        if not isinstance(value, str):
            raise _wrong_type(column, value, wanted="a str")
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            raise column.refuses(
                f"was given a lone surrogate at character {error.start}",
                hint="Pass text that can be encoded as UTF-8, or use a binary column",
            ) from None
        return raw.replace(NUL, NUL_ESCAPED) + TERMINATOR

    def decode(raw: bytes, at: int) -> object:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Corruption(f"key column {shown(column.name)} is not UTF-8", offset=at) from None

    return ValueCodec(encode, decode)


def _binary_codec(column: KeyColumn) -> ValueCodec:
    def encode(value: object) -> bytes:
        if not isinstance(value, bytes):
            raise _wrong_type(column, value, wanted="bytes")
        return value.replace(NUL, NUL_ESCAPED) + TERMINATOR

    return ValueCodec(encode, _as_is)


def _as_is(piece: bytes, _at: int) -> object:
    return piece
