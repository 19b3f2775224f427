"""Rows taken column by column are the rows that the codec makes of them, or None."""

import datetime as dt
from decimal import Decimal
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import NeveError
from neve.model.exact_columns import exact_batch
from neve.model.row_codec import RowCodec
from neve.model.schema import Column, TableSchema
from tests.property.typed_values import PRIMITIVES, Table, tables


class _Name(StrEnum):
    ADA = "ada"


class _Row(dict[str, object]):
    pass


_ZONE = ZoneInfo("Europe/Zurich")
_FAR_EAST = dt.timezone(dt.timedelta(hours=23, minutes=59))
_NASTY = [
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 63,
    -(1 << 63),
    (1 << 53) + 1,
    10**40,
    0.0,
    -0.0,
    0.1,
    float("nan"),
    float("inf"),
    3.4028235677973366e38,
    1e39,
    1e-46,
    5e-324,
    np.float32(1.5),
    np.int64(7),
    np.bool_(True),
    Decimal("1.5"),
    Decimal("1E+3"),
    Decimal("-0"),
    Decimal("0E-50"),
    Decimal("1E+999999"),
    Decimal("1.005"),
    Decimal("NaN"),
    Decimal("sNaN"),
    Decimal("Infinity"),
    "",
    "ada",
    _Name.ADA,
    "\ud800",
    "\x00",
    b"",
    b"\xff",
    b"seven b",
    bytearray(b"1"),
    dt.date.min,
    dt.date.max,
    dt.time(23, 59, 59, 999999),
    dt.time(1, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1),  # noqa: DTZ001 - a value without a zone
    dt.datetime.max,  # noqa: DTZ901 - the same
    dt.datetime(1, 1, 1, tzinfo=_FAR_EAST),
    dt.datetime(9999, 12, 31, 23, 59, tzinfo=dt.timezone(-dt.timedelta(hours=23))),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=_ZONE),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=_ZONE),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    UUID(int=0),
    [],
    [None],
    [1, 2],
    ["a", None],
    (1,),
    {},
    {"f0": None},
    {"f0": 1, "f1": "x"},
    [(1, 2)],
    [(1, 2), (1, 3)],
    [(None, 1)],
    [[1, 2]],
    {"a": 1},
]


def carefully(rows: list[object], schema: TableSchema) -> pa.RecordBatch | None:
    codec = RowCodec(schema)
    try:
        return codec.decode_many([codec.encode(row) for row in rows])  # type: ignore[arg-type]
    except NeveError:
        return None


def assert_never_other(rows: list[object], schema: TableSchema) -> pa.RecordBatch | None:
    found = exact_batch(rows, schema)
    if found is not None:
        wanted = carefully(rows, schema)
        assert wanted is not None, "the codec refuses them"
        found.validate(full=True)
        assert found.schema.equals(wanted.schema, check_metadata=True)
        codec = RowCodec(schema)
        # Bytes tell NaN, -0.0 and the members of NULL apart.
        assert codec.encode_batch(found) == codec.encode_batch(wanted)
    return found


@given(tables(rows_max=6))
def test_rows_of_exact_classes_are_taken_column_by_column(table: Table) -> None:
    found = assert_never_other([*table.rows], table.schema)

    has_nested = any(pa.types.is_nested(each.type) for each in table.schema.columns)
    assert found is not None or has_nested  # a NULL struct with required members is not exact


@given(tables(rows_max=6), st.data())
def test_other_rows_are_left_to_the_codec(table: Table, data: st.DataObject) -> None:
    rows: list[object] = [*table.rows]
    names = [each.name for each in table.schema.columns]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(rows) - 1))
        row = dict(table.rows[at])
        match data.draw(st.sampled_from(["value", "missing", "unknown", "class", "no row"])):
            case "value":
                row[data.draw(st.sampled_from(names))] = data.draw(st.sampled_from(_NASTY))
                rows[at] = row
            case "missing":
                del row[data.draw(st.sampled_from(names))]
                rows[at] = row
            case "unknown":
                rows[at] = row | {"other": 1}
            case "class":
                rows[at] = _Row(row)
            case _:
                rows[at] = data.draw(st.sampled_from([None, 1, "x", [], [("id", 1)]]))

    assert_never_other(rows, table.schema)


@pytest.mark.parametrize("arrow_type", [each.type for each in PRIMITIVES], ids=str)
def test_no_value_of_another_class_is_taken_otherwise(arrow_type: pa.DataType) -> None:
    fields = [pa.field("id", pa.int64(), nullable=False), pa.field("v", arrow_type)]
    schema = TableSchema.from_arrow(pa.schema(fields), primary_key=["id"])

    for value in _NASTY:
        assert_never_other([{"id": 1, "v": value}, {"id": 2, "v": None}], schema)


def test_a_missing_column_is_its_default_and_null_stays_null() -> None:
    schema = TableSchema(
        columns=(
            Column(field_id=1, name="id", type=pa.int64(), nullable=False),
            Column(
                field_id=2,
                name="v",
                type=pa.string(),
                nullable=True,
                initial_default="old",
                write_default="new",
            ),
        ),
        primary_key=(1,),
        schema_id=0,
        last_field_id=2,
    )

    found = assert_never_other([{"id": 1}, {"id": 2, "v": None}, {"id": 3, "v": "x"}], schema)

    assert found is not None
    assert found.column("v").to_pylist() == ["new", None, "x"]
