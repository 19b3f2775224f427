"""Commits proposals: rebase, complete, commit; again when another committer was first.

A job that lost `_RACES` times takes a short reservation, so that a large one is not starved by many
small ones. What a lost try has written (vectors) is garbage that nothing refers to; it is written
anew only when the table has moved on.
"""

from dataclasses import replace
from typing import Final

from neve.errors import Conflict, NotFound
from neve.manifest.rebase import Proposal, RowLookup, WriteVectors, complete, rebase
from neve.manifest.retry import Patience
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed, TableVersions
from neve.manifest.table_work import TableWork
from neve.model.version import Version, VersionEdit
from neve.storage.clock import Clock, IdSource

_RACES: Final = 4
_RESERVATION_MS: Final = 5_000


class TableCommitter:
    """Brings proposals into a table, whoever else commits meanwhile."""

    def __init__(
        self,
        versions: TableVersions,
        work: TableWork,
        *,
        clock: Clock,
        ids: IdSource,
        commit_seconds: float = 60.0,
    ) -> None:
        self._versions = versions
        self._work = work
        self._clock = clock
        self._ids = ids
        self._commit_seconds = commit_seconds

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
        """
        patience = Patience(self._clock, self._ids, self._commit_seconds)
        asked = change
        base: Version | None = None
        edit: VersionEdit | None = None
        races = 0
        while True:
            repeated = self._versions.committed_before(asked)
            if repeated is not None:
                return repeated
            current = self._versions.snapshot_latest().version
            base = base or self._base_of(proposal, current)
            if edit is None or base.number != current.number:
                proposal = rebase(proposal, base, current, lookup)
                base = current
                edit = complete(proposal, current, lookup, write_vectors)
            try:
                return self._versions.apply_version_edits([edit], asked)
            except Conflict as conflict:
                races += 1
                if races >= _RACES:
                    asked = self._reserved(asked)
                patience.note(conflict)
                patience.pause(
                    "other committers kept being first", path=self._versions.store.log.paths.head
                )

    def _base_of(self, proposal: Proposal, current: Version) -> Version:
        if proposal.base == current.number:
            return current
        try:
            return self._versions.version(proposal.base)
        except NotFound as error:
            raise Conflict(
                f"version {proposal.base}, on which the change was made, is not kept any more",
                hint="plan the job again on the current version, and lease it while the job runs",
            ) from error

    def _reserved(self, asked: HeadChange) -> HeadChange:
        """Ask for the next commit; gives the change under the job id that may have it."""
        job_id = asked.job_id or self._ids.uuid().hex
        try:
            self._work.reserve(job_id, milliseconds=_RESERVATION_MS)
        except Conflict:
            return asked  # another job that was starved is first; its reservation ends by itself
        return replace(asked, job_id=job_id)
