"""Tables as Spark DataFrames: `read` and `view`.

    groups of files            clean files ──► Parquet scan ────────────────────────────┐
    (neve.spark.read_plan)     marked files ─► Parquet scan with row numbers            ├─► union
                                               and bitmaps (neve.spark.live_rows) ──────┤
    rows of the log            as they are ─────────────────────────────────────────────┘

Every scan is Spark's own, with its column pruning, its filters and its vectorised reader. Columns
are asked for under the names that the files have, and shown under those of today.

A DataFrame always shows the Version it was made from. How long its files stay: see
`neve.spark.reading`.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from os import PathLike
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from neve.catalog.moment import Moment
from neve.catalog.system_tables import is_system_name, readable_schema
from neve.errors import InvalidArgument, Unavailable
from neve.model.plain_values import to_plain
from neve.model.schema import Column
from neve.read.filters import Filter
from neve.spark.call_check import check_place, check_session
from neve.spark.filters import spark_condition, spark_literal
from neve.spark.live_rows import live_rows, scanned_together
from neve.spark.read_plan import (
    FileGroup,
    MarkedFile,
    ReadPlan,
    StoredColumn,
    TableAddress,
    WantedVersion,
    plan_read,
    refuse_beside_system_table,
    system_rows,
)
from neve.spark.reading import HELD_READS
from neve.spark.row_form import spark_table
from neve.spark.spark_session import prepare
from neve.spark.spark_types import (
    given_column,
    is_shown_as_stored,
    quoted,
    settings_for,
    shown_column,
    spark_schema,
    stored_field,
)

_BUCKET: Final = "s3a:"

_VIEWS: Final[dict[tuple[int, str], DataFrame]] = {}


def read(
    session: SparkSession,
    location: str | PathLike[str],
    name: str,
    *,
    version: int | None = None,
    timestamp: Moment | None = None,
    tag: str | None = None,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,  # noqa: A002 - the word of `Table.scan`
    fresh: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a table as a DataFrame: the current Version, or one by number, time or tag.

    `columns` are names, with dots for fields inside of structs, as in `Table.scan`. `filter` is
    text such as "amount > 5", `neve.col(…)` or an expression of PyIceberg; files in which no row
    can match are left out of the plan. What Spark filters by later, it looks for in the files that
    are left. With `fresh`, rows that a running writer has logged and not yet flushed are there too,
    as of now.

    A name may also be `__tables`, `__snapshots` or `__files`: what the lake knows of its tables.

    Raises NotFound for a table, a Version or a column that is not there, InvalidArgument,
    SchemaMismatch, and Unavailable for a bucket that Spark has no file system for, all before a job
    starts.
    """
    check_session(session)
    check_place(location, name, after="session")
    address = TableAddress.of(location, name, storage_options)
    wanted = WantedVersion(version=version, timestamp=timestamp, tag=tag)
    if is_system_name(name):
        refuse_beside_system_table(name, is_asked=fresh or not wanted.is_current)
        listed, schema = system_rows(address, columns=columns, filter=filter), readable_schema(name)
        shown = spark_schema(schema.column(each) for each in listed.column_names)
        return session.createDataFrame(spark_table(listed), shown)
    plan = plan_read(
        address,
        wanted,
        columns=columns,
        filter=filter,
        fresh=fresh,
    )
    frame = _frame(session, plan)
    HELD_READS.hold(frame, plan.lease)
    return frame


def view(
    session: SparkSession,
    location: str | PathLike[str],
    name: str,
    view_name: str | None = None,
    *,
    version: int | None = None,
    timestamp: Moment | None = None,
    tag: str | None = None,
    fresh: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Make a table known to Spark SQL as a temporary view; gives the same as `read`.

    The view is named as the table, with `_` for each dot. It shows the Version of now: call this
    again to move it on.
    """
    frame = read(
        session,
        location,
        name,
        version=version,
        timestamp=timestamp,
        tag=tag,
        fresh=fresh,
        storage_options=storage_options,
    )
    chosen = name.replace(".", "_") if view_name is None else view_name
    if not chosen:
        raise InvalidArgument("a view has no name", hint="Leave view_name out, or give a name")
    frame.createOrReplaceTempView(quoted(chosen))
    # The view is as good as the frame: its lease lasts until another view takes the name.
    _VIEWS[id(session), chosen.lower()] = frame
    return frame


def _frame(session: SparkSession, plan: ReadPlan) -> DataFrame:
    columns = plan.columns_read
    schema = spark_schema(columns)
    prepare(session, settings_for(columns))
    parts = [part for group in plan.groups for part in _scans(session, plan, group)]
    if plan.memory is not None:
        parts.append(session.createDataFrame(spark_table(plan.memory), schema))
    if not parts:
        parts.append(session.createDataFrame([], schema))
    frame = reduce(DataFrame.unionAll, parts)
    if not plan.filter.is_trivial:
        frame = frame.where(spark_condition(plan.filter.predicate))
    chosen = plan.chosen
    if chosen.names == plan.names_read and not chosen.ways:
        return frame
    return frame.select(
        *(
            given_column(sf.col(quoted(field.name)), field.type).alias(field.name)
            if field.name in chosen.ways
            else quoted(field.name)
            for field in chosen.schema
        )
    )


def _scans(session: SparkSession, plan: ReadPlan, group: FileGroup) -> list[DataFrame]:
    """Scan a group: its clean files, and its marked ones by what tells them apart."""
    scan = _GroupScan(session, plan, group)
    clean, marked = scanned_together(group)
    found = [scan.clean(clean)] if clean else []
    return found + [scan.marked(files) for files in marked]


class _GroupScan:
    """Scans files of one group."""

    def __init__(self, session: SparkSession, plan: ReadPlan, group: FileGroup) -> None:
        self._session = session
        self._columns = tuple(zip(plan.columns_read, group.stored, strict=True))
        fields = [
            stored_field(stored.name, stored.type, field_id=column.field_id)
            for column, stored in self._columns
            if stored is not None
        ]
        self._schema = StructType(fields)

    def clean(self, paths: Sequence[str]) -> DataFrame:
        """Scan files of which every row is live."""
        return self._shown(self._files(paths))

    def marked(self, files: Sequence[MarkedFile]) -> DataFrame:
        """Scan files without the rows that their bitmaps mark."""
        rows = self._files([file.path for file in files])
        return self._shown(live_rows(self._session, rows, files))

    def _files(self, paths: Sequence[str]) -> DataFrame:
        reader = (
            self._session.read.schema(self._schema)
            # Directories are no columns here, and brackets in a path are no pattern.
            .option("recursiveFileLookup", "true")
            .option("__globPaths__", "false")
        )
        try:
            return reader.parquet(*paths)
        except Exception as error:
            # Files of a directory are there: they are leased. A bucket is up to Spark's classes.
            if not paths[0].startswith(_BUCKET):
                raise
            raise Unavailable(
                "Spark could not open the table's files in the bucket: " + _first_line(error),
                path=paths[0],
                hint="Configure the session with Hadoop's s3a file system and its credentials "
                "(spark.jars.packages, spark.hadoop.fs.s3a.…), or read through Python: "
                'session.read.format("neve").option("table", …).load(…), with storage options',
            ) from error

    def _shown(self, rows: DataFrame) -> DataFrame:
        # An expression takes the driver milliseconds to make, a name hardly anything.
        return rows.select(
            *(
                quoted(column.name) if _is_as_stored(column, stored) else _shown(column, stored)
                for column, stored in self._columns
            )
        )


def _first_line(error: Exception) -> str:
    """Say what went wrong in Java, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    return text.strip().partition("\n")[0]


def _is_as_stored(column: Column, stored: StoredColumn | None) -> bool:
    return (
        stored is not None
        and stored.name == column.name
        and is_shown_as_stored(stored.type, column.type)
    )


def _shown(column: Column, stored: StoredColumn | None) -> SparkColumn:
    """Return a column under its name: out of a file, or what stands for it in older ones."""
    if stored is not None:
        value = sf.col(quoted(stored.name))
        return shown_column(value, stored.type, column.type).alias(column.name)
    (field,) = spark_schema([column]).fields
    if column.initial_default is None:
        return sf.lit(None).cast(field.dataType).alias(column.name)
    default = to_plain(column.initial_default, column.type, column=column.name)
    return spark_literal(default, column.type).cast(field.dataType).alias(column.name)
