"""Many processes on one table, at every call of which anything may happen.

One seed is one run: writers that carry their changes over each other's, compactors, rollbacks,
tags and consumers, readers with leases, and collectors, as threads of an `Interleaving`, each with
its own handle of the real code. At every call to the objects another actor may go on, the actor may
die or fall asleep, the answer may be lost, be late or belong to a request that is delivered twice,
and time may pass: leases and intents end while their holders sleep. Clocks differ, by less than
they may.

`Truth` checks each commit and each deletion when it happens. Checked here, besides:

    acknowledged   in the history once
    refused        never in it
    readers        find every file for as long as they may rely on their lease
    in the end     when everybody is gone and late requests have arrived, garbage collection leaves
                   the files that retained Versions reach, and no others
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from pyroaring import BitMap64

from neve.errors import (
    AlreadyExists,
    Conflict,
    Fenced,
    NotFound,
    OutcomeUnknown,
    Unavailable,
)
from neve.manifest.leases import HeldLease
from neve.manifest.rebase import Proposal
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import HeadChange
from neve.manifest.writer_state import Intent
from neve.model.data_file import DataFile, VectorRef
from neve.model.version import Operation, Version, VersionEdit
from neve.testing.model_rows import keys_of
from neve.testing.simulated_clock import SimulatedClock
from tests.crash.table_start import KEYS, Desk, SkewedClock, facts_of, start
from tests.crash.table_truth import Job, WatchedStore, attempt_of
from tests.crash.troubled_world import Objects, TroubledWorld, Violation, Weather

T = TypeVar("T")

LEASE_SECONDS: Final = (10.0, 60.0)
SKEW_MS_MAX: Final = 900
"""Two clocks differ by less than a fifth of the shortest lease."""
INTENT_SECONDS: Final = (3, 30, 600)
GAVE_UP: Final = (Conflict, Unavailable, OutcomeUnknown)
DAY_SECONDS: Final = 24 * 60 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many there are of each role."""

    writers: int = 2
    compactors: int = 1
    clerks: int = 1
    readers: int = 1
    collectors: int = 1


CREWS: Final = (
    Crew(),
    Crew(writers=1, readers=2, collectors=2),
    Crew(writers=3, clerks=0, collectors=1),
    Crew(writers=1, compactors=2, readers=1, collectors=2),
)


@dataclass(slots=True)
class Told:
    """What the actors were told about their attempts, and how often things happened."""

    acknowledged: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    reads: int = 0
    fenced_reads: int = 0
    deletions: int = 0


class TableWorld(TroubledWorld):
    """One run: the table, the actors, and the trouble between them."""

    objects: WatchedStore

    def __init__(
        self, seed: int, *, weather: Weather | None = None, crew: Crew | None = None
    ) -> None:
        super().__init__(seed, weather)
        self.crew = crew or self.rng.choice(CREWS)
        self.passing = self.rng.choice((0.0, 0.02, 0.1))
        """How likely it is, per call, that time passes."""
        self.clock = SimulatedClock()
        self.told = Told()
        self.jobs: dict[str, Job] = {}
        began = start()
        self.rows = began.rows.copy()
        self.truth = began.truth.copy(self.rows, self.jobs)
        self.objects = began.objects.copy(self.truth)

    def run(self) -> Told:
        """Let everybody act, then look; raises Violation."""
        crew = self.crew
        roles = [
            *[("writer", self._write)] * crew.writers,
            *[("compactor", self._compact)] * crew.compactors,
            *[("clerk", self._keep_books)] * crew.clerks,
            *[("reader", self._read)] * crew.readers,
            *[("collector", self._collect)] * crew.collectors,
        ]
        actors: dict[str, Callable[[], None]] = {}
        for number, (role, act) in enumerate(roles):
            name = f"{role}{number}"
            actors[name] = partial(act, name)
        try:
            self.let_act(actors)
        finally:
            # Why an actor ended may be a mere consequence of it.
            if self.objects.violation is not None:
                raise self.objects.violation
        self._look()
        return self.told

    def desk(self, name: str) -> Desk:
        """Return one process's handles."""
        skew_ms = self.rng.randrange(-SKEW_MS_MAX, SKEW_MS_MAX)
        desk = Desk(
            TimedObjects(self, name),
            SkewedClock(self.clock, skew_ms),
            self.seed_of_next_process(),
            patience=self.rng.choice((5.0, 60.0, 600.0)),
        )
        if self.rng.random() < 0.8:
            desk.store._known = start().known  # it has been at work before
        return desk

    # Jobs.

    def attempt(self, desk: Desk, job: Job, act: Callable[[], object]) -> bool:
        """Do what a job does in the end; gives whether it may be tried again."""
        self.jobs[job.attempt] = job
        self.truth.latest[job.job_id] = job.attempt
        self.told.unknown.add(job.attempt)
        try:
            act()
        except (Conflict, Fenced, NotFound, AlreadyExists, Unavailable):
            self._answer(job, self.told.refused)
        except OutcomeUnknown:
            return True
        else:
            self._answer(job, self.told.acknowledged)
            return False
        if self.rng.random() < 0.7:
            with suppress(*GAVE_UP):
                desk.work.release_intent(job.job_id)
        return True

    def _answer(self, job: Job, outcome: set[str]) -> None:
        self.told.unknown.discard(job.attempt)
        outcome.add(job.attempt)

    def _announce(self, desk: Desk, job: Job) -> None:
        seconds = self.rng.choice(INTENT_SECONDS)
        desk.work.register_intent(
            Intent(
                job_id=job.job_id,
                prefixes=job.prefixes,
                deadline_ms=desk.clock.now_ms() + seconds * 1_000,
            )
        )

    def _store(self, desk: Desk, path: str) -> None:
        """Write a file as a job does: again when there was no answer."""
        for _ in range(2):
            with suppress(*GAVE_UP):
                desk.objects.put(path, b"rows")
                return
        desk.objects.put(path, b"rows")

    def _commit(self, desk: Desk, job: Job, proposal: Proposal) -> None:
        written = 0

        def write_vectors(whole: Mapping[str, BitMap64]) -> Mapping[str, VectorRef]:
            nonlocal written
            written += 1
            path = f"deletes/{job.attempt}-{written}.puffin"
            self._store(desk, path)
            return self.rows.name_vectors(path, whole)

        change = HeadChange(job_id=job.job_id, intent_id=job.job_id, writer_epoch=job.epoch)
        committed = desk.committer.commit_proposal(
            proposal, change, lookup=self.rows.writing(write_vectors)
        )
        if committed.is_repeat:
            # An attempt before got through; this one's files are garbage.
            self._answer(job, self.told.refused)
            with suppress(*GAVE_UP):
                desk.work.release_intent(job.job_id)
            raise Conflict("committed before")

    # Actors.

    def _write(self, name: str) -> None:
        desk = self.desk(name)
        epoch = None
        if self.rng.random() < 0.3:
            with suppress(*GAVE_UP):
                epoch = desk.work.take_over()
        for number in range(self.rng.choice((1, 2))):
            for attempt in range(2):
                job_id = f"{name}.{number}"
                job = Job(
                    job_id=job_id,
                    attempt=f"{job_id}-{attempt}",
                    effect=self._drawn_effect(f"{job_id}-{attempt}"),
                    epoch=epoch,
                )
                if not self.attempt(desk, job, partial(self.upsert, desk, job)):
                    break

    def _drawn_effect(self, value: str) -> dict[bytes, bytes | None]:
        keys = self.rng.sample(KEYS, self.rng.choice((1, 2, 3)))
        return {key: None if self.rng.random() < 0.2 else value.encode() for key in keys}

    def upsert(self, desk: Desk, job: Job) -> None:
        version = desk.versions.snapshot_latest().version
        self._announce(desk, job)
        new = {key: value for key, value in job.effect.items() if value is not None}
        keys = keys_of(job.effect)
        added: tuple[DataFile, ...] = ()
        if new:
            added = (self.rows.add_file(f"data/{job.attempt}.parquet", new),)
            self._store(desk, added[0].path)
        marked = {
            path: positions
            for path, file in version.files.items()
            if (positions := self.rows.live_positions(file, keys))
        }
        self._commit(
            desk,
            job,
            Proposal(
                base=version.number,
                facts=facts_of(Operation.OVERWRITE, job.attempt),
                added=added,
                marked=marked,
                keys=(keys,),
            ),
        )

    def _compact(self, name: str) -> None:
        desk = self.desk(name)
        for attempt in range(self.rng.choice((1, 2))):
            job = Job(job_id=name, attempt=f"{name}-{attempt}")
            if not self.attempt(desk, job, partial(self.rewrite, desk, job)):
                break

    def rewrite(self, desk: Desk, job: Job) -> None:
        number = desk.versions.head().current_version
        lease = desk.leases.take(number, seconds=self.rng.choice(LEASE_SECONDS))
        version = desk.versions.version(number)
        self._announce(desk, job)
        inputs = list(version.files.values())
        level = 1
        if len(inputs) > 2 and self.rng.random() < 0.5:
            inputs = self.rng.sample(inputs, 2)
            level = 0
        merged: dict[bytes, bytes] = {}
        for file in inputs:
            self._look_at(desk, lease, file.path)
            merged |= self.rows.live_rows_of(file)
        added: tuple[DataFile, ...] = ()
        if merged:
            path = f"data/{job.attempt}.parquet"
            added = (self.rows.add_file(path, merged, level=level),)
            self._store(desk, path)
        self._commit(
            desk,
            job,
            Proposal(
                base=number,
                facts=facts_of(Operation.REPLACE, job.attempt),
                added=added,
                removed=tuple(file.path for file in inputs),
            ),
        )
        with suppress(*GAVE_UP):
            lease.release()

    def _keep_books(self, name: str) -> None:
        desk = self.desk(name)
        for turn in range(2):
            choice = self.rng.random()
            if choice < 0.4:
                number = self._some_number(desk)
                job = Job(job_id=f"{name}.{turn}", attempt=f"{name}.{turn}-0", restores=number)
                self.attempt(desk, job, partial(self.roll_back, desk, job))
                continue
            with suppress(NotFound, *GAVE_UP):
                if choice < 0.6:
                    desk.work.tag("x", self._some_number(desk))
                elif choice < 0.7:
                    desk.work.remove_tag("x")
                else:
                    self._consume(desk)

    def _consume(self, desk: Desk) -> None:
        """Read the changes as a consumer does, which sometimes dies before it has read all."""
        if self.rng.random() < 0.2:
            desk.work.drop_consumer("c")
            return
        consumer = desk.work.begin_consumer("c")
        newest = desk.versions.head().current_version
        session = desk.store.read()
        for number in range(consumer.position + 1, newest + 1):
            try:
                desk.versions.edit_in(session, number)
            except NotFound as error:
                # Another one of the same name has read it, or dropped the consumer.
                known = {each.name: each for each in desk.work.consumers_in(session)}
                if "c" in known and known["c"].position < number:
                    raise Violation(f"a consumer at {consumer.position} lost {number}") from error
                return
        if self.rng.random() < 0.8:
            desk.work.advance_consumer(consumer, newest)

    def _some_number(self, desk: Desk) -> int:
        with suppress(*GAVE_UP):
            newest = desk.versions.head().current_version
            return max(1, newest - self.rng.choice((0, 1, 1, 2, 3)))
        return 3

    def roll_back(self, desk: Desk, job: Job) -> None:
        assert job.restores is not None
        target = desk.versions.version(job.restores)
        current = desk.versions.snapshot_latest().version
        edit = VersionEdit(
            base=current.number,
            facts=facts_of(Operation.ROLLBACK, job.attempt),
            removed=tuple(current.files),
            added=tuple(target.files.values()),
        )
        change = HeadChange(job_id=job.job_id, restored_version=job.restores)
        desk.versions.apply_version_edits([edit], change)

    def _read(self, name: str) -> None:
        desk = self.desk(name)
        for _ in range(2):
            number = self._some_number(desk)
            try:
                lease = desk.leases.take(number, seconds=self.rng.choice(LEASE_SECONDS))
                version = desk.versions.version(number)
            except (NotFound, *GAVE_UP):
                continue
            if version != self.truth.versions[number]:
                raise Violation(f"a reader sees version {number} otherwise than it is")
            self._scan(desk, lease, version)

    def _scan(self, desk: Desk, lease: HeldLease, version: Version) -> None:
        files = sorted(paths_of(version))
        pin = (lease, set(files))
        self.objects.leases.append(pin)
        try:
            for path in self.rng.choices(files, k=self.rng.choice((2, 4, 9))) if files else ():
                self._look_at(desk, lease, path)
                self.told.reads += 1
            self.objects.leases.remove(pin)
            lease.release()
        except Fenced:
            self.told.fenced_reads += 1
        except GAVE_UP:
            pass

    def _look_at(self, desk: Desk, lease: HeldLease, path: str) -> None:
        """Read a file under a lease; raises Fenced, and Violation for a file that is missing."""
        lease.check()
        with suppress(Unavailable):
            try:
                desk.objects.size(path)
            except NotFound as error:
                lease.check()
                raise Violation(f"{path} is gone under a lease") from error

    def _collect(self, name: str) -> None:
        desk = self.desk(name)
        for _ in range(2):
            if self.rng.random() < 0.3:
                with suppress(*GAVE_UP):
                    desk.store.checkpoint()
            with suppress(*GAVE_UP):
                self.expire(desk, keep_last=self.rng.choice((1, 1, 2, 3)))
            with suppress(*GAVE_UP):
                self.told.deletions += desk.garbage.delete_garbage(
                    desk.objects.delete, find=desk.find
                )

    def expire(self, desk: Desk, *, keep_last: int) -> None:
        plan = desk.garbage.compute_gc_plan(keep_last=keep_last, older_than_ms=1 << 60)
        desk.garbage.apply_gc_plan(plan)

    # The end.

    def _look(self) -> None:
        """Let what is late arrive, collect all garbage, and hold the table against the truth."""
        self.rng.shuffle(self.late)
        for arrive in self.late:
            arrive()
        self.clock.advance(3_600)
        self.objects.leases.clear()
        desk = Desk(self.objects, self.clock, self.seed * 1_000 + 999)
        desk.store.open()
        committed = set(self.truth.committed.values())
        lost = self.told.acknowledged - committed
        ghosts = self.told.refused & committed
        if lost or ghosts:
            raise Violation(f"acknowledged and lost: {lost}; refused and committed: {ghosts}")
        if desk.versions.snapshot_latest().version != self.truth.versions[max(self.truth.versions)]:
            raise Violation("the newest version is not what was committed")
        self.expire(desk, keep_last=1)
        desk.garbage.delete_garbage(desk.objects.delete, find=desk.find)
        self.clock.advance(DAY_SECONDS)  # for so long, files of jobs that gave up are looked for
        desk.garbage.delete_garbage(desk.objects.delete, find=desk.find)
        missing = self.truth.reach - self.objects.files()
        if missing:
            raise Violation(f"files of retained versions are gone: {sorted(missing)}")
        unreachable = self.objects.files() - self.truth.reach
        forgotten = [path for path in unreachable if not self._may_stay(path)]
        if forgotten or self.truth.leftovers():
            raise Violation(f"never deleted: {sorted(forgotten)} {self.truth.leftovers()}")

    def _may_stay(self, path: str) -> bool:
        """Whether nothing can know of the file: a late request wrote it again, behind its deletion,
        or a job that committed wrote it in a race that it lost.
        """
        is_committed = attempt_of(path) in self.truth.committed.values()
        return is_committed and (path.startswith("deletes/") or path in self.objects.revived)


class TimedObjects(Objects):
    """The objects as one actor reaches them, while time passes."""

    def __init__(self, world: TableWorld, name: str) -> None:
        super().__init__(world, name)
        self._table_world = world

    def _read(self, call: Callable[[], T], *, is_slot: bool = False) -> T:
        # A job gives up when it cannot read: if every fault struck, few would come to their commit.
        if self._meet(is_slot=is_slot) and self._table_world.rng.random() < 0.2:
            raise Unavailable("no answer")
        return call()

    def _meet(self, *, is_slot: bool) -> bool:
        world = self._table_world
        if world.rng.random() < world.passing:
            world.clock.advance(world.rng.choice((0.5, 2.0, 7.0, 40.0)))
        return super()._meet(is_slot=is_slot)
