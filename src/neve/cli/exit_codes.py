"""What a failed command writes to standard error, and its exit code.

`EXIT_CODE_WORDS` lists the codes: 2 to 6 are the groups of `neve.errors`; 130 and 141 follow the
convention of shells.

An error is one line `neve: what and where`, with the hint below it. It follows what the command
printed before it failed. With `--json` it is one JSON document on a line:

    {"error": {"kind": "NotFound", "message": "…", "hint": "…", "exit_code": 2}}

and path, offset, column, version and details where the error has them. An error about many rows
has details: a line for each of the first ones.
"""

import json
import re
import sys
import traceback
from contextlib import suppress
from typing import Final

import click

from neve.cli.command_wording import failure_hint, failure_message
from neve.cli.interrupts import INTERRUPTED, was_interrupted
from neve.cli.standard_output import OutputClosed, OutputFailed
from neve.errors import EXIT_CODES, NeveError, NextMove
from neve.inspect.shown_text import Json, drawn_in_ascii, is_drawable, shown_text

BUG: Final = 1
OUTPUT_FAILED: Final = EXIT_CODES[NextMove.TRY_AGAIN]
DECLINED: Final = 7
OUTPUT_CLOSED: Final = 141
EXIT_CODE_WORDS: Final = {
    0: "done",
    BUG: "a bug in neve",
    EXIT_CODES[NextMove.FIX_THE_CALL]: "fix the call: wrong usage, a name that does not exist or "
    "is taken, rows that do not fit",
    EXIT_CODES[NextMove.TRY_AGAIN]: "try again: another writer was first, storage or the output "
    "failed, or it is committed but not published yet",
    EXIT_CODES[NextMove.REOPEN]: "reopen: another process has the table open for writing",
    EXIT_CODES[NextMove.LOOK_AT_THE_DATA]: "look at the data: something is damaged",
    EXIT_CODES[NextMove.RAISE_A_LIMIT]: "raise a limit",
    DECLINED: "nothing was done: a question was answered with no",
    INTERRUPTED: "interrupted from the keyboard",
    OUTPUT_CLOSED: "the reader of the output stopped reading",
}
"""Every exit code, and what it means."""

_DRAWN: Final = re.compile(r"\nLINE [0-9]+: ")
_FACTS: Final = ("path", "offset", "column", "version", "details")


class Interrupted(Exception):
    """An interrupt from the keyboard, with what was done until then and how to continue."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class Declined(Exception):
    """A question was answered with no, so nothing was done; the hint says how to do it anyway."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def report_failure(error: BaseException, *, as_json: bool = False) -> int:
    """Write what went wrong to standard error; return the exit code."""
    with suppress(OutputClosed, OutputFailed):
        sys.stdout.flush()
    if isinstance(error, OutputClosed):
        return OUTPUT_CLOSED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return error.exit_code
    if was_interrupted() and not isinstance(error, Interrupted):
        error = KeyboardInterrupt()
    code, message, hint = _described(error)
    if as_json:
        facts = {name: getattr(error, name, None) for name in _FACTS}
        known: dict[str, Json] = {name: fact for name, fact in facts.items() if fact is not None}
        named: dict[str, Json] = {"kind": type(error).__name__, "message": message, "hint": hint}
        _print(json.dumps({"error": named | known | {"exit_code": code}}))
        return code
    below: list[str] = [*getattr(error, "details", ()), *([] if hint is None else [hint])]
    # A mistake in SQL is drawn: its line, and a caret below.
    lines_said = message.split("\n") if _DRAWN.search(message) else [message]
    said = "\n".join(map(shown_text, lines_said))
    lines = [f"neve: {said}", *(f"      {shown_text(line)}" for line in below)]
    _print("\n".join(lines))
    return code


def _described(error: BaseException) -> tuple[int, str, str | None]:
    """Return exit code, message and hint of an error."""
    match error:
        case OutputFailed():
            return (
                OUTPUT_FAILED,
                f"could not write the output: {error}",
                "Make room where it goes, or send it elsewhere, then run the command again",
            )
        case NeveError():
            return error.exit_code, failure_message(error), failure_hint(error)
        case click.UsageError():
            asked = error.ctx.command_path if error.ctx is not None else "neve"
            return error.exit_code, error.format_message(), f"`{asked} --help` shows how to call it"
        case click.ClickException():
            return error.exit_code, error.format_message(), None
        case Declined():
            return DECLINED, str(error), error.hint
        case Interrupted():
            return INTERRUPTED, str(error), error.hint
        case click.Abort() | KeyboardInterrupt():
            return INTERRUPTED, "interrupted", None
        case _:
            if sys.stderr is not None:
                traceback.print_exception(error)
            return (
                BUG,
                f"unexpected {type(error).__name__}: {error}",
                "This is a bug in neve: please report the lines above",
            )


def _print(text: str) -> None:
    if sys.stderr is None:
        return
    with suppress(OSError):  # No one is left to read it.
        print(
            text if is_drawable(sys.stderr.encoding) else drawn_in_ascii(text),
            file=sys.stderr,
        )
