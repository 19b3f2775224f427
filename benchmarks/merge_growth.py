"""`merge_growth`: sorted runs merged by key, at several numbers of runs; neve alone.

    many small runs     rows of 40, as the files of a commit to a table of many partitions are
    few large ones      as many rows, as large files are

A row must cost about as much among 1,440 runs as among 180. Keys are dealt out at random, so that
every run overlaps all others.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.harness import SEED, Candidate, Kind, Outcome, Ratio, Scale, Stopwatch, Workload
from neve.keys.merge import Source, ordered_rows
from neve.keys.order import RowKeys

_RUN_ROWS: Final = 40
_RUN_COUNTS: Final = (180, 720, 1_440)
_LARGE_RUNS: Final = 8
_PIECE_ROWS: Final = 16_384
_ROW_BYTES: Final = 16
# A tall heap, and tables of 40 rows: not more than this much slower for eight times the runs.
_RATE_KEPT: Final = 0.5


def build_merge_growth(_scale: Scale, _directory: Path) -> Workload:
    """The same merge of more and more runs."""
    row_count = _RUN_COUNTS[-1] * _RUN_ROWS
    shapes = [(count, _RUN_ROWS) for count in _RUN_COUNTS]
    shapes.append((_LARGE_RUNS, row_count // _LARGE_RUNS))
    return Workload(
        name="merge_growth",
        sentence="Rows of sorted runs that overlap are read by key.",
        unit="rows",
        candidates=[
            Candidate(
                name=f"{count:,} runs",
                kind=Kind.NEVE,
                trial=functools.partial(_merge, _runs(count, rows), count * rows),
            )
            for count, rows in shapes
        ],
        ratios=[
            Ratio(of=f"{_RUN_COUNTS[-1]:,} runs", to=f"{_RUN_COUNTS[0]:,} runs", target=_RATE_KEPT),
        ],
        parameters={
            "rows_per_small_run": _RUN_ROWS,
            "rows_per_large_run": row_count // _LARGE_RUNS,
            "seed": SEED,
        },
        notes=("Rows are in memory: no file is read.",),
        uses_disk=False,
    )


def _runs(run_count: int, run_rows: int) -> Sequence[list[Source]]:
    generator = np.random.default_rng(SEED)
    keys = generator.permutation(run_count * run_rows).astype(np.uint64)
    runs: list[list[Source]] = []
    for each in keys.reshape(run_count, run_rows):
        each.sort()
        rows = pa.table({"id": each.astype(np.int64), "amount": generator.random(run_rows)})
        blocks = [
            (rows.slice(start, _PIECE_ROWS), RowKeys(each[start : start + _PIECE_ROWS]))
            for start in range(0, run_rows, _PIECE_ROWS)
        ]
        loads = [functools.partial(_same, block) for block in blocks]
        runs.append([(int(each[0]), functools.partial(iter, loads))])
    return runs


def _same(block: tuple[pa.Table, RowKeys]) -> tuple[pa.Table, RowKeys]:
    return block


def _merge(
    runs: Sequence[list[Source]], row_count: int, _directory: Path, stopwatch: Stopwatch
) -> Outcome:
    with stopwatch:
        tables = list(ordered_rows(runs, descending=False, limit=None))
    ids = pa.concat_tables(tables).column("id").to_numpy()
    return Outcome(
        rows=len(ids),
        calls=1,
        logical_bytes=len(ids) * _ROW_BYTES,
        answer=ids.tobytes(),
        expected=np.arange(row_count).tobytes(),
    )
