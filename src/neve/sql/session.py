"""Sessions: statements one after the other, on the tables of a lake.

Each statement is parsed, and its relations are opened; a query runs on DuckDB over them. A change
of rows is one SELECT of whole new rows, then the writes of a transaction; see `neve.sql.changes`.

    outside of BEGIN … COMMIT   a change is a transaction of its table; other tables are read as of
                                when the statement began
    inside                      all statements read and write in one transaction of the lake

SQL-7  A change that fails inside of BEGIN … COMMIT rolls the whole transaction back: a part of the
       statement may have been written to it. The session goes on without one.
SQL-8  Definitions and CALL are not part of transactions, and are refused inside of one.
SQL-9  A session that ends rolls back what was not committed.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Final

import pyarrow as pa

from neve.catalog.lake import Lake
from neve.catalog.sql_door import Frame, Parameters, SqlResult
from neve.catalog.table import Table
from neve.catalog.transaction import (
    LakeTransaction,
    Transaction,
    TransactionReader,
    TransactionTable,
)
from neve.errors import Closed, InvalidArgument
from neve.model.display import shown
from neve.sql.change_text import Changed
from neve.sql.changes import change_rows
from neve.sql.database import Database
from neve.sql.definitions import call, create_from, define, show
from neve.sql.key_query import key_query
from neve.sql.parser import THIS, parse
from neve.sql.relations import Readers, RelationSet, found_name
from neve.sql.statements import (
    Call,
    Change,
    Control,
    CreateTable,
    Definition,
    Delete,
    Explain,
    Insert,
    Merge,
    Query,
    Show,
    Statement,
    Update,
    kind_of_statement,
)
from neve.storage.own_process import Handle

_NOTHING: Final = pa.table({"done": pa.array([], pa.bool_())})


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

    def session(
        self,
        *,
        external_access: bool = False,
        this: Table | Transaction | None = None,
        transaction: LakeTransaction | Transaction | None = None,
    ) -> "Session":
        """Begin a session; `this` is the table of that name, `transaction` what it runs in."""
        with self._lock:
            database = self._databases.get(external_access)
            if database is None:
                database = Database(external_access=external_access)
                self._databases[external_access] = database
        return Session(self, database, this=this, transaction=transaction)

    def close(self) -> None:
        """Close the readers and the databases; twice is not an error."""
        self.readers.close()
        with self._lock:
            databases, self._databases = self._databases, {}
        for database in databases.values():
            database.close()


class Session(Handle):
    """Runs statements; for one thread. A context manager."""

    def __init__(
        self,
        engine: SqlEngine,
        database: Database,
        *,
        this: Table | Transaction | None,
        transaction: LakeTransaction | Transaction | None,
    ) -> None:
        self._engine = engine
        self._database = database
        self._this = this
        self._transaction = transaction
        self._is_callers = transaction is not None
        self._is_closed = False

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run statements; return what the last one returned."""
        if self._is_closed:
            raise Closed("the SQL session was closed", hint="Begin a new one")
        if not frames and isinstance(text, str):
            found = self._row_of_key(text, params)
            if found is not None:
                return found
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
        """Roll back what was not committed, and end the session; twice is not an error."""
        self._is_closed = True
        self._roll_back()

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
            case Insert() | Update() | Delete() | Merge():
                return self._change(statement, params, frames)
            case Show():
                return _result(statement, show(statement, self._engine.lake))
            case Control():
                return self._control(statement)
            case Call():
                self._refuse_in_transaction(statement)
                return _result(statement, call(statement, self._engine.lake))
            case CreateTable(rows=Query() as query):
                return self._create_from(statement, query, params, frames)
            case _:
                self._define(statement)
                return _result(statement, _NOTHING, 0)

    def _row_of_key(self, text: str, params: Parameters | None) -> SqlResult | None:
        query = key_query(text)
        if query is None:
            return None
        with self._relations({}) as relations:
            rows = relations.row_of_key(query, params)
        return None if rows is None else SqlResult(rows, count=rows.num_rows)

    # Changes and transactions

    def _change(
        self, statement: Change, params: Parameters | None, frames: Mapping[str, Frame]
    ) -> SqlResult:
        lake = self._engine.lake
        is_this = statement.target.table == THIS and self._this is not None
        name = self._this.name if is_this and self._this else found_name(lake, statement.target)
        with ExitStack() as stack:
            if self._transaction is not None:
                stack.enter_context(self._ended_when_failed(self._transaction))
                changing = self._inside(self._transaction, name)
            else:
                table = stack.enter_context(lake.table(name))
                changing = stack.enter_context(table.transaction())
            changed = self._changed(statement, changing, name, params, frames)
        return _result(statement, changed.rows(), changed.count)

    def _changed(
        self,
        statement: Change,
        table: TransactionTable,
        name: str,
        params: Parameters | None,
        frames: Mapping[str, Frame],
    ) -> Changed:
        with self._relations(frames, {name: table}) as relations:
            rows = statement.rows if isinstance(statement, Insert) else statement
            relations.register(rows.relations)
            return change_rows(statement, table, relations, params)

    def _inside(self, transaction: LakeTransaction | Transaction, name: str) -> TransactionTable:
        """Return a table of the transaction, to change it."""
        if isinstance(transaction, LakeTransaction):
            return transaction.table(name)
        if transaction.name != name:
            raise InvalidArgument(
                f"the transaction is one of {shown(transaction.name)}, not of {shown(name)}",
                hint="Begin one over several tables, with lake.transaction()",
            )
        return transaction

    @contextmanager
    def _ended_when_failed(self, transaction: LakeTransaction | Transaction) -> Iterator[None]:
        try:
            yield
        except BaseException:
            transaction.rollback()
            if not self._is_callers:
                self._transaction = None
            raise

    def _control(self, statement: Control) -> SqlResult:
        if self._is_callers:
            raise InvalidArgument(
                f"{statement} inside of a transaction that Python began",
                hint="Call its commit or rollback",
            )
        if statement is Control.BEGIN:
            if self._transaction is not None:
                raise InvalidArgument("a transaction is open already", hint="COMMIT it first")
            self._transaction = self._engine.lake.transaction()
        elif self._transaction is None:
            raise InvalidArgument(f"there is no transaction to {statement.lower()}", hint="BEGIN")
        elif statement is Control.COMMIT:
            transaction, self._transaction = self._transaction, None
            transaction.commit()
        else:
            self._roll_back()
        return _result(statement, _NOTHING, 0)

    def _roll_back(self) -> None:
        if self._transaction is not None and not self._is_callers:
            self._transaction.rollback()
        self._transaction = None

    # Definitions

    def _create_from(
        self,
        statement: CreateTable,
        query: Query,
        params: Parameters | None,
        frames: Mapping[str, Frame],
    ) -> SqlResult:
        self._refuse_in_transaction(statement)
        if statement.exists_ok and self._engine.lake.table_exists(statement.table):
            return _result(statement, _NOTHING, 0)
        with self._relations(frames) as relations:
            relations.register(query.relations)
            rows = relations.rows(query.text, params)
        with create_from(statement, self._engine.lake, rows.schema) as table:
            table.upsert(rows)
        return _result(statement, _NOTHING, rows.num_rows)

    def _define(self, statement: Definition) -> None:
        self._refuse_in_transaction(statement)
        connection = self._database.connection()
        try:
            define(statement, self._engine.lake, connection)
        finally:
            connection.close()

    def _refuse_in_transaction(self, statement: Statement) -> None:
        if self._transaction is not None:
            raise InvalidArgument(
                f"{kind_of_statement(statement)} is not part of a transaction",
                hint="COMMIT or ROLLBACK first",
            )

    # Relations

    def _relations(
        self, frames: Mapping[str, Frame], own: Mapping[str, TransactionTable] | None = None
    ) -> RelationSet:
        inside = dict(own or {})
        transaction = self._transaction
        if isinstance(transaction, Transaction):
            inside[transaction.name] = transaction
            transaction = None  # other tables are read as of now
        return RelationSet(
            self._engine.lake,
            self._engine.readers,
            self._database,
            frames=frames,
            this=self._this,
            own={name: TransactionReader(table) for name, table in inside.items()},
            transaction=transaction,
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
