"""Arrays made to fit a column: cast without loss, rebuilt by field name, checked for NULL.

What fits what, besides a type itself and everything `normalize_type` maps onto it:

    integer → int, long, float, double, decimal       when every value is exact in the target
    float   → int, long, float, double                the same
    decimal → decimal                                 no digit dropped
    binary  → fixed[n]      fixed[n] → binary         every length right
    fixed[16] → uuid
    null    → anything nullable
    list, struct, map → the same, recursively; structs by field name, NULL for missing fields

A misfit raises `Unfit` with the path below the column. Arrow rarely names the row, so bisection
finds the first bad one: when a prefix of the rows fits, so does every shorter prefix.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import SchemaMismatch
from neve.model.arrow_types import (
    FIXED_BYTES_MAX,
    ArrowField,
    TypeKind,
    child_fields,
    kind_of,
    normalize_type,
    type_name,
)
from neve.model.display import shown, shown_type
from neve.model.scalar_values import Unfit
from neve.model.schema_view import ArrowArray


def first_bad_row(rows: int, is_good: Callable[[int], bool]) -> int:
    """Return the first bad row, which must exist; `is_good` checks a prefix of that many rows."""
    good, bad = 0, rows
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_good(middle):
            good = middle
        else:
            bad = middle
    return good


_INTEGERS: Final = frozenset({TypeKind.INT, TypeKind.LONG})
_FLOATS: Final = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_NAIVE: Final = frozenset({TypeKind.TIMESTAMP, TypeKind.TIMESTAMP_NS})
_ZONED: Final = frozenset({TypeKind.TIMESTAMPTZ, TypeKind.TIMESTAMPTZ_NS})
_BYTES: Final = frozenset({TypeKind.BINARY, TypeKind.FIXED})

# Kinds a target accepts besides its own.
_SOURCES: Final[dict[TypeKind, frozenset[TypeKind]]] = {
    TypeKind.INT: _INTEGERS | _FLOATS,
    TypeKind.LONG: _INTEGERS | _FLOATS,
    TypeKind.FLOAT: _INTEGERS | _FLOATS,
    TypeKind.DOUBLE: _INTEGERS | _FLOATS,
    TypeKind.DECIMAL: _INTEGERS,
    TypeKind.TIMESTAMP: _NAIVE,
    TypeKind.TIMESTAMP_NS: _NAIVE,
    TypeKind.TIMESTAMPTZ: _ZONED,
    TypeKind.TIMESTAMPTZ_NS: _ZONED,
    TypeKind.BINARY: _BYTES,
    TypeKind.FIXED: _BYTES,
    TypeKind.UUID: frozenset({TypeKind.FIXED}),
}

# The widest fixed-width value.
_ZERO_BYTES: Final = max(FIXED_BYTES_MAX, 16)

_ARROW_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def fit_column(array: ArrowArray, field: ArrowField) -> ArrowArray:
    """Return the array with the field's exact type, ids included.

    Raises SchemaMismatch naming the column, or the path inside it, and the first bad row.
    """
    try:
        return _fit_foreign(array, field)
    except Unfit as unfit:
        row, first = _first_bad_row(array, field, unfit)
    column = f"{field.name}.{first.path}" if first.path else field.name
    raise SchemaMismatch(
        f"column {shown(column)}: {first.reason}",
        column=column,
        row=row,
        hint=_way_out(array, field, row=row),
    )


def _way_out(array: ArrowArray, field: ArrowField, *, row: int | None) -> str:
    """Return a hint for a bad value, or for a whole column of another type."""
    source = array.type
    if row is not None or not _can_be_cast(array, field.type):
        return f"The column holds {type_name(field.type)}{'' if field.nullable else ', never NULL'}"
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(field.type):
        if source.tz is None:
            return "Set its zone first: pyarrow.compute.assume_timezone(column, 'UTC')"
        return "Drop the zone first: pyarrow.compute.local_timestamp(column)"
    return f"Cast it first: pyarrow.compute.cast(column, {_arrow_words(field.type)})"


def _can_be_cast(array: ArrowArray, wanted: pa.DataType) -> bool:
    """Return whether Arrow can cast between the types at all, even with loss."""
    if pa.types.is_nested(wanted) or isinstance(wanted, pa.BaseExtensionType):
        return False
    try:
        array.slice(0, 0).cast(wanted)
    except _ARROW_REFUSALS:
        return False
    return True


def _arrow_words(arrow_type: pa.DataType) -> str:
    """Name a primitive type as it is written in Python."""
    match arrow_type:
        case pa.Decimal128Type():
            return f"pa.decimal128({arrow_type.precision}, {arrow_type.scale})"
        case pa.TimestampType():
            zone = "" if arrow_type.tz is None else f", {arrow_type.tz!r}"
            return f"pa.timestamp({arrow_type.unit!r}{zone})"
        case _ if pa.types.is_fixed_size_binary(arrow_type):
            return f"pa.binary({arrow_type.byte_width})"
        case _:
            return repr(str(arrow_type))


def nulls(length: int, arrow_type: pa.DataType) -> ArrowArray:
    """Return an array of NULLs whose required child fields hold no NULL."""
    if not pa.types.is_struct(arrow_type):
        return cast("ArrowArray", pa.nulls(length, arrow_type))  # type: ignore[call-overload]
    fields = child_fields(arrow_type)
    children = [nulls(length, each.type) for each in fields]
    filled = [
        child if each.nullable else _filled(child)
        for each, child in zip(fields, children, strict=True)
    ]
    mask = pa.repeat(pa.scalar(value=True), length)
    return pa.StructArray.from_arrays(filled, fields=list(fields), mask=mask)


def empty_rows(schema: pa.Schema) -> pa.Table:
    """Return no rows of a schema; Arrow's own `empty_table` does not know lists of UUIDs."""
    return pa.Table.from_arrays([nulls(0, field.type) for field in schema], schema=schema)


def _fit_foreign(array: ArrowArray, field: ArrowField) -> ArrowArray:
    # Validate foreign memory before any kernel trusts its offsets, texts or decimals.
    try:
        array.validate(full=True)
        return _fit(array, field)
    except _ARROW_REFUSALS as error:
        raise Unfit(shown_type(error)) from error


def _first_bad_row(array: ArrowArray, field: ArrowField, unfit: Unfit) -> tuple[int | None, Unfit]:
    """Return the last row of the shortest prefix that does not fit, and why.

    The row is None when even the empty prefix does not fit: then the types are wrong.
    """

    def finding(length: int) -> Unfit | None:
        try:
            _fit_foreign(array.slice(0, length), field)
        except Unfit as found:
            return found
        return None

    if (found := finding(0)) is not None:
        return None, found
    row = first_bad_row(len(array), lambda length: finding(length) is None)
    return row, finding(row + 1) or unfit


def _fit(array: ArrowArray, field: ArrowField) -> ArrowArray:
    array = _decoded(array)
    if not field.nullable and array.null_count:
        raise _null_refused()
    if pa.types.is_null(array.type):
        return nulls(len(array), field.type)
    source, target = _source_kind(array.type), kind_of(field.type)
    if source is not target and source not in _SOURCES.get(target, frozenset()):
        raise Unfit(f"{shown_type(array.type)} where {type_name(field.type)} is expected")
    match target:
        case TypeKind.STRUCT:
            return _fit_struct(cast("pa.StructArray", array), field.type)
        case TypeKind.MAP:
            return _fit_map(array, field.type)
        case TypeKind.LIST:
            return _fit_list(cast("pa.ListArray[Any]", array), field.type)
        case _:
            return _fit_primitive(array, field.type)


def _source_kind(arrow_type: pa.DataType) -> TypeKind | None:
    """Return the kind an array may be read as; None when a table has no such type."""
    # Unsigned 64-bit columns and the children of nested ones are checked by their values.
    if pa.types.is_uint64(arrow_type):
        return TypeKind.LONG
    if pa.types.is_struct(arrow_type):
        return TypeKind.STRUCT
    if pa.types.is_map(arrow_type):
        return TypeKind.MAP
    if pa.types.is_nested(arrow_type) and not pa.types.is_union(arrow_type):
        return TypeKind.LIST
    try:
        return kind_of(normalize_type(arrow_type, column="source"))
    except SchemaMismatch:
        return None


def _null_refused() -> Unfit:
    return Unfit("NULL where none is allowed")


def _decoded(array: ArrowArray) -> ArrowArray:
    while True:
        if pa.types.is_dictionary(array.type):
            array = _without_views(cast("pa.DictionaryArray[Any, Any]", array)).dictionary_decode()
        elif pa.types.is_run_end_encoded(array.type):
            array = pc.call_function("run_end_decode", [array])
        else:
            return array


def _without_views(array: "pa.DictionaryArray[Any, Any]") -> "pa.DictionaryArray[Any, Any]":
    """Return a dictionary array whose values are not views: Arrow cannot decode those."""
    values = array.dictionary
    if pa.types.is_string_view(values.type):
        return pa.DictionaryArray.from_arrays(array.indices, values.cast(pa.large_string()))
    if pa.types.is_binary_view(values.type):
        return pa.DictionaryArray.from_arrays(array.indices, values.cast(pa.large_binary()))
    return array


def _fit_primitive(array: ArrowArray, wanted: pa.DataType) -> ArrowArray:
    if array.type == wanted:
        return array
    if pa.types.is_decimal128(wanted) and pa.types.is_integer(array.type):
        # Cast through the decimal that holds every integer: a direct cast only checks the types.
        return array.cast(pa.decimal128(20, 0)).cast(wanted)
    fitted = array.cast(wanted)
    if pa.types.is_float32(wanted) and pa.types.is_float64(array.type):
        # Arrow rounds float64 to float32 silently.
        same = pc.or_(pc.equal(fitted.cast(pa.float64()), array), pc.is_nan(array))
        if not pc.all(same, min_count=0).as_py():
            raise Unfit("float64 value that float32 would round; cast it first if that is meant")
    return fitted


def _fit_struct(array: "pa.StructArray", wanted: pa.DataType) -> ArrowArray:
    names = [field.name for field in child_fields(array.type)]
    fields = child_fields(wanted)
    if len(set(names)) != len(names):
        raise Unfit("a struct with two fields of one name")
    unknown = set(names) - {field.name for field in fields}
    if unknown:
        raise Unfit(f"field {shown(min(unknown))}, which the column does not have")
    # Flattened, so that the fields of a NULL struct are NULL, whatever its memory holds.
    children = dict(zip(names, array.flatten(), strict=True))
    fitted = [_fit_child(array, children, field) for field in fields]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fitted, fields=list(fields), mask=mask)


def _fit_child(
    parent: "pa.StructArray", children: dict[str, ArrowArray], field: ArrowField
) -> ArrowArray:
    if field.name not in children:
        if not field.nullable:
            raise Unfit("missing, and never NULL", path=field.name)
        return nulls(len(parent), field.type)
    fitted = _fit_below(children[field.name], field.with_nullable(True), name=field.name)
    if field.nullable or not fitted.null_count:
        return fitted
    if pc.any(pc.and_(fitted.is_null(), parent.is_valid())).as_py():
        raise _null_refused().below(field.name)
    return _filled(fitted)


def _filled(array: ArrowArray) -> ArrowArray:
    """Replace NULL with zeros and empty values.

    Parquet's writer refuses NULL in a required field even where the whole struct is NULL.
    """
    if pa.types.is_struct(array.type):
        struct = cast("pa.StructArray", array)
        children = [struct.field(at) for at in range(struct.type.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(child_fields(array.type)))
    if pa.types.is_list(array.type) or pa.types.is_map(array.type):
        # Just fitted, so its offsets begin at 0 and its NULL lists are empty.
        _, offsets = array.buffers()[:2]
        children = [cast("pa.ListArray[Any]", array).values]
        return pa.Array.from_buffers(array.type, len(array), [None, offsets], children=children)
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, _filled(array.storage))
    # For every remaining type this is a zero or an empty value.
    buffers = [None, pa.py_buffer(bytes(_ZERO_BYTES)), pa.py_buffer(b"")]
    zero = pa.Array.from_buffers(array.type, 1, buffers[: array.type.num_buffers])
    return cast("ArrowArray", array.fill_null(zero[0]))


def _fit_list(array: "pa.ListArray[Any]", wanted: pa.DataType) -> ArrowArray:
    (element,) = child_fields(wanted)
    values = _fit_below(flattened(array), element, name="element")
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(_offsets(array), values, type=wanted, mask=mask)


def _fit_map(array: ArrowArray, wanted: pa.DataType) -> ArrowArray:
    key, value = child_fields(wanted)
    # A map is stored as a list of key-value structs and can only be flattened as one.
    entry = pa.struct(list(child_fields(array.type)))
    entries = cast("pa.ListArray[Any]", array.cast(pa.list_(entry)))
    keys, values = cast("pa.StructArray", flattened(entries)).flatten()
    fitted = pa.MapArray.from_arrays(  # type: ignore[call-overload]
        _offsets(entries),
        _fit_below(keys, key, name="key"),
        _fit_below(values, value, name="value"),
        type=wanted,
        mask=array.is_null() if array.null_count else None,
    )
    return cast("ArrowArray", fitted)


def _fit_below(array: ArrowArray, field: ArrowField, *, name: str) -> ArrowArray:
    try:
        return _fit(array, field)
    except Unfit as unfit:
        raise unfit.below(name) from None
    except _ARROW_REFUSALS as error:
        raise Unfit(shown_type(error), path=name) from error


def flattened(array: "pa.ListArray[Any]") -> ArrowArray:
    """Return the values of all lists, of any type."""
    # Arrow cannot make an empty array of every type, but it can slice one.
    return array.values.slice(0, 0) if array.null_count == len(array) else array.flatten()


def _offsets(array: "pa.ListArray[Any]") -> "pa.Int32Array":
    """Return offsets into the flattened values, which leave out NULL lists."""
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int64()))
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends]).cast(pa.int32())
    return cast("pa.Int32Array", offsets)
