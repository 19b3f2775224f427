"""The live log: gives sequence numbers, makes batches durable, rotates, recycles, truncates.

Steps of an append, in one function (`_commit_group`; `_commit_one` when a batch is alone):

1. give each batch its sequence numbers and frame it
2. append the group to the active log
3. sync, as the policy says
4. apply the batches, in sequence order
5. acknowledge

Steps of a rotation: make the next file; sync the full log and write its LogEnd; write LogStart.
The mark (`neve.wal.durability`) follows with the first sync of the new log: a rotation costs no sync
more, and no row of the log is acknowledged as durable before the mark names the log.

W1  Sequence and log numbers only grow.
W2  Every log but the last was synced to its end before the next one got its first record.
    Logs found at open are synced before the new log begins.
W3  A failed append or sync fails its whole group with OutcomeUnknown and poisons the log: nothing
    is acknowledged any more, and what is durable is found out by reopening. An interrupt does so
    from the first byte on; before it, nothing has happened.
W4  Under `group` and `always` a batch is applied only after it is durable.
W5  The mark says nothing that is not durable. One that cannot be written is tried again with the
    next sync: it guards against damage, and rows are durable without it.
W6  A file is made shorter than was reserved for it only after its LogEnd was synced: a log that was
    synced, has no LogEnd and is shorter was cut by something else.
"""

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

from neve.errors import (
    Closed,
    InvalidArgument,
    LimitExceeded,
    NeveError,
    NotFound,
    OutcomeUnknown,
    StorageFull,
)
from neve.model.write_batch import SEQUENCE_MAX
from neve.observability.metrics import (
    WAL_DELETED,
    WAL_RECYCLED,
    WAL_ROTATIONS,
    WAL_SYNC_SECONDS,
    WAL_SYNCS,
    NoRecorder,
    Recorder,
)
from neve.storage.append_file import AppendFile, AppendFiles
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.commit_queue import CommitQueue, Latch
from neve.storage.object_store import ObjectStore
from neve.wal.batch_codec import (
    EncodedChanges,
    LogStart,
    check_size,
    encode_log_end,
    encode_log_start,
    frame_batch,
)
from neve.wal.durability import LogMark, LogOwner
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.record_format import Dialect
from neve.wal.replay import LogFile
from neve.wal.segment_writer import SegmentWriter
from neve.wal.write_ahead_log import (
    Apply,
    ClosedLog,
    LogStretch,
    PendingAppend,
    cause_of,
    interrupted_before_writing,
    outcome_unknown,
    record_append,
    stretches_of,
)

logger = logging.getLogger(__name__)

_U64_MAX: Final = (1 << 64) - 1

Decide = Callable[[], tuple[EncodedChanges, Apply | None] | None]
"""Makes the batch to log, and what applies it; None when nothing is to be logged."""


class WriteAheadLog:
    """One table's live log; safe for many threads."""

    def __init__(
        self,
        *,
        files: AppendFiles,
        store: ObjectStore,
        log_path: Callable[[int], str],
        next_log_number: int,
        next_sequence: int,
        older_logs: Sequence[LogFile] = (),
        owner: LogOwner | None = None,
        options: LogOptions | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        recorder: Recorder | None = None,
        make_latch: Callable[[], Latch] = Lock,
    ) -> None:
        """Begin a new log; `older_logs` have been replayed and await `truncate_below`.

        Without an owner the log belongs to no table, and no mark says how far it went.
        """
        if next_sequence < 1 or next_log_number < 1:
            raise InvalidArgument("sequence and log numbers begin at 1")
        # fixed at construction
        self.options = options or LogOptions()
        self._files = files
        self._store = store
        self._log_path = log_path
        self._owner = owner if self.options.dialect is Dialect.CRC32C else None
        known = None if owner is None else owner.owned_from
        self._owned_from = next_log_number if known is None else known
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._recorder = recorder or NoRecorder()
        self._stamped = self.options.dialect is Dialect.CRC32C
        self._segment_bytes = self.options.segment_bytes
        self._waits = self.options.sync.waits
        self._interval_seconds = (
            self.options.sync_interval_seconds if self.options.sync is SyncPolicy.INTERVAL else None
        )
        self._records = not isinstance(self._recorder, NoRecorder)
        always = self.options.sync is SyncPolicy.ALWAYS
        self._queue: CommitQueue[PendingAppend] = CommitQueue(
            self._commit_group,
            group_bytes_max=1 if always else self.options.group_bytes_max,
            make_latch=make_latch,
        )
        # owned by whoever the queue lets commit
        self._next_sequence = next_sequence
        self._durable_through = next_sequence - 1
        self._closed_logs = [
            ClosedLog(
                number=log.number,
                path=log.path,
                end_sequence=next_sequence,
                first_sequence=log.first_sequence,
            )
            for log in older_logs
        ]
        self._spare_paths: list[str] = []
        self._unusable: Closed | None = None
        self._nonce: int | None = None
        self._first_sequence = next_sequence
        self._is_mark_due = self._is_reserved = False
        self._synced_at = self._clock.monotonic()
        self._adopt(older_logs)
        self._active = self._begin_first_log(next_log_number)
        if self._is_mark_due:
            self._mark_first_log()

    @property
    def next_sequence(self) -> int:
        """Sequence number the next row gets."""
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

    def append(self, changes: EncodedChanges, *, apply: Apply | None = None) -> int:
        """Log a batch and give its first sequence number; returns as the sync policy says.

        Raises LimitExceeded for a batch that is too large, OutcomeUnknown when it may or may not
        survive, and Closed when the log is.
        """
        check_size(changes)
        turn = self._queue.lead()
        if turn:
            try:
                return self._commit_one(changes, apply)
            finally:
                try:
                    self._queue.pass_on(turn)
                except BaseException:
                    self._queue.pass_on(turn)  # it may have been interrupted before it did anything
                    raise
        work = PendingAppend(changes, apply)
        self._queue.submit(work)
        return work.outcome()

    def append_decided(self, decide: Decide) -> int | None:
        """Log a batch that is decided on while no other can come before it; None when none is.

        `decide` sees every batch before it applied; others wait meanwhile. What it raises is
        raised, and nothing is logged.
        """
        sequence: int | None = None

        def run() -> None:
            nonlocal sequence
            decided = decide()
            if decided is not None:
                changes, apply = decided
                check_size(changes)
                sequence = self._commit_one(changes, apply)

        self._queue.run_alone(run)
        return sequence

    def run_alone(self, action: Callable[[], None]) -> None:
        """Run something while no batch is logged or applied."""
        self._queue.run_alone(action)

    def sync_once(self) -> bool:
        """Sync what is not durable yet; False when there was nothing to do."""
        worked = False

        def sync() -> None:
            nonlocal worked
            self._check_usable()
            if self._durable_through < self._next_sequence - 1:
                self._guard(self._sync_active, self._active.file.path)
                worked = True

        self._queue.run_alone(sync)
        return worked

    def rotate(self, *, then: Callable[[], None] | None = None) -> int:
        """Close the active log and begin the next one; gives the closed one's number.

        `then` is called before any batch is appended to the new log.
        """
        closed = self._active.log_number

        def rotate() -> None:
            nonlocal closed
            self._check_usable()
            closed = self._active.log_number
            self._rotate()
            if then is not None:
                then()

        self._queue.run_alone(rotate)
        return closed

    def floor_for(self, flushed_sequence: int) -> int:
        """Lowest log number that still holds rows above `flushed_sequence`."""
        floor = 0

        def find() -> None:
            nonlocal floor
            needed = [log for log in self._closed_logs if log.end_sequence > flushed_sequence + 1]
            floor = needed[0].number if needed else self._active.log_number

        self._queue.run_alone(find)
        return floor

    def stretches(self, *, first: int, last: int) -> tuple[LogStretch, ...]:
        """Where the rows with these sequence numbers lie, in logs that are still kept."""
        found: tuple[LogStretch, ...] = ()

        def find() -> None:
            nonlocal found
            active = self._active
            logs = [(log.number, log.path, log.first_sequence) for log in self._closed_logs]
            logs.append((active.log_number, active.file.path, self._first_sequence))
            found = stretches_of(logs, first=first, last=last)

        self._queue.run_alone(find)
        return found

    def truncate_below(self, floor: int) -> int:
        """Let go of closed logs with a lower number; gives how many. They may be recycled."""
        dropped = 0

        def truncate() -> None:
            nonlocal dropped
            obsolete = [log for log in self._closed_logs if log.number < floor]
            for log in obsolete:
                if len(self._spare_paths) < self.options.recycle_count and self._stamped:
                    self._spare_paths.append(log.path)
                else:
                    self._store.delete(log.path)
                    self._recorder.add(WAL_DELETED, 1)
                self._closed_logs.remove(log)
                dropped += 1

        self._queue.run_alone(truncate)
        return dropped

    def drop_spares(self) -> int:
        """Delete the logs that are kept to be written over; gives how many."""
        dropped = 0

        def drop() -> None:
            nonlocal dropped
            dropped = self._drop_spares()

        self._queue.run_alone(drop)
        return dropped

    def give_back_space(self) -> None:
        """Free what is reserved for later: spare logs, and the rest of the active one.

        That one is closed (W6), and the next one begun without reserving any space.
        """

        def give_back() -> None:
            self._check_usable()
            self._drop_spares()
            if self._is_reserved:
                self._rotate(is_reserving=False)

        self._queue.run_alone(give_back)

    def _drop_spares(self) -> int:
        dropped = 0
        while self._spare_paths:
            self._store.delete(self._spare_paths[-1])
            self._spare_paths.pop()
            self._recorder.add(WAL_DELETED, 1)
            dropped += 1
        return dropped

    def close(self) -> None:
        """Sync, write LogEnd and the mark, and release the log; closing twice is no error.

        Logs kept to be written over are deleted: the next writer begins in a directory of its own.
        """

        def close() -> None:
            if self._unusable is None:
                self._guard(lambda: self._end_active(gives_back=True), self._active.file.path)
                self._unusable = Closed("the log was closed", path=self._active.file.path)
                try:
                    self._drop_spares()
                except NeveError as error:
                    # They hold nothing that is needed; the next open finds them below the floor.
                    logger.warning("left spare logs behind cause=%s", error)
                if self._owner is not None:
                    self._try_to_mark(is_closed=True)
            self._active.file.close()

        self._queue.run_alone(close)

    def _commit_one(self, changes: EncodedChanges, apply: Apply | None) -> int:
        """Do what `_commit_group` does, for the usual case of one batch that nobody joined."""
        active = self._active
        sequence = self._next_sequence
        following = sequence + changes.row_count
        position = active.file.position
        if (
            self._unusable is not None
            or position >= self._segment_bytes
            or following > SEQUENCE_MAX
        ):
            work = PendingAppend(changes, apply)
            self._commit_group((work,))
            return work.outcome()
        payload = frame_batch(
            changes, sequence=sequence, durable_through=self._durable_through, nonce=self._nonce
        )
        try:
            self._next_sequence = following
            active.append_one(payload)
            if self._waits or (self._interval_seconds is not None and self._sync_is_due()):
                self._sync_active()
            if apply is not None:
                apply(sequence)
        except BaseException as error:
            path = active.file.path
            if self._took_back(error, position, sequence):
                raise
            self._poison(error, path)
            if isinstance(error, NeveError):
                rows = changes.row_count
                raise outcome_unknown(
                    error, path=path, first_sequence=sequence, row_count=rows
                ) from error
            raise
        if self._records:
            record_append(self._recorder, (changes,))
        return sequence

    def _commit_group(self, group: Sequence[PendingAppend]) -> None:
        """Frame, append, sync, apply; every batch of the group shares the outcome."""
        first_sequence = self._next_sequence
        position: int | None = None
        try:
            self._check_usable()
            if self._active.position >= self._segment_bytes:
                self._rotate()
            payloads = self._frame_group(group)
            position = self._active.file.position
            self._active.append(payloads)
            if self._waits or self._sync_is_due():
                self._sync_active()
            for work in group:
                if work.apply is not None:
                    work.apply(work.first_sequence)
        except BaseException as error:
            if position is not None and not self._took_back(error, position, first_sequence):
                path = self._active.file.path
                self._poison(error, path)
                for work in group:
                    rows, first = work.changes.row_count, work.first_sequence
                    work.failure = outcome_unknown(
                        error, path=path, first_sequence=first, row_count=rows
                    )
            else:
                # Nothing of this group was written, also when closing the full log failed.
                self._next_sequence = first_sequence
                known = error if isinstance(error, NeveError) else interrupted_before_writing()
                for work in group:
                    work.failure = self._unusable or known
            if not isinstance(error, NeveError):
                raise
        else:
            if self._records:
                record_append(self._recorder, [work.changes for work in group])

    def _took_back(self, error: BaseException, position: int, first_sequence: int) -> bool:
        """Undo an append that an interrupt ended before its first byte; False when it wrote."""
        if isinstance(error, NeveError) or self._active.file.position != position:
            return False
        self._active.take_back()
        self._next_sequence = first_sequence
        return True

    def _frame_group(self, group: Sequence[PendingAppend]) -> list[tuple[bytes | memoryview, ...]]:
        payloads = []
        for work in group:
            sequence = self._next_sequence
            work.first_sequence = sequence
            payloads.append(self._framed(work.changes))
            self._next_sequence = sequence + work.changes.row_count
        if self._next_sequence > SEQUENCE_MAX:
            raise LimitExceeded("the table has used up its sequence numbers", limit=SEQUENCE_MAX)
        return payloads

    def _sync_is_due(self) -> bool:
        interval = self._interval_seconds
        return interval is not None and self._clock.monotonic() - self._synced_at >= interval

    def _sync_active(self) -> None:
        reached = self._next_sequence - 1
        began_at = self._clock.monotonic()
        self._active.sync()
        self._synced_at = self._clock.monotonic()
        self._durable_through = reached
        self._recorder.add(WAL_SYNCS, 1)
        self._recorder.add(WAL_SYNC_SECONDS, self._synced_at - began_at)
        if self._is_mark_due:
            self._try_to_mark()

    def _rotate(self, *, is_reserving: bool = True) -> None:
        """Begin the next log; the full one stays as it is when no new file can be made.

        Without reserving space for it, the space of the full one is given back as well.
        """
        full = self._active
        try:
            if is_reserving:
                file = self._make_file(full.log_number + 1)
            else:
                file = self._files.create(self._log_path(full.log_number + 1))
        except OutcomeUnknown as error:
            # The name may be taken by a file that is not certain to stay.
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
            # Nobody will write over it: the space that it reserved is given back (W6).
            reserved_bytes = self._segment_bytes if self._is_reserved else 0
            if self._stamped and self._active.position < reserved_bytes:
                self._active.sync()
            self._active.file.truncate_to_position()
        self._active.file.close()

    def _mark_first_log(self) -> None:
        """Mark the log that a writer begins with.

        Until then the mark names a log of the writer before, which must not go first.
        """
        try:
            self._active.sync()
            self._write_mark()
        except BaseException:
            self._active.file.close()
            raise

    def _try_to_mark(self, *, is_closed: bool = False) -> None:
        """Write the mark, or leave it to the next sync (W5)."""
        try:
            self._write_mark(is_closed=is_closed)
        except NeveError as error:
            path = self._active.file.path
            logger.warning("could not mark how far the log went log=%s cause=%s", path, error)

    def _write_mark(self, *, is_closed: bool = False) -> None:
        """Say outside of the log how far it is durable."""
        assert self._owner is not None
        assert self._nonce is not None
        mark = LogMark(
            table=self._owner.table,
            epoch=self._owner.epoch,
            log_number=self._active.log_number,
            first_sequence=self._first_sequence,
            next_sequence=self._durable_through + 1,
            nonce=self._nonce,
            owned_from=self._owned_from,
            is_closed=is_closed,
        )
        self._store.put(self._owner.mark_path, mark.encode())
        self._is_mark_due = False

    def _adopt(self, older_logs: Sequence[LogFile]) -> None:
        """Make durable what was replayed.

        A killed writer's last rows may have been read from memory only; the new log begins behind
        them, so they must not be lost any more.
        """
        for log in older_logs:
            self._files.make_durable(log.path)

    def _begin_first_log(self, number: int) -> SegmentWriter:
        """Begin a log, without reserving its space where there is not enough.

        A table on a full disk can be opened that way, to expire Versions and delete their files.
        """
        try:
            return self._open_segment(self._make_file(number), number)
        except StorageFull:
            file = self._files.create(self._log_path(number))
            return self._open_segment(file, number, is_reserved=False)

    def _make_file(self, number: int) -> AppendFile:
        path = self._log_path(number)
        preallocate_bytes = self.options.segment_bytes if self.options.preallocate else 0
        while self._spare_paths:
            spare = self._spare_paths.pop()
            try:
                file = self._files.recycle(
                    spare, new_path=path, preallocate_bytes=preallocate_bytes
                )
            except NotFound:
                continue
            except NeveError:
                self._spare_paths.append(spare)
                raise
            self._recorder.add(WAL_RECYCLED, 1)
            return file
        return self._files.create(path, preallocate_bytes=preallocate_bytes)

    def _open_segment(
        self, file: AppendFile, number: int, *, is_reserved: bool = True
    ) -> SegmentWriter:
        segment = SegmentWriter(
            file, log_number=number, dialect=self.options.dialect, recyclable=self._stamped
        )
        self._first_sequence = self._next_sequence
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
        return frame_batch(
            changes,
            sequence=self._next_sequence,
            durable_through=self._durable_through,
            nonce=self._nonce,
        )

    def _guard(self, step: Callable[[], None], path: str) -> None:
        """Run a step whose failure leaves the log in a state that only reopening can tell."""
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
