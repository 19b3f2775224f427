"""The work on the rows of a change feed: which are written, and which keys are deleted.

    changes in the order of (partition and) key
      ──► without those that are skipped ──► the newest of each key ┬─► rows to write
                                                                    └─► keys to delete

    NewestChanges    changes in the order of their keys ──► the newest of each key, with its
                     partition, so that the next shuffle puts those of one partition together
    ApplyChanges     changes in the order of (partition and) key ──► files and deletes ──► answer

What the operations mean is in `neve.engine.applied_changes`. Operation, key and order are checked
for every change. The other columns are checked for rows that are written: a delete needs only its
key, and a change that a newer one replaces is dropped before.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.applied_changes import DELETE, SKIP, ChangeOptions, unknown_operation
from neve.errors import NeveError
from neve.jobs.rows import BulkRows, KeyedRows, last_of_each, whole_keys
from neve.jobs.run import JobBase
from neve.keys.arrays import concat_keys
from neve.keys.columns import KeyArray
from neve.model.array_fit import fit_column, nulls
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.spark.job_site import JobSite
from neve.spark.row_form import fitted, key_columns, row_words, without_own
from neve.spark.task_answers import answered, encoded_error
from neve.spark.write_tasks import (
    ERROR,
    PARTITION,
    Batches,
    chained,
    done_by,
    first_with_rows,
    partition_marks,
    refuse_failed,
)
from neve.table.row_changes import RowChanges
from neve.table.row_order import RowOrder, joined_orders, without_order

_DELETES_HELD: Final = 1 << 20
_OF_DELETES: Final = b""
"""The partition of a delete, before all others: the rows to delete may be in any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyChanges:
    """Writes and deletes rows, as the newest change of each key says."""

    site: JobSite
    by_partition: bool
    options: ChangeOptions

    def __call__(self, batches: Batches) -> Batches:
        """Apply the changes, and yield what was written."""
        return answered(
            lambda: done_by(self._fill, self.site, batches, by_partition=self.by_partition)
        )

    def _fill(self, task: BulkRows, base: JobBase, batches: Batches) -> None:
        take_changes(task, change_pieces(batches, base, self.options), base, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestChanges:
    """Keeps the newest change of each key, and adds its partition."""

    site: JobSite
    options: ChangeOptions

    def __call__(self, batches: Batches) -> Batches:
        """Yield changes with two more columns: the partition, and an error that ends them."""
        for first in first_with_rows(batches):
            try:
                base = self.site.open()
                pieces = change_pieces(chained(first, batches), base, self.options)
                for changes, _ in _newest(pieces, base, self.options):
                    yield _with_marks(changes, self._partitions(changes, base), None)
            except NeveError as failure:
                # The error travels with a row, to the step that answers the driver.
                one = first.slice(0, 1)
                yield _with_marks(one, nulls(1, pa.binary()), encoded_error(failure))

    def _partitions(self, changes: pa.RecordBatch, base: JobBase) -> ArrowArray:
        is_deleted = _is_deleted(changes, self.options)
        marks = partition_marks(without_own(changes.filter(pa.array(~is_deleted))), base)
        places = np.where(is_deleted, len(marks), np.cumsum(~is_deleted) - 1).astype(np.int64)
        known = pa.concat_arrays([marks, pa.array([_OF_DELETES], pa.binary())])
        return known.take(places)


def change_pieces(
    batches: Iterable[pa.RecordBatch], base: JobBase, options: ChangeOptions
) -> Iterator[KeyedRows]:
    """Yield changes as they are, with their keys, without those that are skipped.

    Raises InvalidArgument for an operation that is unknown, SchemaMismatch for a missing order or
    key, naming the row.
    """
    for batch in batches:
        refuse_failed(batch)
        meanings = options.meanings(pa.chunked_array([batch.column(options.op)]))
        _refuse_unknown(batch, meanings, base.schema, options)
        is_skipped = meanings == SKIP
        changes = batch.filter(pa.array(~is_skipped)) if is_skipped.any() else batch
        _refuse_unordered(changes, base.schema, options)
        keys = key_columns(changes, base.schema)
        yield changes, base.context.encoder.encode_arrays(keys)


def take_changes(
    task: BulkRows, pieces: Iterable[KeyedRows], base: JobBase, options: ChangeOptions
) -> None:
    """Pass a task the newest change of each key: rows as they come, and keys to delete.

    In a table with an order or with merge functions, the task gets all changes, and decides.
    """
    rules = base.schema.rules
    if rules.order_by or (rules.merge and options.order_by):
        for changes, keys in whole_keys(pieces):
            task.apply(_changes_of(changes, keys, base, options))
        return
    deleted: list[KeyArray] = []
    for changes, keys in _newest(pieces, base, options):
        is_deleted = _is_deleted(changes, options)
        is_written = pa.array(~is_deleted)
        written = changes.filter(is_written)
        if written.num_rows:
            # Without rows, a column that is missing is not an error.
            task.upsert(_stored(written, base, options), keys.filter(is_written))
        deleted.append(keys.filter(pa.array(is_deleted)))
        if sum(map(len, deleted)) >= _DELETES_HELD:
            _delete(task, deleted)
            deleted = []
    _delete(task, deleted)


def _changes_of(
    changes: pa.RecordBatch, keys: KeyArray, base: JobBase, options: ChangeOptions
) -> RowChanges:
    """Return changes, in their order, as a task of a table with rules takes them."""
    is_deleted = _is_deleted(changes, options)
    written, deleted = np.flatnonzero(~is_deleted), np.flatnonzero(is_deleted)
    rows = changes.take(written)
    stored = (
        _stored(rows, base, options)
        if len(written)
        else pa.RecordBatch.from_pylist([], schema=base.schema.arrow_schema)
    )
    order, orders = RowOrder.of(base.schema), None
    if order is not None:
        schema = pa.schema([base.schema.column(name).arrow_field for name in order.names])
        gone = changes.take(deleted).select(list(order.names))
        fitted_orders = [
            fit_column(column, field) for column, field in zip(gone.columns, schema, strict=True)
        ]
        own = order.of_changes(stored)
        theirs = order.of_changes(pa.RecordBatch.from_arrays(fitted_orders, schema=schema))
        orders = joined_orders([own, theirs])
    return RowChanges(
        rows=stored,
        keys=keys.take(written),
        deleted=keys.take(deleted),
        orders=orders,
        by_age=np.argsort(np.concatenate([written, deleted])),
    )


def _delete(task: BulkRows, deleted: list[KeyArray]) -> None:
    """Delete the rows of keys, with one search for all of them."""
    if deleted:
        keys = concat_keys(deleted)
        # Keys of several partitions do not ascend.
        task.delete(keys.take(pc.sort_indices(keys)))


def _newest(
    pieces: Iterable[KeyedRows], base: JobBase, options: ChangeOptions
) -> Iterator[KeyedRows]:
    return last_of_each(pieces, base.context.encoder, refuses_more=not options.order_by)


def _is_deleted(changes: pa.RecordBatch, options: ChangeOptions) -> "npt.NDArray[np.bool_]":
    meanings = options.meanings(pa.chunked_array([changes.column(options.op)]))
    return cast("npt.NDArray[np.bool_]", meanings == DELETE)


def _stored(changes: pa.RecordBatch, base: JobBase, options: ChangeOptions) -> pa.RecordBatch:
    """Return the rows to write, in the table's schema."""
    rows = without_own(changes)
    names = [name for name in rows.schema.names if not options.is_feed_only(name, base.schema)]
    return fitted(rows.select(names), base.schema)


def _refuse_unknown(
    batch: pa.RecordBatch,
    meanings: "npt.NDArray[np.object_]",
    schema: TableSchema,
    options: ChangeOptions,
) -> None:
    unknown = np.flatnonzero(meanings == None)  # noqa: E711 - of each element
    if len(unknown):
        row = batch.slice(int(unknown[0]), 1)
        raise unknown_operation(row.column(options.op)[0].as_py(), row_words(row, schema))


def _refuse_unordered(batch: pa.RecordBatch, schema: TableSchema, options: ChangeOptions) -> None:
    for name in options.order_by:
        column = batch.column(name)
        first = pc.index(column.is_null(nan_is_null=True), value=True).as_py()
        if first >= 0:
            raise without_order(name, row_words(batch.slice(first, 1), schema))


def _with_marks(
    changes: pa.RecordBatch, partitions: ArrowArray, error: bytes | None
) -> pa.RecordBatch:
    errors = pa.array([error] * changes.num_rows, pa.binary())
    return changes.append_column(PARTITION, partitions).append_column(ERROR, errors)
