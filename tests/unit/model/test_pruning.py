"""What facts about rows say about a predicate, as tables of cases."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from neve.model.plain_values import PlainValue
from neve.model.predicate import ALWAYS_FALSE, ALWAYS_TRUE, Predicate, col
from neve.model.pruning import ColumnFacts, Match, match
from neve.model.schema import TableSchema
from tests.unit.model.column_facts import facts_of

COLUMNS: dict[str, pa.DataType] = {
    "n": pa.int32(),
    "x": pa.float64(),
    "s": pa.string(),
    "raw": pa.binary(),
    "u": pa.uuid(),
}
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["n"])
N, X, S = col("n"), col("x"), col("s")
NEVER, SOME, ALWAYS = Match.NEVER, Match.SOME, Match.ALWAYS


def facts(
    lower: PlainValue | None = None,
    upper: PlainValue | None = None,
    *,
    nulls: int | None = 0,
    nans: int | None = 0,
    rows: int | None = 10,
) -> ColumnFacts:
    return ColumnFacts(lower=lower, upper=upper, null_count=nulls, nan_count=nans, row_count=rows)


def answer(predicate: Predicate, **columns: ColumnFacts) -> Match:
    known = {SCHEMA.column(name).field_id: each for name, each in columns.items()}
    return match(predicate.bind(SCHEMA), known)


TEN_TO_TWENTY = {
    # predicate            before 10  at 10   inside  at 20   after 20
    "n == v": (N.__eq__,    NEVER,    SOME,   SOME,   SOME,   NEVER),
    "n != v": (N.__ne__,    ALWAYS,   SOME,   SOME,   SOME,   ALWAYS),
    "n < v":  (N.__lt__,    NEVER,    NEVER,  SOME,   SOME,   ALWAYS),
    "n <= v": (N.__le__,    NEVER,    SOME,   SOME,   ALWAYS, ALWAYS),
    "n > v":  (N.__gt__,    ALWAYS,   SOME,   SOME,   NEVER,  NEVER),
    "n >= v": (N.__ge__,    ALWAYS,   ALWAYS, SOME,   SOME,   NEVER),
}  # fmt: skip


@pytest.mark.parametrize("name", TEN_TO_TWENTY)
def test_comparisons_with_rows_from_10_to_20(name: str) -> None:
    compare, *expected = TEN_TO_TWENTY[name]

    answers = [answer(compare(value), n=facts(10, 20)) for value in (9, 10, 15, 20, 21)]

    assert answers == expected


@pytest.mark.parametrize("name", TEN_TO_TWENTY)
def test_a_null_among_the_rows_turns_always_into_some(name: str) -> None:
    compare, *expected = TEN_TO_TWENTY[name]

    for nulls in (1, None):
        answers = [
            answer(compare(value), n=facts(10, 20, nulls=nulls)) for value in (9, 10, 15, 20, 21)
        ]
        assert answers == [SOME if each is ALWAYS else each for each in expected]


@pytest.mark.parametrize("name", TEN_TO_TWENTY)
def test_a_missing_bound_only_loses_answers(name: str) -> None:
    compare, *expected = TEN_TO_TWENTY[name]

    for known in (facts(10), facts(None, 20), facts()):
        for value, wanted in zip((9, 10, 15, 20, 21), expected, strict=True):
            assert answer(compare(value), n=known) in (wanted, SOME)
    assert answer(N < 10, n=facts(10)) is NEVER
    assert answer(N > 20, n=facts(None, 20)) is NEVER


@pytest.mark.parametrize(
    ("predicate", "known", "expected"),
    [
        (N == 5, facts(5, 5), ALWAYS),
        (N != 5, facts(5, 5), NEVER),
        (N.is_in([1, 9]), facts(2, 8), NEVER),
        (N.is_in([1, 5, 9]), facts(2, 8), SOME),
        (N.is_in([5, 6]), facts(5, 5), ALWAYS),
        (N.is_in([5, 6]), facts(None, 4), NEVER),
        (N.is_in([5, 6]), facts(7, None), NEVER),
        (N.is_in([5, 6]), facts(6, None), SOME),
        (N.not_in([1, 9]), facts(2, 8), ALWAYS),
        (N.not_in([1, 9]), facts(2, 8, nulls=1), SOME),
        (N.not_in([5, 6]), facts(5, 5), NEVER),
        (N.is_null(), facts(1, 2), NEVER),
        (N.is_null(), facts(1, 2, nulls=3), SOME),
        (N.is_null(), facts(1, 2, nulls=None), SOME),
        (N.is_null(), facts(nulls=10), ALWAYS),
        (N.is_null(), facts(nulls=10, rows=None), SOME),
        (N.not_null(), facts(nulls=10), NEVER),
        (N.not_null(), facts(), ALWAYS),
        (N != 5, facts(nulls=10), NEVER),
        (N < 5, facts(nulls=10), NEVER),
        (N < 5, facts(nulls=10, nans=None), NEVER),
        (N < 5, facts(rows=0), NEVER),
        (N.is_null(), facts(rows=0), NEVER),
        (N < 5, ColumnFacts(), SOME),
        (N.is_null(), ColumnFacts(), SOME),
        (ALWAYS_TRUE, facts(), ALWAYS),
        (ALWAYS_FALSE, facts(), NEVER),
    ],
)
def test_sets_and_nulls(predicate: Predicate, known: ColumnFacts, expected: Match) -> None:
    assert answer(predicate, n=known) is expected


@pytest.mark.parametrize(
    ("predicate", "known", "expected"),
    [
        (X < 5, facts(1.0, 2.0), ALWAYS),
        (X < 5, facts(1.0, 2.0, nans=1), SOME),
        (X < 5, facts(1.0, 2.0, nans=None), SOME),
        (X > 5, facts(1.0, 2.0, nans=1), NEVER),
        (X > 5, facts(1.0, 2.0, nans=None), NEVER),
        (X != 5, facts(1.0, 2.0, nans=None), ALWAYS),
        (X != 5, facts(5.0, 5.0, nans=1), SOME),
        (X.not_in([5, 6]), facts(5.0, 5.0, nans=None), SOME),
        (~(X < 5), facts(1.0, 2.0, nans=1), SOME),
        (~(X < 5), facts(1.0, 2.0), NEVER),
        (~(X > 5), facts(1.0, 2.0, nans=3), SOME),
        (X < 5, facts(nans=10), NEVER),
        (X == 5, facts(nulls=4, nans=6), NEVER),
        (X != 5, facts(nans=10), ALWAYS),
        (X != 5, facts(nulls=4, nans=6), SOME),
        (X.is_nan(), facts(nans=10), ALWAYS),
        (X.is_nan(), facts(1.0, 2.0), NEVER),
        (X.is_nan(), facts(1.0, 2.0, nans=None), SOME),
        (X.is_nan(), facts(1.0, 2.0, nans=2), SOME),
        (X.not_nan(), facts(1.0, 2.0), ALWAYS),
        (X.not_nan(), facts(1.0, 2.0, nulls=1), SOME),
        (X.not_nan(), facts(nans=10), NEVER),
        (X < 5, facts(math.nan, math.nan), SOME),
        (X > 5, facts(1.0, math.nan), SOME),
        (X == 0.0, facts(-0.0, -0.0), ALWAYS),
        (col("x") < math.inf, facts(1.0, math.inf), SOME),
    ],
)
def test_nan_is_a_group_of_its_own_outside_the_bounds(
    predicate: Predicate, known: ColumnFacts, expected: Match
) -> None:
    assert answer(predicate, x=known) is expected


@pytest.mark.parametrize(
    ("predicate", "known", "expected"),
    [
        (S.starts_with("ab"), facts("aa", "abz"), SOME),
        (S.starts_with("ab"), facts("ab", "abz"), ALWAYS),
        (S.starts_with("ab"), facts("ab", "ab"), ALWAYS),
        (S.starts_with("ab"), facts("ab", "ac"), SOME),
        (S.starts_with("ab"), facts("ac", "b"), NEVER),
        (S.starts_with("ab"), facts("", "aa"), NEVER),
        (S.starts_with("ab"), facts("", "a"), NEVER),
        (S.starts_with("ab"), facts("", "b"), SOME),
        (S.starts_with("ab"), facts("abc", None), SOME),
        (S.starts_with("ab"), facts("b", None), NEVER),
        (S.starts_with("ab"), facts(None, "aa"), NEVER),
        (S.starts_with(""), facts(None, "aa"), SOME),
        (S.starts_with(""), facts("", "aa"), ALWAYS),
        (S.not_starts_with("ab"), facts("ab", "abz"), NEVER),
        (S.not_starts_with("ab"), facts("ac", "b"), ALWAYS),
        (S.not_starts_with("ab"), facts("ac", "b", nulls=1), SOME),
        (S.not_starts_with("ab"), facts("ab", "ac"), SOME),
        (S > "é", facts("a", "z"), NEVER),
        (S < "😀", facts("a", "z"), ALWAYS),
        # An upper bound that was cut off and raised is no value of the column.
        (S == "b", facts("aaaa", "b"), SOME),
    ],
)
def test_prefixes_lie_next_to_each_other(
    predicate: Predicate, known: ColumnFacts, expected: Match
) -> None:
    assert answer(predicate, s=known) is expected


def test_and_needs_all_and_or_needs_one() -> None:
    never, some, always = N > 20, N > 15, N > 5
    known = facts(10, 20)
    predicates = {NEVER: never, SOME: some, ALWAYS: always}

    for left, left_answer in zip(predicates.values(), predicates, strict=True):
        for right, right_answer in zip(predicates.values(), predicates, strict=True):
            both = {left_answer, right_answer}
            joined = answer(left & right, n=known), answer(left | right, n=known)
            assert joined == (
                NEVER if NEVER in both else SOME if SOME in both else ALWAYS,
                ALWAYS if ALWAYS in both else SOME if SOME in both else NEVER,
            )


def test_columns_without_facts_say_nothing() -> None:
    assert answer(N == 5, s=facts("a", "b")) is SOME
    assert answer((N == 5) & (S > "c"), s=facts("a", "b")) is NEVER


@pytest.mark.parametrize("bound", ["text", b"bytes"])
@pytest.mark.parametrize("predicate", [N == 5, N < 5, N.is_in([1, 2])], ids=str)
def test_bounds_of_another_kind_say_nothing(predicate: Predicate, bound: str | bytes) -> None:
    assert answer(predicate, n=facts(bound, bound)) is SOME
    assert answer(S.starts_with("a"), s=facts(1, 2)) is SOME


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([3, None, -1], pa.int32()), facts(-1, 3, nulls=1, rows=3)),
        (pa.array([None], pa.string()), facts(nulls=1, rows=1)),
        (pa.array([], pa.int64()), facts(rows=0)),
        (pa.array([1.5, math.nan, None]), facts(1.5, 1.5, nulls=1, nans=1, rows=3)),
        (pa.array([math.nan, math.nan]), facts(nans=2, rows=2)),
        (pa.array([b"b" * 16, b"a" * 16], pa.uuid()), facts(b"a" * 16, b"b" * 16, rows=2)),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
         facts(Decimal("1.50"), Decimal("1.50"), rows=1)),
        (pa.array([1 << 62], pa.timestamp("ns")), facts(1 << 62, 1 << 62, rows=1)),
        (pa.array([True, False]), facts(False, True, rows=2)),
        (pa.array([[1], None]), facts(nulls=1, rows=2)),
    ],
)  # fmt: skip
def test_facts_are_taken_from_a_column(
    array: "pa.Array[pa.Scalar[pa.DataType]]", expected: ColumnFacts
) -> None:
    assert facts_of(array) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, facts(5, 5, rows=1)),
        (None, facts(nulls=1, rows=1)),
        (math.nan, facts(nans=1, rows=1)),
    ],
)
def test_facts_of_one_value_are_exact(value: PlainValue | None, expected: ColumnFacts) -> None:
    assert ColumnFacts.of_value(value) == expected
