"""Keys sort as their values do, come back whole, and are the same bytes one by one or by column."""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Protocol, Self, cast

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neve.errors import Corruption, SchemaMismatch
from neve.keys.columns import ArrowArray
from neve.keys.encoding import KeyEncoder
from tests.conftest import Record
from tests.gates import Gate


class Ordered(Protocol):
    def __lt__(self, other: Self, /) -> bool: ...


# Bytes and characters around which escaping and UTF-8 change: NUL, its follower FF, the ends of
# one, two, three and four byte sequences, and the gap of the surrogates.
AWKWARD_BYTES = st.lists(st.sampled_from([0x00, 0x01, 0x61, 0xFE, 0xFF]), max_size=6).map(bytes)
AWKWARD_TEXT = st.text(
    alphabet="\0\x01a\x7f\x80\xff\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff", max_size=6
)
ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-11))])
LOWEST = datetime(1, 1, 2)  # noqa: DTZ001
HIGHEST = datetime(9999, 12, 30)  # noqa: DTZ001


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    unscaled = st.one_of(st.integers(-top, top), st.integers(-3, 3), st.sampled_from([-top, top]))
    return unscaled.map(lambda number: Decimal(number) * Decimal(10) ** -scale)


VALUES: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(5, 2): decimals(5, 2),
    pa.decimal128(20, 0): decimals(20, 0),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", tz="UTC"): st.datetimes(LOWEST, HIGHEST, timezones=ZONES),
    pa.timestamp("ns"): st.integers(-(2**63), 2**63 - 1),
    pa.timestamp("ns", tz="UTC"): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.one_of(st.text(), AWKWARD_TEXT),
    pa.binary(): st.one_of(st.binary(), AWKWARD_BYTES),
    pa.binary(3): st.lists(st.sampled_from([0, 1, 127, 128, 255]), min_size=3, max_size=3).map(
        bytes
    ),
    pa.uuid(): st.uuids(),
}
TYPES = list(VALUES)


@dataclass(frozen=True, slots=True)
class Rows:
    """Key columns and some rows that fit them."""

    types: tuple[pa.DataType, ...]
    rows: list[tuple[Ordered, ...]]

    @property
    def keys(self) -> KeyEncoder:
        return encoder(self.types)

    @property
    def columns(self) -> list[ArrowArray]:
        columns = zip(*self.rows, strict=True)
        return [pa.array(column, kind) for column, kind in zip(columns, self.types, strict=True)]


def encoder(types: Sequence[pa.DataType]) -> KeyEncoder:
    return KeyEncoder(types, [f"k{number}" for number in range(len(types))])


@st.composite
def rows_of(draw: st.DrawFn, types: st.SearchStrategy[list[pa.DataType]]) -> Rows:
    chosen = tuple(draw(types))
    # Few different values per column, so that rows often agree in their leading columns.
    pools = [draw(st.lists(VALUES[kind], min_size=1, max_size=4)) for kind in chosen]
    row = st.tuples(*[st.sampled_from(pool) for pool in pools])
    return Rows(
        chosen, cast("list[tuple[Ordered, ...]]", draw(st.lists(row, min_size=1, max_size=12)))
    )


def composites(max_columns: int = 4) -> st.SearchStrategy[Rows]:
    return rows_of(st.lists(st.sampled_from(TYPES), min_size=1, max_size=max_columns))


def assert_order_kept(rows: Rows) -> None:
    keys = rows.keys
    encoded = [keys.encode(row) for row in rows.rows]
    # At most 12 rows, so 144 pairs.
    for left, left_key in zip(rows.rows, encoded, strict=True):
        for right, right_key in zip(rows.rows, encoded, strict=True):
            assert (left_key < right_key) == (left < right)
            assert (left_key == right_key) == (left == right)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(data=st.data())
def test_byte_order_is_value_order_for_every_type(kind: pa.DataType, data: st.DataObject) -> None:
    assert_order_kept(data.draw(rows_of(st.just([kind]))))


@given(composites())
@example(Rows((pa.string(), pa.string()), [("a", "b"), ("a\0", "b"), ("", "ab"), ("a", "\0b")]))
@example(Rows((pa.binary(), pa.int32()), [(b"", -1), (b"\0", -(2**31)), (b"\0\xff", 0), (b"", 0)]))
@example(Rows((pa.float64(), pa.int32()), [(-0.0, 1), (0.0, 0), (-5e-324, 9), (5e-324, -9)]))
def test_byte_order_is_value_order_for_composite_keys(rows: Rows) -> None:
    assert_order_kept(rows)


@given(composites())
def test_columns_and_single_rows_give_the_same_bytes_and_come_back_equal(rows: Rows) -> None:
    keys, columns = rows.keys, rows.columns
    one_by_one = [keys.encode(row) for row in rows.rows]
    together = keys.encode_arrays(columns)
    assert together.to_pylist() == one_by_one
    assert [keys.decode(key) for key in one_by_one] == rows.rows
    assert (keys.width is not None) == pa.types.is_fixed_size_binary(together.type)
    decoded = keys.decode_arrays(together)
    assert [column.type for column in decoded] == list(rows.types)
    # Not the columns that went in: -0.0 comes back as 0.0.
    assert keys.encode_arrays(decoded) == together
    for column, original in zip(decoded, columns, strict=True):
        if not pa.types.is_floating(original.type):
            assert column.equals(original)


@given(composites(), st.data())
def test_slices_and_chunks_give_the_same_bytes_as_whole_columns(
    rows: Rows, data: st.DataObject
) -> None:
    keys, columns, count = rows.keys, rows.columns, len(rows.rows)
    whole = keys.encode_arrays(columns)
    start = data.draw(st.integers(0, count))
    length = data.draw(st.integers(0, count - start))
    part = keys.encode_arrays([column.slice(start, length) for column in columns])
    assert part == whole.slice(start, length)
    chunked = [pa.chunked_array([column[:start], column[start:]]) for column in columns]
    assert keys.encode_arrays(chunked) == whole
    sliced_back = keys.decode_arrays(whole.slice(start, length))
    assert keys.encode_arrays(sliced_back) == part


@given(composites(), st.binary(max_size=12), st.binary(max_size=12))
def test_what_follows_a_key_never_changes_the_order_of_different_keys(
    rows: Rows, left_tail: bytes, right_tail: bytes
) -> None:
    keys = rows.keys
    encoded = sorted({keys.encode(row) for row in rows.rows})
    for left, right in pairwise(encoded):
        assert left + left_tail < right + right_tail


@given(left_tail=st.binary(max_size=12), right_tail=st.binary(max_size=12))
def test_a_prefix_of_a_value_sorts_first_whatever_follows_it(
    left_tail: bytes, right_tail: bytes
) -> None:
    keys = encoder([pa.binary()])
    values = [b"", b"\0", b"\0\0", b"\0\x01", b"\0\xff", b"\x01", b"\xff"]
    assert values == sorted(values)
    for left, right in pairwise(values):
        assert keys.encode((left,)) + left_tail < keys.encode((right,)) + right_tail


@given(composites(), st.data())
def test_a_prefix_range_holds_exactly_the_rows_with_that_prefix(
    rows: Rows, data: st.DataObject
) -> None:
    keys = rows.keys
    width = data.draw(st.integers(0, len(rows.types)))
    prefix = data.draw(st.sampled_from(rows.rows))[:width]
    wanted = keys.prefix_range(prefix)
    for row in rows.rows:
        assert wanted.contains(keys.encode(row)) == (row[:width] == prefix)


NANS = st.integers(1, 2**51).flatmap(
    lambda payload: st.sampled_from([0x7FF8 << 48, 0x7FF0 << 48, 0xFFF8 << 48]).map(
        lambda head: cast("float", struct.unpack("<d", struct.pack("<Q", head | payload))[0])
    )
)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@given(numbers=st.lists(st.floats(width=32, allow_nan=False)), nans=st.lists(NANS, min_size=1))
def test_no_kind_of_nan_ever_becomes_a_key(
    kind: pa.DataType, numbers: list[float], nans: list[float]
) -> None:
    keys = encoder([kind])
    with pytest.raises(SchemaMismatch, match="is NaN"):
        keys.encode((nans[0],))
    with pytest.raises(SchemaMismatch, match="is NaN") as caught:
        keys.encode_arrays([pa.array(numbers + nans + numbers, kind)])
    assert (caught.value.column, caught.value.row) == ("k0", len(numbers))


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_moments_that_python_cannot_hold_keep_their_order_and_bytes(
    days: int, microseconds: int
) -> None:
    epochs: list[tuple[pa.DataType, int, object]] = [
        (pa.date32(), days, date(1970, 1, 1)),
        (pa.timestamp("us"), microseconds, datetime(1970, 1, 1)),  # noqa: DTZ001
    ]
    for kind, number, epoch in epochs:
        keys = encoder([kind])
        storage = pa.int32() if kind == pa.date32() else pa.int64()
        column = pa.array([number], storage).view(kind)
        key = cast("bytes", keys.encode_arrays([column]).to_pylist()[0])
        assert keys.encode(keys.decode(key)) == key
        assert keys.decode_arrays(pa.array([key], pa.binary())) == [column]
        assert (key < keys.encode((epoch,))) == (number < 0)


# Each with one sound key to start from.
FUZZED: list[tuple[list[pa.DataType], tuple[object, ...]]] = [
    ([pa.int64()], (-1,)),
    ([pa.string()], ("a\0é",)),
    ([pa.bool_(), pa.binary(), pa.float32()], (True, b"\0\xff", -1.5)),
    ([pa.string(), pa.int32(), pa.string()], ("", 0, "\U0010ffff")),
    ([pa.decimal128(5, 2), pa.float64()], (Decimal("-999.99"), 5e-324)),
    ([pa.date32(), pa.binary(2), pa.binary()], (date(9999, 12, 31), b"\0\0", b"")),
    (
        [pa.time64("us"), pa.timestamp("us", tz="UTC")],
        (time(23, 59), datetime.max.replace(tzinfo=UTC)),
    ),
]
CORRUPT_CHECKED_TOGETHER = 10


def mangled(key: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(key) + 1)
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(24))
        case 1:
            return key[:at]
        case 2:
            return key[:at] + rng.choice([b"\0", b"\xff", b"\0\0", b"\0\xff"]) + key[at:]
        case 3:
            return key[:at] + rng.randbytes(1) + key[at + 1 :]
        case _:
            return key


def is_key(keys: KeyEncoder, candidate: bytes) -> bool:
    try:
        values = keys.decode(candidate)
    except Corruption:
        return False
    assert keys.encode(values) == candidate
    return True


def are_keys(keys: KeyEncoder, candidates: list[bytes]) -> bool:
    try:
        columns = keys.decode_arrays(pa.array(candidates, pa.binary()))
    except Corruption:
        return False
    assert keys.encode_arrays(columns).to_pylist() == candidates
    return True


def test_any_bytes_are_either_the_key_that_encoding_makes_or_corruption(scoreboard: Record) -> None:
    gate = Gate("R19 key codec: untyped errors, second spellings", aim=200_000, full=10_000_000)
    for seed in gate.seeds():
        rng = random.Random(seed)
        types, values = FUZZED[seed % len(FUZZED)]
        keys = encoder(types)
        start = keys.encode(values)
        corrupt: list[bytes] = []
        sound: list[bytes] = []
        for _ in range(500):
            candidate = mangled(start, rng)
            (sound if is_key(keys, candidate) else corrupt).append(candidate)
        gate.cases += 500
        gate.violations += not are_keys(keys, sound)
        for candidate in corrupt[:CORRUPT_CHECKED_TOGETHER]:
            gate.violations += are_keys(keys, [*sound[:3], candidate, *sound[:3]])
    scoreboard(gate.line())
    assert gate.violations == 0
