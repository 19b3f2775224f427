"""Snapshots of Iceberg's metadata: one for every Version that changed rows or files.

    CREATE, EVOLVE    no snapshot, only new metadata
    APPEND            append       files came, no row left
    OVERWRITE         overwrite    files came, rows left
    DELETE            delete       rows left
    REPLACE           replace      the same rows in other files
    ROLLBACK          overwrite    an old Version came back

The snapshot's id and its sequence number are the Version's number. Counters of a summary count
files and their rows, as Iceberg does: deleted rows stay counted until their file goes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neve.errors import Corruption
from neve.iceberg.manifest_set import SnapshotChange
from neve.model.data_file import DataFile
from neve.model.partition_identity import PartitionIdentity
from neve.model.schema_json import JsonObject
from neve.model.version import Operation, Version

OPERATIONS: Final[Mapping[Operation, str]] = {
    Operation.APPEND: "append",
    Operation.OVERWRITE: "overwrite",
    Operation.DELETE: "delete",
    Operation.REPLACE: "replace",
    Operation.ROLLBACK: "overwrite",
}

_OWN_WORDS: Final = ("reason", "restored-version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a snapshot holds."""

    data_files: int = 0
    records: int = 0
    file_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0

    @classmethod
    def of(cls, version: Version) -> "Totals":
        """Add up a whole Version."""
        return cls().after(
            added=list(version.files.values()),
            marked=[file for file in version.files.values() if file.vector is not None],
        )

    def after(
        self,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[DataFile] = (),
        marked: Sequence[DataFile] = (),
        unmarked: Sequence[DataFile] = (),
    ) -> "Totals":
        """Give the totals after a change."""
        return replace(
            self,
            data_files=self.data_files + len(added) - len(removed),
            records=self.records + _rows(added) - _rows(removed),
            file_bytes=self.file_bytes + _bytes(added) - _bytes(removed),
            delete_files=self.delete_files + len(marked) - len(unmarked),
            position_deletes=self.position_deletes + _marks(marked) - _marks(unmarked),
        )

    @property
    def summary(self) -> dict[str, str]:
        """Members of a snapshot's summary."""
        return {
            "total-data-files": str(self.data_files),
            "total-records": str(self.records),
            "total-files-size": str(self.file_bytes),
            "total-delete-files": str(self.delete_files),
            "total-position-deletes": str(self.position_deletes),
            "total-equality-deletes": "0",
        }


def change_summary(
    version: Version,
    change: SnapshotChange,
    totals: Totals,
    *,
    identity: PartitionIdentity,
    has_vectors: bool,
) -> dict[str, str]:
    """Say what a Version changed, in the words of Iceberg."""
    partitions = {
        identity.of(file)
        for group in (change.added, change.removed, change.marked, change.unmarked)
        for file in group
    }
    counters = {
        "added-data-files": len(change.added),
        "added-records": _rows(change.added),
        "added-files-size": _bytes(change.added),
        "deleted-data-files": len(change.removed),
        "deleted-records": _rows(change.removed),
        "removed-files-size": _bytes(change.removed),
        "added-delete-files": len(change.marked),
        "added-position-deletes": _marks(change.marked),
        "added-dvs" if has_vectors else "added-position-delete-files": len(change.marked),
        "removed-delete-files": len(change.unmarked),
        "removed-position-deletes": _marks(change.unmarked),
        "removed-dvs" if has_vectors else "removed-position-delete-files": len(change.unmarked),
    }
    own = {f"neve.{name}": version.facts.summary[name] for name in _OWN_WORDS
           if name in version.facts.summary}  # fmt: skip
    return {
        "operation": OPERATIONS.get(version.facts.operation, "replace"),
        **{name: str(count) for name, count in counters.items() if count},
        "changed-partition-count": str(len(partitions)),
        **totals.summary,
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
    """Give a snapshot as a member of the metadata."""
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


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.row_count for file in files)


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.file_bytes for file in files)


def _marks(files: Sequence[DataFile]) -> int:
    return sum(file.deleted_count for file in files)
