"""Leases: a reader's claim that it still reads a Version, for a bounded time.

    reader                                  garbage collector
    1. create the lease                     1. commit: the Version is no longer retained
    2. read the manifest again:             2. list the leases: an unexpired one on the Version
       is the Version still retained?          keeps its files
    3. read its files, renew in time        3. delete the files

Either the reader sees in step 2 that the Version is gone, or its lease existed before the
collector's step 1 and the collector sees it in its step 2.

MANIFEST-G1  A lease ends by itself: a reader that died delays deletion only until then.
MANIFEST-G2  A reader that did not renew in time stops with Fenced before it touches a file that may
             be gone. It judges by its own monotonic clock and by the wall clock, whichever is
             further, and stops a safety margin early. A lapsed lease is never renewed, a deleted
             one never restored.
MANIFEST-G3  Only objects named as `take` names them are leases; others are foreign.
MANIFEST-G4  A lease that ends too far in the future was taken by a clock that is wrong by more than
             clocks may differ. It is not honoured: it could hold files back for years.
MANIFEST-G5  A reader of history leases several consecutive Versions at once. Meanwhile no Version
             from its first on expires, so that the edits between them stay too.
MANIFEST-G6  A full or read-only disk cannot store a lease, but must not prevent reading. Such a
             lease is kept in memory: collectors of this process honour it, those of other processes
             cannot see it. A reader that loses a file to one of them gets the error for a Version
             that is gone.
"""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from neve.errors import (
    AlreadyExists,
    Corruption,
    Fenced,
    InvalidArgument,
    NeveError,
    NotFound,
    OutcomeUnknown,
    StorageFull,
    StorageReadOnly,
    StorageRefused,
    Unavailable,
)
from neve.manifest.documents import Lease, StorePaths, decode_lease, encode_lease
from neve.manifest.version_reader import VersionReader, expired_history
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)

Held = TypeVar("Held")

LEASE_SECONDS_MAX: Final = 24 * 60 * 60
_MARGIN: Final = 0.8
"""Share of a lease's time that its holder relies on; the rest is for clocks that differ."""
_AHEAD_MS_MAX: Final = int(LEASE_SECONDS_MAX * (2 - _MARGIN) * 1_000)
"""How far ahead a lease can end: the longest one, by a clock with the largest allowed error."""
_RENEWALS_AT_ONCE: Final = 8
_TRIES: Final = 8
_VERSION_MAX: Final = (1 << 63) - 1
_NAME: Final = re.compile(r"[0-9a-f]{32}")


_kept_in_process: Final[dict[tuple[str, str], WeakValueDictionary[str, "HeldLease"]]] = {}
"""By the location of a store; weak, so that a forgotten lease disappears."""


class HeldLease:
    """A lease this process holds; safe for many threads."""

    def __init__(
        self, leases: "Leases", lease_id: str, versions: tuple[int, int | None], seconds: float
    ) -> None:
        # fixed at construction
        self.lease_id = lease_id
        self.version, self.last_version = versions
        self._leases = leases
        self._seconds = seconds
        self.taken_ms = leases.clock.now_ms()
        self._path = leases.paths.lease(lease_id)
        self._lock = Lock()
        # guarded by _lock, which is never held during a call of the store
        self._trusted_until = float("inf")
        self._trusted_until_ms = float("inf")
        # written under _lock, read without it: until then half its time has not passed
        self._young_until = float("inf")
        self._young_until_ms = float("inf")
        self._tag: str | None = None
        """Tag of the lease as this process last wrote it; None when an answer was lost."""
        try:
            self._write(is_new=True)
        except (StorageFull, StorageReadOnly, StorageRefused) as error:
            logger.info("kept a lease in memory version=%d cause=%s", self.version, error)
            leases.keep_here(self)

    @property
    def has_lapsed(self) -> bool:
        """Whether it is too old to rely on, or was released; this never changes back."""
        with self._lock:
            return self._has_lapsed_locked()

    def renew(self) -> None:
        """Extend the lease to its full time from now; raises Fenced when it has lapsed."""
        self._refuse_lapsed()
        self._write()

    def check(self) -> None:
        """Raise Fenced when the lease is too old to rely on; renew it after half its time."""
        clock = self._leases.clock
        if clock.monotonic() < self._young_until and clock.now_ms() < self._young_until_ms:
            return
        self._refuse_lapsed()
        # Not yet lapsed: if storage does not answer now, the next check tries again.
        with suppress(Unavailable, OutcomeUnknown):
            self._write()

    def release(self) -> None:
        """End the lease; a second call does nothing."""
        self._distrust()
        if not self._leases.release_here(self):
            self._leases.objects.delete(self._path)

    def give_up(self) -> None:
        """Release the lease if possible; otherwise it ends by itself."""
        with suppress(NeveError):
            self.release()

    def renew_if_due(self) -> bool:
        """Renew the lease after half its time, as `check` does, but never raise."""
        with suppress(NeveError):
            self.check()
        return False

    def _write(self, *, is_new: bool = False) -> None:
        clock = self._leases.clock
        started, started_ms = clock.monotonic(), clock.now_ms()
        lease = Lease(
            lease_id=self.lease_id,
            version=self.version,
            expires_ms=started_ms + int(self._seconds * 1_000),
            last_version=self.last_version,
            holder=self._leases.holder,
            taken_ms=self.taken_ms,
        )
        with self._lock:
            tag, self._tag = self._tag, None
        tag = self._create(encode_lease(lease)) if is_new else self._replace(lease, tag)
        with self._lock:
            # It may have lapsed, or been released, during the call of the store.
            has_lapsed = self._has_lapsed_locked()
            if not has_lapsed:
                self._tag = tag
                trusted = self._seconds * _MARGIN
                self._trusted_until = started + trusted
                self._trusted_until_ms = started_ms + trusted * 1_000
                self._young_until = started + trusted / 2
                self._young_until_ms = started_ms + trusted / 2 * 1_000
        if has_lapsed:
            self._leases.objects.delete(self._path)
            raise self._fenced()

    def _create(self, payload: bytes) -> str:
        tag = self._leases.objects.put_if_absent(self._path, payload)
        if tag is None:
            raise AlreadyExists("another lease has this id", path=self._path)
        return tag

    def _replace(self, lease: Lease, tag: str | None) -> str:
        """Replace the lease; raises Fenced when it is gone."""
        objects = self._leases.objects
        # A renewal of another thread, or an earlier one that was late, may come in between.
        for _ in range(_RENEWALS_AT_ONCE):
            try:
                known = tag or objects.get(self._path).tag
            except NotFound as error:
                self._distrust()
                raise Fenced(
                    f"the lease on version {self.version} is gone",
                    path=self._path,
                    hint="Take a new snapshot: the files of the version may be deleted",
                ) from error
            tag = objects.put_if_match(self._path, encode_lease(lease), tag=known)
            if tag is not None:
                return tag
        raise Unavailable("too many threads renewed the lease at once", path=self._path)

    def _distrust(self) -> None:
        with self._lock:
            self._trusted_until = self._young_until = float("-inf")

    def _refuse_lapsed(self) -> None:
        if self.has_lapsed:
            raise self._fenced()

    def _has_lapsed_locked(self) -> bool:
        clock = self._leases.clock
        return clock.monotonic() >= self._trusted_until or clock.now_ms() >= self._trusted_until_ms

    def _fenced(self) -> Fenced:
        return Fenced(
            f"the lease on version {self.version} was not renewed for {self._seconds:g} s",
            path=self._path,
            hint="Take a new snapshot: the files of the version may be deleted",
        )


class Leases:
    """The leases of one store."""

    def __init__(self, objects: ObjectStore, prefix: str, *, clock: Clock, ids: IdSource) -> None:
        self.objects = objects
        self.paths = StorePaths(prefix)
        self.clock = clock
        self.holder = ids.process()
        self._ids = ids
        # Unwritten leases (MANIFEST-G6) of all handles of this table in this process.
        self._kept_here = _kept_in_process.setdefault(
            (objects.location, prefix), WeakValueDictionary()
        )

    def keep_here(self, lease: HeldLease) -> None:
        """Honour a lease that could not be written while it is held (MANIFEST-G6)."""
        self._kept_here[lease.lease_id] = lease

    def release_here(self, lease: HeldLease) -> bool:
        """End such a lease; False when it was written."""
        return self._kept_here.pop(lease.lease_id, None) is not None

    def take(self, version: int, *, seconds: float, last: int | None = None) -> HeldLease:
        """Create a lease on a Version; the caller then checks that the Version is retained.

        With `last` it covers all Versions from the first to that one, and the history since.
        """
        if not 0 < seconds <= LEASE_SECONDS_MAX:
            raise InvalidArgument(
                f"a lease of {seconds:g} s", hint=f"Ask for at most {LEASE_SECONDS_MAX:,} s"
            )
        if not all(0 <= number <= _VERSION_MAX for number in (version, last or 0)):
            raise InvalidArgument(
                f"a lease on versions {version} to {last}", hint="Lease versions that the table has"
            )
        return HeldLease(self, self._ids.uuid().hex, (version, last), seconds)

    def hold(self, version: int, versions: VersionReader, *, seconds: float) -> HeldLease:
        """Lease a Version; raises NotFound, without a lease, when it is not retained."""
        return _checked(self.take(version, seconds=seconds), versions)

    def hold_if_possible(
        self, version: int, versions: VersionReader, *, seconds: float
    ) -> HeldLease | None:
        """Lease a Version as `hold` does; None if storage does not accept the lease."""
        try:
            lease = self.take(version, seconds=seconds)
        except (Unavailable, OutcomeUnknown):
            return None
        return _checked(lease, versions)

    def hold_history(
        self,
        since: int,
        versions: VersionReader,
        *,
        seconds: float,
        last: int | None = None,
        is_needed: bool = True,
        consumer: str | None = None,
    ) -> HeldLease | None:
        """Lease the history after a Version; raises NotFound, without a lease, when some is gone.

        None if storage does not accept the lease and the caller does not need it. A hint of the
        error is for `consumer`, which has read so far.
        """
        first = max(since, 1)  # no Version precedes the first
        lease: HeldLease | None = None
        try:
            lease = self.take(first, last=max(last or first, first), seconds=seconds)
        except (Unavailable, OutcomeUnknown):
            if is_needed:
                raise
        with given_up_on_error(lease):
            # After taking the lease: a collector that did not see it expired the Versions before.
            head = versions.head()
            if first < head.oldest_version:
                raise expired_history(since, head, path=self.paths.prefix, consumer=consumer)
        return lease

    def hold_newest(self, versions: VersionReader, *, seconds: float) -> HeldLease:
        """Lease the newest Version; raises NotFound when the table was dropped."""

        def hold() -> HeldLease | None:
            head = versions.head()
            versions.refuse_dropped(head)
            with suppress(NotFound):
                return self.hold(head.current_version, versions, seconds=seconds)
            return None

        return self.until_held(hold)

    def until_held(self, hold: Callable[[], Held | None]) -> Held:
        """Hold the newest Version; `hold` returns None when it has expired, and is called again.

        Raises NotFound when Versions expire as fast as they are held.
        """
        for _ in range(_TRIES):
            held = hold()
            if held is not None:
                return held
        raise NotFound(
            "the table's versions expired as fast as they were read",
            path=self.paths.prefix,
            hint="Raise the table's retention to keep more history",
        )

    @contextmanager
    def leased_newest(self, versions: VersionReader, *, seconds: float) -> Iterator[HeldLease]:
        """Keep the newest Version, and its files, for a block of work."""
        lease = self.hold_newest(versions, seconds=seconds)
        try:
            yield lease
        finally:
            lease.give_up()

    def end(self, lease_id: str) -> None:
        """End a lease of any process; if that fails, it ends by itself."""
        with suppress(NeveError):
            self.objects.delete(self.paths.lease(lease_id))

    def unexpired(self, *, known_ms: int = 0) -> Iterator[Lease]:
        """Yield the leases that are in force; a damaged lease counts for every Version.

        `known_ms` is a time that has certainly passed, whatever the clock says.
        """
        now_ms = self.clock.now_ms()
        for held in list(self._kept_here.values()):
            yield Lease(
                lease_id=held.lease_id,
                version=held.version,
                expires_ms=now_ms + 1,
                last_version=held.last_version,
                holder=self.holder,
                taken_ms=held.taken_ms,
            )
        for path in self._paths():
            try:
                lease = decode_lease(self.objects.get(path).payload, path=path)
            except NotFound:
                continue
            except Corruption as damage:
                logger.warning("held back by a damaged lease path=%s cause=%s", path, damage)
                lease = Lease(lease_id="", version=0, expires_ms=now_ms + 1)
            if _is_in_force(lease, now_ms, known_ms):
                yield lease

    def read_all(self) -> Iterator[Lease | Corruption]:
        """Yield every lease, in force or not; for a damaged one, its error."""
        for path in self._paths():
            try:
                yield decode_lease(self.objects.get(path).payload, path=path)
            except NotFound:
                continue
            except Corruption as damage:
                yield Corruption(
                    f"a lease cannot be read: {damage.message}",
                    path=path,
                    hint="Delete it when no reader is open: it holds back the deletion of files",
                )

    def remove_expired(self, *, known_ms: int = 0) -> int:
        """Delete leases that ended; return how many."""
        now_ms = self.clock.now_ms()
        count = 0
        for path in self._paths():
            try:
                lease = decode_lease(self.objects.get(path).payload, path=path)
            except (NotFound, Corruption):
                continue
            if not _is_in_force(lease, now_ms, known_ms):
                self.objects.delete(path)
                count += 1
        return count

    def _paths(self) -> list[str]:
        """Return the paths of leases that `take` created (MANIFEST-G3)."""
        start = len(self.paths.leases)
        return [
            found.path
            for found in self.objects.list(self.paths.leases)
            if _NAME.fullmatch(found.path, start)
        ]


@contextmanager
def given_up_on_error(lease: HeldLease | None) -> Iterator[None]:
    """Release a lease when a block of work fails."""
    try:
        yield
    except BaseException:
        if lease is not None:
            lease.give_up()
        raise


def _checked(lease: HeldLease, versions: VersionReader) -> HeldLease:
    """Return a lease if its Version is retained; otherwise end it and raise NotFound."""
    with given_up_on_error(lease):
        # After taking the lease: a collector that did not see it expired the Version before.
        versions.version(lease.version)
    return lease


def _is_in_force(lease: Lease, now_ms: int, known_ms: int) -> bool:
    # MANIFEST-G1 and MANIFEST-G4.
    return now_ms < lease.expires_ms <= max(now_ms, known_ms) + _AHEAD_MS_MAX
