"""RewriteJob: plans of one Version cut into tasks, complete for whoever executes them.

    plans ──► key ranges ──► tasks ──► executor, here or elsewhere ──► files of each task ──► commit

    task      inputs that may hold keys of a range, and the range; its files hold the live rows of
              that range, in files of about the plan's size

J1  Tasks of one plan are apart by key, ascend, and together hold all keys of the plan.
J2  What a task writes follows from the task alone, but for the names of the files: so a plan gives
    the same table whoever executes it, in one process or in many.
J3  A task that failed may be executed again, also while the first try still runs: no name is used
    twice, and only what the executor gives back is committed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from neve.compaction.plan import CompactionPlan
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDefinition:
    """What has to be known of a table to read and write its files elsewhere, all of it as text."""

    location: str
    """The warehouse, as a URI."""
    table_id: str
    schema_id: int
    """Schema that rows are written with."""
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
    """The plan with only those inputs that may hold keys of the range."""
    key_range: KeyRange
    row_share: int
    """About how many rows it has; all of a plan's tasks together, exactly as many as the plan."""
    keeps_lineage: bool = False
    """Whether its files have the columns of row lineage: those of a table of format 3 do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """Tasks to execute together, in any order."""

    table: TableDefinition
    plans: tuple[CompactionPlan, ...]
    tasks: tuple[RewriteTask, ...]
    """In the order of their plans, and those of one plan by key."""
    run: str | None = None
    """Name of the run that paths of new files must bear; None: any will do."""


class PlanExecutor(Protocol):
    """Executes the tasks of a job somewhere: in this process, or on other machines.

    It decides nothing, and commits nothing. `neve.testing.executor_contract` has what is expected.
    """

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> Sequence[tuple[DataFile, ...]]:
        """Write the files of every task; gives them by task, in the order of the tasks.

        `progress` is told the number of further rows that were written, never more than there are
        in all. `check_cancelled` raises when the work is to end. Raises NeveError when a task could
        not be executed; files that were written are deleted then, or left for the collector.
        """
        ...
