"""Time-boxed, seeded runs: the same code is a gate in `make test` and torture in `make torture`.

A gate stops at its aim or when its time is up, whichever comes first, and says how far it came.
Torture aims at the full count and has its own time, endless by default. Seeds are 0, 1, 2, …, so a
failure is replayed by its number.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

TORTURE = os.environ.get("NEVE_TORTURE") == "1"
GATE_SECONDS = float(
    os.environ.get("NEVE_TORTURE_SECONDS", "inf")
    if TORTURE
    else os.environ.get("NEVE_GATE_SECONDS", "10")
)


def count_of(*, gate: int, full: int) -> int:
    """Return how often to repeat what is not boxed by time; boxed torture takes a fifth."""
    if not TORTURE:
        return gate
    return full if float("inf") == GATE_SECONDS else max(gate, full // 5)


@dataclass(slots=True)
class Gate:
    """Counts cases of one figure of the scoreboard until its aim or its time is reached."""

    figure: str
    aim: int
    full: int
    cases: int = 0
    violations: int = 0

    def seeds(self, *, at_least: int = 1) -> Iterator[int]:
        """Yield seed after seed while there is time; the caller counts cases as they come.

        The first `at_least` are yielded however long they take.
        """
        goal = self.full if TORTURE else self.aim
        ends_at = time.monotonic() + GATE_SECONDS
        seed = 0
        while self.cases < goal and (seed < at_least or time.monotonic() < ends_at):
            yield seed
            seed += 1

    def line(self) -> str:
        """Return the figure as one line of the scoreboard."""
        goal = self.full if TORTURE else self.aim
        kind = "full" if TORTURE else "gate"
        return f"{self.figure}: {self.violations} of {self.cases:,} ({kind} aim {goal:,})"
