"""What workers do with the rows of a job: functions from Arrow batches to Arrow batches.

    MarkPartitions   rows ──► the same rows, each with its partition, so that those of one lie
                              together behind the shuffle that follows
    WriteRows        rows in the order of (partition and) key ──► files ──► messages
    DeleteRows       keys in their order ──► what they supersede ──► messages

What a merge needs besides is in `neve.spark.write_tasks`.

They are sent to the workers whole, hold nothing but values, and open the table there. None of them
decides what the table becomes: that is said in the plan, and done by the engine.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from neve.errors import NeveError
from neve.jobs.rows import BulkRows, KeyedRows, duplicate_keys, last_of_each
from neve.jobs.run import BulkWork, JobBase
from neve.model.partitions import partition_groups
from neve.model.schema_view import ArrowArray
from neve.spark.job_site import JobSite
from neve.spark.row_form import (
    encoded_keys,
    fitted,
    key_columns,
    source_columns,
    without_own,
)
from neve.spark.task_answers import read_error, reported, told_error

PARTITION: Final = "_neve_partition"
COUNT: Final = "_neve_count"
ERROR: Final = "_neve_error"

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class MarkPartitions:
    """Gives each row its partition; an error travels with the rows, to whoever tells the driver."""

    site: JobSite

    def __call__(self, batches: Batches) -> Batches:
        """Yield the rows with two columns more."""
        base: JobBase | None = None
        for batch in batches:
            error: bytes | None = None
            marks = _nulls(batch.num_rows)
            if batch.num_rows:
                try:
                    base = base or self.site.open()
                    marks = self._marked(batch, base)
                except NeveError as failure:
                    error = told_error(failure)
            plain = batch.drop_columns([COUNT]) if COUNT in batch.schema.names else batch
            yield plain.append_column(PARTITION, marks).append_column(
                ERROR, _constant(error, batch.num_rows)
            )
            if error is not None:
                return

    def _marked(self, batch: pa.RecordBatch, base: JobBase) -> ArrowArray:
        rows = without_own(batch)
        keys = key_columns(rows, base.schema)
        if COUNT in batch.schema.names:
            counts = cast("Any", batch.column(COUNT)).to_numpy(zero_copy_only=False)
            if (counts > 1).any():
                encoded = base.context.encoder.encode_arrays(keys)
                raise duplicate_keys(encoded.filter(pa.array(counts > 1)), base.context.encoder)
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

    def __call__(self, batches: Batches) -> Batches:
        """Write the rows, and say what was written."""
        return reported(lambda: self._write(batches))

    def _write(self, batches: Batches) -> BulkWork:
        base: JobBase | None = None
        task: BulkRows | None = None
        try:
            for first in first_with_rows(batches):
                base = self.site.open()
                task = BulkRows(base, by_partition=self.by_partition)
                encoder = base.context.encoder
                pieces = last_of_each(
                    _fitted_pieces(chained(first, batches), base),
                    encoder,
                    refuses_more=self.refuses_more,
                )
                for rows, keys in pieces:
                    task.upsert(rows, keys)
            return BulkWork() if task is None else task.finish()
        except BaseException:
            if task is not None:
                task.abort()
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRows:
    """Deletes the rows of keys."""

    site: JobSite

    def __call__(self, batches: Batches) -> Batches:
        """Find the rows, and say where they are."""
        return reported(lambda: self._delete(batches))

    def _delete(self, batches: Batches) -> BulkWork:
        task: BulkRows | None = None
        for first in first_with_rows(batches):
            base = self.site.open()
            task = BulkRows(base, by_partition=False)
            pieces = last_of_each(
                _key_pieces(chained(first, batches), base),
                base.context.encoder,
                refuses_more=False,
            )
            for _, keys in pieces:
                task.delete(keys)
        return BulkWork() if task is None else task.finish()


def first_with_rows(batches: Batches) -> Batches:
    """Yield the first batch that has rows, if there is one: without rows there is nothing to do."""
    for batch in batches:
        if batch.num_rows:
            yield batch
            return


def chained(first: pa.RecordBatch, rest: Batches) -> Batches:
    """Yield a batch and those behind it that have rows."""
    yield first
    yield from (batch for batch in rest if batch.num_rows)


def _fitted_pieces(batches: Iterable[pa.RecordBatch], base: JobBase) -> Iterator[KeyedRows]:
    for batch in batches:
        refuse_failed(batch)
        rows = fitted(without_own(batch), base.schema)
        yield rows, encoded_keys(rows, base.context.encoder)


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


def _nulls(count: int) -> ArrowArray:
    return cast("ArrowArray", pa.nulls(count, pa.binary()))


def _constant(value: bytes | None, count: int) -> ArrowArray:
    return cast("ArrowArray", pa.array([value] * count, pa.binary()))
