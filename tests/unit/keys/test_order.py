"""Order of many keys: always the order of their bytes, equal ones together."""

from typing import cast

import pyarrow as pa
import pytest

from neve.keys.columns import KeyArray
from neve.keys.key_hashes import exact_hash, exact_hashes
from neve.keys.order import sorted_groups

CASES: dict[str, tuple[pa.DataType, list[bytes]]] = {
    "nothing": (pa.binary(), []),
    "one": (pa.binary(), [b"a"]),
    "all the same": (pa.binary(), [b"abc"] * 5),
    "short and long": (pa.binary(), [b"b", b"", b"a", b"a\0", b"a\0\0\0\0\0\0\0\0\0", b"ab"]),
    "zeros behind the end": (pa.binary(), [b"k\0\0", b"k", b"k\0", b"k\0", b"k"]),
    "one long beginning": (pa.binary(), [b"user-0000000%d" % (at % 7) for at in range(20)]),
    "words shared, rest not": (pa.binary(), [b"%08d%d" % (at % 3, -at) for at in range(20)]),
    "large": (pa.large_binary(), [b"b", b"a" * 20, b"a" * 19, b"b"]),
    "wide": (pa.binary(12), [b"%012d" % (at * 7 % 5) for at in range(20)]),
    "wide at the end": (pa.binary(20), [b"x" * 10 + b"%010d" % -at for at in range(5)]),
    "exact": (pa.binary(8), [bytes([255 - at]) * 8 for at in range(10)] * 2),
    "narrow": (pa.binary(3), [b"\0\0\1", b"\xff\0\0", b"\0\1\0", b"\0\0\1"]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cut", [0, 1])
def test_keys_are_sorted_and_grouped_by_their_bytes(case: str, cut: int) -> None:
    key_type, keys = CASES[case]
    width = key_type.byte_width if pa.types.is_fixed_size_binary(key_type) else None
    array = cast("KeyArray", pa.array(keys, key_type).slice(cut))

    order, starts = sorted_groups(array, width)

    keys = keys[cut:]
    assert sorted(order.tolist()) == list(range(len(keys)))
    assert [keys[at] for at in order.tolist()] == sorted(keys)
    assert [keys[order[at]] for at in starts.tolist()] == sorted(set(keys))


def test_one_word_and_many_agree() -> None:
    keys = [b"\0\0\1", b"\xff\1\2", b"abc"]
    array = cast("pa.FixedSizeBinaryArray", pa.array(keys, pa.binary(3)))

    assert exact_hashes(array, width=3).tolist() == [*map(exact_hash, keys)]
