"""CREATE, ALTER, DROP, SHOW and CALL, by the calls of the lake and its tables."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, is_dataclass
from typing import Final

import pyarrow as pa

from neve.catalog.evolution import Evolution
from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.errors import AlreadyExists, InvalidArgument, NotFound
from neve.model.arrow_types import type_name
from neve.model.display import shown
from neve.model.suggestions import known_names_hint
from neve.sql.database import Connection, arrow_type
from neve.sql.relations import found_name
from neve.sql.statements import (
    AlterAction,
    Alteration,
    AlterTable,
    Call,
    ColumnDefinition,
    CreateNamespace,
    CreateTable,
    Definition,
    DropNamespace,
    DropTable,
    Show,
    TableRelation,
)

_PROCEDURES: Final[dict[str, tuple[Callable[..., object], tuple[str, ...]]]] = {
    "compact": (Table.compact, ("full",)),
    "expire": (Table.expire, ("keep_last", "older_than")),
    "rollback": (Table.rollback, ("version", "timestamp", "tag")),
    "flush": (Table.flush, ()),
    "collect_garbage": (Table.collect_garbage, ("dry_run",)),
    "verify": (Table.verify, ("independent",)),
    "tag": (Table.tag, ("name", "version")),
    "remove_tag": (Table.remove_tag, ("name",)),
}


def define(statement: Definition, lake: Lake, connection: Connection) -> None:
    """Change a definition; CREATE TABLE … AS is made with `create_from`."""
    match statement:
        case CreateTable(table=name, exists_ok=True) if lake.table_exists(name):
            return
        case CreateTable():
            schema = pa.schema([_field(each, connection) for each in statement.columns])
            with create_from(statement, lake, schema) as table:
                _set_defaults(table, statement, connection)
        case AlterTable():
            _alter(statement, lake, connection)
        case DropTable(missing_ok=missing_ok, purge=purge):
            try:
                lake.drop_table(found_name(lake, TableRelation(table=statement.table)), purge=purge)
            except NotFound:
                if not missing_ok:
                    raise
        case CreateNamespace(namespace=namespace, exists_ok=exists_ok):
            try:
                lake.create_namespace(namespace)
            except AlreadyExists:
                if not exists_ok:
                    raise
        case DropNamespace(namespace=namespace, missing_ok=missing_ok):
            try:
                lake.drop_namespace(namespace)
            except NotFound:
                if not missing_ok:
                    raise


def create_from(statement: CreateTable, lake: Lake, schema: pa.Schema) -> Table:
    """Make a table with these columns, and with the rest of its statement."""
    unknown = [name for name in statement.primary_key if name not in schema.names]
    if unknown:
        raise NotFound(
            f"PRIMARY KEY names column {shown(unknown[0])}, which the table does not have",
            hint=known_names_hint(unknown[0], schema.names),
        )
    required = pa.schema(
        [
            each.with_nullable(each.nullable and each.name not in statement.primary_key)
            for each in schema
        ]
    )
    return lake.create_table(
        statement.table,
        required,
        primary_key=statement.primary_key,
        partition_by=statement.partition_by,
        properties=dict(statement.properties),
    )


def _field(column: ColumnDefinition, connection: Connection) -> "pa.Field[pa.DataType]":
    return pa.field(column.name, arrow_type(connection, column.type), nullable=column.nullable)


def _set_defaults(table: Table, statement: CreateTable, connection: Connection) -> None:
    given = [column for column in statement.columns if column.default is not None]
    if not given or table.version > 1:
        return
    with table.evolve() as evolution:
        for column in given:
            evolution.set_default(column.name, _value(str(column.default), column.type, connection))


def _value(expression: str, type_: str, connection: Connection) -> object:
    rows = connection.rows(f"SELECT CAST({expression} AS {type_}) AS c")
    return rows.column("c")[0].as_py()


def _alter(statement: AlterTable, lake: Lake, connection: Connection) -> None:
    name = found_name(lake, TableRelation(table=statement.table))
    renames = [each for each in statement.alterations if each.action is AlterAction.RENAME_TABLE]
    if renames and len(statement.alterations) > 1:
        raise InvalidArgument("a table is renamed and changed at once", hint="Use two statements")
    if renames:
        new = str(renames[0].value)
        namespace = name.rpartition(".")[0]
        lake.rename_table(name, new if "." in new else f"{namespace}.{new}")
        return
    with lake.table(name) as table, table.evolve() as evolution:
        for each in statement.alterations:
            _evolve(evolution, each, table, connection)


def _evolve(evolution: Evolution, change: Alteration, table: Table, connection: Connection) -> None:
    column = change.column
    match change.action:
        case AlterAction.ADD_COLUMN:
            definition = change.definition
            assert definition is not None
            default = definition.default
            evolution.add_column(
                definition.name,
                arrow_type(connection, definition.type),
                default=None if default is None else _value(default, definition.type, connection),
                nullable=definition.nullable,
            )
        case AlterAction.DROP_COLUMN:
            evolution.drop_column(column)
        case AlterAction.RENAME_COLUMN:
            evolution.rename_column(column, str(change.value))
        case AlterAction.SET_TYPE:
            evolution.widen_column(column, arrow_type(connection, str(change.value)))
        case AlterAction.SET_DEFAULT:
            connection.register("neve columns", table.schema.arrow_schema.empty_table())
            found = connection.rows('DESCRIBE "neve columns"').to_pylist()
            types = {row["column_name"]: row["column_type"] for row in found}
            if column not in types:
                raise NotFound(
                    f"the table has no column {shown(column)}",
                    hint=known_names_hint(column, list(types)),
                )
            evolution.set_default(column, _value(str(change.value), types[column], connection))
        case AlterAction.DROP_NOT_NULL:
            evolution.make_nullable(column)
        case AlterAction.RENAME_TABLE:
            raise AssertionError("a rename is not an evolution")


def show(statement: Show, lake: Lake) -> pa.Table:
    """List tables, namespaces or columns."""
    match statement.what:
        case "TABLES":
            names = lake.list_tables(statement.name or None)
            parts = [name.rpartition(".") for name in names]
            return pa.table(
                {
                    "namespace": pa.array([part[0] for part in parts], pa.string()),
                    "table": pa.array([part[2] for part in parts], pa.string()),
                }
            )
        case "NAMESPACES":
            names = lake.list_namespaces(statement.name or None)
            return pa.table({"namespace": pa.array(names, pa.string())})
        case _:
            return _columns(lake, statement.name)


def _columns(lake: Lake, name: str) -> pa.Table:
    meta = lake.load_table(found_name(lake, TableRelation(table=name)))
    partitions = dict(
        zip(
            [each.source_id for each in meta.spec.fields],
            meta.spec.texts(meta.schema),
            strict=True,
        )
    )
    schema = meta.schema
    return pa.table(
        {
            "column": [each.name for each in schema.columns],
            "type": [type_name(each.type) for each in schema.columns],
            "nullable": [each.nullable for each in schema.columns],
            "key": pa.array(
                [
                    meta.primary_key.index(each.name) + 1 if each.name in meta.primary_key else None
                    for each in schema.columns
                ],
                pa.int32(),
            ),
            "default": pa.array(
                [
                    None if each.write_default is None else str(each.write_default)
                    for each in schema.columns
                ],
                pa.string(),
            ),
            "partition": pa.array(
                [partitions.get(each.field_id) for each in schema.columns], pa.string()
            ),
        }
    )


def call(
    statement: Call, lake: Lake, jobs: Mapping[str, Callable[..., object]] | None = None
) -> pa.Table:
    """Run a procedure on a table; return what it reports.

    `jobs` are procedures that another engine runs on this table, with the same arguments.
    """
    found = _PROCEDURES.get(statement.procedure)
    if found is None:
        raise NotFound(
            f"there is no procedure {shown(statement.procedure)}",
            hint=known_names_hint(statement.procedure, list(_PROCEDURES), where="CALL"),
        )
    run, names = found
    first, *rest = statement.positional or (None,)
    if not isinstance(first, str):
        raise InvalidArgument(
            f"CALL {statement.procedure} needs a table",
            hint=f"Write CALL {statement.procedure}('shop.orders')",
        )
    arguments: dict[str, object] = dict(zip(names, rest, strict=False))
    arguments |= dict(statement.named)
    unknown = [name for name in arguments if name not in names]
    if unknown or len(rest) > len(names):
        raise InvalidArgument(
            f"CALL {statement.procedure} has no argument {shown(unknown[0])}"
            if unknown
            else f"CALL {statement.procedure} has too many arguments",
            hint=f"It takes a table and {', '.join(names) or 'nothing else'}",
        )
    job = (jobs or {}).get(statement.procedure)
    if job is not None:
        return _reported(job(**arguments))
    with ExitStack() as stack:
        table = stack.enter_context(lake.table(found_name(lake, TableRelation(table=first))))
        report = run(table, **arguments)
    return _reported(report)


def _reported(report: object) -> pa.Table:
    """Return a report as one row."""
    facts: Mapping[str, object]
    if is_dataclass(report) and not isinstance(report, type):
        facts = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in asdict(report).items()
        }
    elif isinstance(report, int) and not isinstance(report, bool):
        facts = {"version": report}
    else:
        facts = {"done": True}
    return pa.table({name: [value] for name, value in facts.items()})
