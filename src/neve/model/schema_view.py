"""SchemaView: what predicates and partition specs need to know about a schema."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from neve.errors import SchemaMismatch
from neve.model.display import shown, shown_type

# pyarrow's classes are generic to the type checker only, so the names are spelled as text. The
# kernels' stubs take arrays of certain types; which type an array has is known at run time.
ArrowArray: TypeAlias = "pa.Array[Any]"
ArrowScalar: TypeAlias = "pa.Scalar[Any]"


class ColumnView(Protocol):
    """One column: its id, name and type."""

    @property
    def field_id(self) -> int:
        """Identity of the column; survives renames."""

    @property
    def name(self) -> str:
        """Name in the current schema."""

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the values."""


class SchemaView(Protocol):
    """A schema whose top-level columns can be looked up."""

    @property
    def columns(self) -> Sequence[ColumnView]:
        """Columns in order."""

    def __contains__(self, name: str) -> bool:
        """Whether there is a column of this name."""

    def column(self, name: str) -> ColumnView:
        """Find a column by name; raises NotFound."""

    def column_by_id(self, field_id: int) -> ColumnView:
        """Find a column by field id; raises NotFound."""


def read_column(
    batch: pa.RecordBatch, column: ColumnView, *, or_dictionary: bool = False
) -> ArrowArray:
    """Return a column of a batch, of its type or a dictionary of it if that is asked for.

    Raises SchemaMismatch when it is missing or of another type.
    """
    position = batch.schema.get_field_index(column.name)
    if position < 0:
        raise SchemaMismatch(
            f"the batch has no column {shown(column.name)}, or has it twice",
            column=column.name,
            hint="Read this column too, under the name it has in the table",
        )
    array = batch.column(position)
    found = array.type
    if or_dictionary and isinstance(array, pa.DictionaryArray):
        found = array.dictionary.type
    if found != column.type:
        raise SchemaMismatch(
            f"column {shown(column.name)} is {shown_type(array.type)} in the batch and "
            f"{shown_type(column.type)} in the table",
            column=column.name,
            hint="Cast the batch to the table's schema first",
        )
    return array
