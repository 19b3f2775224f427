"""Arrays of encoded keys: joining them, their order, and where a key would be among them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.columns import KeyArray

_OFFSETS_END: Final = 1 << 31


def concat_keys(pieces: Sequence[KeyArray]) -> KeyArray:
    """Join key arrays, at least one: large ones when any of them is, or their sum must be."""
    if len(pieces) == 1:
        return pieces[0]
    is_large = any(isinstance(piece, pa.LargeBinaryArray) for piece in pieces)
    if not isinstance(pieces[0], pa.FixedSizeBinaryArray) and (
        is_large or sum(piece.nbytes for piece in pieces) >= _OFFSETS_END
    ):
        return pa.concat_arrays([as_large(piece) for piece in pieces])
    return pa.concat_arrays(pieces)


def as_large(keys: KeyArray) -> KeyArray:
    """Return the keys in the type that holds any number of bytes."""
    return cast("KeyArray", keys.cast(pa.large_binary()))


def same_keys(left: KeyArray, right: KeyArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return place by place whether two arrays of one length have the same key."""
    if left.type != right.type:
        left, right = as_large(left), as_large(right)
    return pc.equal(left, right).to_numpy(zero_copy_only=False)


def key_at(keys: KeyArray, place: int) -> bytes:
    """Return one key."""
    key = keys[place].as_py()
    assert isinstance(key, bytes)
    return key


def keys_ascend(keys: KeyArray) -> bool:
    """Return whether each key is above the one before it."""
    count = len(keys)
    return count <= 1 or pc.all(pc.less(keys.slice(0, count - 1), keys.slice(1))).as_py() is True


def within(keys: KeyArray, key_min: bytes, key_max: bytes) -> slice:
    """Return the stretch of ascending keys from `key_min` up to and with `key_max`."""
    places = range(len(keys))
    start = bisect_left(places, key_min, key=lambda place: key_at(keys, place))
    stop = bisect_right(places, key_max, start, key=lambda place: key_at(keys, place))
    return slice(start, stop)
