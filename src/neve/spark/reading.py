"""Tables as Spark DataFrames: `read` and `view`.

    groups of files            clean files ──► Parquet scan ────────────────────────────┐
    (neve.spark.read_plan)     marked files ─► Parquet scan with row numbers            ├─► union
                                               and bitmaps (neve.spark.reading) ──────┤
    rows of the log            as they are ─────────────────────────────────────────────┘

Every scan is Spark's own, with its column pruning, its filters and its vectorised reader. It reads
columns under the names in the files, and shows them under the current names.

A DataFrame always shows the Version it was made from. Leases keep its files:

SPARK-3  While the DataFrame that a read returned is alive in Python, a thread renews its lease.
SPARK-4  After that the lease ends by itself, at most `LEASE_SECONDS` later: derived frames, which
         no Python object refers to, may still run.
SPARK-5  Without any lease, files of a Version stay as long as it is retained.

Spark looks up in bitmaps which rows of a marked file are live:

    row ─► file ─► its first word ─┐
        └► row / 64 ───────────────┴► word of the bitmap ─► bit ─► live?

    few files    the words of all files are one value, which Spark reads once, and the first word
                 of a file is in the text of the condition, with the rows that the file has:
                 `CASE WHEN size = 6555935 AND row < 50000 THEN 0 …`
    many         a broadcast join adds to each row the words and the row count of its file

The size of a file says which file a row is from: a number is cheaper to compare than a name. Files
of the same size are distinguished by name.

SPARK-6  A row of an unknown file, or after the last row of its file, fails the job: the file is not
         the one that the table knows. No row uses another file's words or the padding bits of the
         last word.
"""

import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce
from os import PathLike
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from neve.catalog.moment import Moment
from neve.catalog.system_tables import is_system_name, readable_schema
from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.manifest.leases import HeldLease
from neve.model.plain_values import to_plain
from neve.model.schema import Column
from neve.read.filters import Filter
from neve.spark.call_check import check_place, check_session
from neve.spark.filters import spark_condition, spark_literal
from neve.spark.read_plan import (
    LEASE_SECONDS,
    CleanFile,
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

# No column of a table begins like this.
_ROW: Final = "_neve_row"
_FILE: Final = "_neve_file"
_WORDS: Final = "_neve_words"
_COUNT: Final = "_neve_count"

# Bytes that each task gets as a value with its code; a broadcast is sent once to each executor.
_FEW_FILES: Final = 32
_FEW_WORDS: Final = 1 << 20
# A separate scan costs as much as checking this share of rows that are all live.
_CLEAN_SHARE: Final = 8

_STRANGE: Final = "cast(raise_error('a data file is not the one that the table knows') as tinyint)"


def scanned_together(group: FileGroup) -> tuple[list[str], list[list[MarkedFile]]]:
    """Return the files to scan without bitmaps, and the others, by scan.

    A few clean files are scanned with many marked ones, which saves a scan.
    """
    sizes = Counter(file.file_bytes for file in group.marked)
    by_size = [file for file in group.marked if sizes[file.file_bytes] == 1]
    by_name = [file for file in group.marked if sizes[file.file_bytes] > 1]
    clean = group.clean
    if _are_few_beside(clean, by_size):
        by_size += [file.marked(BitMap64()) for file in clean]
        clean = ()
    return [file.path for file in clean], [files for files in (by_size, by_name) if files]


def live_rows(session: SparkSession, rows: DataFrame, files: Sequence[MarkedFile]) -> DataFrame:
    """Return the rows of files that their bitmaps do not mark, with helper columns at the end.

    The files are of one scan (`scanned_together`).
    """
    has_sizes = len({file.file_bytes for file in files}) == len(files)
    metadata = rows.metadataColumn("_metadata")
    told = [
        metadata.getField("row_index").alias(_ROW),
        metadata.getField("file_size" if has_sizes else "file_name").alias(_FILE),
    ]
    place = f"cast(shiftright({_ROW}, 6) as int)"
    word_count = sum(len(file.words) for file in files)
    if has_sizes and len(files) <= _FEW_FILES and word_count <= _FEW_WORDS:
        every_word = session.createDataFrame(pa.table({_WORDS: _lists([files])}))
        return rows.select("*", *told, every_word.scalar().alias(_WORDS)).where(
            _is_live(f"{_first_word(files)} + {place}")
        )
    keys: pa.Array[Any] = pa.array(
        [file.file_bytes if has_sizes else file.file_name for file in files]
    )
    counts: pa.Array[Any] = pa.array([file.row_count for file in files], pa.int64())
    words = _lists([[file] for file in files])
    bitmaps = pa.table({_FILE: keys, _WORDS: words, _COUNT: counts})
    return (
        rows.select("*", *told)
        .join(sf.broadcast(session.createDataFrame(bitmaps)), _FILE, "left")
        .where(_is_live(f"case when {_ROW} < {_COUNT} then {place} end"))
    )


def _are_few_beside(clean: Sequence[CleanFile], marked: Sequence[MarkedFile]) -> bool:
    """Return whether clean files may be scanned with marked ones, and cost little there."""
    clean_rows = sum(file.row_count for file in clean)
    marked_rows = sum(file.row_count for file in marked)
    sizes = [file.file_bytes for file in clean] + [file.file_bytes for file in marked]
    return (
        _CLEAN_SHARE * clean_rows <= marked_rows
        and len(sizes) <= _FEW_FILES
        and len(set(sizes)) == len(sizes)
    )


def _is_live(place: str) -> str:
    """Return the condition on the bit of a row, whose word is at a place; NULL fails the job."""
    bit = f"bit_get(get({_WORDS}, {place}), cast({_ROW} & 63 as int))"
    return f"coalesce({bit}, {_STRANGE}) = 0"


def _first_word(files: Sequence[MarkedFile]) -> str:
    """Return the place of a file's first word among those of all files, as Spark SQL.

    It is NULL for a row that the file does not have.
    """
    ends = np.cumsum([len(file.words) for file in files])
    cases = [
        (file.row_count, f"{_FILE} = {file.file_bytes}", end - len(file.words))
        for file, end in zip(files, ends, strict=True)
    ]
    # Files with most rows first: each row is compared with one after another.
    ordered = " ".join(
        f"when {is_file} and {_ROW} < {row_count} then {first}"
        for row_count, is_file, first in sorted(cases, reverse=True)
    )
    return f"case {ordered} end"


def _lists(lists: Sequence[Sequence[MarkedFile]]) -> "pa.Array[Any]":
    """Return the words of files, as one list for all of them."""
    ends = np.cumsum([0, *(sum(len(file.words) for file in files) for files in lists)])
    words = np.concatenate([file.words for files in lists for file in files])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(words))


_RENEW_SECONDS: Final = LEASE_SECONDS / 10


class HeldReads:
    """Renews the leases of live owners; safe for many threads."""

    def __init__(self, *, renew_seconds: float = _RENEW_SECONDS) -> None:
        # Fixed at construction.
        self._renew_seconds = renew_seconds
        # Guarded by _lock. Re-entrant: Python may finalize an owner while the lock is held.
        self._lock = threading.RLock()
        self._leases: set[HeldLease] = set()
        self._thread: threading.Thread | None = None

    @property
    def count(self) -> int:
        """Leases that are renewed."""
        with self._lock:
            return len(self._leases)

    def hold(self, owner: object, lease: HeldLease | None) -> None:
        """Renew a lease as long as its owner lives."""
        if lease is None:
            return
        forgotten = weakref.finalize(owner, self._forget, lease)
        forgotten.atexit = False
        with self._lock:
            self._leases.add(lease)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._renew, name="neve-spark-leases", daemon=True
                )
                self._thread.start()

    def renew_once(self) -> None:
        """Renew leases that are past half of their time."""
        with self._lock:
            held = list(self._leases)
        for lease in held:
            # A lapsed one has lost its files, and the next job reports it.
            with suppress(NeveError):
                lease.check()

    def _forget(self, lease: HeldLease) -> None:
        with self._lock:
            self._leases.discard(lease)

    def _renew(self) -> None:
        waiting = threading.Event()
        while True:
            waiting.wait(self._renew_seconds)
            with self._lock:
                if not self._leases:
                    self._thread = None
                    return
            self.renew_once()


HELD_READS: Final = HeldReads()


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

    `columns` are names, with dots for fields inside structs, as in `Table.scan`. `filter` is text
    such as "amount > 5", `neve.col(…)` or an expression of PyIceberg; the plan leaves out files
    without a possible match. Filters that Spark adds later apply to the remaining files. With
    `fresh`, the rows that a running writer has logged and not yet flushed are included, as of now.

    A name may also be a system table of the lake: `__tables`, `__snapshots` or `__files`.

    Raises NotFound for a missing table, Version or column, InvalidArgument, SchemaMismatch, and
    Unavailable for a bucket that Spark has no file system for, all before a job starts.
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
    """Register a table in Spark SQL as a temporary view; returns the same as `read`.

    The view has the name of the table, with `_` for each dot. It shows the current Version: call
    this again to update it.
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
        raise InvalidArgument("a view has no name", hint="Leave view_name out, or pass a name")
    frame.createOrReplaceTempView(quoted(chosen))
    # The view keeps the frame's lease until another view takes the name.
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
    """Scan a group: its clean files, and its marked ones by what distinguishes them."""
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
        """Scan files whose rows are all live."""
        return self._shown(self._files(paths))

    def marked(self, files: Sequence[MarkedFile]) -> DataFrame:
        """Scan files without the rows that their bitmaps mark."""
        rows = self._files([file.path for file in files])
        return self._shown(live_rows(self._session, rows, files))

    def _files(self, paths: Sequence[str]) -> DataFrame:
        reader = (
            self._session.read.schema(self._schema)
            # Directories are not columns here, and brackets in a path are not a pattern.
            .option("recursiveFileLookup", "true")
            .option("__globPaths__", "false")
        )
        try:
            return reader.parquet(*paths)
        except Exception as error:
            # Leased files of a directory exist. A bucket depends on Spark's classes.
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
        # An expression costs the driver milliseconds, a name next to nothing.
        return rows.select(
            *(
                quoted(column.name) if _is_as_stored(column, stored) else _shown(column, stored)
                for column, stored in self._columns
            )
        )


def _first_line(error: Exception) -> str:
    """Return the message of a Java error, without its stack."""
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
    """Return a column under its name: from a file, or its default in older ones."""
    if stored is not None:
        value = sf.col(quoted(stored.name))
        return shown_column(value, stored.type, column.type).alias(column.name)
    (field,) = spark_schema([column]).fields
    if column.initial_default is None:
        return sf.lit(None).cast(field.dataType).alias(column.name)
    default = to_plain(column.initial_default, column.type, column=column.name)
    return spark_literal(default, column.type).cast(field.dataType).alias(column.name)
