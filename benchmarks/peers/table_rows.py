"""The rows of the table benchmarks, as files of Arrow and as digests of what came back.

    base.arrow      every row once, in no order: id, name, score, visits, payload
    updates.arrow   a tenth of the ids again, with other values
    keys.arrow      ids to ask for; one column, all in the base
    changes.arrow   a feed of changes: op (c, u or d), lsn, which is their order, and a row; out of
                    order within a batch, never across batches

A digest is over the values alone: two tables with the same rows have the same one, however they
are cut into chunks and whatever they are backed by.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "id": pa.int64(),
    "name": pa.string(),
    "score": pa.float64(),
    "visits": pa.int32(),
    "payload": pa.binary(),
}
SCHEMA: Final = pa.schema(
    [pa.field(name, kind, nullable=name != "id") for name, kind in _TYPES.items()]
)
BASE: Final = "base.arrow"
UPDATES: Final = "updates.arrow"
KEYS: Final = "keys.arrow"
CHANGES: Final = "changes.arrow"
DELETE: Final = "d"
"""The operation of a change that deletes; all others write the row."""
ORDER: Final = "lsn"
ORDERED_SCHEMA: Final = SCHEMA.append(pa.field(ORDER, pa.int64()))
"""Of a table that keeps the order of its changes."""

Row = tuple[int, str, float, int, bytes]
Keys: TypeAlias = "pa.Array[Any]"
"""Ids in a row."""


def read_rows(path: Path) -> pa.Table:
    """Map a file of rows into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_rows(path: Path, rows: pa.Table) -> None:
    """Write a file of rows."""
    with pa.ipc.new_file(str(path), rows.schema) as writer:
        writer.write_table(rows)


def with_order(rows: pa.Table) -> pa.Table:
    """Return rows that come before every change."""
    return rows.append_column(ORDERED_SCHEMA.field(ORDER), pa.repeat(pa.scalar(0), rows.num_rows))


def row_tuples(rows: pa.Table) -> list[Row]:
    """Return rows as tuples of plain values."""
    columns = [column.to_numpy().tolist() for column in rows.columns]
    return list(zip(*columns, strict=True))


def rows_of_tuples(rows: Sequence[Row]) -> pa.Table:
    """Return tuples as a table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def digest(rows: pa.Table, *, in_order: bool = False) -> str:
    """Return a digest of the values; rows are sorted by id unless their order counts."""
    rows = pa.table(
        [rows.column(field.name).cast(field.type) for field in SCHEMA], names=SCHEMA.names
    )
    if not in_order:
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("id", "ascending")]))
    found = hashlib.sha256(str(rows.num_rows).encode())
    for name, values in zip(SCHEMA.names, rows.columns, strict=True):
        if values.null_count:
            raise ValueError(f"{values.null_count} values of {name} are missing")
        if _has_lengths(values.type):
            _add_values(found, pc.binary_length(values))
        _add_values(found, values)
    return found.hexdigest()


def shown_sum(value: float) -> str:
    """Return a sum in as many digits as do not depend on the order of adding."""
    return f"{value:.8g}"


def _has_lengths(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _add_values(found: "hashlib._Hash", values: "pa.ChunkedArray[Any]") -> None:
    for chunk in values.chunks:
        if len(chunk):
            found.update(_content(chunk))


def _content(values: "pa.Array[Any]") -> memoryview:
    """Return the bytes of all values, one after the other."""
    start, stop = values.offset, values.offset + len(values)
    _, first, *rest = (memoryview(buffer or b"") for buffer in values.buffers())
    if rest:
        places = first.cast("i")
        return rest[0][places[start] : places[stop]]
    width = values.type.bit_width // 8
    return first[start * width : stop * width]
