"""The outcome of an append: of one batch that waits for it, and of a group on its way.

A batch whose append fails before its first byte has not happened. After the first byte it may or
may not be durable, and the error says which rows that concerns.
"""

from collections.abc import Callable, Sequence
from threading import Event
from typing import TypeAlias

from neve.errors import NeveError, OutcomeUnknown, Unavailable
from neve.wal.batch_codec import EncodedChanges

Apply = Callable[[int], None]
"""Called with a batch's first sequence number, in sequence order, once the batch may be seen."""

Batches: TypeAlias = Sequence[tuple[EncodedChanges, Apply | None]]
"""Batches of one group, in order."""


class PendingAppend:
    """A batch that waits for its turn; the thread that commits it stores the outcome here."""

    __slots__ = ("apply", "byte_count", "changes", "failure", "first_sequence")

    def __init__(self, changes: EncodedChanges, apply: Apply | None) -> None:
        self.changes = changes
        self.byte_count = changes.byte_count
        self.apply = apply
        self.first_sequence = -1
        self.failure: NeveError | None = None

    def outcome(self) -> int:
        """Return the first sequence number; raises the error that kept the batch from the log."""
        if self.failure is not None:
            raise self.failure
        if self.first_sequence < 0:
            raise interrupted_before_writing()
        return self.first_sequence


def outcome_unknown(
    error: BaseException, first_sequence: int, row_count: int, *, path: str
) -> OutcomeUnknown:
    """Return the error for rows that may or may not survive: `error` came after the first byte."""
    last_sequence = first_sequence + max(row_count, 1) - 1
    unknown = OutcomeUnknown(
        f"rows {first_sequence} to {last_sequence} may or may not be durable ({cause_of(error)})",
        first_sequence=first_sequence,
        last_sequence=last_sequence,
        path=path,
        hint="close every handle of the table, reopen it, and read the rows back before writing "
        "them again",
    )
    unknown.__cause__ = error
    return unknown


def interrupted_before_writing() -> Unavailable:
    """Return the error for a batch whose leader was interrupted before the first byte."""
    return Unavailable(
        "the thread that wrote for this one was interrupted; nothing was written",
        hint="write it again",
    )


def cause_of(error: BaseException) -> str:
    """Return an error's message, or its representation when it has none."""
    return str(error) or repr(error)


class GroupInFlight:
    """A group that was appended, and whose sync was begun but has not returned."""

    __slots__ = (
        "batches",
        "before",
        "failure",
        "first_sequence",
        "landed",
        "last_sequence",
        "wait",
    )

    def __init__(self, batches: Batches, first_sequence: int) -> None:
        self.batches = batches
        self.first_sequence = first_sequence
        self.last_sequence = first_sequence
        self.wait: Callable[[], None] | None = None
        """Waits until the group is durable."""
        self.before: GroupInFlight | None = None
        self.landed = Event()
        self.failure: BaseException | None = None
