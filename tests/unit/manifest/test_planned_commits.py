"""Commits that are planned on the newest Version: planned again, answered, checked, reserved."""

import pytest

from neve.errors import CatalogConflict, Conflict, Fenced, NotFound, Unavailable
from neve.manifest.commit import CommitPlan
from neve.manifest.table_head import RESERVATION_KEY, HeadChange, Requirements
from neve.manifest.version_reader import Session, TableSnapshot
from tests.unit.manifest.builders import TableBench, edit_of, new_table, path_of


class Planner:
    """Adds one file to the newest Version, while others commit in between."""

    def __init__(self, bench: TableBench, *, losses: int = 0) -> None:
        self.bench = bench
        self.other = bench.another()
        self.losses = losses
        self.bases: list[int] = []

    def __call__(self, _session: Session, snapshot: TableSnapshot) -> CommitPlan:
        self.bases.append(snapshot.version.number)
        if len(self.bases) <= self.losses:
            self.other.commit(f"other{len(self.bases)}")
        return CommitPlan(edits=[edit_of(snapshot.version.number, "mine")])


def test_a_plan_is_made_again_on_the_version_of_the_one_that_was_first() -> None:
    bench = new_table()
    planner = Planner(bench, losses=2)

    committed = bench.committer.commit(planner)

    assert planner.bases == [1, 2, 3]
    assert committed.snapshot.version.number == 4
    assert committed.has_version
    files = bench.versions.snapshot_latest().version.files
    assert set(files) == {path_of(name) for name in ("other1", "other2", "mine")}


def test_a_plan_that_keeps_losing_gets_a_reservation_that_holds_others_back() -> None:
    bench = new_table()
    planner = Planner(bench, losses=100)
    held_back_by: list[str] = []

    def plan(session: Session, snapshot: TableSnapshot) -> CommitPlan:
        try:
            return planner(session, snapshot)
        except Conflict as conflict:
            held_back_by.extend(conflict.keys)
            return CommitPlan(edits=[edit_of(snapshot.version.number, "mine")])

    committed = bench.committer.commit(plan)

    assert planner.bases == [1, 2, 3, 4, 5]
    assert held_back_by == [RESERVATION_KEY]
    assert committed.snapshot.version.number == 6
    assert bench.store.read().get(RESERVATION_KEY) is None


def test_a_commit_waits_for_the_reservation_of_another_job() -> None:
    bench = new_table()
    bench.work.reserve("other", milliseconds=5_000)
    before = bench.clock.monotonic()

    assert bench.committer.commit(Planner(bench)).snapshot.version.number == 2
    assert bench.clock.monotonic() - before >= 5.0


def test_a_commit_gives_up_when_its_time_is_over() -> None:
    bench = TableBench(commit_seconds=2.0)
    bench.create()
    bench.work.reserve("other", milliseconds=5_000)

    with pytest.raises(Unavailable, match="kept being first within 2 s"):
        bench.committer.commit(Planner(bench))


def test_nothing_to_change_is_answered_with_the_newest_version() -> None:
    bench = new_table()
    bench.commit("a")

    committed = bench.committer.commit(lambda _session, _snapshot: None)

    assert committed.is_repeat
    assert not committed.has_version
    assert committed.snapshot.version.number == 2


def test_a_plan_without_edits_changes_only_the_head_of_the_version_it_was_made_on() -> None:
    bench = new_table()
    other = bench.another()
    seen: list[int] = []

    def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
        seen.append(snapshot.version.number)
        if len(seen) == 1:
            other.commit("theirs")
        return CommitPlan()

    committed = bench.committer.commit(plan, HeadChange(last_sequence=7))

    assert seen == [1, 2]
    assert not committed.has_version
    assert bench.versions.head().current_version == 2
    assert bench.versions.head().last_sequence == 7


def test_a_job_that_is_committed_already_is_not_planned_again() -> None:
    bench = new_table()
    change = HeadChange(job_id="job")
    bench.committer.commit(Planner(bench), change)
    again = Planner(bench)

    repeated = bench.committer.commit(again, change)

    assert repeated.is_repeat
    assert repeated.snapshot.version.number == 2
    assert again.bases == []


def test_the_change_of_a_plan_is_committed_under_the_id_of_the_job() -> None:
    bench = new_table()

    def plan(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
        edits = [edit_of(snapshot.version.number, "mine")]
        return CommitPlan(edits=edits, change=HeadChange(sort_order="-x"))

    bench.committer.commit(plan, HeadChange(job_id="job"))

    assert bench.versions.head().sort_order == "-x"
    assert bench.versions.committed_before(HeadChange(job_id="job")) is not None


def test_a_check_that_fails_ends_the_commit_before_it_is_planned() -> None:
    bench = new_table()
    planner = Planner(bench)

    with pytest.raises(CatalogConflict, match="schema_id"):
        bench.committer.commit(planner, checks=Requirements(schema_id=9))

    assert planner.bases == []
    assert bench.versions.head().current_version == 1


def test_a_check_that_fails_on_the_version_of_others_ends_the_commit() -> None:
    bench = new_table()

    with pytest.raises(CatalogConflict, match="version is 2, not 1"):
        bench.committer.commit(Planner(bench, losses=1), checks=Requirements(version=1))

    assert bench.versions.head().current_version == 2


def test_what_a_plan_raises_ends_the_commit() -> None:
    bench = new_table()
    seen: list[int] = []

    def void(_session: Session, snapshot: TableSnapshot) -> CommitPlan:
        seen.append(snapshot.version.number)
        raise Conflict("void", keys=("head",))

    with pytest.raises(Conflict, match="void"):
        bench.committer.commit(void)

    assert seen == [1]


def test_a_fenced_writer_and_a_dropped_table_get_no_commit() -> None:
    bench = new_table()
    epoch = bench.work.take_over()
    bench.work.take_over()

    with pytest.raises(Fenced):
        bench.committer.commit(Planner(bench), HeadChange(writer_epoch=epoch))
    bench.work.drop()
    planner = Planner(bench)
    with pytest.raises(NotFound, match="dropped"):
        bench.committer.commit(planner)
    assert planner.bases == []
