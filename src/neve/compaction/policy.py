"""Which files to rewrite next: pure functions from a Version to plans.

Needs are met in this order; within a kind the greatest first:

1. Level 0 of a partition has `level0_files` files, or a level from 1 on more bytes than it may
   hold. Both are one score, number by limit, so that neither starves the other.
   - Level 0: the files by age as far as the byte budget goes, and all of level 1 that they touch.
     Where files of level 1 that they do not touch lie between them, only the part around the oldest
     is taken: rewriting what lies between would gain nothing.
   - A large level: the file with the least bytes below it, and what it touches there.
2. A file has more marked rows than `garbage_ratio`: rewritten in its level.
3. Small files lie next to each other in a level: joined to one that is no larger than a file may
   be. The others are together at least half as large as the largest one, so a row is rewritten only
   a logarithmic number of times however small the files are that come.

Each plan moves bytes down, or removes marked rows, or leaves fewer files in a level: so picking
and applying ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

from neve.compaction.levels import LevelOptions
from neve.compaction.partition_levels import (
    PartitionLevels,
    SortedLevel,
    partitions_of,
    span_of,
)
from neve.compaction.plan import CompactionPlan, CompactionReason
from neve.compaction.policy import PlansAtWork
from neve.model.data_file import DataFile, FileFormat, disjoint_runs
from neve.model.partitions import PartitionIdentity
from neve.model.version import Version

# Joined files stay below the size at which a writer begins the next file, whose own measure of a
# file may differ from ours: a join that gave as many files as before would be planned again.
_JOINED_SHARE: Final = 0.75
_JOINED_FILE_FACTOR: Final = 2
# Of each run that a plan reads, a row group is in memory.
_MOVED_RUNS_MAX: Final = 16


def pick(
    version: Version,
    options: LevelOptions,
    busy: frozenset[str] = frozenset(),
    *,
    identity: PartitionIdentity | None = None,
) -> CompactionPlan | None:
    """Return the plan that is needed most, or None; `busy` are paths that running plans rewrite."""
    return next(_Planner(version, options, busy, identity).plans(), None)


def pick_all(
    version: Version,
    options: LevelOptions,
    busy: frozenset[str] = frozenset(),
    *,
    identity: PartitionIdentity | None = None,
) -> list[CompactionPlan]:
    """Return plans that may run and be committed side by side, in any order; most needed first."""
    return list(_Planner(version, options, busy, identity).plans())


def full_plan(
    version: Version,
    options: LevelOptions,
    *,
    identity: PartitionIdentity | None = None,
    wanted: AbstractSet[str] | None = None,
) -> list[CompactionPlan]:
    """Return plans that rewrite every file, Columnar, into one level per partition.

    With `wanted`, only plans that rewrite one of these paths. Files whose keys overlap are in one
    plan however large; plans of one partition are apart. While they run, nothing else may be picked
    for this table.
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
    """Return plans that move files of former partition specs to the current one, into level 0.

    With `wanted`, only files of these paths. Each plan reads few runs and no more bytes than a job
    may, so that it holds few row groups in memory; what several plans put into one partition
    overlaps, and is merged by the plans that come after.
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
    """Whether so many rows of a file are marked that it is rewritten."""
    return file.live_count == 0 or file.deleted_count > options.garbage_ratio * file.row_count


@dataclass(frozen=True, slots=True)
class _Need:
    """A level that asks for work, by how much it is beyond its limit."""

    score: float
    partition: PartitionLevels
    level: int


class _Planner:
    """Makes plans for one Version, one after another, that do not get in each other's way."""

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
        """Yield plan after plan; each one takes its files out of the game for the next."""
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
            # A file that touches busy files of level 1 waits; a younger one may not have to.
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
    """Leave out what is parted from the seed by a file of level 1 that stays."""
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
    """Return how many of these neighbours, from the first on, are worth joining; none: empty."""
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
    """Cut files into groups whose keys are apart, each within the budget where it can be."""
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
