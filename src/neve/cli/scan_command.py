"""`neve scan`: shows many rows of a table, or writes them to a file."""

from dataclasses import fields

import click
import numpy as np
import pyarrow as pa
from rich.text import Text

from neve.catalog.system_tables import is_system_name, readable_rows, readable_schema
from neve.catalog.table import Table
from neve.cli.commands import DocumentedCommand
from neve.cli.number_type import WholeNumber
from neve.cli.options import (
    Rows,
    at_a_version,
    complete_column,
    filter_option,
    names_of,
    on_a_lake,
    open_lake,
    rows_at,
    table_argument,
    to_file_argument,
    wide_option,
)
from neve.cli.row_commands import bound_of
from neve.cli.row_output import STANDARD_OUTPUT, RowForm, RowTable, asked_form, write_rows
from neve.cli.table_words import unflushed_words
from neve.errors import InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted
from neve.read.scan import Scan, ScanExplanation


@click.command(
    cls=DocumentedCommand,
    examples=[
        "neve scan shop.orders --filter \"amount > 5 and customer = 'ada'\"",
        "neve scan shop.orders --columns id,amount --limit 10 --format jsonl",
        "neve scan shop.orders orders.parquet --version 2",
        "neve scan __snapshots --filter \"table_name = 'shop.orders'\"",
    ],
)
@table_argument
@to_file_argument
@filter_option(help_text="Only rows that match, such as \"amount > 5 and customer = 'ada'\".")
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME,NAME",
    help="Only these columns, in this order; may be repeated.",
    shell_complete=complete_column,
)
@click.option("--limit", type=WholeNumber(), metavar="N", help="At most N rows.")
@click.option(
    "--key-range",
    nargs=2,
    metavar="FIRST END",
    help="Only keys from FIRST up to and without END, in their order; '' is no bound.",
)
@click.option("--reverse", is_flag=True, help="The highest key first.")
@at_a_version
@click.option(
    "--format",
    "--output",
    "output",
    type=click.Choice([form.value for form in RowForm]),
    show_default="as FILE is named, otherwise table",
    help="How to give the rows; parquet needs FILE.",
)
@click.option("--explain", is_flag=True, help="Say what would be read instead, and why.")
@click.option("--count", is_flag=True, help="Say how many rows there are instead.")
@wide_option
@on_a_lake
def scan(
    *,
    name: str,
    file: str | None,
    condition: str | None,
    columns: tuple[str, ...],
    limit: int | None,
    key_range: tuple[str, str] | None,
    reverse: bool,
    version: int | None,
    tag: str | None,
    timestamp: str | None,
    output: str | None,
    explain: bool,
    count: bool,
    wide: bool,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show rows of a table, or write them to FILE.

    Rows come in no order unless --key-range or --reverse is given. A bound of a key of several
    columns is a value of the first one, or a JSON list with the first few.

    Decimals, dates, times and uuids are text, bytes are hexadecimal: JSON lines can be written
    again with `neve put TABLE -`.

    TABLE may also be __tables, __snapshots or __files: what the lake knows of all its tables.
    """
    if explain and count:
        raise InvalidArgument("both --explain and --count are given", hint="Ask for one at a time")
    form = None if explain or count else asked_form(output, file, as_json=as_json)
    if is_system_name(name):
        if explain or version is not None or tag or timestamp or key_range:
            raise InvalidArgument(
                f"{name} is listed as it is now: it has no versions, no keys and no plan",
                hint="Choose rows with --filter",
            )
        with open_lake(lake, storage_options) as catalog:
            listed = catalog.system_table(name)
        names = names_of(columns, readable_schema(name))
        found = readable_rows(name, listed, filter=condition, columns=names)
        if reverse:
            found = found.take(np.arange(found.num_rows)[::-1])
        chosen, path = found.slice(0, limit), file or STANDARD_OUTPUT
        _give_listed(name, chosen, form, path, wide=wide, as_json=as_json)
        return
    with (
        open_lake(lake, storage_options) as catalog,
        rows_at(catalog, name, version=version, tag=tag, timestamp=timestamp) as rows,
    ):
        bounds = None
        if key_range is not None:
            bounds = bound_of(key_range[0], rows.schema), bound_of(key_range[1], rows.schema)
        asked = rows.scan(
            condition,
            columns=names_of(columns, rows.schema),
            limit=limit,
            key_range=bounds,
            reverse=reverse,
        )
        if explain:
            _show_plan(asked.explain(), as_json=as_json)
        elif count:
            _show_count(name, rows, asked.count(), as_json=as_json)
        else:
            assert form is not None, "rows are given in some form"
            path = STANDARD_OUTPUT if file is None else file
            _give(name, rows, asked, form, path, wide=wide)


def _give(name: str, rows: Rows, asked: Scan, form: RowForm, path: str, *, wide: bool) -> None:
    if form is RowForm.TABLE:
        page = Page()
        drawing = RowTable(asked.schema, columns=page.table_columns(wide=wide))
        page.lines(drawing.lines(asked.to_batches()))
        unflushed = rows.stats().memtable_rows if isinstance(rows, Table) else 0
        words = f"{counted(drawing.row_count, 'row')} · version {rows.version:,}"
        page.line(Text(f"{words}{unflushed_words(unflushed)}", "dim"))
        return
    facts: dict[str, Json] = {"table": name, "version": rows.version}
    written = write_rows(form, asked.schema, asked.to_batches(), path=path, facts=facts)
    if path != STANDARD_OUTPUT:
        Page().line(f"wrote {counted(written, 'row')} to {shown_text(path)}")


def _give_listed(
    name: str, found: pa.Table, form: RowForm | None, path: str, *, wide: bool, as_json: bool
) -> None:
    if form is None:
        if as_json:
            write_json({"table": name, "count": found.num_rows})
        else:
            Page().line(f"{found.num_rows}")
    elif form is RowForm.TABLE:
        page = Page()
        drawing = RowTable(found.schema, columns=page.table_columns(wide=wide))
        page.lines(drawing.lines(found.to_batches()))
        page.line(Text(counted(found.num_rows, "row"), "dim"))
    else:
        write_rows(form, found.schema, found.to_batches(), path=path, facts={"table": name})
        if path != STANDARD_OUTPUT:
            Page().line(f"wrote {counted(found.num_rows, 'row')} to {shown_text(path)}")


def _show_count(name: str, rows: Rows, number: int, *, as_json: bool) -> None:
    if as_json:
        write_json({"table": name, "version": rows.version, "count": number})
    else:
        Page().line(f"{number}")


def _show_plan(plan: ScanExplanation, *, as_json: bool) -> None:
    if not as_json:
        page = Page()
        for line in str(plan).splitlines():
            page.line(shown_text(line))
        return
    members: dict[str, Json] = {}
    for each in fields(plan):
        value = getattr(plan, each.name)
        members[each.name] = value.hex() if isinstance(value, bytes) else value
    write_json(members)
