"""Versions of a table, the edits that lead from one to the next, and the order of their files.

    Version n  ──  VersionEdit (base n)  ──►  Version n+1

A Version is the list of data files with their vectors, and the few facts of its commit. An edit
names what changes: files added, files removed, vectors of files that stay. Commit and recovery both
apply an edit with `apply_edit`.

`FileOrder` holds the files of levels from 1 on, by partition and level, each in key order:

    place (level, spec id, partition)     (key_min, path), ascending
    ─────────────────────────────────     ─────────────────────────────────
    1, 0, ()                              (a, f1)  (g, f7)  (q, f3)
    2, 0, ()                              (a, f2)  (m, f5)

Files of one place do not overlap, so a bisection and the two neighbours decide whether a file fits.
An order is immutable; the one after a change shares the places that the change does not touch.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final

from neve.errors import Corruption
from neve.model.data_file import DataFile, PartitionValue, VectorRef, WalSegmentRef

Place = tuple[int, int, tuple[PartitionValue, ...]]
"""Level, partition spec and partition."""

_Row = list[tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class FileOrder:
    """Paths by place and smallest key; files of level 0 are in no order."""

    _rows: Mapping[Place, _Row] = field(default_factory=dict)

    @staticmethod
    def of(files: Iterable[DataFile]) -> "FileOrder":
        """Sort files."""
        rows: defaultdict[Place, _Row] = defaultdict(list)
        for file in files:
            if file.level > 0:
                rows[_place_of(file)].append((file.key_min, file.path))
        for row in rows.values():
            row.sort()
        return FileOrder(dict(rows))

    def after(self, removed: Iterable[DataFile], added: Iterable[DataFile]) -> "FileOrder":
        """Return the order after a change; the cost grows with the places it touches."""
        gone = [file for file in removed if file.level > 0]
        new = [file for file in added if file.level > 0]
        if not gone and not new:
            return self
        rows = dict(self._rows)
        for place in {_place_of(file) for file in (*gone, *new)}:
            rows[place] = list(rows.get(place, ()))
        for file in gone:
            row = rows[_place_of(file)]
            del row[bisect_left(row, (file.key_min, file.path))]
        for file in new:
            insort(rows[_place_of(file)], (file.key_min, file.path))
        return FileOrder({place: row for place, row in rows.items() if row})

    def neighbours(self, file: DataFile) -> Iterator[str]:
        """Yield the paths before and after where a file is, or would be, in its place."""
        row = self._rows.get(_place_of(file), [])
        at = bisect_left(row, (file.key_min, file.path))
        if at > 0:
            yield row[at - 1][1]
        after = at + 1 if at < len(row) and row[at][1] == file.path else at
        if after < len(row):
            yield row[after][1]

    def adjacent(self) -> Iterator[tuple[str, str]]:
        """Yield the paths of every two adjacent files of one place."""
        for row in self._rows.values():
            for (_, left), (_, right) in pairwise(row):
                yield left, right


def _place_of(file: DataFile) -> Place:
    return file.level, file.spec_id, file.partition


EXPIRED_ROWS: Final = "expired-rows"
"""In the summary of a Version that removes rows because they have expired: how many. On disk."""


class Operation(StrEnum):
    """What a commit did; on disk: never change."""

    CREATE = "CREATE"
    APPEND = "APPEND"
    OVERWRITE = "OVERWRITE"
    DELETE = "DELETE"
    REPLACE = "REPLACE"
    EVOLVE = "EVOLVE"
    ROLLBACK = "ROLLBACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """What a commit says about itself, except its files."""

    operation: Operation
    timestamp_ms: int
    schema_id: int
    spec_id: int
    summary: Mapping[str, str] = field(default_factory=dict)
    wal_segments: tuple[WalSegmentRef, ...] = ()
    """The stretches of the log that a flush committed; empty for every other commit."""
    table_uuid: str = ""
    """Of the table that the Version belongs to; empty before the commit, and in old Versions."""
    last_column_id: int = 0
    """Highest field id that the Version's schema has given out; 0 where the uuid is empty."""
    unread: bytes = b""
    """Facts that a newer neve stored, as they were read: kept, and stored again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One committed state of a table."""

    number: int
    parent: int | None
    facts: VersionFacts
    files: Mapping[str, DataFile] = field(default_factory=dict)
    """By path, in the order in which they were added."""
    next_row_id: int = 0
    first_row_id: int = 0
    """The parent's next row id: where the ids of this version's rows begin."""
    deletes: Mapping[str, DataFile] = field(default_factory=dict)
    """Files of remembered deletes by path, oldest first; only a table with an order has any."""
    _order: tuple[Mapping[str, DataFile], FileOrder] | None = field(
        default=None, compare=False, repr=False
    )
    """The order of `files`, with the mapping it was made from."""

    @property
    def key_order(self) -> FileOrder:
        """Files of levels from 1 on in the order of their keys; made once."""
        known = self._order
        if known is None or known[0] is not self.files:
            known = self.files, FileOrder.of(self.files.values())
            object.__setattr__(self, "_order", known)  # a cache: the value stays the same
        return known[1]

    @property
    def row_count(self) -> int:
        """Rows that readers see."""
        return sum(file.live_count for file in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionEdit:
    """The change from a base Version to the next one."""

    base: int
    facts: VersionFacts
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    vectors: Mapping[str, VectorRef] = field(default_factory=dict)
    """Whole vectors of files that stay, as they are after the edit."""
    deletes_added: tuple[DataFile, ...] = ()
    """Files of remembered deletes."""
    deletes_removed: tuple[str, ...] = ()

    @property
    def changes_files(self) -> bool:
        """Whether the next Version has other files or vectors."""
        return bool(
            self.added or self.removed or self.vectors or self.deletes_added or self.deletes_removed
        )


def apply_edit(version: Version | None, edit: VersionEdit) -> Version:
    """Return the Version after an edit; None is the table before its first.

    Raises Corruption when the edit does not fit: a file it removes or marks is missing, or one it
    adds already exists.
    """
    number = 1 if version is None else version.number + 1
    if edit.base != number - 1:
        raise Corruption(f"an edit of version {edit.base} cannot follow version {number - 1}")
    files = {} if version is None else _copied(version.files)
    removed: list[DataFile] = []
    for path in edit.removed:
        gone = files.pop(path, None)
        if gone is None:
            raise Corruption(f"version {number} removes a file that is not there", path=path)
        removed.append(gone)
    for path, vector in edit.vectors.items():
        file = files.get(path)
        if file is None:
            raise Corruption(f"version {number} marks rows of a file that is not there", path=path)
        files[path] = file.with_vector(vector)
    next_row_id = 0 if version is None else version.next_row_id
    for file in edit.added:
        if file.path in files:
            raise Corruption(f"version {number} adds a file twice", path=file.path)
        files[file.path] = file
        if file.first_row_id is not None:
            next_row_id = max(next_row_id, file.first_row_id + file.row_count)
    deletes = {} if version is None else _copied(version.deletes)
    for path in edit.deletes_removed:
        if deletes.pop(path, None) is None:
            raise Corruption(f"version {number} removes deletes that are not there", path=path)
    for file in edit.deletes_added:
        if file.path in deletes:
            raise Corruption(f"version {number} adds deletes twice", path=file.path)
        deletes[file.path] = file
    order = FileOrder() if version is None else version.key_order
    return Version(
        number=number,
        parent=None if version is None else version.number,
        facts=edit.facts,
        files=files,
        next_row_id=next_row_id,
        first_row_id=0 if version is None else version.next_row_id,
        deletes=deletes,
        _order=(files, order.after(removed, edit.added)),
    )


def _copied(files: Mapping[str, DataFile]) -> dict[str, DataFile]:
    """Copy a mapping; after a removal, `dict` inserts every key again, while `copy` does not."""
    return files.copy() if isinstance(files, dict) else dict(files)
