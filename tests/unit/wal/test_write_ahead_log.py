"""The live log: numbers, policies, rotation, recycling, truncation, closing."""

import os
import struct
import threading
from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa
import pytest

from neve.errors import Closed, InvalidArgument, LimitExceeded
from neve.model.write_batch import SEQUENCE_MAX, DeleteRow, PutRow, UpsertRows, WriteBatch
from neve.observability.metrics import WAL_DELETED, WAL_RECYCLED, WAL_SYNCS, Counters
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SimulatedClock
from neve.wal.append_outcome import Unapplied
from neve.wal.batch_codec import EncodedChanges, encode_changes
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.log_options import LogOptions, LogPlace, LogTools, SyncPolicy
from neve.wal.record_format import RECORD_BYTES_MAX, Dialect
from neve.wal.replay import stretches_of
from neve.wal.write_ahead_log import WriteAheadLog
from tests.unit.wal.builders import SMALL, Counting, KeyOf, log_path, logs_in, open_log, put, replay


def counted_log(
    store: MemoryStore, options: LogOptions, clock: SimulatedClock | None = None
) -> tuple[WriteAheadLog, Counters]:
    counters = Counters()
    log = WriteAheadLog(
        LogPlace(logs=store, log_path=log_path),
        next_log_number=1,
        next_sequence=1,
        options=options,
        tools=LogTools(recorder=counters, clock=clock or SimulatedClock()),
    )
    return log, counters


def test_every_row_takes_one_sequence_number() -> None:
    log = open_log(MemoryStore())
    rows = pa.record_batch({"id": [1, 2, 3]})

    first = log.append(put("a"))
    second = log.append(encode_changes(WriteBatch((UpsertRows(rows), PutRow(b"b", b"")))))
    third = log.append(put("c"))

    assert (first, second, third) == (1, 2, 6)
    assert log.next_sequence == 7


def test_batches_are_applied_in_sequence_order_after_they_are_durable() -> None:
    log = open_log(MemoryStore())
    seen: list[tuple[int, int]] = []

    for key in ("a", "b"):
        log.append(put(key), apply=lambda first: seen.append((first, log.durable_through)))

    assert seen == [(1, 1), (2, 2)]


def test_always_syncs_every_append() -> None:
    log, counters = counted_log(MemoryStore(), LogOptions(sync=SyncPolicy.ALWAYS))

    for _ in range(5):
        log.append(put("a"))

    assert counters.total(WAL_SYNCS) == 5


def test_group_shares_a_sync_between_appends_that_wait_together() -> None:
    log, counters = counted_log(MemoryStore(), LogOptions(sync=SyncPolicy.GROUP))
    entered, leave = threading.Event(), threading.Event()

    def hold(_: int) -> None:
        entered.set()
        leave.wait()

    threads = [threading.Thread(target=log.append, args=(put("first"),), kwargs={"apply": hold})]
    threads[0].start()
    entered.wait()
    followers = [threading.Thread(target=log.append, args=(put(f"k{i}"),)) for i in range(8)]
    for thread in followers:
        thread.start()
    while len(log._queue._waiting) < 8:
        threading.Event().wait(0.001)
    leave.set()
    for thread in threads + followers:
        thread.join()

    assert counters.total(WAL_SYNCS) == 2
    assert log.next_sequence == 10


def test_interval_syncs_when_the_interval_is_over() -> None:
    clock = SimulatedClock()
    options = LogOptions(sync=SyncPolicy.INTERVAL, sync_interval_seconds=5)
    log, counters = counted_log(MemoryStore(), options, clock)

    log.append(put("a"))
    assert log.durable_through == 0
    clock.sleep(6)
    log.append(put("b"))

    assert counters.total(WAL_SYNCS) == 1
    assert log.durable_through == 2


def test_none_syncs_only_when_asked() -> None:
    log, counters = counted_log(MemoryStore(), LogOptions(sync=SyncPolicy.NONE))

    log.append(put("a"))
    assert counters.total(WAL_SYNCS) == 0
    assert log.sync_once()
    assert not log.sync_once()

    assert log.durable_through == 1


def test_a_full_log_is_closed_and_the_next_one_begun() -> None:
    store = MemoryStore()
    log = open_log(store, options=SMALL)

    for _ in range(10):
        log.append(put("a", b"v" * 20_000))

    assert [found.number for found in logs_in(store)] == [1, 2, 3]
    assert [closed.number for closed in log.closed_logs] == [1, 2]
    assert len(replay(store)[0]) == 10


def test_segment_bytes_decides_how_long_a_log_gets() -> None:
    sizes = []
    for segment_bytes in (64 << 10, 256 << 10):
        store = MemoryStore()
        log = open_log(store, options=LogOptions(segment_bytes=segment_bytes, preallocate=False))
        for _ in range(40):
            log.append(put("a", b"v" * 20_000))
        sizes.append(len(logs_in(store)))

    assert sizes[0] > sizes[1]


def test_preallocation_reserves_a_logs_space_when_it_begins() -> None:
    for preallocate, expected in ((True, 128 << 10), (False, 0)):
        store = MemoryStore()
        open_log(store, options=LogOptions(segment_bytes=128 << 10, preallocate=preallocate))
        assert (store.size(log_path(1)) >= 128 << 10) == bool(expected)


def test_the_floor_is_the_first_log_with_a_row_that_is_not_flushed() -> None:
    log = open_log(MemoryStore())
    for key in ("a", "b", "c"):
        log.append(put(key))
        log.rotate()

    assert [log.floor_for(flushed) for flushed in (0, 1, 2, 3)] == [1, 2, 3, 4]


def test_logs_below_the_floor_are_deleted() -> None:
    store = MemoryStore()
    options = LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False, recycle_count=0)
    log, counters = counted_log(store, options)
    for key in ("a", "b", "c"):
        log.append(put(key))
        log.rotate()

    dropped = log.truncate_below(3)

    assert dropped == 2
    assert [found.number for found in logs_in(store)] == [3, 4]
    assert counters.total(WAL_DELETED) == 2


def test_a_log_below_the_floor_is_written_over_by_the_next_one() -> None:
    store = MemoryStore()
    log, counters = counted_log(
        store, LogOptions(sync=SyncPolicy.ALWAYS, segment_bytes=64 << 10, recycle_count=1)
    )
    for index in range(200):
        log.append(put(f"old{index:03}"))
    log.rotate()
    log.truncate_below(2)
    log.append(put("b"))
    log.rotate()
    log.append(put("new"))

    assert counters.total(WAL_RECYCLED) == 1
    assert [found.number for found in logs_in(store)] == [2, 3]
    assert b"old199" in store.get(log_path(3)).payload
    batches, replaying = replay(store)
    assert [logged.sequence for logged in batches] == [201, 202]
    assert replaying.report.next_sequence == 203


def test_a_log_kept_to_be_written_over_is_deleted_when_its_space_is_wanted() -> None:
    store = MemoryStore()
    log, counters = counted_log(store, LogOptions(sync=SyncPolicy.ALWAYS, recycle_count=1))
    log.append(put("a"))
    log.rotate()
    log.truncate_below(2)

    assert log.drop_spares() == 1
    assert [found.number for found in logs_in(store)] == [2]
    assert counters.total(WAL_DELETED) == 1
    log.rotate()
    assert counters.total(WAL_RECYCLED) == 0


def test_a_log_whose_space_was_given_back_is_read_after_a_crash() -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(segment_bytes=64 << 10))
    log.append(put("a"))

    log.give_back_space()

    assert sum(store.size(each.path) for each in logs_in(store)) < 1_000
    log.append(put("b"))
    batches, _ = replay(store)
    assert [batch.sequence for batch in batches if len(batch.batch.changes)] == [1, 2]
    log.give_back_space()  # nothing is reserved any more
    assert log.active_log_number == 2
    log.close()


def test_closing_leaves_no_log_behind_that_was_kept_to_be_written_over() -> None:
    store = MemoryStore()
    log, counters = counted_log(store, LogOptions(sync=SyncPolicy.ALWAYS, recycle_count=1))
    log.append(put("a"))
    log.rotate()
    log.truncate_below(2)

    log.close()

    assert [found.number for found in logs_in(store)] == [2]
    assert counters.total(WAL_DELETED) == 1


def test_a_batch_can_be_decided_on_while_no_other_comes_between() -> None:
    store = MemoryStore()
    log = open_log(store)
    applied: list[int] = []

    assert log.append_alone(lambda: None, apply=applied.append) is None
    assert log.append_alone(lambda: put("a"), apply=applied.append) == 1
    with pytest.raises(InvalidArgument):
        log.append_alone(lambda: _raise(InvalidArgument("no")), apply=applied.append)
    with pytest.raises(LimitExceeded, match="several batches"):
        log.append_alone(lambda: put("b")._replace(byte_count=RECORD_BYTES_MAX))

    assert applied == [1]
    batches, _ = replay(store)
    assert [logged.sequence for logged in batches] == [1]


def _raise(error: Exception) -> NoReturn:
    raise error


def test_logs_replayed_at_open_are_kept_until_they_are_truncated() -> None:
    store = MemoryStore()
    first = open_log(store)
    first.append(put("a"))
    first.close()

    log = open_log(store, number=2, sequence=2, older_logs=tuple(logs_in(store)))

    assert log.floor_for(0) == 1
    assert log.floor_for(1) == 2
    assert log.truncate_below(2) == 1


def test_closing_twice_is_no_error_and_writing_afterwards_is() -> None:
    log = open_log(MemoryStore())
    log.append(put("a"))

    log.close()
    log.close()

    with pytest.raises(Closed, match="was closed"):
        log.append(put("b"))
    with pytest.raises(Closed):
        log.rotate()


def test_the_last_sequence_number_is_never_passed() -> None:
    log = open_log(MemoryStore(), sequence=SEQUENCE_MAX - 1)
    log.append(put("a"))

    with pytest.raises(LimitExceeded):
        log.append(put("b"))

    assert log.next_sequence == SEQUENCE_MAX


def test_a_foreign_dialect_holds_only_plain_rows() -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(dialect=Dialect.ROCKSDB, preallocate=False))

    log.append(put("alpha", b"one"))
    log.close()

    assert store.get(log_path(1)).payload.hex(" ").startswith("02 b3 f8 14 17 00 01 01 00 00 00")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", 100),
        ("segment_bytes", 2**70),
        ("sync_interval_seconds", float("nan")),
        ("sync_interval_seconds", 0),
        ("recycle_count", -1),
        ("group_bytes_max", 0),
    ],
)
def test_an_option_that_cannot_work_is_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match=name):
        LogOptions(**{name: value})  # type: ignore[arg-type]


def test_a_row_that_no_record_can_hold_is_refused_and_the_log_goes_on() -> None:
    log = open_log(MemoryStore())
    giant = put("a")._replace(byte_count=RECORD_BYTES_MAX)

    with pytest.raises(LimitExceeded, match="several batches"):
        log.append(giant)

    assert log.append(put("b")) == 1


def test_a_merutable_log_with_a_delete_is_read_back() -> None:
    store = MemoryStore()
    options = LogOptions(dialect=Dialect.MERUTABLE, preallocate=False)
    log = open_log(store, options=options)
    batch = WriteBatch((PutRow(b"a", b"1"), DeleteRow(b"b")))

    log.append(encode_changes(batch, dialect=Dialect.MERUTABLE))
    log.close()

    (logged,) = ForeignReplay(store, logs_in(store))
    assert logged.batch == batch


def test_numbers_begin_at_one() -> None:
    with pytest.raises(InvalidArgument):
        open_log(MemoryStore(), number=0)


def test_sixteen_threads_get_contiguous_numbers_and_lose_nothing() -> None:
    store = MemoryStore()
    log = open_log(store, options=LogOptions(segment_bytes=64 << 10, preallocate=False))
    firsts: list[int] = []

    def write(worker: int) -> None:
        firsts.extend([log.append(put(f"{worker}-{index}")) for index in range(50)])

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()

    assert sorted(firsts) == list(range(1, 801))
    assert len(replay(store)[0]) == 800


def test_a_batch_that_cannot_be_framed_leaves_no_hole_in_the_numbers() -> None:
    store = MemoryStore()
    log = open_log(store)
    broken = put("broken")._replace(entry_count=-5)

    with pytest.raises(struct.error):
        log.append(broken)

    assert log.append(put("a")) == 1
    log.close()
    assert len(replay(store)[0]) == 1


def test_a_forked_child_is_told_that_the_log_is_not_its_own() -> None:
    log = open_log(MemoryStore())
    child = os.fork()
    if child == 0:
        try:
            log.append(put("a"))
        except Closed:
            os._exit(7)
        os._exit(1)

    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 7
    assert log.append(put("b")) == 1


@pytest.mark.parametrize("value", ["never", "", "GROUP"])
def test_a_sync_policy_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match="use one of"):
        LogOptions(sync=value)  # type: ignore[arg-type]


def test_a_sync_policy_may_be_given_as_its_word() -> None:
    options = LogOptions(sync="always", dialect="rocksdb")  # type: ignore[arg-type]

    assert options.sync is SyncPolicy.ALWAYS
    assert options.dialect is Dialect.ROCKSDB


LOGS = [(1, "1", 1), (2, "2", 11), (3, "3", None), (4, "4", 21)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((1, 30), [("1", 1, 10), ("2", 11, 20), ("4", 21, 30)]),
        ((5, 15), [("1", 5, 10), ("2", 11, 15)]),
        ((11, 20), [("2", 11, 20)]),
        ((25, 25), [("4", 25, 25)]),
        ((5, 4), []),
    ],
)
def test_rows_are_found_in_the_logs_that_hold_them(
    asked: tuple[int, int], found: list[tuple[str, int, int]]
) -> None:
    stretches = stretches_of(LOGS, first=asked[0], last=asked[1])
    assert [(each.path, each.first, each.last) for each in stretches] == found


def test_rows_that_a_recovery_dropped_are_not_found_in_the_log_they_were_in() -> None:
    logs = [(1, "1", 1), (2, "2", 11), (3, "3", 6)]
    stretches = stretches_of(logs, first=1, last=12)
    assert [(each.path, each.first, each.last) for each in stretches] == [("1", 1, 5), ("3", 6, 12)]


def test_decisions_of_one_group_share_a_sync() -> None:
    log, counters = counted_log(MemoryStore(), LogOptions(sync=SyncPolicy.GROUP))
    numbers: dict[str, int] = {}
    waiting = [Counting(key, numbers) for key in "abcd"]
    before = counters.total(WAL_SYNCS)

    commit_together(log, waiting, put("x"), KeyOf("x"))

    assert numbers == dict.fromkeys("abcd", 1)
    assert counters.total(WAL_SYNCS) - before == 2


@pytest.mark.parametrize("written", [KeyOf("a"), None], ids=["of its key", "of unknown keys"])
def test_a_decision_waits_for_a_batch_that_it_depends_on(written: KeyOf | None) -> None:
    log, counters = counted_log(MemoryStore(), LogOptions(sync=SyncPolicy.GROUP))
    numbers = {"a": 6}
    waiting = [Counting("a", numbers), Counting("a", numbers, most=8), Counting("b", numbers)]

    commit_together(log, waiting, put("a"), written)

    assert numbers == {"a": 8, "b": 1}
    assert [each.asked for each in waiting] == [1 if written is None else 2, 2, 1]
    assert log.next_sequence == 6
    assert counters.total(WAL_SYNCS) == 4


def test_a_decision_that_fails_concerns_no_other_batch() -> None:
    log = open_log(MemoryStore(), options=LogOptions(sync=SyncPolicy.GROUP))
    numbers: dict[str, int] = {}

    class Failing(Counting):
        def decide(self, unapplied: Unapplied) -> NoReturn:
            del unapplied
            raise ZeroDivisionError

    failures = commit_together(
        log, [Counting("a", numbers), Failing("b", numbers), Counting("c", numbers)]
    )

    assert [type(each) for each in failures] == [ZeroDivisionError]
    assert numbers == {"a": 1, "c": 1}
    assert log.next_sequence == 4


def test_a_decision_to_write_nothing_logs_nothing() -> None:
    log = open_log(MemoryStore())

    assert log.append_decided(Counting("a", {"a": 3}, most=3)) is None
    assert log.append_decided(Counting("a", {"a": 3}, most=4)) == 1


def commit_together(
    log: WriteAheadLog,
    waiting: Sequence[Counting],
    first: EncodedChanges | None = None,
    written: KeyOf | None = None,
) -> list[Exception]:
    """Commit decisions as one group, after a batch if there is one; return what they raise."""
    entered, leave = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def hold(_: int) -> None:
        entered.set()
        leave.wait()

    def decide(decision: Counting) -> None:
        try:
            log.append_decided(decision)
        except ZeroDivisionError as error:
            failures.append(error)

    threads = [threading.Thread(target=log.append, args=(put("held"), hold))]
    threads[0].start()
    entered.wait()
    if first is not None:
        threads.append(threading.Thread(target=log.append, args=(first, None, written)))
    threads += [threading.Thread(target=decide, args=(each,)) for each in waiting]
    for place, thread in enumerate(threads[1:], start=1):
        thread.start()
        while len(log._queue._waiting) < place:
            pass
    leave.set()
    for thread in threads:
        thread.join()
    return failures
