"""Counts and bounds of columns, and Iceberg's form of the latter."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    UUIDType,
)

from neve.model.data_file import ColumnStatistics
from neve.model.plain_values import PlainValue, encode_single_value
from neve.sstable.column_statistics import lower_bound, upper_bound
from tests.unit.sstable.data_files import Files, arrow_schema, rows_of_all_types, schema_of


def statistics_of(values: list[object], arrow_type: pa.DataType) -> ColumnStatistics:
    """Write a column besides a key; gives what is kept about it."""
    schema = schema_of(arrow_schema(id=pa.int64(), a=arrow_type), "id")
    rows = pa.table({"id": list(range(len(values))), "a": values}, schema=schema.arrow_schema)
    (written,) = Files(schema).write(rows)
    return next(each for each in written.file.statistics if each.field_id == 2)


@pytest.mark.parametrize(
    ("value", "lower", "upper"),
    [
        pytest.param("a" * 16, "a" * 16, "a" * 16, id="as long as allowed"),
        pytest.param("a" * 17, "a" * 16, "a" * 15 + "b", id="cut and raised"),
        pytest.param("a" + "\U0010ffff" * 16, "a" + "\U0010ffff" * 15, "b", id="carried over"),
        pytest.param("\U0010ffff" * 17, "\U0010ffff" * 16, None, id="nothing above"),
        pytest.param(
            "a" * 15 + "\ud7ffb", "a" * 15 + "\ud7ff", "a" * 15 + "\ue000", id="surrogates"
        ),
        pytest.param("😀" * 17, "😀" * 16, "😀" * 15 + "😁", id="code points, not bytes"),
        pytest.param("", "", "", id="empty"),
    ],
)
def test_long_text_is_cut_outwards(value: str, lower: str, upper: str | None) -> None:
    assert lower_bound(value, pa.string()) == lower.encode()
    assert upper_bound(value, pa.string()) == (None if upper is None else upper.encode())


@pytest.mark.parametrize(
    ("value", "upper"),
    [
        pytest.param(b"\x01" * 17, b"\x01" * 15 + b"\x02", id="raised"),
        pytest.param(b"\x01" + b"\xff" * 16, b"\x02", id="carried over"),
        pytest.param(b"\xff" * 17, None, id="nothing above"),
    ],
)
def test_long_binary_is_cut_outwards(value: bytes, upper: bytes | None) -> None:
    assert lower_bound(value, pa.binary()) == value[:16]
    assert upper_bound(value, pa.binary()) == upper


def test_a_long_fixed_value_is_not_cut() -> None:
    assert upper_bound(b"\xff" * 20, pa.binary(20)) == b"\xff" * 20


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_cut_bounds_of_text_enclose_all_values(values: list[str]) -> None:
    ordered = sorted(value.encode() for value in values)
    lower = lower_bound(ordered[0].decode(), pa.string())
    upper = upper_bound(ordered[-1].decode(), pa.string())
    assert lower <= ordered[0]
    assert upper is None or upper >= ordered[-1]


@given(st.integers(-(10**20), 10**20))
def test_icebergs_reader_reads_our_decimals(unscaled: int) -> None:
    value = Decimal(unscaled).scaleb(-3)
    form = encode_single_value(pa.decimal128(21, 3), value)
    assert from_bytes(DecimalType(21, 3), form) == value


_ICEBERG_TYPES: list[tuple[PlainValue, pa.DataType, PrimitiveType]] = [
    (True, pa.bool_(), BooleanType()),
    (-5, pa.int32(), IntegerType()),
    (1 << 40, pa.int64(), LongType()),
    (1.5, pa.float32(), FloatType()),
    (-2.25, pa.float64(), DoubleType()),
    (19_000, pa.date32(), DateType()),
    (-7, pa.timestamp("us"), TimestampType()),
    (10**18, pa.timestamp("ns"), TimestampNanoType()),
    ("é", pa.string(), StringType()),
    (b"\0\1", pa.binary(), BinaryType()),
    (bytes(range(16)), pa.uuid(), UUIDType()),
]


@pytest.mark.parametrize(
    ("value", "arrow_type", "iceberg_type"),
    _ICEBERG_TYPES,
    ids=[str(each) for _, _, each in _ICEBERG_TYPES],
)
def test_icebergs_reader_reads_our_bounds(
    value: PlainValue, arrow_type: pa.DataType, iceberg_type: PrimitiveType
) -> None:
    assert from_bytes(iceberg_type, encode_single_value(arrow_type, value)) == value


# Of columns


def test_counts_tell_nulls_and_nan_apart() -> None:
    found = statistics_of([1.0, None, float("nan"), -1.0, None], pa.float64())
    assert (found.value_count, found.null_count, found.nan_count) == (5, 2, 1)
    assert found.lower == encode_single_value(pa.float64(), -1.0)
    assert found.upper == encode_single_value(pa.float64(), 1.0)
    assert found.compressed_bytes > 0


@pytest.mark.parametrize(
    "values",
    [[None, None], [float("nan"), None], [float("nan")]],
    ids=["NULL", "NaN and NULL", "NaN"],
)
def test_no_values_have_no_bounds(values: list[object]) -> None:
    found = statistics_of(values, pa.float64())
    assert (found.lower, found.upper) == (None, None)


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0]], ids=str)
def test_zeros_are_bounded_by_both_zeros(values: list[object]) -> None:
    found = statistics_of(values, pa.float64())
    assert found.lower == bytes.fromhex("0000000000000080")
    assert found.upper == bytes(8)


def test_only_floats_count_nan() -> None:
    assert statistics_of([1, 2], pa.int64()).nan_count is None


def test_long_values_are_only_counted() -> None:
    found = statistics_of(["x" * 200, None], pa.string())
    assert (found.lower, found.upper) == (None, None)
    assert (found.value_count, found.null_count) == (2, 1)


def test_bounds_span_all_groups() -> None:
    values: list[object] = [*range(1_000, 70_000), -5, *range(10)]
    found = statistics_of(values, pa.int32())
    assert found.lower == encode_single_value(pa.int32(), -5)
    assert found.upper == encode_single_value(pa.int32(), 69_999)


_ORDINARY = ["m", "", "é", "z" * 40, "🦌", "\0"]


@pytest.mark.parametrize("arrow_type", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(_ORDINARY, id="of any length"),
        pytest.param(["a", "b"] * 50, id="in a dictionary"),
        pytest.param([None, "b", None], id="with NULL"),
        pytest.param([None, None], id="only NULL"),
        pytest.param([*_ORDINARY * 99, "~" * 5_000], id="a highest one too long for a footer"),
        pytest.param([*"bcd" * 99, "a" * 5_000], id="a lowest one too long for a footer"),
        pytest.param([*["x", None] * 40_000, "a", *[None] * 40_000], id="of several groups"),
    ],
)
def test_text_is_bounded_by_its_lowest_and_highest_value(
    values: list[str | None], arrow_type: pa.DataType
) -> None:
    is_text = arrow_type == pa.string()
    written: list[PlainValue | None] = [
        each if each is None or is_text else each.encode() for each in values
    ]
    # Text is ordered by its code points, which is the order of its bytes.
    ordered = sorted(each.encode() for each in values if each is not None)

    found = statistics_of([*written], arrow_type)

    if not ordered:
        assert (found.lower, found.upper) == (None, None)
        return
    low, high = ((each.decode() if is_text else each) for each in (ordered[0], ordered[-1]))
    assert found.lower == lower_bound(low, arrow_type)
    assert found.upper == upper_bound(high, arrow_type)


def test_nested_columns_are_counted_by_leaf() -> None:
    kind = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string()))])
    schema = schema_of(arrow_schema(id=pa.int64(), a=kind), "id")
    rows = pa.table(
        {
            "id": [1, 2, 3, 4],
            "a": [{"x": 5, "l": ["p", None]}, None, {"x": None, "l": []}, {"x": 7, "l": None}],
        },
        schema=schema.arrow_schema,
    )
    (written,) = Files(schema).write(rows)
    found = {each.field_id: each for each in written.file.statistics}
    # 1 id, 2 a, 3 a.x, 4 a.l, 5 its element.
    assert sorted(found) == [1, 3, 5]
    assert (found[3].value_count, found[3].null_count) == (4, 2)
    assert found[3].lower == encode_single_value(pa.int32(), 5)
    assert found[3].upper == encode_single_value(pa.int32(), 7)
    # Two values of one list, and one entry for each of the others.
    assert (found[5].value_count, found[5].null_count) == (5, 4)
    assert (found[5].lower, found[5].upper) == (None, None)


def test_every_leaf_of_every_type_is_counted() -> None:
    schema, rows = rows_of_all_types(50)
    (written,) = Files(schema).write(rows)
    ids = [each.field_id for each in written.file.statistics]
    assert ids == sorted(set(ids))
    assert len(ids) == len(schema.columns) - 3 + 2 + 2 + 2
    for each in written.file.statistics:
        assert 0 <= each.null_count <= each.value_count
