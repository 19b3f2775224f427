"""Tables for tests of reading: real files in a store in memory, real memtables, no engine."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from neve.catalog.stored_table import StoredTable
from neve.keys.columns import KeyArray
from neve.memtable.memtable import Memtable
from neve.model.arrow_types import ArrowField
from neve.model.data_file import DataFile, FileFormat, PartitionValue, VectorRef
from neve.model.partition_spec import PartitionSpec
from neve.model.row_codec import RowCodec
from neve.model.schema import TableSchema, normalize_batch
from neve.model.version import Operation, Version, VersionFacts
from neve.read.scan import Pin, Scan, ScanRequest
from neve.sstable.data_file_writer import DataFileWriter, WriteTarget
from neve.sstable.parquet_layout import ParquetLayout
from neve.sstable.puffin import write_puffin
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths
from neve.table.file_set import FileSet
from neve.table.table_context import TableParts
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView
from neve.testing.simulated_clock import SeededIds, SimulatedClock

PATHS = TablePaths("t1")
FORMATS = {"columnar": FileFormat.COLUMNAR, "dual": FileFormat.DUAL}


def schema_of(fields: Sequence[ArrowField], primary_key: Sequence[str]) -> TableSchema:
    """Make the schema of a table; its key columns are required."""
    required = [each.with_nullable(each.name not in primary_key) for each in fields]
    return TableSchema.from_arrow(pa.schema(required), primary_key=primary_key)


NUMBERED = schema_of(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("day", pa.date32()),
    ],
    ["id"],
)
# Keys of varying length: their index is by hash.
PLACED = schema_of(
    [
        pa.field("amount", pa.float64()),
        pa.field("shop", pa.string()),
        pa.field("id", pa.int32()),
    ],
    ["shop", "id"],
)

Row = Mapping[str, object]


@contextmanager
def small_groups(rows: int = 16) -> Iterator[None]:
    """Make groups of few rows, so that small files have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neve.sstable.parquet_layout.GROUP_ROWS_MAX", rows)
        yield


def parts_of(
    store: ObjectStore, schema: TableSchema, spec: PartitionSpec | None = None
) -> TableParts:
    """Return the parts of a table that has no manifest, with its definitions known."""
    stored = StoredTable(store, PATHS.table_id, clock=SimulatedClock(), ids=SeededIds(7))
    parts = stored.parts()
    known = spec or PartitionSpec.parse([], schema)
    parts.definitions.add({schema.schema_id: schema.to_json()}, {known.spec_id: known.to_json()})
    return parts


class TableBench:
    """Files, vectors and memtables of one table, put together by hand."""

    def __init__(
        self,
        schema: TableSchema = NUMBERED,
        *,
        spec: PartitionSpec | None = None,
        store: ObjectStore | None = None,
    ) -> None:
        self.store = MemoryStore() if store is None else store
        self._parts = parts_of(self.store, schema, spec)
        self.evolve(schema)
        self.ids = SeededIds(7)
        self.files: dict[str, DataFile] = {}
        self.memtables: list[Memtable] = []
        self.sequence = 0
        self.opened: list[str] = []

    def evolve(self, schema: TableSchema) -> None:
        """Read under another schema from now on."""
        self._parts.definitions.add({schema.schema_id: schema.to_json()}, {})
        self.open_files = TableFiles(self._parts, schema.schema_id, cache_bytes=1 << 20)
        self.context = self.open_files.context(schema.schema_id)
        self.schema = self.context.schema

    def batch(self, rows: Iterable[Row]) -> pa.RecordBatch:
        """Return rows as a batch of the schema, in their order."""
        found = pa.RecordBatch.from_pylist(
            [dict(row) for row in rows], schema=self.schema.arrow_schema
        )
        return normalize_batch(found, self.schema)

    def keys(self, rows: pa.RecordBatch | pa.Table) -> KeyArray:
        encoder = self.context.encoder
        return encoder.encode_arrays([rows.column(name) for name in encoder.names])

    def key(self, row: Row) -> bytes:
        names = self.context.encoder.names
        return self.context.encoder.encode([row[name] for name in names])

    def add(
        self,
        rows: Iterable[Row] | pa.RecordBatch,
        *,
        level: int = 0,
        file_format: FileFormat = FileFormat.COLUMNAR,
        dead: Iterable[int] = (),
        spec_id: int = 0,
        partition: tuple[PartitionValue, ...] = (),
    ) -> DataFile:
        """Write one file of rows, sorted here; those at dead positions are marked."""
        batch = rows if isinstance(rows, pa.RecordBatch) else self.batch(sorted(rows, key=self.key))
        target = WriteTarget(
            store=self.store,
            paths=PATHS,
            schema=self.schema,
            spec_id=spec_id,
            partition=partition,
            partition_path="",
            level=level,
            format=file_format,
            layout=ParquetLayout.from_properties({}),
        )
        writer = DataFileWriter(
            target, ids=self.ids, encoder=self.context.encoder, file_bytes_max=1 << 30
        )
        writer.append(batch)
        (written,) = writer.finish()
        file = written.file
        self.files[file.path] = file
        return self.mark(file, dead)

    def mark(self, file: DataFile, dead: Iterable[int]) -> DataFile:
        """Mark rows of a file by a vector."""
        marked = BitMap64(dead)
        if not marked:
            return file
        payload, places = write_puffin({file.path: marked}, created_by="test")
        stored = PATHS.delete_file(self.ids.uuid().hex)
        self.store.put(stored, payload)
        place = places[file.path]
        vector = VectorRef(
            path=stored.removeprefix(f"{PATHS.root}/"),
            offset=place.offset,
            length=place.length,
            cardinality=place.cardinality,
        )
        self.files[file.path] = replace(file, vector=vector)
        return self.files[file.path]

    def begin_memtable(self) -> None:
        """Let a new memtable take what is written from now on."""
        codec = RowCodec(self.schema)
        memtable = Memtable(
            self.schema, codec, self.context.encoder, first_sequence=self.sequence + 1
        )
        self.memtables.insert(0, memtable)

    def put(self, row: Row) -> None:
        if not self.memtables:
            self.begin_memtable()
        self.sequence += 1
        value = self.context.codec.encode(dict(row))
        self.memtables[0].put(self.sequence, self.key(row), value)

    def upsert(self, rows: Sequence[Row]) -> None:
        if not self.memtables:
            self.begin_memtable()
        batch = self.batch(rows)
        self.memtables[0].upsert_batch(self.sequence + 1, self.keys(batch), batch)
        self.sequence += len(rows)

    def delete(self, row: Row) -> None:
        if not self.memtables:
            self.begin_memtable()
        self.sequence += 1
        self.memtables[0].delete(self.sequence, self.key(row))

    def view(self) -> TableView:
        facts = VersionFacts(operation=Operation.APPEND, timestamp_ms=0, schema_id=0, spec_id=0)
        version = Version(number=3, parent=2, facts=facts, files=dict(self.files))
        files = FileSet(version, NotedAccess(self), self.context.partitions)
        return TableView(tuple(self.memtables), files, self.context)

    def scan(
        self,
        *,
        check: Callable[[], None] = lambda: None,
        pin: Pin = nullcontext,
        **asked: Any,  # noqa: ANN401 - passed on
    ) -> Scan:
        request = ScanRequest(**asked)
        return Scan(self.view(), request, sequence=self.sequence, check=check, pin=pin)

    def rows(self, **asked: Any) -> list[dict[str, object]]:  # noqa: ANN401 - passed on
        """Scan, and give rows as dicts; by key when no order was asked for."""
        found: list[dict[str, object]] = self.scan(**asked).to_arrow().to_pylist()
        return found


class NotedAccess:
    """Opens files of a bench, and notes which."""

    def __init__(self, bench: TableBench) -> None:
        self._bench = bench
        self.marked: Callable[[DataFile], BitMap64 | None] = bench.open_files.marked
        self.keep_mask = bench.open_files.keep_mask

    def reader(self, file: DataFile) -> Any:  # noqa: ANN401 - a DataFileReader
        self._bench.opened.append(file.path)
        return self._bench.open_files.reader(file)


def numbered(ids: Iterable[int], tag: str = "") -> list[dict[str, object]]:
    """Rows of NUMBERED: the id decides everything but the tag in the name."""
    return [
        {
            "id": number,
            "name": f"{tag}{number}",
            "amount": None if number % 7 == 3 else number / 4,
            "day": None,
        }
        for number in ids
    ]
