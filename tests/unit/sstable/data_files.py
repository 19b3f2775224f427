"""Builders of tables, data files and open readers for the tests of data files."""

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
import pyarrow as pa

from neve.keys.encoding import KeyEncoder
from neve.keys.key_hashes import KeyHashes
from neve.model.data_file import DataFile, FileFormat
from neve.model.schema import TableSchema
from neve.observability.metrics import Counters
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.data_file_writer import DataFileWriter, WriteTarget, WrittenFile
from neve.sstable.parquet_groups import GroupCache
from neve.sstable.parquet_layout import ParquetLayout
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.storage.table_paths import TablePaths, join_path

PATHS = TablePaths("17")
FORMATS = {"columnar": FileFormat.COLUMNAR, "dual": FileFormat.DUAL}

ALL_TYPES = pa.schema(
    [
        pa.field("flag", pa.bool_()),
        pa.field(
            "point", pa.struct([("x", pa.int32()), ("at", pa.struct([("day", pa.date32())]))])
        ),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("int", pa.int32()),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("small_decimal", pa.decimal128(9, 2)),
        pa.field("decimal", pa.decimal128(18, 3)),
        pa.field("wide_decimal", pa.decimal128(38, 10)),
        pa.field("date", pa.date32()),
        pa.field("time", pa.time64("us")),
        pa.field("timestamp", pa.timestamp("us")),
        pa.field("timestamptz", pa.timestamp("us", "UTC")),
        pa.field("timestamp_ns", pa.timestamp("ns")),
        pa.field("timestamptz_ns", pa.timestamp("ns", "UTC")),
        pa.field("string", pa.string()),
        pa.field("binary", pa.binary()),
        pa.field("fixed", pa.binary(3)),
        pa.field("uuid", pa.uuid()),
        pa.field("list", pa.list_(pa.struct([("n", pa.int64()), ("s", pa.string())]))),
        pa.field("map", pa.map_(pa.string(), pa.float64())),
        pa.field("long.name", pa.string()),
    ]
)


class CountedIds:
    """Identifiers 1, 2, 3, …"""

    def __init__(self) -> None:
        self._given = 0

    def uuid(self) -> uuid.UUID:
        self._given += 1
        return uuid.UUID(int=self._given)

    def jitter(self) -> float:
        return 0.5

    def process(self) -> str:
        return "process 1 on a test machine"


def arrow_schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(types)


def schema_of(arrow: pa.Schema, *key: str) -> TableSchema:
    return TableSchema.from_arrow(arrow, primary_key=list(key))


def encoder_of(schema: TableSchema) -> KeyEncoder:
    columns = schema.key_columns
    return KeyEncoder([column.type for column in columns], [column.name for column in columns])


def rows_of_all_types(count: int, *, key: Sequence[str] = ("id",)) -> tuple[TableSchema, pa.Table]:
    """Return rows in which every third value is NULL, and what Parquet might trip over."""
    schema = schema_of(ALL_TYPES, *key)

    def row(i: int) -> dict[str, object]:
        values: dict[str, object] = {
            "flag": i % 2 == 0,
            "point": {"x": i, "at": {"day": i} if i % 5 else None},
            "int": -i,
            "float": float("nan") if i % 7 == 0 else i / 2,
            "double": -0.0 if i % 7 == 0 else i * 1e300,
            "small_decimal": Decimal(i).scaleb(-2),
            "decimal": -Decimal(i).scaleb(-3),
            "wide_decimal": Decimal(10**27 + i).scaleb(-10),
            "date": i * 1_000 - 719_162,
            "time": dt.time(i % 24, 5, 6, i),
            "timestamp": -(10**15) + i,
            "timestamptz": 10**15 + i,
            "timestamp_ns": i,
            "timestamptz_ns": 10**18 + i,
            "string": "é😀\x00" * (i % 3) + str(i),
            "binary": bytes([i % 256]) * (i % 4),
            "fixed": i.to_bytes(3, "big"),
            "uuid": uuid.UUID(int=i).bytes,
            "list": [{"n": i, "s": None}, None, {"n": None, "s": "x"}][: i % 4],
            "map": [(f"k{n}", None if n else 1.5) for n in range(i % 3)],
            "long.name": "dotted",
        }
        for place, name in enumerate(values):
            if name not in key and (i + place) % 3 == 0:
                values[name] = None
        return {**values, "id": i}

    table = pa.Table.from_pylist([row(i) for i in range(count)], schema=schema.arrow_schema)
    return schema, table


def plain_rows(count: int, *, step: int = 3) -> tuple[TableSchema, pa.Table]:
    """Return rows with an int64 key 0, step, 2 × step, … and a few columns."""
    schema = schema_of(arrow_schema(id=pa.int64(), name=pa.string(), score=pa.float64()), "id")
    table = pa.table(
        {
            "id": np.arange(count, dtype=np.int64) * step,
            "name": [f"name {i % 10}" for i in range(count)],
            "score": np.arange(count) / 4,
        },
        schema=schema.arrow_schema,
    )
    return schema, table


def named_rows(count: int) -> tuple[TableSchema, pa.Table]:
    """Return rows whose key is a string and a number, so that hashes are hashed."""
    schema = schema_of(
        arrow_schema(value=pa.int64(), name=pa.string(), part=pa.int32()),
        "name",
        "part",
    )
    table = pa.table(
        {
            "value": np.arange(count, dtype=np.int64),
            "name": [f"row {i // 2:06}" for i in range(count)],
            "part": pa.array([i % 2 for i in range(count)], pa.int32()),
        },
        schema=schema.arrow_schema,
    )
    return schema, table


@dataclass
class Files:
    """A place for data files, and what writers and readers of it share."""

    schema: TableSchema
    store: ObjectStore = field(default_factory=MemoryStore)
    file_bytes_max: int = 1 << 30
    cache_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        self.encoder = encoder_of(self.schema)
        self.hashes = KeyHashes(self.encoder)
        self.cache = GroupCache(self.cache_bytes)
        self.counters = Counters()
        self.ids = CountedIds()

    def writer(
        self,
        file_format: FileFormat = FileFormat.COLUMNAR,
        *,
        properties: Mapping[str, str] | None = None,
        partition_path: str = "",
    ) -> DataFileWriter:
        target = WriteTarget(
            store=self.store,
            paths=PATHS,
            schema=self.schema,
            spec_id=0,
            partition=(),
            partition_path=partition_path,
            level=0,
            format=file_format,
            layout=ParquetLayout.from_properties(properties or {}),
            sequence_min=5,
            sequence_max=9,
        )
        return DataFileWriter(
            target,
            ids=self.ids,
            encoder=self.encoder,
            file_bytes_max=self.file_bytes_max,
            recorder=self.counters,
        )

    def write(
        self, rows: pa.Table, file_format: FileFormat = FileFormat.COLUMNAR
    ) -> tuple[WrittenFile, ...]:
        writer = self.writer(file_format)
        writer.append(rows)
        return writer.finish()

    def write_one(
        self, rows: pa.Table, file_format: FileFormat = FileFormat.COLUMNAR
    ) -> WrittenFile:
        (written,) = self.write(rows, file_format)
        return written

    def open(self, file: DataFile) -> DataFileReader:
        return DataFileReader(
            file,
            store=self.store,
            paths=PATHS,
            schema=self.schema,
            encoder=self.encoder,
            group_cache=self.cache,
            recorder=self.counters,
        )

    def bytes_of(self, file: DataFile) -> bytes:
        return self.store.get(path_of(file)).payload


def path_of(file: DataFile) -> str:
    return join_path(PATHS.root, file.path)


def index_path_of(file: DataFile) -> str:
    return PATHS.index_of(file.path)


def key_values(rows: pa.Table, names: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the key of each row as Python values."""
    return [tuple(row[name] for name in names) for row in rows.select(list(names)).to_pylist()]
