"""The `neve` command as a process: start-up, pipes, interrupts, and the whole demo."""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from examples.demo.acts import ACTS
from tests.unit.wal.inspected_logs import neve_log, put

NEVE: Final = (sys.executable, "-c", "from neve.__main__ import main; main()")
WITHOUT_SPARK: Final = (
    sys.executable,
    "-c",
    "import sys; sys.modules['pyspark'] = None; from neve.__main__ import main; main()",
)
WITHOUT_GUESTS: Final = (
    sys.executable,
    "-c",
    (
        "import sys; sys.modules |= dict.fromkeys("
        "['pyspark', 'rocksdict', 'duckdb', 'uvicorn', 'moto']); "
        "from neve.__main__ import main; main()"
    ),
)
SECONDS: Final = 120


# The test runner says how wide its own terminal is; nobody asked the commands to be so narrow.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "COLUMNS"}


def heed_interrupts() -> None:
    """Undo what a shell does to programs it runs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def neve(
    *args: str, command: Sequence[str] = NEVE, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *args],
        env=ENVIRONMENT | environment,
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
heavy = {{"pyarrow", "numpy", "rich", "neve.wal", "neve.model", "neve.storage.local_store"}}
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


def test_a_terminal_without_box_characters_gets_a_drawing_in_ascii(tmp_path: Path) -> None:
    path = tmp_path / "000001.wal"
    path.write_bytes(neve_log([put(b"a")]))

    finished = neve("inspect", "wal", str(path), PYTHONIOENCODING="ascii")

    assert finished.returncode == 0, finished.stderr
    assert "+- block 0 - bytes 0 to " in finished.stdout
    assert 'row 1  put "a" = "value"' in finished.stdout
    assert finished.stdout.isascii()
    assert "?" not in finished.stdout


LOGS_A_LINE: Final = """
import logging, sys
import click
from neve.cli import main
from neve.cli import main as demo_command
@click.command()
def logs() -> None:
    logging.getLogger("neve.wal.write_ahead_log").error("poisoned log=x")
demo_command.demo = logs
main.main()
"""


def test_what_the_library_logs_is_shown_only_when_asked_for() -> None:
    command = [sys.executable, "-c", LOGS_A_LINE]
    quiet = subprocess.run([*command, "demo"], capture_output=True, text=True, check=True)
    asked = subprocess.run([*command, "-v", "demo"], capture_output=True, text=True, check=True)

    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert asked.stderr == "ERROR neve.wal.write_ahead_log: poisoned log=x\n"


INTERRUPTED_WHILE_LOADING: Final = """
import importlib, os, signal, sys
from neve import __main__ as entry
load, wanted = importlib.import_module, sys.argv.pop(1)
def interrupted(name):
    if name == wanted:
        os.kill(os.getpid(), signal.SIGINT)
    return load(name)
importlib.import_module = interrupted
entry.main()
"""


@pytest.mark.parametrize("module", ["neve.cli.main", "neve.cli.create_command"])
def test_an_interrupt_while_modules_are_loaded_is_one_line(tmp_path: Path, module: str) -> None:
    command = (sys.executable, "-c", INTERRUPTED_WHILE_LOADING, module)
    asked = ["create", "a.b", "id:long", "--key", "id", "--lake", str(tmp_path / "lake")]

    stopped = subprocess.run(
        [*command, *asked],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=heed_interrupts,
    )

    assert stopped.returncode == 130
    assert stopped.stderr == "neve: interrupted\n"
    assert [*tmp_path.iterdir()] == []


def test_a_command_that_makes_no_data_frame_does_not_load_pandas(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    watched = (
        sys.executable,
        "-c",
        (
            "import atexit, sys; from neve.__main__ import main; "
            "atexit.register(lambda: print('pandas' in sys.modules, file=sys.stderr)); main()"
        ),
    )
    assert neve("create", "a.b", "id:long", "--key", "id", "--lake", lake).returncode == 0

    done = neve("put", "a.b", '{"id": 1}', "--lake", lake, command=watched)

    assert done.returncode == 0, done.stderr
    assert done.stderr == "False\n"


# Questions


@pytest.mark.parametrize(
    ("answer", "code", "is_left"),
    [(b"n\n", 7, True), (b"\n", 7, True), (b"y\n", 0, False), (b"\x03", 130, True)],
    ids=["no", "nothing", "yes", "interrupt"],
)
def test_on_a_terminal_a_table_is_dropped_after_a_question(
    tmp_path: Path, answer: bytes, code: int, *, is_left: bool
) -> None:
    lake = str(tmp_path / "lake")
    assert neve("create", "a.b", "id:long", "--key", "id", "--lake", lake).returncode == 0
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*NEVE, "drop", "a.b", "--lake", lake],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=ENVIRONMENT | {"TERM": "dumb"},
        start_new_session=True,
        preexec_fn=own_the_terminal,  # noqa: PLW1509 - one call, no thread holds a lock it needs
    ) as process:
        os.close(slave)
        asked = read_until(master, b"[y/N]: ")
        os.write(master, answer)
        shown = read_to_end(master)

    assert "Drop a.b, with 0 rows, for good?" in asked
    assert process.returncode == code, shown
    assert "Traceback" not in shown
    listed = json.loads(neve("tables", "--json", "--lake", lake).stdout)["tables"]
    assert bool(listed) == is_left


def own_the_terminal() -> None:
    """Make standard input the terminal whose keys interrupt the process."""
    heed_interrupts()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def read_until(handle: int, end: bytes) -> str:
    """Read a terminal until it shows something."""
    shown = b""
    while not shown.endswith(end):
        assert select.select([handle], [], [], SECONDS)[0], shown
        shown += os.read(handle, 1 << 16)
    return shown.decode()


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


@pytest.mark.parametrize(
    "args",
    [["demo"], ["inspect", "wal"], ["inspect", "wal", "--json"], ["--help"], ["--version"]],
    ids=" ".join,
)
def test_an_output_on_a_full_disk_is_one_line_and_exit_code_three(
    tmp_path: Path, args: Sequence[str]
) -> None:
    path = tmp_path / "000001.wal"
    path.write_bytes(neve_log([put(b"a")]))
    files = [str(path)] if "wal" in args else []

    with Path("/dev/full").open("w") as full:
        finished = subprocess.run(
            [*NEVE, *args, *files],
            stdout=full,
            stderr=subprocess.PIPE,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert finished.returncode == 3
    said = "could not write the output: No space left on device"
    if "--json" in args:
        assert json.loads(finished.stderr)["error"]["message"] == said
    else:
        first, hint = finished.stderr.splitlines()
        assert first == f"neve: {said}"
        assert hint.startswith("      Make room where it goes")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_process_without_an_output_says_so() -> None:
    command = f"{shlex.join([*NEVE, '--version'])} >&-"
    finished = subprocess.run(
        ["/bin/sh", "-c", command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert finished.returncode == 3
    assert finished.stderr.startswith("neve: could not write the output: it is closed\n")


def test_an_error_comes_after_the_drawing_when_both_go_to_one_place(tmp_path: Path) -> None:
    path = tmp_path / "000001.wal"
    path.write_bytes(neve_log([put(b"a")])[:-1])

    finished = subprocess.run(
        [*NEVE, "inspect", "wal", "--strict", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert finished.returncode == 5
    assert finished.stdout.splitlines()[-1].startswith("neve: the log is damaged in ")


def test_a_log_can_come_out_of_a_pipe() -> None:
    log = neve_log([put(b"a")])

    finished = subprocess.run(
        [*NEVE, "inspect", "wal", "-"], input=log, capture_output=True, timeout=SECONDS, check=False
    )

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.decode().startswith(f"standard input  {len(log):,} bytes\n")


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


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        ("", "neve: --lake is given without a name\n      Name a directory"),
        ("/proc/nothing", "neve: no directory can be made at /proc/nothing\n      Give --lake"),
    ],
)
def test_a_lake_that_cannot_be_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)

    finished = neve("demo", "--lake", lake)

    assert finished.returncode == 2
    assert finished.stderr.startswith(said)
    assert [*tmp_path.iterdir()] == []


def findings_of(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for act in document["acts"] for name, value in act["findings"].items()}


def test_the_demo_measures_and_keeps_its_lake(tmp_path: Path) -> None:
    lake = tmp_path / "lake"

    first = neve("demo", "--json", "--lake", str(lake), command=WITHOUT_SPARK)
    second = neve("demo", "--lake", str(lake), command=WITHOUT_GUESTS, COLUMNS="80")

    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert [act["name"] for act in document["acts"]] == [act.name for act in ACTS]
    found = findings_of(document)
    assert found["lost"] == 0
    assert found["torn"] == 0
    assert 0 < found["acknowledged"] <= found["recovered"]
    assert found["rows_per_sync"] > 1
    assert found["batch_rows"] == 200_000
    assert found["pyiceberg_rows"] == found["duckdb_rows"] == 197_010
    assert 0 < found["put_p50_microseconds"] <= found["put_p99_microseconds"]
    assert 0 < found["upsert_p50_microseconds"] <= found["upsert_p99_microseconds"]
    assert found["changes_told"] == 2 * 19_900 + 2_990
    assert (found["sql_is_installed"], found["bucket_rows"]) == (True, 20_000)
    numbers = [level["level"] for level in document["levels"]]
    assert numbers[0] == 0
    assert numbers == sorted(set(numbers))
    assert len(numbers) == found["levels"] >= 3
    assert sum(level["rows"] for level in document["levels"]) == 197_010
    assert all(level["files"] and level["bytes"] for level in document["levels"])
    assert sum(level["marked_rows"] for level in document["levels"]) > 0
    pictures = [*lake.glob("levels-*.svg")]
    assert len(pictures) == 2
    assert all(picture.read_text().startswith("<svg ") for picture in pictures)
    assert found["marked_rows"] > found["changed_rows"] > 0
    assert found["bytes_after"] < found["bytes_before"]
    assert found["reported"]
    assert found["rocksdb_rows"] == 5_000
    assert second.returncode == 0, second.stderr
    assert "\x1b" not in second.stdout
    for act in ACTS:
        assert act.title in second.stdout
        for line in act.code.splitlines():
            assert f"    │ {line}\n" in second.stdout
    assert "lost 0, torn 0" in second.stdout
    # A command to copy stays in one piece, however long the name of the directory is.
    lines = [each for each in second.stdout.splitlines() if not each.startswith("  neve ")]
    assert max(map(len, lines)) <= 80
    assert "Corruption: column" in second.stdout
    closing, _, drawn = second.stdout.partition("Measured in this run\n")[2].partition(
        "The table of orders, level by level\n"
    )
    assert 8 < len(closing.splitlines()) <= 18
    assert re.search(r"put, from 16 threads +\d.* [µm]s +\d.* [µm]?s +[\d,]+\n", closing)
    assert re.search(r"  level [1-9]  █+· .* live rows .* marked ", drawn)
    assert not re.search(r"byte \d{4}", second.stdout), "numbers have commas"
    listed = json.loads(neve("tables", "--json", "--lake", str(lake)).stdout)
    orders = [each["name"] for each in listed["tables"] if each["name"].endswith(".orders")]
    assert len(orders) == 2
    kept = neve("history", orders[0], "--json", "--lake", str(lake))
    assert kept.returncode == 0, kept.stderr


def test_the_demo_on_a_terminal_draws_progress_and_leaves_nothing_behind(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*WITHOUT_GUESTS, "demo"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color", "COLUMNS": "100"},
    ) as process:
        os.close(slave)
        shown = read_to_end(master)

    assert process.returncode == 0, shown
    assert "\x1b[" in shown
    assert "live puts" in shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "RocksDB is not installed here" in plain
    assert "Spark is not installed here: pip install 'neve[spark]'" in plain
    assert "DuckDB is not installed here: pip install 'neve[sql]'" in plain
    assert "the server is not installed here: pip install 'neve[server]'" in plain
    assert re.search(r"level 0 +█", plain)
    assert [*tmp_path.iterdir()] == []


def test_an_interrupted_demo_says_so_and_leaves_neither_files_nor_processes(
    tmp_path: Path,
) -> None:
    with subprocess.Popen(
        [*NEVE, "demo"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - one call, no thread holds a lock it needs
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # Lines come one by one, also through a pipe: the acts that follow are not played yet.
        for line in process.stdout:
            if ACTS[1].title in line:
                break
        writer = wait_for_child(process)
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


def wait_for_child(process: subprocess.Popen[str]) -> psutil.Process:
    """Wait until a process has started another one."""
    assert process.stderr is not None
    while not (children := psutil.Process(process.pid).children()):
        assert process.poll() is None
        select.select([process.stderr], [], [], 0.01)
    return children[0]


def test_an_import_that_is_interrupted_says_how_to_go_on(tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    assert neve("create", "a.b", "id:long", "--key", "id", "--lake", lake).returncode == 0
    asked = ["import", "a.b", "-", "--format", "jsonl", "--batch-rows", "100", "--lake", lake]
    with subprocess.Popen(
        [*NEVE, *asked],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - one call, no thread holds a lock it needs
    ) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f'{{"id": {number}}}\n' for number in range(250)))
        process.stdin.flush()
        # Two batches are written; for the third, more rows are waited for.
        while '"count": 200' not in neve("scan", "a.b", "--count", "--json", "--lake", lake).stdout:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS)

    assert process.returncode == 130
    assert said.splitlines() == [
        "neve: interrupted; 200 rows or more of the file are in the table a.b",
        "      Import the file again: writing a row twice is harmless",
    ]
