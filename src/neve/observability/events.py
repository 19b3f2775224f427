"""Lifecycle events of a table, for operators and tests.

    opened      version, sequence, replayed rows        a handle began to write or read
    flushed     version, rows, seconds                  rows of the log became a Version
    compacted   version, reason, files, rows            files were rewritten
    expired     versions                                Versions were expired
    expired     version, rows                           rows past their time to live were removed
    collected   files, bytes                            garbage was deleted
    failed      step, cause                             background work is stuck
    closed                                              the handle was closed

A listener is called in the thread that did the work, after the fact. What it raises is logged and
dropped: no write fails because of a listener.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

logger = logging.getLogger(__name__)


class EventKind(StrEnum):
    """What happened."""

    OPENED = "opened"
    FLUSHED = "flushed"
    COMPACTED = "compacted"
    EXPIRED = "expired"
    COLLECTED = "collected"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleEvent:
    """One thing that happened to one table."""

    kind: EventKind
    table_id: str
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


Listener = Callable[[LifecycleEvent], None]
Progress = Callable[[int, int], None]
"""Called with the amount done and the total; each function names the unit."""


def ignore(*_reported: object) -> None:
    """Do nothing with what is reported."""


def report_event(listener: Listener, kind: EventKind, table_id: str, **facts: float | str) -> None:
    """Call a listener; what it raises goes to the log."""
    if listener is ignore:
        return
    try:
        listener(LifecycleEvent(kind=kind, table_id=table_id, facts=facts))
    except Exception:
        logger.exception("a listener failed event=%s table=%s", kind, table_id)
