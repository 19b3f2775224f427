"""Which Arrow types a table holds, what the others become, and how the rest is refused."""

import pyarrow as pa
import pytest

from neve.errors import LimitExceeded, SchemaMismatch
from neve.model.arrow_types import (
    NESTING_MAX,
    TypeKind,
    field_id_of,
    kind_of,
    normalize_type,
    type_name,
    widens_to,
)

HELD = [
    (pa.bool_(), "boolean"),
    (pa.int32(), "int"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.decimal128(38, 38), "decimal(38,38)"),
    (pa.decimal128(9, 2), "decimal(9,2)"),
    (pa.date32(), "date"),
    (pa.time64("us"), "time"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", tz="UTC"), "timestamptz"),
    (pa.timestamp("ns"), "timestamp_ns"),
    (pa.timestamp("ns", tz="UTC"), "timestamptz_ns"),
    (pa.string(), "string"),
    (pa.binary(), "binary"),
    (pa.binary(16), "fixed[16]"),
    (pa.uuid(), "uuid"),
    (pa.list_(pa.int32()), "list"),
    (pa.struct([("a", pa.int32())]), "struct"),
    (pa.map_(pa.string(), pa.int32()), "map"),
]

MAPPED = [
    (pa.int8(), pa.int32()),
    (pa.int16(), pa.int32()),
    (pa.uint8(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.float16(), pa.float32()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.binary_view(), pa.binary()),
    (pa.date64(), pa.date32()),
    (pa.time32("s"), pa.time64("us")),
    (pa.time32("ms"), pa.time64("us")),
    (pa.time64("ns"), pa.time64("us")),
    (pa.timestamp("s"), pa.timestamp("us")),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("ms", tz="Europe/Paris"), pa.timestamp("us", tz="UTC")),
    (pa.timestamp("ns", tz="+05:30"), pa.timestamp("ns", tz="UTC")),
    (pa.timestamp("us", tz="Etc/UTC"), pa.timestamp("us", tz="UTC")),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
    (pa.run_end_encoded(pa.int32(), pa.int16()), pa.int32()),
    (pa.decimal32(5, 2), pa.decimal128(5, 2)),
    (pa.decimal64(18, 2), pa.decimal128(18, 2)),
    (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    (pa.large_list(pa.int8()), pa.list_(pa.int32())),
    (pa.list_(pa.int8(), 3), pa.list_(pa.int32())),
    (pa.list_view(pa.int8()), pa.list_(pa.int32())),
    (pa.large_list_view(pa.int8()), pa.list_(pa.int32())),
    (pa.struct([("a", pa.uint32())]), pa.struct([("a", pa.int64())])),
    (
        pa.map_(pa.large_string(), pa.list_(pa.date64())),
        pa.map_(pa.string(), pa.list_(pa.date32())),
    ),
]

REFUSED = [
    (pa.uint64(), "decimal128(20, 0)"),
    (pa.null(), "Give the column a type"),
    (pa.decimal256(39, 2), "decimal128(38"),
    (pa.decimal128(5, -2), "scale of at least 0"),
    (pa.decimal128(3, 5), "precision that covers"),
    (pa.duration("us"), "int64"),
    (pa.month_day_nano_interval(), "int32 columns"),
    (pa.dense_union([pa.field("a", pa.int32())]), "struct with one nullable field"),
    (pa.run_end_encoded(pa.int32(), pa.uint64()), "decimal128(20, 0)"),
    (pa.json_(), "storage type, string"),
    (pa.bool8(), "storage type, int8"),
    (pa.struct([]), "Give the struct a field"),
    (pa.map_(pa.list_(pa.int32()), pa.int32()), "primitive key"),
    (pa.binary(65_536), "Use binary"),
]


@pytest.mark.parametrize(("arrow_type", "hint"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_type_iceberg_cannot_say_is_refused_with_what_to_use(
    arrow_type: pa.DataType, hint: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        normalize_type(arrow_type, column="price")

    assert caught.value.column == "price"
    assert caught.value.hint is not None
    assert hint in caught.value.hint


def test_a_refused_type_inside_a_nested_one_is_named_by_its_path() -> None:
    nested = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.uint64())]))

    with pytest.raises(SchemaMismatch) as caught:
        normalize_type(nested, column="orders")

    assert caught.value.column == "orders.element.b"


def test_nesting_is_bounded() -> None:
    deepest: pa.DataType = pa.int32()
    for _ in range(NESTING_MAX - 1):
        deepest = pa.list_(deepest)

    assert kind_of(normalize_type(deepest, column="x")) is TypeKind.LIST
    with pytest.raises(LimitExceeded) as caught:
        normalize_type(pa.list_(deepest), column="x")
    assert caught.value.limit == NESTING_MAX


@pytest.mark.parametrize(("arrow_type", "name"), HELD, ids=lambda each: str(each)[:40])
def test_what_iceberg_can_say_is_held_as_it_is(arrow_type: pa.DataType, name: str) -> None:
    normal = normalize_type(arrow_type, column="x")

    assert normal == arrow_type
    assert type_name(normal) == name
    assert normalize_type(normal, column="x").equals(normal, check_metadata=True)


@pytest.mark.parametrize(("given", "held"), MAPPED, ids=lambda each: str(each)[:40])
def test_what_people_have_is_mapped(given: pa.DataType, held: pa.DataType) -> None:
    assert normalize_type(given, column="x") == held


def test_fields_of_nested_types_get_icebergs_names_and_keep_id_and_doc() -> None:
    metadata = {"PARQUET:field_id": "7", "doc": "count", "colour": "blue"}
    inner = pa.field("n", pa.int8(), nullable=False, metadata=metadata)

    listed = normalize_type(pa.large_list(inner), column="x")
    struct = normalize_type(pa.struct([inner]), column="x")

    assert pa.types.is_list(listed)
    element = listed.value_field
    assert (element.name, element.type, element.nullable) == ("element", pa.int32(), False)
    assert element.metadata == {b"PARQUET:field_id": b"7"}
    assert pa.types.is_struct(struct)
    assert struct.field(0).name == "n"
    assert struct.field(0).metadata == {b"PARQUET:field_id": b"7", b"doc": b"count"}


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1.5", b"9" * 11, b"\xb2"])
def test_an_id_that_is_no_number_is_no_id(text: bytes) -> None:
    assert field_id_of(pa.field("a", pa.int32(), metadata={b"PARQUET:field_id": text})) is None


@pytest.mark.parametrize(
    ("stored", "wanted", "widens"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.float32(), pa.float64(), True),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), True),
        (pa.string(), pa.string(), True),
        (pa.int64(), pa.int32(), False),
        (pa.float64(), pa.float32(), False),
        (pa.decimal128(5, 2), pa.decimal128(9, 3), False),
        (pa.decimal128(9, 2), pa.decimal128(5, 2), False),
        (pa.int32(), pa.float64(), False),
        (pa.date32(), pa.int32(), False),
        (pa.binary(4), pa.binary(5), False),
    ],
    ids=str,
)
def test_only_icebergs_promotions_widen(
    stored: pa.DataType, wanted: pa.DataType, *, widens: bool
) -> None:
    assert widens_to(stored, wanted) is widens
