"""Progress of Spark jobs: how many of their tasks are done, for the caller or on a terminal.

A session in this process is polled for its stages; one on a server reports them itself. Spark plans
stage by stage, so the number of tasks may grow while a job runs. Without a `progress` function, a
line on the driver's terminal, if there is one, shows it.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final, Protocol

from pyspark.sql import SparkSession

from neve.observability.events import Progress, ignore

_WIDTH: Final = 30


@contextmanager
def shown(title: str, progress: Progress | None) -> Iterator[Progress]:
    """Yield the function that takes progress: the caller's, or that of a bar."""
    if progress is not None:
        yield progress
        return
    terminal = sys.stderr
    if not terminal.isatty():
        yield ignore
        return

    def draw(done: int, total: int) -> None:
        share = done / total if total else 1.0
        bar = "━" * int(share * _WIDTH)
        terminal.write(f"\r\x1b[K{title} {bar:<{_WIDTH}} {share:4.0%}")
        terminal.flush()

    try:
        yield draw
    finally:
        terminal.write("\r\x1b[K")
        terminal.flush()


_POLL_SECONDS: Final = 0.2


class Stage(Protocol):
    """What a Spark server reports about a stage."""

    num_tasks: int
    num_completed_tasks: int


@contextmanager
def watched(session: SparkSession, title: str, progress: Progress | None) -> Iterator[None]:
    """Report the progress of the tasks inside the block; with a bar on a terminal."""
    if progress is None and not sys.stderr.isatty():
        yield
        return
    with shown(title, progress) as tell:
        listen = _on_server if _is_on_server(session) else _in_process
        changes = _Ascending(tell)
        with listen(session, changes):
            yield
        changes.finish()


class _Ascending:
    """Reports only changes."""

    def __init__(self, tell: Progress) -> None:
        self._tell = tell
        self._reported = (0, 0)

    def __call__(self, done: int, total: int) -> None:
        if total and (done, total) != self._reported:
            self._reported = (done, total)
            self._tell(done, total)

    def finish(self) -> None:
        """Report the end: a short job ends before anyone looks."""
        total = max(self._reported[1], 1)
        self(total, total)


def _is_on_server(session: SparkSession) -> bool:
    # The module of PySpark's session class distinguishes the two kinds.
    return ".connect." in type(session).__module__


@contextmanager
def _on_server(session: SparkSession, tell: Progress) -> Iterator[None]:
    def handle(
        stages: Iterable[Stage] | None, inflight_tasks: int, operation_id: str | None, done: bool
    ) -> None:
        _ = inflight_tasks, operation_id, done
        known = list(stages or ())
        tell(sum(each.num_completed_tasks for each in known), sum(each.num_tasks for each in known))

    session.registerProgressHandler(handle)  # type: ignore[arg-type]  # it takes any function
    try:
        yield
    finally:
        session.removeProgressHandler(handle)  # type: ignore[arg-type]


@contextmanager
def _in_process(session: SparkSession, tell: Progress) -> Iterator[None]:
    tracker = session.sparkContext.statusTracker()
    before = set(tracker.getActiveStageIds())
    seen: dict[int, tuple[int, int]] = {}
    is_over = Event()

    def look() -> None:
        while not is_over.wait(_POLL_SECONDS):
            # A stage may end between two polls.
            with suppress(Exception):
                for stage in (*seen, *tracker.getActiveStageIds()):
                    info = None if stage in before else tracker.getStageInfo(stage)
                    if info is not None:
                        seen[stage] = (info.numCompletedTasks, info.numTasks)
                tell(sum(done for done, _ in seen.values()), sum(all_ for _, all_ in seen.values()))

    looking = Thread(target=look, name="neve-spark-progress", daemon=True)
    looking.start()
    try:
        yield
    finally:
        is_over.set()
        looking.join()
