"""Snapshot, a frozen view of a table, and CurrentView, the newest view that readers take.

`table.snapshot()` freezes memtables and Version together; `table.at(…)` shows an old Version, under
the schema it was committed with. Both hold a lease, so that no collector deletes what they read.
Closing the snapshot releases it, and so does garbage collection.

CurrentView holds the newest view and the last visible sequence number:

ENGINE-1  The view is replaced as a whole, under the lock, and its Version never goes back: of two
          commits that are installed out of order, the older one changes nothing.
ENGINE-2  The replacement that adds a Version also removes the memtable with its rows.
ENGINE-3  The sequence moves only after a whole batch was applied. Readers take the view first.
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Lock

import numpy as np
import pyarrow as pa

from neve.engine.background import end_forgotten
from neve.engine.write_path import key_batch
from neve.errors import Closed, Corruption, NotFound, Phrase, Wording
from neve.keys.columns import KeyArray
from neve.manifest.leases import HeldLease
from neve.memtable.memtable import Memtable
from neve.memtable.memtable_view import taken_rows
from neve.model.array_fit import nulls
from neve.model.schema import TableSchema
from neve.model.version import Version
from neve.model.write_batch import SEQUENCE_MAX
from neve.notebook import first_words, shown_page, version_page, warning
from neve.read.dataset import ArrowDataset, scan_dataset
from neve.read.filters import Filter
from neve.read.scan import Scan, ScanRequest
from neve.storage.own_process import Handle
from neve.table.partial_merge import Places
from neve.table.table_context import TableContext, TableParts
from neve.table.table_view import Row, TableView

GetRows = Callable[[KeyArray], tuple[pa.Table, Places]]
"""Returns the rows of keys in any order, and the index of each row's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOrigin:
    """The handle that a snapshot was taken from, and how it was chosen."""

    check_open: Callable[[], None]
    """Raises when the handle was closed."""
    table_name: str
    tag: str = ""


class LostFiles:
    """Distinguishes files that were deleted from files that were lost; for one table.

    A slow reader may find files deleted because their Version has expired: that is NotFound, and a
    newer Version has the rows. Files of a retained Version are never deleted: a missing one was
    lost, which is Corruption.
    """

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts
        self._folders = (f"{parts.paths.data}/", f"{parts.paths.deletes}/")

    @contextmanager
    def explained(self, number: int) -> Iterator[None]:
        """Raise Corruption instead of NotFound for a file that a retained Version has lost."""
        try:
            yield
        except NotFound as missing:
            if missing.path is None or not missing.path.startswith(self._folders):
                raise
            if not self._is_retained(number):
                raise
            raise Corruption(
                f"version {number} has lost a file",
                path=missing.path,
                hint=Wording(Phrase.RESTORE_LOST_FILE),
            ) from missing

    def _is_retained(self, number: int) -> bool:
        try:
            self._parts.versions.version(number)
        except NotFound:
            return False
        return True


class Snapshot(Handle):
    """A table as it was at one moment; safe for many threads. A context manager."""

    def __init__(
        self,
        view: TableView,
        sequence: int,
        origin: SnapshotOrigin,
        *,
        lease: HeldLease | None,
        lost: LostFiles,
        release: Callable[[], None],
    ) -> None:
        """Show a view; `lost` reports files that its Version has lost."""
        self._view = view
        self._sequence = sequence
        self._origin = origin
        self._lease = lease
        self._lost = lost
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

    @property
    def version(self) -> int:
        """Number of the Version."""
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
        """Return the row of a key, or None."""
        view = self._checked()
        with self._lost.explained(view.version):
            return view.get_at(view.context.encode_key(key), self._sequence)

    def get_many(self, keys: object, *, with_missing: bool = False) -> pa.Table:
        """Return the rows of keys in the order asked; missing keys are absent, or rows of NULL."""
        view = self._checked()
        with self._lost.explained(view.version):
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
            ScanRequest(
                filter=filter, columns=columns, limit=limit, key_range=key_range, reverse=reverse
            ),
            sequence=self._sequence,
            check=self._check,
            pin=lambda: self._lost.explained(self.version),
        )

    def dataset(self) -> ArrowDataset:
        """Return it as a `pyarrow.dataset.Dataset`; see `Table.dataset`."""
        return scan_dataset(self)

    def close(self) -> None:
        """Release the lease and the memory; twice is not an error."""
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


def dictionary_columns(snapshot: Snapshot) -> frozenset[str]:
    """Return the columns of text that the files of a snapshot store as dictionaries."""
    view = snapshot._checked()  # noqa: SLF001 - of this module
    with snapshot._lost.explained(view.version):  # noqa: SLF001 - of this module
        return view.dictionary_columns()


def rows_in_order(
    keys: object, view: TableView, get_rows: GetRows, *, with_missing: bool
) -> pa.Table:
    """Return the rows of keys in the order asked; a key that is given twice has its row twice."""
    context = view.context
    batch = key_batch(keys, context)
    encoded = context.encoder.encode_arrays(batch.columns)
    rows, places = get_rows(encoded)
    if not with_missing and (places[:-1] < places[1:]).all():
        return rows
    asked = np.full(len(encoded), -1, dtype=np.int64)
    asked[places] = np.arange(len(places))
    if not with_missing:
        return taken_rows(rows, asked[asked >= 0] if len(places) < len(asked) else asked)
    schema = pa.schema([field.with_nullable(True) for field in rows.schema])
    found = pa.Table.from_arrays(rows.columns, schema=schema)
    if len(places) == len(asked):
        return taken_rows(found, asked)
    # The row after the last one is NULL.
    missing = pa.Table.from_arrays([nulls(1, field.type) for field in schema], schema=schema)
    asked[asked < 0] = rows.num_rows
    return taken_rows(pa.concat_tables([found, missing]), asked)


class OpenTransactions:
    """What was changed since the open transactions of a table began; safe for many threads.

        sequence   ──────S──────────────────────────────────▶
        memtables        [ flushed, kept ][ flushed, kept ][ in memory ]

    A transaction that began at S is in conflict when a key of it has a change above S. Memtables
    have the sequence of every change; data files do not. So a memtable that is flushed while a
    transaction is open is kept until the transaction ends, up to a number of bytes. Beyond it the
    oldest one goes, and a transaction that needed it can no longer be committed. Writers and
    flushes never wait.
    """

    def __init__(self, *, kept_bytes: int) -> None:
        self._kept_bytes = kept_bytes
        # Read without the lock: each is replaced as a whole.
        self.kept: tuple[Memtable, ...] = ()
        """Flushed memtables, oldest first."""
        self.forgotten_through = 0
        """The last sequence of a memtable that was dropped while a transaction needed it."""
        # Guarded by _lock: how many transactions began at each sequence.
        self._lock = Lock()
        self._begun: dict[int, int] = {}

    def begin(self, sequence: int) -> None:
        """Keep what is flushed from now on and was changed after a sequence."""
        with self._lock:
            self._begun[sequence] = self._begun.get(sequence, 0) + 1

    def end(self, sequence: int) -> None:
        """End what `begin` began."""
        with self._lock:
            count = self._begun.pop(sequence) - 1
            if count:
                self._begun[sequence] = count
            if self.kept:
                oldest = min(self._begun, default=SEQUENCE_MAX)
                self.kept = tuple(each for each in self.kept if each.last_sequence > oldest)

    def keep(self, memtable: Memtable) -> None:
        """Keep a memtable that was flushed, if a transaction may need it."""
        if not self._begun:
            return
        with self._lock:
            oldest = min(self._begun, default=None)
            if oldest is None or memtable.last_sequence <= oldest:
                return
            kept = [*self.kept, memtable]
            byte_count = sum(each.byte_count for each in kept)
            while byte_count > self._kept_bytes:
                dropped = kept.pop(0)
                byte_count -= dropped.byte_count
                self.forgotten_through = dropped.last_sequence
            self.kept = tuple(kept)


class CurrentView:
    """Holds the newest view of a table; safe for many threads."""

    def __init__(self, view: TableView, sequence: int, *, kept_bytes: int = 0) -> None:
        """Begin; `kept_bytes` bound what is kept for open transactions."""
        self.transactions = OpenTransactions(kept_bytes=kept_bytes)
        # Read without the lock: each is replaced as a whole.
        self.view = view
        self.sequence = sequence
        # Held while the view is replaced; wakes threads that wait for a newer Version.
        self._lock = Lock()
        self._moved = Condition(self._lock)

    def wait_beyond(self, version: int, seconds: float) -> bool:
        """Wait for a Version newer than `version`; False when there is none in time."""
        with self._moved:
            return self._moved.wait_for(lambda: self.view.version > version, seconds)

    def push_memtable(self, memtable: Memtable) -> None:
        """Send writes to a new memtable from now on."""
        with self._lock:
            view = self.view
            self.view = TableView(
                (memtable, *view.memtables),
                view.files,
                view.context,
                others_version=view.others_version,
            )

    def install(
        self,
        version: Version,
        *,
        flushed: Memtable | None = None,
        context: TableContext | None = None,
        is_own: bool = False,
    ) -> bool:
        """Show a Version, without the memtable whose rows it has; False when it is older.

        `is_own`: the live writer committed it, with its own rows or no new ones. If it also follows
        the current Version, no other process has written in between.
        """
        if flushed is not None:
            self.transactions.keep(flushed)
        with self._lock:
            view = self.view
            is_newer = version.number > view.version
            files = view.files
            if is_newer:
                files = files.moved_to(version)
            memtables = tuple(each for each in view.memtables if each is not flushed)
            is_alone = not is_newer or (is_own and version.number == view.version + 1)
            self.view = TableView(
                memtables,
                files,
                context or view.context,
                others_version=view.others_version if is_alone else version.number,
            )
            self._moved.notify_all()
            return is_newer

    def replace(self, view: TableView, sequence: int) -> None:
        """Show another view, unless its Version is older; for readers that tail the log."""
        with self._lock:
            if view.version >= self.view.version:
                self.view = view
                self.sequence = sequence
                self._moved.notify_all()
