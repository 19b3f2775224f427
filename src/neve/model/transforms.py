"""Partition transforms, value for value as Iceberg defines them.

    transform     takes                                  gives           keeps order
    identity      every primitive type                   the same type   yes
    year, month   date, timestamp                        int32           yes
    day           date, timestamp                        date32          yes
    hour          timestamp                              int32           yes
    bucket[n]     all but bool, float32 and float64      int32, 0 … n-1  no
    truncate[w]   int32, int64, decimal, string, binary  the same type   yes

T1  NULL becomes NULL, and nothing else does.
T2  Times are counted from 1970-01-01T00:00 UTC and rounded down: one microsecond before it is
    day -1, hour -1, month -1 and year -1.
T3  A result that its type cannot hold is refused, never wrapped: a wrapped value would be out of
    order, and pruning would lose the row. It happens at the outermost few values only.
T4  `apply` and `apply_one` agree.

`day` counts days in 32 bits, as the specification says; date32 is that number with a calendar, and
what other engines show.
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.arrow_buffers import decimal_halves, decimals_of_halves, integers, with_nulls_of
from neve.model.bucket_hash import hash_column, hash_value
from neve.model.display import shown, shown_type
from neve.model.plain_values import PlainValue, decimal_of, is_float, to_plain, unscaled_of
from neve.model.schema_view import ArrowArray

PARAMETER_MAX: Final = (1 << 31) - 1

_POSITIVE: Final = 0x7FFF_FFFF
_SECONDS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_SECONDS_PER_HOUR: Final = 3_600
_SECONDS_PER_DAY: Final = 86_400
_MONTHS_PER_YEAR: Final = 12
_INT32_MAX: Final = (1 << 31) - 1
_DECIMAL_DIGITS_MAX: Final = 38

_PARAMETER: Final = re.compile(r"(bucket|truncate)\[([0-9]{1,10})\]")


class Transform(ABC):
    """A function from a column's value to a partition value."""

    __slots__ = ()

    @abstractmethod
    def __str__(self) -> str:
        """Return Iceberg's name of the transform, such as `bucket[16]`."""

    @property
    def preserves_order(self) -> bool:
        """Whether a greater value never has a smaller result."""
        return True

    @abstractmethod
    def accepts(self, source: pa.DataType) -> bool:
        """Return whether the transform takes values of this type."""

    @abstractmethod
    def result_type(self, source: pa.DataType) -> pa.DataType:
        """Type of the results."""

    @abstractmethod
    def _apply(self, array: ArrowArray, *, column: str) -> ArrowArray: ...

    @abstractmethod
    def _apply_one(self, value: PlainValue, source: pa.DataType, *, column: str) -> PlainValue: ...

    def apply(self, array: ArrowArray, *, column: str = "") -> ArrowArray:
        """Transform a whole column; raises SchemaMismatch with the first row that cannot be."""
        self.check_source(array.type, column=column)
        return self._apply(array, column=column)

    def apply_one(
        self, value: object, source: pa.DataType, *, column: str = ""
    ) -> PlainValue | None:
        """Transform one value of a column of type `source`; raises SchemaMismatch."""
        self.check_source(source, column=column)
        if value is None:
            return None
        return self._apply_one(to_plain(value, source, column=column), source, column=column)

    def apply_plain(self, value: PlainValue, source: pa.DataType) -> PlainValue:
        """Transform one plain value of a type that is known to fit; raises SchemaMismatch."""
        return self._apply_one(value, source, column="")

    def check_source(self, source: pa.DataType, *, column: str) -> None:
        """Raise InvalidArgument unless the transform takes values of this type."""
        if self.accepts(source):
            return
        others = [name for name, sample in _SAMPLES.items() if sample.accepts(source)]
        raise InvalidArgument(
            f"{self} cannot be applied to column {shown(column)} of type {shown_type(source)}",
            hint=f"It takes {', '.join(others)}"
            if others
            else "Partition by a column of a primitive type",
        )


@dataclass(frozen=True, slots=True)
class Identity(Transform):
    """The value itself."""

    def __str__(self) -> str:
        return "identity"

    def accepts(self, source: pa.DataType) -> bool:
        """Take every primitive type."""
        return not pa.types.is_nested(source)

    def result_type(self, source: pa.DataType) -> pa.DataType:
        """Keep the type."""
        return source

    def _apply(self, array: ArrowArray, *, column: str) -> ArrowArray:  # noqa: ARG002 - nothing can fail
        return array

    def _apply_one(self, value: PlainValue, source: pa.DataType, *, column: str) -> PlainValue:  # noqa: ARG002
        return value


class TimeUnit(StrEnum):
    """What a time transform counts."""

    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class TimePart(Transform):
    """Years, months, days or hours since 1970, rounded down."""

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit.value

    def accepts(self, source: pa.DataType) -> bool:
        """Take timestamps, and dates unless hours are counted."""
        if pa.types.is_timestamp(source):
            return True
        return pa.types.is_date32(source) and self.unit is not TimeUnit.HOUR

    def result_type(self, source: pa.DataType) -> pa.DataType:  # noqa: ARG002 - one for all
        """Count in 32 bits; days show as dates."""
        return pa.date32() if self.unit is TimeUnit.DAY else pa.int32()

    def _apply(self, array: ArrowArray, *, column: str) -> ArrowArray:
        counts = integers(array)
        if self.unit is TimeUnit.HOUR:
            parts = np.floor_divide(counts, _SECONDS_PER_HOUR * _per_second(array.type))
            outside = np.flatnonzero((parts > _INT32_MAX) | (parts < -_INT32_MAX))
            if len(outside) > 0:
                raise _too_far(column=column, row=int(outside[0]))
        else:
            per_day = _units_per_day(array.type)
            parts = counts if per_day == 1 else np.floor_divide(counts, per_day)
            if self.unit is not TimeUnit.DAY:
                calendar = "M" if self.unit is TimeUnit.MONTH else "Y"
                days = parts.view("datetime64[D]")
                parts = days.astype(f"datetime64[{calendar}]").view(np.int64)
        result = pa.array(parts.astype(np.int32)).view(self.result_type(array.type))
        return with_nulls_of(array, result)

    def _apply_one(self, value: PlainValue, source: pa.DataType, *, column: str) -> PlainValue:
        assert isinstance(value, int)
        if self.unit is TimeUnit.HOUR:
            hour = value // (_SECONDS_PER_HOUR * _per_second(source))
            if abs(hour) > _INT32_MAX:
                raise _too_far(column=column, row=None)
            return hour
        day = value // _units_per_day(source)
        if self.unit is TimeUnit.DAY:
            return day
        month = _month_of_day(day)
        return month if self.unit is TimeUnit.MONTH else month // _MONTHS_PER_YEAR


@dataclass(frozen=True, slots=True)
class Bucket(Transform):
    """Hash of the value, modulo a number of buckets."""

    count: int

    def __post_init__(self) -> None:
        _check_parameter(self.count, what="the number of buckets", example="bucket(16, id)")

    def __str__(self) -> str:
        return f"bucket[{self.count}]"

    @property
    def preserves_order(self) -> bool:
        """A hash has no order."""
        return False

    def accepts(self, source: pa.DataType) -> bool:
        """Take every primitive type but bool and floats."""
        return not (pa.types.is_nested(source) or pa.types.is_boolean(source) or is_float(source))

    def result_type(self, source: pa.DataType) -> pa.DataType:  # noqa: ARG002 - one for all
        """Return 32-bit numbers of buckets."""
        return pa.int32()

    def _apply(self, array: ArrowArray, *, column: str) -> ArrowArray:  # noqa: ARG002 - nothing can fail
        buckets = (hash_column(array) & np.int32(_POSITIVE)) % np.int32(self.count)
        return with_nulls_of(array, pa.array(buckets))

    def _apply_one(self, value: PlainValue, source: pa.DataType, *, column: str) -> PlainValue:  # noqa: ARG002
        return (hash_value(value, source) & _POSITIVE) % self.count


@dataclass(frozen=True, slots=True)
class Truncate(Transform):
    """Numbers rounded down to a multiple of the width; text and bytes cut to the width."""

    width: int

    def __post_init__(self) -> None:
        _check_parameter(self.width, what="the truncate width", example="truncate(4, name)")

    def __str__(self) -> str:
        return f"truncate[{self.width}]"

    def accepts(self, source: pa.DataType) -> bool:
        """Take integers, decimals, strings and binaries of any length."""
        return (
            pa.types.is_int32(source)
            or pa.types.is_int64(source)
            or pa.types.is_decimal128(source)
            or pa.types.is_string(source)
            or pa.types.is_binary(source)
        )

    def result_type(self, source: pa.DataType) -> pa.DataType:
        """Keep the type."""
        return source

    def _apply(self, array: ArrowArray, *, column: str) -> ArrowArray:
        if isinstance(array, pa.StringArray):
            return pc.utf8_slice_codeunits(array, 0, self.width)
        if isinstance(array, pa.BinaryArray):
            return pc.binary_slice(array, 0, self.width)
        if pa.types.is_decimal128(array.type):
            return self._apply_decimals(array, column=column)
        numbers = integers(array)
        cut = numbers - np.mod(numbers, np.int64(self.width))
        # Rounding down can only wrap at the low end, and a wrapped int64 is greater than before.
        low = np.iinfo(np.int32).min if pa.types.is_int32(array.type) else np.iinfo(np.int64).min
        outside = np.flatnonzero((cut > numbers) | (cut < low))
        if len(outside) > 0:
            raise self._too_low(array.type, column=column, row=int(outside[0]))
        return with_nulls_of(array, pa.array(cut).cast(array.type))

    def _apply_decimals(self, array: ArrowArray, *, column: str) -> ArrowArray:
        low, high = decimal_halves(array)
        width, half = np.uint64(self.width), np.uint64(32)
        # Long division in base 2^32: the remainder stays below 2^31, so no step leaves 64 bits.
        rest = np.zeros(len(array), dtype=np.uint64)
        for word in (high, low):
            rest = ((rest << half) | (word >> half)) % width
            rest = ((rest << half) | (word & np.uint64(0xFFFF_FFFF))) % width
        # A negative number reads 2^128 too large.
        excess = np.uint64(pow(2, 128, self.width))
        rest = np.where(high >> np.uint64(63) == 1, (rest + width - excess) % width, rest)
        assert isinstance(array.type, pa.Decimal128Type)
        widest = pa.decimal128(_DECIMAL_DIGITS_MAX, array.type.scale)
        cut = with_nulls_of(array, decimals_of_halves(low - rest, high - (low < rest), widest))
        lowest = pa.scalar(_lowest_decimal(array.type), widest)
        outside = np.flatnonzero(
            pc.less(cut, lowest).fill_null(False).to_numpy(zero_copy_only=False)
        )
        if len(outside) > 0:
            raise self._too_low(array.type, column=column, row=int(outside[0]))
        return cut.cast(array.type)

    def _apply_one(self, value: PlainValue, source: pa.DataType, *, column: str) -> PlainValue:
        if isinstance(value, str | bytes):
            return value[: self.width]
        if isinstance(value, Decimal):
            unscaled = unscaled_of(value, source)
            cut = decimal_of(unscaled - unscaled % self.width, source)
            if cut < _lowest_decimal(source):
                raise self._too_low(source, column=column, row=None)
            return cut
        assert isinstance(value, int)
        number = value - value % self.width
        if number < -(1 << (source.bit_width - 1)):
            raise self._too_low(source, column=column, row=None)
        return number

    def _too_low(self, source: pa.DataType, *, column: str, row: int | None) -> SchemaMismatch:
        return SchemaMismatch(
            f"a value of column {shown(column)} lies below the lowest multiple of {self.width} "
            f"that {source} holds",
            column=column,
            row=row,
            hint="Correct the value, or partition by a smaller truncate width",
        )


def parse_transform(text: str) -> Transform:
    """Read Iceberg's name of a transform, such as `bucket[16]`; raises InvalidArgument."""
    if text == "identity":
        return Identity()
    if text in set(TimeUnit):
        return TimePart(TimeUnit(text))
    found = _PARAMETER.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f"unknown partition transform {text[:64]!r}",
            hint="neve knows identity, year, month, day, hour, bucket[n] and truncate[w]",
        )
    parameter = int(found.group(2))
    return Bucket(parameter) if found.group(1) == "bucket" else Truncate(parameter)


def _check_parameter(value: object, *, what: str, example: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PARAMETER_MAX:
        raise InvalidArgument(
            f"{what} is {shown(value)}", hint=f"Use 1 to {PARAMETER_MAX}, as in {example}"
        )


def _too_far(*, column: str, row: int | None) -> SchemaMismatch:
    # Hours of microseconds leave 32 bits about 245,000 years from 1970; nothing else does.
    return SchemaMismatch(
        f"a value of column {shown(column)} is too far from 1970 to count its hours",
        column=column,
        row=row,
        hint="Correct the value, or partition by day",
    )


def _per_second(source: pa.DataType) -> int:
    assert isinstance(source, pa.TimestampType)
    return _SECONDS[source.unit]


def _units_per_day(source: pa.DataType) -> int:
    return 1 if pa.types.is_date32(source) else _SECONDS_PER_DAY * _per_second(source)


def _month_of_day(day: int) -> int:
    """Months since 1970 of a day number, in the calendar that goes on both ways for ever."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def _lowest_decimal(source: pa.DataType) -> Decimal:
    assert isinstance(source, pa.Decimal128Type)
    return decimal_of(1 - 10**source.precision, source)


# One of each, to tell which of them take a type.
_SAMPLES: Final[dict[str, Transform]] = {
    "identity": Identity(),
    "year": TimePart(TimeUnit.YEAR),
    "month": TimePart(TimeUnit.MONTH),
    "day": TimePart(TimeUnit.DAY),
    "hour": TimePart(TimeUnit.HOUR),
    "bucket(n, …)": Bucket(1),
    "truncate(w, …)": Truncate(1),
}
