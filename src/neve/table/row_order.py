"""RowOrder: which of two changes of a row is newer, in a table with an order column.

The order columns of a change are encoded as keys are, so that bytes compare as values do. A change
wins over the row or the delete that it finds unless its own bytes are smaller: of equal ones the
later change wins.

    found         row with lsn 7      delete with lsn 7      nothing
    lsn 6         loses               loses                  wins
    lsn 7, 8      wins                wins                   wins

A row without a value in an order column was written before the table had one: every change wins.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import LimitExceeded, SchemaMismatch
from neve.keys.arrays import masked_places
from neve.keys.columns import KEY_BYTES_MAX
from neve.keys.encoding import KeyEncoder
from neve.model.arrow_buffers import Flags, Positions
from neve.model.display import shown
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray

Orders = pa.LargeBinaryArray
"""Encoded order columns, one for each change; NULL where there is none."""

_TYPE: Final = pa.large_binary()


class RowOrder:
    """Compares changes of the rows of one schema."""

    def __init__(self, schema: TableSchema) -> None:
        columns = [schema.column_by_id(each) for each in schema.rules.order_by]
        self.schema = schema
        self.names = tuple(column.name for column in columns)
        self._encoder = KeyEncoder([column.type for column in columns], self.names)

    @classmethod
    def of(cls, schema: TableSchema) -> "RowOrder | None":
        """Return the order of a schema's rows; None when the last change wins."""
        return cls(schema) if schema.rules.order_by else None

    def of_changes(self, rows: pa.RecordBatch, places: Positions | None = None) -> Orders:
        """Return the orders of changes; raises SchemaMismatch for one without.

        `places` are those of the rows in the call, for the error.
        """
        missing = _missing(rows.select(self.names).columns)
        if missing.any():
            first = int(np.flatnonzero(missing)[0])
            blank = next(name for name in self.names if _missing([rows.column(name)])[first])
            row = first if places is None else int(places[first])
            raise without_order(blank, "a change", row=row)
        return self._encoded(rows.select(self.names).columns)

    def of_change(self, row: Mapping[str, object]) -> bytes:
        """Return the order of one change, a row as it is read; raises SchemaMismatch without."""
        for name in self.names:
            if _is_missing(row[name]):
                raise without_order(name, "a change", row=0)
        try:
            return self._encoder.encode([row[name] for name in self.names])
        except LimitExceeded as error:
            raise _too_long(error) from error

    def of_row(self, row: Mapping[str, object]) -> bytes | None:
        """Return the order of one row of the table; None for one from before it had an order."""
        values = [row[name] for name in self.names]
        return None if any(map(_is_missing, values)) else self._encoder.encode(values)

    def of_rows(self, rows: pa.Table | pa.RecordBatch) -> Orders:
        """Return the orders of rows of the table; NULL for rows from before it had an order."""
        columns = [_one_array(rows.column(name)) for name in self.names]
        missing = _missing(columns)
        if not missing.any():
            return self._encoded(columns)
        kept = np.flatnonzero(~missing)
        encoded = self._encoded([column.take(kept) for column in columns])
        places: Positions = np.cumsum(~missing) - 1
        return encoded.take(masked_places(places, ~missing))

    def columns_of(self, orders: Orders) -> list[ArrowArray]:
        """Return the order columns that were encoded; NULL where there is no order."""
        width = self._encoder.width
        known = orders.drop_null().cast(pa.binary() if width is None else pa.binary(width))
        columns = self._encoder.decode_arrays(known)
        if not orders.null_count:
            return columns
        is_known = orders.is_valid().to_numpy(zero_copy_only=False)
        places = masked_places(np.cumsum(is_known) - 1, is_known)
        return [column.take(places) for column in columns]

    def _encoded(self, columns: Sequence[ArrowArray]) -> Orders:
        try:
            encoded = self._encoder.encode_arrays(columns)
        except LimitExceeded as error:
            raise _too_long(error) from error
        return cast("Orders", encoded.cast(_TYPE))


def without_order(name: str, change: str, row: int | None = None) -> SchemaMismatch:
    """Return the error for a change whose age is unknown; `change` says where it is."""
    return SchemaMismatch(
        f"{change} has no value in order column {shown(name)}",
        column=name,
        row=row,
        hint="Each change needs one: without it, its age is unknown",
    )


def loses(change: Orders, found: Orders) -> Flags:
    """Return which changes are older than what they find; NULL is older than any value."""
    is_older = pc.or_kleene(pc.less(change, found), pc.and_(change.is_null(), found.is_valid()))
    return is_older.fill_null(False).to_numpy(zero_copy_only=False)


def equals(change: Orders, found: Orders) -> Flags:
    """Return which changes are as old as what they find; NULL is as old as nothing."""
    return pc.equal(change, found).fill_null(False).to_numpy(zero_copy_only=False)


def has_order_of(schema: TableSchema, order: RowOrder) -> bool:
    """Return whether rows of another schema are ordered by the same columns."""
    return schema.rules.order_by == order.schema.rules.order_by


def greatest(one: Orders, other: Orders) -> Orders:
    """Return the greater of two orders, place by place; of NULL and a value the value."""
    greater = pc.if_else(pc.less(one, other), other, one)
    return cast("Orders", pc.coalesce(greater, one, other))


def no_orders(count: int) -> Orders:
    """Return orders of nothing."""
    return pa.nulls(count, _TYPE)


def joined_orders(parts: Iterable[Orders]) -> Orders:
    """Return several arrays as one."""
    return pa.concat_arrays([no_orders(0), *parts])


def placed_orders(count: int, places: Positions, orders: Orders) -> Orders:
    """Return `count` orders, those given at their places and NULL elsewhere."""
    source = np.zeros(count, np.int64)
    has_one = np.zeros(count, np.bool_)
    source[places] = np.arange(len(places))
    has_one[places] = True
    return orders.take(masked_places(source, has_one))


def _too_long(error: LimitExceeded) -> LimitExceeded:
    return LimitExceeded(
        f"the order columns of a change have more than {KEY_BYTES_MAX:,} bytes",
        limit=KEY_BYTES_MAX,
        actual=error.actual,
        hint="Order by shorter values",
    )


def _is_missing(value: object) -> bool:
    return value is None or value != value  # noqa: PLR0124 - NaN has no place in an order


def _missing(columns: Sequence[ArrowArray]) -> npt.NDArray[np.bool_]:
    """Return the rows without a value: NULL, and NaN, which has no place in an order."""
    found = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        if column.null_count or pa.types.is_floating(column.type):
            blank: Any = column.is_null(nan_is_null=True)
            found |= blank.to_numpy(zero_copy_only=False)
    return found


def _one_array(column: "ArrowArray | pa.ChunkedArray[Any]") -> ArrowArray:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
