"""The act in which the table gets its rows: one by one from many threads, then as Arrow batches.

1. Put single rows from many threads; each is durable before its put returns.
2. Upsert all rows as Arrow batches, the same keys once more.
3. Get rows by key, one at a time and a thousand at once; scan everything. Compare each row.
"""

from collections.abc import Sequence
from statistics import median
from threading import Thread
from typing import Final

from neve.cli.demo_stage import Finding, Stage, check, check_equal
from neve.cli.demo_table import ROWS
from neve.observability.metrics import WAL_BATCHES, WAL_SYNCS

_THREADS: Final = 16
_ROWS_PER_THREAD: Final = 250
_SECONDS_MAX: Final = 5.0
_BATCHES: Final = 20
_ROWS_PER_BATCH: Final = ROWS // _BATCHES
_GETS: Final = 2_000
_KEYS_AT_ONCE: Final = 1_000
# Coprime to the number of rows: every get asks for another one.
_STRIDE: Final = 7_919


def write(stage: Stage) -> tuple[Finding, ...]:
    """Fill the table, and read all of it back."""
    narrator, orders = stage.narrator, stage.orders
    columns = ", ".join(f"{column.name} {column.type}" for column in orders.schema.columns)
    narrator.say(f"a table of orders, key ({', '.join(orders.primary_key)}): {columns}")
    with stage.timed() as row_seconds:
        row_count = _put_single_rows(stage)
    batches, syncs = stage.counters.total(WAL_BATCHES), stage.counters.total(WAL_SYNCS)
    shared = batches / max(1, syncs)
    narrator.say(
        f"{row_count:,} single rows from {_THREADS} threads, each durable before its put "
        f"returns: {row_count / row_seconds():,.0f} rows/s"
    )
    narrator.found(f"group commit: {syncs:,.0f} syncs in all, {shared:.1f} rows share each one")
    batch_seconds = _upsert_batches(stage)
    narrator.say(
        f"{ROWS:,} rows as {_BATCHES} Arrow batches, durable one by one: "
        f"{ROWS / batch_seconds:,.0f} rows/s"
    )
    get_seconds = get_latency(stage)
    many_seconds = _get_many(stage)
    with stage.timed() as scan_seconds:
        found = orders.scan().to_arrow()
    check_equal(found, stage.table.all_rows, "a scan of what was written")
    narrator.say(
        f"get from memory: {get_seconds * 1e6:.0f} µs at the median; "
        f"{_KEYS_AT_ONCE:,} keys at once: {_KEYS_AT_ONCE / many_seconds:,.0f} keys/s; "
        f"scan: {ROWS / scan_seconds():,.0f} rows/s"
    )
    narrator.found(f"one row for each of {ROWS:,} keys, every one compared: equal")
    return (
        Finding("single_rows", row_count),
        Finding(
            "single_rows_per_second",
            round(row_count / row_seconds()),
            "single rows written per second, each durable before its put returned",
        ),
        Finding("syncs", round(syncs)),
        Finding("rows_per_sync", round(shared, 2)),
        Finding("batch_rows", ROWS),
        Finding(
            "batch_rows_per_second",
            round(ROWS / batch_seconds),
            "rows written per second in Arrow batches",
        ),
        Finding("memory_get_microseconds", round(get_seconds * 1e6, 1)),
        Finding("keys_per_second", round(_KEYS_AT_ONCE / many_seconds)),
    )


def get_latency(stage: Stage) -> float:
    """Get rows by key and compare each; gives the median of the seconds a get takes."""
    seconds = []
    for number in _spread(_GETS):
        key = stage.table.key_values(number)
        began_at = stage.clock.monotonic()
        row = stage.orders.get(key)
        seconds.append(stage.clock.monotonic() - began_at)
        check(row == stage.table.row(number), f"get of key {key} is not its row")
    return median(seconds)


def _spread(count: int) -> Sequence[int]:
    return [place * _STRIDE % ROWS for place in range(count)]


def _get_many(stage: Stage) -> float:
    numbers = _spread(_KEYS_AT_ONCE)
    keys = [stage.table.key_values(number) for number in numbers]
    with stage.timed() as seconds:
        found = stage.orders.get_many(keys)
    due = [dict(stage.table.row(number)) for number in numbers]
    check(found.to_pylist() == due, "get_many gives other rows than asked for")
    return seconds()


def _put_single_rows(stage: Stage) -> int:
    """Put rows from all threads at once, for a bounded time; gives how many."""
    failures: list[BaseException] = []
    done = [0] * _THREADS  # each thread counts for itself
    ends_at = stage.clock.monotonic() + _SECONDS_MAX
    total = _THREADS * _ROWS_PER_THREAD

    def put_share(thread: int) -> None:
        try:
            for number in range(thread, total, _THREADS):
                if stage.clock.monotonic() > ends_at:
                    return
                stage.orders.put(stage.table.row(number))
                done[thread] += 1
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [Thread(target=put_share, args=(thread,)) for thread in range(_THREADS)]
    with stage.narrator.progress("single rows", total=total) as told:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.05)
                told(sum(done))
    if failures:
        raise failures[0]
    return sum(done)


def _upsert_batches(stage: Stage) -> float:
    """Write all rows as Arrow batches; gives the seconds of writing, making rows left out."""
    seconds = 0.0
    with stage.narrator.progress("Arrow batches", total=_BATCHES) as told:
        for batch in range(_BATCHES):
            first = batch * _ROWS_PER_BATCH
            rows = stage.table.rows(range(first, first + _ROWS_PER_BATCH))
            began_at = stage.clock.monotonic()
            stage.orders.upsert(rows)
            seconds += stage.clock.monotonic() - began_at
            told(batch + 1)
    return seconds
