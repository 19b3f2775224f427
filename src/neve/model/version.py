"""Versions of a table and the edits that lead from one to the next.

    Version n  ──  VersionEdit (base n)  ──►  Version n+1

A Version is the list of data files with their vectors, and the few facts of its commit. An edit
names what changes: files added, files removed, vectors of files that stay. `apply_edit` is the only
way from one to the other, in a commit and in recovery alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from neve.errors import Corruption
from neve.model.data_file import DataFile, VectorRef, WalSegmentRef
from neve.model.file_order import FileOrder


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
    """What a commit says about itself, files aside."""

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
    _order: tuple[Mapping[str, DataFile], FileOrder] | None = field(
        default=None, compare=False, repr=False
    )
    """The order of `files`, with the very mapping it was made of."""

    @property
    def key_order(self) -> FileOrder:
        """Files of levels from 1 on in the order of their keys; made once."""
        known = self._order
        if known is None or known[0] is not self.files:
            known = self.files, FileOrder.of(self.files.values())
            object.__setattr__(self, "_order", known)  # derived: the value stays the same
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


def apply_edit(version: Version | None, edit: VersionEdit) -> Version:
    """Return the Version after an edit; None stands for the table before its first.

    Raises Corruption when the edit does not fit: a file it removes or marks is not there, or one it
    adds already is.
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
    order = FileOrder() if version is None else version.key_order
    return Version(
        number=number,
        parent=None if version is None else version.number,
        facts=edit.facts,
        files=files,
        next_row_id=next_row_id,
        first_row_id=0 if version is None else version.next_row_id,
        _order=(files, order.after(removed, edit.added)),
    )


def _copied(files: Mapping[str, DataFile]) -> dict[str, DataFile]:
    """Copy a mapping; `copy` clones a dict whole, `dict` puts every key again after a removal."""
    return files.copy() if isinstance(files, dict) else dict(files)
