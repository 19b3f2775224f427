"""The definition of a table as Iceberg's documents have it: columns, key, partitions, properties.

Columns keep their ids: files that other engines have written refer to them. A table that neve
cannot have, because of a type or a partition transform, is refused with InvalidArgument.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from neve.catalog.known_properties import FORMAT_VERSION
from neve.catalog.table_request import TableRequest
from neve.errors import Corruption, InvalidArgument, NotFound
from neve.iceberg.table_metadata import CHECKSUM_PROPERTY, VERSION_PROPERTY
from neve.model.partition_spec import PartitionSpec
from neve.model.row_rules import AskedRules
from neve.model.schema import TableSchema
from neve.model.schema_json import Json, JsonObject, objects_of
from neve.model.suggestions import known_names_hint

KEY_PROPERTY: Final = "neve.primary-key"
IDENTIFIER_FIELDS: Final = "identifier-fields"
PUBLISHED_ONLY: Final = frozenset(
    {VERSION_PROPERTY, CHECKSUM_PROPERTY, "schema.name-mapping.default", KEY_PROPERTY}
)
"""Properties that neve publishes and does not keep."""


def key_names(document: Mapping[str, Json], wanted: str | None) -> list[str] | None:
    """Return the key columns that a property asks for; None when the table is to be a guest."""
    if wanted is None or not wanted.strip():
        return None
    schema = current_schema(document)
    fields = {each.get("id"): each.get("name") for each in objects_of(schema.get("fields"))}
    if wanted.strip() != IDENTIFIER_FIELDS:
        names = [name.strip() for name in wanted.split(",")]
        missing = [name for name in names if name not in fields.values()]
        if missing:
            raise invalid(f"{KEY_PROPERTY} names {missing[0]!a}, which is not a column")
        return names
    ids = schema.get("identifier-field-ids")
    found = [fields.get(each) for each in ids] if isinstance(ids, list) else []
    return [str(name) for name in found if name is not None] or None


def requested_table(
    name: str,
    document: JsonObject,
    key: Sequence[str],
    *,
    sort_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    rules: AskedRules | None = None,
) -> TableRequest:
    """Return the request for a table of neve with the columns and partitions of a document.

    Sort order and properties are the document's unless given.
    """
    schema = table_schema(
        current_schema(document), key=key, last_id=number_of(document, "last-column-id")
    )
    spec = default_of(document, "partition-specs", "spec-id", "default-spec-id")
    version = {FORMAT_VERSION: str(max(2, number_of(document, "format-version")))}
    texts = {
        text: str(value)
        for text, value in members_of(document.get("properties")).items()
        if text not in PUBLISHED_ONLY
    }
    return TableRequest.of(
        name,
        schema,
        list(key),
        partition_by=partition_texts(spec, schema),
        sort_by=sort_texts(document, schema) if sort_by is None else sort_by,
        rules=rules,
        properties={**texts, **version} if properties is None else {**version, **properties},
    )


def table_schema(schema: JsonObject, *, key: Sequence[str], last_id: int) -> TableSchema:
    """Return columns as neve has them, those of the key never NULL; raises InvalidArgument."""
    given = objects_of(schema.get("fields"))
    names = [str(each.get("name")) for each in given]
    for name in key:
        if name not in names:
            raise InvalidArgument(
                f"the table has no column {name!a} for its key", hint=known_names_hint(name, names)
            )
    ids: list[Json] = [each["id"] for name in key for each in given if each["name"] == name]
    fields: list[Json] = [
        {**each, "required": True} if each.get("id") in ids else each for each in given
    ]
    members: JsonObject = {
        "type": "struct",
        "fields": fields,
        "schema-id": 0,
        "primary-key": ids,
        "identifier-field-ids": ids,
        "last-column-id": last_id,
    }
    try:
        return TableSchema.from_json(json.dumps(members))
    except Corruption as error:
        raise invalid(f"the columns do not fit: {error.message}") from error


def partition_texts(spec: Json, schema: TableSchema) -> list[str]:
    """Return the fields of a partition spec as `create_table` takes them."""
    fields = members_of(spec).get("fields")
    if not fields:
        return []
    try:
        return PartitionSpec.from_json(json.dumps(spec)).texts(schema)
    except (Corruption, NotFound) as error:
        raise invalid(f"the partitions do not fit: {error.message}") from error


def sort_texts(document: JsonObject, schema: TableSchema) -> list[str]:
    """Return the columns of the sort order; raises InvalidArgument for another than the key's."""
    order = default_of(document, "sort-orders", "order-id", "default-sort-order-id")
    names: list[str] = []
    for each in objects_of(members_of(order).get("fields")):
        source = each.get("source-id")
        if each.get("transform") != "identity" or each.get("direction") != "asc":
            raise invalid("files are in the order of the key, ascending")
        names.append(schema.column_by_id(source if isinstance(source, int) else -1).name)
    return names


def current_schema(document: Mapping[str, Json]) -> JsonObject:
    """Return the current schema of a document; raises InvalidArgument without one."""
    wanted = document.get("current-schema-id")
    for each in objects_of(document.get("schemas")):
        if each.get("schema-id") == wanted:
            return each
    raise invalid("the table has no current schema")


def default_of(document: JsonObject, name: str, id_name: str, default_name: str) -> Json:
    """Return the spec or sort order that is the default; empty without one."""
    wanted = document.get(default_name)
    return next(
        (each for each in objects_of(document.get(name)) if each.get(id_name) == wanted), {}
    )


def identifier_ids(schema: JsonObject) -> list[Json]:
    """Return the ids of the identifier fields, in one order."""
    found = schema.get("identifier-field-ids")
    return sorted(found, key=str) if isinstance(found, list) else []


def members_of(given: Json) -> JsonObject:
    """Return an object; an empty one for anything else."""
    return given if isinstance(given, dict) else {}


def number_of(document: JsonObject, name: str) -> int:
    """Return a number of a document; 0 without one."""
    found = document.get(name)
    return found if isinstance(found, int) else 0


def invalid(message: str) -> InvalidArgument:
    """Return the error for a definition that a table of neve cannot have."""
    return InvalidArgument(message, hint="See the guide `Attach other engines`")
