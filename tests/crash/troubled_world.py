"""A world in trouble: many processes on one store, at every call of which anything may happen.

At every call to the objects another actor may go on, the actor may die or fall asleep for as long
as it takes everyone else to finish, and the answer may be lost, be late, or belong to a request
that is delivered twice. What is late arrives at any later call, or after the end. One seed is one
run.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from neve.errors import Corruption, NeveError, OutcomeUnknown, Unavailable
from neve.storage.object_store import ObjectInfo, ObjectStore, StoredObject
from neve.testing.interleaving import Interleaving
from neve.testing.simulated_clock import SeededIds

T = TypeVar("T")

PREFIX: Final = "m"
SEGMENTS: Final = "m/segments/"


class Violation(AssertionError):
    """A promise was broken."""


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


class TroubledWorld(ABC):
    """One run: the actors, and the trouble between them."""

    objects: ObjectStore
    """The objects themselves, without trouble."""

    def __init__(self, seed: int, weather: Weather | None) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.weather = weather or Weather.drawn(self.rng)
        self.interleaving = Interleaving(seed)
        self.late: list[Callable[[], object]] = []
        self.asleep: list[str] = []
        self._processes = 0

    @abstractmethod
    def run(self) -> object:
        """Let all actors act, then look; raises Violation."""

    def seed_of_next_process(self) -> int:
        """Return the seed of one more process of this run."""
        self._processes += 1
        return self.seed * 1_000 + self._processes

    def ids_of_next_process(self) -> SeededIds:
        """Return the identifiers that one more process draws."""
        return SeededIds(self.seed_of_next_process())

    def let_act(self, actors: Mapping[str, Callable[[], None]]) -> None:
        """Run the actors to their ends; raises what ended one, unless it died."""
        for outcome in self.interleaving.run(actors).values():
            if outcome.error is not None and not isinstance(outcome.error, Died):
                raise outcome.error


class Objects:
    """The objects as one actor reaches them."""

    def __init__(self, world: TroubledWorld, name: str) -> None:
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
        """Let the world go on; return whether this call is struck by a fault."""
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


def violation_of(world: TroubledWorld) -> str | None:
    """Let a world run; return what was broken, None when nothing was."""
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
