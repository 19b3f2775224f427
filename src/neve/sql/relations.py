"""Relations: what the names in a statement mean, opened for as long as it runs.

All tables are read as of one moment: by snapshots of their writers if this process has them open,
else by readers beside them, which are kept open for later statements and refreshed for each. Only
tables that a statement names are opened.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from threading import Lock
from typing import Final, Protocol, Self

import pyarrow as pa

from neve.catalog.lake import Lake, open_to_read, snapshots_together
from neve.catalog.sql_door import Frame, Parameters
from neve.catalog.system_tables import SYSTEM_TABLES
from neve.catalog.table import Table, open_table_of
from neve.catalog.transaction import LakeTransaction, Transaction, TransactionReader
from neve.engine.snapshot import Snapshot, dictionary_columns
from neve.errors import InvalidArgument, NeveError, NotFound
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.suggestions import similar_name, suggestion
from neve.read.arrow_filters import Comparing
from neve.read.dataset import InexactError, RunLog, Scanned, ScanSource, scan_dataset
from neve.sql.database import Connection, Database, reserved_words
from neve.sql.key_query import KeyedSource, KeyQuery, row_of_key
from neve.sql.parser import THIS
from neve.sql.statements import (
    ChangesRelation,
    NamedRelation,
    Relation,
    Relations,
    TableRelation,
    Target,
)

_READERS_KEPT: Final = 16
_SEVERAL: Final = 2
# DuckDB says so of filters that it pushes, and cannot write for Arrow.
_UNPUSHABLE: Final = re.compile("Pushdown Filter|Filter Pushdown")


class Readers:
    """Tables opened to be read, by id; safe for many threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        # Guarded by _lock.
        self._lock = Lock()
        self._kept: OrderedDict[str, Table] = OrderedDict()

    def opened(self, asked: TableRelation, stack: ExitStack) -> Table:
        """Return a table that shows what is committed and logged by now; raises NotFound."""
        try:
            table = open_to_read(self._lake, asked.table)
        except NotFound:
            table = open_to_read(self._lake, found_name(self._lake, asked))
        stack.enter_context(table)
        opened = open_table_of(table)
        if not opened.is_read_only:
            return table
        _ = opened.engine
        self._keep(table)
        return table.refresh()

    def _keep(self, table: Table) -> None:
        """Keep a table open, by a handle of its own: those of statements come and go."""
        ended: list[Table] = []
        with self._lock:
            kept = self._kept.get(table.table_id)
            if kept is None or open_table_of(kept).is_closed:
                another = open_to_read(self._lake, table.name)
                _ = open_table_of(another).engine
                self._kept[table.table_id] = another
            self._kept.move_to_end(table.table_id)
            while len(self._kept) > _READERS_KEPT:
                ended.append(self._kept.popitem(last=False)[1])
        for each in ended:
            each.close()

    def close(self) -> None:
        """Close what is kept."""
        with self._lock:
            kept, self._kept = self._kept, OrderedDict()
        for table in kept.values():
            table.close()


class StatementSource(ScanSource, KeyedSource, Protocol):
    """A table as a statement reads it."""


class RelationSet:
    """The relations of one statement, on a connection of its own; a context manager."""

    def __init__(
        self,
        lake: Lake,
        readers: Readers,
        database: Database,
        *,
        frames: Mapping[str, Frame],
        this: Table | Transaction | None = None,
        own: Mapping[str, StatementSource],
        transaction: LakeTransaction | None = None,
    ) -> None:
        """Begin; `own` are the tables of the statement, other ones are read in the transaction."""
        self._lake = lake
        self._readers = readers
        self._database = database
        self._made: Connection | None = None
        self._this = this
        self._transaction = transaction
        self._stack = ExitStack()
        self._frames = {name.casefold() for name in frames}
        self._opened: dict[str, StatementSource] = dict(own)
        self._logs: dict[str, RunLog] = {}
        self._scanned: dict[str, ScanSource] = {}
        self._unpushed: set[str] = set()
        self._is_copied = False
        for name, frame in frames.items():
            if not name.isidentifier():
                raise InvalidArgument(
                    f"a frame is called {shown(name)}", hint="Use letters, digits and underscores"
                )
            self._connection.register(name, frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        # First the connection: its threads read what the stack closes.
        if self._made is not None:
            self._made.close()
        self._stack.close()

    @property
    def _connection(self) -> Connection:
        if self._made is None:
            self._made = self._database.connection()
        return self._made

    def register(self, relations: Relations) -> None:
        """Make the relations of a statement known; raises NotFound."""
        self._open_together(relations)
        for name, relation in relations:
            if name.casefold() in self._frames or name in self._scanned:
                continue
            found = self._found(relation)
            if found is None:
                continue
            if isinstance(found, pa.Table):
                self._connection.register(name, found)
                continue
            _refuse_same_names(found.schema, name)
            self._scanned[name] = found
            self._logs[name] = log = RunLog()
            dataset = scan_dataset(
                found, comparing=Comparing.DUCKDB, log=log, dictionaries=_dictionaries(found)
            )
            self._connection.register(name, dataset)

    def add(self, name: str, rows: pa.Table) -> None:
        """Make rows known by a name."""
        self._connection.register(name, rows)

    def rows(self, text: str, params: Parameters | None = None) -> pa.Table:
        """Run a query. One whose filters are not exactly neve's runs again without pushing them."""
        while True:
            try:
                return self._connection.rows(text, params)
            except NeveError as error:
                if not self._may_try_again(error):
                    raise

    def row_of_key(self, query: KeyQuery, params: Parameters | None) -> pa.Table | None:
        """Return the answer to a query for one key; None if the query has to be run."""
        if not query.words.isdisjoint(reserved_words()):
            return None
        if "." in query.table:
            asked = TableRelation(table=query.table, is_quoted=True)
        elif query.table == THIS and self._this is not None:
            asked = TableRelation(table=self._this.name, is_quoted=True)
        else:
            return None
        try:
            source = self._source(asked)
        except NotFound:
            return None  # the name may be spelled differently
        return row_of_key(query, source, params)

    def scans(self) -> Iterator[tuple[str, Scanned]]:
        """Return the scans of the queries so far, with the names of their relations."""
        for name, log in self._logs.items():
            for scan in log.scans:
                yield name, scan

    def _open_together(self, relations: Relations) -> None:
        """Open the tables of a statement as of one moment, unless they are in a transaction."""
        if self._transaction is not None or len(relations) < _SEVERAL:
            return
        opened: dict[str, Table] = {}
        for name, relation in relations:
            if name.casefold() in self._frames:
                continue
            match relation:
                case TableRelation(version=None, timestamp=None):
                    if relation.table in self._opened:
                        continue
                    table = self._readers.opened(relation, self._stack)
                case NamedRelation() if name.casefold() == THIS and isinstance(self._this, Table):
                    table = self._this
                case _:
                    continue
            if table.name not in self._opened:
                opened.setdefault(table.name, table)
        snapshots = snapshots_together(self._lake, list(opened.values()))
        for name, snapshot in zip(opened, snapshots, strict=True):
            self._opened[name] = self._stack.enter_context(snapshot)

    def _source(self, asked: TableRelation) -> StatementSource:
        """Return the rows of a table, the same ones whenever a statement asks."""
        name = asked.table
        if name in self._opened:
            return self._opened[name]
        if self._transaction is not None or self._opened:
            name = found_name(self._lake, asked)
        if name not in self._opened and self._transaction is not None:
            self._opened[name] = TransactionReader(self._transaction.table(name))
        elif name not in self._opened:
            opened = self._readers.opened(asked, self._stack)
            name = opened.name
            self._opened[name] = self._stack.enter_context(opened.snapshot())
        return self._opened[name]

    def _may_try_again(self, error: NeveError) -> bool:
        """Stop pushing filters where one was inexact; raise what a scan raised."""
        failures = [(name, each) for name, log in self._logs.items() for each in log.failures]
        for log in self._logs.values():
            log.failures.clear()
            log.scans.clear()
        inexact = {name for name, each in failures if isinstance(each, InexactError)}
        if _UNPUSHABLE.search(error.message):
            if self._unpushed == set(self._logs) and not self._is_copied:
                self._is_copied = True
                for name in self._unpushed:
                    self._connection.copy_unpushed(name)
                return True
            inexact = set(self._logs)
        inexact -= self._unpushed
        for name in inexact:
            # The filters of joins still arrive, and joins check their rows themselves.
            unpushed = scan_dataset(
                self._scanned[name],
                comparing=Comparing.DUCKDB,
                log=self._logs[name],
                is_checked=True,
                dictionaries=_dictionaries(self._scanned[name]),
            )
            self._connection.register_unpushed(name, unpushed)
        self._unpushed |= inexact
        if not inexact:
            for _, each in failures:
                raise each from error
        return bool(inexact)

    def _found(self, relation: Relation) -> ScanSource | pa.Table | None:
        match relation:
            case TableRelation(version=None, timestamp=None):
                return self._source(relation)
            case TableRelation(version=version, timestamp=timestamp):
                opened = self._readers.opened(relation, self._stack)
                old = opened.at(version=version, timestamp=timestamp)
                return self._stack.enter_context(old)
            case ChangesRelation(table=table, since=since, until=until):
                opened = self._readers.opened(TableRelation(table=table), self._stack)
                return opened.changes(since, until).read_all()
            case NamedRelation(name=name):
                return self._named(name)

    def _named(self, name: str) -> ScanSource | pa.Table | None:
        folded = name.casefold()
        if folded == THIS and self._this is not None:
            if self._this.name in self._opened or self._transaction is not None:
                return self._source(TableRelation(table=self._this.name))
            assert isinstance(self._this, Table), "a transaction has its table among its own"
            return self._stack.enter_context(self._this.snapshot())
        if folded in SYSTEM_TABLES:
            return self._lake.system_table(folded)
        if self._connection.reaches_files:
            return None
        tables = self._lake.list_tables()
        same = [each for each in tables if each.rpartition(".")[2].casefold() == folded]
        similar = same[0] if same else similar_name(name, [*self._frames, *SYSTEM_TABLES, *tables])
        raise NotFound(
            f"there is no relation {shown(name)}",
            hint=suggestion(similar)
            if similar is not None
            else "Name tables with their namespaces, and pass frames by name",
        )


def _dictionaries(source: ScanSource) -> frozenset[str]:
    match source:
        case Snapshot():
            return dictionary_columns(source)
        case TransactionReader():
            return source.dictionary_columns()
        case _:
            return frozenset()


def _refuse_same_names(schema: TableSchema, relation: str) -> None:
    """Refuse columns that only their case distinguishes: SQL would take one for the other."""
    known: dict[str, str] = {}
    for name in schema.arrow_schema.names:
        other = known.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidArgument(
                f"columns {shown(other)} and {shown(name)} of {shown(relation)} differ only in "
                "case, which SQL does not distinguish",
                hint="Rename one of them, or read the table with scan",
            )


def found_name(lake: Lake, asked: TableRelation | Target) -> str:
    """Return the name of a table as the lake spells it; raises NotFound with a similar one.

    Outside of quotes, the case of a name does not matter if only one table has it.
    """
    name = asked.table
    if lake.table_exists(name):
        return name
    tables = lake.list_tables()
    if not asked.is_quoted:
        same = [each for each in tables if each.casefold() == name.casefold()]
        if len(same) == 1:
            return same[0]
    similar = similar_name(name, tables)
    raise NotFound(
        f"there is no table {shown(name)}",
        hint="SHOW TABLES lists those that exist" if similar is None else suggestion(similar),
    )
