"""Files of remembered deletes: what is read is what was written, or Corruption."""

from contextlib import suppress
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import Corruption, NotFound
from neve.model.data_file import DataFile, FileFormat
from neve.sstable.remembered_deletes import RememberedDeletes, read_deletes, write_deletes
from neve.storage.memory_store import MemoryStore
from neve.storage.table_paths import TablePaths, is_remembered

PATHS = TablePaths("t1")


def deletes(pairs: list[tuple[bytes, bytes]], *, width: int | None = None) -> RememberedDeletes:
    keys = pa.array([key for key, _ in pairs], pa.binary() if width is None else pa.binary(width))
    orders = pa.array([order for _, order in pairs], pa.large_binary())
    return RememberedDeletes.newest(keys, orders)  # type: ignore[arg-type]  # any kind of bytes


def written(store: MemoryStore, known: RememberedDeletes) -> DataFile:
    return write_deletes(known, store=store, paths=PATHS, file_id="a1", schema_id=7)


def pairs(known: RememberedDeletes) -> list[tuple[bytes, bytes]]:
    return list(zip(known.keys.to_pylist(), known.orders.to_pylist(), strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [None, 2])
def test_the_newest_delete_of_each_key_is_kept_in_order(width: int | None) -> None:
    known = deletes([(b"kb", b"2"), (b"ka", b"1"), (b"kb", b"3"), (b"kb", b"1")], width=width)

    assert pairs(known) == [(b"ka", b"1"), (b"kb", b"3")]
    assert known.nbytes > 0


@pytest.mark.parametrize("count", [1, 2, 5_000])
def test_what_is_read_is_what_was_written(count: int) -> None:
    store, random = MemoryStore(), Random(1)
    known = deletes([(b"k%06d" % place, random.randbytes(8)) for place in range(count)])

    file = written(store, known)
    found = read_deletes(file, store=store, paths=PATHS)

    assert pairs(found) == pairs(known)
    assert (file.row_count, file.schema_id, file.level) == (count, 7, 0)
    assert (file.key_min, file.key_max) == (b"k000000", b"k%06d" % (count - 1))
    assert file.format is FileFormat.REMEMBERED
    assert is_remembered(file.path)
    assert file.path.startswith("deletes/")


def test_keys_are_found_in_any_form() -> None:
    known = deletes([(b"ka", b"1"), (b"kc", b"2")])

    for kind in (pa.binary(), pa.binary(2), pa.large_binary()):
        hits, places = known.find(pa.array([b"kb", b"kc", b"ka", b"kc"], kind))  # type: ignore[arg-type]
        assert (hits.tolist(), places.tolist()) == ([1, 2, 3], [1, 0, 1])


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(7), pa.large_binary()])
@pytest.mark.parametrize("count", [0, 1, 3, 2_000])
def test_few_keys_and_many_are_found_among_many_deletes(kind: pa.DataType, count: int) -> None:
    known = deletes([(b"k%06d" % place, b"o") for place in range(0, 4_000, 2)])
    wanted = Random(2).sample(range(4_010), count)
    keys = pa.array([b"k%06d" % place for place in wanted], kind)

    hits, places = known.find(keys)  # type: ignore[arg-type]

    found = {wanted[hit]: place for hit, place in zip(hits.tolist(), places.tolist(), strict=True)}
    assert found == {place: place // 2 for place in wanted if place % 2 == 0 and place < 4_000}
    assert hits.dtype == places.dtype == np.dtype(np.int64)


def test_every_flipped_bit_is_found() -> None:
    store = MemoryStore()
    file = written(store, deletes([(b"k%d" % place, b"o%d" % place) for place in range(40)]))
    path = f"{PATHS.root}/{file.path}"
    payload = store.get(path).payload
    wanted = pairs(read_deletes(file, store=store, paths=PATHS))
    silent = 0
    for place in range(len(payload)):
        damaged = bytearray(payload)
        damaged[place] ^= 1 << place % 8
        store.put(path, bytes(damaged))
        with suppress(Corruption):
            found = pairs(read_deletes(file, store=store, paths=PATHS))
            silent += 1
            assert found == wanted, f"byte {place}"

    # What describes the file for people has no checksum: names of the writer, encodings.
    assert silent < len(payload) // 2


def test_every_cut_file_is_found() -> None:
    store = MemoryStore()
    file = written(store, deletes([(b"k%d" % place, b"o%d" % place) for place in range(40)]))
    path = f"{PATHS.root}/{file.path}"
    payload = store.get(path).payload
    for length in {*range(0, len(payload), 7), len(payload) - 1}:
        store.put(path, payload[:length])
        with pytest.raises(Corruption):
            read_deletes(file, store=store, paths=PATHS)
    store.put(path, payload + b"\0")
    with pytest.raises(Corruption):
        read_deletes(file, store=store, paths=PATHS)
    store.delete(path)
    with pytest.raises(NotFound):
        read_deletes(file, store=store, paths=PATHS)


def test_a_file_of_another_size_in_its_place_is_found() -> None:
    store = MemoryStore()
    file = written(store, deletes([(b"ka", b"1")]))
    other = written(store, deletes([(b"ka", b"1"), (b"kb", b"2")]))

    with pytest.raises(Corruption):
        read_deletes(file, store=store, paths=PATHS)
    assert len(read_deletes(other, store=store, paths=PATHS)) == 2
