"""Expiring Versions and deleting what none of the others reaches, in recorded phases.

    plan      computed     which Versions expire and which files nobody reaches; nothing written
    apply     committed    the Versions leave the manifest; the files are listed under gc/<id>
    delete    files gone   when no lease or live intent holds them back; then gc/<id> leaves too

A crash between two phases leaves a gc/<id> record that the next run goes on with. Every phase may
be repeated.

E1  Kept are the last `retention.versions` Versions, all younger than `retention.milliseconds`, the
    current one, tagged ones and leased ones.
E2  A file is deleted only if no kept Version reaches it, no live intent announced it, and no
    unexpired lease is on a Version that the plan let go.
E3  Only files under the table's own `data/` and `deletes/` are ever deleted.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from neve.errors import Conflict, Corruption
from neve.manifest.invariants import check_head
from neve.manifest.json_document import Document, write_document
from neve.manifest.leases import Leases
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.table_head import (
    GARBAGE_PREFIX,
    HEAD_KEY,
    STATE_PREFIX,
    TAG_PREFIX,
    TableHead,
    state_key,
    version_key,
)
from neve.manifest.table_versions import Session, TableVersions
from neve.manifest.table_work import TableWork
from neve.manifest.version_codec import encode_version
from neve.model.version import Version
from neve.storage.clock import Clock, IdSource

_FORMAT: Final = 1
_DELETABLE: Final = ("data/", "deletes/")


@dataclass(frozen=True, slots=True, kw_only=True)
class GcPlan:
    """What one run would let go."""

    base_version: int
    """The current Version when the plan was made."""
    oldest_before: int
    oldest_after: int
    kept_versions: tuple[int, ...]
    """Versions below `oldest_after` that tags or leases keep."""
    expired_versions: tuple[int, ...]
    paths: tuple[str, ...]
    """Files that no kept Version reaches, relative to the table."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to let go."""
        return not self.expired_versions


class TableGarbage:
    """Retention and file garbage of one table."""

    def __init__(
        self,
        versions: TableVersions,
        work: TableWork,
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
        """Find out what retention lets go now; the arguments override the table's own."""
        session = self._store.read()
        head = self._versions.head_in(session)
        oldest = self._oldest_kept(session, head, keep_last, older_than_ms)
        pinned = self._pinned(session)
        # Below the oldest there are Versions that a tag or lease kept when the others went.
        strays = [
            number
            for key, _ in session.scan(STATE_PREFIX)
            if (number := int(key.removeprefix(STATE_PREFIX))) < head.oldest_version
        ]
        older = (*strays, *range(head.oldest_version, oldest))
        kept = tuple(number for number in older if number in pinned)
        expired = tuple(number for number in older if number not in pinned)
        reachable: set[str] = set()
        for number in (*kept, oldest):
            reachable |= paths_of(self._versions.version_in(session, number))
        candidates: set[str] = set()
        for number in expired:
            candidates |= paths_of(self._versions.version_in(session, number))
        return GcPlan(
            base_version=head.current_version,
            oldest_before=head.oldest_version,
            oldest_after=oldest,
            kept_versions=kept,
            expired_versions=expired,
            paths=tuple(sorted(candidates - reachable)),
        )

    def apply_gc_plan(self, plan: GcPlan) -> str | None:
        """Commit a plan; gives the id under which its files await deleting, None when empty.

        Raises Conflict when the table's tags or retained Versions changed since the plan was made.
        """
        if plan.is_empty:
            return None
        garbage_id = self._ids.uuid().hex

        def run(session: WriteSession) -> str:
            head = self._versions.head_in(session)
            tagged = {int(value) for _, value in session.scan(TAG_PREFIX)}
            if head.oldest_version != plan.oldest_before or tagged & set(plan.expired_versions):
                raise Conflict(
                    "the table's retained versions changed since the plan was made",
                    keys=(HEAD_KEY,),
                    hint="compute the plan again",
                )
            # What stays must be readable without the edits that leave.
            for number in (*plan.kept_versions, plan.oldest_after):
                version = self._versions.version_in(session, number)
                session.put(state_key(number), encode_version(version))
            for number in range(plan.oldest_before, plan.oldest_after):
                session.delete(version_key(number))
            for number in plan.expired_versions:
                session.delete(state_key(number))
            after = head.retaining_from(plan.oldest_after)
            check_head(head, after)
            session.put(HEAD_KEY, after.encode())
            session.put(
                f"{GARBAGE_PREFIX}{garbage_id}",
                write_document(
                    _FORMAT,
                    {
                        "paths": list(plan.paths),
                        "versions": [str(number) for number in plan.expired_versions],
                    },
                ),
            )
            return garbage_id

        return self._store.transact(run)

    def delete_garbage(self, delete: Callable[[str], None]) -> int:
        """Delete the files of applied plans that nothing holds back; gives how many.

        `delete` removes one file of the table by its relative path; one that is gone is no error.
        """
        self._work.cancel_expired_intents()
        self._leases.remove_expired()
        leased = {lease.version for lease in self._leases.unexpired()}
        session = self._store.read()
        announced = tuple(
            prefix for intent in self._work.intents_in(session) for prefix in intent.prefixes
        )
        count = 0
        for key, paths, versions in self._applied(session):
            if leased & (versions | {0}):
                continue
            held_back = [path for path in paths if path.startswith(announced)] if announced else []
            for path in paths:
                if path not in held_back:
                    delete(path)
                    count += 1
            if not held_back:
                self._store.transact(lambda staged, key=key: staged.delete(key))  # type: ignore[misc]
        return count

    def pending_paths(self) -> frozenset[str]:
        """Files of applied plans that are not deleted yet."""
        return frozenset(
            path for _, paths, _ in self._applied(self._store.read()) for path in paths
        )

    def _applied(self, session: ReadSession) -> Iterable[tuple[str, tuple[str, ...], set[int]]]:
        for key, payload in session.scan(GARBAGE_PREFIX):
            document = Document.read(payload, format_number=_FORMAT, path=key)
            paths = document.texts("paths")
            for path in paths:
                if not path.startswith(_DELETABLE) or ".." in path.split("/"):
                    raise Corruption(f"a garbage record lists {path!r}", path=key)
            yield key, paths, {int(number) for number in document.texts("versions")}

    def _oldest_kept(
        self,
        session: Session,
        head: TableHead,
        keep_last: int | None,
        older_than_ms: int | None,
    ) -> int:
        """First Version that number and age retain (E1)."""
        count = head.retention.versions if keep_last is None else keep_last
        age_ms = head.retention.milliseconds
        horizon_ms = self._clock.now_ms() - age_ms if older_than_ms is None else older_than_ms
        by_count = max(head.current_version - max(count, 1) + 1, head.oldest_version)
        number = head.oldest_version
        while number < by_count:
            following = self._versions.version_in(session, number + 1)
            # A Version is the table until the next one replaces it: it is as old as its successor.
            if following.facts.timestamp_ms > horizon_ms:
                break
            number += 1
        return number

    def _pinned(self, session: Session) -> set[int]:
        tagged = {int(value) for _, value in session.scan(TAG_PREFIX)}
        return tagged | {lease.version for lease in self._leases.unexpired()}


def paths_of(version: Version) -> set[str]:
    """Every file a Version reaches: data files and the files of their vectors."""
    paths = set(version.files)
    paths.update(file.vector.path for file in version.files.values() if file.vector is not None)
    return paths
