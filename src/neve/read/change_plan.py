"""Which rows a commit took away and which it brought, as files and vectors, without reading any.

    file      in the Version before    in the Version after    rows
    added     –                        live rows               brought
    removed   live rows                –                       taken away
    marked    live rows                fewer of them           taken away: what is marked now
    restored  live rows                others of them          both

A key that was taken away and brought in one commit was updated. Rewrites change no row, and neither
does a change of the definition. A rollback brings back whole files, most of whose rows the table
had all along: rows that are the same before and after are no change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from neve.model.data_file import DataFile
from neve.model.version import Operation, Version, VersionEdit

_WITHOUT_CHANGES: Final = frozenset({Operation.REPLACE, Operation.EVOLVE})


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """Rows of a file that are live as it is described here, and were not under another vector."""

    file: DataFile
    without: DataFile | None = None
    """The same file on the other side of the commit; None: it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges:
    """What one commit did to rows."""

    version: int
    timestamp_ms: int
    taken: tuple[ChangedFile, ...]
    """Files with rows that the Version before has."""
    brought: tuple[ChangedFile, ...]
    """Files with rows that the Version after has."""
    drops_equal: bool
    """Whether a row that was taken away and brought back as it was is no change."""


def plan_changes(before: Version | None, edit: VersionEdit, after: Version) -> CommitChanges | None:
    """Say what an edit of one Version to the next did to rows; None when it did nothing."""
    operation = edit.facts.operation
    if operation in _WITHOUT_CHANGES:
        return None
    touched = dict.fromkeys(_paths(edit))
    taken: list[ChangedFile] = []
    brought: list[ChangedFile] = []
    for path in touched:
        old = None if before is None else before.files.get(path)
        new = after.files.get(path)
        if old is not None and new is not None and old.vector == new.vector:
            continue
        if old is not None and old.live_count:
            taken.append(ChangedFile(old, new))
        # Vectors only grow, but for those of a file that a rollback restores.
        if new is not None and new.live_count and (old is None or old.vector is not None):
            brought.append(ChangedFile(new, old))
    if not taken and not brought:
        return None
    return CommitChanges(
        version=after.number,
        timestamp_ms=edit.facts.timestamp_ms,
        taken=tuple(taken),
        brought=tuple(brought),
        drops_equal=operation is Operation.ROLLBACK,
    )


def _paths(edit: VersionEdit) -> Iterable[str]:
    yield from edit.removed
    yield from edit.vectors
    yield from (file.path for file in edit.added)
