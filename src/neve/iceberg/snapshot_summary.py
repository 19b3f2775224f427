"""Snapshots of Iceberg's metadata: one for every Version that changed rows or files.

    CREATE, EVOLVE    no snapshot, only new metadata
    APPEND            append       files came, no row left
    OVERWRITE         overwrite    files came, rows left
    DELETE            delete       rows left
    REPLACE           replace      the same rows in other files
    ROLLBACK          overwrite    an old Version came back

The snapshot's id and its sequence number are the Version's number. What a summary counts is said in
`neve.model.version_summary`.
"""

from collections.abc import Mapping
from typing import Final

from neve.errors import Corruption
from neve.model.partitions import PartitionIdentity
from neve.model.schema_json import JsonObject
from neve.model.version import Operation, Version
from neve.model.version_summary import DeleteBytes, Totals, VersionChange, shown_counters

OPERATIONS: Final[Mapping[Operation, str]] = {
    Operation.APPEND: "append",
    Operation.OVERWRITE: "overwrite",
    Operation.DELETE: "delete",
    Operation.REPLACE: "replace",
    Operation.ROLLBACK: "overwrite",
}

_OWN_WORDS: Final = ("reason", "restored-version")


def change_summary(
    version: Version,
    change: VersionChange,
    totals: Totals,
    *,
    identity: PartitionIdentity,
    has_vectors: bool,
    delete_bytes: DeleteBytes,
) -> dict[str, str]:
    """Say what a Version changed, in the words of Iceberg."""
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
