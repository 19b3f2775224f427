"""LocalAppendFile and LocalLock: what a log gets from `LocalStore`.

An append is one positioned write; its cost is the system call and little else, so nothing is
checked per call. A file that was closed or poisoned has its calls exchanged for one that refuses.

A file and a lock belong to the process that opened them. In a forked child the disk has made their
handles useless (see `neve.storage.posix_disk`): appending raises Closed, and so does releasing the
lock, which stays with the parent.
"""

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from neve.errors import Closed, NeveError, OutcomeUnknown
from neve.storage.disk import Disk, error_from_disk, write_fully

# With these the kernel refused the bytes before taking any.
_TOOK_NOTHING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF})

_POISONED: Final = "an earlier append or sync failed, so what is on disk is unknown"
_CLOSED: Final = "it was closed"

_Write = Callable[[int, Sequence[bytes | memoryview], int], int]
_Sync = Callable[[int], None]


class LocalAppendFile:
    """One file of a local disk, open for appending; pieces hold one byte per item."""

    __slots__ = (
        "_disk",
        "_handle",
        "_is_open",
        "_path",
        "_refusal",
        "_sync",
        "_write",
        "position",
    )

    def __init__(self, *, disk: Disk, handle: int, path: str) -> None:
        self._disk = disk
        self._handle = handle
        self._is_open = True
        self._path = path
        # Offset the next append begins at; a plain attribute, for a log asks before each append.
        self.position = 0
        self._refusal: str | None = None
        self._write: _Write = disk.write
        self._sync: _Sync = disk.sync

    @property
    def path(self) -> str:
        """Relative path inside the store."""
        return self._path

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces, in order, at the end; a failure poisons the file."""
        position = self.position
        expected = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        self.position = position + expected
        try:
            written = self._write(self._handle, pieces, position)
            if written != expected:
                self._append_rest(pieces, position, written)
        except OSError as error:
            self.position = position
            raise self._failed_append(error, begun=error.errno not in _TOOK_NOTHING) from error
        except NeveError:
            self.position = position
            raise

    def sync(self) -> None:
        """Make everything appended durable; a failure poisons the file."""
        try:
            self._sync(self._handle)
        except OSError as error:
            self._refuse_from_now_on(_POISONED)
            raise OutcomeUnknown(
                f"could not sync: {error.strerror or error}",
                path=self._path,
                hint="Bytes appended since the last sync may be lost: reopen to see which are left",
            ) from error

    def truncate_to_position(self) -> None:
        """Cut preallocated or recycled bytes after the end; durable with the next sync."""
        if self._refusal is not None:
            self._refuse()
        try:
            self._disk.truncate(self._handle, self.position)
        except OSError as error:
            raise error_from_disk(error, doing="cut the file", path=self._path) from error

    def close(self) -> None:
        """Release the file; does not sync, and a second call does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        self._refuse_from_now_on(self._refusal or _CLOSED)
        # Whatever a close may report concerns bytes that were not promised.
        with suppress(OSError):
            self._disk.close(self._handle)

    def _append_rest(
        self, pieces: Sequence[bytes | memoryview], position: int, written: int
    ) -> None:
        try:
            write_fully(self._disk, self._handle, pieces, position, written=written)
        except OSError as error:
            raise self._failed_append(error, begun=True) from error

    def _failed_append(self, error: OSError, *, begun: bool) -> NeveError:
        self._refuse_from_now_on(_POISONED)
        if not begun:
            return error_from_disk(error, doing="append", path=self._path)
        return OutcomeUnknown(
            f"could not append everything: {error.strerror or error}",
            path=self._path,
            hint="Reopen to see what was written",
        )

    def _refuse_from_now_on(self, why: str) -> None:
        self._refusal = why
        self._write = self._refuse_write
        self._sync = self._refuse_sync

    def _refuse_write(
        self, _handle: int, _pieces: Sequence[bytes | memoryview], _offset: int
    ) -> int:
        self._refuse()

    def _refuse_sync(self, _handle: int) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Closed(
            f"this file takes no more calls: {self._refusal}",
            path=self._path,
            hint="Open the log again",
        )


class LocalLock:
    """An exclusive kernel lock, held until released or forgotten, or until its process dies."""

    __slots__ = ("_disk", "_handle", "_path", "_process_id")

    def __init__(self, *, disk: Disk, handle: int, path: str) -> None:
        self._handle: int | None = None
        self._disk = disk
        self._path = path
        self._process_id = disk.process_id()
        self._handle = handle

    def __del__(self) -> None:
        # An interrupt may take it from its owner before that could release it.
        if getattr(self, "_handle", None) is not None:
            # No one is left to hear what goes wrong, not even that it is a forked child's.
            with suppress(BaseException):
                self.release()

    def release(self) -> None:
        """Release the lock; a second call does nothing, but only the process that took it may."""
        if self._handle is None:
            return
        if self._disk.process_id() != self._process_id:
            raise Closed(
                f"this lock belongs to process {self._process_id}",
                path=self._path,
                hint="A forked child holds no lock: open the table again in this process",
            )
        handle, self._handle = self._handle, None
        # The kernel frees the lock with the handle even when closing reports a fault.
        with suppress(OSError):
            self._disk.close(handle)
