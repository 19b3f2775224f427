"""Arguments, options and types of numbers that several commands share, with help and completion.

--lake or NEVE_LAKE names the lake. A new column is `name:type`, with `!` after the type if it is
never NULL; columns of a table are `name,name`. A command reads the newest state of a table, or a
Version by number, tag or time. Counts and offsets may be written as neve prints them (11,498) or as
other tools do (11498, 0x2cea). Sizes may have a unit: 512MiB, 2GB.

Shells complete tables, namespaces, columns and tags from the lake of `--lake` if that precedes the
word, otherwise from NEVE_LAKE. The lake is only read. If that fails, completion offers nothing and
reports no error.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Final, TypeAlias, TypeVar

import click
import pyarrow as pa
from click.shell_completion import CompletionItem

import neve
from neve.catalog.known_properties import KNOWN_PROPERTIES
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.engine.snapshot import Snapshot
from neve.errors import InvalidArgument, NeveError, NotFound
from neve.model.schema import TableSchema
from neve.model.type_parser import REQUIRED, parse_type
from neve.observability.metrics import Recorder

_DECIMAL: Final = re.compile(r"[0-9]{1,18}|[0-9]{1,3}(?:,[0-9]{3}){1,5}")
_HEXADECIMAL: Final = re.compile(r"0[xX][0-9a-fA-F]{1,15}")
_SIZE: Final = re.compile(r"([0-9]{1,15})\s*(?:([KMGT])(i?)B?|B)?", re.IGNORECASE)
_POWERS: Final = "KMGT"


class WholeNumber(click.ParamType[int]):
    """A number of 0 or more: decimal, with or without commas between thousands, or hexadecimal."""

    name = "number"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the number; anything else is wrong usage."""
        if isinstance(value, int):
            return value
        if _HEXADECIMAL.fullmatch(value):
            return int(value, 16)
        if not _DECIMAL.fullmatch(value):
            self.fail(
                f"{value!a} is not a number of 0 or more; write it like 11498, 11,498 or 0x2cea",
                param,
                ctx,
            )
        return int(value.replace(",", ""))


class ByteSize(click.ParamType[int]):
    """A number of bytes above 0, with or without a unit: 512MiB, 2GB, 1000000."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the size; anything else is wrong usage."""
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(value.strip())
        number = 0 if found is None else int(found[1])
        if found is None or not number:
            self.fail(f"{value!a} is not a size; write it like 512MiB, 2GB or 1000000", param, ctx)
        if found[2]:
            number *= (1024 if found[3] else 1000) ** (1 + _POWERS.index(found[2].upper()))
        return number


memory_option = click.option(
    "--memory-limit",
    type=ByteSize(),
    metavar="SIZE",
    show_default="256MiB and the size of the file, at most 1GiB",
    help="How much memory decoding the file may take.",
)


LAKE_VARIABLE: Final = "NEVE_LAKE"
"""The environment variable that names the lake."""

_NO_NAMESPACE: Final = re.compile(r"the table name '(.+)' has no namespace")
_SHOWN_MAX: Final = 5
_MANY: Final = ","

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
    help="The lake: a directory, file:///directory, s3://bucket/prefix, gs://… or az://…",
    shell_complete=_complete_directory,
)
storage_option = click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of a location in a bucket, such as endpoint or region; may be repeated.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Write JSON instead of lines, also for errors."
)


@dataclass(frozen=True, slots=True)
class AskedLake:
    """The lake that a command names: `--lake`, and each `--storage-option`."""

    location: str
    storage_options: tuple[str, ...]

    @contextmanager
    def open(self, *, create: bool = False, recorder: Recorder | None = None) -> Iterator[Lake]:
        """Open it; raises NotFound if it does not exist, unless `create` is set.

        A hint lists the tables of a name that was given without its namespace.
        """
        with self._opened(create=create, recorder=recorder) as lake:
            try:
                yield lake
            except InvalidArgument as error:
                unqualified = _NO_NAMESPACE.fullmatch(error.message)
                if unqualified is not None and not create:
                    error.hint = _known_tables_hint(lake, unqualified[1]) or error.hint
                raise

    def _opened(self, *, create: bool, recorder: Recorder | None) -> Lake:
        options = pairs_of(self.storage_options, what="storage option", show_value=False)
        try:
            return neve.open(
                self.location, storage_options=options, create=create, recorder=recorder
            )
        except NotFound as missing:
            missing.hint = "Check --lake or NEVE_LAKE; `neve create` creates a lake with a table"
            raise


def on_a_lake(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options `--lake` and `--storage-option`, as one `AskedLake`, and `--json`."""

    @wraps(command)
    def run(*args: object, lake: str, storage_options: tuple[str, ...], **given: object) -> None:
        command(*args, lake=AskedLake(lake, storage_options), **given)

    return lake_option(storage_option(json_option(run)))


def _known_tables_hint(catalog: Lake, name: str) -> str | None:
    found = [each for each in catalog.list_tables() if each.rpartition(".")[2] == name]
    if not found:
        return None
    more = len(found) - _SHOWN_MAX
    words = ", ".join(found[:_SHOWN_MAX]) + (f" and {more:,} more" if more > 0 else "")
    return f"Write namespace.table: {words}"


def pairs_of(texts: tuple[str, ...], *, what: str, show_value: bool = True) -> dict[str, str]:
    """Read NAME=VALUE texts; raises InvalidArgument. A value that may be a secret is not shown."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            shown = f"{text!a} " if show_value else ""
            raise InvalidArgument(
                f"the {what} {shown}is not of the form NAME=VALUE",
                hint=f"Write {'owner=anna' if show_value else 'region=eu-central-1'}",
            )
        if name in pairs:
            raise InvalidArgument(f"the {what} {name!a} is given twice", hint="Write it once")
        pairs[name] = value
    return pairs


@dataclass(frozen=True, slots=True)
class ColumnWord:
    """A column as it was written."""

    name: str
    type: pa.DataType
    nullable: bool


def column_of(text: str) -> ColumnWord:
    """Read `name:type` or `name:type!`; raises InvalidArgument."""
    # Nested types have colons, and the name of the column may have some.
    before, bracket, inside = text.partition("<")
    name, colon, type_text = before.rpartition(":")
    type_text += bracket + inside
    if not colon:
        raise InvalidArgument(f"the column {text!a} has no type", hint=f"Write {text}:string")
    if not name:
        raise InvalidArgument(f"the column {text!a} has no name", hint=f"Write id{text}")
    return ColumnWord(
        name, parse_type(type_text.removesuffix(REQUIRED)), not type_text.endswith(REQUIRED)
    )


def names_of(texts: Sequence[str], schema: TableSchema) -> list[str] | None:
    """Split names at commas, unless a column has that name; None if there are none."""
    names: list[str] = []
    for text in texts:
        names += [text] if text in schema else [part.strip() for part in text.split(_MANY)]
    return names or None


def complete_table(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the tables of the lake."""
    return _offered(ctx, incomplete, lambda catalog: catalog.list_tables())


def complete_namespace(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the namespaces of the lake."""
    return _offered(ctx, incomplete, lambda catalog: catalog.list_namespaces())


def complete_column(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the columns of the command's table, also after a comma."""
    before, comma, begun = incomplete.rpartition(",")
    found = _offered(ctx, begun, lambda catalog: _columns(catalog, ctx))
    return [CompletionItem(f"{before}{comma}{each.value}", help=each.help) for each in found]


def complete_tag(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the tags of the command's table."""
    return _offered(ctx, incomplete, lambda catalog: _tags(catalog, ctx))


def complete_consumer(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the consumers of the command's table."""
    return _offered(ctx, incomplete, lambda catalog: _consumers(catalog, ctx))


def complete_property(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the properties of the table; for `set`, also those that neve reads."""
    is_option = isinstance(parameter, click.Option)
    known = () if is_option else KNOWN_PROPERTIES
    found = _offered(
        ctx,
        incomplete,
        lambda catalog: sorted({*known, *catalog.load_table(_table_name(ctx)).properties}),
    )
    return [CompletionItem(each.value if is_option else f"{each.value}=") for each in found]


def complete_new_column(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the columns on the command line that are written name:type."""
    given: Iterable[str] = ctx.params.get("columns") or _arguments(ctx)
    names = [text.partition(":")[0] for text in given if ":" in text]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_file(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell offer files."""
    return [CompletionItem(incomplete, type="file")]


def _offered(
    ctx: click.Context, incomplete: str, words: Callable[[Lake], Iterable[str]]
) -> list[CompletionItem]:
    try:
        with _lake(ctx) as catalog:
            return [CompletionItem(word) for word in words(catalog) if word.startswith(incomplete)]
    except NeveError:
        return []


@contextmanager
def _lake(ctx: click.Context) -> Iterator[Lake]:
    # A group takes the table before its commands take the lake.
    lake = ctx.params.get("lake") or os.environ.get(LAKE_VARIABLE, "")
    with AskedLake(lake, ctx.params.get("storage_options") or ()).open() as catalog:
        yield catalog


def _table_name(ctx: click.Context) -> str:
    """Return the table of the command, or of the group that it is in."""
    at: click.Context | None = ctx
    while at is not None:
        if name := at.params.get("name"):
            return str(name)
        at = at.parent
    return next(iter(_arguments(ctx)), "")


def _arguments(ctx: click.Context) -> list[str]:
    """Return the arguments on the line: click drops them if an option still has no value."""
    return [arg for arg in ctx.args if not arg.startswith("-")]


def _columns(catalog: Lake, ctx: click.Context) -> list[str]:
    return [*catalog.load_table(_table_name(ctx)).schema.arrow_schema.names]


def _consumers(catalog: Lake, ctx: click.Context) -> list[str]:
    names = catalog.load_table(_table_name(ctx)).consumers().column("name")
    return [name for name in names.to_pylist() if name is not None]


def _tags(catalog: Lake, ctx: click.Context) -> list[str]:
    history = catalog.load_table(_table_name(ctx)).history()
    return sorted({tag for tags in history.column("tags").to_pylist() for tag in tags or ()})


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
    help="A file to write; its name selects the format. It appears when it is complete.",
    shell_complete=complete_file,
)
wide_option = click.option(
    "--wide",
    is_flag=True,
    help="Do not wrap a table on a terminal: one line per row, however long.",
)
written_columns = click.option(
    "--columns",
    multiple=True,
    metavar="NAME,NAME",
    help="Write only these columns, and keep the others; may be repeated.",
    shell_complete=complete_column,
)


def filter_option(*, help_text: str) -> Callable[[Command], Command]:
    """Add the option `--filter`, which may also be written `--where`."""
    return click.option("--filter", "--where", "condition", metavar="FILTER", help=help_text)


Rows: TypeAlias = Table | Snapshot
"""A source of rows: a table as it is now, or one of its Versions."""

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
    help="Read the version of this time: 2024-01-31T12:00:00+00:00, or 2h ago.",
)


def at_a_version(command: Command) -> Command:
    """Add the options `--version`, `--tag` and `--timestamp` to a command."""
    return _version_option(_tag_option(_timestamp_option(command)))


@contextmanager
def rows_at(
    catalog: Lake,
    name: str,
    *,
    version: int | None,
    tag: str | None,
    timestamp: str | None,
) -> Iterator[Rows]:
    """Open a table for reading only, as it is now or as it was."""
    if [version, tag, timestamp].count(None) < 2:  # noqa: PLR2004 - at most one of three
        raise InvalidArgument(
            "the version is given more than once",
            hint="Use one of --version, --tag and --timestamp",
        )
    with catalog.table(name, read_only=True) as table:
        if version is None and tag is None and timestamp is None:
            yield table
            return
        with table.at(version, tag=tag, timestamp=timestamp) as snapshot:
            yield snapshot
