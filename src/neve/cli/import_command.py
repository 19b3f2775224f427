"""`neve import`: writes the rows of a file into a table."""

from collections.abc import Sequence
from typing import Final

import click

from neve.catalog.table import Table
from neve.cli.column_words import names_of
from neve.cli.exit_codes import Interrupted
from neve.cli.imported_rows import ImportedRows, ImportForm, form_of, open_rows
from neve.cli.lake_options import on_a_lake, open_lake
from neve.cli.output import Page, write_json
from neve.cli.progress_bar import TellProgress, progress_bar
from neve.cli.refused_rows import telling_the_row
from neve.cli.shown_text import shown_text
from neve.errors import InvalidArgument
from neve.model.shown_value import counted

_BATCH_ROWS: Final = 50_000


@click.command("import")
@click.argument("name", metavar="TABLE")
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in ImportForm]),
    help="What the file is [default: as it is named].",
)
@click.option(
    "--batch-rows",
    type=click.IntRange(min=1, max=10_000_000),
    default=_BATCH_ROWS,
    show_default=True,
    metavar="N",
    help="Rows that are written at a time, all or none.",
)
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    help="What separates the cells of CSV [default: a comma, in .tsv a tab].",
)
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME,NAME",
    help="Write only these columns, and leave the others as they are; may be repeated.",
)
@on_a_lake
def import_rows(
    *,
    name: str,
    file: str,
    form: str | None,
    batch_rows: int,
    delimiter: str | None,
    columns: tuple[str, ...],
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the rows of a file into a table that is there; - is standard input.

    CSV, JSON lines, Parquet and Arrow files are read, CSV and JSON lines also compressed. Columns
    are found by name. A row replaces the one of its key, so an import that was cut off can be
    repeated. At the end the rows are committed as a version.

    With --columns, only these and the key are taken from the file. The other columns of rows that
    are there stay as they are.

    In CSV and JSON, decimals, dates, times and uuids are text, bytes are hexadecimal text.
    """
    chosen = form_of(file) if form is None else ImportForm(form)
    _check_delimiter(delimiter, chosen)
    with (
        open_lake(lake, storage_options) as catalog,
        catalog.table(name) as table,
        progress_bar("importing") as tell,
    ):
        names = names_of(columns, table.schema)
        with open_rows(
            file,
            chosen,
            table.schema,
            batch_rows=batch_rows,
            delimiter=delimiter,
            columns=names,
        ) as rows:
            written, sequence, version = _write(table, rows, names, tell)
    if as_json:
        write_json({"table": name, "rows": written, "sequence": sequence, "version": version})
    else:
        Page().line(
            f"imported {counted(written, 'row')} into {shown_text(name)}, now at version {version}"
        )


def _write(
    table: Table, rows: ImportedRows, columns: Sequence[str] | None, tell: TellProgress
) -> tuple[int, int, int]:
    """Write and flush all batches; gives how many rows they were, last sequence and Version."""
    written, sequence = 0, table.stats().sequence
    try:
        with telling_the_row(rows.place_of, lambda: written):
            for batch in rows.batches:
                sequence = table.upsert(batch, columns)
                written += batch.num_rows
                tell(rows.position(), rows.byte_count)
        version = table.flush() if written else table.version
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; {counted(written, 'row')} or more of the file "
            f"{'is' if written == 1 else 'are'} in the table {shown_text(table.name)}",
            hint="Import the file again: rows that are written again stay the same",
        ) from None
    return written, sequence, version


def _check_delimiter(delimiter: str | None, form: ImportForm) -> None:
    if delimiter is None:
        return
    if form is not ImportForm.CSV:
        raise InvalidArgument(
            f"a delimiter is given for {form}", hint="Leave it out: only CSV has one"
        )
    if len(delimiter) != 1 or not delimiter.isascii():
        raise InvalidArgument(
            f"the delimiter {delimiter!a} is not one ASCII character", hint="Give one such as ;"
        )
