"""TableParts: what a live table stands on: its stores, its paths, its clock."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol, cast

import pyarrow as pa

from neve.errors import Corruption, NeveError
from neve.manifest.leases import Leases
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_reader import Session
from neve.manifest.writer_state import WriterState
from neve.model.data_file import DataFile
from neve.model.partition_spec import PartitionSpec
from neve.model.partitions import PartitionIdentity
from neve.model.row_lineage import has_lineage
from neve.model.schema import TableSchema
from neve.observability.events import EventKind, Listener, tell, unheard
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.append_file import AppendFiles
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths


def append_files_of(objects: ObjectStore) -> AppendFiles | None:
    """Return the append files of a store that has any; object stores in the cloud have none."""
    has_them = all(hasattr(objects, name) for name in ("create", "recycle", "lock"))
    return cast("AppendFiles", objects) if has_them else None


class PublishedLineage(Protocol):
    """What other engines have been shown of the lineage of a table's rows."""

    def keeps_lineage(self) -> bool:
        """Return whether rows have a lineage, by the newest format version of the table."""
        ...

    def data_sequences(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return the data sequence numbers published for data files, by path."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything below one live table."""

    objects: ObjectStore
    paths: TablePaths
    versions: TableVersions
    work: WriterState
    leases: Leases
    clock: Clock
    ids: IdSource
    properties: Mapping[str, str]
    recorder: Recorder = field(default_factory=NoRecorder)
    listener: Listener = unheard
    publish: Callable[[], bool] | None = None
    """Tells other engines of the current Version; False when they know already."""
    lineage: PublishedLineage | None = None
    """None in workers, whose tasks say it, and where only the properties are known."""

    def tell(self, kind: EventKind, **facts: float | str) -> None:
        """Tell the listener what happened to the table."""
        tell(self.listener, kind, self.paths.table_id, **facts)

    def keeps_lineage(self) -> bool:
        """Return whether rewrites keep the lineage of rows."""
        if self.lineage is None:
            return has_lineage(self.properties)
        return self.lineage.keeps_lineage()

    def sequenced(self, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        """Return files with their data sequence numbers, which the first release only published.

        Those that were never published get the number they would be published with: that of the
        Version that added them or, when it has expired, of the one before the oldest.
        """
        unknown = {file.path for file in files if not file.data_sequence}
        if not unknown:
            return tuple(files)
        session = self.versions.store.read()
        head = self.versions.head_in(session)
        known: dict[str, int] = {}
        for number in range(head.oldest_version + 1, head.current_version + 1):
            edit = self.versions.edit_in(session, number)
            stayed = set(edit.removed)
            known |= {file.path: number for file in edit.added if file.path not in stayed}
        if self.lineage is not None:
            known |= self.lineage.data_sequences(unknown)
        older = max(1, head.oldest_version - 1)
        return tuple(
            file if file.data_sequence else replace(file, data_sequence=known.get(file.path, older))
            for file in files
        )

    def failed(self, step: str, error: NeveError) -> None:
        """Tell the listener that background work does not get on."""
        self.tell(EventKind.FAILED, step=step, cause=str(error))


class Definitions:
    """Schemas and partition specs of one table by id, each parsed once; safe for many threads."""

    def __init__(self, versions: TableVersions, *, path: str) -> None:
        self._versions = versions
        self._path = path
        # Guarded by _lock.
        self._lock = Lock()
        self._schemas: dict[int, TableSchema] = {}
        self._specs: dict[int, PartitionSpec] = {}

    def schema(self, schema_id: int) -> TableSchema:
        """Return the schema of an id; raises Corruption when the table never had it."""
        with self._lock:
            found = self._schemas.get(schema_id)
        if found is None:
            self.learn(self._versions.store.read())
            with self._lock:
                found = self._schemas.get(schema_id)
        if found is None:
            raise Corruption(f"the table never had schema {schema_id}", path=self._path)
        return found

    def spec(self, spec_id: int) -> PartitionSpec:
        """Return the partition spec of an id; raises Corruption when the table never had it."""
        with self._lock:
            found = self._specs.get(spec_id)
        if found is None:
            self.learn(self._versions.store.read())
            with self._lock:
                found = self._specs.get(spec_id)
        if found is None:
            raise Corruption(f"the table never had partition spec {spec_id}", path=self._path)
        return found

    def column_type(self, field_id: int) -> pa.DataType:
        """Return the type of a column, as the newest schema that has it says; raises Corruption."""
        with self._lock:
            newest_first = sorted(self._schemas.items(), reverse=True)
        for _, schema in newest_first:
            for column in schema.columns:
                if column.field_id == field_id:
                    return column.type
        raise Corruption(f"the table never had a column of field id {field_id}", path=self._path)

    def partition_identity(self) -> PartitionIdentity:
        """Return what tells partitions apart, under the types that columns have now."""
        return PartitionIdentity(self.spec, self.column_type)

    def specs_from(self, spec_id: int) -> list[PartitionSpec]:
        """Return the partition spec of an id, and after it all others, the newest first."""
        first = self.spec(spec_id)
        with self._lock:
            others = sorted((each for each in self._specs if each != spec_id), reverse=True)
            return [first, *(self._specs[each] for each in others)]

    def learn(self, session: Session) -> tuple[dict[int, TableSchema], dict[int, PartitionSpec]]:
        """Return a session's definitions, parsing new ones; an id never changes its meaning."""
        schemas, specs = self._versions.schemas_in(session), self._versions.specs_in(session)
        self.add(schemas, specs)
        with self._lock:
            return (
                {number: self._schemas[number] for number in schemas},
                {number: self._specs[number] for number in specs},
            )

    def add(self, schemas: Mapping[int, str], specs: Mapping[int, str]) -> None:
        """Parse schemas and specs that were read elsewhere; raises Corruption for a wrong id."""
        with self._lock:
            for number, text in schemas.items():
                if number not in self._schemas:
                    schema = TableSchema.from_json(text)
                    self._check_id("schema", schema.schema_id, number)
                    self._schemas[number] = schema
            for number, text in specs.items():
                if number not in self._specs:
                    spec = PartitionSpec.from_json(text)
                    self._check_id("partition spec", spec.spec_id, number)
                    self._specs[number] = spec

    def _check_id(self, what: str, found: int, expected: int) -> None:
        if found != expected:
            raise Corruption(f"{what} {found} stands where {expected} belongs", path=self._path)
