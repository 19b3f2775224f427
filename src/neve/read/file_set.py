"""FileSet: the data files of one Version, arranged for finding rows by key.

Levels 1 and up hold each key in at most one file per partition, so one bisection finds it. Files of
level 0 may overlap and are tried newest first. Since a commit is clean, at most one file of the
whole set holds a row of a key that no vector marks: the first hit ends the search.

    level 0      [a ......... q]      [c ..... z]      every file whose bounds hold the key
    level 1      [a .. d][e ... k][m ...... z]         one file per partition
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from neve.model.data_file import DataFile
from neve.model.key_range import KeyRange
from neve.model.version import Version
from neve.sstable.data_file_reader import DataFileReader


class FileAccess(Protocol):
    """Opens data files and reads their vectors; what is open stays open while it is used."""

    def reader(self, file: DataFile) -> DataFileReader:
        """Open a data file, or give the one that is open."""
        ...

    def marked(self, file: DataFile) -> BitMap64 | None:
        """Positions that the file's vector marks; None without one."""
        ...

    def keep_mask(self, file: DataFile) -> npt.NDArray[np.bool_] | None:
        """One flag per row, false for those the vector marks; None when no row is marked."""
        ...


class FileProbe:
    """One data file as point lookups see it; opened when first asked."""

    __slots__ = ("_access", "_find", "_marked", "_reader", "_row", "file", "key_max", "key_min")

    def __init__(self, file: DataFile, access: FileAccess) -> None:
        self.file = file
        self.key_min = file.key_min
        self.key_max = file.key_max
        self._access = access
        self._reader: DataFileReader | None = None
        self._marked: BitMap64 | None = None
        self._find: Callable[[bytes, int], int] | None = None
        self._row: Callable[[int], dict[str, object]] | None = None

    @property
    def reader(self) -> DataFileReader:
        """The open file."""
        reader = self._reader
        return self._open() if reader is None else reader

    def find_row(self, key: bytes, word: int) -> dict[str, object] | None:
        """Give the file's live row of a key, as a row of the file's own schema; None without."""
        find = self._find
        if find is None:
            find = self._open_finder()
        position = find(key, word)
        if position < 0:
            return None
        marked = self._marked
        if marked is not None and position in marked:
            return None
        row = self._row
        assert row is not None
        return row(position)

    def _open(self) -> DataFileReader:
        reader = self._access.reader(self.file)
        self._marked = self._access.marked(self.file)
        self._row = reader.row
        # Last: whoever sees it sees the others.
        self._reader = reader
        return reader

    def _open_finder(self) -> Callable[[bytes, int], int]:
        find = self.reader.finder()
        self._find = find
        return find


class _Run:
    """Disjoint files of one level and partition, ascending by key."""

    __slots__ = ("key_maxes", "probes")

    def __init__(self, probes: Iterable[FileProbe]) -> None:
        self.probes = sorted(probes, key=lambda probe: probe.key_min)
        self.key_maxes = [probe.key_max for probe in self.probes]


class FileSet:
    """The files of one Version; safe for many threads."""

    def __init__(
        self, version: Version, access: FileAccess, *, before: "FileSet | None" = None
    ) -> None:
        """Arrange the files; probes of files that are unchanged since `before` are taken over."""
        self.version = version
        self.access = access
        known = {} if before is None else before.by_path
        self.by_path: dict[str, FileProbe] = {}
        by_run: defaultdict[tuple[int, object, object], list[FileProbe]] = defaultdict(list)
        for path, file in version.files.items():
            probe = known.get(path)
            if probe is None or probe.file is not file:
                probe = FileProbe(file, access)
            self.by_path[path] = probe
            by_run[file.level, file.spec_id, file.partition].append(probe)
        self._level0_count = max(
            (len(each) for key, each in by_run.items() if not key[0]), default=0
        )
        # Newest first: what was written last is asked for most.
        self._young = [probe for key, probes in by_run.items() if key[0] == 0 for probe in probes][
            ::-1
        ]
        runs = sorted((key[0], place) for place, key in enumerate(by_run) if key[0] > 0)
        keys = list(by_run)
        self._runs = [_Run(by_run[keys[place]]) for _, place in runs]

    @property
    def level0_count(self) -> int:
        """Files of level 0 in the partition that has most of them."""
        return self._level0_count

    def find_row(self, key: bytes, word: int) -> tuple[FileProbe, dict[str, object]] | None:
        """Give the live row of a key with the file it is in; None without one."""
        for probe in self._young:
            if probe.key_min <= key <= probe.key_max:
                row = probe.find_row(key, word)
                if row is not None:
                    return probe, row
        for run in self._runs:
            place = bisect_left(run.key_maxes, key)
            if place < len(run.key_maxes):
                probe = run.probes[place]
                if probe.key_min <= key:
                    row = probe.find_row(key, word)
                    if row is not None:
                        return probe, row
        return None

    def probes(self, key_range: KeyRange | None = None) -> Iterator[FileProbe]:
        """Give every file whose keys may lie in a range, in the order in which they were added."""
        for probe in self.by_path.values():
            if key_range is None or _overlaps(probe.file, key_range):
                yield probe

    def overlapping(self, key_min: bytes, key_max: bytes) -> Iterator[FileProbe]:
        """Give every file whose bounds overlap those of some keys."""
        for probe in self.by_path.values():
            if probe.key_min <= key_max and key_min <= probe.key_max:
                yield probe


def _overlaps(file: DataFile, wanted: KeyRange) -> bool:
    if wanted.end is not None and file.key_min >= wanted.end:
        return False
    return wanted.start is None or file.key_max >= wanted.start
