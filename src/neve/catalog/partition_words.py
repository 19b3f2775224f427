"""Partition values of data files as texts, as Iceberg spells them.

    transform           value in the manifest              text
    identity, truncate  single-value form of the column    2024-01-31, 12.50, us-west
    year, month         months or years since 1970, i32    2024, 2024-03
    day, hour           days or hours since 1970, i32      2024-03-31, 2024-03-31-23
    bucket              number of the bucket, i32          7

Iceberg's single-value form: numbers little-endian, decimals as the shortest big-endian two's
complement, text as UTF-8, a uuid as 16 bytes. Bytes of another length than the type has are
Corruption, but for numbers that were widened since.
"""

import base64
import struct
import uuid
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from neve.errors import Corruption
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.data_file import DataFile, PartitionValue
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import decimal_of
from neve.model.schema import TableSchema
from neve.model.transforms import Bucket, TimePart, TimeUnit

_DAY_MICROSECONDS: Final = 86_400_000_000
_INTEGER_BYTES: Final = frozenset({4, 8})
_TIME_UNITS: Final = {
    TimeUnit.YEAR: "Y",
    TimeUnit.MONTH: "M",
    TimeUnit.DAY: "D",
    TimeUnit.HOUR: "h",
}
_FLOATS: Final = {4: struct.Struct("<f"), 8: struct.Struct("<d")}


class PartitionWords:
    """Spells the partition values of one table's files."""

    def __init__(
        self, specs: Mapping[int, PartitionSpec], schemas: Mapping[int, TableSchema], *, path: str
    ) -> None:
        self._specs = specs
        self._path = path
        # Newest last: a field that was widened has the type it has now.
        self._types = {
            column.field_id: column.type
            for schema_id in sorted(schemas)
            for column in schemas[schema_id].columns
        }
        # Files of one partition are many, partitions few.
        self._known: dict[tuple[int, tuple[PartitionValue, ...]], dict[str, str | None]] = {}

    def of(self, file: DataFile) -> dict[str, str | None]:
        """Give the texts of a file's partition values by field name; raises Corruption."""
        key = (file.spec_id, file.partition)
        words = self._known.get(key)
        if words is None:
            words = self._known[key] = self._spell(file)
        return words

    def _spell(self, file: DataFile) -> dict[str, str | None]:
        spec = self._specs.get(file.spec_id)
        if spec is None:
            raise Corruption(
                f"{file.path!a} is of partition spec {file.spec_id}, which the table never had",
                path=self._path,
            )
        values = {each.field_id: each.value for each in file.partition}
        words: dict[str, str | None] = {}
        for field in spec.fields:
            value = values.get(field.field_id)
            try:
                words[field.name] = None if value is None else self._word(field, value)
            except (ValueError, KeyError, struct.error) as error:
                raise Corruption(
                    f"partition value {field.name!a} of {file.path!a} cannot be read",
                    path=self._path,
                ) from error
        return words

    def _word(self, field: PartitionField, value: bytes) -> str:
        match field.transform:
            case Bucket():
                return str(_integer(value))
            case TimePart(unit):
                return _since_1970(_integer(value), _TIME_UNITS[unit]).replace("T", "-")
            case _:
                return _plain_word(self._types[field.source_id], value)


def _plain_word(type_: pa.DataType, value: bytes) -> str:
    match kind_of(type_):
        case TypeKind.BOOLEAN:
            return {b"\0": "false", b"\1": "true"}[value]
        case TypeKind.INT | TypeKind.LONG:
            return str(_integer(value))
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return str(_FLOATS[len(value)].unpack(value)[0])
        case TypeKind.DECIMAL:
            return str(decimal_of(int.from_bytes(value, "big", signed=True), type_))
        case TypeKind.DATE:
            return _since_1970(_integer(value), "D")
        case TypeKind.TIME:
            return _time_word(_integer(value))
        case TypeKind.TIMESTAMP:
            return _since_1970(_integer(value), "us")
        case TypeKind.TIMESTAMPTZ:
            return f"{_since_1970(_integer(value), 'us')}+00:00"
        case TypeKind.TIMESTAMP_NS:
            return _since_1970(_integer(value), "ns")
        case TypeKind.TIMESTAMPTZ_NS:
            return f"{_since_1970(_integer(value), 'ns')}+00:00"
        case TypeKind.STRING:
            return value.decode()
        case TypeKind.UUID:
            return str(uuid.UUID(bytes=value))
        case _:
            return base64.b64encode(value).decode()


def _integer(value: bytes) -> int:
    if len(value) not in _INTEGER_BYTES:
        raise ValueError("a number of another length")
    return int.from_bytes(value, "little", signed=True)


def _since_1970(count: int, unit: str) -> str:
    # NumPy's calendar has no first and no last year.
    return str(np.int64(count).astype(f"datetime64[{unit}]"))


def _time_word(microseconds: int) -> str:
    if not 0 <= microseconds < _DAY_MICROSECONDS:
        raise ValueError("a time outside of the day")
    return _since_1970(microseconds, "us").partition("T")[2]
