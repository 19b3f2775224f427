"""The change feed of a table as a Spark source: in a batch, or as a stream.

An offset is the number of a Version: a batch holds the changes after one up to another. Versions
are divided among a few tasks; rows of one Version stay in order within their task.

SPARK-1  While a stream runs, it leases history from its last finished batch on: nothing it still
         has to read expires. A stream that pauses for longer than a lease may lose its history.
SPARK-2  A stream keeps the columns it began with. When the table's columns change, it ends with
         SchemaMismatch; restarted from its checkpoint, it continues with the new ones.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    TimestampType,
)

from neve.catalog.stored_table import StoredTable
from neve.catalog.table import open_table_of
from neve.errors import InvalidArgument, NotFound, SchemaMismatch
from neve.manifest.leases import HeldLease
from neve.model.schema import TableSchema
from neve.model.schema_view import ArrowArray
from neve.read.changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, EXPIRED
from neve.spark.read_plan import LEASE_SECONDS
from neve.spark.row_form import spark_batch
from neve.spark.source_reader import PinnedTable
from neve.table.schema_mapping import SchemaMapping

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:
    # Older PySpark asks for all there is: it passes neither a start nor a limit.
    HAS_LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        """A limit, as newer PySpark passes it."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit."""

    class ReadMaxFiles(ReadLimit):  # type: ignore[no-redef]
        """Is never passed."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Is never asked for: such a query has one batch."""


_TASKS_MAX: Final = 8
_VERSION: Final = "version"
_FEED_FIELDS: Final = (
    StructField(CHANGE_TYPE, StringType()),
    StructField(COMMIT_VERSION, LongType()),
    StructField(COMMIT_TIMESTAMP, TimestampType()),
)

Offset = dict[str, int]


@dataclass(frozen=True)
class VersionsPartition(InputPartition):
    """The changes after one Version up to another."""

    since: int
    until: int


def feed_fields(schema: TableSchema) -> list[StructField]:
    """Return the columns that a feed adds to those of the table."""
    expired = [StructField(EXPIRED, BooleanType())] if schema.rules.ttl is not None else []
    return [*_FEED_FIELDS, *expired]


def read_changes(pinned: PinnedTable, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the changes of some Versions in Spark's form."""
    if not isinstance(partition, VersionsPartition):
        return  # what Spark makes up when there is nothing to read
    target = pinned.schema
    chosen = pinned.chosen
    names = chosen.names
    added = [field.name for field in feed_fields(target)]
    with (
        pinned.address.catalog() as lake,
        lake.table(pinned.address.name, read_only=True) as table,
        table.changes(partition.since, partition.until) as changes,
    ):
        stored = open_table_of(table).stored
        source = stored.definitions.schema(schema_id_at(stored, partition.until))
        mapping = SchemaMapping(source, target)
        for batch in changes:
            rows = mapping.batch(batch.select(source.arrow_schema.names), chosen.names)
            given = chosen.given(pa.Table.from_batches([rows]))
            columns = [column.combine_chunks() for column in given.columns]
            moments = batch.column(COMMIT_TIMESTAMP).cast(pa.timestamp("us", tz="UTC"))
            facts: list[ArrowArray] = [
                batch.column(CHANGE_TYPE),
                batch.column(COMMIT_VERSION),
                moments,
            ]
            if EXPIRED in added:
                # Under an older schema without a time to live, no row had expired.
                has_it = EXPIRED in batch.schema.names
                no_row = pa.repeat(pa.scalar(False), batch.num_rows)
                facts.append(batch.column(EXPIRED) if has_it else no_row)
            yield spark_batch(pa.RecordBatch.from_arrays([*columns, *facts], [*names, *added]))


def schema_id_at(stored: StoredTable, number: int) -> int:
    """Return the id of the schema that a Version was committed with."""
    versions = stored.versions
    return versions.edit_in(versions.store.read(), max(number, 1)).facts.schema_id


def divided(since: int, until: int) -> list[InputPartition]:
    """Divide Versions among a few tasks, in order."""
    tasks = min(until - since, _TASKS_MAX)
    cuts = [since + (until - since) * at // tasks for at in range(tasks + 1)] if tasks > 0 else []
    return [VersionsPartition(*each) for each in pairwise(cuts)]


class ChangesReader(DataSourceReader):
    """Reads a stretch of the feed once."""

    def __init__(self, pinned: PinnedTable, *, since: int) -> None:
        self._pinned = pinned
        self._since = since

    def partitions(self) -> list[InputPartition]:
        """Divide the stretch; raises NotFound when a part of it has expired."""
        if self._since > self._pinned.version:
            raise InvalidArgument(
                f"there is no version {self._since} yet",
                hint=f"Use at most {self._pinned.version}, the version that is read",
            )
        with self._pinned.address.catalog() as lake:
            _hold_history(lake.load_table(self._pinned.address.name).stored, self._since)
        return divided(self._since, self._pinned.version)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of some Versions."""
        return read_changes(self._pinned, partition)


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the feed, batch by batch."""

    def __init__(
        self, pinned: PinnedTable, *, since: int | None, versions_max: int | None = None
    ) -> None:
        """Begin after a Version, by default the current one."""
        self._pinned = pinned
        self._since = since
        self._versions_max = versions_max
        # Only in the process that runs the stream: copies sent to tasks have none.
        self._opened: ExitStack | None = None
        self._stored: StoredTable | None = None
        self._lease: HeldLease | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return where a new stream begins."""
        return {_VERSION: self._current() if self._since is None else self._since}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return how much a batch may hold; Spark only has a limit of files, used for Versions."""
        if self._versions_max is None:
            return ReadAllAvailable()
        return ReadMaxFiles(self._versions_max)

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        """Return where the next batch ends; without a start, as PySpark 4.0 asks, the newest."""
        if start is None:
            return {_VERSION: self._current()}
        begun = start[_VERSION]
        self._hold(begun)
        end = self._current() if self._target is None else self._target
        if isinstance(limit, ReadMaxFiles):
            end = min(end, begun + limit.max_files)
        return {_VERSION: max(end, begun)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the current Version: the stream ends with it."""
        self._target = self._current()

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the current Version, for the progress of the query."""
        return {_VERSION: self._current()}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Divide a batch; raises NotFound for expired history, SchemaMismatch (SPARK-2)."""
        since, until = start[_VERSION], end[_VERSION]
        if since >= until:
            return []
        self._hold(since)
        stored = self._table()
        if schema_id_at(stored, until) > self._pinned.schema.schema_id:
            raise SchemaMismatch(
                f"the columns of {self._pinned.address.name!a} changed before version {until}",
                path=stored.paths.manifest,
                hint="Restart the query from its checkpoint: it continues with the new columns",
            )
        return divided(since, until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the changes of some Versions."""
        return read_changes(self._pinned, partition)

    def commit(self, end: Offset) -> None:
        """Release the history that the stream has read."""
        before, self._lease = self._lease, None
        self._hold(end[_VERSION])
        if before is not None:
            before.give_up()

    def stop(self) -> None:
        """Release everything."""
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.give_up()
        if self._opened is not None:
            self._opened.close()
            self._opened = self._stored = None

    def _table(self) -> StoredTable:
        if self._stored is None:
            self._opened = ExitStack()
            lake = self._opened.enter_context(self._pinned.address.catalog())
            self._stored = lake.load_table(self._pinned.address.name).stored
        return self._stored

    def _current(self) -> int:
        head = self._table().versions.head()
        if head.dropped:
            raise NotFound("the table was dropped", path=self._table().paths.manifest)
        return head.current_version

    def _hold(self, since: int) -> None:
        """Lease history from a Version on, or renew the existing lease (SPARK-1)."""
        if self._lease is not None and not self._lease.has_lapsed:
            self._lease.check()
        else:
            self._lease = _hold_history(self._table(), since)


def _hold_history(stored: StoredTable, since: int) -> HeldLease | None:
    parts = stored.parts()
    return parts.leases.hold_history(since, parts.versions, seconds=LEASE_SECONDS, is_needed=False)
