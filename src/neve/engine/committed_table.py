"""CommittedMaintenance: maintenance of a table by somebody who is not its live writer.

A job has no log and no memtables: it works on what is committed, beside whoever writes the table,
and commits through the manifest as everybody does. Each call reads the newest state first.

    compact    plan ──► files announced ──► executor ──► one commit ──► plan again
               a plan whose inputs others changed meanwhile is void, and made again
    expire, verify, rebuild_indexes         as for the live writer
    collect_garbage                         as for the live writer, but for files that nobody ever
                                            announced: these may be a flush of a live writer, so
                                            they are deleted only while the job holds its lock

K1  A job's files are announced before the first one is written, and withdrawn with their commit:
    no collector deletes what is about to be committed.
K2  The Version that is rewritten or read is leased, and the lease renewed, until the end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeAlias

from neve.compaction.plan import CompactionPlan
from neve.compaction.policy import full_plan, move_plan, pick_all
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.background import BackgroundWork
from neve.engine.lease_book import LeaseBook
from neve.engine.rewrite import Execution, Rewrite, note_compacted
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import DeletePaths, ExpireReport, GarbageReport, Upkeep, retained
from neve.engine.verification import (
    FurtherCheck,
    RunChecks,
    VerifiedTable,
    VerifyReport,
    refuse_problems,
    verify_table,
)
from neve.errors import Fenced, NeveError, NotFound
from neve.jobs.run import JobBase, RunName
from neve.manifest.commit import TableCommitter
from neve.manifest.retry import Patience
from neve.manifest.table_head import HeadChange
from neve.manifest.writer_state import Intent
from neve.model.data_file import DataFile
from neve.sstable.index_rebuild import IndexFiles
from neve.table.table_parts import TableParts, append_files_of

_ANNOUNCED_MS: Final = 24 * 60 * 60 * 1000
_VOID_SECONDS_MAX: Final = 600.0
_RENEWALS_PER_LEASE: Final = 6

Progress: TypeAlias = Callable[[int, int], None]
"""Told how much of how much is done; of what, the call says."""
MakePlans: TypeAlias = Callable[[JobBase], Sequence[CompactionPlan]]
RunRebuilds: TypeAlias = Callable[
    [JobBase, Sequence[DataFile], Callable[[int], None]], Sequence[str]
]
"""Makes index files again that are of no use; is told how many files are done, gives their paths.
"""


class CommittedMaintenance:
    """Maintenance of what is committed; for one thread."""

    def __init__(self, parts: TableParts, options: TableOptions | None = None) -> None:
        self._parts = parts
        self._options = options or TableOptions()
        self._committer = TableCommitter(
            parts.versions, parts.work, clock=parts.clock, ids=parts.ids
        )
        self._leases = LeaseBook(
            parts.leases,
            parts.versions,
            seconds=self._options.lease_seconds,
            may_write=True,
        )

    # Compaction

    def compact(
        self,
        *,
        full: bool = False,
        executor: PlanExecutor | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Rewrite until no level asks for more; gives the current Version's number.

        `full` rewrites everything that is there, under the current partition spec. Progress counts
        rows. Raises Unavailable when others kept changing the inputs of every plan for ten minutes.
        """
        levels = self._options.level_options
        done = 0

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            if progress is not None:
                known = self._parts.versions.snapshot_known().version.row_count
                progress(done, max(done, known))

        def merge() -> None:
            while self._run_some(
                lambda base: pick_all(base.version, levels, identity=base.identity), executor, count
            ):
                pass

        if full:
            there = self._parts.versions.snapshot_latest().version.files.keys()
            # A few at a time, and merged in between: otherwise level 0 would hold writers back.
            while self._run_some(
                lambda base: move_plan(base.version, levels, identity=base.identity, wanted=there)[
                    : self._options.plans_moved_at_once
                ],
                executor,
                count,
            ):
                merge()
            wanted = self._parts.versions.snapshot_latest().version.files.keys()
            # Again for plans that others made void: each time fewer of these files are left.
            while self._run_some(
                lambda base: full_plan(base.version, levels, identity=base.identity, wanted=wanted),
                executor,
                count,
            ):
                pass
        merge()
        return self._parts.versions.head().current_version

    def _run_some(
        self,
        make_plans: MakePlans,
        executor: PlanExecutor | None,
        count: Callable[[int], None],
    ) -> bool:
        """Plan and execute until something is committed; False when nothing is asked for."""
        patience = Patience(self._parts.clock, self._parts.ids, _VOID_SECONDS_MAX)
        while (outcome := self._run_plans(make_plans, executor, count)) is False:
            patience.pause(
                "others kept changing the files that were compacted",
                path=self._parts.paths.manifest,
            )
        return outcome is True

    def _run_plans(
        self,
        make_plans: MakePlans,
        executor: PlanExecutor | None,
        count: Callable[[int], None],
    ) -> bool | None:
        """Plan and execute once; None when nothing is asked for, False when all plans were void."""
        with self._base(RunName.drawn(self._parts.ids)) as base:
            plans = make_plans(base)
            if not plans:
                return None
            rewrite = Rewrite(
                base.parts,
                base.making,
                base.files,
                base.definitions,
                self._committer,
                run=base.run,
                task_rows=self._options.compaction_task_rows,
            )
            execution = Execution(executor=executor, progress=count, check_cancelled=_go_on)
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

    @contextmanager
    def _announced(self, run: RunName) -> Iterator[str]:
        """Announce the files of a run (K1); gives the intent, which ends with the commit."""
        deadline_ms = self._parts.clock.now_ms() + _ANNOUNCED_MS
        work = self._parts.work
        try:
            work.register_intent(
                Intent(job_id=run.digits, prefixes=run.prefixes, deadline_ms=deadline_ms)
            )
            yield run.digits
        finally:
            # A commit has ended it; what was not committed is looked for later.
            with suppress(NeveError):
                work.release_intent(run.digits)

    def _abandon(self, run: RunName) -> None:
        """Have the files of void plans looked for: the commit of the others ended the intent."""
        with suppress(NeveError), self._announced(run):
            pass

    # History and garbage

    def expire(
        self, *, keep_last: int | None = None, older_than_ms: int | None = None
    ) -> ExpireReport:
        """Let old Versions go; their files are deleted by `collect_garbage`."""
        asked = retained(keep_last=keep_last, older_than_ms=older_than_ms)
        return Upkeep(self._parts).expire(**asked)

    def collect_garbage(
        self, *, dry_run: bool = True, delete_paths: DeletePaths | None = None
    ) -> GarbageReport:
        """Delete files that nobody reaches; a dry run says which.

        Files that nobody announced are left to a live writer, if there is one.
        """
        upkeep = Upkeep(self._parts, delete_paths=delete_paths)
        if dry_run:
            return upkeep.preview()
        collected = upkeep.collect()
        with self._without_writer() as is_alone:
            if not is_alone:
                return collected
            swept = upkeep.sweep(dry_run=False)
        return GarbageReport(
            paths=(*collected.paths, *swept.paths),
            byte_count=collected.byte_count + swept.byte_count,
            is_dry_run=False,
        )

    @contextmanager
    def _without_writer(self) -> Iterator[bool]:
        """Keep a live writer from beginning; False when there is one."""
        append_files = append_files_of(self._parts.objects)
        if append_files is None:
            # Where nobody can log, nobody writes without announcing.
            yield True
            return
        try:
            lock = append_files.lock(self._parts.paths.lock)
        except Fenced:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    # Soundness

    def verify(
        self,
        *,
        run_checks: Callable[[JobBase], RunChecks] | None = None,
        progress: Progress | None,
        further: Sequence[FurtherCheck] = (),
    ) -> VerifyReport:
        """Read everything; raises Corruption, with the report attached, when something is wrong."""
        with self._base(RunName.drawn(self._parts.ids)) as base:
            table = VerifiedTable(
                parts=base.parts,
                files=base.files,
                definitions=base.definitions,
                version=base.version,
            )
            report = verify_table(
                table,
                progress or (lambda _done, _total: None),
                run_checks=None if run_checks is None else run_checks(base),
                further=further,
            )
        return refuse_problems(report)

    def rebuild_indexes(
        self, *, run: RunRebuilds | None = None, progress: Progress | None = None
    ) -> tuple[str, ...]:
        """Make index files again that are missing or damaged; gives the paths of their data files.

        Raises Corruption when a data file itself cannot be read.
        """
        with self._base(RunName.drawn(self._parts.ids)) as base:
            files = list(base.version.files.values())
            done = 0

            def tell(count: int) -> None:
                nonlocal done
                done += count
                if progress is not None:
                    progress(done, len(files))

            return tuple((run or rebuild_here)(base, files, tell))

    @contextmanager
    def _base(self, run: RunName) -> Iterator[JobBase]:
        """Return the newest Version to work on, leased until the end (K2)."""
        number = self._pinned_newest()
        renewing = BackgroundWork(
            f"neve-lease-{self._parts.paths.table_id}",
            [self._leases.renew_once],
            idle_seconds=self._options.lease_seconds / _RENEWALS_PER_LEASE,
        )
        renewing.start()
        try:
            base = JobBase(self._parts, run, number, file_bytes=self._options.file_bytes)
            try:
                yield base
            finally:
                base.close()
        finally:
            renewing.close()
            self._leases.unpin(number)
            self._leases.close()

    def _pinned_newest(self) -> int:
        patience = Patience(self._parts.clock, self._parts.ids, 60.0)
        while True:
            head = self._parts.versions.head()
            if head.dropped:
                raise NotFound("the table was dropped", path=self._parts.paths.manifest)
            try:
                self._leases.pin(head.current_version)
            except NotFound as error:
                patience.pause(
                    "the table's versions expired as fast as they were read",
                    path=self._parts.paths.manifest,
                    cause=error,
                )
            else:
                return head.current_version


def rebuild_here(
    base: JobBase, files: Sequence[DataFile], tell: Callable[[int], None]
) -> list[str]:
    """Make the index files of some data files again where they are of no use; gives whose."""
    index_files = IndexFiles(base.parts.objects, base.parts.paths, base.context.encoder)
    rebuilt = []
    for file in files:
        rebuilt += index_files.rebuild_useless([file], base.definitions.schema)
        tell(1)
    return rebuilt


def _go_on() -> None:
    """End nothing."""
