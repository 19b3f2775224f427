"""SchemaMapping: rows of one schema as rows of another, by field id.

What the target no longer has is left out; what it has gained is its initial default, or NULL; names
and order are the target's; numbers are widened. Nothing else can differ between two schemas of one
table.
"""

from collections.abc import Sequence

import pyarrow as pa

from neve.errors import Corruption, NeveError
from neve.model.array_fit import fit_column
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray


class SchemaMapping:
    """Turns rows of `source` into rows of `target`; safe for many threads."""

    __slots__ = ("_by_name", "_row_steps", "is_identity", "source", "target")

    def __init__(self, source: TableSchema, target: TableSchema) -> None:
        self.source = source
        self.target = target
        by_id = {column.field_id: column for column in source.columns}
        self._by_name: dict[str, tuple[Column, Column | None]] = {
            column.name: (column, by_id.get(column.field_id)) for column in target.columns
        }
        self._row_steps = tuple(
            (column.name, None if found is None else found.name, column.initial_default)
            for column, found in self._by_name.values()
        )
        self.is_identity = source is target or source.arrow_schema.equals(
            target.arrow_schema, check_metadata=True
        )

    def row(self, row: dict[str, object]) -> dict[str, object]:
        """Give a row of the source as one of the target."""
        if self.is_identity:
            return row
        return {
            name: default if source is None else row[source]
            for name, source, default in self._row_steps
        }

    def source_names(self, names: Sequence[str]) -> list[str]:
        """Give the source's columns that columns of the target are made of."""
        found = (self._by_name[name][1] for name in names)
        return [column.name for column in found if column is not None]

    def batch(self, batch: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Give some columns of the target, by default all, out of a batch of the source.

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
        """Give some columns of the target, by default all, out of a table of the source."""
        wanted = self.target.arrow_schema.names if names is None else list(names)
        if self.is_identity:
            return table if table.column_names == wanted else table.select(wanted)
        batches = [self.batch(batch, names) for batch in table.to_batches()]
        schema = pa.schema([self.target.arrow_schema.field(name) for name in wanted])
        return pa.Table.from_batches(batches, schema=schema)

    def _array(self, batch: pa.RecordBatch, name: str) -> ArrowArray:
        column, found = self._by_name[name]
        if found is None:
            return constant_array(column, column.initial_default, length=batch.num_rows)
        array = batch.column(found.name)
        if array.type == column.type:
            return array
        try:
            return fit_column(array, column.arrow_field)
        except NeveError as error:
            raise Corruption(
                f"column {column.name!a} of an older schema does not fit the present one: {error}"
            ) from error


def _columnless(row_count: int) -> pa.RecordBatch:
    """Make a batch of rows without columns."""
    array = pa.nulls(row_count)
    return pa.RecordBatch.from_arrays([array], names=["x"]).select([])
