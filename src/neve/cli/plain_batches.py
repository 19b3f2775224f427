"""Batches as large as they look: what stands for many values without holding them is written out.

Arrow has types whose arrays name one value many times: dictionaries, runs, views. A few bytes of
such an array become gigabytes when its values are read. So they are written out here, in the
process that has a limit, and cut into pieces before they go on.

L1  A batch has at most the rows asked for, and at most BATCH_BYTES unless one row has more.
L2  No type of a batch shares values between rows.
L3  Rows and elements without any bytes are counted, and there are only so many of them.
"""

from collections.abc import Iterator
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import LimitExceeded

BATCH_BYTES: Final = 16 << 20

# Elements of lists, and rows, that take no bytes of the file.
_ELEMENTS_MAX: Final = 1 << 26
_EMPTY_ROWS_MAX: Final = 1 << 30
_FEWER: Final = 16


class PlainBatches:
    """Writes out and cuts the batches of one file."""

    def __init__(self, *, rows_max: int) -> None:
        self._rows_max = rows_max
        self._empty_rows = 0

    def cut(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of batches in plain ones; raises ArrowException, LimitExceeded."""
        for batch in batches:
            # Arrow believes what files say of their own bytes; what comes next must be able to.
            batch.validate(full=True)
            self._count(batch)
            plain = pa.schema([_plain_field(field) for field in batch.schema])
            is_plain = plain.types == batch.schema.types
            rows = self._rows_max if is_plain else min(self._rows_max, _FEWER**3)
            for start in range(0, batch.num_rows, rows):
                piece = batch.slice(start, rows)
                written = [piece] if is_plain else _written_out(piece, plain)
                for each in written:
                    yield from self._bounded(each)

    def joined(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join batches that are small: a row group may have only a few rows."""
        waiting: list[pa.RecordBatch] = []
        rows = byte_count = 0
        for batch in batches:
            is_full = rows + batch.num_rows > self._rows_max
            if waiting and (is_full or byte_count + batch.nbytes > BATCH_BYTES):
                yield _joined(waiting)
                waiting, rows, byte_count = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            byte_count += batch.nbytes
        if waiting:
            yield _joined(waiting)

    def _bounded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = max(1, batch.num_rows * BATCH_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _count(self, batch: pa.RecordBatch) -> None:
        self._empty_rows += max(0, batch.num_rows - batch.nbytes)
        elements = sum(map(_element_count, batch.columns))
        for count, limit, what in (
            (self._empty_rows, _EMPTY_ROWS_MAX, "rows"),
            (elements - batch.nbytes, _ELEMENTS_MAX, "elements of lists"),
        ):
            if count > limit:
                raise LimitExceeded(
                    f"more than {limit:,} {what} hold nothing",
                    limit=limit,
                    actual=count,
                    hint="Check where the file comes from",
                )


def _written_out(batch: pa.RecordBatch, plain: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Write out the values of a batch, in halves of halves while they do not fit."""
    try:
        yield _without_runs(batch).cast(plain)
    except (pa.ArrowMemoryError, pa.ArrowInvalid, pa.ArrowCapacityError):
        if batch.num_rows <= 1:
            raise
        rows = max(1, batch.num_rows // _FEWER)
        for start in range(0, batch.num_rows, rows):
            yield from _written_out(batch.slice(start, rows), plain)


def _without_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        pc.call_function("run_end_decode", [column])
        if isinstance(column, pa.RunEndEncodedArray)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def _plain_field(field: "pa.Field[pa.DataType]") -> "pa.Field[pa.DataType]":
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that holds the same values, each by itself (L2)."""
    if isinstance(kind, pa.DictionaryType | pa.RunEndEncodedType):
        return _plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if isinstance(kind, pa.StructType):
        return pa.struct([_plain_field(field) for field in kind.fields])
    if isinstance(kind, pa.MapType):
        key, item = _plain_field(kind.key_field), _plain_field(kind.item_field)
        return cast("pa.DataType", pa.map_(key, item))
    if isinstance(kind, pa.ListType | pa.ListViewType):
        return pa.list_(_plain_field(kind.value_field))
    if isinstance(kind, pa.LargeListType | pa.LargeListViewType):
        return pa.large_list(_plain_field(kind.value_field))
    if isinstance(kind, pa.FixedSizeListType):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    return kind


def _element_count(array: "pa.Array[pa.Scalar[pa.DataType]]") -> int:
    """Count the elements of all lists inside."""
    if isinstance(array, pa.StructArray):
        return sum(_element_count(array.field(at)) for at in range(array.type.num_fields))
    if isinstance(array, pa.MapArray):
        return len(array.keys) + _element_count(array.items)
    if isinstance(array, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
        return len(array.values) + _element_count(array.values)
    return 0
