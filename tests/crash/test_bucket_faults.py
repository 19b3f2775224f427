"""A table in a bucket whose requests go wrong: every one in turn, and at random against a model.

The store is in memory, so that thousands of lives fit into a gate; the same faults on the real
client are in `tests/integration/test_rows_on_s3.py`.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Protocol

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.errors import NeveError
from neve.storage.memory_store import MemoryStore
from neve.testing.faulty_store import WRITES, Fault, FaultyStore, PlannedFault, StoreCall
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.conftest import Record
from tests.gates import Gate

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.int64()})
OPTIONS = neve.TableOptions(background=False, memtable_bytes=1 << 20)
FAULTS = (Fault.LOST, Fault.LATE, Fault.TWICE, Fault.BEFORE, Fault.TIMEOUT)
# What a caller may see of a bucket that fails; anything else is a bug.
EXPECTED = (
    neve.OutcomeUnknown,
    neve.Unavailable,
    neve.Closed,
    neve.Conflict,
    neve.Fenced,
    neve.NotFound,
    neve.NotPublished,
)


class Calls(Protocol):
    """A store that remembers its calls."""

    @property
    def calls(self) -> tuple[StoreCall, ...]: ...


class World:
    """One bucket, and what is known of its one table: values that each key may have."""

    def __init__(self, seed: int) -> None:
        self.bucket = MemoryStore()
        self.seed = seed
        self.may: dict[int, set[int | None]] = {}

    def opened(self, faults: Sequence[PlannedFault]) -> tuple[Lake, Calls]:
        store = FaultyStore(self.bucket, faults)
        return Lake(store, clock=SimulatedClock(), ids=SeededIds(self.seed)), store

    def write(self, call: Callable[[], object], key: int, value: int | None) -> None:
        """Make one write; if its outcome is not known, both values are possible from now on."""
        before = self.may.get(key, {None})
        try:
            call()
        except neve.Fenced:
            raise
        except NeveError:
            self.may[key] = before | {value}
            raise
        self.may[key] = {value}

    def check(self) -> int:
        """Open the bucket without faults; return the number of keys with an impossible value."""
        self.seed += 1_000_000
        lake, _ = self.opened([])
        with lake:
            if not lake.table_exists("a.b"):
                return sum(None not in values for values in self.may.values())
            table = lake.table("a.b", options=OPTIONS)
            table.verify()
            table.iceberg_metadata()  # an interrupted publish is finished by the next
            table.verify()
            rows = table.scan().to_arrow().to_pylist()
            found: dict[int, int | None] = {row["id"]: row["v"] for row in rows}
            wrong = sum(found.get(key) not in values for key, values in self.may.items())
            return wrong + len(set(found) - set(self.may)) + (len(found) != len(rows))


def live(world: World, lake: Lake) -> None:
    table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS, exists_ok=True)
    for number in range(3):
        world.write(lambda n=number: table.put({"id": n, "v": n}), number, number)  # type: ignore[misc]
    table.flush()
    world.write(lambda: table.put({"id": 1, "v": 10}), 1, 10)
    world.write(lambda: table.delete(2), 2, None)
    table.flush()
    table.compact(full=True)
    world.write(lambda: table.put({"id": 9, "v": 9}), 9, 9)
    table.expire(keep_last=1)
    table.collect_garbage(dry_run=False)
    table.close()
    again = lake.table("a.b", options=OPTIONS)
    world.write(lambda: again.put({"id": 1, "v": 11}), 1, 11)
    again.close()


def count_calls() -> int:
    world = World(0)
    lake, store = world.opened([])
    with lake:
        live(world, lake)
    return len(store.calls)


def test_a_fault_at_any_request_loses_no_acknowledged_row(scoreboard: Record) -> None:
    calls = count_calls()
    every = [(call, fault) for call in range(1, calls + 1) for fault in FAULTS]
    random.Random(0).shuffle(every)
    gate = Gate("R16 faults at every request of a life in a bucket: violations", 400, len(every))
    for seed in gate.seeds():
        if seed >= len(every):
            break
        call, fault = every[seed]
        world = World(seed)
        try:
            lake, _ = world.opened([PlannedFault(fault=fault, call=call)])
            with lake:
                live(world, lake)
        except EXPECTED:
            pass
        gate.cases += 1
        gate.violations += world.check()
        assert gate.violations == 0, (call, fault)
    scoreboard(gate.line())


# Power cuts: a process that dies at any request, whether that one arrived or not


class PowerCut:
    """Lets every request fail after one of them, as for a process that is gone."""

    def __init__(self, after: int) -> None:
        self._after = after

    def __call__(self, call: StoreCall) -> None:
        if call.number > self._after:
            raise neve.Unavailable("the power is off", path=call.path)


def long_life(world: World, lake: Lake, puts_in_flight: int) -> None:
    """Do everything that writes: rows, batches, commits, jobs, definitions and upkeep."""
    options = neve.TableOptions(
        background=False, memtable_bytes=1 << 20, puts_in_flight=puts_in_flight
    )
    table = lake.create_table("a.b", SCHEMA, ["id"], options=options, exists_ok=True)
    with ThreadPoolExecutor(3) as threads:
        puts = [
            threads.submit(
                world.write, partial(table.put, {"id": number, "v": number}), number, number
            )
            for number in range(6)
        ]
    for put in puts:
        put.result()
    table.flush()
    world.write(lambda: table.put({"id": 1, "v": 10}), 1, 10)
    world.write(lambda: table.delete(2), 2, None)
    table.flush()
    with table.evolve() as change:
        change.add_column("note", "string")
    with lake.bulk("a.b", job_id="job", upkeep=False) as job:
        job.upsert([{"id": 7, "v": 7, "note": "x"}])
        world.may[7] = {None, 7}
    world.may[7] = {7}
    table.refresh()
    table.tag("kept")
    table.set_properties({"comment": "x"})
    table.compact(full=True)
    world.write(lambda: table.put({"id": 3, "v": 30}), 3, 30)
    table.expire(keep_last=1)
    table.collect_garbage(dry_run=False)
    table.remove_tag("kept")
    table.close()
    again = lake.table("a.b", options=options)
    world.write(lambda: again.put({"id": 1, "v": 11}), 1, 11)
    again.close()


def cut_life(seed: int, *, after: int, is_applied: bool) -> World:
    """Run a life whose process dies at a request, which has or has not arrived."""
    world = World(seed)
    fault = Fault.LOST if is_applied else Fault.TIMEOUT
    store = FaultyStore(
        world.bucket, [PlannedFault(fault=fault, call=after)], before_call=PowerCut(after)
    )
    with suppress(NeveError):
        lake = Lake(store, clock=SimulatedClock(), ids=SeededIds(seed))
        with lake:
            long_life(world, lake, 1 + seed % 3)
    return world


def test_a_power_cut_at_any_request_loses_no_acknowledged_row(scoreboard: Record) -> None:
    world = World(0)
    lake, store = world.opened([])
    with lake:
        long_life(world, lake, 1)
    every = [(call, applied) for call in range(1, len(store.calls) + 1) for applied in (0, 1)]
    random.Random(0).shuffle(every)
    full = 20 * len(every)
    gate = Gate("R5 power cuts of a bucket at every request: violations", 400, full)
    for seed in gate.seeds():
        after, applied = every[seed % len(every)]
        world = cut_life(seed, after=after, is_applied=bool(applied))
        gate.cases += 1
        gate.violations += world.check()
        assert gate.violations == 0, (seed, after, applied)
    scoreboard(gate.line())


def fail_at_the_hint(call: StoreCall) -> None:
    if call.path.endswith("version-hint.text") and call.operation in WRITES:
        raise neve.Unavailable("cut off", path=call.path)


def test_publishes_that_were_cut_off_before_the_first_hint_are_not_damage() -> None:
    world = World(0)
    for turn in range(3):
        world.seed += 1
        cut_off = FaultyStore(world.bucket, before_call=fail_at_the_hint)
        lake = Lake(cut_off, clock=SimulatedClock(), ids=SeededIds(world.seed))
        table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS, exists_ok=True)
        world.write(lambda t=table, n=turn: t.put({"id": n, "v": n}), turn, turn)  # type: ignore[misc]
        with pytest.raises(neve.NotPublished):
            table.flush()
        lake, _ = world.opened([])
        report = lake.table("a.b", read_only=True).verify()
        assert any("version-hint.text" in words for words in report.unseen)
        assert "published snapshots" in report.checked

    assert world.check() == 0


def step(world: World, table: neve.Table, rng: random.Random) -> None:
    key, value = rng.randrange(12), rng.randrange(1_000)
    match rng.randrange(10):
        case 0:
            table.flush()
        case 1:
            table.compact(full=rng.random() < 0.3)
        case 2:
            world.write(lambda: table.delete(key), key, None)
        case 3:
            table.expire(keep_last=2)
            table.collect_garbage(dry_run=False)
        case 4:
            row = table.get(key)
            seen = None if row is None else row["v"]
            assert seen in world.may.get(key, {None}), "a value that was never possible"
        case _:
            world.write(lambda: table.put({"id": key, "v": value}), key, value)


def run_history(seed: int, world: World | None = None) -> int:
    """Run writers one after the other, with faults and without good endings; count violations."""
    rng = random.Random(seed)
    world = world or World(seed)
    for turn in range(rng.randrange(2, 6)):
        world.seed += 1 + turn
        faults = [
            PlannedFault(fault=rng.choice(FAULTS), call=rng.randrange(1, 200))
            for _ in range(rng.randrange(4))
        ]
        try:
            lake, _ = world.opened(faults)
            options = neve.TableOptions(
                background=False, memtable_bytes=1 << 20, puts_in_flight=rng.choice((1, 3))
            )
            table = lake.create_table("a.b", SCHEMA, ["id"], options=options, exists_ok=True)
            for _ in range(rng.randrange(1, 25)):
                step(world, table, rng)
            if rng.random() < 0.4:
                lake.close()
        except EXPECTED:
            pass
    return world.check()


def test_histories_with_faults_agree_with_the_model(scoreboard: Record) -> None:
    gate = Gate("R12 histories in a bucket with faults, against the model", 100, 20_000)
    for seed in gate.seeds():
        gate.cases += 1
        gate.violations += run_history(seed)
        assert gate.violations == 0, seed
    scoreboard(gate.line())


@pytest.mark.parametrize("turns", [10])
def test_a_sleeping_writer_that_wakes_up_acknowledges_and_deletes_nothing(
    turns: int, scoreboard: Record
) -> None:
    world = World(0)
    sleepers: list[neve.Table] = []
    for turn in range(turns):
        world.seed += 1
        lake, _ = world.opened([])
        table = lake.create_table("a.b", SCHEMA, ["id"], options=OPTIONS, exists_ok=True)
        world.write(lambda t=table, n=turn: t.put({"id": n, "v": n}), turn, turn)  # type: ignore[misc]
        if turn % 2:
            table.flush()
        sleepers.append(table)
    accepted = 0
    for turn, sleeper in enumerate(sleepers[:-1]):
        for call in (
            lambda s=sleeper, n=turn: s.put({"id": 100 + n, "v": 0}),
            sleeper.flush,
            lambda s=sleeper: s.compact(full=True),
            lambda s=sleeper: s.collect_garbage(dry_run=False),
        ):
            try:
                call()
                accepted += 1
            except EXPECTED:
                pass
    scoreboard(f"R17 calls of paused writers that were accepted: {accepted} of {4 * (turns - 1)}")
    assert world.check() == 0
    assert accepted == 0
