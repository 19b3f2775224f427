"""The commit protocol on objects: who gets a slot, what a lost answer means, what is never seen."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pytest

from neve.errors import Corruption, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.documents import (
    Segment,
    decode_head,
    decode_segment,
    encode_head,
    encode_segment,
)
from neve.manifest.manifest_log import Decision, Loaded, ManifestLog
from neve.manifest.retry import Patience
from neve.manifest.state import RECENT_TRANSACTIONS_MAX, State
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.faulty_store import Fault, FaultyStore, Operation, PlannedFault, StoreCall
from neve.testing.simulated_clock import SeededIds, SimulatedClock

PREFIX: Final = "manifest/t"
HEAD: Final = f"{PREFIX}/HEAD"
SEGMENTS: Final = f"{PREFIX}/segments/"
CHECKPOINTS: Final = f"{PREFIX}/checkpoints/"
EMPTY: Final = Loaded(state=State(), head=None)

Before = Callable[[StoreCall], None]


@dataclass
class Actor:
    """One process on a store: its log, its clock, and what it knows."""

    objects: ObjectStore
    seed: int = 0
    known: Loaded = EMPTY
    clock: SimulatedClock = field(default_factory=SimulatedClock)

    def __post_init__(self) -> None:
        self.log = ManifestLog(self.objects, PREFIX, clock=self.clock, ids=SeededIds(self.seed))

    def patience(self, seconds: float = 30.0) -> Patience:
        return Patience(self.clock, SeededIds(self.seed), seconds)

    def load(self) -> Loaded:
        self.known = self.log.load(self.known, self.patience())
        return self.known

    def catch_up(self) -> Loaded:
        loaded = self.log.load(self.known, self.patience())
        self.known = self.log.catch_up(loaded, self.patience())
        return self.known

    def decide(self, on: Loaded | None = None, /, **records: bytes | None) -> Decision:
        """Decide on what this actor knows, however old that is."""
        decision, self.known = self.log.decide(on or self.known, records, self.patience())
        return decision

    def commit(self, **records: bytes | None) -> None:
        """Commit behind everything there is."""
        self.catch_up()
        assert self.decide(**records) is Decision.COMMITTED

    def publish(self, state: State | None = None) -> bool:
        return self.log.publish_checkpoint((state or self.load().state).folded(), self.patience())

    def collect(self) -> list[str]:
        obsolete = list(self.log.obsolete_objects())
        for path in obsolete:
            self.objects.delete(path)
        return obsolete

    def content(self) -> dict[str, bytes]:
        return dict(self.load().state.scan(""))


def content_of(objects: ObjectStore) -> dict[str, bytes]:
    """Return what a process that knows nothing yet reads."""
    return Actor(objects, seed=99).content()


def healed_content_of(objects: ObjectStore) -> dict[str, bytes]:
    """Return what a process that knows nothing yet finds after finishing what others began."""
    finder = Actor(objects, seed=99)
    finder.log.refuse_old_head(finder.catch_up())
    return finder.content()


def names(objects: ObjectStore, prefix: str) -> list[str]:
    return [info.path.removeprefix(prefix) for info in objects.list(prefix)]


def head_of(objects: ObjectStore) -> tuple[int, int]:
    found = objects.get(HEAD)
    head = decode_head(found.payload, tag=found.tag, path=HEAD)
    return head.segment, head.checkpoint


def with_commits(count: int) -> MemoryStore:
    objects = MemoryStore()
    writer = Actor(objects, seed=1)
    for number in range(1, count + 1):
        writer.commit(**{f"key{number}": b"%d" % number})
    return objects


def expected(count: int) -> dict[str, bytes]:
    return {f"key{number}": b"%d" % number for number in range(1, count + 1)}


class TestWhoGetsTheSlot:
    """MANIFEST-P1: committed, lost, or unknown; a lost one never becomes visible."""

    def test_a_lost_transaction_is_never_adopted_by_anyone(self) -> None:
        # The predecessor told this writer "conflict" and adopted its segment later.
        objects = MemoryStore()
        fast, slow = Actor(objects, seed=1), Actor(objects, seed=2)
        assert fast.decide(counter=b"1", by_fast=b"") is Decision.COMMITTED

        assert slow.decide(EMPTY, counter=b"1", by_slow=b"") is Decision.LOST

        for reader in (fast, slow, Actor(objects, seed=3)):
            reader.catch_up()
            assert reader.content() == {"counter": b"1", "by_fast": b""}
        assert names(objects, SEGMENTS) == ["seg-00000000000000000001"]

    def test_a_retry_after_a_conflict_is_applied_once(self) -> None:
        objects = MemoryStore()
        rival, writer = Actor(objects, seed=1), Actor(objects, seed=2)
        rival.decide(counter=b"1")
        assert writer.decide(EMPTY, counter=b"1") is Decision.LOST

        seen = int(writer.known.state.get("counter") or b"0")
        assert writer.decide(counter=b"%d" % (seen + 1)) is Decision.COMMITTED

        assert content_of(objects) == {"counter": b"2"}

    def test_the_loser_learns_the_state_behind_the_winner(self) -> None:
        objects = MemoryStore()
        rival, writer = Actor(objects, seed=1), Actor(objects, seed=2)
        for number in range(3):
            rival.commit(**{f"k{number}": b""})

        writer.decide(EMPTY, mine=b"")

        assert writer.known.state.segment == 3
        assert set(dict(writer.known.state.scan(""))) == {"k0", "k1", "k2"}

    def test_the_loser_finishes_what_a_winner_that_died_began(self) -> None:
        objects = with_commits(2)
        base = Actor(objects).load()
        leave_dead_segment(objects, base, orphan=b"")
        writer = Actor(objects, seed=4)
        writer.load()

        assert writer.decide(mine=b"") is Decision.LOST
        assert writer.decide(mine=b"") is Decision.COMMITTED

        assert content_of(objects) == expected(2) | {"orphan": b"", "mine": b""}

    def test_two_first_writers_agree_on_one_store(self) -> None:
        objects = MemoryStore()
        one, two = Actor(objects, seed=1), Actor(objects, seed=2)

        assert one.decide(a=b"") is Decision.COMMITTED
        assert two.decide(b=b"") is Decision.LOST
        assert two.decide(b=b"") is Decision.COMMITTED

        assert one.load().state.epoch == two.load().state.epoch
        assert content_of(objects) == {"a": b"", "b": b""}


TARGETS: Final = {
    "segment": (Operation.PUT_IF_ABSENT, SEGMENTS),
    "first HEAD": (Operation.PUT_IF_ABSENT, HEAD),
    "HEAD": (Operation.PUT_IF_MATCH, HEAD),
}


class TestLostAnswers:
    @pytest.mark.parametrize("times", [1, 2, 5])
    @pytest.mark.parametrize("target", TARGETS)
    @pytest.mark.parametrize("fault", Fault)
    def test_an_own_write_is_recognised_whatever_happened_to_its_answer(
        self, fault: Fault, target: str, times: int
    ) -> None:
        operation, path = TARGETS[target]
        plan = [PlannedFault(fault=fault, operation=operation, path_prefix=path, times=times)]
        objects = MemoryStore()
        if target == "HEAD":
            Actor(objects, seed=9).commit(before=b"")
        faulty = FaultyStore(objects, plan)
        writer = Actor(faulty)
        writer.load()

        decision = writer.decide(counter=b"1")

        assert decision is Decision.COMMITTED
        assert content_of(objects)["counter"] == b"1"
        assert len(names(objects, SEGMENTS)) == (2 if target == "HEAD" else 1)
        assert sum(call.fault is fault for call in faulty.calls) >= 1

    def test_a_refusal_after_a_lost_answer_is_not_taken_for_a_conflict(self) -> None:
        """The repeated create is refused because of its own first one, which came late."""
        plan = [
            PlannedFault(fault=Fault.LATE, operation=Operation.PUT_IF_ABSENT, path_prefix=SEGMENTS)
        ]
        objects = MemoryStore()

        assert Actor(FaultyStore(objects, plan)).decide(counter=b"1") is Decision.COMMITTED

        assert content_of(objects) == {"counter": b"1"}

    def test_a_commit_whose_segment_never_arrives_is_unknown_at_the_deadline(self) -> None:
        plan = [
            PlannedFault(
                fault=Fault.TIMEOUT,
                operation=Operation.PUT_IF_ABSENT,
                path_prefix=SEGMENTS,
                times=1_000_000,
            )
        ]
        writer = Actor(FaultyStore(MemoryStore(), plan))

        with pytest.raises(OutcomeUnknown, match="within 30 s") as caught:
            writer.decide(counter=b"1")

        assert isinstance(caught.value.__cause__, OutcomeUnknown)
        assert caught.value.path == f"{SEGMENTS}seg-00000000000000000001"
        assert "Read" in (caught.value.hint or "")
        assert 30 <= writer.clock.monotonic() < 33

    def test_a_segment_that_certainly_was_not_written_is_unavailable_at_the_deadline(self) -> None:
        plan = [
            PlannedFault(
                fault=Fault.BEFORE,
                operation=Operation.PUT_IF_ABSENT,
                path_prefix=SEGMENTS,
                times=1_000_000,
            )
        ]
        objects = MemoryStore()
        writer = Actor(FaultyStore(objects, plan))

        with pytest.raises(Unavailable, match="could not be written within 30 s"):
            writer.decide(counter=b"1")

        assert names(objects, "") == []

    def test_a_commit_is_not_denied_because_what_follows_cannot_be_read(self) -> None:
        """The slot is ours and HEAD has reached it; then the store stops answering."""
        objects = MemoryStore()
        Actor(objects, seed=9).commit(before=b"")
        rival = Actor(objects, seed=8)
        calls: list[StoreCall] = []

        def interfere(call: StoreCall) -> None:
            calls.append(call)
            if call.operation is Operation.PUT_IF_MATCH:
                rival.publish()  # so that HEAD cannot be moved at the first try
            head_reads = [c for c in calls if c.path == HEAD and c.operation in READS]
            if len(head_reads) > 3:
                raise Unavailable("the network is gone", path=call.path)

        writer = Actor(FaultyStore(objects, before_call=interfere))
        writer.load()

        assert writer.decide(counter=b"1") is Decision.COMMITTED
        assert content_of(objects)["counter"] == b"1"


READS: Final = {Operation.GET, Operation.GET_IF_CHANGED}


def leave_dead_segment(objects: ObjectStore, base: Loaded, **records: bytes | None) -> None:
    """Create the next segment as a writer does that dies before it moves HEAD."""
    segment = Segment(
        epoch=base.state.epoch or 77,
        number=base.state.segment + 1,
        transaction=b"dead writer's id",
        previous=base.state.transaction,
        written_ms=0,
        records=records,
    )
    path = f"{SEGMENTS}seg-{segment.number:020}"
    assert objects.put_if_absent(path, encode_segment(segment)) is not None


class TestDeadWriters:
    """MANIFEST-P4: a writer that dies blocks nobody."""

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_a_dead_writers_segment_is_adopted_at_once(self, count: int) -> None:
        # The predecessor kept everybody out until the dead writer's lease ran out, up to a minute.
        objects = with_commits(count)
        leave_dead_segment(objects, Actor(objects).load(), orphan=b"x")
        finder = Actor(objects, seed=4)

        finder.catch_up()

        assert finder.content() == expected(count) | {"orphan": b"x"}
        assert content_of(objects) == finder.content()
        assert finder.clock.monotonic() == 0

    def test_readers_do_not_see_it_before_head_does(self) -> None:
        objects = with_commits(2)
        leave_dead_segment(objects, Actor(objects).load(), orphan=b"x")

        assert content_of(objects) == expected(2)

    def test_nobody_waits_for_ever_for_a_head_that_cannot_be_written(self) -> None:
        objects = with_commits(1)
        leave_dead_segment(objects, Actor(objects).load(), orphan=b"x")
        plan = [PlannedFault(fault=Fault.BEFORE, operation=Operation.PUT_IF_MATCH, times=1_000_000)]
        finder = Actor(FaultyStore(objects, plan))

        with pytest.raises(Unavailable, match="within 30 s"):
            finder.catch_up()

        assert finder.clock.monotonic() >= 30


class TestCheckpoints:
    """MANIFEST-P2: HEAD's segment and checkpoint never go down."""

    def test_an_older_checkpoint_is_not_put_in_the_place_of_a_newer_one(self) -> None:
        # The predecessor's slow compactor could: keys of deleted segments vanished silently.
        objects = with_commits(4)
        slow = Actor(objects, seed=2)
        old_state = slow.load().state
        fast = Actor(objects, seed=3)
        for number in range(5, 9):
            fast.commit(**{f"key{number}": b"%d" % number})
        assert fast.publish()
        fast.collect()

        assert not slow.publish(old_state)

        assert head_of(objects) == (8, 8)
        assert content_of(objects) == expected(8)

    def test_a_newer_checkpoint_may_come_between_reading_and_moving_head(self) -> None:
        objects = with_commits(4)
        fast = Actor(objects, seed=3)

        def publish_newer(call: StoreCall) -> None:
            if call.operation is Operation.PUT_IF_MATCH and head_of(objects)[1] == 0:
                fast.commit(key5=b"5")
                fast.publish()

        slow = Actor(FaultyStore(objects, before_call=publish_newer))

        assert not slow.publish()

        assert head_of(objects) == (5, 5)
        assert content_of(objects) == expected(5)

    def test_a_checkpoint_that_comes_between_neither_fails_nor_doubles_a_commit(self) -> None:
        objects = with_commits(3)
        compactor = Actor(objects, seed=3)

        for operation in (Operation.PUT_IF_ABSENT, Operation.PUT_IF_MATCH):
            writer = writer_with(
                objects, before=operation, do=lambda: compactor.publish() and compactor.collect()
            )
            before = int(content_of(objects).get("counter", b"0"))
            assert writer.decide(counter=b"%d" % (before + 1)) is Decision.COMMITTED
            assert content_of(objects) == expected(3) | {"counter": b"%d" % (before + 1)}

        assert head_of(objects) == (5, 4)

    @pytest.mark.parametrize("fault", Fault)
    def test_a_checkpoint_whose_head_put_is_struck_is_published_all_the_same(
        self, fault: Fault
    ) -> None:
        objects = with_commits(3)
        plan = [PlannedFault(fault=fault, operation=Operation.PUT_IF_MATCH, times=2)]

        assert Actor(FaultyStore(objects, plan)).publish()

        assert head_of(objects) == (3, 3)

    @pytest.mark.parametrize("times", [1, 3])
    @pytest.mark.parametrize("fault", Fault)
    def test_a_checkpoint_whose_own_put_is_struck_is_published_all_the_same(
        self, fault: Fault, times: int
    ) -> None:
        objects = with_commits(3)
        plan = [
            PlannedFault(
                fault=fault,
                operation=Operation.PUT_IF_ABSENT,
                path_prefix=CHECKPOINTS,
                times=times,
            )
        ]

        assert Actor(FaultyStore(objects, plan)).publish()

        assert head_of(objects) == (3, 3)
        Actor(objects).collect()
        assert content_of(objects) == expected(3)

    def test_a_checkpoint_that_is_collected_while_it_is_looked_at_is_given_up(self) -> None:
        objects = with_commits(3)
        others = Actor(objects, seed=8)
        slow = Actor(objects, seed=9)
        old_state = slow.load().state
        others.publish()

        def run_ahead(call: StoreCall) -> None:
            if call.operation is Operation.GET and call.path.startswith(CHECKPOINTS):
                others.commit(key4=b"4")
                others.publish()
                others.collect()

        slow.log.objects = FaultyStore(objects, before_call=run_ahead)

        assert not slow.publish(old_state)
        assert head_of(objects)[1] >= 4
        assert content_of(objects) == expected(4)

    def test_no_checkpoint_is_published_where_head_was_lost(self) -> None:
        objects = with_commits(3)
        compactor = Actor(objects)
        state = compactor.load().state
        objects.delete(HEAD)

        with pytest.raises(Corruption, match="HEAD is missing"):
            compactor.publish(state)

    def test_two_that_fold_the_same_state_share_the_checkpoint(self) -> None:
        objects = with_commits(3)

        assert Actor(objects, seed=2).publish()
        assert not Actor(objects, seed=3).publish()

        assert names(objects, CHECKPOINTS) == ["ckpt-00000000000000000003"]
        assert content_of(objects) == expected(3)

    def test_a_damaged_checkpoint_is_found_before_head_points_to_it(self) -> None:
        objects = with_commits(3)
        objects.put(f"{CHECKPOINTS}ckpt-00000000000000000003", b"half a checkpoi")

        with pytest.raises(Corruption, match="ckpt"):
            Actor(objects).publish()

        assert head_of(objects) == (3, 0)

    def test_a_foreign_checkpoint_is_found_before_head_points_to_it(self) -> None:
        objects, other = with_commits(3), MemoryStore()
        stranger = Actor(other, seed=50)
        for _ in range(3):
            stranger.commit(strange=b"")
        stranger.publish()
        path = f"{CHECKPOINTS}ckpt-00000000000000000003"
        objects.put(path, other.get(path).payload)

        with pytest.raises(Corruption, match="another"):
            Actor(objects).publish()

        assert content_of(objects) == expected(3)


def writer_with(objects: ObjectStore, *, before: Operation, do: Callable[[], object]) -> Actor:
    """Return a loaded writer in whose way something comes once, right before a call."""
    done: list[object] = []

    def interfere(call: StoreCall) -> None:
        if call.operation is before and not done:
            done.append(call)
            do()

    writer = Actor(FaultyStore(objects, before_call=interfere), seed=40)
    writer.load()
    return writer


class TestHoles:
    """MANIFEST-P3: folding is contiguous; a hole is never passed over."""

    @pytest.mark.parametrize("number", [1, 3, 5])
    def test_a_missing_segment_is_corruption_and_never_partial_content(self, number: int) -> None:
        objects = with_commits(5)
        objects.delete(f"{SEGMENTS}seg-{number:020}")

        with pytest.raises(Corruption, match="missing") as caught:
            content_of(objects)

        assert caught.value.path == f"{SEGMENTS}seg-{number:020}"
        assert "hole" in (caught.value.hint or "")

    def test_a_missing_checkpoint_is_corruption(self) -> None:
        objects = with_commits(5)
        Actor(objects).publish()
        objects.delete(f"{CHECKPOINTS}ckpt-{5:020}")

        with pytest.raises(Corruption, match="missing"):
            content_of(objects)

    def test_a_segment_of_another_transaction_is_corruption(self) -> None:
        objects = with_commits(5)
        found = decode_segment(
            objects.get(f"{SEGMENTS}seg-{3:020}").payload, number=3, path="segment 3"
        )
        for changed in (
            Segment(
                epoch=found.epoch,
                number=3,
                transaction=b"another",
                previous=found.previous,
                written_ms=0,
                records={"key3": b"forged"},
            ),
            Segment(
                epoch=found.epoch + 1,
                number=3,
                transaction=found.transaction,
                previous=found.previous,
                written_ms=0,
                records={"key3": b"forged"},
            ),
        ):
            objects.put(f"{SEGMENTS}seg-{3:020}", encode_segment(changed))

            with pytest.raises(Corruption, match="successor"):
                content_of(objects)

    def test_a_last_segment_that_is_not_heads_is_corruption(self) -> None:
        objects = with_commits(2)
        base = Actor(objects).load()
        objects.delete(f"{SEGMENTS}seg-{2:020}")
        one = decode_segment(objects.get(f"{SEGMENTS}seg-{1:020}").payload, number=1, path="1")
        forged = Segment(
            epoch=base.state.epoch,
            number=2,
            transaction=b"forged",
            previous=one.transaction,
            written_ms=0,
            records={"key2": b"forged"},
        )
        objects.put(f"{SEGMENTS}seg-{2:020}", encode_segment(forged))

        with pytest.raises(Corruption, match="not what HEAD says"):
            content_of(objects)

    def test_an_unreadable_object_is_corruption_that_names_it(self) -> None:
        for path in (HEAD, f"{SEGMENTS}seg-{2:020}"):
            objects = with_commits(3)
            objects.put(path, objects.get(path).payload[:-1])

            with pytest.raises(Corruption) as caught:
                content_of(objects)

            assert caught.value.path == path

    def test_more_than_a_thousand_segments_are_all_folded(self) -> None:
        # The predecessor's listings were cut at 256 or 512 names, before they were sorted.
        objects = with_commits(1_100)

        assert content_of(objects) == expected(1_100)

        assert Actor(objects).publish()
        assert len(Actor(objects).collect()) == 1_100
        assert content_of(objects) == expected(1_100)


class TestZombies:
    """MANIFEST-P5: a writer that slept through checkpoint and garbage collection of its slot."""

    def test_its_recreated_slot_is_a_conflict_and_never_seen(self) -> None:
        objects = with_commits(3)
        zombie = Actor(objects, seed=7)
        slept_on = zombie.load()
        others = Actor(objects, seed=8)
        for number in range(4, 8):
            others.commit(**{f"key{number}": b"%d" % number})
        others.publish()
        others.collect()

        assert zombie.decide(slept_on, key4=b"zombie", mark=b"zombie") is Decision.LOST

        assert names(objects, SEGMENTS) == [f"seg-{4:020}"]  # its slot, created again
        for reader in (zombie, others, Actor(objects, seed=9)):
            reader.catch_up()
            assert reader.content() == expected(7)
        others.commit(key8=b"8")
        assert content_of(objects) == expected(8)
        others.publish()
        others.collect()
        assert names(objects, SEGMENTS) == []

    @pytest.mark.parametrize("head_at", [4, 5, 6])
    def test_a_reader_that_folds_in_the_middle_of_it_does_not_see_it(self, head_at: int) -> None:
        """HEAD is read first; then everything it needs is folded, deleted and partly recreated."""
        objects = with_commits(head_at)
        base = Actor(objects, seed=7)
        slept_on = base.load()
        slept_on = fold_up_to(objects, 3)
        zombie = Actor(objects, seed=7)
        others = Actor(objects, seed=8)

        def recycle() -> None:
            others.commit(later=b"")
            others.publish()
            others.collect()
            assert zombie.decide(slept_on, mark=b"zombie") is Decision.LOST

        reader = Actor(after_head(objects, recycle), seed=9)

        assert reader.content() == expected(head_at) | {"later": b""}

    def test_a_zombie_that_was_folded_as_the_winner_learns_that_it_committed(self) -> None:
        objects = with_commits(3)

        def fold_and_collect() -> None:
            others = Actor(objects, seed=8)
            others.catch_up()
            others.commit(later=b"")
            others.publish()
            others.collect()

        writer = writer_with(objects, before=Operation.PUT_IF_MATCH, do=fold_and_collect)

        assert writer.decide(mark=b"mine") is Decision.COMMITTED
        assert content_of(objects) == expected(3) | {"mark": b"mine", "later": b""}

    def test_one_that_asks_a_checkpoint_that_goes_away_asks_the_next_one(self) -> None:
        objects = with_commits(3)
        others = Actor(objects, seed=8)
        asked: list[str] = []

        def fold_and_collect() -> None:
            others.commit(later=b"")
            others.publish()
            others.collect()

        def interfere(call: StoreCall) -> None:
            if call.operation is Operation.PUT_IF_MATCH and not asked:
                asked.append(call.path)
                fold_and_collect()
            if call.path.startswith(CHECKPOINTS) and len(asked) < 3:
                asked.append(call.path)
                fold_and_collect()

        writer = Actor(FaultyStore(objects, before_call=interfere), seed=40)
        writer.load()

        assert writer.decide(mark=b"mine") is Decision.COMMITTED
        assert len(asked) == 3
        assert content_of(objects) == expected(3) | {"mark": b"mine", "later": b""}

    def test_one_that_slept_longer_than_the_manifest_remembers_is_told_so_at_once(self) -> None:
        objects = with_commits(1)
        zombie = Actor(objects, seed=7)
        slept_on = zombie.load()
        others = Actor(objects, seed=8)
        others.load()
        for number in range(RECENT_TRANSACTIONS_MAX + 1):
            assert others.decide(counter=b"%d" % number) is Decision.COMMITTED
        others.publish()
        others.collect()

        with pytest.raises(OutcomeUnknown, match="longer ago than the manifest remembers"):
            zombie.decide(slept_on, mark=b"zombie")

        assert zombie.clock.monotonic() == 0
        assert "mark" not in content_of(objects)


def fold_up_to(objects: ObjectStore, number: int) -> Loaded:
    """Return what a writer knew that slept since segment `number`."""
    state = State()
    for at in range(1, number + 1):
        path = f"{SEGMENTS}seg-{at:020}"
        segment = decode_segment(objects.get(path).payload, number=at, path=path)
        state = state.apply(
            segment.records, segment=at, transaction=segment.transaction, epoch=segment.epoch
        )
    payload = encode_head(
        epoch=state.epoch, segment=number, transaction=state.transaction, checkpoint=0, nonce=b"old"
    )
    return Loaded(state=state, head=decode_head(payload, tag="stale", path=HEAD))


def after_head(objects: ObjectStore, do: Callable[[], None]) -> FaultyStore:
    """Let something happen between a reader's look at HEAD and its next call."""
    done: list[object] = []

    def interfere(call: StoreCall) -> None:
        if call.number == 2 and not done:
            done.append(call)
            do()

    return FaultyStore(objects, before_call=interfere)


class TestGarbage:
    """MANIFEST-P6: segments at or below a published checkpoint are garbage."""

    def test_nothing_is_obsolete_without_a_checkpoint(self) -> None:
        assert Actor(MemoryStore()).collect() == []
        assert Actor(with_commits(5)).collect() == []

    def test_an_unpublished_checkpoint_makes_nothing_obsolete(self) -> None:
        # The predecessor could delete what only an unpublished checkpoint covered.
        objects = with_commits(5)
        other = with_commits(5)
        Actor(other).publish()
        path = f"{CHECKPOINTS}ckpt-{5:020}"
        objects.put(path, other.get(path).payload)

        assert Actor(objects).collect() == []
        assert content_of(objects) == expected(5)

    def test_what_a_checkpoint_covers_goes_and_what_follows_stays(self) -> None:
        objects = with_commits(3)
        writer = Actor(objects, seed=2)
        writer.publish()
        writer.commit(key4=b"4")
        writer.commit(key5=b"5")
        writer.publish()
        writer.commit(key6=b"6")

        deleted = Actor(objects).collect()

        assert len(deleted) == 6  # five segments and the older checkpoint
        assert names(objects, SEGMENTS) == [f"seg-{6:020}"]
        assert names(objects, CHECKPOINTS) == [f"ckpt-{5:020}"]
        assert content_of(objects) == expected(6)

    def test_foreign_files_are_neither_read_nor_deleted(self) -> None:
        objects = with_commits(3)
        foreign = ["segments/seg-1", "segments/notes.txt", "checkpoints/.keep", "README", "gc/PLAN"]
        for name in foreign:
            objects.put(f"{PREFIX}/{name}", b"not ours")
        Actor(objects).publish()

        Actor(objects).collect()

        assert content_of(objects) == expected(3)
        assert all(objects.get(f"{PREFIX}/{name}").payload == b"not ours" for name in foreign)

    def test_a_collector_that_dies_half_way_is_followed_by_another(self) -> None:
        objects = with_commits(5)
        Actor(objects).publish()
        for path in list(Actor(objects).log.obsolete_objects())[:2]:
            objects.delete(path)

        assert content_of(objects) == expected(5)
        assert len(Actor(objects).collect()) == 3
        assert content_of(objects) == expected(5)


class TestOldCopiesOfHead:
    """HEAD restored from a backup, or lost: refused, or healed; never taken for the truth."""

    def test_one_who_knows_better_refuses_an_older_segment(self) -> None:
        objects = with_commits(3)
        old = objects.get(HEAD).payload
        reader = Actor(objects, seed=5)
        Actor(objects, seed=6).commit(key4=b"4")
        reader.load()

        objects.put(HEAD, old)

        with pytest.raises(Corruption, match="went back from segment 4 to 3"):
            reader.load()

    def test_one_who_knows_better_refuses_an_older_checkpoint(self) -> None:
        objects = with_commits(3)
        old = objects.get(HEAD).payload
        Actor(objects, seed=6).publish()
        reader = Actor(objects, seed=5)
        reader.load()

        objects.put(HEAD, old)

        with pytest.raises(Corruption, match="went back from checkpoint 3 to 0"):
            reader.load()

    def test_the_newest_head_is_not_refused(self) -> None:
        objects = with_commits(3)
        Actor(objects).publish()
        leave_dead_segment(objects, Actor(objects).load(), key4=b"4")

        assert healed_content_of(objects) == expected(4)
        assert healed_content_of(MemoryStore()) == {}

    def test_commits_during_the_look_are_no_newer_history(self) -> None:
        objects = with_commits(3)
        others = Actor(objects, seed=8)

        def run_ahead(call: StoreCall) -> None:
            if call.operation is Operation.LIST:
                for _ in range(3):
                    others.commit(more=b"")
                others.publish()

        finder = Actor(FaultyStore(objects, before_call=run_ahead))

        found = finder.catch_up()
        finder.log.refuse_old_head(found)  # raises Corruption for newer history

        assert found.state.segment == 3

    def test_an_old_copy_is_healed_while_its_segments_are_there(self) -> None:
        objects = with_commits(3)
        old = objects.get(HEAD).payload
        Actor(objects, seed=6).commit(key4=b"4")
        Actor(objects, seed=6).commit(key5=b"5")
        objects.put(HEAD, old)

        assert healed_content_of(objects) == expected(5)
        assert content_of(objects) == expected(5)

    def test_a_writer_heals_it_and_commits_behind_what_was_decided(self) -> None:
        objects = with_commits(3)
        old = objects.get(HEAD).payload
        Actor(objects, seed=6).commit(key4=b"4")
        objects.put(HEAD, old)
        writer = Actor(objects, seed=7)
        writer.load()

        assert writer.decide(key4=b"x") is Decision.LOST
        assert writer.decide(key5=b"5") is Decision.COMMITTED

        assert content_of(objects) == expected(5)

    def test_an_old_copy_is_refused_once_its_segments_are_gone(self) -> None:
        objects = with_commits(3)
        old = objects.get(HEAD).payload
        writer = Actor(objects, seed=6)
        writer.commit(key4=b"4")
        writer.publish()
        writer.collect()

        objects.put(HEAD, old)

        with pytest.raises(Corruption, match="missing"):
            content_of(objects)

    def test_an_old_copy_that_looks_complete_is_refused_on_opening(self) -> None:
        """Its checkpoint is still there, and the next slot is free because it was collected."""
        objects = with_commits(3)
        writer = Actor(objects, seed=6)
        writer.publish()
        old = objects.get(HEAD).payload
        writer.commit(key4=b"4")
        writer.publish()
        for path in writer.log.obsolete_objects():
            if path.startswith(SEGMENTS):
                objects.delete(path)

        objects.put(HEAD, old)

        with pytest.raises(Corruption, match="older than") as caught:
            healed_content_of(objects)
        assert caught.value.path == HEAD
        assert caught.value.hint

    def test_a_lost_head_is_not_an_empty_store(self) -> None:
        for published in (False, True):
            objects = with_commits(3)
            if published:
                Actor(objects).publish()
                Actor(objects).collect()
            objects.delete(HEAD)

            with pytest.raises(Corruption, match="HEAD is missing") as caught:
                content_of(objects)

            assert caught.value.path == HEAD
            assert caught.value.hint

    def test_one_who_knew_a_head_does_not_take_its_loss_for_an_empty_store(self) -> None:
        objects = with_commits(1)
        reader = Actor(objects)
        reader.load()
        objects.delete(HEAD)

        with pytest.raises(Corruption, match="HEAD is missing"):
            reader.load()

    def test_a_commit_under_way_does_not_make_a_new_head_where_one_was_lost(self) -> None:
        objects = with_commits(3)
        writer = writer_with(
            objects, before=Operation.PUT_IF_MATCH, do=lambda: objects.delete(HEAD)
        )

        with pytest.raises(OutcomeUnknown, match="HEAD is missing"):
            writer.decide(mine=b"")

        with pytest.raises(NotFound):
            objects.get(HEAD)

    def test_a_commit_that_may_have_happened_is_not_denied_because_head_is_damaged(self) -> None:
        objects = with_commits(3)
        whole = objects.get(HEAD).payload
        writer = writer_with(
            objects, before=Operation.PUT_IF_MATCH, do=lambda: objects.put(HEAD, whole[:-1])
        )

        with pytest.raises(OutcomeUnknown, match="HEAD") as unknown:
            writer.decide(key4=b"4")

        assert isinstance(unknown.value.__cause__, Corruption)
        objects.put(HEAD, whole)
        assert healed_content_of(objects) == expected(4)

    def test_a_damaged_object_of_another_one_in_the_slot_is_corruption(self) -> None:
        objects = with_commits(3)
        writer = Actor(objects)
        writer.load()
        objects.put(writer.log.paths.segment(4), b"NEVE")

        with pytest.raises(Corruption, match="cut off"):
            writer.decide(key4=b"4")

    def test_a_commit_under_way_is_unknown_where_head_went_far_back(self) -> None:
        objects = with_commits(1)
        old = objects.get(HEAD).payload
        Actor(objects, seed=6).commit(key2=b"2")
        Actor(objects, seed=7).commit(key3=b"3")
        writer = writer_with(
            objects, before=Operation.PUT_IF_MATCH, do=lambda: objects.put(HEAD, old)
        )

        with pytest.raises(OutcomeUnknown):
            writer.decide(key4=b"4")

        assert healed_content_of(objects) == expected(4)

    def test_a_first_commit_during_the_look_is_no_lost_head(self) -> None:
        objects = MemoryStore()

        def commit_three() -> None:
            writer = Actor(objects, seed=6)
            for number in (1, 2, 3):
                writer.commit(**{f"key{number}": b"%d" % number})

        reader = Actor(after_head(objects, commit_three))

        assert reader.content() == expected(3)

    def test_another_store_in_the_same_place_is_refused_by_one_who_knows_this_one(self) -> None:
        objects = with_commits(3)
        reader = Actor(objects)
        reader.load()
        for info in list(objects.list("")):
            objects.delete(info.path)
        stranger = Actor(objects, seed=50)
        stranger.commit(strange=b"")

        with pytest.raises(Corruption, match="another store"):
            reader.load()


class TestReading:
    def test_a_known_state_costs_one_conditional_read(self) -> None:
        store = FaultyStore(with_commits(3))
        reader = Actor(store)
        reader.load()
        before = len(store.calls)

        again = reader.load()

        assert again is reader.known
        assert [call.operation for call in store.calls[before:]] == [Operation.GET_IF_CHANGED]

    def test_only_what_is_new_is_read(self) -> None:
        objects = with_commits(50)
        store = FaultyStore(objects)
        reader = Actor(store)
        reader.load()
        Actor(objects, seed=3).commit(key51=b"51")
        before = len(store.calls)

        assert reader.content() == expected(51)

        assert [call.path for call in store.calls[before:]] == [HEAD, f"{SEGMENTS}seg-{51:020}"]

    def test_one_who_follows_for_long_keeps_no_more_changes_than_a_newcomer(self) -> None:
        objects = with_commits(4)
        follower = Actor(objects, seed=2)
        follower.load()
        writer = Actor(objects, seed=3)

        for number in range(5, 40):
            writer.commit(**{f"key{number}": b"%d" % number})
            follower.load()
            if number % 8 == 0:
                writer.publish()

        newcomer = Actor(objects, seed=4).load().state
        assert len(follower.known.state.changes) <= len(newcomer.changes)
        assert follower.known.state.checkpoint == newcomer.checkpoint == 32
        assert dict(follower.known.state.scan("")) == expected(39)

    def test_a_store_that_moves_too_fast_to_be_read_ends_at_the_deadline(self) -> None:
        objects = with_commits(2)
        others = Actor(objects, seed=8)

        def run_ahead(call: StoreCall) -> None:
            if call.operation is Operation.GET and call.path != HEAD:
                others.commit(key3=b"3")
                others.publish()
                others.collect()

        reader = Actor(FaultyStore(objects, before_call=run_ahead))

        with pytest.raises(Unavailable, match="moves too fast"):
            reader.load()
