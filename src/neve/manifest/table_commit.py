"""Commits proposals: rebase, complete, commit; again when another committer was first.

A job that lost `_RACES` times takes a short reservation, so that a large one is not starved by many
small ones. What a lost try has written (vectors) is garbage that nothing refers to.
"""

from dataclasses import replace
from typing import Final

from neve.errors import Conflict
from neve.manifest.rebase import Proposal, RowLookup, WriteVectors, complete, rebase
from neve.manifest.retry import Patience
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed, TableVersions
from neve.manifest.table_work import TableWork
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
        """Commit a proposal on the newest Version; raises Conflict when it is void."""
        patience = Patience(self._clock, self._ids, self._commit_seconds)
        asked = change if change.job_id else replace(change, job_id=self._ids.uuid().hex)
        assert asked.job_id is not None
        base = self._versions.version(proposal.base)
        races = 0
        while True:
            current = self._versions.snapshot_latest().version
            proposal = rebase(proposal, base, current, lookup)
            base = current
            edit = complete(proposal, current, lookup, write_vectors)
            try:
                return self._versions.apply_version_edits([edit], asked)
            except Conflict as conflict:
                races += 1
                if races >= _RACES:
                    self._reserve(asked.job_id)
                patience.note(conflict)
                patience.pause(
                    "other committers kept being first", path=self._versions.store.log.paths.head
                )

    def _reserve(self, job_id: str) -> None:
        try:
            self._work.reserve(job_id, milliseconds=_RESERVATION_MS)
        except Conflict:
            return  # another job that was starved is first; its reservation ends by itself
