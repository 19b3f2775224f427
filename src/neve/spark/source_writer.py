"""Writing through `format("neve")`: rows of a batch or a micro-batch are written as one Version.

    df.write.format("neve").option("table", "shop.orders").mode("append").save("./lake")

    option       meaning
    table        name of the table; the location is the path
    op           the rows are a change feed: the column with the operation, which is an upsert or a
                 delete, as for `neve.spark.apply`
    orderBy      the last of several rows of one key in a task, by these columns, with commas
                 between them, counts; also spelled order_by
    job_id       a batch write of this id is committed once, however often it runs
    app_id       names a stream, so that each of its batches is committed once; by default the id
                 of the query, as its checkpoint says, on the driver's disk or in a bucket
    upkeep       "false": do not compact and clean up after the commit
    storage.x    storage option x of the lake

Spark divides the rows, not the writer. A task sorts its rows in memory; two tasks that have rows of
one key are an error: repartition by the key first. `neve.spark.upsert` divides rows itself, looks
rows up where it writes them, and suits large jobs better.

Every step runs in another process: planning begins the run, tasks write, a last one commits. For a
stream, Spark commits with another writer, which has begun its own run: it commits the run of the
tasks, on the Version that they looked rows up in. The process that commits has no session of Spark,
so it compacts what is due itself.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from neve.engine.applied_changes import ChangeOptions
from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.jobs.commit import BulkRun
from neve.jobs.rows import BulkRows, duplicate_keys, sorted_by_key
from neve.jobs.run import BulkWork, JobBase, JobIdentity
from neve.keys.arrays import concat_keys
from neve.keys.columns import KeyArray
from neve.model.schema import TableSchema
from neve.spark.change_tasks import change_pieces, take_changes
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite, TableSite
from neve.spark.row_form import check_change_columns, check_columns, check_names
from neve.spark.source import refuse_create_table, refuse_misspelled, storage_options
from neve.spark.task_answers import Message, answer_of
from neve.spark.write_plan import folds_in_any_order
from neve.spark.write_tasks import done_by, fitted_pieces, take_rows
from neve.storage.open_store import is_bucket, open_store

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    _HAS_STREAMS = True
except ImportError:
    # Older PySpark passes a stream row by row.
    DataSourceStreamArrowWriter = DataSourceStreamWriter  # type: ignore[assignment,misc]
    _HAS_STREAMS = False

_OPTIONS: Final = (
    "path",
    "table",
    "op",
    "order_by",
    "orderBy",
    "job_id",
    "app_id",
    "checkpointLocation",
    "upkeep",
)
_DEADLINE_SECONDS: Final = 6 * 60 * 60.0


@dataclass(frozen=True)
class TaskWork(WriterCommitMessage):
    """What one task made, and in which run."""

    messages: tuple[Message, ...]
    run: BulkRun | None


def batch_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceArrowWriter:
    """Begin a batch write; raises NotFound, SchemaMismatch, InvalidArgument."""
    asked = _Asked.of(options, overwrite=overwrite)
    identity = JobIdentity(job_id=asked.job_id)
    return BatchWriter(_Begun.of(asked, schema, identity))


def stream_writer(
    schema: StructType, options: Mapping[str, str], overwrite: bool
) -> DataSourceStreamArrowWriter:
    """Begin the write of a micro-batch; raises NotFound, SchemaMismatch, InvalidArgument."""
    if not _HAS_STREAMS:
        raise InvalidArgument(
            'this PySpark cannot write a stream through format("neve")',
            hint="Use foreachBatch(neve.spark.upsert_batch(…)), or PySpark 4.2 or newer",
        )
    asked = _Asked.of(options, overwrite=overwrite)
    return StreamWriter(_Begun.of(asked, schema, JobIdentity()), asked.stream_id())


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame: upserts, or the changes of a feed."""

    def __init__(self, begun: "_Begun") -> None:
        self._begun = begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        """Write the rows of a task, in a worker."""
        return self._begun.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit what all tasks wrote."""
        self._begun.commit(messages, self._begun.run.identity if self._begun.run else None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was written, unless it is committed after all."""
        self._begun.give_up(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each once."""

    def __init__(self, begun: "_Begun", stream_id: str) -> None:
        self._begun = begun
        self._stream_id = stream_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as Spark's own
        """Write the rows of a task, in a worker."""
        return self._begun.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's
        """Commit what all tasks wrote, unless the batch is committed already."""
        identity = JobIdentity(application=(self._stream_id, int(batchId)))
        self._begun.commit(messages, identity)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Remove what was written, unless it is committed after all."""
        self._begun.give_up(messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The options of a write."""

    location: str
    table: str
    changes: ChangeOptions | None
    """None: all rows are upserts."""
    order_by: tuple[str, ...]
    job_id: str | None
    app_id: str | None
    checkpoint: str | None
    upkeep: bool
    storage_options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], *, overwrite: bool) -> "_Asked":
        refuse_create_table(options)
        refuse_misspelled(options, _OPTIONS)
        given = {name.lower(): value for name, value in options.items()}
        if overwrite:
            raise InvalidArgument(
                "a table cannot be overwritten through format('neve')",
                hint="Use mode('append'), which upserts, or neve.spark.overwrite_partitions",
            )
        for name, what in (("path", "location"), ("table", "name of the table")):
            if not given.get(name):
                raise InvalidArgument(
                    f"the {what} is not given",
                    hint='Write .option("table", "namespace.table") and .save("location")',
                )
        order_by = _order_in(given)
        op = given.get("op")
        return cls(
            location=given["path"],
            table=given["table"],
            changes=None if op is None else ChangeOptions.of(op, order_by, None),
            order_by=order_by,
            job_id=given.get("job_id"),
            app_id=given.get("app_id"),
            checkpoint=given.get("checkpointlocation"),
            upkeep=_upkeep_in(given),
            storage_options=storage_options(given),
        )

    def check(self, rows: StructType, schema: TableSchema) -> None:
        """Raise SchemaMismatch or InvalidArgument for columns that no row could fit."""
        if self.changes is not None:
            check_change_columns(rows, schema, self.changes.on(schema))
            return
        check_columns(rows, schema)
        for name in self.order_by:
            if name not in schema:
                raise InvalidArgument(
                    f"order_by={name!a} is not a column of the table",
                    hint="Use neve.spark.upsert to order by a column that is not written",
                )

    def fill(self, task: BulkRows, base: JobBase, batches: Iterator[pa.RecordBatch]) -> None:
        """Do the work of a task."""
        schema = base.schema
        changes = None if self.changes is None else self.changes.on(schema)
        own = schema.order_names
        pieces = (
            fitted_pieces(batches, base)
            if changes is None
            else change_pieces(batches, base, changes)
        )
        order = own or self.order_by
        found = sorted_by_key(pieces, order_by=order)
        ordered = [] if found is None else [found]
        if changes is not None:
            take_changes(task, ordered, base, changes)
            return
        is_free = bool(order) or folds_in_any_order(schema, schema.rules)
        take_rows(task, ordered, base, refuses_more=not is_free)

    def stream_id(self) -> str:
        """Return what the stream is known by, for good."""
        if self.app_id:
            return self.app_id
        try:
            return str(json.loads(self._checkpoint_metadata())["id"])
        except (NeveError, OSError, ValueError, KeyError) as error:
            raise InvalidArgument(
                "it is not known which stream this is",
                hint='Write .option("app_id", "name"), with a name that no other stream has',
            ) from error

    def _checkpoint_metadata(self) -> bytes:
        """Read what Spark writes about the query: here, or in a bucket that the options open."""
        place = self.checkpoint or ""
        if is_bucket(place):
            checkpoint = open_store(place, storage_options=self.storage_options)
            return checkpoint.get("metadata").payload
        return (Path(unquote(place).removeprefix("file:")) / "metadata").read_bytes()


def _order_in(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns to order by, of options whose names are in lower case."""
    spellings = [given[name] for name in ("order_by", "orderby") if name in given]
    if len(spellings) > 1:
        raise InvalidArgument("orderBy and order_by are one option", hint="Leave one of them out")
    return tuple(name.strip() for text in spellings for name in text.split(","))


def _upkeep_in(given: Mapping[str, str]) -> bool:
    """Return whether a write is followed by upkeep, of options whose names are in lower case."""
    text = given.get("upkeep", "true").lower()
    if text not in {"true", "false"}:
        raise InvalidArgument(f"upkeep={text!a}", hint='Write "true" or "false"')
    return text == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A write that was planned: goes to the workers, and to the process that commits."""

    asked: _Asked
    site: TableSite
    run: BulkRun | None
    """None when the job is committed already."""

    @classmethod
    def of(cls, asked: _Asked, schema: StructType, identity: JobIdentity) -> "_Begun":
        check_names(schema.names, has_case=True)
        with TableJobs(
            asked.location, asked.table, storage_options=asked.storage_options or None
        ) as jobs:
            asked.check(schema, jobs.table.schema)
            if jobs.committer.find_committed(identity) is not None:
                return cls(asked=asked, site=jobs.site, run=None)
            run = jobs.committer.begin(identity, deadline_seconds=_DEADLINE_SECONDS)
            return cls(asked=asked, site=jobs.site, run=run)

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWork:
        if self.run is None:
            for _ in batches:
                pass
            return TaskWork((), None)
        site = JobSite(table=self.site, run=self.run.run.digits, base=self.run.base)
        answer = done_by(self.asked.fill, site, batches)
        return TaskWork(tuple(answer.messages()), self.run)

    def commit(
        self, messages: list[WriterCommitMessage | None], identity: JobIdentity | None
    ) -> None:
        if self.run is None or identity is None:
            return
        works = _works_of(messages)
        runs = _runs_of(works) or [self.run]
        if len(runs) > 1:
            self.give_up(messages)
            raise Unavailable("tasks of one write worked on several Versions", hint="try again")
        work = answer_of(message for each in works for message in each.messages).work
        with self._jobs() as jobs:
            try:
                _commit(jobs, replace(runs[0], identity=identity), work)
            finally:
                if self.run != runs[0]:
                    jobs.committer.give_up(self.run)

    def give_up(self, messages: list[WriterCommitMessage | None]) -> None:
        if self.run is not None:
            with self._jobs() as jobs:
                for run in {self.run, *_runs_of(_works_of(messages))}:
                    jobs.committer.give_up(run)

    def _jobs(self) -> TableJobs:
        # Not the location as it was given: this process may have another working directory.
        return TableJobs(
            self.site.location,
            self.asked.table,
            storage_options=self.asked.storage_options or None,
            upkeep=self.asked.upkeep,
        )


def _works_of(messages: Iterable[WriterCommitMessage | None]) -> list[TaskWork]:
    return [each for each in messages if isinstance(each, TaskWork)]


def _runs_of(works: Iterable[TaskWork]) -> list[BulkRun]:
    """Return the runs that tasks worked in: one, unless they had nothing to do."""
    return list(dict.fromkeys(each.run for each in works if each.run is not None))


def _commit(jobs: TableJobs, run: BulkRun, work: BulkWork) -> None:
    with jobs.committer.working(run) as base:
        if jobs.committer.find_committed(run.identity) is not None:
            jobs.committer.give_up(run)
            return
        _refuse_shared_keys(base, work)
    jobs.committer.commit(run, work)


def _refuse_shared_keys(base: JobBase, work: BulkWork) -> None:
    """Raise InvalidArgument when two tasks have rows of one key, or delete it."""
    pieces = [
        _Keys(low=file.key_min, high=file.key_max, read=partial(base.keys_of, file))
        for file in work.files
    ]
    pieces += [_Keys.of_deleted(keys) for keys in work.deleted_keys]
    for group in _overlapping(pieces):
        keys = concat_keys([piece.read() for piece in group])
        codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        is_shared = np.bincount(codes)[codes] > 1
        if is_shared.any():
            error = duplicate_keys(keys.filter(pa.array(is_shared)), base.context.encoder)
            error.add_note("tasks have them apart: repartition the rows by the key before writing")
            raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """Keys that a task wrote or deleted, each once."""

    low: bytes
    high: bytes
    read: Callable[[], KeyArray]

    @classmethod
    def of_deleted(cls, keys: KeyArray) -> "_Keys":
        low, high = keys[0].as_py(), keys[-1].as_py()
        assert isinstance(low, bytes)
        assert isinstance(high, bytes)
        return cls(low=low, high=high, read=lambda: keys)


def _overlapping(pieces: Iterable[_Keys]) -> Iterator[list[_Keys]]:
    """Yield the pieces whose ranges of keys touch, group by group."""
    group: list[_Keys] = []
    for piece in sorted(pieces, key=lambda piece: piece.low):
        if group and piece.low > max(each.high for each in group):
            if len(group) > 1:
                yield group
            group = []
        group.append(piece)
    if len(group) > 1:
        yield group
