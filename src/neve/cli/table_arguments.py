"""What several commands take, each with one name, one help and one way to complete it."""

from collections.abc import Callable
from typing import TypeVar

import click

from neve.cli.options import complete_column, complete_file, complete_table

Command = TypeVar("Command", bound=Callable[..., None])

table_argument = click.argument(
    "name",
    metavar="TABLE",
    help="A table, as namespace.table.",
    shell_complete=complete_table,
)
to_file_argument = click.argument(
    "file",
    required=False,
    metavar="[FILE]",
    help="A file to write; its name says the format. It appears when it is whole.",
    shell_complete=complete_file,
)
wide_option = click.option(
    "--wide",
    is_flag=True,
    help="Do not fold a table on a terminal: one line for each row, however long.",
)
written_columns = click.option(
    "--columns",
    multiple=True,
    metavar="NAME,NAME",
    help="Write only these columns, and leave the others as they are; may be repeated.",
    shell_complete=complete_column,
)


def filter_option(*, help_text: str) -> Callable[[Command], Command]:
    """Return a command the option `--filter`, which may also be written `--where`."""
    return click.option("--filter", "--where", "condition", metavar="FILTER", help=help_text)
