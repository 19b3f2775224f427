"""Partition transforms exactly as Iceberg defines them, their texts and the hash of `bucket`.

    transform     takes                                  returns         keeps order
    identity      every primitive type                   the same type   yes
    year, month   date, timestamp                        int32           yes
    day           date, timestamp                        date32          yes
    hour          timestamp                              int32           yes
    bucket[n]     all but bool, float32 and float64      int32, 0 … n-1  no
    truncate[w]   int32, int64, decimal, string, binary  the same type   yes

MODEL-10  NULL becomes NULL, and nothing else does.
MODEL-11  Times are counted from 1970-01-01T00:00 UTC and rounded down: one microsecond before it is
          day -1, hour -1, month -1 and year -1.
MODEL-12  A result that its type cannot hold is refused, never wrapped: a wrapped value would be out
          of order, and pruning would lose the row. Only a few extreme values are refused.
MODEL-13  `apply` and `apply_one` agree.

`day` counts days in 32 bits, as the specification says; date32 is that number, and what other
engines show.

Listings and directory names show partition values as text, as Iceberg spells them:

    transform           plain value                        text
    identity, truncate  a value of the column              2024-01-31, 12.50, us-west
    year, month         years or months since 1970         2024, 2024-03
    day, hour           days or hours since 1970           2024-03-31, 2024-03-31-23
    bucket              number of the bucket               7
    bytes               as they are                        base64

The hash of `bucket` is Murmur3, x86, 32 bits, seed 0. The type decides which bytes are hashed:

    int32, int64, date, time   the number as a 64-bit little-endian integer
    timestamp                  microseconds as the same; nanoseconds are rounded down first
    decimal                    the unscaled number, shortest big-endian two's complement
    string                     UTF-8
    uuid, fixed, binary        the bytes

No library hashes an Arrow column: mmh3 takes one value per call. Values of one width are therefore
hashed here with NumPy, all rows at once; values of varying length go to mmh3 one by one.
"""

import base64
import re
import struct
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias, cast

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidArgument, Phrase, SchemaMismatch, Wording
from neve.model.arrow_buffers import (
    DECIMAL_BYTES,
    decimal_halves,
    decimals_of_halves,
    fixed_bytes,
    integers,
    with_nulls_of,
)
from neve.model.arrow_types import TypeKind, kind_of, type_name
from neve.model.display import shown, shown_type
from neve.model.plain_values import (
    PlainValue,
    decimal_of,
    is_float,
    stored_array,
    to_plain,
    unscaled_of,
)
from neve.model.schema_view import ArrowArray

Hashes: TypeAlias = npt.NDArray[np.int32]

_BLOCK_BYTES: Final = 4
# Bounds the Python bytes objects alive at once while a long column is hashed.
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
    # The last byte always stays, and so does a padding byte that carries the sign.
    useful = rows[:, :-1] != filler[:, None]
    first = np.where(useful.any(axis=1), useful.argmax(axis=1), DECIMAL_BYTES - 1)
    sign_lost = rows[np.arange(len(rows)), first] >> 7 != negative
    lengths = DECIMAL_BYTES - first + sign_lost
    hashes = np.zeros(len(rows), dtype=np.int32)
    # At most sixteen iterations, one per length.
    for length in np.unique(lengths).tolist():
        chosen = lengths == length
        hashes[chosen] = hash_fixed(rows[chosen, DECIMAL_BYTES - length :])
    return hashes


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
        """Return Iceberg's name for the transform, such as `bucket[16]`."""

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
        """Transform a whole column; raises SchemaMismatch with the first bad row."""
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
            Wording(
                Phrase.CANNOT_BE_APPLIED,
                transform=self,
                column=shown(column),
                type=type_name(source),
                arrow_type=shown_type(source),
            ),
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
        """Take every primitive type except bool and floats."""
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
    """Parse Iceberg's name for a transform, such as `bucket[16]`; raises InvalidArgument."""
    if text == "identity":
        return Identity()
    if text in set(TimeUnit):
        return TimePart(TimeUnit(text))
    found = _PARAMETER.fullmatch(text)
    if found is None:
        raise InvalidArgument(
            f"unknown partition transform {text[:64]!r}",
            hint="Use identity, year, month, day, hour, bucket[n] or truncate[w]",
        )
    parameter = int(found.group(2))
    return Bucket(parameter) if found.group(1) == "bucket" else Truncate(parameter)


def _check_parameter(value: object, *, what: str, example: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PARAMETER_MAX:
        raise InvalidArgument(
            f"{what} is {shown(value)}", hint=f"Use 1 to {PARAMETER_MAX}, as in {example}"
        )


def _too_far(*, column: str, row: int | None) -> SchemaMismatch:
    # Only hours of microseconds overflow 32 bits, about 245,000 years from 1970.
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
    """Return the months since 1970 of a day number, in the proleptic Gregorian calendar."""
    return int(np.datetime64(day, "D").astype("datetime64[M]").astype(np.int64))


def _lowest_decimal(source: pa.DataType) -> Decimal:
    assert isinstance(source, pa.Decimal128Type)
    return decimal_of(1 - 10**source.precision, source)


# One of each, to find out which of them take a type.
_SAMPLES: Final[dict[str, Transform]] = {
    "identity": Identity(),
    "year": TimePart(TimeUnit.YEAR),
    "month": TimePart(TimeUnit.MONTH),
    "day": TimePart(TimeUnit.DAY),
    "hour": TimePart(TimeUnit.HOUR),
    "bucket(n, …)": Bucket(1),
    "truncate(w, …)": Truncate(1),
}


_DAY_MICROSECONDS: Final = 86_400_000_000
_TIME_UNITS: Final = {
    TimeUnit.YEAR: "Y",
    TimeUnit.MONTH: "M",
    TimeUnit.DAY: "D",
    TimeUnit.HOUR: "h",
}


def partition_text(transform: Transform, result_type: pa.DataType, value: PlainValue) -> str:
    """Return a value of a transform as text; raises ValueError for one its type cannot hold.

    `result_type` is the type that the transform returns for its column.
    """
    match transform:
        case Bucket():
            return str(value)
        case TimePart(unit):
            return _since_1970(value, _TIME_UNITS[unit]).replace("T", "-")
        case _:
            return _plain_text(result_type, value)


def _plain_text(type_: pa.DataType, value: PlainValue) -> str:
    match kind_of(type_):
        case TypeKind.BOOLEAN:
            return "true" if value else "false"
        case TypeKind.DATE:
            return _since_1970(value, "D")
        case TypeKind.TIME:
            return _time_text(cast("int", value))
        case TypeKind.TIMESTAMP:
            return _since_1970(value, "us")
        case TypeKind.TIMESTAMPTZ:
            return f"{_since_1970(value, 'us')}+00:00"
        case TypeKind.TIMESTAMP_NS:
            return _since_1970(value, "ns")
        case TypeKind.TIMESTAMPTZ_NS:
            return f"{_since_1970(value, 'ns')}+00:00"
        case TypeKind.UUID:
            return str(uuid.UUID(bytes=cast("bytes", value)))
        case TypeKind.FIXED | TypeKind.BINARY:
            return base64.b64encode(cast("bytes", value)).decode()
        case _:
            return str(value)


def _since_1970(count: PlainValue, unit: str) -> str:
    # NumPy's calendar has no first and no last year.
    return str(np.int64(cast("int", count)).astype(f"datetime64[{unit}]"))


def _time_text(microseconds: int) -> str:
    if not 0 <= microseconds < _DAY_MICROSECONDS:
        raise ValueError("a time outside the day")
    return _since_1970(microseconds, "us").partition("T")[2]
