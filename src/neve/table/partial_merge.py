"""Partial writes: rows with some of their columns, merged with the rows they change.

    given     key  b          widened    key  b  c        c: write default, or NULL
              k1   2                     k1   2  NULL
              k2   3                     k2   3  NULL

    base      key  b  c       merged     key  b  c
              k1   1  x                  k1   2  x        c is the base's
                                         k2   3  NULL     no row yet

The base is everything below the memtable: older memtables and the files of a Version. When another
process has committed since a row was merged, it is merged again with the newest base:

1. Given columns stay; the rest is the base's.
2. When the base no longer has a row of the key, the rest becomes its default or NULL.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.keys.columns import KeyArray
from neve.memtable.found_row import GivenColumns
from neve.model.array_fit import nulls
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray

ArrowColumn: TypeAlias = "pa.ChunkedArray[Any]"
Places: TypeAlias = npt.NDArray[np.int64]
GivenRows: TypeAlias = Mapping[GivenColumns, Places]
"""Positions of the rows of partial writes, by the columns they were written with."""


MERGED_ROWS_MAX: Final = 16_384
"""Rows merged at a time: even large ones stay far below the limit of an Arrow array."""


def widened(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return whole rows: missing columns become their write default, or NULL.

    A column that allows neither is NULL all the same, see `required_columns`.
    """
    present = set(batch.schema.names)
    arrays = [
        batch.column(column.name)
        if column.name in present
        else constant_array(column, column.write_default, length=batch.num_rows)
        for column in schema.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def required_columns(schema: TableSchema, given: Iterable[int]) -> list[Column]:
    """Return the columns, neither written nor of the key, that a row must have."""
    known = {*schema.primary_key, *given}
    return [
        column
        for column in schema.columns
        if column.field_id not in known and not column.nullable and column.write_default is None
    ]


def merged(
    rows: pa.RecordBatch,
    base: pa.Table,
    places: Places,
    *,
    given: Iterable[int],
    schema: TableSchema,
) -> pa.RecordBatch:
    """Return whole rows, with the base's values in the columns that were not written.

    Both have the schema; `places` says for each row of the base which row it belongs to.
    """
    if not base.num_rows:
        return rows
    kept = {*schema.primary_key, *given}
    chosen = np.arange(base.num_rows, base.num_rows + rows.num_rows, dtype=np.int64)
    chosen[places] = np.arange(base.num_rows)
    arrays = [
        rows.column(column.name)
        if column.field_id in kept
        else _taken(base.column(column.name), rows.column(column.name), chosen)
        for column in schema.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def without_base(
    rows: pa.RecordBatch, *, given: Iterable[int], schema: TableSchema
) -> pa.RecordBatch:
    """Return merged rows without their base: only written columns stay.

    So do columns that cannot be NULL and have no default.
    """
    kept = {*schema.primary_key, *given}
    kept.update(column.field_id for column in required_columns(schema, kept))
    names = [column.name for column in schema.columns if column.field_id in kept]
    return widened(rows.select(names), schema)


class Base(Protocol):
    """The part of a TableView that a merge uses."""

    def get_many(self, keys: KeyArray, sequence: int) -> tuple[pa.Table, Places]:
        """Return the rows of unique keys in any order, and for each the place of its key."""
        ...


def merged_on(
    base: Base,
    sequence: int,
    rows: pa.Table,
    keys: KeyArray,
    given: GivenRows,
    *,
    schema: TableSchema,
) -> pa.Table:
    """Return rows in their order, some of them merged again with the base's rows of their keys."""
    tables = [rows]
    order = np.arange(rows.num_rows, dtype=np.int64)
    count = rows.num_rows
    for each, positions in given.items():
        for at in range(0, len(positions), MERGED_ROWS_MAX):
            places = positions[at : at + MERGED_ROWS_MAX]
            batch = rows.take(places).combine_chunks().to_batches()[0]
            if each.had_base:
                batch = without_base(batch, given=each.field_ids, schema=schema)
            found, found_places = base.get_many(keys.take(places), sequence)
            piece = merged(batch, found, found_places, given=each.field_ids, schema=schema)
            tables.append(pa.Table.from_batches([piece]))
            order[places] = np.arange(count, count + len(places))
            count += len(places)
    return pa.concat_tables(tables).take(order)


def merged_row(
    row: dict[str, object],
    base: dict[str, object] | None,
    given: GivenColumns,
    schema: TableSchema,
) -> dict[str, object]:
    """Return one row merged again with the base's row of its key, which may be None."""
    if base is None and not given.had_base:
        return row
    kept = {*schema.primary_key, *given.field_ids}
    if base is None:
        kept.update(column.field_id for column in required_columns(schema, kept))
    return {
        column.name: row[column.name]
        if column.field_id in kept
        else (column.write_default if base is None else base[column.name])
        for column in schema.columns
    }


def _taken(base: ArrowColumn, own: ArrowArray, chosen: Places) -> ArrowArray:
    together: ArrowArray = pa.concat_arrays([nulls(0, own.type), *base.chunks, own])
    return together.take(chosen)
