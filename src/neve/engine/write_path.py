"""WritePath: prepares rows for the log; everything that can fail on a row fails here.

    rows ──► check against the schema ──► encode keys ──► partition values ──► bytes of the batch

A prepared write can certainly be flushed: its types, key, partition and size were all checked.
Nothing is logged before the whole batch has passed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from neve.engine.row_input import ArrowStream, batches_of, imported_table, narrowed_codec
from neve.errors import InvalidArgument, SchemaMismatch
from neve.kernel import is_compiled, kernel
from neve.keys.arrays import concat_keys, key_objects
from neve.keys.columns import KEY_BYTES_MAX, KeyArray, KeyColumn, value_codec
from neve.memtable.memtable import Memtable
from neve.model.array_fit import fit_column, nulls
from neve.model.arrow_buffers import exact_array
from neve.model.partition_spec import PartitionSpec
from neve.model.row_codec import RowCodec
from neve.model.schema import Column, TableSchema
from neve.model.write_batch import (
    AppliedBatch,
    Change,
    DeleteRow,
    DeleteRows,
    UpsertRows,
    WriteBatch,
)
from neve.table.row_changes import RowChanges, Winners, folded, winners
from neve.table.row_order import Orders, RowOrder
from neve.table.schema_mapping import SchemaMapping
from neve.table.table_context import TableContext
from neve.wal.append_outcome import NOT_YET, NotYet, Unapplied
from neve.wal.batch_codec import EncodedChanges, encode_changes, encode_put

ATOMIC_BYTES_MAX: Final = 128 << 20
"""Rows of one call are one batch up to about this many bytes, and several in order above it."""

_NARROWED_MAX: Final = 64
_LISTED_MAX: Final = 4_096
_DECIDED_BYTES: Final = 256

_new: Final = tuple.__new__  # a named tuple's own call costs twice as much

# Python values that an Arrow array takes without converting them.
_EXACT_TYPES: Final = {pa.int64(): int, pa.string(): str, pa.binary(): bytes}


Keys = KeyArray | Collection[bytes]
"""Encoded keys, as Arrow or one by one."""


def _listed(keys: Keys | None) -> Collection[bytes] | None:
    """Return keys one by one; None when they are too many for that, or unknown."""
    if keys is None or len(keys) > _LISTED_MAX:
        return None
    return key_objects(keys) if isinstance(keys, pa.Array) else keys


class PreparedRow(NamedTuple):
    """One row that passed every check."""

    changes: EncodedChanges
    key: bytes
    value: bytes

    def apply_to(self, memtable: Memtable, sequence: int) -> int:
        """Apply it to a memtable; returns its sequence number."""
        memtable.put(sequence, self.key, self.value)
        return sequence

    def written_keys(self) -> Collection[bytes]:
        """Return its key."""
        return (self.key,)


class PreparedBatch(NamedTuple):
    """Changes that passed every check, and are applied together."""

    changes: EncodedChanges
    apply: Callable[[Memtable, int], None]
    keys: Keys | None = None
    """Keys of the changes; None when no one needs to know them."""

    def apply_to(self, memtable: Memtable, first_sequence: int) -> int:
        """Apply them to a memtable; returns their last sequence number."""
        self.apply(memtable, first_sequence)
        return first_sequence + self.changes.row_count - 1

    def written_keys(self) -> Collection[bytes] | None:
        """Return its keys; None when they are too many to list."""
        return _listed(self.keys)


PreparedWrite = PreparedRow | PreparedBatch

Decide = Callable[[], PreparedWrite | None]
"""Makes a write from the rows that it finds, while no other comes between; None: no write."""


class Decided:
    """A Decide that reads only rows of some keys, so that it can share a sync with other writes.

    The thread that commits its group makes the write and shows it.
    """

    __slots__ = ("_keys", "_made", "_make", "_show", "byte_count", "last")

    def __init__(self, make: Decide, keys: Keys, *, byte_count: int = _DECIDED_BYTES) -> None:
        self._make = make
        self._keys = keys
        self.byte_count = byte_count
        """About what it adds to the log."""

    def begin(self, show: Callable[[PreparedWrite, int], int]) -> None:
        """Prepare to be decided, perhaps again; `show` applies the write."""
        self._show = show
        self._made: PreparedWrite | None = None
        self.last: int | None = None
        """Its last sequence number, once it is shown."""

    def __call__(self) -> PreparedWrite | None:
        """Make the write."""
        return self._make()

    def may_decide(self, unapplied: Unapplied) -> bool:
        """Return whether it depends on none of the writes that are not applied yet."""
        keys = _listed(self._keys)
        return keys is not None and unapplied.keys().isdisjoint(keys)

    # As the log sees it

    def decide(self, unapplied: Unapplied) -> EncodedChanges | NotYet | None:
        """Make the write."""
        if unapplied and not self.may_decide(unapplied):
            return NOT_YET
        made = self._made = self()
        return None if made is None else made.changes

    def written_keys(self) -> Collection[bytes] | None:
        """Return the keys that it writes."""
        return () if self._made is None else self._made.written_keys()

    def apply(self, sequence: int) -> None:
        """Show the write."""
        assert self._made is not None
        self.last = self._show(self._made, sequence)


class WritePath:
    """Prepares writes under one schema and partition spec."""

    def __init__(self, context: TableContext, spec: PartitionSpec) -> None:
        self.context = context
        self.spec = spec
        self.schema_id = context.schema.schema_id
        self.order = RowOrder.of(context.schema)
        self.is_plain = True
        """Whether a row is written without a look at what is there."""
        self._encode = context.codec.encode
        self._encode_key = context.encoder.encode
        self._key_names = context.encoder.names
        self._key_name = self._key_names[0] if context.is_single_key else None
        first = context.schema.key_columns[0]
        self._encode_key_value = value_codec(KeyColumn.of(first.name, first.type)).encode
        self._is_partitioned = not spec.is_unpartitioned
        self.encoded_row: Callable[[Mapping[str, object]], tuple[bytes, bytes]] = (
            self.encoded_in_python
        )
        """Returns the key and the value of a row that passed every check."""
        has_width = context.encoder.width is not None
        if is_compiled and has_width and self._key_name is not None and not self._is_partitioned:
            self.encoded_row = partial(
                kernel.keyed_row,
                self._encode,
                self._encode_key_value,
                self._key_name,
                self.encoded_in_python,
            )
        # A table with an order or merge functions replaces these, see `RuledPath`.
        self.put: Callable[[Mapping[str, object]], PreparedWrite | Decide] = self.checked_row
        self.upsert: Callable[[object], Iterator[PreparedWrite | Decide]] = self.checked_rows
        self.delete: Callable[[object], PreparedWrite | Decide] = self.checked_key
        self.delete_many: Callable[[object], PreparedWrite | Decide | None] = self.checked_keys
        # Needs no lock: a codec made twice is the same. Callers write few sets of columns.
        self._narrowed: dict[tuple[int, ...], RowCodec] = {}

    def narrowed_codec(self, given: Sequence[Column]) -> RowCodec:
        """Return the codec of rows that have only the key and some columns."""
        field_ids = tuple(column.field_id for column in given)
        codec = self._narrowed.get(field_ids)
        if codec is None:
            if len(self._narrowed) >= _NARROWED_MAX:
                self._narrowed.clear()
            codec = self._narrowed[field_ids] = narrowed_codec(self.context.schema, given)
        return codec

    def checked_row(self, row: Mapping[str, object]) -> PreparedRow:
        """Prepare one row."""
        key, value = self.encoded_row(row)
        return _new(PreparedRow, (encode_put(key, value, self.schema_id), key, value))

    def encoded_in_python(self, row: Mapping[str, object]) -> tuple[bytes, bytes]:
        """Return what `encoded_row` does, for every table and without the compiled kernel."""
        value = self._encode(row)
        try:
            if self._key_name is not None:
                key = self._encode_key_value(row[self._key_name])
                if len(key) > KEY_BYTES_MAX:
                    key = self._encode_key((row[self._key_name],))  # reports what is wrong
            else:
                key = self._encode_key([row[name] for name in self._key_names])
        except KeyError:
            # The column was left out and has its default: the encoded row has it.
            decoded = self.context.codec.decode(value)
            key = self._encode_key([decoded[name] for name in self._key_names])
        if self._is_partitioned:
            self.check_partition(self.context.codec.decode_many([value]))
        return key, value

    def checked_rows(self, rows: object) -> Iterator[PreparedBatch]:
        """Prepare rows; checks all that are in memory before it yields the first batch."""
        batches = batches_of(rows, self.context.codec)
        if isinstance(rows, pa.RecordBatchReader):
            # A stream may be larger than memory: each of its batches is a separate write.
            for batch in batches:
                if batch.num_rows:
                    yield self._upsert_batch([self._keyed(batch)])
            return
        yield from self._grouped(
            [self._keyed(each) for batch in batches for each in bounded(batch)]
        )

    def checked_key(self, key: object) -> PreparedBatch:
        """Prepare the delete of one row."""
        encoded = self.context.encode_key(key)
        return PreparedBatch(
            self.encoded([DeleteRow(encoded)]),
            lambda memtable, sequence: memtable.delete(sequence, encoded),
            (encoded,),
        )

    def checked_keys(self, keys: object) -> PreparedWrite | None:
        """Prepare the delete of many rows; None when no key is given."""
        batch = key_batch(keys, self.context)
        if not batch.num_rows:
            return None
        return self.delete_batch(batch)

    def delete_batch(self, batch: pa.RecordBatch) -> PreparedBatch:
        """Prepare the delete of the rows of a batch of key columns."""
        encoded = self.encode_keys(batch)
        return PreparedBatch(
            self.encoded([DeleteRows(batch)]),
            lambda memtable, sequence: memtable.delete_batch(sequence, encoded),
            encoded,
        )

    def encode_keys(self, batch: pa.RecordBatch) -> KeyArray:
        """Return the keys of a batch that has the key columns."""
        return self.context.encoder.encode_arrays([batch.column(name) for name in self._key_names])

    def _keyed(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, KeyArray]:
        if self._is_partitioned:
            self.check_partition(batch)
        return batch, self.encode_keys(batch)

    def check_partition(self, batch: pa.RecordBatch) -> None:
        """Raise SchemaMismatch for a row that has no partition."""
        self.spec.values(batch, self.context.schema)

    def _grouped(self, keyed: Sequence[tuple[pa.RecordBatch, KeyArray]]) -> Iterator[PreparedBatch]:
        """Combine batches to writes of a bounded size; rows keep their order."""
        group: list[tuple[pa.RecordBatch, KeyArray]] = []
        group_bytes = 0
        for piece in keyed:
            size = piece[0].nbytes
            if group and group_bytes + size > ATOMIC_BYTES_MAX:
                yield self._upsert_batch(group)
                group, group_bytes = [], 0
            group.append(piece)
            group_bytes += size
        if group:
            yield self._upsert_batch(group)

    def _upsert_batch(self, group: Sequence[tuple[pa.RecordBatch, KeyArray]]) -> PreparedBatch:
        held = [(rows.num_rows, self.upserted(rows, keys)) for rows, keys in group]

        def apply(memtable: Memtable, sequence: int) -> None:
            for count, apply_rows in held:
                apply_rows(memtable, sequence)
                sequence += count

        return PreparedBatch(
            self.encoded([UpsertRows(rows) for rows, _ in group]),
            apply,
            concat_keys([keys for _, keys in group]),
        )

    # Upserts and deletes together

    def winners(self, changes: RowChanges) -> Winners:
        """Return the changes that win: here the newest of each key."""
        return winners(changes, self.context.schema, None)

    def admitted(
        self, rows: pa.RecordBatch, keys: KeyArray, schema: TableSchema
    ) -> tuple[pa.RecordBatch, KeyArray]:
        """Return the rows of a partial write that win, each key once; they have this schema."""
        return folded(rows, keys, np.arange(len(keys)), schema, self.context.schema.rules)

    def after_expired(self, kept: Winners) -> Winners:
        """Return changes after the deletes of expired rows that they would be folded into."""
        return kept

    def write_of(self, kept: Winners, application: tuple[str, int] | None) -> PreparedBatch | None:
        """Return the write of the changes that win; None when there is nothing to log."""
        logged, apply_changes = self.changes_of(kept)
        if application is not None:
            logged.append(AppliedBatch(*application))
        if not logged:
            return None

        def apply(memtable: Memtable, sequence: int) -> None:
            apply_changes(memtable, sequence)
            if application is not None:
                count = len(kept.deleted) + len(kept.keys)
                memtable.note_applied(sequence + count, *application)

        return PreparedBatch(self.encoded(logged), apply, concat_keys([kept.deleted, kept.keys]))

    def changes_of(self, kept: Winners) -> tuple[list[Change], Callable[[Memtable, int], None]]:
        """Return changes that win in the form of the log, and what applies them."""
        rows, deleted, orders = kept.rows, kept.deleted, kept.orders
        logged: list[Change] = []
        if len(deleted):
            logged.append(DeleteRows(self._deletes(deleted, orders)))
        if rows.num_rows:
            logged.append(UpsertRows(rows))
        apply_rows = self.upserted(rows, kept.keys)

        def apply(memtable: Memtable, sequence: int) -> None:
            memtable.delete_batch(sequence, deleted, orders)
            apply_rows(memtable, sequence + len(deleted))

        return logged, apply

    def _deletes(self, keys: KeyArray, orders: Orders | None) -> pa.RecordBatch:
        """Return deletes as the log has them: key columns, and order columns if there are any."""
        arrays = self.context.encoder.decode_arrays(keys)
        fields = list(self.context.schema.key_schema)
        if orders is not None and self.order is not None:
            arrays += self.order.columns_of(orders)
            fields += [self.context.schema.column(name).arrow_field for name in self.order.names]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def upserted(self, rows: pa.RecordBatch, keys: KeyArray) -> Callable[[Memtable, int], None]:
        """Return what applies rows of this schema to a memtable."""
        schema = self.context.schema

        def apply(memtable: Memtable, sequence: int) -> None:
            mapped = rows
            if memtable.schema is not schema:
                # The table's schema was changed between preparing and applying.
                mapped = SchemaMapping(schema, memtable.schema).batch(rows)
            memtable.upsert_batch(sequence, keys, mapped)

        return apply

    def encoded(self, changes: Sequence[Change]) -> EncodedChanges:
        """Return changes under this schema as the log takes them."""
        return encode_changes(WriteBatch(tuple(changes), self.schema_id))


def key_batch(keys: object, context: TableContext) -> pa.RecordBatch:
    """Return keys as a batch of the key columns.

    Keys are values or tuples, an Arrow array for a single column, or anything Arrow with the key
    columns.
    """
    schema = context.schema.key_schema
    # Finding out whether an object is Arrow takes longer than encoding a list of keys.
    if not isinstance(keys, list):
        if isinstance(keys, pa.Array | pa.ChunkedArray) and context.is_single_key:
            keys = pa.table([keys], names=schema.names)
        if isinstance(keys, pa.RecordBatch | ArrowStream):
            return _key_columns(_key_table(keys, context), schema)
    if isinstance(keys, str | bytes | Mapping) or not isinstance(keys, Iterable):
        raise InvalidArgument(
            f"keys cannot be read from {type(keys).__name__}",
            hint="Pass a list of keys, or an Arrow table with the key columns",
        )
    given = list(keys)
    if context.is_single_key and set(map(type, given)) == {_EXACT_TYPES.get(schema.types[0])}:
        try:
            return pa.RecordBatch.from_arrays([exact_array(given, schema.types[0])], schema=schema)
        except (pa.ArrowException, OverflowError, ValueError):
            pass  # the slow path reports which key it is, and why
    # Keys in a list are Python values, and each may be wrong in its own way.
    encoded = [context.encode_key(key) for key in given]
    columns = context.encoder.decode_arrays(pa.array(encoded, pa.binary()))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _key_table(keys: ArrowStream | pa.RecordBatch, context: TableContext) -> pa.Table:
    """Return keys as Arrow columns; the values of a series, which is one column, are the keys."""
    if context.is_single_key and not isinstance(keys, pa.RecordBatch | pa.Table):
        try:
            values = pa.chunked_array(cast("Any", keys))
            if not pa.types.is_struct(values.type):
                return pa.table([values], names=context.schema.key_schema.names)
            chunks = cast("list[pa.StructArray]", values.chunks)
            rows = [pa.RecordBatch.from_struct_array(chunk) for chunk in chunks]
            return pa.Table.from_batches(rows, pa.schema(list(values.type)))
        except (pa.ArrowException, TypeError, ValueError):
            pass  # the other path reports what is wrong
    return imported_table(keys)


def _key_columns(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    missing = [name for name in schema.names if name not in table.column_names]
    twice = [name for name in schema.names if table.column_names.count(name) > 1]
    if twice:
        raise SchemaMismatch(
            f"key column {twice[0]!a} is given twice",
            column=twice[0],
            hint=f"Name the columns {', '.join(schema.names)}, each once",
        )
    if missing:
        raise SchemaMismatch(
            f"key column {missing[0]!a} is missing",
            column=missing[0],
            hint=f"Name the columns {', '.join(schema.names)}",
        )
    arrays = [
        fit_column(pa.concat_arrays([nulls(0, column.type), *column.chunks]), field)
        for column, field in zip(table.select(schema.names).columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch that is too large for one write into parts of about equal size."""
    count = max(1, -(-batch.nbytes // ATOMIC_BYTES_MAX))
    rows = max(1, -(-batch.num_rows // count))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def joined_and_bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches of a call to one, or to several of a bounded size."""
    held = [each for each in batches if each.num_rows]
    if held:
        for batch in pa.Table.from_batches(held).combine_chunks().to_batches():
            yield from bounded(batch)
