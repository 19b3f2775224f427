"""Tables as Spark DataFrames: `read` and `view`.

    groups of files            clean files ──► Parquet scan ────────────────────────────┐
    (neve.spark.read_plan)     marked files ─► Parquet scan with row numbers            ├─► union
                                               and bitmaps (neve.spark.reading) ──────┤
    rows of the log            as they are ─────────────────────────────────────────────┘

Every scan is Spark's own, with its column pruning, its filters and its vectorised reader. It reads
columns under the names in the files, and shows them under the current names.

Where Spark cannot open the files, workers read them with neve's own reader, and the union has one
scan instead: `MapInArrow neve_files`. That is so in a bucket, when Java has no file system for it
or may not read it there. Both return the same rows. `explain` says which it is, and why:

    read of version 7 through Python
      because    Spark cannot open s3a://lakes/shop: Class …S3AFileSystem not found
      files      3, with 1,234,567 bytes, in 1 piece

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
    many, or     a broadcast join adds to each row the words and the row count of its file
    PySpark 3.5

The size of a file says which file a row is from: a number is cheaper to compare than a name. Files
of the same size are distinguished by name.

SPARK-6  A row of an unknown file, or after the last row of its file, fails the job: the file is not
         the one that the table knows. No row uses another file's words or the padding bits of the
         last word.
"""

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from os import PathLike
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neve.catalog.moment import Moment
from neve.catalog.system_tables import is_system_name, readable_schema
from neve.errors import InvalidArgument, NeveError, Unavailable
from neve.manifest.documents import StorePaths
from neve.manifest.leases import HeldLease, given_up_on_error
from neve.model.display import counted
from neve.model.plain_values import to_plain
from neve.model.schema import Column
from neve.read.filters import Filter
from neve.spark.call_check import check_place, check_session
from neve.spark.file_pieces import FilePiece, PieceReader
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
    hadoop_location,
    plan_read,
    refuse_beside_system_table,
    system_rows,
)
from neve.spark.row_form import spark_batch, spark_table
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
from neve.storage.open_store import is_bucket, open_store
from neve.storage.table_paths import CATALOG_MANIFEST

_IS_FOUR: Final = hasattr(DataFrame, "scalar")
"""Whether this is PySpark 4: 3.5 has no scalar subqueries, and makes no DataFrame from Arrow."""

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
    metadata = rows.metadataColumn("_metadata") if _IS_FOUR else sf.col("_metadata")
    told = [
        metadata.getField("row_index").alias(_ROW),
        metadata.getField("file_size" if has_sizes else "file_name").alias(_FILE),
    ]
    place = f"cast(shiftright({_ROW}, 6) as int)"
    word_count = sum(len(file.words) for file in files)
    if _IS_FOUR and has_sizes and len(files) <= _FEW_FILES and word_count <= _FEW_WORDS:
        every_word = frame_of(session, pa.table({_WORDS: _lists([files])}))
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
        .join(sf.broadcast(frame_of(session, bitmaps)), _FILE, "left")
        .where(_is_live(f"case when {_ROW} < {_COUNT} then {place} end"))
    )


def frame_of(session: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return rows of the driver as a DataFrame."""
    shown = from_arrow_schema(rows.schema) if schema is None else schema
    if _IS_FOUR:
        return session.createDataFrame(rows, shown)

    def given(_batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()

    return session.range(0, 1, 1, 1).mapInArrow(given, shown)


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

    def __init__(self) -> None:
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
            waiting.wait(_RENEW_SECONDS)
            with self._lock:
                if not self._leases:
                    self._thread = None
                    return
            self.renew_once()


HELD_READS: Final = HeldReads()


logger = logging.getLogger(__name__)

_LOOKED_AT: Final = StorePaths(CATALOG_MANIFEST).head
"""An object that every lake has, and that is small."""
_S3A_ENDPOINTS: Final = ("spark.hadoop.fs.s3a.endpoint", "fs.s3a.endpoint")
_REASON_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class ReadWay:
    """How the files of a table are read, and why."""

    native: bool
    """Whether Spark reads them itself; otherwise neve does, in Python workers."""
    reason: str

    @property
    def through(self) -> str:
        """What reads the files."""
        return "Spark" if self.native else "Python"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadExplanation:
    """What a read would do; `str` prints it."""

    version: int
    through: str
    """"Spark" or "Python"."""
    reason: str
    file_count: int
    byte_count: int
    piece_count: int | None
    """Tasks of a read through Python; None where Spark divides files itself."""
    rows_log: int
    """Rows that only the log of a running writer has."""

    def __str__(self) -> str:
        pieces = "" if self.piece_count is None else f", in {counted(self.piece_count, 'piece')}"
        lines = [
            f"read of version {self.version} through {self.through}",
            f"  because    {self.reason}",
            f"  files      {self.file_count:,}, with {self.byte_count:,} bytes{pieces}",
        ]
        if self.rows_log:
            lines.append(f"  log        {self.rows_log:,} rows")
        return "\n".join(lines)


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
    native: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return a table as a DataFrame: the current Version, or one by number, time or tag.

    `columns` are names, with dots for fields inside structs, as in `Table.scan`. `filter` is text
    such as "amount > 5", `neve.col(…)` or an expression of PyIceberg; the plan leaves out files
    without a possible match. Filters that Spark adds later apply to the remaining files. With
    `fresh`, the rows that a running writer has logged and not yet flushed are included, as of now.

    Spark reads the files itself if it can open them, otherwise neve reads them in Python workers;
    `native` says which without a look. `storage_options` go to the workers; without credentials in
    them, each looks for its own.

    A name may also be a system table of the lake: `__tables`, `__snapshots` or `__files`.

    Raises NotFound for a missing table, Version or column, InvalidArgument, SchemaMismatch, and
    Unavailable for a bucket that does not answer, or that Spark cannot open when `native` says that
    it should, all before a job starts.
    """
    check_session(session)
    check_place(location, name, after="session")
    address = TableAddress.of(location, name, storage_options)
    wanted = WantedVersion(version=version, timestamp=timestamp, tag=tag)
    if is_system_name(name):
        refuse_beside_system_table(name, is_asked=fresh or not wanted.is_current)
        listed, schema = system_rows(address, columns=columns, filter=filter), readable_schema(name)
        shown = spark_schema(schema.column(each) for each in listed.column_names)
        return frame_of(session, spark_table(listed), shown)
    way = _way(session, address, native)
    plan = plan_read(
        address, wanted, columns=columns, filter=filter, fresh=fresh, native=way.native
    )
    frame = _held_frame(session, plan)
    if not way.native:
        logger.info(
            "read through python table=%s version=%d pieces=%d because=%s",
            name,
            plan.version,
            len(plan.pieces),
            way.reason,
        )
    return frame


def read_base(session: SparkSession, address: TableAddress, version: int) -> DataFrame:
    """Return the rows of a Version that a job begins with, without those that expired by now."""
    way = _way(session, address, None)
    wanted = WantedVersion(version=version, is_now=True)
    plan = plan_read(address, wanted, columns=None, filter=None, fresh=False, native=way.native)
    return _held_frame(session, plan)


def explain(
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
    native: bool | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> ReadExplanation:
    """Return how `read` would read a table, and why so; no row is read."""
    check_session(session)
    check_place(location, name, after="session")
    address = TableAddress.of(location, name, storage_options)
    if is_system_name(name):
        raise InvalidArgument(
            f"{name} is listed by the driver: there is nothing to explain", hint="Name a table"
        )
    way = _way(session, address, native)
    wanted = WantedVersion(version=version, timestamp=timestamp, tag=tag)
    plan = plan_read(
        address, wanted, columns=columns, filter=filter, fresh=fresh, native=way.native
    )
    if plan.lease is not None:
        plan.lease.give_up()
    return ReadExplanation(
        version=plan.version,
        through=way.through,
        reason=way.reason,
        file_count=len(plan.files),
        byte_count=sum(file.file_bytes for file in plan.files),
        piece_count=None if way.native else len(plan.pieces),
        rows_log=0 if plan.memory is None else plan.memory.num_rows,
    )


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
    native: bool | None = None,
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
        native=native,
        storage_options=storage_options,
    )
    chosen = name.replace(".", "_") if view_name is None else view_name
    if not chosen:
        raise InvalidArgument("a view has no name", hint="Leave view_name out, or pass a name")
    frame.createOrReplaceTempView(quoted(chosen))
    # The view keeps the frame's lease until another view takes the name.
    _VIEWS[id(session), chosen.lower()] = frame
    return frame


def _way(session: SparkSession, address: TableAddress, native: bool | None) -> ReadWay:
    """Decide what reads the files: as asked for, or by looking whether Spark can open the lake."""
    if not isinstance(native, bool | None):
        raise InvalidArgument(f"native={native!a}", hint="Use True, False, or None to look")
    if native is not None:
        return ReadWay(native, f"native={native} was asked for")
    if not is_bucket(address.location):
        return ReadWay(native=True, reason="the lake is in a directory")
    options = dict(address.storage_options)
    store = open_store(address.location, storage_options=options, create=False)
    root = hadoop_location(store.location)
    endpoint = options.get("endpoint")
    if root.startswith("s3a:") and endpoint is not None:
        # Otherwise Java would look for the bucket at Amazon, and try for minutes.
        known = {session.conf.get(each, None) for each in _S3A_ENDPOINTS} - {None}
        if endpoint not in known:
            return ReadWay(
                native=False,
                reason="the storage options have an endpoint that fs.s3a.endpoint does not name",
            )
    try:
        # On Spark Connect, only the schema makes the server look.
        _ = session.read.text(f"{root}/{_LOOKED_AT}").schema
    except Exception as error:  # noqa: BLE001 - of PySpark, of Java or of the network
        return ReadWay(native=False, reason=f"Spark cannot open {root}: {_first_line(error)}")
    return ReadWay(native=True, reason=f"Spark opened {root}")


def _held_frame(session: SparkSession, plan: ReadPlan) -> DataFrame:
    """Return the rows of a plan, whose lease lives as long as they are used."""
    with given_up_on_error(plan.lease):
        frame = _frame(session, plan)
    HELD_READS.hold(frame, plan.lease)
    return frame


def _frame(session: SparkSession, plan: ReadPlan) -> DataFrame:
    columns = plan.columns_read
    schema = spark_schema(columns)
    prepare(session, settings_for(columns))
    parts = [part for group in plan.groups for part in _scans(session, plan, group)]
    if plan.reader is not None and plan.pieces:
        parts.append(_python_scan(session, plan.reader, plan.pieces, schema))
    if plan.memory is not None:
        parts.append(frame_of(session, spark_table(plan.memory), schema))
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


def _python_scan(
    session: SparkSession, reader: PieceReader, pieces: Sequence[FilePiece], schema: StructType
) -> DataFrame:
    """Have workers read pieces, one task each."""
    given = list(pieces)

    # Spark shows the name in its plans. It is sent with everything it refers to.
    def neve_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                yield from map(spark_batch, reader.read(given[number]))

    return session.range(0, len(given), 1, len(given)).mapInArrow(neve_files, schema)


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
            return _parquet(self._session, reader, paths)
        except Exception as error:
            # Leased files of a directory exist. A bucket depends on Java's classes and rights.
            if not is_bucket(paths[0]):
                raise
            raise Unavailable(
                "Spark could not open the table's files in the bucket: " + _first_line(error),
                path=paths[0],
                hint="Leave native out, or configure Hadoop's file system for the bucket and its "
                "credentials (spark.jars.packages, spark.hadoop.fs.s3a.…)",
            ) from error

    def _shown(self, rows: DataFrame) -> DataFrame:
        # An expression costs the driver milliseconds, a name next to nothing.
        return rows.select(
            *(
                quoted(column.name) if _is_as_stored(column, stored) else _shown(column, stored)
                for column, stored in self._columns
            )
        )


def _parquet(session: SparkSession, reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """Scan files; many paths go to Java as one text, because each call takes a tenth of a ms."""
    java = getattr(session, "_jvm", None)  # Spark Connect has none, and sends a list as it is
    if java is None or len(paths) <= _FEW_FILES:
        return reader.parquet(*paths)
    # No location has a control character.
    lines = java.java.util.regex.Pattern.compile("\n").splitAsStream("\n".join(paths))
    listed = lines.collect(java.java.util.stream.Collectors.toList())
    given = java.org.apache.spark.api.python.PythonUtils.toSeq(listed)
    return DataFrame(reader._jreader.parquet(given), session)  # noqa: SLF001 - no other way in


def _first_line(error: Exception) -> str:
    """Return the message of a Java error, without its stack."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.toString())
    return text.strip().partition("\n")[0][:_REASON_CHARACTERS]


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
