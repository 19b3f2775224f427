"""BatchJournal: Arrow batches in the order of their sequences, indexed by key on demand.

One writer appends, many threads search. Readers need no lock against the writer: lists only grow,
and a batch is added to `batches` last, so a reader that sees it also sees its numbers, and sees it
whole. A lock keeps two readers from building the same index twice.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, cast

import numpy as np
import pyarrow as pa

from neve.keys.arrays import key_at, same_keys
from neve.keys.columns import KeyArray
from neve.memtable.batch_index import BatchIndex
from neve.memtable.found_row import DELETED, BatchRow, Deleted, GivenColumns
from neve.model.arrow_buffers import Positions


@dataclass(frozen=True, slots=True, eq=False)
class KeyedBatch:
    """Consecutive changes: whole rows, or deletes of keys when there are no rows."""

    first_sequence: int
    last_sequence: int
    first_position: int
    keys: KeyArray
    rows: pa.RecordBatch | None
    given: Sequence[GivenColumns | None] | None = None
    """The written columns of each row, None for all; None when all rows are whole."""

    def up_to(self, sequence: int) -> "KeyedBatch":
        """Return the changes up to a sequence."""
        count = sequence - self.first_sequence + 1
        rows = None if self.rows is None else self.rows.slice(0, count)
        return KeyedBatch(
            self.first_sequence,
            sequence,
            self.first_position,
            self.keys.slice(0, count),
            rows,
            None if self.given is None else self.given[:count],
        )

    def change_at(self, position: int) -> BatchRow | Deleted:
        """Return the change at a position of the journal."""
        if self.rows is None:
            return DELETED
        row = position - self.first_position
        return BatchRow(self.rows, row, None if self.given is None else self.given[row])


class BatchJournal:
    """All batches of one memtable."""

    __slots__ = ("_first_positions", "_first_sequences", "_index", "_index_lock", "batches")

    def __init__(self, width: int | None) -> None:
        # safe on their own: lists that only grow; the index is replaced as a whole
        self.batches: Final[list[KeyedBatch]] = []
        self._first_positions: Final[list[int]] = []
        self._first_sequences: Final[list[int]] = []
        self._index = BatchIndex(width)
        # held while the index grows
        self._index_lock: Final = Lock()

    @property
    def row_count(self) -> int:
        """Number of changes in all batches."""
        if not self.batches:
            return 0
        last = self.batches[-1]
        return last.first_position + len(last.keys)

    @property
    def indexed_batch_count(self) -> int:
        """Number of batches that searches have indexed so far."""
        return self._index.batch_count

    def append(
        self,
        first_sequence: int,
        keys: KeyArray,
        rows: pa.RecordBatch | None,
        given: Sequence[GivenColumns | None] | None = None,
    ) -> None:
        """Add a batch; only for the writer, with rising sequences and at least one key."""
        position = self.row_count
        self._first_positions.append(position)
        self._first_sequences.append(first_sequence)
        last_sequence = first_sequence + len(keys) - 1
        self.batches.append(KeyedBatch(first_sequence, last_sequence, position, keys, rows, given))

    def find(self, key: bytes) -> tuple[int, BatchRow | Deleted] | None:
        """Return the newest change of a key, with its sequence."""
        return self._change(self._current_index().find(key, self._key_at))

    def find_at(self, key: bytes, sequence: int) -> tuple[int, BatchRow | Deleted] | None:
        """Return the newest change of a key up to a sequence, with its own sequence."""
        index = self._current_index()
        before = self._end_of(sequence, index)
        return self._change(index.find(key, self._key_at, before=before))

    def find_many(self, keys: KeyArray, sequence: int) -> Positions:
        """Return the position of the newest change of each key up to a sequence; -1 for none."""
        index = self._current_index()
        before = self._end_of(sequence, index)
        found = index.find_many(keys, before=before)
        if index.is_exact:
            return found
        hits = np.flatnonzero(found >= 0)
        for batch, places in self.by_batch(found[hits]):
            there = batch.keys.take(found[hits[places]] - batch.first_position)
            is_other = ~same_keys(there, keys.take(hits[places]))
            for place in hits[places[is_other]].tolist():
                position = index.find(key_at(keys, place), self._key_at, before=before)
                found[place] = -1 if position is None else position
        return found

    def sequence_of(self, position: int) -> int:
        """Return the sequence of the change at a position; 0 for -1."""
        if position < 0:
            return 0
        batch = self._batch_of(position)
        return batch.first_sequence + position - batch.first_position

    def position_after(self, sequence: int) -> int:
        """Return the position of the first change above a sequence."""
        at = bisect_right(self._first_sequences, sequence) - 1
        if at < 0:
            return 0
        batch = self.batches[at]
        last = min(sequence, batch.last_sequence)
        return batch.first_position + last - batch.first_sequence + 1

    def by_batch(self, positions: Positions) -> Iterator[tuple[KeyedBatch, Positions]]:
        """Yield the batches of positions, and which of the positions are in each."""
        if not len(positions):
            return
        batches = np.searchsorted(np.array(self._first_positions), positions, side="right") - 1
        order = np.argsort(batches, kind="stable")
        cuts = np.flatnonzero(np.diff(batches[order])) + 1
        for places in np.split(order, cuts):
            yield self.batches[batches[places[0]]], places

    def _end_of(self, sequence: int, index: BatchIndex) -> int | None:
        """Return the position after the last change up to a sequence; None for all."""
        if not index.batch_count or sequence >= self.batches[index.batch_count - 1].last_sequence:
            return None
        return self.position_after(sequence)

    def _current_index(self) -> BatchIndex:
        index = self._index
        if index.batch_count == len(self.batches):
            return index
        with self._index_lock:
            index = self._index
            added = self.batches[index.batch_count :]
            if added:
                first_position = added[0].first_position
                keys = [batch.keys for batch in added]
                index = self._index = index.extended(keys, first_position=first_position)
        return index

    def _batch_of(self, position: int) -> KeyedBatch:
        return self.batches[bisect_right(self._first_positions, position) - 1]

    def _key_at(self, position: int) -> bytes:
        batch = self._batch_of(position)
        return cast("bytes", batch.keys[position - batch.first_position].as_py())

    def _change(self, position: int | None) -> tuple[int, BatchRow | Deleted] | None:
        if position is None:
            return None
        batch = self._batch_of(position)
        return batch.first_sequence + position - batch.first_position, batch.change_at(position)
