"""Which state of a table a command reads: the newest, or a Version by number, tag or time.

A time is ISO 8601 text with a zone, milliseconds since 1970, or an age: 90s, 30m, 12h, 7d ago.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias, TypeVar

import click

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.moment import Moment
from neve.catalog.table import Table
from neve.engine.snapshot import Snapshot
from neve.errors import InvalidArgument
from neve.storage.clock import Clock, SystemClock

Command = TypeVar("Command", bound=Callable[..., None])
Rows: TypeAlias = Table | Snapshot
"""What has rows: a table as it is now, or one of its Versions."""

_AGE: Final = re.compile(r"([0-9]{1,9})([smhd])")
_MILLISECONDS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")

_version_option = click.option(
    "--version", "version", type=int, metavar="N", help="Read this version."
)
_tag_option = click.option("--tag", metavar="NAME", help="Read the version with this tag.")
_timestamp_option = click.option(
    "--timestamp",
    metavar="TIME",
    help="Read the version that was current at this time: 2024-01-31T12:00:00+00:00, or 2h ago.",
)


def at_a_version(command: Command) -> Command:
    """Give a command the options `--version`, `--tag` and `--timestamp`."""
    return _version_option(_tag_option(_timestamp_option(command)))


def moment_of(text: str, clock: Clock | None = None) -> Moment:
    """Read a time as people write it on a command line; what is none of them fails later on."""
    if age := _AGE.fullmatch(text.strip().removesuffix(" ago")):
        now_ms = (clock or SystemClock()).now_ms()
        return now_ms - int(age[1]) * _MILLISECONDS[age[2]]
    return int(text) if _NUMBER.fullmatch(text) else text


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
        moment = None if timestamp is None else moment_of(timestamp)
        with table.at(version, tag=tag, timestamp=moment) as snapshot:
            yield snapshot
