"""The `neve` command: the table of its subcommands, how each ends, shell completion, `neve demo`.

    neve demo                 runs the demo of a checkout: examples/demo, not in the package
    neve create … set         tables of a lake by name
    neve put … apply          rows of a table; `neve sql` is among them
    neve history … rollback   versions of a table
    neve flush … recover      upkeep of tables
    neve inspect wal FILE…    takes files apart

Only this package reads the environment and writes to standard output. The module of a command is
loaded when the command is called; a new command is a line in the table below.

`neve --install-completion` writes click's completion script, which calls neve for the words:

    bash   <data>/bash-completion/completions/neve      <data> is $XDG_DATA_HOME or ~/.local/share
    fish   <config>/fish/completions/neve.fish          <config> is $XDG_CONFIG_HOME or ~/.config
    zsh    ~/.zfunc/_neve

Each shell loads the file by itself, zsh once its directory is on the search path.
"""

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from click.shell_completion import get_completion_class

from neve.cli.commands import LazyCommand, LazyGroup
from neve.cli.exit_codes import EXIT_CODE_WORDS, report_failure
from neve.cli.interrupts import end_at_once_when_interrupted
from neve.cli.standard_output import OutputFailed, finish_standard_output, watch_standard_output
from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.kernel import is_compiled

_SHELLS: Final = ("bash", "zsh", "fish")
_FROM_ENVIRONMENT: Final = "detect"
_AFTERWARDS: Final = {
    "bash": "Open a new terminal to use it; it needs the package bash-completion",
    "fish": "Open a new terminal to use it",
    "zsh": "Add `fpath+=~/.zfunc; autoload -Uz compinit; compinit` to ~/.zshrc once, then open a "
    "new terminal",
}


def install_completion_option() -> click.Option:
    """Make the option, which does its work when it is parsed, and ends the command."""
    return click.Option(
        ["--install-completion"],
        type=click.Choice([*_SHELLS, _FROM_ENVIRONMENT]),
        is_flag=False,
        flag_value=_FROM_ENVIRONMENT,
        is_eager=True,
        expose_value=False,
        metavar="[bash|zsh|fish]",
        callback=_install,
        help="Install completion of neve's commands; without a value, for the shell in $SHELL.",
    )


def _install(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is None or ctx.resilient_parsing:
        return
    shell = _detected_shell() if value == _FROM_ENVIRONMENT else value
    completion = get_completion_class(shell)
    assert completion is not None, f"click completes {shell}"
    script = completion(ctx.command, {}, "neve", "_NEVE_COMPLETE").source()
    path = _script_path(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(script, encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise Unavailable(
            f"could not write the completion script: {error.strerror}",
            path=str(path),
            hint="Make the directory writable, or name a shell: --install-completion bash",
        ) from error
    click.echo(f"wrote {path}")
    click.echo(_AFTERWARDS[shell])
    ctx.exit()


def _detected_shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _SHELLS:
        raise InvalidArgument(
            f"the shell {shell!r} in $SHELL cannot complete neve"
            if shell
            else "$SHELL does not name a shell",
            hint="Name one: --install-completion bash, zsh or fish",
        )
    return shell


def _script_path(shell: str) -> Path:
    home = Path.home()
    match shell:
        case "bash":
            share = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
            return share / "bash-completion" / "completions" / "neve"
        case "fish":
            config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
            return config / "fish" / "completions" / "neve.fish"
        case _:
            return home / ".zfunc" / "_neve"


_LIBRARY: Final = "neve"
_FORM: Final = "%(levelname)s %(name)s: %(message)s"
_COMMANDS: Final = {
    "demo": LazyCommand(
        "neve.cli.main", "demo", "Show what neve does, with real files and a real crash"
    ),
    "create": LazyCommand("neve.cli.create_command", "create", "Create a table"),
    "drop": LazyCommand("neve.cli.catalog_commands", "drop", "Drop a table, for good"),
    "rename": LazyCommand("neve.cli.catalog_commands", "rename", "Rename a table"),
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
    "sql": LazyCommand("neve.cli.sql_command", "sql", "Run SQL, or open a shell for it"),
    "import": LazyCommand(
        "neve.cli.import_command", "import_rows", "Write the rows of a file: CSV, JSON, Parquet"
    ),
    "apply": LazyCommand(
        "neve.cli.apply_command", "apply", "Apply a file of changes: upserts and deletes"
    ),
    "history": LazyCommand("neve.cli.history_commands", "history", "Show the versions of a table"),
    "changes": LazyCommand(
        "neve.cli.history_commands", "changes", "Show the changes to rows, version by version"
    ),
    "consumers": LazyCommand(
        "neve.cli.history_commands", "consumers", "Show who reads the changes, and how far"
    ),
    "evolve": LazyCommand(
        "neve.cli.evolve_command", "evolve", "Change the columns, partitions or sort order"
    ),
    "tag": LazyCommand("neve.cli.history_commands", "tag", "Tag a version, so that it is kept"),
    "rollback": LazyCommand(
        "neve.cli.history_commands", "rollback", "Make an old version current again"
    ),
    "iceberg": LazyCommand(
        "neve.cli.catalog_commands", "iceberg", "Show how other engines read a table"
    ),
    "serve": LazyCommand(
        "neve.cli.serve_command", "serve", "Serve the lake to other engines, by name"
    ),
    "flush": LazyCommand("neve.cli.upkeep_commands", "flush", "Commit rows of the log"),
    "compact": LazyCommand("neve.cli.upkeep_commands", "compact", "Rewrite files to read faster"),
    "expire": LazyCommand("neve.cli.upkeep_commands", "expire", "Expire old versions"),
    "gc": LazyCommand("neve.cli.upkeep_commands", "gc", "Delete files that are not needed"),
    "verify": LazyCommand("neve.cli.upkeep_commands", "verify", "Check all files of a table"),
    "recover": LazyCommand(
        "neve.cli.upkeep_commands", "recover", "Reconcile the catalog with its tables"
    ),
    "inspect": LazyCommand(
        "neve.cli.main", "inspect", "Take a file of a table apart, down to the bytes"
    ),
}
_INSPECT_COMMANDS: Final = {
    "dv": LazyCommand("neve.cli.inspect_commands", "dv", "A Puffin file of deletion vectors"),
    "manifest": LazyCommand(
        "neve.cli.inspect_commands", "manifest", "An object of a manifest store, or a whole store"
    ),
    "sst": LazyCommand(
        "neve.cli.inspect_commands", "sst", "A data file, or any other Parquet file"
    ),
    "wal": LazyCommand(
        "neve.cli.inspect_commands", "wal", "A write-ahead log, or a RocksDB or LevelDB MANIFEST"
    ),
}
_HELP: Final = "help"
_JSON: Final = "--json"
_END_OF_OPTIONS: Final = "--"
inspect: Final = LazyGroup(
    "inspect",
    lazy_commands=_INSPECT_COMMANDS,
    about="Take a file of a table apart and show what is in it, down to the bytes.",
)


def keep_log_lines_quiet() -> None:
    """Drop the library's log lines.

    Without a handler, Python would print warnings and errors in the middle of a drawing, or below
    an error that says the same.
    """
    logging.getLogger(_LIBRARY).addHandler(logging.NullHandler())


def verbose_option() -> click.Option:
    """Make the option, which applies to one command."""
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_log_lines,
        help="Write the library's log to standard error.",
    )


def _show_log_lines(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    logger = logging.getLogger(_LIBRARY)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORM))
    level_before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)

    def stop() -> None:
        logger.removeHandler(handler)
        logger.setLevel(level_before)

    ctx.call_on_close(stop)


class _Neve(LazyGroup):
    """The root command; it turns every error into one line and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> NoReturn:
        """Run one command line and exit, never in click's own way."""
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
        except BaseException as error:  # noqa: BLE001 - the last place to catch anything
            code = report_failure(error, as_json=_is_json_asked(given))
            finish_standard_output()
        sys.exit(code)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the exit codes mean."""
        del ctx
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), words) for code, words in EXIT_CODE_WORDS.items()])


def _with_help_asked(args: list[str]) -> list[str]:
    """Turn `neve help scan` into `neve scan --help`."""
    return [*args[1:], "--help"] if args[:1] == [_HELP] else args


def _is_json_asked(args: Sequence[str]) -> bool:
    """Whether errors are JSON, even if the command line could not be parsed."""
    words = [*takewhile(lambda word: word != _END_OF_OPTIONS, args)]
    return _JSON in words


cli: Final = _Neve(
    "neve",
    lazy_commands=_COMMANDS,
    about="Embeddable primary-key tables for the lakehouse.",
    params=[verbose_option(), install_completion_option()],
)
click.version_option(
    package_name="neve",
    prog_name="neve",
    message=f"%(prog)s %(version)s ({'with' if is_compiled else 'without'} the compiled kernel)",
)(cli)


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


_CHECKOUT: Final = Path(__file__).parents[3]


@click.command()
@click.option(
    "--lake",
    type=click.Path(path_type=str, file_okay=False),
    help="Work in this directory and leave the files there [default: one that is removed].",
)
@click.option("--json", "as_json", is_flag=True, help="Write only the numbers, as JSON.")
def demo(*, lake: str | None, as_json: bool) -> None:
    """Show what neve does, with real files, real threads and a real crash.

    Every number is measured in this run, and every claim is checked: the demo fails if one does not
    hold. It is part of neve's sources (`examples/demo`), not of the installed package.
    """
    if not (_CHECKOUT / "examples" / "demo").is_dir():
        raise NotFound(
            "the demo is not part of the installed package",
            hint="Run `make demo`, or `python examples/demo`, in a checkout of neve's sources",
        )
    sys.path.insert(0, str(_CHECKOUT))
    importlib.import_module("examples.demo.command").play(lake=lake, as_json=as_json)
