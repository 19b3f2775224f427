"""Garbage of a table: expiring Versions and deleting unreachable files, in recorded phases.

    plan      computed     which Versions expire and which files are unreachable; nothing written
    apply     committed    the Versions leave the manifest; the files are listed under gc/<id>-<n>
    delete    files gone   when no lease or live intent holds them back; then the list is removed

A crash between two phases leaves records that the next run continues with. Every phase may be
repeated.

MANIFEST-E1  These Versions are kept: the last `retention.versions`, all that were current within
             `retention.milliseconds`, the current one, tagged ones and leased ones. Times of
             Versions never run back: those committed after a clock far ahead all have its time.
             Their age counts from when a collector saw them. A reader of history keeps all from its
             first Version on, and so does a consumer from its position on (MANIFEST-N7).
MANIFEST-E2  A file is deleted only if no kept Version reaches it, no live intent announced it, and
             no unexpired lease is on a Version that this plan or an earlier one expired: Versions
             share files. A rollback brings old files back, so the Versions after the oldest kept
             one count too, and so do those committed since the plan.
MANIFEST-E3  Only files under the table's own `data/` and `deletes/` are ever deleted.
MANIFEST-E4  Files of jobs that did not commit are found by the name prefixes that the jobs
             announced, for a day: a job that slept may write one more. First the files are listed,
             then the state is read: the writer of each has announced it before, and may have
             committed it.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from neve.errors import Conflict, Corruption, InvalidArgument, NotFound
from neve.manifest.documents import Lease
from neve.manifest.invariants import check_head
from neve.manifest.json_document import Document, write_document
from neve.manifest.leases import Leases
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import (
    GARBAGE_PREFIX,
    HEAD_KEY,
    SEEN_KEY,
    TableHead,
    state_key,
    version_key,
)
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_codec import encode_version
from neve.manifest.version_reader import Session
from neve.manifest.writer_state import DELETABLE, Abandoned, Consumer, WriterState
from neve.model.version import Version
from neve.observability.events import ignore
from neve.storage.clock import Clock, IdSource
from neve.storage.table_paths import check_path

_FORMAT: Final = 1
_SWEEP_MS: Final = 24 * 60 * 60 * 1000
_RECORD_PATHS_MAX: Final = 2_048  # so that even a record of the longest names fits into a document
_RANGE: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})", re.ASCII)
_ANY_VERSION: Final = 0  # the version of a lease that cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """What one run would expire and delete."""

    base_version: int
    """The Version that was current when the plan was made."""
    oldest_before: int
    oldest_after: int
    kept_versions: tuple[int, ...]
    """Versions below `oldest_after` that tags or leases keep."""
    expired_versions: tuple[int, ...]
    paths: tuple[str, ...]
    """Files that no kept Version reaches, relative to the table."""
    leases: tuple[Lease, ...] = ()
    """Leases without which fewer Versions would be kept."""
    consumers: tuple[Consumer, ...] = ()
    """Consumers without which fewer Versions would be kept."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to expire or delete."""
        return not self.expired_versions

    @property
    def released(self) -> tuple[tuple[int, int], ...]:
        """Ranges of all Versions that have expired once the plan is applied."""
        kept = (0, *sorted(self.kept_versions), self.oldest_after)
        return tuple(
            (before + 1, after - 1) for before, after in pairwise(kept) if before + 1 < after
        )


class TableGarbage:
    """Retention and file garbage of one table."""

    def __init__(
        self,
        versions: TableVersions,
        work: WriterState,
        leases: Leases,
        *,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._versions = versions
        self._store = versions.store
        self._work = work
        self._leases = leases
        self._clock = clock
        self._ids = ids

    def compute_gc_plan(
        self, *, keep_last: int | None = None, older_than_ms: int | None = None
    ) -> GcPlan:
        """Compute what retention expires now; the arguments override the table's own."""
        session = self._store.read()
        head = self._versions.head_in(session)
        leases = self._leased(head.last_transaction_ms)
        retained = self._oldest_kept(session, head, keep_last, older_than_ms)
        consumers = self._holding_consumers(session, head, below=retained)
        oldest = _oldest_of_history(leases, head, retained)
        oldest = min([oldest, *(each.first_version for each in consumers)])
        tagged = set(self._work.tags_in(session).values())
        alone = self._versions.kept_alone_in(session, head)
        older = (*alone, *range(head.oldest_version, oldest))
        kept = tuple(number for number in older if number in tagged or _is_leased(number, leases))
        expired = tuple(sorted(set(older).difference(kept)))
        return GcPlan(
            base_version=head.current_version,
            oldest_before=head.oldest_version,
            oldest_after=oldest,
            kept_versions=kept,
            expired_versions=expired,
            paths=self._unreachable(session, head, oldest, alone, kept) if expired else (),
            leases=_holding(leases, kept={*kept, *range(oldest, retained)} - tagged),
            consumers=consumers,
        )

    def _holding_consumers(
        self, session: Session, head: TableHead, *, below: int
    ) -> tuple[Consumer, ...]:
        """Return the consumers that need a Version below one, the one that needs most first."""
        now_ms = self._clock.now_ms()
        found = [
            each
            for each in self._work.consumers_in(session)
            if each.first_version < below and each.holds(head, now_ms)
        ]
        return tuple(sorted(found, key=lambda each: (each.first_version, each.name)))

    def _unreachable(
        self,
        session: Session,
        head: TableHead,
        oldest: int,
        alone: Iterable[int],
        kept: Iterable[int],
    ) -> tuple[str, ...]:
        """Return files that only expired Versions below `oldest` reach."""
        candidates = self._reached(session, alone)
        if oldest > head.oldest_version:
            candidates |= self._reached(session, (head.oldest_version,))
            candidates |= self._brought(session, head.oldest_version + 1, oldest - 1)
        reachable = self._reached(session, (*kept, oldest))
        reachable |= self._brought(session, oldest + 1, head.current_version)
        return tuple(sorted(candidates - reachable))

    def apply_gc_plan(self, plan: GcPlan) -> str | None:
        """Commit a plan; return the id of its list of files to delete, None when empty.

        Raises Conflict when the table's tags, consumers or retained Versions changed since the plan
        was made.
        """
        if plan.is_empty:
            return None
        garbage_id = self._ids.uuid().hex

        def run(session: WriteSession) -> str:
            head = self._versions.head_in(session)
            tagged = set(self._work.tags_in(session).values())
            if head.oldest_version != plan.oldest_before or tagged & set(plan.expired_versions):
                raise _plan_is_stale()
            if self._holding_consumers(session, head, below=plan.oldest_after):
                raise _plan_is_stale()
            # Kept Versions must be readable without the expired edits. A full copy that this
            # process sees may be in its checkpoint only, so it is always written.
            for number in (*plan.kept_versions, plan.oldest_after):
                version = self._version_to_keep(session, number)
                if number >= plan.oldest_before:
                    session.put(state_key(number), encode_version(version))
            for number in range(plan.oldest_before, plan.oldest_after):
                session.delete(version_key(number))
            for number in plan.expired_versions:
                session.delete(state_key(number))
            after = head.retaining_from(plan.oldest_after)
            check_head(head, after)
            session.put(HEAD_KEY, after.encode())
            # A rollback may have brought files back since the plan was made.
            brought = self._brought(session, plan.base_version + 1, head.current_version)
            paths = [path for path in plan.paths if path not in brought]
            for first in range(0, len(paths), _RECORD_PATHS_MAX):
                session.put(
                    f"{GARBAGE_PREFIX}{garbage_id}-{first:010}",
                    _encode_record(paths[first : first + _RECORD_PATHS_MAX], plan.released),
                )
            return garbage_id

        return self._store.transact(run)

    def delete_garbage(
        self,
        delete: Callable[[str], None],
        *,
        find: Callable[[str], Iterable[str]],
        settle: Callable[[], None] | None = None,
    ) -> int:
        """Delete files of applied plans and abandoned jobs, unless held back; return how many.

        `delete` removes one file of the table by its relative path, if it exists. With `settle` it
        may defer that until `settle` is called, before a list of files is removed. `find` returns
        the paths that begin with a prefix.
        Raises Corruption, before anything is deleted, for a record that no plan can have written.
        """
        self._work.cancel_expired_intents()
        self._work.forget_finished_jobs()
        self._note_time()
        before = self._store.read()
        swept = list(self._work.abandoned_in(before))
        found = {
            path for job in swept for prefix in job.prefixes for path in find(prefix)
        }  # before the state is read (MANIFEST-E4)
        session = self._store.read() if swept else before
        records = list(self._applied(session))
        if not records and not swept:
            return 0
        reachable = self._reachable(session)
        announced = tuple(
            prefix for intent in self._work.intents_in(session) for prefix in intent.prefixes
        )
        found -= reachable
        found.difference_update(*(record.paths for record in records))
        held = {path for path in found if path.startswith(announced)}
        settle = settle or ignore
        count = self._delete_records(
            records, reachable, announced, session, delete=delete, settle=settle
        )
        for path in sorted(found - held):
            delete(path)
        settle()
        self._forget_swept(swept, held)
        return count + len(found - held)

    def _delete_records(
        self,
        records: Sequence["_GarbageRecord"],
        reachable: set[str],
        announced: tuple[str, ...],
        session: Session,
        *,
        delete: Callable[[str], None],
        settle: Callable[[], None],
    ) -> int:
        if not records:
            return 0
        # Leases are read after the records, so that those taken before a plan was applied are seen.
        known_ms = self._versions.head_in(session).last_transaction_ms
        self._leases.remove_expired(known_ms=known_ms)
        leased = self._leased(known_ms)
        count = 0
        for record in records:
            if _is_leased(_ANY_VERSION, leased) or any(map(record.concerns, leased)):
                continue
            # A path that was committed again since leaves the record, and its file stays.
            gone = [path for path in record.paths if path not in reachable]
            free = [path for path in gone if not path.startswith(announced)]
            for path in free:
                delete(path)
            settle()
            count += len(free)
            if len(free) == len(gone):
                self._store.transact(lambda staged, key=record.key: staged.delete(key))  # type: ignore[misc]
        return count

    def _forget_swept(self, swept: Iterable[Abandoned], held: Iterable[str]) -> None:
        for job in swept:
            # A record from more than a day ahead was written by a wrong clock.
            is_over = abs(self._clock.now_ms() - job.ended_ms) >= _SWEEP_MS
            if is_over and not any(path.startswith(job.prefixes) for path in held):
                self._work.forget_abandoned(job)

    def pending_paths(self) -> frozenset[str]:
        """Return files of applied plans that are not deleted yet."""
        return frozenset(
            path for record in self._applied(self._store.read()) for path in record.paths
        )

    def _applied(self, session: Session) -> Iterator["_GarbageRecord"]:
        for key, payload in session.scan(GARBAGE_PREFIX):
            yield _decode_record(key, payload)

    def _reachable(self, session: Session) -> set[str]:
        """Return files that any retained Version reaches."""
        head = self._versions.head_in(session)
        alone = self._versions.kept_alone_in(session, head)
        reachable = self._reached(session, (*alone, head.oldest_version))
        return reachable | self._brought(session, head.oldest_version + 1, head.current_version)

    def _version_to_keep(self, session: WriteSession, number: int) -> Version:
        try:
            return self._versions.version_in(session, number)
        except NotFound as error:
            raise _plan_is_stale() from error

    def _reached(self, session: Session, numbers: Iterable[int]) -> set[str]:
        """Return files that any of these Versions reaches."""
        paths: set[str] = set()
        for number in numbers:
            paths |= paths_of(self._versions.version_in(session, number))
        return paths

    def _brought(self, session: Session, first: int, last: int) -> set[str]:
        """Return files that the edits of these Versions added to the table, or brought back."""
        paths: set[str] = set()
        for number in range(first, last + 1):
            paths.update(self._versions.edit_message_in(session, number).brought)
        return paths

    def _oldest_kept(
        self,
        session: Session,
        head: TableHead,
        keep_last: int | None,
        older_than_ms: int | None,
    ) -> int:
        """Return the first Version that number and age retain (MANIFEST-E1)."""
        count = head.retention.versions if keep_last is None else keep_last
        by_count = max(head.current_version - max(count, 1) + 1, head.oldest_version)
        aged = 0
        horizon_ms = older_than_ms
        if horizon_ms is None:
            now_ms, age_ms = self._clock.now_ms(), head.retention.milliseconds
            # Times in the table have passed, even if a slow clock says otherwise.
            horizon_ms = max(now_ms, head.last_transaction_ms) - age_ms
            seen = _read_seen(session)
            aged = 0 if seen is None else seen.version_aged(now_ms, age_ms)
        number = head.oldest_version
        while number < by_count:
            following = self._versions.edit_message_in(session, number + 1)
            # A Version is current until the next one replaces it: it is as old as its successor.
            if following.facts.timestamp_ms > horizon_ms and number >= aged:
                break
            number += 1
        return number

    def _note_time(self) -> None:
        """Record which Version is current, if its time is ahead of the clock (MANIFEST-E1)."""

        def run(session: WriteSession) -> None:
            head = self._versions.head_in(session)
            now_ms = self._clock.now_ms()
            seen = _read_seen(session)
            if head.last_transaction_ms <= now_ms:
                if seen is not None:
                    session.delete(SEEN_KEY)
                return
            aged = 0 if seen is None else seen.version_aged(now_ms, head.retention.milliseconds)
            if seen is None or now_ms < seen.at_ms or aged == seen.version != head.current_version:
                noted = _Seen(version=head.current_version, at_ms=now_ms, aged=aged)
                session.put(SEEN_KEY, noted.encode())

        self._store.transact(run)

    def _leased(self, known_ms: int) -> list[Lease]:
        return list(self._leases.unexpired(known_ms=known_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The Version that was current at a time by a collector's clock."""

    version: int
    at_ms: int
    aged: int
    """Age no longer keeps Versions below this one: they were replaced long ago."""

    def version_aged(self, now_ms: int, age_ms: int) -> int:
        """Return the first Version that age may keep."""
        return self.version if now_ms - self.at_ms >= age_ms else self.aged

    def encode(self) -> bytes:
        """Return the bytes of the document."""
        return write_document(
            _FORMAT, {"version": self.version, "at_ms": self.at_ms, "aged": self.aged}
        )


def _read_seen(session: Session) -> _Seen | None:
    payload = session.get(SEEN_KEY)
    if payload is None:
        return None
    document = Document.read(payload, format_number=_FORMAT, path=SEEN_KEY)
    return _Seen(
        version=document.integer("version"),
        at_ms=document.integer("at_ms"),
        aged=document.integer("aged"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GarbageRecord:
    """Files of an applied plan, and the Versions that may have reached them, as ranges."""

    key: str
    paths: tuple[str, ...]
    released: tuple[tuple[int, int], ...]

    def concerns(self, lease: Lease) -> bool:
        """Whether a lease is on one of those Versions."""
        leased = lease.versions
        return any(first <= leased[-1] and leased[0] <= last for first, last in self.released)


def _encode_record(paths: Sequence[str], released: Sequence[tuple[int, int]]) -> bytes:
    return write_document(
        _FORMAT,
        {"paths": list(paths), "versions": [f"{first}-{last}" for first, last in released]},
    )


def _decode_record(key: str, payload: bytes) -> _GarbageRecord:
    document = Document.read(payload, format_number=_FORMAT, path=key)
    paths = document.texts("paths")
    for path in paths:
        try:
            check_path(path)
        except InvalidArgument as error:
            raise Corruption(f"a garbage record lists {path[:80]!a}", path=key) from error
        if not path.startswith(DELETABLE):
            raise Corruption(f"a garbage record lists {path[:80]!a}", path=key)
    released = []
    for text in document.texts("versions"):
        found = _RANGE.fullmatch(text)
        if found is None:
            raise Corruption(f"a garbage record is about versions {text[:80]!a}", path=key)
        released.append((int(found[1]), int(found[2])))
    return _GarbageRecord(key=key, paths=paths, released=tuple(released))


def _holding(leases: Iterable[Lease], *, kept: Collection[int]) -> tuple[Lease, ...]:
    """Return the leases that keep one of these Versions, the oldest first."""
    numbers = sorted(kept)
    found = [
        lease
        for lease in leases
        if bisect_left(numbers, lease.version) < bisect_right(numbers, lease.versions[-1])
    ]
    return tuple(sorted(found, key=lambda lease: (lease.version, lease.taken_ms, lease.lease_id)))


def _is_leased(number: int, leases: Iterable[Lease]) -> bool:
    return any(number in lease.versions for lease in leases)


def _oldest_of_history(leases: Iterable[Lease], head: TableHead, oldest: int) -> int:
    """Return the first Version that stays because a reader of history needs its edits."""
    for lease in leases:
        if lease.last_version is not None and lease.last_version >= head.oldest_version:
            oldest = min(oldest, max(lease.version, head.oldest_version))
    return oldest


def _plan_is_stale() -> Conflict:
    return Conflict(
        "the table's retained versions changed since the plan was made",
        keys=(HEAD_KEY,),
        hint="Compute the plan again",
    )


def paths_of(version: Version) -> set[str]:
    """Return every file that a Version reaches: data files, vectors, remembered deletes."""
    paths = {*version.files, *version.deletes}
    paths.update(file.vector.path for file in version.files.values() if file.vector is not None)
    return paths
