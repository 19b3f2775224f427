"""Tables of others as DataFrames: a Parquet directory, a Delta table, an Iceberg table.

    parquet    read by Spark itself, with the partitions that directories are named for
    delta      deltalake lists the live files, with partition values and deletion vectors
    iceberg    PyIceberg plans the scan and reads each file: columns by field id, deletes applied

Delta and Iceberg tables are read by the workers, a task for some files of about the same size, with
the libraries of those formats; what these cannot read is refused before anything is written.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from neve.errors import InvalidArgument, NotFound, Unavailable
from neve.model.row_lineage import LINEAGE_NAMES
from neve.model.schema import TableSchema, normalize_batch
from neve.spark.row_form import empty_batch, spark_arrow_schema, spark_batch

Item = TypeVar("Item")

_TASK_BYTES: Final = 128 << 20
_BATCH_ROWS: Final = 65_536
_WORDS_CHARACTERS: Final = 300
# What a reader may leave unread without reading other rows.
_DELTA_FEATURES: Final = frozenset(
    {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
)


class Source(Protocol):
    """A table of others."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        ...

    def frame(self, session: SparkSession, schema: TableSchema) -> DataFrame:
        """Return its rows, with the columns of a table that was made for them."""
        ...


class ParquetSource:
    """The Parquet files of a directory."""

    def __init__(self, session: SparkSession, location: str) -> None:
        """Look at the files; raises NotFound, and InvalidArgument when there are none."""
        try:
            # Data files of Iceberg may have columns of row lineage, which are never a user's.
            self._frame = session.read.parquet(location).drop(*LINEAGE_NAMES)
        except Exception as error:
            # Of PySpark or, for a file that is none, of Java.
            if isinstance(error, AnalysisException) and error.getCondition() == "PATH_NOT_FOUND":
                raise NotFound("there is no such directory", path=location) from error
            raise InvalidArgument(
                f"no Parquet files can be read: {_first_words(error)}",
                path=location,
                hint="Give a directory of Parquet files with one schema",
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
    """For each row whether it is live; None, and behind the end: all are."""


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
            list(_cut(self._files, lambda file: file.byte_count)),
            partial(_read_delta, self._files_uri, schema.to_json()),
            schema,
        )


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """Files of an Iceberg table that one task reads, in PyIceberg's own objects."""

    metadata: object
    properties: Mapping[str, str]
    tasks: tuple[object, ...]
    location: str = field(default="")


class IcebergSource:
    """The current snapshot of an Iceberg table."""

    def __init__(self, location: str) -> None:
        """Plan a scan; raises NotFound, InvalidArgument for deletes that cannot be applied."""
        tables = _library("pyiceberg.table", needed_for="reading Iceberg tables", install="neve")
        arrow_io = importlib.import_module("pyiceberg.io.pyarrow")
        self._location = _newest_metadata(location)
        self._table = tables.StaticTable.from_metadata(self._location)
        self.schema: pa.Schema = arrow_io.schema_to_pyarrow(
            self._table.schema(), include_field_ids=False
        )
        try:
            self._tasks = list(self._table.scan().plan_files())
        except ValueError as error:
            raise InvalidArgument(
                f"the table has deletes that PyIceberg cannot apply: {error}",
                path=self._location,
                hint="Have its own engine compact it first: that applies equality deletes",
            ) from error

    def frame(self, session: SparkSession, schema: TableSchema) -> DataFrame:
        """Return the live rows."""
        files = [
            IcebergFiles(
                self._table.metadata,
                dict(self._table.io.properties),
                tuple(tasks),
                self._location,
            )
            for tasks in _cut(self._tasks, lambda task: int(task.file.file_size_in_bytes))
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
    """Return rows with the columns that only the log has."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    for name, value in partition.items():
        value_type = schema.column(name).type
        columns[name] = pa.array([value] * rows.num_rows, value_type)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _read_iceberg(schema_json: str, files: IcebergFiles) -> Iterator[pa.RecordBatch]:
    schema = TableSchema.from_json(schema_json)
    arrow_io = importlib.import_module("pyiceberg.io.pyarrow")
    load_file_io = importlib.import_module("pyiceberg.io").load_file_io
    always = importlib.import_module("pyiceberg.expressions").AlwaysTrue()
    metadata = cast("Any", files.metadata)
    scan = arrow_io.ArrowScan(
        metadata, load_file_io(dict(files.properties), files.location), metadata.schema(), always
    )
    for batch in scan.to_record_batches(list(files.tasks)):
        yield normalize_batch(batch, schema)


# In the driver


def _frame(
    session: SparkSession,
    tasks: Sequence[Item],
    read: Callable[[Item], Iterator[pa.RecordBatch]],
    schema: TableSchema,
) -> DataFrame:
    """Yield the rows that workers read, each task by one of them."""
    given = list(tasks)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_numpy().tolist():
                for rows in read(given[number]):
                    yield spark_batch(rows)

    columns = from_arrow_schema(spark_arrow_schema(schema.arrow_schema))
    count = len(given)
    return session.range(0, count, 1, max(1, count)).mapInArrow(run, columns)


def _cut(items: Sequence[Item], weigh: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Cut files into tasks of bounded size."""
    task: list[Item] = []
    weight = 0
    for item in items:
        if task and weight + weigh(item) > _TASK_BYTES:
            yield task
            task, weight = [], 0
        task.append(item)
        weight += weigh(item)
    if task:
        yield task


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
            hint="Have its own engine write it once more without, or export it as Parquet",
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
            hint="Have its own engine purge deleted rows, and try again",
        )


def _uri_of(location: str) -> str:
    return location if "://" in location else f"file://{location}"


def _root_of(uri: str) -> str:
    _, root = pafs.FileSystem.from_uri(uri)
    return root.rstrip("/")


def _newest_metadata(location: str) -> str:
    """Return the newest metadata file of a table, itself or its directory being named."""
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
    """Return the line of an error of Spark that says what is wrong: the one with its condition."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    told = next((line for line in lines if "[" in line), lines[0])
    return told[max(told.find("["), 0) :][:_WORDS_CHARACTERS]
