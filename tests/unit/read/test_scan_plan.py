"""Which keys can match a predicate, and what is left to ask of their rows."""

from datetime import date, timedelta

import pyarrow as pa
import pytest

from neve.errors import InvalidArgument, SchemaMismatch
from neve.keys.ranges import KeyRange
from neve.model.predicate import Predicate, col
from neve.read.filter_text import parse_filter
from neve.read.scan_plan import asked_range, implied_range
from neve.storage.memory_store import MemoryStore
from neve.table.table_context import TableContext
from tests.unit.read.table_bench import parts_of, schema_of

SCHEMA = schema_of(
    [
        pa.field("shop", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("id", pa.int32()),
        pa.field("amount", pa.float64()),
    ],
    ["shop", "day", "id"],
)
CONTEXT = TableContext(SCHEMA, parts_of(MemoryStore(), SCHEMA).definitions)


def keys_of(shop: str, day: int | None = None, number: int | None = None) -> KeyRange:
    dated = None if day is None else date(1970, 1, 1) + timedelta(days=day)
    return CONTEXT.encoder.prefix_range(
        [each for each in (shop, dated, number) if each is not None]
    )


def prefix(shop: str, day: int | None = None, number: int | None = None) -> bytes:
    start = keys_of(shop, day, number).start
    assert start is not None
    return start


def behind(shop: str, day: int | None = None, number: int | None = None) -> bytes | None:
    return keys_of(shop, day, number).end


@pytest.mark.parametrize(
    ("text", "low", "high", "rest"),
    [
        ("shop = 'a'", prefix("a"), behind("a"), "true"),
        ("shop >= 'a'", prefix("a"), None, "true"),
        ("shop > 'a'", behind("a"), None, "true"),
        ("shop < 'b'", b"", prefix("b"), "true"),
        ("shop <= 'b'", b"", behind("b"), "true"),
        ("shop > 'a' and shop <= 'b'", behind("a"), behind("b"), "true"),
        ("shop in ('c', 'a')", prefix("a"), behind("c"), "shop in ('a', 'c')"),
        ("shop like 'ab%'", prefix("ab")[:-2], b"ac", "true"),
        ("shop = 'a' and day = 5", prefix("a", 5), behind("a", 5), "true"),
        ("shop = 'a' and day > 5 and id < 3", behind("a", 5), behind("a"), "id < 3"),
        ("shop > 'a' and day = 5", behind("a"), None, "day = 5"),
        ("shop = 'a' and amount > 1", prefix("a"), behind("a"), "amount > 1"),
        ("shop = 'a' and day = 5 and id > 2", behind("a", 5, 2), behind("a", 5), "true"),
        ("day = 5", None, None, "day = 5"),
        ("shop = 'a' or shop = 'b'", None, None, "shop = 'a' or shop = 'b'"),
        ("shop != 'a'", None, None, "shop != 'a'"),
    ],
)  # fmt: skip
def test_conditions_on_leading_key_columns_bound_the_keys(
    text: str, low: bytes | None, high: bytes | None, rest: str
) -> None:
    found, left = implied_range(parse_filter(text).bind(SCHEMA), CONTEXT)

    assert (found.start or b"", found.end) == (low or b"", high)
    assert left == parse_filter(rest).bind(SCHEMA)


@pytest.mark.parametrize(
    "predicate",
    [
        (col("shop") == "a") & (col("shop") == "b") & (col("day") == 1),
        (col("shop") > "b") & (col("shop") < "a"),
        (col("shop") == "b") & (col("day") > 2**31 - 1),
    ],
    ids=["two values", "crossed bounds", "above every value"],
)
def test_what_contradicts_itself_leaves_no_keys_or_is_still_asked(predicate: Predicate) -> None:
    found, rest = implied_range(predicate.bind(SCHEMA), CONTEXT)

    is_asked = rest != parse_filter("true").bind(SCHEMA)
    assert found.is_empty or is_asked


def test_a_value_longer_than_any_key_is_left_to_the_rows() -> None:
    predicate = (col("shop") == "x" * 70_000).bind(SCHEMA)

    assert implied_range(predicate, CONTEXT) == (KeyRange(), predicate)


def test_a_range_that_is_asked_for_may_name_leading_columns_only() -> None:
    found = asked_range(("a", ("b", date(1970, 1, 4))), CONTEXT.encoder)

    assert found == KeyRange(prefix("a"), prefix("b", 3))


def test_an_open_side_is_none() -> None:
    assert asked_range((None, None), CONTEXT.encoder) == KeyRange()
    assert asked_range(("a", None), CONTEXT.encoder) == KeyRange(prefix("a"), None)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (5, InvalidArgument),
        (("a",), InvalidArgument),
        (("a", "b", "c"), InvalidArgument),
        (((), "b"), InvalidArgument),
        ((("a", date(1970, 1, 1), 2, 3), None), InvalidArgument),
        (("b", "a"), InvalidArgument),
        ((7, None), SchemaMismatch),
    ],
    ids=["number", "one", "three", "empty", "too many columns", "backwards", "wrong type"],
)
def test_a_range_that_makes_no_sense_is_refused(asked: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        asked_range(asked, CONTEXT.encoder)
