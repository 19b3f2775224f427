"""Partitions: which one a file is in, and which rows of a batch are in each.

The partition of a file does not depend on the bytes its values were stored as:

    x = 7, stored while x was an int        07 00 00 00
    x = 7, stored after it became a long    07 00 00 00 00 00 00 00     the same partition

Values are compared in the form in which the newest type of their column stores them. All NaNs are
one value; -0.0 and 0.0 are two.

Rows are grouped by partition, each partition with its values as the manifest stores them:

    rows ──► day=2024-03-31, bucket=7   rows 0, 3, 9
             day=2024-04-01, bucket=2   rows 1, 2
"""

import math
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.errors import Corruption
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import PlainValue, is_nan, plain_of
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.model.single_value import decode_single_value, encode_single_value

PartitionId: TypeAlias = tuple[int, tuple[PartitionValue, ...]]
"""Spec id and partition tuple; partitions of different specs are different."""


class PartitionIdentity:
    """Distinguishes the partitions of one table's files; for one thread."""

    def __init__(
        self, spec_of: Callable[[int], PartitionSpec], column_type: Callable[[int], pa.DataType]
    ) -> None:
        """Take specs by id, and types by field id, those of columns that were dropped since too."""
        self._spec_of = spec_of
        self._column_type = column_type
        # Files of one partition are many, forms of it few.
        self._known: dict[PartitionId, PartitionId] = {}

    @classmethod
    def of_definitions(
        cls, specs: Iterable[PartitionSpec], schemas: Iterable[TableSchema]
    ) -> "PartitionIdentity":
        """Take all definitions of a table; schemas the newest last."""
        by_id = {spec.spec_id: spec for spec in specs}
        types = {column.field_id: column.type for schema in schemas for column in schema.columns}
        return cls(by_id.__getitem__, types.__getitem__)

    def of(self, file: DataFile) -> PartitionId:
        """Return the partition of a file."""
        return self.of_values(file.spec_id, file.partition)

    def of_values(self, spec_id: int, partition: tuple[PartitionValue, ...]) -> PartitionId:
        """Return the partition of stored values, in the form of the newest types."""
        if not partition:
            return spec_id, partition
        stored = spec_id, partition
        known = self._known.get(stored)
        if known is None:
            known = self._known[stored] = spec_id, self._newest(spec_id, partition)
        return known

    def _newest(
        self, spec_id: int, partition: tuple[PartitionValue, ...]
    ) -> tuple[PartitionValue, ...]:
        try:
            fields = {field.field_id: field for field in self._spec_of(spec_id).fields}
            return tuple(self._value(fields[each.field_id], each) for each in partition)
        except (Corruption, KeyError):
            return partition  # nothing is known of it but its bytes

    def _value(self, field: PartitionField, value: PartitionValue) -> PartitionValue:
        if value.value is None:
            return value
        type_ = field.transform.result_type(self._column_type(field.source_id))
        return PartitionValue(field_id=value.field_id, value=newest_form(type_, value.value))


def newest_form(type_: pa.DataType, stored: bytes) -> bytes:
    """Store a value again as a type does that its column was widened to; raises Corruption."""
    plain = decode_single_value(type_, stored)
    try:
        return encode_single_value(type_, math.nan if is_nan(plain) else plain)
    except struct.error as error:
        raise Corruption(f"a stored value is beyond {type_}") from error


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
    returns them.
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
    """Return a number for each combination of values: equal numbers, equal partition."""
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
