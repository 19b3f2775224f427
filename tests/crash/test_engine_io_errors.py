"""A whole table when calls of the disk fail: typed errors, nothing lost, nothing wrong, no hang.

Each step of a life is struck by one fault. An error that says that nothing happened is believed;
after one that does not know, the table is opened again and looked at, as a caller would.
"""

import errno
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count, cycle
from random import Random
from typing import Final

import pytest

from neve.errors import NeveError, NextMove, OutcomeUnknown, Unavailable
from neve.testing.disk_calls import CallKind
from neve.testing.faulty_disk import Failure, Fault, FaultyDisk, ShortWrite
from neve.testing.power_loss import Survival
from neve.testing.simulated_disk import SimulatedDisk
from tests.conftest import Record
from tests.crash.engine_cuts import left_to_die, new_world, recovered
from tests.crash.engine_rows import expect
from tests.crash.engine_steps import (
    MORTAL,
    Step,
    flush,
    put,
    reopen,
    upsert,
)
from tests.crash.engine_world import (
    OPTIONS,
)
from tests.gates import Gate

STEPS_PER_LIFE: Final = 30
CALLS_MAX: Final = 90


def faults() -> Iterator[Fault]:
    """Faults at the first call of a step, at the second, and so on, each in several ways."""
    kinds = cycle(
        [
            *((number, is_lasting) for number in FAILURES for is_lasting in (False, True)),
            (0, False),
            (0, True),
        ]
    )
    for turn in count():
        number, is_lasting = next(kinds)
        at = 1 + turn % CALLS_MAX
        if number:
            yield Failure(at=at, number=number, is_lasting=is_lasting)
        else:
            yield ShortWrite(at=1 + at % 12, bytes_max=1 + at % 9, is_lasting=is_lasting)


FAILURES: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE)


class StruckLife:
    """Steps of one table, each struck by the next fault."""

    def __init__(self, seed: int, planned: dict[Step, Iterator[Fault]]) -> None:
        self.struck: Counter[str] = Counter()
        self._simulated = SimulatedDisk(seed)
        self._disk = FaultyDisk(self._simulated)
        self._rng = Random(seed)
        self._survivals = cycle((Survival.EVERYTHING, Survival.NOTHING, Survival.RANDOM))
        self._planned = planned
        self.world = new_world(self._disk, seed)

    def live(self) -> None:
        self.world.open()
        for step in self._rng.choices(list(MORTAL), list(MORTAL.values()), k=STEPS_PER_LIFE):
            fault = next(self._planned.setdefault(step, faults()))
            try:
                self._strike(step, fault)
            except Exception as error:
                error.add_note(f"{step.__name__} struck by {fault}")
                raise

    def _strike(self, step: Step, fault: Fault) -> None:
        world, disk = self.world, self._disk
        disk.plan(fault)
        try:
            step(world, self._rng)
        except NeveError as error:
            is_unknown = isinstance(error, OutcomeUnknown)
            if not is_unknown:
                world.pending = None
            changes_something = world.pending is not None or world.is_expiring
            is_over = error.next_move is NextMove.REOPEN or (is_unknown and changes_something)
        else:
            is_over = False
        is_struck = disk.faults > 0
        disk.plan()
        if not is_struck:
            return
        self.struck[step.__name__] += 1
        world.forget_files()
        self._check_copy()
        if is_over or not self._reads_right():
            world.abandon()
            self._begin_next_process()
            world.check_found()
        world.check_versions()
        world.is_expiring = False

    def _reads_right(self) -> bool:
        """Whether the handle goes on, or says that it is over; what it shows is right anyway."""
        world = self.world
        if world._table is None:
            return False  # it failed while it was being opened again
        expect(world.found_rows(), world.model.rows, "read after an error")
        try:
            put(world, self._rng)
        except NeveError as error:
            if error.next_move is not NextMove.REOPEN:
                raise
            world.pending = None
            return False
        return True

    def _check_copy(self) -> None:
        """Whoever finds the disk now, after a kill or a power cut, finds everything."""
        copy = self._simulated.after_power_cut(Random(1), survival=next(self._survivals))
        with left_to_die(recovered(self.world, copy, seed=5_000)) as heir:
            upsert(heir, Random(2))
            flush(heir, Random(3))
            heir.check_versions()

    def _begin_next_process(self) -> None:
        self._simulated = self._simulated.after_power_cut(Random(4), survival=Survival.EVERYTHING)
        self._disk = FaultyDisk(self._simulated)
        self.world.disk = self._disk


def test_an_error_at_any_call_loses_nothing_and_is_never_silent(scoreboard: Record) -> None:
    gate = Gate("R7 table I/O errors: silent loss, wrong state or hang", aim=2_000, full=20_000)
    planned: dict[Step, Iterator[Fault]] = {}

    for seed in gate.seeds():
        life = StruckLife(seed, planned)
        with left_to_die(life.world):
            try:
                life.live()
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
        gate.cases += life.struck.total()

    scoreboard(gate.line())
    assert gate.cases


def test_a_write_that_is_logged_is_acknowledged_though_the_next_log_cannot_be_begun() -> None:
    disk = FaultyDisk(SimulatedDisk())
    with left_to_die(new_world(disk, 0)) as world:
        world.open()
        disk.plan(Failure(at=1, kind=CallKind.CREATE_FILE, number=errno.ENOSPC, is_lasting=True))
        # The write that fills the memtable goes through; the next one does not begin.
        for turn in count():
            if world.table._open.engine.writer._buffer.is_full:
                break
            upsert(world, Random(turn))

        with pytest.raises(Unavailable, match="No space"):
            put(world, Random(1))
        world.pending = None
        assert world.found_rows() == world.model.rows
        disk.plan()
        put(world, Random(2))
        flush(world, Random(3))
        world.check_rows()


def test_a_disk_that_is_full_stops_writes_until_there_is_space_again() -> None:
    disk = FaultyDisk(SimulatedDisk())
    options = replace(OPTIONS, background=True, memtable_bytes=2 << 10, frozen_memtables=1)
    with left_to_die(new_world(disk, 0)) as world:
        world.open(options=options)
        disk.plan(Failure(at=1, kind=CallKind.CREATE_FILE, number=errno.ENOSPC, is_lasting=True))
        refused: NeveError | None = None
        for turn in range(10_000):
            try:
                upsert(world, Random(turn))
            except Unavailable as error:
                world.pending, refused = None, error
                break
        assert refused is not None, "nothing stopped the writes"
        assert "space" in str(refused)
        assert world.found_rows() == world.model.rows

        disk.plan()
        for turn in range(10_000):  # background work tries again by itself, after a pause
            try:
                upsert(world, Random(turn))
            except Unavailable:
                world.pending = None
            else:
                break
        flush(world, Random(0))
        world.check_rows()
        world.close()


def test_a_sweep_keeps_the_files_of_a_flush_whose_outcome_is_not_known() -> None:
    unknown = 0
    for at in range(40, 110):
        disk = FaultyDisk(SimulatedDisk())
        with left_to_die(new_world(disk, 0)) as world:
            world.open()
            upsert(world, Random(1))
            disk.plan(Failure(at=at, is_lasting=True))
            with suppress(NeveError):
                world.table.flush()
            unknown += disk.faults > 0
            disk.plan()

            world.table.collect_garbage(dry_run=False)

            world.table.refresh()
            world.check_rows()
            reopen(world, Random(2))
            world.check_rows()
            world.check_versions()
    assert unknown > 20
