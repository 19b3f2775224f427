"""MemoryRows: the rows and keys in the memtables of a view at one sequence, joined.

Memtables are read newest first. A key in a newer one, written or deleted, hides the rows of that
key in all older ones, and in every file.

    newest     keys  b d     rows  b        d was deleted
    older      keys  a d     rows  a d      d is hidden
    joined     keys  a b d   rows  a b
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.arrays import as_large, concat_keys, key_place, within
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import KeyHashes
from neve.keys.order import RowKeys
from neve.keys.ranges import KeyRange
from neve.memtable.memtable import Memtable
from neve.memtable.memtable_view import MemtableView
from neve.model.arrow_buffers import Flags, flag_array
from neve.model.write_batch import SEQUENCE_MAX
from neve.table.partial_merge import merged_on
from neve.table.schema_mapping import SchemaMapping
from neve.table.table_view import TableView

MEMORY_ROWS: Final = 65_536
"""Rows in memory are returned in batches of this many."""


class MemoryRows:
    """Rows and keys in memory up to a sequence; taken at construction, joined when asked."""

    def __init__(self, table: TableView, sequence: int | None) -> None:
        """Take the views; raises InvalidArgument when a memtable no longer has that sequence."""
        self._table = table
        self._sequence = SEQUENCE_MAX if sequence is None else sequence
        self._memtables = tuple(each for each in table.memtables if not each.is_empty)
        # Rows written before the schema changed are in their own memtable.
        self._views: tuple[tuple[MemtableView, SchemaMapping], ...] = tuple(
            (
                memtable.view(memtable.last_sequence if sequence is None else sequence),
                table.context.mapping_from(memtable.schema.schema_id),
            )
            for memtable in self._memtables
        )
        # Made when first needed; two threads that make it at once make the same.
        self._live_keys: list[tuple[KeyArray, Flags | None]] | None = None
        self._joined: tuple[pa.Table, KeyArray] | None = None

    def hidden(self, key_min: bytes, key_max: bytes) -> list[KeyArray]:
        """Return the keys in a range that were written or deleted, each array ascending."""
        found: list[KeyArray] = []
        for view, _ in self._views:
            keys = view.keys()
            inside = within(keys, key_min, key_max)
            if inside.start < inside.stop:
                found.append(keys.slice(inside.start, inside.stop - inside.start))
        return found

    def changed_keys(self) -> list[KeyArray]:
        """Return all keys that were written or deleted, each array ascending."""
        return [view.keys() for view, _ in self._views]

    def live_count(self, wanted: KeyRange) -> int:
        """Count the live rows with keys in a range, without decoding any."""
        spans = (_span(keys, wanted) for keys, _ in self._unhidden_keys())
        return sum(stop - start for start, stop in spans)

    def live(self, wanted: KeyRange) -> tuple[pa.Table, KeyArray] | None:
        """Return the live rows with keys in a range, ascending, and their keys; or None."""
        if not self._views or not self.live_count(wanted):
            return None
        if self._joined is None:
            self._joined = self._join()
        rows, keys = self._joined
        start, stop = _span(keys, wanted)
        return rows.slice(start, stop - start), keys.slice(start, stop - start)

    def parts(self, wanted: KeyRange) -> Iterator[tuple[pa.Table, KeyArray]]:
        """Yield the same in parts, ascending."""
        found = self.live(wanted)
        if found is not None:
            rows, keys = found
            for start in range(0, len(keys), MEMORY_ROWS):
                yield rows.slice(start, MEMORY_ROWS), keys.slice(start, MEMORY_ROWS)

    def _unhidden_keys(self) -> list[tuple[KeyArray, Flags | None]]:
        """Return for each view the keys of live rows that no newer one hides, and which rows."""
        if self._live_keys is not None:
            return self._live_keys
        found: list[tuple[KeyArray, Flags | None]] = []
        newer: list[KeyArray] = []
        for view, _ in self._views:
            keys = view.live_keys()
            hidden = np.zeros(len(keys), np.bool_)
            for each in newer:
                hidden |= _members(keys, each)
            kept = ~hidden if hidden.any() else None
            found.append((keys if kept is None else keys.filter(flag_array(kept)), kept))
            newer.append(view.keys())
        self._live_keys = found
        return found

    def _join(self) -> tuple[pa.Table, KeyArray]:
        tables: list[pa.Table] = []
        live_keys: list[KeyArray] = []
        for memtable, (view, mapping), (keys, kept) in zip(
            self._memtables, self._views, self._unhidden_keys(), strict=True
        ):
            rows = self._merged(memtable, view, mapping.table(view.live()))
            tables.append(rows if kept is None else rows.filter(flag_array(kept)))
            live_keys.append(keys)
        if len(tables) == 1:
            return tables[0], live_keys[0]
        keys = concat_keys(live_keys)
        order = pc.sort_indices(keys)
        return pa.concat_tables(tables).take(order), keys.take(order)

    def _merged(self, memtable: Memtable, view: MemtableView, rows: pa.Table) -> pa.Table:
        """Return the rows, those of partial writes merged with commits of others since."""
        table = self._table
        stale = {
            given: places for given, places in view.partial_rows().items() if table.is_stale(given)
        }
        if not stale:
            return rows
        # Older memtables are frozen: they have every sequence.
        return merged_on(
            table.below(memtable),
            self._sequence,
            rows,
            view.live_keys(),
            stale,
            schema=table.context.schema,
            rules=memtable.schema.rules,
        )


def _span(keys: KeyArray, wanted: KeyRange) -> tuple[int, int]:
    """Return where the keys of a range begin and end among ascending ones."""
    start = 0 if wanted.start is None else key_place(keys, wanted.start)
    stop = len(keys) if wanted.end is None else key_place(keys, wanted.end)
    return start, max(start, stop)


def _members(keys: KeyArray, others: KeyArray) -> Flags:
    if keys.type != others.type:
        keys, others = as_large(keys), as_large(others)
    return pc.is_in(keys, value_set=others).to_numpy(zero_copy_only=False)


def keys_of(keys: KeyArray, hashes: KeyHashes) -> RowKeys:
    """Return encoded keys in the form that an ordered scan compares."""
    return RowKeys(hashes.of(keys)) if hashes.is_exact else RowKeys(keys)
