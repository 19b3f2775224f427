"""What a manifest says about one file: a data file of the table, or the deletes of one.

    neve                              Iceberg, content       format
    DataFile                          0, data                parquet
    DataFile.vector, format 3         1, position deletes    puffin, with offset and length
    DataFile.vector, format 2         1, position deletes    parquet, written when published

Names of the fields are Iceberg's. Values of partitions are plain values, see
`neve.model.plain_values`: those are what Avro stores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import Corruption
from neve.model.data_file import ColumnStatistics, DataFile, VectorRef
from neve.model.partition_spec import PartitionSpec
from neve.model.plain_values import PlainValue, decode_single_value
from neve.model.schema import TableSchema

DATA: Final = 0
POSITION_DELETES: Final = 1

PATH_FIELD_ID: Final = 2_147_483_546
POSITION_FIELD_ID: Final = 2_147_483_545

KEY_ORDER_ID: Final = 1
"""The sort order of every data file: by key."""

Locate = Callable[[str], str]
"""Returns the location of a file from its path in the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergFile:
    """Fields of Iceberg's `data_file`, by its names; those that neve never fills are left out."""

    content: int
    file_path: str
    file_format: str
    partition: tuple[PlainValue | None, ...]
    record_count: int
    file_size_in_bytes: int
    column_sizes: Mapping[int, int] | None = None
    value_counts: Mapping[int, int] | None = None
    null_value_counts: Mapping[int, int] | None = None
    nan_value_counts: Mapping[int, int] | None = None
    lower_bounds: Mapping[int, bytes] | None = None
    upper_bounds: Mapping[int, bytes] | None = None
    sort_order_id: int | None = None
    first_row_id: int | None = None
    referenced_data_file: str | None = None
    content_offset: int | None = None
    content_size_in_bytes: int | None = None


def partition_types(spec: PartitionSpec, schema: TableSchema) -> tuple[pa.DataType, ...]:
    """Types of a spec's values; raises NotFound when the schema lacks a source column."""
    return tuple(
        field.transform.result_type(schema.column_by_id(field.source_id).type)
        for field in spec.fields
    )


def partition_values(
    file: DataFile, spec: PartitionSpec, types: Sequence[pa.DataType]
) -> tuple[PlainValue | None, ...]:
    """Partition of a file, in the order of its spec's fields; raises Corruption."""
    stored = {each.field_id: each.value for each in file.partition}
    values: list[PlainValue | None] = []
    for field, arrow_type in zip(spec.fields, types, strict=True):
        if field.field_id not in stored:
            raise Corruption(
                f"the partition of a file lacks field {field.field_id} of spec {spec.spec_id}",
                path=file.path,
            )
        value = stored[field.field_id]
        values.append(None if value is None else decode_single_value(arrow_type, value))
    return tuple(values)


def data_file(
    file: DataFile, partition: tuple[PlainValue | None, ...], locate: Locate
) -> IcebergFile:
    """Describe a data file."""
    columns = file.statistics
    return IcebergFile(
        content=DATA,
        file_path=locate(file.path),
        file_format="PARQUET",
        partition=partition,
        record_count=file.row_count,
        file_size_in_bytes=file.file_bytes,
        column_sizes={each.field_id: each.compressed_bytes for each in columns},
        value_counts={each.field_id: each.value_count for each in columns},
        null_value_counts={each.field_id: each.null_count for each in columns},
        nan_value_counts={
            each.field_id: each.nan_count for each in columns if each.nan_count is not None
        },
        lower_bounds=_bounds(columns, lambda each: each.lower),
        upper_bounds=_bounds(columns, lambda each: each.upper),
        sort_order_id=KEY_ORDER_ID,
        first_row_id=file.first_row_id,
    )


def vector_file(
    file: DataFile,
    vector: VectorRef,
    partition: tuple[PlainValue | None, ...],
    locate: Locate,
    *,
    puffin_bytes: int,
) -> IcebergFile:
    """Describe the vector of a data file, for format 3."""
    referenced, bound = _referenced(file, locate)
    return IcebergFile(
        content=POSITION_DELETES,
        file_path=locate(vector.path),
        file_format="PUFFIN",
        partition=partition,
        record_count=vector.cardinality,
        file_size_in_bytes=puffin_bytes,
        lower_bounds=bound,
        upper_bounds=bound,
        referenced_data_file=referenced,
        content_offset=vector.offset,
        content_size_in_bytes=vector.length,
    )


def position_file(
    file: DataFile,
    vector: VectorRef,
    partition: tuple[PlainValue | None, ...],
    locate: Locate,
    *,
    path: str,
    file_bytes: int,
) -> IcebergFile:
    """Describe the position deletes of a data file, for format 2."""
    referenced, bound = _referenced(file, locate)
    return IcebergFile(
        content=POSITION_DELETES,
        file_path=locate(path),
        file_format="PARQUET",
        partition=partition,
        record_count=vector.cardinality,
        file_size_in_bytes=file_bytes,
        lower_bounds=bound,
        upper_bounds=bound,
        referenced_data_file=referenced,
    )


def _referenced(file: DataFile, locate: Locate) -> tuple[str, Mapping[int, bytes]]:
    """Return the location of a data file, and the bounds of the paths that its deletes are about.

    Both bounds are the one path. Readers that do not know `referenced_data_file`, such as PyIceberg
    and Polars, learn from them that no other file is affected.
    """
    referenced = locate(file.path)
    return referenced, {PATH_FIELD_ID: referenced.encode()}


def _bounds(
    columns: Sequence[ColumnStatistics], bound_of: Callable[[ColumnStatistics], bytes | None]
) -> dict[int, bytes]:
    return {each.field_id: bound for each in columns if (bound := bound_of(each)) is not None}
