"""Partition transforms: Iceberg's published values, the edges, and what is refused."""

import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest

from neve.errors import InvalidArgument, SchemaMismatch
from neve.model.plain_values import plain_of, to_plain
from neve.model.transforms import (
    Bucket,
    Identity,
    TimePart,
    TimeUnit,
    Transform,
    Truncate,
    hash_value,
    parse_transform,
)

YEAR, MONTH, DAY, HOUR = (TimePart(unit) for unit in TimeUnit)
TIMESTAMP, NANOS = pa.timestamp("us"), pa.timestamp("ns")


def applied(transform: Transform, value: object, source: pa.DataType) -> object:
    """Transform one value both ways, and give the result if they agree."""
    single = transform.apply_one(value, source)
    plain = to_plain(value, source, column="c")
    results = transform.apply(pa.array([None, plain, None], source).slice(1))
    assert [plain_of(result) for result in results] == [single, None]
    return single


@pytest.mark.parametrize("count", [0, -1, 1 << 31, True, "16", 2.0])
def test_a_number_of_buckets_or_width_outside_1_to_2147483647_is_refused(count: object) -> None:
    with pytest.raises(InvalidArgument, match="1 to 2147483647"):
        Bucket(count)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="1 to 2147483647"):
        Truncate(count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("transform", "source", "takes"),
    [
        (Bucket(4), pa.float64(), "It takes identity"),
        (Bucket(4), pa.float32(), "It takes identity"),
        (Bucket(4), pa.bool_(), "It takes identity"),
        (Truncate(4), pa.float64(), "It takes identity"),
        (Truncate(4), pa.uuid(), "It takes identity, bucket(n, …)"),
        (Truncate(4), pa.binary(4), "It takes identity, bucket(n, …)"),
        (Truncate(4), pa.date32(), "It takes identity, year, month, day, bucket(n, …)"),
        (HOUR, pa.date32(), "It takes identity, year, month, day, bucket(n, …)"),
        (HOUR, pa.time64("us"), "It takes identity, bucket(n, …)"),
        (DAY, pa.int64(), "It takes identity, bucket(n, …), truncate(w, …)"),
        (DAY, pa.string(), "It takes identity, bucket(n, …), truncate(w, …)"),
        (Identity(), pa.list_(pa.int32()), "a primitive type"),
        (Identity(), pa.struct([("a", pa.int32())]), "a primitive type"),
        (Bucket(4), pa.map_(pa.string(), pa.int32()), "a primitive type"),
    ],
    ids=str,
)
def test_a_type_the_transform_cannot_take_is_refused_with_what_can(
    transform: Transform, source: pa.DataType, takes: str
) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(takes)) as caught:
        transform.apply(pa.array([None], source), column="price")
    assert "'price'" in caught.value.message
    with pytest.raises(InvalidArgument):
        transform.apply_one(None, source, column="price")


@pytest.mark.parametrize(
    ("value", "source", "expected"),
    [
        # Appendix B of the Iceberg specification.
        (34, pa.int32(), 2017239379),
        (34, pa.int64(), 2017239379),
        (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
        (Decimal("14.20"), pa.decimal128(38, 2), -500754589),
        (date(2017, 11, 16), pa.date32(), -653330422),
        (time(22, 31, 8), pa.time64("us"), -662762989),
        ("2017-11-16T22:31:08", TIMESTAMP, -2047944441),
        ("2017-11-16T22:31:08.000001", TIMESTAMP, -1207196810),
        (datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), pa.timestamp("us", "UTC"), -2047944441),
        ("2017-11-16T22:31:08", NANOS, -2047944441),
        ("2017-11-16T22:31:08.000001", NANOS, -1207196810),
        (1510871468000001001, NANOS, -1207196810),
        ("iceberg", pa.string(), 1210000089),
        (UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), pa.uuid(), 1488055340),
        (b"\x00\x01\x02\x03", pa.binary(4), -188683207),
        (b"\x00\x01\x02\x03", pa.binary(), -188683207),
    ],
    ids=str,
)
def test_the_specifications_hashes_fall_into_their_buckets(
    value: object, source: pa.DataType, expected: int
) -> None:
    assert hash_value(to_plain(value, source, column="c"), source) == expected
    for count in (1, 16, 100, (1 << 31) - 1):
        assert applied(Bucket(count), value, source) == (expected & 0x7FFFFFFF) % count


def test_nanoseconds_are_rounded_down_to_microseconds_before_hashing() -> None:
    for nanos in (-1, -999, -1000, -1001, (1 << 63) - 1, -(1 << 63)):
        bucket = applied(Bucket(1 << 20), nanos, NANOS)
        assert bucket == applied(Bucket(1 << 20), nanos // 1000, TIMESTAMP)


def test_a_decimal_keeps_the_byte_that_carries_its_sign() -> None:
    # 128 needs a leading zero byte and -129 a leading 0xff; 127 and -128 need none.
    source = pa.decimal128(9, 2)
    lengths = {"1.27": b"\x7f", "1.28": b"\x00\x80", "-1.28": b"\x80", "-1.29": b"\xff\x7f"}

    for text, hashed in lengths.items():
        bucket = applied(Bucket(1 << 20), Decimal(text), source)
        assert bucket == applied(Bucket(1 << 20), hashed, pa.binary())


@pytest.mark.parametrize(
    ("moment", "year", "month", "day", "hour"),
    [
        ("1970-01-01T00:00:00", 0, 0, 0, 0),
        ("1969-12-31T23:59:59.999999", -1, -1, -1, -1),
        ("1969-12-31T23:00:00", -1, -1, -1, -1),
        ("1969-12-31T22:59:59.999999", -1, -1, -1, -2),
        ("1969-01-01T00:00:00", -1, -12, -365, -8760),
        ("1968-12-31T23:59:59.999999", -2, -13, -366, -8761),
        ("2017-12-01T10:12:55.038194", 47, 575, 17501, 420034),
        ("0001-01-01T00:00:00", -1969, -23628, -719162, -17259888),
        ("9999-12-31T23:59:59.999999", 8029, 96359, 2932896, 70389527),
    ],
)
def test_times_are_rounded_down_from_1970(
    moment: str, year: int, month: int, day: int, hour: int
) -> None:
    parts = [(YEAR, year), (MONTH, month), (DAY, day), (HOUR, hour)]
    for transform, expected in parts:
        assert applied(transform, moment, TIMESTAMP) == expected
        assert applied(transform, f"{moment}+00:00", pa.timestamp("us", "UTC")) == expected
    for transform, expected in parts[:3]:
        assert applied(transform, moment[:10], pa.date32()) == expected


def test_a_nanosecond_before_1970_is_in_the_day_before() -> None:
    assert [applied(part, -1, NANOS) for part in (YEAR, MONTH, DAY, HOUR)] == [-1] * 4
    assert applied(HOUR, 3_600_000_000_000, NANOS) == 1


def test_times_outside_pythons_calendar_are_counted_too() -> None:
    assert applied(YEAR, (1 << 31) - 1, pa.date32()) == 5879610
    assert applied(DAY, -(1 << 31), pa.date32()) == -(1 << 31)
    assert applied(MONTH, -(1 << 63), TIMESTAMP) == -3507325


@pytest.mark.parametrize("value", [(1 << 63) - 1, -(1 << 63)])
def test_an_hour_that_needs_more_than_32_bits_is_refused(value: int) -> None:
    with pytest.raises(SchemaMismatch, match="too far from 1970") as caught:
        HOUR.apply(pa.array([0, None, value], TIMESTAMP), column="ts")
    assert (caught.value.column, caught.value.row) == ("ts", 2)
    with pytest.raises(SchemaMismatch, match="too far from 1970"):
        HOUR.apply_one(value, TIMESTAMP, column="ts")


@pytest.mark.parametrize(
    ("width", "value", "source", "expected"),
    [
        (10, 1, pa.int32(), 0),
        (10, -1, pa.int32(), -10),
        (10, -10, pa.int64(), -10),
        (10, -11, pa.int64(), -20),
        (1, -(1 << 63), pa.int64(), -(1 << 63)),
        (2, -(1 << 31), pa.int32(), -(1 << 31)),
        ((1 << 31) - 1, (1 << 63) - 1, pa.int64(), 9223372036854775806),
        (50, Decimal("10.65"), pa.decimal128(9, 2), Decimal("10.50")),
        (50, Decimal("-0.05"), pa.decimal128(9, 2), Decimal("-0.50")),
        (10, Decimal("0.00"), pa.decimal128(4, 2), Decimal("0.00")),
        (7, Decimal(10**38 - 1), pa.decimal128(38, 0), Decimal(10**38 - 1 - (10**38 - 1) % 7)),
        (10, Decimal(1 << 64), pa.decimal128(38, 0), Decimal((1 << 64) // 10 * 10)),
        (10, Decimal(-(1 << 64)), pa.decimal128(38, 0), Decimal(-(1 << 64) // 10 * 10)),
        (3, "iceberg", pa.string(), "ice"),
        (3, "ic", pa.string(), "ic"),
        (2, "é😀x", pa.string(), "é😀"),
        (1, "😀x", pa.string(), "😀"),
        (4, "", pa.string(), ""),
        (2, b"\xf0\x9f\x98", pa.binary(), b"\xf0\x9f"),
        (9, b"", pa.binary(), b""),
    ],
)
def test_values_are_cut_down_to_the_width(
    width: int, value: object, source: pa.DataType, expected: object
) -> None:
    assert applied(Truncate(width), value, source) == expected


@pytest.mark.parametrize(
    ("value", "source"),
    [
        (-(1 << 31), pa.int32()),
        (-(1 << 63), pa.int64()),
        (Decimal("-99.99"), pa.decimal128(4, 2)),
        (Decimal(1 - 10**38), pa.decimal128(38, 0)),
    ],
    ids=str,
)
def test_a_value_that_would_be_cut_below_its_type_is_refused(
    value: object, source: pa.DataType
) -> None:
    # Wrapped around it would be the greatest partition value, where no reader looks for it.
    with pytest.raises(SchemaMismatch, match="lowest multiple of 1000003") as caught:
        Truncate(1000003).apply(pa.array([None, value], source), column="n")
    assert (caught.value.column, caught.value.row) == ("n", 1)
    with pytest.raises(SchemaMismatch, match="lowest multiple of 1000003"):
        Truncate(1000003).apply_one(value, source, column="n")


@pytest.mark.parametrize(
    ("transform", "source", "result"),
    [
        (Identity(), pa.float64(), pa.float64()),
        (Identity(), pa.uuid(), pa.uuid()),
        (YEAR, pa.date32(), pa.int32()),
        (MONTH, TIMESTAMP, pa.int32()),
        (DAY, TIMESTAMP, pa.date32()),
        (HOUR, NANOS, pa.int32()),
        (Bucket(2), pa.string(), pa.int32()),
        (Truncate(2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
    ],
    ids=str,
)
def test_an_empty_column_gives_an_empty_column_of_the_result_type(
    transform: Transform, source: pa.DataType, result: pa.DataType
) -> None:
    empty = transform.apply(pa.array([], source))
    nulls = transform.apply(pa.array([None, None], source))

    assert (len(empty), empty.type) == (0, result)
    assert nulls.equals(pa.array([None, None], result))
    assert transform.result_type(source) == result


def test_bytes_behind_a_null_are_never_looked_at() -> None:
    # The low end of int64 lies under the NULL; truncating it would be refused.
    numbers = pa.array([-(1 << 63), 12], pa.int64())
    hidden = pa.Array.from_buffers(
        pa.int64(), 2, [pa.py_buffer(b"\x02"), numbers.buffers()[1]], null_count=1
    )

    assert Truncate(10).apply(hidden).to_pylist() == [None, 10]


def test_all_but_bucket_keep_the_order_of_values() -> None:
    keeping = [Identity(), YEAR, MONTH, DAY, HOUR, Truncate(3)]

    assert all(transform.preserves_order for transform in keeping)
    assert not Bucket(3).preserves_order


@pytest.mark.parametrize(
    "text", ["identity", "year", "month", "day", "hour", "bucket[16]", "truncate[4]"]
)
def test_icebergs_names_are_read_and_written(text: str) -> None:
    assert str(parse_transform(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "void", "days", "bucket", "bucket[]", "bucket[-1]", "bucket(16)", "bucket[16] ",
     "truncate[1e3]", "BUCKET[16]", f"bucket[{'9' * 5000}]"],
)  # fmt: skip
def test_an_unknown_name_of_a_transform_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="unknown partition transform") as caught:
        parse_transform(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("text", ["bucket[0]", "truncate[0]", "bucket[2147483648]"])
def test_a_parameter_out_of_range_is_refused_when_read(text: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 2147483647"):
        parse_transform(text)
