"""Many processes on one manifest store, at every call of which anything may happen.

One seed is one run: writers, readers, checkpointers and collectors as threads of an `Interleaving`,
each with its own handle of the real store. At every call to the objects another actor may go on,
the actor may die or fall asleep for as long as it takes everybody else to finish, and the answer
may be lost, be late, or belong to a request that is delivered twice. What is late arrives at any
later call, or after the end.

What is checked, on every read and at the end, before and after the late requests have arrived:

    acknowledged   visible from then on, for ever
    refused        never visible
    unknown        visible or not, but whole
    counters       a counter is 1 more for each marker that counted with it: no update is lost, none
                   is applied twice, no phantom is missed, no key comes back after its deletion
    readers        never go back, never see a hole, and what they hold does not change
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol, TypeVar

from neve.errors import Conflict, Corruption, NeveError, OutcomeUnknown, Unavailable
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.sessions import ReadSession, WriteSession
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectInfo, ObjectStore, StoredObject
from neve.testing.interleaving import Interleaving
from neve.testing.simulated_clock import SeededIds, SimulatedClock

T = TypeVar("T")

PREFIX: Final = "m"
SEGMENTS: Final = "m/segments/"
COUNTERS: Final = ("a", "b")
READ_TURNS: Final = 3
UPKEEP_TURNS: Final = 2


class Violation(AssertionError):
    """A promise of the manifest store was broken."""


class Died(BaseException):
    """The actor is gone; not an Exception, so that no code under test handles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """How likely each kind of trouble is, per call."""

    switch: float = 0.5
    fault: float = 0.08
    death: float = 0.003
    sleep: float = 0.03
    sleep_at_slots: float = 0.03
    """Before a segment is read or created, or HEAD is swapped: where sleeping is perilous."""
    waking: float = 0.02
    arrival: float = 0.1

    @classmethod
    def drawn(cls, rng: Random) -> "Weather":
        """Draw the weather of one run, from calm to wild."""
        return cls(
            switch=rng.choice((0.2, 0.5, 1.0)),
            fault=rng.choice((0.0, 0.05, 0.2)),
            death=rng.choice((0.0, 0.002, 0.01)),
            sleep=rng.choice((0.0, 0.02, 0.1)),
            sleep_at_slots=rng.choice((0.0, 0.1, 0.4)),
            waking=rng.choice((0.005, 0.05, 0.2)),
            arrival=rng.choice((0.02, 0.3)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many there are of each role."""

    writers: int
    readers: int
    upkeep: int


CREWS: Final = (
    Crew(writers=2, readers=1, upkeep=2),
    Crew(writers=3, readers=2, upkeep=2),
    Crew(writers=4, readers=2, upkeep=3),
)
# The weather in which a slot is most likely to be created again under a reader's eyes.
DROWSY: Final = Weather(fault=0.0, death=0.0, sleep=0.0, sleep_at_slots=0.3, waking=0.05)


@dataclass(slots=True)
class Ledger:
    """What the writers were told about their markers."""

    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    begun: int = 0

    def check(self, content: dict[str, bytes], *, seen: set[str]) -> None:
        """Hold a content against what it must hold, must not hold, and must agree with."""
        markers = {key for key in content if "/" in key}
        lost = seen - markers
        if lost:
            raise Violation(f"acknowledged or seen, and gone: {sorted(lost)}")
        ghosts = markers & self.refused
        if ghosts:
            raise Violation(f"refused, and there all the same: {sorted(ghosts)}")
        for counter in (*COUNTERS, "scan"):
            numbers = sorted(int(content[key]) for key in markers if key.startswith(f"{counter}/"))
            total = int(content.get(counter, b"0")) if counter in COUNTERS else len(numbers)
            if numbers != list(range(1, total + 1)):
                raise Violation(f"{counter} stands at {total}, counted with as {numbers}")
        tokens = [key for key in content if key.startswith("token")]
        if len(tokens) > 1:
            raise Violation(f"one token was passed on, and there are {tokens}")


class World:
    """One run: the objects, the actors, and the trouble between them."""

    def __init__(
        self, seed: int, *, weather: Weather | None = None, crew: Crew | None = None
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.weather = weather or Weather.drawn(self.rng)
        self.crew = crew or self.rng.choice(CREWS)
        self.objects = MemoryStore()
        self.interleaving = Interleaving(seed)
        self.ledger = Ledger()
        self.late: list[Callable[[], object]] = []
        self.asleep: list[str] = []
        self.kept: list[tuple[ReadSession, dict[str, bytes]]] = []
        self._handles = 0

    def run(self) -> Ledger:
        """Let everybody act, then look; raises Violation."""
        crew = self.crew
        roles = [
            *[("writer", self._write)] * crew.writers,
            *[("reader", self._read)] * crew.readers,
            *[("upkeep", self._keep_up)] * crew.upkeep,
        ]
        # Two writers may be threads of one process, so that their commits meet in its queue.
        shared = self.handle("shared") if self.rng.random() < 0.25 else None
        actors: dict[str, Callable[[], None]] = {}
        for number, (role, act) in enumerate(roles):
            name = f"{role} {number}"
            is_sharing = shared is not None and number < 2
            actors[name] = partial(act, name, shared if is_sharing else None)
        for outcome in self.interleaving.run(actors).values():
            if outcome.error is not None and not isinstance(outcome.error, Died):
                raise outcome.error
        self._look()
        return self.ledger

    def handle(self, name: str) -> ManifestStore:
        """Return one process's handle on the store."""
        self._handles += 1
        return ManifestStore(
            Objects(self, name),
            PREFIX,
            clock=SimulatedClock(),
            ids=SeededIds(self.seed * 1_000 + self._handles),
            options=StoreOptions(commit_seconds=self.rng.choice((0.02, 1.0, 30.0))),
            make_latch=self.interleaving.lock,
        )

    # Actors

    def _write(self, name: str, handle: ManifestStore | None) -> None:
        store = handle or self.handle(name)
        for _ in range(self.rng.choice((1, 2))):
            self.ledger.begun += 1
            counter = self.rng.choice((*COUNTERS, "scan"))
            marker = f"{counter}/{name}.{self.ledger.begun}"
            self.ledger.unknown.add(marker)
            try:
                if self.rng.random() < 0.7:
                    store.transact(partial(count, marker))
                else:
                    session = store.write()
                    count(marker, session)
                    store.commit(session)
            except (Conflict, Unavailable):
                self._told(marker, self.ledger.refused)
            except OutcomeUnknown:
                continue
            else:
                self._told(marker, self.ledger.acknowledged)

    def _told(self, marker: str, outcome: set[str]) -> None:
        self.ledger.unknown.discard(marker)
        outcome.add(marker)

    def _read(self, name: str, _handle: ManifestStore | None) -> None:
        store = self.handle(name)
        seen: set[str] = set()
        segment = 0
        for _ in range(READ_TURNS):
            if self.rng.random() < 0.4:
                store = self.handle(name)
            seen |= self.ledger.acknowledged
            try:
                session = store.open() if self.rng.random() < 0.2 else store.read()
            except (Unavailable, OutcomeUnknown):
                continue
            content = dict(session.scan(""))
            self.ledger.check(content, seen=seen)
            if session.segment < segment:
                raise Violation(f"a reader went back from {segment} to {session.segment}")
            segment = session.segment
            seen |= {key for key in content if "/" in key}
            self.kept.append((session, content))

    def _keep_up(self, name: str, _handle: ManifestStore | None) -> None:
        store = self.handle(name)
        for _ in range(UPKEEP_TURNS):
            with suppress(Unavailable, OutcomeUnknown):
                store.checkpoint()
            with suppress(Unavailable, OutcomeUnknown):
                store.collect_once()

    # The end

    def _look(self) -> None:
        """Open the store as it was left, let what is late arrive, and go on using it."""
        self._look_once()
        self.rng.shuffle(self.late)
        for arrive in self.late:
            arrive()
            if self.rng.random() < 0.3:
                self._look_once()
        self._look_once()
        last = self._calm_handle()
        for turn in range(2):
            marker = f"a/last.{turn}"
            last.transact(partial(count, marker))
            self.ledger.acknowledged.add(marker)
            last.checkpoint()
            last.collect_once()
            self._look_once()

    def _look_once(self) -> None:
        session = self._calm_handle().open()
        self.ledger.check(dict(session.scan("")), seen=self.ledger.acknowledged)
        for held, content in self.kept:
            if dict(held.scan("")) != content:
                raise Violation("what a reader held has changed")

    def _calm_handle(self) -> ManifestStore:
        self._handles += 1
        ids = SeededIds(self.seed * 1_000 + self._handles)
        return ManifestStore(self.objects, PREFIX, clock=SimulatedClock(), ids=ids)


def count(marker: str, session: WriteSession) -> None:
    """Count with a counter, or with a scan, and leave the number in a marker of one's own."""
    counter = marker.partition("/")[0]
    if counter == "scan":
        number = 1 + sum(1 for _ in session.scan("scan/"))
        for key, _ in session.scan("token"):
            session.delete(key)
        session.put(f"token of {marker.replace('/', ' ')}", b"")
    else:
        number = int(session.get(counter) or b"0") + 1
        session.put(counter, b"%d" % number)
    session.put(marker, b"%d" % number)


class Surroundings(Protocol):
    """What befalls the calls of all actors alike."""

    rng: Random
    weather: Weather
    interleaving: Interleaving
    late: list[Callable[[], object]]
    asleep: list[str]

    @property
    def objects(self) -> ObjectStore:
        """The objects themselves, without trouble."""
        ...


class Objects:
    """The objects as one actor reaches them."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self._world = world
        self._name = name
        self._inner = world.objects
        self._is_dead = False

    @property
    def location(self) -> str:
        return self._inner.location

    def get(self, path: str) -> StoredObject:
        is_slot = path.startswith(SEGMENTS)
        return self._read(lambda: self._inner.get(path), is_slot=is_slot)

    def get_if_changed(self, path: str, *, tag: str) -> StoredObject | None:
        return self._read(lambda: self._inner.get_if_changed(path, tag=tag))

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        return self._read(lambda: self._inner.get_range(path, start=start, length=length))

    def size(self, path: str) -> int:
        return self._read(lambda: self._inner.size(path))

    def list(self, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        return self._read(lambda: self._inner.list(prefix, after=after))

    def put(self, path: str, payload: bytes) -> str:
        return self._write(lambda: self._inner.put(path, payload))

    def put_if_absent(self, path: str, payload: bytes) -> str | None:
        is_slot = path.startswith(SEGMENTS)
        return self._write(lambda: self._inner.put_if_absent(path, payload), is_slot=is_slot)

    def put_if_match(self, path: str, payload: bytes, *, tag: str) -> str | None:
        return self._write(lambda: self._inner.put_if_match(path, payload, tag=tag), is_slot=True)

    def delete(self, path: str) -> None:
        self._write(lambda: self._inner.delete(path))

    def _read(self, call: Callable[[], T], *, is_slot: bool = False) -> T:
        if self._meet(is_slot=is_slot):
            raise Unavailable("no answer")
        return call()

    def _write(self, call: Callable[[], T], *, is_slot: bool = False) -> T:
        if not self._meet(is_slot=is_slot):
            return call()
        match self._world.rng.randrange(5):
            case 0:
                raise Unavailable("not sent")
            case 1:
                answer = call()
                self._world.late.append(call)
                return answer
            case 2:
                call()
            case 3:
                self._world.late.append(call)
            case _:
                pass
        raise OutcomeUnknown("no answer")

    def _meet(self, *, is_slot: bool) -> bool:
        """Let the world go on; gives whether this call is struck by a fault."""
        world, weather = self._world, self._world.weather
        rng = world.rng
        if self._is_dead:
            raise Died
        if rng.random() < weather.switch:
            world.interleaving.switch(self._name)
        if world.asleep and rng.random() < weather.waking:
            world.interleaving.wake(world.asleep.pop(rng.randrange(len(world.asleep))))
        if world.late and rng.random() < weather.arrival:
            world.late.pop(rng.randrange(len(world.late)))()
        if rng.random() < (weather.sleep_at_slots if is_slot else weather.sleep):
            self._sleep()
        if rng.random() < weather.death:
            self._is_dead = True
            raise Died
        return rng.random() < weather.fault

    def _sleep(self) -> None:
        world = self._world
        dream = f"the end of {self._name}'s sleep"
        world.asleep.append(dream)
        world.interleaving.wait(dream, has_limit=True)
        with suppress(ValueError):
            world.asleep.remove(dream)


def violation_of(world: World) -> str | None:
    """Let a world run; gives what was broken, None when nothing was."""
    try:
        world.run()
    except (Violation, Corruption) as broken:
        return f"seed {world.seed}: {type(broken).__name__}: {broken}"
    except NeveError as error:
        raise AssertionError(f"seed {world.seed} ended with {error!r}") from error
    return None


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep the threads that are started within on one core, where a baton is passed on faster.

    Each worker of a parallel run has a core of its own, as far as there are enough: two on the same
    would wait for each other at every turn.
    """
    allowed = os.sched_getaffinity(0)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    os.sched_setaffinity(0, {sorted(allowed)[int(worker) % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
