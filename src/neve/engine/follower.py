"""Follower: a reader beside the live writer that reads on in the log where it was.

    log 7        log 8        log 9 …              the writer appends, rotates, flushes, deletes
    memtable     memtable     memtable, growing    one for each log since the first look
    └── dropped once its rows are in data files

1. Read the head: its Version has all rows up to `flushed_sequence`.
2. Read what was appended to the newest log, and the logs after it, into memtables.
3. Drop the memtables whose rows the Version has; show both at once.

In a table with an order, others may have committed rows that are newer than those in the log. The
writer replaces its own as soon as it knows of them; until then, a memtable on top of all others has
them here. It is made when the Version is another one: rows that the writer logs before it has seen
that Version are shown until it has.

A look costs what is new. It finds no damage: what it cannot read on is read from the beginning, as
opening does, and judged there. The same happens after a change of writer or schema, and for partial
writes, which depend on rows in files.
"""

import pyarrow.compute as pc

from neve.engine.recovery import BatchApply, PreparedParts, Recovered, new_memtable
from neve.engine.ruled_writes import in_order, keys_in, newer_than
from neve.errors import Corruption, NotFound
from neve.manifest.table_head import TableHead
from neve.manifest.version_reader import TableSnapshot
from neve.memtable.memtable import Memtable
from neve.model.write_batch import PartialRows
from neve.storage.table_paths import TablePaths
from neve.table.row_order import RowOrder
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView
from neve.wal.batch_codec import LoggedBatch
from neve.wal.replay import LogFile


class NewerRows:
    """Puts rows of files over older ones in the log; for one thread at a time."""

    def __init__(self, files: TableFiles) -> None:
        self._files = files
        self._version = 0
        self._has_any = False

    def over(self, view: TableView, sequence: int) -> TableView:
        """Return a view of logs and files with the newer of their rows."""
        order = RowOrder.of(view.context.schema)
        if order is None:
            return view
        is_due = self._version != view.version or self._has_any
        self._version = view.version
        top = self._newer(view, sequence, order) if is_due else None
        self._has_any = top is not None
        if top is None:
            return view
        return TableView((top, *view.memtables), view.files, view.context)

    def _newer(self, view: TableView, sequence: int, order: RowOrder) -> Memtable | None:
        memory = in_order(view.memtables, order)
        keys = keys_in(memory)
        if keys is None:
            return None
        context = view.context
        shown = TableView((), view.files, context)
        over = TableView(memory, view.files, context)
        newer = newer_than(over, shown, keys, order, files=self._files, sequence=sequence)
        if newer is None:
            return None
        # There are fewer of them than rows in the log, so every reader of this view sees them.
        top = new_memtable(context, 1)
        is_gone = pc.invert(pc.is_in(newer.deleted, value_set=newer.keys))
        gone = newer.deleted.filter(is_gone)
        top.delete_batch(1, gone)
        top.upsert_batch(1 + len(gone), newer.keys, newer.rows)
        top.freeze()
        return top


class Follower:
    """Reads on in the logs of one table; for one thread at a time."""

    def __init__(
        self, recovered: Recovered, head: TableHead, files: TableFiles, paths: TablePaths
    ) -> None:
        self._replay = recovered.replay
        self._epoch = head.writer_epoch
        self._schema_id = head.schema_id
        self._files = files
        self._paths = paths
        self._sequence = recovered.next_sequence - 1
        self._prepared = PreparedParts(files.parts)
        self._pending = recovered.pending
        self._is_usable = not recovered.report.problems and self._replay.last_log is not None

    def advance(self, view: TableView, snapshot: TableSnapshot) -> tuple[TableView, int] | None:
        """Return the newest view and sequence; None when everything must be read again."""
        head = snapshot.head
        if not self._is_usable or (head.writer_epoch, head.schema_id) != (
            self._epoch,
            self._schema_id,
        ):
            return None
        # Unless all of this succeeds, the next look starts again.
        self._is_usable = False
        try:
            read = self._read_on(view)
        except (NotFound, Corruption):
            return None
        flushed = head.flushed_sequence
        if read is None or self._sequence < flushed:
            return None
        newest, *older = read.memtables
        kept = [newest, *(each for each in older if each.last_sequence > flushed)]
        if any(each.first_sequence <= flushed and not each.is_empty for each in kept):
            return None
        files = view.files
        if snapshot.version.number != view.version:
            files = self._files.file_set(snapshot.version, before=files)
        self._is_usable = True
        return TableView(tuple(kept), files, view.context), self._sequence

    def _read_on(self, view: TableView) -> TableView | None:
        """Apply what was appended; None for what cannot be applied here."""
        apply = BatchApply(view)
        while True:
            for logged in self._replay.read_on():
                if not self._settle(apply):
                    return None
                if isinstance(logged, LoggedBatch):
                    if logged.transaction is not None:
                        self._pending = logged
                        continue
                    if any(type(change) is PartialRows for change in logged.batch.changes):
                        return None
                apply(logged, from_sequence=self._sequence + 1)
                self._sequence = logged.next_sequence - 1
            log = self._replay.last_log
            assert log is not None, "a follower begins in a log"
            is_last = not self._replay.has_log_ended
            if not self._settle(apply, may_wait=is_last):
                return None
            if is_last or not self._replay.begin_next(self._after(log)):
                return view
            view.memtables[0].freeze()
            newer = new_memtable(view.context, self._sequence + 1)
            view = TableView((newer, *view.memtables), view.files, view.context)
            apply = BatchApply(view)

    def _settle(self, apply: BatchApply, *, may_wait: bool = False) -> bool:
        """Apply or drop a part of a transaction; False when everything must be read again.

        The writer logs nothing after it before the decision. So the decision is known if something
        follows, unless it was removed: then the part is in data files.
        """
        part = self._pending
        if part is None:
            return True
        if self._prepared.is_decided(part):
            if any(type(change) is PartialRows for change in part.batch.changes):
                return False
            apply(part, from_sequence=self._sequence + 1)
        elif may_wait:
            return True
        elif self._files.parts.versions.head().flushed_sequence >= part.next_sequence - 1:
            return False
        self._sequence = part.next_sequence - 1
        self._pending = None
        return True

    def _after(self, log: LogFile) -> LogFile:
        number = log.number + 1
        return LogFile(
            number=number, path=self._paths.wal_file(self._epoch, number), epoch=self._epoch
        )
