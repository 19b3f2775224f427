"""Committing a proposal, whoever else commits meanwhile: races, repeats, reservations, expiry."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from pyroaring import BitMap64

from neve.errors import Conflict, Corruption, Fenced, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.manifest_store import StoreOptions
from neve.manifest.rebase import Keys, Proposal, complete
from neve.manifest.table_head import JOB_PREFIX, RESERVATION_KEY, HeadChange
from neve.manifest.table_versions import Committed
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Operation
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import Fault, FaultyStore, PlannedFault, StoreCall
from neve.testing.faulty_store import Operation as Call
from neve.testing.interleaving import Interleaving, interleaved
from neve.testing.model_rows import ModelRows, keys_of
from tests.unit.manifest.builders import (
    PREFIX,
    TableBench,
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

        return (bench or self.bench).committer.commit_proposal(
            proposal, change or HeadChange(), lookup=self.rows.writing(write_vectors)
        )

    def shows(self) -> dict[str, str]:
        found = self.rows.live_rows(self.bench.versions.snapshot_latest().version)
        assert len(dict(found)) == len(found), "a key occurs twice"
        return {key.decode(): value.decode() for key, value in found}


@pytest.fixture
def writers() -> Writers:
    """Return a table with the rows a=1, b=1."""
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


def test_a_committer_that_keeps_losing_takes_a_reservation_and_wins() -> None:
    writers = Writers()
    writers.commit(writers.upsert("first", a="1", b="1", c="1", d="1", e="1", f="1", g="1"))
    other = writers.bench.another()
    pauses_before = writers.bench.clock.monotonic()
    losses = 0
    held_back_by: list[str] = []

    def commit_before() -> None:
        """Mark another row of the file that `mine` marks a row of, so that its vector is moot."""
        nonlocal losses
        current = other.versions.snapshot_latest().version
        busy = writers.upsert(f"busy{losses}-{len(held_back_by)}", **{"bcdefg"[losses]: "busy"})
        try:
            edit = complete(busy, current, writers.rows)
            other.versions.apply_version_edits([edit])
            losses += 1
        except Conflict as conflict:
            held_back_by.extend(conflict.keys)

    writers.commit(writers.upsert("mine", a="mine"), meanwhile=commit_before)

    assert losses == 1 + 4  # once before it asked for a commit, and four times when it did
    assert held_back_by == [RESERVATION_KEY]
    assert writers.shows() == {"a": "mine", "g": "1"} | dict.fromkeys("bcdef", "busy")
    assert writers.bench.store.read().get(RESERVATION_KEY) is None
    # A loser lets the others finish; a reservation is used without waiting.
    assert writers.bench.clock.monotonic() - pauses_before < 4 * 0.05


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


class TestThreadsOfOneHandle:
    """Commits that wait at the same time end in one segment, each as a Version of its own."""

    def test_concurrent_upserts_of_the_same_keys_share_segments_and_lose_nothing(self) -> None:
        fewest = 6
        for seed in range(40):
            crowd = Crowd(seed)
            outcomes = crowd.commit_at_once(
                [crowd.writers.upsert(f"t{n}", shared=f"{n}", **{f"own{n}": "1"}) for n in range(6)]
            )

            numbers = {committed.snapshot.version.number: n for n, committed in outcomes.items()}
            assert sorted(numbers) == [2, 3, 4, 5, 6, 7]
            for number, last in numbers.items():
                seen = crowd.writers.bench.another().versions.version(number)
                wanted = {f"own{n}".encode(): b"1" for at, n in numbers.items() if at <= number}
                wanted[b"shared"] = f"{last}".encode()
                assert crowd.writers.rows.live_rows(seen) == sorted(wanted.items())
            fewest = min(fewest, crowd.segments)
        assert fewest <= 2

    def test_nobody_pauses_or_is_reserved_for(self) -> None:
        for seed in range(20):
            crowd = Crowd(seed)
            before = crowd.writers.bench.clock.monotonic()

            crowd.commit_at_once([crowd.writers.upsert(f"t{n}", shared="1") for n in range(6)])

            assert crowd.writers.bench.clock.monotonic() == before

    @pytest.mark.parametrize("lost", [1, 2, 3])
    def test_a_group_that_lost_its_slot_is_carried_over_to_the_winner(self, lost: int) -> None:
        for seed in range(30):
            crowd = Crowd(seed)
            crowd.writers.commit(crowd.writers.upsert("first", a="1", b="1"))
            rival = crowd.writers.bench.another()

            def be_first(crowd: Crowd = crowd, rival: TableBench = rival) -> None:
                theirs = crowd.writers.upsert("theirs", a="rival", own0="rival", own3="rival")
                crowd.writers.commit(theirs, bench=rival)

            crowd.before_segment(lost, be_first)

            outcomes = crowd.commit_at_once(
                [crowd.writers.upsert(f"t{n}", shared=f"{n}", **{f"own{n}": "1"}) for n in range(6)]
            )

            if crowd.segments < lost:
                continue  # the crowd needed fewer
            after = {number: n for n, number in crowd.numbers_of(outcomes).items()}
            shown = crowd.writers.shows()
            assert (shown["a"], shown["b"], shown["shared"]) == (
                "rival",
                "1",
                f"{after[max(after)]}",
            )
            assert len(shown) == 3 + 6
            (theirs,) = set(range(3, 10)) - set(after)
            for number, n in after.items():
                is_older = n in {0, 3} and number < theirs
                assert shown[f"own{n}"] == ("rival" if is_older else "1")

    def test_who_comes_behind_one_that_the_winner_made_void_is_carried_over_all_the_same(
        self,
    ) -> None:
        voids = 0
        for seed in range(40):
            crowd = Crowd(seed)
            crowd.writers.commit(crowd.writers.upsert("first", a="1", b="1"))
            theirs = crowd.writers.compact("theirs")
            rival = crowd.writers.bench.another()

            def be_first(
                crowd: Crowd = crowd, theirs: Proposal = theirs, rival: TableBench = rival
            ) -> None:
                with suppress(Conflict):  # the crowd's own was before it
                    crowd.writers.commit(theirs, bench=rival)

            crowd.before_segment(2, be_first)

            outcomes = crowd.commit_at_once(
                [
                    crowd.writers.upsert("x", x="1"),
                    crowd.writers.compact("one"),
                    crowd.writers.upsert("mine", a="mine"),
                    crowd.writers.upsert("more", b="more"),
                ],
                refused=Conflict,
            )

            assert {0, 2, 3} <= set(outcomes)
            assert crowd.writers.shows() == {"a": "mine", "b": "more", "x": "1"}
            voids += 1 not in outcomes
        assert voids > 10

    def test_one_that_is_refused_late_hurts_nobody_behind_it(self) -> None:
        for seed in range(30):
            crowd = Crowd(seed)
            proposals = [crowd.writers.upsert(f"t{n}", shared=f"{n}") for n in range(6)]
            bad = HeadChange(wal_floor=9)  # beyond the next log: found out when all is staged

            outcomes = crowd.commit_at_once(proposals, changes={2: bad, 4: bad}, refused=Corruption)

            assert set(outcomes) == {0, 1, 3, 5}
            numbers = crowd.numbers_of(outcomes)
            assert sorted(numbers.values()) == [2, 3, 4, 5]
            assert crowd.writers.shows() == {"shared": str(max(numbers, key=numbers.__getitem__))}
            found = crowd.writers.bench.another().versions.snapshot_latest()
            assert found == max(outcomes.values(), key=version_number).snapshot

    def test_of_two_rewrites_of_one_file_the_second_is_void_and_hurts_nobody_else(self) -> None:
        voids = 0
        for seed in range(20):
            crowd = Crowd(seed)
            crowd.writers.commit(crowd.writers.upsert("first", a="1", b="1"))
            proposals = [
                crowd.writers.compact("one"),
                crowd.writers.compact("two"),
                crowd.writers.upsert("mine", a="mine"),
                crowd.writers.upsert("more", c="more"),
            ]

            outcomes = crowd.commit_at_once(proposals, refused=Conflict)

            assert {2, 3} <= set(outcomes)
            assert len(outcomes) == 3, "one of the rewrites, and both upserts"
            assert crowd.writers.shows() == {"a": "mine", "b": "1", "c": "more"}
            voids += len(proposals) - len(outcomes)
        assert voids == 20

    def test_the_same_seed_gives_the_same_order_of_events(self) -> None:
        traces = []
        for _ in range(2):
            crowd = Crowd(7)
            crowd.commit_at_once([crowd.writers.upsert(f"t{n}", shared="1") for n in range(4)])
            traces.append(crowd.interleaving.trace)

        assert traces[0] == traces[1]


class Crowd:
    """Threads that commit through one handle, in an order drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.interleaving = Interleaving(seed)
        plain = new_table()
        self.bench = TableBench(
            interleaved(
                FaultyStore(plain.objects, before_call=self._before_call), self.interleaving
            ),
            clock=plain.clock,
            seed=seed + 10,
            make_latch=self.interleaving.lock,
        )
        self.writers = Writers(plain)
        self.segments = 0
        self._to_come: tuple[int, Meanwhile] | None = None

    def before_segment(self, number: int, act: Meanwhile) -> None:
        """Let something happen when the crowd is about to create its first segment, or a later."""
        self._to_come = number, act

    def commit_at_once(
        self,
        proposals: Sequence[Proposal],
        *,
        changes: Mapping[int, HeadChange] | None = None,
        refused: type[Exception] | None = None,
    ) -> dict[int, Committed]:
        """Commit each in a thread of its own; gives the outcomes of those that are not refused."""
        self.segments = 0

        def commit(n: int) -> Committed:
            return self.writers.commit(proposals[n], (changes or {}).get(n), bench=self.bench)

        outcomes = self.interleaving.run(
            {str(n): partial(commit, n) for n in range(len(proposals))}
        )
        return {
            int(n): outcome.result()
            for n, outcome in outcomes.items()
            if refused is None or not isinstance(outcome.error, refused)
        }

    def numbers_of(self, outcomes: Mapping[int, Committed]) -> dict[int, int]:
        """Return the Version that each made."""
        return {n: version_number(committed) for n, committed in outcomes.items()}

    def _before_call(self, call: StoreCall) -> None:
        if call.operation is not Call.PUT_IF_ABSENT or "/segments/" not in call.path:
            return
        self.segments += 1
        if self._to_come is not None and self._to_come[0] == self.segments:
            self._to_come[1]()


def version_number(committed: Committed) -> int:
    return committed.snapshot.version.number


class TestCost:
    def test_a_commit_on_the_version_it_knows_is_one_conditional_read_and_two_writes(self) -> None:
        counted = FaultyStore(MemoryStore())
        bench = TableBench(counted)
        bench.create()
        writers = Writers(bench)
        # All are made on Version 1: the later ones are carried over.
        proposals = [writers.upsert(f"f{n}", a=f"{n}") for n in range(3)]

        for proposal in proposals:
            before = len(counted.calls)
            writers.commit(proposal)
            made = [call.operation for call in counted.calls[before:]]
            assert made == [Call.GET_IF_CHANGED, Call.PUT_IF_ABSENT, Call.PUT_IF_MATCH]

        assert writers.shows() == {"a": "2"}

    def test_a_proposal_far_behind_is_carried_over_by_its_own_thread(self) -> None:
        writers = Writers()
        late = writers.bench.another()
        late.versions.snapshot_latest()
        mine = writers.upsert("mine", key0="mine")
        for n in range(80):
            writers.commit(writers.upsert(f"f{n}", **{f"key{n % 3}": f"{n}"}))
        looked_up: list[bool] = []
        queue = late.store._queue
        find = writers.rows.positions_of

        def spy(file: DataFile, keys: Keys) -> BitMap64:
            looked_up.append(queue.is_led)
            return find(file, keys)

        writers.rows.positions_of = spy  # type: ignore[method-assign]
        writers.commit(mine, bench=late)

        assert looked_up
        assert not any(looked_up), "others had to wait for its lookups"
        assert writers.shows()["key0"] == "mine"


class TestBaseThatExpired:
    def test_a_process_that_has_not_heard_that_its_base_expired_is_told(
        self, writers: Writers
    ) -> None:
        late = writers.bench.another()
        late.versions.snapshot_latest()
        mine = writers.upsert("mine", a="mine")
        writers.commit(writers.upsert("later", b="2"))
        writers.bench.expire()

        with pytest.raises(Conflict, match="version 2"):
            writers.commit(mine, bench=late)

        assert writers.shows() == {"a": "1", "b": "2"}


class TestCheckpoints:
    OPTIONS = StoreOptions(checkpoint_every=2, checkpoint_at_most_every=4)

    def test_commits_publish_a_checkpoint_when_one_is_due(self) -> None:
        bench = TableBench(options=self.OPTIONS)
        bench.create()
        writers = Writers(bench)

        for n in range(20):
            writers.commit(writers.upsert(f"f{n}", a=f"{n}"))
            state = bench.store.read().state
            assert state.segment - state.checkpoint < 4

        assert bench.store.read().state.checkpoint > 0
        assert Writers.shows(writers) == {"a": "19"}

    @pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.LOST])
    def test_a_checkpoint_that_fails_fails_no_commit_and_is_not_tried_at_each(
        self, fault: Fault, caplog: pytest.LogCaptureFixture
    ) -> None:
        objects = MemoryStore()
        checkpoints = f"{PREFIX}/checkpoints/"
        faults = [
            PlannedFault(
                fault=fault, operation=Call.PUT_IF_ABSENT, path_prefix=checkpoints, times=10**6
            ),
            PlannedFault(
                fault=Fault.BEFORE, operation=Call.GET, path_prefix=checkpoints, times=10**6
            ),
        ]
        bench = TableBench(FaultyStore(objects, faults), options=self.OPTIONS)
        bench.create()
        writers = Writers(bench)

        for n in range(20):
            assert not writers.commit(writers.upsert(f"f{n}", a=f"{n}")).is_repeat

        assert bench.store.read().state.checkpoint == 0
        assert writers.shows() == {"a": "19"}
        tries = [record for record in caplog.records if "put off checkpoint" in record.message]
        assert 2 <= len(tries) <= 10
        assert bench.clock.monotonic() < 10 * 10, "each try is given up after some seconds"
