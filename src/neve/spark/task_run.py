"""Runs tasks on Spark, which only schedules and retries them.

    spark.range(n) ──► one task for each number ──► rows of answers ──► driver

Answers and errors are those of `neve.spark.task_answers`; nothing is shuffled.

A task may run twice, even at once, and a failed try may have written files: the answer is that of
one complete try.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from neve.errors import NeveError, Unavailable
from neve.spark.task_answers import (
    ANSWER_DDL,
    Message,
    TaskAnswer,
    answer_of,
    answered,
    error_in,
    messages_in,
)
from neve.storage.clock import SystemIds

Task = TypeVar("Task")
Work: TypeAlias = Callable[[Task], TaskAnswer]
"""Runs one task in a worker."""

_POLL_SECONDS: Final = 0.2
_CAUSE_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A caller that follows the progress of tasks, and may end them."""

    report: Callable[[int], None]
    """Called with the weight of further finished tasks."""
    check: Callable[[], None] | None = None
    """Raises when the work should end."""


def run_tasks(
    session: SparkSession,
    tasks: Sequence[Task],
    work: Work[Task],
    *,
    what: str,
    weigh: Callable[[Task], int] = lambda _task: 1,
    watch: Watch | None = None,
) -> list[TaskAnswer | NeveError]:
    """Run tasks on the workers; returns the answer or the error of each, in their order.

    Raises Unavailable when Spark could not run them. `work` and the tasks are sent to the workers.
    `what` names the work in an error.
    """
    if not tasks:
        return []
    given = list(tasks)
    weights = [weigh(task) for task in given]
    watching = _Watching(session, watch, weights)
    counted = watching.accumulator

    # Sent to the workers with everything it refers to, which must not include the session.
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from answered(partial(work, given[number]), number)
                if counted is not None:
                    counted.add(weights[number])

    frame = session.range(0, len(given), 1, len(given)).mapInArrow(run, ANSWER_DDL)
    with watching.until_done():
        try:
            # Not as Arrow: that runs in another thread of Java, which does not have the tag.
            rows = frame.collect()
        except Exception as error:
            # Of PySpark, of the gateway to Java or of the network: there is no common kind.
            raise _failure(what, error) from error
    messages: dict[int, list[Message]] = {}
    for message in messages_in(rows):
        messages.setdefault(message.task, []).append(message)
    if len(messages) != len(given):
        raise Unavailable(
            f"{what}: {len(messages):,} of {len(given):,} tasks answered", hint="Try again"
        )
    return [_outcome(messages[number]) for number in range(len(given))]


def answers_of(outcomes: Iterable[TaskAnswer | NeveError]) -> list[TaskAnswer]:
    """Return the answers of tasks; raises the first error among them."""
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, NeveError):
            raise outcome
        answers.append(outcome)
    return answers


def _outcome(messages: Sequence[Message]) -> TaskAnswer | NeveError:
    try:
        return answer_of(messages)
    except NeveError as error:
        return error


def _failure(what: str, error: Exception) -> Unavailable:
    """Return the error for a job that failed: neve's own error if there was one."""
    known = error_in(str(error))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    cause = lines[0] if known is None else known.what_and_where
    return Unavailable(
        f"{what}: the Spark job failed: {cause[:_CAUSE_CHARACTERS]}",
        hint="Run it again: nothing was committed; the cause is attached",
    )


class _Watching:
    """Polls progress, and whether to go on, while tasks run; for one run."""

    def __init__(self, session: SparkSession, watch: Watch | None, weights: list[int]) -> None:
        self.weights = weights
        self._session = session
        self._watch = watch
        self._reported = 0
        self._is_over = Event()
        self._stopped: BaseException | None = None
        self._tag = f"neve-{SystemIds().uuid().hex}"
        self._context: SparkContext | None = None
        self.accumulator: Accumulator[int] | None = None
        if watch is not None:
            # On Spark Connect there is no context: progress is reported at the end.
            with suppress(Exception):
                self._context = session.sparkContext
        if self._context is not None:
            self.accumulator = self._context.accumulator(0)

    @contextmanager
    def until_done(self) -> Iterator[None]:
        """Report progress; when `check` raises, end the tasks and raise the same."""
        if self._watch is None:
            yield
            return
        if self._watch.check is not None:
            self._watch.check()
        self._add_tag()
        looking = Thread(target=self._look, name="neve-spark-progress", daemon=True)
        looking.start()
        try:
            yield
        except Unavailable:
            if self._stopped is not None:
                raise self._stopped from None
            raise
        finally:
            self._is_over.set()
            looking.join()
            self._remove_tag()
        self._report(sum(self.weights))

    def _look(self) -> None:
        assert self._watch is not None
        while not self._is_over.wait(_POLL_SECONDS):
            try:
                if self._watch.check is not None:
                    self._watch.check()
            except BaseException as stop:  # noqa: BLE001 - it is raised by the thread that waits
                self._stopped = stop
                self._end_tagged()
                return
            if self.accumulator is not None:
                self._report(int(self.accumulator.value))

    # In a session on this machine, only tags of the context reach its jobs.

    def _add_tag(self) -> None:
        if self._context is None:
            self._session.addTag(self._tag)
        else:
            self._context.addJobTag(self._tag)

    def _remove_tag(self) -> None:
        if self._context is None:
            self._session.removeTag(self._tag)
        else:
            self._context.removeJobTag(self._tag)

    def _end_tagged(self) -> None:
        if self._context is None:
            self._session.interruptTag(self._tag)
        else:
            self._context.cancelJobsWithTag(self._tag)

    def _report(self, done: int) -> None:
        """Report only progress; a task that ran twice counts twice, so the sum is capped."""
        assert self._watch is not None
        done = min(done, sum(self.weights))
        if done > self._reported:
            self._watch.report(done - self._reported)
            self._reported = done


TASK_ITEMS_MAX: Final = 250


def cut_tasks(
    items: Sequence[Task], weigh: Callable[[Task], int], *, weight_max: int
) -> Iterator[tuple[Task, ...]]:
    """Split items into tasks of bounded weight and number."""
    task: list[Task] = []
    weight = 0
    for item in items:
        more = weigh(item)
        if task and (weight + more > weight_max or len(task) >= TASK_ITEMS_MAX):
            yield tuple(task)
            task, weight = [], 0
        task.append(item)
        weight += more
    if task:
        yield tuple(task)
