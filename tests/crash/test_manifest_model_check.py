"""Random worlds of writers, readers and upkeep on the real store, and mutants they must catch."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from neve.manifest import manifest_store, state
from neve.manifest.documents import Head, Segment
from neve.manifest.manifest_log import Decision, ManifestLog
from neve.manifest.retry import Patience
from neve.manifest.state import State
from tests.conftest import Record
from tests.crash.manifest_model import CREWS, DROWSY, World
from tests.crash.troubled_world import on_one_core, violation_of
from tests.gates import Gate

SEEDS_PER_MUTANT = 10_000


def test_no_interleaving_breaks_a_promise(scoreboard: Record) -> None:
    gate = Gate("R16 manifest worlds (interleaved, faulty, dying): violations", 20_000, 500_000)
    told = {"acknowledged": 0, "refused": 0, "unknown": 0}

    with on_one_core():
        for seed in gate.seeds():
            world = World(seed)
            broken = violation_of(world)
            gate.cases += 1
            assert broken is None, broken
            for answer in told:
                told[answer] += len(getattr(world.ledger, answer))

    scoreboard(f"{gate.line()}; commits {told}")
    assert all(told.values())


def test_a_short_memory_of_transactions_makes_outcomes_unknown_and_never_wrong(
    scoreboard: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "RECENT_TRANSACTIONS_MAX", 2)
    gate = Gate("R16 manifest worlds with a short memory: violations", 2_000, 50_000)

    with on_one_core():
        for seed in gate.seeds():
            broken = violation_of(World(1_000_000 + seed))
            gate.cases += 1
            assert broken is None, broken

    scoreboard(gate.line())


def test_one_seed_gives_one_run(scoreboard: Record) -> None:
    gate = Gate("R13 manifest worlds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        first, second = World(seed), World(seed)
        first.run()
        second.run()
        gate.cases += 1
        assert first.interleaving.trace == second.interleaving.trace
        assert first.ledger == second.ledger
        assert [
            (info.path, first.objects.get(info.path).payload) for info in first.objects.list("")
        ] == [
            (info.path, second.objects.get(info.path).payload) for info in second.objects.list("")
        ]

    scoreboard(gate.line())


# Mutants: each is the real log with one rule left out.


class TakesARecycledSlotForSuccess(ManifestLog):
    """Believes that a slot that holds its own bytes was won, though a checkpoint covers it."""

    def _ask_checkpoint(self, _segment: Segment, _head: Head) -> Decision | None:
        return Decision.COMMITTED


class LetsTheCheckpointGoBack(ManifestLog):
    """Points HEAD to whatever it has folded, as the predecessor's compactor did."""

    def publish_checkpoint(self, state: State, patience: Patience) -> bool:
        self._create_checkpoint(state, patience)
        head = self._read_head(None)
        return head is not None and None is not self._swap_head(
            head, segment=head.segment, transaction=head.transaction, checkpoint=state.segment
        )


class _Anything(bytes):
    """Bytes that differ from nothing."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


class DoesNotCompareWithTheTransactionBefore(ManifestLog):
    """Folds whatever segment stands in a slot."""

    def _read_segment(self, number: int) -> Segment | None:
        segment = super()._read_segment(number)
        return segment and replace(segment, previous=_Anything(segment.previous))


class TakesARefusalForAConflict(ManifestLog):
    """Does not ask whose transaction stands in its slot after an answer was lost."""

    def _look_at_slot(self, segment: Segment, patience: Patience) -> Decision | None:
        decision = super()._look_at_slot(segment, patience)
        return decision or Decision.LOST


class PassesOverHoles(ManifestLog):
    """Reads on when an object is missing, as the predecessor's fold did."""

    def _unless_needed(self, head: Head, _path: str, _what: str) -> State | None:
        return State(epoch=head.epoch, segment=head.segment, checkpoint=head.checkpoint)


def drawn_worlds(seed: int) -> World:
    return World(seed)


def drowsy_worlds(seed: int) -> World:
    return World(seed, weather=DROWSY, crew=CREWS[-1])


@pytest.mark.parametrize(
    ("mutant", "worlds"),
    [
        (TakesARecycledSlotForSuccess, drawn_worlds),
        (LetsTheCheckpointGoBack, drawn_worlds),
        (DoesNotCompareWithTheTransactionBefore, drowsy_worlds),
        (TakesARefusalForAConflict, drawn_worlds),
        (PassesOverHoles, drawn_worlds),
    ],
)
def test_a_log_with_one_rule_left_out_is_caught(
    mutant: type[ManifestLog],
    worlds: Callable[[int], World],
    monkeypatch: pytest.MonkeyPatch,
    scoreboard: Record,
) -> None:
    monkeypatch.setattr(manifest_store, "ManifestLog", mutant)

    with on_one_core():
        caught = next(
            (seed for seed in range(SEEDS_PER_MUTANT) if violation_of(worlds(seed))), None
        )

    assert caught is not None
    scoreboard(f"R6 manifest mutant {mutant.__name__}: caught in world {caught}")
