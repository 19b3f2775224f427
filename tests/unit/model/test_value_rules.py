"""Rows, keys and literals take the same Python values for the same type, and mean the same."""

import enum
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Final
from uuid import UUID

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from neve.errors import InvalidArgument, SchemaMismatch
from neve.keys.encoding import KeyEncoder
from neve.model.plain_values import PlainValue, is_float, is_nan, plain_of, to_plain
from neve.model.predicate import col
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema


class Rank(enum.IntEnum):
    THIRD = 3


class Letter(str, enum.Enum):  # noqa: UP042 - its str() is not its value, which is the point
    A = "a"


TYPES: Final[list[pa.DataType]] = [
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(9, 2),
    pa.decimal128(38, 0),
    pa.date32(),
    pa.time64("us"),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
    pa.string(),
    pa.binary(),
    pa.binary(3),
    pa.uuid(),
]

NOON: Final = datetime(2024, 2, 29, 12, 30, 15, 123456)  # noqa: DTZ001 - a column without zone

VALUES: Final[dict[str, object]] = {
    "bool": True,
    "numpy bool": np.bool_(False),
    "zero": 0,
    "int": 7,
    "negative int": -7,
    "int enum": Rank.THIRD,
    "numpy int8": np.int8(5),
    "numpy int64": np.int64(-7),
    "numpy uint64": np.uint64(1 << 63),
    "numpy timedelta": np.timedelta64(5, "us"),
    "beyond int32": 1 << 31,
    "beyond int64": 1 << 63,
    "a negative beyond int64": -(1 << 63) - 1,
    "beyond exact doubles": (1 << 53) + 1,
    "beyond exact floats": (1 << 24) + 1,
    "beyond python's dates": 2_932_897,
    "beyond python's datetimes": 253_402_300_800_000_000,
    "the lowest int64": -(1 << 63),
    "beyond everything": 10**5_000,
    "whole float": 2.0,
    "float": 1.5,
    "fine float": 0.1,
    "great float": 1e300,
    "minus zero": -0.0,
    "infinity": float("inf"),
    "nan": float("nan"),
    "numpy float16": np.float16(1.5),
    "numpy float32": np.float32(0.1),
    "numpy float64": np.float64(0.1),
    "numpy nan": np.float32("nan"),
    "decimal": Decimal("1.50"),
    "long decimal": Decimal("1.234"),
    "whole decimal": Decimal("1E+2"),
    "great decimal": Decimal("1E+999999"),
    "small decimal": Decimal("1E-999999"),
    "decimal nan": Decimal("NaN"),
    "decimal infinity": Decimal("-Infinity"),
    "text": "a",
    "empty text": "",
    "numpy text": np.str_("a"),
    "text enum": Letter.A,
    "text of a number": "1.5",
    "text of a date": "2024-02-29",
    "text of a time": "12:30:00",
    "text of a moment": "2024-02-29T12:30:00",
    "text of a uuid": "00112233-4455-6677-8899-aabbccddeeff",
    "lone surrogate": "a\ud800",
    "bytes": b"abc",
    "sixteen bytes": bytes(16),
    "numpy bytes": np.bytes_(b"abc"),
    "bytearray": bytearray(b"abc"),
    "memoryview": memoryview(b"xabc")[1:],
    "date": date(2024, 2, 29),
    "first date": date.min,
    "moment": NOON,
    "moment in UTC": NOON.replace(tzinfo=UTC),
    "moment in a zone": NOON.replace(tzinfo=timezone(timedelta(hours=5, minutes=30))),
    "first moment": datetime(1, 1, 1),  # noqa: DTZ001 - a column without zone
    "last moment": datetime.max.replace(tzinfo=UTC),
    "pandas moment": pd.Timestamp("2024-02-29T12:30:15.123456"),
    "pandas nanoseconds": pd.Timestamp(1_501),
    "pandas moment in a zone": pd.Timestamp(1_501_000, tz="Asia/Kolkata"),
    "far pandas moment": pd.Timestamp("9999-12-31").as_unit("s"),
    "pandas nothing": pd.NaT,
    "pandas NA": pd.NA,
    "numpy moment": np.datetime64("2024-02-29T12:30"),
    "time": time(12, 30, 15, 123456),
    "time in a zone": time(12, tzinfo=UTC),
    "uuid": UUID("00112233-4455-6677-8899-aabbccddeeff"),
    "timedelta": timedelta(1),
    "complex": 1j,
    "list": [1],
    "object": object(),
}


def in_a_row(value: object, type_: pa.DataType) -> PlainValue | None:
    """Plain value that a row stores; None when it refuses."""
    fields = pa.schema([pa.field("id", pa.int64()), pa.field("v", type_, nullable=False)])
    codec = RowCodec(TableSchema.from_arrow(fields, primary_key=["id"]))
    try:
        row = codec.encode({"id": 1, "v": value})
    except SchemaMismatch:
        return None
    return plain_of(codec.decode_many([row]).column(1)[0])


def in_a_key(value: object, type_: pa.DataType) -> PlainValue | None:
    """Plain value that a key stores; None when it refuses."""
    keys = KeyEncoder([type_], ["v"])
    try:
        key = keys.encode((value,))
    except SchemaMismatch:
        return None
    return plain_of(keys.decode_arrays(pa.array([key], pa.binary()))[0][0])


def in_a_predicate(value: object, type_: pa.DataType) -> PlainValue | None:
    """Plain value that a literal is compared as; None when no value of the column equals it."""
    fields = pa.schema([("id", pa.int64()), ("v", type_)])
    schema = TableSchema.from_arrow(fields, primary_key=["id"])
    try:
        (col("v") == value).bind(schema)
        return to_plain(value, type_, column="v")
    except (InvalidArgument, SchemaMismatch):
        return None


def is_only_for_literals(value: object, type_: pa.DataType) -> bool:
    """Whether the rules let a literal, but no row, be of this kind."""
    is_moment = pa.types.is_timestamp(type_)
    is_number = pa.types.is_integer(type_) or pa.types.is_decimal(type_) or is_float(type_)
    match value:
        case str():
            return is_moment or isinstance(type_, pa.UuidType) or not is_text_type(type_)
        case bytes() | bytearray() | memoryview():
            return isinstance(type_, pa.UuidType)
        case int() | np.integer():
            return is_float(type_) or pa.types.is_temporal(type_)
        case float() | np.floating() | Decimal():
            return is_number
        case date():
            return is_moment and not isinstance(value, datetime)
        case _:
            return False


def is_text_type(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_binary(type_)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_is_taken_or_refused_alike_in_rows_and_keys(
    value: object, type_: pa.DataType
) -> None:
    stored, key = in_a_row(value, type_), in_a_key(value, type_)

    if is_float(type_) and stored is not None and is_nan(stored):
        assert key is None, "a key has an order and NaN has none"
    else:
        assert (stored, type(stored)) == (key, type(key))


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_value_that_a_row_takes_means_the_same_as_a_literal(
    value: object, type_: pa.DataType
) -> None:
    stored, literal = in_a_row(value, type_), in_a_predicate(value, type_)

    if stored is None:
        assert literal is None or is_only_for_literals(value, type_)
    elif is_nan(stored):
        assert literal is None, "nothing equals NaN"
    else:
        assert (stored, type(stored)) == (literal, type(literal))


def test_every_type_takes_and_refuses_some_of_the_values() -> None:
    for type_ in TYPES:
        taken = [in_a_row(value, type_) is not None for value in VALUES.values()]

        assert any(taken)
        assert not all(taken)
