"""Order and equality of many keys at once, by words of eight bytes.

    key      │ common prefix │ eight bytes │ the rest │
                                 word

1. Keys of at most eight bytes of fixed width are their word: numbers are sorted, nothing else.
2. Of other keys the word is what follows the bytes that all of them begin with, zeros behind the
   end of a short key. Words are sorted first; keys that share their word, and only those, are then
   compared as a whole. In ascending order they fill the places their words left them.
"""

from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.columns import KeyArray

WORD_BYTES: Final = 8

Words: TypeAlias = npt.NDArray[np.uint64]
Positions: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def exact_words(keys: pa.FixedSizeBinaryArray, width: int) -> Words:
    """Return keys of at most eight bytes as the numbers whose order is theirs."""
    assert width <= WORD_BYTES, "a word holds eight bytes"
    count = len(keys)
    stored = _fixed_bytes(keys, width)
    padded = np.zeros((count, WORD_BYTES), np.uint8)
    padded[:, WORD_BYTES - width :] = stored
    return padded.view(">u8").reshape(count).astype(np.uint64)


def exact_word(key: bytes) -> int:
    """Return one key of at most eight bytes as its number."""
    return int.from_bytes(key, "big")


def key_objects(keys: KeyArray) -> list[bytes]:
    """Return each key as bytes of its own."""
    return cast("list[bytes]", keys.to_numpy(zero_copy_only=False).tolist())


def sorted_groups(keys: KeyArray, width: int | None) -> tuple[Positions, Positions]:
    """Return the positions of the keys in ascending order, and where in it each new key begins.

    Positions of one key are next to each other in any order.
    """
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if width is not None and width <= WORD_BYTES:
        words = exact_words(cast("pa.FixedSizeBinaryArray", keys), width)
        order = _ascending(words)
        ordered = words[order]
        return order, _starts(ordered[1:] != ordered[:-1])
    words = _leading_words(keys)
    order = _ascending(words)
    ordered = words[order]
    differs = ordered[1:] != ordered[:-1]
    tied = np.empty(len(words), np.bool_)
    tied[0] = tied[-1] = False
    tied[:-1] = ~differs
    tied[1:] |= ~differs
    places = np.flatnonzero(tied)
    if len(places):
        members = order[places]
        alike = keys.take(members)
        inner = pc.sort_indices(alike).to_numpy()
        order[places] = members[inner]
        wholes = alike.take(inner)
        unequal = pc.not_equal(wholes.slice(1), wholes.slice(0, len(wholes) - 1))
        # Neighbours among the tied whose words differ are not neighbours of one group.
        differs[places[1:] - 1] |= unequal.to_numpy(zero_copy_only=False)
    return order, _starts(differs)


def _ascending(words: Words) -> Positions:
    if bool(np.all(words[1:] >= words[:-1])):
        return np.arange(len(words), dtype=np.int64)
    return np.argsort(words)


def _starts(differs: Flags) -> Positions:
    return np.concatenate((np.zeros(1, np.int64), np.flatnonzero(differs) + 1))


def _leading_words(keys: KeyArray) -> Words:
    shared = _shared_bytes(keys)
    text, starts, ends = _spans(keys)
    starts = starts + shared
    lengths = np.minimum(ends - starts, WORD_BYTES)
    padded = np.concatenate((text, np.zeros(WORD_BYTES, np.uint8)))
    everywhere = np.ndarray((len(padded) - WORD_BYTES + 1,), ">u8", padded, strides=(1,))
    words = everywhere[starts].astype(np.uint64)
    # What lies behind a short key belongs to its neighbour.
    behind = ((WORD_BYTES - lengths) * 8).astype(np.uint64)
    shift = np.minimum(behind, np.uint64(63))
    kept = (words >> shift) << shift
    return np.where(lengths > 0, kept, np.uint64(0))


def _shared_bytes(keys: KeyArray) -> int:
    """Return how many bytes all keys begin with: what the first and the last in order share."""
    whole = keys.cast(pa.binary()) if pa.types.is_fixed_size_binary(keys.type) else keys
    bounds = cast("dict[str, bytes]", pc.min_max(whole).as_py())
    least, greatest = bounds["min"], bounds["max"]
    for at, (one, other) in enumerate(zip(least, greatest, strict=False)):
        if one != other:
            return at
    return min(len(least), len(greatest))


def _spans(keys: KeyArray) -> tuple[npt.NDArray[np.uint8], Positions, Positions]:
    """Return the bytes of the keys, and where each begins and ends in them."""
    if pa.types.is_fixed_size_binary(keys.type):
        width = keys.type.byte_width
        starts = np.arange(len(keys), dtype=np.int64) * width
        return _fixed_bytes(keys, width).reshape(-1), starts, starts + width
    element = np.dtype(np.int64 if pa.types.is_large_binary(keys.type) else np.int32)
    _, stored_offsets, text = keys.buffers()
    stored = np.frombuffer(memoryview(stored_offsets or b""), element)
    offsets = stored[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    first = int(offsets[0])
    held = np.frombuffer(memoryview(text or b""), np.uint8)[first : int(offsets[-1])]
    return held, offsets[:-1] - first, offsets[1:] - first


def _fixed_bytes(keys: KeyArray, width: int) -> npt.NDArray[np.uint8]:
    stored = np.frombuffer(memoryview(keys.buffers()[1] or b""), np.uint8)
    return stored[keys.offset * width : (keys.offset + len(keys)) * width].reshape(len(keys), width)
