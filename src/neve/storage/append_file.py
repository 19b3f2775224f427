"""AppendFile: what a log needs and object stores lack.

Every implementation runs `neve.testing.append_contract.AppendFilesContract`.

STORAGE-8  When `create` or `recycle` returns, the file's name survives power loss.
STORAGE-9  When `sync` returns, every byte appended before the call survives power loss.
STORAGE-10  Bytes appended since the last sync may survive in any part, in any order, torn at any
            byte.
STORAGE-11  A failed append or sync poisons the file: every later call raises Closed, and what is on
            disk is found out by reopening. A sync is never tried twice.
STORAGE-12  One process at a time holds a lock; the kernel frees it when its holder dies.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from neve.storage.disk import FileKind


class AppendFile(Protocol):
    """One file open for appending; not safe for two threads at once."""

    @property
    def path(self) -> str:
        """Relative path inside the store."""
        ...

    @property
    def position(self) -> int:
        """Offset the next append begins at; an append moves it before it writes a byte."""
        ...

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces, in order, at the end."""
        ...

    def sync(self) -> None:
        """Make everything appended durable."""
        ...

    def truncate_to_position(self) -> None:
        """Cut preallocated or recycled bytes after the end; durable with the next sync."""
        ...

    def close(self) -> None:
        """Release the file; does not sync."""
        ...


class LockHandle(Protocol):
    """An exclusive lock, held until released or until the process dies."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        ...


class AppendFiles(Protocol):
    """Where append files live; reading, listing and deleting them goes through ObjectStore."""

    def create(self, path: str, *, preallocate_bytes: int = 0) -> AppendFile:
        """Open a new file; raises AlreadyExists."""
        ...

    def recycle(self, path: str, *, new_path: str, preallocate_bytes: int = 0) -> AppendFile:
        """Rename an old file and append over its bytes from the start; raises NotFound."""
        ...

    def make_durable(self, path: str) -> None:
        """Sync a file that another writer left; raises NotFound.

        What a reader finds in it may exist only in memory until then.
        """
        ...

    def odd_entries(self, directory: str) -> Mapping[str, FileKind]:
        """Return what is below a directory and is not a plain file, by path: other directories too.

        Listings of an ObjectStore pass over links, pipes and the like.
        """
        ...

    def lock(self, path: str) -> LockHandle:
        """Take the exclusive lock at `path`; raises Fenced when another process holds it."""
        ...
