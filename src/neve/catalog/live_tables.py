"""LiveTables: the engines of one catalog's open tables, each shared by all handles of its table.

An engine is opened for the first handle that needs it and closed with the last. A handle that is
forgotten without being closed counts as closed. One table can be open twice, once for writing and
once for reading only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from neve.engine.forgotten import end_forgotten
from neve.engine.table_engine import TableEngine
from neve.engine.table_options import TableOptions
from neve.engine.table_parts import TableParts
from neve.errors import InvalidArgument


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
        self._lock = Lock()
        # Guarded by _lock, which is held while an engine opens: two opens of one table are one.
        self._engines: dict[_Id, _Shared] = {}

    def acquire(
        self,
        table_id: str,
        *,
        read_only: bool,
        options: TableOptions | None,
        make_parts: Callable[[], TableParts],
    ) -> TableEngine:
        """Give a table's engine, opening it for the first handle; `release` ends a handle.

        Raises InvalidArgument when the table is open with other options.
        """
        key = _Id(table_id, read_only)
        with self._lock:
            shared = self._engines.get(key)
            if shared is not None and shared.engine.is_closed:
                shared = None
            if shared is None:
                engine = TableEngine(make_parts(), options, read_only=read_only)
                shared = self._engines[key] = _Shared(engine, 0)
            elif options is not None and options != shared.engine.options:
                raise InvalidArgument(
                    "the table is open already, with other options",
                    hint="close the other handles first, or leave the options out",
                )
            shared.handles += 1
            return shared.engine

    def release(self, engine: TableEngine) -> None:
        """End one handle of an engine."""
        with self._lock:
            held = [key for key, shared in self._engines.items() if shared.engine is engine]
            if not held:
                return
            shared = self._engines[held[0]]
            shared.handles -= 1
            if shared.handles:
                return
            del self._engines[held[0]]
        engine.close()

    def forget(self, engine: TableEngine) -> None:
        """End one handle of an engine that nobody closed; for the collector."""
        end_forgotten(lambda: self.release(engine))

    def close_table(self, table_id: str) -> None:
        """Close a table's engines, whoever holds them."""
        with self._lock:
            keys = [key for key in self._engines if key.table_id == table_id]
            engines = [self._engines.pop(key).engine for key in keys]
        for engine in engines:
            engine.close()

    def close(self) -> None:
        """Close every engine."""
        with self._lock:
            engines = [shared.engine for shared in self._engines.values()]
            self._engines.clear()
        for engine in engines:
            engine.close()
