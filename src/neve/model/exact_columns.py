"""Python values as Arrow columns, all at once, where their classes are exactly the expected ones.

`RowCodec.encode` accepts more, see `neve.model.scalar_values`, and knows what is wrong with a row;
it looks at rows one by one. Most rows need neither. What this module accepts it stores as the
codec would, and it raises nothing: for everything else it returns None, and the caller asks the
codec, which accepts the rows or explains the error.

    dict, with no class derived from it    rows and structs; a column may be missing
    the class in `scalar_values`           no NumPy values, no subclasses, no int for a float
    list; list of tuples or dict           lists; maps
"""

import datetime as dt
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import NeveError
from neve.model.array_fit import fit_column
from neve.model.arrow_types import ArrowField, TypeKind, child_fields, kind_of
from neve.model.scalar_values import PYTHON_MICROSECONDS, scalar_form
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray

_NONE: Final = type(None)
_PAIR: Final = 2
# These answer `utcoffset` from the moment alone, as Arrow assumes.
_ZONES: Final = frozenset({dt.timezone, ZoneInfo})
_REFUSALS: Final = (
    pa.ArrowException,
    NeveError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
)

_Values = list[Any]


class _Inexact(ValueError):
    """The codec has to look at these values."""


def exact_batch(rows: Sequence[object], schema: TableSchema) -> pa.RecordBatch | None:
    """Return rows as a batch that has exactly the schema; None if the codec has to look at them."""
    if {*map(type, rows)} != {dict}:
        return None
    dicts = cast("Sequence[dict[str, object]]", rows)
    try:
        columns = _picked(dicts, {column.name: column.write_default for column in schema.columns})
        arrays = [
            _column(values, arrow_field)
            for values, arrow_field in zip(columns, schema.arrow_schema, strict=True)
        ]
    except _REFUSALS:
        return None
    return pa.RecordBatch.from_arrays(arrays, schema=schema.arrow_schema)


def exact_column(values: _Values, arrow_field: ArrowField) -> "ArrowArray | None":
    """Return values as an array of exactly the type; None if the codec has to look at them."""
    try:
        return _column(values, arrow_field)
    except _REFUSALS:
        return None


def _column(values: _Values, arrow_field: ArrowField) -> ArrowArray:
    array = _array(values, arrow_field)
    return array if array.type == arrow_field.type else fit_column(array, arrow_field)


def _picked(rows: Sequence[dict[str, object]], defaults: dict[str, object]) -> list[_Values]:
    """Return the values of rows by column; raises _Inexact for a column that is not known."""
    if sum(map(len, rows)) == len(defaults) * len(rows):
        try:
            return [[*map(itemgetter(name), rows)] for name in defaults]
        except KeyError:
            pass
    if not set().union(*rows) <= defaults.keys():
        raise _Inexact
    return [[row.get(name, default) for row in rows] for name, default in defaults.items()]


def _array(values: _Values, arrow_field: ArrowField) -> ArrowArray:
    """Return values as an array; nested ones may lack field ids. Raises one of `_REFUSALS`."""
    arrow_type = arrow_field.type
    kind = kind_of(arrow_type)
    classes = {*map(type, values)}
    has_null = _NONE in classes
    if has_null and not arrow_field.nullable:
        raise _Inexact
    classes.discard(_NONE)
    match kind:
        case TypeKind.LIST:
            _check_classes(classes, {list})
            (element,) = child_fields(arrow_type)
            return _list_array(values, lambda flat: _array(flat, element), has_null=has_null)
        case TypeKind.MAP:
            return _map_array(values, classes, arrow_type, has_null=has_null)
        case TypeKind.STRUCT:
            _check_classes(classes, {dict})
            return _struct_array(values, child_fields(arrow_type), has_null=has_null)
        case _:
            _check_classes(classes, {scalar_form(arrow_type).python_type})
            return _scalar_array(values, arrow_type, kind, has_null=has_null)


def _check_classes(found: set[type], expected: set[type]) -> None:
    if not found <= expected:
        raise _Inexact


def _scalar_array(
    values: _Values, arrow_type: pa.DataType, kind: TypeKind, *, has_null: bool
) -> ArrowArray:
    known = [each for each in values if each is not None] if has_null else values
    match kind:
        case TypeKind.FLOAT:
            return _rounded(_made(values, pa.float64()), arrow_type)
        case TypeKind.UUID:
            contents = [each and each.bytes for each in cast("list[UUID | None]", values)]
            storage = _made(contents, pa.binary(16))
            return pa.ExtensionArray.from_storage(cast("pa.UuidType", arrow_type), storage)
        case TypeKind.TIMESTAMP_NS | TypeKind.TIMESTAMPTZ_NS:
            return cast("ArrowArray", _made(values, pa.int64()).view(arrow_type))
        case TypeKind.TIME | TypeKind.TIMESTAMP:
            if not {*map(attrgetter("tzinfo"), known)} <= {None}:
                raise _Inexact
        case TypeKind.TIMESTAMPTZ:
            if not {*map(type, map(attrgetter("tzinfo"), known))} <= _ZONES:
                raise _Inexact
            return _within_python_years(_made(values, arrow_type))
        case TypeKind.DECIMAL:
            made = _made(values, arrow_type)
            if made.null_count != len(values) - len(known):
                raise _Inexact  # Arrow takes a decimal that is not a number for NULL
            return made
        case _:
            pass
    return _made(values, arrow_type)


def _made(values: _Values, arrow_type: pa.DataType) -> ArrowArray:
    made: object = pa.array(values, arrow_type)
    if isinstance(made, pa.ChunkedArray):
        raise _Inexact  # more than 2 GiB of text
    return cast("ArrowArray", made)


def _rounded(doubles: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    """Round to float32; raises _Inexact for a number outside its range."""
    rounded = cast("ArrowArray", doubles.cast(arrow_type, safe=False))
    if pc.equal(pc.is_inf(rounded), pc.is_inf(doubles)).false_count:
        raise _Inexact
    return rounded


def _within_python_years(moments: ArrowArray) -> ArrowArray:
    """Check moments near the first and the last year, which a zone may move out of them."""
    first, last = PYTHON_MICROSECONDS
    ends = cast("dict[str, int | None]", pc.min_max(moments.view(pa.int64())).as_py())
    low, high = ends["min"], ends["max"]
    if low is not None and high is not None and not first <= low <= high <= last:
        raise _Inexact
    return moments


def _list_array(
    values: _Values, made: Callable[[_Values], ArrowArray], *, has_null: bool
) -> ArrowArray:
    full = [each or () for each in values]
    ends = pc.cumulative_sum(pa.array([0, *map(len, full)], pa.int64()))
    offsets = cast("pa.Int32Array", ends.cast(pa.int32()))
    mask = pa.array([each is None for each in values]) if has_null else None
    flat = made([*chain.from_iterable(full)])
    return cast("ArrowArray", pa.ListArray.from_arrays(offsets, flat, mask=mask))


def _map_array(
    values: _Values, classes: set[type], arrow_type: pa.DataType, *, has_null: bool
) -> ArrowArray:
    if classes == {dict}:
        values = [None if each is None else [*each.items()] for each in values]
    elif not classes <= {list}:
        raise _Inexact
    key, item = child_fields(arrow_type)

    def made(pairs: _Values) -> ArrowArray:
        if not ({*map(type, pairs)} <= {tuple} and {*map(len, pairs)} <= {_PAIR}):
            raise _Inexact
        columns = [
            _array([pair[at] for pair in pairs], each) for at, each in enumerate((key, item))
        ]
        fields = [
            pa.field(each.name, column.type, nullable=each.nullable)
            for each, column in zip((key, item), columns, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=fields)

    entries = cast("pa.ListArray[Any]", _list_array(values, made, has_null=has_null))
    keys, items = cast("pa.StructArray", entries.values).flatten()
    mask = entries.is_null() if has_null else None
    made_map = pa.MapArray.from_arrays(entries.offsets, keys, items, mask=mask)  # type: ignore[call-overload]
    return cast("ArrowArray", made_map)


def _struct_array(values: _Values, fields: Sequence[ArrowField], *, has_null: bool) -> ArrowArray:
    rows = [{} if each is None else each for each in values] if has_null else values
    columns = _picked(rows, dict.fromkeys([each.name for each in fields]))
    arrays = [_array(column, each) for column, each in zip(columns, fields, strict=True)]
    made_fields = [
        pa.field(each.name, array.type, nullable=each.nullable)
        for each, array in zip(fields, arrays, strict=True)
    ]
    mask = pa.array([each is None for each in values]) if has_null else None
    return pa.StructArray.from_arrays(arrays, fields=made_fields, mask=mask)
