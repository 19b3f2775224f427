"""Table: rows by key, durable when written, in a table of the catalog.

    orders = lake.table("shop.orders")
    orders.put({"id": 1, "customer": "ada", "amount": 9.5})
    orders.get(1)
    orders.scan("amount > 5").to_arrow()

The catalog's half (definition, history, files) is `CatalogTable`; rows are the business of the
engine that the handle holds. Handles of one table from one catalog share an engine.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Event, Lock
from types import TracebackType
from typing import Self

import pyarrow as pa

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.evolution import Evolution
from neve.catalog.lake_stores import LakeStores, LiveTables
from neve.catalog.moment import Moment, past_moment_ms
from neve.catalog.plan_change import DefinitionChange
from neve.catalog.settlement import Settlement
from neve.catalog.stored_table import TableState
from neve.catalog.table import TableStats, table_stats
from neve.catalog.table_meta import TableMeta
from neve.compaction.rewrite_job import PlanExecutor
from neve.engine.change_feed import ChangeFeed
from neve.engine.conditional_writes import ConditionalWrites
from neve.engine.row_input import Rows
from neve.engine.snapshot import Snapshot, SnapshotOrigin, rows_in_order
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import PublishMode, TableOptions
from neve.engine.upkeep import ExpireReport, GarbageReport
from neve.engine.verification import VerifyReport
from neve.errors import Closed, InvalidArgument, NotFound
from neve.iceberg.published_check import PublishedCheck
from neve.jobs.maintenance import Maintenance
from neve.manifest.table_head import Requirements
from neve.read.filters import Filter
from neve.read.scan import Scan
from neve.table.table_parts import append_files_of
from neve.table.table_view import Row


class Table(CatalogTable):
    """A table that is open for reading and writing rows; safe for many threads."""

    def __init__(
        self,
        warehouse: LakeStores,
        settlement: Settlement,
        meta: TableMeta,
        state: TableState,
        *,
        options: TableOptions | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(warehouse, settlement, meta, state)
        # Fixed at construction.
        self._options = options
        self._read_only = read_only
        self._live: LiveTables = warehouse.live_tables
        # Changed with _opening held, read without: an engine is acquired once, and released once.
        self._opening = Lock()
        self._engine: TableEngine | None = None
        self._forgotten: weakref.finalize[[TableEngine], Table] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        engine = self._engine
        is_closed = self._is_closed or self._stores.is_closed
        is_closed = is_closed or (engine is not None and engine.is_closed)
        notes = ", read_only" * self._read_only + ", closed" * is_closed
        return f"Table({self.name!r}, key={list(self.primary_key)}, version={self.version}{notes})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Writing

    def put(self, row: Mapping[str, object]) -> int:
        """Write one row, replacing the one of its key; gives its sequence number.

        Durable on return, as the `sync` option says. Raises SchemaMismatch naming the column that
        is missing, unknown, or of another type; nothing is written then.
        """
        engine = self._engine
        if engine is None:
            engine = self.engine
        return engine.writer.put(row)

    def upsert(self, rows: Rows, columns: Sequence[str] | None = None) -> int:
        """Write many rows, all or none, each replacing the one of its key; gives the last sequence.

        Rows are dicts, anything Arrow, a pandas or a Polars frame; of two rows with one key the
        later wins. Rows of a `RecordBatchReader`, and what takes more than about 128 MiB, are
        several batches, each of which is all or nothing.

        `columns` writes these only, and leaves the other columns of the rows as they are. Where a
        key has no row yet they become their default or NULL; one that can be neither refuses the
        batch with SchemaMismatch.
        """
        if columns is not None:
            return ConditionalWrites(self.engine).upsert(rows, columns)
        writer = self.engine.writer
        sequence = self.engine.current.sequence
        for prepared in writer.path.upsert(rows):
            sequence = writer.write(prepared)
        return sequence

    def put_if_absent(self, row: Mapping[str, object]) -> int | None:
        """Write one row if its key has none; gives its sequence number, None when it has one.

        No other write of this table comes between looking and writing. Other committers, such as
        Spark jobs, are seen as far as this handle shows their Versions.
        """
        return ConditionalWrites(self.engine).put_if_absent(row)

    def compare_and_put(
        self, row: Mapping[str, object], expected: Mapping[str, object] | None
    ) -> int | None:
        """Write one row if that of its key is as expected; gives its sequence number, or None.

        `expected` is the whole row as it was read, a column left out being its default or NULL;
        None expects no row. Values are compared, not how they were written. Atomic as
        `put_if_absent` is.
        """
        return ConditionalWrites(self.engine).compare_and_put(row, expected)

    def delete(self, key: object) -> int:
        """Delete the row of a key, whether there is one or not; gives the sequence number."""
        writer = self.engine.writer
        return writer.write(writer.path.delete(key))

    def delete_many(self, keys: object) -> int:
        """Delete the rows of many keys, all or none; gives the last sequence number."""
        writer = self.engine.writer
        prepared = writer.path.delete_many(keys)
        return self.engine.current.sequence if prepared is None else writer.write(prepared)

    def delete_where(self, filter: Filter) -> int:  # noqa: A002 - the word of `scan`
        """Delete every row that matches a filter, as of one moment; gives the last sequence number.

        No other write of this process comes between finding the rows and deleting them.
        """
        return self.engine.delete_where(filter)

    # Reading

    def get(self, key: object) -> Row | None:
        """Return the row of a key, None when there is none.

        A composite key is a tuple in key order; any key may be a dict of the key columns.
        """
        engine = self._engine
        if engine is None:
            engine = self.engine
        return engine.get(key)

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; missing keys are absent, or rows of NULL."""
        engine = self.engine
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
        expression of PyIceberg or Arrow. `key_range` is (first, end) without the end, None for no
        bound; with it, or with `reverse`, rows come in the order of their keys.
        """
        return self.engine.scan(
            filter=filter,
            columns=columns,
            limit=limit,
            key_range=key_range,
            reverse=reverse,
            check=self._check_open,
        )

    def snapshot(self) -> Snapshot:
        """Freeze the table as it is now, unflushed rows included; close it when done."""
        origin = SnapshotOrigin(check_open=self._check_open, table_name=self.name)
        return self.engine.snapshot(origin)

    def at(  # type: ignore[override]  # rows too, not only what is known of them
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> Snapshot:
        """Return a retained Version to read: by number, by the time it was current, or by a tag.

        A time is an aware datetime, ISO 8601 text, an age such as "2h ago", or milliseconds since
        1970. Raises NotFound that says which there are.
        """
        self.refresh()
        found = super().at(version, timestamp=timestamp, tag=tag)
        origin = SnapshotOrigin(check_open=self._check_open, table_name=self.name, tag=tag or "")
        return self.engine.snapshot_of(found.version, origin)

    # Changes

    def changes(self, since: int, until: int | None = None) -> pa.RecordBatchReader:
        """Read what happened to rows after Version `since`, 0 for all, up to `until` or now.

        Columns are the table's, as of `until`, and `_change_type` (insert, update_preimage,
        update_postimage, delete), `_commit_version` and `_commit_timestamp`. Commits come in their
        order, rows of one by key. Rows that are not flushed are not told of. History stays until
        the reader is read to its end or forgotten. Raises NotFound when a part of it has expired,
        and says from where on it is kept.
        """
        return ChangeFeed(self.engine).changes(since, until)

    def follow(
        self, since: int, *, poll_seconds: float = 1.0, stop: Event | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read what happened after Version `since`, batch by batch, and wait for more.

        Rows of two commits are never in one batch. Commits of this process are seen at once, those
        of others every `poll_seconds`. Ends when the table is closed or `stop` is set; Closed is
        raised when that cuts a commit in two. History from where the follower is stays meanwhile.
        """
        return ChangeFeed(self.engine).follow(since, poll_seconds=poll_seconds, stop=stop)

    # History and names

    def history(self) -> pa.Table:
        """Return the retained Versions, oldest first."""
        self._check_not_closed()
        self._see()
        return super().history()

    def files(self) -> pa.Table:
        """Return the data files of the current Version."""
        self._check_not_closed()
        self._see()
        return super().files()

    def stats(self) -> TableStats:
        """Return the size and health of the table."""
        self._see()
        return table_stats(super().stats(), self.engine)

    def tag(self, name: str, version: int | None = None) -> None:
        """Name a retained Version, by default the current one; it never expires. Names move."""
        self._check_may_write()
        self._see()
        self.stored.work.tag(name, self.version if version is None else version)
        self._see_committed()

    def remove_tag(self, name: str) -> None:
        """Take a name away; raises NotFound."""
        self._check_may_write()
        self.stored.work.remove_tag(name)
        self._see_committed()

    def rollback(
        self,
        version: int | None = None,
        *,
        timestamp: Moment | None = None,
        tag: str | None = None,
    ) -> int:
        """Make an old Version the current one again, after flushing; gives the new number.

        It is said which as in `at`. What came after it stays in the history until it expires.
        """
        self._check_may_write()
        self.refresh()
        wanted = super().at(version, timestamp=timestamp, tag=tag)
        number = self._maintenance.rollback(wanted.number)
        self._see_committed()
        return number

    def evolve(self) -> Evolution:
        """Begin a block whose changes of columns, partitions and sort order are one Version.

        `with table.evolve() as e: e.add_column("note", "string")`; see `Evolution`. Rows that are
        not flushed stay, and read like all others under the new schema.
        """
        self._check_may_write()
        return super().evolve()

    def update_definition(
        self, asked: DefinitionChange, *, requirements: Requirements | None = None
    ) -> int:
        """Change several parts of the definition as one Version; gives its number."""
        self._check_not_closed()
        return super().update_definition(asked, requirements=requirements)

    def set_properties(
        self, properties: Mapping[str, str] | None = None, *, remove: Iterable[str] = ()
    ) -> None:
        """Set some properties and remove others, all or none; the rest stays."""
        self._check_may_write()
        super().set_properties(properties, remove=remove)

    def iceberg_metadata(self) -> str:
        """Return the location of the current Iceberg metadata, published first if missing.

        Other engines read the table from there; rows that are not flushed are not in it. A handle
        for reading only writes nothing where a live writer does: it gives what is published, and
        raises NotFound when nothing is.
        """
        self._check_not_closed()
        if not self._read_only or append_files_of(self.stored.objects) is None:
            return super().iceberg_metadata()
        newest = self._publisher.newest()
        if newest is None:
            raise NotFound(
                f"the table {self.name!a} has not been published",
                path=self.stored.paths.metadata,
                hint="Open it without read_only and ask again, or let its writer flush",
            )
        return newest

    def publish_committed(self) -> None:
        """Have other engines see what was just committed, as the options say."""
        engine = self._opened()
        if engine is not None:
            engine.publish_committed(self.version)
        elif (self._options or TableOptions()).iceberg_publish == PublishMode.COMMIT:
            super().publish_committed()

    # Maintenance

    def flush(self) -> int:
        """Commit everything written so far as a Version; returns the current one's number.

        It is published on return, as the option `iceberg_publish` says. When only that fails this
        raises NotPublished: the rows are committed, and the next commit publishes them.
        """
        number = self._maintenance.flush()
        self._see_committed()
        return number

    def compact(
        self,
        executor: str | PlanExecutor = "local",
        *,
        full: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Flush, then rewrite files until no level asks for more; gives the current Version.

        `full` rewrites everything. `progress` is told how many of how many rows are done.
        """
        number = self._maintenance.compact(full=full, executor=executor, progress=progress)
        self._see_committed()
        return number

    def expire(
        self, *, keep_last: int | None = None, older_than: Moment | None = None
    ) -> ExpireReport:
        """Let old Versions go, as retention or the arguments say; tagged ones stay.

        On a full disk it works with the space that the log has reserved; when that is not enough
        to publish what is left, the report says so. Raises InvalidArgument for a time that is
        still to come.
        """
        clock = self._stores.clock
        older_than_ms = None if older_than is None else past_moment_ms(older_than, clock)
        maintenance = self._maintenance
        report = maintenance.expire(keep_last=keep_last, older_than_ms=older_than_ms)
        self._see()
        return replace(report, is_publishing_due=not maintenance.publish_expired(self.version))

    def collect_garbage(self, *, dry_run: bool = True) -> GarbageReport:
        """Delete files that no retained Version reaches; a dry run, the default, only says which.

        Files that readers hold a lease on wait for the next time.
        """
        return self._maintenance.collect_garbage(dry_run=dry_run)

    def verify(
        self, *, independent: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> VerifyReport:
        """Read everything and check it; raises Corruption when something is wrong.

        The report says what was read and what was not. `independent` reads the published table
        with a reader that shares no code with the engine, and compares its rows with the engine's:
        the same rows, one per key. `progress` is called with how many of how many bytes are done.
        """
        further = PublishedCheck(independent=independent)
        return self._maintenance.verify(progress=progress, further=(further,))

    def refresh(self) -> "Table":
        """Show what others committed and, read-only, logged since. Gives itself."""
        self._check_not_closed()
        super().refresh()
        engine = self._opened()
        if engine is not None:
            engine.refresh()
        return self

    def close(self) -> None:
        """End this handle; twice is no error. Unflushed rows stay in the log for the next open."""
        with self._opening:
            self._is_closed = True
            engine, self._engine = self._engine, None
        if engine is not None and self._forgotten is not None and self._forgotten.detach():
            self._live.release(engine)

    @property
    def engine(self) -> TableEngine:
        """What reads and writes the rows; opened when first needed."""
        self._stores.check_open()
        with self._opening:
            self._check_not_closed()
            if self._engine is None:
                engine = self._live.acquire(
                    self.table_id,
                    read_only=self._read_only,
                    options=self._options,
                    make_parts=lambda: self.stored.parts(
                        self.properties,
                        recorder=self._stores.recorder,
                        listener=self._stores.listener,
                        publish=self._publisher.publish_once,
                        lineage=self.published_lineage,
                    ),
                )
                self._forgotten = weakref.finalize(self, self._live.forget, engine)
                self._engine = engine
            return self._engine

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise Closed(f"the handle of {self.name!a} was closed", hint="Open the table again")

    def _check_may_write(self) -> None:
        self._check_not_closed()
        if self._read_only:
            raise InvalidArgument(
                f"the table {self.name!a} was opened for reading only",
                hint="Open it without read_only, or use the `neve` command beside its writer",
            )

    def _check_open(self) -> None:
        """Raise when this handle was closed; who holds the check keeps the handle."""
        self.engine.check_open()

    @property
    def _maintenance(self) -> Maintenance:
        return Maintenance(self.engine)

    def _see(self) -> None:
        """Show the newest state in the catalog's half."""
        super().refresh()

    def _see_committed(self) -> None:
        """Show what was just committed, and have it published; raises NotPublished."""
        self._see()
        self.publish_committed()

    def _unflushed(self) -> int | None:
        engine = self._engine
        if engine is None or engine.is_closed:
            return None
        return sum(memtable.row_count for memtable in engine.current.view.memtables)

    def _problems(self) -> Iterator[str]:
        if self._is_closed:
            yield "the handle was closed: open the table again"

    def _opened(self) -> TableEngine | None:
        """Return the engine if any handle, in any thread, has opened it or is about to."""
        return self._live.opened(self.table_id, read_only=self._read_only)
