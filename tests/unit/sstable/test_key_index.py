"""Keys of one file, found by their hashes."""

from bisect import bisect_left, bisect_right
from random import Random
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import Hashes, KeyHashes
from neve.sstable.key_index import KeyIndex, StoredPositions

LONGS = KeyEncoder([pa.int64()], ["id"])
LONG_HASHES = KeyHashes(LONGS)
TEXTS = KeyEncoder([pa.string()], ["name"])
TEXT_HASHES = KeyHashes(TEXTS)

# Around the stretches of 256 hashes that a search is made of.
SIZES = [1, 2, 255, 256, 257, 511, 512, 513, 3_000]


def exact_index(size: int) -> KeyIndex:
    """Index the keys 0, 2, 4, …."""
    keys = LONGS.encode_arrays([pa.array(range(0, 2 * size, 2), pa.int64())])
    return KeyIndex.build(keys, LONG_HASHES)


def long_hash(number: int) -> int:
    return LONG_HASHES.one(LONGS.encode((number,)))


def hashed_index(names: list[str]) -> KeyIndex:
    return KeyIndex.build(TEXTS.encode_arrays([pa.array(names)]), TEXT_HASHES)


def text_hash(name: str) -> int:
    return TEXT_HASHES.one(TEXTS.encode((name,)))


def hashes_of(*numbers: int) -> Hashes:
    return np.array(numbers, np.uint64)


def positions_of(*numbers: int) -> StoredPositions:
    return np.array(numbers, np.uint32)


@pytest.mark.parametrize("size", SIZES)
def test_every_key_is_found_where_it_is_and_no_other(size: int) -> None:
    index = exact_index(size)

    assert index.is_exact
    assert index.row_count == size
    assert index.nbytes == 8 * size
    assert [index.find_one(long_hash(2 * at)) for at in range(size)] == [*range(size)]
    assert {index.find_one(long_hash(2 * at - 1)) for at in range(size + 1)} == {-1}
    find = index.exact_finder()
    assert [find(b"", long_hash(2 * at)) for at in range(size)] == [*range(size)]
    assert {find(b"", long_hash(2 * at - 1)) for at in range(size + 1)} == {-1}
    assert [*index.candidates(long_hash(2 * size - 2))] == [size - 1]
    assert [*index.candidates(long_hash(2 * size - 1))] == []


@pytest.mark.parametrize("size", SIZES)
def test_the_bounds_of_a_range_are_positions(size: int) -> None:
    index = exact_index(size)
    numbers = [*range(0, 2 * size, 2)]

    for number in (-1, 0, 1, size - 1, size, 2 * size - 3, 2 * size - 2, 2 * size - 1, 2 * size):
        assert index.lower_bound(long_hash(number)) == bisect_left(numbers, number)
        assert index.upper_bound(long_hash(number)) == bisect_right(numbers, number)
    assert index.lower_bound(1 << 64) == size
    assert index.upper_bound((1 << 64) - 1) == size


@pytest.mark.parametrize("size", SIZES)
def test_hashed_keys_are_found_at_their_positions(size: int) -> None:
    names = sorted(f"name {at}" for at in range(size))
    index = hashed_index(names)

    assert not index.is_exact
    assert index.row_count == size
    assert index.nbytes == 12 * size
    assert [index.candidates(text_hash(name)) for name in names] == [[at] for at in range(size)]
    assert not any(index.candidates(text_hash(f"other {at}")) for at in range(size))


@pytest.mark.parametrize("size", SIZES)
def test_many_hashes_are_found_at_once_in_any_order(size: int) -> None:
    index = exact_index(size)
    numbers = [*range(-2, 2 * size + 2)]
    Random(size).shuffle(numbers)

    places, positions = index.find_many(hashes_of(*map(long_hash, numbers)))

    wanted = [
        (place, number // 2)
        for place, number in enumerate(numbers)
        if number % 2 == 0 and 0 <= number < 2 * size
    ]
    assert [*zip(places.tolist(), positions.tolist(), strict=True)] == wanted


def test_a_hash_asked_for_twice_is_found_twice() -> None:
    places, positions = exact_index(10).find_many(hashes_of(*map(long_hash, [6, 1, 4, 6, 4])))

    assert places.tolist() == [0, 2, 3, 4]
    assert positions.tolist() == [3, 2, 3, 2]


@pytest.mark.parametrize("copies", [1, 2, 300, 700])
def test_keys_that_share_a_word_are_all_candidates(copies: int) -> None:
    hashes = hashes_of(3, *[7] * copies, 9)
    order = Random(copies).sample(range(copies + 2), copies + 2)
    positions = positions_of(order[0], *sorted(order[1:-1]), order[-1])
    index = KeyIndex.checked(hashes, positions)
    shared = sorted(order[1:-1])

    assert index.candidates(7) == shared
    assert index.candidates(3) == [order[0]]
    assert index.candidates(9) == [order[-1]]
    assert [*index.candidates(8)] == []
    places, found = index.find_many(hashes_of(9, 7, 8, 7))
    assert places.tolist() == [0, *[1] * copies, *[3] * copies]
    assert found.tolist() == [order[-1], *shared, *shared]
    places, found = index.find_many(hashes_of(2, 7, 10))
    assert places.tolist() == [1] * copies
    assert found.tolist() == shared


def test_the_highest_word_is_found_with_its_equals() -> None:
    top = (1 << 64) - 1
    index = KeyIndex.checked(hashes_of(1, top, top), positions_of(2, 0, 1))

    assert index.candidates(top) == [0, 1]
    assert index.find_many(hashes_of(top))[1].tolist() == [0, 1]


@pytest.mark.parametrize("hashes", [LONG_HASHES, TEXT_HASHES], ids=["exact", "hashed"])
def test_an_index_of_nothing_finds_nothing(hashes: KeyHashes) -> None:
    array_type = pa.binary(8) if hashes.is_exact else pa.binary()
    index = KeyIndex.build(cast("KeyArray", pa.array([], array_type)), hashes)

    assert index.row_count == 0
    assert [*index.candidates(0)] == []
    assert [each.tolist() for each in index.find_many(hashes_of(0, 1))] == [[], []]


def test_looking_for_nothing_finds_nothing() -> None:
    assert [each.tolist() for each in exact_index(5).find_many(hashes_of())] == [[], []]


@pytest.mark.parametrize(
    ("hashes", "positions", "rule"),
    [
        ((1, 3, 2), None, "SSTABLE-12:"),
        ((1, 2, 2), None, "SSTABLE-12:"),
        ((1, 3, 2), (0, 1, 2), "SSTABLE-12:"),
        ((1, 2, 2), (0, 1, 3), "SSTABLE-14:"),
        ((1, 2, 2), (0, 1), "SSTABLE-14:"),
    ],
    ids=["unsorted", "twice", "unsorted hashes", "no such row", "too few"],
)
def test_arrays_that_break_a_rule_are_refused(
    hashes: tuple[int, ...], positions: tuple[int, ...] | None, rule: str
) -> None:
    stored = None if positions is None else positions_of(*positions)

    with pytest.raises(Corruption, match=rule):
        KeyIndex.checked(hashes_of(*hashes), stored)
