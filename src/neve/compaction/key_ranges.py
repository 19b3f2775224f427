"""Cuts plans into tasks by key: pure functions, so that every executor gets the same tasks.

1. A plan is cut only when it has many rows, and only so far that every task still fills half a
   file: smaller files would have to be joined again.
2. Of each input some keys are looked at, evenly spread; each stands for as many live rows as lie
   between it and the one before.
3. Cuts are put where the rows of the keys below add up to even shares.

    file 1    a─────────f──────────k──────────p         4 keys of 1,000,000 rows each
    file 2              g────h────i                      3 keys of   200,000 rows each
    cuts               ▲        ▲                        three tasks of about 1,500,000 rows
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Final, TypeAlias

from neve.compaction.plan import CompactionPlan
from neve.compaction.rewrite_job import RewriteTask
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile

TASK_ROWS: Final = 2_000_000
"""Rows of one task, unless it would not fill half a file."""
_KEYS_PER_TASK: Final = 16

KeysOf: TypeAlias = Callable[[DataFile, Sequence[int]], Sequence[bytes]]
"""Gives the keys at ascending positions of a file."""


def cut_plan(
    plan: CompactionPlan,
    keys_of: KeysOf,
    *,
    plan_number: int = 0,
    task_rows: int = TASK_ROWS,
    keeps_lineage: bool = False,
) -> tuple[RewriteTask, ...]:
    """Return the tasks of a plan, by key; only for more than one, keys are asked for."""
    parts: list[tuple[CompactionPlan, KeyRange]] = []
    for key_range in key_ranges(plan, keys_of, task_rows=task_rows):
        inputs = tuple(file for file in plan.inputs if has_live_keys(file, key_range))
        if inputs:
            parts.append((replace(plan, inputs=inputs), key_range))
    sums = [plan.live_count * number // max(1, len(parts)) for number in range(len(parts) + 1)]
    return tuple(
        RewriteTask(
            plan_number=plan_number,
            part=part,
            key_range=key_range,
            row_share=end - start,
            keeps_lineage=keeps_lineage,
        )
        for (part, key_range), (start, end) in zip(parts, pairwise(sums), strict=True)
    )


def key_ranges(
    plan: CompactionPlan, keys_of: KeysOf, *, task_rows: int = TASK_ROWS
) -> tuple[KeyRange, ...]:
    """Return ranges that ascend, are apart, and hold all keys; one of them for a small plan."""
    return even_ranges(plan.inputs, keys_of, count=_task_count(plan, task_rows))


def even_ranges(files: Sequence[DataFile], keys_of: KeysOf, *, count: int) -> tuple[KeyRange, ...]:
    """Return at most so many ranges that ascend, are apart, hold all keys, and even shares."""
    if count <= 1:
        return (KeyRange(),)
    share = max(1, sum(file.live_count for file in files) // (count * _KEYS_PER_TASK))
    weighed: list[tuple[bytes, int]] = []
    for file in files:
        if not file.live_count:
            continue
        wanted = -(-file.live_count // share)
        ends = [file.row_count * (number + 1) // wanted - 1 for number in range(wanted)]
        places = sorted(set(ends))
        starts = [-1, *places[:-1]]
        for key, place, before in zip(keys_of(file, places), places, starts, strict=True):
            weighed.append((key, (place - before) * file.live_count // file.row_count))
    weighed.sort()
    sums = list(accumulate(weight for _, weight in weighed))
    cuts: list[bytes] = []
    lowest = min(file.key_min for file in files)
    for number in range(1, count):
        place = bisect_left(sums, sums[-1] * number // count)
        cut = weighed[place][0]
        if cut > (cuts[-1] if cuts else lowest):
            cuts.append(cut)
    return tuple(KeyRange(start, end) for start, end in pairwise([None, *cuts, None]))


def _task_count(plan: CompactionPlan, task_rows: int) -> int:
    by_rows = -(-plan.live_count // task_rows)
    live_bytes = sum(file.file_bytes * file.live_count // file.row_count for file in plan.inputs)
    by_bytes = 2 * live_bytes // plan.file_bytes
    return max(1, min(by_rows, by_bytes))


def has_live_keys(file: DataFile, key_range: KeyRange) -> bool:
    """Whether a file has live rows and may have keys of a range."""
    if not file.live_count:
        return False
    below = key_range.end is not None and file.key_min >= key_range.end
    above = key_range.start is not None and file.key_max < key_range.start
    return not (below or above)
