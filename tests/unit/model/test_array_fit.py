"""Batches made to fit a schema: what is cast, what is filled in, and what is refused where."""

import datetime as dt
import decimal
import io
import math
import uuid
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from neve.errors import SchemaMismatch
from neve.model.array_fit import first_bad_row, fit_column
from neve.model.schema import Column, TableSchema, normalize_batch

ArrowArray: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def short(each: object) -> str:
    return " ".join(str(each).split())[:30]


def table(arrow_type: pa.DataType, *, nullable: bool = True) -> TableSchema:
    fields = [pa.field("id", pa.int64()), pa.field("x", arrow_type, nullable=nullable)]
    return TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])


def batch(values: ArrowArray) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(values)), pa.int64()), values], names=["id", "x"])


def invalid_text() -> ArrowArray:
    offsets = pa.py_buffer(np.array([0, 1, 2], "<i4").tobytes())
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xff")])


def invalid_time() -> ArrowArray:
    memory = pa.py_buffer(np.array([5, 86_400_000_000], "<i8").tobytes())
    return pa.Array.from_buffers(pa.time64("us"), 2, [None, memory])


LOSSY = [
    (pa.int32(), pa.array([1, 2, 1 << 31]), 2),
    (pa.int32(), pa.array([1, (1 << 64) - 1], pa.uint64()), 1),
    (pa.int64(), pa.array([1.0, 2.5]), 1),
    (pa.float32(), pa.array([0.5, 0.1]), 1),
    (pa.float32(), pa.array([0.5, 1e300]), 1),
    (pa.float64(), pa.array([1, (1 << 53) + 1]), 1),
    (pa.decimal128(4, 2), pa.array([1, 100]), 1),
    (pa.decimal128(4, 2), pa.array([None, decimal.Decimal("1.234")]), 1),
    (pa.date32(), pa.array([0, 86_400_001], pa.date64()), 1),
    (pa.time64("us"), pa.array([1_000, 1], pa.time64("ns")), 1),
    (pa.timestamp("us"), pa.array([1_000, 1], pa.timestamp("ns")), 1),
    (pa.timestamp("us"), pa.array([1, 1 << 62], pa.timestamp("s")), 1),
    (pa.timestamp("ns"), pa.array([1, 1 << 62], pa.timestamp("us")), 1),
    (pa.binary(3), pa.array([b"abc", b"ab"]), 1),
    (pa.uuid(), pa.array([b"12345678"], pa.binary(8)), 0),
    (pa.string(), invalid_text(), 1),
    (pa.time64("us"), invalid_time(), 1),
    (pa.list_(pa.int32()), pa.array([[1], None, [2, 1 << 40]]), 2),
]


@pytest.mark.parametrize(("wanted", "values", "row"), LOSSY, ids=short)
def test_a_value_that_would_change_is_refused_with_its_row(
    wanted: pa.DataType, values: ArrowArray, row: int
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        normalize_batch(batch(values), table(wanted))

    assert caught.value.row == row
    assert caught.value.column is not None
    assert caught.value.column.startswith("x")


@pytest.mark.parametrize(
    ("wanted", "values"),
    [
        (pa.int64(), pa.array(["1"])),
        (pa.int64(), pa.array([True])),
        (pa.string(), pa.array([1])),
        (pa.string(), pa.array([b"a"])),
        (pa.bool_(), pa.array([1])),
        (pa.date32(), pa.array([0], pa.timestamp("us"))),
        (pa.timestamp("us"), pa.array([0], pa.timestamp("us", tz="UTC"))),
        (pa.timestamp("us", tz="UTC"), pa.array([0], pa.timestamp("us"))),
        (pa.decimal128(9, 2), pa.array([1.5])),
        (pa.uuid(), pa.array(["f79c3e09-677c-4bbd-a479-3f349cb785e7"])),
        (pa.list_(pa.int64()), pa.array([1])),
        (pa.int64(), pa.array([[1]])),
        (pa.int64(), pa.array([1], pa.duration("s"))),
        (pa.struct([("a", pa.int64())]), pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))),
        (pa.struct([("a", pa.int64())]), pa.array([{"b": 1}])),
    ],
    ids=short,
)
def test_a_type_that_cannot_become_the_columns_is_refused_without_a_row(
    wanted: pa.DataType, values: ArrowArray
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        normalize_batch(batch(values), table(wanted))

    assert caught.value.row is None
    assert caught.value.column == "x"


def test_null_in_a_required_column_is_refused_with_its_row() -> None:
    plain = pa.array([1, 2, None])
    in_dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), pa.array([7, None]))
    in_runs: ArrowArray = pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3], pa.int32()), pa.array([7, None])
    )

    for values in (plain, in_dictionary, in_runs):
        with pytest.raises(SchemaMismatch) as caught:
            normalize_batch(batch(values), table(pa.int64(), nullable=False))
        assert (caught.value.column, caught.value.row) == ("x", 2)


def test_null_in_a_required_nested_field_is_refused_with_its_path_and_row() -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    in_list = table(pa.list_(inner))
    values = pa.array([[{"a": 1, "b": None}], None, [], [{"a": 2, "b": "x"}, {"b": "y"}]])
    required = pa.field("value", pa.int64(), nullable=False)
    in_map = table(pa.map_(pa.string(), required))  # type: ignore[call-overload]
    pairs = pa.array([[("k", 1)], [("k", None)]], pa.map_(pa.string(), pa.int64()))

    with pytest.raises(SchemaMismatch) as list_caught:
        normalize_batch(batch(values), in_list)
    with pytest.raises(SchemaMismatch) as map_caught:
        normalize_batch(batch(pairs), in_map)

    assert (list_caught.value.column, list_caught.value.row) == ("x.element.a", 3)
    assert (map_caught.value.column, map_caught.value.row) == ("x.value", 1)


def test_what_lies_under_a_null_struct_or_list_is_not_looked_at() -> None:
    child = pa.array([1, 1 << 40, None])
    structs = pa.StructArray.from_arrays([child], ["a"], mask=pa.array([False, True, True]))
    offsets = pa.array([0, 1, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, child, mask=pa.array([False, True]))
    required = pa.field("a", pa.int32(), nullable=False)

    fitted = normalize_batch(batch(structs), table(pa.struct([required])))
    fitted_lists = normalize_batch(batch(lists), table(pa.list_(required)))

    assert fitted.column("x").to_pylist() == [{"a": 1}, None, None]
    assert fitted_lists.column("x").to_pylist() == [[1], None]


def test_a_struct_without_a_required_field_or_with_one_twice_is_refused() -> None:
    schema = table(pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())]))
    missing = pa.array([{"b": 1}])
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([1])], names=["a", "a"])

    with pytest.raises(SchemaMismatch) as missing_caught:
        normalize_batch(batch(missing), schema)
    with pytest.raises(SchemaMismatch, match="two fields of one name"):
        normalize_batch(batch(twice), schema)

    assert missing_caught.value.column == "x.a"


def test_the_first_bad_row_and_its_path_belong_together() -> None:
    wanted = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    values = pa.array([{"a": 1, "b": 1}, {"a": 1, "b": 1 << 40}, {"a": 1 << 40, "b": 1}])

    with pytest.raises(SchemaMismatch) as caught:
        normalize_batch(batch(values), table(wanted))

    assert (caught.value.column, caught.value.row) == ("x.b", 1)


@pytest.mark.parametrize(
    ("names", "column"),
    [
        (["id", "y"], "y"),
        (["id", "id"], "id"),
        (["x", "y"], "y"),
    ],
)
def test_columns_the_table_does_not_have_are_refused(names: list[str], column: str) -> None:
    given = pa.record_batch([pa.array([1]), pa.array([1])], names=names)

    with pytest.raises(SchemaMismatch) as caught:
        normalize_batch(given, table(pa.int64()))

    assert caught.value.column == column


def test_a_missing_required_column_is_refused() -> None:
    given = pa.record_batch([pa.array([1])], names=["x"])

    with pytest.raises(SchemaMismatch) as caught:
        normalize_batch(given, table(pa.int64()))

    assert caught.value.column == "id"


FITTING = [
    (pa.int32(), pa.array([1, None], pa.uint64()), [1, None]),
    (pa.int64(), pa.array([1.0, 2.0]), [1, 2]),
    (pa.int64(), pa.nulls(2), [None, None]),
    (pa.float32(), pa.array([0.5, float("inf"), None]), [0.5, float("inf"), None]),
    (pa.float64(), pa.array([1, 2], pa.int8()), [1.0, 2.0]),
    (pa.decimal128(38, 30), pa.array([7]), [decimal.Decimal(7)]),
    (
        pa.decimal128(20, 0),
        pa.array([(1 << 64) - 1], pa.uint64()),
        [decimal.Decimal((1 << 64) - 1)],
    ),
    (pa.string(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    (pa.string(), pa.array(["a", None], pa.string_view()), ["a", None]),
    (
        pa.string(),  # a categorical column of Polars
        pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())
        ),
        ["b", None, "a"],
    ),
    (
        pa.binary(),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([b"ab"], pa.binary_view())),
        [b"ab"],
    ),
    (pa.binary(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    (pa.binary(2), pa.array([b"ab"]), [b"ab"]),
    (pa.uuid(), pa.array([bytes(15) + b"\1"], pa.binary(16)), [uuid.UUID(int=1)]),
    (pa.date32(), pa.array([86_400_000], pa.date64()), [dt.date(1970, 1, 2)]),
    (pa.time64("us"), pa.array([1], pa.time32("s")), [dt.time(0, 0, 1)]),
    (
        pa.timestamp("us", tz="UTC"),
        pa.array([0], pa.timestamp("ms", tz="Europe/Paris")),
        [dt.datetime(1970, 1, 1, tzinfo=dt.UTC)],
    ),
    (pa.list_(pa.int64()), pa.array([[1], None, []], pa.list_view(pa.uint64())), [[1], None, []]),
    (pa.list_(pa.int64()), pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    (pa.list_(pa.int64()), pa.array([[], [None]]), [[], [None]]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        pa.array([{"b": "x"}, None], pa.struct([("b", pa.large_string())])),
        [{"a": None, "b": "x"}, None],
    ),
    (
        pa.map_(pa.string(), pa.list_(pa.uuid())),
        pa.array(
            [[("k", [bytes(16)])], None, []],
            pa.map_(pa.large_string(), pa.large_list(pa.binary(16))),
        ),
        [[("k", [uuid.UUID(int=0)])], None, []],
    ),
]


@pytest.mark.parametrize(("wanted", "values", "expected"), FITTING, ids=short)
def test_what_fits_is_cast_to_exactly_the_schema(
    wanted: pa.DataType, values: ArrowArray, expected: list[object]
) -> None:
    schema = table(wanted)

    fitted = normalize_batch(batch(values), schema)

    assert fitted.schema.equals(schema.arrow_schema, check_metadata=True)
    assert fitted.column("x").type.equals(schema.column("x").type, check_metadata=True)
    assert fitted.column("x").to_pylist() == expected
    fitted.validate(full=True)


@pytest.mark.parametrize(("wanted", "values", "expected"), FITTING, ids=short)
def test_a_slice_fits_as_the_whole_does(
    wanted: pa.DataType, values: ArrowArray, expected: list[object]
) -> None:
    fitted = normalize_batch(batch(values).slice(1), table(wanted))

    assert fitted.column("x").to_pylist() == expected[1:]


def test_columns_are_ordered_by_name_and_filled_with_write_default_or_null() -> None:
    columns = (
        Column(field_id=1, name="id", type=pa.int64(), nullable=False),
        Column(field_id=2, name="state", type=pa.string(), nullable=False, write_default="new"),
        Column(field_id=3, name="note", type=pa.string(), nullable=True),
        Column(
            field_id=4, name="owner", type=pa.uuid(), nullable=True, write_default=uuid.UUID(int=5)
        ),
    )
    schema = TableSchema(columns=columns, primary_key=(1,), schema_id=0, last_field_id=4)
    given = pa.record_batch([pa.array(["hi", None]), pa.array([1, 2])], names=["note", "id"])

    fitted = normalize_batch(given, schema)

    assert fitted.to_pylist() == [
        {"id": 1, "state": "new", "note": "hi", "owner": uuid.UUID(int=5)},
        {"id": 2, "state": "new", "note": None, "owner": uuid.UUID(int=5)},
    ]


def test_a_batch_that_fits_already_is_not_copied() -> None:
    schema = table(pa.string())
    given = pa.record_batch([pa.array([1]), pa.array(["a"])], schema=schema.arrow_schema)

    fitted = normalize_batch(given, schema)

    for before, after in zip(given.columns, fitted.columns, strict=True):
        addresses = [each and each.address for each in before.buffers()]
        assert addresses == [each and each.address for each in after.buffers()]


def test_required_fields_below_null_hold_no_null_so_that_parquet_takes_them() -> None:
    deep = pa.struct([pa.field("d", pa.string(), nullable=False), pa.field("e", pa.int32())])
    fields = [
        pa.field("a", pa.int32(), nullable=False),
        pa.field("u", pa.uuid(), nullable=False),
        pa.field("l", pa.list_(pa.field("element", deep, nullable=False)), nullable=False),
        pa.field("m", pa.map_(pa.string(), pa.int32()), nullable=False),
        pa.field("s", deep, nullable=False),
    ]
    schema = table(pa.struct(fields))
    ids = pa.record_batch([pa.array([1, 2])], names=["id"])
    nothing = ids.append_column("x", pa.nulls(2, pa.struct(fields)))

    for given in (ids, nothing):
        fitted = normalize_batch(given, schema)
        file = io.BytesIO()
        pq.write_table(pa.Table.from_batches([fitted]), file)

        assert pq.read_table(file).column("x").to_pylist() == [None, None]
        assert all(child.null_count == 0 for child in _children(fitted))


def _children(batch: pa.RecordBatch) -> list[ArrowArray]:
    struct = batch.column("x")
    assert isinstance(struct, pa.StructArray)
    return [struct.field(at) for at in range(struct.type.num_fields)]


@pytest.mark.parametrize(
    ("array", "wanted", "hint"),
    [
        (pa.array([1.5]), pa.decimal128(9, 2), "cast(column, pa.decimal128(9, 2))"),
        (pa.array(["1"]), pa.decimal128(9, 2), "cast(column, pa.decimal128(9, 2))"),
        (pa.array([0], pa.timestamp("us")), UTC_MICROSECONDS, "assume_timezone(column, 'UTC')"),
        (pa.array([0], UTC_MICROSECONDS), pa.timestamp("us"), "local_timestamp(column)"),
        (pa.array(["2024"]), UTC_MICROSECONDS, "cast(column, pa.timestamp('us', 'UTC'))"),
        (pa.array(["2024-01-31"]), pa.date32(), "cast(column, 'date32[day]')"),
        (pa.array([1]), pa.string(), "cast(column, 'string')"),
    ],
    ids=range(7),
)
def test_a_column_of_another_type_is_told_how_to_be_cast(
    array: ArrowArray, wanted: pa.DataType, hint: str
) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        fit_column(array, pa.field("x", wanted))

    assert refused.value.row is None
    assert refused.value.hint is not None
    assert hint in refused.value.hint
    # What it says is what helps.
    call = refused.value.hint.partition("first: pyarrow.compute.")[2]
    cast = eval(f"pc.{call}", {"pc": pc, "pa": pa, "column": array.slice(0, 0)})  # noqa: S307 - ours
    assert fit_column(cast, pa.field("x", wanted)).type == wanted


def test_a_cast_that_arrow_has_not_is_not_suggested() -> None:
    with pytest.raises(SchemaMismatch) as refused:
        fit_column(pa.array([True]), pa.field("x", pa.uuid()))

    assert refused.value.hint == "The column holds uuid"


def test_a_value_that_does_not_fit_is_named_with_its_row() -> None:
    with pytest.raises(SchemaMismatch) as refused:
        fit_column(pa.array([1, 2**40]), pa.field("x", pa.int32()))

    assert refused.value.row == 1
    assert str(refused.value).startswith("column 'x': ")
    assert ", in row 1. The column holds int" in str(refused.value)


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 1_000])
def test_every_row_can_be_found(rows: int) -> None:
    for bad in range(rows):
        assert first_bad_row(rows, lambda length, bad=bad: length <= bad) == bad  # type: ignore[misc]


def test_a_million_rows_are_judged_twenty_times() -> None:
    judged: list[int] = []

    def is_good(rows: int) -> bool:
        judged.append(rows)
        return rows <= 123_456

    assert first_bad_row(1_000_000, is_good) == 123_456
    assert len(judged) <= math.ceil(math.log2(1_000_000))
