"""Backlog: how far flushes and compactions are behind, and how writers are held back for it.

    level 0 files   … slow        no delay
                    slow … max    each write waits a moment, longer with every further file
                    max …         writers wait until compaction has caught up
    full memtables  beyond what may wait: writers wait until one is flushed

A write is delayed before anything of it is logged, batches as well as single rows. The pressure is
judged again whenever a memtable is frozen or a Version is shown. Writers that wait are woken when
they may go on. They also look from time to time whether the work they wait for has failed:
otherwise they might wait for ever.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Condition
from typing import Final

from neve.engine.background import BackgroundWork
from neve.engine.snapshot import CurrentView
from neve.engine.table_options import TableOptions
from neve.errors import NeveError, Unavailable
from neve.observability.metrics import STALL_SECONDS, Recorder
from neve.storage.clock import Clock

_DELAY_SECONDS_MAX: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """How a writer is held back before its write."""

    delay_seconds: float = 0.0
    must_wait: bool = False
    reason: str = ""

    @property
    def is_felt(self) -> bool:
        """Whether a writer is held back at all."""
        return self.must_wait or self.delay_seconds > 0


CALM: Final = Pressure()


def pressure_of(options: TableOptions, *, frozen: int, level0_files: int) -> Pressure:
    """Judge how far background work is behind."""
    if frozen > options.frozen_memtables:
        return Pressure(must_wait=True, reason=f"{frozen} memtables wait for their flush")
    if level0_files >= options.level0_files_max:
        return Pressure(must_wait=True, reason=f"{level0_files} young files wait for compaction")
    if level0_files < options.level0_files_slow:
        return CALM
    steps = options.level0_files_max - options.level0_files_slow
    share = (level0_files - options.level0_files_slow + 1) / max(steps, 1)
    return Pressure(
        delay_seconds=_DELAY_SECONDS_MAX * share * share,
        reason=f"{level0_files} young files wait for compaction",
    )


_LOOK_AGAIN_SECONDS: Final = 0.05


class Backlog:
    """The work that is due, and the threads that do it; safe for many threads."""

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
        """Whether threads do the work; otherwise writers do."""
        return bool(self._workers)

    @property
    def failure(self) -> NeveError | None:
        """Why background work fails; None while it does not."""
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
        """Judge how far work is behind, and wake writers that need not wait any more."""
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

        `check` raises when the table was closed. Without threads, `work_off` does the work that is
        due and returns whether there was any.
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
