"""Columns as they are written on a command line.

name:type   a new column, with `!` after the type of one that is never NULL
name,name   columns of a table
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neve.errors import InvalidArgument
from neve.model.schema import TableSchema
from neve.model.type_parser import REQUIRED, parse_type

_MANY: Final = ","


@dataclass(frozen=True, slots=True)
class ColumnWord:
    """A column as it was asked for."""

    name: str
    type: pa.DataType
    nullable: bool


def column_of(text: str) -> ColumnWord:
    """Read `name:type` or `name:type!`; raises InvalidArgument."""
    # The names of fields inside a nested type have colons too, a name before it may have.
    before, bracket, inside = text.partition("<")
    name, colon, type_text = before.rpartition(":")
    type_text += bracket + inside
    if not colon:
        raise InvalidArgument(f"the column {text!a} has no type", hint=f"Write {text}:string")
    if not name:
        raise InvalidArgument(f"the column {text!a} has no name", hint=f"Write id{text}")
    return ColumnWord(
        name, parse_type(type_text.removesuffix(REQUIRED)), not type_text.endswith(REQUIRED)
    )


def names_of(texts: Sequence[str], schema: TableSchema) -> list[str] | None:
    """Split names at commas, unless a column is named so; None when there are none."""
    names: list[str] = []
    for text in texts:
        names += [text] if text in schema else [part.strip() for part in text.split(_MANY)]
    return names or None
