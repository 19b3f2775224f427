"""Definitions of a table as members of Iceberg's metadata: schema, name mapping, sort order.

neve keeps schemas in Iceberg's JSON already; two members that are its own are left out here. Float
columns in the key make no identifier fields, because Iceberg knows none of that kind.
"""

import json
from collections.abc import Sequence
from typing import Final

from neve.iceberg.iceberg_file import KEY_ORDER_ID
from neve.model.schema import TableSchema
from neve.model.schema_json import Json, JsonObject

_OWN_MEMBERS: Final = ("primary-key", "last-column-id")


def schema_document(schema: TableSchema) -> JsonObject:
    """Give a schema as Iceberg has it."""
    members: JsonObject = json.loads(schema.to_json())
    for name in _OWN_MEMBERS:
        members.pop(name)
    return members


def name_mapping(schema: TableSchema) -> str:
    """Give the ids of all columns by name, for files that others bring and that have no ids."""
    fields = schema_document(schema)["fields"]
    assert isinstance(fields, list)
    return json.dumps(_mapped(fields), separators=(",", ":"))


def key_order(schema: TableSchema) -> JsonObject:
    """Give the sort order that all data files have."""
    return {
        "order-id": KEY_ORDER_ID,
        "fields": [_sort_field(field_id, descending=False) for field_id in schema.primary_key],
    }


def declared_order(order_id: int, columns: Sequence[tuple[int, bool]]) -> JsonObject:
    """Give the sort order that a table asks for: field ids, and whether they descend."""
    return {
        "order-id": order_id,
        "fields": [_sort_field(field_id, descending=down) for field_id, down in columns],
    }


def _sort_field(field_id: int, *, descending: bool) -> JsonObject:
    return {
        "transform": "identity",
        "source-id": field_id,
        "direction": "desc" if descending else "asc",
        "null-order": "nulls-last" if descending else "nulls-first",
    }


def _mapped(fields: Sequence[Json]) -> list[Json]:
    found: list[Json] = []
    for field in fields:
        assert isinstance(field, dict)
        found.append(_mapping_of(field["id"], field["name"], field["type"]))
    return found


def _mapping_of(field_id: Json, name: Json, type_: Json) -> JsonObject:
    members: JsonObject = {"field-id": field_id, "names": [name]}
    if isinstance(type_, dict):
        match type_.get("type"):
            case "struct":
                inner = type_["fields"]
                assert isinstance(inner, list)
                members["fields"] = _mapped(inner)
            case "list":
                members["fields"] = [_role(type_, "element")]
            case "map":
                members["fields"] = [_role(type_, "key"), _role(type_, "value")]
            case _:
                pass
    return members


def _role(type_: JsonObject, role: str) -> JsonObject:
    return _mapping_of(type_[f"{role}-id"], role, type_[role])
