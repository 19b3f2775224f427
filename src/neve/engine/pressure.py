"""How writers are held back when background work falls behind: first a little, then altogether.

    level 0 files   … slow        no delay
                    slow … max    each write waits a moment, longer with every further file
                    max …         writers wait until compaction has caught up
    full memtables  beyond what may wait: writers wait until one is flushed

A write is delayed before anything of it is logged, batches as well as single rows.
"""

from dataclasses import dataclass
from typing import Final

from neve.engine.table_options import TableOptions

_DELAY_SECONDS_MAX: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What a writer has to do before its write."""

    delay_seconds: float = 0.0
    must_wait: bool = False
    reason: str = ""

    @property
    def is_felt(self) -> bool:
        """Whether a writer is held back at all."""
        return self.must_wait or self.delay_seconds > 0


CALM: Final = Pressure()


def pressure_of(options: TableOptions, *, frozen: int, level0_files: int) -> Pressure:
    """Judge how far background work is behind."""
    if frozen > options.frozen_memtables:
        return Pressure(must_wait=True, reason=f"{frozen} memtables wait for their flush")
    if level0_files >= options.level0_files_max:
        return Pressure(must_wait=True, reason=f"{level0_files} young files wait for compaction")
    if level0_files < options.level0_files_slow:
        return CALM
    steps = options.level0_files_max - options.level0_files_slow
    share = (level0_files - options.level0_files_slow + 1) / max(steps, 1)
    return Pressure(
        delay_seconds=_DELAY_SECONDS_MAX * share * share,
        reason=f"{level0_files} young files wait for compaction",
    )
