"""How a table came to be what it is: its schemas, its partition specs, and the partitions it has.

schema 0  5 columns
schema 1  added note string, renamed address.zip to postcode
schema 2  widened count from int to long

spec 0    none
spec 1    day(ts)

ts_day=2024-03-01    3 files · 1,200 rows · 90,112 bytes
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rich.text import Text

from neve.catalog.catalog_table import CatalogTable
from neve.inspect.shown_text import Json, shown_text
from neve.model.arrow_types import (
    NESTED_KINDS,
    ArrowField,
    child_fields,
    field_id_of,
    kind_of,
)
from neve.model.display import counted
from neve.model.field_ids import walk_fields
from neve.model.partition_spec import PartitionSpec
from neve.model.partitions import PartitionId, PartitionIdentity
from neve.model.schema import Column, TableSchema
from neve.model.schema_json import default_to_json, type_to_json
from neve.model.type_parser import type_text

# A table may have thousands of partitions; for people the largest ones are shown.
_PARTITIONS_SHOWN: Final = 20


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
    """Tell the schemas, specs and partitions of a table that has had more than one of them."""
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
    """Return a column; its defaults only where it has some."""
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
    """Say in words what one schema has otherwise than the one before it."""
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
    return words or ["nothing that can be seen"]


def _all_changes(schemas: Sequence[TableSchema]) -> list[list[str]]:
    return [[], *(schema_changes(before, after) for before, after in pairwise(schemas))]


def _fields(schema: TableSchema) -> dict[int | None, tuple[str, ArrowField]]:
    walked = walk_fields(tuple(schema.arrow_schema))
    return {field_id_of(field): (path, field) for path, field in walked}


def _only_in(
    these: dict[int | None, tuple[str, ArrowField]],
    others: dict[int | None, tuple[str, ArrowField]],
) -> list[tuple[str, ArrowField]]:
    """Return the fields that only one schema has, each without what is inside of it."""
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
        words.append(f"let {shown_text(path)} be NULL")
    return words


def _moved(before: TableSchema, after: TableSchema) -> list[str]:
    """Say of each struct whose fields are in another order that they are, the columns first."""
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
    # A new field that stands before an old one was moved there.
    kept = [each for each in new if each in both]
    return stayed != kept or new[: len(kept)] != kept


def _default_words(column: Column) -> str:
    if column.write_default is None:
        return f"took the default of {shown_text(column.name)} away"
    value = default_to_json(column.type, column.write_default)
    return f"set the default of {shown_text(column.name)} to {shown_text(str(value))}"


def _type_words(field: ArrowField) -> str:
    return shown_text(type_text(field.type))


def _texts(spec: PartitionSpec, schemas: Sequence[TableSchema]) -> list[str]:
    """Spell a spec with the newest names of its columns; some may be gone by now."""
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
