"""Small tables for tests: one manifest store with everything that stands on it, and defaults."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Lock

from neve.manifest.commit import TableCommitter
from neve.manifest.writer_state import WriterState

from neve.manifest.leases import Leases
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.table_garbage import TableGarbage
from neve.manifest.table_head import HeadChange, Retention, TableHead
from neve.manifest.table_versions import Committed, TableVersions
from neve.manifest.version_fold import fold_versions
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.commit_queue import Latch
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

PREFIX = "manifest/version/t1"
UUID = "11111111-1111-4111-8111-111111111111"
SCHEMA = '{"schema-id":0}'
SPEC = '{"spec-id":0}'
HOUR_MS = 60 * 60 * 1_000


def path_of(name: str) -> str:
    return f"data/{name}.parquet"


def facts(operation: Operation = Operation.APPEND, *, schema_id: int = 0) -> VersionFacts:
    return VersionFacts(operation=operation, timestamp_ms=0, schema_id=schema_id, spec_id=0)


def data_file(
    name: str,
    *,
    rows: int = 10,
    keys: tuple[bytes, bytes] = (b"a", b"z"),
    level: int = 0,
    vector: VectorRef | None = None,
    first_row_id: int | None = None,
) -> DataFile:
    return DataFile(
        path=path_of(name),
        file_bytes=rows * 100,
        row_count=rows,
        level=level,
        key_min=keys[0],
        key_max=keys[1],
        vector=vector,
        first_row_id=first_row_id,
    )


def vector_ref(name: str, *, marked: int) -> VectorRef:
    return VectorRef(path=f"deletes/{name}.puffin", offset=4, length=40, cardinality=marked)


def edit_of(
    base: int,
    *added: DataFile | str,
    removed: Sequence[str] = (),
    vectors: Mapping[str, VectorRef] | None = None,
    operation: Operation = Operation.APPEND,
) -> VersionEdit:
    """Build an edit; a text stands for a file of that name."""
    return VersionEdit(
        base=base,
        facts=facts(operation),
        added=tuple(data_file(file) if isinstance(file, str) else file for file in added),
        removed=tuple(path_of(name) for name in removed),
        vectors={path_of(name): ref for name, ref in (vectors or {}).items()},
    )


def first_head(*, uuid: str = UUID, retention: Retention | None = None) -> TableHead:
    return TableHead(
        table_id="t1",
        table_uuid=uuid,
        current_version=1,
        oldest_version=1,
        schema_id=0,
        spec_id=0,
        sort_order="",
        last_transaction_ms=0,
        retention=retention or Retention(),
    )


class TableBench:
    """One process at work on the table; `another` is a second one on the same objects."""

    def __init__(
        self,
        objects: ObjectStore | None = None,
        *,
        clock: SimulatedClock | None = None,
        seed: int = 0,
        options: StoreOptions | None = None,
        commit_seconds: float = 60.0,
        make_latch: Callable[[], Latch] = Lock,
    ) -> None:
        self.objects: ObjectStore = MemoryStore() if objects is None else objects
        self.clock = clock or SimulatedClock()
        self.ids = SeededIds(seed)
        self.store = ManifestStore(
            self.objects,
            PREFIX,
            clock=self.clock,
            ids=self.ids,
            options=options,
            fold_entries=fold_versions,
            make_latch=make_latch,
        )
        self.versions = TableVersions(self.store, clock=self.clock)
        self.work = WriterState(self.versions, clock=self.clock)
        self.leases = Leases(self.objects, PREFIX, clock=self.clock, ids=self.ids)
        self.garbage = TableGarbage(
            self.versions, self.work, self.leases, clock=self.clock, ids=self.ids
        )
        self.committer = TableCommitter(
            self.versions,
            self.work,
            clock=self.clock,
            ids=self.ids,
            commit_seconds=commit_seconds,
        )

    def another(self, seed: int = 1) -> "TableBench":
        return TableBench(self.objects, clock=self.clock, seed=seed)

    def create(self, *, uuid: str = UUID, retention: Retention | None = None) -> Committed:
        return self.versions.create(
            first_head(uuid=uuid, retention=retention),
            schema=SCHEMA,
            spec=SPEC,
            edit=edit_of(0, operation=Operation.CREATE),
        )

    def commit(self, *added: DataFile | str, removed: Sequence[str] = ()) -> int:
        """Commit one edit on the current Version; gives the new number."""
        edit = edit_of(self.versions.head().current_version, *added, removed=removed)
        return self.versions.apply_version_edits([edit]).snapshot.version.number

    def replace_file(self, old: str, new: str) -> int:
        """Commit a rewrite of one file."""
        base = self.versions.head().current_version
        edit = edit_of(base, new, removed=(old,), operation=Operation.REPLACE)
        return self.versions.apply_version_edits([edit]).snapshot.version.number

    def roll_back(self, number: int) -> int:
        """Commit a Version with the files of an older one."""
        target = self.versions.version(number)
        current = self.versions.snapshot_latest().version
        edit = VersionEdit(
            base=current.number,
            facts=facts(Operation.ROLLBACK),
            removed=tuple(current.files),
            added=tuple(target.files.values()),
        )
        change = HeadChange(restored_version=number)
        return self.versions.apply_version_edits([edit], change).snapshot.version.number

    def checkpoint_and_collect(self) -> None:
        self.store.checkpoint()
        self.store.collect_once()

    def expire(self, *, keep_last: int = 1) -> str | None:
        """Let go of all but the last Versions, whatever their age; deletes no file yet."""
        plan = self.garbage.compute_gc_plan(
            keep_last=keep_last, older_than_ms=self.clock.now_ms() + HOUR_MS
        )
        return self.garbage.apply_gc_plan(plan)

    def delete_garbage(self) -> list[str]:
        """Run the last phase; gives the files it deleted, and deletes them in the objects too."""
        deleted: list[str] = []

        def delete(path: str) -> None:
            deleted.append(path)
            self.objects.delete(path)

        self.garbage.delete_garbage(delete, find=self.find)
        return deleted

    def find(self, prefix: str) -> list[str]:
        """Files whose names begin with a prefix."""
        return [found.path for found in self.objects.list(prefix)]

    def segment(self) -> int:
        """Number of the last committed transaction: it stays when nothing was written."""
        return self.store.read().segment


def new_table(*, retention: Retention | None = None, seed: int = 0) -> TableBench:
    """Return a table at Version 1, without files."""
    bench = TableBench(seed=seed)
    bench.create(retention=retention)
    return bench


def table_with(*names: str) -> TableBench:
    """Return a table with one commit per file."""
    bench = new_table()
    for name in names:
        bench.commit(name)
    return bench


def renamed(file: DataFile, path: str) -> DataFile:
    return replace(file, path=path)
