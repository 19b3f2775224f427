"""A table on a simulated disk beside its model, and the steps that change both.

A world knows every state its rows were in, so that whatever a Version or a recovered table shows
can be looked up: it is one of them or it is wrong. The step under way is announced before it
begins; when the power goes in it, the table may be found as before the step or as after it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Final

import pyarrow as pa

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.compaction.plan import CompactionPlan
from neve.engine.table_options import TableOptions
from neve.errors import NotFound
from neve.model.version import Version
from neve.sstable.data_file_writer import WrittenFile
from neve.storage.disk import Disk
from neve.storage.local_store import LocalStore
from neve.testing.clean_reader import CleanReader
from neve.testing.disk_calls import DiskCall, HookedDisk
from neve.testing.model_table import Key, ModelTable, Row, Rows
from neve.testing.simulated_clock import SeededIds, SimulatedClock

ROOT: Final = "/srv/lake"
NAME: Final = "shop.orders"
WORDS: Final = ("", "a", "ab", "zebra", "été", "x" * 40)
OPTIONS: Final = TableOptions(
    background=False,
    log_bytes=32 << 10,
    memtable_bytes=4 << 10,
    level0_files=3,
    level0_files_slow=6,
    level0_files_max=8,
    level1_bytes=16 << 10,
    file_bytes=8 << 10,
    cache_bytes=1 << 20,
)


class Violation(AssertionError):
    """What a table must never show."""


class ProcessKilled(BaseException):
    """The process is gone; not an Exception, so that no code under test handles it."""


class MortalDisk(HookedDisk):
    """A disk whose process can be killed between two calls; the kernel then closes its files.

    What was written stays visible to the next process, synced or not.
    """

    def __init__(self, inner: Disk) -> None:
        super().__init__(inner)
        self._calls_left: int | None = None

    def kill_in(self, calls: int) -> None:
        """Kill the process before the call of this number from now on, counted from 1."""
        self._calls_left = calls

    def revive(self) -> None:
        """Begin the next process."""
        for handle in list(self._paths):
            self._inner.close(handle)
        self._paths.clear()
        self._calls_left = None

    def before(self, call: DiskCall) -> None:
        if self._calls_left is not None:
            self._calls_left -= 1
            if self._calls_left <= 0:
                raise ProcessKilled(call)


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of table: how its keys are, and how it is partitioned."""

    name: str
    key_columns: Mapping[str, pa.DataType]
    keys: Sequence[Key]
    partition_by: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                *(pa.field(name, kind, nullable=False) for name, kind in self.key_columns.items()),
                pa.field("word", pa.string()),
                pa.field("amount", pa.int64()),
                pa.field("share", pa.float64()),
            ]
        )

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self.key_columns)

    def row(self, rng: Random, key: Key | None = None) -> Row:
        if key is None:
            key = rng.choice(self.keys)
        return {
            **dict(zip(self.primary_key, key, strict=True)),
            "word": rng.choice((None, *WORDS)),
            "amount": rng.choice((None, rng.randrange(-50, 50))),
            "share": rng.choice((None, 0.5, -1.25, float(rng.randrange(9)))),
        }

    def bare(self, key: Key) -> object:
        """A key as callers give it."""
        return key[0] if len(self.primary_key) == 1 else key


SHAPES: Final = (
    Shape("number", {"id": pa.int64()}, [(number * 7 - 150,) for number in range(60)]),
    Shape(
        "text",
        {"name": pa.string()},
        [(f"{letter}{number}\0"[: 2 + number % 2],) for letter in "aäz" for number in range(8)],
    ),
    Shape(
        "pair",
        {"place": pa.string(), "day": pa.int32()},
        [(place, day) for place in ("", "köln", "ulm") for day in range(-3, 9)],
        partition_by=("bucket(2, day)",),
    ),
)


class World:
    """One table with its model; for one thread."""

    def __init__(self, disk: Disk, shape: Shape, *, seed: int, clock: SimulatedClock) -> None:
        self.shape = shape
        self.clock = clock
        self.disk = disk
        self.seed = seed
        self.model = ModelTable(shape.primary_key)
        self.states: list[Rows] = [{}]
        self.pending: Rows | None = None
        self.is_expiring = False
        self.is_created = False
        self.newest_state = 0
        """Place in `states` of the newest Version's rows."""
        self._generation = 0
        self._lake: KVCatalog | None = None
        self._table: Table | None = None
        self._objects: LocalStore | None = None
        self._reader: CleanReader | None = None

    # Living

    def open(self, *, options: TableOptions = OPTIONS) -> Table:
        """Open the lake anew, and the table, which is made when missing."""
        self._generation += 1
        ids = SeededIds(self.seed * 1_000 + self._generation)
        self._objects = LocalStore(ROOT, disk=self.disk, clock=self.clock, ids=ids)
        self._lake = KVCatalog(self._objects, clock=self.clock, ids=ids)
        try:
            self._table = self._lake.table(NAME, options=options)
        except NotFound:
            if self.is_created:
                raise
            self._table = self._lake.create_table(
                NAME,
                self.shape.schema,
                self.shape.primary_key,
                partition_by=self.shape.partition_by,
                options=options,
            )
            _ = self._table.engine
        self.is_created = True
        self.forget_files()
        return self._table

    def abandon(self) -> None:
        """Leave everything as a killed process does: nothing is closed, and nothing runs."""
        table, self._table = self._table, None
        if table is not None:
            forget(table)
        self._lake = None

    def close(self) -> None:
        """End in good order."""
        lake, self._lake = self._lake, None
        self.abandon()
        if lake is not None:
            lake.close()

    def inherit(self, disk: Disk, *, seed: int) -> "World":
        """Give the world of whoever finds this disk: it knows what this one knew."""
        clock = SimulatedClock(now_ms=self.clock.now_ms())
        other = World(disk, self.shape, seed=seed, clock=clock)
        other.model = self.model.copy()
        other.states = list(self.states)
        other.pending = self.pending
        other.is_expiring = self.is_expiring
        other.is_created = self.is_created
        other.newest_state = self.newest_state
        return other

    @property
    def table(self) -> Table:
        assert self._table is not None
        return self._table

    @property
    def lake(self) -> KVCatalog:
        assert self._lake is not None
        return self._lake

    @property
    def objects(self) -> LocalStore:
        assert self._objects is not None
        return self._objects

    def forget_files(self) -> None:
        """Have the plain reader read every file again."""
        self._reader = None

    # Changing

    @contextmanager
    def changing(self, after: Rows) -> Iterator[None]:
        """Announce what the rows are after the call that follows, and note that it answered."""
        self.pending = after
        yield
        self.settle(after)

    def settle(self, rows: Rows) -> None:
        """Note the rows as they certainly are."""
        self.pending = None
        self.model.rows = rows
        self.states.append(rows)

    # Checking

    def check_rows(self) -> None:
        """The table shows the rows of the model, by key and by scan."""
        expected = self.model.rows
        by_key = rows_by_key(self.table.get_many(self.every_key()), self.shape)
        expect(by_key, expected, "get_many")
        scanned = self.table.scan().to_arrow()
        if scanned.num_rows != len(expected):
            raise Violation(f"a scan gives {scanned.num_rows} rows, not {len(expected)}")
        expect(rows_by_key(scanned, self.shape), expected, "scan")

    def every_key(self) -> list[object]:
        return [self.shape.bare(key) for key in self.shape.keys]

    def retained(self) -> list[Version]:
        """Read every retained Version from the manifest."""
        versions = self.table.stored.versions
        return list(versions.each_version_in(versions.store.read()))

    def plain_rows(self, version: Version) -> Rows:
        """Read a Version without any of neve's readers."""
        if self._reader is None:
            root = self.table.stored.paths.root
            self._reader = CleanReader(self.objects, root, self.shape.primary_key)
        return self._reader.rows(version)

    def check_versions(self) -> None:
        """Every retained Version is clean, and shows rows as they were when it was committed."""
        numbers = set()
        for version in self.retained():
            numbers.add(version.number)
            rows = self.plain_rows(version)
            known = self.model.versions.get(version.number)
            if known is not None:
                expect(rows, known, f"version {version.number}")
            elif version.number > self.model.version:
                self.newest_state = self._find_state(rows, version.number)
                self.model.versions[version.number] = rows
            else:
                raise Violation(f"version {version.number} had expired, and is back")
        missing = self.model.versions.keys() - numbers
        if missing and not self.is_expiring:
            raise Violation(f"versions {sorted(missing)} are gone")
        pinned = missing & set(self.model.tags.values())
        if pinned:
            raise Violation(f"versions {sorted(pinned)} are gone in spite of their tags")
        self.model.expire(missing)

    def check_found(self) -> None:
        """Open what a dead process left: acknowledged rows, and the step under way or not."""
        table = self.open()
        found = rows_by_key(table.get_many(self.every_key()), self.shape)
        if self.pending is not None and found == self.pending:
            self.settle(found)
        else:
            expect(found, self.model.rows, "recovered")
        self.check_versions()
        self.pending, self.is_expiring = None, False

    def _find_state(self, rows: Rows, number: int) -> int:
        for place in range(self.newest_state, len(self.states)):
            if self.states[place] == rows:
                return place
        if self.pending is not None and self.pending == rows:
            return len(self.states) - 1
        raise Violation(f"version {number} shows rows as they never were: {sorted(rows)}")


def forget(table: Table) -> None:
    """Keep a table that nobody closes from closing itself when it is collected."""
    if table._forgotten is not None:
        table._forgotten.detach()


def rows_by_key(rows: pa.Table, shape: Shape) -> Rows:
    found: list[Row] = rows.to_pylist()
    return {tuple(row[name] for name in shape.primary_key): row for row in found}


def expect(found: Rows, expected: Rows, what: str) -> None:
    if found == expected:
        return
    lost = sorted(expected.keys() - found.keys())
    phantom = sorted(found.keys() - expected.keys())
    other = [
        (found[key], expected[key])
        for key in sorted(found.keys() & expected.keys())
        if found[key] != expected[key]
    ]
    raise Violation(f"{what}: lost {lost}, phantom {phantom}, other {other}")


# Steps


def put(world: World, rng: Random) -> None:
    row = world.shape.row(rng)
    with world.changing({**world.model.rows, world.model.key_of(row): row}):
        world.table.put(row)


def upsert(world: World, rng: Random) -> None:
    rows = [world.shape.row(rng) for _ in range(rng.choice((1, 2, 5, 12)))]
    after = {**world.model.rows, **{world.model.key_of(row): row for row in rows}}
    given: object = rows
    if rng.random() < 0.5:
        given = pa.Table.from_pylist(rows, schema=world.shape.schema)
    with world.changing(after):
        world.table.upsert(given)


def overwrite(world: World, rng: Random) -> None:
    """Write few keys again and again, until memory is full of rows that nobody sees."""
    put_often(world, rng, rng.sample(world.shape.keys, 3), count=rng.choice((10, 40)))


def put_often(world: World, rng: Random, keys: Sequence[Key], *, count: int) -> None:
    for _ in range(count):
        row = world.shape.row(rng, rng.choice(keys))
        with world.changing({**world.model.rows, world.model.key_of(row): row}):
            world.table.put(row)


def upsert_columns(world: World, rng: Random) -> None:
    """Write some columns of rows, of which some may not be there."""
    columns = rng.sample(("word", "amount", "share"), rng.randint(1, 3))
    rows = [world.shape.row(rng) for _ in range(rng.choice((1, 2, 5, 12)))]
    after = world.model.copy()
    after.upsert_columns(rows, columns)
    given: object = [
        {name: row[name] for name in (*world.shape.primary_key, *columns)} for row in rows
    ]
    if rng.random() < 0.5:
        given = pa.Table.from_pylist(rows, schema=world.shape.schema)
    with world.changing(after.rows):
        world.table.upsert(given, columns=columns)


def put_if_absent(world: World, rng: Random) -> None:
    row = world.shape.row(rng)
    key = world.model.key_of(row)
    if key in world.model.rows:
        if world.table.put_if_absent(row) is not None:
            raise Violation(f"a row of {key} was put though there is one")
        return
    with world.changing({**world.model.rows, key: row}):
        if world.table.put_if_absent(row) is None:
            raise Violation(f"no row of {key} was put though there is none")


def compare_and_put(world: World, rng: Random) -> None:
    row = world.shape.row(rng)
    key = world.model.key_of(row)
    with world.changing({**world.model.rows, key: row}):
        if world.table.compare_and_put(row, world.model.rows.get(key)) is None:
            raise Violation(f"the row of {key} is not as it was written")


def delete(world: World, rng: Random) -> None:
    key = rng.choice(world.shape.keys)
    with world.changing({k: row for k, row in world.model.rows.items() if k != key}):
        world.table.delete(world.shape.bare(key))


def delete_many(world: World, rng: Random) -> None:
    keys = rng.sample(world.shape.keys, rng.choice((1, 3, 8)))
    gone = set(keys)
    with world.changing({k: row for k, row in world.model.rows.items() if k not in gone}):
        world.table.delete_many([world.shape.bare(key) for key in keys])


def delete_where(world: World, rng: Random) -> None:
    least = rng.randrange(-50, 60)

    def stays(row: Row) -> bool:
        amount = row["amount"]
        return not (isinstance(amount, int) and amount > least)

    with world.changing({k: row for k, row in world.model.rows.items() if stays(row)}):
        world.table.delete_where(f"amount > {least}")


def flush(world: World, _rng: Random) -> None:
    number = world.table.flush()
    expect(
        world.plain_rows(world.table.engine.current.view.files.version), world.model.rows, "flush"
    )
    if number != world.table.version:
        raise Violation(f"flush gave {number}, the table is at {world.table.version}")


def roll(world: World, _rng: Random) -> None:
    """Let a memtable wait for its flush."""
    world.table.engine.writer._log.roll()


def flush_once(world: World, _rng: Random) -> None:
    world.table.engine.writer.flush_once()


def flush_the_oldest(world: World, rng: Random) -> None:
    """Flush one memtable while another waits for its turn."""
    for _ in range(2):
        put(world, rng)
        roll(world, rng)
    flush_once(world, rng)


def compact_once(world: World, _rng: Random) -> None:
    world.table.engine.writer.compact_once()


def compact(world: World, _rng: Random) -> None:
    world.table.compact()


def compact_full(world: World, _rng: Random) -> None:
    world.table.compact(full=True)


def tag(world: World, rng: Random) -> None:
    world.check_versions()
    number = rng.choice(sorted(world.model.versions))
    world.model.tags.clear()  # while it is moved, nobody knows where it is
    world.table.tag("kept", number)
    world.model.tag("kept", number)


def rollback(world: World, rng: Random) -> None:
    world.check_versions()
    to = rng.choice(sorted(world.model.versions))
    with world.changing(world.model.at(to)):
        world.table.rollback(to)


def expire(world: World, rng: Random) -> None:
    world.check_versions()
    world.clock.advance(1.0)
    world.is_expiring = True
    world.table.expire(keep_last=rng.choice((1, 1, 2, 3)))
    world.check_versions()
    world.is_expiring = False


def collect_garbage(world: World, _rng: Random) -> None:
    world.table.collect_garbage(dry_run=False)
    world.forget_files()


class _Racing:
    """Executes a plan here, and lets writes and flushes come before or after its rewriting."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng

    def execute(self, plan: CompactionPlan) -> tuple[WrittenFile, ...]:
        writer = self._world.table.engine.writer
        before = self._rng.random() < 0.5
        if before:
            self._interfere()
        written = writer._rewrite.execute(
            plan,
            self._world.table.engine.current.view.context,
            progress=lambda _rows: None,
            check_cancelled=lambda: None,
        )
        if not before or self._rng.random() < 0.3:
            self._interfere()
        return written

    def _interfere(self) -> None:
        for step in self._rng.choices([upsert, delete_many, put], k=2):
            step(self._world, self._rng)
        flush(self._world, self._rng)


def compact_while_flushing(world: World, rng: Random) -> None:
    """Compact what is there, while rows of it are replaced, deleted and flushed."""
    writer = world.table.engine.writer
    executor = _Racing(world, rng)
    if rng.random() < 0.5:
        writer.compact_full(executor=executor)
    else:
        writer.compact_once(executor=executor)


def reopen(world: World, _rng: Random) -> None:
    world.close()
    world.open()


def killed(world: World, rng: Random) -> None:
    """Kill the process in some step, and go on with what it left."""
    step = rng.choices(list(MORTAL), list(MORTAL.values()))[0]
    _kill_in(world, rng, step, calls=rng.choice((rng.randint(1, 4), rng.randint(1, 60))))


def killed_in_put(world: World, rng: Random) -> None:
    """Kill the process between the write of a row and its sync."""
    _kill_in(world, rng, put, calls=2)


def _kill_in(world: World, rng: Random, step: "Step", *, calls: int) -> None:
    disk = world.disk
    assert isinstance(disk, MortalDisk)
    disk.kill_in(calls)
    try:
        step(world, rng)
    except ProcessKilled:
        world.abandon()
        disk.revive()
        world.check_found()
    else:
        disk.kill_in(1 << 60)


Step = Callable[[World, Random], None]

WRITES: Final[Mapping[Step, int]] = {
    put: 6,
    upsert: 5,
    overwrite: 1,
    upsert_columns: 4,
    put_if_absent: 1,
    compare_and_put: 1,
    delete: 3,
    delete_many: 2,
    delete_where: 1,
}
WORK: Final[Mapping[Step, int]] = {
    flush: 5,
    roll: 2,
    flush_once: 2,
    flush_the_oldest: 2,
    compact_once: 3,
    compact: 1,
    compact_full: 1,
    compact_while_flushing: 2,
    rollback: 1,
    tag: 1,
    expire: 1,
    collect_garbage: 2,
    reopen: 1,
}
MORTAL: Final[Mapping[Step, int]] = {**WRITES, **WORK}
"""What a process may be killed in."""
STEPS: Final[Mapping[Step, int]] = {**MORTAL, killed: 3}


def drawn_steps(rng: Random, count: int) -> list[Step]:
    """Draw steps by their weight."""
    return rng.choices(list(STEPS), list(STEPS.values()), k=count)
