"""RuledPath: writes of a table whose changes are compared by order columns, or folded.

1. Check the rows as in every table; each change has its order columns.
2. Decide, while no other write of the same keys comes between. With order columns: look up the rows
   and the remembered deletes of the keys, and drop changes that are older than what is there.
3. Of the changes of one key keep the newest or, with merge functions, fold all of them; what came
   before a delete does not count.
4. Log what is left as one batch: deletes with their order, then rows.

A row that is put into a table with merge functions, but without an order and a `ttl`, needs no
decision: it is logged as every row that is put, and folded when it is applied.

So the log and the memtable have only changes that won, and a read finds the newest row as it does
in every table. Another process may commit newer rows in the meantime: they are logged again when
they are shown, and a flush compares its rows with files that it has not seen (`manifest.rebase`).

A delete by key alone has no order of its own: it deletes what it finds, and is as new as that.

A row that has expired counts as absent: any change wins over it, and nothing is folded into it. For
that, its delete is logged before the row.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from neve.engine.row_input import batches_of
from neve.engine.snapshot import CurrentView
from neve.engine.write_path import (
    Decide,
    Decided,
    PreparedBatch,
    PreparedRow,
    WritePath,
    joined_and_bounded,
    key_batch,
)
from neve.errors import SchemaMismatch
from neve.keys.arrays import concat_keys, key_objects
from neve.keys.columns import KeyArray
from neve.memtable.found_row import BatchRow, GivenColumns
from neve.memtable.memtable import Memtable
from neve.model.arrow_buffers import Flags, Positions, one_batch
from neve.model.display import shown
from neve.model.partition_spec import PartitionSpec
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version, VersionFacts
from neve.model.write_batch import (
    SEQUENCE_MAX,
)
from neve.observability.metrics import CHANGES_IGNORED, CHANGES_TIED
from neve.table.file_set import FileSet
from neve.table.partial_merge import merged
from neve.table.row_changes import RowChanges, Winners, all_columns, by_order, folded, winners
from neve.table.row_order import (
    Orders,
    RowOrder,
    equals,
    has_order_of,
    joined_orders,
    loses,
    no_orders,
)
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView

ALWAYS_STALE = 0
"""The Version of rows that are merged at every read."""


class RuledPath(WritePath):
    """Prepares writes of a table with an order or with merge functions."""

    def __init__(
        self, context: TableContext, spec: PartitionSpec, current: CurrentView, files: TableFiles
    ) -> None:
        super().__init__(context, spec)
        self._current = current
        self._files = files
        self.is_plain = False
        self.put = self._put
        self.upsert = self._upsert
        self.delete = self._delete
        self.delete_many = self._delete_many

    # The calls of every table

    def _put(self, row: Mapping[str, object]) -> PreparedBatch | Decide:
        rules, checked = self.context.schema.rules, self.checked_row(row)
        if self.order is not None and not rules.merge:
            return self._put_in_order(checked, self.order)
        rows = self.context.codec.decode_many([checked.value])
        keys = self.encode_keys(rows)
        if self.order is not None or rules.ttl is not None:
            return self.decided(RowChanges.of_rows(rows, keys, self.order))
        return PreparedBatch(checked.changes, self.upserted(rows, keys), (checked.key,))

    def _put_in_order(self, checked: PreparedRow, order: RowOrder) -> Decide:
        """Decide about one row without arrays, which take many times as long."""
        own = order.of_change(self.context.codec.decode(checked.value))

        def decide() -> PreparedRow | None:
            view = self._shown_view()
            row = view.get_at(checked.key, self._current.sequence)
            if row is None:
                found = self._files.deleted_order(view, checked.key, order)
            else:
                found = order.of_row(row)
            if found is None or found <= own:
                return checked
            self._files.parts.recorder.add(CHANGES_IGNORED, 1)
            return None

        return Decided(decide, checked.written_keys())

    def _upsert(self, rows: object) -> Iterator[Decide]:
        batches = batches_of(rows, self.context.codec)
        if not isinstance(rows, pa.RecordBatchReader):
            batches = joined_and_bounded(batches)
        for batch in batches:
            if batch.num_rows:
                self.check_partition(batch)
                yield self.decided(RowChanges.of_rows(batch, self.encode_keys(batch), self.order))

    def _delete(self, key: object) -> Decide:
        decide = self._delete_many([key])
        assert decide is not None
        return decide

    def _delete_many(self, keys: object) -> Decide | None:
        batch = key_batch(keys, self.context)
        if not batch.num_rows:
            return None
        return self.decided(RowChanges.of_keys(self.encode_keys(batch), self.context.schema))

    # Deciding

    def decided(self, changes: RowChanges) -> Decide:
        """Return what makes a write of changes, once no other write can come between."""
        size = changes.rows.nbytes + changes.deleted.nbytes + 1
        return Decided(lambda: self.prepared(changes), changes.all_keys, byte_count=size)

    def prepared(self, changes: RowChanges) -> PreparedBatch | None:
        """Return the changes that win, as one write; None when there is nothing to write."""
        return self.write_of(self.winners(changes), changes.application)

    def winners(self, changes: RowChanges) -> Winners:
        """Return the changes that win, and count the others."""
        kept = winners(changes, self.context.schema, self.found_orders if self.order else None)
        recorder = self._files.parts.recorder
        if kept.ignored:
            recorder.add(CHANGES_IGNORED, kept.ignored)
        if kept.tied:
            recorder.add(CHANGES_TIED, kept.tied)
        return self.after_expired(kept)

    def admitted(
        self, rows: pa.RecordBatch, keys: KeyArray, schema: TableSchema
    ) -> tuple[pa.RecordBatch, KeyArray]:
        """Return the rows of a partial write that win, each key once; they have this schema."""
        by_age = np.arange(len(keys))
        if self.order is not None:
            orders = self.order.of_changes(rows)
            encoded = keys.dictionary_encode()
            found, _ = self.found_orders(cast("KeyArray", encoded.dictionary))
            by_age = by_order(orders, by_age)
            by_age = by_age[~loses(orders, found.take(encoded.indices))[by_age]]
        return folded(rows, keys, by_age, schema, self.context.schema.rules)

    def found_orders(self, keys: KeyArray) -> tuple[Orders, Flags]:
        """Return how new the row or delete of each key is, and which keys have a row."""
        assert self.order is not None
        return self._files.found_orders(
            self._shown_view(), keys, self.order, self._current.sequence
        )

    def _shown_view(self) -> TableView:
        """Return what there is, without rows that have expired."""
        view = self._current.view
        return view.as_of(self._files.parts.clock.now_ms()) if view.expires else view

    def after_expired(self, kept: Winners) -> Winners:
        """Return changes after the deletes of expired rows that they would be folded into.

        Such a delete is as new as the row that follows it.
        """
        view = self._current.view
        if not (self.context.schema.rules.merge and view.expires and len(kept.keys)):
            return kept
        cutoff = view.as_of(self._files.parts.clock.now_ms()).cutoff
        if cutoff is None:
            return kept
        time = [cutoff.column.name]
        found, places = view.get_many(kept.keys, self._current.sequence, columns=time)
        over = places[cutoff.expired_flags(found)]
        if not len(over):
            return kept
        orders = None
        if self.order is not None:
            known = no_orders(len(kept.deleted)) if kept.orders is None else kept.orders
            orders = joined_orders([known, self.order.of_rows(kept.rows.take(over))])
        return replace(
            kept, deleted=concat_keys([kept.deleted, kept.keys.take(over)]), orders=orders
        )

    def restoring(
        self, version: Version, *, without: Memtable | None = None, is_first: bool = False
    ) -> PreparedBatch | None:
        """Return a write of rows of a Version that are newer than what memory has of their keys.

        Others committed them. `without` is a memtable whose rows the Version has; `is_first`: any
        file may have such rows, not only those that are not shown yet.

        What this writes are copies: not later changes of these rows, so that they lose to whatever
        others do to the rows that they are copies of. In the log, each follows a delete.
        """
        assert self.order is not None
        view = self._current.view
        memory = in_order(view.memtables, self.order, without=without)
        keys = self._in_both(memory, version, None if is_first else view.files.version)
        if keys is None or not len(keys):
            return None
        kept = newer_than(
            TableView(memory, view.files, view.context),
            self._files.view(version, self.context.schema.schema_id),
            keys,
            self.order,
            files=self._files,
            sequence=self._current.sequence,
        )
        if kept is None:
            return None
        write = self.write_of(kept, None)
        assert write is not None

        def apply(memtable: Memtable, sequence: int) -> None:
            write.apply(memtable, sequence)
            memtable.note_copies(sequence + len(kept.deleted), kept.keys)

        return PreparedBatch(write.changes, apply, write.keys)

    def _in_both(
        self, memory: Sequence[Memtable], version: Version, shown: Version | None
    ) -> KeyArray | None:
        """Return keys of memtables that are in files of a Version, but not in those shown."""
        together = keys_in(memory)
        if shown is None or together is None:
            return together
        found = np.zeros(len(together), np.bool_)
        # A file with sequences is of this writer, which compared its rows when they were written.
        for file in (*version.files.values(), *version.deletes.values()):
            is_shown = file.path in shown.files or file.path in shown.deletes
            if not is_shown and not file.sequence_max:
                found[self._files.places_in(file, together)] = True
        return together.filter(pa.array(found))

    # Writing

    def upserted(self, rows: pa.RecordBatch, keys: KeyArray) -> Callable[[Memtable, int], None]:
        """Return what applies rows of this schema to a memtable: with merge functions, folded."""
        if not self.context.schema.rules.merge:
            return super().upserted(rows, keys)
        given = new_given(keys, np.empty(0, np.int64), all_columns(self.context.schema))
        return lambda memtable, sequence: add_folded(
            memtable,
            sequence,
            rows,
            keys,
            given,
            context=self.context,
            files=self._current.view.files,
        )


def in_order(
    memtables: Sequence[Memtable], order: RowOrder, *, without: Memtable | None = None
) -> tuple[Memtable, ...]:
    """Return the memtables whose changes are compared with those that others commit.

    What was written while the table had another order is newer than all that is committed.
    """
    return tuple(
        each
        for each in memtables
        if each is not without and not each.is_empty and has_order_of(each.schema, order)
    )


def keys_in(memory: Sequence[Memtable]) -> KeyArray | None:
    """Return the keys of memtables, each once; None without any."""
    keys = [memtable.view(memtable.last_sequence).keys() for memtable in memory]
    return concat_keys(keys).unique() if keys else None


def newer_than(
    memory: TableView,
    shown: TableView,
    keys: KeyArray,
    order: RowOrder,
    *,
    files: TableFiles,
    sequence: int,
) -> Winners | None:
    """Return rows and deletes of a Version that are newer than what memory has of some keys.

    The deletes have the keys of the rows, too. None when nothing is newer. A row that has expired
    is not: what memory has was written over it.
    """
    shown = shown.as_of(files.parts.clock.now_ms())
    own, has_own = files.found_orders(memory, keys, order, sequence)
    theirs, has_row = files.found_orders(shown, keys, order)
    lost = loses(own, theirs)
    if any(memtable.copies for memtable in memory.memtables):
        is_copy = np.zeros(len(keys), np.bool_)
        for memtable in memory.memtables:
            is_copy |= memtable.are_copies(keys)
        lost |= is_copy & has_own & equals(own, theirs)
    if not lost.any():
        return None
    written, gone = keys.filter(pa.array(lost & has_row)), np.flatnonzero(lost)
    rows, places = shown.get_many(written, 0)
    batch = one_batch(rows.take(np.argsort(places)))
    return Winners(rows=batch, keys=written, deleted=keys.take(gone), orders=theirs.take(gone))


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
    base = _folded_into(memtable, keys, context) if len(keys) == 1 else None
    if base is None:
        memory = TableView((memtable,), files.moved_to(_NOTHING), context)
        base = memory.get_many(keys, SEQUENCE_MAX)
    found, places = base
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


def _folded_into(
    memtable: Memtable, keys: KeyArray, context: TableContext
) -> tuple[pa.Table, Positions] | None:
    """Return what a memtable has of one key, and its place, as a view of it returns them.

    None when that takes a view: for a row with only some of its columns written.
    """
    if memtable.schema is not context.schema:
        return None
    found = memtable.get(key_objects(keys)[0])
    if found is None:
        return context.schema.arrow_schema.empty_table(), np.empty(0, np.int64)
    if not isinstance(found, BatchRow) or found.given is None:
        return None
    if found.given.field_ids != all_columns(context.schema):
        return None
    row = pa.Table.from_batches([found.batch.slice(found.row, 1)])
    return row, np.zeros(1, np.int64)


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
