"""BulkCommitter: one atomic commit for a job that works beside the live writer, in any process.

1. begin     announce the names of the run's files by an intent, and lease the Version to work on; a
             job that is committed already is recognized by its id or its batch
2. work      in any process: write files, and look up older rows of their keys in the leased Version
3. commit    add files and positions to the table as one Version, rebased on other commits; then
             publish the commit, and do the upkeep that is due
4. give up   withdraw the intent, unless the run was committed after all, and delete the files: now
             those that exist, and for a day by garbage collection

JOBS-J1  No lock is needed. Order is the order of commits: rows that the live writer has not flushed
         come later.
JOBS-J2  However often a job runs, under one id or as one batch of an application, it is committed
         at most once: a repetition commits nothing and gets the first run's Version.
JOBS-J3  A job that made decisions by what it read (a merge, a partial write) is void when one of
         its keys has changed since, and must run again. Files that were only rewritten do not
         count as changes.
JOBS-J4  A run that dies leaves files that no Version names. A sweep deletes them, or garbage
         collection once the intent has ended.
JOBS-J5  Upkeep comes after the commit, and its failure changes nothing about the outcome: it is
         logged, and the next commit tries again.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, overload

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from neve.compaction.plan import LevelOptions
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.publishing import CommitPublishing
from neve.errors import Conflict, NeveError, NotFound, OutcomeUnknown
from neve.jobs.maintenance import CommittedMaintenance
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity, announce
from neve.keys.columns import KeyArray
from neve.manifest.commit import CommitPlan, base_in
from neve.manifest.rebase import Proposal, complete, rebase
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import Session, TableSnapshot
from neve.model.arrow_buffers import Positions, one_batch
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionId, PartitionIdentity, partition_groups
from neve.model.version import Operation, Version, VersionEdit
from neve.sstable.deletion_vector import bitmap_of
from neve.table.file_writers import RunName, delete_data_file
from neve.table.partitions import refused_rows
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)

DEADLINE_SECONDS: Final = 12 * 60 * 60.0
_COMMIT_SECONDS: Final = 300.0
_TRIES: Final = 5
_MOVES_ROWS: Final = frozenset({Operation.REPLACE, Operation.EVOLVE})


def commit_tries(*, decided: bool) -> Iterator[suppress]:
    """Yield a block for the commit of each try of a job.

    A block that ends with Conflict goes on to the next try if the job depends on the rows it reads
    (JOBS-J3); the last try raises it.
    """
    for _ in range(_TRIES - 1 if decided else 0):
        yield suppress(Conflict)
    yield suppress()  # noqa: B022 - the last block is like the others, and raises


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRun:
    """One run of a job that has begun; any process may end it."""

    run: RunName
    base: int
    """The Version it works on."""
    lease_id: str
    identity: JobIdentity


class BulkCommitter:
    """Commits the work of jobs to one table; safe for many threads."""

    def __init__(self, parts: TableParts, *, upkeep: bool = False) -> None:
        """Begin; `upkeep` compacts and cleans up after commits, unless a live writer does."""
        self._parts = parts
        self._versions = parts.versions
        self._levels = LevelOptions()
        self._has_upkeep = upkeep
        self._committer = parts.committer(commit_seconds=_COMMIT_SECONDS)

    def find_committed(self, identity: JobIdentity) -> BulkOutcome | None:
        """Return the outcome of a job that is committed already, after publishing it."""
        found = self._versions.committed_before(identity.head_change)
        return None if found is None else self._repeated(found)

    def begin(
        self,
        identity: JobIdentity | None = None,
        *,
        base: int | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> BulkRun:
        """Announce a run and lease the Version that it works on, the newest unless given.

        Commit the run before its deadline. Raises NotFound for a base that is not retained.
        """
        known = identity or JobIdentity()
        _ = known.head_change
        parts = self._parts
        run = RunName.drawn(parts.ids)
        announce(parts, run, seconds=deadline_seconds)
        try:
            if base is None:
                lease = parts.leases.hold_newest(parts.versions, seconds=deadline_seconds)
            else:
                lease = parts.leases.hold(base, parts.versions, seconds=deadline_seconds)
        except BaseException:
            parts.writer_state.release_intent(run.digits)
            raise
        return BulkRun(run=run, base=lease.version, lease_id=lease.lease_id, identity=known)

    @contextmanager
    def working(self, run: BulkRun) -> Iterator[JobBase]:
        """Yield the Version that a run works on; a block that raises gives the run up."""
        try:
            with JobBase(self._parts, run.run, run.base) as base:
                yield base
        except BaseException:
            self.give_up(run)
            raise

    def commit(
        self,
        run: BulkRun,
        work: BulkWork,
        *,
        decided: bool = False,
        is_exact: bool = False,
        replaces: frozenset[tuple[PartitionValue, ...]] | None = None,
        is_first: bool = False,
        executor: PlanExecutor | None = None,
    ) -> BulkOutcome:
        """Commit the work of a run; raises Conflict when it is void, Fenced past its deadline.

        `decided`: the work depends on the rows it read (JOBS-J3). `is_exact`: it depends on all
        rows of the table, and any change since the base makes it void. `replaces`: partitions,
        under the spec of the base, whose other rows are removed. `is_first`: the table must have no
        other rows. Any error but OutcomeUnknown gives the run up. `executor` compacts what is too
        large for this process.
        """
        base = JobBase(self._parts, run.run, run.base)
        change = replace(run.identity.head_change, intent_id=run.run.digits)
        try:
            proposal = self._proposal(base, work, is_ordered=replaces is None)
            # What a merge function returned depends on the rows it was folded into.
            decided = decided or bool(base.schema.rules.merge and replaces is None)
            checks = None
            if is_first or decided or is_exact or replaces is not None:
                checks = _Checks(
                    is_first=is_first,
                    is_exact=is_exact,
                    decided=_KeysOfWork(base, work, with_seen=True) if decided else (),
                    replaced=None if replaces is None else ReplacedPartitions(base, replaces),
                )
            committed = self._commit(base, proposal, change, checks)
        except OutcomeUnknown:
            self._parts.leases.end(run.lease_id)
            raise
        except BaseException:
            self.give_up(run)
            raise
        finally:
            base.close()
        if committed.is_repeat:
            self.give_up(run)
            return self._repeated(committed)
        outcome = self._outcome(committed, work)
        self._tidy(run, committed.snapshot.version)
        if self._has_upkeep:
            self._keep_in_shape(base.version, executor)
        return outcome

    def check(self, run: BulkRun, work: BulkWork, *, is_exact: bool) -> None:
        """Raise Conflict if a commit of the run, as `decided` or `is_exact`, would be void now."""
        with JobBase(self._parts, run.run, run.base) as base:
            session = self._versions.store.read()
            head = self._versions.head_in(session)
            self._versions.refuse_dropped(head)
            current = self._versions.version_in(session, head.current_version)
            if is_exact:
                self._refuse_any_change(session, base.version, current)
            keys = _KeysOfWork(base, work, with_seen=True)
            self._refuse_changed(session, base, keys, base.version, current)

    def give_up(self, run: BulkRun) -> None:
        """End a run that is not committed; what cannot be deleted now is garbage for later.

        A committed run stays committed: its commit withdrew the intent. Only a run whose intent is
        withdrawn here has files that no Version names, or ever will.
        """
        self._parts.leases.end(run.lease_id)
        try:
            is_void = self._parts.writer_state.release_intent(run.run.digits)
        except NeveError as error:
            logger.warning("left files behind run=%s cause=%s", run.run.digits, error)
            return
        if is_void:
            self._delete_files(run.run, kept=frozenset())

    def _proposal(self, base: JobBase, work: BulkWork, *, is_ordered: bool) -> Proposal:
        current = self._versions.snapshot_latest().version
        return Proposal.of_rows(
            base.version,
            added=_placed(work.files, current, self._levels, base.identity),
            marked=work.marked,
            keys=_KeysOfWork(base, work),
            deletes=work.deletes,
            is_ordered=is_ordered and bool(base.schema.rules.order_by),
        )

    def _commit(
        self, base: JobBase, proposal: Proposal, change: HeadChange, checks: "_Checks | None"
    ) -> Committed:
        if checks is not None or proposal.is_empty:
            return self._commit_checked(base, proposal, change, checks or _Checks())
        try:
            return self._commit_blind(base, proposal, change)
        except Conflict:
            if not any(file.level for file in proposal.added):
                raise
        # Another committer put files of the same keys into the level; in level 0 all may overlap.
        return self._commit_blind(base, _in_level_0(proposal), change)

    def _commit_blind(self, base: JobBase, proposal: Proposal, change: HeadChange) -> Committed:
        """Commit rows that supersede the existing ones."""
        return self._committer.commit_proposal(proposal, change, lookup=base.files)

    def _commit_checked(
        self, base: JobBase, proposal: Proposal, change: HeadChange, checks: "_Checks"
    ) -> Committed:
        """Commit on exactly the Version that the work was compared with.

        A job that changes nothing is recorded without making a Version.
        """
        # Only level 0 has room whatever others commit.
        settled, rebased = base.version, _in_level_0(proposal)

        def plan(session: Session, snapshot: TableSnapshot) -> CommitPlan:
            nonlocal settled, rebased
            current = snapshot.version
            if checks.is_exact:
                self._refuse_any_change(session, settled, current)
            if checks.decided:
                self._refuse_changed(session, base, checks.decided, settled, current)
            rebased = rebase(rebased, settled, current, base.files)
            settled = current
            asked = self._asked(base, rebased, current, checks)
            if asked.is_empty:
                return CommitPlan()
            return CommitPlan(
                edits=[complete(asked, current, base.files, base.files.writers.vectors)]
            )

        return self._committer.commit(plan, change)

    def _asked(
        self, base: JobBase, proposal: Proposal, current: Version, checks: "_Checks"
    ) -> Proposal:
        """Return the proposal for one Version; raises Conflict when it has rows and must not."""
        if not proposal.added and proposal.marked:
            # Others wrote rows with its keys in the meantime.
            facts = replace(proposal.facts, operation=Operation.DELETE)
            proposal = replace(proposal, facts=facts)
        if checks.replaced is not None:
            return checks.replaced.taken_from(proposal, current)
        if not checks.is_first:
            return proposal
        if current.row_count:
            raise Conflict(
                f"version {current.number} has rows already, and the job needs an empty table",
                path=self._parts.paths.manifest,
                hint="Use upsert to add rows to what another job or writer wrote",
            )
        placed = _placed(proposal.added, current, self._levels, base.identity)
        return replace(proposal, added=placed)

    def _refuse_changed(
        self,
        session: Session,
        base: JobBase,
        decided: Sequence[KeyArray],
        settled: Version,
        current: Version,
    ) -> None:
        """Raise Conflict when a commit in between changed a row of one of the keys (JOBS-J3)."""
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

    def _refuse_any_change(self, session: Session, settled: Version, current: Version) -> None:
        """Raise Conflict when a commit in between changed any row."""
        for number in range(settled.number + 1, current.number + 1):
            try:
                operation = self._versions.edit_in(session, number).facts.operation
            except NotFound as error:
                raise _changed(number) from error
            if operation not in _MOVES_ROWS:
                raise _changed(number)

    def _outcome(self, committed: Committed, work: BulkWork) -> BulkOutcome:
        version = committed.snapshot.version
        superseded = 0
        if version.parent is not None and committed.has_version:
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
        """Delete what repeated tasks left, and publish the commit."""
        self._parts.leases.end(run.lease_id)
        vectors = (file.vector.path for file in version.files.values() if file.vector is not None)
        self._delete_files(run.run, kept=frozenset((*version.files, *version.deletes, *vectors)))
        self._publish(version.number)

    def _keep_in_shape(self, base: Version, executor: PlanExecutor | None) -> None:
        """Do the upkeep that is due after a commit (JOBS-J5)."""
        try:
            CommittedMaintenance(self._parts).keep_in_shape(since=base, executor=executor)
        except Exception as error:  # noqa: BLE001 - of Spark, Arrow or storage: the commit stands
            table_id = self._parts.paths.table_id
            logger.warning("upkeep failed table=%s cause=%s", table_id, error)
            if isinstance(error, NeveError):
                self._parts.failed("upkeep", error)

    def _publish(self, version: int) -> None:
        """Publish a commit; raises NotPublished."""
        CommitPublishing(self._parts).publish_committed(version)

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


class ReplacedPartitions:
    """The partitions, under the spec of a job's base, that a commit replaces; for one thread.

        files of the spec, in one of the partitions     removed
        files of other specs                            their rows of the partitions are marked
        rows of the new keys in other partitions        marked, as in any write

    The files are chosen on the Version that the commit follows.
    """

    def __init__(self, base: JobBase, partitions: Iterable[tuple[PartitionValue, ...]]) -> None:
        self._base = base
        self._partitions = frozenset(
            base.identity.of_values(base.spec.spec_id, each) for each in partitions
        )

    def taken_from(self, proposal: Proposal, current: Version) -> Proposal:
        """Return a proposal that also removes the rows of the partitions in a Version."""
        removed: list[str] = []
        marked = dict(proposal.marked)
        for path, file in current.files.items():
            if self._base.identity.of(file) in self._partitions:
                removed.append(path)
                marked.pop(path, None)
                continue
            rows = self._rows_inside(file)
            if rows:
                marked[path] = marked.get(path, BitMap64()) | rows
        is_change = bool(removed or marked)
        operation = Operation.OVERWRITE if is_change else proposal.facts.operation
        return replace(
            proposal,
            facts=replace(proposal.facts, operation=operation),
            removed=tuple(removed),
            marked=marked,
        )

    def _rows_inside(self, file: DataFile) -> BitMap64:
        """Find rows of the partitions in a file of another spec."""
        base = self._base
        found = BitMap64()
        if file.spec_id == base.spec.spec_id or not self._partitions:
            return found
        if base.spec.is_unpartitioned:
            return BitMap64(range(file.row_count))
        names = [base.schema.column_by_id(each.source_id).name for each in base.spec.fields]
        mapping = base.context.mapping_from(file.schema_id)
        reader = base.files.reader(file)
        start = 0
        for stop in reader.group_starts[1:]:
            rows = reader.read(mapping.source_names(names), start=start, stop=stop)
            for positions in self._places_inside(mapping.table(rows, names)):
                found |= bitmap_of(np.sort(positions) + start)
            start = stop
        return found

    def _places_inside(self, rows: pa.Table) -> Iterator[Positions]:
        """Find the rows of each of the partitions; other rows may have no partition."""
        base = self._base
        batch = one_batch(rows)
        refused = refused_rows(batch, base.spec, base.schema)
        placed = np.setdiff1d(np.arange(batch.num_rows), refused)
        if not len(placed):
            return
        chosen = batch.take(placed) if len(refused) else batch
        for group in partition_groups(base.spec, base.spec.values(chosen, base.schema)):
            if base.identity.of_values(base.spec.spec_id, group.values) in self._partitions:
                yield placed[group.positions]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checks:
    """What a commit compares with the Version that it commits on."""

    is_first: bool = False
    """The table must be empty."""
    is_exact: bool = False
    """No row may have changed."""
    decided: Sequence[KeyArray] = ()
    """Rows of these keys must be unchanged."""
    replaced: ReplacedPartitions | None = None
    """Their rows are removed."""


class _KeysOfWork(Sequence[KeyArray]):
    """Keys of all rows that a job writes or deletes; read from its files when needed.

    `with_seen` adds the keys that it left alone.
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
    """Return the files in the lowest level where they overlap no other file.

    Files that overlap each other or older ones go to level 0.
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


def _in_level_0(proposal: Proposal) -> Proposal:
    return replace(proposal, added=tuple(replace(file, level=0) for file in proposal.added))


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
        f"version {number} changed rows that the job's decisions depend on",
        hint="Run the job again: it decides by the rows that the table has now",
    )
