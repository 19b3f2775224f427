"""LiveWriter: the one writer of a table: its log, its memtables, and the steps that empty them.

    write     checked ──► logged ──► synced ──► applied ──► visible ──► acknowledged
    flush     memtable frozen ──► files written ──► committed ──► view replaced ──► log cut

One thread flushes, another compacts; both run the `*_once` steps below, which a test can run by
hand. Writers wait for neither, except as described in `neve.engine.backlog`.

ENGINE-W1  One flush and one compaction run at a time; a sweep of unknown files runs beside neither.
           The removal of expired rows counts as a compaction.
ENGINE-W2  Every commit asserts the writer's epoch. A writer that was replaced is Fenced, and takes
           no more writes.
ENGINE-W3  What could not be flushed stays in memory and in the log, and is tried again. A missing
           file of the table does not end the writer: only a dropped table does.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Final

from neve.compaction.plan import CompactionPlan, jobs_of
from neve.compaction.policy import pick_all
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.background import BackgroundWork, run_side_by_side
from neve.engine.backlog import CALM, Backlog
from neve.engine.flush import Flush, FlushTarget
from neve.engine.lease_book import LeaseBook
from neve.engine.publishing import CommitPublishing
from neve.engine.rewrite import (
    Execution,
    Rewrite,
    note_compacted,
    tidy_deletes,
)
from neve.engine.row_expiry import RowExpiry, note_removed, partial_keys, pause_seconds
from neve.engine.ruled_writes import RuledPath, path_of
from neve.engine.snapshot import CurrentView
from neve.engine.table_options import TableOptions
from neve.engine.upkeep import forget_decisions, overtaken
from neve.engine.write_buffer import WriteBuffer
from neve.engine.write_path import Decide, PreparedBatch, PreparedWrite, WritePath
from neve.errors import Closed, Conflict, Fenced, NeveError, NotFound, StorageFull
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import TableSnapshot
from neve.memtable.memtable import Memtable
from neve.model.version import Version, VersionFacts
from neve.observability.events import EventKind, ignore
from neve.observability.metrics import (
    FLUSH_SECONDS,
    FLUSHED_ROWS,
    FLUSHES,
)
from neve.storage.object_store import CountsRequests, LockHandle
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.wal.batch_codec import EncodedChanges
from neve.wal.log_options import SyncPolicy

logger = logging.getLogger(__name__)

_UPKEEP_SECONDS: Final = 1.0
# Each look reads the head of a table: about 0.2 ms of a core.
_UPKEEPS_PER_SECOND: Final = 20
# In a bucket each look for commits of others is paid for.
_LOOK_SECONDS: Final = 10.0
_EXPIRE_AFTER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterClaim:
    """What makes a process the only writer of a table, and the spec it begins with."""

    epoch: int
    lock: LockHandle
    spec_id: int


class LiveWriter:
    """Writes one table; safe for many threads."""

    def __init__(
        self,
        files: TableFiles,
        options: TableOptions,
        *,
        leases: LeaseBook,
        current: CurrentView,
        buffer: WriteBuffer,
        claim: WriterClaim,
        publishing: CommitPublishing | None,
    ) -> None:
        parts = files.parts
        # Fixed at construction.
        self._parts = parts
        self._options = options
        self._definitions = files.definitions
        self._files = files
        self._leases = leases
        self._current = current
        self._buffer = buffer
        self._epoch = claim.epoch
        self._lock = claim.lock
        self.publishing = publishing
        self.committer = parts.committer()
        self._flush = Flush(files, self.committer)
        self._rewrite = Rewrite(files, self.committer, task_rows=options.compaction_task_rows)
        self._expiry = RowExpiry(files, self.committer)
        self.backlog = Backlog(options, current, clock=parts.clock, recorder=parts.recorder)
        # Without its own threads, a table works in the calling thread, in one order.
        self._threads = options.compaction_threads if options.background else 1
        self._flushing = Lock()
        self._compacting = Lock()
        self._showing = Lock()
        self._ending = Lock()
        # Safe on their own: each is replaced whole.
        self.path = self._path_of(current.view.context, claim.spec_id)
        self._unflushed_since: float | None = None
        self._look_at = 0.0
        self._is_paid = isinstance(parts.objects, CountsRequests)
        self._expired_at: float | None = None
        self._is_expiry_due = False
        self._is_roll_due = False  # a full memtable could not be rolled: the next write tries again
        self._ended: NeveError | None = None

    # Writing

    def write(self, write: PreparedWrite | Decide) -> int | None:
        """Write one or many changes that `path` prepared; returns the last sequence number.

        A function makes the write while no other write comes between, or None to write nothing.
        """
        if self.backlog.pressure is not CALM or self._ended is not None or self._is_roll_due:
            self._admit()
        try:
            sequence = self._buffer.write(write)
        except Fenced as error:
            self._end(error)
            raise
        if self._buffer.is_full:
            self._roll_full()
        return sequence

    def put(self, row: Mapping[str, object]) -> int:
        """Write one row of a table without rules; returns its sequence number."""
        path = self.path
        key, value = path.encoded_row(row)
        if self.backlog.pressure is not CALM or self._ended is not None or self._is_roll_due:
            self._admit()
        buffer = self._buffer
        try:
            sequence = buffer.put(key, value, path.schema_id)
        except Fenced as error:
            self._end(error)
            raise
        if buffer.is_full:
            self._roll_full()
        return sequence

    # Committing together with other tables

    def admit(self) -> None:
        """Delay a write while background work is pending; raises when the writer has ended."""
        if self.backlog.pressure is not CALM or self._ended is not None or self._is_roll_due:
            self._admit()

    def hold(self, action: Callable[[], None]) -> None:
        """Run an action while no other write comes between; then roll a full memtable."""
        self._buffer.log.run_alone(action)
        if self._buffer.is_full:
            self._roll_full()

    def log_held(self, changes: EncodedChanges) -> int:
        """Log a write inside of `hold`, and show nothing yet; return its first sequence number.

        It is durable, whatever the policy.
        """
        log = self._buffer.log
        try:
            first = log.append_held(changes, None)
            log.sync_held()
        except Fenced as error:
            self._end(error)
            raise
        return first

    def show_held(self, write: PreparedWrite, sequence: int) -> None:
        """Show a logged write inside of `hold`."""
        self._buffer.apply(write, sequence)

    def give_up(self, error: BaseException) -> None:
        """Refuse everything, inside of `hold`: only reopening shows what was committed."""
        self._buffer.log.give_up(error)

    def drop_spare_logs(self) -> int:
        """Delete logs that are only kept for reuse; returns how many."""
        return self._buffer.log.drop_spares()

    def give_back_space(self) -> None:
        """Free the space that logs have reserved, for work that frees more."""
        self._buffer.log.give_back_space()

    # Flushing

    def flush(self) -> int:
        """Commit everything written so far; returns the current Version's number."""
        self._check_open()
        self._buffer.roll()
        # Not what is written from now on: beside a busy writer this would never end.
        for memtable in self._current.view.memtables[1:2]:
            while self._is_waiting(memtable) and self.flush_once():
                pass
        return self._current.view.version

    def _is_waiting(self, memtable: Memtable) -> bool:
        return any(each is memtable for each in self._current.view.memtables)

    def flush_once(self) -> bool:
        """Flush the oldest frozen memtable; False when there is none."""
        with self._flushing:
            self._check_open()
            memtables = self._current.view.memtables
            if len(memtables) == 1:
                return False
            shown = self._current.view.version
            try:
                with self._fenced_ends():
                    self._flush_memtable(memtables[-1])
            except (Conflict, NotFound):
                self.refresh()
                if self._current.view.version == shown:
                    raise
                # Others have rewritten files, and the previous Version is no longer kept.
                with self._fenced_ends():
                    self._flush_memtable(memtables[-1])
        self.backlog.judge()
        self.backlog.wake()
        return True

    def flush_due_once(self) -> bool:
        """Have rows flushed that are older than half of `flush_seconds`; never finds more to do.

        The other half is for noticing them, writing their files and publishing.
        """
        now = self._parts.clock.monotonic()
        if self._buffer.active.is_empty:
            self._unflushed_since = None
        elif self._unflushed_since is None:
            self._unflushed_since = now
        elif now - self._unflushed_since >= (self._options.flush_seconds or 0) / 2:
            self._unflushed_since = None
            self._buffer.roll()
            self.backlog.wake()
        return False

    def _flush_memtable(self, memtable: Memtable) -> None:
        began = self._parts.clock.monotonic()
        log = self._buffer.log
        if memtable.is_empty:
            self._current.install(self._current.view.files.version, flushed=memtable)
            return
        flushed = memtable.last_sequence
        floor = log.floor_for(flushed)
        view = self._current.view
        base = view.files.version
        committed = self._flush.run(
            memtable,
            FlushTarget(
                base=base,
                mapping=view.context.mapping_from(memtable.schema.schema_id),
                spec=self._definitions.spec(base.facts.spec_id),
                format=self._options.level_options.format_of(0),
                segments=self._buffer.segments(memtable, root=self._parts.paths.root),
                compares=view.others_version > memtable.since_version,
                head_change=HeadChange(
                    writer_epoch=self._epoch,
                    flushed_sequence=flushed,
                    last_sequence=flushed,
                    next_log_number=log.active_log_number + 1,
                    wal_floor=floor,
                    applied=memtable.applied,
                ),
            ),
        )
        self.install(committed, flushed=memtable)
        forget_decisions(self._parts, flushed)
        log.truncate_below(floor)
        recorder = self._parts.recorder
        seconds = self._parts.clock.monotonic() - began
        recorder.add(FLUSHES, 1)
        recorder.add(FLUSHED_ROWS, memtable.row_count)
        recorder.add(FLUSH_SECONDS, seconds)
        self._parts.report(
            EventKind.FLUSHED,
            version=committed.snapshot.version.number,
            rows=memtable.row_count,
            seconds=seconds,
        )
        logger.info(
            "flushed version=%d rows=%d seconds=%.3f",
            committed.snapshot.version.number,
            memtable.row_count,
            seconds,
        )

    # Compacting

    def compact_once(self, *, executor: PlanExecutor | None = None) -> bool:
        """Run the most urgent compactions that can go side by side; False when none is needed."""
        with self._compacting:
            version = self._current.view.files.version
            identity = self._definitions.partition_identity()
            plans = pick_all(version, self._options.level_options, identity=identity)
            # Another executor gets all of them as one job.
            jobs = jobs_of(plans)[: self._threads] if executor is None else [plans]
            self._run_jobs(jobs, version, None, executor)
        self.backlog.judge()
        self.tidy_deletes()
        return bool(plans)

    def tidy_deletes(self) -> None:
        """Forget deletes that are old enough, and join files of remembered ones."""
        if self._current.view.files.version.deletes:
            with self._fenced_ends():
                committed = tidy_deletes(
                    self._files, self.committer, HeadChange(writer_epoch=self._epoch)
                )
                if committed is not None:
                    self.install(committed)

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """Keep other compactions of this writer out."""
        with self._compacting:
            yield
        self.backlog.judge()

    def run_plans(
        self,
        plans: Sequence[CompactionPlan],
        version: Version,
        progress: Callable[[int], None] | None = None,
        *,
        executor: PlanExecutor | None = None,
    ) -> bool:
        """Execute plans of one Version; the caller holds `compacting`. False when all were void."""
        jobs = jobs_of(plans) if executor is None else [plans]
        return self._run_jobs(jobs, version, progress, executor)

    def _run_jobs(
        self,
        jobs: Sequence[Sequence[CompactionPlan]],
        version: Version,
        progress: Callable[[int], None] | None,
        executor: PlanExecutor | None,
    ) -> bool:
        """Execute plans of one Version with disjoint inputs, several jobs at once."""
        self._check_open()
        if not any(jobs):
            return False
        with ExitStack() as pinned:
            # Its files stay while it is rewritten, however short the retention is.
            try:
                pinned.enter_context(self._leases.pinned(version.number))
            except NotFound:
                self.refresh()
                return False
            run = partial(self._run_job, facts=version.facts, progress=progress, executor=executor)
            return any(run_side_by_side([partial(run, job) for job in jobs], threads=self._threads))

    def _run_job(
        self,
        plans: Sequence[CompactionPlan],
        *,
        facts: VersionFacts,
        progress: Callable[[int], None] | None,
        executor: PlanExecutor | None,
    ) -> bool:
        """Execute plans and commit them as one; False, and a newer Version, when all were void."""
        execution = Execution(
            executor=executor, progress=progress or ignore, check_cancelled=self._check_open
        )
        context, change = self._current.view.context, HeadChange(writer_epoch=self._epoch)
        with self._fenced_ends():
            rewritten = self._rewrite.run(plans, context, facts, execution, change)
            if rewritten is None:
                self.refresh()
                return False
            self.install(rewritten.committed)
            kept = rewritten.committed.snapshot.version.files
            inputs = [file.path for plan in rewritten.plans for file in plan.inputs]
            self._files.forget(inputs)
            self._files.drop_indexes(path for path in inputs if path not in kept)
            note_compacted(self._parts, rewritten)
        return True

    def index_once(self) -> bool:
        """Write an index file that reads lack; False when there is none, or no room for it."""
        if self._is_paid:
            return False
        version = self._current.view.files.version
        try:
            return self._files.index_once(version, row_bytes_max=self._options.row_index_bytes)
        except (Closed, Fenced):
            raise
        except (StorageFull, NotFound):
            # It is a cache, and its data file may have been compacted since.
            return False
        except NeveError as error:
            # The rest of the upkeep goes on.
            logger.warning("left an index file cause=%s", error)
            return False

    # Rows that expire

    def expire_due_once(self) -> bool:
        """Have expired rows removed from time to time; never finds more to do.

        The first time is a minute after opening: a process that ends sooner leaves it to others.
        """
        ttl = self._current.view.context.schema.rules.ttl
        now = self._parts.clock.monotonic()
        if ttl is None:
            return False
        pause = pause_seconds(ttl)
        if self._expired_at is None:
            self._expired_at = now + _EXPIRE_AFTER_SECONDS - pause
        if now - self._expired_at >= pause:
            self._expired_at = now
            self._is_expiry_due = True
            self.backlog.wake()
        return False

    def remove_due_once(self) -> bool:
        """Remove some expired rows, if it is time for that; False when none are left."""
        if not self._is_expiry_due:
            return False
        is_more = self.remove_expired_once()
        self._is_expiry_due = is_more
        return is_more

    def remove_expired_once(self) -> bool:
        """Commit the removal of some rows that have expired; False when none are left."""
        if not self._current.view.expires:
            return False
        with self._compacting:
            self._check_open()
            # In this order: see ENGINE-X1.
            now_ms = self._parts.clock.now_ms()
            # An empty write ends when every write before it is visible.
            self._buffer.write(ignore)
            kept = partial_keys(self._current.view.memtables)
            with self._fenced_ends():
                removed = self._expiry.remove(
                    now_ms,
                    kept=kept,
                    change=HeadChange(writer_epoch=self._epoch),
                    is_limited=True,
                )
            if not removed.committed.is_repeat:
                self.install(removed.committed)
                note_removed(self._parts, removed)
                logger.info(
                    "removed expired rows version=%d rows=%d",
                    removed.committed.snapshot.version.number,
                    removed.row_count,
                )
        return not removed.is_complete

    # What others did

    def refresh(self) -> None:
        """Show the commits of others; rows that are not flushed stay newer than those."""
        snapshot = self._parts.versions.snapshot_latest()
        self._looked()
        self._check_head(snapshot)
        self._show(snapshot)

    def _looked(self) -> None:
        """Put off the next look at the head, which was just read; on a disk it costs nothing."""
        if self._is_paid:
            self._look_at = self._parts.clock.monotonic() + _LOOK_SECONDS

    def refresh_once(self) -> bool:
        """Look for commits of others, if that is due; always returns False."""
        if self._parts.clock.monotonic() >= self._look_at:
            self.refresh()
        return False

    def sync_once(self) -> bool:
        """Make acknowledged rows durable, for writers that pause; always returns False."""
        self._buffer.log.sync_once()
        return False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep flushes and compactions out, so that this writer writes no file."""
        with self._compacting, self._flushing:
            self._check_open()
            yield

    @property
    def epoch(self) -> int:
        """Number of this writer's turn."""
        return self._epoch

    # Background

    def start_background(self, upkeep: tuple[Callable[[], bool], ...]) -> None:
        """Begin to flush and compact in threads, and to run other steps from time to time."""
        name = self._parts.paths.table_id
        work = partial(
            BackgroundWork, on_failure=self._parts.failed, has_ended=self._find_out_whether_ended
        )
        flushing = work(f"neve-flush-{name}", [self.flush_once])
        compacting = work(f"neve-compact-{name}", [self.remove_due_once, self.compact_once])
        tending = work(
            f"neve-upkeep-{name}",
            [self.refresh_once, self.expire_due_once, self.index_once, *upkeep],
            idle_seconds=_UPKEEP_SECONDS,
            looks_per_second=_UPKEEPS_PER_SECOND,
        )
        beside = [tending]
        if self._options.sync == SyncPolicy.INTERVAL:
            seconds = self._options.sync_interval_seconds
            beside.append(work(f"neve-sync-{name}", [self.sync_once], idle_seconds=seconds))
        if self._options.flush_seconds is not None:
            look_seconds = min(_UPKEEP_SECONDS, self._options.flush_seconds / 4)
            beside.append(
                work(f"neve-fresh-{name}", [self.flush_due_once], idle_seconds=look_seconds)
            )
        if self.publishing is not None:
            beside.append(work(f"neve-publish-{name}", [self.publishing.publish_once]))
        self.backlog.start(flushing, compacting, beside=beside)

    def close(self, *, flush: bool, publish: bool = True) -> None:
        """Stop the threads, flush and publish if asked to, close the log, release the lock."""
        if self._ended is not None and isinstance(self._ended, Closed):
            return
        self.backlog.stop()
        try:
            if (flush or self._options.flush_on_close) and self._ended is None:
                self.flush()
            publishes = self.backlog.has_workers or self._options.flush_on_close
            is_due = publish and self._ended is None and publishes
            if self.publishing is not None and is_due:
                self.publishing.try_publish()
        finally:
            self._ended = self._ended or Closed("the table was closed", path=self._parts.paths.root)
            self.backlog.release()
            try:
                self._buffer.log.close()
            finally:
                self._lock.release()

    def install(
        self, committed: Committed, *, flushed: Memtable | None = None, is_own: bool = True
    ) -> None:
        """Show a commit, and remove the memtable that it flushed in the same step.

        `is_own`: its rows are those of this writer, or were there before.
        """
        self._looked()
        self._show(committed.snapshot, flushed=flushed, is_own=is_own)

    def _show(
        self, snapshot: TableSnapshot, *, flushed: Memtable | None = None, is_own: bool = False
    ) -> None:
        head = snapshot.head
        with self._showing:
            is_newer = snapshot.version.number > self._current.view.version
            schema_id = self._current.view.context.schema.schema_id
            if not is_newer or head.schema_id == schema_id:
                self._install(snapshot.version, flushed=flushed, is_own=is_own)
                if is_newer and head.spec_id != self.path.spec.spec_id:
                    context = self._current.view.context
                    self.path = self._path_of(context, head.spec_id)
            else:
                context = self._files.context(head.schema_id)
                # Rows written under the old schema stay in a separate memtable.
                self._buffer.begin_schema(
                    context, lambda: self._show_schema(snapshot, context, flushed)
                )
                self.settle()
        # A thread that polls every second must not wake itself when nothing is new.
        if is_newer or flushed is not None:
            self.backlog.judge()
            self.backlog.wake()

    def _install(self, version: Version, *, flushed: Memtable | None, is_own: bool) -> None:
        """Show a Version; rows in memory that are older than those of others are replaced."""
        show = partial(self._current.install, version, flushed=flushed, is_own=is_own)
        path, before = self.path, self._current.view.version
        is_alone = version.number <= before or (is_own and version.number == before + 1)
        if is_alone or not isinstance(path, RuledPath) or path.order is None:
            show()
            return

        def decide() -> PreparedBatch | None:
            write = path.restoring(version, without=flushed)
            if write is None:
                show()
                return None

            def apply(memtable: Memtable, sequence: int) -> None:
                write.apply(memtable, sequence)
                show()

            return PreparedBatch(write.changes, apply)

        self._buffer.write(decide)

    def settle(self) -> None:
        """Replace rows of the log that are older than what others committed since."""
        path = self.path
        if isinstance(path, RuledPath) and path.order is not None:
            version = self._current.view.files.version
            self._buffer.write(lambda: path.restoring(version, is_first=True))

    def _show_schema(
        self, snapshot: TableSnapshot, context: TableContext, flushed: Memtable | None
    ) -> None:
        self._current.install(snapshot.version, flushed=flushed, context=context)
        self.path = self._path_of(context, snapshot.head.spec_id)

    def _path_of(self, context: TableContext, spec_id: int) -> WritePath:
        return path_of(context, self._definitions.spec(spec_id), self._current, self._files)

    def _check_head(self, snapshot: TableSnapshot) -> None:
        head = snapshot.head
        if head.dropped:
            self._end(
                NotFound(
                    "the table was dropped",
                    path=self._parts.paths.manifest,
                    hint="Close the handle; rows written since the last flush are gone too",
                )
            )
        elif head.writer_epoch != self._epoch:
            self._end(overtaken(self._parts, head.writer_epoch, self._epoch))
        if self._ended is not None:
            raise self._ended

    def _end(self, error: NeveError) -> None:
        """Refuse all further writes (ENGINE-W2); logs that once."""
        with self._ending:
            if self._ended is None:
                table_id = self._parts.paths.table_id
                logger.warning("stopped writing table=%s cause=%s", table_id, error.message)
                self._ended = error
        self.backlog.release()

    def _find_out_whether_ended(self) -> bool:
        """Check whether the table was dropped; return whether the writer has ended for good."""
        with suppress(NeveError):
            self.refresh()
        return self._ended is not None

    @contextmanager
    def _fenced_ends(self) -> Iterator[None]:
        """End the writer once a commit shows that another process is the writer."""
        try:
            yield
        except Fenced as error:
            self._end(error)
            raise
        except NotFound:
            # The table is gone, which ends the writer, or a file: the newest head shows which.
            try:
                self.refresh()
            finally:
                self.backlog.release()
            raise

    def _roll_full(self) -> None:
        """Begin the next memtable after a write, which is acknowledged even if this fails."""
        try:
            self._roll_due()
        except NeveError as error:
            self._is_roll_due = True
            logger.warning("could not begin the next log cause=%s", error)

    def _roll_due(self) -> None:
        if self._buffer.roll_if_full():
            self.backlog.judge()
            self.backlog.wake()
        self._is_roll_due = False

    def _admit(self) -> None:
        """Delay a write while background work is pending; raises when the writer has ended."""
        self._check_open()
        if self._is_roll_due:
            self._roll_due()
        if self.backlog.pressure is not CALM:
            self.backlog.hold_back(
                check=self._check_open, work_off=lambda: self.flush_once() or self.compact_once()
            )

    def _check_open(self) -> None:
        ended = self._ended
        if ended is not None:
            raise type(ended)(ended.message, path=ended.path, hint=ended.hint)
