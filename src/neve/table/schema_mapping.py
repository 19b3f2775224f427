"""SchemaMapping: rows of one schema as rows of another, by field id.

Columns that the target no longer has are left out; new ones are their initial default, or NULL;
names and order are the target's. Values are converted by the type of their field, at every depth:

    struct    by field id: dropped fields are left out, new ones are NULL, names are the newer ones
    list      element by element
    map       value by value; keys never change
    number    int as long, float as double, a decimal with more digits

Fields are compared by id. Two structs may look alike and differ: a dropped field and a new one of
the same name are unrelated. Nothing else can differ between two schemas of one table. Conversions
are made once per pair of schemas; None is the identity.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import pyarrow as pa

from neve.errors import Corruption
from neve.model.array_fit import nulls
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    kind_of,
    type_name,
    widens_to,
)
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray

ArrayWay: TypeAlias = Callable[[ArrowArray], ArrowArray]
"""From an array of the older type to one of the newer."""
ValueWay: TypeAlias = Callable[[Any], object]
"""From a Python value of the older type, never None, to one of the newer."""


def array_way(old: pa.DataType, new: pa.DataType) -> ArrayWay | None:
    """Return the conversion from arrays of one type to another; raises Corruption."""
    if old.equals(new, check_metadata=True):
        return None
    _check_related(old, new)
    match kind_of(new):
        case TypeKind.STRUCT:
            return _struct_arrays(child_fields(old), child_fields(new))
        case TypeKind.LIST:
            return _list_arrays(old, new)
        case TypeKind.MAP:
            return _map_arrays(old, new)
        case _:
            return lambda array: array.cast(new)


def value_way(old: pa.DataType, new: pa.DataType) -> ValueWay | None:
    """Return the conversion from Python values of one type to another; raises Corruption."""
    if old.equals(new, check_metadata=True):
        return None
    _check_related(old, new)
    match kind_of(new):
        case TypeKind.STRUCT:
            return _struct_values(child_fields(old), child_fields(new))
        case TypeKind.LIST:
            way = value_way(child_fields(old)[0].type, child_fields(new)[0].type)
            return None if way is None else _each(way)
        case TypeKind.MAP:
            way = value_way(child_fields(old)[1].type, child_fields(new)[1].type)
            return None if way is None else _each_value(way)
        case _:
            # A wider number is the same number.
            return None


def _check_related(old: pa.DataType, new: pa.DataType) -> None:
    is_nested = kind_of(old) in NESTED_KINDS or kind_of(new) in NESTED_KINDS
    if kind_of(old) is not kind_of(new) if is_nested else not widens_to(old, new):
        raise Corruption(
            f"a column is {type_name(old)} in an older schema and {type_name(new)} in a newer one",
            hint="Restore the table's manifest: no change of a schema does that",
        )


def _places(fields: Sequence[ArrowField], among: Sequence[ArrowField]) -> list[int | None]:
    """Return for each field the place of the field with its id among others, or None."""
    known = {field_id_of(each): at for at, each in enumerate(among)}
    return [known.get(field_id_of(field)) for field in fields]


def _struct_arrays(old: Sequence[ArrowField], new: Sequence[ArrowField]) -> ArrayWay:
    places = _places(new, old)
    ways = [
        None if at is None else array_way(old[at].type, field.type)
        for field, at in zip(new, places, strict=True)
    ]

    def convert(array: ArrowArray) -> ArrowArray:
        struct = cast("pa.StructArray", array)
        children: list[ArrowArray] = []
        for field, at, way in zip(new, places, ways, strict=True):
            if at is None:
                children.append(nulls(len(struct), field.type))
            else:
                # Values under a NULL struct stay as they are: a required field has no NULL there.
                child = struct.field(at)
                children.append(child if way is None else way(child))
        mask = struct.is_null() if struct.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)

    return convert


def _list_arrays(old: pa.DataType, new: pa.DataType) -> ArrayWay:
    way = array_way(child_fields(old)[0].type, child_fields(new)[0].type)

    def convert(array: ArrowArray) -> ArrowArray:
        values = cast("pa.ListArray[Any]", array).values
        return with_children(array, new, values if way is None else way(values))

    return convert


def _map_arrays(old: pa.DataType, new: pa.DataType) -> ArrayWay:
    key, value = child_fields(new)
    way = array_way(child_fields(old)[1].type, value.type)

    def convert(array: ArrowArray) -> ArrowArray:
        entries = cast("pa.MapArray[Any, Any]", array)
        items = entries.items if way is None else way(entries.items)
        pairs = pa.StructArray.from_arrays([entries.keys, items], fields=[key, value])
        return with_children(array, new, pairs)

    return convert


def with_children(array: ArrowArray, new: pa.DataType, children: ArrowArray) -> ArrowArray:
    """Return the same lists with other children: validity, lengths and offset stay."""
    validity, offsets = array.buffers()[:2]
    return pa.Array.from_buffers(
        new, len(array), [validity, offsets], offset=array.offset, children=[children]
    )


def _struct_values(old: Sequence[ArrowField], new: Sequence[ArrowField]) -> ValueWay:
    steps: list[tuple[str, str | None, ValueWay | None]] = []
    for field, at in zip(new, _places(new, old), strict=True):
        if at is None:
            steps.append((field.name, None, None))
        else:
            steps.append((field.name, old[at].name, value_way(old[at].type, field.type)))

    def convert(value: dict[str, object]) -> object:
        return {
            name: _converted(way, None if source is None else value[source])
            for name, source, way in steps
        }

    return convert


def _each(way: ValueWay) -> ValueWay:
    return lambda values: [_converted(way, value) for value in values]


def _each_value(way: ValueWay) -> ValueWay:
    return lambda pairs: [(key, _converted(way, value)) for key, value in pairs]


def _converted(way: ValueWay | None, value: object) -> object:
    return value if way is None or value is None else way(value)


@dataclass(frozen=True, slots=True)
class _Origin:
    """The source of a column of the target; None: the column was added after the rows."""

    column: Column
    source: str | None = None
    arrays: ArrayWay | None = None
    values: ValueWay | None = None


class SchemaMapping:
    """Turns rows of `source` into rows of `target`; safe for many threads."""

    __slots__ = ("_by_name", "_row_steps", "is_identity", "source", "target")

    def __init__(self, source: TableSchema, target: TableSchema) -> None:
        """Map two schemas; raises Corruption when they are not of one table."""
        self.source = source
        self.target = target
        by_id = {column.field_id: column for column in source.columns}
        self._by_name = {
            column.name: _origin(column, by_id.get(column.field_id)) for column in target.columns
        }
        self._row_steps = tuple(
            (name, origin.source, origin.values, origin.column.initial_default)
            for name, origin in self._by_name.items()
        )
        self.is_identity = source is target or source.arrow_schema.equals(
            target.arrow_schema, check_metadata=True
        )

    def row(self, row: dict[str, object]) -> dict[str, object]:
        """Return a row of the source as one of the target."""
        if self.is_identity:
            return row
        mapped: dict[str, object] = {}
        for name, source, way, default in self._row_steps:
            value = default if source is None else row[source]
            mapped[name] = value if way is None or value is None else way(value)
        return mapped

    def source_names(self, names: Sequence[str]) -> list[str]:
        """Return the source columns of some columns of the target."""
        if self.is_identity:
            return list(names)
        found = (self._by_name[name].source for name in names)
        return [name for name in found if name is not None]

    def batch(self, batch: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return some columns of the target, by default all, from a batch of the source.

        The batch has at least the columns of `source_names`.
        """
        if self.is_identity and names is None:
            return batch
        wanted = self.target.arrow_schema.names if names is None else list(names)
        fields = [self.target.arrow_schema.field(name) for name in wanted]
        arrays = [self._array(batch, name) for name in wanted]
        if not arrays:
            return _columnless(batch.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def table(self, table: pa.Table, names: Sequence[str] | None = None) -> pa.Table:
        """Return some columns of the target, by default all, from a table of the source."""
        wanted = self.target.arrow_schema.names if names is None else list(names)
        if self.is_identity:
            return table if table.column_names == wanted else table.select(wanted)
        batches = [self.batch(batch, names) for batch in table.to_batches()]
        schema = pa.schema([self.target.arrow_schema.field(name) for name in wanted])
        return pa.Table.from_batches(batches, schema=schema)

    def _array(self, batch: pa.RecordBatch, name: str) -> ArrowArray:
        origin = self._by_name[name]
        if origin.source is None:
            column = origin.column
            return constant_array(column, column.initial_default, length=batch.num_rows)
        array = batch.column(origin.source)
        if origin.arrays is None:
            return array
        try:
            return origin.arrays(array)
        except pa.ArrowException as error:
            raise Corruption(
                f"column {name!a} of an older schema does not fit the present one: {error}"
            ) from error


def _origin(column: Column, source: Column | None) -> _Origin:
    if source is None:
        return _Origin(column)
    return _Origin(
        column,
        source.name,
        array_way(source.type, column.type),
        value_way(source.type, column.type),
    )


def _columnless(row_count: int) -> pa.RecordBatch:
    """Return a batch of rows without columns."""
    array = pa.nulls(row_count)
    return pa.RecordBatch.from_arrays([array], names=["x"]).select([])
