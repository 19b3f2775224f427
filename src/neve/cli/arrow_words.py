"""Columns and first rows of an Arrow batch from a log, whatever their names and values are."""

from typing import Final, NamedTuple

import pyarrow as pa

from neve.model.arrow_types import ArrowField, field_id_of

_FIRST_ROWS: Final = 3
_UNREADABLE: Final = "(not UTF-8)"


class ColumnWords(NamedTuple):
    """One column in words."""

    name: str
    type: str
    field_id: int | None


def column_words(rows: pa.RecordBatch) -> list[ColumnWords]:
    """Give the columns of a batch; names that are no text are told to be none."""
    return [_words_of(field) for field in rows.schema]


def first_rows(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Give the first rows of a batch; none when Python has no value for something in them."""
    try:
        return rows.slice(0, _FIRST_ROWS).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, KeyError):
        # KeyError: a time zone that nobody knows.
        return []


def _words_of(field: ArrowField) -> ColumnWords:
    try:
        name = field.name
    except UnicodeDecodeError:
        name = _UNREADABLE
    try:
        type_name = str(field.type)
    except UnicodeDecodeError:
        type_name = _UNREADABLE
    return ColumnWords(name, type_name, field_id_of(field))
