"""The commit loop of a table: it repeats a commit until it is decided.

    attempt is prepared ──► transaction ──► decided ──► checkpoint, if one is due
          ▲                     │ another committer was first
          └── reservation? ◄────┴── pause

1. prepare: the slow work, concurrent with other committers. A proposal is rebased on the newest
   Version that this process knows, and its vectors are written; anything else is planned on the
   newest Version
2. the store's queue runs the transaction. Its leader rebases a proposal over the Versions committed
   since, onto the Version of the member before it in the group, and publishes the group as one
   segment: a Version for each. A plan is for one Version only: for any other it is planned again
3. when the commit is decided, a checkpoint of the store is published if one is due

Proposals of one process never lose against each other, but may lose against other processes. An
attempt that lost `_RACES` times takes a short reservation and commits next, so that many small
commits do not starve a large one.

MANIFEST-B1  A checkpoint neither fails its commit nor delays it for longer than
             `_CHECKPOINT_SECONDS` of trying.
MANIFEST-B2  The Version that a proposal was made on is still retained when it is first rebased.
MANIFEST-B3  A commit that lost a race is repeated. One that is void on the newest Version, or whose
             checks fail there, raises.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from neve.errors import Conflict, NotFound
from neve.manifest.rebase import Proposal, RebasedProposal, RowLookup
from neve.manifest.retry import Patience
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import HEAD_KEY, RESERVATION_KEY, HeadChange, Requirements
from neve.manifest.table_versions import Committed, TableVersions
from neve.manifest.version_reader import Session, TableSnapshot
from neve.manifest.writer_state import WriterState
from neve.model.version import Version, VersionEdit
from neve.observability.metrics import COMMIT_SECONDS, NoRecorder, Recorder
from neve.storage.clock import Clock, IdSource

COMMIT_SECONDS_MAX: Final = 60.0
_RACES: Final = 4
_RESERVATION_MS: Final = 5_000
_PAUSE_SECONDS_MAX: Final = 0.02
_CHECKPOINT_SECONDS: Final = 5.0
# How many Versions a leader rebases a proposal over while all others wait. A proposal on an older
# base goes back once to its own thread.
_REBASED_BY_LEADER_MAX: Final = 64

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitPlan:
    """What a commit changes in one specific Version."""

    edits: Sequence[VersionEdit] = ()
    """Empty: only the head changes."""
    change: HeadChange | None = None
    """Change of the head; None: the one passed to the commit."""
    schema: str | None = None
    """A schema that the table did not have before, for the id that the change names."""
    spec: str | None = None
    """A partition spec that the table did not have before."""


MakeEdit = Callable[[Session, TableSnapshot], CommitPlan | None]
"""Plans a commit on the newest Version; None when nothing has to change."""


class TableCommitter:
    """Commits to one table, concurrently with others; safe for many threads."""

    def __init__(
        self,
        versions: TableVersions,
        state: WriterState,
        *,
        clock: Clock,
        ids: IdSource,
        commit_seconds: float = COMMIT_SECONDS_MAX,
        collects: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """Commit for `commit_seconds` at most; `collects` deletes what a checkpoint replaces."""
        # fixed at construction
        self._versions = versions
        self._state = state
        self._clock = clock
        self._ids = ids
        self._commit_seconds = commit_seconds
        self._collects = collects
        self._recorder = recorder or NoRecorder()
        # safe on their own: at worst, a checkpoint is published twice, as the same object
        self._is_checkpointing = False
        self._checkpoint_from_segment = 0

    def commit(
        self,
        make_edit: MakeEdit,
        change: HeadChange | None = None,
        *,
        checks: Requirements | None = None,
    ) -> Committed:
        """Commit what a function plans on the newest Version, on exactly that Version.

        The function is called again whenever another committer was first; its errors end the
        commit. Raises CatalogConflict when a check fails. A batch or job that is already committed
        is not committed again.
        """
        attempt = _Planned(self._versions, make_edit, checks or Requirements())
        return self._commit(attempt, change or HeadChange())

    def commit_proposal(
        self, proposal: Proposal, change: HeadChange, *, lookup: RowLookup
    ) -> Committed:
        """Rebase a proposal on the newest Version and commit it; raises Conflict when it is void.

        A batch or job that is already committed is not repeated, even if its inputs are gone.
        Another thread may call `lookup`, though never two at a time. It must not commit through
        this handle.
        """
        session = self._session_with(proposal.base)
        repeated = self._versions.repeat_in(session, self._versions.head_in(session), change)
        if repeated is not None:
            repeated = self._versions.committed_before(change)  # as of now, not as last known
            if repeated is not None:
                return repeated
        base = base_in(self._versions, session, proposal.base)
        rebased = RebasedProposal(proposal, base, lookup=lookup)
        return self._commit(_Rebased(self._versions, rebased), change)

    def _commit(self, attempt: "_Attempt", asked: HeadChange) -> Committed:
        patience = Patience(self._clock, self._ids, self._commit_seconds)
        began = self._clock.monotonic()
        while True:
            done = attempt.prepare(asked)
            if done is not None:
                return done
            try:
                committed = attempt.apply(asked)
            except Conflict as conflict:
                if not {HEAD_KEY, RESERVATION_KEY}.intersection(conflict.keys):
                    raise
                patience.pause(
                    "other committers kept being first",
                    path=self._versions.store.log.paths.head,
                    cause=conflict,
                    seconds_max=_PAUSE_SECONDS_MAX,
                )
                if attempt.is_starved:
                    asked = self._reserved(asked)
            else:
                self._recorder.add(COMMIT_SECONDS, self._clock.monotonic() - began)
                self.checkpoint_once()
                return committed

    def checkpoint_once(self) -> bool:
        """Publish a checkpoint of the table's store if one is due; False when none was published.

        A failure is logged; the next try comes after about another `checkpoint_every` segments.
        """
        store = self._versions.store
        if self._is_checkpointing or store.read_known().segment < self._checkpoint_from_segment:
            return False
        self._is_checkpointing = True
        try:
            is_done = store.checkpoint_once(seconds=_CHECKPOINT_SECONDS)
            if is_done and self._collects:
                store.collect_once()
        except Exception as error:  # noqa: BLE001 - the commit is decided: nothing may fail it now
            self._checkpoint_from_segment = (
                store.read_known().segment + store.options.checkpoint_every
            )
            logger.warning("put off checkpoint store=%s cause=%s", store.log.paths.prefix, error)
            return False
        else:
            return is_done
        finally:
            self._is_checkpointing = False

    def _session_with(self, number: int) -> Session:
        """Return the known state of the table if it includes a Version, otherwise the newest."""
        session = self._versions.store.read_known()
        if self._versions.head_in(session).current_version < number:
            return self._versions.store.read()
        return session

    def _reserved(self, asked: HeadChange) -> HeadChange:
        """Reserve the next commit; return the change with the job id of the reservation."""
        job_id = asked.job_id or self._ids.uuid().hex
        try:
            self._state.reserve(job_id, milliseconds=_RESERVATION_MS)
        except Conflict:
            return asked  # another starved job is first; its reservation ends by itself
        return replace(asked, job_id=job_id)


class _Attempt(Protocol):
    """One commit in progress; its transaction may run more than once."""

    @property
    def is_starved(self) -> bool:
        """Whether it lost enough races to reserve the next commit."""

    def prepare(self, asked: HeadChange) -> Committed | None:
        """Do the slow work, outside of the queue; return the outcome if nothing is left to do."""

    def apply(self, asked: HeadChange) -> Committed:
        """Run the transaction; raises Conflict on the head's key when others were first."""


class _Planned:
    """A commit that is planned again on the newest Version for each try."""

    def __init__(self, versions: TableVersions, make_edit: MakeEdit, checks: Requirements) -> None:
        self._versions = versions
        self._make_edit = make_edit
        self._checks = checks
        self._base = 0
        self._plan = CommitPlan()
        self._rounds = 0

    @property
    def is_starved(self) -> bool:
        return self._rounds % _RACES == 0

    def prepare(self, asked: HeadChange) -> Committed | None:
        self._rounds += 1
        session = self._versions.store.read()
        head = self._versions.head_in(session)
        repeated = self._versions.repeat_in(session, head, asked)
        if repeated is not None:
            return repeated
        self._versions.refuse_dropped(head)
        self._checks.check(head, path=self._versions.store.log.paths.prefix)
        version = self._versions.version_in(session, head.current_version)
        snapshot = TableSnapshot(head=head, version=version)
        plan = self._make_edit(session, snapshot)
        if plan is None:
            return Committed(snapshot=snapshot, is_repeat=True)
        self._base, self._plan = version.number, plan
        return None

    def apply(self, asked: HeadChange) -> Committed:
        change = self._plan.change
        return self._versions.apply_made_edits(
            self._edits_on,
            asked if change is None else replace(change, job_id=asked.job_id or change.job_id),
            schema=self._plan.schema,
            spec=self._plan.spec,
            requirements=self._checks,
        )

    def _edits_on(self, _session: WriteSession, snapshot: TableSnapshot) -> Sequence[VersionEdit]:
        if snapshot.version.number != self._base:
            raise _overtaken(f"the table is at version {snapshot.version.number}, not {self._base}")
        return self._plan.edits


class _Rebased:
    """A proposal that follows the Versions of others."""

    def __init__(self, versions: TableVersions, rebased: RebasedProposal) -> None:
        self._versions = versions
        self._rebased = rebased
        self._base_to_confirm: int | None = rebased.number
        self._was_sent_back = False
        self._runs = 0

    @property
    def is_starved(self) -> bool:
        return self._runs > _RACES

    def prepare(self, asked: HeadChange) -> Committed | None:  # noqa: ARG002
        self._runs = 0
        session = self._versions.store.read_known()
        head = self._versions.head_in(session)
        if head.current_version >= self._rebased.number:
            version = self._versions.version_in(session, head.current_version)
            self._rebased.edit_on(version, self._touched(session, version), is_committed=True)
        return None

    def apply(self, asked: HeadChange) -> Committed:
        return self._versions.apply_made_edits(self._edits_on, asked)

    def _edits_on(self, session: WriteSession, snapshot: TableSnapshot) -> Sequence[VersionEdit]:
        self._runs += 1
        current = snapshot.version
        if self.is_starved:
            raise _overtaken(f"{_RACES} times another process was first")
        is_far = current.number - self._rebased.number > _REBASED_BY_LEADER_MAX
        if is_far and not self._was_sent_back:
            self._was_sent_back = True
            raise _overtaken(f"the table is at version {current.number} already")
        if self._base_to_confirm is not None and self._base_to_confirm != current.number:
            base_in(self._versions, session, self._base_to_confirm)
            self._base_to_confirm = None
        is_committed = HEAD_KEY not in session.staged
        touched = self._touched(session, current)
        return (self._rebased.edit_on(current, touched, is_committed=is_committed),)

    def _touched(self, session: Session, current: Version) -> list[str] | None:
        return self._versions.touched_in(session, after=self._rebased.number, until=current.number)


def base_in(versions: TableVersions, session: Session, number: int) -> Version:
    """Return the Version that a change was made on; raises Conflict when it is not retained."""
    try:
        return versions.version_in(session, number)
    except NotFound as error:
        raise Conflict(
            f"version {number}, the base of the change, is not kept any more",
            hint="Plan the job again on the current version, and lease it while the job runs",
        ) from error


def _overtaken(message: str) -> Conflict:
    return Conflict(message, keys=(HEAD_KEY,), hint="Make the change again on the current version")
