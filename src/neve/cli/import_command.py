"""`neve import`: writes the rows of a file into a table."""

from typing import Final

import click

from neve.cli.imported_rows import ImportForm, form_of, open_rows
from neve.cli.lake_options import on_a_lake, open_lake
from neve.cli.output import Page, write_json
from neve.cli.progress_bar import progress_bar
from neve.cli.shown_text import counted, shown_text
from neve.errors import InvalidArgument, NeveError, SchemaMismatch

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
@on_a_lake
def import_rows(
    *,
    name: str,
    file: str,
    form: str | None,
    batch_rows: int,
    delimiter: str | None,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the rows of a file into a table that is there; - is standard input.

    CSV, JSON lines, Parquet and Arrow files are read, CSV and JSON lines also compressed. Columns
    are found by name. A row replaces the one of its key, so an import that was cut off can be
    repeated. At the end the rows are committed as a version.

    In CSV and JSON, decimals, dates, times and uuids are text, bytes are hexadecimal text.
    """
    chosen = form_of(file) if form is None else ImportForm(form)
    _check_delimiter(delimiter, chosen)
    written = 0
    with (
        open_lake(lake, storage_options) as catalog,
        catalog.table(name) as table,
        progress_bar("importing") as tell,
        open_rows(file, chosen, table.schema, batch_rows=batch_rows, delimiter=delimiter) as rows,
    ):
        sequence = table.stats().sequence
        try:
            for batch in rows.batches:
                sequence = table.upsert(batch)
                written += batch.num_rows
                tell(rows.position(), rows.byte_count)
        except NeveError as error:
            error.hint = _with_place(error, written)
            raise
        version = table.flush() if written else table.version
    if as_json:
        write_json({"table": name, "rows": written, "sequence": sequence, "version": version})
    else:
        Page().line(
            f"imported {counted(written, 'row')} into {shown_text(name)}, now at version {version}"
        )


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


def _with_place(error: NeveError, written: int) -> str | None:
    """Say which rows are written, and where the rows of a message are counted from."""
    if not written:
        return error.hint
    verb = "is" if written == 1 else "are"
    words = f"{counted(written, 'row')} before it {verb} written"
    if isinstance(error, SchemaMismatch) and error.row is not None:
        words += f"; rows are counted from row {written:,} of the file"
    return words if error.hint is None else f"{error.hint}. {words}"
