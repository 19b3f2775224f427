"""What people have, as Arrow batches of a table's schema.

    dict                          one row
    iterable of dicts             rows; each is checked by itself, as `put` does
    pyarrow Table, RecordBatch    as they are
    RecordBatchReader, pandas,    anything with `__arrow_c_stream__` or `__arrow_c_array__`
    Polars, DuckDB, …

Everything that can be wrong with a row is found here, before anything is logged: columns that are
missing, unknown or given twice, values that do not fit, NULL where none may be.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import isnan
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

import pyarrow as pa

from neve.errors import InvalidArgument, NeveError, SchemaMismatch, Unavailable
from neve.model.display import shown
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema, normalize_batch

_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
_FAILED_COLUMN: Final = re.compile(r"Conversion failed for column (?P<name>.+) with type ")
_LOOKED_AT: Final = 100_000
_ACCEPTED: Final = (
    "Pass dicts, a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars frame, "
    "or anything else with __arrow_c_stream__"
)


@runtime_checkable
class ArrowStream(Protocol):
    """What gives its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the stream, in Arrow's C form."""
        ...


class ArrowBatch(Protocol):
    """What exports its rows as one Arrow batch."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        """Return the batch, in Arrow's C form."""
        ...


Rows: TypeAlias = (
    pa.Table
    | pa.RecordBatch
    | pa.RecordBatchReader
    | ArrowStream
    | ArrowBatch
    | Mapping[str, object]
    | Iterable[Mapping[str, object]]
)
"""What holds rows, in any of its forms."""


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
        # A query that was not run, such as a LazyFrame of Polars, holds no rows yet.
        is_query = callable(getattr(rows, "collect", None))
        raise InvalidArgument(
            f"rows are given as {type(rows).__name__}",
            hint="Run the query first: pass rows.collect()" if is_query else _ACCEPTED,
        )


def arrow_batches(rows: object) -> Iterable[pa.RecordBatch] | None:
    """Return the batches of rows that are anything Arrow, as they are; None when they are not."""
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
    """Return a table of anything Arrow; raises InvalidArgument for what cannot be read."""
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
    # pandas has the values of a column checked when they are read; Arrow names it second.
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
    """Name the types of a column's first values, when it has several; empty when it cannot tell."""
    try:
        values = cast("Mapping[str, Iterable[object]]", rows)[name]
        kinds = {
            type(value).__name__: None
            for value in islice(values, _LOOKED_AT)
            if value is not None and not (isinstance(value, float) and isnan(value))
        }
    except Exception:  # noqa: BLE001 - a frame of anybody's; the error that is told is another
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
        # Arrow's readers say OSError of a file that is damaged, without the system's number.
        if isinstance(error, OSError) and error.errno is not None:
            raise Unavailable(
                f"the stream of rows could not be read on: {error.strerror}",
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
    """Leave out the index of a pandas frame that has no name: it numbers rows, and is no column."""
    index = [
        name for name in batch.schema.names if _PANDAS_INDEX.fullmatch(name) and name not in schema
    ]
    return batch.drop_columns(index) if index else batch


def _from_dicts(rows: list[object], codec: RowCodec) -> pa.RecordBatch:
    """Check row by row: dicts are Python values, and each may be wrong in its own way."""
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
