"""The acts of the demo, in the order in which they are played.

Each is one function from the stage to what it found, and each checks what it claims: an act whose
claim does not hold raises, and the demo ends with that error's exit code.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from threading import Thread
from typing import Final

import pyarrow.compute as pc

from neve.cli.demo_crash import crash
from neve.cli.demo_rocksdb import rocksdb
from neve.cli.demo_stage import Finding, Stage
from neve.cli.log_drawing import LogDrawing
from neve.cli.log_file import LogFileOnDisk
from neve.errors import Corruption
from neve.model.write_batch import DeleteRow, PutRow, UpsertRows, WriteBatch
from neve.observability.metrics import WAL_BATCHES, WAL_SYNCS, Counters
from neve.storage.table_paths import TablePaths
from neve.wal.batch_codec import encode_changes
from neve.wal.inspection import LogInspection
from neve.wal.log_ending import Ending
from neve.wal.log_options import LogOptions
from neve.wal.record_format import BLOCK_BYTES
from neve.wal.recovery_mode import RecoveryMode
from neve.wal.replay import LogFile, Replay
from neve.wal.write_ahead_log import WriteAheadLog

_KEYS: Final = 100_000
_THREADS: Final = 16
_ROWS_PER_THREAD: Final = 250
_SECONDS_MAX: Final = 5.0
_BATCHES: Final = 20
_ROWS_PER_BATCH: Final = 10_000
_SEGMENT_BYTES: Final = 4 << 20
_RECORDS_DRAWN: Final = 6


@dataclass(frozen=True, slots=True)
class Act:
    """One act: its name in the JSON, its title, and the function that plays it."""

    name: str
    title: str
    play: Callable[[Stage], tuple[Finding, ...]]


def keys(stage: Stage) -> tuple[Finding, ...]:
    """Encode keys, and show that their bytes sort as their values do."""
    table = stage.table
    narrator = stage.narrator
    columns = ", ".join(f"{column.name} {column.type}" for column in table.schema.columns)
    narrator.say(f"a table of orders: {columns}")
    narrator.say(f"primary key ({', '.join(table.encoder.names)}), encoded so that bytes sort:")
    for number in (8, 16, 1):
        row = table.row(number)
        narrator.say(f"  {row['customer']!s:<9}{row['id']:>3}  {table.key(number).hex(' ')}")
    rows = table.rows(range(_KEYS))
    began_at = stage.clock.monotonic()
    encoded = table.encoder.encode_arrays([rows.column("customer"), rows.column("id")])
    seconds = stage.clock.monotonic() - began_at
    by_bytes = pc.array_sort_indices(encoded)
    by_value = pc.sort_indices(rows, [("customer", "ascending"), ("id", "ascending")])
    if not by_bytes.equals(by_value):
        raise Corruption("keys do not sort as their values do")
    narrator.found(f"{_KEYS:,} keys encoded in {seconds * 1000:.0f} ms; bytes sort as values do")
    return (
        Finding("keys", _KEYS),
        Finding("keys_per_second", round(_KEYS / seconds), "keys encoded per second"),
    )


def write(stage: Stage) -> tuple[Finding, ...]:
    """Write single rows from many threads and Arrow batches, and read all of it back."""
    narrator = stage.narrator
    counters = Counters()
    paths = stage.paths("orders")
    log = _open_log(stage, paths, counters)
    began_at = stage.clock.monotonic()
    written = _write_single_rows(stage, log)
    row_seconds = stage.clock.monotonic() - began_at
    appends, syncs = counters.total(WAL_BATCHES), counters.total(WAL_SYNCS)
    shared = appends / max(1, syncs)
    narrator.say(
        f"{len(written):,} single rows from {_THREADS} threads, each durable before its put "
        f"returns: {len(written) / row_seconds:,.0f} rows/s"
    )
    narrator.found(f"group commit: {syncs:,.0f} syncs in all, {shared:.1f} rows share each one")
    batch_seconds = _write_batches(stage, log)
    batch_rows = _BATCHES * _ROWS_PER_BATCH
    narrator.say(
        f"{batch_rows:,} rows as {_BATCHES} Arrow batches, durable one by one: "
        f"{batch_rows / batch_seconds:,.0f} rows/s"
    )
    log.append(encode_changes(WriteBatch((DeleteRow(stage.table.key(0)),))))
    log.close()
    logs = stage.logs(paths)
    read_seconds = _check_orders(stage, logs, written)
    narrator.found(
        f"read back from {len(logs)} logs in {read_seconds:.2f} s, every row compared: equal"
    )
    return (
        Finding("single_rows", len(written)),
        Finding(
            "single_rows_per_second",
            round(len(written) / row_seconds),
            "single rows written per second, each durable before its put returned",
        ),
        Finding("syncs", round(syncs)),
        Finding("rows_per_sync", round(shared, 2), "of these rows shared one sync, on average"),
        Finding("batch_rows", batch_rows),
        Finding(
            "batch_rows_per_second",
            round(batch_rows / batch_seconds),
            "rows written per second in Arrow batches",
        ),
        Finding("logs", len(logs)),
    )


def damage(stage: Stage) -> tuple[Finding, ...]:
    """Flip one bit in a copy of a log, and show that it is reported and not returned."""
    narrator = stage.narrator
    original = stage.logs(stage.paths("orders"))[0]
    content = bytearray(stage.store.get(original.path).payload)
    flipped_at = _offset_of_row(stage, original, number=100)
    content[flipped_at] ^= 0x10
    copy = LogFile(number=original.number, path=stage.paths("damaged").wal_file(0, original.number))
    stage.store.put(copy.path, bytes(content))
    narrator.say(f"one bit flipped at byte {flipped_at:,} of a copy; opening it says:")
    found_at = _refused_at(stage, copy)
    before = _rows_in_mode(stage, copy, RecoveryMode.POINT_IN_TIME)
    readable = _rows_in_mode(stage, copy, RecoveryMode.SKIP_CORRUPT)
    whole = _rows_in_mode(stage, original, RecoveryMode.ABSOLUTE)
    narrator.found("not one wrong row was given, and `neve inspect wal` says the same")
    narrator.say(
        f"on request there are the {before:,} rows before the damage, or the {readable:,} of "
        f"{whole:,} that can still be read"
    )
    narrator.say(
        f"one bit costs {whole - readable:,} rows: with the checksum wrong, the record's length is "
        f"in doubt too, and with it everything behind it in its block of {BLOCK_BYTES:,} bytes"
    )
    return (
        Finding("flipped_at", flipped_at),
        Finding("reported_at", found_at),
        Finding("rows_before", before),
        Finding("rows_readable", readable),
    )


def drawing(stage: Stage) -> tuple[Finding, ...]:
    """Draw the beginning of the log, as `neve inspect wal` does."""
    log = stage.logs(stage.paths("orders"))[0]
    size = stage.store.size(log.path)

    def read_at(offset: int, length: int) -> bytes:
        return stage.store.get_range(log.path, start=offset, length=length)

    file = LogFileOnDisk(
        name=log.path.rpartition("/")[2],
        byte_count=size,
        log_number=log.number,
        read_at=read_at,
    )
    picture = LogDrawing(
        file,
        LogInspection(read_at, log_number=log.number),
        columns=stage.narrator.columns,
        limit=_RECORDS_DRAWN,
        hex_only=False,
    )
    for line in picture.lines():
        stage.narrator.show(line)
    assert picture.ending is not None, "a drawing ends with the log's Ending"
    return (Finding("records", picture.ending.record_count),)


ACTS: Final = (
    Act("keys", "A table, and keys whose bytes sort", keys),
    Act("write", "Rows and Arrow batches, durable when acknowledged", write),
    Act("crash", "A writer is killed in the middle of writing", crash),
    Act("damage", "One bit flips", damage),
    Act("drawing", "What is in a log", drawing),
    Act("rocksdb", "The same log, opened by the real RocksDB", rocksdb),
)


def _open_log(stage: Stage, paths: TablePaths, counters: Counters) -> WriteAheadLog:
    return WriteAheadLog(
        files=stage.store,
        store=stage.store,
        log_path=lambda number: paths.wal_file(0, number),
        next_log_number=1,
        next_sequence=1,
        options=LogOptions(segment_bytes=_SEGMENT_BYTES, recycle_count=0),
        recorder=counters,
    )


def _write_single_rows(stage: Stage, log: WriteAheadLog) -> dict[int, int]:
    """Write from all threads at once; gives the row number of each sequence number."""
    written: dict[int, int] = {}  # one assignment per row: safe between threads
    failures: list[BaseException] = []
    ends_at = stage.clock.monotonic() + _SECONDS_MAX
    total = _THREADS * _ROWS_PER_THREAD

    def write_share(first: int) -> None:
        try:
            for number in range(first, total, _THREADS):
                if stage.clock.monotonic() > ends_at:
                    return
                written[log.append(stage.table.put(number))] = number
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            failures.append(error)

    threads = [Thread(target=write_share, args=(first,)) for first in range(_THREADS)]
    with stage.narrator.progress("single rows", total=total) as told:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(timeout=0.05)
                told(len(written))
    if failures:
        raise failures[0]
    return written


def _write_batches(stage: Stage, log: WriteAheadLog) -> float:
    """Write the Arrow batches; gives the seconds that writing takes, making rows left out."""
    seconds = 0.0
    with stage.narrator.progress("Arrow batches", total=_BATCHES) as told:
        for batch in range(_BATCHES):
            first = batch * _ROWS_PER_BATCH
            rows = stage.table.rows(range(first, first + _ROWS_PER_BATCH))
            began_at = stage.clock.monotonic()
            changes = WriteBatch((UpsertRows(rows),), stage.table.schema.schema_id)
            log.append(encode_changes(changes))
            seconds += stage.clock.monotonic() - began_at
            told(batch + 1)
    return seconds


def _check_orders(stage: Stage, logs: list[LogFile], written: dict[int, int]) -> float:
    """Replay the logs and compare every row; gives the seconds that replaying alone takes."""
    began_at = stage.clock.monotonic()
    batches = list(Replay(stage.store, logs))
    seconds = stage.clock.monotonic() - began_at
    single_rows = arrow_batches = 0
    for logged in batches:
        change = logged.batch.changes[0]
        if isinstance(change, PutRow):
            number = written.get(logged.sequence, -1)
            equal = stage.table.is_row(number, key=change.key, value=change.value)
            single_rows += 1
        elif isinstance(change, UpsertRows):
            first = arrow_batches * _ROWS_PER_BATCH
            equal = change.rows.equals(stage.table.rows(range(first, first + _ROWS_PER_BATCH)))
            arrow_batches += 1
        else:
            equal = change == DeleteRow(stage.table.key(0))
        if not equal:
            raise Corruption(f"row {logged.sequence:,} is not what was written")
    if (single_rows, arrow_batches) != (len(written), _BATCHES):
        raise Corruption(f"{single_rows:,} rows and {arrow_batches} batches were read back")
    return seconds


def _refused_at(stage: Stage, log: LogFile) -> int:
    """Tell what opening a damaged log says; gives the byte, which inspection must name too."""
    try:
        batch_count = sum(1 for _ in Replay(stage.store, [log]))
    except Corruption as error:
        told_at = error.offset
    else:
        raise Corruption(f"a flipped bit went unnoticed, {batch_count} batches were read")
    *_, ending = _inspected(stage, log).records()
    if not isinstance(ending, Ending) or ending.offset != told_at:
        raise Corruption("inspection names another place than recovery", path=log.path)
    stage.narrator.say(f"  Corruption: {ending.detail}")
    stage.narrator.say(
        f"  in {log.path} at byte {ending.offset:,}, where the damaged record begins"
    )
    return ending.offset


def _offset_of_row(stage: Stage, log: LogFile, *, number: int) -> int:
    """Give a byte in the middle of the log's record with this number."""
    item = next(islice(_inspected(stage, log).records(), number, None))
    return item.offset + 40


def _inspected(stage: Stage, log: LogFile) -> LogInspection:
    return LogInspection(
        lambda offset, length: stage.store.get_range(log.path, start=offset, length=length),
        log_number=log.number,
    )


def _rows_in_mode(stage: Stage, log: LogFile, mode: RecoveryMode) -> int:
    replay = Replay(stage.store, [log], mode=mode)
    return sum(logged.next_sequence - logged.sequence for logged in replay)
