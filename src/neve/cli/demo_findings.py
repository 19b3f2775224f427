"""What the acts of the demo find: numbers, times of many calls, and the levels of the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeAlias

from neve.notebook import LevelBar

_MICROSECONDS = 1e6
_SHOWN_IN_MICROSECONDS_BELOW = 1e-3
_SHOWN_IN_MILLISECONDS_BELOW = 1.0
_TENTHS_BELOW = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One number an act measured; with words, it is told once more at the end."""

    name: str
    value: int | float | bool
    words: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Seconds of many calls of one kind: what half of them stay below, and 99 of 100."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Latency":
        """Sum up the seconds of some calls."""
        if len(seconds) < 2:  # noqa: PLR2004 - quantiles need two
            only = seconds[0] if seconds else 0.0
            return cls(p50=only, p99=only)
        cuts = quantiles(seconds, n=100, method="inclusive")
        return cls(p50=cuts[49], p99=cuts[98])

    def __str__(self) -> str:
        return f"p50 {shown_seconds(self.p50)}, p99 {shown_seconds(self.p99)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long calls of one kind took, and how many rows a second that was."""

    name: str
    what: str
    latency: Latency
    rows_per_second: float

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Its numbers, one by one."""
        return (
            Finding(f"{self.name}_p50_microseconds", round(self.latency.p50 * _MICROSECONDS, 1)),
            Finding(f"{self.name}_p99_microseconds", round(self.latency.p99 * _MICROSECONDS, 1)),
            Finding(f"{self.name}_rows_per_second", round(self.rows_per_second)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelsFound:
    """The levels that an act left behind."""

    levels: tuple[LevelBar, ...]
    unflushed: int
    """Changes that are only in the log and in memory."""


Found: TypeAlias = Finding | Timing | LevelsFound


def shown_seconds(seconds: float) -> str:
    """Return a time in the unit that suits it: 8.4 µs, 12 ms, 1.3 s."""
    if seconds < _SHOWN_IN_MICROSECONDS_BELOW:
        number, unit = seconds * 1e6, "µs"
    elif seconds < _SHOWN_IN_MILLISECONDS_BELOW:
        number, unit = seconds * 1e3, "ms"
    else:
        number, unit = seconds, "s"
    return f"{number:.1f} {unit}" if number < _TENTHS_BELOW else f"{number:,.0f} {unit}"
