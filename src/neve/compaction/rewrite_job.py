"""RewriteJob: plans of one Version cut into tasks by key, complete for every executor.

    plans ──► key ranges ──► tasks ──► executor, here or elsewhere ──► files of each task ──► commit

    task      a key range, and the inputs that may hold its keys; it writes the live rows of the
              range, in files of about the plan's size

COMPACTION-3  Tasks of one plan are apart by key, ascend, and together hold all keys of the plan.
COMPACTION-4  What a task writes depends on the task alone, except for file names: so a plan results
    in the same table in one process or in many.
COMPACTION-5  A task that failed may be executed again, even while the first try still runs: no name
    is used twice, and only what the executor returns is committed.

Pure functions cut plans, so that every executor gets the same tasks:

1. Cut a plan only when it has many rows, and only so far that every task still fills half a file:
   smaller files would have to be joined again.
2. Sample keys of each input, evenly spread; each weighs as many live rows as lie between it and the
   previous one.
3. Place cuts where the rows of the keys below add up to even shares.

    file 1    a─────────f──────────k──────────p         4 keys of 1,000,000 rows each
    file 2              g────h────i                      3 keys of   200,000 rows each
    cuts               ▲        ▲                        three tasks of about 1,500,000 rows
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, Protocol, TypeAlias

from neve.compaction.plan import CompactionPlan
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What an executor needs to read and write a table's files elsewhere, all of it as text."""

    location: str
    """The lake, as a URI."""
    table_id: str
    schema_id: int
    """Schema to write rows with."""
    schemas: Mapping[int, str]
    """Every schema the table had, as JSON by id."""
    specs: Mapping[int, str]
    """Every partition spec the table had, as JSON by id."""
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """The keys of one range of one plan."""

    plan_number: int
    """Place of the plan in its job."""
    part: CompactionPlan
    """The plan with only the inputs that may hold keys of the range."""
    key_range: KeyRange
    row_share: int
    """Estimated number of rows; over all tasks of a plan they add up to the plan's rows."""
    keeps_lineage: bool = False
    """Whether its files have lineage columns, as in tables of format 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """Tasks to execute together, in any order."""

    table: TableDefinition
    plans: tuple[CompactionPlan, ...]
    tasks: tuple[RewriteTask, ...]
    """In the order of their plans; tasks of one plan by key."""
    run: str | None = None
    """Name of the run that the paths of new files must contain; None: any path."""


class PlanExecutor(Protocol):
    """Executes the tasks of a job somewhere: in this process, or on other machines.

    It decides nothing, and commits nothing. Its contract is `neve.testing.executor_contract`.
    """

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> Sequence[tuple[DataFile, ...]]:
        """Write the files of every task; returns them by task, in the order of the tasks.

        `progress` gets the number of rows written since the last call, never more than there are in
        all. `check_cancelled` raises when the work should stop. Raises NeveError when a task fails;
        then the files already written are deleted, or left for the collector.
        """


TASK_ROWS: Final = 2_000_000
"""Rows of one task, unless they would not fill half a file."""
_KEYS_PER_TASK: Final = 16

KeysOf: TypeAlias = Callable[[DataFile, Sequence[int]], Sequence[bytes]]
"""Returns the keys at ascending positions of a file."""


def cut_plan(
    plan: CompactionPlan,
    keys_of: KeysOf,
    *,
    plan_number: int = 0,
    task_rows: int = TASK_ROWS,
    keeps_lineage: bool = False,
) -> tuple[RewriteTask, ...]:
    """Return the tasks of a plan, by key; reads keys only when there are several."""
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
    """Return ranges that ascend, are apart, and hold all keys; a small plan has one."""
    return even_ranges(plan.inputs, keys_of, count=_task_count(plan, task_rows))


def even_ranges(files: Sequence[DataFile], keys_of: KeysOf, *, count: int) -> tuple[KeyRange, ...]:
    """Return at most `count` ranges of even shares that ascend, are apart, and hold all keys."""
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
