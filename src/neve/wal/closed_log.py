"""ClosedLog: a log that is no longer written, and is kept until its rows are in data files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLog:
    """A log that is no longer written; its rows are those below `end_sequence`."""

    number: int
    path: str
    end_sequence: int
