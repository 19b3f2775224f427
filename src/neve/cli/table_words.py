"""A table's definition and history for people, as lines, and for programs, as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.text import Text

from neve.catalog.catalog_table import CatalogTable
from neve.cli.table_words import column_json, definition_json, definition_lines
from neve.inspect.shown_text import Json, shown_text
from neve.manifest.documents import Lease
from neve.model.display import counted, shown_moment
from neve.model.schema import TableSchema
from neve.notebook import column_facts

_LEASES_SHOWN: Final = 10


def unflushed_words(unflushed: int | None) -> str:
    """Say behind other counts how many changes are only in the log; nothing when there are none."""
    if unflushed is None:
        return " · its log cannot be read"
    return f" · {counted(unflushed, 'change')} not flushed" if unflushed else ""


def table_json(table: CatalogTable, unflushed: int | None) -> dict[str, Json]:
    """Return everything the catalog knows of a table, and how many changes are only in its log."""
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
        "deleted_rows": stats.deleted_count,
        "levels": {str(level): count for level, count in stats.level_file_counts.items()},
        "unflushed_changes": unflushed,
        "leases": [lease_json(lease) for lease in table.leases()],
        "columns": [column_json(column) for column in table.schema.columns],
        "primary_key": list(key),
        "partition_by": partition_texts(table),
        "sort_by": [str(field) for field in table.sort_order.fields],
        "properties": table.properties,
        "retention": {
            "versions": table.retention.versions,
            "milliseconds": table.retention.milliseconds,
        },
        "schema_version": table.schema.schema_id,
        "fingerprint": table.schema.fingerprint(),
        **definition_json(table),
    }


def table_lines(table: CatalogTable, unflushed: int | None) -> Iterator[Text]:
    """Tell everything the catalog knows of a table, and how many changes are only in its log."""
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
        "log": "cannot be read: `neve scan` says why"
        if unflushed is None
        else f"{counted(unflushed, 'change')} not flushed yet",
        "id": table.table_id,
        "uuid": table.uuid,
        "location": table.location,
        "format": f"Iceberg {table.format_version}",
        "key": ", ".join(table.primary_key),
        "partitions": ", ".join(partition_texts(table)) or "none",
        "sorted by": ", ".join(map(str, table.sort_order.fields)) or "key",
        "keeps": f"{counted(table.retention.versions, 'version')}, or those of "
        f"{table.retention.milliseconds / 3_600_000:g} h",
    }
    yield from _aligned(facts)
    leases = table.leases()
    if leases:
        yield Text()
        yield from lease_lines(leases)
    yield Text()
    yield from _column_lines(table.schema)
    yield from definition_lines(table)
    if table.properties:
        yield Text()
        yield from _aligned(dict(sorted(table.properties.items())))


def lease_json(lease: Lease) -> dict[str, Json]:
    """Return a lease: what it is on, who holds it, since when and for how long."""
    return {
        "id": lease.lease_id,
        "holder": lease.holder or None,
        "first_version": lease.versions[0],
        "last_version": lease.versions[-1],
        "since_ms": lease.taken_ms or None,
        "until_ms": lease.expires_ms,
    }


def lease_lines(leases: Sequence[Lease]) -> Iterator[Text]:
    """Tell which readers hold Versions, the first few of many."""
    for lease in leases[:_LEASES_SHOWN]:
        first, last = lease.versions[0], lease.versions[-1]
        held = f"version {first:,}" if first == last else f"versions {first:,} to {last:,}"
        since = f" since {shown_moment(lease.taken_ms)}" if lease.taken_ms else ""
        holder = shown_text(lease.holder) or "an unknown process"
        yield Text(f"{held} held by {holder}{since}, until {shown_moment(lease.expires_ms)}")
    if len(leases) > _LEASES_SHOWN:
        yield Text(f"and {counted(len(leases) - _LEASES_SHOWN, 'lease')} more", "dim")


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
    """Tell the retained Versions, oldest first."""
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
    columns = column_facts(schema)
    names = [shown_text(column.name) for column in columns]
    types = [shown_text(column.type) for column in columns]
    name_width, type_width = _width(names), _width(types)
    for column, name, type_text in zip(columns, names, types, strict=True):
        line = Text.assemble(
            (f"  {column.field_id:>4}  ", "dim"),
            f"{name:<{name_width}}  {type_text:<{type_width}}  ",
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
