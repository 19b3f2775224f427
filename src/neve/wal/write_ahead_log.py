"""The live log: assigns sequence numbers, makes batches durable, rotates, recycles, truncates.

Steps of an append, in one function (`_commit`), for a single batch and for a group; a row that is
put while nothing else is logged takes the same steps in `append_put`, and makes the same bytes:

1. assign each batch its sequence numbers and frame it
2. append the group to the active log
3. sync, as the policy says
4. apply the batches, in sequence order
5. acknowledge

A batch may be a decision that depends on rows (`append_decided`). The leader of its group makes it
before step 1, in the order of the group, against what is applied and the keys of what is not. So it
shares a sync with other batches, unless it depends on one of them: those are committed first.

Where the store can sync ahead, steps 1 and 2 of the next group begin while a group is in step 3
(`_begin` and `_land`); 4 and 5 come in order. Everything else waits until all groups have landed.

Steps of a rotation: make the next file; sync the full log and write its LogEnd; write LogStart.
The mark (`neve.wal.durability`) follows with the first sync of the new log: a rotation costs no
extra sync, and no row of the log is acknowledged as durable before the mark names the log.

WAL-1  Sequence and log numbers only grow.
WAL-2  Every log but the last was synced to its end before the next one got its first record. Logs
       found at open are synced before the new log begins.
WAL-3  A failed append or sync fails its whole group with OutcomeUnknown and poisons the log:
       nothing is acknowledged any more, and only reopening shows what is durable. So does an
       interrupt after the first byte; before it, nothing has happened.
WAL-4  Under `group` and `always` a batch is applied only after it is durable.
WAL-5  The mark claims nothing that is not durable. If it cannot be written, the next sync tries
       again: it guards against damage, and rows are durable without it.
WAL-6  A file is made shorter than its reserved space only after its LogEnd was synced: a log that
       was synced, has no LogEnd and is shorter was truncated by something else.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from neve.errors import (
    Closed,
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    OutcomeUnknown,
    StorageFull,
)
from neve.model.write_batch import SEQUENCE_MAX
from neve.observability.metrics import (
    WAL_BATCHES,
    WAL_BYTES,
    WAL_DELETED,
    WAL_RECYCLED,
    WAL_ROTATIONS,
    WAL_ROWS,
    WAL_SYNC_SECONDS,
    WAL_SYNCS,
    WAL_WRITES,
    NoRecorder,
)
from neve.storage.commit_queue import CommitQueue
from neve.storage.object_store import AppendFile, AppendsDurably, SyncsAhead
from neve.wal.append_outcome import (
    NOTHING_LOGGED,
    Apply,
    ApplyPut,
    Batches,
    DecideChanges,
    Decision,
    GroupDecisions,
    GroupInFlight,
    PendingAppend,
    Written,
    cause_of,
    outcome_unknown,
    store_failure,
)
from neve.wal.batch_codec import (
    BATCH_BYTES_MAX,
    EncodedChanges,
    LogStart,
    encode_log_end,
    encode_log_start,
    frame_batch,
    too_large,
)
from neve.wal.durability import MarkWriter
from neve.wal.log_options import LogOptions, LogPlace, LogTools, SyncPolicy
from neve.wal.record_format import Dialect
from neve.wal.replay import ClosedLog, LogFile, LogStretch, stretches_of
from neve.wal.segment_writer import SegmentWriter

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_U64_MAX: Final = (1 << 64) - 1


class WriteAheadLog:
    """One table's live log; safe for many threads."""

    def __init__(
        self,
        place: LogPlace,
        *,
        next_log_number: int,
        next_sequence: int,
        older_logs: Sequence[LogFile] = (),
        options: LogOptions | None = None,
        tools: LogTools | None = None,
    ) -> None:
        """Begin a new log; `older_logs` have been replayed and await `truncate_below`."""
        if next_sequence < 1 or next_log_number < 1:
            raise InvalidArgument("sequence and log numbers begin at 1")
        # fixed at construction
        self.options = options or LogOptions()
        tools = tools or LogTools()
        self._logs = place.logs
        self._check_begun = place.check_begun
        self._log_path = place.log_path
        self._owner = place.owner if self.options.dialect is Dialect.CRC32C else None
        self._marks: MarkWriter | None = None
        if self._owner is not None:
            self._marks = MarkWriter(self._logs, self._owner, first_log=next_log_number)
        self._clock = tools.clock
        self._ids = tools.ids
        self._recorder = tools.recorder
        self._stamped = self.options.dialect is Dialect.CRC32C
        self._segment_bytes = self.options.segment_bytes
        self._waits = self.options.sync.waits
        self._is_ahead_possible = self._waits and self.options.syncs_ahead > 1
        self._is_grouping = self._is_ahead_possible or self.options.linger_seconds > 0
        self._interval_seconds = (
            self.options.sync_interval_seconds if self.options.sync is SyncPolicy.INTERVAL else None
        )
        self._records = not isinstance(self._recorder, NoRecorder)
        self._is_timed = self._records or self._interval_seconds is not None
        always = self.options.sync is SyncPolicy.ALWAYS
        self._queue: CommitQueue[PendingAppend] = CommitQueue(
            self._commit_group,
            group_bytes_max=1 if always else self.options.group_bytes_max,
            make_latch=tools.make_latch,
            pause=partial(self._clock.sleep, self.options.linger_seconds)
            if self.options.linger_seconds
            else None,
        )
        # owned by the thread whose turn to commit it is
        self._next_sequence = next_sequence
        self._durable_through = next_sequence - 1
        self._closed_logs = [ClosedLog.of(log, next_sequence) for log in older_logs]
        self._flights: deque[GroupInFlight] = deque()
        self._spare_paths: list[str] = []
        self._unusable: Closed | None = None
        self._nonce: int | None = None
        self._synced_to = -1  # how far the active log is durable
        self._append_durably: Callable[[bytes], None] | None = None
        self._first_sequence = next_sequence
        self._is_mark_due = self._is_reserved = False
        self._synced_at = self._clock.monotonic()
        # A killed writer's last rows may have been read from the page cache only: they must not be
        # lost when the new log has begun after them.
        for log in older_logs:
            self._logs.make_durable(log.path)
        self._active = self._begin_first_log(next_log_number)
        if self._is_mark_due:
            self._mark_first_log()

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next row."""
        return self._next_sequence

    @property
    def durable_through(self) -> int:
        """Highest sequence number that survives power loss."""
        return self._durable_through

    @property
    def active_log_number(self) -> int:
        """Number of the log being written."""
        return self._active.log_number

    @property
    def closed_logs(self) -> tuple[ClosedLog, ...]:
        """Logs that are kept because rows in them may not be in data files yet."""
        return tuple(self._closed_logs)

    def append(
        self, changes: EncodedChanges, apply: Apply | None = None, written: Written | None = None
    ) -> int:
        """Log a batch and return its first sequence number, as soon as the sync policy allows.

        `written` knows the keys of the batch; without it, a decision of the same group waits for
        the batch. Raises LimitExceeded for a batch that is too large, OutcomeUnknown when it may or
        may not survive, and Closed when the log is closed.
        """
        if changes.byte_count > BATCH_BYTES_MAX:
            raise too_large(changes)
        first = 0 if self._is_grouping else self._led(partial(self._commit, ((changes, apply),)))
        if first:
            return first
        work = PendingAppend(changes, apply, written)
        self._queue.submit(work)
        return work.outcome()

    def append_put(self, key: bytes, value: bytes, schema_version: int, apply: ApplyPut) -> int:
        """Log one row as `append` does, in one step; return its sequence number.

        0 when something else is being logged or is due first: then nothing was done, and `append`
        does it. Raises as `append`.
        """
        if self._is_grouping or self._queue.is_led:
            return 0
        queue, row = self._queue, (key, value, schema_version)
        if not self._waits:
            with queue.lock:
                return 0 if queue.is_led else self._put(row, apply)
        return self._led(partial(self._put, row, apply))

    def _led(self, append: Callable[[], int]) -> int:
        """Return what an append returns, run with the lead; 0 when another thread has it."""
        turn = self._queue.lead()
        if not turn:
            return 0
        try:
            return append()
        finally:
            try:
                self._queue.pass_on(turn)
            except BaseException:
                self._queue.pass_on(turn)  # it may have been interrupted before it did anything
                raise

    def _put(self, row: tuple[bytes, bytes, int], apply: ApplyPut) -> int:
        """Frame, append, sync and apply one row; 0 for one that takes the steps of `_commit`."""
        active, nonce, sequence = self._active, self._nonce, self._next_sequence
        file = active.file
        position = file.position
        is_next = position < self._segment_bytes and sequence < SEQUENCE_MAX
        is_noted = self._is_timed and (self._records or self._is_sync_due())
        if self._unusable is not None or nonce is None or not is_next or is_noted:
            return 0
        try:
            record = active.put_record(row, sequence, self._durable_through, nonce)
            if record is None:
                return 0
            self._next_sequence = sequence + 1
            if not self._waits:
                file.append((record,))
            elif self._append_durably is not None and self._synced_to == position:
                self._append_durably(record)
                self._durable_through, self._synced_to = sequence, file.position
            else:
                file.append((record,))
                self._sync_active()
            apply(sequence, row[0], row[1])
        except BaseException as error:
            self._fail(error, sequence, position)
            raise
        return sequence

    def append_decided(self, decision: Decision) -> int | None:
        """Log what a decision makes, in a group; return its first sequence number, or None.

        Raises what the decision raises, and the errors of `append`.
        """
        work = PendingAppend.undecided(decision)
        self._queue.submit(work)
        first = work.outcome()
        return None if first == NOTHING_LOGGED else first

    def append_alone(self, decide: DecideChanges, apply: Apply | None = None) -> int | None:
        """Log the batch that a function makes once every batch before it is applied.

        The others wait. If it returns None, nothing is logged; its errors are raised.
        """

        def run() -> int | None:
            changes = decide()
            return None if changes is None else self.append_held(changes, apply)

        return self.run_alone(run)

    def append_held(self, changes: EncodedChanges, apply: Apply | None) -> int:
        """Log a batch inside of `run_alone`; return its first sequence number.

        Without `apply`, the caller shows the batch before `run_alone` ends, or never.
        """
        if changes.byte_count > BATCH_BYTES_MAX:
            raise too_large(changes)
        return self._commit(((changes, apply),))

    def sync_held(self) -> None:
        """Make everything durable inside of `run_alone`, whatever the policy."""
        if self._durable_through < self._next_sequence - 1:
            self._guard(self._sync_active, self._active.file.path)

    def give_up(self, error: BaseException) -> None:
        """Refuse everything from now on, inside of `run_alone`: what counts is not known."""
        self._poison(error, self._active.file.path)

    def run_alone(self, action: Callable[[], Result]) -> Result:
        """Run an action while no batch is logged or applied; return what it returns."""
        results: list[Result] = []

        def run() -> None:
            if self.options.syncs_ahead > 1:
                self._wait_for_flights(0)
            results.append(action())

        self._queue.run_alone(run)
        return results[0]

    def sync_once(self) -> bool:
        """Sync what is not durable yet; False when there was nothing to do."""
        if self._durable_through >= self._next_sequence - 1:
            return False

        def sync() -> bool:
            self._check_usable()
            is_due = self._durable_through < self._next_sequence - 1
            self.sync_held()
            return is_due

        return self.run_alone(sync)

    def rotate(self, *, then: Callable[[], None] | None = None) -> int:
        """Close the active log and begin the next one; return the number of the closed log.

        `then` is called before any batch is appended to the new log.
        """

        def rotate() -> int:
            self._check_usable()
            closed = self._active.log_number
            self._rotate()
            if then is not None:
                then()
            return closed

        return self.run_alone(rotate)

    def floor_for(self, flushed_sequence: int) -> int:
        """Return the lowest log number that still holds rows above `flushed_sequence`."""

        def find() -> int:
            needed = [log for log in self._closed_logs if log.end_sequence > flushed_sequence + 1]
            return needed[0].number if needed else self._active.log_number

        return self.run_alone(find)

    def stretches(self, *, first: int, last: int) -> tuple[LogStretch, ...]:
        """Return where the rows with these sequence numbers are, in logs that are still kept."""

        def find() -> tuple[LogStretch, ...]:
            active = self._active
            logs = [(log.number, log.path, log.first_sequence) for log in self._closed_logs]
            logs.append((active.log_number, active.file.path, self._first_sequence))
            return stretches_of(logs, first=first, last=last)

        return self.run_alone(find)

    def truncate_below(self, floor: int) -> int:
        """Delete or recycle closed logs with a lower number; return how many."""
        dropped = 0
        unneeded: list[ClosedLog] = []

        def recycle() -> None:
            nonlocal dropped
            obsolete = [log for log in self._closed_logs if log.number < floor]
            for log in obsolete:
                if len(self._spare_paths) < self.options.recycle_count and self._stamped:
                    self._spare_paths.append(log.path)
                    self._closed_logs.remove(log)
                    dropped += 1
                else:
                    unneeded.append(log)

        self.run_alone(recycle)
        # Writers need not wait for this: in a bucket it takes many requests.
        for log in unneeded:
            self._logs.delete(log.path)
            self._recorder.add(WAL_DELETED, 1)
            self.run_alone(partial(self._forget, log))
        return dropped + len(unneeded)

    def _forget(self, log: ClosedLog) -> None:
        if log in self._closed_logs:
            self._closed_logs.remove(log)

    def drop_spares(self) -> int:
        """Delete the logs that are kept for reuse; return how many."""
        return self.run_alone(self._drop_spares)

    def give_back_space(self) -> None:
        """Free reserved space: spare logs, and the rest of the active log.

        The active log is closed (WAL-6), and the next one begins without reserved space.
        """

        def give_back() -> None:
            self._check_usable()
            self._drop_spares()
            if self._is_reserved:
                self._rotate(is_reserving=False)

        self.run_alone(give_back)

    def _drop_spares(self) -> int:
        dropped = 0
        while self._spare_paths:
            self._logs.delete(self._spare_paths[-1])
            self._spare_paths.pop()
            self._recorder.add(WAL_DELETED, 1)
            dropped += 1
        return dropped

    def close(self) -> None:
        """Sync, write LogEnd and the mark, and release the log; closing twice is not an error.

        Logs kept for reuse are deleted: the next writer begins in a directory of its own.
        """

        def close() -> None:
            if self._unusable is None:
                self._guard(lambda: self._end_active(gives_back=True), self._active.file.path)
                self._unusable = Closed("the log was closed", path=self._active.file.path)
                try:
                    self._drop_spares()
                except NeveError as error:
                    # They hold nothing that is needed; the next open finds them below the floor.
                    logger.warning("could not delete spare logs cause=%s", error)
                if self._owner is not None:
                    self._try_to_mark(is_closed=True)
            self._active.file.close()

        self.run_alone(close)

    def _commit(self, batches: Batches) -> int:
        """Frame, append, sync, apply; return the first sequence number of the batches.

        When it raises, they have used up sequence numbers if a byte may have been written.
        """
        if self._unusable is not None:
            self._check_usable()
        first_sequence = self._next_sequence
        position: int | None = None
        try:
            if self._active.file.position >= self._segment_bytes:
                self._rotate()
            active = self._active
            payloads, end_sequence = self._framed_group(batches)
            position = active.file.position
            self._next_sequence = end_sequence
            active.append(payloads)
            if self._waits or self._is_sync_due():
                self._sync_active()
            self._apply(batches, first_sequence)
        except BaseException as error:
            self._fail(error, first_sequence, position)
            raise
        if self._records:
            self._count(batches)
        return first_sequence

    def _fail(self, error: BaseException, first_sequence: int, position: int | None) -> None:
        """Settle an append that failed after `position`; returns when its error is to be raised."""
        if position is None or self._took_back(error, position):
            self._next_sequence = first_sequence
            if self._unusable is not None and isinstance(error, NeveError):
                raise self._unusable from error  # closing the full log failed
            return
        path = self._active.file.path
        self._poison(error, path)
        # If another writer has the place of these rows, they are certainly not durable.
        if isinstance(error, NeveError) and not isinstance(error, Fenced):
            rows = self._next_sequence - first_sequence
            raise outcome_unknown(error, first_sequence, rows, path=path) from error

    def _commit_group(self, group: Sequence[PendingAppend]) -> Callable[[], None] | None:
        """Commit the batches of threads that waited, and store the outcome in each.

        If their sync can be begun ahead, the function that is returned finishes it.
        """
        if any(work.decision is not None for work in group):
            group = self._decided(group)
            if not group:
                return None
        batches = [(work.changes, work.apply) for work in group]
        first = self._next_sequence
        if not self._is_ahead_possible:
            self._store_outcome(group, first, lambda: self._commit(batches))
            return None
        self._wait_for_flights(self.options.syncs_ahead - 1)
        file = self._active.file
        is_full = file.position >= self._segment_bytes
        if not isinstance(file, SyncsAhead) or self._is_mark_due or is_full:
            self._wait_for_flights(0)
            self._store_outcome(group, first, lambda: self._commit(batches))
            return None
        flights: list[GroupInFlight] = []
        self._store_outcome(group, first, lambda: flights.append(self._begin(batches, file)))
        if not flights:
            return None
        flights[0].group = group
        return lambda: self._store_outcome(group, first, lambda: self._land(flights[0]))

    def _decided(self, group: Sequence[PendingAppend]) -> list[PendingAppend]:
        """Make the decisions of a group, in order; return the batches that are left to commit."""
        decisions = GroupDecisions(self._check_usable, self._commit_now)
        for flight in self._flights:
            if not flight.landed.is_set():
                decisions.note(flight.group, flight.last_sequence)
        return decisions.made(group, self._next_sequence)

    def _commit_now(self, group: Sequence[PendingAppend]) -> None:
        """Commit the first batches of a group, and all groups before it."""
        self._wait_for_flights(0)
        if group:
            batches = [(work.changes, work.apply) for work in group]
            self._store_outcome(group, self._next_sequence, lambda: self._commit(batches))

    def _begin(self, batches: Batches, file: SyncsAhead) -> GroupInFlight:
        """Frame and append a group, and begin its sync; raises as `_commit`."""
        self._check_usable()
        flight = GroupInFlight(batches, self._next_sequence)
        payloads, end_sequence = self._framed_group(batches)
        position = self._active.file.position
        try:
            self._next_sequence = end_sequence
            self._active.append(payloads)
            flight.last_sequence = self._next_sequence - 1
            flight.wait = file.begin_sync()
        except BaseException as error:
            if self._took_back(error, position):
                self._next_sequence = flight.first_sequence
            else:
                self._poison(error, self._active.file.path)
            raise
        flight.before = self._flights[-1] if self._flights else None
        self._flights.append(flight)
        return flight

    def _land(self, flight: GroupInFlight) -> None:
        """Wait until a group and all before it are durable and applied, and apply it."""
        try:
            try:
                if flight.wait is not None:
                    flight.wait()
            finally:
                if flight.before is not None:
                    flight.before.landed.wait()
            if flight.before is not None and flight.before.failure is not None:
                self._check_usable()
            self._durable_through = flight.last_sequence
            self._apply(flight.batches, flight.first_sequence)
        except BaseException as error:
            flight.failure = error
            if self._unusable is None:
                self._poison(error, self._active.file.path)
            raise
        finally:
            flight.before = None
            flight.landed.set()
        if self._records:
            self._recorder.add(WAL_SYNCS, 1)
            self._count(flight.batches)

    def _wait_for_flights(self, most: int) -> None:
        """Wait until at most so many groups are on their way; the caller has the turn."""
        flights = self._flights
        while flights and (len(flights) > most or flights[0].landed.is_set()):
            flights[0].landed.wait()
            flights.popleft()

    def _store_outcome(
        self, group: Sequence[PendingAppend], first: int, commit: Callable[[], object]
    ) -> None:
        """Run a commit of batches from `first` on, and store the outcome in each."""
        try:
            commit()
        except BaseException as error:
            is_written = self._next_sequence > first
            path, unusable = self._active.file.path, self._unusable
            store_failure(group, error, first if is_written else None, unusable, path=path)
            if not isinstance(error, NeveError):
                raise
        else:
            for work in group:
                work.first_sequence = first
                first += work.changes.row_count

    def _framed_group(self, batches: Batches) -> tuple[list[tuple[bytes | memoryview, ...]], int]:
        """Frame batches with the next sequence numbers, which they do not take yet.

        Return them with the sequence number after them.
        """
        sequence = self._next_sequence
        payloads = []
        for changes, _ in batches:
            payloads.append(frame_batch(changes, sequence, self._durable_through, self._nonce))
            sequence += changes.row_count
        if sequence > SEQUENCE_MAX:
            raise LimitExceeded("the table has used up its sequence numbers", limit=SEQUENCE_MAX)
        return payloads, sequence

    def _apply(self, batches: Batches, sequence: int) -> None:
        """Show batches, in sequence order."""
        for changes, apply in batches:
            if apply is not None:
                apply(sequence)
            sequence += changes.row_count

    def _took_back(self, error: BaseException, position: int) -> bool:
        """Undo an append that an interrupt ended before its first byte; False when it wrote."""
        if isinstance(error, NeveError) or self._active.file.position != position:
            return False
        self._active.take_back()
        return True

    def _count(self, batches: Batches) -> None:
        """Count the batches of one write in the metrics."""
        self._recorder.add(WAL_WRITES, 1)
        self._recorder.add(WAL_BATCHES, len(batches))
        self._recorder.add(WAL_ROWS, sum(changes.row_count for changes, _ in batches))
        self._recorder.add(WAL_BYTES, sum(changes.byte_count for changes, _ in batches))

    def _is_sync_due(self) -> bool:
        interval = self._interval_seconds
        return interval is not None and self._clock.monotonic() - self._synced_at >= interval

    def _sync_active(self) -> None:
        reached = self._next_sequence - 1
        began_at = self._clock.monotonic() if self._is_timed else 0.0
        self._active.file.sync()
        self._durable_through, self._synced_to = reached, self._active.file.position
        if self._is_timed:
            self._synced_at = self._clock.monotonic()
            self._recorder.add(WAL_SYNCS, 1)
            self._recorder.add(WAL_SYNC_SECONDS, self._synced_at - began_at)
        if self._is_mark_due:
            self._try_to_mark()

    def _rotate(self, *, is_reserving: bool = True) -> None:
        """Begin the next log; the full one stays as it is when no new file can be made.

        If it is not to reserve space, the space of the full one is released as well.
        """
        full = self._active
        try:
            if is_reserving:
                file = self._make_file(full.log_number + 1)
            else:
                file = self._logs.create(self._log_path(full.log_number + 1))
        except OutcomeUnknown as error:
            # The name may belong to a file that may not survive a power loss.
            self._poison(error, self._log_path(full.log_number + 1))
            raise
        try:
            self._guard(lambda: self._end_active(gives_back=not is_reserving), full.file.path)
        except BaseException:
            file.close()
            raise
        self._closed_logs.append(
            ClosedLog(
                number=full.log_number,
                path=full.file.path,
                end_sequence=self._next_sequence,
                first_sequence=self._first_sequence,
            )
        )
        self._active = self._open_segment(file, full.log_number + 1, is_reserved=is_reserving)
        self._recorder.add(WAL_ROTATIONS, 1)
        logger.info("rotated log=%s next=%d", full.file.path, self._active.log_number)

    def _end_active(self, *, gives_back: bool = False) -> None:
        # LogEnd says that all rows are durable, so they must be. By itself it needs no sync:
        # without it the log merely ends like one whose writer died between two records.
        if self._durable_through < self._next_sequence - 1:
            self._sync_active()
        if self._stamped:
            self._active.append([self._framed(encode_log_end())])
        if gives_back or self.options.recycle_count == 0:
            # It will not be reused: release the space that it reserved (WAL-6).
            reserved_bytes = self._segment_bytes if self._is_reserved else 0
            if self._stamped and self._active.position < reserved_bytes:
                self._active.file.sync()
            self._active.file.truncate_to_position()
        self._active.file.close()

    def _mark_first_log(self) -> None:
        """Mark the log that a writer begins with.

        Until then the mark names a log of the previous writer, which must not be deleted earlier.
        """
        try:
            self._active.file.sync()
            self._check_begun()
            self._write_mark()
        except BaseException:
            self._active.file.close()
            raise

    def _try_to_mark(self, *, is_closed: bool = False) -> None:
        """Write the mark, or leave it to the next sync (WAL-5)."""
        try:
            self._write_mark(is_closed=is_closed)
        except NeveError as error:
            path = self._active.file.path
            logger.warning("could not mark how far the log went log=%s cause=%s", path, error)

    def _write_mark(self, *, is_closed: bool = False) -> None:
        """Record outside of the log how far it is durable."""
        assert self._marks is not None
        assert self._nonce is not None
        self._marks.write(
            self._active.log_number,
            rows=range(self._first_sequence, self._durable_through + 1),
            nonce=self._nonce,
            is_closed=is_closed,
        )
        self._is_mark_due = False

    def _begin_first_log(self, number: int) -> SegmentWriter:
        """Begin a log, without reserved space if the disk is full.

        So a table on a full disk can be opened, to expire Versions and delete their files.
        """
        try:
            return self._open_segment(self._make_file(number), number)
        except StorageFull:
            file = self._logs.create(self._log_path(number))
            return self._open_segment(file, number, is_reserved=False)

    def _make_file(self, number: int) -> AppendFile:
        path = self._log_path(number)
        preallocate_bytes = self.options.segment_bytes if self.options.preallocate else 0
        while self._spare_paths:
            spare = self._spare_paths.pop()
            try:
                file = self._logs.recycle(spare, new_path=path, preallocate_bytes=preallocate_bytes)
            except NotFound:
                continue
            except NeveError:
                self._spare_paths.append(spare)
                raise
            self._recorder.add(WAL_RECYCLED, 1)
            return file
        return self._logs.create(path, preallocate_bytes=preallocate_bytes)

    def _open_segment(
        self, file: AppendFile, number: int, *, is_reserved: bool = True
    ) -> SegmentWriter:
        segment = SegmentWriter(
            file, log_number=number, dialect=self.options.dialect, recyclable=self._stamped
        )
        self._first_sequence, self._synced_to = self._next_sequence, -1
        self._append_durably = file.append_durably if isinstance(file, AppendsDurably) else None
        self._is_reserved = is_reserved and self.options.preallocate
        if self._stamped:
            self._nonce = self._ids.uuid().int & _U64_MAX
            start = self._framed(encode_log_start(self._log_start(number)))
            self._guard(lambda: segment.append([start]), file.path)
            self._is_mark_due = self._owner is not None
        return segment

    def _log_start(self, number: int) -> LogStart:
        reserved_bytes = self.options.segment_bytes if self._is_reserved else 0
        if self._owner is None:
            return LogStart(number, reserved_bytes=reserved_bytes)
        return LogStart(number, self._owner.table, self._owner.epoch, reserved_bytes)

    def _framed(self, changes: EncodedChanges) -> tuple[bytes | memoryview, ...]:
        return frame_batch(changes, self._next_sequence, self._durable_through, self._nonce)

    def _guard(self, step: Callable[[], None], path: str) -> None:
        """Run a step; if it fails, only reopening shows the state of the log."""
        try:
            step()
        except BaseException as error:
            self._poison(error, path)
            raise

    def _poison(self, error: BaseException, path: str) -> None:
        self._unusable = Closed(
            f"the log failed ({cause_of(error)})",
            path=path,
            hint="close every handle of the table, then reopen it: it recovers what is durable",
        )
        logger.error("poisoned log=%s cause=%r", path, error)

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise Closed(self._unusable.message, path=self._unusable.path, hint=self._unusable.hint)
