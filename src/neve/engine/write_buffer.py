"""WriteBuffer: the log and the memtables of the live writer, and the order between them.

    append ──► sync ──► apply to the active memtable ──► visible ──► acknowledged

    active memtable full ──► rotate the log ──► freeze ──► the next one is active

One row, a batch, a conditional write and a transaction all take this path.

A memtable that is full of overwritten rows drops them and continues, but not forever: its logs hold
all of them, and are only deleted when it is flushed.

ENGINE-B1  A memtable is frozen while no batch can be applied, so none is split between two.
ENGINE-B2  Memtables are flushed in the order in which they were frozen.
"""

from collections.abc import Callable
from threading import Lock
from typing import Final

from neve.engine.snapshot import CurrentView
from neve.engine.write_path import Decide, Decided, PreparedRow, PreparedWrite
from neve.memtable.memtable import Memtable
from neve.model.data_file import WalSegmentRef, joined_segments
from neve.table.table_context import TableContext
from neve.wal.batch_codec import EncodedChanges, encode_put
from neve.wal.write_ahead_log import WriteAheadLog

_LOGS_MIN: Final = 8
_LOG_SHARE: Final = 4
"""Logs of one memtable have at most about this many times its maximum size."""


class WriteBuffer:
    """Makes writes durable, then visible; safe for many threads."""

    def __init__(self, log: WriteAheadLog, current: CurrentView, *, memtable_bytes: int) -> None:
        # Fixed at construction.
        self.log = log
        self._current = current
        self._memtable_bytes = memtable_bytes
        self._rolling = Lock()
        self._logs_max = max(_LOGS_MIN, _LOG_SHARE * memtable_bytes // log.options.segment_bytes)
        # Owned by the thread that applies or rotates, one at a time.
        self._active = current.view.memtables[0]
        self.is_full = self._active.byte_count >= memtable_bytes
        self._first_log = log.active_log_number - len(log.closed_logs)

    @property
    def active(self) -> Memtable:
        """The memtable that takes the next write."""
        return self._active

    @property
    def is_long(self) -> bool:
        """Whether the active memtable should be flushed because its logs are long."""
        return self.log.active_log_number - self._first_log >= self._logs_max

    def segments(self, memtable: Memtable, *, root: str) -> tuple[WalSegmentRef, ...]:
        """Return where a memtable's changes are logged, with paths relative to the table's root."""
        stretches = self.log.stretches(first=memtable.first_sequence, last=memtable.last_sequence)
        return joined_segments(
            WalSegmentRef(
                log_number=stretch.number,
                file_id=stretch.path.removeprefix(f"{root}/"),
                first_frame=stretch.first,
                last_frame=stretch.last,
            )
            for stretch in stretches
        )

    def write(self, write: PreparedWrite | Decide) -> int | None:
        """Log and apply a write; returns its last sequence number, or None without a write.

        A function is called when every earlier write is visible, or for `Decided` every one of its
        keys. It returns the write, or None to write nothing; no other write comes between.
        """
        if isinstance(write, Decided):
            write.begin(self.apply)
            self.log.append_decided(write)
            return write.last
        made: PreparedWrite | None = None
        last: int | None = None

        def decide() -> EncodedChanges | None:
            nonlocal made
            assert callable(write)
            made = write()
            return None if made is None else made.changes

        def apply(sequence: int) -> None:
            nonlocal last
            assert made is not None
            last = self.apply(made, sequence)

        if callable(write):
            self.log.append_alone(decide, apply)
        else:
            made = write
            self.log.append(made.changes, apply, made)
        return last

    def put(self, key: bytes, value: bytes, schema_id: int) -> int:
        """Log and apply one row; returns its sequence number.

        It takes the path of `write`, in one step where nothing else is being written.
        """
        sequence = self.log.append_put(key, value, schema_id, self._show)
        if sequence:
            return sequence
        last = self.write(PreparedRow(encode_put(key, value, schema_id), key, value))
        assert last is not None, "a row was written"
        return last

    def _show(self, sequence: int, key: bytes, value: bytes) -> None:
        active = self._active
        active.put(sequence, key, value)
        self._current.sequence = sequence
        self.is_full = active.byte_count >= self._memtable_bytes

    def apply(self, write: PreparedWrite, sequence: int) -> int:
        """Make a logged write visible; only in the order of the log. Return its last sequence."""
        active = self._active
        last = self._current.sequence = write.apply_to(active, sequence)
        self.is_full = active.byte_count >= self._memtable_bytes
        return last

    def roll_if_full(self) -> bool:
        """Begin the next memtable when the active one is full."""
        return self.is_full and self._roll(only_if_full=True)

    def roll(self) -> bool:
        """Begin the next memtable; False when the active one is empty."""
        return self._roll(only_if_full=False)

    def begin_schema(self, context: TableContext, install: Callable[[], None]) -> None:
        """Take later writes under another schema."""
        with self._rolling:

            def switch() -> None:
                install()
                self._begin_memtable(context)

            self.log.rotate(then=switch)

    def _roll(self, *, only_if_full: bool) -> bool:
        with self._rolling:
            active = self._active
            if active.is_empty or (only_if_full and not self.is_full):
                return False
            if only_if_full and not self.is_long and self._make_room():
                return False
            self.log.rotate(then=lambda: self._begin_memtable(self._current.view.context))
            return True

    def _make_room(self) -> bool:
        """Drop rows that were overwritten in memory; True when that freed a large part of it."""
        freed = 0

        def reclaim() -> None:
            nonlocal freed
            freed = self._active.reclaim(self._current.sequence)
            self.is_full = self._active.byte_count >= self._memtable_bytes

        self.log.run_alone(reclaim)
        return freed >= self._memtable_bytes // 2

    def _begin_memtable(self, context: TableContext) -> None:
        self._active.freeze()
        self._first_log = self.log.active_log_number
        self._active = Memtable(
            context.schema,
            context.codec,
            context.encoder,
            first_sequence=self.log.next_sequence,
        )
        self._active.since_version = self._current.view.version
        self.is_full = False
        self._current.push_memtable(self._active)
