"""Leases: they keep what is being read, end by themselves, and stop a reader that came too late."""

from typing import NoReturn

import pytest

from neve.errors import (
    Fenced,
    InvalidArgument,
    NotFound,
    OutcomeUnknown,
    StorageFull,
    Unavailable,
)
from neve.manifest.documents import Lease, encode_lease
from neve.manifest.leases import LEASE_SECONDS_MAX, HeldLease, Leases
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore, StoredObject
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.manifest.builders import HOUR_MS, PREFIX, table_with


def leases_on(objects: ObjectStore, clock: SimulatedClock) -> Leases:
    return Leases(objects, PREFIX, clock=clock, ids=SeededIds(7))


def held(*, seconds: float = 10.0) -> tuple[SimulatedClock, Leases, HeldLease]:
    clock = SimulatedClock()
    leases = leases_on(MemoryStore(), clock)
    return clock, leases, leases.take(3, seconds=seconds)


def versions_of(leases: Leases) -> list[int]:
    return [lease.version for lease in leases.unexpired()]


class SlowStore(MemoryStore):
    """A store whose writes take time."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock
        self.seconds_per_put = 0.0

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        self._clock.advance(self.seconds_per_put)
        return super().put_if_absent(path, payload)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        self._clock.advance(self.seconds_per_put)
        return super().put_if_match(path, payload, tag=tag)


def test_a_lease_is_in_force_until_its_time() -> None:
    clock, leases, _ = held(seconds=10)
    assert versions_of(leases) == [3]

    clock.advance(9.999)
    assert versions_of(leases) == [3]
    clock.advance(0.001)
    assert versions_of(leases) == []


def test_an_expired_lease_is_removed_and_a_live_one_stays() -> None:
    clock, leases, _ = held(seconds=10)
    leases.take(4, seconds=20)
    clock.advance(10)

    assert leases.remove_expired() == 1
    assert leases.remove_expired() == 0

    assert versions_of(leases) == [4]
    assert len(list(leases.objects.list(leases.paths.leases))) == 1


def test_a_reader_that_did_not_renew_is_stopped_before_its_lease_ends() -> None:
    clock, leases, lease = held(seconds=10)
    clock.advance(8)

    with pytest.raises(Fenced, match="not renewed for 10 s") as caught:
        lease.check()

    assert caught.value.path == leases.paths.lease(lease.lease_id)
    assert versions_of(leases) == [3]


def test_checking_in_time_keeps_a_lease_for_ever() -> None:
    clock, leases, lease = held(seconds=10)

    for _ in range(100):
        clock.advance(3)
        lease.check()
        assert versions_of(leases) == [3]


def test_a_young_lease_is_not_written_again() -> None:
    clock = SimulatedClock()
    store = FaultyStore(MemoryStore(), [])
    lease = leases_on(store, clock).take(3, seconds=10)
    clock.advance(3.9)

    lease.check()
    assert len(store.calls) == 1
    clock.advance(0.1)
    lease.check()
    assert len(store.calls) == 2


def test_a_lease_that_could_not_be_written_is_not_written_later() -> None:
    class FullStore(MemoryStore):
        def put_if_absent(self, path: str, payload: bytes) -> NoReturn:
            del payload
            raise StorageFull("no space", path=path)

    clock = SimulatedClock()
    store = FaultyStore(FullStore(), [])
    leases = leases_on(store, clock)
    lease = leases.take(3, seconds=10)
    clock.advance(100)

    lease.check()
    assert len(store.calls) == 1
    assert versions_of(leases) == [3]
    lease.release()
    with pytest.raises(Fenced):
        lease.check()


def test_a_lease_that_has_lapsed_is_not_renewed() -> None:
    clock = SimulatedClock()
    store = FaultyStore(MemoryStore(), [])
    leases = leases_on(store, clock)
    lease = leases.take(3, seconds=10)
    clock.advance(100)
    leases.remove_expired()
    calls = len(store.calls)

    with pytest.raises(Fenced):
        lease.renew()
    with pytest.raises(Fenced):
        lease.check()

    assert len(store.calls) == calls
    assert versions_of(leases) == []


def test_a_renewal_that_arrives_after_the_lease_lapsed_stops_the_reader() -> None:
    clock = SimulatedClock()
    store = SlowStore(clock)
    leases = leases_on(store, clock)
    lease = leases.take(3, seconds=10)
    clock.advance(5)
    store.seconds_per_put = 4

    with pytest.raises(Fenced):
        lease.renew()

    assert versions_of(leases) == []


def test_a_lease_counts_from_before_it_was_written() -> None:
    clock = SimulatedClock()
    store = SlowStore(clock)
    store.seconds_per_put = 7.5
    lease = leases_on(store, clock).take(3, seconds=10)
    store.seconds_per_put = 0

    clock.advance(0.5)

    with pytest.raises(Fenced):
        lease.check()


def test_storage_that_does_not_answer_ends_a_lease_only_when_its_time_is_over() -> None:
    clock = SimulatedClock()
    faults = [PlannedFault(fault=Fault.BEFORE, operation=Operation.PUT_IF_MATCH, times=1_000)]
    objects = MemoryStore()
    lease = leases_on(objects, clock).take(3, seconds=10)
    lease._leases.objects = FaultyStore(objects, faults)
    clock.advance(7)

    lease.check()
    with pytest.raises(Unavailable):
        lease.renew()
    clock.advance(1)
    with pytest.raises(Fenced):
        lease.check()


def test_a_wall_clock_that_jumps_ahead_stops_the_reader_whose_lease_it_ends() -> None:
    clock, leases, lease = held(seconds=10)

    clock.set_now_ms(clock.now_ms() + HOUR_MS)

    assert versions_of(leases) == []
    with pytest.raises(Fenced):
        lease.check()


def test_a_wall_clock_that_jumps_back_only_keeps_files_longer() -> None:
    clock, leases, lease = held(seconds=10)
    clock.set_now_ms(clock.now_ms() - HOUR_MS)

    clock.advance(7)
    assert versions_of(leases) == [3]
    lease.check()
    clock.advance(7)
    lease.check()
    assert versions_of(leases) == [3]
    clock.advance(10)
    assert versions_of(leases) == []
    with pytest.raises(Fenced):
        lease.check()


def test_a_released_lease_is_gone_and_stays_gone() -> None:
    _, leases, lease = held()

    lease.release()
    lease.release()

    assert versions_of(leases) == []
    for act in (lease.check, lease.renew):
        with pytest.raises(Fenced):
            act()
    assert versions_of(leases) == []


@pytest.mark.parametrize("seconds", [0, -1, LEASE_SECONDS_MAX + 1, float("inf"), float("nan")])
def test_a_lease_without_an_end_is_refused(seconds: float) -> None:
    leases = leases_on(MemoryStore(), SimulatedClock())

    with pytest.raises(InvalidArgument, match="lease"):
        leases.take(3, seconds=seconds)

    assert versions_of(leases) == []


@pytest.mark.parametrize("versions", [(-1, None), (1, -1), (1 << 64, None), (1, 1 << 64)])
def test_a_lease_on_no_version_is_refused(versions: tuple[int, int | None]) -> None:
    leases = leases_on(MemoryStore(), SimulatedClock())

    with pytest.raises(InvalidArgument, match="version"):
        leases.take(versions[0], seconds=60, last=versions[1])

    assert versions_of(leases) == []


def test_a_lease_that_cannot_be_read_counts_for_every_version_and_is_left_alone() -> None:
    _, leases, lease = held()
    path = leases.paths.lease(lease.lease_id)
    leases.objects.put(path, b"damaged")

    assert versions_of(leases) == [0]
    assert leases.remove_expired() == 0
    assert leases.objects.get(path).payload == b"damaged"


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".keep",
        "x" * 32,
        "A" * 32,
        "0" * 31,
        "0" * 33,
        "0" * 31 + "\u0660",
        "a/" + "0" * 32,
    ],
    ids=ascii,
)
def test_a_foreign_file_among_the_leases_holds_nothing_back_and_stays(name: str) -> None:
    _, leases, _ = held()
    leases.objects.put(f"{leases.paths.leases}{name}", b"not a lease")

    assert versions_of(leases) == [3]
    assert leases.remove_expired() == 0
    assert leases.objects.get(f"{leases.paths.leases}{name}").payload == b"not a lease"


def test_a_lease_that_ends_later_than_any_may_is_not_honoured() -> None:
    """Its taker's clock was wrong by more than clocks may differ; it would hold for ever."""
    clock = SimulatedClock()
    objects = MemoryStore()
    longest_ms = int(LEASE_SECONDS_MAX * 1.2) * 1_000
    for number, expires_ms in enumerate((longest_ms, longest_ms + 1), start=3):
        lease = Lease(
            lease_id=f"{number:032x}", version=number, expires_ms=clock.now_ms() + expires_ms
        )
        objects.put(f"{PREFIX}/leases/{lease.lease_id}", encode_lease(lease))
    leases = leases_on(objects, clock)

    assert versions_of(leases) == [3]
    assert leases.remove_expired() == 1
    assert [found.path[-1] for found in objects.list(leases.paths.leases)] == ["3"]


def test_a_collector_whose_clock_is_days_behind_still_honours_leases() -> None:
    """What the table's history shows to have passed has passed, whatever the clock says."""
    clock, leases, _ = held()
    known_ms = clock.now_ms()
    clock.set_now_ms(known_ms - 1_000 * HOUR_MS)

    assert [lease.version for lease in leases.unexpired(known_ms=known_ms)] == [3]
    assert leases.remove_expired(known_ms=known_ms) == 0


def test_a_lease_that_was_deleted_meanwhile_is_not_brought_back() -> None:
    for act in (HeldLease.renew, HeldLease.check):
        clock, leases, lease = held(seconds=10)
        leases.objects.delete(leases.paths.lease(lease.lease_id))
        clock.advance(5)

        with pytest.raises(Fenced, match="gone") as caught:
            act(lease)

        assert caught.value.path == leases.paths.lease(lease.lease_id)
        assert versions_of(leases) == []
        with pytest.raises(Fenced):
            lease.check()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE, Fault.TIMEOUT, Fault.TWICE])
def test_a_renewal_whose_answer_was_lost_does_not_end_the_lease(fault: Fault) -> None:
    clock = SimulatedClock()
    planned = PlannedFault(fault=fault, operation=Operation.PUT_IF_MATCH)
    leases = leases_on(FaultyStore(MemoryStore(), [planned]), clock)
    lease = leases.take(3, seconds=10)

    for _ in range(5):
        clock.advance(5)
        lease.check()
        lease.check()

    assert versions_of(leases) == [3]


def test_a_renewal_that_arrives_after_the_release_brings_nothing_back() -> None:
    clock = SimulatedClock()
    planned = PlannedFault(fault=Fault.LATE, operation=Operation.PUT_IF_MATCH)
    store = FaultyStore(MemoryStore(), [planned])
    leases = leases_on(store, clock)
    lease = leases.take(3, seconds=10)
    clock.advance(5)
    with pytest.raises(OutcomeUnknown):
        lease.renew()

    lease.release()  # the late renewal arrives just before it
    store.put("somewhere", b"")

    assert versions_of(leases) == []


def test_two_threads_that_renew_at_once_both_go_on() -> None:
    clock = SimulatedClock()
    objects = MemoryStore()

    class RacingStore(MemoryStore):
        """A store in which the other thread's renewal comes first, once."""

        def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
            if races and races.pop():
                lease.renew()
            return objects.put_if_match(path, payload, tag=tag)

    leases = leases_on(objects, clock)
    lease = leases.take(3, seconds=10)
    races = [False, True]
    racing = RacingStore()
    racing._contents = objects._contents
    leases.objects = racing
    clock.advance(5)

    lease.renew()
    clock.advance(7)
    lease.check()

    assert races == []
    assert versions_of(leases) == [3]


def test_a_lease_that_vanishes_while_leases_are_listed_is_no_error() -> None:
    clock = SimulatedClock()

    class VanishingStore(MemoryStore):
        """A store in which another process removes what was listed."""

        def get(self, path: str) -> StoredObject:
            raise NotFound("there is no such object", path=path)

    store = VanishingStore()
    leases = leases_on(store, clock)
    leases.take(3, seconds=10)

    assert versions_of(leases) == []
    assert leases.remove_expired() == 0


def test_a_lease_taken_before_the_plan_keeps_its_version_readable() -> None:
    bench = table_with("a")
    bench.replace_file("a", "b")
    reader = bench.another()
    lease = reader.leases.take(2, seconds=60)
    wanted = reader.versions.version(2)

    bench.expire()

    assert bench.delete_garbage() == []
    assert reader.versions.version(2) == wanted
    lease.release()
    bench.expire()
    assert len(bench.delete_garbage()) == 1
    with pytest.raises(NotFound):
        reader.versions.version(2)
