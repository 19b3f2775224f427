"""Predicates as users write them, and how they are bound to a schema.

    col("amount") > 5
    (col("ts") >= "2024-01-01T00:00:00+00:00") & col("status").is_in(["new", "paid"])
    ~col("note").is_null() | col("name").starts_with("A") | col("name").like("%son")
    col("address.zip") == 5

    Predicate
    ├── Constant       true or false of every row
    ├── Condition      one column, one operator, literals as written
    ├── And, Or        of two or more
    └── Not

MODEL-14  NULL matches `is_null` and nothing else: not `x != 5`, `not in` or their negations.
MODEL-15  NaN is unequal to everything, and neither smaller nor greater: `x != 5` finds it, `x < 5`
          and `x >= 5` do not, `~(x < 5)` does.
MODEL-16  A literal keeps its meaning where the column cannot hold it: `x > 2.5` on integers is `x >
          2`, `x < 2**40` on int32 is every value, `x == 2.5` on integers is never. On float columns
          it is the nearest float.
MODEL-17  Text may spell a value of the column: '9.50' a number, '2024-01-31T12:00:00+00:00' a
          moment, '00ff' bytes, or a uuid. A date is the first moment of its day, in UTC where the
          column has a zone; there a moment without a zone is refused.

`bind` resolves names, converts literals and pushes every negation down into the operators.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import ClassVar, Final, NoReturn
from uuid import UUID

import numpy as np
import pyarrow as pa

from neve.errors import InvalidArgument, LimitExceeded, Phrase, Wording
from neve.model.arrow_types import type_name
from neve.model.bound_predicate import (
    SET_OPERATORS,
    Always,
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    LikePattern,
    Operator,
    all_of,
    any_of,
    named_field,
)
from neve.model.display import shown, shown_type
from neve.model.plain_values import Located, PlainValue, is_float, is_nan, locate
from neve.model.schema_view import SchemaView

# Trees are walked recursively, so their depth is bounded; a chain of "and" or "or" counts once.
PREDICATE_DEPTH_MAX: Final = 100

_OPPOSITES: Final = {
    Operator.EQ: Operator.NE,
    Operator.LT: Operator.GE,
    Operator.LE: Operator.GT,
    Operator.IN: Operator.NOT_IN,
    Operator.IS_NULL: Operator.NOT_NULL,
    Operator.IS_NAN: Operator.NOT_NAN,
    Operator.STARTS_WITH: Operator.NOT_STARTS_WITH,
    Operator.LIKE: Operator.NOT_LIKE,
}
_NEGATED: Final = _OPPOSITES | {opposite: operator for operator, opposite in _OPPOSITES.items()}
_ORDERINGS: Final = frozenset({Operator.LT, Operator.LE, Operator.GT, Operator.GE})
_NULL_TESTS: Final = frozenset({Operator.IS_NULL, Operator.NOT_NULL})
_NAN_TESTS: Final = frozenset({Operator.IS_NAN, Operator.NOT_NAN})
_PATTERN_TESTS: Final = frozenset({Operator.LIKE, Operator.NOT_LIKE})
_PREFIX_TESTS: Final = frozenset({Operator.STARTS_WITH, Operator.NOT_STARTS_WITH})
_SHOWN_MAX: Final = 200
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)
_HEXADECIMAL: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_LITERALS: Final = (
    bool, int, float, Decimal, str, bytes, bytearray, memoryview, date, datetime, time, UUID,
    np.integer, np.floating, np.bool_,
)  # fmt: skip


# Iterable, but one value in a comparison.
_SINGLE: Final = (str, bytes, bytearray, memoryview)


class Predicate:
    """A condition on rows, by column name; joined with `&`, `|` and `~`."""

    __slots__ = ()

    def __and__(self, other: "Predicate") -> "Predicate":
        return And(_operands(self, And) + _operands(other, And))

    def __or__(self, other: "Predicate") -> "Predicate":
        return Or(_operands(self, Or) + _operands(other, Or))

    def __invert__(self) -> "Predicate":
        return self.operand if isinstance(self, Not) else Not(self)

    def __repr__(self) -> str:
        return f"<predicate {self}>"

    def __bool__(self) -> NoReturn:
        raise InvalidArgument(
            f"a predicate is neither true nor false by itself: {str(self)[:_SHOWN_MAX]}",
            hint="Join predicates with &, | and ~ and put each comparison in parentheses; "
            "Python's and, or, not, in and a < x < b do not work on them",
        )

    def bind(self, schema: SchemaView) -> BoundPredicate:
        """Bind to the columns of a schema; raises NotFound, SchemaMismatch, InvalidArgument."""
        return _bind(self, schema, negated=False)


@dataclass(frozen=True, slots=True, repr=False)
class Constant(Predicate):
    """The same answer for every row."""

    answer: bool

    def __str__(self) -> str:
        return "true" if self.answer else "false"


ALWAYS_TRUE: Final = Constant(answer=True)
ALWAYS_FALSE: Final = Constant(answer=False)


@dataclass(frozen=True, slots=True, repr=False)
class Condition(Predicate):
    """A condition on one column; made by `col`."""

    column: str
    operator: Operator
    literals: tuple[object, ...] = ()

    def __str__(self) -> str:
        name = self.column if len(self.column) <= _SHOWN_MAX else f"{self.column[:_SHOWN_MAX]}…"
        text = f"{name} {self.operator}"
        if self.operator in SET_OPERATORS:
            return f"{text} ({', '.join(map(shown, self.literals))})"
        return f"{text} {shown(self.literals[0])}" if self.literals else text


@dataclass(frozen=True, slots=True, repr=False)
class _Joined(Predicate):
    operands: tuple[Predicate, ...]
    depth: int = field(init=False, compare=False)
    word: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth_above(self.operands))

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({operand})" for operand in self.operands)


@dataclass(frozen=True, slots=True, repr=False)
class And(_Joined):
    """Every operand is true."""

    word = "and"


@dataclass(frozen=True, slots=True, repr=False)
class Or(_Joined):
    """Some operand is true."""

    word = "or"


@dataclass(frozen=True, slots=True, repr=False)
class Not(Predicate):
    """The operand is false; unknown because of NULL stays unknown."""

    operand: Predicate
    depth: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _depth_above((self.operand,)))

    def __str__(self) -> str:
        return f"not ({self.operand})"


class ColumnName:
    """A column to compare; what `col` returns."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"col({shown(self.name)})"

    # Comparing makes a predicate, so a column name cannot be looked up in a set or a dict.
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._condition(Operator.EQ, value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return self._condition(Operator.NE, value)

    def __lt__(self, value: object) -> Predicate:
        return self._condition(Operator.LT, value)

    def __le__(self, value: object) -> Predicate:
        return self._condition(Operator.LE, value)

    def __gt__(self, value: object) -> Predicate:
        return self._condition(Operator.GT, value)

    def __ge__(self, value: object) -> Predicate:
        return self._condition(Operator.GE, value)

    def is_in(self, values: Iterable[object]) -> Predicate:
        """Match any of the values."""
        return self._condition(Operator.IN, *self._members(values))

    def not_in(self, values: Iterable[object]) -> Predicate:
        """Match every value except these."""
        return self._condition(Operator.NOT_IN, *self._members(values))

    def is_null(self) -> Predicate:
        """Match NULL."""
        return Condition(self.name, Operator.IS_NULL)

    def not_null(self) -> Predicate:
        """Match every value."""
        return Condition(self.name, Operator.NOT_NULL)

    def is_nan(self) -> Predicate:
        """Match NaN; float columns only."""
        return Condition(self.name, Operator.IS_NAN)

    def not_nan(self) -> Predicate:
        """Match every value except NaN; float columns only."""
        return Condition(self.name, Operator.NOT_NAN)

    def starts_with(self, prefix: str | bytes) -> Predicate:
        """Match values that begin with a prefix; string and binary columns only."""
        return self._condition(Operator.STARTS_WITH, prefix)

    def not_starts_with(self, prefix: str | bytes) -> Predicate:
        """Match values that do not begin with a prefix; string and binary columns only."""
        return self._condition(Operator.NOT_STARTS_WITH, prefix)

    def like(self, pattern: str) -> Predicate:
        r"""Match text by a pattern: % for any characters, _ for one, \% and \_ for themselves."""
        return self._condition(Operator.LIKE, pattern)

    def _members(self, values: Iterable[object]) -> tuple[object, ...]:
        try:
            members = None if isinstance(values, _SINGLE) else iter(values)
        except TypeError:
            members = None
        if members is None:
            raise InvalidArgument(
                f"column {shown(self.name)} was compared with one {type(values).__name__}",
                hint="Pass a list of values",
            )
        return tuple(members)

    def _condition(self, operator: Operator, *values: object) -> Condition:
        return Condition(self.name, operator, tuple(map(self._checked, values)))

    def _checked(self, value: object) -> object:
        if value is None:
            raise InvalidArgument(
                f"column {shown(self.name)} was compared with None",
                hint="Nothing equals NULL: use is_null() or not_null()",
            )
        if isinstance(value, ColumnName):
            raise InvalidArgument(
                f"columns {shown(self.name)} and {shown(value.name)} were compared with each other",
                hint="Compare a column with a value",
            )
        if not isinstance(value, _LITERALS):
            raise InvalidArgument(
                f"column {shown(self.name)} was compared with a {type(value).__name__}",
                hint="Use a number, text, bytes, a date, a time, a datetime or a UUID",
            )
        if is_nan(value):
            raise InvalidArgument(
                f"column {shown(self.name)} was compared with {shown(value)}",
                hint="Nothing equals NaN: use is_nan() or not_nan()",
            )
        # A predicate is immutable, so mutable literals are copied.
        return bytes(value) if isinstance(value, bytearray | memoryview) else value


def col(name: str) -> ColumnName:
    """Return a column to compare: `col("amount") > 5`."""
    if not isinstance(name, str):
        raise InvalidArgument(
            f"a column name is text, not {type(name).__name__}", hint='Write col("name")'
        )
    return ColumnName(name)


def _operands(predicate: object, kind: type[And] | type[Or]) -> tuple[Predicate, ...]:
    if isinstance(predicate, kind):
        return predicate.operands
    if isinstance(predicate, Predicate):
        return (predicate,)
    raise InvalidArgument(
        f"a predicate was joined with a {type(predicate).__name__}",
        hint="Put each comparison in parentheses: (col('a') > 1) & (col('b') < 2)",
    )


def _depth_above(operands: tuple[Predicate, ...]) -> int:
    """Return the depth of a predicate of these operands; raises LimitExceeded, InvalidArgument."""
    depth = 1
    for operand in operands:
        if not isinstance(operand, Predicate):
            raise InvalidArgument(
                f"{type(operand).__name__} is not a predicate", hint="Build it with neve.col"
            )
        depth = max(depth, operand.depth if isinstance(operand, And | Or | Not) else 1)
    if depth >= PREDICATE_DEPTH_MAX:
        raise LimitExceeded(
            "the predicate is nested too deeply",
            limit=PREDICATE_DEPTH_MAX,
            hint="Join conditions side by side, or use is_in",
        )
    return depth + 1


def _bind(predicate: Predicate, schema: SchemaView, *, negated: bool) -> BoundPredicate:
    match predicate:
        case Constant(answer):
            return Always(answer != negated)
        case Not(operand):
            return _bind(operand, schema, negated=not negated)
        case And(operands) | Or(operands):
            bound = [_bind(operand, schema, negated=negated) for operand in operands]
            return all_of(bound) if isinstance(predicate, And) != negated else any_of(bound)
        case Condition():
            return _bind_condition(predicate, schema, negated=negated)
        case _:
            raise InvalidArgument(
                f"{type(predicate).__name__} is not a predicate", hint="Build it with neve.col"
            )


def _bind_condition(condition: Condition, schema: SchemaView, *, negated: bool) -> BoundPredicate:
    column = named_field(condition.column, schema)
    operator = condition.operator
    _check_operator(column, operator)
    if operator in _PATTERN_TESTS:
        return _bind_like(
            column, condition.literals, negated=negated != (operator is Operator.NOT_LIKE)
        )
    bound = _compare(column, operator, condition.literals, negated=negated)
    if negated and operator in _ORDERINGS and is_float(column.type):
        # NaN is neither smaller nor greater, so it is where "not smaller" is true.
        return any_of([bound, BoundCondition(column, Operator.IS_NAN)])
    return bound


def _check_operator(column: BoundColumn, operator: Operator) -> None:
    if operator in _NULL_TESTS:
        return
    if pa.types.is_nested(column.type):
        wanted = ""
    elif operator in _NAN_TESTS and not is_float(column.type):
        wanted = "a float column: no other holds NaN"
    elif operator in _PREFIX_TESTS and not (
        pa.types.is_string(column.type) or pa.types.is_binary(column.type)
    ):
        wanted = "a string or binary column"
    elif operator in _PATTERN_TESTS and not pa.types.is_string(column.type):
        wanted = "a string column"
    else:
        return
    raise InvalidArgument(
        Wording(
            Phrase.CANNOT_BE_ASKED,
            operator=operator.value,
            column=shown(column.name),
            type=type_name(column.type),
            arrow_type=shown_type(column.type),
        ),
        hint=f"Use {wanted}" if wanted else Wording(Phrase.USE_A_PRIMITIVE),
    )


def _compare(
    column: BoundColumn, operator: Operator, literals: tuple[object, ...], *, negated: bool
) -> BoundPredicate:
    if negated:
        operator = _NEGATED[operator]
    located = [
        locate(_meant(literal, column.type), column.type, column=column.name)
        for literal in literals
    ]
    if operator in SET_OPERATORS:
        return _bind_set(column, operator, located)
    if not located:
        return BoundCondition(column, operator)
    (where,) = located
    if where.floor is not None and where.exact:
        return BoundCondition(column, operator, (where.floor,))
    return _bind_between(column, operator, where.floor)


def _meant(literal: object, type_: pa.DataType) -> object:
    """Return the value that a literal spells by MODEL-17; any other literal stays as it is."""
    if isinstance(type_, pa.TimestampType) and type_.tz is not None:
        day = _day_of(literal)
        return literal if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)
    if not isinstance(literal, str):
        return literal
    if (pa.types.is_integer(type_) or is_float(type_)) and _NUMBER.fullmatch(literal):
        return Decimal(literal)
    is_binary = pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_)
    return bytes.fromhex(literal) if is_binary and _HEXADECIMAL.fullmatch(literal) else literal


def _day_of(literal: object) -> date | None:
    if isinstance(literal, str):
        try:
            return date.fromisoformat(literal)
        except ValueError:
            return None
    return literal if isinstance(literal, date) and not isinstance(literal, datetime) else None


def _bind_like(
    column: BoundColumn, literals: tuple[object, ...], *, negated: bool
) -> BoundPredicate:
    """Bind a pattern; a condition on the text it begins with, if any, prunes files and keys."""
    (literal,) = literals
    located = locate(literal, column.type, column=column.name)
    pattern = LikePattern.parse(str(located.floor))
    prefix = (pattern.prefix,)
    starts = Operator.NOT_STARTS_WITH if negated else Operator.STARTS_WITH
    if pattern.is_text:
        return BoundCondition(column, Operator.NE if negated else Operator.EQ, prefix)
    if pattern.is_prefix:
        return BoundCondition(column, starts, prefix)
    like = BoundCondition(column, Operator.NOT_LIKE if negated else Operator.LIKE, (str(pattern),))
    if not pattern.prefix:
        return like
    return (any_of if negated else all_of)([BoundCondition(column, starts, prefix), like])


def _bind_set(column: BoundColumn, operator: Operator, located: list[Located]) -> BoundPredicate:
    # The column cannot contain a value that it cannot hold.
    held = {where.floor for where in located if where.floor is not None and where.exact}
    members: tuple[PlainValue, ...] = tuple(sorted(held))
    if operator is Operator.IN:
        if not members:
            return Always(answer=False)
        single = Operator.EQ
    else:
        if not members:
            return BoundCondition(column, Operator.NOT_NULL)
        single = Operator.NE
    return BoundCondition(column, single if len(members) == 1 else operator, members)


def _bind_between(
    column: BoundColumn, operator: Operator, floor: PlainValue | None
) -> BoundPredicate:
    """Compare with a literal that lies just above `floor`, or below every value when None."""
    match operator:
        case Operator.EQ:
            return Always(answer=False)
        case Operator.NE:
            return BoundCondition(column, Operator.NOT_NULL)
        case Operator.LT | Operator.LE:
            if floor is None:
                return Always(answer=False)
            return BoundCondition(column, Operator.LE, (floor,))
        case _:
            assert operator in _ORDERINGS
            if floor is None:
                return BoundCondition(column, Operator.NOT_NULL)
            return BoundCondition(column, Operator.GT, (floor,))
