"""Partition values as texts, compared with PyIceberg's own conversions and spelling."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import transforms as iceberg_transforms
from pyiceberg import types as iceberg_types
from pyiceberg.conversions import to_bytes
from pyiceberg.typedef import L

from neve.catalog.version_view import PartitionWords
from neve.errors import Corruption
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from tests.unit.catalog.builders import a_file, with_type

UTC_TYPE = pa.timestamp("us", tz="UTC")


def spelled(type_: pa.DataType, field: str, value: bytes | None) -> str | None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "x": type_}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    spec = PartitionSpec.parse([field], schema)
    words = PartitionWords({0: spec}, {0: schema}, path="manifest")
    return words.of(a_file(partition={1000: value}))[spec.fields[0].name]


@pytest.mark.parametrize(
    ("field", "count", "transform"),
    [
        ("year(x)", 54, iceberg_transforms.YearTransform()),
        ("year(x)", -1, iceberg_transforms.YearTransform()),
        ("month(x)", 650, iceberg_transforms.MonthTransform()),
        ("month(x)", -1, iceberg_transforms.MonthTransform()),
        ("day(x)", 19_813, iceberg_transforms.DayTransform()),
        ("day(x)", -1, iceberg_transforms.DayTransform()),
        ("hour(x)", 475_000, iceberg_transforms.HourTransform()),
        ("hour(x)", -1, iceberg_transforms.HourTransform()),
    ],
)
def test_parts_of_times_are_spelled_as_pyiceberg_does(
    field: str, count: int, transform: iceberg_transforms.TimeTransform[int]
) -> None:
    stored = to_bytes(iceberg_types.IntegerType(), count)

    assert spelled(UTC_TYPE, field, stored) == transform.to_human_string(
        iceberg_types.TimestamptzType(), count
    )


@pytest.mark.parametrize(
    ("type_", "iceberg_type", "value", "word"),
    [
        (pa.bool_(), iceberg_types.BooleanType(), True, "true"),
        (pa.int32(), iceberg_types.IntegerType(), -7, "-7"),
        (pa.int64(), iceberg_types.LongType(), 1 << 40, "1099511627776"),
        (pa.float32(), iceberg_types.FloatType(), 1.5, "1.5"),
        (pa.float64(), iceberg_types.DoubleType(), -0.1, "-0.1"),
        (pa.decimal128(9, 2), iceberg_types.DecimalType(9, 2), Decimal("-12.50"), "-12.50"),
        (pa.date32(), iceberg_types.DateType(), dt.date(2024, 2, 29), "2024-02-29"),
        (pa.time64("us"), iceberg_types.TimeType(), dt.time(23, 59, 1, 5), "23:59:01.000005"),
        (
            pa.timestamp("us"),
            iceberg_types.TimestampType(),
            dt.datetime(2024, 1, 2, 3, 4, 5),  # noqa: DTZ001 - a column without a zone
            "2024-01-02T03:04:05.000000",
        ),
        (
            UTC_TYPE,
            iceberg_types.TimestamptzType(),
            dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
            "2024-01-02T03:04:05.000000+00:00",
        ),
        (pa.string(), iceberg_types.StringType(), "Köln/☂", "Köln/☂"),
        (
            pa.uuid(),
            iceberg_types.UUIDType(),
            uuid.UUID("9f86d081-884c-4d65-9a2f-eaa0c55ad015"),
            "9f86d081-884c-4d65-9a2f-eaa0c55ad015",
        ),
        (pa.binary(), iceberg_types.BinaryType(), b"\x00\xff", "AP8="),
        (pa.binary(3), iceberg_types.FixedType(3), b"abc", "YWJj"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_values_in_icebergs_single_value_form_are_spelled(
    type_: pa.DataType, iceberg_type: iceberg_types.PrimitiveType, value: L, word: str
) -> None:
    assert spelled(type_, "x", to_bytes(iceberg_type, value)) == word


def test_nanoseconds_buckets_and_truncated_texts_are_spelled() -> None:
    nanosecond = (1).to_bytes(8, "little", signed=True)

    assert spelled(pa.timestamp("ns"), "x", nanosecond) == "1970-01-01T00:00:00.000000001"
    assert spelled(pa.timestamp("ns", tz="UTC"), "x", nanosecond) == (
        "1970-01-01T00:00:00.000000001+00:00"
    )
    assert spelled(pa.string(), "bucket(16, x)", b"\x07\0\0\0") == "7"
    assert spelled(pa.string(), "truncate(2, x)", b"ab") == "ab"


def test_null_stays_null() -> None:
    assert spelled(pa.string(), "x", None) is None


@pytest.mark.parametrize(
    ("type_", "field", "value"),
    [
        (pa.int64(), "x", b"123"),
        (pa.int64(), "x", b""),
        (pa.bool_(), "x", b"\x02"),
        (pa.float64(), "x", b"123"),
        (pa.string(), "x", b"\xff"),
        (pa.uuid(), "x", b"short"),
        (pa.time64("us"), "x", b"\xff" * 8),
        (UTC_TYPE, "day(x)", b"12345"),
    ],
    ids=range(8),
)
def test_bytes_that_are_no_value_are_corruption(
    type_: pa.DataType, field: str, value: bytes
) -> None:
    with pytest.raises(Corruption, match=r"'data/a\.parquet' cannot be read") as damage:
        spelled(type_, field, value)

    assert damage.value.path == "manifest"


def test_a_file_of_a_spec_that_never_was_is_corruption() -> None:
    with pytest.raises(Corruption, match="which the table never had"):
        PartitionWords({}, {}, path="manifest").of(a_file())


def test_a_value_from_before_its_column_was_widened_is_spelled() -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "x": pa.int32()}
    before = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    spec = PartitionSpec.parse(["x"], before)
    words = PartitionWords(
        {0: spec}, {0: before, 1: with_type(before, "x", pa.int64())}, path="manifest"
    )

    assert words.of(a_file(partition={1000: b"\x05\0\0\0"})) == {"x": "5"}
    assert words.of(a_file(partition={1000: b"\x05\0\0\0\0\0\0\0"})) == {"x": "5"}
