"""The demo's rows follow from their numbers, so that the demo can tell a wrong one."""

import pytest

from neve.cli.demo_table import DemoTable


@pytest.fixture(scope="module")
def table() -> DemoTable:
    return DemoTable()


def test_another_rows_value_is_not_the_row(table: DemoTable) -> None:
    assert not table.is_row(5, key=table.key(5), value=table.value(13))
    assert not table.is_row(5, key=table.key(13), value=table.value(5))


def test_each_row_is_itself_after_encoding(table: DemoTable) -> None:
    for number in (0, 1, 7, 8, 99_999, 1_000_000):
        assert table.is_row(number, key=table.key(number), value=table.value(number))


def test_a_batch_holds_the_same_rows_as_the_single_ones(table: DemoTable) -> None:
    batch = table.rows(range(10, 30))

    assert batch.to_pylist() == [dict(table.row(number)) for number in range(10, 30)]
    assert batch.schema.equals(table.schema.arrow_schema, check_metadata=True)
