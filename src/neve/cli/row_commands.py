"""Commands on the rows of a table: put, get, delete, scan.

    neve put shop.orders '{"id": 1, "customer": "ada", "amount": 9.5}'
    neve put shop.orders '{"id": 1, "amount": 12}' --columns amount
    neve put shop.orders - --if-absent < rows.jsonl
    neve get shop.orders 1 2 3
    neve delete shop.orders --filter "amount > 5"
    neve scan shop.orders --filter "amount > 5" --limit 10

`neve.cli.value_forms` has the forms of values. A key of one column is one value in its text form.
A key of several columns is as many values, or one JSON list of them in key order:

    neve get shop.visits ada 2024-01-31
    neve get shop.visits '["ada", "2024-01-31"]'
    neve get shop.visits ada 2024-01-31 bob 2024-02-01        several keys, all in the same form

A bound of a key range is a value of the first column, or a JSON list of the first few; empty text
means no bound.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import click
import numpy as np
import pyarrow as pa
from rich.text import Text

from neve.catalog.system_tables import is_system_name, readable_rows, readable_schema
from neve.catalog.table import Table
from neve.cli.commands import DocumentedCommand
from neve.cli.json_rows import JsonFileRows, JsonRows
from neve.cli.options import (
    AskedLake,
    Rows,
    WholeNumber,
    at_a_version,
    complete_column,
    filter_option,
    names_of,
    on_a_lake,
    rows_at,
    table_argument,
    to_file_argument,
    wide_option,
    written_columns,
)
from neve.cli.refused_rows import naming_the_row
from neve.cli.row_output import (
    STANDARD_OUTPUT,
    RowForm,
    RowTable,
    asked_form,
    json_rows,
    row_lines,
    write_rows,
)
from neve.cli.table_report import unflushed_words
from neve.cli.value_forms import json_reader, parse_json, text_reader
from neve.errors import Conflict, InvalidArgument, NotFound
from neve.inspect.page import JsonDocument, Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.arrow_types import type_name
from neve.model.display import counted, shown
from neve.model.scalar_values import Unfit
from neve.model.schema import Column, TableSchema
from neve.read.scan import Scan, ScanExplanation

_NEGATIVE: Final = re.compile(r"-\.?[0-9]")
_END_OF_OPTIONS: Final = "--"
_NAMED_MAX: Final = 20
_STANDARD_INPUT: Final = "-"
_BATCH_ROWS: Final = 10_000
_NO_ROW: Final = "null"


def key_of(texts: Sequence[str], schema: TableSchema) -> object:
    """Read a key; raises InvalidArgument that names the column."""
    columns = schema.key_columns
    if len(columns) == 1:
        (column,) = columns
        if len(texts) == 1:
            return _from_text(texts[0], column)
    elif len(texts) == len(columns):
        return tuple(_from_text(text, column) for text, column in zip(texts, columns, strict=True))
    elif len(texts) == 1 and texts[0].lstrip().startswith("["):
        values = _from_list(texts[0], columns)
        if len(values) == len(columns):
            return values
    names = ", ".join(shown(column.name) for column in columns)
    raise InvalidArgument(
        _other_count(len(texts), columns),
        hint=f"The key is {names}: write as many values, or one JSON list of them"
        if len(columns) > 1
        else f"The key is {names}: write one value",
    )


def keys_of(texts: Sequence[str], schema: TableSchema) -> list[tuple[str, object]]:
    """Read many keys, each with its text; raises InvalidArgument."""
    width = len(schema.key_columns)
    if width == 1 or all(text.lstrip().startswith("[") for text in texts):
        return [(text, key_of([text], schema)) for text in texts]
    if len(texts) % width:
        return [(" ".join(texts), key_of(texts, schema))]
    pieces = [texts[start : start + width] for start in range(0, len(texts), width)]
    return [(" ".join(piece), key_of(piece, schema)) for piece in pieces]


def bound_of(text: str, schema: TableSchema) -> object:
    """Read a bound of a key range: values of leading columns, or None for no bound."""
    columns = schema.key_columns
    if not text:
        return None
    if len(columns) > 1 and text.lstrip().startswith("["):
        return _from_list(text, columns)
    return (_from_text(text, columns[0]),)


def _from_text(text: str, column: Column) -> object:
    try:
        return text_reader(column.type)(text)
    except Unfit as unfit:
        raise _refusal(column, unfit) from None


def _from_list(text: str, columns: Sequence[Column]) -> tuple[object, ...]:
    try:
        values = parse_json(text)
    except ValueError as error:
        raise InvalidArgument(
            f"the key {shown(text)} is not a JSON list: {error}",
            hint='Write it like ["ada", 7], in quotes for the shell',
        ) from None
    assert isinstance(values, list), "it begins with ["
    if not 0 < len(values) <= len(columns):
        names = ", ".join(shown(column.name) for column in columns)
        raise InvalidArgument(
            _other_count(len(values), columns),
            hint=f"The key is {names}",
        )
    found = []
    for value, column in zip(values, columns, strict=False):
        try:
            found.append(None if value is None else json_reader(column.type)(value))
        except Unfit as unfit:
            raise _refusal(column, unfit) from None
    return tuple(found)


def _other_count(given: int, columns: Sequence[Column]) -> str:
    return f"{counted(given, 'value')} for a key of {counted(len(columns), 'column')}"


def _refusal(column: Column, unfit: Unfit) -> InvalidArgument:
    return InvalidArgument(
        f"key column {shown(column.name)} holds {type_name(column.type)}: {unfit.reason}",
        hint="Write a value of that type",
    )


class KeyCommand(DocumentedCommand):
    """Accepts -5 as an argument; unknown options are still errors."""

    ignore_unknown_options = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse unknown options, then let click parse the rest."""
        known = {name: option for option in self.get_params(ctx) for name in option.opts}
        is_value = False
        for arg in args:
            if arg == _END_OF_OPTIONS:
                break
            option = known.get(arg.partition("=")[0]) if not is_value else None
            if is_value or not arg.startswith("-") or arg == "-" or _NEGATIVE.match(arg):
                is_value = False
            elif option is None:
                raise click.NoSuchOption(arg, possibilities=sorted(known), ctx=ctx)
            else:
                takes_value = isinstance(option, click.Option) and not option.is_flag
                is_value = takes_value and "=" not in arg
        return super().parse_args(ctx, args)


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
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Show the rows of keys, in the given order; if a key has no row, the exit code is 2.

    A key of several columns is as many values, or one JSON list. Put -- before text that begins
    with a minus sign; numbers do not need it.

    One row is shown as a line per column, many as a table. With --json, one key returns the row,
    and many return a document with `rows` and `missing`. Existing rows are shown before missing
    keys are reported.
    """
    with (
        lake.open() as catalog,
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
    name: str, found: pa.Table, missing: Sequence[str], *, is_one: bool, wide: bool, as_json: bool
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
    *, name: str, key: tuple[str, ...], condition: str | None, lake: AskedLake, as_json: bool
) -> None:
    """Delete the row of a key, or with --filter all rows that match.

    A filter is written like "amount > 5 and customer = 'ada'", and a key as for `neve get`. It is
    not an error if there is no such row.
    """
    if bool(key) == (condition is not None):
        raise InvalidArgument(
            "both a key and --filter are given" if key else "no key and no --filter is given",
            hint="Write a key, or --filter and a filter",
        )
    with lake.open() as catalog, catalog.table(name) as table:
        before = table.stats().sequence
        if condition is not None:
            sequence = table.delete_where(condition)
            # Each deleted row takes a sequence number, and no other process can write now.
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


@dataclass(slots=True)
class _Done:
    """What was written so far."""

    sequence: int
    written: int = 0
    present: int = 0
    """Rows that were not written, because their keys had one."""


@click.command(
    cls=DocumentedCommand,
    examples=[
        """neve put shop.orders '{"id": 1, "customer": "ada", "amount": "9.50"}'""",
        """neve put shop.orders '{"id": 1, "amount": "12"}' --columns amount""",
        "neve put shop.orders - --if-absent < orders.jsonl",
    ],
)
@table_argument
@click.argument("row", metavar="JSON|-", help="The row, as a JSON object; - reads standard input.")
@written_columns
@click.option("--if-absent", is_flag=True, help="Skip rows whose key exists.")
@click.option(
    "--expect",
    "expected",
    metavar="JSON|null",
    help="Write only if the row of the key is this one, or null if there must be none.",
)
@on_a_lake
def put(
    *,
    name: str,
    row: str,
    columns: tuple[str, ...],
    if_absent: bool,
    expected: str | None,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Write a row, given as a JSON object, or with - the rows on standard input.

    A row replaces the row with the same key. Standard input has one JSON object per line, or an
    array of objects. Rows are durable when the command ends. Many rows are written in batches of
    ten thousand, each all or nothing; with --if-absent they are written one by one.

    With --columns a row holds its key and these columns. If the current row differs from --expect,
    nothing is written and the exit code is 3.

    Decimals, dates, times and uuids are text; bytes are hexadecimal text.
    """
    _check_way(row, columns, if_absent=if_absent, expected=expected)
    with lake.open() as catalog, catalog.table(name) as table:
        done = _Done(table.stats().sequence)
        if expected is not None:
            _compare_and_put(table, row, expected, done)
        elif if_absent:
            _put_absent(table, row, done)
        else:
            _upsert(table, row, names_of(columns, table.schema), done)
    if as_json:
        said: dict[str, Json] = {"table": name, "rows": done.written, "sequence": done.sequence}
        write_json(said | ({"present": done.present} if if_absent else {}))
        return
    words = f"wrote {counted(done.written, 'row')}"
    if done.present:
        words += f", {counted(done.present, 'key')} had one already"
    Page().line(f"{words}, up to sequence {done.sequence:,}")


def _check_way(row: str, columns: Sequence[str], *, if_absent: bool, expected: str | None) -> None:
    given = {"--columns": bool(columns), "--if-absent": if_absent, "--expect": expected is not None}
    asked = [option for option, is_given in given.items() if is_given]
    if len(asked) > 1:
        raise InvalidArgument(f"{' and '.join(asked)} cannot be combined", hint="Use one at a time")
    if expected is not None and row == _STANDARD_INPUT:
        raise InvalidArgument(
            "--expect takes one row, not standard input",
            hint="Write the row as an argument",
        )


def _upsert(table: Table, row: str, columns: Sequence[str] | None, done: _Done) -> None:
    rows = JsonFileRows(table.schema, source=_source(row), columns=columns)
    with naming_the_row(rows.place_of, lambda: done.written + done.present):
        for batch in _given(row, rows):
            done.sequence = table.upsert(batch, columns)
            done.written += batch.num_rows


def _put_absent(table: Table, row: str, done: _Done) -> None:
    rows = JsonFileRows(table.schema, source=_source(row))
    with naming_the_row(rows.place_of, lambda: done.written + done.present):
        for batch in _given(row, rows):
            for each in rows.rows_of(batch):
                sequence = table.put_if_absent(each)
                if sequence is None:
                    done.present += 1
                else:
                    done.sequence = sequence
                    done.written += 1


def _compare_and_put(table: Table, row: str, expected: str, done: _Done) -> None:
    rows = JsonRows(table.schema, source=_source(row))
    before = None
    if expected.strip() != _NO_ROW:
        reader = JsonRows(table.schema, source="the expected row")
        before = reader.values(reader.row(expected))
    sequence = table.compare_and_put(rows.values(rows.row(row)), before)
    if sequence is None:
        raise Conflict(
            "the row of the key is not the expected one; nothing was written",
            hint="Look at the row with `neve get`, then try again",
        )
    done.sequence, done.written = sequence, 1


def _source(row: str) -> str:
    return "standard input" if row == _STANDARD_INPUT else "the row"


def _given(row: str, rows: JsonRows) -> Iterator[pa.RecordBatch]:
    if row != _STANDARD_INPUT:
        yield rows.batch([rows.row(row)])
        return
    if sys.stdin is None:
        raise InvalidArgument("there is no standard input", hint="Write the row as an argument")
    yield from rows.batches(sys.stdin.buffer, batch_rows=_BATCH_ROWS)


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
@filter_option(help_text="Show only rows that match, such as \"amount > 5 and customer = 'ada'\".")
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME,NAME",
    help="Show only these columns, in this order; may be repeated.",
    shell_complete=complete_column,
)
@click.option("--limit", type=WholeNumber(), metavar="N", help="Show at most N rows.")
@click.option(
    "--key-range",
    nargs=2,
    metavar="FIRST END",
    help="Show only keys from FIRST up to but not including END, in key order; '' means no bound.",
)
@click.option("--reverse", is_flag=True, help="Show the highest key first.")
@at_a_version
@click.option(
    "--format",
    "--output",
    "output",
    type=click.Choice([form.value for form in RowForm]),
    show_default="as FILE is named, otherwise table",
    help="Output format; parquet needs FILE.",
)
@click.option("--explain", is_flag=True, help="Show which files would be read instead, and why.")
@click.option("--count", is_flag=True, help="Show the number of rows instead.")
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
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Show rows of a table, or write them to FILE.

    Rows have no order unless --key-range or --reverse is given. A bound of a key of several
    columns is a value of the first one, or a JSON list of the first few.

    Decimals, dates, times and uuids are text, bytes are hexadecimal: `neve put TABLE -` accepts
    the JSON lines.

    TABLE may also be __tables, __snapshots or __files, which list all tables of the lake.
    """
    if explain and count:
        raise InvalidArgument("both --explain and --count are given", hint="Use one of them")
    form = None if explain or count else asked_form(output, file, as_json=as_json)
    if is_system_name(name):
        if explain or version is not None or tag or timestamp or key_range:
            raise InvalidArgument(
                f"{name} is not a stored table: it has no versions, no keys and no plan",
                hint="Select rows with --filter",
            )
        with lake.open() as catalog:
            listed = catalog.system_table(name)
        names = names_of(columns, readable_schema(name))
        found = readable_rows(name, listed, filter=condition, columns=names)
        if reverse:
            found = found.take(np.arange(found.num_rows)[::-1])
        chosen, path = found.slice(0, limit), file or STANDARD_OUTPUT
        _give_listed(name, chosen, form, path, wide=wide, as_json=as_json)
        return
    with (
        lake.open() as catalog,
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
            assert form is not None, "rows have a form"
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
