"""One run of a job beside the live writer: its identity, its base, its work and its outcome.

    JobIdentity   names the job when it is run again
    JobBase       the table as the run sees it, in every process of the job
    BulkWork      the files of all tasks, and the older rows that they supersede
    BulkOutcome   the Version that the run made

Every try of a job is a separate run, whose name is in the paths of its files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from pyroaring import BitMap64

from neve.keys.columns import KeyArray
from neve.manifest.table_head import HeadChange
from neve.manifest.writer_state import Intent
from neve.model.data_file import DataFile, FileFormat
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Version
from neve.sstable.data_file_writer import DataFileWriter
from neve.storage.own_process import Handle
from neve.table.file_writers import RunIds, RunName
from neve.table.partitions import Partition
from neve.table.table_context import TableParts
from neve.table.table_files import FILE_BYTES, FILE_BYTES_PROPERTY, TableFiles
from neve.table.table_view import TableView

_DIGITS_MAX: Final = 15


def announce(parts: TableParts, run: RunName, *, seconds: float) -> None:
    """Announce the files of a run, so that no collector deletes them for a time (JOBS-K1)."""
    deadline_ms = parts.clock.now_ms() + int(seconds * 1_000)
    parts.writer_state.register_intent(
        Intent(job_id=run.digits, prefixes=run.prefixes, deadline_ms=deadline_ms)
    )


class JobBase(Handle):
    """The Version that a job works on, and the writers of its files; for one thread."""

    def __init__(
        self, parts: TableParts, run: RunName, base: int, *, file_bytes: int | None = None
    ) -> None:
        """Read a Version; raises NotFound when it is not retained.

        Without `file_bytes`, files are as large as the table's properties say.
        """
        self.parts = parts
        self.run = run
        self.version: Version = parts.versions.version(base)
        facts = self.version.facts
        self.files = TableFiles(
            parts,
            facts.schema_id,
            file_bytes=file_bytes or _file_bytes_of(parts.properties),
            ids=RunIds(run, parts.ids),
        )
        self.context = self.files.context(facts.schema_id)
        self.schema: TableSchema = self.context.schema
        self.spec: PartitionSpec = parts.definitions.spec(facts.spec_id)
        self.identity = parts.definitions.partition_identity()

    @property
    def view(self) -> TableView:
        """The rows of the Version, by key, without those that have expired by now."""
        return self.files.view(self.version).as_of(self.parts.clock.now_ms())

    def key_determines_partition(self) -> bool:
        """Whether all rows of one key are in one partition."""
        return (
            self.spec.is_unpartitioned
            or self.files.partitions.of_spec(self.spec.spec_id) is not None
        )

    def data_files(self, partition: Partition) -> DataFileWriter:
        """Begin the files of one partition."""
        return self.files.writers.data_files(
            self.schema,
            spec_id=self.spec.spec_id,
            partition=self.run.placed(partition),
            level=0,
            file_format=FileFormat.COLUMNAR,
        )

    def superseded(self, keys: KeyArray) -> dict[str, BitMap64]:
        """Find the live rows of ascending keys, by path of their file."""
        return self.files.superseded(self.version, keys)

    def keys_of(self, file: DataFile) -> KeyArray:
        """Read the keys of all rows of a file."""
        return self.files.keys_at(file, BitMap64(range(file.row_count)))

    def close(self) -> None:
        """Close the open files."""
        self.files.close()


def _file_bytes_of(properties: Mapping[str, str]) -> int:
    """Return the size of files that a table asks for; an older neve accepted any text."""
    text = properties.get(FILE_BYTES_PROPERTY, "")
    is_count = text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
    return (int(text) if is_count else 0) or FILE_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """Identifies a job that runs again; without either member, each run is another job."""

    job_id: str | None = None
    application: tuple[str, int] | None = None
    """Application id and batch number; batches are committed in ascending order."""

    @property
    def head_change(self) -> HeadChange:
        """What the commit records; raises InvalidArgument for names that cannot be kept."""
        return HeadChange(job_id=self.job_id, application=self.application)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkWork:
    """The combined work of all tasks of a run."""

    files: tuple[DataFile, ...] = ()
    marked: Mapping[str, BitMap64] = field(default_factory=dict)
    """Live rows of the base that are superseded, by path."""
    deleted_keys: tuple[KeyArray, ...] = ()
    """Keys to delete, whether they have a row or not."""
    seen_keys: tuple[KeyArray, ...] = ()
    """Keys that the job read and leaves alone."""
    deletes: tuple[DataFile, ...] = ()
    """Deletes to remember."""

    @property
    def row_count(self) -> int:
        """Rows in the files."""
        return sum(file.row_count for file in self.files)

    @classmethod
    def joined(cls, pieces: Iterable["BulkWork"]) -> "BulkWork":
        """Combine the work of several tasks."""
        files: list[DataFile] = []
        marked: dict[str, BitMap64] = {}
        deleted: list[KeyArray] = []
        seen: list[KeyArray] = []
        deletes: list[DataFile] = []
        for piece in pieces:
            files += piece.files
            deleted += piece.deleted_keys
            seen += piece.seen_keys
            deletes += piece.deletes
            for path, positions in piece.marked.items():
                marked[path] = marked.get(path, BitMap64()) | positions
        return cls(
            files=tuple(files),
            marked=marked,
            deleted_keys=tuple(deleted),
            seen_keys=tuple(seen),
            deletes=tuple(deletes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOutcome:
    """The outcome of a job."""

    version: int
    """The Version that has its rows; the current one when it changed nothing."""
    rows_written: int = 0
    rows_superseded: int = 0
    """Rows that the table had before and no longer has."""
    files: int = 0
    was_already_done: bool = False
    """The same job or batch was committed before; nothing was written now."""
