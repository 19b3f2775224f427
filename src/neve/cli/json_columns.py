"""Lines of JSON as columns, read by Arrow where it reads exactly what `neve.cli.json_rows` would.

    JSON of a column          read as                    left to the other way
    boolean, int, string      itself
    float, double             double                     NaN, Infinity, zero with a sign
    decimal                   a wider decimal            too many digits
    date, time, timestamp     text, which is cast        another form than 2024-01-31T22:31:08.5
    uuid, binary, fixed       text, value by value
    list, struct              itself, by these rules     with other types inside
    map                                                  always

None means "read these lines one by one": they are accepted in a form that Arrow does not know,
or there is an error to explain. Arrow does not know a missing member from null, so lines without a
value for a column that has a default, or is never NULL, are left to the other way, too.

JSON-1  Lines that are read here are one object each. Arrow ignores line breaks between tokens. But
        if every line begins with { and ends with }, then a line that ends inside an object would
        be followed by { where JSON has a comma or a bracket. So each line has one object or more,
        and if there are as many objects as lines, each has one.
"""

from collections.abc import Sequence
from operator import methodcaller
from typing import BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.json as pjson

from neve.cli.value_forms import MOMENTS, cast_moments, json_reader
from neve.errors import NeveError
from neve.model.array_fit import fit_column
from neve.model.arrow_types import ArrowField, TypeKind, child_fields, kind_of
from neve.model.exact_columns import exact_column
from neve.model.scalar_values import Unfit
from neve.model.schema import Column, TableSchema
from neve.model.schema_view import ArrowArray

_PLAIN: Final = frozenset({TypeKind.BOOLEAN, TypeKind.INT, TypeKind.LONG, TypeKind.STRING})
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_SPACE: Final = methodcaller("strip", b" \t\r\n")
_BLOCK_BYTES_MIN: Final = 1 << 10


class _Unlike(ValueError):
    """Arrow may have read something else than the other way does."""


_REFUSALS: Final = (pa.ArrowException, NeveError, Unfit, ValueError, OverflowError)


class JsonColumns:
    """Reads lines of one schema, many at a time."""

    def __init__(self, schema: TableSchema, wanted: TableSchema, needed: Sequence[str]) -> None:
        """Take the table's schema, that of the batches, and members that each line must have."""
        self._wanted = wanted
        self._required = {*needed} | {
            column.name
            for column in wanted.columns
            if not column.nullable or column.write_default is not None
        }
        fields = [_field_of(column) for column in schema.columns]
        self._options = (
            None
            if any(field is None for field in fields)
            else pjson.ParseOptions(
                explicit_schema=pa.schema(cast("list[ArrowField]", fields)),
                unexpected_field_behavior="error",
            )
        )

    def read(self, lines: Sequence[bytes]) -> pa.RecordBatch | None:
        """Return the rows of lines, none of them blank; None if they are to be read one by one."""
        if self._options is None:
            return None
        stripped = [*map(_SPACE, lines)]
        block = b"\n".join(stripped)
        if (
            not block.startswith(b"{")
            or not block.endswith(b"}")
            or block.count(b"}\n{") != len(lines) - 1
        ):
            return None
        try:
            block.decode()
            table = pjson.read_json(
                cast("BinaryIO", pa.BufferReader(block)),
                read_options=pjson.ReadOptions(
                    use_threads=False, block_size=max(_BLOCK_BYTES_MIN, len(block) + 1)
                ),
                parse_options=self._options,
            )
            if table.num_rows != len(lines):
                return None
            columns = [self._column(table, column) for column in self._wanted.columns]
        except _REFUSALS:
            return None
        return pa.RecordBatch.from_arrays(columns, schema=self._wanted.arrow_schema)

    def _column(self, table: pa.Table, column: Column) -> ArrowArray:
        array = pa.concat_arrays(table.column(column.name).chunks)
        if array.null_count and column.name in self._required:
            raise _Unlike
        return _converted(array, column)


def _field_of(column: Column) -> "ArrowField | None":
    """Return how Arrow reads a column; None if it cannot."""
    kind = kind_of(column.type)
    if kind is TypeKind.MAP:
        return None
    if kind in {TypeKind.LIST, TypeKind.STRUCT}:
        nested = _nested_type(column.type)
        return None if nested is None else pa.field(column.name, nested)
    if kind in _PLAIN:
        return pa.field(column.name, column.type)
    if isinstance(column.type, pa.Decimal128Type):
        # Arrow moves the point without a check: 76 digits hold whatever it makes of 38.
        wide = pa.decimal256(column.type.precision, column.type.scale)
        return pa.field(column.name, wide)
    return pa.field(column.name, pa.float64() if kind in _FLOATS else pa.string())


def _nested_type(arrow_type: pa.DataType) -> pa.DataType | None:
    kind = kind_of(arrow_type)
    if kind in _PLAIN or kind is TypeKind.DOUBLE:
        return arrow_type
    if kind not in {TypeKind.LIST, TypeKind.STRUCT}:
        return None
    members = [(each.name, _nested_type(each.type)) for each in child_fields(arrow_type)]
    if any(each is None for _, each in members):
        return None
    fields = [pa.field(name, cast("pa.DataType", each)) for name, each in members]
    return pa.list_(fields[0]) if kind is TypeKind.LIST else pa.struct(fields)


def _converted(array: ArrowArray, column: Column) -> ArrowArray:
    """Return what Arrow read as values of the column; raises one of `_REFUSALS`."""
    kind = kind_of(column.type)
    if kind in _PLAIN:
        return array
    if kind in MOMENTS:
        return cast_moments(array, column.type)
    if kind in {TypeKind.UUID, TypeKind.BINARY, TypeKind.FIXED}:
        read = json_reader(column.type)
        texts = cast("list[str | None]", array.to_pylist())
        values = [None if text is None else read(text) for text in texts]
        exact = exact_column(values, column.arrow_field)
        if exact is None:
            raise _Unlike
        return exact
    if kind is TypeKind.DECIMAL:
        array.validate(full=True)
        return cast("ArrowArray", array.cast(column.type))
    _check_numbers(array)
    if kind is TypeKind.FLOAT:
        array = cast("ArrowArray", array.cast(pa.float32(), safe=False))
        _check_numbers(array, is_rounded=True)
    return fit_column(array, column.arrow_field)


def _check_numbers(array: ArrowArray, *, is_rounded: bool = False) -> None:
    """Refuse floats that Arrow accepts as bare words, or that lose the sign of an integer zero."""
    if isinstance(array, pa.StructArray):
        for child in array.flatten():
            _check_numbers(child)
    elif isinstance(array, pa.ListArray):
        _check_numbers(array.flatten())
    elif pa.types.is_floating(array.type):
        numbers = array.drop_null().to_numpy(zero_copy_only=False)
        if not np.isfinite(numbers).all():
            raise _Unlike
        if not is_rounded and np.signbit(numbers[numbers == 0]).any():
            raise _Unlike
