"""What a Version changed and what it holds, as Iceberg's snapshot summaries count it.

    added-data-files, added-records, added-files-size, added-delete-files, added-position-deletes
    deleted-data-files, deleted-records, removed-files-size, removed-delete-files,
    removed-position-deletes
    total-data-files, total-records, total-files-size, total-delete-files, total-position-deletes,
    total-equality-deletes

Records are those of files, as Iceberg counts them: rows that a vector marks count until their file
is removed, and also count as position deletes. Sizes include the deletes of data files: a vector
counts with its own bytes, a file of positions with the whole file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from neve.model.data_file import DataFile
from neve.model.version import Version, VersionEdit

DeleteBytes: TypeAlias = Callable[[DataFile], int]
"""Returns how many bytes the deletes of a data file take; the file has some."""


def vector_bytes(file: DataFile) -> int:
    """Return how many bytes the vector of a data file takes."""
    return 0 if file.vector is None else file.vector.length


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """What a Version adds and removes."""

    number: int
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    marked: Sequence[DataFile] = ()
    """Data files with vectors that are new."""
    unmarked: Sequence[DataFile] = ()
    """Data files with the vectors they had before."""

    def counters(self, delete_bytes: DeleteBytes = vector_bytes) -> dict[str, int]:
        """Count what came and went."""
        return {
            "added-data-files": len(self.added),
            "added-records": _rows(self.added),
            "added-files-size": _bytes(self.added) + sum(map(delete_bytes, self.marked)),
            "deleted-data-files": len(self.removed),
            "deleted-records": _rows(self.removed),
            "removed-files-size": _bytes(self.removed) + sum(map(delete_bytes, self.unmarked)),
            "added-delete-files": len(self.marked),
            "added-position-deletes": _marks(self.marked),
            "removed-delete-files": len(self.unmarked),
            "removed-position-deletes": _marks(self.unmarked),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What a Version holds."""

    data_files: int = 0
    records: int = 0
    file_bytes: int = 0
    delete_bytes: int = 0
    delete_files: int = 0
    position_deletes: int = 0

    @classmethod
    def of(
        cls, files: Mapping[str, DataFile], delete_bytes: DeleteBytes = vector_bytes
    ) -> "Totals":
        """Add up whole files."""
        every = list(files.values())
        whole = VersionChange(number=0, added=every, marked=_with_vectors(every))
        return cls().after(whole, delete_bytes)

    def after(self, change: VersionChange, delete_bytes: DeleteBytes = vector_bytes) -> "Totals":
        """Return the totals after a change."""
        added, removed = change.added, change.removed
        marked, unmarked = change.marked, change.unmarked
        return replace(
            self,
            data_files=self.data_files + len(added) - len(removed),
            records=self.records + _rows(added) - _rows(removed),
            file_bytes=self.file_bytes + _bytes(added) - _bytes(removed),
            delete_bytes=self.delete_bytes
            + sum(map(delete_bytes, marked))
            - sum(map(delete_bytes, unmarked)),
            delete_files=self.delete_files + len(marked) - len(unmarked),
            position_deletes=self.position_deletes + _marks(marked) - _marks(unmarked),
        )

    def summary(self) -> dict[str, str]:
        """Members of a snapshot's summary."""
        return {
            "total-data-files": str(self.data_files),
            "total-records": str(self.records),
            "total-files-size": str(self.file_bytes + self.delete_bytes),
            "total-delete-files": str(self.delete_files),
            "total-position-deletes": str(self.position_deletes),
            "total-equality-deletes": "0",
        }


class SummedFiles:
    """The files of successive Versions and their totals.

    An edit changes them in place, so that a long history costs no more than its edits.
    """

    def __init__(self, version: Version) -> None:
        """Start from a whole Version."""
        self._files = dict(version.files)
        self.totals = Totals.of(version.files)

    def follow(self, number: int, edit: VersionEdit) -> VersionChange:
        """Advance to the Version that an edit makes; returns what it changes."""
        touched = {*edit.removed, *edit.vectors}
        before = {path: self._files[path] for path in touched}
        for path in edit.removed:
            del self._files[path]
        for path, vector in edit.vectors.items():
            self._files[path] = self._files[path].with_vector(vector)
        self._files.update((file.path, file) for file in edit.added)
        change = _changed(number, edit, before, self._files)
        self.totals = self.totals.after(change)
        return change


def change_between(before: Version, after: Version, edit: VersionEdit) -> VersionChange:
    """Return what an edit changes, as manifests do."""
    return _changed(after.number, edit, before.files, after.files)


def shown_counters(counters: Mapping[str, int]) -> dict[str, str]:
    """Return counters as a summary shows them: without those that are 0."""
    return {name: str(count) for name, count in counters.items() if count}


def _changed(
    number: int,
    edit: VersionEdit,
    before: Mapping[str, DataFile],
    after: Mapping[str, DataFile],
) -> VersionChange:
    # A file that is removed and added in one step, with another vector, stays.
    left = set(edit.removed)
    came = {file.path for file in edit.added}
    added = [after[file.path] for file in edit.added if file.path not in left]
    removed = [before[path] for path in edit.removed if path not in came]
    stayed = [*edit.vectors, *(path for path in edit.removed if path in came)]
    changed = [
        (before[path], after[path]) for path in stayed if before[path].vector != after[path].vector
    ]
    return VersionChange(
        number=number,
        added=added,
        removed=removed,
        marked=[*_with_vectors(added), *_with_vectors(new for _, new in changed)],
        unmarked=[*_with_vectors(removed), *_with_vectors(old for old, _ in changed)],
    )


def _with_vectors(files: Iterable[DataFile]) -> list[DataFile]:
    return [file for file in files if file.vector is not None]


def _rows(files: Sequence[DataFile]) -> int:
    return sum(file.row_count for file in files)


def _bytes(files: Sequence[DataFile]) -> int:
    return sum(file.file_bytes for file in files)


def _marks(files: Sequence[DataFile]) -> int:
    return sum(file.deleted_count for file in files)
