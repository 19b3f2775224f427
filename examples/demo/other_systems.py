"""The acts of other systems: PyIceberg and DuckDB read the table, RocksDB recovers a log of neve.

The readers get Iceberg's metadata, the Parquet files and the deletion vectors; neither knows neve.
RocksDB gets a log that neve wrote in its dialect, beside the files of an empty database. Every row
is compared.
"""

import importlib
import importlib.util
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.table import StaticTable

from examples.demo.stage import Finding, Found, Stage, check_equal
from neve.errors import Corruption
from neve.storage.local_store import LocalStore
from neve.wal.log_options import LogOptions, LogPlace, SyncPolicy
from neve.wal.record_format import Dialect
from neve.wal.write_ahead_log import WriteAheadLog

_EXTENSIONS: Final = ("avro", "httpfs", "iceberg")  # each needs the one before it
_ROWS: Final = 5_000
# Behind every number that a new database has given out.
_LOG_NUMBER: Final = 1_000


@dataclass(frozen=True, slots=True)
class Missing:
    """A system that is not installed, and what to install for it."""

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
    # By name: DuckDB is not a dependency of neve.
    duckdb = importlib.import_module("duckdb")
    has_packages = importlib.util.find_spec("duckdb_extensions") is not None
    with tempfile.TemporaryDirectory(prefix="neve-duckdb-") as folder:
        config = {"autoinstall_known_extensions": "false"}
        if has_packages:
            config["extension_directory"] = folder
        with duckdb.connect(config=config) as connection:
            # A statement of two seconds would draw a bar on standard output.
            connection.execute("SET enable_progress_bar=false")
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
            connection.execute("SET TimeZone='UTC'")
            read: pa.Table = connection.execute(sql, [metadata]).to_arrow_table()
            return read


def _fit(rows: pa.Table, like: pa.Table) -> pa.Table:
    return rows.select(like.column_names).cast(like.schema)


def rocksdb(stage: Stage) -> tuple[Found, ...]:
    """Let RocksDB recover neve's rows, or say that it is not there."""
    narrator = stage.narrator
    if importlib.util.find_spec("rocksdict") is None:
        narrator.left_out("RocksDB is not installed here: pip install rocksdict")
        return (Finding("rocksdb_is_installed", value=False),)
    narrator.say(
        "neve can write its log in RocksDB's format, so a second implementation checks it, and "
        "tools for such logs read it"
    )
    directory = stage.root / f"rocksdb-{stage.run_id}"
    store = LocalStore(str(directory / "neve"))
    log = WriteAheadLog(
        LogPlace(logs=store, log_path="{:06}.wal".format),
        next_log_number=1,
        next_sequence=1,
        options=LogOptions(dialect=Dialect.ROCKSDB, sync=SyncPolicy.NONE, recycle_count=0),
    )
    for number in range(_ROWS):
        log.append(stage.table.put(number))
    log.close()
    content = store.get("000001.wal").payload
    recovered = _recovered_by_rocksdb(directory / "rocksdb", content)
    due = {stage.table.key(number): stage.table.value(number) for number in range(_ROWS)}
    if recovered != due:
        raise Corruption(f"RocksDB recovered {len(recovered):,} rows, {len(due):,} are due")
    narrator.found(f"RocksDB recovered neve's log: {len(recovered):,} rows, every byte equal")
    return (
        Finding("rocksdb_is_installed", value=True),
        Finding("rocksdb_rows", len(recovered)),
    )


def _recovered_by_rocksdb(directory: Path, content: bytes) -> dict[bytes, bytes]:
    # By name: RocksDB is not a dependency of neve.
    rocksdict = importlib.import_module("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    rocksdict.Rdict(str(directory), options).close()
    (directory / f"{_LOG_NUMBER:06d}.log").write_bytes(content)
    database = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    try:
        return dict(database.items())
    finally:
        database.close()
