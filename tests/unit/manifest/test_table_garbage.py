"""Expiry and file garbage: what retention keeps, phases cut anywhere, and files never to touch."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from neve.errors import Conflict, Corruption, Fenced, NotFound
from neve.manifest.documents import Lease
from neve.manifest.json_document import write_document
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import GARBAGE_PREFIX, HeadChange, Retention
from neve.manifest.writer_state import Intent
from neve.model.version import Operation
from tests.unit.manifest.builders import (
    HOUR_MS,
    TableBench,
    data_file,
    edit_of,
    new_table,
    path_of,
    vector_ref,
)

MINUTE = 60.0


class Killed(BaseException):
    """The process is gone."""


def rewritten(count: int, *, retention: Retention | None = None) -> TableBench:
    """Return a table whose one file was rewritten again and again, a minute apart each.

    Version n has the file `f<n>`.
    """
    bench = new_table(retention=retention)
    for number in range(2, count + 1):
        bench.clock.advance(MINUTE)
        write(bench, f"f{number}")
        if number == 2:
            bench.commit("f2")
        else:
            bench.replace_file(f"f{number - 1}", f"f{number}")
    return bench


def write(bench: TableBench, name: str) -> None:
    bench.objects.put(path_of(name), b"rows")


def stored(bench: TableBench) -> list[str]:
    return [found.path for found in bench.objects.list("data/")]


def records(bench: TableBench) -> list[str]:
    return [key for key, _ in bench.store.read().scan(GARBAGE_PREFIX)]


def readable(bench: TableBench) -> list[int]:
    return [version.number for version in bench.another(9).versions.list_versions()][::-1]


# Retention.


@pytest.mark.parametrize(
    ("versions", "minutes", "kept"),
    [
        (1, 0, [6]),
        (3, 0, [4, 5, 6]),
        (100, 0, [1, 2, 3, 4, 5, 6]),
        (1, 1.5, [4, 5, 6]),
        (1, 2, [4, 5, 6]),
        (1, 2.01, [3, 4, 5, 6]),
        (4, 1.5, [3, 4, 5, 6]),
        (2, 100, [1, 2, 3, 4, 5, 6]),
        (0, 0, [6]),
    ],
)
def test_the_last_versions_or_the_young_ones_stay_whichever_are_more(
    versions: int, minutes: float, kept: list[int]
) -> None:
    retention = Retention(versions=versions, milliseconds=int(minutes * MINUTE * 1_000))
    bench = rewritten(6, retention=retention)

    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())

    assert readable(bench) == kept


def test_the_default_keeps_five_versions_or_a_day() -> None:
    bench = rewritten(10)
    assert bench.garbage.compute_gc_plan().is_empty

    bench.clock.advance(24 * 60 * MINUTE)
    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())

    assert readable(bench) == [6, 7, 8, 9, 10]


def test_a_version_is_as_old_as_the_one_that_replaced_it() -> None:
    bench = rewritten(2, retention=Retention(versions=1, milliseconds=int(10 * MINUTE * 1_000)))
    bench.clock.advance(1_000 * MINUTE)
    write(bench, "f3")
    bench.replace_file("f2", "f3")

    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())

    assert readable(bench) == [2, 3]


def test_a_caller_may_ask_for_less_than_the_table_keeps() -> None:
    bench = rewritten(6)

    bench.garbage.apply_gc_plan(
        bench.garbage.compute_gc_plan(keep_last=2, older_than_ms=bench.clock.now_ms())
    )

    assert readable(bench) == [5, 6]


@pytest.mark.parametrize("jump_ms", [-100 * HOUR_MS, 100 * HOUR_MS])
def test_whatever_the_clock_does_the_last_versions_stay(jump_ms: int) -> None:
    bench = rewritten(10)
    bench.clock.set_now_ms(bench.clock.now_ms() + jump_ms)

    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())
    bench.delete_garbage()

    assert readable(bench)[-5:] == [6, 7, 8, 9, 10]
    assert {path_of(f"f{number}") for number in range(6, 11)} <= set(stored(bench))


def test_commits_after_the_clock_jumped_back_do_not_expire_early() -> None:
    bench = rewritten(3, retention=Retention(versions=1, milliseconds=HOUR_MS))
    bench.clock.set_now_ms(bench.clock.now_ms() - 10 * HOUR_MS)
    write(bench, "f4")
    bench.replace_file("f3", "f4")

    assert bench.garbage.compute_gc_plan().is_empty


def far_ahead(commits: int) -> TableBench:
    """Return a table of one Version a minute, whose first commits were made by a clock in 2123.

    Times never run back, so all later Versions have that same time.
    """
    bench = rewritten(2, retention=Retention(versions=2, milliseconds=HOUR_MS))
    now_ms = bench.clock.now_ms()
    bench.clock.set_now_ms(now_ms + 100 * 365 * 24 * HOUR_MS)
    write(bench, "f3")
    bench.replace_file("f2", "f3")
    bench.clock.set_now_ms(now_ms)
    for number in range(4, commits + 1):
        commit_one_more(bench, number)
    return bench


def commit_one_more(bench: TableBench, number: int) -> None:
    bench.clock.advance(MINUTE)
    write(bench, f"f{number}")
    bench.replace_file(f"f{number - 1}", f"f{number}")


def collect(bench: TableBench) -> list[int]:
    bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan())
    bench.delete_garbage()
    return readable(bench)


def test_times_far_ahead_of_the_clock_do_not_keep_versions_for_ever() -> None:
    bench = far_ahead(10)

    assert collect(bench) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
    for number in range(11, 70):
        commit_one_more(bench, number)
    assert collect(bench)[0] == 2, "no hour has passed since anyone looked"
    for number in range(70, 140):
        commit_one_more(bench, number)
    assert collect(bench)[0] == 10
    assert collect(bench)[0] == 10
    for number in range(140, 202):
        commit_one_more(bench, number)
    collect(bench)
    assert collect(bench) == list(range(139, 202))


def test_versions_with_times_ahead_of_the_clock_stay_as_long_as_others() -> None:
    bench = far_ahead(10)
    collect(bench)
    bench.clock.advance(HOUR_MS / 1_000 - 1)
    assert collect(bench)[0] == 2

    bench.clock.advance(1)

    assert collect(bench) == [9, 10]


def test_looking_at_times_that_are_in_order_writes_nothing() -> None:
    bench = rewritten(3)
    bench.delete_garbage()
    before = bench.segment()

    bench.delete_garbage()

    assert bench.segment() == before


def test_a_clock_far_behind_does_not_stop_the_ageing_of_versions() -> None:
    bench = rewritten(2, retention=Retention(versions=2, milliseconds=HOUR_MS))
    for number in range(3, 121):
        commit_one_more(bench, number)
    collector = bench.another()
    collector.clock.set_now_ms(0)

    assert collect(collector)[0] == 60


# Files of jobs that gave up.


def announce(bench: TableBench, job_id: str, *, seconds: int = 60) -> None:
    bench.work.register_intent(
        Intent(
            job_id=job_id,
            prefixes=(f"data/{job_id}-", f"deletes/{job_id}-"),
            deadline_ms=bench.clock.now_ms() + seconds * 1_000,
        )
    )


def test_files_of_a_job_that_gave_up_are_deleted() -> None:
    bench = rewritten(2)
    announce(bench, "job")
    write(bench, "job-1")
    bench.objects.put("deletes/job-1.puffin", b"marks")
    assert bench.delete_garbage() == []

    bench.work.release_intent("job")

    assert bench.another().delete_garbage() == [path_of("job-1"), "deletes/job-1.puffin"]
    assert stored(bench) == [path_of("f2")]


def test_files_of_a_job_past_its_deadline_are_deleted_and_it_cannot_commit_them() -> None:
    bench = rewritten(2)
    announce(bench, "job")
    write(bench, "job-1")
    bench.clock.advance(60)

    assert bench.another().delete_garbage() == [path_of("job-1")]

    with pytest.raises(Fenced):
        bench.versions.apply_version_edits([edit_of(2, "job-1")], HeadChange(intent_id="job"))


def test_a_file_that_a_dead_job_wrote_after_it_was_cancelled_is_found_within_a_day() -> None:
    bench = rewritten(2)
    announce(bench, "job", seconds=1)
    bench.clock.advance(1)
    assert bench.delete_garbage() == []
    write(bench, "job-1")

    assert bench.delete_garbage() == [path_of("job-1")]

    bench.clock.advance(24 * 60 * MINUTE)
    assert bench.delete_garbage() == []
    assert list(bench.work.abandoned_in(bench.store.read())) == []


def test_files_held_back_by_a_repeated_job_are_found_when_it_is_done() -> None:
    bench = rewritten(2)
    announce(bench, "job")
    write(bench, "job-1")
    bench.work.release_intent("job")
    announce(bench, "job", seconds=1_000_000)
    bench.clock.advance(2 * 24 * 60 * MINUTE)
    assert bench.delete_garbage() == []

    bench.versions.apply_version_edits([edit_of(2, "job-2")], HeadChange(intent_id="job"))

    assert bench.delete_garbage() == [path_of("job-1")]


def test_a_collector_whose_clock_is_a_little_behind_goes_on_looking() -> None:
    bench = rewritten(2)
    announce(bench, "job")
    bench.work.release_intent("job")
    bench.clock.set_now_ms(bench.clock.now_ms() - 1_000)
    assert bench.delete_garbage() == []
    write(bench, "job-1")

    assert bench.delete_garbage() == [path_of("job-1")]


def test_a_job_that_a_clock_far_ahead_has_ended_is_not_looked_for_for_years() -> None:
    bench = rewritten(2)
    now_ms = bench.clock.now_ms()
    announce(bench, "job")
    write(bench, "job-1")
    bench.clock.set_now_ms(now_ms + 1_000 * HOUR_MS)
    bench.work.release_intent("job")
    bench.clock.set_now_ms(now_ms)

    assert bench.delete_garbage() == [path_of("job-1")]
    assert list(bench.work.abandoned_in(bench.store.read())) == []


def test_what_others_committed_under_a_name_that_begins_alike_stays() -> None:
    bench = rewritten(2)
    write(bench, "job-9")
    bench.commit("job-9")
    bench.commit(removed=["job-9"])
    bench.work.tag("gold", 3)
    bench.expire()
    announce(bench, "job")
    write(bench, "job-1")
    bench.work.release_intent("job")

    assert bench.delete_garbage() == [path_of("job-1")]
    assert path_of("job-9") in stored(bench)


def test_a_leased_file_under_a_name_that_begins_alike_stays() -> None:
    bench = rewritten(2)
    write(bench, "job-9")
    bench.commit("job-9")
    bench.commit(removed=["job-9"])
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    lease = bench.leases.take(3, seconds=60)
    bench.garbage.apply_gc_plan(plan)
    announce(bench, "job")
    bench.work.release_intent("job")

    assert bench.delete_garbage() == []

    lease.release()
    assert bench.delete_garbage() == [path_of("job-9")]


def test_files_that_another_live_job_announced_stay() -> None:
    bench = rewritten(2)
    announce(bench, "job")
    bench.work.release_intent("job")
    announce(bench, "job")
    write(bench, "job-1")

    assert bench.delete_garbage() == []

    bench.versions.apply_version_edits([edit_of(2, "job-1")], HeadChange(intent_id="job"))
    assert bench.delete_garbage() == []
    assert path_of("job-1") in stored(bench)


def test_a_file_written_while_files_are_looked_for_is_announced_or_not_found() -> None:
    """Files are listed before intents are read: what was not announced then cannot be listed."""
    bench = rewritten(2)
    other = bench.another()
    announce(bench, "job")
    bench.work.release_intent("job")
    deleted: list[str] = []

    def find(prefix: str) -> list[str]:
        if prefix.startswith("data/"):
            announce(other, "job")
            write(other, "job-1")
        return bench.find(prefix)

    bench.garbage.delete_garbage(deleted.append, find=find)

    assert deleted == []


# Plans.


def test_an_empty_plan_is_not_applied() -> None:
    bench = rewritten(3)
    before = bench.segment()

    assert bench.garbage.apply_gc_plan(bench.garbage.compute_gc_plan()) is None
    assert bench.segment() == before


def test_a_plan_writes_nothing_and_names_files_and_vectors_that_nobody_reaches() -> None:
    bench = new_table()
    bench.commit("a", "b")
    bench.versions.apply_version_edits([edit_of(2, vectors={"a": vector_ref("1", marked=1)})])
    bench.versions.apply_version_edits([edit_of(3, vectors={"a": vector_ref("2", marked=2)})])
    bench.versions.apply_version_edits([edit_of(4, removed=("b",), operation=Operation.DELETE)])
    before = bench.segment()

    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)

    assert plan.paths == ("data/b.parquet", "deletes/1.puffin")
    assert plan.expired_versions == (1, 2, 3, 4)
    assert (plan.base_version, plan.oldest_before, plan.oldest_after) == (5, 1, 5)
    assert bench.segment() == before


def test_a_vector_file_that_two_data_files_share_stays_while_one_of_them_needs_it() -> None:
    bench = new_table()
    bench.commit("a", "b")
    shared = vector_ref("1", marked=1)
    bench.versions.apply_version_edits(
        [edit_of(2, vectors={"a": shared, "b": replace(shared, offset=80)})]
    )
    bench.versions.apply_version_edits([edit_of(3, removed=("b",), operation=Operation.DELETE)])

    bench.expire()

    assert bench.delete_garbage() == [path_of("b")]


def test_a_plan_made_before_another_one_was_applied_is_a_conflict() -> None:
    bench = rewritten(5)
    late = bench.another().garbage.compute_gc_plan(
        keep_last=2, older_than_ms=bench.clock.now_ms() + 1
    )
    bench.expire()
    before = bench.segment()

    with pytest.raises(Conflict, match="changed since the plan"):
        bench.garbage.apply_gc_plan(late)

    assert bench.segment() == before


def test_a_tag_set_after_the_plan_was_made_makes_it_a_conflict() -> None:
    bench = rewritten(5)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    bench.another().work.tag("gold", 3)

    with pytest.raises(Conflict):
        bench.garbage.apply_gc_plan(plan)

    assert 3 in readable(bench)


def test_a_plan_that_keeps_a_version_which_went_meanwhile_is_a_conflict() -> None:
    bench = rewritten(5)
    bench.work.tag("gold", 2)
    bench.work.tag("silver", 3)
    bench.expire(keep_last=2)
    lease = bench.leases.take(2, seconds=10)
    bench.work.remove_tag("silver")
    bench.work.remove_tag("gold")
    plan = bench.garbage.compute_gc_plan(keep_last=2, older_than_ms=bench.clock.now_ms() + 1)
    assert (plan.kept_versions, plan.expired_versions) == ((2,), (3,))
    lease.release()
    bench.another().expire(keep_last=2)

    with pytest.raises(Conflict):
        bench.garbage.apply_gc_plan(plan)


def test_commits_between_plan_and_apply_do_not_stop_it() -> None:
    bench = rewritten(3)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    write(bench, "f4")
    bench.another().replace_file("f3", "f4")

    bench.garbage.apply_gc_plan(plan)

    assert bench.delete_garbage() == [path_of("f2")]
    assert readable(bench) == [3, 4]


# Rollbacks bring old files back.


def test_a_file_that_a_rollback_brought_back_is_not_garbage() -> None:
    bench = rewritten(3)  # f2, then f3
    assert bench.roll_back(2) == 4  # f2 again

    bench.expire(keep_last=2)  # Version 2 goes, 3 and 4 stay

    assert bench.delete_garbage() == []
    assert stored(bench) == [path_of("f2"), path_of("f3")]


def test_a_file_that_was_brought_back_and_left_again_stays_while_a_version_reaches_it() -> None:
    bench = rewritten(3)
    bench.roll_back(2)
    write(bench, "f5")
    bench.replace_file("f2", "f5")  # Version 4 had f2 for the last time

    bench.expire(keep_last=3)
    assert bench.delete_garbage() == []
    bench.expire(keep_last=1)
    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]


def test_a_rollback_between_plan_and_apply_keeps_its_files() -> None:
    bench = rewritten(3)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    assert plan.paths == (path_of("f2"),)
    bench.another().roll_back(2)

    bench.garbage.apply_gc_plan(plan)

    assert bench.delete_garbage() == []
    assert path_of("f2") in stored(bench)
    assert set(bench.versions.snapshot_latest().version.files) == {path_of("f2")}


def test_a_rollback_to_a_tagged_version_below_the_oldest_keeps_its_files() -> None:
    bench = rewritten(4)
    bench.work.tag("gold", 2)
    bench.expire()
    bench.roll_back(2)
    bench.work.remove_tag("gold")

    bench.expire(keep_last=2)

    assert bench.delete_garbage() == [path_of("f3")]
    assert set(stored(bench)) == {path_of("f2"), path_of("f4")}


# Deleting.


def test_nothing_is_deleted_before_a_plan_is_applied() -> None:
    bench = rewritten(4)
    bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)

    assert bench.delete_garbage() == []
    assert len(stored(bench)) == 3


def test_pending_files_are_known_until_they_are_deleted() -> None:
    bench = rewritten(4)
    bench.expire()
    assert bench.garbage.pending_paths() == {path_of("f2"), path_of("f3")}

    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]

    assert bench.garbage.pending_paths() == frozenset()
    assert records(bench) == []
    assert stored(bench) == [path_of("f4")]


def test_files_that_are_gone_already_are_no_error() -> None:
    bench = rewritten(4)
    bench.expire()
    bench.objects.delete(path_of("f2"))

    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]
    assert records(bench) == []


def test_more_files_than_one_record_holds_are_all_deleted() -> None:
    bench = new_table()
    names = [f"f{index}" for index in range(5_000)]
    bench.commit(*names)
    bench.commit(removed=names)

    bench.expire()

    assert len(records(bench)) == 3
    assert bench.delete_garbage() == sorted(path_of(name) for name in names)
    assert records(bench) == []


def test_the_longest_names_fit_a_record() -> None:
    bench = new_table()
    folders = "/".join(['"' * 250] * 3)  # quotes take two bytes each in a document
    names = [f"{folders}/{'x' * 200}-{index:05}" for index in range(4_096)]
    bench.commit(*names)
    bench.commit(removed=names)

    bench.expire()

    assert len(bench.delete_garbage()) == 4_096


def test_files_that_a_live_intent_announced_are_left_alone() -> None:
    bench = rewritten(4)
    deadline_ms = bench.clock.now_ms() + 60_000
    bench.work.register_intent(
        Intent(job_id="job", prefixes=("data/f2", "data/other"), deadline_ms=deadline_ms)
    )
    bench.expire()

    assert bench.delete_garbage() == [path_of("f3")]
    assert path_of("f2") in stored(bench)
    assert len(records(bench)) == 1

    bench.clock.advance(60)
    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]
    assert records(bench) == []


def test_deleting_ends_expired_intents_first_so_that_their_jobs_cannot_commit() -> None:
    bench = rewritten(3)
    bench.work.register_intent(
        Intent(job_id="job", prefixes=("data/f2",), deadline_ms=bench.clock.now_ms())
    )
    bench.expire()

    assert bench.delete_garbage() == [path_of("f2")]

    with pytest.raises(Fenced):
        bench.versions.apply_version_edits(
            [edit_of(3, data_file("f2"))], HeadChange(intent_id="job")
        )


# Leases.


def test_a_lease_taken_between_plan_and_apply_keeps_the_files_until_it_ends() -> None:
    bench = rewritten(4)
    reader = bench.another()
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    lease = reader.leases.take(3, seconds=60)
    version = reader.versions.version(3)

    bench.garbage.apply_gc_plan(plan)

    assert bench.delete_garbage() == []
    assert paths_of(version) <= set(stored(bench))
    lease.check()
    bench.clock.advance(60)
    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]
    with pytest.raises(Fenced):
        lease.check()


def test_a_lease_holds_files_back_that_only_a_later_plan_let_go() -> None:
    """A file outlives the leased Version in the next one, and is let go with that."""
    bench = rewritten(2)
    bench.commit("other")  # Versions 2 and 3 both have f2
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    lease = bench.another().leases.take(2, seconds=60)
    wanted = bench.versions.version(2)
    bench.garbage.apply_gc_plan(plan)
    assert bench.delete_garbage() == []
    bench.replace_file("f2", "f4")

    bench.expire()

    assert bench.delete_garbage() == []
    assert paths_of(wanted) <= set(stored(bench))
    lease.release()
    assert bench.delete_garbage() == [path_of("f2")]


def test_a_lease_holds_files_back_that_a_removed_tag_let_go() -> None:
    bench = rewritten(2)
    bench.work.tag("gold", 2)
    bench.commit("other")
    bench.replace_file("f2", "f4")
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    lease = bench.another().leases.take(3, seconds=60)
    bench.garbage.apply_gc_plan(plan)
    bench.work.remove_tag("gold")

    bench.expire()

    assert bench.delete_garbage() == []
    lease.release()
    assert bench.delete_garbage() == [path_of("f2")]


def test_a_lease_on_a_version_that_stays_holds_nothing_back() -> None:
    bench = rewritten(4)
    bench.leases.take(4, seconds=60)
    bench.expire()

    assert bench.delete_garbage() == [path_of("f2"), path_of("f3")]


def test_a_lease_taken_after_the_plan_was_applied_finds_its_version_gone() -> None:
    bench = rewritten(4)
    reader = bench.another()
    assert reader.versions.version(3).number == 3  # it even remembers it
    bench.expire()

    reader.leases.take(3, seconds=60)

    with pytest.raises(NotFound, match="version 3"):
        reader.versions.version(3)


def test_a_lease_taken_while_garbage_is_being_deleted_is_seen_or_comes_too_late() -> None:
    """The collector lists leases after it read the records, whatever happens in between."""
    bench = rewritten(4)
    other, reader = bench.another(), bench.another(2)
    plan = other.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    list_leases = bench.leases.unexpired
    seen: list[int] = []

    def lease_then_apply(*, known_ms: int = 0) -> Iterator[Lease]:
        found = list(list_leases(known_ms=known_ms))
        reader.leases.take(3, seconds=60)
        seen.append(reader.versions.version(3).number)
        other.garbage.apply_gc_plan(plan)
        return iter(found)

    bench.leases.unexpired = lease_then_apply  # type: ignore[method-assign]
    first_run = bench.delete_garbage()
    if not seen:  # there was no record, so nobody asked for leases
        list(lease_then_apply())

    bench.leases.unexpired = list_leases  # type: ignore[method-assign]
    assert first_run == []
    assert seen == [3]
    assert bench.delete_garbage() == []
    assert path_of("f3") in stored(bench)


def test_a_damaged_lease_holds_everything_back() -> None:
    bench = rewritten(4)
    lease = bench.leases.take(2, seconds=60)
    bench.objects.put(bench.leases.paths.lease(lease.lease_id), b"damaged")
    bench.expire()

    assert bench.delete_garbage() == []
    bench.objects.delete(bench.leases.paths.lease(lease.lease_id))
    assert len(bench.delete_garbage()) == 2


# Hostile records.

HOSTILE_PATHS = [
    "metadata/v1.metadata.json",
    "wal/0/000001.wal",
    "index/x",
    "data",
    "data/",
    "dataset/x",
    "/data/x",
    "data/../wal/0/000001.wal",
    "data/../../other/data/x",
    "data/./x",
    "data//x",
    "data/x/",
    "data/x\0",
    "data\\..\\x",
    "../t2/data/x",
    "..",
    "",
    "data/" + "x" * 2_000,
]


def put_record(bench: TableBench, key: str, paths: list[str], versions: list[str]) -> None:
    payload = write_document(1, {"paths": [*paths], "versions": [*versions]})
    bench.store.transact(lambda session: session.put(f"{GARBAGE_PREFIX}{key}", payload))


def delete_nothing(bench: TableBench) -> None:
    def delete(path: str) -> None:
        pytest.fail(f"{path!r} was deleted")

    bench.garbage.delete_garbage(delete, find=bench.find)


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_record_that_names_a_file_elsewhere_deletes_nothing(path: str) -> None:
    bench = rewritten(4)
    bench.expire()
    put_record(bench, "zzz", ["data/good.parquet", path], ["1-1"])

    with pytest.raises(Corruption, match="garbage record"):
        delete_nothing(bench)
    with pytest.raises(Corruption):
        bench.garbage.pending_paths()


def test_a_file_that_a_retained_version_reaches_is_dropped_from_its_record_not_deleted() -> None:
    bench = rewritten(4)
    bench.versions.apply_version_edits([edit_of(4, vectors={"f4": vector_ref("1", marked=1)})])
    bench.work.tag("gold", 2)
    bench.expire()

    for path in (path_of("f4"), path_of("f2"), "deletes/1.puffin"):
        put_record(bench, "zzz", [path, "data/really-garbage"], ["1-1"])
        assert path not in bench.delete_garbage()
        assert records(bench) == []


def test_a_file_committed_again_while_it_awaits_deleting_stays_and_blocks_nothing() -> None:
    bench = rewritten(4)
    bench.expire()
    assert bench.garbage.pending_paths() == {path_of("f2"), path_of("f3")}
    bench.another().commit("f2")

    assert bench.delete_garbage() == [path_of("f3")]

    assert records(bench) == []
    assert set(stored(bench)) == {path_of("f2"), path_of("f4")}
    bench.commit(removed=["f2"])
    bench.expire()
    assert bench.delete_garbage() == [path_of("f2")]


@pytest.mark.parametrize("versions", ["x", "1", "-1", "1-", "1-2-3", "١-٢", "1-" + "9" * 30])
def test_a_record_about_versions_that_make_no_sense_deletes_nothing(versions: str) -> None:
    bench = rewritten(4)
    put_record(bench, "zzz", ["data/x"], [versions])

    with pytest.raises(Corruption, match="versions"):
        delete_nothing(bench)


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"format":1,"paths":7,"versions":[]}', b"\xff"])
def test_a_record_that_cannot_be_read_deletes_nothing(payload: bytes) -> None:
    bench = rewritten(4)
    bench.expire()
    bench.store.transact(lambda session: session.put(f"{GARBAGE_PREFIX}zzz", payload))

    with pytest.raises(Corruption):
        delete_nothing(bench)


# A process that dies between or within phases.


def one_cycle(bench: TableBench, die: Callable[[str], None]) -> None:
    """Expire and delete as a process would, with places to die at."""
    die("before the plan")
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + HOUR_MS)
    die("planned")
    bench.garbage.apply_gc_plan(plan)
    die("applied")

    def delete(path: str) -> None:
        die(f"before {path}")
        bench.objects.delete(path)
        die(f"behind {path}")

    bench.garbage.delete_garbage(delete, find=bench.find)
    die("deleted")


def test_a_process_that_dies_anywhere_leaves_work_that_the_next_one_finishes() -> None:
    places: list[str] = []
    one_cycle(rewritten(4), places.append)
    assert len(places) == 8

    for place in places:
        bench = rewritten(4)

        def die(here: str, place: str = place) -> None:
            if here == place:
                raise Killed

        with pytest.raises(Killed):
            one_cycle(bench, die)
        assert path_of("f4") in stored(bench)
        assert paths_of(bench.another().versions.snapshot_latest().version) <= set(stored(bench))

        one_cycle(bench.another(), lambda _: None)

        assert stored(bench) == [path_of("f4")], place
        assert records(bench.another()) == []
        assert readable(bench) == [4]


def test_a_hundred_cycles_with_processes_that_die_leave_exactly_what_is_reachable() -> None:
    bench = rewritten(2)
    for cycle in range(100):
        number = bench.versions.head().current_version
        write(bench, f"f{number + 1}")
        bench.replace_file(f"f{number}", f"f{number + 1}")
        steps = 0

        def die(_: str, last: int = cycle % 7) -> None:
            nonlocal steps
            steps += 1
            if steps > last:
                raise Killed

        with pytest.raises(Killed):
            one_cycle(bench, die)
        if cycle % 5 == 0:
            bench.checkpoint_and_collect()
        if cycle % 3 == 0:
            bench = bench.another(cycle)
        retained = bench.versions.list_versions()
        for version in retained:
            assert paths_of(version) <= set(stored(bench))

    one_cycle(bench, lambda _: None)

    assert stored(bench) == [path_of("f102")]
    assert records(bench) == []


def test_two_collectors_at_once_delete_the_same_and_lose_nothing() -> None:
    bench = rewritten(6)
    other = bench.another()
    bench.expire(keep_last=3)

    def delete(path: str) -> None:
        other.garbage.delete_garbage(other.objects.delete, find=other.find)
        bench.objects.delete(path)

    bench.garbage.delete_garbage(delete, find=bench.find)

    assert stored(bench) == [path_of("f4"), path_of("f5"), path_of("f6")]
    assert records(bench) == []
