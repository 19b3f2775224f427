"""AppendFilesContract: the rules of AppendFiles, as tests that an implementation inherits.

    class TestMyFiles(AppendFilesContract):
        @pytest.fixture
        def files(self) -> tuple[AppendFiles, ObjectStore]:
            store = MyStore()
            return store, store

A class whose files reserve no space sets `reserves_space = False`. The store must be empty; tests
read through the ObjectStore beside it. Each test names the rule of
`neve.storage.object_store` that it checks. The parts of STORAGE-8 to STORAGE-11 about power loss
and failing disks are tested with a simulated disk.
"""

# ruff: noqa: D102, PLR2004  the name of a test is its sentence, and its numbers are its example

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import pytest

from neve.errors import (
    AlreadyExists,
    Closed,
    Fenced,
    InvalidArgument,
    LimitExceeded,
    NotFound,
)
from neve.storage.object_store import (
    AppendFile,
    AppendFiles,
    AppendsDurably,
    LockHandle,
    ObjectStore,
)

Files = tuple[AppendFiles, ObjectStore]

HOSTILE_PATHS: Final = ("", "..", "/absolute", "../outside", "a//b", "nul\x00byte", "a\\b")


class AppendFilesContract:
    """Inherit it and add a fixture `files` to check every rule."""

    reserves_space: bool = True
    """Whether preallocated and recycled bytes are there until they are written over."""

    # STORAGE-8 names

    def test_a_new_file_is_there_at_once(self, files: Files) -> None:
        appending, store = files

        file = appending.create("wal/1/000001.wal")

        assert file.path == "wal/1/000001.wal"
        assert file.position == 0
        assert [info.path for info in store.list("wal/")] == ["wal/1/000001.wal"]
        assert store.get("wal/1/000001.wal").payload == b""
        file.close()

    def test_a_taken_name_cannot_be_created(self, files: Files) -> None:
        appending, store = files
        first = appending.create("log")
        first.append([b"first"])
        store.put("object", b"an object")

        with pytest.raises(AlreadyExists):
            appending.create("log")
        with pytest.raises(AlreadyExists):
            appending.create("object")

        assert store.get("log").payload == b"first"
        assert store.get("object").payload == b"an object"
        first.close()

    def test_a_race_to_create_has_one_winner(self, files: Files) -> None:
        appending, _ = files

        def create(_racer: int) -> AppendFile | None:
            try:
                return appending.create("log")
            except AlreadyExists:
                return None

        with ThreadPoolExecutor(8) as threads:
            winners = [file for file in threads.map(create, range(8)) if file is not None]

        assert len(winners) == 1
        winners[0].close()

    # STORAGE-9 and STORAGE-10 bytes, as far as they show without a crash

    def test_pieces_come_one_behind_the_other(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log")

        file.append([b"one"])
        file.append([b"two", memoryview(b"-three-")[1:6], b""])
        file.append([])
        file.append([b""])
        file.sync()

        assert file.position == len(b"onetwothree")
        assert store.get("log").payload == b"onetwothree"
        file.close()

    def test_bytes_can_be_read_before_they_are_synced(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log")

        file.append([b"unsynced"])

        assert store.get_range("log", start=2, length=4) == b"sync"
        file.close()

    def test_a_durable_append_comes_behind_the_others(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log")
        if isinstance(file, AppendsDurably):
            file.append([b"one"])
            file.sync()
            file.append_durably(b"two")
            file.append_durably(b"")
            file.append([b"three"])

            assert file.position == len(b"onetwothree")
            assert store.get("log").payload == b"onetwothree"
        file.close()

    def test_thousands_of_pieces_are_one_append(self, files: Files) -> None:
        appending, store = files
        pieces = [number.to_bytes(2) for number in range(5_000)]
        file = appending.create("log")

        file.append(pieces)

        assert file.position == 10_000
        assert store.get("log").payload == b"".join(pieces)
        file.close()

    def test_preallocated_bytes_are_zeros_behind_the_end(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log", preallocate_bytes=1_000)

        file.append([b"abc"])

        assert file.position == 3
        assert store.get("log").payload == b"abc" + bytes(997) * self.reserves_space
        file.append([b"x" * 1_000])
        assert store.size("log") == 1_003
        file.close()

    def test_truncating_leaves_what_was_appended(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log", preallocate_bytes=1_000)
        file.append([b"abc"])

        file.truncate_to_position()
        file.append([b"def"])
        file.sync()

        assert store.get("log").payload == b"abcdef"
        file.close()

    def test_a_recycled_file_is_written_over_from_its_start(self, files: Files) -> None:
        appending, store = files
        old = appending.create("wal/1/000001.wal")
        old.append([b"old bytes"])
        old.close()

        file = appending.recycle("wal/1/000001.wal", new_path="wal/2/000007.wal")
        file.append([b"NEW"])

        assert file.path == "wal/2/000007.wal"
        assert file.position == 3
        assert store.get("wal/2/000007.wal").payload == b"NEW" + b" bytes" * self.reserves_space
        assert [info.path for info in store.list("wal/")] == ["wal/2/000007.wal"]
        file.truncate_to_position()
        assert store.get("wal/2/000007.wal").payload == b"NEW"
        file.close()

    def test_a_recycled_file_can_be_made_longer(self, files: Files) -> None:
        appending, store = files
        appending.create("old").close()

        longer = appending.recycle("old", new_path="new", preallocate_bytes=100)
        longer.close()
        same = appending.recycle("new", new_path="newer", preallocate_bytes=50)
        same.close()

        assert store.get("newer").payload == bytes(100) * self.reserves_space

    def test_a_missing_file_cannot_be_recycled(self, files: Files) -> None:
        appending, store = files

        with pytest.raises(NotFound):
            appending.recycle("missing", new_path="new")

        assert list(store.list("")) == []

    def test_recycling_does_not_replace_another_file(self, files: Files) -> None:
        appending, store = files
        store.put("old", b"old")
        store.put("taken", b"taken")

        with pytest.raises(AlreadyExists):
            appending.recycle("old", new_path="taken")

        assert store.get("old").payload == b"old"
        assert store.get("taken").payload == b"taken"

    def test_a_negative_preallocation_is_refused(self, files: Files) -> None:
        appending, store = files
        store.put("old", b"old")

        with pytest.raises(InvalidArgument):
            appending.create("log", preallocate_bytes=-1)
        with pytest.raises(InvalidArgument):
            appending.create("log", preallocate_bytes=-(10**5_000))
        with pytest.raises(InvalidArgument):
            appending.recycle("old", new_path="log", preallocate_bytes=-1)

        assert [info.path for info in store.list("")] == ["old"]

    @pytest.mark.parametrize("size", [(5 << 30) + 1, 1 << 63, 1 << 70])
    def test_a_preallocation_beyond_any_file_is_refused(self, files: Files, size: int) -> None:
        appending, store = files
        store.put("old", b"old")

        with pytest.raises(LimitExceeded) as refusal:
            appending.create("log", preallocate_bytes=size)
        with pytest.raises(LimitExceeded):
            appending.recycle("old", new_path="log", preallocate_bytes=size)

        assert refusal.value.actual == size
        assert [info.path for info in store.list("")] == ["old"]

    def test_what_another_writer_left_can_be_made_durable(self, files: Files) -> None:
        appending, store = files
        left = appending.create("wal/log")
        left.append([b"not synced"])
        left.close()
        store.put("wal/object", b"an object")

        appending.make_durable("wal/log")
        appending.make_durable("wal/object")

        assert store.get("wal/log").payload == b"not synced"

    def test_a_missing_file_cannot_be_made_durable(self, files: Files) -> None:
        appending, store = files

        with pytest.raises(NotFound):
            appending.make_durable("wal/missing")

        assert list(store.list("")) == []

    # STORAGE-11 closed files

    def test_a_closed_file_takes_no_calls(self, files: Files) -> None:
        appending, store = files
        file = appending.create("log")
        file.append([b"abc"])
        file.close()

        calls: list[Callable[[], None]] = [
            lambda: file.append([b"x"]),
            lambda: file.append([b"x", b"y"]),
            file.sync,
            file.truncate_to_position,
        ]
        if isinstance(file, AppendsDurably):
            calls.append(partial(file.append_durably, b"x"))
        for call in calls:
            with pytest.raises(Closed):
                call()

        assert store.get("log").payload == b"abc"

    def test_closing_twice_does_nothing_more(self, files: Files) -> None:
        appending, _ = files
        file = appending.create("log")

        file.close()
        file.close()

        with pytest.raises(Closed):
            file.sync()

    # STORAGE-12 locks

    def test_a_held_lock_is_refused_to_another(self, files: Files) -> None:
        appending, _ = files
        held = appending.lock("wal/LOCK")

        with pytest.raises(Fenced) as refusal:
            appending.lock("wal/LOCK")

        assert refusal.value.path == "wal/LOCK"
        assert refusal.value.hint
        held.release()

    def test_a_released_lock_can_be_taken_again(self, files: Files) -> None:
        appending, _ = files

        for _ in range(3):
            appending.lock("wal/LOCK").release()
        held = appending.lock("wal/LOCK")

        with pytest.raises(Fenced):
            appending.lock("wal/LOCK")
        held.release()

    def test_releasing_twice_frees_nobody_elses_lock(self, files: Files) -> None:
        appending, _ = files
        first = appending.lock("wal/LOCK")
        first.release()
        second = appending.lock("wal/LOCK")

        first.release()

        with pytest.raises(Fenced):
            appending.lock("wal/LOCK")
        second.release()

    def test_locks_of_different_paths_do_not_meet(self, files: Files) -> None:
        appending, _ = files

        held = {path: appending.lock(path) for path in ("a/wal/LOCK", "b/wal/LOCK", "c/wal/LOCK")}

        held["a/wal/LOCK"].release()
        for path in ("b/wal/LOCK", "c/wal/LOCK"):
            with pytest.raises(Fenced):
                appending.lock(path)
            held[path].release()

    def test_a_race_for_a_lock_has_one_winner(self, files: Files) -> None:
        appending, _ = files

        def take(_racer: int) -> LockHandle | None:
            try:
                return appending.lock("wal/LOCK")
            except Fenced:
                return None

        with ThreadPoolExecutor(8) as threads:
            winners = [lock for lock in threads.map(take, range(8)) if lock is not None]

        assert len(winners) == 1
        winners[0].release()

    def test_a_lock_is_not_an_object(self, files: Files) -> None:
        appending, store = files

        held = appending.lock("wal/LOCK")

        assert list(store.list("")) == []
        held.release()
        assert list(store.list("")) == []

    def test_the_name_of_a_lock_is_good_for_nothing_else(self, files: Files) -> None:
        appending, store = files
        store.put("witness", b"unchanged")
        held = appending.lock("wal/LOCK")

        calls: list[Callable[[], object]] = [
            lambda: appending.create("wal/LOCK"),
            lambda: appending.recycle("wal/LOCK", new_path="new"),
            lambda: appending.recycle("witness", new_path="wal/LOCK"),
            lambda: appending.make_durable("wal/LOCK"),
            lambda: store.put("wal/LOCK", b"x"),
            lambda: store.delete("wal/LOCK"),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument):
                call()

        assert [info.path for info in store.list("")] == ["witness"]
        with pytest.raises(Fenced):
            appending.lock("wal/LOCK")
        held.release()

    # What is not a plain file

    def test_files_and_a_directory_that_is_not_there_are_nothing_odd(self, files: Files) -> None:
        appending, store = files
        appending.create("wal/000001.wal").close()
        store.put("wal/note", b"a plain file")
        appending.lock("wal/LOCK").release()

        assert appending.odd_entries("wal") == {}
        assert appending.odd_entries("nowhere") == {}

    def test_a_lock_of_another_name_is_refused(self, files: Files) -> None:
        appending, _ = files

        for path in ("lock", "wal/lock", "wal/LOCK2"):
            with pytest.raises(InvalidArgument) as refusal:
                appending.lock(path)

            assert refusal.value.hint

    # Writers that follow each other

    def test_nothing_is_fenced_where_nothing_was_written(self, files: Files) -> None:
        appending, store = files

        appending.fence("wal", below=1)
        appending.fence("wal", below=2)

        assert list(store.list("")) == []

    def test_a_writer_is_not_fenced_by_its_own_number(self, files: Files) -> None:
        appending, store = files
        file = appending.create("wal/2/000001.wal")
        file.append([b"before"])
        file.sync()

        appending.fence("wal", below=2)
        file.append([b", after"])
        file.sync()

        assert store.get("wal/2/000001.wal").payload == b"before, after"
        file.close()

    # Names

    @pytest.mark.parametrize("path", HOSTILE_PATHS, ids=ascii)
    def test_a_hostile_name_is_refused(self, files: Files, path: str) -> None:
        appending, store = files
        store.put("witness", b"unchanged")

        calls: list[Callable[[], object]] = [
            lambda: appending.create(path),
            lambda: appending.recycle(path, new_path="new"),
            lambda: appending.recycle("witness", new_path=path),
            lambda: appending.make_durable(path),
            lambda: appending.odd_entries(path),
            lambda: appending.lock(path),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument):
                call()

        assert [info.path for info in store.list("")] == ["witness"]
        assert store.get("witness").payload == b"unchanged"
