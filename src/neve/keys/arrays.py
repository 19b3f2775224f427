"""Arrays of encoded keys: their memory, joining them, and where a key would be among them."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Flags, Positions, fixed_bytes

Bytes: TypeAlias = npt.NDArray[np.uint8]

_OFFSETS_END: Final = 1 << 31


def key_spans(keys: KeyArray) -> tuple[Bytes, Positions, Positions]:
    """Return the memory that holds the keys, and where in it each begins and ends."""
    if isinstance(keys, pa.FixedSizeBinaryArray):
        width = keys.type.byte_width
        edges = np.arange(len(keys) + 1, dtype=np.int64) * width
        return fixed_bytes(keys, width=width).reshape(-1), edges[:-1], edges[1:]
    _, offsets, values = keys.buffers()
    if offsets is None or not len(keys):  # an empty array may have no buffers
        return np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    element = np.int64 if isinstance(keys, pa.LargeBinaryArray) else np.int32
    edges = np.frombuffer(memoryview(offsets), element)
    edges = edges[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    memory = np.frombuffer(memoryview(values or b""), np.uint8)[edges[0] : edges[-1]]
    return memory, edges[:-1] - edges[0], edges[1:] - edges[0]


def concat_keys(pieces: Sequence[KeyArray]) -> KeyArray:
    """Join key arrays, at least one; the result is large when any of them is or their sum is."""
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


def same_keys(left: KeyArray, right: KeyArray) -> Flags:
    """Return for each place whether two arrays of one length have the same key."""
    if left.type != right.type:
        left, right = as_large(left), as_large(right)
    return pc.equal(left, right).to_numpy(zero_copy_only=False)


def key_at(keys: KeyArray, place: int) -> bytes:
    """Return one key."""
    key = keys[place].as_py()
    assert isinstance(key, bytes)
    return key


def key_objects(keys: KeyArray) -> list[bytes]:
    """Return each key as a bytes object."""
    # As fast as by way of NumPy, which imports pandas for the first objects.
    return cast("list[bytes]", keys.to_pylist())


def key_place(keys: KeyArray, bound: bytes, *, after: bool = False) -> int:
    """Count the ascending keys below a bound, and the bound itself when `after`."""
    bisect = bisect_right if after else bisect_left
    return bisect(range(len(keys)), bound, key=lambda place: key_at(keys, place))


def keys_ascend(keys: KeyArray) -> bool:
    """Return whether each key is above the one before it."""
    count = len(keys)
    return count <= 1 or pc.all(pc.less(keys.slice(0, count - 1), keys.slice(1))).as_py() is True


def within(keys: KeyArray, key_min: bytes, key_max: bytes) -> slice:
    """Return the stretch of ascending keys from `key_min` to `key_max`, both included."""
    start = key_place(keys, key_min)
    return slice(start, max(start, key_place(keys, key_max, after=True)))


def masked_places(places: Positions, is_known: Flags) -> "pa.Int64Array":
    """Return places to take from; NULL, which takes NULL, where there is none."""
    return pa.array(places, pa.int64(), mask=~is_known)


def last_places(keys: KeyArray, by_age: Positions | None = None) -> Positions:
    """Return the last place of each key, in any order; `by_age` lists places, oldest first."""
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    places = np.arange(len(codes)) if by_age is None else by_age
    last = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    # Of several values for one place, the last one stays.
    last[codes[places]] = places
    return last
