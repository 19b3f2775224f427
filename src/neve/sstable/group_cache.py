"""GroupCache: decoded row groups of Columnar files, as many as fit into its bytes.

The group used longest ago makes room for a new one; one larger than the whole cache is not kept.

SSTABLE-25  An entry of a file that was dropped never comes back: a group whose decoding began
    before the drop is returned to its caller, and not kept.
SSTABLE-26  The bytes of all entries are never more than `bytes_max`.
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeAlias

import pyarrow as pa

Row: TypeAlias = dict[str, object]
Part: TypeAlias = tuple[str, int, bool]
"""Path of a file, number of a group, and whether only its key columns are meant."""


class CachedGroup:
    """One decoded group, and the function that reads its rows, once it was made."""

    __slots__ = ("batch", "byte_count", "read_row")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch: Final = batch
        # Slices of larger memory keep all of it alive.
        self.byte_count: Final = batch.get_total_buffer_size()
        self.read_row: Callable[[int], Row] | None = None


class _Loading:
    """One decoding under way."""

    __slots__ = ("is_stale",)

    def __init__(self) -> None:
        self.is_stale = False


class GroupCache:
    """Decoded groups by file and number; safe for many threads."""

    def __init__(self, bytes_max: int) -> None:
        # Fixed at construction.
        self._bytes_max = bytes_max
        # Guarded by _lock; the entry used last is at the end.
        self._lock = Lock()
        self._entries: OrderedDict[Part, CachedGroup] = OrderedDict()
        self._byte_count = 0
        self._loading: dict[str, set[_Loading]] = {}

    @property
    def byte_count(self) -> int:
        """Bytes that the cache holds."""
        with self._lock:
            return self._byte_count

    def find(self, path: str, group: int, *, keys_only: bool = False) -> CachedGroup | None:
        """Return a group that is there."""
        part = (path, group, keys_only)
        with self._lock:
            entry = self._entries.get(part)
            if entry is not None:
                self._entries.move_to_end(part)
            return entry

    def load(
        self,
        path: str,
        group: int,
        decode: Callable[[], pa.RecordBatch],
        *,
        keys_only: bool = False,
    ) -> CachedGroup:
        """Return a group, decoding it when it is not there; raises what decoding raises."""
        found = self.find(path, group, keys_only=keys_only)
        if found is not None:
            return found
        loading = _Loading()
        with self._lock:
            self._loading.setdefault(path, set()).add(loading)
        try:
            # Outside of the lock: no thread waits for another's decoding.
            entry = CachedGroup(decode())
        except BaseException:
            with self._lock:
                self._end_loading_locked(path, loading)
            raise
        with self._lock:
            self._end_loading_locked(path, loading)
            if not loading.is_stale:
                self._keep_locked((path, group, keys_only), entry)
        return entry

    def drop_file(self, path: str) -> None:
        """Forget the groups of a file, those being decoded too."""
        with self._lock:
            for loading in self._loading.get(path, ()):
                loading.is_stale = True
            for part in [part for part in self._entries if part[0] == path]:
                self._byte_count -= self._entries.pop(part).byte_count

    def clear(self) -> None:
        """Forget everything, what is being decoded too."""
        with self._lock:
            for loadings in self._loading.values():
                for loading in loadings:
                    loading.is_stale = True
            self._entries.clear()
            self._byte_count = 0

    def _end_loading_locked(self, path: str, loading: _Loading) -> None:
        loadings = self._loading[path]
        loadings.discard(loading)
        if not loadings:
            del self._loading[path]

    def _keep_locked(self, part: Part, entry: CachedGroup) -> None:
        if entry.byte_count > self._bytes_max:
            return
        before = self._entries.pop(part, None)
        if before is not None:
            self._byte_count -= before.byte_count
        self._entries[part] = entry
        self._byte_count += entry.byte_count
        while self._byte_count > self._bytes_max:
            _, dropped = self._entries.popitem(last=False)
            self._byte_count -= dropped.byte_count
