"""Transactions over several tables under power cuts: all of one is found, or nothing of it.

A life is lived once, on a disk that watches it. Before some of the calls that change something, the
disk is taken as a power cut would leave it, and opened when the step has ended: the rows of all
tables are those from before the step, or those after it. Tables are opened in any order, so the one
that finds a part without a decision is not always the same.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final

import pytest

import neve
from neve.catalog.lake import Lake
from neve.catalog.transaction import LakeTransaction
from neve.engine.table_options import TableOptions
from neve.errors import Conflict
from neve.manifest.decisions import Decisions
from neve.storage.local_store import LocalStore
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from neve.wal.write_ahead_log import WriteAheadLog
from tests.conftest import Record
from tests.crash.engine_cuts import WatchedDisk
from tests.crash.engine_rows import Violation
from tests.crash.engine_world import ROOT, forget
from tests.gates import Gate

NAMES: Final = ("s.a", "s.b", "s.c")
KEYS: Final = range(6)
STEPS: Final = 14
CUT_EVERY: Final = 7
CHOICES: Final = 3
FLUSHED_EVERY: Final = 5

State = dict[str, dict[int, int]]


def options(seed: int) -> TableOptions:
    # A part must be durable before the decision, whatever the policy says about other writes.
    return TableOptions(
        background=False,
        iceberg_publish="demand",
        log_bytes=32 << 10,
        memtable_bytes=4 << 10,
        sync="none" if seed % 5 == 4 else "group",
    )


class Life:
    """A lake with some tables on a watched disk, and what power cuts leave of it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.disk = SimulatedDisk(seed)
        self.watched = WatchedDisk(self.disk)
        self.options = options(seed)
        self.is_synced = self.options.sync == "group"
        self.state: State = {name: {} for name in NAMES}
        self.found: list[tuple[int, SimulatedDisk]] = []
        self.cases = 0
        self.opened = 0
        self.lake, self.tables = self.open(self.watched)

    def open(self, disk: SimulatedDisk | WatchedDisk) -> tuple[Lake, dict[str, neve.Table]]:
        self.opened += 1
        clock, ids = SimulatedClock(), SeededIds(1_000 * self.seed + self.opened)
        lake = Lake(LocalStore(ROOT, disk=disk, clock=clock, ids=ids), clock=clock, ids=ids)
        tables = {}
        for name in self.rng.sample(NAMES, len(NAMES)):
            if self.opened == 1:
                tables[name] = lake.create_table(
                    name, {"id": "long", "v": "long"}, "id", options=self.options
                )
                tables[name].get(0)
            else:
                tables[name] = lake.table(name, options=self.options)
        return lake, tables

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
        for step in self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
            before = copy(self.state)
            self.watched.look = self.look
            step(self)
            self.watched.look = None
            for call, disk in self.found:
                self.cases += 1
                try:
                    self.check(disk, before)
                except BaseException as error:
                    error.add_note(f"seed {self.seed}, {step.__name__}, before change {call}")
                    raise
            self.found.clear()
        self.lake.close()

    def check(self, disk: SimulatedDisk, before: State) -> None:
        """Open a disk: every transaction is there as a whole, or not at all."""
        lake, tables = self.open(disk)
        found = {name: rows_of(tables[name]) for name in NAMES}
        if not self.is_synced:
            # Rows that no one synced may be lost, but not a part of a transaction.
            found = {name: {0: found[name].get(0, -1)} for name in NAMES}
            if len({each[0] for each in found.values()}) > 1:
                raise Violation(f"half of a transaction is there: {found}")
        elif found not in (before, self.state):
            raise Violation(f"rows are {found}, not {before} or {self.state}")
        if self.cases % FLUSHED_EVERY == 0:
            self.check_clean_up(lake, tables)
        for table in tables.values():
            forget(table)

    def check_clean_up(self, lake: Lake, tables: Mapping[str, neve.Table]) -> None:
        """A decision goes when every part of it is in files."""
        for table in tables.values():
            table.flush()
        if any(key.startswith("txn/") for key, _ in lake._entries.store.read().scan("txn/")):
            raise Violation("a decision is left after all parts were flushed")

    # Steps

    def put(self) -> None:
        name, key, v = self.rng.choice(NAMES), self.rng.choice(KEYS[1:]), self.rng.randrange(100)
        self.tables[name].put({"id": key, "v": v})
        self.state[name][key] = v

    def transact(self) -> None:
        """Write the same number under key 0 of every table, and other rows of some."""
        after = copy(self.state)
        with self.lake.transaction(self.rng.choice(("snapshot", "serializable"))) as tx:
            self.write(tx, after)
        self.state = after

    def lose(self) -> None:
        """Be refused, because another writer was first."""
        tx = self.lake.transaction()
        self.write(tx, copy(self.state))
        name = self.rng.choice(NAMES)
        v = self.state[name].get(1, 0) + 1
        self.tables[name].put({"id": 1, "v": v})
        self.state[name][1] = v
        tx.table(name).put({"id": 1, "v": -1})
        with suppress(Conflict):
            tx.commit()
            raise Violation("a conflict was not noticed")

    def write(self, tx: LakeTransaction, after: State) -> None:
        number = after[NAMES[0]].get(0, 0) + 1
        for name in self.rng.sample(NAMES, len(NAMES)):
            table = tx.table(name)
            if table.get(0) != ({"id": 0, "v": number - 1} if number > 1 else None):
                raise Violation(f"{name} has {table.get(0)} in place of {number - 1}")
            table.put({"id": 0, "v": number})
            after[name][0] = number
            for key in self.rng.sample(KEYS[1:], self.rng.choice((0, 1, 3))):
                if self.rng.random() < 0.3:
                    table.delete(key)
                    after[name].pop(key, None)
                else:
                    table.upsert([{"id": key, "v": number}], columns=["v"])
                    after[name][key] = number

    def flush(self) -> None:
        self.tables[self.rng.choice(NAMES)].flush()

    def roll(self) -> None:
        self.tables[self.rng.choice(NAMES)]._open.engine.writer._buffer.roll()

    def reopen(self) -> None:
        self.lake.close()
        self.lake, self.tables = self.open(self.watched)


WEIGHTS: Final[Mapping[Callable[[Life], None], int]] = {
    Life.transact: 6,
    Life.lose: 1,
    Life.put: 2,
    Life.flush: 2,
    Life.roll: 1,
    Life.reopen: 1,
}


def copy(state: State) -> State:
    return {name: dict(rows) for name, rows in state.items()}


def rows_of(table: neve.Table) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.scan().to_pylist()}


def test_a_power_cut_leaves_no_half_of_a_transaction(scoreboard: Record) -> None:
    gate = Gate("R31 power cuts of transactions over tables: half-applied", aim=5_000, full=50_000)

    for seed in gate.seeds():
        life = Life(seed)
        life.live()
        gate.cases += life.cases

    scoreboard(gate.line())
    assert gate.cases


def live_some(first: int = 0, step: int = 1) -> None:
    for seed in range(first, 15, step):
        Life(seed).live()


def test_a_decision_that_is_forgotten_too_early_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forget_flushed = Decisions.forget

    def forget_all(decisions: Decisions, table_id: str, *, flushed_sequence: int = 0) -> None:
        del flushed_sequence
        forget_flushed(decisions, table_id)

    monkeypatch.setattr(Decisions, "forget", forget_all)

    with pytest.raises(Violation):
        live_some()


def test_parts_that_count_without_a_decision_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Decisions, "settle", lambda *_: True)

    with pytest.raises(Violation):
        live_some()


def test_parts_that_are_not_synced_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriteAheadLog, "sync_held", lambda _: None)

    with pytest.raises(Violation):
        live_some(4, 5)  # those that do not sync each write
