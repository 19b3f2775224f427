"""Definitions: the schemas and partition specs of one table, each parsed once in a process.

An id never changes its meaning, so a parsed definition stays valid. Unknown ids are read from the
table's manifest. A worker adds the definitions that came with its task and reads no manifest.
"""

from collections.abc import Mapping
from threading import Lock
from typing import TypeVar

import pyarrow as pa

from neve.errors import Corruption
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_reader import Session
from neve.model.partition_spec import PartitionSpec
from neve.model.partitions import PartitionIdentity
from neve.model.schema import TableSchema

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
        """Return what distinguishes partitions, under the types that columns have now."""
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
