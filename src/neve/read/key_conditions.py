"""Which keys a scan can meet: bounds that were asked for, and those that a predicate implies.

Keys are ordered by their first column, then by the second, and so on. So conditions with "=" on
leading columns fix the beginning of the key, and an ordering on the column behind them bounds it:

    key (shop, day, id)
    shop = 3 and day >= 5 and id < 9        keys from (3, 5) up to (4); id < 9 is left to ask
    day >= 5                                every key: the first column is open
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from neve.errors import InvalidArgument, LimitExceeded
from neve.keys.encoding import KeyEncoder
from neve.keys.ranges import KeyRange
from neve.model.bound_predicate import (
    AllOf,
    BoundCondition,
    BoundPredicate,
    Operator,
    all_of,
)
from neve.model.display import listed, shown
from neve.model.plain_values import PlainValue, stored_type
from neve.model.schema import Column
from neve.model.schema_view import ArrowArray
from neve.table.table_context import TableContext

NO_KEYS: Final = KeyRange(b"", b"")
_TERMINATOR_BYTES: Final = 2
_SIDES: Final = 2


def asked_range(asked: object, encoder: KeyEncoder) -> KeyRange:
    """Return the keys from a low one up to, and without, a high one; raises InvalidArgument.

    Either may be None for no bound, a value for the first column, or a tuple of leading columns.
    """
    if asked is None:
        return KeyRange()
    if not isinstance(asked, tuple | list) or len(asked) != _SIDES:
        raise InvalidArgument(
            f"a key range is given as {shown(asked)}",
            hint="Pass two keys, the first one and the one behind the last; None for no bound",
        )
    low, high = (_prefix(bound, encoder) for bound in asked)
    return KeyRange(low, high)


def _prefix(bound: object, encoder: KeyEncoder) -> bytes | None:
    if bound is None:
        return None
    values: Sequence[object] = bound if isinstance(bound, tuple | list) else (bound,)
    if not values:
        raise InvalidArgument(
            "a bound of a key range has no values",
            hint=f"Pass None for no bound, or values of {listed(encoder.names)}",
        )
    return encoder.prefix_range(values).start


def intersected(one: KeyRange, other: KeyRange) -> KeyRange:
    """Return the keys inside both, which may be none."""
    found = one.intersection(other)
    return NO_KEYS if found is None else found


def implied_range(
    predicate: BoundPredicate, context: TableContext
) -> tuple[KeyRange, BoundPredicate]:
    """Return the keys that can match, and what of the predicate is left to ask of their rows."""
    conditions = predicate.operands if isinstance(predicate, AllOf) else (predicate,)
    known: set[int] = set()
    found = KeyRange()
    prefix = b""
    for column in context.schema.key_columns:
        mine = [
            (place, each)
            for place, each in enumerate(conditions)
            if isinstance(each, BoundCondition) and each.column.field_id == column.field_id
        ]
        fixed = [(place, each) for place, each in mine if each.operator is Operator.EQ]
        for place, each in fixed[:1] or mine:
            bounds = _bounds(prefix, column, each)
            if bounds is not None:
                found = intersected(found, bounds)
                if each.operator is not Operator.IN:
                    known.add(place)
        if not fixed or fixed[0][0] not in known:
            break
        prefix = _encoded(prefix, column, fixed[0][1].literal)
    rest = [each for place, each in enumerate(conditions) if place not in known]
    return found, all_of(rest)


def _bounds(prefix: bytes, column: Column, condition: BoundCondition) -> KeyRange | None:
    """Return the keys behind a prefix whose next column fulfils a condition; None: cannot tell."""
    operator = condition.operator
    try:
        match operator:
            case Operator.EQ:
                return KeyRange.with_prefix(_encoded(prefix, column, condition.literal))
            case Operator.GE:
                low: bytes | None = _encoded(prefix, column, condition.literal)
            case Operator.GT:
                low = KeyRange.after(_encoded(prefix, column, condition.literal))
            case Operator.LT | Operator.LE:
                low = prefix
            case Operator.IN:
                low = _encoded(prefix, column, condition.literals[0])
            case Operator.STARTS_WITH:
                whole = _encoded(prefix, column, condition.literal)
                return KeyRange.with_prefix(whole[:-_TERMINATOR_BYTES])
            case _:
                return None
        high = KeyRange.after(prefix)
        if operator is Operator.LT:
            high = _encoded(prefix, column, condition.literal)
        elif operator in (Operator.LE, Operator.IN):
            high = KeyRange.after(_encoded(prefix, column, condition.literals[-1]))
    except LimitExceeded:
        # No key is that long; the rows will tell.
        return None
    if low is None or (high is not None and low >= high):
        return NO_KEYS
    return KeyRange(low, high)


def _encoded(prefix: bytes, column: Column, value: PlainValue) -> bytes:
    storage: ArrowArray = pa.array([value], stored_type(column.type))
    array = storage
    if isinstance(column.type, pa.UuidType):
        array = pa.ExtensionArray.from_storage(column.type, storage)
    key = KeyEncoder([column.type], [column.name]).encode_arrays([array])[0].as_py()
    assert isinstance(key, bytes)
    return prefix + key
