"""Filters of Spark and of neve, translated both ways.

From neve to Spark, both choose the same rows. From Spark to neve, for the data source, the filter
chooses files: a predicate made here is true of every row for which Spark's filter is; it may be
true of more, since Spark filters the rows again. Where Spark and neve differ:

    NaN      is greater than every number in Spark, and in neve neither greater nor smaller
    uuid     is text in Spark, which may be compared with any text: only equality means the same
"""

from datetime import date, timedelta
from functools import reduce
from math import isnan
from operator import and_, or_
from typing import Final, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf

from neve.errors import NeveError
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.bound_predicate import (
    AllOf,
    Always,
    AnyOf,
    BoundColumn,
    BoundCondition,
    BoundPredicate,
    Operator,
    escaped,
)
from neve.model.display import EPOCH
from neve.model.plain_values import PlainValue, is_float, is_nan
from neve.model.predicate import ColumnName, Predicate, col
from neve.model.schema import Column, TableSchema
from neve.spark.spark_types import quoted

_EQUALITIES: Final = frozenset({"EqualTo", "EqualNullSafe", "In", "IsNull", "IsNotNull"})


def pushed_predicate(asked: object, schema: TableSchema) -> Predicate | None:
    """Return the predicate that a filter implies, None when it cannot choose files.

    Filters are `pyspark.sql.datasource.Filter`, by the names of their classes: PySpark 4.0 has
    none.
    """
    is_denied = type(asked).__name__ == "Not"
    inner: object = getattr(asked, "child", None) if is_denied else asked
    kind, value = type(inner).__name__, getattr(inner, "value", None)
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema:
        return None
    column = schema.column(path[0])
    if kind_of(column.type) is TypeKind.UUID and kind not in _EQUALITIES:
        return None
    try:
        predicate = _denied(kind, value, column) if is_denied else _stated(kind, value, column)
        if predicate is not None:
            predicate.bind(schema)
    except NeveError:
        # A value that the column cannot be compared with.
        return None
    return predicate


def _stated(kind: str, value: object, column: Column) -> Predicate | None:
    name = col(column.name)
    match kind, value:
        case ("IsNull", _) | ("EqualNullSafe", None):
            return name.is_null()
        case "IsNotNull", _:
            return name.not_null()
        case "In", [*values]:
            return name.is_in([each for each in values if each is not None])
        case "StringStartsWith", str(prefix):
            return name.starts_with(prefix)
        case "StringEndsWith", str(ending):
            return name.like(f"%{escaped(ending)}")
        case "StringContains", str(part):
            return name.like(f"%{escaped(part)}%")
        case _ if not _is_nothing(value):
            return _compared(kind, name, value, has_nan=is_float(column.type))
        case _:
            return None


def _compared(kind: str, name: ColumnName, value: object, *, has_nan: bool) -> Predicate | None:
    match kind:
        case "LessThan":
            return name < value
        case "LessThanOrEqual":
            return name <= value
        case "GreaterThan" | "GreaterThanOrEqual":
            above = name > value if kind == "GreaterThan" else name >= value
            return above | name.is_nan() if has_nan else above
        case "EqualTo" | "EqualNullSafe":
            return name == value
        case _:
            return None


def _denied(kind: str, value: object, column: Column) -> Predicate | None:
    name = col(column.name)
    match kind, value:
        case "EqualTo", _ if not _is_nothing(value):
            return name != value
        case "In", [*values] if not any(_is_nothing(each) for each in values):
            return name.not_in(values)
        case "IsNull", _:
            return name.not_null()
        case _:
            return None


def _is_nothing(value: object) -> bool:
    """Whether a value is NULL or NaN."""
    return value is None or (isinstance(value, float) and isnan(value))


_EPOCH_DAY: Final = date(1970, 1, 1)


def spark_condition(predicate: BoundPredicate) -> SparkColumn:
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


def _column(asked: BoundColumn) -> SparkColumn:
    """Return a column, or the field inside one."""
    whole = asked.around or asked
    column, type_ = sf.col(quoted(whole.name)), whole.type
    for place in asked.places:
        assert isinstance(type_, pa.StructType), "fields are inside of structs"
        field = type_.field(place)
        column, type_ = column.getField(field.name), field.type
    return column


def _condition(asked: BoundCondition) -> SparkColumn:
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
            # Spark accepts the same form of pattern: only special characters are escaped.
            likes = column.like(str(asked.literal))
            return likes if asked.operator is Operator.LIKE else ~likes
        case _:
            return _comparison(asked, column, values[0])


def _comparison(asked: BoundCondition, column: SparkColumn, value: SparkColumn) -> SparkColumn:
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


def spark_literal(value: PlainValue, arrow_type: pa.DataType) -> SparkColumn:
    """Return a plain value as a literal of the type of its column in Spark."""
    match kind_of(arrow_type):
        case TypeKind.DATE:
            # Spark's literals end at the year 9999, its columns do not.
            return sf.date_add(sf.lit(_EPOCH_DAY), sf.lit(value))
        case TypeKind.TIME:
            moment = EPOCH + timedelta(microseconds=cast("int", value))
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
