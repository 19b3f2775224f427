"""Tables with an order column or with merge functions under power cuts.

A life is lived once, on a disk that watches it. Before some of the calls that change something, the
disk is taken as a power cut would leave it. Each of these is opened when the step has ended: its
rows are those from before the step or those after it. Then all changes of the life arrive again:
what was deleted is still known to be, so older ones change nothing.
"""

from collections.abc import Sequence
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.storage.local_store import LocalStore
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from tests.conftest import Record
from tests.crash.engine_cuts import WatchedDisk
from tests.crash.engine_rows import Violation
from tests.crash.engine_world import ROOT, forget
from tests.gates import Gate
from tests.property.ruled_machine import (
    COLUMNS,
    OPTIONS,
    Change,
    Machine,
    Row,
    State,
    drawn_steps,
    event,
    ordered,
    rows_in,
)

STEPS: Final = 24
CUT_EVERY: Final = 23
CHOICES: Final = 3
FEED: Final = pa.schema({"op": pa.string(), **COLUMNS})


class Life:
    """A machine on a watched disk, and what power cuts leave of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.disk = SimulatedDisk(seed)
        self.watched = WatchedDisk(self.disk)
        self.machine = Machine(seed, LocalStore(ROOT, disk=self.watched, ids=SeededIds(seed)))
        self.found: list[tuple[int, SimulatedDisk]] = []
        self.cases = 0
        self.watched.look = self.look

    def look(self, call: int) -> None:
        """Take the disk as some power cuts would leave it now."""
        if call % CUT_EVERY != self.seed % CUT_EVERY:
            return
        for choice in range(CHOICES):
            rng = Random(f"{self.seed}/{call}/{choice}")
            survival = (Survival.NOTHING, Survival.EVERYTHING, None)[choice]
            self.found.append((call, self.disk.after_power_cut(rng, survival=survival)))

    def live(self) -> None:
        """Take steps, and check after each what was found in it."""
        for step in drawn_steps(self.machine, STEPS):
            before = self.machine.durable()
            step(self.machine)
            after = self.machine.durable()
            for call, disk in self.found:
                self.cases += 1
                try:
                    self.check(disk, before, after)
                except BaseException as error:
                    error.add_note(f"seed {self.seed}, {step.__name__}, before change {call}")
                    raise
            self.found.clear()
        self.watched.look = None
        self.machine.lake.close()

    def check(self, disk: SimulatedDisk, before: State, after: State) -> None:
        """Open a disk; its rows are those of one of two states, and it remembers its deletes."""
        clock = SimulatedClock(now_ms=self.machine.clock.now_ms())
        ids = SeededIds(9_000 + self.cases)
        lake = Lake(LocalStore(ROOT, disk=disk, clock=clock, ids=ids), clock=clock, ids=ids)
        table = lake.table("a.b", options=OPTIONS)
        found = rows_of(table)
        states = [state for state in (after, before) if rows_in(state) == found]
        if not states:
            raise Violation(f"rows are {found}, not {rows_in(before)} or {rows_in(after)}")
        if self.machine.is_ordered and not self.machine.merge:
            self.replay(table, states)
        forget(table)

    def replay(self, table: Table, states: Sequence[State]) -> None:
        """Apply all changes again, in memory or after a flush."""
        past = [Change(each.key, each.lsn, each.row) for each in self.machine.past]
        if self.cases % 2:
            table.flush()
        table.apply(pa.Table.from_pylist([event(each) for each in past], schema=FEED))
        found = rows_of(table)
        expected = [self.machine.after(each, ordered(self.machine, past)) for each in states]
        if found not in [rows_in(each) for each in expected]:
            raise Violation(f"after a replay rows are {found}, not {rows_in(expected[0])}")
        table.flush()
        table.verify()
        if rows_of(table) != found:
            raise Violation("a flush changed rows")


def rows_of(table: Table) -> dict[int, Row]:
    return {row["id"]: row for row in table.scan().to_arrow().to_pylist()}


def test_a_power_cut_undoes_no_delete_and_counts_nothing_twice(scoreboard: Record) -> None:
    gate = Gate("R5 power cuts of tables with rules: violations", aim=2_000, full=50_000)

    for seed in gate.seeds():
        life = Life(seed)
        life.live()
        gate.cases += life.cases

    scoreboard(gate.line())
    assert gate.cases


def live_ordered() -> None:
    """Live lives of tables that have nothing but an order, one after the other."""
    for seed in range(4, 40, 4):
        Life(seed).live()


def test_a_flush_that_forgets_its_deletes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.engine.flush.remembered_in", lambda *_: None)

    with pytest.raises(Violation):
        live_ordered()
