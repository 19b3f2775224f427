"""BackgroundWork: steps that the threads of the process run until none finds work.

    wake, deadlines, ends ──► inbox ──► keeper ──► jobs ──► workers, as many as are busy
                                ▲                              │
                                └────────── done ──────────────┘

A step does one bounded piece of work and returns whether it found any; tests run the same steps by
hand. All tables of a process share one `WorkerPool`: it begins with the first work that starts and
ends with the last one. One thread, the keeper, owns the list of what is due; it starts a worker
when all others are busy, up to a limit. The pool does not keep owners alive: when an owner is gone,
its work ends.

ENGINE-7   A wake-up is never lost: one that arrives while the steps run makes them run again.
ENGINE-8   A step that fails is tried again after a pause, which grows; until then `failure` says
           why.
ENGINE-9   `close` waits for the running step, and no other begins.
ENGINE-10  Work that can never succeed is not tried again: the writer was fenced, or the table was
           closed or dropped.
ENGINE-18  Looking around costs a process a bounded share of a core: with many tables, each looks
           less often.
"""

import atexit
import heapq
import logging
import math
import os
import weakref
from _thread import start_new_thread
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread, current_thread, main_thread
from types import MethodType
from typing import ClassVar, Final, TypeVar, cast

from neve.errors import Closed, Fenced, NeveError, NotFound, Unavailable
from neve.observability.events import ignore
from neve.storage.clock import SystemClock

logger = logging.getLogger(__name__)

Done = TypeVar("Done")

Step = Callable[[], bool]
"""A bound method that does one piece of work; False when there was nothing to do."""

OnFailure = Callable[[str, NeveError], None]
"""Called with the name of the work and why it failed, once until it succeeds again."""

HasEnded = Callable[[], bool]
"""A bound method that returns whether the work of its object has ended for good."""

_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 5.0
_WORKERS_MAX: Final = 32
LOOKS_PER_SECOND: Final = 100
"""How often the works of a kind look around, all of them together."""
_LOOK_TOGETHER_SECONDS: Final = 0.05
_LOOK_TOGETHER_MAX: Final = 16
_IDLE_WORKER_SECONDS: Final = 5.0
_CLOCK: Final = SystemClock()


@dataclass(slots=True, eq=False)
class Turn:
    """Where one work stands; owned by the keeper, but for `ended`."""

    is_running: bool = False
    is_woken: bool = False
    look: int = 0
    """The number of its newest deadline; older ones are void."""
    ended: Event = field(default_factory=Event)


class WorkerPool:
    """The threads that run the background work of all tables of this process.

    Other threads, and the garbage collector, only put messages into `inbox`, which needs no lock.
    The keeper runs them: what a message calls runs there and owns the rest.
    """

    _gate: ClassVar[Lock] = Lock()
    # Guarded by `_gate`.
    _current: "ClassVar[WorkerPool | None]" = None

    def __init__(self) -> None:
        # Safe on their own.
        self.inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._enders: set[Thread] = set()
        self.is_over = False
        # In a forked process: whether its threads are those of the parent.
        self.is_lost = False
        # Guarded by `_gate`.
        self._members = 0
        # Owned by the keeper.
        self._workers: set[Thread] = set()
        self._busy = 0
        self._looks: list[tuple[float, int, BackgroundWork]] = []
        self._numbers = count(1)
        # By how often works of a kind may look around.
        self._lookers: Counter[int] = Counter()
        self._keeper = Thread(target=self._keep, name="neve-keeper", daemon=True)

    @classmethod
    def joined(cls) -> "WorkerPool":
        """Return the pool of this process, with one more member; the first one starts it."""
        with cls._gate:
            pool = cls._current
            if pool is None:
                pool = cls._current = WorkerPool()
                pool._keeper.start()
            pool._members += 1
            return pool

    @classmethod
    def current(cls) -> "WorkerPool | None":
        """Return the pool of this process while work is started."""
        return cls._current

    @classmethod
    def lose(cls) -> None:
        """Forget the pool of the parent: a forked process has none of its threads."""
        pool = cls._current
        if pool is not None:
            pool.is_lost = pool.is_over = True
        cls._gate = Lock()
        cls._current = None

    def join_if_over(self) -> None:
        """Wait for the threads of a pool that lost its last member."""
        if self.is_over and current_thread() not in {self._keeper, *self._workers}:
            self._keeper.join()

    def settle(self) -> None:
        """Wait until everything that was forgotten so far has ended; at interpreter exit."""
        done = Event()
        self.inbox.put(done.set)
        while self._keeper.is_alive() and not done.wait(_PAUSE_SECONDS):
            pass
        for ender in list(self._enders):
            ender.join()

    # Messages

    def add(self, work: "BackgroundWork") -> None:
        """Take a member; it looks for work after its `idle_seconds` for the first time."""
        self._lookers[work.looks_per_second] += work.idle_seconds is not None
        self._look_after(work, work.idle_seconds)

    def wake(self, work: "BackgroundWork") -> None:
        """Run a member's steps now, or once more if they run."""
        turn = work.turn
        if turn.is_running:
            turn.is_woken = True
        elif not turn.ended.is_set() and not self.is_over:
            turn.is_running, turn.is_woken, turn.look = True, False, 0
            self._hand_over(partial(self._run, [work]))

    def close(self, work: "BackgroundWork") -> None:
        """Let a member go; one that runs goes at its end."""
        if not work.turn.is_running and not work.turn.ended.is_set():
            self._leave(work)

    def end(self, end: Callable[[], None]) -> None:
        """Run a function that ends something forgotten, in a thread that no one waits for.

        It may need a lock of a thread that waits for the last work of the pool.
        """
        ender = Thread(target=self._run_end, args=(end,), name="neve-forgotten", daemon=False)
        self._enders.add(ender)
        try:
            ender.start()
        except RuntimeError:
            # At the end of the interpreter no thread can start.
            self._run_end(end)

    def _ran(self, works: "list[BackgroundWork]", pauses: list[float | None]) -> None:
        self._busy -= 1
        for work, pause in zip(works, pauses, strict=True):
            work.turn.is_running = False
            # A close that arrives between the last check and this message finds it running.
            if pause is None or work.is_closing:
                self._leave(work)
            elif work.turn.is_woken:
                self.wake(work)
            else:
                self._look_after(work, None if pause == math.inf else pause)

    def _left(self, worker: Thread) -> None:
        self._workers.discard(worker)
        # A job may have been meant for it.
        self._staff()

    # The keeper

    def _keep(self) -> None:
        while not self.is_over:
            with suppress(Empty):
                self.inbox.get(timeout=self._seconds_left())()
            self._look()
        with suppress(Empty):
            while True:
                self.inbox.get_nowait()()
        workers = list(self._workers)
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            worker.join()

    def _look(self) -> None:
        """Run the members whose time has come, some in one worker."""
        now = _CLOCK.monotonic()
        due: list[BackgroundWork] = []
        while self._looks and self._looks[0][0] <= now and len(due) < _LOOK_TOGETHER_MAX:
            _, number, work = heapq.heappop(self._looks)
            if work.turn.look == number:
                work.turn.is_running, work.turn.is_woken = True, False
                due.append(work)
        if due:
            self._hand_over(partial(self._run, due))

    def _seconds_left(self) -> float | None:
        if not self._looks:
            return None
        return max(self._looks[0][0] - _CLOCK.monotonic(), 0.0)

    def _look_after(self, work: "BackgroundWork", seconds: float | None) -> None:
        if seconds is None:
            return
        if seconds == work.idle_seconds:
            seconds = max(seconds, self._lookers[work.looks_per_second] / work.looks_per_second)
        # Looks come together: waking a thread costs more than a look that finds nothing.
        due = math.ceil((_CLOCK.monotonic() + seconds) / _LOOK_TOGETHER_SECONDS)
        work.turn.look = number = next(self._numbers)
        heapq.heappush(self._looks, (due * _LOOK_TOGETHER_SECONDS, number, work))

    def _hand_over(self, job: Callable[[], None]) -> None:
        self._busy += 1
        self._jobs.put(job)
        self._staff()

    def _staff(self) -> None:
        """Start a worker when there is a job for it."""
        if not self._busy > len(self._workers) < _WORKERS_MAX:
            return
        worker = Thread(target=self._work, name="neve-worker", daemon=True)
        # At the end of the interpreter no thread can start.
        with suppress(RuntimeError):
            worker.start()
            self._workers.add(worker)
        if not self._workers:
            with suppress(Empty):
                cast("Callable[[], None]", self._jobs.get_nowait())()

    def _leave(self, work: "BackgroundWork") -> None:
        self._lookers[work.looks_per_second] -= work.idle_seconds is not None
        work.turn.look = 0
        with self._gate:
            self._members -= 1
            if not self._members:
                self.is_over = True
                if WorkerPool._current is self:
                    WorkerPool._current = None
        work.turn.ended.set()

    # Workers

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_WORKER_SECONDS)
            except Empty:
                job = None
            if job is None:
                self.inbox.put(partial(self._left, current_thread()))
                return
            job()

    def _run(self, works: "list[BackgroundWork]") -> None:
        pauses = [work.run() for work in works]
        self.inbox.put(partial(self._ran, works, pauses))

    def _run_end(self, end: Callable[[], None]) -> None:
        try:
            end()
        finally:
            self._enders.discard(current_thread())


class BackgroundWork:
    """The steps of one owner, run by the threads of the process."""

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        idle_seconds: float | None = None,
        looks_per_second: int = LOOKS_PER_SECOND,
        on_failure: OnFailure = ignore,
        has_ended: HasEnded | None = None,
    ) -> None:
        """Take the steps, methods of objects; they run when woken, and every `idle_seconds`.

        Where many works of a kind exist, each looks less often, so that they stay below
        `looks_per_second` together. `has_ended` is called when a step raises NotFound.
        """
        self.name = name
        self.idle_seconds = idle_seconds
        self.looks_per_second = looks_per_second
        self._steps = [weakref.WeakMethod(step) for step in steps]
        self._has_ended = None if has_ended is None else weakref.WeakMethod(has_ended)
        self._on_failure = on_failure
        self._is_closing = Event()
        self._pool: WorkerPool | None = None
        # Safe on their own: replaced whole.
        self.failure: NeveError | None = None
        self._runner: Thread | None = None
        # Owned by the keeper of the pool.
        self.turn = Turn()
        self.pause_seconds = _PAUSE_SECONDS

    @property
    def has_ended(self) -> bool:
        """Whether no step runs any more, and none will."""
        return self.turn.ended.is_set()

    @property
    def is_closing(self) -> bool:
        """Whether no further step is to begin."""
        return self._is_closing.is_set()

    def start(self) -> None:
        """Begin."""
        self._pool = pool = WorkerPool.joined()
        # Collecting the owner makes the keeper look, so that the work ends.
        owner = cast("MethodType", self._steps[0]()).__self__
        weakref.finalize(owner, pool.inbox.put, partial(pool.wake, self)).atexit = False
        pool.inbox.put(partial(pool.add, self))

    def wake(self) -> None:
        """Make the steps look for work."""
        if self._pool is not None:
            self._pool.inbox.put(partial(self._pool.wake, self))

    def close(self) -> None:
        """End the work after its current step."""
        self._is_closing.set()
        pool = self._pool
        if pool is None or pool.is_lost:
            return
        pool.inbox.put(partial(pool.close, self))
        if self._runner is not current_thread():
            self.turn.ended.wait()
            pool.join_if_over()

    def run(self) -> float | None:
        """Run the steps until none finds work; return the pause until the next time.

        None when the work is over.
        """
        self._runner = current_thread()
        try:
            while not self._is_closing.is_set() and self._step_once():
                pass
        except NeveError as error:
            if self._is_over(error):
                # Always report the end of the work, even after an earlier failure.
                self._on_failure(self.name, error)
                self.failure = error
                return None
            logger.warning("background work failed name=%s cause=%s", self.name, error)
            self._report(error)
        except Exception as error:  # noqa: BLE001 - see _report_unexpected
            self._report_unexpected(error)
        else:
            self.failure = None
        finally:
            self._runner = None
        if self._is_closing.is_set() or any(step() is None for step in self._steps):
            return None
        if self.failure is None:
            self.pause_seconds = _PAUSE_SECONDS
            return math.inf if self.idle_seconds is None else self.idle_seconds
        pause = self.pause_seconds
        self.pause_seconds = min(pause * 2, _PAUSE_SECONDS_MAX)
        return pause

    def _is_over(self, error: NeveError) -> bool:
        """Return whether a failure is the last one (ENGINE-10)."""
        if isinstance(error, Closed | Fenced):
            return True
        has_ended = None if self._has_ended is None else self._has_ended()
        # Either a file is missing, or the table.
        return isinstance(error, NotFound) and has_ended is not None and has_ended()

    def _report_unexpected(self, error: Exception) -> None:
        """Report an unexpected error: it must not end the thread silently."""
        failure = Unavailable(f"unexpected {type(error).__name__}: {error}")
        failure.__cause__ = error
        logger.error("background work failed name=%s", self.name, exc_info=error)
        self._report(failure)

    def _report(self, failure: NeveError) -> None:
        """Keep the failure of a step, and report it once until a step succeeds again."""
        if self.failure is None:
            self._on_failure(self.name, failure)
        self.failure = failure

    def _step_once(self) -> bool:
        """Run the first step that finds work."""
        for reference in self._steps:
            step = reference()
            if step is None or self._is_closing.is_set():
                return False
            if step():
                return True
        return False


def end_forgotten(end: Callable[[], None]) -> None:
    """End something that was never closed, in another thread; for `weakref.finalize`.

    The garbage collector runs in any thread at any moment, even while that thread holds a lock that
    ending something, or starting a `Thread`, needs. So another thread does both: the keeper, or one
    that starts without locks. The interpreter waits for it, because a thread that is killed while
    it frees Arrow's memory crashes the process. At interpreter exit there are no other threads
    left, so ending in place cannot deadlock.
    """
    if not main_thread().is_alive():
        end()
        return
    pool = WorkerPool.current()
    if pool is None:
        _end_apart(end)
        return
    pool.inbox.put(partial(pool.end, end))
    # A pool that is over may have looked into its inbox for the last time.
    with suppress(Empty):
        while pool.is_over:
            _end_apart(pool.inbox.get_nowait())


_APART: Final[set[object]] = set()
"""What ends apart from a pool; used without a lock, so only by single operations."""


def _end_apart(end: Callable[[], None]) -> None:
    mark = object()

    def run() -> None:
        try:
            end()
        finally:
            _APART.discard(mark)

    def start() -> None:
        try:
            Thread(target=run, name="neve-forgotten", daemon=False).start()
        except RuntimeError:
            run()  # at the end of the interpreter no thread can start

    _APART.add(mark)
    try:
        start_new_thread(start, ())
    except RuntimeError:
        run()


def _settle() -> None:
    pool = WorkerPool.current()
    if pool is not None:
        pool.settle()
    pause = Event()
    while _APART:
        pause.wait(_PAUSE_SECONDS)


atexit.register(_settle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WorkerPool.lose)
    os.register_at_fork(after_in_child=_APART.clear)


def run_side_by_side(tasks: Sequence[Callable[[], Done]], *, threads: int) -> list[Done]:
    """Run tasks, at most `threads` at once, and return their results.

    Raises the first error when all have ended.

    Tasks that release the interpreter's lock get more than one core. With one thread they run here,
    one after another, up to the first that raises.
    """
    if threads <= 1 or len(tasks) <= 1:
        return [task() for task in tasks]
    with ThreadPoolExecutor(min(threads, len(tasks)), "neve-side") as pool:
        running = [pool.submit(task) for task in tasks]
    return [each.result() for each in running]
