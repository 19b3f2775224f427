"""Plain values, which literals, bounds and partition values are compared as, and their bytes.

    column type        plain value
    bool               bool
    int32, int64       int
    float32, float64   float
    decimal            Decimal, with the column's scale
    date               int, days since 1970-01-01
    time               int, microseconds since midnight
    timestamp          int, microseconds or nanoseconds since 1970-01-01, as the column counts
    string             str
    binary, fixed      bytes
    uuid               bytes, 16

These are Iceberg's own values. Python's date and datetime are limited to the years 1 to 9999 and to
microseconds; a column is not. Plain values sort as the column does.

`locate` turns a literal into a plain value. It accepts what rows and keys accept, see
`neve.model.scalar_values`, with the same meaning. A literal is only compared, never stored, so it
accepts more:

- a number of another kind, or outside the range: a number or moment between two values of the
  column becomes the greatest value below it, marked as inexact; a float column takes the nearest
  float instead, as Iceberg does;
- text that spells a decimal, date, time, timestamp or uuid; the 16 bytes of a uuid;
- any int as a count of days, microseconds or nanoseconds, as the column counts; a date as its
  first moment.

Column bounds and partition values are stored as bytes in Iceberg's single-value form:

    boolean                 00 or 01
    int, date               4 bytes, little-endian
    long, time, timestamp   8 bytes, little-endian
    float, double           IEEE 754, little-endian
    decimal                 shortest big-endian two's complement of the unscaled value
    string                  UTF-8
    uuid, fixed, binary     the bytes as they are

A number that was stored before its column was widened keeps its old length, and reads the same.
"""

import math
import re
import struct
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Context, Decimal, InvalidOperation
from typing import Final, NoReturn, TypeAlias, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, Phrase, SchemaMismatch, Wording
from neve.model.arrow_types import TypeKind, kind_of, type_name
from neve.model.display import shown, shown_type
from neve.model.scalar_values import Unfit, int_of, since_epoch
from neve.model.schema_view import ArrowArray, ArrowScalar

PlainValue: TypeAlias = bool | int | float | Decimal | str | bytes

_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MICROS_PER_DAY: Final = 86_400_000_000
_NANOS_PER_MICRO: Final = 1_000
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_FLOAT32_MAX: Final = (2 - 2**-23) * 2.0**127
_FLOAT64_MAX: Final = (2 - 2**-52) * 2.0**1023
_FLOAT32: Final = struct.Struct("<f")
_UUID_BYTES: Final = 16
# Wider than any decimal128, so that shifting the decimal point never rounds.
_EXACT: Final = Context(prec=76)
_DIGITS_MAX: Final = 38
# Python parses six digits of a second; the rest, nanoseconds and finer, are parsed separately.
_LONG_FRACTION: Final = re.compile(r"(?<=[.,][0-9]{6})[0-9]+")


@dataclass(frozen=True, slots=True)
class Located:
    """The position of a literal among the values a column can hold.

    `floor` is the greatest value that is not above the literal, or None when all are above.
    """

    floor: PlainValue | None
    exact: bool = True


def to_plain(value: object, type_: pa.DataType, *, column: str) -> PlainValue:
    """Convert a value the column can hold; raises SchemaMismatch for any other."""
    located = locate(value, type_, column=column)
    if located.floor is None or not located.exact:
        raise SchemaMismatch(
            Wording(
                Phrase.CANNOT_HOLD,
                column=shown(column),
                type=type_name(type_),
                arrow_type=shown_type(type_),
                value=shown(value),
            ),
            column=column,
            hint="Use a value inside the type's range and precision",
        )
    return located.floor


def locate(value: object, type_: pa.DataType, *, column: str) -> Located:
    """Find where a literal lies among the column's values; raises SchemaMismatch."""
    seen = _Literal(value=_without_numpy(value), type_=type_, column=column)
    if pa.types.is_boolean(type_):
        return seen.as_bool()
    if pa.types.is_int32(type_):
        return seen.as_number(scale=0, limit=_INT32_MAX)
    if pa.types.is_int64(type_):
        return seen.as_number(scale=0, limit=_INT64_MAX)
    if pa.types.is_float32(type_) or pa.types.is_float64(type_):
        return seen.as_float()
    if isinstance(type_, pa.Decimal128Type):
        return seen.as_decimal(precision=type_.precision, scale=type_.scale)
    if pa.types.is_date32(type_):
        return seen.as_date()
    if pa.types.is_time64(type_):
        return seen.as_time()
    if isinstance(type_, pa.TimestampType):
        return seen.as_timestamp(aware=type_.tz is not None, nanoseconds=type_.unit == "ns")
    if pa.types.is_string(type_):
        return seen.as_string()
    if isinstance(type_, pa.UuidType):
        return seen.as_uuid()
    if pa.types.is_fixed_size_binary(type_):
        return seen.as_binary(width=type_.byte_width)
    if pa.types.is_binary(type_):
        return seen.as_binary(width=None)
    raise InvalidArgument(
        f"column {shown(column)} is {shown_type(type_)}: its values cannot be compared",
        hint=Wording(Phrase.ONLY_NULL_TESTS),
    )


def neighbour(value: PlainValue, type_: pa.DataType, *, up: bool) -> PlainValue:
    """Next greater or smaller value of an integer, decimal or temporal column.

    The outermost value is its own neighbour.
    """
    direction = 1 if up else -1
    if isinstance(value, Decimal):
        moved: object = decimal_of(unscaled_of(value, type_) + direction, type_)
    else:
        assert isinstance(value, int)
        moved = value + direction
    floor = locate(moved, type_, column="").floor
    return value if floor is None else floor


def less(left: PlainValue, right: PlainValue) -> bool:
    """Compare two plain values; raises TypeError when they are of different kinds."""
    smaller: bool = left < right  # type: ignore[operator]  # of one column, so of one kind
    return smaller


def plain_of(scalar: ArrowScalar) -> PlainValue | None:
    """Return an Arrow scalar as a plain value, or None for NULL."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.Date32Scalar | pa.Time64Scalar | pa.TimestampScalar):
        number = scalar.value  # type: ignore[union-attr]  # the stubs forget it on dates
        assert isinstance(number, int)
        return number
    value = scalar.as_py()
    if isinstance(value, UUID):
        return value.bytes
    if not isinstance(value, bool | int | float | Decimal | str | bytes):
        raise InvalidArgument(
            f"a value of {scalar.type} has no plain form",
            hint="Only columns of primitive types have bounds and partition values",
        )
    return value


def unscaled_of(value: Decimal, type_: pa.DataType) -> int:
    """Return the integer a decimal column stores for a plain value."""
    assert isinstance(type_, pa.Decimal128Type)
    return int(value.scaleb(type_.scale, _EXACT))


def decimal_of(unscaled: int, type_: pa.DataType) -> Decimal:
    """Return the plain value of the integer a decimal column stores."""
    assert isinstance(type_, pa.Decimal128Type)
    return Decimal(unscaled).scaleb(-type_.scale, _EXACT)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """Return the type Arrow's kernels compare a column as: they do not know UUIDs."""
    return type_.storage_type if isinstance(type_, pa.UuidType) else type_


def stored_array(array: ArrowArray) -> ArrowArray:
    """Return the values in the type Arrow's kernels compare them as."""
    return array.storage if isinstance(array, pa.UuidArray) else array


def is_nan(value: object) -> bool:
    """Return whether a value is NaN, or pandas' NaT."""
    if isinstance(value, Decimal):
        return value.is_nan()
    # Nothing else differs from itself.
    return bool(value != value)  # noqa: PLR0124


def is_float(type_: pa.DataType) -> bool:
    """Return whether a column can hold NaN."""
    return pa.types.is_floating(type_)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Literal:
    """One literal on its way into one column."""

    value: object
    type_: pa.DataType
    column: str

    def of(self, value: object) -> "_Literal":
        return _Literal(value=value, type_=self.type_, column=self.column)

    def refuse(self, wanted: str, *, cause: Exception | None = None) -> NoReturn:
        raise SchemaMismatch(
            Wording(
                Phrase.WAS_COMPARED,
                column=shown(self.column),
                type=type_name(self.type_),
                arrow_type=shown_type(self.type_),
                kind=type(self.value).__name__,
                value=shown(self.value),
            ),
            column=self.column,
            hint=Wording(Phrase.WRITE_A_LITERAL, wanted=wanted, type=type_name(self.type_)),
        ) from cause

    def as_bool(self) -> Located:
        if not isinstance(self.value, bool):
            self.refuse("True or False")
        return Located(self.value)

    def as_number(self, *, scale: int, limit: int) -> Located:
        """Locate a number, times 10^scale, among the integers from -limit - 1 to limit."""
        number = self.value
        wanted = "a number" if scale else "an int"
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            self.refuse(wanted)
        if not isinstance(number, int):
            if is_nan(number):
                self.refuse(f"{wanted}: NaN equals nothing")
            # The shortest text of a float is what the user typed: 0.1 means one tenth.
            number = Decimal(repr(number)) if isinstance(number, float) else number
        whole, exact = _floor_scaled(number, scale)
        if whole > limit:
            return Located(limit, exact=False)
        if whole < -limit - 1:
            return Located(None, exact=False)
        return Located(whole, exact=exact)

    def as_decimal(self, *, precision: int, scale: int) -> Located:
        limit: int = 10**precision - 1
        value = self.value
        if isinstance(value, str):
            try:
                value = Decimal(value)
            except InvalidOperation as error:
                self.refuse("a Decimal", cause=error)
        located = self.of(value).as_number(scale=scale, limit=limit)
        unscaled = located.floor
        if unscaled is None or unscaled == -limit - 1:
            return Located(None, exact=False)
        assert isinstance(unscaled, int)
        return Located(decimal_of(unscaled, self.type_), exact=located.exact)

    def as_float(self) -> Located:
        number = self.value
        if isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            self.refuse("a float")
        if is_nan(number):
            self.refuse("a number, or use is_nan: NaN equals nothing")
        single = pa.types.is_float32(self.type_)
        try:
            nearest = float(number)
            if single:
                (nearest,) = _FLOAT32.unpack(_FLOAT32.pack(nearest))
        except OverflowError:
            nearest = math.inf if number > 0 else -math.inf
        if math.isinf(nearest) and number != nearest:
            # Finite, but farther out than any finite value of the column.
            outermost = _FLOAT32_MAX if single else _FLOAT64_MAX
            return Located(outermost if number > 0 else -math.inf, exact=False)
        return Located(nearest)

    def as_date(self) -> Located:
        value = self.value
        if isinstance(value, str):
            try:
                value = date.fromisoformat(value)
            except ValueError as error:
                self.refuse("a date, or text such as 2024-01-31", cause=error)
        if isinstance(value, date) and not isinstance(value, datetime):
            return Located(value.toordinal() - _EPOCH_ORDINAL)
        return self.as_count("a date, or text such as 2024-01-31", limit=_INT32_MAX)

    def as_time(self) -> Located:
        value = self.value
        wanted = "a time without a time zone, or text such as 12:30:00"
        cut_off = False
        if isinstance(value, str):
            try:
                value = time.fromisoformat(value)
            except ValueError as error:
                self.refuse(wanted, cause=error)
            cut_off = _after_micros(str(self.value)) != (0, True)
        if isinstance(value, time) and value.tzinfo is None:
            minutes = value.hour * 60 + value.minute
            seconds = minutes * 60 + value.second
            return Located(seconds * 1_000_000 + value.microsecond, exact=not cut_off)
        located = self.as_count(wanted, limit=_MICROS_PER_DAY - 1)
        if isinstance(located.floor, int) and located.floor < 0:
            return Located(None, exact=False)
        return located

    def as_timestamp(self, *, aware: bool, nanoseconds: bool) -> Located:
        wanted = (
            "a datetime with a time zone, or text such as 2024-01-31T12:00:00+00:00"
            if aware
            else "a datetime without a time zone, or text such as 2024-01-31T12:00:00"
        )
        moment = self.value
        nanos, exact = 0, True
        if isinstance(moment, str):
            try:
                moment = datetime.fromisoformat(moment)
            except ValueError as error:
                self.refuse(wanted, cause=error)
            nanos, exact = _after_micros(str(self.value))
        elif isinstance(moment, date) and not isinstance(moment, datetime):
            moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - naive like a date
        if not isinstance(moment, datetime):
            return self.as_count(wanted, limit=_INT64_MAX)
        try:
            count, more = since_epoch(moment, zoned=aware)
        except Unfit as unfit:
            self.refuse(wanted, cause=unfit)
        nanos += more
        if not nanoseconds:
            return Located(count, exact=exact and nanos == 0)
        fine = self.of(count * _NANOS_PER_MICRO + nanos).as_count(wanted, limit=_INT64_MAX)
        return Located(fine.floor, exact=exact and fine.exact)

    def as_count(self, wanted: str, *, limit: int) -> Located:
        """Read an int as a count of the column's own unit."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse(f"{wanted}, or an int in the column's unit")
        return self.as_number(scale=0, limit=limit)

    def as_string(self) -> Located:
        if not isinstance(self.value, str):
            self.refuse("a str")
        try:
            self.value.encode()
        except UnicodeEncodeError as error:
            self.refuse("text without lone surrogates", cause=error)
        # The characters of a str subclass, such as an enum.
        return Located(str.__str__(self.value))

    def as_binary(self, *, width: int | None) -> Located:
        wanted = "bytes, or their hexadecimal text such as 00ff"
        if width is not None:
            wanted = f"exactly {width} bytes"
        if not isinstance(self.value, bytes | bytearray | memoryview):
            self.refuse(wanted)
        value = bytes(self.value)
        if width is not None and len(value) != width:
            self.refuse(wanted)
        return Located(value)

    def as_uuid(self) -> Located:
        value = self.value
        if isinstance(value, str):
            try:
                value = UUID(value)
            except ValueError as error:
                self.refuse("a UUID, or its text", cause=error)
        if isinstance(value, UUID):
            return Located(value.bytes)
        return self.as_binary(width=_UUID_BYTES)


def _without_numpy(value: object) -> object:
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.floating):
        return float(value)
    number = int_of(value)
    return value if number is None else number


def _floor_scaled(number: int | Decimal, scale: int) -> tuple[int, bool]:
    """Return floor(number × 10^scale) and whether nothing was cut off."""
    if isinstance(number, int):
        return number * 10**scale, True
    if not number:
        return 0, True
    # An exponent in the millions must not become a number of as many digits.
    if number.is_infinite() or number.adjusted() > 2 * _DIGITS_MAX:
        outside: int = 10 ** (2 * _DIGITS_MAX)
        return (-outside if number.is_signed() else outside), False
    if number.adjusted() < -scale - 1:
        return (-1 if number.is_signed() else 0), False
    numerator, denominator = number.as_integer_ratio()
    whole, rest = divmod(numerator * 10**scale, denominator)
    return whole, rest == 0


def _after_micros(text: str) -> tuple[int, bool]:
    """Return the digits after the microseconds as nanoseconds, and whether that is exact."""
    found = _LONG_FRACTION.search(text)
    digits = "" if found is None else found.group()
    return int(digits[:3].ljust(3, "0")), not digits[3:].strip("0")


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
            # One bit more than the number: the sign.
            length = ((unscaled + (unscaled < 0)).bit_length() + 8) // 8
            return unscaled.to_bytes(length, "big", signed=True)
        case TypeKind.STRING:
            return cast("str", value).encode()
        case _:
            return cast("bytes", value)


def decode_single_value(type_: pa.DataType, stored: bytes) -> PlainValue:
    """Return the plain value of stored bytes; raises Corruption when they do not fit the type."""
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
            f"{stored[:32].hex()} is not a stored value of {shown_type(type_)}"
        ) from error
