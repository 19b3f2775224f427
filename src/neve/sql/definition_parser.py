"""CREATE, ALTER and DROP into statements."""

from typing import NoReturn

from sqlglot import exp

from neve.errors import InvalidArgument
from neve.model.display import shown
from neve.sql.statements import (
    AlterAction,
    Alteration,
    AlterTable,
    ColumnDefinition,
    CreateNamespace,
    CreateTable,
    Dialect,
    DropNamespace,
    DropTable,
    Query,
)

# Whatever dialect a statement is in: DuckDB evaluates its types and defaults.
_DIALECT = Dialect.DUCKDB


def dotted(table: exp.Expr) -> str:
    """Return the name of a table or namespace, with its parents."""
    if isinstance(table, exp.Table):
        return ".".join(part.name for part in table.parts if part.name)
    return table.name


def _refuse(tree: exp.Expr, what: str) -> NoReturn:
    raise InvalidArgument(
        f"{what} is not supported: {tree.sql(dialect=_DIALECT)[:200]}",
        hint="The guide to SQL lists what CREATE TABLE and ALTER TABLE may say",
    )


def create_table(tree: exp.Create, rows: Query | None) -> CreateTable:
    """Read CREATE TABLE."""
    if tree.args.get("replace"):
        _refuse(tree, "CREATE OR REPLACE TABLE")
    into = tree.this
    columns: list[ColumnDefinition] = []
    key: list[str] = []
    if isinstance(into, exp.Schema):
        for each in into.expressions:
            match each:
                case exp.ColumnDef():
                    column, is_key = _column(each)
                    columns.append(column)
                    key += [column.name] * is_key
                case exp.PrimaryKey():
                    key += [part.name for part in each.expressions]
                case _:
                    _refuse(each, "this part of CREATE TABLE")
        into = into.this
    partition_by: list[str] = []
    properties: list[tuple[str, str]] = []
    found = tree.args.get("properties")
    for each in found.expressions if found is not None else ():
        match each:
            case exp.PartitionedByProperty():
                fields = each.this
                listed = fields.expressions if isinstance(fields, exp.Schema | exp.Tuple) else []
                partition_by += [_partition(part) for part in listed or [fields]]
            case exp.PrimaryKey():
                key += [part.name for part in each.expressions]
            case exp.FileFormatProperty() if each.name.casefold() == "neve":
                pass  # USING neve, of Spark: there are no other tables
            case exp.Property() if type(each) is exp.Property:
                properties.append((each.name, each.args["value"].name))
            case _:
                _refuse(each, "this part of CREATE TABLE")
    if not key:
        raise InvalidArgument(
            f"the table {shown(dotted(into))} has no primary key",
            hint="Write PRIMARY KEY after a column, or PRIMARY KEY (a, b) after all of them",
        )
    if rows is not None and columns:
        _refuse(tree, "CREATE TABLE with columns and a query")
    return CreateTable(
        table=dotted(into),
        columns=tuple(columns),
        primary_key=tuple(key),
        partition_by=tuple(partition_by),
        properties=tuple(properties),
        rows=rows,
        exists_ok=bool(tree.args.get("exists")),
    )


def _column(tree: exp.ColumnDef) -> tuple[ColumnDefinition, bool]:
    is_key = is_required = False
    default: str | None = None
    for constraint in tree.args.get("constraints") or ():
        match constraint.kind:
            case exp.PrimaryKeyColumnConstraint():
                is_key = True
            case exp.NotNullColumnConstraint() as told:
                is_required = not told.args.get("allow_null")
            case exp.DefaultColumnConstraint() as told:
                default = told.this.sql(dialect=_DIALECT)
            case _:
                _refuse(constraint, "this constraint")
    kind = tree.args.get("kind")
    if kind is None:
        raise InvalidArgument(f"column {shown(tree.name)} has no type", hint="Write its type")
    definition = ColumnDefinition(
        name=tree.name,
        type=kind.sql(dialect=_DIALECT),
        nullable=not (is_required or is_key),
        default=default,
    )
    return definition, is_key


def _partition(tree: exp.Expr) -> str:
    """Return a partition field as `create_table` takes it, such as bucket(16, id)."""
    match tree:
        case exp.PartitionedByBucket():
            return f"bucket({tree.expression.name}, {tree.this.name})"
        case exp.PartitionByTruncate():
            return f"truncate({tree.expression.name}, {tree.this.name})"
        case exp.Anonymous():
            return f"{tree.name}({', '.join(each.name for each in tree.expressions)})".lower()
        case exp.Func():
            return f"{tree.sql_name().lower()}({tree.this.name})"
        case exp.Column() | exp.Identifier():
            return tree.name
        case _:
            _refuse(tree, "this partition field")


def create_namespace(tree: exp.Create) -> CreateNamespace:
    """Read CREATE NAMESPACE and CREATE SCHEMA."""
    return CreateNamespace(namespace=_namespace(tree.this), exists_ok=bool(tree.args.get("exists")))


def _namespace(tree: exp.Expr) -> str:
    if not isinstance(tree, exp.Table):
        return tree.name
    parts = [tree.args.get(name) for name in ("catalog", "db", "this")]
    return ".".join(part.name for part in parts if part is not None)


def drop(tree: exp.Drop) -> DropTable | DropNamespace:
    """Read DROP TABLE and DROP NAMESPACE."""
    names = tree.args.get("tables") or [tree.this]
    if len(names) != 1 or tree.args.get("cascade"):
        _refuse(tree, "DROP of several things at once")
    missing_ok = bool(tree.args.get("exists"))
    if tree.args["kind"] == "TABLE":
        return DropTable(
            table=dotted(names[0]), missing_ok=missing_ok, purge=bool(tree.args.get("purge"))
        )
    return DropNamespace(namespace=_namespace(names[0]), missing_ok=missing_ok)


def alter_table(tree: exp.Alter) -> AlterTable:
    """Read ALTER TABLE."""
    actions: list[exp.Expr] = []
    for each in tree.args["actions"]:
        # ADD COLUMNS (…), of Spark
        actions += each.expressions if isinstance(each, exp.Schema) else [each]
    return AlterTable(
        table=dotted(tree.this), alterations=tuple(_alteration(each) for each in actions)
    )


def _alteration(tree: exp.Expr) -> Alteration:
    match tree:
        case exp.ColumnDef():
            definition, is_key = _column(tree)
            if is_key or tree.args.get("exists"):
                _refuse(tree, "this way to add a column")
            return Alteration(
                action=AlterAction.ADD_COLUMN, column=tree.name, definition=definition
            )
        case exp.Drop(kind="COLUMN"):
            names = tree.args.get("tables") or [tree.this]
            return Alteration(action=AlterAction.DROP_COLUMN, column=_path(names[0]))
        case exp.RenameColumn():
            return Alteration(
                action=AlterAction.RENAME_COLUMN,
                column=_path(tree.this),
                value=tree.args["to"].name,
            )
        case exp.AlterRename():
            return Alteration(action=AlterAction.RENAME_TABLE, value=dotted(tree.this))
        case exp.AlterColumn():
            return _altered_column(tree)
        case _:
            _refuse(tree, "this change of a table")


def _altered_column(tree: exp.AlterColumn) -> Alteration:
    column = _path(tree.this)
    if tree.args.get("dtype") is not None:
        type_ = tree.args["dtype"].sql(dialect=_DIALECT)
        return Alteration(action=AlterAction.SET_TYPE, column=column, value=type_)
    if tree.args.get("default") is not None:
        default = tree.args["default"].sql(dialect=_DIALECT)
        return Alteration(action=AlterAction.SET_DEFAULT, column=column, value=default)
    if tree.args.get("drop") and tree.args.get("allow_null"):
        return Alteration(action=AlterAction.DROP_NOT_NULL, column=column)
    _refuse(tree, "this change of a column")


def _path(tree: exp.Expr) -> str:
    """Return the name of a column, dotted inside of structs."""
    return ".".join(part.name for part in tree.parts) if isinstance(tree, exp.Column) else tree.name
