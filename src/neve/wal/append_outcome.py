"""The outcome of an append: of one batch that waits for it, and of a group on its way.

A batch whose append fails before its first byte has not happened. After the first byte it may or
may not be durable, and the error says which rows that concerns.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from threading import Event
from typing import Final, Protocol, TypeAlias

from neve.errors import Closed, Fenced, NeveError, OutcomeUnknown, Unavailable
from neve.wal.batch_codec import BATCH_BYTES_MAX, EncodedChanges, too_large

Apply = Callable[[int], None]
"""Called with a batch's first sequence number, in sequence order, once the batch may be seen."""

DecideChanges = Callable[[], EncodedChanges | None]
"""Returns the batch to log, once every batch before it is applied; None logs nothing."""

ApplyPut = Callable[[int, bytes, bytes], None]
"""Called with a row's sequence number, key and value, in sequence order, once it may be seen."""

Batches: TypeAlias = Sequence[tuple[EncodedChanges, Apply | None]]
"""Batches of one group, in order."""


Unapplied: TypeAlias = Mapping[bytes, int]
"""Keys of batches that come before a decision and are not applied yet, with a sequence number that
is at least that of their last change."""


class NotYet(Enum):
    """The answer of a decision that depends on batches which are not applied yet."""

    NOT_YET = "not yet"


NOT_YET: Final = NotYet.NOT_YET


class Written(Protocol):
    """A batch whose keys a later decision of its group may ask for."""

    def written_keys(self) -> Collection[bytes] | None:
        """Return the keys that it writes; None when they are not worth listing."""


class Decision(Written, Protocol):
    """A batch that is made when its turn comes, by the thread that commits its group."""

    @property
    def byte_count(self) -> int:
        """About how many bytes it adds to its group."""

    def decide(self, unapplied: Unapplied) -> EncodedChanges | NotYet | None:
        """Return the batch, or None to log nothing; called while no batch is applied.

        NOT_YET asks to be called again when everything before it is applied, with no key. An error
        is raised in the thread that asked, and concerns no other batch.
        """

    def apply(self, sequence: int) -> None:
        """Show the batch, whose first sequence number this is."""


_UNDECIDED: Final = EncodedChanges((), 0, 0, 0, 0)
NOTHING_LOGGED: Final = 0
"""In place of the first sequence number of a decision not to log anything."""


class PendingAppend:
    """A batch that waits for its turn; the thread that commits it stores the outcome here."""

    __slots__ = (
        "apply",
        "byte_count",
        "changes",
        "decision",
        "failure",
        "first_sequence",
        "written",
    )

    def __init__(
        self, changes: EncodedChanges, apply: Apply | None, written: Written | None = None
    ) -> None:
        self.changes = changes
        self.byte_count = changes.byte_count
        self.apply = apply
        self.written = written
        self.decision: Decision | None = None
        self.first_sequence = -1
        self.failure: Exception | None = None

    @classmethod
    def undecided(cls, decision: Decision) -> "PendingAppend":
        """Return a batch that its group's leader makes."""
        work = cls(_UNDECIDED, decision.apply, decision)
        work.decision = decision
        work.byte_count = decision.byte_count
        return work

    def outcome(self) -> int:
        """Return the first sequence number; raises the error that kept the batch from the log."""
        if self.failure is not None:
            raise self.failure
        if self.first_sequence < 0:
            raise interrupted_before_writing()
        return self.first_sequence


class GroupDecisions:
    """Makes the decisions of one group, in order; for the thread that commits it."""

    def __init__(
        self,
        check_usable: Callable[[], None],
        commit_now: Callable[[Sequence[PendingAppend]], None],
    ) -> None:
        """Begin; `commit_now` applies batches of the group, and everything before it."""
        self._check_usable = check_usable
        self._commit_now = commit_now
        self._unapplied: dict[bytes, int] = {}
        self._is_listed = True

    def note(self, group: Sequence[PendingAppend], sequence: int) -> None:
        """Note the keys of batches that are not applied yet, up to a sequence number."""
        for work in group:
            keys = None if work.written is None else work.written.written_keys()
            if keys is None:
                self._is_listed = False
            else:
                self._unapplied.update(dict.fromkeys(keys, sequence))

    def made(self, group: Sequence[PendingAppend], sequence: int) -> list[PendingAppend]:
        """Return the batches that are left to commit; those that a decision needs are committed."""
        ready: list[PendingAppend] = []
        noted = 0
        for work in group:
            if work.decision is not None:
                if noted < len(ready):
                    self.note(ready[noted:], sequence)
                    noted = len(ready)
                if not self._is_listed or not self._make(work, work.decision):
                    self._commit_now(ready)
                    ready, noted = [], 0
                    self._unapplied, self._is_listed = {}, True
                    self._make(work, work.decision)
                if work.failure is not None or work.first_sequence == NOTHING_LOGGED:
                    continue
            ready.append(work)
        return ready

    def _make(self, work: PendingAppend, decision: Decision) -> bool:
        """Store the batch or the error of a decision; False when it is not possible yet."""
        try:
            self._check_usable()
            changes = decision.decide(self._unapplied)
            if changes is NOT_YET:
                assert self._unapplied, "everything before it is applied"
                return False
            if changes is None:
                work.first_sequence = NOTHING_LOGGED
            elif changes.byte_count > BATCH_BYTES_MAX:
                work.failure = too_large(changes)
            else:
                work.changes = changes
        except Exception as error:  # noqa: BLE001 - it is raised in the thread that asked
            work.failure = error
        return True


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


def store_failure(
    group: Sequence[PendingAppend],
    error: BaseException,
    first: int | None,
    unusable: Closed | None,
    *,
    path: str,
) -> None:
    """Store in each batch of a group why it failed.

    `first` is the group's first sequence number, if a byte may have been written; `unusable` why
    the log takes nothing any more.
    """
    cause = (error.__cause__ or error) if isinstance(error, OutcomeUnknown) else error
    for work in group:
        if isinstance(error, Fenced):
            work.failure = error
        elif first is not None:
            rows = work.changes.row_count
            work.failure = outcome_unknown(cause, first, rows, path=path)
            first += rows
        elif isinstance(error, NeveError):
            work.failure = error
        else:
            work.failure = unusable or interrupted_before_writing()


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
        "group",
        "landed",
        "last_sequence",
        "wait",
    )

    def __init__(self, batches: Batches, first_sequence: int) -> None:
        self.batches = batches
        self.group: Sequence[PendingAppend] = ()
        self.first_sequence = first_sequence
        self.last_sequence = first_sequence
        self.wait: Callable[[], None] | None = None
        """Waits until the group is durable."""
        self.before: GroupInFlight | None = None
        self.landed = Event()
        self.failure: BaseException | None = None
