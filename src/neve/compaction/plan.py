"""CompactionPlan, which files to rewrite and why, and LevelOptions, the limits of the levels.

    inputs      files of one partition, by key; exactly these are read and then removed
    outputs     their live rows by key, in files of about `file_bytes`, in `target_level`

A plan that moves rows to another partition spec has inputs from any partitions. Its outputs go to
level 0 of the new partitions, where later plans merge them.

COMPACTION-1  Outputs lie between the smallest and the largest key of the inputs. No other file of
    the target level and partition does, from level 1 on.
COMPACTION-2  Commits are clean: no key has two live rows. So an executor drops marked rows, orders
    the others by key, and never chooses between rows.

An executor decides nothing: a plan results in the same rows here or on Spark. Limits of levels are
per partition:

    level 0     flushes in commit order; their keys overlap
    level 1     level1_bytes           disjoint keys within a partition, as in all below
    level 2     level1_bytes × ratio
    …
    last level  no limit
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from neve.errors import InvalidArgument
from neve.model.data_file import DataFile, FileFormat, PartitionValue, disjoint_runs


class CompactionReason(StrEnum):
    """Why files are rewritten."""

    LEVEL0 = "level0"
    """Level 0 has many files."""
    SIZE = "size"
    """A level holds more bytes than its limit."""
    GARBAGE = "garbage"
    """Many rows of a file are marked."""
    SMALL = "small"
    """Files next to each other are small."""
    FULL = "full"
    """A full compaction was requested."""
    SPEC = "spec"
    """Files are in partitions of an earlier spec, and a full compaction was requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """One rewrite, completely specified."""

    base: int
    """Number of the Version that has the inputs."""
    inputs: tuple[DataFile, ...]
    target_level: int
    format: FileFormat
    reason: CompactionReason
    file_bytes: int
    """Size at which the next output file begins."""
    moves_to: int | None = None
    """Partition spec to move rows to; None: outputs stay in the inputs' partition."""

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
        """Partition spec of the inputs, and of the outputs unless rows move to another."""
        return self.inputs[0].spec_id

    @property
    def partition(self) -> tuple[PartitionValue, ...]:
        """Partition of the inputs, and of the outputs unless rows move to another spec."""
        return self.inputs[0].partition

    @property
    def key_min(self) -> bytes:
        """Smallest key of the inputs."""
        return min(file.key_min for file in self.inputs)

    @property
    def key_max(self) -> bytes:
        """Largest key of the inputs."""
        return max(file.key_max for file in self.inputs)

    def runs(self) -> tuple[tuple[DataFile, ...], ...]:
        """Return the inputs as a few sequences of files whose keys follow each other."""
        return disjoint_runs(self.inputs)


def jobs_of(plans: Iterable[CompactionPlan]) -> list[list[CompactionPlan]]:
    """Group plans into commits, so that a table of many small partitions needs few of them.

    Plans keep their order. A job has one plan, or reads no more than `file_bytes`.
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


_SETTLED_LEVEL: Final = 2
_LEVELS_MIN: Final = 2
_RATIO_MIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOptions:
    """When levels and files are rewritten, and how large the new files become."""

    level0_files: int = 4
    """Number of level 0 files at which they move to level 1."""
    level1_bytes: int = 256 << 20
    """Bytes of level 1 above which one of its files moves to level 2."""
    level_ratio: int = 10
    """How many times larger each level may be than the one above."""
    file_bytes: int = 64 << 20
    """Size at which the next file begins; files below a quarter of it are joined."""
    garbage_ratio: float = 0.3
    """Share of marked rows above which a file is rewritten; 1: only when all rows are marked."""
    job_bytes_max: int = 1 << 30
    """Most bytes that one plan reads, unless the smallest possible plan reads more."""
    dual_levels: int = 2
    """Files in levels below this number are written Dual, the others Columnar."""
    levels_max: int = 7
    """Number of levels, level 0 included."""

    def __post_init__(self) -> None:
        lowest = {
            "levels_max": _LEVELS_MIN,
            "level_ratio": _RATIO_MIN,
            "dual_levels": 0,
        }
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name == "garbage_ratio":
                continue
            least = lowest.get(option.name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidArgument(
                    f"{option.name}={value!r} is invalid", hint=f"Use an integer >= {least}"
                )
        ratio: object = self.garbage_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 < ratio <= 1:
            raise InvalidArgument(
                f"garbage_ratio={ratio!r} is invalid", hint="Use a number above 0 and up to 1"
            )

    @property
    def last_level(self) -> int:
        """Number of the lowest level."""
        return self.levels_max - 1

    @property
    def small_bytes(self) -> int:
        """Files below this size are joined with their neighbours."""
        return self.file_bytes // 4

    def bytes_max(self, level: int) -> int | None:
        """Bytes that a level from 1 on may hold in one partition; None: no limit."""
        assert level > 0, "level 0 is counted in files"
        if level >= self.last_level:
            return None
        return self.level1_bytes * int(self.level_ratio ** (level - 1))

    def format_of(self, level: int) -> FileFormat:
        """Format of files written to a level."""
        return FileFormat.DUAL if level < self.dual_levels else FileFormat.COLUMNAR

    def level_for(self, live_bytes: int) -> int:
        """Return the first Columnar level that can hold so many bytes, otherwise the last.

        Level 1 stays free: young files move there without rewriting what this level holds.
        """
        level = min(max(_SETTLED_LEVEL, self.dual_levels), self.last_level)
        while (limit := self.bytes_max(level)) is not None and live_bytes > limit:
            level += 1
        return level
