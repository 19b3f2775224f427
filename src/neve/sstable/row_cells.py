"""RowCells: single rows of an Arrow batch as Python dicts, read straight from the batch's memory.

Arrow makes an object for each cell; here a batch is bound once, which returns a function from row
number to dict that reads values straight from the buffers:

1. Each column becomes a getter over memoryviews of its buffers, cut to the rows of the batch.
2. For a column with NULLs, the getter first checks the validity bitmap.
3. The row function calls all getters and pairs the values with the names.

SSTABLE-27  The row is what `RowCodec.decode` returns for the same row of `RowCodec.encode_batch`:
    the same Python values, or the same error.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, cast

import pyarrow as pa

from neve.errors import Corruption, SchemaMismatch
from neve.kernel import is_compiled, kernel
from neve.keys.columns import ArrowArray
from neve.model.arrow_types import NESTED_KINDS, TypeKind, kind_of
from neve.model.display import shown
from neve.model.row_values import Domain, storage_type, value_reader, value_writer
from neve.model.scalar_values import FromRaw, ToRaw, Unfit, raw_kind, scalar_form
from neve.model.schema import Column, TableSchema

Row: TypeAlias = dict[str, object]
RowGetter: TypeAlias = Callable[[int], Row]
_Getter: TypeAlias = Callable[[int], object]
_Parts: TypeAlias = tuple[
    str,
    str,
    int,
    int,
    Callable[..., object] | None,
    pa.Buffer | None,
    pa.Buffer | None,
    pa.Buffer | None,
]

# How the struct module and memoryviews name the numbers that Arrow stores.
_NUMBER_FORMATS: Final = frozenset("iqfd")
_OFFSET_BYTES: Final = 4
# Booleans and texts, which the compiled kernel reads to the end.
_KERNEL_READS: Final = frozenset("?t")
_EMPTY: Final = memoryview(b"")


class RowCells:
    """Reads rows of batches that have exactly one schema; safe for many threads."""

    __slots__ = ("_columns", "_names")

    def __init__(self, schema: TableSchema) -> None:
        self._names: Final = tuple(column.name for column in schema.columns)
        self._columns: Final = tuple(_ColumnCells(column) for column in schema.columns)

    def row(self, batch: pa.RecordBatch, i: int) -> Row:
        """Return one row; to read several of one batch, bind it."""
        return self.bind(batch)(i)

    def bind(self, batch: pa.RecordBatch) -> RowGetter:
        """Return the function from row number to row; the batch lives as long as it does.

        The function raises SchemaMismatch for a date or timestamp that Python cannot hold, and
        Corruption for a value its type forbids.
        """
        assert len(batch.columns) == len(self._columns), "a batch of another schema"
        if is_compiled:
            columns = [
                cells.parts(name, array)
                for name, cells, array in zip(
                    self._names, self._columns, batch.columns, strict=True
                )
            ]
            try:
                return kernel.BatchRows(
                    batch.num_rows, columns, partial(self._row, batch), (ValueError,)
                ).row
            except ValueError:
                pass  # Arrow omitted something that it need not have
        return self.bind_in_python(batch)

    def _row(self, batch: pa.RecordBatch, i: int) -> Row:
        return self.bind_in_python(batch)(i)

    def bind_in_python(self, batch: pa.RecordBatch) -> RowGetter:
        """Return what `bind` does, without the compiled kernel."""
        getters = [
            (name, cells.getter(array))
            for name, cells, array in zip(self._names, self._columns, batch.columns, strict=True)
        ]

        def row(i: int) -> Row:
            try:
                return {name: get(i) for name, get in getters}
            except ValueError:
                return careful_row(i)

        def careful_row(i: int) -> Row:
            # Find the bad column, which the quick way does not know.
            return {name: _checked(name, get, i) for name, get in getters}

        return row


def _checked(name: str, get: _Getter, i: int) -> object:
    try:
        return get(i)
    except Unfit as unfit:
        raise SchemaMismatch(
            f"column {shown(name)}: {unfit.reason}",
            column=name,
            hint="Read the row as Arrow, which has no such limit",
        ) from unfit
    except UnicodeDecodeError as error:
        raise Corruption(
            f"column {shown(name)}: text stored with bad UTF-8 at byte {error.start}"
        ) from error


class _ColumnCells:
    """Makes getters for one column."""

    __slots__ = ("_kind", "_number_format", "_read", "_stored", "_type", "_width", "_write")

    def __init__(self, column: Column) -> None:
        self._type: Final = column.type
        self._kind: Final = kind_of(column.type)
        is_nested = self._kind in NESTED_KINDS
        code = None if is_nested else scalar_form(column.type).struct_code
        self._number_format: Final = code if code in _NUMBER_FORMATS else None
        self._width: Final = 0 if is_nested else scalar_form(column.type).width
        self._read: Final = value_reader(column.type, column.type, Domain.PYTHON)
        # Nested values go through the codec: to its bytes and back.
        self._stored: Final = storage_type(column.type)
        self._write: Final = value_writer(column.type, Domain.STORAGE) if is_nested else None

    def parts(self, name: str, array: ArrowArray) -> _Parts:
        """Return the column as the compiled kernel takes it."""
        assert array.type == self._type, "a batch of another schema"
        if self._write is not None:
            return name, "o", 0, 0, self._value_getter(array), None, None, None
        kind, width = raw_kind(self._type)
        read = None if kind in _KERNEL_READS else self._read
        # Those of fixed width have no content.
        validity, cells, content = [*array.buffers(), None][:3]
        validity = validity if array.null_count else None
        return name, kind, width, array.offset, read, validity, cells, content

    def getter(self, array: ArrowArray) -> _Getter:
        """Return the function from row number to value."""
        assert array.type == self._type, "a batch of another schema"
        get = self._value_getter(array)
        if not array.null_count or self._write is not None:
            return get
        return _or_null(get, _bytes_of(array, 0), array.offset)

    def _value_getter(self, array: ArrowArray) -> _Getter:
        first, count = array.offset, len(array)
        if self._write is not None:
            assert self._read is not None
            return _nested(array.view(self._stored), self._write, self._read)
        if self._kind is TypeKind.BOOLEAN:
            return _bits(_bytes_of(array, 1), first)
        if self._kind in {TypeKind.STRING, TypeKind.BINARY}:
            start, end = first * _OFFSET_BYTES, (first + count + 1) * _OFFSET_BYTES
            # Arrow may omit the offsets of an empty array.
            offsets = _bytes_of(array, 1)[start:end].cast("i")
            values = _bytes_of(array, 2)
            return (_texts if self._kind is TypeKind.STRING else _binaries)(offsets, values)
        width = self._width
        cells = _bytes_of(array, 1)[first * width : (first + count) * width]
        if self._number_format is None:
            return _fixed(cells, width, self._read)
        # mypy knows the formats of memoryviews only where they are written out.
        numbers = cells.cast(self._number_format)  # type: ignore[call-overload]
        return _numbers(numbers, self._read)


def _bytes_of(array: ArrowArray, nth: int) -> memoryview:
    buffer = array.buffers()[nth]
    return _EMPTY if buffer is None else memoryview(buffer).cast("B")


def _or_null(get: _Getter, validity: memoryview, first: int) -> _Getter:
    def cell(i: int) -> object:
        at = first + i
        return get(i) if validity[at >> 3] >> (at & 7) & 1 else None

    return cell


def _numbers(numbers: "memoryview[int]", read: FromRaw | None) -> _Getter:
    if read is None:
        return numbers.__getitem__
    return lambda i: read(numbers[i])


def _bits(bits: memoryview, first: int) -> _Getter:
    def cell(i: int) -> bool:
        at = first + i
        return bits[at >> 3] >> (at & 7) & 1 == 1

    return cell


def _texts(offsets: "memoryview[int]", values: memoryview) -> _Getter:
    return lambda i: values[offsets[i] : offsets[i + 1]].tobytes().decode()


def _binaries(offsets: "memoryview[int]", values: memoryview) -> _Getter:
    return lambda i: values[offsets[i] : offsets[i + 1]].tobytes()


def _fixed(cells: memoryview, width: int, read: FromRaw | None) -> _Getter:
    if read is None:
        return lambda i: cells[i * width : (i + 1) * width].tobytes()
    return lambda i: read(cells[i * width : (i + 1) * width].tobytes())


def _nested(stored: ArrowArray, write: ToRaw, read: FromRaw) -> _Getter:
    def cell(i: int) -> object:
        value = cast("object", stored[i].as_py())
        return None if value is None else read(write(value))

    return cell
