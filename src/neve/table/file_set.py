"""FileSet: the data files of one Version, arranged for finding rows by key.

Levels 1 and up hold each key in at most one file per partition, so one bisection finds it. Files of
level 0 may overlap and are tried newest first. Since commits are clean, at most one file of the
whole set holds a live row of a key: the first hit ends the search.

    level 0      [a ......... q]      [c ..... z]      every file whose bounds hold the key
    level 1      [a .. d][e ... k][m ...... z]         one file per partition

Files are kept on shelves. Where the key determines the partition, each partition has its own shelf
and a search looks at one of them. All other files share a shelf.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Final, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from neve.kernel import is_compiled
from neve.keys.columns import KeyArray
from neve.model.arrow_buffers import Positions
from neve.model.data_file import DataFile, PartitionValue, disjoint_runs
from neve.model.version import Version
from neve.sstable.data_file_reader import DataFileReader
from neve.table.partitions import KeyPartitions, PartitionedKeys, Place

FindRow: TypeAlias = Callable[[bytes, int], dict[str, object] | None]
PartitionNumbers: TypeAlias = dict[tuple[int, tuple[PartitionValue, ...]], int]
_partition_numbers: Final = count()


class FileAccess(Protocol):
    """Opens data files and reads their vectors; a file stays open while it is used."""

    def reader(self, file: DataFile) -> DataFileReader:
        """Open a data file, or return the one that is open."""

    def marked(self, file: DataFile) -> BitMap64 | None:
        """Positions that the file's vector marks; None without one."""

    def keep_mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """One flag per row, false for those the vector marks; None when no row is marked."""


class FileProbe:
    """One data file as point lookups see it; opened when first asked."""

    __slots__ = (
        "_access",
        "_marked",
        "_reader",
        "file",
        "find_row",
        "key_max",
        "key_min",
        "partition",
        "schema_id",
    )

    def __init__(self, file: DataFile, access: FileAccess, *, partition: int) -> None:
        self.file = file
        self.partition = partition
        """A number for spec and partition of the file."""
        self.key_min = file.key_min
        self.key_max = file.key_max
        self.schema_id = file.schema_id
        self._access = access
        self._reader: DataFileReader | None = None
        self._marked: BitMap64 | None = None
        self.find_row: FindRow = self._find_first_row
        """Returns the file's live row of a key and its hash, in the file's own schema, or None."""

    @property
    def is_open(self) -> bool:
        """Whether the file was opened through this."""
        return self._reader is not None

    @property
    def reader(self) -> DataFileReader:
        """The open file."""
        reader = self._reader
        return self._open() if reader is None else reader

    def _open(self) -> DataFileReader:
        reader = self._access.reader(self.file)
        self._marked = self._access.marked(self.file)
        # Last: a thread that sees it sees the other.
        self._reader = reader
        return reader

    def _find_first_row(self, key: bytes, key_hash: int) -> dict[str, object] | None:
        """Open the file, and find rows in one step from now on."""
        self.find_row = _row_finder(self.reader, self._marked)
        return self.find_row(key, key_hash)


def _row_finder(reader: DataFileReader, marked: BitMap64 | None) -> FindRow:
    if is_compiled:
        compiled = reader.compiled_rows(marked)
        if compiled is not None:
            return compiled.find_row
    return row_finder_in_python(reader, marked)


def row_finder_in_python(reader: DataFileReader, marked: BitMap64 | None) -> FindRow:
    """Return the function that finds the live row of a key and its word in a file, or None."""
    find, row = reader.finder(), reader.row

    def find_row(key: bytes, key_hash: int) -> dict[str, object] | None:
        position = find(key, key_hash)
        if position < 0 or (marked is not None and position in marked):
            return None
        return row(position)

    return find_row


Hit: TypeAlias = tuple[FileProbe, dict[str, object]]
"""A row, and the file it is in."""


class _Run:
    """Disjoint files of one level and partition, ascending by key."""

    __slots__ = ("key_maxes", "probes")

    def __init__(self, probes: Iterable[FileProbe]) -> None:
        self.probes = sorted(probes, key=lambda probe: probe.key_min)
        self.key_maxes = [probe.key_max for probe in self.probes]


class _Shelf:
    """Files that are searched together."""

    __slots__ = ("_runs", "_young")

    def __init__(self, by_level: Iterable[tuple[int, Sequence[FileProbe]]]) -> None:
        """Take files grouped by level and partition."""
        runs = sorted(by_level, key=lambda run: run[0])
        # Newest first: the latest writes are read most.
        self._young = [probe for level, each in runs if level == 0 for probe in each][::-1]
        self._runs = [_Run(each) for level, each in runs if level > 0]

    def find_row(self, key: bytes, key_hash: int) -> Hit | None:
        """Return the live row of a key with the file it is in; None without one."""
        for probe in self._young:
            if probe.key_min <= key <= probe.key_max:
                row = probe.find_row(key, key_hash)
                if row is not None:
                    return probe, row
        for run in self._runs:
            place = bisect_left(run.key_maxes, key)
            if place < len(run.key_maxes):
                probe = run.probes[place]
                if probe.key_min <= key:
                    row = probe.find_row(key, key_hash)
                    if row is not None:
                        return probe, row
        return None


class FileSet:
    """The files of one Version; safe for many threads."""

    def __init__(
        self,
        version: Version,
        access: FileAccess,
        partitions: KeyPartitions,
        *,
        before: "FileSet | None" = None,
    ) -> None:
        """Arrange the files; probes of files that are unchanged since `before` are reused."""
        self.version = version
        self.access = access
        self._partitions = partitions
        self.numbers: PartitionNumbers = {} if before is None else before.numbers
        known = {} if before is None else before.by_path
        self.by_path: dict[str, FileProbe] = {}
        by_run: defaultdict[tuple[int, int], list[FileProbe]] = defaultdict(list)
        for path, file in version.files.items():
            probe = known.get(path)
            if probe is None or probe.file is not file:
                probe = FileProbe(file, access, partition=self._number_of(file))
            self.by_path[path] = probe
            by_run[file.level, probe.partition].append(probe)
        self._level0_count = max(
            (_young_count(each) for (level, _), each in by_run.items() if level == 0), default=0
        )
        self._shared, self._shelves = _shelves(by_run, partitions)
        self.find_row: Callable[[bytes, int], Hit | None] = (
            self._find_on_shelf if self._shelves else self._shared.find_row
        )
        """Returns the live row of a key with the file it is in; None without one."""

    def moved_to(self, version: Version) -> "FileSet":
        """Return the files of another Version; files that both have stay open."""
        return FileSet(version, self.access, self._partitions, before=self)

    @cached_property
    def dictionary_columns(self) -> frozenset[str]:
        """Columns of text that the largest file stores as dictionaries, by their names there."""
        largest = max(self.by_path.values(), key=lambda each: each.file.row_count, default=None)
        return frozenset() if largest is None else largest.reader.dictionary_columns

    @property
    def level0_count(self) -> int:
        """Files of level 0 in the partition with the most; those of jobs count by overlaps."""
        return self._level0_count

    def _number_of(self, file: DataFile) -> int:
        """Return the number of a partition, which compares faster than its values."""
        # Two threads may draw a number at once: the numbers differ, and the first one stays.
        return self.numbers.setdefault((file.spec_id, file.partition), next(_partition_numbers))

    def _find_on_shelf(self, key: bytes, key_hash: int) -> Hit | None:
        for spec_id, shelves in self._shelves.items():
            place = self._partitions.place_of_key(spec_id, key)
            shelf = None if place is None else shelves.get(place)
            hit = None if shelf is None else shelf.find_row(key, key_hash)
            if hit is not None:
                return hit
        return self._shared.find_row(key, key_hash)

    @property
    def is_divided(self) -> bool:
        """Whether a key is searched only in the files of its own partition."""
        return bool(self._shelves)

    def searches(
        self, keys: KeyArray, *, bounds: tuple[bytes, bytes] | None = None
    ) -> Iterator[tuple[FileProbe, Positions | None]]:
        """Yield every file that may hold some of the keys, and which of them; None for all.

        `bounds` are the lowest and the highest key, where they are known.
        """
        if not len(keys):
            return
        by_partition = PartitionedKeys(keys, self._partitions) if self._shelves else None
        if bounds is None:
            found = cast("dict[str, bytes]", pc.min_max(keys.cast(pa.large_binary())).as_py())
            bounds = found["min"], found["max"]
        key_min, key_max = bounds
        for probe in self.by_path.values():
            if probe.key_min > key_max or key_min > probe.key_max:
                continue
            wanted = None if by_partition is None else by_partition.positions_for(probe.file)
            if wanted is None or len(wanted):
                yield probe, wanted


def _shelves(
    by_run: Mapping[tuple[int, int], Sequence[FileProbe]], partitions: KeyPartitions
) -> tuple[_Shelf, dict[int, dict[Place, _Shelf]]]:
    """Return the shelf of the files that may hold any key, and the others by spec and partition.

    The files are ordered by level and number of their partition.
    """
    places: dict[int, Place | None] = {}
    shared: list[tuple[int, Sequence[FileProbe]]] = []
    by_place: defaultdict[tuple[int, Place], list[tuple[int, Sequence[FileProbe]]]]
    by_place = defaultdict(list)
    for (level, number), probes in by_run.items():
        file = probes[0].file
        if number not in places:
            places[number] = partitions.place_of_file(file)
        place = places[number]
        if place is None:
            shared.append((level, probes))
        else:
            by_place[file.spec_id, place].append((level, probes))
    shelves: dict[int, dict[Place, _Shelf]] = {}
    for (spec_id, place), runs in by_place.items():
        shelves.setdefault(spec_id, {})[place] = _Shelf(runs)
    return _Shelf(shared), shelves


def _young_count(probes: Sequence[FileProbe]) -> int:
    """Count files of level 0: each flush, and the largest number of job files that overlap.

    A job writes one file per task, each with its own keys: a search for a key opens one of them.
    """
    jobs = [probe.file for probe in probes if not probe.file.sequence_max]
    return len(probes) - len(jobs) + len(disjoint_runs(jobs))
