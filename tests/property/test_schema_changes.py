"""Any changes of any schema: every reader of older rows gives what the field ids say.

Four ways lead from rows of an older schema to rows of a newer one: a mapping of Python rows, a
mapping of Arrow batches, and the row codec, one row or many at a time. All are compared with the
plainest way there is: values taken apart by field id, and put together again.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from neve.catalog.compatibility import check_evolution
from neve.catalog.evolution import (
    Position,
    add_field,
    default_field,
    drop_field,
    move_field,
    relax_field,
    rename_field,
    widen_field,
)
from neve.errors import NeveError
from neve.model.arrow_types import TypeKind, child_fields, field_id_of, kind_of
from neve.model.field_ids import walk_fields
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.table.schema_mapping import SchemaMapping
from tests.property.typed_values import Table, Typed, list_of, map_of, same, struct_of, tables

WIDER: dict[pa.DataType, pa.DataType] = {
    pa.int32(): pa.int64(),
    pa.float32(): pa.float64(),
    pa.decimal128(1, 0): pa.decimal128(20, 0),
    pa.decimal128(9, 2): pa.decimal128(10, 2),
}
_NUMBER = Typed(pa.int32(), st.integers(-9, 9))
_WORD = Typed(pa.string(), st.sampled_from(["", "a", "bc"]))
_SHARE = Typed(pa.float32(), st.sampled_from([0.5, -1.25]))
_INNER = struct_of([(_NUMBER, True), (_SHARE, False)])
_OUTER = struct_of([(_NUMBER, False), (_INNER, False), (_NUMBER, True)])
DEEP = (_OUTER, list_of(_INNER, is_required=False), map_of(_WORD, _OUTER), _NUMBER)
"""Columns whose fields look alike, so that those of another id would be taken without a word."""

Change = Callable[[TableSchema], TableSchema]


@dataclass(frozen=True)
class Evolved:
    """Rows of one schema, and a schema that may follow it."""

    before: Table
    after: TableSchema


@st.composite
def deep_tables(draw: st.DrawFn) -> Table:
    """Draw rows of columns that nest deeply."""
    types = {"id": pa.int64()} | {f"c{at}": each.type for at, each in enumerate(DEEP)}
    values = {f"c{at}": each.nullable_values for at, each in enumerate(DEEP)}
    row = st.fixed_dictionaries({"id": st.integers(0, 99), **values})
    rows = draw(st.lists(row, min_size=1, max_size=4))
    return Table(TableSchema.from_arrow(pa.schema(types), primary_key=["id"]), rows)


@st.composite
def evolved_tables(draw: st.DrawFn) -> Evolved:
    """Draw a table and change its schema; changes that are refused are left out."""
    table = draw(deep_tables() | tables(rows_max=4))
    schema = table.schema
    for number in range(draw(st.integers(1, 8))):
        paths = [path for path, _ in walk_fields(tuple(schema.arrow_schema))]
        with suppress(NeveError):
            schema = draw_change(draw, draw(st.sampled_from(paths)), number)(schema)
    return Evolved(table, schema)


def draw_change(draw: st.DrawFn, path: str, number: int) -> Change:
    kinds = ("add", "add inside", "drop", "rename", "move", "widen", "relax", "default")
    match draw(st.sampled_from(kinds)):
        case "add":
            default = draw(st.sampled_from([None, 7]))
            return lambda schema: add_field(
                schema, f"new{number}", "int", nullable=default is None, default=default
            )
        case "add inside":
            # The name of a field that may have been dropped before.
            name = draw(st.sampled_from([f"new{number}", "f0", "f1"]))
            return lambda schema: add_field(
                schema, f"{path}.{name}", "int", nullable=True, default=None
            )
        case "drop":
            return lambda schema: drop_field(schema, path)
        case "rename":
            return lambda schema: rename_field(schema, path, f"other{number}")
        case "move":
            return lambda schema: move_field(schema, path, Position())
        case "widen":
            return lambda schema: widen_field(schema, path, wider(schema, path))
        case "relax":
            return lambda schema: relax_field(schema, path)
        case _:
            return lambda schema: default_field(schema, path, 3)


def wider(schema: TableSchema, path: str) -> pa.DataType:
    fields = dict(walk_fields(tuple(schema.arrow_schema)))
    return WIDER.get(fields[path].type, pa.int64())


def taken_apart(type_: pa.DataType, value: Any) -> Any:  # noqa: ANN401 - a value of any type
    """Name every field of a value by its id."""
    if value is None:
        return None
    fields = child_fields(type_)
    match kind_of(type_):
        case TypeKind.STRUCT:
            return {field_id_of(each): taken_apart(each.type, value[each.name]) for each in fields}
        case TypeKind.LIST:
            return [taken_apart(fields[0].type, each) for each in value]
        case TypeKind.MAP:
            return [(key, taken_apart(fields[1].type, each)) for key, each in value]
        case _:
            return value


def put_together(type_: pa.DataType, value: Any) -> Any:  # noqa: ANN401 - a value of any type
    """Name every field of a value as a type does."""
    if value is None:
        return None
    fields = child_fields(type_)
    match kind_of(type_):
        case TypeKind.STRUCT:
            return {
                each.name: put_together(each.type, value.get(field_id_of(each))) for each in fields
            }
        case TypeKind.LIST:
            return [put_together(fields[0].type, each) for each in value]
        case TypeKind.MAP:
            return [(key, put_together(fields[1].type, each)) for key, each in value]
        case _:
            return value


def expected_row(evolved: Evolved, row: dict[str, object]) -> dict[str, object]:
    known = {
        column.field_id: taken_apart(column.type, row[column.name])
        for column in evolved.before.schema.columns
    }
    return {
        column.name: put_together(column.type, known[column.field_id])
        if column.field_id in known
        else column.initial_default
        for column in evolved.after.columns
    }


@given(evolved_tables())
def test_a_change_that_is_made_is_one_that_may_be_committed(evolved: Evolved) -> None:
    check_evolution(evolved.before.schema, evolved.after)

    assert TableSchema.from_json(evolved.after.to_json()) == evolved.after


@given(evolved_tables(), st.integers(0, 3))
def test_every_way_from_older_rows_to_newer_ones_agrees(evolved: Evolved, start: int) -> None:
    before, after = RowCodec(evolved.before.schema), RowCodec(evolved.after)
    mapping = SchemaMapping(evolved.before.schema, evolved.after)
    rows = evolved.before.rows[start:]
    expected = [expected_row(evolved, row) for row in rows]
    encoded = [before.encode(row) for row in rows]
    # A part of a batch, as readers give it.
    batch = before.decode_many([before.encode(row) for row in evolved.before.rows]).slice(start)

    mapped = mapping.batch(batch)
    mapped.validate(full=True)

    assert mapped.schema.equals(evolved.after.arrow_schema, check_metadata=True)
    assert same([mapping.row(before.decode(value)) for value in encoded], expected)
    assert same([after.decode(value) for value in encoded], expected)
    for rows_as_batch in (mapped, after.decode_many(encoded)):
        found = [after.decode(value) for value in after.encode_batch(rows_as_batch)]
        assert same(found, expected)


@given(evolved_tables())
def test_some_columns_of_older_rows_are_those_of_all(evolved: Evolved) -> None:
    codec = RowCodec(evolved.before.schema)
    mapping = SchemaMapping(evolved.before.schema, evolved.after)
    whole = codec.decode_many([codec.encode(row) for row in evolved.before.rows])
    names = evolved.after.arrow_schema.names[::2]

    source = whole.select(mapping.source_names(names)) if mapping.source_names(names) else whole
    some = mapping.batch(source, names)

    assert some.schema.names == names
    assert str(some.to_pylist()) == str(mapping.batch(whole).select(names).to_pylist())
