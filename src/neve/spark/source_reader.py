"""Batch reads of the data source: files in groups, each read by one task with the engine's scan.

1. `pushFilters` keeps the filters that a file's bounds can answer. Spark filters the rows again.
2. `partitions` plans the files of the pinned Version, leases it, and groups files into tasks of
   about 128 MiB. The lease ends by itself.
3. `read` scans the files of one group, on an executor, without reading the Version again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from neve.model.data_file import DataFile
from neve.model.predicate import Predicate
from neve.model.schema import TableSchema
from neve.model.version import Operation, Version, VersionFacts
from neve.read.chosen_columns import ChosenColumns, chosen_columns
from neve.read.filter_text import parse_filter
from neve.read.filters import row_filter
from neve.read.scan import Scan, ScanRequest
from neve.read.scan_plan import plan_scan, unexpired
from neve.spark.filters import pushed_predicate
from neve.spark.read_plan import TableAddress, WantedVersion, files_view, leased_view, system_rows
from neve.spark.row_form import spark_batch

_PARTITION_BYTES: Final = 128 << 20


@lru_cache(maxsize=8)
def _parsed(schema_json: str) -> TableSchema:
    return TableSchema.from_json(schema_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedTable:
    """What all steps of a read share; sent from process to process."""

    address: TableAddress
    version: int
    moment_ms: int
    """Rows that have expired by then are left out."""
    schema_json: str
    asked: tuple[str, ...]
    """Columns to return, in their order; with dots, fields inside structs."""

    @property
    def schema(self) -> TableSchema:
        """The schema of the rows."""
        return _parsed(self.schema_json)

    @property
    def chosen(self) -> ChosenColumns:
        """The columns to return."""
        return chosen_columns(self.asked, self.schema)


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files that one task reads."""

    files: tuple[DataFile, ...]


class SourceReader(DataSourceReader):
    """Reads one Version of a table."""

    def __init__(self, pinned: PinnedTable, asked: str | None) -> None:
        self._pinned = pinned
        self._filter: Predicate | None = None if asked is None else parse_filter(asked)

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - Spark's name
        """Keep filters that prune files; Spark applies all of them to the rows."""
        schema = self._pinned.schema
        for each in filters:
            predicate = pushed_predicate(each, schema)
            if predicate is not None:
                self._filter = predicate if self._filter is None else self._filter & predicate
        return iter(filters)

    def partitions(self) -> list[InputPartition]:
        """Plan the files; raises NotFound when the Version has expired."""
        pinned = self._pinned
        with pinned.address.catalog() as lake:
            table = lake.load_table(pinned.address.name)
            view, _ = leased_view(table, WantedVersion(version=pinned.version))
            view = view.as_of(pinned.moment_ms)
            plan = plan_scan(
                view,
                names=pinned.chosen.names,
                row_filter=unexpired(row_filter(self._filter, view.context.schema), view),
            )
        files = [planned.file for planned in plan.files if planned.file.live_count]
        return [FilesPartition(group) for group in _groups(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Scan the files of a group."""
        if not isinstance(partition, FilesPartition):
            return  # what Spark makes up when there is nothing to read
        pinned = self._pinned
        schema = pinned.schema
        with pinned.address.catalog() as lake:
            stored = lake.load_table(pinned.address.name).stored
            files = {file.path: file for file in partition.files}
            facts = VersionFacts(
                operation=Operation.APPEND, timestamp_ms=0, schema_id=schema.schema_id, spec_id=0
            )
            some = Version(number=pinned.version, parent=None, facts=facts, files=files)
            view = files_view(stored, some, schema.schema_id).as_of(pinned.moment_ms)
            scan = Scan(
                view,
                ScanRequest(filter=self._filter, columns=list(pinned.asked)),
                sequence=None,
            )
            for batch in scan.to_batches():
                yield spark_batch(batch)


class SystemReader(DataSourceReader):
    """Reads a system table in one task, as of when that runs."""

    def __init__(self, pinned: PinnedTable, asked: str | None) -> None:
        self._pinned = pinned
        self._filter = asked

    def partitions(self) -> list[InputPartition]:
        """Return the only partition."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - the only one
        """List the rows."""
        pinned = self._pinned
        found = system_rows(pinned.address, columns=list(pinned.asked), filter=self._filter)
        yield from map(spark_batch, found.to_batches())


def _groups(files: list[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Group files until they are large enough for a task."""
    group: list[DataFile] = []
    for file in files:
        if group and sum(each.file_bytes for each in group) + file.file_bytes > _PARTITION_BYTES:
            yield tuple(group)
            group = []
        group.append(file)
    if group:
        yield tuple(group)
