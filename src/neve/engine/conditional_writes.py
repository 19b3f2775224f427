"""ConditionalWrites: writes that depend on existing rows, decided and logged as one step.

put_if_absent      read the row of the key ──► none: log the row
compare_and_put    read the row of the key ──► as expected: log the row
partial upsert     read the rows of the keys ──► merge ──► log what was given

No other write of the same keys comes between: the thread that commits a group of writes decides, so
that conditional writes share syncs. Another committer's Version counts once it is shown.
When another committer's clean-up has deleted a file of the view, the decision ends before anything
is logged, and is made again on the newest Version.

A row that has expired counts as absent. A partial write over one is logged as whole rows: when it
is merged again, the expired row may be there still, or may have been removed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isnan
from typing import Protocol

import numpy as np
import pyarrow as pa

from neve.engine.live_writer import LiveWriter
from neve.engine.row_input import given_columns, given_rows, narrowed_batches
from neve.engine.ruled_writes import RuledPath, add_folded, needs_order, new_given
from neve.engine.table_engine import TableEngine
from neve.engine.write_path import (
    Decided,
    PreparedBatch,
    PreparedRow,
    PreparedWrite,
    WritePath,
    bounded,
    joined_and_bounded,
)
from neve.errors import InvalidArgument, Phrase, SchemaMismatch, Wording
from neve.keys.arrays import key_at
from neve.keys.columns import KeyArray
from neve.memtable.memtable import Memtable
from neve.model.arrow_buffers import one_batch
from neve.model.display import shown
from neve.model.row_rules import Cutoff
from neve.model.schema import Column
from neve.model.write_batch import Change, PartialRows, WriteBatch
from neve.table.partial_merge import (
    MERGED_ROWS_MAX,
    Places,
    merged,
    required_columns,
    widened,
)
from neve.table.row_changes import Winners
from neve.table.table_view import Row, TableView
from neve.wal.batch_codec import encode_changes


@dataclass(frozen=True, slots=True)
class _MergedBatch:
    """Rows of a partial write, in the form of the memtable and in that of the log."""

    logged: Sequence[Change]
    apply: Callable[[Memtable, int], None]


class ConditionalWrites:
    """Conditional and partial writes of one table; safe for many threads."""

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine
        self._writer: LiveWriter = engine.writer

    def put_if_absent(self, row: Mapping[str, object]) -> int | None:
        """Write a row unless its key has one; returns its sequence number, or None."""
        path = self._writer.path
        return self._put_decided(
            row, path, path.checked_row(row), lambda found, _path: found is None
        )

    def compare_and_put(
        self, row: Mapping[str, object], expected: Mapping[str, object] | None
    ) -> int | None:
        """Write a row if its key has the expected row; returns its sequence number, or None."""

        def is_expected(found: Row | None, path: WritePath) -> bool:
            if expected is None or found is None:
                return found is expected
            return _is_same(found, expected, path)

        path = self._writer.path
        key = None if expected is None else path.encoded_row(expected)[0]
        checked = path.checked_row(row)
        if key is not None and key != checked.key:
            raise InvalidArgument(
                "the expected row and the new row have different keys",
                hint=Wording(Phrase.EXPECTED_ROW),
            )
        return self._put_decided(row, path, checked, is_expected)

    def _put_decided(
        self,
        row: Mapping[str, object],
        checked_by: WritePath,
        known: PreparedRow,
        decision: "_Decision",
    ) -> int | None:
        """Write a row that a path has checked, whatever the table holds, if a decision says so."""
        writer, current = self._writer, self._engine.current

        def decide() -> PreparedWrite | None:
            # Taken here: a schema change comes before this or after it.
            path = writer.path
            checked = known if path is checked_by else path.checked_row(row)
            if not decision(self._engine.as_seen(current.view).get(checked.key), path):
                return None
            if not isinstance(path, RuledPath):
                return checked
            write = path.put(row)
            return write() if callable(write) else write

        write = Decided(decide, known.written_keys())
        return self._engine.once_more(lambda: writer.write(write))

    # Partial writes

    def upsert(self, rows: object, columns: object) -> int:
        """Write some columns of many rows; returns the last sequence number."""
        sequence = self._engine.current.sequence
        way = Narrowing(self._writer.path, columns)
        for batch in way.bounded(rows):
            written = self._engine.once_more(partial(self._write, batch, way))
            sequence = sequence if written is None else written
        return sequence

    def check_upsert(self, rows: object, columns: object) -> None:
        """Check a partial upsert without writing it; raises the errors of `upsert`."""
        way = Narrowing(self._writer.path, columns)
        for batch in way.bounded(rows):
            self._engine.once_more(partial(self._prepared, batch, way))

    def _prepared(self, batch: pa.RecordBatch, way: "Narrowing") -> PreparedBatch | None:
        current = self._engine.current
        view = current.view
        writes = PartialWrites(view, current.sequence, self._engine.as_seen(view).cutoff)
        return writes.prepared(batch, way)

    def _write(self, batch: pa.RecordBatch, way: "Narrowing") -> int | None:
        """Write one batch, all or nothing."""

        def decide() -> PreparedWrite | None:
            path = self._writer.path
            if way.path.context is path.context:
                return self._prepared(batch, way.along(path))
            # The schema has changed since the rows were checked.
            other = Narrowing(path, way.columns)
            narrowed = one_batch(pa.Table.from_batches(other.batches(batch)))
            return self._prepared(narrowed, other)

        keys = way.path.encode_keys(batch)
        return self._writer.write(Decided(decide, keys, byte_count=batch.nbytes + 1))


class PartialWrites:
    """Merges partial writes with the rows of a view, as of a sequence."""

    def __init__(self, view: TableView, sequence: int, cutoff: Cutoff | None) -> None:
        """Take the rows; `cutoff` says which of them have expired."""
        self._view = view
        self._sequence = sequence
        self._cutoff = cutoff

    def prepared(self, batch: pa.RecordBatch, way: "Narrowing") -> PreparedBatch | None:
        """Return the write of a batch, all or nothing; None when no row of it counts."""
        keys = way.path.encode_keys(batch)
        rows, keys = way.path.admitted(batch, keys, way.schema)
        if not rows.num_rows:
            return None
        pieces: list[_MergedBatch] = []
        for at in range(0, rows.num_rows, MERGED_ROWS_MAX):
            part, part_keys = rows.slice(at, MERGED_ROWS_MAX), keys.slice(at, MERGED_ROWS_MAX)
            pieces += self._pieces(part, part_keys, way)
        # A reader of the log recognizes a partial write by its first change.
        pieces.sort(key=lambda each: type(each.logged[0]) is not PartialRows)
        changes = encode_changes(
            WriteBatch(
                tuple(change for each in pieces for change in each.logged),
                way.path.context.schema.schema_id,
            )
        )

        def apply(memtable: Memtable, sequence: int) -> None:
            for each in pieces:
                each.apply(memtable, sequence)
                sequence += sum(change.row_count for change in each.logged)

        return PreparedBatch(changes, apply, keys)

    def _pieces(
        self, batch: pa.RecordBatch, keys: KeyArray, way: "Narrowing"
    ) -> list[_MergedBatch]:
        """Merge rows with those of their keys; rows over expired ones are a piece of their own."""
        base, places = self._view.get_many(keys, self._sequence)
        cutoff = self._cutoff
        expired = np.empty(0, np.bool_) if cutoff is None else cutoff.expired_flags(base)
        if not expired.any():
            return [self._merged(batch, keys, base, places, way)]
        is_whole = np.zeros(batch.num_rows, np.bool_)
        is_whole[places[expired]] = True
        whole, rest = np.flatnonzero(is_whole), np.flatnonzero(~is_whole)
        pieces = [self._whole(batch.take(whole), keys.take(whole), way)]
        if len(rest):
            among_rest = np.cumsum(~is_whole) - 1
            live = base.filter(pa.array(~expired)), among_rest[places[~expired]]
            pieces.append(self._merged(batch.take(rest), keys.take(rest), *live, way))
        return pieces

    def _merged(
        self,
        batch: pa.RecordBatch,
        keys: KeyArray,
        base: pa.Table,
        places: Places,
        way: "Narrowing",
    ) -> _MergedBatch:
        view, schema = self._view, way.path.context.schema
        required = required_columns(schema, way.field_ids)
        if required and len(places) < batch.num_rows:
            raise _without_required(required[0], way.path, keys, places)
        rows = merged(widened(batch, schema), base, places, given=way.field_ids, schema=schema)
        way.path.check_partition(rows)
        logged = PartialRows(
            rows.select([*batch.schema.names, *(column.name for column in required)]),
            tuple(sorted(way.field_ids)),
        )
        if schema.rules.merge:
            given = new_given(keys, places, way.field_ids)
            fold = partial(add_folded, context=way.path.context, files=view.files)
            return _MergedBatch(
                [logged],
                lambda memtable, sequence: fold(memtable, sequence, rows, keys, given),
            )

        def apply(memtable: Memtable, sequence: int) -> None:
            known = given_rows(memtable, keys, places, way.field_ids, version=view.version)
            memtable.upsert_batch(sequence, keys, rows, given=known)

        return _MergedBatch([logged], apply)

    def _whole(self, batch: pa.RecordBatch, keys: KeyArray, way: "Narrowing") -> _MergedBatch:
        """Return rows that have no base, whatever is stored of their keys."""
        schema = way.path.context.schema
        required = required_columns(schema, way.field_ids)
        if required:
            raise _without_required(required[0], way.path, keys, np.empty(0, np.int64))
        rows = widened(batch, schema)
        way.path.check_partition(rows)
        kept = Winners(rows=rows, keys=keys, deleted=keys.slice(0, 0), orders=None)
        return _MergedBatch(*way.path.changes_of(way.path.after_expired(kept)))


class _Decision(Protocol):
    """Decides from the row of a key, None without one, whether to write."""

    def __call__(self, found: Row | None, path: WritePath, /) -> bool: ...


class Narrowing:
    """Checks rows of a partial write under one schema."""

    def __init__(self, path: WritePath, columns: object) -> None:
        schema = path.context.schema
        given = given_columns(columns, schema)
        self.path = path
        self.columns = [column.name for column in given]
        self.field_ids = frozenset(column.field_id for column in given)
        needs_order(self.columns, schema)
        self._codec = path.narrowed_codec(given)
        self.schema = self._codec.schema

    def along(self, path: WritePath) -> "Narrowing":
        """Return the same under a newer partition spec."""
        if path is self.path:
            return self
        return Narrowing(path, self.columns)

    def batches(self, rows: object) -> Iterator[pa.RecordBatch]:
        """Return the key and the named columns of rows."""
        return narrowed_batches(rows, self._codec, self.path.context.schema)

    def bounded(self, rows: object) -> Iterator[pa.RecordBatch]:
        """Return rows as batches of a bounded size; each is one write."""
        batches = self.batches(rows)
        if isinstance(rows, pa.RecordBatchReader):
            return (each for batch in batches for each in bounded(batch))
        # Check all before writing the first, and write as one batch those that fit.
        return joined_and_bounded(batches)


def _is_same(found: Row, expected: Mapping[str, object], path: WritePath) -> bool:
    """Return whether two rows have the same values in any spelling."""
    codec = path.context.codec
    stored, wanted = codec.encode(found), codec.encode(expected)
    return stored == wanted or _is_same_value(codec.decode(stored), codec.decode(wanted))


def _is_same_value(one: object, other: object) -> bool:
    """Return whether two values are the same at every depth; 0.0 equals -0.0, NaN equals NaN."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(
                _is_same_value(value, other[name]) for name, value in one.items()
            )
        case [*ones], [*others]:  # entries of a map are pairs in a list
            return len(ones) == len(others) and all(map(_is_same_value, ones, others))
        case float(), float() if isnan(one):
            return isnan(other)
        case _:
            return one == other


def _without_required(
    column: Column, path: WritePath, keys: KeyArray, places: Places
) -> SchemaMismatch:
    has_row = np.zeros(len(keys), np.bool_)
    has_row[places] = True
    first = int(np.flatnonzero(~has_row)[0])
    values = path.context.encoder.decode(key_at(keys, first))
    key = values[0] if len(values) == 1 else values
    return SchemaMismatch(
        f"key {shown(key)} has no row yet, and column {shown(column.name)} is not given and has no "
        "default",
        column=column.name,
        hint="Write the column too, or the whole row",
    )
