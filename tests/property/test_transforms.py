"""Transforms agree with themselves, with PyIceberg, with mmh3, and with the order of values."""

import struct
from datetime import date
from decimal import Decimal

import mmh3
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import transforms as theirs
from pyiceberg import types as iceberg

from neve.errors import SchemaMismatch
from neve.model.plain_values import PlainValue, less, plain_of
from neve.model.transforms import (
    Bucket,
    Identity,
    TimePart,
    TimeUnit,
    Transform,
    Truncate,
    hash_fixed,
    hash_longs,
    hash_variable,
)
from tests.property.column_values import INT64, KINDS, ColumnKind

ICEBERG_TYPES: dict[str, iceberg.IcebergType] = {
    "int": iceberg.IntegerType(),
    "long": iceberg.LongType(),
    "decimal": iceberg.DecimalType(9, 2),
    "wide_decimal": iceberg.DecimalType(38, 10),
    "date": iceberg.DateType(),
    "time": iceberg.TimeType(),
    "timestamp": iceberg.TimestampType(),
    "timestamptz": iceberg.TimestamptzType(),
    "timestamp_ns": iceberg.TimestampNanoType(),
    "timestamptz_ns": iceberg.TimestamptzNanoType(),
    "string": iceberg.StringType(),
    "binary": iceberg.BinaryType(),
    "fixed": iceberg.FixedType(3),
    "uuid": iceberg.UUIDType(),
}

PARAMETERS = st.integers(1, 30) | st.integers(1, (1 << 31) - 1)
TRANSFORMS: st.SearchStrategy[Transform] = st.one_of(
    st.just(Identity()),
    st.sampled_from(TimeUnit).map(TimePart),
    PARAMETERS.map(Bucket),
    PARAMETERS.map(Truncate),
)


@st.composite
def transformed_columns(
    draw: st.DrawFn,
) -> tuple[Transform, str, list[PlainValue | None]]:
    transform = draw(TRANSFORMS)
    names = [name for name, kind in KINDS.items() if transform.accepts(kind.type)]
    name = draw(st.sampled_from(names))
    return transform, name, draw(st.lists(st.none() | KINDS[name].values, max_size=12))


def transform_or_none(
    transform: Transform, value: PlainValue | None, kind: ColumnKind
) -> PlainValue | None:
    """Transform one value; None as well where the result does not fit its type."""
    try:
        return transform.apply_one(value, kind.type)
    except SchemaMismatch:
        return None


@given(transformed_columns())
def test_a_column_and_its_single_values_transform_alike(
    case: tuple[Transform, str, list[PlainValue | None]],
) -> None:
    transform, name, values = case
    kind = KINDS[name]
    single = [transform_or_none(transform, value, kind) for value in values]
    refused = [
        row
        for row, (value, result) in enumerate(zip(values, single, strict=True))
        if value is not None and result is None
    ]
    # One row and one row more on either side, so that the array has an offset.
    array = pa.array([None, *values, None], kind.type).slice(1, len(values))

    if refused:
        with pytest.raises(SchemaMismatch) as caught:
            transform.apply(array, column="c")
        assert (caught.value.row, caught.value.column) == (refused[0], "c")
        return
    results = transform.apply(array, column="c")

    results.validate(full=True)
    assert results.type == transform.result_type(kind.type)
    assert [plain_of(result) for result in results] == single


@given(transformed_columns())
def test_values_transform_as_pyiceberg_transforms_them(
    case: tuple[Transform, str, list[PlainValue | None]],
) -> None:
    transform, name, values = case
    if name not in ICEBERG_TYPES:
        return
    oracle = theirs.parse_transform(str(transform)).transform(ICEBERG_TYPES[name])
    for value in values:
        ours = transform_or_none(transform, value, KINDS[name])
        try:
            wanted = oracle(value)
        except OverflowError:
            continue  # beyond the years 1 to 9999 of Python's calendar
        if ours is not None:
            assert ours == wanted


@given(transformed_columns())
def test_transforms_that_keep_order_never_swap_two_values(
    case: tuple[Transform, str, list[PlainValue | None]],
) -> None:
    transform, name, values = case
    if not transform.preserves_order:
        return
    results = [
        (value, result)
        for value in values
        if value is not None
        and (result := transform_or_none(transform, value, KINDS[name])) is not None
    ]
    for left, left_result in results:
        for right, right_result in results:
            if less(left, right):
                assert not less(right_result, left_result)


@given(transformed_columns())
def test_null_and_only_null_becomes_null(
    case: tuple[Transform, str, list[PlainValue | None]],
) -> None:
    transform, name, values = case
    kind = KINDS[name]
    fitting = [
        value
        for value in values
        if value is None or transform_or_none(transform, value, kind) is not None
    ]

    results = transform.apply(pa.array(fitting, kind.type))

    assert results.is_null().to_pylist() == [value is None for value in fitting]


@given(st.lists(st.integers(*INT64), max_size=30))
def test_longs_hash_as_mmh3_hashes_their_bytes(values: list[int]) -> None:
    hashes = hash_longs(np.array(values, dtype=np.int64))

    assert hashes.tolist() == [mmh3.hash(struct.pack("<q", value)) for value in values]


@given(
    st.integers(0, 40).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=1))
)
def test_rows_of_one_width_hash_as_mmh3_hashes_them(rows: list[bytes]) -> None:
    matrix = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), len(rows[0]))

    assert hash_fixed(matrix).tolist() == [mmh3.hash(row) for row in rows]


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_values_of_any_length_hash_as_mmh3_hashes_them(values: list[bytes]) -> None:
    array = pa.array([b"before", *values], pa.binary()).slice(1)

    assert hash_variable(array).tolist() == [mmh3.hash(value) for value in values]


@given(st.integers(1, 38).flatmap(lambda p: st.integers(1 - 10**p, 10**p - 1)))
def test_decimals_hash_as_their_shortest_twos_complement(unscaled: int) -> None:
    source = pa.decimal128(38, 0)
    shortest = next(
        unscaled.to_bytes(length, "big", signed=True)
        for length in range(1, 17)
        if -(1 << (8 * length - 1)) <= unscaled < 1 << (8 * length - 1)
    )

    bucket = Bucket(1 << 30).apply(pa.array([Decimal(unscaled)], source))[0].as_py()

    assert bucket == (mmh3.hash(shortest) & 0x7FFFFFFF) % (1 << 30)


@given(st.integers(-719_162, 2_932_896), st.integers(-14_000, 14_000))
def test_the_calendar_repeats_every_400_years_however_far_away(day: int, turns: int) -> None:
    # A date of Python's calendar and the same date of another era.
    near = date.fromordinal(day + 719_163)
    far = day + turns * 146_097

    months = TimePart(TimeUnit.MONTH).apply_one(far, pa.date32())
    years = TimePart(TimeUnit.YEAR).apply_one(far, pa.date32())

    assert months == (near.year + 400 * turns - 1970) * 12 + near.month - 1
    assert years == near.year + 400 * turns - 1970
