"""Filters as text: PyIceberg's own parser is the oracle."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import expressions as oracle
from pyiceberg.expressions import parser

from neve.errors import InvalidArgument, LimitExceeded
from neve.model.predicate import ALWAYS_FALSE, ALWAYS_TRUE, Predicate, col
from neve.read.filter_text import parse_filter
from tests.unit.read.table_bench import schema_of

SCHEMA = schema_of(
    [
        pa.field("id", pa.int64()),
        pa.field("a", pa.int32()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(9, 2)),
        pa.field("name", pa.string()),
        pa.field("with space", pa.string()),
        pa.field("ok", pa.bool_()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ],
    ["id"],
)

TEXTS = [
    "a = 1",
    "a == 1",
    "a != 1",
    "a <> 1",
    "a < 1",
    "a<=1",
    "a > -1",
    "a >= +1",
    "1 < a",
    "1 <= a",
    "1 > a",
    "1 >= a",
    "1 = a",
    "1 != a",
    "f > 2.5",
    "f < -.5",
    "d = 12.25",
    "name = 'x'",
    "name = 'it''s'",
    "name = ''",
    r"name = 'a\b'",
    "ok = true",
    "ok != FALSE",
    "a in (1)",
    "a in (1, 2,3)",
    "a not in (1, 2)",
    "name IN ('x', 'y')",
    "name like 'ab%'",
    "name like '%'",
    "name like 'ab'",
    r"name like '50\%'",
    "name not like 'ab%'",
    "name NOT LIKE 'ab'",
    "a is null",
    "a IS NOT NULL",
    "f is nan",
    "f is not nan",
    "a between 1 and 5",
    "a between 1 and 5 and f > 1.5",
    "not a = 1",
    "not not a = 1",
    "NOT (a = 1 or f > 1.5)",
    "a = 1 and f > 1.5 and name = 'x'",
    "a = 1 or f > 1.5 or name = 'x'",
    "a = 1 or f > 1.5 and name = 'x'",
    "(a = 1 or f > 1.5) and not name = 'x'",
    "((a = 1))",
    "\"with space\" = 'x'",
    '"a" = 1',
    "ts >= '2024-01-01T00:00:00+00:00'",
    "true",
    "false",
    "  a\n=\t1  ",
]

COMPARISONS: dict[type[Any], str] = {
    oracle.EqualTo: "__eq__",
    oracle.NotEqualTo: "__ne__",
    oracle.LessThan: "__lt__",
    oracle.LessThanOrEqual: "__le__",
    oracle.GreaterThan: "__gt__",
    oracle.GreaterThanOrEqual: "__ge__",
    oracle.StartsWith: "starts_with",
    oracle.NotStartsWith: "not_starts_with",
}
QUESTIONS: dict[type[Any], str] = {
    oracle.IsNull: "is_null",
    oracle.NotNull: "not_null",
    oracle.IsNaN: "is_nan",
    oracle.NotNaN: "not_nan",
}


def as_predicate(found: Any) -> Predicate:  # noqa: ANN401 - of a library without types
    """Say the same as an expression of PyIceberg."""
    kind = type(found)
    if kind is oracle.AlwaysTrue:
        return ALWAYS_TRUE
    if kind is oracle.AlwaysFalse:
        return ALWAYS_FALSE
    if kind is oracle.And:
        return as_predicate(found.left) & as_predicate(found.right)
    if kind is oracle.Or:
        return as_predicate(found.left) | as_predicate(found.right)
    if kind is oracle.Not:
        return ~as_predicate(found.child)
    column = col(found.term.name)
    if kind in COMPARISONS:
        made = getattr(column, COMPARISONS[kind])(found.literal.value)
    elif kind in QUESTIONS:
        made = getattr(column, QUESTIONS[kind])()
    else:
        members = [literal.value for literal in found.literals]
        made = column.is_in(members) if kind is oracle.In else column.not_in(members)
    assert isinstance(made, Predicate)
    return made


@pytest.mark.parametrize("text", TEXTS)
def test_text_means_what_it_means_to_pyiceberg(text: str) -> None:
    expected = as_predicate(parser.parse(text))

    assert parse_filter(text).bind(SCHEMA) == expected.bind(SCHEMA)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a =",
        "= 1",
        "a = 1 b = 2",
        "a = 1 and",
        "(a = 1",
        "a = 1)",
        "a in ()",
        "a in (1",
        "a in 1",
        "a like 1",
        "a = null",
        "a is 5",
        "a between 1",
        "not",
        "a = b",
        "1 = 1",
        "name = 'x",
        "a = #",
        "a not = 1",
    ],
)
def test_what_pyiceberg_refuses_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever a library raises
        parser.parse(text)

    with pytest.raises(InvalidArgument, match=r"cannot be read at character \d+"):
        parse_filter(text)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("name like '%son'", col("name").like("%son")),
        ("name not like '%a%'", ~col("name").like("%a%")),
        ("name like 'it''s _'", col("name").like("it's _")),
        (r"name like '\_%'", col("name").like(r"\_%")),
    ],
)
def test_like_takes_any_pattern_of_sql(text: str, predicate: Predicate) -> None:
    assert parse_filter(text) == predicate


def test_the_place_of_a_mistake_is_counted_from_one() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_filter("amount > 5 and nmae ~ 'x'")

    assert "at character 21: unexpected '~'" in str(caught.value)


def test_a_comparison_with_null_says_how_to_ask() -> None:
    with pytest.raises(InvalidArgument, match="is null"):
        parse_filter("a = null")


def test_decimal_literals_are_exact() -> None:
    assert parse_filter("d = 0.1") == (col("d") == Decimal("0.1"))


def test_true_and_false_may_be_joined_with_conditions() -> None:
    assert parse_filter("true and a = 1").bind(SCHEMA) == (col("a") == 1).bind(SCHEMA)


def test_nesting_is_bounded() -> None:
    with pytest.raises(LimitExceeded):
        parse_filter("(" * 5_000 + "a = 1" + ")" * 5_000)
    with pytest.raises(LimitExceeded):
        parse_filter("not " * 5_000 + "a = 1")


def test_long_chains_are_not_nesting() -> None:
    text = " or ".join(f"a = {number}" for number in range(3_000))

    assert str(parse_filter(text)).count("a ==") == 3_000


def test_numbers_of_any_length_are_read() -> None:
    assert parse_filter("a < " + "9" * 6_000).bind(SCHEMA) == (col("a") < 2**31).bind(SCHEMA)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a > 1 & id > 2", "Write and between conditions"),
        ("s = 'C:\\'", "End the text that begins there"),
        ("s = 'two\nlines'", "End the text that begins there"),
        ("a > 1 || id > 2", "Write or between conditions"),
        ("!ok", "Write not before a condition"),
        ("id + 1 > 3", "does not calculate"),
        ("id+1 > 3", "does not calculate"),
        ("id % 2 = 0", "does not calculate"),
        ("ts > 2024-01-31", "dates in single quotes"),
        ("name = a§b", "names with other signs in double quotes"),
    ],
)
def test_signs_of_other_languages_are_answered_with_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_filter(text)

    assert hint in str(caught.value.hint)
