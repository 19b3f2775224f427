"""BulkCommitter: one atomic commit for a job that works beside the live writer, in any process.

1. begin     a job that is committed already is found out, by its id or by its application's batch;
             otherwise its run announces the names of its files by an intent, and leases the Version
             it will work on
2. work      somewhere: files are written, and where older rows of their keys lie is looked up in
             the leased Version
3. commit    files and positions go into the table as one Version, carried over what others
             committed since; then other engines are told
4. give up   the intent is withdrawn, unless the run is committed after all, and the files are
             deleted: now, as far as they are there, and by garbage collection for a day

J1  No lock is needed. Order is the order of commits: rows that the live writer has not flushed come
    after.
J2  However often a job is run, under one id or as one batch of an application, it is committed at
    most once: a repetition commits nothing, and is told the Version of the first.
J3  A job that decided by what it read (a merge, a partial write) is void when one of its keys has
    changed since; it is run again. Files that were only rewritten meanwhile change nothing.
J4  A run that dies leaves files that no Version names: a sweep, or garbage collection once its
    intent has ended, deletes them.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, NamedTuple, overload

from pyroaring import BitMap64

from neve.compaction.levels import LevelOptions
from neve.engine.commit_facts import operation_of, summary_of
from neve.engine.publishing import CommitPublishing
from neve.errors import CatalogConflict, Conflict, NeveError, NotFound, OutcomeUnknown
from neve.jobs.commit import ReplacedPartitions
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity, RunName
from neve.keys.columns import KeyArray
from neve.manifest.commit import LostRaces, TableCommitter, base_in
from neve.manifest.rebase import Proposal, complete, rebase
from neve.manifest.retry import Patience
from neve.manifest.table_head import HEAD_KEY, RESERVATION_KEY, HeadChange, Requirements
from neve.manifest.table_versions import Committed
from neve.manifest.writer_state import Intent
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partitions import PartitionId, PartitionIdentity
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.table.file_writers import delete_data_file
from neve.table.table_parts import TableParts

logger = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 12 * 60 * 60.0
_COMMIT_SECONDS: Final = 300.0
_LEASE_TRIES: Final = 8
_MOVES_ROWS: Final = frozenset({Operation.REPLACE, Operation.EVOLVE})


class _Ended(NamedTuple):
    """How a commit ended, and whether it made a Version."""

    committed: Committed
    has_version: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One run of a job, between beginning and end; any process may end it."""

    run: RunName
    base: int
    """The Version it works on."""
    lease_id: str
    identity: JobIdentity


class BulkCommitter:
    """Brings the work of jobs into one table; safe for many threads."""

    def __init__(self, parts: TableParts, *, levels: LevelOptions | None = None) -> None:
        self._parts = parts
        self._versions = parts.versions
        self._levels = levels or LevelOptions()
        self._committer = TableCommitter(
            parts.versions,
            parts.work,
            clock=parts.clock,
            ids=parts.ids,
            commit_seconds=_COMMIT_SECONDS,
        )

    def find_committed(self, identity: JobIdentity) -> BulkOutcome | None:
        """Return the outcome of a job that is committed already, and see that it is published."""
        found = self._versions.committed_before(identity.head_change)
        return None if found is None else self._repeated(found)

    def begin(
        self, identity: JobIdentity | None = None, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> BulkRun:
        """Announce a run and lease the newest Version; the run must end before its deadline."""
        known = identity or JobIdentity()
        _ = known.head_change
        parts = self._parts
        run = RunName.drawn(parts.ids)
        deadline_ms = parts.clock.now_ms() + int(deadline_seconds * 1_000)
        parts.work.register_intent(
            Intent(job_id=run.digits, prefixes=run.prefixes, deadline_ms=deadline_ms)
        )
        try:
            base, lease_id = self._lease_newest(deadline_seconds)
        except BaseException:
            parts.work.release_intent(run.digits)
            raise
        return BulkRun(run=run, base=base, lease_id=lease_id, identity=known)

    def commit(
        self,
        run: BulkRun,
        work: BulkWork,
        *,
        decided: bool = False,
        replaces: frozenset[tuple[PartitionValue, ...]] | None = None,
        is_first: bool = False,
    ) -> BulkOutcome:
        """Commit the work of a run; raises Conflict when it is void, Fenced past its deadline.

        `decided` says that it depends on the rows it read (J3). `replaces` are partitions, under
        the spec of the base, of which everything else goes. `is_first` says that the table has no
        rows but these. Whatever is raised, but for OutcomeUnknown, the run is given up.
        """
        base = JobBase(self._parts, run.run, run.base)
        change = replace(run.identity.head_change, intent_id=run.run.digits)
        try:
            proposal = self._proposal(base, work)
            if is_first or decided or replaces is not None:
                checks = _Checks(
                    is_first=is_first,
                    decided=_KeysOfWork(base, work, with_seen=True) if decided else (),
                    replaced=None if replaces is None else ReplacedPartitions(base, replaces),
                )
                ended = self._commit_checked(base, proposal, change, checks)
            else:
                ended = self._commit_blind(base, proposal, change)
        except OutcomeUnknown:
            self._release(run)
            raise
        except BaseException:
            self.give_up(run)
            raise
        finally:
            base.close()
        if ended.committed.is_repeat:
            self.give_up(run)
            return self._repeated(ended.committed)
        self._tidy(run, ended.committed.snapshot.version)
        return self._outcome(ended, work)

    def give_up(self, run: BulkRun) -> None:
        """End a run that is not committed; what cannot be deleted now is garbage for later.

        One that is committed stays so: its commit took the intent away, and only who withdraws that
        knows that no Version names the files, or ever will.
        """
        self._release(run)
        try:
            is_void = self._parts.work.release_intent(run.run.digits)
        except NeveError as error:
            logger.warning("left files behind run=%s cause=%s", run.run.digits, error)
            return
        if is_void:
            self._delete_files(run.run, kept=frozenset())

    def _lease_newest(self, seconds: float) -> tuple[int, str]:
        for _ in range(_LEASE_TRIES):
            number = self._versions.snapshot_latest().version.number
            lease = self._parts.leases.take(number, seconds=seconds)
            with suppress(NotFound):
                # After the lease: a collector that did not see it has let the Version go before.
                self._versions.version(number)
                return number, lease.lease_id
            lease.release()
        raise NotFound(
            "the table's versions expired as fast as they were read",
            path=self._parts.paths.manifest,
            hint="keep more history: raise the table's retention",
        )

    def _release(self, run: BulkRun) -> None:
        """Give up the run's lease; one that cannot be given up ends by itself."""
        leases = self._parts.leases
        with suppress(NeveError):
            leases.objects.delete(leases.paths.lease(run.lease_id))

    def _proposal(self, base: JobBase, work: BulkWork) -> Proposal:
        facts = base.version.facts
        current = self._versions.snapshot_latest().version
        files = _placed(work.files, current, self._levels, base.identity)
        return Proposal(
            base=base.version.number,
            facts=VersionFacts(
                operation=operation_of(added_rows=work.row_count, marked=work.marked),
                timestamp_ms=0,  # the commit sets it
                schema_id=facts.schema_id,
                spec_id=facts.spec_id,
                summary=summary_of(files),
            ),
            added=files,
            marked=work.marked,
            keys=_KeysOfWork(base, work),
        )

    def _commit_blind(self, base: JobBase, proposal: Proposal, change: HeadChange) -> _Ended:
        """Commit rows that supersede whatever is there."""
        if not proposal.added and not proposal.marked:
            return self._commit_nothing(base, proposal, change)
        try:
            return self._commit_proposal(base, proposal, change)
        except Conflict:
            if not any(file.level for file in proposal.added):
                raise
        # Another committer put files of the same keys into the level: above it, all may overlap.
        level0 = tuple(replace(file, level=0) for file in proposal.added)
        return self._commit_proposal(base, replace(proposal, added=level0), change)

    def _commit_proposal(self, base: JobBase, proposal: Proposal, change: HeadChange) -> _Ended:
        committed = self._committer.commit(
            proposal, change, lookup=base.files, write_vectors=base.making.vectors
        )
        return _Ended(committed)

    def _commit_nothing(self, base: JobBase, proposal: Proposal, change: HeadChange) -> _Ended:
        """Record a job that changes nothing in the newest Version, without making one."""
        settled = base.version
        while True:  # ends: each round another committer was first
            current = self._versions.snapshot_latest().version
            proposal = rebase(proposal, settled, current, base.files)
            settled = current
            if proposal.marked:
                facts = replace(proposal.facts, operation=Operation.DELETE)
                return self._commit_proposal(base, replace(proposal, facts=facts), change)
            with suppress(CatalogConflict):
                return _Ended(self._record(change, current), has_version=False)

    def _record(self, change: HeadChange, current: Version) -> Committed:
        """Record a job that changes nothing; raises CatalogConflict when others were first."""
        return self._versions.apply_version_edits(
            [], change, requirements=Requirements(version=current.number)
        )

    def _commit_checked(
        self, base: JobBase, proposal: Proposal, change: HeadChange, checks: "_Checks"
    ) -> _Ended:
        """Commit on the very Version that the work was last compared with."""
        patience = Patience(self._parts.clock, self._parts.ids, _COMMIT_SECONDS)
        # Only in level 0 a place is free whatever others do.
        proposal = replace(proposal, added=tuple(replace(file, level=0) for file in proposal.added))
        races = LostRaces(self._committer, patience, path=self._parts.paths.manifest)
        settled = base.version
        while True:  # ends: each round another committer was first, and patience does
            found = self._versions.committed_before(change)
            if found is not None:
                return _Ended(found)
            current = self._versions.snapshot_latest().version
            if checks.decided:
                self._refuse_changed(base, checks.decided, settled, current)
            proposal = rebase(proposal, settled, current, base.files)
            settled = current
            asked = self._asked(base, proposal, current, checks)
            try:
                if not (asked.added or asked.marked or asked.removed):
                    return _Ended(self._record(change, current), has_version=False)
                edit = complete(asked, current, base.files, base.making.vectors)
                committed = self._versions.apply_version_edits([edit], change)
            except Conflict as conflict:
                was_late = isinstance(conflict, CatalogConflict)
                if not (was_late or {HEAD_KEY, RESERVATION_KEY}.intersection(conflict.keys)):
                    raise
                change = races.wait(conflict, change)
            else:
                self._committer.checkpoint_once()
                return _Ended(committed)

    def _asked(
        self, base: JobBase, proposal: Proposal, current: Version, checks: "_Checks"
    ) -> Proposal:
        """Return what is asked of one Version; raises Conflict when it has rows and must not."""
        if checks.replaced is not None:
            return checks.replaced.taken_from(proposal, current)
        if not checks.is_first:
            return proposal
        if current.row_count:
            raise Conflict(
                f"version {current.number} has rows, and the job writes the first ones of a table",
                path=self._parts.paths.manifest,
                hint="Somebody else wrote meanwhile: use upsert to write more",
            )
        placed = _placed(proposal.added, current, self._levels, base.identity)
        return replace(proposal, added=placed)

    def _refuse_changed(
        self, base: JobBase, decided: Sequence[KeyArray], settled: Version, current: Version
    ) -> None:
        """Raise Conflict when a commit in between changed a row of one of the keys (J3)."""
        if settled.number == current.number:
            return
        session = self._versions.store.read()
        before = settled
        for number in range(settled.number + 1, current.number + 1):
            try:
                edit = self._versions.edit_in(session, number)
                after = base_in(self._versions, session, number)
                touched = () if edit.facts.operation in _MOVES_ROWS else _touched(edit)
                for keys in decided if touched else ():
                    if _is_changed(base, before, after, touched, keys):
                        raise _changed(number)
            except NotFound as error:
                raise _changed(number) from error
            before = after

    def _outcome(self, ended: _Ended, work: BulkWork) -> BulkOutcome:
        version = ended.committed.snapshot.version
        superseded = 0
        if version.parent is not None and ended.has_version:
            with suppress(NotFound):
                before = self._versions.version(version.parent)
                superseded = before.row_count + work.row_count - version.row_count
        return BulkOutcome(
            version=version.number,
            rows_written=work.row_count,
            rows_superseded=superseded,
            files=len(work.files),
        )

    def _repeated(self, committed: Committed) -> BulkOutcome:
        version = committed.snapshot.version.number
        self._publish(version)
        return BulkOutcome(version=version, was_already_done=True)

    def _tidy(self, run: BulkRun, version: Version) -> None:
        """Delete what tasks that were tried again have left; show other engines the commit."""
        self._release(run)
        vectors = (file.vector.path for file in version.files.values() if file.vector is not None)
        self._delete_files(run.run, kept=frozenset((*version.files, *vectors)))
        self._publish(version.number)

    def _publish(self, version: int) -> None:
        """Publish a commit; raises NotPublished."""
        if self._parts.publish is not None:
            CommitPublishing(self._parts, self._parts.publish).publish_committed(version)

    def _delete_files(self, run: RunName, *, kept: frozenset[str]) -> None:
        parts = self._parts
        root = f"{parts.paths.root}/"
        try:
            for prefix in (run.data_prefix, run.vector_prefix):
                for info in list(parts.objects.list(f"{root}{prefix}")):
                    path = info.path.removeprefix(root)
                    if path not in kept:
                        delete_data_file(parts, path)
        except NeveError as error:
            logger.warning("left files behind run=%s cause=%s", run.digits, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """What a commit compares with the Version that it commits on."""

    is_first: bool
    """There must be no rows."""
    decided: Sequence[KeyArray]
    """Rows of these keys must be as they were."""
    replaced: ReplacedPartitions | None
    """Whatever is in them goes."""


class _KeysOfWork(Sequence[KeyArray]):
    """Keys of all rows that a job writes or deletes; read out of its files when they are needed.

    `with_seen` adds those that it decided about without either.
    """

    def __init__(self, base: JobBase, work: BulkWork, *, with_seen: bool = False) -> None:
        self._base = base
        self._files = work.files
        self._others = (*work.deleted_keys, *(work.seen_keys if with_seen else ()))

    def __len__(self) -> int:
        return len(self._files) + len(self._others)

    def __iter__(self) -> Iterator[KeyArray]:
        yield from map(self._base.keys_of, self._files)
        yield from self._others

    @overload
    def __getitem__(self, place: int) -> KeyArray: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[KeyArray]: ...
    def __getitem__(self, place: int | slice) -> KeyArray | Sequence[KeyArray]:
        return list(self)[place]


def _placed(
    files: Sequence[DataFile], version: Version, levels: LevelOptions, identity: PartitionIdentity
) -> tuple[DataFile, ...]:
    """Return the files the level they belong to: the lowest one where nothing is in their way.

    Where files overlap, with each other or with older ones, level 0 takes them.
    """
    by_partition: dict[PartitionId, list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(identity.of(file), []).append(file)
    placed: dict[str, DataFile] = {}
    for partition, group in by_partition.items():
        level = levels.level_for(sum(file.file_bytes for file in group))
        group.sort(key=lambda file: file.key_min)
        low, high = group[0].key_min, max(file.key_max for file in group)
        is_taken = any(left.key_max >= right.key_min for left, right in pairwise(group)) or any(
            file.key_min <= high and low <= file.key_max and identity.of(file) == partition
            for file in version.files.values()
        )
        for file in group:
            placed[file.path] = file if is_taken else replace(file, level=level)
    return tuple(placed[file.path] for file in files)


def _touched(edit: VersionEdit) -> tuple[str, ...]:
    paths = (*edit.removed, *edit.vectors, *(file.path for file in edit.added))
    return tuple(dict.fromkeys(paths))


def _is_changed(
    base: JobBase, before: Version, after: Version, touched: Iterable[str], keys: KeyArray
) -> bool:
    """Return whether rows of some keys differ between a Version and the next."""
    lookup = base.files
    for path in touched:
        old, new = before.files.get(path), after.files.get(path)
        if old is not None and new is not None and old.vector == new.vector:
            continue
        rows = BitMap64()
        for mine, other in ((old, new), (new, old)):
            if mine is not None:
                live = lookup.positions_of(mine, keys) - lookup.vector(mine)
                hidden = lookup.vector(other) if other is not None else None
                rows |= live if hidden is None else live & hidden
        if rows:
            return True
    return False


def _changed(number: int) -> Conflict:
    return Conflict(
        f"version {number} changed rows that the job has decided about",
        hint="run the job again: it decides again by the rows that are there now",
    )
