"""LakeStores: the stores and engines of one lake, shared by all tables opened from it.

All handles of a table share an engine, see `LiveTables`. It is opened for the first handle that
needs it and closed with the last. A handle that is garbage-collected counts as closed. One table
can be open twice, once for writing and once for reading only.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final, NamedTuple

from neve.catalog.catalog_entries import CatalogEntries
from neve.catalog.running_server import Serve
from neve.catalog.sql_door import SqlEngine
from neve.catalog.stored_table import StoredTable
from neve.engine.background import end_forgotten
from neve.engine.joint_commits import JointCommits
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import TableOptions
from neve.errors import Closed, InvalidArgument, NeveError, NotFound
from neve.manifest.decisions import Decisions
from neve.observability.events import Listener, ignore
from neve.observability.metrics import (
    CACHE_BYTES,
    CACHE_HITS,
    CACHE_MISSES,
    FLUSH_QUEUE,
    LEVEL_0_FILES,
    MEMTABLE_BYTES,
    LabelledRecorder,
    NoRecorder,
    Observed,
    Recorder,
)
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore
from neve.storage.own_process import check_forked_idle, forked, keep_to_process
from neve.table.table_context import TableParts

logger = logging.getLogger(__name__)


class _Id(NamedTuple):
    table_id: str
    read_only: bool


@dataclass(slots=True)
class _Shared:
    engine: TableEngine
    handles: int


class LiveTables:
    """Engines by table; safe for many threads."""

    def __init__(self) -> None:
        # Guards the two below, and is held only briefly.
        self._lock = Lock()
        self._engines: dict[_Id, _Shared] = {}
        # Each is held while its table is opened or closed: opening waits for a close of the same
        # table, and two opens of one table are one.
        self._gates: dict[_Id, Lock] = {}

    def acquire(
        self,
        table_id: str,
        *,
        read_only: bool,
        options: TableOptions | None,
        make_parts: Callable[[], TableParts],
    ) -> TableEngine:
        """Return a table's engine, opening it for the first handle; `release` ends a handle.

        Raises InvalidArgument when the table is open with other options.
        """
        key = _Id(table_id, read_only)
        with self._gate(key):
            shared = self._find(key)
            if shared is None or shared.engine.is_closed:
                shared = self._open(key, make_parts(), options)
            elif options is not None and options != shared.engine.options:
                raise InvalidArgument(
                    "the table is already open with other options",
                    hint="Close the other handles first, or leave the options out",
                )
            shared.handles += 1
            return shared.engine

    def engines(self) -> list[TableEngine]:
        """Return all engines that are open for writing."""
        with self._lock:
            found = list(self._engines.items())
        return [shared.engine for key, shared in found if not key.read_only]

    def opened(self, table_id: str, *, read_only: bool) -> TableEngine | None:
        """Return a table's engine if any handle has it open; waits for one that is opening."""
        key = _Id(table_id, read_only)
        with self._gate(key):
            shared = self._find(key)
            return None if shared is None or shared.engine.is_closed else shared.engine

    def release(self, engine: TableEngine) -> None:
        """End one handle of an engine."""
        key = _Id(engine.parts.paths.table_id, engine.is_read_only)
        with self._gate(key):
            shared = self._find(key)
            if shared is None or shared.engine is not engine:
                return
            shared.handles -= 1
            if not shared.handles:
                self._close(key)

    def forget(self, engine: TableEngine) -> None:
        """End one handle of an engine that was not closed; for the garbage collector."""
        end_forgotten(lambda: self.release(engine))

    def close_dropped(self, table_id: str) -> None:
        """Close the engines of a table that was dropped, with all their handles."""
        for read_only in (False, True):
            key = _Id(table_id, read_only)
            with self._gate(key):
                self._close(key, dropped=True)

    def close(self) -> None:
        """Close every engine; waits for one that another thread is closing."""
        with self._lock:
            keys = list(self._gates)
        for key in keys:
            with self._gate(key):
                self._close(key)

    def _open(self, key: _Id, parts: TableParts, options: TableOptions | None) -> _Shared:
        """Open an engine for its first handle; it is closed again if that fails."""
        engine = TableEngine(parts, options, read_only=key.read_only)
        try:
            shared = _Shared(engine, 0)
            with self._lock:
                self._engines[key] = shared
        except BaseException:
            engine.close()
            raise
        return shared

    def _gate(self, key: _Id) -> Lock:
        with self._lock:
            return self._gates.setdefault(key, Lock())

    def _find(self, key: _Id) -> _Shared | None:
        with self._lock:
            return self._engines.get(key)

    def _close(self, key: _Id, *, dropped: bool = False) -> None:
        """Close an engine, if there is one; its gate is held."""
        with self._lock:
            shared = self._engines.pop(key, None)
        if shared is not None:
            shared.engine.close(dropped=dropped)


# Each caches its version store, so that reading again costs one conditional read.
_TABLES_KEPT: Final = 1_024


class LakeStores:
    """The stores of tables and their catalog; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        clock: Clock,
        ids: IdSource,
        recorder: Recorder | None = None,
        listener: Listener | None = None,
        read_only: bool = False,
    ) -> None:
        """Begin; raises InvalidArgument in a child that was forked while a table was open."""
        check_forked_idle(path=objects.location)
        # Fixed at construction.
        self.objects = objects
        self.clock = clock
        self.ids = ids
        self.recorder: Recorder = recorder or NoRecorder()
        self.listener: Listener = listener or ignore
        self.read_only = read_only
        # Needs no lock.
        self.entries = CatalogEntries(objects, clock=clock, ids=ids)
        self.decisions = Decisions(self.entries.store, clock=clock, ids=ids)
        self.joint_commits = JointCommits(self.decisions, clock=clock, recorder=self.recorder)
        self.live_tables = LiveTables()
        self._end_watch = (
            self.recorder.watch(self._observed)
            if isinstance(self.recorder, LabelledRecorder)
            else None
        )
        # Guarded by _lock.
        self._lock = Lock()
        self._tables: OrderedDict[str, StoredTable] = OrderedDict()
        self._is_closed = False
        self._sql: SqlEngine | None = None
        # Set once, before the lake is used.
        self.make_sql: Callable[[], SqlEngine] | None = None
        self.load_server: Callable[[], Serve] | None = None
        # Set in a forked child.
        self._is_forked = False
        keep_to_process(self)

    def recorder_of(self, table: str) -> Recorder:
        """Return the recorder for the numbers of a table, by its name."""
        recorder = self.recorder
        if isinstance(recorder, LabelledRecorder):
            return recorder.labelled({"table": table})
        return recorder

    def _observed(self) -> Iterator[Observed]:
        """Return what is asked for of the tables that are open for writing."""
        for engine in self.live_tables.engines():
            meta = self.entries.find_meta(engine.parts.paths.table_id, is_known=True)
            if meta is None or engine.is_closed:
                continue
            labels = {"table": meta.name}
            view, groups = engine.current.view, engine.files.groups
            hits, misses = groups.hits_and_misses
            files = view.files.version.files.values()
            yield CACHE_HITS, hits, labels
            yield CACHE_MISSES, misses, labels
            yield CACHE_BYTES, groups.byte_count + engine.files.vectors.byte_count, labels
            yield MEMTABLE_BYTES, sum(each.byte_count for each in view.memtables), labels
            yield FLUSH_QUEUE, max(len(view.memtables) - 1, 0), labels
            yield LEVEL_0_FILES, sum(file.level == 0 for file in files), labels

    def sql(self) -> SqlEngine:
        """Return what runs SQL on this lake, loading it first; raises InvalidArgument."""
        self.check_open()
        with self._lock:
            if self._sql is None:
                if self.make_sql is None:
                    raise InvalidArgument(
                        "this lake was not opened for SQL", hint="Open it with neve.open"
                    )
                self._sql = self.make_sql()
            return self._sql

    def server(self) -> Serve:
        """Return what serves this lake, loading it first; raises InvalidArgument."""
        self.check_open()
        if self.load_server is None:
            raise InvalidArgument(
                "this lake was not opened for a server", hint="Open it with neve.open"
            )
        try:
            return self.load_server()
        except ModuleNotFoundError as error:
            if error.name not in {"starlette", "uvicorn"}:
                raise
            raise InvalidArgument(
                f"the package {error.name} is not installed", hint='pip install "neve[server]"'
            ) from error

    def stored_table(self, table_id: str) -> StoredTable:
        """Return the version store of a table, which may not exist yet."""
        with self._lock:
            table = self._tables.get(table_id)
            if table is None:
                table = StoredTable(
                    self.objects,
                    table_id,
                    clock=self.clock,
                    ids=self.ids,
                    properties_of=lambda is_known: self._properties_of(table_id, is_known=is_known),
                    decisions=self.decisions,
                )
                self._tables[table_id] = table
            self._tables.move_to_end(table_id)
            while len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
            return table

    def _properties_of(self, table_id: str, *, is_known: bool) -> Mapping[str, str]:
        meta = self.entries.find_meta(table_id, is_known=is_known)
        if meta is None:
            raise NotFound("the table was dropped", path=table_id)
        return meta.properties

    def check_open(self) -> None:
        """Raise Closed once `close` was called, and in a forked child."""
        if self._is_forked:
            raise forked(path=self.objects.location)
        if self._is_closed:
            raise Closed(
                "the catalog was closed",
                path=self.objects.location,
                hint="Open it again with neve.open",
            )

    def check_writable(self) -> None:
        """Raise InvalidArgument when the lake was opened for reading only; Closed when closed."""
        self.check_open()
        if self.read_only:
            raise InvalidArgument(
                "the lake was opened for reading only",
                path=self.objects.location,
                hint="Open it without read_only to change it",
            )

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """Close every open table, and refuse further calls; a second call does nothing."""
        if self._is_forked:
            return
        with self._lock:
            sql, self._sql = self._sql, None
        if self._end_watch is not None:
            self._end_watch()
        try:
            if sql is not None:
                sql.close()
            self.live_tables.close()
        finally:
            self._end_session()
        with self._lock:
            self._is_closed = True
            self._tables.clear()

    def _end_session(self) -> None:
        try:
            self.joint_commits.close()
        except NeveError as error:
            # It only fences, and is removed when it is old.
            logger.warning("left a session of transactions cause=%s", error)

    def end_in_child(self) -> None:
        """Refuse all calls: open tables belong to the parent process."""
        self._is_forked = True
