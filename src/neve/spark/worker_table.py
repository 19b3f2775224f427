"""The files of a table inside a worker, which reads and writes them and commits nothing.

A worker gets the table's location and definitions with its task. It reads no manifest, so a task
costs the same however long the table's history is.
"""

from collections.abc import Mapping
from typing import Final

from neve.compaction.rewrite_job import TableDefinition
from neve.engine.run_name import RunIds, RunName
from neve.errors import InvalidArgument
from neve.spark.job_site import TableSite, pairs_of
from neve.table.table_files import TableFiles

_CACHE_BYTES: Final = 32 << 20


def site_of(table: TableDefinition, storage_options: Mapping[str, str] | None) -> TableSite:
    """Return where workers find a table; raises InvalidArgument when only this process has it."""
    if table.location.startswith("memory:"):
        raise InvalidArgument(
            "a warehouse in memory cannot be reached by Spark's workers",
            path=table.location,
            hint="Keep it in a directory that all of them see, or in an object store",
        )
    return TableSite(
        location=table.location,
        table_id=table.table_id,
        storage_options=pairs_of(storage_options),
        properties=pairs_of(table.properties),
    )


def worker_files(site: TableSite, table: TableDefinition, *, run: str | None = None) -> TableFiles:
    """Open the files of a table in a worker; the names of new ones begin with that of `run`."""
    parts = site.parts()
    parts.definitions.add(table.schemas, table.specs)
    return TableFiles(
        parts,
        table.schema_id,
        cache_bytes=_CACHE_BYTES,
        ids=None if run is None else RunIds(RunName(run), parts.ids),
    )
