"""Rows of which only some columns are written: taken out of what people have, and checked.

1. The key and the columns that are written are taken out of the rows, as in any write.
2. Of several rows with one key the last one stays.
3. They are merged with the rows that their keys have, see `neve.table.partial_merge`: when they are
   written, for readers, and again at the flush, on the Version that is committed to. What others
   wrote to the other columns meanwhile stays.

The log holds what was given, and of the other columns those that are never NULL and have no
default: should another committer delete the row before the flush, they are all there is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from neve.engine.row_input import arrow_batches, batches_of
from neve.errors import InvalidArgument, SchemaMismatch
from neve.keys.columns import KeyArray
from neve.keys.order import key_objects
from neve.memtable.found_row import GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.display import shown
from neve.model.row_codec import RowCodec
from neve.model.schema import (
    Column,
    TableSchema,
    known_names_hint,
    normalize_batch,
)
from neve.table.partial_merge import Places


def given_columns(columns: object, schema: TableSchema) -> tuple[Column, ...]:
    """Check the columns that a partial write names; gives those outside of the key."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidArgument(
            f"columns are given as {type(columns).__name__}", hint="Pass a list of names"
        )
    found: list[Column] = []
    for name in columns:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a column is given as {type(name).__name__}", hint="Pass a list of names"
            )
        column = schema.column(name)
        if column not in schema.key_columns and column not in found:
            found.append(column)
    if not found:
        raise InvalidArgument(
            "a partial write names no column besides the key",
            hint="Name the columns to write, or leave `columns` out to write whole rows",
        )
    return tuple(found)


def narrowed_codec(schema: TableSchema, given: Sequence[Column]) -> RowCodec:
    """Return the codec of rows that have only the key and the given columns."""
    wanted = {*schema.primary_key, *(column.field_id for column in given)}
    return RowCodec(
        TableSchema(
            columns=tuple(each for each in schema.columns if each.field_id in wanted),
            primary_key=schema.primary_key,
            schema_id=schema.schema_id,
            last_field_id=schema.last_field_id,
        )
    )


def narrowed_batches(
    rows: object, codec: RowCodec, schema: TableSchema
) -> Iterator[pa.RecordBatch]:
    """Yield the key and the columns of the codec out of rows; other columns are passed over.

    Raises SchemaMismatch for a column that is missing from the rows, or not in the table at all.
    """
    names = codec.schema.arrow_schema.names
    batches = arrow_batches(rows)
    if batches is not None:
        for batch in batches:
            _check_names(batch.schema.names, names, schema)
            yield normalize_batch(batch.select(names), codec.schema)
        return
    given = [rows] if isinstance(rows, Mapping) else rows
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        given = [_narrowed(row, names, schema) for row in given]
    yield from batches_of(given, codec)


def _narrowed(row: object, names: Sequence[str], schema: TableSchema) -> object:
    if not isinstance(row, Mapping):
        return row  # what it should be is said where rows are encoded
    _check_names(list(row), names, schema)
    return {name: row[name] for name in names}


def _check_names(found: Sequence[str], wanted: Sequence[str], schema: TableSchema) -> None:
    for name in wanted:
        if name not in found:
            raise SchemaMismatch(
                f"column {shown(name)} is missing from the rows",
                column=name,
                hint="Give the key and every column that `columns` names",
            )
    for name in found:
        if name not in schema:
            raise SchemaMismatch(
                f"column {shown(name)} of the rows is not in the table",
                column=name,
                hint=known_names_hint(str(name), schema.arrow_schema.names),
            )


def newest_rows(batch: pa.RecordBatch, keys: KeyArray) -> tuple[pa.RecordBatch, KeyArray]:
    """Return each key once, with the last of its rows: all give the same columns."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    last = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    # Of several values for one place the last one stays.
    last[codes] = np.arange(len(codes))
    if len(last) == len(codes):
        return batch, keys
    places = np.sort(last)
    return batch.take(places), keys.take(places)


def given_rows(
    memtable: Memtable,
    keys: KeyArray,
    places: Places,
    field_ids: frozenset[int],
    *,
    version: int,
) -> list[GivenColumns | None]:
    """Return what is given of each row once a partial write of some columns is in the memtable.

    `places` are those of the keys that have a row, `version` is what they were merged on.
    """
    has_row = np.zeros(len(keys), np.bool_)
    has_row[places] = True
    more = [GivenColumns(field_ids, had_base, version) for had_base in (False, True)]
    if memtable.is_empty:
        return [more[each] for each in has_row.tolist()]
    # A loop over the rows of a write: each is one look into a dict.
    return [
        memtable.given_with(key, more[each])
        for key, each in zip(key_objects(keys), has_row.tolist(), strict=True)
    ]
