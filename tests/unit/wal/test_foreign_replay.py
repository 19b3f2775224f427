"""What the four recovery modes make of foreign logs, where no other database can be asked."""

import struct
from collections.abc import Sequence

import pytest

from neve.errors import Corruption, Unavailable
from neve.storage.memory_store import MemoryStore
from neve.wal.foreign_replay import ForeignReplay
from neve.wal.record_format import Dialect
from neve.wal.replay import LogFile, RecoveryMode
from neve.wal.segment_writer import SegmentWriter
from tests.unit.wal.log_bench import Bench, Layout

STRICT = [mode for mode in RecoveryMode if mode is not RecoveryMode.SKIP_CORRUPT]
EVERY_MODE = list(RecoveryMode)


def batch(sequence: int) -> bytes:
    return struct.pack("<QI", sequence, 1) + b"\x01\x03row\x05value"


def log_of(sequences: Sequence[int], *, number: int, recyclable: bool = False) -> bytes:
    store = MemoryStore()
    writer = SegmentWriter(
        store.create("log"), log_number=number, dialect=Dialect.ROCKSDB, recyclable=recyclable
    )
    writer.append([(batch(sequence),) for sequence in sequences])
    return store.get("log").payload


class FailingStore(MemoryStore):
    """Cannot read one of its files."""

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        if path == "1":
            raise Unavailable("the disk did not answer", path=path)
        return super().get_range(path, start=start, length=length)


def replay_of(
    logs: dict[int, bytes], mode: RecoveryMode, store: MemoryStore | None = None
) -> ForeignReplay:
    store = store or MemoryStore()
    for number, log in logs.items():
        store.put(str(number), log)
    files = [LogFile(number=number, path=str(number)) for number in logs]
    return ForeignReplay(store, files, mode=mode, dialect=Dialect.ROCKSDB)


def sequences(replay: ForeignReplay) -> list[int]:
    return [logged.sequence for logged in replay]


@pytest.mark.parametrize("mode", STRICT)
def test_a_failed_read_is_no_damage_and_fails_the_replay(mode: RecoveryMode) -> None:
    logs = {1: log_of([1, 2], number=1), 2: log_of([3], number=2)}

    with pytest.raises(Unavailable) as failure:
        sequences(replay_of(logs, mode, FailingStore()))

    assert (failure.value.path, failure.value.offset) == ("1", 0)


def test_skipping_goes_on_behind_a_log_that_cannot_be_read() -> None:
    logs = {1: log_of([1, 2], number=1), 2: log_of([3], number=2)}

    replay = replay_of(logs, RecoveryMode.SKIP_CORRUPT, FailingStore())

    assert sequences(replay) == [3]
    assert [problem.what for problem in replay.report.problems] == ["read error"]


@pytest.mark.parametrize("mode", EVERY_MODE)
@pytest.mark.parametrize("record_type", [9, 10])
def test_what_changes_the_meaning_of_payloads_is_refused_in_every_mode(
    mode: RecoveryMode, record_type: int
) -> None:
    bench = Bench(Layout(Dialect.ROCKSDB, recyclable=False), log_number=1)
    bench.write(b"\x07\x00\x00\x00", batch(1))
    bench.set_type(record_type, length=4)

    with pytest.raises(Corruption) as refusal:
        sequences(replay_of({1: bytes(bench.log)}, mode))

    assert (refusal.value.path, refusal.value.offset) == ("1", 0)
    assert "without compression" in str(refusal.value)


@pytest.mark.parametrize("mode", EVERY_MODE)
def test_a_whole_record_that_is_no_batch_is_refused_in_every_mode(mode: RecoveryMode) -> None:
    bench = Bench(Layout(Dialect.ROCKSDB, recyclable=False), log_number=1)
    bench.write(batch(1))
    bad_at = len(bench.log)
    bench.write(batch(2) + b"left over", batch(3))

    with pytest.raises(Corruption) as refusal:
        sequences(replay_of({1: bytes(bench.log)}, mode))

    assert (refusal.value.path, refusal.value.offset) == ("1", bad_at)


def test_point_in_time_goes_on_with_the_log_that_begins_at_the_row_due() -> None:
    damaged = log_of([1, 2, 3], number=1)[:-1]
    logs = {1: damaged, 2: log_of([3, 4], number=2)}

    replay = replay_of(logs, RecoveryMode.POINT_IN_TIME)

    assert sequences(replay) == [1, 2, 3, 4]
    assert not replay.report.stopped_early


def test_point_in_time_stops_before_a_gap_that_damage_left() -> None:
    damaged = log_of([1, 2, 3], number=1)[:-1]
    logs = {1: damaged, 2: log_of([4, 5], number=2)}

    replay = replay_of(logs, RecoveryMode.POINT_IN_TIME)

    assert sequences(replay) == [1, 2]
    assert replay.report.stopped_early
    assert replay.report.next_sequence == 3


def test_a_recycled_log_that_ends_in_an_earlier_ones_records_is_whole() -> None:
    earlier = log_of([1, 2, 3], number=1, recyclable=True)
    own = log_of([4], number=2, recyclable=True)
    recycled = own + earlier[len(own) :]

    for mode in STRICT:
        replay = replay_of({2: recycled}, mode)

        assert sequences(replay) == [4]
        assert (replay.report.problems, replay.report.stopped_early) == ([], False)


def test_point_in_time_wants_the_row_due_behind_a_recycled_log() -> None:
    earlier = log_of([1, 2, 3], number=1, recyclable=True)
    own = log_of([4], number=2, recyclable=True)
    recycled = own + earlier[len(own) :]

    joined = replay_of({2: recycled, 3: log_of([5], number=3)}, RecoveryMode.POINT_IN_TIME)
    gap = replay_of({2: recycled, 3: log_of([6], number=3)}, RecoveryMode.POINT_IN_TIME)

    assert sequences(joined) == [4, 5]
    assert sequences(gap) == [4]
    assert (joined.report.stopped_early, gap.report.stopped_early) == (False, True)


def test_absolute_recovery_refuses_a_record_cut_short_by_an_earlier_logs() -> None:
    bench = Bench(Layout(Dialect.ROCKSDB, recyclable=True), log_number=2)
    bench.write(batch(4))
    bench.set_type(6, length=len(batch(4)))
    earlier = log_of([1, 2, 3], number=1, recyclable=True)
    recycled = bytes(bench.log) + earlier[len(bench.log) :]

    with pytest.raises(Corruption) as refusal:
        sequences(replay_of({2: recycled}, RecoveryMode.ABSOLUTE))
    tolerant = replay_of({2: recycled}, RecoveryMode.TOLERATE_TORN_TAIL)

    assert refusal.value.message == "record never finished"
    assert sequences(tolerant) == []
    assert tolerant.report.torn_tail
