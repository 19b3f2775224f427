"""SchemaMapping: rows of one schema as rows of another, by field id.

What the target no longer has is left out; what it has gained is its initial default, or NULL; names
and order are the target's; numbers are widened, fields inside nested columns too (see
`neve.table.schema_mapping`). Nothing else can differ between two schemas of one table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from neve.errors import Corruption
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray
from neve.table.schema_mapping import ArrayWay, ValueWay, array_way, value_way


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a column of the target comes from; a source of None: it is younger than the rows."""

    column: Column
    source: str | None = None
    arrays: ArrayWay | None = None
    values: ValueWay | None = None


class SchemaMapping:
    """Turns rows of `source` into rows of `target`; safe for many threads."""

    __slots__ = ("_by_name", "_row_steps", "is_identity", "source", "target")

    def __init__(self, source: TableSchema, target: TableSchema) -> None:
        """Find the way; raises Corruption when these are not two schemas of one table."""
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
        """Return the source's columns that columns of the target are made of."""
        found = (self._by_name[name].source for name in names)
        return [name for name in found if name is not None]

    def batch(self, batch: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return some columns of the target, by default all, out of a batch of the source.

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
        """Return some columns of the target, by default all, out of a table of the source."""
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
    """Make a batch of rows without columns."""
    array = pa.nulls(row_count)
    return pa.RecordBatch.from_arrays([array], names=["x"]).select([])
