"""Lake: the tables of a lake by name, in a key-value store on an object store.

    with neve.open("./lake") as lake:
        orders = lake.create_table("shop.orders", schema, primary_key=["id"])
        lake.rename_table("shop.orders", "shop.sales")

CATALOG-11  Every operation is atomic and durable when it returns, for any number of threads and
            processes.
CATALOG-12  A refused operation changes nothing.
CATALOG-13  Names are looked up again in each call, never in memory.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from os import PathLike, fspath
from typing import Final, TypeVar
from uuid import UUID

import pyarrow as pa

from neve.catalog.catalog_state import is_table_id
from neve.catalog.catalog_table import CatalogTable
from neve.catalog.foreign_definition import requested_table
from neve.catalog.foreign_transaction import ForeignTransactions
from neve.catalog.guests import Guests, GuestTable
from neve.catalog.known_properties import check_removed, check_texts
from neve.catalog.lake_stores import LakeStores
from neve.catalog.open_table import OpenTable
from neve.catalog.running_server import LoadServer, RunningServer
from neve.catalog.settlement import RecoveryReport, Settled, Settlement, refuse_stranger, up_to_date
from neve.catalog.sql_door import Frame, MakeSqlEngine, Parameters, SqlResult, SqlSession
from neve.catalog.stored_table import TableState
from neve.catalog.system_tables import SYSTEM_TABLES, ListedTable, system_listing
from neve.catalog.table import Table, open_table_of, table_handle
from neve.catalog.table_meta import TableMeta
from neve.catalog.table_name import TableName, check_namespace
from neve.catalog.table_request import SchemaInput, TableRequest
from neve.catalog.transaction import IsolationName, LakeTransaction, retried
from neve.engine.applied_changes import application_of
from neve.engine.snapshot import Snapshot
from neve.engine.table_options import TableOptions, check_flags
from neve.errors import (
    AlreadyExists,
    CatalogConflict,
    Conflict,
    Fenced,
    InvalidArgument,
    NeveError,
    NotFound,
    OutcomeUnknown,
    Phrase,
    Unavailable,
    Wording,
)
from neve.iceberg.foreign_snapshots import read_live_files
from neve.jobs.adoption import Adoption
from neve.jobs.bulk_job import BulkJob
from neve.jobs.run import JobIdentity
from neve.model.row_rules import AskedRules
from neve.notebook import TABLES_SHOWN, TableLine, lake_page, shown_page
from neve.observability.events import Listener
from neve.observability.metrics import Recorder
from neve.observability.prometheus import PrometheusRecorder
from neve.storage.clock import Clock, IdSource, SystemClock, SystemIds
from neve.storage.object_store import ObjectStore, RequestCount, requests_of
from neve.storage.open_store import open_store, probe_conditional_writes, probe_listing
from neve.storage.own_process import Handle

logger = logging.getLogger(__name__)
_DRAFT: Final = re.compile("__adopted_[0-9a-f]{12}")

Result = TypeVar("Result")

# How often `exists_ok` looks for a table that others keep dropping and making.
_DROPPED_MEANWHILE_MAX: Final = 10
_DIFFERENCES_SHOWN: Final = 5
# How often a table that another process writes is tried again.
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5
_WAIT_SECONDS_MAX: Final = 24 * 60 * 60.0

# Stores whose guarantees this project implements; others have to prove theirs.
_OWN_STORES: Final = ("file:", "memory:")


class Lake(Handle):
    """Tables by name, at one location; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        create: bool = True,
        recorder: Recorder | None = None,
        listener: Listener | None = None,
        read_only: bool = False,
    ) -> None:
        """Open the catalog of a store; without `create`, raise NotFound when there is none.

        `read_only` changes nothing but leases, and opens all tables for reading. The recorder gets
        the metrics of the tables, the listener their events. Before a catalog is made in an object
        store, the store has to prove that it supports conditional writes and ordered listings;
        otherwise this raises Unavailable.
        """
        self._stores = LakeStores(
            objects,
            clock=clock or SystemClock(),
            ids=ids or SystemIds(),
            recorder=recorder,
            listener=listener,
            read_only=read_only,
        )
        self._entries = self._stores.entries
        self._settlement = Settlement(self._stores)
        # Needs no lock: of two handles that are opened at once, one is kept.
        self._kept: dict[str, OpenTable] = {}
        self._asked_options: dict[str, TableOptions] = {}
        """Those of the last handle that named any: transactions open the table alike."""
        if not self._entries.is_begun():
            self._begin(create=create and not read_only)
        if not read_only:
            self._settlement.settle_announced()
            ForeignTransactions(self._stores).finish()

    def __repr__(self) -> str:
        stores = self._stores
        notes = ", read_only" * stores.read_only + ", closed" * stores.is_closed
        return f"Lake({self.location!r}{notes})"

    def _repr_html_(self) -> str:
        return shown_page(f"Lake {self.location}", self._page)

    @property
    def location(self) -> str:
        """Location of the lake, as a URI."""
        return self._stores.objects.location

    def close(self) -> None:
        """Close the tables opened from here, and refuse further calls; twice is not an error."""
        self._stores.close()

    def requests(self) -> Mapping[str, RequestCount]:
        """Return the requests to the bucket since the lake was opened, by kind, with their cost.

        There are none for a lake in a directory. Prices are the storage option `prices`.
        """
        return requests_of(self._stores.objects)

    # Namespaces

    def list_namespaces(self, parent: str | None = None) -> list[str]:
        """Return the names of all namespaces, or of those inside one, ascending."""
        self._stores.check_open()
        state = self._entries.state()
        if parent is None:
            return sorted(state.namespaces)
        return state.namespaces_below(parent)

    def namespace_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a namespace; raises NotFound."""
        self._stores.check_open()
        return self._entries.state().namespace_properties(name)

    def create_namespace(self, name: str, properties: Mapping[str, str] | None = None) -> None:
        """Make a namespace, and its parents; raises AlreadyExists."""
        self._stores.check_writable()
        check_namespace(name)
        self._entries.create_namespace(name, check_texts(properties or {}))

    def drop_namespace(self, name: str) -> None:
        """Remove a namespace; raises NotFound, and InvalidArgument when it is not empty."""
        self._stores.check_writable()
        self._entries.drop_namespace(name)

    def set_namespace_properties(
        self,
        name: str,
        properties: Mapping[str, str] | None = None,
        *,
        remove: Iterable[str] = (),
    ) -> None:
        """Set some properties of a namespace and remove others, all or none; raises NotFound."""
        self._stores.check_writable()
        self._entries.change_namespace(name, check_texts(properties or {}), check_removed(remove))

    # Tables

    def list_tables(self, namespace: str | None = None) -> list[str]:
        """Return the dotted names of the tables in a namespace, or of all, ascending."""
        self._stores.check_open()
        state = self._entries.state()
        if namespace is None:
            return sorted(state.tables)
        return state.tables_in(namespace)

    def table_exists(self, name: str) -> bool:
        """Return whether a table exists."""
        try:
            self._find(name)
        except NotFound:
            return False
        return True

    def table(
        self,
        name: str,
        *,
        read_only: bool = False,
        options: TableOptions | None = None,
        wait_seconds: float = 0.0,
        log: str | PathLike[str] | None = None,
    ) -> Table:
        """Open a table; raises NotFound with the most similar name.

        One process at a time writes a table: Fenced means that another one does, after waiting for
        it as long as `wait_seconds`. `read_only` opens the table beside it; so does every table of
        a lake that was opened read-only. Handles of one table share an engine.

        In a bucket there is no lock: opening a table for writing ends its writer before, which is
        Fenced from then on. `log` is the option of that name.
        """
        check_flags(read_only=read_only)
        if log is not None:
            options = replace(options or TableOptions(), log=fspath(log))
        if type(wait_seconds) not in {int, float} or not 0 <= wait_seconds < _WAIT_SECONDS_MAX:
            raise InvalidArgument(
                f"wait_seconds={wait_seconds!r} is invalid", hint="Use seconds, 0 for no waiting"
            )
        clock = self._stores.clock
        ends_at = clock.monotonic() + wait_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            read = read_only or self._stores.read_only
            table = self._live(*self._find(name), read_only=read, options=options)
            try:
                _ = open_table_of(table).engine
            except Fenced:
                table.close()
                left = ends_at - clock.monotonic()
                if left <= 0:
                    raise
                clock.sleep(min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                return table

    def bulk(
        self,
        name: str,
        *,
        app_id: str | None = None,
        batch: int | None = None,
        job_id: str | None = None,
        upkeep: bool = True,
    ) -> BulkJob:
        """Begin a job: its `upsert`, `delete`, `apply` or `overwrite_partitions` are one commit.

        Any process may run it, beside the live writer; it commits at the end of its `with` block,
        and its `outcome` says what it did. With `app_id` and `batch`, or with `job_id`, a job that
        is repeated is committed once. After the commit it compacts and cleans up what is due,
        unless the table has a live writer, which does so itself; `upkeep=False` leaves it.
        """
        self._stores.check_writable()
        if type(upkeep) is not bool:
            raise InvalidArgument(f"upkeep={upkeep!r}", hint="Use True or False")
        table = self.load_table(name)
        application = application_of(app_id, batch)
        identity = JobIdentity(job_id=job_id, application=application)
        return BulkJob(table.job_parts(), identity, upkeep=upkeep)

    def transaction(self, isolation: IsolationName = "snapshot") -> LakeTransaction:
        """Begin a transaction over tables: `with lake.transaction() as tx: tx.table("a.b").put(…)`.

        It reads all tables as of now, and its own writes. When the block ends, its writes to all
        tables are committed, or none. Raises Conflict like `Table.transaction`.
        """
        self._stores.check_open()
        return LakeTransaction(self._stores, self._kept_open, isolation)

    def retry(
        self,
        run: Callable[[LakeTransaction], Result],
        *,
        attempts: int = 10,
        isolation: IsolationName = "snapshot",
    ) -> Result:
        """Call a function with a transaction, commit, and return its result.

        On Conflict it is called again with another one, after a pause that grows; so it must not
        have effects outside of the transaction. The last Conflict is raised.
        """
        return retried(
            lambda: self.transaction(isolation),
            run,
            attempts=attempts,
            clock=self._stores.clock,
            ids=self._stores.ids,
        )

    def _kept_open(self, name: str) -> OpenTable:
        """Open a table for transactions; it stays open until the lake is closed."""
        meta, state = self._find(name)
        kept = self._kept.get(meta.table_id)
        if kept is None or kept.is_closed:
            options = self._asked_options.get(meta.table_id)
            table = self._live(meta, state, read_only=self._stores.read_only, options=options)
            kept = open_table_of(table)
            _ = kept.engine
            kept = self._kept.setdefault(meta.table_id, kept)
        return kept

    def load_table(self, name: str) -> CatalogTable:
        """Return a table's definition, history and files, without opening its rows."""
        meta, state = self._find(name)
        return CatalogTable(self._stores, self._settlement, meta, state)

    def table_meta(self, name: str) -> TableMeta:
        """Return the definition of a table; raises NotFound."""
        meta, _ = self._find(name)
        return meta

    def create_table(
        self,
        name: str,
        schema: SchemaInput,
        primary_key: str | Sequence[str],
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        order_by: str | Sequence[str] = (),
        merge: Mapping[str, str] | None = None,
        ttl: tuple[str, str | timedelta] | None = None,
        keep_deletes: str | timedelta | None = None,
        properties: Mapping[str, str] | None = None,
        options: TableOptions | None = None,
        exists_ok: bool = False,
    ) -> Table:
        """Make a table, and its namespace when missing; raises AlreadyExists for a taken name.

        A schema is a `pyarrow.Schema`, a data frame, a dict of types or a dataclass, see
        `neve.catalog.table_request`; a key is one column or several. `partition_by` has fields such
        as `day(ts)` or `bucket(16, id)`, `sort_by` the first columns of the key: files are in its
        order, and `sort_by` asks other engines to write in it too. `options` are those of the
        handle; its rows are opened when first used.

        Of several changes of a row, the one with the greatest values of the `order_by` columns
        wins; deletes are remembered for `keep_deletes`, 7 days unless given. `merge` has functions
        by column, such as `{"total": "sum"}`; `ttl` lets rows expire some time after a timestamp
        column, such as `("ts", "90 days")`. See `neve.model.row_rules`.

        With `exists_ok`, return an existing table if it has these columns, this key, these
        partitions and this sort order; its properties do not change. Otherwise raise AlreadyExists
        with what differs.
        """
        self._stores.check_writable()
        check_flags(exists_ok=exists_ok)
        definition = TableRequest.of(
            name,
            schema,
            primary_key,
            partition_by=partition_by,
            sort_by=sort_by,
            rules=AskedRules(
                order_by=order_by, keep_deletes=keep_deletes, merge=merge or {}, ttl=ttl or ()
            ),
            properties=properties,
        )
        meta, state = self._ensure(definition) if exists_ok else self._create(definition)
        return self._live(meta, state, read_only=False, options=options)

    def register_table(
        self,
        name: str,
        schema: SchemaInput,
        primary_key: str | Sequence[str],
        *,
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        schema_version: int = 0,
    ) -> Table:
        """Open the table of this definition, making it when missing; may be repeated.

        Raises CatalogConflict, with what differs in `keys`, when the table has another definition.
        Properties are not part of a definition, except retention.
        """
        self._stores.check_writable()
        definition = TableRequest.of(
            name,
            schema,
            primary_key,
            partition_by=partition_by,
            sort_by=sort_by,
            properties=properties,
            schema_version=schema_version,
        )
        try:
            return self._live(*self._create(definition), read_only=False, options=None)
        except AlreadyExists:
            table = self._live(*self._find(name), read_only=False, options=None)
        different = definition.differences(open_table_of(table).meta)
        if different:
            raise CatalogConflict(
                f"the table {name!a} exists with another {' and '.join(different)}",
                keys=different,
                path=self.location,
                hint=Wording(Phrase.TAKE_ITS_DEFINITION),
            )
        return table

    def rename_table(self, old: str, new: str) -> None:
        """Rename a table; no file moves. Raises NotFound, AlreadyExists.

        The new namespace is made when missing. Open handles stay open.
        """
        self._stores.check_writable()
        self._entries.rename_table(TableName.parse(old), TableName.parse(new))

    def drop_table(self, name: str, purge: bool = False) -> bool:
        """Drop a table for good: no process can commit to it any more. Raises NotFound.

        Its files stay, unless `purge` deletes them, or `purge_table` does later. False means that
        readers' leases keep them for now: `recover` deletes them once those have ended.
        """
        self._stores.check_writable()
        announcement = self._entries.announce_drop(str(TableName.parse(name)))
        with self._settlement.withdrawn_on_failure(announcement):
            # The mark needs a store that was begun: its creator may have died before that.
            self._settlement.settle(announcement.table_id, purge=False)
            stored = self._stores.stored_table(announcement.table_id)
            is_mine = stored.writer_state.drop(purge=purge)
        self._stores.live_tables.close_dropped(announcement.table_id)
        try:
            self._stores.decisions.forget(announcement.table_id)
            outcome = self._settlement.settle_own(announcement)
        except (Unavailable, Conflict, OutcomeUnknown) as error:
            raise OutcomeUnknown(
                f"the table {name!a} is dropped, but its name or files may still be there",
                path=self.location,
                hint=Wording(Phrase.RECOVER),
            ) from error
        if not is_mine:
            raise NotFound(f"the table {name!a} was dropped by another process")
        return outcome is not Settled.UNPURGED

    def purge_table(self, table_id: str) -> bool:
        """Delete the files of a table that was dropped without `purge`, by its id.

        False means that readers' leases keep them for now: `recover` deletes them once those have
        ended. Raises NotFound, and InvalidArgument for a table that is not dropped.
        """
        self._stores.check_writable()
        stored = self._stores.stored_table(table_id) if is_table_id(table_id) else None
        if stored is None or stored.find_head() is None:
            raise NotFound(
                f"there was never a table with the id {table_id!a}",
                path=self.location,
                hint="Look for the id among the directories in tables/",
            )
        announcement = self._entries.announce_purge(table_id)
        with self._settlement.withdrawn_on_failure(announcement):
            stored.writer_state.purge_dropped()
        return self._settlement.settle_own(announcement) is not Settled.UNPURGED

    # SQL

    def sql(self, text: str, params: Parameters | None = None, **frames: Frame) -> SqlResult:
        """Run SQL on the tables of the lake, unflushed rows included; needs the extra `sql`.

        Tables are named as everywhere, `shop.orders`, and all are read as of one moment.
        `FOR VERSION AS OF 12`, `FOR TIMESTAMP AS OF '…'` and `AT (VERSION => 12)` read old ones;
        `__tables`, `__snapshots`, `__files` and `table_changes('shop.orders', 3, 7)` are relations
        too. `frames` are relations by name: pandas, Polars or Arrow. Parameters are a list for `?`
        and `$1`, a dict for `$name`.

        Of several statements, separated by semicolons, the last one's result is returned. Each is
        a transaction of its own, except from BEGIN to COMMIT. SQL reaches no files, no network and
        no variables of the program. Raises InvalidArgument with the place of a mistake, NotFound
        with similar names.
        """
        with self._stores.sql().session() as session:
            return session.sql(text, params, **frames)

    def sql_session(self, *, external_access: bool = False) -> SqlSession:
        """Begin a session of statements, in which BEGIN … COMMIT may span several calls of `sql`.

        With `external_access`, queries may also read files, use the network and load extensions of
        DuckDB: only for text from people you trust.
        """
        check_flags(external_access=external_access)
        return self._stores.sql().session(external_access=external_access)

    # Guests and other engines

    @property
    def guests(self) -> Guests:
        """The plain Iceberg tables of the lake, which have no key."""
        return Guests(self._stores)

    def register(self, name: str, metadata_location: str) -> GuestTable:
        """Add an Iceberg table of another writer under a name, to read it; raises AlreadyExists."""
        return self.guests.register(name, metadata_location)

    def adopt(
        self,
        name: str,
        primary_key: str | Sequence[str],
        *,
        order_by: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Turn a guest into a table with a primary key, under its name.

        Its files in the lake stay as they are, if they are in the order of the key: the table gets
        them under a second name. Rows of other files are copied; the log says why. Of several rows
        of a key the one committed last stays, or with `order_by` the one with the greatest values;
        without it, rows of one commit are refused. What is refused leaves the guest as it is.
        Of two that adopt one guest at once, the later one wins.
        """
        self._stores.check_writable()
        guests = self.guests
        guest = guests.load(name)
        for left in self.list_tables():
            if left.startswith(name) and _DRAFT.fullmatch(left, len(name)):
                self.drop_table(left, purge=True)  # of a process that died while it adopted
        draft = f"{name}__adopted_{self._stores.ids.uuid().hex[:12]}"
        request = requested_table(
            draft,
            guest.metadata,
            [primary_key] if isinstance(primary_key, str) else list(primary_key),
            sort_by=(),
            properties=properties or {},
            rules=AskedRules(order_by=order_by or None),
        )
        self._create(request)
        try:
            files = read_live_files(guest.metadata, guests.read)
            parts = self.load_table(draft).job_parts()
            done = Adoption(parts, locate=guests.path_of, fetch=guests.read).commit(files)
            self._entries.replace_guest(guest.entry, draft)
        except BaseException:
            self.drop_table(draft, purge=True)
            raise
        logger.info("adopted guest=%s kept=%d copied=%d", name, done.kept, done.copied)
        return self.table(name)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tokens: str | PathLike[str] | None = None,
        tls: tuple[str, str] | None = None,
        client_config: Mapping[str, str] | None = None,
        body_bytes: int | None = None,
        body_seconds: float | None = None,
        concurrency: int | None = None,
        recorder: PrometheusRecorder | None = None,
    ) -> RunningServer:
        """Serve the lake as an Iceberg REST catalog, in a thread of this process.

        Returns a handle with `url` and `close`, which is a context manager. Needs the extra
        `server`. An address that others can reach needs a file of `tokens`. `tls` is a certificate
        and its key, as files. Clients get `client_config` with each table, such as the endpoint of
        a bucket. A `recorder` that the lake was opened with shows its numbers in `/metrics`.
        """
        given = {
            "body_bytes": body_bytes,
            "body_seconds": body_seconds,
            "concurrency": concurrency,
        }
        return self._stores.server()(
            host=host,
            port=port,
            tokens=tokens,
            tls=tls,
            limits={name: limit for name, limit in given.items() if limit is not None},
            client_config=client_config,
            recorder=recorder,
        )

    # Everything

    def system_table(self, name: str) -> pa.Table:
        """Return the current `__tables`, `__snapshots` or `__files`."""
        self._stores.check_open()
        if not isinstance(name, str):
            raise InvalidArgument(
                f"a system table's name is text, not {type(name).__name__}",
                hint=f"Use one of {', '.join(SYSTEM_TABLES)}",
            )
        return system_listing(name)(self._listed())

    def recover(self) -> RecoveryReport:
        """Bring the catalog and all version stores together, and finish interrupted purges.

        Opening does this for tables with an announced change; this checks every table, for use
        after a restore from copies. The report lists damaged tables.
        """
        self._stores.check_writable()
        self._entries.is_begun()
        return self._settlement.recover()

    def _page(self) -> str:
        self._stores.check_open()
        state = self._entries.state()
        names = sorted(state.tables)[:TABLES_SHOWN]
        lines = (self._line(name, state.tables[name]) for name in names)
        return lake_page(self.location, state.namespaces, lines, table_count=len(state.tables))

    def _line(self, name: str, table_id: str) -> TableLine:
        try:
            # Do not settle anything here: showing a lake writes nothing.
            return TableLine(name=name, found=self._stores.stored_table(table_id).load().version)
        except NeveError as error:
            return TableLine(name=name, found=error)

    def _begin(self, *, create: bool) -> None:
        objects, ids = self._stores.objects, self._stores.ids
        if not create:
            raise NotFound(
                "there is no lake here", path=objects.location, hint="Check the location"
            )
        if not objects.location.startswith(_OWN_STORES):
            probe_conditional_writes(objects, ids)
            probe_listing(objects, ids)
        self._entries.begin()
        logger.info("made a lake location=%s", objects.location)

    def _live(
        self, meta: TableMeta, state: TableState, *, read_only: bool, options: TableOptions | None
    ) -> Table:
        if options is not None and not read_only:
            self._asked_options[meta.table_id] = options
        return table_handle(
            OpenTable(
                self._stores,
                self._settlement,
                meta,
                state,
                options=options,
                read_only=read_only,
            )
        )

    def _create(
        self, definition: TableRequest, table_uuid: UUID | None = None
    ) -> tuple[TableMeta, TableState]:
        meta, announcement = self._entries.add_table(
            definition, table_uuid or self._stores.ids.uuid()
        )
        stored = self._stores.stored_table(meta.table_id)
        try:
            state = stored.begin(meta)
        except (Unavailable, Conflict, OutcomeUnknown) as error:
            raise OutcomeUnknown(
                f"the table {meta.name!a} has its name, but its first version may be missing",
                path=self.location,
                hint="Open the table to finish it",
            ) from error
        # The table was begun with the catalog's copy: there is nothing to settle.
        self._settlement.withdraw_if_possible(announcement)
        return meta, state

    def _ensure(self, definition: TableRequest) -> tuple[TableMeta, TableState]:
        """Make a table, or find one like it; raises AlreadyExists when it differs."""
        name = str(definition.name)
        for _ in range(_DROPPED_MEANWHILE_MAX):
            try:
                return self._create(definition)
            except AlreadyExists:
                if name not in self._entries.state().tables:
                    raise  # by a namespace
                try:
                    meta, state = self._find(name)
                except NotFound:
                    continue  # dropped since: the name is free
                differences = definition.unlike(meta)
                if not differences:
                    return meta, state
                raise AlreadyExists(
                    f"the table {name!a} exists and differs from the requested one: "
                    + "; ".join(differences[:_DIFFERENCES_SHOWN]),
                    differences=differences,
                    path=self.location,
                    hint="Open it with `table`, change it with `evolve`, or choose another name",
                ) from None  # its hint is exists_ok, which is set
        raise Conflict(
            f"other processes kept making and dropping the table {name!a}",
            path=self.location,
            hint="Try again",
        )

    def _find(self, name: str) -> tuple[TableMeta, TableState]:
        """Read a table in both stores, and settle it when they differ; raises NotFound."""
        self._stores.check_open()
        return self._read(self._entries.meta(str(TableName.parse(name))))

    def _read(self, meta: TableMeta) -> tuple[TableMeta, TableState]:
        stored = self._stores.stored_table(meta.table_id)
        try:
            state = stored.load()
        except NotFound:
            if self._stores.read_only:
                raise
            self._settlement.settle(meta.table_id, purge=False)
            try:
                state = stored.load()
            except NotFound as error:
                raise NotFound(f"the table {meta.name!a} was dropped") from error
        refuse_stranger(meta, state.head, path=stored.paths.manifest)
        updated = up_to_date(meta, state)
        if updated is not meta and not self._stores.read_only:
            try:
                return self._settlement.update_copy(state), state
            except (Unavailable, Conflict, OutcomeUnknown) as error:
                # The state that was read is right; the old copy does not matter to the caller.
                logger.warning("left unsettled table=%s cause=%s", meta.table_id, error)
        return updated, state

    def _listed(self) -> Iterator[ListedTable]:
        for meta in self._entries.metas():
            try:
                current, state = self._read(meta)
            except NotFound:
                continue  # dropped since the names were read
            stored = self._stores.stored_table(meta.table_id)
            yield ListedTable(meta=current, stored=stored, state=state)


def open_to_read(lake: Lake, name: str) -> Table:
    """Open a table to read it: its writer's rows if this process writes it, else beside it.

    For the layers above; raises NotFound.
    """
    meta, state = lake._find(name)  # noqa: SLF001 - of this module
    stores = lake._stores  # noqa: SLF001
    is_live = stores.live_tables.opened(meta.table_id, read_only=False) is not None
    return lake._live(meta, state, read_only=not is_live, options=None)  # noqa: SLF001


def snapshots_together(lake: Lake, tables: Sequence[Table]) -> list[Snapshot]:
    """Freeze tables of a lake at one moment; for the layers above."""
    origins = [(open_table_of(table).engine, table._origin()) for table in tables]  # noqa: SLF001
    return lake._stores.joint_commits.snapshots(origins)  # noqa: SLF001 - of this module


def open_lake(
    location: str | PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    create: bool = True,
    recorder: Recorder | None = None,
    listener: Listener | None = None,
    read_only: bool = False,
    make_sql: MakeSqlEngine | None = None,
    load_server: LoadServer | None = None,
) -> Lake:
    """Open the lake at a location; this is `neve.open`, which passes the last two."""
    text = fspath(location) if isinstance(location, PathLike) else location
    if not isinstance(text, str):
        raise InvalidArgument(
            f"a location is text or a path, not {type(text).__name__}",
            hint="Use a directory, s3://bucket/prefix or memory://name",
        )
    check_flags(create=create, read_only=read_only)
    try:
        objects = open_store(
            text,
            storage_options=storage_options,
            clock=clock,
            ids=ids,
            create=create and not read_only,
        )
        lake = Lake(
            objects,
            clock=clock,
            ids=ids,
            create=create,
            recorder=recorder,
            listener=listener,
            read_only=read_only,
        )
    except InvalidArgument as error:
        if isinstance(error.__cause__, NotADirectoryError):
            error.hint = "Use a directory, which may be new"
        raise
    if load_server is not None:
        lake._stores.load_server = partial(load_server, lake)  # noqa: SLF001 - of this module
    if make_sql is not None:
        lake._stores.make_sql = partial(make_sql, lake)  # noqa: SLF001 - of this module
    return lake
