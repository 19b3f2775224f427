"""Rows that expire on a disk: for other processes and engines, and in the background."""

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

import neve
from neve.catalog.lake import Lake
from neve.observability.events import EventKind, LifecycleEvent
from neve.storage.local_store import LocalStore
from neve.testing.simulated_clock import SimulatedClock
from tests.interop.iceberg_readers import DuckDb, open_duckdb

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
)
READ: Final = """
import sys, neve
with neve.open(sys.argv[1], read_only=True) as lake, lake.table("a.t") as table:
    print(sorted(row["id"] for row in table.scan().to_pylist()), table.get(1), table.scan().count())
"""


def rows(now: dt.datetime) -> list[dict[str, object]]:
    """Return rows of which the first two have expired after an hour."""
    hours = {1: -2, 2: -1, 3: 0, 4: None}
    return [
        {"id": id_, "ts": None if each is None else now + dt.timedelta(hours=each)}
        for id_, each in hours.items()
    ]


@pytest.fixture
def duckdb(tmp_path: Path) -> Iterator[DuckDb]:
    with open_duckdb(tmp_path / "extensions") as engine:
        yield engine


def test_another_process_and_the_command_line_leave_expired_rows_out(tmp_path: Path) -> None:
    with neve.open(tmp_path) as lake:
        table = lake.create_table("a.t", SCHEMA, ["id"], ttl=("ts", "1 hour"))
        written = rows(dt.datetime.now(dt.UTC))
        table.upsert(written[::2])
        table.flush()
        table.upsert(written[1::2])

        other = subprocess.run(
            [sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=True
        )
        command = [sys.executable, "-m", "neve", "scan", "a.t", "--lake", str(tmp_path), "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True)

    assert other.stdout.strip() == "[3, 4] None 2"
    assert shown.stdout.count('"id"') == 2


@pytest.mark.parametrize("format_version", ["3", "2"])
def test_other_engines_miss_expired_rows_after_upkeep(
    tmp_path: Path, duckdb: DuckDb, format_version: str
) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = lake.create_table(
            "a.t",
            SCHEMA,
            ["id"],
            ttl=("ts", "1 hour"),
            properties={"format-version": format_version},
        )
        written = rows(dt.datetime.now(dt.UTC))
        table.upsert(written[:1])  # a file that goes whole
        table.flush()
        table.upsert(written[1:])
        table.flush()
        before = table.iceberg_metadata()
        assert StaticTable.from_metadata(before).scan().to_arrow().num_rows == 4

        table.compact()

        location = table.iceberg_metadata()
        found = StaticTable.from_metadata(location)
        assert sorted(found.scan().to_arrow().column("id").to_pylist()) == [3, 4]  # type: ignore[type-var]
        assert [row["id"] for row in duckdb.read(location, None)] == [3, 4]
        removals = [
            each.summary.additional_properties
            for each in found.snapshots()
            if each.summary is not None
            and "neve.expired-rows" in each.summary.additional_properties
        ]
        assert [each["neve.expired-rows"] for each in removals] == ["2"]
        assert removals[0]["neve.reason"] == "ttl"
        table.verify(independent=True)


def test_the_live_writer_removes_rows_in_the_background(tmp_path: Path) -> None:
    removed = Event()
    events: list[LifecycleEvent] = []

    def hear(event: LifecycleEvent) -> None:
        events.append(event)
        if event.kind is EventKind.EXPIRED and "rows" in event.facts:
            removed.set()

    clock = SimulatedClock()
    now = dt.datetime.fromtimestamp(clock.now_ms() / 1_000, dt.UTC)
    with Lake(LocalStore(str(tmp_path)), clock=clock, listener=hear) as lake:
        table = lake.create_table("a.t", SCHEMA, ["id"], ttl=("ts", "90 minutes"))
        table.upsert(rows(now))
        table.flush()
        deadline = 30
        while not removed.wait(0.2) and deadline:
            clock.advance(30)
            deadline -= 1
        assert removed.is_set(), events
        table.refresh()
        assert table.stats().row_count == 3
        changes = table.changes(0).read_all().to_pylist()
        assert [row["id"] for row in changes if row["_expired"]] == [1]
