"""BucketLogs: the contracts on a store in memory, fences, lost answers, and what may be deleted."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Closed, Corruption, Fenced, NeveError, NotFound, OutcomeUnknown
from neve.storage.bucket_log import BucketLogs
from neve.storage.log_slots import (
    END_BYTES,
    FENCE_BYTES,
    SlotKind,
    decode_slot,
    encode_slot,
    slot_path,
)
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import AppendFile, AppendFiles, ObjectStore
from neve.testing.append_contract import AppendFilesContract
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault, StoreCall
from neve.testing.simulated_clock import SeededIds
from neve.testing.store_contract import ObjectStoreContract

WRITER = UUID(int=7)
LOG = "wal/1/000001.wal"


def logs_on(store: ObjectStore, seed: int = 0) -> BucketLogs:
    return BucketLogs(store, ids=SeededIds(seed))


class TestKeepsTheAppendFilesContract(AppendFilesContract):
    reserves_space = False

    @pytest.fixture
    def files(self) -> tuple[AppendFiles, ObjectStore]:
        logs = logs_on(MemoryStore())
        return logs, logs


class TestKeepsTheObjectStoreContract(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return logs_on(MemoryStore())


def written(file: AppendFile, *contents: bytes) -> None:
    for content in contents:
        file.append([content])
        file.sync()


def slots_of(store: ObjectStore, directory: str = "wal/1") -> dict[int, SlotKind]:
    found = {}
    for info in store.list(f"{directory}/"):
        slot = decode_slot(store.get(info.path).payload, path=info.path)
        found[int(info.path[-17:-5])] = slot.kind
    return found


# Slots


def test_a_slot_says_what_it_holds() -> None:
    payload = encode_slot(WRITER, 3, [("a.wal", 100, b"abc"), ("b.wal", 0, b"")], landed=1)

    slot = decode_slot(payload, path=slot_path("wal/1", 3))

    assert (slot.kind, slot.landed) == (SlotKind.PIECES, 1)
    assert [(each.name, each.offset, each.length) for each in slot.pieces] == [
        ("a.wal", 100, 3),
        ("b.wal", 0, 0),
    ]
    assert payload[slot.pieces[0].start :][:3] == b"abc"


def test_ends_and_fences_are_known_by_their_size() -> None:
    assert len(encode_slot(WRITER, 1, kind=SlotKind.END)) == END_BYTES
    assert len(encode_slot(WRITER, 1, kind=SlotKind.FENCE, fenced_by=9)) == FENCE_BYTES
    assert len(encode_slot(WRITER, 1, [("a", 0, b"x")])) > FENCE_BYTES


@given(st.binary(max_size=200))
def test_bytes_that_are_not_a_slot_are_refused(payload: bytes) -> None:
    with pytest.raises(Corruption):
        decode_slot(payload, path=slot_path("wal/1", 1))


@given(st.integers(0, 79), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    payload = bytearray(encode_slot(WRITER, 1, [("000001.wal", 0, b"rows of a log")]))
    payload[at % len(payload)] ^= 1 << bit

    with pytest.raises(Corruption):
        decode_slot(bytes(payload), path=slot_path("wal/1", 1))


def test_a_renamed_slot_is_refused() -> None:
    with pytest.raises(Corruption, match="renamed"):
        decode_slot(encode_slot(WRITER, 1, [("a", 0, b"x")]), path=slot_path("wal/1", 2))


# Syncs


def test_a_sync_is_one_object_and_one_without_appends_is_none() -> None:
    store = FaultyStore(MemoryStore())
    file = logs_on(store).create(LOG)
    before = len(store.calls)

    written(file, b"one", b"two")
    file.sync()

    assert [call.operation for call in store.calls[before:]] == [Operation.PUT_IF_ABSENT] * 2


def test_another_process_reads_what_was_synced_and_nothing_else() -> None:
    store = MemoryStore()
    file = logs_on(store).create(LOG)
    written(file, b"one", b"two")
    file.append([b"three"])

    reader = logs_on(store)

    assert [info.path for info in reader.list("wal/")] == [LOG]
    assert reader.get(LOG).payload == b"onetwo"
    assert reader.get_range(LOG, start=2, length=3) == b"etw"
    with pytest.raises(NotFound):
        reader.get("wal/1/000002.wal")


def test_a_log_that_was_copied_from_a_disk_is_read() -> None:
    store = MemoryStore()
    store.put(LOG, b"rows of a disk")

    logs = logs_on(store)

    assert [info.path for info in logs.list("wal/")] == [LOG]
    assert logs.get_range(LOG, start=0, length=4) == b"rows"
    assert logs.size(LOG) == 14
    logs.fence("wal", below=2)
    logs.delete(LOG)
    assert list(store.list("")) == []


def test_a_reader_finds_later_slots_without_listing() -> None:
    store = FaultyStore(MemoryStore())
    file = logs_on(store).create(LOG)
    written(file, b"one")
    reader = logs_on(store)
    assert reader.get_range(LOG, start=0, length=100) == b"one"
    before = len(store.calls)

    assert reader.get_range(LOG, start=3, length=100) == b""
    assert [call.operation for call in store.calls[before:]] == [Operation.GET]
    written(file, b"two")

    assert reader.get_range(LOG, start=3, length=100) == b"two"


def test_the_rest_of_a_closed_file_is_in_the_slot_of_the_next_one() -> None:
    store = MemoryStore()
    logs = logs_on(store)
    first = logs.create(LOG)
    written(first, b"one")
    first.append([b"-end"])
    first.close()
    second = logs.create("wal/1/000002.wal")
    written(second, b"two")

    reader = logs_on(store)

    assert reader.get(LOG).payload == b"one-end"
    assert reader.get("wal/1/000002.wal").payload == b"two"
    assert len(slots_of(store)) == 2


def test_a_lost_slot_reads_as_zeros() -> None:
    store = MemoryStore()
    written(logs_on(store).create(LOG), b"one", b"two", b"three")
    store.delete(slot_path("wal/1", 2))

    assert logs_on(store).get(LOG).payload == b"one\0\0\0three"


def test_syncs_ahead_land_in_order() -> None:
    gate = Event()

    def hold_first(call: StoreCall) -> None:
        if call.path.endswith("001.slot") and call.operation is Operation.PUT_IF_ABSENT:
            gate.wait(10)

    store = FaultyStore(MemoryStore(), before_call=hold_first)
    file = logs_on(store).create(LOG)
    with ThreadPoolExecutor(2) as threads:
        file.append([b"one"])
        first = threads.submit(file.begin_sync())
        file.append([b"two"])
        second = threads.submit(file.begin_sync())
        while slot_path("wal/1", 2) not in {info.path for info in store.list("wal/")}:
            pass
        assert not second.done()
        gate.set()
        first.result()
        second.result()

    assert logs_on(store).get(LOG).payload == b"onetwo"


def test_a_sync_behind_a_failed_one_fails_and_poisons_the_file() -> None:
    store = FaultyStore(
        MemoryStore(), [PlannedFault(fault=Fault.BEFORE, operation=Operation.PUT_IF_ABSENT)]
    )
    file = logs_on(store).create(LOG)
    file.append([b"one"])
    first = file.begin_sync()
    file.append([b"two"])
    second = file.begin_sync()

    for wait in (first, second):
        with pytest.raises(NeveError):
            wait()

    for call in (file.sync, lambda: file.append([b"x"])):
        with pytest.raises(Closed):
            call()


# Answers


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.BUSY, Fault.TWICE])
def test_a_slot_whose_answer_was_lost_is_recognized(fault: Fault) -> None:
    store = FaultyStore(
        MemoryStore(), [PlannedFault(fault=fault, operation=Operation.PUT_IF_ABSENT)]
    )
    file = logs_on(store).create(LOG)

    written(file, b"one", b"two")

    assert logs_on(store).get(LOG).payload == b"onetwo"


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.TIMEOUT, Fault.LATE])
def test_a_slot_that_may_not_be_there_is_not_acknowledged(fault: Fault) -> None:
    store = FaultyStore(
        MemoryStore(), [PlannedFault(fault=fault, operation=Operation.PUT_IF_ABSENT)]
    )
    file = logs_on(store).create(LOG)
    file.append([b"one"])

    with pytest.raises((NeveError, OutcomeUnknown)):
        file.sync()


# Fences


def test_a_fenced_writer_never_acknowledges_again() -> None:
    store = MemoryStore()
    file = logs_on(store).create(LOG)
    written(file, b"one")

    logs_on(store, 1).fence("wal", below=2)
    file.append([b"two"])

    with pytest.raises(Fenced):
        file.sync()
    assert logs_on(store).get(LOG).payload == b"one"
    with pytest.raises(Closed):
        file.sync()


def test_a_writer_that_ended_in_good_order_is_not_fenced() -> None:
    store = MemoryStore()
    logs = logs_on(store)
    held = logs.lock("wal/LOCK")
    written(logs.create(LOG), b"one")
    held.release()
    before = slots_of(store)

    logs_on(store, 1).fence("wal", below=2)

    assert slots_of(store) == before == {1: SlotKind.PIECES, 2: SlotKind.END}
    assert logs.get(LOG).payload == b"one"


def test_slots_that_are_under_way_are_fenced_too() -> None:
    store = MemoryStore()
    file = logs_on(store).create(LOG)
    written(file, b"one")
    file.append([b"two"])
    paused = file.begin_sync()
    file.append([b"three"])
    last = file.begin_sync()
    with ThreadPoolExecutor(1) as threads:
        landing = threads.submit(last)
        while slot_path("wal/1", 3) not in {info.path for info in store.list("wal/")}:
            pass

        logs_on(store, 1).fence("wal", below=2)
        assert slots_of(store)[2] is SlotKind.FENCE
        with pytest.raises(Fenced):
            paused()
        with pytest.raises(Fenced):
            landing.result()

    # It reads as a hole: the log ends there.
    assert logs_on(store).get(LOG).payload == b"one\0\0\0three"


def test_a_fence_stays_and_only_one_of_them() -> None:
    store = MemoryStore()
    file = logs_on(store).create(LOG)
    written(file, b"one", b"two")
    next_writer = logs_on(store, 1)

    next_writer.fence("wal", below=2)
    assert len(slots_of(store)) > 3
    list(next_writer.list("wal/"))
    next_writer.clean("wal", below=2)
    next_writer.delete(LOG)

    assert slots_of(store) == {3: SlotKind.FENCE}
    file.append([b"x"])
    with pytest.raises(Fenced):
        file.sync()


def test_an_ended_directory_vanishes_with_its_files() -> None:
    store = MemoryStore()
    logs = logs_on(store)
    held = logs.lock("wal/LOCK")
    written(logs.create(LOG), b"one")
    held.release()
    next_writer = logs_on(store, 1)
    list(next_writer.list("wal/"))

    next_writer.clean("wal", below=2)
    assert next_writer.get(LOG).payload == b"one"
    next_writer.delete(LOG)
    next_writer.clean("wal", below=2)

    assert list(store.list("")) == []


def test_a_busy_writer_is_overtaken() -> None:
    store = MemoryStore()
    file = logs_on(store).create(LOG)
    acknowledged = []
    started = Event()

    def write() -> None:
        for number in range(1_000_000):
            written(file, f"{number:06d}".encode())
            acknowledged.append(number)
            if number == 20:
                started.set()

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(write)
        started.wait(10)
        reader = logs_on(store, 1)
        reader.fence("wal", below=2)
        payload = reader.get(LOG).payload
        with pytest.raises(Fenced):
            writing.result()

    kept = [int(payload[at : at + 6]) for at in range(0, len(payload), 6)]
    assert kept[: len(acknowledged)] == acknowledged
    assert len(kept) <= len(acknowledged) + 1


# What may be deleted


def test_the_newest_slot_stays_while_its_directory_is_open() -> None:
    store = MemoryStore()
    logs = logs_on(store)
    written(logs.create(LOG), b"one", b"two")
    second = logs.create("wal/1/000002.wal")

    logs.delete(LOG)

    assert list(slots_of(store)) == [2]
    assert [info.path for info in logs.list("wal/")] == ["wal/1/000002.wal"]
    written(second, b"three", b"four")
    logs.delete("wal/1/000002.wal")
    assert list(slots_of(store)) == [4]


def test_a_slot_stays_until_all_its_files_are_deleted() -> None:
    store = MemoryStore()
    logs = logs_on(store)
    first, second = logs.create(LOG), logs.create("wal/1/000002.wal")
    first.append([b"one"])
    written(second, b"two", b"three", b"four")

    logs.delete(LOG)
    assert list(slots_of(store)) == [1, 2, 3]
    assert logs.get("wal/1/000002.wal").payload == b"twothreefour"
