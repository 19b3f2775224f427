"""Following a table while it is written: nothing is missed, nothing is told twice."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import NotFound

NEVE = (sys.executable, "-c", "from neve.cli.main import main; main()")
SCHEMA = pa.schema({"id": pa.int64(), "count": pa.int64()})
WAIT_SECONDS = 30.0
LONG = 3_600.0
BUSY = neve.TableOptions(
    sync="none", memtable_bytes=16_384, level0_files=2, level1_bytes=65_536, file_bytes=16_384
)
Change = dict[str, object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with neve.open(tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def table(lake: Lake) -> neve.Table:
    return lake.create_table("a.b", SCHEMA, ["id"], options=BUSY)


class Follower:
    """A thread that follows, and keeps a copy of the table by what it is told."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self.rows: dict[object, object] = {}
        self.versions: list[int] = []
        self.error: BaseException | None = None
        self.told: Queue[int] = Queue()
        self._batches = batches
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, version: int) -> None:
        """Wait until a Version was told of."""
        while self.told.get(timeout=WAIT_SECONDS) < version:
            pass

    def join(self) -> None:
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            for batch in self._batches:
                for change in batch.to_pylist():
                    self._apply(change)
                (version,) = set(batch.column("_commit_version").to_pylist())
                assert isinstance(version, int)
                self.versions.append(version)
                self.told.put(version)
        except BaseException as error:  # noqa: BLE001 - given to the test
            self.error = error
            self.told.put(1 << 62)

    def _apply(self, change: Change) -> None:
        key, count = change["id"], change["count"]
        match change["_change_type"]:
            case "insert":
                assert key not in self.rows
                self.rows[key] = count
            case "update_preimage" | "delete":
                assert self.rows.pop(key) == count
            case _:
                self.rows[key] = count


@contextmanager
def following(
    table: neve.Table, end: Callable[[], object], *, since: int = 0, poll_seconds: float = LONG
) -> Iterator[Follower]:
    follower = Follower(table.follow(since, poll_seconds=poll_seconds))
    try:
        yield follower
    finally:
        end()
        follower.join()


def rows_of(table: neve.Table) -> dict[object, object]:
    found = table.scan().to_arrow().to_pylist()
    return {row["id"]: row["count"] for row in found}


def test_a_flush_wakes_a_follower_at_once_and_closing_ends_it(table: neve.Table) -> None:
    """It would look for commits of others after an hour."""
    with following(table, table.close) as follower:
        for number in range(3):
            table.put({"id": 1, "count": number})
            follower.wait_for(table.flush())
            assert follower.rows == {1: number}


def test_a_follower_told_to_stop_stops_before_the_next_commit(table: neve.Table) -> None:
    stop = threading.Event()
    table.put({"id": 1, "count": 1})
    table.flush()
    table.put({"id": 2, "count": 1})
    table.flush()

    batches = table.follow(0, poll_seconds=LONG, stop=stop)
    first = next(batches)
    stop.set()

    assert first.column("_commit_version").to_pylist() == [2]
    assert list(batches) == []


def test_commits_of_others_are_found_by_looking(lake: Lake, table: neve.Table) -> None:
    """A handle that only reads knows nothing of the writer's flushes."""
    reader = lake.table("a.b", read_only=True)
    with following(reader, reader.close, poll_seconds=0.01) as follower:
        for number in range(3):
            table.put({"id": number, "count": number})
            follower.wait_for(table.flush())
        assert follower.rows == {0: 0, 1: 1, 2: 2}


def test_a_follower_keeps_up_with_writers_compaction_and_expiry(table: neve.Table) -> None:
    """Versions expire as soon as they may, and the follower still hears of each."""

    def write(first: int) -> None:
        for turn in range(60):
            table.upsert([{"id": first + n, "count": turn} for n in range(turn % 7, 40)])
            table.delete(first + turn % 40)
            if turn % 10 == 9:
                table.flush()
                table.expire(keep_last=1)
                table.collect_garbage(dry_run=False)

    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 100, 200)]
    with following(table, table.close) as follower:
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        table.put({"id": -1, "count": 0})
        last = table.flush()
        follower.wait_for(last)
        assert follower.rows == rows_of(table)
        assert follower.versions == sorted(follower.versions)


def test_a_feed_is_read_while_the_writer_goes_on(table: neve.Table) -> None:
    for turn in range(10):
        table.upsert([{"id": n, "count": turn} for n in range(turn, 50)])
        table.flush()
    expected, until = rows_of(table), table.version
    reader = table.changes(0, until)
    rows: dict[object, object] = {}

    for batch in reader:
        for change in batch.to_pylist():
            if change["_change_type"] in ("insert", "update_postimage"):
                rows[change["id"]] = change["count"]
            elif change["_change_type"] == "delete":
                del rows[change["id"]]
        table.upsert([{"id": n, "count": -1} for n in range(50)])
        table.compact(full=True)
        table.expire(keep_last=1)
        table.collect_garbage(dry_run=False)

    assert rows == expected


def test_a_follower_that_begins_below_retention_is_refused_at_once(table: neve.Table) -> None:
    for number in range(4):
        table.put({"id": number, "count": 0})
        table.flush()
    table.expire(keep_last=1)

    with pytest.raises(NotFound, match="Changes are kept from since="):
        table.follow(1)


def test_a_follower_of_a_table_that_is_dropped_ends(lake: Lake, table: neve.Table) -> None:
    with following(table, lambda: lake.drop_table("a.b")) as follower:
        table.put({"id": 1, "count": 1})
        follower.wait_for(table.flush())

    assert follower.rows == {1: 1}


def test_the_command_prints_changes_as_they_are_committed(tmp_path: Path) -> None:
    with neve.open(tmp_path / "lake") as lake:
        table = lake.create_table("a.b", SCHEMA, ["id"], options=BUSY)
        table.put({"id": 1, "count": 1})
        table.flush()
        command = [*NEVE, "changes", "a.b", "--follow", "--output", "jsonl"]
        command += ["--lake", str(tmp_path / "lake")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            table.put({"id": 1, "count": 2})
            table.flush()
            before, after = (json.loads(process.stdout.readline()) for _ in range(2))
            process.send_signal(signal.SIGINT)
            code = process.wait(WAIT_SECONDS)

    assert (first["_change_type"], first["_commit_version"]) == ("insert", 2)
    assert [before["count"], after["count"], after["_change_type"]] == [1, 2, "update_postimage"]
    assert code == 130
