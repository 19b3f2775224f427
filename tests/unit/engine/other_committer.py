"""A committer that is not the live writer: it commits files through the manifest, as a job does."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

import neve
from neve.compaction.policy import full_plan
from neve.engine.rewrite import Execution, Rewrite
from neve.engine.write_path import key_batch
from neve.keys.columns import KeyArray
from neve.manifest.commit import TableCommitter
from neve.manifest.rebase import Proposal
from neve.manifest.table_head import HeadChange
from neve.model.data_file import FileFormat
from neve.model.version import Operation, VersionFacts
from neve.sstable.data_file_writer import WrittenFile
from neve.sstable.deletion_vector import superseded_rows
from neve.table.partitions import split_by_partition
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles


class OtherCommitter:
    """Writes and deletes rows of a table beside its live writer."""

    def __init__(self, table: neve.Table) -> None:
        engine = table._open.engine
        parts = engine.parts
        self._engine = engine
        self._versions = parts.versions
        self._committer = TableCommitter(
            parts.versions, parts.writer_state, clock=parts.clock, ids=parts.ids
        )

    def upsert(self, rows: Sequence[Mapping[str, object]]) -> int:
        """Commit whole rows with different keys; gives the Version's number."""
        context = self._context()
        batch = context.codec.decode_many([context.codec.encode(row) for row in rows])
        keys = context.encoder.encode_arrays([batch.column(name) for name in context.encoder.names])
        order = pc.sort_indices(keys)
        sorted_keys = keys.take(order)
        table = pa.Table.from_batches([batch.take(order)])
        return self._commit(self._write(table, sorted_keys, context), sorted_keys)

    def delete(self, keys: Sequence[object]) -> int:
        """Commit the deletes of some keys; gives the Version's number."""
        context = self._context()
        encoded = context.encoder.encode_arrays(key_batch(keys, context).columns)
        return self._commit((), encoded.take(pc.sort_indices(encoded)))

    def compact(self, *, plan_count: int | None = None, input_count: int | None = None) -> int:
        """Rewrite every file, or the first few of the first plans; gives the Version's number."""
        context = self._context()
        version = self._versions.snapshot_latest().version
        rewrite = Rewrite(self._files(), self._committer)
        plans = [
            replace(
                plan,
                inputs=plan.inputs[:input_count],
                target_level=0 if input_count else plan.target_level,
            )
            for plan in full_plan(version, self._engine.options.level_options)[:plan_count]
        ]
        here = Execution(progress=lambda _rows: None, check_cancelled=lambda: None)
        rewrite.run(plans, context, version.facts, here, HeadChange())
        return self._versions.snapshot_latest().version.number

    def _context(self) -> TableContext:
        facts = self._versions.snapshot_latest().version.facts
        return self._engine.files.context(facts.schema_id)

    def _files(self) -> TableFiles:
        facts = self._versions.snapshot_latest().version.facts
        return TableFiles(self._engine.parts, facts.schema_id, file_bytes=1 << 20)

    def _write(
        self, rows: pa.Table, keys: KeyArray, context: TableContext
    ) -> tuple[WrittenFile, ...]:
        spec = self._engine.parts.definitions.spec(self._versions.snapshot_latest().head.spec_id)
        written: list[WrittenFile] = []
        for partition in split_by_partition(rows, spec, context.schema):
            writer = self._files().writers.data_files(
                context.schema,
                spec_id=spec.spec_id,
                partition=partition,
                level=0,
                file_format=FileFormat.COLUMNAR,
            )
            if partition.positions is None:
                writer.append(rows, keys)
            else:
                writer.append(rows.take(partition.positions), keys.take(partition.positions))
            written.extend(writer.finish())
        return tuple(written)

    def _commit(self, written: tuple[WrittenFile, ...], keys: KeyArray) -> int:
        base = self._versions.snapshot_latest().version
        files = self._engine.files
        proposal = Proposal(
            base=base.number,
            facts=VersionFacts(
                operation=Operation.OVERWRITE if written else Operation.DELETE,
                timestamp_ms=0,
                schema_id=base.facts.schema_id,
                spec_id=base.facts.spec_id,
            ),
            added=tuple(each.file for each in written),
            marked=superseded_rows(
                base.files.values(), keys, open_reader=files.reader, vector_of=files.vector
            ),
            keys=(keys,),
        )
        committed = self._committer.commit_proposal(proposal, HeadChange(), lookup=files)
        return committed.snapshot.version.number
