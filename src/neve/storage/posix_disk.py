"""PosixDisk: the machine's own files; only this module of neve touches them.

Files are 0600 and directories 0700 under the umask, handles do not survive `exec`, and a symbolic
link in the last segment of a path is never followed.

A forked child shares its parent's open files: it would keep the parent's locks alive after the
parent's death, and its writes would mix with the parent's. So the child replaces every handle open
for writing with a read-only one of the null device: the lock belongs to the parent alone, and a
write fails with EBADF.

Systems differ in five calls. Each PosixDisk decides once, when it is created:

    call of the disk    Linux               macOS               where neither exists
    sync                fdatasync           F_FULLFSYNC         fsync
    sync_directory      fsync               F_FULLFSYNC         fsync
    allocate            posix_fallocate     ftruncate           ftruncate
    write of pieces     pwritev             pwritev             pwrite of the joined pieces
    write_durably       pwritev, RWF_DSYNC  write, then sync    write, then sync

On macOS `fsync` only sends the bytes to the drive, which may keep them in its cache and reorder
them; F_FULLFSYNC makes the drive write them out. A file system without F_FULLFSYNC (a network
share) gets the strongest call it has, `fsync`. `ftruncate` reserves no space, so a full disk fails
a later write instead of `allocate`.
"""

# This module makes the system calls itself, without pathlib.
# ruff: noqa: PTH102, PTH104, PTH106, PTH108

import errno
import fcntl
import importlib
import mmap
import os
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from neve.storage.disk import PIECES_MAX, DirectoryEntry, FileKind, FileStatus

_COMMON: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
# Without O_NONBLOCK, opening a planted pipe would wait for its other end.
_READ: Final = _COMMON | os.O_RDONLY | os.O_NONBLOCK
_WRITE: Final = _COMMON | os.O_RDWR | os.O_NONBLOCK
_CREATE: Final = _COMMON | os.O_RDWR | os.O_CREAT | os.O_EXCL
_DIRECTORY: Final = _COMMON | os.O_RDONLY | os.O_DIRECTORY

# The open files of this process by number, unless /proc is not mounted.
_OPEN_FILES: Final = "/dev/fd"

# From so many files on, threads are faster than one sync after another.
_SYNC_THREADS_FROM: Final = 4
_SYNC_THREADS: Final = 8

Item = TypeVar("Item")

_FILE_MODE: Final = 0o600
_DIRECTORY_MODE: Final = 0o700

# ENOTSUP and EOPNOTSUPP are one number on Linux and two on macOS.
_CANNOT_ALLOCATE: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
_CANNOT_FLUSH_DRIVE: Final = _CANNOT_ALLOCATE | {errno.ENOTTY}
# Kernels and file systems without RWF_DSYNC refuse it before they write.
_CANNOT_WRITE_DURABLY: Final = _CANNOT_ALLOCATE | {errno.ENOSYS}

# Handles open for writing in this process. A plain dict: each change is one step under the
# interpreter's lock, and a mutex could be held by another thread at the moment of the fork.
_writable_handles: Final[dict[int, None]] = {}


def _detach_in_forked_child() -> None:
    inherited = list(_writable_handles)
    _writable_handles.clear()
    if not inherited:
        return
    try:
        null = os.open(os.devnull, _COMMON | os.O_RDONLY)
    except OSError:
        # Without a spare handle the numbers cannot stay in use; freeing the locks matters more.
        for handle in inherited:
            os.close(handle)
        return
    for handle in inherited:
        os.dup2(null, handle, inheritable=False)
    os.close(null)


os.register_at_fork(after_in_child=_detach_in_forked_child)


def _kind(mode: int) -> FileKind:
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    return FileKind.LINK if stat.S_ISLNK(mode) else FileKind.OTHER


def _entry_kind(entry: os.DirEntry[str]) -> FileKind:
    if entry.is_symlink():
        return FileKind.LINK
    if entry.is_file(follow_symlinks=False):
        return FileKind.FILE
    return FileKind.DIRECTORY if entry.is_dir(follow_symlinks=False) else FileKind.OTHER


def _drive_flush() -> Callable[[int], None] | None:
    """Return the call that flushes the drive's cache, if `fsync` does not: on macOS."""
    command: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if command is None:
        return None

    def flush(handle: int) -> None:
        try:
            fcntl.fcntl(handle, command)
        except OSError as error:
            if error.errno not in _CANNOT_FLUSH_DRIVE:
                raise
            os.fsync(handle)

    return flush


def _read_joined(handle: int, pieces: Sequence[memoryview], offset: int) -> int:
    """Do what `preadv` does, where the system does not have it."""
    content = os.pread(handle, sum(map(len, pieces)), offset)
    at = 0
    for piece in pieces:
        part = content[at : at + len(piece)]
        piece[: len(part)] = part
        at += len(part)
    return at


def _write_joined(handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    return os.pwrite(handle, b"".join(pieces), offset)


def _each(sync: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call a sync for every item; raises the first error after all have ended."""
    if len(items) < _SYNC_THREADS_FROM:
        for item in items:
            sync(item)
        return
    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="neve-sync") as threads:
        ended = [threads.submit(sync, item) for item in items]
    for each in ended:
        each.result()


class PosixDisk:
    """The operating system's file calls, as `neve.storage.disk.Disk` describes them."""

    def __init__(self) -> None:
        flush = _drive_flush()
        sync_bytes: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
        self._sync = sync_bytes if flush is None else flush
        self._sync_entries: Callable[[int], None] = os.fsync if flush is None else flush
        self._reserve: Callable[[int, int, int], None] | None = getattr(os, "posix_fallocate", None)
        self._read_pieces: Callable[[int, Sequence[memoryview], int], int] = getattr(
            os, "preadv", _read_joined
        )
        self._write_pieces: Callable[[int, Sequence[bytes | memoryview], int], int] = getattr(
            os, "pwritev", _write_joined
        )
        # Where a flush of the drive needs its own call, no flag of a write does it.
        has_flag = flush is None and hasattr(os, "pwritev")
        self._durably: int | None = getattr(os, "RWF_DSYNC", None) if has_flag else None

    def make_directory(self, path: str) -> None:
        """Make one directory, for its owner only."""
        os.mkdir(path, _DIRECTORY_MODE)

    def create_file(self, path: str) -> int:
        """Make a file, for its owner only."""
        handle = os.open(path, _CREATE, _FILE_MODE)
        _writable_handles[handle] = None
        return handle

    def open_file(self, path: str, *, writable: bool = False) -> int:
        """Open an existing file."""
        if not writable:
            return os.open(path, _READ)
        handle = os.open(path, _WRITE)
        _writable_handles[handle] = None
        return handle

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Read at an offset, without moving any position."""
        return os.pread(handle, length, offset)

    def read_into(self, handle: int, offset: int, pieces: Sequence[memoryview]) -> int:
        """Read at an offset into the pieces, without moving any position."""
        return self._read_pieces(handle, pieces, offset)

    def map_file(self, handle: int) -> memoryview:
        """Map the whole file for reading; the mapping holds no handle."""
        if not self.size(handle):
            return memoryview(b"")
        # Python's own mapping keeps a handle open for as long as it lives; Arrow's does not.
        arrow = importlib.import_module("pyarrow")
        try:
            with arrow.memory_map(f"{_OPEN_FILES}/{handle}") as mapped:
                return memoryview(mapped.read_buffer())
        except FileNotFoundError:
            return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))

    def write(self, handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write at an offset; takes no more than PIECES_MAX pieces at a time."""
        count = len(pieces)
        if count == 1:
            return os.pwrite(handle, pieces[0], offset)
        if not count:
            return 0
        taken = pieces if count <= PIECES_MAX else pieces[:PIECES_MAX]
        return self._write_pieces(handle, taken, offset)

    def write_durably(self, handle: int, piece: bytes, offset: int) -> int:
        """Write at an offset and flush these bytes; if the system cannot, flush the file."""
        if self._durably is not None:
            try:
                return os.pwritev(handle, (piece,), offset, self._durably)
            except OSError as error:
                if error.errno not in _CANNOT_WRITE_DURABLY:
                    raise
                self._durably = None
        written = os.pwrite(handle, piece, offset)
        self._sync(handle)
        return written

    def allocate(self, handle: int, length: int) -> None:
        """Reserve space; if the system or the file system cannot, only the size grows."""
        if self._reserve is not None:
            try:
                self._reserve(handle, 0, length)
            except OSError as error:
                if error.errno not in _CANNOT_ALLOCATE:
                    raise
            else:
                return
        if os.fstat(handle).st_size < length:
            os.ftruncate(handle, length)

    def truncate(self, handle: int, length: int) -> None:
        """Shorten or lengthen an open file."""
        os.ftruncate(handle, length)

    def size(self, handle: int) -> int:
        """Return the size of an open plain file."""
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        number = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(number, os.strerror(number))

    def sync(self, handle: int) -> None:
        """Flush bytes and size, but not times, which are not needed after a crash."""
        self._sync(handle)

    def sync_all(self, handles: Sequence[int]) -> None:
        """Flush several files in threads: a drive takes many flushes at once."""
        _each(self._sync, handles)

    def close(self, handle: int) -> None:
        """Close the handle."""
        _writable_handles.pop(handle, None)
        os.close(handle)

    def link(self, source: str, target: str) -> None:
        """Make a hard link."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing a file."""
        os.rename(source, target)

    def remove(self, path: str) -> None:
        """Unlink."""
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Read a whole directory."""
        with os.scandir(path) as entries:
            return [DirectoryEntry(entry.name, _entry_kind(entry)) for entry in entries]

    def sync_directory(self, path: str) -> None:
        """Flush the entries of a directory."""
        handle = os.open(path, _DIRECTORY)
        try:
            self._sync_entries(handle)
        finally:
            os.close(handle)

    def sync_directories(self, paths: Sequence[str]) -> None:
        """Flush the entries of several directories in threads."""
        _each(self.sync_directory, paths)

    def lock(self, handle: int) -> bool:
        """Try the kernel's lock on the open file; two opens of one file exclude each other."""
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path, without following a link."""
        status = os.lstat(path)
        return FileStatus(
            kind=_kind(status.st_mode),
            size=status.st_size,
            modified_ms=status.st_mtime_ns // 1_000_000,
        )

    def real_path(self, path: str) -> str:
        """Resolve links and relative parts."""
        return os.path.realpath(path)

    def process_id(self) -> int:
        """Return the id of this process."""
        return os.getpid()
