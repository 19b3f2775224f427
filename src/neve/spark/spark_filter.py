"""A filter of neve as a condition of Spark: both choose the same rows.

Two things differ. Spark takes NaN for equal to itself and greater than every number, neve for
unequal to everything and neither smaller nor greater. And what neve's comparisons leave NULL is
not chosen, in Spark neither; so no word is needed about it.
"""

from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_, or_
from typing import Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf

from neve.model.arrow_types import TypeKind, kind_of
from neve.model.bound_predicate import (
    AllOf,
    Always,
    AnyOf,
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    Operator,
)
from neve.model.plain_values import PlainValue, is_float, is_nan
from neve.spark.spark_types import quoted

_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def spark_condition(predicate: BoundPredicate) -> Column:
    """Return the condition, over columns named and typed as Spark shows them."""
    match predicate:
        case Always(answer):
            return sf.lit(answer)
        case AllOf(operands):
            return reduce(and_, (spark_condition(each) for each in operands))
        case AnyOf(operands):
            return reduce(or_, (spark_condition(each) for each in operands))
        case BoundCondition():
            return _condition(predicate)
        case _:
            raise AssertionError(f"no predicate is a {type(predicate).__name__}")


def _column(asked: BoundColumn) -> Column:
    """Return a column, or the field inside of one that is asked about."""
    whole = asked.around or asked
    column, type_ = sf.col(quoted(whole.name)), whole.type
    for place in asked.places:
        assert isinstance(type_, pa.StructType), "fields are inside of structs"
        field = type_.field(place)
        column, type_ = column.getField(field.name), field.type
    return column


def _condition(asked: BoundCondition) -> Column:
    column = _column(asked.column)
    values = [spark_literal(value, asked.column.type) for value in asked.literals]
    match asked.operator:
        case Operator.IS_NULL:
            return column.isNull()
        case Operator.NOT_NULL:
            return column.isNotNull()
        case Operator.IS_NAN:
            return sf.isnan(column)
        case Operator.NOT_NAN:
            return column.isNotNull() & ~sf.isnan(column)
        case Operator.IN:
            return column.isin(*values)
        case Operator.NOT_IN:
            return ~column.isin(*values)
        case Operator.STARTS_WITH:
            return sf.startswith(column, values[0])
        case Operator.NOT_STARTS_WITH:
            return ~sf.startswith(column, values[0])
        case Operator.LIKE | Operator.NOT_LIKE:
            # The pattern is in the form that Spark takes too: nothing but signs is escaped.
            likes = column.like(str(asked.literal))
            return likes if asked.operator is Operator.LIKE else ~likes
        case _:
            return _comparison(asked, column, values[0])


def _comparison(asked: BoundCondition, column: Column, value: Column) -> Column:
    has_nan = is_float(asked.column.type)
    if has_nan and is_nan(asked.literal):
        return column.isNotNull() if asked.operator is Operator.NE else sf.lit(False)
    match asked.operator:
        case Operator.EQ:
            return column == value
        case Operator.NE:
            return column != value
        case Operator.LT:
            return column < value
        case Operator.LE:
            return column <= value
        case _:
            above = column > value if asked.operator is Operator.GT else column >= value
            return above & ~sf.isnan(column) if has_nan else above


def spark_literal(value: PlainValue, arrow_type: pa.DataType) -> Column:
    """Return a plain value as a literal of the type that Spark shows its column in."""
    match kind_of(arrow_type):
        case TypeKind.DATE:
            # Spark's literals end at the year 9999, its columns do not.
            return sf.date_add(sf.lit(_EPOCH_DAY), sf.lit(value))
        case TypeKind.TIME:
            moment = _EPOCH + timedelta(microseconds=cast("int", value))
            return sf.lit(moment.time())
        case TypeKind.TIMESTAMPTZ:
            return sf.timestamp_micros(sf.lit(value))
        case TypeKind.TIMESTAMP:
            text = str(np.datetime64(cast("int", value), "us"))
            return sf.lit(text).cast("timestamp_ntz")
        case TypeKind.UUID:
            digits = cast("bytes", value).hex()
            cuts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            return sf.lit("-".join(cuts))
        case TypeKind.FLOAT:
            return sf.lit(value).cast("float")
        case _:
            return sf.lit(value)
