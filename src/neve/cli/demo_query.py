"""The act in which the table is flushed and asked: by key, by many keys, by scan and by filter.

Each answer is compared with what follows from the numbers of the rows.
"""

from decimal import Decimal
from typing import Final

import pyarrow.compute as pc
from examples.demo.order_rows import FIRST_LOAD, LAST_DAY, ROWS
from examples.demo.stage import (
    Finding,
    Found,
    Latency,
    Stage,
    Timing,
    check,
    check_equal,
    shown_seconds,
)
from examples.demo.table_acts import get_latency, spread

from neve.model.display import counted, shown_bytes

_KEYS_AT_ONCE: Final = 1_000
_GET_MANY_CALLS: Final = 5
_AMOUNT_ABOVE: Final = 999
_CENT: Final = Decimal("0.01")


def query(stage: Stage) -> tuple[Found, ...]:
    """Flush, and read the rows back in every way."""
    flush_seconds = _flush(stage)
    narrator, orders = stage.narrator, stage.orders
    by_key = get_latency(stage)
    many = _get_many(stage)
    narrator.found(
        f"get by key from files: {by_key}; many at once: {_KEYS_AT_ONCE / many.p50:,.0f} keys/s"
    )
    with stage.timed() as scan_seconds:
        rows = orders.scan().to_arrow()
    check_equal(rows, stage.table.all_rows, "a scan")
    narrator.found(
        f"scan: {ROWS:,} rows in {shown_seconds(scan_seconds())}, every one as it was written"
    )
    _filter(stage)
    return (
        Finding(
            "flushed_rows_per_second",
            round(ROWS / flush_seconds),
            "rows a second from the log to a clean Iceberg snapshot",
        ),
        Finding("data_bytes", orders.stats().file_bytes),
        Timing(
            name="file_get",
            what="get, from files",
            latency=by_key,
            rows_per_second=1 / by_key.p50,
        ),
        Timing(
            name="get_many",
            what=f"get_many, {_KEYS_AT_ONCE:,} keys",
            latency=many,
            rows_per_second=_KEYS_AT_ONCE / many.p50,
        ),
        Finding(
            "scanned_rows_per_second", round(ROWS / scan_seconds()), "rows a second by a full scan"
        ),
    )


def _flush(stage: Stage) -> float:
    orders = stage.orders
    with stage.timed() as seconds:
        version = orders.flush()
    stats = orders.stats()
    check(version == FIRST_LOAD, f"the first flush made Version {version}")
    check(stats.memtable_rows == 0, "a flush left rows behind")
    check(stats.vector_count == 0, "a first flush needs no vector")
    stage.narrator.say(
        f"flushed in {shown_seconds(seconds())}: Version {version}, "
        f"{counted(stats.file_count, 'Parquet file')} by day, {shown_bytes(stats.file_bytes)}"
    )
    return seconds()


def _get_many(stage: Stage) -> Latency:
    numbers = spread(_KEYS_AT_ONCE)
    keys = [stage.table.key_values(number) for number in numbers]
    due = [dict(stage.table.row(number)) for number in numbers]
    seconds = []
    for _ in range(_GET_MANY_CALLS):
        with stage.timed() as taken:
            found = stage.orders.get_many(keys)
        seconds.append(taken())
        check(found.to_pylist() == due, "get_many gives other rows than asked for")
    return Latency.of(seconds)


def _filter(stage: Stage) -> None:
    """Filter by a value and by a day; the second one leaves the files of other days alone."""
    narrator, orders, all_rows = stage.narrator, stage.orders, stage.table.all_rows
    chosen = orders.scan(f"amount > {_AMOUNT_ABOVE}", columns=["id", "amount"]).to_arrow()
    wanted = all_rows.filter(pc.field("amount") > Decimal(_AMOUNT_ABOVE).quantize(_CENT)).num_rows
    check(chosen.num_rows == wanted, "a filter finds other rows than there are")
    by_day = orders.scan(f"ordered_at >= '{LAST_DAY.isoformat()}'")
    due = all_rows.filter(pc.field("ordered_at") >= LAST_DAY).num_rows
    plan = by_day.explain()
    check(by_day.count() == due, "a filter by day finds other rows than there are")
    check(plan.files_read < plan.files_total, "a filter by day reads files of other days")
    narrator.found(
        f"filter: {wanted:,} amounts above {_AMOUNT_ABOVE}; {due:,} orders of the last day from "
        f"{plan.files_read} of {plan.files_total} files"
    )
