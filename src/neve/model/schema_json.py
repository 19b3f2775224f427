"""Types and default values in the JSON of Iceberg's specification.

    "long"   "decimal(9,2)"   "fixed[16]"   "timestamptz_ns"                       primitive types
    {"type": "struct", "fields": [{"id", "name", "required", "type", "doc"?}, …]}
    {"type": "list", "element-id", "element-required", "element": type}
    {"type": "map", "key-id", "key": type, "value-id", "value-required", "value": type}

    true  34  1.5  "14.20"  "2017-11-16"  "22:31:08.123456"  "2017-11-16T22:31:08.123456+00:00"
    "iceberg"  "f79c3e09-677c-4bbd-a479-3f349cb785e7"  "000102ff"                  default values

Field ids live in the metadata of Arrow fields, see `neve.model.arrow_types`. Reading trusts
nothing: any other shape is Corruption that says where. Unknown members are skipped, as Iceberg's
readers do, so that a later version may add some.
"""

import datetime as dt
import decimal
import json
import math
import re
import uuid
from typing import Final, NoReturn, TypeAlias, TypeVar, cast

import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import (
    DECIMAL_DIGITS_MAX,
    FIXED_BYTES_MAX,
    NESTING_MAX,
    PLAIN_TYPES,
    ArrowField,
    TypeKind,
    child_fields,
    doc_of,
    field_id_of,
    field_metadata,
    kind_of,
    type_name,
)
from neve.model.display import EPOCH
from neve.model.scalar_values import Unfit, canonical_scalar

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = dict[str, Json]

# Parsed JSON takes up to twenty times its text in memory, so the text is bounded first.
SCHEMA_JSON_BYTES_MAX: Final = 8 << 20

_DECIMAL: Final = re.compile(r"decimal\(\s*([0-9]{1,2})\s*,\s*([0-9]{1,2})\s*\)")
_FIXED: Final = re.compile(r"fixed\[([0-9]{1,5})\]")
_NANOSECONDS: Final = re.compile(r"(.{19})\.([0-9]{9})((?:\+00:00)?)")
_SECOND_NANOSECONDS: Final = 1_000_000_000

_Member = TypeVar("_Member")


def dump_canonical(value: Json) -> str:
    """Return JSON in canonical form: sorted members, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def dump_compact(value: Json) -> bytes:
    """Return JSON without spaces, members in their order, as UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def parse_object(text: str, *, what: str = "schema") -> JsonObject:
    """Read a JSON object; raises Corruption when it is not one, too large, or repeats a member."""
    if len(text) > SCHEMA_JSON_BYTES_MAX:
        raise Corruption(f"{what} JSON of {len(text)} characters, limit {SCHEMA_JSON_BYTES_MAX}")
    try:
        value: Json = json.loads(
            text, object_pairs_hook=_unique_members, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{what} JSON cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise Corruption(f"{what} JSON holds {_json_name(value)}, not an object")
    return value


def objects_of(given: Json) -> list[JsonObject]:
    """Return the objects of a list; none for anything else."""
    return [each for each in given if isinstance(each, dict)] if isinstance(given, list) else []


def text_member(members: JsonObject, name: str, *, where: str) -> str:
    """Return a string member."""
    text = _member(members, name, str, where=where)
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise Corruption(f"{where}.{name} in JSON holds a lone surrogate")
    return text


def flag_member(members: JsonObject, name: str, *, where: str) -> bool:
    """Return a boolean member."""
    return _member(members, name, bool, where=where)


def number_member(members: JsonObject, name: str, *, where: str) -> int:
    """Return an integer member."""
    return _member(members, name, int, where=where)


def numbers_member(members: JsonObject, name: str, *, where: str) -> list[int]:
    """Return a member that is a list of integers."""
    numbers = _member(members, name, list, where=where)
    if not all(type(number) is int for number in numbers):
        raise Corruption(f"{where}.{name} in JSON holds something other than integers")
    return cast("list[int]", numbers)


def objects_member(members: JsonObject, name: str, *, where: str) -> list[JsonObject]:
    """Return a member that is a list of objects."""
    objects = _member(members, name, list, where=where)
    if not all(isinstance(each, dict) for each in objects):
        raise Corruption(f"{where}.{name} in JSON holds something other than objects")
    return cast("list[JsonObject]", objects)


def type_to_json(arrow_type: pa.DataType, *, docs: bool = True) -> Json:
    """Return Iceberg's JSON of a type whose nested fields all have ids."""
    fields = child_fields(arrow_type)
    match kind_of(arrow_type):
        case TypeKind.STRUCT:
            return {
                "type": "struct",
                "fields": [_field_to_json(each, docs=docs) for each in fields],
            }
        case TypeKind.LIST:
            (element,) = fields
            return {
                "type": "list",
                "element-id": field_id_of(element),
                "element-required": not element.nullable,
                "element": type_to_json(element.type, docs=docs),
            }
        case TypeKind.MAP:
            key, value = fields
            return {
                "type": "map",
                "key-id": field_id_of(key),
                "key": type_to_json(key.type, docs=docs),
                "value-id": field_id_of(value),
                "value-required": not value.nullable,
                "value": type_to_json(value.type, docs=docs),
            }
        case _:
            return type_name(arrow_type)


def type_from_json(value: Json, *, where: str, depth: int = 1) -> pa.DataType:
    """Read a type; raises Corruption."""
    if depth > NESTING_MAX:
        raise Corruption(f"{where} in JSON nests deeper than {NESTING_MAX} levels")
    if isinstance(value, str):
        return _primitive_from_json(value, where=where)
    if not isinstance(value, dict):
        raise Corruption(f"{where} in JSON is {_json_name(value)}, not a type")
    match value.get("type"):
        case "struct":
            objects = objects_member(value, "fields", where=where)
            return pa.struct(
                [
                    _field_from_json(each, where=f"{where}.fields[{at}]", depth=depth + 1)
                    for at, each in enumerate(objects)
                ]
            )
        case "list":
            element = _role_from_json(value, "element", where=where, depth=depth + 1)
            return cast("pa.DataType", pa.list_(element))
        case "map":
            key = _role_from_json(value, "key", where=where, depth=depth + 1)
            item = _role_from_json(value, "value", where=where, depth=depth + 1)
            return cast("pa.DataType", pa.map_(key, item))
        case other:
            raise Corruption(f"{where} in JSON is of unknown type {str(other)[:40]!r}")


def default_to_json(arrow_type: pa.DataType, value: object) -> Json:
    """Return Iceberg's JSON of a default value in its canonical Python form."""
    match value:
        case decimal.Decimal():
            return format(value, "f")
        case bytes():
            return value.hex()
        case dt.datetime() | dt.time():
            return value.isoformat(timespec="microseconds")
        case dt.date():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
        case int() if kind_of(arrow_type) in {TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS}:
            seconds, nanoseconds = divmod(value, _SECOND_NANOSECONDS)
            moment = (EPOCH + dt.timedelta(seconds=seconds)).replace(tzinfo=None)
            zone = "+00:00" if kind_of(arrow_type) is TypeKind.TIMESTAMPTZ_NS else ""
            return f"{moment.isoformat(timespec='seconds')}.{nanoseconds:09d}{zone}"
        case _:
            assert isinstance(value, (bool, int, float, str)), "a default was never checked"
            return value


def default_from_json(arrow_type: pa.DataType, value: Json, *, where: str) -> object:
    """Read a default value in its canonical Python form; raises Corruption."""
    kind = kind_of(arrow_type)
    try:
        read = _parse_default(kind, value) if isinstance(value, str) else value
        if kind in _TEXT_KINDS and not isinstance(value, str):
            _refuse(f"expected text, got {_json_name(value)}")
        return canonical_scalar(arrow_type, read)
    except (Unfit, ValueError, ArithmeticError) as error:
        name = type_name(arrow_type)
        raise Corruption(f"{where} in JSON is not a {name} value: {error}") from error


def is_json_default(value: object) -> bool:
    """Return whether Iceberg's JSON has a form for this default; NaN and infinities have none."""
    return not isinstance(value, float) or math.isfinite(value)


# Kinds whose default values JSON spells as text.
_TEXT_KINDS: Final = frozenset(TypeKind) - {
    TypeKind.BOOLEAN,
    TypeKind.INT,
    TypeKind.LONG,
    TypeKind.FLOAT,
    TypeKind.DOUBLE,
}


def _parse_default(kind: TypeKind, text: str) -> object:
    match kind:
        case TypeKind.DECIMAL:
            return decimal.Decimal(text)
        case TypeKind.DATE:
            return dt.date.fromisoformat(text)
        case TypeKind.TIME:
            return dt.time.fromisoformat(text)
        case TypeKind.TIMESTAMP | TypeKind.TIMESTAMPTZ:
            return dt.datetime.fromisoformat(text)
        case TypeKind.TIMESTAMP_NS | TypeKind.TIMESTAMPTZ_NS:
            return _parse_nanoseconds(text, zoned=kind is TypeKind.TIMESTAMPTZ_NS)
        case TypeKind.UUID:
            return uuid.UUID(text)
        case TypeKind.BINARY | TypeKind.FIXED:
            return bytes.fromhex(text)
        case _:
            return text


def _parse_nanoseconds(text: str, *, zoned: bool) -> int | dt.datetime:
    parts = _NANOSECONDS.fullmatch(text)
    if parts is None:
        return dt.datetime.fromisoformat(text)
    if zoned != bool(parts[3]):
        _refuse("expected the zone +00:00" if zoned else "expected no zone")
    moment = dt.datetime.fromisoformat(parts[1]).replace(tzinfo=dt.UTC)
    seconds = (moment - EPOCH) // dt.timedelta(seconds=1)
    return seconds * _SECOND_NANOSECONDS + int(parts[2])


def _refuse(reason: str) -> NoReturn:
    raise Unfit(reason)


def _primitive_from_json(name: str, *, where: str) -> pa.DataType:
    plain = next((PLAIN_TYPES[kind] for kind in PLAIN_TYPES if kind == name), None)
    if plain is not None:
        return plain
    if parts := _DECIMAL.fullmatch(name):
        precision, scale = int(parts[1]), int(parts[2])
        if 1 <= precision <= DECIMAL_DIGITS_MAX and scale <= precision:
            return pa.decimal128(precision, scale)
    if (parts := _FIXED.fullmatch(name)) and 1 <= int(parts[1]) <= FIXED_BYTES_MAX:
        return pa.binary(int(parts[1]))
    raise Corruption(f"{where} in JSON is of unknown type {name[:40]!r}")


def _field_to_json(field: ArrowField, *, docs: bool) -> Json:
    members: JsonObject = {
        "id": field_id_of(field),
        "name": field.name,
        "required": not field.nullable,
        "type": type_to_json(field.type, docs=docs),
    }
    doc = doc_of(field)
    if docs and doc is not None:
        members["doc"] = doc
    return members


def _field_from_json(members: JsonObject, *, where: str, depth: int) -> ArrowField:
    for name in ("initial-default", "write-default"):
        if members.get(name) is not None:
            raise Corruption(
                f"{where} in JSON has {name} inside a nested type",
                hint="Only columns have defaults in neve",
            )
    doc = None if members.get("doc") is None else text_member(members, "doc", where=where)
    return pa.field(
        text_member(members, "name", where=where),
        type_from_json(members.get("type"), where=f"{where}.type", depth=depth),
        nullable=not flag_member(members, "required", where=where),
        metadata=field_metadata(field_id=number_member(members, "id", where=where), doc=doc),
    )


def _role_from_json(members: JsonObject, role: str, *, where: str, depth: int) -> ArrowField:
    required = role == "key" or flag_member(members, f"{role}-required", where=where)
    field_id = number_member(members, f"{role}-id", where=where)
    return pa.field(
        role,
        type_from_json(members.get(role), where=f"{where}.{role}", depth=depth),
        nullable=not required,
        metadata=field_metadata(field_id=field_id, doc=None),
    )


def _member(members: JsonObject, name: str, wanted: type[_Member], *, where: str) -> _Member:
    value = members.get(name)
    # Exactly the class: JSON's true is not a number, though Python's bool is an int.
    if type(value) is not wanted:
        raise Corruption(
            f"{where}.{name} in JSON is {_json_name(value)}, not {_json_name(wanted())}"
        )
    return value


def _json_name(value: object) -> str:
    match value:
        case None:
            return "missing or null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


def _unique_members(pairs: list[tuple[str, Json]]) -> JsonObject:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("an object has the same member twice")
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
