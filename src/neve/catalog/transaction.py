"""Transactions: reads of one moment and writes that are committed together, or not at all.

    with table.transaction() as tx:
        row = tx.get(1)
        tx.put({**row, "amount": row["amount"] + 1})

    with lake.transaction() as tx:
        tx.table("shop.orders").put(order)
        tx.table("shop.stock").put(stock)

The block commits when it ends, and leaves nothing behind when it raises. A Conflict means that
another writer was first: begin again. Scans made by a transaction may be read in any thread; all
calls of the transaction itself belong to the thread that began it.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Final, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa

from neve.catalog.lake_stores import LakeStores
from neve.catalog.open_table import OpenTable
from neve.catalog.sql_door import Frame, Parameters, SqlResult
from neve.engine.background import end_forgotten
from neve.engine.row_input import Rows
from neve.engine.transaction import BEGIN_AGAIN, Isolation, Moment, TableTransaction
from neve.errors import Closed, Conflict, InvalidArgument
from neve.model.schema import TableSchema
from neve.read.filters import Filter
from neve.read.scan import Scan, ScanRequest
from neve.storage.clock import Clock, IdSource
from neve.storage.own_process import KeptInProcess
from neve.table.table_view import Row

IsolationName: TypeAlias = Literal["snapshot", "serializable"]
Result = TypeVar("Result")

HALF_WRITTEN: Final = "ended by a write that failed half way"
_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 0.25


class TransactionLife:
    """Whose a transaction is, and how it ended."""

    def __init__(self) -> None:
        self.thread = get_ident()
        self.ending = ""
        """What ended it, such as "committed"; empty while it is open."""

    def check(self) -> None:
        """Raise Closed after the end, and InvalidArgument in another thread."""
        self.check_open()
        if get_ident() != self.thread:
            raise InvalidArgument(
                "the transaction belongs to another thread",
                hint="Begin one in each thread; scans that it made may be read in any",
            )

    def end_by(self, commit: Callable[[], Result]) -> Result:
        """Return what a commit returns, and note how it ends."""
        self.ending = "ended by an error"
        try:
            result = commit()
        except Conflict:
            self.ending = "refused"
            raise
        self.ending = "committed"
        return result

    def check_open(self) -> None:
        """Raise Closed after the end."""
        if self.ending:
            raise Closed(f"the transaction was {self.ending}", hint="Begin another one")


class TransactionTable(KeptInProcess):
    """One table inside a transaction: it reads one moment and its own writes."""

    def __init__(self, table: OpenTable, inner: TableTransaction, life: TransactionLife) -> None:
        self._table = table
        self._inner = inner
        self._life = life

    @property
    def name(self) -> str:
        """Dotted name of the table."""
        return self._table.name

    @property
    def schema(self) -> TableSchema:
        """The schema of its rows."""
        return self._inner.context.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return tuple(column.name for column in self.schema.key_columns)

    # Reading

    def get(self, key: object) -> Row | None:
        """Return the row of a key, or None; see `Table.get`."""
        return self._checked().get(key)

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; see `Table.get_many`."""
        return self._checked().get_many(keys, with_missing=with_missing)

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        key_range: tuple[object, object] | None = None,
        reverse: bool = False,
    ) -> Scan:
        """Read many rows: those of its begin, and its own writes up to now; see `Table.scan`.

        The scan can be read until the transaction ends.
        """
        request = ScanRequest(
            filter=filter, columns=columns, limit=limit, key_range=key_range, reverse=reverse
        )
        return self._checked().scan(request, self._check_open)

    # Writing

    def put(self, row: Mapping[str, object]) -> None:
        """Write one row, replacing the row of its key."""
        self._checked().put(row)

    def upsert(self, rows: Rows, columns: Sequence[str] | None = None) -> None:
        """Write many rows, each replacing the row of its key; see `Table.upsert`."""
        self._checked().upsert(rows, columns)

    def delete(self, key: object) -> None:
        """Delete the row of a key, whether there is one or not."""
        self._checked().delete(key)

    def delete_many(self, keys: object) -> None:
        """Delete the rows of many keys."""
        self._checked().delete_many(keys)

    def delete_where(self, filter: Filter) -> None:  # noqa: A002 - the word of `scan`
        """Delete every row that it reads and that matches a filter."""
        self._checked().delete_where(filter, self._check_open)

    def _checked(self) -> TableTransaction:
        life, inner = self._life, self._inner
        engine = inner.engine
        if life.ending or get_ident() != life.thread:
            life.check()
        if self._table.opened is not engine or engine.is_closed:
            self._table.check_open()
        if not inner.is_open:
            life.ending = HALF_WRITTEN
            life.check()
        return inner

    def _check_open(self) -> None:
        self._life.check_open()
        self._table.check_open()


class TransactionBlock(ABC):
    """The end of a transaction: a block that commits, or one that raises and leaves nothing."""

    _life: TransactionLife

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._life.ending:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    @abstractmethod
    def commit(self) -> object:
        """Make its writes durable and visible."""

    def rollback(self) -> None:
        """End it without writing anything; twice is not an error."""
        if self._life.ending:
            return
        self._life.check()
        self._life.ending = "rolled back"
        self._close()

    @abstractmethod
    def _close(self) -> None: ...


class Transaction(TransactionBlock, TransactionTable):
    """A transaction of one table; a context manager, for the thread that began it."""

    def __init__(self, table: OpenTable, isolation: IsolationName = "snapshot") -> None:
        """Begin; everything it reads is as of now."""
        engine = table.opened or table.engine
        inner = TableTransaction(engine, table.name, Isolation.of(isolation))
        super().__init__(table, inner, TransactionLife())

    def __repr__(self) -> str:
        return f"Transaction({self.name!r}, {self._life.ending or 'open'})"

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run queries and changes of rows of its table, which is also called `this`.

        It is read as the transaction sees it; other tables are read as of now. See `Lake.sql`.
        """
        self._life.check()
        with self._table.sql().session(this=self, transaction=self) as session:
            return session.sql(text, params, **frames)

    def commit(self) -> int:
        """Make its writes durable and visible; return the last sequence number.

        Raises Conflict when another writer was first; then nothing is written. A transaction that
        only read is never in conflict.
        """
        return self._life.end_by(self._checked().commit)

    def _close(self) -> None:
        self._inner.close()


class LakeTransaction(TransactionBlock, KeptInProcess):
    """A transaction over tables of a lake; a context manager, for the thread that began it."""

    def __init__(
        self,
        stores: LakeStores,
        open_table: Callable[[str], OpenTable],
        isolation: IsolationName = "snapshot",
    ) -> None:
        """Begin; everything it reads is as of now, in all tables."""
        self._isolation = Isolation.of(isolation)
        self._stores = stores
        self._commits = stores.joint_commits
        self._open_table = open_table
        self._life = TransactionLife()
        self._tables: dict[str, TransactionTable] = {}
        self._inner: dict[str, TableTransaction] = {}
        moments = self._commits.moments(stores.live_tables.engines())
        self._moments = {id(each.engine): each for each in moments}
        self._end = weakref.finalize(self, end_forgotten, partial(_release_all, moments))

    def __repr__(self) -> str:
        return f"LakeTransaction({list(self._tables)}, {self._life.ending or 'open'})"

    def table(self, name: str) -> TransactionTable:
        """Return a table inside the transaction; raises NotFound, and Fenced for another's.

        The table is opened for writing, and stays open until the lake is closed.
        """
        self._life.check()
        found = self._tables.get(name)
        if found is None:
            table = self._open_table(name)
            inner = self._inner.get(table.table_id)
            if inner is None:
                inner = self._inner[table.table_id] = self._begin(table)
            found = self._tables[name] = TransactionTable(table, inner, self._life)
        return found

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run queries and changes of rows inside the transaction; see `Lake.sql`."""
        self._life.check()
        with self._stores.sql().session(transaction=self) as session:
            return session.sql(text, params, **frames)

    def _begin(self, table: OpenTable) -> TableTransaction:
        engine = table.engine
        moment = self._moments.get(id(engine))
        # Another thread may have written it since, after tables that this shows as they were.
        if (
            moment is None
            and not engine.is_read_only
            and (engine.current.sequence != engine.opened_at)
        ):
            raise Conflict(
                f"table {table.name!a} was opened and written after the transaction began",
                table=table.name,
                hint=BEGIN_AGAIN,
            )
        return TableTransaction(engine, table.name, self._isolation, moment)

    def commit(self) -> None:
        """Make the writes to all tables durable and visible, or none of them.

        Raises Conflict when another writer was first; then nothing is written.
        """
        self._life.check()
        inner = list(self._inner.values())
        if not all(each.is_open for each in inner):
            self._life.ending = HALF_WRITTEN
            self._close()
            self._life.check()
        written = [each for each in inner if each.has_writes]
        read = [each for each in inner if not each.has_writes and each.has_reads]

        def commit() -> None:
            if len(written) == 1 and not read:
                written[0].commit()
            elif written:
                self._commits.commit(written, read)

        try:
            self._life.end_by(commit)
        except Exception:
            self._close()
            raise
        self._close()

    def _close(self) -> None:
        for each in self._inner.values():
            each.close()
        if self._end.detach():
            _release_all(self._moments.values())


def _release_all(moments: Iterable[Moment]) -> None:
    for each in moments:
        each.release()


def retried(
    begin: Callable[[], LakeTransaction],
    run: Callable[[LakeTransaction], Result],
    *,
    attempts: int,
    clock: Clock,
    ids: IdSource,
) -> Result:
    """Call a function with a transaction and commit, again on Conflict; return its result."""
    if type(attempts) is not int or attempts < 1:
        raise InvalidArgument(f"attempts={attempts!r} is invalid", hint="Use 1 or more")
    pause = _FIRST_PAUSE_SECONDS
    for left in range(attempts - 1, -1, -1):
        try:
            with begin() as transaction:
                return run(transaction)
        except Conflict:
            if not left:
                raise
        # At different times, so that two of them do not meet again.
        clock.sleep(pause * (0.5 + ids.uuid().int % 1_024 / 1_024))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


class TransactionReader:
    """The rows of a table in a transaction, for engines whose threads ask for scans."""

    def __init__(self, table: TransactionTable) -> None:
        self._table = table
        self._inner = table._inner  # noqa: SLF001 - of this module

    @property
    def schema(self) -> TableSchema:
        """The schema of its rows."""
        return self._inner.context.schema

    def dictionary_columns(self) -> frozenset[str]:
        """Columns of text that files store as dictionaries."""
        return self._inner.view.dictionary_columns()

    def get_many(self, keys: object) -> pa.Table:
        """Return the rows of keys, in the thread of the transaction."""
        return self._table.get_many(keys)

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Scan:
        """Read many rows, in any thread, while the thread of the transaction waits for them."""
        request = ScanRequest(filter=filter, columns=columns, limit=limit)
        return self._inner.scan(request, self._table._check_open)  # noqa: SLF001 - of this module
