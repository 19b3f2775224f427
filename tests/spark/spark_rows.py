"""Rows of Spark and of the embedded engine in one form, so that they can be compared."""

from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame

Row = dict[str, object]


def plain(value: object) -> object:
    """Return a value as Spark shows it: uuids are text there."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(each) for each in value)
    return value


def rows_of(found: DataFrame | pa.Table, key: str = "id") -> list[Row]:
    """Return all rows, by key."""
    table = found if isinstance(found, pa.Table) else found.toArrow()
    rows = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: str(row[key]).rjust(40))
