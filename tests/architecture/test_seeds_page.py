"""The page about the seeds' fields is true: of the definitions, and of a table really written."""

import re
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.manifest import mrub_pb2
from neve.manifest.mrub import decode_mrub
from neve.manifest.table_head import state_key
from neve.model.data_file import DataFile, WalSegmentRef
from neve.model.version import VersionFacts
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "seeds.md"
Rows = list[list[str]]
COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "v": pa.float64()}


def tables() -> dict[str, Rows]:
    """Read the tables of the page, by the heading above each."""
    found: dict[str, Rows] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").strip("`")
        elif line.startswith("| ") and not line.startswith("|---"):
            found.setdefault(heading, []).append([cell.strip() for cell in line[1:-1].split(" | ")])
    return {name: rows[1:] for name, rows in found.items()}


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_what_a_data_file_is_said_to_have_is_a_fact_of_a_data_file() -> None:
    known = {field.name for field in fields(DataFile)} | {"deleted_count"}
    segment = {field.name for field in fields(WalSegmentRef)}
    for row in tables()["SST entry"]:
        place = segment if "WalSegmentRef" in row[0] else known
        assert set(named(row[1])) <= place, row


def test_what_a_version_is_said_to_have_is_a_fact_of_a_version() -> None:
    facts = {field.name for field in fields(VersionFacts)}
    said = re.findall(r"`facts\.([a-z_]+)`", PAGE.read_text())
    assert set(said) == facts - {"unread"}


@pytest.fixture(scope="module")
def manifest() -> mrub_pb2.Manifest:
    """Return a whole Version as it is stored: rows flushed and compacted, evolved, some deleted."""
    objects = MemoryStore()
    with Lake(objects, clock=SimulatedClock(), ids=SeededIds(0)) as lake:
        table = lake.create_table(
            "a.b",
            pa.schema(COLUMNS),
            ["id"],
            options=neve.TableOptions(background=False),
        )
        table.upsert([{"id": number, "v": 0.5} for number in range(10)])
        table.compact(full=True)
        with table.evolve() as change:
            change.add_column("w", "long")
            change.set_partition_by(["bucket(2, id)"])
        table.upsert([{"id": 20, "v": 0.5, "w": 1}])
        table.flush()
        table.put({"id": 21, "v": 0.5, "w": 1})
        table.delete(3)
        number = table.flush()
        store = table._open.stored.versions.store
        store.checkpoint()
        frame = store.read().state.get(state_key(number))
        assert frame is not None
        return decode_mrub(frame, path="state")


UNSET_IN_A_WHOLE_VERSION = {
    "status": "always 0",
    "delete_files": "empty",
}
"""Fields that the page says are empty here, and the words it says that in."""


@pytest.mark.parametrize("name", ["DataFileRef", "Manifest"])
def test_every_field_that_is_not_said_to_be_empty_is_written(
    name: str, manifest: mrub_pb2.Manifest
) -> None:
    messages = [manifest] if name == "Manifest" else list(manifest.data_files)
    written = {field.name for message in messages for field, _ in message.ListFields()}
    for number, cell, words in tables()[name]:
        if not number.isdigit():
            continue
        field = named(cell)[0]
        if field in UNSET_IN_A_WHOLE_VERSION:
            assert UNSET_IN_A_WHOLE_VERSION[field] in words, words
        else:
            assert field in written, f"{field} is never written; the page says: {words}"


def test_the_seeds_of_an_sst_entry_are_written(manifest: mrub_pb2.Manifest) -> None:
    for ref in manifest.data_files:
        assert ref.commit_ms_min == ref.commit_ms_max > 0
        (segment,) = ref.wal_segments
        assert segment.seq > 0
        assert segment.file_id.startswith("wal/")
        assert 0 < segment.first_frame <= segment.last_frame
