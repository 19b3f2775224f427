"""LevelOptions: how large levels and files may become before they are rewritten.

    level 0     flushes as they came; their keys overlap
    level 1     level1_bytes           disjoint keys within a partition, as in all below
    level 2     level1_bytes × ratio
    …
    last level  without a limit

All of it counts per partition.
"""

from dataclasses import dataclass, fields
from typing import Final

from neve.errors import InvalidArgument
from neve.model.data_file import FileFormat

_LEVELS_MIN: Final = 2
_RATIO_MIN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOptions:
    """When levels and files are rewritten, and how large the new files become."""

    level0_files: int = 4
    """So many files of level 0 go down to level 1."""
    level1_bytes: int = 256 << 20
    """Bytes of level 1 above which a file of it goes down to level 2."""
    level_ratio: int = 10
    """How many times larger each further level may be than the one above."""
    file_bytes: int = 64 << 20
    """Size at which the next file is begun; files below a quarter of it are joined."""
    garbage_ratio: float = 0.3
    """Share of marked rows above which a file is rewritten; 1: only when all of them are."""
    job_bytes_max: int = 1 << 30
    """Most bytes that one plan reads, unless the least it can do is more."""
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
                    f"{option.name}={value!r} cannot be", hint=f"use a whole number from {least} on"
                )
        ratio: object = self.garbage_ratio
        if not isinstance(ratio, int | float) or isinstance(ratio, bool) or not 0 < ratio <= 1:
            raise InvalidArgument(
                f"garbage_ratio={ratio!r} cannot be", hint="use a number above 0 and up to 1"
            )

    @property
    def last_level(self) -> int:
        """Number of the level that nothing goes down from."""
        return self.levels_max - 1

    @property
    def small_bytes(self) -> int:
        """Files below this size are joined with their neighbours."""
        return self.file_bytes // 4

    def bytes_max(self, level: int) -> int | None:
        """Bytes a level from 1 on may hold in one partition; None: as many as there are."""
        assert level > 0, "level 0 is counted in files"
        if level >= self.last_level:
            return None
        return self.level1_bytes * int(self.level_ratio ** (level - 1))

    def format_of(self, level: int) -> FileFormat:
        """How files written to a level are tuned."""
        return FileFormat.DUAL if level < self.dual_levels else FileFormat.COLUMNAR

    def level_for(self, live_bytes: int) -> int:
        """Return the first Columnar level that holds so many bytes; the last, when none does."""
        level = min(max(1, self.dual_levels), self.last_level)
        while (limit := self.bytes_max(level)) is not None and live_bytes > limit:
            level += 1
        return level
