"""Patterns of `like`, their pieces and what they match."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from neve.errors import InvalidArgument, LimitExceeded, SchemaMismatch
from neve.model.bound_predicate import (
    LIKE_PATTERN_MAX,
    AllOf,
    AnyOf,
    BoundCondition,
    LikePattern,
    Operator,
    escaped,
    like_regex,
)
from neve.model.predicate import Predicate, col
from neve.model.pruning import ColumnFacts, Match, match
from neve.model.schema import TableSchema

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "name": pa.string(),
    "raw": pa.binary(),
    "u": pa.uuid(),
    "day": pa.date32(),
}
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"])
NAME = SCHEMA.column("name").field_id


def matches(text: str, pattern: str) -> bool:
    return bool(pc.match_substring_regex(pa.array([text]), like_regex(pattern))[0].as_py())


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("%a%", ["a", "xa", "ax", "xax", "\na\n"], ["", "A", "é"]),
        ("a%", ["a", "ab"], ["", "ba"]),
        ("%a", ["a", "ba"], ["ab", "a\n"]),
        ("a_c", ["abc", "aéc", "a😀c", "a\nc", "a%c"], ["ac", "abbc"]),
        ("a%c", ["ac", "abbc"], ["acx", "xac"]),
        ("", [""], ["a"]),
        ("_", ["é", "\n"], ["", "ab"]),
        ("%%", ["", "x"], []),
        ("%_%", ["x", "xy"], [""]),
        (r"50\%", ["50%"], ["50x", r"50\%"]),
        (r"a\_%", ["a_b"], ["axb"]),
        (r"\\%", ["\\", "\\x"], ["x"]),
        (r"C:\temp%", [r"C:\temp\x"], ["C:temp"]),
        ("a.b", ["a.b"], ["axb"]),
        ("%(x|y)[z]^$*+?{1}", ["(x|y)[z]^$*+?{1}"], ["x"]),
        ("a\x00%b", ["a\x00b", "a\x00xb"], ["ab"]),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(text, pattern)] == []
    assert [text for text in no if matches(text, pattern)] == []


@pytest.mark.parametrize("text", ["", "100%", "a_b", "\\", r"\%", "plain"])
def test_an_escaped_text_matches_itself_and_nothing_else(text: str) -> None:
    pattern = LikePattern.parse(escaped(text))

    assert pattern.is_text
    assert pattern.prefix == text
    assert str(pattern) == escaped(text)


@pytest.mark.parametrize(
    ("predicate", "operators"),
    [
        (col("name").like("ab"), (Operator.EQ,)),
        (~col("name").like("ab"), (Operator.NE,)),
        (col("name").like("ab%"), (Operator.STARTS_WITH,)),
        (~col("name").like("ab%%"), (Operator.NOT_STARTS_WITH,)),
        (col("name").like("%ab"), (Operator.LIKE,)),
        (col("name").like("ab%c"), (Operator.STARTS_WITH, Operator.LIKE)),
        (~col("name").like("ab%c"), (Operator.NOT_STARTS_WITH, Operator.NOT_LIKE)),
    ],
    ids=str,
)
def test_a_pattern_becomes_the_simplest_conditions(
    predicate: Predicate, operators: tuple[Operator, ...]
) -> None:
    bound = predicate.bind(SCHEMA)

    operands = bound.operands if isinstance(bound, AllOf | AnyOf) else (bound,)
    assert {each.operator for each in operands if isinstance(each, BoundCondition)} == set(
        operators
    )


@pytest.mark.parametrize(
    ("pattern", "lower", "upper", "answer"),
    [
        ("b%x", "a", "az", Match.NEVER),
        ("b%x", "a", "c", Match.SOME),
        ("%x%", "a", "c", Match.SOME),
        ("%x%", "axe", "axe", Match.ALWAYS),
        ("%x%", "ape", "ape", Match.NEVER),
    ],
)
def test_a_pattern_prunes_by_its_beginning_and_by_a_single_value(
    pattern: str, lower: str, upper: str, answer: Match
) -> None:
    facts = ColumnFacts(lower=lower, upper=upper, null_count=0, row_count=5)

    assert match(col("name").like(pattern).bind(SCHEMA), {NAME: facts}) is answer


@pytest.mark.parametrize("column", ["id", "raw", "u", "day"])
def test_only_text_has_patterns(column: str) -> None:
    with pytest.raises(InvalidArgument, match="Use a string column"):
        col(column).like("a%").bind(SCHEMA)


def test_a_pattern_is_text() -> None:
    with pytest.raises(SchemaMismatch, match="Pass a str"):
        col("name").like(5).bind(SCHEMA)  # type: ignore[arg-type]


def test_the_length_of_a_pattern_is_bounded() -> None:
    assert matches("x" * LIKE_PATTERN_MAX, "_" * LIKE_PATTERN_MAX)
    with pytest.raises(LimitExceeded):
        col("name").like("_" * (LIKE_PATTERN_MAX + 1)).bind(SCHEMA)
