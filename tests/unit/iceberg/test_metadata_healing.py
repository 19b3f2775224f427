"""A folder that is damaged under a process that goes on: it is noticed, and made whole again."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import neve
from neve.errors import Unavailable
from tests.unit.iceberg.published_lake import BY_HAND, PublishedLake


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[PublishedLake]:
    made = PublishedLake(tmp_path)
    made.commit(1, 2)
    made.commit(2, 3)
    made.table.delete(1)
    made.table.flush()
    yield made
    made.close()


@pytest.mark.parametrize(
    "pattern", ["version-hint.text", "v4.metadata.json", "snap-*.avro", "m-*.avro", "*"]
)
@pytest.mark.parametrize("damage", ["deleted", "emptied"])
def test_asking_for_the_metadata_makes_a_damaged_folder_whole(
    lake: PublishedLake, pattern: str, damage: str
) -> None:
    for path in lake.metadata.glob(pattern):
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(b"")

    assert lake.read() == [2, 3]
    assert lake.document()["current-snapshot-id"] == 4
    lake.commit(4)
    assert lake.read() == [2, 3, 4]


def test_a_folder_that_is_gone_is_made_again(lake: PublishedLake) -> None:
    shutil.rmtree(lake.metadata)

    with pytest.raises(Unavailable, match="removed in the meantime"):
        lake.table.iceberg_metadata()
    assert lake.read() == [2, 3]


def test_a_document_with_other_bytes_is_written_again(lake: PublishedLake) -> None:
    path = lake.metadata / "v4.metadata.json"
    path.write_text(path.read_text().replace('"last-column-id":2', '"last-column-id":9'))

    lake.table.iceberg_metadata()

    assert lake.document()["last-column-id"] == 2


def test_commits_notice_now_and_then_that_manifests_are_gone(
    lake: PublishedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.iceberg.publisher._COLLECT_EVERY", 1)
    for path in lake.metadata.glob("m-*.avro"):
        path.unlink()

    lake.commit(4)

    hint = (lake.metadata / "version-hint.text").read_text()
    assert lake.read(f"file://{lake.metadata}/v{hint}.metadata.json") == [2, 3, 4]


def test_an_old_snapshot_that_lost_a_manifest_can_be_read_again(lake: PublishedLake) -> None:
    lake.table.compact(full=True)
    for path in lake.metadata.glob("m-2-*.avro"):
        path.unlink()
    lake.reopen()

    location = lake.table.iceberg_metadata()

    assert [lake.read(location, version) for version in (2, 3, 4, 5)] == [
        [1, 2], [1, 2, 3], [2, 3], [2, 3]
    ]  # fmt: skip


def test_what_is_published_after_a_document_that_was_put_there_is_the_newest(
    lake: PublishedLake,
) -> None:
    shutil.copy(lake.metadata / "v2.metadata.json", lake.metadata / "v99.metadata.json")
    (lake.metadata / "version-hint.text").write_text("99")

    lake.commit(4)
    lake.reopen()

    assert lake.read() == [2, 3, 4]
    assert lake.document()["properties"]["neve.version"] == "5"


@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut"])
def test_damaged_position_deletes_are_written_again(tmp_path: Path, damage: str) -> None:
    lake = PublishedLake(tmp_path, format_version="2")
    lake.commit(1, 2, 3)
    lake.commit(2)
    lake.table.delete(1)
    lake.table.flush()
    for path in tmp_path.glob("tables/*/deletes/*.parquet"):
        if damage == "deleted":
            path.unlink()
        else:
            path.write_bytes(b"" if damage == "emptied" else path.read_bytes()[:100])

    assert lake.read() == [2, 3]
    lake.reopen()
    assert lake.read() == [2, 3]
    lake.close()


@pytest.mark.parametrize("format_version", ["3", "2"])
def test_deletes_are_those_of_the_new_place_when_a_warehouse_moved(
    tmp_path: Path, format_version: str
) -> None:
    lake = PublishedLake(tmp_path / "old", format_version=format_version)
    lake.commit(1, 2, 3)
    lake.commit(4, 5)
    lake.commit(2, 4)
    lake.table.delete(1)
    lake.table.flush()
    lake.close()
    for place in ("new", "old"):  # and back again
        lake.folder = lake.folder.rename(tmp_path / place)
        lake.lake = neve.open(lake.folder)
        lake.table = lake.lake.table("shop.orders", options=BY_HAND)

        location = lake.table.iceberg_metadata()

        assert lake.read(location) == [2, 3, 4, 5]
        assert lake.read(location, 4) == [1, 2, 3, 4, 5]
        lake.table.verify()
        lake.close()


def test_documents_of_versions_that_expired_are_not_named_any_more(lake: PublishedLake) -> None:
    lake.table.expire(keep_last=1)
    lake.reopen()
    lake.table.tag("new")

    log = lake.document()["metadata-log"]

    assert all(Path(each["metadata-file"].removeprefix("file://")).exists() for each in log)
