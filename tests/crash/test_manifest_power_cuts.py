"""The manifest store on a disk that loses power, leaves out a sync, fails, or flips a bit.

A life is a seeded history of several processes on one disk: they commit, checkpoint, collect and
open, and some are killed between two calls of the disk, so that others find what they left
unsynced. After a power cut, whatever the disk kept, a plain reader must see what was acknowledged,
and the store must open, agree with itself, and go on.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Final

import pytest

from neve.errors import Conflict, Corruption, NeveError, OutcomeUnknown, Unavailable
from neve.manifest import manifest_store
from neve.manifest.documents import (
    Head,
    Lease,
    Segment,
    StorePaths,
    decode_lease,
    encode_lease,
)
from neve.manifest.manifest_log import ManifestLog
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.retry import Patience
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.testing.disk_calls import CHANGES, CallKind
from neve.testing.faulty_disk import Failure, FaultyDisk
from neve.testing.interleaving import InterleavedDisk, Interleaving
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.crash import sync_sites
from tests.crash.disk_trouble import MortalDisk, ProcessKilled, faults_at
from tests.crash.manifest_model import COUNTERS, Ledger, count
from tests.crash.sync_sites import DiskWithoutSite
from tests.crash.troubled_world import Violation
from tests.gates import TORTURE, Gate

ROOT: Final = "/disk/lakes/lake"
PREFIX: Final = "manifest/t"
CHOICES_PER_CUT: Final = 20
# One seed of a gate tries every sixteenth cut of a life, so that the gate keeps its time.
STRIDE: Final = 16
STEPS: Final = 7
VICTIM_CALLS_MAX: Final = 90


def open_store(disk: Disk, seed: int) -> ManifestStore:
    clock = SimulatedClock()
    ids = SeededIds(seed)
    objects = LocalStore(ROOT, disk=disk, ids=ids, clock=clock)
    options = StoreOptions(commit_seconds=2)
    return ManifestStore(objects, PREFIX, clock=clock, ids=ids, options=options)


class Life:
    """Processes that take turns on one disk; remembers every answer."""

    def __init__(self, disk: Disk, seed: int) -> None:
        self._disk = disk
        self._rng = Random(seed)
        self._seed = seed * 1_000
        self._stores: list[ManifestStore | None] = [None, None]
        self.ledger = Ledger()

    def live(self, *, is_over: Callable[[], bool] = lambda: False) -> None:
        """Take the steps of the seed, fewer when it is over before."""
        for _ in range(STEPS):
            if is_over():
                return
            at = self._rng.randrange(len(self._stores))
            try:
                store = self._stores[at] or self._born()
                self._stores[at] = store
                self._step(store)
            except ProcessKilled:
                self._stores[at] = None
            except (Unavailable, OutcomeUnknown):
                # Opening, checkpoints and collecting may fail; commits say what became of them.
                continue

    def _born(self) -> ManifestStore:
        self._seed += 1
        killed_at = self._rng.choice((10_000, self._rng.randint(1, 30), self._rng.randint(10, 90)))
        return open_store(MortalDisk(self._disk, killed_at + 1), self._seed)

    def _step(self, store: ManifestStore) -> None:
        choice = self._rng.random()
        if choice < 0.6:
            commit(store, self.ledger, self._rng.choice((*COUNTERS, "scan")))
        elif choice < 0.75:
            store.checkpoint()
        elif choice < 0.9:
            store.collect_once()
        else:
            store.open()


def commit(store: ManifestStore, ledger: Ledger, counter: str) -> None:
    """Commit a marker, and write down what was said about it."""
    ledger.begun += 1
    marker = f"{counter}/{ledger.begun}"
    ledger.unknown.add(marker)
    try:
        store.transact(partial(count, marker))
    except (Conflict, Unavailable):
        ledger.refused.add(marker)
    except OutcomeUnknown:
        return
    else:
        ledger.acknowledged.add(marker)
    ledger.unknown.discard(marker)


def check_recovery(disk: Disk, ledger: Ledger, seed: int = 999) -> None:
    """Read, open and go on, as the first process after the power is back.

    Its own commit is written into the ledger like any other.
    """
    try:
        plain = dict(open_store(disk, seed).read().scan(""))
        ledger.check(plain, seen=ledger.acknowledged)
        store = open_store(disk, seed + 1)
        healed = dict(store.open().scan(""))
        ledger.check(healed, seen={key for key in plain if "/" in key})
        commit(store, ledger, "a")
        ledger.check(dict(open_store(disk, seed + 2).read().scan("")), seen=ledger.acknowledged)
    except NeveError as error:
        raise Violation(f"recovery refused: {error}") from error
    if ledger.refused & {f"a/{ledger.begun}"}:
        raise Violation("the store takes no commit any more")


def lived(disk: Disk, seed: int) -> Ledger:
    """Live until the end or until the power goes off."""
    life = Life(disk, seed)
    with suppress(PowerCut):
        life.live()
    return life.ledger


def cut_points(seed: int) -> list[int]:
    """Numbers of the calls that change something, and the one behind the last."""
    disk = SimulatedDisk(seed)
    lived(disk, seed)
    changes = [number for number, call in enumerate(disk.log, start=1) if call.kind in CHANGES]
    return [*changes, disk.calls + 1]


# R5


def test_a_power_cut_at_any_call_loses_nothing_that_was_acknowledged(scoreboard: Record) -> None:
    gate = Gate("R5 manifest power cuts: violations", aim=20_000, full=500_000)

    for turn in gate.seeds():
        seed = turn // STRIDE
        for at in cut_points(seed)[turn % STRIDE :: STRIDE]:
            disk = SimulatedDisk(seed).power_cut_at(at)
            ledger = lived(disk, seed)
            for choice in range(CHOICES_PER_CUT):
                survivor = disk.after_power_cut(Random(f"{seed}-{at}-{choice}"))
                check_recovery(survivor, deepcopy(ledger))
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def test_a_power_cut_while_recovering_loses_nothing_either(scoreboard: Record) -> None:
    gate = Gate("R5 manifest power cuts in recovery: violations", aim=5_000, full=50_000)

    for seed in gate.seeds():
        rng = Random(seed)
        disk = SimulatedDisk(seed).power_cut_at(rng.choice(cut_points(seed)))
        ledger = lived(disk, seed)
        found = disk.after_power_cut(rng)
        for at in range(1, 60, 3):
            again = found.after_power_cut(rng).power_cut_at(at)
            later = deepcopy(ledger)
            with suppress(PowerCut):
                check_recovery(again, later)
            for choice in range(4):
                check_recovery(again.after_power_cut(Random(choice)), deepcopy(later))
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


class Household:
    """Processes that act at the same time, one call of the disk after another."""

    def __init__(self, seed: int, *, cut_at: int | None = None) -> None:
        self.disk = SimulatedDisk(seed)
        self.interleaving = Interleaving(seed)
        self.ledger = Ledger()
        self._seed = seed
        if cut_at is not None:
            self.disk.power_cut_at(cut_at)

    def run(self) -> None:
        actors: dict[str, Callable[[], None]] = {
            **{f"writer {n}": partial(self._write, n) for n in range(2)},
            "upkeep": self._keep_up,
        }
        for outcome in self.interleaving.run(actors).values():
            if outcome.error is not None and not isinstance(outcome.error, PowerCut):
                raise outcome.error

    def _open(self, number: int) -> ManifestStore:
        disk = InterleavedDisk(self.disk, self.interleaving)
        return open_store(disk, self._seed * 10 + number)

    def _write(self, number: int) -> None:
        store = self._open(number)
        for _ in range(2):
            commit(store, self.ledger, COUNTERS[0])

    def _keep_up(self) -> None:
        store = self._open(9)
        for _ in range(2):
            with suppress(Unavailable, OutcomeUnknown):
                store.open()
                store.checkpoint()
                store.collect_once()


def test_a_power_cut_among_processes_keeps_every_answer(scoreboard: Record) -> None:
    gate = Gate("R5 power cuts among manifest processes: violations", aim=5_000, full=100_000)

    for seed in gate.seeds():
        rng = Random(seed)
        household = Household(seed, cut_at=rng.randint(10, 400))
        household.run()
        for _ in range(10):
            check_recovery(household.disk.after_power_cut(rng), deepcopy(household.ledger))
            gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


# What a killed process leaves unsynced, and others build on


def commits(store: ManifestStore, ledger: Ledger) -> None:
    commit(store, ledger, "a")


def publishes(store: ManifestStore, _ledger: Ledger) -> None:
    store.checkpoint()


def collects(store: ManifestStore, _ledger: Ledger) -> None:
    store.collect_once()


def opens(store: ManifestStore, _ledger: Ledger) -> None:
    store.open()


Act = Callable[[ManifestStore, Ledger], None]


def inherited(disk: Disk, victim: Act, builder: Act, *, killed_at: int) -> Ledger:
    """Kill a process at a call, and let another one go on with what it left."""
    ledger = Ledger()
    founder = open_store(disk, 1)
    for _ in range(2):
        commits(founder, ledger)
    with suppress(ProcessKilled):
        victim(open_store(MortalDisk(disk, killed_at + 1), 2), ledger)
    builder(open_store(disk, 3), ledger)
    return ledger


@pytest.mark.parametrize("builder", [commits, publishes, collects, opens])
@pytest.mark.parametrize("victim", [commits, publishes])
def test_who_builds_on_what_a_killed_process_left_makes_it_durable_first(
    victim: Act, builder: Act
) -> None:
    for killed_at in range(1, VICTIM_CALLS_MAX):
        disk = SimulatedDisk(killed_at)
        ledger = inherited(disk, victim, builder, killed_at=killed_at)

        for survival in Survival:
            survivor = disk.after_power_cut(Random(killed_at), survival=survival)
            check_recovery(survivor, deepcopy(ledger))


class MovesHeadOverWhatItOnlyRead(ManifestLog):
    """Does not make a segment durable before HEAD needs it."""

    def _advance(self, segment: Segment, head: Head | None, _patience: Patience) -> bool:
        return self._move_head(segment, head) is not None


class CollectsBehindAHeadItOnlyRead(ManifestLog):
    """Does not make HEAD durable before it deletes what HEAD no longer needs."""

    def obsolete_objects(self) -> Iterator[str]:
        head = self._read_head(None)
        checkpoint = head.checkpoint if head is not None else 0
        for number in range(1, checkpoint + 1):
            yield self.paths.segment(number)


class ConfirmsWhatItOnlyReadInHead(ManifestLog):
    """Does not make HEAD durable before it confirms a commit that HEAD has reached."""

    def _settle(self, path: str, payload: bytes, patience: Patience) -> bool:
        return path == self.paths.head or super()._settle(path, payload, patience)


def test_a_commit_whose_sync_failed_is_made_durable_before_it_is_confirmed() -> None:
    for at in range(1, 30):
        disk = SimulatedDisk(at)
        faulty = FaultyDisk(disk, [Failure(at=at, kind=CallKind.SYNC_DIRECTORY)])
        ledger = Ledger()
        store = open_store(faulty, 1)
        while not faulty.faults:
            commits(store, ledger)

        assert ledger.begun
        check_recovery(disk.after_power_cut(Random(at), survival=Survival.NOTHING), ledger)


@pytest.mark.parametrize(
    ("mutant", "proof"),
    [
        (
            MovesHeadOverWhatItOnlyRead,
            partial(
                test_who_builds_on_what_a_killed_process_left_makes_it_durable_first, commits, opens
            ),
        ),
        (
            CollectsBehindAHeadItOnlyRead,
            partial(
                test_who_builds_on_what_a_killed_process_left_makes_it_durable_first,
                publishes,
                collects,
            ),
        ),
        (
            ConfirmsWhatItOnlyReadInHead,
            test_a_commit_whose_sync_failed_is_made_durable_before_it_is_confirmed,
        ),
    ],
    ids=["moves", "collects", "confirms"],
)
def test_one_who_does_not_is_caught(
    mutant: type[ManifestLog], proof: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    proof()
    monkeypatch.setattr(manifest_store, "ManifestLog", mutant)

    with pytest.raises(Violation):
        proof()


# R6


def is_noticed(site: str, scene: Callable[[Disk], Ledger], seed: int, cuts: list[int]) -> bool:
    """Whether some power cut shows that the site's syncs were left out."""
    for at in reversed(cuts):
        disk = SimulatedDisk(seed).power_cut_at(at)
        ledger = scene(DiskWithoutSite(disk, left_out=site))
        try:
            for choice in range(6):
                survivor = disk.after_power_cut(Random(f"{seed}-{at}-{choice}"))
                check_recovery(survivor, deepcopy(ledger))
        except Violation:
            return True
    return False


def scenes() -> Iterator[tuple[Callable[[Disk], Ledger], int, list[int]]]:
    """Lives with their cuts, then what killed processes left, cut at the end."""
    for seed in range(100 if TORTURE else 12):
        yield partial(lived, seed=seed), seed, cut_points(seed)
    for victim, builder in ((commits, opens), (publishes, collects)):
        for killed_at in range(1, VICTIM_CALLS_MAX):
            scene = partial(inherited, victim=victim, builder=builder, killed_at=killed_at)
            yield scene, killed_at, [1_000_000]


def test_every_sync_left_out_is_noticed(
    scoreboard: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A site is a place in the local store; which of its callers need it, the mutants above show.
    monkeypatch.setattr(sync_sites, "LAYERS", ("neve.storage.local_",))
    found: dict[str, bool] = {}
    for scene, seed, cuts in scenes():
        disk = DiskWithoutSite(SimulatedDisk(seed))
        scene(disk)
        for site in sorted(disk.sites):
            if not found.get(site):
                found[site] = is_noticed(site, scene, seed, cuts)

    unnoticed = [site for site, is_found in found.items() if not is_found]
    scoreboard(
        f"R6 manifest sync sites whose absence no test notices: {len(unnoticed)} of {len(found)}"
    )
    assert not unnoticed
    assert len(found) >= 7


# R7


def test_an_error_at_any_call_loses_nothing_that_was_acknowledged(scoreboard: Record) -> None:
    gate = Gate("R7 manifest I/O errors: silent loss, wrong state or hang", 2_000, 20_000)

    for turn in gate.seeds():
        seed = turn // STRIDE
        counting = FaultyDisk(SimulatedDisk(seed))
        lived(counting, seed)
        for call in range(1 + turn % STRIDE, counting.calls + 1, STRIDE):
            for fault in faults_at(call):
                disk = SimulatedDisk(seed)
                faulty = FaultyDisk(disk, [fault])
                life = Life(faulty, seed)
                # The power goes off right behind the step that was struck, and at the end.
                life.live(is_over=lambda faulty=faulty: faulty.faults > 0)  # type: ignore[misc]
                for survival in (Survival.NOTHING, Survival.RANDOM):
                    rng = Random(f"{seed}-{call}")
                    survivor = disk.after_power_cut(rng, survival=survival)
                    check_recovery(survivor, deepcopy(life.ledger))
                life.live()
                survivor = disk.after_power_cut(Random(f"{seed}-{call}"))
                check_recovery(survivor, deepcopy(life.ledger))
                check_recovery(disk, life.ledger)
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


# R13


def test_two_lives_from_one_seed_make_the_same_calls(scoreboard: Record) -> None:
    gate = Gate("R13 manifest seeds whose two runs differ", aim=20, full=500)
    calls = 0

    for seed in gate.seeds():
        first, second = SimulatedDisk(seed), SimulatedDisk(seed)
        ledgers = lived(first, seed), lived(second, seed)
        gate.cases += 1
        assert first.log == second.log
        assert ledgers[0] == ledgers[1]
        calls += first.calls

    scoreboard(gate.line())
    assert calls > 50 * gate.cases, "lives in which little happens show little"


# R11


def whole_store() -> tuple[MemoryStore, dict[str, bytes]]:
    """Return a store of which HEAD, a checkpoint and two segments are needed, and its content."""
    objects = MemoryStore()
    clock = SimulatedClock()
    store = ManifestStore(objects, PREFIX, clock=clock, ids=SeededIds(1))
    for number in range(1, 7):
        store.transact(partial(count, f"a/{number}"))
        if number == 4:
            store.checkpoint()
            store.collect_once()
    store.transact(lambda session: session.delete("a/1"))
    return objects, dict(store.read().scan(""))


def flipped(objects: ObjectStore, path: str) -> Iterator[None]:
    """Flip every bit of an object in turn."""
    payload = objects.get(path).payload
    for bit in range(len(payload) * 8):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        objects.put(path, bytes(damaged))
        yield
    objects.put(path, payload)


def test_no_flipped_bit_of_a_store_goes_unnoticed(scoreboard: Record) -> None:
    objects, content = whole_store()
    bits = 0

    for info in list(objects.list("")):
        for _ in flipped(objects, info.path):
            bits += 1
            with pytest.raises(Corruption) as caught:
                ManifestStore(objects, PREFIX, clock=SimulatedClock(), ids=SeededIds(2)).read()
            assert caught.value.path == info.path

    found = ManifestStore(objects, PREFIX, clock=SimulatedClock(), ids=SeededIds(3)).read()
    assert dict(found.scan("")) == content
    scoreboard(f"R11 manifest bit flips of HEAD, checkpoint, segments: unnoticed 0 of {bits:,}")


def test_no_flipped_bit_of_a_lease_goes_unnoticed(scoreboard: Record) -> None:
    objects = MemoryStore()
    path = StorePaths(PREFIX).lease("reader-1")
    objects.put(path, encode_lease(Lease(lease_id="reader-1", version=12, expires_ms=99)))
    bits = 0

    for _ in flipped(objects, path):
        bits += 1
        with pytest.raises(Corruption):
            decode_lease(objects.get(path).payload, path=path)

    scoreboard(f"R11 manifest bit flips of a lease: unnoticed 0 of {bits:,}")
