"""Catalogs and tables for tests, with defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import Lake
from neve.model.data_file import DataFile, PartitionValue
from neve.model.schema import Column, TableSchema
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "customer": pa.string(),
    "amount": pa.float32(),
    "ts": pa.timestamp("us", tz="UTC"),
}
ORDERS: Final = pa.schema(_COLUMNS)


def orders_schema() -> TableSchema:
    return TableSchema.from_arrow(ORDERS, primary_key=["id"])


def a_catalog(
    objects: ObjectStore | None = None, *, clock: SimulatedClock | None = None, seed: int = 0
) -> Lake:
    """Open the catalog of a store, in memory unless told."""
    return Lake(
        MemoryStore() if objects is None else objects,
        clock=SimulatedClock() if clock is None else clock,
        ids=SeededIds(seed),
    )


def a_table(
    catalog: Lake,
    name: str = "shop.orders",
    *,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> CatalogTable:
    catalog.create_table(
        name,
        ORDERS,
        primary_key=["id"],
        partition_by=partition_by,
        sort_by=sort_by,
        properties=properties,
    )
    return catalog.load_table(name)


def a_file(
    name: str = "a", *, rows: int = 10, partition: Mapping[int, bytes | None] | None = None
) -> DataFile:
    return DataFile(
        path=f"data/{name}.parquet",
        file_bytes=1_000,
        row_count=rows,
        level=0,
        key_min=b"a",
        key_max=b"z",
        partition=tuple(
            PartitionValue(field_id=field_id, value=value)
            for field_id, value in (partition or {}).items()
        ),
    )


def an_append(base: int, *files: DataFile, spec_id: int = 0) -> VersionEdit:
    facts = VersionFacts(
        operation=Operation.APPEND,
        timestamp_ms=0,
        schema_id=0,
        spec_id=spec_id,
        summary={"added-files": str(len(files))},
    )
    return VersionEdit(base=base, facts=facts, added=files)


def with_columns(schema: TableSchema, *columns: Column) -> TableSchema:
    """Put columns behind those of a schema."""
    last_id = max([schema.last_field_id, *(column.field_id for column in columns)])
    return replace(schema, columns=(*schema.columns, *columns), last_field_id=last_id)


def without_column(schema: TableSchema, name: str) -> TableSchema:
    return replace(schema, columns=tuple(each for each in schema.columns if each.name != name))


def with_renamed(schema: TableSchema, old: str, new: str) -> TableSchema:
    columns = (replace(each, name=new) if each.name == old else each for each in schema.columns)
    return replace(schema, columns=tuple(columns))


def with_type(schema: TableSchema, name: str, type_: pa.DataType) -> TableSchema:
    columns = (replace(each, type=type_) if each.name == name else each for each in schema.columns)
    return replace(schema, columns=tuple(columns))
