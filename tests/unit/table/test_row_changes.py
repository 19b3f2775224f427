"""Which changes of one call win, and what is left of each key."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Flags
from neve.model.schema import TableSchema
from neve.table.row_changes import RowChanges, by_order, winners
from neve.table.row_order import Orders, RowOrder
from tests.unit.table.ruled_schemas import a_schema, keys_of, ruled

PLAIN = a_schema(lsn=pa.int64(), total=pa.int64())
ORDERED = ruled(PLAIN, order_by=["lsn"])
FOLDED = ruled(PLAIN, merge={"total": "sum"})
BOTH = ruled(ORDERED, merge={"total": "sum"})

Written = tuple[int, int, int]
"""Key, order, total."""
Deleted = tuple[int, int]
There = dict[int, tuple[int | None, bool]]
"""By key, the order of what is there, and whether it is a row."""


def batch(schema: TableSchema, rows: list[Written]) -> pa.RecordBatch:
    columns = [[each[at] for each in rows] for at in range(3)]
    arrays = [pa.array(column, pa.int64()) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def orders_of(order: RowOrder, lsns: list[int]) -> Orders:
    return order.of_changes(pa.RecordBatch.from_arrays([pa.array(lsns, pa.int64())], ["lsn"]))


def ids_of(keys: KeyArray) -> list[int]:
    return [int.from_bytes(key, "big") - (1 << 63) for key in key_objects(keys)]


def kept(
    schema: TableSchema,
    written: list[Written],
    deleted: list[Deleted],
    *,
    by_age: list[int] | None = None,
    there: There | None = None,
) -> tuple[list[Written], list[Deleted | int]] | None:
    """Return what wins: rows, and deletes with their order if there is one."""
    known: There = there or {}
    order = RowOrder.of(schema)
    rows = batch(schema, written)
    gone = keys_of(batch(schema, [(key, 0, 0) for key, _ in deleted]))
    count = len(written) + len(deleted)

    def find(keys: KeyArray) -> tuple[Orders, Flags]:
        assert order is not None
        ids = ids_of(keys)
        found = pa.table({"lsn": pa.array([known.get(each, (None,))[0] for each in ids], "int64")})
        return order.of_rows(found), np.array([known.get(each, (0, False))[1] for each in ids])

    changes = RowChanges(
        rows=rows,
        keys=keys_of(rows),
        deleted=gone,
        orders=None
        if order is None
        else orders_of(order, [each[1] for each in (*written, *deleted)]),
        by_age=np.arange(count) if by_age is None else np.array(by_age, np.int64),
    )
    found = winners(changes, schema, None if order is None else find)
    if not found.rows.num_rows and not len(found.deleted):
        return None
    left = [tuple(row.values()) for row in found.rows.to_pylist()]
    ids = ids_of(found.deleted)
    if order is None or found.orders is None:
        return left, list(ids)
    (lsns,) = order.columns_of(found.orders)
    return left, sorted(zip(ids, [int(each or 0) for each in lsns.to_pylist()], strict=True))


def test_older_changes_are_dropped_and_equal_ones_win() -> None:
    there: There = {1: (5, True), 2: (5, False), 3: (5, True), 4: (None, True)}
    written = [(1, 4, 0), (2, 4, 0), (3, 5, 1), (4, 0, 1), (5, 0, 1)]

    assert kept(ORDERED, written, [], there=there) == ([(3, 5, 1), (4, 0, 1), (5, 0, 1)], [])
    assert kept(ORDERED, [(1, 4, 0)], [(1, 4), (2, 4)], there=there) is None


def test_the_newest_of_a_key_is_a_row_or_a_delete() -> None:
    written = [(1, 1, 0), (1, 3, 1), (2, 3, 0), (3, 2, 1)]

    assert kept(ORDERED, written, [(1, 2), (2, 4), (3, 2)]) == ([(1, 3, 1)], [(2, 4), (3, 2)])


def test_of_equal_orders_the_later_change_wins() -> None:
    rows = [(1, 7, 1), (1, 7, 2)]

    assert kept(ORDERED, rows, []) == ([(1, 7, 2)], [])
    assert kept(ORDERED, rows, [], by_age=[1, 0]) == ([(1, 7, 1)], [])
    assert kept(ORDERED, [(1, 7, 1)], [(1, 7)], by_age=[1, 0]) == ([(1, 7, 1)], [])


def test_without_an_order_the_last_change_wins_and_rows_are_folded() -> None:
    rows = [(1, 0, 1), (1, 0, 2), (1, 0, 4)]

    assert kept(FOLDED, rows, []) == ([(1, 0, 7)], [])
    # The delete comes between the first and the second.
    assert kept(FOLDED, rows, [(1, 0)], by_age=[0, 3, 1, 2]) == ([(1, 0, 6)], [1])
    assert kept(FOLDED, rows, [(1, 0)]) == ([], [1])


def test_with_an_order_rows_are_folded_by_it() -> None:
    rows = [(1, 9, 1), (1, 3, 2), (1, 5, 4)]

    assert kept(BOTH, rows, [(1, 4)]) == ([(1, 9, 5)], [(1, 4)])
    assert kept(BOTH, rows, [], there={1: (5, True)}) == ([(1, 9, 5)], [])


def test_nothing_is_nothing() -> None:
    assert kept(ORDERED, [], []) is None
    assert kept(FOLDED, [], []) is None


SCHEMAS = {"plain": PLAIN, "ordered": ORDERED, "folded": FOLDED, "both": BOTH}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_any_changes_leave_what_a_loop_leaves(kind: str) -> None:
    random, schema = Random(7), SCHEMAS[kind]
    for _ in range(150):
        events = [
            (random.randrange(4), random.randrange(6), random.choice((None, 1, 10)))
            for _ in range(random.randrange(12))
        ]
        written = [(key, lsn, total) for key, lsn, total in events if total is not None]
        deleted = [(key, lsn) for key, lsn, total in events if total is None]
        is_row = np.array([each[2] is not None for each in events], np.bool_)
        places = np.where(is_row, np.cumsum(is_row), len(written) + np.cumsum(~is_row)) - 1
        is_ordered, folds = bool(schema.rules.order_by), bool(schema.rules.merge)
        if is_ordered:
            events.sort(key=lambda each: each[1])
        state: dict[int, tuple[int, int] | None] = {}
        gone: dict[int, int] = {}
        for key, lsn, total in events:
            before = state.get(key)
            if total is None:
                state[key], gone[key] = None, lsn
            else:
                state[key] = lsn, total + (before[1] if folds and before is not None else 0)

        found = kept(schema, written, deleted, by_age=[int(each) for each in places])

        rows, deletes = ([], []) if found is None else found
        assert {row[0]: row[1:] for row in rows} == {
            key: value for key, value in state.items() if value is not None
        }
        # With merge functions, a row may follow its delete.
        named = {each if isinstance(each, int) else each[0] for each in deletes}
        assert named == (gone.keys() if folds else {key for key in gone if state[key] is None})
        if is_ordered:
            assert all(isinstance(each, tuple) and gone[each[0]] == each[1] for each in deletes)


def test_places_are_ordered_by_value_and_then_by_age() -> None:
    orders = pa.array([b"b", None, b"a", b"b"], pa.large_binary())

    assert by_order(orders, np.array([3, 2, 1, 0])).tolist() == [1, 2, 3, 0]


@pytest.mark.parametrize(
    "orders",
    [
        [b"\x80\x00\x00\x00\x00\x00\x00\x07", b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80" * 8],
        [b"b", b"a", b"b", b"\x00"],
        [b"nine bytes", b"nine bytez", b"eight by"],
        [b"b", None, b"", b"ab", b"b"],
        [],
    ],
    ids=["eight bytes", "one byte", "more than eight", "of any length", "none"],
)
def test_places_are_by_order_and_then_by_age(orders: list[bytes | None]) -> None:
    age = np.arange(len(orders))[::-1].copy()

    found = by_order(pa.array(orders, pa.large_binary()), age)

    assert found.tolist() == sorted(range(len(orders)), key=lambda at: (orders[at] or b"", age[at]))
