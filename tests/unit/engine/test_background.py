"""BackgroundWork: a thread that runs steps, reports failures, and ends with its owner."""

import gc
import threading
from collections.abc import Callable

import pytest

from neve.engine.background import BackgroundWork
from neve.errors import Closed, Fenced, NeveError, NotFound, Unavailable

WAIT_SECONDS = 30


class Owner:
    """Does what a test tells it to, and says when it did."""

    def __init__(self, *deeds: Callable[[], bool]) -> None:
        self.deeds = list(deeds)
        self.calls = 0
        self.idle = threading.Event()

    def step(self) -> bool:
        self.calls += 1
        if not self.deeds:
            self.idle.set()
            return False
        return self.deeds.pop(0)()


def fails(error: Exception) -> Callable[[], bool]:
    def deed() -> bool:
        raise error

    return deed


def thread_named(name: str) -> threading.Thread | None:
    return next((each for each in threading.enumerate() if each.name == name), None)


def test_steps_run_until_none_finds_work() -> None:
    owner = Owner(lambda: True, lambda: True)
    work = BackgroundWork("bg-run", [owner.step])
    work.start()
    work.wake()

    assert owner.idle.wait(WAIT_SECONDS)
    work.close()

    assert owner.calls == 3
    assert thread_named("bg-run") is None


@pytest.mark.parametrize(
    "error",
    [Unavailable("no room"), OSError("a library's own"), ValueError("a fault of ours")],
    ids=["ours", "the system's", "unforeseen"],
)
def test_a_step_that_fails_is_told_of_and_tried_again(error: Exception) -> None:
    told: list[NeveError] = []
    owner = Owner(fails(error))
    work = BackgroundWork(
        "bg-fails", [owner.step], on_failure=lambda _, failure: told.append(failure)
    )
    work.start()
    work.wake()

    assert owner.idle.wait(WAIT_SECONDS)
    work.close()

    assert len(told) == 1
    assert str(error) in str(told[0])
    assert work.failure is None, "it went on"


@pytest.mark.parametrize(
    "error", [Fenced("another writer"), Closed("the end")], ids=["fenced", "closed"]
)
def test_a_writer_that_may_not_go_on_does_not_try_again(error: NeveError) -> None:
    owner = Owner(fails(error))
    work = BackgroundWork("bg-ended", [owner.step])
    work.start()
    thread = thread_named("bg-ended")
    work.wake()
    assert thread is not None
    thread.join(WAIT_SECONDS)

    assert work.failure is error
    assert owner.calls == 1


def test_that_work_is_over_is_told_though_it_failed_before() -> None:
    told: list[NeveError] = []
    failures = [Unavailable("no room"), Fenced("another writer")]
    owner = Owner(*map(fails, failures))
    work = BackgroundWork(
        "bg-over", [owner.step], on_failure=lambda _, failure: told.append(failure)
    )
    work.start()
    thread = thread_named("bg-over")
    work.wake()
    assert thread is not None
    thread.join(WAIT_SECONDS)

    assert told == failures


class EndedOwner(Owner):
    """Says that its work is over for good, or not."""

    is_over = False

    def has_ended(self) -> bool:
        return self.is_over


def test_what_is_missing_is_looked_for_again_until_the_work_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gone = NotFound("gone")

    def fails_for_good() -> bool:
        owner.is_over = True
        raise gone

    owner = EndedOwner(fails(NotFound("one file")), fails_for_good, lambda: True)
    work = BackgroundWork("bg-gone", [owner.step], has_ended=owner.has_ended)
    work.start()
    thread = thread_named("bg-gone")
    work.wake()
    assert thread is not None
    thread.join(WAIT_SECONDS)

    assert work.failure is gone
    assert owner.calls == 2
    assert [record.getMessage() for record in caplog.records] == [
        "background work failed name=bg-gone cause=one file"
    ]


def test_closing_at_once_after_starting_never_hangs() -> None:
    for _ in range(200):
        owner = Owner()
        work = BackgroundWork("bg-at-once", [owner.step])
        work.start()
        work.close()
        assert thread_named("bg-at-once") is None


def test_the_thread_of_an_owner_that_is_gone_ends() -> None:
    owner: Owner | None = Owner()
    assert owner is not None
    work = BackgroundWork("bg-orphan", [owner.step])
    work.start()
    thread = thread_named("bg-orphan")
    assert thread is not None

    owner = None
    gc.collect()
    thread.join(WAIT_SECONDS)

    assert not thread.is_alive()


def test_a_wake_up_while_a_step_runs_is_not_lost() -> None:
    running, may_end = threading.Event(), threading.Event()

    def slow() -> bool:
        running.set()
        assert may_end.wait(WAIT_SECONDS)
        return False

    owner = Owner(slow)
    work = BackgroundWork("bg-wake", [owner.step])
    work.start()
    work.wake()
    assert running.wait(WAIT_SECONDS)
    work.wake()
    may_end.set()

    assert owner.idle.wait(WAIT_SECONDS), "the second wake-up found nothing to do"
    work.close()
