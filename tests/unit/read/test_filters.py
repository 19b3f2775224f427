"""Filters in every form they may be given."""

import importlib
from datetime import UTC, date, datetime, time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from neve.errors import InvalidArgument, LimitExceeded, NotFound, SchemaMismatch
from neve.model.predicate import col
from neve.read.filters import row_filter
from tests.unit.read.table_bench import schema_of

SCHEMA = schema_of(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("place", pa.string()),
        pa.field("at", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.int32())])),
    ],
    ["id"],
)
# By name: mypy takes the signatures of its classes for others than they have.
iceberg: Any = importlib.import_module("pyiceberg.expressions")
ICEBERG = Schema(NestedField(1, "id", LongType(), required=True))
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "amount": [0.5, None, 2.5, float("nan")],
        "place": ["a", "b", None, "d"],
        "at": [{"x": 1, "y": 2}, None, {"x": 3, "y": 4}, {"x": None, "y": 0}],
    },
    schema=SCHEMA.arrow_schema,
)


@pytest.mark.parametrize(
    "asked",
    ["amount > 1", col("amount") > 1, pc.field("amount") > 1, iceberg.GreaterThan("amount", 1)],
    ids=["text", "predicate", "expression", "pyiceberg"],
)
def test_every_form_chooses_the_same_rows_from_the_column_it_needs(asked: object) -> None:
    found = row_filter(asked, SCHEMA)

    assert found.names == ("amount",)
    assert found.mask(ROWS).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param(pc.field("id") > pc.field("amount"), ("id", "amount"), id="two columns"),
        pytest.param(pc.field("at", "x") > 1, ("at",), id="inside of a struct"),
        pytest.param(pc.field("place").is_null(), ("place",), id="null test"),
        pytest.param(pc.scalar(value=True), (), id="no column"),
        pytest.param(pc.field(1) > 1, ("id", "amount", "place", "at"), id="by number"),
    ],
)
def test_an_expression_needs_the_columns_it_misses(
    asked: pc.Expression, names: tuple[str, ...]
) -> None:
    assert row_filter(asked, SCHEMA).names == names


def test_an_expression_may_use_columns_by_their_number() -> None:
    found = row_filter(pc.field(1) > 1, SCHEMA)

    assert found.mask(ROWS).tolist() == [False, False, True, False]


def test_an_expression_without_columns_is_asked_of_every_row() -> None:
    found = row_filter(pc.scalar(value=True), SCHEMA)

    assert found.mask(ROWS.select([])).tolist() == [True] * 4


def test_no_filter_chooses_all() -> None:
    found = row_filter(None, SCHEMA)

    assert found.is_trivial
    assert np.all(found.mask(ROWS))


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ("amuont > 1", NotFound, "amuont"),
        (col("amuont") > 1, NotFound, "amuont"),
        (pc.field("amuont") > 1, NotFound, "amuont"),
        ("id > 'x'", SchemaMismatch, "id"),
        (pc.field("place") > 1, InvalidArgument, "place"),
        (pc.field("id") + 1, InvalidArgument, "bool"),
        (pc.field("at", "z") > 1, InvalidArgument, "z"),
        (pc.field(9) > 1, InvalidArgument, "9"),
        (5, InvalidArgument, "int"),
        (["id > 1"], InvalidArgument, "list"),
        (iceberg.EqualTo("amuont", 1), NotFound, "amuont"),
        (iceberg.EqualTo("id", "x"), SchemaMismatch, "id"),
        (iceberg.EqualTo("id", datetime(2024, 1, 1, tzinfo=UTC)), SchemaMismatch, "datetime"),
        (iceberg.EqualTo("id", date(2024, 1, 1)), SchemaMismatch, "date"),
        (iceberg.EqualTo("amount", time(1)), SchemaMismatch, "time"),
        (iceberg.EqualTo("id", 1).bind(ICEBERG), InvalidArgument, "BoundEqualTo"),
        (iceberg.StartsWith("id", "x"), InvalidArgument, "starts with"),
        ("id >", InvalidArgument, "character 5"),
    ],
    ids=[
        "text: unknown column",
        "predicate: unknown column",
        "expression: unknown column",
        "text: wrong type",
        "expression: wrong type",
        "expression: no answer",
        "expression: unknown field",
        "expression: unknown number",
        "a number",
        "a list",
        "pyiceberg: unknown column",
        "pyiceberg: wrong type",
        "pyiceberg: a moment",
        "pyiceberg: a date",
        "pyiceberg: a time",
        "pyiceberg: bound",
        "pyiceberg: no text",
        "unfinished text",
    ],
)
def test_a_filter_that_cannot_be_asked_is_refused_by_name(
    asked: object, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        row_filter(asked, SCHEMA)


def test_an_expression_of_pyiceberg_reaches_into_structs() -> None:
    asked = iceberg.Or(iceberg.EqualTo("at.x", 3), iceberg.IsNull("at"))

    assert row_filter(asked, SCHEMA).mask(ROWS).tolist() == [False, True, True, False]


def test_long_chains_of_pyiceberg_are_taken_and_deep_ones_are_refused() -> None:
    chain = iceberg.EqualTo("id", 0)
    for number in range(1, 3_000):
        chain = iceberg.Or(chain, iceberg.EqualTo("id", number))
    deep = iceberg.EqualTo("id", 0)
    for _ in range(200):
        deep = iceberg.And(iceberg.Or(deep, iceberg.IsNull("at")), iceberg.NotNull("id"))

    assert row_filter(chain, SCHEMA).mask(ROWS).all()
    with pytest.raises(LimitExceeded):
        row_filter(deep, SCHEMA)
