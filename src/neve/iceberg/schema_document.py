"""Definitions of a table as members of Iceberg's metadata: schema, specs, sort order.

neve keeps schemas in Iceberg's JSON already; its own two members are left out here. A key with
float columns has no identifier fields, because Iceberg does not allow floats there.

Old specs of a table are published too. A column may since have taken the name of one of their
fields, and readers refuse such a table; the id identifies a field, so the document renames it,
`p_1000` for `p`. Manifests keep the first name.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from neve.iceberg.iceberg_file import KEY_ORDER_ID
from neve.model.arrow_types import field_id_of
from neve.model.field_ids import walk_fields
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.schema import TableSchema
from neve.model.schema_json import Json, JsonObject
from neve.model.transforms import Identity

_OWN_MEMBERS: Final = ("primary-key", "last-column-id")


def schema_document(schema: TableSchema) -> JsonObject:
    """Return a schema in Iceberg's form."""
    members: JsonObject = json.loads(schema.to_json())
    for name in _OWN_MEMBERS:
        members.pop(name)
    return members


def spec_documents(specs: Iterable[PartitionSpec], schema: TableSchema) -> dict[int, JsonObject]:
    """Return specs by id, in Iceberg's form, for readers that have a schema.

    No two fields, and no field and column, share a name; the first spec is named first.
    """
    columns = {path: field_id_of(each) for path, each in walk_fields(tuple(schema.arrow_schema))}
    names: dict[int, str] = {}
    documents: dict[int, JsonObject] = {}
    for spec in specs:
        for field in spec.fields:
            if field.field_id not in names:
                names[field.field_id] = _free_name(field, columns, frozenset(names.values()))
        # Not as a spec: the names of its fields are shorter than these may be.
        document = json.loads(spec.to_json())
        for member in document["fields"]:
            member["name"] = names[member["field-id"]]
        documents[spec.spec_id] = document
    return documents


def name_mapping(schema: TableSchema) -> str:
    """Return the ids of all columns by name, for imported files without ids."""
    fields = schema_document(schema)["fields"]
    assert isinstance(fields, list)
    return json.dumps(_mapped(fields), separators=(",", ":"))


def sort_order_of_key(schema: TableSchema) -> JsonObject:
    """Return the sort order that all data files have."""
    return {
        "order-id": KEY_ORDER_ID,
        "fields": [_sort_field(field_id) for field_id in schema.primary_key],
    }


def start_of_key_order(order_id: int, schema: TableSchema, count: int) -> JsonObject:
    """Return the order by the first columns of the key."""
    return {
        "order-id": order_id,
        "fields": [_sort_field(field_id) for field_id in schema.primary_key[:count]],
    }


def _free_name(
    field: PartitionField, columns: Mapping[str, int | None], taken: frozenset[str]
) -> str:
    name = field.name
    own = {field.source_id} if isinstance(field.transform, Identity) else set[int]()
    while name in taken or (name in columns and columns[name] not in own):
        name = f"{name}_{field.field_id}"
    return name


def _sort_field(field_id: int) -> JsonObject:
    return {
        "transform": "identity",
        "source-id": field_id,
        "direction": "asc",
        "null-order": "nulls-first",
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
