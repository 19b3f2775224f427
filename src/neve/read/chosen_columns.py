"""ChosenColumns: the part of each row that a scan returns: columns, and fields inside structs.

    asked for           returned
    id, s.a, s.in.x     id, s: struct<a, in: struct<x>>

A field is returned in its struct, as in Iceberg: a struct has the requested fields, in the order of
the schema, and is NULL where the whole one is. Files are read by whole columns.

An engine that calculates with the rows may ask for compact forms, which it takes as they are:

    text that files store as a dictionary     a dictionary
    decimals of at most 18 digits             integers of 32 or 64 bits instead of 128
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, cast

import numpy as np
import pyarrow as pa

from neve.errors import InvalidArgument
from neve.model.arrow_types import child_fields
from neve.model.bound_predicate import named_field
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.sstable.parquet_groups import dictionary_field
from neve.table.schema_mapping import ArrayWay, array_way

_Places = tuple[int, ...]
"""Positions of a field and those around it, each in its struct; none for the column itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenColumns:
    """Columns that are read, and the part of them that is returned."""

    asked: tuple[str, ...]
    """As they were asked for, with dots."""
    names: tuple[str, ...]
    """Columns that are read, in the order in which they are returned."""
    schema: pa.Schema
    """The columns that are returned."""
    ways: Mapping[str, ArrayWay]
    """From a column to the struct returned for it; no entry for one returned whole."""

    def given(self, rows: pa.Table) -> pa.Table:
        """Return the requested part of rows with the columns `names`."""
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
    """Return the chosen columns; raises InvalidArgument, NotFound."""
    whole = schema.arrow_schema
    if columns is None:
        names = tuple(whole.names)
        return ChosenColumns(asked=names, names=names, schema=pa.schema(list(whole)), ways={})
    asked = _asked_names(columns)
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


_DIGITS_32: Final = 9
_DIGITS_64: Final = 18


def compact_schema(schema: pa.Schema, dictionaries: Collection[str]) -> pa.Schema:
    """Return the compact forms of columns."""
    fields = [dictionary_field(field, dictionaries) for field in schema]
    return pa.schema([field.with_type(_compact_type(field.type)) for field in fields])


def compact_columns(columns: ChosenColumns, dictionaries: Collection[str]) -> ChosenColumns:
    """Return the same columns in compact forms."""
    schema = compact_schema(columns.schema, dictionaries)
    ways = dict(columns.ways)
    for field, compact in zip(columns.schema, schema, strict=True):
        if field.type != compact.type:
            is_text = pa.types.is_dictionary(compact.type)
            ways[field.name] = _as_dictionary if is_text else partial(_narrow, kind=compact.type)
    return replace(columns, schema=schema, ways=ways)


def _compact_type(kind: pa.DataType) -> pa.DataType:
    if not isinstance(kind, pa.Decimal128Type) or kind.precision > _DIGITS_64:
        return kind
    decimal = pa.decimal32 if kind.precision <= _DIGITS_32 else pa.decimal64
    return decimal(kind.precision, kind.scale)


def _as_dictionary(array: ArrowArray) -> ArrowArray:
    if pa.types.is_dictionary(array.type):
        return array
    return cast("pa.StringArray", array).dictionary_encode()


def _narrow(array: ArrowArray, *, kind: pa.DataType) -> ArrowArray:
    """Keep the low bits of decimals, which have the whole number."""
    if array.null_count:
        return array.cast(kind)
    values = array.buffers()[1]
    assert values is not None
    width = np.dtype(f"<i{kind.byte_width}")
    step = array.type.byte_width // width.itemsize
    start, stop = array.offset * step, (array.offset + len(array)) * step
    low = np.ascontiguousarray(np.frombuffer(memoryview(values), width)[start:stop:step])
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(low.data)], null_count=0)


def _refuse_again(places: _Places, others: Mapping[_Places, str], name: str) -> None:
    for other, other_name in others.items():
        shared = min(len(places), len(other))
        if places[:shared] == other[:shared]:
            within = "" if other == places else f": {shown(other_name)} is asked for too"
            raise InvalidArgument(
                f"column {shown(name)} is asked for twice{within}", hint="Name each column once"
            )


def _pruned(type_: pa.DataType, wanted: Collection[_Places]) -> pa.DataType:
    """Return a struct with only the wanted fields; a field wanted whole stays as it is."""
    if () in wanted:
        return type_
    fields = []
    for place, field in enumerate(child_fields(type_)):
        inside = {places[1:] for places in wanted if places[0] == place}
        if inside:
            fields.append(field.with_type(_pruned(field.type, inside)))
    return pa.struct(fields)


def _asked_names(columns: Sequence[str]) -> tuple[str, ...]:
    """Check that columns are a list of names, none of them twice; raises InvalidArgument."""
    if isinstance(columns, str) or not isinstance(columns, Sequence):
        raise InvalidArgument(
            f"columns are {type(columns).__name__}, not a list", hint="Pass a list of names"
        )
    if not columns:
        raise InvalidArgument("no columns were asked for", hint="Name one, or use count()")
    names: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a column name is {type(name).__name__}, not text", hint="Pass a list of names"
            )
        if name in names:
            raise InvalidArgument(
                f"column {shown(name)} is asked for twice", hint="Name each column once"
            )
        names.append(name)
    return tuple(names)
