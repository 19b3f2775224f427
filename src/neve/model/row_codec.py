"""RowCodec: rows of one schema to bytes and back, one at a time or as Arrow batches.

`neve.model.row_layout` describes the bytes, `neve.model.scalar_values` the Python values; a list is
a list, a struct a dict, a map a list of pairs (a dict is accepted too).

A row carries the field ids and types it was written with, so any codec reads any row: values are
found by field id, fields the schema no longer has are dropped, columns added since are their
initial default or NULL, numbers are widened. Anything else is Corruption.

Encoding checks everything before it makes a byte: an encoded row can always be stored. The quick
way serves rows whose values have exactly the expected classes and no NULL; all others, and all
errors, take the careful way, which is slower and knows which column is wrong.

In a batch, fixed-width values, the bitmap and the lengths form a matrix with one line per row,
filled and read a column at a time with NumPy. Rows are separate Python objects, so cutting the
matrix into lines and joining each with its variable-width values loops over rows, inside C
functions. Nested values go through `neve.model.row_values` one by one.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption, LimitExceeded, SchemaMismatch
from neve.kernel import is_compiled, kernel
from neve.model.array_fit import fit_column
from neve.model.arrow_buffers import fixed_bytes, position_array
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of, type_name, value_hint
from neve.model.display import shown
from neve.model.plain_values import stored_array
from neve.model.row_layout import (
    LENGTH_BYTES,
    BodyLayout,
    MaybeRaw,
    StoredField,
    is_stored_zero,
    pack_header,
    parse_header,
)
from neve.model.row_values import Domain, initial_value, storage_type, value_reader, value_writer
from neve.model.scalar_values import FromRaw, Raw, ToRaw, Unfit, raw_kind, scalar_form
from neve.model.schema import Column, TableSchema, constant_array, normalize_batch
from neve.model.schema_view import ArrowArray
from neve.model.suggestions import known_names_hint

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
    """Return the values as lines of bytes; bytes under NULL are arbitrary."""
    if pa.types.is_boolean(array.type):
        flags = array.fill_null(False).to_numpy(zero_copy_only=False)
        return cast("_Bytes", flags.astype(np.uint8).reshape(len(array), 1))
    return fixed_bytes(stored_array(array), width=width)


def _rows_by_header(values: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Group row numbers by header; loops over rows, comparing each with the few headers so far."""
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
        # One slice per row: rows are separate objects.
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

        Only the rows are copied, once; every length is checked before use.
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
        # Made first: it refuses incompatible types before any value is read.
        read = value_reader(stored, column.type, Domain.STORAGE)
        start, width = self._places.span[at]
        entries = head[:, start : start + width]
        if not column.nullable and nulls.any():
            raise _damage(nulls, f"has NULL in column {shown(column.name)}, which is never NULL")
        nth = self._places.piece_of.get(at)
        if nth is None:
            return _checked(_fixed_array(stored, entries, nulls), column)
        step = len(self._places.piece_of) + 1
        own_pieces = pieces.take(position_array(np.arange(nth, len(pieces), step)))
        if read is None or kind_of(stored) not in NESTED_KINDS:
            return _checked(_binary_array(stored, own_pieces, nulls), column)
        # A loop over rows: each nested value is read by a function made for its type.
        raws = zip(cast("list[bytes]", own_pieces.to_pylist()), nulls.tolist(), strict=True)
        nested = [None if is_null else read(raw) for raw, is_null in raws]
        array = _checked(pa.array(nested, storage_type(column.type)).view(column.type), column)
        return fit_column(array, column.arrow_field)


def _damage(wrong: _Flags, problem: str) -> Corruption:
    """Return the error for the first row with a flag set; rows are the first dimension."""
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
        # Always a copy: the values are not aligned.
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


ROW_BYTES_MAX: Final = (1 << 31) - 1

# How many readers are kept, one per header; a table rarely has rows of more than a few schemas.
_READERS_MAX: Final = 32

_Row = dict[str, object]


class RowCodec:
    """Encodes rows of `schema`, and decodes rows of any schema into it.

    Safe to share between threads: a reader made twice is the same reader.
    """

    __slots__ = ("_readers", "_vectors", "_writer", "decode", "encode", "schema")

    def __init__(self, schema: TableSchema) -> None:
        stored = tuple(
            StoredField(field_id=column.field_id, type=column.type) for column in schema.columns
        )
        header = pack_header(stored)
        self.schema: Final = schema
        self._vectors: Final = RowVectors(schema, stored, header)
        # The twins of the compiled kernel, which leaves everything unusual to them.
        self._readers: Final = _RowReaders(stored, header, schema)
        self._writer: Final = _RowWriter(schema, header)
        self.encode: Final[Callable[[Mapping[str, object]], bytes]] = (
            self._writer.compiled().write if is_compiled else self._writer.write
        )
        """Returns the bytes of a row: a value per column, by name.

        A missing column becomes its write default, or NULL. Raises SchemaMismatch naming the
        column.
        """
        self.decode: Final[Callable[[bytes], dict[str, object]]] = (
            self._readers.compiled().read if is_compiled else self._readers.read
        )
        """Returns the row in column order.

        Raises Corruption for bytes that are not a row, SchemaMismatch for a sound date or timestamp
        outside Python's years 1 to 9999, which only `decode_many` can return.
        """

    def encode_batch(self, batch: pa.RecordBatch) -> list[bytes]:
        """Return the bytes of each row of a batch, which is made to fit by `normalize_batch`."""
        rows = self._vectors.encode(normalize_batch(batch, self.schema))
        longest = max(map(len, rows), default=0)
        if longest > ROW_BYTES_MAX:
            raise _too_long(longest)
        return rows

    def decode_many(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows as a batch with the schema's Arrow schema, in the order given.

        Raises Corruption as `decode` does; dates and timestamps of any year are fine.
        """
        return self._vectors.decode(values)


def describe_row(value: bytes) -> list[tuple[int, str, object]]:
    """Return field id, type name and value of each field, as the row itself describes them.

    Fields of structs are named by their ids. Raises Corruption.
    """
    stored, body_at = parse_header(value)
    raws = BodyLayout([each.type for each in stored]).unpack(value, start=body_at)
    described: list[tuple[int, str, object]] = []
    for each, raw in zip(stored, raws, strict=True):
        read = value_reader(each.type, each.type, Domain.SHOWN)
        shown = raw if raw is None or read is None else read(raw)
        described.append((each.field_id, type_name(each.type), shown))
    return described


# After these the careful ways find what is wrong; the compiled kernel takes the same.
_WRITE_ERRORS: Final = (KeyError, TypeError, ValueError, OverflowError, struct.error)
_READ_ERRORS: Final = (ValueError, Corruption, struct.error)


class _RowWriter:
    """Turns Python rows of one schema into bytes."""

    __slots__ = (
        "_columns",
        "_count",
        "_fixed_count",
        "_header",
        "_layout",
        "_names",
        "_no_nulls",
        "_pack_head",
        "_pick",
        "_quick_fixed",
        "_quick_variable",
        "_steps",
        "_types",
    )

    def __init__(self, schema: TableSchema, header: bytes) -> None:
        columns = schema.columns
        self._columns: Final = [
            (column, value_writer(column.type, Domain.PYTHON)) for column in columns
        ]
        self._names: Final = frozenset(column.name for column in columns)
        self._header: Final = header
        self._layout: Final = BodyLayout([column.type for column in columns])
        self._pack_head: Final = self._layout.head.pack
        self._no_nulls: Final = self._layout.no_nulls
        # The quick ways take values in packing order.
        packed = [*self._layout.fixed, *self._layout.variable]
        ordered = [columns[at] for at in packed]
        quick = [_quick_writer(column.type) for column in ordered]
        zeros = [
            *self._layout.zeros[: len(self._layout.fixed)],
            *[b""] * len(self._layout.variable),
        ]
        self._count: Final = len(columns)
        self._fixed_count: Final = len(self._layout.fixed)
        self._pick: Final = _picker([column.name for column in ordered])
        self._types: Final = [_quick_class(column.type) for column in ordered]
        self._quick_fixed: Final = _positions(quick[: self._fixed_count])
        self._quick_variable: Final = _positions(quick[self._fixed_count :])
        null_bits = [1 << at if columns[at].nullable else 0 for at in packed]
        self._steps: Final = list(zip(self._types, quick, null_bits, zeros, strict=True))

    def compiled(self) -> "kernel.RowWriter":
        """Return the kernel's own, which leaves to this one what it cannot write."""
        layout = self._layout
        columns: list[tuple[str, type, str, int, int, Callable[..., object] | None]] = []
        for at in (*layout.fixed, *layout.variable):
            column = self._columns[at][0]
            kind, width, is_raw = _kernel_kind(column.type)
            to_raw = None if is_raw else _quick_writer(column.type)
            bit = at if column.nullable else -1
            columns.append((column.name, _quick_class(column.type), kind, width, bit, to_raw))
        return kernel.RowWriter(
            self._header, layout.bitmap_bytes, ROW_BYTES_MAX, columns, self.write, _WRITE_ERRORS
        )

    def write(self, row: Mapping[str, object]) -> bytes:
        try:
            values = self._pick(row)
            if len(row) != self._count:
                return self._write_carefully(row)
            if [*map(type, values)] != self._types:
                return self._write_with_nulls(values) or self._write_carefully(row)
            fixed = [*values[: self._fixed_count]]
            for at, to_raw in self._quick_fixed:
                fixed[at] = to_raw(fixed[at])
            pieces = [*values[self._fixed_count :]]
            for at, to_raw in self._quick_variable:
                pieces[at] = to_raw(pieces[at])
            head = self._pack_head(self._no_nulls, *fixed, *map(len, pieces))
        except _WRITE_ERRORS:
            return self._write_carefully(row)
        encoded = b"".join((self._header, head, *pieces))
        if len(encoded) > ROW_BYTES_MAX:
            raise _too_long(len(encoded))
        return encoded

    def _write_with_nulls(self, values: tuple[Any, ...]) -> bytes:
        """Return the bytes of a row whose values other than None are of the expected classes.

        Returns None for any other row; raises what `write` catches.
        """
        nulls = 0
        raws: list[Any] = []
        for value, (expected, to_raw, null_bit, zero) in zip(values, self._steps, strict=True):
            if value is None and null_bit:
                nulls |= null_bit
                raws.append(zero)
            elif type(value) is expected:
                raws.append(value if to_raw is None else to_raw(value))
            else:
                return b""
        pieces = raws[self._fixed_count :]
        bitmap = nulls.to_bytes(len(self._no_nulls), "little")
        head = self._pack_head(bitmap, *raws[: self._fixed_count], *map(len, pieces))
        encoded = b"".join((self._header, head, *pieces))
        return encoded if len(encoded) <= ROW_BYTES_MAX else b""

    def _write_carefully(self, row: Mapping[str, object]) -> bytes:
        if not isinstance(row, Mapping):
            raise SchemaMismatch(
                f"expected a row as a dict, got {type(row).__name__}",
                hint="Pass {column name: value}",
            )
        if not row.keys() <= self._names:
            unknown = next(name for name in row if name not in self._names)
            names = [column.name for column, _ in self._columns]
            raise SchemaMismatch(
                f"column {shown(unknown)} is not in the table",
                column=str(unknown),
                hint=known_names_hint(str(unknown), names),
            )
        raws = [_raw_of(column, to_raw, row) for column, to_raw in self._columns]
        size = sum(len(cast("bytes", raws[at] or b"")) for at in self._layout.variable)
        if size > ROW_BYTES_MAX - self._layout.head.size - len(self._header):
            raise _too_long(size)
        return self._header + self._layout.pack(raws)


def _raw_of(column: Column, to_raw: ToRaw, row: Mapping[str, object]) -> MaybeRaw:
    given = column.name in row
    value = row[column.name] if given else column.write_default
    if value is None:
        if column.nullable:
            return None
        raise SchemaMismatch(
            f"column {shown(column.name)} is {'NULL' if given else 'missing'} and may not be",
            column=column.name,
            hint=f"Set it to a {type_name(column.type)} value",
        )
    try:
        return to_raw(value)
    except struct.error as error:
        # Only the length of a nested value can still be out of range here.
        raise _too_long(1 << 32) from error
    except Unfit as unfit:
        path = f"{column.name}.{unfit.path}" if unfit.path else column.name
        raise SchemaMismatch(
            f"column {shown(path)}: {unfit.reason}",
            column=path,
            hint=value_hint(column.type),
        ) from unfit


def _quick_class(arrow_type: pa.DataType) -> type:
    match kind_of(arrow_type):
        case TypeKind.LIST | TypeKind.MAP:
            return list
        case TypeKind.STRUCT:
            return dict
        case _:
            return scalar_form(arrow_type).python_type


def _quick_writer(arrow_type: pa.DataType) -> ToRaw | None:
    if kind_of(arrow_type) in NESTED_KINDS:
        return value_writer(arrow_type, Domain.PYTHON)
    return scalar_form(arrow_type).quick


def _positions(writers: Sequence[ToRaw | None]) -> tuple[tuple[int, ToRaw], ...]:
    """Return the places where values are not their own raw form."""
    return tuple((at, to_raw) for at, to_raw in enumerate(writers) if to_raw is not None)


def _kernel_kind(arrow_type: pa.DataType) -> tuple[str, int, bool]:
    """Return how the kernel stores a type, and whether it also converts its values."""
    if kind_of(arrow_type) in NESTED_KINDS:
        return "b", 0, False
    form = scalar_form(arrow_type)
    is_raw = form.python_type in {bool, str, bytes} or form.from_raw is None
    return *raw_kind(arrow_type), is_raw


class _RowReaders:
    """Turns rows of any header into Python rows of one schema."""

    __slots__ = ("_header", "_own", "_readers", "_schema")

    def __init__(self, stored: Sequence[StoredField], header: bytes, schema: TableSchema) -> None:
        self._schema: Final = schema
        self._header: Final = header
        self._own: Final = _RowReader(stored, header, schema)
        self._readers: dict[bytes, _RowReader] = {}

    def compiled(self) -> "kernel.RowReader":
        """Return the kernel's own, which leaves to these what it cannot read."""
        return self._own.compiled(self._header, self.read)

    def read(self, value: bytes) -> _Row:
        if value.startswith(self._header):
            return self._own.read(value)
        return self._reader_of(value).read(value)

    def _reader_of(self, value: bytes) -> "_RowReader":
        # A header describes its own length, so at most one can be the beginning of a row.
        for header, reader in tuple(self._readers.items()):
            if value.startswith(header):
                return reader
        stored, body_at = parse_header(value)
        reader = _RowReader(stored, value[:body_at], self._schema)
        if len(self._readers) >= _READERS_MAX:
            self._readers.clear()
        self._readers[value[:body_at]] = reader
        return reader


class _RowReader:
    """Turns rows of one header into Python rows of one schema."""

    __slots__ = (
        "_body_at",
        "_columns",
        "_constants",
        "_fixed_reads",
        "_layout",
        "_names",
        "_never_null",
        "_no_nulls",
        "_null_slots",
        "_pick",
        "_pieces_at",
        "_unpack_head",
        "_variable_reads",
        "_zeros",
    )

    def __init__(self, stored: Sequence[StoredField], header: bytes, schema: TableSchema) -> None:
        layout = BodyLayout([each.type for each in stored])
        self._layout: Final = layout
        self._body_at: Final = len(header)
        self._pieces_at: Final = len(header) + layout.head.size
        self._unpack_head: Final = layout.head.unpack_from
        self._no_nulls: Final = layout.no_nulls
        self._names: Final = [column.name for column in schema.columns]
        places = {each.field_id: at for at, each in enumerate(stored)}
        # Fields that a row lacks come after those it has.
        later = [column for column in schema.columns if column.field_id not in places]
        self._constants: Final = [initial_value(column) for column in later]
        places |= {column.field_id: len(stored) + at for at, column in enumerate(later)}
        # Head entries: the bitmap, fixed-width values, lengths; then the constants.
        order = [*layout.fixed, *layout.variable, *range(len(stored), len(stored) + len(later))]
        slots = {at: slot for slot, at in enumerate(order, start=1)}
        self._columns: Final = [
            (column, places[column.field_id], _column_reader(column, stored, places))
            for column in schema.columns
        ]
        self._pick: Final = _picker([slots[at] for _, at, _ in self._columns])
        reads = {
            at: _quick_reader(stored[at].type, read)
            for _, at, read in self._columns
            if at < len(stored)
        }
        self._fixed_reads: Final = tuple(
            (slots[at], read) for at in layout.fixed if (read := reads.get(at)) is not None
        )
        required = {at for column, at, _ in self._columns if not column.nullable}
        # Bits that the careful way has to check: required columns, and bits of no field.
        self._never_null: Final = sum(
            1 << at for at in range(8 * layout.bitmap_bytes) if at >= len(stored) or at in required
        )
        self._null_slots: Final = tuple((1 << at, slots[at]) for at in range(len(stored)))
        self._zeros: Final = (layout.no_nulls, *layout.zeros)
        self._variable_reads: Final = tuple((slots[at], reads.get(at)) for at in layout.variable)

    def compiled(self, header: bytes, fallback: Callable[[bytes], _Row]) -> "kernel.RowReader":
        """Return the kernel's own for rows of the schema itself."""
        columns: list[tuple[str, str, int, bool, Callable[..., object] | None]] = []
        for column, _, read in self._columns:
            kind, width, is_raw = _kernel_kind(column.type)
            is_required = not column.nullable
            columns.append((column.name, kind, width, is_required, None if is_raw else read))
        return kernel.RowReader(header, self._layout.bitmap_bytes, columns, fallback, _READ_ERRORS)

    def read(self, value: bytes) -> _Row:
        try:
            head = self._unpack_head(value, self._body_at)
            entries = [*head, *self._constants]
            at = self._pieces_at
            for slot, read in self._variable_reads:
                end = at + entries[slot]
                entries[slot] = value[at:end] if read is None else read(value[at:end])
                at = end
            if at != len(value):
                return self._read_carefully(value)
            for slot, read in self._fixed_reads:
                entries[slot] = read(entries[slot])
            if head[0] != self._no_nulls:
                nulls = int.from_bytes(head[0], "little")
                if nulls & self._never_null:
                    return self._read_carefully(value)
                for null_bit, slot in self._null_slots:
                    if nulls & null_bit:
                        entries[slot] = None
                        if not is_stored_zero(head[slot], self._zeros[slot]):
                            return self._read_carefully(value)
        except _READ_ERRORS:
            return self._read_carefully(value)
        return dict(zip(self._names, self._pick(entries), strict=True))

    def _read_carefully(self, value: bytes) -> _Row:
        values = [*self._layout.unpack(value, start=self._body_at), *self._constants]
        row: _Row = {}
        for column, at, read in self._columns:
            raw = values[at]
            if raw is None and not column.nullable:
                raise Corruption(
                    f"row has NULL in column {shown(column.name)}, which is never NULL"
                )
            try:
                row[column.name] = raw if raw is None or read is None else read(cast("Raw", raw))
            except Unfit as unfit:
                raise SchemaMismatch(
                    f"column {shown(column.name)}: {unfit.reason}",
                    column=column.name,
                    hint="Read the row as Arrow, which has no such limit",
                ) from unfit
        return row


def _column_reader(
    column: Column, stored: Sequence[StoredField], places: Mapping[int, int]
) -> FromRaw | None:
    at = places[column.field_id]
    if at >= len(stored):
        return None
    return value_reader(stored[at].type, column.type, Domain.PYTHON)


def _quick_reader(stored: pa.DataType, read: FromRaw | None) -> FromRaw | None:
    # One call less in the most common case; the careful way explains errors.
    return cast("FromRaw", bytes.decode) if kind_of(stored) is TypeKind.STRING else read


# The values of a row have no static type before they are checked; a cast would slow down each row.
_Picker: TypeAlias = Callable[[object], tuple[Any, ...]]


def _picker(keys: Sequence[object]) -> _Picker:
    """Return the function that takes these keys out of a row or a list, as a tuple."""
    pick = cast("_Picker", itemgetter(*keys))
    return pick if len(keys) > 1 else lambda row: (pick(row),)


def _too_long(size: int) -> LimitExceeded:
    return LimitExceeded(
        f"row takes {size} bytes or more",
        limit=ROW_BYTES_MAX,
        actual=size,
        hint="Store large values elsewhere and keep their address in the row",
    )
