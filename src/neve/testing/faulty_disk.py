"""FaultyDisk: a disk whose calls fail as planned.

A plan is a list of faults; each names a call by its number, among all calls or among those of one
kind. A failed call does nothing, with two exceptions, as on real systems: a failed `close` still
closes, and a failed `sync` of a simulated file loses what was not synced (the pages are marked
clean, so a second try would report success).
"""

import errno
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from neve.storage.disk import Disk
from neve.testing.disk_calls import CallKind, DiskCall, HookedDisk
from neve.testing.simulated_disk import SimulatedDisk

ERRNOS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The call of this number, counted from 1, fails; with `is_lasting`, all later ones do too."""

    at: int
    number: int = errno.EIO
    kind: CallKind | None = None
    is_lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortWrite:
    """The write of this number writes at most `bytes_max`; with `is_lasting`, all later ones."""

    at: int
    bytes_max: int = 1
    is_lasting: bool = False


Fault = Failure | ShortWrite


class FaultyDisk(HookedDisk):
    """Another disk, with faults; safe for many threads, which share the plan."""

    def __init__(self, inner: Disk, plan: Sequence[Fault] = ()) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._plan = tuple(plan)
        self._calls: list[DiskCall] = []
        self._calls_of: Counter[CallKind] = Counter()
        self._faults = 0

    @property
    def calls(self) -> int:
        """Number of calls, including failed ones."""
        return len(self._calls)

    @property
    def log(self) -> tuple[DiskCall, ...]:
        """Every call, including failed ones."""
        return tuple(self._calls)

    @property
    def faults(self) -> int:
        """Number of calls that failed or were cut short."""
        return self._faults

    def plan(self, *faults: Fault) -> None:
        """Replace the plan, counting calls from here; without faults every call succeeds."""
        with self._lock:
            self._plan = faults
            self._calls.clear()
            self._calls_of.clear()
            self._faults = 0

    def before(self, call: DiskCall) -> None:
        """Count the call, and fail it when the plan says so."""
        with self._lock:
            self._calls.append(call)
            self._calls_of[call.kind] += 1
            number = self._planned_errno_locked(call.kind)
            if number is not None:
                self._faults += 1
                raise OSError(number, f"{os.strerror(number)} (planned)", call.target)

    def write(self, handle: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """Write, perhaps only a part."""
        self._before_handle(CallKind.WRITE, handle, offset)
        bytes_max = self._planned_bytes_max()
        if bytes_max is None:
            return self._inner.write(handle, pieces, offset)
        return self._inner.write(handle, [b"".join(pieces)[:bytes_max]], offset)

    def sync(self, handle: int) -> None:
        """Sync, or fail and lose what a simulated disk had not synced."""
        try:
            self._before_handle(CallKind.SYNC, handle)
        except OSError:
            if isinstance(self._inner, SimulatedDisk):
                self._inner.lose_unsynced(handle)
            raise
        self._inner.sync(handle)

    def close(self, handle: int) -> None:
        """Close, even when it fails."""
        try:
            self._before_handle(CallKind.CLOSE, handle)
        finally:
            self._paths.pop(handle, None)
            self._inner.close(handle)

    def _planned_errno_locked(self, kind: CallKind) -> int | None:
        for fault in self._plan:
            if isinstance(fault, Failure) and fault.kind in {None, kind}:
                count = len(self._calls) if fault.kind is None else self._calls_of[kind]
                if count == fault.at or (fault.is_lasting and count > fault.at):
                    return fault.number
        return None

    def _planned_bytes_max(self) -> int | None:
        with self._lock:
            count = self._calls_of[CallKind.WRITE]
            for fault in self._plan:
                if isinstance(fault, ShortWrite) and (
                    count == fault.at or (fault.is_lasting and count > fault.at)
                ):
                    self._faults += 1
                    return fault.bytes_max
            return None
