"""Where reading a log ends, and why.

    closed          the log's LogEnd was read
    end of file     the last record ends where the file ends
    never written   only zeros follow: space reserved ahead
    stale           records of an earlier log follow: the file was recycled
    torn tail       a writer died here; the rows after it were never acknowledged
    damage          rows that may have been acknowledged cannot be read: recovery refuses

WAL-31  A log of neve's own is judged as `Replay` in mode `tolerate_torn_tail` judges the last log
        of a table: by what whole records after the end say about how far the log was durable.
        If replay refuses the log, the offset and the message are those of its Corruption.
WAL-32  Any other log is judged as `ForeignReplay` in the same mode.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from neve.errors import LimitExceeded, NeveError, Unavailable
from neve.wal.durability import claims_after, cut_file, lost_rows
from neve.wal.inspected_batch import AppliedEntry, InspectedBatch
from neve.wal.record_format import HEADER_BYTES, Dialect
from neve.wal.segment_reader import TORN_TAIL, Damage, DamageKind, ReadAt, SegmentEnd, Stale

_UNTRUSTED_IN_RECYCLED: Final = (DamageKind.BAD_LENGTH, DamageKind.CHECKSUM_MISMATCH)
_LOG_NUMBER_BITS: Final = 0xFFFFFFFF
_TORN: Final = "a writer that died leaves this; rows after it were never acknowledged"


class EndReason(StrEnum):
    """Why reading ends where it ends."""

    CLOSED = "closed"
    END_OF_FILE = "end of file"
    UNWRITTEN = "never written"
    STALE = "stale"
    TORN_TAIL = "torn tail"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIdentity:
    """What the first readable record says about the whole log; None without such a record."""

    dialect: Dialect | None
    recyclable: bool | None
    """Whether headers carry the log number."""
    log_number: int | None

    @property
    def is_own(self) -> bool:
        """Whether neve wrote it in its own dialect, with stamps that say how far it was durable."""
        return self.dialect is Dialect.CRC32C and self.recyclable is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Where reading ends and why, with totals."""

    offset: int
    reason: EndReason
    detail: str
    file_bytes: int
    record_count: int
    """Whole records, including those after the end."""
    records_behind_end: int
    """Those of them that recovery does not reach."""
    row_count: int
    """Sequence numbers that batches before the end take."""
    rows_behind_end: int
    """Sequence numbers that readable batches after it take."""
    damage_count: int
    """Places that are damaged; the remains of an earlier log after the end do not count."""
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class _Stop:
    """The first thing that was not the next record."""

    offset: int
    reason: EndReason
    detail: str
    is_final: bool = False
    """Whether nothing found later can change it."""


class EndingJudge:
    """Follows a reader through a log, and says at the end where recovery would have stopped."""

    def __init__(self, read_at: ReadAt, identity: LogIdentity, *, from_start: bool) -> None:
        self._read_at = read_at
        self._identity = identity
        self._from_start = from_start
        self._stop: _Stop | None = None
        self._expected: int | None = None
        self._nonce: int | None = None
        self._start: tuple[int, int] | None = None
        """Sequence that the log begins at, and how many bytes were reserved for it."""
        self._durable_through = 0
        self._record_count = 0
        self._records_behind = 0
        self._row_count = 0
        self._rows_behind = 0
        self._damage_count = 0
        self._dropped_bytes = 0
        self._file_bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether recovery has stopped before what comes next."""
        return self._stop is not None

    def saw_batch(
        self, offset: int, batch: InspectedBatch, *, end_offset: int, byte_count: int
    ) -> bool:
        """Note a record that holds a batch; return whether recovery stops before it."""
        self._record_count += 1
        self._stop = self._stop or self._stop_before(offset, batch, byte_count)
        row_count = 0
        if batch.sequence is not None and batch.next_sequence is not None and not batch.problem:
            row_count = batch.next_sequence - batch.sequence
            # The number of an application's batch takes a sequence number, and is not a row.
            row_count -= sum(isinstance(entry, AppliedEntry) for entry in batch.entries)
        if self._stop is not None:
            self._records_behind += 1
            self._rows_behind += row_count
            return True
        self._expected = batch.next_sequence
        if batch.stamps is None:
            self._nonce = None
        else:
            self._nonce = batch.stamps.nonce
            self._durable_through = batch.stamps.durable_through
            if batch.stamps.log_start is not None and batch.sequence is not None:
                self._start = batch.sequence, batch.stamps.log_start.reserved_bytes
        self._row_count += row_count
        if batch.stamps is not None and batch.stamps.log_end:
            detail = "the log was closed in good order"
            self._stop = _Stop(end_offset, EndReason.CLOSED, detail, is_final=True)
        return False

    def saw_edit(self, offset: int, problem: str | None, *, byte_count: int) -> bool:
        """Note a record that holds a version edit; return whether it is after the end."""
        self._record_count += 1
        if problem is not None:
            self._count_damage(byte_count)
            self._stop = self._stop or _Stop(offset, EndReason.DAMAGE, problem)
        if self._stop is not None:
            self._records_behind += 1
        return self._stop is not None

    def saw_damage(self, damage: Damage, *, recyclable: bool | None) -> None:
        """Note bytes that are not a record, in a log with such headers."""
        if self._stop is None:
            untrusted = recyclable is True and damage.kind in _UNTRUSTED_IN_RECYCLED
            torn = untrusted or damage.kind in TORN_TAIL
            reason = EndReason.TORN_TAIL if torn else EndReason.DAMAGE
            self._stop = _Stop(damage.offset, reason, damage.kind.value)
        if self._stop.reason not in (EndReason.CLOSED, EndReason.STALE):
            self._count_damage(damage.dropped_bytes)

    def saw_stale(self, stale: Stale) -> None:
        """Note a record of an earlier log."""
        if self._stop is None:
            detail = f"a record of log {stale.log_number} follows: the file was recycled or renamed"
            self._stop = _Stop(stale.offset, EndReason.STALE, detail)

    def gave_up(self, error: NeveError) -> Ending:
        """Return the ending of a log that no reader can go on with."""
        self._count_damage(0)
        stop = self._stop or _Stop(error.offset or 0, EndReason.DAMAGE, error.message)
        return self._ending(stop)

    def ending(self, end: SegmentEnd) -> Ending:
        """Return the ending, once the reader is at the end of the file."""
        self._file_bytes = end.file_bytes
        stop = self._stop
        if stop is None and end.file_bytes - end.offset < HEADER_BYTES:
            stop = _Stop(end.offset, EndReason.END_OF_FILE, "the file ends after the last record")
        elif stop is None:
            detail = "zeros follow: space reserved ahead and never written"
            stop = _Stop(end.offset, EndReason.UNWRITTEN, detail)
        if self._identity.is_own and not stop.is_final:
            stop = self._judged_by_claims(stop)
        if stop.reason is EndReason.TORN_TAIL:
            stop = _Stop(stop.offset, stop.reason, f"{stop.detail}: {_TORN}")
        return self._ending(stop)

    def _ending(self, stop: _Stop) -> Ending:
        return Ending(
            offset=stop.offset,
            reason=stop.reason,
            detail=stop.detail,
            file_bytes=self._file_bytes,
            record_count=self._record_count,
            records_behind_end=self._records_behind,
            row_count=self._row_count,
            rows_behind_end=self._rows_behind,
            damage_count=self._damage_count,
            dropped_bytes=self._dropped_bytes,
        )

    def _count_damage(self, dropped_bytes: int) -> None:
        self._damage_count += 1
        self._dropped_bytes += dropped_bytes

    def _stop_before(self, offset: int, batch: InspectedBatch, byte_count: int) -> _Stop | None:
        """Say why recovery does not read this batch; None when it does."""
        is_first = self._identity.is_own and self._from_start and offset == 0
        if batch.sequence is None or batch.next_sequence is None or batch.problem is not None:
            self._count_damage(byte_count)
            what = batch.problem or "not a batch"
            return _Stop(offset, EndReason.DAMAGE, what, is_final=is_first)
        if is_first and not self._begins_log(batch):
            self._count_damage(0)
            what = f"the file does not begin as log {self._identity.log_number}"
            return _Stop(offset, EndReason.DAMAGE, what, is_final=True)
        wrong = self._misplaced(offset, batch) if self._identity.is_own else None
        if wrong is not None:
            self._count_damage(0)
            return _Stop(offset, EndReason.DAMAGE, wrong)
        return None

    def _begins_log(self, batch: InspectedBatch) -> bool:
        number = self._identity.log_number
        start = None if batch.stamps is None else batch.stamps.log_start
        if start is None or number is None:
            return False
        return start.log_number & _LOG_NUMBER_BITS == number & _LOG_NUMBER_BITS

    def _misplaced(self, offset: int, batch: InspectedBatch) -> str | None:
        """Say why this batch is not the one that is due; None when it is."""
        if self._expected is None:
            is_start_missing = self._from_start and offset != 0
            return "the log has no record at its beginning" if is_start_missing else None
        if batch.stamps is None or batch.stamps.nonce != self._nonce:
            return "not a record of this log"
        if batch.sequence != self._expected:
            return f"row {batch.sequence:,} follows where row {self._expected:,} is due"
        return None

    def _judged_by_claims(self, stop: _Stop) -> _Stop:
        """Check with the records after the end whether durable rows are missing."""
        has_no_start = self._expected is None and self._from_start
        if has_no_start:
            # A log without its first record is not read at all.
            stop = _Stop(0, stop.reason, stop.detail)
        is_problem = stop.reason in (EndReason.DAMAGE, EndReason.TORN_TAIL)
        try:
            lost = self._lost_rows(stop.offset)
        except Unavailable:
            return stop
        if lost is not None:
            if not is_problem:
                self._count_damage(0)
            what = stop.detail if is_problem else "the log ends too early"
            what = "damaged first record" if has_no_start else what
            return _Stop(stop.offset, EndReason.DAMAGE, f"{what}: {lost}")
        if stop.reason is EndReason.DAMAGE:
            return _Stop(stop.offset, EndReason.TORN_TAIL, stop.detail)
        return stop

    def _lost_rows(self, from_offset: int) -> str | None:
        """Describe rows that were durable and cannot be read; None if there are none."""
        assert self._identity.log_number is not None, "an own log has its number in every header"
        claims = claims_after(
            self._read_at,
            from_offset=from_offset,
            log_number=self._identity.log_number,
            nonce=self._nonce,
        )
        try:
            lost = lost_rows(claims, due=self._expected)
        except LimitExceeded as error:
            return error.message
        if lost is not None and self._expected is None and not self._from_start:
            return "rows that were durable cannot be read; reading from the beginning shows which"
        if lost is not None:
            return lost.words
        if self._start is None or self._durable_through < self._start[0]:
            return None  # no evidence that the file, and with it its length, was ever synced
        due = self._expected or 0
        return cut_file(size=self._file_bytes, reserved_bytes=self._start[1], due=due)
