"""The catalog's three tables, as Arrow: `__tables`, `__snapshots` and `__files`.

    table        key                                  columns
    __tables     {table_name}                         table_name, table_uuid, format_version,
                                                      location, current_snapshot_id,
                                                      last_updated_time, properties, schema,
                                                      partition_specs
    __snapshots  {table_name}/{snapshot_id}           table_name, snapshot_id,
                                                      parent_snapshot_id, timestamp_ms, operation,
                                                      manifest_list, summary
    __files      {table_name}/{snapshot_id}/{file}    table_name, snapshot_id, file_path,
                                                      file_format, record_count,
                                                      file_size_bytes, partition_values

Rows are in key order, numbers as numbers. A snapshot is a Version, and its id is the number of the
Version. `manifest_list` is the location of the Avro manifest list with its files in the newest
published document; a Version that only changed definitions has that of the previous one. It is
empty for a Version that is not published, or that the newest document does not list.

Binary columns hold JSON:

    properties, summary   {"key1": "value1"}
    partition_values      {"year": "2024", "region": null}
    partition_specs       [{"spec_id": 0, "fields": [{"source_id": 1, "field_id": 1000,
                            "name": "id_bucket", "transform": "bucket", "transform_param": 16}]}]
    schema                {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long",
                            "nullable": false}]}
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.catalog.stored_table import StoredTable, TableState
from neve.catalog.table_meta import TableMeta
from neve.catalog.version_view import PartitionWords, optional, required, summed_commits
from neve.errors import NotFound
from neve.iceberg.publisher import published_lists
from neve.model.partition_spec import PartitionField, PartitionSpec
from neve.model.schema import TableSchema
from neve.model.schema_json import Json, dump_compact, type_to_json
from neve.model.suggestions import similar_name_hint
from neve.model.transforms import Bucket, Truncate
from neve.model.version import Operation
from neve.read.chosen_columns import chosen_columns
from neve.read.filters import row_filter

TABLES_SCHEMA: Final = pa.schema(
    [
        required("table_name", pa.string()),
        required("table_uuid", pa.string()),
        required("format_version", pa.int32()),
        required("location", pa.string()),
        required("current_snapshot_id", pa.int64()),
        required("last_updated_time", pa.int64()),
        required("properties", pa.binary()),
        required("schema", pa.binary()),
        required("partition_specs", pa.binary()),
    ]
)
SNAPSHOTS_SCHEMA: Final = pa.schema(
    [
        required("table_name", pa.string()),
        required("snapshot_id", pa.int64()),
        optional("parent_snapshot_id", pa.int64()),
        required("timestamp_ms", pa.int64()),
        required("operation", pa.string()),
        required("manifest_list", pa.string()),
        required("summary", pa.binary()),
    ]
)
FILES_SCHEMA: Final = pa.schema(
    [
        required("table_name", pa.string()),
        required("snapshot_id", pa.int64()),
        required("file_path", pa.string()),
        required("file_format", pa.string()),
        required("record_count", pa.int64()),
        required("file_size_bytes", pa.int64()),
        required("partition_values", pa.binary()),
    ]
)
_FILE_FORMAT: Final = "PARQUET"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTable:
    """One table to list, from the catalog and from its version store."""

    meta: TableMeta
    stored: StoredTable
    state: TableState


ListTables = Callable[[Iterable[ListedTable]], pa.Table]


def list_tables(listed: Iterable[ListedTable]) -> pa.Table:
    """Return `__tables`."""
    rows: list[dict[str, object]] = [
        {
            "table_name": each.meta.name,
            "table_uuid": each.meta.table_uuid,
            "format_version": each.meta.format_version,
            "location": each.stored.location,
            "current_snapshot_id": each.state.head.current_version,
            "last_updated_time": max(each.state.head.last_transaction_ms, each.meta.updated_ms),
            "properties": dump_compact({**each.meta.properties}),
            "schema": dump_compact(_schema_json(each.state.schema)),
            "partition_specs": dump_compact(_specs_json(each.state.specs)),
        }
        for each in listed
    ]
    return pa.Table.from_pylist(rows, schema=TABLES_SCHEMA)


def list_snapshots(listed: Iterable[ListedTable]) -> pa.Table:
    """Return `__snapshots`: every retained Version of every table."""
    rows: list[dict[str, object]] = []
    for each in listed:
        published = published_lists(each.stored.objects, each.stored.paths, each.stored.versions)
        place = ""
        for commit in summed_commits(each.stored.versions, each.state.session):
            is_same = commit.facts.operation is Operation.EVOLVE
            place = published.get(commit.number, place if is_same else "")
            rows.append(
                {
                    "table_name": each.meta.name,
                    "snapshot_id": commit.number,
                    "parent_snapshot_id": commit.parent,
                    "timestamp_ms": commit.facts.timestamp_ms,
                    "operation": commit.facts.operation.value,
                    "manifest_list": place,
                    # Sorted: protobuf returns the members of a map in any order.
                    "summary": dump_compact(dict(sorted(commit.facts.summary.items()))),
                }
            )
    return pa.Table.from_pylist(rows, schema=SNAPSHOTS_SCHEMA)


def list_files(listed: Iterable[ListedTable]) -> pa.Table:
    """Return `__files`: every file of every retained Version of every table."""
    tables = [FILES_SCHEMA.empty_table()]
    for each in listed:
        words = PartitionWords(
            each.state.specs, each.state.schemas, path=each.stored.paths.manifest
        )
        for version in each.stored.versions.each_version_in(each.state.session):
            # Loops over files, not rows: some thousands of Python values.
            files = sorted(version.files.values(), key=lambda file: file.path)
            columns: dict[str, list[object]] = {
                "table_name": [each.meta.name] * len(files),
                "snapshot_id": [version.number] * len(files),
                "file_path": [file.path for file in files],
                "file_format": [_FILE_FORMAT] * len(files),
                "record_count": [file.row_count for file in files],
                "file_size_bytes": [file.file_bytes for file in files],
                "partition_values": [dump_compact({**words.of(file)}) for file in files],
            }
            tables.append(pa.Table.from_pydict(columns, schema=FILES_SCHEMA))
    return pa.concat_tables(tables).combine_chunks()


SYSTEM_TABLES: Final[dict[str, ListTables]] = {
    "__tables": list_tables,
    "__snapshots": list_snapshots,
    "__files": list_files,
}
_SCHEMAS: Final = {
    "__tables": (TABLES_SCHEMA, ["table_name"]),
    "__snapshots": (SNAPSHOTS_SCHEMA, ["table_name", "snapshot_id"]),
    "__files": (FILES_SCHEMA, ["table_name", "snapshot_id", "file_path"]),
}


def is_system_name(name: object) -> bool:
    """Whether a name is that of a system table, or can only be a typo of one."""
    return isinstance(name, str) and name.startswith("__") and "." not in name


def system_listing(name: str) -> ListTables:
    """Return the function that lists a system table; raises NotFound."""
    listing = SYSTEM_TABLES.get(name)
    if listing is None:
        raise NotFound(
            f"there is no system table {name!a}",
            hint=similar_name_hint(name, SYSTEM_TABLES) or f"Use one of {', '.join(SYSTEM_TABLES)}",
        )
    return listing


def readable_schema(name: str) -> TableSchema:
    """Return the readable columns of a system table: JSON is text."""
    system_listing(name)
    stored, key = _SCHEMAS[name]
    fields = [
        field.with_type(pa.string()) if pa.types.is_binary(field.type) else field
        for field in stored
    ]
    return TableSchema.from_arrow(pa.schema(fields), primary_key=key)


def readable_rows(
    name: str,
    listed: pa.Table,
    *,
    filter: object = None,  # noqa: A002 - the word of `Table.scan`
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the matching rows of a system table, in key order; JSON is text.

    `filter` and `columns` are as in `Table.scan`. Raises NotFound, InvalidArgument, SchemaMismatch.
    """
    schema = readable_schema(name)
    chosen, asked = chosen_columns(columns, schema), row_filter(filter, schema)
    rows = listed.cast(schema.arrow_schema)
    if not asked.is_trivial:
        rows = rows.filter(pa.array(asked.mask(rows)))
    return chosen.given(rows.select(chosen.names))


def _schema_json(schema: TableSchema) -> Json:
    fields: list[Json] = [
        {
            "id": column.field_id,
            "name": column.name,
            "type": type_to_json(column.type),
            "nullable": column.nullable,
        }
        for column in schema.columns
    ]
    return {"type": "struct", "fields": fields}


def _specs_json(specs: Mapping[int, PartitionSpec]) -> Json:
    return [
        {
            "spec_id": spec_id,
            "fields": [_partition_field_json(field) for field in specs[spec_id].fields],
        }
        for spec_id in sorted(specs)
    ]


def _partition_field_json(field: PartitionField) -> Json:
    members: dict[str, Json] = {
        "source_id": field.source_id,
        "field_id": field.field_id,
        "name": field.name,
        "transform": str(field.transform).partition("[")[0],
    }
    match field.transform:
        case Bucket(parameter) | Truncate(parameter):
            members["transform_param"] = parameter
        case _:
            pass
    return members
