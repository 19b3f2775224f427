"""The demo's table of orders: every row follows from its number, so anyone can check any row."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

import pyarrow as pa

from neve.model.key_encoding import KeyEncoder
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema, normalize_batch
from neve.wal.batch_codec import EncodedChanges, encode_put

_CUSTOMERS: Final = ("Ada", "Böhm", "Chandra", "Dijkstra", "Erdős", "Floyd", "Grace", "Hopper")
_FIRST_ORDER_AT: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "customer": pa.string(),
    "id": pa.int64(),
    "amount": pa.decimal128(12, 2),
    "ordered_at": pa.timestamp("us", tz="UTC"),
    "note": pa.string(),
}
_ARROW_SCHEMA: Final = pa.schema(_COLUMNS)

Row = Mapping[str, object]


class DemoTable:
    """Schema, key encoder and row codec of the demo, and its rows by number."""

    def __init__(self) -> None:
        self.schema: Final = TableSchema.from_arrow(_ARROW_SCHEMA, primary_key=["customer", "id"])
        self.encoder: Final = KeyEncoder(
            [column.type for column in self.schema.key_columns],
            [column.name for column in self.schema.key_columns],
        )
        self.codec: Final = RowCodec(self.schema)

    def row(self, number: int) -> Row:
        """Give the row with this number."""
        return {
            "customer": _CUSTOMERS[number % len(_CUSTOMERS)],
            "id": number,
            "amount": Decimal(number * 37 % 100_000).scaleb(-2),
            "ordered_at": _FIRST_ORDER_AT + dt.timedelta(seconds=number),
            "note": None if number % 3 else f"order {number}",
        }

    def key(self, number: int) -> bytes:
        """Give the row's encoded primary key."""
        row = self.row(number)
        return self.encoder.encode((row["customer"], row["id"]))

    def value(self, number: int) -> bytes:
        """Give the row in the row codec."""
        return self.codec.encode(self.row(number))

    def put(self, number: int) -> EncodedChanges:
        """Encode the row for the log."""
        return encode_put(
            self.key(number), self.value(number), schema_version=self.schema.schema_id
        )

    def rows(self, numbers: range) -> pa.RecordBatch:
        """Give many rows as one Arrow batch."""
        # Through Python: the demo compares what was logged with what `row` says.
        rows = [dict(self.row(number)) for number in numbers]
        return normalize_batch(pa.RecordBatch.from_pylist(rows, _ARROW_SCHEMA), self.schema)

    def is_row(self, number: int, *, key: bytes, value: bytes) -> bool:
        """Whether key and value, read back, are exactly the row with this number."""
        return key == self.key(number) and self.codec.decode(value) == self.row(number)
