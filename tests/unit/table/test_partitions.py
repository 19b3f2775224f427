"""Directories of partitions: spelled as Iceberg does, the same for new rows and for rewritten."""

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.table.partitions import partition_of, split_by_partition

MOMENT = dt.datetime(2024, 1, 1, 23, 5, tzinfo=dt.UTC)
CASES: list[tuple[pa.DataType, str, object, str]] = [
    (pa.timestamp("us", tz="UTC"), "year(x)", MOMENT, "x_year=2024"),
    (pa.timestamp("us", tz="UTC"), "month(x)", MOMENT, "x_month=2024-01"),
    (pa.timestamp("us", tz="UTC"), "day(x)", MOMENT, "x_day=2024-01-01"),
    (pa.timestamp("us", tz="UTC"), "hour(x)", MOMENT, "x_hour=2024-01-01-23"),
    (pa.date32(), "day(x)", dt.date(1969, 12, 31), "x_day=1969-12-31"),
    (pa.date32(), "x", dt.date(2024, 2, 29), "x=2024-02-29"),
    (pa.timestamp("us", tz="UTC"), "x", MOMENT, "x=2024-01-01T23:05:00.000000%2B00:00"),
    (pa.time64("us"), "x", dt.time(23, 59, 1), "x=23:59:01.000000"),
    (pa.bool_(), "x", True, "x=true"),
    (pa.int64(), "x", -7, "x=-7"),
    (pa.decimal128(9, 2), "x", Decimal("12.50"), "x=12.50"),
    (pa.string(), "x", "a/b", "x=a%2Fb"),
    (pa.string(), "truncate(2, x)", "abc", "x_trunc=ab"),
    (pa.binary(), "x", b"\x00\xff", "x=AP8%3D"),
    (pa.uuid(), "x", uuid.UUID(int=5), f"x={uuid.UUID(int=5)}"),
    (pa.string(), "x", None, "x=null"),
    (pa.timestamp("us", tz="UTC"), "day(x)", None, "x_day=null"),
]


@pytest.mark.parametrize(
    ("type_", "field", "value", "path"), CASES, ids=[case[3] for case in CASES]
)
def test_a_directory_is_named_as_iceberg_spells_its_value(
    type_: pa.DataType, field: str, value: object, path: str
) -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "x": type_}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    spec = PartitionSpec.parse([field], schema)
    rows = pa.Table.from_pylist([{"id": 1, "x": value}], schema=schema.arrow_schema)

    (new,) = split_by_partition(rows, spec, schema)
    rewritten = partition_of(new.values, spec, lambda _field_id: type_)

    assert new.path == rewritten.path == path


def test_buckets_are_numbers() -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64()}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    spec = PartitionSpec.parse(["bucket(4, id)"], schema)
    rows = pa.Table.from_pylist(
        [{"id": number} for number in range(50)], schema=schema.arrow_schema
    )

    paths = {partition.path for partition in split_by_partition(rows, spec, schema)}

    assert paths == {f"id_bucket={number}" for number in range(4)}
