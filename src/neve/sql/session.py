"""Sessions: statements one after the other, on the tables of a lake.

Each statement is parsed, and its relations are opened; a query runs on DuckDB over them. A change
of rows is one SELECT of whole new rows, then one transaction; see `neve.sql.changes`.
"""

from collections.abc import Mapping
from threading import Lock
from types import TracebackType
from typing import Self

import pyarrow as pa

from neve.catalog.lake import Lake
from neve.catalog.sql_door import Frame, Parameters, SqlResult
from neve.catalog.table import Table
from neve.errors import Closed, InvalidArgument
from neve.sql.database import Database
from neve.sql.parser import parse
from neve.sql.relations import Readers, RelationSet
from neve.sql.statements import Explain, Query, Statement, kind_of_statement


def make_engine(lake: Lake) -> "SqlEngine":
    """Return what runs SQL on a lake; for `neve.open`."""
    return SqlEngine(lake)


class SqlEngine:
    """Sessions on one lake share a database and open readers; safe for many threads."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.readers = Readers(lake)
        # Guarded by _lock.
        self._lock = Lock()
        self._databases: dict[bool, Database] = {}

    def session(self, *, external_access: bool = False, this: Table | None = None) -> "Session":
        """Begin a session; `this` is the table of that name."""
        with self._lock:
            database = self._databases.get(external_access)
            if database is None:
                database = Database(external_access=external_access)
                self._databases[external_access] = database
        return Session(self, database, this=this)

    def close(self) -> None:
        """Close the readers and the databases; twice is not an error."""
        self.readers.close()
        with self._lock:
            databases, self._databases = self._databases, {}
        for database in databases.values():
            database.close()


class Session:
    """Runs statements; for one thread. A context manager."""

    def __init__(self, engine: SqlEngine, database: Database, *, this: Table | None) -> None:
        self._engine = engine
        self._database = database
        self._this = this
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run statements; return what the last one returned."""
        if self._is_closed:
            raise Closed("the SQL session was closed", hint="Begin a new one")
        statements = parse(text)
        if not statements:
            raise InvalidArgument("there is no statement", hint="Write one, such as SHOW TABLES")
        if params is not None and len(statements) > 1:
            raise InvalidArgument(
                "parameters were passed with several statements", hint="Run them one by one"
            )
        for statement in statements:
            result = self._run(statement, params, frames)
        return result

    def close(self) -> None:
        """End the session; twice is not an error."""
        self._is_closed = True

    def _run(
        self, statement: Statement, params: Parameters | None, frames: Mapping[str, Frame]
    ) -> SqlResult:
        match statement:
            case Query():
                with self._relations(frames) as relations:
                    relations.register(statement.relations)
                    return _result(statement, relations.rows(statement.text, params))
            case Explain():
                return self._explain(statement, params, frames)
            case _:
                raise InvalidArgument("not yet", hint="wait")

    def _relations(self, frames: Mapping[str, Frame]) -> RelationSet:
        return RelationSet(
            self._engine.lake,
            self._engine.readers,
            self._database.connection(),
            frames=frames,
            this=self._this,
        )

    def _explain(
        self, statement: Explain, params: Parameters | None, frames: Mapping[str, Frame]
    ) -> SqlResult:
        words = "EXPLAIN ANALYZE" if statement.analyze else "EXPLAIN"
        with self._relations(frames) as relations:
            relations.register(statement.query.relations)
            plan = relations.rows(f"{words} {statement.query.text}", params)
            parts = [("plan", str(plan.column(1)[0].as_py()))]
            parts += [(name, str(scan.explain())) for name, scan in relations.scans()]
        names, texts = zip(*parts, strict=True)
        rows = pa.table({"part": pa.array(names), "text": pa.array(texts)})
        return _result(statement, rows)


def _result(statement: Statement, rows: pa.Table, count: int | None = None) -> SqlResult:
    return SqlResult(
        rows,
        count=rows.num_rows if count is None else count,
        statement=kind_of_statement(statement),
    )
