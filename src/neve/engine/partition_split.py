"""Splits rows by partition, each with its values as the manifest stores them and its directory.

    rows ──► day=2024-03-31, bucket=7   rows 0, 3, 9        data/ts_day=…/id_bucket=7/<id>.parquet
             day=2024-04-01, bucket=2   rows 1, 2

The directory is decoration for people, escaped and bounded: the values in the manifest are the
truth. Order within a partition is the order of the rows given.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.model.data_file import PartitionValue
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import plain_of
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.model.single_value import decode_single_value, encode_single_value

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
    arrays = spec.values(batch, schema)
    codes = _codes(arrays)
    firsts, inverse = np.unique(codes, return_index=True, return_inverse=True)[1:]
    for number in np.argsort(firsts):
        first = int(firsts[number])
        values: list[PartitionValue] = []
        segments: list[str] = []
        for field, array in zip(spec.fields, arrays, strict=True):
            plain = plain_of(array[first])
            stored = None if plain is None else encode_single_value(array.type, plain)
            values.append(PartitionValue(field_id=field.field_id, value=stored))
            segments.append(_segment(field.name, "null" if plain is None else str(plain)))
        yield Partition(
            values=tuple(values),
            path="/".join(segments),
            positions=np.flatnonzero(inverse == number),
        )


def partition_of(
    values: tuple[PartitionValue, ...], spec: PartitionSpec, schema: TableSchema
) -> Partition:
    """Give the partition of rows that are all in one, from its values in the manifest."""
    stored = {each.field_id: each.value for each in values}
    segments = []
    for field in spec.fields:
        value = stored.get(field.field_id)
        type_ = field.transform.result_type(schema.column_by_id(field.source_id).type)
        word = "null" if value is None else str(decode_single_value(type_, value))
        segments.append(_segment(field.name, word))
    return Partition(values=values, path="/".join(segments), positions=None)


def _codes(arrays: tuple[ArrowArray, ...]) -> npt.NDArray[np.int64]:
    """Give each combination of values a number: equal numbers, equal partition."""
    codes: npt.NDArray[np.int64] | None = None
    for array in arrays:
        encoded = array.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = numbers
        else:
            # Kept small after each field, so that no product of counts overflows.
            codes = np.unique(codes * len(encoded.dictionary) + numbers, return_inverse=True)[1]
    assert codes is not None
    return codes


def _segment(name: str, word: str) -> str:
    return f"{quote(name, safe=_SAFE)}={quote(word, safe=_SAFE)}"[:_SEGMENT_MAX].rstrip("%.")
