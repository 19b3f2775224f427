"""The act in which rows sink through the levels of the table; what it leaves behind is drawn.

1. Reopen the table with levels as small as the demo, so that there are some of them to see; by
   default they hold hundreds of megabytes.
2. Write rows again, flush and compact, several times over.
3. Flush some more, and put some that stay in memory. The rows are the same as before.
"""

from typing import Final

from examples.demo.order_rows import DELETED_FROM
from examples.demo.stage import (
    Finding,
    Found,
    LevelsFound,
    Stage,
    check,
    check_equal,
    shown_seconds,
)

from neve.engine.table_options import TableOptions
from neve.model.display import counted
from neve.notebook import levels_of_listing

_OPTIONS: Final = TableOptions(
    level0_files=2,
    level1_bytes=48 << 10,
    level_ratio=8,
    file_bytes=192 << 10,
    # By hand, so that every run draws the same.
    background=False,
)
_SINKING: Final = tuple(range(first, DELETED_FROM, 12) for first in range(4))
_ON_TOP: Final = tuple(range(first, DELETED_FROM, 31) for first in range(2))
_LIVE: Final = range(5_000)
_LEVELS_DUE: Final = 3


def levels(stage: Stage) -> tuple[Found, ...]:
    """Write until the table has several levels, and give them to be drawn."""
    narrator, name = stage.narrator, stage.orders.name
    stage.orders.close()
    written = 0
    with stage.lake.table(name, options=_OPTIONS) as orders, stage.timed() as seconds:
        steps = [*_SINKING, *_ON_TOP]
        with narrator.progress("writing and compacting", total=len(steps)) as told:
            for place, numbers in enumerate(steps):
                rows = stage.table.rows_as_after(numbers)
                orders.upsert(rows)
                orders.flush()
                if numbers in _SINKING:
                    orders.compact()
                written += rows.num_rows
                told(place + 1)
        live = stage.table.rows_as_after(_LIVE)
        orders.upsert(live)
        written += live.num_rows
        found = levels_of_listing(orders.files())
        unflushed = orders.stats().memtable_rows
        taken = seconds()
        check(len(found) >= _LEVELS_DUE, f"the table has {counted(len(found), 'level')} only")
        check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan of all levels")
    narrator.say(
        f"{written:,} rows written again in {shown_seconds(taken)}; compaction takes them down"
    )
    narrator.found(
        f"{counted(len(found), 'level')} and the memory merged by a scan: each key once, all equal"
    )
    return (
        Finding("levels", len(found)),
        Finding("rows_written_again", written),
        LevelsFound(levels=found, unflushed=unflushed),
    )
