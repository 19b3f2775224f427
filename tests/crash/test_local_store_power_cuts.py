"""LocalStore on a disk that loses power, fails, or leaves out a sync: nothing promised is lost.

Each scenario is a short history of calls. It is run with the power cut in every call of the disk
that changes something, and looked at in many of the states the disk may then be found in; with each
sync left out in turn, which some power cut has to reveal; and with every call of the disk failing.
"""

import errno
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from neve.errors import NeveError, NotFound, OutcomeUnknown
from neve.storage.disk import Disk, FileKind
from neve.storage.local_store import LocalStore
from neve.storage.object_store import AppendFile
from neve.testing.disk_calls import CHANGES, CallKind
from neve.testing.faulty_disk import Failure, FaultyDisk, ShortWrite
from neve.testing.power_loss import Survival
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.gates import Gate

ROOT: Final = "/srv/lake"
ERRNOS: Final = (errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES, errno.EROFS)
EXTREMES: Final = tuple(survival for survival in Survival if survival is not Survival.RANDOM)
LEFT_OUT_CHOICES: Final = 20
END_OF_TIME_MS: Final = 1 << 60


@dataclass
class Expected:
    """What may be there: one thing once it is acknowledged, old or new while it is under way."""

    objects: dict[str, list[bytes | None]] = field(default_factory=dict)
    synced: dict[str, bytes] = field(default_factory=dict)
    moves: list[tuple[str, str, bytes]] = field(default_factory=list)

    def violations(self, store: LocalStore) -> list[str]:
        """Compare a store, opened again, with what may be there."""
        seen = {info.path: store.get(info.path).payload for info in store.list("")}
        found = [
            f"{path}: {_shown(seen.get(path))} is none of {[_shown(one) for one in allowed]}"
            for path, allowed in self.objects.items()
            if seen.get(path) not in allowed
        ]
        found += [
            f"{path}: {_shown(seen.get(path))} does not begin with {_shown(synced)}"
            for path, synced in self.synced.items()
            if not _begins(seen.get(path), synced)
        ]
        found += [
            f"{path}, {new_path}: not exactly one of them is there and begins as it should"
            for path, new_path, synced in self.moves
            if [_begins(seen.get(one), synced) for one in (path, new_path)].count(True) != 1
            or (path in seen and new_path in seen)
        ]
        moved = {path for move in self.moves for path in move[:2]}
        strangers = seen.keys() - self.objects.keys() - self.synced.keys() - moved
        return found + [f"{path}: nobody wrote it" for path in sorted(strangers)]


def _begins(content: bytes | None, synced: bytes) -> bool:
    return content is not None and content.startswith(synced)


def _shown(content: bytes | None) -> str:
    return "nothing" if content is None else f"{len(content)} bytes {content[:12]!r}"


class Writer:
    """Makes calls on a store, and writes down what may be there before and after each."""

    def __init__(self, store: LocalStore, disk: Disk, expected: Expected) -> None:
        self.store = store
        self.disk = disk
        self.expected = expected

    def put(self, path: str, payload: bytes) -> None:
        with self._attempt(path, payload):
            self.store.put(path, payload)
            self.expected.objects[path] = [payload]

    def put_new(self, files: dict[str, bytes]) -> None:
        # When it fails, some of the objects may be there.
        for path, payload in files.items():
            self.expected.objects[path] = [None, payload]
        with suppress(NeveError):
            self.store.put_new([(path, (each[:5], each[5:])) for path, each in files.items()])
            self.expected.objects.update({path: [each] for path, each in files.items()})

    def put_if_absent(self, path: str, payload: bytes) -> None:
        with self._attempt(path, payload):
            tag = self.store.put_if_absent(path, payload)
            self._settle(path, payload, is_written=tag is not None)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> None:
        with self._attempt(path, payload):
            new_tag = self.store.put_if_match(path, payload, tag=tag)
            self._settle(path, payload, is_written=new_tag is not None)

    def link(self, path: str, new_path: str, payload: bytes) -> None:
        with self._attempt(new_path, payload):
            self.store.link(path, new_path)
            self.expected.objects[path] = self.expected.objects[new_path] = [payload]

    def delete(self, path: str) -> None:
        # A deleted object may come back, so its acknowledgement settles nothing.
        with self._attempt(path, None):
            self.store.delete(path)

    def create(self, path: str, *, preallocate_bytes: int = 0) -> AppendFile | None:
        self.expected.objects[path] = [None, b"", bytes(preallocate_bytes)]
        with suppress(NeveError):
            file = self.store.create(path, preallocate_bytes=preallocate_bytes)
            del self.expected.objects[path]
            self.expected.synced[path] = b""
            return file
        return None

    def recycle(self, file: AppendFile | None, new_path: str) -> AppendFile | None:
        if file is None:
            return None
        path = file.path
        file.close()
        move = (path, new_path, self.expected.synced.pop(path))
        self.expected.moves.append(move)
        with suppress(NeveError):
            file = self.store.recycle(path, new_path=new_path)
            self.expected.moves.remove(move)
            self.expected.objects[path] = [None]
            self.expected.synced[new_path] = b""
            return file
        return None

    def append_and_sync(self, file: AppendFile | None, payload: bytes) -> None:
        if file is None:
            return
        with suppress(NeveError):
            file.append([payload[:7], payload[7:]])
            file.sync()
            self.expected.synced[file.path] += payload

    def tag(self, path: str) -> str:
        try:
            return self.store.get(path).tag
        except NeveError:
            return "unreadable"

    @contextmanager
    def _attempt(self, path: str, payload: bytes | None) -> Iterator[None]:
        before = self.expected.objects.get(path, [None])
        self.expected.objects[path] = [*before, payload]
        try:
            yield
        except OutcomeUnknown:
            pass
        except NeveError:
            # Every other error promises that nothing was written.
            self.expected.objects[path] = before

    def _settle(self, path: str, payload: bytes, *, is_written: bool) -> None:
        allowed = self.expected.objects[path]
        if is_written:
            allowed[:] = [payload]
            return
        allowed.remove(payload)
        # What stood in the way is durable from now on, unless nothing did.
        with suppress(NeveError):
            seen = self.store.get(path).payload
            assert seen in allowed
            allowed[:] = [seen]


# Scenarios


def letters(letter: str, length: int = 1_300) -> bytes:
    """Make bytes longer than two sectors, so that they can be torn inside."""
    return (letter * length).encode()


def prepare_nothing(_disk: Disk) -> None:
    """Let the store make everything itself."""


def objects(writer: Writer) -> None:
    """Create, replace, compare and replace, delete and create again."""
    writer.put_if_absent("a/b/one", letters("1"))
    writer.put("a/b/two", letters("2"))
    writer.put("a/b/two", letters("3", 600))
    writer.put_if_match("a/b/two", letters("4"), tag=writer.tag("a/b/two"))
    writer.put("top", letters("5"))
    writer.delete("a/b/one")
    writer.put_if_absent("a/b/one", letters("6"))
    writer.delete("top")


def many(writer: Writer) -> None:
    """Create many objects at once, in new directories and in old ones."""
    writer.put_new({f"data/p={n % 3}/{n}": letters(str(n), 700) for n in range(5)})
    writer.put_new({"data/p=1/later": letters("a"), "data/q/r/deep": letters("b")})


def logs(writer: Writer) -> None:
    """Create, append and sync, recycle in one directory and into another."""
    first = writer.create("wal/1/000001.wal", preallocate_bytes=3_000)
    writer.append_and_sync(first, letters("1"))
    writer.append_and_sync(first, letters("2", 40))
    second = writer.create("wal/1/000002.wal")
    writer.append_and_sync(second, letters("3", 700))
    third = writer.recycle(first, "wal/1/000003.wal")
    writer.append_and_sync(third, letters("4", 900))
    if third is not None:
        with suppress(NeveError):
            third.truncate_to_position()
    writer.append_and_sync(third, letters("5", 100))
    fourth = writer.recycle(second, "wal/2/000004.wal")
    writer.append_and_sync(fourth, letters("6", 100))
    for file in (first, second, third, fourth):
        if file is not None:
            file.close()


def prepare_unsynced_directories(disk: Disk) -> None:
    """Leave directories that somebody made and did not live to sync."""
    for directory in ("/srv", ROOT, f"{ROOT}/a", f"{ROOT}/a/b"):
        disk.make_directory(directory)


def directories_of_a_dead_writer(writer: Writer) -> None:
    """Write where only unsynced directories lead to."""
    writer.put_if_absent("a/b/one", letters("1"))


def names_of_a_dead_writer(writer: Writer) -> None:
    """Lose against objects that somebody linked and did not live to sync."""
    writer.put("d/other", letters("0"))
    for path in ("d/one", "d/two"):
        handle = writer.disk.create_file(f"{ROOT}/d/.tmp-dead")
        writer.disk.write(handle, [letters("1")], 0)
        writer.disk.sync(handle)
        writer.disk.close(handle)
        writer.expected.objects[path] = [None, letters("1")]
        writer.disk.rename(f"{ROOT}/d/.tmp-dead", f"{ROOT}/{path}")
        if path == "d/one":
            writer.put_if_absent(path, letters("2"))
        else:
            writer.put_if_match(path, letters("2"), tag="another")


def bytes_of_a_dead_writer(writer: Writer) -> None:
    """Build on bytes that somebody appended and did not live to sync."""
    file = writer.create("wal/000001.wal")
    if file is not None:
        with suppress(NeveError):
            file.append([letters("1")])
            writer.store.make_durable("wal/000001.wal")
            writer.expected.synced["wal/000001.wal"] = letters("1")
        file.close()


def second_names(writer: Writer) -> None:
    """Give names to files that somebody wrote and did not live to sync."""
    writer.put("d/other", letters("0"))
    for path in ("d/one", "d/two"):
        writer.expected.objects[path] = [None, b""]
        handle = writer.disk.create_file(f"{ROOT}/{path}")
        writer.disk.sync_directory(f"{ROOT}/d")
        # From now on any part of its bytes may be there.
        del writer.expected.objects[path]
        writer.expected.synced[path] = b""
        writer.disk.write(handle, [letters("1")], 0)
        writer.disk.close(handle)
        with writer._attempt(f"e/{path}", letters("1")):
            writer.store.link(path, f"e/{path}")
            writer.expected.objects[f"e/{path}"] = [letters("1")]


def linked_objects(writer: Writer) -> None:
    """Give an object a second name, and delete the first one."""
    writer.put("d/one", letters("1"))
    writer.link("d/one", "e/one", letters("1"))
    writer.delete("d/one")
    writer.link("d/missing", "e/two", letters("2"))


def losses(writer: Writer) -> None:
    """Ask for what others have, or what is not there."""
    writer.put("d/one", letters("1"))
    writer.put_if_absent("d/one", letters("2"))
    writer.put_if_match("d/one", letters("3"), tag="another")
    writer.put_if_match("d/missing", letters("4"), tag="another")
    writer.delete("d/missing")
    for ask in (lambda: writer.store.lock("d/LOCK"), lambda: writer.store.size("d/one")):
        with suppress(NeveError):
            found = ask()
            if not isinstance(found, int):
                found.release()
    with suppress(NeveError):
        assert [info.path for info in writer.store.list("d/")] in (["d/one"], [])


@dataclass(frozen=True)
class Scenario:
    play: Callable[[Writer], None]
    prepare: Callable[[Disk], None] = prepare_nothing

    def run(self, disk: Disk) -> tuple[Expected, LocalStore | None]:
        """Play until the end, until the power goes off, or until the store cannot be opened."""
        expected = Expected()
        store = None
        with suppress(PowerCut, NeveError):
            self.prepare(disk)
            store = opened(disk)
            self.play(Writer(store, disk, expected))
        return expected, store


SCENARIOS: Final = {
    "objects": Scenario(objects),
    "many": Scenario(many),
    "logs": Scenario(logs),
    "directories": Scenario(directories_of_a_dead_writer, prepare_unsynced_directories),
    "names": Scenario(names_of_a_dead_writer),
    "bytes": Scenario(bytes_of_a_dead_writer),
    "second names": Scenario(second_names),
}

# In these every call is the store's own, and so may fail.
FAILING_SCENARIOS: Final = {
    "objects": Scenario(objects),
    "many": Scenario(many),
    "logs": Scenario(logs),
    "bytes": Scenario(bytes_of_a_dead_writer),
    "losses": Scenario(losses),
    "linked": Scenario(linked_objects),
}


def opened(disk: Disk, *, seed: int = 1) -> LocalStore:
    return LocalStore(ROOT, disk=disk, ids=SeededIds(seed), clock=SimulatedClock())


def cut_points(scenario: Scenario) -> list[int]:
    """Numbers of the calls that change something, and the one behind the last."""
    disk = SimulatedDisk()
    scenario.run(disk)
    changes = [n for n, call in enumerate(disk.log, start=1) if call.kind in CHANGES]
    return [*changes, disk.calls + 1]


def files_below(disk: Disk, directory: str = ROOT) -> Iterator[str]:
    for entry in disk.list_directory(directory):
        if entry.kind is FileKind.DIRECTORY:
            yield from files_below(disk, f"{directory}/{entry.name}")
        else:
            yield entry.name


def leftovers(disk: Disk) -> list[str]:
    try:
        return [name for name in files_below(disk) if name.startswith(".tmp-")]
    except FileNotFoundError:
        return []


def choose(seed: int) -> tuple[Random, Survival | None]:
    """Begin with the extremes, then draw."""
    return Random(seed), EXTREMES[seed] if seed < len(EXTREMES) else None


def violations_after_cut(disk: SimulatedDisk, expected: Expected, seed: int) -> list[str]:
    rng, survival = choose(seed)
    survivor = disk.after_power_cut(rng, survival=survival)
    store = opened(survivor, seed=2)
    found = expected.violations(store)
    if seed % 4 == 0:
        # The store goes on working, and what a dead writer left can be swept away.
        store.put_if_absent("after/the/cut", b"works")
        store.sweep_temporaries(modified_before_ms=END_OF_TIME_MS)
        later = Expected({**expected.objects, "after/the/cut": [b"works"]}, expected.synced)
        later.moves = expected.moves
        found += later.violations(opened(survivor.after_power_cut(rng), seed=3))
        found += leftovers(survivor)
    return found


# R5


def test_no_power_cut_loses_or_tears_what_was_acknowledged(scoreboard: Record) -> None:
    gate = Gate("R5 power cuts of the local store: violations", aim=20_000, full=500_000)
    cuts = [
        (name, cut, disk, scenario.run(disk)[0])
        for name, scenario in SCENARIOS.items()
        for cut in cut_points(scenario)
        for disk in [SimulatedDisk().power_cut_at(cut)]
    ]
    found: list[str] = []

    for seed in gate.seeds(at_least=20):
        for name, cut, disk, expected in cuts:
            found += [
                f"{name}, cut in call {cut}, seed {seed}: {violation}"
                for violation in violations_after_cut(disk, expected, seed)
            ]
            gate.cases += 1

    gate.violations = len(found)
    scoreboard(gate.line())
    assert found == []
    assert gate.cases >= 20 * len(cuts)


# R6


def is_missed(scenario: Scenario, kind: CallKind, occurrence: int, cuts: list[int]) -> bool:
    """Whether some power cut shows that this sync was left out."""
    for cut in reversed(cuts):
        disk = SimulatedDisk().without(kind, occurrence).power_cut_at(cut)
        expected, _ = scenario.run(disk)
        if any(violations_after_cut(disk, expected, seed) for seed in range(LEFT_OUT_CHOICES)):
            return True
    return False


def test_every_sync_that_is_left_out_is_missed(scoreboard: Record) -> None:
    missed, unnoticed = 0, []

    for name, scenario in SCENARIOS.items():
        disk = SimulatedDisk()
        scenario.run(disk)
        cuts = cut_points(scenario)
        for kind, occurrence in disk.syncs():
            if is_missed(scenario, kind, occurrence, cuts):
                missed += 1
            else:
                unnoticed.append(f"{name}: {kind} {occurrence}")

    total = missed + len(unnoticed)
    scoreboard(
        f"R6 syncs of the local store left out and missed: {missed} of {total} "
        f"({100 * missed / total:.0f} %)"
    )
    assert unnoticed == []
    assert total > 30


# R7


@pytest.mark.parametrize("name", FAILING_SCENARIOS)
def test_no_error_of_the_disk_loses_or_tears_anything(name: str, scoreboard: Record) -> None:
    scenario = FAILING_SCENARIOS[name]
    counting = FaultyDisk(SimulatedDisk())
    scenario.run(counting)
    plans = list(itertools.product(ERRNOS, (False, True)))
    aim = len(plans) * counting.calls
    gate = Gate(f"R7 disk errors of the local store, {name}: violations", aim=aim, full=10 * aim)
    found: list[str] = []

    for seed in gate.seeds():
        number, is_lasting = plans[seed % len(plans)]
        for at in range(1, counting.calls + 1):
            fault = Failure(at=at, number=number, is_lasting=is_lasting)
            found += [f"{fault}: {what}" for what in violations_after(scenario, fault, seed)]
            gate.cases += 1

    gate.violations = len(found)
    scoreboard(gate.line())
    assert found == []


def violations_after(scenario: Scenario, fault: Failure, seed: int) -> list[str]:
    inner = SimulatedDisk()
    disk = FaultyDisk(inner, [fault])
    expected, store = scenario.run(disk)
    failed = disk.log[fault.at - 1].kind if disk.faults else None
    found = expected.violations(opened(inner, seed=2))
    if inner.open_handles:
        found.append(f"{inner.open_handles} handles were left open")
    if not fault.is_lasting and failed is not CallKind.REMOVE:
        found += leftovers(inner)
    disk.plan()
    if store is not None:
        # The same store works once the disk does.
        Writer(store, disk, expected).put("a/b/last", letters("9"))
        assert expected.objects["a/b/last"] == [letters("9")]
    found += violations_after_cut(inner, expected, seed + len(EXTREMES))
    return found


def test_a_failed_open_is_a_typed_error_and_can_be_tried_again() -> None:
    for number, at in itertools.product(ERRNOS, range(1, 20)):
        disk = FaultyDisk(SimulatedDisk(), [Failure(at=at, number=number)])
        with suppress(NeveError):
            opened(disk).put("a", b"not yet")
        disk.plan()

        opened(disk).put("a", b"works")

        assert opened(disk).get("a").payload == b"works"


@pytest.mark.parametrize("bytes_max", [1, 7, 511, 1_000])
def test_short_writes_change_nothing(bytes_max: int) -> None:
    for scenario in FAILING_SCENARIOS.values():
        inner = SimulatedDisk()
        disk = FaultyDisk(inner, [ShortWrite(at=1, bytes_max=bytes_max, is_lasting=True)])

        expected, _ = scenario.run(disk)
        undisturbed, _ = scenario.run(SimulatedDisk())

        assert disk.faults > 0
        assert expected == undisturbed
        assert expected.violations(opened(inner)) == []


# The harness itself


def test_a_store_that_writes_in_place_would_be_caught() -> None:
    """A path made first and filled afterwards is found torn by some power cut."""

    def write_in_place(writer: Writer) -> None:
        writer.expected.objects["x"] = [None, letters("1")]
        handle = writer.disk.create_file(f"{ROOT}/x")
        writer.disk.write(handle, [letters("1")], 0)
        writer.disk.sync(handle)
        writer.disk.close(handle)
        writer.disk.sync_directory(ROOT)
        writer.expected.objects["x"] = [letters("1")]

    scenario = Scenario(write_in_place)

    found = [
        violation
        for cut in cut_points(scenario)
        for disk in [SimulatedDisk().power_cut_at(cut)]
        for expected, _ in [scenario.run(disk)]
        for seed in range(20)
        for violation in violations_after_cut(disk, expected, seed)
    ]

    assert found


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_makes_the_same_calls_every_time(name: str) -> None:
    first, second = SimulatedDisk(), SimulatedDisk()

    SCENARIOS[name].run(first)
    SCENARIOS[name].run(second)

    assert first.log == second.log
    assert first.calls > 10


def test_a_missing_object_is_not_taken_for_an_empty_one() -> None:
    store = opened(SimulatedDisk())

    with pytest.raises(NotFound):
        store.get("nothing")
    assert Expected({"nothing": [b""]}).violations(store)
