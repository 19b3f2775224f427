"""FileOrder: the files of levels from 1 on, by partition and level, each in the order of its keys.

    place (level, spec id, partition)     (key_min, path), ascending
    ─────────────────────────────────     ─────────────────────────────────
    1, 0, ()                              (a, f1)  (g, f7)  (q, f3)
    2, 0, ()                              (a, f2)  (m, f5)

Files of one place do not overlap, so whether a file fits is told by its two neighbours: a bisection
instead of a look at every file. An order is a value; the one after a change shares the places that
the change does not touch.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from neve.model.data_file import DataFile, PartitionValue

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
        """Return the order after a change; the cost follows the change and what it touches."""
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
        """Paths right before and right behind where a file is, or would be, in its place."""
        row = self._rows.get(_place_of(file), [])
        at = bisect_left(row, (file.key_min, file.path))
        if at > 0:
            yield row[at - 1][1]
        behind = at + 1 if at < len(row) and row[at][1] == file.path else at
        if behind < len(row):
            yield row[behind][1]

    def adjacent(self) -> Iterator[tuple[str, str]]:
        """Paths of every two files that follow each other in one place."""
        for row in self._rows.values():
            for (_, left), (_, right) in pairwise(row):
                yield left, right


def _place_of(file: DataFile) -> Place:
    return file.level, file.spec_id, file.partition
