"""Memtable: the newest changes of a table in memory, by key and as Arrow.

    rows     key → (sequence, row, change before it → (sequence, row, …))     put, delete
    batches  │ first sequence │ keys │ rows │ …                               upsert, delete many

Rows put one by one are in a dict, as the bytes that were logged. Batches stay Arrow batches; a get
indexes them on demand. The sequence decides which of the two is newer, for a single key and for a
whole view.

One writer at a time, any number of readers, no lock between them:

1. The writer makes a change reachable by one step: an entry of the dict, or one element of a list.
   So a reader sees a batch whole or not at all.
2. Only then `last_sequence` rises, and only after the last change of a write batch does its writer
   publish the sequence. A reader takes that sequence first and reads with it: changes up to it were
   applied before, later ones are left out. So the order of looking at rows and batches does not
   matter.
3. An overwritten change stays reachable from the one that replaced it, until the writer calls
   `reclaim`. Reads at a sequence that `reclaim` may have emptied are refused, unless it was pinned
   before: `reclaim` moves its mark and then drops changes, a reader reads and then checks the mark.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from neve.errors import Closed, InvalidArgument
from neve.keys.arrays import key_objects
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.memtable.batch_index import INDEX_ROW_BYTES
from neve.memtable.batch_journal import BatchJournal, KeyedBatch
from neve.memtable.found_row import DELETED, BatchRow, Deleted, Found, GivenColumns
from neve.memtable.memtable_view import MemtableView, RowChange, visible_change
from neve.model.arrow_buffers import Positions
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema
from neve.model.write_batch import SEQUENCE_MAX

# Memory of Python objects around a change: the headers of two byte strings, a tuple, a number,
# and for the first change of a key its share of the dict.
_NEW_KEY_BYTES: Final = 256
_OVERWRITE_BYTES: Final = 184
# Memory of Arrow objects around the buffers of a batch.
_BATCH_BYTES: Final = 1024
_COLUMN_BYTES: Final = 512
# Fewer keys are looked up one by one.
_FEW_KEYS: Final = 64


class FoundMany(NamedTuple):
    """The newest changes of many keys, by their place."""

    single: Mapping[int, bytes | Deleted]
    """Rows put one by one, encoded, and deletes."""
    positions: Positions
    """In batches; -1 for none."""
    by_batch: Callable[[Positions], Iterator[tuple[KeyedBatch, Positions]]]
    """Yields the batches of positions, and which of them are in each."""


class MemtableMark(NamedTuple):
    """How much a memtable held at one moment."""

    row_count: int
    overwritten: list[bytes]
    overwritten_count: int


class Memtable:
    """Changes from `first_sequence` on, until it is frozen and flushed."""

    __slots__ = (
        "_accepted",
        "_codec",
        "_first_sequence",
        "_journal",
        "_overwritten",
        "_pin_lock",
        "_pins",
        "_reclaimed",
        "_rows",
        "_schema",
        "_view",
        "_width",
        "applied",
        "byte_count",
        "copies",
        "deleted_orders",
        "encoder",
        "is_frozen",
        "row_readers",
        "since_version",
    )

    def __init__(
        self, schema: TableSchema, codec: RowCodec, encoder: KeyEncoder, *, first_sequence: int
    ) -> None:
        # fixed at construction
        self._schema: Final = schema
        self._codec: Final = codec
        self.encoder: Final = encoder
        self._width: Final = encoder.width
        self._first_sequence: Final = first_sequence
        # changed by the writer, each by one step; read by anyone
        self.byte_count = 0
        self.is_frozen = False
        self._rows: dict[bytes, RowChange] = {}
        self._journal = BatchJournal(encoder.width)
        self._accepted = first_sequence - 1
        self._view: MemtableView | None = None
        self.applied: dict[str, int] = {}
        """The last batch of each application whose rows are here; replaced whole."""
        self.deleted_orders: dict[bytes, bytes] = {}
        """By key, how new its last delete is, in a table with an order; used by the writer only."""
        self.copies: Final[dict[bytes, int]] = {}
        """By key, the sequence of a row that is a copy of one in files; used by the writer only."""
        self.since_version = 0
        """The Version that was shown when it began: its rows were compared with that one."""
        # filled by readers, each by one step: readers of single rows of a batch, by its identity
        self.row_readers: dict[int, Callable[[int], dict[str, object]]] = {}
        # used by the writer only: a key for each change that a newer one hides
        self._overwritten: list[bytes] = []
        # written under _pin_lock, read without it
        self._pin_lock: Final = Lock()
        self._pins: Final[dict[int, int]] = {}  # not a Counter, which is slow
        self._reclaimed = 0

    @property
    def schema(self) -> TableSchema:
        """The schema of its rows."""
        return self._schema

    @property
    def codec(self) -> RowCodec:
        """The encoder of rows of its schema."""
        return self._codec

    @property
    def row_count(self) -> int:
        """Number of rows and deletes, including overwritten ones that are still kept."""
        return len(self._rows) + len(self._overwritten) + self._journal.row_count

    @property
    def first_sequence(self) -> int:
        """Lowest sequence number that it accepts."""
        return self._first_sequence

    @property
    def last_sequence(self) -> int:
        """Highest sequence applied, or 0 before the first."""
        accepted = self._accepted
        return 0 if accepted < self._first_sequence else accepted

    @property
    def is_empty(self) -> bool:
        """Whether nothing was applied."""
        return self._accepted < self._first_sequence

    def put(self, sequence: int, key: bytes, value: bytes) -> None:
        """Apply one encoded row."""
        if sequence <= self._accepted or self.is_frozen:
            self._refuse(sequence)
        rows = self._rows
        before = rows.get(key)
        if before is None:
            self.byte_count += len(key) + len(value) + _NEW_KEY_BYTES
        else:
            self._overwritten.append(key)
            self.byte_count += len(key) + len(value) + _OVERWRITE_BYTES
        rows[key] = (sequence, value, before)
        self._accepted = sequence
        self._view = None

    def put_run(self, first_sequence: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Apply encoded rows as `put` does; row i has sequence `first_sequence + i`."""
        if first_sequence <= self._accepted or self.is_frozen:
            self._refuse(first_sequence)
        rows, overwritten = self._rows, self._overwritten
        known = len(overwritten)
        # A loop over the rows: each is one entry of the dict.
        for sequence, (key, value) in enumerate(zip(keys, values, strict=True), first_sequence):
            before = rows.get(key)
            if before is not None:
                overwritten.append(key)
            rows[key] = (sequence, value, before)
        added = len(overwritten) - known
        self.byte_count += (
            sum(map(len, keys))
            + sum(map(len, values))
            + (len(keys) - added) * _NEW_KEY_BYTES
            + added * _OVERWRITE_BYTES
        )
        self._accepted = first_sequence + len(keys) - 1
        self._view = None

    def delete(self, sequence: int, key: bytes) -> None:
        """Apply the delete of one key."""
        if sequence <= self._accepted or self.is_frozen:
            self._refuse(sequence)
        before = self._rows.get(key)
        if before is None:
            self.byte_count += len(key) + _NEW_KEY_BYTES
        else:
            self._overwritten.append(key)
            self.byte_count += len(key) + _OVERWRITE_BYTES
        self._rows[key] = (sequence, DELETED, before)
        self._accepted = sequence
        self._view = None

    def upsert_batch(
        self,
        first_sequence: int,
        keys: KeyArray,
        rows: pa.RecordBatch,
        *,
        given: Sequence[GivenColumns | None] | None = None,
    ) -> None:
        """Apply rows that have the schema; row i has sequence `first_sequence + i`.

        `given` has the columns of each row that a partial write contains, the others are merged;
        None means whole rows.
        """
        assert len(keys) == rows.num_rows, "each row has its key"
        assert given is None or len(given) == len(keys), "each row has its given columns"
        assert rows.schema.equals(self._schema.arrow_schema), "rows are normalized"
        self._append(first_sequence, keys, rows, given)

    def delete_batch(
        self, first_sequence: int, keys: KeyArray, orders: pa.LargeBinaryArray | None = None
    ) -> None:
        """Apply the deletes of many keys; key i has sequence `first_sequence + i`.

        `orders` say how new each delete is, in a table with an order.
        """
        self._append(first_sequence, keys, None)
        if orders is not None:
            # One step for all: later changes of these keys are compared one by one.
            known = cast("list[bytes]", orders.to_pylist())
            self.deleted_orders.update(zip(key_objects(keys), known, strict=True))
            self.byte_count += keys.nbytes + orders.nbytes + _NEW_KEY_BYTES * len(keys)

    def note_copies(self, first_sequence: int, keys: KeyArray) -> None:
        """Note that the rows of a batch are copies of rows in files, not changes of them."""
        self.copies.update(
            {key: first_sequence + place for place, key in enumerate(key_objects(keys))}
        )

    def are_copies(self, keys: KeyArray) -> list[bool]:
        """Return for each key whether its newest change here is such a copy."""
        copies = self.copies
        return [key in copies and self._newest_of(key) == copies[key] for key in key_objects(keys)]

    def _newest_of(self, key: bytes) -> int:
        change, found = self._rows.get(key), self._journal.find(key)
        return max(0 if change is None else change[0], 0 if found is None else found[0])

    def note_applied(self, sequence: int, application: str, batch: int) -> None:
        """Note that the rows before this sequence are a batch of an application."""
        if sequence <= self._accepted or self.is_frozen:
            self._refuse(sequence)
        self.applied = {**self.applied, application: batch}
        self.byte_count += len(application) + _NEW_KEY_BYTES
        self._accepted = sequence
        self._view = None

    def given_with(self, key: bytes, more: GivenColumns) -> GivenColumns | None:
        """Return the given columns of a key's row after a partial write; None for all.

        `more` are the columns of that write alone, for a key that is not here.
        """
        found = self.get(key)
        if found is None:
            return more
        # A key that was deleted or written whole no longer depends on the base.
        if not isinstance(found, BatchRow) or found.given is None:
            return None
        return found.given.with_more(more)

    def partial_keys(self) -> list[KeyArray]:
        """Return the keys of writes that have some partial rows; overwritten ones included."""
        return [batch.keys for batch in self._journal.batches if batch.given is not None]

    def get(self, key: bytes) -> Found | None:
        """Return the newest change of a key, None when there is none here."""
        change = self._rows.get(key)
        batches = self._journal.batches
        if not batches or (change is not None and change[0] > batches[-1].last_sequence):
            return None if change is None else change[1]
        found = self._journal.find(key)
        if found is None or (change is not None and change[0] > found[0]):
            return None if change is None else change[1]
        return found[1]

    def get_at(self, key: bytes, sequence: int) -> Found | None:
        """Return the newest change of a key up to a sequence, None when there is none here.

        Raises InvalidArgument for a sequence whose changes were reclaimed.
        """
        change = self._rows.get(key)
        if change is not None and change[0] > sequence:
            change = visible_change(change, sequence)
        found = self._journal.find_at(key, sequence) if self._journal.batches else None
        if sequence < self._reclaimed:
            self._check_held(sequence)
        if found is None or (change is not None and change[0] > found[0]):
            return None if change is None else change[1]
        return found[1]

    def find_many(self, keys: KeyArray, sequence: int) -> "FoundMany":
        """Return the newest changes of many keys up to a sequence.

        Raises InvalidArgument for a sequence whose changes were reclaimed.
        """
        rows, journal = self._rows, self._journal
        single: dict[int, bytes | Deleted] = {}
        positions = np.full(len(keys), -1, np.int64)
        if journal.batches:
            positions = journal.find_many(keys, sequence)
        if rows:
            # A loop over the keys: each is one dict lookup.
            for place, change in enumerate(map(rows.get, key_objects(keys))):
                if change is None:
                    continue
                seen = change if change[0] <= sequence else visible_change(change, sequence)
                if seen is None:
                    continue
                if not journal.batches:
                    single[place] = seen[1]
                elif seen[0] > journal.sequence_of(int(positions[place])):
                    single[place] = seen[1]
                    positions[place] = -1
        if sequence < self._reclaimed:
            self._check_held(sequence)
        return FoundMany(single=single, positions=positions, by_batch=journal.by_batch)

    def pin(self, sequence: int) -> bool:
        """Keep what a reader at this sequence sees until `unpin`; pins are counted.

        False when some of it may be gone already: take the newest sequence and try again.
        """
        with self._pin_lock:
            if sequence < self._reclaimed and sequence not in self._pins:
                return False
            self._pins[sequence] = self._pins.get(sequence, 0) + 1
            return True

    def unpin(self, sequence: int) -> None:
        """End one `pin` of this sequence."""
        with self._pin_lock:
            count = self._pins.get(sequence, 0) - 1
            if count < 0:
                raise InvalidArgument(
                    f"sequence {sequence} is not pinned", hint="Unpin once for each pin"
                )
            if count:
                self._pins[sequence] = count
            else:
                del self._pins[sequence]

    def view(self, sequence: int) -> MemtableView:
        """Return everything up to a sequence; the same view until something is written.

        Raises InvalidArgument for a sequence whose changes were reclaimed.
        """
        # Everything up to here was applied: nothing can be added to the view any more.
        seen = min(sequence, self.last_sequence)
        view = self._view
        if view is None or view.sequence != seen:
            rows = self._rows
            view = MemtableView(
                # Copying a dict is one step: no other thread interrupts it.
                rows=rows if self.is_frozen else rows.copy(),
                batches=tuple(self._journal.batches),
                sequence=seen,
                first_sequence=self._first_sequence,
                codec=self._codec,
                width=self._width,
            )
            self._check_held(sequence)
            self._view = view
        return view

    def reclaim(self, visible: int) -> int:
        """Drop overwritten rows that no reader can ask for; return the number of bytes freed.

        `visible` is the sequence that new readers take; pinned ones are kept too. Only the writer
        calls it, for example before it replaces a memtable that became too large. Rows of batches
        stay: a batch is one piece of memory.
        """
        if not self._overwritten or self.is_frozen:
            return 0
        with self._pin_lock:
            self._reclaimed = max(self._reclaimed, visible)
            readers = sorted(self._readers_locked(), reverse=True)
        still: list[bytes] = []
        # A loop over the keys overwritten since the last call, and those kept by it.
        rows, freed = self._rows, 0
        for key in set(self._overwritten):
            newest = rows[key]
            if len(readers) == 1 and newest[0] <= readers[0]:
                # Nearly always: no one reads in the past.
                dropped = _changes(newest[2])
                rows[key] = (newest[0], newest[1], None)
            else:
                kept, dropped = _needed_changes(newest, readers)
                rows[key] = _chained(kept)
                still.extend([key] * (len(kept) - 1))
            freed += len(dropped) * (len(key) + _OVERWRITE_BYTES)
            for _, value, _ in dropped:
                freed += 0 if value is DELETED else len(value)
        self._overwritten = still
        self.byte_count -= freed
        return freed

    def mark(self) -> "MemtableMark":
        """Return how much it holds, for `keys_after`."""
        overwritten = self._overwritten
        return MemtableMark(len(self._rows), overwritten, len(overwritten))

    def changed_after(self, keys: Collection[bytes], sequence: int) -> list[bytes]:
        """Return those of some keys whose newest change is above a sequence."""
        rows, batches = self._rows, self._journal.batches
        # A loop over the keys: each is one dict lookup.
        found = [key for key in keys if (change := rows.get(key)) and change[0] > sequence]
        if not batches or batches[-1].last_sequence <= sequence:
            return found
        if len(keys) <= _FEW_KEYS:
            find = self._journal.find
            return found + [key for key in keys if (hit := find(key)) and hit[0] > sequence]
        listed = list(keys)
        kind = pa.binary() if self._width is None else pa.binary(self._width)
        positions = self._journal.find_many(cast("KeyArray", pa.array(listed, kind)), SEQUENCE_MAX)
        hits = np.flatnonzero(positions >= self._journal.position_after(sequence))
        return found + [listed[place] for place in hits.tolist()]

    def keys_after(self, mark: "MemtableMark | None", sequence: int) -> list[bytes]:
        """Return the keys that were changed above a sequence; for the writer only.

        `mark` was taken before that sequence; one of another memtable, or None, looks at
        everything.
        """
        rows = self._rows
        asked: Iterable[bytes] = rows
        # Another memtable has another list, and so has one that was reclaimed.
        if mark is not None and mark.overwritten is self._overwritten:
            added = islice(reversed(rows), len(rows) - mark.row_count)
            asked = chain(added, mark.overwritten[mark.overwritten_count :])
        found = [key for key in asked if rows[key][0] > sequence]
        for batch in reversed(self._journal.batches):
            if batch.last_sequence <= sequence:
                break
            found += key_objects(batch.keys.slice(max(0, sequence + 1 - batch.first_sequence)))
        return found

    def as_of(self, sequence: int) -> "Memtable":
        """Return it as it is at a sequence that the caller has pinned, whatever is written later.

        A reader of this may ask for any sequence: what came later is not there.
        """
        return _MemtableAt(self, sequence)

    def freeze(self) -> None:
        """Refuse writes from now on."""
        self.is_frozen = True

    def _append(
        self,
        first_sequence: int,
        keys: KeyArray,
        rows: pa.RecordBatch | None,
        given: Sequence[GivenColumns | None] | None = None,
    ) -> None:
        if first_sequence <= self._accepted or self.is_frozen:
            self._refuse(first_sequence)
        if not len(keys):
            return
        size = keys.nbytes + len(keys) * INDEX_ROW_BYTES + _BATCH_BYTES
        if rows is not None:
            rows = _owned(rows)
            size += rows.get_total_buffer_size() + rows.num_columns * _COLUMN_BYTES
        self.byte_count += size
        self._journal.append(first_sequence, keys, rows, given)
        self._accepted = first_sequence + len(keys) - 1
        self._view = None

    def _readers_locked(self) -> set[int]:
        return {self._reclaimed, *(pin for pin in self._pins if pin < self._reclaimed)}

    def _check_held(self, sequence: int) -> None:
        if sequence < self._reclaimed and sequence not in self._pins:
            raise InvalidArgument(
                f"the memtable no longer holds the rows of sequence {sequence}, "
                f"only from {self._reclaimed} on",
                hint="Pin a sequence before reading at it",
            )

    def _refuse(self, sequence: int) -> None:
        if self.is_frozen:
            raise Closed(
                f"sequence {sequence} is written to a frozen memtable",
                hint="Write to the table's newest memtable",
            )
        raise InvalidArgument(
            f"sequence {sequence} is written after sequence {self._accepted}",
            hint="Apply changes in the order of their sequences",
        )


_SHARED: Final = tuple(
    name
    for name in Memtable.__slots__
    if name not in {"_accepted", "_view", "_reclaimed", "is_frozen"}
)


class _MemtableAt(Memtable):
    """A memtable without what was written after a sequence; only for reading.

    It shares everything that grows with the memtable, and has its own mark of what was reclaimed:
    nothing, because its sequence is pinned.
    """

    __slots__ = ()

    def __init__(self, memtable: Memtable, sequence: int) -> None:
        # Not by calling the class: that makes what is replaced here, for every transaction.
        for name in _SHARED:
            setattr(self, name, getattr(memtable, name))
        self._accepted = min(sequence, memtable._accepted)  # noqa: SLF001 - another memtable
        self._view = None
        self._reclaimed = 0
        self.is_frozen = False

    def get(self, key: bytes) -> Found | None:
        """Return the newest change of a key, None when there is none here."""
        return super().get_at(key, self._accepted)

    def get_at(self, key: bytes, sequence: int) -> Found | None:
        """Return the newest change of a key up to a sequence, None when there is none here."""
        return super().get_at(key, min(sequence, self._accepted))

    def find_many(self, keys: KeyArray, sequence: int) -> FoundMany:
        """Return the newest changes of many keys up to a sequence."""
        return super().find_many(keys, min(sequence, self._accepted))


def _owned(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without the larger buffers that they may be a small part of."""
    if rows.get_total_buffer_size() <= 2 * rows.nbytes + _BATCH_BYTES:
        return rows
    # Concatenating with nothing copies whole columns, several times as fast as taking rows.
    columns = [pa.concat_arrays([column.slice(0, 0), column]) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _changes(change: RowChange | None) -> list[RowChange]:
    """Return a change and all before it, newest first."""
    found: list[RowChange] = []
    while change is not None:
        found.append(change)
        change = change[2]
    return found


def _needed_changes(
    newest: RowChange, readers: Sequence[int]
) -> tuple[list[RowChange], list[RowChange]]:
    """Split a key's changes, newest first, into those to keep and those no reader sees.

    `readers` are sequences from high to low; everything above the first is kept.
    """
    kept: list[RowChange] = []
    dropped: list[RowChange] = []
    at = 0
    for change in _changes(newest):
        sequence = change[0]
        if sequence > readers[0]:
            kept.append(change)
        elif at < len(readers) and readers[at] >= sequence:
            kept.append(change)
            while at < len(readers) and readers[at] >= sequence:
                at += 1
        else:
            dropped.append(change)
    return kept, dropped


def _chained(changes: Sequence[RowChange]) -> RowChange:
    """Return the first of these changes, newest first, linked to the others."""
    chain: RowChange | None = None
    for sequence, value, _ in reversed(changes):
        chain = (sequence, value, chain)
    assert chain is not None, "the newest change of a key is always kept"
    return chain
