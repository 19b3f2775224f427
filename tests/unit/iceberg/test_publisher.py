"""What is published, when, and what becomes of a folder that was damaged."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import neve
from neve import TableOptions
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.errors import NotFound, NotPublished, Unavailable
from neve.iceberg.publisher import SNAPSHOTS_LISTED
from neve.manifest.table_head import HeadChange
from neve.observability.events import EventKind, LifecycleEvent
from neve.observability.metrics import (
    PUBLISH_FAILURES,
    PUBLISH_SECONDS,
    PUBLISHES,
    Counters,
)
from neve.storage.memory_store import MemoryStore
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import BY_HAND, SCHEMA, PublishedLake


class FullStore(MemoryStore):
    """A store that takes no metadata."""

    is_full = True

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        if self.is_full and "/metadata/" in path:
            raise Unavailable("the disk is full", path=path)
        return super().put_if_absent(path, payload)

    def published_version(self) -> int:
        """Return the Version that a reader finds who begins with the hint."""
        (hint,) = (info.path for info in self.list("tables/") if info.path.endswith("-hint.text"))
        number = int(self.get(hint).payload)
        document = self.get(f"{hint.rpartition('/')[0]}/v{number}.metadata.json").payload
        return int(json.loads(document)["properties"]["neve.version"])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[PublishedLake]:
    made = PublishedLake(tmp_path)
    yield made
    made.close()


def test_every_commit_is_a_snapshot_under_its_number(lake: PublishedLake) -> None:
    lake.commit(1, 2)
    lake.commit(2, 3)
    lake.table.delete(1)
    lake.table.flush()
    lake.table.compact(full=True)

    snapshots = lake.document()["snapshots"]

    assert [each["snapshot-id"] for each in snapshots] == [2, 3, 4, 5]
    assert [each["sequence-number"] for each in snapshots] == [2, 3, 4, 5]
    assert [each["summary"]["operation"] for each in snapshots] == [
        "append", "overwrite", "delete", "replace"
    ]  # fmt: skip
    assert [each.get("parent-snapshot-id") for each in snapshots] == [None, 2, 3, 4]
    assert lake.read() == [2, 3]


def test_a_table_without_rows_has_metadata_and_no_snapshot(lake: PublishedLake) -> None:
    location = lake.table.iceberg_metadata()

    document = lake.document(1)
    assert location == f"file://{lake.metadata}/v1.metadata.json"
    assert document["snapshots"] == []
    assert "current-snapshot-id" not in document
    assert document["next-row-id"] == 0


def test_a_change_of_definitions_brings_metadata_and_no_snapshot(lake: PublishedLake) -> None:
    lake.commit(1)
    with lake.table.evolve() as change:
        change.add_column("note", "string")
        change.set_partition_by(["bucket(2, id)"])

    document = lake.document()

    assert lake.table.version == 3
    assert document["current-snapshot-id"] == 2
    assert [each["schema-id"] for each in document["schemas"]] == [0, 1]
    assert [each["spec-id"] for each in document["partition-specs"]] == [0, 1]
    assert document["metadata-log"][-1]["metadata-file"].endswith("/v2.metadata.json")


def test_row_ids_follow_one_another(lake: PublishedLake) -> None:
    lake.commit(1, 2)
    lake.commit(3)

    document = lake.document()

    assert document["next-row-id"] == 3
    assert [(s["first-row-id"], s["added-rows"]) for s in document["snapshots"]] == [(0, 2), (2, 1)]


def test_a_key_is_the_identifier_unless_it_is_a_float(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        for name, kind, expected in (("a", pa.int64(), [1]), ("b", pa.float64(), None)):
            table = lake.create_table(
                f"t.{name}",
                pa.schema([pa.field("k", kind, nullable=False)]),
                ["k"],
                options=BY_HAND,
            )
            location = table.iceberg_metadata()
            document = Path(location.removeprefix("file://")).read_text()
            assert ('"identifier-field-ids":[1]' in document) == (expected is not None)
            table.close()


def published_order(table: Table) -> tuple[list[int], list[list[int]]]:
    """Return the columns of the default sort order, and those of every order that is listed."""
    document = read_metadata(table.iceberg_metadata())
    orders = {
        each["order-id"]: [field["source-id"] for field in each["fields"]]
        for each in document["sort-orders"]
    }
    return orders[document["default-sort-order-id"]], list(orders.values())


def test_a_sort_order_that_is_asked_for_is_published_as_the_default(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.b", schema=SCHEMA, primary_key=["name", "id"])
        seen = [published_order(table)]
        for columns in (["name"], ["name", "id"], ["name"], []):
            with table.evolve() as change:
                change.set_sort_by(columns)
            seen.append(published_order(table))

    key, start = [2, 1], [2]
    assert [default for default, _ in seen] == [[], start, key, start, []]
    assert [orders for _, orders in seen] == [[[], key], *([[[], key, start]] * 4)]


def test_an_order_that_no_file_is_in_is_not_published(lake: PublishedLake) -> None:
    lake.commit(1)
    lake.table._open.stored.versions.apply_version_edits([], HeadChange(sort_order="-name"))
    lake.commit(2)

    assert published_order(lake.table) == ([], [[], [1]])


def test_tags_are_refs_and_move(lake: PublishedLake) -> None:
    lake.commit(1)
    lake.commit(2)
    lake.table.tag("good", 2)
    assert lake.document()["refs"]["good"] == {"snapshot-id": 2, "type": "tag"}

    lake.table.tag("good")
    assert lake.document()["refs"]["good"]["snapshot-id"] == 3
    lake.table.remove_tag("good")
    assert set(lake.document()["refs"]) == {"main"}


def test_a_tag_on_a_change_of_definitions_names_the_rows_before_it(lake: PublishedLake) -> None:
    lake.commit(1)
    with lake.table.evolve() as change:
        change.add_column("note", "string")
    lake.table.tag("evolved")
    lake.commit(2)

    assert lake.document()["refs"]["evolved"]["snapshot-id"] == 2


def test_versions_that_expired_are_not_listed_and_tagged_ones_stay(lake: PublishedLake) -> None:
    for key in range(6):
        lake.commit(key)
    lake.table.tag("kept", 3)
    lake.table.expire(keep_last=2)

    document = lake.document()

    assert [each["snapshot-id"] for each in document["snapshots"]] == [3, 6, 7]
    assert document["refs"]["kept"]["snapshot-id"] == 3


def test_a_tagged_version_that_is_not_listed_any_more_is_listed_again(
    lake: PublishedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.iceberg.publisher.SNAPSHOTS_LISTED", 3)
    for key in range(8):
        lake.commit(key)
    assert [each["snapshot-id"] for each in lake.document()["snapshots"]] == [7, 8, 9]

    lake.table.tag("old", 4)

    document = lake.document()
    assert [each["snapshot-id"] for each in document["snapshots"]] == [4, 7, 8, 9]
    assert lake.read() == list(range(8))


def test_the_folder_stays_bounded(lake: PublishedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.iceberg.publisher.SNAPSHOTS_LISTED", 4)
    monkeypatch.setattr("neve.iceberg.publisher.DOCUMENTS_KEPT", 4)
    for key in range(40):
        lake.commit(key % 7)

    assert len(lake.names("v*.metadata.json")) <= 4 + 16
    assert len(lake.names("snap-*.avro")) <= 4 + 16 + 4
    assert len(lake.document()["snapshots"]) == 4
    assert lake.read() == list(range(7))
    assert SNAPSHOTS_LISTED == 100


@pytest.mark.parametrize(
    "pattern",
    ["version-hint.text", "v4.metadata.json", "v*.metadata.json", "snap-*.avro", "m-*.avro", "*"],
)
@pytest.mark.parametrize("damage", ["deleted", "emptied", "flipped"])
def test_a_damaged_folder_is_published_anew(lake: PublishedLake, pattern: str, damage: str) -> None:
    lake.commit(1, 2)
    lake.commit(2, 3)
    lake.table.delete(1)
    lake.table.flush()
    for path in lake.metadata.glob(pattern):
        content = path.read_bytes()
        if damage == "deleted":
            path.unlink()
        elif damage == "emptied":
            path.write_bytes(b"")
        elif content:
            at = len(content) // 2
            path.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])

    lake.reopen()

    assert lake.read() == [2, 3]
    lake.commit(4)
    assert lake.read() == [2, 3, 4]


def test_the_folder_of_another_table_is_not_built_on(lake: PublishedLake) -> None:
    lake.commit(1)
    path = lake.metadata / "v2.metadata.json"
    path.write_text(path.read_text().replace(lake.table.uuid, "0" * 8 + lake.table.uuid[8:]))

    lake.reopen()
    lake.commit(2)

    assert lake.document()["table-uuid"] == lake.table.uuid
    assert lake.read() == [1, 2]


def test_a_hint_ahead_of_the_table_is_put_right(lake: PublishedLake) -> None:
    lake.commit(1)
    (lake.metadata / "version-hint.text").write_text("99")

    lake.commit(2)

    assert (lake.metadata / "version-hint.text").read_text() == "3"


def test_a_warehouse_that_moved_is_published_for_its_new_place(tmp_path: Path) -> None:
    old = PublishedLake(tmp_path / "old")
    old.commit(1, 2)
    old.commit(2)
    old.close()
    (tmp_path / "old").rename(tmp_path / "a new place")

    moved = PublishedLake.__new__(PublishedLake)
    moved.folder = tmp_path / "a new place"
    moved.lake = neve.open(moved.folder)
    moved.table = moved.lake.table("shop.orders", options=BY_HAND)
    moved.commit(3)
    moved.table.compact(full=True)
    moved.table.delete(1)
    moved.table.flush()

    assert moved.table.iceberg_metadata().startswith(f"file://{tmp_path}/a new place/")
    assert moved.read() == [2, 3]
    moved.close()


def test_a_table_that_rises_to_format_3_has_vectors_instead_of_position_deletes(
    tmp_path: Path,
) -> None:
    lake = PublishedLake(tmp_path, format_version="2")
    lake.commit(1, 2)
    lake.commit(2)
    assert lake.document()["format-version"] == 2
    assert list(tmp_path.glob("tables/*/deletes/*.parquet"))

    lake.table.set_properties({"format-version": "3"})

    document = lake.document()
    assert document["format-version"] == 3
    assert all("first-row-id" in each for each in document["snapshots"])
    assert lake.read() == [1, 2]
    lake.close()


def test_summaries_of_format_2_count_the_files_of_position_deletes(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path, format_version="2")
    lake.commit(1, 2, 3)
    lake.commit(1)
    lake.commit(2)
    lake.table.compact(full=True)

    metadata = read_metadata(lake.newest.as_uri())
    before = delete_files = 0
    for snapshot in metadata["snapshots"]:
        summary, walked = snapshot["summary"], walk(metadata, snapshot["snapshot-id"])
        files = [*walked.data.values(), *walked.deletes]
        total = sum(each.entry["data_file"]["file_size_in_bytes"] for each in files)
        added, removed = (
            int(summary.get(f"{word}-files-size", 0)) for word in ("added", "removed")
        )
        assert int(summary["total-files-size"]) == total
        assert added - removed == total - before
        before = total
        delete_files += len(walked.deletes)
    assert delete_files
    lake.close()


def test_position_deletes_go_with_the_vectors_they_follow_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.iceberg.publisher._COLLECT_EVERY", 1)
    lake = PublishedLake(tmp_path, format_version="2")
    for _ in range(5):
        lake.commit(1, 2)
    lake.table.compact(full=True)
    lake.table.expire(keep_last=1)
    lake.table.collect_garbage(dry_run=False)
    lake.commit(3)

    assert not list(tmp_path.glob("tables/*/deletes/*.parquet"))
    assert lake.read() == [1, 2, 3]
    lake.close()


def test_a_read_only_handle_gives_what_is_published_and_writes_nothing(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        options = TableOptions(background=False, iceberg_publish="demand")
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=options)
        table.put({"id": 1, "name": None})
        table.flush()
        with neve.open(tmp_path) as other:
            reader = other.table("shop.orders", read_only=True)
            with pytest.raises(NotFound, match="has not been published"):
                reader.iceberg_metadata()
            assert not list(tmp_path.glob("tables/*/metadata/*"))
            assert table.iceberg_metadata() == reader.iceberg_metadata()
            reader.close()
        table.close()


def test_a_flush_that_cannot_be_published_says_that_its_rows_are_committed() -> None:
    told: list[LifecycleEvent] = []
    counters = Counters()
    store = FullStore()
    lake = Lake(store, recorder=counters, listener=told.append)
    table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
    table.put({"id": 1, "name": None})

    with pytest.raises(NotPublished, match="version 2 is committed") as caught:
        table.flush()

    assert caught.value.version == 2
    assert table.get(1) is not None
    assert [each["version"] for each in table.history().to_pylist()] == [1, 2]
    assert counters.total(PUBLISH_FAILURES) == 1
    assert [event.facts["step"] for event in told if event.kind is EventKind.FAILED] == ["publish"]
    store.is_full = False
    assert table.flush() == 2  # nothing to commit, and something to publish
    assert store.published_version() == 2
    lake.close()


def test_two_processes_that_publish_at_once_leave_one_whole_table(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    others = [neve.open(tmp_path) for _ in range(3)]
    failures: list[BaseException] = []

    def publish(number: int) -> None:
        try:
            for _ in range(10):
                others[number].load_table("shop.orders").iceberg_metadata()
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for key in range(12):
        lake.commit(key)
    for thread in threads:
        thread.join()

    assert failures == []
    assert lake.read() == list(range(12))
    for name in lake.names("v*.metadata.json"):
        version = int(lake.document(int(name[1:].split(".")[0]))["properties"]["neve.version"])
        if version > 1:  # Version 1 has no snapshot to read
            assert lake.read(f"file://{lake.metadata}/{name}") == list(range(version - 1))
    for other in others:
        other.close()
    lake.close()


def test_publishers_that_take_turns_leave_each_listed_snapshot_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neve.iceberg.publisher.SNAPSHOTS_LISTED", 4)
    monkeypatch.setattr("neve.iceberg.publisher._COLLECT_EVERY", 5)
    lake = PublishedLake(tmp_path)
    lake.commit(*range(100, 110))
    with neve.open(tmp_path) as other:
        theirs = other.load_table("shop.orders")
        for key in range(30):
            if key % 3 == 0:
                theirs.iceberg_metadata()
            lake.commit(key % 7)

            hint = (lake.metadata / "version-hint.text").read_text()
            metadata = read_metadata(f"file://{lake.metadata}/v{hint}.metadata.json")
            for snapshot in metadata["snapshots"]:
                assert walk(metadata, snapshot["snapshot-id"]).data
    lake.close()


def test_a_publisher_that_was_overtaken_shows_the_newest_version(lake: PublishedLake) -> None:
    lake.commit(1)
    with neve.open(lake.folder) as other:
        slow = other.load_table("shop.orders")
        slow.iceberg_metadata()
        create = slow.stored.publisher._folder.create_document

        def overtaken(number: int, payload: bytes) -> bool:
            lake.commit(3)
            return create(number, payload)

        lake.table.set_properties({"note": "x"})
        with lake.table.evolve() as change:
            change.add_column("note", "string")
        before = lake.document()["properties"]["neve.version"]
        slow.stored.publisher._folder.create_document = overtaken  # type: ignore[method-assign]
        lake.table._open.stored.writer_state.tag("kept", 2)

        location = slow.iceberg_metadata()

    assert int(before) < int(lake.document()["properties"]["neve.version"])
    assert lake.read(location) == [1, 3]
    assert lake.document()["refs"]["kept"]["snapshot-id"] == 2


def test_a_document_never_changes(lake: PublishedLake) -> None:
    lake.commit(1)
    contents = {name: (lake.metadata / name).read_bytes() for name in lake.names("v*.json")}
    lake.table.tag("good")
    lake.table.set_properties({"owner": "me"})
    lake.commit(2)
    lake.table.expire(keep_last=1)

    assert len(lake.names("v*.json")) == len(contents) + 3
    assert {name: (lake.metadata / name).read_bytes() for name in contents} == contents


def test_what_changes_nothing_that_is_published_makes_no_document(lake: PublishedLake) -> None:
    lake.commit(1)
    lake.commit(2)
    names = lake.names("*")

    lake.table.expire(keep_last=2)
    lake.table.iceberg_metadata()
    lake.reopen()
    lake.table.iceberg_metadata()

    assert lake.names("*") == names


def test_a_table_with_threads_publishes_by_itself_and_is_published_when_closed(
    tmp_path: Path,
) -> None:
    counters = Counters()
    with neve.open(tmp_path, recorder=counters) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"])
        table.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        number = table.flush()
        table.close()

    (hint,) = tmp_path.glob("tables/*/metadata/version-hint.text")
    assert hint.read_text() == str(number)
    assert counters.total(PUBLISHES) >= 1
    assert counters.total(PUBLISH_SECONDS) > 0


def test_a_crash_between_commit_and_publish_is_made_up_for_when_the_table_is_opened(
    tmp_path: Path,
) -> None:
    lake = PublishedLake(tmp_path)
    lake.commit(1)
    unpublished = replace(BY_HAND, iceberg_publish="demand")
    lake.table.close()
    lake.table = lake.lake.table("shop.orders", options=unpublished)
    lake.commit(2)
    lake.close()
    assert lake.document()["current-snapshot-id"] == 2

    with neve.open(tmp_path) as catalog, catalog.table("shop.orders") as table:
        assert table.get(2) is not None

    assert lake.document()["current-snapshot-id"] == 3


WITH_THREADS = TableOptions(level0_files=2)


def published(lake: PublishedLake) -> int:
    return int(lake.document()["properties"]["neve.version"])


def test_each_call_that_commits_has_published_when_it_returns(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    lake.table.close()
    lake.table = lake.lake.table("shop.orders", options=WITH_THREADS)
    table = lake.table
    for key in range(3):
        number = lake.commit(key)
        assert published(lake) >= number
        assert lake.document()["current-snapshot-id"] >= number
    number = table.compact(full=True)
    assert published(lake) >= number
    with table.evolve() as change:
        change.add_column("note", "string")
    assert [each["name"] for each in lake.document()["schemas"][-1]["fields"]][-1] == "note"
    table.tag("good")
    assert "good" in lake.document()["refs"]
    assert table.rollback(2) == published(lake)
    table.set_properties({"owner": "me"})
    assert lake.document()["properties"]["owner"] == "me"
    table.expire(keep_last=1)
    assert len(lake.document()["snapshots"]) <= 2
    lake.close()


@pytest.mark.parametrize("opens", ["table", "load_table"])
def test_a_schema_change_without_rows_is_published_at_once(tmp_path: Path, opens: str) -> None:
    lake = PublishedLake(tmp_path)
    lake.commit(1)
    lake.close()
    with neve.open(tmp_path) as catalog:
        table = catalog.table("shop.orders") if opens == "table" else (
            catalog.load_table("shop.orders")
        )  # fmt: skip
        with table.evolve() as change:
            change.add_column("note", "string")
        version = table.version

    schema = StaticTable.from_metadata(f"file://{lake.newest}").schema()
    assert published(lake) == version
    assert schema.column_names == ["id", "name", "note"]


def test_a_table_that_is_published_on_demand_is_not_published_by_a_flush(tmp_path: Path) -> None:
    lake = PublishedLake(tmp_path)
    lake.table.close()
    lake.table = lake.lake.table("shop.orders", options=replace(BY_HAND, iceberg_publish="demand"))
    lake.commit(1)

    assert not list(tmp_path.glob("tables/*/metadata/*"))
    assert lake.read() == [1]
    lake.close()
