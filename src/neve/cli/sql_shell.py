"""SqlShell: statements typed on a terminal, with history and completion.

    neve> select customer, sum(amount)
       …> from shop.orders group by customer;
    .tables [NAMESPACE]      tables                    .mode table|json|jsonl|csv   form of rows
    .schema TABLE            columns of a table        .output FILE|-               where rows go
    .read FILE               run a file                .timing on|off               seconds of each
    .wide on|off             do not wrap rows          .pager on|off                page many rows
    .help                    this list                 .quit                        end, as Ctrl-D

A statement ends with a semicolon, on any line; Ctrl-C drops what was typed. Tab completes commands,
keywords, tables, and columns of the tables in the statement. Lines are kept for the next shell, in
$XDG_STATE_HOME/neve/sql_history or ~/.local/state/neve/sql_history. An error ends a statement, not
the shell; the end of the shell rolls an open transaction back.
"""

import io
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import click

from neve.catalog.lake import Lake
from neve.catalog.sql_door import SqlResult, SqlSession
from neve.cli.exit_codes import report_failure
from neve.cli.interrupts import forget_interrupts
from neve.cli.row_output import STANDARD_OUTPUT, RowForm
from neve.cli.standard_output import OutputClosed, OutputFailed
from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.sql.parser import ends_statement, split

_PROMPT: Final = "neve> "
_MORE: Final = "   …> "
_HISTORY_LINES: Final = 2_000
_TABLES_COMPLETED: Final = 20
_WORD: Final = re.compile(r"[\w.]+")
_KEYWORDS: Final = (
    "select", "from", "where", "group by", "order by", "having", "limit", "join", "left join",
    "using", "with", "insert into", "values", "update", "set", "delete from", "merge into",
    "when matched then", "when not matched then", "create table", "create namespace",
    "primary key", "partitioned by", "alter table", "add column", "drop column", "rename column",
    "drop table", "show tables", "show namespaces", "describe", "explain", "explain analyze",
    "call compact", "call expire", "call rollback", "begin", "commit", "rollback", "distinct",
    "between", "is null", "is not null", "for version as of", "for timestamp as of", "count",
    "sum", "avg", "min", "max", "case", "when", "then", "else", "end", "union all", "table_changes",
)  # fmt: skip


class _Printer(Protocol):
    """What writes results."""

    form: RowForm
    path: str
    wide: bool

    def write(self, result: SqlResult, *, is_last: bool = True) -> None:
        """Write what a statement returned."""


class SqlShell:
    """Reads statements until the end of input."""

    def __init__(self, lake: Lake, session: SqlSession, printer: _Printer) -> None:
        self._lake = lake
        self._session = session
        self._printer = printer
        self._has_timing = True
        self._has_pager = True
        self._lines: list[str] = []
        self._commands: dict[str, Callable[[str], None]] = {
            ".tables": lambda name: self._run(f"show tables{f' in {name}' if name else ''}"),
            ".schema": lambda name: self._run(f"describe {name}"),
            ".read": self._read,
            ".mode": self._set_mode,
            ".output": self._set_output,
            ".timing": lambda word: self._switch("_has_timing", word),
            ".pager": lambda word: self._switch("_has_pager", word),
            ".wide": lambda word: setattr(self._printer, "wide", _is_on(word)),
            ".help": lambda _: click.echo(_help()),
        }

    def run(self) -> None:
        """Read and run statements until .quit or Ctrl-D."""
        readline = _readline()
        history = _history_file()
        if readline is not None:
            _begin_readline(readline, history, self._completed)
        try:
            while self._step():
                pass
        finally:
            if readline is not None:
                _save_history(readline, history)

    def _step(self) -> bool:
        try:
            line = input(_MORE if self._lines else _PROMPT)
        except EOFError:
            click.echo()
            return False
        except KeyboardInterrupt:
            forget_interrupts()
            self._lines = []
            click.echo()
            return True
        word = line.strip()
        if not self._lines and word.startswith("."):
            if word.split()[0] in {".quit", ".exit"}:
                return False
            self._guarded(lambda: self._command(word))
            return True
        self._lines.append(line)
        text = "\n".join(self._lines)
        if not text.strip():
            self._lines = []
        elif ends_statement(text):
            self._lines = []
            self._guarded(lambda: self._run(text))
        return True

    def _guarded(self, work: Callable[[], None]) -> None:
        """Report what goes wrong, and go on."""
        try:
            work()
        except (OutputClosed, OutputFailed):
            raise
        except (NeveError, KeyboardInterrupt, click.ClickException) as error:
            report_failure(error)
            forget_interrupts()

    def _command(self, line: str) -> None:
        name, _, argument = line.partition(" ")
        command = self._commands.get(name)
        if command is None:
            raise InvalidArgument(f"there is no command {name}", hint=".help lists them")
        command(argument.strip().rstrip(";"))

    def _run(self, text: str) -> None:
        for part in split(text):
            began = time.perf_counter()
            result = self._session.sql(part)
            seconds = time.perf_counter() - began
            self._show(result)
            if self._has_timing:
                click.echo(f"{seconds:.3f} s")

    def _show(self, result: SqlResult) -> None:
        height = shutil.get_terminal_size().lines if sys.stdout.isatty() else 0
        is_table = self._printer.form is RowForm.TABLE and self._printer.path == STANDARD_OUTPUT
        if not (self._has_pager and is_table and height and len(result) > height - 4):
            self._printer.write(result)
            return
        drawn = io.StringIO()
        out, sys.stdout = sys.stdout, drawn
        try:
            self._printer.write(result)
        finally:
            sys.stdout = out
        click.echo_via_pager(drawn.getvalue())

    def _read(self, name: str) -> None:
        try:
            text = Path(name).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"could not read the statements: {error}", hint="Check the name of the file"
            ) from error
        self._run(text)

    def _set_mode(self, word: str) -> None:
        if word not in {RowForm.TABLE, RowForm.JSON, RowForm.JSONL, RowForm.CSV, RowForm.PARQUET}:
            raise InvalidArgument(
                f"there is no form {word!a}", hint="Use table, json, jsonl, csv or parquet"
            )
        self._printer.form = RowForm(word)

    def _set_output(self, path: str) -> None:
        self._printer.path = path or STANDARD_OUTPUT

    def _switch(self, name: str, word: str) -> None:
        setattr(self, name, _is_on(word))

    # Completion

    def _completed(self, begun: str, state: int) -> str | None:
        """Return one word of those that begin so, for readline."""
        with suppress(NeveError):
            return next(islice(self._offered(begun), state, None), None)
        return None

    def _offered(self, begun: str) -> Iterator[str]:
        folded = begun.casefold()
        readline = _readline()
        line = "" if readline is None else str(readline.get_line_buffer())
        text = "\n".join([*self._lines, line])
        if line.startswith(".") and begun.startswith("."):
            words = [*self._commands, ".quit"]
        else:
            tables = self._lake.list_tables()
            named = {word.casefold() for word in _WORD.findall(text)}
            inside = [table for table in tables if table.casefold() in named]
            columns = {
                column
                for table in (inside or tables)[:_TABLES_COMPLETED]
                for column in self._lake.load_table(table).schema.arrow_schema.names
            }
            words = [*sorted(columns), *tables, "__tables", "__snapshots", "__files", *_KEYWORDS]
        yield from (word for word in words if word.casefold().startswith(folded))


def _is_on(word: str) -> bool:
    if word not in {"on", "off"}:
        raise InvalidArgument(f"{word!a} is neither on nor off", hint="Write on or off")
    return word == "on"


def _help() -> str:
    lines = (__doc__ or "").splitlines()
    return "\n".join(line for line in lines if line.startswith("    ."))


def _readline() -> Any:  # noqa: ANN401 - a module, where Python has it
    try:
        return import_module("readline")
    except ImportError:
        return None


def _history_file() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "neve" / "sql_history"


def _begin_readline(
    readline: Any,  # noqa: ANN401 - a module
    history: Path,
    complete: Callable[[str, int], str | None],
) -> None:
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n\"'`,()<>=+-*/;")
    readline.parse_and_bind("tab: complete")
    readline.set_history_length(_HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(str(history))


def _save_history(readline: Any, history: Path) -> None:  # noqa: ANN401 - a module
    with suppress(OSError):
        history.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(str(history))
        history.chmod(0o600)
