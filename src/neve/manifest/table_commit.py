"""Commits proposals, whoever else commits meanwhile.

Steps of a commit:

1. carry the proposal over to the newest Version this process knows, and write its vectors: what
   takes long happens here, beside other committers
2. hand it to the store's queue. Whoever leads carries it over what came since, onto the Version of
   the one before it in the group, and publishes the group as one segment: a Version for each
3. when the commit is decided, publish a checkpoint of the store if one is due

So committers of one process never lose against each other. Against other processes they may: a job
that lost `_RACES` times takes a short reservation, so that a large one is not starved by many small
ones, and commits at once.

B1  A commit is neither failed by its checkpoint nor held back by it for longer than
    `_CHECKPOINT_SECONDS` of trying.
B2  The Version that a proposal was made on is still retained when it is first carried over.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from neve.errors import Conflict, NotFound
from neve.manifest.rebase import Proposal, RebasedProposal, RowLookup, WriteVectors
from neve.manifest.retry import Patience
from neve.manifest.sessions import WriteSession
from neve.manifest.table_head import HEAD_KEY, RESERVATION_KEY, HeadChange
from neve.manifest.table_versions import Committed, TableVersions
from neve.manifest.version_reader import Session, TableSnapshot
from neve.manifest.writer_state import WriterState
from neve.model.version import Version, VersionEdit
from neve.storage.clock import Clock, IdSource

_RACES: Final = 4
_RESERVATION_MS: Final = 5_000
_PAUSE_SECONDS_MAX: Final = 0.02
_CHECKPOINT_SECONDS: Final = 5.0
# How many Versions a leader carries another one's proposal over while all others wait. A proposal
# that is farther behind is sent back once, to its own thread.
_CARRIED_BY_LEADER_MAX: Final = 64

logger = logging.getLogger(__name__)


class TableCommitter:
    """Brings proposals into a table, whoever else commits meanwhile."""

    def __init__(
        self,
        versions: TableVersions,
        work: WriterState,
        *,
        clock: Clock,
        ids: IdSource,
        commit_seconds: float = 60.0,
    ) -> None:
        # fixed at construction
        self._versions = versions
        self._work = work
        self._clock = clock
        self._ids = ids
        self._commit_seconds = commit_seconds
        # safe on their own: at worst, a checkpoint is published twice, as the same object
        self._is_checkpointing = False
        self._checkpoint_from_segment = 0

    def commit(
        self,
        proposal: Proposal,
        change: HeadChange,
        *,
        lookup: RowLookup,
        write_vectors: WriteVectors,
    ) -> Committed:
        """Commit a proposal on the newest Version; raises Conflict when it is void.

        A batch or job that is committed already is answered as such, whatever became of its inputs.
        `lookup` and `write_vectors` may be called by another thread, though never by two at a time,
        and must not commit through this handle.
        """
        patience = Patience(self._clock, self._ids, self._commit_seconds)
        session = self._session_with(proposal.base)
        repeated = self._versions.repeat_in(session, self._versions.head_in(session), change)
        if repeated is not None:
            repeated = self._versions.committed_before(change)  # as of now, not as last known
            if repeated is not None:
                return repeated
        base = base_in(self._versions, session, proposal.base)
        carried = RebasedProposal(proposal, base, lookup=lookup, write_vectors=write_vectors)
        committed = self._commit_carried(_Turn(self._versions, carried), change, patience)
        self.checkpoint_once()
        return committed

    def checkpoint_once(self) -> bool:
        """Publish a checkpoint of the table's store if one is due; False when none was published.

        A failure is logged, and tried again when about as many segments have come as a checkpoint
        is due after.
        """
        store = self._versions.store
        if self._is_checkpointing or store.read_known().segment < self._checkpoint_from_segment:
            return False
        self._is_checkpointing = True
        try:
            return store.checkpoint_once(seconds=_CHECKPOINT_SECONDS)
        except Exception as error:  # noqa: BLE001 - the commit is decided: nothing may fail it now
            self._checkpoint_from_segment = (
                store.read_known().segment + store.options.checkpoint_every
            )
            logger.warning("put off checkpoint store=%s cause=%s", store.log.paths.prefix, error)
            return False
        finally:
            self._is_checkpointing = False

    def _session_with(self, number: int) -> Session:
        """Return what is known of the table if that includes a Version, otherwise the newest."""
        session = self._versions.store.read_known()
        if self._versions.head_in(session).current_version < number:
            return self._versions.store.read()
        return session

    def _commit_carried(self, turn: "_Turn", change: HeadChange, patience: Patience) -> Committed:
        asked = change
        while True:
            turn.prepare()
            try:
                return self._versions.apply_made_edits(turn.make_edits, asked)
            except Conflict as conflict:
                if not {HEAD_KEY, RESERVATION_KEY}.intersection(conflict.keys):
                    raise
                what, path = (
                    "other committers kept being first",
                    self._versions.store.log.paths.head,
                )
                if RESERVATION_KEY in conflict.keys:
                    patience.pause(what, path=path, cause=conflict, seconds_max=_PAUSE_SECONDS_MAX)
                else:
                    patience.check(what, path=path, cause=conflict)
                    if turn.is_starved:
                        asked = self.reserved(asked)

    def reserved(self, asked: HeadChange) -> HeadChange:
        """Ask for the next commit; gives the change under the job id that may have it."""
        job_id = asked.job_id or self._ids.uuid().hex
        try:
            self._work.reserve(job_id, milliseconds=_RESERVATION_MS)
        except Conflict:
            return asked  # another job that was starved is first; its reservation ends by itself
        return replace(asked, job_id=job_id)


class LostRaces:
    """Races that one commit lost to others; every few of them it asks for the next turn."""

    def __init__(self, committer: TableCommitter, patience: Patience, *, path: str) -> None:
        self._committer = committer
        self._patience = patience
        self._path = path
        self._count = 0

    def wait(self, conflict: Conflict, asked: HeadChange) -> HeadChange:
        """Pause before the next try; gives the change to ask for then. Raises when time is up."""
        self._patience.pause(
            "other committers kept being first",
            path=self._path,
            cause=conflict,
            seconds_max=_PAUSE_SECONDS_MAX,
        )
        self._count += 1
        return asked if self._count % _RACES else self._committer.reserved(asked)


class _Turn:
    """One proposal's way through the queue; its transaction may be run more than once."""

    def __init__(self, versions: TableVersions, carried: RebasedProposal) -> None:
        self._versions = versions
        self._carried = carried
        self._base_to_confirm: int | None = carried.number
        self._was_sent_back = False
        self._runs = 0

    @property
    def is_starved(self) -> bool:
        """Whether it lost too many races against other processes since it was prepared."""
        return self._runs > _RACES

    def prepare(self) -> None:
        """Carry it as far as this process knows, outside of the queue."""
        self._runs = 0
        session = self._versions.store.read_known()
        head = self._versions.head_in(session)
        if head.current_version >= self._carried.number:
            version = self._versions.version_in(session, head.current_version)
            self._carried.edit_on(version, self._touched(session, version), is_committed=True)

    def make_edits(self, session: WriteSession, snapshot: TableSnapshot) -> Sequence[VersionEdit]:
        """Return its edit on the Version that a transaction sees; raises Conflict."""
        self._runs += 1
        current = snapshot.version
        if self.is_starved:
            raise _overtaken(f"{_RACES} times another process was first")
        is_far = current.number - self._carried.number > _CARRIED_BY_LEADER_MAX
        if is_far and not self._was_sent_back:
            self._was_sent_back = True
            raise _overtaken(f"the table is at version {current.number} already")
        if self._base_to_confirm is not None and self._base_to_confirm != current.number:
            base_in(self._versions, session, self._base_to_confirm)
            self._base_to_confirm = None
        is_committed = HEAD_KEY not in session.staged
        touched = self._touched(session, current)
        return (self._carried.edit_on(current, touched, is_committed=is_committed),)

    def _touched(self, session: Session, current: Version) -> list[str] | None:
        return self._versions.touched_in(session, after=self._carried.number, until=current.number)


def base_in(versions: TableVersions, session: Session, number: int) -> Version:
    """Return the Version that a change was made on; raises Conflict when it is not retained."""
    try:
        return versions.version_in(session, number)
    except NotFound as error:
        raise Conflict(
            f"version {number}, on which the change was made, is not kept any more",
            hint="Plan the job again on the current version, and lease it while the job runs",
        ) from error


def _overtaken(message: str) -> Conflict:
    return Conflict(message, keys=(HEAD_KEY,), hint="Carry the change over and try again")
