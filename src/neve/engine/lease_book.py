"""LeaseBook: the leases of one handle, one per Version, shared by everything that reads it.

A reader pins the Version it reads. The first pin of a Version takes a lease, which protects its
files from every collector, in this process and in others. The lease of the newest pinned Version is
kept for the next reader, the others end with their last pin. After a lease has lapsed, the next
reader takes a new one; readers that still hold the old one are fenced. A reader of history holds a
separate lease on all Versions it reads.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from neve.manifest.leases import HeldLease, Leases
from neve.manifest.table_versions import TableVersions


class _Entry:
    __slots__ = ("lease", "pins")

    def __init__(self, lease: HeldLease | None) -> None:
        self.lease = lease
        self.pins = 0

    @property
    def is_usable(self) -> bool:
        return self.lease is None or not self.lease.has_lapsed


class LeaseBook:
    """Pins Versions for as long as they are read; safe for many threads."""

    def __init__(
        self, leases: Leases, versions: TableVersions, *, seconds: float, may_write: bool
    ) -> None:
        """Begin without leases; a handle that cannot write them reads without."""
        # Fixed at construction.
        self._leases = leases
        self._versions = versions
        self._seconds = seconds
        self._may_write = may_write
        # Guarded by _lock.
        # Re-entrant: the garbage collector may end a reader inside any of the sections below.
        self._lock = RLock()
        self._entries: dict[int, _Entry] = {}
        self._histories: set[HeldLease] = set()

    @property
    def pinned_count(self) -> int:
        """Number of Versions and stretches of history that are being read."""
        with self._lock:
            pinned = sum(1 for entry in self._entries.values() if entry.pins)
            return pinned + len(self._histories)

    @contextmanager
    def pinned(self, number: int) -> Iterator[HeldLease | None]:
        """Keep the files of a Version; raises NotFound when it is no longer retained."""
        entry = self.pin(number)
        try:
            yield entry
        finally:
            self.unpin(number)

    def pin(self, number: int) -> HeldLease | None:
        """Begin to read a Version; `unpin` ends it."""
        with self._lock:
            entry = self._entries.get(number)
            if entry is not None and entry.is_usable:
                entry.pins += 1
                return entry.lease
        taken = spare = self._take(number)
        with self._lock:
            entry = self._entries.setdefault(number, _Entry(taken))
            if not entry.is_usable:
                spare, entry.lease = entry.lease, taken
            entry.pins += 1
            held = entry.lease
        if spare is not None and spare is not held:
            spare.give_up()
        return held

    def lease_of(self, number: int) -> HeldLease | None:
        """Return the lease of a pinned Version; None without one, or after close."""
        with self._lock:
            entry = self._entries.get(number)
            return None if entry is None else entry.lease

    def unpin(self, number: int) -> None:
        """End one reader's pin."""
        with self._lock:
            pinned = self._entries.get(number)
            if pinned is None:
                return  # the book was closed before the reader
            pinned.pins -= 1
            if len(self._entries) == 1:
                return  # the newest one is kept
            ended: list[HeldLease | None] = []
            newest = max(self._entries)
            for version, entry in list(self._entries.items()):
                if entry.pins == 0 and version != newest:
                    ended.append(self._entries.pop(version).lease)
        _give_up(ended)

    def release_unread(self, *, before: int) -> None:
        """End the leases of older Versions that are only kept for the next reader."""
        with self._lock:
            unread = [
                number
                for number, entry in self._entries.items()
                if number < before and not entry.pins
            ]
            ended = [self._entries.pop(number).lease for number in unread]
        _give_up(ended)

    def hold_history(
        self, since: int, last: int, *, consumer: str | None = None
    ) -> HeldLease | None:
        """Begin to read the history after a Version; raises NotFound when some has expired.

        `release_history` ends it. None where the handle reads without leases.
        """
        lease = self._leases.hold_history(
            since,
            self._versions,
            last=last,
            seconds=self._seconds,
            is_needed=self._may_write,
            consumer=consumer,
        )
        if lease is not None:
            with self._lock:
                self._histories.add(lease)
        return lease

    def release_history(self, lease: HeldLease) -> None:
        """End a reader of history; twice is not an error."""
        with self._lock:
            self._histories.discard(lease)
        lease.give_up()

    def renew_once(self) -> bool:
        """Renew leases past half their time; always returns False."""
        with self._lock:
            held = [entry.lease for entry in self._entries.values() if entry.pins]
            held += self._histories
        for lease in held:
            if lease is not None:
                lease.renew_if_due()
        return False

    def close(self) -> None:
        """Release every lease."""
        with self._lock:
            ended = [entry.lease for entry in self._entries.values()]
            ended += self._histories
            self._entries.clear()
            self._histories.clear()
        _give_up(ended)

    def _take(self, number: int) -> HeldLease | None:
        hold = self._leases.hold if self._may_write else self._leases.hold_if_possible
        return hold(number, self._versions, seconds=self._seconds)


def _give_up(leases: list[HeldLease | None]) -> None:
    for lease in leases:
        if lease is not None:
            lease.give_up()
