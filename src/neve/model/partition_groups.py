"""Rows grouped by partition, each partition with its values as the manifest stores them.

rows ──► day=2024-03-31, bucket=7   rows 0, 3, 9
         day=2024-04-01, bucket=2   rows 1, 2
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.model.data_file import PartitionValue
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import PlainValue, plain_of
from neve.model.schema_view import ArrowArray
from neve.model.single_value import encode_single_value

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionGroup:
    """The rows of one partition, ascending."""

    values: tuple[PartitionValue, ...]
    plain: tuple[PlainValue | None, ...]
    positions: Positions


def partition_groups(spec: PartitionSpec, arrays: Sequence[ArrowArray]) -> Iterator[PartitionGroup]:
    """Yield every partition that has rows, in the order in which they first occur.

    The arrays are the values of the fields of the spec, at least one, as `PartitionSpec.values`
    gives them.
    """
    codes = _codes(arrays)
    # Stable: rows of one partition stay in their order.
    order = np.argsort(codes, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    for positions in sorted((each for each in groups if len(each)), key=lambda each: int(each[0])):
        first = int(positions[0])
        plain = tuple(plain_of(array[first]) for array in arrays)
        yield PartitionGroup(
            values=tuple(
                PartitionValue(
                    field_id=field.field_id,
                    value=None if value is None else encode_single_value(array.type, value),
                )
                for field, array, value in zip(spec.fields, arrays, plain, strict=True)
            ),
            plain=plain,
            positions=positions,
        )


def _codes(arrays: Sequence[ArrowArray]) -> Positions:
    """Return each combination of values a number: equal numbers, equal partition."""
    codes: Positions | None = None
    for array in arrays:
        # Arrow does not compare values of extension types, such as uuids; it does their storage.
        plain = array.storage if isinstance(array, pa.ExtensionArray) else array
        encoded = plain.dictionary_encode(null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes = numbers
        else:
            # Kept small after each field, so that no product of counts overflows.
            codes = np.unique(codes * len(encoded.dictionary) + numbers, return_inverse=True)[1]
    assert codes is not None
    return codes
