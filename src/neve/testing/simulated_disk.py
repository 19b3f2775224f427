"""SimulatedDisk: a disk in memory that can lose power at any call.

A test runs the real code on it, cuts the power at call n, and checks what `after_power_cut`
returns: a new disk with what was synced, and any part of what was not (`neve.testing.power_loss`
says which parts). A cut happens during its call: the call's own effect may or may not be left, too.
Only the seed and the passed generator decide what is random.

    disk = SimulatedDisk()
    disk.power_cut_at(17)
    with suppress(PowerCut):
        work(disk)
    survivor = disk.after_power_cut(Random(4))

`without` leaves out one sync, so that a test can show that it is needed.
"""

import errno
import os
import posixpath
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final, NoReturn, Self

from neve.storage.clock import Clock
from neve.storage.disk import DirectoryEntry, FileKind, FileStatus
from neve.testing.disk_calls import SYNCS, CallKind, DiskCall
from neve.testing.power_loss import (
    NameChange,
    Node,
    Resized,
    SimulatedDirectory,
    SimulatedFile,
    Survival,
    Written,
    surviving_tree,
)
from neve.testing.simulated_clock import SimulatedClock

_FIRST_HANDLE: Final = 3

# Two of three power cuts leave a random part, the others one of the extremes.
_SURVIVALS: Final = (*Survival, *(Survival.RANDOM,) * 7)


class PowerCut(BaseException):
    """The power is off; not an Exception, so that no code under test handles it."""


@dataclass(frozen=True, slots=True)
class _Opened:
    file: SimulatedFile
    path: str
    is_writable: bool


class SimulatedDisk:
    """A disk in memory with power cuts; safe for many threads."""

    def __init__(self, seed: int = 0, *, clock: Clock | None = None) -> None:
        # Fixed at construction.
        self._clock: Clock = SimulatedClock() if clock is None else clock
        self._mutex = threading.RLock()
        # Guarded by _mutex.
        self._random = Random(seed)
        self._root = SimulatedDirectory()
        self._changes: list[NameChange] = []
        self._opened: dict[int, _Opened] = {}
        self._next_handle = _FIRST_HANDLE
        self._log: list[DiskCall] = []
        self._cut_at: int | None = None
        self._is_dark = False
        self._left_out: set[tuple[CallKind, int]] = set()
        self._occurrences: dict[CallKind, int] = {}

    @property
    def calls(self) -> int:
        """Number of calls so far."""
        return len(self._log)

    @property
    def log(self) -> tuple[DiskCall, ...]:
        """Every call so far, in order; equal for two equal runs."""
        return tuple(self._log)

    @property
    def open_handles(self) -> int:
        """Number of handles that are not closed."""
        return len(self._opened)

    def power_cut_at(self, call: int) -> Self:
        """Cut the power in the call of this number, counted from 1; later calls fail."""
        self._cut_at = call
        return self

    def without(self, kind: CallKind, occurrence: int) -> Self:
        """Make the sync of this kind and number, counted from 1, succeed and do nothing."""
        if kind not in SYNCS:
            raise ValueError(f"only syncs can be left out unnoticed, not {kind}")
        self._left_out.add((kind, occurrence))
        return self

    def syncs(self) -> tuple[tuple[CallKind, int], ...]:
        """Every sync so far, as arguments of `without`."""
        return tuple(
            (kind, occurrence)
            for kind in sorted(SYNCS)
            for occurrence in range(1, self._occurrences.get(kind, 0) + 1)
        )

    def after_power_cut(
        self, rng: Random | None = None, *, survival: Survival | None = None
    ) -> "SimulatedDisk":
        """Return the disk as it is when the power is back; this one does not change.

        The generator decides which unsynced effects are left, and, unless passed in, how many.
        """
        with self._mutex:
            chosen = self._random if rng is None else rng
            if survival is None:
                survival = chosen.choice(_SURVIVALS)
            disk = SimulatedDisk(chosen.getrandbits(32), clock=self._clock)
            disk._root = surviving_tree(self._root, self._changes, chosen, survival)
            return disk

    def lose_unsynced(self, handle: int) -> None:
        """Apply a failed sync to a file: the unsynced bytes will never be durable."""
        with self._mutex:
            self._file(handle).lose_unsynced()

    def make_directory(self, path: str) -> None:
        """Make one directory."""
        with self._called(CallKind.MAKE_DIRECTORY, path):
            self._add_name(path, SimulatedDirectory())

    def create_file(self, path: str) -> int:
        """Make and open a file."""
        with self._called(CallKind.CREATE_FILE, path):
            file = SimulatedFile(modified_ms=self._clock.now_ms())
            self._add_name(path, file)
            return self._open(file, path, is_writable=True)

    def open_file(self, path: str, *, writable: bool = False) -> int:
        """Open an existing file."""
        with self._called(CallKind.OPEN_FILE, path):
            return self._open(self._file_at(path), path, is_writable=writable)

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Read at an offset."""
        with self._called(CallKind.READ, self._path(handle), offset, length):
            return bytes(self._file(handle).content[offset : offset + length])

    def read_into(self, handle: int, offset: int, pieces: Sequence[memoryview]) -> int:
        """Read at an offset into the pieces."""
        content = memoryview(self.read(handle, offset, sum(map(len, pieces))))
        taken = len(content)
        for piece in pieces:
            part = content[: len(piece)]
            piece[: len(part)] = part
            content = content[len(part) :]
        return taken

    def map_file(self, handle: int) -> memoryview:
        """Return a copy of the bytes as they are now."""
        with self._called(CallKind.MAP_FILE, self._path(handle)):
            return memoryview(bytes(self._file(handle).content))

    def write(self, handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write everything at an offset."""
        payload = b"".join(pieces)
        with self._called(CallKind.WRITE, self._path(handle), offset, len(payload)):
            if payload:
                self._change(handle, Written(offset, payload))
            return len(payload)

    def write_durably(self, handle: int, piece: bytes, offset: int) -> int:
        """Write at an offset and make these bytes durable, but no other ones."""
        effect = Written(offset, piece)
        with self._called(CallKind.WRITE, self._path(handle), offset, len(piece)):
            self._change(handle, effect)
        with self._called(CallKind.SYNC, self._path(handle)) as is_left_out:
            if not is_left_out:
                self._file(handle).sync_only(effect)
        return len(piece)

    def allocate(self, handle: int, length: int) -> None:
        """Lengthen a file."""
        with self._called(CallKind.ALLOCATE, self._path(handle), length):
            self._change(handle, Resized(length, may_cut=False))

    def truncate(self, handle: int, length: int) -> None:
        """Shorten or lengthen a file."""
        with self._called(CallKind.TRUNCATE, self._path(handle), length):
            self._change(handle, Resized(length, may_cut=True))

    def size(self, handle: int) -> int:
        """Return the size of an open file."""
        with self._called(CallKind.SIZE, self._path(handle)):
            return len(self._file(handle).content)

    def sync(self, handle: int) -> None:
        """Make bytes and size durable."""
        with self._called(CallKind.SYNC, self._path(handle)) as is_left_out:
            file = self._file(handle)
            if not is_left_out:
                file.sync()

    def sync_all(self, handles: Sequence[int]) -> None:
        """Make several files durable, one after another."""
        for handle in handles:
            self.sync(handle)

    def close(self, handle: int) -> None:
        """Close a handle and free its lock."""
        with self._called(CallKind.CLOSE, self._path(handle)):
            file = self._file(handle)
            if file.lock_holder == handle:
                file.lock_holder = None
            del self._opened[handle]

    def link(self, source: str, target: str) -> None:
        """Link a file under a second name."""
        with self._called(CallKind.LINK, target):
            self._add_name(target, self._file_at(source, directory_error=errno.EPERM))

    def rename(self, source: str, target: str) -> None:
        """Move a name, replacing a file."""
        with self._called(CallKind.RENAME, target):
            node = self._node(source)
            old, old_name = self._parent(source)
            new, new_name = self._parent(target)
            replaced = new.entries.get(new_name)
            if replaced is node:
                return
            if isinstance(node, SimulatedDirectory):
                _fail(errno.ENOTSUP if replaced is None else errno.EEXIST, target)
            if isinstance(replaced, SimulatedDirectory):
                _fail(errno.EISDIR, target)
            awaiting = [old] if old is new else [old, new]
            self._change_names(((old, old_name, None), (new, new_name, node)), awaiting)

    def remove(self, path: str) -> None:
        """Remove the name of a file."""
        with self._called(CallKind.REMOVE, path):
            self._file_at(path)
            directory, name = self._parent(path)
            self._change_names(((directory, name, None),), [directory])

    def remove_directory(self, path: str) -> None:
        """Remove the name of an empty directory."""
        with self._called(CallKind.REMOVE_DIRECTORY, path):
            if self._directory_at(path).entries:
                _fail(errno.ENOTEMPTY, path)
            directory, name = self._parent(path)
            self._change_names(((directory, name, None),), [directory])

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return the names in a directory."""
        with self._called(CallKind.LIST_DIRECTORY, path):
            entries = sorted(self._directory_at(path).entries.items())
            return [DirectoryEntry(name, _kind(node)) for name, node in entries]

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        with self._called(CallKind.SYNC_DIRECTORY, path) as is_left_out:
            directory = self._directory_at(path)
            if is_left_out:
                return
            for change in self._changes:
                if directory in change.awaiting:
                    change.awaiting.remove(directory)
            while self._changes and not self._changes[0].awaiting:
                for place, name, node in self._changes.pop(0).edits:
                    _edit(place.durable, name, node)

    def sync_directories(self, paths: Sequence[str]) -> None:
        """Make the entries of several directories durable, one after another."""
        for path in paths:
            self.sync_directory(path)

    def lock(self, handle: int) -> bool:
        """Take the lock of an open file, unless another handle has it."""
        with self._called(CallKind.LOCK, self._path(handle)):
            file = self._file(handle)
            if file.lock_holder is None:
                file.lock_holder = handle
            return file.lock_holder == handle

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path."""
        with self._called(CallKind.STAT, path):
            node = self._node(path)
            if isinstance(node, SimulatedDirectory):
                return FileStatus(kind=FileKind.DIRECTORY, size=0, modified_ms=0)
            return FileStatus(
                kind=FileKind.FILE, size=len(node.content), modified_ms=node.modified_ms
            )

    def real_path(self, path: str) -> str:
        """Return the path without `.` and `..`; there are no links here."""
        with self._called(CallKind.REAL_PATH, path):
            return posixpath.normpath(posixpath.join("/", path))

    def process_id(self) -> int:
        """Return the same id always: everything happens in one process."""
        return 1

    @contextmanager
    def _called(self, kind: CallKind, target: str, *numbers: int) -> Iterator[bool]:
        """Count a call; yield whether its effect is left out."""
        with self._mutex:
            if self._is_dark:
                raise PowerCut
            self._log.append(DiskCall(kind, target, numbers))
            self._occurrences[kind] = self._occurrences.get(kind, 0) + 1
            self._is_dark = len(self._log) == self._cut_at
            # An interrupted sync guarantees nothing: its effects may still be lost.
            if self._is_dark and kind in SYNCS:
                raise PowerCut
            try:
                yield (kind, self._occurrences[kind]) in self._left_out
            finally:
                if self._is_dark:
                    raise PowerCut

    def _open(self, file: SimulatedFile, path: str, *, is_writable: bool) -> int:
        handle = self._next_handle
        self._next_handle += 1
        self._opened[handle] = _Opened(file, path, is_writable)
        return handle

    def _path(self, handle: int) -> str:
        opened = self._opened.get(handle)
        return "" if opened is None else opened.path

    def _file(self, handle: int) -> SimulatedFile:
        opened = self._opened.get(handle)
        if opened is None:
            _fail(errno.EBADF, f"handle {handle}")
        return opened.file

    def _change(self, handle: int, effect: Written | Resized) -> None:
        file = self._file(handle)
        if not self._opened[handle].is_writable:
            _fail(errno.EBADF, self._path(handle))
        file.change(effect, now_ms=self._clock.now_ms())

    def _add_name(self, path: str, node: Node) -> None:
        directory, name = self._parent(path)
        if not name or name in directory.entries:
            _fail(errno.EEXIST, path)
        self._change_names(((directory, name, node),), [directory])

    def _change_names(
        self,
        edits: tuple[tuple[SimulatedDirectory, str, Node | None], ...],
        awaiting: list[SimulatedDirectory],
    ) -> None:
        for directory, name, node in edits:
            _edit(directory.entries, name, node)
        self._changes.append(NameChange(edits, awaiting))

    def _parent(self, path: str) -> tuple[SimulatedDirectory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory_at(above), name

    def _node(self, path: str) -> Node:
        node: Node = self._root
        for segment in path.split("/"):
            if not segment:
                continue
            if not isinstance(node, SimulatedDirectory):
                _fail(errno.ENOTDIR, path)
            if segment not in node.entries:
                _fail(errno.ENOENT, path)
            node = node.entries[segment]
        return node

    def _directory_at(self, path: str) -> SimulatedDirectory:
        node = self._node(path)
        if not isinstance(node, SimulatedDirectory):
            _fail(errno.ENOTDIR, path)
        return node

    def _file_at(self, path: str, *, directory_error: int = errno.EISDIR) -> SimulatedFile:
        node = self._node(path)
        if isinstance(node, SimulatedDirectory):
            _fail(directory_error, path)
        return node


def _kind(node: Node) -> FileKind:
    return FileKind.DIRECTORY if isinstance(node, SimulatedDirectory) else FileKind.FILE


def _edit(entries: dict[str, Node], name: str, node: Node | None) -> None:
    if node is None:
        entries.pop(name, None)
    else:
        entries[name] = node


def _fail(number: int, target: str) -> NoReturn:
    raise OSError(number, os.strerror(number), target)
