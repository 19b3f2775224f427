"""Byte layout of one row: the ids and types of its fields, then their values.

Everything is little-endian; a varint is unsigned LEB128 of at most 32 bits in its shortest form.

    row
    ┌────────────┬──────────────────────┬──────┐
    │ version u8 │ fields               │ body │
    └────────────┴──────────────────────┴──────┘
      1            the same bytes for every row of one schema

    fields    varint count, then count × field
    field     varint field id, type
    type      kind u8   1 boolean  2 int  3 long  4 float  5 double  6 decimal  7 date  8 time
                        9 timestamp  10 timestamptz  11 timestamp_ns  12 timestamptz_ns
                        13 string  14 binary  15 fixed  16 uuid  17 list  18 struct  19 map
              then for decimal: precision u8, scale u8     fixed: varint width
                       list: field   map: key field, value field   struct: fields

    body of n fields: a row, or one struct value
    ┌───────────────────┬──────────────────────┬───────────────────────┬──────────────────────┐
    │ null bitmap ⌈n/8⌉ │ fixed-width values   │ u32 length of each    │ variable-width bytes │
    │                   │ in field order       │ variable-width value  │ in field order       │
    └───────────────────┴──────────────────────┴───────────────────────┴──────────────────────┘

    list      u32 count, then a sequence
    map       u32 count, then a sequence of keys and a sequence of values
    sequence  null bitmap ⌈count/8⌉, then count fixed-width values, or count × u32 length and the
              bytes of each: a column of its own

Fixed widths: boolean 1, int and date and float 4, decimal and uuid 16, fixed[n] n, the others 8;
`neve.model.scalar_values` says how a value becomes that. Strings, binaries and nested values vary.

MODEL-28  Bit i of a bitmap, lowest first, is set when value i is NULL. Bits past the last value are
          zero.
MODEL-29  Where a value is NULL its fixed bytes are zero, or its length is zero.
MODEL-30  A body ends exactly where its last value does.
MODEL-31  A row has no checksum: its container protects it. Breaking these rules is Corruption; no
          more is allocated than the given bytes cover.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import (
    DECIMAL_DIGITS_MAX,
    FIXED_BYTES_MAX,
    NESTED_KINDS,
    NESTING_MAX,
    PLAIN_TYPES,
    ArrowField,
    TypeKind,
    child_fields,
    field_id_of,
    field_metadata,
    kind_of,
)
from neve.model.field_ids import FIELD_ID_MAX, FIELDS_MAX
from neve.model.scalar_values import Raw, scalar_form
from neve.model.varint import encode_varint, read_varint

ROW_VERSION: Final = 1

# On disk: never change, only add.
KIND_CODES: Final[dict[TypeKind, int]] = {
    TypeKind.BOOLEAN: 1,
    TypeKind.INT: 2,
    TypeKind.LONG: 3,
    TypeKind.FLOAT: 4,
    TypeKind.DOUBLE: 5,
    TypeKind.DECIMAL: 6,
    TypeKind.DATE: 7,
    TypeKind.TIME: 8,
    TypeKind.TIMESTAMP: 9,
    TypeKind.TIMESTAMPTZ: 10,
    TypeKind.TIMESTAMP_NS: 11,
    TypeKind.TIMESTAMPTZ_NS: 12,
    TypeKind.STRING: 13,
    TypeKind.BINARY: 14,
    TypeKind.FIXED: 15,
    TypeKind.UUID: 16,
    TypeKind.LIST: 17,
    TypeKind.STRUCT: 18,
    TypeKind.MAP: 19,
}
_KINDS: Final = {code: kind for kind, code in KIND_CODES.items()}

_COUNT: Final = struct.Struct("<I")
LENGTH_BYTES: Final = 4

MaybeRaw: TypeAlias = Raw | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredField:
    """A field as a row describes it; names inside nested types are ids: rows have no names."""

    field_id: int
    type: pa.DataType


def fixed_code(arrow_type: pa.DataType) -> str | None:
    """Code for the struct module of a fixed-width type; None when the width varies."""
    return None if kind_of(arrow_type) in NESTED_KINDS else scalar_form(arrow_type).struct_code


def is_stored_zero(raw: Raw, zero: Raw) -> bool:
    """Return whether a raw value is stored as zero bytes; −0.0 equals zero but is not."""
    return raw == zero and (not isinstance(raw, float) or math.copysign(1.0, raw) > 0)


class BodyLayout:
    """Where each value of a body lies, for one list of types.

    The head is everything before the variable-width bytes; unpacked it is the bitmap, then one
    entry per field: fixed-width ones first, then the lengths of the others.
    """

    __slots__ = ("bitmap_bytes", "count", "fixed", "head", "no_nulls", "variable", "zeros")

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        codes = [fixed_code(each) for each in types]
        self.count: Final = len(codes)
        self.bitmap_bytes: Final = (len(codes) + 7) // 8
        self.fixed: Final = tuple(at for at, code in enumerate(codes) if code is not None)
        self.variable: Final = tuple(at for at, code in enumerate(codes) if code is None)
        fixed_codes = "".join(code for code in codes if code is not None)
        lengths = "I" * len(self.variable)
        self.head: Final = struct.Struct(f"<{self.bitmap_bytes}s{fixed_codes}{lengths}")
        self.no_nulls: Final = bytes(self.bitmap_bytes)
        self.zeros: Final = self.head.unpack(bytes(self.head.size))[1:]

    def pack(self, raws: Sequence[MaybeRaw]) -> bytes:
        """Write raw values, given in field order, as a body."""
        nulls = sum(1 << at for at, raw in enumerate(raws) if raw is None)
        pieces = [cast("bytes", raws[at] or b"") for at in self.variable]
        values = [
            zero if raws[at] is None else raws[at]
            for at, zero in zip(self.fixed, self.zeros, strict=False)
        ]
        bitmap = nulls.to_bytes(self.bitmap_bytes, "little")
        return b"".join((self.head.pack(bitmap, *values, *map(len, pieces)), *pieces))

    def unpack(self, value: bytes, *, start: int = 0) -> list[MaybeRaw]:
        """Read the body from `start` to the end: raw values in field order; raises Corruption."""
        try:
            bitmap, *entries = self.head.unpack_from(value, start)
        except struct.error as error:
            raise Corruption("row ends inside its fixed-width values") from error
        nulls = int.from_bytes(bitmap, "little")
        if nulls >> self.count:
            raise Corruption("MODEL-28: row has NULL bits for fields it does not have")
        raws: list[MaybeRaw] = [None] * self.count
        for at, raw, zero in zip(self.fixed, entries, self.zeros, strict=False):
            if not nulls >> at & 1:
                raws[at] = raw
            elif not is_stored_zero(raw, zero):
                raise Corruption("MODEL-29: row has bytes where it says NULL")
        end = start + self.head.size
        for at, length in zip(self.variable, entries[len(self.fixed) :], strict=True):
            if not nulls >> at & 1:
                raws[at] = value[end : end + length]
            elif length:
                raise Corruption("MODEL-29: row has bytes where it says NULL")
            end += length
        if end != len(value):
            raise Corruption(f"MODEL-30: row of {len(value)} bytes describes {end}")
        return raws


class SequenceLayout:
    """The layout of consecutive values of one type: a list, or one side of a map."""

    __slots__ = ("_code", "_width", "_zero")

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._code: Final = fixed_code(arrow_type)
        self._width: Final = (
            LENGTH_BYTES if self._code is None else struct.calcsize(f"<{self._code}")
        )
        self._zero: Final[Raw] = self._entries(bytes(self._width), at=0, count=1)[0]

    def pack(self, raws: Sequence[MaybeRaw]) -> bytes:
        """Write raw values."""
        bitmap = bytearray((len(raws) + 7) // 8)
        # A loop over the values of one list, which are Python objects already.
        for at, raw in enumerate(raws):
            if raw is None:
                bitmap[at >> 3] |= 1 << (at & 7)
        if self._code is None:
            pieces = [cast("bytes", raw or b"") for raw in raws]
            lengths = struct.pack(f"<{len(pieces)}I", *map(len, pieces))
            return b"".join((bitmap, lengths, *pieces))
        values = [self._zero if raw is None else raw for raw in raws]
        if self._code.endswith("s"):
            return b"".join((bitmap, *cast("list[bytes]", values)))
        return bytes(bitmap) + struct.pack(f"<{len(values)}{self._code}", *values)

    def unpack(self, value: bytes, *, start: int, count: int) -> tuple[list[MaybeRaw], int]:
        """Read `count` raw values and where they end; raises Corruption."""
        at = start + (count + 7) // 8
        if at + count * self._width > len(value):
            raise Corruption(f"row promises {count} values and ends before them")
        bitmap = value[start:at]
        if count & 7 and bitmap[-1] >> (count & 7):
            raise Corruption("MODEL-28: sequence has NULL bits for values it does not have")
        raws: list[MaybeRaw] = [*self._entries(value, at=at, count=count)]
        # A loop over the values of one list, which become Python objects here.
        for null_at in _set_bits(bitmap):
            if not is_stored_zero(cast("Raw", raws[null_at]), self._zero):
                raise Corruption("MODEL-29: sequence has bytes where it says NULL")
            raws[null_at] = None
        at += count * self._width
        return (raws, at) if self._code is not None else self._pieces(value, at, raws)

    def _entries(self, value: bytes, *, at: int, count: int) -> Sequence[Raw]:
        """Return fixed-width values, or lengths."""
        if self._code is not None and self._code.endswith("s"):
            ends = range(at + self._width, at + (count + 1) * self._width, self._width)
            return [value[end - self._width : end] for end in ends]
        return struct.unpack_from(f"<{count}{self._code or 'I'}", value, at)

    def _pieces(self, value: bytes, at: int, lengths: list[MaybeRaw]) -> tuple[list[MaybeRaw], int]:
        pieces: list[MaybeRaw] = []
        for length in lengths:
            end = at + cast("int", length or 0)
            pieces.append(None if length is None else value[at:end])
            at = end
        if at > len(value):
            raise Corruption("MODEL-30: sequence describes more bytes than there are")
        return pieces, at


def pack_count(count: int) -> bytes:
    """Write the length of a list or map."""
    return _COUNT.pack(count)


def unpack_count(value: bytes) -> int:
    """Read the length of a list or map; raises Corruption."""
    if len(value) < _COUNT.size:
        raise Corruption("list or map ends inside its count")
    return cast("int", _COUNT.unpack_from(value)[0])


def pack_header(fields: Sequence[StoredField]) -> bytes:
    """Write what precedes the body."""
    described = (encode_varint(each.field_id) + _pack_type(each.type) for each in fields)
    return b"".join((bytes((ROW_VERSION,)), encode_varint(len(fields)), *described))


def parse_header(value: bytes) -> tuple[tuple[StoredField, ...], int]:
    """Read which fields a row holds and where its body begins; raises Corruption."""
    if not value:
        raise Corruption("row is empty")
    if value[0] != ROW_VERSION:
        raise Corruption(
            f"row of version {value[0]}, expected {ROW_VERSION}",
            hint="A newer neve may have written it",
        )
    parser = _HeaderParser(value)
    fields = parser.fields(depth=0)
    return fields, parser.at


class _HeaderParser:
    """Reads types from untrusted bytes."""

    __slots__ = ("_seen", "_value", "at")

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._seen: set[int] = set()
        self.at = 1

    def fields(self, *, depth: int) -> tuple[StoredField, ...]:
        count = self._varint()
        if not 1 <= count <= FIELDS_MAX:
            raise self._damage(f"{count} fields")
        return tuple(self._field(depth=depth + 1) for _ in range(count))

    def _field(self, *, depth: int) -> StoredField:
        field_id = self._varint()
        if not 1 <= field_id <= FIELD_ID_MAX or field_id in self._seen:
            raise self._damage(f"field id {field_id}, out of range or given twice")
        self._seen.add(field_id)
        if len(self._seen) > FIELDS_MAX:
            raise self._damage(f"more than {FIELDS_MAX} fields")
        return StoredField(field_id=field_id, type=self._type(depth=depth))

    def _type(self, *, depth: int) -> pa.DataType:
        code = self._byte()
        kind = _KINDS.get(code)
        if kind is None or depth > NESTING_MAX:
            raise self._damage(f"unknown type {code}" if kind is None else "too deep nesting")
        match kind:
            case TypeKind.DECIMAL:
                precision, scale = self._byte(), self._byte()
                if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
                    raise self._damage(f"decimal({precision},{scale})")
                return pa.decimal128(precision, scale)
            case TypeKind.FIXED:
                width = self._varint()
                if not 1 <= width <= FIXED_BYTES_MAX:
                    raise self._damage(f"fixed[{width}]")
                return pa.binary(width)
            case TypeKind.LIST:
                element = _arrow_field(self._field(depth=depth + 1), name="element")
                return cast("pa.DataType", pa.list_(element))
            case TypeKind.MAP:
                key, item = self._field(depth=depth + 1), self._field(depth=depth + 1)
                if kind_of(key.type) in NESTED_KINDS:
                    raise self._damage("a nested type as key of a map")
                key_field = _arrow_field(key, name="key").with_nullable(False)
                return cast("pa.DataType", pa.map_(key_field, _arrow_field(item, name="value")))
            case TypeKind.STRUCT:
                fields = self.fields(depth=depth)
                return pa.struct([_arrow_field(each, name=str(each.field_id)) for each in fields])
            case _:
                return PLAIN_TYPES[kind]

    def _byte(self) -> int:
        if self.at >= len(self._value):
            raise self._damage("an end")
        self.at += 1
        return self._value[self.at - 1]

    def _varint(self) -> int:
        try:
            number, end = read_varint(self._value, self.at)
        except Corruption as error:
            raise self._damage(error.message) from error
        if end - self.at != len(encode_varint(number)):
            raise self._damage("a number that is longer than it needs to be")
        self.at = end
        return number

    def _damage(self, found: str) -> Corruption:
        return Corruption(f"row describes its fields with {found}", offset=self.at)


def _set_bits(bitmap: bytes) -> Iterator[int]:
    for byte_at, byte in enumerate(bitmap):
        if byte:
            yield from (byte_at * 8 + bit for bit in range(8) if byte >> bit & 1)


def _arrow_field(stored: StoredField, *, name: str) -> ArrowField:
    metadata = field_metadata(field_id=stored.field_id, doc=None)
    return pa.field(name, stored.type, metadata=metadata)


def _pack_type(arrow_type: pa.DataType) -> bytes:
    kind = kind_of(arrow_type)
    code = bytes((KIND_CODES[kind],))
    if pa.types.is_decimal128(arrow_type):
        return code + bytes((arrow_type.precision, arrow_type.scale))
    if kind is TypeKind.FIXED:
        return code + encode_varint(cast("pa.FixedSizeBinaryType", arrow_type).byte_width)
    inside = b"".join(_pack_field(each) for each in child_fields(arrow_type))
    if kind is TypeKind.STRUCT:
        return code + encode_varint(len(child_fields(arrow_type))) + inside
    return code + inside


def _pack_field(field: ArrowField) -> bytes:
    field_id = field_id_of(field)
    assert field_id is not None, "every field of a schema has an id"
    return encode_varint(field_id) + _pack_type(field.type)
