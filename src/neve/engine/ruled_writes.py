"""RuledPath: writes of a table whose changes are compared by order columns, or folded.

1. Check the rows as in every table; each change has its order columns.
2. Decide, while no other write comes between. With order columns: look up the rows and the
   remembered deletes of the keys, and drop changes that are older than what is there.
3. Of the changes of one key keep the newest or, with merge functions, fold all of them; what came
   before a delete does not count.
4. Log what is left as one batch: deletes with their order, then rows.

So the log and the memtable have only changes that won, and a read finds the newest row as it does
in every table. Another process may commit newer rows in the meantime: they are logged again when
they are shown, and a flush compares its rows with files that it has not seen (`manifest.rebase`).

A delete by key alone has no order of its own: it deletes what it finds, and is as new as that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.engine.row_input import batches_of
from neve.engine.snapshot import CurrentView
from neve.engine.write_path import (
    ATOMIC_BYTES_MAX,
    Decide,
    PreparedBatch,
    WritePath,
    key_batch,
)
from neve.errors import SchemaMismatch
from neve.keys.arrays import Flags, Positions, concat_keys, key_objects
from neve.keys.columns import KeyArray
from neve.memtable.found_row import GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.display import shown
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version, VersionFacts
from neve.model.write_batch import (
    SEQUENCE_MAX,
    AppliedBatch,
    Change,
    DeleteRows,
    UpsertRows,
)
from neve.table.file_set import FileSet
from neve.table.partial_merge import folded_rows, merged
from neve.table.row_order import (
    Orders,
    RowOrder,
    loses,
)
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView

ALWAYS_STALE = 0
"""The Version of rows that are merged at every read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Checked changes of one call: rows to write, and keys to delete."""

    rows: pa.RecordBatch
    keys: KeyArray
    deleted: KeyArray
    orders: Orders | None = None
    """Of rows and then deletes; None in a table without an order."""
    by_age: Positions
    """Places among rows and then deletes, oldest first."""
    is_keyed: bool = False
    """Deletes have no order of their own: each deletes the row it finds."""
    application: tuple[str, int] | None = None

    @property
    def all_keys(self) -> KeyArray:
        """Keys of rows and deletes."""
        return concat_keys([self.keys, self.deleted])


@dataclass(frozen=True, slots=True, kw_only=True)
class Winners:
    """Changes that win, each key once; with merge functions, a row may follow its delete."""

    rows: pa.RecordBatch
    keys: KeyArray
    deleted: KeyArray
    orders: Orders | None
    """Of the deletes."""


class RuledPath(WritePath):
    """Prepares writes of a table with an order or with merge functions."""

    def __init__(
        self, context: TableContext, spec: PartitionSpec, current: CurrentView, files: TableFiles
    ) -> None:
        super().__init__(context, spec)
        self._current = current
        self._files = files
        self.order = RowOrder.of(context.schema)
        self.put = self._put
        self.upsert = self._upsert
        self.delete = self._delete
        self.delete_many = self._delete_many

    # The calls of every table

    def _put(self, row: Mapping[str, object]) -> Decide:
        return self.row_write(row)[1]

    def row_write(self, row: Mapping[str, object]) -> tuple[bytes, Decide]:
        """Return the key of a row, and what writes it."""
        checked = self.checked_row(row)
        rows = self.context.codec.decode_many([checked.value])
        return checked.key, self.decided(self._of_rows(rows, self.encode_keys(rows)))

    def _upsert(self, rows: object) -> Iterator[Decide]:
        batches = batches_of(rows, self.context.codec)
        if not isinstance(rows, pa.RecordBatchReader):
            batches = iter(_grouped([each for each in batches if each.num_rows]))
        for batch in batches:
            if batch.num_rows:
                self.check_partition(batch)
                yield self.decided(self._of_rows(batch, self.encode_keys(batch)))

    def _delete(self, key: object) -> Decide:
        decide = self._delete_many([key])
        assert decide is not None
        return decide

    def _delete_many(self, keys: object) -> Decide | None:
        batch = key_batch(keys, self.context)
        if not batch.num_rows:
            return None
        encoded = self.encode_keys(batch)
        rows = self.context.codec.decode_many([])
        return self.decided(
            Changes(
                rows=rows,
                keys=self.encode_keys(rows),
                deleted=encoded,
                by_age=np.arange(len(encoded)),
                is_keyed=True,
            )
        )

    def _of_rows(self, rows: pa.RecordBatch, keys: KeyArray) -> Changes:
        return Changes(
            rows=rows,
            keys=keys,
            deleted=keys.slice(0, 0),
            orders=None if self.order is None else self.order.of_changes(rows),
            by_age=np.arange(len(keys)),
        )

    # Deciding

    def decided(self, changes: Changes) -> Decide:
        """Return what makes a write of changes, once no other write can come between."""
        return lambda: self.prepared(changes)

    def prepared(self, changes: Changes) -> PreparedBatch | None:
        """Return the changes that win, as one write; None when there is nothing to write."""
        kept = self.winners(changes)
        return None if kept is None else self.write_of(kept, changes)

    def winners(self, changes: Changes) -> "Winners | None":
        """Return the changes that win; None when there are none."""
        count = len(changes.keys)
        keys, by_age, orders = changes.all_keys, changes.by_age, changes.orders
        if self.order is not None:
            found, has_row = self.found_orders(keys)
            if changes.is_keyed:
                orders, is_kept = found, has_row
            else:
                assert orders is not None
                is_kept = ~loses(orders, found)
                age = np.empty(len(keys), np.int64)
                age[by_age] = np.arange(len(keys))
                by_age = _by_order(orders, age)
            by_age = by_age[is_kept[by_age]]
        if not len(by_age) and changes.application is None:
            return None
        # What came before the last delete of a key does not count.
        codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
        rank = np.full(len(keys), -1, np.int64)
        rank[by_age] = np.arange(len(by_age))
        last_delete = np.full(int(codes.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(last_delete, codes[count:], rank[count:])
        written = by_age[by_age < count]
        written = written[rank[written] > last_delete[codes[written]]]
        deleted = by_age[last_delete[codes[by_age]] == rank[by_age]]
        deleted = deleted[deleted >= count]
        rules = self.context.schema.rules
        rows, row_keys = self._folded(changes.rows, changes.keys, written, self.context.schema)
        if not rules.merge:
            # A row that follows a delete replaces it.
            has_row = np.zeros(len(last_delete), np.bool_)
            has_row[codes[written]] = True
            deleted = deleted[~has_row[codes[deleted]]]
        taken = None if orders is None else orders.take(deleted)
        return Winners(rows=rows, keys=row_keys, deleted=keys.take(deleted), orders=taken)

    def admitted(
        self, rows: pa.RecordBatch, keys: KeyArray, schema: TableSchema
    ) -> tuple[pa.RecordBatch, KeyArray]:
        """Return the rows of a partial write that win, each key once; they have this schema."""
        by_age = np.arange(len(keys))
        if self.order is not None:
            orders = self.order.of_changes(rows)
            found, _ = self.found_orders(keys)
            by_age = _by_order(orders, by_age)
            by_age = by_age[~loses(orders, found)[by_age]]
        return self._folded(rows, keys, by_age, schema)

    def _folded(
        self, rows: pa.RecordBatch, keys: KeyArray, by_age: Positions, schema: TableSchema
    ) -> tuple[pa.RecordBatch, KeyArray]:
        """Return one row for each key, out of its rows at these places, the oldest first."""
        if not len(by_age):
            return rows.slice(0, 0), keys.slice(0, 0)
        rules = self.context.schema.rules
        return folded_rows(
            rows, keys, by_age, given=_all_columns(schema), rules=rules, schema=schema
        )

    def found_orders(self, keys: KeyArray) -> tuple[Orders, Flags]:
        """Return how new the row or delete of each key is, and which keys have a row."""
        assert self.order is not None
        current = self._current
        return self._files.found_orders(current.view, keys, self.order, current.sequence)

    # Writing

    def write_of(self, kept: "Winners", changes: Changes) -> PreparedBatch | None:
        """Return the write of the changes that win; None when there is nothing to log."""
        rows, keys, deleted, orders = kept.rows, kept.keys, kept.deleted, kept.orders
        logged: list[Change] = []
        if len(deleted):
            logged.append(DeleteRows(self._delete_batch(deleted, orders)))
        if rows.num_rows:
            logged.append(UpsertRows(rows))
        if changes.application is not None:
            logged.append(AppliedBatch(*changes.application))
        if not logged:
            return None

        def apply(memtable: Memtable, sequence: int) -> None:
            memtable.delete_batch(sequence, deleted, orders)
            sequence += len(deleted)
            write_rows(sequence, memtable)
            if changes.application is not None:
                memtable.note_applied(sequence + len(keys), *changes.application)

        write_rows = self._rows_writer(rows, keys)
        return PreparedBatch(self.encoded(logged), apply)

    def _rows_writer(self, rows: pa.RecordBatch, keys: KeyArray) -> Callable[[int, Memtable], None]:
        if not self.context.schema.rules.merge:
            whole = self.upserted(rows, keys)
            return lambda sequence, memtable: whole(memtable, sequence)
        given = new_given(keys, np.empty(0, np.int64), _all_columns(self.context.schema))
        return lambda sequence, memtable: add_folded(
            memtable,
            sequence,
            rows,
            keys,
            given,
            context=self.context,
            files=self._current.view.files,
        )

    def _delete_batch(self, keys: KeyArray, orders: Orders | None) -> pa.RecordBatch:
        """Return deletes as the log has them: key columns, and order columns if there are any."""
        arrays = self.context.encoder.decode_arrays(keys)
        fields = list(self.context.schema.key_schema)
        if orders is not None and self.order is not None:
            arrays += self.order.columns_of(orders)
            fields += [self.context.schema.column(name).arrow_field for name in self.order.names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def path_of(
    context: TableContext, spec: PartitionSpec, current: CurrentView, files: TableFiles
) -> WritePath:
    """Return the path that the rules of a schema ask for."""
    rules = context.schema.rules
    if rules.order_by or rules.merge:
        return RuledPath(context, spec, current, files)
    return WritePath(context, spec)


def new_given(keys: KeyArray, places: Positions, field_ids: frozenset[int]) -> list[GivenColumns]:
    """Return the given columns of rows that every reader folds; `places` have a row already."""
    has_row = np.zeros(len(keys), np.bool_)
    has_row[places] = True
    given = [GivenColumns(field_ids, had_base, ALWAYS_STALE) for had_base in (False, True)]
    return [given[each] for each in has_row.tolist()]


def add_folded(
    memtable: Memtable,
    sequence: int,
    rows: pa.RecordBatch,
    keys: KeyArray,
    given: Sequence[GivenColumns],
    *,
    context: TableContext,
    files: FileSet,
) -> None:
    """Fold rows with unique keys into those that a memtable has, and apply them to it."""
    if memtable.is_empty or not len(keys):
        memtable.upsert_batch(sequence, keys, rows, given=list(given))
        return
    memory = TableView((memtable,), files.moved_to(_NOTHING), context)
    found, places = memory.get_many(keys, SEQUENCE_MAX)
    # A loop over the rows of a write: each is one dict lookup.
    known = [
        memtable.given_with(key, more) for key, more in zip(key_objects(keys), given, strict=True)
    ]
    whole = merged(
        rows,
        found,
        places,
        given=given[0].field_ids,
        schema=context.schema,
        rules=context.schema.rules,
    )
    memtable.upsert_batch(sequence, keys, whole, given=known)


_NOTHING = Version(
    number=1,
    parent=None,
    facts=VersionFacts(operation=Operation.CREATE, timestamp_ms=0, schema_id=0, spec_id=0),
)


def needs_order(columns: Sequence[str], schema: TableSchema) -> None:
    """Raise SchemaMismatch for a partial write without the order columns."""
    for field_id in schema.rules.order_by:
        name = schema.column_by_id(field_id).name
        if name not in columns:
            raise SchemaMismatch(
                f"a partial write lacks the order column {shown(name)}",
                column=name,
                hint="Write it too: it says how new the change is",
            )


def _by_order(orders: Orders, age: Positions) -> Positions:
    """Return places, the oldest change first: by order, and then by age."""
    encoded = orders.dictionary_encode()
    by_value = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(by_value), np.int64)
    rank[by_value] = np.arange(len(by_value))
    by_age: Positions = np.lexsort((age, rank[encoded.indices.to_numpy(zero_copy_only=False)]))
    return by_age


def _grouped(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches of a call to one, or to several of a bounded size."""
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    rows = max(1, table.num_rows // max(1, -(-table.nbytes // ATOMIC_BYTES_MAX)))
    for start in range(0, table.num_rows, rows):
        yield from table.slice(start, rows).combine_chunks().to_batches()


def _all_columns(schema: TableSchema) -> frozenset[int]:
    return frozenset(column.field_id for column in schema.columns) - {*schema.primary_key}
