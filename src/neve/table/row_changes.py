"""Changes of a table with rules: which of them win, and what is left of each key.

1. With order columns, drop changes that are older than the row or the delete of their key.
2. Put the others in order: by order columns, and then as they came.
3. Of the changes of one key keep the newest or, with merge functions, fold all rows; what came
   before a delete does not count.

The live writer and jobs both do this, each with its own view of what is there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.keys.arrays import concat_keys, key_spans
from neve.keys.columns import KeyArray
from neve.keys.key_hashes import HASH_BYTES, exact_hashes
from neve.model.arrow_buffers import Flags, Positions
from neve.model.row_rules import RowRules
from neve.model.schema import TableSchema
from neve.table.partial_merge import folded_rows
from neve.table.row_order import Orders, RowOrder, loses

FindOrders = Callable[[KeyArray], tuple[Orders, Flags]]
"""Returns how new the row or delete of each of some unique keys is, and which have a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
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

    @classmethod
    def of_rows(cls, rows: pa.RecordBatch, keys: KeyArray, order: RowOrder | None) -> "RowChanges":
        """Return rows to write, in the order they came; raises SchemaMismatch without an order."""
        return cls(
            rows=rows,
            keys=keys,
            deleted=keys.slice(0, 0),
            orders=None if order is None else order.of_changes(rows),
            by_age=np.arange(len(keys)),
        )

    @classmethod
    def of_keys(cls, keys: KeyArray, schema: TableSchema) -> "RowChanges":
        """Return deletes by key alone."""
        return cls(
            rows=pa.RecordBatch.from_pylist([], schema=schema.arrow_schema),
            keys=keys.slice(0, 0),
            deleted=keys,
            by_age=np.arange(len(keys)),
            is_keyed=True,
        )

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
    ignored: int = 0
    """Changes that were older than what was there."""
    tied: int = 0
    """Rows replaced by a later one with the same order and other values."""


def winners(changes: RowChanges, schema: TableSchema, find: FindOrders | None) -> Winners:
    """Return the changes that win over what is there; without `find`, the newest of each key."""
    count = len(changes.keys)
    keys, by_age, orders = changes.all_keys, changes.by_age, changes.orders
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    unique = cast("KeyArray", encoded.dictionary)
    has_one_each = len(unique) == len(keys)
    if find is not None:
        found, has_row = find(unique)
        if not has_one_each:
            found, has_row = found.take(codes), has_row[codes]
        if changes.is_keyed:
            orders, is_kept = found, has_row
        else:
            assert orders is not None, "changes of this table have an order"
            is_kept = ~loses(orders, found)
            if not has_one_each:
                age = np.empty(len(keys), np.int64)
                age[by_age] = np.arange(len(keys))
                by_age = by_order(orders, age)
        by_age = by_age[is_kept[by_age]]
    ignored = 0 if changes.is_keyed else len(keys) - len(by_age)
    tied = 0
    written, deleted = by_age[by_age < count], by_age[by_age >= count]
    if has_one_each:
        written = np.sort(written)
        is_all = len(written) == count
        rows = changes.rows if is_all else changes.rows.take(written)
        row_keys = changes.keys if is_all else changes.keys.take(written)
    else:
        if orders is not None and not schema.rules.merge:
            tied = _tied(changes.rows, codes, orders, by_age)
        written, deleted = _after_deletes(codes, by_age, count, len(unique))
        rows, row_keys = folded(changes.rows, changes.keys, written, schema, schema.rules)
        if not schema.rules.merge:
            # A row that follows a delete replaces it.
            is_written = np.zeros(len(unique), np.bool_)
            is_written[codes[written]] = True
            deleted = deleted[~is_written[codes[deleted]]]
    return Winners(
        rows=rows,
        keys=row_keys,
        deleted=keys.take(deleted),
        orders=None if orders is None else orders.take(deleted),
        ignored=ignored,
        tied=tied,
    )


def _tied(rows: pa.RecordBatch, codes: Positions, orders: Orders, by_age: Positions) -> int:
    """Count rows that a later one with the same key and order replaces, with other values."""
    by_key = by_age[np.argsort(codes[by_age], kind="stable")]
    older, newer = by_key[:-1], by_key[1:]
    are_rows = (older < rows.num_rows) & (newer < rows.num_rows)
    is_pair = are_rows & (codes[older] == codes[newer])
    older, newer = older[is_pair], newer[is_pair]
    is_same = pc.equal(orders.take(older), orders.take(newer)).to_numpy(zero_copy_only=False)
    pairs = zip(
        rows.take(older[is_same]).to_pylist(), rows.take(newer[is_same]).to_pylist(), strict=True
    )
    # A loop over rows of one key and one order: a feed that repeats itself has few.
    return sum(one != other for one, other in pairs)


def _after_deletes(
    codes: Positions, by_age: Positions, count: int, unique_count: int
) -> tuple[Positions, Positions]:
    """Return the rows after the last delete of their key, oldest first, and the last deletes.

    Places up to `count` are rows, the others deletes.
    """
    rank = np.full(len(codes), -1, np.int64)
    rank[by_age] = np.arange(len(by_age))
    last_delete = np.full(unique_count, -1, np.int64)
    np.maximum.at(last_delete, codes[count:], rank[count:])
    written, deleted = by_age[by_age < count], by_age[by_age >= count]
    return (
        written[rank[written] > last_delete[codes[written]]],
        deleted[last_delete[codes[deleted]] == rank[deleted]],
    )


def folded(
    rows: pa.RecordBatch, keys: KeyArray, by_age: Positions, schema: TableSchema, rules: RowRules
) -> tuple[pa.RecordBatch, KeyArray]:
    """Return one row for each key, out of its rows at these places, the oldest first."""
    if not len(by_age):
        return rows.slice(0, 0), keys.slice(0, 0)
    given = all_columns(schema)
    return folded_rows(rows, keys, by_age, given=given, rules=rules, schema=schema)


def by_order(orders: Orders, age: Positions) -> Positions:
    """Return places, the oldest change first: by order, and then by age."""
    _, starts, ends = key_spans(orders)
    width = int(ends[0] - starts[0]) if len(orders) else 0
    if width <= HASH_BYTES and not orders.null_count and (ends - starts == width).all():
        found: Positions = np.lexsort((age, exact_hashes(orders, width=width)))
        return found
    encoded = orders.fill_null(b"").dictionary_encode()
    by_value = pc.sort_indices(encoded.dictionary).to_numpy()
    rank = np.empty(len(by_value), np.int64)
    rank[by_value] = np.arange(len(by_value))
    return np.lexsort((age, rank[encoded.indices.to_numpy(zero_copy_only=False)]))


def all_columns(schema: TableSchema) -> frozenset[int]:
    """Return the field ids of all columns that are not in the key."""
    return frozenset(column.field_id for column in schema.columns) - {*schema.primary_key}
