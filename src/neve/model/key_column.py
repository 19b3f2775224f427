"""KeyColumn: which Arrow types may be in a primary key, and how many bytes each takes.

    kind        Arrow types                                        bytes in a key
    BOOL        bool                                               1
    INTEGER     int32, int64                                       4, 8
    FLOAT       float32, float64                                   4, 8
    DECIMAL     decimal128(precision, scale)                       16
    DATE        date32                                             4
    TIME        time64[us]                                         8
    TIMESTAMP   timestamp[us], timestamp[ns], each naive or UTC    8
    FIXED       fixed_size_binary(n)                               n
    UUID        uuid                                               16
    TEXT        string                                             varies
    BINARY      binary                                             varies

How the bytes look is in `neve.keys.encoding`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import pyarrow as pa

from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.display import shown, shown_type

# pyarrow's classes take type arguments in the stubs only, hence the quotes.
ArrowArray: TypeAlias = "pa.Array[pa.Scalar[pa.DataType]]"
ArrowColumn: TypeAlias = "ArrowArray | pa.ChunkedArray[pa.Scalar[pa.DataType]]"
KeyArray: TypeAlias = pa.FixedSizeBinaryArray | pa.BinaryArray | pa.LargeBinaryArray

KEY_BYTES_MAX: Final = 65_535  # a written key's length fits in 16 bits


class KeyKind(StrEnum):
    """Families of key columns that share one encoding."""

    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    FIXED = "fixed"
    UUID = "uuid"
    TEXT = "text"
    BINARY = "binary"


_LAYOUTS: Final[dict[pa.DataType, tuple[KeyKind, int | None]]] = {
    pa.bool_(): (KeyKind.BOOL, 1),
    pa.int32(): (KeyKind.INTEGER, 4),
    pa.int64(): (KeyKind.INTEGER, 8),
    pa.float32(): (KeyKind.FLOAT, 4),
    pa.float64(): (KeyKind.FLOAT, 8),
    pa.date32(): (KeyKind.DATE, 4),
    pa.time64("us"): (KeyKind.TIME, 8),
    pa.timestamp("us"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("us", tz="UTC"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("ns"): (KeyKind.TIMESTAMP, 8),
    pa.timestamp("ns", tz="UTC"): (KeyKind.TIMESTAMP, 8),
    pa.uuid(): (KeyKind.UUID, 16),
    pa.string(): (KeyKind.TEXT, None),
    pa.binary(): (KeyKind.BINARY, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyColumn:
    """One column of a primary key."""

    name: str
    type: pa.DataType
    kind: KeyKind
    width: int | None  # bytes in a key; None: it varies from row to row

    @classmethod
    def of(cls, name: str, key_type: pa.DataType) -> "KeyColumn":
        """Describe a column; raises InvalidArgument for a type no key can hold."""
        kind, width = _layout(name, key_type)
        if width is not None and width > KEY_BYTES_MAX:
            raise LimitExceeded(
                f"key column {shown(name)} takes {width} bytes",
                limit=KEY_BYTES_MAX,
                actual=width,
                hint=f"A whole key has at most {KEY_BYTES_MAX} bytes",
            )
        return cls(name=name, type=key_type, kind=kind, width=width)

    def refuses(self, what: str, *, hint: str, row: int | None = None) -> SchemaMismatch:
        """Make the error for a value this column cannot hold; `what` continues its name."""
        return SchemaMismatch(
            f"key column {shown(self.name)} ({shown_type(self.type)}) {what}",
            column=self.name,
            row=row,
            hint=hint,
        )


def _layout(name: str, key_type: pa.DataType) -> tuple[KeyKind, int | None]:
    layout = _LAYOUTS.get(key_type)
    if layout is not None:
        return layout
    if isinstance(key_type, pa.Decimal128Type) and 0 <= key_type.scale <= key_type.precision:
        return KeyKind.DECIMAL, 16
    # pyarrow's decimal types are subclasses of its fixed-size binary type: ask for the type id.
    if pa.types.is_fixed_size_binary(key_type) and key_type.byte_width > 0:
        return KeyKind.FIXED, key_type.byte_width
    raise InvalidArgument(
        f"column {shown(name)} cannot be in a primary key: its type is {shown_type(key_type)}",
        hint="Use bool, int32, int64, float32, float64, decimal128(p, s) with 0 <= s <= p, date32, "
        "time64[us], timestamp[us] or timestamp[ns] (naive or UTC), string, binary, "
        "fixed_size_binary(n) with n above 0, or uuid",
    )
