"""`neve.spark.sql`: the statements of neve's SQL, on the lakes that are attached to a session.

    ns.sql(session, "merge into lake.shop.orders o using changes c on o.id = c.id when matched …")

Text is Spark's dialect, and is parsed into the same statements as that of `lake.sql`.

    SELECT, EXPLAIN                   Spark, with `read` in the place of each table
    INSERT, UPDATE, DELETE, MERGE     a job that makes one Version (neve.spark.sql_changes)
    CREATE, ALTER, DROP, SHOW         the lake itself, in the driver (neve.sql.definitions)
    CALL compact, expire, verify, …   the jobs of neve.spark.maintenance; others the lake itself

It does not need Java, so it works on Spark Connect too.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from neve.catalog.sql_door import Parameters
from neve.catalog.system_tables import is_system_name
from neve.errors import InvalidArgument, NeveError, NotFound
from neve.model.display import shown
from neve.model.suggestions import similar_name, suggestion
from neve.spark.attached_lakes import AttachedLake, RelationFrames, attached_lakes, explained
from neve.spark.call_check import check_session
from neve.spark.maintenance import collect_garbage, compact, expire, verify
from neve.spark.reading import frame_of
from neve.spark.row_form import empty_batch
from neve.spark.spark_types import quoted
from neve.spark.sql_changes import change_rows
from neve.spark.writing import load
from neve.sql.database import Database
from neve.sql.definitions import call, create_from, define, show
from neve.sql.parser import parse
from neve.sql.relations import found_name
from neve.sql.statements import (
    AlterAction,
    AlterTable,
    Call,
    Change,
    ChangesRelation,
    Control,
    CreateNamespace,
    CreateTable,
    Definition,
    Delete,
    Dialect,
    DropNamespace,
    Explain,
    Insert,
    Merge,
    NamedRelation,
    Query,
    Relations,
    Show,
    Statement,
    TableRelation,
    Update,
)

_NOTHING: Final = pa.table({"done": pa.array([], pa.bool_())})


def sql(session: SparkSession, text: str, params: Parameters | None = None) -> DataFrame:
    """Run statements on attached lakes; return what the last one returned.

    A query returns its rows, which Spark computes when they are asked for. A change returns one row
    with the numbers of inserted, updated and deleted rows, and is one Version. Tables are named
    with their lake, `lake.shop.orders`, or without it after USE; other names are what Spark knows,
    such as temporary views. `params` are the values of `?`, or of `:name` by name.

    Raises InvalidArgument, with a caret, for text that cannot be read, NotFound with a similar
    name, AlreadyExists for a key that exists, and Conflict when others kept changing the rows.
    """
    check_session(session)
    statements = parse(text, Dialect.SPARK)
    if not statements:
        raise InvalidArgument("there is no statement", hint="Write one, such as SHOW TABLES")
    if params is not None and len(statements) > 1:
        raise InvalidArgument(
            "parameters were passed with several statements", hint="Run them one by one"
        )
    runner = _Runner(session, params)
    for statement in statements:
        result = runner.run(statement)
    return result


class _Runner:
    """Runs statements, one after the other."""

    def __init__(self, session: SparkSession, params: Parameters | None) -> None:
        self._session = session
        self._params = params
        self._lakes = attached_lakes(session)

    def run(self, statement: Statement) -> DataFrame:
        """Run one statement."""
        match statement:
            case Query():
                return self._relations(statement.relations).rows(statement.text)
            case Explain():
                if statement.analyze:
                    raise InvalidArgument("Spark has no EXPLAIN ANALYZE", hint="Write EXPLAIN")
                query = statement.query
                return self._relations(query.relations).rows(f"EXPLAIN {query.text}")
            case Insert() | Update() | Delete() | Merge():
                return self._change(statement)
            case Show():
                return self._show(statement)
            case Call():
                return self._frame(self._call(statement))
            case Control():
                raise InvalidArgument(
                    f"{statement} on Spark: each statement is a commit of its own",
                    hint="Use lake.sql for transactions of several statements",
                )
            case CreateTable(rows=Query() as query):
                self._create_from(statement, query)
            case _:
                self._define(statement)
        return self._frame(_NOTHING)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return frame_of(self._session, rows)

    # Names

    def _place(self, name: str) -> tuple[AttachedLake, str] | None:
        """Return the lake of a name, and the name inside it; None for names that are Spark's."""
        first, _, rest = name.partition(".")
        for each, lake in self._lakes.items():
            if first.casefold() == each.casefold():
                return lake, rest
        current = self._lakes.get(self._current())
        return None if current is None else (current, name)

    def _current(self) -> str:
        with suppress(AttributeError):  # PySpark 3.5 on Connect does not say
            return str(self._session.catalog.currentCatalog())
        return ""

    def _known(self, name: str) -> tuple[AttachedLake, str]:
        """Return the lake of a name that must be of one; raises NotFound."""
        place = self._place(name)
        if place is not None:
            return place
        if not self._lakes:
            raise NotFound(
                f"there is no lake for {shown(name)}",
                hint='Attach it: neve.spark.attach(session, "./lake", "lake")',
            )
        first = name.partition(".")[0]
        similar = similar_name(first, list(self._lakes))
        names = ", ".join(map(shown, self._lakes))
        raise NotFound(
            f"there is no lake {shown(first)}",
            hint=f"Attached are {names}" if similar is None else suggestion(similar),
        )

    def _table(self, name: str, *, is_quoted: bool = False) -> tuple[AttachedLake, str]:
        """Return a table of a lake as it is spelled there; raises NotFound with a similar one."""
        lake, rest = self._known(name)
        if not rest or is_system_name(rest):
            return lake, rest
        with lake.opened() as opened:
            return lake, found_name(opened, TableRelation(table=rest, is_quoted=is_quoted))

    def _relations(self, relations: Relations, *, but: str | None = None) -> RelationFrames:
        """Open the relations of a statement, but the one that it changes."""
        frames = RelationFrames(self._session, self._params)
        for name, relation in relations:
            if name == but:
                continue
            match relation:
                case NamedRelation():
                    pass  # Spark knows it, or says that it does not
                case ChangesRelation(table=table, since=since, until=until):
                    lake, found = self._table(table)
                    frames.add(name, lake.changes(self._session, found, since, until))
                case TableRelation(table=table, is_quoted=is_quoted):
                    frames.add(name, self._rows(relation, table, is_quoted=is_quoted))
        return frames

    def _rows(self, relation: TableRelation, table: str, *, is_quoted: bool) -> DataFrame:
        place = self._place(table)
        if place is None and self._is_of_spark(table):
            with explained(self._session):
                found = self._session.table(_quoted_parts(table))
                _ = found.schema
            return found
        lake, found_table = self._table(table, is_quoted=is_quoted)
        return lake.read(
            self._session, found_table, version=relation.version, timestamp=relation.timestamp
        )

    def _is_of_spark(self, table: str) -> bool:
        try:
            return bool(self._session.catalog.tableExists(_quoted_parts(table)))
        except Exception:  # noqa: BLE001 - of PySpark or of Java, for a catalog that is not there
            return False

    # Changes

    def _change(self, statement: Change) -> DataFrame:
        target = statement.target
        lake, table = self._table(target.table, is_quoted=target.is_quoted)
        rows = statement.rows if isinstance(statement, Insert) else statement
        relations = partial(self._relations, rows.relations, but=target.table)
        changed = change_rows(self._session, lake, table, statement, relations)
        return self._frame(changed.rows())

    # Definitions

    def _create_from(self, statement: CreateTable, query: Query) -> None:
        lake, name = self._known(statement.table)
        lake.refuse_changes()
        with lake.opened() as opened:
            if statement.exists_ok and opened.table_exists(name):
                return
            rows = self._relations(query.relations).rows(query.text)
            schema = empty_batch(rows.schema).schema
            create_from(replace(statement, table=name), opened, schema).close()
            try:
                load(rows, lake.location, name, storage_options=lake.storage_options)
            except BaseException:
                # The table is complete or does not exist.
                with suppress(NeveError):
                    opened.drop_table(name, purge=True)
                raise

    def _define(self, statement: Definition) -> None:
        lake, inside = self._inside(statement)
        database = Database(external_access=False)
        try:
            with lake.opened() as opened:
                define(inside, opened, database.connection())
        finally:
            database.close()

    def _inside(self, statement: Definition) -> tuple[AttachedLake, Definition]:
        """Return a definition with names that the lake knows."""
        if isinstance(statement, CreateNamespace | DropNamespace):
            lake, namespace = self._known(statement.namespace)
            return lake, replace(statement, namespace=namespace)
        lake, table = self._known(statement.table)
        if isinstance(statement, AlterTable):
            alterations = tuple(
                replace(each, value=self._renamed(lake, str(each.value)))
                if each.action is AlterAction.RENAME_TABLE
                else each
                for each in statement.alterations
            )
            return lake, replace(statement, table=table, alterations=alterations)
        return lake, replace(statement, table=table)

    def _renamed(self, lake: AttachedLake, name: str) -> str:
        if "." not in name:
            return name
        place = self._place(name)
        if place is None or place[0] is lake:
            return name if place is None else place[1]
        raise InvalidArgument("a table is not renamed into another lake", hint="Copy its rows")

    # What there is

    def _show(self, statement: Show) -> DataFrame:
        place = self._place(statement.name) if statement.name else self._default_place()
        if place is None and statement.what == "COLUMNS":
            with explained(self._session):
                return self._session.sql(f"DESCRIBE {_quoted_parts(statement.name)}")
        lake, rest = place or self._known(statement.name or "a lake")
        with lake.opened() as opened:
            return self._frame(show(replace(statement, name=rest), opened))

    def _default_place(self) -> tuple[AttachedLake, str] | None:
        current = self._lakes.get(self._current())
        if current is None and len(self._lakes) == 1:
            (current,) = self._lakes.values()
        return None if current is None else (current, "")

    # Maintenance

    def _call(self, statement: Call) -> pa.Table:
        first, *rest = statement.positional or (None,)
        if not isinstance(first, str):
            raise InvalidArgument(
                f"CALL {statement.procedure} needs a table",
                hint=f"Write CALL {statement.procedure}('lake.shop.orders')",
            )
        lake, table = self._table(first)
        if statement.procedure != "verify":
            lake.refuse_changes()
        inside = replace(statement, positional=(table, *rest))
        with lake.opened() as opened:
            return call(inside, opened, self._jobs(lake, table))

    def _jobs(self, lake: AttachedLake, table: str) -> dict[str, Callable[..., object]]:
        place = (lake.location, table)
        options = lake.storage_options
        return {
            "compact": partial(compact, self._session, *place, storage_options=options),
            "expire": partial(expire, *place, storage_options=options),
            "collect_garbage": partial(
                collect_garbage, self._session, *place, storage_options=options
            ),
            "verify": partial(verify, self._session, *place, storage_options=options),
        }


def _quoted_parts(name: str) -> str:
    """Return a dotted name with each of its parts quoted."""
    return ".".join(map(quoted, name.split(".")))
