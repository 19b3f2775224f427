"""Backlog: how much flushing and compaction is pending, and how that slows writers down.

    level 0 files   … slow        no delay
                    slow … max    each write waits a moment, longer with every further file
                    max …         writers wait until compaction has caught up
    full memtables  beyond what may wait: writers wait until one is flushed

A write, a batch or a single row, is delayed before any of it is logged. The pressure is computed
again whenever a memtable is frozen or a Version is shown. Waiting writers are woken when they may
continue. They also check from time to time whether the work they wait for has failed: otherwise
they might wait forever.
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
    """How a writer is slowed down before its write."""

    delay_seconds: float = 0.0
    must_wait: bool = False
    reason: str = ""

    @property
    def is_felt(self) -> bool:
        """Whether a writer is slowed down at all."""
        return self.must_wait or self.delay_seconds > 0


CALM: Final = Pressure()


def pressure_of(options: TableOptions, *, frozen: int, level0_files: int) -> Pressure:
    """Compute the pressure of pending background work."""
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
    """The pending work, and the threads that do it; safe for many threads."""

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
        # Stalled writers wait here; it guards `stall_seconds`.
        self._relief = Condition()
        self.stall_seconds = 0.0

    @property
    def has_workers(self) -> bool:
        """Whether threads do the work; otherwise writers do."""
        return bool(self._workers)

    @property
    def failure(self) -> NeveError | None:
        """Why background work fails; None while it succeeds."""
        return _failure_of((*self._workers, *self._bystanders))

    def start(self, *workers: BackgroundWork, beside: Iterable[BackgroundWork] = ()) -> None:
        """Start the threads; writers never wait for those `beside`."""
        self._workers = workers
        self._bystanders = tuple(beside)
        for worker in (*workers, *self._bystanders):
            worker.start()
        self.wake()

    def stop(self) -> None:
        """End the threads, each after its current step."""
        for worker in (*self._workers, *self._bystanders):
            worker.close()

    def wake(self) -> None:
        """Make the threads look for work."""
        for worker in (*self._workers, *self._bystanders):
            worker.wake()

    def judge(self) -> None:
        """Compute the pressure, and wake writers that no longer have to wait."""
        view = self._current.view
        pressure = pressure_of(
            self._options,
            frozen=len(view.memtables) - 1,
            level0_files=view.files.level0_count,
        )
        self.pressure = pressure if pressure.is_felt else CALM
        if not self.pressure.must_wait:
            self.release()

    def release(self) -> None:
        """Make waiting writers check again at once."""
        with self._relief:
            self._relief.notify_all()

    def hold_back(self, *, check: Callable[[], None], work_off: Callable[[], bool]) -> None:
        """Delay a writer for as long as the pressure requires.

        `check` raises when the table was closed. Without threads, `work_off` does pending work and
        returns whether there was any.
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
        f"writes wait because {pressure.reason}, which fails: {failure.message}",
        path=failure.path,
        hint="Make room or repair the storage, and write again; everything acknowledged is safe in "
        "the log",
    )
