"""What a footer says of the columns of a row group agrees with the values in it."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.sstable.data_file_footer import GroupFacts
from tests.unit.model.column_facts import facts_of

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "int32": (pa.int32(), [-5, None, 7]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "float32": (pa.float32(), [0.5, None, -2.0]),
    "float64": (pa.float64(), [0.5, None, -2.0]),
    "decimal9": (pa.decimal128(9, 2), [Decimal("-1.25"), None, Decimal("99.00")]),
    "decimal18": (pa.decimal128(18, 0), [Decimal(-1), None, Decimal(10**17)]),
    "decimal38": (pa.decimal128(38, 3), [Decimal("-1.250"), None, Decimal("9" * 30)]),
    "date": (pa.date32(), [date(1, 1, 1), None, date(9999, 12, 31)]),
    "time": (pa.time64("us"), [time(0, 0, 1), None, time(23, 59)]),
    "timestamp": (pa.timestamp("us"), [datetime(1960, 1, 1), None, datetime(2024, 1, 1)]),  # noqa: DTZ001
    "timestamptz": (
        pa.timestamp("us", tz="UTC"),
        [datetime(1960, 1, 1, tzinfo=UTC), None, datetime(2024, 1, 1, tzinfo=UTC)],
    ),
    "timestamp_ns": (pa.timestamp("ns"), [-1, None, 5]),
    "string": (pa.string(), ["b", None, "é"]),
    "binary": (pa.binary(), [b"\xff", None, b""]),
    "fixed": (pa.binary(3), [b"abc", None, b"\xff\0\0"]),
    "uuid": (pa.uuid(), [UUID(int=1), None, UUID(int=2**127)]),
}


def written(
    type_: pa.DataType, values: list[object]
) -> tuple[pq.FileMetaData, TableSchema, ArrowArray]:
    array: ArrowArray = pa.array(
        [value.bytes if isinstance(value, UUID) else value for value in values],
        type_.storage_type if isinstance(type_, pa.UuidType) else type_,
    )
    if isinstance(type_, pa.UuidType):
        array = pa.ExtensionArray.from_storage(type_, array)
    schema = TableSchema.from_arrow(
        pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field("v", type_)]),
        primary_key=["k"],
    )
    table = pa.Table.from_arrays([pa.array(range(len(values))), array], schema=schema.arrow_schema)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, store_schema=False, store_decimal_as_integer=True)
    return pq.read_metadata(pa.BufferReader(sink.getvalue())), schema, array


@pytest.mark.parametrize(("type_", "values"), VALUES.values(), ids=VALUES)
def test_facts_are_those_of_the_values(type_: pa.DataType, values: list[object]) -> None:
    metadata, schema, array = written(type_, values)

    found = GroupFacts(metadata, schema).of(0, 2)

    expected = facts_of(array)
    assert found is not None
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert (found.null_count, found.row_count) == (expected.null_count, expected.row_count)
    assert found.nan_count is None


def test_nan_is_outside_of_the_bounds() -> None:
    metadata, schema, _ = written(pa.float64(), [float("nan"), 1.5, 2.5])

    found = GroupFacts(metadata, schema).of(0, 2)

    assert found is not None
    assert (found.lower, found.upper) == (1.5, 2.5)


def test_nothing_is_known_of_a_column_counted_in_another_unit() -> None:
    _, schema, _ = written(pa.timestamp("us"), [5])
    sink = pa.BufferOutputStream()
    other = pa.table({"k": [1], "v": pa.array([5], pa.timestamp("ms"))})
    pq.write_table(other, sink, store_schema=False)
    metadata = pq.read_metadata(pa.BufferReader(sink.getvalue()))

    assert GroupFacts(metadata, schema).of(0, 2) is None


def test_nothing_is_known_of_a_nested_column() -> None:
    metadata, schema, _ = written(pa.list_(pa.int32()), [[1], None])

    assert GroupFacts(metadata, schema).of(0, 2) is None
    assert GroupFacts(metadata, schema).of(0, 77) is None
