"""Python values of one cell: what each type accepts, how it is stored, what comes back out.

    type                     Python value                raw form, little-endian when packed
    boolean                  bool                        one byte, 0 or 1
    int, long                int                         i32, i64
    float, double            float                       f32, f64
    decimal(p,s)             Decimal                     16 bytes, two's complement of value × 10^s
    date                     datetime.date               i32 days since 1970
    time                     datetime.time               i64 microseconds since midnight
    timestamp                datetime without zone       i64 microseconds since 1970
    timestamptz              datetime with zone, in UTC  i64 microseconds since 1970 UTC
    timestamp_ns, …tz_ns     int nanoseconds             i64 nanoseconds since 1970 (UTC)
    string, binary           str, bytes                  UTF-8 bytes, bytes
    fixed[n], uuid           bytes, uuid.UUID            n bytes, 16 bytes

The same rules hold for a value of a row, of a key and of a literal in a predicate. Also accepted:

- subclasses of them, by value; NumPy's bool, integers and floats; bytearray and memoryview;
- an int for a float when some float equals it, and for a decimal; a float is rounded to the nearest
  float32 where the column is `float`;
- for a date or timestamp outside the years 1 to 9999, which no Python type holds, the stored int;
  for a nanosecond timestamp of any year that int, or a datetime, also pandas' Timestamp.

Refused, never converted: bool for a number, text for anything but string, bytes for a uuid, an int
for a date or moment that Python can hold, a zone where the column has none, no zone where it has
one, digits that a decimal would drop, pandas' missing values.

A key also has no NULL and no NaN. A literal may be more than the column can hold, see
`neve.model.plain_values`.
"""

import datetime as dt
import decimal
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.display import EPOCH

Raw: TypeAlias = int | float | bytes
ToRaw: TypeAlias = Callable[[object], Raw]
FromRaw: TypeAlias = Callable[[Raw], object]

DECIMAL_BYTES: Final = 16
UUID_BYTES: Final = 16

_EPOCH: Final = EPOCH.replace(tzinfo=None)  # of columns without a zone
_EPOCH_DAY: Final = _EPOCH.toordinal()
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_DAY_MICROSECONDS: Final = 86_400_000_000
# What Python's date and datetime can hold, in days and microseconds since 1970.
_PYTHON_DAYS: Final = (dt.date.min.toordinal() - _EPOCH_DAY, dt.date.max.toordinal() - _EPOCH_DAY)
PYTHON_MICROSECONDS: Final = (
    _PYTHON_DAYS[0] * _DAY_MICROSECONDS,
    (_PYTHON_DAYS[1] + 1) * _DAY_MICROSECONDS - 1,
)
_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_FLOAT32: Final = struct.Struct("<f")
# Wide enough for 38 digits and any shift between two scales; a dropped digit is an error.
_EXACT: Final = decimal.Context(
    prec=80, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
)


class Unfit(ValueError):
    """A value does not fit its type; code that knows the column turns it into SchemaMismatch."""

    def __init__(self, reason: str, *, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def below(self, name: str) -> "Unfit":
        """Return the same error as seen from the field that contains this place."""
        return Unfit(self.reason, path=f"{name}.{self.path}" if self.path else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarForm:
    """How values of one primitive type move between Python and bytes."""

    # A value whose class is exactly this may take the quick way.
    python_type: type
    # Code for the struct module; None when the length varies.
    struct_code: str | None
    width: int
    # Value to raw form with every check; raises Unfit.
    to_raw: ToRaw
    # The same for a value of exactly `python_type`; None when it is its own raw form and packing
    # checks its range. May raise any ValueError: the caller then asks `to_raw` for the reason.
    quick: ToRaw | None
    # Raw form to value; None when it is the value. Raises Corruption, or Unfit when the value is
    # sound but Python's type cannot hold it.
    from_raw: FromRaw | None

    def canonical(self, value: object) -> object:
        """Return a value as it would be read after being stored; raises Unfit."""
        raw = self.to_raw(value)
        return raw if self.from_raw is None else self.from_raw(raw)


def scalar_form(arrow_type: pa.DataType) -> ScalarForm:
    """Return the form of a primitive type that `normalize_type` returned."""
    kind = kind_of(arrow_type)
    if kind is TypeKind.DECIMAL:
        numeric = cast("pa.Decimal128Type[int, int]", arrow_type)
        return _decimal_form(precision=int(numeric.precision), scale=int(numeric.scale))
    if kind is TypeKind.FIXED:
        return _fixed_form(cast("pa.FixedSizeBinaryType", arrow_type).byte_width)
    return _FORMS[kind]


def raw_kind(arrow_type: pa.DataType) -> tuple[str, int]:
    """Return what the compiled kernel calls the raw form of a type, and its bytes if fixed."""
    form = scalar_form(arrow_type)
    match form.struct_code:
        case None:
            return ("t" if form.python_type is str else "b"), 0
        case "B":
            return "?", form.width
        case code:
            return code[-1], form.width


def canonical_scalar(arrow_type: pa.DataType, value: object) -> object:
    """Return the value as it would be read after being stored; raises Unfit."""
    return scalar_form(arrow_type).canonical(value)


def _wrong_type(wanted: str, value: object) -> Unfit:
    return Unfit(f"expected {wanted}, got {type(value).__name__}")


def _boolean_raw(value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    raise _wrong_type("a bool", value)


def _boolean_value(raw: Raw) -> bool:
    if raw not in {0, 1}:
        raise Corruption(f"boolean stored as {raw!r}, not 0 or 1")
    return raw == 1


def int_of(value: object) -> int | None:
    """Return an integer of Python or NumPy as a plain int; None for everything else."""
    if type(value) is int:
        return value
    # NumPy's timedelta is one of its integers, as Python's bool is one of Python's.
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return int(value)
    return None


def _integer(value: object, *, lowest: int, highest: int) -> int:
    number = int_of(value)
    if number is None:
        raise _wrong_type("an int", value)
    if not lowest <= number <= highest:
        raise Unfit(f"integer outside {lowest} to {highest}")
    return number


def _int_raw(value: object) -> int:
    return _integer(value, lowest=-(1 << 31), highest=(1 << 31) - 1)


def _long_raw(value: object) -> int:
    return _integer(value, lowest=_INT64[0], highest=_INT64[1])


def _double_raw(value: object) -> float:
    if isinstance(value, (float, np.floating)):
        return float(value)
    number = int_of(value)
    if number is None:
        raise _wrong_type("a float", value)
    return _exact_float(number, float)


def _float_raw(value: object) -> float:
    if not isinstance(value, (float, np.floating)):
        return _exact_float(int(_double_raw(value)), _nearest_float32)
    try:
        return _nearest_float32(float(value))
    except OverflowError:
        raise Unfit("number outside the range of float32") from None


def _nearest_float32(value: float) -> float:
    return cast("float", _FLOAT32.unpack(_FLOAT32.pack(value))[0])


def _exact_float(number: int, rounded: Callable[[int], float]) -> float:
    try:
        result = rounded(number)
    except OverflowError:
        raise Unfit("integer outside the range of the column") from None
    if result != number:
        raise Unfit("integer that no float of the column's width equals; pass a float to round it")
    return result


def _decimal_form(*, precision: int, scale: int) -> ScalarForm:
    limit: int = 10**precision
    whole_limit: int = 10 ** (precision - scale)
    unit: int = 10**scale

    def too_large() -> Unfit:
        return Unfit(f"decimal with more than {precision - scale} digits before the point")

    def to_raw(value: object) -> bytes:
        if not isinstance(value, decimal.Decimal):
            number = int_of(value)
            if number is None:
                raise _wrong_type("a Decimal", value)
            if not -whole_limit < number < whole_limit:
                raise too_large()
            return (number * unit).to_bytes(DECIMAL_BYTES, "little", signed=True)
        if not value.is_finite():
            raise Unfit("decimal that is not a finite number")
        # Checked before any arithmetic: 1E+999999999 would take a gigabyte as an integer.
        if value and value.adjusted() >= precision - scale:
            raise too_large()
        try:
            unscaled = int(_EXACT.to_integral_exact(_EXACT.scaleb(value, scale))) if value else 0
        except decimal.DecimalException:
            raise Unfit(f"decimal with more than {scale} digits after the point") from None
        return unscaled.to_bytes(DECIMAL_BYTES, "little", signed=True)

    def from_raw(raw: Raw) -> decimal.Decimal:
        unscaled = int.from_bytes(cast("bytes", raw), "little", signed=True)
        if not -limit < unscaled < limit:
            raise Corruption(f"decimal stored with more than {precision} digits")
        return _EXACT.scaleb(decimal.Decimal(unscaled), -scale)

    return ScalarForm(
        python_type=decimal.Decimal,
        struct_code=f"{DECIMAL_BYTES}s",
        width=DECIMAL_BYTES,
        to_raw=to_raw,
        quick=to_raw,
        from_raw=from_raw,
    )


def _date_raw(value: object) -> int:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.toordinal() - _EPOCH_DAY
    days = int_of(value)
    if days is None or _PYTHON_DAYS[0] <= days <= _PYTHON_DAYS[1]:
        raise _wrong_type("a date", value)
    return _int_raw(days)


def _date_value(raw: Raw) -> dt.date:
    days = cast("int", raw)
    try:
        return dt.date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise Unfit(f"date {days} days from 1970 is outside the years 1 to 9999") from None


def _time_raw(value: object) -> int:
    if not isinstance(value, dt.time):
        raise _wrong_type("a time", value)
    if value.tzinfo is not None:
        raise Unfit("time with a zone; the column has none")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def _time_value(raw: Raw) -> dt.time:
    microseconds = cast("int", raw)
    if not 0 <= microseconds < _DAY_MICROSECONDS:
        raise Corruption(f"time stored as {microseconds}, outside one day of microseconds")
    return (_EPOCH + dt.timedelta(microseconds=microseconds)).time()


def since_epoch(value: object, *, zoned: bool) -> tuple[int, int]:
    """Return microseconds since 1970 and the nanoseconds beyond them that pandas carries.

    Raises Unfit for what is not a datetime, and for one with a zone where the column has none, or
    the other way around.
    """
    if not isinstance(value, dt.datetime):
        raise _wrong_type("a datetime", value)
    # pandas' NaT is a datetime that equals nothing and has no parts.
    if value != value:  # noqa: PLR0124
        raise Unfit("not a moment in time")
    if zoned != (value.utcoffset() is not None):
        raise Unfit(
            "datetime without a zone; the column has UTC, so set the zone"
            if zoned
            else "datetime with a zone; the column has none, so drop it or use timestamptz"
        )
    # Subtracting a pandas Timestamp returns pandas' class; the parts of the plain class are exact.
    plain = dt.datetime(  # noqa: DTZ001 - the zone is kept beside it
        value.year,
        value.month,
        value.day,
        value.hour,
        value.minute,
        value.second,
        value.microsecond,
    )
    distance = plain - _EPOCH - (value.utcoffset() or dt.timedelta())
    return distance // _MICROSECOND, int(getattr(value, "nanosecond", 0))


def _timestamp_form(*, zoned: bool) -> ScalarForm:
    epoch = EPOCH if zoned else _EPOCH
    first, last = PYTHON_MICROSECONDS

    def to_raw(value: object) -> int:
        number = int_of(value)
        if number is not None and not first <= number <= last:
            return _long_raw(number)
        microseconds, nanoseconds = since_epoch(value, zoned=zoned)
        if nanoseconds:
            raise Unfit("datetime with nanoseconds; the column holds microseconds")
        if not first <= microseconds <= last:
            raise Unfit("datetime that is outside the years 1 to 9999 in UTC")
        return microseconds

    def quick(value: object) -> int:
        moment = cast("dt.datetime", value)
        if (moment.utcoffset() is not None) != zoned:
            return to_raw(value)
        microseconds = (moment - epoch) // _MICROSECOND
        return microseconds if first <= microseconds <= last else to_raw(value)

    def from_raw(raw: Raw) -> dt.datetime:
        microseconds = cast("int", raw)
        try:
            return epoch + dt.timedelta(microseconds=microseconds)
        except OverflowError:
            text = f"timestamp {microseconds} microseconds from 1970 is outside the years 1 to 9999"
            raise Unfit(text) from None

    return ScalarForm(
        python_type=dt.datetime,
        struct_code="q",
        width=8,
        to_raw=to_raw,
        quick=quick,
        from_raw=from_raw,
    )


def _nanosecond_form(*, zoned: bool) -> ScalarForm:
    def to_raw(value: object) -> int:
        if not isinstance(value, dt.datetime):
            return _long_raw(value)
        microseconds, nanoseconds = since_epoch(value, zoned=zoned)
        total = microseconds * 1_000 + nanoseconds
        if not _INT64[0] <= total <= _INT64[1]:
            raise Unfit("datetime outside 1677 to 2262, the range of nanoseconds")
        return total

    return ScalarForm(
        python_type=int, struct_code="q", width=8, to_raw=to_raw, quick=None, from_raw=None
    )


def _string_raw(value: object) -> bytes:
    if not isinstance(value, str):
        raise _wrong_type("a str", value)
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise Unfit(f"text with a lone surrogate at position {error.start}") from None


def _string_value(raw: Raw) -> str:
    try:
        return cast("bytes", raw).decode()
    except UnicodeDecodeError as error:
        raise Corruption(f"text stored with bad UTF-8 at byte {error.start}") from None


def _binary_raw(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _wrong_type("bytes", value)
    return bytes(value)


def _fixed_form(width: int) -> ScalarForm:
    def to_raw(value: object) -> bytes:
        raw = _binary_raw(value)
        if len(raw) != width:
            raise Unfit(f"{len(raw)} bytes where the column holds exactly {width}")
        return raw

    return ScalarForm(
        python_type=bytes,
        struct_code=f"{width}s",
        width=width,
        to_raw=to_raw,
        quick=to_raw,
        from_raw=None,
    )


def _uuid_raw(value: object) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise _wrong_type("a uuid.UUID", value)
    return value.bytes


def _uuid_value(raw: Raw) -> uuid.UUID:
    return uuid.UUID(bytes=cast("bytes", raw))


_FORMS: Final[dict[TypeKind, ScalarForm]] = {
    TypeKind.BOOLEAN: ScalarForm(
        python_type=bool,
        struct_code="B",
        width=1,
        to_raw=_boolean_raw,
        quick=None,
        from_raw=_boolean_value,
    ),
    TypeKind.INT: ScalarForm(
        python_type=int, struct_code="i", width=4, to_raw=_int_raw, quick=None, from_raw=None
    ),
    TypeKind.LONG: ScalarForm(
        python_type=int, struct_code="q", width=8, to_raw=_long_raw, quick=None, from_raw=None
    ),
    TypeKind.FLOAT: ScalarForm(
        python_type=float, struct_code="f", width=4, to_raw=_float_raw, quick=None, from_raw=None
    ),
    TypeKind.DOUBLE: ScalarForm(
        python_type=float, struct_code="d", width=8, to_raw=_double_raw, quick=None, from_raw=None
    ),
    TypeKind.DATE: ScalarForm(
        python_type=dt.date,
        struct_code="i",
        width=4,
        to_raw=_date_raw,
        quick=_date_raw,
        from_raw=_date_value,
    ),
    TypeKind.TIME: ScalarForm(
        python_type=dt.time,
        struct_code="q",
        width=8,
        to_raw=_time_raw,
        quick=_time_raw,
        from_raw=_time_value,
    ),
    TypeKind.TIMESTAMP: _timestamp_form(zoned=False),
    TypeKind.TIMESTAMPTZ: _timestamp_form(zoned=True),
    TypeKind.TIMESTAMP_NS: _nanosecond_form(zoned=False),
    TypeKind.TIMESTAMPTZ_NS: _nanosecond_form(zoned=True),
    TypeKind.STRING: ScalarForm(
        python_type=str,
        struct_code=None,
        width=0,
        to_raw=_string_raw,
        quick=cast("ToRaw", str.encode),
        from_raw=_string_value,
    ),
    TypeKind.BINARY: ScalarForm(
        python_type=bytes,
        struct_code=None,
        width=0,
        to_raw=_binary_raw,
        quick=None,
        from_raw=None,
    ),
    TypeKind.UUID: ScalarForm(
        python_type=uuid.UUID,
        struct_code=f"{UUID_BYTES}s",
        width=UUID_BYTES,
        to_raw=_uuid_raw,
        quick=_uuid_raw,
        from_raw=_uuid_value,
    ),
}
