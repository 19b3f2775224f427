"""Columns and first rows of an Arrow batch from a log, whatever their types and values are."""

from typing import Final, NamedTuple

import pyarrow as pa

from neve.model.arrow_types import field_id_of

_FIRST_ROWS: Final = 3


class ColumnWords(NamedTuple):
    """One column in words."""

    name: str
    type: str
    field_id: int | None


def column_words(rows: pa.RecordBatch) -> list[ColumnWords]:
    """Return the columns of a batch."""
    return [ColumnWords(field.name, str(field.type), field_id_of(field)) for field in rows.schema]


def first_rows(rows: pa.RecordBatch) -> list[dict[str, object]]:
    """Return the first rows of a batch; none when Python has no value for something in them."""
    try:
        return rows.slice(0, _FIRST_ROWS).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError, KeyError):
        # ValueError: a name in a struct that is no text. KeyError: a time zone nobody knows.
        return []
