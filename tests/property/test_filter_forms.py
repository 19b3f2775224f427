"""A filter chooses the same rows as text, `neve.col`, an expression of PyIceberg and one of Arrow.

The oracle is plain Python over plain values, with SQL's three answers; the table has files in two
partitions, deleted rows and rows in memory, and a column of each type with NULL and NaN.
"""

import importlib
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import neve
from neve.catalog.table import Table
from neve.model.predicate import And, ColumnName, Not, Or, Predicate, col
from neve.storage.memory_store import forget_memory_stores

Value = bool | int | float | Decimal | str | bytes | date | time | datetime | UUID
Expression = pc.Expression

# By name: mypy takes the signatures of its classes for others than they have.
iceberg: Any = importlib.import_module("pyiceberg.expressions")

NEW_YEAR: Final = datetime(2024, 1, 1, tzinfo=UTC)
MOMENTS: Final = [NEW_YEAR, NEW_YEAR + timedelta(hours=5, microseconds=1), NEW_YEAR.replace(year=1)]
TYPES: Final[dict[str, pa.DataType]] = {
    "bool": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(9, 2),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "ts": pa.timestamp("us"),
    "tstz": pa.timestamp("us", "UTC"),
    "ns": pa.timestamp("ns"),
    "nstz": pa.timestamp("ns", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed": pa.binary(3),
    "uuid": pa.uuid(),
}
VALUES: Final[dict[str, list[Value]]] = {
    "bool": [True, False],
    "int": [-(1 << 31), -1, 0, 1, 5, (1 << 31) - 1],
    "long": [-(1 << 63), -1, 0, 7, 1 << 40],
    "float": [-1.5, -0.0, 0.0, 2.5, math.inf],
    "double": [-1.5, 0.0, 0.1, 1e300, -math.inf],
    "decimal": [Decimal("-1.50"), Decimal("0.00"), Decimal("9.50"), Decimal("9999999.99")],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29)],
    "time": [time(0), time(12, 30), time(23, 59, 59, 999_999)],
    "ts": [moment.replace(tzinfo=None) for moment in MOMENTS],
    "tstz": [*MOMENTS],
    "ns": [moment.replace(tzinfo=None) for moment in MOMENTS[:2]],
    "nstz": [*MOMENTS[:2]],
    "string": ["", "a", "ab", "abc", "b%", "é_", "it's", r"a\b", "😀a"],
    "binary": [b"", b"\x00", b"a\xff", b"ab"],
    "fixed": [b"\x00\x00\x00", b"abc", b"\xff\x00a"],
    "uuid": [UUID(int=0), UUID(int=1), UUID(int=(1 << 128) - 1)],
}
INFINITE: Final = (math.inf, -math.inf)
FLOATS: Final = ("float", "double")
COMPARISONS: Final[dict[str, Callable[[object, object], object]]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,  # type: ignore[operator]
    "<=": lambda left, right: left <= right,  # type: ignore[operator]
    ">": lambda left, right: left > right,  # type: ignore[operator]
    ">=": lambda left, right: left >= right,  # type: ignore[operator]
}
ICEBERG: Final = {
    "=": iceberg.EqualTo,
    "!=": iceberg.NotEqualTo,
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
}
PATTERNS: Final = ["%a%", "a%", "%b", "_", "a_c", r"b\%", "%", "a%c", r"é\_", "_a", r"a\%", "ab"]


@dataclass(frozen=True)
class Asked:
    """One condition in every form that can say it, and its answer for a value."""

    text: str
    predicate: Predicate = field(repr=False)
    iceberg: neve.Filter | None = field(repr=False)
    """None where PyIceberg has no words for it."""
    arrow: Expression | None = field(repr=False)
    answer: Callable[[dict[str, object]], bool | None] = field(repr=False)


def spelled(value: Value) -> str:
    """Write a literal as a filter takes it."""
    match value:
        case bool():
            return str(value).lower()
        case int() | Decimal():
            return str(value)
        case float():
            return repr(value)
        case bytes():
            return f"'{value.hex()}'"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime() if value == NEW_YEAR:
            return "'2024-01-01'"
        case date() | time():
            return f"'{value.isoformat()}'"
        case _:
            return f"'{value}'"


def arrow_value(name: str, value: Value) -> Expression:
    return pc.scalar(pa.scalar(value, TYPES[name]))  # type: ignore[arg-type]  # any scalar


def about(name: str, ask: Callable[[object], bool]) -> Callable[[dict[str, object]], bool | None]:
    """Return the answer for a row: unknown where the value is NULL."""
    return lambda row: None if row[name] is None else ask(row[name])


@st.composite
def comparisons(draw: st.DrawFn) -> Asked:
    name = draw(st.sampled_from(list(TYPES)))
    sign = draw(st.sampled_from(list(COMPARISONS)))
    # Infinity is a value of columns, but no number that text can say.
    value = draw(st.sampled_from([each for each in VALUES[name] if each not in INFINITE]))
    compare = COMPARISONS[sign]
    quoted = (
        isinstance(value, int | Decimal) and not isinstance(value, bool) and draw(st.booleans())
    )
    text = f"'{value!s}'" if quoted else spelled(value)
    return Asked(
        f"{name} {sign} {text}",
        cast("Predicate", compare(col(name), str(value) if quoted else value)),
        ICEBERG[sign](name, value),
        None
        if name == "uuid"
        else cast("Expression", compare(pc.field(name), arrow_value(name, value))),
        about(name, lambda cell: bool(compare(cell, value))),
    )


@st.composite
def memberships(draw: st.DrawFn) -> Asked:
    name = draw(st.sampled_from([each for each in TYPES if each not in FLOATS]))
    values = draw(st.lists(st.sampled_from(VALUES[name]), min_size=2, max_size=3, unique=True))
    is_denied = draw(st.booleans())
    word, kind = ("not in", iceberg.NotIn) if is_denied else ("in", iceberg.In)
    column: ColumnName = col(name)
    arrow: Expression | None = None
    if name != "uuid":
        # Not is_in: Arrow finds NULL in no set, and says so.
        arrow = pc.field(name) == arrow_value(name, values[0])
        for value in values[1:]:
            arrow = arrow | (pc.field(name) == arrow_value(name, value))
        arrow = ~arrow if is_denied else arrow
    return Asked(
        f"{name} {word} ({', '.join(map(spelled, values))})",
        column.not_in(values) if is_denied else column.is_in(values),
        kind(name, values),
        arrow,
        about(name, lambda cell: (cell in values) != is_denied),
    )


@st.composite
def questions(draw: st.DrawFn) -> Asked:
    name = draw(st.sampled_from(list(TYPES)))
    if name in FLOATS and draw(st.booleans()):
        return Asked(
            f"{name} is nan",
            col(name).is_nan(),
            iceberg.IsNaN(name),
            pc.is_nan(pc.field(name)),
            about(name, lambda cell: cell != cell),  # noqa: PLR0124 - NaN alone
        )
    return Asked(
        f"{name} is null",
        col(name).is_null(),
        iceberg.IsNull(name),
        pc.field(name).is_null(),
        lambda row: row[name] is None,
    )


@st.composite
def patterns(draw: st.DrawFn) -> Asked:
    pattern = draw(st.sampled_from(PATTERNS))
    is_denied = draw(st.booleans())
    predicate = col("string").like(pattern)
    # Arrow's own like, not the regular expression that neve makes.
    like = pc.match_like(pc.field("string"), pattern)
    said = iceberg.StartsWith("string", "a") if pattern == "a%" else None
    if said is not None and is_denied:
        said = iceberg.NotStartsWith("string", "a")
    return Asked(
        f"string {'not ' * is_denied}like '{pattern}'",
        ~predicate if is_denied else predicate,
        said,
        ~like if is_denied else like,
        about("string", lambda cell: is_like(str(cell), pattern) != is_denied),
    )


def is_like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    if pattern[0] == "_":
        return bool(text) and is_like(text[1:], pattern[1:])
    literal = pattern[1:] if pattern[0] == "\\" else pattern
    return text[:1] == literal[0] and is_like(text[1:], literal[1:])


def denied(asked: Asked) -> Asked:
    def answer(row: dict[str, object]) -> bool | None:
        inner = asked.answer(row)
        return None if inner is None else not inner

    return Asked(
        f"not ({asked.text})",
        Not(asked.predicate),
        None if asked.iceberg is None else iceberg.Not(asked.iceberg),
        None if asked.arrow is None else ~asked.arrow,
        answer,
    )


def joined(left: Asked, right: Asked, *, both: bool) -> Asked:
    def answer(row: dict[str, object]) -> bool | None:
        answers = (left.answer(row), right.answer(row))
        if (not both) in answers:
            return not both
        return None if None in answers else both

    kind, parts = (And, iceberg.And) if both else (Or, iceberg.Or), (left, right)
    expression: Expression | None = None
    if left.arrow is not None and right.arrow is not None:
        expression = left.arrow & right.arrow if both else left.arrow | right.arrow
    return Asked(
        f"({left.text}) {'and' if both else 'or'} ({right.text})",
        kind[0](tuple(part.predicate for part in parts)),
        None if None in (left.iceberg, right.iceberg) else kind[1](left.iceberg, right.iceberg),
        expression,
        answer,
    )


FILTERS: Final = st.recursive(
    st.one_of(comparisons(), memberships(), questions(), patterns()),
    lambda inner: (
        inner.map(denied)
        | st.builds(lambda left, right: joined(left, right, both=True), inner, inner)
        | st.builds(lambda left, right: joined(left, right, both=False), inner, inner)
    ),
    max_leaves=5,
)


@dataclass(frozen=True)
class Filled:
    """A table, and the rows it has by what Python says of them."""

    table: Table = field(repr=False)
    rows: list[dict[str, object]] = field(repr=False)


def some_rows(seed: int, count: int) -> list[dict[str, object]]:
    dice = random.Random(seed)
    rows: list[dict[str, object]] = []
    for number in range(count):
        row: dict[str, object] = {"id": number}
        for name, values in VALUES.items():
            cells: list[object] = [*values, None, None]
            if name in FLOATS:
                cells += [math.nan, math.nan]
            row[name] = dice.choice(cells)
        rows.append(row)
    return rows


@pytest.fixture(scope="module", params=[(), ("truncate(1, string)", "bool"), ("bucket(3, long)",)])
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    schema = pa.schema([("id", pa.int64()), *TYPES.items()])
    with neve.open("memory://filter-forms") as lake:
        table = lake.create_table("t.all", schema, primary_key=["id"], partition_by=request.param)
        rows = some_rows(1, 90)
        for start in (0, 30):
            table.upsert(pa.Table.from_pylist(rows[start : start + 30], schema=schema))
            table.flush()
        table.upsert(pa.Table.from_pylist(rows[60:], schema=schema))
        table.delete_many([5, 35, 65])
        kept = [row for row in rows if row["id"] not in (5, 35, 65)]
        yield Filled(table, kept)
    forget_memory_stores()


@given(asked=FILTERS)
def test_a_filter_chooses_the_same_rows_in_every_form(filled: Filled, asked: Asked) -> None:
    expected = [row["id"] for row in filled.rows if asked.answer(row) is True]

    forms: dict[str, neve.Filter | None] = {
        "text": asked.text,
        "predicate": asked.predicate,
        "pyiceberg": asked.iceberg,
        "arrow": asked.arrow,
    }
    for form, filter_ in forms.items():
        if filter_ is not None:
            found = filled.table.scan(filter_, columns=["id"]).to_arrow().sort_by("id")
            assert found["id"].to_pylist() == expected, (form, asked.text)
