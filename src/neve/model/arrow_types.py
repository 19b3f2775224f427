"""Arrow types: the ones a table holds, and how others are mapped onto them.

A table holds the types of Iceberg v3, except `unknown`, `variant`, `geometry` and `geography`. The
Iceberg name, then the Arrow type:

    boolean         bool                    timestamp       timestamp[us]
    int             int32                   timestamptz     timestamp[us, UTC]
    long            int64                   timestamp_ns    timestamp[ns]
    float           float32                 timestamptz_ns  timestamp[ns, UTC]
    double          float64                 string          string
    decimal(p,s)    decimal128(p ≤ 38, s)   binary          binary
    date            date32                  fixed[n]        fixed_size_binary(n)
    time            time64[us]              uuid            arrow.uuid
    list, struct, map                       nested freely, but never as the key of a map

`normalize_type` maps other types onto these without losing a value, or refuses and says what to use
instead. Fields inside nested types are named `element`, `key` and `value` as in Iceberg and
Parquet. Fields keep their id, and in structs their doc; other metadata is dropped.
"""

from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias, cast

import pyarrow as pa

from neve.errors import LimitExceeded, Phrase, SchemaMismatch, Wording
from neve.model.display import shown, shown_type

FIELD_ID_KEY: Final = b"PARQUET:field_id"
DOC_KEY: Final = b"doc"

NESTING_MAX: Final = 32
DECIMAL_DIGITS_MAX: Final = 38
FIXED_BYTES_MAX: Final = 65_535

ArrowField: TypeAlias = "pa.Field[pa.DataType]"


class TypeKind(StrEnum):
    """Iceberg's name for a type, without its parameters."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    TIMESTAMP_NS = "timestamp_ns"
    TIMESTAMPTZ_NS = "timestamptz_ns"
    STRING = "string"
    BINARY = "binary"
    FIXED = "fixed"
    UUID = "uuid"
    LIST = "list"
    STRUCT = "struct"
    MAP = "map"


NESTED_KINDS: Final = frozenset({TypeKind.LIST, TypeKind.STRUCT, TypeKind.MAP})

# The types without parameters, by kind; decimal, fixed and nested types are built when needed.
PLAIN_TYPES: Final[dict[TypeKind, pa.DataType]] = {
    TypeKind.BOOLEAN: pa.bool_(),
    TypeKind.INT: pa.int32(),
    TypeKind.LONG: pa.int64(),
    TypeKind.FLOAT: pa.float32(),
    TypeKind.DOUBLE: pa.float64(),
    TypeKind.DATE: pa.date32(),
    TypeKind.TIME: pa.time64("us"),
    TypeKind.TIMESTAMP: pa.timestamp("us"),
    TypeKind.TIMESTAMPTZ: pa.timestamp("us", tz="UTC"),
    TypeKind.TIMESTAMP_NS: pa.timestamp("ns"),
    TypeKind.TIMESTAMPTZ_NS: pa.timestamp("ns", tz="UTC"),
    TypeKind.STRING: pa.string(),
    TypeKind.BINARY: pa.binary(),
    TypeKind.UUID: pa.uuid(),
}

_KIND_OF_PLAIN: Final = {arrow: kind for kind, arrow in PLAIN_TYPES.items()}

_STAND_INS: Final[dict[pa.DataType, pa.DataType]] = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time64("us"),
    pa.time32("ms"): pa.time64("us"),
    pa.time64("ns"): pa.time64("us"),
}

_Refusal = tuple[Callable[[pa.DataType], bool], str]

_REFUSALS: Final[tuple[_Refusal, ...]] = (
    (pa.types.is_uint64, "Use decimal128(20, 0), or int64 when values stay below 2**63"),
    (pa.types.is_null, "Give the column a type; NULL fits every nullable one"),
    (pa.types.is_duration, "Store the count in an int64 column and name its unit"),
    (pa.types.is_interval, "Store months and days in int32 columns"),
    (pa.types.is_union, "Use a struct with one nullable field per case"),
)


def normalize_type(arrow_type: pa.DataType, *, column: str) -> pa.DataType:
    """Return the type a table holds for `arrow_type`.

    Raises SchemaMismatch naming the column, or the path inside it, when there is none.
    """
    return _normalize(arrow_type, path=column, depth=1)


def kind_of(arrow_type: pa.DataType) -> TypeKind:
    """Return the kind of a type that `normalize_type` returned."""
    plain = _KIND_OF_PLAIN.get(arrow_type)
    if plain is not None:
        return plain
    if pa.types.is_decimal128(arrow_type):
        return TypeKind.DECIMAL
    if pa.types.is_fixed_size_binary(arrow_type):
        return TypeKind.FIXED
    if pa.types.is_struct(arrow_type):
        return TypeKind.STRUCT
    if pa.types.is_map(arrow_type):
        return TypeKind.MAP
    assert pa.types.is_list(arrow_type), f"{arrow_type} was never normalised"
    return TypeKind.LIST


def type_name(arrow_type: pa.DataType) -> str:
    """Iceberg's name with parameters, such as `decimal(9,2)`; nested types by their kind alone."""
    if pa.types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_fixed_size_binary(arrow_type):
        return f"fixed[{arrow_type.byte_width}]"
    return kind_of(arrow_type).value


def widens_to(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether Iceberg promotes primitive `stored` to `wanted`, which keeps every value."""
    if pa.types.is_decimal128(stored) and pa.types.is_decimal128(wanted):
        same_scale = bool(stored.scale == wanted.scale)
        return same_scale and bool(stored.precision <= wanted.precision)
    return stored == wanted or (kind_of(stored), kind_of(wanted)) in {
        (TypeKind.INT, TypeKind.LONG),
        (TypeKind.FLOAT, TypeKind.DOUBLE),
    }


def child_fields(arrow_type: pa.DataType) -> tuple[ArrowField, ...]:
    """Fields directly inside a normalised type: of a struct, `element`, or `key` and `value`."""
    if pa.types.is_struct(arrow_type):
        return tuple(arrow_type.field(at) for at in range(arrow_type.num_fields))
    if pa.types.is_map(arrow_type):
        return (arrow_type.key_field, arrow_type.item_field)
    if pa.types.is_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def with_child_fields(arrow_type: pa.DataType, fields: tuple[ArrowField, ...]) -> pa.DataType:
    """Return the nested type with other fields of the same number and role."""
    if pa.types.is_struct(arrow_type):
        return pa.struct(list(fields))
    if pa.types.is_map(arrow_type):
        key, value = fields
        return cast("pa.DataType", pa.map_(key, value))
    (element,) = fields
    return cast("pa.DataType", pa.list_(element))


def field_id_of(field: ArrowField) -> int | None:
    """Field id in the metadata of an Arrow field; None when it is missing or unreadable."""
    text = (field.metadata or {}).get(FIELD_ID_KEY, b"")
    # Ten digits hold every legal id; a longer run of digits is not worth converting.
    return int(text) if text.isdigit() and len(text) <= 10 else None  # noqa: PLR2004


def doc_of(field: ArrowField) -> str | None:
    """Documentation in the metadata of an Arrow field, under the key PyIceberg uses."""
    text = (field.metadata or {}).get(DOC_KEY)
    return None if text is None else text.decode("utf-8", errors="replace")


def field_metadata(*, field_id: int | None, doc: str | None) -> dict[bytes, bytes]:
    """Arrow metadata that carries a field's id and documentation."""
    metadata: dict[bytes, bytes] = {}
    if field_id is not None:
        metadata[FIELD_ID_KEY] = str(field_id).encode()
    if doc is not None:
        metadata[DOC_KEY] = doc.encode()
    return metadata


def _normalize(arrow_type: pa.DataType, *, path: str, depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        raise LimitExceeded(
            f"column {shown(path.split('.', 1)[0])} nests deeper than {NESTING_MAX} levels",
            limit=NESTING_MAX,
            hint="Flatten the column, or store the inner part as JSON text in a string",
        )
    if arrow_type in _KIND_OF_PLAIN:
        return arrow_type
    if arrow_type in _STAND_INS:
        return _STAND_INS[arrow_type]
    if pa.types.is_timestamp(arrow_type):
        if arrow_type.tz is None:
            return PLAIN_TYPES[TypeKind.TIMESTAMP]  # nanoseconds are plain and ended above
        nanoseconds = bool(arrow_type.unit == "ns")
        return PLAIN_TYPES[TypeKind.TIMESTAMPTZ_NS if nanoseconds else TypeKind.TIMESTAMPTZ]
    if pa.types.is_decimal(arrow_type):
        return _normalize_decimal(arrow_type, path=path)
    if pa.types.is_fixed_size_binary(arrow_type):
        return _check_fixed(arrow_type, path=path)
    if pa.types.is_dictionary(arrow_type):
        return _normalize(arrow_type.value_type, path=path, depth=depth)
    if pa.types.is_run_end_encoded(arrow_type):
        return _normalize(arrow_type.value_type, path=path, depth=depth)
    if pa.types.is_nested(arrow_type) and not pa.types.is_union(arrow_type):
        return _normalize_nested(arrow_type, path=path, depth=depth)
    raise _refusal(arrow_type, path=path)


def _normalize_decimal(arrow_type: pa.DataType, *, path: str) -> pa.DataType:
    decimal = cast("pa.Decimal128Type[int, int]", arrow_type)
    precision, scale = decimal.precision, decimal.scale
    if precision > DECIMAL_DIGITS_MAX:
        raise SchemaMismatch(
            f"column {shown(path)} has {precision} decimal digits, more than {DECIMAL_DIGITS_MAX}",
            column=path,
            hint=Wording(Phrase.SMALLER_DECIMAL, digits=DECIMAL_DIGITS_MAX),
        )
    if not 0 <= scale <= precision:
        raise SchemaMismatch(
            f"column {shown(path)} has decimal scale {scale} outside 0 to its precision "
            f"{precision}",
            column=path,
            hint="Use a precision that covers the scale, and a scale of at least 0",
        )
    return pa.decimal128(precision, scale)


def _check_fixed(arrow_type: pa.DataType, *, path: str) -> pa.DataType:
    width = cast("pa.FixedSizeBinaryType", arrow_type).byte_width
    if not 1 <= width <= FIXED_BYTES_MAX:
        raise SchemaMismatch(
            f"column {shown(path)} has fixed width {width}, not 1 to {FIXED_BYTES_MAX} bytes",
            column=path,
            hint="Use binary",
        )
    return arrow_type


def _normalize_nested(arrow_type: pa.DataType, *, path: str, depth: int) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        if arrow_type.num_fields == 0:
            raise SchemaMismatch(
                f"column {shown(path)} is a struct without fields",
                column=path,
                hint="Give the struct a field; Parquet cannot store an empty one",
            )
        fields = [
            _normalize_field(arrow_type.field(at), role=None, path=path, depth=depth)
            for at in range(arrow_type.num_fields)
        ]
        return pa.struct(fields)
    if pa.types.is_map(arrow_type):
        key = _normalize_field(arrow_type.key_field, role="key", path=path, depth=depth)
        if kind_of(key.type) in NESTED_KINDS:
            raise SchemaMismatch(
                f"column {shown(path)} is a map with {shown_type(key.type)} keys",
                column=path,
                hint="Use a primitive key, or a list of structs",
            )
        value = _normalize_field(arrow_type.item_field, role="value", path=path, depth=depth)
        return cast("pa.DataType", pa.map_(key.with_nullable(False), value))
    sequence = cast("pa.ListType[pa.DataType]", arrow_type)
    element = _normalize_field(sequence.value_field, role="element", path=path, depth=depth)
    return cast("pa.DataType", pa.list_(element))


def _normalize_field(field: ArrowField, *, role: str | None, path: str, depth: int) -> ArrowField:
    # Iceberg names and documents fields of structs; the insides of lists and maps have a role.
    name, doc = (field.name, doc_of(field)) if role is None else (role, None)
    inner = _normalize(field.type, path=f"{path}.{name}", depth=depth + 1)
    metadata = field_metadata(field_id=field_id_of(field), doc=doc)
    return pa.field(name, inner, nullable=field.nullable, metadata=metadata or None)


def _refusal(arrow_type: pa.DataType, *, path: str) -> SchemaMismatch:
    hint = next((text for applies, text in _REFUSALS if applies(arrow_type)), None)
    if hint is None and isinstance(arrow_type, pa.BaseExtensionType):
        hint = f"Use its storage type, {shown_type(arrow_type.storage_type)}"
    return SchemaMismatch(
        f"column {shown(path)} has type {shown_type(arrow_type)}, which an Iceberg table cannot "
        "hold",
        column=path,
        hint=hint or "Use one of the types listed in neve.model.arrow_types",
    )


_WAYS: Final = {
    TypeKind.DATE: Phrase.GIVE_A_DATE,
    TypeKind.TIME: Phrase.GIVE_A_TIME,
    TypeKind.TIMESTAMP: Phrase.GIVE_A_TIMESTAMP,
    TypeKind.TIMESTAMPTZ: Phrase.GIVE_A_TIMESTAMPTZ,
    TypeKind.UUID: Phrase.GIVE_A_UUID,
}
_EXAMPLE_DIGITS: Final = 1420


def value_hint(arrow_type: pa.DataType) -> str:
    """Describe what a value of a type looks like."""
    kind = kind_of(arrow_type)
    if kind is TypeKind.DECIMAL:
        return Wording(Phrase.GIVE_A_DECIMAL, digits=decimal_digits(arrow_type))
    way = _WAYS.get(kind)
    return f"The column holds {type_name(arrow_type)}" if way is None else Wording(way)


def decimal_digits(arrow_type: pa.DataType) -> str:
    """Say how many digits a decimal type has after the point, with an example."""
    scale = cast("pa.Decimal128Type[int, int]", arrow_type).scale
    example = Decimal((0, tuple(map(int, str(_EXAMPLE_DIGITS))), -scale))
    return f"{scale} digit{'' if scale == 1 else 's'} after the point, such as {example:f}"
