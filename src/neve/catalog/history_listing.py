"""The Versions of a table as `table.history()` lists them."""

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from neve.catalog.listing_column import optional, required
from neve.manifest.version_reader import Commit

HISTORY_SCHEMA: Final = pa.schema(
    [
        required("version", pa.int64()),
        optional("parent", pa.int64()),
        required("timestamp", pa.timestamp("ms", tz="UTC")),
        required("operation", pa.string()),
        required("summary", pa.map_(pa.string(), pa.string())),
        required("tags", pa.list_(pa.string())),
    ]
)


def list_history(commits: Iterable[Commit], tags: Mapping[str, int]) -> pa.Table:
    """Give a row for each commit, in their order; `tags` has Versions by name."""
    names: dict[int, list[str]] = {}
    for tag, number in sorted(tags.items()):
        names.setdefault(number, []).append(tag)
    rows: list[dict[str, object]] = [
        {
            "version": commit.number,
            "parent": commit.parent,
            "timestamp": commit.facts.timestamp_ms,
            "operation": commit.facts.operation.value,
            "summary": sorted(commit.facts.summary.items()),
            "tags": names.get(commit.number, []),
        }
        for commit in commits
    ]
    return pa.Table.from_pylist(rows, schema=HISTORY_SCHEMA)
