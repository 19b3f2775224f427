"""What jobs from outside of the live writer are known by, what they make, and what became of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyroaring import BitMap64

from neve.keys.columns import KeyArray
from neve.manifest.table_head import HeadChange
from neve.model.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIdentity:
    """What a job is known by when it is run again; without either, each run is another job."""

    job_id: str | None = None
    application: tuple[str, int] | None = None
    """Application id and batch number; batches are committed in ascending order."""

    @property
    def head_change(self) -> HeadChange:
        """What the commit records; raises InvalidArgument for names that cannot be kept."""
        return HeadChange(job_id=self.job_id, application=self.application)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkWork:
    """What a job has made, all of its tasks together."""

    files: tuple[DataFile, ...] = ()
    marked: Mapping[str, BitMap64] = field(default_factory=dict)
    """Live rows of the base that are superseded, by path."""
    deleted_keys: tuple[KeyArray, ...] = ()
    """Keys that are deleted, whether they have a row or not."""
    seen_keys: tuple[KeyArray, ...] = ()
    """Keys that were decided about, and left as they are."""

    @property
    def row_count(self) -> int:
        """Rows in the files."""
        return sum(file.row_count for file in self.files)

    @classmethod
    def joined(cls, pieces: Iterable["BulkWork"]) -> "BulkWork":
        """Put the work of several tasks together."""
        files: list[DataFile] = []
        marked: dict[str, BitMap64] = {}
        deleted: list[KeyArray] = []
        seen: list[KeyArray] = []
        for piece in pieces:
            files += piece.files
            deleted += piece.deleted_keys
            seen += piece.seen_keys
            for path, positions in piece.marked.items():
                marked[path] = marked.get(path, BitMap64()) | positions
        return cls(
            files=tuple(files),
            marked=marked,
            deleted_keys=tuple(deleted),
            seen_keys=tuple(seen),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkOutcome:
    """What became of a job."""

    version: int
    """The Version that has its rows; the current one when it changed nothing."""
    rows_written: int = 0
    rows_superseded: int = 0
    """Rows the table had before and has no more."""
    files: int = 0
    was_already_done: bool = False
    """The same job or batch was committed before; nothing was written now."""
