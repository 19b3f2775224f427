"""Interleaving: runs ordinary blocking functions as threads, exactly one of them at a time.

A baton goes from thread to thread at every *switch point*: each call of an `InterleavedDisk`, each
call of an object wrapped by `interleaved` (an object store, say), and each use of a lock made here.
The seed decides which thread gets it: the same seed makes the same trace, another seed another
order of events.

    interleaving = Interleaving(seed=7)
    disk = InterleavedDisk(SimulatedDisk(), interleaving)
    outcomes = interleaving.run({"a": lambda: work(disk), "b": lambda: work(disk)})

A thread that waits for a lock of `threading` while it has the baton would stop all threads: the
lock's holder cannot run to release it. So code that holds a lock across a switch point must accept
its locks as parameters, and the test passes `interleaving.lock` and `interleaving.condition`, which
hand the baton on instead of waiting. A lock never held across a switch point may stay.

No time passes: a wait with a time limit reaches it when every other thread waits too. When every
thread waits for ever, each gets `Deadlock`, which says what each waits for.
"""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, Self, TypeVar, cast

from neve.storage.disk import Disk
from neve.testing.disk_calls import DiskCall, HookedDisk

T = TypeVar("T")


class Deadlock(Exception):
    """Every thread waits for another one."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How one function ended."""

    value: T | None
    error: BaseException | None

    def result(self) -> T:
        """Return what the function returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


class _Strand:
    """One thread of an interleaving, and what it waits for, if anything."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.baton = threading.Lock()  # held except while the baton is handed over
        self.baton.acquire()
        self.waits_for: str | None = None
        self.has_limit = False
        self.is_deadlocked = False
        self.is_done = False

    @property
    def is_runnable(self) -> bool:
        return self.waits_for is None and not self.is_done


class Interleaving:
    """Decides, from a seed, which thread runs between any two switch points.

    No lock guards the state below: only the thread that has the baton touches it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self._trace: list[str] = []
        self._strands: list[_Strand] = []
        self._names: Counter[str] = Counter()
        self._deadlock: str | None = None
        self._own = threading.local()

    @property
    def trace(self) -> tuple[str, ...]:
        """Every switch point passed, in order, as `thread: what it was about to do`."""
        return tuple(self._trace)

    @property
    def is_deadlocked(self) -> bool:
        """Whether a deadlock was found; then every thread is ending."""
        return self._deadlock is not None

    def run(self, functions: Mapping[str, Callable[[], T]]) -> dict[str, Outcome[T]]:
        """Run the functions to their ends, one at a time; return how each ended."""
        outcomes: dict[str, Outcome[T]] = {}

        def play(strand: _Strand, function: Callable[[], T]) -> None:
            self._own.strand = strand
            strand.baton.acquire()
            try:
                outcomes[strand.name] = Outcome(function(), None)
            except BaseException as error:  # noqa: BLE001  the caller raises it, from the outcome
                outcomes[strand.name] = Outcome(None, error)
            strand.is_done = True
            self._hand_on()

        self._strands = [_Strand(name) for name in functions]
        threads = [
            threading.Thread(target=play, args=(strand, functions[strand.name]), daemon=True)
            for strand in self._strands
        ]
        for thread in threads:
            thread.start()
        self._hand_on()
        for thread in threads:
            thread.join()
        return {name: outcomes[name] for name in functions}

    def switch(self, about_to: str) -> None:
        """Pass a switch point: any thread may run before this one continues.

        Outside of `run`, for example while a test prepares its disk, nothing happens.
        """
        strand = self._current()
        if strand is not None:
            self._trace.append(f"{strand.name}: {about_to}")
            self._pass_baton(strand)

    def wait(self, what_for: str, *, has_limit: bool = False) -> bool:
        """Let others run until `wake` names what this thread waits for; False at the limit."""
        strand = self._current()
        if strand is None:
            raise Deadlock(f"no thread is left to release {what_for}")
        self._trace.append(f"{strand.name}: wait for {what_for}")
        strand.waits_for, strand.has_limit = what_for, has_limit
        self._pass_baton(strand)
        reached_limit = has_limit and not strand.has_limit
        strand.has_limit = False
        return not reached_limit

    def wake(self, what_for: str, *, count: int | None = None) -> None:
        """Wake threads that wait for this: all of them, or some chosen at random."""
        waiting = [strand for strand in self._strands if strand.waits_for == what_for]
        if count is not None and count < len(waiting):
            waiting = self._random.sample(waiting, count)
        for strand in waiting:
            strand.waits_for = None

    def lock(self, name: str = "lock") -> "InterleavedLock":
        """Return a lock to use as a `threading.Lock`; the name is for the trace."""
        return InterleavedLock(self, self._unique(name))

    def condition(
        self, lock: "InterleavedLock | None" = None, *, name: str = "condition"
    ) -> "InterleavedCondition":
        """Return a condition to use as a `threading.Condition`."""
        return InterleavedCondition(self, lock or self.lock(), self._unique(name))

    def _unique(self, name: str) -> str:
        self._names[name] += 1
        return f"{name} {self._names[name]}"

    def _current(self) -> _Strand | None:
        strand: _Strand | None = getattr(self._own, "strand", None)
        return strand

    def _pass_baton(self, strand: _Strand) -> None:
        if self._hand_on(keeper=strand):
            strand.baton.acquire()
        if strand.is_deadlocked:
            raise Deadlock(self._deadlock)

    def _hand_on(self, keeper: _Strand | None = None) -> bool:
        """Choose the next thread; False when it is `keeper`, or no thread is left."""
        runnable = [strand for strand in self._strands if strand.is_runnable]
        if not runnable:
            runnable = self._unstick()
        if not runnable:
            return False
        chosen = self._random.choice(runnable)
        if chosen is keeper:
            return False
        chosen.baton.release()
        return True

    def _unstick(self) -> list[_Strand]:
        """End one wait that has a limit; without one, end them all as a deadlock."""
        waiting = [strand for strand in self._strands if not strand.is_done]
        limited = [strand for strand in waiting if strand.has_limit]
        if limited:
            strand = self._random.choice(limited)
            strand.waits_for, strand.has_limit = None, False
            return [strand]
        self._deadlock = "; ".join(f"{s.name} waits for {s.waits_for}" for s in waiting)
        for strand in waiting:
            strand.waits_for, strand.is_deadlocked = None, True
        return waiting


class InterleavedLock:
    """A lock that hands the baton on instead of waiting."""

    def __init__(self, interleaving: Interleaving, name: str) -> None:
        self._interleaving = interleaving
        self._name = name
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; False when it is held and not blocking, or at the time limit."""
        self._interleaving.switch(f"acquire {self._name}")
        while self._is_held:
            if not blocking:
                return False
            if not self._interleaving.wait(self._name, has_limit=timeout >= 0):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        """Release the lock; the waiting thread that runs first gets it."""
        if not self._is_held and not self._interleaving.is_deadlocked:
            raise RuntimeError("release of a lock that no one holds")
        self._is_held = False
        self._interleaving.wake(self._name)

    def locked(self) -> bool:
        """Whether a thread holds it."""
        return self._is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exception: object) -> None:
        self.release()


class InterleavedCondition:
    """A condition that hands the baton on instead of waiting."""

    def __init__(self, interleaving: Interleaving, lock: InterleavedLock, name: str) -> None:
        self._interleaving = interleaving
        self._lock = lock
        self._name = name

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock of the condition."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock of the condition."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock until notified, then take it again; False at the time limit."""
        self._lock.release()
        try:
            return self._interleaving.wait(self._name, has_limit=timeout is not None)
        finally:
            self._lock.acquire()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until the predicate holds; False when the time limit came first."""
        while not predicate():
            if not self.wait(timeout):
                return predicate()
        return True

    def notify(self, n: int = 1) -> None:
        """Wake some waiting threads."""
        self._interleaving.wake(self._name, count=n)

    def notify_all(self) -> None:
        """Wake all waiting threads."""
        self._interleaving.wake(self._name)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()


class InterleavedDisk(HookedDisk):
    """A disk on which each call is a switch point."""

    def __init__(self, inner: Disk, interleaving: Interleaving) -> None:
        super().__init__(inner)
        self._interleaving = interleaving

    def before(self, call: DiskCall) -> None:
        """Pass a switch point before the call."""
        self._interleaving.switch(f"{call.kind} {call.target}")


def interleaved(target: T, interleaving: Interleaving) -> T:
    """Return a wrapper of any object; each of its method calls is a switch point."""
    return cast("T", _Interleaved(target, interleaving))


class _Interleaved:
    def __init__(self, target: object, interleaving: Interleaving) -> None:
        self._target = target
        self._interleaving = interleaving

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._target, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: object, **named: object) -> object:
            self._interleaving.switch(name)
            return attribute(*arguments, **named)

        return call
