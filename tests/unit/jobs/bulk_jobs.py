"""Jobs beside the live writer, in this process: what a cluster does, task after task."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from neve.engine.write_path import key_batch
from neve.jobs.commit import BulkCommitter, BulkRun
from neve.jobs.rows import BulkRows, keyed_rows, last_of_each, sorted_by_key
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity
from neve.keys.arrays import concat_keys
from neve.model.schema import normalize_batch
from neve.table.table_context import TableParts


class Jobs:
    """Runs jobs on a table."""

    def __init__(self, parts: TableParts) -> None:
        self.parts = parts
        self.committer = BulkCommitter(parts)

    def upsert(
        self,
        rows: Sequence[Mapping[str, object]],
        *,
        tasks: int = 2,
        job_id: str | None = None,
        application: tuple[str, int] | None = None,
    ) -> BulkOutcome:
        """Write whole rows, the last of each key, by several tasks."""
        identity = JobIdentity(job_id=job_id, application=application)
        done = self.committer.find_committed(identity)
        if done is not None:
            return done
        run = self.committer.begin(identity)
        return self.committer.commit(run, self.written(run, rows, tasks=tasks))

    def delete(self, keys: Sequence[object]) -> BulkOutcome:
        """Delete keys."""
        run = self.committer.begin()
        return self.committer.commit(run, self.deleted(run, keys))

    def written(
        self, run: BulkRun, rows: Sequence[Mapping[str, object]], *, tasks: int = 2
    ) -> BulkWork:
        """Do the work of an upsert without committing it."""
        if not rows:
            return BulkWork()
        base = JobBase(self.parts, run.run, run.base)
        batch = normalize_batch(
            pa.RecordBatch.from_pylist([dict(row) for row in rows], _read_as(base, rows)),
            base.schema,
        )
        ordered = sorted_by_key([keyed_rows(batch, base.context.encoder)])
        if ordered is None:
            return BulkWork()
        unique = list(last_of_each([ordered], base.context.encoder, refuses_more=False))
        whole = pa.Table.from_batches([piece for piece, _ in unique]).combine_chunks()
        keys = concat_keys([each for _, each in unique])
        step = -(-len(keys) // tasks)
        made = []
        for start in range(0, len(keys), step):
            task = BulkRows(base, by_partition=False)
            for piece in whole.slice(start, step).to_batches():
                task.upsert(piece, keys.slice(start, step))
            made.append(task.finish())
        return BulkWork.joined(made)

    def deleted(self, run: BulkRun, keys: Sequence[object]) -> BulkWork:
        """Do the work of a delete without committing it."""
        base = JobBase(self.parts, run.run, run.base)
        found = sorted_by_key([keyed_rows(key_batch(keys, base.context), base.context.encoder)])
        task = BulkRows(base, by_partition=False)
        if found is not None:
            for _, each in last_of_each([found], base.context.encoder, refuses_more=False):
                task.delete(each)
        return task.finish()


def _read_as(base: JobBase, rows: Sequence[Mapping[str, object]]) -> pa.Schema:
    """Return the types of the columns that the rows have."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.schema([base.schema.arrow_schema.field(name) for name in names])
