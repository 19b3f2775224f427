"""Filters that Spark hands to the data source, as predicates that files are chosen by.

A predicate made here is true of every row for which Spark's filter is; it may be true of more, for
Spark asks its filters of the rows again. Where Spark and neve differ:

NaN      is greater than every number in Spark, and in neve neither greater nor smaller
uuid     is text in Spark, which may be compared with any text: only equality means the same
"""

from math import isnan
from typing import Final, cast

from pyspark.sql import datasource as spark

from neve.errors import NeveError
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.like_pattern import escaped
from neve.model.plain_values import is_float
from neve.model.predicate import ColumnName, Predicate, col
from neve.model.schema import Column, TableSchema

_EQUALITIES: Final = (spark.EqualTo, spark.EqualNullSafe, spark.In, spark.IsNull, spark.IsNotNull)


def pushed_predicate(asked: spark.Filter, schema: TableSchema) -> Predicate | None:
    """Return what a filter implies, None when that is nothing that files could be chosen by."""
    is_denied = isinstance(asked, spark.Not)
    inner = asked.child if isinstance(asked, spark.Not) else asked
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if len(path) != 1 or path[0] not in schema:
        return None
    column = schema.column(path[0])
    if kind_of(column.type) is TypeKind.UUID and not isinstance(inner, _EQUALITIES):
        return None
    try:
        predicate = _denied(inner, column) if is_denied else _stated(inner, column)
        if predicate is not None:
            predicate.bind(schema)
    except NeveError:
        # A value that the column cannot be compared with.
        return None
    return predicate


def _stated(asked: spark.Filter, column: Column) -> Predicate | None:
    name = col(column.name)
    match asked:
        case spark.IsNull() | spark.EqualNullSafe(value=None):
            return name.is_null()
        case spark.IsNotNull():
            return name.not_null()
        case spark.In(value=values):
            return name.is_in([value for value in values if value is not None])
        case spark.StringStartsWith(value=str(prefix)):
            return name.starts_with(prefix)
        case spark.StringEndsWith(value=str(ending)):
            return name.like(f"%{escaped(ending)}")
        case spark.StringContains(value=str(part)):
            return name.like(f"%{escaped(part)}%")
        case (
            spark.EqualTo(value=value)
            | spark.EqualNullSafe(value=value)
            | spark.LessThan(value=value)
            | spark.LessThanOrEqual(value=value)
            | spark.GreaterThan(value=value)
            | spark.GreaterThanOrEqual(value=value)
        ) if not _is_nothing(value):
            return _compared(asked, name, value, has_nan=is_float(column.type))
        case _:
            return None


def _compared(
    asked: spark.Filter, name: ColumnName, value: object, *, has_nan: bool
) -> Predicate | None:
    match asked:
        case spark.LessThan():
            return name < value
        case spark.LessThanOrEqual():
            return name <= value
        case spark.GreaterThan() | spark.GreaterThanOrEqual():
            above = name > value if isinstance(asked, spark.GreaterThan) else name >= value
            return above | name.is_nan() if has_nan else above
        case _:
            return name == value


def _denied(asked: spark.Filter, column: Column) -> Predicate | None:
    name = col(column.name)
    match asked:
        case spark.EqualTo(value=value) if not _is_nothing(value):
            return cast("Predicate", name != value)
        case spark.In(value=values) if not any(_is_nothing(value) for value in values):
            return name.not_in(values)
        case spark.IsNull():
            return name.not_null()
        case _:
            return None


def _is_nothing(value: object) -> bool:
    """Whether a value is NULL or NaN."""
    return value is None or (isinstance(value, float) and isnan(value))
