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
from typing import Final, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.applied_changes import ChangeOptions, changes_in
from neve.engine.row_input import Rows, batches_of
from neve.engine.write_path import WritePath, key_batch
from neve.errors import Closed, Conflict, InvalidArgument
from neve.jobs.commit import BulkCommitter, commit_tries
from neve.jobs.rows import BulkRows
from neve.jobs.run import BulkOutcome, BulkWork, JobBase, JobIdentity
from neve.keys.arrays import concat_keys
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Positions, one_batch
from neve.sstable.remembered_deletes import RememberedDeletes
from neve.storage.own_process import KeptInProcess
from neve.table.row_changes import RowChanges
from neve.table.row_order import Orders, greatest, joined_orders, placed_orders
from neve.table.table_context import TableParts


class BulkJob(KeptInProcess):
    """Collects changes and commits them at the end of its block; for one thread."""

    def __init__(self, parts: TableParts, identity: JobIdentity, *, upkeep: bool = True) -> None:
        """Begin; raises InvalidArgument for a batch that goes back."""
        self._committer: Final = BulkCommitter(parts, upkeep=upkeep)
        self.outcome: BulkOutcome | None = self._committer.find_committed(identity)
        """What the job has done; None before its end."""
        self._changes: list[RowChanges] = []
        self._replaces = False
        self._is_open = True
        self._parts, self._identity = parts, identity
        if self.outcome is None:
            self._begin()
            self._path = WritePath(self._base.context, self._base.spec)
            self._nothing = self._path.context.codec.decode_many([])

    def _begin(self) -> None:
        self._run = self._committer.begin(self._identity)
        try:
            self._base = JobBase(self._parts, self._run.run, self._run.base)
        except BaseException:
            self._committer.give_up(self._run)
            raise

    def _begin_again(self) -> None:
        """Begin on the newest Version; raises Conflict when its columns are others."""
        before = self._base.schema.schema_id
        self._begin()
        if self._base.schema.schema_id != before:
            self.close()
            raise Conflict(
                "the columns of the table were changed while the job ran",
                path=self._parts.paths.root,
                hint="Run the job again",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
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
                    keys = self._path.encode_keys(batch)
                    self._changes.append(RowChanges.of_rows(batch, keys, self._path.order))

    def delete(self, keys: object) -> None:
        """Delete the rows of keys, whether there are any or not."""
        if self._is_due():
            batch = key_batch(keys, self._path.context)
            encoded = self._path.encode_keys(batch)
            self._changes.append(RowChanges.of_keys(encoded, self._base.schema))

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
            asked = options.on(self._base.schema)
            self._changes.append(changes_in(changes, asked, self._path))

    def overwrite_partitions(self, rows: Rows) -> None:
        """Write rows; the partitions they belong to lose all other rows.

        It is the only call of its block.
        """
        if self._changes:
            raise _mixed()
        self.upsert(rows)
        self._replaces = True

    def commit(self) -> BulkOutcome:
        """Commit everything as one Version, and end; the `with` block does it, too."""
        if self.outcome is not None:
            self._is_open = False
            return self.outcome
        self._check_open()
        try:
            for committing in commit_tries(decided=bool(self._base.schema.rules.merge)):
                work = self._work()
                replaced = (
                    frozenset(file.partition for file in work.files) if self._replaces else None
                )
                with committing:
                    self.outcome = self._committer.commit(self._run, work, replaces=replaced)
                    return self.outcome
                # Others changed rows that the merge functions were applied to.
                self._begin_again()
        finally:
            self._is_open = False
        raise AssertionError("the last try returns or raises")

    def _work(self) -> BulkWork:
        try:
            with BulkRows(self._base, by_partition=False, ignores_rules=self._replaces) as task:
                self._fill(task)
                return task.finish()
        except BaseException:
            self.close()
            raise
        finally:
            self._base.close()

    def close(self) -> None:
        """Abandon the job unless it is committed; twice is not an error."""
        if not self._is_open:
            return
        self._is_open = False
        if self.outcome is None:
            self._base.close()
            self._committer.give_up(self._run)

    def _fill(self, task: BulkRows) -> None:
        """Hand all changes to the task, in the order of keys."""
        changes = [each for each in self._changes if len(each.by_age)]
        if not changes:
            return
        written = [each.rows for each in changes if each.rows.num_rows]
        rows = one_batch(pa.Table.from_batches(written)) if written else self._nothing
        keys = concat_keys([each.keys for each in changes])
        by_key = pc.sort_indices(keys).to_numpy()
        places = np.empty(len(keys), np.int64)
        places[by_key] = np.arange(len(keys))
        by_age: list[Positions] = []
        row_start, delete_start = 0, len(keys)
        for each in changes:
            is_row = each.by_age < len(each.keys)
            moved = np.where(is_row, each.by_age + row_start, each.by_age + delete_start)
            by_age.append(np.where(is_row, moved, moved - len(each.keys)))
            row_start += len(each.keys)
            delete_start += len(each.deleted)
        age = np.concatenate(by_age)
        whole = RowChanges(
            rows=rows.take(by_key),
            keys=keys.take(by_key),
            deleted=concat_keys([each.deleted for each in changes]),
            orders=self._orders(changes, by_key),
            by_age=np.where(age < len(keys), places[np.minimum(age, len(keys) - 1)], age)
            if len(keys)
            else age,
            is_keyed=False,
        )
        task.apply(whole)

    def _orders(self, changes: Sequence[RowChanges], by_key: Positions) -> Orders | None:
        """Return the orders of all rows, by key, and then of all deletes.

        A delete by key alone is as new as the row it finds, in the table or earlier in the job.
        """
        if self._path.order is None or self._replaces:
            return None
        rows: list[Orders] = []
        deletes: list[Orders] = []
        for place, each in enumerate(changes):
            if each.is_keyed:
                deletes.append(self._orders_before(each.deleted, changes[:place], rows))
                continue
            assert each.orders is not None
            rows.append(each.orders.slice(0, len(each.keys)))
            deletes.append(each.orders.slice(len(each.keys)))
        return joined_orders([joined_orders(rows).take(by_key), *deletes])

    def _orders_before(
        self, keys: KeyArray, changes: Sequence[RowChanges], rows: Sequence[Orders]
    ) -> Orders:
        assert self._path.order is not None
        encoded = keys.dictionary_encode()
        unique = cast("KeyArray", encoded.dictionary)
        known, _ = self._base.files.found_orders(self._base.view, unique, self._path.order)
        found = known.take(encoded.indices)
        earlier = [each.keys for each in changes if len(each.keys)]
        if not earlier:
            return found
        written = RememberedDeletes.newest(concat_keys(earlier), joined_orders(rows))
        hits, places = written.find(keys)
        return greatest(found, placed_orders(len(keys), hits, written.orders.take(places)))

    def _is_due(self) -> bool:
        self._check_open()
        if self._replaces:
            raise _mixed()
        return self.outcome is None

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("the job has ended", hint="Begin another one with lake.bulk")


def _mixed() -> InvalidArgument:
    return InvalidArgument(
        "partitions are overwritten together with other changes",
        hint="Overwrite partitions in a block of their own",
    )
