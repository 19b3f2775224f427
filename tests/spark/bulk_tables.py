"""Tables on disk for bulk writes, and what a stranger reads in them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pyarrow as pa

import neve
from neve.testing.clean_reader import CleanReader

NAME = "a.b"
_COLUMNS: Mapping[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
SCHEMA = pa.schema(_COLUMNS)
DDL = "id long, v long, text string"

Row = tuple[int, int | None, str | None]


def make_table(lake: Path, *, partition_by: Sequence[str] = ()) -> None:
    """Make an empty table of NAME."""
    with neve.open(lake) as catalog:
        catalog.create_table(NAME, SCHEMA, ["id"], partition_by=partition_by)


def clean_rows(lake: Path) -> dict[int, Row]:
    """Read the current Version as a stranger does; fails when a key has two live rows."""
    with neve.open(lake) as catalog:
        table = catalog.load_table(NAME)
        stored = table.stored
        version = stored.versions.snapshot_latest().version
        reader = CleanReader(stored.objects, stored.paths.root, ["id"])
        found = reader.rows(version, table.schema)
    return {cast("int", row["id"]): as_row(row) for row in found.values()}


def as_row(row: Mapping[str, object]) -> Row:
    return (
        cast("int", row["id"]),
        cast("int | None", row["v"]),
        cast("str | None", row["text"]),
    )


def by_key(rows: Sequence[Row]) -> dict[int, Row]:
    """Return the last row of each key."""
    return {row[0]: row for row in rows}


def current_version(lake: Path) -> int:
    with neve.open(lake) as catalog:
        return catalog.load_table(NAME).version
