"""Jobs, a live writer and a compaction as processes of their own, any of which may die at any call.

One seed is one run. Whatever happens, each job is in the table once or not at all, the table is
what the committed jobs made it in the order of their Versions, each key has one live row, and what
the dead left behind is garbage that is found.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import cast

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.compaction.policy import full_plan
from neve.engine.rewrite import Execution, Rewrite
from neve.errors import Conflict
from neve.jobs.run import BulkOutcome, JobBase, JobIdentity
from neve.manifest.commit import TableCommitter
from neve.manifest.table_garbage import paths_of
from neve.manifest.table_head import HeadChange
from neve.observability.events import ignore
from neve.observability.metrics import NoRecorder
from neve.storage.memory_store import MemoryStore
from neve.storage.object_store import ObjectStore
from neve.table.table_context import TableParts
from neve.testing.clean_reader import CleanReader
from neve.testing.interleaving import Interleaving, Outcome
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.crash.troubled_world import Died
from tests.unit.jobs.bulk_jobs import Jobs

COLUMNS: Mapping[str, pa.DataType] = {"id": pa.int64(), "v": pa.int64(), "text": pa.string()}
SEEDS = 24
DAY_SECONDS = 24 * 60 * 60


class Mortal:
    """The objects as one process sees them, until it dies."""

    def __init__(self, objects: ObjectStore, interleaving: Interleaving, lifetime: int) -> None:
        self._objects = objects
        self._interleaving = interleaving
        self._left = lifetime
        self.is_over = False

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._objects, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: object, **named: object) -> object:
            if self.is_over:
                return attribute(*arguments, **named)
            self._left -= 1
            if self._left < 0:
                raise Died
            self._interleaving.switch(name)
            answer = attribute(*arguments, **named)
            if self._left == 0:
                raise Died  # it has happened, but nobody hears of it
            return answer

        return call


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.clock = SimulatedClock()
        self.objects = MemoryStore()
        self.interleaving = Interleaving(seed)
        self.effects: dict[str, dict[int, int | None]] = {}
        self.processes = 0
        self.mortals: list[Mortal] = []
        self.opened: list[Lake] = []
        with self.catalog(self.objects) as lake:
            table = lake.create_table(
                "a.b",
                pa.schema(COLUMNS),
                ["id"],
                partition_by=self.rng.choice([(), ("bucket(2, id)",)]),
                options=neve.TableOptions(background=False),
            )
            table.upsert([row(number, 0) for number in range(8)])
            table.flush()
            self.start = table.version

    def catalog(self, objects: object) -> Lake:
        self.processes += 1
        ids = SeededIds(self.seed * 100 + self.processes)
        return Lake(cast("ObjectStore", objects), clock=self.clock, ids=ids)

    def born(self) -> Lake:
        """Open the warehouse in a process that may die."""
        lifetime = self.rng.randint(20, 250) if self.rng.random() < 0.5 else 1_000_000
        objects = Mortal(self.objects, self.interleaving, lifetime)
        self.mortals.append(objects)
        lake = self.catalog(objects)
        self.opened.append(lake)
        return lake

    def end(self) -> None:
        """Let go of what the dead had open, which no operating system does here."""
        for objects in self.mortals:
            objects.is_over = True
        for lake in self.opened:
            with suppress(neve.NeveError):
                lake.close()

    def parts(self, lake: Lake) -> TableParts:
        table = lake.load_table("a.b")
        return table.stored.parts(table.properties, recorder=NoRecorder(), listener=ignore)

    def told(self, name: str, state: Mapping[int, int]) -> dict[int, int | None]:
        """Return the changes that a job makes to some rows."""
        if name == "decided":
            return {n: state[n] + 1_000 for n in self.effects[name] if n in state}
        effect = self.effects[name]
        return {n: v for n, v in effect.items() if v is not None or n in state}

    def job(self, name: str) -> None:
        """Run a job, and once more as if nobody knew how the first run ended."""
        effect = self.effects[name]
        for _ in range(2):
            jobs = Jobs(self.parts(self.born()))
            identity = JobIdentity(job_id=name)
            if jobs.committer.find_committed(identity) is not None:
                continue
            run = jobs.committer.begin(identity, deadline_seconds=3_600)
            new = [row(number, v) for number, v in effect.items() if v is not None]
            work = jobs.written(run, new) if new else jobs.deleted(run, list(effect))
            jobs.committer.commit(run, work)

    def decide(self, name: str) -> None:
        """Add to rows that are there, and decide again when they changed."""
        jobs = Jobs(self.parts(self.born()))
        for _ in range(20):
            run = jobs.committer.begin(JobIdentity(job_id=name), deadline_seconds=3_600)
            base = JobBase(jobs.parts, run.run, run.base)
            keys = base.context.encoder.encode_arrays([pa.array(list(self.effects[name]))])
            found, _ = base.view.get_many(keys, 0)
            rows = [row(each["id"], each["v"] + 1_000) for each in found.to_pylist()]
            work = replace(jobs.written(run, rows), seen_keys=(keys,))
            try:
                jobs.committer.commit(run, work, decided=True)
            except Conflict:
                continue
            return

    def compact(self) -> None:
        parts = self.parts(self.born())
        jobs = Jobs(parts)
        run = jobs.committer.begin(deadline_seconds=3_600)
        base = JobBase(parts, run.run, run.base)
        rewrite = Rewrite(
            base.files,
            TableCommitter(parts.versions, parts.writer_state, clock=parts.clock, ids=parts.ids),
            run=run.run,
        )
        here = Execution(progress=lambda _rows: None, check_cancelled=lambda: None)
        plans = full_plan(base.version, neve.TableOptions().level_options)
        rewrite.run(plans, base.context, base.version.facts, here, HeadChange())
        parts.writer_state.release_intent(run.run.digits)

    def write_live(self) -> None:
        lake = self.born()
        table = lake.table("a.b", options=neve.TableOptions(background=False))
        for step in range(2):
            name = f"live{step}"
            table.upsert([row(n, cast("int", v)) for n, v in self.effects[name].items()])
            table.flush()


def row(number: int, v: int) -> dict[str, object]:
    return {"id": number, "v": v, "text": "t"}


def drawn(rng: Random, v: int, *, may_delete: bool = True) -> dict[int, int | None]:
    is_delete = may_delete and rng.random() < 0.3
    numbers = rng.sample(range(12), rng.randint(1, 5))
    return dict.fromkeys(numbers, None if is_delete else v)


def changes_by_version(table: neve.Table, since: int) -> dict[int, dict[int, int | None]]:
    """Return what each commit did to rows, as the table itself tells it."""
    found: dict[int, dict[int, int | None]] = {}
    for change in table.changes(since=since).read_all().to_pylist():
        if change["_change_type"] != "update_preimage":
            is_gone = change["_change_type"] == "delete"
            commit = found.setdefault(change["_commit_version"], {})
            commit[change["id"]] = None if is_gone else change["v"]
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_jobs_are_in_the_table_once_and_in_order_whoever_dies(seed: int) -> None:
    world = World(seed)
    rng = world.rng
    actors: dict[str, Callable[[], None]] = {}
    for number in range(3):
        name = f"job{number}"
        world.effects[name] = drawn(rng, 10 + number)
        actors[name] = partial(world.job, name)
    world.effects["decided"] = drawn(rng, 0, may_delete=False)
    actors["decided"] = partial(world.decide, "decided")
    for step in range(2):
        world.effects[f"live{step}"] = drawn(rng, 20 + step, may_delete=False)
    actors["live"] = world.write_live
    actors["compaction"] = world.compact
    outcomes: dict[str, Outcome[None]] = world.interleaving.run(actors)
    for name, outcome in outcomes.items():
        if outcome.error is not None and not isinstance(outcome.error, Died):
            raise AssertionError(f"{name} of seed {seed} failed") from outcome.error
    try:
        look(world, {name for name, outcome in outcomes.items() if outcome.error is None})
    finally:
        world.end()


def look(world: World, ended: set[str]) -> None:
    """Compare the table with what the committed jobs did, and its files with what it reaches."""
    # The operating system frees the lock of a process that died.
    world.objects._contents.locked_paths.clear()
    with world.catalog(world.objects) as lake:
        table = lake.table("a.b", options=neve.TableOptions(background=False))
        jobs = Jobs(table._open.engine.parts)
        committed: dict[str, BulkOutcome] = {}
        for name in ("job0", "job1", "job2", "decided"):
            found = jobs.committer.find_committed(JobIdentity(job_id=name))
            if found is not None:
                committed[name] = found
            assert found is not None or name not in ended, f"{name} of seed {world.seed} is lost"
        changes = changes_by_version(table, world.start)
        state: dict[int, int] = dict.fromkeys(range(8), 0)
        for number in sorted({*changes, *(outcome.version for outcome in committed.values())}):
            # One of them made the Version, or somebody else did. A job that has nothing to do at
            # its commit makes none: it is noted at the one that was there.
            names = [name for name, outcome in committed.items() if outcome.version == number]
            made = changes.get(number, {})
            makers = [name for name in names if made and world.told(name, state) == made][:1]
            for n, v in made.items():
                if v is None:
                    del state[n]
                else:
                    state[n] = v
            for name in set(names).difference(makers):
                assert world.told(name, state) == {}, f"{name} of seed {world.seed}"
        stored = table._open.stored
        version = stored.versions.snapshot_latest().version
        clean = CleanReader(stored.objects, stored.paths.root, ["id"]).rows(version)
        assert {each["id"]: each["v"] for each in clean.values()} == state
        table.verify()
        world.clock.advance(DAY_SECONDS)
        table.collect_garbage(dry_run=False)
        table.expire(keep_last=1)
        table.collect_garbage(dry_run=False)
        assert lying(stored.objects, stored.paths.root) == paths_of(
            stored.versions.snapshot_latest().version
        )
        table.close()


def lying(objects: ObjectStore, root: str) -> set[str]:
    return {
        info.path.removeprefix(f"{root}/")
        for folder in ("data", "deletes")
        for info in objects.list(f"{root}/{folder}/")
    }
