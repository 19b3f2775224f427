"""Opens the log of a table: who may write it, and what of it is not in data files yet.

Steps of a writer, in this order:

1. take the lock of the log directory: a writer that is alive keeps it, a dead one cannot
2. take the table over: the next epoch fences every commit of the writer before
3. read the head: rows up to `flushed_sequence` are in files
4. replay the logs above it into a memtable; partial writes are merged with the rows of the head
5. begin a new log under the new epoch; the replayed ones stay until their rows are flushed, and go
   at once when there are none; are there many, what was replayed is the first to be flushed

A reader takes no lock and no epoch, writes nothing, and reads the same logs as far as the operating
system has them. Logs that vanish while it reads were flushed: it starts again at step 3.

Q1  Sequence and log numbers never restart: both are above everything the head and the logs know.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from neve.engine.partial_rows import given_rows
from neve.engine.table_parts import TableParts
from neve.manifest.table_head import TableHead
from neve.memtable.memtable import Memtable
from neve.model.key_column import KeyArray
from neve.model.schema import TableSchema
from neve.model.write_batch import (
    Change,
    DeleteRow,
    DeleteRows,
    PartialRows,
    PutRow,
    UpsertRows,
)
from neve.read.file_set import FileSet
from neve.read.partial_merge import merged, widened
from neve.read.read_context import ReadContext
from neve.read.schema_mapping import SchemaMapping
from neve.read.table_view import TableView
from neve.storage.table_paths import log_epoch, log_number
from neve.wal.batch_codec import LoggedBatch
from neve.wal.recovery_mode import RecoveryMode, ReplayReport
from neve.wal.replay import LogFile, Replay


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the logs of a table hold above its data files."""

    memtable: Memtable
    logs: tuple[LogFile, ...]
    """Every log there is, whether it holds needed rows or not."""
    next_sequence: int
    next_log_number: int
    report: ReplayReport

    def is_nothing_above(self, head: TableHead) -> bool:
        """Whether the logs hold nothing that files lack, and are read to their end."""
        is_read = not self.report.problems
        return is_read and self.next_sequence == head.flushed_sequence + 1


def find_logs(parts: TableParts) -> list[LogFile]:
    """Give the logs of all epochs, in the order in which they were written."""
    found = []
    for info in parts.objects.list(f"{parts.paths.wal}/"):
        number = log_number(info.path)
        if number is not None and log_epoch(info.path) is not None:
            found.append(LogFile(number=number, path=info.path))
    return sorted(found, key=lambda log: log.number)


def recover(
    parts: TableParts,
    head: TableHead,
    context: ReadContext,
    *,
    files: FileSet,
    mode: RecoveryMode,
    schema_of: Callable[[int], TableSchema],
) -> Recovered:
    """Replay what is not in data files; raises Corruption as the mode says.

    `files` are those of the head's Version: partial writes are merged with their rows.
    """
    logs = find_logs(parts)
    first = head.flushed_sequence + 1
    replay = Replay(parts.objects, logs, mode=mode, from_sequence=first)
    memtable = Memtable(context.schema, context.codec, context.encoder, first_sequence=first)
    apply = BatchApply(context, schema_of, files)
    for logged in replay:
        apply(memtable, logged, from_sequence=first)
    next_sequence = max(replay.report.next_sequence or 1, head.last_sequence + 1, first)
    highest = max((log.number for log in logs), default=0)
    return Recovered(
        memtable=memtable,
        logs=tuple(
            replace(log, first_sequence=replay.report.log_starts.get(log.number)) for log in logs
        ),
        next_sequence=next_sequence,
        next_log_number=max(head.next_log_number, highest + 1),
        report=replay.report,
    )


class BatchApply:
    """Brings logged batches into a memtable, whatever schema they were written with."""

    def __init__(
        self, context: ReadContext, schema_of: Callable[[int], TableSchema], files: FileSet
    ) -> None:
        self._context = context
        self._schema_of = schema_of
        self._files = files

    def __call__(self, memtable: Memtable, logged: LoggedBatch, *, from_sequence: int) -> None:
        """Apply the rows of a batch that are not in data files yet."""
        sequence = int(logged.sequence)
        for change in logged.batch.changes:
            skipped = min(max(from_sequence - sequence, 0), change.row_count)
            if skipped < change.row_count:
                self._apply(
                    memtable, sequence + skipped, change, skipped, logged.batch.schema_version
                )
            sequence += change.row_count

    def _apply(
        self, memtable: Memtable, sequence: int, change: Change, skipped: int, schema_id: int
    ) -> None:
        match change:
            case PutRow(key, value):
                memtable.put(sequence, key, value)
            case DeleteRow(key):
                memtable.delete(sequence, key)
            case UpsertRows(rows):
                batch = self._mapped(rows.slice(skipped), schema_id)
                memtable.upsert_batch(sequence, self._keys(batch), batch)
            case DeleteRows(keys):
                named = keys.slice(skipped)
                encoded = self._context.encoder.encode_arrays(named.columns)
                memtable.delete_batch(sequence, encoded)
            case PartialRows(rows, field_ids):
                self._merge(memtable, sequence, rows.slice(skipped), field_ids, schema_id)

    def _merge(
        self,
        memtable: Memtable,
        sequence: int,
        rows: pa.RecordBatch,
        field_ids: tuple[int, ...],
        schema_id: int,
    ) -> None:
        """Merge a partial write with what its keys have by now: here, or in the files."""
        schema = self._context.schema
        # Defaults are those of the day it was written.
        batch = self._mapped(widened(rows, self._schema_of(schema_id)), schema_id)
        keys = self._keys(batch)
        view = TableView((memtable,), self._files, self._context)
        base, places = view.get_many(keys, sequence - 1)
        given = frozenset(field_ids)
        whole = merged(batch, base, places, given=given, schema=schema)
        more = given_rows(memtable, keys, places, given, version=view.version)
        memtable.upsert_batch(sequence, keys, whole, given=more)

    def _mapped(self, rows: pa.RecordBatch, schema_id: int) -> pa.RecordBatch:
        source = self._schema_of(schema_id)
        return SchemaMapping(source, self._context.schema).batch(rows)

    def _keys(self, batch: pa.RecordBatch) -> KeyArray:
        columns = [batch.column(name) for name in self._context.encoder.names]
        return self._context.encoder.encode_arrays(columns)


def drop_logs(parts: TableParts, logs: Iterable[LogFile], *, below: int) -> list[LogFile]:
    """Delete logs that the floor has passed; gives those that stay."""
    kept = []
    for log in logs:
        if log.number < below:
            parts.objects.delete(log.path)
        else:
            kept.append(log)
    return kept
