"""Replay of neve's own logs in order; it decides what damage means.

Steps, for each log in ascending number:

1. Read its LogStart. The sequence it begins at limits the logs before it: their rows from there on
   do not count. A log without LogStart was never written to, unless a record in it says otherwise.
2. Return its batches while each begins where the last one ended, up to the start of the next log.
   An earlier recovery dropped anything after that.
3. At the end of the log, or at the first thing that is not the next batch, judge:
   - another log follows: it must begin where this one stopped;
   - it is the last: look for evidence that durable rows are missing: a whole later record that
     claims so, or a file shorter than the space reserved for it. Then read on from the last batch:
     a live writer may have continued between the two reads, but the rows of the evidence were
     there before it. Rows that still cannot be read are lost: Corruption. Without evidence this is
     a torn tail, and the end.
4. Compare with the mark, if there is one: the log it names must exist and begin as it says, and the
   rows it knows to be durable must have been read or be in data files.

A log of another table, or one that is not a plain file, is refused. Logs below `owned_from` of the
mark need not name their table: the first release wrote them.

Rows below the first one needed are in data files. They may be missing: after power loss a deleted
log can reappear without the log that followed it.

WAL-21  Sequence numbers returned are contiguous, in every mode but `skip_corrupt`.
WAL-22  A batch is returned whole or not at all.
WAL-23  Replaying twice returns the same batches.
WAL-24  A reader beside a live writer never reports damage because the writer was faster.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self, TypeAlias
from uuid import UUID

from neve.errors import Corruption, LimitExceeded, NeveError, Unavailable
from neve.storage.object_store import ObjectStore
from neve.wal.batch_codec import LoggedBatch, LogStart, decode_batch
from neve.wal.durability import MarkedLog, claims_after, cut_file, lost_rows
from neve.wal.put_records import PutReader, PutRun
from neve.wal.record_format import Dialect
from neve.wal.segment_reader import Damage, DamageKind, ReadAt, Record, SegmentReader, Stale


class RecoveryMode(StrEnum):
    """How much damage a caller accepts; each means the same as the RocksDB mode in parentheses."""

    TOLERATE_TORN_TAIL = "tolerate_torn_tail"
    """A torn tail of the last log ends replay; anything else refuses (kTolerateCorruptedTail…)."""
    ABSOLUTE = "absolute"
    """Any damage refuses (kAbsoluteConsistency)."""
    POINT_IN_TIME = "point_in_time"
    """Replay everything before the first damage, nothing after it (kPointInTimeRecovery)."""
    SKIP_CORRUPT = "skip_corrupt"
    """Replay everything that can be read; leaves holes (kSkipAnyCorruptedRecords)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that replay found in place of the next record."""

    path: str
    offset: int
    what: str
    dropped_bytes: int = 0

    @classmethod
    def of(cls, damage: Damage, *, path: str) -> Self:
        """Return the problem for damage that a reader found in a file."""
        return cls(
            path=path,
            offset=damage.offset,
            what=damage.kind.value,
            dropped_bytes=damage.dropped_bytes,
        )

    def __str__(self) -> str:
        return f"{self.what} in {self.path} at byte {self.offset}"


@dataclass(slots=True)
class ReplayReport:
    """What a replay read and dropped, and where it stopped; complete once it is exhausted."""

    log_count: int = 0
    batch_count: int = 0
    row_count: int = 0
    next_sequence: int | None = None
    log_starts: dict[int, int] = field(default_factory=dict)
    """First sequence of each log, by its number; without logs that no row was taken from."""
    problems: list[Problem] = field(default_factory=list)
    torn_tail: bool = False
    """Whether the last log ends in writes that were never acknowledged."""
    stopped_early: bool = False
    """Whether `point_in_time` left readable batches out."""

    @property
    def dropped_bytes(self) -> int:
        """Bytes that could not be read as records."""
        return sum(problem.dropped_bytes for problem in self.problems)


_SALVAGE_HINT = (
    "restore the file from a copy, or open with recovery mode 'point_in_time' (keeps what is "
    "before) or 'skip_corrupt' (keeps what can be read)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log on disk."""

    number: int
    path: str
    epoch: int | None = None
    """Epoch of its directory; None without such directories."""
    oddity: str | None = None
    """What has the log's name when it is not a plain file."""
    first_sequence: int | None = None
    """Where its rows begin, once replayed; None if no row was taken from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    """A log that is kept until its rows, which are below `end_sequence`, are in data files."""

    number: int
    path: str
    end_sequence: int
    first_sequence: int | None
    """Where its rows begin; None without rows."""

    @classmethod
    def of(cls, log: LogFile, end_sequence: int) -> Self:
        """Return a log that was replayed."""
        return cls(
            number=log.number,
            path=log.path,
            end_sequence=end_sequence,
            first_sequence=log.first_sequence,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStretch:
    """Consecutive rows of one log."""

    number: int
    path: str
    first: int
    last: int


def stretches_of(
    logs: Iterable[tuple[int, str, int | None]], *, first: int, last: int
) -> tuple[LogStretch, ...]:
    """Find the rows from `first` to `last` in logs of (number, path, first sequence), in order.

    A log ends where the next one begins; a recovery dropped anything after that.
    """
    found: list[LogStretch] = []
    end = last
    for number, path, begins in reversed([*logs]):
        if begins is None or begins > end:
            continue
        if end >= first:
            found.append(LogStretch(number=number, path=path, first=max(begins, first), last=end))
        end = begins - 1
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """A log that begins properly, and the sequence it begins at."""

    log: LogFile
    sequence: int
    nonce: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stop:
    """Where reading a log ended without its LogEnd."""

    offset: int
    problem: Problem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evidence:
    """A sign that the last log held more than was read."""

    lost: str
    through: int | None
    """Last row that was certainly durable; None when only LogEnd can show that nothing is lost."""


_LiveLog: TypeAlias = tuple[LogFile, _Start | None, int | None]
"""A log, how it begins, and the sequence that the next log begins at, if there is one."""


class Replay:
    """Iterates over the batches of a table's logs, once; `report` is complete afterwards.

    `runs` yields the same rows, and takes a fraction of the time where they were put one by one.
    """

    def __init__(
        self,
        store: ObjectStore,
        logs: Sequence[LogFile],
        *,
        mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL,
        from_sequence: int | None = None,
        table: UUID | None = None,
        marked: MarkedLog | None = None,
    ) -> None:
        """Rows below `from_sequence` are not needed: they are in data files already.

        A table refuses the logs of other tables; a mark refuses truncated and missing logs.
        """
        self.report = ReplayReport(next_sequence=from_sequence)
        self._store = store
        self._logs = sorted(logs, key=lambda log: log.number)
        self._mode = mode
        self._first_needed = from_sequence or 0
        self._table = table
        self._marked = marked
        self._refused: dict[int, Problem] = {}
        self._joins_puts = False
        self._expected: int | None = None
        self._last_offset = 0
        self._durable_through = 0
        self._stop: _Stop | None = None
        self._last_start: _Start | None = None

    @property
    def refused_paths(self) -> frozenset[str]:
        """Logs that are not this table's, or not plain files."""
        return frozenset(problem.path for problem in self._refused.values())

    def __iter__(self) -> Iterator[LoggedBatch]:
        """Yield every batch in sequence order; raises Corruption as the mode says."""
        for found in self._replay(joins_puts=False):
            assert isinstance(found, LoggedBatch)
            yield found

    def runs(self) -> Iterator[LoggedBatch | PutRun]:
        """Yield every batch as iterating does, but puts that follow each other together."""
        return self._replay(joins_puts=True)

    def _replay(self, *, joins_puts: bool) -> Iterator[LoggedBatch | PutRun]:
        self._joins_puts = joins_puts
        self.report.log_count = len(self._logs)
        logs = self._live_logs()
        for log, found, limit in logs:
            start = found
            if log.number in self._refused:
                self._refuse(self._refused[log.number], self._rows_before(limit))
            elif start is None and limit is None and not self._skips:
                # If another log follows, its start shows whether rows are missing.
                start = self._judge_startless(log)
            if start is not None:
                self.report.log_starts[log.number] = start.sequence
                if not self._joins(start):
                    return
                yield from self._replay_log(start, limit)
            if self.report.stopped_early:
                return
        self._compare_with_mark(logs)

    def _live_logs(self) -> list[_LiveLog]:
        """Find where each log and the next one begin; leave out logs that a later one replaced.

        A recovery that dropped logs begins a new one where it stopped. A log of a lower number
        that begins there or later was dropped.
        """
        live: list[_LiveLog] = []
        lowest: int | None = None
        for log in reversed(self._logs):
            start = self._read_start(log)
            if start is None or lowest is None or start.sequence < lowest:
                live.append((log, start, lowest))
                lowest = lowest if start is None else start.sequence
        return live[::-1]

    def _joins(self, start: _Start) -> bool:
        """Check that a log begins where the ones before it ended."""
        if self._expected is None:
            # If data files are not known, the table begins with its first log.
            due = self._first_needed or start.sequence
        else:
            due = max(self._expected, self._first_needed)
        if start.sequence > due:
            self._expected = due
            missing = f"a log is missing or was cut; {self._rows_before(start.sequence)}"
            self._refuse(self._gap(start.log, 0, start.sequence), missing)
            if self.report.stopped_early:
                return False
        self._expected = start.sequence
        self.report.next_sequence = max(self.report.next_sequence or 0, self._expected)
        return True

    def read_on(self) -> Iterator[LoggedBatch | PutRun]:
        """Yield what was appended to the last log since it was read, as `runs`; judges nothing.

        Whatever is not the next batch ends this: the writer may be writing it.
        """
        start = self._last_start
        if start is not None and not self.has_log_ended:
            self._joins_puts = True
            yield from self._read_batches(start, None, from_offset=self._last_offset, follows=True)
            self.report.problems.clear()

    @property
    def has_log_ended(self) -> bool:
        """Whether the last log was read to its LogEnd; `begin_next` finds the one after it."""
        return self._last_start is not None and self._stop is None

    @property
    def last_log(self) -> LogFile | None:
        """The log that was read last."""
        return None if self._last_start is None else self._last_start.log

    def begin_next(self, log: LogFile) -> bool:
        """Go on with the log after the last one; False when it has not begun there yet."""
        start = self._read_start(log)
        if start is None or start.sequence != self._expected:
            return False
        self._last_start, self._last_offset = start, 0
        self._stop = _Stop(offset=0, problem=None)
        return True

    def _replay_log(self, start: _Start, limit: int | None) -> Iterator[LoggedBatch | PutRun]:
        self._last_offset = 0
        self._last_start = start
        yield from self._read_batches(start, limit, from_offset=0)
        if self._stop is None or self._skips:
            return
        evidence = self._evidence(start, self._stop) if limit is None else None
        if evidence is not None:
            # The writer may have continued since: only what is read after the evidence counts.
            if self._stop.problem is not None:
                self.report.problems.remove(self._stop.problem)
            yield from self._read_batches(start, limit, from_offset=self._last_offset)
        if self._stop is not None:
            self._judge(start, self._stop, limit, evidence)

    def _read_batches(
        self, start: _Start, limit: int | None, *, from_offset: int, follows: bool = False
    ) -> Iterator[LoggedBatch | PutRun]:
        """Yield the batches that follow each other, and record in `_stop` why they end."""
        log = start.log
        puts = PutReader(log_number=log.number, nonce=start.nonce, limit=limit)
        puts.expected = self._expected or 0
        self._stop = None
        stopped_at = 0
        reader = self._reader(log, from_offset, ends_at_zeros=follows)
        for event in reader.with_runs(puts) if self._joins_puts else reader:
            if isinstance(event, PutRun):
                needed = self._count_run(event)
                if needed.keys:
                    yield needed
                continue
            if isinstance(event, Record):
                if from_offset and event.offset == from_offset:
                    continue  # counted before
                outcome = self._next_batch(start, event, limit)
                if outcome is None:
                    continue
                if isinstance(outcome, LoggedBatch):
                    is_needed = self._count(outcome)
                    puts.expected = outcome.next_sequence
                    self._last_offset = event.offset
                    self._durable_through = outcome.durable_through
                    if outcome.log_end:
                        return
                    if is_needed:
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
                self._stop = _Stop(offset=problem.offset, problem=problem)
                return
        self._stop = _Stop(offset=stopped_at, problem=None)

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

    def _count(self, logged: LoggedBatch) -> bool:
        """Note that a batch was read; True when its rows are not in data files."""
        report, following = self.report, logged.next_sequence
        self._expected = following
        if report.next_sequence is None or report.next_sequence < following:
            report.next_sequence = following
        if not logged.batch.changes or following <= self._first_needed:
            return False
        report.batch_count += 1
        report.row_count += following - logged.sequence
        return True

    def _count_run(self, run: PutRun) -> PutRun:
        """Note that puts were read; return those whose rows are not in data files."""
        report = self.report
        self._expected = run.next_sequence
        self._last_offset = run.offset
        self._durable_through = run.durable_through
        if report.next_sequence is None or report.next_sequence < run.next_sequence:
            report.next_sequence = run.next_sequence
        needed = run.needed(self._first_needed)
        report.batch_count += len(needed.keys)
        report.row_count += len(needed.keys)
        return needed

    @property
    def _due(self) -> int:
        """First row that is neither read nor in data files; 0 when not known."""
        return max(self._expected or 0, self._first_needed)

    def _judge(
        self, start: _Start, stop: _Stop, limit: int | None, evidence: _Evidence | None
    ) -> None:
        """Decide what it means that a log stops without its LogEnd."""
        lost = self._rows_before(limit)
        if limit is None:
            is_met = evidence is None or (
                evidence.through is not None and evidence.through < self._due
            )
            lost = None if is_met or evidence is None else evidence.lost
            self.report.torn_tail = stop.problem is not None and lost is None
        if lost is not None or (stop.problem is not None and self._mode is RecoveryMode.ABSOLUTE):
            ends = Problem(path=start.log.path, offset=stop.offset, what="the log ends too early")
            self._refuse(stop.problem or ends, lost)

    def _rows_before(self, limit: int | None) -> str | None:
        """Describe the rows missing before the log that begins at `limit`, or before the mark."""
        if limit is None:
            return None if self._marked is None else self._marked.mark.missing_rows(due=self._due)
        if limit <= self._due:
            return None
        return f"rows {self._due:,} to {limit - 1:,} are missing ({limit - self._due:,} in all)"

    def _evidence(self, start: _Start, stop: _Stop) -> _Evidence | None:
        """Look for evidence that the last log held more durable rows than were read."""
        mark = None if self._marked is None else self._marked.mark
        is_marked = self._is_marked(start.log)
        if mark is not None and is_marked:
            missing = mark.missing_rows(due=self._due)
            if missing is not None and mark.next_sequence > self._due:
                return _Evidence(lost=missing, through=mark.next_sequence - 1)
        found = self._lost_rows(start.log, stop.offset, nonce=start.nonce)
        if found is not None:
            return found
        if not is_marked and self._durable_through < start.sequence:
            return None  # no evidence that the file, and with it its length, was ever synced
        cut = cut_file(
            size=self._store.size(start.log.path),
            reserved_bytes=start.reserved_bytes,
            due=self._due,
        )
        return None if cut is None else _Evidence(lost=cut, through=None)

    def _lost_rows(self, log: LogFile, from_offset: int, *, nonce: int | None) -> _Evidence | None:
        """Return which acknowledged rows are missing, by the claims of records after the damage."""
        claims = claims_after(
            self._read_at(log), from_offset=from_offset, log_number=log.number, nonce=nonce
        )
        try:
            found = lost_rows(claims, due=self._due or None)
        except LimitExceeded as error:
            return _Evidence(lost=error.message, through=None)
        return None if found is None else _Evidence(lost=found.words, through=found.durable_through)

    def _judge_startless(self, log: LogFile) -> _Start | None:
        """Refuse a last log without a readable start if rows in it were durable.

        Return its start if it has begun in the meantime.
        """
        evidence = self._lost_rows(log, 0, nonce=None)
        if evidence is None:
            return None
        start = self._read_start(log)
        if start is None:
            problem = Problem(path=log.path, offset=0, what="damaged first record")
            self._refuse(problem, evidence.lost)
        return start

    def _is_marked(self, log: LogFile) -> bool:
        """Whether the mark names this log, and not one of the same number that another left."""
        if self._marked is None or log.number != self._marked.mark.log_number:
            return False
        return log.epoch in {None, self._marked.mark.epoch}

    def _compare_with_mark(self, logs: Sequence[_LiveLog]) -> None:
        """Compare what was read with what is known outside of the logs."""
        if self._marked is None:
            return
        mark = self._marked.mark
        found = [start for log, start, _ in logs if self._is_marked(log)]
        is_there = any(self._is_marked(log) for log in self._logs)
        begun = [start for start in found if start is not None]
        if any((each.nonce, each.sequence) != (mark.nonce, mark.first_sequence) for each in begun):
            what, lost = "this is not the log that the table wrote", self._rows_before(None)
        elif mark.log_number in self._refused:
            return  # reported already
        elif not is_there or (found and not begun):
            what = "the log lost its first record" if is_there else "the log is missing"
            lost = self._rows_before(None)
            if lost is None:
                return
        else:
            what = "the log ends too early"
            lost = mark.missing_rows(due=self._due) if mark.next_sequence > self._due else None
            if lost is None:
                return
        self._refuse(Problem(path=self._marked.path, offset=0, what=what), lost)

    def _refuse(self, problem: Problem, lost: str | None) -> None:
        if problem not in self.report.problems:
            self.report.problems.append(problem)
        if self._skips:
            return
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
        """Stop where storage did not answer: the bytes that were not read may be intact."""
        if damage.kind is DamageKind.READ_ERROR and not self._skips:
            raise Unavailable(
                "the log could not be read",
                path=log.path,
                offset=damage.offset,
                hint="try again; nothing was changed",
            )

    def _read_start(self, log: LogFile) -> _Start | None:
        """Read how a log begins; None when it has no first record."""
        if log.oddity is not None:
            self._refused[log.number] = Problem(path=log.path, offset=0, what=log.oddity)
            return None
        first = next(iter(self._reader(log)))
        if isinstance(first, Damage):
            self._refuse_unread(first, log)
        if not isinstance(first, Record) or first.offset != 0:
            return None
        logged = self._read_batch(log, first)
        if isinstance(logged, Problem):
            raise Corruption(logged.what, path=log.path, offset=0)
        begun = logged.log_start
        if begun is None or begun.log_number != log.number:
            raise Corruption(
                f"the file does not begin as log {log.number}",
                path=log.path,
                offset=0,
                hint="it was renamed, or written by another system: `neve inspect wal` shows it",
            )
        strange = self._strangeness(log, begun)
        if strange is not None:
            self._refused[log.number] = Problem(path=log.path, offset=0, what=strange)
            return None
        return _Start(
            log=log,
            sequence=logged.sequence,
            nonce=logged.nonce,
            reserved_bytes=begun.reserved_bytes,
        )

    def _strangeness(self, log: LogFile, begun: LogStart) -> str | None:
        """Say why a log does not belong to this table; None when it does, as far as it says."""
        if self._table is None:
            return None
        if begun.table is None:
            is_old = self._marked is None or log.number < self._marked.mark.owned_from
            return None if is_old else "the log does not say that it belongs to this table"
        if begun.table != self._table:
            return f"the log belongs to table {begun.table}"
        if log.epoch is not None and begun.epoch != log.epoch:
            return f"the log was written in epoch {begun.epoch}, not {log.epoch}"
        return None

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

    def _reader(
        self, log: LogFile, from_offset: int = 0, *, ends_at_zeros: bool = False
    ) -> SegmentReader:
        return SegmentReader(
            self._read_at(log),
            dialect=Dialect.CRC32C,
            log_number=log.number,
            start_offset=from_offset,
            passes_unread=self._skips,
            ends_at_zeros=ends_at_zeros,
        )

    def _read_at(self, log: LogFile) -> ReadAt:
        return lambda offset, length: self._store.get_range(log.path, start=offset, length=length)

    @property
    def _skips(self) -> bool:
        return self._mode is RecoveryMode.SKIP_CORRUPT
