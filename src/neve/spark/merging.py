"""`neve.spark.merge`: conditional updates, deletes and inserts; and partial upserts.

    ns.merge(
        df, "./lake", "shop.orders",
        when_matched=[
            ns.Clause("delete", "source.cancelled"),
            ns.Clause("update", "source.ts > target.ts", set={"amount": "source.amount"}),
        ],
        when_not_matched="insert",
    )

Conditions and values are Spark's SQL, or its Columns, over `source`, the new rows, and `target`,
the table's row of the same key. The first clause of a case whose condition is true applies; when
there is none, the row changes nothing. Clauses are evaluated on the job's Version; when one of the
keys changes before the commit, all of them are evaluated again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StructField, StructType

from neve.engine.row_input import given_columns
from neve.engine.ruled_writes import needs_order
from neve.errors import InvalidArgument, SchemaMismatch
from neve.jobs.merge import ClauseKind, MergeClause, narrowed_schema
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.model.schema import TableSchema
from neve.model.suggestions import known_names_hint, similar_name_hint
from neve.observability.events import Progress
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite
from neve.spark.row_form import check_key_columns, empty_batch, fitted
from neve.spark.spark_types import IN_UTC, quoted, spark_schema
from neve.spark.task_answers import ANSWER_DDL
from neve.spark.write_plan import (
    ORDER,
    check_rows,
    check_tasks,
    in_ranges,
    mapped,
    order_apart,
    ordering_columns,
)
from neve.spark.write_tasks import (
    ERROR,
    IF_MATCHED,
    IF_UNMATCHED,
    TARGET,
    MergeRows,
    TargetRows,
    key_names,
    values_of,
)

Expression: TypeAlias = str | Column

_SOURCE: Final = "source"
_VALUES: Final = "_neve_values_"
_MATCHED: Final = frozenset({ClauseKind.UPDATE, ClauseKind.DELETE})
_UNMATCHED: Final = frozenset({ClauseKind.INSERT})


@dataclass(frozen=True, slots=True)
class Clause:
    """What to do with a row: "update", "delete" or "insert", if a condition is true.

    `set` has the value of each column to write; without it, every column of the source that the
    table has is written.
    """

    action: str
    condition: Expression | None = None
    set: Mapping[str, Expression] | None = None


Clauses: TypeAlias = str | Clause | Sequence[str | Clause] | None


def merge(
    df: DataFrame,
    location: str | PathLike[str],
    name: str,
    *,
    when_matched: Clauses = "update",
    when_not_matched: Clauses = "insert",
    order_by: str | None = None,
    job_id: str | None = None,
    tasks: int | None = None,
    upkeep: bool = True,
    storage_options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> BulkOutcome:
    """Update, delete or insert rows, depending on the table's row of their key, as one Version.

    A clause is an action or a `Clause`; a list of them is tried in order; None ignores the rows of
    the case. Several rows of one key are an error, unless `order_by` decides which is the last.
    Raises Conflict when other commits kept changing the same keys.
    """
    with TableJobs(
        location, name, storage_options=storage_options, progress=progress, upkeep=upkeep
    ) as jobs:
        schema = jobs.table.schema
        check_rows(df)
        check_key_columns(df.schema, schema)
        check_tasks(tasks)
        matched = _clauses(when_matched, _MATCHED, "when_matched")
        unmatched = _clauses(when_not_matched, _UNMATCHED, "when_not_matched")
        asked = [_Asked.of(clause, df, schema) for clause in (*matched, *unmatched)]
        own = schema.order_names
        # Clauses may keep the order of the row that is there.
        has_order = order_by is not None or set(own) <= set(df.columns)
        staged, order = order_apart(df, order_by, schema) if has_order else (df, ())
        names = key_names(len(schema.key_columns))
        staged = staged.select(
            *(
                sf.col(quoted(column.name)).alias(alias)
                for alias, column in zip(names, schema.key_columns, strict=True)
            ),
            sf.struct(
                *(sf.col(quoted(each)) for each in df.columns if each in staged.columns)
            ).alias(_SOURCE),
            *_order_of(order),
        )

        def plan(site: JobSite, base: JobBase) -> DataFrame:
            return _merge_plan(
                staged, asked, len(matched), site, base, is_ordered=bool(order), tasks=tasks
            )

        return jobs.run(plan, JobIdentity(job_id=job_id), decided=True)


def update_columns(
    jobs: TableJobs,
    df: DataFrame,
    columns: Sequence[str],
    identity: JobIdentity,
    *,
    order_by: str | None,
    tasks: int | None,
) -> BulkOutcome:
    """Write some columns of rows, and leave the others as they are, as one Version."""
    schema = jobs.table.schema
    given = tuple(column.name for column in given_columns(columns, schema))
    needs_order(given, schema)
    check_rows(df)
    check_key_columns(df.schema, schema)
    check_tasks(tasks)
    missing = [each for each in given if each not in df.columns]
    if missing:
        raise SchemaMismatch(
            f"column {missing[0]!a} is missing from the rows",
            column=missing[0],
            hint="Add the key and every column that `columns` names",
        )
    staged, order = order_apart(df, order_by, schema)
    names = key_names(len(schema.key_columns))
    values = f"{_VALUES}0"
    rows = staged.select(
        *(
            sf.col(quoted(column.name)).alias(alias)
            for alias, column in zip(names, schema.key_columns, strict=True)
        ),
        sf.lit(0).alias(IF_MATCHED),
        sf.lit(1).alias(IF_UNMATCHED),
        sf.struct(*(sf.col(quoted(each)) for each in given)).alias(values),
        *_order_of(order),
    )
    clauses = tuple(
        MergeClause(kind=kind, columns=given) for kind in (ClauseKind.UPDATE, ClauseKind.INSERT)
    )

    def plan(site: JobSite, base: JobBase) -> DataFrame:
        _check_values(rows, values, given, base)
        by = (ORDER,) if order else ()
        ordered = in_ranges(rows, ordering_columns(rows, schema, names), by, tasks)
        task = MergeRows(
            site=site,
            clauses=clauses,
            values=(values, values),
            refuses_more=not order,
            folds=True,
        )
        return mapped(ordered, task, ANSWER_DDL)

    return jobs.run(plan, identity, decided=True)


def _order_of(names: Sequence[str]) -> list[Column]:
    """Return the columns to order by as one that compares as they do; none without any."""
    return [sf.struct(*(sf.col(quoted(each)) for each in names)).alias(ORDER)] if names else []


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A clause with everything spelled out."""

    clause: MergeClause
    condition: Expression | None
    values: Mapping[str, Expression]

    @classmethod
    def of(cls, clause: Clause, df: DataFrame, schema: TableSchema) -> "_Asked":
        kind = ClauseKind(clause.action)
        if kind is ClauseKind.DELETE:
            if clause.set is not None:
                raise InvalidArgument("a delete sets no columns", hint="Leave `set` out")
            return cls(clause=MergeClause(kind=kind), condition=clause.condition, values={})
        keys = {column.name for column in schema.key_columns}
        if clause.set is None:
            unknown = [name for name in df.columns if name not in schema]
            if unknown:
                raise SchemaMismatch(
                    f"column {unknown[0]!a} of the rows is not in the table",
                    column=unknown[0],
                    hint=similar_name_hint(unknown[0], schema.arrow_schema.names)
                    or "Drop it, or say with `set` what is written",
                )
            values: dict[str, Expression] = {
                name: f"{_SOURCE}.{quoted(name)}" for name in df.columns if name not in keys
            }
        else:
            values = dict(clause.set)
        for name in values:
            if name in keys:
                raise InvalidArgument(
                    f"a clause sets {name!a}, which is a column of the key",
                    hint="Leave it out: an existing row keeps its key, a new one has that of "
                    "the source",
                )
            if name not in schema:
                raise InvalidArgument(
                    f"a clause sets {name!a}, which is not a column of the table",
                    hint=known_names_hint(name, schema.arrow_schema.names),
                )
        columns = tuple(values)
        return cls(
            clause=MergeClause(kind=kind, columns=columns),
            condition=clause.condition,
            values=values,
        )

    @property
    def names_target(self) -> bool:
        """Whether it needs the table's row of the key."""
        given = [*self.values.values(), *([] if self.condition is None else [self.condition])]
        return any(TARGET in str(each).lower() for each in given)


def _clauses(given: Clauses, allowed: frozenset[ClauseKind], what: str) -> list[Clause]:
    asked: Sequence[object]
    asked = [] if given is None else given if isinstance(given, list | tuple) else [given]
    found: list[Clause] = []
    for each in asked:
        clause = Clause(each) if isinstance(each, str) else each
        if not isinstance(clause, Clause) or clause.action not in list(allowed):
            action = clause.action if isinstance(clause, Clause) else clause
            raise InvalidArgument(
                f"{what} has {action!a}",
                hint=f"Use {' or '.join(sorted(allowed))}",
            )
        _check_expressions(clause)
        found.append(clause)
    return found


def _check_expressions(clause: Clause) -> None:
    """Raise InvalidArgument for what Spark cannot evaluate."""
    hint = "Write SQL as text, such as '5', or a Column"
    if not isinstance(clause.condition, str | Column | None):
        raise InvalidArgument(f"a condition is {clause.condition!a}", hint=hint)
    if not isinstance(clause.set, Mapping | None):
        raise InvalidArgument(f"set={clause.set!a}", hint="Pass a dict of values by column name")
    for name, value in (clause.set or {}).items():
        if not isinstance(name, str):
            raise InvalidArgument(f"a clause sets {name!a}", hint="Name columns as text")
        if not isinstance(value, str | Column):
            raise InvalidArgument(f"the value of {name!a} is {value!a}", hint=hint)


def _merge_plan(
    staged: DataFrame,
    asked: Sequence[_Asked],
    matched_count: int,
    site: JobSite,
    base: JobBase,
    *,
    is_ordered: bool,
    tasks: int | None,
) -> DataFrame:
    names = key_names(len(base.schema.key_columns))
    rows = in_ranges(
        staged, ordering_columns(staged, base.schema, names), (ORDER,) if is_ordered else (), tasks
    )
    has_target = any(each.names_target for each in asked)
    if has_target:
        rows = with_target(rows, site, base)
    try:
        chosen = _chosen(rows, names, asked, matched_count, has_target=has_target)
        _ = chosen.schema
    except AnalysisException as error:
        raise InvalidArgument(
            f"Spark does not understand a clause: {str(error).strip().splitlines()[0]}",
            hint="Name columns as source.x and target.y",
        ) from error
    structs = tuple(f"{_VALUES}{place}" if each.values else "" for place, each in enumerate(asked))
    for struct_name, each in zip(structs, asked, strict=True):
        if each.clause.kind is not ClauseKind.DELETE:
            _check_values(chosen, struct_name, each.clause.columns, base)
    task = MergeRows(
        site=site,
        clauses=tuple(each.clause for each in asked),
        values=structs,
        refuses_more=not is_ordered,
    )
    return mapped(chosen, task, ANSWER_DDL)


def with_target(rows: DataFrame, site: JobSite, base: JobBase) -> DataFrame:
    """Add the table's row of the key, with the columns that Spark has types for.

    Rows have their keys as `key_names`; those of one key are next to each other.
    """
    fields: list[StructField] = []
    for column in base.schema.columns:
        try:
            fields += spark_schema([column]).fields
        except SchemaMismatch:
            continue  # Spark has no nanoseconds: no clause can name it
    target = StructType(fields)
    task = TargetRows(
        site=site,
        columns=tuple(field.name for field in fields),
        target=to_arrow_type(target, **IN_UTC),
    )
    schema = StructType(
        [*rows.schema.fields, StructField(TARGET, target), StructField(ERROR, BinaryType())]
    )
    return mapped(rows, task, schema)


def _chosen(
    rows: DataFrame,
    names: Sequence[str],
    asked: Sequence[_Asked],
    matched_count: int,
    *,
    has_target: bool,
) -> DataFrame:
    """Choose a clause for each case, and evaluate its values."""
    cases: list[Column] = []
    is_matched = sf.col(TARGET).isNotNull()
    for first, stop, case in (
        (0, matched_count, is_matched),
        (matched_count, len(asked), ~is_matched),
    ):
        choice = sf.lit(None).cast("int")
        for place in reversed(range(first, stop)):
            condition = asked[place].condition
            holds = sf.lit(True) if condition is None else _expression(condition)
            choice = sf.when(holds & case if has_target else holds, sf.lit(place)).otherwise(choice)
        cases.append(choice)
    with_cases = rows.select("*", cases[0].alias(IF_MATCHED), cases[1].alias(IF_UNMATCHED))
    values = [
        sf.when(
            sf.col(IF_MATCHED if place < matched_count else IF_UNMATCHED) == place,
            sf.struct(*(_expression(value).alias(name) for name, value in each.values.items())),
        ).alias(f"{_VALUES}{place}")
        for place, each in enumerate(asked)
        if each.values
    ]
    error = [ERROR] if has_target else []
    return with_cases.select(*names, IF_MATCHED, IF_UNMATCHED, *values, *error)


def _expression(given: Expression) -> Column:
    return sf.expr(given) if isinstance(given, str) else given


def _check_values(rows: DataFrame, struct_name: str, columns: Sequence[str], base: JobBase) -> None:
    """Raise SchemaMismatch for values that do not fit, before anything runs."""
    values = values_of(empty_batch(rows.schema), struct_name, columns, base)
    try:
        fitted(values, narrowed_schema(base.schema, columns))
    except SchemaMismatch as error:
        name = error.column
        if name is not None and name in columns and "withColumn" in (error.hint or ""):
            (field,) = spark_schema([base.schema.column(name)]).fields
            error.hint = f"Cast its value: cast(… as {field.dataType.simpleString()})"
        raise
