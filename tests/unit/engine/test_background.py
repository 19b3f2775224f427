"""BackgroundWork: steps that shared threads run, with failures reported, until the owner ends."""

import gc
import threading
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from neve.engine.background import BackgroundWork, WorkerPool, end_forgotten
from neve.errors import Closed, Fenced, NeveError, NotFound, Unavailable

WAIT_SECONDS = 30
pytestmark = pytest.mark.usefixtures("no_forgotten")


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


def pool_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("neve-")]


def test_steps_run_until_none_finds_work() -> None:
    owner = Owner(lambda: True, lambda: True)
    work = BackgroundWork("bg-run", [owner.step])
    work.start()
    work.wake()

    assert owner.idle.wait(WAIT_SECONDS)
    work.close()

    assert owner.calls == 3
    assert work.has_ended
    assert pool_threads() == [], "the last work ends the pool"


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
    work.wake()
    assert work.turn.ended.wait(WAIT_SECONDS)

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
    work.wake()
    assert work.turn.ended.wait(WAIT_SECONDS)

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
    work.wake()
    assert work.turn.ended.wait(WAIT_SECONDS)

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
        assert work.has_ended


def test_one_that_is_closed_when_its_steps_have_just_ended_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_run, is_told = threading.Event(), threading.Event()
    run, close = BackgroundWork.run, WorkerPool.close

    def run_and_wait(work: BackgroundWork) -> float | None:
        pause = run(work)
        has_run.set()
        is_told.wait(WAIT_SECONDS)
        return pause

    def close_and_tell(pool: WorkerPool, work: BackgroundWork) -> None:
        close(pool, work)
        is_told.set()

    monkeypatch.setattr(BackgroundWork, "run", run_and_wait)
    monkeypatch.setattr(WorkerPool, "close", close_and_tell)
    owner = Owner()
    work = BackgroundWork("bg-closed-late", [owner.step])
    work.start()
    work.wake()
    assert has_run.wait(WAIT_SECONDS)

    closing = threading.Thread(target=work.close, daemon=True)
    closing.start()
    closing.join(WAIT_SECONDS)

    assert work.has_ended


def test_the_work_of_an_owner_that_is_gone_ends() -> None:
    owner: Owner | None = Owner()
    assert owner is not None
    work = BackgroundWork("bg-orphan", [owner.step])
    work.start()

    owner = None
    gc.collect()

    assert work.turn.ended.wait(WAIT_SECONDS)


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


def test_works_of_many_owners_share_few_threads() -> None:
    owners = [Owner() for _ in range(500)]
    works = [BackgroundWork(f"bg-{at}", [each.step]) for at, each in enumerate(owners)]
    for work in works:
        work.start()
        work.wake()

    assert all(owner.idle.wait(WAIT_SECONDS) for owner in owners)
    assert len(pool_threads()) <= 33
    for work in works:
        work.close()
    assert pool_threads() == []


def test_one_that_waits_does_not_hold_up_the_others() -> None:
    may_end, running = threading.Event(), threading.Event()

    def slow() -> bool:
        running.set()
        assert may_end.wait(WAIT_SECONDS)
        return False

    blocked, other = Owner(slow), Owner()
    works = [BackgroundWork("bg-blocked", [blocked.step]), BackgroundWork("bg-other", [other.step])]
    for work in works:
        work.start()
        work.wake()
    assert running.wait(WAIT_SECONDS)

    assert other.idle.wait(WAIT_SECONDS)

    may_end.set()
    for work in works:
        work.close()


def test_a_step_may_close_its_own_work() -> None:
    closed = threading.Event()

    def close() -> bool:
        work.close()
        closed.set()
        return True

    owner = Owner(close)
    work = BackgroundWork("bg-own", [owner.step])
    work.start()
    work.wake()

    assert closed.wait(WAIT_SECONDS)
    assert work.turn.ended.wait(WAIT_SECONDS)
    assert owner.calls == 1


@pytest.mark.parametrize("has_pool", [True, False], ids=["pool", "no pool"])
def test_what_is_forgotten_is_ended_by_another_thread(has_pool: bool) -> None:
    ended: SimpleQueue[str] = SimpleQueue()
    owner = Owner()
    work = BackgroundWork("bg-ends", [owner.step])
    if has_pool:
        work.start()

    end_forgotten(lambda: ended.put(threading.current_thread().name))

    assert ended.get(timeout=WAIT_SECONDS) == "neve-forgotten"
    work.close()


def test_what_is_forgotten_starts_no_thread_where_it_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The collector may run while a thread begins, with a lock that `Thread.start` waits for."""
    starters: list[int] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        starters.append(threading.get_ident())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    ended: SimpleQueue[str] = SimpleQueue()

    end_forgotten(lambda: ended.put(threading.current_thread().name))

    assert ended.get(timeout=WAIT_SECONDS) == "neve-forgotten"
    assert threading.get_ident() not in starters


def test_ending_something_may_wait_for_one_that_closes_the_last_work() -> None:
    gate, ended = threading.Lock(), threading.Event()

    def end() -> None:
        with gate:
            ended.set()

    owner = Owner()
    work = BackgroundWork("bg-last", [owner.step])
    work.start()
    with gate:
        end_forgotten(end)
        work.close()

    assert ended.wait(WAIT_SECONDS)


def test_works_that_look_by_themselves_do_so_again_and_again() -> None:
    owner = Owner(lambda: False, lambda: False, lambda: False)
    work = BackgroundWork("bg-looks", [owner.step], idle_seconds=0.01)
    work.start()

    assert owner.idle.wait(WAIT_SECONDS)
    work.close()
    assert owner.calls >= 4
