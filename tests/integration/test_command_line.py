"""The `neve` command as a process: start-up, pipes, interrupts, and the whole demo."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from neve.cli.demo_acts import ACTS
from tests.unit.wal.inspected_logs import neve_log, put

NEVE: Final = (sys.executable, "-c", "from neve.cli.main import main; main()")
WITHOUT_ROCKSDB: Final = (
    sys.executable,
    "-c",
    "import sys; sys.modules['rocksdict'] = None; from neve.cli.main import main; main()",
)
SECONDS: Final = 120


def neve(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEVE, *args],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


# Starting


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["inspect", "--help"], ["frob"]])
def test_what_needs_no_engine_does_not_load_it(args: Sequence[str]) -> None:
    code = f"""
import sys
from neve.cli.main import cli
try:
    cli.main({args!r})
except SystemExit:
    pass
heavy = {{"pyarrow", "numpy", "rich", "neve.wal", "neve.model", "neve.storage"}}
sys.exit(",".join(heavy & set(sys.modules)) or 0)
"""
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert finished.returncode == 0, finished.stderr


def test_a_failure_is_told_on_standard_error_with_its_exit_code(tmp_path: Path) -> None:
    finished = neve("inspect", "wal", str(tmp_path / "nothing.wal"))

    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr.startswith("neve: there is no file")


def test_the_shell_gets_its_completions() -> None:
    finished = neve(_NEVE_COMPLETE="bash_complete", COMP_WORDS="neve in", COMP_CWORD="1")

    assert finished.stdout.splitlines() == ["plain,inspect"]


def test_a_terminal_without_box_characters_gets_question_marks(tmp_path: Path) -> None:
    path = tmp_path / "000001.wal"
    path.write_bytes(neve_log([put(b"a")]))

    finished = neve("inspect", "wal", str(path), PYTHONIOENCODING="ascii")

    assert finished.returncode == 0, finished.stderr
    assert 'row 1  put "a" = "value"' in finished.stdout
    assert finished.stdout.isascii()


# Pipes


@pytest.mark.parametrize("args", [[], ["--json"]], ids=["drawing", "json"])
def test_a_reader_that_goes_away_ends_the_command_quietly(
    tmp_path: Path, args: Sequence[str]
) -> None:
    path = tmp_path / "000001.wal"
    path.write_bytes(neve_log(*[[put(b"key %d" % number)] for number in range(5_000)]))
    command = [*NEVE, "inspect", "wal", str(path), "--limit", "5000", *args]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(20)
        process.stdout.close()
        said = process.stderr.read()

    assert said == b""
    assert process.returncode == 141


def test_help_into_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    finished = subprocess.run(
        [*NEVE, "--help"], stdout=writer, stderr=subprocess.PIPE, timeout=SECONDS, check=False
    )
    os.close(writer)

    assert finished.stderr == b""
    assert finished.returncode == 141


# The demo


def findings_of(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for act in document["acts"] for name, value in act["findings"].items()}


def test_the_demo_measures_and_keeps_its_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    first = neve("demo", "--json", "--lake", str(lake))
    second = neve("demo", "--lake", str(lake))

    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert [act["name"] for act in document["acts"]] == [act.name for act in ACTS]
    found = findings_of(document)
    assert found["lost"] == 0
    assert found["torn"] == 0
    assert 0 < found["acknowledged"] <= found["recovered"]
    assert found["rows_per_sync"] > 1
    assert found["batch_rows"] == 200_000
    assert found["reported_at"] < found["flipped_at"]
    assert found["rows_before"] < found["rows_readable"]
    assert found["rocksdb_rows"] == 5_000
    assert second.returncode == 0, second.stderr
    assert "\x1b" not in second.stdout
    for act in ACTS:
        assert act.title in second.stdout
    assert "lost 0, torn 0" in second.stdout
    logs = sorted(lake.glob("tables/demo-*-orders/wal/0/*.wal"))
    assert len(logs) == found["logs"] * 2
    inspected = neve("inspect", "wal", "--strict", "--limit", "1", str(logs[0]))
    assert inspected.returncode == 0, inspected.stderr
    damaged = next(iter(lake.glob("tables/demo-*-damaged/wal/0/*.wal")))
    assert neve("inspect", "wal", "--strict", "--limit", "1", str(damaged)).returncode == 5


def test_the_demo_on_a_terminal_draws_progress_and_leaves_nothing_behind(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*WITHOUT_ROCKSDB, "demo"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(slave)
        shown = read_to_end(master)

    assert process.returncode == 0, shown
    assert "\x1b[" in shown
    assert "single rows" in shown
    assert "RocksDB is not installed here" in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert [*tmp_path.iterdir()] == []


def test_an_interrupted_demo_says_so_and_leaves_neither_files_nor_processes(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [*NEVE, "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if ACTS[2].title in line:
                break
        wait_for_file(tmp_path, "*/tables/*-crash/wal/0/000001.wal", process)
        (writer,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()

    assert process.returncode == 130
    assert said.strip() == "neve: interrupted"
    assert not writer.is_running()
    assert [*tmp_path.iterdir()] == []


def read_to_end(handle: int) -> str:
    """Read a terminal until its other end is closed, which Linux tells as an error."""
    pieces = []
    while select.select([handle], [], [], SECONDS)[0]:
        try:
            piece = os.read(handle, 1 << 16)
        except OSError:
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(handle)
    return b"".join(pieces).decode()


def wait_for_file(directory: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    """Wait until a process has made a file."""
    assert process.stderr is not None
    while not any(directory.glob(pattern)):
        assert process.poll() is None
        select.select([process.stderr], [], [], 0.01)
