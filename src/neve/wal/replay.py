"""Replays neve's own logs in order, and decides what damage means.

Steps, for each log in ascending number:

1. Read its LogStart: the sequence it begins at says how far the logs before it count, and a log of
   a lower number that begins there or behind does not count at all. A log without one was never
   written to, unless a record in it says otherwise.
2. Give its batches while each begins where the last one ended, up to the start of the next log.
   What lies behind that was dropped by an earlier recovery.
3. At the end of the log, or at the first thing that is not the next batch, judge:
   - another log follows: it must begin where this one stopped;
   - it is the last: if any whole record behind says that rows missing here were durable, they were
     acknowledged and are lost: Corruption. Otherwise this is a torn tail, and the end.

Rows below the first one needed are in data files. They may be missing: a deleted log can come back
after power loss while the next one stays away.

R1  Sequence numbers given are contiguous, in every mode but `skip_corrupt`.
R2  A batch is given whole or not at all.
R3  Replaying twice gives the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from neve.errors import Corruption, LimitExceeded, NeveError, Unavailable
from neve.storage.object_store import ObjectStore
from neve.wal.batch_codec import LoggedBatch, decode_batch
from neve.wal.durable_claims import claims_behind, lost_rows
from neve.wal.record_format import Dialect
from neve.wal.recovery_mode import Problem, RecoveryMode, ReplayReport
from neve.wal.segment_reader import Damage, DamageKind, ReadAt, Record, SegmentReader, Stale

_SALVAGE_HINT = (
    "restore the file from a copy, or open with recovery mode 'point_in_time' (keeps what is "
    "before) or 'skip_corrupt' (keeps what can be read)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log on disk."""

    number: int
    path: str
    first_sequence: int | None = None
    """Where its rows begin, once it was replayed; None for one that no row is taken from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A log that begins properly, and the sequence it begins at."""

    log: LogFile
    sequence: int
    nonce: int


class Replay:
    """Iterates over the batches of a table's logs, once; `report` is complete afterwards."""

    def __init__(
        self,
        store: ObjectStore,
        logs: Sequence[LogFile],
        *,
        mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL,
        from_sequence: int | None = None,
    ) -> None:
        """Rows below `from_sequence` are not needed: they are in data files already."""
        self.report = ReplayReport(next_sequence=from_sequence)
        self._store = store
        self._logs = sorted(logs, key=lambda log: log.number)
        self._mode = mode
        self._first_needed = from_sequence or 0
        self._expected: int | None = None

    def __iter__(self) -> Iterator[LoggedBatch]:
        """Give every batch in sequence order; raises Corruption as the mode says."""
        self.report.log_count = len(self._logs)
        logs = self._live_logs()
        self.report.log_starts = {
            log.number: start.sequence for log, start in logs if start is not None
        }
        for index, (log, start) in enumerate(logs):
            begun_later = [later for _, later in logs[index + 1 :] if later is not None]
            limit = begun_later[0].sequence if begun_later else None
            if start is not None:
                if not self._joins(start):
                    return
                yield from self._replay_log(start, limit)
            elif limit is None and not self._skips:
                # With another log behind it, that log's start says whether rows are missing.
                self._judge_startless(log)
            if self.report.stopped_early:
                return

    def _live_logs(self) -> list[tuple[LogFile, _Start | None]]:
        """Find where each log begins, and leave out those that a later one replaced.

        A recovery that gave up logs goes on with a new one, which begins where it stopped: what
        begins there or behind, in a log of a lower number, was dropped then.
        """
        live: list[tuple[LogFile, _Start | None]] = []
        lowest: int | None = None
        for log in reversed(self._logs):
            start = self._read_start(log)
            if start is not None:
                if lowest is not None and start.sequence >= lowest:
                    continue
                lowest = start.sequence
            live.append((log, start))
        return live[::-1]

    def _joins(self, start: _Start) -> bool:
        """Check that a log begins where the ones before it ended."""
        if self._expected is None:
            # Without a word about data files, the first log there is begins the table.
            due = self._first_needed or start.sequence
        else:
            due = max(self._expected, self._first_needed)
        if self._skips or start.sequence <= due:
            self._expected = start.sequence
        else:
            self._expected = due
            self._refuse(self._gap(start.log, 0, start.sequence), "a log is missing or was cut")
            return not self.report.stopped_early
        self.report.next_sequence = max(self.report.next_sequence or 0, self._expected)
        return True

    def _replay_log(self, start: _Start, limit: int | None) -> Iterator[LoggedBatch]:
        log = start.log
        problem: Problem | None = None
        stopped_at = 0
        for event in self._reader(log):
            if isinstance(event, Record):
                outcome = self._next_batch(start, event, limit)
                if outcome is None:
                    continue
                if isinstance(outcome, LoggedBatch):
                    self._count(outcome)
                    if outcome.log_end:
                        return
                    if self._is_needed(outcome):
                        yield outcome
                    continue
                problem = outcome
            elif isinstance(event, Damage):
                self._refuse_unread(event, log)
                problem = Problem.of(event, path=log.path)
            elif isinstance(event, Stale) and self._skips:
                continue
            else:
                stopped_at = event.offset
                break
            self.report.problems.append(problem)
            if not self._skips:
                stopped_at = problem.offset
                break
        if not self._skips:
            self._judge(start, problem, stopped_at, limit)

    def _next_batch(
        self, start: _Start, record: Record, limit: int | None
    ) -> LoggedBatch | Problem | None:
        """Read the batch that is due; None for one that an earlier recovery dropped."""
        log = start.log
        logged = self._read_batch(log, record)
        if isinstance(logged, Problem):
            return logged
        if logged.nonce != start.nonce:
            return Problem(path=log.path, offset=record.offset, what="not a record of this log")
        if limit is not None and logged.sequence >= limit and logged.batch.changes:
            return None
        if logged.sequence == self._expected:
            return logged
        gap = self._gap(log, record.offset, logged.sequence)
        if not self._skips or self._expected is None or logged.sequence < self._expected:
            return gap
        self.report.problems.append(gap)
        return logged

    def _count(self, logged: LoggedBatch) -> None:
        self._expected = logged.next_sequence
        self.report.next_sequence = max(self.report.next_sequence or 0, logged.next_sequence)
        if self._is_needed(logged):
            self.report.batch_count += 1
            self.report.row_count += logged.next_sequence - logged.sequence

    def _is_needed(self, logged: LoggedBatch) -> bool:
        return bool(logged.batch.changes) and logged.next_sequence > self._first_needed

    def _judge(
        self, start: _Start, problem: Problem | None, stopped_at: int, limit: int | None
    ) -> None:
        """Decide what it means that a log stops without its LogEnd."""
        assert self._expected is not None
        if limit is None:
            lost = self._lost_rows(start.log, stopped_at, nonce=start.nonce)
            self.report.torn_tail = problem is not None and lost is None
        elif limit <= max(self._expected, self._first_needed):
            lost = None
        else:
            lost = f"rows {self._expected:,} to {limit - 1:,} are missing"
        if lost is not None or (problem is not None and self._mode is RecoveryMode.ABSOLUTE):
            ends = Problem(path=start.log.path, offset=stopped_at, what="the log ends too early")
            self._refuse(problem or ends, lost)

    def _lost_rows(self, log: LogFile, from_offset: int, *, nonce: int | None) -> str | None:
        """Say which acknowledged rows are missing, by the word of a record behind the damage."""
        claims = claims_behind(
            self._read_at(log), from_offset=from_offset, log_number=log.number, nonce=nonce
        )
        try:
            return lost_rows(claims, due=max(self._expected or 0, self._first_needed) or None)
        except LimitExceeded as error:
            return error.message

    def _judge_startless(self, log: LogFile) -> None:
        """Refuse a last log without a readable start if rows in it were durable."""
        lost = self._lost_rows(log, 0, nonce=None)
        if lost is not None:
            self._refuse(Problem(path=log.path, offset=0, what="damaged first record"), lost)

    def _refuse(self, problem: Problem, lost: str | None) -> None:
        if problem not in self.report.problems:
            self.report.problems.append(problem)
        if self._mode is RecoveryMode.POINT_IN_TIME:
            self.report.stopped_early = True
            return
        raise Corruption(
            f"{problem.what}{': ' + lost if lost else ''}",
            path=problem.path,
            offset=problem.offset,
            hint=_SALVAGE_HINT,
        )

    def _refuse_unread(self, damage: Damage, log: LogFile) -> None:
        """Stop where storage did not answer: what was not read may be sound."""
        if damage.kind is DamageKind.READ_ERROR and not self._skips:
            raise Unavailable(
                "the log could not be read",
                path=log.path,
                offset=damage.offset,
                hint="try again; nothing was changed",
            )

    def _read_start(self, log: LogFile) -> _Start | None:
        """Read how a log begins; None when it has no first record."""
        first = next(iter(self._reader(log)))
        if isinstance(first, Damage):
            self._refuse_unread(first, log)
        if not isinstance(first, Record) or first.offset != 0:
            return None
        logged = self._read_batch(log, first)
        if isinstance(logged, Problem):
            raise Corruption(logged.what, path=log.path, offset=0)
        if logged.log_start != log.number:
            raise Corruption(
                f"the file does not begin as log {log.number}",
                path=log.path,
                offset=0,
                hint="it was renamed, or written by another system: `neve inspect wal` shows it",
            )
        return _Start(log=log, sequence=logged.sequence, nonce=logged.nonce)

    def _read_batch(self, log: LogFile, record: Record) -> LoggedBatch | Problem:
        try:
            return decode_batch(
                record.payload, dialect=Dialect.CRC32C, path=log.path, offset=record.offset
            )
        except NeveError as error:
            return Problem(
                path=log.path,
                offset=record.offset,
                what=error.message,
                dropped_bytes=len(record.payload),
            )

    def _gap(self, log: LogFile, offset: int, sequence: int) -> Problem:
        return Problem(
            path=log.path,
            offset=offset,
            what=f"row {sequence:,} follows where row {self._expected:,} is due",
        )

    def _reader(self, log: LogFile) -> SegmentReader:
        return SegmentReader(
            self._read_at(log),
            dialect=Dialect.CRC32C,
            log_number=log.number,
            passes_unread=self._skips,
        )

    def _read_at(self, log: LogFile) -> ReadAt:
        return lambda offset, length: self._store.get_range(log.path, start=offset, length=length)

    @property
    def _skips(self) -> bool:
        return self._mode is RecoveryMode.SKIP_CORRUPT
