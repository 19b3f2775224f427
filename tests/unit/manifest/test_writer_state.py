"""Work in flight: epochs, intents, reservations, tags and finished jobs."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from neve.errors import AlreadyExists, Conflict, Corruption, Fenced, InvalidArgument, NotFound
from neve.manifest.json_document import write_document
from neve.manifest.table_head import JOB_PREFIX, RESERVATION_KEY, RESERVATION_MS_MAX, HeadChange
from neve.manifest.writer_state import Intent
from tests.unit.manifest.builders import (
    HOUR_MS,
    TableBench,
    edit_of,
    path_of,
    table_with,
)

DAY_SECONDS = 24 * 60 * 60


def intent(bench: TableBench, job_id: str = "job", *, seconds: int = 60) -> Intent:
    return Intent(
        job_id=job_id,
        prefixes=(f"data/{job_id}-",),
        deadline_ms=bench.clock.now_ms() + seconds * 1_000,
    )


def intents(bench: TableBench) -> list[str]:
    return [found.job_id for found in bench.work.intents_in(bench.store.read())]


# Epochs and dropping.


def test_every_takeover_begins_a_new_epoch() -> None:
    bench = table_with("a")

    assert [bench.work.take_over(), bench.another().work.take_over()] == [1, 2]
    assert bench.versions.head().writer_epoch == 2


def test_no_work_begins_on_a_dropped_table() -> None:
    bench = table_with("a")
    bench.work.drop()
    before = bench.segment()

    for begin in (
        bench.work.take_over,
        lambda: bench.work.tag("gold", 1),
        lambda: bench.work.register_intent(intent(bench)),
        lambda: bench.work.reserve("job", milliseconds=1_000),
    ):
        with pytest.raises(NotFound, match="dropped"):
            begin()

    assert bench.segment() == before


def test_dropping_twice_is_no_error() -> None:
    bench = table_with("a")

    bench.work.drop()
    bench.work.drop()

    assert bench.another().versions.head().dropped


# Intents.


def test_a_commit_without_its_intent_is_refused_and_nothing_is_written() -> None:
    bench = table_with("a")
    before = bench.segment()

    with pytest.raises(Fenced, match="intent of job job is gone"):
        bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(intent_id="job"))

    assert bench.segment() == before


def test_a_commit_ends_its_intent() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench))
    bench.work.register_intent(intent(bench, "other"))

    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(intent_id="job"))

    assert intents(bench) == ["other"]
    with pytest.raises(Fenced):
        bench.versions.apply_version_edits([edit_of(3, "c")], HeadChange(intent_id="job"))


def test_an_intent_past_its_deadline_is_ended_by_a_commit_and_its_job_cannot_commit() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench, "late", seconds=60))
    bench.work.register_intent(intent(bench, "live", seconds=61))
    bench.clock.advance(60)

    assert bench.another().work.cancel_expired_intents() == ("late",)

    assert intents(bench) == ["live"]
    with pytest.raises(Fenced):
        bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(intent_id="late"))
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(intent_id="live"))


def test_a_late_job_whose_intent_nobody_ended_still_commits() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench))
    bench.clock.advance(1_000)

    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(intent_id="job"))

    assert bench.versions.head().current_version == 3


def test_two_jobs_cannot_have_one_id() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench))

    with pytest.raises(AlreadyExists, match="already running"):
        bench.another().work.register_intent(intent(bench))


def test_an_intent_can_be_withdrawn_twice() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench))

    bench.work.release_intent("job")
    bench.work.release_intent("job")

    assert intents(bench) == []


def abandoned(bench: TableBench) -> dict[str, tuple[str, ...]]:
    session = bench.another(9).store.read()
    return {ended.job_id: ended.prefixes for ended in bench.work.abandoned_in(session)}


def test_what_a_withdrawn_or_cancelled_job_wrote_is_remembered_as_garbage() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench, "late", seconds=60))
    bench.work.register_intent(intent(bench, "given-up", seconds=600))
    bench.work.register_intent(intent(bench, "live", seconds=600))
    bench.clock.advance(60)

    bench.work.cancel_expired_intents()
    bench.work.release_intent("given-up")

    assert abandoned(bench) == {"given-up": ("data/given-up-",), "late": ("data/late-",)}


def test_a_job_that_committed_leaves_nothing_behind() -> None:
    bench = table_with("a")
    bench.work.register_intent(intent(bench))
    bench.versions.apply_version_edits([edit_of(2, "job-1")], HeadChange(intent_id="job"))

    bench.work.release_intent("job")

    assert abandoned(bench) == {}


def test_a_job_that_gave_up_twice_is_remembered_with_all_it_announced() -> None:
    bench = table_with("a")
    for prefix in ("data/x-", "data/y-"):
        bench.work.register_intent(
            Intent(job_id="job", prefixes=(prefix,), deadline_ms=bench.clock.now_ms() + 1)
        )
        bench.work.release_intent("job")

    assert abandoned(bench) == {"job": ("data/x-", "data/y-")}


@pytest.mark.parametrize(
    "prefix", ["data", "data/", "deletes/", "wal/x", "metadata/v1", "dataset/"]
)
def test_beginnings_of_names_that_are_not_a_jobs_own_are_never_garbage(prefix: str) -> None:
    bench = table_with("a")
    bench.work.register_intent(
        Intent(job_id="job", prefixes=(prefix,), deadline_ms=bench.clock.now_ms() + 1)
    )

    bench.work.release_intent("job")

    assert abandoned(bench) == {}


@pytest.mark.parametrize("prefix", ["data/", "", "wal/x", "data/../x", "data/\0"], ids=ascii)
def test_an_abandoned_job_with_names_elsewhere_is_corruption(prefix: str) -> None:
    bench = table_with("a")
    payload = write_document(1, {"prefixes": [prefix], "ended_ms": 0})
    bench.store.transact(lambda session: session.put("abandoned/x", payload))

    with pytest.raises(Corruption, match="abandoned"):
        bench.delete_garbage()


def test_an_intent_survives_a_checkpoint() -> None:
    bench = table_with("a")
    wanted = intent(bench)
    bench.work.register_intent(wanted)
    bench.checkpoint_and_collect()

    other = bench.another()

    assert list(other.work.intents_in(other.store.read())) == [wanted]


@pytest.mark.parametrize(
    ("job_id", "prefixes", "deadline_ms"),
    [
        ("", ("data/x",), 1),
        ("a\0", ("data/x",), 1),
        ("job", ("",), 1),
        ("job", ("../data",), 1),
        ("job", ("data/\0",), 1),
    ],
)
def test_an_intent_that_makes_no_sense_is_refused(
    job_id: str, prefixes: tuple[str, ...], deadline_ms: int
) -> None:
    with pytest.raises(InvalidArgument):
        Intent(job_id=job_id, prefixes=prefixes, deadline_ms=deadline_ms)


def test_an_intent_with_a_deadline_that_cannot_be_stored_is_refused() -> None:
    bench = table_with("a")

    for deadline_ms in (-1, 1 << 63):
        with pytest.raises(InvalidArgument, match="deadline_ms"):
            bench.work.register_intent(
                Intent(job_id="job", prefixes=("data/x",), deadline_ms=deadline_ms)
            )

    assert intents(bench) == []


def test_a_damaged_intent_is_corruption() -> None:
    bench = table_with("a")
    bench.store.transact(lambda session: session.put("intent/x", b"{}"))

    with pytest.raises(Corruption):
        bench.work.cancel_expired_intents()


# Reservations.


def test_a_reservation_holds_others_back_and_lets_its_own_job_commit() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)
    before = bench.segment()

    with pytest.raises(Conflict, match="job big commits next") as caught:
        bench.another().commit("b")

    assert caught.value.keys == (RESERVATION_KEY,)
    assert bench.segment() == before
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="big"))
    assert bench.another().commit("c") == 4


def test_a_reservation_ends_by_itself() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)
    bench.clock.advance(4.999)
    with pytest.raises(Conflict):
        bench.commit("b")

    bench.clock.advance(0.001)

    assert bench.commit("b") == 3


def test_a_reservation_is_cleared_by_its_jobs_commit() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)

    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="big"))

    assert bench.store.read().get(RESERVATION_KEY) is None


def test_only_one_job_at_a_time_has_a_reservation() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)

    with pytest.raises(Conflict, match="big"):
        bench.another().work.reserve("other", milliseconds=1)

    bench.clock.advance(5)
    bench.another().work.reserve("other", milliseconds=1)


@pytest.mark.parametrize("milliseconds", [0, -1, RESERVATION_MS_MAX + 1, 10**12])
def test_a_reservation_longer_than_the_bound_is_refused(milliseconds: int) -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument, match="reservation"):
        bench.work.reserve("big", milliseconds=milliseconds)


def test_a_reservation_for_a_job_without_a_name_is_refused() -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument):
        bench.work.reserve("", milliseconds=1)


def seconds_until_a_commit(bench: TableBench, meanwhile: Callable[[], None]) -> float:
    """Try to commit every half second; gives how long others were held back."""
    start = bench.clock.monotonic()
    for _ in range(100):
        try:
            bench.commit("b")
        except Conflict:
            bench.clock.advance(0.5)
            meanwhile()
        else:
            break
    return bench.clock.monotonic() - start


def test_a_job_cannot_prolong_its_reservation() -> None:
    bench = table_with("a")

    def reserve_again() -> None:
        with suppress(Conflict):
            bench.work.reserve("big", milliseconds=RESERVATION_MS_MAX)

    reserve_again()

    assert seconds_until_a_commit(bench, reserve_again) <= RESERVATION_MS_MAX / 1_000


def test_a_job_that_had_its_turn_waits_as_long_as_the_others_did() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=RESERVATION_MS_MAX)
    bench.clock.advance(RESERVATION_MS_MAX / 1_000)

    with pytest.raises(Conflict, match="had its turn"):
        bench.work.reserve("big", milliseconds=1)

    bench.clock.advance(RESERVATION_MS_MAX / 1_000)
    bench.work.reserve("big", milliseconds=1)


@pytest.mark.parametrize(
    "jump_ms", [-DAY_SECONDS * 1_000, -RESERVATION_MS_MAX, -4_000, 3_000, DAY_SECONDS * 1_000]
)
def test_a_clock_that_jumps_never_makes_a_reservation_longer_than_the_bound(jump_ms: int) -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)
    bench.clock.set_now_ms(bench.clock.now_ms() + jump_ms)

    held_seconds = seconds_until_a_commit(bench, lambda: None)

    assert held_seconds <= RESERVATION_MS_MAX / 1_000
    bench.clock.advance(RESERVATION_MS_MAX / 1_000)
    assert bench.commit("c") == 4  # what was passed over once does not come back


def test_a_commit_that_passes_an_ended_reservation_clears_it() -> None:
    bench = table_with("a")
    bench.work.reserve("big", milliseconds=5_000)
    bench.clock.advance(5)

    bench.commit("b")

    assert bench.store.read().get(RESERVATION_KEY) is None
    bench.work.reserve("big", milliseconds=5_000)


def test_a_damaged_reservation_is_corruption() -> None:
    bench = table_with("a")
    bench.store.transact(lambda session: session.put(RESERVATION_KEY, b"{}"))

    with pytest.raises(Corruption):
        bench.commit("b")
    with pytest.raises(Corruption):
        bench.work.reserve("big", milliseconds=1)


# Tags.


def test_a_tag_names_a_version_and_can_be_moved_and_removed() -> None:
    bench = table_with("a", "b")

    bench.work.tag("gold", 2)
    bench.work.tag("gold", 3)
    bench.work.tag("silver", 1)

    assert bench.another().work.tags() == {"gold": 3, "silver": 1}
    bench.work.remove_tag("gold")
    assert bench.another().work.tags() == {"silver": 1}


def test_no_tag_takes_the_name_of_the_newest_version() -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument, match="'main'"):
        bench.work.tag("main", 1)

    assert bench.work.tags() == {}


@pytest.mark.parametrize("number", [0, 3, -1])
def test_a_version_that_is_not_there_cannot_be_tagged(number: int) -> None:
    bench = table_with("a")

    with pytest.raises(NotFound):
        bench.work.tag("gold", number)

    assert bench.work.tags() == {}


@pytest.mark.parametrize("number", ["1", None, True, 1.0], ids=repr)
def test_a_version_that_is_no_number_cannot_be_tagged(number: int) -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument, match="number"):
        bench.work.tag("gold", number)

    assert bench.work.tags() == {}


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\ud800"])
def test_a_name_that_cannot_be_kept_is_no_tag(name: str) -> None:
    bench = table_with("a")

    with pytest.raises(InvalidArgument):
        bench.work.tag(name, 1)
    with pytest.raises(InvalidArgument):
        bench.work.remove_tag(name)


def test_removing_a_tag_that_is_not_there_says_so() -> None:
    with pytest.raises(NotFound, match="gold"):
        table_with("a").work.remove_tag("gold")


def test_a_tagged_version_never_expires() -> None:
    bench = table_with("a", "b")
    wanted = bench.versions.version(2)
    bench.work.tag("gold", 2)
    bench.replace_file("a", "c")

    for _ in range(3):
        bench.expire()
        bench.checkpoint_and_collect()
        bench.clock.advance(DAY_SECONDS)
        bench.commit(f"later-{bench.clock.now_ms()}")

    assert bench.another().versions.version(2) == wanted
    assert bench.delete_garbage() == []
    with pytest.raises(NotFound):
        bench.versions.version(1)


def test_a_version_expires_once_its_tag_is_gone() -> None:
    bench = table_with("a")
    bench.work.tag("gold", 2)
    bench.replace_file("a", "b")
    bench.expire()
    assert bench.delete_garbage() == []

    bench.work.remove_tag("gold")
    bench.expire()

    assert bench.delete_garbage() == [path_of("a")]
    with pytest.raises(NotFound):
        bench.versions.version(2)


def test_a_tag_set_while_its_version_expires_is_refused() -> None:
    bench = table_with("a", "b")
    bench.versions.version(2)
    other = bench.another()
    decide = bench.store.log.decide

    def expire_first(*arguments: object) -> object:
        bench.store.log.decide = decide  # type: ignore[method-assign]
        other.expire()
        return decide(*arguments)  # type: ignore[arg-type]

    bench.store.log.decide = expire_first  # type: ignore[assignment, method-assign]

    with pytest.raises(NotFound, match="version 2"):
        bench.work.tag("gold", 2)

    assert other.work.tags() == {}


@pytest.mark.parametrize("value", [b"x", b"", b"-3", b"9" * 30])
def test_a_damaged_tag_is_corruption(value: bytes) -> None:
    bench = table_with("a")
    bench.store.transact(lambda session: session.put("tag/x", value))

    with pytest.raises(Corruption):
        bench.work.tags()
    with pytest.raises(Corruption):
        bench.garbage.compute_gc_plan()


# Finished jobs.


def test_a_finished_job_is_remembered_for_a_week_and_then_forgotten() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="job"))
    bench.versions.apply_version_edits(
        [edit_of(3, "c")], HeadChange(application=("app", 1), job_id="late")
    )
    bench.clock.advance(7 * DAY_SECONDS - 1)
    bench.commit("d")
    assert bench.work.forget_finished_jobs() == 0

    bench.clock.advance(1)
    bench.commit("e")

    assert bench.another().work.forget_finished_jobs() == 2
    assert not list(bench.store.read().scan(JOB_PREFIX))
    assert bench.versions.committed_before(HeadChange(job_id="job")) is None
    assert bench.versions.committed_before(HeadChange(application=("app", 1))) is not None


def test_a_collector_whose_clock_is_ahead_forgets_no_job() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="job"))
    bench.clock.set_now_ms(bench.clock.now_ms() + 1_000 * DAY_SECONDS * 1_000)

    assert bench.work.forget_finished_jobs() == 0
    repeated = bench.versions.apply_version_edits([edit_of(3, "c")], HeadChange(job_id="job"))

    assert repeated.is_repeat


def test_deleting_garbage_forgets_old_jobs() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="job"))
    bench.clock.advance(8 * DAY_SECONDS)
    bench.commit("c")

    bench.delete_garbage()

    assert not list(bench.store.read().scan(JOB_PREFIX))


def test_forgetting_nothing_writes_nothing() -> None:
    bench = table_with("a")
    bench.versions.apply_version_edits([edit_of(2, "b")], HeadChange(job_id="job"))
    bench.clock.advance(HOUR_MS / 1_000)
    before = bench.segment()

    assert bench.work.forget_finished_jobs() == 0
    assert bench.work.cancel_expired_intents() == ()
    assert bench.segment() == before
