"""Expressions of PyIceberg as predicates.

    EqualTo("amount", 5)        col("amount") == 5
    StartsWith("name", "A")     col("name").starts_with("A")
    And, Or, Not, In, IsNull …  the same by their names

They mean what neve's own filters mean, also by NULL and NaN. A date, time or moment in one is a
number without a column's unit, so a column is needed to read it. An expression that was bound
belongs to another schema and is refused.

Nothing here loads PyIceberg: someone who passes an expression has done that.
"""

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, Protocol, cast

import pyarrow as pa

from neve.errors import InvalidArgument, LimitExceeded
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.bound_predicate import named_field
from neve.model.predicate import (
    ALWAYS_FALSE,
    ALWAYS_TRUE,
    PREDICATE_DEPTH_MAX,
    And,
    ColumnName,
    Or,
    Predicate,
    col,
)
from neve.model.schema import TableSchema

_HOME: Final = "pyiceberg.expressions"
_DAY_MICROSECONDS: Final = 86_400_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Compare = Callable[[ColumnName, object], Predicate]
_COMPARISONS: Final[dict[str, _Compare]] = {
    "EqualTo": lambda column, value: column == value,
    "NotEqualTo": lambda column, value: column != value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "StartsWith": lambda column, value: column.starts_with(cast("str", value)),
    "NotStartsWith": lambda column, value: column.not_starts_with(cast("str", value)),
}
_QUESTIONS: Final[dict[str, Callable[[ColumnName], Predicate]]] = {
    "IsNull": ColumnName.is_null,
    "NotNull": ColumnName.not_null,
    "IsNaN": ColumnName.is_nan,
    "NotNaN": ColumnName.not_nan,
}


class IcebergExpression(Protocol):
    """An expression of PyIceberg, known to type checkers by what it can do."""

    def __invert__(self) -> "IcebergExpression":
        """Say the opposite."""
        ...

    def model_dump_json(self) -> str:
        """Spell it as JSON."""
        ...


class _Expression(Protocol):
    """What the expressions of PyIceberg have, each kind some of it."""

    left: "_Expression"
    right: "_Expression"
    child: "_Expression"
    term: "_Term"
    literal: "_Literal"
    literals: "set[_Literal]"


class _Term(Protocol):
    name: str


class _Literal(Protocol):
    value: object


def is_iceberg_expression(asked: object) -> bool:
    """Return whether this is an expression of PyIceberg."""
    home = sys.modules.get(_HOME)
    return home is not None and isinstance(asked, home.BooleanExpression)


def iceberg_predicate(expression: object, schema: TableSchema) -> Predicate:
    """Return the predicate of an expression; raises InvalidArgument, NotFound, LimitExceeded."""
    return _predicate(cast("_Expression", expression), schema, depth=0)


def _predicate(asked: _Expression, schema: TableSchema, *, depth: int) -> Predicate:
    if depth >= PREDICATE_DEPTH_MAX:
        raise LimitExceeded(
            "the expression is nested too deeply",
            limit=PREDICATE_DEPTH_MAX,
            hint="Join conditions side by side, or use In",
        )
    kind = type(asked).__name__
    match kind:
        case "AlwaysTrue":
            return ALWAYS_TRUE
        case "AlwaysFalse":
            return ALWAYS_FALSE
        case "And" | "Or":
            operands = tuple(
                _predicate(each, schema, depth=depth + 1) for each in _side_by_side(asked)
            )
            return And(operands) if kind == "And" else Or(operands)
        case "Not":
            return ~_predicate(asked.child, schema, depth=depth + 1)
        case _:
            return _condition(asked, kind, schema)


def _condition(asked: _Expression, kind: str, schema: TableSchema) -> Predicate:
    if kind in _QUESTIONS:
        return _QUESTIONS[kind](_column(asked))
    if kind in _COMPARISONS:
        return _COMPARISONS[kind](_column(asked), _value(asked.literal, asked.term.name, schema))
    if kind in ("In", "NotIn"):
        values = [_value(each, asked.term.name, schema) for each in asked.literals]
        return _column(asked).is_in(values) if kind == "In" else _column(asked).not_in(values)
    raise InvalidArgument(
        f"a filter cannot be made of PyIceberg's {kind}",
        hint="Pass an expression by column names, as it was before it was bound to a schema",
    )


def _side_by_side(asked: _Expression) -> list[_Expression]:
    """Return what a chain of one kind joins: PyIceberg nests it in pairs, thousands deep."""
    joined: list[_Expression] = []
    waiting = [asked]
    while waiting:
        next_one = waiting.pop()
        if type(next_one) is type(asked):
            waiting += [next_one.right, next_one.left]
        else:
            joined.append(next_one)
    return joined


def _column(asked: _Expression) -> ColumnName:
    return col(asked.term.name)


def _value(literal: _Literal, name: str, schema: TableSchema) -> object:
    """Return a literal in the unit of the column of that name, or as a Python value."""
    count, kind = literal.value, type(literal).__name__
    if not isinstance(count, int):
        return count
    type_ = named_field(name, schema).type
    match kind:
        case "DateLiteral" if not pa.types.is_date32(type_):
            if pa.types.is_timestamp(type_):
                return _moment(count * _DAY_MICROSECONDS, type_)
            return _near(count * _DAY_MICROSECONDS).date()
        case "TimestampLiteral":
            if pa.types.is_timestamp(type_):
                return _moment(count, type_)
            return _near(count)
        case "TimeLiteral" if not pa.types.is_time64(type_):
            return _near(count).time()
        case _:
            return count


def _moment(microseconds: int, type_: pa.DataType) -> int:
    kind = kind_of(type_)
    is_fine = kind in (TypeKind.TIMESTAMP_NS, TypeKind.TIMESTAMPTZ_NS)
    return microseconds * 1_000 if is_fine else microseconds


def _near(microseconds: int) -> datetime:
    """Return a moment for a message: the column it is compared with has none."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.combine(date.max, time.max, UTC)
