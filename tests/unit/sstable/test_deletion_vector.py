"""Deletion vectors: their bytes to the last one, what is refused, and reading by reference."""

import struct
import zlib

import numpy as np
import pytest
from pyroaring import BitMap64

from neve.errors import Corruption, NotFound
from neve.model.data_file import DataFile, VectorRef
from neve.sstable.deletion_vector import (
    bitmap_of,
    decode_vector,
    encode_vector,
    keep_mask,
    positions_in,
    read_vector,
)
from neve.storage.memory_store import MemoryStore
from neve.storage.table_paths import TablePaths

ONE_THREE_FIVE = bytes.fromhex(
    "00000026 d1d33964 0100000000000000 00000000 3a300000 01000000 0000 0200 10000000"
    "0100 0300 0500 5a9e5d39"
)
EMPTY_MAP = struct.pack("<II", 0x303A, 0)
PATHS = TablePaths("17")
FILE = DataFile(
    path="data/a.parquet", file_bytes=100, row_count=10, level=0, key_min=b"a", key_max=b"z"
)


def framed(vector: bytes) -> bytes:
    checked = b"\xd1\xd3\x39\x64" + vector
    return struct.pack(">I", len(checked)) + checked + struct.pack(">I", zlib.crc32(checked))


def array_map(*containers: tuple[int, list[int]]) -> bytes:
    """Return a 32-bit bitmap of array containers, right or wrong."""
    offset = 8 + 8 * len(containers)
    heads = offsets = values = b""
    for key, lows in containers:
        heads += struct.pack("<HH", key, len(lows) - 1)
        offsets += struct.pack("<I", offset)
        values += struct.pack(f"<{len(lows)}H", *lows)
        offset += 2 * len(lows)
    return struct.pack("<II", 0x303A, len(containers)) + heads + offsets + values


def vector_of(*maps: tuple[int, bytes], count: int | None = None) -> bytes:
    counted = len(maps) if count is None else count
    return struct.pack("<Q", counted) + b"".join(
        struct.pack("<I", high) + bitmap for high, bitmap in maps
    )


SOUND_MAP = array_map((0, [1, 2]))


# Bytes


def test_the_bytes_of_a_vector_are_those_of_the_specification() -> None:
    assert encode_vector(BitMap64([5, 1, 3])) == ONE_THREE_FIVE
    assert decode_vector(ONE_THREE_FIVE) == BitMap64([1, 3, 5])


@pytest.mark.parametrize(
    "positions",
    [
        BitMap64(),
        BitMap64([0]),
        BitMap64(range(70_000)),
        BitMap64(range(0, 200_000, 3)),
        BitMap64([1, 1 << 32, (1 << 40) + 7, (1 << 63) - 1]),
    ],
    ids=["none", "first", "run", "dense", "far"],
)
def test_a_vector_comes_back_as_it_was(positions: BitMap64) -> None:
    assert decode_vector(encode_vector(positions)) == positions


def test_a_run_of_rows_takes_a_few_bytes_and_leaves_the_bitmap_alone() -> None:
    positions = BitMap64(np.arange(1_000_000).tolist())
    before = positions.serialize()

    assert len(encode_vector(positions)) < 400
    assert positions.serialize() == before


def test_empty_bitmaps_between_others_are_read() -> None:
    vector = vector_of((0, EMPTY_MAP), (1, EMPTY_MAP), (2, SOUND_MAP))

    assert decode_vector(framed(vector)) == BitMap64([(2 << 32) + 1, (2 << 32) + 2])


@pytest.mark.parametrize(
    "vector",
    [
        vector_of((0, SOUND_MAP)) + b"\0\0",
        vector_of((0, SOUND_MAP), count=2),
        vector_of((0, SOUND_MAP), count=1 << 60),
        vector_of((1, SOUND_MAP), (0, SOUND_MAP)),
        vector_of((1, SOUND_MAP), (1, SOUND_MAP)),
        vector_of((1 << 31, SOUND_MAP)),
        vector_of((0, array_map((0, [2, 1])))),
        vector_of((0, array_map((0, [2, 2])))),
        vector_of((0, array_map((1, [1]), (0, [1])))),
        vector_of((0, struct.pack("<II", 0x303A, 0xFFFF_FFFF))),
        vector_of((0, b"\0" * 8)),
    ],
    ids=[
        "more bytes",
        "too few bitmaps",
        "a huge count",
        "high parts descending",
        "a high part twice",
        "a negative position",
        "positions descending",
        "a position twice",
        "containers descending",
        "a huge container count",
        "no cookie",
    ],
)
def test_a_wrong_vector_behind_a_right_checksum_is_corruption(vector: bytes) -> None:
    with pytest.raises(Corruption):
        decode_vector(framed(vector), path="deletes/v.puffin", offset=4)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "cannot have 0 bytes"),
        (ONE_THREE_FIVE[:-1], "says it has 38 bytes, but has 37"),
        (b"\0\0\0\x2a" + ONE_THREE_FIVE[4:], "says it has 42 bytes, but has 38"),
        (ONE_THREE_FIVE[:4] + b"\xd1\xd3\x39\x65" + ONE_THREE_FIVE[8:], "not a deletion vector"),
        (ONE_THREE_FIVE[:-1] + b"\0", "checksum"),
    ],
    ids=["empty", "cut", "length with checksum", "magic", "checksum"],
)
def test_a_wrong_frame_is_corruption_that_says_where(blob: bytes, message: str) -> None:
    with pytest.raises(Corruption, match=message) as caught:
        decode_vector(blob, path="deletes/v.puffin", offset=4)

    assert caught.value.path == "deletes/v.puffin"
    assert caught.value.offset == 4


# By reference


def stored_ref(store: MemoryStore) -> VectorRef:
    store.put("tables/17/deletes/v.puffin", b"PFA1" + ONE_THREE_FIVE)
    return VectorRef(path="deletes/v.puffin", offset=4, length=len(ONE_THREE_FIVE), cardinality=3)


def test_a_vector_is_read_by_its_place() -> None:
    store = MemoryStore()
    ref = stored_ref(store)

    assert read_vector(store, PATHS, ref, row_count=6) == BitMap64([1, 3, 5])


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1},
        {"offset": 3},
        {"offset": 5},
        {"length": 0},
        {"length": -46},
        {"length": 45},
        {"length": 47},
        {"length": 1 << 62},
        {"cardinality": 2},
        {"cardinality": -3},
    ],
    ids=str,
)
def test_a_reference_that_does_not_fit_is_corruption(change: dict[str, int]) -> None:
    store = MemoryStore()
    right = stored_ref(store)
    ref = VectorRef(
        path=right.path,
        offset=change.get("offset", right.offset),
        length=change.get("length", right.length),
        cardinality=change.get("cardinality", right.cardinality),
    )

    with pytest.raises(Corruption) as caught:
        read_vector(store, PATHS, ref)

    assert caught.value.path == "tables/17/deletes/v.puffin"


def test_a_mark_behind_the_last_row_is_corruption() -> None:
    store = MemoryStore()
    ref = stored_ref(store)

    with pytest.raises(Corruption, match="marks row 5 of 5"):
        read_vector(store, PATHS, ref, row_count=5)


def test_a_missing_file_is_not_found() -> None:
    ref = VectorRef(path="deletes/none.puffin", offset=4, length=46, cardinality=3)

    with pytest.raises(NotFound, match=r"none\.puffin"):
        read_vector(MemoryStore(), PATHS, ref)


# Arrays


def test_arrays_and_bitmaps_hold_the_same_positions() -> None:
    bitmap = bitmap_of(np.array([7, 3, 7, 1 << 40], dtype=np.int64))

    assert bitmap == BitMap64([3, 7, 1 << 40])
    assert positions_in(bitmap).tolist() == [3, 7, 1 << 40]
    assert positions_in(bitmap_of(np.array([], dtype=np.int64))).tolist() == []


def test_a_mask_keeps_the_rows_that_are_not_marked() -> None:
    mask = keep_mask(BitMap64([0, 9]), FILE)

    assert mask.tolist() == [False, *[True] * 8, False]


def test_a_mask_of_a_run_behind_the_file_is_refused_before_it_costs_memory() -> None:
    hostile = BitMap64()
    hostile.add_range(0, 1 << 40)

    with pytest.raises(Corruption, match="of 10 is marked"):
        keep_mask(hostile, FILE)
