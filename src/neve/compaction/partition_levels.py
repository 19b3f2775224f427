"""PartitionLevels: the files of one partition by level, searchable by key.

    level 0     in the order in which they were committed; keys overlap
    level 1…    by key; disjoint (MANIFEST-V1), so that the files a key range touches are neighbours

Partitions of different specs are different partitions: their keys may repeat, their files may not
be mixed.

A file that was written before a column of the partition was widened has the partition in other
bytes, and Versions keep files apart by bytes. Where such a one overlaps others of its level, it is
planned as if it were in level 0.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from neve.model.data_file import DataFile
from neve.model.partitions import PartitionId, PartitionIdentity
from neve.model.version import Version

KeySpan: TypeAlias = tuple[bytes, bytes]
"""First and last key, both inside."""


class SortedLevel:
    """Files of one level from 1 on, by key."""

    __slots__ = ("_ends", "_starts", "_sums", "files")

    def __init__(self, files: Iterable[DataFile]) -> None:
        self.files: tuple[DataFile, ...] = tuple(sorted(files, key=lambda file: file.key_min))
        self._starts = [file.key_min for file in self.files]
        self._ends = [file.key_max for file in self.files]
        self._sums = [0, *accumulate(file.file_bytes for file in self.files)]

    def touched_by(self, span: KeySpan) -> range:
        """Return the places of the files that hold keys of a span."""
        first = bisect_left(self._ends, span[0])
        return range(first, max(first, bisect_right(self._starts, span[1])))

    def files_touched_by(self, span: KeySpan) -> Sequence[DataFile]:
        """Return the files that hold keys of a span."""
        places = self.touched_by(span)
        return self.files[places.start : places.stop]

    def bytes_touched_by(self, span: KeySpan) -> int:
        """Bytes of the files that hold keys of a span."""
        places = self.touched_by(span)
        return self._sums[places.stop] - self._sums[places.start]


class PartitionLevels:
    """All files of one partition."""

    __slots__ = ("_by_level", "_sorted", "identity")

    def __init__(self, identity: PartitionId) -> None:
        self.identity = identity
        self._by_level: dict[int, list[DataFile]] = {}
        self._sorted: dict[int, SortedLevel] = {}

    def add(self, file: DataFile) -> None:
        """Take one more file in; not after a level was asked for."""
        self._by_level.setdefault(file.level, []).append(file)

    def part_overlapping(self) -> None:
        """Take files out of levels from 1 on that overlap others there; after all were added."""
        parted: list[DataFile] = []
        for number in self.level_numbers():
            files = self._by_level[number]
            older = [file for file in files if file.partition != self.identity[1]]
            if number == 0 or not older:
                continue
            others = SortedLevel(file for file in files if file.partition == self.identity[1])
            end: bytes | None = None
            gone: set[str] = set()
            for file in sorted(older, key=lambda file: file.key_min):
                is_behind = end is None or end < file.key_min
                if is_behind and not others.touched_by((file.key_min, file.key_max)):
                    end = file.key_max
                else:
                    gone.add(file.path)
            parted += [file for file in files if file.path in gone]
            self._by_level[number] = [file for file in files if file.path not in gone]
        if parted:
            self._by_level[0] = [*parted, *self._by_level.get(0, ())]

    def files(self, level: int) -> Sequence[DataFile]:
        """Files of a level, in the order in which they were committed."""
        return self._by_level.get(level, ())

    def all_files(self) -> Iterator[DataFile]:
        """Files of every level."""
        for level in sorted(self._by_level):
            yield from self._by_level[level]

    def level_numbers(self) -> list[int]:
        """Numbers of the levels that have files."""
        return sorted(self._by_level)

    def level(self, number: int) -> SortedLevel:
        """Return a level from 1 on, by key."""
        assert number > 0, "files of level 0 overlap"
        found = self._sorted.get(number)
        if found is None:
            found = self._sorted[number] = SortedLevel(self.files(number))
        return found


def partitions_of(
    version: Version, identity: PartitionIdentity | None = None
) -> list[PartitionLevels]:
    """Return the partitions of a Version, in the order of their first files.

    Without an `identity` they are distinguished by their stored bytes.
    """
    found: dict[PartitionId, PartitionLevels] = {}
    for file in version.files.values():
        place = (file.spec_id, file.partition) if identity is None else identity.of(file)
        partition = found.get(place)
        if partition is None:
            partition = found[place] = PartitionLevels(place)
        partition.add(file)
    for partition in found.values():
        partition.part_overlapping()
    return list(found.values())


def span_of(files: Iterable[DataFile]) -> KeySpan:
    """Return the smallest span that holds all keys of some files; at least one file."""
    known = list(files)
    return min(file.key_min for file in known), max(file.key_max for file in known)


def spans_overlap(left: KeySpan, right: KeySpan) -> bool:
    """Whether some key could be in both."""
    return left[0] <= right[1] and right[0] <= left[1]
