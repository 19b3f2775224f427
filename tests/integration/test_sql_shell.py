"""The shell of `neve sql`, driven through a real terminal."""

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow.parquet as pq
import pytest

import neve

PROMPT = "neve> "
MORE = "…> "
SECONDS = 60.0
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\x07")


class Terminal:
    """A shell on a pseudo-terminal of 80 columns and 24 lines."""

    def __init__(self, folder: Path) -> None:
        self._master, slave = pty.openpty()
        environment = {
            **os.environ,
            "NEVE_LAKE": str(folder / "lake"),
            "XDG_STATE_HOME": str(folder / "state"),
            "TERM": "xterm",
            "PAGER": "sed s/^/paged:/",
            "COLUMNS": "80",
            "LINES": "24",
            "INPUTRC": "/dev/null",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "neve", "sql"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509 - so that Ctrl-C arrives
        )
        os.close(slave)
        self._text = ""
        # A read may end inside of a character.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def __enter__(self) -> Self:
        self.until(PROMPT)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    def until(self, wanted: str, *, seconds: float = SECONDS) -> str:
        """Read until some text was written, and return everything up to it."""
        ends_at = time.monotonic() + seconds
        while wanted not in self._text:
            left = max(ends_at - time.monotonic(), 0.0)
            ready, _, _ = select.select([self._master], [], [], left)
            assert ready, f"waited for {wanted!r}, got {self._text!r}"
            self._text += ESCAPES.sub("", self._decoder.decode(os.read(self._master, 65_536)))
        text, found, self._text = self._text.partition(wanted)
        return text + found

    def send(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def run(self, line: str, *, until: str = PROMPT) -> str:
        """Type a line, and return what was written until the next prompt."""
        self.send(f"{line}\n")
        return self.until(until)

    def interrupt(self) -> str:
        """Type Ctrl-C, again if it came before the shell was waiting for input."""
        for _ in range(10):
            self.send("\x03")
            with suppress(AssertionError):
                return self.until(PROMPT, seconds=SECONDS / 10)
        return self.until(PROMPT)

    def ended(self) -> int:
        """Wait for the end of the shell."""
        return self._process.wait(timeout=SECONDS)


def _take_terminal() -> None:
    os.close(os.open(os.ttyname(0), os.O_RDWR))  # becomes the controlling terminal
    # A job of a shell in the background ignores Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with neve.open(tmp_path / "lake") as lake:
        lake.sql("create table shop.orders (id bigint primary key, customer text, amount double)")
        lake.sql("insert into shop.orders values (1, 'ada', 9.5), (2, 'bob', 2)")
    return tmp_path


@contextmanager
def shell(folder: Path) -> Iterator[Terminal]:
    with Terminal(folder) as terminal:
        yield terminal


def test_statements_run_on_a_terminal(folder: Path) -> None:
    with shell(folder) as terminal:
        # one statement on two lines, with the time it took
        terminal.run("select customer,", until=MORE)
        shown = terminal.run("amount from shop.orders where id = 1;")
        assert "customer  amount" in shown
        assert "ada" in shown
        assert "(1 row)" in shown
        assert re.search(r"[0-9]+\.[0-9]{3} s", shown)

        # a semicolon in quotes does not end it
        terminal.run("select 'a;", until=MORE)
        assert "(1 row)" in terminal.run("b';")

        # errors say where, and the shell goes on
        wrong = terminal.run("selec 1;")
        assert "LINE 1: selec 1" in wrong
        assert "^" in wrong
        assert "Did you mean 'shop.orders'?" in terminal.run("from shop.order;")

        # changes and transactions
        assert "insert: 1 inserted" in terminal.run("insert into shop.orders values (3, 'c', 1);")
        terminal.run("begin; delete from shop.orders;")
        assert "(0 rows)" in terminal.run("from shop.orders;")
        terminal.run("rollback;")
        assert "(3 rows)" in terminal.run("from shop.orders;")

        # Ctrl-C drops what was typed, Ctrl-D ends
        terminal.run("select nothing", until=MORE)
        terminal.interrupt()
        assert "(1 row)" in terminal.run("select 1;")
        terminal.send("\x04")
        assert terminal.ended() == 0


def test_the_commands_of_the_shell(folder: Path) -> None:
    (folder / "read.sql").write_text("select 41 + 1 as answer;")
    with shell(folder) as terminal:
        assert ".tables" in terminal.run(".help")
        assert "orders" in terminal.run(".tables")
        assert "double" in terminal.run(".schema shop.orders")
        terminal.run(".timing off")
        assert " s\r\n" not in terminal.run("select 1;")
        assert "42" in terminal.run(f".read {folder / 'read.sql'}")
        terminal.run(".mode csv")
        assert "1,ada,9.5" in terminal.run("from shop.orders order by id;")
        terminal.run(".mode json")
        assert '"customer": "ada"' in terminal.run("from shop.orders;")
        terminal.run(".mode parquet")
        terminal.run(f".output {folder / 'out.parquet'}")
        terminal.run("from shop.orders;")
        assert pq.read_table(folder / "out.parquet").num_rows == 2
        terminal.run(".output -")
        terminal.run(".mode table")
        assert "paged:" in terminal.run("select range as n from range(50);")
        terminal.run(".pager off")
        assert "paged:" not in terminal.run("select range as n from range(50);")
        assert "no command" in terminal.run(".nothing")
        assert "neither on nor off" in terminal.run(".wide perhaps")
        terminal.send(".quit\n")
        assert terminal.ended() == 0


def test_words_are_completed_and_lines_kept(folder: Path) -> None:
    with shell(folder) as terminal:
        terminal.send("select cust\t")
        terminal.until("customer")
        terminal.send(" from shop.or\t")
        terminal.until("shop.orders")
        assert "(2 rows)" in terminal.run(";")
        terminal.send(".ta\t")
        terminal.until(".tables")
        terminal.run("")
        terminal.send("\x04")
        assert terminal.ended() == 0
    kept = folder / "state" / "neve" / "sql_history"
    assert "from shop.orders" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    with shell(folder) as terminal:
        terminal.send("\x1b[A\x1b[A")  # the line before the last one
        terminal.until("shop.orders")
        assert "(2 rows)" in terminal.run("")
        terminal.send("\x04")
        terminal.ended()
