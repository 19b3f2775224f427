"""CommitQueue: many threads share one writer; the first one leads, the others follow.

Steps of an append:

1. A thread that finds no leader leads, with only its own work; the others sleep in the queue.
2. A leader from the queue takes a group from its front, itself first. It commits outside the lock,
   so that the queue fills again in the meantime.
3. It wakes the first thread that still waits to lead next, and the first of its followers. Each
   follower finds its outcome and wakes the one after it: so they do not all compete for the
   interpreter, with each other and with the next leader.

A commit may return a function that finishes it. Then the lead is passed on first: the next group
begins while the last one is finished. The commit keeps the order of what is finished.
With a pause, every leader waits a moment before it takes its group, so that more can join.

STORAGE-13  At most one group, or one lone action, is being committed at any time; finishing is not
            part of it.
STORAGE-14  Groups and lone actions are committed in the order in which they joined.
STORAGE-15  Every thread that joined is woken, even when its leader fails. One whose wait is
            interrupted leaves the queue, passes the lead on if it was the next leader, and wakes
            the one after it if there is one. Wherever an interrupt comes, the lock is freed and the
            lead is not lost.
STORAGE-16  A queue belongs to the process that created it: in a forked child, whose other threads
            are gone, it refuses work.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from neve.storage.own_process import forked, keep_to_process

Work = TypeVar("Work", bound="Sized")


class Sized(Protocol):
    """Work that knows its size in a group."""

    @property
    def byte_count(self) -> int:
        """Bytes it adds to its group."""


class Latch(Protocol):
    """The part of a lock that the queue uses; tests may replace it."""

    def acquire(self) -> bool:
        """Wait until it is free and take it."""

    def release(self) -> None:
        """Free it, from any thread."""

    def __enter__(self) -> object:
        """Take it for a block."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Free it at the end of the block."""


class _Seat(Generic[Work]):
    """One thread's place in the queue."""

    __slots__ = (
        "alone",
        "committed",
        "failure",
        "following",
        "has_left",
        "latch",
        "turn",
        "work",
    )

    def __init__(
        self, work: Work | None, alone: Callable[[], None] | None, latch: Latch, /
    ) -> None:
        self.work = work
        self.alone = alone
        self.latch = latch
        self.committed = False
        # Its turn, once it leads.
        self.turn = 0
        self.failure: BaseException | None = None
        # Whom it wakes, once it is committed.
        self.following: _Seat[Work] | None = None
        self.has_left = False


class CommitQueue(Generic[Work]):
    """Runs groups of work one after another, in the order in which they were submitted."""

    def __init__(
        self,
        commit_group: Callable[[Sequence[Work]], Callable[[], None] | None],
        *,
        group_bytes_max: int,
        make_latch: Callable[[], Latch],
        pause: Callable[[], None] | None = None,
    ) -> None:
        # fixed at construction
        self._commit_group = commit_group
        self._pause = pause
        self._group_bytes_max = group_bytes_max
        self._make_latch = make_latch
        self.lock = make_latch()
        """While it is held and no one leads, nothing is committed: for work that is shorter than
        passing the lead on."""
        # guarded by lock
        self._waiting: deque[_Seat[Work]] = deque()
        self.is_led = False
        """Whether a thread has the lead; always in a forked child."""
        self._turn = 1
        # set in a forked child
        self._is_forked = False
        keep_to_process(self)

    def end_in_child(self) -> None:
        """Refuse everything: the leader and the waiting threads stayed in the parent."""
        self._is_forked = self.is_led = True

    def lead(self) -> int:
        """Take the lead if it is free; return a turn, not 0, to commit and pass on."""
        if self._is_forked:
            raise forked()
        turn = 0
        try:
            with self.lock:
                if self.is_led:
                    return 0
                turn = self._turn
                self.is_led = True
        except BaseException:
            if turn:
                self.pass_on(turn)
            raise
        return turn

    def pass_on(self, turn: int) -> None:
        """Let the first waiting thread lead next; a second call for the same turn does nothing."""
        with self.lock:
            if turn != self._turn:
                return
            turn += 1
            self._turn = turn
            if self._waiting:
                seat = self._waiting[0]
                seat.turn = turn
                seat.latch.release()
            else:
                self.is_led = False

    def submit(self, work: Work) -> None:
        """Commit the work, perhaps in a group; raises what the commit of its group raised."""
        turn = 0 if self._pause is not None else self.lead()
        if not turn:
            self._follow(work, None)
            return
        finish: Callable[[], None] | None = None
        try:
            finish = self._commit_group((work,))
        finally:
            try:
                # An interrupt may come before the call has done anything: call it again.
                try:
                    self.pass_on(turn)
                except BaseException:
                    self.pass_on(turn)
                    raise
            finally:
                if finish is not None:
                    finish()

    def run_alone(self, action: Callable[[], None]) -> None:
        """Run an action while nothing else is committed; raises what the action raises."""
        turn = self.lead()
        if not turn:
            self._follow(None, action)
            return
        try:
            action()
        finally:
            try:
                self.pass_on(turn)
            except BaseException:
                self.pass_on(turn)
                raise

    def _follow(self, work: Work | None, alone: Callable[[], None] | None) -> None:
        """Wait for a leader, or to lead."""
        latch = self._make_latch()
        latch.acquire()
        seat = _Seat(work, alone, latch)
        try:
            with self.lock:
                if not self.is_led:
                    # The lead became free in the meantime.
                    seat.turn = self._turn
                    self.is_led = True
                self._waiting.append(seat)
            if not seat.turn:
                latch.acquire()
            if not seat.committed:
                self._lead(seat)
            _wake_following(seat)
        except BaseException:
            self._give_up(seat)
            raise
        if seat.failure is not None:
            raise seat.failure

    def _give_up(self, seat: _Seat[Work]) -> None:
        """Leave the queue because of an interrupt; a commit in progress continues."""
        with self.lock:
            seat.has_left = True
            if seat in self._waiting:
                self._waiting.remove(seat)
        if seat.turn:
            self.pass_on(seat.turn)
        _wake_following(seat)

    def _lead(self, first: _Seat[Work]) -> None:
        """Commit a group; if an interrupt comes before it begins, it stays in the queue."""
        if self._pause is not None and first.work is not None:
            self._pause()
        with self.lock:
            group = self._group_locked(first)
        work = [seat.work for seat in group if seat.work is not None]
        failure: BaseException | None = None
        try:
            try:
                if first.alone is not None:
                    first.alone()
                else:
                    finish = self._commit_group(work)
                    if finish is not None:
                        try:
                            self._leave(first, group)
                        finally:
                            finish()
            except BaseException as error:  # noqa: BLE001 - followers must wake whatever happened
                failure = error
            self._settle(first, group, failure)
        except BaseException:
            self._settle(first, group, failure)
            raise

    def _settle(
        self, first: _Seat[Work], group: Sequence[_Seat[Work]], failure: BaseException | None
    ) -> None:
        """Pass the lead on and have the group woken; a second call finishes what was left."""
        self._leave(first, group)
        with self.lock:
            if first.committed:
                return
            before = first
            for seat in group:
                # An interrupt concerns only the leader; followers find the outcome in their work.
                if seat is first or isinstance(failure, Exception):
                    seat.failure = failure
                if seat is not first and not seat.has_left:
                    before.following = seat
                    before = seat
            # From the last to the first: an interrupt in between leaves the first to do it again.
            for seat in reversed(group):
                seat.committed = True

    def _leave(self, first: _Seat[Work], group: Sequence[_Seat[Work]]) -> None:
        """Take the group out of the queue and pass the lead on; a second call does nothing."""
        with self.lock:
            for seat in group:
                if self._waiting and self._waiting[0] is seat:
                    self._waiting.popleft()
        self.pass_on(first.turn)

    def _group_locked(self, first: _Seat[Work]) -> Sequence[_Seat[Work]]:
        """Return the group at the front; it leaves the queue once it is committed."""
        group = [first]
        if first.work is None:
            return group
        byte_count = first.work.byte_count
        for seat in islice(self._waiting, 1, None):
            if seat.work is None or byte_count + seat.work.byte_count > self._group_bytes_max:
                break
            byte_count += seat.work.byte_count
            group.append(seat)
        return group


def _wake_following(seat: _Seat[Work]) -> None:
    """Wake the one after this; a second call, after an interrupt of the first, does no harm."""
    following = seat.following
    if following is not None and seat.committed:
        # Its latch is used once: to free it twice wakes no one else.
        with suppress(RuntimeError):
            following.latch.release()
        seat.following = None
