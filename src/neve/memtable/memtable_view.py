"""MemtableView: what a memtable holds up to one sequence, as sorted Arrow.

1. Take references to the rows put one by one and to the batches; later writes do not affect them.
2. Sort, on the first read of keys: all keys in one array, rows first, then batches. The change with
   the highest sequence of each key stays.
3. Convert to Arrow, on the first read of rows: decode the rows that stayed at once, and merge them
   with those of the batches in one `take`.

Each step is done once, by the first thread that needs it.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, compress
from operator import itemgetter
from threading import Lock
from typing import Final, TypeAlias, Union, cast

import numpy as np
import pyarrow as pa

from neve.keys.columns import KeyArray
from neve.keys.order import sorted_groups
from neve.memtable.batch_journal import KeyedBatch
from neve.memtable.found_row import DELETED, Deleted, GivenColumns
from neve.model.arrow_buffers import Flags, Positions, flag_array, position_array
from neve.model.row_codec import RowCodec

# Maximum size of one Arrow array: far below the 2 GiB limit of its offsets.
_ARRAY_BYTES_MAX: Final = 1 << 30

# One change of a row: its sequence, the encoded row or a delete, and the change before it.
RowChange: TypeAlias = tuple[int, bytes | Deleted, Union["RowChange", None]]


@dataclass(frozen=True, slots=True, eq=False)
class _SortedChanges:
    """The newest change of each key; positions count rows put one by one first, then batches."""

    keys: KeyArray
    positions: Positions
    is_live: Flags
    values: Sequence[bytes | Deleted]
    batches: Sequence[KeyedBatch]
    sequence_min: int
    sequence_max: int


class MemtableView:
    """Newest rows per key up to a sequence, deletes left out; immutable."""

    __slots__ = (
        "_batches",
        "_codec",
        "_live",
        "_lock",
        "_partial",
        "_rows",
        "_sorted",
        "_width",
        "first_sequence",
        "sequence",
    )

    def __init__(
        self,
        *,
        rows: Mapping[bytes, RowChange],
        batches: Sequence[KeyedBatch],
        sequence: int,
        first_sequence: int,
        codec: RowCodec,
        width: int | None,
    ) -> None:
        # fixed at construction
        self.sequence: Final = sequence
        self.first_sequence: Final = first_sequence
        self._codec: Final = codec
        self._width: Final = width
        self._lock: Final = Lock()
        # guarded by _lock: the references, then the results
        self._rows: Mapping[bytes, RowChange] = rows
        self._batches: Sequence[KeyedBatch] = batches
        self._sorted: _SortedChanges | None = None
        self._live: pa.Table | None = None
        self._partial: Mapping[GivenColumns, Positions] | None = None

    @property
    def sequence_max(self) -> int:
        """Highest sequence of a change; one below `sequence_min` when there is none."""
        return self._sorted_changes().sequence_max

    @property
    def sequence_min(self) -> int:
        """Lowest sequence of the newest change of a key."""
        return self._sorted_changes().sequence_min

    def keys(self) -> KeyArray:
        """Return every key that was written or deleted, ascending, once each."""
        return self._sorted_changes().keys

    def live_keys(self) -> KeyArray:
        """Return the keys of the rows of `live`."""
        changes = self._sorted_changes()
        if bool(changes.is_live.all()):
            return changes.keys
        return changes.keys.filter(flag_array(changes.is_live))

    def deleted_keys(self) -> KeyArray:
        """Return the keys whose newest change is a delete."""
        changes = self._sorted_changes()
        return changes.keys.filter(flag_array(~changes.is_live))

    def live(self) -> pa.Table:
        """Return the newest row of each key that is not deleted, ascending by key."""
        with self._lock:
            if self._live is None:
                changes = self._sorted_changes_locked()
                self._live = _woven_rows(changes, self._codec)
            return self._live

    def partial_rows(self) -> Mapping[GivenColumns, Positions]:
        """Return which rows of `live` are from partial writes, by their given columns."""
        with self._lock:
            if self._partial is None:
                self._partial = _partial_rows(self._sorted_changes_locked())
            return self._partial

    def _sorted_changes(self) -> _SortedChanges:
        with self._lock:
            return self._sorted_changes_locked()

    def _sorted_changes_locked(self) -> _SortedChanges:
        if self._sorted is None:
            self._sorted = _sort_changes(
                *_visible_rows(self._rows, self.sequence),
                _visible_batches(self._batches, self.sequence),
                width=self._width,
                first_sequence=self.first_sequence,
            )
            self._rows, self._batches = {}, ()
        return self._sorted


def visible_change(change: RowChange | None, sequence: int) -> RowChange | None:
    """Return the newest of a key's changes up to a sequence."""
    while change is not None and change[0] > sequence:
        change = change[2]
    return change


def _visible_rows(
    rows: Mapping[bytes, RowChange], sequence: int
) -> tuple[list[bytes], list[RowChange], Positions]:
    """Return keys, newest changes and their sequences, up to a sequence."""
    # Loops over rows, once per view.
    keys, changes = list(rows), list(rows.values())
    sequences = _sequences(changes)
    if sequences.max(initial=0) <= sequence:
        return keys, changes, sequences
    seen = [visible_change(change, sequence) for change in changes]
    keys = [key for key, change in zip(keys, seen, strict=True) if change is not None]
    changes = [change for change in seen if change is not None]
    return keys, changes, _sequences(changes)


def _sequences(changes: Sequence[RowChange]) -> Positions:
    return np.fromiter(map(itemgetter(0), changes), np.int64, len(changes))


def _visible_batches(batches: Sequence[KeyedBatch], sequence: int) -> list[KeyedBatch]:
    """Return the batches up to a sequence, the last one sliced there."""
    visible: list[KeyedBatch] = []
    for batch in batches:
        if batch.first_sequence > sequence:
            break
        visible.append(batch if batch.last_sequence <= sequence else batch.up_to(sequence))
    return visible


def _sort_changes(
    row_keys: list[bytes],
    row_changes: list[RowChange],
    row_sequences: Positions,
    batches: list[KeyedBatch],
    *,
    width: int | None,
    first_sequence: int,
) -> _SortedChanges:
    values = list(map(itemgetter(1), row_changes))
    keys = _joined_keys(row_keys, batches, width)
    order, starts = sorted_groups(keys, width)
    sequences = np.concatenate(
        [
            row_sequences,
            *(np.arange(len(each.keys), dtype=np.int64) + each.first_sequence for each in batches),
        ]
    )
    newest = order
    if len(starts) < len(order):
        by_sequence = np.argsort(sequences, kind="stable")
        age = np.empty(len(order), np.int64)
        age[by_sequence] = np.arange(len(order))
        newest = by_sequence[np.maximum.reduceat(age[order], starts)]
    is_live = np.concatenate(
        [
            np.fromiter((value is not DELETED for value in values), np.bool_, len(values)),
            *(np.full(len(batch.keys), batch.rows is not None) for batch in batches),
        ]
    )
    return _SortedChanges(
        keys=keys.take(position_array(newest)),
        positions=newest,
        is_live=is_live[newest],
        values=values,
        batches=batches,
        sequence_min=int(sequences[newest].min()) if len(newest) else first_sequence,
        sequence_max=int(sequences.max(initial=first_sequence - 1)),
    )


def _joined_keys(
    row_keys: list[bytes], batches: Sequence[KeyedBatch], width: int | None
) -> KeyArray:
    if width is not None:
        joined = pa.py_buffer(b"".join(row_keys))
        fixed = pa.Array.from_buffers(pa.binary(width), len(row_keys), [None, joined])
        first = cast("KeyArray", fixed)
        return pa.concat_arrays([first, *(batch.keys for batch in batches)])
    size = sum(map(len, row_keys)) + sum(batch.keys.nbytes for batch in batches)
    key_type = pa.binary() if size < _ARRAY_BYTES_MAX else pa.large_binary()
    arrays = [pa.array(row_keys, key_type), *(batch.keys.cast(key_type) for batch in batches)]
    return cast("KeyArray", pa.concat_arrays(arrays))


def _woven_rows(changes: _SortedChanges, codec: RowCodec) -> pa.Table:
    """Return the live rows in key order, from single rows and batches."""
    row_count, batches = len(changes.values), changes.batches
    live = changes.positions[changes.is_live]
    # Maps positions to rows of the table: it has only live single rows, all rows of a batch, and
    # none of a batch of deletes.
    has_place = np.zeros(row_count, np.bool_)
    has_place[live[live < row_count]] = True
    # In the order they were written, rows are close in memory, which makes decoding fast.
    values = cast("list[bytes]", list(compress(changes.values, has_place.tolist())))
    decoded = [codec.decode_many(piece) for piece in _bounded_pieces(values)]
    together = [has_place, *(np.full(len(each.keys), each.rows is not None) for each in batches)]
    places = np.cumsum(np.concatenate(together)) - 1
    indices = places[live]
    sources = [*decoded, *(batch.rows for batch in batches if batch.rows is not None)]
    table = pa.Table.from_batches(sources, codec.schema.arrow_schema)
    if len(indices) == table.num_rows and bool(np.all(indices[1:] > indices[:-1])):
        return table
    return taken_rows(table, indices)


def _partial_rows(changes: _SortedChanges) -> Mapping[GivenColumns, Positions]:
    if all(batch.given is None for batch in changes.batches):
        return {}
    # Loops over rows, once per view of a memtable with partial writes.
    given: list[GivenColumns | None] = [None] * len(changes.values)
    for batch in changes.batches:
        given.extend(batch.given or [None] * len(batch.keys))
    found: defaultdict[GivenColumns, list[int]] = defaultdict(list)
    for place, position in enumerate(changes.positions[changes.is_live].tolist()):
        each = given[position]
        if each is not None:
            found[each].append(place)
    return {each: np.array(places, np.int64) for each, places in found.items()}


def _bounded_pieces(values: list[bytes]) -> list[list[bytes]]:
    """Split the rows into pieces that each fit into one Arrow batch."""
    if sum(map(len, values)) <= _ARRAY_BYTES_MAX:
        return [values] if values else []
    ends = list(accumulate(map(len, values)))
    pieces: list[list[bytes]] = []
    start, used = 0, 0
    for at, end in enumerate(ends):
        if end - used > _ARRAY_BYTES_MAX and at > start:
            pieces.append(values[start:at])
            start, used = at, ends[at - 1]
    return [*pieces, values[start:]]


def taken_rows(table: pa.Table, indices: Positions) -> pa.Table:
    """Return rows by index; in windows, if one array could not hold all of them."""
    taken_bytes = table.nbytes * max(len(indices), table.num_rows) // max(table.num_rows, 1)
    if taken_bytes <= _ARRAY_BYTES_MAX:
        return table.combine_chunks().take(position_array(indices))
    sources = table.to_batches()
    windows = np.array_split(indices, -(-taken_bytes // _ARRAY_BYTES_MAX))
    taken = [_taken_apart(sources, window) for window in windows if len(window)]
    return pa.concat_tables([table.slice(0, 0), *taken])


def _taken_apart(sources: Sequence[pa.RecordBatch], indices: Positions) -> pa.Table:
    """Return rows by index into all sources together, never joining more than these rows."""
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum([each.num_rows for each in sources])))
    owners = np.searchsorted(starts, indices, side="right") - 1
    by_owner = np.argsort(owners, kind="stable")
    cuts = np.flatnonzero(np.diff(owners[by_owner])) + 1
    parts = [
        sources[owners[part[0]]].take(position_array(indices[part] - starts[owners[part[0]]]))
        for part in np.split(by_owner, cuts)
    ]
    places = np.empty(len(indices), np.int64)
    places[by_owner] = np.arange(len(indices))
    try:
        return pa.Table.from_batches(parts).combine_chunks().take(position_array(places))
    except pa.ArrowInvalid:
        # These rows are large: they exceed the offsets of one array.
        if len(indices) == 1:
            raise
        halves = np.array_split(indices, 2)
        return pa.concat_tables([_taken_apart(sources, half) for half in halves])
