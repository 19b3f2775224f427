"""CachedStore: a bucket whose data, index and vector files are kept nearby once they were read.

These files are written once, under names that never come again, so a copy never becomes wrong. It
holds a whole file or a stretch of one, and lives in a directory or in memory:

    <hash of location and path>-<start>-<end>-<part|rest>      bytes …, crc32c u32

A `rest` reaches to the end of the file. The stretches that were asked for are kept, rounded to
blocks: a small file is whole with the first read of its footer, and a scan of a large one does not
fetch columns that it does not read. Of an index, a get needs the start, which has the keys; only
where copies are on a disk, and so cost no memory, is it mapped whole, with its rows. Files that
this process writes are kept as they are written.

STORAGE-50  A copy whose checksum is wrong is dropped, and read from the bucket again.
STORAGE-51  Copies take at most `bytes_max`, and for a moment one file more. The ones that this
            process has not used for longest are deleted first. Other processes may share the
            directory, for the same bucket or others: they find a missing copy in the bucket, and
            mapped bytes stay valid.
STORAGE-52  A directory that is full, read-only or broken costs requests, never an answer.
"""

import hashlib
import logging
import re
import struct
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, TypeAlias

import google_crc32c

from neve.errors import NeveError
from neve.storage.cloud_options import RequestPrices
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import (
    ObjectInfo,
    ObjectStore,
    RequestCount,
    StoredObject,
    link_object,
    requests_of,
)

logger = logging.getLogger(__name__)

CopyStore: TypeAlias = LocalStore | MemoryStore

MEMORY_BYTES: Final = 64 << 20
DIRECTORY_BYTES: Final = 8 << 30
_BLOCK_BYTES: Final = 256 << 10
_CHECKSUM: Final = struct.Struct("<I")
_CACHED: Final = re.compile(r"tables/[^/]+/(?:data|index|deletes)/.+")
_NAME: Final = re.compile(r"([0-9a-f]{40})-([0-9]{1,19})-([0-9]{1,19})-(part|rest)")
# A file that is larger than this share would push out too much else.
_LARGEST_SHARE: Final = 4
_KEPT_SHARE: Final = 0.9


@dataclass(frozen=True, slots=True)
class _Copy:
    """A stretch of a file that is kept."""

    key: str
    start: int
    end: int
    is_rest: bool

    @property
    def name(self) -> str:
        return f"{self.key}-{self.start}-{self.end}-{'rest' if self.is_rest else 'part'}"

    @property
    def byte_count(self) -> int:
        return self.end - self.start + _CHECKSUM.size

    def has(self, start: int, end: int) -> bool:
        return self.start <= start and (self.is_rest or end <= self.end)

    @classmethod
    def named(cls, name: str) -> "_Copy | None":
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(found[1], int(found[2]), int(found[3]), found[4] == "rest")


class CachedStore:
    """An ObjectStore in front of another; safe for many threads and processes."""

    def __init__(
        self,
        store: ObjectStore,
        copies: CopyStore,
        *,
        bytes_max: int,
        prices: RequestPrices | None = None,
    ) -> None:
        # Fixed at construction.
        self.origin = store
        """The store below, which returns what the bucket has."""
        self._copies = copies
        self._bytes_max = bytes_max
        self._prices = prices or RequestPrices()
        # Guarded by _lock.
        self._lock = Lock()
        self._known: OrderedDict[_Copy, bool] = OrderedDict()
        """Copies, the one used last at the end, and whether this process has checked them."""
        self._by_key: dict[str, list[_Copy]] = {}
        self._byte_count = 0
        self._is_failing = False
        self._look()

    def __repr__(self) -> str:
        return f"CachedStore({self.location!r})"

    @property
    def location(self) -> str:
        """Root of the store below."""
        return self.origin.location

    @property
    def byte_count(self) -> int:
        """Bytes of copies that this process knows."""
        return self._byte_count

    def requests(self) -> Mapping[str, RequestCount]:
        """Return the requests to the store below and their cost, by kind.

        There are none where the store does not count them.
        """
        counts = requests_of(self.origin)
        return {kind: self._prices.priced(kind, count) for kind, count in counts.items()}

    # Reading

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        return self.origin.get(path)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        return self.origin.get_if_changed(path, tag=tag)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        if not _CACHED.fullmatch(path) or start < 0 or length <= 0:
            return self.origin.get_range(path, start=start, length=length)
        return bytes(self._stretch(path, start, start + length))

    def _stretch(self, path: str, start: int, end: int) -> memoryview:
        """Return bytes of a file, from a copy or fetched in blocks and kept."""
        copy = self._find(path, start, end)
        content = None if copy is None else self._content(copy)
        if copy is not None and content is not None:
            return content[start - copy.start : end - copy.start]
        begin = start - start % _BLOCK_BYTES
        asked = -(-end // _BLOCK_BYTES) * _BLOCK_BYTES - begin
        fetched = self.origin.get_range(path, start=begin, length=asked)
        made = _Copy(self._key(path), begin, begin + len(fetched), len(fetched) < asked)
        if self._keep(made, fetched) and (kept := self._content(made)) is not None:
            return kept[start - begin : end - begin]
        return memoryview(fetched)[start - begin : end - begin]

    def map(self, path: str) -> memoryview:
        """Return a whole object, mapped where copies are on a disk; raises NotFound."""
        if not _CACHED.fullmatch(path):
            return memoryview(self.origin.get(path).payload)
        copy = self._find(path, 0, None)
        content = None if copy is None else self._content(copy)
        if content is None:
            payload = self.origin.get(path).payload
            copy = _Copy(self._key(path), 0, len(payload), is_rest=True)
            is_kept = self._keep(copy, payload)
            content = self._content(copy) if is_kept else None
            if content is None:
                return memoryview(payload)
        return content

    def map_start(self, path: str, *, length: int, wants_whole: bool) -> memoryview:
        """Return at least the first `length` bytes, unless the object is shorter.

        It is the whole object when copies are on a disk, and it is wanted or there is a copy.
        """
        if not _CACHED.fullmatch(path):
            return memoryview(self.origin.get(path).payload)
        is_on_disk = isinstance(self._copies, LocalStore)
        if is_on_disk and (wants_whole or self._find(path, 0, None) is not None):
            return self.map(path)
        start = self._stretch(path, 0, length)
        # In memory, a part would keep the whole copy alive.
        return start if is_on_disk else memoryview(bytes(start))

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""
        copy = self._find(path, 0, None) if _CACHED.fullmatch(path) else None
        return self.origin.size(path) if copy is None else copy.end

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`, ascending, starting after `after`."""
        return self.origin.list(prefix, after=after)

    # Writing

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""
        tag = self.origin.put(path, payload)
        if _CACHED.fullmatch(path):
            self._forget(path)
            self._keep(_Copy(self._key(path), 0, len(payload), is_rest=True), payload)
        return tag

    def link(self, path: str, new_path: str) -> None:
        """Store an object under a new name as well; raises NotFound."""
        link_object(self.origin, path, new_path)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""
        return self.origin.put_if_absent(path, payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""
        return self.origin.put_if_match(path, payload, tag=tag)

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is ignored."""
        self.origin.delete(path)
        if _CACHED.fullmatch(path):
            self._forget(path)

    # Copies

    def _key(self, path: str) -> str:
        text = f"{self.location}\0{path}".encode()
        return hashlib.blake2b(text, digest_size=20).hexdigest()

    def _find(self, path: str, start: int, end: int | None) -> _Copy | None:
        """Return a copy with these bytes, or with the whole file; it is the last used now."""
        with self._lock:
            for copy in self._by_key.get(self._key(path), ()):
                is_whole = copy.start == 0 and copy.is_rest
                if is_whole if end is None else copy.has(start, end):
                    self._known.move_to_end(copy)
                    return copy
        return None

    def _content(self, copy: _Copy) -> memoryview | None:
        """Return the bytes of a copy; None when it is gone or damaged (STORAGE-50)."""
        try:
            if isinstance(self._copies, LocalStore):
                whole = self._copies.map(copy.name)
            else:
                whole = memoryview(self._copies.get(copy.name).payload)
        except NeveError:
            self._drop(copy)
            return None
        content = whole[: -_CHECKSUM.size]
        with self._lock:
            is_checked = self._known.get(copy, False)
        if not is_checked:
            is_whole = len(whole) == copy.byte_count
            stored = bytes(whole[-_CHECKSUM.size :])
            is_right = is_whole and stored == _CHECKSUM.pack(_checksum(content))
            if not is_right:
                logger.warning("dropped a damaged copy name=%s", copy.name)
                self._drop(copy)
                return None
            with self._lock:
                if copy in self._known:
                    self._known[copy] = True
        return content

    def _keep(self, copy: _Copy, payload: bytes) -> bool:
        if copy.byte_count > self._bytes_max // _LARGEST_SHARE:
            return False
        sealed = payload + _CHECKSUM.pack(google_crc32c.value(payload))
        try:
            self._copies.put(copy.name, sealed)
        except NeveError as error:
            if not self._is_failing:
                logger.warning("could not keep copies place=%s cause=%s", self._copies, error)
            self._is_failing = True
            return False
        self._is_failing = False
        self._add(copy, is_checked=True)
        self._make_room()
        return True

    def _add(self, copy: _Copy, *, is_checked: bool) -> None:
        with self._lock:
            if copy not in self._known:
                self._byte_count += copy.byte_count
                self._by_key.setdefault(copy.key, []).append(copy)
            self._known[copy] = is_checked
            self._known.move_to_end(copy)

    def _drop(self, copy: _Copy) -> None:
        with self._lock:
            if self._known.pop(copy, None) is not None:
                self._byte_count -= copy.byte_count
                self._by_key[copy.key].remove(copy)
                if not self._by_key[copy.key]:
                    del self._by_key[copy.key]
        try:
            self._copies.delete(copy.name)
        except NeveError as error:
            logger.warning("could not delete a copy name=%s cause=%s", copy.name, error)

    def _forget(self, path: str) -> None:
        with self._lock:
            copies = list(self._by_key.get(self._key(path), ()))
        for copy in copies:
            self._drop(copy)

    def _make_room(self) -> None:
        """Delete the copies that were not used for longest (STORAGE-51)."""
        if self._byte_count <= self._bytes_max:
            return
        self._look()
        with self._lock:
            excess = self._byte_count - int(self._bytes_max * _KEPT_SHARE)
            unneeded = []
            for copy in self._known:
                if excess <= 0:
                    break
                unneeded.append(copy)
                excess -= copy.byte_count
        for copy in unneeded:
            self._drop(copy)

    def _look(self) -> None:
        """Learn what is kept by others; what this process has used stays the most recent."""
        try:
            found = {copy for info in self._copies.list("") if (copy := _Copy.named(info.path))}
        except NeveError as error:
            logger.warning("could not list copies place=%s cause=%s", self._copies, error)
            return
        with self._lock:
            known = OrderedDict((copy, used) for copy, used in self._known.items() if copy in found)
            new = sorted(found - set(known), key=lambda copy: copy.name)
            self._known = OrderedDict([*((copy, False) for copy in new), *known.items()])
            self._by_key = {}
            for copy in self._known:
                self._by_key.setdefault(copy.key, []).append(copy)
            self._byte_count = sum(copy.byte_count for copy in self._known)


def _checksum(content: memoryview) -> int:
    """Return the CRC-32C of mapped bytes, which are copied piece by piece."""
    checksum = 0
    for start in range(0, len(content), _BLOCK_BYTES):
        piece = bytes(content[start : start + _BLOCK_BYTES])
        checksum = google_crc32c.extend(checksum, piece)
    return checksum


def origin_of(store: ObjectStore) -> ObjectStore:
    """Return the store below a cache, to check what is really there."""
    return store.origin if isinstance(store, CachedStore) else store
