"""TableEngine: one open table, shared by its readers and its one writer.

    read      view taken (memtables and Version together) ──► sequence taken ──► rows

A handle is opened for writing or for reading only. A writing handle holds the table's lock and is
the only writer. A read-only handle writes nothing, sees committed rows and the part of the log that
the operating system has, and advances with `refresh`.

ENGINE-4  A read-only handle has no side effects except leases, and none where it cannot take them.
ENGINE-5  A reader that finds a file missing tries once more on the newest Version: files of the
          current Version are never deleted.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final, TypeVar
from uuid import UUID

import pyarrow as pa

from neve.engine.follower import Follower, NewerRows
from neve.engine.lease_book import LeaseBook
from neve.engine.live_writer import LiveWriter, WriterClaim
from neve.engine.publishing import CommitPublishing
from neve.engine.recovery import (
    Recovered,
    drop_logs,
    leave_log_place,
    read_steadily,
    recover,
    settle_log_place,
)
from neve.engine.snapshot import CurrentView, LostFiles, Snapshot, SnapshotOrigin
from neve.engine.table_options import PublishMode, TableOptions
from neve.engine.upkeep import (
    Upkeep,
    forget_decisions,
    refuse_overtaken,
    remove_old_epochs,
    sweep_leftovers,
)
from neve.engine.write_buffer import WriteBuffer
from neve.engine.write_path import Decide, PreparedWrite
from neve.errors import (
    Closed,
    Fenced,
    InvalidArgument,
    NeveError,
    NotFound,
    Phrase,
    SchemaMismatch,
    StorageFull,
    Wording,
)
from neve.keys.columns import KeyArray
from neve.manifest.leases import HeldLease
from neve.manifest.version_reader import TableSnapshot
from neve.model.version import Version
from neve.observability.events import EventKind
from neve.read.filters import Filter
from neve.read.scan import Scan, ScanRequest
from neve.storage.object_store import LockHandle
from neve.storage.own_process import forked, keep_to_process, note_forked_at_work
from neve.table.file_set import FileSet
from neve.table.partial_merge import Places
from neve.table.table_context import TableContext, TableParts
from neve.table.table_files import TableFiles
from neve.table.table_view import Row, TableView
from neve.wal.durability import LogOwner
from neve.wal.log_options import LogPlace, LogTools
from neve.wal.replay import RecoveryMode, ReplayReport
from neve.wal.write_ahead_log import WriteAheadLog

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_LOOKS: Final = 2
_LOOK_SECONDS: Final = 0.01


class TableEngine:
    """An open table; safe for many threads."""

    def __init__(
        self, parts: TableParts, options: TableOptions | None = None, *, read_only: bool = False
    ) -> None:
        """Open the table; raises Fenced when another process writes it, NotFound when dropped."""
        # Fixed at construction.
        self.parts = parts
        self.options = options or TableOptions()
        self.is_read_only = read_only
        self.leases = LeaseBook(
            parts.leases,
            parts.versions,
            seconds=self.options.lease_seconds,
            may_write=not read_only,
        )
        self.upkeep = Upkeep(parts)
        self.lost = LostFiles(parts)
        self._refreshing = Lock()
        # Read without a lock: replaced as a whole.
        self._closed: Closed | None = None
        self._is_dropped = self._is_forked = False
        # Owned by the upkeep thread.
        self._is_swept = False
        self.files = TableFiles(
            parts,
            parts.versions.snapshot_known().head.schema_id,
            cache_bytes=self.options.cache_bytes,
            file_bytes=self.options.file_bytes,
        )
        self._writer: LiveWriter | None = None
        # Guarded by _refreshing.
        self._follower: Follower | None = None
        self._newer = NewerRows(self.files)
        self._logged: TableView | None = None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Open for reading or writing; the caller closes if this fails."""
        keep_to_process(self)
        if self.is_read_only:
            view, sequence, self.recovery = self._read_state()
            self.current = CurrentView(view, sequence)
        else:
            try:
                self._writer = self._open_writer()
            except StorageFull as error:
                raise StorageFull(
                    error.message, path=error.path, hint=Wording(Phrase.ROOM_FOR_A_WRITER)
                ) from error
            self._writer.settle()
            if self.options.background:
                self._flush_replayed(self._writer)
                self._writer.start_background(
                    (self.leases.renew_once, self.upkeep.tend_once, self._sweep_once)
                )
        self.opened_at = self.current.sequence
        self.parts.report(
            EventKind.OPENED,
            version=self.current.view.version,
            sequence=self.current.sequence,
            replayed=self.recovery.row_count,
        )

    # Reading

    def get(self, key: object) -> Row | None:
        """Return the row of a key, or None."""
        current = self.current
        view = current.view
        if self._closed is not None:
            raise self._closed_error()
        context = view.context
        try:
            encoded = context.encode_plain_key(key)
        except (SchemaMismatch, InvalidArgument):
            encoded = context.encode_key(key)
        if view.expires:
            view = self.as_seen(view)
        try:
            # Not the newest change: an applied change may not be visible yet.
            return view.get_at(encoded, current.sequence)
        except NotFound:
            self.refresh()
        except InvalidArgument:
            pass  # overwritten rows were dropped after the sequence was taken
        with self._held_memory() as (view, sequence), self.lost.explained(view.version):
            return self.as_seen(view).get_at(encoded, sequence)

    def get_many(
        self, keys: KeyArray, *, columns: Sequence[str] | None = None
    ) -> tuple[pa.Table, Places]:
        """Return the rows of unique keys in any order, and the index of each row's key."""

        def read() -> tuple[pa.Table, Places]:
            with self._held_memory() as (view, sequence):
                return self.as_seen(view).get_many(keys, sequence, columns=columns)

        return self.once_more(read)

    def as_seen(self, view: TableView) -> TableView:
        """Return a view as readers see it now: without the rows that have expired."""
        return view.as_of(self.parts.clock.now_ms()) if view.expires else view

    def once_more(self, read: Callable[[], Answer]) -> Answer:
        """Read the current view; if a file of it is missing, read the newest one (ENGINE-5)."""
        if self._closed is not None:
            raise self._closed_error()
        try:
            return read()
        except NotFound:
            self.refresh()
            with self.lost.explained(self.current.view.version):
                return read()

    @contextmanager
    def pinned_view(self) -> Iterator[tuple[TableView, int]]:
        """Yield a view and sequence that stay readable until the end of the block."""
        view, sequence = self.pin_view()
        try:
            yield view, sequence
        finally:
            self.unpin_view(view, sequence)

    def pin_view(self) -> tuple[TableView, int]:
        """Pin the newest view: its rows in memory and the files of its Version."""
        return self._pinned_now() or self.parts.leases.until_held(self._pinned_now)

    def _pinned_now(self) -> tuple[TableView, int] | None:
        if self._closed is not None:
            raise self._closed_error()
        view = self.current.view
        sequence = self.current.sequence
        return (view, sequence) if self.pin_known(view, sequence) else None

    def pin_known(self, view: TableView, sequence: int) -> bool:
        """Pin a view that was the newest one; False when something of it is gone."""
        try:
            self.leases.pin(view.version)
        except NotFound:
            self.refresh()
            return False
        if view.pin_memory(sequence):
            return True
        self.leases.unpin(view.version)
        return False

    def unpin_view(self, view: TableView, sequence: int) -> None:
        """End what `pin_view` began."""
        view.unpin_memory(sequence)
        self.leases.unpin(view.version)

    def scan(self, request: ScanRequest, check: Callable[[], None]) -> Scan:
        """Read many rows as of now; `check` raises when the caller's handle was closed."""
        view, sequence = self.pin_view()
        try:
            # A scan takes the rows in memory when it is made, and pins files again when it runs.
            return Scan(
                self.as_seen(view),
                request,
                sequence=sequence,
                check=check,
                pin=lambda: self.pinned_run(view.version),
            )
        finally:
            self.unpin_view(view, sequence)

    def snapshot(self, origin: SnapshotOrigin) -> Snapshot:
        """Return the table as it is now, frozen: rows that expire later stay."""
        return self.snapshot_of_pinned(*self.pin_view(), origin)

    def snapshot_of_pinned(
        self, view: TableView, sequence: int, origin: SnapshotOrigin
    ) -> Snapshot:
        """Return a view that is pinned, as it is seen now; closing the snapshot unpins it."""
        return Snapshot(
            self.as_seen(view),
            sequence,
            origin,
            lease=self.leases.lease_of(view.version),
            lost=self.lost,
            release=lambda: self.unpin_view(view, sequence),
        )

    def snapshot_of(self, version: Version, origin: SnapshotOrigin) -> Snapshot:
        """Show an old Version as it was when it was committed, under the schema of that time."""
        self.check_open()
        lease = self.leases.pin(version.number)
        return Snapshot(
            self.files.view(version).as_of(version.facts.timestamp_ms),
            0,
            origin,
            lease=lease,
            lost=self.lost,
            release=lambda: self.leases.unpin(version.number),
        )

    def delete_where(self, filter: Filter) -> int:  # noqa: A002 - the word of `scan`
        """Delete the rows that match, while no other write can come between."""
        writer = self.writer
        if filter is None:
            raise InvalidArgument("no filter was given", hint='Pass "true" to delete all rows')

        def decide() -> PreparedWrite | None:
            view = self.as_seen(self.current.view)
            # No refresh here: showing another schema waits for the log, which waits for this.
            keys = Scan(
                view,
                ScanRequest(filter=filter, columns=list(view.context.encoder.names)),
                sequence=self.current.sequence,
                check=self.check_open,
                pin=lambda: self.leases.pinned(view.version),
            ).to_arrow()
            prepared = writer.path.delete_many(keys)
            return prepared() if callable(prepared) else prepared

        return self.write(decide)

    # Writing

    def put(self, row: Mapping[str, object]) -> int:
        """Write one row; return its sequence number."""
        writer = self._writer
        if writer is None or self._closed is not None:
            writer = self.writer
        path = writer.path
        return writer.put(row) if path.is_plain else self.write(path.put(row))

    def write(self, write: PreparedWrite | Decide) -> int:
        """Write changes that the writer's path prepared; return the last sequence number."""
        writer = self.writer
        if callable(write):
            # It reads rows to decide.
            sequence = self.once_more(lambda: writer.write(write))
        else:
            sequence = writer.write(write)
        return self.current.sequence if sequence is None else sequence

    @property
    def writer(self) -> LiveWriter:
        """The live writer; raises InvalidArgument for a handle that only reads."""
        if self._closed is not None:
            raise self._closed_error()
        if self._writer is None:
            raise InvalidArgument(
                "the table was opened for reading only",
                path=self.parts.paths.root,
                hint="Open it without read_only to write",
            )
        return self._writer

    # Living

    def refresh(self) -> None:
        """Show the newest state: commits of others and, read-only, newly logged rows."""
        self.check_open()
        if self._writer is not None:
            self._writer.refresh()
            return
        with self._refreshing:
            if not self._follow():
                view, sequence, self.recovery = self._read_state(before=self.current.view)
                self.current.replace(view, sequence)

    def close(self, *, flush: bool = False, dropped: bool = False) -> None:
        """Close; twice is not an error. Unflushed rows stay in the log for the next open.

        `dropped`: the table was dropped, and will not be opened again.
        """
        self._is_dropped = self._is_dropped or dropped
        if self._closed is not None:
            return
        try:
            if self._writer is not None:
                self._writer.close(flush=flush, publish=not self._is_dropped)
                if all(memtable.is_empty for memtable in self.current.view.memtables):
                    leave_log_place(self.parts)
        finally:
            self._closed = self._closed_error()
            self.leases.close()
            self.files.close()
            self.parts.report(EventKind.CLOSED)

    def publish_committed(self, version: int) -> None:
        """Publish a commit that was just made, as the options say; raises NotPublished."""
        if self._writer is not None and self._writer.publishing is not None:
            self._writer.publishing.publish_committed(version)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed is not None

    def check_open(self) -> None:
        """Raise Closed once the handle was closed."""
        if self._closed is not None:
            raise self._closed_error()

    def end_in_child(self) -> None:
        """Refuse all calls: locks and threads belong to the parent process."""
        if self._closed is None:
            note_forked_at_work()
        self._is_forked = True
        self._closed = self._closed_error()

    def _sweep_once(self) -> bool:
        """Delete, once after opening, the files of a dead writer; returns False."""
        if not self._is_swept:
            with self.writer.alone():
                self.upkeep.sweep(dry_run=False, epoch=self.writer.epoch)
            sweep_leftovers(self.parts)
            self._is_swept = True
        return False

    def _closed_error(self) -> Closed:
        path = self.parts.paths.root
        if self._is_forked:
            return forked(path=path)
        if self._is_dropped:
            return Closed("the table was dropped", path=path, hint="Create it again")
        return Closed("the table was closed", path=path, hint="Open it again")

    def _open_writer(self) -> LiveWriter:
        """Take lock and epoch, replay, begin the log; releases everything if a step fails."""
        parts, options = self.parts, self.options
        lock = self._take_lock()
        try:
            epoch = parts.writer_state.take_over()
            parts.logs.fence(parts.paths.wal, below=epoch)
            settle_log_place(parts, epoch=epoch, mode=RecoveryMode(options.recovery))
            # Known since the takeover: no flush of an earlier writer comes after it.
            snapshot = parts.versions.snapshot_known()
            context = self.files.context(snapshot.head.schema_id)
            files = self.files.file_set(snapshot.version)
            recovered = self._recover(snapshot, context, files)
            self.recovery = recovered.report
            older = drop_logs(parts, recovered.logs, below=snapshot.head.wal_floor)
            log = WriteAheadLog(
                LogPlace(
                    logs=parts.logs,
                    log_path=lambda number: parts.paths.wal_file(epoch, number),
                    owner=LogOwner(
                        table=UUID(snapshot.head.table_uuid),
                        epoch=epoch,
                        mark_path=parts.paths.log_mark,
                        owned_from=recovered.owned_from,
                    ),
                    check_begun=lambda: refuse_overtaken(parts, epoch),
                ),
                next_log_number=recovered.next_log_number,
                next_sequence=recovered.next_sequence,
                older_logs=older,
                options=options.log_options if parts.has_locks else options.bucket_log_options,
                tools=LogTools(clock=parts.clock, ids=parts.ids, recorder=parts.recorder),
            )
            remove_old_epochs(parts, below=epoch)
            forget_decisions(parts, snapshot.head.flushed_sequence)
            if recovered.is_nothing_above(snapshot.head):
                log.truncate_below(log.active_log_number)
            view = TableView(recovered.memtables, files, context)
            self.current = CurrentView(
                view, recovered.next_sequence - 1, kept_bytes=options.transaction_bytes
            )
            buffer = WriteBuffer(log, self.current, memtable_bytes=options.memtable_bytes)
            if buffer.is_long:
                buffer.roll()
            return LiveWriter(
                self.files,
                options,
                leases=self.leases,
                current=self.current,
                buffer=buffer,
                claim=WriterClaim(epoch=epoch, lock=lock, spec_id=snapshot.head.spec_id),
                publishing=self._publishing(),
            )
        except BaseException:
            lock.release()
            raise

    def _take_lock(self) -> LockHandle:
        """Take the lock of the writer; raises Fenced when another one holds it.

        A job that looks for a live writer holds it for a moment, so it is tried a few times.
        """
        logs, path = self.parts.logs, self.parts.paths.lock
        for _ in range(_LOOKS):
            with suppress(Fenced):
                return logs.lock(path)
            self.parts.clock.sleep(_LOOK_SECONDS)
        return logs.lock(path)

    def _flush_replayed(self, writer: LiveWriter) -> None:
        """Flush rows that were frozen at opening because of many logs; threads retry a failure."""
        try:
            while writer.flush_once():
                pass
        except NeveError as error:
            logger.warning("could not flush replayed rows cause=%s", error)

    def _publishing(self) -> CommitPublishing | None:
        if self.parts.published is None or self.options.iceberg_publish != PublishMode.COMMIT:
            return None
        return CommitPublishing(self.parts)

    def _recover(
        self,
        snapshot: TableSnapshot,
        context: TableContext,
        files: FileSet,
        *,
        by_log: bool = False,
    ) -> Recovered:
        return recover(
            self.parts,
            snapshot.head,
            context,
            files=files,
            mode=RecoveryMode(self.options.recovery),
            by_log=by_log,
        )

    def _read_state(self, before: TableView | None = None) -> tuple[TableView, int, ReplayReport]:
        """Read head and log without a lock."""

        def read() -> tuple[TableView, int, ReplayReport] | None:
            snapshot = self.parts.versions.snapshot_latest()
            if snapshot.head.dropped:
                raise NotFound("the table was dropped", path=self.parts.paths.manifest)
            context = self.files.context(snapshot.head.schema_id)
            known = None if before is None else before.files
            files = self.files.file_set(snapshot.version, before=known)
            recovered = self._recover(snapshot, context, files, by_log=True)
            # A flush in between may have removed rows from the logs that the Version lacks.
            flushed = self.parts.versions.head().flushed_sequence
            if recovered.next_sequence <= flushed or 0 < recovered.dropped_through <= flushed:
                return None
            view = TableView(recovered.memtables, files, context)
            self._follower = Follower(recovered, snapshot.head, self.files, self.parts.paths)
            self._logged, sequence = view, recovered.next_sequence - 1
            self._newer = NewerRows(self.files)
            return self._newer.over(view, sequence), sequence, recovered.report

        return read_steadily(self.parts, read)

    def _follow(self) -> bool:
        """Show what is new since the last look; False when everything must be read again."""
        if self._follower is None or self._logged is None:
            return False
        snapshot = self.parts.versions.snapshot_latest()
        advanced = None
        if not snapshot.head.dropped:
            advanced = self._follower.advance(self._logged, snapshot)
        if advanced is None:
            self._follower = None
            return False
        self._logged, sequence = advanced
        self.current.replace(self._newer.over(self._logged, sequence), sequence)
        return True

    @contextmanager
    def pinned_run(self, version: int) -> Iterator[HeldLease | None]:
        """Keep the files of a Version while a scan runs."""
        with self.lost.explained(version), self.leases.pinned(version) as lease:
            yield lease

    @contextmanager
    def _held_memory(self) -> Iterator[tuple[TableView, int]]:
        """Yield the newest view and sequence, with their rows in memory pinned."""
        view, sequence = self.current.view, self.current.sequence
        while not view.pin_memory(sequence):
            # Overwritten rows were dropped in between: a newer sequence is visible.
            view, sequence = self.current.view, self.current.sequence
        try:
            yield view, sequence
        finally:
            view.unpin_memory(sequence)
