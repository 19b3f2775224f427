"""PlansAtWork: what running plans will replace, so that no other plan gets in their way.

C1  A file is the input of one plan at a time.
C2  Two plans at a time write to one level and partition only where their keys are apart: otherwise
    their outputs could overlap, although their inputs do not.

Of plans that were made elsewhere only the input files are known. Each such plan writes to the level
of its lowest inputs, or from there one level down (full plans aside); so it is taken for writing to
both, between the smallest and the largest key of all busy files there.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from neve.compaction.partition_levels import (
    KeySpan,
    PartitionLevels,
    span_of,
    spans_overlap,
)
from neve.model.data_file import DataFile
from neve.model.partitions import PartitionId


class PlansAtWork:
    """Files and key spans that are taken."""

    __slots__ = ("_busy_spans", "_paths", "_spans")

    def __init__(self, partitions: Iterable[PartitionLevels], busy: frozenset[str]) -> None:
        self._paths = set(busy)
        self._spans: defaultdict[tuple[PartitionId, int], list[KeySpan]] = defaultdict(list)
        self._busy_spans: dict[tuple[PartitionId, int], KeySpan] = {}
        if not busy:
            return
        for partition in partitions:
            for number in partition.level_numbers():
                taken = [file for file in partition.files(number) if file.path in busy]
                if taken:
                    self._busy_spans[partition.identity, number] = span_of(taken)

    def is_free(self, file: DataFile) -> bool:
        """Whether no plan takes a file."""
        return file.path not in self._paths

    def free(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return those of some files that no plan takes."""
        return [file for file in files if self.is_free(file)]

    def admits(self, partition: PartitionLevels, inputs: Sequence[DataFile], target: int) -> bool:
        """Whether a plan of these inputs would keep C1 and C2."""
        if not all(map(self.is_free, inputs)):
            return False
        if target == 0:
            return True
        span = span_of(inputs)
        busy = [
            self._busy_spans[partition.identity, level]
            for level in (target - 1, target)
            if (partition.identity, level) in self._busy_spans
        ]
        if busy and spans_overlap(span, (min(low for low, _ in busy), max(hi for _, hi in busy))):
            return False
        return not any(
            spans_overlap(span, other) for other in self._spans[partition.identity, target]
        )

    def add(self, partition: PartitionLevels, inputs: Sequence[DataFile], target: int) -> None:
        """Note a plan that was made."""
        self._paths.update(file.path for file in inputs)
        self._spans[partition.identity, target].append(span_of(inputs))
