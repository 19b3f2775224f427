"""Rows chosen, rows pruned, partitions pruned: all compared with a naive reading of the rules."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import SchemaMismatch
from neve.model.bound_predicate import BoundPredicate, Operator
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import PlainValue, is_float, less, plain_of
from neve.model.predicate import And, Condition, Constant, Not, Or, Predicate
from neve.model.pruning import ColumnFacts, Match, match, project
from neve.model.schema import TableSchema
from neve.model.transforms import Bucket, Identity, TimePart, TimeUnit, Transform, Truncate
from tests.property.column_values import KINDS
from tests.unit.model.column_facts import facts_of

Row = dict[str, PlainValue | None]
Unknown = None

NAMES = tuple(KINDS)
SCHEMA = TableSchema.from_arrow(
    pa.schema([pa.field("key", pa.int64()), *(pa.field(name, KINDS[name].type) for name in NAMES)]),
    primary_key=["key"],
)
COMPARISONS: dict[Operator, Callable[[object, object], bool]] = {
    Operator.EQ: lambda left, right: left == right,
    Operator.NE: lambda left, right: left != right,
    Operator.LT: lambda left, right: left < right,  # type: ignore[operator]
    Operator.LE: lambda left, right: left <= right,  # type: ignore[operator]
    Operator.GT: lambda left, right: left > right,  # type: ignore[operator]
    Operator.GE: lambda left, right: left >= right,  # type: ignore[operator]
}
# Numbers that the column itself cannot hold.
BETWEEN: dict[str, list[object]] = {
    "int": [2.5, -0.5, 1 << 40, -(1 << 40), Decimal("1.01"), math.inf, -math.inf],
    "long": [2.5, 1e30, -1e30, Decimal("-1e500"), Decimal("1e-500")],
    "decimal": [Decimal("1.005"), Decimal("-0.001"), 10**9, -(10**9), math.inf],
    "wide_decimal": [Decimal("1e-11"), Decimal("1e40"), Decimal("-1e40")],
    "date": [1 << 40, -(1 << 40)],
    "time": [-1, 86_400_000_000],
    "timestamp": [1 << 70, -(1 << 70)],
    "float": [1 << 200, -(1 << 200)],
    "double": [10**400, -(10**400)],
}


@dataclass(frozen=True)
class Rows:
    """Some rows and the columns they fill."""

    names: tuple[str, ...]
    rows: list[Row]

    @property
    def batch(self) -> pa.RecordBatch:
        arrays = {
            name: pa.array([row[name] for row in self.rows], KINDS[name].type)
            for name in self.names
        }
        return pa.record_batch(arrays) if arrays else pa.record_batch([], names=[])


@st.composite
def tables(draw: st.DrawFn) -> tuple[Rows, Predicate]:
    """Draw rows, and a predicate over values some of which are theirs."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    pools = {name: draw(st.lists(KINDS[name].values, min_size=1, max_size=5)) for name in names}
    cells: dict[str, st.SearchStrategy[PlainValue | None]] = {}
    for name in names:
        cells[name] = st.none() | st.sampled_from(pools[name])
        if is_float(KINDS[name].type):
            cells[name] |= st.just(math.nan)
    rows = draw(st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=8))
    conditions = st.one_of([_conditions(name, pools[name]) for name in names])
    predicates: st.SearchStrategy[Predicate] = st.recursive(
        conditions | st.booleans().map(Constant),
        lambda inner: (
            inner.map(Not)
            | st.lists(inner, min_size=2, max_size=3).map(lambda some: And(tuple(some)))
            | st.lists(inner, min_size=2, max_size=3).map(lambda some: Or(tuple(some)))
        ),
        max_leaves=6,
    )
    return Rows(tuple(names), rows), draw(predicates)


def _conditions(name: str, pool: list[PlainValue]) -> st.SearchStrategy[Predicate]:
    kind = KINDS[name]
    literals: st.SearchStrategy[object] = st.sampled_from(pool) | kind.values
    if name in BETWEEN:
        literals |= st.sampled_from(BETWEEN[name])
    choices = [
        st.builds(
            Condition, st.just(name), st.sampled_from(list(COMPARISONS)), st.tuples(literals)
        ),
        st.builds(
            Condition,
            st.just(name),
            st.sampled_from([Operator.IN, Operator.NOT_IN]),
            st.lists(literals, max_size=4).map(tuple),
        ),
        st.builds(Condition, st.just(name), st.sampled_from([Operator.IS_NULL, Operator.NOT_NULL])),
    ]
    if is_float(kind.type):
        nan_tests = st.sampled_from([Operator.IS_NAN, Operator.NOT_NAN])
        choices.append(st.builds(Condition, st.just(name), nan_tests))
    if name in ("string", "binary"):
        prefixes = st.tuples(
            st.builds(lambda text, cut: text[:cut], st.sampled_from(pool), st.integers(0, 5))
            | kind.values
        )
        prefix_tests = st.sampled_from([Operator.STARTS_WITH, Operator.NOT_STARTS_WITH])
        choices.append(st.builds(Condition, st.just(name), prefix_tests, prefixes))
    if name == "string":
        like_tests = st.sampled_from([Operator.LIKE, Operator.NOT_LIKE])
        choices.append(st.builds(Condition, st.just(name), like_tests, st.tuples(_patterns(pool))))
    return st.one_of(choices)


def _patterns(pool: list[PlainValue]) -> st.SearchStrategy[str]:
    """Draw patterns: any signs, or one of the texts with some of its characters replaced."""
    signs = st.sampled_from(["%", "_", r"\%", r"\_", r"\\", "\\", "a", "é", "\x00", "\n", "."])
    texts = [text for text in pool if isinstance(text, str)]
    near = st.builds(
        lambda text, at, sign: text[:at] + sign + text[at + 1 :],
        st.sampled_from(texts),
        st.integers(0, 5),
        signs,
    )
    return st.lists(signs, max_size=6).map("".join) | near


def is_like(text: str, pattern: str) -> bool:
    """Match as the rules are written, one character after the other."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(is_like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    if pattern[0] == "_":
        return bool(text) and is_like(text[1:], pattern[1:])
    if pattern[0] == "\\" and pattern[1:2] in ("%", "_", "\\"):
        pattern = pattern[1:]
    return text[:1] == pattern[0] and is_like(text[1:], pattern[1:])


def naive(predicate: Predicate, row: Row) -> bool | None:
    """Evaluate with three values, as SQL does: true, false, unknown."""
    if isinstance(predicate, Constant):
        return predicate.answer
    if isinstance(predicate, Not):
        inner = naive(predicate.operand, row)
        return Unknown if inner is Unknown else not inner
    if isinstance(predicate, Condition):
        return naive_condition(predicate.operator, row[predicate.column], predicate.literals)
    assert isinstance(predicate, And | Or)
    answers = {naive(operand, row) for operand in predicate.operands}
    decisive = isinstance(predicate, Or)
    if decisive in answers:
        return decisive
    return Unknown if Unknown in answers else not decisive


def naive_condition(
    operator: Operator, value: PlainValue | None, literals: tuple[object, ...]
) -> bool | None:
    if operator in (Operator.IS_NULL, Operator.NOT_NULL):
        return (value is None) == (operator is Operator.IS_NULL)
    if value is None:
        return Unknown
    if operator in COMPARISONS:
        return COMPARISONS[operator](value, literals[0])
    if operator in (Operator.IN, Operator.NOT_IN):
        found = any(value == literal for literal in literals)
        return found == (operator is Operator.IN)
    if operator in (Operator.IS_NAN, Operator.NOT_NAN):
        return (value != value) == (operator is Operator.IS_NAN)  # noqa: PLR0124
    if operator in (Operator.LIKE, Operator.NOT_LIKE):
        (pattern,) = literals
        assert isinstance(value, str)
        assert isinstance(pattern, str)
        return is_like(value, pattern) == (operator is Operator.LIKE)
    (prefix,) = literals
    assert isinstance(value, str | bytes)
    assert isinstance(prefix, str | bytes)
    return (value[: len(prefix)] == prefix) == (operator is Operator.STARTS_WITH)


def weakened(data: st.DataObject, facts: ColumnFacts, others: list[PlainValue]) -> ColumnFacts:
    """Forget facts and move bounds apart, as cut-off text and lost statistics do."""
    if isinstance(facts.lower, str | bytes) and data.draw(st.booleans()):
        facts = replace(facts, lower=facts.lower[: data.draw(st.integers(0, 3))])
    if isinstance(facts.upper, str) and data.draw(st.booleans()):
        facts = replace(facts, upper=facts.upper[:1] + "\U0010ffff" * 6)
    for other in others:
        if facts.lower is not None and less(other, facts.lower) and data.draw(st.booleans()):
            facts = replace(facts, lower=other)
        if facts.upper is not None and less(facts.upper, other) and data.draw(st.booleans()):
            facts = replace(facts, upper=other)
    for name in ("lower", "upper", "null_count", "nan_count", "row_count"):
        if data.draw(st.integers(0, 4)) == 0:
            facts = replace(facts, **{name: None})
    return facts


def chosen_rows(bound: BoundPredicate, rows: Rows) -> list[bool]:
    answers = bound.evaluate(rows.batch)
    assert answers.null_count == 0
    return [bool(answer) for answer in answers.to_pylist()]


@st.composite
def specs(draw: st.DrawFn, names: tuple[str, ...], *, all_of_them: bool = False) -> PartitionSpec:
    parameters = st.integers(1, 4) | st.integers(1, (1 << 31) - 1)
    fields: list[PartitionField] = []
    for name in names:
        options: list[st.SearchStrategy[Transform]] = [
            st.just(Identity()),
            st.sampled_from(TimeUnit).map(TimePart),
            parameters.map(Bucket),
            parameters.map(Truncate),
        ]
        column = SCHEMA.column(name)
        for option in options:
            transform = draw(option)
            if transform.accepts(column.type) and (all_of_them or draw(st.booleans())):
                fields.append(
                    PartitionField(
                        source_id=column.field_id,
                        field_id=1000 + len(fields),
                        name=f"f{len(fields)}",
                        transform=transform,
                    )
                )
    return PartitionSpec(0, tuple(fields))


def partition_of(
    cells: Row, names: tuple[str, ...], spec: PartitionSpec
) -> dict[int, ColumnFacts] | None:
    """Facts of the partition a row falls into; None for a row that is refused."""
    try:
        values = spec.values(Rows(names, [cells]).batch, SCHEMA)
    except SchemaMismatch:
        return None
    return {
        field.field_id: ColumnFacts.of_value(plain_of(array[0]))
        for field, array in zip(spec.fields, values, strict=True)
    }


@dataclass(frozen=True)
class OneColumn:
    """A column of few values, and every condition that can be asked of them."""

    name: str
    cells: list[PlainValue | None]
    conditions: list[Condition]

    @property
    def rows(self) -> Rows:
        return Rows((self.name,), [{self.name: cell} for cell in self.cells])

    def answers(self, condition: Predicate) -> list[bool]:
        return [naive(condition, row) is True for row in self.rows.rows]


@st.composite
def one_column(draw: st.DrawFn) -> OneColumn:
    name = draw(st.sampled_from(NAMES))
    type_ = KINDS[name].type
    pool = draw(st.lists(KINDS[name].values, min_size=1, max_size=4))
    cells: st.SearchStrategy[PlainValue | None] = st.sampled_from(pool)
    if draw(st.booleans()):
        cells |= st.none()
    if is_float(type_) and draw(st.booleans()):
        cells |= st.just(math.nan)
    literals = [*pool, *BETWEEN.get(name, [])[:2]]
    conditions = [Condition(name, Operator.IS_NULL), Condition(name, Operator.NOT_NULL)]
    conditions += [Condition(name, each, (value,)) for each in COMPARISONS for value in literals]
    for each in (Operator.IN, Operator.NOT_IN):
        conditions += [Condition(name, each, tuple(literals[:size])) for size in range(5)]
    if is_float(type_):
        conditions += [Condition(name, Operator.IS_NAN), Condition(name, Operator.NOT_NAN)]
    for each in (Operator.STARTS_WITH, Operator.NOT_STARTS_WITH):
        conditions += [
            Condition(name, each, (value[:size],))
            for value in pool
            if isinstance(value, str | bytes) and name in ("string", "binary")
            for size in range(len(value) + 1)
        ]
    if name == "string":
        patterns = draw(st.lists(_patterns(pool), max_size=8))
        conditions += [Condition(name, Operator.LIKE, (pattern,)) for pattern in patterns]
    return OneColumn(name, draw(st.lists(cells, min_size=1, max_size=4)), conditions)


@given(one_column())
def test_every_condition_on_a_column_chooses_its_rows(column: OneColumn) -> None:
    for condition in column.conditions:
        for predicate in (condition, Not(condition)):
            chosen = chosen_rows(predicate.bind(SCHEMA), column.rows)
            assert chosen == column.answers(predicate), predicate


@given(one_column(), st.data())
def test_every_condition_on_a_column_is_pruned_soundly(
    column: OneColumn, data: st.DataObject
) -> None:
    exact = facts_of(column.rows.batch.column(column.name))
    others = data.draw(st.lists(KINDS[column.name].values, max_size=2))
    weak = weakened(data, exact, others)
    field_id = SCHEMA.column(column.name).field_id
    for condition in column.conditions:
        for predicate in (condition, Not(condition)):
            bound, chosen = predicate.bind(SCHEMA), column.answers(predicate)
            for facts in (exact, weak):
                answer = match(bound, {field_id: facts})
                assert answer is not Match.NEVER or not any(chosen), (predicate, facts)
                assert answer is not Match.ALWAYS or all(chosen), (predicate, facts)


@given(one_column(), st.data())
def test_every_condition_on_a_column_is_projected_soundly(
    column: OneColumn, data: st.DataObject
) -> None:
    spec = data.draw(specs((column.name,), all_of_them=True))
    partitions = [partition_of(cells, column.rows.names, spec) for cells in column.rows.rows]
    for condition in column.conditions:
        for predicate in (condition, Not(condition)):
            projected = project(predicate.bind(SCHEMA), spec)
            for partition, chosen in zip(partitions, column.answers(predicate), strict=True):
                if chosen and partition is not None:
                    assert match(projected, partition) is not Match.NEVER, (predicate, partition)


@given(tables())
def test_rows_are_chosen_as_three_valued_logic_chooses_them(case: tuple[Rows, Predicate]) -> None:
    rows, predicate = case

    chosen = chosen_rows(predicate.bind(SCHEMA), rows)

    assert chosen == [naive(predicate, row) is True for row in rows.rows]


@given(tables())
def test_arrow_filters_the_rows_that_evaluation_chooses(case: tuple[Rows, Predicate]) -> None:
    rows, predicate = case
    bound = predicate.bind(SCHEMA)
    numbered = pa.table(rows.batch).append_column("row", pa.array(range(len(rows.rows))))

    filtered = numbered.filter(bound.to_arrow())

    chosen = chosen_rows(bound, rows)
    assert filtered["row"].to_pylist() == [row for row, answer in enumerate(chosen) if answer]


@given(tables(), st.data())
def test_pruning_never_loses_a_row_and_never_promises_one_too_many(
    case: tuple[Rows, Predicate], data: st.DataObject
) -> None:
    rows, predicate = case
    bound = predicate.bind(SCHEMA)
    batch = rows.batch
    facts = {}
    for name in rows.names:
        if data.draw(st.integers(0, 5)) > 0:
            others = data.draw(st.lists(KINDS[name].values, max_size=2))
            exact = facts_of(batch.column(name))
            facts[SCHEMA.column(name).field_id] = weakened(data, exact, others)

    answer = match(bound, facts)

    chosen = [naive(predicate, row) is True for row in rows.rows]
    if answer is Match.NEVER:
        assert not any(chosen)
    if answer is Match.ALWAYS:
        assert all(chosen)


@given(tables(), st.data())
def test_a_pruned_partition_holds_no_row_that_matches(
    case: tuple[Rows, Predicate], data: st.DataObject
) -> None:
    rows, predicate = case
    spec = data.draw(specs(rows.names))
    projected = project(predicate.bind(SCHEMA), spec)
    assert projected.field_ids <= {field.field_id for field in spec.fields}
    for cells in rows.rows:
        partition = partition_of(cells, rows.names, spec)
        if partition is not None and naive(predicate, cells) is True:
            assert match(projected, partition) is not Match.NEVER
