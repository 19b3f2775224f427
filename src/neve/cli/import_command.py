"""`neve import`: writes the rows of a file into a table.

1. A file is read twice: first to find all rows that do not fit, then to write. If there are any,
   they are reported and nothing is written.
2. With --keep-good it is read once: rows that do not fit are counted and skipped.
3. Standard input can be read only once. It is written as it arrives, until a row does not fit.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import click
import pyarrow as pa
from rich.text import Text

from neve.catalog.table import Table, open_table_of
from neve.cli.commands import DocumentedCommand
from neve.cli.exit_codes import Interrupted
from neve.cli.imported_rows import (
    STANDARD_INPUT,
    TEXT_FORMS,
    ImportedRows,
    ImportForm,
    form_of,
    open_rows,
)
from neve.cli.options import (
    AskedLake,
    Command,
    complete_file,
    memory_option,
    names_of,
    on_a_lake,
    table_argument,
    written_columns,
)
from neve.cli.progress_bar import ReportProgress, progress_bar
from neve.cli.refused_rows import RefusedRows, TooManyRefused, naming_the_row, nth_left
from neve.engine.conditional_writes import ConditionalWrites
from neve.errors import InvalidArgument, SchemaMismatch
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.arrow_buffers import one_batch
from neve.model.display import counted

_BATCH_ROWS: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """What to import, and how."""

    file: str
    form: ImportForm
    delimiter: str | None = None
    memory_limit: int | None = None
    batch_rows: int = _BATCH_ROWS
    columns: tuple[str, ...] = ()
    keep_good: bool = False
    refused_file: str | None = None


@dataclass(slots=True)
class ImportDone:
    """What was written so far."""

    sequence: int
    version: int
    rows: int = 0
    refused: int = 0
    details: Sequence[str] = ()


def file_options(when: str = "") -> Callable[[Command], Command]:
    """Return the options for reading a file; `when` begins their help."""

    def decorate(command: Command) -> Command:
        form = click.option(
            "--format",
            "form",
            type=click.Choice([form.value for form in ImportForm]),
            show_default="as FILE is named",
            help=f"{when}The format of the file.",
        )
        delimiter = click.option(
            "--delimiter",
            metavar="CHARACTER",
            show_default="a comma, in .tsv a tab",
            help=f"{when}The character between the cells of CSV.",
        )
        return form(delimiter(memory_option(command)))

    return decorate


@click.command(
    "import",
    cls=DocumentedCommand,
    examples=[
        "neve import shop.orders orders.jsonl",
        "neve import shop.orders orders.csv --delimiter ';' --refused refused.csv",
        "neve import shop.orders - --format jsonl < orders.jsonl",
    ],
)
@table_argument
@click.argument(
    "file",
    metavar="FILE",
    help="A CSV, JSON, Parquet or Arrow file; - reads standard input.",
    shell_complete=complete_file,
)
@file_options()
@click.option(
    "--batch-rows",
    type=click.IntRange(min=1, max=10_000_000),
    default=_BATCH_ROWS,
    show_default=True,
    metavar="N",
    help="Rows per write; each write is all or nothing.",
)
@written_columns
@click.option("--keep-good", is_flag=True, help="Skip rows that do not fit, write the others.")
@click.option(
    "--refused",
    "refused_file",
    metavar="FILE",
    help="The same, and write rows that do not fit to this file, for correction.",
    shell_complete=complete_file,
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
    keep_good: bool,
    refused_file: str | None,
    memory_limit: int | None,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Write the rows of a file into an existing table; - is standard input.

    The file is CSV, JSON, Parquet or Arrow; CSV and JSON may be compressed: .gz, .bz2, .zst, .lz4.
    JSON is one object per line, an array of objects, or the output of `neve scan`. Columns are
    matched by name. A row replaces the row with the same key, so an interrupted import can be
    repeated. At the end the rows are committed as a version.

    If rows do not fit, nothing is written and the exit code is 2: up to 1,000 bad rows are
    collected, and the first 20 are printed with their lines. With --keep-good or --refused the
    other rows are written, and the exit code is 0. Standard input is written as it arrives, until
    a row does not fit.

    With --columns, only these and the key are read from the file. Existing rows keep their other
    columns.

    In CSV and JSON, decimals, dates, times and uuids are text; bytes are hexadecimal text.
    """
    wish = ImportRequest(
        file=file,
        form=form_of(file) if form is None else ImportForm(form),
        batch_rows=batch_rows,
        delimiter=delimiter,
        memory_limit=memory_limit,
        columns=columns,
        keep_good=keep_good or refused_file is not None,
        refused_file=refused_file,
    )
    _check_request(wish)
    with lake.open() as catalog, catalog.table(name) as table:
        done = import_into(table, wish)
    report_import(name, wish, done, as_json=as_json)


def import_into(table: Table, wish: ImportRequest) -> ImportDone:
    """Write the rows of a file; raises typed errors."""
    done = ImportDone(table.stats().sequence, table.version)
    if wish.keep_good:
        _write_good(table, wish, done)
    else:
        if wish.file != STANDARD_INPUT:
            _check(table, wish)
        _write(table, wish, done)
    return done


def _check(table: Table, wish: ImportRequest) -> None:
    """Read the whole file without writing; raises SchemaMismatch that lists the wrong rows."""
    refused = RefusedRows(is_bounded=True)
    names = names_of(wish.columns, table.schema)
    engine = open_table_of(table).engine
    path = engine.writer.path

    def prepare(batch: pa.RecordBatch) -> None:
        if names is not None:
            ConditionalWrites(engine).check_upsert(batch, names)
            return
        for _ in path.upsert(batch):
            pass

    with progress_bar("checking") as tell, _opened(table, wish, refused) as rows:
        given = 0
        try:
            for batch in rows.batches:
                _without_refused(batch, prepare, rows, refused, given)
                given += batch.num_rows
                tell(rows.position(), rows.byte_count)
        except TooManyRefused:
            pass
        if refused.count:
            raise refused.failure(rows.source, rows.places_of)


def _write(table: Table, wish: ImportRequest, done: ImportDone) -> None:
    """Write and flush all batches, until one is refused."""
    names = names_of(wish.columns, table.schema)
    with (
        progress_bar("importing") as tell,
        _opened(table, wish, None) as rows,
        _reporting_how_far(table, done),
        naming_the_row(rows.place_of, lambda: done.rows),
    ):
        for batch in rows.batches:
            done.sequence = table.upsert(batch, names)
            _count(done, batch.num_rows, rows, tell)
        done.version = table.flush() if done.rows else table.version


def _write_good(table: Table, wish: ImportRequest, done: ImportDone) -> None:
    """Write and flush the rows that fit, and skip the others."""
    names = names_of(wish.columns, table.schema)

    def write(batch: pa.RecordBatch) -> None:
        done.sequence = table.upsert(batch, names)

    with ExitStack() as stack, progress_bar("importing") as tell:
        refused = RefusedRows(path=wish.refused_file, stack=stack)
        with _opened(table, wish, refused) as rows, _reporting_how_far(table, done):
            given = 0
            for batch in rows.batches:
                written = _without_refused(batch, write, rows, refused, given)
                given += batch.num_rows
                _count(done, written, rows, tell)
            done.version = table.flush() if done.rows else table.version
            done.refused, done.details = refused.count, refused.details(rows.places_of)


def _without_refused(
    batch: pa.RecordBatch,
    attempt: Callable[[pa.RecordBatch], None],
    rows: ImportedRows,
    refused: RefusedRows,
    given: int,
) -> int:
    """Try a batch again without each row that is refused; return how many rows fit.

    `given` counts the rows of the file before the batch.
    """
    gone: list[int] = []
    left = batch
    while left.num_rows:
        try:
            attempt(left)
        except SchemaMismatch as error:
            if error.row is None:
                raise
            row = given + nth_left(error.row, gone)
            # Files without lines have no text to keep.
            text = rows.text_of(row) if refused.keeps_text else b""
            insort(gone, row - given)
            left = _all_but(left, error.row)
            refused.add(error, place=rows.stands_at(row), text=text)
        else:
            break
    return left.num_rows


def _all_but(batch: pa.RecordBatch, row: int) -> pa.RecordBatch:
    return one_batch(pa.Table.from_batches([batch.slice(0, row), batch.slice(row + 1)]))


def _opened(
    table: Table, wish: ImportRequest, refused: RefusedRows | None
) -> AbstractContextManager[ImportedRows]:
    return open_rows(
        wish.file,
        wish.form,
        table.schema,
        batch_rows=wish.batch_rows,
        delimiter=wish.delimiter,
        memory_limit=wish.memory_limit,
        columns=names_of(wish.columns, table.schema),
        refused=refused,
    )


@contextmanager
def _reporting_how_far(table: Table, done: ImportDone) -> Iterator[None]:
    """Add to an interrupt how many rows are in the table."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; {counted(done.rows, 'row')} or more of the file "
            f"{'is' if done.rows == 1 else 'are'} in the table {shown_text(table.name)}",
            hint="Import the file again: writing a row twice is harmless",
        ) from None


def _count(done: ImportDone, rows: int, imported: ImportedRows, tell: ReportProgress) -> None:
    done.rows += rows
    tell(imported.position(), imported.byte_count)


def report_import(name: str, wish: ImportRequest, done: ImportDone, *, as_json: bool) -> None:
    """Print what was written."""
    if as_json:
        facts: dict[str, Json] = {
            "table": name,
            "rows": done.rows,
            "sequence": done.sequence,
            "version": done.version,
        }
        if wish.keep_good:
            facts |= {"refused": done.refused, "details": done.details}
        write_json(facts)
        return
    page = Page()
    page.line(
        f"imported {counted(done.rows, 'row')} into {shown_text(name)}, "
        f"now at version {done.version}"
    )
    if done.refused:
        kept = "" if wish.refused_file is None else f", kept in {shown_text(wish.refused_file)}"
        page.line(f"{counted(done.refused, 'row')} did not fit{kept}:")
        page.lines(Text(f"  {shown_text(line)}", "dim") for line in done.details)


def _check_request(wish: ImportRequest) -> None:
    if wish.refused_file is not None and wish.form not in TEXT_FORMS:
        raise InvalidArgument(
            f"--refused cannot keep rows of {wish.form}, which has no lines",
            hint="Use --keep-good, which lists the rows by number",
        )
    check_delimiter(wish.delimiter, wish.form)


def check_delimiter(delimiter: str | None, form: ImportForm) -> None:
    """Refuse a delimiter that the file cannot have."""
    if delimiter is None:
        return
    if form is not ImportForm.CSV:
        raise InvalidArgument(
            f"--delimiter does not apply to {form}", hint="Leave it out: only CSV has one"
        )
    if len(delimiter) != 1 or not delimiter.isascii():
        raise InvalidArgument(
            f"the delimiter {delimiter!a} is not one ASCII character", hint="Use one such as ;"
        )
