"""Commands on the names and definitions of tables: drop, rename, tables, describe, history, set."""

import click
from rich.text import Text

from neve.catalog.catalog_state import is_table_id
from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table_name import similar_name_hint
from neve.cli.catalog_commands import ask_before_dropping, without_writer
from neve.cli.commands import DocumentedCommand
from neve.cli.options import (
    complete_namespace,
    complete_property,
    complete_table,
    on_a_lake,
    open_lake,
    pairs_of,
    table_argument,
)
from neve.cli.table_words import (
    history_lines,
    history_rows,
    table_json,
    table_lines,
    unflushed_words,
)
from neve.errors import InvalidArgument, NeveError, NotFound
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted


@click.command(
    cls=DocumentedCommand,
    examples=["neve drop shop.orders", "neve drop shop.orders --purge --yes"],
)
@click.argument(
    "name",
    metavar="TABLE|ID",
    help="A table, as namespace.table; or the id of a table that was dropped.",
    shell_complete=complete_table,
)
@click.option("--purge", is_flag=True, help="Delete its files too.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Drop it also while a writer has it open.")
@on_a_lake
def drop(
    *,
    name: str,
    purge: bool,
    is_sure: bool,
    force: bool,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Drop a table, for good. Its files stay, unless --purge is given.

    On a terminal it asks first, unless --yes is given. A table that a writer has open is not
    dropped, unless --force is given: whatever that writer has not flushed is lost, and its next
    write fails.

    The files of a table that was dropped without --purge are deleted when it is dropped once more,
    with --purge and by its id.

    Files that a reader has a lease on are not deleted; `neve recover` deletes them once the lease
    has ended.
    """
    with open_lake(lake, storage_options) as catalog:
        if purge and is_table_id(name):
            table_id, is_done = name, catalog.purge_table(name)
        else:
            table_id = catalog.table_meta(name).table_id
            if not is_sure:
                ask_before_dropping(catalog, name, purge=purge)
            with without_writer(catalog, name, force=force):
                is_done = catalog.drop_table(name, purge=purge)
    if as_json:
        write_json({"dropped": name, "table_id": table_id, "purged": purge and is_done})
        return
    page = Page()
    if not is_done:
        page.line(f"dropped {shown_text(name)}; readers still hold its files")
        page.line("once their leases have ended, `neve recover` deletes them")
    elif purge:
        page.line(f"dropped {shown_text(name)} and deleted its files")
    else:
        page.line(f"dropped {shown_text(name)}; its files stay in tables/{table_id}")
        page.line(f"`neve drop {table_id} --purge` deletes them")


@click.command(cls=DocumentedCommand, examples=["neve rename shop.orders shop.orders_2024"])
@table_argument
@click.argument("new", metavar="NEW", help="Its new name, as namespace.table.")
@on_a_lake
def rename(
    *, name: str, new: str, lake: str, storage_options: tuple[str, ...], as_json: bool
) -> None:
    """Rename a table; no file moves."""
    with open_lake(lake, storage_options) as catalog:
        catalog.rename_table(name, new)
    if as_json:
        write_json({"old": name, "new": new})
    else:
        Page().line(f"renamed {shown_text(name)} to {shown_text(new)}")


@click.command(cls=DocumentedCommand, examples=["neve tables", "neve tables shop --json"])
@click.argument(
    "namespace",
    required=False,
    metavar="[NAMESPACE]",
    help="Only the tables of this namespace and those below it.",
    shell_complete=complete_namespace,
)
@on_a_lake
def tables(
    *, namespace: str | None, lake: str, storage_options: tuple[str, ...], as_json: bool
) -> None:
    """List the tables of a namespace, or all of them; for a damaged table it reports what is wrong.

    Rows are those of the current version; changes that are only in the log are counted beside them.
    """
    with open_lake(lake, storage_options) as catalog:
        names = catalog.list_tables(namespace)
        overviews = (_overview(catalog, name) for name in names)
        if as_json:
            document = JsonDocument()
            document.array("tables", overviews)
            document.end()
            return
        page = Page()
        width = max((len(shown_text(name)) for name in names), default=0)
        for overview in overviews:
            page.line(_overview_line(overview, width))
        if not names:
            page.line("no tables")


@click.command(cls=DocumentedCommand, examples=["neve describe shop.orders"])
@table_argument
@on_a_lake
def describe(*, name: str, lake: str, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Show what a table is: its files, columns, key, partitions, properties."""
    with open_lake(lake, storage_options) as catalog:
        table = catalog.load_table(name)
        unflushed = _unflushed(catalog, name)
        if as_json:
            write_json(table_json(table, unflushed))
        else:
            Page().lines(table_lines(table, unflushed))


@click.command(cls=DocumentedCommand, examples=["neve history shop.orders"])
@table_argument
@on_a_lake
def history(*, name: str, lake: str, storage_options: tuple[str, ...], as_json: bool) -> None:
    """Show the versions of a table that are kept, the oldest first."""
    with open_lake(lake, storage_options) as catalog:
        table = catalog.load_table(name)
        if as_json:
            document = JsonDocument()
            document.members({"table": table.name})
            document.array("versions", history_rows(table))
            document.end()
        else:
            Page().lines(history_lines(table))


@click.command(
    "set",
    cls=DocumentedCommand,
    examples=[
        "neve set shop.orders owner=anna neve.retention.versions=20",
        "neve set shop.orders --unset owner",
    ],
)
@table_argument
@click.argument(
    "properties",
    nargs=-1,
    metavar="[NAME=VALUE]...",
    help="Properties and their new values.",
    shell_complete=complete_property,
)
@click.option(
    "--unset",
    "removed",
    multiple=True,
    metavar="NAME",
    help="Remove this property, so that its default applies; may be repeated.",
    shell_complete=complete_property,
)
@on_a_lake
def set_properties(
    *,
    name: str,
    properties: tuple[str, ...],
    removed: tuple[str, ...],
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Set properties of a table and remove others, all or none; the rest stays.

    neve reads write.parquet.compression-codec, neve.retention.versions, neve.retention.milliseconds
    and format-version, and takes no write.format.default but parquet. Any other name that does not
    begin with neve. is kept for you. `neve describe` shows the properties.
    """
    if not properties and not removed:
        raise InvalidArgument(
            "no property is named", hint="Write owner=anna, or --unset owner to remove it"
        )
    given = pairs_of(properties, what="property")
    with open_lake(lake, storage_options) as catalog:
        table = catalog.load_table(name)
        before = table.properties
        missing = [each for each in removed if each not in before]
        if missing:
            raise NotFound(
                f"the table {name!a} has no property {missing[0]!a}",
                hint=similar_name_hint(missing[0], before)
                or f"`neve describe {name}` shows its properties",
            )
        table.set_properties(given, remove=removed)
        after = table.properties
    if as_json:
        write_json({"table": name, "properties": after})
        return
    page = Page()
    for each in sorted({*given, *removed}):
        now = f"= {shown_text(after[each])}" if each in after else "removed"
        was = f"was {shown_text(before[each])}" if each in before else "was not set"
        page.line(f"{shown_text(each)} {now}, {was}")


def _unflushed(catalog: KVCatalog, name: str) -> int | None:
    """Count the changes that are only in the log; None when it cannot be read."""
    try:
        with catalog.table(name, read_only=True) as table:
            return table.stats().memtable_rows
    except NeveError:
        # The definition is shown all the same.
        return None


def _overview(catalog: KVCatalog, name: str) -> dict[str, Json]:
    try:
        stats = catalog.load_table(name).stats()
    except NeveError as error:
        # The others are listed all the same.
        return {"name": name, "error": str(error)}
    return {
        "name": name,
        "version": stats.version,
        "rows": stats.row_count,
        "files": stats.file_count,
        "bytes": stats.file_bytes,
        "unflushed_changes": _unflushed(catalog, name),
    }


def _overview_line(overview: dict[str, Json], width: int) -> Text:
    line = Text(f"{shown_text(str(overview['name'])):<{width}}  ")
    if "error" in overview:
        return line.append(f"✗ {shown_text(str(overview['error']))}", "bold red")
    counts = [(overview[noun], noun.removesuffix("s")) for noun in ("rows", "files", "bytes")]
    words = [counted(count, noun) for count, noun in counts if isinstance(count, int)]
    unflushed = overview["unflushed_changes"]
    assert unflushed is None or isinstance(unflushed, int), "a count, or unknown"
    words[-1] += unflushed_words(unflushed)
    return line.append(f"version {overview['version']} · {' · '.join(words)}", "dim")
