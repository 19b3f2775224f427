"""Plans cut into tasks: all keys, each once, in tasks that are neither large nor small."""

from itertools import pairwise
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.compaction.plan import CompactionPlan, CompactionReason
from neve.compaction.rewrite_job import cut_plan, key_ranges
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile, FileFormat, VectorRef
from tests.unit.compaction.rewrite_bench import RewriteBench


def key(number: int) -> bytes:
    return number.to_bytes(4, "big")


class Inputs:
    """Files of numbered keys, and a count of how many keys were looked at."""

    def __init__(self, *numbers: range, row_bytes: int = 10, dead: int = 0) -> None:
        self.keys_looked_at = 0
        self.keys = {f"data/{place}": [key(n) for n in each] for place, each in enumerate(numbers)}
        self.files = tuple(
            DataFile(
                path=path,
                file_bytes=row_bytes * len(keys),
                row_count=len(keys),
                level=0,
                key_min=keys[0],
                key_max=keys[-1],
                vector=VectorRef(path="v", offset=0, length=1, cardinality=dead) if dead else None,
            )
            for path, keys in self.keys.items()
        )

    def keys_of(self, file: DataFile, positions: object) -> list[bytes]:
        assert isinstance(positions, list)
        self.keys_looked_at += len(positions)
        return [self.keys[file.path][position] for position in positions]

    def plan(self, file_bytes: int = 1_000) -> CompactionPlan:
        return CompactionPlan(
            base=1,
            inputs=self.files,
            target_level=1,
            format=FileFormat.COLUMNAR,
            reason=CompactionReason.FULL,
            file_bytes=file_bytes,
        )


def test_a_plan_of_few_rows_is_one_task_and_nothing_is_read_for_it() -> None:
    inputs = Inputs(range(100), range(50, 150))

    ranges = key_ranges(inputs.plan(), inputs.keys_of, task_rows=200)

    assert ranges == (KeyRange(),)
    assert inputs.keys_looked_at == 0


def test_tasks_of_a_large_plan_have_about_as_many_rows() -> None:
    inputs = Inputs(range(0, 30_000, 3), range(10_000), range(25_000, 30_000))

    ranges = key_ranges(inputs.plan(), inputs.keys_of, task_rows=5_000)

    counts = [
        sum(each.contains(found) for keys in inputs.keys.values() for found in keys)
        for each in ranges
    ]
    assert len(counts) == 5
    assert sum(counts) == 25_000
    assert max(counts) < 1.3 * 5_000
    assert inputs.keys_looked_at < 200


def test_no_plan_is_cut_so_far_that_its_files_become_small() -> None:
    inputs = Inputs(range(10_000), row_bytes=1)

    whole = key_ranges(inputs.plan(file_bytes=20_001), inputs.keys_of, task_rows=100)
    halves = key_ranges(inputs.plan(file_bytes=10_000), inputs.keys_of, task_rows=100)

    assert len(whole) == 1
    assert len(halves) == 2


def test_a_task_has_only_the_files_that_may_hold_its_keys() -> None:
    inputs = Inputs(*(range(start, start + 1_000) for start in range(0, 10_000, 1_000)))

    tasks = cut_plan(inputs.plan(), inputs.keys_of, plan_number=3, task_rows=1_000)

    assert len(tasks) == 10
    assert {task.plan_number for task in tasks} == {3}
    assert all(len(task.part.inputs) <= 2 for task in tasks)
    assert {file for task in tasks for file in task.part.inputs} == set(inputs.files)
    assert sum(task.row_share for task in tasks) == 10_000


def test_a_plan_without_live_rows_has_no_tasks() -> None:
    inputs = Inputs(range(10), dead=10)

    assert cut_plan(inputs.plan(), inputs.keys_of) == ()


@pytest.mark.parametrize("seed", range(3))
def test_the_rows_of_all_tasks_are_those_of_the_plan(seed: int) -> None:
    rng = Random(seed)
    bench = RewriteBench(group_rows=7)
    numbers = rng.sample(range(10_000), 600)
    for part in range(4):
        mine = sorted(numbers[part::4])
        bench.add_ids(*mine, dead=rng.sample(range(len(mine)), 20))
    whole = pa.concat_tables(bench.execute())
    cuts = sorted([*rng.sample([file.key_min for file in bench.files], 2), bench.plan().key_max])
    bounds: list[bytes | None] = [None, *cuts, None]

    parts: list[pa.Table] = []
    for start, end in pairwise(bounds):
        bench.sink.rows.clear()
        parts += bench.execute(KeyRange(start, end))

    assert pa.concat_tables(parts).equals(whole)


@given(
    starts=st.lists(st.integers(0, 2_000), min_size=1, max_size=6),
    lengths=st.lists(st.integers(1, 900), min_size=6, max_size=6),
    task_rows=st.integers(1, 700),
)
def test_every_key_is_in_exactly_one_range(
    starts: list[int], lengths: list[int], task_rows: int
) -> None:
    spans = zip(starts, lengths, strict=False)
    inputs = Inputs(*(range(start, start + length) for start, length in spans))

    tasks = cut_plan(inputs.plan(100), inputs.keys_of, task_rows=task_rows)

    assert sum(task.row_share for task in tasks) == inputs.plan().live_count
    for path, keys in inputs.keys.items():
        for found in (keys[0], keys[len(keys) // 2], keys[-1]):
            holders = [task for task in tasks if task.key_range.contains(found)]
            assert len(holders) == 1
            assert path in {file.path for file in holders[0].part.inputs}
