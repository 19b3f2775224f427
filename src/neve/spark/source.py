"""The Spark data source `neve`: tables by SQL, by `spark.read` and by `spark.readStream`.

    spark.read.format("neve").option("table", "shop.orders").load("./lake")

    option                  meaning
    table                   name of the table; the location is the path. Also a system table:
                            __tables, __snapshots or __files
    columns                 names of columns, with commas between them; all by default
    version, timestamp,     which Version is read; the current one by default
      tag
    filter                  rows that are read, as `Table.scan` takes it
    since                   not the table but its change feed, after this Version: a
                            number, 0 for all, or `latest`; a stream always has it
    maxVersionsPerTrigger   most Versions in one batch of a stream
    storage.x               storage option x of the lake

The steps of a read are in `neve.spark.source_steps`, the options of a write in
`neve.spark.source_writer`. Spark creates and uses this object in its own processes. The Version of
a read is chosen once, when `load` needs the schema: Spark sends the object, and with it the choice,
to every later step.

An option whose name is nearly right is refused, not ignored. Spark adds options of its own, so an
unknown name alone is not a mistake. `CREATE TABLE` adds `provider` and others, and asks for columns
unless the statement has them. It keeps the options in Spark's catalog, but passes none of them to
later reads and writes. Such a table could never be read, so it is refused as early as possible.
"""

import importlib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from neve.errors import InvalidArgument
from neve.model.suggestions import similar_name, suggestion


class NeveSource(DataSource):
    """Tables of neve."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._pinned: object = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "neve"

    def schema(self) -> StructType:
        """Choose the Version, and return its columns; raises NotFound, InvalidArgument."""
        schema: StructType = self._steps().schema(self._pin())
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is our own
        """Read a Version, or the changes since one."""
        reader: DataSourceReader = self._steps().reader(self._pin())
        return reader

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Follow the change feed."""
        reader: DataSourceStreamReader = self._steps().stream_reader(self._pin())
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Upsert the rows of a DataFrame."""
        writing = importlib.import_module("neve.spark.source_writer")
        writer: DataSourceWriter = writing.batch_writer(schema, self.options, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's
        """Upsert the rows of a stream."""
        writing = importlib.import_module("neve.spark.source_writer")
        writer: DataSourceStreamWriter = writing.stream_writer(schema, self.options, overwrite)
        return writer

    def _pin(self) -> object:
        """Choose the Version, the first time."""
        if self._pinned is None:
            self._pinned = self._steps().pin()
        return self._pinned

    def _steps(self) -> Any:  # noqa: ANN401 - a SourceSteps, whose module is loaded when needed
        return importlib.import_module("neve.spark.source_steps").SourceSteps(self.options)


_STORAGE_PREFIX: Final = "storage."
_OF_CREATE_TABLE: Final = "provider"
_INSTEAD_OF_CREATE_TABLE: Final = (
    "CREATE TEMPORARY VIEW orders USING neve OPTIONS (path 'the lake', table 'namespace.name'), "
    "or neve.spark.view"
)


def refuse_misspelled(given: Iterable[str], known: Sequence[str]) -> None:
    """Raise InvalidArgument for a name that is almost one of those known."""
    by_folded = {name.lower(): name for name in known}
    for name in given:
        folded = name.lower()
        if folded in by_folded or folded.startswith(_STORAGE_PREFIX):
            continue
        similar = similar_name(folded, by_folded)
        if similar is not None:
            raise InvalidArgument(
                f"the format neve has no option {name!a}",
                hint=suggestion(by_folded[similar]),
            )


def refuse_create_table(options: Mapping[str, str]) -> None:
    """Raise InvalidArgument for a table of Spark's own catalog: at CREATE, or at its first use."""
    names = {name.lower() for name in options}
    if _OF_CREATE_TABLE in names:
        raise InvalidArgument(
            "Spark's catalog cannot hold a table of neve: CREATE TABLE … USING neve keeps its "
            "options from every read",
            hint=f"Write {_INSTEAD_OF_CREATE_TABLE}; make the table itself with neve",
        )
    if not names & {"path", "table"}:
        raise InvalidArgument(
            "the source neve has no table: neither path nor table is set",
            hint='Write .option("table", "namespace.name") and the lake in load or save. A table '
            "that CREATE TABLE … USING neve made cannot be used: drop it and write "
            + _INSTEAD_OF_CREATE_TABLE,
        )


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the lake's storage, without their prefix."""
    return {
        name[len(_STORAGE_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_STORAGE_PREFIX)
    }
