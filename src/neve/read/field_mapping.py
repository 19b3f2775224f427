"""Values of a field as an older schema has it, as values of the same field in a newer one.

    struct    by field id: what is gone is left out, what is new is NULL, names are the newer ones
    list      element by element
    map       value by value; keys never change
    number    int as long, float as double, a decimal with more digits

Fields are compared by id at every depth. Two structs may look alike and not be: a field that was
dropped and another that took its name share nothing. Ways are made once per pair of schemas; None
stands for a way that changes nothing.
"""

from collections.abc import Callable, Sequence
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
from neve.model.schema_view import ArrowArray

ArrayWay: TypeAlias = Callable[[ArrowArray], ArrowArray]
"""From an array of the older type to one of the newer."""
ValueWay: TypeAlias = Callable[[Any], object]
"""From a Python value of the older type, never None, to one of the newer."""


def array_way(old: pa.DataType, new: pa.DataType) -> ArrayWay | None:
    """Make the way from arrays of one type to arrays of another; raises Corruption."""
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
    """Make the way from Python values of one type to those of another; raises Corruption."""
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
            hint="No change of a schema does that: restore the table's manifest",
        )


def _places(fields: Sequence[ArrowField], among: Sequence[ArrowField]) -> list[int | None]:
    """Return for each field the place of the one with its id among others, None without one."""
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
                # What lies under a NULL struct stays as it is: a required field has no NULL there.
                child = struct.field(at)
                children.append(child if way is None else way(child))
        mask = struct.is_null() if struct.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(new), mask=mask)

    return convert


def _list_arrays(old: pa.DataType, new: pa.DataType) -> ArrayWay:
    way = array_way(child_fields(old)[0].type, child_fields(new)[0].type)

    def convert(array: ArrowArray) -> ArrowArray:
        values = cast("pa.ListArray[Any]", array).values
        return _with_children(array, new, values if way is None else way(values))

    return convert


def _map_arrays(old: pa.DataType, new: pa.DataType) -> ArrayWay:
    key, value = child_fields(new)
    way = array_way(child_fields(old)[1].type, value.type)

    def convert(array: ArrowArray) -> ArrowArray:
        entries = cast("pa.MapArray[Any, Any]", array)
        items = entries.items if way is None else way(entries.items)
        pairs = pa.StructArray.from_arrays([entries.keys, items], fields=[key, value])
        return _with_children(array, new, pairs)

    return convert


def _with_children(array: ArrowArray, new: pa.DataType, children: ArrowArray) -> ArrowArray:
    """Return the same lists of other children: validity, lengths and offset stay what they are."""
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
