"""Values as JSON and as text: each type in both directions, and what is refused."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.cli.value_forms import json_reader, json_values, parse_json, text_of, text_reader
from neve.inspect.shown_text import Json
from neve.model.row_codec import RowCodec
from neve.model.scalar_values import Unfit
from neve.model.schema_view import ArrowArray
from tests.unit.sstable.data_files import ALL_TYPES, rows_of_all_types

SCHEMA, ROWS = rows_of_all_types(60)
NAMES = ALL_TYPES.names


def encoded(name: str, values: list[object]) -> list[bytes]:
    codec = RowCodec(SCHEMA)
    return [codec.encode({"id": 0, name: value}) for value in values]


def stored(name: str) -> list[bytes]:
    column = ROWS.column(name).combine_chunks()
    keys = pa.array([0] * len(column), pa.int64())
    fields = [SCHEMA.arrow_schema.field(each) for each in ("id", name)]
    if name == "id":
        batch = pa.record_batch([column], names=["id"])
    else:
        batch = pa.RecordBatch.from_arrays([keys, column], schema=pa.schema(fields))
    return RowCodec(SCHEMA).encode_batch(batch)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_given_as_json_is_taken_for_the_same_value(name: str) -> None:
    read = json_reader(SCHEMA.column(name).type)
    given = json_values(ROWS.column(name).combine_chunks())

    taken = [parse_json(json.dumps(value)) for value in given]

    assert len(given) == 60
    values = [None if value is None else read(value) for value in taken]
    assert encoded(name, values) == stored(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_given_as_text_is_taken_for_the_same_value(name: str) -> None:
    read = text_reader(SCHEMA.column(name).type)
    given = json_values(ROWS.column(name).combine_chunks())

    values = [None if value is None else read(text_of(value)) for value in given]

    assert encoded(name, values) == stored(name)


@pytest.mark.parametrize("name", ["point", "list", "map"])
def test_a_slice_of_nested_values_is_given_like_the_whole(name: str) -> None:
    column = ROWS.column(name).combine_chunks()

    assert json_values(column.slice(7, 20)) == json_values(column)[7:27]


@pytest.mark.parametrize(
    ("arrow_type", "stored_value", "shown"),
    [
        (pa.bool_(), True, True),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.decimal128(38, 10), Decimal("0E-10"), "0.0000000000"),
        (pa.date32(), -719_162, "0001-01-01"),
        (pa.date32(), -719_163, -719_163),
        (pa.date32(), 2_932_897, 2_932_897),
        (pa.timestamp("us"), -(1 << 63), -(1 << 63)),
        (pa.timestamp("us", "UTC"), (1 << 63) - 1, (1 << 63) - 1),
        (pa.timestamp("ns"), -(1 << 63), "1677-09-21T00:12:43.145224192"),
        (pa.timestamp("ns", "UTC"), 1, "1970-01-01T00:00:00.000000001+00:00"),
        (pa.binary(), b"\x00\xff", "00ff"),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("a", 2)], [["a", 1], ["a", 2]]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (pa.map_(pa.int32(), pa.date32()), [(5, 0)], [[5, "1970-01-01"]]),
    ],
    ids=range(15),
)
def test_a_value_has_one_form(arrow_type: pa.DataType, stored_value: object, shown: Json) -> None:
    array: ArrowArray = pa.array([stored_value, None], arrow_type)

    assert json_values(array) == [shown, None]


@pytest.mark.parametrize(
    ("arrow_type", "text", "value"),
    [
        (pa.int64(), "7.0", 7),
        (pa.float32(), "16777217", 16777217.0),
        (pa.float64(), '"Infinity"', float("inf")),
        (pa.map_(pa.int32(), pa.int32()), '{"5": 1}', [(5, 1)]),
        (pa.binary(), '"00FF"', b"\x00\xff"),
    ],
    ids=range(5),
)
def test_other_spellings_are_understood(arrow_type: pa.DataType, text: str, value: object) -> None:
    assert json_reader(arrow_type)(parse_json(text)) == value


@pytest.mark.parametrize(
    ("arrow_type", "text", "reason"),
    [
        (pa.bool_(), "1", "expected true or false, got the number 1"),
        (pa.int64(), '"7"', "expected a whole number, got the text '7'"),
        (pa.int64(), "7.5", "expected a whole number"),
        (pa.int64(), "1e999999999", "expected a whole number"),
        (pa.int32(), "true", "expected a whole number, got true or false"),
        (pa.float64(), "1e400", "outside the range"),
        (pa.float64(), '"nan"', "expected a number, got the text 'nan'"),
        (pa.decimal128(9, 2), '"1.239"', "at most 2 digits after the point, such as 14.20"),
        (pa.decimal128(9, 3), "1.2399", "such as 1.420, got the number 1.2399"),
        (pa.date32(), '"31.01.2024"', "expected a date such as 2024-01-31"),
        (pa.time64("us"), "5", "expected a time such as"),
        (pa.timestamp("us"), '"2024-01-31T10:00:00Z"', "without a zone"),
        (pa.timestamp("us"), '"2024-01-31T10:00:00.1234567"', "expected a time"),
        (pa.timestamp("us", "UTC"), '"2024-01-31T10:00:00"', "with its zone"),
        (pa.timestamp("ns"), "5", "expected a time"),
        (pa.binary(), '"0g"', "expected hexadecimal text such as 00ff"),
        (pa.uuid(), '"f79c"', "expected a uuid such as"),
        (pa.list_(pa.int64()), "{}", "expected a list, got an object"),
        (pa.struct([("x", pa.int64())]), "[]", "expected an object, got a list"),
        (pa.map_(pa.string(), pa.int64()), "[[1]]", "expected [key, value]"),
        (pa.map_(pa.string(), pa.int64()), "5", "expected an object, or a list"),
    ],
    ids=range(21),
)
def test_what_is_no_value_of_the_type_is_refused(
    arrow_type: pa.DataType, text: str, reason: str
) -> None:
    with pytest.raises(Unfit) as refused:
        json_reader(arrow_type)(parse_json(text))

    assert reason in refused.value.reason


def test_what_is_wrong_inside_of_a_nested_value_is_named_by_its_path() -> None:
    nested = pa.struct([("at", pa.list_(pa.field("element", pa.date32())))])

    with pytest.raises(Unfit) as refused:
        json_reader(nested)({"at": ["2024-01-31", "x"]})

    assert refused.value.path == "at.element"


@pytest.mark.parametrize(
    ("arrow_type", "text", "reason"),
    [
        (pa.int64(), "seven", "expected a number, got the text 'seven'"),
        (pa.int64(), "1_000", "expected a number"),
        (pa.bool_(), "yes", "expected true or false"),
        (pa.list_(pa.int64()), "[1", "expected JSON"),
    ],
    ids=range(4),
)
def test_text_that_is_no_value_is_refused(arrow_type: pa.DataType, text: str, reason: str) -> None:
    with pytest.raises(Unfit) as refused:
        text_reader(arrow_type)(text)

    assert reason in refused.value.reason


def test_a_basic_iso_date_is_a_date_and_no_number_of_days() -> None:
    assert str(text_reader(pa.date32())("20240131")) == "2024-01-31"
    assert text_reader(pa.date32())("-719163") == -719_163


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "it has 'a' twice"),
        ("NaN", '"NaN" as text'),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "limit"),
        ("{", "Expecting"),
    ],
    ids=["twice", "nan", "deep", "long", "open"],
)
def test_text_that_is_no_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_json(text)
