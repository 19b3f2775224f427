"""MeasuredTable: a handle whose calls are timed, for a lake that has a recorder with labels.

A get takes microseconds, and looking at the clock twice takes a part of one: of gets and puts, one
of `SAMPLED` is measured. Upserts and scans are measured all. Without such a recorder there is no
MeasuredTable, and nothing is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle

from neve.catalog.open_table import OpenTable
from neve.catalog.table import Table
from neve.engine.row_input import Rows
from neve.observability.metrics import (
    GET_SECONDS,
    PUT_SECONDS,
    SAMPLED,
    SCAN_SECONDS,
    UPSERT_SECONDS,
    Recorder,
)
from neve.read.filters import Filter
from neve.read.scan import Scan
from neve.storage.clock import Clock
from neve.table.table_view import Row


class MeasuredTable(Table):
    """A table whose calls are timed; safe for many threads."""

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
