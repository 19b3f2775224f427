"""What every command on a warehouse takes: where it is, how to reach it, how to answer."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import click
from click.shell_completion import CompletionItem

import neve
from neve.catalog.lake import Lake
from neve.errors import InvalidArgument, NotFound

LAKE_VARIABLE: Final = "NEVE_LAKE"
"""The environment variable that names the warehouse."""

_NO_NAMESPACE: Final = re.compile(r"the table name '(.+)' has no namespace")
_TOLD_MAX: Final = 5

Command = TypeVar("Command", bound=Callable[..., None])


def _complete_directory(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


lake_option = click.option(
    "--lake",
    required=True,
    envvar=LAKE_VARIABLE,
    show_envvar=True,
    metavar="LOCATION",
    help="The warehouse: a directory, s3://bucket/prefix or file:///directory.",
    shell_complete=_complete_directory,
)
storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of an S3 location, such as endpoint or region; may be repeated.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON document instead of lines; errors, too."
)


def on_a_lake(command: Command) -> Command:
    """Return a command the options `--lake`, `--storage-option` and `--json`."""
    return lake_option(storage_option(json_option(command)))


@contextmanager
def open_lake(
    lake: str, storage_options: tuple[str, ...], *, create: bool = False
) -> Iterator[Lake]:
    """Open a warehouse; without `create`, one that is not there is NotFound and stays so.

    Whoever names a table without its namespace is told which tables of that name there are.
    """
    with _opened(lake, storage_options, create=create) as catalog:
        try:
            yield catalog
        except InvalidArgument as error:
            unqualified = _NO_NAMESPACE.fullmatch(error.message)
            if unqualified is not None and not create:
                error.hint = _known_tables_hint(catalog, unqualified[1]) or error.hint
            raise


def _known_tables_hint(catalog: Lake, name: str) -> str | None:
    found = [each for each in catalog.list_tables() if each.rpartition(".")[2] == name]
    if not found:
        return None
    more = len(found) - _TOLD_MAX
    words = ", ".join(found[:_TOLD_MAX]) + (f" and {more:,} more" if more > 0 else "")
    return f"Write namespace.table; of that name there {'is' if len(found) == 1 else 'are'} {words}"


def _opened(lake: str, storage_options: tuple[str, ...], *, create: bool) -> Lake:
    options = pairs_of(storage_options, what="storage option", show_value=False)
    try:
        return neve.open(lake, storage_options=options, create=create)
    except NotFound as missing:
        missing.hint = "Check --lake or NEVE_LAKE; `neve create` makes a warehouse with its table"
        raise


def pairs_of(texts: tuple[str, ...], *, what: str, show_value: bool = True) -> dict[str, str]:
    """Read NAME=VALUE texts; raises InvalidArgument. A value that may be a secret is not shown."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            shown = f"{text!a} " if show_value else ""
            raise InvalidArgument(
                f"the {what} {shown}has no NAME=VALUE form",
                hint=f"Write {'owner=anna' if show_value else 'region=eu-central-1'}",
            )
        if name in pairs:
            raise InvalidArgument(f"the {what} {name!a} is given twice", hint="Give it once")
        pairs[name] = value
    return pairs
