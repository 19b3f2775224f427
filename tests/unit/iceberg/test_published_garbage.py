"""Files are deleted only when nothing that is published reads them any more."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import neve
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.errors import NotPublished, Unavailable
from neve.storage.memory_store import MemoryStore
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import BY_HAND, SCHEMA

ON_DEMAND = replace(BY_HAND, iceberg_publish="demand")


class FullStore(MemoryStore):
    """A store that at times takes no metadata."""

    is_full = False

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        if self.is_full and "/metadata/" in path:
            raise Unavailable("the disk is full", path=path)
        return super().put_if_absent(path, payload)

    def fetch(self, location: str) -> bytes:
        return self.get(location.removeprefix(f"{self.location.rstrip('/')}/")).payload

    def documents(self) -> list[str]:
        return [info.path for info in self.list("tables/") if info.path.endswith("metadata.json")]

    def published_keys(self) -> list[int]:
        """Return the keys that a reader finds who begins with the hint; every snapshot is whole."""
        (hint,) = (info.path for info in self.list("tables/") if info.path.endswith("-hint.text"))
        folder, number = hint.rpartition("/")[0], int(self.get(hint).payload)
        place = f"{self.location.rstrip('/')}/{folder}/v{number}.metadata.json"
        metadata = read_metadata(place, self.fetch)
        read = {
            each["snapshot-id"]: walk(metadata, each["snapshot-id"], self.fetch).rows({1: "id"})
            for each in metadata["snapshots"]
        }
        rows = read[metadata["current-snapshot-id"]]
        return sorted(int(key) for key in rows.column("id").to_numpy())


def write(table: Table, *keys: int) -> None:
    table.upsert([{"id": key, "name": "a"} for key in keys])
    table.flush()


def rewrite_and_expire(table: Table) -> None:
    """Let go all that was there before."""
    table.compact(full=True)
    table.expire(keep_last=1)


def test_files_that_published_snapshots_read_stay_while_publishing_fails() -> None:
    store = FullStore()
    with Lake(store) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=BY_HAND)
        write(table, 1, 2)
        write(table, 2, 3)
        store.is_full = True
        with pytest.raises(NotPublished):
            table.compact(full=True)
        with pytest.raises(NotPublished):
            table.expire(keep_last=1)

        with pytest.raises(Unavailable, match="the disk is full"):
            table.collect_garbage(dry_run=False)

        assert store.published_keys() == [1, 2, 3]
        store.is_full = False
        assert table.collect_garbage(dry_run=False).file_count > 0
        assert store.published_keys() == [1, 2, 3]
        table.close()


def test_what_was_published_on_demand_is_brought_up_to_date_before_its_files_go() -> None:
    store = FullStore()
    with Lake(store) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=ON_DEMAND)
        write(table, 1, 2)
        table.iceberg_metadata()
        write(table, 2, 3)
        rewrite_and_expire(table)
        assert store.published_keys() == [1, 2]

        table.collect_garbage(dry_run=False)

        assert store.published_keys() == [1, 2, 3]
        table.close()


def test_a_table_that_was_never_published_is_not_published_by_its_clean_up() -> None:
    store = FullStore()
    with Lake(store) as lake:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=ON_DEMAND)
        write(table, 1, 2)
        write(table, 2, 3)
        rewrite_and_expire(table)

        assert table.collect_garbage(dry_run=False).file_count > 0

        assert store.documents() == []
        table.close()


def test_a_table_that_another_process_published_is_brought_up_to_date(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake, neve.open(tmp_path) as other:
        table = lake.create_table("shop.orders", SCHEMA, ["id"], options=ON_DEMAND)
        write(table, 1, 2)
        published = other.load_table("shop.orders").iceberg_metadata()
        write(table, 2, 3)
        rewrite_and_expire(table)

        table.collect_garbage(dry_run=False)

        folder = Path(published.removeprefix("file://")).parent
        number = (folder / "version-hint.text").read_text()
        document = json.loads((folder / f"v{number}.metadata.json").read_text())
        assert document["properties"]["neve.version"] == str(table.version)
        table.close()
