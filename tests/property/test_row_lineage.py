"""Row lineage over random histories, checked by a reader that shares no code with the engine.

After each step the published table is walked: what a rewrite, an expiry or a rebuild of metadata
changes in the map from key to (row id, last sequence number) must be nothing; what a flush changes
must be exactly the rows it wrote; a rollback must bring the map of its Version back.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pytest

import neve
from neve import TableOptions
from neve.catalog.table import Table
from tests.interop.iceberg_walk import Lineage, Record, read_metadata, walk

KEYS: Final = 60
COLUMNS: Final[dict[str, pa.DataType]] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
SPECS: Final[tuple[list[str], ...]] = ([], ["v"], ["bucket(3, id)"], ["truncate(20, id)"])
OPTIONS: Final = TableOptions(
    background=False,
    level0_files=3,
    file_bytes=2_000,
    compaction_task_rows=20,
)


class LineageHistory:
    """A table under random steps, and the lineage that its rows must have."""

    def __init__(self, folder: Path, seed: int, *, format_version: int = 3) -> None:
        self.rng = Random(seed)
        self.folder = folder
        self.lake = neve.open(folder)
        self.table: Table = self.lake.create_table(
            "a.b",
            schema=pa.schema(COLUMNS),
            primary_key=["id"],
            partition_by=self.rng.choice(SPECS),
            properties={"format-version": str(format_version)},
            options=OPTIONS,
        )
        self.lineage: Lineage = {}
        self.by_version: dict[int, Lineage] = {}
        self.next_row_id = 0
        self.steps: dict[str, Callable[[], None]] = {
            "flush": self.flush,
            "flush again": self.flush,
            "compact": self.compact,
            "full compact": self.compact_full,
            "rollback": self.rollback,
            "expire": self.expire,
            "partition": self.partition,
            "widen": self.add_column,
            "lose metadata": self.lose_metadata,
            "reopen": self.reopen,
        }

    def step(self) -> str:
        name = self.rng.choice(list(self.steps))
        self.steps[name]()
        self.check()
        return name

    def flush(self) -> None:
        keys = self.rng.sample(range(KEYS), self.rng.randrange(1, KEYS // 2))
        cut = self.rng.randrange(len(keys) + 1)
        written, deleted = keys[:cut], keys[cut:]
        before = self.table.version
        self.table.upsert([{"id": key, "v": key % 4, "text": "x" * key} for key in written])
        self.table.delete_many(deleted)
        version = self.table.flush()
        if version == before:
            return
        _, found = self.published()
        for key in deleted:
            self.lineage.pop(key, None)
        for key in written:
            row_id, updated = found[key]
            assert row_id >= self.next_row_id
            assert updated == version
            self.lineage[key] = found[key]

    def compact(self) -> None:
        self.table.compact()

    def compact_full(self) -> None:
        self.table.compact(full=True)

    def rollback(self) -> None:
        oldest = self.table.history().column("version").to_pylist()[0]
        known = [number for number in self.by_version if number >= int(str(oldest))]
        if known:
            number = self.rng.choice(known)
            self.table.rollback(number)
            self.lineage = dict(self.by_version[number])

    def expire(self) -> None:
        self.table.expire(keep_last=self.rng.randrange(1, 4))
        self.table.collect_garbage(dry_run=False)

    def partition(self) -> None:
        with self.table.evolve() as change:
            change.set_partition_by(self.rng.choice(SPECS))

    def add_column(self) -> None:
        with self.table.evolve() as change:
            change.add_column(f"c{self.table.schema.schema_id}", "int", default=7)

    def lose_metadata(self) -> None:
        for path in self.folder.glob("tables/*/metadata/*"):
            path.unlink()

    def reopen(self) -> None:
        self.table.close()
        self.lake.close()
        self.lake = neve.open(self.folder)
        self.table = self.lake.table("a.b", options=OPTIONS)

    def published(self) -> tuple[Record, Lineage]:
        metadata = read_metadata(self.table.iceberg_metadata())
        current = metadata.get("current-snapshot-id")
        return metadata, {} if current is None else walk(metadata, current).lineage()

    def check(self) -> None:
        metadata, found = self.published()
        assert found == self.lineage
        ids = [row_id for row_id, _ in found.values()]
        assert len(set(ids)) == len(ids)
        assert metadata["next-row-id"] >= max(self.next_row_id, *(each + 1 for each in ids), 0)
        self.next_row_id = metadata["next-row-id"]
        assert found.keys() == set(self.table.scan().to_arrow().column("id").to_pylist())
        self.by_version[self.table.version] = dict(found)

    def close(self) -> None:
        self.table.close()
        self.lake.close()


@pytest.mark.parametrize("seed", range(4))
def test_only_a_write_of_a_row_changes_its_lineage(tmp_path: Path, seed: int) -> None:
    history = LineageHistory(tmp_path, seed)
    for _ in range(25):
        history.step()  # checks the lineage of every row
    assert history.lineage
    history.close()


def test_a_table_that_came_from_format_2_keeps_lineage_too(tmp_path: Path) -> None:
    history = LineageHistory(tmp_path, 99, format_version=2)
    for _ in range(3):
        keys = history.rng.sample(range(KEYS), 20)
        history.table.upsert([{"id": key, "v": key % 4, "text": ""} for key in keys])
        history.table.flush()
    history.table.compact()
    history.table.set_properties({"format-version": "3"})
    _, history.lineage = history.published()
    for _ in range(12):
        history.step()  # checks the lineage of every row
    assert history.lineage
    history.close()
