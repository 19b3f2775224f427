"""Other engines reading a published table: rows by key, as plain values."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
from duckdb_extensions import import_extension  # type: ignore[import-untyped]
from pyiceberg.table import StaticTable

Rows = list[dict[str, object]]
Read = Callable[[str, int | None], Rows]
"""Reads a table from its metadata; the current snapshot, or the one of an id."""


def in_order(table: pa.Table, key: str = "id") -> Rows:
    """Return rows by key, with values that compare across engines."""
    rows = table.to_pylist()
    return sorted(rows, key=lambda row: (row[key] is None, row[key]))


def read_pyiceberg(location: str, snapshot_id: int | None) -> Rows:
    return in_order(StaticTable.from_metadata(location).scan(snapshot_id=snapshot_id).to_arrow())


def read_polars(location: str, snapshot_id: int | None) -> Rows:
    with warnings.catch_warnings():
        # It says that a faster planner is not installed.
        warnings.simplefilter("ignore")
        frame = pl.scan_iceberg(location, snapshot_id=snapshot_id, reader_override="native")
        return in_order(frame.collect().to_arrow())


class DuckDb:
    """DuckDB with its Iceberg extension, which comes as a package: nothing is fetched."""

    def __init__(self, folder: Path) -> None:
        self.connection = duckdb.connect(
            config={"extension_directory": str(folder), "autoinstall_known_extensions": "false"}
        )
        for name in ("avro", "httpfs", "iceberg"):  # each needs the one before it
            import_extension(name, con=self.connection)
        self.connection.execute("LOAD iceberg")
        self.connection.execute("SET TimeZone='UTC'")
        # As `neve iceberg` tells people: its cache of files mixes up deletion vectors.
        self.connection.execute("SET enable_external_file_cache=false")

    def query(self, sql: str) -> pa.Table:
        return self.connection.execute(sql).to_arrow_table()

    def read(self, location: str, snapshot_id: int | None) -> Rows:
        version = "" if snapshot_id is None else f", snapshot_from_id={snapshot_id}"
        return in_order(self.query(f"FROM iceberg_scan('{location}'{version})"))


@contextmanager
def open_duckdb(folder: Path) -> Iterator[DuckDb]:
    """Open DuckDB; its extensions are put into `folder`."""
    engine = DuckDb(folder)
    try:
        yield engine
    finally:
        engine.connection.close()
