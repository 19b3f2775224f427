"""Table: rows by key, durable when written, in a table of the lake.

    orders = lake.table("shop.orders")
    orders.put({"id": 1, "customer": "ada", "amount": 9.5})
    orders.get(1)
    orders.scan("amount > 5").to_arrow()

This is the public interface. `OpenTable` has the definition, the history and the engine.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import cycle
from threading import Event
from typing import Final, Self, cast

import pyarrow as pa

from neve.catalog.evolution import Evolution
from neve.catalog.moment import Moment, past_moment_ms
from neve.catalog.open_table import OpenTable
from neve.catalog.sort_order import SortOrder
from neve.catalog.sql_door import Frame, Parameters, SqlResult
from neve.catalog.transaction import IsolationName, Transaction
from neve.catalog.version_view import VersionStats
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.applied_changes import AppliedChanges, ChangeOptions, application_of
from neve.engine.change_feed import ChangeFeed, Changes
from neve.engine.conditional_writes import ConditionalWrites
from neve.engine.row_input import Rows
from neve.engine.snapshot import Snapshot, SnapshotOrigin, rows_in_order
from neve.engine.table_engine import TableEngine
from neve.engine.upkeep import ExpireReport, GarbageReport
from neve.engine.verification import VerifyReport
from neve.errors import InvalidArgument
from neve.iceberg.published_check import PublishedCheck
from neve.jobs.maintenance import LiveMaintenance
from neve.manifest.documents import Lease
from neve.manifest.table_head import Retention
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.observability.metrics import (
    GET_SECONDS,
    PUT_SECONDS,
    SAMPLED,
    SCAN_SECONDS,
    UPSERT_SECONDS,
    Recorder,
)
from neve.read.dataset import ArrowDataset, scan_dataset
from neve.read.filters import Filter
from neve.read.scan import Scan, ScanRequest
from neve.storage.clock import Clock
from neve.storage.object_store import RequestCount, requests_of
from neve.storage.own_process import Handle
from neve.table.table_view import Row
from neve.wal.replay import ReplayReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStats(VersionStats):
    """Sums over the files of the current Version, and the state of the open table."""

    sequence: int
    """Sequence number of the last visible write."""
    memtable_rows: int
    """Changes that are not in data files yet."""
    memtable_bytes: int
    memtable_count: int
    open_snapshots: int
    """Versions that readers of this handle have pinned."""
    cache_bytes: int
    pressure: str
    """Why writers are slowed down; empty when they are not."""
    stall_seconds: float
    """Time that writers were slowed down since the table was opened."""
    failure: str
    """Why background work fails; empty while it succeeds."""
    is_read_only: bool
    requests: Mapping[str, RequestCount] = field(default_factory=dict)
    """In a bucket: requests of the whole lake since it was opened, by kind, with bytes and cost."""

    @property
    def request_cost(self) -> float:
        """What the requests cost by the storage option `prices`; US dollars by default."""
        return sum(each.cost for each in self.requests.values())


def table_stats(version: VersionStats, engine: TableEngine) -> TableStats:
    """Add the state of an open table to the sums of its current Version; never waits."""
    view = engine.current.view
    writer = None if engine.is_read_only else engine.writer
    failure = None if writer is None else writer.backlog.failure
    return TableStats(
        **{field.name: getattr(version, field.name) for field in fields(VersionStats)},
        sequence=engine.current.sequence,
        memtable_rows=sum(memtable.row_count for memtable in view.memtables),
        memtable_bytes=sum(memtable.byte_count for memtable in view.memtables),
        memtable_count=len(view.memtables),
        open_snapshots=engine.leases.pinned_count,
        cache_bytes=engine.files.groups.byte_count + engine.files.vectors.byte_count,
        pressure="" if writer is None else writer.backlog.pressure.reason,
        stall_seconds=0.0 if writer is None else writer.backlog.stall_seconds,
        failure="" if failure is None else str(failure),
        is_read_only=engine.is_read_only,
        requests=requests_of(engine.parts.objects),
    )


# Internals that a table showed in 0.1.
_FORMER_NAMES: Final = frozenset(
    {
        "commit",
        "current",
        "engine",
        "meta",
        "publish_committed",
        "published_lineage",
        "schemas",
        "specs",
        "stored",
        "update_definition",
        "update_partition_spec",
        "update_schema",
        "update_sort_order",
    }
)


class Table(Handle):
    """A table that is open for reading and writing rows; safe for many threads."""

    def __init__(self, table: OpenTable) -> None:
        self._open = table

    def __repr__(self) -> str:
        table = self._open
        notes = ", read_only" * table.is_read_only + ", closed" * table.is_closed
        return f"Table({self.name!r}, key={list(self.primary_key)}, version={self.version}{notes})"

    def _repr_html_(self) -> str:
        return self._open._repr_html_()

    # Definition

    @property
    def name(self) -> str:
        """Dotted name."""
        return self._open.name

    @property
    def table_id(self) -> str:
        """Name of the directory of its files in the lake; never used again after a drop."""
        return self._open.table_id

    @property
    def uuid(self) -> str:
        """Unique identifier of the table."""
        return self._open.uuid

    @property
    def location(self) -> str:
        """Location of its files, as a URI."""
        return self._open.location

    @property
    def format_version(self) -> int:
        """Iceberg's format version."""
        return self._open.format_version

    @property
    def properties(self) -> dict[str, str]:
        """Properties that were set."""
        return self._open.properties

    @property
    def retention(self) -> Retention:
        """How much history is kept."""
        return self._open.retention

    @property
    def version(self) -> int:
        """Number of the current Version: the current snapshot id."""
        return self._open.version

    @property
    def schema(self) -> TableSchema:
        """The current schema."""
        return self._open.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Names of the key columns, in key order."""
        return self._open.primary_key

    @property
    def spec(self) -> PartitionSpec:
        """The current partition spec."""
        return self._open.spec

    @property
    def sort_order(self) -> SortOrder:
        """The current sort order."""
        return self._open.sort_order

    @property
    def recovery(self) -> ReplayReport:
        """What was replayed from the log when the table was opened, and what was unreadable."""
        return self._open.engine.recovery

    # Writing

    def put(self, row: Mapping[str, object]) -> int:
        """Write one row, replacing the row of its key; return its sequence number.

        Durable on return, depending on the `sync` option. Raises SchemaMismatch with the column
        that is missing, unknown, or of another type; then nothing is written.
        """
        table = self._open
        return (table.opened or table.engine).put(row)

    def upsert(self, rows: Rows, columns: Sequence[str] | None = None) -> int:
        """Write many rows, all or none, each replacing the row of its key.

        Return the last sequence number. Rows are dicts, any Arrow object, a pandas or a Polars
        frame; of two rows with one key the later wins. Rows of a `RecordBatchReader`, and more than
        about 128 MiB of rows, are several batches, each of them all or nothing.

        `columns` writes only these, and leaves other columns of existing rows unchanged. In a new
        row the others get their default or NULL; raises SchemaMismatch when a column has neither.
        """
        if columns is not None:
            return ConditionalWrites(self._open.engine).upsert(rows, columns)
        engine = self._open.engine
        sequence = engine.current.sequence
        for prepared in engine.writer.path.upsert(rows):
            sequence = engine.write(prepared)
        return sequence

    def apply(
        self,
        changes: Rows,
        op: str = "op",
        order_by: str | Sequence[str] | None = None,
        *,
        app_id: str | None = None,
        batch: int | None = None,
        operations: Mapping[str, str] | None = None,
    ) -> int:
        """Write a batch of changes, upserts and deletes, all or none.

        Return the last sequence number. `op` names the column with the operation: `c u d r`,
        `insert`, `update`, `upsert`, `delete`, or `+I -U +U -D`; `operations` maps others to
        "upsert", "delete" or "skip". A delete needs only the key. Of several changes of one key
        the one with the greatest `order_by` wins, otherwise the last. Columns for `op` and
        `order_by` that the table does not have are not stored.

        With `app_id`, the number of the batch is durable together with its rows: a batch that is
        applied again is acknowledged and skipped, one that goes back is InvalidArgument.
        """
        options = ChangeOptions.of(op, order_by, operations)
        application = application_of(app_id, batch)
        return AppliedChanges(self._open.engine).apply(changes, options, application).sequence

    def last_batch(self, app_id: str) -> int | None:
        """Return the number of the last batch of an application, or None before its first."""
        return AppliedChanges(self._open.engine).last_batch(app_id)

    def put_if_absent(self, row: Mapping[str, object]) -> int | None:
        """Write one row if its key has none; return its sequence number, or None.

        No other write of this table comes between the check and the write. Commits of others, such
        as Spark jobs, count once this handle shows their Versions.
        """
        return ConditionalWrites(self._open.engine).put_if_absent(row)

    def compare_and_put(
        self, row: Mapping[str, object], expected: Mapping[str, object] | None
    ) -> int | None:
        """Write one row if the row of its key is as expected; return its sequence number, or None.

        `expected` is the whole row as it was read; a column that is left out has its default or
        NULL. None expects no row. Values are compared, not their spelling. Atomic like
        `put_if_absent`.
        """
        return ConditionalWrites(self._open.engine).compare_and_put(row, expected)

    def delete(self, key: object) -> int:
        """Delete the row of a key, whether there is one or not; return the sequence number."""
        engine = self._open.engine
        return engine.write(engine.writer.path.delete(key))

    def delete_many(self, keys: object) -> int:
        """Delete the rows of many keys, all or none; return the last sequence number."""
        engine = self._open.engine
        prepared = engine.writer.path.delete_many(keys)
        return engine.current.sequence if prepared is None else engine.write(prepared)

    def delete_where(self, filter: Filter) -> int:  # noqa: A002 - the word of `scan`
        """Delete every row that matches a filter, as of one moment.

        Return the last sequence number. No other write of this process comes between finding the
        rows and deleting them.
        """
        return self._open.engine.delete_where(filter)

    def transaction(self, isolation: IsolationName = "snapshot") -> Transaction:
        """Begin a transaction of this table: `with table.transaction() as tx: …`.

        It reads one moment and its own writes, and commits all of them or nothing when the block
        ends. Raises Conflict when another writer changed its keys first; with
        `isolation="serializable"` also when something that it read was changed.
        """
        return Transaction(self._open, isolation)

    # Reading

    def get(self, key: object) -> Row | None:
        """Return the row of a key, or None.

        A composite key is a tuple in key order; any key may be a dict of the key columns.
        """
        table = self._open
        return (table.opened or table.engine).get(key)

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; missing keys are absent, or rows of NULL."""
        engine = self._open.engine
        return rows_in_order(keys, engine.current.view, engine.get_many, with_missing=with_missing)

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        key_range: tuple[object, object] | None = None,
        reverse: bool = False,
    ) -> Scan:
        """Read many rows, as of now.

        `filter` is text such as "amount > 5 and day >= '2024-01-01'", `neve.col(…)`, or an
        expression of PyIceberg or Arrow. `key_range` is (first, end), the end excluded, None for no
        bound; with it, or with `reverse`, rows come in key order.
        """
        request = ScanRequest(
            filter=filter, columns=columns, limit=limit, key_range=key_range, reverse=reverse
        )
        return self._open.engine.scan(request, self._open.check_open)

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run SQL in which this table is called `this`; otherwise as `Lake.sql`."""
        self._open.check_not_closed()
        with self._open.sql().session(this=self) as session:
            return session.sql(text, params, **frames)

    def dataset(self) -> ArrowDataset:
        """Return the table as a `pyarrow.dataset.Dataset`, which is read as of each run.

        DuckDB, Polars and others push columns and filters into it; see `neve.read.dataset`.
        """
        return scan_dataset(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let DuckDB, Polars and others read all rows directly, as of now."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def snapshot(self) -> Snapshot:
        """Freeze the current state, including unflushed rows; close the snapshot when done."""
        return self._open.engine.snapshot(self._origin())

    def at(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Return a retained Version to read: by number, by the time it was current, or by a tag.

        It shows the rows that had not expired when it was committed. A time is an aware datetime,
        ISO 8601 text, an age such as "2h ago", or milliseconds since 1970. Raises NotFound with
        those that exist.
        """
        self.refresh()
        found = self._open.at(version, timestamp=timestamp, tag=tag)
        origin = SnapshotOrigin(
            check_open=self._open.check_open, table_name=self.name, tag=tag or ""
        )
        return self._open.engine.snapshot_of(found.version, origin)

    # Changes

    def changes(
        self,
        since: int | None = None,
        until: int | None = None,
        *,
        consumer: str | None = None,
        keep_seconds: float | None = None,
        live: bool = False,
    ) -> pa.RecordBatchReader:
        """Read the changes of rows after Version `since`, 0 for all, up to `until` or now.

        Columns are the table's, as of `until`, and `_change_type` (insert, update_preimage,
        update_postimage, delete), `_commit_version` and `_commit_timestamp`. If rows of the table
        expire, `_expired` says which deletes removed rows that had expired. Commits come in their
        order, rows of a commit by key. Rows that are not flushed are left out, unless `live`.
        History is kept until the reader is read to its end or garbage-collected. Raises NotFound,
        with the oldest Version that is kept, when a part of it has expired.

        With `live`, the table is refreshed, and the changes that its unflushed rows make to the
        current Version come last; their `_commit_version` and `_commit_timestamp` are NULL. They
        are provisional: a flush commits them and they are returned again, or a later write undoes
        them and they are not. So each reader's live changes replace those of the reader before it.

        A `consumer` has a name and continues where it stopped, whatever the process: the table
        stores its position once the reader is read to its end, and not if it is dropped before. A
        new one starts after `since`; without it at 0, or at the oldest Version if earlier ones have
        expired. One that exists skips to `since`, and never goes back. It keeps history from its
        position on, for `keep_seconds` after it was last read, 7 days unless given once. Live
        changes do not move the position.
        """
        feed = ChangeFeed(self._open.engine)
        found: Changes
        if consumer is not None:
            _refuse_with_consumer(until)
            self._open.check_may_consume()
            found = feed.consume(consumer, since, keep_seconds=keep_seconds, live=live)
        elif keep_seconds is not None:
            raise InvalidArgument("keep_seconds needs a consumer", hint="Name one with consumer=…")
        else:
            found = feed.changes(cast("int", since), until, live=live)  # None is refused there
        if live:
            self._open.see()  # the rows were refreshed, and the definition goes with them
        return found.reader()

    def follow(
        self, since: int, *, poll_seconds: float = 1.0, stop: Event | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the changes after Version `since`, batch by batch, and wait for more.

        Rows of two commits are never in one batch. Commits of this process are seen at once, those
        of others every `poll_seconds`. Ends when the table is closed or `stop` is set; raises
        Closed when that splits a commit. History from the follower's position on is kept.
        """
        return ChangeFeed(self._open.engine).follow(since, poll_seconds=poll_seconds, stop=stop)

    # History and names

    def history(self) -> pa.Table:
        """Return the retained Versions, oldest first."""
        self._open.check_not_closed()
        self._open.see()
        return self._open.history()

    def files(self) -> pa.Table:
        """Return the data files of the current Version."""
        self._open.check_not_closed()
        self._open.see()
        return self._open.files()

    def leases(self) -> tuple[Lease, ...]:
        """Return the leases that readers hold now; each keeps Versions and their files."""
        return self._open.leases()

    def consumers(self) -> pa.Table:
        """Return the named consumers of `changes`: how far each has come, whether it holds history.

        Columns are name, position, updated, keep_seconds and holds.
        """
        self._open.check_not_closed()
        self._open.see()
        return self._open.consumers()

    def drop_consumer(self, name: str) -> None:
        """Remove a named consumer of `changes`; raises NotFound. A read-only handle may do it."""
        self._open.check_may_consume()
        self._open.drop_consumer(name)

    def stats(self) -> TableStats:
        """Return the size and health of the table."""
        self._open.see()
        return table_stats(self._open.stats(), self._open.engine)

    def tag(self, name: str, version: int | None = None) -> None:
        """Tag a retained Version, by default the current one; it never expires. Moves the tag."""
        self._open.check_may_write()
        self._open.see()
        self._open.stored.writer_state.tag(name, self.version if version is None else version)
        self._open.see_committed()

    def remove_tag(self, name: str) -> None:
        """Remove a tag; raises NotFound."""
        self._open.check_may_write()
        self._open.stored.writer_state.remove_tag(name)
        self._open.see_committed()

    def rollback(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> int:
        """Make an old Version the current one again, after flushing; return the new number.

        It is chosen as in `at`. Later Versions stay in the history until they expire.
        """
        self._open.check_may_write()
        self.refresh()
        wanted = self._open.at(version, timestamp=timestamp, tag=tag)
        number = self._maintenance.rollback(wanted.number)
        self._open.see_committed()
        return number

    def evolve(self) -> Evolution:
        """Begin a block whose changes of columns, partitions and sort order are one Version.

        `with table.evolve() as e: e.add_column("note", "string")`; see `Evolution`. Unflushed rows
        stay, and are read under the new schema like all others.
        """
        self._open.check_may_write()
        return self._open.evolve()

    def set_properties(
        self, properties: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> None:
        """Set some properties and remove others, all or none; the rest stays."""
        self._open.check_may_write()
        self._open.set_properties(properties, remove=remove)

    def iceberg_metadata(self) -> str:
        """Return the location of the current Iceberg metadata, published first if missing.

        Other engines read the table from there, without unflushed rows. A read-only handle does not
        publish beside a live writer: it returns what is published, and raises NotFound when nothing
        is.
        """
        return self._open.iceberg_metadata()

    # Maintenance

    def flush(self) -> int:
        """Commit everything written so far as a Version; returns the current one's number.

        It is published on return, depending on the option `iceberg_publish`. Raises NotPublished
        when only that fails: the rows are committed, and the next commit publishes them.
        """
        number = self._maintenance.flush()
        self._open.see_committed()
        return number

    def compact(
        self,
        executor: str | PlanExecutor = "local",
        *,
        full: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Flush, then rewrite files until no level needs it; return the current Version.

        Rows that have expired are removed first. `full` rewrites everything. `progress` is called
        with the rows done and the total.
        """
        number = self._maintenance.compact(full=full, executor=executor, progress=progress)
        self._open.see_committed()
        return number

    def expire(
        self, *, keep_last: int | None = None, older_than: Moment | None = None
    ) -> ExpireReport:
        """Remove old Versions by the table's retention or the arguments; tagged ones stay.

        Rows that have expired are removed first.
        Versions that readers or consumers of the change feed still need stay too, and the report
        names those that need them.
        On a full disk it uses the space that the log has reserved; the report says if that was not
        enough to publish the rest. Raises InvalidArgument for a time in the future.
        """
        clock = self._open.clock
        older_than_ms = None if older_than is None else past_moment_ms(older_than, clock)
        maintenance = self._maintenance
        report = maintenance.expire(keep_last=keep_last, older_than_ms=older_than_ms)
        self._open.see()
        return replace(report, is_publishing_due=not maintenance.publish_expired(self.version))

    def collect_garbage(self, *, dry_run: bool = True) -> GarbageReport:
        """Delete files that no retained Version reaches; a dry run, the default, only lists them.

        Files under a reader's lease are left for the next call.
        """
        return self._maintenance.collect_garbage(dry_run=dry_run)

    def verify(
        self, *, independent: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> VerifyReport:
        """Read everything and check it; raises Corruption when something is wrong.

        The report says what was read and what was not. `independent` reads the published table with
        a reader that shares no code with the engine, and checks that both have the same rows, one
        per key. `progress` is called with the bytes done and the total.
        """
        further = PublishedCheck(independent=independent)
        return self._maintenance.verify(progress=progress, further=(further,))

    def refresh(self) -> Self:
        """Show new commits of others and, read-only, newly logged rows. Return itself."""
        self._open.refresh()
        return self

    def close(self) -> None:
        """End this handle, once. Unflushed rows stay in the log for the next open."""
        self._open.close()

    def _origin(self, tag: str = "") -> SnapshotOrigin:
        return SnapshotOrigin(check_open=self._open.check_open, table_name=self.name, tag=tag)

    @property
    def _maintenance(self) -> LiveMaintenance:
        return LiveMaintenance(self._open.engine)


def _refuse_with_consumer(until: int | None) -> None:
    if until is not None:
        raise InvalidArgument(
            "a consumer reads up to the current version, not until another one",
            hint="Leave out until, or read without a consumer",
        )


def open_table_of(table: Table) -> OpenTable:
    """Return the internals of a table, for the code of this package."""
    return table._open  # noqa: SLF001 - users of a table do not see it


def _find_former(self: Table, name: str) -> object:
    """Return an internal that `Table` showed in 0.1, and warn."""
    if name not in _FORMER_NAMES:
        raise AttributeError(f"'Table' object has no attribute {name!r}", name=name, obj=self)
    warnings.warn(
        f"Table.{name} is internal, and the next release removes it: use `evolve` to change "
        "the definition, and `lake.load_table` for its history",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(self._open, name)


# Not in the class: type checkers and completion must not see these names.
setattr(Table, "__getattr__", _find_former)  # noqa: B010


class MeasuredTable(Table):
    """A table whose calls are timed, in a lake that has a recorder with labels; for many threads.

    A get takes microseconds, and looking at the clock twice takes a part of one: of gets and puts,
    one of `SAMPLED` is measured. Upserts and scans are measured all.
    """

    def __init__(self, table: OpenTable, recorder: Recorder, clock: Clock) -> None:
        super().__init__(table)
        self._recorder = recorder
        self._monotonic = clock.monotonic
        # One call of C for each get and put.
        self._is_due: Callable[[], bool] = cycle((True, *(False,) * (SAMPLED - 1))).__next__

    def put(self, row: Mapping[str, object]) -> int:
        """Write one row; see `Table.put`."""
        if not self._is_due():
            return Table.put(self, row)
        began = self._monotonic()
        sequence = Table.put(self, row)
        self._recorder.add(PUT_SECONDS, self._monotonic() - began)
        return sequence

    def upsert(self, rows: Rows, columns: Sequence[str] | None = None) -> int:
        """Write many rows; see `Table.upsert`."""
        began = self._monotonic()
        sequence = super().upsert(rows, columns)
        self._recorder.add(UPSERT_SECONDS, self._monotonic() - began)
        return sequence

    def get(self, key: object) -> Row | None:
        """Return the row of a key, or None; see `Table.get`."""
        table = self._open
        engine = table.opened or table.engine
        # Another call of a method would take longer than counting.
        if not self._is_due():
            return engine.get(key)
        began = self._monotonic()
        row = engine.get(key)
        self._recorder.add(GET_SECONDS, self._monotonic() - began)
        return row

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        key_range: tuple[object, object] | None = None,
        reverse: bool = False,
    ) -> Scan:
        """Read many rows; see `Table.scan`."""
        scan = super().scan(filter, columns, limit, key_range, reverse)
        return scan.timed(self._monotonic, partial(self._recorder.add, SCAN_SECONDS))


def table_handle(table: OpenTable) -> Table:
    """Return the handle that users get of a table."""
    recorder = table.measured_by
    return Table(table) if recorder is None else MeasuredTable(table, recorder, table.clock)
