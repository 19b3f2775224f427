"""A whole table under power cuts: rows, flushes, compactions, clean-up and reopening.

Whatever the disk kept: every acknowledged write is there, the batch under way is there or not, each
retained Version reads clean without any of neve's readers, and writing goes on. A part of the
tables is published with every commit: what others read of them is whole, before anybody opens them.
"""

from dataclasses import replace
from random import Random

import pytest

from neve.testing.disk_calls import CHANGES
from neve.testing.simulated_disk import SimulatedDisk
from tests.conftest import Record
from tests.crash.disk_trouble import MortalDisk
from tests.crash.engine_cuts import (
    Cuts,
    WatchedDisk,
    digest,
    left_to_die,
    live,
    new_world,
)
from tests.crash.engine_rows import SHAPES
from tests.crash.engine_steps import (
    Step,
    collect_garbage,
    compact_full,
    compact_while_flushing,
    compare_and_put,
    consume,
    delete_many,
    evolve,
    expire,
    flush,
    flush_once,
    give_back_space,
    put,
    put_if_absent,
    reopen,
    repartition,
    roll,
    rollback,
    tag,
    transact,
    upsert,
    upsert_columns,
)
from tests.crash.engine_world import (
    OPTIONS,
)
from tests.gates import Gate

CHOICES_PER_CUT = 20
# Coprime to most counts of calls, so that the cuts of a short gate are spread over all steps.
STRIDE = 37
STRIDE_OF_ALL_STEPS = 307
# Of so many lives, one publishes what it commits.
PUBLISHED_EVERY = 6

EVERYTHING: tuple[Step, ...] = (
    *(upsert, put, flush, delete_many, put, roll, upsert, flush_once, flush),
    *(compact_while_flushing, tag, consume, rollback, compact_full, expire, collect_garbage),
    *(put, give_back_space, put, give_back_space, reopen, upsert, flush),
    *(upsert_columns, evolve, put_if_absent, roll, upsert_columns, compare_and_put, evolve),
    *(transact, roll, transact, flush_once, transact),
    *(put, flush_once, evolve, upsert, compact_full, reopen),
    *(upsert, repartition, upsert, flush, delete_many, repartition, reopen),
)
MOVED: tuple[Step, ...] = (
    *(upsert, flush, upsert, put, flush, repartition),
    *(delete_many, upsert, flush, repartition, expire, collect_garbage),
)


def cut_life(seed: int, *, every: int, first: tuple[Step, ...], steps: int, phase: int = 0) -> Cuts:
    """Live once, and check what a power cut before every so many changes leaves."""
    disk = SimulatedDisk(seed)
    watched = WatchedDisk(disk)
    with left_to_die(new_world(watched, seed)) as world:
        if seed % PUBLISHED_EVERY == 1:
            world.options = replace(OPTIONS, iceberg_publish="commit")
        cuts = Cuts(world, disk, seed=seed, choices=CHOICES_PER_CUT, every=every, phase=phase)
        watched.look = cuts.look
        live(world, seed, steps=steps, first=first)
    cuts.verdict()
    return cuts


def test_a_power_cut_at_any_call_of_a_table_loses_nothing_that_was_acknowledged(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 table power cuts: violations", aim=20_000, full=500_000)

    for seed in gate.seeds():
        # Lives of every kind come first; each is cut at other calls than the one before.
        every = STRIDE - seed % 5
        gate.cases += cut_life(seed, every=every, first=(), steps=16, phase=seed).cases

    scoreboard(gate.line())
    assert gate.cases


@pytest.mark.parametrize("shape", range(len(SHAPES)), ids=[shape.name for shape in SHAPES])
def test_each_kind_of_step_survives_power_cuts(shape: int, scoreboard: Record) -> None:
    figure = f"R5 table power cuts, all steps, {SHAPES[shape].name} keys: violations"
    gate = Gate(figure, aim=CHOICES_PER_CUT, full=50_000)

    for phase in gate.seeds():
        # The same life each time, cut at other calls.
        life = cut_life(shape, every=STRIDE_OF_ALL_STEPS, first=EVERYTHING, steps=0, phase=phase)
        gate.cases += life.cases

    scoreboard(gate.line())
    assert gate.cases


def test_a_power_cut_while_files_move_to_the_current_partitions_loses_nothing(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 power cuts while files move: violations", aim=2_000, full=50_000)

    for seed in gate.seeds():
        life = cut_life(seed, every=STRIDE_OF_ALL_STEPS, first=MOVED, steps=0, phase=seed)
        gate.cases += life.cases

    scoreboard(gate.line())
    assert gate.cases


def test_a_power_cut_while_recovering_loses_nothing_either(scoreboard: Record) -> None:
    gate = Gate("R5 table power cuts in recovery: violations", aim=2_000, full=50_000)

    for seed in gate.seeds():
        rng = Random(seed)
        disk = SimulatedDisk(seed)
        with left_to_die(new_world(MortalDisk(disk), seed)) as world:
            live(world, seed, steps=10, first=(upsert, put))
            found = disk.after_power_cut(rng)
            watched = WatchedDisk(found)
            heir = world.inherit(watched, seed=2_000 + seed)
        with left_to_die(heir):
            cuts = Cuts(heir, found, seed=seed, choices=6)
            watched.look = cuts.look
            heir.check_found()
        cuts.verdict()
        gate.cases += cuts.cases

    scoreboard(gate.line())
    assert gate.cases


def test_two_lives_from_one_seed_change_the_disk_alike(scoreboard: Record) -> None:
    """Reads are left out: threads of one scan make theirs in any order."""
    gate = Gate("R13 table seeds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        runs = []
        for _ in range(2):
            disk = SimulatedDisk(seed)
            with left_to_die(new_world(MortalDisk(disk), seed)) as world:
                live(world, seed, steps=25)
            runs.append(([call for call in disk.log if call.kind in CHANGES], digest(disk)))
        gate.cases += 1
        assert runs[0] == runs[1], f"seed {seed}"

    scoreboard(gate.line())
