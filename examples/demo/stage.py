"""The stage of the demo: a lake with a table of orders, checks, measured findings, and processes.

A process that the demo starts never outlives it, also when the demo is interrupted.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import IO, Final, TypeAlias

import pyarrow as pa

from examples.demo.narrator import Narrator
from examples.demo.order_rows import DemoTable, by_key
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.errors import Corruption
from neve.notebook import LevelBar
from neve.observability.metrics import Counters
from neve.storage.clock import Clock

_ROOT: Final = str(Path(__file__).parents[2])
_MICROSECONDS: Final = 1e6
_SHOWN_IN_MICROSECONDS_BELOW: Final = 1e-3
_SHOWN_IN_MILLISECONDS_BELOW: Final = 1.0
_TENTHS_BELOW: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The lake of one run of the demo, its table of orders, and the tools to work on them."""

    root: Path
    lake: Lake
    orders: Table
    counters: Counters
    """Takes the metrics of the lake's tables."""
    clock: Clock
    table: DemoTable
    run_id: str
    """Part of every name, so that runs in one lake do not meet."""
    narrator: Narrator

    def name(self, table: str) -> str:
        """Full name of a table of this run."""
        return f"{namespace_of(self.run_id)}.{table}"

    @contextmanager
    def timed(self) -> Iterator[Callable[[], float]]:
        """Return a function that returns the seconds since the beginning, or until the end."""
        began_at = self.clock.monotonic()
        ended_at: list[float] = []
        try:
            yield lambda: (ended_at or [self.clock.monotonic()])[0] - began_at
        finally:
            ended_at.append(self.clock.monotonic())


def namespace_of(run_id: str) -> str:
    """Namespace of the tables of one run."""
    return f"demo_{run_id}"


def check_equal(found: pa.Table, due: pa.Table, what: str) -> None:
    """Raise Corruption unless the rows found, in whatever order, are exactly those due."""
    if found.num_rows != due.num_rows:
        raise Corruption(f"{what}: {found.num_rows:,} rows, {due.num_rows:,} are due")
    if not by_key(found).equals(due):
        raise Corruption(f"{what}: a row is not what was written")


def check(claim: object, what: str) -> None:
    """Raise Corruption when something the demo claims does not hold."""
    if not claim:
        raise Corruption(what, hint="This must never happen: please report it with the lake")


@dataclass(frozen=True, slots=True)
class Finding:
    """One number an act measured; with words, it is shown once more at the end."""

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
        if len(seconds) < 2:
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


@contextmanager
def child_process(
    module: str, *args: str, errors: IO[bytes] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of ours, whose output can be read; it is killed when the block ends.

    An interrupt that comes while it starts waits until there is something to kill.
    """
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: interrupts.append(number))
    try:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", module, *args],
            env=os.environ | {"PYTHONPATH": _module_path()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            # In a session of its own, so that an interrupt from the keyboard reaches only the demo.
            start_new_session=True,
        )
    except BaseException:
        signal.signal(signal.SIGINT, before)
        raise
    with child:
        try:
            signal.signal(signal.SIGINT, before)
            if interrupts and before is not signal.SIG_IGN:
                raise KeyboardInterrupt
            yield child
        finally:
            child.kill()


def _module_path() -> str:
    """Where a process of ours finds the modules of the demo, and neve."""
    return os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
