"""Lets many threads share one writer: the first to come leads, the others follow.

Steps of an append:

1. Whoever finds nobody leading leads, with a group of its own work alone; the others queue, asleep.
2. A leader that comes from the queue takes a group from its front, itself first. It commits
   outside the lock, so that the queue fills again meanwhile.
3. It wakes the first of those still waiting to lead next, and its followers with their outcome.

Q1  At most one group, or one lone action, is being committed at any time.
Q2  Groups and lone actions are committed in the order in which they joined.
Q3  Every thread that joined is woken exactly once, also when its leader fails. One whose wait is
    interrupted leaves the queue, and passes the lead on if it was to have it.
Q4  A queue belongs to the process that made it: in a forked child, whose other threads are gone,
    it refuses.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from neve.errors import Closed

Work = TypeVar("Work", bound="Sized")

# How often this process came out of a fork: asking the kernel who we are costs each append more.
_forks: Final = [0]


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count_fork)


class Sized(Protocol):
    """Work that knows its weight in a group."""

    @property
    def byte_count(self) -> int:
        """Bytes it adds to its group."""
        ...


class Latch(Protocol):
    """The part of a lock the queue uses; a test may bring its own."""

    def acquire(self) -> bool:
        """Wait until it is free and take it."""
        ...

    def release(self) -> None:
        """Free it; any thread may."""
        ...


class _Seat(Generic[Work]):
    """One thread's place in the queue."""

    __slots__ = ("alone", "committed", "failure", "latch", "leads", "work")

    def __init__(self, work: Work | None, alone: Callable[[], None] | None) -> None:
        self.work = work
        self.alone = alone
        self.latch: Latch | None = None
        self.committed = False
        self.leads = False
        self.failure: BaseException | None = None


class CommitQueue(Generic[Work]):
    """Runs groups of work one after another, in the order in which they were submitted."""

    def __init__(
        self,
        commit_group: Callable[[Sequence[Work]], None],
        *,
        group_bytes_max: int,
        make_latch: Callable[[], Latch],
    ) -> None:
        # fixed at construction
        self._commit_group = commit_group
        self._group_bytes_max = group_bytes_max
        self._make_latch = make_latch
        self._lock = make_latch()
        self._forks = _forks[0]
        # guarded by _lock
        self._waiting: deque[_Seat[Work]] = deque()
        self._led = False

    def lead(self) -> bool:
        """Take the lead if nobody has it: whoever gets True commits, then calls `pass_on`."""
        if self._forks != _forks[0]:
            raise _forked()
        self._lock.acquire()
        led = self._led
        self._led = True
        self._lock.release()
        return not led

    def submit(self, work: Work) -> None:
        """Commit the work, perhaps with others'; raises what its group's commit raised."""
        if self._forks != _forks[0]:
            raise _forked()
        self._lock.acquire()
        if self._led:
            self._follow_locked(_Seat(work, None))
            return
        self._led = True
        self._lock.release()
        try:
            self._commit_group((work,))
        finally:
            self.pass_on()

    def run_alone(self, action: Callable[[], None]) -> None:
        """Run an action while nothing else is committed; raises what it raises."""
        if self._forks != _forks[0]:
            raise _forked()
        self._lock.acquire()
        if self._led:
            self._follow_locked(_Seat(None, action))
            return
        self._led = True
        self._lock.release()
        try:
            action()
        finally:
            self.pass_on()

    def _follow_locked(self, seat: _Seat[Work]) -> None:
        """Wait for a leader, or to lead; gives the lock back."""
        seat.latch = self._make_latch()
        seat.latch.acquire()
        self._waiting.append(seat)
        self._lock.release()
        try:
            seat.latch.acquire()
        except BaseException:
            self._give_up(seat)
            raise
        if not seat.committed:
            self._lead()
        if seat.failure is not None:
            raise seat.failure

    def _give_up(self, seat: _Seat[Work]) -> None:
        """Leave the queue because the wait was interrupted; what is being committed stays so."""
        self._lock.acquire()
        if seat in self._waiting:
            self._waiting.remove(seat)
        self._lock.release()
        if seat.leads and not seat.committed:
            self.pass_on()

    def _lead(self) -> None:
        self._lock.acquire()
        group = self._take_group_locked()
        self._lock.release()
        failure: BaseException | None = None
        try:
            first = group[0]
            if first.alone is not None:
                first.alone()
            else:
                self._commit_group([seat.work for seat in group if seat.work is not None])
        except BaseException as error:  # noqa: BLE001 - followers must wake whatever happened
            failure = error
        self.pass_on()
        for seat in group:
            seat.committed = True
            # An interrupt is the leader's own; its followers find their outcome in their work.
            if seat is group[0] or isinstance(failure, Exception):
                seat.failure = failure
            assert seat.latch is not None
            seat.latch.release()

    def pass_on(self) -> None:
        """Let the first of those waiting lead next."""
        self._lock.acquire()
        if self._waiting:
            seat = self._waiting[0]
            assert seat.latch is not None
            seat.leads = True
            seat.latch.release()
        else:
            self._led = False
        self._lock.release()

    def _take_group_locked(self) -> list[_Seat[Work]]:
        first = self._waiting.popleft()
        group = [first]
        if first.work is None:
            return group
        byte_count = first.work.byte_count
        while self._waiting:
            work = self._waiting[0].work
            if work is None or byte_count + work.byte_count > self._group_bytes_max:
                break
            byte_count += work.byte_count
            group.append(self._waiting.popleft())
        return group


def _forked() -> Closed:
    return Closed(
        "this handle belongs to the process that opened it",
        hint="open it again in the forked child",
    )
