"""The Versions of a table as `table.history()` lists them, with what each changed and holds."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from neve.catalog.version_view import optional, required
from neve.manifest.table_versions import TableVersions
from neve.manifest.version_reader import Commit, Session
from neve.model.version_summary import SummedFiles, Totals, shown_counters

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


def summed_commits(versions: TableVersions, session: Session) -> Iterator[Commit]:
    """Return the retained Versions, oldest first, with counters and totals in their summaries.

    What the oldest one changed is only known as far as its commit said.
    """
    head = versions.head_in(session)
    files: SummedFiles | None = None
    for commit in versions.commits_in(session):
        if commit.number < head.oldest_version:
            totals = Totals.of(versions.version_in(session, commit.number).files)
            counters: dict[str, str] = {}
        elif files is None:
            files = SummedFiles(versions.version_in(session, commit.number))
            totals, counters = files.totals, {}
        else:
            change = files.follow(commit.number, versions.edit_in(session, commit.number))
            totals, counters = files.totals, shown_counters(change.counters())
        summary = {**commit.facts.summary, **counters, **totals.summary()}
        yield replace(commit, facts=replace(commit.facts, summary=summary))


def list_history(commits: Iterable[Commit], tags: Mapping[str, int]) -> pa.Table:
    """Return a row for each commit, in their order; `tags` has Versions by name."""
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
