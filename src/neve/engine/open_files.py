"""TableFiles: the data files and vectors a table has open, for readers, flushes and rebases alike.

A reader stays open as long as somebody uses it; of the others the most recently used are kept. A
data file never changes, so there is one reader per path, whatever vector the file has in a Version.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.errors import NeveError
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.data_file import DataFile
from neve.model.schema import TableSchema
from neve.observability.metrics import Recorder
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import bitmap_of, positions_in
from neve.sstable.group_cache import GroupCache
from neve.sstable.index_rebuild import IndexFiles
from neve.sstable.vector_cache import VectorCache
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths

_READERS_KEPT: Final = 1_024


class TableFiles:
    """Readers by path; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        paths: TablePaths,
        *,
        schema_of: Callable[[int], TableSchema],
        encoder: KeyEncoder,
        cache_bytes: int,
        recorder: Recorder,
    ) -> None:
        # Fixed at construction.
        self._objects = objects
        self._paths = paths
        self._schema_of = schema_of
        self._encoder = encoder
        self._words = KeyHashes(encoder)
        self._recorder = recorder
        # Safe on their own.
        self.groups = GroupCache(cache_bytes)
        self.vectors = VectorCache(objects, paths, bytes_max=max(cache_bytes // 4, 1))
        # Guarded by _lock.
        self._lock = Lock()
        self._readers: OrderedDict[str, DataFileReader] = OrderedDict()

    def reader(self, file: DataFile) -> DataFileReader:
        """Open a data file, or give the one that is open; raises NotFound, Corruption."""
        with self._lock:
            found = self._readers.get(file.path)
            if found is not None:
                self._readers.move_to_end(file.path)
                return found
        # Outside of the lock: opening reads. Two that open one file at once use the first's.
        opened = DataFileReader(
            file,
            store=self._objects,
            paths=self._paths,
            schema=self._schema_of(file.schema_id),
            encoder=self._encoder,
            words=self._words,
            group_cache=self.groups,
            recorder=self._recorder,
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

    def index_problem(self, file: DataFile) -> NeveError | None:
        """Read the index file of a data file whole; returns what makes it useless."""
        indexes = IndexFiles(self._objects, self._paths, self._encoder)
        return indexes.problem(file, self._schema_of(file.schema_id))

    def forget(self, paths: Iterable[str]) -> None:
        """Close files that no Version in use reaches any more."""
        with self._lock:
            gone = [self._readers.pop(path, None) for path in paths]
        for reader in gone:
            if reader is not None:
                self.groups.drop_file(reader.file.path)

    def close(self) -> None:
        """Let go of everything that is open."""
        with self._lock:
            self._readers.clear()
        self.groups.clear()
        self.vectors.clear()

    # What a rebase asks (neve.manifest.rebase.RowLookup).

    def positions_of(self, file: DataFile, keys: KeyArray) -> BitMap64:
        """Positions of the rows of these keys in a file, marked ones included."""
        return bitmap_of(self.reader(file).positions_of(keys))

    def keys_at(self, file: DataFile, positions: BitMap64) -> KeyArray:
        """Keys of the rows at these positions."""
        return self.reader(file).keys_at(positions_in(positions))

    def vector(self, file: DataFile) -> BitMap64:
        """Positions that the file's vector marks; empty without one."""
        return self.marked(file) or BitMap64()
