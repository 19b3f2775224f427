"""MemoryStore keeps the rules of both protocols, and a few of its own."""

import pytest

from neve.errors import AlreadyExists, Closed, Fenced, InvalidArgument, NotFound
from neve.storage.append_file import AppendFiles
from neve.storage.memory_store import MemoryStore, named_memory_store
from neve.storage.object_store import ObjectStore
from neve.testing.store_contract import ObjectStoreContract


class TestMemoryStoreKeepsTheObjectStoreContract(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return MemoryStore()


def test_it_fits_both_protocols() -> None:
    objects: ObjectStore = MemoryStore()
    files: AppendFiles = MemoryStore()

    assert objects.location == "memory://"
    assert files.create("log").position == 0


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


def test_the_repr_says_where() -> None:
    assert repr(MemoryStore("lake")) == "MemoryStore('memory://lake')"


class TestAppendFiles:
    def test_an_open_file_is_readable_as_an_object(self) -> None:
        store = MemoryStore()
        file = store.create("log")

        file.append([b"one", memoryview(b"two")])
        file.append([])
        file.sync()

        assert store.get("log").payload == b"onetwo"
        assert file.position == 6
        assert file.path == "log"

    def test_the_tag_changes_with_every_append(self) -> None:
        store = MemoryStore()
        file = store.create("log")
        file.append([b"one"])
        before = store.get("log").tag

        file.append([b"two"])

        assert store.get_if_changed("log", tag=before) is not None

    def test_preallocated_bytes_are_zero_until_written_and_can_be_cut(self) -> None:
        store = MemoryStore()
        file = store.create("log", preallocate_bytes=8)

        file.append([b"abc"])
        assert store.get("log").payload == b"abc\0\0\0\0\0"
        file.truncate_to_position()

        assert store.get("log").payload == b"abc"

    def test_a_recycled_file_keeps_its_old_bytes_behind_the_new(self) -> None:
        store = MemoryStore()
        store.create("1.wal").append([b"old bytes"])

        file = store.recycle("1.wal", new_path="2.wal", preallocate_bytes=12)
        file.append([b"NEW"])

        assert store.get("2.wal").payload == b"NEW bytes\0\0\0"
        with pytest.raises(NotFound):
            store.get("1.wal")

    def test_a_missing_file_cannot_be_recycled(self) -> None:
        with pytest.raises(NotFound):
            MemoryStore().recycle("1.wal", new_path="2.wal")

    def test_a_taken_name_is_neither_created_nor_recycled_over(self) -> None:
        store = MemoryStore()
        store.put("1.wal", b"one")
        store.put("2.wal", b"two")

        with pytest.raises(AlreadyExists):
            store.create("1.wal")
        with pytest.raises(AlreadyExists):
            store.recycle("1.wal", new_path="2.wal")

        assert store.get("1.wal").payload == b"one"
        assert store.get("2.wal").payload == b"two"

    def test_a_negative_preallocation_is_refused(self) -> None:
        with pytest.raises(InvalidArgument):
            MemoryStore().create("log", preallocate_bytes=-1)

    def test_a_closed_file_takes_nothing(self) -> None:
        file = MemoryStore().create("log")
        file.close()
        file.close()

        with pytest.raises(Closed):
            file.append([b"x"])
        with pytest.raises(Closed):
            file.sync()
        with pytest.raises(Closed):
            file.truncate_to_position()

    def test_a_deleted_file_does_not_come_back_with_the_next_append(self) -> None:
        store = MemoryStore()
        file = store.create("log")
        store.delete("log")

        file.append([b"x"])

        assert list(store.list("")) == []


class TestLocks:
    def test_a_held_lock_fences_everybody_else(self) -> None:
        store = MemoryStore()
        store.lock("wal/LOCK")

        with pytest.raises(Fenced) as refused:
            store.lock("wal/LOCK")

        assert refused.value.path == "wal/LOCK"

    def test_a_released_lock_is_free_and_releasing_twice_frees_nobody_elses(self) -> None:
        store = MemoryStore()
        first = store.lock("wal/LOCK")
        first.release()

        store.lock("wal/LOCK")
        first.release()

        with pytest.raises(Fenced):
            store.lock("wal/LOCK")

    def test_locks_of_different_names_are_independent(self) -> None:
        store = MemoryStore()

        store.lock("a/LOCK").release()
        store.lock("b/LOCK")
        store.lock("a/LOCK")

        assert list(store.list("")) == []
