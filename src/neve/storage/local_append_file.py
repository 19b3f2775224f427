"""LocalAppendFile: one file of a local disk, open for appending.

An append is one positioned write. It costs little more than the system call, so nothing is checked
per call: closing or poisoning a file replaces its calls with one that refuses.

A preallocated file has its whole length from the beginning, but its space is reserved as it is
used: first RESERVED_BYTES_MIN, then twice as much each time that less than RESERVED_BYTES_AHEAD are
left. So a log that is hardly written takes little of the disk, and one that is written has space
ahead, which syncs are cheaper in, and which a full disk can be given back.
"""

import errno
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from neve.errors import Closed, NeveError, OutcomeUnknown
from neve.storage.disk import Disk, error_from_disk, write_fully

# With these the kernel refused the write before its first byte.
_TOOK_NOTHING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF})

_POISONED: Final = "an earlier append or sync failed, so what is on disk is unknown"
_CLOSED: Final = "it was closed"

RESERVED_BYTES_MIN: Final = 384 << 10
RESERVED_BYTES_AHEAD: Final = 256 << 10

_Write = Callable[[int, Sequence[bytes | memoryview], int], int]
_WriteDurably = Callable[[int, bytes, int], int]
_Sync = Callable[[int], None]


class LocalAppendFile:
    """One file of a local disk, open for appending; pieces hold one byte per item."""

    __slots__ = (
        "_disk",
        "_handle",
        "_is_open",
        "_path",
        "_preallocate_bytes",
        "_refusal",
        "_reserve_at",
        "_reserved_bytes",
        "_sync",
        "_write",
        "_write_durably",
        "position",
    )

    def __init__(self, *, disk: Disk, handle: int, path: str, preallocate_bytes: int = 0) -> None:
        self._disk = disk
        self._handle = handle
        self._is_open = True
        self._path = path
        self._preallocate_bytes = preallocate_bytes
        self._reserved_bytes = first_reservation(preallocate_bytes)
        self._reserve_at = self._next_reservation()
        # Offset of the next append; a plain attribute, as a log reads it before each append.
        self.position = 0
        self._refusal: str | None = None
        self._write: _Write = disk.write
        self._write_durably: _WriteDurably = disk.write_durably
        self._sync: _Sync = disk.sync

    @property
    def path(self) -> str:
        """Relative path inside the store."""
        return self._path

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write the pieces, in order, at the end; a failure poisons the file."""
        position = self.position
        expected = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        self.position = end = position + expected
        if end > self._reserve_at:
            self._reserve()
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

    def append_durably(self, piece: bytes) -> None:
        """Write a piece at the end and make it durable; a failure poisons the file.

        Everything before it is durable already.
        """
        position = self.position
        expected = len(piece)
        self.position = position + expected
        if self.position > self._reserve_at:
            self._reserve()
        try:
            written = self._write_durably(self._handle, piece, position)
            if written != expected:
                self._append_rest((piece,), position, written)
                self._sync(self._handle)
        except OSError as error:
            self.position = position
            raise self._failed_append(error, begun=True) from error
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
                hint="Reopen to see which bytes are left: those since the last sync may be lost",
            ) from error

    def truncate_to_position(self) -> None:
        """Remove preallocated or recycled bytes after the end; durable with the next sync."""
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
        # An error of close concerns only bytes that were never synced.
        with suppress(OSError):
            self._disk.close(self._handle)

    def _next_reservation(self) -> float:
        """Return the position from which on more space is to be reserved."""
        if self._reserved_bytes >= self._preallocate_bytes:
            return math.inf
        return self._reserved_bytes - RESERVED_BYTES_AHEAD

    def _reserve(self) -> None:
        """Reserve more space; where that fails, writes reserve their own, or fail."""
        wanted = max(2 * self._reserved_bytes, self.position + RESERVED_BYTES_AHEAD)
        self._reserved_bytes = min(wanted, self._preallocate_bytes)
        try:
            self._disk.allocate(self._handle, self._reserved_bytes)
        except OSError:
            self._reserved_bytes = self._preallocate_bytes
        self._reserve_at = self._next_reservation()

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
        self._reserve_at = math.inf  # the handle may be another file's soon
        self._write = self._write_durably = self._sync = self._refuse

    def _refuse(self, *_given: object) -> NoReturn:
        raise Closed(
            f"this file cannot be used any more: {self._refusal}",
            path=self._path,
            hint="Open the log again",
        )


def first_reservation(preallocate_bytes: int) -> int:
    """Return how much of the space of a new file is reserved at once."""
    return min(RESERVED_BYTES_MIN, preallocate_bytes)
