"""Backlog: how far flushes and compactions are behind, the threads at it, and who waits for them.

The pressure is judged again whenever a memtable is frozen or a Version is shown. Writers that must
wait are woken by the next judgement that lets them go on; they look again on their own every now
and then, whether the work they wait for has failed: then waiting would have no end.
"""

from collections.abc import Callable, Iterable
from threading import Condition
from typing import Final

from neve.engine.background import BackgroundWork
from neve.engine.backlog import CALM, Pressure, pressure_of
from neve.engine.current_view import CurrentView
from neve.engine.table_options import TableOptions
from neve.errors import NeveError, Unavailable
from neve.observability.metrics import STALL_SECONDS, Recorder
from neve.storage.clock import Clock

_LOOK_AGAIN_SECONDS: Final = 0.05


class Backlog:
    """What background work has still to do; safe for many threads."""

    def __init__(
        self, options: TableOptions, current: CurrentView, *, clock: Clock, recorder: Recorder
    ) -> None:
        # Fixed at construction.
        self._options = options
        self._current = current
        self._clock = clock
        self._recorder = recorder
        # Safe on their own: each is replaced whole.
        self.pressure = CALM
        self._workers: tuple[BackgroundWork, ...] = ()
        self._bystanders: tuple[BackgroundWork, ...] = ()
        # Writers that are held back wait here; it guards `stall_seconds`.
        self._relief = Condition()
        self.stall_seconds = 0.0

    @property
    def has_workers(self) -> bool:
        """Whether threads work it off; otherwise whoever writes does."""
        return bool(self._workers)

    @property
    def failure(self) -> NeveError | None:
        """Why background work does not get on; None while it does."""
        return _failure_of((*self._workers, *self._bystanders))

    def start(self, *workers: BackgroundWork, beside: Iterable[BackgroundWork] = ()) -> None:
        """Let threads work from now on; no writer ever waits for those `beside`."""
        self._workers = workers
        self._bystanders = tuple(beside)
        for worker in (*workers, *self._bystanders):
            worker.start()
        self.wake()

    def stop(self) -> None:
        """End the threads, each after the step it is in."""
        for worker in (*self._workers, *self._bystanders):
            worker.close()

    def wake(self) -> None:
        """Have the threads look for work."""
        for worker in (*self._workers, *self._bystanders):
            worker.wake()

    def judge(self) -> None:
        """Judge how far work is behind, and let writers go on that need not wait any more."""
        view = self._current.view
        pressure = pressure_of(
            self._options,
            frozen=len(view.memtables) - 1,
            level0_files=view.files.level0_count,
        )
        self.pressure = pressure if pressure.is_felt else CALM
        if not self.pressure.must_wait:
            self.let_go()

    def let_go(self) -> None:
        """Have waiting writers look again at once."""
        with self._relief:
            self._relief.notify_all()

    def hold_back(self, *, check: Callable[[], None], work_off: Callable[[], bool]) -> None:
        """Hold a writer back for as long as the pressure asks.

        `check` raises when the table has ended meanwhile. Without threads, `work_off` does the work
        that is due; it says whether there was any.
        """
        pressure = self.pressure
        began = self._clock.monotonic()
        if not self.has_workers:
            while self.pressure.must_wait and work_off():
                pass
        elif pressure.must_wait:
            self._wait(check)
        else:
            self._clock.sleep(pressure.delay_seconds)
        seconds = self._clock.monotonic() - began
        self._recorder.add(STALL_SECONDS, seconds)
        with self._relief:
            self.stall_seconds += seconds

    def _wait(self, check: Callable[[], None]) -> None:
        self.wake()
        while self.pressure.must_wait:
            check()
            failure = _failure_of(self._workers)
            if failure is not None:
                raise _stopped(self.pressure, failure) from failure
            with self._relief:
                self._relief.wait(_LOOK_AGAIN_SECONDS)


def _failure_of(workers: Iterable[BackgroundWork]) -> NeveError | None:
    return next((failure for worker in workers if (failure := worker.failure) is not None), None)


def _stopped(pressure: Pressure, failure: NeveError) -> Unavailable:
    return Unavailable(
        f"writes wait because {pressure.reason}, and that fails: {failure.message}",
        path=failure.path,
        hint="Everything acknowledged is safe in the log; make room or repair the storage, and "
        "write again",
    )
