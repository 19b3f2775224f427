"""Leaves of a schema: in Parquet's order, under Parquet's names, with exactly their values."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.sstable.column_statistics import Leaf, leaves_of
from tests.unit.sstable.data_files import (
    ALL_TYPES,
    Files,
    arrow_schema,
    rows_of_all_types,
    schema_of,
)


def leaf_of(arrow_type: pa.DataType, path: str) -> Leaf:
    schema = schema_of(arrow_schema(id=pa.int64(), a=arrow_type), "id")
    return next(leaf for leaf in leaves_of(schema) if leaf.path == path)


def test_leaves_have_the_names_order_and_ids_of_parquet() -> None:
    schema, rows = rows_of_all_types(3)
    files = Files(schema)
    payload = files.bytes_of(files.write_one(rows).file)
    parquet = pq.read_metadata(pa.BufferReader(payload)).schema
    assert [leaf.path for leaf in leaves_of(schema)] == [
        parquet.column(at).path for at in range(len(parquet))
    ]
    assert len({leaf.field_id for leaf in leaves_of(schema)}) == len(parquet)


def test_only_what_is_in_lists_and_maps_is_repeated() -> None:
    repeated = {leaf.path for leaf in leaves_of(schema_of(ALL_TYPES, "id")) if leaf.is_repeated}
    assert repeated == {
        "list.list.element.n",
        "list.list.element.s",
        "map.key_value.key",
        "map.key_value.value",
    }


STRUCT = pa.struct([("x", pa.int32())])
LISTS = pa.list_(STRUCT)
MAPS = pa.map_(pa.string(), pa.int64())


@pytest.mark.parametrize(
    ("arrow_type", "values", "path", "expected"),
    [
        pytest.param(STRUCT, [{"x": 1}, None, {"x": None}], "a.x", [1, None, None], id="struct"),
        pytest.param(
            LISTS,
            [[{"x": 1}, None], None, [], [{"x": 2}]],
            "a.list.element.x",
            [1, None, 2],
            id="list of structs",
        ),
        pytest.param(
            MAPS, [[("p", 1)], None, [("q", None)]], "a.key_value.key", ["p", "q"], id="map keys"
        ),
        pytest.param(
            MAPS, [[("p", 1)], None, [("q", None)]], "a.key_value.value", [1, None], id="map values"
        ),
        pytest.param(
            pa.list_(pa.list_(pa.int64())),
            [[[1], None, [2, 3]], [], None],
            "a.list.element.list.element",
            [1, 2, 3],
            id="list of lists",
        ),
        pytest.param(pa.uuid(), [b"\1" * 16, None], "a", [b"\1" * 16, None], id="uuid"),
    ],
)
def test_values_of_a_leaf_are_those_inside_its_column(
    arrow_type: pa.DataType, values: list[object], path: str, expected: list[object]
) -> None:
    array = pa.array(values, arrow_type)
    assert leaf_of(arrow_type, path).values(array).to_pylist() == expected


def test_values_outside_a_slice_are_left_out() -> None:
    lists = pa.array([[1], [2, 3], None, [4], [5]], pa.list_(pa.int64()))
    leaf = leaf_of(lists.type, "a.list.element")
    assert leaf.values(lists.slice(1, 3)).to_pylist() == [2, 3, 4]
    maps = pa.array([[("p", 1)], [("q", 2)], [("r", 3)]], MAPS)
    leaf = leaf_of(MAPS, "a.key_value.value")
    assert leaf.values(maps.slice(1, 1)).to_pylist() == [2]


def test_values_hidden_behind_a_null_list_are_left_out() -> None:
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 5], pa.int32()),
        pa.array([1, 2, 3, 4, 5]),
        mask=pa.array([False, True, False]),
    )
    assert leaf_of(hidden.type, "a.list.element").values(hidden).to_pylist() == [1, 2, 5]
