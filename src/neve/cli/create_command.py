"""`neve create`: makes a table out of columns that are written down, or of those that a file has.

Columns are written as `name:type`, with Iceberg's names of types, and `!` after one that is never
NULL:

    neve create shop.orders id:long customer:string 'amount:decimal(9,2)!' --key id --lake ./lake
    neve create shop.orders --from orders.csv --key id 'amount:decimal(9,2)'
"""

from dataclasses import dataclass

import click
import pyarrow as pa

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table_name import similar_name_hint
from neve.cli.commands import DocumentedCommand
from neve.cli.create_command import infer_schema
from neve.cli.import_command import ImportWish, import_into, tell_import
from neve.cli.imported_rows import STANDARD_INPUT, ImportForm, delimiter_of, form_of
from neve.cli.number_type import memory_option
from neve.cli.options import (
    column_of,
    complete_file,
    complete_new_column,
    on_a_lake,
    open_lake,
    pairs_of,
)
from neve.cli.table_words import table_json
from neve.errors import AlreadyExists, InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import shown_text
from neve.model.arrow_types import ArrowField
from neve.model.display import counted, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The table to be."""

    name: str
    schema: pa.Schema
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
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
    help="Its columns, such as id:long, 'amount:decimal(9,2)', ts:timestamptz, or 'day:date!'.",
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
    help="Take the columns of this CSV, JSON, Parquet or Arrow file.",
    shell_complete=complete_file,
)
@click.option("--load", is_flag=True, help="With --from: write the rows of the file, too.")
@click.option(
    "--format",
    "form",
    type=click.Choice([form.value for form in ImportForm]),
    show_default="as FILE is named",
    help="With --from: what the file is.",
)
@click.option(
    "--delimiter",
    metavar="CHARACTER",
    show_default="a comma, in .tsv a tab",
    help="With --from: what separates the cells of CSV.",
)
@memory_option
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
    help="Column of the key, from the first on, that other engines are asked to sort by; may be "
    "repeated.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the table; may be repeated.",
)
@click.option(
    "--exists-ok", is_flag=True, help="Accept a table that exists and has the same definition."
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
    properties: tuple[str, ...],
    exists_ok: bool,
    lake: str,
    storage_options: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make a table, and its namespace and the warehouse when missing.

    A column is name:type, with Iceberg's names of types: boolean, int, long, float, double,
    decimal(p,s), date, time, timestamp, timestamptz, string, uuid, binary, fixed(n), list<type>,
    map<type, type>, struct<name: type, ...>. With ! after the type it is never NULL; columns of
    the key never are.

    With --from, the columns are those of a file. Parquet and Arrow files say the types; for CSV and
    JSON they are inferred from the first rows. A COLUMN:TYPE that is also written replaces
    the type of that column.
    """
    source = _source_of(file, form, delimiter, memory_limit, load=load)
    wish = _Wish(
        name=name,
        schema=_schema_of(columns, source),
        primary_key=primary_key,
        partition_by=partition_by,
        sort_by=sort_by,
        properties=pairs_of(properties, what="property"),
    )
    with open_lake(lake, storage_options, create=True) as catalog:
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
                tell_import(name, source, done, as_json=False)
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
) -> ImportWish | None:
    """Return the file that columns are taken from, if there is one; raises InvalidArgument."""
    if file is None:
        if load or (form, delimiter, memory_limit) != (None, None, None):
            raise InvalidArgument(
                "--load, --format, --delimiter and --memory-limit belong to --from",
                hint="Name a file: --from FILE",
            )
        return None
    if file == STANDARD_INPUT and load:
        raise InvalidArgument(
            "standard input can be read only once",
            hint="Name a file, or write the rows with `neve import TABLE -`",
        )
    return ImportWish(
        file=file,
        form=form_of(file) if form is None else ImportForm(form),
        delimiter=delimiter,
        memory_limit=memory_limit,
    )


def _make(catalog: KVCatalog, wish: _Wish, *, exists_ok: bool) -> bool:
    """Make the table; returns whether it is new, raises AlreadyExists."""

    def make(*, exists_ok: bool) -> None:
        catalog.create_table(
            wish.name,
            wish.schema,
            wish.primary_key,
            partition_by=wish.partition_by,
            sort_by=wish.sort_by,
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


def _schema_of(columns: tuple[str, ...], source: ImportWish | None) -> pa.Schema:
    given = [_field_of(text) for text in columns]
    if source is None:
        if not given:
            raise InvalidArgument(
                "the table has no columns", hint="Name them, such as id:long, or --from FILE"
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
