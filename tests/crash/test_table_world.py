"""Random worlds on one table: writers, compactors, readers, collectors; and mutants they catch."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from neve.manifest import rebase, table_garbage
from neve.manifest.documents import Lease
from neve.manifest.manifest_store import ManifestStore
from neve.manifest.sessions import ReadSession, WriteSession
from neve.manifest.table_garbage import GcPlan, TableGarbage
from neve.manifest.table_head import HeadChange, TableHead
from neve.manifest.table_versions import TableVersions
from neve.manifest.writer_state import Consumer, WriterState
from tests.conftest import Record
from tests.crash.table_world import Crew, TableWorld
from tests.crash.troubled_world import Weather, on_one_core, violation_of
from tests.gates import Gate

SEEDS_PER_MUTANT = 10_000


def test_no_interleaving_loses_a_row_or_a_file(scoreboard: Record) -> None:
    gate = Gate("R16 table worlds (interleaved, faulty, dying): violations", 20_000, 500_000)
    told = dict.fromkeys(("acknowledged", "refused", "unknown"), 0)
    seen = dict.fromkeys(("reads", "fenced_reads", "deletions"), 0)

    with on_one_core():
        for seed in gate.seeds():
            world = TableWorld(seed)
            broken = violation_of(world)
            gate.cases += 1
            assert broken is None, broken
            for answer in told:
                told[answer] += len(getattr(world.told, answer))
            for event in seen:
                seen[event] += getattr(world.told, event)

    scoreboard(f"{gate.line()}; commits {told}, files {seen}")
    assert all(told.values())
    assert all(seen.values())


def test_one_seed_gives_one_run_of_a_table(scoreboard: Record) -> None:
    gate = Gate("R13 table worlds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        first, second = TableWorld(seed), TableWorld(seed)
        first.run()
        second.run()
        gate.cases += 1
        assert first.interleaving.trace == second.interleaving.trace
        assert first.told == second.told
        assert first.truth.entries == second.truth.entries
        assert first.objects.files() == second.objects.files()

    scoreboard(gate.line())


# Mutants: each is the real code with one rule left out.

Mutate = Callable[[pytest.MonkeyPatch], None]


def leases_are_listed_before_the_plan_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who took a lease between the listing and the commit is not seen."""

    class ListsLeasesFirst(TableGarbage):
        listed: list[Lease] | None = None

        def compute_gc_plan(
            self, *, keep_last: int | None = None, older_than_ms: int | None = None
        ) -> GcPlan:
            self.listed = None
            plan = super().compute_gc_plan(keep_last=keep_last, older_than_ms=older_than_ms)
            self.listed = super()._leased(0)
            return plan

        def _leased(self, known_ms: int) -> list[Lease]:
            return super()._leased(known_ms) if self.listed is None else self.listed

    monkeypatch.setattr(table_garbage, "TableGarbage", ListsLeasesFirst)


def a_lease_holds_only_what_its_own_plan_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that the leased Version shares with later ones go with those."""

    def released(plan: GcPlan) -> tuple[tuple[int, int], ...]:
        return tuple((number, number) for number in plan.expired_versions)

    monkeypatch.setattr(GcPlan, "released", property(released))


def vectors_of_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction does not carry over what was marked in its inputs meanwhile."""
    monkeypatch.setattr(rebase, "_carry_marks_to_outputs", lambda *_: None)


def a_commit_does_not_ask_for_its_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job commits files though its intent was cancelled, and they were deleted."""
    check_asked = TableVersions._check_asked

    def check(
        self: TableVersions, session: WriteSession, head: TableHead, asked: HeadChange
    ) -> None:
        check_asked(self, session, head, replace(asked, intent_id=None))

    monkeypatch.setattr(TableVersions, "_check_asked", check)


def a_commit_does_not_ask_for_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that slept commits after another one took over."""
    check_asked = TableVersions._check_asked

    def check(
        self: TableVersions, session: WriteSession, head: TableHead, asked: HeadChange
    ) -> None:
        check_asked(self, session, head, replace(asked, writer_epoch=None))

    monkeypatch.setattr(TableVersions, "_check_asked", check)


def files_are_listed_after_the_state_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is repeated writes its files between the two."""

    class ReadsTheStateFirst(TableGarbage):
        def delete_garbage(
            self,
            delete: Callable[[str], None],
            *,
            find: Callable[[str], Iterable[str]],
            settle: Callable[[], None] | None = None,
        ) -> int:
            read: Callable[[], ReadSession] = self._store.read
            sessions: list[ReadSession] = []

            def read_once(_: ManifestStore) -> ReadSession:
                if not sessions:
                    sessions.append(read())
                return sessions[0]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self._store, "read", read_once.__get__(self._store))
                return super().delete_garbage(delete, find=find, settle=settle)

    monkeypatch.setattr(table_garbage, "TableGarbage", ReadsTheStateFirst)


def a_plan_does_not_look_again_for_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that begins between plan and apply loses what it began with."""

    class AppliesBlindly(TableGarbage):
        def apply_gc_plan(self, plan: GcPlan) -> str | None:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self, "_holding_consumers", lambda *_, **__: ())
                return super().apply_gc_plan(plan)

    monkeypatch.setattr(table_garbage, "TableGarbage", AppliesBlindly)


def a_consumer_is_moved_by_any_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader that came less far ends last, and moves the position back."""

    def advance(self: WriterState, begun: Consumer, position: int) -> None:
        moved = replace(begun, position=position)
        self._store.transact(lambda session: session.put("consumer/c", moved.encode()))

    monkeypatch.setattr(WriterState, "advance_consumer", advance)


def drawn_worlds(seed: int) -> TableWorld:
    return TableWorld(seed)


def leasing_worlds(seed: int) -> TableWorld:
    """Worlds in which many readers come while collectors are between their steps."""
    weather = Weather(fault=0.0, death=0.0, sleep=0.05, sleep_at_slots=0.2, waking=0.05)
    return TableWorld(
        seed, weather=weather, crew=Crew(writers=1, clerks=0, readers=3, collectors=2)
    )


def repeating_worlds(seed: int) -> TableWorld:
    """Worlds in which jobs give up and are repeated under a collector that sleeps."""
    weather = Weather(fault=0.1, death=0.0, sleep=0.1, sleep_at_slots=0.1, waking=0.1)
    return TableWorld(seed, weather=weather, crew=Crew(clerks=0, readers=0, collectors=2))


def consuming_worlds(seed: int) -> TableWorld:
    """Worlds in which consumers begin and move under collectors that sleep."""
    weather = Weather(fault=0.0, death=0.0, sleep=0.1, sleep_at_slots=0.1, waking=0.1)
    return TableWorld(seed, weather=weather, crew=Crew(clerks=3, readers=0, collectors=2))


@pytest.mark.parametrize(
    ("mutate", "worlds"),
    [
        (leases_are_listed_before_the_plan_is_applied, leasing_worlds),
        (a_lease_holds_only_what_its_own_plan_let_go, leasing_worlds),
        (vectors_of_others_are_left_out, drawn_worlds),
        (a_commit_does_not_ask_for_its_intent, drawn_worlds),
        (a_commit_does_not_ask_for_its_epoch, drawn_worlds),
        (files_are_listed_after_the_state_is_read, repeating_worlds),
        (a_plan_does_not_look_again_for_consumers, consuming_worlds),
        (a_consumer_is_moved_by_any_reader, consuming_worlds),
    ],
)
def test_a_table_with_one_rule_left_out_is_caught(
    mutate: Mutate,
    worlds: Callable[[int], TableWorld],
    monkeypatch: pytest.MonkeyPatch,
    scoreboard: Record,
) -> None:
    mutate(monkeypatch)

    with on_one_core():
        caught = next(
            (seed for seed in range(SEEDS_PER_MUTANT) if violation_of(worlds(seed))), None
        )

    assert caught is not None
    scoreboard(f"R6 table mutant {mutate.__name__}: caught in world {caught}")
