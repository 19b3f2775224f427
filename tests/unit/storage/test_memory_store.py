"""MemoryStore keeps the rules of both protocols, and a few of its own."""

import pytest

from neve.storage.memory_store import MemoryStore, forget_memory_stores, named_memory_store
from neve.storage.object_store import AppendFiles, ObjectStore
from neve.testing.append_contract import AppendFilesContract
from neve.testing.store_contract import ObjectStoreContract


class TestMemoryStoreKeepsTheObjectStoreContract(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


class TestMemoryStoreKeepsTheAppendFilesContract(AppendFilesContract):
    @pytest.fixture
    def files(self) -> tuple[AppendFiles, ObjectStore]:
        store = MemoryStore()
        return store, store


def test_equal_bytes_never_share_a_tag() -> None:
    store = MemoryStore()

    tags = [store.put("object", b"same") for _ in range(3)]
    store.delete("object")
    tags.append(store.put("object", b"same"))
    tags.append(store.put("other", b"same"))

    assert len(set(tags)) == 5


def test_bytes_changed_by_their_owner_do_not_change_the_object() -> None:
    store = MemoryStore()
    buffer = bytearray(b"before")

    store.put("object", buffer)  # type: ignore[arg-type]
    buffer[:] = b"after!"

    assert store.get("object").payload == b"before"


def test_a_listing_is_the_state_at_the_call() -> None:
    store = MemoryStore()
    store.put("a", b"")
    listing = store.list("")

    store.put("b", b"")
    store.delete("a")

    assert [info.path for info in listing] == ["a"]


def test_stores_of_one_name_are_one_store() -> None:
    named_memory_store("shared by name").put("object", b"x")

    assert named_memory_store("shared by name").get("object").payload == b"x"
    assert named_memory_store("shared by name").location == "memory://shared%20by%20name"
    assert list(named_memory_store("another name").list("")) == []


def test_a_forgotten_store_begins_anew_and_stays_for_whoever_holds_it() -> None:
    held = named_memory_store("forgotten")
    held.put("object", b"x")

    forget_memory_stores()

    assert list(named_memory_store("forgotten").list("")) == []
    assert held.get("object").payload == b"x"


def test_the_repr_says_where() -> None:
    assert repr(MemoryStore("lake")) == "MemoryStore('memory://lake')"


def test_the_tag_of_an_open_append_file_changes_with_every_append() -> None:
    store = MemoryStore()
    file = store.create("log")
    file.append([b"one"])
    before = store.get("log").tag

    file.append([b"two"])

    assert store.get_if_changed("log", tag=before) is not None
    assert store.put_if_match("log", b"replaced", tag=before) is None


def test_a_deleted_append_file_does_not_come_back_with_the_next_append() -> None:
    store = MemoryStore()
    file = store.create("log")
    store.delete("log")

    file.append([b"x"])

    assert list(store.list("")) == []


def test_an_object_put_over_an_open_append_file_is_not_appended_to() -> None:
    store = MemoryStore()
    file = store.create("log")
    store.put("log", b"an object")

    file.append([b"x"])

    assert store.get("log").payload == b"an object"
