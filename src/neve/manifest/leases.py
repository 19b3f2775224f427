"""Leases: a reader's word that it still reads a Version, for a bounded time.

    reader                                  garbage collector
    1. create the lease                     1. commit: the Version is no longer retained
    2. read the manifest again:             2. list the leases: an unexpired one on the Version
       is the Version still retained?          keeps its files
    3. read its files, renew in time        3. delete the files

Either the reader sees in step 2 that the Version is gone, or its lease was there before the
collector's step 1 and is seen in its step 2.

G1  A lease ends by itself: a reader that died delays deleting by its time, no longer.
G2  A reader that did not renew in time stops with Fenced before it touches a file that may be gone.
    It judges that by its own monotonic clock, and stops a safety margin early.
"""

from collections.abc import Iterator
from typing import Final

from neve.errors import Corruption, Fenced, NotFound
from neve.manifest.documents import Lease, StorePaths, decode_lease, encode_lease
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore

_MARGIN: Final = 0.8
"""Share of a lease's time that its holder relies on; the rest is for clocks that differ."""


class HeldLease:
    """A lease this process holds; safe for many threads."""

    def __init__(self, leases: "Leases", lease_id: str, version: int, seconds: float) -> None:
        self.lease_id = lease_id
        self.version = version
        self._leases = leases
        self._seconds = seconds
        self._trusted_until = 0.0
        self.renew()

    def renew(self) -> None:
        """Hold the lease for its whole time from now on."""
        trusted_until = self._leases.clock.monotonic() + self._seconds * _MARGIN
        self._leases.write(
            Lease(
                lease_id=self.lease_id,
                version=self.version,
                expires_ms=self._leases.clock.now_ms() + int(self._seconds * 1_000),
            )
        )
        self._trusted_until = trusted_until

    def check(self) -> None:
        """Raise Fenced when the lease is too old to rely on; renews one past half its time."""
        now = self._leases.clock.monotonic()
        if now >= self._trusted_until:
            raise Fenced(
                f"the lease on version {self.version} was not renewed for {self._seconds:g} s",
                path=self._leases.paths.lease(self.lease_id),
                hint="its files may be deleted: take a new snapshot",
            )
        if now >= self._trusted_until - self._seconds * _MARGIN / 2:
            self.renew()

    def release(self) -> None:
        """Give the lease up; twice is no error."""
        self._trusted_until = 0.0
        self._leases.objects.delete(self._leases.paths.lease(self.lease_id))


class Leases:
    """The leases of one store."""

    def __init__(self, objects: ObjectStore, prefix: str, *, clock: Clock, ids: IdSource) -> None:
        self.objects = objects
        self.paths = StorePaths(prefix)
        self.clock = clock
        self._ids = ids

    def take(self, version: int, *, seconds: float) -> HeldLease:
        """Create a lease on a Version; the caller then checks that the Version is retained."""
        return HeldLease(self, self._ids.uuid().hex, version, seconds)

    def write(self, lease: Lease) -> None:
        """Create or replace a lease."""
        self.objects.put(self.paths.lease(lease.lease_id), encode_lease(lease))

    def unexpired(self) -> Iterator[Lease]:
        """Give the leases that are in force; damaged ones count as in force for any Version."""
        now_ms = self.clock.now_ms()
        for path in [found.path for found in self.objects.list(self.paths.leases)]:
            try:
                lease = decode_lease(self.objects.get(path).payload, path=path)
            except NotFound:
                continue
            except Corruption:
                lease = Lease(lease_id="", version=0, expires_ms=now_ms + 1)
            if lease.expires_ms > now_ms:
                yield lease

    def remove_expired(self) -> int:
        """Delete leases that ended; gives how many."""
        now_ms = self.clock.now_ms()
        count = 0
        for path in [found.path for found in self.objects.list(self.paths.leases)]:
            try:
                lease = decode_lease(self.objects.get(path).payload, path=path)
            except (NotFound, Corruption):
                continue
            if lease.expires_ms <= now_ms:
                self.objects.delete(path)
                count += 1
        return count
