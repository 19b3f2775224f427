"""FaultyStore strikes where its plan says, does what its table says, and is an ObjectStore."""

import pytest

from neve.errors import InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault, StoreCall
from neve.testing.store_contract import ObjectStoreContract

NOT_APPLIED = [Fault.BEFORE, Fault.CONFLICT, Fault.TIMEOUT]
APPLIED = [Fault.LOST, Fault.BUSY]
CERTAIN = {Fault.BEFORE, Fault.CONFLICT}


class TestAFaultyStoreWithoutFaultsKeepsTheContract(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return FaultyStore(MemoryStore())


def failing(inner: ObjectStore, fault: Fault) -> FaultyStore:
    return FaultyStore(inner, [PlannedFault(fault=fault, call=1)])


@pytest.mark.parametrize("fault", NOT_APPLIED)
def test_a_fault_before_the_store_leaves_it_unchanged(fault: Fault) -> None:
    inner = MemoryStore()
    tag = inner.put("old", b"old")
    expected = Unavailable if fault in CERTAIN else OutcomeUnknown

    with pytest.raises(expected):
        failing(inner, fault).put("new", b"new")
    with pytest.raises(expected):
        failing(inner, fault).put_if_absent("new", b"new")
    with pytest.raises(expected):
        failing(inner, fault).put_if_match("old", b"new", tag=tag)
    with pytest.raises(expected):
        failing(inner, fault).delete("old")

    assert [(info.path, inner.get(info.path).payload) for info in inner.list("")] == [
        ("old", b"old")
    ]


@pytest.mark.parametrize("fault", APPLIED)
def test_a_fault_behind_the_store_leaves_the_write_done(fault: Fault) -> None:
    inner = MemoryStore()
    inner.put("deleted", b"old")
    tag = inner.put("matched", b"old")

    with pytest.raises(OutcomeUnknown):
        failing(inner, fault).put("put", b"new")
    with pytest.raises(OutcomeUnknown):
        failing(inner, fault).put_if_absent("created", b"new")
    with pytest.raises(OutcomeUnknown):
        failing(inner, fault).put_if_match("matched", b"new", tag=tag)
    with pytest.raises(OutcomeUnknown):
        failing(inner, fault).delete("deleted")

    assert [(info.path, inner.get(info.path).payload) for info in inner.list("")] == [
        ("created", b"new"),
        ("matched", b"new"),
        ("put", b"new"),
    ]


def test_a_late_write_lands_just_before_the_next_write() -> None:
    inner = MemoryStore()
    store = failing(inner, Fault.LATE)

    with pytest.raises(OutcomeUnknown):
        store.put_if_absent("slot", b"late")
    with pytest.raises(NotFound):
        store.get("slot")

    assert store.put_if_absent("slot", b"second try") is None
    assert store.get("slot").payload == b"late"


def test_a_write_delivered_twice_succeeds_with_the_tag_that_is_stored() -> None:
    inner = MemoryStore()
    tag = inner.put("matched", b"old")

    created = failing(inner, Fault.TWICE).put_if_absent("created", b"new")
    matched = failing(inner, Fault.TWICE).put_if_match("matched", b"new", tag=tag)
    put = failing(inner, Fault.TWICE).put("put", b"new")
    failing(inner, Fault.TWICE).delete("missing")

    assert created == inner.get("created").tag
    assert matched == inner.get("matched").tag
    assert put == inner.get("put").tag


def test_a_lost_race_stays_lost_when_delivered_twice() -> None:
    inner = MemoryStore()
    inner.put("slot", b"taken")

    assert failing(inner, Fault.TWICE).put_if_absent("slot", b"new") is None


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.TWICE])
def test_a_read_that_fails_is_unavailable(fault: Fault) -> None:
    inner = MemoryStore()
    tag = inner.put("object", b"x")

    with pytest.raises(Unavailable):
        failing(inner, fault).get("object")
    with pytest.raises(Unavailable):
        failing(inner, fault).get_if_changed("object", tag=tag)
    with pytest.raises(Unavailable):
        failing(inner, fault).get_range("object", start=0, length=1)
    with pytest.raises(Unavailable):
        failing(inner, fault).size("object")
    with pytest.raises(Unavailable):
        failing(inner, fault).list("")


def test_a_read_delivered_twice_is_a_read() -> None:
    inner = MemoryStore()
    inner.put("object", b"x")

    assert failing(inner, Fault.TWICE).get("object").payload == b"x"


def test_a_fault_strikes_by_operation_and_path_as_often_as_planned() -> None:
    plan = [
        PlannedFault(
            fault=Fault.BEFORE, operation=Operation.PUT_IF_ABSENT, path_prefix="slots/", times=2
        )
    ]
    store = FaultyStore(MemoryStore(), plan)

    store.put("slots/0", b"another operation")
    store.put_if_absent("other/0", b"another path")
    for _ in range(2):
        with pytest.raises(Unavailable):
            store.put_if_absent("slots/1", b"x")

    assert store.put_if_absent("slots/1", b"x") is not None


def test_the_first_fault_that_fits_strikes() -> None:
    plan = [
        PlannedFault(fault=Fault.TIMEOUT, call=2),
        PlannedFault(fault=Fault.BEFORE, operation=Operation.PUT, times=9),
    ]
    store = FaultyStore(MemoryStore(), plan)

    for expected in (Unavailable, OutcomeUnknown, Unavailable):
        with pytest.raises(expected):
            store.put("object", b"x")

    assert [call.fault for call in store.calls] == [Fault.BEFORE, Fault.TIMEOUT, Fault.BEFORE]


def test_every_call_is_recorded_and_seen_before_it_is_made() -> None:
    inner = MemoryStore()
    seen: list[tuple[StoreCall, int]] = []
    store = FaultyStore(
        inner, before_call=lambda call: seen.append((call, len(list(inner.list("")))))
    )

    store.put("a", b"")
    store.delete("a")

    assert store.calls == (
        StoreCall(number=1, operation=Operation.PUT, path="a"),
        StoreCall(number=2, operation=Operation.DELETE, path="a"),
    )
    assert seen == [(store.calls[0], 0), (store.calls[1], 1)]


@pytest.mark.parametrize(("call", "times"), [(0, 1), (-1, 1), (None, 0)])
def test_a_plan_that_can_never_strike_is_refused(call: int | None, times: int) -> None:
    with pytest.raises(InvalidArgument):
        PlannedFault(fault=Fault.LOST, call=call, times=times)
