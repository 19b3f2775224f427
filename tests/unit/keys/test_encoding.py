"""Key bytes: pinned values, refused values, and damage."""

import enum
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import cast
from uuid import UUID

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NeveError, SchemaMismatch
from neve.keys import vectors as key_vectors
from neve.keys.columns import KEY_BYTES_MAX, ArrowArray
from neve.keys.encoding import (
    KeyEncoder,
)
from neve.keys.ranges import KeyRange

US = pa.timestamp("us")
US_UTC = pa.timestamp("us", tz="UTC")
NS = pa.timestamp("ns")
NS_UTC = pa.timestamp("ns", tz="UTC")
ROME_WINTER = timezone(timedelta(hours=1))


class Color(enum.IntEnum):
    RED = 3


class NoOffset(tzinfo):
    """A time zone that does not know its offset: such a datetime counts as naive."""

    def utcoffset(self, _moment: datetime | None, /) -> None:
        return None

    def dst(self, _moment: datetime | None, /) -> None:
        return None

    def tzname(self, _moment: datetime | None, /) -> None:
        return None


def encoder(*types: pa.DataType) -> KeyEncoder:
    return KeyEncoder(types, [f"k{number}" for number in range(len(types))])


def array(values: Sequence[object], value_type: pa.DataType) -> ArrowArray:
    made: ArrowArray = pa.array(values, value_type)
    return made


def reinterpreted(bits: bytes, value_type: pa.DataType, rows: int) -> ArrowArray:
    """Return an array whose values nobody checked, as one read from a file may be."""
    return pa.Array.from_buffers(value_type, rows, [None, pa.py_buffer(bits)])


GOLDEN: list[tuple[pa.DataType, object, str]] = [
    (pa.bool_(), False, "00"),
    (pa.bool_(), True, "01"),
    (pa.int32(), 0, "80000000"),
    (pa.int32(), -1, "7fffffff"),
    (pa.int32(), 2**31 - 1, "ffffffff"),
    (pa.int32(), -(2**31), "00000000"),
    (pa.int64(), 0, "8000000000000000"),
    (pa.int64(), 1, "8000000000000001"),
    (pa.int64(), -1, "7fffffffffffffff"),
    (pa.int64(), -(2**63), "0000000000000000"),
    (pa.int64(), 2**63 - 1, "ffffffffffffffff"),
    (pa.float32(), 0.0, "80000000"),
    (pa.float32(), 1.0, "bf800000"),
    (pa.float32(), -1.0, "407fffff"),
    (pa.float64(), 0.0, "8000000000000000"),
    (pa.float64(), 1.0, "bff0000000000000"),
    (pa.float64(), -1.0, "400fffffffffffff"),
    (pa.float64(), float("inf"), "fff0000000000000"),
    (pa.float64(), float("-inf"), "000fffffffffffff"),
    (pa.float64(), 5e-324, "8000000000000001"),
    (pa.float64(), -5e-324, "7ffffffffffffffe"),
    (pa.decimal128(9, 2), Decimal("0.00"), "80" + "00" * 15),
    (pa.decimal128(9, 2), Decimal("-0.01"), "7f" + "ff" * 15),
    (pa.decimal128(9, 2), Decimal("123.45"), "80" + "00" * 13 + "3039"),
    (pa.decimal128(38, 0), Decimal(10**38 - 1), "cb3b4ca85a86c47a098a223fffffffff"),
    (pa.decimal128(38, 0), Decimal(1 - 10**38), "34c4b357a5793b85f675ddc000000001"),
    (pa.date32(), date(1970, 1, 1), "80000000"),
    (pa.date32(), date(1969, 12, 31), "7fffffff"),
    (pa.date32(), date(1, 1, 1), "7ff506c6"),
    (pa.date32(), date(9999, 12, 31), "802cc0a0"),
    (pa.time64("us"), time(0), "8000000000000000"),
    (pa.time64("us"), time(23, 59, 59, 999_999), "800000141dd75fff"),
    (US, datetime(1970, 1, 1), "8000000000000000"),  # noqa: DTZ001
    (US, datetime(1969, 12, 31, 23, 59, 59, 999_999), "7fffffffffffffff"),  # noqa: DTZ001
    (US_UTC, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "8000000000000001"),
    (NS, 1, "8000000000000001"),
    (NS, -1, "7fffffffffffffff"),
    (NS_UTC, -(2**63), "0000000000000000"),
    (pa.binary(3), b"\x00\xff\x00", "00ff00"),
    (pa.uuid(), UUID("00112233-4455-6677-8899-aabbccddeeff"), "00112233445566778899aabbccddeeff"),
    (pa.string(), "", "0000"),
    (pa.string(), "a", "610000"),
    (pa.string(), "a\0b", "6100ff620000"),
    (pa.string(), "é€😀", "c3a9e282acf09f98800000"),
    (pa.binary(), b"", "0000"),
    (pa.binary(), b"\x00", "00ff0000"),
    (pa.binary(), b"\xff", "ff0000"),
    (pa.binary(), b"\x00\xff\x00\x00", "00ffff00ff00ff0000"),
]


def numbered(cases: Sequence[tuple[object, ...]]) -> list[str]:
    return [f"{number}: {case[0]}" for number, case in enumerate(cases)]


@pytest.mark.parametrize(("key_type", "value", "expected"), GOLDEN, ids=numbered(GOLDEN))
def test_key_bytes_never_change(key_type: pa.DataType, value: object, expected: str) -> None:
    keys = encoder(key_type)
    key = keys.encode((value,))
    assert key.hex() == expected
    assert keys.decode(key) == (value,)
    vector = keys.encode_arrays([array([value], key_type)])
    assert vector.to_pylist() == [key]
    assert keys.decode_arrays(vector)[0].equals(array([value], key_type))


def test_columns_follow_each_other_without_gaps() -> None:
    keys = encoder(pa.int32(), pa.string(), pa.bool_(), pa.binary(2))
    expected = bytes.fromhex("7ffffffb 7800ff0000 01 abcd")
    values = (-5, "x\0", True, b"\xab\xcd")
    columns = [array([value], key_type) for value, key_type in zip(values, keys.types, strict=True)]
    assert keys.encode(values) == expected
    assert keys.encode(list(values)) == expected
    assert keys.encode_arrays(columns).to_pylist() == [expected]
    assert keys.decode(expected) == values
    assert keys.decode_arrays(array([expected], pa.binary())) == columns


def test_minus_zero_and_plus_zero_are_one_key() -> None:
    for key_type in (pa.float32(), pa.float64()):
        keys = encoder(key_type)
        zero = keys.encode((0.0,))
        assert keys.encode((-0.0,)) == zero
        assert keys.encode((0,)) == zero
        assert keys.encode_arrays([array([-0.0, 0.0], key_type)]).to_pylist() == [zero, zero]


def test_a_double_that_rounds_to_minus_zero_as_float32_is_the_key_of_zero() -> None:
    keys = encoder(pa.float32())
    assert keys.encode((-1e-60,)) == keys.encode((0.0,))


def test_equal_values_written_differently_are_one_key() -> None:
    money = encoder(pa.decimal128(9, 2))
    assert money.encode((Decimal("1E+1"),)) == money.encode((Decimal("10.00"),))
    assert money.encode((10,)) == money.encode((Decimal("10.000000"),))
    assert money.encode((Decimal("-0"),)) == money.encode((Decimal("0E+999999"),))
    moments = encoder(US_UTC)
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    assert moments.encode((noon,)) == moments.encode((noon.astimezone(ROME_WINTER),))


def test_subclasses_of_the_wanted_types_are_taken_by_value() -> None:
    assert encoder(pa.int64()).encode((Color.RED,)) == encoder(pa.int64()).encode((3,))
    assert encoder(pa.float64()).encode((np.float64(1.5),)) == encoder(pa.float64()).encode((1.5,))
    fixed = encoder(pa.binary(2)).encode((np.bytes_(b"ab"),))
    assert type(fixed) is bytes
    assert fixed == b"ab"


def test_moments_that_python_cannot_hold_are_integers_both_ways() -> None:
    for key_type, number in ((pa.date32(), 2_932_897), (US, -(2**63)), (US_UTC, 2**63 - 1)):
        keys = encoder(key_type)
        storage = pa.int32() if key_type == pa.date32() else pa.int64()
        key = keys.encode((number,))
        assert keys.encode_arrays([array([number], storage).view(key_type)]).to_pylist() == [key]
        assert keys.decode(key) == (number,)


def test_nanoseconds_come_from_datetimes_and_pandas_and_leave_as_integers() -> None:
    keys = encoder(NS)
    assert keys.decode(keys.encode((datetime(1970, 1, 1, 0, 0, 1),))) == (10**9,)  # noqa: DTZ001
    assert keys.decode(keys.encode((pd.Timestamp(1501),))) == (1501,)
    zoned = encoder(NS_UTC)
    moment = pd.Timestamp(1501, tz="UTC").tz_convert("Asia/Kolkata")
    assert zoned.decode(zoned.encode((moment,))) == (1501,)


REFUSED: list[tuple[pa.DataType, object, str]] = [
    *[
        (key_type, None, "is NULL")
        for key_type in (
            pa.bool_(),
            pa.int64(),
            pa.float64(),
            pa.decimal128(9, 2),
            pa.date32(),
            pa.time64("us"),
            US,
            NS_UTC,
            pa.binary(3),
            pa.uuid(),
            pa.string(),
            pa.binary(),
        )
    ],
    (pa.bool_(), 1, "got int"),
    (pa.int64(), True, "got bool"),
    (pa.int64(), "1", "got str"),
    (pa.int64(), 1.0, "got float"),
    (pa.int64(), 2**63, "integer outside"),
    (pa.int64(), -(2**63) - 1, "integer outside"),
    (pa.int64(), 10**10_000, "integer outside"),
    (pa.int32(), 2**31, "integer outside"),
    (pa.int32(), -(2**31) - 1, "integer outside"),
    (pa.float64(), float("nan"), "is NaN"),
    (pa.float32(), float("-nan"), "is NaN"),
    (pa.float64(), False, "got bool"),
    (pa.float64(), "1", "got str"),
    (pa.float64(), Decimal(1), "got Decimal"),
    (pa.float64(), 2**53 + 1, "no float of the column's width"),
    (pa.float32(), 2**24 + 1, "no float of the column's width"),
    (pa.float64(), 10**400, "outside the range"),
    (pa.float32(), 10**40, "no float of the column's width"),
    (pa.float32(), 1e39, "outside the range"),
    (pa.decimal128(9, 2), 1.5, "got float"),
    (pa.decimal128(9, 2), True, "got bool"),
    (pa.decimal128(9, 2), Decimal("NaN"), "not a finite number"),
    (pa.decimal128(9, 2), Decimal("sNaN"), "not a finite number"),
    (pa.decimal128(9, 2), Decimal("-Infinity"), "not a finite number"),
    (pa.decimal128(9, 2), Decimal("0.001"), "digits after the point"),
    (pa.decimal128(9, 2), Decimal("1E-999999"), "digits after the point"),
    (pa.decimal128(9, 2), Decimal(10**7), "digits before the point"),
    (pa.decimal128(9, 2), -(10**7), "digits before the point"),
    (pa.decimal128(9, 2), Decimal("1E+999999"), "digits before the point"),
    (pa.date32(), datetime(2024, 1, 1), "got datetime"),  # noqa: DTZ001
    (pa.date32(), 5, "got int"),
    (pa.date32(), 2**31, "integer outside"),
    (pa.time64("us"), time(1, tzinfo=UTC), "time with a zone"),
    (pa.time64("us"), 5, "got int"),
    (US, datetime(2024, 1, 1, tzinfo=UTC), "datetime with a zone"),
    (US_UTC, datetime(2024, 1, 1), "datetime without a zone"),  # noqa: DTZ001
    (US_UTC, datetime(2024, 1, 1, tzinfo=NoOffset()), "datetime without a zone"),
    (NS, datetime(2024, 1, 1, tzinfo=UTC), "datetime with a zone"),
    (NS, datetime(2999, 1, 1), "outside 1677 to 2262"),  # noqa: DTZ001
    (NS, 2**63, "integer outside"),
    (NS, True, "got bool"),
    (US, 1_700_000_000, "got int"),
    (US, date(2024, 1, 1), "got date"),
    (US, pd.NaT, "not a moment"),
    (US, pd.Timestamp(1501), "nanoseconds"),
    (pa.binary(3), b"ab", "2 bytes where"),
    (pa.binary(3), b"abcd", "4 bytes where"),
    (pa.binary(3), "abc", "got str"),
    (pa.uuid(), bytes(16), "got bytes"),
    (pa.uuid(), "00112233-4455-6677-8899-aabbccddeeff", "got str"),
    (pa.string(), b"a", "got bytes"),
    (pa.string(), "ab\ud800", "lone surrogate at position 2"),
    (pa.binary(), "a", "got str"),
    (pa.binary(), [97], "got list"),
]


@pytest.mark.parametrize(("key_type", "value", "why"), REFUSED, ids=numbered(REFUSED))
def test_a_value_that_does_not_fit_is_refused_by_column(
    key_type: pa.DataType, value: object, why: str
) -> None:
    keys = KeyEncoder([pa.int32(), key_type], ["shop", "order"])
    with pytest.raises(SchemaMismatch, match=why) as caught:
        keys.encode((1, value))
    assert caught.value.column == "order"
    assert "'order'" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("values", [(), (1, 2, 3), (1, "a", 2, 3), [1]])
def test_a_wrong_number_of_values_is_refused_with_the_names_to_pass(
    values: Sequence[object],
) -> None:
    keys = KeyEncoder([pa.int32(), pa.string()], ["shop", "order"])
    with pytest.raises(InvalidArgument, match="Pass 'shop', 'order', in this order"):
        keys.encode(values)


@pytest.mark.parametrize("values", ["ab", b"cd", {"a": 1, "b": 2}, {1, 2}, 7, None])
def test_key_values_that_are_no_sequence_are_refused(values: object) -> None:
    keys = KeyEncoder([pa.string(), pa.string()], ["shop", "order"])
    with pytest.raises(InvalidArgument, match="Pass a tuple"):
        keys.encode(cast("Sequence[object]", values))


@pytest.mark.parametrize(
    "key_type",
    [
        pa.null(),
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.date64(),
        pa.time32("ms"),
        pa.timestamp("ms"),
        pa.timestamp("us", tz="Europe/Rome"),
        pa.decimal256(40, 2),
        pa.decimal128(5, -2),
        pa.decimal128(3, 5),
        pa.large_string(),
        pa.binary(0),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.dictionary(pa.int32(), pa.string()),
        pa.duration("us"),
    ],
)
def test_a_type_that_no_key_can_hold_is_refused_by_name(key_type: pa.DataType) -> None:
    with pytest.raises(InvalidArgument, match="'order' cannot be in a primary key"):
        KeyEncoder([pa.int64(), key_type], ["shop", "order"])


@pytest.mark.parametrize(
    ("types", "names"),
    [
        ([], []),
        ([pa.int64()], []),
        ([pa.int64()], ["a", "b"]),
        ([pa.int64(), pa.int64()], ["a", "a"]),
    ],
)
def test_types_and_names_must_belong_together(types: list[pa.DataType], names: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="one type and one name"):
        KeyEncoder(types, names)


def test_an_encoder_tells_its_columns_and_width() -> None:
    fixed = KeyEncoder([pa.int64(), pa.date32(), pa.uuid()], ["a", "b", "c"])
    assert fixed.width == 28
    assert fixed.names == ("a", "b", "c")
    varying = KeyEncoder([pa.int64(), pa.string()], ["a", "b"])
    assert varying.width is None
    assert varying.types == (pa.int64(), pa.string())


def test_a_key_has_at_most_65535_bytes() -> None:
    keys = encoder(pa.string())
    longest = "a" * (KEY_BYTES_MAX - 2)
    assert len(keys.encode((longest,))) == KEY_BYTES_MAX == 65_535
    assert keys.decode(keys.encode((longest,))) == (longest,)
    texts = array(["", longest], pa.string())
    assert keys.decode_arrays(keys.encode_arrays([texts])) == [texts]
    for too_long in (longest + "a", "a" * (KEY_BYTES_MAX - 3) + "\0"):
        with pytest.raises(LimitExceeded) as caught:
            keys.encode((too_long,))
        assert (caught.value.limit, caught.value.actual) == (KEY_BYTES_MAX, KEY_BYTES_MAX + 1)
        with pytest.raises(LimitExceeded, match="row 1 has 65536 bytes") as caught:
            keys.encode_arrays([array(["", too_long], pa.string())])
        assert (caught.value.limit, caught.value.actual) == (KEY_BYTES_MAX, KEY_BYTES_MAX + 1)
        with pytest.raises(LimitExceeded):
            keys.prefix_range((too_long,))
    damaged = b"a" * (KEY_BYTES_MAX - 1) + b"\0\0"
    with pytest.raises(Corruption):
        keys.decode(damaged)
    with pytest.raises(Corruption, match="in row 0"):
        keys.decode_arrays(array([damaged], pa.binary()))


def test_fixed_columns_that_are_too_wide_together_are_refused_when_the_encoder_is_made() -> None:
    with pytest.raises(LimitExceeded):
        encoder(pa.binary(70_000))
    with pytest.raises(LimitExceeded):
        encoder(pa.binary(40_000), pa.binary(40_000))


def test_fixed_width_keys_are_a_fixed_size_array_and_others_are_binary() -> None:
    numbers = array([1, 2], pa.int64())
    texts = array(["a", "b"], pa.string())
    fixed = encoder(pa.int64()).encode_arrays([numbers])
    varying = encoder(pa.int64(), pa.string()).encode_arrays([numbers, texts])
    assert isinstance(fixed, pa.FixedSizeBinaryArray)
    assert fixed.type.byte_width == 8
    assert isinstance(varying, pa.BinaryArray)


def test_empty_columns_give_no_keys_and_come_back_empty() -> None:
    for types in ([pa.int64(), pa.uuid()], [pa.string()], [pa.bool_(), pa.binary(), pa.float32()]):
        keys = encoder(*types)
        for column_of in (lambda t: array([], t), lambda t: pa.chunked_array([], t)):
            made = keys.encode_arrays([column_of(key_type) for key_type in types])
            assert len(made) == 0
            assert [column.type for column in keys.decode_arrays(made)] == types


def test_empty_arrays_may_come_without_buffers() -> None:
    bare = pa.Array.from_buffers(pa.int64(), 0, [None, None])
    bare_text = pa.Array.from_buffers(pa.string(), 0, [None, None, pa.py_buffer(b"")])
    made = encoder(pa.int64(), pa.string()).encode_arrays([bare, bare_text])
    assert (len(made), made.type) == (0, pa.binary())


ROWS: list[tuple[object, ...]] = [
    (
        bool(number % 2),
        number - 5,
        Decimal(number - 5) / 4,
        b"%02d" % number,
        UUID(int=number << 100),
        "\0" * (number % 3) + str(number),
        b"\xff\x00" * (number % 2),
        number / 3 - 2,
    )
    for number in range(12)
]
ROW_TYPES: tuple[pa.DataType, ...] = (
    pa.bool_(),
    pa.int64(),
    pa.decimal128(20, 2),
    pa.binary(2),
    pa.uuid(),
    pa.string(),
    pa.binary(),
    pa.float64(),
)


def row_columns() -> list[ArrowArray]:
    columns = zip(*ROWS, strict=True)
    return [array(column, key_type) for column, key_type in zip(columns, ROW_TYPES, strict=True)]


def test_slices_and_chunks_give_the_keys_of_their_rows() -> None:
    keys = encoder(*ROW_TYPES)
    expected = [keys.encode(row) for row in ROWS]
    columns = row_columns()
    assert keys.encode_arrays(columns).to_pylist() == expected
    sliced = [column.slice(3, 6) for column in columns]
    assert keys.encode_arrays(sliced).to_pylist() == expected[3:9]
    chunked = [pa.chunked_array([column.slice(5), column.slice(1, 4)]) for column in columns]
    assert keys.encode_arrays(chunked).to_pylist() == expected[5:] + expected[1:5]


def test_slices_of_fixed_width_columns_give_the_keys_of_their_rows() -> None:
    keys = encoder(*ROW_TYPES[:5])
    sliced = [column.slice(3, 6) for column in row_columns()[:5]]
    made = keys.encode_arrays(sliced)
    assert made.to_pylist() == [keys.encode(row[:5]) for row in ROWS[3:9]]
    assert keys.decode_arrays(made.slice(2, 2)) == [column.slice(2, 2) for column in sliced]


def test_slices_of_key_arrays_are_decoded_whatever_kind_of_binary_they_are() -> None:
    keys = encoder(*ROW_TYPES)
    columns = row_columns()
    made = keys.encode_arrays(columns)
    wanted = [column.slice(4, 5) for column in columns]
    assert keys.decode_arrays(made.slice(4, 5)) == wanted
    assert keys.decode_arrays(made.cast(pa.large_binary()).slice(4, 5)) == wanted
    numbers = encoder(pa.int64())
    fixed = numbers.encode_arrays([columns[1]])
    assert numbers.decode_arrays(fixed.cast(pa.binary()).slice(4, 5)) == [wanted[1]]


def test_keys_beyond_the_reach_of_small_offsets_become_large_binary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two gigabytes of keys do not fit a test, so the reach is shortened instead.
    monkeypatch.setattr(key_vectors, "_OFFSET_MAX", 100)
    keys = encoder(*ROW_TYPES)
    expected = [keys.encode(row) for row in ROWS]
    columns = row_columns()
    made = keys.encode_arrays(columns)
    assert isinstance(made, pa.LargeBinaryArray)
    assert made.to_pylist() == expected
    chunked = [pa.chunked_array([column, column, column]) for column in columns]
    assert keys.encode_arrays(chunked).to_pylist() == expected * 3
    assert keys.decode_arrays(made) == columns
    texts = encoder(pa.string())
    with pytest.raises(LimitExceeded, match="Decode fewer keys"):
        texts.decode_arrays(texts.encode_arrays([array(["a" * 60, "b" * 60], pa.string())]))


@pytest.mark.parametrize(
    ("values", "key_type", "row"),
    [
        ([1, None, None], pa.int64(), 1),
        ([None, "a", "b"], pa.string(), 0),
        ([UUID(int=1), UUID(int=2), None], pa.uuid(), 2),
        ([1.0, 2.0, float("nan")], pa.float64(), 2),
        ([1.0, float("nan"), float("nan")], pa.float32(), 1),
    ],
)
def test_the_first_bad_row_of_a_column_is_named(
    values: list[object], key_type: pa.DataType, row: int
) -> None:
    keys = KeyEncoder([pa.string(), key_type], ["shop", "order"])
    shops = array(["a", "b", "c"], pa.string())
    for column in (array(values, key_type), pa.chunked_array([array(values, key_type)])):
        with pytest.raises(SchemaMismatch, match=f"'order'.* in row {row}") as caught:
            keys.encode_arrays([shops, column])
        assert (caught.value.column, caught.value.row) == ("order", row)


def test_values_that_their_arrow_type_forbids_never_become_keys() -> None:
    text = array([b"ok", b"ok", b"\xed\xa0\x80", b"ok"], pa.binary()).view(pa.string())
    late = np.array([0, 1, 86_400_000_000, -1], "<i8").tobytes()
    huge = np.array([5, 0, 1000, 0, 1, 0], "<i8").tobytes()
    lowest = np.array([5, 0, 0, -(2**63)], "<i8").tobytes()
    for column, row in (
        (text, 2),
        (reinterpreted(late, pa.time64("us"), 4), 2),
        (reinterpreted(huge, pa.decimal128(3, 1), 3), 1),
        (reinterpreted(lowest, pa.decimal128(38, 0), 2), 1),
    ):
        with pytest.raises(SchemaMismatch, match="type forbids") as caught:
            encoder(column.type).encode_arrays([column])
        assert (caught.value.column, caught.value.row) == ("k0", row)


def test_arrays_that_do_not_fit_the_key_are_refused() -> None:
    keys = encoder(pa.int64(), pa.string())
    numbers, texts = array([1, 2], pa.int64()), array(["a", "b"], pa.string())
    with pytest.raises(InvalidArgument, match="Pass 'k0', 'k1', in this order"):
        keys.encode_arrays([numbers])
    with pytest.raises(InvalidArgument, match=r"different lengths: \[1, 2\]"):
        keys.encode_arrays([numbers, texts.slice(1)])
    with pytest.raises(SchemaMismatch, match=r"array of int32.*Cast it to int64") as caught:
        keys.encode_arrays([numbers.cast(pa.int32()), texts])
    assert caught.value.column == "k0"
    with pytest.raises(SchemaMismatch, match="Pass an Arrow array"):
        keys.encode_arrays([numbers, cast("ArrowArray", ["a", "b"])])


DAMAGED: list[tuple[tuple[pa.DataType, ...], str, int]] = [
    ((pa.int64(),), "", 0),
    ((pa.int64(),), "80000000000000", 7),
    ((pa.int64(),), "800000000000000000", 8),
    ((pa.bool_(),), "02", 0),
    ((pa.int32(), pa.bool_()), "80000000ff", 4),
    ((pa.string(),), "", 0),
    ((pa.string(),), "61", 1),
    ((pa.string(),), "6100", 2),
    ((pa.string(),), "6100ff", 3),
    ((pa.string(),), "6100ff00", 4),
    ((pa.string(),), "61000162", 1),
    ((pa.string(),), "6100fe0000", 1),
    ((pa.string(),), "61000000", 3),
    ((pa.string(),), "61000061", 3),
    ((pa.string(),), "ff0000", 0),
    ((pa.string(),), "eda0800000", 0),
    ((pa.int32(), pa.string()), "80000000c30000", 4),
    ((pa.string(), pa.string()), "610000", 3),
    ((pa.string(), pa.int32()), "610000800000", 6),
    ((pa.binary(), pa.bool_()), "00ff000003", 4),
    ((pa.float64(),), "7fffffffffffffff", 0),
    ((pa.float64(),), "fff0000000000001", 0),
    ((pa.float32(),), "007ffffe", 0),
    ((pa.time64("us"),), "800000141dd76000", 0),
    ((pa.time64("us"),), "7fffffffffffffff", 0),
    ((pa.decimal128(3, 1),), "80" + "00" * 13 + "03e8", 0),
    ((pa.decimal128(3, 1),), "00" * 16, 0),
]


@pytest.mark.parametrize(("types", "damaged", "offset"), DAMAGED, ids=numbered(DAMAGED))
def test_damaged_keys_are_reported_with_their_place(
    types: tuple[pa.DataType, ...], damaged: str, offset: int
) -> None:
    keys = encoder(*types)
    key = bytes.fromhex(damaged)
    with pytest.raises(Corruption) as caught:
        keys.decode(key)
    assert caught.value.offset == offset
    with pytest.raises(Corruption, match=r"in row 0$"):
        keys.decode_arrays(array([key], pa.binary()))


def test_the_first_damaged_key_of_many_is_named() -> None:
    texts = encoder(pa.string(), pa.bool_())
    sound = texts.encode(("a", True))
    for damaged in (b"", b"a\0\0", b"a\0\x01\x01", b"\xff\0\0\x01", b"a\0\0\x02", sound + b"\0"):
        with pytest.raises(Corruption, match=r"in row 2$"):
            texts.decode_arrays(array([sound, sound, damaged, sound, damaged], pa.binary()))


def test_a_damaged_key_never_borrows_bytes_of_the_next_one() -> None:
    texts = encoder(pa.string())
    for rows in ([b"a\0", b"\0b\0\0"], [b"a\0", b"\xff\0\0"], [b"a", b"\0\0"]):
        with pytest.raises(Corruption, match="in row 0"):
            texts.decode_arrays(array(rows, pa.binary()))
    numbers = encoder(pa.int32())
    with pytest.raises(Corruption, match="in row 0"):
        numbers.decode_arrays(array([b"\x80\x00", b"\x00\x00\x80\x00\x00\x00"], pa.binary()))


def test_key_arrays_that_are_no_keys_are_refused() -> None:
    keys = encoder(pa.int64())
    with pytest.raises(InvalidArgument, match="not binary"):
        keys.decode_arrays(array([1], pa.int64()))
    with pytest.raises(InvalidArgument, match="Pass one Arrow array"):
        keys.decode_arrays(cast("ArrowArray", [bytes(8)]))
    with pytest.raises(InvalidArgument, match="hold a NULL"):
        keys.decode_arrays(array([bytes(8), None], pa.binary(8)))
    with pytest.raises(Corruption, match="left over, in row 0"):
        keys.decode_arrays(array([bytes(9)], pa.binary(9)))
    offsets = np.array([0, 12, 8, 16], "<i4").tobytes()
    hostile = pa.Array.from_buffers(
        pa.binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(bytes(16))]
    )
    with pytest.raises(Corruption, match="offsets"):
        keys.decode_arrays(hostile)
    with pytest.raises(InvalidArgument, match="Pass bytes"):
        keys.decode(cast("bytes", "key"))


def test_a_prefix_range_holds_all_keys_with_these_leading_values_and_no_others() -> None:
    keys = KeyEncoder([pa.string(), pa.int32(), pa.string()], ["shop", "day", "order"])
    wanted = keys.prefix_range(("north", -1))
    assert wanted.contains(keys.encode(("north", -1, "")))
    assert wanted.contains(keys.encode(("north", -1, "\U0010ffff" * 10)))
    for other in (("north", 0, ""), ("north", -2, "z"), ("northern", -1, "a"), ("nort", -1, "a")):
        assert not wanted.contains(keys.encode(other))


def test_a_prefix_range_of_all_columns_holds_one_key_and_of_none_holds_all() -> None:
    keys = encoder(pa.int32(), pa.bool_())
    only = keys.prefix_range((5, True))
    assert only.contains(keys.encode((5, True)))
    assert not only.contains(keys.encode((5, False)))
    assert not only.contains(keys.encode((6, False)))
    assert keys.prefix_range(()) == KeyRange(b"", None)
    highest = keys.prefix_range((2**31 - 1,))
    assert highest == KeyRange(b"\xff\xff\xff\xff", None)
    with pytest.raises(InvalidArgument, match="3 values for a key of"):
        keys.prefix_range((1, True, 2))
    with pytest.raises(SchemaMismatch, match="'k0'"):
        keys.prefix_range((None,))
    with pytest.raises(InvalidArgument, match="Pass a tuple"):
        keys.prefix_range("a")


def test_a_column_name_too_long_to_read_is_shown_in_short() -> None:
    name = "k" * 2_000_000
    encoder = KeyEncoder([pa.int64()], [name])
    calls: list[Callable[[], object]] = [
        lambda: encoder.encode(["text"]),
        lambda: encoder.encode([1, 2]),
        lambda: encoder.encode_arrays([pa.array([1.5])]),
        lambda: encoder.decode(b"1"),
        lambda: KeyEncoder([pa.list_(pa.int64())], [name]),
    ]
    for call in calls:
        with pytest.raises(NeveError) as caught:
            call()
        assert len(str(caught.value)) < 600
