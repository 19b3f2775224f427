"""Schemas with rules for tests."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from neve.keys.columns import KeyArray
from neve.keys.encoding import KeyEncoder
from neve.model.row_rules import AskedRules
from neve.model.schema import TableSchema


def a_schema(**columns: pa.DataType) -> TableSchema:
    """Return a schema with the key `id`, a number, and these columns."""
    return TableSchema.from_arrow(pa.schema({"id": pa.int64(), **columns}), primary_key=["id"])


def ruled(
    schema: TableSchema,
    *,
    order_by: Sequence[str] | None = None,
    merge: Mapping[str, str] | None = None,
) -> TableSchema:
    """Return a schema with other rules."""
    return replace(schema, rules=AskedRules(order_by=order_by, merge=merge).on(schema))


def keys_of(rows: pa.RecordBatch) -> KeyArray:
    """Return the encoded keys of rows."""
    return KeyEncoder([pa.int64()], ["id"]).encode_arrays([rows.column("id")])
