"""Background work: steps that a thread runs until none has anything left to do.

A step does one bounded piece of work and says whether it found any. Tests run the same steps by
hand. The thread does not keep its owner alive: when the owner is gone, the thread ends.

Y1  A wake-up is never lost: the event is cleared before the steps look for work.
Y2  A step that fails is tried again after a pause, which grows; until then `failure` says why.
Y3  `close` waits for the step that is running, and no other begins.
Y4  Work that can never get on again is not tried again: of a writer that was fenced, of a table
    that was closed or dropped.
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from threading import Event, Thread, current_thread
from types import MethodType
from typing import Final, cast

from neve.engine.background import end_forgotten
from neve.errors import Closed, Fenced, NeveError, NotFound, Unavailable

logger = logging.getLogger(__name__)


Step = Callable[[], bool]
"""A bound method that does one piece of work; False when there was nothing to do."""


OnFailure = Callable[[str, NeveError], None]
"""Told the name of the work and why it failed, once until it gets on again."""

HasEnded = Callable[[], bool]
"""A bound method that says whether the work of its object is over for good."""

_PAUSE_SECONDS: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 5.0


def _unheard(_name: str, _error: NeveError) -> None:
    """Tell nobody."""


class BackgroundWork:
    """Runs the steps of one owner in a thread of its own."""

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

        `has_ended` is asked when something is not found.
        """
        self._steps = [weakref.WeakMethod(step) for step in steps]
        self._has_ended = None if has_ended is None else weakref.WeakMethod(has_ended)
        self._wake = Event()
        self._is_closing = Event()
        self._idle_seconds = idle_seconds
        self._on_failure = on_failure
        # An owner that goes away wakes the thread, so that it ends.
        owner = cast("MethodType", steps[0]).__self__
        weakref.finalize(owner, end_forgotten, self._wake.set)
        # Safe on its own: replaced whole.
        self.failure: NeveError | None = None
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Have the steps look for work."""
        self._wake.set()

    def close(self) -> None:
        """End the thread, after the step that it is in."""
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
                    # Told in any case: that it is over is news, whatever failed before.
                    self._on_failure(self._thread.name, error)
                    self.failure = error
                    return
                logger.warning("background work failed name=%s cause=%s", self._thread.name, error)
                self._tell(error)
                timeout, pause = pause, min(pause * 2, _PAUSE_SECONDS_MAX)
            except Exception as error:  # noqa: BLE001 - see _tell_unforeseen
                self._tell_unforeseen(error)
                timeout, pause = pause, min(pause * 2, _PAUSE_SECONDS_MAX)
            else:
                self.failure = None
                timeout, pause = self._idle_seconds, _PAUSE_SECONDS

    def _is_over(self, error: NeveError) -> bool:
        """Return whether a failure is the last one (Y4)."""
        if isinstance(error, Closed | Fenced):
            return True
        has_ended = None if self._has_ended is None else self._has_ended()
        # What is missing may be a file, or the table.
        return isinstance(error, NotFound) and has_ended is not None and has_ended()

    def _tell_unforeseen(self, error: Exception) -> None:
        """Tell of what nobody foresaw: it must not end the thread in silence."""
        failure = Unavailable(f"unforeseen {type(error).__name__}: {error}")
        failure.__cause__ = error
        logger.error("background work failed name=%s", self._thread.name, exc_info=error)
        self._tell(failure)

    def _tell(self, failure: NeveError) -> None:
        """Keep why a step failed, and tell who listens, once until it gets on again."""
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
