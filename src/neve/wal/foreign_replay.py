"""Replay of logs that RocksDB, LevelDB or merutable wrote, with RocksDB's four recovery modes.

Foreign logs do not say how far they were durable, so damage is judged as RocksDB judges it:

    met                            tolerate_torn_tail   absolute   point_in_time   skip_corrupt
    torn header, body or record    ends the log         refuses    stops           ends the log
    bad checksum or length         refuses ¹            refuses    stops           goes on
    any other damage               refuses              refuses    stops           goes on
    record of an earlier log       ends the log         ends       ends            goes on
    whole record, not a batch      refuses              refuses    refuses         refuses
    failed read                    fails                fails      fails           goes on

¹ in a recycled log it ends the log: old bytes and damage look the same there.

After `point_in_time` stopped, or ended a log at a record of an earlier one, a later log is replayed
only if it begins exactly at the row that is due: the logs were recovered before, and continued from
there. A record with a matching checksum that is not a batch of puts and deletes was written by
something that neve does not read, or spans a lost block; no mode can skip it.
"""

from collections.abc import Iterator, Sequence

from neve.errors import Corruption, NeveError, Unavailable
from neve.model.write_batch import SEQUENCE_MAX
from neve.storage.object_store import ObjectStore
from neve.wal.batch_codec import FRAME_BYTES, LoggedBatch, decode_batch
from neve.wal.record_format import Dialect
from neve.wal.replay import LogFile, Problem, RecoveryMode, ReplayReport
from neve.wal.segment_reader import (
    TORN_TAIL,
    Damage,
    DamageKind,
    Record,
    SegmentEnd,
    SegmentReader,
    Stale,
)

_UNTRUSTED_IN_RECYCLED = (DamageKind.BAD_LENGTH, DamageKind.CHECKSUM_MISMATCH)


class ForeignReplay:
    """Iterates over the batches of foreign logs, once; `report` is complete afterwards."""

    def __init__(
        self,
        store: ObjectStore,
        logs: Sequence[LogFile],
        *,
        mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL,
        dialect: Dialect | None = None,
    ) -> None:
        """Without a dialect, each log's first record decides."""
        self.report = ReplayReport()
        self._store = store
        self._logs = sorted(logs, key=lambda log: log.number)
        self._mode = mode
        self._dialect = dialect
        self._stopped = False

    def __iter__(self) -> Iterator[LoggedBatch]:
        """Yield every batch in log order; raises Corruption as the mode says."""
        self.report.log_count = len(self._logs)
        for log in self._logs:
            yield from self._replay_log(log)

    def _replay_log(self, log: LogFile) -> Iterator[LoggedBatch]:
        path = log.path
        reader = SegmentReader(
            lambda offset, length: self._store.get_range(path, start=offset, length=length),
            dialect=self._dialect,
            log_number=log.number,
        )
        for event in reader:
            if isinstance(event, Record):
                outcome = self._read_batch(reader, log, event)
                if isinstance(outcome, Problem):
                    if self._ends_log(outcome, None, reader):
                        return
                elif self._resumes(outcome):
                    self._count(outcome)
                    yield outcome
                else:
                    return
            elif isinstance(event, Damage):
                if self._ends_log(Problem.of(event, path=log.path), event.kind, reader):
                    return
            elif isinstance(event, SegmentEnd):
                return
            elif not self._skips:
                assert isinstance(event, Stale)
                self._stopped = self._mode is RecoveryMode.POINT_IN_TIME
                return

    def _ends_log(self, problem: Problem, kind: DamageKind | None, reader: SegmentReader) -> bool:
        """Decide whether replay ends this log here; raises Corruption when it must not go on."""
        self.report.problems.append(problem)
        if kind is DamageKind.UNSUPPORTED_TYPE:
            raise Corruption(
                problem.what,
                path=problem.path,
                offset=problem.offset,
                hint="write the log without compression and user timestamps",
            )
        if kind is DamageKind.READ_ERROR and not self._skips:
            raise Unavailable(
                problem.what,
                path=problem.path,
                offset=problem.offset,
                hint="try again; recovery mode 'skip_corrupt' goes on with the next log",
            )
        torn = kind in TORN_TAIL
        match self._mode:
            case RecoveryMode.SKIP_CORRUPT:
                return False
            case RecoveryMode.POINT_IN_TIME:
                self._stopped = True
                self.report.stopped_early = True
                return True
            case RecoveryMode.TOLERATE_TORN_TAIL if torn or (
                reader.recyclable and kind in _UNTRUSTED_IN_RECYCLED
            ):
                self.report.torn_tail = True
                return True
            case _:
                raise Corruption(
                    problem.what,
                    path=problem.path,
                    offset=problem.offset,
                    hint="use recovery mode 'point_in_time' to read what is before it",
                )

    def _resumes(self, logged: LoggedBatch) -> bool:
        if logged.sequence == self.report.next_sequence:
            self._stopped = False
        self.report.stopped_early = self._stopped
        return not self._stopped

    def _count(self, logged: LoggedBatch) -> None:
        self.report.batch_count += 1
        self.report.row_count += logged.next_sequence - logged.sequence
        self.report.next_sequence = logged.next_sequence

    def _read_batch(
        self, reader: SegmentReader, log: LogFile, record: Record
    ) -> LoggedBatch | Problem:
        """Read a record's batch; a Problem when it does not even have a batch's frame."""
        assert reader.dialect is not None
        payload = record.payload
        try:
            return decode_batch(payload, dialect=reader.dialect)
        except NeveError as error:
            sequence = int.from_bytes(payload[:8], "little")
            if len(payload) >= FRAME_BYTES and sequence <= SEQUENCE_MAX:
                raise Corruption(
                    f"a whole record is not a batch of puts and deletes: {error.message}",
                    path=log.path,
                    offset=record.offset,
                    hint="read the log with the system that wrote it",
                ) from error
            return Problem(
                path=log.path,
                offset=record.offset,
                what=error.message,
                dropped_bytes=len(payload),
            )

    @property
    def _skips(self) -> bool:
        return self._mode is RecoveryMode.SKIP_CORRUPT
