"""A reader beside the writer reads on where it was; what it cannot read on, it reads again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import neve
from neve.memtable.memtable import Memtable
from neve.storage.local_store import LocalStore
from tests.unit.engine.tables import a_catalog, a_table, rows

OPTIONS = neve.TableOptions(background=False, log_bytes=32 << 10)


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with a_catalog() as lake:
        yield lake


@pytest.fixture
def both(lake: neve.Lake) -> tuple[neve.Table, neve.Table]:
    """Return a writer and a reader of one table."""
    return a_table(lake, options=OPTIONS), lake.table("a.b", read_only=True)


def row(key: int, v: int = 0) -> dict[str, object]:
    return {"id": key, "v": v, "text": "t"}


def memory(table: neve.Table) -> tuple[Memtable, ...]:
    return table._open.engine.current.view.memtables


def seen(table: neve.Table) -> dict[object, object]:
    found = table.refresh().scan().to_arrow().to_pylist()
    return {each["id"]: each["v"] for each in found}


def test_rows_are_added_to_those_that_were_read_before(
    both: tuple[neve.Table, neve.Table],
) -> None:
    writer, reader = both
    writer.put(row(1))
    assert seen(reader) == {1: 0}
    first = memory(reader)

    writer.put(row(2))
    writer.upsert(rows(3, 6))
    writer.delete(1)
    writer.apply([{"op": "c", **row(9, 9)}], app_id="feed", batch=3)

    assert seen(reader) == {2: 0, 3: 0, 4: 0, 5: 0, 9: 9}
    assert memory(reader) == first
    assert reader.last_batch("feed") == 3


def test_a_look_reads_what_is_new_and_not_the_space_reserved_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    get_range = LocalStore.get_range

    def counted(store: LocalStore, path: str, *, start: int, length: int) -> bytes:
        found = get_range(store, path, start=start, length=length)
        read.append(len(found) if "/wal/" in path else 0)
        return found

    monkeypatch.setattr(LocalStore, "get_range", counted)
    options = neve.TableOptions(background=False, sync="none")
    with neve.open(str(tmp_path)) as lake, neve.open(str(tmp_path), read_only=True) as other:
        writer = a_table(lake, options=options)
        writer.put(row(1))
        reader = other.table("a.b")
        # Among all of them, some records end at each place near the end of a block.
        for last in range(1_000, 6_000, 1_000):
            for key in range(last - 1_000, last):
                writer.put(row(key, last) | {"text": "t" * (key % 90)})
            read.clear()

            assert seen(reader) == {key: key // 1_000 * 1_000 + 1_000 for key in range(last)}
            assert 0 < sum(read) < 1 << 20


def test_a_snapshot_that_was_taken_before_stays_as_it_was(
    both: tuple[neve.Table, neve.Table],
) -> None:
    writer, reader = both
    writer.put(row(1, 1))
    reader.refresh()
    with reader.snapshot() as taken:
        writer.put(row(1, 2))
        writer.put(row(2, 2))

        assert seen(reader) == {1: 2, 2: 2}
        assert taken.get(1) == row(1, 1)
        assert taken.get(2) is None


def test_each_log_has_a_memtable_that_goes_once_it_is_flushed(
    both: tuple[neve.Table, neve.Table],
) -> None:
    writer, reader = both
    writer.put(row(0))
    reader.refresh()
    for key in range(1, 4_000):
        writer.put(row(key))
        if key % 500 == 0:
            reader.refresh()
    assert seen(reader) == dict.fromkeys(range(4_000), 0)
    assert len(memory(reader)) > 3
    newest = memory(reader)[0]

    writer.flush()

    assert seen(reader) == dict.fromkeys(range(4_000), 0)
    assert newest not in memory(reader)
    assert sum(each.row_count for each in memory(reader)) == 0


def test_a_row_that_a_job_wrote_after_the_flush_is_not_hidden(
    lake: neve.Lake, both: tuple[neve.Table, neve.Table]
) -> None:
    writer, reader = both
    writer.put(row(1, 1))
    assert seen(reader) == {1: 1}

    writer.flush()
    with lake.bulk("a.b") as job:
        job.upsert([row(1, 2)])

    assert seen(reader) == {1: 2}
    assert seen(writer) == {1: 2}


def test_partial_writes_and_new_columns_are_read_again(
    both: tuple[neve.Table, neve.Table],
) -> None:
    writer, reader = both
    writer.put(row(1, 1))
    writer.flush()
    assert seen(reader) == {1: 1}

    writer.upsert([{"id": 1, "v": 5}], columns=["v"])
    assert seen(reader) == {1: 5}
    with writer.evolve() as change:
        change.add_column("more", "long")
    writer.put({**row(2, 2), "more": 7})

    assert reader.refresh().get(2) == {**row(2, 2), "more": 7}
    assert reader.get(1) == {**row(1, 5), "more": None}
