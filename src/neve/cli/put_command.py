"""`neve put`: writes rows that are given as JSON, whole or in part, always or on a condition.

    neve put shop.orders '{"id": 1, "customer": "ada", "amount": 9.5}'
    neve put shop.orders '{"id": 1, "amount": 12}' --columns amount
    neve put shop.orders '{"id": 1, "amount": 12}' --expect '{"id": 1, "amount": 9.5}'
    neve put shop.orders - --if-absent < rows.jsonl

How values are written is told in `neve.cli.value_forms`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import click

from neve.catalog.table import Table
from neve.cli.commands import DocumentedCommand
from neve.cli.json_rows import JsonFileRows, JsonRows
from neve.cli.options import names_of, on_a_lake, open_lake, table_argument, written_columns
from neve.cli.refused_rows import telling_the_row
from neve.errors import Conflict, InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import Json
from neve.model.display import counted

_STANDARD_INPUT: Final = "-"
_BATCH_ROWS: Final = 10_000
_NO_ROW: Final = "null"


@dataclass(slots=True)
class _Done:
    """What was written so far."""

    sequence: int
    written: int = 0
    present: int = 0
    """Rows that were not written, as their keys had one."""


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
@click.option("--if-absent", is_flag=True, help="Pass over rows whose keys have one.")
@click.option(
    "--expect",
    "expected",
    metavar="JSON|null",
    help="Write only if the row of the key is this one; null: if there is none.",
)
@on_a_lake
def put(
    *,
    name: str,
    row: str,
    columns: tuple[str, ...],
    if_absent: bool,
    expected: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write a row, given as a JSON object, or with - the rows on standard input.

    A row replaces the one of its key. On standard input there is one JSON object to a line, or an
    array of objects. Rows are durable when the command ends; of many, ten thousand at a time are
    written all or none, and with --if-absent each by itself.

    With --columns a row holds its key and these columns. A row that is not as --expect says is a
    conflict, with exit code 3, and nothing is written.

    Decimals, dates, times and uuids are text, bytes are hexadecimal text.
    """
    _check_way(row, columns, if_absent=if_absent, expected=expected)
    with open_lake(lake, storage_options) as catalog, catalog.table(name) as table:
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
        raise InvalidArgument(
            f"{' and '.join(asked)} do not go together", hint="Give one of them at a time"
        )
    if expected is not None and row == _STANDARD_INPUT:
        raise InvalidArgument(
            "one row is expected for the rows of standard input",
            hint="Give the row to write as an argument",
        )


def _upsert(table: Table, row: str, columns: Sequence[str] | None, done: _Done) -> None:
    rows = JsonFileRows(table.schema, source=_source(row), columns=columns)
    with telling_the_row(rows.place_of, lambda: done.written + done.present):
        for encoded in _given(row, rows):
            done.sequence = table.upsert(rows.batch(encoded), columns)
            done.written += len(encoded)


def _put_absent(table: Table, row: str, done: _Done) -> None:
    rows = JsonFileRows(table.schema, source=_source(row))
    with telling_the_row(rows.place_of, lambda: done.written + done.present):
        for encoded in _given(row, rows):
            for each in encoded:
                sequence = table.put_if_absent(rows.values(each))
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
            "the row of the key is not the expected one: nothing was written",
            hint="`neve get` shows the row as it is; look at it, then try again",
        )
    done.sequence, done.written = sequence, 1


def _source(row: str) -> str:
    return "standard input" if row == _STANDARD_INPUT else "the row"


def _given(row: str, rows: JsonRows) -> Iterator[list[bytes]]:
    if row != _STANDARD_INPUT:
        yield [rows.row(row)]
        return
    if sys.stdin is None:
        raise InvalidArgument("there is no standard input", hint="Give the row as an argument")
    yield from rows.encoded(sys.stdin.buffer, batch_rows=_BATCH_ROWS)
