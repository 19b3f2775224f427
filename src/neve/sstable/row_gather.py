"""Rows of many batches of one schema, taken together.

Taking from each batch makes an Arrow array per batch and column, which costs more than the rows.
Here each column is filled once, batch after batch:

    values of fixed width    copied by NumPy to their places in one array
    texts and binaries       become Arrow's views into the batches, whose cast copies each value
    others                   taken from each batch, then joined

    view of up to 12 bytes   ┌ length i32 │ the value                           ┐
    view of more             ┌ length i32 │ 0 u32 │ number of the batch │ offset ┐

The compiled kernel copies each value once, to the place that the caller wants it at.

SSTABLE-30  The rows are those of `RecordBatch.take`, in the order of the places.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.kernel import is_compiled, kernel
from neve.model.arrow_buffers import flag_array, position_array
from neve.model.schema_view import ArrowArray

Places: TypeAlias = npt.NDArray[np.int64]
Part: TypeAlias = "tuple[GatherSource, Places]"
"""A batch, and the rows that are taken from it."""

# Arrow takes from so many batches in the time that this takes to begin.
_FEW: Final = 12
_INLINE_BYTES: Final = 12
_INLINE: Final = np.arange(_INLINE_BYTES)
_NO_BYTE: Final = np.zeros(1, np.uint8)
_VIEW_NUMBERS: Final = 4
_EMPTY: Final = pa.py_buffer(b"")
_VIEWS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.string(): pa.string_view(),
    pa.binary(): pa.binary_view(),
}
_ARRAY_BYTES_MAX: Final = (1 << 31) - 1
# Decoded groups that rows are taken from at once have about so many bytes at most.
_HELD_BYTES_MAX: Final = 128 << 20


class _Column:
    """The memory of one column of a batch, as NumPy sees it."""

    __slots__ = ("bits", "buffer", "cells", "content", "first")

    def __init__(self, array: ArrowArray, width: int) -> None:
        """Take a column of values with so many bytes; 0 for texts and binaries."""
        buffers = array.buffers()
        self.first = array.offset
        validity = buffers[0] if array.null_count else None
        self.bits = None if validity is None else np.frombuffer(memoryview(validity), np.uint8)
        kind: npt.DTypeLike = f"V{width}" if width else np.int32
        cells = np.frombuffer(memoryview(buffers[1] or _EMPTY), np.uint8)
        size = np.dtype(kind).itemsize
        # Arrow may pad the buffer, and omits the offsets of an empty array.
        count = max(0, min(len(array) + (not width), len(cells) // size - self.first))
        self.cells = cells[self.first * size : (self.first + count) * size].view(kind)
        self.buffer = _EMPTY if width else buffers[2] or _EMPTY
        self.content = np.frombuffer(memoryview(self.buffer), np.uint8)


_ColumnPart: TypeAlias = tuple[_Column, Places]


class GatherSource:
    """A batch that rows are taken from; safe for many threads: what is made twice is the same."""

    __slots__ = ("_columns", "batch", "byte_count")

    def __init__(self, batch: pa.RecordBatch, byte_count: int = 0) -> None:
        """Take a batch that holds so many bytes of memory; none when it is mapped."""
        self.batch: Final = batch
        self.byte_count: Final = byte_count
        self._columns: dict[str, _Column] = {}

    def column(self, name: str, width: int) -> _Column:
        """Return the memory of a column."""
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = _Column(self.batch.column(name), width)
        return found


class Gather:
    """Rows of one schema that are taken from batches of one file or of several."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: list[Part] = []
        self._tables: list[pa.Table] = []
        self._held = 0

    @property
    def names(self) -> list[str]:
        """The columns of the rows."""
        return self._schema.names

    def add(self, source: GatherSource, places: Places) -> None:
        """Take some rows of a batch, after all rows before."""
        self._parts.append((source, places))
        self._held += source.byte_count
        # The cache may be too small for all groups: then they are in memory only here.
        if self._held > _HELD_BYTES_MAX:
            self._tables.append(gathered(self._parts, self._schema))
            self._parts, self._held = [], 0

    def result(self) -> pa.Table:
        """Return the rows in the order in which they were added."""
        if self._parts or not self._tables:
            self._tables.append(gathered(self._parts, self._schema))
            self._parts = []
        return self._tables[0] if len(self._tables) == 1 else pa.concat_tables(self._tables)

    def result_by(self, places: Places) -> tuple[pa.Table, Places]:
        """Return the rows, and the place of each: ascending where the kernel can do that.

        `places` are those of the rows in the order in which they were added, none of them twice.
        """
        if is_compiled and not self._tables and all(map(_is_in_buffers, self._schema.types)):
            order = np.argsort(places)
            targets = np.empty(len(order), np.int64)
            targets[order] = np.arange(len(order))
            columns = [_compiled_column(self._parts, field, targets) for field in self._schema]
            if all(column is not None for column in columns):
                return pa.table(columns, schema=self._schema), places[order]
        return self.result(), places


def gathered(parts: Sequence[Part], schema: pa.Schema) -> pa.Table:
    """Return the rows of all parts with the columns of a schema, in their order."""
    if len(parts) <= _FEW:
        return pa.Table.from_batches(
            [source.batch.select(schema.names).take(position_array(at)) for source, at in parts],
            schema,
        )
    return pa.table([_gathered_column(parts, field) for field in schema], schema=schema)


def _is_in_buffers(kind: pa.DataType) -> bool:
    """Whether the kernel can take values: of a width in bytes, texts and binaries."""
    stored = kind.storage_type if isinstance(kind, pa.UuidType) else kind
    return _width(stored) > 0 or stored in _VIEWS


def _compiled_column(
    parts: Sequence[Part], field: "pa.Field[Any]", targets: Places
) -> "ArrowArray | None":
    """Return the values of a column by their targets; None when one array cannot hold them."""
    wanted = field.type
    kind: pa.DataType = wanted.storage_type if isinstance(wanted, pa.UuidType) else wanted
    width = _width(kind)
    taken = []
    for source, places in parts:
        column = source.column(field.name, width)
        texts = None if width else column.content
        taken.append((column.cells, texts, column.bits, column.first, places))
    made = kernel.gather(width, taken, targets)
    if made is None:
        return None
    cells, content, bits = made
    buffers = [None if bits is None else pa.py_buffer(bits), pa.py_buffer(cells)]
    if content is not None:
        buffers.append(pa.py_buffer(content))
    values: ArrowArray = pa.Array.from_buffers(kind, len(targets), buffers)
    if not isinstance(wanted, pa.UuidType):
        return values
    return pa.ExtensionArray.from_storage(wanted, values)


def _gathered_column(
    parts: Sequence[Part], field: "pa.Field[Any]"
) -> "ArrowArray | pa.ChunkedArray[Any]":
    wanted = field.type
    kind: pa.DataType = wanted.storage_type if isinstance(wanted, pa.UuidType) else wanted
    values: ArrowArray | None = None
    width = _width(kind)
    if width:
        values = _fixed([(source.column(field.name, width), at) for source, at in parts], kind)
    elif kind in _VIEWS:
        values = _texts([(source.column(field.name, 0), at) for source, at in parts], kind)
    if values is None:
        return pa.chunked_array(
            [source.batch.column(field.name).take(position_array(at)) for source, at in parts]
        )
    if not isinstance(wanted, pa.UuidType):
        return values
    return pa.ExtensionArray.from_storage(wanted, values)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value that lies in one buffer; 0 for others."""
    is_plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind)
    if is_plain or pa.types.is_fixed_size_binary(kind):
        # A boolean is a bit.
        return kind.bit_width // 8
    return 0


def _fixed(sources: Sequence[_ColumnPart], kind: pa.DataType) -> ArrowArray:
    cells = np.concatenate([column.cells.take(places) for column, places in sources])
    buffers = [_validity(sources), pa.py_buffer(cells.view(np.uint8).data)]
    return pa.Array.from_buffers(kind, len(cells), buffers)


def _validity(sources: Sequence[_ColumnPart]) -> pa.Buffer | None:
    """Return the bits of the values that are there; None when all are."""
    if all(column.bits is None for column, _ in sources):
        return None
    flags = []
    for column, places in sources:
        if column.bits is None:
            flags.append(np.ones(len(places), np.bool_))
        else:
            at = places + column.first
            flags.append((column.bits[at >> 3] >> (at & 7).astype(np.uint8) & 1).astype(np.bool_))
    return flag_array(np.concatenate(flags)).buffers()[1]


def _texts(sources: Sequence[_ColumnPart], kind: pa.DataType) -> "ArrowArray | None":
    """Return texts or binaries; None when one array cannot hold them."""
    starts = np.concatenate([column.cells.take(places) for column, places in sources])
    ends = np.concatenate([column.cells[1:].take(places) for column, places in sources])
    lengths = ends - starts
    if int(lengths.sum(dtype=np.int64)) > _ARRAY_BYTES_MAX:
        return None
    nth = np.repeat(np.arange(len(sources)), [len(places) for _, places in sources])
    views = np.zeros((len(starts), _VIEW_NUMBERS), np.int32)
    views[:, 0], views[:, 2], views[:, 3] = lengths, nth, starts
    inline = views.view(np.uint8)[:, 4:]
    short = np.flatnonzero(lengths <= _INLINE_BYTES)
    cuts = np.searchsorted(nth[short], np.arange(len(sources) + 1)).tolist()
    for (column, _), (start, stop) in zip(sources, pairwise(cuts), strict=True):
        if start < stop:
            own = short[start:stop]
            # Bytes after a value are not looked at, so any will do.
            at = starts[own, None] + _INLINE
            content = column.content if len(column.content) else _NO_BYTE
            inline[own] = content.take(at, mode="clip")
    buffers = [
        _validity(sources),
        pa.py_buffer(views.data),
        *(column.buffer for column, _ in sources),
    ]
    viewed: ArrowArray = pa.Array.from_buffers(_VIEWS[kind], len(views), buffers)
    return viewed.cast(kind)
