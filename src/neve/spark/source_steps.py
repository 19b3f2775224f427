"""The steps of the data source `neve`, each run by another process: see `neve.spark.source`.

They are a separate module because Spark loads the source itself in every session, to list formats.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from neve.catalog.system_tables import is_system_name, readable_schema
from neve.errors import InvalidArgument
from neve.model.schema import TableSchema
from neve.read.changes import feed_schema
from neve.read.chosen_columns import chosen_columns
from neve.read.filters import row_filter
from neve.spark.change_stream import (
    HAS_LIMITS,
    ChangesReader,
    ChangeStreamReader,
    feed_fields,
)
from neve.spark.read_plan import (
    TableAddress,
    WantedVersion,
    refuse_beside_system_table,
)
from neve.spark.source import refuse_create_table, refuse_misspelled, storage_options
from neve.spark.source_reader import PinnedTable, SourceReader, SystemReader
from neve.spark.spark_types import spark_schema

_OPTIONS: Final = (
    "path",
    "table",
    "columns",
    "version",
    "timestamp",
    "tag",
    "filter",
    "since",
    "maxVersionsPerTrigger",
)
_LATEST: Final = "latest"


class SourceSteps:
    """The options of one read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def pin(self) -> PinnedTable:
        """Choose the Version; raises NotFound, InvalidArgument."""
        refuse_create_table(self._options)
        refuse_misspelled(self._options, _OPTIONS)
        address = self._address()
        if is_system_name(address.name):
            return self._pinned_system_table(address)
        with address.catalog() as lake:
            table = lake.load_table(address.name)
            wanted = self._wanted()
            version, schema_id = wanted.of(table)
            schema = table.stored.definitions.schema(schema_id)
            # The store's own name: a relative path means another place in other processes.
            place = TableAddress.of(lake.location, address.name, dict(address.storage_options))
            moment = wanted.moment_ms(version, table.stored.parts().clock)
            return self._pinned(place, schema, version.number, moment)

    def _pinned_system_table(self, address: TableAddress) -> PinnedTable:
        refuse_beside_system_table(
            address.name,
            is_asked=not self._wanted().is_current or self._option("since") is not None,
        )
        with address.catalog() as lake:
            place = TableAddress.of(lake.location, address.name, dict(address.storage_options))
        return self._pinned(place, readable_schema(address.name), 0, 0)

    def _pinned(
        self, address: TableAddress, schema: TableSchema, version: int, moment_ms: int
    ) -> PinnedTable:
        asked = self._option("columns")
        columns = None if asked is None else [name.strip() for name in asked.split(",")]
        row_filter(self._option("filter"), schema)  # raises for an invalid one
        return PinnedTable(
            address=address,
            version=version,
            moment_ms=moment_ms,
            schema_json=schema.to_json(),
            asked=chosen_columns(columns, schema).asked,
        )

    def schema(self, pinned: PinnedTable) -> StructType:
        """Return the columns of a table, or of its change feed."""
        schema = pinned.schema
        shown = spark_schema(
            replace(schema.column(field.name), type=field.type) for field in pinned.chosen.schema
        )
        if self._option("since") is None:
            return shown
        feed_schema(schema)  # refuses a table with columns of these names
        return StructType([*shown.fields, *feed_fields(schema)])

    def reader(self, pinned: PinnedTable) -> DataSourceReader:
        """Read a Version, or the changes since one."""
        since = self._option("since")
        if is_system_name(pinned.address.name):
            return SystemReader(pinned, self._option("filter"))
        if since is None:
            return SourceReader(pinned, self._option("filter"))
        first = pinned.version if since == _LATEST else self._number("since", since)
        return ChangesReader(pinned, since=first)

    def stream_reader(self, pinned: PinnedTable) -> DataSourceStreamReader:
        """Follow the change feed."""
        asked = self._option("since")
        if asked is None:
            raise InvalidArgument(
                "a stream of neve is a change feed, and has no option since",
                hint="Set the option since: 0 for all changes, or latest",
            )
        most = self._option("maxVersionsPerTrigger")
        if most is not None and not HAS_LIMITS:
            raise InvalidArgument(
                "this PySpark does not limit the batches of a Python source",
                hint="Leave maxVersionsPerTrigger out, or use PySpark 4.2 or newer",
            )
        return ChangeStreamReader(
            pinned,
            since=None if asked == _LATEST else self._number("since", asked),
            versions_max=None if most is None else self._number("maxVersionsPerTrigger", most, 1),
        )

    def _address(self) -> TableAddress:
        location, name = self._option("path"), self._option("table")
        if location is None or name is None:
            raise InvalidArgument(
                "the option `table` is missing",
                hint='Write .option("table", "namespace.name").load("the lake")',
            )
        return TableAddress.of(location, name, storage_options(self._options))

    def _wanted(self) -> WantedVersion:
        version = self._option("version")
        return WantedVersion(
            version=None if version is None else self._number("version", version),
            timestamp=self._option("timestamp"),
            tag=self._option("tag"),
        )

    def _option(self, name: str) -> str | None:
        # Some processes of Spark pass names in lower case, others as the user wrote them.
        wanted = name.lower()
        return next((value for key, value in self._options.items() if key.lower() == wanted), None)

    def _number(self, name: str, text: str, least: int = 0) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise InvalidArgument(
                f"the option {name} is {text!a}", hint=f"Pass a whole number of at least {least}"
            )
        return int(text)
