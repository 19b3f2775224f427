"""Which partition a file is in, whatever bytes its values were stored as.

    x = 7, stored while x was an int        07 00 00 00
    x = 7, stored after it became a long    07 00 00 00 00 00 00 00     the same partition

Values are compared in the form in which the newest type of their column stores them. All NaNs are
one value; -0.0 and 0.0 are two.
"""

import math
import struct
from collections.abc import Callable, Iterable
from typing import TypeAlias

import pyarrow as pa

from neve.errors import Corruption
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import is_nan
from neve.model.schema import TableSchema
from neve.model.single_value import decode_single_value, encode_single_value

PartitionId: TypeAlias = tuple[int, tuple[PartitionValue, ...]]
"""Spec id and partition tuple; partitions of different specs are different."""


class PartitionIdentity:
    """Tells the partitions of one table's files apart; for one thread."""

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
