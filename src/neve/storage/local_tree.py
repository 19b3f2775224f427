"""LocalTree: a directory tree on a disk, with the rules that keep it intact.

    <root>/                     links in the path of the root itself are resolved once, at the start
    ├── manifest/catalog/HEAD   a file
    ├── manifest/catalog/.lock  kernel lock of the directory: its holder may replace and remove
    └── data/.tmp-<id>          a file that its writer has not published yet

STORAGE-21  A directory is used for writing only after this tree has synced the directory above it,
            even when another process created it, which may have died before syncing. For the root
            that covers every directory above it that this user may open.
STORAGE-22  Below the root no symbolic link is followed: neve creates none, and one could lead
            outside. `refuse_links` checks every directory of a path before anything is opened.
STORAGE-23  The lock of a directory excludes threads and processes alike, because each waiter opens
            the lock file again. The kernel frees it when its holder dies. Waiting ends with
            Unavailable.

Calls raise OSError, so that the caller can add what it was doing, and typed errors for what only
the tree knows. Paths are relative to the root, as callers of a store pass them.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Final

from neve.errors import Corruption, InvalidArgument, NotFound, Unavailable
from neve.storage.clock import Clock, IdSource
from neve.storage.disk import DirectoryEntry, Disk, FileKind, error_from_disk, write_fully
from neve.storage.table_paths import (
    DIRECTORY_LOCK_NAME,
    TEMPORARY_PREFIX,
    join_path,
)

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_CANNOT_SYNC: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL, errno.ENOTSUP}
)

_NOT_EMPTY: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})

_FIRST_PAUSE_SECONDS: Final = 0.000_05
_LONGEST_PAUSE_SECONDS: Final = 0.002
_NAME_TRIES: Final = 100

PathTest = Callable[[str], bool]


class LocalTree:
    """One directory and everything below it; safe for many threads and processes."""

    def __init__(
        self,
        root: str,
        *,
        disk: Disk,
        ids: IdSource,
        clock: Clock,
        create: bool,
        lock_wait_seconds: float,
    ) -> None:
        if not root or "\0" in root or not _has_bytes(root):
            raise InvalidArgument(
                f"{root!a} is not a directory name", hint="Pass the path of a directory"
            )
        # Fixed at construction.
        self.disk = disk
        try:
            self.root = PurePosixPath(disk.real_path(root))
        except OSError as error:
            raise error_from_disk(error, doing="find the store", path=root) from error
        self._prefix = f"{self.root}/"
        self._ids = ids
        self._clock = clock
        self._lock_wait_seconds = lock_wait_seconds
        # Safe on their own, as adding and clearing are single steps: directories above the root
        # that got a new entry, and directories below it that STORAGE-21 holds for.
        self._changed_above: set[PurePosixPath] = set()
        self._durable_directories: set[str] = set()
        try:
            self._open_root(create=create)
        except OSError as error:
            raise error_from_disk(error, doing="open the store", path=str(self.root)) from error

    def on_disk(self, path: str) -> str:
        """Return the absolute path; an empty path is the root."""
        return self._prefix + path

    def refuse_links(self, path: str) -> None:
        """Raise Corruption when a directory of the path is a link (STORAGE-22)."""
        end = path.find("/")
        with suppress(FileNotFoundError):  # Below a missing directory nothing can be a link.
            while end != -1:
                directory = path[:end]
                if self.disk.stat(self._prefix + directory).kind is FileKind.LINK:
                    raise link_found(directory)
                end = path.find("/", end + 1)

    def ensure_directory(self, directory: str) -> None:
        """Make a directory and its missing parents; all become durable (STORAGE-21)."""
        self.ensure_directories((directory,))

    def ensure_directories(self, directories: Iterable[str]) -> None:
        """Make directories and their missing parents; all become durable (STORAGE-21).

        Each parent is synced once, after all new directories in it were made.
        """
        missing = {each for each in directories if each not in self._durable_directories}
        if not missing:
            return
        self._sync_above_root()
        depth = 1
        while missing:
            steps = {_beginning(directory, depth) for directory in missing}
            new = sorted(steps - self._durable_directories)
            for step in new:
                self._make_directory(step)
            self.sync_directories({parent_of(step) for step in new})
            self._durable_directories.update(new)
            missing -= steps
            depth += 1

    def forget_directories(self) -> None:
        """Forget which directories are durable: one was removed from outside."""
        self._durable_directories.clear()

    def sync_directory(self, directory: str) -> None:
        """Make the entries of a directory durable."""
        self.disk.sync_directory(self.on_disk(directory))

    def sync_directories(self, directories: Iterable[str]) -> None:
        """Make the entries of several directories durable."""
        self.disk.sync_directories([self.on_disk(each) for each in sorted(directories)])

    @contextmanager
    def locked(self, directory: str, *, when_there_is_room: bool = False) -> Iterator[None]:
        """Hold the lock of a directory (STORAGE-23).

        With `when_there_is_room`, a disk too full for the lock file is not an error: it is also too
        full for the writers that the lock excludes, and deleting must still be possible.
        """
        try:
            handle = self.open_or_create(join_path(directory, DIRECTORY_LOCK_NAME))
        except OSError as error:
            if not (when_there_is_room and error.errno in _NO_ROOM):
                raise
            yield
            return
        try:
            self._wait_for_lock(handle, directory)
            yield
        finally:
            self.close(handle)

    def write_temporaries(
        self, files: Sequence[tuple[str, Sequence[bytes | memoryview]]]
    ) -> list[str]:
        """Write temporary files, each in its directory, and sync them together.

        Returns their paths.
        """
        paths: list[str] = []
        handles: list[int] = []
        try:
            for directory, pieces in files:
                path, handle = self._create_temporary(directory)
                paths.append(path)
                handles.append(handle)
                write_fully(self.disk, handle, pieces, 0)
            self.disk.sync_all(handles)
        except BaseException:
            for handle in handles:
                self.close(handle)
            for path in paths:
                self.discard(path)
            raise
        for handle in handles:
            self.close(handle)
        return paths

    def write_temporary(self, directory: str, *pieces: bytes | memoryview) -> str:
        """Write and sync a temporary file; return its path."""
        (path,) = self.write_temporaries([(directory, pieces)])
        return path

    @contextmanager
    def discarding_on_failure(self, path: str) -> Iterator[None]:
        """Remove a file when the block fails."""
        try:
            yield
        except BaseException:
            self.discard(path)
            raise

    def discard(self, path: str) -> bool:
        """Remove a file that is not needed; False when that failed."""
        try:
            self.disk.remove(self.on_disk(path))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def open_or_create(self, path: str) -> int:
        """Open a file for writing; create it if it is missing."""
        place = self.on_disk(path)
        try:
            return self.disk.open_file(place, writable=True)
        except FileNotFoundError:
            try:
                return self.disk.create_file(place)
            except FileExistsError:
                return self.disk.open_file(place, writable=True)

    def close(self, handle: int) -> None:
        """Close a handle whose bytes are synced or not needed: an error then changes nothing."""
        with suppress(OSError):
            self.disk.close(handle)

    def remove_abandoned(self, directory: str) -> bool:
        """Remove a directory that no process writes to any more; False when it has files.

        Its lock file is removed too. A process that still waits for that lock can only delete, and
        finds nothing: new files are never created in such a directory.
        """
        try:
            entries = self.disk.list_directory(self.on_disk(directory))
            within = [each for each in entries if each.name != DIRECTORY_LOCK_NAME]
            is_empty = all(
                each.kind is FileKind.DIRECTORY
                and self.remove_abandoned(join_path(directory, each.name))
                for each in within
            )
            if not is_empty:
                return False
            if len(entries) > len(within):
                self.disk.remove(self.on_disk(join_path(directory, DIRECTORY_LOCK_NAME)))
            self.disk.remove_directory(self.on_disk(directory))
        except (FileNotFoundError, NotADirectoryError):
            return True  # another process removed it first
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            return False
        self._durable_directories.discard(directory)
        return True

    def files(self, start: str, *, enter: PathTest, keep: PathTest) -> Iterator[str]:
        """Yield paths of plain files below `start` that pass `keep`, ascending.

        Only directories that pass `enter` are read, when the iteration reaches them. Links, devices
        and directories that were removed in the meantime are skipped.
        """
        with suppress(NotADirectoryError):  # Below a file there is nothing to find.
            self.refuse_links(f"{start}/" if start else "")
        pending = [f"{start}/"]
        while pending:
            path = pending.pop()
            if path.endswith("/"):
                pending.extend(self._below(path[:-1], enter=enter, keep=keep))
            else:
                yield path

    def odd_entries(self, start: str) -> Iterator[tuple[str, FileKind]]:
        """Yield entries below `start` that are not plain files, parents before children."""
        self.refuse_links(f"{start}/")
        pending = [start]
        while pending:
            directory = pending.pop()
            try:
                entries = self.disk.list_directory(self.on_disk(directory))
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.kind is not FileKind.FILE:
                    path = join_path(directory, entry.name)
                    yield path, entry.kind
                    if entry.kind is FileKind.DIRECTORY:
                        pending.append(path)

    def _below(self, directory: str, *, enter: PathTest, keep: PathTest) -> list[str]:
        """Return entries of one directory, descending, directories with a slash at the end.

        The slash also makes the order right: `a-b` comes before everything in `a/`.
        """
        try:
            entries = self.disk.list_directory(self.on_disk(directory))
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = {self._marked(directory, entry) for entry in entries if _is_plain(entry)}
        wanted = (p for p in found if (enter(p[:-1]) if p.endswith("/") else keep(p)))
        return sorted(wanted, reverse=True)

    def _marked(self, directory: str, entry: DirectoryEntry) -> str:
        path = join_path(directory, entry.name)
        return f"{path}/" if entry.kind is FileKind.DIRECTORY else path

    def _open_root(self, *, create: bool) -> None:
        missing: list[PurePosixPath] = []
        existing = self.root
        while not self._is_directory(existing):
            missing.append(existing)
            existing = existing.parent
        if missing and not create:
            raise NotFound("there is no store", path=str(self.root), hint="Check the path")
        for directory in reversed(missing):
            with suppress(FileExistsError):
                self.disk.make_directory(str(directory))
            self._changed_above.add(directory.parent)

    def _is_directory(self, path: PurePosixPath) -> bool:
        try:
            kind = self.disk.stat(str(path)).kind
        except FileNotFoundError:
            return False
        if kind is not FileKind.DIRECTORY:
            raise NotADirectoryError(errno.ENOTDIR, "this is a file, not a directory")
        return True

    def _sync_above_root(self) -> None:
        if "" in self._durable_directories:
            return
        for directory in self.root.parents:
            try:
                self.disk.sync_directory(str(directory))
            except OSError as error:
                # A directory that this user may not open, or that the file system cannot sync:
                # what was there before counts as durable.
                if directory in self._changed_above or error.errno not in _CANNOT_SYNC:
                    raise
        self._durable_directories.add("")

    def _make_directory(self, directory: str) -> None:
        place = self.on_disk(directory)
        try:
            self.disk.make_directory(place)
        except FileExistsError:
            kind = self.disk.stat(place).kind
            if kind is FileKind.LINK:
                raise link_found(directory) from None
            if kind is not FileKind.DIRECTORY:
                raise NotADirectoryError(errno.ENOTDIR, f"{directory} is not a directory") from None

    def _wait_for_lock(self, handle: int, directory: str) -> None:
        pause = _FIRST_PAUSE_SECONDS
        gives_up_at: float | None = None
        while not self.disk.lock(handle):
            now = self._clock.monotonic()
            if gives_up_at is None:
                gives_up_at = now + self._lock_wait_seconds
            if now >= gives_up_at:
                raise Unavailable(
                    f"another writer kept the directory locked for {self._lock_wait_seconds:g} s",
                    path=join_path(directory, DIRECTORY_LOCK_NAME),
                    hint="Look for a writer that is stopped or stuck, then try again",
                )
            self._clock.sleep(pause * (0.5 + self._ids.jitter()))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _create_temporary(self, directory: str) -> tuple[str, int]:
        for _ in range(_NAME_TRIES):
            path = join_path(directory, f"{TEMPORARY_PREFIX}{self._ids.uuid().hex}")
            with suppress(FileExistsError):
                return path, self.disk.create_file(self.on_disk(path))
        raise Unavailable(
            f"{_NAME_TRIES} new ids were all in use as temporary files",
            path=directory,
            hint="Sweep temporary files, and use an id source that does not repeat itself",
        )


def parent_of(directory: str) -> str:
    """Return the directory above; an empty path is the root."""
    return directory.rpartition("/")[0]


def _beginning(directory: str, depth: int) -> str:
    """Return the first `depth` segments of a path."""
    return "/".join(directory.split("/")[:depth])


def link_found(path: str) -> Corruption:
    """Return the error for a link or a special file in place of a file or a directory."""
    return Corruption(
        "this is a symbolic link or a special file",
        path=path,
        hint="Remove it, or move the store: neve creates none, and one could lead out of the store",
    )


def _has_bytes(root: str) -> bool:
    """Whether the kernel accepts the name; bytes that are not UTF-8 are fine."""
    try:
        root.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _is_plain(entry: DirectoryEntry) -> bool:
    return entry.kind is FileKind.FILE or entry.kind is FileKind.DIRECTORY
