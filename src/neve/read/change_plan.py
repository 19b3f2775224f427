"""Change plans: the rows a commit removed and added, as files and vectors, without reading any.

    file      in the Version before    in the Version after    rows
    added     –                        live rows               added
    removed   live rows                –                       removed
    marked    live rows                fewer of them           removed: those marked now
    restored  live rows                others of them          both

A key that was removed and added in one commit was updated. Rewrites change no row, and neither does
a change of the definition. A rollback restores whole files, and the table still had most of their
rows: rows that are the same before and after do not count as changes.

Consecutive small commits often mark rows in the same files. They are grouped, and a group reads
each file once:

    commit    marks in file f     read of f
    5         3  40               rows that the vector of commit 7 marks and that of 4 does not:
    6         17                  3  17  40  60
    7         60

Vectors of one file only grow from commit to commit of a group: a rollback is a group of its own.

Rows in memory that no commit has yet are planned as the commit that would follow: it removes the
rows of files whose keys they have, by position.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyroaring import BitMap64

from neve.model.data_file import DataFile
from neve.model.version import EXPIRED_ROWS, Operation, Version, VersionEdit

# The most rows that a group marks; they are held at once.
_GROUP_ROWS: Final = 131_072
_GROUP_BYTES: Final = 16 << 20
_GROUP_COMMITS: Final = 256
_WITHOUT_CHANGES: Final = frozenset({Operation.REPLACE, Operation.EVOLVE})


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """Rows of a file that are live under its vector, and were not under another vector."""

    file: DataFile
    without: DataFile | None = None
    """The same file on the other side of the commit; None: it does not exist there."""
    replaced: BitMap64 | None = None
    """Instead of another vector: the positions of live rows that rows in memory replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitChanges:
    """What one commit did to rows, or what the rows in memory do."""

    version: int | None
    """None, like the time: nothing is committed yet."""
    timestamp_ms: int | None
    taken: tuple[ChangedFile, ...]
    """Files with rows that the Version before has."""
    brought: tuple[ChangedFile, ...]
    """Files with rows that the Version after has."""
    drops_equal: bool
    """Whether a row that was removed and added unchanged does not count as a change."""
    is_expiry: bool = False
    """Whether the rows were removed because they had expired."""


def grouped(commits: Iterable[CommitChanges]) -> Iterator[list[CommitChanges]]:
    """Group consecutive commits that are worth reading together."""
    group: list[CommitChanges] = []
    row_count = byte_count = 0
    for commit in commits:
        rows, size = _marks(commit)
        row_count += rows
        byte_count += size
        is_full = row_count > _GROUP_ROWS or byte_count > _GROUP_BYTES
        if group and (
            is_full or len(group) >= _GROUP_COMMITS or commit.drops_equal or group[-1].drops_equal
        ):
            yield group
            group, row_count, byte_count = [], rows, size
        group.append(commit)
    if group:
        yield group


def marked_often(group: Iterable[CommitChanges]) -> dict[str, ChangedFile]:
    """Return the files that several commits of a group mark, with all that they mark, by path."""
    found: dict[str, ChangedFile] = {}
    often: set[str] = set()
    for commit in group:
        for each in commit.taken:
            if each.without is None:
                continue
            path = each.file.path
            if path in found:
                often.add(path)
                each = ChangedFile(found[path].file, each.without)  # noqa: PLW2901 - and longer
            found[path] = each
    return {path: found[path] for path in often}


def _marks(commit: CommitChanges) -> tuple[int, int]:
    """Return how many rows a commit marks in files that stay, and about how many stored bytes."""
    rows = size = 0
    for each in commit.taken:
        if each.without is not None:
            count = max(each.without.deleted_count - each.file.deleted_count, 0)
            rows += count
            size += count * each.file.file_bytes // each.file.row_count
    return rows, size


def plan_live_changes(version: Version, replaced: Mapping[str, BitMap64]) -> CommitChanges:
    """Return what rows in memory do to a Version, whose rows they replace or delete, by path."""
    return CommitChanges(
        version=None,
        timestamp_ms=None,
        taken=tuple(
            ChangedFile(version.files[path], replaced=positions)
            for path, positions in replaced.items()
        ),
        brought=(),
        drops_equal=False,
    )


def plan_changes(before: Version | None, edit: VersionEdit, after: Version) -> CommitChanges | None:
    """Return what an edit of one Version to the next did to rows; None when it did nothing."""
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
        # Vectors only grow, except those of a file that a rollback restores.
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
        is_expiry=EXPIRED_ROWS in edit.facts.summary,
    )


def _paths(edit: VersionEdit) -> Iterable[str]:
    yield from edit.removed
    yield from edit.vectors
    yield from (file.path for file in edit.added)
