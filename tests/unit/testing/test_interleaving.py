"""Interleaving: one thread at a time, in an order the seed decides."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from neve.storage.memory_store import MemoryStore
from neve.testing.interleaving import Deadlock, InterleavedDisk, Interleaving, interleaved
from neve.testing.simulated_disk import PowerCut, SimulatedDisk

SEEDS = range(40)
pytestmark = pytest.mark.usefixtures("no_forgotten")


def racing_counters(seed: int) -> tuple[int, tuple[str, ...]]:
    """Two threads that read, then write, a counter on a disk without any lock."""
    interleaving = Interleaving(seed)
    disk = InterleavedDisk(SimulatedDisk(), interleaving)
    handle = disk.create_file("/counter")
    disk.write(handle, [b"\0"], 0)

    def count() -> None:
        for _ in range(3):
            number = disk.read(handle, 0, 1)[0]
            disk.write(handle, [bytes([number + 1])], 0)

    for outcome in interleaving.run({"a": count, "b": count}).values():
        outcome.result()
    return disk.read(handle, 0, 1)[0], interleaving.trace


def test_the_same_seed_gives_the_same_trace_and_result() -> None:
    for seed in SEEDS:
        assert racing_counters(seed) == racing_counters(seed)


def test_different_seeds_find_every_number_of_lost_updates() -> None:
    results = {racing_counters(seed)[0] for seed in SEEDS}

    assert results == {3, 4, 5, 6}


def test_exactly_one_thread_runs_at_a_time() -> None:
    interleaving = Interleaving(1)
    running: list[str] = []
    most = 0

    def work(name: str) -> None:
        nonlocal most
        for step in range(50):
            running.append(name)
            most = max(most, len(running))
            running.remove(name)
            interleaving.switch(f"step {step}")

    for outcome in interleaving.run({name: partial(work, name) for name in "abcd"}).values():
        outcome.result()

    assert most == 1
    assert len(interleaving.trace) == 200


def test_what_a_function_returns_or_raises_is_its_outcome() -> None:
    def fail() -> int:
        raise ValueError("on purpose")

    def lose_power() -> int:
        raise PowerCut

    outcomes = Interleaving().run({"a": lambda: 7, "b": fail, "c": lose_power})

    assert list(outcomes) == ["a", "b", "c"]
    assert outcomes["a"].result() == 7
    with pytest.raises(ValueError, match="on purpose"):
        outcomes["b"].result()
    with pytest.raises(PowerCut):
        outcomes["c"].result()


def test_outside_of_a_run_nothing_switches() -> None:
    interleaving = Interleaving()

    interleaving.switch("alone")
    with interleaving.lock():
        pass

    assert interleaving.trace == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_held_across_switch_points_excludes(seed: int) -> None:
    interleaving = Interleaving(seed)
    disk = InterleavedDisk(SimulatedDisk(), interleaving)
    handle = disk.create_file("/counter")
    disk.write(handle, [b"\0"], 0)
    lock = interleaving.lock()

    def count() -> None:
        for _ in range(3):
            with lock:
                assert lock.locked()
                number = disk.read(handle, 0, 1)[0]
                disk.write(handle, [bytes([number + 1])], 0)

    for outcome in interleaving.run({"a": count, "b": count, "c": count}).values():
        outcome.result()

    assert disk.read(handle, 0, 1)[0] == 9


def test_a_deadlock_is_found_and_says_who_waits_for_what() -> None:
    deadlocks = 0
    for seed in SEEDS:
        interleaving = Interleaving(seed)
        left, right = interleaving.lock("left"), interleaving.lock("right")

        def take(first: object, second: object) -> None:
            with first, second:  # type: ignore[attr-defined]
                pass

        outcomes = interleaving.run(
            {"a": partial(take, left, right), "b": partial(take, right, left)}
        )

        errors = [outcome.error for outcome in outcomes.values() if outcome.error is not None]
        if errors:
            deadlocks += 1
            assert [type(error) for error in errors] == [Deadlock, Deadlock]
            assert str(errors[0]) == "a waits for right 1; b waits for left 1"
            assert interleaving.is_deadlocked
    assert 0 < deadlocks < len(SEEDS)


def test_a_lost_wake_up_is_a_deadlock_too() -> None:
    interleaving = Interleaving(0)
    condition = interleaving.condition()

    def wait() -> None:
        with condition:
            condition.wait()

    outcome = interleaving.run({"a": wait})["a"]

    with pytest.raises(Deadlock, match="a waits for condition 1"):
        outcome.result()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_condition_hands_over_one_item_at_a_time(seed: int) -> None:
    interleaving = Interleaving(seed)
    condition = interleaving.condition()
    queue: list[int] = []
    received: list[int] = []

    def produce() -> None:
        for number in range(5):
            with condition:
                queue.append(number)
                condition.notify()

    def consume(count: int) -> None:
        for _ in range(count):
            with condition:
                assert condition.wait_for(lambda: bool(queue))
                received.append(queue.pop(0))

    functions: dict[str, Callable[[], None]] = {
        "producer": produce,
        "first": partial(consume, 2),
        "second": partial(consume, 3),
    }
    for outcome in interleaving.run(functions).values():
        outcome.result()

    assert received == [0, 1, 2, 3, 4]


def test_everyone_who_waits_can_be_woken() -> None:
    interleaving = Interleaving(3)
    condition = interleaving.condition(interleaving.lock("mine"), name="ready")
    is_ready = False

    def wait() -> bool:
        with condition:
            while not is_ready:
                condition.wait()
        return True

    def make_ready() -> bool:
        nonlocal is_ready
        with condition:
            is_ready = True
            condition.notify_all()
        return True

    outcomes = interleaving.run({"a": wait, "b": wait, "c": wait, "d": make_ready})

    assert all(outcome.result() for outcome in outcomes.values())


def test_a_wait_with_a_limit_ends_when_nobody_else_can_run() -> None:
    interleaving = Interleaving(0)
    condition = interleaving.condition()
    lock = interleaving.lock()

    def wait() -> tuple[bool, bool]:
        with condition:
            never = condition.wait_for(lambda: False, timeout=5)
            return condition.wait(timeout=5), never

    def hold_and_wait() -> bool:
        with lock:
            return lock.acquire(timeout=5)

    outcomes: dict[str, object] = {
        name: outcome.result()
        for name, outcome in interleaving.run({"a": wait, "b": hold_and_wait}).items()
    }

    assert outcomes == {"a": (False, False), "b": False}


def test_a_lock_can_be_tried() -> None:
    lock = Interleaving().lock()

    assert lock.acquire(blocking=False)
    assert not lock.acquire(blocking=False)
    lock.release()
    with pytest.raises(RuntimeError, match="no one holds"):
        lock.release()


def test_waiting_where_nobody_can_help_is_a_deadlock() -> None:
    lock = Interleaving().lock()
    lock.acquire()

    with pytest.raises(Deadlock, match="lock 1"):
        lock.acquire()


def test_any_object_can_be_made_to_switch_at_its_calls() -> None:
    interleaving = Interleaving(5)
    store = interleaved(MemoryStore(), interleaving)

    def race(name: str) -> bool:
        return store.put_if_absent("slot", name.encode()) is not None

    outcomes = interleaving.run({"a": partial(race, "a"), "b": partial(race, "b")})

    assert sorted(outcome.result() for outcome in outcomes.values()) == [False, True]
    assert sorted(interleaving.trace) == ["a: put_if_absent", "b: put_if_absent"]
    assert store.location.startswith("memory://")


def test_no_thread_is_left_behind() -> None:
    before = threading.active_count()

    Interleaving().run({name: (lambda: None) for name in "abcdef"})

    assert threading.active_count() == before
