"""Commands on the names and definitions of tables: drop, rename, tables, describe, set, iceberg.

`neve drop` asks first, and only on a terminal, where an answer can be typed.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.text import Text

from neve.catalog.catalog_state import is_table_id
from neve.catalog.lake import Lake
from neve.catalog.table_name import TableName
from neve.cli.commands import DocumentedCommand
from neve.cli.exit_codes import Declined
from neve.cli.options import (
    AskedLake,
    complete_namespace,
    complete_property,
    complete_table,
    on_a_lake,
    pairs_of,
    table_argument,
)
from neve.cli.table_report import (
    request_lines,
    requests_json,
    table_json,
    table_lines,
    unflushed_words,
)
from neve.errors import Fenced, InvalidArgument, NeveError, NotFound
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted
from neve.model.suggestions import similar_name_hint
from neve.storage.object_store import LockHandle

_YES: Final = frozenset({"y", "yes"})
_EXTENSION: Final = "LOAD iceberg;"
# DuckDB 1.5 may take the bytes of one deletion vector from its cache for another one's.
_NO_FILE_CACHE: Final = "SET enable_external_file_cache=false;"
_NEEDS: Final = {
    "DuckDB": ", after INSTALL iceberg once",
    "Spark": ", with the jar iceberg-spark-runtime of its version",
}


def ask_before_dropping(catalog: Lake, name: str, *, purge: bool) -> None:
    """Ask on a terminal whether to drop the table; raises Declined on a no."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    try:
        holds = f", with {counted(catalog.load_table(name).stats().row_count, 'row')}"
    except NotFound:
        raise
    except NeveError:
        holds = ""  # damaged, and dropped anyway
    files = " and delete its files" if purge else ""
    # The line editor of `input` would miss an interrupt while it starts.
    print(f"Drop {shown_text(name)}{holds}{files}, for good? [y/N]: ", end="", file=sys.stderr)
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in _YES:
        raise Declined("nothing was dropped", hint="Answer y to drop the table, or use --yes")


@contextmanager
def without_writer(catalog: Lake, name: str, *, force: bool) -> Iterator[None]:
    """Keep writers away from a table; raises Fenced while one has it open, unless forced."""
    lock = None if force else _locked(catalog, name)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _locked(catalog: Lake, name: str) -> LockHandle | None:
    try:
        stored = catalog.load_table(name).stored
    except NotFound:
        raise
    except NeveError:
        return None  # damaged: no writer can open it either
    try:
        return stored.logs.lock(stored.paths.lock)
    except Fenced as fenced:
        raise Fenced(
            f"a writer has the table {name!a} open, so it was not dropped",
            path=fenced.path,
            hint="End that writer first, or use --force: rows it has not flushed are lost then",
        ) from fenced


@click.command(
    cls=DocumentedCommand,
    examples=["neve drop shop.orders", "neve drop shop.orders --purge --yes"],
)
@click.argument(
    "name",
    metavar="TABLE|ID",
    help="A table, as namespace.table, or the id of a dropped table.",
    shell_complete=complete_table,
)
@click.option("--purge", is_flag=True, help="Also delete its files.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--force", is_flag=True, help="Drop it even while a writer has it open.")
@on_a_lake
def drop(
    *, name: str, purge: bool, is_sure: bool, force: bool, lake: AskedLake, as_json: bool
) -> None:
    """Drop a table, for good. Its files stay, unless --purge is given.

    On a terminal it asks first, unless --yes is given. A table that a writer has open is not
    dropped, unless --force is given: rows that the writer has not flushed are lost, and its next
    write fails.

    To delete the files of a table that was dropped without --purge, drop it again by its id, with
    --purge.

    Files under a reader's lease are not deleted; `neve recover` deletes them after the lease ends.
    """
    with lake.open() as catalog:
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
        page.line("`neve recover` deletes them after their leases end")
    elif purge:
        page.line(f"dropped {shown_text(name)} and deleted its files")
    else:
        page.line(f"dropped {shown_text(name)}; its files stay in tables/{table_id}")
        page.line(f"`neve drop {table_id} --purge` deletes them")


@click.command(cls=DocumentedCommand, examples=["neve rename shop.orders shop.orders_2024"])
@table_argument
@click.argument("new", metavar="NEW", help="Its new name, as namespace.table.")
@on_a_lake
def rename(*, name: str, new: str, lake: AskedLake, as_json: bool) -> None:
    """Rename a table; no files move."""
    with lake.open() as catalog:
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
    help="List only the tables in this namespace and below it.",
    shell_complete=complete_namespace,
)
@on_a_lake
def tables(*, namespace: str | None, lake: AskedLake, as_json: bool) -> None:
    """List the tables of a namespace, or all of them; a damaged table is listed with its error.

    Row counts are of the current version; changes that are only in the log are counted separately.
    """
    with lake.open() as catalog:
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
def describe(*, name: str, lake: AskedLake, as_json: bool) -> None:
    """Show a table's files, columns, key, partitions and properties."""
    with lake.open() as catalog:
        table = catalog.load_table(name)
        unflushed = _unflushed(catalog, name)
        if as_json:
            write_json({**table_json(table, unflushed), **requests_json(catalog.requests())})
        else:
            Page().lines([*table_lines(table, unflushed), *request_lines(catalog.requests())])


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
    help="Remove this property and use its default; may be repeated.",
    shell_complete=complete_property,
)
@on_a_lake
def set_properties(
    *,
    name: str,
    properties: tuple[str, ...],
    removed: tuple[str, ...],
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Set or remove properties of a table, all or none; others stay as they are.

    neve reads write.parquet.compression-codec, neve.retention.versions, neve.retention.milliseconds
    and format-version, and accepts no write.format.default but parquet. Any other name that does
    not begin with neve. is stored for you. `neve describe` shows the properties.
    """
    if not properties and not removed:
        raise InvalidArgument(
            "no property is given", hint="Write owner=anna, or --unset owner to remove it"
        )
    given = pairs_of(properties, what="property")
    with lake.open() as catalog:
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


def _unflushed(catalog: Lake, name: str) -> int | None:
    """Count the changes that are only in the log; None when it cannot be read."""
    try:
        with catalog.table(name, read_only=True) as table:
            return table.stats().memtable_rows
    except NeveError:
        # The definition is still shown.
        return None


def _overview(catalog: Lake, name: str) -> dict[str, Json]:
    try:
        stats = catalog.load_table(name).stats()
    except NeveError as error:
        # The others are still listed.
        return {"name": name, "error": str(error)}
    return {
        "name": name,
        "version": stats.version,
        "rows": stats.row_count,
        "files": stats.file_count,
        "bytes": stats.file_bytes,
        "index_bytes": stats.index_bytes,
        "unflushed_changes": _unflushed(catalog, name),
    }


def _overview_line(overview: dict[str, Json], width: int) -> Text:
    line = Text(f"{shown_text(str(overview['name'])):<{width}}  ")
    if "error" in overview:
        return line.append(f"✗ {shown_text(str(overview['error']))}", "bold red")
    counts = [(overview[noun], noun.removesuffix("s")) for noun in ("rows", "files", "bytes")]
    words = [counted(count, noun) for count, noun in counts if isinstance(count, int)]
    index_bytes = overview["index_bytes"]
    assert isinstance(index_bytes, int), "a count"
    if index_bytes:
        words.append(f"{counted(index_bytes, 'byte')} of index")
    unflushed = overview["unflushed_changes"]
    assert unflushed is None or isinstance(unflushed, int), "a count, or unknown"
    words[-1] += unflushed_words(unflushed)
    return line.append(f"version {overview['version']} · {' · '.join(words)}", "dim")


@click.command(
    cls=DocumentedCommand,
    examples=["neve iceberg shop.orders", "neve iceberg shop.orders --json"],
)
@table_argument
@on_a_lake
def iceberg(*, name: str, lake: AskedLake, as_json: bool) -> None:
    """Show where the Iceberg metadata of a table is, and how other engines read it.

    Versions that are not published yet are published first, even while a writer is open. Other
    engines do not see rows that are not flushed yet.
    """
    with lake.open() as catalog:
        table = catalog.load_table(name)
        metadata = table.iceberg_metadata()
        version, format_version = table.refresh().version, table.format_version
    location = metadata.rpartition("/metadata/")[0]
    readers = one_liners(name, metadata=metadata, location=location)
    if as_json:
        write_json(
            {
                "table": name,
                "metadata": metadata,
                "location": location,
                "version": version,
                "format_version": format_version,
                "readers": {**readers},
            }
        )
        return
    page = Page()
    page.line(f"{shown_text(name)}, version {version:,}, as Iceberg format {format_version}:")
    page.line(f"  {shown_text(metadata)}")
    for engine, words in readers.items():
        page.line()
        page.line(f"{engine}{_NEEDS.get(engine, '')}")
        page.line(f"  {shown_text(words)}")


def one_liners(name: str, *, metadata: str, location: str) -> dict[str, str]:
    """Return, for each engine, the line that reads a table."""
    parsed = TableName.parse(name)
    return {
        "DuckDB": f"{_EXTENSION} {_NO_FILE_CACHE} FROM iceberg_scan('{_sql(metadata)}');",
        "PyIceberg": f"StaticTable.from_metadata({metadata!r}).scan().to_arrow()",
        "Polars": f"pl.scan_iceberg({metadata!r}).collect()",
        "Spark": f"spark.read.format('iceberg').load({location!r})",
        "Trino": (
            "CALL iceberg.system.register_table("
            f"schema_name => '{_sql(parsed.namespace)}', table_name => '{_sql(parsed.table)}', "
            f"table_location => '{_sql(location)}');"
        ),
    }


def _sql(text: str) -> str:
    """Escape a text for single quotes in SQL."""
    return text.replace("'", "''")
