"""`neve.spark.migrate`: copies a Parquet directory, a Delta or an Iceberg table into a new table.

1. Read the schema of the source; refuse what cannot be read, and a key column that it lacks.
2. Create the table with the source's columns.
3. Load all rows as one Version. NULL or duplicate keys are an error with examples, unless
   `order_by` says which of the rows counts.

When anything fails the new table is dropped again: the copy is complete or does not exist.

    parquet    read by Spark itself, with the partitions in the names of directories
    delta      deltalake lists the live files, with partition values and deletion vectors
    iceberg    PyIceberg plans the scan and reads each file: columns by field id, deletes applied

Workers read Delta and Iceberg tables, in tasks of about the same size, with the libraries of those
formats; what these cannot read is refused before anything is written.
"""

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from neve.catalog.lake import open_lake
from neve.errors import AlreadyExists, InvalidArgument, NotFound, Unavailable
from neve.iceberg.pyiceberg_bridge import ForeignScan, plan_foreign_scan
from neve.jobs.run import BulkOutcome
from neve.model.row_lineage import LINEAGE_NAMES
from neve.model.schema import TableSchema, normalize_batch
from neve.spark.call_check import check_place, check_session
from neve.spark.row_form import empty_batch, spark_arrow_schema, spark_batch
from neve.spark.spark_session import prepare
from neve.spark.task_run import cut_tasks
from neve.spark.writing import load

Item = TypeVar("Item")

_TASK_BYTES: Final = 128 << 20
_BATCH_ROWS: Final = 65_536
_WORDS_CHARACTERS: Final = 300
# Features that a reader may ignore and still read the right rows.
_DELTA_FEATURES: Final = frozenset(
    {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)


class Source(Protocol):
    """A table of another format."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    def frame(self, session: SparkSession, schema: TableSchema) -> DataFrame:
        """Return its rows, with the columns of the new table."""


class ParquetSource:
    """The Parquet files of a directory."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """Look at the files; raises NotFound, and InvalidArgument when there are none."""
        try:
            # Data files of Iceberg may have columns of row lineage, which are never a user's.
            self._frame = session.read.parquet(location).drop(*LINEAGE_NAMES)
        except Exception as error:
            # Of PySpark or, for a file that is not Parquet, of Java.
            if isinstance(error, AnalysisException) and "[PATH_NOT_FOUND]" in str(error):
                raise NotFound("there is no such directory", path=location) from error
            raise InvalidArgument(
                f"no Parquet files can be read: {_first_words(error)}",
                path=location,
                hint="Pass a directory of Parquet files with one schema",
            ) from error
        self.schema = empty_batch(self._frame.schema).schema

    def frame(self, _session: SparkSession, _schema: TableSchema) -> DataFrame:
        """Return the rows as Spark reads them."""
        return self._frame


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaFile:
    """A live file of a Delta table."""

    path: str
    byte_count: int
    partition: Mapping[str, object]
    kept: Sequence[bool] | None = None
    """Whether each row is live; None, or after the end: all rows are."""


class DeltaSource:
    """The current version of a Delta table."""

    def __init__(self, location: str) -> None:
        """Read the log; raises Unavailable without deltalake, NotFound, InvalidArgument."""
        deltalake = _library("deltalake", needed_for="reading Delta tables", install="deltalake")
        if not deltalake.DeltaTable.is_deltatable(location):
            raise NotFound("there is no Delta table", path=location)
        table = deltalake.DeltaTable(location)
        _refuse_delta_features(table, location)
        self.schema: pa.Schema = pa.schema(table.schema().to_arrow())
        self._files_uri = _uri_of(table.table_uri)
        self._files = list(_delta_files(table, _root_of(self._files_uri)))

    def frame(self, session: SparkSession, schema: TableSchema) -> DataFrame:
        """Return the live rows."""
        return _frame(
            session,
            list(cut_tasks(self._files, lambda file: file.byte_count, weight_max=_TASK_BYTES)),
            partial(_read_delta, self._files_uri, schema.to_json()),
            schema,
        )


class IcebergSource:
    """The current snapshot of an Iceberg table."""

    def __init__(self, location: str) -> None:
        """Plan a scan; raises NotFound, InvalidArgument for deletes that cannot be applied."""
        self._plan = plan_foreign_scan(_newest_metadata(location))
        self.schema: Final = self._plan.schema

    def frame(self, session: SparkSession, schema: TableSchema) -> DataFrame:
        """Return the live rows."""
        files = [
            replace(self._plan, tasks=tuple(tasks))
            for tasks in cut_tasks(
                self._plan.tasks, lambda task: task.file_bytes, weight_max=_TASK_BYTES
            )
        ]
        return _frame(session, files, partial(_read_iceberg, schema.to_json()), schema)


# In workers


def _read_delta(
    files_uri: str, schema_json: str, files: Sequence[DeltaFile]
) -> Iterator[pa.RecordBatch]:
    schema = TableSchema.from_json(schema_json)
    store, _ = pafs.FileSystem.from_uri(files_uri)
    for file in files:
        position = 0
        with store.open_input_file(file.path) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=_BATCH_ROWS):
                first, position = position, position + batch.num_rows
                rows = batch
                if file.kept is not None:
                    kept = list(file.kept[first:position])
                    kept += [True] * (batch.num_rows - len(kept))
                    rows = batch.filter(pa.array(kept, pa.bool_()))
                yield normalize_batch(_with_partition(rows, file.partition, schema), schema)


def _with_partition(
    rows: pa.RecordBatch, partition: Mapping[str, object], schema: TableSchema
) -> pa.RecordBatch:
    """Return rows with the partition columns that only the log has."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name, value in partition.items():
        value_type = schema.column(name).type
        columns[name] = pa.array([value] * rows.num_rows, value_type)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _read_iceberg(schema_json: str, files: ForeignScan) -> Iterator[pa.RecordBatch]:
    schema = TableSchema.from_json(schema_json)
    for batch in files.read():
        yield normalize_batch(batch, schema)


# In the driver


def _frame(
    session: SparkSession,
    tasks: Sequence[Item],
    read: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: TableSchema,
) -> DataFrame:
    """Return the rows that workers read, one task each."""
    given = list(tasks)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                for rows in read(given[number]):
                    yield spark_batch(rows)

    columns = from_arrow_schema(spark_arrow_schema(schema.arrow_schema))
    count = len(given)
    return session.range(0, count, 1, max(1, count)).mapInArrow(run, columns)


def _library(name: str, *, needed_for: str, install: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unavailable(
            f"{needed_for} needs the package {install!a}, which is not installed",
            hint=f"Install it with: pip install {install}",
        ) from error


def _refuse_delta_features(table: Any, location: str) -> None:  # noqa: ANN401 - deltalake's own
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    unknown = sorted(set(table.protocol().reader_features or ()) - _DELTA_FEATURES)
    if mode != "none" or unknown:
        what = ", ".join(unknown) or f"column mapping by {mode}"
        raise InvalidArgument(
            f"the Delta table uses {what}, which neve does not read",
            path=location,
            hint="Rewrite it with its own engine without them, or export it as Parquet",
        )


def _delta_files(table: Any, root: str) -> Iterator[DeltaFile]:  # noqa: ANN401 - deltalake's own
    kept: dict[str, Sequence[bool]] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for row in batch.to_pylist():
            kept[unquote(urlsplit(row["filepath"]).path)] = row["selection_vector"]
    names = table.metadata().partition_columns
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        path = f"{root}/{unquote(action['path'])}"
        yield DeltaFile(
            path=path,
            byte_count=action["size_bytes"],
            partition={name: action[f"partition.{name}"] for name in names},
            kept=kept.pop(path if path.startswith("/") else f"/{path}", None),
        )
    if kept:
        raise InvalidArgument(
            f"the deletion vector of {next(iter(kept))} belongs to no file that the log lists",
            hint="Purge deleted rows with its own engine, and try again",
        )


def _uri_of(location: str) -> str:
    return location if "://" in location else f"file://{location}"


def _root_of(uri: str) -> str:
    _, root = pafs.FileSystem.from_uri(uri)
    return root.rstrip("/")


def _newest_metadata(location: str) -> str:
    """Return the newest metadata file of a table, given the file or its directory."""
    if location.endswith(".metadata.json"):
        return location
    store, root = pafs.FileSystem.from_uri(_uri_of(location))
    found = store.get_file_info(pafs.FileSelector(f"{root}/metadata", allow_not_found=True))
    versions = [info for info in found if info.base_name.endswith(".metadata.json")]
    if not versions:
        raise NotFound("there is no Iceberg metadata", path=location)
    newest = max(versions, key=lambda info: _metadata_order(info.base_name))
    return (
        _uri_of(newest.path)
        if location.startswith(("/", "file:"))
        else (f"{urlsplit(location).scheme}://{newest.path}")
    )


def _metadata_order(name: str) -> tuple[int, str]:
    """Order `v7.metadata.json` and `00007-<uuid>.metadata.json` by their number."""
    digits = name.removeprefix("v").partition(".")[0].partition("-")[0]
    return (int(digits) if digits.isdigit() else -1), name


def _first_words(error: Exception) -> str:
    """Return the line of a Spark error that says what is wrong: the one with its condition."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    told = next((line for line in lines if "[" in line), lines[0])
    return told[max(told.find("["), 0) :][:_WORDS_CHARACTERS]


FORMATS: Final = ("parquet", "delta", "iceberg")


def migrate(
    session: SparkSession,
    source: str | PathLike[str],
    location: str | PathLike[str],
    name: str,
    *,
    primary_key: Sequence[str],
    format: str = "parquet",  # noqa: A002 - Spark's word for it
    partition_by: Sequence[str] = (),
    order_by: str | None = None,
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> BulkOutcome:
    """Copy a Parquet directory, a Delta or an Iceberg table into a new table.

    `partition_by` and `properties` are as in `create_table`. The last row of a key by `order_by`
    stays; without it, duplicates are an error. Raises AlreadyExists for a taken name.
    """
    check_session(session)
    check_place(location, name, after="session")
    if not isinstance(source, str | PathLike):
        raise InvalidArgument(
            f"the source is a {type(source).__name__}", hint="Pass the directory of the table"
        )
    if not primary_key:
        raise InvalidArgument("no column is the primary key", hint="Name one, or several")
    _refuse_inside(location, source)
    prepare(session)
    with open_lake(location, storage_options=storage_options) as lake:
        if lake.table_exists(name):
            raise AlreadyExists(
                f"there is a table {name!a} already", hint="Choose another name, or drop it"
            )
        opened = _source(session, os.fspath(source), format)
        table = lake.create_table(
            name, opened.schema, primary_key, partition_by=partition_by, properties=properties
        )
        schema = table.schema
        try:
            return load(
                opened.frame(session, schema),
                location,
                name,
                order_by=order_by,
                storage_options=storage_options,
            )
        except BaseException:
            lake.drop_table(name, purge=True)
            raise


def _refuse_inside(location: str | PathLike[str], source: str | PathLike[str]) -> None:
    """Raise InvalidArgument for a lake inside the source: its files would become rows."""
    places = [os.fspath(each).rstrip("/") for each in (location, source)]
    inner, outer = [
        each if "://" in each else os.path.abspath(each)  # noqa: PTH100 - as text, like the others
        for each in places
    ]
    if inner == outer or inner.startswith(f"{outer}/"):
        raise InvalidArgument(
            "the lake lies inside the source, whose files it would become",
            path=inner,
            hint="Pass a location outside the source",
        )


def _source(session: SparkSession, location: str, kind: str) -> Source:
    if "://" not in location:
        location = os.path.abspath(location)  # noqa: PTH100 - workers have other directories
    match kind:
        case "parquet":
            return ParquetSource(session, location)
        case "delta":
            return DeltaSource(location)
        case "iceberg":
            return IcebergSource(location)
        case _:
            raise InvalidArgument(
                f"format={kind!r} is not known", hint=f"Use one of {', '.join(FORMATS)}"
            )
