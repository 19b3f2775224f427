"""The acts on the table of orders: write, query, change, travel, upkeep, damage and levels.

write      single rows from many threads, each durable before its put returns; then Arrow batches
query      flush, then read: by key, by many keys, by scan and by filter
change     updates and deletes mark rows in vectors
travel     old Versions, the change feed between them, a tag, a rollback
upkeep     compact, expire, collect garbage
damage     one flipped bit of a data file, which is reported
levels     rows sink through levels that are as small as the demo; what is left is drawn

Each act compares what the table returns with the rows that follow from their numbers.
"""

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from examples.demo.level_picture import levels_of_listing
from examples.demo.order_rows import (
    CHANGED,
    DELETED,
    DELETED_FROM,
    FIRST_LOAD,
    LAST_DAY,
    ROWS,
    by_key,
)
from examples.demo.stage import (
    Finding,
    Found,
    Latency,
    LevelsFound,
    Stage,
    Timing,
    check,
    check_equal,
    shown_seconds,
)
from neve.engine.table_options import TableOptions
from neve.errors import Corruption
from neve.model.display import counted, shown_bytes
from neve.observability.metrics import WAL_BATCHES, WAL_SYNCS

_THREADS: Final = 16
_ROWS_PER_THREAD: Final = 250
_SECONDS_MAX: Final = 5.0
_BATCHES: Final = 40
_ROWS_PER_BATCH: Final = ROWS // _BATCHES
_GETS: Final = 2_000
# Coprime to the number of rows: every get asks for another one.
_STRIDE: Final = 7_919
_KEYS_AT_ONCE: Final = 1_000
_GET_MANY_CALLS: Final = 5
_AMOUNT_ABOVE: Final = 999
_CENT: Final = Decimal("0.01")
TAG: Final = "first-load"
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
    """Get rows by key and compare each; return the seconds a get takes."""
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
    """Put rows from all threads at once, for a bounded time; return how long each took."""
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
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
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
        check(found.to_pylist() == due, "get_many returns other rows than asked for")
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


def change(stage: Stage) -> tuple[Found, ...]:
    """Update and delete rows; nothing is rewritten, and the Version is clean again."""
    narrator, orders = stage.narrator, stage.orders
    before = set(orders.files()["file_path"].to_pylist())
    changed = stage.table.changed_rows(CHANGED)
    with stage.timed() as seconds:
        orders.upsert(changed)
        orders.delete_many([stage.table.key_values(number) for number in DELETED])
        orders.delete_where(f"id >= {DELETED_FROM}")
        version = orders.flush()
    stats = orders.stats()
    check(before <= set(orders.files()["file_path"].to_pylist()), "a file was rewritten")
    due = stage.table.rows_after
    check_equal(orders.scan().to_arrow(), due, "a scan after changes")
    narrator.say(
        f"{len(CHANGED):,} rows updated and {ROWS - due.num_rows:,} deleted, flushed as Version "
        f"{version} in {shown_seconds(seconds())}"
    )
    narrator.found(
        f"{stats.deleted_count:,} old rows marked in {counted(stats.vector_count, 'small vector')}"
        ", no file rewritten"
    )
    return (
        Finding("changed_rows", len(CHANGED)),
        Finding("marked_rows", stats.deleted_count),
        Finding("vectors", stats.vector_count),
        Finding("change_seconds", round(seconds(), 3)),
    )


def travel(stage: Stage) -> tuple[Found, ...]:
    """Read old Versions and what changed between them; freeze, name, and go back and forth."""
    narrator, orders = stage.narrator, stage.orders
    newest = orders.version
    with orders.at(FIRST_LOAD) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, f"Version {FIRST_LOAD}")
    narrator.found(f"Version {FIRST_LOAD} is as it was: {ROWS:,} rows, none of them changed")
    told = _changes(stage, newest)
    with orders.snapshot() as frozen:
        orders.put({**stage.table.row(0), "note": "newer than the snapshot"})
        key = stage.table.key_values(0)
        seen, now = frozen.get(key), orders.get(key)
        check(seen == stage.table.changed_row(0), "a snapshot changed")
        check(now is not None and now["note"] != "changed", "a put is not seen")
    narrator.found("a snapshot stays as it is while the table is written to")
    orders.tag(TAG, FIRST_LOAD)
    orders.rollback(FIRST_LOAD)
    check_equal(orders.scan().to_arrow(), stage.table.all_rows, "after a rollback")
    orders.rollback(newest)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "after rolling forward")
    narrator.found(
        f"rolled back to Version {FIRST_LOAD}, then forward to {newest}; a tag keeps the old one"
    )
    return (
        Finding("versions", orders.history().num_rows),
        Finding("rolled_back_to", FIRST_LOAD),
        Finding("changes_told", sum(told.values())),
    )


def _changes(stage: Stage, newest: int) -> Counter[str]:
    """Read the change feed of the Version that updated and deleted rows; compare it."""
    with stage.timed() as seconds:
        feed = stage.orders.changes(since=FIRST_LOAD, until=newest).read_all()
    told = Counter(map(str, feed["_change_type"].to_pylist()))
    updated = [number for number in CHANGED if number < DELETED_FROM]
    deleted = ROWS - stage.table.rows_after.num_rows
    check(
        told
        == {
            "update_preimage": len(updated),
            "update_postimage": len(updated),
            "delete": deleted,
        },
        f"the change feed has {dict(told)}",
    )
    after = feed.filter(pc.field("_change_type") == "update_postimage")
    due = by_key(pa.Table.from_batches([stage.table.changed_rows(updated)]))
    after = after.select(due.column_names).cast(due.schema)
    check_equal(after, due, "the rows of the change feed")
    stage.narrator.found(
        f"change feed: {len(updated):,} updates, before and after, and {deleted:,} deletes in "
        f"{shown_seconds(seconds())}; {len(CHANGED) - len(updated):,} rows were updated, then "
        "deleted: one delete each"
    )
    return told


def upkeep(stage: Stage) -> tuple[Found, ...]:
    """Compact, expire, and collect garbage; the rows stay the same."""
    narrator, orders = stage.narrator, stage.orders
    before = _byte_count(stage)
    rows = orders.stats().row_count
    with (
        narrator.progress("compaction", total=rows) as told,
        stage.timed() as seconds,
    ):
        version = orders.compact(full=True, progress=lambda done, _total: told(done))
    stats = orders.stats()
    check(stats.deleted_count == 0, "a full compaction left marked rows")
    narrator.say(
        f"compacted into {counted(stats.file_count, 'file')} as Version {version} in "
        f"{shown_seconds(seconds())}, without a marked row"
    )
    kept = orders.expire(keep_last=1)
    check(kept.kept_versions, "a tag did not keep its Version")
    orders.collect_garbage(dry_run=False)
    with orders.at(tag=TAG) as old:
        check_equal(old.scan().to_arrow(), stage.table.all_rows, "a tagged Version")
    narrator.found("old Versions expired; the tagged one still reads as it was")
    orders.remove_tag(TAG)
    orders.expire(keep_last=1)
    orders.collect_garbage(dry_run=False)
    after = _byte_count(stage)
    check(after < before, "garbage was collected, and no byte is gone")
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan after collecting garbage")
    narrator.found(
        f"without the tag its files go too: {shown_bytes(before)} before, {shown_bytes(after)} now"
    )
    report = orders.verify()
    narrator.found(
        f"verified, every byte: {counted(report.file_count, 'file')}, {report.row_count:,} rows"
    )
    return (
        Finding("bytes_before", before),
        Finding("bytes_after", after, f"bytes on disk after clean-up, {before:,} before"),
        Finding("compact_seconds", round(seconds(), 3)),
    )


def damage(stage: Stage) -> tuple[Found, ...]:
    """Flip one bit of a data file: it is reported, never returned as data."""
    narrator, orders = stage.narrator, stage.orders
    paths = [_root(stage) / path for path in map(str, orders.files()["file_path"].to_pylist())]
    path = max(paths, key=lambda each: each.stat().st_size)
    content = path.read_bytes()
    flipped_at = len(content) // 2
    path.write_bytes(_flipped(content, flipped_at))
    narrator.say(f"one bit flipped at byte {flipped_at:,} of a data file of {len(content):,} bytes")
    for call, run in (("verify", orders.verify), ("scan", orders.scan().to_arrow)):
        told = _reported(run)
        check(told.path and told.path.endswith(path.name), f"{call} names another file")
        narrator.found(f"{call} raises Corruption: {told.message}")
    path.write_bytes(content)
    check_equal(orders.scan().to_arrow(), stage.table.rows_after, "a scan of the restored file")
    orders.verify()
    narrator.found("not one wrong row was given; with the file restored all is sound")
    return (Finding("flipped_at", flipped_at), Finding("reported", value=True))


def _byte_count(stage: Stage) -> int:
    """Bytes of data files, their index files and vectors, of all Versions."""
    root = _root(stage)
    folders = [root / name for name in ("data", "index", "deletes")]
    return sum(
        path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()
    )


def _root(stage: Stage) -> Path:
    return stage.root / Path("tables", stage.orders.table_id)


def _flipped(content: bytes, place: int) -> bytes:
    damaged = bytearray(content)
    damaged[place] ^= 0x10
    return bytes(damaged)


def _reported(run: Callable[[], object]) -> Corruption:
    """Return the error of a call that reads a damaged file."""
    try:
        run()
    except Corruption as error:
        return error
    raise Corruption("a flipped bit went unnoticed")


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
