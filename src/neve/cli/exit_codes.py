"""What a failed command says on standard error, and the code it ends with.

    0        done
    1        a bug in neve
    2 … 6    by the error's group, see `neve.errors`; wrong usage is 2, and 3 is also an output that
             cannot be written, such as a file on a full disk
    130      interrupted from the keyboard, as shells count it
    141      whoever read the output stopped reading, as shells count it

An error is one line `neve: what and where`, and under it what to do. It stands below what the
command has shown before it failed.
"""

import sys
import traceback
from contextlib import suppress
from typing import Final

import click

from neve.cli.shown_text import drawn_in_ascii, is_drawable, shown_text
from neve.cli.standard_output import OutputClosed, OutputFailed
from neve.errors import EXIT_CODES, NeveError, NextMove

BUG: Final = 1
OUTPUT_FAILED: Final = EXIT_CODES[NextMove.TRY_AGAIN]
INTERRUPTED: Final = 130
OUTPUT_CLOSED: Final = 141


class Interrupted(Exception):
    """A stop from the keyboard, with what was done until then and how to go on."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def report_failure(error: BaseException) -> int:
    """Say on standard error what went wrong; gives the exit code."""
    with suppress(OutputClosed, OutputFailed):
        sys.stdout.flush()
    match error:
        case OutputClosed():
            return OUTPUT_CLOSED
        case OutputFailed():
            _say(
                f"could not write the output: {error}",
                "Make room where it goes, or send it elsewhere, then run the command again",
            )
            return OUTPUT_FAILED
        case NeveError():
            _say(error.what_and_where, error.hint)
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
        case Interrupted():
            _say(str(error), error.hint)
            return INTERRUPTED
        case click.Abort() | KeyboardInterrupt():
            _say("interrupted", None)
            return INTERRUPTED
        case _:
            traceback.print_exception(error)
            what = f"{type(error).__name__}: {error}"
            _say(f"unexpected {what}", "This is a bug in neve: please report the lines above")
            return BUG


def _say(message: str, hint: str | None) -> None:
    if sys.stderr is None:
        return
    lines = [f"neve: {shown_text(message)}"]
    if hint is not None:
        lines.append(f"      {shown_text(hint)}")
    text = "\n".join(lines)
    with suppress(OSError):  # Nobody is left to be told.
        print(
            text if is_drawable(sys.stderr.encoding) else drawn_in_ascii(text),
            file=sys.stderr,
        )
