"""Executes a plan, or a key range of it, in this process: merges live rows in bounded memory.

1. Arrange the inputs in runs: sequences of files whose keys follow each other. Hold one row group
   of each run.
2. Find the smallest last key of the groups held. Rows up to it are complete: whatever is still to
   be read has greater keys.
3. Take these rows from every run. Where their keys are apart, hand them on one after another;
   where not, join them and sort once.
4. Fill up the runs that have no rows left, and go on with 2.
5. Compare the number of rows with the plan's, and finish the files.

    run 1    ─── a d f ───│── h k …
    run 2    ── b c ──│──── g i …          smallest last key: c, so a b c are handed on
                      ▲
Memory is that of one row group for each run, and once more while a window is sorted. Whatever goes
wrong, the files written so far are deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from neve.compaction.local_executor import KeepMask, RowReading, RowSource, live_pieces
from neve.compaction.plan import CompactionPlan
from neve.compaction.sorted_rows import SortedRows, merged
from neve.errors import Corruption
from neve.keys.columns import KeyArray
from neve.keys.ranges import KeyRange
from neve.model.data_file import DataFile

EVERY_KEY: Final = KeyRange()

# Sorting copies rows into single Arrow arrays, whose 32-bit offsets end at 2 GiB.
SORTED_BYTES_MAX: Final = 256 << 20

Held: TypeAlias = tuple[SortedRows, Iterator[SortedRows]]
"""Rows of a run that were read and not yet handed on, and the rest of the run."""

Output_co = TypeVar("Output_co", covariant=True)
Output = TypeVar("Output")


class FileSink(Protocol[Output_co]):
    """Takes rows in the order of their keys and makes data files of them."""

    def append(self, rows: pa.Table, keys: KeyArray) -> None:
        """Take the next rows; their keys are greater than all before."""
        ...

    def finish(self) -> tuple[Output_co, ...]:
        """Complete the files and give what was written; nothing, when there were no rows."""
        ...

    def abort(self) -> None:
        """Delete whatever was written."""
        ...


def execute(
    plan: CompactionPlan,
    *,
    key_range: KeyRange = EVERY_KEY,
    reader_of: Callable[[DataFile], RowSource],
    mask_of: Callable[[DataFile], KeepMask | None],
    make_writer: Callable[[CompactionPlan], FileSink[Output]],
    project: Callable[[pa.Table, DataFile], pa.Table],
    encode_keys: Callable[[pa.Table], KeyArray],
    keeps_lineage: bool,
    progress: Callable[[int], None],
    check_cancelled: Callable[[], None],
) -> tuple[Output, ...]:
    """Rewrite a plan's inputs, as far as their keys are in a range; gives what the sink wrote.

    `mask_of` goes by the vector in the plan's own file facts. `progress` is told the number of
    further rows handed on. Raises Corruption when the rows are not what the plan says, and whatever
    `check_cancelled`, a source or the sink raises; the sink is aborted then. How many rows a part
    of the keys must have, nobody knows: whoever has all parts compares that (`check_count`).
    """
    reading = RowReading(
        reader_of=reader_of,
        mask_of=mask_of,
        project=project,
        encode_keys=encode_keys,
        keeps_lineage=keeps_lineage,
        check_cancelled=check_cancelled,
    )
    sink = make_writer(plan)
    try:
        row_count = 0
        runs = [live_pieces(files, reading, key_range) for files in plan.runs()]
        for piece in merged_pieces(runs):
            sink.append(piece.rows, piece.keys)
            row_count += len(piece)
            progress(len(piece))
        if key_range == EVERY_KEY:
            check_count(plan, row_count)
        return sink.finish()
    except BaseException as error:
        _abort(sink, error)
        raise


def merged_pieces(runs: Sequence[Iterator[SortedRows]]) -> Iterator[SortedRows]:
    """Yield the rows of runs, each ascending by key, as one such run."""
    held = [(piece, run) for run in runs if (piece := next(run, None)) is not None]
    while held:
        window, held = _cut(held)
        yield from _by_key(window)
        # Rows handed on are let go of before the next groups are read.
        window.clear()
        held = [
            (piece, run)
            for rest, run in held
            if (piece := rest if len(rest) > 0 else next(run, None)) is not None
        ]


def _cut(held: list[Held]) -> tuple[list[SortedRows], list[Held]]:
    """Return the rows up to the smallest last key of the groups held, and what is left of each."""
    bound = min(piece.last for piece, _ in held)
    parts = [piece.split_at(piece.count_through(bound)) for piece, _ in held]
    window = [taken for taken, _ in parts if len(taken) > 0]
    return window, [(rest, run) for (_, rest), (_, run) in zip(parts, held, strict=True)]


def _by_key(window: list[SortedRows]) -> Iterator[SortedRows]:
    window.sort(key=lambda piece: piece.first)
    if all(left.last < right.first for left, right in pairwise(window)):
        yield from window
    elif sum(piece.rows.nbytes for piece in window) <= SORTED_BYTES_MAX:
        yield merged(window)
    else:
        # Keys overlap, so the longest piece has two rows at least, and both halves are smaller.
        longest = max(window, key=len)
        middle = longest.key_at((len(longest) - 1) // 2)
        halves = [piece.split_at(piece.count_through(middle)) for piece in window]
        yield from _by_key([lower for lower, _ in halves if len(lower) > 0])
        yield from _by_key([upper for _, upper in halves if len(upper) > 0])


def check_count(plan: CompactionPlan, row_count: int) -> None:
    """Raise Corruption when the outputs of a plan have more or fewer rows than its inputs had."""
    if row_count != plan.live_count:
        raise Corruption(
            f"{row_count:,} live rows were read, the manifest has {plan.live_count:,}",
            path=plan.inputs[0].path,
            hint="Run verify to see which file or vector is damaged",
        )


def _abort(sink: FileSink[Output], error: BaseException) -> None:
    """Abort the sink without hiding why."""
    try:
        sink.abort()
    except Exception as second:  # noqa: BLE001  # the first error is the one to raise
        error.add_note(f"the files written so far could not be deleted: {second}")
