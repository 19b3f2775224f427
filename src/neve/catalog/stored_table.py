"""StoredTable: the version store of one table, and where its files are.

The version store is the truth about a table. This module reads and writes only that store;
`neve.catalog.catalog_entries` handles names.
"""

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from neve.catalog.sort_order import SortOrder
from neve.catalog.table_meta import TableMeta
from neve.errors import Corruption, InvalidArgument, NeveError, NotFound
from neve.iceberg.publisher import IcebergPublisher, PropertiesOf
from neve.manifest.commit import TableCommitter
from neve.manifest.decisions import Decisions
from neve.manifest.documents import Lease
from neve.manifest.leases import Leases
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.table_head import HEAD_KEY, TableHead
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_fold import fold_versions
from neve.manifest.version_reader import Session
from neve.manifest.writer_state import WriterState
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version, VersionEdit, VersionFacts, apply_edit
from neve.observability.events import Listener, ignore
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.bucket_log import BucketLogs
from neve.storage.clock import Clock, IdSource
from neve.storage.local_store import LocalStore
from neve.storage.object_store import LogStore, ObjectStore
from neve.storage.table_paths import CATALOG_MANIFEST, TablePaths
from neve.table.table_context import Definitions, TableParts, logs_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """A table's head, current Version, schemas and specs, read together."""

    session: Session
    """The view they were read from; older Versions are read from it too."""
    head: TableHead
    version: Version
    schemas: Mapping[int, TableSchema]
    specs: Mapping[int, PartitionSpec]

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return self.schemas[self.head.schema_id]

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self.specs[self.head.spec_id]

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order; empty if it was never in effect."""
        order = SortOrder.from_text(self.head.sort_order)
        return order if order.is_of_key(self.schema) else SortOrder()


class StoredTable:
    """The version store and the files of one table; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        table_id: str,
        *,
        clock: Clock,
        ids: IdSource,
        properties_of: PropertiesOf = lambda _is_known: {},
        decisions: Decisions | None = None,
    ) -> None:
        """Take the table's place; `properties_of` returns its properties.

        `decisions` are those of the lake; without them, this opens the catalog's store.
        """
        # Fixed at construction.
        self.table_id = table_id
        self.paths = TablePaths(table_id)
        self.objects = objects
        self._clock = clock
        self._ids = ids
        self.logs = logs_of(objects, ids)
        self.store = ManifestStore(
            objects, self.paths.manifest, clock=clock, ids=ids, fold_entries=fold_versions
        )
        self.versions = TableVersions(self.store, clock=clock)
        self.writer_state = WriterState(self.versions, clock=clock)
        self.committer = TableCommitter(
            self.versions, self.writer_state, clock=clock, ids=ids, collects=True
        )
        self.decisions = decisions or Decisions(
            ManifestStore(objects, CATALOG_MANIFEST, clock=clock, ids=ids),
            clock=clock,
            ids=ids,
        )
        self._leases = Leases(objects, self.paths.manifest, clock=clock, ids=ids)
        # Need no lock; the state is replaced as a whole.
        self._loaded: TableState | None = None
        self.definitions = Definitions(self.versions, path=self.paths.manifest)
        self.publisher = IcebergPublisher(
            objects,
            self.paths,
            versions=self.versions,
            definitions=self.definitions,
            writer_state=self.writer_state,
            properties_of=properties_of,
        )

    @property
    def location(self) -> str:
        """Where the table's files are, as a URI."""
        root = self.objects.location
        return f"{root}{'' if root.endswith('/') else '/'}{self.paths.root}"

    def leases(self, *, known_ms: int = 0) -> tuple[Lease, ...]:
        """Return the leases in force; `known_ms` is a time that has certainly passed."""
        return tuple(self._leases.unexpired(known_ms=known_ms))

    def parts(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        recorder: Recorder | None = None,
        listener: Listener = ignore,
        is_published: bool = False,
        log: str | None = None,
    ) -> TableParts:
        """Return the parts of a table, with its publisher if commits are to be published.

        `log` is a directory of this machine for the log of a table in a bucket.
        """
        return TableParts(
            objects=self.objects,
            logs=self.logs if log is None else self._log_at(log),
            paths=self.paths,
            versions=self.versions,
            definitions=self.definitions,
            writer_state=self.writer_state,
            leases=self._leases,
            clock=self._clock,
            ids=self._ids,
            properties=properties or {},
            recorder=recorder or NoRecorder(),
            listener=listener,
            decisions=self.decisions,
            published=self.publisher if is_published else None,
        )

    def _log_at(self, directory: str) -> LogStore:
        if not isinstance(self.logs, BucketLogs):
            raise InvalidArgument(
                "only a table in a bucket can have its log elsewhere",
                path=self.objects.location,
                hint="Leave `log` out: the log is beside the table",
            )
        return LocalStore(directory, clock=self._clock, ids=self._ids)

    def find_head(self) -> TableHead | None:
        """Return the head; None when the store was never begun."""
        payload = self.store.open().get(HEAD_KEY)
        return None if payload is None else TableHead.decode(payload, path=self.paths.manifest)

    def load(self) -> TableState:
        """Read the newest state; raises NotFound when the table is dropped or was never begun."""
        session, loaded = self.store.read(), self._loaded
        if loaded is not None and loaded.session.state is session.state:
            return loaded
        self._loaded = loaded = self.state_in(session)
        return loaded

    def state_in(self, session: Session) -> TableState:
        """Return the state that a session sees; raises as `load`."""
        head = self.versions.head_in(session)
        self.versions.refuse_dropped(head)
        schemas, specs = self.definitions.learn(session)
        if head.schema_id not in schemas or head.spec_id not in specs:
            raise Corruption(
                f"schema {head.schema_id} or partition spec {head.spec_id} is missing",
                path=self.paths.manifest,
            )
        return TableState(
            session=session,
            head=head,
            version=self.versions.version_in(session, head.current_version),
            schemas=schemas,
            specs=specs,
        )

    def begin(self, meta: TableMeta) -> TableState:
        """Commit Version 1 of a table; return the table as it was begun.

        A table that was begun already is left unchanged, even if it has been dropped since.
        """
        head = TableHead(
            table_id=meta.table_id,
            table_uuid=meta.table_uuid,
            current_version=1,
            oldest_version=1,
            schema_id=meta.schema_version,
            spec_id=meta.spec_id,
            sort_order=meta.sort_order,
            last_transaction_ms=meta.updated_ms,
            retention=meta.retention,
        )
        facts = VersionFacts(
            operation=Operation.CREATE,
            timestamp_ms=meta.updated_ms,  # the commit replaces it
            schema_id=meta.schema_version,
            spec_id=meta.spec_id,
        )
        edit = VersionEdit(base=0, facts=facts)
        version = apply_edit(None, edit)
        # A settler may have begun the table, and others may have dropped and purged it since.
        with suppress(NotFound):
            snapshot = self.versions.create(
                head, schema=meta.schema.to_json(), spec=meta.spec.to_json(), edit=edit
            ).snapshot
            head, version = snapshot.head, snapshot.version
        return TableState(
            session=self.store.read(),
            head=head,
            version=version,
            schemas={meta.schema_version: meta.schema},
            specs={meta.spec_id: meta.spec},
        )

    def purge(self) -> bool:
        """Delete the files of a dropped table and its history; False when readers hold leases.

        1. Look for leases. A reader that takes one from now on finds the table dropped, so no new
           ones will come; while one is in force, nothing is deleted.
        2. Delete the files, then the leases that ended.
        3. Delete everything but the head, and with it the note that files have to be deleted.

        May be repeated: the next run finds what this one leaves behind. Files may reappear after a
        power failure; no one reads them then.
        """
        known_ms = self.versions.head().last_transaction_ms
        lease_count = len(self.leases(known_ms=known_ms))
        if lease_count:
            logger.warning("put off purge table=%s leases=%d", self.table_id, lease_count)
            return False
        # List all names first: a listing may skip files while others are deleted.
        for path in [info.path for info in self.objects.list(f"{self.paths.root}/")]:
            # A foreign file may have a name that the store refuses: it is not the table's.
            with suppress(InvalidArgument):
                self.objects.delete(path)
        self._leases.remove_expired(known_ms=known_ms)
        self.writer_state.forget()
        self.store.checkpoint()
        self.store.collect_once()
        return True


def tidy_store(store: ManifestStore) -> None:
    """Checkpoint and collect a store when due; a failure only postpones it."""
    try:
        if store.checkpoint_once():
            store.collect_once()
    except NeveError as error:
        logger.warning("put off checkpoint store=%s cause=%s", store.log.paths.prefix, error)
