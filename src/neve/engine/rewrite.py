"""Rewrite: executes compaction plans and commits them, with later changes of their inputs.

    plans ──► tasks ──► executor ──► files ──► one commit

Outputs hold the rows that were live in the plans' Version. Rows of the inputs that others have
marked since are found in the outputs by key and marked there. A plan is void when one of its inputs
was rewritten or restored in the meantime: its outputs are deleted, and the other plans are
committed. Rows of a table of Iceberg's format 3 keep their lineage (`neve.model.row_lineage`).

The result does not depend on where tasks run: see `neve.compaction.rewrite_job`.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from neve.compaction.local_executor import FileSink, RowReading, check_count, execute
from neve.compaction.plan import CompactionPlan
from neve.compaction.rewrite_job import (
    TASK_ROWS,
    PlanExecutor,
    RewriteJob,
    RewriteTask,
    TableDefinition,
    cut_plan,
)
from neve.errors import Conflict, NeveError, OutcomeUnknown
from neve.keys.columns import KeyArray
from neve.manifest.commit import CommitPlan, TableCommitter
from neve.manifest.rebase import Proposal
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.manifest.version_reader import Session, TableSnapshot
from neve.model.data_file import DataFile, PartitionValue, with_origin_of
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version, VersionEdit, VersionFacts
from neve.observability.events import EventKind
from neve.observability.metrics import (
    COMPACTED_BYTES,
    COMPACTED_ROWS,
    COMPACTION_SECONDS,
    COMPACTIONS,
)
from neve.sstable.data_file_writer import DataFileWriter, WrittenFile
from neve.table.file_writers import RunName
from neve.table.partitions import (
    Partition,
    partition_of,
    split_by_partition,
    split_by_spec,
)
from neve.table.row_order import RowOrder
from neve.table.table_context import Definitions, TableContext, TableParts
from neve.table.table_files import TableFiles

logger = logging.getLogger(__name__)

PlanOutput = tuple[CompactionPlan, tuple[DataFile, ...]]
"""A plan, and the files that its executor wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How plans are executed, and how progress is reported."""

    executor: PlanExecutor | None = None
    """None: this process."""
    progress: Callable[[int], None]
    check_cancelled: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Plans that were executed, and the Version that they made together."""

    plans: tuple[CompactionPlan, ...]
    committed: Committed
    seconds: float
    """From the first row that was read to the commit."""


class TaskFiles:
    """Reads and writes the files of rewrite tasks, in any process."""

    def __init__(
        self,
        files: TableFiles,
        *,
        run: RunName | None = None,
    ) -> None:
        self._files = files
        self._run = run

    def run(
        self,
        task: RewriteTask,
        context: TableContext,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> tuple[DataFile, ...]:
        """Write the files of one task; deletes them when that fails."""

        def project(rows: pa.Table, file: DataFile) -> pa.Table:
            return context.mapping_from(file.schema_id).table(rows)

        def encode_keys(rows: pa.Table) -> KeyArray:
            return context.encoder.encode_arrays(
                [rows.column(name) for name in context.encoder.names]
            )

        def make_files(spec_id: int, partition: Partition) -> DataFileWriter:
            return self._files.writers.data_files(
                context.schema,
                spec_id=spec_id,
                partition=partition if self._run is None else self._run.placed(partition),
                level=task.part.target_level,
                file_format=task.part.format,
                file_bytes=task.part.file_bytes,
                keeps_lineage=task.keeps_lineage,
            )

        def make_writer(plan: CompactionPlan) -> FileSink[WrittenFile]:
            if plan.moves_to is not None:
                specs = self._files.definitions.specs_from(plan.moves_to)
                return _MovedRows(specs, context.schema, make_files)
            spec = self._files.definitions.spec(plan.spec_id)
            partition = partition_of(plan.partition, spec, self._files.definitions.column_type)
            return make_files(plan.spec_id, partition)

        reading = RowReading(
            reader_of=self._files.reader,
            mask_of=self._files.keep_mask,
            project=project,
            encode_keys=encode_keys,
            keeps_lineage=task.keeps_lineage,
            check_cancelled=check_cancelled,
        )
        written = execute(
            task.part,
            reading,
            make_writer=make_writer,
            progress=progress,
            key_range=task.key_range,
        )
        return tuple(each.file for each in written)

    def discard(self, files: Iterable[DataFile]) -> None:
        """Delete files that will not be committed."""
        self._files.writers.discard_files(files)


class _MovedRows:
    """Writes rows to the partitions of the first spec that has one for them."""

    def __init__(
        self,
        specs: Sequence[PartitionSpec],
        schema: TableSchema,
        make_files: Callable[[int, Partition], DataFileWriter],
    ) -> None:
        """Take the wanted spec, followed by specs for the few rows that it has no partition for.

        `make_files` begins the files of a partition of a spec.
        """
        self._specs = specs
        self._schema = schema
        self._make_files = make_files
        self._open: dict[tuple[int, tuple[PartitionValue, ...]], DataFileWriter] = {}

    def append(self, rows: pa.Table, keys: KeyArray) -> None:
        """Take the next rows; their keys are greater than all previous ones."""
        for spec, given, places in split_by_spec(rows, self._specs, self._schema):
            given_keys = keys if places is None else keys.take(places)
            for partition in split_by_partition(given, spec, self._schema):
                place = spec.spec_id, partition.values
                writer = self._open.get(place)
                if writer is None:
                    writer = self._open[place] = self._make_files(spec.spec_id, partition)
                positions = partition.positions
                if positions is None:
                    writer.append(given, given_keys)
                else:
                    writer.append(given.take(positions), given_keys.take(positions))

    def finish(self) -> tuple[WrittenFile, ...]:
        """Complete the files and return what was written, partition by partition."""
        return tuple(file for writer in self._open.values() for file in writer.finish())

    def abort(self) -> None:
        """Delete whatever was written."""
        for writer in self._open.values():
            writer.abort()


class LocalExecutor:
    """Executes tasks in this process, one after another."""

    def __init__(self, task_files: TaskFiles, context: TableContext) -> None:
        self._task_files = task_files
        self._context = context

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        """Write the files of every task; return them by task, in the order of the tasks."""
        written: list[tuple[DataFile, ...]] = []
        try:
            # Append one by one: when a task fails, the list has the files of those before.
            written.extend(
                self._task_files.run(
                    task, self._context, progress=progress, check_cancelled=check_cancelled
                )
                for task in job.tasks
            )
        except BaseException:
            for files in written:
                self._task_files.discard(files)
            raise
        return written


class Rewrite:
    """Turns plans into Versions of the same rows."""

    def __init__(
        self,
        files: TableFiles,
        committer: TableCommitter,
        *,
        run: RunName | None = None,
        task_rows: int = TASK_ROWS,
    ) -> None:
        """Take the writers of files; `run` is the run of a job that announced its files."""
        self._parts = files.parts
        self._files = files
        self._committer = committer
        self._run = run
        self._task_rows = task_rows
        self.task_files = TaskFiles(files, run=run)

    def run(
        self,
        plans: Sequence[CompactionPlan],
        context: TableContext,
        facts: VersionFacts,
        execution: Execution,
        change: HeadChange,
    ) -> Rewritten | None:
        """Execute plans of one Version and commit them as one; None when all have become void.

        `facts` are those of the plans' Version. Files of plans that were not committed are deleted.
        """
        began = self._parts.clock.monotonic()
        job = self.job(plans, context)
        left = list(zip(plans, self.execute(job, context, execution), strict=True))
        if self._parts.keeps_lineage() and not all(task.keeps_lineage for task in job.tasks):
            # The table was upgraded to format 3 in the meantime: these rows have a lineage now.
            self._discard(left)
            return None
        try:
            while left:
                try:
                    committed = self._commit(left, facts, change)
                except Conflict as conflict:
                    # Others changed inputs: the next round plans on the current Version.
                    left = self._without_void(left, conflict)
                else:
                    seconds = self._parts.clock.monotonic() - began
                    done = tuple(plan for plan, _ in left)
                    return Rewritten(plans=done, committed=committed, seconds=seconds)
        except OutcomeUnknown:
            raise
        except NeveError:
            self._discard(left)
            raise
        return None

    def job(self, plans: Sequence[CompactionPlan], context: TableContext) -> RewriteJob:
        """Cut plans into tasks that others can execute."""
        keeps_lineage = self._parts.keeps_lineage()
        if keeps_lineage:
            plans = [replace(plan, inputs=self._parts.sequenced(plan.inputs)) for plan in plans]
        tasks: list[RewriteTask] = []
        for number, plan in enumerate(plans):
            tasks += cut_plan(
                plan,
                self._files.keys_of,
                plan_number=number,
                task_rows=self._task_rows,
                keeps_lineage=keeps_lineage,
            )
        return RewriteJob(
            table=table_definition(
                self._files,
                context.schema,
                (file for plan in plans for file in plan.inputs),
                specs=(plan.moves_to for plan in plans if plan.moves_to is not None),
            ),
            plans=tuple(plans),
            tasks=tuple(tasks),
            run=None if self._run is None else self._run.digits,
        )

    def execute(
        self, job: RewriteJob, context: TableContext, execution: Execution
    ) -> list[tuple[DataFile, ...]]:
        """Execute the tasks of a job, check their row counts, and return the files of each plan."""
        executor = execution.executor or LocalExecutor(self.task_files, context)
        written = executor.execute(
            job, progress=execution.progress, check_cancelled=execution.check_cancelled
        )
        outputs: list[list[DataFile]] = [[] for _ in job.plans]
        for task, files in zip(job.tasks, written, strict=True):
            outputs[task.plan_number] += files
        try:
            for plan, output in zip(job.plans, outputs, strict=True):
                check_count(plan, sum(file.row_count for file in output))
        except BaseException:
            for output in outputs:
                self._files.writers.discard_files(output)
            raise
        return [
            with_origin_of(output, plan.inputs)
            for plan, output in zip(job.plans, outputs, strict=True)
        ]

    def _commit(
        self, outputs: Sequence[PlanOutput], facts: VersionFacts, change: HeadChange
    ) -> Committed:
        """Commit what executors wrote; raises Conflict when a plan has become void."""
        written = tuple(file for _, files in outputs for file in files)
        removed = tuple(file.path for plan, _ in outputs for file in plan.inputs)
        proposal = Proposal(
            base=outputs[0][0].base,
            facts=replace(
                facts,
                operation=Operation.REPLACE,
                summary={
                    "reason": reasons_of(plan for plan, _ in outputs),
                    "added-data-files": str(len(written)),
                    "deleted-data-files": str(len(removed)),
                },
                wal_segments=(),
                unread=b"",
            ),
            added=written,
            removed=removed,
            moved={file.path: files for plan, files in outputs for file in plan.inputs},
        )
        return self._committer.commit_proposal(proposal, change, lookup=self._files)

    def _without_void(self, outputs: Sequence[PlanOutput], conflict: Conflict) -> list[PlanOutput]:
        """Delete the files of plans that a conflict names, or else of all; return the others."""
        live = self._parts.versions.snapshot_latest().version.files.keys()
        named = frozenset(map(str, conflict.keys))
        kept: list[PlanOutput] = []
        void: list[PlanOutput] = []
        for output in outputs:
            paths = output[0].paths
            (kept if paths <= live and paths.isdisjoint(named) else void).append(output)
        if not void:
            # The conflicting path is not an input, so the plan it concerns is unknown.
            kept, void = [], kept
        self._discard(void)
        return kept

    def _discard(self, outputs: Iterable[PlanOutput]) -> None:
        for _, files in outputs:
            self._files.writers.discard_files(files)


def table_definition(
    table: TableFiles,
    schema: TableSchema,
    files: Iterable[DataFile],
    *,
    specs: Iterable[int] = (),
) -> TableDefinition:
    """Return what an executor needs to read some files of a table and write with a schema.

    `specs` are partition specs of the new files, besides those of the old ones.
    """
    schemas = {schema.schema_id: schema}
    known = {number: table.definitions.spec(number) for number in specs}
    for file in files:
        if file.schema_id not in schemas:
            schemas[file.schema_id] = table.definitions.schema(file.schema_id)
        if file.spec_id not in known:
            known[file.spec_id] = table.definitions.spec(file.spec_id)
    parts = table.parts
    return TableDefinition(
        location=parts.objects.location,
        table_id=parts.paths.table_id,
        schema_id=schema.schema_id,
        schemas={number: each.to_json() for number, each in schemas.items()},
        specs={number: each.to_json() for number, each in known.items()},
        properties=dict(parts.properties),
    )


def reasons_of(plans: Iterable[CompactionPlan]) -> str:
    """Return the reasons of plans as text, each once."""
    return ",".join(sorted({plan.reason.value for plan in plans}))


def note_compacted(parts: TableParts, rewritten: Rewritten) -> None:
    """Count and report committed plans."""
    plans = rewritten.plans
    number = rewritten.committed.snapshot.version.number
    files, rows = sum(len(plan.inputs) for plan in plans), sum(plan.live_count for plan in plans)
    reason = reasons_of(plans)
    parts.recorder.add(COMPACTIONS, len(plans))
    parts.recorder.add(COMPACTION_SECONDS, rewritten.seconds)
    parts.recorder.add(COMPACTED_ROWS, rows)
    parts.recorder.add(COMPACTED_BYTES, sum(plan.input_bytes for plan in plans))
    parts.report(EventKind.COMPACTED, version=number, reason=reason, files=files, rows=rows)
    logger.info("compacted version=%d reason=%s files=%d rows=%d", number, reason, files, rows)


_AGES: Final = 4
_FILES_PER_AGE: Final = 4


def stale_deletes(
    version: Version, definitions: Definitions, *, now_ms: int
) -> tuple[list[DataFile], list[list[DataFile]]]:
    """Return files of remembered deletes that are no longer needed, and groups to join.

    Files of about the same age are joined, so that each is still forgotten in time: the time to
    keep them is divided into four, and a quarter has at most four files.
    """
    schema = definitions.schema(version.facts.schema_id)
    rules = schema.rules
    age_ms = max(1, rules.keep_deletes_ms // _AGES)
    useless: list[DataFile] = []
    by_age: defaultdict[int, list[DataFile]] = defaultdict(list)
    for file in version.deletes.values():
        is_of_order = definitions.schema(file.schema_id).rules.order_by == rules.order_by
        if not is_of_order or file.commit_ms_max < now_ms - rules.keep_deletes_ms:
            useless.append(file)
        else:
            by_age[file.commit_ms_max // age_ms].append(file)
    return useless, [group for group in by_age.values() if len(group) > _FILES_PER_AGE]


def tidy_deletes(
    files: TableFiles, committer: TableCommitter, change: HeadChange
) -> Committed | None:
    """Forget deletes that are old enough, and join files of others; None when nothing is due."""
    parts = files.parts
    newest = parts.versions.snapshot_latest().version
    if not any(stale_deletes(newest, files.definitions, now_ms=parts.clock.now_ms())):
        return None
    written: list[DataFile] = []

    def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
        files.writers.discard_files(written)
        written.clear()
        version = snapshot.version
        useless, groups = stale_deletes(version, files.definitions, now_ms=parts.clock.now_ms())
        order = RowOrder.of(files.definitions.schema(version.facts.schema_id))
        if order is not None:
            written.extend(files.joined_deletes(group, order) for group in groups)
        gone = [*useless, *(file for group in groups for file in group)]
        if not gone:
            return CommitPlan()
        facts = replace(version.facts, operation=Operation.REPLACE, summary={}, wal_segments=())
        return CommitPlan(
            edits=[
                VersionEdit(
                    base=version.number,
                    facts=facts,
                    deletes_added=tuple(written),
                    deletes_removed=tuple(file.path for file in gone),
                )
            ]
        )

    try:
        return committer.commit(plan, change)
    except OutcomeUnknown:
        raise
    except NeveError:
        files.writers.discard_files(written)
        raise
