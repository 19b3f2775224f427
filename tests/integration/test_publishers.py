"""Several processes that publish one table, and PyIceberg as the reader beside them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

import pytest
from pyiceberg.table import StaticTable

import neve
from neve import TableOptions
from tests.conftest import Record
from tests.gates import TORTURE
from tests.unit.iceberg.published_lake import SCHEMA

FLUSHES: Final = 600 if TORTURE else 130
EXPIRED_EVERY: Final = 10
OPTIONS: Final = TableOptions(level0_files=4)

PUBLISHER = """
import sys
import neve

lake = neve.open(sys.argv[1])
table = lake.load_table("shop.orders")
print("ready", flush=True)
sys.stdin.readline()
while True:
    print(table.iceberg_metadata(), flush=True)
    if not sys.stdin.readline():
        break
"""


@pytest.fixture
def publishers(tmp_path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Two processes that publish the table whenever they get a line; they end with the test."""
    with neve.open(tmp_path) as lake:
        lake.create_table(
            "shop.orders",
            schema=SCHEMA,
            primary_key=["id"],
        )
    with ExitStack() as stack:
        started = []
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", PUBLISHER, str(tmp_path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            assert pipe(process.stdout).readline() == "ready\n"
        yield started


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def ask(process: "subprocess.Popen[str]") -> None:
    """Let a process publish; it answers when it has."""
    pipe(process.stdin).write("\n")
    pipe(process.stdin).flush()


def newest_location(metadata: Path) -> str:
    """Return what a reader opens who follows the hint."""
    return f"file://{metadata}/v{(metadata / 'version-hint.text').read_text()}.metadata.json"


def missing_files(metadata: Path) -> list[str]:
    """Name the files that snapshots listed by the document of the hint lack."""
    static = StaticTable.from_metadata(newest_location(metadata))
    missing = []
    for snapshot in static.metadata.snapshots:
        place = Path(snapshot.manifest_list.removeprefix("file://"))
        if not place.exists():
            missing.append(place.name)
            continue
        for manifest in snapshot.manifests(static.io):
            named = Path(manifest.manifest_path.removeprefix("file://"))
            if not named.exists():
                missing.append(f"{named.name} of {snapshot.snapshot_id}")
    assert static.metadata.snapshots
    return missing


@pytest.mark.parametrize("expires", [False, True])
def test_publishers_in_other_processes_take_nothing_from_each_other(
    tmp_path: Path,
    publishers: list["subprocess.Popen[str]"],
    expires: bool,
    scoreboard: Record,
) -> None:
    reads = 0
    with neve.open(tmp_path) as lake, lake.table("shop.orders", options=OPTIONS) as table:
        table.upsert([{"id": key, "name": "first"} for key in range(50)])
        table.flush()
        metadata = next(tmp_path.glob("tables/*/metadata"))
        for process in publishers:
            ask(process)
        for turn in range(FLUSHES):
            for process in publishers:
                ask(process)
            table.upsert([{"id": turn % 70, "name": f"turn {turn}"}])
            table.flush()
            is_expiring = expires and turn % EXPIRED_EVERY == 0
            if is_expiring:
                table.expire(keep_last=3)
                table.collect_garbage(dry_run=False)
            locations = [pipe(process.stdout).readline().strip() for process in publishers]

            # What a process published before may list only Versions that are expired now.
            for location in [newest_location(metadata)] if is_expiring else locations:
                StaticTable.from_metadata(location).scan().to_arrow()
                reads += 1
            if turn % EXPIRED_EVERY == 0:
                assert missing_files(metadata) == []
        expected = table.scan().to_arrow().sort_by("id").to_pylist()
        newest = StaticTable.from_metadata(table.iceberg_metadata())

        assert missing_files(metadata) == []
        assert newest.scan().to_arrow().sort_by("id").to_pylist() == expected
    scoreboard(f"R27 PyIceberg reads beside three publishing processes: 0 of {reads:,} failed")
