"""Leaves of a schema: the primitive columns that Parquet stores, those inside nested ones included.

    column type                          leaves, as Parquet names them
    primitive          a                 a
    struct             a                 a.x, a.y
    list               a                 a.list.element
    map                a                 a.key_value.key, a.key_value.value

Parquet keeps the leaves of a file in this order, depth first, and numbers them from 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from neve.model.arrow_types import ArrowField, child_fields, field_id_of
from neve.model.plain_values import stored_array
from neve.model.row_lineage import LINEAGE_SCHEMA
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray


class _Step(Enum):
    """Ways from a nested column to what is inside."""

    ELEMENT = auto()
    KEY = auto()
    VALUE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One primitive column of a file."""

    column: str
    """Name of the top-level column it belongs to."""
    path: str
    field_id: int
    type: pa.DataType
    steps: tuple[int | _Step, ...]
    """From the top-level column to here; a number is a field of a struct."""

    @property
    def is_repeated(self) -> bool:
        """Whether a row can have any number of values, because of a list or map."""
        return any(isinstance(step, _Step) for step in self.steps)

    def values(self, column: ArrowArray) -> ArrowArray:
        """Take the leaf's values out of its column, in the type that kernels know.

        Where a struct is NULL, so is what is inside; NULL and empty lists have no values.
        """
        inside = column
        for step in self.steps:
            inside = _step_into(inside, step)
        return stored_array(inside)


def leaves_of(schema: TableSchema) -> tuple[Leaf, ...]:
    """Return the leaves of a schema in the order Parquet has them."""
    return _leaves(schema.arrow_schema)


def _leaves(schema: pa.Schema) -> tuple[Leaf, ...]:
    return tuple(
        leaf
        for field in schema
        for leaf in _walk(field, column=field.name, path=field.name, steps=())
    )


def _walk(
    field: ArrowField, *, column: str, path: str, steps: tuple[int | _Step, ...]
) -> Iterator[Leaf]:
    inner = child_fields(field.type)
    if not inner:
        field_id = field_id_of(field)
        assert field_id is not None, "every field of a table's schema has an id"
        yield Leaf(column=column, path=path, field_id=field_id, type=field.type, steps=steps)
    elif pa.types.is_map(field.type):
        for child, step in zip(inner, (_Step.KEY, _Step.VALUE), strict=True):
            below = f"{path}.key_value.{child.name}"
            yield from _walk(child, column=column, path=below, steps=(*steps, step))
    elif pa.types.is_struct(field.type):
        for at, child in enumerate(inner):
            below = f"{path}.{child.name}"
            yield from _walk(child, column=column, path=below, steps=(*steps, at))
    else:
        below = f"{path}.list.element"
        yield from _walk(inner[0], column=column, path=below, steps=(*steps, _Step.ELEMENT))


def _step_into(array: ArrowArray, step: int | _Step) -> ArrowArray:
    if isinstance(step, int):
        inside: ArrowArray = pc.struct_field(array, [step])
        return inside
    # A NULL list may still span values; without it, the offsets bound exactly what is there.
    compact = pc.drop_null(array) if array.null_count else array
    if step is _Step.ELEMENT:
        assert isinstance(compact, pa.ListArray)
        children: ArrowArray = compact.values
    else:
        assert isinstance(compact, pa.MapArray)
        children = compact.keys if step is _Step.KEY else compact.items
    offsets = compact.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    assert first is not None
    assert last is not None
    return children.slice(first, last - first)


LINEAGE_LEAVES: Final = _leaves(LINEAGE_SCHEMA)
"""Leaves of the columns of row lineage, which come after all others."""
