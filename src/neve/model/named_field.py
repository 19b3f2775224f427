"""What a name in a filter or a scan stands for: a column, or with dots a field inside of a struct.

N1  A column is found by its whole name, dots and all, before any struct is looked into.
N2  Dots lead into structs only: which element of a list or map is meant, a name cannot say.
"""

import pyarrow as pa

from neve.errors import NotFound
from neve.model.arrow_types import child_fields, type_name
from neve.model.bound_predicate import BoundColumn
from neve.model.display import shown
from neve.model.schema import known_names_hint
from neve.model.schema_view import SchemaView


def named_field(name: str, schema: SchemaView) -> BoundColumn:
    """Find what a name stands for; raises NotFound with the names that could be meant."""
    around = None if name in schema else _column_around(name, schema)
    if around is None:
        found = schema.column(name)
        return BoundColumn(found.field_id, found.name, found.type)
    column = schema.column(around)
    places: list[int] = []
    at, type_ = column.name, column.type
    while at != name:
        place, at, type_ = _next_field(name, at, type_)
        places.append(place)
    return BoundColumn(column.field_id, name, type_, column, tuple(places))


def _column_around(name: str, schema: SchemaView) -> str | None:
    """Find the longest column name that dots lead out of: of `a` and `a.b`, for `a.b.c` `a.b`."""
    end = name.rfind(".")
    while end >= 0 and name[:end] not in schema:
        end = name.rfind(".", 0, end)
    return None if end < 0 else name[:end]


def _next_field(name: str, at: str, type_: pa.DataType) -> tuple[int, str, pa.DataType]:
    """Go one field further into a struct; gives its place, its full name and its type."""
    fields = child_fields(type_) if pa.types.is_struct(type_) else ()
    paths = [f"{at}.{field.name}" for field in fields]
    on_the_way = [
        (len(path), place)
        for place, path in enumerate(paths)
        if name == path or name.startswith(f"{path}.")
    ]
    if not on_the_way:
        raise NotFound(
            f"no field is named {shown(name)}",
            hint=known_names_hint(
                name[len(at) + 1 :], [each.name for each in fields], where=shown(at)
            )
            if fields
            else f"Dots lead into structs, and {shown(at)} is of type {type_name(type_)}",
        )
    _, place = max(on_the_way)
    return place, paths[place], fields[place].type
