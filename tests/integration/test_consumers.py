"""A process that consumes changes while another one writes, compacts and expires them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import neve

PROJECT = Path(__file__).parents[2]
BUSY = neve.TableOptions(
    sync="none", memtable_bytes=16_384, level0_files=2, iceberg_publish="demand"
)
ROUNDS = 18
KEYS = 20

CONSUMER = """
import json, sys, neve

lake, dies = sys.argv[1], sys.argv[2] == "dies"
with neve.open(lake, create=False) as opened, opened.table("a.b", read_only=True) as table:
    print("ready", flush=True)
    rounds = 0
    while True:
        rounds += 1
        is_last = not sys.stdin.readline().strip()
        for number, batch in enumerate(table.changes(consumer="copy")):
            print(json.dumps(batch.drop_columns(["_commit_timestamp"]).to_pylist()), flush=True)
            if dies and rounds == 3 and number == 1:
                sys.stdout.flush()
                import os
                os._exit(9)
        print("done", flush=True)
        if is_last:
            break
"""


class Copy:
    """A process that reads changes on demand, and the rows that they make."""

    def __init__(self, lake: Path, *, dies: bool = False) -> None:
        self.rows: dict[int, int] = {}
        self.versions: list[int] = []
        self._process = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, str(lake), "dies" if dies else "lives"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def catch_up(self, *, is_last: bool = False) -> bool:
        """Apply the changes of one round; False when the process died in it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n" if is_last else "go\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line == "done\n":
                return True
            for change in json.loads(line):
                self._apply(change)
        return False

    def end(self) -> int:
        """Wait for the end of the process; return its exit code."""
        self._process.communicate(timeout=60)
        return self._process.returncode

    def _apply(self, change: dict[str, Any]) -> None:
        self.versions.append(change["_commit_version"])
        kind = change["_change_type"]
        if kind in {"insert", "update_postimage"}:
            self.rows[change["id"]] = change["n"]
        elif kind == "delete":
            self.rows.pop(change["id"], None)


def write(table: neve.Table, turn: int) -> None:
    """Commit some Versions, and remove as much of the history as is allowed."""
    for part in range(3):
        number = 3 * turn + part
        table.upsert([{"id": (number + key) % KEYS, "n": number} for key in range(5)])
        table.delete(number % KEYS)
        table.flush()
    if turn % 4 == 0:
        table.compact(full=True)
    table.expire(keep_last=1)
    table.collect_garbage(dry_run=False)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    with neve.open(tmp_path / "lake") as opened:
        opened.create_table("a.b", {"id": "long", "n": "long"}, primary_key="id")
    return tmp_path / "lake"


def test_a_consumer_beside_a_process_that_writes_and_expires_misses_nothing(lake: Path) -> None:
    with neve.open(lake) as opened, opened.table("a.b", options=BUSY) as table:
        copy = Copy(lake)
        assert copy.catch_up()
        for turn in range(ROUNDS):
            write(table, turn)
            if turn % 3:
                assert copy.catch_up()
        assert copy.catch_up(is_last=True)
        assert copy.end() == 0
        table.expire(keep_last=1)

        assert copy.rows == {row["id"]: row["n"] for row in table.scan().to_pylist()}
        assert copy.versions == sorted(copy.versions)
        assert table.history().num_rows == 1, "what was read is not kept"


def test_a_consumer_that_is_killed_half_way_gets_the_same_changes_again(lake: Path) -> None:
    with neve.open(lake) as opened, opened.table("a.b", options=BUSY) as table:
        killed = Copy(lake, dies=True)
        assert killed.catch_up()
        write(table, 0)
        assert killed.catch_up()
        known = len(killed.versions)
        write(table, 1)
        assert not killed.catch_up()
        assert killed.end() == 9
        lost = killed.versions[known:]
        (row,) = table.consumers().to_pylist()
        assert row["position"] < lost[0], "its position is before the changes that it died in"
        for turn in range(2, 5):
            write(table, turn)

        again = Copy(lake)
        again.rows = killed.rows
        assert again.catch_up(is_last=True)
        assert again.end() == 0

        assert again.versions[: len(lost)] == lost
        assert again.rows == {row["id"]: row["n"] for row in table.scan().to_pylist()}
