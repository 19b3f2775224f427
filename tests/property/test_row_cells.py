"""Rows read from the memory of a batch are the rows that the codec reads, for every type."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from neve.model.row_codec import RowCodec
from neve.sstable.row_cells import RowCells
from tests.property.typed_values import Table, same, tables


@given(tables(rows_max=20), st.data())
def test_rows_are_those_of_the_codec_also_from_the_middle_of_a_batch(
    table: Table, data: st.DataObject
) -> None:
    codec, cells = RowCodec(table.schema), RowCells(table.schema)
    whole = codec.decode_many([codec.encode(row) for row in table.rows])
    start = data.draw(st.integers(0, whole.num_rows))
    batch = whole.slice(start, data.draw(st.integers(0, whole.num_rows - start)))
    wanted = [codec.decode(value) for value in codec.encode_batch(batch)]

    row = cells.bind(batch)
    found = [row(at) for at in range(batch.num_rows)]

    assert same(found, wanted)
    assert all([*each] == batch.schema.names for each in found)


@given(tables(rows_max=20))
def test_rows_are_those_of_the_codec_after_a_way_through_arrows_messages(table: Table) -> None:
    codec, cells = RowCodec(table.schema), RowCells(table.schema)
    values = [codec.encode(row) for row in table.rows]
    message = codec.decode_many(values).serialize()
    batch = pa.ipc.read_record_batch(message, table.schema.arrow_schema)

    assert same([cells.row(batch, at) for at in range(len(values))], [*map(codec.decode, values)])
