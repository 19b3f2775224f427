"""Random tables under the policy: plans are applied until none is needed, and nothing is lost.

A table is a set of files that hold numbers as keys; a rewrite is what the plan promises: the live
keys of the inputs in order, cut where a file is full. The rules of published Versions are the real
ones.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from neve.compaction.plan import CompactionPlan, CompactionReason, LevelOptions
from neve.compaction.policy import full_plan, is_garbage, partitions_of, pick, pick_all
from neve.manifest.invariants import check_version
from neve.model.data_file import DataFile, disjoint_runs
from neve.model.version import Version
from tests.unit.compaction.builders import data_file, vector_of, version_of

ROW_BYTES = 10
KEYS = 60
STEPS_MAX = 2_000


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


@dataclass(slots=True)
class ModelTable:
    """Files with the keys they hold, and which of them are live."""

    files: dict[str, DataFile] = field(default_factory=dict)
    live: dict[str, list[int]] = field(default_factory=dict)
    names: int = 0

    def add(
        self,
        numbers: Sequence[int],
        *,
        level: int,
        partition: int,
        marked: frozenset[int] = frozenset(),
    ) -> None:
        """Add a file with these keys; rows of marked ones are not live."""
        self.names += 1
        name = f"f{self.names}"
        file = data_file(
            name,
            keys=(key(numbers[0]), key(numbers[-1])),
            level=level,
            file_bytes=ROW_BYTES * len(numbers),
            rows=len(numbers),
            partition=partition,
        )
        self.live[file.path] = [number for number in numbers if number not in marked]
        dead_count = len(numbers) - len(self.live[file.path])
        if dead_count:
            file = replace(file, vector=vector_of(name, dead_count))
        self.files[file.path] = file

    def version(self) -> Version:
        return version_of(self.files.values())

    def apply(self, plan: CompactionPlan) -> None:
        numbers = sorted(number for path in plan.paths for number in self.live[path])
        for path in plan.paths:
            del self.files[path]
            del self.live[path]
        assert plan.partition[0].value is not None
        partition = plan.partition[0].value[0]
        rows_max = max(1, plan.file_bytes // ROW_BYTES)
        for start in range(0, len(numbers), rows_max):
            self.add(
                numbers[start : start + rows_max], level=plan.target_level, partition=partition
            )
        check_version(self.version())

    def rows(self) -> Counter[tuple[object, int]]:
        return Counter(
            (self.files[path].partition, number)
            for path, numbers in self.live.items()
            for number in numbers
        )

    def copy(self) -> "ModelTable":
        return ModelTable(dict(self.files), dict(self.live), self.names)


@st.composite
def tables(draw: st.DrawFn) -> ModelTable:
    table = ModelTable()
    for partition in range(draw(st.integers(1, 2))):
        # Each key is live in one file at most: commits are clean.
        seen: set[int] = set(draw(st.sets(st.integers(0, KEYS), max_size=5)))

        def add(numbers: Sequence[int], level: int, partition: int, seen: set[int]) -> None:
            table.add(numbers, level=level, partition=partition, marked=frozenset(seen))
            seen.update(numbers)

        for _ in range(draw(st.integers(0, 9))):
            numbers = draw(st.sets(st.integers(0, KEYS), min_size=1, max_size=20))
            add(sorted(numbers), 0, partition, seen)
        for level in range(1, draw(st.integers(1, 4))):
            rest = sorted(draw(st.sets(st.integers(0, KEYS), max_size=40)))
            while rest:
                count = draw(st.integers(1, 12))
                add(rest[:count], level, partition, seen)
                rest = rest[count:]
    return table


@st.composite
def level_options(draw: st.DrawFn) -> LevelOptions:
    levels_max = draw(st.integers(2, 5))
    return LevelOptions(
        level0_files=draw(st.integers(1, 5)),
        level1_bytes=draw(st.integers(1, 30)) * ROW_BYTES,
        level_ratio=draw(st.integers(2, 4)),
        file_bytes=draw(st.integers(1, 16)) * ROW_BYTES,
        garbage_ratio=draw(st.sampled_from([0.1, 0.3, 1.0])),
        job_bytes_max=draw(st.sampled_from([1, 20, 80, 10_000])) * ROW_BYTES,
        dual_levels=draw(st.integers(0, levels_max)),
        levels_max=levels_max,
    )


def within_budget(plan: CompactionPlan, options: LevelOptions) -> bool:
    """Whether a plan is within the budget, or its only upper file is what takes it beyond."""
    upper = [file for file in plan.inputs if file.level < plan.target_level]
    return plan.input_bytes <= options.job_bytes_max or len(upper) <= 1


def keys_apart(plan: CompactionPlan, version: Version) -> bool:
    """Whether no other file of the target level lies between the inputs' keys (COMPACTION-1)."""
    return plan.target_level == 0 or not any(
        file.key_min <= plan.key_max and plan.key_min <= file.key_max
        for path, file in version.files.items()
        if path not in plan.paths
        and file.level == plan.target_level
        and (file.spec_id, file.partition) == (plan.spec_id, plan.partition)
    )


@given(tables(), level_options())
def test_picking_and_applying_ends_and_keeps_every_live_row(
    table: ModelTable, options: LevelOptions
) -> None:
    rows = table.rows()
    steps = 0
    while (plan := pick(table.version(), options)) is not None:
        steps += 1
        assert steps < STEPS_MAX, f"no end in sight: {plan.reason}"
        assert within_budget(plan, options)
        assert keys_apart(plan, table.version())
        table.apply(plan)
        assert table.rows() == rows

    for partition in partitions_of(table.version()):
        assert len(partition.files(0)) < options.level0_files
        for number in partition.level_numbers():
            limit = options.bytes_max(number) if number else None
            assert limit is None or sum(f.file_bytes for f in partition.files(number)) <= limit
    assert not any(is_garbage(file, options) for file in table.files.values())


@given(tables(), level_options(), st.randoms(use_true_random=False))
def test_plans_side_by_side_may_be_committed_in_any_order(
    table: ModelTable, options: LevelOptions, rng: Random
) -> None:
    rows = table.rows()
    plans = pick_all(table.version(), options)
    assert next(iter(plans), None) == pick(table.version(), options)

    rng.shuffle(plans)
    for plan in plans:
        assert plan.paths <= set(table.files), "a file is the input of one plan only"
        table.apply(plan)

    assert table.rows() == rows


@given(tables(), level_options())
def test_a_plan_made_beside_running_ones_keeps_out_of_their_way(
    table: ModelTable, options: LevelOptions
) -> None:
    version = table.version()
    running: list[CompactionPlan] = []
    busy: frozenset[str] = frozenset()
    while (plan := pick(version, options, busy)) is not None:
        assert not plan.paths & busy
        running.append(plan)
        busy |= plan.paths

    for order in (running, running[::-1]):
        other = table.copy()
        for plan in order:
            other.apply(plan)


@given(tables(), level_options())
def test_a_plan_is_the_same_each_time(table: ModelTable, options: LevelOptions) -> None:
    assert pick_all(table.version(), options) == pick_all(table.version(), options)


@given(tables(), level_options(), st.randoms(use_true_random=False))
def test_full_plans_rewrite_each_file_once_into_one_level(
    table: ModelTable, options: LevelOptions, rng: Random
) -> None:
    rows = table.rows()
    plans = full_plan(table.version(), options)
    inputs = Counter(path for plan in plans for path in plan.paths)
    assert inputs == Counter(dict.fromkeys(table.files, 1))

    rng.shuffle(plans)
    for plan in plans:
        table.apply(plan)

    assert table.rows() == rows
    for partition in partitions_of(table.version()):
        assert len(partition.level_numbers()) == 1
    reasons = {plan.reason for plan in pick_all(table.version(), options)}
    assert reasons <= {CompactionReason.SMALL}


@given(tables())
def test_runs_hold_every_file_once_and_are_as_few_as_can_be(table: ModelTable) -> None:
    files = list(table.files.values())
    runs = disjoint_runs(files)

    assert Counter(file.path for run in runs for file in run) == Counter(f.path for f in files)
    for run in runs:
        assert all(left.key_max < right.key_min for left, right in pairwise(run))
    assert len(runs) == _most_at_one_key(files)


def _most_at_one_key(files: Iterable[DataFile]) -> int:
    known = list(files)
    return max(
        (sum(f.key_min <= file.key_min <= f.key_max for f in known) for file in known), default=0
    )
