"""Types as users write them: Iceberg's names, some of Arrow's, and nested ones in angle brackets.

    long   int64   string   timestamptz   decimal(9,2)   fixed(16)   fixed[16]
    list<long>   map<string, double>   struct<street: string, zip: int!>

A `!` after a type inside angle brackets means that the element, value or field is never NULL.
"""

import re
from typing import Final, cast

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument
from neve.model.arrow_types import (
    NESTED_KINDS,
    NESTING_MAX,
    ArrowField,
    TypeKind,
    child_fields,
    kind_of,
    type_name,
)
from neve.model.display import shown
from neve.model.schema_json import type_from_json
from neve.model.suggestions import similar_name_hint

REQUIRED: Final = "!"

_ALIASES: Final = {
    "bool": "boolean",
    "integer": "int",
    "int32": "int",
    "int64": "long",
    "bigint": "long",
    "float32": "float",
    "float64": "double",
    "text": "string",
    "varchar": "string",
    "datetime": "timestamp",
    "bytes": "binary",
}
_WITH_NUMBERS: Final = {TypeKind.DECIMAL: "decimal(9,2)", TypeKind.FIXED: "fixed(16)"}
_FIXED: Final = re.compile(r"fixed\(\s*([0-9]+)\s*\)")
_NESTED: Final = re.compile(r"(list|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_OPENING: Final = "<(["
_CLOSING: Final = ">)]"


def parse_type(text: str) -> pa.DataType:
    """Parse a type; raises InvalidArgument with the most similar name."""
    return _parse(text, depth=1)


def type_text(arrow_type: pa.DataType) -> str:
    """Return a type as text that `parse_type` reads."""
    inside = [
        (field.name, f"{type_text(field.type)}{'' if field.nullable else REQUIRED}")
        for field in child_fields(arrow_type)
    ]
    match kind_of(arrow_type):
        case TypeKind.STRUCT:
            return f"struct<{', '.join(f'{name}: {text}' for name, text in inside)}>"
        case TypeKind.MAP:  # a key is never NULL, so it has no mark
            return f"map<{inside[0][1].removesuffix(REQUIRED)}, {inside[1][1]}>"
        case TypeKind.LIST:
            return f"list<{inside[0][1]}>"
        case _:
            return type_name(arrow_type)


def _parse(text: str, *, depth: int) -> pa.DataType:
    if depth > NESTING_MAX:
        raise InvalidArgument(
            f"a type nests deeper than {NESTING_MAX} levels", hint="Flatten the column"
        )
    nested = _NESTED.fullmatch(text.strip())
    if nested is not None:
        return _nested(nested[1].lower(), _parts(nested[2]), text, depth=depth)
    spelled = " ".join(text.split()).lower()
    spelled = _ALIASES.get(spelled, spelled)
    if (fixed := _FIXED.fullmatch(spelled)) is not None:
        spelled = f"fixed[{fixed[1]}]"
    try:
        return type_from_json(spelled, where="column")
    except Corruption as error:
        raise _unknown(text, spelled) from error


def _nested(kind: str, parts: list[str], text: str, *, depth: int) -> pa.DataType:
    match kind, parts:
        case "list", [element]:
            inner = _field("element", element, depth=depth)
            return cast("pa.DataType", pa.list_(inner))
        case "map", [key, value]:
            key_field = _field("key", key, depth=depth).with_nullable(False)
            value_field = _field("value", value, depth=depth)
            return cast("pa.DataType", pa.map_(key_field, value_field))
        case "struct", [_, *_]:
            return pa.struct([_named_field(part, depth=depth) for part in parts])
        case _:
            raise InvalidArgument(
                f"the type {shown(text)} has {len(parts)} parts",
                hint="Write list<long>, map<string, long> or struct<street: string, zip: int>",
            )


def _named_field(part: str, *, depth: int) -> ArrowField:
    name, colon, type_text = part.partition(":")
    if not colon or not name.strip():
        raise InvalidArgument(
            f"the field {shown(part.strip())} of a struct lacks its name or its type",
            hint="Write struct<street: string, zip: int>",
        )
    return _field(name.strip(), type_text, depth=depth)


def _field(name: str, type_text: str, *, depth: int) -> ArrowField:
    spelled = type_text.strip()
    inner = _parse(spelled.removesuffix(REQUIRED), depth=depth + 1)
    return pa.field(name, inner, nullable=not spelled.endswith(REQUIRED))


def _parts(inside: str) -> list[str]:
    """Split at the commas outside brackets."""
    parts, start, open_count = [], 0, 0
    for at, letter in enumerate(inside):
        if letter in _OPENING:
            open_count += 1
        elif letter in _CLOSING:
            open_count -= 1
        elif letter == "," and open_count == 0:
            parts.append(inside[start:at])
            start = at + 1
    last = inside[start:]
    return [*parts, last] if parts or last.strip() else []


def _unknown(text: str, spelled: str) -> InvalidArgument:
    kinds = [kind for kind in TypeKind if kind not in NESTED_KINDS]
    names = [_WITH_NUMBERS.get(kind, kind.value) for kind in kinds]
    return InvalidArgument(
        f"there is no type {shown(text)}",
        hint=similar_name_hint(spelled, [*names, *_ALIASES], is_quoted=False)
        or f"There are {', '.join(names)}",
    )
