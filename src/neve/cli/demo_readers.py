"""The act in which others read the table as it is, and how the demo asks DuckDB.

Both read Iceberg's metadata, the Parquet files and the deletion vectors; neither knows neve. What
they give is compared row by row.
"""

import importlib
import importlib.util
import tempfile
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.table import StaticTable

from neve.cli.demo_findings import Finding, Found
from neve.cli.demo_stage import Stage, check_equal

_EXTENSIONS: Final = ("avro", "httpfs", "iceberg")  # each needs the one before it


@dataclass(frozen=True, slots=True)
class Missing:
    """Somebody who could not be asked, and what to install for it."""

    hint: str


def readers(stage: Stage) -> tuple[Found, ...]:
    """Let PyIceberg and DuckDB read the table with its marked rows, as it is."""
    narrator, metadata = stage.narrator, stage.orders.iceberg_metadata()
    due = stage.table.rows_after
    narrator.say(f"all they are given is a path: …/{metadata.rpartition('/')[2]}")
    rows = StaticTable.from_metadata(metadata).scan().to_arrow()
    check_equal(_fit(rows, due), due, "PyIceberg")
    narrator.found(f"PyIceberg: {rows.num_rows:,} rows, each of them equal")
    read = read_by_duckdb("select * from iceberg_scan(?)", metadata)
    if isinstance(read, Missing):
        narrator.left_out(read.hint)
    else:
        check_equal(_fit(read, due), due, "DuckDB")
        narrator.found(f"DuckDB: {read.num_rows:,} rows, each of them equal")
    return (
        Finding("pyiceberg_rows", rows.num_rows),
        Finding("duckdb_rows", 0 if isinstance(read, Missing) else read.num_rows),
    )


def read_by_duckdb(sql: str, metadata: str) -> pa.Table | Missing:
    """Ask DuckDB about a table, whose metadata is the parameter of the statement."""
    if importlib.util.find_spec("duckdb") is None:
        return Missing("DuckDB is not installed here: pip install 'neve[sql]'")
    # By name: DuckDB is nobody's dependency, only a guest here.
    duckdb = importlib.import_module("duckdb")
    has_packages = importlib.util.find_spec("duckdb_extensions") is not None
    with tempfile.TemporaryDirectory(prefix="neve-duckdb-") as folder:
        config = {"autoinstall_known_extensions": "false"}
        if has_packages:
            config["extension_directory"] = folder
        with duckdb.connect(config=config) as connection:
            try:
                if has_packages:
                    load = importlib.import_module("duckdb_extensions").import_extension
                    for extension in _EXTENSIONS:
                        load(extension, con=connection)
                connection.execute("LOAD iceberg")
            except (duckdb.Error, ImportError):
                return Missing(
                    "DuckDB lacks its Iceberg extension here: pip install duckdb-extension-iceberg"
                )
            # It may take the bytes of one deletion vector from this cache for another one's.
            connection.execute("SET enable_external_file_cache=false")
            # A query of two seconds would draw a bar on standard output.
            connection.execute("SET enable_progress_bar=false")
            connection.execute("SET TimeZone='UTC'")
            read: pa.Table = connection.execute(sql, [metadata]).to_arrow_table()
            return read


def _fit(rows: pa.Table, like: pa.Table) -> pa.Table:
    return rows.select(like.column_names).cast(like.schema)
