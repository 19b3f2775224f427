"""Flushes: each memtable once, in order, and of the logs what is still needed."""

import threading

import pyarrow.compute as pc

import neve
from neve.model.version import Version
from neve.storage.memory_store import MemoryStore
from tests.unit.engine.tables import a_catalog, a_table, log_bytes, rows

BY_HAND = neve.TableOptions(background=False)


def copy_of(objects: MemoryStore) -> MemoryStore:
    """Return what a process would find that opens the table after this one died."""
    copy = MemoryStore()
    for info in objects.list(""):
        copy.put(info.path, objects.get(info.path).payload)
    return copy


def test_flushing_nothing_again_and_again_loses_nothing_that_comes_after() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        number = table.flush()
        assert table.flush() == number
        table.put({"id": 1, "v": 1, "text": "a"})
        table.flush()
        assert table.flush() == number + 1
        assert table.files()["record_count"].to_pylist() == [1]
        assert table.get(1) == {"id": 1, "v": 1, "text": "a"}


def test_deletes_of_keys_that_are_nowhere_make_no_version() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.delete_many([1, 2, 3])
        assert table.flush() == 1
        table.close()
        with lake.table("a.b", options=BY_HAND) as again:
            assert again.stats().memtable_rows == 0, "they are not replayed either"


def test_a_memtable_that_is_full_is_flushed_and_its_logs_go() -> None:
    options = neve.TableOptions(background=False, memtable_bytes=4_096, frozen_memtables=1)
    with a_catalog() as lake:
        table = a_table(lake, options=options)
        for number in range(500):
            table.put({"id": number, "v": 0, "text": "x" * 50})
        assert table.files().num_rows > 3
        assert log_bytes(table) < 50_000
        table.flush()
        assert pc.sum(table.files()["record_count"]).as_py() == 500
        assert table.scan().count() == 500


def test_writers_that_fill_a_memtable_together_flush_it_once() -> None:
    options = neve.TableOptions(background=False, memtable_bytes=4_096, frozen_memtables=1)
    with a_catalog() as lake:
        table = a_table(lake, options=options)
        table.flush()

        def write(thread: int) -> None:
            for number in range(100):
                table.put({"id": thread * 1_000 + number, "v": 0, "text": "x" * 50})

        crew = [threading.Thread(target=write, args=(thread,)) for thread in range(8)]
        for each in crew:
            each.start()
        for each in crew:
            each.join()
        table.flush()

        assert table.scan().count() == 800
        assert table.stats().deleted_count == 0, "no row was flushed twice"


def test_rows_of_a_second_memtable_survive_when_only_the_first_was_flushed() -> None:
    objects = MemoryStore()
    with a_catalog(objects) as lake:
        table = a_table(lake)
        writer = table._open.engine.writer
        for turn in range(3):
            table.put({"id": turn, "v": turn, "text": ""})
            writer._buffer.roll()
        writer.flush_once()
        died = copy_of(objects)

    with a_catalog(died) as lake, lake.table("a.b", options=BY_HAND) as again:
        assert again.stats().memtable_rows == 2
        assert again.scan().count() == 3


def test_a_second_reopening_replays_nothing_that_was_flushed() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.upsert(rows(0, 10))
        table.close()
        with lake.table("a.b", options=BY_HAND) as again:
            assert again.stats().memtable_rows == 10
            again.flush()
        with lake.table("a.b", options=BY_HAND) as third:
            assert third.stats().memtable_rows == 0
            assert third.scan().count() == 10


def test_an_old_log_that_comes_back_brings_no_old_row_back() -> None:
    objects = MemoryStore()
    with a_catalog(objects) as lake:
        table = a_table(lake)
        table.put({"id": 1, "v": 1, "text": "old"})
        (path,) = [
            info.path
            for info in objects.list(f"{table._open.stored.paths.wal}/")
            if info.path.endswith(".wal")
        ]
        old_log = objects.get(path).payload
        table.flush()
        table.put({"id": 1, "v": 2, "text": "new"})
        table.flush()
        table.close()
        objects.put(path, old_log)

        with lake.table("a.b", options=BY_HAND) as again:
            assert again.get(1) == {"id": 1, "v": 2, "text": "new"}
            again.flush()
            assert again.scan().to_arrow()["v"].to_pylist() == [2]


def test_a_version_that_is_shown_late_does_not_replace_a_newer_one() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        table.put({"id": 1, "v": 1, "text": ""})
        table.flush()
        current = table._open.engine.current
        older: Version = current.view.files.version
        table.put({"id": 2, "v": 2, "text": ""})
        table.flush()

        assert not current.install(older)

        assert table.scan().count() == 2
        assert current.view.version > older.number


def test_vectors_that_a_flush_wrote_are_not_read_again() -> None:
    with a_catalog() as lake:
        table = a_table(lake)
        for value in range(3):
            table.upsert(rows(0, 50 - value, v=value))
            table.flush()
        objects = table._open.stored.objects
        for info in list(objects.list(f"{table._open.stored.paths.deletes}/")):
            objects.delete(info.path)

        found = table.scan().to_arrow().sort_by("v")
        assert found["v"].to_pylist() == [0, 1, *[2] * 48]
