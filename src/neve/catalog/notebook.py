"""Pages that a notebook shows for a lake and for a table.

They are made of what is known or costs a look into manifests: no row is read, no table is opened,
nothing is written. Where the newest state cannot be had, the last one known is shown, with the
reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from neve.catalog.catalog_state import CatalogState
from neve.catalog.stored_table import TableState
from neve.catalog.table_meta import TableMeta
from neve.errors import NeveError
from neve.model.display import counted, shown_bytes
from neve.notebook import (
    Cell,
    byte_count,
    column_facts,
    commit_words,
    facts,
    first_words,
    levels_part,
    listing,
    page,
    pair_words,
    size_words,
    warning,
)

TABLES_SHOWN: Final = 20
"""A lake shows so many tables: each costs a look into its version store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLine:
    """One table of a lake: its newest state, or why it cannot be had."""

    name: str
    found: TableState | NeveError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTable:
    """What is shown of a table."""

    location: str
    meta: TableMeta
    state: TableState
    unflushed: int | None = None
    """Changes that are not in files yet; None when that is not known without opening the rows."""
    problems: tuple[str, ...] = ()


def lake_page(location: str, state: CatalogState, tables: Iterable[TableLine]) -> str:
    """Show a lake: its namespaces, and the first of its tables."""
    rows = [_table_row(line) for line in tables]
    parts = [facts({"namespaces": first_words(sorted(state.namespaces))})]
    if rows:
        names = ("table", "version", "rows", "files", "size", "last commit")
        parts.append(listing(names, rows, more=len(state.tables) - len(rows)))
    count = counted(len(state.tables), "table") if state.tables else "no tables"
    return page("Lake", *parts, line=f"{location} · {count}")


def table_page(shown: ShownTable) -> str:
    """Show a table: its definition, its columns and its levels."""
    meta, state = shown.meta, shown.state
    version, schema = state.version, state.schema
    columns = [(each.name, each.type, ", ".join(each.notes)) for each in column_facts(schema)]
    return page(
        f"Table {meta.name}",
        *map(warning, shown.problems),
        facts(
            {
                "key": ", ".join(column.name for column in schema.key_columns),
                "partitions": ", ".join(state.spec.texts(schema)) or "none",
                "sorted by": ", ".join(map(str, state.sort_order.fields)) or "key",
                "last commit": commit_words(version),
                "not flushed": None
                if shown.unflushed is None
                else counted(shown.unflushed, "change"),
                "format": f"Iceberg {meta.format_version}",
                "location": shown.location,
                "properties": pair_words(meta.properties),
            }
        ),
        levels_part(version, unflushed=shown.unflushed or 0),
        listing(("column", "type", ""), columns),
        line=size_words(version),
    )


def _table_row(line: TableLine) -> Sequence[Cell]:
    if isinstance(line.found, NeveError):
        return line.name, None, None, None, None, warning(str(line.found))
    version = line.found.version
    return (
        line.name,
        version.number,
        version.row_count,
        len(version.files),
        shown_bytes(byte_count(version)),
        commit_words(version),
    )
