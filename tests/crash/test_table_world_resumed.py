"""A process pauses at any of its calls, another one takes over, and then it goes on.

While it is paused, the table gets a new writer, rows, a rollback, and a whole round of garbage
collection, and so much time passes that its intent ends; only a reader's lease does not. What the
paused one does afterwards must not be accepted, nor delete a file that the reader reads.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from neve.errors import Conflict, NeveError
from neve.manifest.sessions import WriteSession
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import HeadChange, TableHead
from neve.manifest.table_versions import TableVersions
from neve.testing.faulty_store import FaultyStore, StoreCall
from tests.conftest import Record
from tests.crash.table_start import Desk
from tests.crash.table_truth import Job
from tests.crash.table_world import TableWorld
from tests.crash.troubled_world import Violation, Weather
from tests.gates import Gate

CALM = Weather(switch=0.0, fault=0.0, death=0.0, sleep=0.0, sleep_at_slots=0.0)
LEASE_SECONDS = 20_000.0
PAUSE_SECONDS = 1_000.0


class Resumed:
    """One table, one reader, one process that pauses, and one that takes its place."""

    def __init__(self, seed: int, role: str, pause_at: int | None) -> None:
        self.world = TableWorld(seed, weather=CALM)
        self.role = role
        self.pause_at = pause_at
        self.rng = Random(seed)
        self.other = Desk(self.world.objects, self.world.clock, seed=1)
        self.calls = FaultyStore(self.world.objects, before_call=self._pause)
        self.desk = Desk(self.calls, self.world.clock, seed=2)
        self.committed_before_the_pause: set[str] = set()

    def run(self) -> None:
        """Let everything happen; raises Violation."""
        world = self.world
        reader = Desk(world.objects, world.clock, seed=3)
        number = self.rng.choice((2, 3, 4, 5))
        lease = reader.leases.take(number, seconds=LEASE_SECONDS)
        files = paths_of(reader.versions.version(number))
        world.objects.leases.append((lease, files))
        getattr(self, f"_{self.role}")()
        lease.check()
        missing = files - world.objects.files()
        if missing:
            raise Violation(f"a reader with a lease misses {sorted(missing)}")
        committed = set(world.truth.committed.values())
        if world.told.acknowledged - committed:
            raise Violation(f"acknowledged and lost: {world.told.acknowledged - committed}")
        accepted = {"paused-0"} & committed - self.committed_before_the_pause
        if self.pause_at is not None and self.role == "writer" and accepted:
            raise Violation("a writer was accepted after another one took over")

    def _writer(self) -> None:
        epoch = self.other.work.take_over()
        effect = {b"a": b"paused", b"e": None}
        job = Job(job_id="paused", attempt="paused-0", effect=effect, epoch=epoch)
        self.world.attempt(self.desk, job, partial(self.world.upsert, self.desk, job))

    def _compactor(self) -> None:
        job = Job(job_id="paused", attempt="paused-0")
        self.world.attempt(self.desk, job, partial(self.world.rewrite, self.desk, job))

    def _collector(self) -> None:
        with suppress(Conflict):
            self.world.expire(self.desk, keep_last=1)
        with suppress(Conflict):  # it was away for longer than it keeps trying
            self.desk.garbage.delete_garbage(self.desk.objects.delete, find=self.desk.find)

    def _pause(self, call: StoreCall) -> None:
        if call.number != self.pause_at:
            return
        self.committed_before_the_pause = set(self.world.truth.committed.values())
        world, other = self.world, self.other
        epoch = other.work.take_over()
        world.clock.advance(PAUSE_SECONDS)
        for number in range(2):
            job_id = f"other.{number}"
            effect = {b"a": b"other", b"d": b"other"}
            job = Job(job_id=job_id, attempt=f"{job_id}-0", effect=effect, epoch=epoch)
            world.attempt(other, job, partial(world.upsert, other, job))
        newest = other.versions.head().current_version
        restores = Job(job_id="other.2", attempt="other.2-0", restores=newest - 1)
        world.attempt(other, restores, partial(world.roll_back, other, restores))
        world.expire(other, keep_last=self.rng.choice((1, 2)))
        other.garbage.delete_garbage(other.objects.delete, find=other.find)


def resume_everywhere(seed: int, gate: Gate) -> None:
    """Pause at each call of each role in turn."""
    for role in ("writer", "compactor", "collector"):
        whole = Resumed(seed, role, None)
        whole.run()
        for pause_at in range(1, len(whole.calls.calls) + 1):
            resumed = Resumed(seed, role, pause_at)
            try:
                resumed.run()
            except NeveError as error:
                raise AssertionError(f"seed {seed}, {role} paused at {pause_at}") from error
            gate.cases += 1


def test_who_resumes_after_a_takeover_changes_nothing_and_deletes_no_leased_file(
    scoreboard: Record,
) -> None:
    gate = Gate(
        "R17 resumed after a takeover: accepted commits, lost rows, deleted leased files",
        aim=1_000,
        full=50_000,
    )

    for seed in gate.seeds():
        resume_everywhere(seed, gate)

    scoreboard(gate.line())
    assert gate.cases


def without_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    check_asked = TableVersions._check_asked

    def check(
        self: TableVersions, session: WriteSession, head: TableHead, asked: HeadChange
    ) -> None:
        check_asked(self, session, head, replace(asked, writer_epoch=None, intent_id=None))

    monkeypatch.setattr(TableVersions, "_check_asked", check)


def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.manifest.leases.Leases._paths", lambda _: [])


@pytest.mark.parametrize("mutate", [without_epochs, without_leases])
def test_a_table_without_fences_is_caught(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)

    with pytest.raises(Violation):
        resume_everywhere(0, Gate("", 1, 1))
