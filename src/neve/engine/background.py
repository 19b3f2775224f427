"""BackgroundWork: steps that a thread runs until none finds work.

A step does one bounded piece of work and returns whether it found any; tests run the same steps by
hand. The thread does not keep its owner alive: when the owner is gone, the thread ends.

ENGINE-7   A wake-up is never lost: the event is cleared before the steps look for work.
ENGINE-8   A step that fails is tried again after a pause, which grows; until then `failure` says
           why.
ENGINE-9   `close` waits for the running step, and no other begins.
ENGINE-10  Work that can never succeed is not tried again: the writer was fenced, or the table was
           closed or dropped.
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, current_thread, main_thread
from types import MethodType
from typing import Final, TypeVar, cast

from neve.errors import Closed, Fenced, NeveError, NotFound, Unavailable

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


def _unheard(_name: str, _error: NeveError) -> None:
    """Report to no one."""


class BackgroundWork:
    """Runs the steps of one owner in a separate thread."""

    def __init__(
        self,
        name: str,
        steps: Sequence[Step],
        *,
        idle_seconds: float | None = None,
        on_failure: OnFailure = _unheard,
        has_ended: HasEnded | None = None,
    ) -> None:
        """Take the steps, methods of objects; they run when woken, and every `idle_seconds`.

        `has_ended` is called when a step raises NotFound.
        """
        self._steps = [weakref.WeakMethod(step) for step in steps]
        self._has_ended = None if has_ended is None else weakref.WeakMethod(has_ended)
        self._wake = Event()
        self._is_closing = Event()
        self._idle_seconds = idle_seconds
        self._on_failure = on_failure
        # Collecting the owner wakes the thread, so that it ends.
        owner = cast("MethodType", steps[0]).__self__
        weakref.finalize(owner, end_forgotten, self._wake.set)
        # Safe on its own: replaced whole.
        self.failure: NeveError | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Make the steps look for work."""
        self._wake.set()

    def close(self) -> None:
        """End the thread after its current step."""
        self._is_closing.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not current_thread():
            self._thread.join()

    def _run(self) -> None:
        pause = _PAUSE_SECONDS
        timeout = self._idle_seconds
        while True:
            self._wake.wait(timeout)
            self._wake.clear()
            if self._is_closing.is_set() or any(step() is None for step in self._steps):
                return
            try:
                while not self._is_closing.is_set() and self._step_once():
                    pass
            except NeveError as error:
                if self._is_over(error):
                    # Always report the end of the work, even after an earlier failure.
                    self._on_failure(self._thread.name, error)
                    self.failure = error
                    return
                logger.warning("background work failed name=%s cause=%s", self._thread.name, error)
                self._report(error)
                timeout, pause = pause, min(pause * 2, _PAUSE_SECONDS_MAX)
            except Exception as error:  # noqa: BLE001 - see _report_unexpected
                self._report_unexpected(error)
                timeout, pause = pause, min(pause * 2, _PAUSE_SECONDS_MAX)
            else:
                self.failure = None
                timeout, pause = self._idle_seconds, _PAUSE_SECONDS

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
        logger.error("background work failed name=%s", self._thread.name, exc_info=error)
        self._report(failure)

    def _report(self, failure: NeveError) -> None:
        """Keep the failure of a step, and report it once until a step succeeds again."""
        if self.failure is None:
            self._on_failure(self._thread.name, failure)
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
    ending something needs. So a separate thread ends it. The interpreter waits for that thread,
    because one that is killed while it frees Arrow's memory crashes the process. At interpreter
    exit there are no other threads left, so ending in place cannot deadlock.
    """
    if main_thread().is_alive():
        Thread(target=end, name="neve-forgotten", daemon=False).start()
    else:
        end()


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
