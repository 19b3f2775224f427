"""The act in which the table gets its rows: one by one from many threads, then as Arrow batches.

1. Put single rows from many threads; each is durable before its put returns.
2. Upsert all rows as Arrow batches, the same keys once more.
3. Get a few rows from memory, and compare each.
"""

from threading import Thread
from typing import Final

from examples.demo.order_rows import ROWS
from examples.demo.stage import Finding, Found, Latency, Stage, Timing, check

from neve.observability.metrics import WAL_BATCHES, WAL_SYNCS

_THREADS: Final = 16
_ROWS_PER_THREAD: Final = 250
_SECONDS_MAX: Final = 5.0
_BATCHES: Final = 40
_ROWS_PER_BATCH: Final = ROWS // _BATCHES
_GETS: Final = 2_000
# Coprime to the number of rows: every get asks for another one.
_STRIDE: Final = 7_919


def write(stage: Stage) -> tuple[Found, ...]:
    """Fill the table."""
    narrator = stage.narrator
    narrator.say("a write-ahead log, Parquet files and Iceberg metadata in one directory")
    narrator.say(f"shop.orders is called {stage.orders.name} here, so that runs never meet")
    with stage.timed() as seconds:
        latency, row_count = _put_single_rows(stage)
    puts = Timing(
        name="put",
        what=f"put, from {_THREADS} threads",
        latency=latency,
        rows_per_second=row_count / seconds(),
    )
    syncs = stage.counters.total(WAL_SYNCS)
    shared = stage.counters.total(WAL_BATCHES) / max(1, syncs)
    narrator.say(f"{row_count:,} live puts from {_THREADS} threads, each one synced: {latency}")
    narrator.found(f"group commit: {shared:.1f} puts share one sync of the disk")
    batches = _upsert_batches(stage)
    narrator.say(
        f"{_BATCHES} upserts of {_ROWS_PER_BATCH:,} rows as Arrow: {batches.latency}; "
        f"{batches.rows_per_second:,.0f} rows/s; the rows put before are among them"
    )
    memory = get_latency(stage)
    narrator.found(f"readable at once, get by key from memory: {memory}")
    return (
        Finding("single_rows", row_count),
        puts,
        Finding("syncs", round(syncs)),
        Finding("rows_per_sync", round(shared, 2), "live puts shared each sync of the disk"),
        Finding("batch_rows", ROWS),
        batches,
        Timing(
            name="memory_get",
            what="get, from memory",
            latency=memory,
            rows_per_second=1 / memory.p50,
        ),
    )


def get_latency(stage: Stage) -> Latency:
    """Get rows by key and compare each; gives the seconds a get takes."""
    seconds = []
    for number in spread(_GETS):
        key = stage.table.key_values(number)
        began_at = stage.clock.monotonic()
        row = stage.orders.get(key)
        seconds.append(stage.clock.monotonic() - began_at)
        check(row == stage.table.row(number), f"get of key {key} is not its row")
    return Latency.of(seconds)


def spread(count: int) -> list[int]:
    """Return numbers of rows from all over the table."""
    return [place * _STRIDE % ROWS for place in range(count)]


def _put_single_rows(stage: Stage) -> tuple[Latency, int]:
    """Put rows from all threads at once, for a bounded time; gives how long each took."""
    failures: list[BaseException] = []
    seconds: list[list[float]] = [[] for _ in range(_THREADS)]  # each thread has its own
    ends_at = stage.clock.monotonic() + _SECONDS_MAX
    total = _THREADS * _ROWS_PER_THREAD

    def put_share(thread: int) -> None:
        try:
            for number in range(thread, total, _THREADS):
                row = stage.table.row(number)
                began_at = stage.clock.monotonic()
                if began_at > ends_at:
                    return
                stage.orders.put(row)
                seconds[thread].append(stage.clock.monotonic() - began_at)
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [Thread(target=put_share, args=(thread,)) for thread in range(_THREADS)]
    with stage.narrator.progress("live puts", total=total) as told:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.05)
                told(sum(map(len, seconds)))
    if failures:
        raise failures[0]
    taken = [each for share in seconds for each in share]
    return Latency.of(taken), len(taken)


def _upsert_batches(stage: Stage) -> Timing:
    """Write all rows as Arrow batches; the time to make the rows is left out."""
    seconds = []
    with stage.narrator.progress("Arrow batches", total=_BATCHES) as told:
        for batch in range(_BATCHES):
            first = batch * _ROWS_PER_BATCH
            rows = stage.table.rows(range(first, first + _ROWS_PER_BATCH))
            began_at = stage.clock.monotonic()
            stage.orders.upsert(rows)
            seconds.append(stage.clock.monotonic() - began_at)
            told(batch + 1)
    return Timing(
        name="upsert",
        what=f"upsert, {_ROWS_PER_BATCH:,} rows",
        latency=Latency.of(seconds),
        rows_per_second=ROWS / sum(seconds),
    )
