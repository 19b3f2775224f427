"""Readers in another process than the writer, which puts single rows, flushes and rolls logs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import neve
from tests.conftest import Record
from tests.gates import Gate
from tests.integration import busy_writer

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
PROJECT = Path(__file__).parents[2]
LONG_LOGS = 16 << 20
SHORT_LOGS = 32 << 10
WHOLE_EVERY = 10


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with neve.open(tmp_path / "lake") as opened:
        opened.create_table(busy_writer.NAME, SCHEMA, ["id"])
    return tmp_path / "lake"


@contextmanager
def busy(lake: Path, *, log_bytes: int) -> Iterator[None]:
    """Let another process write while the block runs; it must end in good order."""
    process = subprocess.Popen(
        [sys.executable, "-m", busy_writer.__name__, str(lake), str(log_bytes)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()


def counted(table: neve.Table | neve.Snapshot) -> int:
    """How many rows the writer had counted when this state was taken."""
    total = table.get(0)
    assert total is not None
    return int(str(total["n"]))


def counted_and_whole(table: neve.Table) -> int:
    """The same, after looking at each of these rows."""
    with table.snapshot() as taken:
        count = counted(taken)
        found = taken.scan("id > 0", columns=["id"]).to_arrow()
    step = busy_writer.BATCH_EVERY
    assert found.sort_by("id")["id"].to_pylist() == list(range(step, count + 1, step))
    return count


@pytest.mark.parametrize("log_bytes", [LONG_LOGS, SHORT_LOGS])
def test_a_follower_beside_a_busy_writer_sees_no_error_and_never_goes_back(
    lake: Path, scoreboard: Record, log_bytes: int
) -> None:
    gate = Gate(f"R28 refreshes beside a process with {log_bytes:,} B logs: wrong", 250, 2_500)
    with busy(lake, log_bytes=log_bytes), neve.open(lake, create=False) as opened:
        table = opened.table(busy_writer.NAME, read_only=True)
        before = counted_and_whole(table)
        for seed in gate.seeds():
            table.refresh()
            now = counted(table) if seed % WHOLE_EVERY else counted_and_whole(table)
            assert now >= before
            before = now
            gate.cases += 1
    scoreboard(gate.line())
    assert before > 1


@pytest.mark.parametrize("log_bytes", [LONG_LOGS, SHORT_LOGS])
def test_opening_beside_a_busy_writer_never_fails_and_never_goes_back(
    lake: Path, scoreboard: Record, log_bytes: int
) -> None:
    gate = Gate(f"R28 opens beside a process with {log_bytes:,} B logs: wrong", 50, 250)
    before = 0
    with busy(lake, log_bytes=log_bytes):
        for _ in gate.seeds():
            with neve.open(lake, create=False) as opened:
                now = counted_and_whole(opened.table(busy_writer.NAME, read_only=True))
            assert now >= before
            before = now
            gate.cases += 1
    scoreboard(gate.line())
    assert before > 1


class Copy:
    """A copy of the table: the rows of a Version, and what was live when it was last read."""

    def __init__(self) -> None:
        self.version = 0
        self.rows: dict[int, int] = {}
        self.live: dict[int, int] = {}
        self.live_count = 0

    def catch_up(self, table: neve.Table) -> None:
        """Read on, live; what was live before is no longer."""
        live = None
        for batch in table.changes(self.version, live=True):
            for change in batch.to_pylist():
                version = change["_commit_version"]
                if version is None:
                    live = dict(self.rows) if live is None else live
                    self._apply(change, live)
                    self.live_count += 1
                else:
                    assert live is None, "live changes come last"
                    assert version >= self.version
                    self.version = version
                    self._apply(change, self.rows)
        self.live = dict(self.rows) if live is None else live

    def _apply(self, change: dict[str, int], rows: dict[int, int]) -> None:
        kind, key = str(change["_change_type"]), change["id"]
        if kind in {"delete", "update_preimage"}:
            assert rows.pop(key) == change["n"], "exactly what was there"
        else:
            assert key not in rows
            rows[key] = change["n"]


@pytest.mark.parametrize("log_bytes", [LONG_LOGS, SHORT_LOGS])
def test_live_changes_beside_a_busy_writer_are_one_state_and_never_go_back(
    lake: Path, scoreboard: Record, log_bytes: int
) -> None:
    gate = Gate(f"R28 live feeds beside a process with {log_bytes:,} B logs: wrong", 100, 1_000)
    step, before, copy = busy_writer.BATCH_EVERY, 0, Copy()
    with busy(lake, log_bytes=log_bytes), neve.open(lake, create=False) as opened:
        table = opened.table(busy_writer.NAME, read_only=True)
        while len(copy.live) < 3:  # on a busy machine the writer may not have begun
            copy.catch_up(table)
        for _ in gate.seeds():
            copy.catch_up(table)
            count = copy.live[0]
            assert count >= before
            assert sorted(copy.live) == list(range(0, count + 1, step))
            before = count
            gate.cases += 1
    scoreboard(gate.line())
    assert copy.live_count > gate.cases, "not everything was flushed when it was read"
    with neve.open(lake) as opened, opened.table(busy_writer.NAME) as writer:
        copy.catch_up(writer)
        assert copy.live == {row["id"]: row["n"] for row in writer.scan().to_pylist()}
        writer.flush()
        copy.catch_up(writer)
        assert copy.rows == copy.live


def test_a_follower_goes_on_when_its_writer_ends_and_another_one_begins(lake: Path) -> None:
    with busy(lake, log_bytes=SHORT_LOGS):
        pass
    with neve.open(lake, create=False) as opened:
        follower = opened.table(busy_writer.NAME, read_only=True)
        count = counted_and_whole(follower)
        for turn in range(1, 4):
            with neve.open(lake) as other:
                writer = other.table(busy_writer.NAME, options=busy_writer.options(SHORT_LOGS))
                assert counted_and_whole(follower.refresh()) == count
                writer.put({"id": -9, "n": turn})
                assert follower.refresh().get(-9) == {"id": -9, "n": turn}
            assert follower.refresh().get(-9) == {"id": -9, "n": turn}
