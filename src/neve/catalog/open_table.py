"""OpenTable: the internals of a `Table`: its definition in the catalog, and its engine.

Handles of one table from one lake share an engine: it is opened when a handle first needs it, and
closed with the last handle.
"""

import weakref
from collections.abc import Iterator
from threading import Lock

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.compatibility import DefinitionChange
from neve.catalog.lake_stores import LakeStores, LiveTables
from neve.catalog.settlement import Settlement
from neve.catalog.sql_door import SqlEngine
from neve.catalog.stored_table import TableState
from neve.catalog.table_meta import TableMeta
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import PublishMode, TableOptions
from neve.errors import Closed, InvalidArgument
from neve.manifest.table_head import Requirements
from neve.observability.metrics import LabelledRecorder, Recorder
from neve.storage.clock import Clock


class OpenTable(CatalogTable):
    """A table of a catalog with the engine of its rows; safe for many threads."""

    def __init__(
        self,
        stores: LakeStores,
        settlement: Settlement,
        meta: TableMeta,
        state: TableState,
        *,
        options: TableOptions | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__(stores, settlement, meta, state)
        # Fixed at construction.
        self.is_read_only = read_only
        self._options = options
        self._live: LiveTables = stores.live_tables
        # Written with _opening held, read without: an engine is acquired once and released once.
        self._opening = Lock()
        self.opened: TableEngine | None = None
        """The engine, once this handle has opened it."""
        self._forgotten: weakref.finalize[[TableEngine], OpenTable] | None = None
        self._is_closed = False

    @property
    def engine(self) -> TableEngine:
        """The engine of the rows; opened when first needed."""
        self._stores.check_open()
        with self._opening:
            self.check_not_closed()
            if self.opened is None:
                engine = self._live.acquire(
                    self.table_id,
                    read_only=self.is_read_only,
                    options=self._options,
                    make_parts=lambda: self.stored.parts(
                        self.properties,
                        recorder=self._stores.recorder_of(self.name),
                        listener=self._stores.listener,
                        is_published=True,
                        log=None if self._options is None else self._options.log,
                    ),
                )
                self._forgotten = weakref.finalize(self, self._live.forget, engine)
                self.opened = engine
            return self.opened

    def sql(self) -> SqlEngine:
        """Return what runs SQL on the lake."""
        return self._stores.sql()

    @property
    def clock(self) -> Clock:
        """The clock of the lake."""
        return self._stores.clock

    @property
    def measured_by(self) -> Recorder | None:
        """What gets the times of calls; None when they are not measured."""
        is_labelled = isinstance(self._stores.recorder, LabelledRecorder)
        return self._stores.recorder_of(self.name) if is_labelled else None

    @property
    def is_closed(self) -> bool:
        """Whether this handle, the lake or the engine was closed."""
        engine = self.opened
        return (
            self._is_closed or self._stores.is_closed or (engine is not None and engine.is_closed)
        )

    def check_open(self) -> None:
        """Raise when this handle was closed; a reference to this bound method keeps it open."""
        self._stores.check_open()
        self.check_not_closed()
        if self.opened is not None:
            self.opened.check_open()

    def check_not_closed(self) -> None:
        """Raise Closed after `close` of this handle."""
        if self._is_closed:
            raise Closed(f"the handle of {self.name!a} was closed", hint="Open the table again")

    def check_may_write(self) -> None:
        """Raise when this handle was closed, or opened for reading only."""
        self.check_not_closed()
        if self.is_read_only:
            raise InvalidArgument(
                f"the table {self.name!a} was opened for reading only",
                hint="Open it without read_only, or use the `neve` command beside its writer",
            )

    def check_may_consume(self) -> None:
        """Raise when no consumer can be stored; a table that is open for reading may store it."""
        self.check_not_closed()
        self._stores.check_writable()

    def close(self) -> None:
        """End this handle, once. Unflushed rows stay in the log for the next open."""
        with self._opening:
            self._is_closed = True
            engine, self.opened = self.opened, None
        if engine is not None and self._forgotten is not None and self._forgotten.detach():
            self._live.release(engine)

    # The catalog's half of an open table

    def see(self) -> None:
        """Show the newest definition and history; the rows stay as they are."""
        super().refresh()

    def see_committed(self) -> None:
        """Show what was just committed, and publish it; raises NotPublished."""
        self.check_not_closed()
        self.see_known()
        self.publish_committed()

    def refresh(self) -> "OpenTable":
        """Show new commits of others and, read-only, newly logged rows. Return itself."""
        self.check_not_closed()
        super().refresh()
        engine = self._shared_engine()
        if engine is not None:
            engine.refresh()
        return self

    def update_definition(
        self, asked: DefinitionChange, *, requirements: Requirements | None = None
    ) -> int:
        """Change several parts of the definition as one Version; return its number."""
        self.check_not_closed()
        return super().update_definition(asked, requirements=requirements)

    def iceberg_metadata(self) -> str:
        """Return the location of the current Iceberg metadata, published first if missing.

        A read-only handle does not publish beside a live writer: it returns what is published, and
        raises NotFound when nothing is.
        """
        self.check_not_closed()
        if not self.is_read_only:
            return super().iceberg_metadata()
        return self._published()

    def publish_committed(self) -> None:
        """Publish what was just committed for other engines, as the options say."""
        engine = self._shared_engine()
        if engine is not None:
            engine.publish_committed(self.version)
        elif (self._options or TableOptions()).iceberg_publish == PublishMode.COMMIT:
            super().publish_committed()

    def _unflushed(self) -> int | None:
        engine = self.opened
        if engine is None or engine.is_closed:
            return None
        return sum(memtable.row_count for memtable in engine.current.view.memtables)

    def _problems(self) -> Iterator[str]:
        if self._is_closed:
            yield "the handle was closed: open the table again"

    def _shared_engine(self) -> TableEngine | None:
        """Return the engine if any handle, in any thread, has opened it or is opening it."""
        return self._live.opened(self.table_id, read_only=self.is_read_only)
