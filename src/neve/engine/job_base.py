"""JobBase: a table as a job from outside of the live writer sees it, in every process of the job.

A job is one run with a name of its own, and every file it makes has that name in its path:

    data/<run>/<partition path>/<run><random>.parquet
    index/<run><random>.index
    deletes/<run><random>.puffin

So the names can be announced before the first file is written, and what a run left behind is found
by them. A run that is repeated has another name: no file is ever written twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pyroaring import BitMap64

from neve.keys.columns import KeyArray
from neve.model.data_file import DataFile, FileFormat
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Version
from neve.sstable.data_file_writer import DataFileWriter
from neve.sstable.superseded_rows import superseded_rows
from neve.storage.clock import IdSource
from neve.storage.table_paths import join_path
from neve.table.file_set import FileSet
from neve.table.file_writers import FileWriters
from neve.table.partitions import KeyPartitions, Partition, PartitionedKeys
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.table.table_parts import Definitions, TableParts
from neve.table.table_view import TableView

FILE_BYTES: Final = 64 << 20
_RUN_DIGITS: Final = 16
_CACHE_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of one run of a job: 16 hexadecimal digits that no other run has."""

    digits: str

    @classmethod
    def drawn(cls, ids: IdSource) -> "RunName":
        """Draw a name; a random identifier has its fixed digits elsewhere."""
        return cls(f"{ids.uuid().hex[:8]}{ids.uuid().hex[:8]}")

    @property
    def data_prefix(self) -> str:
        """How the paths of its data files begin."""
        return f"data/{self.digits}/"

    @property
    def vector_prefix(self) -> str:
        """How the paths of its vectors begin."""
        return f"deletes/{self.digits}"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """How the paths of all its files begin."""
        return self.data_prefix, self.vector_prefix, f"index/{self.digits}"

    def placed(self, partition: Partition) -> Partition:
        """Return a partition whose directory is inside of the run's."""
        return replace(partition, path=join_path(self.digits, partition.path).rstrip("/"))


class RunIds:
    """Identifiers that begin with the name of a run."""

    def __init__(self, run: RunName, ids: IdSource) -> None:
        self._run = run
        self._ids = ids

    def uuid(self) -> UUID:
        """Make an identifier nobody else makes."""
        return UUID(hex=f"{self._run.digits}{self._ids.uuid().hex[-_RUN_DIGITS:]}")

    def jitter(self) -> float:
        """Draw a number in [0, 1) for back-off."""
        return self._ids.jitter()

    def process(self) -> str:
        """Name this process for people."""
        return self._ids.process()


class JobBase:
    """The Version a job works on, and what makes its files; for one thread."""

    def __init__(
        self, parts: TableParts, run: RunName, base: int, *, file_bytes: int = FILE_BYTES
    ) -> None:
        """Read a Version; raises NotFound when it is not retained."""
        self.parts = parts
        self.run = run
        self.version: Version = parts.versions.version(base)
        self.definitions = Definitions(parts.versions, path=parts.paths.manifest)
        self.schema: TableSchema = self.definitions.schema(self.version.facts.schema_id)
        self.spec: PartitionSpec = self.definitions.spec(self.version.facts.spec_id)
        self.context = TableContext(
            self.schema, schema_of=self.definitions.schema, spec_of=self.definitions.spec
        )
        self.files = TableFiles(
            parts.objects,
            parts.paths,
            schema_of=self.definitions.schema,
            encoder=self.context.encoder,
            cache_bytes=_CACHE_BYTES,
            recorder=parts.recorder,
        )
        self.making = FileWriters(
            replace(parts, ids=RunIds(run, parts.ids)),
            encoder=self.context.encoder,
            file_bytes=file_bytes,
        )
        self.identity = self.definitions.partition_identity()
        self._partitions = KeyPartitions(self.schema, self.context.encoder, self.definitions.spec)

    @property
    def view(self) -> TableView:
        """The rows of the Version, by key."""
        files = FileSet(self.version, self.files, partitions=self.context.partitions)
        return TableView((), files, self.context)

    @property
    def spec_of(self) -> Callable[[int], PartitionSpec]:
        """Partition specs by id."""
        return self.definitions.spec

    def is_partition_told_by_key(self) -> bool:
        """Whether rows of one key are always of one partition."""
        return self.spec.is_unpartitioned or self._partitions.of_spec(self.spec.spec_id) is not None

    def data_files(self, partition: Partition) -> DataFileWriter:
        """Begin the files of one partition."""
        return self.making.data_files(
            self.schema,
            spec_id=self.spec.spec_id,
            partition=self.run.placed(partition),
            level=0,
            file_format=FileFormat.COLUMNAR,
        )

    def superseded(self, keys: KeyArray) -> dict[str, BitMap64]:
        """Find the live rows of ascending keys, by path of their file."""
        partitioned = PartitionedKeys(keys, self._partitions)
        return superseded_rows(
            self.version.files.values(),
            keys,
            open_reader=self.files.reader,
            vector_of=self.files.marked,
            keys_for=partitioned.keys_for,
        )

    def keys_of(self, file: DataFile) -> KeyArray:
        """Read the keys of all rows of a file."""
        return self.files.keys_at(file, BitMap64(range(file.row_count)))

    def close(self) -> None:
        """Let go of what is open."""
        self.files.close()
