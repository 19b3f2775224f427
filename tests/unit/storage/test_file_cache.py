"""CachedStore: what is read twice costs one request, damage is noticed, and space is bounded."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neve.errors import NotFound
from neve.storage.file_cache import CachedStore, CopyStore
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import MapsObjects, ObjectStore
from neve.testing.faulty_store import FaultyStore
from neve.testing.store_contract import ObjectStoreContract

DATA = "tables/t1/data/one.parquet"
INDEX = "tables/t1/index/one.index"
MIB = 1 << 20


@pytest.fixture(params=["memory", "disk"])
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> CopyStore:
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path / "cache"))


@pytest.fixture
def bucket() -> FaultyStore:
    inner = MemoryStore()
    inner.put(DATA, os.urandom(3 * MIB + 17))
    inner.put(INDEX, os.urandom(MIB))
    inner.put("manifest/HEAD", b"changes")
    return FaultyStore(inner)


class TestKeepsTheObjectStoreContract(ObjectStoreContract):
    @pytest.fixture
    def store(self, copies: CopyStore) -> ObjectStore:
        return CachedStore(MemoryStore(), copies, bytes_max=8 * MIB)


def test_an_index_is_fetched_once_and_mapped(bucket: FaultyStore, copies: CopyStore) -> None:
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)
    assert isinstance(store, MapsObjects)

    first, second = store.map(INDEX), store.map(INDEX)

    assert bytes(first) == bytes(second) == bucket.get(INDEX).payload
    assert [call.path for call in bucket.calls] == [INDEX, INDEX]


def test_a_range_is_fetched_in_blocks_and_once(bucket: FaultyStore, copies: CopyStore) -> None:
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)
    whole = bucket.get(DATA).payload
    size = len(whole)
    before = len(bucket.calls)

    # The footer with one byte more than there is, then parts of the same block.
    assert store.get_range(DATA, start=size - 100, length=101) == whole[-100:]
    assert store.get_range(DATA, start=size - 10, length=50) == whole[-10:]
    assert store.get_range(DATA, start=size, length=1) == b""
    assert store.get_range(DATA, start=10, length=100) == whole[10:110]
    assert store.get_range(DATA, start=200, length=1_000) == whole[200:1_200]

    assert len(bucket.calls) - before == 2


def test_a_small_file_is_whole_with_its_footer(copies: CopyStore) -> None:
    bucket = FaultyStore(MemoryStore())
    bucket.put(DATA, bytes(range(256)) * 100)
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)
    before = len(bucket.calls)

    store.get_range(DATA, start=25_000, length=601)
    store.get_range(DATA, start=4, length=20_000)

    assert store.size(DATA) == 25_600
    assert len(bucket.calls) - before == 1


def test_what_was_written_here_needs_no_request(bucket: FaultyStore, copies: CopyStore) -> None:
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)
    path = "tables/t1/data/new.parquet"

    store.put(path, b"rows" * 1_000)

    assert store.get_range(path, start=4, length=4) == b"rows"
    assert bytes(store.map(path)) == b"rows" * 1_000
    assert [call.path for call in bucket.calls] == [path]


def test_what_may_change_is_always_asked_for(bucket: FaultyStore, copies: CopyStore) -> None:
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)

    for _ in range(3):
        store.get_range("manifest/HEAD", start=0, length=7)
        store.get("manifest/HEAD")

    assert len(bucket.calls) == 6


def test_copies_outlive_the_process_and_serve_others(bucket: FaultyStore, tmp_path: Path) -> None:
    CachedStore(bucket, LocalStore(str(tmp_path)), bytes_max=64 * MIB).map(INDEX)
    before = len(bucket.calls)

    again = CachedStore(bucket, LocalStore(str(tmp_path)), bytes_max=64 * MIB)

    assert bytes(again.map(INDEX)) == bucket.get(INDEX).payload
    assert len(bucket.calls) - before == 1  # the comparison above


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_copy_is_read_again(bucket: FaultyStore, tmp_path: Path, damage: str) -> None:
    CachedStore(bucket, LocalStore(str(tmp_path)), bytes_max=64 * MIB).map(INDEX)
    (copy,) = tmp_path.glob("*-rest")
    content = bytearray(copy.read_bytes())
    content[1_000] ^= 1
    match damage:
        case "flip":
            copy.write_bytes(content)
        case "cut":
            copy.write_bytes(content[:-9])
        case "empty":
            copy.write_bytes(b"")
        case _:
            copy.unlink()

    store = CachedStore(bucket, LocalStore(str(tmp_path)), bytes_max=64 * MIB)

    assert bytes(store.map(INDEX)) == bucket.get(INDEX).payload
    assert bytes(store.map(INDEX)) == bucket.get(INDEX).payload


def test_space_is_bounded_and_the_last_used_stay(copies: CopyStore) -> None:
    bucket = FaultyStore(MemoryStore())
    paths = [f"tables/t1/index/{number}.index" for number in range(100)]
    for path in paths:
        bucket.put(path, os.urandom(100_000))
    store = CachedStore(bucket, copies, bytes_max=MIB)

    for path in paths:
        store.map(paths[0])
        store.map(path)
        assert store.byte_count <= MIB
    before = len(bucket.calls)
    store.map(paths[0])

    assert len(bucket.calls) == before
    assert sum(info.size for info in copies.list("")) <= MIB


def test_a_file_too_large_for_the_cache_is_read_all_the_same(bucket: FaultyStore) -> None:
    store = CachedStore(bucket, MemoryStore(), bytes_max=MIB)

    assert bytes(store.map(INDEX)) == bucket.get(INDEX).payload
    assert store.byte_count == 0


def test_two_lakes_share_a_directory_without_mixing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        inner = MemoryStore(name)
        inner.put(INDEX, name.encode())
        store = CachedStore(inner, LocalStore(str(tmp_path)), bytes_max=MIB)
        assert bytes(store.map(INDEX)) == name.encode()
    assert len(list(tmp_path.glob("*-rest"))) == 2


def test_a_directory_that_cannot_be_written_costs_requests_only(
    bucket: FaultyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = LocalStore(str(tmp_path))

    def refuse(path: str, payload: bytes) -> str:
        raise NotFound("no room", path=path, hint=str(len(payload)))

    monkeypatch.setattr(copies, "put", refuse)
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)

    for _ in range(2):
        assert bytes(store.map(INDEX)) == bucket.get(INDEX).payload
        assert store.get_range(DATA, start=0, length=4) == bucket.get(DATA).payload[:4]


def test_processes_evict_beside_readers(tmp_path: Path) -> None:
    bucket = MemoryStore()
    paths = [f"tables/t1/index/{number}.index" for number in range(40)]
    for number, path in enumerate(paths):
        bucket.put(path, bytes([number]) * 100_000)

    def read(_worker: int) -> int:
        store = CachedStore(bucket, LocalStore(str(tmp_path)), bytes_max=MIB)
        return sum(
            bytes(store.map(path)) != bytes([number]) * 100_000
            for _ in range(3)
            for number, path in enumerate(paths)
        )

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(read, range(4))) == 0


def test_a_deleted_file_is_forgotten(bucket: FaultyStore, copies: CopyStore) -> None:
    store = CachedStore(bucket, copies, bytes_max=64 * MIB)
    store.map(INDEX)

    store.delete(INDEX)

    with pytest.raises(NotFound):
        store.map(INDEX)
