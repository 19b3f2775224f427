"""Splits rows by partition, each with its values as the manifest stores them and its directory.

    rows ──► day=2024-03-31, bucket=7   rows 0, 3, 9        data/ts_day=…/id_bucket=7/<id>.parquet
             day=2024-04-01, bucket=2   rows 1, 2

The directory is decoration for people, escaped and bounded: the values in the manifest are the
truth. Order within a partition is the order of the rows given.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.model.data_file import PartitionValue
from neve.model.partition_groups import partition_groups
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.single_value import decode_single_value

_SEGMENT_MAX: Final = 80
_SAFE: Final = "-_.:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition, and which of the rows are in it."""

    values: tuple[PartitionValue, ...]
    path: str
    positions: npt.NDArray[np.int64] | None
    """None stands for all rows."""


def split_by_partition(
    rows: pa.Table, spec: PartitionSpec, schema: TableSchema
) -> Iterator[Partition]:
    """Give every partition that has rows, in the order in which they first occur."""
    if spec.is_unpartitioned:
        yield Partition(values=(), path="", positions=None)
        return
    batch = rows.combine_chunks().to_batches()[0]
    for group in partition_groups(spec, spec.values(batch, schema)):
        segments = [
            _segment(field.name, "null" if value is None else str(value))
            for field, value in zip(spec.fields, group.plain, strict=True)
        ]
        yield Partition(values=group.values, path="/".join(segments), positions=group.positions)


def partition_of(
    values: tuple[PartitionValue, ...],
    spec: PartitionSpec,
    column_type: Callable[[int], pa.DataType],
) -> Partition:
    """Give the partition of rows that are all in one, from its values in the manifest.

    `column_type` gives types by field id, those of columns that were dropped since too.
    """
    stored = {each.field_id: each.value for each in values}
    segments = []
    for field in spec.fields:
        value = stored.get(field.field_id)
        type_ = field.transform.result_type(column_type(field.source_id))
        word = "null" if value is None else str(decode_single_value(type_, value))
        segments.append(_segment(field.name, word))
    return Partition(values=values, path="/".join(segments), positions=None)


def _segment(name: str, word: str) -> str:
    return f"{quote(name, safe=_SAFE)}={quote(word, safe=_SAFE)}"[:_SEGMENT_MAX].rstrip("%.")
