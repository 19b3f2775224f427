"""The compaction policy: pure functions from a Version to plans.

Needs are met in this order, the most urgent of each kind first:

1. Level 0 of a partition has `level0_files` files, or a level from 1 on exceeds its bytes. Both
   have one score, value by limit, so that neither starves the other.
   - Level 0: the oldest files that fit in the byte budget, and all files of level 1 that they
     touch. Where untouched files of level 1 lie between them, only the part around the oldest is
     taken: rewriting the files between would gain nothing.
   - A large level: the file with the fewest bytes below it, and the files that it touches there.
2. A file has more marked rows than `garbage_ratio`: it is rewritten in its level.
3. Small files are neighbours in a level: they are joined to one that is no larger than the limit.
   Together the others are at least half as large as the largest one, so a row is rewritten only a
   logarithmic number of times however small the files are.

Each plan moves bytes down, removes marked rows, or leaves fewer files in a level: so picking and
applying ends.

PartitionLevels holds the files of one partition by level, searchable by key:

    level 0     in commit order; keys overlap
    level 1…    by key; disjoint (MANIFEST-V1), so that the files a key range touches are neighbours

Partitions of different specs are different partitions: their keys may repeat, and their files are
never mixed. A file written before a partition column was widened stores the partition in other
bytes, and Versions separate files by bytes. Where such a file overlaps others of its level, it is
planned as if it were in level 0.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from typing import Final, TypeAlias

from neve.compaction.plan import CompactionPlan, CompactionReason, LevelOptions
from neve.model.data_file import DataFile, FileFormat, disjoint_runs
from neve.model.partition_spec import PartitionId, PartitionIdentity
from neve.model.version import Version

KeySpan: TypeAlias = tuple[bytes, bytes]
"""First and last key, both inclusive."""


class SortedLevel:
    """Files of one level from 1 on, by key."""

    __slots__ = ("_ends", "_starts", "_sums", "files")

    def __init__(self, files: Iterable[DataFile]) -> None:
        self.files: tuple[DataFile, ...] = tuple(sorted(files, key=lambda file: file.key_min))
        self._starts = [file.key_min for file in self.files]
        self._ends = [file.key_max for file in self.files]
        self._sums = [0, *accumulate(file.file_bytes for file in self.files)]

    def touched_by(self, span: KeySpan) -> range:
        """Return the indexes of the files that hold keys of a span."""
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
        """Add a file; call `level` only after the last one."""
        self._by_level.setdefault(file.level, []).append(file)

    def part_overlapping(self) -> None:
        """Move files that overlap others in a level from 1 on to level 0; call after all `add`s."""
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
                is_after = end is None or end < file.key_min
                if is_after and not others.touched_by((file.key_min, file.key_max)):
                    end = file.key_max
                else:
                    gone.add(file.path)
            parted += [file for file in files if file.path in gone]
            self._by_level[number] = [file for file in files if file.path not in gone]
        if parted:
            self._by_level[0] = [*parted, *self._by_level.get(0, ())]

    def files(self, level: int) -> Sequence[DataFile]:
        """Files of a level, in commit order."""
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

    Without an `identity`, their stored bytes distinguish them.
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
    """Return the smallest span that holds all keys of one or more files."""
    known = list(files)
    return min(file.key_min for file in known), max(file.key_max for file in known)


def spans_overlap(left: KeySpan, right: KeySpan) -> bool:
    """Whether some key could be in both."""
    return left[0] <= right[1] and right[0] <= left[1]


class PlansAtWork:
    """What running plans will replace, so that no other plan conflicts with them.

    COMPACTION-6  A file is the input of one plan at a time.
    COMPACTION-7  Two plans write to one level and partition at a time only where their keys are
        apart: otherwise their outputs could overlap, although their inputs do not.

    For plans made elsewhere only the input files are known. Such a plan, unless it is a full one,
    writes to the level of its lowest inputs or one level below. So it counts as writing to both,
    between the smallest and the largest key of all busy files there.
    """

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
        """Whether no plan uses a file."""
        return file.path not in self._paths

    def free(self, files: Iterable[DataFile]) -> list[DataFile]:
        """Return the files that no plan uses."""
        return [file for file in files if self.is_free(file)]

    def admits(self, partition: PartitionLevels, inputs: Sequence[DataFile], target: int) -> bool:
        """Whether a plan with these inputs would satisfy COMPACTION-6 and COMPACTION-7."""
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
        """Record a plan."""
        self._paths.update(file.path for file in inputs)
        self._spans[partition.identity, target].append(span_of(inputs))


# Joined files stay below the size at which a writer begins the next file, because its measure of
# a file may differ: a join that results in as many files as before would be planned again.
_JOINED_SHARE: Final = 0.75
_JOINED_FILE_FACTOR: Final = 2
# For each run that a plan reads, one row group is in memory.
_MOVED_RUNS_MAX: Final = 16


def pick(
    version: Version,
    options: LevelOptions,
    busy: frozenset[str] = frozenset(),
    *,
    identity: PartitionIdentity | None = None,
) -> CompactionPlan | None:
    """Return the most urgent plan, or None; `busy` are paths that running plans rewrite."""
    return next(_Planner(version, options, busy, identity).plans(), None)


def pick_all(
    version: Version,
    options: LevelOptions,
    busy: frozenset[str] = frozenset(),
    *,
    identity: PartitionIdentity | None = None,
) -> list[CompactionPlan]:
    """Return plans that may run and commit side by side, in any order; most urgent first."""
    return list(_Planner(version, options, busy, identity).plans())


def full_plan(
    version: Version,
    options: LevelOptions,
    *,
    identity: PartitionIdentity | None = None,
    wanted: AbstractSet[str] | None = None,
) -> list[CompactionPlan]:
    """Return plans that rewrite every file, Columnar, into one level per partition.

    With `wanted`, return only plans that rewrite one of these paths. Files whose keys overlap are
    in one plan, however large; plans of one partition are apart. While they run, pick no other
    plans for this table.
    """
    plans: list[CompactionPlan] = []
    for partition in partitions_of(version, identity):
        files = list(partition.all_files())
        target = options.level_for(sum(map(_live_bytes, files)))
        plans.extend(
            CompactionPlan(
                base=version.number,
                inputs=tuple(inputs),
                target_level=target,
                format=FileFormat.COLUMNAR,
                reason=CompactionReason.FULL,
                file_bytes=options.file_bytes,
            )
            for inputs in _groups_apart(files, options.job_bytes_max)
            if wanted is None or any(file.path in wanted for file in inputs)
        )
    return plans


def move_plan(
    version: Version,
    options: LevelOptions,
    *,
    identity: PartitionIdentity | None = None,
    wanted: AbstractSet[str] | None = None,
) -> list[CompactionPlan]:
    """Return plans that move files of earlier partition specs to the current one, into level 0.

    With `wanted`, move only files of these paths. Each plan reads few runs, so that it holds few
    row groups in memory, and at most `job_bytes_max`. Outputs of several plans in one partition
    overlap; later plans merge them.
    """
    plans: list[CompactionPlan] = []
    room = runs_left = 0
    for partition in partitions_of(version, identity):
        if partition.identity[0] == version.facts.spec_id:
            continue
        files = [file for file in partition.all_files() if wanted is None or file.path in wanted]
        for inputs in _groups_apart(files, options.job_bytes_max):
            held, runs = sum(file.file_bytes for file in inputs), len(disjoint_runs(inputs))
            if not plans or held > room or runs > runs_left:
                plans.append(
                    CompactionPlan(
                        base=version.number,
                        inputs=(),
                        target_level=0,
                        format=FileFormat.COLUMNAR,
                        reason=CompactionReason.SPEC,
                        file_bytes=options.file_bytes,
                        moves_to=version.facts.spec_id,
                    )
                )
                room, runs_left = options.job_bytes_max, _MOVED_RUNS_MAX
            plans[-1] = replace(plans[-1], inputs=(*plans[-1].inputs, *inputs))
            room, runs_left = room - held, runs_left - runs
    return plans


def is_garbage(file: DataFile, options: LevelOptions) -> bool:
    """Whether a file has so many marked rows that it is rewritten."""
    return file.live_count == 0 or file.deleted_count > options.garbage_ratio * file.row_count


@dataclass(frozen=True, slots=True)
class _Need:
    """A level beyond its limit, and by how much."""

    score: float
    partition: PartitionLevels
    level: int


class _Planner:
    """Makes plans for one Version that do not conflict with each other."""

    def __init__(
        self,
        version: Version,
        options: LevelOptions,
        busy: frozenset[str],
        identity: PartitionIdentity | None,
    ) -> None:
        self._base = version.number
        self._options = options
        self._partitions = partitions_of(version, identity)
        self._at_work = PlansAtWork(self._partitions, busy)

    def plans(self) -> Iterator[CompactionPlan]:
        """Yield plans; none uses a file of an earlier one."""
        for need in sorted(self._needs(), key=lambda need: -need.score):
            if need.level == 0:
                yield from self._level0(need.partition)
            else:
                yield from self._too_large(need.partition, need.level)
        yield from self._garbage()
        for partition in self._partitions:
            for number in partition.level_numbers():
                if number > 0:
                    yield from self._small(partition, number)

    def _needs(self) -> Iterator[_Need]:
        for partition in self._partitions:
            for number in partition.level_numbers():
                free = self._at_work.free(partition.files(number))
                if number == 0:
                    if len(free) >= self._options.level0_files:
                        yield _Need(len(free) / self._options.level0_files, partition, 0)
                    continue
                limit = self._options.bytes_max(number)
                held = sum(file.file_bytes for file in free)
                if limit is not None and held > limit:
                    yield _Need(held / limit, partition, number)

    def _level0(self, partition: PartitionLevels) -> Iterator[CompactionPlan]:
        below = partition.level(1)
        while len(free := self._at_work.free(partition.files(0))) >= self._options.level0_files:
            # A file that touches busy files of level 1 waits; a younger one may be free.
            possible = (_around(seed, free, below, self._options) for seed in free)
            inputs = next((i for i in possible if self._at_work.admits(partition, i, 1)), None)
            if inputs is None:
                return
            yield self._made(partition, inputs, 1, CompactionReason.LEVEL0)

    def _too_large(self, partition: PartitionLevels, number: int) -> Iterator[CompactionPlan]:
        limit = self._options.bytes_max(number)
        assert limit is not None, "the last level is never too large"
        free = self._at_work.free(partition.files(number))
        below = partition.level(number + 1)
        held = sum(file.file_bytes for file in free)

        def cost(file: DataFile) -> tuple[bool, float, bytes]:
            beneath = below.bytes_touched_by((file.key_min, file.key_max))
            is_beyond = file.file_bytes + beneath > self._options.job_bytes_max
            return is_beyond, beneath / file.file_bytes, file.key_min

        for file in sorted(free, key=cost):
            if held <= limit:
                return
            inputs = [file, *below.files_touched_by((file.key_min, file.key_max))]
            if self._at_work.admits(partition, inputs, number + 1):
                held -= file.file_bytes
                yield self._made(partition, inputs, number + 1, CompactionReason.SIZE)

    def _garbage(self) -> Iterator[CompactionPlan]:
        found = [
            (file, number, partition)
            for partition in self._partitions
            for number in partition.level_numbers()
            for file in partition.files(number)
            if is_garbage(file, self._options)
        ]
        for file, number, partition in sorted(
            found, key=lambda each: each[0].live_count / each[0].row_count
        ):
            if self._at_work.admits(partition, [file], number):
                yield self._made(partition, [file], number, CompactionReason.GARBAGE)

    def _small(self, partition: PartitionLevels, number: int) -> Iterator[CompactionPlan]:
        files = partition.level(number).files
        at = 0
        while at < len(files):
            free = takewhile(self._at_work.is_free, (files[i] for i in range(at, len(files))))
            inputs = _joinable(free, self._options)
            if inputs and self._at_work.admits(partition, inputs, number):
                yield self._made(partition, inputs, number, CompactionReason.SMALL)
                at += len(inputs)
            else:
                at += 1

    def _made(
        self,
        partition: PartitionLevels,
        inputs: Sequence[DataFile],
        target: int,
        reason: CompactionReason,
    ) -> CompactionPlan:
        self._at_work.add(partition, inputs, target)
        factor = _JOINED_FILE_FACTOR if reason is CompactionReason.SMALL else 1
        return CompactionPlan(
            base=self._base,
            inputs=tuple(sorted(inputs, key=lambda file: (file.key_min, file.level, file.path))),
            target_level=target,
            format=self._options.format_of(target),
            reason=reason,
            file_bytes=self._options.file_bytes * factor,
        )


def _around(
    seed: DataFile, free: Sequence[DataFile], below: SortedLevel, options: LevelOptions
) -> list[DataFile]:
    """Return a file of level 0, others that fit in the budget, and all they touch in level 1."""
    chosen: list[DataFile] = []
    touched: set[int] = set()
    held = 0
    for file in (seed, *(file for file in free if file is not seed)):
        places = below.touched_by((file.key_min, file.key_max))
        more = set(places) - touched
        added = file.file_bytes + sum(below.files[place].file_bytes for place in more)
        if file is seed or held + added <= options.job_bytes_max:
            chosen.append(file)
            touched |= more
            held += added
    return _without_gaps(seed, chosen, touched, below)


def _without_gaps(
    seed: DataFile, chosen: Sequence[DataFile], touched: set[int], below: SortedLevel
) -> list[DataFile]:
    """Leave out files that a remaining file of level 1 separates from the seed."""
    low: bytes | None = None
    high: bytes | None = None
    for place in below.touched_by(span_of(chosen)):
        if place in touched:
            continue
        stays = below.files[place]
        if stays.key_max < seed.key_min:
            low = stays.key_max
        elif high is None:
            high = stays.key_min
    return [
        file
        for file in (*chosen, *(below.files[place] for place in sorted(touched)))
        if (low is None or low < file.key_min) and (high is None or file.key_max < high)
    ]


def _joinable(files: Iterable[DataFile], options: LevelOptions) -> list[DataFile]:
    """Return the first files of these neighbours that are worth joining; may be empty."""
    limit = min(int(_JOINED_SHARE * options.file_bytes), options.job_bytes_max)
    window: list[DataFile] = []
    total = largest = best = 0
    has_small = False
    for file in files:
        total += file.file_bytes
        if total > limit:
            break
        window.append(file)
        largest = max(largest, file.file_bytes)
        has_small = has_small or file.file_bytes < options.small_bytes
        if has_small and len(window) > 1 and 2 * (total - largest) >= largest:
            best = len(window)
    return window[:best]


def _groups_apart(files: Iterable[DataFile], budget: int) -> Iterator[list[DataFile]]:
    """Split files into groups whose keys are apart, each within the budget if possible."""
    groups: list[list[DataFile]] = []
    end: bytes | None = None
    for file in sorted(files, key=lambda file: (file.key_min, file.level, file.path)):
        if end is None or file.key_min > end:
            groups.append([])
            end = file.key_max
        groups[-1].append(file)
        end = max(end, file.key_max)
    joined: list[DataFile] = []
    held = 0
    for group in groups:
        more = sum(file.file_bytes for file in group)
        if joined and held + more > budget:
            yield joined
            joined, held = [], 0
        joined = [*joined, *group]
        held += more
    if joined:
        yield joined


def _live_bytes(file: DataFile) -> int:
    return file.file_bytes * file.live_count // file.row_count
