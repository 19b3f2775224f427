"""A seeded life of one log, and the rule that what survives it must obey.

The history knows which batches were submitted under which sequence numbers and how far they must
be durable. After a crash the log may hold more, but only whole batches, in order, as submitted.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pyarrow as pa

from neve.errors import Corruption, NeveError, NotFound
from neve.model.write_batch import (
    Change,
    DeleteRow,
    DeleteRows,
    PutRow,
    UpsertRows,
    WriteBatch,
)
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.wal.batch_codec import encode_changes
from neve.wal.durability import LogMark, LogOwner, MarkedLog
from neve.wal.log_options import LogOptions, LogPlace, LogTools, SyncPolicy
from neve.wal.replay import LogFile, Replay
from neve.wal.write_ahead_log import WriteAheadLog
from tests.crash.disk_trouble import MortalDisk, ProcessKilled

ROOT = "/disk/lakes/lake"
TABLE = UUID(int=7)
MARK = "wal.mark"


def log_path(number: int) -> str:
    return f"wal/{number:06}.wal"


def find_logs(store: LocalStore) -> list[LogFile]:
    return [
        LogFile(number=int(found.path[4:-4]), path=found.path)
        for found in store.list("wal/")
        if found.path.endswith(".wal")
    ]


@dataclass
class History:
    """What a writer did and was told."""

    submitted: dict[int, tuple[Change, ...]] = field(default_factory=dict)
    required_through: int = 0
    flushed_through: int = 0
    floor: int = 1
    last_log_number: int = 0

    def forget_behind(self, sequence: int) -> None:
        """Drop batches that a recovery found lost; their numbers are given again."""
        self.submitted = {
            first: changes for first, changes in self.submitted.items() if first < sequence
        }


class Violation(AssertionError):
    """A promise of the log was broken."""


def check_recovery(disk: Disk, history: History, seed: int = 0) -> int:
    """Recover from a disk and hold it against the history; gives the next sequence number."""
    store = LocalStore(ROOT, disk=disk, ids=SeededIds(seed), clock=SimulatedClock())
    replaying = begin_replay(store, history)
    try:
        batches = list(replaying)
    except NeveError as error:
        raise Violation(f"recovery refused: {error}") from error
    due: int | None = None
    for logged in batches:
        if due is not None and logged.sequence != due:
            raise Violation(f"row {logged.sequence} follows where {due} is due")
        if history.submitted.get(logged.sequence) != logged.batch.changes:
            raise Violation(f"batch {logged.sequence} is not what was submitted")
        due = logged.next_sequence
    reached = (due or history.flushed_through + 1) - 1
    if reached < history.required_through:
        raise Violation(f"rows {reached + 1} to {history.required_through} were lost")
    assert replaying.report.next_sequence is not None
    return replaying.report.next_sequence


def read_mark(store: LocalStore) -> LogMark | None:
    try:
        return LogMark.decode(store.get(MARK).payload, path=MARK)
    except NotFound:
        return None
    except Corruption as error:
        raise Violation(f"recovery refused: {error}") from error


def begin_replay(store: LocalStore, history: History) -> Replay:
    """Replay what is needed, held against the mark."""
    mark = read_mark(store)
    marked = None
    if mark is not None and mark.log_number >= history.floor:
        marked = MarkedLog(mark=mark, path=log_path(mark.log_number))
    return Replay(
        store,
        [log for log in find_logs(store) if log.number >= history.floor],
        from_sequence=history.flushed_through + 1,
        table=TABLE,
        marked=marked,
    )


def check_survivor(disk: Disk, history: History, seed: int) -> None:
    """Recover what a crash left; then lose the log of the last durable row, which is noticed."""
    check_recovery(disk, history, seed)
    if history.required_through <= history.flushed_through:
        return
    store = LocalStore(ROOT, disk=disk, ids=SeededIds(seed), clock=SimulatedClock())
    logs = [log for log in find_logs(store) if log.number >= history.floor]
    starts = [(log, Replay(store, [log])._read_start(log)) for log in logs]
    holding = [
        log
        for log, start in starts
        if start is not None and start.sequence <= history.required_through
    ]
    store.delete(holding[-1].path)
    try:
        list(begin_replay(store, history))
    except Corruption:
        return
    raise Violation(f"nobody noticed that {holding[-1].path} is gone")


def random_batch(rng: Random) -> WriteBatch:
    changes: list[Change] = []
    if rng.random() < 0.15:
        ids = [rng.randrange(1_000) for _ in range(rng.randint(1, 300))]
        rows = pa.record_batch({"id": ids, "text": [rng.randbytes(9) for _ in ids]})
        return WriteBatch((UpsertRows(rows), DeleteRows(rows.select(["id"]))))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        key = rng.randbytes(rng.randint(1, 12))
        size = rng.choice((0, 10, 100, 3_000, 9_000))
        changes.append(DeleteRow(key) if rng.random() < 0.2 else PutRow(key, rng.randbytes(size)))
    return WriteBatch(tuple(changes), schema_version=rng.choice((1, 200)))


def live_twice(disk: Disk, history: History, seed: int) -> None:
    """Live two generations on one disk; the first may be killed, the second recovers."""
    rng = Random(seed)
    killed_at = rng.choice((10_000, rng.randint(1, 12), rng.randint(12, 80)))
    mortal = MortalDisk(disk, killed_at + 1)
    with suppress(ProcessKilled):
        live(mortal, history, seed)
    mortal.revive()
    live(disk, history, seed + 1_000_003)


def live(disk: Disk, history: History, seed: int, *, steps: int = 12) -> None:
    """Recover, then write, rotate, truncate and close as the seed says."""
    rng = Random(seed)
    next_sequence = check_recovery(disk, history, seed)
    history.forget_behind(next_sequence)
    store = LocalStore(ROOT, disk=disk, ids=SeededIds(seed + 1), clock=SimulatedClock())
    older = find_logs(store)
    mark = read_mark(store)
    history.last_log_number = max([history.last_log_number, *(log.number for log in older)]) + 1
    options = LogOptions(
        sync=rng.choice(tuple(SyncPolicy)),
        sync_interval_seconds=rng.choice((0.01, 5.0)),
        segment_bytes=32 << 10,
        preallocate=rng.random() < 0.7,
        recycle_count=rng.choice((0, 1, 2)),
    )
    clock = SimulatedClock()
    log = WriteAheadLog(
        LogPlace(
            logs=store,
            log_path=log_path,
            owner=LogOwner(
                table=TABLE,
                epoch=seed,
                mark_path=MARK,
                owned_from=None if mark is None else mark.owned_from,
            ),
        ),
        next_log_number=history.last_log_number,
        next_sequence=next_sequence,
        older_logs=older,
        options=options,
        tools=LogTools(clock=clock, ids=SeededIds(seed + 2)),
    )
    # An open log has made durable what recovery found; readers may have seen it.
    history.required_through = max(history.required_through, next_sequence - 1)
    for _ in range(steps):
        _step(log, history, rng, clock)
        history.last_log_number = log.active_log_number
    if rng.random() < 0.5:
        log.close()
        history.required_through = log.next_sequence - 1


def _is_put_in_one_step(log: WriteAheadLog, batch: WriteBatch, rng: Random) -> bool:
    """Put a row that is alone in its batch, mostly; False when that is left to `append`."""
    change = batch.changes[0]
    if len(batch.changes) > 1 or not isinstance(change, PutRow) or rng.random() < 0.3:
        return False
    shown: list[int] = []
    version = batch.schema_version
    put = log.append_put(change.key, change.value, version, lambda at, *_row: shown.append(at))
    assert shown == ([put] if put else [])
    return bool(put)


def _step(log: WriteAheadLog, history: History, rng: Random, clock: SimulatedClock) -> None:
    choice = rng.random()
    if choice < 0.7:
        batch = random_batch(rng)
        history.submitted[log.next_sequence] = batch.changes
        clock.advance(rng.choice((0.001, 1.0)))
        if not _is_put_in_one_step(log, batch, rng):
            log.append(encode_changes(batch))
        history.required_through = max(history.required_through, log.durable_through)
    elif choice < 0.8:
        if rng.random() < 0.8:
            log.rotate()
        else:
            log.give_back_space()  # a log that reserved nothing stays as it is
        history.required_through = max(history.required_through, log.durable_through)
    elif choice < 0.9:
        log.sync_once()
        history.required_through = log.next_sequence - 1
    else:
        # A flush: rows up to here are in data files now, and the manifest says so durably.
        history.flushed_through = max(
            history.flushed_through,
            rng.choice([log.durable_through, *(c.end_sequence - 1 for c in log.closed_logs)]),
        )
        history.required_through = max(history.required_through, history.flushed_through)
        history.floor = log.floor_for(history.flushed_through)
        log.truncate_below(history.floor)
