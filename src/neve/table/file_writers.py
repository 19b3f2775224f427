"""FileWriters: writes the files of one table: data files with their indexes, and vectors.

A file is not part of the table before the commit that names it. When a commit certainly failed, its
files are deleted at once; when the outcome is unknown they stay, and the next writer sweeps those
that are unreachable.

The files of a job have the name of its run in their paths:

    data/<run>/<partition path>/<run><random>.parquet
    index/<run><random>.index
    deletes/<run><random>.puffin

So the names can be announced before the first file is written, and files that a run left behind can
be found. A repeated run has another name: no file is ever written twice.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pyroaring import BitMap64

from neve.errors import NeveError
from neve.keys.encoding import KeyEncoder
from neve.model.data_file import DataFile, FileFormat, VectorRef, WalSegmentRef
from neve.model.schema import TableSchema
from neve.sstable.data_file_writer import DataFileWriter, WriteTarget, WrittenFile
from neve.sstable.parquet_layout import ParquetLayout
from neve.sstable.puffin import write_puffin
from neve.sstable.remembered_deletes import RememberedDeletes, write_deletes
from neve.storage.clock import IdSource
from neve.storage.object_store import NewFiles, plain_location
from neve.storage.table_paths import join_path
from neve.table.partitions import Partition
from neve.table.table_context import TableParts

WRITER_NAME: Final = "neve"
_RUN_DIGITS: Final = 16


class FileWriters:
    """Write files; safe for many threads."""

    def __init__(
        self, parts: TableParts, *, encoder: KeyEncoder, file_bytes: int, ids: IdSource
    ) -> None:
        self._parts = parts
        self._ids = ids
        self._encoder = encoder
        self._file_bytes = file_bytes

    def data_files(
        self,
        schema: TableSchema,
        *,
        spec_id: int,
        partition: Partition,
        level: int,
        file_format: FileFormat,
        sequences: tuple[int, int] = (0, 0),
        segments: tuple[WalSegmentRef, ...] = (),
        file_bytes: int | None = None,
        keeps_lineage: bool = False,
        together: NewFiles | None = None,
    ) -> DataFileWriter:
        """Start the data files of one partition and level.

        `sequences` are the lowest and the highest number that the live writer assigned to these
        rows, `segments` where it logged them, `file_bytes` a file size other than the table's. With
        `keeps_lineage`, rows come with the columns of `neve.model.row_lineage`; `together` collects
        the files of several writers.
        """
        parts = self._parts
        target = WriteTarget(
            store=parts.objects if together is None else together,
            paths=parts.paths,
            schema=schema,
            spec_id=spec_id,
            partition=partition.values,
            partition_path=partition.path,
            level=level,
            format=file_format,
            layout=ParquetLayout.from_properties(parts.properties),
            keeps_lineage=keeps_lineage,
            sequence_min=sequences[0],
            sequence_max=sequences[1],
            wal_segments=segments,
        )
        return DataFileWriter(
            target,
            ids=self._ids,
            encoder=self._encoder,
            file_bytes_max=file_bytes or self._file_bytes,
            recorder=parts.recorder,
        )

    def new_files(self) -> NewFiles:
        """Return a collector of files, for `data_files`."""
        return NewFiles(self._parts.objects)

    def vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        """Write whole vectors into one Puffin file; returns the place of each."""
        parts = self._parts
        locations = {path: self._location(path) for path in whole}
        payload, places = write_puffin(
            {locations[path]: vector for path, vector in whole.items()}, created_by=WRITER_NAME
        )
        stored = parts.paths.delete_file(self._ids.uuid().hex)
        parts.objects.put(stored, payload)
        path = stored.removeprefix(f"{parts.paths.root}/")
        return {
            data_path: VectorRef(
                path=path, offset=place.offset, length=place.length, cardinality=place.cardinality
            )
            for data_path, place in ((each, places[locations[each]]) for each in whole)
        }

    def deletes(self, deletes: RememberedDeletes, *, schema_id: int) -> DataFile:
        """Write deletes to remember, whose orders are those of a schema."""
        parts = self._parts
        return write_deletes(
            deletes,
            store=parts.objects,
            paths=parts.paths,
            file_id=self._ids.uuid().hex,
            schema_id=schema_id,
        )

    def discard(self, written: Iterable[WrittenFile]) -> None:
        """Delete files whose commit certainly failed; leftovers are swept later."""
        self.discard_files(each.file for each in written)

    def discard_files(self, files: Iterable[DataFile]) -> None:
        """Delete files as `discard` does, by their descriptions."""
        for file in files:
            with suppress(NeveError):
                delete_data_file(self._parts, file.path)

    def _location(self, path: str) -> str:
        return plain_location(self._parts.objects.location, f"{self._parts.paths.root}/{path}")


def delete_data_file(parts: TableParts, path: str) -> None:
    """Delete a file of the table by its relative path, and the index of a data file with it."""
    parts.objects.delete(join_path(parts.paths.root, path))
    if path.startswith("data/"):
        parts.objects.delete(parts.paths.index_of(path))


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of one run of a job: 16 hexadecimal digits that no other run has."""

    digits: str

    @classmethod
    def drawn(cls, ids: IdSource) -> "RunName":
        """Draw a name from the random digits of a UUID."""
        return cls(f"{ids.uuid().hex[:8]}{ids.uuid().hex[:8]}")

    @property
    def data_prefix(self) -> str:
        """Prefix of the paths of its data files."""
        return f"data/{self.digits}/"

    @property
    def vector_prefix(self) -> str:
        """Prefix of the paths of its vectors."""
        return f"deletes/{self.digits}"

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Prefixes of the paths of all its files."""
        return self.data_prefix, self.vector_prefix, f"index/{self.digits}"

    def placed(self, partition: Partition) -> Partition:
        """Return a partition whose directory is inside the run's."""
        return replace(partition, path=join_path(self.digits, partition.path).rstrip("/"))


class RunIds:
    """Identifiers that begin with the name of a run."""

    def __init__(self, run: RunName, ids: IdSource) -> None:
        self._run = run
        self._ids = ids

    def uuid(self) -> UUID:
        """Make a unique identifier."""
        return UUID(hex=f"{self._run.digits}{self._ids.uuid().hex[-_RUN_DIGITS:]}")

    def jitter(self) -> float:
        """Draw a number in [0, 1) for back-off."""
        return self._ids.jitter()

    def process(self) -> str:
        """Name this process for people."""
        return self._ids.process()
