"""The `neve` command: which subcommands there are, and how every one of them ends.

    neve demo                 shows what neve does, for real
    neve create … history     tables of a warehouse by name
    neve inspect wal FILE     takes a log apart

Only this package reads the environment and writes to standard output. Command modules are loaded
when they are asked for; a new command is a line in the table below.
"""

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from neve.cli.completion import install_completion_option
from neve.cli.exit_codes import OUTPUT_CLOSED, report_failure, watching_the_pipe
from neve.cli.lazy_group import LazyCommand, LazyGroup

_COMMANDS: Final = {
    "demo": LazyCommand(
        "neve.cli.demo_command", "demo", "Show what neve does, with real files and a real crash"
    ),
    "create": LazyCommand("neve.cli.catalog_commands", "create", "Make a table"),
    "drop": LazyCommand("neve.cli.catalog_commands", "drop", "Drop a table, for good"),
    "rename": LazyCommand("neve.cli.catalog_commands", "rename", "Give a table another name"),
    "tables": LazyCommand("neve.cli.catalog_commands", "tables", "List tables"),
    "describe": LazyCommand(
        "neve.cli.catalog_commands", "describe", "Show the definition of a table"
    ),
    "history": LazyCommand("neve.cli.catalog_commands", "history", "Show the versions of a table"),
    "inspect": LazyCommand(
        "neve.cli.inspect_group", "inspect", "Take a file of a table apart, down to the bytes"
    ),
}


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
        try:
            code = super().main(
                args,
                prog_name or self.name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            with watching_the_pipe():
                sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the last place where anything is caught
            code = report_failure(error)
            if code == OUTPUT_CLOSED:
                _forget_output()
        sys.exit(code)

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        """Parse the command line; answers `--help` and `--version`."""
        with watching_the_pipe():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> None:
        """Run the command."""
        with watching_the_pipe():
            super().invoke(ctx)


cli: Final = _Neve(
    "neve",
    lazy_commands=_COMMANDS,
    about="Embeddable primary-key tables for the lakehouse.",
    params=[install_completion_option()],
)
click.version_option(package_name="neve", prog_name="neve", message="%(prog)s %(version)s")(cli)


def main() -> NoReturn:
    """Entry point of the `neve` script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows a question mark instead of a traceback.
            stream.reconfigure(errors="replace")
    cli.main(prog_name="neve")


def _forget_output() -> None:
    """Give standard output somewhere to go, so that the interpreter's last flush is quiet."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
