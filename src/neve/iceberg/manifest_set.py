"""ManifestSet: the manifests of a table's newest snapshot, and how the next snapshot changes them.

    before      m1 [a b c]   m2 [d e]               commit: removes b, adds f
    after       m3 [a b̶ c]   m2 [d e]   m4 [f]      m1 is rewritten as m3, m2 is carried as it is

A commit writes one manifest of what it adds, and rewrites those that hold what it removes; the cost
grows with the change. Many small manifests of one kind are merged into larger ones now and then.

ICEBERG-7  A live file is in exactly one manifest of a snapshot; data and deletes are never in one.
ICEBERG-8  An added file inherits the number of its snapshot, unless a rollback restores it: then it
           has its old data sequence number, written out. A carried file has its numbers written
           out, and so has a removed one, which only the snapshot that removes it lists.
ICEBERG-9  A data file that was just added inherits its row ids when they are consecutive in the
           manifest, as they are when a commit assigned them; otherwise they are written out.
ICEBERG-10  Vectors are listed in the order of their places in their files. DuckDB 1.5 reads them as
            they are listed, and its file cache may return the bytes of another vector when they are
            read out of order: it would hide the wrong rows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from neve.iceberg.entry_encoder import EntryEncoder
from neve.iceberg.iceberg_file import DATA, POSITION_DELETES, IcebergFile
from neve.iceberg.pyiceberg_bridge import ADDED, DELETED, EXISTING, ManifestRecord
from neve.model.data_file import DataFile
from neve.model.plain_values import PlainValue
from neve.model.version_summary import VersionChange

MANIFEST_ENTRIES_MAX: Final = 256
SMALL_MANIFESTS_MAX: Final = 32

WriteManifest = Callable[[bytes], str]
"""Stores the bytes of a manifest; returns its location."""


@dataclass(slots=True)
class LiveEntry:
    """A file that the newest snapshot reads."""

    key: str
    file: DataFile
    """For deletes, the data file with the vector they are made of."""
    snapshot_id: int
    """The snapshot that added it; also its file sequence number."""
    sequence: int
    """Its data sequence number, which readers use for rows that do not have their own."""
    carried: bytes | None = None
    """Bytes of the entry as it is carried, once they were needed."""


@dataclass(slots=True)
class Manifest:
    """One manifest of the newest snapshot."""

    record: ManifestRecord
    live: dict[str, LiveEntry]


@dataclass(slots=True)
class ManifestSet:
    """Manifests by kind, in the order they were added."""

    encoder: EntryEncoder
    manifests: dict[int, list[Manifest]] = field(
        default_factory=lambda: {DATA: [], POSITION_DELETES: []}
    )
    _places: dict[str, Manifest] = field(default_factory=dict)
    """The manifest of every live key; keys of data and of deletes differ."""

    @classmethod
    def of(cls, encoder: EntryEncoder, manifests: Iterable[Manifest]) -> "ManifestSet":
        """Return the set of manifests that were read."""
        found = cls(encoder)
        for manifest in manifests:
            found._keep(manifest)
        return found

    @property
    def records(self) -> list[ManifestRecord]:
        """What the manifest list says."""
        return [
            manifest.record for content in sorted(self.manifests)
            for manifest in self.manifests[content]
        ]  # fmt: skip

    @property
    def live_keys(self) -> set[str]:
        """What the newest snapshot reads."""
        return set(self._places)

    def fill(
        self,
        files: Iterable[DataFile],
        *,
        number: int,
        added: frozenset[str],
        marked: frozenset[str],
        write: WriteManifest,
    ) -> None:
        """Start from a whole Version; some of its paths and vectors are new, the others are not.

        Old vectors, and data files that do not say which Version added them, count as those of the
        Version before.
        """
        listed = list(files)
        items = [self._data(file, number, is_new=file.path in added) for file in listed]
        self._write_all(DATA, items, number, write)
        deletes = [
            self._deletes(file, number, is_new=file.path in marked or file.path in added)
            for file in listed
            if file.vector is not None
        ]
        self._write_all(POSITION_DELETES, deletes, number, write)

    def advance(self, change: VersionChange, write: WriteManifest) -> None:
        """Apply a commit, writing the manifests that it changes."""
        encoder, number = self.encoder, change.number
        plans = (
            (
                DATA,
                [encoder.data_key(file) for file in change.removed],
                [self._data(file, number, is_new=True) for file in change.added],
            ),
            (
                POSITION_DELETES,
                [encoder.delete_key(file) for file in change.unmarked],
                [self._deletes(file, number, is_new=True) for file in change.marked],
            ),
        )
        for content, gone, come in plans:
            self.manifests[content] = [each for each in self.manifests[content] if each.live]
            self._remove(content, gone, number, write)
            self._merge(content, number, write)
            self._write_all(content, come, number, write)

    def _data(self, file: DataFile, number: int, *, is_new: bool) -> tuple[LiveEntry, int]:
        sequence = file.data_sequence or (number if is_new else number - 1)
        snapshot_id, status = (number, ADDED) if is_new else (sequence, EXISTING)
        return LiveEntry(self.encoder.data_key(file), file, snapshot_id, sequence), status

    def _deletes(self, file: DataFile, number: int, *, is_new: bool) -> tuple[LiveEntry, int]:
        before = max(number - 1, file.data_sequence)  # they never apply to rows after them
        snapshot_id, status = (number, ADDED) if is_new else (before, EXISTING)
        return LiveEntry(self.encoder.delete_key(file), file, snapshot_id, snapshot_id), status

    def _remove(self, content: int, keys: Sequence[str], number: int, write: WriteManifest) -> None:
        """Rewrite the manifests that hold removed files."""
        touched: dict[int, Manifest] = {}
        gone: dict[int, list[LiveEntry]] = {}
        for key in keys:
            manifest = self._places.pop(key)
            touched[id(manifest)] = manifest
            gone.setdefault(id(manifest), []).append(manifest.live.pop(key))
        if not touched:
            return
        rewritten = []
        for manifest in self.manifests[content]:
            if id(manifest) in touched:
                items = [(entry, EXISTING) for entry in manifest.live.values()]
                items += [(entry, DELETED) for entry in gone[id(manifest)]]
                made = self._make(content, items, number, write)
                self._place(made)
                rewritten.append(made)
            else:
                rewritten.append(manifest)
        self.manifests[content] = rewritten

    def _merge(self, content: int, number: int, write: WriteManifest) -> None:
        """Turn many small manifests of one spec into few large ones."""
        by_spec: dict[int, list[Manifest]] = {}
        for manifest in self.manifests[content]:
            # One that was just rewritten still lists what was removed.
            is_settled = manifest.record.added_snapshot_id != number
            if is_settled and len(manifest.live) <= MANIFEST_ENTRIES_MAX // 2:
                by_spec.setdefault(manifest.record.partition_spec_id, []).append(manifest)
        for small in by_spec.values():
            if len(small) <= SMALL_MANIFESTS_MAX:
                continue
            merged = {id(each) for each in small}
            kept = [each for each in self.manifests[content] if id(each) not in merged]
            self.manifests[content] = kept
            entries = [entry for each in small for entry in each.live.values()]
            self._write_chunks(content, [(entry, EXISTING) for entry in entries], number, write)

    def _write_all(
        self,
        content: int,
        items: Sequence[tuple[LiveEntry, int]],
        number: int,
        write: WriteManifest,
    ) -> None:
        by_spec: dict[int, list[tuple[LiveEntry, int]]] = {}
        for entry, status in items:
            by_spec.setdefault(entry.file.spec_id, []).append((entry, status))
        for group in by_spec.values():
            self._write_chunks(content, group, number, write)

    def _write_chunks(
        self,
        content: int,
        items: list[tuple[LiveEntry, int]],
        number: int,
        write: WriteManifest,
    ) -> None:
        if content == POSITION_DELETES:
            items = sorted(items, key=lambda item: _place_of(item[0]))  # ICEBERG-10
        for first in range(0, len(items), MANIFEST_ENTRIES_MAX):
            chunk = items[first : first + MANIFEST_ENTRIES_MAX]
            self._keep(self._make(content, chunk, number, write))

    def _keep(self, manifest: Manifest) -> None:
        self.manifests[manifest.record.content].append(manifest)
        self._place(manifest)

    def _place(self, manifest: Manifest) -> None:
        for key in manifest.live:
            self._places[key] = manifest

    def _make(
        self,
        content: int,
        items: Sequence[tuple[LiveEntry, int]],
        number: int,
        write: WriteManifest,
    ) -> Manifest:
        """Write one manifest of entries with their status; all are of one spec."""
        encoder = self.encoder
        spec_id = items[0][0].file.spec_id
        first_row_id = items[0][0].file.first_row_id if content == DATA else None
        inherited = first_row_id
        encoded: list[bytes] = []
        counts = [[0, 0], [0, 0], [0, 0]]
        partitions: list[tuple[PlainValue | None, ...]] = []
        for entry, status in items:
            rows = entry.file.row_count if content == DATA else entry.file.deleted_count
            counts[status][0] += 1
            counts[status][1] += rows
            partitions.append(encoder.partition(entry.file))
            if status == ADDED and content == DATA and entry.file.first_row_id == inherited:
                inherited = None if inherited is None else inherited + rows
                encoded.append(self._added(entry, content, number, inherits_row_ids=True))
            elif status == ADDED:
                encoded.append(self._added(entry, content, number, inherits_row_ids=False))
            elif status == EXISTING:
                encoded.append(self._carried(entry, content))
            else:
                encoded.append(self._deleted(entry, content, number))
        payload = encoder.manifest(encoded, spec_id=spec_id, content=content)
        live = {entry.key: entry for entry, status in items if status != DELETED}
        record = ManifestRecord(
            manifest_path=write(payload),
            manifest_length=len(payload),
            partition_spec_id=spec_id,
            content=content,
            sequence_number=number,
            min_sequence_number=min((each.sequence for each in live.values()), default=number),
            added_snapshot_id=number,
            added_files_count=counts[ADDED][0],
            existing_files_count=counts[EXISTING][0],
            deleted_files_count=counts[DELETED][0],
            added_rows_count=counts[ADDED][1],
            existing_rows_count=counts[EXISTING][1],
            deleted_rows_count=counts[DELETED][1],
            partitions=encoder.summaries(partitions, spec_id=spec_id),
            first_row_id=first_row_id,
        )
        return Manifest(record, live)

    def _added(
        self, entry: LiveEntry, content: int, number: int, *, inherits_row_ids: bool
    ) -> bytes:
        described = self.encoder.describe(entry.file, content=content)
        if inherits_row_ids:
            described = replace(described, first_row_id=None)
        is_back = entry.sequence != number
        return self._encoded(
            entry, described, ADDED, number, (entry.sequence if is_back else None, None)
        )

    def _carried(self, entry: LiveEntry, content: int) -> bytes:
        if entry.carried is None:
            described = self.encoder.describe(entry.file, content=content)
            sequences = entry.sequence, entry.snapshot_id
            entry.carried = self._encoded(entry, described, EXISTING, entry.snapshot_id, sequences)
        return entry.carried

    def _deleted(self, entry: LiveEntry, content: int, number: int) -> bytes:
        described = self.encoder.describe(entry.file, content=content)
        sequences = entry.sequence, entry.snapshot_id
        return self._encoded(entry, described, DELETED, number, sequences)

    def _encoded(
        self,
        entry: LiveEntry,
        described: IcebergFile,
        status: int,
        snapshot_id: int,
        sequences: tuple[int | None, int | None],
    ) -> bytes:
        """Return the bytes of an entry; `sequences` are those of its data and of its file."""
        return self.encoder.entry(
            described,
            spec_id=entry.file.spec_id,
            status=status,
            snapshot_id=snapshot_id,
            sequences=sequences,
        )


def _place_of(entry: LiveEntry) -> tuple[str, int]:
    vector = entry.file.vector
    assert vector is not None
    return vector.path, vector.offset
