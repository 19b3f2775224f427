"""Partial writes: rows with some of their columns, merged with the rows they change.

    given     key  b          widened    key  b  c        c: write default, or NULL
              k1   2                     k1   2  NULL
              k2   3                     k2   3  NULL

    base      key  b  c       merged     key  b  c
              k1   1  x                  k1   2  x        c is the base's
                                         k2   3  NULL     no row yet

The base is everything below the memtable: older memtables and the files of a Version. When another
process has committed since a row was merged, it is merged again with the newest base:

1. Given columns stay; the rest is the base's. A column with a merge function is folded instead:

       last_non_null    the new value unless it is NULL
       first            the base's value
       sum              both together; at most, and at least, what the column can hold
       min, max         the smaller, the greater; NULL and NaN only when there is nothing else
       bool_and         true when both are; bool_or when one is

2. When the base no longer has a row of the key, the rest becomes its default or NULL.

Rows of a table with merge functions are all merged this way, also those that were written whole:
the memtable has what was added since it began, and every reader merges it with the base.
"""

from collections.abc import Iterable, Mapping
from decimal import Context, Decimal
from typing import Any, Final, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.arrays import masked_places
from neve.keys.columns import KeyArray
from neve.memtable.found_row import GivenColumns
from neve.model.array_fit import nulls
from neve.model.arrow_buffers import one_batch
from neve.model.row_rules import NO_RULES, MergeFunction, RowRules
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray

ArrowColumn: TypeAlias = "pa.ChunkedArray[Any]"
Places: TypeAlias = npt.NDArray[np.int64]
GivenRows: TypeAlias = Mapping[GivenColumns, Places]
"""Positions of the rows of partial writes, by the columns they were written with."""


_DIGITS: Final = Context(prec=80)

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
    rules: RowRules = NO_RULES,
) -> pa.RecordBatch:
    """Return whole rows, with the base's values in the columns that were not written.

    Both have the schema; `places` says for each row of the base which row it belongs to. `rules`
    say how written columns are folded into those of the base.
    """
    if not base.num_rows:
        return rows
    kept = {*schema.primary_key, *given}
    chosen = np.arange(base.num_rows, base.num_rows + rows.num_rows, dtype=np.int64)
    chosen[places] = np.arange(base.num_rows)

    def column_of(column: Column) -> ArrowArray:
        own, old = rows.column(column.name), base.column(column.name)
        if column.field_id not in kept:
            return _taken(old, own, chosen)
        function = rules.function_of(column.field_id)
        return own if function is MergeFunction.LAST else _folded(function, old, own, chosen)

    arrays = list(map(column_of, schema.columns))
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def folded_rows(
    rows: pa.RecordBatch,
    keys: KeyArray,
    by_age: Places,
    *,
    given: Iterable[int],
    rules: RowRules,
    schema: TableSchema,
) -> tuple[pa.RecordBatch, KeyArray]:
    """Fold the rows of each key into one; `by_age` lists the rows, oldest first.

    Neighbours are folded first, then their results: the rounds grow with the logarithm of the rows
    that one key has.
    """
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    if len(by_age) == len(keys) == int(codes.max(initial=-1)) + 1:
        return rows, keys
    order = by_age[np.argsort(codes[by_age], kind="stable")]
    codes = codes[order]
    if not rules.merge:
        last = order[np.append(codes[1:] != codes[:-1], True)]
        return rows.take(last), keys.take(last)
    given, table = list(given), pa.Table.from_batches([rows.take(order)])
    kept = keys.take(order)
    while len(codes) and (codes[1:] == codes[:-1]).any():
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        place = np.arange(len(codes)) - np.repeat(starts, np.diff(np.append(starts, len(codes))))
        newer = np.flatnonzero(place % 2 == 1)
        older = newer - 1
        single = np.setdiff1d(np.flatnonzero(place % 2 == 0), older, assume_unique=True)
        pair = merged(
            one_batch(table.take(newer)),
            table.take(older),
            np.arange(len(newer)),
            given=given,
            schema=schema,
            rules=rules,
        )
        together = pa.concat_tables([table.take(single), pa.Table.from_batches([pair])])
        places = np.concatenate([single, older])
        back = np.argsort(places)
        table, codes, kept = together.take(back), codes[places[back]], kept.take(places[back])
    return one_batch(table), kept


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


def merged_on(
    base: Base,
    sequence: int,
    rows: pa.Table,
    keys: KeyArray,
    given: GivenRows,
    *,
    schema: TableSchema,
    rules: RowRules,
) -> pa.Table:
    """Return rows in their order, some of them merged again with the base's rows of their keys.

    `rules` are those of the schema they were written under.
    """
    tables = [rows]
    order = np.arange(rows.num_rows, dtype=np.int64)
    count = rows.num_rows
    for each, positions in given.items():
        for at in range(0, len(positions), MERGED_ROWS_MAX):
            places = positions[at : at + MERGED_ROWS_MAX]
            batch = one_batch(rows.take(places))
            if each.had_base:
                batch = without_base(batch, given=each.field_ids, schema=schema)
            found, found_places = base.get_many(keys.take(places), sequence)
            piece = merged(
                batch, found, found_places, given=each.field_ids, schema=schema, rules=rules
            )
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


def _folded(
    function: MergeFunction, base: ArrowColumn, own: ArrowArray, chosen: Places
) -> ArrowArray:
    """Fold new values into those of the base; `chosen` is below the length of the base for them."""
    count = len(base)
    has_base = chosen < count
    if function is MergeFunction.FIRST:
        return _taken(base, own, chosen)
    old = base.combine_chunks().take(masked_places(chosen, has_base))
    if function is MergeFunction.SUM:
        return _sum(old, own)
    # The others choose one of the two.
    takes_old = own.is_null(nan_is_null=True).to_numpy(zero_copy_only=False) & has_base
    if function is not MergeFunction.LAST_NON_NULL:
        is_old = {
            MergeFunction.MIN: pc.less,
            MergeFunction.BOOL_AND: pc.less,
            MergeFunction.MAX: pc.greater,
            MergeFunction.BOOL_OR: pc.greater,
        }[function]
        better = is_old(_plain(old), _plain(own)).fill_null(False)
        takes_old |= better.to_numpy(zero_copy_only=False)
    own_places = np.arange(count, count + len(own), dtype=np.int64)
    return _taken(base, own, np.where(takes_old, chosen, own_places))


def _plain(values: ArrowArray) -> ArrowArray:
    """Return values that Arrow compares: uuids as their bytes."""
    return values.storage if isinstance(values, pa.ExtensionArray) else values


def _sum(old: ArrowArray, own: ArrowArray) -> ArrowArray:
    """Add two columns; NULL counts as nothing. A sum stops at the limits of its type."""
    kind = own.type
    if pa.types.is_floating(kind):
        total = pc.add(old, own)
    elif isinstance(kind, pa.Decimal128Type):
        wide = pa.decimal256(kind.precision + 1, kind.scale)
        most = Decimal(10**kind.precision - 1).scaleb(-kind.scale, _DIGITS)
        high, low = (pa.scalar(each, wide) for each in (most, most.copy_negate()))
        total = pc.add(old.cast(wide), own.cast(wide)).cast(wide)
        bounded = cast("ArrowArray", pc.max_element_wise(pc.min_element_wise(total, high), low))
        total = bounded.cast(kind)
    else:
        limits = np.iinfo(kind.to_pandas_dtype())
        left, right = (
            each.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) for each in (old, own)
        )
        with np.errstate(over="ignore"):
            summed = left + right
        is_over = ((left ^ summed) & (right ^ summed)) < 0
        summed = np.where(is_over, np.where(left < 0, limits.min, limits.max), summed)
        total = pa.array(np.clip(summed, limits.min, limits.max), kind)
    is_known = pc.and_(old.is_valid(), own.is_valid())
    return cast("ArrowArray", pc.if_else(is_known, total, pc.coalesce(own, old)))


def _taken(base: ArrowColumn, own: ArrowArray, chosen: Places) -> ArrowArray:
    together: ArrowArray = pa.concat_arrays([nulls(0, own.type), *base.chunks, own])
    return together.take(chosen)
