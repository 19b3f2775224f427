"""Committing a proposal, whoever else commits meanwhile: races, repeats, reservations, expiry."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyroaring import BitMap64

from neve.errors import Conflict, Fenced, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.rebase import Proposal
from neve.manifest.table_head import JOB_PREFIX, RESERVATION_KEY, HeadChange
from neve.manifest.table_versions import Committed
from neve.model.data_file import VectorRef
from neve.model.version import Operation
from neve.testing.faulty_store import Fault, FaultyStore, PlannedFault
from neve.testing.faulty_store import Operation as Call
from neve.testing.model_rows import ModelRows, keys_of
from tests.unit.manifest.builders import (
    TableBench,
    edit_of,
    facts,
    new_table,
    path_of,
)

Meanwhile = Callable[[], object]


class Writers:
    """Committers on one table whose rows are in memory."""

    def __init__(self, bench: TableBench | None = None) -> None:
        self.bench = bench or new_table()
        self.rows = ModelRows()
        self.vectors_written = 0

    def upsert(self, name: str, **rows: str) -> Proposal:
        version = self.bench.versions.snapshot_latest().version
        encoded = {key.encode(): value.encode() for key, value in rows.items()}
        keys = keys_of(encoded)
        return Proposal(
            base=version.number,
            facts=facts(Operation.OVERWRITE),
            added=(self.rows.add_file(path_of(name), encoded),),
            marked={
                path: positions
                for path, file in version.files.items()
                if (positions := self.rows.live_positions(file, keys))
            },
            keys=(keys,),
        )

    def compact(self, name: str) -> Proposal:
        version = self.bench.versions.snapshot_latest().version
        live = dict(self.rows.live_rows(version))
        return Proposal(
            base=version.number,
            facts=facts(Operation.REPLACE),
            added=(self.rows.add_file(path_of(name), live),),
            removed=tuple(version.files),
        )

    def commit(
        self,
        proposal: Proposal,
        change: HeadChange | None = None,
        *,
        bench: TableBench | None = None,
        meanwhile: Meanwhile = lambda: None,
    ) -> Committed:
        """Commit; `meanwhile` happens between reading the table and writing to it."""

        def write_vectors(whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
            self.vectors_written += 1
            meanwhile()
            return self.rows.write_vectors(whole)

        return (bench or self.bench).committer.commit(
            proposal, change or HeadChange(), lookup=self.rows, write_vectors=write_vectors
        )

    def shows(self) -> dict[str, str]:
        found = self.rows.live_rows(self.bench.versions.snapshot_latest().version)
        assert len(dict(found)) == len(found), "a key occurs twice"
        return {key.decode(): value.decode() for key, value in found}


@pytest.fixture
def writers() -> Writers:
    """Give a table with the rows a=1, b=1."""
    made = Writers()
    made.commit(made.upsert("first", a="1", b="1"))
    return made


def few_times(act: Meanwhile, times: int) -> Meanwhile:
    left = times

    def once_more() -> None:
        nonlocal left
        if left:
            left -= 1
            act()

    return once_more


def test_a_committer_that_lost_a_race_commits_on_the_newer_version(writers: Writers) -> None:
    other = writers.bench.another()
    mine, theirs = writers.upsert("mine", a="mine"), writers.upsert("theirs", a="theirs", x="1")

    committed = writers.commit(
        mine, meanwhile=few_times(lambda: writers.commit(theirs, bench=other), 1)
    )

    assert committed.snapshot.version.number == 4
    assert writers.shows() == {"a": "mine", "b": "1", "x": "1"}


def test_a_committer_whose_inputs_went_while_it_committed_is_void(writers: Writers) -> None:
    other = writers.bench.another()
    mine, theirs = writers.compact("mine"), writers.compact("theirs")
    writers.commit(writers.upsert("mark", a="2"))  # so that both have vectors to write

    with pytest.raises(Conflict, match="rewritten or removed"):
        writers.commit(mine, meanwhile=few_times(lambda: writers.commit(theirs, bench=other), 1))

    assert writers.shows() == {"a": "2", "b": "1"}


def test_vectors_are_written_once_for_each_version_the_change_was_carried_to(
    writers: Writers,
) -> None:
    mine = writers.upsert("mine", a="mine")
    writers.bench.work.reserve("other", milliseconds=5_000)

    writers.commit(mine)  # has to wait for the reservation to end, asking again and again

    assert writers.vectors_written == 1
    assert writers.shows() == {"a": "mine", "b": "1"}


def test_a_committer_that_keeps_losing_takes_a_reservation_and_wins(writers: Writers) -> None:
    other = writers.bench.another()
    losses = 0
    held_back_by: list[str] = []

    def commit_before() -> None:
        nonlocal losses
        try:
            number = other.versions.head().current_version
            other.versions.apply_version_edits([edit_of(number, f"busy{losses}")])
            losses += 1
        except Conflict as conflict:
            held_back_by.extend(conflict.keys)

    for index in range(10):
        writers.rows.add_file(path_of(f"busy{index}"), {f"busy{index}".encode(): b"v"})

    writers.commit(writers.upsert("mine", a="mine"), meanwhile=commit_before)

    assert losses == 4
    assert held_back_by == [RESERVATION_KEY]
    assert writers.shows()["a"] == "mine"
    assert writers.bench.store.read().get(RESERVATION_KEY) is None


def test_a_committer_that_can_never_be_first_gives_up_after_its_time() -> None:
    bench = TableBench(commit_seconds=3.0)
    bench.create()
    writers = Writers(bench)
    writers.commit(writers.upsert("first", a="1"))
    mine = writers.upsert("mine", a="mine")
    bench.another().work.reserve("other", milliseconds=10_000)
    start = bench.clock.monotonic()

    with pytest.raises(Unavailable) as caught:
        writers.commit(mine)

    assert isinstance(caught.value.__cause__, Conflict)
    assert bench.clock.monotonic() - start < 10
    assert writers.shows() == {"a": "1"}


def test_a_fenced_writer_is_not_tried_again(writers: Writers) -> None:
    epoch = writers.bench.work.take_over()
    mine = writers.upsert("mine", a="mine")
    before = writers.vectors_written

    with pytest.raises(Fenced):
        writers.commit(
            mine,
            HeadChange(writer_epoch=epoch),
            meanwhile=few_times(writers.bench.another().work.take_over, 1),
        )

    assert writers.vectors_written == before + 1
    assert writers.shows() == {"a": "1", "b": "1"}


def test_a_dropped_table_takes_no_proposal(writers: Writers) -> None:
    mine = writers.upsert("mine", a="mine")
    writers.bench.work.drop()

    with pytest.raises(NotFound, match="dropped"):
        writers.commit(mine)


@pytest.mark.parametrize("change", [HeadChange(job_id="j"), HeadChange(application=("app", 3))])
def test_a_rewrite_that_is_repeated_is_answered_although_its_inputs_are_gone(
    writers: Writers, change: HeadChange
) -> None:
    rewrite = writers.compact("compacted")
    first = writers.commit(rewrite, change)

    repeated = writers.commit(rewrite, change, bench=writers.bench.another())

    assert repeated.is_repeat
    assert repeated.snapshot.version == first.snapshot.version
    assert writers.bench.versions.head().current_version == 3


def test_a_job_that_is_repeated_is_answered_although_its_base_has_expired(
    writers: Writers,
) -> None:
    mine = writers.upsert("mine", a="mine")
    change = HeadChange(job_id="j")
    writers.commit(mine, change)
    writers.commit(writers.upsert("later", b="2"))
    writers.bench.expire()

    assert writers.commit(mine, change).is_repeat
    assert writers.shows() == {"a": "mine", "b": "2"}


def test_two_processes_that_run_one_job_commit_it_once(writers: Writers) -> None:
    change = HeadChange(job_id="j")
    other = writers.bench.another()
    rewrite = writers.compact("compacted")
    writers.commit(writers.upsert("mark", a="2"))

    committed = writers.commit(
        rewrite,
        change,
        meanwhile=few_times(lambda: writers.commit(rewrite, change, bench=other), 1),
    )

    assert committed.is_repeat
    assert writers.bench.versions.head().current_version == 4
    assert writers.shows() == {"a": "2", "b": "1"}


def test_a_job_whose_base_has_expired_is_to_be_planned_again(writers: Writers) -> None:
    mine = writers.upsert("mine", a="mine")
    writers.commit(writers.upsert("later", b="2"))
    writers.bench.expire()

    with pytest.raises(Conflict, match="version 2"):
        writers.commit(mine)

    assert writers.shows() == {"a": "1", "b": "2"}


def test_a_job_that_leased_its_base_commits_however_late(writers: Writers) -> None:
    writers.bench.leases.take(2, seconds=3_600)
    mine = writers.upsert("mine", a="mine")
    for index in range(5):
        writers.commit(writers.upsert(f"later{index}", a=f"{index}", c=f"{index}"))
        writers.bench.expire()
        writers.bench.checkpoint_and_collect()

    writers.commit(mine, bench=writers.bench.another())

    assert writers.shows() == {"a": "mine", "b": "1", "c": "4"}


def test_commits_without_a_job_leave_no_record_of_jobs(writers: Writers) -> None:
    for index in range(3):
        writers.commit(writers.upsert(f"f{index}", a=f"{index}"))

    assert not list(writers.bench.store.read().scan(JOB_PREFIX))


def test_a_commit_whose_outcome_was_unknown_is_found_out_by_repeating_its_job(
    writers: Writers,
) -> None:
    slot = writers.bench.store.log.paths.segment(writers.bench.segment() + 1)
    faults = [
        PlannedFault(fault=Fault.LOST, operation=Call.PUT_IF_ABSENT, path_prefix=slot),
        PlannedFault(fault=Fault.BEFORE, operation=Call.GET, path_prefix=slot, times=10_000),
    ]
    faulty = TableBench(
        FaultyStore(writers.bench.objects, faults), clock=writers.bench.clock, seed=5
    )
    mine = writers.upsert("mine", a="mine")
    change = HeadChange(job_id="j")

    with pytest.raises(OutcomeUnknown):
        writers.commit(mine, change, bench=faulty)

    writers.bench.store.open()  # finishes what was decided
    assert writers.commit(mine, change).is_repeat
    assert writers.shows() == {"a": "mine", "b": "1"}


def test_threads_that_commit_at_once_lose_nothing_and_double_nothing() -> None:
    bench = TableBench(commit_seconds=36_000.0)
    bench.create()
    writers = Writers(bench)
    processes = [bench, TableBench(bench.objects, clock=bench.clock, commit_seconds=36_000.0)]

    def write(thread: int) -> None:
        for number in range(6):
            proposal = writers.upsert(
                f"t{thread}-{number}", **{f"own{thread}": f"{number}", "shared": f"{thread}"}
            )
            writers.commit(proposal, bench=processes[thread % 2])

    with ThreadPoolExecutor(max_workers=4) as pool:
        for outcome in [pool.submit(write, thread) for thread in range(4)]:
            outcome.result()

    shown = writers.shows()
    assert {key: shown[key] for key in shown if key != "shared"} == {
        f"own{thread}": "5" for thread in range(4)
    }
    assert bench.another().versions.head().current_version == 25
    for version in bench.another().versions.list_versions():
        rows = writers.rows.live_rows(version)
        assert len(dict(rows)) == len(rows)
