"""The demo's table of orders: every row follows from its number, so anyone can check any row.

rows             numbers 0 to 199,999, a second apart, from the first to the third of January
changed          every tenth of them: another amount, another note
deleted          every hundredth, from number 7 on, and the last thousand
"""

import datetime as dt
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Final

import pyarrow as pa

from neve.keys.encoding import KeyEncoder
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema, normalize_batch
from neve.wal.batch_codec import EncodedChanges, encode_put

ROWS: Final = 200_000
CHANGED: Final = range(0, ROWS, 10)
DELETED: Final = range(7, ROWS, 100)
DELETED_FROM: Final = ROWS - 1_000
"""Rows from this number on are deleted by a filter."""

KEY: Final = ("customer", "id")
PARTITIONS: Final = ("day(ordered_at)",)
LAST_DAY: Final = dt.datetime(2026, 1, 3, tzinfo=dt.UTC)
FIRST_LOAD: Final = 2
"""Version of the first flush; creating the table is Version 1."""
_CUSTOMERS: Final = ("Ada", "Böhm", "Chandra", "Dijkstra", "Erdős", "Floyd", "Grace", "Hopper")
_FIRST_ORDER_AT: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "customer": pa.string(),
    "id": pa.int64(),
    "amount": pa.decimal128(12, 2),
    "ordered_at": pa.timestamp("us", tz="UTC"),
    "note": pa.string(),
}
ARROW_SCHEMA: Final = pa.schema(_COLUMNS)

Row = Mapping[str, object]


class DemoTable:
    """Schema, key encoder and row codec of the demo, and its rows by number."""

    def __init__(self) -> None:
        self.schema: Final = TableSchema.from_arrow(ARROW_SCHEMA, primary_key=KEY)
        self.encoder: Final = KeyEncoder(
            [column.type for column in self.schema.key_columns],
            [column.name for column in self.schema.key_columns],
        )
        self.codec: Final = RowCodec(self.schema)

    def row(self, number: int) -> Row:
        """Return the row with this number."""
        return {
            "customer": _CUSTOMERS[number % len(_CUSTOMERS)],
            "id": number,
            "amount": Decimal(number * 37 % 100_000).scaleb(-2),
            "ordered_at": _FIRST_ORDER_AT + dt.timedelta(seconds=number),
            "note": None if number % 3 else f"order {number}",
        }

    def changed_row(self, number: int) -> Row:
        """Return the row with this number after it was changed."""
        return {**self.row(number), "amount": Decimal(number).scaleb(-2), "note": "changed"}

    def key_values(self, number: int) -> tuple[str, int]:
        """Return the values of the row's primary key."""
        return _CUSTOMERS[number % len(_CUSTOMERS)], number

    def key(self, number: int) -> bytes:
        """Return the row's encoded primary key."""
        return self.encoder.encode(self.key_values(number))

    def value(self, number: int) -> bytes:
        """Return the row in the row codec."""
        return self.codec.encode(self.row(number))

    def put(self, number: int) -> EncodedChanges:
        """Encode the row for the log."""
        return encode_put(
            self.key(number), self.value(number), schema_version=self.schema.schema_id
        )

    def rows(self, numbers: Iterable[int]) -> pa.RecordBatch:
        """Return many rows as one Arrow batch."""
        return self._batch(self.row(number) for number in numbers)

    def changed_rows(self, numbers: Iterable[int]) -> pa.RecordBatch:
        """Return many rows, as they are after they were changed."""
        return self._batch(self.changed_row(number) for number in numbers)

    @cached_property
    def all_rows(self) -> pa.Table:
        """All rows as they were first, by key."""
        return by_key(pa.Table.from_batches([self.rows(range(ROWS))]))

    @cached_property
    def rows_after(self) -> pa.Table:
        """All rows after some were changed and some deleted, by key."""
        return by_key(pa.Table.from_batches([self.rows_as_after(range(ROWS))]))

    def rows_as_after(self, numbers: Iterable[int]) -> pa.RecordBatch:
        """Return those of some rows that are left after the changes, as they are then."""
        left = (each for each in numbers if each not in DELETED and each < DELETED_FROM)
        return self._batch(
            self.changed_row(each) if each in CHANGED else self.row(each) for each in left
        )

    def _batch(self, rows: Iterable[Row]) -> pa.RecordBatch:
        # Through Python: the demo compares what is stored with what `row` says.
        given = [dict(row) for row in rows]
        return normalize_batch(pa.RecordBatch.from_pylist(given, ARROW_SCHEMA), self.schema)


def by_key(rows: pa.Table) -> pa.Table:
    """Sort rows by their primary key."""
    return rows.sort_by([(name, "ascending") for name in KEY]).combine_chunks()
