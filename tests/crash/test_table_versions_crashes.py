"""A table's Versions under power cuts: create, commit, tag, consume, expire, collect, checkpoint.

The life knows what was acknowledged and what was under way. After a power cut the table may be as
acknowledged, or one step further; nothing else. Data files are real objects, so that deleting one
that a Version reaches is seen.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random

from neve.errors import Conflict, NeveError, NotFound
from neve.manifest.table_head import HeadChange
from neve.manifest.writer_state import Intent
from neve.model.version import Operation, Version, VersionEdit
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.gates import Gate
from tests.unit.manifest.builders import (
    TableBench,
    data_file,
    edit_of,
    path_of,
    vector_ref,
)

Record = Callable[[str], None]
Shape = Mapping[str, int]
"""Marked rows by data file: what is compared of a Version."""

ROOT = "/disk/lake"
CUTS_PER_LIFE = 6
CHOICES_PER_CUT = 4


class Violation(AssertionError):
    """A promise of the table was broken."""


def shape_of(version: Version) -> Shape:
    return {path: file.deleted_count for path, file in version.files.items()}


@dataclass
class Promised:
    """One state that the table may be found in."""

    shapes: dict[int, Shape] = field(default_factory=dict)
    """Of Versions that are there: from the oldest to the current one, and tagged ones."""
    oldest: int = 0
    tags: dict[str, int] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    """Positions, by name."""
    epoch: int = 0
    jobs: set[str] = field(default_factory=set)

    @property
    def current(self) -> int:
        return max(self.shapes, default=0)


@dataclass
class Life:
    """What processes did to the table and were told, across power cuts."""

    acknowledged: Promised = field(default_factory=Promised)
    under_way: Promised | None = None
    files_named: int = 0
    openings: int = 0

    def begin(self) -> Promised:
        """Return the state that the next step leads to, for the step to describe."""
        self.under_way = deepcopy(self.acknowledged)
        return self.under_way

    def end(self) -> None:
        assert self.under_way is not None
        self.acknowledged, self.under_way = self.under_way, None

    def take_back(self) -> None:
        """The step was refused: it certainly did nothing."""
        self.under_way = None


def open_bench(disk: Disk, life: Life, seed: int) -> TableBench:
    # Every process on one disk draws other ids, as processes do.
    life.openings += 1
    own_seed = 2 * (seed * 1_000 + life.openings)
    clock = SimulatedClock()
    store = LocalStore(ROOT, disk=disk, ids=SeededIds(own_seed), clock=clock)
    return TableBench(store, clock=clock, seed=own_seed + 1)


def check_table(disk: Disk, life: Life, seed: int = 0) -> TableBench:
    """Open the table and hold it against the life, which then knows what it found."""
    bench = open_bench(disk, life, seed)
    try:
        bench.store.open()
        found = read_table(bench, life)
    except NeveError as error:
        raise Violation(f"the table cannot be read: {error}") from error
    if found not in (life.acknowledged, life.under_way):
        raise Violation(f"found {found}, acknowledged {life.acknowledged}, or {life.under_way}")
    life.acknowledged, life.under_way = found, None
    return bench


def read_table(bench: TableBench, life: Life) -> Promised:
    try:
        head = bench.versions.head()
    except NotFound:
        return Promised()
    versions = {version.number: version for version in bench.versions.list_versions()}
    session = bench.store.read()
    tags = bench.work.tags()
    versions |= {number: bench.versions.version(number) for number in tags.values()}
    if bench.versions.snapshot_latest().version != versions[head.current_version]:
        raise Violation("the head and the versions disagree")
    for version in versions.values():
        for path in version.files:
            if bench.objects.size(path) != version.files[path].file_bytes:
                raise Violation(f"{path} of version {version.number} is not whole")
    jobs = life.acknowledged.jobs | (life.under_way.jobs if life.under_way else set())
    return Promised(
        shapes={number: shape_of(version) for number, version in versions.items()},
        oldest=head.oldest_version,
        tags=tags,
        consumers={each.name: each.position for each in bench.work.consumers_in(session)},
        epoch=head.writer_epoch,
        jobs={job for job in jobs if bench.versions.committed_before(HeadChange(job_id=job))},
    )


def live(disk: Disk, life: Life, seed: int, *, steps: int = 9) -> None:
    """Open what is there, then commit, tag, expire and collect as the seed says."""
    rng = Random(seed)
    bench = check_table(disk, life, seed)
    if not life.acknowledged.current:
        promised = life.begin()
        promised.shapes[1] = {}
        promised.oldest = 1
        bench.create()
        life.end()
    acts = (
        *(commit, commit, commit, commit_job, tag, remove_tag, consume, consume, drop_consumer),
        *(expire, expire, delete, take_over),
    )
    for _ in range(steps):
        rng.choice(acts)(bench, life, rng)
        if rng.random() < 0.25:
            bench.checkpoint_and_collect()


def script(disk: Disk, life: Life, seed: int) -> None:
    """Take every kind of step once, in an order in which each has something to do."""
    rng = Random(seed)
    live(disk, life, seed, steps=0)
    bench = check_table(disk, life, seed + 1)
    for act in (
        *(commit, commit_job, tag, consume, commit, expire, delete, commit, remove_tag, expire),
        *(consume, expire, drop_consumer, commit, expire),
    ):
        act(bench, life, rng)
    bench.checkpoint_and_collect()
    delete(bench, life, rng)
    take_over(bench, life, rng)


# Steps.


def planned_edits(bench: TableBench, life: Life, rng: Random) -> list[VersionEdit]:
    """Draw one to three edits and write their data files."""
    version = bench.versions.snapshot_latest().version
    shape = dict(shape_of(version))
    edits = []
    for base in range(version.number, version.number + rng.randint(1, 3)):
        names = sorted(path.removeprefix("data/").removesuffix(".parquet") for path in shape)
        rng.shuffle(names)
        removed = names[: rng.randint(0, len(names))]
        marked = {
            name: vector_ref(f"v{base}", marked=shape[path_of(name)] + 1)
            for name in names[len(removed) :]
            if shape[path_of(name)] < 10 and rng.random() < 0.5
        }
        life.files_named += 1
        new = data_file(f"f{life.files_named}")
        bench.objects.put(new.path, bytes(new.file_bytes))
        edit = edit_of(base, new, removed=removed, vectors=marked, operation=Operation.OVERWRITE)
        for name in removed:
            del shape[path_of(name)]
        shape |= {path_of(name): ref.cardinality for name, ref in marked.items()}
        shape[new.path] = 0
        edits.append(edit)
    return edits


def promise_edits(promised: Promised, edits: list[VersionEdit]) -> None:
    for edit in edits:
        shape = dict(promised.shapes[edit.base])
        for path in edit.removed:
            del shape[path]
        shape |= {path: ref.cardinality for path, ref in edit.vectors.items()}
        shape |= {file.path: 0 for file in edit.added}
        promised.shapes[edit.base + 1] = shape


def commit(bench: TableBench, life: Life, rng: Random) -> None:
    edits = planned_edits(bench, life, rng)
    promise_edits(life.begin(), edits)
    bench.versions.apply_version_edits(edits)
    life.end()


def commit_job(bench: TableBench, life: Life, rng: Random) -> None:
    """Commit as a job: announced first, and remembered after."""
    job = f"job{life.files_named}-{rng.getrandbits(30)}"
    deadline_ms = bench.clock.now_ms() + 60_000
    bench.work.register_intent(
        Intent(job_id=job, prefixes=(f"data/f{life.files_named + 1}",), deadline_ms=deadline_ms)
    )
    edits = planned_edits(bench, life, rng)
    promised = life.begin()
    promise_edits(promised, edits)
    promised.jobs.add(job)
    bench.versions.apply_version_edits(edits, HeadChange(job_id=job, intent_id=job))
    life.end()


def tag(bench: TableBench, life: Life, rng: Random) -> None:
    name = rng.choice("xyz")
    number = rng.choice(sorted(life.acknowledged.shapes))
    promised = life.begin()
    before = promised.tags.get(name)
    promised.tags[name] = number
    _drop_if_untagged(promised, before)
    bench.work.tag(name, number)
    life.end()


def remove_tag(bench: TableBench, life: Life, rng: Random) -> None:
    if not life.acknowledged.tags:
        return
    name = rng.choice(sorted(life.acknowledged.tags))
    promised = life.begin()
    _drop_if_untagged(promised, promised.tags.pop(name))
    bench.work.remove_tag(name)
    life.end()


def _drop_if_untagged(promised: Promised, number: int | None) -> None:
    """A Version below the oldest is promised for as long as a tag names it."""
    if number is not None and number < promised.oldest and number not in promised.tags.values():
        del promised.shapes[number]


def consume(bench: TableBench, life: Life, rng: Random) -> None:
    """Begin a consumer, or read on; sometimes it ends before it has read all."""
    name = rng.choice("xy")
    if name not in life.acknowledged.consumers:
        promised = life.begin()
        promised.consumers[name] = 0 if promised.oldest == 1 else promised.oldest
    begun = bench.work.begin_consumer(name)
    if life.under_way is not None:
        life.end()
    if begun.position != life.acknowledged.consumers[name]:
        raise Violation(f"consumer {name} is at {begun}, of {life.acknowledged.consumers}")
    if rng.random() < 0.7:
        promised = life.begin()
        promised.consumers[name] = promised.current
        bench.work.advance_consumer(begun, promised.current)
        life.end()


def drop_consumer(bench: TableBench, life: Life, rng: Random) -> None:
    if not life.acknowledged.consumers:
        return
    name = rng.choice(sorted(life.acknowledged.consumers))
    del life.begin().consumers[name]
    bench.work.drop_consumer(name)
    life.end()


def expire(bench: TableBench, life: Life, rng: Random) -> None:
    keep_last = rng.randint(1, 3)
    promised = life.begin()
    needed = [max(position, 1) for position in promised.consumers.values()]
    retained = min([promised.current - keep_last + 1, *needed])
    promised.oldest = max(promised.oldest, retained)
    kept = set(promised.tags.values())
    promised.shapes = {
        number: shape
        for number, shape in promised.shapes.items()
        if number >= promised.oldest or number in kept
    }
    try:
        if bench.expire(keep_last=keep_last) is None:
            life.take_back()
        else:
            life.end()
    except Conflict:
        life.take_back()


def delete(bench: TableBench, life: Life, rng: Random) -> None:
    """Delete garbage; sometimes under a lease, which ends with the power."""
    lease = bench.leases.take(rng.choice(sorted(life.acknowledged.shapes)), seconds=60)
    if rng.random() < 0.7:
        lease.release()
    bench.delete_garbage()


def take_over(bench: TableBench, life: Life, _: Random) -> None:
    life.begin().epoch += 1
    bench.work.take_over()
    life.end()


# Tests.


def cut_at(
    act: Callable[[Disk, Life, int], None], seed: int, at: int
) -> tuple[SimulatedDisk, Life]:
    disk = SimulatedDisk(seed).power_cut_at(at)
    life = Life()
    with suppress(PowerCut):
        act(disk, life, seed)
    return disk, life


def count_calls(act: Callable[[Disk, Life, int], None], seed: int) -> int:
    disk = SimulatedDisk(seed)
    act(disk, Life(), seed)
    return disk.calls


def live_twice(disk: Disk, life: Life, seed: int) -> None:
    live(disk, life, seed)
    live(disk, life, seed + 1_000_003, steps=4)


def test_a_power_cut_at_any_call_leaves_whole_versions_and_all_that_was_acknowledged(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 table power cuts: violations", aim=2_000, full=100_000)

    for seed in gate.seeds():
        calls = count_calls(live_twice, seed)
        for at in Random(seed).sample(range(1, calls + 1), min(CUTS_PER_LIFE, calls)):
            disk, life = cut_at(live_twice, seed, at)
            for choice in range(CHOICES_PER_CUT):
                survivor = disk.after_power_cut(Random(f"{seed}-{at}-{choice}"))
                later = deepcopy(life)
                # Another seed than the first life's: a job is announced under its own name once.
                live(survivor, later, seed + (choice + 2) * 1_000_003, steps=2)
                check_table(survivor, later, seed)
                gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def test_a_power_cut_in_every_change_of_every_step_leaves_whole_versions(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 table steps cut at every change: violations", aim=500, full=20_000)

    for seed in gate.seeds():
        whole = SimulatedDisk(seed)
        script(whole, Life(), seed)
        changes = [at for at, call in enumerate(whole.log, start=1) if call.kind in CHANGES]
        for at in changes:
            disk, life = cut_at(script, seed, at)
            survivor = disk.after_power_cut(Random(f"{seed}-{at}"))
            bench = check_table(survivor, life, seed)
            if life.acknowledged.current:
                expire(bench, life, Random(at))
                delete(bench, life, Random(at))
                check_table(survivor, life, seed + 2)
            gate.cases += 1

    scoreboard(gate.line())
    assert gate.cases


def test_two_lives_from_one_seed_make_the_same_calls(scoreboard: Record) -> None:
    gate = Gate("R13 table seeds whose two runs differ", aim=20, full=500)

    for seed in gate.seeds():
        first, second = SimulatedDisk(seed), SimulatedDisk(seed)
        live_twice(first, Life(), seed)
        live_twice(second, Life(), seed)
        gate.cases += 1
        assert first.log == second.log

    scoreboard(gate.line())


def test_a_table_that_lost_what_was_acknowledged_is_noticed() -> None:
    """The check has teeth: what was acknowledged and is gone is a violation."""
    noticed = 0
    for damage in ("segment", "file", "tag", "consumer", "position"):
        disk = SimulatedDisk()
        life = Life()
        script(disk, life, 0)
        bench = open_bench(disk, Life(), 7)
        rng = Random(1)
        tag(bench, life, rng)
        for _ in range(4):
            consume(bench, life, rng)
        commit(bench, life, rng)
        if damage == "segment":
            life.acknowledged.shapes[life.acknowledged.current + 1] = {}
        elif damage == "file":
            bench.objects.delete(next(iter(bench.versions.snapshot_latest().version.files)))
        elif damage == "consumer":
            bench.work.drop_consumer(next(iter(life.acknowledged.consumers)))
        elif damage == "position":
            name = next(iter(life.acknowledged.consumers))
            life.acknowledged.consumers[name] -= 1
        else:
            bench.work.remove_tag(next(iter(life.acknowledged.tags)))
        try:
            check_table(disk, life)
        except Violation:
            noticed += 1

    assert noticed == 5
