"""BulkJob: upserts and deletes of any process as one commit, beside the live writer.

    with lake.bulk("shop.orders") as job:
        job.upsert(rows)
        job.delete(keys)

1. Each call checks its rows and keeps them in memory.
2. The end of the block writes files, finds the older rows of all keys, and commits once. Of several
   changes of one key the last call counts.
3. The upkeep that is due follows, unless the table has a live writer, which does it.
4. A block that ends with an exception changes nothing.

The table's log is not touched: rows that the live writer has not flushed come after this commit.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.applied_changes import ChangeOptions, newest_changes
from neve.engine.row_input import Rows, batches_of
from neve.engine.write_path import WritePath, key_batch
from neve.errors import Closed, InvalidArgument
from neve.jobs.commit import BulkCommitter
from neve.jobs.rows import BulkRows
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.keys.arrays import concat_keys, last_places
from neve.keys.columns import KeyArray
from neve.sstable.parquet_groups import one_batch
from neve.storage.own_process import KeptInProcess
from neve.table.table_context import TableParts


class BulkJob(KeptInProcess):
    """Collects changes and commits them at the end of its block; for one thread."""

    def __init__(self, parts: TableParts, identity: JobIdentity, *, upkeep: bool = True) -> None:
        """Begin; raises InvalidArgument for a batch that goes back."""
        self._committer: Final = BulkCommitter(parts, upkeep=upkeep)
        self.outcome: BulkOutcome | None = self._committer.find_committed(identity)
        """What the job has done; None before its end."""
        self._changes: list[tuple[pa.RecordBatch | None, KeyArray]] = []
        self._replaces = False
        self._is_open = True
        if self.outcome is None:
            self._run = self._committer.begin(identity)
            try:
                self._base = JobBase(parts, self._run.run, self._run.base)
            except BaseException:
                self._committer.give_up(self._run)
                raise
            self._path = WritePath(self._base.context, self._base.spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.close()

    def upsert(self, rows: Rows) -> None:
        """Write rows, each replacing the row of its key; raises SchemaMismatch."""
        if self._is_due():
            for batch in batches_of(rows, self._path.context.codec):
                if batch.num_rows:
                    self._path.check_partition(batch)
                    self._changes.append((batch, self._path.encode_keys(batch)))

    def delete(self, keys: object) -> None:
        """Delete the rows of keys, whether there are any or not."""
        if self._is_due():
            batch = key_batch(keys, self._path.context)
            self._changes.append((None, self._path.encode_keys(batch)))

    def apply(
        self,
        changes: Rows,
        op: str = "op",
        order_by: str | Sequence[str] | None = None,
        *,
        operations: Mapping[str, str] | None = None,
    ) -> None:
        """Write changes as `Table.apply` does: upserts and deletes, the newest of each key."""
        options = ChangeOptions.of(op, order_by, operations)
        if self._is_due():
            upserts, (_, deleted) = newest_changes(changes, options, self._path)
            self._changes += [upserts, (None, deleted)]

    def overwrite_partitions(self, rows: Rows) -> None:
        """Write rows; the partitions they belong to lose all other rows.

        It is the only call of its block.
        """
        if self._changes or self._replaces:
            raise InvalidArgument(
                "partitions are overwritten together with other changes",
                hint="Overwrite partitions in a block of their own",
            )
        self.upsert(rows)
        self._replaces = True

    def commit(self) -> BulkOutcome:
        """Commit everything as one Version, and end; the `with` block does it, too."""
        if self.outcome is not None:
            self._is_open = False
            return self.outcome
        self._check_open()
        task = BulkRows(self._base, by_partition=False)
        try:
            self._fill(task)
            work = task.finish()
        except BaseException:
            task.abort()
            self.close()
            raise
        self._is_open = False
        self._base.close()
        replaced = frozenset(file.partition for file in work.files) if self._replaces else None
        self.outcome = self._committer.commit(self._run, work, replaces=replaced)
        return self.outcome

    def close(self) -> None:
        """Abandon the job unless it is committed; twice is not an error."""
        if not self._is_open:
            return
        self._is_open = False
        if self.outcome is None:
            self._base.close()
            self._committer.give_up(self._run)

    def _fill(self, task: BulkRows) -> None:
        """Hand the last change of each key to the task, in the order of keys."""
        changes = [each for each in self._changes if len(each[1])]
        if not changes:
            return
        keys = concat_keys([each[1] for each in changes])
        is_row = np.concatenate([np.full(len(k), rows is not None) for rows, k in changes])
        last = last_places(keys)
        last = last[pc.sort_indices(keys.take(last)).to_numpy()]
        deleted = last[~is_row[last]]
        written = last[is_row[last]]
        if len(written):
            rows = pa.Table.from_batches([rows for rows, _ in changes if rows is not None])
            places = (np.cumsum(is_row) - 1)[written]
            task.upsert(one_batch(rows.take(places)), keys.take(written))
        task.delete(keys.take(deleted))

    def _is_due(self) -> bool:
        self._check_open()
        return self.outcome is None

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("the job has ended", hint="Begin another one with lake.bulk")
