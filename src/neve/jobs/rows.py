"""BulkRows: one task's share of a job: writes its rows to files, and finds what they supersede.

    rows, in the order of their keys ──► one row per key ──► files per partition ──► BulkWork
                                                                  └──► older rows of their keys

Rows come in batches of the table's schema. Keys are looked up file by file in the key indexes of
the Version that the job works on, without reading a data file.

In a table with an order or with merge functions, changes are compared with the rows and deletes of
that Version first, and folded into its rows, as `neve.table.row_changes` does for all writers.

JOBS-P1  Keys ascend, and each comes once; where rows come partition by partition, within each of
         them.
JOBS-P2  No two tasks of a job have rows of one key: the division of rows ensures that.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.errors import InvalidArgument
from neve.jobs.run import BulkWork, JobBase
from neve.keys.arrays import as_large, concat_keys, same_keys
from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.arrow_buffers import Flags, one_batch
from neve.model.data_file import DataFile, PartitionValue
from neve.model.row_rules import NO_RULES
from neve.sstable.data_file_writer import DataFileWriter
from neve.sstable.remembered_deletes import RememberedDeletes
from neve.table.partial_merge import merged
from neve.table.partitions import split_by_partition
from neve.table.row_changes import RowChanges, all_columns, winners
from neve.table.row_order import Orders, RowOrder, joined_orders

KeyedRows = tuple[pa.RecordBatch, KeyArray]

_EXAMPLES_MAX: Final = 5


class BulkRows:
    """Takes the rows of one task, in order; for one thread. A block that raises aborts it."""

    def __init__(self, base: JobBase, *, by_partition: bool, ignores_rules: bool = False) -> None:
        """Begin; with `by_partition`, rows of one partition come together.

        `ignores_rules`: rows replace what is there, however new it is.
        """
        self._base = base
        self._schema = replace(base.schema, rules=NO_RULES) if ignores_rules else base.schema
        self._rules = self._schema.rules
        self._order = RowOrder.of(base.schema) if self._rules.order_by else None
        self._remembered: list[tuple[KeyArray, Orders]] = []
        self._deletes: tuple[DataFile, ...] = ()
        self._by_partition = by_partition
        self._open: dict[tuple[PartitionValue, ...], DataFileWriter] = {}
        self._files: list[DataFile] = []
        self._marked: dict[str, BitMap64] = {}
        self._deleted: list[KeyArray] = []
        self._seen: list[KeyArray] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is not None:
            self.abort()

    def upsert(self, rows: pa.RecordBatch, keys: KeyArray, *, is_final: bool = False) -> None:
        """Take rows of the base's schema with their keys (JOBS-P1); raises SchemaMismatch.

        `is_final`: they are folded already.
        """
        if self._order is not None or (self._rules.merge and not is_final):
            changes = RowChanges.of_rows(rows, keys, self._order)
            self.apply(changes, is_final=is_final)
        else:
            self._append(rows, keys)

    def apply(self, changes: RowChanges, *, is_final: bool = False) -> None:
        """Take those of some changes that win; together, calls have each key once.

        Rows come in the order of their keys, as for `upsert`; a key may have several changes.
        """
        kept = winners(changes, self._schema, self._found if self._order else None)
        rows, keys, deleted, orders = kept.rows, kept.keys, kept.deleted, kept.orders
        if self._rules.merge and len(keys):
            is_new = pc.is_in(as_large(keys), value_set=as_large(deleted))
            if not is_final:
                rows = self._folded(rows, keys, is_new.to_numpy(zero_copy_only=False))
            gone = pc.invert(pc.is_in(as_large(deleted), value_set=as_large(keys)))
            deleted = deleted.filter(gone)
            orders = None if orders is None else orders.filter(gone)
        self._append(rows, keys)
        self._delete(deleted, orders)

    def _found(self, keys: KeyArray) -> tuple[Orders, Flags]:
        assert self._order is not None
        return self._base.files.found_orders(self._base.view, keys, self._order)

    def _folded(self, rows: pa.RecordBatch, keys: KeyArray, is_new: Flags) -> pa.RecordBatch:
        """Fold rows into those of the base, except where a delete came before them."""
        found, places = self._base.view.get_many(keys, 0)
        old = np.flatnonzero(~is_new[places])
        return merged(
            rows,
            found.take(old),
            places[old],
            given=all_columns(self._base.schema),
            schema=self._base.schema,
            rules=self._rules,
        )

    def _append(self, rows: pa.RecordBatch, keys: KeyArray) -> None:
        if not rows.num_rows:
            return
        base = self._base
        table = pa.Table.from_batches([rows])
        last: tuple[PartitionValue, ...] = ()
        last_position = -1
        for partition in split_by_partition(table, base.spec, base.schema):
            writer = self._open.get(partition.values)
            if writer is None:
                writer = self._open[partition.values] = base.data_files(partition)
            positions = partition.positions
            if positions is None:
                writer.append(table, keys)
                continue
            writer.append(table.take(positions), keys.take(positions))
            if positions[-1] > last_position:
                last, last_position = partition.values, int(positions[-1])
        if self._by_partition and last_position >= 0:
            for values in [each for each in self._open if each != last]:
                self._end(self._open.pop(values))

    def delete(self, keys: KeyArray) -> None:
        """Delete the rows of ascending keys."""
        if self._order is None:
            self._delete(keys, None)
            return
        self.apply(RowChanges.of_keys(keys, self._base.schema))

    def _delete(self, keys: KeyArray, orders: Orders | None) -> None:
        if not len(keys):
            return
        by_key = pc.sort_indices(keys)
        if orders is not None:
            has_order = orders.is_valid()
            self._remembered.append((keys.filter(has_order), orders.filter(has_order)))
        self._deleted.append(keys.take(by_key))
        self._mark(keys.take(by_key))

    def see(self, keys: KeyArray) -> None:
        """Record keys whose rows the job read and leaves alone."""
        if len(keys):
            self._seen.append(keys)

    def finish(self) -> BulkWork:
        """End the last files and return the work of this task."""
        while self._open:
            _, writer = self._open.popitem()
            self._end(writer)
        if any(len(keys) for keys, _ in self._remembered):
            keys = concat_keys([keys for keys, _ in self._remembered])
            deletes = RememberedDeletes.newest(
                keys, joined_orders(orders for _, orders in self._remembered)
            )
            writers, schema_id = self._base.files.writers, self._base.schema.schema_id
            self._deletes = (writers.deletes(deletes, schema_id=schema_id),)
        return BulkWork(
            files=tuple(self._files),
            marked=self._marked,
            deleted_keys=tuple(self._deleted),
            seen_keys=tuple(self._seen),
            deletes=self._deletes,
        )

    def abort(self) -> None:
        """Delete what was written; what cannot be deleted now is garbage."""
        for writer in self._open.values():
            writer.abort()
        self._open.clear()
        self._base.files.writers.discard_files((*self._files, *self._deletes))
        self._files.clear()
        self._deletes = ()

    def _end(self, writer: DataFileWriter) -> None:
        for written in writer.finish():
            self._files.append(written.file)
            self._mark(written.keys)

    def _mark(self, keys: KeyArray) -> None:
        for path, positions in self._base.superseded(keys).items():
            self._marked[path] = self._marked.get(path, BitMap64()) | positions


def keyed_rows(rows: pa.RecordBatch, encoder: KeyEncoder) -> KeyedRows:
    """Return rows of the table's schema with their keys."""
    return rows, encoder.encode_arrays([rows.column(name) for name in encoder.names])


def last_of_each(
    pieces: Iterable[KeyedRows], encoder: KeyEncoder, *, refuses_more: bool
) -> Iterator[KeyedRows]:
    """Yield each key once, with the last of its rows, which lie next to each other.

    `refuses_more` raises InvalidArgument instead, with examples, when a key has several rows.
    """
    held: KeyedRows | None = None
    for piece in pieces:
        rows, keys = piece
        if not rows.num_rows:
            continue
        if held is not None:
            # The last row of the previous piece may have the same key.
            rows = one_batch(pa.Table.from_batches([held[0], rows]))
            keys = concat_keys([held[1], keys])
        count = rows.num_rows
        is_last = np.ones(count, np.bool_)
        is_last[:-1] = ~same_keys(keys.slice(0, count - 1), keys.slice(1))
        repeats = int(count - is_last.sum())
        if repeats and refuses_more:
            raise duplicate_keys(keys.filter(pa.array(~is_last)), encoder)
        held = rows.slice(count - 1), keys.slice(count - 1)
        is_last[-1] = False
        if repeats:
            chosen = pa.array(is_last)
            yield rows.filter(chosen), keys.filter(chosen)
        else:
            yield rows.slice(0, count - 1), keys.slice(0, count - 1)
    if held is not None:
        yield held


def whole_keys(pieces: Iterable[KeyedRows]) -> Iterator[KeyedRows]:
    """Yield the same rows, all of one key in one piece; those of a key lie next to each other."""
    held: list[KeyedRows] = []
    for rows, keys in pieces:
        if not rows.num_rows:
            continue
        held.append((rows, keys))
        last = keys.slice(len(keys) - 1)
        is_other = ~same_keys(keys, last.take(np.zeros(len(keys), np.int64)))
        cut = int(np.flatnonzero(is_other)[-1]) + 1 if is_other.any() else 0
        if not cut:
            continue
        held[-1] = rows.slice(0, cut), keys.slice(0, cut)
        yield _joined(held)
        held = [(rows.slice(cut), keys.slice(cut))]
    if held:
        yield _joined(held)


def _joined(pieces: Sequence[KeyedRows]) -> KeyedRows:
    rows = one_batch(pa.Table.from_batches([rows for rows, _ in pieces]))
    return rows, concat_keys([keys for _, keys in pieces])


def sorted_by_key(pieces: Iterable[KeyedRows], *, order_by: Sequence[str] = ()) -> KeyedRows | None:
    """Sort all rows of a task by key, and rows of one key by columns; None without rows.

    Rows that are equal in all of them keep their order.
    """
    whole = [piece for piece in pieces if piece[0].num_rows]
    if not whole:
        return None
    rows = one_batch(pa.Table.from_batches([piece[0] for piece in whole]))
    keys = concat_keys([piece[1] for piece in whole])
    table = pa.table({"key": keys.cast(pa.large_binary())})
    for place, name in enumerate(order_by):
        by = rows.column(name)
        # NULL comes first.
        table = table.append_column(f"known{place}", pc.is_valid(by))
        table = table.append_column(f"by{place}", by)
    order: list[tuple[str, Literal["ascending", "descending"]]]
    order = [(name, "ascending") for name in table.column_names]
    try:
        places = pc.sort_indices(table, sort_keys=order)
    except pa.ArrowException as error:
        raise InvalidArgument(
            f"rows cannot be ordered by {', '.join(map(ascii, order_by))}: {error}",
            hint="Name columns of numbers, times or text",
        ) from error
    return rows.take(places), keys.take(places)


def duplicate_keys(keys: KeyArray, encoder: KeyEncoder) -> InvalidArgument:
    """Return the error for keys with several rows in the input."""
    some = keys.unique().slice(0, _EXAMPLES_MAX)
    shown = [encoder.decode(key) for key in some.to_pylist() if isinstance(key, bytes)]
    words = ", ".join(repr(each[0] if len(each) == 1 else tuple(each)) for each in shown)
    return InvalidArgument(
        f"the input has several rows of one key, such as {words}",
        hint="Pass order_by, a column that says which row is newest, or remove the others",
    )
