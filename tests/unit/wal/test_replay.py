"""What replay makes of logs that end in every way they can."""

from collections.abc import Callable

import pytest

from neve.errors import Corruption, Unavailable
from neve.model.write_batch import PutRow
from neve.storage.memory_store import MemoryStore
from neve.wal import durability as durable_claims
from neve.wal import segment_reader
from neve.wal.batch_codec import LoggedBatch
from neve.wal.log_options import LogOptions, SyncPolicy
from neve.wal.record_format import RECYCLABLE_HEADER, RecordType
from neve.wal.replay import RecoveryMode, Replay
from neve.wal.segment_reader import Fragment
from neve.wal.write_ahead_log import WriteAheadLog
from tests.unit.wal.builders import (
    SMALL,
    log_path,
    logs_in,
    open_log,
    put,
    replay,
    rewrite,
    written_log,
)


def keys(batches: list[LoggedBatch]) -> list[str]:
    return [
        change.key.decode()
        for logged in batches
        for change in logged.batch.changes
        if isinstance(change, PutRow)
    ]


def offset_of(store: MemoryStore, needle: bytes) -> int:
    return store.get(log_path(1)).payload.index(needle)


def flip(offset: int) -> "Flip":
    return Flip(offset)


class Flip:
    """Flips one bit of a log."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __call__(self, content: bytearray) -> None:
        content[self.offset] ^= 1


def test_a_directory_without_logs_holds_nothing() -> None:
    batches, replaying = replay(MemoryStore())

    assert batches == []
    assert replaying.report.next_sequence is None


def test_what_was_written_is_replayed_in_order() -> None:
    batches, replaying = replay(written_log("a", "b", "c"))

    assert keys(batches) == ["a", "b", "c"]
    assert [logged.sequence for logged in batches] == [1, 2, 3]
    assert replaying.report.next_sequence == 4
    assert replaying.report.row_count == 3
    assert not replaying.report.torn_tail


def test_a_torn_tail_ends_replay_quietly() -> None:
    store = written_log("a", "b", close=False)
    rewrite(store, lambda content: content.__delitem__(slice(-3, None)))

    batches, replaying = replay(store)

    assert keys(batches) == ["a"]
    assert replaying.report.torn_tail
    assert replaying.report.next_sequence == 2


@pytest.mark.parametrize("mode", [RecoveryMode.TOLERATE_TORN_TAIL, RecoveryMode.ABSOLUTE])
def test_damage_before_durable_rows_refuses_with_its_place(mode: RecoveryMode) -> None:
    store = written_log("aaaa", "bbbb", "cccc", close=False)
    rewrite(store, flip(offset_of(store, b"bbbb")))

    with pytest.raises(Corruption) as caught:
        replay(store, mode)

    assert caught.value.path == log_path(1)
    assert caught.value.offset is not None
    assert "point_in_time" in str(caught.value)


def test_a_damaged_last_record_of_a_killed_writer_is_a_torn_tail() -> None:
    """Nothing behind it says that it was ever durable."""
    store = written_log("aaaa", "bbbb", close=False)
    rewrite(store, flip(offset_of(store, b"bbbb")))

    batches, replaying = replay(store)

    assert keys(batches) == ["aaaa"]
    assert replaying.report.torn_tail


def test_a_damaged_last_record_of_a_closed_log_is_corruption() -> None:
    store = written_log("aaaa", "bbbb", close=True)
    rewrite(store, flip(offset_of(store, b"bbbb")))

    with pytest.raises(Corruption, match="were durable"):
        replay(store)


def test_point_in_time_keeps_what_is_before_the_damage() -> None:
    store = written_log("aaaa", "bbbb", "cccc")
    rewrite(store, flip(offset_of(store, b"bbbb")))

    batches, replaying = replay(store, RecoveryMode.POINT_IN_TIME)

    assert keys(batches) == ["aaaa"]
    assert replaying.report.stopped_early
    assert replaying.report.next_sequence == 2


def test_skipping_keeps_what_can_be_read_and_says_what_it_dropped() -> None:
    store = MemoryStore()
    log = open_log(store)
    for key in ("aaaa", "bbbb", "cccc"):
        log.append(put(key, b"v" * 20_000))
    log.close()
    rewrite(store, flip(offset_of(store, b"aaaa")))

    batches, replaying = replay(store, RecoveryMode.SKIP_CORRUPT)

    assert keys(batches) == ["cccc"]
    assert replaying.report.dropped_bytes > 20_000
    assert replaying.report.next_sequence == 4


def test_a_block_of_zeros_before_durable_rows_is_corruption() -> None:
    store = MemoryStore()
    log = open_log(store)
    for index in range(10):
        log.append(put(f"key{index}", b"v" * 10_000))

    def lose_second_block(content: bytearray) -> None:
        content[32_768 : 2 * 32_768] = bytes(32_768)

    rewrite(store, lose_second_block)

    with pytest.raises(Corruption):
        replay(store)


def test_a_lost_block_at_the_tail_ends_replay_quietly() -> None:
    """Written in one group and cut by a power loss that kept only its end."""
    store = MemoryStore()
    log = open_log(store, options=LogOptions(sync=SyncPolicy.NONE, preallocate=False))
    log.append(put("first", b"v" * 30_000))
    log.sync_once()
    for index in range(6):
        log.append(put(f"key{index}", b"v" * 10_000))

    def lose_second_block(content: bytearray) -> None:
        content[32_768 : 2 * 32_768] = bytes(32_768)

    rewrite(store, lose_second_block)
    batches, replaying = replay(store)

    assert keys(batches) == ["first"]
    assert replaying.report.problems


def test_a_gigabyte_of_zeros_is_an_empty_log() -> None:
    class Zeros(MemoryStore):
        def get_range(self, path: str, *, start: int, length: int) -> bytes:
            assert path == log_path(1)
            return bytes(max(0, min(length, (1 << 30) - start)))

    store = Zeros()
    store.put(log_path(1), b"")

    batches, _ = replay(store)

    assert batches == []


def test_logs_follow_each_other() -> None:
    store = MemoryStore()
    log = open_log(store)
    log.append(put("a"))
    log.rotate()
    log.append(put("b"))
    log.rotate()
    log.append(put("c"))
    log.close()

    batches, replaying = replay(store)

    assert keys(batches) == ["a", "b", "c"]
    assert replaying.report.log_count == 3


def test_a_missing_log_in_the_middle_is_corruption() -> None:
    store = MemoryStore()
    log = open_log(store)
    for key in ("a", "b", "c"):
        log.append(put(key))
        log.rotate()
    store.delete(log_path(2))

    with pytest.raises(Corruption, match="missing"):
        replay(store)


def test_a_torn_tail_that_an_earlier_recovery_accepted_stays_accepted() -> None:
    store = written_log("a", "b", close=False)
    rewrite(store, lambda content: content.__delitem__(slice(-3, None)))
    log = open_log(store, number=2, sequence=2)
    log.append(put("c"))
    log.close()

    batches, replaying = replay(store)

    assert keys(batches) == ["a", "c"]
    assert [logged.sequence for logged in batches] == [1, 2]
    assert replaying.report.next_sequence == 3


def test_rows_an_earlier_recovery_dropped_do_not_come_back() -> None:
    """The first log still holds row 2 whole, but the second begins at 2."""
    store = written_log("a", "dropped", close=False)
    log = open_log(store, number=2, sequence=2)
    log.append(put("c"))
    log.close()

    for mode in (RecoveryMode.TOLERATE_TORN_TAIL, RecoveryMode.SKIP_CORRUPT):
        batches, _ = replay(store, mode)
        assert keys(batches) == ["a", "c"]


def test_a_log_that_lost_its_first_record_but_held_durable_rows_is_corruption() -> None:
    store = written_log("a", "b", "c")
    rewrite(store, flip(20))

    with pytest.raises(Corruption, match="damaged first record"):
        replay(store)


def test_an_empty_log_after_a_crash_at_its_creation_is_passed_over() -> None:
    store = written_log("a")
    store.put(log_path(2), bytes(4096))

    batches, _ = replay(store)

    assert keys(batches) == ["a"]


def test_a_file_that_holds_only_an_older_logs_records_counts_as_empty() -> None:
    """This is what a crash leaves right after a file was recycled."""
    store = written_log("a")
    store.put(log_path(9), store.get(log_path(1)).payload)
    store.delete(log_path(1))

    batches, replaying = replay(store)

    assert batches == []
    assert replaying.report.next_sequence is None


def test_rows_that_are_in_data_files_already_are_not_given() -> None:
    store = written_log("a", "b", "c")

    replaying = Replay(store, logs_in(store), from_sequence=3)

    assert keys(list(replaying)) == ["c"]
    assert replaying.report.row_count == 1


def test_a_log_that_begins_behind_the_first_needed_row_is_corruption() -> None:
    store = MemoryStore()
    log = open_log(store, sequence=10)
    log.append(put("a"))
    log.close()

    with pytest.raises(Corruption, match="missing"):
        list(Replay(store, logs_in(store), from_sequence=5))


def test_replaying_twice_gives_the_same() -> None:
    store = written_log("a", "b", close=False)
    rewrite(store, lambda content: content.__delitem__(slice(-3, None)))

    assert replay(store)[0] == replay(store)[0]


def test_absolute_accepts_a_log_that_ends_between_two_records() -> None:
    batches, _ = replay(written_log("a", "b", close=False), RecoveryMode.ABSOLUTE)

    assert keys(batches) == ["a", "b"]


def test_a_record_that_spans_blocks_is_given_whole() -> None:
    store = MemoryStore()
    log = open_log(store, options=SMALL)
    value = bytes(range(256)) * 600
    log.append(put("big", value))
    log.close()

    ((logged),) = replay(store)[0]

    assert logged.batch.changes == (PutRow(b"big", value),)


class FailsOnce(MemoryStore):
    """A store of which one read fails."""

    def __init__(self, read: int) -> None:
        super().__init__()
        self._reads_left = read

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        self._reads_left -= 1
        if self._reads_left == 0:
            raise Unavailable("the disk did not answer", path=path)
        return super().get_range(path, start=start, length=length)


@pytest.mark.parametrize("read", [1, 2])
@pytest.mark.parametrize("mode", [m for m in RecoveryMode if m is not RecoveryMode.SKIP_CORRUPT])
def test_a_read_that_fails_is_reported_and_never_taken_for_the_end(
    read: int, mode: RecoveryMode
) -> None:
    store = FailsOnce(read)
    log = open_log(store)
    log.append(put("a"))
    log.close()

    with pytest.raises(Unavailable):
        replay(store, mode)


def test_many_sound_records_behind_damage_do_not_hide_the_one_that_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_claims, "_FORGERIES_MAX", 10)
    store = MemoryStore()
    log = open_log(store, options=LogOptions(sync=SyncPolicy.NONE, preallocate=False))
    for index in range(100):
        log.append(put(f"key{index:03}"))
    log.sync_once()
    log.append(put("last"))
    rewrite(store, flip(offset_of(store, b"key003")))

    with pytest.raises(Corruption, match="were durable"):
        replay(store)


@pytest.mark.parametrize("from_sequence", [1, 20])
def test_one_whole_record_is_enough_to_speak_for_a_log_that_lost_its_start(
    from_sequence: int,
) -> None:
    store = MemoryStore()
    log = open_log(store)
    for index in range(50):
        log.append(put(f"key{index:03}"))
    end = offset_of(store, b"key049") - 44  # header, frame, stamps, entry

    def lose_all_but_the_last(content: bytearray) -> None:
        content[:end] = bytes(end)

    rewrite(store, lose_all_but_the_last)

    with pytest.raises(Corruption, match="damaged first record"):
        list(Replay(store, logs_in(store), from_sequence=from_sequence))


def test_a_table_that_was_salvaged_opens_by_default_afterwards() -> None:
    store = MemoryStore()
    log = open_log(store)
    for key in "abcdefghi":
        log.append(put(key * 4))
        if key in "cf":
            log.rotate()
    log.close()
    rewrite(store, flip(store.get(log_path(2)).payload.index(b"eeee")), number=2)
    salvaged, replaying = replay(store, RecoveryMode.POINT_IN_TIME)
    assert replaying.report.stopped_early
    assert keys(salvaged) == ["aaaa", "bbbb", "cccc", "dddd"]

    again = open_log(store, number=4, sequence=5)
    again.append(put("new"))
    again.close()

    for mode in (RecoveryMode.TOLERATE_TORN_TAIL, RecoveryMode.POINT_IN_TIME):
        batches, replaying = replay(store, mode)
        assert keys(batches) == ["aaaa", "bbbb", "cccc", "dddd", "new"]
        assert replaying.report.next_sequence == 6


def test_a_row_that_looks_like_a_record_of_its_log_is_not_believed() -> None:
    """Its sender knows the log's number and the checksum, but not its nonce."""
    forged = MemoryStore()
    forger = open_log(forged, sequence=1)
    for index in range(5):
        forger.append(put(f"forged{index}"))
    store = MemoryStore()
    log = open_log(store)
    log.append(put("true"))
    log.append(put("carrier", forged.get(log_path(1)).payload))
    rewrite(store, flip(offset_of(store, b"carrier")))

    batches, replaying = replay(store)

    assert keys(batches) == ["true"]
    assert replaying.report.torn_tail


def test_bytes_made_to_look_like_records_cannot_keep_recovery_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(durable_claims, "_FORGERIES_MAX", 100)
    header = RECYCLABLE_HEADER.pack(0, 0, RecordType.RECYCLABLE_FULL, 1)
    store = written_log("a", close=False)
    rewrite(store, lambda content: content.extend(b"\xff" * 16 + header * 1_000))

    with pytest.raises(Corruption, match="only look like records"):
        replay(store)


def test_skipping_goes_on_behind_a_block_that_cannot_be_read() -> None:
    class BadBlock(MemoryStore):
        def get_range(self, path: str, *, start: int, length: int) -> bytes:
            if start <= 40_000 < start + length:
                raise Unavailable("bad sector", path=path)
            return super().get_range(path, start=start, length=length)

    store = BadBlock()
    log = open_log(store, options=LogOptions(sync=SyncPolicy.ALWAYS, preallocate=False))
    for index in range(300):
        log.append(put(f"key{index:03}", bytes(1_000)))
    log.close()

    batches, replaying = replay(store, RecoveryMode.SKIP_CORRUPT)

    assert len(batches) > 230
    assert 32_768 <= replaying.report.dropped_bytes < 3 * 32_768


def test_fragments_of_no_bytes_take_no_memory() -> None:
    assembly = segment_reader._Assembly()
    list(assembly.add(Fragment(RecordType.FIRST, 0, b"x", recyclable=True)))

    for offset in range(1_000):
        list(assembly.add(Fragment(RecordType.MIDDLE, offset, b"", recyclable=True)))

    assert assembly._parts == [b"x"]


class WriterGoesOn(MemoryStore):
    """A store whose log is written on between two reads of it."""

    def __init__(self, read: int) -> None:
        super().__init__()
        self.go_on: Callable[[], None] | None = None
        self._reads_left = read

    def _reads(self) -> None:
        self._reads_left -= self.go_on is not None
        if self._reads_left == 0 and self.go_on is not None:
            go_on, self.go_on = self.go_on, None
            go_on()

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        self._reads()
        return super().get_range(path, start=start, length=length)

    def size(self, path: str) -> int:
        self._reads()
        return super().size(path)


BIG = b"v" * 20_000


def write_on(log: WriteAheadLog) -> None:
    for number in range(5):
        log.append(put(f"later{number}", BIG))


def rotate_and_write_on(log: WriteAheadLog) -> None:
    log.append(put("later"))
    log.rotate()
    write_on(log)


def end(log: WriteAheadLog) -> None:
    log.append(put("later"))
    log.close()


@pytest.mark.parametrize("preallocate", [True, False])
@pytest.mark.parametrize("go_on", [write_on, rotate_and_write_on, end])
@pytest.mark.parametrize("read", range(1, 8))
def test_a_writer_that_goes_on_while_its_log_is_read_is_no_damage(
    read: int, go_on: Callable[[WriteAheadLog], None], preallocate: bool
) -> None:
    store = WriterGoesOn(read)
    log = open_log(store, options=LogOptions(segment_bytes=256 << 10, preallocate=preallocate))
    for key in ("a", "b"):
        log.append(put(key))
    log.rotate()
    log.append(put("c"))
    store.go_on = lambda: go_on(log)

    found = keys(replay(store)[0])

    written = keys(replay(store)[0])
    assert found[:3] == ["a", "b", "c"]
    assert found == written[: len(found)]


@pytest.mark.parametrize("read", range(1, 8))
def test_a_log_that_begins_while_it_is_looked_at_is_no_damage(read: int) -> None:
    store = WriterGoesOn(read)
    log = open_log(store)
    log.append(put("a"))
    store.put(log_path(2), bytes(4_096))

    def begin_the_second() -> None:
        log.close()
        store.delete(log_path(2))
        write_on(open_log(store, number=2, sequence=2))

    store.go_on = begin_the_second

    assert keys(replay(store)[0])[:1] == ["a"]


def test_damage_is_still_reported_while_the_writer_goes_on() -> None:
    store = WriterGoesOn(2)
    log = open_log(store)
    for key in ("aaaa", "bbbb", "cccc"):
        log.append(put(key))
    rewritten = store.get(log_path(1)).payload.replace(b"bbbb", b"bbxb")
    store.put(log_path(1), rewritten)
    store.go_on = lambda: write_on(open_log(store, number=2, sequence=4))

    with pytest.raises(Corruption):
        replay(store)
