"""The forms in which a key is given: the value, a tuple in key order, or a dict by column."""

import pyarrow as pa
import pytest

import neve
from neve.errors import SchemaMismatch
from tests.unit.engine.tables import a_catalog, a_table

COMPOSITE: dict[str, pa.DataType] = {"region": pa.string(), "id": pa.int64(), "v": pa.int64()}
ROW: dict[str, object] = {"region": "eu", "id": 1, "v": 7}


def a_composite_table() -> neve.Table:
    table = a_table(a_catalog(), columns=COMPOSITE, primary_key=("region", "id"))
    table.put(ROW)
    return table


def test_a_key_of_one_column_may_be_a_dict_of_it() -> None:
    table = a_table(a_catalog())
    table.upsert([{"id": 1, "v": 7}, {"id": 2, "v": 8}])

    assert table.get({"id": 1}) == table.get(1)
    assert table.get_many([{"id": 2}, 1]).column("v").to_pylist() == [8, 7]
    table.delete({"id": 1})
    assert table.get(1) is None
    table.delete_many([{"id": 2}])
    assert table.get(2) is None


def test_a_composite_key_may_be_a_dict_in_any_order() -> None:
    table = a_composite_table()

    assert table.get({"id": 1, "region": "eu"}) == ROW
    with table.snapshot() as snapshot:
        assert snapshot.get({"id": 1, "region": "eu"}) == ROW
    table.delete({"id": 1, "region": "eu"})
    assert table.get(("eu", 1)) is None


@pytest.mark.parametrize(
    ("key", "column"), [(ROW, "v"), ({"id": 1}, "region"), ({}, "region"), ({"x": 1, **ROW}, "x")]
)
def test_a_dict_that_is_not_the_key_is_refused_by_the_column(
    key: dict[str, object], column: str
) -> None:
    table = a_composite_table()

    for act in (table.get, table.delete):
        with pytest.raises(SchemaMismatch, match=r"\('region', 'id'\)") as refusal:
            act(key)
        assert refusal.value.column == column


def test_a_value_in_a_dict_is_checked_as_any_key_is() -> None:
    table = a_table(a_catalog())

    with pytest.raises(SchemaMismatch) as refusal:
        table.get({"id": "one"})

    assert refusal.value.column == "id"


def test_a_row_in_place_of_a_key_is_told_what_the_key_is() -> None:
    table = a_table(a_catalog())

    with pytest.raises(SchemaMismatch, match="Pass the value of 'id'"):
        table.get({"id": 1, "v": 2})
