"""A key index agrees with a sorted list of keys, whatever the key is made of."""

from bisect import bisect_left, bisect_right
from typing import cast

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.sstable.key_index import KeyIndex

COLUMNS: dict[pa.DataType, st.SearchStrategy[object]] = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(-3, 3),
    pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 3),
    pa.float64(): st.floats(allow_nan=False),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.uuid(): st.uuids(),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=40),
}


@st.composite
def key_sets(draw: st.DrawFn, *, exact: bool = False) -> tuple[KeyHashes, list[bytes]]:
    """Draw a kind of key, and keys of it in order."""
    columns = st.lists(st.sampled_from([*COLUMNS]), min_size=1, max_size=2)
    types = draw(columns.filter(lambda each: not exact or KeyHashes(encoder_of(each)).is_exact))
    encoder = encoder_of(types)
    rows = draw(st.lists(st.tuples(*[COLUMNS[each] for each in types]), min_size=1, max_size=60))
    return KeyHashes(encoder), sorted({encoder.encode(row) for row in rows})


def encoder_of(types: list[pa.DataType]) -> KeyEncoder:
    return KeyEncoder(types, [f"k{at}" for at in range(len(types))])


def array_of(hashes: KeyHashes, keys: list[bytes]) -> KeyArray:
    array_type = pa.binary(hashes.key_width) if hashes.is_exact else pa.binary()
    return cast("KeyArray", pa.array(keys, array_type))


@given(key_sets(), st.data())
def test_present_keys_are_found_and_absent_ones_are_not(
    drawn: tuple[KeyHashes, list[bytes]], data: st.DataObject
) -> None:
    hashes, everything = drawn
    is_present = data.draw(st.lists(st.booleans(), min_size=60, max_size=60))
    keys = [key for key, present in zip(everything, is_present, strict=False) if present]
    index = KeyIndex.build(array_of(hashes, keys), hashes)
    asked = data.draw(st.permutations(everything))

    places, positions = index.find_many(hashes.of(array_of(hashes, asked)))

    assert [asked[place] for place in places] == [keys[position] for position in positions]
    assert places.tolist() == [place for place, key in enumerate(asked) if key in keys]
    for key in everything:
        wanted = [keys.index(key)] if key in keys else []
        assert [*index.candidates(hashes.one(key))] == wanted
        if hashes.is_exact:
            assert index.find_one(hashes.one(key)) == (wanted or [-1])[0]
            assert index.exact_finder()(key, hashes.one(key)) == (wanted or [-1])[0]


@given(key_sets(exact=True), st.binary(max_size=10))
def test_the_bounds_of_a_range_are_those_of_the_sorted_keys(
    drawn: tuple[KeyHashes, list[bytes]], other: bytes
) -> None:
    hashes, keys = drawn
    index = KeyIndex.build(array_of(hashes, keys), hashes)

    for key in (*keys, *(key[:-1] for key in keys), *(key + b"\0" for key in keys), other):
        assert index.lower_bound(hashes.first(key)) == bisect_left(keys, key)
        assert index.lower_bound(hashes.first(key, after=True)) == bisect_right(keys, key)
    for key in keys:
        assert index.lower_bound(hashes.one(key)) == bisect_left(keys, key)
        assert index.upper_bound(hashes.one(key)) == bisect_right(keys, key)


@given(st.lists(st.integers(0, 12), max_size=40), st.lists(st.integers(0, 13), max_size=20))
def test_shared_words_give_every_candidate(stored: list[int], asked: list[int]) -> None:
    order = sorted(range(len(stored)), key=stored.__getitem__)
    index = KeyIndex.checked(
        np.array([stored[at] for at in order], np.uint64), np.array(order, np.uint32)
    )

    places, positions = index.find_many(np.array(asked, np.uint64))

    assert [*zip(places.tolist(), positions.tolist(), strict=True)] == [
        (place, at)
        for place, key_hash in enumerate(asked)
        for at, each in enumerate(stored)
        if each == key_hash
    ]
    for key_hash in range(14):
        wanted = [at for at, each in enumerate(stored) if each == key_hash]
        assert [*index.candidates(key_hash)] == wanted
