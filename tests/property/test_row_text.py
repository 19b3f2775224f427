"""Lines that are written column by column have the bytes of lines that are written one by one."""

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from neve.cli.row_output import csv_cell, csv_lines, json_lines, json_rows
from neve.model.row_codec import RowCodec
from tests.property.typed_values import Table, tables

FLOATS = [0.0, -0.0, 1.0, -5.0, 1e14, 1e15, 1e16, 1e22, 1e300, 5e-324, 1e-4, 9.9e-5, 0.1, 123.456]
FLOATS += [999999999999999.9, 1e15 - 0.5, 2.0**53, float("nan"), float("inf"), float("-inf"), 1 / 3]
TEXTS = [
    "",
    " a",
    "a ",
    "\u00a0a",
    "a\u2028",
    "a,b",
    'a"b',
    "a\nb",
    "a\rb",
    "\\",
    "\x1c",
    "ü",
    "\x7f",
]
TEXTS += ["null", "a'b", "\x00", "x" * 40, "😀", "\u0085"]


def batch_of(table: Table) -> pa.RecordBatch:
    codec = RowCodec(table.schema)
    return codec.decode_many([codec.encode(row) for row in table.rows])


def assert_the_same(batch: pa.RecordBatch) -> None:
    rows = [*json_rows([batch])]
    names = batch.schema.names
    as_csv = "".join(f"{','.join(map(csv_cell, row))}\n" for row in rows)
    as_json = "".join(f"{json.dumps(dict(zip(names, row, strict=True)))}\n" for row in rows)

    sink = io.BytesIO()
    sink.write(csv_lines(batch))
    assert sink.getvalue().decode() == as_csv
    assert bytes(json_lines(batch, begin="", end="\n")).decode() == as_json


@given(tables(rows_max=9), st.integers(0, 3))
def test_rows_of_any_schema_are_written_the_same(table: Table, start: int) -> None:
    batch = batch_of(table)

    assert_the_same(batch)
    assert_the_same(batch.slice(start))
    assert_the_same(batch.slice(0, 0))


@given(st.lists(st.none() | st.floats() | st.floats(-1e16, 1e16) | st.integers(-99, 99).map(float)))
@example(FLOATS)
def test_floats_are_written_the_same(numbers: list[float | None]) -> None:
    for arrow_type in (pa.float64(), pa.float32()):
        array = pa.array(numbers, pa.float64()).cast(arrow_type, safe=False)
        assert_the_same(pa.RecordBatch.from_arrays([array], names=["n"]))


@given(st.lists(st.none() | st.text(max_size=6) | st.text(' ",\r\n\\aé', max_size=4)))
@example(TEXTS)
def test_texts_are_written_the_same(texts: list[str | None]) -> None:
    contents = [None if each is None else each.encode() for each in texts]
    arrays: list[Any] = [pa.array(texts, pa.string()), pa.array(contents, pa.binary())]

    assert_the_same(pa.RecordBatch.from_arrays(arrays, names=["t", 'b"ü']))


def test_far_years_and_small_decimals_are_written_the_same() -> None:
    days = [-719163, -719162, 2932896, 2932897, None, -(1 << 31), (1 << 31) - 1]
    moments = [-62135596800000001, -62135596800000000, 253402300799999999, 253402300800000000]
    moments += [None, -(1 << 63), (1 << 63) - 1]  # type: ignore[list-item]
    decimals = [Decimal("1E-30"), Decimal(0), Decimal("-0.00000001"), Decimal("12.5"), None]
    arrays: list[Any] = [
        pa.array(days, pa.int32()).view(pa.date32()),
        *(
            pa.array(moments, pa.int64()).view(arrow_type)
            for arrow_type in (
                pa.timestamp("us"),
                pa.timestamp("us", "UTC"),
                pa.timestamp("ns"),
                pa.timestamp("ns", "UTC"),
            )
        ),
        pa.array([*decimals, None, None], pa.decimal128(38, 30)),
        pa.array([dt.time(1), dt.time(23, 59, 59, 999999), *[None] * 5], pa.time64("us")),
    ]
    names = [f"c{at}" for at in range(len(arrays))]

    assert_the_same(pa.RecordBatch.from_arrays(arrays, names=names))


def test_the_rows_of_a_document_have_commas_before_them() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2])], names=["id"])

    assert bytes(json_lines(batch, begin=",\n    ", end="")) == b',\n    {"id": 1},\n    {"id": 2}'
