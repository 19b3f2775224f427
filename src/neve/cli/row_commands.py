"""Commands on rows by key: get, delete.

    neve get shop.orders 1
    neve delete shop.orders --filter "amount > 5"

How keys are written is told in `neve.cli.key_words`.
"""

import click

from neve.cli.key_command import KeyCommand
from neve.cli.key_words import key_of
from neve.cli.lake_options import on_a_lake, open_lake
from neve.cli.output import Page, write_json
from neve.cli.row_table import row_lines
from neve.cli.shown_text import shown_text
from neve.cli.table_arguments import filter_option, table_argument
from neve.cli.value_forms import json_values
from neve.cli.version_options import at_a_version, rows_at
from neve.errors import InvalidArgument, NotFound
from neve.model.shown_value import counted


@click.command(
    cls=KeyCommand,
    examples=["neve get shop.orders 1", "neve get shop.orders 1 --version 2 --json"],
)
@table_argument
@click.argument(
    "key", nargs=-1, required=True, metavar="KEY...", help="The values of the key's columns."
)
@at_a_version
@on_a_lake
def get(
    *,
    name: str,
    key: tuple[str, ...],
    version: int | None,
    tag: str | None,
    timestamp: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the row of a key; that there is none is an error.

    A key of several columns is as many values, or one JSON list. Put -- before a text that begins
    with a minus sign; numbers need none.
    """
    with (
        open_lake(lake, storage_options) as catalog,
        rows_at(catalog, name, version=version, tag=tag, timestamp=timestamp) as rows,
    ):
        found = rows.get_many([key_of(key, rows.schema)])
    if not found.num_rows:
        raise NotFound(
            f"the table {name!a} has no row with the key {', '.join(map(ascii, key))}",
            hint="`neve scan` lists rows",
        )
    batch = found.combine_chunks().to_batches()[0]
    values = {field.name: json_values(batch.column(field.name))[0] for field in batch.schema}
    if as_json:
        write_json(values)
    else:
        Page().lines(row_lines(values))


@click.command(
    cls=KeyCommand,
    examples=["neve delete shop.orders 1", 'neve delete shop.orders --filter "amount > 5"'],
)
@table_argument
@click.argument("key", nargs=-1, metavar="[KEY]...", help="The values of the key's columns.")
@filter_option(help_text="Delete all rows that match.")
@on_a_lake
def delete(
    *,
    name: str,
    key: tuple[str, ...],
    condition: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Delete the row of a key, or with --filter all rows that match a filter.

    A filter is written like "amount > 5 and customer = 'ada'". That there is no such row is no
    error. A key is written as `neve get` takes it.
    """
    if bool(key) == (condition is not None):
        raise InvalidArgument(
            "both a key and --filter are given" if key else "no row to delete is named",
            hint="Give a key, or --filter and a filter",
        )
    with open_lake(lake, storage_options) as catalog, catalog.table(name) as table:
        before = table.stats().sequence
        if condition is not None:
            sequence = table.delete_where(condition)
            # Each deleted row takes a sequence number, and no other process can write meanwhile.
            deleted = sequence - before
        else:
            wanted = key_of(key, table.schema)
            deleted = table.get_many([wanted]).num_rows
            sequence = table.delete(wanted) if deleted else before
    if as_json:
        write_json({"table": name, "deleted": deleted, "sequence": sequence})
    else:
        where = f" of {shown_text(name)}"
        Page().line(
            f"deleted {counted(deleted, 'row')}{where}" if deleted else f"no such row{where}"
        )
