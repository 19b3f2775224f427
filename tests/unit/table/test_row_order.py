"""Comparing the order columns of changes."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import SchemaMismatch
from neve.model.row_rules import AskedRules
from neve.model.schema import TableSchema
from neve.table.row_order import (
    RowOrder,
    equals,
    greatest,
    has_order_of,
    joined_orders,
    loses,
    no_orders,
    placed_orders,
)
from tests.unit.table.ruled_schemas import a_schema, ruled


def an_order(**columns: pa.DataType) -> RowOrder:
    order = RowOrder.of(ruled(a_schema(**columns), order_by=list(columns)))
    assert order is not None
    return order


def batch(order: RowOrder, **columns: list[object]) -> pa.RecordBatch:
    arrays = [pa.array(columns[name], order.schema.column(name).type) for name in order.names]
    return pa.RecordBatch.from_arrays(arrays, names=list(order.names))


def test_a_table_without_order_columns_has_none() -> None:
    assert RowOrder.of(a_schema(lsn=pa.int64())) is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [-(1 << 31), -1, 0, 1, (1 << 31) - 1]),
        (pa.int64(), [-(1 << 63), -1, 0, 255, 256, (1 << 63) - 1]),
        (pa.float32(), [float("-inf"), -1.5, 0.0, 2.0**-30, float("inf")]),
        (pa.float64(), [float("-inf"), -1e300, -1.0, 0.0, 1e300, float("inf")]),
        (pa.string(), ["", "\0", "a", "a\0", "aa", "b", "é"]),
        (pa.binary(), [b"", b"\0", b"\0\xff", b"\xff"]),
        (pa.decimal128(20, 3), [Decimal("-99.5"), Decimal(0), Decimal("0.001"), Decimal(10**16)]),
        (pa.date32(), [date(1, 1, 1), date(1970, 1, 1), date(2024, 2, 29)]),
        (pa.bool_(), [False, True]),
        (
            pa.timestamp("us", "UTC"),
            [datetime(1969, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)],
        ),
    ],
)
def test_encoded_orders_compare_as_their_values_do(kind: pa.DataType, values: list[object]) -> None:
    order = an_order(lsn=kind)
    count = len(values)
    left = order.of_changes(batch(order, lsn=[each for each in values for _ in range(count)]))
    right = order.of_changes(batch(order, lsn=values * count))
    places = np.arange(count * count)

    assert loses(left, right).tolist() == (places // count < places % count).tolist()
    assert equals(left, right).tolist() == (places // count == places % count).tolist()
    (back,) = order.columns_of(right)
    assert back.to_pylist() == values * count


@given(
    st.lists(
        st.tuples(st.text(max_size=3), st.integers(-5, 5), st.text(max_size=3), st.integers(-5, 5)),
        max_size=20,
    )
)
def test_of_several_columns_the_first_decides(pairs: list[tuple[str, int, str, int]]) -> None:
    order = an_order(file=pa.string(), pos=pa.int64())
    left, right = (
        order.of_changes(
            batch(order, file=[each[at] for each in pairs], pos=[each[at + 1] for each in pairs])
        )
        for at in (0, 2)
    )

    # Text compares as its bytes do.
    expected = [(a.encode(), b) < (c.encode(), d) for a, b, c, d in pairs]
    assert loses(left, right).tolist() == expected


def test_null_is_older_than_any_value_and_as_old_as_nothing() -> None:
    some = joined_orders([no_orders(1), pa.array([b"1"], pa.large_binary())])
    nothing = no_orders(2)

    assert loses(nothing, some).tolist() == [False, True]
    assert loses(some, nothing).tolist() == [False, False]
    assert equals(some, nothing).tolist() == [False, False]
    assert greatest(some, nothing).to_pylist() == [None, b"1"]
    assert greatest(nothing, some).to_pylist() == [None, b"1"]


@pytest.mark.parametrize("blank", [None, float("nan")])
def test_a_change_without_an_order_is_refused(blank: object) -> None:
    order = an_order(lsn=pa.float64())

    with pytest.raises(SchemaMismatch) as caught:
        order.of_changes(batch(order, lsn=[1.0, blank, None]), np.array([4, 7, 9]))

    assert (caught.value.column, caught.value.row) == ("lsn", 7)


def test_the_column_without_a_value_is_named() -> None:
    order = an_order(a=pa.int64(), b=pa.int64())

    with pytest.raises(SchemaMismatch) as caught:
        order.of_changes(batch(order, a=[1, 2], b=[1, None]))

    assert (caught.value.column, caught.value.row) == ("b", 1)


def test_rows_from_before_an_order_have_none() -> None:
    order = an_order(a=pa.int64(), b=pa.float64())
    rows = batch(order, a=[1, None, 3, 4], b=[1.0, 1.0, float("nan"), 2.0])

    found = order.of_rows(pa.Table.from_batches([rows.slice(0, 2), rows.slice(2)]))

    assert found.is_valid().to_pylist() == [True, False, False, True]
    columns = order.columns_of(found)
    assert [column.to_pylist() for column in columns] == [[1, None, None, 4], [1.0, None, None, 2]]


def test_orders_are_placed() -> None:
    orders = pa.array([b"x", b"y"], pa.large_binary())

    assert placed_orders(4, np.array([3, 1]), orders).to_pylist() == [None, b"y", None, b"x"]
    assert placed_orders(2, np.array([], np.int64), no_orders(0)).to_pylist() == [None, None]


def test_a_rename_leaves_the_order_and_another_column_changes_it() -> None:
    schema = ruled(a_schema(lsn=pa.int64(), other=pa.int64()), order_by=["lsn"])
    order = RowOrder(schema)

    assert has_order_of(schema, order)
    assert not has_order_of(ruled(schema, order_by=["other"]), order)
    assert not has_order_of(ruled(schema, order_by=[]), order)


def test_asked_rules_become_field_ids() -> None:
    schema: TableSchema = a_schema(lsn=pa.int64())
    rules = AskedRules(order_by="lsn").on(schema)

    assert rules.order_by == (schema.column("lsn").field_id,)
