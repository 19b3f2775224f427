"""The rows of the table benchmarks, as files of Arrow and as digests of what came back.

    base.arrow      every row once, in no order: id, name, score, visits, payload
    updates.arrow   a tenth of the ids again, with other values
    keys.arrow      ids to ask for; one column, all in the base

A digest is over the values alone: two tables with the same rows have the same one, however they
are cut into chunks and whatever they are backed by.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("visits", pa.int32()),
        pa.field("payload", pa.binary()),
    ]
)
BASE: Final = "base.arrow"
UPDATES: Final = "updates.arrow"
KEYS: Final = "keys.arrow"

Row = tuple[int, str, float, int, bytes]


def read_rows(path: Path) -> pa.Table:
    """Map a file of rows into memory."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def write_rows(path: Path, rows: pa.Table) -> None:
    """Write a file of rows."""
    with pa.ipc.new_file(str(path), rows.schema) as writer:
        writer.write_table(rows)


def row_tuples(rows: pa.Table) -> list[Row]:
    """Give rows as tuples of plain values."""
    columns = [column.to_numpy().tolist() for column in rows.columns]
    return list(zip(*columns, strict=True))


def rows_of_tuples(rows: Sequence[Row]) -> pa.Table:
    """Give tuples as a table."""
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [
        pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.table(arrays, schema=SCHEMA)


def digest(rows: pa.Table, *, in_order: bool = False) -> str:
    """Give a digest of the values; rows are sorted by id unless their order counts."""
    if not in_order:
        rows = rows.take(pc.sort_indices(rows, sort_keys=[("id", "ascending")]))
    found = hashlib.sha256(str(rows.num_rows).encode())
    for field in SCHEMA:
        column = rows.column(field.name)
        if column.null_count:
            raise ValueError(f"{column.null_count} values of {field.name} are missing")
        for chunk in column.cast(field.type).chunks:
            _add_values(found, chunk)
    return found.hexdigest()


def shown_sum(value: float) -> str:
    """Give a sum in as many digits as do not depend on the order of adding."""
    return f"{value:.8g}"


def _add_values(found: "hashlib._Hash", values: pa.Array) -> None:
    """Add all values, not their lengths: what has a length has a row of fixed bytes beside it."""
    start, stop = values.offset, values.offset + len(values)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        _, offsets, content = values.buffers()
        assert offsets is not None
        places = memoryview(offsets).cast("i")
        if content is not None:
            found.update(memoryview(content)[places[start] : places[stop]])
        return
    width = values.type.bit_width // 8
    content = values.buffers()[1]
    assert content is not None
    found.update(memoryview(content)[start * width : stop * width])
