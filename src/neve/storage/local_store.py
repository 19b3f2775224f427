"""LocalStore: objects, append files and locks under one directory of a disk.

How a write becomes durable; the order of the steps matters:

    put_if_absent   write .tmp-<id> · sync it · link it to the path · remove it · sync the directory
    put             write .tmp-<id> · sync it · rename it to the path · sync the directory
    put_new         for many: write all · sync them · link them · remove · sync each directory once
    put_if_match    lock the directory · compare the tag · then as put
    create          make the file · lengthen it · reserve its first bytes · sync the directory
    recycle         rename the file · sync both directories
    make_durable    sync the file
    link            sync the file · link it to the new path · sync the directory

STORAGE-17  An object's bytes are synced before its path leads to them.
STORAGE-18  `put`, `put_if_match` and `delete` change a name only under the lock of its directory,
            so that nothing comes between comparing and renaming. `put_if_absent` needs no lock:
            `link` decides.
STORAGE-19  A conditional write that finds another object returns None only after syncing the
            directory: the other object survives power loss too, so that a caller may build on it.
STORAGE-20  A failure before link or rename leaves nothing visible, removes the temporary file, and
            is Unavailable. A failure after it is OutcomeUnknown.

`neve.storage.local_tree` handles new directories, links and locks. Two names belong to the store,
never to an object: `.tmp-…` and `.lock`. A file named `LOCK` is a lock that a caller asked for, and
only `lock` accepts its name. Listings show none of them.

A file and a lock belong to the process that opened them. In a forked child their handles are
useless (see `neve.storage.posix_disk`): appending raises Closed, and so does releasing the lock,
which stays with the parent.
"""

import errno
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import quote_from_bytes

from neve.errors import (
    AlreadyExists,
    Closed,
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    OutcomeUnknown,
    Phrase,
    Unavailable,
    Wording,
)
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.disk import (
    Disk,
    FileKind,
    error_from_disk,
    fill_fully,
    read_fully,
)
from neve.storage.local_append_file import LocalAppendFile, first_reservation
from neve.storage.local_tree import LocalTree, link_found
from neve.storage.object_store import ObjectInfo, StoredObject, Stretch
from neve.storage.posix_disk import PosixDisk
from neve.storage.table_paths import (
    TEMPORARY_PREFIX,
    check_lock_path,
    check_object_path,
    check_path,
    check_preallocation,
    check_prefix,
    is_object_name,
    split_path,
)


class LocalLock:
    """An exclusive kernel lock, held until released or collected, or until its process dies."""

    __slots__ = ("_disk", "_handle", "_path", "_process_id")

    def __init__(self, *, disk: Disk, handle: int, path: str) -> None:
        self._handle: int | None = None
        self._disk = disk
        self._path = path
        self._process_id = disk.process_id()
        self._handle = handle

    def __del__(self) -> None:
        # After an interrupt its owner may not be able to release it.
        if getattr(self, "_handle", None) is not None:
            # No caller is left to raise to, not even in a forked child.
            with suppress(BaseException):
                self.release()

    def release(self) -> None:
        """Release the lock, only in the process that took it; a second call does nothing."""
        if self._handle is None:
            return
        if self._disk.process_id() != self._process_id:
            raise Closed(
                f"this lock belongs to process {self._process_id}",
                path=self._path,
                hint="Open the table again in this process: a forked child holds no lock",
            )
        handle, self._handle = self._handle, None
        # The kernel frees the lock with the handle even when closing reports an error.
        with suppress(OSError):
            self._disk.close(handle)


# Each takes a handle while it is written.
_FILES_AT_ONCE: Final = 64

OBJECT_BYTES_MAX: Final = 5 << 30
LOCK_WAIT_SECONDS: Final = 30.0

_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP})


def content_tag(payload: bytes) -> str:
    """Return the tag of an object with these bytes: a 128-bit digest in hexadecimal."""
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


class LocalStore:
    """An ObjectStore and AppendFiles on a local disk; safe for many threads and processes."""

    def __init__(
        self,
        root: str,
        *,
        disk: Disk | None = None,
        ids: IdSource | None = None,
        clock: Clock | None = None,
        create: bool = True,
        object_bytes_max: int = OBJECT_BYTES_MAX,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    ) -> None:
        """Open the directory `root`; if missing, create it, or raise NotFound without `create`.

        An object larger than `object_bytes_max` is neither written nor read whole. A writer that
        finds its directory locked for longer than `lock_wait_seconds` gives up with Unavailable.
        """
        self._disk: Disk = PosixDisk() if disk is None else disk
        self._object_bytes_max = object_bytes_max
        self._tree = LocalTree(
            root,
            disk=self._disk,
            ids=SystemIds() if ids is None else ids,
            clock=SystemClock() if clock is None else clock,
            create=create,
            lock_wait_seconds=lock_wait_seconds,
        )

    @property
    def location(self) -> str:
        """Root as a `file://` URI, links resolved."""
        return f"file://{quote_from_bytes(bytes(self._tree.root))}"

    def get(self, path: str) -> StoredObject:
        """Read a whole object; raises NotFound."""
        payload = self._read(path, start=0, length=None)
        return StoredObject(payload=payload, tag=content_tag(payload))

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        """Read a whole object unless it still has `tag`; raises NotFound."""
        stored = self.get(path)
        return None if stored.tag == tag else stored

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        """Read up to `length` bytes from `start`; short only at the end; raises NotFound."""
        if start < 0 or length < 0:
            raise InvalidArgument(
                "a byte range has a negative start or length",
                path=path,
                hint="Pass a start and a length of 0 or more",
            )
        return self._read(path, start=start, length=length)

    def read_into(self, path: str, stretches: Sequence[Stretch]) -> bool:
        """Fill the memory of all stretches; False if the object ends before; raises NotFound."""
        with self._opened(path) as handle:
            # Refuses what is not a plain file.
            self._disk.size(handle)
            return all(fill_fully(self._disk, handle, start, pieces) for start, pieces in stretches)

    def map(self, path: str) -> memoryview:
        """Return a whole object, read from the disk on access; raises NotFound.

        The bytes stay those of the object that had the name at the call: every `put` method writes
        a new file.
        """
        with self._opened(path) as handle:
            return self._disk.map_file(handle)

    def size(self, path: str) -> int:
        """Return the size of an object in bytes; raises NotFound."""
        check_object_path(path)
        try:
            self._tree.refuse_links(path)
            status = self._disk.stat(self._tree.on_disk(path))
        except OSError as error:
            raise _failed_read(error, path) from error
        if status.kind is FileKind.FILE:
            return status.size
        if status.kind is FileKind.DIRECTORY:
            raise NotFound("this is a directory, not an object", path=path)
        raise link_found(path)

    def put(self, path: str, payload: bytes) -> str:
        """Write or replace an object; return its tag."""
        self.put_pieces(path, (payload,))
        return content_tag(payload)

    def put_pieces(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write or replace an object that is made of pieces; its tag is not computed."""
        directory = self._check_object(path, sum(map(len, pieces)))
        with self._writing("write an object", path):
            self._tree.refuse_links(path)
            self._tree.ensure_directory(directory)
            temporary = self._tree.write_temporary(directory, *pieces)
            with self._tree.discarding_on_failure(temporary), self._tree.locked(directory):
                self._rename(temporary, path)
        self._settle(path)

    def link(self, path: str, new_path: str) -> None:
        """Store an object under a new name as well; raises NotFound, AlreadyExists.

        Where the disk has no such links, or not enough of them, the bytes are copied.
        """
        directory = self._check_object(new_path, 0)
        # STORAGE-17: another program may have written it without a sync.
        self.make_durable(path)
        with self._writing("link an object", new_path):
            self._tree.refuse_links(new_path)
            self._tree.ensure_directory(directory)
            try:
                self._disk.link(self._tree.on_disk(path), self._tree.on_disk(new_path))
            except FileExistsError as error:
                raise _taken(new_path) from error
            except OSError as error:
                if error.errno not in _NO_LINK:
                    raise
                self.put_pieces(new_path, (self.map(path),))
                return
        self._settle(new_path)

    def put_new(self, files: Sequence[tuple[str, Sequence[bytes | memoryview]]]) -> None:
        """Create objects that are made of pieces, under new names; raises AlreadyExists.

        The objects may be there in part when this fails. Their bytes and names are synced together,
        which takes a fraction of the time of one after another.
        """
        for start in range(0, len(files), _FILES_AT_ONCE):
            self._put_some_new(files[start : start + _FILES_AT_ONCE])
        directories = {split_path(path)[0] for path, _ in files}
        try:
            self._tree.sync_directories(directories)
        except OSError as error:
            raise _unknown("objects were written, but names may be lost", files[0][0]) from error

    def _put_some_new(self, files: Sequence[tuple[str, Sequence[bytes | memoryview]]]) -> None:
        directories = [self._check_object(path, sum(map(len, pieces))) for path, pieces in files]
        with self._writing("create objects", files[0][0]):
            for path, _ in files:
                self._tree.refuse_links(path)
            self._tree.ensure_directories(directories)
            temporaries = self._tree.write_temporaries(
                [
                    (directory, pieces)
                    for directory, (_, pieces) in zip(directories, files, strict=True)
                ]
            )
            try:
                for temporary, (path, _) in zip(temporaries, files, strict=True):
                    try:
                        self._disk.link(self._tree.on_disk(temporary), self._tree.on_disk(path))
                    except FileExistsError as error:
                        raise _taken(path) from error
            finally:
                for temporary in temporaries:
                    self._tree.discard(temporary)

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        """Create an object; return its tag, or None when another one is already there."""
        directory = self._check_object(path, len(payload))
        with self._writing("create an object", path):
            self._tree.refuse_links(path)
            self._tree.ensure_directory(directory)
            if self._is_taken(path) or not self._link_new(path, payload):
                self._tree.sync_directory(directory)
                return None
        self._settle(path)
        return content_tag(payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        """Replace the object that has `tag`; return the new tag, or None when it has another."""
        directory = self._check_object(path, len(payload))
        with self._writing("replace an object", path):
            # Checking first saves a loser the wait, and a missing object a new directory.
            found = self._tag_now(path)
            if found is None:
                return None
            if found == tag:
                self._tree.ensure_directory(directory)
                with self._tree.locked(directory):
                    found = self._tag_now(path)
                    if found == tag:
                        self._replace_locked(path, payload)
            if found != tag:
                self._tree.sync_directory(directory)
                return None
        self._settle(path)
        return content_tag(payload)

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield objects whose path starts with `prefix`, ascending, starting after `after`.

        Directories are read as the iteration reaches them.
        """
        check_prefix(prefix)
        bound = "" if after is None else after

        def holds_wanted(directory: str) -> bool:
            below = f"{directory}/"
            return below.startswith(prefix) and (below > bound or bound.startswith(below))

        def is_wanted(path: str) -> bool:
            _, name = split_path(path)
            return path.startswith(prefix) and path > bound and is_object_name(name)

        start, _ = split_path(prefix)
        return self._described(self._tree.files(start, enter=holds_wanted, keep=is_wanted))

    def delete(self, path: str) -> None:
        """Remove an object; a missing one is ignored."""
        directory = check_object_path(path)
        place = self._tree.on_disk(path)
        try:
            self._tree.refuse_links(path)
            if self._disk.stat(place).kind is FileKind.DIRECTORY:
                return
            with self._tree.locked(directory, when_there_is_room=True):
                self._disk.remove(place)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise error_from_disk(error, doing="delete an object", path=path) from error

    def sweep_temporaries(self, directory: str = "", *, modified_before_ms: int) -> tuple[str, ...]:
        """Remove temporary files last written before a wall-clock time; return their paths.

        If a directory is given, only files below it. A writer leaves them when it dies or cannot
        remove its own. Choose a time before any write that is still in progress: a writer whose
        file disappears gets Unavailable.
        """

        def is_temporary(path: str) -> bool:
            _, name = split_path(path)
            return name.startswith(TEMPORARY_PREFIX)

        removed: list[str] = []
        if directory:
            check_path(directory)
        with self._writing("sweep temporary files", directory):
            for path in self._tree.files(
                directory, enter=lambda _directory: True, keep=is_temporary
            ):
                with suppress(FileNotFoundError):
                    place = self._tree.on_disk(path)
                    if self._disk.stat(place).modified_ms < modified_before_ms:
                        self._disk.remove(place)
                        removed.append(path)
        return tuple(removed)

    def directories(self, directory: str) -> tuple[str, ...]:
        """Return the names of the directories in a directory."""
        check_path(directory)
        try:
            self._tree.refuse_links(f"{directory}/")
            entries = self._disk.list_directory(self._tree.on_disk(directory))
        except OSError as error:
            if error.errno in _NOT_THERE:
                return ()
            raise error_from_disk(error, doing="list a directory", path=directory) from error
        return tuple(sorted(each.name for each in entries if each.kind is FileKind.DIRECTORY))

    def remove_abandoned(self, directory: str) -> bool:
        """Remove a directory that no process creates files in any more; False while it has some.

        The caller must know that: the directory belonged to one writer, which has ended.
        """
        check_path(directory)
        try:
            self._tree.refuse_links(f"{directory}/")
            return self._tree.remove_abandoned(directory)
        except OSError as error:
            raise error_from_disk(error, doing="remove a directory", path=directory) from error

    def create(self, path: str, *, preallocate_bytes: int = 0) -> LocalAppendFile:
        """Open a new file for appending; raises AlreadyExists."""
        directory = check_object_path(path)
        check_preallocation(path, preallocate_bytes)
        with self._writing("create a file", path):
            self._tree.refuse_links(path)
            self._tree.ensure_directory(directory)
            try:
                handle = self._disk.create_file(self._tree.on_disk(path))
            except FileExistsError as error:
                raise _taken(path) from error
        try:
            self._preallocate(handle, preallocate_bytes)
        except OSError as error:
            self._tree.close(handle)
            if self._tree.discard(path):
                raise error_from_disk(error, doing="preallocate", path=path) from error
            raise _unknown("the file was created but could not be preallocated", path) from error
        return self._settled_file(path, handle, (directory,), preallocate_bytes)

    def recycle(self, path: str, *, new_path: str, preallocate_bytes: int = 0) -> LocalAppendFile:
        """Rename an old file and append over its bytes from the start; raises NotFound.

        A taken `new_path` is AlreadyExists. Two writers must not do this in one directory at once:
        a log directory has one writer, which holds its lock.
        """
        directory = check_object_path(path)
        new_directory = check_object_path(new_path)
        check_preallocation(path, preallocate_bytes)
        try:
            self._tree.refuse_links(path)
            handle = self._disk.open_file(self._tree.on_disk(path), writable=True)
        except OSError as error:
            raise _failed_read(error, path) from error
        try:
            with self._writing("recycle a file", new_path):
                self._tree.refuse_links(new_path)
                self._tree.ensure_directory(new_directory)
                self._refuse_taken(new_path)
                self._preallocate(handle, preallocate_bytes)
                self._rename(path, new_path)
        except BaseException:
            self._tree.close(handle)
            raise
        directories = (new_directory,) if directory == new_directory else (new_directory, directory)
        return self._settled_file(new_path, handle, directories, preallocate_bytes)

    def make_durable(self, path: str) -> None:
        """Sync a file that another writer left; raises NotFound."""
        check_object_path(path)
        try:
            self._tree.refuse_links(path)
            handle = self._disk.open_file(self._tree.on_disk(path), writable=True)
        except OSError as error:
            raise _failed_read(error, path) from error
        try:
            self._disk.sync(handle)
        except OSError as error:
            raise error_from_disk(error, doing="sync a file", path=path) from error
        finally:
            self._tree.close(handle)

    def fence(self, directory: str, *, below: int) -> None:
        """Do nothing: the holder of the lock is the only writer."""

    def odd_entries(self, directory: str) -> dict[str, FileKind]:
        """Return the kinds, by path, of what is below a directory but not a plain file.

        That includes directories. No link is followed.
        """
        check_path(directory)
        try:
            return dict(self._tree.odd_entries(directory))
        except OSError as error:
            raise error_from_disk(error, doing="list a directory", path=directory) from error

    def lock(self, path: str) -> LocalLock:
        """Take the exclusive lock at `path`, a file named LOCK; raises Fenced when it is held."""
        directory = check_lock_path(path)
        with self._writing("take a lock", path):
            self._tree.refuse_links(path)
            self._tree.ensure_directory(directory)
            handle = self._tree.open_or_create(path)
        # It owns the handle before it is locked, so that an interrupt does not leak it.
        lock = LocalLock(disk=self._disk, handle=handle, path=path)
        try:
            with self._writing("take a lock", path):
                is_ours = self._disk.lock(handle)
        except BaseException:
            lock.release()
            raise
        if is_ours:
            return lock
        lock.release()
        raise Fenced(
            "another writer holds the lock",
            path=path,
            hint=Wording(Phrase.CLOSE_THAT_WRITER, file=self._tree.on_disk(path)),
        )

    def _read(self, path: str, *, start: int, length: int | None) -> bytes:
        """Read from `start`, to the end without a length."""
        disk = self._disk
        with self._opened(path) as handle:
            # The size of the file bounds the allocation, whatever the caller asks for.
            there = max(disk.size(handle) - start, 0)
            wanted = there if length is None else min(there, length)
            if length is None and wanted > self._object_bytes_max:
                raise self._too_large(path, wanted)
            return read_fully(disk, handle, start, wanted)

    @contextmanager
    def _opened(self, path: str) -> Iterator[int]:
        """Open an object for reading; raises typed errors, such as NotFound."""
        check_object_path(path)
        try:
            self._tree.refuse_links(path)
            handle = self._disk.open_file(self._tree.on_disk(path))
            try:
                yield handle
            finally:
                self._tree.close(handle)
        except OSError as error:
            raise _failed_read(error, path) from error

    def _tag_now(self, path: str) -> str | None:
        try:
            return self.get(path).tag
        except NotFound:
            return None

    def _is_taken(self, path: str) -> bool:
        try:
            kind = self._disk.stat(self._tree.on_disk(path)).kind
        except FileNotFoundError:
            return False
        if kind is FileKind.DIRECTORY:
            raise IsADirectoryError(errno.EISDIR, "this is a directory")
        if kind is not FileKind.FILE:
            raise link_found(path)
        return True

    def _refuse_taken(self, path: str) -> None:
        if self._is_taken(path):
            raise _taken(path)

    def _link_new(self, path: str, payload: bytes) -> bool:
        """Publish an object under a free name; False when it was taken in the meantime."""
        directory, _ = split_path(path)
        temporary = self._tree.write_temporary(directory, payload)
        try:
            self._disk.link(self._tree.on_disk(temporary), self._tree.on_disk(path))
        except FileExistsError:
            return False
        finally:
            self._tree.discard(temporary)
        return True

    def _replace_locked(self, path: str, payload: bytes) -> None:
        directory, _ = split_path(path)
        temporary = self._tree.write_temporary(directory, payload)
        with self._tree.discarding_on_failure(temporary):
            self._rename(temporary, path)

    def _rename(self, path: str, new_path: str) -> None:
        self._disk.rename(self._tree.on_disk(path), self._tree.on_disk(new_path))

    def _settle(self, path: str) -> None:
        """Make a name durable that is already visible."""
        directory, _ = split_path(path)
        try:
            self._tree.sync_directory(directory)
        except OSError as error:
            raise _unknown("the object was written, but its name may be lost", path) from error

    def _preallocate(self, handle: int, length: int) -> None:
        """Make a file at least `length` bytes long, and reserve the first of them."""
        if length > self._disk.size(handle):
            self._disk.truncate(handle, length)
        if length:
            self._disk.allocate(handle, first_reservation(length))

    def _settled_file(
        self, path: str, handle: int, directories: tuple[str, ...], preallocate_bytes: int
    ) -> LocalAppendFile:
        file = LocalAppendFile(
            disk=self._disk, handle=handle, path=path, preallocate_bytes=preallocate_bytes
        )
        try:
            for directory in directories:
                self._tree.sync_directory(directory)
        except OSError as error:
            file.close()
            raise _unknown("the file is there, but its name may be lost", path) from error
        return file

    def _described(self, paths: Iterator[str]) -> Iterator[ObjectInfo]:
        try:
            for path in paths:
                try:
                    size = self._disk.stat(self._tree.on_disk(path)).size
                except FileNotFoundError:
                    continue
                yield ObjectInfo(path=path, size=size)
        except OSError as error:
            raise error_from_disk(error, doing="list objects", path="") from error

    def _check_object(self, path: str, byte_count: int) -> str:
        """Check that an object can be stored; return its directory."""
        directory = check_object_path(path)
        if byte_count > self._object_bytes_max:
            raise self._too_large(path, byte_count)
        return directory

    def _too_large(self, path: str, actual: int) -> LimitExceeded:
        return LimitExceeded(
            f"an object of {actual:,} bytes is larger than {self._object_bytes_max:,}",
            limit=self._object_bytes_max,
            actual=actual,
            path=path,
            hint="Read it in ranges, write it in parts, or open the store with object_bytes_max",
        )

    @contextmanager
    def _writing(self, doing: str, path: str) -> Iterator[None]:
        """Raise typed errors, for steps that leave nothing visible when they fail."""
        try:
            yield
        except FileNotFoundError as error:
            self._tree.forget_directories()
            raise Unavailable(
                f"could not {doing}: a directory or a temporary file was removed in the meantime",
                path=path,
                hint="Try again, and find out what removes files of this store",
            ) from error
        except OSError as error:
            raise error_from_disk(error, doing=doing, path=path) from error


def _failed_read(error: OSError, path: str) -> Exception:
    if error.errno in _NOT_THERE:
        return NotFound("there is no object of this name", path=path)
    return error_from_disk(error, doing="read an object", path=path)


def _taken(path: str) -> AlreadyExists:
    return AlreadyExists("the name is taken", path=path, hint="Choose the next free one")


def _unknown(what: str, path: str) -> OutcomeUnknown:
    return OutcomeUnknown(what, path=path, hint="Check whether it is there before trying again")
