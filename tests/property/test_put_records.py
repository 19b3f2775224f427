"""Puts that are read together: the rows, the report and the errors of reading them one by one."""

from collections.abc import Iterable
from random import Random

import pytest

from neve.errors import NeveError
from neve.model.write_batch import Change, DeleteRow, PutRow, WriteBatch
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.wal.batch_codec import EncodedChanges, LoggedBatch, encode_changes, encode_put
from neve.wal.log_options import LogOptions, LogPlace, LogTools, SyncPolicy
from neve.wal.put_records import PutRun
from neve.wal.record_format import BLOCK_BYTES
from neve.wal.replay import RecoveryMode, Replay
from neve.wal.write_ahead_log import WriteAheadLog
from tests.property.mutation import mutated
from tests.unit.wal.builders import log_path, logs_in, open_log

Row = tuple[int, object, int]
"""Sequence number, change and schema version."""

LENGTHS = (0, 1, 90, 127, 128, 129, 250, 3_000, 16_383, 16_384, 40_000)
VERSIONS = (0, 0, 0, 1, 127, 128)


def random_changes(rng: Random) -> EncodedChanges:
    version = rng.choice(VERSIONS) if rng.random() < 0.2 else 0
    key = rng.randbytes(rng.choice((0, 8, 8, 8, 127, 128)))
    value = rng.randbytes(rng.choice(LENGTHS) if rng.random() < 0.2 else rng.randrange(300))
    match rng.randrange(12):
        case 0:
            return encode_changes(WriteBatch((DeleteRow(key),), version))
        case 1:
            changes = (PutRow(key, value), PutRow(b"2", b""))
            return encode_changes(WriteBatch(changes, version))
        case _:
            return encode_put(key, value, version)


def written(log: WriteAheadLog, rng: Random, count: int) -> None:
    for _ in range(count):
        log.append(random_changes(rng))


def random_log(rng: Random) -> tuple[MemoryStore, WriteAheadLog]:
    store = MemoryStore()
    sync = rng.choice((SyncPolicy.ALWAYS, SyncPolicy.NONE))
    reserves = rng.random() < 0.5
    options = LogOptions(
        sync=sync, segment_bytes=rng.choice((1 << 16, 1 << 20)), preallocate=reserves
    )
    return store, open_log(store, options=options)


def rows_of(found: Iterable[LoggedBatch | PutRun]) -> list[Row]:
    rows: list[Row] = []
    for each in found:
        if isinstance(each, PutRun):
            changes: list[Change] = [
                PutRow(*row) for row in zip(each.keys, each.values, strict=True)
            ]
            assert each.next_sequence - each.sequence == len(changes) > 0
        else:
            changes = list(each.batch.changes)
        at = each.sequence
        for change in changes:
            rows.append((at, change, each.schema_version))
            at += change.row_count
    return rows


def outcome(replay: Replay, found: Iterable[LoggedBatch | PutRun]) -> object:
    """Return what a replay finds, reports or raises."""
    try:
        rows = rows_of(found)
    except NeveError as error:
        return type(error), error.message, error.path, error.offset, replay.report
    return rows, replay.report


@pytest.mark.parametrize("seed", range(60))
def test_puts_read_together_are_those_read_one_by_one(seed: int) -> None:
    rng = Random(seed)
    store, log = random_log(rng)
    written(log, rng, rng.randrange(400))
    if rng.random() < 0.5:
        log.close()
    if rng.random() < 0.7:
        number = rng.choice([each.number for each in logs_in(store)])
        store.put(log_path(number), mutated(store.get(log_path(number)).payload, rng))
    needed = rng.choice((None, 1, rng.randint(1, 200)))

    for mode in RecoveryMode:
        one_by_one = Replay(store, logs_in(store), mode=mode, from_sequence=needed)
        together = Replay(store, logs_in(store), mode=mode, from_sequence=needed)

        assert outcome(together, together.runs()) == outcome(one_by_one, one_by_one)


@pytest.mark.parametrize("seed", range(40))
def test_reading_on_finds_every_row_once(seed: int) -> None:
    rng = Random(seed)
    store, log = random_log(rng)
    replay = Replay(store, logs_in(store))
    seen = rows_of(replay.runs())
    for _ in range(8):
        written(log, rng, rng.choice((0, 1, 2, 50, 200)))
        while True:
            seen += rows_of(replay.read_on())
            last = replay.last_log
            assert last is not None
            following = [each for each in logs_in(store) if each.number == last.number + 1]
            if not replay.has_log_ended or not following or not replay.begin_next(following[0]):
                break

    assert seen == rows_of(Replay(store, logs_in(store)))


def test_plain_puts_are_read_a_block_at_a_time() -> None:
    store, log = random_log(Random(0))
    for at in range(1_000):
        log.append(encode_put(b"%08d" % at, b"v" * 150, 0))

    runs = [each for each in Replay(store, logs_in(store)).runs() if isinstance(each, PutRun)]

    # One record between two blocks is not whole.
    assert len(runs) <= 1_000 * 202 // BLOCK_BYTES + 1
    assert sum(len(run.keys) for run in runs) >= 1_000 - len(runs)


@pytest.mark.parametrize("sync", list(SyncPolicy))
def test_a_put_in_one_step_makes_the_bytes_of_an_append(sync: SyncPolicy) -> None:
    for seed in range(20):
        rng = Random(seed)
        options = LogOptions(sync=sync, segment_bytes=1 << 16, preallocate=rng.random() < 0.5)
        stores = MemoryStore(), MemoryStore()
        clock = SimulatedClock()
        logs = [same_log(store, options, clock) for store in stores]
        shown: tuple[list[Row], list[Row]] = ([], [])
        taken = 0
        for _ in range(rng.randrange(300)):
            key = rng.randbytes(rng.choice((0, 8, 8, 8, 127, 128)))
            value = rng.randbytes(rng.choice(LENGTHS) if rng.random() < 0.1 else rng.randrange(300))
            version = rng.choice(VERSIONS) if rng.random() < 0.2 else 0
            clock.advance(rng.choice((0.001, 0.001, 1.0)))
            changes = encode_put(key, value, version)
            row = PutRow(key, value)
            logs[0].append(changes, lambda at: shown[0].append((at, row, version)))  # noqa: B023
            put = logs[1].append_put(
                key,
                value,
                version,
                lambda at, *row: shown[1].append((at, PutRow(*row), version)),  # noqa: B023
            )
            taken += put > 0
            if not put:
                logs[1].append(changes, lambda at: shown[1].append((at, row, version)))  # noqa: B023
            if rng.random() < 0.02:
                for log in logs:
                    log.rotate()

        assert shown[0] == shown[1]
        assert taken or len(shown[0]) < 10
        assert len({log.durable_through for log in logs}) == 1
        for log in logs:
            log.close()
        assert [stores[0].get(each.path).payload for each in logs_in(stores[0])] == [
            stores[1].get(each.path).payload for each in logs_in(stores[1])
        ]


def same_log(store: MemoryStore, options: LogOptions, clock: SimulatedClock) -> WriteAheadLog:
    return WriteAheadLog(
        LogPlace(logs=store, log_path=log_path),
        next_log_number=1,
        next_sequence=1,
        options=options,
        tools=LogTools(clock=clock, ids=SeededIds(1)),
    )
