"""Splits rows by partition, each with its values as the manifest stores them and its directory.

    rows ──► rows 0, 3, 9   data/ts_day=2024-03-31/id_bucket=7/<id>.parquet
             rows 1, 2      data/ts_day=2024-04-01/id_bucket=2/<id>.parquet

The directory is decoration for people, spelled as Iceberg does, escaped and bounded: the values in
the manifest are the truth. Order within a partition is the order of the rows given.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from neve.errors import NotFound, SchemaMismatch
from neve.model.data_file import PartitionValue
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.partitions import PartitionIdentity, Positions, partition_groups
from neve.model.plain_values import PlainValue
from neve.model.schema import TableSchema
from neve.model.single_value import decode_single_value
from neve.model.transforms import partition_text

_SEGMENT_MAX: Final = 80
_SAFE: Final = "-_.:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition, and which of the rows are in it."""

    values: tuple[PartitionValue, ...]
    path: str
    positions: Positions | None
    """None stands for all rows."""


def split_by_partition(
    rows: pa.Table, spec: PartitionSpec, schema: TableSchema
) -> Iterator[Partition]:
    """Yield every partition that has rows, in the order in which they first occur."""
    if spec.is_unpartitioned:
        yield Partition(values=(), path="", positions=None)
        return
    batch = rows.combine_chunks().to_batches()[0]
    arrays = spec.values(batch, schema)
    for group in partition_groups(spec, arrays):
        segments = [
            _segment(field, array.type, value)
            for field, array, value in zip(spec.fields, arrays, group.plain, strict=True)
        ]
        yield Partition(values=group.values, path="/".join(segments), positions=group.positions)


def split_by_spec(
    rows: pa.Table, specs: Sequence[PartitionSpec], schema: TableSchema
) -> Iterator[tuple[PartitionSpec, pa.Table, Positions | None]]:
    """Yield the rows under the first spec that takes them, with their positions; None for all.

    A few of the outermost values have no partition under some specs. A row that has such a one was
    written while another spec was current, and keeps to that. Raises SchemaMismatch when it cannot.
    """
    if len(specs) == 1:
        # Rows were tried with it before they were logged.
        yield specs[0], rows, None
        return
    left: Positions | None = None
    failure: SchemaMismatch | None = None
    for spec in specs:
        given = rows if left is None else rows.take(left)
        try:
            batch = given.combine_chunks().to_batches()[0]
            refused = refused_rows(batch, spec, schema)
        except NotFound:
            continue  # a column that the spec needs was dropped since
        if not len(refused):
            yield spec, given, left
            return
        failure = failure or _failure(batch.take(refused[:1]), spec, schema)
        places = np.arange(rows.num_rows, dtype=np.int64) if left is None else left
        taken = np.setdiff1d(np.arange(given.num_rows), refused)
        if len(taken):
            yield spec, given.take(taken), places[taken]
        left = places[refused]
    if failure is not None:
        raise failure


def refused_rows(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: TableSchema, first: int = 0
) -> Positions:
    """Find the rows without a partition: halves are tried until only those are left.

    Positions are counted from `first` on.
    """
    if _failure(batch, spec, schema) is None:
        return np.empty(0, np.int64)
    if batch.num_rows == 1:
        return np.array([first], np.int64)
    half = batch.num_rows // 2
    return np.concatenate(
        (
            refused_rows(batch.slice(0, half), spec, schema, first),
            refused_rows(batch.slice(half), spec, schema, first + half),
        )
    )


def _failure(
    batch: pa.RecordBatch, spec: PartitionSpec, schema: TableSchema
) -> SchemaMismatch | None:
    try:
        spec.values(batch, schema)
    except SchemaMismatch as failure:
        return failure
    return None


def partition_of(
    values: tuple[PartitionValue, ...],
    spec: PartitionSpec,
    column_type: Callable[[int], pa.DataType],
) -> Partition:
    """Return the partition of rows that are all in one, from its values in the manifest.

    Its values are those of the newest types, whatever they were stored as.
    `column_type` gives types by field id, those of columns that were dropped since too.
    """
    stored = {each.field_id: each.value for each in values}
    segments = []
    for field in spec.fields:
        value = stored.get(field.field_id)
        type_ = field.transform.result_type(column_type(field.source_id))
        plain = None if value is None else decode_single_value(type_, value)
        segments.append(_segment(field, type_, plain))
    _, newest = PartitionIdentity(lambda _: spec, column_type).of_values(spec.spec_id, values)
    return Partition(values=newest, path="/".join(segments), positions=None)


def _segment(field: PartitionField, type_: pa.DataType, value: PlainValue | None) -> str:
    word = "null" if value is None else partition_text(field.transform, type_, value)
    return f"{quote(field.name, safe=_SAFE)}={quote(word, safe=_SAFE)}"[:_SEGMENT_MAX].rstrip("%.")
