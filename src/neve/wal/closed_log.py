"""Logs that are no longer written, and stretches of the log that rows were written to."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    """A log that is kept until its rows are in data files; they are those below `end_sequence`."""

    number: int
    path: str
    end_sequence: int
    first_sequence: int | None
    """Where its rows begin; None for one that holds none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStretch:
    """Rows of one log that stand next to each other."""

    number: int
    path: str
    first: int
    last: int


def stretches_of(
    logs: Iterable[tuple[int, str, int | None]], *, first: int, last: int
) -> tuple[LogStretch, ...]:
    """Find the rows from `first` to `last` in logs of (number, path, first sequence), in order.

    A log ends where the next one begins; what lies after that was dropped by a recovery.
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
