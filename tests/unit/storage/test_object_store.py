"""Objects as Arrow buffers, mapped where a store can."""

import errno
import os
from pathlib import Path

import pytest

from neve.errors import Corruption, InvalidArgument, LimitExceeded, NotFound, Unavailable
from neve.storage import posix_disk
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import MapsObjects, ObjectStore, TakesPieces, map_object, put_file
from neve.storage.posix_disk import PosixDisk
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import Failure, FaultyDisk
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault
from neve.testing.simulated_disk import SimulatedDisk

PAYLOAD = bytes(range(256)) * 40


def stores(place: Path) -> dict[str, ObjectStore]:
    return {
        "local": LocalStore(str(place)),
        "simulated": LocalStore("/lake", disk=SimulatedDisk()),
        "memory": MemoryStore(),
        "faulty": FaultyStore(MemoryStore()),
    }


STORES = ["local", "simulated", "memory", "faulty"]


@pytest.mark.parametrize("kind", STORES)
def test_an_object_is_given_whole_and_cannot_be_written(kind: str, tmp_path: Path) -> None:
    store = stores(tmp_path)[kind]
    store.put("index/a", PAYLOAD)

    found = map_object(store, "index/a")

    assert found.to_pybytes() == PAYLOAD
    assert memoryview(found).readonly


@pytest.mark.parametrize("kind", STORES)
def test_an_object_that_is_not_there_is_not_found(kind: str, tmp_path: Path) -> None:
    store = stores(tmp_path)[kind]
    store.put("index/a/b", PAYLOAD)

    for missing in ("index/c", "index/a/b/c"):
        with pytest.raises(NotFound) as caught:
            map_object(store, missing)
        assert caught.value.path == missing


@pytest.mark.parametrize("kind", STORES)
def test_an_empty_object_is_an_empty_buffer(kind: str, tmp_path: Path) -> None:
    store = stores(tmp_path)[kind]
    store.put("index/a", b"")

    assert map_object(store, "index/a").size == 0


def test_mapped_bytes_outlive_the_object_and_its_replacement(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("index/a", PAYLOAD)
    first = map_object(store, "index/a")
    store.put("index/a", b"other")
    second = map_object(store, "index/a")
    store.delete("index/a")

    assert first.to_pybytes() == PAYLOAD
    assert second.to_pybytes() == b"other"


def test_a_mapping_starts_on_a_page_and_holds_no_handle(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("index/a", PAYLOAD)
    before = len([*Path("/dev/fd").iterdir()])

    mapped = [map_object(store, "index/a") for _ in range(5)]

    assert len([*Path("/dev/fd").iterdir()]) == before
    assert all(each.address % 4_096 == 0 for each in mapped)


def test_a_system_without_a_list_of_open_files_maps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix_disk, "_OPEN_FILES", str(tmp_path / "not mounted"))
    store = LocalStore(str(tmp_path / "lake"))
    store.put("index/a", PAYLOAD)

    mapped = map_object(store, "index/a")
    store.delete("index/a")

    assert mapped.to_pybytes() == PAYLOAD


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"secret")
    store = LocalStore(str(tmp_path / "lake"))
    store.put("index/a", PAYLOAD)
    (tmp_path / "lake" / "index" / "b").symlink_to(outside)

    with pytest.raises(Corruption):
        map_object(store, "index/b")


def test_a_name_that_leaves_the_store_is_refused_before_the_disk_is_asked() -> None:
    disk = SimulatedDisk()
    store = LocalStore("/lake", disk=disk)
    calls = disk.calls

    with pytest.raises(InvalidArgument):
        map_object(store, "../etc/passwd")

    assert disk.calls == calls


def test_a_disk_that_fails_is_unavailable_and_keeps_no_handle() -> None:
    simulated = SimulatedDisk()
    disk = FaultyDisk(simulated)
    store = LocalStore("/lake", disk=disk)
    store.put("index/a", PAYLOAD)
    disk.plan(Failure(at=1, kind=CallKind.MAP_FILE, number=errno.EIO))

    with pytest.raises(Unavailable) as caught:
        map_object(store, "index/a")

    assert caught.value.path == "index/a"
    assert simulated.open_handles == 0
    assert map_object(store, "index/a").to_pybytes() == PAYLOAD


def test_a_store_that_fails_by_plan_is_read_by_its_plan(tmp_path: Path) -> None:
    plan = [PlannedFault(fault=Fault.BEFORE, operation=Operation.GET)]
    store = FaultyStore(LocalStore(str(tmp_path)), plan)
    store.put("index/a", PAYLOAD)

    assert not isinstance(store, MapsObjects)
    with pytest.raises(Unavailable):
        map_object(store, "index/a")


def test_an_open_file_that_is_no_plain_file_is_not_mapped(tmp_path: Path) -> None:
    disk = PosixDisk()
    handle = disk.open_file(str(tmp_path))
    try:
        with pytest.raises(OSError, match="directory"):
            disk.map_file(handle)
    finally:
        disk.close(handle)


PIECES = (b"ab", memoryview(b"cd"), b"", memoryview(b"e"))


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return LocalStore(str(tmp_path)) if request.param == "disk" else MemoryStore()


def test_pieces_become_one_object(store: ObjectStore) -> None:
    put_file(store, "a/b", PIECES)
    put_file(store, "a/b", (*PIECES, b"f"))

    assert store.get("a/b").payload == b"abcdef"


def test_a_file_without_pieces_is_empty(store: ObjectStore) -> None:
    put_file(store, "a", ())

    assert store.get("a").payload == b""


def test_an_object_in_pieces_has_the_tag_of_its_bytes(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert isinstance(store, TakesPieces)
    put_file(store, "a", PIECES)

    assert store.put("b", b"abcde") == store.get("a").tag


def test_pieces_that_are_too_much_together_are_refused(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path), object_bytes_max=4)

    with pytest.raises(LimitExceeded):
        put_file(store, "a", PIECES)

    assert list(store.list("")) == []


# Reading into memory of the caller


@pytest.mark.parametrize("kind", ["local", "simulated", "without preadv"])
def test_bytes_are_read_to_where_the_caller_wants_them(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "without preadv":
        monkeypatch.delattr(os, "preadv")
    store = LocalStore("/lake", disk=SimulatedDisk()) if kind == "simulated" else None
    store = store or LocalStore(str(tmp_path))
    store.put("data/a", PAYLOAD)
    memory = bytearray(20)
    view = memoryview(memory)

    assert store.read_into("data/a", [(300, (view[2:5], view[10:12])), (7, (view[:2], view[5:5]))])

    assert memory[:5] == PAYLOAD[7:9] + PAYLOAD[300:303]
    assert memory[10:12] == PAYLOAD[303:305]
    end = len(PAYLOAD)
    assert not store.read_into("data/a", [(end - 1, (view[:2],))])
    assert not store.read_into("data/a", [(end + 5, (view[:2],))])
    assert store.read_into("data/a", [(end - 1, (view[:1],))])
    assert store.read_into("data/a", [])
    with pytest.raises(NotFound):
        store.read_into("data/b", [(0, (view,))])


def test_a_disk_that_fails_while_memory_is_filled_keeps_no_handle() -> None:
    simulated = SimulatedDisk()
    disk = FaultyDisk(simulated)
    store = LocalStore("/lake", disk=disk)
    store.put("data/a", PAYLOAD)
    disk.plan(Failure(at=1, kind=CallKind.READ, number=errno.EIO))

    with pytest.raises(Unavailable):
        store.read_into("data/a", [(0, (memoryview(bytearray(5)),))])

    assert simulated.open_handles == 0


def test_only_plain_files_are_read_into_memory(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("data/a/b", PAYLOAD)

    with pytest.raises(NotFound):
        store.read_into("data/a", [(0, (memoryview(bytearray(5)),))])
