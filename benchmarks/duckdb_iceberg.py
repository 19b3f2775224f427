"""DuckDB with its Iceberg extension, one connection for the whole run; nothing is fetched."""

import atexit
import functools
import shutil
import tempfile

import duckdb
from duckdb_extensions import import_extension  # type: ignore[import-untyped]


@functools.cache
def duckdb_with_iceberg() -> duckdb.DuckDBPyConnection:
    """Return the connection, made when it is first asked for."""
    folder = tempfile.mkdtemp(prefix="neve-duckdb-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    connection = duckdb.connect(
        config={"extension_directory": folder, "autoinstall_known_extensions": "false"}
    )
    for name in ("avro", "httpfs", "iceberg"):  # each needs the one before it
        import_extension(name, con=connection)
    connection.execute("LOAD iceberg")
    return connection
