"""The demo's rows follow from their numbers, so that the demo can tell a wrong one."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.demo.order_rows import CHANGED, DELETED, DELETED_FROM, ROWS, DemoTable, by_key
from examples.demo.stage import check, check_equal
from neve.errors import Corruption


@pytest.fixture(scope="module")
def table() -> DemoTable:
    return DemoTable()


def test_each_row_is_itself_after_encoding(table: DemoTable) -> None:
    for number in (0, 1, 7, 8, 99_999, 1_000_000):
        assert table.codec.decode(table.value(number)) == table.row(number)
        assert table.encoder.decode(table.key(number)) == table.key_values(number)


def test_a_batch_holds_the_same_rows_as_the_single_ones(table: DemoTable) -> None:
    batch = table.rows(range(10, 30))

    assert batch.to_pylist() == [dict(table.row(number)) for number in range(10, 30)]
    assert batch.schema.equals(table.schema.arrow_schema, check_metadata=True)


def test_a_changed_row_differs_from_what_it_was_and_keeps_its_key(table: DemoTable) -> None:
    for number in CHANGED[:100]:
        row, changed = table.row(number), table.changed_row(number)

        assert row["note"] != changed["note"]
        assert [row[name] for name in ("customer", "id")] == [*table.key_values(number)]
        assert [changed[name] for name in ("customer", "id")] == [*table.key_values(number)]


def test_after_the_changes_deleted_rows_are_gone_and_changed_ones_are_changed(
    table: DemoTable,
) -> None:
    after = table.rows_after
    ids = after["id"]

    assert after.num_rows == ROWS - len({*DELETED, *range(DELETED_FROM, ROWS)})
    assert not pc.any(pc.is_in(ids, pa.array(DELETED))).as_py()
    assert pc.max(ids).as_py() == DELETED_FROM - 1
    tenths = pc.is_in(ids, pa.array(CHANGED))
    assert set(after.filter(tenths)["note"].to_pylist()) == {"changed"}
    assert "changed" not in after.filter(pc.invert(tenths))["note"].to_pylist()


def test_a_lost_row_or_another_value_is_told(table: DemoTable) -> None:
    due = by_key(pa.Table.from_batches([table.rows(range(20))]))
    wrong = pa.Table.from_batches([table.rows(range(19)), table.changed_rows([19])])

    check_equal(due.take([*range(19, -1, -1)]), due, "in another order")
    with pytest.raises(Corruption, match="a scan: 19 rows, 20 are due"):
        check_equal(due.slice(1), due, "a scan")
    with pytest.raises(Corruption, match="a scan: a row is not what was written"):
        check_equal(wrong, due, "a scan")


def test_a_claim_that_does_not_hold_ends_the_demo() -> None:
    check([1], "a list with something in it")
    with pytest.raises(Corruption, match="nothing was found"):
        check([], "nothing was found")
