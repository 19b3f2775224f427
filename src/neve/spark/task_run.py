"""Runs tasks on Spark, which only places and repeats them: nothing is shuffled.

    spark.range(n) ──► one task for each number ──► rows of answers ──► driver

Answers and errors are those of `neve.spark.task_answers`.

A task may run twice, at once even, and a first try may have written files: the answer that comes
back is that of one whole try. Workers open the warehouse themselves.

The files of a table inside a worker, which reads and writes them and commits nothing.

A worker gets the table's location and definitions with its task. It reads no manifest, so a task
costs the same however long the table's history is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Final, TypeAlias, TypeVar

import pyarrow as pa
from pyspark import SparkContext
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from neve.compaction.rewrite_job import TableDefinition
from neve.engine.run_name import RunIds, RunName
from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.spark.job_site import TableSite, pairs_of
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
from neve.table.table_files import TableFiles

Task = TypeVar("Task")
Work: TypeAlias = Callable[[Task], TaskAnswer]
"""Runs one task in a worker."""

_POLL_SECONDS: Final = 0.2
_CAUSE_CHARACTERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """A caller that follows how far the tasks are, and may end them."""

    tell: Callable[[int], None]
    """Told the weight of further tasks that are done."""
    check: Callable[[], None] | None = None
    """Raises when the work is to end."""


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
    `what` says in an error what was being done.
    """
    if not tasks:
        return []
    given = list(tasks)
    weights = [weigh(task) for task in given]
    watching = _Watching(session, watch, weights)
    told = watching.accumulator

    # Sent to the workers with everything it names: nothing of the session is among that.
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from answered(partial(work, given[number]), number)
                if told is not None:
                    told.add(weights[number])

    frame = session.range(0, len(given), 1, len(given)).mapInArrow(run, ANSWER_DDL)
    with watching.until_done():
        try:
            # Not as Arrow: that runs in a thread of Java's own, which does not know the tag.
            rows = frame.collect()
        except Exception as error:
            # Of PySpark, of the gateway to Java or of the network: there is no common kind.
            raise _failure(what, error) from error
    messages: dict[int, list[Message]] = {}
    for message in messages_in(rows):
        messages.setdefault(message.task, []).append(message)
    if len(messages) != len(given):
        raise Unavailable(
            f"{what}: {len(messages):,} of {len(given):,} tasks gave an answer", hint="try again"
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
    """Make the error for a job that failed, with the words of neve's own error if there was one."""
    known = error_in(str(error))
    lines = str(error).strip().splitlines() or [type(error).__name__]
    cause = lines[0] if known is None else known.what_and_where
    return Unavailable(
        f"{what}: the Spark job failed: {cause[:_CAUSE_CHARACTERS]}",
        hint="The cause is attached; nothing was committed, so it can be run again",
    )


class _Watching:
    """Looks, while tasks run, at what is done and whether to go on; for one run."""

    def __init__(self, session: SparkSession, watch: Watch | None, weights: list[int]) -> None:
        self.weights = weights
        self._session = session
        self._watch = watch
        self._told = 0
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
        """Tell how far the tasks are; raises what `check` raised, and ends the tasks then."""
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
        self._tell(sum(self.weights))

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
                self._tell(int(self.accumulator.value))

    # A session on this machine keeps its tags to itself: only those of the context reach its jobs.

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

    def _tell(self, done: int) -> None:
        """Tell what is new; a task that ran twice counts once more, so there is an end to it."""
        assert self._watch is not None
        done = min(done, sum(self.weights))
        if done > self._told:
            self._watch.tell(done - self._told)
            self._told = done


_CACHE_BYTES: Final = 32 << 20


def site_of(table: TableDefinition, storage_options: Mapping[str, str] | None) -> TableSite:
    """Return where workers find a table; raises InvalidArgument when only this process has it."""
    if table.location.startswith("memory:"):
        raise InvalidArgument(
            "a warehouse in memory cannot be reached by Spark's workers",
            path=table.location,
            hint="Keep it in a directory that all of them see, or in an object store",
        )
    return TableSite(
        location=table.location,
        table_id=table.table_id,
        storage_options=pairs_of(storage_options),
        properties=pairs_of(table.properties),
    )


def worker_files(site: TableSite, table: TableDefinition, *, run: str | None = None) -> TableFiles:
    """Open the files of a table in a worker; the names of new ones begin with that of `run`."""
    parts = site.parts()
    parts.definitions.add(table.schemas, table.specs)
    return TableFiles(
        parts,
        table.schema_id,
        cache_bytes=_CACHE_BYTES,
        ids=None if run is None else RunIds(RunName(run), parts.ids),
    )
