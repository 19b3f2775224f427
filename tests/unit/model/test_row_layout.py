"""The bytes of rows, pinned, and what becomes of damaged ones."""

import datetime as dt
import decimal
import struct
import uuid
from typing import Final

import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.model.row_codec import RowCodec, describe_row
from neve.model.schema import Column, TableSchema


def codec(*fields: tuple[str, pa.DataType]) -> RowCodec:
    columns: list[tuple[str, pa.DataType]] = [("id", pa.int64()), *fields]
    return RowCodec(TableSchema.from_arrow(pa.schema(columns), primary_key=["id"]))


def test_the_bytes_of_a_flat_row_are_pinned() -> None:
    rows = codec(("s", pa.string()), ("f", pa.float64()), ("i", pa.int32()), ("p", pa.binary()))
    described = "01 05 01 03 02 0d 03 05 04 02 05 0e"

    full = rows.encode({"id": 1, "s": "né", "f": 1.5, "i": -2, "p": b"\xff"})
    sparse = rows.encode({"id": 1, "i": -2, "p": b""})

    assert full == bytes.fromhex(
        described
        + "00"  # nothing is NULL
        + "0100000000000000 000000000000f83f feffffff"  # id, f, i
        + "03000000 01000000 6ec3a9 ff"  # two lengths, then s and p
    )
    assert sparse == bytes.fromhex(
        described
        + "06"  # s and f are NULL
        + "0100000000000000 0000000000000000 feffffff"
        + "00000000 00000000"
    )


def test_the_bytes_of_nested_values_are_pinned() -> None:
    rows = codec(
        ("l", pa.list_(pa.int32())),
        ("t", pa.struct([("a", pa.bool_()), ("b", pa.string())])),
        ("m", pa.map_(pa.string(), pa.binary(2))),
    )

    value = rows.encode(
        {"id": 7, "l": [1, None], "t": {"a": True, "b": "x"}, "m": {"k": b"zz", "kk": None}}
    )

    assert value == bytes.fromhex(
        "01 04 01 03   02 11 05 02   03 12 02 06 01 07 0d   04 13 08 0d 09 0f 02"
        "00 0700000000000000"  # nothing is NULL; id
        "0d000000 07000000 15000000"  # lengths of l, t and m
        "02000000 02 01000000 00000000"  # two elements, the second NULL
        "00 01 01000000 78"  # a struct: a, length of b, b
        "02000000 00 01000000 02000000 6b 6b6b"  # two keys
        "02 7a7a 0000"  # their values, the second NULL
    )


SCALARS: Final[list[tuple[pa.DataType, object, str]]] = [
    (pa.bool_(), True, "01"),
    (pa.int32(), -2, "feffffff"),
    (pa.int64(), -2, "feffffffffffffff"),
    (pa.float32(), 1.5, "0000c03f"),
    (pa.float64(), 1.5, "000000000000f83f"),
    (pa.decimal128(9, 2), decimal.Decimal("-1.50"), "6aff" + "ff" * 14),
    (pa.date32(), dt.date(1969, 12, 31), "ffffffff"),
    (pa.time64("us"), dt.time(0, 0, 1), "40420f0000000000"),
    (pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 1), "40420f0000000000"),  # noqa: DTZ001
    (
        pa.timestamp("us", tz="UTC"),
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
        "40420f0000000000",
    ),
    (pa.timestamp("ns"), 1, "0100000000000000"),
    (pa.timestamp("ns", tz="UTC"), -1, "ffffffffffffffff"),
    (pa.binary(3), b"abc", "616263"),
    (pa.uuid(), uuid.UUID(int=1), "00" * 15 + "01"),
]


@pytest.mark.parametrize(
    ("arrow_type", "value", "spelled"), SCALARS, ids=lambda each: str(each)[:30]
)
def test_the_bytes_of_each_fixed_width_type_are_pinned(
    arrow_type: pa.DataType, value: object, spelled: str
) -> None:
    rows = codec(("x", arrow_type))

    encoded = rows.encode({"id": 1, "x": value})

    assert encoded[-len(spelled) // 2 :] == bytes.fromhex(spelled)
    assert rows.decode(encoded) == {"id": 1, "x": value}
    assert rows.decode_many([encoded]).num_rows == 1


def _flat() -> tuple[RowCodec, bytes]:
    rows = codec(("b", pa.bool_()), ("s", pa.string()), ("t", pa.time64("us")))
    return rows, rows.encode({"id": 1, "b": True, "s": "ab", "t": dt.time(1)})


def _damaged(at: int, replacement: bytes) -> bytes:
    _, value = _flat()
    place = len(value) + at if at < 0 else at
    return value[:place] + replacement + value[place + len(replacement) :]


# The row: 10 bytes of header, bitmap, id (8), b, t (8), length of s (4), "ab".
@pytest.mark.parametrize(
    "value",
    [
        b"",
        _damaged(0, b"\2"),
        _damaged(1, b"\0"),
        _damaged(1, b"\x05"),
        _damaged(1, b"\x84\x00"),
        _damaged(1, b"\xff\xff\xff\xff\xff"),
        _damaged(2, b"\0"),
        _damaged(4, b"\1"),
        _damaged(3, b"\x14"),
        _damaged(10, b"\x10"),
        _damaged(10, b"\x01"),
        _damaged(10, b"\x02"),
        _damaged(10, b"\x04"),
        _damaged(19, b"\2"),
        _damaged(-7, b"\x7f"),
        _damaged(-6, b"\3"),
        _damaged(-6, b"\1"),
        _damaged(-2, b"\xff"),
        _flat()[1] + b"\0",
        _flat()[1][:-1],
        _flat()[1][:15],
        _flat()[1][:5],
    ],
    ids=lambda value: value.hex() or "empty",
)
def test_a_damaged_row_is_corruption(value: bytes) -> None:
    rows, sound = _flat()

    with pytest.raises(Corruption):
        rows.decode(value)
    with pytest.raises(Corruption):
        rows.decode_many([sound, value])


@pytest.mark.parametrize(
    "nested",
    [
        b"",
        b"\1",
        b"\xff\xff\xff\xff",
        struct.pack("<I", 2) + b"\0" + struct.pack("<i", 1),
        struct.pack("<I", 1) + b"\2" + struct.pack("<i", 1),
        struct.pack("<I", 1) + b"\1" + struct.pack("<i", 1),
        struct.pack("<I", 1) + b"\0" + struct.pack("<i", 1) + b"\0",
    ],
    ids=lambda value: value.hex() or "empty",
)
def test_a_damaged_list_is_corruption_and_allocates_nothing_it_promises(nested: bytes) -> None:
    rows = codec(("x", pa.list_(pa.int32())))
    sound = rows.encode({"id": 1, "x": []})
    head = sound[: -4 - 4]

    value = head + struct.pack("<I", len(nested)) + nested

    for read in (rows.decode, describe_row, lambda value: rows.decode_many([value])):
        with pytest.raises(Corruption):
            read(value)


def test_a_header_that_nests_without_end_is_corruption() -> None:
    levels = b"".join(bytes((at + 1, 17)) for at in range(100))

    with pytest.raises(Corruption, match="nesting"):
        describe_row(b"\1\1" + levels)


def test_the_bytes_of_a_large_field_id_are_pinned() -> None:
    columns = (
        Column(field_id=300, name="id", type=pa.int32(), nullable=False),
        Column(field_id=2_147_483_447, name="x", type=pa.binary(200), nullable=True),
    )
    schema = TableSchema(
        columns=columns, primary_key=(300,), schema_id=0, last_field_id=2_147_483_447
    )
    rows = RowCodec(schema)

    value = rows.encode({"id": 1})

    assert value == bytes.fromhex("01 02 ac02 02 b7feffff07 0f c801 02 01000000") + bytes(200)
    assert rows.decode(value) == {"id": 1, "x": None}
    assert [field_id for field_id, _, _ in describe_row(value)] == [300, 2_147_483_447]


@pytest.mark.parametrize(
    ("described", "found"),
    [
        ("01 01 0f 00", "fixed[0]"),
        ("01 01 0f 808004", "fixed[65536]"),
        ("01 01 06 00 00", "decimal(0,0)"),
        ("01 01 06 27 00", "decimal(39,0)"),
        ("01 01 06 02 03", "decimal(2,3)"),
        ("01 01 13 02 11 03 02 04 02", "key of a map"),
        ("01 01 12 00", "0 fields"),
        ("01 01 11 01 02", "given twice"),
        ("01 b8feffff07 02", "out of range"),
        ("914e 01 02", "10001 fields"),
        ("01", "a number is cut off"),
        ("01 01", "an end"),
        ("8100 01 02", "longer than it needs"),
        ("01 ffffffffff 02", "out of range"),
        ("01 ffffffffffffffffffff 02", "more than 64 bits"),
    ],
)
def test_a_header_that_no_schema_writes_is_corruption(described: str, found: str) -> None:
    value = b"\1" + bytes.fromhex(described)

    with pytest.raises(Corruption) as caught:
        describe_row(value)

    assert found in caught.value.message


def test_a_header_with_too_many_fields_below_others_is_corruption() -> None:
    def varint(number: int) -> bytes:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))

    def struct_of(own_id: int, *, first_id: int) -> bytes:
        inside = (varint(first_id + at) + b"\2" for at in range(5_001))
        return b"".join((bytes((own_id, 18)), bytes.fromhex("8927"), *inside))

    structs = struct_of(1, first_id=20_000) + struct_of(2, first_id=30_000)

    with pytest.raises(Corruption, match="more than 10000 fields"):
        describe_row(b"\1\2" + structs)


def test_an_element_that_overruns_its_list_is_corruption() -> None:
    rows = codec(("x", pa.list_(pa.string())))
    value = rows.encode({"id": 1, "x": ["ab"]})
    longer = value[:-6] + struct.pack("<I", 3) + value[-2:]

    for read in (rows.decode, describe_row, lambda each: rows.decode_many([each])):
        with pytest.raises(Corruption):
            read(longer)


def test_a_decimal_with_too_many_digits_is_corruption() -> None:
    rows = codec(("x", pa.decimal128(3, 1)))
    value = rows.encode({"id": 1, "x": decimal.Decimal("99.9")})[:-16]
    damaged = value + (1_000).to_bytes(16, "little")

    for read in (rows.decode, describe_row, lambda each: rows.decode_many([each])):
        with pytest.raises(Corruption):
            read(damaged)
