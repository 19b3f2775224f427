"""CompactionPlan: which files are rewritten, into which level, and why.

    inputs      files of one partition, by key; exactly these are read and then removed
    outputs     their live rows by key, in files of about `file_bytes`, in `target_level`

A plan that moves rows to another partition spec has inputs of any partitions, and outputs in level
0 of the partitions that its rows have there; the next plans merge them.

COMPACTION-1  Outputs lie between the smallest and the largest key of the inputs. No other file of
    the target level and partition does, from level 1 on.
COMPACTION-2  Commits are clean: no key has two live rows. So an executor drops marked rows, orders
    the others by key, and never chooses between rows.

An executor decides nothing: a plan executed here or on Spark results in the same rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from neve.model.data_file import DataFile, FileFormat, PartitionValue, disjoint_runs


class CompactionReason(StrEnum):
    """Why files are rewritten."""

    LEVEL0 = "level0"
    """Level 0 has many files."""
    SIZE = "size"
    """A level holds more bytes than it may."""
    GARBAGE = "garbage"
    """Many rows of a file are marked."""
    SMALL = "small"
    """Files next to each other are small."""
    FULL = "full"
    """A full compaction was asked for."""
    SPEC = "spec"
    """Files lie in partitions of a former spec, and a full compaction was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """One rewrite, complete: an executor has nothing else to decide."""

    base: int
    """Number of the Version whose files the inputs are."""
    inputs: tuple[DataFile, ...]
    target_level: int
    format: FileFormat
    reason: CompactionReason
    file_bytes: int
    """Size at which the next output file is begun."""
    moves_to: int | None = None
    """Partition spec that rows are moved to; None: outputs are in the inputs' partition."""

    @property
    def input_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(file.file_bytes for file in self.inputs)

    @property
    def live_count(self) -> int:
        """Rows that the outputs will have."""
        return sum(file.live_count for file in self.inputs)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of the inputs."""
        return frozenset(file.path for file in self.inputs)

    @property
    def spec_id(self) -> int:
        """Partition spec of inputs and outputs, unless rows are moved to another."""
        return self.inputs[0].spec_id

    @property
    def partition(self) -> tuple[PartitionValue, ...]:
        """Partition of inputs and outputs, unless rows are moved to another spec."""
        return self.inputs[0].partition

    @property
    def key_min(self) -> bytes:
        """Key that no output goes below."""
        return min(file.key_min for file in self.inputs)

    @property
    def key_max(self) -> bytes:
        """Key that no output goes above."""
        return max(file.key_max for file in self.inputs)

    def runs(self) -> tuple[tuple[DataFile, ...], ...]:
        """Return the inputs as few sequences of files whose keys follow each other."""
        return disjoint_runs(self.inputs)


def jobs_of(plans: Iterable[CompactionPlan]) -> list[list[CompactionPlan]]:
    """Put plans together that are one commit: a table of many small partitions is few of them.

    They stay in their order; a job is of one plan, or reads no more than a file is to have.
    """
    jobs: list[list[CompactionPlan]] = []
    room = 0
    for plan in plans:
        if not jobs or plan.input_bytes > room:
            jobs.append([])
            room = plan.file_bytes
        jobs[-1].append(plan)
        room -= plan.input_bytes
    return jobs
