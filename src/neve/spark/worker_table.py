"""A table inside of a worker: what a task needs to read and write files, and nothing it can commit.

Workers are told where the warehouse is and what the table is made of: they read no manifest, so
the tasks of a job cost the same however long the table's history is.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from neve.compaction.rewrite_job import TableDefinition
from neve.engine.rewrite import TaskFiles
from neve.errors import InvalidArgument
from neve.jobs.run import RunIds, RunName
from neve.spark.job_site import TableSite, pairs_of
from neve.table.file_writers import FileWriters
from neve.table.table_context import TableContext
from neve.table.table_files import TableFiles
from neve.table.table_parts import Definitions, TableParts

_CACHE_BYTES: Final = 32 << 20
_FILE_BYTES: Final = 64 << 20


def site_of(table: TableDefinition, storage_options: Mapping[str, str] | None) -> TableSite:
    """Say where workers find a table; raises InvalidArgument when only this process has it."""
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


class WorkerTable:
    """The files of one table, in a worker; for one thread."""

    def __init__(self, site: TableSite, table: TableDefinition, *, run: str | None = None) -> None:
        """Open a table; new files bear the name of `run` where there is one."""
        self.parts: TableParts = site.parts()
        self.definitions = Definitions(self.parts.versions, path=self.parts.paths.manifest)
        self.definitions.add(table.schemas, table.specs)
        self.context = TableContext(
            self.definitions.schema(table.schema_id),
            schema_of=self.definitions.schema,
            spec_of=self.definitions.spec,
        )
        self.files = TableFiles(
            self.parts.objects,
            self.parts.paths,
            schema_of=self.definitions.schema,
            encoder=self.context.encoder,
            cache_bytes=_CACHE_BYTES,
            recorder=self.parts.recorder,
        )
        name = None if run is None else RunName(run)
        self.making = FileWriters(
            self.parts if name is None else replace(self.parts, ids=RunIds(name, self.parts.ids)),
            encoder=self.context.encoder,
            file_bytes=_FILE_BYTES,
        )
        self.task_files = TaskFiles(self.making, self.files, self.definitions, run=name)
