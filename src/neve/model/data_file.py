"""The facts kept about one data file; the bytes live in storage.

Planning reads only these, never the file. Bounds of a column are in Iceberg's single-value form and
may be wider than the values, never narrower.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import reduce
from heapq import heappop, heappush
from typing import Final

_SEGMENTS_MAX: Final = 8
"""References to logs that a file or a Version keeps separately, which bounds their size."""


class FileFormat(IntEnum):
    """How a data file is tuned; on disk: never change."""

    COLUMNAR = 0
    DUAL = 1
    REMEMBERED = 2
    """Not rows: deleted keys, see `neve.sstable.remembered_deletes`."""


ROW_FORMATS: Final = (FileFormat.COLUMNAR, FileFormat.DUAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRef:
    """The place of a data file's deletion vector, and how many rows it marks."""

    path: str
    offset: int
    length: int
    cardinality: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """What is known about one column of one file."""

    field_id: int
    compressed_bytes: int
    value_count: int
    """Rows, nulls included."""
    null_count: int
    nan_count: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionValue:
    """One value of a partition tuple, by its partition field."""

    field_id: int
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSegmentRef:
    """A stretch of the log that rows came from; the log itself may be gone by now.

    It begins in the log of this number and ends with `last_frame`, in that log or a later one.
    """

    log_number: int
    file_id: str
    """Path of that log, relative to the table's directory."""
    first_frame: int
    """Sequence number of its first row."""
    last_frame: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One data file of a Version: sorted by key, one row per key."""

    path: str
    file_bytes: int
    row_count: int
    level: int
    key_min: bytes
    key_max: bytes
    sequence_min: int = 0
    sequence_max: int = 0
    """Of rows that a flush wrote; 0 for files of jobs and compactions."""
    format: FileFormat = FileFormat.COLUMNAR
    vector: VectorRef | None = None
    first_row_id: int | None = None
    data_sequence: int = 0
    """Number of the Version that committed its new rows, which is Iceberg's data sequence number;
    a rollback that restores the file keeps it. 0: it was not stored."""
    footer_crc: int = 0
    spec_id: int = 0
    partition: tuple[PartitionValue, ...] = ()
    schema_id: int = 0
    statistics: tuple[ColumnStatistics, ...] = ()
    commit_ms_min: int = 0
    commit_ms_max: int = 0
    """When the Versions that added its rows were committed; 0 when unknown."""
    wal_segments: tuple[WalSegmentRef, ...] = ()
    """Covers the log records of its rows, like bounds; empty when no row came from the log."""
    unread: bytes = b""
    """Facts that a newer neve stored, as they were read: kept, and stored again."""

    @property
    def deleted_count(self) -> int:
        """Rows that the vector marks."""
        return 0 if self.vector is None else self.vector.cardinality

    @property
    def live_count(self) -> int:
        """Rows that readers see."""
        return self.row_count - self.deleted_count

    def with_vector(self, vector: VectorRef) -> "DataFile":
        """Return the same file with another vector."""
        return replace(self, vector=vector)


def joined_segments(segments: Iterable[WalSegmentRef]) -> tuple[WalSegmentRef, ...]:
    """Unite stretches of the log: one for each log, and a single one for all but the newest."""
    by_log: dict[int, WalSegmentRef] = {}
    for segment in segments:
        known = by_log.get(segment.log_number)
        by_log[segment.log_number] = segment if known is None else _spanning(known, segment)
    apart = [by_log[number] for number in sorted(by_log)]
    if len(apart) <= _SEGMENTS_MAX:
        return tuple(apart)
    oldest = len(apart) - _SEGMENTS_MAX + 1
    return (reduce(_spanning, apart[:oldest]), *apart[oldest:])


def _spanning(first: WalSegmentRef, second: WalSegmentRef) -> WalSegmentRef:
    """Return the stretch that begins in the first one's log and covers both."""
    return replace(
        first,
        first_frame=min(first.first_frame, second.first_frame),
        last_frame=max(first.last_frame, second.last_frame),
    )


def with_origin_of(files: Iterable[DataFile], inputs: Iterable[DataFile]) -> tuple[DataFile, ...]:
    """Return files that hold rows of `inputs`, with the origins of the inputs' rows."""
    sources = tuple(inputs)
    is_known = all(source.commit_ms_max for source in sources)
    earliest = min((source.commit_ms_min for source in sources), default=0) if is_known else 0
    latest = max((source.commit_ms_max for source in sources), default=0) if is_known else 0
    segments = joined_segments(each for source in sources for each in source.wal_segments)
    return tuple(
        replace(file, commit_ms_min=earliest, commit_ms_max=latest, wal_segments=segments)
        for file in files
    )


def disjoint_runs(files: Iterable[DataFile]) -> tuple[tuple[DataFile, ...], ...]:
    """Arrange files in as few sequences as possible; within one, keys never overlap."""
    runs: list[list[DataFile]] = []
    # Extend the run that ended first; start a new one only when that run has not ended yet.
    ends: list[tuple[bytes, int]] = []
    for file in sorted(files, key=lambda file: (file.key_min, file.key_max, file.path)):
        if ends and ends[0][0] < file.key_min:
            _, number = heappop(ends)
        else:
            number = len(runs)
            runs.append([])
        runs[number].append(file)
        heappush(ends, (file.key_max, number))
    return tuple(map(tuple, runs))
