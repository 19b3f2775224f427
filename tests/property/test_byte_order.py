"""The order of keys by their bytes is that of sorting them, whatever the bytes are."""

from itertools import accumulate, pairwise
from typing import cast

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from neve.keys.columns import KeyArray
from neve.keys.order import byte_order

# Few bytes, so that keys share long beginnings; longer ones than a word, and than all turns take.
_ENDINGS = st.lists(st.sampled_from([b"\0", b"a", b"\xff", b"abcdefgh", b"\0" * 9]), max_size=4)
_KEYS = st.builds(
    bytes.__add__, st.sampled_from([b"", b"user-", b"x" * 30, b"y" * 300]), _ENDINGS.map(b"".join)
)
_PARTS = st.lists(st.sets(_KEYS, max_size=6).map(sorted), max_size=5)


def keys_of(part: list[bytes], kind: pa.DataType) -> KeyArray:
    return cast("KeyArray", pa.array(part, kind))


def ordered(parts: list[list[bytes]]) -> list[tuple[bytes, int]]:
    keys = [key for part in parts for key in part]
    return sorted((key, row) for row, key in enumerate(keys))


def check(parts: list[list[bytes]], arrays: list[KeyArray]) -> None:
    order, is_same = byte_order(arrays)

    expected = ordered(parts)
    assert order.tolist() == [row for _, row in expected]
    assert is_same.tolist() == [left == right for (left, _), (right, _) in pairwise(expected)]


@given(parts=_PARTS, is_large=st.booleans(), is_sliced=st.booleans())
def test_keys_of_any_length_come_in_order_and_equal_ones_as_they_came(
    parts: list[list[bytes]], *, is_large: bool, is_sliced: bool
) -> None:
    kind = pa.large_binary() if is_large else pa.binary()
    arrays = [keys_of(part, kind) for part in parts]
    if is_sliced and parts:
        # Parts of one array, as cut blocks are.
        whole = keys_of([key for part in parts for key in part], kind)
        ends = [0, *accumulate(map(len, parts))]
        arrays = [whole.slice(start, stop - start) for start, stop in pairwise(ends)]

    check(parts, arrays)


@given(parts=st.lists(st.sets(st.binary(min_size=12, max_size=12)).map(sorted), max_size=4))
def test_keys_of_one_length_come_in_order(parts: list[list[bytes]]) -> None:
    check(parts, [keys_of(part, pa.binary(12)) for part in parts])


def test_keys_that_are_alike_for_very_long_come_in_order() -> None:
    # A key far below the others: their long beginning is not shared by all.
    parts = [[b"a", *(b"z" * 500 + bytes([end]) for end in (1, 3))], [b"z" * 500 + b"\2"]]
    order, is_same = byte_order([keys_of(part, pa.binary()) for part in parts])

    assert order.tolist() == [0, 1, 3, 2]
    assert not np.any(is_same)
