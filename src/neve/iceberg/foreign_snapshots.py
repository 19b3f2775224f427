"""Snapshots that another engine asks a catalog to add: what their manifests add and remove.

    snapshot ──► manifest list ──► manifests that this snapshot added ──► entries
                                                                          status 1 added, 2 removed

Manifests of earlier snapshots are in the list, too; only those of the snapshot itself say what it
changes. All of them together say which files the table has (`read_live_files`); those of all
snapshots say which ones it may still need (`named_files`). Files are fetched through the caller,
who decides which places may be read.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from neve.errors import Corruption, InvalidArgument
from neve.iceberg.pyiceberg_bridge import (
    ADDED,
    DELETED,
    ManifestRecord,
    ReadEntry,
    read_manifest,
    read_manifest_list,
)
from neve.jobs.adoption import GuestFile, GuestFiles
from neve.jobs.foreign_commit import ForeignSnapshot
from neve.jobs.foreign_files import ForeignFile
from neve.model.schema_json import Json, objects_of

_EQUALITY: Final = 2

Fetch = Callable[[str], bytes]
"""Returns the bytes at a location; raises InvalidArgument for a place that may not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSnapshot:
    """A snapshot, and the files that its engine wrote for it."""

    snapshot_id: int
    operation: str
    schema_id: int | None
    changes: ForeignSnapshot
    written: tuple[str, ...] = field(default=())
    """Locations of the manifest list, manifests and files: none is needed after the commit."""


def read_snapshot(snapshot: Mapping[str, Json], fetch: Fetch) -> ReadSnapshot:
    """Read what a snapshot changes; raises InvalidArgument."""
    snapshot_id, manifest_list = snapshot.get("snapshot-id"), snapshot.get("manifest-list")
    if not isinstance(snapshot_id, int) or not isinstance(manifest_list, str):
        raise InvalidArgument(
            "a snapshot has no id or no manifest list",
            hint="Write a manifest list: format 1's inline manifests are not taken",
        )
    schema_id = snapshot.get("schema-id")
    summary = snapshot.get("summary")
    operation = summary.get("operation") if isinstance(summary, dict) else None
    written: list[str] = [manifest_list]
    added: list[ForeignFile] = []
    removed: list[ForeignFile] = []
    deletes_added: list[ForeignFile] = []
    deletes_removed: list[ForeignFile] = []
    for location, entry in _entries(snapshot_id, manifest_list, fetch):
        if location not in written:
            written.append(location)
        if entry.status == ADDED:
            (deletes_added if entry.content else added).append(_file_of(entry))
            written.append(entry.file_path)
        elif entry.status == DELETED:
            (deletes_removed if entry.content else removed).append(_file_of(entry))
    return ReadSnapshot(
        snapshot_id=snapshot_id,
        operation=str(operation or ""),
        schema_id=schema_id if isinstance(schema_id, int) else None,
        changes=ForeignSnapshot(
            added=tuple(added),
            removed=tuple(removed),
            deletes_added=tuple(deletes_added),
            deletes_removed=tuple(deletes_removed),
        ),
        written=tuple(dict.fromkeys(written)),
    )


def read_live_files(document: Mapping[str, Json], fetch: Fetch) -> GuestFiles:
    """Read the files of the current snapshot of a table; raises InvalidArgument."""
    snapshot_id = document.get("current-snapshot-id")
    snapshot = next(
        (
            each
            for each in objects_of(document.get("snapshots"))
            if each["snapshot-id"] == snapshot_id
        ),
        None,
    )
    if snapshot is None:
        return GuestFiles()
    manifest_list = snapshot.get("manifest-list")
    if not isinstance(manifest_list, str):
        raise InvalidArgument(
            "the table's snapshot has no manifest list",
            hint="Upgrade it to format 2 with the engine that wrote it",
        )
    specs = {each.get("spec-id"): each for each in objects_of(document.get("partition-specs"))}
    data: list[GuestFile] = []
    deletes: list[GuestFile] = []
    for manifest, entry in _live_entries(manifest_list, fetch):
        sequence = entry.sequence_number
        found = GuestFile(
            file=_file_of(entry),
            sequence=manifest.sequence_number or 0 if sequence is None else sequence,
            row_count=entry.row_count,
        )
        if entry.content == _EQUALITY:
            _check_scope(entry, specs, manifest.partition_spec_id)
        (deletes if entry.content else data).append(found)
    return GuestFiles(tuple(data), tuple(deletes))


def named_files(document: Mapping[str, Json], fetch: Fetch, known: set[str]) -> None:
    """Add the files that a document names, through all its snapshots, to `known`.

    What is known already is not read again. Raises InvalidArgument for what cannot be read.
    """
    for log in objects_of(document.get("metadata-log")):
        known.update(_texts(log.get("metadata-file")))
    for member in ("statistics", "partition-statistics"):
        for each in objects_of(document.get(member)):
            known.update(_texts(each.get("statistics-path")))
    for snapshot in objects_of(document.get("snapshots")):
        inline = snapshot.get("manifests")  # format 1
        manifests = _texts(*inline) if isinstance(inline, list) else []
        with _readable("table", hint="Restore it"):
            for location in _texts(snapshot.get("manifest-list")):
                if location not in known:
                    found = read_manifest_list(fetch(location), path=location)
                    manifests.extend(each.manifest_path for each in found)
                    known.add(location)
            for location in manifests:
                if location not in known:
                    entries = read_manifest(fetch(location), path=location)
                    known.update(each.file_path for each in entries)
                    known.add(location)


@contextmanager
def _readable(owner: str, *, hint: str) -> Iterator[None]:
    """Turn Corruption of metadata that another engine wrote into InvalidArgument."""
    try:
        yield
    except Corruption as error:
        raise InvalidArgument(
            f"the {owner}'s metadata cannot be read: {error.message}", path=error.path, hint=hint
        ) from error


def _texts(*given: Json) -> list[str]:
    return [each for each in given if isinstance(each, str)]


def _live_entries(manifest_list: str, fetch: Fetch) -> Iterator[tuple[ManifestRecord, ReadEntry]]:
    with _readable("table", hint="Restore it, or register another version of the table"):
        for manifest in read_manifest_list(fetch(manifest_list), path=manifest_list):
            location = manifest.manifest_path
            for entry in read_manifest(fetch(location), path=location):
                if entry.status != DELETED:
                    yield manifest, entry


def _check_scope(entry: ReadEntry, specs: Mapping[Json, Mapping[str, Json]], spec_id: int) -> None:
    """Refuse equality deletes that hold in one partition only.

    Those with all columns that the partition is made of find no row in another one, if the table
    always had the same partitions.
    """
    sources = {each.get("source-id") for each in objects_of(specs.get(spec_id, {}).get("fields"))}
    if sources and (len(specs) > 1 or not sources <= {*entry.equality_ids}):
        raise InvalidArgument(
            "the table has equality deletes for one partition",
            path=entry.file_path,
            hint="Compact the table with the engine that wrote it: that applies them",
        )


def _entries(snapshot_id: int, manifest_list: str, fetch: Fetch) -> Iterator[tuple[str, ReadEntry]]:
    with _readable("commit", hint="Write it again"):
        for manifest in read_manifest_list(fetch(manifest_list), path=manifest_list):
            if manifest.added_snapshot_id != snapshot_id:
                continue
            location = manifest.manifest_path
            for entry in read_manifest(fetch(location), path=location):
                if entry.snapshot_id in {None, snapshot_id}:
                    yield location, entry


def _file_of(entry: ReadEntry) -> ForeignFile:
    return ForeignFile(
        location=entry.file_path,
        file_format=entry.file_format,
        equality_ids=entry.equality_ids if entry.content == _EQUALITY else (),
        referenced=entry.referenced_data_file,
        offset=entry.content_offset,
        length=entry.content_size,
    )
