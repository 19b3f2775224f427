"""Leaders and followers: order, grouping, and nobody left asleep."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import pytest

from neve.storage.commit_queue import CommitQueue, Latch
from tests.interruption import interrupted


@dataclass(frozen=True)
class Parcel:
    name: str
    byte_count: int = 1


class Recording:
    """A commit function that can be held, and remembers its groups."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.fail_with: BaseException | None = None

    def __call__(self, group: Sequence[Parcel]) -> None:
        self.groups.append([parcel.name for parcel in group])
        if len(self.groups) == 1:
            self.entered.set()
            self.leave.wait()
        elif self.fail_with is not None:
            raise self.fail_with


def held_queue(group_bytes_max: int = 100) -> tuple[CommitQueue[Parcel], Recording]:
    commit = Recording()
    queue = CommitQueue(commit, group_bytes_max=group_bytes_max, make_latch=threading.Lock)
    return queue, commit


def join_in_order(queue: CommitQueue[Parcel], *parcels: Parcel) -> list[threading.Thread]:
    """Start one thread per parcel, each once the one before it waits."""
    threads = []
    for count, parcel in enumerate(parcels, start=1):
        thread = threading.Thread(target=queue.submit, args=(parcel,))
        thread.start()
        threads.append(thread)
        while len(queue._waiting) < count:
            threading.Event().wait(0.001)
    return threads


def test_one_thread_alone_commits_at_once() -> None:
    queue, commit = held_queue()
    commit.leave.set()

    queue.submit(Parcel("a"))
    queue.submit(Parcel("b"))

    assert commit.groups == [["a"], ["b"]]


def test_the_lead_is_given_to_one_and_passed_on_to_those_who_wait() -> None:
    queue, commit = held_queue()
    commit.leave.set()

    turn = queue.lead()
    assert turn
    assert not queue.lead()
    followers = join_in_order(queue, Parcel("a"), Parcel("b"))
    assert commit.groups == []
    queue.pass_on(turn)
    for thread in followers:
        thread.join(timeout=10)

    assert commit.groups == [["a", "b"]]
    assert queue.lead()


def test_those_who_wait_are_committed_together_in_order() -> None:
    queue, commit = held_queue()
    leader = threading.Thread(target=queue.submit, args=(Parcel("first"),))
    leader.start()
    commit.entered.wait()

    followers = join_in_order(queue, Parcel("a"), Parcel("b"), Parcel("c"))
    commit.leave.set()
    for thread in [leader, *followers]:
        thread.join(timeout=10)

    assert commit.groups == [["first"], ["a", "b", "c"]]


def test_a_group_stays_below_its_bytes() -> None:
    queue, commit = held_queue(group_bytes_max=5)
    leader = threading.Thread(target=queue.submit, args=(Parcel("first"),))
    leader.start()
    commit.entered.wait()

    followers = join_in_order(queue, Parcel("a", 3), Parcel("b", 2), Parcel("c", 9), Parcel("d"))
    commit.leave.set()
    for thread in [leader, *followers]:
        thread.join(timeout=10)

    assert commit.groups == [["first"], ["a", "b"], ["c"], ["d"]]


def test_a_lone_action_keeps_its_place_in_the_queue() -> None:
    queue, commit = held_queue()
    leader = threading.Thread(target=queue.submit, args=(Parcel("first"),))
    leader.start()
    commit.entered.wait()
    before = join_in_order(queue, Parcel("a"))
    alone = threading.Thread(
        target=queue.run_alone, args=(lambda: commit.groups.append(["alone"]),)
    )
    alone.start()
    while len(queue._waiting) < 2:
        threading.Event().wait(0.001)
    after = threading.Thread(target=queue.submit, args=(Parcel("b"),))
    after.start()
    while len(queue._waiting) < 3:
        threading.Event().wait(0.001)

    commit.leave.set()
    for thread in [leader, *before, alone, after]:
        thread.join(timeout=10)

    assert commit.groups == [["first"], ["a"], ["alone"], ["b"]]


def test_a_failing_commit_fails_everyone_in_its_group_and_nobody_else() -> None:
    queue, commit = held_queue()
    commit.fail_with = OSError("no space")
    failures: list[str] = []

    def submit(name: str) -> None:
        try:
            queue.submit(Parcel(name))
        except OSError:
            failures.append(name)

    threads = [threading.Thread(target=submit, args=("first",))]
    threads[0].start()
    commit.entered.wait()
    for count, name in enumerate("abc", start=1):
        threads.append(threading.Thread(target=submit, args=(name,)))
        threads[-1].start()
        while len(queue._waiting) < count:
            threading.Event().wait(0.001)
    commit.leave.set()
    for thread in threads:
        thread.join(timeout=10)

    assert sorted(failures) == ["a", "b", "c"]
    commit.fail_with = None
    queue.submit(Parcel("later"))
    assert commit.groups[-1] == ["later"]


def test_an_interrupted_leader_leaves_the_queue_usable() -> None:
    queue, commit = held_queue()
    commit.leave.set()
    queue.submit(Parcel("first"))
    commit.fail_with = KeyboardInterrupt()

    with pytest.raises(KeyboardInterrupt):
        queue.submit(Parcel("interrupted"))

    commit.fail_with = None
    queue.submit(Parcel("later"))
    assert commit.groups[-1] == ["later"]


class InterruptedLatch:
    """A lock whose holder is interrupted the second time it waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits = 0

    def acquire(self) -> bool:
        self._waits += 1
        if self._waits == 2:
            raise KeyboardInterrupt
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def test_an_interrupted_wait_leaves_the_queue_to_the_others() -> None:
    commit = Recording()
    # The queue's own lock comes first, then one for each that waits.
    latches: Iterator[Latch] = iter([threading.Lock(), InterruptedLatch(), threading.Lock()])

    queue: CommitQueue[Parcel] = CommitQueue(
        commit, group_bytes_max=10, make_latch=lambda: next(latches)
    )
    leader = threading.Thread(target=queue.submit, args=(Parcel("first"),))
    leader.start()
    commit.entered.wait()

    with pytest.raises(KeyboardInterrupt):
        queue.submit(Parcel("interrupted"))
    commit.leave.set()
    leader.join(timeout=10)
    queue.submit(Parcel("later"))

    assert commit.groups == [["first"], ["later"]]


def finishes(action: Callable[[], object]) -> bool:
    """Run an action in another thread; False when it hangs."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(timeout=10)
    return not thread.is_alive()


def free_queue() -> tuple[CommitQueue[Parcel], list[list[str]]]:
    groups: list[list[str]] = []
    queue: CommitQueue[Parcel] = CommitQueue(
        lambda group: groups.append([parcel.name for parcel in group]),
        group_bytes_max=100,
        make_latch=threading.Lock,
    )
    return queue, groups


@pytest.mark.parametrize("call", ["submit", "run_alone"])
def test_a_leader_interrupted_anywhere_leaves_the_queue_to_the_next(call: str) -> None:
    place = 0
    is_interrupted = True
    while is_interrupted:
        place += 1
        queue, groups = free_queue()
        action = {
            "submit": lambda queue=queue: queue.submit(Parcel("a")),
            "run_alone": lambda queue=queue: queue.run_alone(lambda: None),
        }[call]
        is_interrupted = interrupted(action, place, part="storage/commit_queue")

        assert finishes(partial(queue.submit, Parcel("next"))), f"hangs after place {place}"
        assert groups[-1] == ["next"]
    assert place > 5


def lead_on(
    queue: CommitQueue[Parcel], turn: int, behind: threading.Thread, done: threading.Event
) -> None:
    """Let another follow the one that is interrupted, then pass the lead on."""
    while not queue._waiting and not done.wait(0.001):
        pass
    behind.start()
    while all(seat.work != Parcel("behind") for seat in list(queue._waiting)):
        done.wait(0.001)
    queue.pass_on(turn)


def test_a_follower_interrupted_anywhere_leaves_nobody_asleep() -> None:
    place = 0
    is_interrupted = True
    while is_interrupted:
        place += 1
        queue, groups = free_queue()
        behind = threading.Thread(target=queue.submit, args=(Parcel("behind"),), daemon=True)
        done = threading.Event()
        leader = threading.Thread(
            target=lead_on, args=(queue, queue.lead(), behind, done), daemon=True
        )
        leader.start()
        is_interrupted = interrupted(
            partial(queue.submit, Parcel("a")), place, part="storage/commit_queue"
        )
        done.set()
        leader.join(timeout=10)
        behind.join(timeout=10)

        assert not leader.is_alive(), f"the leader hangs after place {place}"
        assert not behind.is_alive(), f"the one behind hangs after place {place}"
        assert finishes(partial(queue.submit, Parcel("next"))), f"hangs after place {place}"
        names = [name for group in groups for name in group]
        assert names.count("behind") == 1
        assert names[-1] == "next"
    assert place > 10


def test_followers_are_woken_one_after_another() -> None:
    queue, commit = held_queue()
    leader = threading.Thread(target=queue.submit, args=(Parcel("first"),))
    leader.start()
    commit.entered.wait()
    held = threading.Lock()
    followers = join_in_order(queue, Parcel("a"), Parcel("b"), Parcel("c"), Parcel("d"))
    _, second, third, last = queue._waiting
    # A thread that does not come back from its wait keeps those after it asleep, and no one else.
    held.acquire()
    second.latch, waited = held, second.latch
    commit.leave.set()
    followers[0].join(timeout=10)

    assert commit.groups == [["first"], ["a", "b", "c", "d"]]
    assert second.following is third
    assert third.following is last
    assert followers[2].is_alive()
    assert finishes(partial(queue.submit, Parcel("next")))
    waited.release()
    for thread in [leader, *followers]:
        thread.join(timeout=10)
        assert not thread.is_alive()


def test_one_of_a_group_interrupted_anywhere_wakes_those_after_it() -> None:
    place = 0
    is_interrupted = True
    while is_interrupted:
        place += 1
        queue, groups = free_queue()
        turn = queue.lead()
        (before,) = join_in_order(queue, Parcel("before"))
        after = {
            Parcel(name): threading.Thread(target=queue.submit, args=(Parcel(name),), daemon=True)
            for name in ("next to it", "last")
        }
        done = threading.Event()

        def lead_on(
            queue: CommitQueue[Parcel] = queue,
            turn: int = turn,
            after: dict[Parcel, threading.Thread] = after,
            done: threading.Event = done,
        ) -> None:
            while len(queue._waiting) < 2 and not done.wait(0.001):
                pass
            for parcel, thread in after.items():
                thread.start()
                while all(seat.work != parcel for seat in list(queue._waiting)):
                    threading.Event().wait(0.001)
            queue.pass_on(turn)

        leader = threading.Thread(target=lead_on, daemon=True)
        leader.start()
        is_interrupted = interrupted(
            partial(queue.submit, Parcel("interrupted")), place, part="storage/commit_queue"
        )
        done.set()
        for thread in (leader, before, *after.values()):
            thread.join(timeout=10)
            assert not thread.is_alive(), f"a thread sleeps after place {place}"
        assert finishes(partial(queue.submit, Parcel("next"))), f"hangs after place {place}"
        names = [name for group in groups for name in group]
        assert [names.count(each) for each in ("before", "next to it", "last", "next")] == [1] * 4
    assert place > 10
