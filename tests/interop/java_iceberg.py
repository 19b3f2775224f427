"""Java Iceberg, the reference implementation: it reads published tables, and writes golden files.

Its classes come in a jar that a package carries, and run in the JVM that PySpark starts. What
Iceberg's generic reader gives is written by Iceberg's generic writer to a Parquet file, inside the
JVM, and read from there: no row crosses between the languages one by one.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from neve.spark.spark_session import find_java
from tests.interop.iceberg_readers import Rows, in_order

PACKAGE: Final = "snowpark-connect-deps-iceberg"
JAR: Final = "iceberg-spark-runtime-3.5_2.13-1.10.2.jar"
"""The one for PySpark 4, which is built with Scala 2.13."""
_EXIT_SECONDS: Final = 20.0


def find_jar() -> Path:
    """Find the jar in the package that carries it."""
    [found] = [file for file in metadata.files(PACKAGE) or [] if file.name == JAR]
    return Path(str(found.locate()))


class JavaIceberg:
    """Iceberg's own readers and writers, in a JVM that is running."""

    def __init__(self, gateway: Any, folder: Path) -> None:  # noqa: ANN401 - whatever Java has
        jvm = gateway.jvm
        self._gateway = gateway
        self._jvm = jvm
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

    def write_position_index(self, runs: Iterable[range]) -> bytes:
        """Write positions as the blob of a deletion vector."""
        index = self._iceberg.deletes.Deletes.toPositionIndex(
            self._iceberg.io.CloseableIterable.empty()
        )
        for run in runs:
            index.delete(run.start, run.stop)
        return bytes(index.serialize().array())

    def write_bitmap(self, runs: Iterable[range]) -> bytes:
        """Write positions as the vector inside such a blob, without packing runs."""
        bitmap = self._read_bitmap(bytes(8))
        for run in runs:
            bitmap.setRange(run.start, run.stop)
        buffer = self._in_little_endian(
            self._jvm.java.nio.ByteBuffer.allocate(bitmap.serializedSizeInBytes())
        )
        bitmap.serialize(buffer)
        return bytes(buffer.array())

    def refusal_of_bitmap(self, vector: bytes) -> str | None:
        """Return why Iceberg does not read the vector; None when it does."""
        try:
            self._read_bitmap(vector)
        except Py4JJavaError as error:
            return str(error.java_exception.getMessage())
        return None

    def write_puffin(
        self, blobs: Sequence[tuple[str, bytes]], *, created_by: str | None, is_packed: bool
    ) -> bytes:
        """Write blobs of these types into a Puffin file, each about the field of its number."""
        path = self._folder / "golden.puffin"
        puffin = self._iceberg.puffin
        writing = puffin.Puffin.write(self._iceberg.Files.localOutput(str(path)))
        if created_by is not None:
            writing = writing.createdBy(created_by)
        if is_packed:
            writing = writing.compressBlobs(puffin.PuffinCompressionCodec.ZSTD)
        writer = writing.build()
        for number, (kind, payload) in enumerate(blobs, start=1):
            fields = self._new_list()
            fields.add(number)
            properties = self._jvm.java.util.HashMap()
            properties.put("written-as", kind.upper())
            buffer = self._jvm.java.nio.ByteBuffer.wrap(payload)
            writer.add(puffin.Blob(kind, fields, 2, 1, buffer, None, properties))
        writer.close()
        written = path.read_bytes()
        path.unlink()
        return written

    def _read_bitmap(self, vector: bytes) -> Any:  # noqa: ANN401 - a bitmap of Java
        buffer = self._in_little_endian(self._jvm.java.nio.ByteBuffer.wrap(vector))
        return self._iceberg.deletes.RoaringPositionBitmap.deserialize(buffer)

    def _in_little_endian(self, buffer: Any) -> Any:  # noqa: ANN401 - a buffer of Java
        return buffer.order(self._jvm.java.nio.ByteOrder.LITTLE_ENDIAN)

    def rest_catalog(self, uri: str) -> Any:  # noqa: ANN401 - a catalog of Java
        """Return Iceberg's REST client; close it when done."""
        catalog = self._iceberg.rest.RESTCatalog()
        settings = self._jvm.java.util.HashMap()
        settings.put("uri", uri)
        settings.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        catalog.initialize("lake", settings)
        return catalog

    def identifier(self, namespace: str, name: str) -> Any:  # noqa: ANN401 - a name of Java
        """Return the name of a table."""
        names = self._iceberg.catalog
        return names.TableIdentifier.parse(f"{namespace}.{name}")

    def data_file(self, table: Any, path: Path, rows: int) -> Any:  # noqa: ANN401 - of Java
        """Describe a Parquet file as a data file of an unpartitioned table."""
        builder = self._iceberg.DataFiles.builder(table.spec())
        return self._described(builder, path, rows)

    def delete_file(
        self,
        table: Any,  # noqa: ANN401 - of Java
        path: Path,
        rows: int,
        *,
        equality_ids: Sequence[int] = (),
    ) -> Any:  # noqa: ANN401 - of Java
        """Describe a Parquet file as equality deletes or, without columns, position deletes."""
        builder = self._iceberg.FileMetadata.deleteFileBuilder(table.spec())
        if equality_ids:
            chosen = self._gateway.new_array(self._jvm.int, len(equality_ids))
            for place, each in enumerate(equality_ids):
                chosen[place] = each
            builder = builder.ofEqualityDeletes(chosen)
        else:
            builder = builder.ofPositionDeletes()
        return self._described(builder, path, rows)

    def _described(self, builder: Any, path: Path, rows: int) -> Any:  # noqa: ANN401 - of Java
        size = path.stat().st_size
        described = builder.withPath(f"file:{path}").withFileSizeInBytes(size)
        return described.withRecordCount(rows).withFormat("PARQUET").build()

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
        yield JavaIceberg(gateway, folder)
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(_EXIT_SECONDS)
