"""Single rows from the memory of a batch."""

import datetime as dt
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from neve.errors import Corruption, NeveError, SchemaMismatch
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.sstable.row_cells import RowCells

VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "boolean": (pa.bool_(), [True, False, None] * 7),
    "int": (pa.int32(), [-(1 << 31), (1 << 31) - 1, None] * 7),
    "long": (pa.int64(), [-(1 << 63), (1 << 63) - 1, None] * 7),
    "float": (pa.float32(), [0.5, -0.0, None] * 7),
    "double": (pa.float64(), [1e300, float("inf"), None] * 7),
    "decimal": (pa.decimal128(38, 2), [Decimal("-1.50"), Decimal("9" * 36), None] * 7),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None] * 7),
    "time": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999_999), None] * 7),
    "timestamp": (pa.timestamp("us"), [dt.datetime(1969, 1, 2, 3), dt.datetime.max, None] * 7),  # noqa: DTZ001, DTZ901
    "timestamptz": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC), None] * 7,
    ),
    "timestamp_ns": (pa.timestamp("ns"), [-1, (1 << 63) - 1, None] * 7),
    "timestamptz_ns": (pa.timestamp("ns", tz="UTC"), [-1, 1, None] * 7),
    "string": (pa.string(), ["", "é😀\0", None] * 7),
    "binary": (pa.binary(), [b"", b"\0\xff", None] * 7),
    "fixed": (pa.binary(3), [b"abc", b"\0\0\0", None] * 7),
    "uuid": (pa.uuid(), [UUID(int=0), UUID(int=(1 << 128) - 1), None] * 7),
    "list": (pa.list_(pa.uuid()), [[], [UUID(int=5), None], None] * 7),
    "struct": (
        pa.struct([("a", pa.date32())]),
        [{"a": dt.date(2026, 1, 1)}, {"a": None}, None] * 7,
    ),
    "map": (pa.map_(pa.string(), pa.timestamp("ns")), [[], [("k", 7)], None] * 7),
}


def schema_of(column: pa.DataType) -> TableSchema:
    fields: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("c", column)]
    return TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])


def batch_of(schema: TableSchema, values: list[object]) -> pa.RecordBatch:
    codec = RowCodec(schema)
    return codec.decode_many(
        [codec.encode({"id": at, "c": value}) for at, value in enumerate(values)]
    )


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_type_come_out_as_they_went_in(kind: str) -> None:
    column, values = VALUES[kind]
    schema = schema_of(column)
    batch = batch_of(schema, values)
    cells = RowCells(schema)

    for first in (0, 1, 8, 9, 20):
        row = cells.bind(batch.slice(first))
        found = [row(at) for at in range(len(values) - first)]
        assert found == [{"id": first + at, "c": each} for at, each in enumerate(values[first:])]
        assert [type(each["c"]) for each in found] == [type(each) for each in values[first:]]


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_of_nothing_but_null_is_null(kind: str) -> None:
    schema = schema_of(VALUES[kind][0])
    batch = batch_of(schema, [None, None])

    assert RowCells(schema).row(batch, 1) == {"id": 1, "c": None}


@pytest.mark.parametrize("kind", VALUES)
def test_a_batch_without_rows_can_be_bound(kind: str) -> None:
    schema = schema_of(VALUES[kind][0])

    with pytest.raises(IndexError):
        RowCells(schema).bind(batch_of(schema, []))(0)


def test_the_values_outlive_the_batch() -> None:
    schema = schema_of(pa.string())
    row = RowCells(schema).bind(batch_of(schema, ["a" * 100, "b"]))

    assert row(0)["c"] == "a" * 100


def error_of(call: object) -> tuple[type[NeveError], str | None]:
    assert callable(call)
    with pytest.raises(NeveError) as caught:
        call()
    return type(caught.value), getattr(caught.value, "column", None)


@pytest.mark.parametrize(
    ("column", "storage"),
    [(pa.date32(), pa.int32()), (pa.timestamp("us"), pa.int64())],
    ids=["date", "timestamp"],
)
def test_a_year_that_python_does_not_know_is_refused_as_the_codec_refuses_it(
    column: pa.DataType, storage: pa.DataType
) -> None:
    schema = schema_of(column)
    far = pa.array([0, (1 << storage.bit_width - 1) - 1], storage).view(column)
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), far], schema=schema.arrow_schema)
    codec = RowCodec(schema)
    row = RowCells(schema).bind(batch)

    assert row(0) == codec.decode(codec.encode_batch(batch)[0])
    refused = error_of(lambda: row(1))
    assert refused == (SchemaMismatch, "c")
    assert refused == error_of(lambda: codec.decode(codec.encode_batch(batch)[1]))


def test_text_that_is_no_utf8_is_corruption_naming_the_column() -> None:
    schema = schema_of(pa.string())
    broken = pa.array([b"ok", b"\xff"], pa.binary()).view(pa.string())
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), broken], schema=schema.arrow_schema)
    row = RowCells(schema).bind(batch)

    assert row(0)["c"] == "ok"
    with pytest.raises(Corruption, match="column 'c'"):
        row(1)


def test_a_time_outside_of_a_day_is_corruption() -> None:
    schema = schema_of(pa.time64("us"))
    broken = pa.array([-1], pa.int64()).view(pa.time64("us"))
    batch = pa.RecordBatch.from_arrays([pa.array([0]), broken], schema=schema.arrow_schema)

    with pytest.raises(Corruption, match="time"):
        RowCells(schema).row(batch, 0)
