"""Schemas in every form that people have, and which columns of them may be NULL."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import NotRequired, TypedDict
from uuid import UUID

import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

import neve
from neve.catalog.table_request import SchemaInput, arrow_schema_of
from neve.errors import InvalidArgument, LimitExceeded, NeveError, NotFound, SchemaMismatch
from neve.model.arrow_types import ArrowField

FIELDS: list[ArrowField] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string()),
    pa.field("amount", pa.float64()),
]
ARROW = pa.schema(FIELDS)
DATA: dict[str, list[object]] = {"id": [1, 2], "name": ["ada", None], "amount": [1.5, None]}


@dataclass
class Place:
    street: str
    number: int | None


@dataclass
class Order:
    id: int
    name: str | None
    amount: float | None


class Entry(TypedDict):
    id: int
    name: NotRequired[str]
    amount: float | None


class Nested(TypedDict):
    id: int
    place: Place
    tags: list[str]
    counts: dict[str, int | None]


@dataclass
class Endless:
    id: int
    inner: "list[Endless]"


FORMS: dict[str, SchemaInput] = {
    "schema": ARROW,
    "table": pa.table(DATA, schema=ARROW),
    "batch": pa.record_batch(DATA, schema=ARROW),
    "pandas": pd.DataFrame(DATA),
    "pandas with an index": pd.DataFrame(DATA, index=["x", "y"]),
    "polars": pl.DataFrame(DATA),
    "dict of text": {"id": "long", "name": "string", "amount": "double"},
    "dict of Python's": {"id": int, "name": str, "amount": float},
    "dict of Arrow's": {"id": pa.int64(), "name": pa.large_string(), "amount": pa.float64()},
    "dict with None": {"id": int, "name": str | None, "amount": float | None},
    "dataclass": Order,
    "typed dict": Entry,
}


@pytest.mark.parametrize("given", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("key", ["id", ["id"], ("id",)], ids=str)
def test_every_form_makes_the_same_table(given: SchemaInput, key: str | list[str]) -> None:
    with neve.open("memory://forms") as lake:
        made = lake.create_table("shop.orders", given, primary_key=key).schema

    assert made.arrow_schema.remove_metadata().equals(ARROW, check_metadata=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (bool, pa.bool_()),
        (int, pa.int64()),
        (float, pa.float64()),
        (str, pa.string()),
        (bytes, pa.binary()),
        (date, pa.date32()),
        (time, pa.time64("us")),
        (datetime, pa.timestamp("us", "UTC")),
        (UUID, pa.uuid()),
        (list[int], pa.list_(pa.field("element", pa.int64(), nullable=False))),
        (list[int | None], pa.list_(pa.field("element", pa.int64()))),
        (dict[str, float | None], pa.map_(pa.string(), pa.float64())),
        ("decimal(9,2)", pa.decimal128(9, 2)),
        ("list<long>", pa.list_(pa.field("element", pa.int64()))),
        (
            Place,
            pa.struct(
                [pa.field("street", pa.string(), nullable=False), pa.field("number", pa.int64())]
            ),
        ),
    ],
    ids=str,
)
def test_a_type_of_python_stands_for_one_of_a_column(given: object, expected: pa.DataType) -> None:
    field = arrow_schema_of({"x": given}).field("x")

    assert field.type == expected
    assert field.nullable


def test_a_sign_behind_the_type_and_a_class_say_what_is_never_null() -> None:
    assert not arrow_schema_of({"x": "string!"}).field("x").nullable
    assert not arrow_schema_of(Nested).field("place").nullable
    assert not arrow_schema_of(Nested).field("tags").nullable


def test_rows_of_the_frame_that_gave_the_columns_can_be_written() -> None:
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "when": pd.to_datetime(["2024-01-01", None], utc=True),
            "kind": pd.Categorical(["a", "b"]),
            "small": pd.array([1, None], dtype="Int16"),
        }
    )
    with neve.open("memory://frame") as lake:
        table = lake.create_table("a.b", frame, "id")
        table.upsert(frame)

        assert table.scan(columns=["id", "kind", "small"]).to_arrow().to_pylist() == [
            {"id": 1, "kind": "a", "small": 1},
            {"id": 2, "kind": "b", "small": None},
        ]


REFUSED: dict[str, tuple[object, object, type[NeveError], str]] = {
    "number": (5, "id", InvalidArgument, "int"),
    "text": ("id long", "id", InvalidArgument, "str"),
    "none": (None, "id", InvalidArgument, "NoneType"),
    "list of rows": ([{"id": 1}], "id", InvalidArgument, "list"),
    "lazy frame": (pl.LazyFrame(DATA), "id", InvalidArgument, "collect"),
    "class": (int, "id", InvalidArgument, "int"),
    "dict of values": ({"id": [1, 2]}, "id", InvalidArgument, "data: pass pa.table"),
    "dict of a number": ({"id": 5}, "id", InvalidArgument, "'id'"),
    "decimal": ({"id": Decimal}, "id", InvalidArgument, "decimal(18,2)"),
    "list of what": ({"id": int, "x": list}, "id", InvalidArgument, "list[int]"),
    "union": ({"id": int | str}, "id", InvalidArgument, "int | str"),
    "unknown text": ({"id": "lnog"}, "id", InvalidArgument, "long"),
    "number as a name": ({5: "long"}, "id", InvalidArgument, "Name columns by text"),
    "no columns": ({}, "id", NotFound, "id"),
    "endless class": (Endless, "id", LimitExceeded, "Flatten"),
    "only NULL": (pd.DataFrame({"id": [1], "x": [None]}), "id", SchemaMismatch, "'x'"),
    "unknown key": ({"id": int}, "idd", NotFound, "'id'"),
    "two keys as one": ({"id": int, "b": int}, "id, b", NotFound, "id, b"),
    "a key that is a number": ({"id": int}, 5, InvalidArgument, "Write 'id'"),
    "no key": ({"id": int}, [], InvalidArgument, "primary key"),
}


@pytest.mark.parametrize(("given", "key", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_a_schema_is_refused_with_a_way_out(
    given: Mapping[str, object], key: str, error: type[NeveError], words: str
) -> None:
    with neve.open("memory://refused") as lake:
        with pytest.raises(error) as refusal:
            lake.create_table("a.b", given, key)

        assert words in str(refusal.value)
        assert refusal.value.hint
        assert lake.list_tables() == []
