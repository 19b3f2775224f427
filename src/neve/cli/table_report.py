"""A table's definition and history for people, as lines, and for programs, as JSON.

The history of a definition is its schemas, its partition specs, and the partitions it has:

schema 0  5 columns
schema 1  added note string, renamed address.zip to postcode
schema 2  widened count from int to long

spec 0    none
spec 1    day(ts)

ts_day=2024-03-01    3 files · 1,200 rows · 90,112 bytes
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Final

from rich.text import Text

from neve.catalog.catalog_table import CatalogTable
from neve.inspect.shown_text import Json, shown_text
from neve.manifest.documents import Lease
from neve.manifest.writer_state import Consumer
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    child_fields,
    field_id_of,
    kind_of,
)
from neve.model.display import counted, shown_moment
from neve.model.field_ids import walk_fields
from neve.model.partition_spec import PartitionId, PartitionIdentity, PartitionSpec
from neve.model.row_rules import rule_texts
from neve.model.schema import Column, TableSchema
from neve.model.schema_json import default_to_json, type_to_json
from neve.model.type_parser import type_text
from neve.notebook import shown_columns
from neve.storage.object_store import RequestCount

# A table may have thousands of partitions; people see the largest ones.
_PARTITIONS_SHOWN: Final = 20
_LEASES_SHOWN: Final = 10
_CONSUMERS_SHOWN: Final = 10


@dataclass(slots=True)
class _Partition:
    """Files of one partition, added up."""

    spec_id: int
    values: dict[str, str | None]
    files: int = 0
    rows: int = 0
    file_bytes: int = 0


def definition_json(table: CatalogTable) -> dict[str, Json]:
    """Return schemas, specs and partitions of a table."""
    return {
        "schemas": [
            {
                "schema_version": schema.schema_id,
                "changes": [*changes],
                "columns": [column_json(column) for column in schema.columns],
            }
            for schema, changes in zip(table.schemas, _all_changes(table.schemas), strict=True)
        ],
        "partition_specs": [
            {"spec_id": spec.spec_id, "partition_by": [*_texts(spec, table.schemas)]}
            for spec in table.specs
        ],
        "partitions": [
            {
                "spec_id": each.spec_id,
                "values": {**each.values},
                "files": each.files,
                "rows": each.rows,
                "bytes": each.file_bytes,
            }
            for each in _partitions(table)
        ],
    }


def definition_lines(table: CatalogTable) -> Iterator[Text]:
    """Yield the schemas, specs and partitions of a table that has had more than one of them."""
    if len(table.schemas) > 1:
        yield Text()
        for schema, changes in zip(table.schemas, _all_changes(table.schemas), strict=True):
            words = ", ".join(changes) or counted(len(schema.columns), "column")
            yield _line(f"schema {schema.schema_id}", words)
    if len(table.specs) > 1:
        yield Text()
        for spec in table.specs:
            words = ", ".join(_texts(spec, table.schemas)) or "none"
            yield _line(f"spec {spec.spec_id}", words)
    partitions = [each for each in _partitions(table) if each.values]
    if partitions:
        yield Text()
        width = min(60, max(len(_name(each)) for each in partitions[:_PARTITIONS_SHOWN]))
        for each in partitions[:_PARTITIONS_SHOWN]:
            counts = (
                counted(each.files, "file"),
                counted(each.rows, "row"),
                counted(each.file_bytes, "byte"),
            )
            yield Text.assemble(f"  {_name(each):<{width}}  ", (" · ".join(counts), "dim"))
        if len(partitions) > _PARTITIONS_SHOWN:
            rest = len(partitions) - _PARTITIONS_SHOWN
            yield Text(f"  and {counted(rest, 'smaller partition')}", "dim")


def column_json(column: Column) -> dict[str, Json]:
    """Return a column, with its defaults if it has some."""
    members: dict[str, Json] = {
        "id": column.field_id,
        "name": column.name,
        "type": type_to_json(column.type),
        "nullable": column.nullable,
    }
    if column.initial_default is not None:
        members["initial_default"] = default_to_json(column.type, column.initial_default)
    if column.write_default is not None:
        members["write_default"] = default_to_json(column.type, column.write_default)
    return members


def schema_changes(before: TableSchema, after: TableSchema) -> list[str]:
    """Return in words how a schema differs from the one before it."""
    old, new = _fields(before), _fields(after)
    words = [_added(path, field) for path, field in _only_in(new, old)]
    words += [f"dropped {shown_text(path)}" for path, _ in _only_in(old, new)]
    for key, (path, field) in new.items():
        if key in old:
            words += _changed(*old[key], path, field)
    words += _moved(before, after)
    columns = {column.field_id: column for column in before.columns}
    for column in after.columns:
        known = columns.get(column.field_id)
        if known is not None and known.write_default != column.write_default:
            words.append(_default_words(column))
    return words or ["no visible change"]


def _all_changes(schemas: Sequence[TableSchema]) -> list[list[str]]:
    return [[], *(schema_changes(before, after) for before, after in pairwise(schemas))]


def _fields(schema: TableSchema) -> dict[int | None, tuple[str, ArrowField]]:
    walked = walk_fields(tuple(schema.arrow_schema))
    return {field_id_of(field): (path, field) for path, field in walked}


def _only_in(
    these: dict[int | None, tuple[str, ArrowField]],
    others: dict[int | None, tuple[str, ArrowField]],
) -> list[tuple[str, ArrowField]]:
    """Return the fields that only one schema has, without those nested in them."""
    found = [each for key, each in these.items() if key not in others]
    paths = {path for path, _ in found}
    return [(path, field) for path, field in found if path.rpartition(".")[0] not in paths]


def _added(path: str, field: ArrowField) -> str:
    required = "" if field.nullable else ", required"
    return f"added {shown_text(path)} {_type_words(field)}{required}"


def _changed(old_path: str, old: ArrowField, path: str, new: ArrowField) -> list[str]:
    words = []
    if old.name != new.name:
        words.append(f"renamed {shown_text(old_path)} to {shown_text(new.name)}")
    if kind_of(new.type) not in NESTED_KINDS and old.type != new.type:
        words.append(f"widened {shown_text(path)} from {_type_words(old)} to {_type_words(new)}")
    if new.nullable and not old.nullable:
        words.append(f"made {shown_text(path)} nullable")
    return words


def _moved(before: TableSchema, after: TableSchema) -> list[str]:
    """Return which structs have their fields in another order, the columns first."""
    orders = {"columns": [_order(list(schema.arrow_schema)) for schema in (before, after)]}
    old = _fields(before)
    for key, (path, field) in _fields(after).items():
        if key in old and kind_of(field.type) in NESTED_KINDS:
            pair = (old[key][1], field)
            orders[shown_text(path)] = [_order(child_fields(each.type)) for each in pair]
    return [f"reordered {name}" for name, pair in orders.items() if _is_reordered(*pair)]


def _order(fields: Sequence[ArrowField]) -> list[int | None]:
    return [field_id_of(field) for field in fields]


def _is_reordered(old: list[int | None], new: list[int | None]) -> bool:
    both = set(old) & set(new)
    stayed = [each for each in old if each in both]
    # A new field before an old one was moved there.
    kept = [each for each in new if each in both]
    return stayed != kept or new[: len(kept)] != kept


def _default_words(column: Column) -> str:
    if column.write_default is None:
        return f"removed the default of {shown_text(column.name)}"
    value = default_to_json(column.type, column.write_default)
    return f"set the default of {shown_text(column.name)} to {shown_text(str(value))}"


def _type_words(field: ArrowField) -> str:
    return shown_text(type_text(field.type))


def _texts(spec: PartitionSpec, schemas: Sequence[TableSchema]) -> list[str]:
    """Return the fields of a spec with the newest names of columns; some may be dropped."""
    for schema in reversed(schemas):
        known = {column.field_id for column in schema.columns}
        if all(field.source_id in known for field in spec.fields):
            return spec.texts(schema)
    return [f"{field.transform} of column {field.source_id}" for field in spec.fields]


def _partitions(table: CatalogTable) -> list[_Partition]:
    """Add the files of each partition up, the largest partition first."""
    view = table.current()
    identity = PartitionIdentity.of_definitions(table.specs, table.schemas)
    found: dict[PartitionId, _Partition] = {}
    for file in view.version.files.values():
        key = identity.of(file)
        each = found.get(key)
        if each is None:
            each = found[key] = _Partition(file.spec_id, view.words.of(file))
        each.files += 1
        each.rows += file.live_count
        each.file_bytes += file.file_bytes
    return sorted(found.values(), key=lambda each: each.rows, reverse=True)


def _name(partition: _Partition) -> str:
    return "/".join(
        f"{shown_text(name)}={'null' if value is None else shown_text(value)}"
        for name, value in partition.values.items()
    )


def _line(name: str, words: str) -> Text:
    return Text.assemble((f"  {name:<10}  ", "dim"), words)


def unflushed_words(unflushed: int | None) -> str:
    """Return how many changes are only in the log, as the end of a line; empty for none."""
    if unflushed is None:
        return " · its log cannot be read"
    return f" · {counted(unflushed, 'change')} not flushed" if unflushed else ""


def table_json(table: CatalogTable, unflushed: int | None) -> dict[str, Json]:
    """Return the catalog's facts of a table, and how many changes are only in its log."""
    stats = table.stats()
    key = table.primary_key
    return {
        "name": table.name,
        "table_id": table.table_id,
        "table_uuid": table.uuid,
        "location": table.location,
        "format_version": table.format_version,
        "version": stats.version,
        "rows": stats.row_count,
        "files": stats.file_count,
        "bytes": stats.file_bytes,
        "index_bytes": stats.index_bytes,
        "deleted_rows": stats.deleted_count,
        "levels": {str(level): count for level, count in stats.level_file_counts.items()},
        "unflushed_changes": unflushed,
        "leases": [lease_json(lease) for lease in table.leases()],
        "consumers": [consumer_json(each) for each in table.holding_consumers()],
        "columns": [column_json(column) for column in table.schema.columns],
        "primary_key": list(key),
        "partition_by": partition_texts(table),
        "sort_by": [str(field) for field in table.sort_order.fields],
        "rules": dict(rule_texts(table.schema)),
        "properties": table.properties,
        "retention": {
            "versions": table.retention.versions,
            "milliseconds": table.retention.milliseconds,
        },
        "schema_version": table.schema.schema_id,
        "fingerprint": table.schema.fingerprint(),
        **definition_json(table),
    }


def requests_json(requests: Mapping[str, RequestCount]) -> dict[str, Json]:
    """Return what a command asked of a bucket, by kind, with its cost; nothing for a directory."""
    if not requests:
        return {}
    return {"requests": {kind: asdict(count) for kind, count in sorted(requests.items())}}


def request_lines(requests: Mapping[str, RequestCount]) -> Iterator[Text]:
    """Yield what a command asked of a bucket, and what that costs."""
    if requests:
        kinds = ", ".join(f"{each.requests:,} {kind}" for kind, each in sorted(requests.items()))
        total = sum(each.requests for each in requests.values())
        cost = sum(each.cost for each in requests.values())
        words = f"this command: {counted(total, 'request')} ({kinds}), cost {cost:.6f}"
        yield Text()
        yield Text(words, "dim")


def table_lines(table: CatalogTable, unflushed: int | None) -> Iterator[Text]:
    """Yield the catalog's facts of a table, and how many changes are only in its log."""
    stats = table.stats()
    yield Text.assemble(
        (shown_text(table.name), "bold"),
        (f"  version {stats.version} · {counted(stats.row_count, 'row')} in ", "dim"),
        (counted(stats.file_count, "file"), "dim"),
    )
    levels = ", ".join(
        f"{counted(count, 'file')} in level {level}"
        for level, count in stats.level_file_counts.items()
    )
    facts = {
        "files": f"{counted(stats.file_bytes, 'byte')}{f', {levels}' if levels else ''}, "
        f"{counted(stats.deleted_count, 'row')} marked as deleted",
        **(
            {"index": f"{counted(stats.index_bytes, 'byte')}, made again when missing"}
            if stats.index_bytes
            else {}
        ),
        "log": "cannot be read: `neve scan` reports why"
        if unflushed is None
        else f"{counted(unflushed, 'change')} not flushed yet",
        "id": table.table_id,
        "uuid": table.uuid,
        "location": table.location,
        "format": f"Iceberg {table.format_version}",
        "key": ", ".join(table.primary_key),
        "partitions": ", ".join(partition_texts(table)) or "none",
        "sorted by": ", ".join(map(str, table.sort_order.fields)) or "key",
        **{name.replace("_", " "): text for name, text in rule_texts(table.schema).items()},
        "keeps": f"{counted(table.retention.versions, 'version')}, or those of "
        f"{table.retention.milliseconds / 3_600_000:g} h",
    }
    yield from _aligned(facts)
    held = [*lease_lines(table.leases()), *consumer_lines(table.holding_consumers())]
    if held:
        yield Text()
        yield from held
    yield Text()
    yield from _column_lines(table.schema)
    yield from definition_lines(table)
    if table.properties:
        yield Text()
        yield from _aligned(dict(sorted(table.properties.items())))


def lease_json(lease: Lease) -> dict[str, Json]:
    """Return a lease: its Versions, its holder, since when and for how long."""
    return {
        "id": lease.lease_id,
        "holder": lease.holder or None,
        "first_version": lease.versions[0],
        "last_version": lease.versions[-1],
        "since_ms": lease.taken_ms or None,
        "until_ms": lease.expires_ms,
    }


def lease_lines(leases: Sequence[Lease]) -> Iterator[Text]:
    """Yield the readers that hold Versions, the first few of many."""
    for lease in leases[:_LEASES_SHOWN]:
        first, last = lease.versions[0], lease.versions[-1]
        held = f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"
        since = f" since {shown_moment(lease.taken_ms)}" if lease.taken_ms else ""
        holder = shown_text(lease.holder) or "an unknown process"
        yield Text(f"{held} held by {holder}{since}, until {shown_moment(lease.expires_ms)}")
    if len(leases) > _LEASES_SHOWN:
        yield Text(f"and {counted(len(leases) - _LEASES_SHOWN, 'lease')} more", "dim")


def consumer_json(consumer: Consumer) -> dict[str, Json]:
    """Return a consumer of the change feed that holds history, since when and for how long."""
    return {
        "name": consumer.name,
        "position": consumer.position,
        "updated_ms": consumer.updated_ms,
        "until_ms": consumer.keeps_until_ms,
    }


def consumer_lines(consumers: Sequence[Consumer]) -> Iterator[Text]:
    """Yield the consumers that hold history, the first few of many."""
    for each in consumers[:_CONSUMERS_SHOWN]:
        yield Text(
            f"versions from {each.first_version:,} on held by the consumer "
            f"{shown_text(each.name)}, last read {shown_moment(each.updated_ms)}, "
            f"until {shown_moment(each.keeps_until_ms)}"
        )
    if len(consumers) > _CONSUMERS_SHOWN:
        yield Text(f"and {counted(len(consumers) - _CONSUMERS_SHOWN, 'consumer')} more", "dim")


def consumer_rows(table: CatalogTable) -> Iterator[dict[str, Json]]:
    """Yield the consumers of a table by name, those that hold no history too."""
    for row in table.consumers().to_pylist():
        yield {**row, "updated": row["updated"].isoformat()}


def history_rows(table: CatalogTable) -> Iterator[dict[str, Json]]:
    """Yield the retained Versions, oldest first."""
    for row in table.history().to_pylist():
        yield {
            "version": row["version"],
            "parent": row["parent"],
            "timestamp": row["timestamp"].isoformat(),
            "operation": row["operation"],
            "summary": dict(row["summary"]),
            "tags": row["tags"],
        }


def history_lines(table: CatalogTable) -> Iterator[Text]:
    """Yield the retained Versions, oldest first."""
    width = len(f"{table.version:,}")
    for row in table.history().to_pylist():
        line = Text.assemble(
            (f"{row['version']:>{width},}", "bold"),
            (f"  {row['timestamp'].isoformat(timespec='milliseconds')}  ", "dim"),
            f"{row['operation']:<9}",
        )
        for name, value in sorted(row["summary"]):
            if name.startswith("total-"):
                continue  # `--json` has them; a line is about the change
            line.append(f"  {shown_text(name)}={shown_text(value)}", "dim")
        for tag in row["tags"]:
            line.append(f"  #{shown_text(tag)}", "green")
        line.rstrip()
        yield line


def partition_texts(table: CatalogTable) -> list[str]:
    """Return the partition fields as `--partition-by` takes them."""
    return table.spec.texts(table.schema)


def _column_lines(schema: TableSchema) -> Iterator[Text]:
    columns = shown_columns(schema)
    names = [shown_text(column.name) for column in columns]
    types = [shown_text(column.type) for column in columns]
    name_width, type_width = _width(names), _width(types)
    for column, name, type_words in zip(columns, names, types, strict=True):
        line = Text.assemble(
            (f"  {column.field_id:>4}  ", "dim"),
            f"{name:<{name_width}}  {type_words:<{type_width}}  ",
            (shown_text(", ".join(column.notes)), "dim"),
        )
        line.rstrip()
        yield line


def _aligned(facts: Mapping[str, str]) -> Iterator[Text]:
    width = _width(list(facts))
    for name, value in facts.items():
        yield Text.assemble((f"  {shown_text(name):<{width}}  ", "dim"), shown_text(value))


def _width(texts: Sequence[str]) -> int:
    return min(40, max(map(len, texts), default=0))
