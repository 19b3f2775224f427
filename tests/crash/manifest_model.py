"""Many processes on one manifest store, at every call of which anything may happen.

One seed is one run: writers, readers, checkpointers and collectors as threads of an `Interleaving`,
each with its own handle of the real store, and with the trouble of `tests.crash.troubled_world`.

What is checked, on every read and at the end, before and after the late requests have arrived:

    acknowledged   visible from then on, for ever
    refused        never visible
    unknown        visible or not, but whole
    counters       a counter is 1 more for each marker that counted with it: no update is lost, none
                   is applied twice, no phantom is missed, no key comes back after its deletion
    readers        never go back, never see a hole, and what they hold does not change
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from neve.errors import Conflict, OutcomeUnknown, Unavailable
from neve.manifest.manifest_store import ManifestStore, StoreOptions
from neve.manifest.sessions import ReadSession, WriteSession
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SimulatedClock
from tests.crash.troubled_world import PREFIX, Objects, TroubledWorld, Violation, Weather

T = TypeVar("T")

COUNTERS: Final = ("a", "b")
READ_TURNS: Final = 3
UPKEEP_TURNS: Final = 2


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


class World(TroubledWorld):
    """One run: the objects, the actors, and the trouble between them."""

    objects: MemoryStore

    def __init__(
        self, seed: int, *, weather: Weather | None = None, crew: Crew | None = None
    ) -> None:
        super().__init__(seed, weather)
        self.crew = crew or self.rng.choice(CREWS)
        self.objects = MemoryStore()
        self.ledger = Ledger()
        self.kept: list[tuple[ReadSession, dict[str, bytes]]] = []

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
        self.let_act(actors)
        self._look()
        return self.ledger

    def handle(self, name: str) -> ManifestStore:
        """Return one process's handle on the store."""
        return ManifestStore(
            Objects(self, name),
            PREFIX,
            clock=SimulatedClock(),
            ids=self.ids_of_next_process(),
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
        ids = self.ids_of_next_process()
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
