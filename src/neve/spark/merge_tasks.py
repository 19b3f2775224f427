"""What workers do for a merge.

TargetRows   rows in the order of their keys ──► the same, each with the row that its key has,
             for conditions and values that name `target`
MergeRows    rows in the order of their keys, with the clauses chosen ──► messages
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast
from uuid import UUID

import numpy as np
import pyarrow as pa

from neve.errors import NeveError
from neve.jobs.merge import BulkMerge, ClauseKind, MergeClause, MergePiece, choices_of
from neve.jobs.rows import BulkRows, KeyedRows, last_of_each
from neve.jobs.run import BulkWork, JobBase
from neve.keys.columns import KeyArray
from neve.model.array_fit import nulls
from neve.model.schema_view import ArrowArray
from neve.spark.job_site import JobSite
from neve.spark.row_form import fitted, key_columns
from neve.spark.task_answers import reported, told_error
from neve.spark.write_tasks import ERROR, Batches, chained, first_with_rows, refuse_failed

IF_MATCHED: Final = "_neve_if_matched"
IF_UNMATCHED: Final = "_neve_if_unmatched"
KEY: Final = "_neve_key_"
TARGET: Final = "target"


def key_names(count: int) -> list[str]:
    """Names of the key columns while clauses are evaluated."""
    return [f"{KEY}{place}" for place in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRows:
    """Adds to each row the one that its key has, NULL for none."""

    site: JobSite
    columns: tuple[str, ...]
    target: pa.DataType
    """The struct of these columns, as Spark takes it."""

    def __call__(self, batches: Batches) -> Batches:
        """Yield the rows with two columns more."""
        base: JobBase | None = None
        for batch in batches:
            error: bytes | None = None
            targets = nulls(batch.num_rows, self.target)
            if batch.num_rows:
                try:
                    base = base or self.site.open()
                    targets = self._targets(batch, base)
                except NeveError as failure:
                    error = told_error(failure)
            errors = pa.array([error] * batch.num_rows, pa.binary())
            yield batch.append_column(TARGET, targets).append_column(ERROR, errors)
            if error is not None:
                return

    def _targets(self, batch: pa.RecordBatch, base: JobBase) -> ArrowArray:
        keys = base.context.encoder.encode_arrays(_keys_in(batch, base))
        # Rows of one key lie next to each other: each key is looked for once.
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
    """Decides about rows by those that their keys have, and writes what they become."""

    site: JobSite
    clauses: tuple[MergeClause, ...]
    values: tuple[str, ...]
    """For each clause, the struct column that has its values; empty where it gives none."""
    refuses_more: bool

    def __call__(self, batches: Batches) -> Batches:
        """Merge the rows, and say what was written."""
        return reported(lambda: self._merge(batches))

    def _merge(self, batches: Batches) -> BulkWork:
        task: BulkRows | None = None
        try:
            for first in first_with_rows(batches):
                base = self.site.open()
                task = BulkRows(base, by_partition=False)
                merge = BulkMerge(base, self.clauses, task, fit=fitted)
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
            return BulkWork() if task is None else task.finish()
        except BaseException:
            if task is not None:
                task.abort()
            raise


def values_of(
    rows: pa.RecordBatch, struct_name: str, columns: Sequence[str], base: JobBase
) -> pa.RecordBatch:
    """Return the key and the columns of a clause out of rows."""
    names = [column.name for column in base.schema.key_columns]
    arrays = [rows.column(name) for name in key_names(len(names))]
    if struct_name:
        struct_column = cast("pa.StructArray", rows.column(struct_name))
        arrays += [struct_column.field(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=[*names, *columns])


def _merge_pieces(batches: Iterable[pa.RecordBatch], base: JobBase) -> Iterator[KeyedRows]:
    """Yield rows as they came, but for their key columns, which are fitted."""
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
    """Return a column of the table as Spark takes it."""
    if column.type == wanted:
        return column
    if column.type == pa.uuid():
        values = cast("list[UUID | None]", column.to_pylist())
        texts = [None if value is None else str(value) for value in values]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column.cast(wanted)


def _one_array(column: "pa.ChunkedArray[Any]", wanted: pa.DataType) -> ArrowArray:
    return pa.concat_arrays([nulls(0, wanted), *column.chunks])
