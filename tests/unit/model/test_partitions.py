"""A partition is the same one in whatever bytes its values were stored."""

import math
import struct

import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.model.data_file import PartitionValue
from neve.model.partition_spec import PartitionIdentity, PartitionSpec, newest_form
from neve.model.schema import TableSchema

_COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "x": pa.int32(), "note": pa.string()}
FIRST = TableSchema.from_arrow(pa.schema(_COLUMNS), primary_key=["id"])
WIDENED = TableSchema.from_arrow(pa.schema({**_COLUMNS, "x": pa.int64()}), primary_key=["id"])
SPEC = PartitionSpec.parse(["x", "note"], FIRST)


def values(*stored: bytes | None) -> tuple[PartitionValue, ...]:
    return tuple(
        PartitionValue(field_id=field.field_id, value=value)
        for field, value in zip(SPEC.fields, stored, strict=False)
    )


@pytest.mark.parametrize(
    ("type_", "stored", "newest"),
    [
        (pa.int64(), struct.pack("<i", -7), struct.pack("<q", -7)),
        (pa.int32(), struct.pack("<q", 7), struct.pack("<i", 7)),
        (pa.float64(), struct.pack("<f", 0.5), struct.pack("<d", 0.5)),
        (pa.float64(), struct.pack("<d", -0.0), struct.pack("<d", -0.0)),
        (pa.float32(), b"\x01\x00\xc0\xff", struct.pack("<f", math.nan)),
        (pa.float64(), b"\x01\x00\xc0\xff", struct.pack("<d", math.nan)),
        (pa.decimal128(18, 2), b"\x00\x07", b"\x07"),
        (pa.string(), b"abcd", b"abcd"),
    ],
)
def test_values_are_compared_as_the_newest_type_stores_them(
    type_: pa.DataType, stored: bytes, newest: bytes
) -> None:
    assert newest_form(type_, stored) == newest


def test_a_value_beyond_its_type_is_corruption() -> None:
    with pytest.raises(Corruption):
        newest_form(pa.int32(), struct.pack("<q", 1 << 40))


def test_bytes_of_a_column_that_was_widened_name_the_same_partition() -> None:
    identity = PartitionIdentity.of_definitions([SPEC], [FIRST, WIDENED])
    before = identity.of_values(0, values(struct.pack("<i", 7), b"abcd"))
    after = identity.of_values(0, values(struct.pack("<q", 7), b"abcd"))

    assert before == after == (0, values(struct.pack("<q", 7), b"abcd"))
    assert after != identity.of_values(0, values(struct.pack("<q", 7), b"abce"))
    assert after != identity.of_values(0, values(None, b"abcd"))


def test_what_no_definition_explains_is_known_by_its_bytes() -> None:
    identity = PartitionIdentity.of_definitions([SPEC], [FIRST])
    stored = values(b"odd", None)

    assert identity.of_values(0, stored) == (0, stored)
    assert identity.of_values(5, stored) == (5, stored)
