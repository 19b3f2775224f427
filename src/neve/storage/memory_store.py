"""MemoryStore: objects, append files and locks in this process, gone when it ends.

For tests, examples and caches. It keeps every rule of `object_store` that is possible without a
disk: nothing survives the process, so STORAGE-2, STORAGE-8 and STORAGE-9 hold while it lives.

Tags are numbers from one counter per store and never repeat, not even for equal bytes.
An append file is an object like any other: it can be read, listed and deleted while it is open.
Preallocated bytes are zeros, as on a disk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final
from urllib.parse import quote

from neve.errors import AlreadyExists, Closed, Fenced, InvalidArgument, NotFound
from neve.storage.disk import FileKind
from neve.storage.object_store import ObjectInfo, StoredObject
from neve.storage.table_paths import (
    check_lock_path,
    check_object_path,
    check_path,
    check_preallocation,
    check_prefix,
)


@dataclass(slots=True)
class _Entry:
    """One object; a bytearray belongs to an append file, which changes it under the lock."""

    payload: bytes | bytearray
    tag: str


class _Contents:
    """What a store, its open files and its locks share."""

    def __init__(self) -> None:
        # Guarded by lock.
        self.lock = Lock()
        self.entries: dict[str, _Entry] = {}
        self.locked_paths: set[str] = set()
        self._tags_given = 0

    def entry_locked(self, path: str) -> _Entry:
        entry = self.entries.get(path)
        if entry is None:
            raise NotFound("there is no such object", path=path)
        return entry

    def next_tag_locked(self) -> str:
        self._tags_given += 1
        return str(self._tags_given)


class MemoryStore:
    """An ObjectStore and AppendFiles in memory; safe for any number of threads."""

    def __init__(self, name: str = "") -> None:
        self._location = f"memory://{quote(name, safe='')}"
        self._contents = _Contents()

    def __repr__(self) -> str:
        return f"MemoryStore({self._location!r})"

    @property
    def location(self) -> str:
        """Root as a URI, `memory://name`."""
        return self._location

    # ObjectStore

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        check_object_path(path)
        with self._contents.lock:
            entry = self._contents.entry_locked(path)
            return StoredObject(payload=bytes(entry.payload), tag=entry.tag)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        check_object_path(path)
        with self._contents.lock:
            entry = self._contents.entry_locked(path)
            if entry.tag == tag:
                return None
            return StoredObject(payload=bytes(entry.payload), tag=entry.tag)

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        check_object_path(path)
        if start < 0 or length < 0:
            raise InvalidArgument(
                "a byte range has a negative start or length",
                path=path,
                hint="Pass a start and a length of 0 or more",
            )
        with self._contents.lock:
            whole = memoryview(self._contents.entry_locked(path).payload)
            with whole, whole[start : start + length] as part:
                return bytes(part)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""
        check_object_path(path)
        with self._contents.lock:
            return len(self._contents.entry_locked(path).payload)

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""
        check_object_path(path)
        with self._contents.lock:
            return self._write_locked(path, payload)

    def link(self, path: str, new_path: str) -> None:
        """Store an object under a new name as well; raises NotFound."""
        self.put(new_path, self.get(path).payload)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""
        check_object_path(path)
        with self._contents.lock:
            if path in self._contents.entries:
                return None
            return self._write_locked(path, payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""
        check_object_path(path)
        with self._contents.lock:
            entry = self._contents.entries.get(path)
            if entry is None or entry.tag != tag:
                return None
            return self._write_locked(path, payload)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`, ascending, as of the call."""
        check_prefix(prefix)
        if after is not None:
            check_prefix(after)
        with self._contents.lock:
            found = [
                ObjectInfo(path=path, size=len(entry.payload))
                for path, entry in self._contents.entries.items()
                if path.startswith(prefix) and (after is None or path > after)
            ]
        return iter(sorted(found, key=lambda info: info.path))

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is ignored."""
        check_object_path(path)
        with self._contents.lock:
            self._contents.entries.pop(path, None)

    # AppendFiles

    def create(self, path: str, *, preallocate_bytes: int = 0) -> "MemoryAppendFile":
        """Open a new file; raises AlreadyExists."""
        check_object_path(path)
        check_preallocation(path, preallocate_bytes)
        with self._contents.lock:
            self._refuse_taken_locked(path)
            return self._open_locked(path, bytearray(preallocate_bytes))

    def recycle(
        self, path: str, *, new_path: str, preallocate_bytes: int = 0
    ) -> "MemoryAppendFile":
        """Rename an old file and append over its bytes from the start; raises NotFound."""
        check_object_path(path)
        check_object_path(new_path)
        check_preallocation(path, preallocate_bytes)
        with self._contents.lock:
            old = bytearray(self._contents.entry_locked(path).payload)
            self._refuse_taken_locked(new_path)
            del self._contents.entries[path]
            old.extend(bytes(max(0, preallocate_bytes - len(old))))
            return self._open_locked(new_path, old)

    def make_durable(self, path: str) -> None:
        """Check that the file is there; raises NotFound. Memory has nothing to sync."""
        check_object_path(path)
        with self._contents.lock:
            self._contents.entry_locked(path)

    def fence(self, directory: str, *, below: int) -> None:
        """Do nothing: the holder of the lock is the only writer."""

    def odd_entries(self, directory: str) -> dict[str, FileKind]:
        """Return nothing: memory holds objects only."""
        check_path(directory)
        return {}

    def lock(self, path: str) -> "MemoryLock":
        """Take the exclusive lock at `path`, a file named LOCK; raises Fenced when it is held."""
        check_lock_path(path)
        with self._contents.lock:
            if path in self._contents.locked_paths:
                raise Fenced(
                    "the lock is held by another handle of this process",
                    path=path,
                    hint="Close the other handle, or read without the lock",
                )
            self._contents.locked_paths.add(path)
        return MemoryLock(self._contents, path)

    def _refuse_taken_locked(self, path: str) -> None:
        if path in self._contents.entries:
            raise AlreadyExists("the name is taken", path=path)

    def _write_locked(self, path: str, payload: bytes) -> str:
        # A new entry, so that an open append file of the same name keeps writing to its own bytes.
        tag = self._contents.next_tag_locked()
        self._contents.entries[path] = _Entry(bytes(payload), tag)
        return tag

    def _open_locked(self, path: str, payload: bytearray) -> "MemoryAppendFile":
        entry = _Entry(payload, self._contents.next_tag_locked())
        self._contents.entries[path] = entry
        return MemoryAppendFile(self._contents, entry, payload, path)


class MemoryAppendFile:
    """One file of a MemoryStore, open for appending."""

    def __init__(self, contents: _Contents, entry: _Entry, payload: bytearray, path: str) -> None:
        self._contents = contents
        self._entry = entry
        self._payload = payload
        self._path = path
        self._position = 0
        self._open = True

    @property
    def path(self) -> str:
        """Relative path inside the store."""
        return self._path

    @property
    def position(self) -> int:
        """Offset of the next append."""
        return self._position

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces, in order, at the end."""
        self._refuse_closed()
        piece = b"".join(pieces)
        end = self._position + len(piece)
        with self._contents.lock:
            start, self._position = self._position, end
            self._payload[start:end] = piece
            self._entry.tag = self._contents.next_tag_locked()

    def sync(self) -> None:
        """Do nothing: memory does not outlive the process."""
        self._refuse_closed()

    def truncate_to_position(self) -> None:
        """Remove preallocated or recycled bytes after the end."""
        self._refuse_closed()
        with self._contents.lock:
            del self._payload[self._position :]
            self._entry.tag = self._contents.next_tag_locked()

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._open = False

    def _refuse_closed(self) -> None:
        if not self._open:
            raise Closed("the append file was closed", path=self._path, hint="Open a new one")


class MemoryLock:
    """An exclusive lock of a MemoryStore."""

    def __init__(self, contents: _Contents, path: str) -> None:
        self._contents = contents
        self._path = path
        self._held = True

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._held:
            self._held = False
            with self._contents.lock:
                self._contents.locked_paths.discard(self._path)


_NAMED: Final[dict[str, MemoryStore]] = {}
_NAMED_LOCK: Final = Lock()


def named_memory_store(name: str) -> MemoryStore:
    """Return the one store of this name; it lives as long as the process, or until forgotten."""
    with _NAMED_LOCK:
        return _NAMED.setdefault(name, MemoryStore(name))


def forget_memory_stores() -> None:
    """Forget every named store; open handles keep theirs."""
    with _NAMED_LOCK:
        _NAMED.clear()
