"""What a failed command says on standard error, and the code it ends with.

    0        done
    1        a bug in neve
    2 … 6    by the error's group, see `neve.errors`; wrong usage is 2
    130      interrupted from the keyboard, as shells count it
    141      whoever read the output stopped reading, as shells count it

An error is one line `neve: what and where`, and under it what to do.
"""

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from neve.cli.shown_text import shown_text
from neve.errors import NeveError

BUG: Final = 1
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141


class OutputClosed(Exception):
    """Whoever read the output stopped reading."""


@contextmanager
def watching_the_pipe() -> Iterator[None]:
    """Tell a reader that went away from a failure of the command."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


def report_failure(error: BaseException) -> int:
    """Say on standard error what went wrong; gives the exit code."""
    match error:
        case OutputClosed():
            return OUTPUT_CLOSED
        case NeveError():
            _say(_without_hint(error), error.hint)
            return error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            error.show()
            return error.exit_code
        case click.UsageError():
            asked = error.ctx.command_path if error.ctx is not None else "neve"
            _say(error.format_message(), f"`{asked} --help` tells how to call it")
            return error.exit_code
        case click.ClickException():
            _say(error.format_message(), None)
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            _say("interrupted", None)
            return INTERRUPTED
        case _:
            traceback.print_exception(error)
            what = f"{type(error).__name__}: {error}"
            _say(f"unexpected {what}", "This is a bug in neve: please report the lines above")
            return BUG


def _without_hint(error: NeveError) -> str:
    return str(error).removesuffix(f". {error.hint}")


def _say(message: str, hint: str | None) -> None:
    print(f"neve: {shown_text(message)}", file=sys.stderr)
    if hint is not None:
        print(f"      {shown_text(hint)}", file=sys.stderr)
