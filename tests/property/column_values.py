"""Types a partitioned or filtered column can have, with plain values that meet each other often."""

from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
from hypothesis import strategies as st

from neve.model.plain_values import PlainValue

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True)
class ColumnKind:
    """A type and its plain values."""

    type: pa.DataType
    values: st.SearchStrategy[PlainValue]


def _integers(limits: tuple[int, int]) -> st.SearchStrategy[int]:
    low, high = limits
    near = st.sampled_from([low, low + 1, -1, 0, 1, 2, 5, high - 1, high])
    return near | st.integers(-20, 20) | st.integers(low, high)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    unscaled = st.integers(-300, 300) | st.integers(-limit, limit)
    return unscaled.map(lambda number: Decimal((number < 0, _digits(number), -scale)))


def _digits(number: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(number))))


_FLOATS = st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.5, float("inf"), float("-inf")])
_TEXTS = st.text("abé😀\x00", max_size=5) | st.text(max_size=5)
_BYTES = st.binary(max_size=4) | st.lists(st.sampled_from([0, 97, 255]), max_size=5).map(bytes)

KINDS: dict[str, ColumnKind] = {
    "bool": ColumnKind(pa.bool_(), st.booleans()),
    "int": ColumnKind(pa.int32(), _integers(INT32)),
    "long": ColumnKind(pa.int64(), _integers(INT64)),
    "float": ColumnKind(pa.float32(), _FLOATS | st.floats(width=32, allow_nan=False)),
    "double": ColumnKind(pa.float64(), _FLOATS | st.floats(allow_nan=False)),
    "decimal": ColumnKind(pa.decimal128(9, 2), _decimals(9, 2)),
    "wide_decimal": ColumnKind(pa.decimal128(38, 10), _decimals(38, 10)),
    "date": ColumnKind(pa.date32(), _integers(INT32)),
    "time": ColumnKind(pa.time64("us"), st.integers(0, 86_400_000_000 - 1)),
    "timestamp": ColumnKind(pa.timestamp("us"), _integers(INT64)),
    "timestamptz": ColumnKind(pa.timestamp("us", "UTC"), _integers((-(10**17), 10**17))),
    "timestamp_ns": ColumnKind(pa.timestamp("ns"), _integers(INT64)),
    "timestamptz_ns": ColumnKind(pa.timestamp("ns", "UTC"), _integers(INT64)),
    "string": ColumnKind(pa.string(), _TEXTS),
    "binary": ColumnKind(pa.binary(), _BYTES),
    "fixed": ColumnKind(pa.binary(3), st.binary(min_size=3, max_size=3)),
    "uuid": ColumnKind(pa.uuid(), st.binary(min_size=16, max_size=16)),
}


def kinds(*names: str) -> st.SearchStrategy[ColumnKind]:
    """Draw one of the named kinds, or any."""
    return st.sampled_from([KINDS[name] for name in names or KINDS])
