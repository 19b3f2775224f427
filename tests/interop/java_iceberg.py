"""Java Iceberg, the reference implementation, reading a published table.

Its classes come in a jar that a package carries, and run in the JVM that PySpark starts. What
Iceberg's generic reader gives is written by Iceberg's generic writer to a Parquet file, inside the
JVM, and read from there: no row crosses between the languages one by one.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from neve.spark.java_runtime import find_java
from tests.interop.iceberg_readers import Rows, in_order

PACKAGE: Final = "snowpark-connect-deps-iceberg"
JAR: Final = "iceberg-spark-runtime-3.5_2.13-1.10.2.jar"
"""The one for PySpark 4, which is built with Scala 2.13."""
_EXIT_SECONDS: Final = 20.0


def find_jar() -> Path | None:
    """Find the jar in the package that carries it; None when that is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == JAR), None)


class JavaIceberg:
    """Iceberg's own reader, in a JVM that is running."""

    def __init__(self, jvm: Any, folder: Path) -> None:  # noqa: ANN401 - whatever Java has
        self._iceberg = jvm.org.apache.iceberg
        self._new_list = jvm.java.util.ArrayList
        self._file_io = self._iceberg.hadoop.HadoopFileIO(
            jvm.org.apache.hadoop.conf.Configuration()
        )
        self._folder = folder
        self._written = 0

    @property
    def version(self) -> str:
        """What it says that it is."""
        return str(self._iceberg.IcebergBuild.version())

    def read(self, location: str, snapshot_id: int | None) -> Rows:
        """Read the current snapshot, or the one of an id with the columns it was written with."""
        table = self._open(location)
        scan = self._iceberg.data.IcebergGenerics.read(table)
        schema = table.schema()
        if snapshot_id is not None:
            scan = scan.useSnapshot(snapshot_id)
            schema = self._iceberg.util.SnapshotUtil.schemaFor(table, snapshot_id)
        return in_order(self._rows(scan, schema))

    def read_lineage(self, location: str) -> Rows:
        """Read keys of the current snapshot with their row ids, and when each row was written."""
        table = self._open(location)
        fields = self._new_list()
        for field in (
            table.schema().findField("id"),
            self._iceberg.MetadataColumns.ROW_ID,
            self._iceberg.MetadataColumns.LAST_UPDATED_SEQUENCE_NUMBER,
        ):
            fields.add(field)
        schema = self._iceberg.Schema(fields)
        scan = self._iceberg.data.IcebergGenerics.read(table).project(schema)
        return in_order(self._rows(scan, schema))

    def _open(self, location: str) -> Any:  # noqa: ANN401 - a table of Java
        operations = self._iceberg.StaticTableOperations(location, self._file_io)
        return self._iceberg.BaseTable(operations, "published")

    def _rows(self, scan: Any, schema: Any) -> pa.Table:  # noqa: ANN401 - objects of Java
        self._written += 1
        path = self._folder / f"{self._written}.parquet"
        appender = self._iceberg.data.GenericAppenderFactory(schema).newAppender(
            self._iceberg.Files.localOutput(str(path)), self._iceberg.FileFormat.PARQUET
        )
        rows = scan.build()
        appender.addAll(rows)
        appender.close()
        rows.close()
        if not path.exists():  # without a row, no file is begun
            return pa.table({"id": pa.array([], pa.int64())})
        found = pq.read_table(path)
        path.unlink()
        return found


@contextmanager
def open_java_iceberg(jar: Path, folder: Path) -> Iterator[JavaIceberg]:
    """Start a JVM with the jar; what is read passes through files in `folder`."""
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.extraClassPath", str(jar))
    conf.set("spark.driver.memory", "512m")
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with pytest.MonkeyPatch.context() as environment:
        for name, value in find_java(os.environ).environment.items():
            environment.setenv(name, value)
        gateway = launch_gateway(conf)  # type: ignore[no-untyped-call]
    try:
        yield JavaIceberg(gateway.jvm, folder)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(_EXIT_SECONDS)
