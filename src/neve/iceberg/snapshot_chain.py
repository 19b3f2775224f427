"""SnapshotChain: the successive snapshots of a table, and the manifests of the newest.

    read back    document ──► list ──► manifests       checked against their Version
    advance      Version n-1, edit n ──► manifests that change, list, snapshot n
    rebuild      oldest retained Version, whole ──► advance to the current one

Files are written for a document, whose number `target` they carry.

ICEBERG-13  A chain that was read back holds exactly the files and vectors of its Version; anything
            else is Corruption, and nothing is built on it.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from neve.errors import Corruption, NotFound
from neve.iceberg.delete_files import DeleteFiles, PositionFiles, VectorFiles
from neve.iceberg.entry_encoder import FORMAT_WITH_VECTORS, EntryEncoder, delete_key
from neve.iceberg.iceberg_file import DATA
from neve.iceberg.manifest_set import LiveEntry, Manifest, ManifestSet
from neve.iceberg.metadata_folder import MetadataFolder
from neve.iceberg.pyiceberg_bridge import (
    ADDED,
    DELETED,
    ManifestRecord,
    encode_manifest_list,
    read_manifest,
)
from neve.iceberg.table_metadata import (
    OPERATIONS,
    TableDescription,
    change_summary,
    snapshot_document,
    snapshot_number,
)
from neve.manifest.sessions import ReadSession
from neve.manifest.table_versions import TableVersions
from neve.model.data_file import DataFile
from neve.model.partition_spec import PartitionIdentity
from neve.model.schema_json import JsonObject
from neve.model.version import Version, VersionEdit
from neve.model.version_summary import Totals, VersionChange, change_between

KnownManifests: TypeAlias = Mapping[str, Manifest]
"""Manifests that were read or written before, by location."""


class SnapshotChain:
    """Snapshots up to one Version; used by one thread at a time, and discarded when it fails."""

    def __init__(
        self, folder: MetadataFolder, versions: TableVersions, format_version: int
    ) -> None:
        self._folder = folder
        self._versions = versions
        self._format_version = format_version
        self._deletes: DeleteFiles = (
            VectorFiles(folder.objects, folder.paths, folder.locate)
            if format_version >= FORMAT_WITH_VECTORS
            else PositionFiles(folder.objects, folder.paths, folder.locate)
        )
        self.snapshots: list[JsonObject] = []
        """Ascending; the last one is that of the Version the chain is at."""
        self.lists: dict[str, frozenset[str]] = {}
        """Names of the manifests of each list that this chain wrote."""
        self._version: Version | None = None
        self._set: ManifestSet | None = None
        self._totals = Totals()
        self._encoder: EntryEncoder | None = None
        self._identity = PartitionIdentity.of_definitions((), ())
        self._defined: tuple[int, int] | None = None

    def load(
        self,
        session: ReadSession,
        table: TableDescription,
        number: int,
        snapshots: Sequence[JsonObject],
        *,
        sizes: Mapping[str, int],
        known: KnownManifests,
    ) -> None:
        """Read back the lists of a Version's document; raises NotFound, Corruption (ICEBERG-13).

        `sizes` has the existing files. Known manifests are not read again.
        """
        version = self._versions.version_in(session, number)
        self._use(table)
        manifests = []
        if snapshots:
            location = snapshots[-1].get("manifest-list")
            if not isinstance(location, str):
                raise Corruption("a snapshot has no manifest list", path=self._path)
            manifests = self._read_manifests(location, version, known)
        found = ManifestSet.of(self._encoding, manifests)
        if found.live_keys != self._keys_of(version):
            raise Corruption(
                f"the manifests of version {number} do not hold its files", path=self._path
            )
        if not self._deletes.are_whole(version.files.values()):
            raise Corruption("position deletes are missing or damaged", path=self._path)
        self._set = found
        self._version = version
        self._totals = Totals.of(version.files, self._deletes.counted_bytes)
        # Old snapshots whose lists were deleted can no longer be read.
        *older, last = snapshots or [{}]
        self.snapshots = [each for each in older if self._is_present(each, sizes)]
        if snapshots:
            self.snapshots.append(last)

    @property
    def manifests(self) -> KnownManifests:
        """The manifests of the newest snapshot."""
        assert self._set is not None
        return {
            each.record.manifest_path: each
            for group in self._set.manifests.values()
            for each in group
        }

    def advance_to(self, session: ReadSession, table: TableDescription, target: int) -> None:
        """Add the snapshots of all Versions up to the current one; raises NotFound."""
        assert self._version is not None
        self._use(table)
        for number in range(self._version.number + 1, table.version.number + 1):
            edit = self._versions.edit_in(session, number)
            self._advance(self._versions.version_in(session, number), edit, target=target)

    def rebuild(
        self, session: ReadSession, table: TableDescription, target: int, *, limit: int
    ) -> None:
        """Write everything again, from the newest retained Versions."""
        self._use(table)
        number = table.version.number
        first = number
        while first - 1 in table.retained and number - first + 1 < limit:
            first -= 1
        base = self._versions.version_in(session, first)
        self.snapshots = []
        whole = self._fill(session, base, target=target)
        if whole is not None:
            self.snapshots.append(whole)
        self._version = base
        self._totals = Totals.of(base.files, self._deletes.counted_bytes)
        self.advance_to(session, table, target)

    def is_whole(self, sizes: Mapping[str, int]) -> bool:
        """Return whether the newest snapshot's files, and the lists of all, still exist."""
        assert self._version is not None
        assert self._set is not None
        name_of = self._folder.name_of
        return (
            all(self._is_present(each, sizes) for each in self.snapshots)
            and all(
                sizes.get(name_of(each.manifest_path)) == each.manifest_length
                for each in self._set.records
            )
            and self._deletes.are_whole(self._version.files.values())
        )

    def list_tagged(
        self, session: ReadSession, table: TableDescription, target: int
    ) -> dict[str, int]:
        """Return the snapshots of tags, adding those that are not listed."""
        self._use(table)
        resolved: dict[str, int] = {}
        made: dict[int, int | None] = {}
        kept_set = self._set
        for tag, number in table.tags.items():
            if number not in made:
                made[number] = self._snapshot_of(session, table, number, target=target)
            found = made[number]
            if found is not None:
                resolved[tag] = found
        self._set = kept_set
        return resolved

    @property
    def _path(self) -> str:
        return self._folder.paths.metadata

    @property
    def _encoding(self) -> EntryEncoder:
        assert self._encoder is not None
        return self._encoder

    def _use(self, table: TableDescription) -> None:
        """Encode entries under the table's definitions; there may be more than before."""
        defined = len(table.schemas), len(table.specs)
        if defined == self._defined:
            return
        self._defined = defined
        schemas = [table.schemas[number] for number in sorted(table.schemas)]
        self._identity = PartitionIdentity.of_definitions(table.specs.values(), schemas)
        self._encoder = EntryEncoder(
            format_version=self._format_version,
            schemas=table.schemas,
            specs=table.specs,
            locate=self._folder.locate,
            deletes=self._deletes,
        )
        if self._set is not None:
            self._set.encoder = self._encoder

    def _snapshot_of(
        self, session: ReadSession, table: TableDescription, number: int, *, target: int
    ) -> int | None:
        """Return the snapshot with the rows of a Version, made if it is not listed."""
        listed = {snapshot_number(each) for each in self.snapshots}
        at = number
        while at not in listed and at in table.retained:
            version = self._versions.version_in(session, at)
            if version.facts.operation in OPERATIONS:
                break
            at -= 1  # it only changed definitions
        if at in listed:
            return at
        version = self._versions.version_in(session, number)
        whole = self._fill(session, version, target=target)
        if whole is None:
            return None
        self.snapshots = sorted([*self.snapshots, whole], key=snapshot_number)
        return number

    def _fill(self, session: ReadSession, version: Version, *, target: int) -> JsonObject | None:
        """Write manifests of a whole Version; return its snapshot, None when it has no rows yet."""
        edit = self._edit_of(session, version.number)
        self._set = ManifestSet(self._encoding)
        if not version.files and version.facts.operation not in OPERATIONS:
            return None
        added = frozenset(file.path for file in edit.added) if edit else frozenset()
        marked = frozenset(edit.vectors) if edit else frozenset()
        self._set.fill(
            version.files.values(),
            number=version.number,
            added=added,
            marked=marked,
            write=lambda payload: self._folder.write_manifest(target, payload),
        )
        change = VersionChange(
            number=version.number,
            added=[version.files[path] for path in version.files if path in added],
            marked=[
                file
                for file in version.files.values()
                if file.vector is not None and file.path in marked | added
            ],
        )
        return self._snapshot(
            version,
            change,
            Totals.of(version.files, self._deletes.counted_bytes),
            parent_id=None,
            target=target,
        )

    def _edit_of(self, session: ReadSession, number: int) -> VersionEdit | None:
        try:
            return self._versions.edit_in(session, number)
        except NotFound:
            return None

    def _advance(self, version: Version, edit: VersionEdit, *, target: int) -> None:
        before, manifests = self._version, self._set
        assert before is not None
        assert manifests is not None
        change = change_between(before, version, edit)
        self._version = version
        is_change = bool(change.added or change.removed or change.marked or change.unmarked)
        if not is_change and version.facts.operation not in OPERATIONS:
            return
        manifests.advance(change, lambda payload: self._folder.write_manifest(target, payload))
        self._totals = self._totals.after(change, self._deletes.counted_bytes)
        parent_id = snapshot_number(self.snapshots[-1]) if self.snapshots else None
        self.snapshots.append(
            self._snapshot(version, change, self._totals, parent_id=parent_id, target=target)
        )

    def _snapshot(
        self,
        version: Version,
        change: VersionChange,
        totals: Totals,
        *,
        parent_id: int | None,
        target: int,
    ) -> JsonObject:
        assert self._set is not None
        payload = encode_manifest_list(
            self._set.records,
            format_version=self._format_version,
            snapshot_id=version.number,
            parent_id=parent_id,
            first_row_id=version.first_row_id,
        )
        has_vectors = self._format_version >= FORMAT_WITH_VECTORS
        location = self._folder.write_list(target, payload)
        name_of = self._folder.name_of
        self.lists[name_of(location)] = frozenset(
            name_of(each.manifest_path) for each in self._set.records
        )
        return snapshot_document(
            version,
            parent_id=parent_id,
            manifest_list=location,
            summary=change_summary(
                version,
                change,
                totals,
                identity=self._identity,
                has_vectors=has_vectors,
                delete_bytes=self._deletes.counted_bytes,
            ),
            has_row_ids=has_vectors,
        )

    def _keys_of(self, version: Version) -> set[str]:
        encoder = self._encoding
        keys = {encoder.data_key(file) for file in version.files.values()}
        return keys | {
            encoder.delete_key(file) for file in version.files.values() if file.vector is not None
        }

    def _read_manifests(
        self, location: str, version: Version, known: KnownManifests
    ) -> list[Manifest]:
        encoder = self._encoding
        files: dict[str, DataFile] = {}
        for file in version.files.values():
            files[encoder.data_key(file)] = file
            if file.vector is not None:
                files[encoder.delete_key(file)] = file
        found = []
        for record in self._folder.read_list(location):
            before = known.get(record.manifest_path)
            found.append(
                self._read_manifest(record, files)
                if before is None
                else Manifest(record, before.live)
            )
        return found

    def _read_manifest(self, record: ManifestRecord, files: dict[str, DataFile]) -> Manifest:
        payload = self._folder.read_intact(record.manifest_path)
        live: dict[str, LiveEntry] = {}
        for entry in read_manifest(payload, path=record.manifest_path):
            if entry.status == DELETED:
                continue
            key = entry.file_path
            if record.content != DATA:
                key = delete_key(entry.file_path, entry.content_offset)
            file = files.get(key)
            snapshot_id = record.added_snapshot_id if entry.status == ADDED else entry.snapshot_id
            if file is None or snapshot_id is None:
                raise Corruption("a manifest lists what is not in its version", path=self._path)
            if record.content != DATA:
                self._deletes.learn(file, entry.file_bytes)
            sequence = entry.sequence_number
            live[key] = LiveEntry(
                key, file, snapshot_id, record.sequence_number if sequence is None else sequence
            )
        return Manifest(record, live)

    def _is_present(self, snapshot: JsonObject, sizes: Mapping[str, int]) -> bool:
        location = snapshot.get("manifest-list")
        return isinstance(location, str) and bool(sizes.get(self._folder.name_of(location)))


def published_sequences(folder: MetadataFolder, snapshot: JsonObject) -> dict[str, int]:
    """Return the data sequence numbers of a snapshot's data files, by location.

    Raises NotFound, and Corruption.
    """
    found: dict[str, int] = {}
    for record in folder.read_list(str(snapshot.get("manifest-list"))):
        if record.content != DATA:
            continue
        for entry in read_manifest(
            folder.read_intact(record.manifest_path), path=record.manifest_path
        ):
            if entry.status != DELETED:
                sequence = entry.sequence_number
                found[entry.file_path] = record.sequence_number if sequence is None else sequence
    return found
