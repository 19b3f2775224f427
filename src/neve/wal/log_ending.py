"""Where reading a log ends, and why.

    closed          the log's LogEnd was read
    end of file     the last record ends where the file ends
    never written   only zeros follow: space reserved ahead
    stale           records of an earlier log follow: the file was recycled
    torn tail       a writer died here; nobody was told of the rows behind
    damage          rows that may have been acknowledged cannot be read: recovery refuses

J1  A log of neve's own is judged as `Replay` in mode `tolerate_torn_tail` judges the last log of a
    table: by what whole records behind the end say about how far the log was durable.
J2  Any other log is judged as `ForeignReplay` in the same mode.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from neve.errors import NeveError, Unavailable
from neve.wal.durable_claims import claims_behind
from neve.wal.inspected_batch import InspectedBatch
from neve.wal.record_format import HEADER_BYTES, Dialect
from neve.wal.segment_reader import TORN_TAIL, Damage, DamageKind, ReadAt, SegmentEnd, Stale

_UNTRUSTED_IN_RECYCLED: Final = (DamageKind.BAD_LENGTH, DamageKind.CHECKSUM_MISMATCH)
_TORN: Final = "a writer that died leaves this; nobody was told of rows behind it"


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
    """What the first readable record says about the whole log; None where there is none."""

    dialect: Dialect | None
    recyclable: bool | None
    """Whether headers carry the log number."""
    log_number: int | None

    @property
    def is_own(self) -> bool:
        """Whether neve wrote it for itself, with stamps that say how far it was durable."""
        return self.dialect is Dialect.CRC32C and self.recyclable is True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Where reading ends and why, and what there was in all."""

    offset: int
    reason: EndReason
    detail: str
    file_bytes: int
    record_count: int
    row_count: int
    """Sequence numbers that batches before the end take."""
    damage_count: int
    """Places that are damaged; the remains of an earlier log behind the end are none."""
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class _Stop:
    """The first thing that was not the next record."""

    offset: int
    reason: EndReason
    detail: str


class EndingJudge:
    """Follows a reader through a log, and says at the end where recovery would have stopped."""

    def __init__(self, read_at: ReadAt, identity: LogIdentity, *, from_start: bool) -> None:
        self._read_at = read_at
        self._identity = identity
        self._from_start = from_start
        self._stop: _Stop | None = None
        self._expected: int | None = None
        self._record_count = 0
        self._row_count = 0
        self._damage_count = 0
        self._dropped_bytes = 0
        self._file_bytes = 0

    @property
    def has_ended(self) -> bool:
        """Whether recovery has stopped before what comes next."""
        return self._stop is not None

    def saw_batch(
        self, offset: int, batch: InspectedBatch, *, end_offset: int, byte_count: int
    ) -> None:
        """Take note of a record that holds a batch."""
        self._record_count += 1
        if self._stop is not None:
            return
        if batch.sequence is None or batch.next_sequence is None or batch.problem is not None:
            self._count_damage(byte_count)
            self._stop = _Stop(offset, EndReason.DAMAGE, batch.problem or "not a batch")
            return
        wrong = self._misplaced(offset, batch.sequence) if self._identity.is_own else None
        if wrong is not None:
            self._count_damage(0)
            self._stop = _Stop(offset, EndReason.DAMAGE, wrong)
            return
        self._expected = batch.next_sequence
        self._row_count += batch.next_sequence - batch.sequence
        if batch.stamps is not None and batch.stamps.log_end:
            self._stop = _Stop(end_offset, EndReason.CLOSED, "the log was closed in good order")

    def saw_edit(self, offset: int, problem: str | None, *, byte_count: int) -> None:
        """Take note of a record that holds a version edit."""
        self._record_count += 1
        if problem is not None:
            self._count_damage(byte_count)
            self._stop = self._stop or _Stop(offset, EndReason.DAMAGE, problem)

    def saw_damage(self, damage: Damage, *, recyclable: bool | None) -> None:
        """Take note of bytes that are no record, in a log whose headers so far are recyclable."""
        if self._stop is None:
            untrusted = recyclable is True and damage.kind in _UNTRUSTED_IN_RECYCLED
            torn = untrusted or damage.kind in TORN_TAIL
            reason = EndReason.TORN_TAIL if torn else EndReason.DAMAGE
            self._stop = _Stop(damage.offset, reason, damage.kind.value)
        if self._stop.reason not in (EndReason.CLOSED, EndReason.STALE):
            self._count_damage(damage.dropped_bytes)

    def saw_stale(self, stale: Stale) -> None:
        """Take note of a record of an earlier log."""
        if self._stop is None:
            detail = f"a record of log {stale.log_number} follows: the file was recycled or renamed"
            self._stop = _Stop(stale.offset, EndReason.STALE, detail)

    def gave_up(self, error: NeveError) -> Ending:
        """Give the ending of a log that no reader would go on with."""
        self._count_damage(0)
        stop = self._stop or _Stop(error.offset or 0, EndReason.DAMAGE, error.message)
        return self._ending(stop)

    def ending(self, end: SegmentEnd) -> Ending:
        """Give the ending, once the reader is at the end of the file."""
        self._file_bytes = end.file_bytes
        stop = self._stop
        if stop is None and end.file_bytes - end.offset < HEADER_BYTES:
            stop = _Stop(end.offset, EndReason.END_OF_FILE, "the file ends behind the last record")
        elif stop is None:
            detail = "zeros follow: space reserved ahead and never written"
            stop = _Stop(end.offset, EndReason.UNWRITTEN, detail)
        if self._identity.is_own and stop.reason is not EndReason.CLOSED:
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
            row_count=self._row_count,
            damage_count=self._damage_count,
            dropped_bytes=self._dropped_bytes,
        )

    def _count_damage(self, dropped_bytes: int) -> None:
        self._damage_count += 1
        self._dropped_bytes += dropped_bytes

    def _misplaced(self, offset: int, sequence: int) -> str | None:
        """Say why this batch is not the one that is due."""
        if self._expected is not None and sequence != self._expected:
            return f"row {sequence:,} follows where row {self._expected:,} is due"
        if self._expected is None and self._from_start and offset != 0:
            return "the log has no record at its beginning"
        return None

    def _judged_by_claims(self, stop: _Stop) -> _Stop:
        """Let the records behind the end say whether rows are missing that were durable."""
        if self._expected is None and self._from_start:
            # A log without its first record is not read at all.
            stop = _Stop(0, stop.reason, stop.detail)
        try:
            lost = self._lost_rows(stop.offset)
        except Unavailable:
            return stop
        if lost is not None:
            if stop.reason not in (EndReason.DAMAGE, EndReason.TORN_TAIL):
                self._count_damage(0)
            return _Stop(stop.offset, EndReason.DAMAGE, f"{stop.detail}; {lost}")
        if stop.reason is EndReason.DAMAGE:
            return _Stop(stop.offset, EndReason.TORN_TAIL, stop.detail)
        return stop

    def _lost_rows(self, from_offset: int) -> str | None:
        assert self._identity.log_number is not None, "an own log has its number in every header"
        first = self._expected
        last = at = -1
        for claim in claims_behind(
            self._read_at, from_offset=from_offset, log_number=self._identity.log_number
        ):
            if self._expected is None:
                # Nothing was read, so the lowest row that any record holds is due.
                first = claim.sequence if first is None else min(first, claim.sequence)
            if claim.durable_through > last:
                last, at = claim.durable_through, claim.offset
        if first is None or last < first:
            return None
        return (
            f"the record at byte {at:,} shows that rows up to {last:,} were durable, and rows "
            f"from {first:,} cannot be read"
        )
