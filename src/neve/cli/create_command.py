"""`neve create`: creates a table with the given columns, or with those of a file.

A column is `name:type`, with the type names of Iceberg, and `!` after the type if it is never NULL:

    neve create shop.orders id:long customer:string 'amount:decimal(9,2)!' --key id --lake ./lake
    neve create shop.orders --from orders.csv --key id 'amount:decimal(9,2)'

The columns of a file are inferred:

    parquet, arrow   the file's own schema
    csv              the first line has the names; the cells in the first MiB show the types
    json             the members of the first 1,000 rows, in order of appearance

A text column is a date, timestamp or uuid if every value is written like one. A number that begins
with zeros, or has more digits than its type holds, is text, so that nothing is lost. A column with
only NULL is text, too.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import BinaryIO, Final, cast

import click
import pyarrow as pa

from neve.catalog.lake import Lake
from neve.cli.commands import DocumentedCommand
from neve.cli.import_command import ImportRequest, file_options, import_into, report_import
from neve.cli.imported_rows import (
    STANDARD_INPUT,
    DecodedFile,
    ImportForm,
    delimiter_of,
    form_of,
    opened_text,
    source_of,
)
from neve.cli.json_rows import JsonFileRows
from neve.cli.options import (
    AskedLake,
    column_of,
    complete_file,
    complete_new_column,
    on_a_lake,
    pairs_of,
)
from neve.cli.table_report import table_json
from neve.cli.value_forms import parse_json
from neve.errors import AlreadyExists, InvalidArgument, LimitExceeded, SchemaMismatch
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import shown_text
from neve.model.arrow_types import ArrowField
from neve.model.display import counted, shown
from neve.model.schema import TableSchema
from neve.model.suggestions import similar_name_hint

_SAMPLE_BYTES: Final = 1 << 20
_SAMPLE_ROWS: Final = 1_000
_COLUMNS_MAX: Final = 10_000
_DAY: Final = r"\d{4}-\d\d-\d\d"
_MOMENT: Final = _DAY + r"[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
# The first form that fits all values wins.
_SPELLED: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (_DAY, pa.date32()),
    (_MOMENT, pa.timestamp("us")),
    (_MOMENT + r"(Z|[+-]\d\d:?\d\d)", pa.timestamp("us", tz="UTC")),
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", pa.uuid()),
)
_CELLS: Final[tuple[tuple[str, pa.DataType], ...]] = (
    (r"(?i:true|false)", pa.bool_()),
    (r"[+-]?(0|[1-9]\d{0,17})", pa.int64()),
    (r"[+-]?((0|[1-9]\d{0,14})(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", pa.float64()),
    *_SPELLED,
)
# Rows are only cut out of the file, so any schema will do.
_ANY_TABLE: Final = TableSchema.from_arrow(
    pa.schema([pa.field("id", pa.int64(), nullable=False)]), primary_key=["id"]
)


def infer_schema(
    path: str, form: ImportForm, *, delimiter: str, memory_limit: int | None
) -> pa.Schema:
    """Return the columns of a file; raises typed errors."""
    with ExitStack() as stack:
        raw, text = opened_text(path, form, stack)
        source = source_of(path)
        match form:
            case ImportForm.CSV:
                fields = _csv_fields(text, source, delimiter)
            case ImportForm.JSONL:
                fields = _json_fields(text, source)
            case ImportForm.PARQUET | ImportForm.ARROW:
                decoded = DecodedFile(
                    raw, form, source=source, memory_limit=memory_limit, stack=stack
                )
                fields = [
                    # Metadata of other writers is not kept.
                    pa.field(each.name, _without_null(each.type), nullable=each.nullable)
                    for each in decoded.schema()
                ]
    if not fields:
        raise InvalidArgument(f"{source} has no columns", hint="Name the columns, such as id:long")
    return pa.schema(fields)


def _csv_fields(stream: BinaryIO, source: str, delimiter: str) -> list[ArrowField]:
    sample = stream.read(_SAMPLE_BYTES)
    if len(sample) == _SAMPLE_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    try:
        text = sample.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InvalidArgument(
            f"{source} cannot be read as CSV: {error}",
            hint="Check the delimiter, and that the file is UTF-8 and has a header line",
        ) from None
    if not rows:
        raise InvalidArgument(f"{source} is empty", hint="Its first line names columns")
    if len(rows[0]) > _COLUMNS_MAX:
        raise LimitExceeded(
            f"the first line of {source} names {len(rows[0]):,} columns",
            limit=_COLUMNS_MAX,
            actual=len(rows[0]),
            hint="Check the delimiter, and that the file has a header line",
        )
    names, cells = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    columns = zip(*cells, strict=True) if cells else ([] for _ in names)
    return [
        pa.field(name, _text_type([cell for cell in column if cell], _CELLS))
        for name, column in zip(names, columns, strict=True)
    ]


def _json_fields(stream: BinaryIO, source: str) -> list[ArrowField]:
    columns: dict[str, list[object]] = {}
    texts = JsonFileRows(_ANY_TABLE, source=source).texts(stream)
    for number, text in islice(texts, _SAMPLE_ROWS):
        try:
            members = parse_json(text.decode())
        except ValueError as error:
            raise InvalidArgument(f"{source}, row {number:,}: not JSON: {error}") from None
        if not isinstance(members, Mapping):
            raise InvalidArgument(f"{source}, row {number:,}: not a JSON object")
        for name, value in members.items():
            columns.setdefault(name, []).append(value)
    return [pa.field(name, _json_type(name, values)) for name, values in columns.items()]


def _json_type(name: str, values: Sequence[object]) -> pa.DataType:
    known = [_plain(value) for value in values if value is not None]
    texts = [value for value in known if isinstance(value, str)]
    if len(texts) == len(known):
        return _text_type(texts, _SPELLED)
    try:
        return _without_null(pa.array(cast("list[bool]", known)).type)
    except (pa.ArrowException, OverflowError):
        raise SchemaMismatch(
            f"the values of column {shown(name)} have no type in common",
            column=name,
            hint=f"Write its type: {name}:string",
        ) from None


def _plain(value: object) -> object:
    """Return decimals as floats, also inside: columns of fractions are double by default."""
    match value:
        case Decimal():
            return float(value)
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value


def _without_null(arrow_type: pa.DataType) -> pa.DataType:
    """Replace the null type by text, also in nested types."""
    if pa.types.is_null(arrow_type):
        return pa.string()
    if pa.types.is_list(arrow_type):
        return pa.list_(_without_null(arrow_type.value_type))
    if pa.types.is_struct(arrow_type):
        return pa.struct([(each.name, _without_null(each.type)) for each in arrow_type.fields])
    return arrow_type


def _text_type(texts: Iterable[str], forms: Sequence[tuple[str, pa.DataType]]) -> pa.DataType:
    known = [*texts]
    for pattern, arrow_type in forms if known else ():
        if all(re.fullmatch(pattern, text, re.ASCII) for text in known):
            return arrow_type
    return pa.string()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The table to create."""

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    order_by: tuple[str, ...]
    keep_deletes: str | None
    merge: dict[str, str]
    ttl: tuple[str, str] | None
    properties: dict[str, str]


@click.command(
    cls=DocumentedCommand,
    examples=[
        (
            "neve create shop.orders id:long customer:string 'amount:decimal(9,2)' ts:timestamptz "
            "--key id"
        ),
        (
            "neve create shop.visits name:string day:date 'pages:int!' --key name --key day "
            "--partition-by 'month(day)' --property owner=web"
        ),
        "neve create shop.sales 'amount:decimal(9,2)' --from orders.jsonl --key id --load",
    ],
)
@click.argument("name", metavar="TABLE", help="The new table, as namespace.table.")
@click.argument(
    "columns",
    nargs=-1,
    metavar="[COLUMN:TYPE]...",
    help="The columns, such as id:long, 'amount:decimal(9,2)', ts:timestamptz, or 'day:date!'.",
)
@click.option(
    "--key",
    "primary_key",
    multiple=True,
    required=True,
    metavar="COLUMN",
    help="Column of the primary key; may be repeated, in key order.",
    shell_complete=complete_new_column,
)
@click.option(
    "--from",
    "file",
    metavar="FILE",
    help="Use the columns of this CSV, JSON, Parquet or Arrow file.",
    shell_complete=complete_file,
)
@click.option("--load", is_flag=True, help="With --from: also write the rows of the file.")
@file_options("With --from: ")
@click.option(
    "--partition-by",
    multiple=True,
    metavar="FIELD",
    help="Partition field such as day(ts) or bucket(16, id); may be repeated.",
)
@click.option(
    "--sort-by",
    multiple=True,
    metavar="COLUMN",
    help="Leading column of the key that other engines should sort by; may be repeated.",
)
@click.option(
    "--order-by",
    multiple=True,
    metavar="COLUMN",
    help="The change with the greatest value of this column wins; may be repeated.",
)
@click.option(
    "--keep-deletes",
    metavar="DURATION",
    help="With --order-by: how long deletes are remembered.  [default: (7 days)]",
)
@click.option(
    "--merge",
    multiple=True,
    metavar="COLUMN=FUNCTION",
    help="How new values are folded into existing ones, such as total=sum; may be repeated.",
)
@click.option(
    "--ttl",
    metavar="COLUMN=DURATION",
    help="Rows expire some time after a timestamp column, such as 'ts=90 days'.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the table; may be repeated.",
)
@click.option(
    "--exists-ok", is_flag=True, help="Accept an existing table with the same definition."
)
@on_a_lake
def create(
    *,
    name: str,
    columns: tuple[str, ...],
    primary_key: tuple[str, ...],
    file: str | None,
    load: bool,
    form: str | None,
    delimiter: str | None,
    memory_limit: int | None,
    partition_by: tuple[str, ...],
    sort_by: tuple[str, ...],
    order_by: tuple[str, ...],
    keep_deletes: str | None,
    merge: tuple[str, ...],
    ttl: str | None,
    properties: tuple[str, ...],
    exists_ok: bool,
    lake: AskedLake,
    as_json: bool,
) -> None:
    """Create a table, and its namespace and the lake if they do not exist.

    A column is name:type, with the type names of Iceberg: boolean, int, long, float, double,
    decimal(p,s), date, time, timestamp, timestamptz, string, uuid, binary, fixed(n), list<type>,
    map<type, type>, struct<name: type, ...>. With ! after the type it is never NULL; key
    columns never are.

    With --from, the columns are those of a file. Parquet and Arrow files have types; for CSV and
    JSON they are inferred from the first rows. A COLUMN:TYPE replaces the type of that column.
    """
    source = _source_of(file, form, delimiter, memory_limit, load=load)
    wish = _Wish(
        name=name,
        schema=_schema_of(columns, source),
        primary_key=primary_key,
        partition_by=partition_by,
        sort_by=sort_by,
        order_by=order_by,
        keep_deletes=keep_deletes,
        merge=pairs_of(merge, what="merge"),
        ttl=None if ttl is None else next(iter(pairs_of((ttl,), what="ttl").items())),
        properties=pairs_of(properties, what="property"),
    )
    with lake.open(create=True) as catalog:
        is_new = _make(catalog, wish, exists_ok=exists_ok)
        table = catalog.load_table(name)
        if not as_json:
            words = f"made {shown_text(table.name)}, {table.table_id}"
            known = f"{shown_text(table.name)} exists with this definition, {table.table_id}"
            Page().line(words if is_new else known)
        if source is not None and load:
            with catalog.table(name) as opened:
                done = import_into(opened, source)
            if not as_json:
                report_import(name, source, done, as_json=False)
        elif source is not None and not as_json:
            many = counted(len(wish.schema), "column")
            rest = f"`neve import {shown_text(name)} {shown_text(source.file)}` writes its rows"
            Page().line(f"{many} from {shown_text(source.file)}; {rest}")
        if as_json:
            write_json({**table_json(catalog.load_table(name), 0), "created": is_new})


def _source_of(
    file: str | None,
    form: str | None,
    delimiter: str | None,
    memory_limit: int | None,
    *,
    load: bool,
) -> ImportRequest | None:
    """Return the file to take columns from, if there is one; raises InvalidArgument."""
    if file is None:
        if load or (form, delimiter, memory_limit) != (None, None, None):
            raise InvalidArgument(
                "--load, --format, --delimiter and --memory-limit need --from",
                hint="Add --from FILE",
            )
        return None
    if file == STANDARD_INPUT and load:
        raise InvalidArgument(
            "standard input can be read only once",
            hint="Name a file, or write the rows with `neve import TABLE -`",
        )
    return ImportRequest(
        file=file,
        form=form_of(file) if form is None else ImportForm(form),
        delimiter=delimiter,
        memory_limit=memory_limit,
    )


def _make(catalog: Lake, wish: _Wish, *, exists_ok: bool) -> bool:
    """Create the table; returns whether it is new, raises AlreadyExists."""

    def make(*, exists_ok: bool) -> None:
        catalog.create_table(
            wish.name,
            wish.schema,
            wish.primary_key,
            partition_by=wish.partition_by,
            sort_by=wish.sort_by,
            order_by=wish.order_by,
            keep_deletes=wish.keep_deletes,
            merge=wish.merge,
            ttl=wish.ttl,
            properties=wish.properties,
            exists_ok=exists_ok,
        ).close()

    try:
        make(exists_ok=False)
    except AlreadyExists as taken:
        if not catalog.table_exists(wish.name):
            raise
        refusal, way_out = taken, "--exists-ok accepts it if it has the same definition"
    else:
        return True
    if exists_ok:
        try:
            make(exists_ok=True)
        except AlreadyExists as other:
            refusal, way_out = other, "`neve evolve` changes it"
        else:
            return False
    refusal.hint = f"`neve describe {wish.name}` shows it; {way_out}"
    raise refusal


def _schema_of(columns: tuple[str, ...], source: ImportRequest | None) -> pa.Schema:
    given = [_field_of(text) for text in columns]
    if source is None:
        if not given:
            raise InvalidArgument(
                "the table has no columns", hint="Name them, such as id:long, or use --from FILE"
            )
        return pa.schema(given)
    found = infer_schema(
        source.file,
        source.form,
        delimiter=delimiter_of(source.file, source.delimiter),
        memory_limit=source.memory_limit,
    )
    replaced = {field.name: field for field in given}
    for name in replaced:
        if name not in found.names:
            raise InvalidArgument(
                f"{source.file} has no column {shown(name)}",
                hint=similar_name_hint(name, found.names)
                or f"It has {', '.join(map(shown, found.names[:20]))}",
            )
    return pa.schema([replaced.get(field.name, field) for field in found])


def _field_of(text: str) -> ArrowField:
    column = column_of(text)
    return pa.field(column.name, column.type, nullable=column.nullable)
