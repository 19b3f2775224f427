"""Values of rows as JSON and as text, in the input and output of commands.

    type                    JSON                                    text
    boolean                 true, false                             true, false
    int, long               number                                  12
    float, double           number, "NaN", "Infinity", "-Infinity"  1.5, NaN
    decimal                 "14.20", or a number                    14.20
    date                    "2024-01-31"                            the same without quotes
    time                    "22:31:08.123456"
    timestamp               "2024-01-31T22:31:08.123456"
    timestamptz             the same with a zone: "…+00:00"
    timestamp_ns, …tz_ns    nine digits after the second
    string                  "ada"
    binary, fixed           hexadecimal: "00ff"
    uuid                    "f79c3e09-677c-4bbd-a479-3f349cb785e7"
    list                    list                                    JSON
    struct                  object                                  JSON
    map                     object, or a list of [key, value]       JSON

These are Iceberg's forms of single values. A date or timestamp outside the years 1 to 9999 is the
stored number. A map is written as an object if its keys are distinct texts, otherwise as a list;
the keys of an object that is read are in their text form.

CLI-1  The JSON written for a value is read as the same value.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import SchemaMismatch
from neve.inspect.shown_text import Json
from neve.model.array_fit import flattened
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    TypeKind,
    child_fields,
    decimal_digits,
    kind_of,
)
from neve.model.display import shown
from neve.model.plain_values import stored_array, to_plain
from neve.model.row_values import storage_type
from neve.model.scalar_values import PYTHON_MICROSECONDS, FromRaw, Raw, Unfit, scalar_form
from neve.model.schema_json import default_to_json
from neve.model.schema_view import ArrowArray

ReadJson: TypeAlias = Callable[[object], object]
ReadText: TypeAlias = Callable[[str], object]

_LIKE: Final = {
    TypeKind.DATE: "a date such as 2024-01-31",
    TypeKind.TIME: "a time such as 22:31:08.5",
    TypeKind.TIMESTAMP: "a time such as 2024-01-31T22:31:08, without a zone",
    TypeKind.TIMESTAMPTZ: "a time with its zone such as 2024-01-31T22:31:08+00:00",
    TypeKind.TIMESTAMP_NS: "a time such as 2024-01-31T22:31:08.123456789, without a zone",
    TypeKind.TIMESTAMPTZ_NS: "a time with its zone such as 2024-01-31T22:31:08.123456789+00:00",
    TypeKind.UUID: "a uuid such as f79c3e09-677c-4bbd-a479-3f349cb785e7",
}
# Python lacks dates and times of far years: rows take the stored numbers.
_COUNTED: Final = frozenset({TypeKind.DATE, TypeKind.TIMESTAMP, TypeKind.TIMESTAMPTZ})
MOMENTS: Final = frozenset(
    {*_COUNTED, TypeKind.TIME, TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS}
)
"""Kinds of dates and times."""
_DAY_MICROSECONDS: Final = 86_400_000_000
_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NANOSECONDS: Final = re.compile(r"[.,][0-9]{7}")
_FLAGS: Final = {"true": True, "false": False}
# Integer columns have fewer digits; a decimal with an exponent may have a billion.
_DIGITS_MAX: Final = 40


def parse_json(text: str) -> object:
    """Read one JSON value, numbers with all their digits; raises ValueError with the reason."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except InvalidOperation:
        raise ValueError("a number in it is too long") from None


def json_reader(arrow_type: pa.DataType) -> ReadJson:
    """Return the function from JSON, never null, to a value of a row; it raises Unfit."""
    kind = kind_of(arrow_type)
    match kind:
        case TypeKind.LIST:
            return _list_reader(child_fields(arrow_type)[0])
        case TypeKind.STRUCT:
            return _struct_reader(child_fields(arrow_type))
        case TypeKind.MAP:
            return _map_reader(*child_fields(arrow_type))
        case TypeKind.BOOLEAN:
            return _boolean_of
        case TypeKind.INT | TypeKind.LONG:
            return _whole_number_of
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return _float_of
        case TypeKind.STRING:
            return lambda value: value if isinstance(value, str) else _expected("text", value)
        case TypeKind.BINARY | TypeKind.FIXED:
            return _bytes_of
        case _:
            return _spelled_reader(arrow_type)


def text_reader(arrow_type: pa.DataType) -> ReadText:
    """Return the function from text, as in a cell or an argument, to a value; it raises Unfit."""
    read_json = json_reader(arrow_type)
    match kind_of(arrow_type):
        case TypeKind.BOOLEAN:
            return _flag_of
        case TypeKind.INT | TypeKind.LONG | TypeKind.FLOAT | TypeKind.DOUBLE | TypeKind.DECIMAL:
            return lambda text: read_json(text if text in _NO_NUMBERS else _number_of(text))
        case kind if kind in NESTED_KINDS:
            return lambda text: read_json(_json_of(text))
        case kind if kind in _COUNTED:
            return lambda text: read_json(_count_or_text(text))
        case _:
            return read_json


def json_values(array: ArrowArray) -> list[Json]:
    """Return the values of an array as JSON, column by column."""
    kind = kind_of(array.type)
    match kind:
        case TypeKind.LIST:
            assert isinstance(array, pa.ListArray)
            return _rebuilt(array, json_values(flattened(array)))
        case TypeKind.STRUCT:
            return _struct_values(array)
        case TypeKind.MAP:
            return _map_values(array)
        case TypeKind.BOOLEAN | TypeKind.INT | TypeKind.LONG | TypeKind.STRING:
            return cast("list[Json]", array.to_pylist())
        case TypeKind.FLOAT | TypeKind.DOUBLE:
            return [_shown_float(each) for each in cast("list[float | None]", array.to_pylist())]
        case TypeKind.BINARY | TypeKind.FIXED:
            contents = cast("list[bytes | None]", array.to_pylist())
            return [None if each is None else each.hex() for each in contents]
        case _:
            return _spelled_values(array)


def text_of(value: Json) -> str:
    """Return a JSON value, not null, in its text form."""
    match value:
        case str():
            return value
        case bool() | int() | float():
            return json.dumps(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


# From JSON


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f'{name} is not JSON; write "{name}" as text')


def _distinct_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in members if names.count(name) > 1)
        raise ValueError(f"it has {shown(twice)} twice")
    return members


# Made once: this takes longer than reading a row.
_DECODER: Final = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_distinct_members
)


def _expected(wanted: str, value: object) -> NoReturn:
    raise Unfit(f"expected {wanted}, got {_json_kind(value)}")


def _json_kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float() | Decimal():
            return f"the number {_shown_number(value)}"
        case str():
            return f"the text {shown(value)}"
        case list():
            return "a list"
        case _:
            return "an object"


def _shown_number(value: float | Decimal) -> str:
    return shown(value) if isinstance(value, int) else shown(str(value)).strip("'")


def _boolean_of(value: object) -> bool:
    return value if isinstance(value, bool) else _expected("true or false", value)


def _whole_number_of(value: object) -> int:
    if isinstance(value, Decimal) and value.adjusted() < _DIGITS_MAX:
        whole = int(value)
        return whole if whole == value else _expected("a whole number", value)
    if isinstance(value, bool) or not isinstance(value, int):
        _expected("a whole number", value)
    return value


def _float_of(value: object) -> float:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        _expected("a number", value)
    try:
        nearest = float(value)
    except OverflowError:
        nearest = math.inf
    if math.isinf(nearest):
        raise Unfit("number outside the range of the column")
    return nearest


def _bytes_of(value: object) -> bytes:
    if not isinstance(value, str):
        _expected("hexadecimal text such as 00ff", value)
    try:
        return bytes.fromhex(value)
    except ValueError:
        _expected("hexadecimal text such as 00ff", value)


def _spelled_reader(arrow_type: pa.DataType) -> ReadJson:
    """Return a reader for types that JSON writes as text."""
    kind = kind_of(arrow_type)
    from_raw = scalar_form(arrow_type).from_raw
    is_decimal = kind is TypeKind.DECIMAL
    like = f"a number with at most {decimal_digits(arrow_type)}" if is_decimal else _LIKE[kind]
    is_counted = kind in _COUNTED
    is_zoned = kind is TypeKind.TIMESTAMPTZ
    is_moment = is_zoned or kind is TypeKind.TIMESTAMP

    def read(value: object) -> object:
        if is_counted and isinstance(value, int):
            return value  # numbers only for values that have no other form
        if is_moment and isinstance(value, str):
            moment = _moment_of(value)
            if moment is not None and (moment.tzinfo is not None) == is_zoned:
                return moment
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not isinstance(value, str) and not (is_number and is_decimal):
            _expected(like, value)
        try:
            plain = to_plain(value, arrow_type, column="")
        except SchemaMismatch:
            _expected(like, value)
        return plain if is_decimal or from_raw is None else _python_value(from_raw, plain)

    return read


def _moment_of(text: str) -> dt.datetime | None:
    """Read a time the quick way; None if Python cannot parse it directly."""
    if _NANOSECONDS.search(text):
        return None
    try:
        return dt.datetime.fromisoformat(text)
    except ValueError:
        return None


def _python_value(from_raw: FromRaw, plain: object) -> object:
    if plain is None:
        return None
    try:
        return from_raw(cast("Raw", plain))
    except Unfit:
        return plain


def _list_reader(element: ArrowField) -> ReadJson:
    read_element = _member_reader(element)

    def read(value: object) -> list[object]:
        if not isinstance(value, list):
            _expected("a list", value)
        return [read_element(each) for each in value]

    return read


def _struct_reader(fields: Iterable[ArrowField]) -> ReadJson:
    members = {field.name: _member_reader(field) for field in fields}

    def read(value: object) -> dict[str, object]:
        if not isinstance(value, dict):
            _expected("an object", value)
        # The table refuses unknown members.
        return {
            name: members[name](each) if name in members else each for name, each in value.items()
        }

    return read


def _map_reader(key: ArrowField, item: ArrowField) -> ReadJson:
    read_key_text = text_reader(key.type)
    read_key, read_item = _member_reader(key), _member_reader(item)

    def read(value: object) -> list[tuple[object, object]]:
        if isinstance(value, dict):
            return [(read_key_text(name), read_item(each)) for name, each in value.items()]
        if not isinstance(value, list):
            _expected("an object, or a list of [key, value]", value)
        pairs: list[tuple[object, object]] = []
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2:  # noqa: PLR2004 - a pair
                _expected("[key, value]", pair)
            pairs.append((read_key(pair[0]), read_item(pair[1])))
        return pairs

    return read


def _member_reader(field: ArrowField) -> ReadJson:
    read = json_reader(field.type)

    def read_member(value: object) -> object:
        if value is None:
            return None  # the table decides whether NULL is allowed
        try:
            return read(value)
        except Unfit as unfit:
            raise unfit.below(field.name) from None

    return read_member


# From text


def _flag_of(text: str) -> bool:
    flag = _FLAGS.get(text.lower())
    return _expected("true or false", text) if flag is None else flag


def _number_of(text: str) -> int | Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        _expected("a number", text)
    if not number.is_finite() or "_" in text:
        _expected("a number", text)
    is_whole = "." not in text and "e" not in text.lower()
    return int(number) if is_whole and number.adjusted() < _DIGITS_MAX else number


def _count_or_text(text: str) -> int | str:
    """Read a date or time that is written as the stored number."""
    is_number = text.removeprefix("-").isdecimal() and len(text) < _DIGITS_MAX
    return int(text) if is_number and len(text) != len("20240131") else text


def _json_of(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError as error:
        raise Unfit(f"expected JSON, got {shown(text)}: {error}") from None


def cast_moments(texts: ArrowArray, arrow_type: pa.DataType) -> ArrowArray:
    """Convert dates and times at once; raises ArrowException or Unfit if one needs another way."""
    moments = cast("ArrowArray", texts.cast(arrow_type))
    kind = kind_of(arrow_type)
    if kind in _COUNTED:
        first, last = PYTHON_MICROSECONDS
        numbers = moments.view(pa.int32() if kind is TypeKind.DATE else pa.int64())
        if kind is TypeKind.DATE:
            first, last = first // _DAY_MICROSECONDS, last // _DAY_MICROSECONDS
        ends = cast("dict[str, int | None]", pc.min_max(numbers).as_py())
        low, high = ends["min"], ends["max"]
        if low is not None and high is not None and not first <= low <= high <= last:
            raise Unfit("a year that Python's classes do not have")
    return moments


# To JSON


def _shown_float(value: float | None) -> Json:
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _spelled_values(array: ArrowArray) -> list[Json]:
    """Write dates, times, decimals and uuids from their stored form, for any year."""
    arrow_type = array.type
    if kind_of(arrow_type) is TypeKind.DECIMAL:
        numbers = cast("list[Decimal | None]", array.to_pylist())
        return [None if each is None else format(each, "f") for each in numbers]
    stored = stored_array(array).cast(storage_type(arrow_type))
    raws: list[object] = [*cast("pa.Array[pa.Int64Scalar]", stored).to_pylist()]
    from_raw = scalar_form(arrow_type).from_raw
    values = raws if from_raw is None else [_python_value(from_raw, raw) for raw in raws]
    is_count = kind_of(arrow_type) in _COUNTED
    return [
        # A value that is still a number is outside Python's years.
        cast("Json", value)
        if value is None or (is_count and isinstance(value, int))
        else default_to_json(arrow_type, value)
        for value in values
    ]


def _struct_values(array: ArrowArray) -> list[Json]:
    assert isinstance(array, pa.StructArray)
    names = [field.name for field in child_fields(array.type)]
    columns = [json_values(child) for child in array.flatten()]
    valid = array.is_valid().to_pylist()
    rows = zip(*columns, strict=True)
    return [
        dict(zip(names, row, strict=True)) if is_valid else None
        for is_valid, row in zip(valid, rows, strict=True)
    ]


def _map_values(array: ArrowArray) -> list[Json]:
    assert isinstance(array, pa.MapArray)
    entries = array.cast(pa.list_(pa.struct(child_fields(array.type))))
    assert isinstance(entries, pa.ListArray)
    inside = flattened(entries)
    assert isinstance(inside, pa.StructArray)
    keys, items = (json_values(child) for child in inside.flatten())
    pairs = cast("list[Json]", [list(pair) for pair in zip(keys, items, strict=True)])
    has_texts = kind_of(array.type.key_type) is TypeKind.STRING
    values = _rebuilt(entries, pairs)
    return [_as_object(value) for value in values] if has_texts else values


def _as_object(pairs: Json) -> Json:
    if pairs is None:
        return None
    members = dict(cast("list[tuple[str, Json]]", pairs))
    return members if len(members) == len(cast("list[Json]", pairs)) else pairs


def _rebuilt(array: "pa.ListArray[pa.Scalar[pa.DataType]]", values: list[Json]) -> list[Json]:
    """Split the values of all lists into their lists."""
    lists: list[Json] = []
    start = 0
    for length in array.value_lengths().to_pylist():
        lists.append(None if length is None else values[start : start + length])
        start += length or 0
    return lists
