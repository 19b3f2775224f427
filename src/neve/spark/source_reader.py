"""Batch reads of the data source: files in groups, each read by one task with the engine's scan.

1. `pushFilters` keeps the filters that a file's bounds can answer. Spark filters the rows again.
2. `partitions` plans the files of the pinned Version, leases it, and divides them into pieces
   (`neve.spark.file_pieces`). The lease ends by itself.
3. `read` scans one piece, on an executor, without reading the Version again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from neve.model.predicate import Predicate
from neve.model.schema import TableSchema
from neve.read.chosen_columns import ChosenColumns, chosen_columns
from neve.read.filter_text import parse_filter
from neve.read.filters import row_filter
from neve.read.scan_plan import plan_scan, unexpired
from neve.spark.file_pieces import FilePiece, PieceReader, cut_pieces
from neve.spark.filters import pushed_predicate
from neve.spark.read_plan import TableAddress, WantedVersion, leased_view, system_rows
from neve.spark.row_form import spark_batch


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
class PiecePartition(InputPartition):
    """Files that one task reads, and how."""

    reader: PieceReader
    piece: FilePiece


class SourceReader(DataSourceReader):
    """Reads one Version of a table."""

    def __init__(self, pinned: PinnedTable, asked: str | None) -> None:
        self._pinned = pinned
        self._filter: Predicate | None = None if asked is None else parse_filter(asked)

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        """Keep filters that prune files; Spark applies all of them to the rows.

        PySpark 4.0 never calls it.
        """
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
        reader = PieceReader.of(
            view,
            dict(pinned.address.storage_options),
            columns=pinned.asked,
            filter=self._filter,
            moment_ms=pinned.moment_ms,
        )
        return [PiecePartition(reader, piece) for piece in cut_pieces(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Scan the files of a piece."""
        if not isinstance(partition, PiecePartition):
            return  # what Spark makes up when there is nothing to read
        for batch in partition.reader.read(partition.piece):
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
