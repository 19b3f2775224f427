"""Commands on rows by key: get, delete.

    neve get shop.orders 1 2 3
    neve delete shop.orders --filter "amount > 5"

How keys are written is told in `neve.cli.row_commands`.
"""

from collections.abc import Sequence
from typing import Final

import click
import pyarrow as pa

from neve.cli.options import (
    at_a_version,
    filter_option,
    on_a_lake,
    open_lake,
    rows_at,
    table_argument,
    wide_option,
)
from neve.cli.row_commands import KeyCommand, key_of, keys_of
from neve.cli.row_output import RowTable, json_rows, row_lines
from neve.errors import InvalidArgument, NotFound
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import shown_text
from neve.model.display import counted

_NAMED_MAX: Final = 20


@click.command(
    cls=KeyCommand,
    examples=[
        "neve get shop.orders 1",
        "neve get shop.orders 2 1",
        "neve get shop.orders 1 --version 2 --json",
    ],
)
@table_argument
@click.argument(
    "key", nargs=-1, required=True, metavar="KEY...", help="The values of the keys' columns."
)
@at_a_version
@wide_option
@on_a_lake
def get(
    *,
    name: str,
    key: tuple[str, ...],
    version: int | None,
    tag: str | None,
    timestamp: str | None,
    wide: bool,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the rows of keys, in the order asked; a key without a row ends with exit code 2.

    A key of several columns is as many values, or one JSON list. Put -- before a text that begins
    with a minus sign; numbers need none.

    One key is shown as a line for each column, many as a table. With --json, one key is the row,
    and many are a document with `rows` and `missing`. Rows that exist are shown before the keys
    that have none are reported.
    """
    with (
        open_lake(lake, storage_options) as catalog,
        rows_at(catalog, name, version=version, tag=tag, timestamp=timestamp) as rows,
    ):
        asked = keys_of(key, rows.schema)
        key_column = rows.schema.key_columns[0].name
        found = rows.get_many([each for _, each in asked], with_missing=True)
    is_there = found.column(key_column).is_valid()
    missing = [
        text for (text, _), there in zip(asked, is_there.to_pylist(), strict=True) if not there
    ]
    _show_found(
        name, found.filter(is_there), missing, is_one=len(asked) == 1, wide=wide, as_json=as_json
    )
    if missing:
        raise _not_found(name, missing)


def _show_found(
    name: str,
    found: pa.Table,
    missing: Sequence[str],
    *,
    is_one: bool,
    wide: bool,
    as_json: bool,
) -> None:
    batches = found.combine_chunks().to_batches()
    rows = [dict(zip(found.schema.names, row, strict=True)) for row in json_rows(batches)]
    if is_one:
        for row in rows:
            if as_json:
                write_json(row)
            else:
                Page().lines(row_lines(row))
    elif as_json:
        document = JsonDocument()
        document.members({"table": name})
        document.array("rows", rows)
        document.members({"missing": [*missing]})
        document.end()
    elif rows:
        page = Page()
        page.lines(RowTable(found.schema, columns=page.table_columns(wide=wide)).lines(batches))


def _not_found(name: str, missing: Sequence[str]) -> NotFound:
    keys = ", ".join(map(ascii, missing[:_NAMED_MAX]))
    if len(missing) == 1:
        words = f"the table {name!a} has no row with the key {keys}"
    else:
        more = f" and {len(missing) - _NAMED_MAX:,} more" if missing[_NAMED_MAX:] else ""
        words = f"the table {name!a} has no rows with the keys {keys}{more}"
    return NotFound(words, hint="`neve scan` lists rows")


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
