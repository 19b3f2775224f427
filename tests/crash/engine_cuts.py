"""Power cuts of a whole table: every call of one life is a place where the power may have gone.

A life is lived once, on a disk that watches it. Before each call that changes something, the disk
as a power cut would leave it then is taken, some choices of what was not synced each, together with
what the world knew at that moment. A sync that was cut short promises nothing, so what is found
before it is also what is found in it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from random import Random
from typing import Final

from neve.engine.table_options import PublishMode
from neve.errors import Corruption
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.storage.table_paths import log_number
from neve.testing.disk_calls import CHANGES, DiskCall
from neve.testing.power_loss import SimulatedDirectory, Survival
from neve.testing.simulated_clock import SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from tests.crash.disk_trouble import MortalDisk
from tests.crash.engine_rows import SHAPES, Violation
from tests.crash.engine_steps import (
    Step,
    drawn_steps,
    flush,
    put,
    upsert,
)
from tests.crash.engine_world import (
    ROOT,
    World,
)
from tests.crash.published_table import check_published

HOURS_2: Final = 7_200.0
THOROUGH_EVERY: Final = 9
WRITING_EVERY: Final = 3
WIPED_EVERY: Final = 2

Look = Callable[[int], None]
"""Told the number of a call that changes something, before it is made."""


class WatchedDisk(MortalDisk):
    """Another disk that has somebody look before each call that changes something."""

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self.look: Look | None = None
        self.changes = 0

    def before(self, call: DiskCall) -> None:
        super().before(call)
        if call.kind in CHANGES:
            self.changes += 1
            if self.look is not None:
                look, self.look = self.look, None  # looking makes calls of its own
                try:
                    look(self.changes)
                finally:
                    self.look = look


def live(world: World, seed: int, *, steps: int, first: tuple[Step, ...] = ()) -> None:
    """Open the table and take steps; all that happens is decided by the seed."""
    rng = Random(seed)
    world.open()
    for step in (*first, *drawn_steps(rng, steps)):
        step(world, rng)


def new_world(disk: Disk, seed: int) -> World:
    return World(disk, SHAPES[seed % len(SHAPES)], seed=seed, clock=SimulatedClock())


@contextmanager
def left_to_die(world: World) -> Iterator[World]:
    """Let nothing of a world outlive it, however it ends."""
    try:
        yield world
    finally:
        world.abandon()


def recovered(world: World, disk: Disk, *, seed: int) -> World:
    """Open what was found; its rows are those acknowledged, or those of the step under way."""
    other = world.inherit(disk, seed=seed)
    if world.options.iceberg_publish == PublishMode.COMMIT:
        check_published(other, disk)
    with left_open_only_if_right(other):
        other.check_found()
    return other


@contextmanager
def left_open_only_if_right(world: World) -> Iterator[None]:
    try:
        yield
    except BaseException:
        world.abandon()
        raise


def check_missing_logs(world: World, disk: SimulatedDisk) -> None:
    """Rows that were acknowledged and not flushed are missed when their logs are gone."""
    heir = world.inherit(disk, seed=3_000)
    store = LocalStore(ROOT, disk=disk)
    for path in [info.path for info in store.list("tables/")]:
        if log_number(path) is not None:
            store.delete(path)
    with left_to_die(heir), suppress(Corruption):
        heir.open()
        raise Violation("nobody noticed that the logs are gone")


def write_on(world: World, rng: Random) -> None:
    """Writing and flushing work on whatever was found."""
    for step in (put, upsert, flush):
        step(world, rng)
    world.check_versions()


def go_on(world: World, rng: Random) -> None:
    """Everything works on whatever was found."""
    write_on(world, rng)
    world.check_rows()
    world.pass_time(HOURS_2)  # leases of the dead have ended
    world.table.collect_garbage(dry_run=False)
    world.forget_files()
    world.check_versions()
    left = world.table.collect_garbage(dry_run=True).paths
    if left:
        raise Violation(f"garbage is left: {left}")
    world.table.verify()
    world.close()
    world.open()
    world.check_rows()


def digest(disk: SimulatedDisk) -> bytes:
    """Tell two disks apart by everything that is durable on them."""
    total = blake2b(digest_size=16)
    pending = [("", disk._root)]
    while pending:
        path, directory = pending.pop()
        for name, node in sorted(directory.entries.items()):
            place = f"{path}/{name}"
            total.update(place.encode() + b"\0")
            if isinstance(node, SimulatedDirectory):
                pending.append((place, node))
            else:
                total.update(len(node.content).to_bytes(8, "big") + node.content)
    return total.digest()


class Cuts:
    """Takes and checks what power cuts of one life leave; equal disks are checked once."""

    def __init__(
        self,
        world: World,
        disk: SimulatedDisk,
        *,
        seed: int,
        choices: int,
        every: int = 1,
        phase: int = 0,
    ) -> None:
        """Cut at every so many calls, from a phase on.

        What is found is also looked at without its logs, which must be missed.
        """
        self.cases = 0
        self.checked = 0
        self._world = world
        self._disk = disk
        self._seed = seed
        self._choices = choices
        self._every = every
        self._phase = phase % every
        self._failure: Exception | None = None
        """Not raised where it is found: that is in the middle of a call of the code under test."""
        self._seen: set[tuple[bytes, int, bool]] = set()

    def look(self, call: int) -> None:
        """Cut the power here, in every way."""
        if call % self._every != self._phase or self._failure is not None:
            return
        for choice in range(self._choices):
            survival = list(Survival)[choice] if choice < len(Survival) else None
            rng = Random(f"{self._seed}/{call}/{choice}")
            survivor = self._disk.after_power_cut(rng, survival=survival)
            self.cases += 1
            world = self._world
            state = digest(survivor), len(world.states), world.pending is None
            if state not in self._seen:
                self._seen.add(state)
                self._check(survivor, call, choice, rng)

    @property
    def is_violated(self) -> bool:
        """Whether some cut was found to leave what must never be."""
        return self._failure is not None

    def verdict(self) -> None:
        """Raise what was found first, if anything."""
        if self._failure is not None:
            raise self._failure

    def _check(self, survivor: SimulatedDisk, call: int, choice: int, rng: Random) -> None:
        self.checked += 1
        try:
            # In a step that changes rows, nobody was promised that they are logged.
            is_settled = self._world.pending is None and self.checked % WIPED_EVERY == 0
            copied = (
                survivor.after_power_cut(rng, survival=Survival.EVERYTHING) if is_settled else None
            )
            with left_to_die(recovered(self._world, survivor, seed=1_000 + choice)) as world:
                if copied and not world.table._open.engine.current.view.memtables[0].is_empty:
                    check_missing_logs(self._world, copied)
                # Recovery is checked every time, what comes after it every so often.
                if self.checked % THOROUGH_EVERY == 0:
                    go_on(world, rng)
                elif self.checked % WRITING_EVERY == 0:
                    write_on(world, rng)
        except Exception as error:  # noqa: BLE001 - raised by `verdict`
            error.add_note(f"seed {self._seed}, cut before change {call}, choice {choice}")
            self._failure = error
