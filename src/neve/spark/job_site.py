"""JobSite: the table and Version of a job, in a form that workers receive and open.

A worker gets the table's location and definitions with its task, opens the lake itself, and
commits nothing. `worker_files` reads no manifest, so a task costs the same however long the history
is. Without storage options for credentials, each worker looks for its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.stored_table import StoredTable
from neve.compaction.rewrite_job import TableDefinition
from neve.errors import NeveError, NotFound, Unavailable
from neve.jobs.run import JobBase
from neve.spark.call_check import refuse_memory
from neve.storage.clock import SystemClock, SystemIds
from neve.storage.open_store import open_store
from neve.table.file_writers import RunIds, RunName
from neve.table.table_context import TableParts
from neve.table.table_files import TableFiles

Pairs = tuple[tuple[str, str], ...]

_CACHE_BYTES: Final = 32 << 20


def _pairs_of(options: Mapping[str, str] | None) -> Pairs:
    """Return options in a form that can be compared."""
    return tuple(sorted((options or {}).items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSite:
    """Where a table is."""

    location: str
    """Of the lake, as a URI: no worker has the driver's working directory."""
    table_id: str
    storage_options: Pairs = field(default=(), repr=False)
    properties: Pairs = ()
    opening: str = field(default_factory=lambda: SystemIds().uuid().hex)
    """New for each job: what a worker caches of a table must not outlive the job, because the
    lake may be restored from a copy before the next one."""

    @classmethod
    def of(
        cls, table: CatalogTable | TableDefinition, storage_options: Mapping[str, str] | None
    ) -> "TableSite":
        """Return where workers find a table; raises InvalidArgument for one in memory."""
        if isinstance(table, TableDefinition):
            location = table.location
        else:
            location = table.stored.objects.location
        refuse_memory(location)
        return cls(
            location=location,
            table_id=table.table_id,
            storage_options=_pairs_of(storage_options),
            properties=_pairs_of(table.properties),
        )

    def parts(self) -> TableParts:
        """Open the table in this process; raises Unavailable where it cannot be read."""
        try:
            stored = _stored_table(self.location, self.storage_options, self.table_id, self.opening)
        except NotFound as error:
            raise self.unreachable(error) from error
        return stored.parts(dict(self.properties))

    def unreachable(self, cause: NeveError) -> Unavailable:
        """Return the error for a worker that cannot see the lake."""
        return Unavailable(
            f"a Spark worker cannot read the lake: {cause.message}",
            path=self.location,
            hint="Share the directory with every worker at the same path, or use s3://",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSite:
    """One run of a job on a table."""

    table: TableSite
    run: str
    base: int

    def open(self) -> JobBase:
        """Open the table at the job's Version; raises Unavailable where it cannot be read."""
        parts = self.table.parts()
        try:
            return JobBase(parts, RunName(self.run), self.base)
        except NotFound as error:
            raise self.table.unreachable(error) from error


def worker_files(site: TableSite, table: TableDefinition, *, run: str | None = None) -> TableFiles:
    """Open the files of a table in a worker; the names of new ones begin with `run`'s id."""
    parts = site.parts()
    parts.definitions.add(table.schemas, table.specs)
    return TableFiles(
        parts,
        table.schema_id,
        cache_bytes=_CACHE_BYTES,
        ids=None if run is None else RunIds(RunName(run), parts.ids),
    )


@lru_cache(maxsize=2)
def _stored_table(location: str, options: Pairs, table_id: str, opening: str) -> StoredTable:
    """Open a table once per process and job: workers do many tasks of a job.

    Few are kept, because each holds copies of what it read from a bucket.
    """
    del opening  # only distinguishes jobs
    clock, ids = SystemClock(), SystemIds()
    objects = open_store(
        location, storage_options=dict(options), clock=clock, ids=ids, create=False
    )
    return StoredTable(objects, table_id, clock=clock, ids=ids)
