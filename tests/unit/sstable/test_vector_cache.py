"""VectorCache: reads once, stays within its bytes, never keeps what does not fit its file."""

from dataclasses import replace

import numpy as np
import pytest
from pyroaring import BitMap64

from neve.errors import Corruption, NotFound
from neve.model.data_file import DataFile, VectorRef
from neve.sstable.deletion_vector import VectorCache
from neve.sstable.puffin import write_puffin
from neve.storage.memory_store import MemoryStore
from neve.storage.table_paths import TablePaths

PATHS = TablePaths("1")
PUFFIN = PATHS.delete_file("v")


def marked_files(vectors: dict[str, BitMap64]) -> tuple[MemoryStore, dict[str, DataFile]]:
    """Return a store with the vectors of files of a thousand rows, and the files."""
    payload, places = write_puffin(vectors, created_by="neve")
    store = MemoryStore()
    store.put(PUFFIN, payload)
    files = {
        path: DataFile(
            path=path,
            file_bytes=1,
            row_count=1_000,
            level=0,
            key_min=b"a",
            key_max=b"b",
            vector=VectorRef(
                path="deletes/v.puffin",
                offset=place.offset,
                length=place.length,
                cardinality=place.cardinality,
            ),
        )
        for path, place in places.items()
    }
    return store, files


def test_a_vector_is_read_once() -> None:
    store, files = marked_files({"a": BitMap64([1, 999])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)

    first = cache.positions(files["a"])
    store.delete(PUFFIN)

    assert first == BitMap64([1, 999])
    assert cache.positions(files["a"]) is first
    mask = cache.mask(files["a"])
    assert mask is not None
    assert np.flatnonzero(~mask).tolist() == [1, 999]
    assert cache.mask(files["a"]) is mask
    assert not mask.flags.writeable


def test_vectors_of_one_puffin_file_are_told_apart() -> None:
    vectors = {"a": BitMap64([1]), "b": BitMap64([2, 3])}
    store, files = marked_files(vectors)
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)

    assert {path: cache.positions(file) for path, file in files.items()} == vectors


def test_a_file_without_a_vector_needs_no_mask() -> None:
    store, files = marked_files({"a": BitMap64([1])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)
    live = replace(files["a"], vector=None)

    assert cache.positions(live) == BitMap64()
    assert cache.mask(live) is None
    assert cache.byte_count == 0


def test_the_entry_used_longest_ago_makes_room() -> None:
    store, files = marked_files({name: BitMap64([1]) for name in "abc"})
    one = VectorCache(store, PATHS, bytes_max=1 << 20)
    one.positions(files["a"])
    cache = VectorCache(store, PATHS, bytes_max=2 * one.byte_count)

    kept = cache.positions(files["a"])
    cache.positions(files["b"])
    cache.positions(files["a"])
    cache.positions(files["c"])
    store.delete(PUFFIN)

    assert cache.byte_count == 2 * one.byte_count
    assert cache.positions(files["a"]) is kept
    assert cache.positions(files["c"]) == BitMap64([1])
    with pytest.raises(NotFound, match=r"v\.puffin"):
        cache.positions(files["b"])


def test_what_is_larger_than_the_cache_is_given_and_not_kept() -> None:
    store, files = marked_files({"a": BitMap64([1])})
    cache = VectorCache(store, PATHS, bytes_max=1_000)

    mask = cache.mask(files["a"])

    assert mask is not None
    assert int(mask.sum()) == 999
    assert cache.byte_count == 0


def test_a_remembered_vector_is_not_read() -> None:
    store, files = marked_files({"a": BitMap64([1])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)
    store.delete(PUFFIN)

    cache.remember(files["a"], BitMap64([1]))

    assert cache.positions(files["a"]) == BitMap64([1])


@pytest.mark.parametrize("wrong", [BitMap64([1, 2]), BitMap64([1_000])], ids=["count", "row"])
def test_a_vector_that_does_not_fit_its_file_is_not_remembered(wrong: BitMap64) -> None:
    store, files = marked_files({"a": BitMap64([1])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)

    with pytest.raises(Corruption):
        cache.remember(files["a"], wrong)

    assert cache.positions(files["a"]) == BitMap64([1])


def test_a_mark_behind_the_last_row_is_corruption() -> None:
    store, files = marked_files({"a": BitMap64([999])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)

    with pytest.raises(Corruption, match="marks row 999 of 500"):
        cache.mask(replace(files["a"], row_count=500))

    assert cache.byte_count == 0


def test_a_cleared_cache_reads_again() -> None:
    store, files = marked_files({"a": BitMap64([1])})
    cache = VectorCache(store, PATHS, bytes_max=1 << 20)
    cache.mask(files["a"])

    cache.clear()

    assert cache.byte_count == 0
    store.delete(PUFFIN)
    with pytest.raises(NotFound):
        cache.positions(files["a"])
