"""INSERT, UPDATE, DELETE and MERGE as jobs of Spark, each of them one Version.

    statement ─► SELECT of new rows (neve.sql.change_text), on the Version that the job begins with
              ─► checks ─► upserts and deletes, as a change feed ─► files ─► one commit

Rows that a statement only needs by their keys are looked up in the indexes of the table: those of
INSERT, and of a MERGE whose ON compares the whole key. Everything else is a query of Spark.

SPARK-7  All checks come before the first file is written, on the rows that are then written: they
         are kept by Spark meanwhile.
SPARK-8  When another commit changes one of the keys before this one, everything is decided again on
         its rows.

A statement sees what is committed. Rows that a running writer has logged and not flushed are newer
than it, as for all jobs.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegralType, StructType

from neve.engine.applied_changes import ChangeOptions
from neve.errors import InvalidArgument
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.spark.attached_lakes import AttachedLake, RelationFrames
from neve.spark.job_runner import TableJobs
from neve.spark.job_site import JobSite
from neve.spark.merging import with_target
from neve.spark.read_plan import TableAddress
from neve.spark.reading import read_base
from neve.spark.row_form import check_change_columns
from neve.spark.spark_types import quoted, spark_schema
from neve.spark.task_answers import read_error
from neve.spark.write_plan import change_plan, ordering_columns
from neve.spark.write_tasks import ERROR, TARGET, key_names
from neve.sql.change_text import (
    CLAUSE,
    FOUND,
    KEYS_SHOWN,
    ROWS,
    SOURCE,
    Changed,
    ChangeText,
    Clash,
    several_change_one,
)
from neve.sql.statements import (
    Change,
    Delete,
    Dialect,
    Insert,
    Merge,
    MergeAction,
    OnConflict,
    Query,
    Target,
    Update,
)

_KIND: Final = "_neve_kind"
_INSERTED: Final = "inserted"
_UPDATED: Final = "updated"
_DELETED: Final = "deleted"
_MOVED: Final = "moved"
"""The old key of a row that has a new one."""
_COUNT: Final = "_neve_count"
_IS_REPEATED: Final = f"{_COUNT} > 1"
_OPTIONS: Final = ChangeOptions(
    op=_KIND,
    operations={_INSERTED: "upsert", _UPDATED: "upsert", _DELETED: "delete", _MOVED: "delete"},
)

Relations = Callable[[], RelationFrames]
"""Opens the relations of a statement but its target."""


def change_rows(
    session: SparkSession,
    lake: AttachedLake,
    table: str,
    statement: Change,
    relations: Relations,
) -> Changed:
    """Run a statement on a table of a lake; raises before it writes."""
    lake.refuse_changes()
    address = TableAddress.of(lake.location, table, lake.storage_options)
    counted: dict[str, int] = {}
    with (
        ExitStack() as stack,
        TableJobs(lake.location, table, storage_options=lake.storage_options) as jobs,
    ):

        def plan(site: JobSite, base: JobBase) -> DataFrame:
            frames = relations()
            frames.add(statement.target.table, read_base(session, address, base.version.number))
            changer = _Changer(frames, statement.target, site, base, stack)
            feed = changer.changes(statement)
            if isinstance(statement, Merge):
                feed = changer.kept(feed)
                rows = feed.groupBy(_KIND).count().collect()
                counted.clear()
                counted.update({row[_KIND]: row["count"] for row in rows})
            options = _OPTIONS.on(base.schema)
            check_change_columns(feed.schema, base.schema, options)
            return change_plan(feed, site, base, options, tasks=None)

        outcome = jobs.run(plan, JobIdentity(), decided=True)
    return _changed(statement, outcome, counted)


def _changed(statement: Change, outcome: BulkOutcome, counted: Mapping[str, int]) -> Changed:
    """Return what a job did; only the rows of a MERGE had to be counted."""
    match statement:
        case Insert():
            replaced = outcome.rows_superseded
            return Changed(inserted=outcome.rows_written - replaced, updated=replaced)
        case Update():
            return Changed(updated=outcome.rows_written)
        case Delete():
            return Changed(deleted=outcome.rows_superseded)
        case Merge():
            return Changed(
                inserted=counted.get(_INSERTED, 0),
                updated=counted.get(_UPDATED, 0),
                deleted=counted.get(_DELETED, 0),
            )


def insert_rows(session: SparkSession, lake: AttachedLake, table: str, rows: DataFrame) -> Changed:
    """Insert rows that have all columns of a table, in its order; raises AlreadyExists."""
    statement = Insert(
        target=Target(table=table, alias=table),
        rows=Query(text=f"TABLE {quoted(ROWS)}"),
    )

    def relations() -> RelationFrames:
        frames = RelationFrames(session)
        frames.add(ROWS, rows)
        return frames

    return change_rows(session, lake, table, statement, relations)


class _Changer:
    """Finds the changes of one statement, on one Version."""

    def __init__(
        self,
        relations: RelationFrames,
        target: Target,
        site: JobSite,
        base: JobBase,
        stack: ExitStack,
    ) -> None:
        self._relations = relations
        self._site = site
        self._base = base
        self._stack = stack
        self._schema: StructType = spark_schema(base.schema.columns)
        types = {field.name: field.dataType.simpleString() for field in self._schema}
        self._text = ChangeText(target, base.schema, types, Dialect.SPARK)
        self._key = self._text.key
        self._old_key = self._text.old_key

    def changes(self, statement: Change) -> DataFrame:
        """Return rows to write and to delete, with their kind; raises what they may not be."""
        match statement:
            case Insert():
                return self._insert(statement)
            case Update():
                return self._update(statement)
            case Delete():
                found = self._relations.rows(self._text.delete(statement))
                return self._deleted(found, _DELETED)
            case Merge():
                return self._merge(statement)

    # INSERT

    def _insert(self, statement: Insert) -> DataFrame:
        given = self._relations.rows(statement.rows.text)
        names = self._text.inserted_columns(statement, given.columns)
        rows = self.kept(self._inserted(given, names))
        is_ignored = statement.on_conflict is OnConflict.IGNORE
        if is_ignored:
            rows = self.kept(rows.dropDuplicates(self._key))
        keys = self._looked_up(rows)
        if not is_ignored:
            self._refuse(keys.where(_IS_REPEATED), Clash.INSERT_TWICE)
        found = self._found(keys)
        match statement.on_conflict:
            case OnConflict.FAIL:
                self._refuse(found, Clash.INSERT_EXISTS)
                return self._kind(rows, _INSERTED)
            case OnConflict.IGNORE:
                return self._kind(self._without(rows, found), _INSERTED)
            case OnConflict.REPLACE:
                replaced = self._replaced(rows, found, names)
            case OnConflict.UPDATE:
                self._relations.add(ROWS, rows)
                self._relations.add(FOUND, found)
                replaced = self._relations.rows(self._text.on_conflict(statement))
        new = self._kind(self._without(rows, found), _INSERTED)
        return new.unionByName(self._kind(replaced, _UPDATED))

    def _inserted(self, given: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the given rows with all columns of the table, and defaults where there is none."""
        values = dict(zip(names, (f"c{place}" for place in range(len(names))), strict=True))
        return given.toDF(*values.values()).select(
            *(
                sf.expr(self._text.cast(values.get(name) or self._text.default(name), name)).alias(
                    name
                )
                for name in self._text.names
            )
        )

    def _replaced(self, rows: DataFrame, found: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows that replace others; columns that are not named stay."""
        new, old = rows.alias("n"), found.alias("o")
        same = reduce(
            lambda one, other: one & other,
            (sf.col(f"n.{quoted(k)}") == sf.col(f"o.{quoted(k)}") for k in self._key),
        )
        return new.join(old, same).select(
            *(
                sf.col(f"{'n' if name in names else 'o'}.{quoted(name)}").alias(name)
                for name in self._text.names
            )
        )

    # UPDATE

    def _update(self, statement: Update) -> DataFrame:
        values = self._text.set(statement.assignments)
        if self._base.schema.rules.merge:
            raise InvalidArgument(
                "Spark does not run UPDATE on a table with merge functions",
                hint="Use neve.spark.upsert with columns=, or lake.sql",
            )
        found = self._relations.rows(self._text.update(statement))
        moves = any(name in self._key for name in values)
        if statement.sources or moves:
            found = self.kept(found)
        if statement.sources:
            self._refuse_repeated(found)
        rows = self._kind(found, _UPDATED)
        if not moves:
            return rows
        old = self._old_keys(found)
        keys = self._looked_up(found)
        self._refuse(keys.where(_IS_REPEATED), Clash.UPDATE_TWICE)
        self._refuse(self._without(self._found(keys), old), Clash.UPDATE_EXISTS)
        return rows.unionByName(self._deleted(self._without(old, found), _MOVED))

    # MERGE

    def _merge(self, statement: Merge) -> DataFrame:
        source = self.kept(self._relations.rows(self._text.source(statement)))
        self._relations.add(SOURCE, source)
        matched = self._matched(statement)
        if matched is not None:
            self._relations.add(FOUND, matched)
        texts = self._text.merge(statement, source.columns, is_found=matched is not None)
        parts = [self._relations.rows(text) for text in texts]
        found = self.kept(reduce(DataFrame.unionByName, parts))

        def chosen(*actions: MergeAction) -> DataFrame:
            return found.where(sf.col(quoted(CLAUSE)).isin(statement.numbers(*actions)))

        self._refuse_repeated(chosen(MergeAction.UPDATE, MergeAction.DELETE))
        inserted = chosen(MergeAction.INSERT)
        deleted = self._old_keys(chosen(MergeAction.DELETE))
        if statement.numbers(MergeAction.INSERT):
            keys = self._looked_up(inserted)
            self._refuse(keys.where(_IS_REPEATED), Clash.MERGE_TWICE)
            self._refuse(self._without(self._found(keys), deleted), Clash.MERGE_EXISTS)
        written = self._kind(inserted, _INSERTED).unionByName(
            self._kind(chosen(MergeAction.UPDATE), _UPDATED)
        )
        gone = self._deleted(self._without(deleted, inserted), _DELETED)
        return written.unionByName(gone)

    def _matched(self, statement: Merge) -> DataFrame | None:
        """Return the rows that the source can match, when ON compares the whole key."""
        text = self._text.source_keys(statement)
        if text is None:
            return None
        keys = self._relations.rows(text)
        for name in self._key:
            mine, theirs = self._schema[name].dataType, keys.schema[name].dataType
            both_whole = isinstance(mine, IntegralType) and isinstance(theirs, IntegralType)
            if mine.typeName() in ("float", "double") or (mine != theirs and not both_whole):
                return None  # equal values may be written differently
        # A number that the key cannot be has no row.
        fitting = [
            sf.expr(f"try_cast({quoted(n)} AS {self._schema[n].dataType.simpleString()})").alias(n)
            for n in self._key
        ]
        return self._found(self._looked_up(keys.select(*fitting).dropna()))

    # Rows

    def kept(self, rows: DataFrame) -> DataFrame:
        """Have Spark keep rows until the statement ends."""
        rows = rows.persist()
        self._stack.callback(rows.unpersist)
        return rows

    def _looked_up(self, rows: DataFrame) -> DataFrame:
        """Return the keys of rows, how many rows each has, and the table's row of it.

        That one is found by the indexes of the table. Raises what a task raised.
        """
        names = key_names(len(self._key))
        keys = rows.select(*self._columns(self._key)).toDF(*names)
        counts = keys.groupBy(*names).agg(sf.count(sf.lit(1)).alias(_COUNT)).dropna()
        ordered = counts.sortWithinPartitions(*ordering_columns(counts, self._base.schema, names))
        found = self.kept(with_target(ordered, self._site, self._base))
        for row in found.where(sf.col(ERROR).isNotNull()).select(ERROR).limit(1).collect():
            raise read_error(bytes(row[0]))
        named = [sf.col(name).alias(key) for name, key in zip(names, self._key, strict=True)]
        return found.select(*named, _COUNT, TARGET)

    def _found(self, keys: DataFrame) -> DataFrame:
        """Return the rows of the table among what was looked up."""
        return keys.where(sf.col(TARGET).isNotNull()).select(f"{TARGET}.*")

    def _kind(self, rows: DataFrame, kind: str) -> DataFrame:
        return rows.select(*self._columns(self._text.names), sf.lit(kind).alias(_KIND))

    def _deleted(self, keys: DataFrame, kind: str) -> DataFrame:
        return keys.select(
            *(
                sf.col(quoted(field.name))
                if field.name in self._key
                else sf.lit(None).cast(field.dataType).alias(field.name)
                for field in self._schema
            ),
            sf.lit(kind).alias(_KIND),
        )

    def _old_keys(self, rows: DataFrame) -> DataFrame:
        return rows.select(*self._columns(self._old_key)).toDF(*self._key)

    def _without(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """Return the rows whose keys are not among those of others."""
        return rows.join(others.select(*self._columns(self._key)), self._key, "left_anti")

    def _columns(self, names: Sequence[str]) -> list[Any]:
        return [sf.col(quoted(name)) for name in names]

    # Checks

    def _refuse(self, rows: DataFrame, clash: Clash) -> None:
        """Raise AlreadyExists if there are rows."""
        found = _first(rows.select(*self._columns(self._key)))
        if found:
            raise self._text.exists(found, clash)

    def _refuse_repeated(self, rows: DataFrame) -> None:
        """Raise InvalidArgument if several rows are about one row of the table."""
        counts = rows.groupBy(*self._columns(self._old_key)).agg(sf.count(sf.lit(1)).alias(_COUNT))
        found = _first(counts.where(_IS_REPEATED).select(*self._columns(self._old_key)))
        if found:
            raise several_change_one(found)


def _first(rows: DataFrame) -> list[Mapping[str, Any]]:
    """Return the rows that an error shows, the same ones each time."""
    in_order = rows.orderBy(*(sf.col(quoted(name)) for name in rows.columns))
    return [row.asDict() for row in in_order.limit(KEYS_SHOWN).collect()]
