"""Row input: rows in the forms that callers have, as Arrow batches of a table's schema.

    dict                          one row
    iterable of dicts             rows; checked column by column, or each by itself, as `put` does
    pyarrow Table, RecordBatch    unchanged
    RecordBatchReader, pandas,    anything with `__arrow_c_stream__` or `__arrow_c_array__`
    Polars, DuckDB, …

Everything that can be wrong with a row is found here, before anything is logged: columns that are
missing, unknown or given twice, values that do not fit, NULL where it is not allowed.

A partial write names only some columns:

1. Take the key and the named columns out of the rows, and check them as in any write.
2. Of several rows with one key, keep the last one.
3. Merge them with the rows of their keys, see `neve.table.partial_merge`: at the write for readers,
   and again at the flush, on the Version that is committed to. What others have written to other
   columns since then stays.

The log holds the given columns, and the others that are never NULL and have no default: if another
committer deletes the row before the flush, the row is made from these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import isnan
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
import pyarrow as pa

from neve.errors import InvalidArgument, NeveError, Phrase, SchemaMismatch, Unavailable, Wording
from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.memtable.found_row import GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.display import shown
from neve.model.exact_columns import exact_batch
from neve.model.row_codec import RowCodec
from neve.model.schema import Column, TableSchema, normalize_batch
from neve.model.suggestions import known_names_hint
from neve.table.partial_merge import Places

_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
_FAILED_COLUMN: Final = re.compile(r"Conversion failed for column (?P<name>.+) with type ")
_LOOKED_AT: Final = 100_000
_ACCEPTED: Final = (
    "Pass dicts, a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars frame, "
    "or anything else with __arrow_c_stream__"
)


@runtime_checkable
class ArrowStream(Protocol):
    """An object that exports its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream, in Arrow's C form."""


class ArrowBatch(Protocol):
    """An object that exports its rows as one Arrow batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return the batch, in Arrow's C form."""


Rows: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.RecordBatchReader
    | ArrowStream
    | ArrowBatch
    | Mapping[str, object]
    | Iterable[Mapping[str, object]]
)
"""Rows in any supported form."""


def batches_of(rows: object, codec: RowCodec) -> Iterator[pa.RecordBatch]:
    """Yield rows as batches of the schema; raises SchemaMismatch naming column and row."""
    batches = arrow_batches(rows)
    if batches is not None:
        yield from _normalized(batches, codec.schema)
    elif isinstance(rows, Mapping):
        yield _from_dicts([rows], codec)
    elif isinstance(rows, Iterable) and not isinstance(rows, str | bytes):
        given = list(rows)
        if given:
            yield _from_dicts(given, codec)
    else:
        # A query that has not run, such as a Polars LazyFrame, holds no rows yet.
        is_query = callable(getattr(rows, "collect", None))
        raise InvalidArgument(
            f"rows cannot be read from {type(rows).__name__}",
            hint="Run the query first: pass rows.collect()" if is_query else _ACCEPTED,
        )


def arrow_batches(rows: object) -> Iterable[pa.RecordBatch] | None:
    """Return the batches of any Arrow object, unchanged; None for other objects."""
    if isinstance(rows, Mapping):
        return None
    if isinstance(rows, pa.RecordBatch):
        return [rows]
    if isinstance(rows, pa.Table | pa.RecordBatchReader):
        return _batches(rows)
    if isinstance(rows, ArrowStream):
        return _imported(rows)
    if hasattr(rows, "__arrow_c_array__"):
        return [_imported_batch(rows)]
    return None


def imported_table(rows: object) -> pa.Table:
    """Return any Arrow object as a table; raises InvalidArgument when it cannot be read."""
    try:
        return pa.table(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(rows, error) from error


def _imported_batch(rows: object) -> pa.RecordBatch:
    try:
        return pa.record_batch(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(rows, error) from error


def _unreadable(rows: object, error: Exception) -> InvalidArgument:
    # pandas checks the values of a column when they are read; Arrow names the column second.
    failed = _FAILED_COLUMN.search(str(error.args[-1])) if error.args else None
    if failed is None:
        return InvalidArgument(
            f"rows given as {type(rows).__name__} could not be read: {error}", hint=_ACCEPTED
        )
    name = failed["name"]
    kinds = _kinds_in(rows, name)
    return InvalidArgument(
        f"column {shown(name)} of the {type(rows).__name__} could not be read: "
        + (f"it holds {kinds}" if kinds else str(error.args[0])),
        hint=f"Make its values one type: rows[{name!r}] = rows[{name!r}].astype(…)",
    )


def _kinds_in(rows: object, name: str) -> str:
    """Name the types of a column's first values; empty for one type or when they are unknown."""
    try:
        values = cast("Mapping[str, Iterable[object]]", rows)[name]
        kinds = {
            type(value).__name__: None
            for value in islice(values, _LOOKED_AT)
            if value is not None and not (isinstance(value, float) and isnan(value))
        }
    except Exception:  # noqa: BLE001 - a frame of any library; another error is raised
        return ""
    return " and ".join(kinds) if len(kinds) > 1 else ""


def _imported(rows: ArrowStream) -> Iterable[pa.RecordBatch]:
    try:
        reader = pa.RecordBatchReader.from_stream(rows)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise _unreadable(rows, error) from error
    return _batches(reader)


def _batches(rows: pa.Table | pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, pa.Table):
        yield from rows.combine_chunks().to_batches()
        return
    try:
        yield from rows
    except (pa.ArrowException, OSError) as error:
        # Arrow's readers raise OSError without an errno for a damaged file.
        if isinstance(error, OSError) and error.errno is not None:
            raise Unavailable(
                f"the stream of rows broke off: {error.strerror}",
                hint="Find the cause, then write the rows again",
            ) from error
        raise InvalidArgument(
            f"the stream of rows ended with an error: {error}",
            hint="Check the file or query that it reads, then write the rows again",
        ) from error


def _normalized(batches: Iterable[pa.RecordBatch], schema: TableSchema) -> Iterator[pa.RecordBatch]:
    before = 0
    for batch in batches:
        try:
            yield normalize_batch(_without_index(batch, schema), schema)
        except NeveError as error:
            if before:
                error.add_note(f"rows are counted from row {before:,} of the input")
            raise
        before += batch.num_rows


def _without_index(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Drop the unnamed index of a pandas frame: it numbers rows, and is not a column."""
    index = [
        name for name in batch.schema.names if _PANDAS_INDEX.fullmatch(name) and name not in schema
    ]
    return batch.drop_columns(index) if index else batch


def _from_dicts(rows: list[object], codec: RowCodec) -> pa.RecordBatch:
    """Take rows column by column, or one by one: each may be wrong in its own way."""
    exact = exact_batch(rows, codec.schema)
    if exact is not None:
        return exact
    encode = codec.encode
    values: list[bytes] = []
    for place, row in enumerate(rows):
        try:
            values.append(encode(cast("Mapping[str, object]", row)))
        except SchemaMismatch as error:
            if len(rows) > 1:
                error.add_note(f"in row {place:,} of {len(rows):,}")
            raise
    return codec.decode_many(values)


def given_columns(columns: object, schema: TableSchema) -> tuple[Column, ...]:
    """Check the columns that a partial write names; returns those outside the key."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise InvalidArgument(
            f"columns must be a list, not {type(columns).__name__}", hint="Pass a list of names"
        )
    found: list[Column] = []
    for name in columns:
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a column name is text, not {type(name).__name__}", hint="Pass a list of names"
            )
        column = schema.column(name)
        if column not in schema.key_columns and column not in found:
            found.append(column)
    if not found:
        raise InvalidArgument(
            "a partial write names no column besides the key",
            hint=Wording(Phrase.LEAVE_COLUMNS_OUT),
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
    """Yield the key and the columns of the codec; skips other columns of the rows.

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
        return row  # encoding reports what it should be
    _check_names(list(row), names, schema)
    return {name: row[name] for name in names}


def _check_names(found: Sequence[str], wanted: Sequence[str], schema: TableSchema) -> None:
    for name in wanted:
        if name not in found:
            raise SchemaMismatch(
                f"column {shown(name)} is missing from the rows",
                column=name,
                hint=Wording(Phrase.NAMED_COLUMNS),
            )
    for name in found:
        if name not in schema:
            raise SchemaMismatch(
                f"column {shown(name)} of the rows is not in the table",
                column=name,
                hint=known_names_hint(str(name), schema.arrow_schema.names),
            )


def given_rows(
    memtable: Memtable,
    keys: KeyArray,
    places: Places,
    field_ids: frozenset[int],
    *,
    version: int,
) -> list[GivenColumns | None]:
    """Return the columns that each row has been given, after a partial write of some columns.

    `places` are those of the keys that have a row, `version` is the one they were merged with.
    """
    has_row = np.zeros(len(keys), np.bool_)
    has_row[places] = True
    more = [GivenColumns(field_ids, had_base, version) for had_base in (False, True)]
    if memtable.is_empty:
        return [more[each] for each in has_row.tolist()]
    # A loop over the rows of a write: each is one dict lookup.
    return [
        memtable.given_with(key, more[each])
        for key, each in zip(key_objects(keys), has_row.tolist(), strict=True)
    ]
