"""Which state of a table a command reads: the newest, or a Version by number, tag or time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

import click

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.cli.number_type import WholeNumber
from neve.cli.options import complete_tag
from neve.engine.snapshot import Snapshot
from neve.errors import InvalidArgument

Command = TypeVar("Command", bound=Callable[..., None])
Rows: TypeAlias = Table | Snapshot
"""What has rows: a table as it is now, or one of its Versions."""

_version_option = click.option(
    "--version", "version", type=WholeNumber(), metavar="N", help="Read this version."
)
_tag_option = click.option(
    "--tag",
    metavar="TAG",
    help="Read the version with this tag.",
    shell_complete=complete_tag,
)
_timestamp_option = click.option(
    "--timestamp",
    metavar="TIME",
    help="Read the version that was current at this time: 2024-01-31T12:00:00+00:00, or 2h ago.",
)


def at_a_version(command: Command) -> Command:
    """Return a command the options `--version`, `--tag` and `--timestamp`."""
    return _version_option(_tag_option(_timestamp_option(command)))


@contextmanager
def rows_at(
    catalog: KVCatalog,
    name: str,
    *,
    version: int | None,
    tag: str | None,
    timestamp: str | None,
) -> Iterator[Rows]:
    """Open a table for reading only, as it is now or as it was."""
    if [version, tag, timestamp].count(None) < 2:  # noqa: PLR2004 - at most one of three
        raise InvalidArgument(
            "the version is said in several ways",
            hint="Give one of --version, --tag and --timestamp",
        )
    with catalog.table(name, read_only=True) as table:
        if version is None and tag is None and timestamp is None:
            yield table
            return
        with table.at(version, tag=tag, timestamp=timestamp) as snapshot:
            yield snapshot
