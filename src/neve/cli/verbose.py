"""`neve --verbose`: shows the library's log lines, which are otherwise kept from the terminal.

Without any handler Python prints warnings and errors by itself, in the middle of a drawing or below
an error that says the same in better words.
"""

import logging
import sys
from typing import Final

import click

_LIBRARY: Final = "neve"
_FORM: Final = "%(levelname)s %(name)s: %(message)s"


def keep_log_lines_quiet() -> None:
    """Take the library's log lines, and show none of them."""
    logging.getLogger(_LIBRARY).addHandler(logging.NullHandler())


def verbose_option() -> click.Option:
    """Make the option; it holds for the one command that it is given with."""
    return click.Option(
        ["-v", "--verbose"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_log_lines,
        help="Show what the library logs, on standard error.",
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
