"""Arrays of keys: joined, compared, and cut to bounds."""

import pyarrow as pa
import pytest
from neve.keys import arrays as key_arrays
from neve.keys.arrays import concat_keys, keys_ascend, same_keys, within
from neve.keys.columns import KeyArray

TYPES: dict[str, pa.DataType] = {
    "fixed": pa.binary(1),
    "binary": pa.binary(),
    "large": pa.large_binary(),
}


def keys(text: str, kind: str = "binary") -> KeyArray:
    """Return one key of one byte per letter."""
    array = pa.array([letter.encode() for letter in text], TYPES[kind])
    assert isinstance(array, KeyArray)
    return array


every_kind = pytest.mark.parametrize("kind", TYPES)


@every_kind
def test_joined_keys_keep_their_type(kind: str) -> None:
    joined = concat_keys([keys("ab", kind), keys("c", kind)])
    assert (joined.type, joined.to_pylist()) == (TYPES[kind], [b"a", b"b", b"c"])


def test_one_large_array_makes_the_whole_large() -> None:
    joined = concat_keys([keys("ab"), keys("c", "large")])
    assert (joined.type, joined.to_pylist()) == (pa.large_binary(), [b"a", b"b", b"c"])


def test_more_bytes_than_offsets_reach_make_the_whole_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_arrays, "_OFFSETS_END", 10)
    joined = concat_keys([keys("ab"), keys("c")])
    assert (joined.type, joined.to_pylist()) == (pa.large_binary(), [b"a", b"b", b"c"])


@every_kind
@pytest.mark.parametrize(
    ("text", "ascend"), [("", True), ("a", True), ("abc", True), ("acb", False), ("aab", False)]
)
def test_keys_ascend_when_each_is_above_the_last(kind: str, text: str, *, ascend: bool) -> None:
    assert keys_ascend(keys(text, kind)) is ascend


def test_keys_of_two_types_are_compared_by_their_bytes() -> None:
    assert same_keys(keys("abc"), keys("axc", "large")).tolist() == [True, False, True]
    assert same_keys(keys("abc", "fixed"), keys("abd", "fixed")).tolist() == [True, True, False]


@every_kind
@pytest.mark.parametrize(
    ("key_min", "key_max", "found"),
    [("a", "z", "bdf"), ("b", "d", "bd"), ("c", "c", ""), ("e", "f", "f"), ("g", "z", "")],
)
def test_keys_within_bounds_include_both_of_them(
    kind: str, key_min: str, key_max: str, found: str
) -> None:
    stretch = within(keys("bdf", kind), key_min.encode(), key_max.encode())
    assert "bdf"[stretch] == found
