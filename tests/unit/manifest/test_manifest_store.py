"""The store as its users see it: serializable, grouped, bounded in time, cheap."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pytest

from neve.errors import (
    AlreadyExists,
    Conflict,
    Corruption,
    InvalidArgument,
    LimitExceeded,
    OutcomeUnknown,
    Unavailable,
)
from neve.manifest import documents as frame
from neve.manifest.documents import Segment, encode_segment
from neve.manifest.manifest_store import ManifestStore, StoreOptions, _Work
from neve.manifest.sessions import WriteSession
from neve.storage.commit_queue import Latch
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault, StoreCall
from neve.testing.interleaving import Interleaving, interleaved
from neve.testing.simulated_clock import SeededIds, SimulatedClock

PREFIX: Final = "manifest/catalog"
SEGMENTS: Final = f"{PREFIX}/segments/"
FOR_EVER: Final = 1_000_000


def open_store(
    objects: ObjectStore,
    *,
    seed: int = 0,
    clock: SimulatedClock | None = None,
    options: StoreOptions | None = None,
    make_latch: Callable[[], Latch] = threading.Lock,
) -> ManifestStore:
    """Return one process's handle on the store."""
    return ManifestStore(
        objects,
        PREFIX,
        clock=clock or SimulatedClock(),
        ids=SeededIds(seed),
        options=options,
        make_latch=make_latch,
    )


def increment(session: WriteSession, key: str = "counter") -> int:
    count = int(session.get(key) or b"0") + 1
    session.put(key, b"%d" % count)
    return count


def put(store: ManifestStore, **values: bytes) -> None:
    def run(session: WriteSession) -> None:
        for key, value in values.items():
            session.put(key, value)

    store.transact(run)


def content(store: ManifestStore) -> dict[str, bytes]:
    return dict(store.read().scan(""))


class TestTransactions:
    """MANIFEST-K1: strictly serializable."""

    def test_a_transaction_sees_what_was_acknowledged_elsewhere_before_it_began(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)

        results = [store.transact(increment) for _ in range(5) for store in (one, two)]

        assert results == list(range(1, 11))
        assert content(one) == content(two) == {"counter": b"10"}

    def test_it_is_run_again_on_what_another_process_committed_first(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        runs: list[int] = []

        def run(session: WriteSession) -> int:
            count = increment(session)
            runs.append(count)
            if len(runs) == 1:
                two.transact(increment)
            return count

        assert one.transact(run) == 2
        assert runs == [1, 2]
        assert content(one) == {"counter": b"2"}

    def test_it_commits_behind_another_that_changed_unrelated_keys(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        runs: list[int] = []

        def run(session: WriteSession) -> None:
            runs.append(increment(session, "mine"))
            put(two, theirs=b"x")

        one.transact(run)

        assert runs == [1]
        assert content(one) == {"mine": b"1", "theirs": b"x"}

    def test_one_that_changes_nothing_writes_nothing(self) -> None:
        objects = FaultyStore(MemoryStore())
        store = open_store(objects)
        put(store, a=b"1")
        before = len(objects.calls)

        assert store.transact(lambda session: session.get("a")) == b"1"

        assert [call.operation for call in objects.calls[before:]] == [Operation.GET_IF_CHANGED]

    def test_what_it_raises_reaches_its_caller_and_nothing_is_written(self) -> None:
        objects = MemoryStore()
        store = open_store(objects)

        def run(session: WriteSession) -> None:
            session.put("a", b"1")
            raise KeyError("no such thing")

        with pytest.raises(KeyError, match="no such thing"):
            store.transact(run)

        assert content(store) == {}
        assert list(objects.list("")) == []

    def test_write_skew_is_impossible(self) -> None:
        """Each goes off duty only while the other is on; together they must not both."""
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        put(one, alice=b"on", bob=b"on")

        def leave(session: WriteSession, who: str, other: str) -> None:
            if session.get(other) == b"on":
                session.put(who, b"off")

        def leave_while_the_other_does(session: WriteSession) -> None:
            leave(session, "alice", "bob")
            if two.read().get("bob") == b"on":
                two.transact(lambda staged: leave(staged, "bob", "alice"))

        one.transact(leave_while_the_other_does)

        assert list(content(one).values()).count(b"on") == 1

    def test_phantoms_are_impossible(self) -> None:
        """Each adds a member only to an empty group."""
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)

        def join(session: WriteSession, who: str) -> None:
            if not list(session.scan("member/")):
                session.put(f"member/{who}", b"")

        def join_while_the_other_does(session: WriteSession) -> None:
            join(session, "one")
            two.transact(lambda staged: join(staged, "two"))

        one.transact(join_while_the_other_does)

        assert content(one) == {"member/two": b""}

    def test_a_key_that_no_file_can_hold_hurts_nobody_else(self) -> None:
        store = open_store(MemoryStore())

        with pytest.raises(InvalidArgument):
            store.transact(lambda session: session.put("\ud800", b""))
        put(store, a=b"1")

        assert content(store) == {"a": b"1"}


class TestSessionsByHand:
    def test_a_session_whose_reads_moved_is_a_conflict_that_names_them(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        put(one, a=b"1", b=b"1", c=b"1")
        session = one.write()
        for key in ("a", "b"):
            session.get(key)
        session.put("mine", b"x")

        put(two, b=b"2", c=b"2")

        with pytest.raises(Conflict, match="b changed since the session began") as caught:
            one.commit(session)
        assert caught.value.keys == ("b",)
        assert caught.value.path == PREFIX
        assert caught.value.hint
        assert content(two) == {"a": b"1", "b": b"2", "c": b"2"}

    def test_a_phantom_is_a_conflict_that_names_it(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        session = one.write()
        list(session.scan("job/"))
        session.put("count", b"0")

        put(two, **{"job/1": b"x"})

        with pytest.raises(Conflict) as caught:
            one.commit(session)
        assert caught.value.keys == ("job/1",)

    def test_a_session_commits_behind_unrelated_changes(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        put(one, a=b"1")
        session = one.write()
        session.put("a", (session.get("a") or b"") + b"!")

        put(two, b=b"2")

        assert one.commit(session) == 3
        assert content(two) == {"a": b"1!", "b": b"2"}

    def test_a_session_that_lost_can_be_repeated_on_what_is_there_now(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        session = one.write()
        increment(session)
        two.transact(increment)
        with pytest.raises(Conflict):
            one.commit(session)

        again = one.write()
        increment(again)
        one.commit(again)

        assert content(two) == {"counter": b"2"}

    def test_an_empty_session_commits_nothing_and_gives_where_it_stands(self) -> None:
        store = open_store(MemoryStore())
        put(store, a=b"1")

        assert store.commit(store.write()) == 1

    def test_readers_keep_what_they_began_with(self) -> None:
        objects = MemoryStore()
        store = open_store(objects)
        put(store, a=b"1")
        session = store.read()

        put(store, a=b"2")
        store.checkpoint()
        store.collect_once()

        assert session.get("a") == b"1"
        assert session.segment == 1
        assert store.read().get("a") == b"2"


@dataclass
class Crowd:
    """Threads of one process whose commits meet in the queue, in an order the seed decides."""

    seed: int
    objects: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        self.interleaving = Interleaving(self.seed)
        self.calls = FaultyStore(self.objects)
        self.store = open_store(
            interleaved(self.calls, self.interleaving), make_latch=self.interleaving.lock
        )

    def run(self, *functions: Callable[[], object]) -> list[object]:
        """Run them together; gives what each returned or raised."""
        outcomes = self.interleaving.run({str(n): each for n, each in enumerate(functions)})
        return [each.value if each.error is None else each.error for each in outcomes.values()]


def crowds(count: int = 60) -> Iterator[Crowd]:
    for seed in range(count):
        yield Crowd(seed)


class TestGroups:
    def test_transactions_that_wait_together_share_a_segment(self) -> None:
        fewest = 8
        for crowd in crowds(10):
            results = crowd.run(*[partial(crowd.store.transact, increment)] * 8)

            assert sorted(map(str, results)) == [str(n) for n in range(1, 9)]
            assert content(crowd.store) == {"counter": b"8"}
            fewest = min(fewest, crowd.store.read().segment)
        assert fewest < 4

    def test_a_failing_transaction_hurts_no_other(self) -> None:
        for crowd in crowds():

            def fail(session: WriteSession) -> None:
                increment(session)
                session.put("failed", b"")
                raise KeyError("mine alone")

            results = crowd.run(
                partial(crowd.store.transact, increment),
                partial(crowd.store.transact, fail),
                partial(crowd.store.transact, increment),
                partial(crowd.store.transact, fail),
            )

            assert {results[0], results[2]} == {1, 2}
            assert all(isinstance(results[n], KeyError) for n in (1, 3))
            assert content(crowd.store) == {"counter": b"2"}

    def test_sessions_by_hand_in_one_group_lose_no_update(self) -> None:
        conflicting: set[str] = set()
        for crowd in crowds():

            def add(store: ManifestStore = crowd.store) -> int:
                while True:
                    session = store.write()
                    increment(session)
                    try:
                        return store.commit(session)
                    except Conflict as conflict:
                        conflicting.update(conflict.keys)

            results = crowd.run(add, add, add, add)

            assert content(crowd.store) == {"counter": b"4"}, crowd.seed
            assert sorted(map(str, results)) == ["1", "2", "3", "4"], crowd.seed
        assert conflicting == {"counter"}

    def test_each_learns_the_segment_that_holds_its_own_change(self) -> None:
        for crowd in crowds():
            segments: dict[str, int] = {}

            def add(name: str, crowd: Crowd = crowd, into: dict[str, int] = segments) -> None:
                session = crowd.store.write()
                session.put(name, b"")
                into[name] = crowd.store.commit(session)

            crowd.run(*[partial(add, f"name {n}") for n in range(4)])

            for name, segment in segments.items():
                payload = crowd.objects.get(f"{SEGMENTS}seg-{segment:020}").payload
                assert name.encode() in payload, crowd.seed
            assert len(segments) == 4

    def test_a_fault_of_the_objects_themselves_reaches_everybody_in_the_group(self) -> None:
        for seed in range(10):
            crowd = Crowd(seed)

            def break_down(call: StoreCall) -> None:
                if call.operation is Operation.PUT_IF_ABSENT:
                    raise RuntimeError("the object store has a bug")

            crowd.store.log.objects = interleaved(
                FaultyStore(crowd.objects, before_call=break_down), crowd.interleaving
            )

            results = crowd.run(*[partial(crowd.store.transact, increment)] * 3)

            assert all(isinstance(result, RuntimeError) for result in results)
            assert content(crowd.store) == {}

    def test_an_interrupt_is_the_leaders_own_and_its_followers_are_told(self) -> None:
        told = 0
        for crowd in crowds():

            def interrupt(_session: WriteSession) -> None:
                raise KeyboardInterrupt

            results = crowd.run(
                partial(crowd.store.transact, increment),
                partial(crowd.store.transact, interrupt),
                partial(crowd.store.transact, increment),
            )

            acknowledged = sum(isinstance(result, int) for result in results)
            unknown = sum(isinstance(result, OutcomeUnknown) for result in results)
            interrupted = sum(isinstance(result, KeyboardInterrupt) for result in results)
            assert acknowledged + unknown + interrupted == 3, results
            assert interrupted == 1, results
            assert int(content(crowd.store).get("counter", b"0")) >= acknowledged
            told += unknown
        assert told

    def test_what_is_too_large_together_is_committed_one_by_one(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(frame, "FRAME_BYTES_MAX", 400)

        for crowd in crowds(20):

            def add(name: str, size: int, store: ManifestStore = crowd.store) -> None:
                store.transact(lambda session: session.put(name, bytes(size)))

            sizes = {"a": 200, "b": 200, "huge": 500, "c": 200}
            results = crowd.run(*[partial(add, name, size) for name, size in sizes.items()])

            assert [type(result) for result in results] == [
                type(None),
                type(None),
                LimitExceeded,
                type(None),
            ]
            assert set(content(crowd.store)) == {"a", "b", "c"}

    def test_one_seed_gives_one_order(self) -> None:
        traces = []
        for _ in range(2):
            crowd = Crowd(7)
            crowd.run(*[partial(crowd.store.transact, increment)] * 5)
            traces.append((crowd.interleaving.trace, crowd.calls.calls))

        assert traces[0] == traces[1]


def plan(
    fault: Fault, operation: Operation, path: str = "", times: int = FOR_EVER
) -> list[PlannedFault]:
    return [PlannedFault(fault=fault, operation=operation, path_prefix=path, times=times)]


class TestDeadlines:
    """No time passes here: sleeping moves a simulated clock."""

    def test_keys_that_keep_changing_end_as_a_conflict_that_names_them(self) -> None:
        objects = MemoryStore()
        rival = open_store(objects, seed=2)

        def interfere(call: StoreCall) -> None:
            if call.path.startswith(SEGMENTS) and call.operation is Operation.PUT_IF_ABSENT:
                rival.transact(increment)

        clock = SimulatedClock()
        options = StoreOptions(commit_seconds=5)
        store = open_store(
            FaultyStore(objects, before_call=interfere), clock=clock, options=options
        )

        with pytest.raises(Conflict, match="counter kept changing for 5 s") as caught:
            store.transact(lambda session: session.put("mine", b"%d" % increment(session)))

        assert caught.value.keys == ("counter",)
        assert 5 <= clock.monotonic() < 7
        assert "mine" not in content(rival)

    def test_unrelated_commits_that_keep_coming_first_end_at_the_deadline_too(self) -> None:
        objects = MemoryStore()
        rival = open_store(objects, seed=2)
        clock = SimulatedClock()

        def interfere(call: StoreCall) -> None:
            if call.path.startswith(SEGMENTS) and call.operation is Operation.PUT_IF_ABSENT:
                clock.advance(0.1)
                rival.transact(increment)

        store = open_store(FaultyStore(objects, before_call=interfere), clock=clock)

        with pytest.raises(Conflict, match="other writers came first for 30 s") as caught:
            put(store, mine=b"x")

        assert caught.value.keys == ()
        assert 30 <= clock.monotonic() < 31
        assert "mine" not in content(rival)

    def test_a_loser_is_not_kept_waiting_ever_longer(self) -> None:
        """Whoever changes the same keys pauses briefly; whoever does not, not at all."""
        objects = MemoryStore()
        rival = open_store(objects, seed=2)
        clock = SimulatedClock()
        losses = []

        def interfere(call: StoreCall) -> None:
            if call.path.startswith(SEGMENTS) and call.operation is Operation.PUT_IF_ABSENT:
                losses.append(call)
                if len(losses) % 51:
                    rival.transact(increment)

        store = open_store(FaultyStore(objects, before_call=interfere), clock=clock)

        put(store, mine=b"x")
        assert clock.monotonic() == 0
        store.transact(increment)

        assert 0 < clock.monotonic() < 50 * 0.05
        assert content(store) == {"counter": b"101", "mine": b"x"}

    def test_a_store_that_takes_no_segment_is_unavailable(self) -> None:
        objects = MemoryStore()
        faults = plan(Fault.BEFORE, Operation.PUT_IF_ABSENT, SEGMENTS)
        store = open_store(FaultyStore(objects, faults))

        with pytest.raises(Unavailable) as caught:
            put(store, a=b"1")

        assert isinstance(caught.value.__cause__, Unavailable)
        assert list(objects.list("")) == []

    def test_a_store_that_does_not_answer_at_all_is_unavailable(self) -> None:
        store = open_store(FaultyStore(MemoryStore(), plan(Fault.BEFORE, Operation.GET)))

        with pytest.raises(Unavailable):
            put(store, a=b"1")
        with pytest.raises(Unavailable):
            store.read()

    @pytest.mark.parametrize("fault", [Fault.LOST, Fault.TIMEOUT])
    def test_a_segment_without_an_answer_that_cannot_be_read_is_unknown(self, fault: Fault) -> None:
        objects = MemoryStore()
        clock = SimulatedClock()
        faults = [
            *plan(fault, Operation.PUT_IF_ABSENT, SEGMENTS),
            *plan(Fault.BEFORE, Operation.GET, SEGMENTS),
        ]
        store = open_store(FaultyStore(objects, faults), clock=clock)

        with pytest.raises(OutcomeUnknown) as caught:
            put(store, a=b"1")

        assert caught.value.hint == "Read before writing again"
        assert 30 <= clock.monotonic() < 33
        # Whoever reads after finishing what was begun knows: it happened or it never will.
        assert dict(open_store(objects, seed=5).open().scan("")) == (
            {"a": b"1"} if fault is Fault.LOST else {}
        )

    def test_a_commit_whose_answer_was_lost_is_in_what_the_process_knows(self) -> None:
        objects = MemoryStore()
        put(open_store(objects, seed=1), before=b"")
        lost = plan(Fault.LOST, Operation.PUT_IF_MATCH, times=1)
        faulty = FaultyStore(objects, lost)
        store = open_store(faulty)

        put(store, a=b"1")

        calls = len(faulty.calls)
        # Without a call, which could fail and make the commit look refused.
        assert store.read_known().get("a") == b"1"
        assert len(faulty.calls) == calls
        put(store, b=b"2")
        assert content(store) == {"before": b"", "a": b"1", "b": b"2"}

    def test_a_head_that_cannot_be_moved_is_unknown_and_the_next_one_moves_it(self) -> None:
        objects = MemoryStore()
        put(open_store(objects, seed=1), before=b"")
        store = open_store(FaultyStore(objects, plan(Fault.BEFORE, Operation.PUT_IF_MATCH)))

        with pytest.raises(OutcomeUnknown):
            put(store, a=b"1")

        other = open_store(objects, seed=2)
        assert other.transact(lambda session: session.get("a")) is None
        put(other, b=b"2")
        assert content(other) == {"before": b"", "a": b"1", "b": b"2"}

    def test_one_deadline_covers_every_wait_of_a_commit(self) -> None:
        objects = MemoryStore()
        clock = SimulatedClock()
        faults = [
            *plan(Fault.BEFORE, Operation.PUT_IF_ABSENT, SEGMENTS, times=8),
            *plan(Fault.TIMEOUT, Operation.PUT_IF_ABSENT, SEGMENTS),
        ]
        options = StoreOptions(commit_seconds=2)
        store = open_store(FaultyStore(objects, faults), clock=clock, options=options)

        with pytest.raises(OutcomeUnknown):
            put(store, a=b"1")

        assert 2 <= clock.monotonic() < 4

    def test_options_that_can_never_be_right_are_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="positive"):
            StoreOptions(commit_seconds=0)
        with pytest.raises(InvalidArgument, match="positive"):
            StoreOptions(checkpoint_every=0)
        with pytest.raises(InvalidArgument, match="less than"):
            StoreOptions(checkpoint_every=10, checkpoint_at_most_every=9)


class TestCost:
    """MANIFEST-K2 and MANIFEST-K3."""

    def test_a_commit_costs_one_conditional_read_and_two_writes(self) -> None:
        objects = FaultyStore(MemoryStore())
        store = open_store(objects)
        put(store, a=b"1")

        for _ in range(3):
            before = len(objects.calls)
            store.transact(increment)
            assert [(call.operation, call.path) for call in objects.calls[before:]] == [
                (Operation.GET_IF_CHANGED, f"{PREFIX}/HEAD"),
                (Operation.PUT_IF_ABSENT, f"{SEGMENTS}seg-{store.read().segment:020}"),
                (Operation.PUT_IF_MATCH, f"{PREFIX}/HEAD"),
            ]

    def test_a_read_of_a_known_state_costs_one_conditional_read(self) -> None:
        objects = FaultyStore(MemoryStore())
        store = open_store(objects)
        put(store, a=b"1")
        before = len(objects.calls)

        store.read()

        assert [call.operation for call in objects.calls[before:]] == [Operation.GET_IF_CHANGED]

    def test_a_lost_race_for_unrelated_keys_costs_a_bounded_number_of_calls(self) -> None:
        inner = MemoryStore()
        rival = open_store(inner, seed=2)
        objects = FaultyStore(inner)
        store = open_store(objects)
        put(store, a=b"1")
        before = len(objects.calls)

        def run(session: WriteSession) -> None:
            session.put("mine", b"")
            if rival.read().get("theirs") is None:
                put(rival, theirs=b"x")

        store.transact(run)

        # Refresh; refused; slot, HEAD; HEAD, winner, the slot behind it; then segment and HEAD.
        assert len(objects.calls) - before <= 9

    def test_a_checkpoint_is_due_after_enough_segments_of_enough_weight(self) -> None:
        store = open_store(MemoryStore(), options=StoreOptions(checkpoint_every=4))
        heavy = bytes(20 << 10)
        for number in range(3):
            put(store, **{f"k{number}": heavy})
            assert not store.checkpoint_once()

        put(store, k3=heavy)

        assert store.checkpoint_once()
        assert not store.checkpoint_once()

    def test_light_segments_of_a_heavy_store_wait_until_they_weigh_enough(self) -> None:
        store = open_store(MemoryStore(), options=StoreOptions(checkpoint_every=4))
        put(store, heavy=bytes(1 << 20))
        store.checkpoint()

        for _ in range(100):
            store.transact(increment)
            assert not store.checkpoint_once()

        put(store, heavy=bytes(1 << 19))
        assert store.checkpoint_once()

    def test_light_segments_of_a_light_store_wait_four_times_as_long(self) -> None:
        store = open_store(MemoryStore(), options=StoreOptions(checkpoint_every=4))
        published = []
        for number in range(1, 33):
            store.transact(increment)
            if store.checkpoint_once():
                published.append(number)

        assert published == [16, 32]

    def test_no_reader_folds_more_segments_than_the_option_says(self) -> None:
        options = StoreOptions(checkpoint_every=2, checkpoint_at_most_every=5)
        store = open_store(MemoryStore(), options=options)
        published = []
        for number in range(1, 12):
            put(store, large=bytes(100))
            if store.checkpoint_once():
                published.append(number)

        assert published == [5, 10]

    def test_writing_checkpoints_is_a_constant_share_of_writing(self) -> None:
        objects = MemoryStore()
        store = open_store(objects, options=StoreOptions(checkpoint_every=2))
        value = bytes(4 << 10)
        checkpoint_bytes = 0
        for number in range(400):
            put(store, **{f"k{number}": value})
            if store.checkpoint_once():
                checkpoint_bytes += sum(
                    info.size for info in list(objects.list(f"{PREFIX}/checkpoints/"))[-1:]
                )

        assert 0 < checkpoint_bytes < 4 * 400 * len(value)

    def test_processes_that_commit_together_share_their_checkpoints(self) -> None:
        objects = MemoryStore()
        options = StoreOptions(checkpoint_every=2)
        stores = [open_store(objects, seed=seed, options=options) for seed in range(4)]

        for _ in range(16):
            for store in stores:
                store.transact(increment)
            for store in stores:
                store.read()
                store.checkpoint_once()

        assert len(list(objects.list(f"{PREFIX}/checkpoints/"))) == 8

    def test_an_unused_store_has_no_checkpoint(self) -> None:
        store = open_store(MemoryStore())

        assert not store.checkpoint_once()
        assert not store.checkpoint()
        assert store.collect_once() == 0
        assert content(store) == {}


class TestCheckpointsAndGarbage:
    def test_a_hundred_cycles_leave_one_checkpoint_and_every_key(self) -> None:
        # The predecessor could install its plan for garbage once in the life of a store.
        objects = MemoryStore()
        store = open_store(objects)
        for cycle in range(100):
            put(store, **{f"key {cycle:03}": b"%d" % cycle})
            store.transact(increment)
            assert store.checkpoint()
            assert store.collect_once() == (2 if cycle == 0 else 3)

            newcomer = open_store(objects, seed=1_000 + cycle)
            assert len(content(newcomer)) == cycle + 2
        assert len(list(objects.list(""))) == 2
        assert content(store)["counter"] == b"100"

    def test_a_second_checkpoint_of_the_same_state_is_none(self) -> None:
        objects = MemoryStore()
        one, two = open_store(objects, seed=1), open_store(objects, seed=2)
        put(one, a=b"1")

        assert one.checkpoint()
        assert not one.checkpoint()
        assert not two.checkpoint()

    def test_a_checkpoint_that_another_folded_in_another_form_is_as_good(self) -> None:
        """One dies between storing its checkpoint and moving HEAD; the other one folds plainly."""
        objects = MemoryStore()
        faults = FaultyStore(objects, plan(Fault.BEFORE, Operation.PUT_IF_MATCH))
        rewriting = ManifestStore(
            faults,
            PREFIX,
            clock=SimulatedClock(),
            ids=SeededIds(1),
            fold_entries=lambda entries: entries | {"derived": b"from a"},
        )
        plain = open_store(objects, seed=2)
        put(plain, a=b"1")
        with pytest.raises(Unavailable):
            rewriting.checkpoint()

        assert plain.checkpoint()

        assert content(open_store(objects, seed=3)) == {"a": b"1", "derived": b"from a"}

    def test_a_checkpoint_costs_later_commits_nothing(self) -> None:
        objects = FaultyStore(MemoryStore())
        store = open_store(objects)
        put(store, a=b"1")
        store.checkpoint()
        before = len(objects.calls)

        put(store, b=b"2")

        # HEAD's tag is another one now; nothing else is read.
        assert len(objects.calls) - before == 3

    def test_a_reader_in_the_middle_of_garbage_collection_sees_everything(self) -> None:
        inner = MemoryStore()
        store = open_store(inner)
        for number in range(6):
            put(store, **{f"k{number}": b""})
        for at in range(1, 9):
            done: list[int] = []

            def collect(call: StoreCall, at: int = at, done: list[int] = done) -> None:
                if call.number == at and not done:
                    done.append(at)
                    store.transact(increment)
                    store.checkpoint()
                    store.collect_once()

            reader = open_store(FaultyStore(inner, before_call=collect), seed=2)

            assert set(content(reader)) >= {f"k{number}" for number in range(6)}

    def test_opening_finishes_what_a_dead_writer_decided(self) -> None:
        objects = MemoryStore()
        store = open_store(objects)
        put(store, a=b"1")
        state = store.read().state
        dead = Segment(
            epoch=state.epoch,
            number=2,
            transaction=b"dead",
            previous=state.transaction,
            written_ms=0,
            records={"b": b"2"},
        )
        objects.put(f"{SEGMENTS}seg-{2:020}", encode_segment(dead))

        assert content(open_store(objects, seed=1)) == {"a": b"1"}
        assert dict(open_store(objects, seed=2).open().scan("")) == {"a": b"1", "b": b"2"}
        assert content(store) == {"a": b"1", "b": b"2"}

    def test_opening_refuses_an_old_copy_of_head(self) -> None:
        objects = MemoryStore()
        store = open_store(objects)
        put(store, a=b"1")
        store.checkpoint()
        old = objects.get(f"{PREFIX}/HEAD").payload
        put(store, b=b"2")
        store.checkpoint()
        objects.delete(f"{SEGMENTS}seg-{2:020}")

        objects.put(f"{PREFIX}/HEAD", old)

        with pytest.raises(Corruption, match="older than"):
            open_store(objects, seed=1).open()
        with pytest.raises(Corruption, match="went back"):
            store.read()


def test_the_machines_clock_and_ids_are_the_default() -> None:
    store = ManifestStore(MemoryStore(), PREFIX)

    assert [store.transact(increment) for _ in range(3)] == [1, 2, 3]
    assert store.options == StoreOptions()


def test_threads_of_one_process_lose_no_update() -> None:
    store = ManifestStore(MemoryStore(), PREFIX)

    def add() -> None:
        for _ in range(50):
            store.transact(increment)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert content(store) == {"counter": b"200"}


def test_a_segment_of_another_store_behind_head_changes_nothing() -> None:
    mine, other = MemoryStore(), MemoryStore()
    for objects, count in ((mine, 2), (other, 3)):
        store = ManifestStore(objects, "m", clock=SimulatedClock(), ids=SeededIds(count))
        for index in range(count):
            store.transact(lambda session, index=index: session.put(f"k{index}", b"v"))  # type: ignore[misc]
    slot = "m/segments/seg-00000000000000000003"
    mine.put(slot, other.get(slot).payload)
    head = mine.get("m/HEAD").payload
    store = ManifestStore(mine, "m", clock=SimulatedClock(), ids=SeededIds(9))

    with pytest.raises(Corruption, match="not its successor"):
        store.transact(lambda session: session.put("new", b"v"))
    with pytest.raises(Corruption, match="not its successor"):
        ManifestStore(mine, "m", clock=SimulatedClock(), ids=SeededIds(8)).open()

    assert mine.get("m/HEAD").payload == head
    assert store.read().get("k1") == b"v"


def test_a_refusal_that_rests_on_what_never_happened_is_not_given() -> None:
    class NoSegments(MemoryStore):
        def put_if_absent(self, path: str, payload: bytes) -> str | None:
            if "segments" in path:
                raise Unavailable("no room", path=path)
            return super().put_if_absent(path, payload)

    def create(session: WriteSession) -> None:
        if session.get("name") is not None:
            raise AlreadyExists("the name is taken")
        session.put("name", b"v")

    store = ManifestStore(NoSegments(), "m", clock=SimulatedClock(), ids=SeededIds(1))
    works: list[_Work[object]] = [_Work(create), _Work(create)]

    store._commit_group(works)

    assert [type(work.failure) for work in works] == [Unavailable, Unavailable]


def test_a_range_read_by_hand_conflicts_with_what_came_into_it_and_nothing_else() -> None:
    store = open_store(MemoryStore())
    store.transact(lambda session: session.put("b", b"1"))
    inside, outside = store.write(), store.write()
    assert [key for key, _ in inside.range("a", "c")] == ["b"]
    assert [key for key, _ in outside.range("b", "bb")] == ["b"]
    inside.put("seen", b"inside")
    outside.put("seen", b"outside")

    store.transact(lambda session: session.put("bb", b"2"))

    with pytest.raises(Conflict) as caught:
        store.commit(inside)
    assert caught.value.keys == ("bb",)
    store.commit(outside)
    assert store.read().get("seen") == b"outside"


def test_what_is_known_is_read_without_a_call() -> None:
    counted = FaultyStore(MemoryStore())
    store = open_store(counted)
    assert store.read_known().segment == 0
    store.transact(increment)
    calls = len(counted.calls)

    assert store.read_known().get("counter") == b"1"
    assert len(counted.calls) == calls


def test_what_is_known_never_goes_back_whichever_thread_comes_last() -> None:
    store = open_store(MemoryStore())
    store.transact(increment)
    older = store._known
    assert older is not None
    store.transact(increment)
    newer = store._known
    assert newer is not None
    store._known = older

    overtaking = threading.Thread(target=store._remember, args=(newer,))

    class Overtaken(int):
        """A segment's number; while it is compared, another thread brings a newer state."""

        def __ge__(self, other: int) -> bool:
            overtaking.start()
            overtaking.join(timeout=0.1)
            return int(self) >= other

    segment = Overtaken(older.state.segment)
    store._remember(replace(older, state=replace(older.state, segment=segment)))
    overtaking.join()

    assert store.read_known().get("counter") == b"2"


def test_a_checkpoint_that_another_process_published_meanwhile_is_not_published_again() -> None:
    objects = MemoryStore()
    options = StoreOptions(checkpoint_every=2, checkpoint_at_most_every=2)
    mine, theirs = (
        open_store(objects, options=options),
        open_store(objects, seed=2, options=options),
    )
    for _ in range(2):
        mine.transact(increment)
    assert theirs.checkpoint()

    assert not mine.checkpoint_once()
    assert len(list(objects.list(f"{PREFIX}/checkpoints/"))) == 1


def test_a_checkpoint_gives_up_after_the_seconds_it_was_given() -> None:
    objects = MemoryStore()
    clock = SimulatedClock()
    options = StoreOptions(checkpoint_every=1, checkpoint_at_most_every=1)
    faults = plan(Fault.BEFORE, Operation.PUT_IF_ABSENT, f"{PREFIX}/checkpoints/")
    store = open_store(FaultyStore(objects, faults), clock=clock, options=options)
    store.transact(increment)
    start = clock.monotonic()

    with pytest.raises(Unavailable):
        store.checkpoint_once(seconds=2)

    assert 2 <= clock.monotonic() - start < 5
