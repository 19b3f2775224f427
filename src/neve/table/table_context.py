"""TableContext, Definitions and TableParts: what a table is read and written with.

`TableContext` decodes rows and encodes keys under one schema of a table. `Definitions` are its
schemas and partition specs, each parsed once in a process: an id never changes its meaning, so a
parsed definition stays valid. Unknown ids are read from the table's manifest; a worker adds the
definitions that came with its task and reads no manifest. `TableParts` are the stores, paths,
definitions and clock below one table.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Protocol, TypeVar, cast

import pyarrow as pa

from neve.errors import Corruption, InvalidArgument, NeveError, SchemaMismatch
from neve.keys.columns import KEY_BYTES_MAX, KeyColumn, value_codec
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.manifest.commit import COMMIT_SECONDS_MAX, TableCommitter
from neve.manifest.decisions import Decisions
from neve.manifest.leases import Leases
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_reader import Session
from neve.manifest.writer_state import WriterState
from neve.model.data_file import DataFile
from neve.model.display import listed, shown
from neve.model.partition_spec import PartitionIdentity, PartitionSpec
from neve.model.row_codec import RowCodec
from neve.model.row_lineage import has_lineage
from neve.model.schema import TableSchema
from neve.observability.events import EventKind, Listener, ignore, report_event
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.bucket_log import BucketLogs
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import LogStore, ObjectStore
from neve.storage.table_paths import TablePaths
from neve.table.partitions import KeyPartitions
from neve.table.schema_mapping import SchemaMapping

Definition = TypeVar("Definition", TableSchema, PartitionSpec)


class Definitions:
    """Schemas and partition specs by id; safe for many threads."""

    def __init__(self, versions: TableVersions, *, path: str) -> None:
        self._versions = versions
        self._path = path
        # Guarded by _lock while they change.
        self._lock = Lock()
        self._schemas: dict[int, TableSchema] = {}
        self._specs: dict[int, PartitionSpec] = {}

    def schema(self, schema_id: int) -> TableSchema:
        """Return the schema of an id; raises Corruption when the table never had it."""
        return self._found("schema", self._schemas, schema_id)

    def spec(self, spec_id: int) -> PartitionSpec:
        """Return the partition spec of an id; raises Corruption when the table never had it."""
        return self._found("partition spec", self._specs, spec_id)

    def _found(self, what: str, known: dict[int, Definition], number: int) -> Definition:
        # Without the lock: entries are only ever added.
        found = known.get(number)
        if found is None:
            self.learn(self._versions.store.read())
            found = known.get(number)
        if found is None:
            raise Corruption(f"the table never had {what} {number}", path=self._path)
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
        """Return what distinguishes partitions, under the current types of columns."""
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
            raise Corruption(f"{what} {found} is stored under the id {expected}", path=self._path)


class TableContext:
    """The schema of returned rows, with their codecs; safe for many threads."""

    __slots__ = (
        "_encode_value",
        "_mappings",
        "codec",
        "definitions",
        "encode_plain_key",
        "encoder",
        "hashes",
        "is_single_key",
        "partitions",
        "schema",
    )

    def __init__(self, schema: TableSchema, definitions: Definitions) -> None:
        self.schema = schema
        self.definitions = definitions
        """All schemas and partition specs of the table."""
        self.codec = RowCodec(schema)
        keys = schema.key_columns
        self.encoder = KeyEncoder(
            [column.type for column in keys], [column.name for column in keys]
        )
        self._encode_value = value_codec(KeyColumn.of(keys[0].name, keys[0].type)).encode
        self.hashes = KeyHashes(self.encoder)
        self.partitions = KeyPartitions(schema, self.encoder, definitions.spec)
        """What a key says of the partition of its row."""
        self.is_single_key = len(keys) == 1
        has_width = self.is_single_key and self.encoder.width is not None
        self.encode_plain_key = self._encode_value if has_width else self.encode_key
        """Encodes most keys as `encode_key` does, in one step; raises for all others, too."""
        # Safe without a lock: a mapping made twice is the same.
        self._mappings: dict[int, SchemaMapping] = {}

    def mapping_from(self, schema_id: int) -> SchemaMapping:
        """Return the mapping from an older schema of the table to this one."""
        mapping = self._mappings.get(schema_id)
        if mapping is None:
            is_own = schema_id == self.schema.schema_id
            source = self.schema if is_own else self.definitions.schema(schema_id)
            mapping = SchemaMapping(source, self.schema)
            self._mappings[schema_id] = mapping
        return mapping

    def encode_key(self, key: object) -> bytes:
        """Return the bytes of a key: a value, a tuple in key order, or a dict of key columns."""
        if type(key) is tuple:
            return self.encoder.encode(key)
        try:
            if self.is_single_key:
                encoded = self._encode_value(key)
                if len(encoded) <= KEY_BYTES_MAX:
                    return encoded
                return self.encoder.encode((key,))  # it says that the key is too long
            return self.encoder.encode(key)  # type: ignore[arg-type]  # it reports what is wrong
        except (SchemaMismatch, InvalidArgument):
            # No value of a key column is a dict, so this check costs a correct key nothing.
            if not isinstance(key, Mapping):
                raise
        return self.encoder.encode(self._values_of(key))

    def _values_of(self, key: Mapping[object, object]) -> tuple[object, ...]:
        names = self.encoder.names
        wrong = [name for name in names if name not in key]
        wrong += [str(name) for name in key if name not in names]
        if wrong:
            raise SchemaMismatch(
                f"a dict of {listed([*map(str, key)]) or 'nothing'} is not a key of the table",
                column=wrong[0],
                hint=f"Pass the value of {shown(names[0])}, or a dict of it alone"
                if self.is_single_key
                else f"Pass a tuple of {shown(tuple(names))}, or a dict of these alone",
            )
        return tuple(key[name] for name in names)


def logs_of(objects: ObjectStore, ids: IdSource) -> LogStore:
    """Return where the logs of a store's tables are: in its own files, or in slots in a bucket."""
    if all(hasattr(objects, name) for name in ("create", "recycle", "lock")):
        return cast("LogStore", objects)
    return BucketLogs(objects, ids=ids)


class Published(Protocol):
    """What other engines know of a table: its Versions, and the lineage of its rows."""

    def publish_once(self) -> bool:
        """Publish the current Version; False when it is published already."""

    def keeps_lineage(self) -> bool:
        """Return whether rows have a lineage, by the newest format version of the table."""

    def data_sequences(self, paths: Collection[str]) -> Mapping[str, int]:
        """Return the data sequence numbers published for data files, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableParts:
    """Everything below one live table."""

    objects: ObjectStore
    logs: LogStore
    """Where logs and their mark are; the objects themselves where those can be appended to."""
    paths: TablePaths
    versions: TableVersions
    definitions: Definitions
    writer_state: WriterState
    leases: Leases
    clock: Clock
    ids: IdSource
    properties: Mapping[str, str]
    recorder: Recorder = field(default_factory=NoRecorder)
    listener: Listener = ignore
    decisions: Decisions | None = None
    """Which transactions over several tables were committed; None without a catalog."""
    published: Published | None = None
    """None in workers, whose tasks carry it, and where only the properties are known."""

    @property
    def is_log_apart(self) -> bool:
        """Whether the log is on a disk beside a table in a bucket."""
        is_beside = self.logs is not self.objects
        return is_beside and self.has_locks

    @property
    def has_locks(self) -> bool:
        """Whether a lock keeps other processes from writing the table; a bucket has only epochs."""
        return not isinstance(self.logs, BucketLogs)

    def committer(self, *, commit_seconds: float = COMMIT_SECONDS_MAX) -> TableCommitter:
        """Return what commits to the table, in this process."""
        return TableCommitter(
            self.versions,
            self.writer_state,
            clock=self.clock,
            ids=self.ids,
            commit_seconds=commit_seconds,
            recorder=self.recorder,
        )

    def report(self, kind: EventKind, **facts: float | str) -> None:
        """Report an event of the table to the listener."""
        report_event(self.listener, kind, self.paths.table_id, **facts)

    def keeps_lineage(self) -> bool:
        """Return whether rewrites keep the lineage of rows."""
        if self.published is None:
            return has_lineage(self.properties)
        return self.published.keeps_lineage()

    def sequenced(self, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        """Return files with their data sequence numbers, which the first release did not store.

        They are read from the published metadata. An unpublished file gets the number of the
        Version that added it or, when that has expired, of the one before the oldest.
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
        if self.published is not None:
            known |= self.published.data_sequences(unknown)
        older = max(1, head.oldest_version - 1)
        return tuple(
            file if file.data_sequence else replace(file, data_sequence=known.get(file.path, older))
            for file in files
        )

    def failed(self, step: str, error: NeveError) -> None:
        """Report to the listener that background work fails."""
        self.report(EventKind.FAILED, step=step, cause=str(error))
