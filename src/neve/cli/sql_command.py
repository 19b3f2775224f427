"""`neve sql`: statements from the command line, a file, a pipe, or a shell.

    neve sql -c "select * from shop.orders where amount > 5"
    neve sql report.sql --format csv > report.csv
    neve sql -c "from shop.orders" -o orders.parquet
    echo "show tables" | neve sql --json
    neve sql                                     a shell, on a terminal

Statements run one after the other in one session, and the first that fails ends the command. The
rows of each are written in the form of `neve.cli.row_output`; a statement that changes rows prints
how many.
"""

import sys
from pathlib import Path
from typing import Final

import click
import pyarrow as pa

from neve.catalog.sql_door import SqlResult
from neve.cli.commands import DocumentedCommand
from neve.cli.options import AskedLake, complete_file, on_a_lake, wide_option
from neve.cli.row_output import STANDARD_OUTPUT, RowForm, RowTable, asked_form, write_rows
from neve.cli.sql_shell import SqlShell
from neve.errors import InvalidArgument, SchemaMismatch, Unavailable
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import Json
from neve.model.arrow_types import normalize_type
from neve.model.display import counted
from neve.sql.parser import split

_CHANGES: Final = ("INSERT", "UPDATE", "DELETE", "MERGE")
_ROWS: Final = ("SELECT", "SHOW", "EXPLAIN", "CALL")


@click.command(
    cls=DocumentedCommand,
    examples=[
        'neve sql -c "select customer, sum(amount) from shop.orders group by customer"',
        "neve sql -c \"insert into shop.orders (id, customer) values (7, 'eve')\"",
        'neve sql -c "from shop.orders" --format csv -o orders.csv',
        'neve sql -c "show tables" --json',
    ],
)
@click.argument(
    "file",
    required=False,
    metavar="[FILE]",
    help="A file of statements; - reads standard input.",
    shell_complete=complete_file,
)
@click.option(
    "--format",
    "output",
    type=click.Choice([form.value for form in RowForm]),
    show_default="as the output file is named, otherwise table",
    help="Output format of rows; parquet needs -o.",
)
@click.option(
    "-c", "--command", "commands", multiple=True, metavar="TEXT", help="Statements to run."
)
@click.option(
    "-o", "--output", "path", metavar="FILE", help="Write the rows of the last statement to a file."
)
@click.option(
    "--external-access",
    is_flag=True,
    help="Let queries read files and the network, and load extensions.",
)
@wide_option
@on_a_lake
def sql(
    *,
    file: str | None,
    commands: tuple[str, ...],
    output: str | None,
    path: str | None,
    external_access: bool,
    wide: bool,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Run SQL on the tables of a lake.

    Without FILE and -c, statements come from standard input; on a terminal that is a shell, in
    which .help lists what there is.
    """
    if file is not None and commands:
        raise InvalidArgument("both FILE and -c are given", hint="Use one of them")
    form = asked_form(output, path, as_json=as_json)
    printer = ResultPrinter(form, path or STANDARD_OUTPUT, wide=wide)
    with (
        lake.open() as catalog,
        catalog.sql_session(external_access=external_access) as session,
    ):
        if file is None and not commands and sys.stdin is not None and sys.stdin.isatty():
            SqlShell(catalog, session, printer).run()
            return
        texts = [part for text in commands or [_text_of(file)] for part in split(text)]
        for place, text in enumerate(texts):
            result = session.sql(text)
            printer.write(result, is_last=place == len(texts) - 1)


def _text_of(file: str | None) -> str:
    if file in (None, STANDARD_OUTPUT):
        if sys.stdin is None:
            raise InvalidArgument("there is no standard input", hint="Use -c, or name a file")
        return sys.stdin.read()
    try:
        return Path(str(file)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(
            f"could not read the statements: {error}", path=file, hint="Check the name of the file"
        ) from error


class ResultPrinter:
    """Writes what statements returned, in one form."""

    def __init__(self, form: RowForm, path: str, *, wide: bool) -> None:
        self.form = form
        self.path = path
        self.wide = wide

    def write(self, result: SqlResult, *, is_last: bool = True) -> None:
        """Write rows, or what was changed; only the last result goes to a file."""
        path = self.path if is_last else STANDARD_OUTPUT
        if result.statement not in _ROWS:
            if self.form is RowForm.JSON:
                write_json({"statement": result.statement, "count": result.count})
            elif self.form is RowForm.TABLE:
                Page().line(changed_words(result))
            return
        if path != STANDARD_OUTPUT and not is_last:
            return
        rows = presentable(result.to_arrow())
        if self.form is RowForm.TABLE:
            self.draw(rows, Page())
            return
        facts: dict[str, Json] = {"statement": result.statement, "count": result.count}
        write_rows(self.form, rows.schema, rows.to_batches(), path=path, facts=facts)

    def draw(self, rows: pa.Table, page: Page) -> None:
        """Draw rows for people."""
        table = RowTable(rows.schema, columns=page.table_columns(wide=self.wide))
        page.lines(table.lines(rows.to_batches()))
        page.line(f"({counted(rows.num_rows, 'row')})")


def changed_words(result: SqlResult) -> str:
    """Return what a statement did, in a few words."""
    words = result.statement.lower()
    if result.statement not in _CHANGES:
        return f"{words}: done"
    [counts] = result.to_pylist()
    parts = [f"{number:,} {name}" for name, number in counts.items() if number]
    return f"{words}: {', '.join(parts) or 'nothing changed'}"


def presentable(rows: pa.Table) -> pa.Table:
    """Return rows whose types have a form to be shown; others become text."""
    fields: list[pa.Field[pa.DataType]] = []
    columns: list[pa.ChunkedArray[pa.Scalar[pa.DataType]]] = []
    names: set[str] = set()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        try:
            type_ = normalize_type(field.type, column=field.name)
            shown = column.cast(type_)
        except (SchemaMismatch, pa.ArrowException):
            values = [None if each is None else str(each) for each in column.to_pylist()]
            type_, shown = pa.string(), pa.chunked_array([pa.array(values, pa.string())])
        name = field.name
        while name in names:
            name += "_"  # rows are written as objects, whose names differ
        names.add(name)
        fields.append(pa.field(name, type_))
        columns.append(shown)
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
