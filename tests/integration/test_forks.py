"""Worker processes beside an open table: spawned ones work, forked ones work or say why not.

Each script runs as a process of its own with a time limit, so that a hang is a failure.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import neve

_SECONDS_MAX = 90
_WORKER = """
import multiprocessing, os, sys
import pyarrow as pa
import neve

def read(place):
    try:
        with neve.open(place) as lake, lake.table("a.t", read_only=True) as table:
            return str(table.scan("id >= 0").to_arrow().num_rows)
    except neve.NeveError as error:
        return f"{type(error).__name__}: {error}"

def forked(place):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, read(place).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        return answer.read()

def pooled(place, method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        return " ".join(sorted(set(pool.map(read, [place] * 4))))
"""

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def _said(place: Path, script: str) -> list[str]:
    """Run a script on a lake with a table of 3 rows; returns the lines it printed."""
    with (
        neve.open(place / "lake") as lake,
        lake.create_table("a.t", {"id": "long"}, "id") as table,
    ):
        table.upsert([{"id": at} for at in range(3)])
        table.flush()
    file = place / "script.py"
    lines = "".join(f"    {line}\n" for line in script.strip().splitlines())
    file.write_text(f'{_WORKER}\nif __name__ == "__main__":\n    place = sys.argv[1]\n{lines}')
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", str(file), str(place / "lake")],
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS_MAX,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_a_child_that_is_forked_before_a_table_is_opened_opens_one(tmp_path: Path) -> None:
    assert _said(
        tmp_path,
        """
print(forked(place))
lake = neve.open(place)
lake.list_tables("a")
print(forked(place))
print(pooled(place, "fork"))
""",
    ) == ["3", "3", "3"]


def test_a_child_that_is_forked_after_the_lake_was_closed_opens_one(tmp_path: Path) -> None:
    assert _said(
        tmp_path,
        """
with neve.open(place) as lake, lake.table("a.t") as table:
    table.put({"id": 7})
    table.scan().to_arrow()
print(forked(place))
""",
    ) == ["4"]


def test_a_child_that_is_forked_while_a_table_is_open_is_refused_before_it_can_hang(
    tmp_path: Path,
) -> None:
    by_hand, pooled = _said(
        tmp_path,
        """
lake = neve.open(place)
table = lake.table("a.t")
table.scan().to_arrow()
print(forked(place))
print(pooled(place, "fork"))
lake.close()
""",
    )
    assert by_hand.startswith("InvalidArgument: this process was forked while a table was open")
    assert 'multiprocessing.get_context("spawn")' in by_hand
    assert pooled == by_hand


def test_workers_that_are_spawned_read_beside_an_open_table(tmp_path: Path) -> None:
    assert _said(
        tmp_path,
        """
lake = neve.open(place)
table = lake.table("a.t")
table.put({"id": 8})
print(pooled(place, "spawn"))
lake.close()
""",
    ) == ["4"]
