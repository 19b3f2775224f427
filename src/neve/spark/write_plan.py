"""Spark plans that divide the rows of a job among tasks, built from a DataFrame.

    unpartitioned             rows ─► range by key ─► sort ─► write
    partitioned by the key    rows ─► mark ─► range by (partition, key) ─► sort ─► write
    any other partitions      rows ─► one row per key ─► mark ─► range by (partition, key) ─► …

Changes of a feed go the same way. Where their key does not determine the partition, the newest
change of each key is found before the mark: a delete has no partition.

A range keeps all rows of a key in one task, next to each other. So a task keeps the last of them,
writes sorted files whose keys no other task has, and looks up the rows they supersede, all in one
pass; the table itself is never shuffled.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from pyspark.sql.window import Window

from neve.engine.applied_changes import ChangeOptions
from neve.errors import InvalidArgument
from neve.jobs.run import JobBase
from neve.model.arrow_types import TypeKind, kind_of
from neve.model.row_rules import NO_RULES, RowRules
from neve.model.schema import TableSchema
from neve.spark.call_check import check_frame
from neve.spark.change_tasks import ApplyChanges, NewestChanges
from neve.spark.job_site import JobSite
from neve.spark.row_form import check_names, check_order_name
from neve.spark.spark_types import quoted
from neve.spark.task_answers import ANSWER_DDL, Message, error_in, messages_in
from neve.spark.write_tasks import COUNT, ERROR, PARTITION, DeleteKeys, MarkPartitions, WriteRows

ArrowTask = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

ORDER: Final = "_neve_order"
_RANK: Final = "_neve_rank"
_TASKS_MAX: Final = 100_000
_COMPARED: Final = (
    BinaryType,
    BooleanType,
    DateType,
    NumericType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def write_plan(
    rows: DataFrame,
    site: JobSite,
    base: JobBase,
    *,
    order: Sequence[str],
    tasks: int | None,
    ignores_rules: bool = False,
) -> DataFrame:
    """Plan a write of whole rows; returns a DataFrame of answers.

    Rows of one key are ordered by columns; without any, several are an error, unless all columns
    have merge functions that take rows in any order.
    """
    keys = ordering_columns(rows, base.schema)
    rules = NO_RULES if ignores_rules else base.schema.rules
    is_whole = base.spec.is_unpartitioned or bool(rules.merge)
    if is_whole:
        ordered = in_ranges(rows, keys, order, tasks)
    else:
        if not base.key_determines_partition():
            rows = _one_per_key(rows, base.schema, order)
        marked = mapped(rows, MarkPartitions(site), _with_marks(rows.schema))
        ordered = in_ranges(marked, [sf.col(PARTITION), *keys], order, tasks)
    task = WriteRows(
        site=site,
        by_partition=not is_whole,
        refuses_more=not (order or folds_in_any_order(base.schema, rules)),
        ignores_rules=ignores_rules,
    )
    return mapped(ordered, task, ANSWER_DDL)


def folds_in_any_order(schema: TableSchema, rules: RowRules) -> bool:
    """Return whether rows of one key can be folded in any order.

    A table that has only key columns folds nothing: there, several rows of a key are an error too.
    """
    others = [each for each in schema.columns if each.field_id not in schema.primary_key]
    return bool(others) and all(rules.function_of(each.field_id).takes_any_order for each in others)


def delete_plan(rows: DataFrame, site: JobSite, base: JobBase, *, tasks: int | None) -> DataFrame:
    """Plan a delete by key; returns a DataFrame of answers."""
    names = [column.name for column in base.schema.key_columns]
    keys = rows.select(*(sf.col(quoted(name)) for name in names))
    return mapped(
        in_ranges(keys, ordering_columns(keys, base.schema), (), tasks),
        DeleteKeys(site=site),
        ANSWER_DDL,
    )


def change_plan(
    rows: DataFrame, site: JobSite, base: JobBase, options: ChangeOptions, *, tasks: int | None
) -> DataFrame:
    """Plan upserts and deletes of a change feed; returns a DataFrame of answers."""
    keys = ordering_columns(rows, base.schema)
    order = _whole_order(rows, options)
    by_partition = [sf.col(PARTITION), *keys]
    is_whole = base.spec.is_unpartitioned or bool(base.schema.rules.merge)
    if is_whole:
        ordered = in_ranges(rows, keys, order, tasks)
    elif base.key_determines_partition():
        marked = mapped(rows, MarkPartitions(site), _with_marks(rows.schema))
        ordered = in_ranges(marked, by_partition, order, tasks)
    else:
        together = rows.repartition(*keys)
        sorted_rows = together.sortWithinPartitions(*keys, *_columns(order))
        newest = NewestChanges(site=site, options=options)
        marked = mapped(sorted_rows, newest, _with_marks(rows.schema))
        ordered = in_ranges(marked, by_partition, (), tasks)
    task = ApplyChanges(site=site, by_partition=not is_whole, options=options)
    return mapped(ordered, task, ANSWER_DDL)


def _whole_order(rows: DataFrame, options: ChangeOptions) -> list[str]:
    """Return the columns that order changes of a key, and others that decide between equal ones.

    So the same changes make the same table, in whatever order Spark has them.
    """
    if not options.order_by:
        return []
    others = [field.name for field in rows.schema if isinstance(field.dataType, _COMPARED)]
    return list(dict.fromkeys([*options.order_by, options.op, *others]))


def ordering_columns(
    rows: DataFrame, schema: TableSchema, names: Sequence[str] | None = None
) -> list[Column]:
    """Return expressions whose order is that of the table's keys, which may have other names."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    order: list[Column] = []
    keys = [column.name for column in schema.key_columns]
    for name, column in zip(names or keys, schema.key_columns, strict=True):
        value, kind = sf.col(quoted(name)), types[name]
        if isinstance(kind, FloatType | DoubleType):
            value = value + sf.lit(0.0)  # -0.0 is the key 0.0
        elif isinstance(kind, StringType):
            if kind_of(column.type) is TypeKind.UUID:
                value = sf.lower(value)
            elif kind != StringType():
                value = value.cast("binary")  # by its bytes, whatever its collation
        order.append(value)
    return order


def collect(messages: DataFrame) -> list[Message]:
    """Run a plan, and return the answers of its tasks; raises the error of a failing task."""
    try:
        rows = messages.collect()
    except Exception as error:
        # Of PySpark, of the gateway to Java or of the network: there is no common kind.
        known = error_in(str(error))
        if known is not None:
            raise known from error
        raise
    return messages_in(rows)


def order_apart(
    rows: DataFrame, order_by: object, schema: TableSchema
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return rows and the columns to order by, renamed if the table does not have it.

    Without `order_by`, these are the order columns of the table. Raises InvalidArgument for a
    column that the rows do not have, that has no order, or that is not the table's.
    """
    own = schema.order_names
    if order_by is not None and own and (order_by,) != own:
        raise InvalidArgument(
            f"the table orders changes by {', '.join(own)}, not by {order_by!a}",
            hint="Leave order_by out",
        )
    if own:
        for name in own:
            check_order(rows, name)
        return rows, own
    if order_by is None:
        return rows, ()
    name = check_order(rows, order_by)
    if name in schema:
        return rows, (name,)
    return rows.withColumnRenamed(name, ORDER), (ORDER,)


def check_order(rows: DataFrame, order_by: object) -> str:
    """Return a column to order by; raises InvalidArgument, also when its values have no order."""
    name = check_order_name(order_by, rows.columns)
    try:
        _ = rows.sort(sf.col(quoted(name))).schema
    except AnalysisException as error:
        raise InvalidArgument(
            f"rows cannot be ordered by {name!a}: {str(error).splitlines()[0]}",
            hint="Name a column of numbers, times or text",
        ) from error
    return name


def check_rows(rows: DataFrame) -> None:
    """Raise InvalidArgument or SchemaMismatch for columns that Spark cannot distinguish."""
    check_frame(rows)
    has_case = rows.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    check_names(rows.columns, has_case=has_case)


def check_tasks(tasks: object) -> None:
    """Raise InvalidArgument for an invalid number of tasks."""
    if tasks is not None and (type(tasks) is not int or not 0 < tasks <= _TASKS_MAX):
        raise InvalidArgument(
            f"tasks={tasks!a} is not a number of tasks", hint=f"Use 1 to {_TASKS_MAX:,}"
        )


def mapped(rows: DataFrame, task: ArrowTask, schema: StructType | str) -> DataFrame:
    """Map batches of rows in the workers."""
    names = rows.columns

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    # PySpark reads a dot in a name as a path into a struct, so columns are numbered meanwhile.
    return rows.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(run, schema)


def in_ranges(
    rows: DataFrame, keys: Sequence[Column], order_by: Sequence[str], tasks: int | None
) -> DataFrame:
    """Return rows in ranges of keys, one to a task, sorted in each by keys, then by columns."""
    ranged = (
        rows.repartitionByRange(*keys) if tasks is None else rows.repartitionByRange(tasks, *keys)
    )
    return ranged.sortWithinPartitions(*keys, *_columns(order_by))


def _columns(names: Sequence[str]) -> list[Column]:
    return [sf.col(quoted(name)) for name in names]


def _one_per_key(rows: DataFrame, schema: TableSchema, order: Sequence[str]) -> DataFrame:
    """Keep the last row of each key, or count them, so that the writer can refuse several."""
    keys = Window.partitionBy(*ordering_columns(rows, schema))
    if not order:
        return rows.withColumn(COUNT, sf.count(sf.lit(1)).over(keys))
    newest = keys.orderBy(*(each.desc_nulls_last() for each in _columns(order)))
    ranked = rows.withColumn(_RANK, sf.row_number().over(newest))
    return ranked.where(sf.col(_RANK) == 1).drop(_RANK)


def _with_marks(schema: StructType) -> StructType:
    fields = [field for field in schema.fields if field.name != COUNT]
    return StructType(
        [*fields, StructField(PARTITION, BinaryType()), StructField(ERROR, BinaryType())]
    )
