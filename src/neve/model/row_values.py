"""Values of a row on their way to bytes and back, nested ones included.

A writer turns a Python value into the raw form that `neve.model.row_layout` stores; a reader turns
the raw form of the type a row was written with into a value of the current type: by field id, with
dropped fields left out, later fields as NULL, and numbers widened. Both are built once per schema,
so that no row has to look at types.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Final, cast

import numpy as np
import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    kind_of,
    type_name,
    widens_to,
    with_child_fields,
)
from neve.model.display import shown
from neve.model.row_layout import (
    LENGTH_BYTES,
    BodyLayout,
    MaybeRaw,
    SequenceLayout,
    pack_count,
    unpack_count,
)
from neve.model.scalar_values import FromRaw, Raw, ToRaw, Unfit, scalar_form
from neve.model.schema import Column


class Domain(Enum):
    """The Python values of dates, times, timestamps and uuids, outside rows."""

    # Those of `neve.model.scalar_values`; a value Python cannot hold is Unfit.
    PYTHON = auto()
    # Their raw numbers and bytes, as Arrow stores them: exact and fast.
    STORAGE = auto()
    # As PYTHON, with the raw number where Python cannot hold the value: for display.
    SHOWN = auto()


_STORAGE_TYPES: Final[dict[TypeKind, pa.DataType]] = {
    TypeKind.DATE: pa.int32(),
    TypeKind.TIME: pa.int64(),
    TypeKind.TIMESTAMP: pa.int64(),
    TypeKind.TIMESTAMPTZ: pa.int64(),
    TypeKind.TIMESTAMP_NS: pa.int64(),
    TypeKind.TIMESTAMPTZ_NS: pa.int64(),
    TypeKind.UUID: pa.binary(16),
}


def storage_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the Arrow type of the same memory whose values are those of `Domain.STORAGE`."""
    fields = child_fields(arrow_type)
    if not fields:
        return _STORAGE_TYPES.get(kind_of(arrow_type), arrow_type)
    stored = tuple(each.with_type(storage_type(each.type)) for each in fields)
    return with_child_fields(arrow_type, stored)


def value_writer(arrow_type: pa.DataType, domain: Domain) -> ToRaw:
    """Return the function that turns a value, never None, into its raw form; it raises Unfit."""
    match kind_of(arrow_type):
        case TypeKind.STRUCT:
            return _struct_writer(child_fields(arrow_type), domain)
        case TypeKind.LIST:
            return _list_writer(child_fields(arrow_type)[0], domain)
        case TypeKind.MAP:
            key, item = child_fields(arrow_type)
            return _map_writer(key, item, domain)
        case kind:
            if domain is Domain.STORAGE and kind in _STORAGE_TYPES:
                return _as_is
            return scalar_form(arrow_type).to_raw


def value_reader(stored: pa.DataType, wanted: pa.DataType, domain: Domain) -> FromRaw | None:
    """Return the function from the raw form of `stored` to a value of `wanted`; None: the identity.

    The function raises Corruption, or Unfit in `Domain.PYTHON`. Raises Corruption at once when no
    value of `stored` can be one of `wanted`.
    """
    kind = kind_of(wanted)
    if kind in NESTED_KINDS:
        if kind_of(stored) is not kind:
            raise _unrelated(stored, wanted)
        return _nested_reader(stored, wanted, domain)
    if kind_of(stored) in NESTED_KINDS or not widens_to(stored, wanted):
        raise _unrelated(stored, wanted)
    if domain is Domain.STORAGE and kind in _STORAGE_TYPES:
        return None
    from_raw = scalar_form(stored).from_raw
    return from_raw if from_raw is None or domain is not Domain.SHOWN else _shown(from_raw)


def initial_value(column: Column) -> object:
    """Return a column's value in a row written before the column existed; raises Corruption."""
    if column.initial_default is None and not column.nullable:
        raise Corruption(
            f"row has no column {shown(column.name)}, which is never NULL and has no initial "
            "default",
            hint="The row belongs to another schema, or its bytes were changed",
        )
    return column.initial_default


def _unrelated(stored: pa.DataType, wanted: pa.DataType) -> Corruption:
    return Corruption(
        f"row holds {type_name(stored)} where the schema has {type_name(wanted)}",
        hint="The row belongs to another schema, or its bytes were changed",
    )


def _as_is(value: object) -> Raw:
    return cast("Raw", value)


def _shown(from_raw: FromRaw) -> FromRaw:
    def read(raw: Raw) -> object:
        try:
            return from_raw(raw)
        except Unfit:
            return raw

    return read


def _write_member(write: ToRaw, value: object, field: ArrowField) -> MaybeRaw:
    if value is None:
        if not field.nullable:
            raise Unfit("NULL where none is allowed", path=field.name)
        return None
    try:
        return write(value)
    except Unfit as unfit:
        raise unfit.below(field.name) from None


def _struct_writer(fields: Sequence[ArrowField], domain: Domain) -> ToRaw:
    layout = BodyLayout([each.type for each in fields])
    members = [(each, value_writer(each.type, domain)) for each in fields]
    names = {each.name for each in fields}

    def write(value: object) -> bytes:
        if not isinstance(value, Mapping):
            raise Unfit(f"expected a dict, got {type(value).__name__}")
        if not value.keys() <= names:
            unknown = next(name for name in value if name not in names)
            raise Unfit(f"field {shown(unknown)}, which the column does not have")
        return layout.pack(
            [_write_member(member, value.get(each.name), each) for each, member in members]
        )

    return write


def _sequence_writer(field: ArrowField, domain: Domain) -> Callable[[Iterable[object]], bytes]:
    layout = SequenceLayout(field.type)
    member = value_writer(field.type, domain)

    def write(values: Iterable[object]) -> bytes:
        return layout.pack([_write_member(member, each, field) for each in values])

    return write


def _list_writer(element: ArrowField, domain: Domain) -> ToRaw:
    write_elements = _sequence_writer(element, domain)

    def write(value: object) -> bytes:
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if not isinstance(value, (list, tuple)):
            raise Unfit(f"expected a list, got {type(value).__name__}")
        return pack_count(len(value)) + write_elements(value)

    return write


def _map_writer(key: ArrowField, item: ArrowField, domain: Domain) -> ToRaw:
    write_keys = _sequence_writer(key, domain)
    write_items = _sequence_writer(item, domain)

    def write(value: object) -> bytes:
        pairs = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(pairs, (list, tuple)):
            raise Unfit(f"expected a list of pairs or a dict, got {type(value).__name__}")
        for pair in pairs:
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:  # noqa: PLR2004 - a pair
                raise Unfit("a list whose items are not all pairs of key and value")
        keys = write_keys(pair[0] for pair in pairs)
        return b"".join((pack_count(len(pairs)), keys, write_items(pair[1] for pair in pairs)))

    return write


def _nested_reader(stored: pa.DataType, wanted: pa.DataType, domain: Domain) -> FromRaw:
    stored_fields, wanted_fields = child_fields(stored), child_fields(wanted)
    if pa.types.is_struct(wanted):
        return _struct_reader(stored_fields, wanted_fields, domain)
    for old, new in zip(stored_fields, wanted_fields, strict=True):
        if field_id_of(old) != field_id_of(new):
            raise Corruption(
                f"row holds a {type_name(stored)} with another field id than the schema",
                hint="The row belongs to another schema, or its bytes were changed",
            )
    read = [
        _sequence_reader(old, new, domain)
        for old, new in zip(stored_fields, wanted_fields, strict=True)
    ]
    return _map_reader(*read) if pa.types.is_map(wanted) else _list_reader(*read)


def _read_member(read: FromRaw | None, raw: MaybeRaw, field: ArrowField) -> object:
    if raw is None:
        if not field.nullable:
            raise Corruption(f"row has NULL in {shown(field.name)}, which is never NULL")
        return None
    return raw if read is None else read(raw)


def _struct_reader(
    stored: Sequence[ArrowField], wanted: Sequence[ArrowField], domain: Domain
) -> FromRaw:
    layout = BodyLayout([each.type for each in stored])
    places = {field_id_of(each): at for at, each in enumerate(stored)}
    # One past the last stored value means a field added later.
    members = [
        (
            each,
            places.get(field_id_of(each), len(stored)),
            value_reader(stored[places[field_id_of(each)]].type, each.type, domain)
            if field_id_of(each) in places
            else None,
        )
        for each in wanted
    ]

    def read(raw: Raw) -> dict[str, object]:
        raws = [*layout.unpack(cast("bytes", raw)), None]
        return {each.name: _read_member(member, raws[at], each) for each, at, member in members}

    return read


_SequenceReader = Callable[[bytes, int, int], tuple[list[object], int]]


def _sequence_reader(stored: ArrowField, wanted: ArrowField, domain: Domain) -> _SequenceReader:
    layout = SequenceLayout(stored.type)
    member = value_reader(stored.type, wanted.type, domain)

    def read(value: bytes, start: int, count: int) -> tuple[list[object], int]:
        raws, end = layout.unpack(value, start=start, count=count)
        return [_read_member(member, each, wanted) for each in raws], end

    return read


def _list_reader(read_elements: _SequenceReader) -> FromRaw:
    def read(raw: Raw) -> list[object]:
        value = cast("bytes", raw)
        elements, end = read_elements(value, LENGTH_BYTES, unpack_count(value))
        _check_end(value, end)
        return elements

    return read


def _map_reader(read_keys: _SequenceReader, read_items: _SequenceReader) -> FromRaw:
    def read(raw: Raw) -> list[tuple[object, object]]:
        value = cast("bytes", raw)
        count = unpack_count(value)
        keys, middle = read_keys(value, LENGTH_BYTES, count)
        items, end = read_items(value, middle, count)
        _check_end(value, end)
        return list(zip(keys, items, strict=True))

    return read


def _check_end(value: bytes, end: int) -> None:
    if end != len(value):
        raise Corruption(f"MODEL-30: nested value of {len(value)} bytes describes {end}")
