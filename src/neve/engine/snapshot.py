"""Snapshot: a frozen view of a table, and reading by key in the order asked for.

`table.snapshot()` freezes memtables and Version together; `table.at(…)` shows an old Version, under
the schema it was committed with. Both hold a lease, so that no collector deletes what they read;
closing gives it up, and so does forgetting the snapshot.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from neve.engine.background import end_forgotten
from neve.engine.write_path import key_batch
from neve.errors import Closed
from neve.keys.columns import KeyArray
from neve.manifest.leases import HeldLease
from neve.memtable.memtable_view import taken_rows
from neve.model.array_fit import nulls
from neve.model.schema import TableSchema
from neve.notebook import first_words, shown_page, version_page, warning
from neve.read.filters import Filter
from neve.read.scan import Scan
from neve.storage.own_process import KeptInProcess
from neve.table.partial_merge import Places
from neve.table.table_view import Row, TableView

GetRows = Callable[[KeyArray], tuple[pa.Table, Places]]
"""Gives the rows of keys in any order, and for each the place of its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """The handle that a snapshot was taken from, and what it was asked for by."""

    check_open: Callable[[], None]
    """Raises when the handle was closed."""
    table_name: str
    tag: str = ""


class Snapshot(KeptInProcess):
    """A table as it was at one moment; safe for many threads. A context manager."""

    def __init__(
        self,
        view: TableView,
        sequence: int,
        origin: SnapshotOrigin,
        *,
        lease: HeldLease | None,
        told: Callable[[int], AbstractContextManager[None]],
        release: Callable[[], None],
    ) -> None:
        """Show a view; `told` tells of files that its Version has lost."""
        self._view = view
        self._sequence = sequence
        self._origin = origin
        self._lease = lease
        self._told = told
        self._release = release
        self._end = weakref.finalize(self, end_forgotten, release)

    def __repr__(self) -> str:
        tag = f", tag={self._origin.tag!r}" if self._origin.tag else ""
        closed = "" if self._end.alive else ", closed"
        return (
            f"Snapshot({self._origin.table_name!r}, version={self.version}, "
            f"sequence={self.sequence}{tag}{closed})"
        )

    def _repr_html_(self) -> str:
        return shown_page("Snapshot", self._page)

    def _page(self) -> str:
        names = [column.name for column in self.schema.columns]
        in_memory = any(not memtable.is_empty for memtable in self._view.memtables)
        return version_page(
            f"Snapshot of {self._origin.table_name}",
            self._view.files.version,
            {
                "tag": self._origin.tag,
                "in memory": f"what was written up to {self._sequence:,}" if in_memory else "",
                "columns": first_words(names),
            },
            warning("" if self._end.alive else "closed: take a new one"),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def version(self) -> int:
        """Number of its Version."""
        return self._view.version

    @property
    def sequence(self) -> int:
        """Sequence number of the last write it shows; 0 for an old Version."""
        return self._sequence

    @property
    def schema(self) -> TableSchema:
        """The schema its rows have."""
        return self._view.context.schema

    def get(self, key: object) -> Row | None:
        """Return the row of a key; None when there is none."""
        view = self._checked()
        with self._told(view.version):
            return view.get_at(view.context.encode_key(key), self._sequence)

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; missing keys are absent, or rows of NULL."""
        view = self._checked()
        with self._told(view.version):
            return rows_in_order(
                keys,
                view,
                lambda wanted: view.get_many(wanted, self._sequence),
                with_missing=with_missing,
            )

    def scan(
        self,
        filter: Filter | None = None,  # noqa: A002 - the name of the contract
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        key_range: tuple[object, object] | None = None,
        reverse: bool = False,
    ) -> Scan:
        """Read many rows; see `Table.scan`."""
        return Scan(
            self._checked(),
            sequence=self._sequence,
            filter=filter,
            columns=columns,
            limit=limit,
            key_range=key_range,
            reverse=reverse,
            check=self._check,
            pin=lambda: self._told(self.version),
        )

    def close(self) -> None:
        """Let go of what it reads; twice is no error."""
        if self._end.detach():
            self._release()

    def _check(self) -> None:
        if not self._end.alive:
            raise Closed("the snapshot was closed", hint="Take a new one")
        self._origin.check_open()
        if self._lease is not None:
            self._lease.check()

    def _checked(self) -> TableView:
        self._check()
        return self._view


def rows_in_order(
    keys: object, view: TableView, get_rows: GetRows, *, with_missing: bool
) -> pa.Table:
    """Return the rows of keys in the order asked; a key that is asked for twice is given twice."""
    context = view.context
    batch = key_batch(keys, context)
    encoded = context.encoder.encode_arrays(batch.columns)
    rows, places = get_rows(encoded)
    asked = np.full(len(encoded), -1, dtype=np.int64)
    asked[places] = np.arange(len(places))
    if not with_missing:
        return taken_rows(rows, asked[asked >= 0] if len(places) < len(asked) else asked)
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    found = pa.Table.from_arrays(rows.columns, schema=schema)
    if len(places) == len(asked):
        return taken_rows(found, asked)
    # The row behind the last one is NULL.
    missing = pa.Table.from_arrays([nulls(1, field.type) for field in schema], schema=schema)
    asked[asked < 0] = rows.num_rows
    return taken_rows(pa.concat_tables([found, missing]), asked)
