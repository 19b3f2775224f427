"""What people are told about the columns of a table, a line each."""

from typing import NamedTuple

from neve.model.schema import Column, TableSchema
from neve.model.schema_json import default_to_json
from neve.model.type_parser import type_text


class ColumnFacts(NamedTuple):
    """A column: its name, its type, and what else there is to say."""

    field_id: int
    name: str
    type: str
    notes: tuple[str, ...]
    """Whether it is required, its place in the key, its default, and what people wrote of it."""


def column_facts(schema: TableSchema) -> list[ColumnFacts]:
    """Return the columns of a schema in order."""
    key = {field_id: place for place, field_id in enumerate(schema.primary_key, start=1)}
    return [
        ColumnFacts(
            column.field_id, column.name, type_text(column.type), tuple(_notes(column, key))
        )
        for column in schema.columns
    ]


def _notes(column: Column, key: dict[int, int]) -> list[str]:
    notes = [] if column.nullable else ["required"]
    if column.field_id in key:
        notes.append(f"key {key[column.field_id]}" if len(key) > 1 else "key")
    if column.write_default is not None:
        notes.append(f"default {default_to_json(column.type, column.write_default)}")
    if column.doc:
        notes.append(column.doc)
    return notes
