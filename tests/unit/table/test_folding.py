"""Folding: every merge function on every type that it fits, with NULL, NaN and limits."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, localcontext
from functools import reduce
from random import Random
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from neve.model.arrow_types import kind_of
from neve.model.row_rules import MergeFunction
from neve.table.partial_merge import folded_rows, merged
from neve.table.row_changes import all_columns
from tests.unit.table.ruled_schemas import a_schema, keys_of, ruled

STRUCT = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.list_(pa.string()))])
VALUES: dict[pa.DataType, list[object]] = {
    pa.bool_(): [True, False],
    pa.int32(): [-3, 0, 5],
    pa.int64(): [-3, 0, 1 << 40],
    pa.float32(): [-1.5, 0.0, 2.25, float("inf")],
    pa.float64(): [-1.5, 0.0, 2.25, float("-inf")],
    pa.decimal128(9, 2): [Decimal("-1.50"), Decimal("0.00"), Decimal("7.25")],
    pa.date32(): [date(1969, 1, 1), date(2024, 2, 29)],
    pa.time64("us"): [time(0), time(23, 59, 59)],
    pa.timestamp("us"): [datetime(1969, 1, 1), datetime(2024, 1, 1)],  # noqa: DTZ001
    pa.timestamp("us", "UTC"): [
        datetime(1969, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=UTC),
    ],
    pa.string(): ["", "a", "aa", "é"],
    pa.binary(): [b"", b"\0", b"\xff"],
    pa.binary(2): [b"\0\1", b"\xff\0"],
    pa.uuid(): [UUID(int=1), UUID(int=1 << 127)],
    pa.list_(pa.int64()): [[], [1, None], [3]],
    STRUCT: [{"a": 1, "b": None}, {"a": None, "b": ["x"]}],
    pa.map_(pa.string(), pa.int64()): [[], [("k", 1)]],
}
CASES = [
    (function, kind)
    for function in MergeFunction
    for kind in VALUES
    if function.fits(kind_of(kind))
]


def column(kind: pa.DataType, values: list[object]) -> "pa.Array[Any]":
    if isinstance(kind, pa.UuidType):
        return pa.array([each.bytes if isinstance(each, UUID) else None for each in values], kind)
    return pa.array(values, kind)


def folded_pair(function: str, kind: pa.DataType, old: object, new: object) -> object:
    """Fold one value into another, as a write into a row of a file does."""
    schema = ruled(a_schema(v=kind), merge={"v": function})
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1]), column(schema.column("v").type, [new])], schema=schema.arrow_schema
    )
    base = pa.Table.from_arrays(
        [pa.array([1]), column(schema.column("v").type, [old])], schema=schema.arrow_schema
    )
    given, places = all_columns(schema), np.array([0])
    whole = merged(rows, base, places, given=given, schema=schema, rules=schema.rules)
    return whole.to_pylist()[0]["v"]


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def expected(function: str, old: Any, new: Any) -> object:  # noqa: ANN401 - of any type
    """Fold as the documentation says, one value at a time."""
    if function == "last":
        return new
    if function == "first":
        return old
    if function == "sum":
        return (old if new is None else new) if old is None or new is None else old + new
    if is_blank(new) or (is_blank(old) and function != "last_non_null"):
        return old if is_blank(new) and not (old is None and new is not None) else new
    choose: dict[str, Callable[[Any, Any], object]] = {
        "last_non_null": lambda _, new: new,
        "min": min,
        "max": max,
        "bool_and": lambda old, new: old and new,
        "bool_or": lambda old, new: old or new,
    }
    if isinstance(old, str) and function in ("min", "max"):
        return choose[function](old.encode(), new.encode()).decode()  # type: ignore[attr-defined]
    return choose[function](old, new)


@pytest.mark.parametrize(("function", "kind"), CASES, ids=str)
def test_each_function_folds_each_type(function: MergeFunction, kind: pa.DataType) -> None:
    values = [None, *VALUES[kind]]

    for old in values:
        for new in values:
            found = folded_pair(function, kind, old, new)
            assert found == expected(function, old, new), (old, new)


@pytest.mark.parametrize("function", ["min", "max", "last_non_null"])
def test_not_a_number_counts_only_when_there_is_nothing_else(function: str) -> None:
    nan = float("nan")

    assert folded_pair(function, pa.float64(), 1.0, nan) == 1.0
    assert folded_pair(function, pa.float64(), nan, 1.0) == 1.0
    assert is_blank(folded_pair(function, pa.float64(), nan, nan))


def test_a_sum_with_not_a_number_is_none() -> None:
    found = folded_pair("sum", pa.float64(), 1.0, float("nan"))

    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.int32(), -(1 << 31), (1 << 31) - 1),
        (pa.int64(), -(1 << 63), (1 << 63) - 1),
        (pa.decimal128(4, 1), Decimal("-999.9"), Decimal("999.9")),
        (pa.decimal128(38, 0), Decimal(1 - 10**38), Decimal(10**38 - 1)),
        (pa.decimal128(38, 38), Decimal("-0." + "9" * 38), Decimal("0." + "9" * 38)),
    ],
    ids=str,
)
def test_a_sum_stops_at_the_limits_of_its_type(
    kind: pa.DataType,
    low: Decimal | int,
    high: Decimal | int,
) -> None:
    one = Decimal(1).scaleb(int(Decimal(high).as_tuple().exponent))
    with localcontext(Context(prec=80)):
        for old, new, wanted in (
            (high, one, high),
            (high, high, high),
            (low, -one, low),
            (low, low, low),
            (high, -one, high - one),
            (low, one, low + one),
        ):
            found = folded_pair("sum", kind, type(high)(old), type(high)(new))
            assert found == wanted, (old, new)


def test_columns_that_were_not_written_are_the_bases() -> None:
    schema = ruled(a_schema(a=pa.int64(), b=pa.int64()), merge={"a": "sum", "b": "sum"})
    rows = pa.RecordBatch.from_pylist(
        [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 1, "b": 1}], schema.arrow_schema
    )
    base = pa.Table.from_pylist([{"id": 2, "a": 10, "b": 10}], schema.arrow_schema)
    given = [schema.column("a").field_id]

    whole = merged(rows, base, np.array([1]), given=given, schema=schema, rules=schema.rules)

    assert whole.to_pylist() == [{"id": 1, "a": 1, "b": 1}, {"id": 2, "a": 11, "b": 10}]


@pytest.mark.parametrize("function", MergeFunction)
def test_many_rows_of_a_key_are_folded_oldest_first(function: MergeFunction) -> None:
    kind = pa.bool_() if function.startswith("bool") else pa.int64()
    schema = ruled(a_schema(v=kind), merge={"v": function})
    random = Random(3)
    for count in (0, 1, 2, 3, 7, 64, 201):
        ids = [random.randrange(max(1, count // 9)) for _ in range(count)]
        values = [random.choice([None, *VALUES[kind]]) for _ in range(count)]
        rows = pa.RecordBatch.from_arrays(
            [pa.array(ids, pa.int64()), column(kind, values)], schema=schema.arrow_schema
        )
        by_age = np.array(random.sample(range(count), count), np.int64)

        if not count:
            continue
        whole, keys = folded_rows(
            rows,
            keys_of(rows),
            by_age,
            given=all_columns(schema),
            rules=schema.rules,
            schema=schema,
        )

        found = {row["id"]: row["v"] for row in whole.to_pylist()}
        assert keys_of(whole).to_pylist() == keys.to_pylist()
        assert len(found) == whole.num_rows
        assert found == {
            key: reduce(
                lambda old, new: expected(function, old, new),
                [values[place] for place in by_age if ids[place] == key],
            )
            for key in set(ids)
        }
