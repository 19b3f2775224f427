"""Rows as bytes: what is refused, what the bytes are, and how old rows fit new schemas."""

import datetime as dt
import decimal
import struct
import uuid
from collections.abc import Callable
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from neve.errors import Corruption, LimitExceeded, SchemaMismatch
from neve.model import row_codec
from neve.model.row_codec import RowCodec, describe_row
from neve.model.schema import Column, TableSchema

NAIVE: Final = dt.datetime(2024, 2, 29, 12, 30, 15, 123456)  # noqa: DTZ001 - a column without zone
AWARE: Final = dt.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=dt.UTC)


def codec(*fields: tuple[str, pa.DataType], required: tuple[str, ...] = ()) -> RowCodec:
    arrow_fields = [
        pa.field(name, arrow_type, nullable=name not in required) for name, arrow_type in fields
    ]
    schema = pa.schema([pa.field("id", pa.int64()), *arrow_fields])
    return RowCodec(TableSchema.from_arrow(schema, primary_key=["id"]))


def evolved(*columns: Column) -> RowCodec:
    last = max(each.field_id for each in columns) + 100
    schema = TableSchema(columns=columns, primary_key=(1,), schema_id=1, last_field_id=last)
    return RowCodec(schema)


def column(
    field_id: int,
    name: str,
    arrow_type: pa.DataType,
    *,
    nullable: bool = True,
    initial_default: object = None,
) -> Column:
    return Column(
        field_id=field_id,
        name=name,
        type=arrow_type,
        nullable=nullable,
        initial_default=initial_default,
    )


ID: Final = column(1, "id", pa.int64(), nullable=False)
NUMBERED: Final = {"PARQUET:field_id": "3"}
DETAIL: Final = pa.struct([pa.field("a", pa.int32(), metadata=NUMBERED)])

WRONG_VALUES = [
    (pa.bool_(), 1),
    (pa.int32(), "1"),
    (pa.int32(), 1.0),
    (pa.int32(), True),
    (pa.int32(), np.bool_(True)),
    (pa.int32(), np.array([1, 2])),
    (pa.int32(), 1 << 31),
    (pa.int64(), -(1 << 63) - 1),
    (pa.float64(), "1.5"),
    (pa.float64(), True),
    (pa.float64(), (1 << 53) + 1),
    (pa.float64(), 10**400),
    (pa.float64(), decimal.Decimal("1.5")),
    (pa.float32(), 1e39),
    (pa.float32(), (1 << 24) + 1),
    (pa.decimal128(5, 2), 1_000),
    (pa.decimal128(5, 2), True),
    (pa.decimal128(5, 2), 1.5),
    (pa.decimal128(5, 2), decimal.Decimal("1.234")),
    (pa.decimal128(5, 2), decimal.Decimal(1000)),
    (pa.decimal128(5, 2), decimal.Decimal("1E+999999")),
    (pa.decimal128(5, 2), decimal.Decimal("1E-999999")),
    (pa.decimal128(5, 2), decimal.Decimal("NaN")),
    (pa.decimal128(5, 2), decimal.Decimal("-Infinity")),
    (pa.date32(), NAIVE),
    (pa.date32(), "2024-02-29"),
    (pa.time64("us"), dt.time(1, 2, 3, tzinfo=dt.UTC)),
    (pa.time64("us"), NAIVE),
    (pa.timestamp("us"), AWARE),
    (pa.timestamp("us"), NAIVE.date()),
    (pa.timestamp("us"), 5),
    (pa.timestamp("us"), pd.Timestamp(1)),
    (pa.timestamp("us", tz="UTC"), NAIVE),
    (pa.timestamp("ns"), AWARE),
    (pa.timestamp("ns"), dt.datetime(9999, 1, 1)),  # noqa: DTZ001 - beyond nanoseconds
    (pa.timestamp("ns", tz="UTC"), NAIVE),
    (pa.timestamp("ns"), 1 << 63),
    (pa.string(), b"a"),
    (pa.string(), "a\ud800"),
    (pa.binary(), "a"),
    (pa.binary(), [1]),
    (pa.binary(3), b"ab"),
    (pa.uuid(), "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    (pa.uuid(), bytes(16)),
    (pa.list_(pa.int32()), "ab"),
    (pa.list_(pa.int32()), {"a": 1}),
    (pa.struct([("a", pa.int32())]), [("a", 1)]),
    (pa.struct([("a", pa.int32())]), {"b": 1}),
    (pa.map_(pa.string(), pa.int32()), [("a",)]),
    (pa.map_(pa.string(), pa.int32()), ["ab"]),
    (pa.map_(pa.string(), pa.int32()), 7),
]


@pytest.mark.parametrize(("arrow_type", "value"), WRONG_VALUES, ids=lambda each: repr(each)[:40])
def test_a_value_that_does_not_fit_is_refused_naming_the_column(
    arrow_type: pa.DataType, value: object
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        codec(("x", arrow_type)).encode({"id": 1, "x": value})

    assert caught.value.column == "x"


@pytest.mark.parametrize(
    ("arrow_type", "value", "path"),
    [
        (pa.list_(pa.int32()), [1, "2"], "x.element"),
        (pa.struct([("a", pa.list_(pa.bool_()))]), {"a": [1]}, "x.a.element"),
        (pa.map_(pa.string(), pa.int32()), [(None, 1)], "x.key"),
        (pa.map_(pa.string(), pa.int32()), {"k": 1.5}, "x.value"),
    ],
    ids=str,
)
def test_a_wrong_value_inside_a_nested_one_is_named_by_its_path(
    arrow_type: pa.DataType, value: object, path: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        codec(("x", arrow_type)).encode({"id": 1, "x": value})

    assert caught.value.column == path


def test_null_is_refused_in_required_columns_and_fields() -> None:
    inner = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    rows = codec(("x", pa.string()), ("s", inner), required=("x",))

    for row, path in (
        ({"id": None, "x": "a"}, "id"),
        ({"id": 1, "x": None}, "x"),
        ({"id": 1}, "x"),
        ({"x": "a"}, "id"),
        ({"id": 1, "x": "a", "s": {"a": None}}, "s.a"),
        ({"id": 1, "x": "a", "s": {}}, "s.a"),
    ):
        with pytest.raises(SchemaMismatch) as caught:
            rows.encode(row)
        assert caught.value.column == path


def test_an_unknown_column_is_refused_with_the_most_similar_one() -> None:
    with pytest.raises(SchemaMismatch, match="Did you mean 'customer'") as caught:
        codec(("customer", pa.string())).encode({"id": 1, "custommer": "a"})

    assert caught.value.column == "custommer"


def test_a_row_with_every_column_and_one_more_is_refused() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        codec(("x", pa.string())).encode({"id": 1, "x": "a", "y": "b"})

    assert caught.value.column == "y"


@pytest.mark.parametrize("row", [None, 7, "row", [("id", 1)], {1: 2}], ids=repr)
def test_what_is_no_row_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(SchemaMismatch):
        codec().encode(row)


def test_a_row_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_codec, "ROW_BYTES_MAX", 100)
    rows = codec(("x", pa.binary()), ("y", pa.string()))
    batch = pa.record_batch([pa.array([1]), pa.array([bytes(200)])], names=["id", "x"])

    for row in ({"id": 1, "x": bytes(200), "y": ""}, {"id": 1, "x": bytes(200), "y": None}):
        with pytest.raises(LimitExceeded):
            rows.encode(row)
    with pytest.raises(LimitExceeded):
        rows.encode({"id": 1, "x": bytearray(200)})
    with pytest.raises(LimitExceeded):
        rows.encode_batch(batch)


@pytest.mark.parametrize(
    ("arrow_type", "given", "stored"),
    [
        (pa.int64(), np.int64(7), 7),
        (pa.int32(), np.uint8(7), 7),
        (pa.float64(), 7, 7.0),
        (pa.float64(), np.float32(0.5), 0.5),
        (pa.float32(), 0.1, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        (pa.float32(), float("inf"), float("inf")),
        (pa.bool_(), np.bool_(True), True),
        (pa.decimal128(5, 2), decimal.Decimal("1.5000"), decimal.Decimal("1.50")),
        (pa.decimal128(5, 2), decimal.Decimal("0E+999999"), decimal.Decimal("0.00")),
        (pa.decimal128(38, 0), decimal.Decimal(10**38 - 1), decimal.Decimal(10**38 - 1)),
        (
            pa.timestamp("us", tz="UTC"),
            AWARE.astimezone(ZoneInfo("America/New_York")),
            AWARE,
        ),
        (pa.timestamp("us"), pd.Timestamp(NAIVE), NAIVE),
        (pa.timestamp("ns"), pd.Timestamp(1_001), 1_001),
        (pa.timestamp("ns"), NAIVE, 1_709_209_815_123_456_000),
        (pa.timestamp("ns", tz="UTC"), AWARE, 1_709_209_815_123_456_000),
        (pa.timestamp("ns", tz="UTC"), pd.Timestamp(1_001, tz="UTC"), 1_001),
        (pa.binary(), bytearray(b"ab"), b"ab"),
        pytest.param(pa.binary(2), memoryview(b"ab"), b"ab", id="memoryview"),
        (pa.string(), np.str_("a"), "a"),
        (pa.list_(pa.int32()), (1, 2), [1, 2]),
        (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.map_(pa.string(), pa.int32()), {"a": 1}, [("a", 1)]),
        (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"b": 1}, {"a": None, "b": 1}),
    ],
    ids=lambda each: repr(each)[:40],
)
def test_what_stands_for_a_value_is_accepted_and_comes_back_in_its_one_form(
    arrow_type: pa.DataType, given: object, stored: object
) -> None:
    rows = codec(("x", arrow_type))

    found = rows.decode(rows.encode({"id": 1, "x": given}))["x"]

    assert found == stored
    assert type(found) is type(stored)


def test_a_column_left_out_takes_its_write_default() -> None:
    state = Column(field_id=2, name="state", type=pa.string(), nullable=False, write_default="new")
    rows = evolved(ID, state, column(3, "note", pa.string()))

    assert rows.decode(rows.encode({"id": 1})) == {"id": 1, "state": "new", "note": None}


def test_a_schema_of_one_column_has_rows_too() -> None:
    rows = codec()

    assert rows.decode(rows.encode({"id": 5})) == {"id": 5}
    assert rows.decode_many([rows.encode({"id": 5})]).to_pylist() == [{"id": 5}]


def test_old_rows_fit_a_schema_that_grew_shrank_and_widened() -> None:
    before = evolved(
        ID,
        column(2, "count", pa.int32()),
        column(4, "gone", pa.string()),
        column(5, "ratio", pa.float32()),
        column(6, "price", pa.decimal128(5, 2)),
    )
    after = evolved(
        column(6, "cost", pa.decimal128(9, 2)),
        column(7, "state", pa.string(), nullable=False, initial_default="old"),
        column(5, "ratio", pa.float64()),
        ID,
        column(2, "count", pa.int64()),
        column(8, "note", pa.string()),
    )
    full = before.encode(
        {"id": 1, "count": 7, "gone": "x", "ratio": 0.5, "price": decimal.Decimal("1.25")}
    )
    sparse = before.encode({"id": 2})

    rows = [after.decode(full), after.decode(sparse)]

    assert rows == [
        {
            "cost": decimal.Decimal("1.25"),
            "state": "old",
            "ratio": 0.5,
            "id": 1,
            "count": 7,
            "note": None,
        },
        {"cost": None, "state": "old", "ratio": None, "id": 2, "count": None, "note": None},
    ]
    assert list(rows[0]) == ["cost", "state", "ratio", "id", "count", "note"]
    assert after.decode_many([full, sparse]).to_pylist() == rows


def test_old_and_new_rows_mix_and_keep_their_order() -> None:
    before = evolved(ID, column(2, "x", pa.int32()))
    after = evolved(ID, column(2, "x", pa.int64()), column(3, "y", pa.string()))
    values = [
        after.encode({"id": 1, "x": 1, "y": "a"}),
        before.encode({"id": 2, "x": 2}),
        after.encode({"id": 3, "x": None, "y": None}),
        before.encode({"id": 4, "x": None}),
    ]

    batch = after.decode_many(values)

    assert batch.to_pylist() == [after.decode(value) for value in values]
    assert [row["id"] for row in batch.to_pylist()] == [1, 2, 3, 4]


def test_nested_fields_are_projected_by_id() -> None:
    def nested(*fields: tuple[int, str, pa.DataType]) -> Column:
        inner = [
            pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(field_id)})
            for field_id, name, arrow_type in fields
        ]
        element = pa.field("element", pa.struct(inner), metadata={"PARQUET:field_id": "3"})
        return column(2, "x", pa.list_(element))

    before = evolved(ID, nested((4, "a", pa.int32()), (5, "b", pa.string())))
    after = evolved(ID, nested((6, "c", pa.uuid()), (4, "renamed", pa.int64())))
    value = before.encode({"id": 1, "x": [{"a": 7, "b": "dropped"}, None, {"a": None, "b": ""}]})

    row = after.decode(value)

    assert row["x"] == [{"c": None, "renamed": 7}, None, {"c": None, "renamed": None}]
    assert after.decode_many([value]).to_pylist() == [row]


def numbered_list(field_id: int, *, nullable: bool = True) -> pa.DataType:
    metadata = {"PARQUET:field_id": str(field_id)}
    return pa.list_(pa.field("element", pa.int32(), nullable=nullable, metadata=metadata))


@pytest.mark.parametrize(
    "wanted", [numbered_list(9), numbered_list(3, nullable=False)], ids=["id", "required"]
)
def test_a_list_that_cannot_fit_the_schema_is_corruption(wanted: pa.DataType) -> None:
    before = evolved(ID, column(2, "x", numbered_list(3)))
    after = evolved(ID, column(2, "x", wanted))
    value = before.encode({"id": 1, "x": [1, None]})

    with pytest.raises(Corruption):
        after.decode(value)
    with pytest.raises(Corruption):
        after.decode_many([value])


@pytest.mark.parametrize(
    "after",
    [
        lambda: evolved(ID, column(2, "x", pa.string())),
        lambda: evolved(ID, column(2, "x", DETAIL)),
        lambda: evolved(ID, column(2, "x", pa.int32(), nullable=False)),
        lambda: evolved(ID, column(3, "y", pa.int32(), nullable=False)),
    ],
    ids=["another type", "nested", "NULL where none may be", "missing and required"],
)
def test_a_row_that_cannot_fit_the_schema_is_corruption(after: Callable[[], RowCodec]) -> None:
    value = evolved(ID, column(2, "x", pa.int32())).encode({"id": 1, "x": None})

    with pytest.raises(Corruption):
        after().decode(value)
    with pytest.raises(Corruption):
        after().decode_many([value])


def test_a_row_shows_what_it_holds_without_a_schema() -> None:
    rows = codec(
        ("t", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.date32()))])),
        ("m", pa.map_(pa.string(), pa.decimal128(9, 2))),
        ("n", pa.string()),
        ("d", pa.date32()),
    )
    value = rows.encode(
        {
            "id": 1,
            "t": {"a": 2, "b": [dt.date(2020, 1, 1)]},
            "m": [("k", decimal.Decimal(1))],
            "d": dt.date(1, 1, 1),
        }
    )

    assert describe_row(value) == [
        (1, "long", 1),
        (2, "struct", {"6": 2, "7": [dt.date(2020, 1, 1)]}),
        (3, "map", [("k", decimal.Decimal("1.00"))]),
        (4, "string", None),
        (5, "date", dt.date(1, 1, 1)),
    ]


def test_a_moment_python_cannot_hold_is_read_as_arrow_and_shown_as_number() -> None:
    rows = codec(("at", pa.timestamp("us")), ("day", pa.date32()))
    batch = pa.record_batch(
        [
            pa.array([1]),
            pa.array([(1 << 63) - 1], pa.timestamp("us")),
            pa.array([-(1 << 31)], pa.date32()),
        ],
        names=["id", "at", "day"],
    )

    (value,) = rows.encode_batch(batch)

    with pytest.raises(SchemaMismatch, match="as Arrow") as caught:
        rows.decode(value)
    assert caught.value.column == "at"
    assert rows.decode_many([value]).column("at").cast(pa.int64()).to_pylist() == [(1 << 63) - 1]
    assert [shown for _, _, shown in describe_row(value)] == [1, (1 << 63) - 1, -(1 << 31)]


def test_many_headers_of_other_schemas_do_not_pile_up() -> None:
    rows = codec()
    for at in range(100):
        other = evolved(ID, column(2 + at, "x", pa.int32()))
        rows.decode(other.encode({"id": 1, "x": 2}))

    assert len(rows._readers._readers) <= 32


def test_a_batch_and_its_rows_have_the_same_bytes() -> None:
    rows = codec(
        ("b", pa.bool_()),
        ("u", pa.uuid()),
        ("s", pa.string()),
        ("d", pa.decimal128(38, 4)),
        ("x", pa.map_(pa.string(), pa.list_(pa.struct([("t", pa.timestamp("ns"))])))),
        ("f", pa.binary(3)),
    )
    given: list[dict[str, object]] = [
        {
            "id": 1,
            "b": True,
            "u": uuid.UUID(int=7),
            "s": "é",
            "d": decimal.Decimal("-1.5"),
            "x": [("k", [{"t": 1}, None, {"t": None}]), ("l", None)],
            "f": b"abc",
        },
        {"id": 2},
        {"id": 3, "b": False, "s": "", "x": []},
    ]
    values = [rows.encode(row) for row in given]

    batch = rows.decode_many(values)

    assert rows.encode_batch(batch) == values
    assert rows.encode_batch(batch.slice(1)) == values[1:]
    assert batch.schema.equals(rows.schema.arrow_schema, check_metadata=True)
    batch.validate(full=True)


def test_no_rows_are_an_empty_batch() -> None:
    rows = codec(("x", pa.list_(pa.uuid())))

    batch = rows.decode_many([])

    assert batch.num_rows == 0
    assert batch.schema.equals(rows.schema.arrow_schema, check_metadata=True)
    assert rows.encode_batch(batch) == []


def test_an_empty_batch_may_come_without_memory() -> None:
    nothing = pa.Array.from_buffers(pa.int64(), 0, [None, None])

    assert codec().encode_batch(pa.record_batch([nothing], names=["id"])) == []


@pytest.mark.parametrize(
    "arrow_type",
    [
        pa.timestamp("us"),
        pa.timestamp("us", "UTC"),
        pa.timestamp("ns"),
        pa.timestamp("ns", "UTC"),
        pa.date32(),
        pa.time64("us"),
        pa.list_(pa.timestamp("us")),
    ],
    ids=str,
)
def test_the_missing_moment_of_pandas_is_refused(arrow_type: pa.DataType) -> None:
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("t", arrow_type)])
    codec = RowCodec(TableSchema.from_arrow(columns, primary_key=["id"]))
    value = [pd.NaT] if pa.types.is_list(arrow_type) else pd.NaT

    with pytest.raises(SchemaMismatch) as caught:
        codec.encode({"id": 1, "t": value})

    assert caught.value.column in {"t", "t.element"}


def test_an_unknown_column_too_long_to_read_is_shown_in_short() -> None:
    columns = pa.schema(
        [pa.field("id", pa.int64()), pa.field("s", pa.struct([pa.field("a", pa.int64())]))]
    )
    codec = RowCodec(TableSchema.from_arrow(columns, primary_key=["id"]))

    for row in ({"id": 1, "x" * 2_000_000: 1}, {"id": 1, "s": {"x" * 2_000_000: 1}}):
        with pytest.raises(SchemaMismatch) as caught:
            codec.encode(row)
        assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("kind", "value", "hint"),
    [
        (pa.decimal128(9, 2), 1.5, "Pass a Decimal with at most 2 digits after the point"),
        (pa.decimal128(9, 1), "1", "1 digit after the point, such as 142.0"),
        (pa.timestamp("us", tz="UTC"), "2024", "datetime(2024, 1, 31, tzinfo=UTC)"),
        (pa.timestamp("us"), "2024", "a datetime without a zone"),
        (pa.date32(), "2024", "datetime.date(2024, 1, 31)"),
        (pa.int32(), "5", "The column holds int"),
    ],
    ids=range(6),
)
def test_a_refused_value_comes_with_what_to_give_instead(
    kind: pa.DataType, value: object, hint: str
) -> None:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "x": kind}
    codec = RowCodec(TableSchema.from_arrow(pa.schema(columns), primary_key=["id"]))

    with pytest.raises(SchemaMismatch) as refused:
        codec.encode({"id": 1, "x": value})

    assert hint in str(refused.value.hint)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_decoded_numbers_lie_where_other_readers_of_arrow_want_them(count: int) -> None:
    rows = codec(("amount", pa.float64()), ("small", pa.int16()), ("at", pa.timestamp("us")))
    values = [
        rows.encode({"id": number, "amount": 0.5, "small": 1, "at": NAIVE})
        for number in range(count)
    ]

    batch = rows.decode_many(values)

    buffers = [each for array in batch.columns for each in array.buffers() if each is not None]
    assert len(buffers) == batch.num_columns
    assert [each.address % 8 for each in buffers] == [0] * len(buffers)
