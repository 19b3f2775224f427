"""Whole columns to row bytes and back, for the layout drawn in `neve.model.row_layout`.

Everything of fixed width, the bitmap and the lengths form a matrix with one line per row, filled
and read a column at a time with NumPy. Rows are Python objects of their own, so cutting the matrix
into lines and joining each with its variable-width values loops over rows, inside C functions.
Nested values are small programs and go through `neve.model.row_values` one by one.
"""

from collections.abc import Sequence
from operator import methodcaller
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption, LimitExceeded
from neve.model.array_fit import fit_column
from neve.model.arrow_buffers import fixed_bytes
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of
from neve.model.display import shown
from neve.model.plain_values import stored_array
from neve.model.row_layout import LENGTH_BYTES, BodyLayout, StoredField, parse_header
from neve.model.row_values import Domain, initial_value, storage_type, value_reader, value_writer
from neve.model.scalar_values import ToRaw, scalar_form
from neve.model.schema import Column, TableSchema, constant_array
from neve.model.schema_view import ArrowArray

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Flags: TypeAlias = npt.NDArray[np.bool_]
_Numbers: TypeAlias = npt.NDArray[np.int64]


class RowVectors:
    """Rows of one schema as columns."""

    __slots__ = ("_header", "_own", "_places", "_schema", "_writers")

    def __init__(self, schema: TableSchema, stored: Sequence[StoredField], header: bytes) -> None:
        self._schema: Final = schema
        self._header: Final = header
        self._own: Final = _ColumnReader(stored, header, schema)
        self._places: Final = _Places([each.type for each in stored], header)
        self._writers: Final[dict[int, ToRaw]] = {
            at: value_writer(each.type, Domain.STORAGE)
            for at, each in enumerate(stored)
            if kind_of(each.type) in NESTED_KINDS
        }

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the bytes of each row of a batch that has exactly the schema."""
        places, rows = self._places, batch.num_rows
        head = np.zeros((rows, places.head_end), np.uint8)
        head[:, : places.bitmap_at] = np.frombuffer(self._header, np.uint8)
        nulls = np.zeros((rows, len(batch.columns)), np.bool_)
        for at, column in enumerate(batch.columns):
            if column.null_count:
                nulls[:, at] = column.is_null().to_numpy(zero_copy_only=False)
        head[:, places.bitmap_at : places.bitmap_end] = np.packbits(
            nulls, axis=1, bitorder="little"
        )
        for at, start, width in places.fixed:
            fixed = _fixed_bytes(batch.column(at), width=width)
            head[:, start : start + width] = np.where(nulls[:, at, np.newaxis], 0, fixed)
        pieces: list[list[bytes]] = []
        for at, start in places.lengths:
            pieces.append(self._pieces(batch.column(at), at))
            lengths = np.fromiter(map(len, pieces[-1]), "<u4", rows)
            head[:, start : start + LENGTH_BYTES] = lengths.view(np.uint8).reshape(
                rows, LENGTH_BYTES
            )
        block = head.tobytes()
        lines = [block[at : at + places.head_end] for at in range(0, len(block), places.head_end)]
        return list(map(b"".join, zip(lines, *pieces, strict=True))) if pieces else lines

    def decode(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows as a batch that has exactly the schema; raises Corruption."""
        if all(map(methodcaller("startswith", self._header), values)):
            return self._own.read(values)
        groups = _rows_by_header(values)
        batches = [
            _ColumnReader(parse_header(header)[0], header, self._schema).read(
                [values[at] for at in rows]
            )
            for header, rows in groups.items()
        ]
        order = np.argsort(np.concatenate([np.array(rows) for rows in groups.values()]))
        try:
            together: pa.RecordBatch = pa.concat_batches(batches)  # type: ignore[attr-defined]
        except pa.ArrowInvalid as error:
            raise _too_much() from error
        return together.take(order)

    def _pieces(self, array: ArrowArray, at: int) -> list[bytes]:
        write = self._writers.get(at)
        if write is None:
            return cast("list[bytes]", array.cast(pa.binary()).fill_null(b"").to_pylist())
        stored = cast("ArrowArray", array.view(storage_type(array.type)))
        return [b"" if each is None else cast("bytes", write(each)) for each in stored.to_pylist()]


class _Places:
    """Byte positions in the head of a row, header included."""

    __slots__ = (
        "bitmap_at",
        "bitmap_end",
        "count",
        "fixed",
        "head_end",
        "lengths",
        "piece_of",
        "span",
    )

    def __init__(self, types: Sequence[pa.DataType], header: bytes) -> None:
        layout = BodyLayout(types)
        self.count: Final = layout.count
        self.bitmap_at: Final = len(header)
        self.bitmap_end: Final = len(header) + layout.bitmap_bytes
        fixed: list[tuple[int, int, int]] = []
        start = self.bitmap_end
        for at in layout.fixed:
            width = scalar_form(types[at]).width
            fixed.append((at, start, width))
            start += width
        self.fixed: Final = tuple(fixed)
        self.lengths: Final = tuple(
            (at, start + LENGTH_BYTES * nth) for nth, at in enumerate(layout.variable)
        )
        self.span: Final = {at: (start, width) for at, start, width in self.fixed} | {
            at: (start, LENGTH_BYTES) for at, start in self.lengths
        }
        # A row cut into pieces is its head, number 0, and then its variable-width values.
        self.piece_of: Final = {at: nth for nth, at in enumerate(layout.variable, start=1)}
        self.head_end: Final = len(header) + layout.head.size
        assert self.head_end == start + LENGTH_BYTES * len(layout.variable)


def _fixed_bytes(array: ArrowArray, *, width: int) -> _Bytes:
    """Return the values as lines of bytes; what lies under NULL is whatever memory holds."""
    if pa.types.is_boolean(array.type):
        flags = array.fill_null(False).to_numpy(zero_copy_only=False)
        return cast("_Bytes", flags.astype(np.uint8).reshape(len(array), 1))
    return fixed_bytes(stored_array(array), width=width)


def _rows_by_header(values: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Group row numbers by header: over rows, each compared with the few headers already met."""
    groups: dict[bytes, list[int]] = {}
    for at, value in enumerate(values):
        header = next((known for known in groups if value.startswith(known)), None)
        if header is None:
            header = value[: parse_header(value)[1]]
        groups.setdefault(header, []).append(at)
    return groups


class _ColumnReader:
    """Turns rows of one header into a batch of one schema."""

    __slots__ = ("_columns", "_places", "_schema", "_stored")

    def __init__(self, stored: Sequence[StoredField], header: bytes, schema: TableSchema) -> None:
        self._schema: Final = schema
        self._stored: Final = stored
        self._places: Final = _Places([each.type for each in stored], header)
        at_of = {each.field_id: at for at, each in enumerate(stored)}
        self._columns: Final = [(column, at_of.get(column.field_id)) for column in schema.columns]

    def read(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Read rows that all begin with the header."""
        places = self._places
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        if len(values) and sizes.min() < places.head_end:
            raise _damage(sizes < places.head_end, "ends inside its fixed-width values")
        # One slice per row: rows are objects of their own, wherever they lie.
        heads = b"".join([value[: places.head_end] for value in values])
        head = np.frombuffer(heads, np.uint8).reshape(len(values), places.head_end)
        bitmap = head[:, places.bitmap_at : places.bitmap_end]
        bits = np.unpackbits(bitmap, axis=1, bitorder="little").view(np.bool_)
        padding = bits[:, places.count :]
        if padding.any():
            raise _damage(padding, "has NULL bits for fields it does not have")
        for at, (start, width) in places.span.items():
            filled = bits[:, at] & head[:, start : start + width].any(axis=1)
            if filled.any():
                raise _damage(filled, "has bytes where it says NULL")
        pieces = self._pieces(values, head, sizes)
        arrays = [
            constant_array(column, initial_value(column), length=len(values))
            if at is None
            else self._array(column, at, head, bits[:, at], pieces)
            for column, at in self._columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow_schema)

    def _pieces(self, values: Sequence[bytes], head: _Bytes, sizes: _Numbers) -> ArrowArray:
        """Return all rows as one binary array: for each row its head, then variable-width values.

        Nothing is copied but the rows themselves, once; every length is checked before use.
        """
        places = self._places
        ends = np.empty((len(values), len(places.lengths) + 1), np.int64)
        ends[:, 0] = places.head_end
        for nth, (_, start) in enumerate(places.lengths, start=1):
            lengths = np.ascontiguousarray(head[:, start : start + LENGTH_BYTES])
            ends[:, nth] = lengths.view("<u4").ravel()
        np.cumsum(ends, axis=1, out=ends)
        if (ends[:, -1] != sizes).any():
            raise _damage(ends[:, -1] != sizes, "does not end where its last value does")
        ends += (np.cumsum(sizes) - sizes)[:, np.newaxis]
        offsets = np.concatenate([np.zeros(1, np.int64), ends.ravel()])
        buffers = [None, _buffer(offsets), pa.py_buffer(b"".join(values))]
        return pa.Array.from_buffers(pa.large_binary(), ends.size, buffers)

    def _array(
        self, column: Column, at: int, head: _Bytes, nulls: _Flags, pieces: ArrowArray
    ) -> ArrowArray:
        stored = self._stored[at].type
        # Made first: it refuses types that do not go together before any value is looked at.
        read = value_reader(stored, column.type, Domain.STORAGE)
        start, width = self._places.span[at]
        entries = head[:, start : start + width]
        if not column.nullable and nulls.any():
            raise _damage(nulls, f"has NULL in column {shown(column.name)}, which is never NULL")
        nth = self._places.piece_of.get(at)
        if nth is None:
            return _checked(_fixed_array(stored, entries, nulls), column)
        step = len(self._places.piece_of) + 1
        own_pieces = pieces.take(np.arange(nth, len(pieces), step))
        if read is None or kind_of(stored) not in NESTED_KINDS:
            return _checked(_binary_array(stored, own_pieces, nulls), column)
        # Over rows, because each nested value is read by a program made for its type.
        raws = zip(cast("list[bytes]", own_pieces.to_pylist()), nulls.tolist(), strict=True)
        nested = [None if is_null else read(raw) for raw, is_null in raws]
        array = _checked(pa.array(nested, storage_type(column.type)).view(column.type), column)
        return fit_column(array, column.arrow_field)


def _damage(wrong: _Flags, problem: str) -> Corruption:
    """Make the error that names the first row with a flag set; rows are the first dimension."""
    row = int(np.nonzero(wrong)[0].min())
    return Corruption(f"row {row} of {len(wrong)} {problem}")


def _too_much() -> LimitExceeded:
    return LimitExceeded(
        "one column of these rows takes more than Arrow's 2 GiB",
        limit=(1 << 31) - 1,
        hint="Decode fewer rows at a time",
    )


def _buffer(memory: npt.NDArray[np.generic]) -> pa.Buffer:
    return pa.py_buffer(memory.data)


def _validity(nulls: _Flags) -> pa.Buffer | None:
    return _buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None


def _fixed_array(stored: pa.DataType, entries: _Bytes, nulls: _Flags) -> ArrowArray:
    if pa.types.is_boolean(stored):
        if (entries > 1).any():
            raise _damage(entries > 1, "has a boolean other than 0 or 1")
        memory = np.packbits(entries.ravel(), bitorder="little")
    else:
        # Always a copy: what lies in the values themselves begins at any byte.
        memory = entries.copy().ravel()
    buffers = [_validity(nulls), _buffer(memory)]
    if kind_of(stored) is TypeKind.UUID:
        storage = pa.Array.from_buffers(storage_type(stored), len(nulls), buffers)
        return pa.ExtensionArray.from_storage(cast("pa.UuidType", stored), storage)
    return pa.Array.from_buffers(stored, len(nulls), buffers)


def _binary_array(stored: pa.DataType, pieces: ArrowArray, nulls: _Flags) -> ArrowArray:
    try:
        narrow = pieces.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise _too_much() from error
    _, offsets, memory = narrow.buffers()
    return pa.Array.from_buffers(stored, len(nulls), [_validity(nulls), offsets, memory])


def _checked(array: ArrowArray, column: Column) -> ArrowArray:
    """Let Arrow check UTF-8, times and decimals, then widen."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Corruption(
            f"rows have damaged values in column {shown(column.name)}: {error}"
        ) from error
    return array if array.type == column.type else array.cast(column.type)
