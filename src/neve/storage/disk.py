"""Disk: the operating-system calls that a local store makes, and what their failures mean.

This is the seam under `neve.storage.local_store`. `PosixDisk` is the real one; the test kit has one
that loses power, one that fails, and one that switches threads at every call.

Every call raises OSError with its errno and nothing else. Handles are the kernel's small integers.
Paths are absolute. No call follows a symbolic link in the last segment of a path. Nothing is
durable until it is synced: bytes and size of a file by `sync`, entries of a directory by
`sync_directory`; neither implies the other.
"""

import errno
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Final, Protocol

from neve.errors import (
    Closed,
    Corruption,
    InvalidArgument,
    NeveError,
    NotFound,
    Phrase,
    StorageFull,
    StorageReadOnly,
    Unavailable,
    Wording,
)

# IOV_MAX on Linux: a call with more pieces fails.
PIECES_MAX: Final = 1_024


class FileKind(StrEnum):
    """What a directory entry is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """One name in a directory."""

    name: str
    kind: FileKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """What the file system knows about a path without opening it."""

    kind: FileKind
    size: int
    modified_ms: int


class Disk(Protocol):
    """The operating system's file calls; safe for many threads."""

    def make_directory(self, path: str) -> None:
        """Make one directory; EEXIST when the name is taken."""

    def create_file(self, path: str) -> int:
        """Create a new file and open it for reading and writing."""

    def open_file(self, path: str, *, writable: bool = False) -> int:
        """Open an existing file; a directory raises EISDIR, here or in `size`."""

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; may return fewer, and none only at the end."""

    def read_into(self, handle: int, offset: int, pieces: Sequence[memoryview]) -> int:
        """Fill memory that the caller has; return how many bytes were read, maybe fewer."""

    def map_file(self, handle: int) -> memoryview:
        """Return the bytes of an open file, read on access; they outlive handle and name.

        Only for files that never change: reading a truncated file ends the process.
        """

    def write(self, handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write the pieces in order; return how many bytes were written, maybe fewer than given."""

    def write_durably(self, handle: int, piece: bytes, offset: int) -> int:
        """Write as `write` does, and make these bytes durable, with what is needed to find them.

        Other bytes of the file may stay as they are. When it fails, any of it may have happened.
        """

    def allocate(self, handle: int, length: int) -> None:
        """Make the file at least `length` bytes long, and reserve the space."""

    def truncate(self, handle: int, length: int) -> None:
        """Make the file exactly `length` bytes long."""

    def size(self, handle: int) -> int:
        """Return the size of an open file; EISDIR for a directory, EINVAL for a special file."""

    def sync(self, handle: int) -> None:
        """Make the bytes and the size of a file durable, but not its name."""

    def sync_all(self, handles: Sequence[int]) -> None:
        """Do what `sync` does for several files, at once where that is faster."""

    def close(self, handle: int) -> None:
        """Close the handle, and with it its lock."""

    def link(self, source: str, target: str) -> None:
        """Link a file under a second name; EEXIST when it is taken."""

    def rename(self, source: str, target: str) -> None:
        """Move a name, replacing the file that has the new one."""

    def remove(self, path: str) -> None:
        """Remove the name of a file."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; ENOTEMPTY when it is not empty."""

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return the names in a directory, in any order."""

    def sync_directory(self, path: str) -> None:
        """Make the entries of a directory durable."""

    def sync_directories(self, paths: Sequence[str]) -> None:
        """Do what `sync_directory` does for several, at once where that is faster."""

    def lock(self, handle: int) -> bool:
        """Take the exclusive lock of an open file; False at once when another handle holds it."""

    def stat(self, path: str) -> FileStatus:
        """Return the status of a path, without following a link."""

    def real_path(self, path: str) -> str:
        """Return the absolute path with every link resolved, even if it does not exist yet."""

    def process_id(self) -> int:
        """Return the id of this process; a forked child has another one."""


_HINTS: Final[dict[int, str]] = {
    errno.EFBIG: "Raise `ulimit -f`, or use a file system that allows larger files",
    errno.EMFILE: "Close other files of this process or raise `ulimit -n`",
    errno.ENFILE: "Close other programs or raise fs.file-max: the machine is out of file handles",
    errno.EIO: "Look at the kernel log before trusting the disk again: it reported a fault",
    errno.EACCES: "Give this user permission to read and write the directory",
    errno.EPERM: "Give this user permission, and use a file system that has hard links",
    errno.EXDEV: "Keep the whole store on one file system: no mount points below its root",
}


def error_from_disk(error: OSError, *, doing: str, path: str) -> NeveError:
    """Return the error for a failed call that left nothing visible."""
    text = f"could not {doing}: {error.strerror or error}"
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"could not {doing}: it does not exist", path=path)
        case errno.EISDIR | errno.ENOTDIR:
            return InvalidArgument(
                text, path=path, hint="Rename one: a directory and an object cannot share a name"
            )
        case errno.ENAMETOOLONG:
            return InvalidArgument(
                text, path=path, hint="Shorten the path of the store or of the object"
            )
        case errno.ELOOP | errno.EINVAL:
            return Corruption(
                f"could not {doing}: the path is not a plain file",
                path=path,
                hint="Remove the link, pipe or device: neve does not create any",
            )
        case errno.EBADF:
            return Closed(
                f"could not {doing}: the file is not open in this process",
                path=path,
                hint="Open it again here; a forked child cannot use its parent's files",
            )
        case errno.ENOSPC | errno.EDQUOT:
            return StorageFull(text, path=path, hint=Wording(Phrase.FREE_SPACE))
        case errno.EROFS:
            return StorageReadOnly(text, path=path, hint=Wording(Phrase.MOUNTED_READ_ONLY))
        case number:
            hint = None if number is None else _HINTS.get(number)
            return Unavailable(text, path=path, hint=hint or "Find the cause, then try again")


def read_fully(disk: Disk, handle: int, offset: int, length: int) -> bytes:
    """Read `length` bytes, or fewer at the end of the file."""
    chunks: list[bytes] = []
    while length:
        chunk = disk.read(handle, offset, length)
        if len(chunk) == length and not chunks:
            return chunk
        if not chunk:
            break
        chunks.append(chunk)
        offset += len(chunk)
        length -= len(chunk)
    return b"".join(chunks)


def fill_fully(disk: Disk, handle: int, offset: int, pieces: Sequence[memoryview]) -> bool:
    """Fill the pieces in order; False when the file ends before."""
    rest = deque(pieces)
    _drop(rest, 0)
    while rest:
        taken = disk.read_into(handle, offset, list(islice(rest, PIECES_MAX)))
        if taken <= 0:
            return False
        offset += taken
        _drop(rest, taken)
    return True


def write_fully(
    disk: Disk,
    handle: int,
    pieces: Sequence[bytes | memoryview],
    offset: int,
    *,
    written: int = 0,
) -> int:
    """Write the pieces after their first `written` bytes; return the length of all."""
    rest = deque(memoryview(piece).cast("B") for piece in pieces)
    total = sum(map(len, rest))
    _drop(rest, written)
    while rest:
        taken = disk.write(handle, list(islice(rest, PIECES_MAX)), offset + written)
        if taken <= 0:
            raise OSError(errno.EIO, "the disk wrote no bytes and reported no error")
        written += taken
        _drop(rest, taken)
    return total


def _drop(rest: deque[memoryview], count: int) -> None:
    """Remove the first `count` bytes, and empty pieces before the next one."""
    while rest and count >= len(rest[0]):
        count -= len(rest.popleft())
    if count:
        rest[0] = rest[0][count:]
