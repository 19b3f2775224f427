"""Iceberg's metadata of one table: the JSON document that a reader opens first.

    v<D>.metadata.json ──► snapshots ──► manifest lists ──► manifests ──► data files and vectors
                      └──► schemas, specs, sort orders, refs, logs

D is the number of the document, not of the Version: a tag, a property or an expiry makes another
document of the same Version, and Versions in quick succession may share one. Its content follows
from the table and from the document before it, so two processes that publish the same state write
the same bytes. Two properties are neve's own: the number of the Version, and a checksum of the rest
of the document, without which nothing is built on it.

It has one snapshot for every Version that changed rows or files:

    CREATE, EVOLVE    no snapshot, only new metadata
    APPEND            append       files added, no row removed
    OVERWRITE         overwrite    files added, rows removed
    DELETE            delete       rows removed
    REPLACE           replace      the same rows in other files
    ROLLBACK          overwrite    an old Version restored

The snapshot's id and its sequence number are the Version's number. `neve.model.version_summary`
says what a summary counts.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from neve.errors import Corruption
from neve.iceberg.iceberg_file import KEY_ORDER_ID
from neve.iceberg.schema_document import (
    name_mapping,
    schema_document,
    sort_order_of_key,
    spec_documents,
    start_of_key_order,
)
from neve.model.partition_spec import FIRST_FIELD_ID, PartitionIdentity, PartitionSpec
from neve.model.schema import TableSchema
from neve.model.schema_json import Json, JsonObject, dump_compact
from neve.model.version import EXPIRED_ROWS, Operation, Version
from neve.model.version_summary import DeleteBytes, Totals, VersionChange, shown_counters

OPERATIONS: Final[Mapping[Operation, str]] = {
    Operation.APPEND: "append",
    Operation.OVERWRITE: "overwrite",
    Operation.DELETE: "delete",
    Operation.REPLACE: "replace",
    Operation.ROLLBACK: "overwrite",
}

_OWN_WORDS: Final = ("reason", "restored-version", EXPIRED_ROWS)


def change_summary(
    version: Version,
    change: VersionChange,
    totals: Totals,
    *,
    identity: PartitionIdentity,
    has_vectors: bool,
    delete_bytes: DeleteBytes,
) -> dict[str, str]:
    """Return what a Version changed, in Iceberg's terms."""
    partitions = {
        identity.of(file)
        for group in (change.added, change.removed, change.marked, change.unmarked)
        for file in group
    }
    counters = change.counters(delete_bytes)
    kind = "dvs" if has_vectors else "position-delete-files"
    counters[f"added-{kind}"] = len(change.marked)
    counters[f"removed-{kind}"] = len(change.unmarked)
    own = {f"neve.{name}": version.facts.summary[name] for name in _OWN_WORDS
           if name in version.facts.summary}  # fmt: skip
    return {
        "operation": OPERATIONS.get(version.facts.operation, "replace"),
        **shown_counters(counters),
        "changed-partition-count": str(len(partitions)),
        **totals.summary(),
        **own,
    }


def snapshot_document(
    version: Version,
    *,
    parent_id: int | None,
    manifest_list: str,
    summary: Mapping[str, str],
    has_row_ids: bool,
) -> JsonObject:
    """Return a snapshot as a member of the metadata."""
    members: JsonObject = {
        "snapshot-id": version.number,
        "sequence-number": version.number,
        "timestamp-ms": version.facts.timestamp_ms,
        "manifest-list": manifest_list,
        "summary": {**summary},
        "schema-id": version.facts.schema_id,
    }
    if parent_id is not None:
        members["parent-snapshot-id"] = parent_id
    if has_row_ids:
        members["first-row-id"] = version.first_row_id
        members["added-rows"] = version.next_row_id - version.first_row_id
    return members


def snapshot_number(snapshot: JsonObject) -> int:
    """Read the number of a snapshot; raises Corruption."""
    number = snapshot.get("snapshot-id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise Corruption("a snapshot of Iceberg's metadata has no id")
    return number


FORMAT_WITH_ROW_IDS: Final = 3
VERSION_PROPERTY: Final = "neve.version"
CHECKSUM_PROPERTY: Final = "neve.checksum"

_NAME_MAPPING: Final = "schema.name-mapping.default"
_RESERVED: Final = frozenset({"format-version"})
_UNSORTED_ID: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table as it is to be published."""

    table_uuid: str
    location: str
    format_version: int
    version: Version
    schemas: Mapping[int, TableSchema]
    specs: Mapping[int, PartitionSpec]
    sort_order: str
    properties: Mapping[str, str]
    tags: Mapping[str, int]
    retained: frozenset[int]
    """Numbers of the Versions whose files are kept."""

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return self.schemas[self.version.facts.schema_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHistory:
    """What a document carries over from the ones before it."""

    snapshots: tuple[JsonObject, ...] = ()
    """Ascending."""
    metadata_log: tuple[JsonObject, ...] = ()
    sort_orders: tuple[JsonObject, ...] = field(default=())


def metadata_document(table: TableDescription, history: PublishedHistory) -> JsonObject:
    """Return the document of a Version."""
    version = table.version
    schemas = [table.schemas[number] for number in sorted(table.schemas)]
    specs = [table.specs[number] for number in sorted(table.specs)]
    orders, default_order = _sort_orders(table, history.sort_orders)
    current = snapshot_number(history.snapshots[-1]) if history.snapshots else None
    document: JsonObject = {
        "format-version": table.format_version,
        "table-uuid": table.table_uuid,
        "location": table.location,
        "last-sequence-number": current or 0,
        "last-updated-ms": version.facts.timestamp_ms,
        "last-column-id": max(schema.last_field_id for schema in schemas),
        "current-schema-id": version.facts.schema_id,
        "schemas": [schema_document(schema) for schema in schemas],
        "default-spec-id": version.facts.spec_id,
        "partition-specs": _specs(table),
        "last-partition-id": max(
            (each.field_id for spec in specs for each in spec.fields), default=FIRST_FIELD_ID - 1
        ),
        "default-sort-order-id": default_order,
        "sort-orders": [{"order-id": _UNSORTED_ID, "fields": []}, *orders],
        "properties": _properties(table),
        "snapshots": [*history.snapshots],
        "snapshot-log": [
            {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]}
            for each in history.snapshots
        ],
        "metadata-log": [*history.metadata_log],
        "refs": _refs(table.tags, history.snapshots),
        "statistics": [],
        "partition-statistics": [],
    }
    if current is not None:
        document["current-snapshot-id"] = current
    elif table.format_version < FORMAT_WITH_ROW_IDS:
        document["current-snapshot-id"] = -1
    if table.format_version >= FORMAT_WITH_ROW_IDS:
        document["next-row-id"] = version.next_row_id
    return document


def encode_document(document: JsonObject) -> bytes:
    """Return the bytes of a document, with a checksum of the rest among its properties."""
    return dump_compact(_with_checksum(document, _checksum(document)))


def decode_document(payload: bytes, *, path: str) -> JsonObject:
    """Read a document; raises Corruption."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Corruption(f"Iceberg's metadata is not JSON: {error}", path=path) from error
    if not isinstance(document, dict) or not isinstance(document.get("properties"), dict):
        raise Corruption("Iceberg's metadata is not a JSON object with properties", path=path)
    found = document["properties"].pop(CHECKSUM_PROPERTY, None)
    if found != _checksum(document):
        raise Corruption("Iceberg's metadata is damaged, or was not written by neve", path=path)
    return document


def history_of(document: JsonObject, *, path: str) -> PublishedHistory:
    """Read what later documents carry over; raises Corruption."""
    return PublishedHistory(
        snapshots=_objects(document, "snapshots", path),
        metadata_log=_objects(document, "metadata-log", path),
        sort_orders=tuple(
            each
            for each in _objects(document, "sort-orders", path)
            if each.get("order-id") not in {_UNSORTED_ID, KEY_ORDER_ID}
        ),
    )


def version_of(document: JsonObject, *, path: str) -> int:
    """Return the Version that a document describes; raises Corruption."""
    properties = document.get("properties")
    found = properties.get(VERSION_PROPERTY) if isinstance(properties, dict) else None
    if not isinstance(found, str) or not found.isdecimal():
        raise Corruption("Iceberg's metadata does not say which version it is of", path=path)
    return int(found)


def _checksum(document: JsonObject) -> str:
    return hashlib.sha256(dump_compact(document)).hexdigest()


def _with_checksum(document: JsonObject, checksum: str) -> JsonObject:
    properties = document["properties"]
    assert isinstance(properties, dict)
    return {**document, "properties": {**properties, CHECKSUM_PROPERTY: checksum}}


def _objects(document: JsonObject, name: str, path: str) -> tuple[JsonObject, ...]:
    found = document.get(name)
    if not isinstance(found, list):
        raise Corruption(f"Iceberg's metadata has no list of {name}", path=path)
    objects: list[JsonObject] = []
    for each in found:
        if not isinstance(each, dict):
            raise Corruption(f"{name} of Iceberg's metadata hold something else", path=path)
        objects.append(each)
    return tuple(objects)


def _specs(table: TableDescription) -> list[Json]:
    """Return all specs by id; fields of the present one, then the newest, keep their names."""
    present = table.version.facts.spec_id
    order = sorted(table.specs, key=lambda number: (number != present, -number))
    documents = spec_documents((table.specs[number] for number in order), table.schema)
    return [documents[number] for number in sorted(documents)]


def _properties(table: TableDescription) -> JsonObject:
    kept: dict[str, Json] = {
        name: value for name, value in table.properties.items() if name not in _RESERVED
    }
    kept[_NAME_MAPPING] = name_mapping(table.schema)
    kept[VERSION_PROPERTY] = str(table.version.number)
    return kept


def _refs(tags: Mapping[str, int], snapshots: Sequence[JsonObject]) -> JsonObject:
    """Return the refs of snapshots: the newest one, and those of tagged Versions.

    A Version without a snapshot of its own has the rows of the last one before it.
    """
    numbers = [snapshot_number(each) for each in snapshots]
    refs: JsonObject = {}
    for tag, version in sorted(tags.items()):
        found = max((number for number in numbers if number <= version), default=None)
        if found is not None:
            refs[tag] = {"snapshot-id": found, "type": "tag"}
    if numbers:
        refs["main"] = {"snapshot-id": numbers[-1], "type": "branch"}
    return refs


def _sort_orders(
    table: TableDescription, known: Sequence[JsonObject]
) -> tuple[list[JsonObject], int]:
    """Return all sort orders except the empty one, and the id of the default one.

    All files are in the order of the key, so only leading key columns can be the default: see
    `neve.catalog.sort_order`, CATALOG-36.
    """
    schema = table.schema
    whole = sort_order_of_key(schema)
    orders: list[JsonObject] = [whole, *known]
    names = table.sort_order.split(",") if table.sort_order else []
    count = len(names)
    if not count or names != [column.name for column in schema.key_columns][:count]:
        return orders, _UNSORTED_ID
    if count == len(schema.key_columns):
        return orders, KEY_ORDER_ID
    for order in known:
        if order["fields"] == start_of_key_order(0, schema, count)["fields"]:
            assert isinstance(order["order-id"], int)
            return orders, order["order-id"]
    order_id = KEY_ORDER_ID + 1 + len(known)
    return [*orders, start_of_key_order(order_id, schema, count)], order_id
