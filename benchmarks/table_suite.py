"""The workloads of the table engine, of its history and of its growth, and their sizes.

Tables have a million rows unless NEVE_BENCH_ROWS says otherwise. Buckets are looked at up to ten or
fifty times that. The suite of growth ends at ten million rows, or at a hundred million when growth
is asked for, and begins at a million; NEVE_BENCH_ROWS is where it ends.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from benchmarks.harness import Workload
from benchmarks.table_apply import build_apply, build_apply_order
from benchmarks.table_buckets import build_buckets
from benchmarks.table_changes import build_changes
from benchmarks.table_days import build_days
from benchmarks.table_growth import build_columns, build_files, build_growth
from benchmarks.table_reads import (
    build_get,
    build_get_first,
    build_get_many,
    build_scan,
    build_scan_range,
    build_scan_updated,
    build_sum,
    build_sum_updated,
)
from benchmarks.table_session import BATCH_ROWS, TableScale, TableSession
from benchmarks.table_transactions import build_transactions
from benchmarks.table_writes import (
    build_delete,
    build_disk,
    build_put,
    build_put_synced,
    build_reopen,
    build_upsert,
    build_upsert_settled,
)

FULL_ROWS: Final = 1_000_000
QUICK_ROWS: Final = 100_000

TABLE_WORKLOADS: Final[Mapping[str, Callable[[TableSession], Workload]]] = {
    "table_put": build_put,
    "table_put_synced": build_put_synced,
    "table_transactions": build_transactions,
    "table_upsert": build_upsert,
    "table_upsert_settled": build_upsert_settled,
    "table_apply": build_apply,
    "table_apply_order": build_apply_order,
    "table_get": build_get,
    "table_get_first": build_get_first,
    "table_get_many": build_get_many,
    "table_scan": build_scan,
    "table_scan_updated": build_scan_updated,
    "table_scan_range": build_scan_range,
    "table_sum": build_sum,
    "table_sum_updated": build_sum_updated,
    "table_delete": build_delete,
    "table_reopen": build_reopen,
    "table_disk": build_disk,
}

HISTORY_WORKLOADS: Final[Mapping[str, Callable[[TableSession], Workload]]] = {
    "table_days": build_days,
    "table_changes": build_changes,
    "table_buckets": build_buckets,
}
"""Partitions and the change feed; neve alone, so that no peer has to be there."""


GROWTH_WORKLOADS: Final[Mapping[str, Callable[[TableSession], Workload]]] = {
    "table_growth": build_growth,
    "table_columns": build_columns,
    "table_files": build_files,
}
"""What grows with rows, columns and files; neve alone."""
GROWTH_ROWS: Final = 10 * FULL_ROWS
GROWTH_FACTOR: Final = 10


def growth_scale(rows: int, *, quick: bool) -> TableScale:
    """Return sizes from a million rows, or a tenth of what is asked for, in powers of ten."""
    sizes = [rows]
    while len(sizes) == 1 or sizes[0] > FULL_ROWS:
        sizes.insert(0, max(sizes[0] // 10, BATCH_ROWS))
    return replace(
        table_scale(rows, quick=quick, growth=False),
        growth_rows=tuple(dict.fromkeys(sizes)),
        growth_files=(100, 1_000) if quick else (100, 1_000, 10_000),
    )


def table_scale(rows: int, *, quick: bool, growth: bool) -> TableScale:
    """Return the sizes for tables of so many rows."""
    sizes = (rows, 3 * rows, 10 * rows) if growth else (max(rows // 10, BATCH_ROWS), rows)
    return TableScale(
        rows=rows,
        unflushed_rows=min(rows, 100_000),
        put_seconds=0.2 if quick else 0.5,
        synced_seconds=0.1 if quick else 0.2,
        read_seconds=0.1 if quick else 0.3,
        growth_rows=tuple(dict.fromkeys(sizes)),
        growth_columns=(100, 1_000) if quick else (250, 1_000, 4_000),
    )
