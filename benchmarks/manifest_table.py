"""The table that the manifest workloads commit to, and what they see of its objects.

A commit adds one data file with the facts that a flush knows: place, sizes, key and sequence
bounds, and for each of five columns its size, counts and bounds. The file itself is written only
where a workload says so. Appends are of new keys: their lookup in other files finds nothing, at no
cost. A rewrite replaces one file of level 1 by another one of the same keys, as a compaction does.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from benchmarks.peers.one_row import (
    FIELD_NAMES,
    one_row,
    row_name,
    row_payload,
    row_score,
    row_visits,
)
from neve.keys.encoding import KeyEncoder
from neve.manifest.commit import TableCommitter
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.rebase import Keys, Proposal
from neve.manifest.table_head import HeadChange, TableHead
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_fold import fold_versions
from neve.manifest.writer_state import WriterState
from neve.model.data_file import ColumnStatistics, DataFile, VectorRef, WalSegmentRef
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.storage.clock import SystemClock, SystemIds
from neve.storage.object_store import ObjectInfo, ObjectStore, StoredObject
from neve.storage.posix_disk import PosixDisk

_PREFIX: Final = "manifest/version/bench"
_TABLE_UUID: Final = "6e657665-0000-4000-8000-000000000001"
_BOUND_BYTES: Final = 16
_FILE_BYTES: Final = 2_300
_COLUMN_BYTES: Final = 120
_KEYS: Final = KeyEncoder([pa.int64()], ["id"])

CommitTiny = Callable[["TinyAppend", int], int]
"""Commit on top of a Version that the committer knows; gives the new Version's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyAppend:
    """A commit to be made, with everything in it ready."""

    file: DataFile
    keys: Keys
    row: pa.Table
    """What the file holds, for whoever writes it."""
    replaces: str = ""
    """In a rewrite, the path of the file it removes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Calls of an object store, and the bytes they wrote."""

    reads: int = 0
    writes: int = 0
    written_bytes: int = 0

    def since(self, before: "Traffic") -> "Traffic":
        """Return what came after an earlier count."""
        return Traffic(
            reads=self.reads - before.reads,
            writes=self.writes - before.writes,
            written_bytes=self.written_bytes - before.written_bytes,
        )

    def per_commit(self, commits: int) -> dict[str, float]:
        """Return it as facts of a trial."""
        return {
            "reads_per_commit": self.reads / commits,
            "writes_per_commit": self.writes / commits,
            "object_bytes_per_commit": self.written_bytes / commits,
        }


class CountingStore:
    """An object store that counts what passes through it; safe for threads if the other is."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._lock = Lock()
        # guarded by _lock
        self._traffic = Traffic()

    @property
    def traffic(self) -> Traffic:
        """Everything so far; lost races and missing objects count too."""
        with self._lock:
            return self._traffic

    @property
    def location(self) -> str:
        """Root of the store behind."""
        return self._objects.location

    def get(self, path: str) -> StoredObject:
        """Count and read."""
        self._count_read()
        return self._objects.get(path)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Count and read."""
        self._count_read()
        return self._objects.get_if_changed(path, tag=tag)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Count and read."""
        self._count_read()
        return self._objects.get_range(path, start=start, length=length)

    def size(self, path: str) -> int:
        """Count and ask."""
        self._count_read()
        return self._objects.size(path)

    def put(self, path: str, payload: bytes) -> str:
        """Count and write."""
        self._count_write(payload)
        return self._objects.put(path, payload)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Count and create."""
        self._count_write(payload)
        return self._objects.put_if_absent(path, payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Count and replace."""
        self._count_write(payload)
        return self._objects.put_if_match(path, payload, tag=tag)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Count and list."""
        self._count_read()
        return self._objects.list(prefix, after=after)

    def delete(self, path: str) -> None:
        """Count and remove."""
        self._count_write(b"")
        self._objects.delete(path)

    def _count_read(self) -> None:
        self._count(Traffic(reads=1))

    def _count_write(self, payload: bytes) -> None:
        self._count(Traffic(writes=1, written_bytes=len(payload)))

    def _count(self, more: Traffic) -> None:
        with self._lock:
            self._traffic = Traffic(
                reads=self._traffic.reads + more.reads,
                writes=self._traffic.writes + more.writes,
                written_bytes=self._traffic.written_bytes + more.written_bytes,
            )


class UnsyncedDisk(PosixDisk):
    """The real disk without waiting for it: what a commit costs when power loss is no matter."""

    def sync(self, handle: int) -> None:
        """Leave the bytes to the operating system."""

    def sync_directory(self, path: str) -> None:
        """Leave the names to the operating system."""


class _NoRows:
    """Finds nothing: the keys of an append are new."""

    def positions_of(self, _file: DataFile, _keys: Keys) -> BitMap64:
        return BitMap64()

    def keys_at(self, _file: DataFile, _positions: BitMap64) -> Keys:
        return pa.array([], pa.binary())

    def vector(self, _file: DataFile) -> BitMap64:
        return BitMap64()

    def older_rows(
        self, _own: DataFile, _other: DataFile, _schema_id: int
    ) -> tuple[BitMap64, BitMap64]:
        return BitMap64(), BitMap64()

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        assert not whole
        return {}


class BenchTable:
    """One handle on the table, as a committing process holds it; safe for many threads."""

    def __init__(self, objects: ObjectStore) -> None:
        clock, ids = SystemClock(), SystemIds()
        self._objects = objects
        self.store = ManifestStore(
            objects, _PREFIX, clock=clock, ids=ids, fold_entries=fold_versions
        )
        self.versions = TableVersions(self.store, clock=clock)
        self._committer = TableCommitter(
            self.versions, WriterState(self.versions, clock=clock), clock=clock, ids=ids
        )

    def create(self, files: Sequence[DataFile] = ()) -> int:
        """Commit Version 1 with these files; gives its number."""
        head = TableHead(
            table_id="bench",
            table_uuid=_TABLE_UUID,
            current_version=1,
            oldest_version=1,
            schema_id=0,
            spec_id=0,
            sort_order="",
            last_transaction_ms=0,
        )
        edit = VersionEdit(base=0, facts=_facts(Operation.CREATE), added=tuple(files))
        committed = self.versions.create(head, schema="{}", spec="{}", edit=edit)
        return committed.snapshot.version.number

    def newest(self) -> int:
        """Number of the newest Version."""
        return self.versions.snapshot_latest().version.number

    def append(self, tiny: TinyAppend, base: int) -> int:
        """Commit as any committer does: carried over to the newest Version when needed."""
        proposal = Proposal(
            base=base, facts=_facts(Operation.APPEND), added=(tiny.file,), keys=(tiny.keys,)
        )
        committed = self._committer.commit_proposal(proposal, HeadChange(), lookup=_NoRows())
        return committed.snapshot.version.number

    def append_alone(self, tiny: TinyAppend, base: int) -> int:
        """Commit as the only committer: on the Version it knows, or not at all."""
        committed = self.versions.apply_version_edits([append_edit(tiny.file, base)])
        return committed.snapshot.version.number

    def append_with_parquet(self, tiny: TinyAppend, base: int) -> int:
        """Write the Parquet file through the store, and commit it."""
        sink = pa.BufferOutputStream()
        pq.write_table(tiny.row, sink)
        self._objects.put_if_absent(tiny.file.path, sink.getvalue().to_pybytes())
        return self.append(tiny, base)

    def rewrite(self, tiny: TinyAppend, base: int) -> int:
        """Commit as a compaction does: one file of level 1 in the place of another."""
        proposal = Proposal(
            base=base,
            facts=_facts(Operation.REPLACE),
            added=(tiny.file,),
            removed=(tiny.replaces,),
        )
        committed = self._committer.commit_proposal(proposal, HeadChange(), lookup=_NoRows())
        return committed.snapshot.version.number

    def checkpoint_count(self) -> int:
        """Checkpoints that there are, old ones included."""
        return sum(1 for _ in self._objects.list(self.store.log.paths.checkpoints))


def time_commits(commit: CommitTiny, appends: Sequence[TinyAppend], *, base: int) -> list[int]:
    """Commit one after another, each on the Version of the one before; gives nanoseconds."""
    latencies: list[int] = []
    for tiny in appends:
        began_at = time.perf_counter_ns()
        base = commit(tiny, base)
        latencies.append(time.perf_counter_ns() - began_at)
    return latencies


def described(version: Version) -> tuple[int, list[str]]:
    """Return what a trial compares: a Version's number, and the paths of its files in order."""
    return version.number, sorted(version.files)


def read_newest(objects: ObjectStore) -> tuple[int, list[str]]:
    """Describe the newest Version, read by a handle that knows nothing yet."""
    return described(BenchTable(objects).versions.snapshot_latest().version)


def file_path(number: int) -> str:
    """Where the data file of a number lies."""
    return f"data/{number:032x}.parquet"


def tiny_appends(numbers: Iterable[int]) -> list[TinyAppend]:
    """Make the commits of these rows."""
    return [
        TinyAppend(
            file=(file := data_file(number)),
            keys=pa.array([file.key_min], pa.binary()),
            row=one_row(number),
        )
        for number in numbers
    ]


def tiny_rewrites(count: int, *, files: int) -> list[TinyAppend]:
    """Make rewrites of a table of so many files of level 1: each replaces the oldest there is."""
    return [
        TinyAppend(
            file=replace(
                data_file(number % files, level=1),
                path=file_path(files + number),
            ),
            keys=pa.array([], pa.binary()),
            row=one_row(number % files),
            replaces=file_path(number),
        )
        for number in range(count)
    ]


def data_file(number: int, *, level: int = 0) -> DataFile:
    """Describe the data file that holds row `number` alone."""
    key = _KEYS.encode((number,))
    bounds = (
        struct.pack("<q", number),
        row_name(number).encode()[:_BOUND_BYTES],
        struct.pack("<d", row_score(number)),
        struct.pack("<i", row_visits(number)),
        row_payload(number)[:_BOUND_BYTES],
    )
    return DataFile(
        path=file_path(number),
        file_bytes=_FILE_BYTES,
        row_count=1,
        level=level,
        key_min=key,
        key_max=key,
        sequence_min=number,
        sequence_max=number,
        footer_crc=number & 0xFFFFFFFF,
        statistics=tuple(
            ColumnStatistics(
                field_id=field_id,
                compressed_bytes=_COLUMN_BYTES,
                value_count=1,
                null_count=0,
                lower=bound,
                upper=bound,
            )
            for field_id, bound in enumerate(bounds, start=1)
        ),
        wal_segments=(
            WalSegmentRef(log_number=1, file_id="bench", first_frame=number, last_frame=number),
        ),
    )


def append_edit(file: DataFile, base: int) -> VersionEdit:
    """Return the edit that adds one file to a Version."""
    return VersionEdit(base=base, facts=_facts(Operation.APPEND), added=(file,))


def _facts(operation: Operation) -> VersionFacts:
    summary = {"added-data-files": "1", "added-records": "1"}
    return VersionFacts(
        operation=operation, timestamp_ms=0, schema_id=0, spec_id=0, summary=summary
    )


assert len(FIELD_NAMES) == len(data_file(0).statistics)
