"""Literals on their way into a column's type."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.plain_values import Located, locate, neighbour, plain_of, to_plain

TIMESTAMP, TIMESTAMPTZ = pa.timestamp("us"), pa.timestamp("us", "UTC")
NANOS, NANOSTZ = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NOON_MICROS = 1_709_208_000_000_000
INT32_MAX, INT64_MAX = (1 << 31) - 1, (1 << 63) - 1
FLOAT32_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, pa.bool_()),
        ("true", pa.bool_()),
        (True, pa.int32()),
        ("5", pa.int64()),
        (math.nan, pa.int32()),
        (Decimal("sNaN"), pa.int32()),
        ("1.5", pa.float64()),
        (True, pa.float64()),
        (math.nan, pa.float32()),
        (Decimal("NaN"), pa.float64()),
        ("1,5", pa.decimal128(9, 2)),
        (Decimal("NaN"), pa.decimal128(9, 2)),
        (True, pa.decimal128(9, 2)),
        (NOON, pa.date32()),
        ("2024-02-30", pa.date32()),
        ("2024-02-29T00:00:00", pa.date32()),
        (1.5, pa.date32()),
        ("noon", pa.time64("us")),
        (time(12, tzinfo=UTC), pa.time64("us")),
        (True, pa.time64("us")),
        (NOON, TIMESTAMP),
        ("2024-02-29T12:00:00Z", TIMESTAMP),
        (NOON.replace(tzinfo=None), TIMESTAMPTZ),
        ("2024-02-29T12:00:00", TIMESTAMPTZ),
        ("2024-02-29", TIMESTAMPTZ),
        (date(2024, 2, 29), TIMESTAMPTZ),
        ("yesterday", NANOS),
        (1.5, TIMESTAMP),
        (5, pa.string()),
        (b"a", pa.string()),
        ("\ud800", pa.string()),
        ("a", pa.binary()),
        ([1], pa.binary()),
        (b"ab", pa.binary(3)),
        ("not a uuid", pa.uuid()),
        (b"short", pa.uuid()),
        (5, pa.uuid()),
        pytest.param(10**5000, pa.string(), id="too long to print"),
        pytest.param("x" * 10_000, pa.int32(), id="long text"),
    ],
)
def test_a_literal_of_the_wrong_kind_is_refused_by_column_and_value(
    value: object, type_: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatch, match="Pass ") as caught:
        locate(value, type_, column="price")
    assert caught.value.column == "price"
    assert "'price'" in caught.value.message
    assert type(value).__name__ in caught.value.message
    assert len(str(caught.value)) < 400


def test_nested_columns_have_no_values_to_compare() -> None:
    with pytest.raises(InvalidArgument, match="is_null"):
        locate([1], pa.list_(pa.int32()), column="tags")


@pytest.mark.parametrize(
    ("value", "type_", "expected"),
    [
        (True, pa.bool_(), True),
        (np.bool_(False), pa.bool_(), False),
        (np.int16(7), pa.int32(), 7),
        (7.0, pa.int32(), 7),
        (Decimal("7.00"), pa.int64(), 7),
        (np.float32(0.5), pa.float64(), 0.5),
        (3, pa.float64(), 3.0),
        (Decimal("0.1"), pa.float64(), 0.1),
        (0.1, pa.float32(), float(np.float32(0.1))),
        (math.inf, pa.float32(), math.inf),
        (-math.inf, pa.float64(), -math.inf),
        (9.99, pa.decimal128(9, 2), Decimal("9.99")),
        (5, pa.decimal128(9, 2), Decimal("5.00")),
        ("-1.5", pa.decimal128(9, 2), Decimal("-1.50")),
        (Decimal("0e-1000000"), pa.decimal128(9, 2), Decimal("0.00")),
        (10**38 - 1, pa.decimal128(38, 0), Decimal(10**38 - 1)),
        (date(1969, 12, 31), pa.date32(), -1),
        ("2024-02-29", pa.date32(), 19782),
        (-(1 << 31), pa.date32(), -(1 << 31)),
        (time(12, 0, 0, 1), pa.time64("us"), 43_200_000_001),
        ("12:00:00.000001", pa.time64("us"), 43_200_000_001),
        ("12:00:00.0000010", pa.time64("us"), 43_200_000_001),
        (NOON, TIMESTAMPTZ, NOON_MICROS),
        (NOON.astimezone(timezone(timedelta(hours=5))), TIMESTAMPTZ, NOON_MICROS),
        ("2024-02-29T17:00:00+05:00", TIMESTAMPTZ, NOON_MICROS),
        ("2024-02-29T12:00:00Z", TIMESTAMPTZ, NOON_MICROS),
        ("2024-02-29 12:00:00", TIMESTAMP, NOON_MICROS),
        ("2024-02-29", TIMESTAMP, NOON_MICROS - 43_200_000_000),
        (date(2024, 2, 29), TIMESTAMP, NOON_MICROS - 43_200_000_000),
        (NOON.replace(tzinfo=None), NANOS, NOON_MICROS * 1000),
        ("2024-02-29T12:00:00.123456789", NANOS, NOON_MICROS * 1000 + 123_456_789),
        ("2024-02-29T12:00:00.1234567Z", NANOSTZ, NOON_MICROS * 1000 + 123_456_700),
        (NOON_MICROS, TIMESTAMP, NOON_MICROS),
        ("a\x00é😀", pa.string(), "a\x00é😀"),
        (bytearray(b"ab"), pa.binary(), b"ab"),
        (memoryview(b"abc"), pa.binary(3), b"abc"),
        (UUID(int=5), pa.uuid(), UUID(int=5).bytes),
        (str(UUID(int=5)), pa.uuid(), UUID(int=5).bytes),
        (UUID(int=5).bytes, pa.uuid(), UUID(int=5).bytes),
    ],
)
def test_a_value_the_column_can_hold_becomes_plain(
    value: object, type_: pa.DataType, expected: object
) -> None:
    plain = to_plain(value, type_, column="c")

    assert plain == expected
    assert type(plain) is type(expected)
    assert to_plain(plain, type_, column="c") == plain


@pytest.mark.parametrize(
    ("value", "type_", "floor"),
    [
        (2.5, pa.int32(), 2),
        (-2.5, pa.int32(), -3),
        (Decimal("1e-400000000"), pa.int64(), 0),
        (Decimal("-1e-400000000"), pa.int64(), -1),
        (Decimal("1e400000000"), pa.int64(), INT64_MAX),
        (Decimal("-1e400000000"), pa.int64(), None),
        (math.inf, pa.int32(), INT32_MAX),
        (-math.inf, pa.int32(), None),
        (1 << 31, pa.int32(), INT32_MAX),
        (-(1 << 31) - 1, pa.int32(), None),
        (1 << 31, pa.date32(), INT32_MAX),
        (Decimal("1.005"), pa.decimal128(9, 2), Decimal("1.00")),
        (Decimal("-1.005"), pa.decimal128(9, 2), Decimal("-1.01")),
        (10**7, pa.decimal128(9, 2), Decimal("9999999.99")),
        (-(10**7), pa.decimal128(9, 2), None),
        (Decimal("-99999999.99"), pa.decimal128(9, 2), None),
        (Decimal("-9999999.995"), pa.decimal128(9, 2), None),
        (1e300, pa.float32(), FLOAT32_MAX),
        (-1e300, pa.float32(), -math.inf),
        (10**400, pa.float64(), float(np.finfo(np.float64).max)),
        (-(10**400), pa.float64(), -math.inf),
        (-1, pa.time64("us"), None),
        (86_400_000_000, pa.time64("us"), 86_399_999_999),
        ("12:00:00.0000019", pa.time64("us"), 43_200_000_001),
        ("2024-02-29T12:00:00.0000019", TIMESTAMP, NOON_MICROS + 1),
        ("2024-02-29T12:00:00.0000000019", NANOS, NOON_MICROS * 1000 + 1),
        ("9999-01-01T00:00:00", NANOS, INT64_MAX),
        ("0001-01-01T00:00:00Z", NANOSTZ, None),
    ],
)
def test_a_value_between_two_of_the_column_is_located_at_the_lower(
    value: object, type_: pa.DataType, floor: object
) -> None:
    located = locate(value, type_, column="c")

    assert located == Located(floor, exact=False)  # type: ignore[arg-type]
    with pytest.raises(SchemaMismatch, match="cannot hold"):
        to_plain(value, type_, column="c")


def test_the_nanoseconds_of_a_pandas_timestamp_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    moment = pandas.Timestamp(NOON_MICROS * 1000 + 789)

    assert locate(moment, NANOS, column="c") == Located(NOON_MICROS * 1000 + 789)
    assert locate(moment, TIMESTAMP, column="c") == Located(NOON_MICROS, exact=False)


@pytest.mark.parametrize(
    ("value", "type_", "below", "above"),
    [
        (5, pa.int32(), 4, 6),
        (INT32_MAX, pa.int32(), INT32_MAX - 1, INT32_MAX),
        (-(1 << 63), pa.int64(), -(1 << 63), 1 - (1 << 63)),
        (0, pa.date32(), -1, 1),
        (0, pa.time64("us"), 0, 1),
        (0, TIMESTAMP, -1, 1),
        (Decimal("1.00"), pa.decimal128(9, 2), Decimal("0.99"), Decimal("1.01")),
        (Decimal("9.99"), pa.decimal128(3, 2), Decimal("9.98"), Decimal("9.99")),
        (Decimal("-9.99"), pa.decimal128(3, 2), Decimal("-9.99"), Decimal("-9.98")),
    ],
    ids=str,
)
def test_neighbours_are_one_step_away_unless_the_type_ends(
    value: int | Decimal, type_: pa.DataType, below: object, above: object
) -> None:
    assert neighbour(value, type_, up=False) == below
    assert neighbour(value, type_, up=True) == above


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, pa.bool_()),
        (-(1 << 31), pa.date32()),
        (1, pa.time64("us")),
        (INT64_MAX, TIMESTAMPTZ),
        (INT64_MAX, NANOS),
        (0.5, pa.float32()),
        (Decimal("1.50"), pa.decimal128(9, 2)),
        ("é", pa.string()),
        (b"\xff", pa.binary()),
        (b"abc", pa.binary(3)),
        (b"0123456789abcdef", pa.uuid()),
    ],
    ids=str,
)
def test_what_arrow_holds_comes_out_plain(value: object, type_: pa.DataType) -> None:
    filled, null = pa.array([value, None], type_)

    assert plain_of(filled) == value
    assert plain_of(null) is None


def test_nested_scalars_have_no_plain_form() -> None:
    with pytest.raises(InvalidArgument, match="no plain form"):
        plain_of(pa.scalar([1], pa.list_(pa.int32())))


@pytest.mark.parametrize(
    "type_",
    [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.date32()],
    ids=str,
)
def test_the_missing_moment_of_pandas_is_no_value(type_: pa.DataType) -> None:
    pandas = pytest.importorskip("pandas")

    with pytest.raises(SchemaMismatch) as caught:
        to_plain(pandas.NaT, type_, column="t")
    assert caught.value.column == "t"
    assert caught.value.hint
