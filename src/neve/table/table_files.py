"""TableFiles: the files of one table with everything that reads and writes them.

The live engine, jobs, workers and plans for other engines each make one of these from the table's
parts, and read and write files only through it:

    definitions    schemas and partition specs by id, parsed once
    context(id)    how rows are read under a schema, made once
    reader(file)   a data file, opened once; its vector with `marked` and `keep_mask`
    writers        new data files and vectors
    view(version)  the rows of a Version

A reader stays open while it is used; the most recently used of the others are kept. A data file
never changes, so there is one reader per path, whatever vector the file has in a Version.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.errors import NeveError
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Version
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import VectorCache, bitmap_of, positions_in, superseded_rows
from neve.sstable.index_file import IndexFiles
from neve.sstable.parquet_groups import GroupCache
from neve.storage.clock import IdSource
from neve.table.file_set import FileSet
from neve.table.file_writers import FileWriters
from neve.table.partitions import PartitionedKeys
from neve.table.table_context import TableContext, TableParts
from neve.table.table_view import TableView

FILE_BYTES: Final = 64 << 20
_CACHE_BYTES: Final = 64 << 20
_READERS_KEPT: Final = 1_024


class TableFiles:
    """Files of one table; safe for many threads."""

    def __init__(
        self,
        parts: TableParts,
        schema_id: int,
        *,
        cache_bytes: int = _CACHE_BYTES,
        file_bytes: int = FILE_BYTES,
        ids: IdSource | None = None,
    ) -> None:
        """Take any schema of the table: all have the same key columns.

        `ids` name new files, by default those of the table's parts.
        """
        # Fixed at construction.
        self.parts = parts
        self.definitions = parts.definitions
        # Safe without a lock: a context made twice is the same.
        self._contexts: dict[int, TableContext] = {}
        context = self.context(schema_id)
        self.partitions = context.partitions
        """What a key says of the partition of its row."""
        self._encoder = context.encoder
        self.writers = FileWriters(
            parts, encoder=context.encoder, file_bytes=file_bytes, ids=ids or parts.ids
        )
        self._index_files = IndexFiles(parts.objects, parts.paths, context.encoder)
        self.groups = GroupCache(cache_bytes)
        self.vectors = VectorCache(parts.objects, parts.paths, bytes_max=max(cache_bytes // 4, 1))
        # Guarded by _lock.
        self._lock = Lock()
        self._readers: OrderedDict[str, DataFileReader] = OrderedDict()

    # Rows

    def context(self, schema_id: int) -> TableContext:
        """Return how rows are read under a schema; raises Corruption for an unknown one."""
        found = self._contexts.get(schema_id)
        if found is None:
            found = TableContext(self.definitions.schema(schema_id), self.definitions)
            self._contexts[schema_id] = found
        return found

    def file_set(self, version: Version, *, before: FileSet | None = None) -> FileSet:
        """Arrange the files of a Version; probes of files that `before` has are reused."""
        return FileSet(version, self, self.partitions, before=before)

    def view(self, version: Version, schema_id: int | None = None) -> TableView:
        """Return the rows of a Version's files, by default under the Version's own schema."""
        context = self.context(version.facts.schema_id if schema_id is None else schema_id)
        return TableView((), self.file_set(version), context)

    # Open files

    def reader(self, file: DataFile) -> DataFileReader:
        """Open a data file, or return the one that is open; raises NotFound, Corruption."""
        with self._lock:
            found = self._readers.get(file.path)
            if found is not None:
                self._readers.move_to_end(file.path)
                return found
        # Outside the lock: opening reads. Two threads that open one file at once use the first's.
        opened = DataFileReader(
            file,
            store=self.parts.objects,
            paths=self.parts.paths,
            schema=self.definitions.schema(file.schema_id),
            encoder=self._encoder,
            group_cache=self.groups,
            recorder=self.parts.recorder,
        )
        with self._lock:
            reader = self._readers.setdefault(file.path, opened)
            while len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
        return reader

    def marked(self, file: DataFile) -> BitMap64 | None:
        """Positions that the file's vector marks; None without one."""
        return None if file.vector is None else self.vectors.positions(file)

    def keep_mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """One flag per row, false for those the vector marks; None when no row is marked."""
        return None if file.vector is None else self.vectors.mask(file)

    def keys_of(self, file: DataFile, positions: Sequence[int]) -> list[bytes]:
        """Return the keys at ascending positions of a file."""
        keys = self.reader(file).keys_at(np.array(positions, np.int64))
        return [key_at(keys, place) for place in range(len(keys))]

    def superseded(self, version: Version, keys: KeyArray) -> dict[str, BitMap64]:
        """Find the live rows of ascending keys in a Version, by path of their file."""
        return superseded_rows(
            version.files.values(),
            keys,
            open_reader=self.reader,
            vector_of=self.marked,
            keys_for=PartitionedKeys(keys, self.partitions).keys_for,
        )

    def index_problem(self, file: DataFile) -> NeveError | None:
        """Read the index file of a data file whole; returns what makes it useless."""
        return self._index_files.problem(file, self.definitions.schema(file.schema_id))

    def rebuild_indexes(self, files: Iterable[DataFile]) -> list[str]:
        """Write useless index files again; returns the paths of their data files."""
        return self._index_files.rebuild_useless(files, self.definitions.schema)

    def forget(self, paths: Iterable[str]) -> None:
        """Close files that no Version in use reaches."""
        with self._lock:
            gone = [self._readers.pop(path, None) for path in paths]
        for reader in gone:
            if reader is not None:
                self.groups.drop_file(reader.file.path)

    def close(self) -> None:
        """Close all files."""
        with self._lock:
            self._readers.clear()
        self.groups.clear()
        self.vectors.clear()

    # Methods for a rebase (neve.manifest.rebase.RowLookup).

    def positions_of(self, file: DataFile, keys: KeyArray) -> BitMap64:
        """Positions of the rows of these keys in a file, marked ones included."""
        return bitmap_of(self.reader(file).positions_of(keys))

    def keys_at(self, file: DataFile, positions: BitMap64) -> KeyArray:
        """Keys of the rows at these positions."""
        return self.reader(file).keys_at(positions_in(positions))

    def vector(self, file: DataFile) -> BitMap64:
        """Positions that the file's vector marks; empty without one."""
        return self.marked(file) or BitMap64()

    def write_vectors(self, whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
        """Write whole vectors by data file path; return where each is."""
        return self.writers.vectors(whole)
