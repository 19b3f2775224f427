"""Recovery: opens the log of a table and replays rows that are not in data files yet.

Steps of a writer, in this order:

1. take the lock of the log directory: a live writer holds it, a dead one cannot
2. take over the table: the next epoch fences every commit of the previous writer
3. read the head: rows up to `flushed_sequence` are in files; then the mark, then list the logs
4. replay the logs from the floor on into a memtable, and compare them with the mark; merge partial
   writes with the rows of the head, and drop parts of transactions that were not decided
5. begin a new log under the new epoch; replayed logs stay until their rows are flushed, and are
   deleted at once when they have none; with many logs, the replayed rows are flushed first

A reader takes no lock and no epoch, writes nothing, and reads what the operating system has of the
same logs. Logs that vanish while it reads were flushed: it starts again at step 3. Apparent damage
is damage only if it is found again while head, mark and logs stay unchanged.

ENGINE-6  Sequence and log numbers never restart: both are above all numbers in head and logs.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.row_input import given_rows
from neve.engine.ruled_writes import add_folded, new_given
from neve.errors import (
    Corruption,
    InvalidArgument,
    NeveError,
    NotFound,
    Phrase,
    Unavailable,
    Wording,
)
from neve.keys.columns import KeyArray
from neve.manifest.decisions import Decisions
from neve.manifest.table_head import TableHead
from neve.memtable.found_row import GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.write_batch import (
    AppliedBatch,
    Change,
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    UpsertRows,
)
from neve.storage.bucket_log import BucketLogs
from neve.storage.disk import FileKind
from neve.storage.table_paths import log_epoch, log_number, split_path
from neve.table.file_set import FileSet
from neve.table.partial_merge import merged, widened
from neve.table.row_changes import all_columns, folded
from neve.table.row_order import Orders, RowOrder
from neve.table.table_context import TableContext, TableParts
from neve.table.table_view import TableView
from neve.wal.batch_codec import LoggedBatch
from neve.wal.durability import LogMark, MarkedLog
from neve.wal.put_records import PutRun
from neve.wal.replay import LogFile, Problem, RecoveryMode, Replay, ReplayReport

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_STEADY_TRIES: Final = 50
_SALVAGE: Final = (RecoveryMode.POINT_IN_TIME, RecoveryMode.SKIP_CORRUPT)
_ODDITIES: Final = {
    FileKind.DIRECTORY: "a directory is in the place of a log",
    FileKind.LINK: "a symbolic link is in the place of a log",
    FileKind.OTHER: "a pipe, a socket or a device is in the place of a log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The rows in the logs of a table that are not in data files."""

    memtables: tuple[Memtable, ...]
    """Newest first."""
    logs: tuple[LogFile, ...]
    """Every log of the table, with or without needed rows."""
    owned_from: int | None
    """Lowest number of a log that names its table; None when none is known to."""
    next_sequence: int
    next_log_number: int
    report: ReplayReport
    replay: Replay
    """Reads on where it ended; for a reader beside the writer."""
    pending: LoggedBatch | None = None
    """For such a reader: the last batch, if it is a part of an undecided transaction."""
    dropped_through: int = 0
    """For such a reader: the last sequence of a part that it left out."""

    def is_nothing_above(self, head: TableHead) -> bool:
        """Whether the logs were read to their end and hold no row that files lack."""
        is_read = not self.report.problems
        return is_read and self.next_sequence == head.flushed_sequence + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNote:
    """The note in a bucket that the log of its table is on the disk of one machine."""

    location: str
    process: str
    """The last process that wrote there, with its machine."""

    @classmethod
    def read(cls, parts: TableParts) -> "LogNote | None":
        """Read the note; None when the log is in the bucket. Raises Corruption."""
        path = parts.paths.log_place
        try:
            told = json.loads(parts.objects.get(path).payload)
            return cls(location=str(told["location"]), process=str(told["process"]))
        except NotFound:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise Corruption("the note of where the log is cannot be read", path=path) from error


def settle_log_place(parts: TableParts, *, epoch: int, mode: RecoveryMode) -> None:
    """Check that no rows are in a log elsewhere, and note where this one is.

    The log of a table in a bucket is in the bucket or on the disk of one machine. Raises
    InvalidArgument when the other one may have rows; a mode that salvages leaves them behind.
    """
    if not parts.is_log_apart and parts.has_locks:
        return
    note = LogNote.read(parts)
    here = parts.logs.location if parts.is_log_apart else None
    salvages = mode in _SALVAGE
    if note is not None and note.location != here and not salvages:
        raise InvalidArgument(
            f"the log of the table, which may have rows, is at {note.location} ({note.process})",
            path=parts.paths.log_place,
            hint="Open the table there with that log, flush and close it; or give up what is not "
            'flushed with recovery="point_in_time"',
        )
    if here is None:
        if note is not None:
            parts.objects.delete(parts.paths.log_place)
        return
    bucket = BucketLogs(parts.objects, ids=parts.ids)
    bucket.fence(parts.paths.wal, below=epoch)
    if read_needed_logs(replace(parts, logs=bucket)).row_count and not salvages:
        raise InvalidArgument(
            "rows of the table are in its log in the bucket",
            path=parts.paths.wal,
            hint="Open the table without log, flush and close it, then open it with this log",
        )
    told = {"location": here, "process": parts.ids.process()}
    parts.objects.put(parts.paths.log_place, json.dumps(told).encode())


def leave_log_place(parts: TableParts) -> None:
    """Remove the note when every row is in data files: then the log may be anywhere."""
    if not parts.is_log_apart:
        return
    try:
        note = LogNote.read(parts)
        if note is not None and note.location == parts.logs.location:
            parts.objects.delete(parts.paths.log_place)
    except NeveError as error:
        # It only keeps others from opening the table without this log.
        logger.warning("left the note of a log path=%s cause=%s", parts.paths.log_place, error)


def find_logs(parts: TableParts) -> list[LogFile]:
    """Return the logs of all epochs, in the order in which they were written.

    An entry with the name of a log that is not a plain file is included, with its oddity. Any other
    entry that is neither a plain file nor the directory of an epoch is Corruption; other plain
    files are ignored.
    """
    paths: dict[str, str | None] = {
        info.path: None for info in parts.logs.list(f"{parts.paths.wal}/")
    }
    for path, kind in parts.logs.odd_entries(parts.paths.wal).items():
        is_top = split_path(path)[0] == parts.paths.wal
        if log_epoch(path) is not None:
            paths[path] = _ODDITIES[kind]
        elif not (is_top and kind is FileKind.DIRECTORY):
            raise Corruption(
                "an entry among the logs is not a plain file",
                path=path,
                hint="Find its origin, and remove it: neve makes no links, pipes or devices",
            )
    found = []
    for path, oddity in paths.items():
        number, epoch = log_number(path), log_epoch(path)
        if number is not None and epoch is not None:
            found.append(LogFile(number=number, path=path, epoch=epoch, oddity=oddity))
    # In a bucket, a writer that was overtaken while it began may leave a log of the same number.
    return sorted(found, key=lambda log: (log.number, log.epoch))


def read_mark(parts: TableParts, table: UUID) -> LogMark | None:
    """Read the mark, which says how far the newest log went; None when there is none.

    Raises Corruption for a damaged mark, or one of another table.
    """
    path = parts.paths.log_mark
    try:
        stored = parts.logs.get(path)
    except NotFound:
        return None
    mark = LogMark.decode(stored.payload, path=path)
    if mark.table != table:
        raise Corruption(
            f"the mark of the log belongs to table {mark.table}",
            path=path,
            hint=Wording(Phrase.SALVAGE_LOG, what="it", mode="'skip_corrupt'"),
        )
    return mark


def replay_logs(
    parts: TableParts, head: TableHead, *, mode: RecoveryMode
) -> tuple[Replay, list[LogFile], int | None]:
    """Return the replay of rows that are not in data files, all logs, and the mark's `owned_from`.

    Logs are listed after the mark is read: by then the log it names exists, or was flushed.
    """
    table = UUID(head.table_uuid)
    problem: Problem | None = None
    mark: LogMark | None = None
    try:
        mark = read_mark(parts, table)
    except Corruption as error:
        if mode not in _SALVAGE:
            raise
        problem = Problem(path=parts.paths.log_mark, offset=0, what=error.message)
    logs = find_logs(parts)
    marked = None
    # A log below the floor is not needed, and may be deleted already.
    if mark is not None and mark.log_number >= head.wal_floor:
        marked = MarkedLog(mark=mark, path=parts.paths.wal_file(mark.epoch, mark.log_number))
    replay = Replay(
        parts.logs,
        [log for log in logs if log.number >= head.wal_floor],
        mode=mode,
        from_sequence=head.flushed_sequence + 1,
        table=table,
        marked=marked,
    )
    if problem is not None:
        replay.report.problems.append(problem)
    return replay, logs, None if mark is None else mark.owned_from


def read_steadily(parts: TableParts, read: Callable[[], Answer | None]) -> Answer:
    """Read head and logs without a lock; the writer may rotate, flush and delete logs.

    `read` returns None to be repeated. A problem is raised when it occurs again and nothing has
    changed in between.
    """
    problem: NeveError | None = None
    signs: object = None
    for _ in range(_STEADY_TRIES):
        try:
            answer = read()
        except (NotFound, Corruption) as error:
            problem, before, signs = error, signs, _signs(parts)
            if signs == before:
                raise
            continue
        if answer is not None:
            return answer
    raise problem or Unavailable(
        "the writer flushed as fast as its log was read",
        path=parts.paths.wal,
        hint="Try again, or raise the writer's memtable_bytes so that it flushes less often",
    )


def _signs(parts: TableParts) -> object:
    """Return values that change when a writer begins, rotates, flushes or ends."""
    head = parts.versions.head()
    logs = [info.path for info in parts.logs.list(f"{parts.paths.wal}/")]
    try:
        mark = parts.logs.get(parts.paths.log_mark).payload
    except (NotFound, Corruption):
        mark = b""
    return head.flushed_sequence, head.wal_floor, head.writer_epoch, logs, mark


def read_needed_logs(parts: TableParts) -> ReplayReport:
    """Read every needed log as opening the table does; raises the same errors."""

    def read() -> ReplayReport:
        head = parts.versions.head()
        if head.dropped:
            return ReplayReport()
        replay, _, _ = replay_logs(parts, head, mode=RecoveryMode.TOLERATE_TORN_TAIL)
        for _ in replay.runs():
            pass
        return replay.report

    return read_steadily(parts, read)


def recover(
    parts: TableParts,
    head: TableHead,
    context: TableContext,
    *,
    files: FileSet,
    mode: RecoveryMode,
    by_log: bool = False,
) -> Recovered:
    """Replay rows that are not in data files; raises Corruption depending on the mode.

    `files` are those of the head's Version: partial writes are merged with their rows. `by_log`
    makes a memtable for each log: a flush has all rows of a log, or none. It is for readers beside
    the writer, who wait for the decision of a transaction that the log ends with. Changes that were
    made under other rules of rows have a memtable of their own, so that they are read under those.
    """
    first = head.flushed_sequence + 1
    replay, logs, owned_from = replay_logs(parts, head, mode=mode)
    view = TableView((new_memtable(context, first),), files, context)
    apply = BatchApply(view)
    log = None
    prepared = PreparedParts(parts)
    pending: LoggedBatch | None = None
    dropped_through = 0
    for logged in replay.runs():
        if pending is not None:
            # The writer went on, so the decision of the one before is known.
            if prepared.is_decided(pending):
                apply(pending, from_sequence=first)
            else:
                dropped_through = pending.next_sequence - 1
            pending = None
        if isinstance(logged, LoggedBatch) and logged.transaction and logged.next_sequence > first:
            if by_log and not prepared.is_decided(logged):
                pending = logged
                continue
            if not by_log and not prepared.settle(logged):
                continue
        ruling = _ruling_context(context, logged.schema_version)
        is_next = by_log and log not in {None, replay.last_log}
        if is_next or ruling.schema.rules != view.context.schema.rules:
            view = _with_memtable(view, ruling, max(logged.sequence, first))
            apply = BatchApply(view)
        log = replay.last_log
        apply(logged, from_sequence=first)
    reached = replay.report.next_sequence if pending is None else pending.sequence
    next_sequence = max(reached or 1, head.last_sequence + 1, first)
    if view.context is not context:
        view = _with_memtable(view, context, next_sequence)
    highest = max((log.number for log in logs), default=0)
    return Recovered(
        memtables=view.memtables,
        logs=tuple(
            replace(log, first_sequence=replay.report.log_starts.get(log.number))
            for log in logs
            if log.path not in replay.refused_paths
        ),
        owned_from=owned_from,
        next_sequence=next_sequence,
        next_log_number=max(head.next_log_number, highest + 1),
        report=replay.report,
        replay=replay,
        pending=pending,
        dropped_through=dropped_through,
    )


class PreparedParts:
    """Says which parts of transactions over several tables count."""

    def __init__(self, parts: TableParts) -> None:
        self._decisions = parts.decisions
        self._path = parts.paths.wal

    def is_decided(self, logged: LoggedBatch) -> bool:
        """Return whether the transaction of a part is decided so far."""
        decisions, transaction = self._of(logged)
        return decisions.are_decided([transaction])[transaction]

    def settle(self, logged: LoggedBatch) -> bool:
        """Return whether it is decided; if not, it never will be."""
        decisions, transaction = self._of(logged)
        is_decided = decisions.settle(transaction)
        if not is_decided:
            rows = logged.batch.row_count
            logger.info("dropped a part transaction=%s rows=%d", transaction, rows)
        return is_decided

    def _of(self, logged: LoggedBatch) -> tuple[Decisions, str]:
        transaction = logged.batch.transaction
        assert transaction is not None, "a part names its transaction"
        if self._decisions is None:
            raise InvalidArgument(
                f"the log has a part of transaction {transaction!a}, whose decision is in the lake",
                path=self._path,
                hint="Open the table from its lake",
            )
        return self._decisions, transaction


def _ruling_context(context: TableContext, schema_id: int) -> TableContext:
    """Return how changes of a schema are replayed: by the newest schema that has its rules."""
    if schema_id == context.schema.schema_id:
        return context
    logged = context.definitions.schema(schema_id)
    if logged.rules == context.schema.rules:
        return context
    return TableContext(logged, context.definitions)


def _with_memtable(view: TableView, context: TableContext, first_sequence: int) -> TableView:
    """Return the view with a new memtable, in the place of an empty one."""
    newest, *older = view.memtables
    if not newest.is_empty:
        newest.freeze()
        older.insert(0, newest)
    newer = new_memtable(context, first_sequence)
    return TableView((newer, *older), view.files, context)


def new_memtable(context: TableContext, first_sequence: int) -> Memtable:
    """Return an empty memtable under a schema."""
    return Memtable(context.schema, context.codec, context.encoder, first_sequence=first_sequence)


class BatchApply:
    """Applies logged batches of any schema to the newest memtable of a view."""

    def __init__(self, view: TableView) -> None:
        self._view = view
        self._context = view.context
        schema = view.context.schema
        self._folds = bool(schema.rules.merge)
        self._is_ordered = bool(schema.rules.order_by)
        self._all_columns = all_columns(schema)

    def __call__(self, logged: LoggedBatch | PutRun, *, from_sequence: int) -> None:
        """Apply the rows of a batch that are not in data files yet."""
        memtable = self._view.memtables[0]
        if isinstance(logged, PutRun):
            run = logged.needed(from_sequence)
            if run.keys:
                self._put_run(memtable, run)
            return
        sequence = int(logged.sequence)
        changes = logged.batch.changes
        if len(changes) == 1 and type(put := changes[0]) is PutRow and not self._folds:
            # The most frequent batch.
            if sequence >= from_sequence:
                memtable.put(sequence, put.key, put.value)
            return
        is_copied = self._is_ordered and [*map(type, changes)] == [DeleteRows, UpsertRows]
        for change in changes:
            skipped = min(max(from_sequence - sequence, 0), change.row_count)
            if skipped < change.row_count:
                self._apply(
                    memtable, sequence + skipped, change, skipped, logged.batch.schema_version
                )
                if is_copied and isinstance(change, UpsertRows):
                    self._note_copies(memtable, sequence, change, changes[0])
            sequence += change.row_count

    def _put_run(self, memtable: Memtable, run: PutRun) -> None:
        if not self._folds:
            memtable.put_run(run.sequence, run.keys, run.values)
            return
        schema = self._context.schema
        rows = self._context.codec.decode_many(run.values)
        by_age = np.arange(rows.num_rows)
        # All at once: no one reads at a sequence in between.
        rows, keys = folded(rows, self._keys(rows), by_age, schema, schema.rules)
        given = new_given(keys, np.empty(0, np.int64), self._all_columns)
        self._fold(memtable, run.next_sequence - len(keys), rows, keys, given)

    def _apply(
        self, memtable: Memtable, sequence: int, change: Change, skipped: int, schema_id: int
    ) -> None:
        match change:
            case PutRow(key, value):
                if self._folds:
                    row = self._context.codec.decode_many([value])
                    given = new_given(self._keys(row), np.empty(0, np.int64), self._all_columns)
                    self._fold(memtable, sequence, row, self._keys(row), given)
                else:
                    memtable.put(sequence, key, value)
            case DeleteRow(key):
                memtable.delete(sequence, key)
            case UpsertRows(rows):
                batch = self._context.mapping_from(schema_id).batch(rows.slice(skipped))
                keys = self._keys(batch)
                if self._folds:
                    given = new_given(keys, np.empty(0, np.int64), self._all_columns)
                    self._fold(memtable, sequence, batch, keys, given)
                else:
                    memtable.upsert_batch(sequence, keys, batch)
            case DeleteRows(deleted):
                named = deleted.slice(skipped)
                count = len(self._context.encoder.names)
                encoded = self._context.encoder.encode_arrays(named.columns[:count])
                memtable.delete_batch(sequence, encoded, self._orders_of(named, schema_id))
            case PartialRows(rows, field_ids):
                self._merge(memtable, sequence, rows.slice(skipped), field_ids, schema_id)
            case AppliedBatch(application, number):
                memtable.note_applied(sequence, application, number)

    def _merge(
        self,
        memtable: Memtable,
        sequence: int,
        rows: pa.RecordBatch,
        field_ids: tuple[int, ...],
        schema_id: int,
    ) -> None:
        """Merge a partial write with the current rows of its keys, in the memtable or in files."""
        schema = self._context.schema
        # Use the defaults of the schema it was written with.
        mapping = self._context.mapping_from(schema_id)
        batch = mapping.batch(widened(rows, mapping.source))
        keys = self._keys(batch)
        view = self._view
        base, places = view.get_many(keys, sequence - 1)
        given = frozenset(field_ids)
        whole = merged(batch, base, places, given=given, schema=schema)
        if self._folds:
            self._fold(memtable, sequence, whole, keys, new_given(keys, places, given))
            return
        more = given_rows(memtable, keys, places, given, version=view.version)
        memtable.upsert_batch(sequence, keys, whole, given=more)

    def _fold(
        self,
        memtable: Memtable,
        sequence: int,
        rows: pa.RecordBatch,
        keys: KeyArray,
        given: Sequence[GivenColumns],
    ) -> None:
        add_folded(
            memtable, sequence, rows, keys, given, context=self._context, files=self._view.files
        )

    def _note_copies(
        self, memtable: Memtable, sequence: int, written: UpsertRows, deleted: Change
    ) -> None:
        """Find copies of rows in files: each follows a delete of its key in the same batch."""
        assert isinstance(deleted, DeleteRows)
        names = self._context.encoder.names
        gone = self._context.encoder.encode_arrays(deleted.keys.columns[: len(names)])
        keys = self._keys(written.rows)
        if pc.all(pc.is_in(keys, value_set=gone)).as_py():
            memtable.note_copies(sequence, keys)

    def _orders_of(self, deleted: pa.RecordBatch, schema_id: int) -> Orders | None:
        """Return how new logged deletes are; None when they have no order, or another one."""
        schema = self._context.schema
        order, source = RowOrder.of(schema), self._context.mapping_from(schema_id).source
        if order is None or source.rules.order_by != schema.rules.order_by:
            return None
        names = source.order_names
        if any(name not in deleted.schema.names for name in names):
            return None
        wanted = pa.schema([schema.column(name).arrow_field for name in order.names])
        columns = [deleted.column(name) for name in names]
        return order.of_rows(pa.table(columns, list(order.names)).cast(wanted))

    def _keys(self, batch: pa.RecordBatch) -> KeyArray:
        columns = [batch.column(name) for name in self._context.encoder.names]
        return self._context.encoder.encode_arrays(columns)


def drop_logs(parts: TableParts, logs: Iterable[LogFile], *, below: int) -> list[LogFile]:
    """Delete logs below the floor; returns the others."""
    kept = []
    for log in logs:
        if log.number < below:
            parts.logs.delete(log.path)
        else:
            kept.append(log)
    return kept
