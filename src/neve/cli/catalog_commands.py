"""Commands on the names and definitions of tables: create, drop, rename, tables, describe, history.

Columns are written as `name:type`, with Iceberg's names of types, and `!` behind one that is never
NULL:

    neve create shop.orders id:long customer:string 'amount:decimal(9,2)!' --key id --lake ./lake
"""

import click
import pyarrow as pa
from rich.text import Text

from neve.catalog.catalog_state import is_table_id
from neve.catalog.kv_catalog import KVCatalog
from neve.cli.column_words import column_of
from neve.cli.completed_words import complete_namespace, complete_new_column, complete_table
from neve.cli.documented_command import DocumentedCommand
from neve.cli.drop_checks import ask_before_dropping, without_writer
from neve.cli.lake_options import on_a_lake, open_lake, pairs_of
from neve.cli.output import JsonDocument, Page, write_json
from neve.cli.shown_text import Json, shown_text
from neve.cli.table_arguments import table_argument
from neve.cli.table_words import (
    history_lines,
    history_rows,
    table_json,
    table_lines,
    unflushed_words,
)
from neve.errors import NeveError
from neve.model.arrow_types import ArrowField
from neve.model.shown_value import counted


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "neve create shop.orders id:long customer:string 'amount:decimal(9,2)' ts:timestamptz "
            "--key id"
        ),
        (
            "neve create shop.visits name:string day:date 'pages:int!' --key name --key day "
            "--partition-by 'month(day)' --property owner=web"
        ),
    ],
)
@click.argument("name", metavar="TABLE", help="The new table, as namespace.table.")
@click.argument(
    "columns",
    nargs=-1,
    required=True,
    metavar="COLUMN:TYPE...",
    help="Its columns, such as id:long, 'amount:decimal(9,2)', ts:timestamptz, or 'day:date!'.",
)
@click.option(
    "--key",
    "primary_key",
    multiple=True,
    required=True,
    metavar="COLUMN",
    help="Column of the primary key; may be repeated, in key order.",
    shell_complete=complete_new_column,
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="FIELD",
    help="Partition field such as day(ts) or bucket(16, id); may be repeated.",
)
@click.option(
    "--sort-by",
    multiple=True,
    metavar="COLUMN",
    help="Column of the key, from the first on, that other engines are asked to sort by; may be "
    "repeated.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the table; may be repeated.",
)
@on_a_lake
def create(
    *,
    name: str,
    columns: tuple[str, ...],
    primary_key: tuple[str, ...],
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    properties: tuple[str, ...],
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a table, and its namespace and the warehouse when missing.

    A column is name:type, with Iceberg's names of types: boolean, int, long, float, double,
    decimal(p,s), date, time, timestamp, timestamptz, string, uuid, binary, fixed(n), list<type>,
    map<type, type>, struct<name: type, ...>. With ! behind the type it is never NULL; columns of
    the key never are.
    """
    schema = pa.schema([_field_of(text) for text in columns])
    given = pairs_of(properties, what="property")
    with open_lake(lake, storage_options, create=True) as catalog:
        table = catalog.create_table(
            name,
            schema,
            primary_key,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=given,
        )
        if as_json:
            write_json(table_json(catalog.load_table(name), 0))
        else:
            Page().line(f"made {shown_text(table.name)}, {table.table_id}")


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
    """Give a table another name; no file moves."""
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
    """List the tables of a namespace, or all of them; of a damaged one it is said what is wrong.

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


def _field_of(text: str) -> ArrowField:
    column = column_of(text)
    return pa.field(column.name, column.type, nullable=column.nullable)
