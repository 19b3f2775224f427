"""What replay does when a log cannot be read to its end, and what it says about it afterwards."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from neve.wal.segment_reader import Damage


class RecoveryMode(StrEnum):
    """How much damage a caller accepts; each has the meaning of RocksDB's mode beside it."""

    TOLERATE_TORN_TAIL = "tolerate_torn_tail"
    """A torn tail of the last log ends replay; anything else refuses (kTolerateCorruptedTail…)."""
    ABSOLUTE = "absolute"
    """Any damage refuses (kAbsoluteConsistency)."""
    POINT_IN_TIME = "point_in_time"
    """Replay everything before the first damage, nothing behind it (kPointInTimeRecovery)."""
    SKIP_CORRUPT = "skip_corrupt"
    """Replay whatever can be read; leaves holes (kSkipAnyCorruptedRecords)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing replay met that was not a record in its place."""

    path: str
    offset: int
    what: str
    dropped_bytes: int = 0

    @classmethod
    def of(cls, damage: Damage, *, path: str) -> Self:
        """Place what a reader met in its file."""
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
    """What a replay read, dropped and where it stopped; complete once the replay is exhausted."""

    log_count: int = 0
    batch_count: int = 0
    row_count: int = 0
    next_sequence: int | None = None
    log_starts: dict[int, int] = field(default_factory=dict)
    """Where the rows of each log begin, by its number; without logs that no row is taken from."""
    problems: list[Problem] = field(default_factory=list)
    torn_tail: bool = False
    """Whether the last log ends in writes that were never acknowledged."""
    stopped_early: bool = False
    """Whether `point_in_time` left readable batches out."""

    @property
    def dropped_bytes(self) -> int:
        """Bytes that could not be read as records."""
        return sum(problem.dropped_bytes for problem in self.problems)
