"""`neve apply`: writes the changes of a file into a table, upserts and deletes as one batch.

1. Read the whole file: a batch is all or nothing, so nothing is written before its last row is
   known. Columns of CSV, Parquet and Arrow are read as Arrow; objects of JSON stay as they are,
   because each may have its own columns.
2. Apply the changes, see `neve.engine.applied_changes`. A batch of an application that was applied
   before is acknowledged and skipped.
3. Flush, so that other engines and jobs see the rows and the number of the batch.

Values are written as for `neve import`, see `neve.cli.value_forms`. An order column of CSV that the
table does not have is compared as numbers if all of its cells are numbers, otherwise as text.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

import click
import pyarrow as pa

from neve.catalog.table import Table, open_table_of
from neve.cdc import POSITION_COLUMNS, change_row
from neve.cli.commands import DocumentedCommand
from neve.cli.exit_codes import Interrupted
from neve.cli.import_command import check_delimiter, file_options
from neve.cli.imported_rows import (
    STANDARD_INPUT,
    ImportForm,
    form_of,
    length_of,
    open_rows,
    opened_text,
    source_of,
)
from neve.cli.json_rows import JsonFileRows
from neve.cli.options import (
    AskedLake,
    WholeNumber,
    complete_column,
    complete_file,
    names_of,
    on_a_lake,
    pairs_of,
    table_argument,
)
from neve.cli.progress_bar import ReportProgress, progress_bar
from neve.cli.refused_rows import PlaceOf, naming_the_row
from neve.engine.applied_changes import (
    KNOWN_OPERATIONS,
    AppliedChanges,
    ApplyOutcome,
    ChangeOptions,
    UnknownOperation,
)
from neve.engine.row_input import Rows
from neve.errors import InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import Json, shown_text
from neve.model.display import counted, shown
from neve.model.schema import Column, TableSchema

_BATCH_ROWS: Final = 50_000
_TELL_EACH: Final = 1_000
# How numbers in text are compared, the first that holds all of them.
_NUMBERS: Final = (pa.int64(), pa.decimal128(38, 0), pa.decimal128(38, 12))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRequest:
    """What to apply, and how."""

    file: str
    form: ImportForm
    options: ChangeOptions
    application: tuple[str, int] | None
    is_debezium: bool
    delimiter: str | None
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class ReadChanges:
    """The changes of a file."""

    changes: Rows
    count: int
    place_of: PlaceOf
    """Returns the line or number of a change, counted from 0, as text."""


@click.command(
    "apply",
    cls=DocumentedCommand,
    examples=[
        "neve apply shop.orders changes.csv --order-by lsn",
        "neve apply shop.orders changes.csv --order-by lsn --app-id nightly --batch 20240131",
        "neve apply shop.orders - --debezium --order-by lsn < topic.jsonl",
    ],
)
@table_argument
@click.argument(
    "file",
    metavar="FILE",
    help="A CSV, JSON, Parquet or Arrow file; - reads standard input.",
    shell_complete=complete_file,
)
@click.option(
    "--op",
    default="op",
    show_default=True,
    metavar="COLUMN",
    help="The column with the operation of each change.",
    shell_complete=complete_column,
)
@click.option(
    "--order-by",
    multiple=True,
    metavar="NAME,NAME",
    show_default="the order of the file",
    help="The columns that decide which change of a key is newest; may be repeated.",
    shell_complete=complete_column,
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME=MEANING",
    help="What another operation means: upsert, delete or skip; may be repeated.",
)
@click.option("--debezium", "is_debezium", is_flag=True, help="The file has Debezium envelopes.")
@click.option("--app-id", metavar="NAME", help="The application that counts its batches.")
@click.option(
    "--batch",
    type=WholeNumber(),
    metavar="N",
    help="The number of this batch; with --app-id, it is applied once.",
)
@file_options()
@on_a_lake
def apply(
    *,
    name: str,
    file: str,
    op: str,
    order_by: tuple[str, ...],
    operations: tuple[str, ...],
    is_debezium: bool,
    app_id: str | None,
    batch: int | None,
    form: str | None,
    delimiter: str | None,
    memory_limit: int | None,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Write the changes of a file into a table: upserts and deletes, all or none.

    The file is CSV, JSON, Parquet or Arrow, as for `neve import`, and is one batch. One of its
    columns is the operation: c, r, u, i, insert, update, upsert, +I and +U write the row, d,
    delete and -D delete it, and -U is skipped. A delete needs only the key. Of several changes of
    one key the one with the greatest --order-by counts, otherwise the last. Columns for --op and
    --order-by that the table does not have are not stored.

    With --app-id and --batch the number is committed together with the rows. A batch that was
    applied before is skipped, and the exit code is 0; a lower number is refused.

    With --debezium each line is an envelope with op, before, after and source. The position of a
    change in its source is available for --order-by: lsn, scn, file, pos, ts_ms and others.

    If a change does not fit, nothing is written and the exit code is 2.
    """
    request = ApplyRequest(
        file=file,
        form=_form(file, form, is_debezium=is_debezium),
        options=ChangeOptions(op=op, operations=pairs_of(operations, what="operation")),
        application=_application(app_id, batch),
        is_debezium=is_debezium,
        delimiter=delimiter,
        memory_limit=memory_limit,
    )
    check_delimiter(delimiter, request.form)
    with lake.open() as catalog, catalog.table(name) as table:
        ordering = names_of(order_by, table.schema) or ()
        request = replace(request, options=replace(request.options, order_by=tuple(ordering)))
        read = _read(table, request)
        with _operations_by_place(read.place_of), naming_the_row(read.place_of, lambda: 0):
            changes = AppliedChanges(open_table_of(table).engine)
            outcome = changes.apply(read.changes, request.options, request.application)
        version = table.flush()
    _report(name, request, outcome, version=version, count=read.count, as_json=as_json)


def _form(file: str, form: str | None, *, is_debezium: bool) -> ImportForm:
    if not is_debezium:
        return form_of(file) if form is None else ImportForm(form)
    if form not in (None, ImportForm.JSONL):
        raise InvalidArgument(
            f"--debezium does not read {form}", hint="Use --format jsonl, or leave it out"
        )
    return ImportForm.JSONL


def _application(app_id: str | None, batch: int | None) -> tuple[str, int] | None:
    if app_id is None and batch is None:
        return None
    if app_id is None or batch is None:
        raise InvalidArgument(
            "--app-id and --batch belong together", hint="Use both, or neither of them"
        )
    return app_id, batch


def _read(table: Table, request: ApplyRequest) -> ReadChanges:
    """Read all changes of the file; none of a named file whose batch was applied before."""
    if request.application is not None and request.file != STANDARD_INPUT:
        application, batch = request.application
        last = table.last_batch(application)
        if last is not None and batch <= last:
            return ReadChanges([], 0, lambda _: request.file)
    try:
        with progress_bar("reading") as report:
            read = _read_json if request.form is ImportForm.JSONL else _read_arrow
            return read(table.schema, request, report)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; nothing was written", hint="Apply the file again") from None


def _read_json(schema: TableSchema, request: ApplyRequest, report: ReportProgress) -> ReadChanges:
    reader = JsonFileRows(schema, source=source_of(request.file))
    positions = (*POSITION_COLUMNS, *request.options.order_by) if request.is_debezium else ()
    rows: list[Mapping[str, object]] = []
    lines: list[int] = []
    with ExitStack() as stack:
        raw, stream = opened_text(request.file, request.form, stack)
        byte_count = length_of(raw)
        for line, content in reader.texts(stream):
            text = reader.text(content, line)
            if request.is_debezium:
                (place,) = reader.places_of([line])
                row: Mapping[str, object] | None = change_row(
                    None, text, place=place, op=request.options.op, position_columns=positions
                )
            else:
                row = reader.members(text, line=line)
            if row is not None:
                rows.append(row)
                lines.append(line)
            if len(lines) % _TELL_EACH == 0 and byte_count is not None:
                report(raw.tell(), byte_count)
    return ReadChanges(rows, len(rows), lambda row: reader.places_of([lines[row]])[0])


def _read_arrow(schema: TableSchema, request: ApplyRequest, report: ReportProgress) -> ReadChanges:
    options = request.options
    foreign = [
        name for name in dict.fromkeys((options.op, *options.order_by)) if name not in schema
    ]
    batches: list[pa.RecordBatch] = []
    with open_rows(
        request.file,
        request.form,
        _schema_of_cells(schema, foreign),
        batch_rows=_BATCH_ROWS,
        delimiter=request.delimiter,
        memory_limit=request.memory_limit,
    ) as rows:
        for batch in rows.batches:
            batches.append(batch)
            report(rows.position(), rows.byte_count)
    if not batches:
        return ReadChanges([], 0, rows.place_of)
    table = pa.Table.from_batches(batches)
    if request.form is ImportForm.CSV:
        for name in foreign:
            if name != options.op and name in table.column_names:
                place = table.column_names.index(name)
                table = table.set_column(place, name, _compared(table.column(name)))
    return ReadChanges(table, table.num_rows, rows.place_of)


def _schema_of_cells(schema: TableSchema, foreign: list[str]) -> TableSchema:
    """Return a schema for CSV: deletes may lack all columns but the key, and others are text."""
    columns = [
        column
        if column in schema.key_columns
        else replace(column, nullable=True, initial_default=None, write_default=None)
        for column in schema.columns
    ]
    last = schema.last_field_id
    for number, name in enumerate(foreign, start=1):
        columns.append(Column(field_id=last + number, name=name, type=pa.string(), nullable=True))
    return TableSchema(
        columns=tuple(columns),
        primary_key=schema.primary_key,
        schema_id=schema.schema_id,
        last_field_id=last + len(foreign),
    )


def _compared(
    texts: "pa.ChunkedArray[pa.StringScalar]",
) -> "pa.ChunkedArray[pa.Scalar[pa.DataType]]":
    """Return cells as numbers if all of them are, otherwise as they are."""
    for number in _NUMBERS:
        try:
            return texts.cast(number)
        except pa.ArrowException:
            continue
    return texts


@contextmanager
def _operations_by_place(place_of: Callable[[int], str]) -> Iterator[None]:
    """Word an unknown operation with its place in the file."""
    try:
        yield
    except UnknownOperation as error:
        more = f", and so are {error.more:,} more" if error.more else ""
        name = error.operation if isinstance(error.operation, str) and error.operation else "NAME"
        raise InvalidArgument(
            f"{place_of(error.row)}: operation {shown(error.operation)} is unknown{more}",
            hint=f"{KNOWN_OPERATIONS}; --operation {name}=skip, upsert or delete adds one. Nothing "
            "was written",
        ) from None


def _report(
    name: str,
    request: ApplyRequest,
    outcome: ApplyOutcome,
    *,
    version: int,
    count: int,
    as_json: bool,
) -> None:
    if as_json:
        facts: dict[str, Json] = {
            "table": name,
            "changes": count,
            "written": outcome.rows_written,
            "deleted": outcome.rows_deleted,
            "ignored": outcome.ignored,
            "tied": outcome.tied,
            "sequence": outcome.sequence,
            "version": version,
        }
        if request.application is not None:
            app_id, batch = request.application
            facts |= {"app_id": app_id, "batch": batch, "applied_before": outcome.is_repeat}
        write_json(facts)
        return
    page = Page()
    if outcome.is_repeat:
        assert request.application is not None, "only batches of an application are repeated"
        app_id, batch = request.application
        page.line(
            f"batch {batch:,} of {shown_text(app_id)} was applied before; nothing was written to "
            f"{shown_text(name)}, at version {version}"
        )
        return
    others = f"{outcome.ignored:,} too old, " if outcome.ignored else ""
    if outcome.tied:
        others += f"{outcome.tied:,} replaced by one with the same order, "
    page.line(
        f"applied {counted(count, 'change')} to {shown_text(name)}: "
        f"{counted(outcome.rows_written, 'row')} written, {outcome.rows_deleted:,} deleted, "
        f"{others}"
        f"now at version {version}"
    )
