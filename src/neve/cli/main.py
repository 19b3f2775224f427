"""The `neve` command: which subcommands there are, and how every one of them ends.

    neve demo                 shows what neve does, for real
    neve create … history     tables of a warehouse by name
    neve put … import         rows of a table
    neve flush … recover      upkeep of tables
    neve inspect wal FILE…    takes logs apart

Only this package reads the environment and writes to standard output. Command modules are loaded
when they are asked for; a new command is a line in the table below.
"""

import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final, NoReturn

import click

from neve.cli.commands import LazyCommand, LazyGroup
from neve.cli.completion import install_completion_option
from neve.cli.exit_codes import EXIT_CODE_WORDS, report_failure
from neve.cli.interrupts import end_at_once_when_interrupted
from neve.cli.main import keep_log_lines_quiet, verbose_option
from neve.cli.standard_output import OutputFailed, finish_standard_output, watch_standard_output

_COMMANDS: Final = {
    "demo": LazyCommand(
        "neve.cli.demo_command", "demo", "Show what neve does, with real files and a real crash"
    ),
    "create": LazyCommand("neve.cli.create_command", "create", "Make a table"),
    "drop": LazyCommand("neve.cli.catalog_commands", "drop", "Drop a table, for good"),
    "rename": LazyCommand("neve.cli.catalog_commands", "rename", "Give a table another name"),
    "tables": LazyCommand("neve.cli.catalog_commands", "tables", "List tables"),
    "describe": LazyCommand(
        "neve.cli.catalog_commands", "describe", "Show the definition of a table"
    ),
    "set": LazyCommand(
        "neve.cli.catalog_commands", "set_properties", "Change the properties of a table"
    ),
    "put": LazyCommand("neve.cli.row_commands", "put", "Write a row, or many"),
    "get": LazyCommand("neve.cli.row_commands", "get", "Show the rows of keys"),
    "delete": LazyCommand("neve.cli.row_commands", "delete", "Delete rows"),
    "scan": LazyCommand("neve.cli.row_commands", "scan", "Show many rows, or write them to a file"),
    "import": LazyCommand(
        "neve.cli.import_command", "import_rows", "Write the rows of a file: CSV, JSON, Parquet"
    ),
    "history": LazyCommand("neve.cli.catalog_commands", "history", "Show the versions of a table"),
    "changes": LazyCommand(
        "neve.cli.history_commands", "changes", "Show what happened to rows, version by version"
    ),
    "evolve": LazyCommand(
        "neve.cli.evolve_command", "evolve", "Change columns, partitions or sort order of a table"
    ),
    "tag": LazyCommand("neve.cli.history_commands", "tag", "Name a version, so that it is kept"),
    "rollback": LazyCommand(
        "neve.cli.history_commands", "rollback", "Make an old version the current one again"
    ),
    "iceberg": LazyCommand(
        "neve.cli.catalog_commands", "iceberg", "Show how other engines read a table"
    ),
    "flush": LazyCommand("neve.cli.upkeep_commands", "flush", "Commit what is only in the log"),
    "compact": LazyCommand("neve.cli.upkeep_commands", "compact", "Rewrite files to read faster"),
    "expire": LazyCommand("neve.cli.upkeep_commands", "expire", "Let old versions go"),
    "gc": LazyCommand("neve.cli.upkeep_commands", "gc", "Delete files that nobody needs"),
    "verify": LazyCommand("neve.cli.upkeep_commands", "verify", "Check all files of a table"),
    "recover": LazyCommand(
        "neve.cli.upkeep_commands", "recover", "Bring catalog and tables together"
    ),
    "inspect": LazyCommand(
        "neve.cli.main", "inspect", "Take a file of a table apart, down to the bytes"
    ),
}


_HELP: Final = "help"
_JSON: Final = "--json"
_END_OF_OPTIONS: Final = "--"


class _Neve(LazyGroup):
    """The root command; it turns whatever went wrong into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> NoReturn:
        """Run one command line and exit; click's own endings are never used."""
        del standalone_mode
        given = _with_help_asked([*(sys.argv[1:] if args is None else args)])
        try:
            code = super().main(
                given,
                prog_name or self.name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the last place where anything is caught
            code = report_failure(error, as_json=_is_json_asked(given))
            finish_standard_output()
        sys.exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the exit codes mean."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), words) for code, words in EXIT_CODE_WORDS.items()])


def _with_help_asked(args: list[str]) -> list[str]:
    """Let `neve help scan` be `neve scan --help`."""
    return [*args[1:], "--help"] if args[:1] == [_HELP] else args


def _is_json_asked(args: Sequence[str]) -> bool:
    """Whether errors are for programs; also where the command line could not be read to its end."""
    words = [*takewhile(lambda word: word != _END_OF_OPTIONS, args)]
    return _JSON in words


cli: Final = _Neve(
    "neve",
    lazy_commands=_COMMANDS,
    about="Embeddable primary-key tables for the lakehouse.",
    params=[verbose_option(), install_completion_option()],
)
click.version_option(package_name="neve", prog_name="neve", message="%(prog)s %(version)s")(cli)


def main() -> NoReturn:
    """Run the command line of this process, and exit."""
    keep_log_lines_quiet()
    try:
        watch_standard_output()
    except OutputFailed as error:
        sys.exit(report_failure(error))
    try:
        cli.main(prog_name="neve")
    finally:
        end_at_once_when_interrupted()
