"""LakeStores: the stores of one warehouse, shared by its catalog and the tables opened from it."""

from collections import OrderedDict
from threading import Lock
from typing import Final

from neve.catalog.catalog_entries import CatalogEntries
from neve.catalog.lake_stores import LiveTables
from neve.catalog.stored_table import StoredTable
from neve.errors import Closed
from neve.observability.events import Listener, unheard
from neve.observability.metrics import NoRecorder, Recorder
from neve.storage.clock import Clock, IdSource
from neve.storage.object_store import ObjectStore
from neve.storage.own_process import check_forked_idle, forked, keep_to_process

# Each keeps what it read of its version store, so that reading again costs one conditional read.
_TABLES_KEPT: Final = 64


class LakeStores:
    """Where tables and their catalog are; safe for many threads."""

    def __init__(
        self,
        objects: ObjectStore,
        *,
        clock: Clock,
        ids: IdSource,
        recorder: Recorder | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Begin; raises InvalidArgument in a child that was forked while a table was open."""
        check_forked_idle(path=objects.location)
        # Fixed at construction.
        self.objects = objects
        self.clock = clock
        self.ids = ids
        self.recorder: Recorder = recorder or NoRecorder()
        self.listener: Listener = listener or unheard
        # Safe on its own.
        self.entries = CatalogEntries(objects, clock=clock, ids=ids)
        self.live_tables = LiveTables()
        # Guarded by _lock.
        self._lock = Lock()
        self._tables: OrderedDict[str, StoredTable] = OrderedDict()
        self._is_closed = False
        # Set in a forked child.
        self._is_forked = False
        keep_to_process(self)

    def stored_table(self, table_id: str) -> StoredTable:
        """Return the version store of a table, whether it was begun or not."""
        with self._lock:
            table = self._tables.get(table_id)
            if table is None:
                table = StoredTable(self.objects, table_id, clock=self.clock, ids=self.ids)
                self._tables[table_id] = table
            self._tables.move_to_end(table_id)
            while len(self._tables) > _TABLES_KEPT:
                self._tables.popitem(last=False)
            return table

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

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def close(self) -> None:
        """Close every open table, and take no more calls; twice is no error."""
        if self._is_forked:
            return
        self.live_tables.close()
        with self._lock:
            self._is_closed = True
            self._tables.clear()

    def end_in_child(self) -> None:
        """Refuse everything: what is open stayed with the process that was forked."""
        self._is_forked = True
