"""What a predicate on columns implies for partition values.

Iceberg's inclusive projection: wherever a row matches the predicate, its partition values match the
projection. A partition whose values do not match holds no matching row and need not be read; one
whose values match may still hold none, so of `match` only NEVER means anything here.

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
from neve.model.plain_values import PlainValue, neighbour
from neve.model.transforms import Identity, Truncate


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
        # The transform refuses the literal, and with it every row around it.
        projected = None
    if projected is None:
        # Whatever the operator, it is not true of NULL.
        return BoundCondition(target, Operator.NOT_NULL)
    operator, literals = projected
    return BoundCondition(target, operator, literals)


def _project_values(
    condition: BoundCondition, field: PartitionField
) -> tuple[Operator, tuple[PlainValue, ...]] | None:
    """Operator and literals that the partition value must satisfy; None for nothing to say."""
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
    # A pattern that begins with text was bound with a condition that says so.
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
    # Between two texts there is always another one.
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
    # Text that differs behind the width looks the same within it.
    return (Operator.NE, (prefix,)) if len(prefix) == width else None
