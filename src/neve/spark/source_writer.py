"""Writing through `format("neve")`: rows of a batch or a micro-batch are upserted as one Version.

    df.write.format("neve").option("table", "shop.orders").mode("append").save("./lake")

    option       meaning
    table        name of the table; the location is the path
    order_by     the last of several rows of one key in a task, by this column, counts
    job_id       a batch write of this id is committed once, however often it runs
    app_id       names a stream, so that each of its batches is committed once; by default the id
                 of the query, as its checkpoint on this machine says
    storage.x    storage option x of the lake

Spark divides the rows, not the writer. A task sorts its rows in memory; two tasks that have rows of
one key are an error: repartition by the key first. `neve.spark.upsert` divides rows itself, looks
rows up where it writes them, and suits large jobs better.

Every step runs in another process: planning begins the run, tasks write, a last one commits. For a
stream, Spark commits with another writer, which has begun its own run: it commits the run of the
tasks, on the Version that they looked rows up in.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.jobs.commit import BulkRun
from neve.jobs.rows import BulkRows, duplicate_keys, last_of_each, sorted_by_key
from neve.jobs.run import BulkWork, JobBase, JobIdentity
from neve.keys.arrays import concat_keys
from neve.model.data_file import DataFile
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite, TableSite
from neve.spark.row_form import check_columns, check_names, fitted
from neve.spark.source import refuse_create_table, refuse_misspelled, storage_options
from neve.spark.task_answers import Message, TaskAnswer, answer_of

_OPTIONS: Final = ("path", "table", "order_by", "job_id", "app_id", "checkpointLocation")
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
    asked = _Asked.of(options, overwrite=overwrite)
    return StreamWriter(_Begun.of(asked, schema, JobIdentity()), asked.stream_id())


class BatchWriter(DataSourceArrowWriter):
    """Upserts a DataFrame."""

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
    """Upserts the micro-batches of a stream, each once."""

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
    order_by: str | None
    job_id: str | None
    app_id: str | None
    checkpoint: str | None
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
        return cls(
            location=given["path"],
            table=given["table"],
            order_by=given.get("order_by"),
            job_id=given.get("job_id"),
            app_id=given.get("app_id"),
            checkpoint=given.get("checkpointlocation"),
            storage_options=storage_options(given),
        )

    def stream_id(self) -> str:
        """Return what the stream is known by, for good."""
        if self.app_id:
            return self.app_id
        place = unquote(self.checkpoint or "").removeprefix("file:")
        try:
            document = json.loads((Path(place) / "metadata").read_text())
            return str(document["id"])
        except (OSError, ValueError, KeyError) as error:
            raise InvalidArgument(
                "it is not known which stream this is",
                hint='Write .option("app_id", "name"), with a name that no other stream has',
            ) from error


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
            check_columns(schema, jobs.table.schema)
            if asked.order_by is not None and asked.order_by not in jobs.table.schema:
                raise InvalidArgument(
                    f"order_by={asked.order_by!a} is not a column of the table",
                    hint="Use neve.spark.upsert to order by a column that is not written",
                )
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
        base = site.open()
        encoder = base.context.encoder
        rows = sorted_by_key(
            (fitted(batch, base.schema) for batch in batches), encoder, order_by=self.asked.order_by
        )
        if rows is None:
            return TaskWork((), self.run)
        task = BulkRows(base, by_partition=False)
        try:
            refuses_more = self.asked.order_by is None
            for piece, keys in last_of_each([rows], encoder, refuses_more=refuses_more):
                task.upsert(piece, keys)
            answer = TaskAnswer(work=task.finish())
            return TaskWork(tuple(answer.messages()), self.run)
        except BaseException:
            task.abort()
            raise

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
        )


def _works_of(messages: Iterable[WriterCommitMessage | None]) -> list[TaskWork]:
    return [each for each in messages if isinstance(each, TaskWork)]


def _runs_of(works: Iterable[TaskWork]) -> list[BulkRun]:
    """Return the runs that tasks worked in: one, unless they had nothing to do."""
    return list(dict.fromkeys(each.run for each in works if each.run is not None))


def _commit(jobs: TableJobs, run: BulkRun, work: BulkWork) -> None:
    try:
        if jobs.committer.find_committed(run.identity) is not None:
            jobs.committer.give_up(run)
            return
        _refuse_shared_keys(JobBase(jobs.parts, run.run, run.base), work)
    except NeveError:
        jobs.committer.give_up(run)
        raise
    jobs.committer.commit(run, work)


def _refuse_shared_keys(base: JobBase, work: BulkWork) -> None:
    """Raise InvalidArgument when two tasks have rows of one key."""
    for group in _overlapping(work.files):
        keys = concat_keys([base.keys_of(file) for file in group])
        codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        is_shared = np.bincount(codes)[codes] > 1
        if is_shared.any():
            error = duplicate_keys(keys.filter(pa.array(is_shared)), base.context.encoder)
            error.add_note("tasks have them apart: repartition the rows by the key before writing")
            raise error


def _overlapping(files: tuple[DataFile, ...]) -> Iterator[list[DataFile]]:
    """Yield the files whose ranges of keys touch, group by group."""
    ordered = sorted(files, key=lambda file: file.key_min)
    group: list[DataFile] = []
    for file in ordered:
        if group and file.key_min > max(each.key_max for each in group):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group
