"""KeyColumn: the Arrow types a primary key may have, and one value to its bytes and back.

    kind        Arrow types                                        bytes in a key
    BOOL        bool                                               1
    INTEGER     int32, int64                                       4, 8
    FLOAT       float32, float64                                   4, 8
    DECIMAL     decimal128(precision, scale)                       16
    DATE        date32                                             4
    TIME        time64[us]                                         8
    TIMESTAMP   timestamp[us], timestamp[ns], each naive or UTC    8
    FIXED       fixed_size_binary(n)                               n
    UUID        uuid                                               16
    TEXT        string                                             varies
    BINARY      binary                                             varies

`neve.keys.encoding` describes the bytes.

`value_codec` picks the functions once per column, so that encoding a key does not look at types
again. A key accepts the same Python values as a row, see `neve.model.scalar_values`, except NULL
and NaN. Encoding a decoded value returns the same bytes: a date or timestamp that Python cannot
hold is an int both ways.

A value of exactly the expected class takes the quick way. All others are converted.
"""

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from enum import StrEnum
from typing import Final, TypeAlias, assert_never, cast
from uuid import UUID

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, LimitExceeded, SchemaMismatch
from neve.kernel import is_compiled, kernel
from neve.model.arrow_types import type_name
from neve.model.display import EPOCH, shown, shown_type
from neve.model.scalar_values import Raw, ToRaw, Unfit, scalar_form

# pyarrow's classes take type arguments in the stubs only, hence the quotes.
ArrowArray: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
ArrowColumn: TypeAlias = "ArrowArray | pa.ChunkedArray[pa.Scalar[pa.DataType]]"
KeyArray: TypeAlias = pa.FixedSizeBinaryArray | pa.BinaryArray | pa.LargeBinaryArray

KEY_BYTES_MAX: Final = 65_535  # a written key's length fits in 16 bits


class KeyKind(StrEnum):
    """Families of key columns that share one encoding."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    FIXED = "fixed"
    UUID = "uuid"
    TEXT = "text"
    BINARY = "binary"


_LAYOUTS: Final[dict[pa.DataType, tuple[KeyKind, int | None]]] = {
    pa.bool_(): (KeyKind.BOOL, 1),
    pa.int32(): (KeyKind.INTEGER, 4),
    pa.int64(): (KeyKind.INTEGER, 8),
    pa.float32(): (KeyKind.FLOAT, 4),
    pa.float64(): (KeyKind.FLOAT, 8),
    pa.date32(): (KeyKind.DATE, 4),
    pa.time64("us"): (KeyKind.TIME, 8),
    pa.timestamp("us"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("us", tz="UTC"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("ns"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("ns", tz="UTC"): (KeyKind.TIMESTAMP, 8),
    pa.uuid(): (KeyKind.UUID, 16),
    pa.string(): (KeyKind.TEXT, None),
    pa.binary(): (KeyKind.BINARY, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One column of a primary key."""

    name: str
    type: pa.DataType
    kind: KeyKind
    width: int | None  # bytes in a key; None: it varies from row to row

    @classmethod
    def of(cls, name: str, key_type: pa.DataType) -> "KeyColumn":
        """Describe a column; raises InvalidArgument for a type no key can hold."""
        kind, width = _layout(name, key_type)
        if width is not None and width > KEY_BYTES_MAX:
            raise LimitExceeded(
                f"key column {shown(name)} takes {width} bytes",
                limit=KEY_BYTES_MAX,
                actual=width,
                hint=f"Use a narrower column: a whole key has at most {KEY_BYTES_MAX} bytes",
            )
        return cls(name=name, type=key_type, kind=kind, width=width)

    def refuses(self, what: str, *, hint: str, row: int | None = None) -> SchemaMismatch:
        """Return the error for a value this column cannot hold; `what` continues its name."""
        return SchemaMismatch(
            f"key column {shown(self.name)} ({shown_type(self.type)}) {what}",
            column=self.name,
            row=row,
            hint=hint,
        )


def _layout(name: str, key_type: pa.DataType) -> tuple[KeyKind, int | None]:
    layout = _LAYOUTS.get(key_type)
    if layout is not None:
        return layout
    if isinstance(key_type, pa.Decimal128Type) and 0 <= key_type.scale <= key_type.precision:
        return KeyKind.DECIMAL, 16
    # pyarrow's decimal types are subclasses of its fixed-size binary type: ask for the type id.
    if pa.types.is_fixed_size_binary(key_type) and key_type.byte_width > 0:
        return KeyKind.FIXED, key_type.byte_width
    raise InvalidArgument(
        f"column {shown(name)} cannot be in a primary key: its type is {shown_type(key_type)}",
        hint="Use bool, int32, int64, float32, float64, decimal128(p, s) with 0 <= s <= p, date32, "
        "time64[us], timestamp[us] or timestamp[ns] (naive or UTC), string, binary, "
        "fixed_size_binary(n) with n above 0, or uuid",
    )


EncodeValue: TypeAlias = Callable[[object], bytes]
DecodeValue: TypeAlias = Callable[[bytes, int], object]

# On disk: never change.
TERMINATOR: Final = b"\x00\x00"
NUL: Final = b"\x00"
NUL_ESCAPED: Final = b"\x00\xff"

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_MICROSECONDS: Final = 86_400_000_000

# Wider than any decimal128, so that only a real loss of digits is reported as inexact.
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """How one column's values become bytes and are read again.

    `decode` takes the value's bytes, for text and binary without escapes and terminator, and their
    offset, which a Corruption names.
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
    """Return the bytes of the text or binary value at `start`, and where the next one begins."""
    end = start
    # One iteration per NUL byte of the value: a key is at most 65,535 bytes.
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
    """Return the function from any value to its raw form; it raises SchemaMismatch."""
    to_raw = scalar_form(column.type).to_raw

    def convert(value: object) -> Raw:
        if value is None:
            raise column.refuses("is NULL", hint="Pass a value: a key column is never NULL")
        try:
            return to_raw(value)
        except Unfit as unfit:
            # Only the reason is reported: a value may be secret, or too large to print.
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
            raise Corruption(
                f"byte {piece[0]:02x} is not a bool of {shown(column.name)}", offset=at
            )
        return piece[0] == 1

    return ValueCodec(encode, decode)


def _integer_codec(column: KeyColumn) -> ValueCodec:
    assert column.width is not None
    width = column.width
    bias = 1 << (8 * width - 1)
    convert = _converter(column)

    # Inlines `_signed_bytes`: this is the most common key of all.
    def encode(value: object) -> bytes:
        try:
            if type(value) is int:
                return (value + bias).to_bytes(width, "big")
        except OverflowError:
            pass  # Converting says what is wrong.
        return (cast("int", convert(value)) + bias).to_bytes(width, "big")

    def decode(piece: bytes, _at: int) -> object:
        return int.from_bytes(piece, "big") - bias

    return ValueCodec(kernel.IntegerKey(width, encode).encode if is_compiled else encode, decode)


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
                "is NaN", hint="Pass a number: a key has an order and NaN has none"
            )
        try:
            piece = layout.pack(number)
        except OverflowError:
            piece = layout.pack(convert(value))
        bits = int.from_bytes(piece, "big")
        # Zero is tested in the stored width: a tiny double may round to the float32 -0.0.
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
        # The same two's complement, byte-swapped and with its sign flipped.
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
        return (EPOCH + timedelta(microseconds=number)).time()

    return ValueCodec(encode, decode)


def _timestamp_codec(column: KeyColumn) -> ValueCodec:
    assert isinstance(column.type, pa.TimestampType)
    zoned = column.type.tz is not None
    in_nanoseconds = column.type.unit == "ns"
    to_bytes = _signed_bytes(column)
    convert = _converter(column)
    # A datetime, or the number itself in a nanosecond column.
    expected, quick = scalar_form(column.type).python_type, scalar_form(column.type).quick
    first = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
    last = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

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
        moment = EPOCH + timedelta(microseconds=number)
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
