"""Partition values as texts, as Iceberg spells them: in listings, and in the names of directories.

    transform           plain value                        text
    identity, truncate  a value of the column              2024-01-31, 12.50, us-west
    year, month         years or months since 1970         2024, 2024-03
    day, hour           days or hours since 1970           2024-03-31, 2024-03-31-23
    bucket              number of the bucket               7

Bytes are base64.
"""

import base64
import uuid
from typing import Final, cast

import numpy as np
import pyarrow as pa

from neve.model.arrow_types import TypeKind, kind_of
from neve.model.plain_values import PlainValue
from neve.model.transforms import Bucket, TimePart, TimeUnit, Transform

_DAY_MICROSECONDS: Final = 86_400_000_000
_TIME_UNITS: Final = {
    TimeUnit.YEAR: "Y",
    TimeUnit.MONTH: "M",
    TimeUnit.DAY: "D",
    TimeUnit.HOUR: "h",
}


def partition_text(transform: Transform, result_type: pa.DataType, value: PlainValue) -> str:
    """Spell a value that a transform gave; raises ValueError for one that its type does not hold.

    `result_type` is what the transform gives for its column.
    """
    match transform:
        case Bucket():
            return str(value)
        case TimePart(unit):
            return _since_1970(value, _TIME_UNITS[unit]).replace("T", "-")
        case _:
            return _plain_text(result_type, value)


def _plain_text(type_: pa.DataType, value: PlainValue) -> str:
    match kind_of(type_):
        case TypeKind.BOOLEAN:
            return "true" if value else "false"
        case TypeKind.DATE:
            return _since_1970(value, "D")
        case TypeKind.TIME:
            return _time_text(cast("int", value))
        case TypeKind.TIMESTAMP:
            return _since_1970(value, "us")
        case TypeKind.TIMESTAMPTZ:
            return f"{_since_1970(value, 'us')}+00:00"
        case TypeKind.TIMESTAMP_NS:
            return _since_1970(value, "ns")
        case TypeKind.TIMESTAMPTZ_NS:
            return f"{_since_1970(value, 'ns')}+00:00"
        case TypeKind.UUID:
            return str(uuid.UUID(bytes=cast("bytes", value)))
        case TypeKind.FIXED | TypeKind.BINARY:
            return base64.b64encode(cast("bytes", value)).decode()
        case _:
            return str(value)


def _since_1970(count: PlainValue, unit: str) -> str:
    # NumPy's calendar has no first and no last year.
    return str(np.int64(cast("int", count)).astype(f"datetime64[{unit}]"))


def _time_text(microseconds: int) -> str:
    if not 0 <= microseconds < _DAY_MICROSECONDS:
        raise ValueError("a time outside of the day")
    return _since_1970(microseconds, "us").partition("T")[2]
