"""What a mark says about a log, and what replay makes of logs that are not as it says."""

from collections.abc import Callable
from uuid import UUID

import pytest

from neve.errors import Corruption, Unavailable
from neve.storage.memory_store import MemoryStore
from neve.wal.batch_codec import LoggedBatch
from neve.wal.durability import MARK_BYTES, LogMark, LogOwner, MarkedLog
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.replay import LogFile, RecoveryMode, Replay
from neve.wal.write_ahead_log import WriteAheadLog
from tests.unit.wal.builders import SMALL, LogStore, log_path, logs_in, open_log, put

TABLE = UUID(int=1)
OTHER = UUID(int=2)
MARK = "wal.mark"
RESERVED = LogOptions(sync=SyncPolicy.ALWAYS, segment_bytes=64 << 10)


def owner(table: UUID = TABLE) -> LogOwner:
    return LogOwner(table=table, epoch=1, mark_path=MARK)


def owned_log(
    store: LogStore, *, table: UUID = TABLE, options: LogOptions = RESERVED
) -> WriteAheadLog:
    return open_log(store, owner=owner(table), options=options)


def mark_in(store: MemoryStore) -> LogMark:
    return LogMark.decode(store.get(MARK).payload, path=MARK)


def replay(
    store: MemoryStore,
    mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL,
    *,
    flushed: int = 0,
    oddity: str | None = None,
) -> tuple[list[LoggedBatch], Replay]:
    mark = mark_in(store)
    logs = logs_in(store)
    if oddity is not None:
        logs.append(LogFile(number=mark.log_number, path=log_path(mark.log_number), oddity=oddity))
    replaying = Replay(
        store,
        logs,
        mode=mode,
        from_sequence=flushed + 1,
        table=TABLE,
        marked=MarkedLog(mark=mark, path=log_path(mark.log_number)),
    )
    return list(replaying), replaying


def rows(store: MemoryStore, mode: RecoveryMode = RecoveryMode.TOLERATE_TORN_TAIL) -> int:
    return len(replay(store, mode)[0])


# The mark itself


EXAMPLE = LogMark(
    table=UUID(bytes=bytes(range(16))),
    epoch=3,
    log_number=7,
    first_sequence=41,
    next_sequence=45,
    nonce=0x1122334455667788,
    owned_from=2,
    is_closed=True,
)


def test_a_mark_is_these_bytes() -> None:
    payload = EXAMPLE.encode()

    assert payload.hex(" ") == (
        "4e 56 4c 4d 01 01 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f "
        "03 00 00 00 00 00 00 00 07 00 00 00 00 00 00 00 29 00 00 00 00 00 00 00 "
        "2d 00 00 00 00 00 00 00 88 77 66 55 44 33 22 11 02 00 00 00 00 00 00 00 "
        + payload[-4:].hex(" ")
    )
    assert len(payload) == MARK_BYTES
    assert LogMark.decode(payload, path=MARK) == EXAMPLE


def test_every_flipped_bit_and_every_cut_of_a_mark_is_corruption() -> None:
    payload = EXAMPLE.encode()
    damaged = [payload[:length] for length in range(len(payload))]
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(flipped))

    for content in damaged:
        with pytest.raises(Corruption) as caught:
            LogMark.decode(content, path=MARK)
        assert caught.value.path == MARK


# When it is written


def test_a_log_is_marked_when_its_writer_begins_and_when_it_is_closed() -> None:
    store = MemoryStore()
    log = owned_log(store)
    begun = mark_in(store)
    for key in ("a", "b"):
        log.append(put(key))
    log.close()

    assert (begun.log_number, begun.first_sequence, begun.next_sequence) == (1, 1, 1)
    assert not begun.is_closed
    assert mark_in(store).next_sequence == 3
    assert mark_in(store).is_closed


def test_a_log_after_a_rotation_is_marked_before_a_row_of_it_is_seen() -> None:
    store = MemoryStore()
    log = owned_log(store)
    log.append(put("a"))
    log.rotate()
    assert mark_in(store).log_number == 1
    seen: list[LogMark] = []

    log.append(put("b"), apply=lambda _sequence: seen.append(mark_in(store)))

    assert [(mark.log_number, mark.first_sequence) for mark in seen] == [(2, 2)]


def test_a_mark_that_cannot_be_written_is_tried_again_and_fails_no_write() -> None:
    class FullDisk(MemoryStore):
        is_full = False

        def put(self, path: str, payload: bytes) -> str:
            if self.is_full:
                raise Unavailable("no space", path=path)
            return super().put(path, payload)

    store = FullDisk()
    log = owned_log(store)
    log.rotate()
    store.is_full = True
    log.append(put("a"))
    assert mark_in(store).log_number == 1

    store.is_full = False
    log.append(put("b"))
    assert mark_in(store).log_number == 2

    store.is_full = True
    log.close()
    assert rows(store) == 2
    with pytest.raises(Unavailable):
        open_log(store, number=3, sequence=3, owner=owner())


def test_a_log_of_no_table_has_no_mark() -> None:
    store = MemoryStore()
    open_log(store).close()

    assert [info.path for info in store.list("")] == [log_path(1)]


# What replay makes of it


def cut(store: MemoryStore, number: int) -> None:
    payload = store.get(log_path(number)).payload
    store.put(log_path(number), payload[: payload.index(b"key-2") + 3])


def empty(store: MemoryStore, number: int) -> None:
    store.put(log_path(number), b"")


def delete(store: MemoryStore, number: int) -> None:
    store.delete(log_path(number))


def swap(store: MemoryStore, number: int) -> None:
    """Put a log there that another table has under the same number and epoch."""
    other = MemoryStore()
    log = open_log(other, number=number, owner=owner(OTHER), options=RESERVED)
    for key in ("foreign-0", "foreign-1", "foreign-2"):
        log.append(put(key))
    log.close()
    store.put(log_path(number), other.get(log_path(number)).payload)


def swap_with_an_old_one(store: MemoryStore, number: int) -> None:
    """Put a log there that says no table, as those of 0.1.0 do."""
    other = MemoryStore()
    log = open_log(other, number=number, options=SMALL)
    for key in ("foreign-0", "foreign-1", "foreign-2"):
        log.append(put(key))
    log.close()
    store.put(log_path(number), other.get(log_path(number)).payload)


Damage = Callable[[MemoryStore, int], None]
DAMAGES: list[Damage] = [cut, empty, delete, swap, swap_with_an_old_one]


def filled(*, rotations: int = 0, close: bool = True) -> MemoryStore:
    """Return logs of three rows each."""
    store = MemoryStore()
    log = owned_log(store)
    for turn in range(rotations + 1):
        for number in range(3):
            log.append(put(f"key-{number}", b"v" * 50))
        if turn < rotations:
            log.rotate()
    if close:
        log.close()
    return store


@pytest.mark.parametrize("mode", [RecoveryMode.TOLERATE_TORN_TAIL, RecoveryMode.ABSOLUTE])
@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_to_the_newest_log_is_reported_with_its_file_and_rows(
    damage: Damage, close: bool, mode: RecoveryMode
) -> None:
    store = filled(close=close)
    assert rows(store, mode) == 3

    damage(store, 1)

    with pytest.raises(Corruption, match="missing") as caught:
        replay(store, mode)
    assert caught.value.path == log_path(1)
    if close:
        missing = 1 if damage is cut else 3
        assert f"({missing} in all)" in caught.value.message


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("number", [1, 2])
def test_damage_to_a_log_before_a_rotation_is_reported(
    damage: Damage, number: int, close: bool
) -> None:
    store = filled(rotations=2, close=close)
    assert rows(store) == 9

    damage(store, number)

    with pytest.raises(Corruption):
        replay(store)


@pytest.mark.parametrize("damage", DAMAGES)
def test_point_in_time_keeps_what_comes_before_the_damaged_log(damage: Damage) -> None:
    store = filled(rotations=1)

    damage(store, 2)

    batches, replaying = replay(store, RecoveryMode.POINT_IN_TIME)
    assert 3 <= len(batches) < 6
    assert all(b"foreign" not in repr(logged).encode() for logged in batches)
    assert replaying.report.stopped_early
    assert replaying.report.problems


@pytest.mark.parametrize("damage", DAMAGES)
def test_skipping_keeps_the_other_logs_and_takes_no_foreign_row(damage: Damage) -> None:
    store = filled(rotations=2)

    damage(store, 2)

    batches, replaying = replay(store, RecoveryMode.SKIP_CORRUPT)
    assert 6 <= len(batches) < 9
    assert all(b"foreign" not in repr(logged).encode() for logged in batches)
    assert replaying.report.problems


def test_what_is_not_a_plain_file_is_reported_as_what_it_is() -> None:
    store = filled()
    delete(store, 1)

    with pytest.raises(Corruption, match=r"a pipe .*rows 1 to 3 are missing \(3 in all\)"):
        replay(store, oddity="a pipe is in the place of a log")

    batches, replaying = replay(store, RecoveryMode.SKIP_CORRUPT, oddity="a pipe is there")
    assert batches == []
    assert replaying.refused_paths == {log_path(1)}


def test_a_log_whose_rows_are_all_in_data_files_may_be_gone() -> None:
    store = filled()
    delete(store, 1)

    assert replay(store, flushed=3)[0] == []
    with pytest.raises(Corruption, match=r"rows 3 to 3 are missing \(1 in all\)"):
        replay(store, flushed=2)


def test_a_killed_writers_log_that_is_gone_is_reported_although_its_rows_may_be_in_files() -> None:
    store = filled(close=False)
    delete(store, 1)

    with pytest.raises(Corruption, match="rows from 4 on may be missing"):
        replay(store, flushed=3)


def test_a_log_in_the_directory_of_another_epoch_is_refused() -> None:
    store = filled()
    log = LogFile(number=1, path=log_path(1), epoch=9)

    with pytest.raises(Corruption, match="epoch 1, not 9"):
        list(Replay(store, [log], table=TABLE))


@pytest.mark.parametrize("recycle_count", [0, 2])
def test_no_power_cut_or_kill_makes_a_sound_log_look_cut(recycle_count: int) -> None:
    """A file is never shorter than reserved unless its LogEnd can be read."""
    store = MemoryStore()
    options = LogOptions(
        sync=SyncPolicy.ALWAYS, segment_bytes=64 << 10, recycle_count=recycle_count
    )
    log = owned_log(store, options=options)
    for number in range(8):
        log.append(put(f"key{number}", b"v" * 30_000))
        assert rows(store) == number + 1
    log.close()
    assert rows(store) == 8


def test_a_log_that_gave_its_space_back_does_not_look_cut() -> None:
    store = MemoryStore()
    log = owned_log(store)
    log.append(put("a"))
    log.give_back_space()
    assert rows(store) == 1
    assert sum(info.size for info in store.list("wal/")) < RESERVED.segment_bytes

    log.append(put("b"))
    assert rows(store) == 2
    log.rotate()
    log.append(put("c"))
    assert rows(store) == 3


def test_logs_of_the_first_release_are_read_and_written_on() -> None:
    """They name no table, and there is no mark; the logs after them are guarded."""
    store = MemoryStore()
    old = open_log(store, options=SMALL)
    for key in ("key-0", "key-1", "key-2"):
        old.append(put(key))
    old.close()
    assert len(list(Replay(store, logs_in(store), table=TABLE))) == 3
    log = open_log(store, number=2, sequence=4, owner=owner(), options=RESERVED)
    for key in ("key-0", "key-1", "key-2"):
        log.append(put(key))
    log.close()
    assert rows(store) == 6
    assert mark_in(store).owned_from == 2

    swap_with_an_old_one(store, 2)

    with pytest.raises(Corruption, match="does not say that it belongs to this table"):
        replay(store)
