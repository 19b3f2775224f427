"""Rows of any schema survive their bytes, and no bytes at all give an untyped error."""

import io
from contextlib import suppress
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import example, given
from hypothesis import strategies as st

from neve.errors import Corruption, SchemaMismatch
from neve.model.row_codec import RowCodec, describe_row
from neve.model.schema import TableSchema, normalize_batch
from tests.property.typed_values import Table, same, tables

DETAIL = pa.struct([("t", pa.time64("us")), ("d", pa.decimal128(3, 1))])
COLUMNS: list[tuple[str, pa.DataType]] = [
    ("id", pa.int64()),
    ("b", pa.bool_()),
    ("f", pa.float64()),
    ("s", pa.string()),
    ("l", pa.list_(DETAIL)),
]


@st.composite
def damaged_rows(draw: st.DrawFn) -> tuple[RowCodec, bytes]:
    """Change, cut, insert or drop some bytes of a row."""
    table = draw(tables(rows_max=1))
    codec = RowCodec(table.schema)
    value = bytearray(codec.encode(table.rows[0]))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        match draw(st.sampled_from(["flip", "cut", "insert", "drop"])):
            case "flip" if at < len(value):
                value[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del value[at:]
            case "insert":
                value[at:at] = draw(st.binary(max_size=4))
            case _:
                del value[at : at + draw(st.integers(1, 4))]
    return codec, bytes(value)


def decoded(codec: RowCodec, value: bytes) -> dict[str, object] | type[Exception]:
    try:
        return codec.decode(value)
    except (Corruption, SchemaMismatch) as error:
        return type(error)


@given(tables())
def test_a_row_comes_back_as_it_went_in(table: Table) -> None:
    codec = RowCodec(table.schema)

    for row in table.rows:
        found = codec.decode(codec.encode(row))

        assert same(found, row)
        assert list(found) == [each.name for each in table.schema.columns]


@given(tables())
def test_rows_and_batches_have_the_same_bytes(table: Table) -> None:
    codec = RowCodec(table.schema)
    values = [codec.encode(row) for row in table.rows]

    batch = codec.decode_many(values)

    batch.validate(full=True)
    assert batch.schema.equals(table.schema.arrow_schema, check_metadata=True)
    assert codec.encode_batch(batch) == values
    assert codec.encode_batch(batch.slice(1)) == values[1:]


@given(tables())
def test_a_batch_that_fits_stays_as_it_is(table: Table) -> None:
    codec = RowCodec(table.schema)
    batch = codec.decode_many([codec.encode(row) for row in table.rows])

    fitted = normalize_batch(batch, table.schema)

    fitted.validate(full=True)
    assert codec.encode_batch(fitted) == codec.encode_batch(batch)


@given(tables())
def test_a_batch_can_be_written_as_parquet(table: Table) -> None:
    codec = RowCodec(table.schema)
    values = [codec.encode(row) for row in table.rows]
    file = io.BytesIO()

    pq.write_table(pa.Table.from_batches([codec.decode_many(values)]), file)
    (batch,) = pq.read_table(file).combine_chunks().to_batches()

    assert codec.encode_batch(batch) == values


@given(tables())
def test_a_row_describes_itself(table: Table) -> None:
    codec = RowCodec(table.schema)
    flat = [each for each in table.schema.columns if not pa.types.is_nested(each.type)]

    for row in table.rows:
        shown = {field_id: value for field_id, _, value in describe_row(codec.encode(row))}

        assert list(shown) == [each.field_id for each in table.schema.columns]
        assert all(same(shown[each.field_id], row[each.name]) for each in flat)


@given(tables(), st.randoms(use_true_random=False))
def test_columns_may_be_dropped_and_reordered_under_old_rows(table: Table, random: Random) -> None:
    before, key = RowCodec(table.schema), table.schema.primary_key
    kept = [each for each in table.schema.columns if each.field_id in key or random.random() < 0.5]
    random.shuffle(kept)
    last = table.schema.last_field_id
    schema = TableSchema(columns=tuple(kept), primary_key=key, schema_id=1, last_field_id=last)
    after = RowCodec(schema)
    values = [before.encode(row) for row in table.rows]
    wanted = [{each.name: row[each.name] for each in kept} for row in table.rows]

    rows = [after.decode(value) for value in values]

    assert same(rows, wanted)
    assert after.encode_batch(after.decode_many(values)) == [after.encode(row) for row in wanted]


@given(damaged_rows())
def test_a_damaged_row_is_corruption_or_a_row_and_both_ways_agree(
    damaged: tuple[RowCodec, bytes],
) -> None:
    codec, value = damaged

    row = decoded(codec, value)

    if isinstance(row, dict):
        assert codec.encode_batch(codec.decode_many([value])) == [codec.encode(row)]
        assert describe_row(value)
    elif row is Corruption:
        try:
            codec.decode_many([value])
        except Corruption:
            return
        raise AssertionError("decode_many accepts what decode refuses")


@example(b"")
@example(b"\1")
@example(b"\1\1\1\x11" * 60)
@given(st.binary(max_size=64) | st.binary(max_size=64).map(lambda tail: b"\1\1\1" + tail))
def test_bytes_that_are_no_row_are_corruption_or_a_row(value: bytes) -> None:
    codec = RowCodec(TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"]))

    for read in (codec.decode, describe_row, lambda each: codec.decode_many([each])):
        # Any other error fails the test.
        with suppress(Corruption, SchemaMismatch):
            assert read(value) is not None
