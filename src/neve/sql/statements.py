"""Statements of SQL as values: what a text asks for, for any engine.

    Statement
    ├── Query                                    rows
    ├── Insert, Update, Delete, Merge            changes of rows, each one transaction
    ├── CreateTable, AlterTable, DropTable,      definitions
    │   CreateNamespace, DropNamespace
    ├── Show, Explain                            what there is, and how a query runs
    ├── Call                                     maintenance
    └── Control                                  BEGIN, COMMIT, ROLLBACK

Expressions and queries inside of a statement stay text, in the dialect they were written in. Tables
of the lake have one quoted name each in this text, and `relations` says what that name means, so
the text can run wherever those names are known. Types and defaults of columns are always written
as DuckDB does. Nothing here depends on the parser or on an engine.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias


class Dialect(StrEnum):
    """The SQL of an engine; the values are sqlglot's names."""

    DUCKDB = "duckdb"
    SPARK = "spark"

    def quoted(self, name: str) -> str:
        """Return a name as SQL writes it."""
        mark = "`" if self is Dialect.SPARK else '"'
        return f"{mark}{name.replace(mark, mark * 2)}{mark}"

    def literal(self, value: object) -> str:
        """Return a literal that the engine can cast to the type that the value is of."""
        if isinstance(value, bytes):
            escaped = "".join(f"\\x{byte:02X}" for byte in value)
            return f"X'{value.hex()}'" if self is Dialect.SPARK else f"'{escaped}'"
        text = str(value)
        if self is Dialect.SPARK:
            escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        else:
            escaped = text.replace("'", "''")
        return f"'{escaped}'"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRelation:
    """A table as of now, or as it was."""

    table: str
    is_quoted: bool = False
    """Whether the name was quoted: otherwise its case does not matter."""
    version: int | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRelation:
    """Changes of a table after one Version, up to another."""

    table: str
    since: int
    until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedRelation:
    """A name without a namespace: a frame, a system table, or `this`."""

    name: str


Relation: TypeAlias = TableRelation | ChangesRelation | NamedRelation
Relations: TypeAlias = tuple[tuple[str, Relation], ...]
"""Relations by their name in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Rows of a query."""

    text: str
    relations: Relations = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table that a statement changes, and its name inside of the statement."""

    table: str
    alias: str
    is_quoted: bool = False


Assignments: TypeAlias = tuple[tuple[str, str], ...]
"""Columns and their new values, as expressions."""


class OnConflict(StrEnum):
    """What an INSERT does with a row whose key exists."""

    FAIL = "fail"
    IGNORE = "ignore"
    REPLACE = "replace"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """New rows; without columns they have all of the table's, in its order."""

    target: Target
    rows: Query
    columns: tuple[str, ...] = ()
    is_by_name: bool = False
    on_conflict: OnConflict = OnConflict.FAIL
    updates: Assignments = ()
    """Of ON CONFLICT DO UPDATE; `excluded` is the new row."""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """New values in the rows for which a condition is true."""

    target: Target
    assignments: Assignments
    sources: str = ""
    """Text after FROM."""
    where: str = ""
    ctes: str = ""
    relations: Relations = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete the rows for which a condition is true."""

    target: Target
    sources: str = ""
    """Text after USING."""
    where: str = ""
    ctes: str = ""
    relations: Relations = ()


class MergeWhen(StrEnum):
    """The rows that a clause of MERGE is about."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class MergeAction(StrEnum):
    """What a clause of MERGE does."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClause:
    """WHEN … THEN …; of several that are true for a row, the first one counts."""

    when: MergeWhen
    action: MergeAction
    condition: str = ""
    assignments: Assignments | None = None
    """None for all columns, from those of the source with the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Insert, update and delete rows by comparing a table with a source."""

    target: Target
    source: str
    """A relation or a query in parentheses."""
    source_alias: str
    on: str
    equal_columns: tuple[tuple[str, str], ...] = ()
    """Columns of the target that ON needs to equal an expression of the source, if it only does
    that."""
    clauses: tuple[MergeClause, ...]
    ctes: str = ""
    relations: Relations = ()

    def numbers(self, *actions: MergeAction) -> list[int]:
        """Return which clauses do one of these."""
        return [number for number, each in enumerate(self.clauses) if each.action in actions]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDefinition:
    """A column of CREATE TABLE and ADD COLUMN."""

    name: str
    type: str
    nullable: bool = True
    default: str | None = None
    """An expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    """Make a table, from columns or from the rows of a query."""

    table: str
    columns: tuple[ColumnDefinition, ...] = ()
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    rows: Query | None = None
    exists_ok: bool = False


class AlterAction(StrEnum):
    """One change of a table's definition."""

    ADD_COLUMN = "add column"
    DROP_COLUMN = "drop column"
    RENAME_COLUMN = "rename column"
    SET_TYPE = "set type"
    SET_DEFAULT = "set default"
    DROP_NOT_NULL = "drop not null"
    RENAME_TABLE = "rename table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """A change of a definition: what is done to a column, and its new state."""

    action: AlterAction
    column: str = ""
    value: str | None = None
    """The new name, type or default."""
    definition: ColumnDefinition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    """Change a table's definition, as one Version."""

    table: str
    alterations: tuple[Alteration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DropTable:
    """Drop a table."""

    table: str
    missing_ok: bool = False
    purge: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace:
    """Make a namespace."""

    namespace: str
    exists_ok: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNamespace:
    """Remove an empty namespace."""

    namespace: str
    missing_ok: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    """List tables, namespaces or the columns of a table."""

    what: str
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """Say how a query runs; with `analyze`, run it."""

    query: Query
    analyze: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Maintain a table: compact, expire, rollback, flush, collect_garbage, verify."""

    procedure: str
    positional: tuple[object, ...] = ()
    named: tuple[tuple[str, object], ...] = field(default=())


class Control(StrEnum):
    """The ends of a transaction."""

    BEGIN = "BEGIN"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


Change: TypeAlias = Insert | Update | Delete | Merge
Definition: TypeAlias = CreateTable | AlterTable | DropTable | CreateNamespace | DropNamespace
Statement: TypeAlias = Query | Change | Definition | Show | Explain | Call | Control


def kind_of_statement(statement: Statement) -> str:
    """Return the words that a statement begins with."""
    match statement:
        case Query():
            return "SELECT"
        case Control():
            return statement.value
        case CreateTable() | AlterTable() | DropTable() | CreateNamespace() | DropNamespace():
            name = type(statement).__name__
            return "".join(f" {c}" if c.isupper() else c for c in name).strip().upper()
        case _:
            return type(statement).__name__.upper()
