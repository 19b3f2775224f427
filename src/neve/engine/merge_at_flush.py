"""Rows of partial writes merged anew at the flush, with the rows of the Version committed to.

    memtable    k1  a = 1 (given)  b = x          base    k1  a = 0  b = y
    flushed     k1  a = 1          b = y          others wrote y since the row was written

1. Rows that were written whole stay as they are.
2. Of the others the given columns stay; the rest is the base's.
3. A key whose row is gone from the base has none: the rest becomes its default or NULL.
"""

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from neve.engine.partial_rows import MERGED_ROWS_MAX, merged, without_base
from neve.memtable.given_columns import GivenColumns
from neve.model.key_column import KeyArray
from neve.read.table_view import TableView

GivenRows: TypeAlias = Mapping[GivenColumns, npt.NDArray[np.int64]]
"""Positions of the rows of partial writes, by what was given of them."""


def merged_on(base: TableView, rows: pa.Table, keys: KeyArray, given: GivenRows) -> pa.Table:
    """Give rows in their order, those of partial writes merged with the rows of a base."""
    tables = [rows]
    order = np.arange(rows.num_rows, dtype=np.int64)
    count = rows.num_rows
    for each, positions in given.items():
        for at in range(0, len(positions), MERGED_ROWS_MAX):
            places = positions[at : at + MERGED_ROWS_MAX]
            piece = _merged_piece(base, rows.take(places), keys.take(places), each)
            tables.append(pa.Table.from_batches([piece]))
            order[places] = np.arange(count, count + len(places))
            count += len(places)
    return pa.concat_tables(tables).take(order)


def _merged_piece(
    base: TableView, rows: pa.Table, keys: KeyArray, given: GivenColumns
) -> pa.RecordBatch:
    schema = base.context.schema
    batch = rows.combine_chunks().to_batches()[0]
    if given.had_base:
        batch = without_base(batch, given=given.field_ids, schema=schema)
    found, places = base.get_many(keys, 0)
    return merged(batch, found, places, given=given.field_ids, schema=schema)
