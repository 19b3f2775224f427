"""LiveTables: the engines of one catalog's open tables, each shared by all handles of its table.

An engine is opened for the first handle that needs it and closed with the last. A handle that is
forgotten without being closed counts as closed. One table can be open twice, once for writing and
once for reading only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from neve.engine.background import end_forgotten
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import TableOptions
from neve.errors import InvalidArgument
from neve.table.table_parts import TableParts


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
        # Guards the two below, and is held for a moment only.
        self._lock = Lock()
        self._engines: dict[_Id, _Shared] = {}
        # Each is held while its table is opened or closed: whoever opens a table that is just being
        # closed waits for that, and two opens of one table are one.
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
                    "the table is open already, with other options",
                    hint="Close the other handles first, or leave the options out",
                )
            shared.handles += 1
            return shared.engine

    def opened(self, table_id: str, *, read_only: bool) -> TableEngine | None:
        """Return a table's engine if any handle has it open; one being opened is waited for."""
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
        """End one handle of an engine that nobody closed; for the collector."""
        end_forgotten(lambda: self.release(engine))

    def close_dropped(self, table_id: str) -> None:
        """Close the engines of a table that was dropped, whoever holds them."""
        for read_only in (False, True):
            key = _Id(table_id, read_only)
            with self._gate(key):
                self._close(key, dropped=True)

    def close(self) -> None:
        """Close every engine; one that another thread is closing is waited for."""
        with self._lock:
            keys = list(self._gates)
        for key in keys:
            with self._gate(key):
                self._close(key)

    def _open(self, key: _Id, parts: TableParts, options: TableOptions | None) -> _Shared:
        """Open an engine for its first handle; one that nobody will have is closed again."""
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
