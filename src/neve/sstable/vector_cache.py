"""VectorCache: deletion vectors of one table, read once and kept while there is room.

A vector is known by its file and its offset, and its bytes never change; so nothing is ever stale,
and what was used longest ago makes room. Two threads that miss together both read, and one keeps.
"""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.model.data_file import DataFile, VectorRef
from neve.sstable.deletion_vector import check_marked, keep_mask, read_vector
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths

_Key = tuple[str, int]

# What an entry costs beside its bitmap and its mask.
_ENTRY_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class _Entry:
    vector: BitMap64
    vector_bytes: int
    mask: npt.NDArray[np.bool_] | None = None

    @property
    def byte_count(self) -> int:
        mask_bytes = 0 if self.mask is None else self.mask.nbytes
        return _ENTRY_BYTES + self.vector_bytes + mask_bytes


class VectorCache:
    """Returns the vector of a data file, and the mask of its live rows. Safe for many threads.

    What it returns is shared: a bitmap that came from here is never changed.
    """

    def __init__(self, store: ObjectStore, paths: TablePaths, bytes_max: int) -> None:
        # Fixed at construction.
        self._store = store
        self._paths = paths
        self._bytes_max = bytes_max
        # Guarded by _lock; the entry used last is at the end.
        self._lock = Lock()
        self._entries: OrderedDict[_Key, _Entry] = OrderedDict()
        self._byte_count = 0

    @property
    def byte_count(self) -> int:
        """Bytes that the cache holds."""
        with self._lock:
            return self._byte_count

    def positions(self, file: DataFile) -> BitMap64:
        """Return the marked positions of a file; raises Corruption, or NotFound for the vector."""
        return BitMap64() if file.vector is None else self._entry(file, file.vector).vector

    def mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """Return True for each live row, read-only; None when no row is marked."""
        if file.vector is None:
            return None
        entry = self._entry(file, file.vector)
        if entry.mask is not None:
            return entry.mask
        mask = keep_mask(entry.vector, file)
        mask.flags.writeable = False
        self._keep(file.vector, _Entry(entry.vector, entry.vector_bytes, mask))
        return mask

    def remember(self, file: DataFile, vector: BitMap64) -> None:
        """Keep the vector of a file that was just written, so that no reader has to read it."""
        if file.vector is not None:
            check_marked(vector, file.vector, row_count=file.row_count)
            self._keep(file.vector, _Entry(vector, file.vector.length))

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._entries.clear()
            self._byte_count = 0

    def _entry(self, file: DataFile, ref: VectorRef) -> _Entry:
        key = (ref.path, ref.offset)
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry
        # Outside of the lock: a slow store does not hold up readers of what is here.
        vector = read_vector(self._store, self._paths, ref, row_count=file.row_count)
        entry = _Entry(vector, ref.length)
        self._keep(ref, entry)
        return entry

    def _keep(self, ref: VectorRef, entry: _Entry) -> None:
        key = (ref.path, ref.offset)
        with self._lock:
            before = self._entries.pop(key, None)
            if before is not None:
                self._byte_count -= before.byte_count
            self._entries[key] = entry
            self._byte_count += entry.byte_count
            while self._byte_count > self._bytes_max:
                _, dropped = self._entries.popitem(last=False)
                self._byte_count -= dropped.byte_count
