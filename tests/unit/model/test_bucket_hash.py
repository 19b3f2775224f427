"""The hash that Iceberg's bucket transform is built on."""

import mmh3
import numpy as np
import pyarrow as pa
import pytest

from neve.model.transforms import hash_fixed, hash_longs, hash_one, hash_variable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Known answers of the reference implementation, x86, 32 bits, seed 0.
        (b"", 0),
        (b"test", -1167338989),
        (b"Hello, world!", -1070186941),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_known_answers_hold_in_every_form(text: bytes, expected: int) -> None:
    matrix = np.frombuffer(text, dtype=np.uint8).reshape(1, len(text))

    assert hash_one(text) == expected
    assert hash_fixed(matrix).tolist() == [expected]
    assert hash_variable(pa.array([text], pa.binary())).tolist() == [expected]


def test_a_long_hashes_as_iceberg_hashes_34() -> None:
    assert hash_longs(np.array([34], dtype=np.int64)).tolist() == [2017239379]


def test_the_byte_order_of_the_input_does_not_matter() -> None:
    native = np.array([1, -1, 1 << 40], dtype=np.int64)

    assert hash_longs(native.astype(">i8")).tolist() == hash_longs(native).tolist()


def test_no_rows_give_no_hashes() -> None:
    assert hash_longs(np.array([], dtype=np.int64)).tolist() == []
    assert hash_fixed(np.zeros((0, 16), dtype=np.uint8)).tolist() == []
    assert hash_variable(pa.array([], pa.binary())).tolist() == []


def test_a_null_is_hashed_without_harm_to_its_neighbours() -> None:
    hashes = hash_variable(pa.array([b"a", None, b"b"], pa.binary()))

    assert [hashes[0], hashes[2]] == [mmh3.hash(b"a"), mmh3.hash(b"b")]


def test_columns_longer_than_one_slice_are_hashed_whole() -> None:
    texts = [str(number).encode() for number in range(70_000)]

    hashes = hash_variable(pa.array(texts, pa.binary()))

    assert hashes[[0, 65_535, 65_536, 69_999]].tolist() == [
        mmh3.hash(texts[row]) for row in (0, 65_535, 65_536, 69_999)
    ]
