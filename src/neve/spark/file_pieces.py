"""Reads of data files in Python workers: files in groups, each read by one task with the engine.

    Version ──► files that may match ──► pieces of 8 to 128 MiB ──► task ──► rows as Arrow

A piece and its reader are all that a worker gets: it opens the lake itself, with the storage
options it was sent or with its own credentials, and reads no manifest. Vectors are applied there.

Nothing here imports Spark.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64

from neve.compaction.rewrite_job import TableDefinition
from neve.engine.rewrite import table_definition
from neve.model.data_file import DataFile
from neve.model.predicate import Predicate
from neve.model.version import Operation, Version, VersionFacts
from neve.read.scan import Scan, ScanRequest
from neve.spark.job_site import TableSite, worker_files
from neve.sstable.data_file_reader import DataFileReader
from neve.sstable.deletion_vector import decode_vector, encode_vector, positions_in
from neve.table.file_set import FileSet
from neve.table.table_files import TableFiles
from neve.table.table_view import TableView

_PIECE_BYTES_MIN: Final = 8 << 20
_PIECE_BYTES_MAX: Final = 128 << 20
# Until pieces reach their largest size, there are enough of them for a cluster.
_PIECES_WANTED: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """Files that one task reads."""

    files: tuple[DataFile, ...]
    hidden: Mapping[str, bytes] = field(default_factory=dict)
    """By path, rows that newer ones in a log replace, as a deletion vector."""


def cut_pieces(
    files: Sequence[DataFile], hidden: Mapping[str, BitMap64] | None = None
) -> list[FilePiece]:
    """Group files, in their order, until each group is large enough for a task."""
    total = sum(file.file_bytes for file in files)
    bytes_max = min(max(total // _PIECES_WANTED, _PIECE_BYTES_MIN), _PIECE_BYTES_MAX)
    groups: list[list[DataFile]] = []
    size = bytes_max
    for file in files:
        if size + file.file_bytes > bytes_max:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.file_bytes
    newer = hidden or {}
    return [
        FilePiece(
            files=tuple(group),
            hidden={
                file.path: encode_vector(newer[file.path]) for file in group if file.path in newer
            },
        )
        for group in groups
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceReader:
    """Reads pieces of one Version, in a worker."""

    site: TableSite
    table: TableDefinition
    version: int
    columns: tuple[str, ...]
    filter: Predicate | str | None
    moment_ms: int | None
    """Rows that have expired by then are left out; None keeps them."""

    @classmethod
    def of(
        cls,
        view: TableView,
        storage_options: Mapping[str, str],
        *,
        columns: tuple[str, ...],
        filter: Predicate | str | None,  # noqa: A002 - the word of `scan`
        moment_ms: int | None,
    ) -> "PieceReader":
        """Return a reader of the files of a view."""
        files = view.files.access
        assert isinstance(files, TableFiles)
        stored = view.files.version.files.values()
        table = table_definition(files, view.context.schema, stored)
        return cls(
            site=TableSite.of(table, storage_options),
            table=table,
            version=view.version,
            columns=columns,
            filter=filter,
            moment_ms=moment_ms,
        )

    def read(self, piece: FilePiece) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a piece that the filter chooses."""
        files = worker_files(self.site, self.table)
        facts = VersionFacts(
            operation=Operation.APPEND, timestamp_ms=0, schema_id=self.table.schema_id, spec_id=0
        )
        some = Version(
            number=self.version,
            parent=None,
            facts=facts,
            files={file.path: file for file in piece.files},
        )
        access = _FilesAndLog(files, piece.hidden) if piece.hidden else files
        context = files.context(self.table.schema_id)
        view = TableView((), FileSet(some, access, files.partitions), context)
        if self.moment_ms is not None:
            view = view.as_of(self.moment_ms)
        request = ScanRequest(filter=self.filter, columns=list(self.columns))
        try:
            yield from Scan(view, request, sequence=None).to_batches()
        finally:
            files.close()


class _FilesAndLog:
    """Files of a table without the rows that a log has newer ones for."""

    def __init__(self, files: TableFiles, hidden: Mapping[str, bytes]) -> None:
        self._files = files
        self._hidden = {path: decode_vector(each) for path, each in hidden.items()}

    def reader(self, file: DataFile) -> DataFileReader:
        return self._files.reader(file)

    def marked(self, file: DataFile) -> BitMap64 | None:
        newer = self._hidden.get(file.path)
        marked = self._files.marked(file)
        return marked if newer is None else newer | (marked or BitMap64())

    def keep_mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        newer = self._hidden.get(file.path)
        kept = self._files.keep_mask(file)
        if newer is None:
            return kept
        kept = np.ones(file.row_count, np.bool_) if kept is None else kept.copy()
        kept[positions_in(newer)] = False
        return kept
