"""Index files: a cache that is made where reads need it, and goes with the newest Version."""

from collections.abc import Iterator

import pytest

import neve
from neve.catalog.lake import Lake
from tests.unit.engine.tables import a_catalog, a_table, rows

OPTIONS = neve.TableOptions(background=False, cache_bytes=1, row_index_bytes=1 << 20)


@pytest.fixture
def lake() -> Iterator[Lake]:
    """Yield a catalog."""
    with a_catalog() as catalog:
        yield catalog


def index_sizes(table: neve.Table) -> dict[str, int]:
    stored = table._open.stored
    return {info.path: info.size for info in stored.objects.list(f"{stored.paths.index}/")}


def read_often(table: neve.Table) -> None:
    for number in range(0, 300, 30):
        assert table.get(number) == {"id": number, "v": 0, "text": "t"}
    found = table.get_many(list(range(0, 300, 3)))
    assert found.num_rows == 100


def test_a_flush_writes_the_key_index_only(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()

    assert list(index_sizes(table).values()) == [192 + 300 * 8]
    assert not table._open.engine.writer.index_once()


def test_rows_that_are_decoded_again_and_again_are_made_ready(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    read_often(table)

    assert table._open.engine.writer.index_once()

    (size,) = index_sizes(table).values()
    assert size > 192 + 300 * 16
    assert table.stats().index_bytes == size
    assert not table._open.engine.writer.index_once()
    read_often(table)
    assert not table._open.engine.writer.index_once()
    table.verify()


def test_a_missing_index_is_written_again(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    before = index_sizes(table)
    (path,) = before
    table._open.stored.objects.delete(path)
    table.close()
    table = lake.table("a.b", options=OPTIONS)
    read_often(table)

    assert table._open.engine.writer.index_once()

    assert index_sizes(table) == before
    read_often(table)


def test_rows_of_a_small_file_are_not_made_ready(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 64))
    table.flush()
    for number in range(64):
        assert table.get(number) == {"id": number, "v": 0, "text": "t"}

    assert not table._open.engine.writer.index_once()
    assert index_sizes(table) == {}


def test_a_damaged_file_does_not_keep_others_from_their_index(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    (damaged,) = table.files()["file_path"].to_pylist()
    table.upsert(rows(300, 600))
    table.flush()
    (whole,) = {*table.files()["file_path"].to_pylist()} - {damaged}
    before = index_sizes(table)
    objects, paths = table._open.stored.objects, table._open.stored.paths
    table.close()
    for path in before:
        objects.delete(path)
    payload = bytearray(objects.get(f"{paths.root}/{damaged}").payload)
    # Pages only: a file with a damaged footer is not opened, and wants no index.
    pages = len(payload) - 8 - int.from_bytes(payload[-8:-4], "little")
    payload[4:pages] = bytes(pages - 4)
    objects.put(f"{paths.root}/{damaged}", bytes(payload))
    table = lake.table("a.b", options=OPTIONS)
    # The damaged file is read first, so its index would be made first, too.
    with pytest.raises(neve.Corruption):
        table.get(30)
    assert table.get(330) is not None
    writer = table._open.engine.writer

    written = [writer.index_once() for _ in range(3)]

    assert written == [False, True, False]
    assert [*index_sizes(table)] == [paths.index_of(str(whole))]


def test_a_refused_index_does_not_stop_the_upkeep(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    read_often(table)

    def refuse(*_given: object, **_named: object) -> None:
        raise neve.StorageRefused("no permission to write")

    with monkeypatch.context() as patched:
        patched.setattr("neve.sstable.index_file.put_file", refuse)
        assert not table._open.engine.writer.index_once()
    assert table._open.engine.writer.index_once()


def test_files_of_older_versions_have_no_index(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    (old,) = index_sizes(table)
    version = table.version
    with table.snapshot() as snapshot:
        table.compact(full=True)
        table.upsert(rows(300, 600))
        table.flush()
        table.compact(full=True)

        assert old not in index_sizes(table)
        assert len(index_sizes(table)) == len(table.files())
        assert snapshot.get(30) == {"id": 30, "v": 0, "text": "t"}
    assert table.at(version).get(30) == {"id": 30, "v": 0, "text": "t"}


def test_garbage_collection_finds_indexes_of_older_versions(lake: Lake) -> None:
    table = a_table(lake, options=OPTIONS)
    table.upsert(rows(0, 300))
    table.flush()
    ((old, size),) = index_sizes(table).items()
    payload = table._open.stored.objects.get(old).payload
    table.upsert(rows(0, 300))
    table.flush()
    table.compact(full=True)
    # What a job on another machine leaves, which does not delete it.
    table._open.stored.objects.put(old, payload)

    report = table.collect_garbage(dry_run=False)

    assert old not in index_sizes(table)
    assert report.byte_count >= size
