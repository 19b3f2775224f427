"""Words that a shell completes from a warehouse: tables, namespaces, columns, tags.

The warehouse is the one of `--lake` where that stands before the word, otherwise of NEVE_LAKE. It
is only read; where it cannot be, nothing is offered: a shell in the middle of a line is no place
for an error.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import click
from click.shell_completion import CompletionItem

from neve.catalog.known_properties import KNOWN_PROPERTIES
from neve.catalog.kv_catalog import KVCatalog
from neve.cli.options import LAKE_VARIABLE, open_lake
from neve.errors import NeveError


def complete_table(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the tables of the warehouse."""
    return _offered(ctx, incomplete, lambda catalog: catalog.list_tables())


def complete_namespace(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the namespaces of the warehouse."""
    return _offered(ctx, incomplete, lambda catalog: catalog.list_namespaces())


def complete_column(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the columns of the command's table; behind a comma, one more of them."""
    before, comma, begun = incomplete.rpartition(",")
    found = _offered(ctx, begun, lambda catalog: _columns(catalog, ctx))
    return [CompletionItem(f"{before}{comma}{each.value}", help=each.help) for each in found]


def complete_tag(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the tags of the command's table."""
    return _offered(ctx, incomplete, lambda catalog: _tags(catalog, ctx))


def complete_property(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer the properties that the table has; to be set, also those that neve knows."""
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
    """Offer the columns that stand on the command line as name:type."""
    given: Iterable[str] = ctx.params.get("columns") or _arguments(ctx)
    names = [text.partition(":")[0] for text in given if ":" in text]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_file(
    _ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell offer files."""
    return [CompletionItem(incomplete, type="file")]


def _offered(
    ctx: click.Context, incomplete: str, words: Callable[[KVCatalog], Iterable[str]]
) -> list[CompletionItem]:
    try:
        with _lake(ctx) as catalog:
            return [CompletionItem(word) for word in words(catalog) if word.startswith(incomplete)]
    except NeveError:
        return []


@contextmanager
def _lake(ctx: click.Context) -> Iterator[KVCatalog]:
    # A group of commands on a table takes the table before its commands take the warehouse.
    lake = ctx.params.get("lake") or os.environ.get(LAKE_VARIABLE, "")
    with open_lake(lake, ctx.params.get("storage_options") or ()) as catalog:
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
    """Return the arguments on the line: before an option without its value, click reads none."""
    return [arg for arg in ctx.args if not arg.startswith("-")]


def _columns(catalog: KVCatalog, ctx: click.Context) -> list[str]:
    return [*catalog.load_table(_table_name(ctx)).schema.arrow_schema.names]


def _tags(catalog: KVCatalog, ctx: click.Context) -> list[str]:
    history = catalog.load_table(_table_name(ctx)).history()
    return sorted({tag for tags in history.column("tags").to_pylist() for tag in tags or ()})
