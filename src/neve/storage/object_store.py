"""The interfaces of storage: ObjectStore, for whole objects, and AppendFile, for logs.

An ObjectStore holds named byte strings, rarely replaced, with conditional writes. Names are
relative paths with `/`; `neve.storage.table_paths` says which are refused. Every implementation
runs `neve.testing.store_contract.ObjectStoreContract`. What callers may rely on:

STORAGE-1  A reader sees an object whole or not at all, never a part of it.
STORAGE-2  When a write returns, the object survives power loss.
STORAGE-3  `put_if_absent` has exactly one winner per path; `put_if_match` one per tag.
STORAGE-4  `None` from a conditional write means certainly not written. A write whose answer was
           lost is read back; if that does not decide, the error is `OutcomeUnknown`. Reading back
           compares bytes, so conditional payloads must be unique to their writer (neve's carry a
           transaction id).
STORAGE-5  A tag changes whenever the bytes change. Equal bytes may have equal tags, so contents
           that are compared by tag must never repeat.
STORAGE-6  `list` returns every object that existed before the call and was not deleted since, in
           ascending order of path.
STORAGE-7  A deleted object may come back after power loss; nothing may rely on it being gone.

`plain_location` spells locations as Iceberg's metadata does. Iceberg compares locations byte for
byte and decodes nothing: a directory named `my lake` is `file:///my lake`, not the URI
`file:///my%20lake`. Everything that other engines read (metadata, manifests, and the vectors that
name their data files) spells locations this way.

Three capabilities are optional, with a fallback for other stores:

- Mapping an object into memory, or only the start of a large one that has to be fetched. A mapped
  object costs neither time nor memory until its bytes are read. They are in the operating system's
  cache then, shared by all processes that map it, and stay valid when the object is deleted. If the
  disk cannot read them any more, the process ends, as for every program that maps files: map only
  caches that can be rebuilt, and check their checksums.
- Storing a file in pieces, without joining them in memory first. Data files are large, are written
  once under a unique name, and are never compared by tag: the store returns none.
- Storing an object a second time under a new name, without its bytes passing through this process:
  a hard link on a disk, a copy inside the bucket. Deleting one name leaves the other.

An AppendFile does what a log needs and object stores lack. Every implementation runs
`neve.testing.append_contract.AppendFilesContract`.

STORAGE-8  When `create` or `recycle` returns, the file's name survives power loss; in a bucket,
           when its first sync does.
STORAGE-9  When `sync` returns, every byte appended before the call survives power loss.
STORAGE-10  Bytes appended since the last sync may survive in any part, in any order, torn at any
            byte.
STORAGE-11  A failed append or sync poisons the file: every later call raises Closed, and only
            reopening shows what is on disk. A sync is never tried twice.
STORAGE-12  One process at a time holds a lock; the kernel frees it when its holder dies. A bucket
            has no locks between processes: there, `fence` ends the writer before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import current_thread
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable
from urllib.parse import unquote

import pyarrow as pa

from neve.storage.disk import FileKind

T = TypeVar("T")
R = TypeVar("R")

_REQUESTS_AT_ONCE: Final = 16
# Files that are collected to be stored together are stored from this size on.
_COLLECTED_BYTES_MAX: Final = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """An object as a listing shows it."""

    path: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """One object as it was read, with the tag for `put_if_match`."""

    payload: bytes
    tag: str


class ObjectStore(Protocol):
    """Where whole objects live."""

    @property
    def location(self) -> str:
        """Root as a URI, `file:///…`, `s3://…` or `memory://…`; never holds a secret."""

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`, ascending, starting after `after`."""

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is ignored."""


_FILE: Final = "file:"


def plain_location(location: str, path: str = "") -> str:
    """Return the location of a store, or of an object in it, as Iceberg spells it."""
    root = unquote(location) if location.startswith(_FILE) else location
    root = root.rstrip("/")
    return f"{root}/{path}" if path else root


@runtime_checkable
class MapsObjects(Protocol):
    """A store that can map objects into memory."""

    def map(self, path: str) -> memoryview:
        """Return a whole object, read on access; raises NotFound."""


def map_object(store: ObjectStore, path: str) -> pa.Buffer:
    """Return the bytes of an object, read-only; raises NotFound."""
    payload = store.map(path) if isinstance(store, MapsObjects) else store.get(path).payload
    return pa.py_buffer(payload)


Stretch: TypeAlias = tuple[int, Sequence[memoryview]]
"""Where bytes begin in an object, and the memory that they are read into."""


@runtime_checkable
class ReadsInto(Protocol):
    """A store that reads into memory of the caller, and needs no time to find an object."""

    def read_into(self, path: str, stretches: Sequence[Stretch]) -> bool:
        """Fill the memory of all stretches; False if the object ends before; raises NotFound."""


@runtime_checkable
class MapsStarts(Protocol):
    """A store that fetches what it maps, so that the start of a large object is cheaper."""

    def map_start(self, path: str, *, length: int, wants_whole: bool) -> memoryview:
        """Return at least the first `length` bytes, unless the object is shorter.

        It is the whole object where that costs no memory, and it is wanted or nearby.
        """


@runtime_checkable
class TakesPieces(Protocol):
    """A store that writes an object piece by piece."""

    def put_pieces(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write or replace an object; when this returns it survives power loss."""


def put_file(
    store: ObjectStore | TakesPieces, path: str, pieces: Sequence[bytes | memoryview]
) -> None:
    """Store an object made of these pieces, in order."""
    if isinstance(store, TakesPieces):
        store.put_pieces(path, pieces)
    else:
        store.put(path, b"".join(pieces))


@runtime_checkable
class LinksObjects(Protocol):
    """A store that gives an object a second name without reading it."""

    def link(self, path: str, new_path: str) -> None:
        """Store an object under a new name as well; raises NotFound.

        When this returns, bytes and name survive power loss.
        """


def link_object(store: ObjectStore, path: str, new_path: str) -> None:
    """Store an object that never changes under a new name as well; raises NotFound."""
    if isinstance(store, LinksObjects):
        store.link(path, new_path)
    else:
        put_file(store, new_path, (store.get(path).payload,))


@runtime_checkable
class PutsTogether(Protocol):
    """A store that makes many new objects durable at once."""

    def put_new(self, files: Sequence[tuple[str, Sequence[bytes | memoryview]]]) -> None:
        """Create objects that are made of pieces, under new names; raises AlreadyExists."""


class NewFiles:
    """Files that are collected, and stored together; used by one thread at a time.

    Takes the place of a store for a writer of new files. They are in the store after `store_all`.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: dict[str, Sequence[bytes | memoryview]] = {}
        self._byte_count = 0

    def put_pieces(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Take a file; stores those before it when they take much memory."""
        self._files[path] = pieces
        self._byte_count += sum(map(len, pieces))
        if self._byte_count > _COLLECTED_BYTES_MAX:
            self.store_all()

    def delete(self, path: str) -> None:
        """Remove a file, stored or not."""
        if self._files.pop(path, None) is None:
            self._store.delete(path)

    def store_all(self) -> None:
        """Store what was collected."""
        files, self._files, self._byte_count = list(self._files.items()), {}, 0
        if len(files) > 1 and isinstance(self._store, PutsTogether):
            self._store.put_new(files)
            return
        for path, pieces in files:
            put_file(self._store, path, pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCount:
    """Requests of one kind to a bucket, and the bytes of objects that they carried."""

    requests: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    cost: float = 0.0
    """What they cost by the storage option `prices`, in its currency; US dollars by default."""


@runtime_checkable
class CountsRequests(Protocol):
    """A store whose requests are counted, since they are paid for."""

    def requests(self) -> Mapping[str, RequestCount]:
        """Return the requests since the store was opened, by kind; repeated ones count again."""


def requests_of(store: ObjectStore) -> Mapping[str, RequestCount]:
    """Return the requests of a bucket; none for a store that takes no requests."""
    return store.requests() if isinstance(store, CountsRequests) else {}


def at_once(call: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
    """Make calls side by side, since each waits for the network; raises the first error."""
    if len(arguments) < 2:  # noqa: PLR2004 - one needs no thread
        return [call(argument) for argument in arguments]
    workers = min(_REQUESTS_AT_ONCE, len(arguments))
    with ThreadPoolExecutor(workers, thread_name_prefix=current_thread().name) as threads:
        return [*threads.map(call, arguments)]


class AppendFile(Protocol):
    """One file open for appending; not safe for two threads at once."""

    @property
    def path(self) -> str:
        """Relative path inside the store."""

    @property
    def position(self) -> int:
        """Offset of the next append; an append moves it before it writes a byte."""

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces, in order, at the end."""

    def sync(self) -> None:
        """Make everything appended durable."""

    def truncate_to_position(self) -> None:
        """Remove preallocated or recycled bytes after the end; durable with the next sync."""

    def close(self) -> None:
        """Release the file; does not sync."""


class LockHandle(Protocol):
    """An exclusive lock, held until released or until the process dies."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class AppendFiles(Protocol):
    """Where append files live; reading, listing and deleting them goes through ObjectStore."""

    def create(self, path: str, *, preallocate_bytes: int = 0) -> AppendFile:
        """Open a new file; raises AlreadyExists."""

    def recycle(self, path: str, *, new_path: str, preallocate_bytes: int = 0) -> AppendFile:
        """Rename an old file and append over its bytes from the start; raises NotFound.

        Where no space can be reserved, the new file is empty.
        """

    def make_durable(self, path: str) -> None:
        """Sync a file that another writer left; raises NotFound.

        Until then its bytes may exist only in memory.
        """

    def odd_entries(self, directory: str) -> Mapping[str, FileKind]:
        """Return the kinds, by path, of what is below a directory but not a plain file.

        That includes directories. Listings of an ObjectStore skip links, pipes and the like.
        """

    def lock(self, path: str) -> LockHandle:
        """Take the exclusive lock at `path`; raises Fenced when another process holds it."""

    def fence(self, directory: str, *, below: int) -> None:
        """End all writers with numbers `below` this one: none of their syncs succeeds any more.

        Each has its files in a directory here, named by its number. Where a lock ends them, this
        does nothing.
        """


class LogStore(ObjectStore, AppendFiles, Protocol):
    """Where the logs of a table live: they are appended, read, listed and deleted."""


@runtime_checkable
class AppendsDurably(Protocol):
    """An append file that can write and sync in one call."""

    def append_durably(self, piece: bytes) -> None:
        """Write a piece at the end and make it durable; everything before it is so already."""


@runtime_checkable
class SyncsAhead(Protocol):
    """An append file whose next sync can begin before the last one has returned."""

    def begin_sync(self) -> Callable[[], None]:
        """Begin to sync; the function returned waits until this and earlier ones are durable."""
