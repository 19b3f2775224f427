"""The work on the rows of a job: functions from Arrow batches to Arrow batches.

    MarkPartitions   rows ──► the same rows, each with its partition, so that the next shuffle
                              puts those of one partition together
    WriteRows        rows in the order of (partition and) key ──► files ──► answer
    DeleteKeys       keys in their order ──► what they supersede ──► answer
    TargetRows       rows in the order of their keys ──► the same, each with the table's row of its
                              key, for conditions and values that name `target`
    MergeRows        rows in the order of their keys, with the clauses chosen ──► answer

The work on change feeds is in `neve.spark.change_tasks`.
They are sent to the workers, hold only values, and open the table there. None of them decides about
the table: the plan and the engine do.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from neve.errors import NeveError
from neve.jobs.merge import BulkMerge, ClauseKind, MergeClause, MergePiece, choices_of
from neve.jobs.rows import (
    BulkRows,
    KeyedRows,
    duplicate_keys,
    keyed_rows,
    last_of_each,
    whole_keys,
)
from neve.jobs.run import JobBase
from neve.keys.columns import KeyArray
from neve.model.array_fit import nulls
from neve.model.partition_spec import partition_groups
from neve.model.schema_view import ArrowArray
from neve.spark.job_site import JobSite
from neve.spark.row_form import (
    fitted,
    key_columns,
    source_columns,
    without_own,
)
from neve.spark.task_answers import TaskAnswer, answered, encoded_error, read_error
from neve.table.row_changes import RowChanges
from neve.table.row_order import RowOrder

PARTITION: Final = "_neve_partition"
COUNT: Final = "_neve_count"
ERROR: Final = "_neve_error"

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class MarkPartitions:
    """Adds its partition to each row."""

    site: JobSite

    def __call__(self, batches: Batches) -> Batches:
        """Yield the rows with two more columns."""
        for batch in with_column(batches, self.site, PARTITION, pa.binary(), self._marked):
            yield batch.drop_columns([COUNT]) if COUNT in batch.schema.names else batch

    def _marked(self, batch: pa.RecordBatch, base: JobBase) -> ArrowArray:
        rows = without_own(batch)
        keys = key_columns(rows, base.schema)
        if COUNT in batch.schema.names:
            counts = cast("Any", batch.column(COUNT)).to_numpy(zero_copy_only=False)
            if (counts > 1).any():
                encoded = base.context.encoder.encode_arrays(keys)
                raise duplicate_keys(encoded.filter(pa.array(counts > 1)), base.context.encoder)
        return partition_marks(rows, base)


def partition_marks(rows: pa.RecordBatch, base: JobBase) -> ArrowArray:
    """Return the partition of each row, as bytes that are never empty."""
    spec = base.spec
    sources = source_columns(rows, base.schema, [each.source_id for each in spec.fields])
    names: list[bytes] = []
    codes = np.zeros(rows.num_rows, np.int64)
    for group in partition_groups(spec, spec.values(sources, base.schema)):
        codes[group.positions] = len(names)
        names.append(b"".join(_prefixed(each.value) for each in group.values))
    return cast("ArrowArray", pa.array(names, pa.binary()).take(codes))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRows:
    """Writes whole rows."""

    site: JobSite
    by_partition: bool
    refuses_more: bool
    """Whether several rows of one key are an error; otherwise the last of them counts."""
    ignores_rules: bool = False
    """Whether rows replace what is there, however new it is."""

    def __call__(self, batches: Batches) -> Batches:
        """Write the rows, and yield what was written."""
        return answered(
            lambda: done_by(
                self._fill,
                self.site,
                batches,
                by_partition=self.by_partition,
                ignores_rules=self.ignores_rules,
            )
        )

    def _fill(self, task: BulkRows, base: JobBase, batches: Batches) -> None:
        pieces = fitted_pieces(batches, base)
        if self.ignores_rules:
            pieces = last_of_each(pieces, base.context.encoder, refuses_more=self.refuses_more)
        take_rows(task, pieces, base, refuses_more=self.refuses_more)


def take_rows(
    task: BulkRows, pieces: Iterable[KeyedRows], base: JobBase, *, refuses_more: bool
) -> None:
    """Pass a task rows in the order of their keys; rows of one key lie next to each other.

    A table without an order keeps the last of them, or `refuses_more` of them. With merge
    functions, all of them are folded.
    """
    rules = base.schema.rules
    if rules.order_by or (rules.merge and not refuses_more):
        order = RowOrder.of(base.schema)
        for rows, keys in whole_keys(pieces):
            task.apply(RowChanges.of_rows(rows, keys, order))
        return
    for rows, keys in last_of_each(pieces, base.context.encoder, refuses_more=refuses_more):
        task.upsert(rows, keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeys:
    """Deletes the rows of keys."""

    site: JobSite

    def __call__(self, batches: Batches) -> Batches:
        """Find the rows, and yield where they are."""
        return answered(lambda: done_by(self._fill, self.site, batches))

    def _fill(self, task: BulkRows, base: JobBase, batches: Batches) -> None:
        pieces = last_of_each(_key_pieces(batches, base), base.context.encoder, refuses_more=False)
        for _, keys in pieces:
            task.delete(keys)


def done_by(
    fill: Callable[[BulkRows, JobBase, Batches], None],
    site: JobSite,
    batches: Batches,
    *,
    by_partition: bool = False,
    ignores_rules: bool = False,
) -> TaskAnswer:
    """Open the table, have `fill` do the work of a task on batches with rows, and return it."""
    for first in first_with_rows(batches):
        base = site.open()
        with BulkRows(base, by_partition=by_partition, ignores_rules=ignores_rules) as task:
            fill(task, base, chained(first, batches))
            return TaskAnswer(work=task.finish())
    return TaskAnswer()


def with_column(
    batches: Batches,
    site: JobSite,
    name: str,
    kind: pa.DataType,
    make: Callable[[pa.RecordBatch, JobBase], ArrowArray],
) -> Batches:
    """Yield rows with one more column, and another for an error that ends them.

    The error travels with the rows, to the step that answers the driver.
    """
    base: JobBase | None = None
    for batch in batches:
        error: bytes | None = None
        column = nulls(batch.num_rows, kind)
        if batch.num_rows:
            try:
                base = base or site.open()
                column = make(batch, base)
            except NeveError as failure:
                error = encoded_error(failure)
        errors = pa.array([error] * batch.num_rows, pa.binary())
        yield batch.append_column(name, column).append_column(ERROR, errors)
        if error is not None:
            return


def first_with_rows(batches: Batches) -> Batches:
    """Yield the first batch that has rows, if there is one."""
    for batch in batches:
        if batch.num_rows:
            yield batch
            return


def chained(first: pa.RecordBatch, rest: Batches) -> Batches:
    """Yield a batch and the following ones that have rows."""
    yield first
    yield from (batch for batch in rest if batch.num_rows)


def fitted_pieces(batches: Iterable[pa.RecordBatch], base: JobBase) -> Iterator[KeyedRows]:
    """Yield rows in the table's schema, with their keys."""
    for batch in batches:
        refuse_failed(batch)
        yield keyed_rows(fitted(without_own(batch), base.schema), base.context.encoder)


def _key_pieces(batches: Iterable[pa.RecordBatch], base: JobBase) -> Iterator[KeyedRows]:
    for batch in batches:
        arrays = key_columns(batch, base.schema)
        rows = pa.RecordBatch.from_arrays(arrays, schema=base.schema.key_schema)
        yield rows, base.context.encoder.encode_arrays(arrays)


def refuse_failed(batch: pa.RecordBatch) -> None:
    """Raise the error that an earlier step sent along with the rows."""
    if ERROR in batch.schema.names:
        failures = batch.column(ERROR).drop_null()
        if len(failures):
            raise read_error(cast("bytes", failures[0].as_py()))


def _prefixed(value: bytes | None) -> bytes:
    return b"\0" if value is None else struct.pack(">BI", 1, len(value)) + value


IF_MATCHED: Final = "_neve_if_matched"
IF_UNMATCHED: Final = "_neve_if_unmatched"
KEY: Final = "_neve_key_"
TARGET: Final = "target"


def key_names(count: int) -> list[str]:
    """Names of the key columns while clauses are evaluated."""
    return [f"{KEY}{place}" for place in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRows:
    """Adds to each row the table's row of its key, NULL for none."""

    site: JobSite
    columns: tuple[str, ...]
    target: pa.DataType
    """The struct of these columns, in Spark's form."""

    def __call__(self, batches: Batches) -> Batches:
        """Yield the rows with two more columns."""
        return with_column(batches, self.site, TARGET, self.target, self._targets)

    def _targets(self, batch: pa.RecordBatch, base: JobBase) -> ArrowArray:
        keys = base.context.encoder.encode_arrays(_keys_in(batch, base))
        # Rows of one key are adjacent: each key is looked up once.
        distinct = keys.dictionary_encode()
        codes = distinct.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found, places = base.view.get_many(
            cast("KeyArray", distinct.dictionary), 0, columns=list(self.columns)
        )
        row_of = np.full(len(distinct.dictionary), -1, np.int64)
        row_of[places] = np.arange(len(places))
        rows = row_of[codes]
        fields = [self.target.field(place) for place in range(self.target.num_fields)]
        chosen = pa.array(rows, pa.int64(), mask=rows < 0)
        arrays = [_shown(found.column(field.name), field.type).take(chosen) for field in fields]
        return pa.StructArray.from_arrays(
            [_one_array(array, field.type) for array, field in zip(arrays, fields, strict=True)],
            fields=fields,
            mask=pa.array(rows < 0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRows:
    """Merges rows with the table's rows of their keys, and writes the results."""

    site: JobSite
    clauses: tuple[MergeClause, ...]
    values: tuple[str, ...]
    """For each clause, the struct column of its values; empty where it has none."""
    refuses_more: bool
    folds: bool = False
    """Whether merge functions of columns are followed, instead of setting columns."""

    def __call__(self, batches: Batches) -> Batches:
        """Merge the rows, and yield what was written."""
        return answered(lambda: self._merge(batches))

    def _merge(self, batches: Batches) -> TaskAnswer:
        task: BulkRows | None = None
        try:
            for first in first_with_rows(batches):
                base = self.site.open()
                task = BulkRows(base, by_partition=False)
                merge = BulkMerge(base, self.clauses, task, fit=fitted, folds=self.folds)
                pieces = last_of_each(
                    _merge_pieces(chained(first, batches), base),
                    base.context.encoder,
                    refuses_more=self.refuses_more,
                )
                for rows, keys in pieces:
                    merge.take(
                        MergePiece(
                            keys=keys,
                            if_matched=choices_of(rows.column(IF_MATCHED)),
                            if_unmatched=choices_of(rows.column(IF_UNMATCHED)),
                            values=[
                                None
                                if clause.kind is ClauseKind.DELETE
                                else values_of(rows, struct_name, clause.columns, base)
                                for clause, struct_name in zip(
                                    self.clauses, self.values, strict=True
                                )
                            ],
                        )
                    )
            return TaskAnswer() if task is None else TaskAnswer(work=task.finish())
        except BaseException:
            if task is not None:
                task.abort()
            raise


def values_of(
    rows: pa.RecordBatch, struct_name: str, columns: Sequence[str], base: JobBase
) -> pa.RecordBatch:
    """Return the key and the columns of a clause from rows."""
    names = [column.name for column in base.schema.key_columns]
    arrays = [rows.column(name) for name in key_names(len(names))]
    if struct_name:
        struct_column = cast("pa.StructArray", rows.column(struct_name))
        arrays += [struct_column.field(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *columns])


def _merge_pieces(batches: Iterable[pa.RecordBatch], base: JobBase) -> Iterator[KeyedRows]:
    """Yield rows as they are, except for their key columns, which are fitted."""
    for batch in batches:
        refuse_failed(batch)
        rows = batch
        arrays = _keys_in(batch, base)
        for name, array in zip(key_names(len(arrays)), arrays, strict=True):
            rows = rows.set_column(rows.schema.get_field_index(name), name, array)
        yield rows, base.context.encoder.encode_arrays(arrays)


def _keys_in(batch: pa.RecordBatch, base: JobBase) -> list[ArrowArray]:
    names = [column.name for column in base.schema.key_columns]
    keys = batch.select(key_names(len(names)))
    return key_columns(keys.rename_columns(names), base.schema)


def _shown(column: "pa.ChunkedArray[Any]", wanted: pa.DataType) -> "pa.ChunkedArray[Any]":
    """Return a column of the table in Spark's form."""
    if column.type == wanted:
        return column
    if column.type == pa.uuid():
        values = cast("list[UUID | None]", column.to_pylist())
        texts = [None if value is None else str(value) for value in values]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(wanted)


def _one_array(column: "pa.ChunkedArray[Any]", wanted: pa.DataType) -> ArrowArray:
    return pa.concat_arrays([nulls(0, wanted), *column.chunks])
