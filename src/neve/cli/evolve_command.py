"""`neve evolve TABLE …`: one subcommand for each change of a table's definition.

    neve evolve shop.orders add 'note:string' --default '-' --lake ./lake
    neve evolve shop.orders rename address.zip postcode
    neve evolve shop.orders move note --after id
    neve evolve shop.orders partition-by 'day(ts)' 'bucket(16, id)'

Each commits one Version, even while a writer is open: the writer sees the change within seconds,
and rows it writes until then fit the new schema as existing rows do.
"""

from collections.abc import Callable
from functools import wraps
from typing import Final

import click
import pyarrow as pa

from neve.catalog.evolution import Evolution
from neve.cli.commands import DocumentedGroup
from neve.cli.options import (
    AskedLake,
    column_of,
    complete_column,
    on_a_lake,
    pairs_of,
    table_argument,
)
from neve.cli.value_forms import text_reader
from neve.errors import InvalidArgument
from neve.inspect.page import Page, write_json
from neve.inspect.shown_text import shown_text
from neve.model.arrow_types import normalize_type, type_name
from neve.model.display import counted, shown
from neve.model.scalar_values import Unfit

Change = Callable[[Evolution], None]

_SETTINGS: Final = {"help_option_names": ["-h", "--help"]}
# A column to sort by begins with - if it descends, and any letter may follow.
_DESCENDING: Final = {"help_option_names": ["--help"], "ignore_unknown_options": True}


def _committed(command: Callable[..., Change]) -> Callable[..., None]:
    """Make a command of a function that returns a change: it commits the change."""

    @on_a_lake
    @click.pass_obj
    @wraps(command)
    def run(name: str, /, *, lake: AskedLake, as_json: bool, **given: object) -> None:
        _evolve(name, command(**given), lake, as_json=as_json)

    return run


@click.group(cls=DocumentedGroup, context_settings=_SETTINGS)
@table_argument
@click.pass_context
def evolve(context: click.Context, name: str) -> None:
    """Change the columns, partitions or sort order of a table; each command commits one version.

    Dotted names are nested fields: address.zip in a struct, tags.element in a list, prices.value
    in a map. No file is rewritten.
    """
    context.obj = name


@evolve.command(
    examples=[
        "neve evolve shop.orders add note:string",
        "neve evolve shop.orders add 'state:string!' --default new",
    ]
)
@click.argument(
    "column", metavar="COLUMN:TYPE", help="The new column, or address.zip:int in a struct."
)
@click.option("--default", metavar="VALUE", help="Its value in rows that do not have it.")
@_committed
def add(*, column: str, default: str | None) -> Change:
    """Add a column at the end, or a field to a struct.

    With ! after the type it is never NULL, and needs a default. Types are those of `neve create`.
    """
    asked = column_of(column)
    wanted = normalize_type(asked.type, column=asked.name)
    value = None if default is None else _read_default(asked.name, wanted, default)

    def change(e: Evolution) -> None:
        e.add_column(asked.name, wanted, default=value, nullable=asked.nullable)

    return change


@evolve.command(examples=["neve evolve shop.orders drop customer"])
@click.argument(
    "columns",
    nargs=-1,
    required=True,
    metavar="COLUMN...",
    help="Columns, or nested fields.",
    shell_complete=complete_column,
)
@_committed
def drop(*, columns: tuple[str, ...]) -> Change:
    """Drop columns or fields; existing versions still have them."""

    def change(e: Evolution) -> None:
        for column in columns:
            e.drop_column(column)

    return change


@evolve.command(examples=["neve evolve shop.orders rename customer buyer"])
@click.argument(
    "column", metavar="COLUMN", help="A column, or a nested field.", shell_complete=complete_column
)
@click.argument("new", metavar="NEW", help="Its new name; for a field, only the last part.")
@_committed
def rename(*, column: str, new: str) -> Change:
    """Rename a column or a field."""
    return lambda e: e.rename_column(column, new)


@evolve.command(examples=["neve evolve shop.orders move customer --after amount"])
@click.argument(
    "column", metavar="COLUMN", help="A column, or a nested field.", shell_complete=complete_column
)
@click.option("--first", is_flag=True, help="Before all others.")
@click.option(
    "--after", metavar="COLUMN", help="Right after this one.", shell_complete=complete_column
)
@click.option(
    "--before", metavar="COLUMN", help="Right before this one.", shell_complete=complete_column
)
@_committed
def move(*, column: str, first: bool, after: str | None, before: str | None) -> Change:
    """Move a column within the table, or a field within its struct."""
    places = [first, after is not None, before is not None].count(True)
    if places != 1:
        raise InvalidArgument(
            f"{counted(places, 'place')} given for the column, not one",
            hint="Use one of --first, --after and --before",
        )

    def change(e: Evolution) -> None:
        e.move_column(column, first=first, after=after, before=before)

    return change


@evolve.command(examples=["neve evolve shop.orders widen 'amount:decimal(12,2)'"])
@click.argument(
    "column",
    metavar="COLUMN:TYPE",
    help="A column or field, and its new type.",
    shell_complete=complete_column,
)
@_committed
def widen(*, column: str) -> Change:
    """Widen the type of a column or field: int to long, float to double, decimal to more digits."""
    asked = column_of(column)
    if not asked.nullable:
        raise InvalidArgument(
            f"the column {column!a} cannot become required",
            hint="Leave out the !: rows with NULL may exist",
        )
    return lambda e: e.widen_column(asked.name, asked.type)


@evolve.command(
    examples=[
        "neve evolve shop.orders default customer guest",
        "neve evolve shop.orders default customer --none",
    ]
)
@click.argument(
    "column", metavar="COLUMN", help="A column, or a nested field.", shell_complete=complete_column
)
@click.argument("value", required=False, metavar="[VALUE]", help="The default, as text.")
@click.option("--none", "is_none", is_flag=True, help="Remove the default.")
@_committed
def default(*, column: str, value: str | None, is_none: bool) -> Change:
    """Set the value of a column in new rows that leave it out; existing rows do not change."""
    if (value is None) != is_none:
        raise InvalidArgument(
            "both a default and --none are given" if is_none else "no default is given",
            hint="Write a value, or --none",
        )

    def change(e: Evolution) -> None:
        known = None if value is None else e.schema.column(column).type
        e.set_default(column, None if known is None else _read_default(column, known, str(value)))

    return change


@evolve.command(examples=["neve evolve shop.orders nullable customer"])
@click.argument(
    "column", metavar="COLUMN", help="A column, or a nested field.", shell_complete=complete_column
)
@_committed
def nullable(*, column: str) -> Change:
    """Allow NULL in a required column or field."""
    return lambda e: e.make_nullable(column)


@evolve.command(
    "partition-by",
    examples=[
        "neve evolve shop.orders partition-by 'day(ts)' 'bucket(16, id)'",
        "neve evolve shop.orders partition-by --none",
    ],
)
@click.argument("fields", nargs=-1, metavar="[FIELD]...", help="Partition fields, such as day(ts).")
@click.option("--none", "is_none", is_flag=True, help="Do not partition new rows.")
@_committed
def partition_by(*, fields: tuple[str, ...], is_none: bool) -> Change:
    """Partition new rows by fields such as day(ts) or bucket(16, id); existing files stay."""
    _check_given(fields, is_none=is_none)
    return lambda e: e.set_partition_by(fields)


@evolve.command(
    "sort-by",
    context_settings=_DESCENDING,
    examples=["neve evolve shop.orders sort-by id"],
)
@click.argument(
    "columns",
    nargs=-1,
    metavar="[COLUMN]...",
    help="The first columns of the key, in its order.",
    shell_complete=complete_column,
)
@click.option("--none", "is_none", is_flag=True, help="Declare no order.")
@_committed
def sort_by(*, columns: tuple[str, ...], is_none: bool) -> Change:
    """Declare the order of the key to other engines that write; neve's files have it anyway."""
    _check_given(columns, is_none=is_none)
    return lambda e: e.set_sort_by(columns)


@evolve.command(
    "order-by",
    examples=[
        "neve evolve shop.orders order-by ts",
        "neve evolve shop.orders order-by --none",
    ],
)
@click.argument(
    "columns",
    nargs=-1,
    metavar="[COLUMN]...",
    help="The columns whose greatest values win.",
    shell_complete=complete_column,
)
@click.option("--none", "is_none", is_flag=True, help="Let the last change win.")
@click.option(
    "--keep-deletes", metavar="DURATION", help="How long deletes are remembered, such as '7 days'."
)
@_committed
def order_by(*, columns: tuple[str, ...], is_none: bool, keep_deletes: str | None) -> Change:
    """Let the change with the greatest values win, whenever it arrives."""
    _check_given(columns, is_none=is_none)
    return lambda e: e.set_order_by(columns, keep_deletes=keep_deletes)


@evolve.command(
    examples=["neve evolve shop.orders merge amount=sum", "neve evolve shop.orders merge --none"]
)
@click.argument(
    "functions",
    nargs=-1,
    metavar="[COLUMN=FUNCTION]...",
    help="last, last_non_null, first, sum, min, max, bool_and or bool_or for a column.",
)
@click.option("--none", "is_none", is_flag=True, help="Let every column keep its last value.")
@_committed
def merge(*, functions: tuple[str, ...], is_none: bool) -> Change:
    """Set how new values are folded into existing ones; other columns keep the last value."""
    _check_given(functions, is_none=is_none)
    asked = pairs_of(functions, what="merge")
    return lambda e: e.set_merge(asked)


@evolve.command(
    examples=["neve evolve shop.orders ttl ts '90 days'", "neve evolve shop.orders ttl --none"]
)
@click.argument("given", nargs=-1, metavar="[COLUMN DURATION]", help="Such as: ts '90 days'.")
@click.option("--none", "is_none", is_flag=True, help="Let rows live forever.")
@_committed
def ttl(*, given: tuple[str, ...], is_none: bool) -> Change:
    """Let rows expire some time after a timestamp column.

    Reads leave expired rows out at once. The writer of the table removes them from time to time,
    and so does `neve compact`.
    """
    _check_given(given, is_none=is_none)
    if given and len(given) != len(("column", "duration")):
        raise InvalidArgument(
            f"{counted(len(given), 'word')} given",
            hint="Write a column and a duration: ts '90 days'",
        )
    asked = (given[0], given[1]) if given else None
    return lambda e: e.set_ttl(asked)


def _check_given(words: tuple[str, ...], *, is_none: bool) -> None:
    if bool(words) == is_none:
        raise InvalidArgument(
            "both fields and --none are given" if is_none else "no fields are given",
            hint="Write fields, or --none alone",
        )


def _read_default(column: str, wanted: pa.DataType, text: str) -> object:
    """Read a default in the text form of its column; raises InvalidArgument."""
    try:
        return text_reader(wanted)(text)
    except Unfit as unfit:
        raise InvalidArgument(
            f"the default of column {shown(column)} is not {type_name(wanted)}: {unfit.reason}",
            hint="Write a value of that type",
        ) from None


def _evolve(name: str, change: Change, lake: AskedLake, *, as_json: bool) -> None:
    with lake.open() as catalog:
        table = catalog.load_table(name)
        with table.evolve() as e:
            before = table.version
            change(e)
        is_changed = e.version is not None and e.version > before
        version, schema_id, spec_id = table.version, table.schema.schema_id, table.spec.spec_id
    if as_json:
        write_json(
            {
                "table": table.name,
                "changed": is_changed,
                "version": version,
                "schema_version": schema_id,
                "spec_id": spec_id,
            }
        )
    elif is_changed:
        Page().line(f"{shown_text(table.name)} is at version {version:,}, schema {schema_id:,}")
    else:
        Page().line(f"{shown_text(table.name)} has not changed")
