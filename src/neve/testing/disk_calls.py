"""Disk calls as values, and a disk that reports each call before it forwards it.

`FaultyDisk` and `InterleavedDisk` are such disks; the log of a `SimulatedDisk` is a list of such
values.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from neve.storage.disk import DirectoryEntry, Disk, FileStatus


class CallKind(StrEnum):
    """Which call of a disk it was."""

    MAKE_DIRECTORY = "make_directory"
    CREATE_FILE = "create_file"
    OPEN_FILE = "open_file"
    READ = "read"
    MAP_FILE = "map_file"
    WRITE = "write"
    ALLOCATE = "allocate"
    TRUNCATE = "truncate"
    SIZE = "size"
    SYNC = "sync"
    CLOSE = "close"
    LINK = "link"
    RENAME = "rename"
    REMOVE = "remove"
    REMOVE_DIRECTORY = "remove_directory"
    LIST_DIRECTORY = "list_directory"
    SYNC_DIRECTORY = "sync_directory"
    LOCK = "lock"
    STAT = "stat"
    REAL_PATH = "real_path"


SYNCS: Final = frozenset({CallKind.SYNC, CallKind.SYNC_DIRECTORY})

# Calls that change what a power cut can leave.
CHANGES: Final = SYNCS | {
    CallKind.MAKE_DIRECTORY,
    CallKind.CREATE_FILE,
    CallKind.WRITE,
    CallKind.ALLOCATE,
    CallKind.TRUNCATE,
    CallKind.LINK,
    CallKind.RENAME,
    CallKind.REMOVE,
    CallKind.REMOVE_DIRECTORY,
}


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One call: its kind, its path and its numbers."""

    kind: CallKind
    target: str
    numbers: tuple[int, ...] = ()


class HookedDisk:
    """A disk that forwards to another one; subclasses see each call in `before`."""

    def __init__(self, inner: Disk) -> None:
        self._inner = inner
        # Safe on its own: each change is a single step.
        self._paths: dict[int, str] = {}

    def before(self, call: DiskCall) -> None:
        """See a call before it is made; raising here stops it."""

    def make_directory(self, path: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.MAKE_DIRECTORY, path))
        self._inner.make_directory(path)

    def create_file(self, path: str) -> int:
        """Report, then forward."""
        self.before(DiskCall(CallKind.CREATE_FILE, path))
        handle = self._inner.create_file(path)
        self._paths[handle] = path
        return handle

    def open_file(self, path: str, *, writable: bool = False) -> int:
        """Report, then forward."""
        self.before(DiskCall(CallKind.OPEN_FILE, path))
        handle = self._inner.open_file(path, writable=writable)
        self._paths[handle] = path
        return handle

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Report, then forward."""
        self._before_handle(CallKind.READ, handle, offset, length)
        return self._inner.read(handle, offset, length)

    def read_into(self, handle: int, offset: int, pieces: Sequence[memoryview]) -> int:
        """Report, then forward."""
        self._before_handle(CallKind.READ, handle, offset, sum(map(len, pieces)))
        return self._inner.read_into(handle, offset, pieces)

    def map_file(self, handle: int) -> memoryview:
        """Report, then forward."""
        self._before_handle(CallKind.MAP_FILE, handle)
        return self._inner.map_file(handle)

    def write(self, handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Report, then forward."""
        self._before_handle(CallKind.WRITE, handle, offset)
        return self._inner.write(handle, pieces, offset)

    def write_durably(self, handle: int, piece: bytes, offset: int) -> int:
        """Write and sync, and report both: what comes between them is seen, too."""
        written = self.write(handle, (piece,), offset)
        self.sync(handle)
        return written

    def allocate(self, handle: int, length: int) -> None:
        """Report, then forward."""
        self._before_handle(CallKind.ALLOCATE, handle, length)
        self._inner.allocate(handle, length)

    def truncate(self, handle: int, length: int) -> None:
        """Report, then forward."""
        self._before_handle(CallKind.TRUNCATE, handle, length)
        self._inner.truncate(handle, length)

    def size(self, handle: int) -> int:
        """Report, then forward."""
        self._before_handle(CallKind.SIZE, handle)
        return self._inner.size(handle)

    def sync(self, handle: int) -> None:
        """Report, then forward."""
        self._before_handle(CallKind.SYNC, handle)
        self._inner.sync(handle)

    def sync_all(self, handles: Sequence[int]) -> None:
        """Report and forward one after another."""
        for handle in handles:
            self.sync(handle)

    def close(self, handle: int) -> None:
        """Report, then forward."""
        self._before_handle(CallKind.CLOSE, handle)
        self._paths.pop(handle, None)
        self._inner.close(handle)

    def link(self, source: str, target: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.LINK, target))
        self._inner.link(source, target)

    def rename(self, source: str, target: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.RENAME, target))
        self._inner.rename(source, target)

    def remove(self, path: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.REMOVE, path))
        self._inner.remove(path)

    def remove_directory(self, path: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.REMOVE_DIRECTORY, path))
        self._inner.remove_directory(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Report, then forward."""
        self.before(DiskCall(CallKind.LIST_DIRECTORY, path))
        return self._inner.list_directory(path)

    def sync_directory(self, path: str) -> None:
        """Report, then forward."""
        self.before(DiskCall(CallKind.SYNC_DIRECTORY, path))
        self._inner.sync_directory(path)

    def sync_directories(self, paths: Sequence[str]) -> None:
        """Report and forward one after another."""
        for path in paths:
            self.sync_directory(path)

    def lock(self, handle: int) -> bool:
        """Report, then forward."""
        self._before_handle(CallKind.LOCK, handle)
        return self._inner.lock(handle)

    def stat(self, path: str) -> FileStatus:
        """Report, then forward."""
        self.before(DiskCall(CallKind.STAT, path))
        return self._inner.stat(path)

    def real_path(self, path: str) -> str:
        """Report, then forward."""
        self.before(DiskCall(CallKind.REAL_PATH, path))
        return self._inner.real_path(path)

    def process_id(self) -> int:
        """Forward, without a report: this is not I/O."""
        return self._inner.process_id()

    def _before_handle(self, kind: CallKind, handle: int, *numbers: int) -> None:
        self.before(DiskCall(kind, self._paths.get(handle, ""), numbers))
