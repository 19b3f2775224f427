"""ChosenColumns: what a scan gives of each row: whole columns, and fields inside of structs.

    asked for           given
    id, s.a, s.in.x     id, s: struct<a, in: struct<x>>

A field comes in its struct, as it does in Iceberg: a struct has the fields that were asked for, in
the order of the schema, and is NULL where the whole one is. Files are read by whole columns.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from neve.errors import InvalidArgument
from neve.model.arrow_types import child_fields
from neve.model.bound_predicate import named_field
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.read.scan_plan import asked_names
from neve.table.schema_mapping import ArrayWay, array_way

_Places = tuple[int, ...]
"""Of a field, and of those around it, each in its struct; none for the column itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenColumns:
    """Columns that are read, and what is given of them."""

    asked: tuple[str, ...]
    """As they were asked for, with dots."""
    names: tuple[str, ...]
    """Columns that are read, in the order in which they are given."""
    schema: pa.Schema
    """What is given."""
    ways: Mapping[str, ArrayWay]
    """From a column to the struct that is given of it; nothing for one that is given whole."""

    def given(self, rows: pa.Table) -> pa.Table:
        """Return what was asked for of rows of `names`."""
        if not self.ways:
            return rows
        columns = []
        for field in self.schema:
            column, way = rows.column(field.name), self.ways.get(field.name)
            if way is not None:
                column = pa.chunked_array([way(chunk) for chunk in column.chunks], field.type)
            columns.append(column)
        return pa.Table.from_arrays(columns, schema=self.schema)


def chosen_columns(columns: Sequence[str] | None, schema: TableSchema) -> ChosenColumns:
    """Find what was asked for; raises InvalidArgument, NotFound."""
    whole = schema.arrow_schema
    if columns is None:
        names = tuple(whole.names)
        return ChosenColumns(asked=names, names=names, schema=pa.schema(list(whole)), ways={})
    asked = asked_names(columns)
    found: dict[str, dict[_Places, str]] = {}
    for name in asked:
        field = named_field(name, schema)
        column = name if field.around is None else field.around.name
        inside = found.setdefault(column, {})
        _refuse_again(field.places, inside, name)
        inside[field.places] = name
    ways: dict[str, ArrayWay] = {}
    fields = []
    for name, inside in found.items():
        field_whole = whole.field(name)
        field_given = field_whole.with_type(_pruned(field_whole.type, inside))
        way = array_way(field_whole.type, field_given.type)
        if way is not None:
            ways[name] = way
        fields.append(field_given)
    return ChosenColumns(asked=asked, names=tuple(found), schema=pa.schema(fields), ways=ways)


def _refuse_again(places: _Places, others: Mapping[_Places, str], name: str) -> None:
    for other, other_name in others.items():
        shared = min(len(places), len(other))
        if places[:shared] == other[:shared]:
            within = "" if other == places else f", for {shown(other_name)} is asked for too"
            raise InvalidArgument(
                f"column {shown(name)} is asked for twice{within}", hint="Name each column once"
            )


def _pruned(type_: pa.DataType, wanted: Collection[_Places]) -> pa.DataType:
    """Return a struct with the wanted fields only; what is wanted whole stays as it is."""
    if () in wanted:
        return type_
    fields = []
    for place, field in enumerate(child_fields(type_)):
        inside = {places[1:] for places in wanted if places[0] == place}
        if inside:
            fields.append(field.with_type(_pruned(field.type, inside)))
    return pa.struct(fields)
