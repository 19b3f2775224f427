"""Pruning: whether rows can match a predicate, decided without reading them.

A column's rows fall into three groups, and each operator treats a group as one:

    NULL        matches `is null`, and nothing else
    NaN         matches `is nan`, `is not null`, `!=` and `not in`
    ordinary    lies between the bounds

MODEL-24  NEVER means that no row matches; ALWAYS that every row does; SOME promises nothing.
MODEL-25  `lower` is not above any ordinary value and `upper` not below any. They may be wider than
          the values, as truncated text is; they need not be values of the column.
MODEL-26  None means unknown. A NaN bound counts as unknown.
MODEL-27  No rows at all is NEVER.

A predicate on columns implies one on partition values, Iceberg's inclusive projection: wherever a
row matches the predicate, its partition values match the projection. A partition whose values do
not match holds no matching row and need not be read; one whose values match may still hold none, so
only NEVER is meaningful here.

    condition           identity    year … hour, truncate           bucket
    x == v, x in …      the same    == f(v), in f(…)                == f(v), in f(…)
    x < v, x <= v       the same    <= f(greatest x that matches)   is not null
    x > v, x >= v       the same    >= f(smallest x that matches)   is not null
    starts with p       the same    starts with p, or == p cut      is not null
    does not start      the same    the same, or != p, if p fits    is not null
    x != v, not in …    the same    is not null                     is not null
    like, not like      the same    is not null                     is not null
    null tests          the same    the same                        the same
"""

import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from neve.errors import SchemaMismatch
from neve.model.bound_predicate import (
    AllOf,
    Always,
    AnyOf,
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    Operator,
    all_of,
    any_of,
)
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.plain_values import (
    PlainValue,
    is_float,
    is_nan,
    less,
    neighbour,
)
from neve.model.transforms import Identity, Truncate


class Match(Enum):
    """How many of the rows match."""

    NEVER = "never"
    SOME = "some"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """What is known about one column in some rows; bounds are plain values."""

    lower: PlainValue | None = None
    upper: PlainValue | None = None
    null_count: int | None = None
    nan_count: int | None = None
    row_count: int | None = None

    @classmethod
    def of_value(cls, value: PlainValue | None) -> "ColumnFacts":
        """Return the facts of rows that all have this value, such as a partition's."""
        return cls(
            lower=_known(value),
            upper=_known(value),
            null_count=int(value is None),
            nan_count=int(is_nan(value)),
            row_count=1,
        )


_UNKNOWN: Final = ColumnFacts()
_MATCHED_BY_NAN: Final = frozenset(
    {Operator.IS_NAN, Operator.NOT_NULL, Operator.NE, Operator.NOT_IN}
)


def match(predicate: BoundPredicate, facts: Mapping[int, ColumnFacts]) -> Match:
    """Return how many rows match, by the facts of their columns, by field id."""
    if isinstance(predicate, BoundCondition):
        if predicate.column.places:
            return Match.SOME  # facts are about columns, not about fields inside them
        return _match_condition(predicate, facts.get(predicate.column.field_id, _UNKNOWN))
    if isinstance(predicate, Always):
        return Match.ALWAYS if predicate.answer else Match.NEVER
    assert isinstance(predicate, AllOf | AnyOf)
    decisive, other = Match.NEVER, Match.ALWAYS
    if isinstance(predicate, AnyOf):
        decisive, other = other, decisive
    joined = other
    for operand in predicate.operands:
        answer = match(operand, facts)
        if answer is decisive:
            return decisive
        if answer is Match.SOME:
            joined = answer
    return joined


def _match_condition(condition: BoundCondition, facts: ColumnFacts) -> Match:
    operator = condition.operator
    nan_count = facts.nan_count if is_float(condition.column.type) else 0
    nulls, nans = facts.null_count != 0, nan_count != 0
    nulls_match, nans_match = operator is Operator.IS_NULL, operator in _MATCHED_BY_NAN
    # An unknown count may be zero.
    others = (facts.null_count or 0) + (nan_count or 0)
    ordinary = facts.row_count is None or others < facts.row_count
    try:
        some_match, all_match = _Bounds(_known(facts.lower), _known(facts.upper)).match(condition)
    except TypeError:
        # Bounds of another kind than the column are useless.
        some_match, all_match = True, False
    if not ((nulls and nulls_match) or (nans and nans_match) or (ordinary and some_match)):
        return Match.NEVER
    # A group that may exist must match as a whole.
    if nulls <= nulls_match and nans <= nans_match and ordinary <= all_match:
        return Match.ALWAYS
    return Match.SOME


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The bounds of the ordinary values."""

    lower: PlainValue | None
    upper: PlainValue | None

    def match(self, condition: BoundCondition) -> tuple[bool, bool]:
        """Return whether some, and whether all, of the values between the bounds match."""
        operator = condition.operator
        match operator:
            case Operator.IS_NULL | Operator.IS_NAN:
                return False, False
            case Operator.NOT_NULL | Operator.NOT_NAN:
                return True, True
            case Operator.LT:
                return not self.all_from(condition.literal), self.all_below(condition.literal)
            case Operator.LE:
                return not self.all_above(condition.literal), self.all_up_to(condition.literal)
            case Operator.GT:
                return not self.all_up_to(condition.literal), self.all_above(condition.literal)
            case Operator.GE:
                return not self.all_below(condition.literal), self.all_from(condition.literal)
            case Operator.EQ | Operator.IN:
                return self.match_members(condition.literals)
            case Operator.NE | Operator.NOT_IN:
                some_members, all_members = self.match_members(condition.literals)
                return not all_members, not some_members
            case Operator.STARTS_WITH:
                return self.match_prefix(condition.literal)
            case Operator.NOT_STARTS_WITH:
                some_prefixed, all_prefixed = self.match_prefix(condition.literal)
                return not all_prefixed, not some_prefixed
            case Operator.LIKE | Operator.NOT_LIKE:
                return self.match_one(condition)
        assert_never(operator)

    def all_below(self, value: PlainValue) -> bool:
        return self.upper is not None and less(self.upper, value)

    def all_up_to(self, value: PlainValue) -> bool:
        return self.upper is not None and not less(value, self.upper)

    def all_above(self, value: PlainValue) -> bool:
        return self.lower is not None and less(value, self.lower)

    def all_from(self, value: PlainValue) -> bool:
        return self.lower is not None and not less(self.lower, value)

    def match_members(self, members: tuple[PlainValue, ...]) -> tuple[bool, bool]:
        """Match values with a sorted set."""
        start, end = 0, len(members)
        if self.lower is not None:
            start = bisect.bisect_left(members, self.lower)
        if self.upper is not None:
            end = bisect.bisect_right(members, self.upper)
        found = start < end
        return found, found and self.lower is not None and self.lower == self.upper

    def match_one(self, condition: BoundCondition) -> tuple[bool, bool]:
        """Match the only value between the bounds, if there is just one."""
        if self.lower is None or self.lower != self.upper:
            return True, False
        if not isinstance(self.lower, str):
            raise TypeError
        is_match = condition.holds_for(self.lower)
        return is_match, is_match

    def match_prefix(self, prefix: PlainValue) -> tuple[bool, bool]:
        """Match values with a prefix, which are contiguous."""
        assert isinstance(prefix, str | bytes)
        lower, upper = _cut(self.lower, len(prefix)), _cut(self.upper, len(prefix))
        beside = _Bounds(lower, upper)
        apart = beside.all_above(prefix) or beside.all_below(prefix)
        return not apart, lower == prefix and upper == prefix


def _cut(bound: PlainValue | None, length: int) -> str | bytes | None:
    if bound is None or isinstance(bound, str | bytes):
        return None if bound is None else bound[:length]
    raise TypeError


def _known(bound: PlainValue | None) -> PlainValue | None:
    return None if is_nan(bound) else bound


def project(predicate: BoundPredicate, spec: PartitionSpec) -> BoundPredicate:
    """Return a predicate on the spec's partition values, by partition field id."""
    if isinstance(predicate, Always):
        return predicate
    if isinstance(predicate, AllOf):
        return all_of(project(operand, spec) for operand in predicate.operands)
    if isinstance(predicate, AnyOf):
        return any_of(project(operand, spec) for operand in predicate.operands)
    assert isinstance(predicate, BoundCondition)
    return all_of(
        _project_condition(predicate, field)
        for field in spec.fields
        if field.source_id == predicate.column.field_id and not predicate.column.places
    )


def _project_condition(condition: BoundCondition, field: PartitionField) -> BoundPredicate:
    source = condition.column
    target = BoundColumn(field.field_id, field.name, field.transform.result_type(source.type))
    if isinstance(field.transform, Identity) or condition.operator in (
        Operator.IS_NULL,
        Operator.NOT_NULL,
    ):
        return BoundCondition(target, condition.operator, condition.literals)
    try:
        projected = _project_values(condition, field)
    except SchemaMismatch:
        # The transform refuses the literal and every row near it.
        projected = None
    if projected is None:
        # No operator is true of NULL.
        return BoundCondition(target, Operator.NOT_NULL)
    operator, literals = projected
    return BoundCondition(target, operator, literals)


def _project_values(
    condition: BoundCondition, field: PartitionField
) -> tuple[Operator, tuple[PlainValue, ...]] | None:
    """Return the operator and literals that the partition value must satisfy; None for none."""
    operator, transform = condition.operator, field.transform
    if operator in (Operator.EQ, Operator.IN):
        # Bounded by the literals of the condition.
        values = {_apply(condition, field, literal) for literal in condition.literals}
        if len(values) == 1:
            return Operator.EQ, tuple(values)
        return Operator.IN, tuple(sorted(values))
    if not transform.preserves_order:
        return None
    if operator in (Operator.STARTS_WITH, Operator.NOT_STARTS_WITH):
        assert isinstance(transform, Truncate)
        return _project_prefix(condition, transform.width)
    if operator in (Operator.LT, Operator.LE):
        return Operator.LE, (_apply(condition, field, _outermost(condition)),)
    if operator in (Operator.GT, Operator.GE):
        return Operator.GE, (_apply(condition, field, _outermost(condition)),)
    # A pattern that begins with text was bound with a condition on that prefix.
    assert operator in (Operator.NE, Operator.NOT_IN, Operator.LIKE, Operator.NOT_LIKE)
    return None


def _apply(condition: BoundCondition, field: PartitionField, value: PlainValue) -> PlainValue:
    source = condition.column
    result = field.transform.apply_one(value, source.type, column=source.name)
    assert result is not None
    return result


def _outermost(condition: BoundCondition) -> PlainValue:
    """Return the last value on the way to the literal that matches, or the literal itself."""
    literal = condition.literal
    exclusive = condition.operator in (Operator.LT, Operator.GT)
    if exclusive and not isinstance(literal, str | bytes):
        return neighbour(literal, condition.column.type, up=condition.operator is Operator.GT)
    # There is always another text between two texts.
    return literal


def _project_prefix(
    condition: BoundCondition, width: int
) -> tuple[Operator, tuple[PlainValue, ...]] | None:
    prefix = condition.literal
    assert isinstance(prefix, str | bytes)
    if len(prefix) < width:
        return condition.operator, (prefix,)
    if condition.operator is Operator.STARTS_WITH:
        return Operator.EQ, (prefix[:width],)
    # Texts that differ only after the width are equal within it.
    return (Operator.NE, (prefix,)) if len(prefix) == width else None
