"""Maintenance of a table: compact, expire, clean up, verify, roll back.

    LiveMaintenance        through the live writer of this process: its flushes and compactions wait
                           while files are swept, and unflushed rows are flushed first
    CommittedMaintenance   beside any writer, from any process: it has no log and no memtables, and
                           works on the committed Versions

Each call works in the calling thread, on the newest state, and leaves the table readable and
writable. On a full disk, work that frees space uses the space that the log has reserved.

    compact    plan ──► executor ──► one commit ──► plan again
               a plan whose inputs others changed is void, and is made again
               before, rows that have expired are removed (`neve.engine.row_expiry`)

    after each commit of a job, for tables that no live writer has open:
               compact what is due; from time to time expire and collect, as retention says

JOBS-K1  A job announces its files before it writes the first one, and its commit withdraws the
         announcement: no collector deletes files that are about to be committed.
JOBS-K2  The Version that is rewritten or read is leased, and the lease renewed, until the end.
JOBS-K3  Files that were never announced may be a live writer's flush: they are swept only while no
         writer can make any, because it waits or because its lock is held.
JOBS-K4  Rows that have expired are removed by the live writer, or while its lock is held and the
         log was read: both know the rows that unflushed partial writes need (ENGINE-X1).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from threading import Lock
from typing import Final, TypeAlias, TypeVar

from neve.compaction.plan import CompactionPlan, CompactionReason, jobs_of
from neve.compaction.policy import full_plan, move_plan, pick_all
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.background import BackgroundWork
from neve.engine.publishing import CommitPublishing
from neve.engine.rewrite import Execution, Rewrite, note_compacted, tidy_deletes
from neve.engine.row_expiry import RowExpiry, note_removed, partial_keys
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import (
    DeletePaths,
    ExpireReport,
    GarbageReport,
    Upkeep,
    remove_old_epochs,
    retained,
)
from neve.engine.verification import (
    FurtherCheck,
    RunChecks,
    VerifiedTable,
    VerifyReport,
    refuse_problems,
    verify_table,
)
from neve.errors import Corruption, Fenced, InvalidArgument, NeveError, NotPublished, StorageFull
from neve.jobs.run import JobBase, announce
from neve.keys.columns import KeyArray
from neve.manifest.commit import CommitPlan
from neve.manifest.retry import Patience
from neve.manifest.table_head import HeadChange
from neve.manifest.version_reader import Session, TableSnapshot
from neve.model.data_file import DataFile
from neve.model.partition_spec import PartitionIdentity
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.observability.events import Progress, ignore
from neve.storage.file_cache import origin_of
from neve.table.file_writers import RunName
from neve.table.table_context import TableParts
from neve.table.table_files import TableFiles

logger = logging.getLogger(__name__)

_ANNOUNCED_SECONDS: Final = 24 * 60 * 60.0
_VOID_SECONDS_MAX: Final = 600.0
_RENEWALS_PER_LEASE: Final = 6
_REMOTE_BYTES: Final = 128 << 20
"""From this size on, the workers of a cluster make up for the start of a job on it."""
_GROWING: Final = frozenset({CompactionReason.SIZE, CompactionReason.GARBAGE})
_TEND_VERSIONS: Final = 32
_TEND_MS: Final = 60 * 60 * 1000

Done = TypeVar("Done")
MakePlans: TypeAlias = Callable[[Version, PartitionIdentity], Sequence[CompactionPlan]]
RunRebuilds: TypeAlias = Callable[
    [JobBase, Sequence[DataFile], Callable[[int], None]], Sequence[str]
]
"""Rebuilds unusable index files; reports how many files are done, returns their paths."""


class Maintenance(ABC):
    """Long-running work on one table; subclasses keep it clear of the live writer."""

    def __init__(self, parts: TableParts, options: TableOptions) -> None:
        self._parts = parts
        self._options = options

    def compact(
        self,
        *,
        full: bool = False,
        executor: str | PlanExecutor = "local",
        progress: Progress | None = None,
    ) -> int:
        """Rewrite files until no level needs it; return the current Version's number.

        `full` rewrites everything into the lowest level, under the current partition spec.
        `executor` is "local" or an object that executes plans elsewhere. Progress counts rows.
        Raises Unavailable when others changed the inputs of every plan for ten minutes.
        """
        if executor != "local" and not hasattr(executor, "execute"):
            raise InvalidArgument(
                f"executor={executor!r} is not known", hint='Pass "local" or a plan executor'
            )
        _check_progress(progress)
        remote = None if isinstance(executor, str) else executor
        self._begin()
        self._remove_expired()
        done = 0
        counting = Lock()

        def count(rows: int) -> None:
            nonlocal done
            with counting:
                done += rows
                if progress is not None:
                    known = self._parts.versions.snapshot_known().version.row_count
                    progress(done, max(done, known))

        def run(make_plans: MakePlans) -> bool:
            return self._run_until_committed(make_plans, remote, count)

        if full:
            with self._compacting():
                self._rewrite_all(run)
        is_more = True
        while is_more:
            with self._compacting():
                is_more = run(self._merges)
        self._tidy_deletes()
        return self._newest().number

    def _rewrite_all(self, run: Callable[[MakePlans], bool]) -> None:
        levels, at_once = self._options.level_options, self._options.plans_moved_at_once
        there = self._newest().files.keys()

        def moves(version: Version, identity: PartitionIdentity) -> Sequence[CompactionPlan]:
            return move_plan(version, levels, identity=identity, wanted=there)[:at_once]

        # A few at a time, with merges in between: otherwise level 0 would hold writers back.
        while run(moves):
            while run(self._merges):
                pass
        wanted = self._newest().files.keys()
        # Again for plans that others made void: each round leaves fewer of these files.
        while run(
            lambda version, identity: full_plan(version, levels, identity=identity, wanted=wanted)
        ):
            pass

    def _merges(self, version: Version, identity: PartitionIdentity) -> Sequence[CompactionPlan]:
        return pick_all(version, self._options.level_options, identity=identity)

    def _run_until_committed(
        self, make_plans: MakePlans, executor: PlanExecutor | None, count: Callable[[int], None]
    ) -> bool:
        """Plan and execute until something is committed; False when no plan is needed."""
        patience = Patience(self._parts.clock, self._parts.ids, _VOID_SECONDS_MAX)
        while (outcome := self._run_plans(make_plans, executor, count)) is False:
            patience.pause(
                "others kept changing the files that were compacted",
                path=self._parts.paths.manifest,
            )
        return outcome is True

    def expire(
        self, *, keep_last: int | None = None, older_than_ms: int | None = None
    ) -> ExpireReport:
        """Remove old Versions from the history; `collect_garbage` deletes their files.

        Rows that have expired are removed first, so that their files can go too. Arguments replace
        the table's retention; with both, a Version stays if either keeps it.
        """
        asked = retained(keep_last=keep_last, older_than_ms=older_than_ms)
        # It needs a little space, and the rest frees some.
        with suppress(StorageFull):
            self._remove_expired()
        self._release_unread()
        return self._with_room(lambda: self._upkeep().expire(**asked))

    def collect_garbage(
        self, *, dry_run: bool = True, delete_paths: DeletePaths | None = None
    ) -> GarbageReport:
        """Delete files that no reader can reach; a dry run lists them.

        `delete_paths` deletes many files at once elsewhere. Files that were never announced stay
        while a live writer of another process has the table open (JOBS-K3).
        """
        upkeep = self._upkeep(delete_paths)
        if dry_run:
            return upkeep.preview()
        self._make_room()
        self._release_unread()
        collected = self._with_room(upkeep.collect)
        self._parts.versions.store.collect_once()
        with self._alone() as is_alone:
            if not is_alone:
                return collected
            swept = self._with_room(lambda: upkeep.sweep(dry_run=False, epoch=self._epoch()))
        return GarbageReport(
            paths=(*collected.paths, *swept.paths),
            byte_count=collected.byte_count + swept.byte_count,
            is_dry_run=False,
        )

    @abstractmethod
    def verify(
        self, *, progress: Progress | None = None, further: Sequence[FurtherCheck] = ()
    ) -> VerifyReport:
        """Read everything; raises Corruption, with the report attached, when something is wrong."""

    # How the work keeps clear of the live writer

    @abstractmethod
    def _begin(self) -> None:
        """Commit rows that should be compacted."""

    @abstractmethod
    def _remove_expired(self) -> bool:
        """Commit the removal of all rows that have expired by now; return whether there were."""

    def _compacting(self) -> AbstractContextManager[None]:
        """Keep other compactions of this process out."""
        return nullcontext()

    @abstractmethod
    def _tidy_deletes(self) -> None:
        """Forget deletes that are old enough, and join files of remembered ones."""

    @abstractmethod
    def _release_unread(self) -> None:
        """Release Versions that no one reads."""

    @abstractmethod
    def _make_room(self) -> None:
        """Delete what can be deleted without writing: the rest may need the space."""

    def _with_room(self, work: Callable[[], Done]) -> Done:
        """Do work that frees space, even on a full disk."""
        return work()

    @abstractmethod
    def _newest(self) -> Version:
        """Return the newest Version."""

    @abstractmethod
    def _run_plans(
        self, make_plans: MakePlans, executor: PlanExecutor | None, count: Callable[[int], None]
    ) -> bool | None:
        """Plan and execute once; None when no plan is needed, False when all plans were void."""

    @abstractmethod
    def _upkeep(self, delete_paths: DeletePaths | None = None) -> Upkeep:
        """Return the object that expires Versions and deletes files."""

    @abstractmethod
    def _alone(self) -> AbstractContextManager[bool]:
        """Keep the live writer from making files (JOBS-K3); False when that is not possible."""

    def _epoch(self) -> int | None:
        """Return the epoch of the live writer that does the work; None beside one."""
        return None


class LiveMaintenance(Maintenance):
    """Maintenance through the live writer; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        super().__init__(engine.parts, engine.options)
        self._engine = engine

    def flush(self) -> int:
        """Commit everything written so far; return the current Version's number."""
        writer = self._engine.writer
        shown = self._engine.current.view.version
        if writer.flush() == shown:
            # Nothing was committed, which would have shown the commits of others too.
            writer.refresh()
        return self._engine.current.view.version

    def publish_expired(self, version: int) -> bool:
        """Publish what is left after `expire`; False when the disk has no space for it.

        Raises NotPublished when it fails for another reason.
        """
        try:
            self._with_room(lambda: self._engine.publish_committed(version))
        except NotPublished as error:
            if not _wants_space(error):
                raise
            return False
        return True

    def rollback(self, version: int) -> int:
        """Make an old Version the current one again, after flushing; return the new number."""
        parts, writer = self._parts, self._engine.writer

        def plan(session: Session, snapshot: TableSnapshot) -> CommitPlan:
            wanted = parts.versions.version_in(session, version)
            # Its files come back with the data sequence numbers they had.
            files = {file.path: file for file in parts.sequenced(tuple(wanted.files.values()))}
            edit = rollback_edit(snapshot.version, replace(wanted, files=files))
            return CommitPlan(edits=[edit])

        change = HeadChange(writer_epoch=writer.epoch, restored_version=version)
        writer.flush()
        with writer.alone():
            committed = writer.committer.commit(plan, change)
            writer.install(committed, is_own=False)
        return committed.snapshot.version.number

    def verify(
        self, *, progress: Progress | None = None, further: Sequence[FurtherCheck] = ()
    ) -> VerifyReport:
        """Read everything; raises Corruption, with the report attached, when something is wrong."""
        engine = self._engine
        with engine.pinned_view() as (view, _):
            table = VerifiedTable(files=engine.files, version=view.files.version)
            return _verify(table, progress, further)

    def _begin(self) -> None:
        self.flush()

    def _remove_expired(self) -> bool:
        before = self._newest().number
        while self._engine.writer.remove_expired_once():
            pass
        return self._newest().number > before

    def _compacting(self) -> AbstractContextManager[None]:
        return self._engine.writer.compacting()

    def _newest(self) -> Version:
        return self._engine.current.view.files.version

    def _tidy_deletes(self) -> None:
        self._engine.writer.tidy_deletes()

    def _run_plans(
        self, make_plans: MakePlans, executor: PlanExecutor | None, count: Callable[[int], None]
    ) -> bool | None:
        version, identity = self._newest(), self._engine.files.definitions.partition_identity()
        plans = make_plans(version, identity)
        if not plans:
            return None
        return self._engine.writer.run_plans(plans, version, count, executor=executor)

    def _upkeep(self, delete_paths: DeletePaths | None = None) -> Upkeep:
        _ = self._engine.writer  # a handle that only reads has no upkeep
        if delete_paths is None:
            return self._engine.upkeep
        return Upkeep(self._parts, delete_paths=delete_paths)

    def _make_room(self) -> None:
        writer = self._engine.writer
        writer.drop_spare_logs()
        remove_old_epochs(self._parts, below=writer.epoch)

    def _release_unread(self) -> None:
        self._with_room(self._engine.writer.refresh)
        self._engine.leases.release_unread(before=self._newest().number)

    def _with_room(self, work: Callable[[], Done]) -> Done:
        """Do work that frees space; on a full disk the log's reserve makes room for it."""
        try:
            return work()
        except (StorageFull, NotPublished) as error:
            if not _wants_space(error):
                raise
        self._engine.writer.give_back_space()
        return work()

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        with self._engine.writer.alone():
            yield True

    def _epoch(self) -> int | None:
        return self._engine.writer.epoch


class CommittedMaintenance(Maintenance):
    """Maintenance of the committed Versions, beside the live writer; for one thread."""

    def __init__(self, parts: TableParts, options: TableOptions | None = None) -> None:
        super().__init__(parts, options or TableOptions())
        self._committer = parts.committer()

    def keep_in_shape(self, *, since: Version, executor: PlanExecutor | None = None) -> None:
        """Do what a live writer does in the background, after a job that began on a Version.

        Compacts while enough is due: many bytes with the `executor`, otherwise here. Expires
        Versions and deletes their files once in 32 Versions, and after a commit that came an hour
        after its base. Does nothing while there is a live writer, and stops when others compact the
        same files.
        """
        is_compacted = False
        plans = self._due_plans()
        # Limited, because others may commit all the time: what they add is theirs to compact.
        for _ in range(len(plans) + self._options.level_options.levels_max):
            if not plans or self._has_live_writer():
                break
            is_large = sum(plan.input_bytes for plan in plans) >= _REMOTE_BYTES
            if executor is not None and is_large:
                outcome = self._run_plans(self._merges, executor, ignore)
            else:
                outcome = self._run_plans(self._first_merges, None, ignore)
            if not outcome:
                break
            is_compacted = True
            plans = self._due_plans()
        if is_compacted:
            CommitPublishing(self._parts).try_publish()
        if self._is_tending_due(since) and not self._has_live_writer():
            if self._remove_expired():
                CommitPublishing(self._parts).try_publish()
            self._upkeep().tend_once()

    def _due_plans(self) -> Sequence[CompactionPlan]:
        """Return the plans for the newest known Version; none while a few small files can wait.

        A job waits for its upkeep, so each rewrite should do away with many files.
        """
        version, options = self._parts.versions.snapshot_known().version, self._options
        plans = self._merges(version, self._parts.definitions.partition_identity())
        is_many = sum(len(plan.inputs) for plan in plans) >= options.level0_files_slow
        is_large = any(
            plan.reason in _GROWING and plan.input_bytes >= options.file_bytes for plan in plans
        )
        return plans if is_many or is_large else ()

    def _first_merges(
        self, version: Version, identity: PartitionIdentity
    ) -> Sequence[CompactionPlan]:
        """Return the plans of one commit: a process that dies loses no more than these."""
        jobs = jobs_of(self._merges(version, identity))
        return jobs[0] if jobs else []

    def _is_tending_due(self, since: Version) -> bool:
        current = self._parts.versions.snapshot_known().version
        return (
            since.number // _TEND_VERSIONS < current.number // _TEND_VERSIONS
            or since.facts.timestamp_ms + _TEND_MS <= current.facts.timestamp_ms
        )

    def verify(
        self,
        *,
        progress: Progress | None = None,
        further: Sequence[FurtherCheck] = (),
        run_checks: Callable[[JobBase], RunChecks] | None = None,
    ) -> VerifyReport:
        """Read everything; raises Corruption, with the report attached, when something is wrong.

        `run_checks` runs the checks of files elsewhere.
        """
        with self._base() as base:
            table = VerifiedTable(files=base.files, version=base.version)
            checks = None if run_checks is None else run_checks(base)
            return _verify(table, progress, further, run_checks=checks)

    def rebuild_indexes(
        self, *, run: RunRebuilds | None = None, progress: Progress | None = None
    ) -> tuple[str, ...]:
        """Rebuild missing and damaged index files; return the paths of their data files.

        Raises Corruption when a data file itself cannot be read.
        """
        with self._base() as base:
            files = list(base.version.files.values())
            done = 0

            def report(count: int) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(done, len(files))

            return tuple((run or rebuild_here)(base, files, report))

    def _begin(self) -> None:
        """Flush nothing: all rows are committed."""

    def _remove_expired(self) -> bool:
        parts = self._parts
        schema_id = parts.versions.snapshot_latest().head.schema_id
        if parts.definitions.schema(schema_id).rules.ttl is None:
            return False
        with self._alone() as is_alone:
            if not is_alone:
                return False
            now_ms = parts.clock.now_ms()
            try:
                kept = self._logged_partial_keys()
            except Corruption as error:
                logger.warning("left expired rows table=%s cause=%s", parts.paths.table_id, error)
                return False
            with self._base() as base, self._announced(base.run) as intent_id:
                removed = RowExpiry(base.files, self._committer).remove(
                    now_ms, kept=kept, change=HeadChange(intent_id=intent_id)
                )
        note_removed(parts, removed)
        return not removed.committed.is_repeat

    def _logged_partial_keys(self) -> list[KeyArray]:
        """Return the keys of partial writes that are only in the log."""
        reader = TableEngine(self._parts, self._options, read_only=True)
        try:
            return partial_keys(reader.current.view.memtables)
        finally:
            reader.close()

    def _tidy_deletes(self) -> None:
        if not self._newest().deletes:
            return
        with self._base() as base, self._announced(base.run) as intent_id:
            tidy_deletes(base.files, self._committer, HeadChange(intent_id=intent_id))

    def _release_unread(self) -> None:
        """Do nothing: no Version is held between two calls."""

    def _make_room(self) -> None:
        """Leave the logs to the live writer."""

    def _newest(self) -> Version:
        return self._parts.versions.snapshot_latest().version

    def _run_plans(
        self, make_plans: MakePlans, executor: PlanExecutor | None, count: Callable[[int], None]
    ) -> bool | None:
        with self._base() as base:
            plans = make_plans(base.version, base.identity)
            if not plans:
                return None
            rewrite = Rewrite(
                base.files,
                self._committer,
                run=base.run,
                task_rows=self._options.compaction_task_rows,
            )
            execution = Execution(executor=executor, progress=count, check_cancelled=ignore)
            with self._announced(base.run) as intent_id:
                rewritten = rewrite.run(
                    plans,
                    base.context,
                    base.version.facts,
                    execution,
                    HeadChange(intent_id=intent_id),
                )
            if rewritten is None:
                return False
            if len(rewritten.plans) < len(plans):
                self._abandon(base.run)
        note_compacted(self._parts, rewritten)
        return True

    def _upkeep(self, delete_paths: DeletePaths | None = None) -> Upkeep:
        return Upkeep(self._parts, delete_paths=delete_paths)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        if not self._parts.has_locks:
            # Nothing says whether there is a live writer: the next one sweeps when it begins.
            yield False
            return
        try:
            lock = self._parts.logs.lock(self._parts.paths.lock)
        except Fenced:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _has_live_writer(self) -> bool:
        if not self._parts.has_locks:
            # A table that only jobs have written has no writer that would compact it.
            return self._parts.versions.head().writer_epoch > 0
        with self._alone() as is_alone:
            return not is_alone

    @contextmanager
    def _base(self) -> Iterator[JobBase]:
        """Return the newest Version to work on, leased until the end (JOBS-K2)."""
        parts, options = self._parts, self._options
        with parts.leases.leased_newest(parts.versions, seconds=options.lease_seconds) as lease:
            renewing = BackgroundWork(
                f"neve-lease-{parts.paths.table_id}",
                [lease.renew_if_due],
                idle_seconds=options.lease_seconds / _RENEWALS_PER_LEASE,
            )
            renewing.start()
            try:
                run = RunName.drawn(parts.ids)
                with JobBase(parts, run, lease.version, file_bytes=options.file_bytes) as base:
                    yield base
            finally:
                renewing.close()

    @contextmanager
    def _announced(self, run: RunName) -> Iterator[str]:
        """Announce the files of a run (JOBS-K1); yield the intent, which ends with the commit."""
        try:
            announce(self._parts, run, seconds=_ANNOUNCED_SECONDS)
            yield run.digits
        finally:
            # A commit has ended it already; the collector finds files that were not committed.
            with suppress(NeveError):
                self._parts.writer_state.release_intent(run.digits)

    def _abandon(self, run: RunName) -> None:
        """Announce the files of void plans for the collector: a commit ended their intent."""
        with suppress(NeveError), self._announced(run):
            pass


def rollback_edit(current: Version, wanted: Version) -> VersionEdit:
    """Return the edit from the current Version to the files and vectors of another.

    Files that the other Version lacks are removed, its own come back, and files of both get their
    old vector. A file that had no vector then is removed and added in one step.
    """
    changed = [
        path
        for path, file in current.files.items()
        if path not in wanted.files or wanted.files[path].vector != file.vector
    ]
    gone = set(changed)
    added = tuple(
        file for path, file in wanted.files.items() if path not in current.files or path in gone
    )
    return VersionEdit(
        base=current.number,
        facts=VersionFacts(
            operation=Operation.ROLLBACK,
            timestamp_ms=0,  # the commit sets it
            schema_id=current.facts.schema_id,
            spec_id=current.facts.spec_id,
            summary={"restored-version": str(wanted.number)},
        ),
        added=added,
        removed=tuple(changed),
        deletes_added=tuple(
            file for path, file in wanted.deletes.items() if path not in current.deletes
        ),
        deletes_removed=tuple(path for path in current.deletes if path not in wanted.deletes),
    )


def rebuild_here(
    base: JobBase, files: Sequence[DataFile], report: Callable[[int], None]
) -> list[str]:
    """Rebuild the unusable index files of data files; return the paths of those data files."""
    rebuilt = []
    for file in files:
        rebuilt += base.files.rebuild_indexes([file])
        report(1)
    return rebuilt


def _verify(
    table: VerifiedTable,
    progress: Progress | None,
    further: Sequence[FurtherCheck],
    *,
    run_checks: RunChecks | None = None,
) -> VerifyReport:
    _check_progress(progress)
    table = replace(table, files=_of_origin(table.files, table.version))
    report = verify_table(table, progress or ignore, run_checks=run_checks, further=further)
    return refuse_problems(report)


def _of_origin(files: TableFiles, version: Version) -> TableFiles:
    """Return the files as storage has them, not as a cache of it does."""
    origin = origin_of(files.parts.objects)
    if origin is files.parts.objects:
        return files
    return TableFiles(replace(files.parts, objects=origin), version.facts.schema_id)


def _wants_space(error: NeveError) -> bool:
    """Return whether an error, or the error that caused it, says that the disk is full."""
    return isinstance(error, StorageFull) or isinstance(error.__cause__, StorageFull)


def _check_progress(progress: object) -> None:
    if progress is not None and not callable(progress):
        raise InvalidArgument(
            f"progress={progress!r} cannot be called",
            hint="Pass a function of two numbers: the amount done and the total",
        )
