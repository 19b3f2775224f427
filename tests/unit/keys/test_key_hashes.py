"""Hashes of keys: fixed for all time, and the same for one key as for a column of them."""

from random import Random
from typing import cast

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes

LONG = KeyHashes(KeyEncoder([pa.int64()], ["id"]))
SHORT = KeyHashes(KeyEncoder([pa.bool_(), pa.binary(2)], ["a", "b"]))
TEXT = KeyHashes(KeyEncoder([pa.string()], ["name"]))


def key_array(keys: list[bytes], array_type: pa.DataType | None = None) -> KeyArray:
    return cast("KeyArray", pa.array(keys, pa.binary() if array_type is None else array_type))


@pytest.mark.parametrize(
    ("types", "width"),
    [
        ([pa.int64()], 8),
        ([pa.int32(), pa.int32()], 8),
        ([pa.int32()], 4),
        ([pa.bool_()], 1),
        ([pa.timestamp("us", tz="UTC")], 8),
        ([pa.binary(7)], 7),
        ([pa.int64(), pa.bool_()], 0),
        ([pa.uuid()], 0),
        ([pa.decimal128(9, 2)], 0),
        ([pa.string()], 0),
        ([pa.int32(), pa.binary()], 0),
    ],
    ids=lambda each: "+".join(map(str, each)) if isinstance(each, list) else str(each),
)
def test_words_are_exact_for_keys_of_at_most_eight_bytes(
    types: list[pa.DataType], width: int
) -> None:
    hashes = KeyHashes(KeyEncoder(types, [f"k{at}" for at in range(len(types))]))

    assert hashes.is_exact == (width > 0)
    assert hashes.key_width == width


def test_a_key_that_fits_is_its_own_word() -> None:
    keys = KeyEncoder([pa.int64()], ["id"]).encode_arrays([pa.array([-(1 << 63), -1, 0, 5])])

    assert LONG.of(keys).tolist() == [0, (1 << 63) - 1, 1 << 63, (1 << 63) + 5]
    assert LONG.one(b"\x80" + bytes(6) + b"\x05") == (1 << 63) + 5


@pytest.mark.parametrize(
    ("key", "key_hash"),
    [
        (b"", 0),
        (b"a", 0x85555565F6597889),
        (b"user-000000001\0\0", 0xBD092CF468B2362D),
        (bytes(range(40)), 0xC3A054D8418C8064),
    ],
    ids=["empty", "a", "sixteen", "forty"],
)
def test_the_word_of_a_long_key_never_changes(key: bytes, key_hash: int) -> None:
    assert TEXT.one(key) == key_hash
    assert TEXT.of(key_array([key])).tolist() == [key_hash]


@pytest.mark.parametrize("array_type", [pa.binary(), pa.large_binary()], ids=str)
def test_a_column_of_keys_of_any_length_has_the_words_of_its_keys(
    array_type: pa.DataType,
) -> None:
    random = Random(1)
    keys = [random.randbytes(random.randrange(70)) for _ in range(20_000)]
    keys += [random.randbytes(length) for length in (65_535, 0, 4_096)]
    array = key_array(keys, array_type)
    wanted = [TEXT.one(key) for key in keys]

    assert TEXT.of(array).tolist() == wanted
    assert TEXT.of(array.slice(3, 17_000)).tolist() == wanted[3:17_003]
    assert TEXT.of(array.slice(len(keys))).tolist() == []


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_column_of_short_keys_has_the_words_of_its_keys(width: int) -> None:
    hashes = KeyHashes(KeyEncoder([pa.binary(width)], ["id"]))
    random = Random(width)
    keys = [random.randbytes(width) for _ in range(100)]
    array = key_array(keys, pa.binary(width))

    assert hashes.of(array).tolist() == [hashes.one(key) for key in keys]
    assert hashes.of(array.slice(3, 5)).tolist() == [hashes.one(key) for key in keys[3:8]]
    assert hashes.of(array.slice(100)).dtype == np.uint64
    # Keys of remembered deletes have a type for any number of bytes.
    for kind in (pa.large_binary(), pa.binary()):
        assert hashes.of(key_array(keys, kind)).tolist() == hashes.of(array).tolist()


@pytest.mark.parametrize("width", [9, 12, 15, 16, 17, 24, 31, 32, 33, 48])
def test_a_column_of_long_fixed_keys_has_the_words_of_its_keys(width: int) -> None:
    hashes = KeyHashes(KeyEncoder([pa.binary(width)], ["id"]))
    random = Random(width)
    keys = [random.randbytes(width) for _ in range(100)]
    array = key_array(keys, pa.binary(width))

    assert hashes.of(array).tolist() == [hashes.one(key) for key in keys]
    assert hashes.of(array.slice(3, 5)).tolist() == [hashes.one(key) for key in keys[3:8]]


def test_no_keys_have_no_words() -> None:
    assert TEXT.of(key_array([])).tolist() == []
    assert TEXT.of(key_array([b""])).tolist() == [TEXT.one(b"")]
    assert LONG.of(key_array([], pa.binary(8))).tolist() == []


def test_the_hash_is_the_one_that_others_know() -> None:
    assert TEXT.one(b"neve") == mmh3.hash64(b"neve", seed=0)[0] % (1 << 64)


@pytest.mark.parametrize(
    ("key", "first", "after"),
    [
        (b"", 0x000000, 0x000000),
        (b"\x01", 0x010000, 0x010000),
        (b"\x01\xff\x00", 0x01FF00, 0x01FF01),
        (b"\x01\xff\x00\x00", 0x01FF01, 0x01FF01),
        (b"\xff\xff\xff", 0xFFFFFF, 0x1000000),
        (b"\xff\xff\xff\xff", 0x1000000, 0x1000000),
    ],
    ids=["nothing", "prefix", "key", "longer", "highest", "above all"],
)
def test_the_bound_of_a_range_has_the_first_in_it(key: bytes, first: int, after: int) -> None:
    assert SHORT.first(key) == first
    assert SHORT.first(key, after=True) == after
