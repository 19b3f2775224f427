"""Predicates: how they are written, tied to a schema, and evaluated on rows."""

import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import InvalidArgument, LimitExceeded, NotFound, SchemaMismatch
from neve.model.bound_predicate import (
    AllOf,
    Always,
    AnyOf,
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    Operator,
)
from neve.model.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    PREDICATE_DEPTH_MAX,
    And,
    ColumnName,
    Condition,
    Not,
    Or,
    Predicate,
    col,
)
from neve.model.schema import TableSchema

COLUMNS: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "n": pa.int32(),
    "x": pa.float64(),
    "price": pa.decimal128(9, 2),
    "ts": pa.timestamp("us", "UTC"),
    "name": pa.string(),
    "raw": pa.binary(),
    "flag": pa.bool_(),
    "u": pa.uuid(),
    "day": pa.date32(),
    "tags": pa.list_(pa.string()),
    "a.b": pa.int32(),
}
NAN = math.nan
SCHEMA = TableSchema.from_arrow(pa.schema(COLUMNS), primary_key=["id"])
BATCH = pa.record_batch(
    {
        "n": pa.array([1, 2, None, -1, 5], pa.int32()),
        "x": pa.array([math.nan, -0.0, 1.5, None, math.inf], pa.float64()),
        "price": pa.array([Decimal("1.00"), Decimal("1.01"), None, Decimal(-1), Decimal(2)],
                          pa.decimal128(9, 2)),
        "ts": pa.array([0, 1, None, -1, 86_400_000_000], pa.timestamp("us", "UTC")),
        "name": pa.array(["anna", "an", None, "", "éa"], pa.string()),
        "raw": pa.array([b"\xff\x00", b"\xff", None, b"", b"a"], pa.binary()),
        "flag": pa.array([True, False, None, True, False], pa.bool_()),
        "u": pa.array([UUID(int=n).bytes if n else None for n in (1, 2, 0, 3, 4)], pa.uuid()),
        "day": pa.array([0, 1, None, -1, 2], pa.date32()),
        "tags": pa.array([["a"], [], None, ["b"], None], pa.list_(pa.string())),
        "a.b": pa.array([1, 2, 3, None, 5], pa.int32()),
    }
)  # fmt: skip


CODED = BATCH.set_column(4, "name", BATCH.column("name").dictionary_encode())


def column(name: str) -> BoundColumn:
    found = SCHEMA.column(name)
    return BoundColumn(found.field_id, found.name, found.type)


def chosen(predicate: Predicate) -> list[int]:
    """Rows that evaluation chooses, if Arrow's own filter and one of a dictionary do the same."""
    bound = predicate.bind(SCHEMA)
    rows = [row for row, answer in enumerate(bound.evaluate(BATCH).to_pylist()) if answer]
    assert bound.evaluate(CODED).to_pylist() == bound.evaluate(BATCH).to_pylist()
    assert bound.evaluate(CODED.slice(2)).to_pylist() == bound.evaluate(BATCH.slice(2)).to_pylist()
    numbered = pa.table(BATCH).append_column("row", pa.array(range(BATCH.num_rows)))
    assert numbered.filter(bound.to_arrow())["row"].to_pylist() == rows
    return rows


MISUSES: dict[str, Callable[[], object]] = {
    "bool": lambda: bool(col("n") == 1),
    "chain": lambda: 1 < col("n") < 5,
    "and": lambda: (col("n") == 1) and (col("n") == 2),
    "or": lambda: (col("n") == 1) or (col("n") == 2),
    "not": lambda: not (col("n") > 1),
    "in": lambda: col("n") in [1, 2],
}


@pytest.mark.parametrize("misuse", MISUSES.values(), ids=MISUSES)
def test_pythons_own_logic_on_a_predicate_is_refused_with_a_hint(
    misuse: Callable[[], object],
) -> None:
    with pytest.raises(InvalidArgument, match="Join predicates with &"):
        misuse()


def test_the_refusal_shows_a_long_predicate_in_short() -> None:
    with pytest.raises(InvalidArgument) as caught:
        bool(col("name").is_in(["x" * 1000] * 1000))
    assert len(str(caught.value)) < 600


REFUSED_LITERALS: dict[str, tuple[Callable[[], object], str]] = {
    "none": (lambda: col("n") == None, "is_null"),  # noqa: E711 - that is the mistake
    "none in a set": (lambda: col("n").is_in([1, None]), "is_null"),
    "nan": (lambda: col("x") != NAN, "is_nan"),
    "numpy nan": (lambda: col("x") < np.float32("nan"), "is_nan"),
    "decimal nan": (lambda: col("price").not_in([Decimal("sNaN")]), "is_nan"),
    "column": (lambda: col("n") > col("id"), "Compare a column with a value"),
    "list": (lambda: col("n") == [1], "Use a number, text"),
    "arrow scalar": (lambda: col("n") >= pa.scalar(1), "Use a number, text"),
    "text as a set": (lambda: col("name").is_in("abc"), "Pass a list"),
    "bytes as a set": (lambda: col("raw").not_in(b"abc"), "Pass a list"),
    "number as a set": (lambda: col("n").is_in(5), "Pass a list"),  # type: ignore[arg-type]
    "predicate joined with a number": (lambda: (col("n") > 1) & 5, "in parentheses"),  # type: ignore[operator]
    "number joined with a predicate": (lambda: (col("n") > 1) | True, "in parentheses"),  # type: ignore[operator]
    "name no text": (lambda: col(5), 'Write col("name")'),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("build", "hint"), REFUSED_LITERALS.values(), ids=REFUSED_LITERALS)
def test_what_makes_no_sense_is_refused_while_it_is_written(
    build: Callable[[], object], hint: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        build()
    assert hint in str(caught.value)


def test_an_unknown_column_is_not_found() -> None:
    with pytest.raises(NotFound, match="nam"):
        (col("n") > 1).__and__(col("nam") == "x").bind(SCHEMA)


@pytest.mark.parametrize(
    "predicate",
    [
        col("n") == "five",
        col("n") == "1_000",
        col("x") > "NaN",
        col("raw") == "0",
        col("flag") == "true",
        col("flag") == 1,
        col("ts") >= "2024-01-01T00:00:00",
        col("name").is_in(["a", 5]),
        col("name").starts_with(b"a"),
        col("raw").starts_with("a"),
        ~(col("u") == "nonsense"),
    ],
    ids=str,
)
def test_a_literal_that_does_not_fit_its_column_names_both(predicate: Predicate) -> None:
    with pytest.raises(SchemaMismatch, match="was compared with") as caught:
        predicate.bind(SCHEMA)
    assert caught.value.column in COLUMNS
    assert f"column {caught.value.column!r}" in caught.value.message


@pytest.mark.parametrize(
    ("predicate", "hint"),
    [
        (col("n").is_nan(), "a float column"),
        (col("price").not_nan(), "a float column"),
        (col("n").starts_with("1"), "a string or binary column"),
        (col("u").not_starts_with("1"), "a string or binary column"),
        (col("tags") == "a", "only is_null and not_null"),
        (col("tags").is_in([]), "only is_null and not_null"),
    ],
    ids=str,
)
def test_an_operator_the_column_cannot_answer_is_refused(predicate: Predicate, hint: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        predicate.bind(SCHEMA)
    assert hint in str(caught.value)


def test_what_is_no_predicate_cannot_be_bound() -> None:
    class Stranger(Predicate):
        pass

    with pytest.raises(InvalidArgument, match="Stranger is not a predicate"):
        Stranger().bind(SCHEMA)


def deepest_predicate() -> Predicate:
    predicate: Predicate = col("n") == 0
    for depth in range(PREDICATE_DEPTH_MAX - 1):
        predicate = predicate & ALWAYS_TRUE if depth % 2 else predicate | ALWAYS_FALSE
    return predicate


def test_nesting_beyond_the_limit_is_refused_while_it_is_written() -> None:
    deepest = deepest_predicate()

    builds: list[Callable[[], Predicate]] = [
        lambda: ~deepest,
        lambda: And((deepest,)),
        lambda: Or((deepest, ALWAYS_TRUE)),
    ]
    for build in builds:
        with pytest.raises(LimitExceeded) as caught:
            build()
        assert caught.value.limit == PREDICATE_DEPTH_MAX


def test_the_deepest_predicate_can_be_bound_shown_hashed_and_compared() -> None:
    deepest = deepest_predicate()

    assert deepest.bind(SCHEMA) == (col("n") == 0).bind(SCHEMA)
    assert "n == 0" in str(deepest)
    assert "n == 0" in repr(deepest)
    assert hash(deepest) == hash(deepest_predicate())
    assert deepest == deepest_predicate()
    with pytest.raises(InvalidArgument, match="Join predicates"):
        bool(deepest)


def test_what_is_no_predicate_cannot_be_joined() -> None:
    builds: list[Callable[[], Predicate]] = [
        lambda: And((5,)),  # type: ignore[arg-type]
        lambda: Or(("n",)),  # type: ignore[arg-type]
        lambda: Not(None),  # type: ignore[arg-type]
    ]
    for build in builds:
        with pytest.raises(InvalidArgument, match="is not a predicate"):
            build()


@pytest.mark.parametrize(
    "literal",
    [10**5_000, -(10**5_000), "x" * 2_000_000, b"x" * 2_000_000, Decimal("1" * 100_000)],
    ids=["great int", "small int", "text", "bytes", "decimal"],
)
def test_a_literal_too_long_to_read_is_shown_in_short(literal: object) -> None:
    predicate = ~(col("n") < literal)

    assert len(str(predicate)) < 300
    assert len(repr(predicate)) < 300
    with pytest.raises(InvalidArgument) as caught:
        bool(predicate)
    assert len(str(caught.value)) < 600


def test_an_int_of_thousands_of_digits_keeps_its_meaning() -> None:
    assert chosen(col("n") < 10**5_000) == chosen(col("n").not_null())
    assert chosen(col("n") < -(10**5_000)) == []


def test_a_name_too_long_to_read_is_shown_in_short() -> None:
    name = "n" * 2_000_000
    calls: list[Callable[[], object]] = [
        lambda: col(name) == None,  # noqa: E711 - that is the mistake
        lambda: col(name).is_in("abc"),
        lambda: bool(col(name) > 5),
        lambda: (col(name) > 5).bind(SCHEMA),
    ]
    for call in calls:
        with pytest.raises((InvalidArgument, NotFound)) as caught:
            call()
        assert len(str(caught.value)) < 600
    assert len(repr(col(name))) < 300
    assert len(str(col(name) > 5)) < 300


def test_long_chains_are_not_deep() -> None:
    predicate: Predicate = ALWAYS_FALSE
    for number in range(5_000):
        predicate |= col("n") == number

    bound = predicate.bind(SCHEMA)

    assert bound.evaluate(BATCH).to_pylist() == [True, True, False, False, True]
    # Arrow walks a chain recursively and would end the process.
    with pytest.raises(LimitExceeded, match="too many conditions") as caught:
        bound.to_arrow()
    assert caught.value.actual == 5_000


def test_conditions_are_counted_over_all_levels_for_arrow() -> None:
    rows = [
        Or(tuple(col("n") == number for number in range(40))) & (col("id") > row)
        for row in range(40)
    ]

    with pytest.raises(LimitExceeded, match="too many conditions"):
        Or(tuple(rows)).bind(SCHEMA).to_arrow()


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("n") > 5, "n > 5"),
        (col("name").not_in(["a", "b"]), "name not in ('a', 'b')"),
        (~col("x").is_null(), "not (x is null)"),
        (~~(col("n") == 1), "n == 1"),
        ((col("n") > 1) & (col("n") < 5) & ALWAYS_TRUE, "(n > 1) and (n < 5) and (true)"),
        ((col("n") > 1) | ALWAYS_FALSE, "(n > 1) or (false)"),
        (5 > col("n"), "n < 5"),  # noqa: SIM300 - the other way round
    ],
)
def test_predicates_read_as_they_were_written(predicate: Predicate, text: str) -> None:
    assert str(predicate) == text


def test_predicates_are_values() -> None:
    assert (col("n") > 5) == Condition("n", Operator.GT, (5,))
    assert hash(col("n") > 5) == hash(col("n") > 5)
    assert (col("n") > 5) != (col("n") > 6)
    buffer = bytearray(b"a")
    predicate = col("raw") == buffer
    buffer[0] = 0
    assert predicate == (col("raw") == b"a")
    assert repr(col("n")) == "col('n')"
    with pytest.raises(TypeError, match="unhashable"):
        hash(ColumnName("n"))


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("n") == 1, [0]),
        (col("n") != 1, [1, 3, 4]),
        (col("n") < 2, [0, 3]),
        (col("n") <= 2, [0, 1, 3]),
        (col("n") > 2, [4]),
        (col("n") >= 2, [1, 4]),
        (col("n").is_in([5, 1, 1, 99]), [0, 4]),
        (col("n").not_in([5, 1]), [1, 3]),
        (col("n").is_in([]), []),
        (col("n").not_in([]), [0, 1, 3, 4]),
        (col("n").is_null(), [2]),
        (col("n").not_null(), [0, 1, 3, 4]),
        (~(col("n") == 1), [1, 3, 4]),
        (~(col("n") < 2), [1, 4]),
        (~col("n").is_in([5, 1]), [1, 3]),
        (~(col("n").not_null() & (col("n") > 1)), [0, 2, 3]),
        (~((col("n") > 1) | (col("flag") == True)), []),  # noqa: E712 - a column, not a bool
        ((col("n") > 1) | col("n").is_null(), [1, 2, 4]),
        (ALWAYS_TRUE, [0, 1, 2, 3, 4]),
        (~ALWAYS_TRUE, []),
        (col("a.b") >= 3, [2, 4]),
        (col("tags").is_null(), [2, 4]),
        (~col("tags").is_null(), [0, 1, 3]),
    ],
    ids=str,
)
def test_null_matches_is_null_and_nothing_else(predicate: Predicate, rows: list[int]) -> None:
    assert chosen(predicate) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("x") < 2, [1, 2]),
        (col("x") >= 2, [4]),
        (~(col("x") < 2), [0, 4]),
        (~(col("x") >= 2), [0, 1, 2]),
        (col("x") != 1.5, [0, 1, 4]),
        (~(col("x") == 1.5), [0, 1, 4]),
        (col("x").not_in([1.5, 2]), [0, 1, 4]),
        (col("x").is_nan(), [0]),
        (col("x").not_nan(), [1, 2, 4]),
        (~col("x").is_nan(), [1, 2, 4]),
        (col("x").not_null(), [0, 1, 2, 4]),
        (col("x") == 0.0, [1]),
        (col("x").is_in([0.0, 7.0]), [1]),
        (col("x").not_in([0.0, 7.0]), [0, 2, 4]),
        (col("x") <= math.inf, [1, 2, 4]),
        (col("x") > 10**400, [4]),
        (col("x") < 10**400, [1, 2]),
    ],
    ids=lambda value: str(value)[:40],
)
def test_nan_is_unequal_and_in_no_order(predicate: Predicate, rows: list[int]) -> None:
    assert chosen(predicate) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("n") > 1.5, [1, 4]),
        (col("n") >= 1.5, [1, 4]),
        (col("n") < 1.5, [0, 3]),
        (col("n") <= -0.5, [3]),
        (col("n") == 1.5, []),
        (col("n") != 1.5, [0, 1, 3, 4]),
        (~(col("n") == 1.5), [0, 1, 3, 4]),
        (col("n").is_in([1.5, 2.0]), [1]),
        (col("n") < 1 << 40, [0, 1, 3, 4]),
        (col("n") > 1 << 40, []),
        (col("n") > -(1 << 40), [0, 1, 3, 4]),
        (col("n") <= -(1 << 40), []),
        (col("n") != 1 << 40, [0, 1, 3, 4]),
        (col("price") > 1.005, [1, 4]),
        (col("price") <= "1.005", [0, 3]),
        (col("price") == Decimal("1.010"), [1]),
        (col("price") < 10**20, [0, 1, 3, 4]),
        (col("ts") > "1970-01-01T00:00:00.0000005Z", [1, 4]),
        (col("day") < "1970-01-02", [0, 3]),
    ],
    ids=str,
)
def test_a_literal_the_column_cannot_hold_keeps_its_meaning(
    predicate: Predicate, rows: list[int]
) -> None:
    assert chosen(predicate) == rows


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("ts") >= "1970-01-01T01:00:00+01:00", [0, 1, 4]),
        (col("name").starts_with("an"), [0, 1]),
        (col("name").not_starts_with("an"), [3, 4]),
        (~col("name").starts_with("an"), [3, 4]),
        (col("name").starts_with(""), [0, 1, 3, 4]),
        (col("name").starts_with("é"), [4]),
        (col("name") > "anna", [4]),
        (col("raw").starts_with(b"\xff"), [0, 1]),
        (col("raw") >= b"a", [0, 1, 4]),
        (col("flag") == True, [0, 3]),  # noqa: E712 - a column, not a bool
        (col("flag") < True, [1, 4]),
        (col("u") == UUID(int=2), [1]),
        (col("u") > str(UUID(int=2)), [3, 4]),
        (col("u").is_in([UUID(int=1), UUID(int=4)]), [0, 4]),
        (col("u").not_in([UUID(int=1), UUID(int=4)]), [1, 3]),
        (col("u").is_null(), [2]),
    ],
    ids=str,
)
def test_every_type_is_compared_in_its_own_order(predicate: Predicate, rows: list[int]) -> None:
    assert chosen(predicate) == rows


def test_binding_pushes_negation_into_the_operators() -> None:
    predicate = ~((col("n") > 5) & ~(col("name") == "a") & ~col("ts").is_null())

    assert predicate.bind(SCHEMA) == AnyOf(
        (
            BoundCondition(column("n"), Operator.LE, (5,)),
            BoundCondition(column("name"), Operator.EQ, ("a",)),
            BoundCondition(column("ts"), Operator.IS_NULL),
        )
    )


@pytest.mark.parametrize(
    ("predicate", "bound"),
    [
        (ALWAYS_TRUE & ALWAYS_FALSE, Always(answer=False)),
        (ALWAYS_TRUE | (col("n") == 1), Always(answer=True)),
        (ALWAYS_TRUE & (col("n") == 1), BoundCondition(column("n"), Operator.EQ, (1,))),
        (ALWAYS_FALSE | (col("n") == 1), BoundCondition(column("n"), Operator.EQ, (1,))),
        (And(()), Always(answer=True)),
        (Or(()), Always(answer=False)),
        (Not(Not(col("n") == 1)), BoundCondition(column("n"), Operator.EQ, (1,))),
        (col("n").is_in([900, -5, 7, 7]), BoundCondition(column("n"), Operator.IN, (-5, 7, 900))),
        (col("n").is_in([3, 3.0]), BoundCondition(column("n"), Operator.EQ, (3,))),
        (
            And(((col("n") > 1) & (col("n") < 5), col("id") == 1)),
            AllOf(
                (
                    BoundCondition(column("n"), Operator.GT, (1,)),
                    BoundCondition(column("n"), Operator.LT, (5,)),
                    BoundCondition(column("id"), Operator.EQ, (1,)),
                )
            ),
        ),
    ],
)
def test_binding_gives_the_shortest_form(predicate: Predicate, bound: BoundPredicate) -> None:
    assert predicate.bind(SCHEMA) == bound


def test_a_bound_predicate_names_the_columns_it_reads() -> None:
    bound = ((col("n") > 1) & ((col("x") == 1) | (col("n") == 3))).bind(SCHEMA)

    assert bound.field_ids == {SCHEMA.column("n").field_id, SCHEMA.column("x").field_id}
    assert ALWAYS_TRUE.bind(SCHEMA).field_ids == frozenset()


def test_evaluating_without_the_column_or_on_another_type_is_refused() -> None:
    bound = (col("n") > 1).bind(SCHEMA)

    with pytest.raises(SchemaMismatch, match="no column 'n'"):
        bound.evaluate(pa.record_batch({"m": pa.array([1])}))
    with pytest.raises(SchemaMismatch, match="is int64 in the batch"):
        bound.evaluate(pa.record_batch({"n": pa.array([1])}))


def test_no_rows_give_no_answers() -> None:
    bound = ((col("n") > 1) | col("x").is_nan()).bind(SCHEMA)

    assert len(bound.evaluate(BATCH.slice(0, 0))) == 0


@pytest.mark.parametrize(
    ("predicate", "rows"),
    [
        (col("n") >= "1.5", [1, 4]),
        (col("x") == "1.5", [2]),
        (col("price") > "1.00", [1, 4]),
        (col("ts") >= "1970-01-01", [0, 1, 4]),
        (col("ts") >= date(1970, 1, 2), [4]),
        (col("ts") < "19700101", [3]),
        (col("ts") == "1970-01-01T01:00:00+01:00", [0]),
        (col("day") == "1970-01-02", [1]),
        (col("raw") == "FF00", [0]),
        (col("raw").starts_with("ff"), [0, 1]),
        (col("raw").is_in(["", "61"]), [3, 4]),
        (col("u") == "00000000-0000-0000-0000-000000000002", [1]),
        (col("name").like("%n"), [1]),
        (~col("name").like("%a"), [1, 3]),
        (col("name").like("_a"), [4]),
    ],
    ids=str,
)
def test_text_spells_what_a_column_holds(predicate: Predicate, rows: list[int]) -> None:
    assert chosen(predicate) == rows
