"""Rewrite: executes a compaction plan and commits it, with what landed on its inputs meanwhile.

Outputs hold the rows that were live in the plan's Version. Rows of the inputs that others marked
since are found again in the outputs by key and marked there; the commit is void when an input was
rewritten or came back meanwhile, and then its outputs are deleted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from neve.compaction.local_executor import execute
from neve.compaction.plan import CompactionPlan
from neve.engine.file_making import FileMaking
from neve.engine.open_files import OpenFiles
from neve.engine.partition_split import partition_of
from neve.engine.table_parts import Definitions
from neve.errors import NeveError, OutcomeUnknown
from neve.manifest.rebase import Proposal
from neve.manifest.table_commit import TableCommitter
from neve.manifest.table_head import HeadChange
from neve.manifest.table_versions import Committed
from neve.model.data_file import DataFile
from neve.model.key_column import KeyArray
from neve.model.version import Operation, VersionFacts
from neve.read.read_context import ReadContext
from neve.sstable.data_file_writer import DataFileWriter, WrittenFile

Progress = Callable[[int], None]
"""Told the number of further rows that were rewritten."""


class PlanExecutor(Protocol):
    """Executes compaction plans somewhere: in this process, or as a job elsewhere."""

    def execute(self, plan: CompactionPlan) -> tuple[WrittenFile, ...]:
        """Write the outputs of a plan."""
        ...


class Rewrite:
    """Turns plans into Versions of the same rows."""

    def __init__(
        self,
        making: FileMaking,
        files: OpenFiles,
        definitions: Definitions,
        committer: TableCommitter,
    ) -> None:
        self._making = making
        self._files = files
        self._definitions = definitions
        self._committer = committer

    def execute(
        self,
        plan: CompactionPlan,
        context: ReadContext,
        *,
        progress: Progress,
        check_cancelled: Callable[[], None],
    ) -> tuple[WrittenFile, ...]:
        """Write the outputs of a plan."""

        def project(rows: pa.Table, file: DataFile) -> pa.Table:
            return context.mapping_from(file.schema_id).table(rows)

        def encode_keys(rows: pa.Table) -> KeyArray:
            return context.encoder.encode_arrays(
                [rows.column(name) for name in context.encoder.names]
            )

        def make_writer(plan: CompactionPlan) -> DataFileWriter:
            spec = self._definitions.spec(plan.spec_id)
            return self._making.data_files(
                context.schema,
                spec_id=plan.spec_id,
                partition=partition_of(plan.partition, spec, self._definitions.column_type),
                level=plan.target_level,
                file_format=plan.format,
                file_bytes=plan.file_bytes,
            )

        return execute(
            plan,
            reader_of=self._files.reader,
            mask_of=self._files.keep_mask,
            make_writer=make_writer,
            project=project,
            encode_keys=encode_keys,
            progress=progress,
            check_cancelled=check_cancelled,
        )

    def commit(
        self,
        plan: CompactionPlan,
        written: tuple[WrittenFile, ...],
        facts: VersionFacts,
        head_change: HeadChange,
    ) -> Committed:
        """Commit what a plan's executor wrote; it is deleted when that certainly failed.

        `facts` are those of the Version that the plan was made on.
        """
        proposal = Proposal(
            base=plan.base,
            facts=replace(
                facts,
                operation=Operation.REPLACE,
                summary={
                    "reason": plan.reason.value,
                    "added-data-files": str(len(written)),
                    "deleted-data-files": str(len(plan.inputs)),
                },
                wal_segments=(),
                unread=b"",
            ),
            added=tuple(each.file for each in written),
            removed=tuple(file.path for file in plan.inputs),
        )
        try:
            return self._committer.commit(
                proposal, head_change, lookup=self._files, write_vectors=self._making.vectors
            )
        except OutcomeUnknown:
            raise
        except NeveError:
            self._making.discard(written)
            raise
