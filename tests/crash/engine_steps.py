"""Steps that change a table and its model: writes, background work, clean-up, kills.

Each draws what it does from a seeded source of chance, and announces what it is about to change
before it calls the table.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

import pyarrow as pa

from neve.compaction.rewrite_job import RewriteJob
from neve.engine import background
from neve.engine.row_input import Rows
from neve.model.data_file import DataFile
from neve.testing.model_table import Key
from tests.crash.disk_trouble import MortalDisk, ProcessKilled
from tests.crash.engine_drafts import Draft
from tests.crash.engine_rows import (
    TICK,
    Violation,
    condition,
    expect,
    other_columns,
    rows_by_key,
    tick_at,
)
from tests.crash.engine_world import FEED, OPTIONS, World

YOUNG_FILES_OF_A_RACE: Final = 3
RACES: Final = 4


def put(world: World, rng: Random) -> None:
    given, row = world.less(world.row(rng), rng)
    with world.changing({**world.model.rows, world.model.key_of(row): row}):
        world.table.put(given)


def upsert(world: World, rng: Random) -> None:
    rows = [world.row(rng) for _ in range(rng.choice((1, 2, 5, 12)))]
    given: Rows = pa.Table.from_pylist(rows, schema=world.table.schema.arrow_schema)
    if rng.random() < 0.5:
        pairs = [world.less(row, rng) for row in rows]
        given, rows = [each for each, _ in pairs], [row for _, row in pairs]
    after = {**world.model.rows, **{world.model.key_of(row): row for row in rows}}
    with world.changing(after):
        world.table.upsert(given)


def overwrite(world: World, rng: Random) -> None:
    """Write few keys again and again, until memory is full of rows that nobody sees."""
    put_often(world, rng, rng.sample(world.shape.keys, 3), count=rng.choice((10, 40)))


def put_often(world: World, rng: Random, keys: Sequence[Key], *, count: int) -> None:
    for _ in range(count):
        row = world.row(rng, rng.choice(keys))
        with world.changing({**world.model.rows, world.model.key_of(row): row}):
            world.table.put(row)


def upsert_columns(world: World, rng: Random) -> None:
    """Write some columns of rows, of which some may not be there."""
    schema, after = world.table.schema, world.model.copy()
    names = [column.name for column in other_columns(schema)]
    columns = rng.sample(names, rng.randint(1, min(3, len(names))))
    rows = [world.row(rng) for _ in range(rng.choice((1, 2, 5, 12)))]
    after.upsert_columns(rows, columns)
    given: Rows = [{name: row[name] for name in (*after.primary_key, *columns)} for row in rows]
    if rng.random() < 0.5:
        given = pa.Table.from_pylist(rows, schema=schema.arrow_schema)
    with world.changing(after.rows):
        world.table.upsert(given, columns=columns)


def put_if_absent(world: World, rng: Random) -> None:
    row, after = world.row(rng), world.model.copy()
    is_free = after.put_if_absent(row)
    with world.changing(after.rows):
        is_put = world.table.put_if_absent(row) is not None
    if is_put != is_free:
        raise Violation(f"{row} was put: {is_put}, there was no row: {is_free}")


def compare_and_put(world: World, rng: Random) -> None:
    """Write a row if that of its key is what it is, or is what it is not."""
    row, after = world.row(rng), world.model.copy()
    found = after.rows.get(after.key_of(row))
    expected = rng.choice((found, found, None, world.row(rng, after.key_of(row))))
    is_expected = after.compare_and_put(row, expected)
    with world.changing(after.rows):
        is_put = world.table.compare_and_put(row, expected) is not None
    if is_put != is_expected:
        raise Violation(f"{row} was put: {is_put}, on {found} where {expected} was expected")


def apply(world: World, rng: Random) -> None:
    """Apply a batch of changes, the next one of the feed or the last one again."""
    rows = [world.row(rng) for _ in range(rng.choice((0, 1, 5, 12)))]
    changes = [(row, rng.choice(("c", "u", "d", "-U"))) for row in rows]
    is_repeat = world.batch is not None and rng.random() < 0.2
    after = dict(world.model.rows)
    for row, op in () if is_repeat else changes:
        if op == "d":
            after.pop(world.model.key_of(row), None)
        elif op != "-U":
            after[world.model.key_of(row)] = row
    schema = world.table.schema.arrow_schema.append(pa.field("_op", pa.string()))
    dicts = [{**row, "_op": op} for row, op in changes]
    given: Rows = dicts
    if rng.random() < 0.5:
        given = pa.Table.from_pylist(dicts, schema=schema)
    batch = world.batch if is_repeat else (world.batch or 0) + rng.choice((1, 1, 7))
    with world.changing(after, batch=None if is_repeat else batch):
        world.table.apply(given, op="_op", app_id=FEED, batch=batch)


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
    text, matches = condition(world.table.schema, rng)
    with world.changing({k: row for k, row in world.model.rows.items() if not matches(row)}):
        world.table.delete_where(text)


def transact(world: World, rng: Random) -> None:
    """Write, merge and delete rows in one transaction, which reads what it wrote, or gives up."""
    after, shape = world.model.copy(), world.shape
    names = [column.name for column in other_columns(world.table.schema)]
    tx = world.table.transaction(rng.choice(("snapshot", "serializable")))
    for _ in range(rng.choice((1, 2, 4))):
        kind = rng.choice(("put", "upsert", "columns", "delete", "where"))
        rows = [world.row(rng) for _ in range(rng.choice((1, 3)))]
        if kind == "put":
            tx.put(rows[0])
            after.rows = {**after.rows, after.key_of(rows[0]): rows[0]}
        elif kind == "upsert":
            tx.upsert(pa.Table.from_pylist(rows, schema=world.table.schema.arrow_schema))
            after.rows = {**after.rows, **{after.key_of(row): row for row in rows}}
        elif kind == "columns":
            columns = rng.sample(names, rng.randint(1, min(3, len(names))))
            tx.upsert(pa.Table.from_pylist(rows, world.table.schema.arrow_schema), columns=columns)
            after.upsert_columns(rows, columns)
        elif kind == "delete":
            keys = rng.sample(shape.keys, rng.choice((1, 4)))
            tx.delete_many([shape.bare(key) for key in keys])
            after.rows = {k: row for k, row in after.rows.items() if k not in set(keys)}
        else:
            text, matches = condition(world.table.schema, rng)
            tx.delete_where(text)
            after.rows = {k: row for k, row in after.rows.items() if not matches(row)}
        after.rows = world.unexpired(after.rows)
        found = rows_by_key(tx.scan().to_arrow(), world.table.primary_key)
        expect(found, after.rows, f"a transaction after {kind}")
    if rng.random() < 0.2:
        tx.rollback()
        return
    with world.changing(after.rows):
        tx.commit()


def evolve(world: World, rng: Random) -> None:
    """Change columns and partitions, while rows are in the log, in memory and in files."""
    with world.table.evolve() as evolution:
        draft = Draft(evolution, world.table.spec, rng, [])
        draft.draw()
        world.announce_evolution(draft)
    world.settle_evolution()
    world.check_definition()


def flush(world: World, _rng: Random) -> None:
    number = world.table.flush()
    stored = world.plain_rows(world.table._open.engine.current.view.files.version)
    expect(world.unexpired(stored), world.model.rows, "flush")
    if number != world.table.version:
        raise Violation(f"flush gave {number}, the table is at {world.table.version}")


def roll(world: World, _rng: Random) -> None:
    """Let a memtable wait for its flush."""
    world.table._open.engine.writer._buffer.roll()


def flush_once(world: World, _rng: Random) -> None:
    world.table._open.engine.writer.flush_once()


def flush_the_oldest(world: World, rng: Random) -> None:
    """Flush one memtable while another waits for its turn."""
    for _ in range(2):
        put(world, rng)
        roll(world, rng)
    flush_once(world, rng)


def compact_once(world: World, _rng: Random) -> None:
    world.table._open.engine.writer.compact_once()


def compact(world: World, _rng: Random) -> None:
    world.table.compact()


def compact_full(world: World, _rng: Random) -> None:
    world.table.compact(full=True)


def repartition(world: World, rng: Random) -> None:
    """Divide the table in another way, and move all of its files to the new partitions."""
    with world.table.evolve() as evolution:
        draft = Draft(evolution, world.table.spec, rng, [])
        draft.divide()
        world.announce_evolution(draft)
    world.settle_evolution()
    world.check_definition()
    put(world, rng)
    world.table.compact(full=True)
    version, spec = world.table._open.engine.current.view.files.version, world.table.spec
    left = [file.path for file in version.files.values() if file.spec_id != spec.spec_id]
    if left:
        raise Violation(f"a full compaction left {left} in partitions of another spec")
    expect(world.unexpired(world.plain_rows(version)), world.model.rows, "repartition")


def tag(world: World, rng: Random) -> None:
    world.check_versions()
    number = rng.choice(sorted(world.model.versions))
    world.model.tags.clear()  # while it is moved, nobody knows where it is
    world.table.tag("kept", number)
    world.model.tag("kept", number)


def consume(world: World, rng: Random) -> None:
    """Read the changes as a consumer, which sometimes ends before it has read all."""
    world.check_versions()
    oldest = world.table._open.stored.versions.head().oldest_version
    start = world.model.consumers.get("feed", 0 if oldest == 1 else oldest)
    reader = world.table.changes(consumer="feed")
    before = {row["name"]: row["position"] for row in world.table.consumers().to_pylist()}
    if not start <= before["feed"] <= world.table.version:
        raise Violation(f"the consumer is at {before['feed']}, and was at {start}")
    world.model.consume("feed", start)
    if rng.random() < 0.3:
        for _ in zip(range(rng.choice((0, 1))), reader, strict=False):
            pass
        del reader
        background._settle()  # one that is forgotten ends in another thread
        return
    told = [row["_commit_version"] for row in reader.read_all().to_pylist()]
    if any(not before["feed"] < number <= world.table.version for number in told):
        raise Violation(f"a consumer at {before['feed']} is told of {set(told)}")
    world.model.consume("feed", world.table.version)


def rollback(world: World, rng: Random) -> None:
    world.check_versions()
    to = rng.choice(sorted(world.model.versions))
    with world.changing(world.unexpired(world.model.at_present(to))):
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


def pass_time(world: World, _rng: Random) -> None:
    """Let rows expire, where they do."""
    if world.shape.ttl is not None:
        world.pass_time()


def remove_expired(world: World, rng: Random) -> None:
    """Let rows expire, and remove those that have."""
    pass_time(world, rng)
    while world.table._open.engine.writer.remove_expired_once():
        pass


def prolong(world: World, rng: Random) -> None:
    """Give rows that expire next a later time, by partial writes, and remove expired rows."""
    name, after = world.model.time_column, world.model.copy()
    if name is None:
        return
    later = world.clock.now_ms() + int(TICK.total_seconds() * 1_000)
    expiring = after.rows.keys() - after.unexpired(after.rows, later).keys()
    rows = [{**after.rows[key], name: tick_at(later)} for key in sorted(expiring)]
    after.upsert_columns(rows, [name])
    if rows:
        with world.changing(after.rows):
            world.table.upsert(
                [{each: row[each] for each in (*after.primary_key, name)} for row in rows],
                columns=[name],
            )
    remove_expired(world, rng)
    flush(world, rng)


def give_back_space(world: World, _rng: Random) -> None:
    """Do what makes room on a full disk."""
    world.table._open.engine.writer.give_back_space()


class _Racing:
    """Executes a plan here, and lets writes and flushes come before or after its rewriting."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._left = RACES

    def execute(
        self,
        job: RewriteJob,
        *,
        progress: Callable[[int], None],
        check_cancelled: Callable[[], None],
    ) -> list[tuple[DataFile, ...]]:
        engine = self._world.table._open.engine
        before = self._rng.random() < 0.5
        if before:
            self._interfere()
        written = [
            engine.writer._rewrite.task_files.run(
                task,
                engine.current.view.context,
                progress=progress,
                check_cancelled=check_cancelled,
            )
            for task in job.tasks
        ]
        if not before or self._rng.random() < 0.3:
            self._interfere()
        return written

    def _interfere(self) -> None:
        # A write that had to wait for the compaction would wait here for ever.
        young = self._world.table._open.engine.current.view.files.level0_count
        if young + YOUNG_FILES_OF_A_RACE >= OPTIONS.level0_files_max or not self._left:
            return
        self._left -= 1  # a compaction ends only when the others do
        for step in self._rng.choices([upsert, delete_many, put], k=2):
            step(self._world, self._rng)
        flush(self._world, self._rng)


def compact_while_flushing(world: World, rng: Random) -> None:
    """Compact what is there, while rows of it are replaced, deleted and flushed."""
    executor = _Racing(world, rng)
    if rng.random() < 0.5:
        world.table.compact(full=True, executor=executor)
    else:
        world.table._open.engine.writer.compact_once(executor=executor)


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
    apply: 3,
    delete: 3,
    delete_many: 2,
    delete_where: 1,
    transact: 4,
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
    evolve: 4,
    repartition: 1,
    rollback: 1,
    tag: 1,
    consume: 1,
    expire: 1,
    collect_garbage: 2,
    pass_time: 2,
    remove_expired: 2,
    prolong: 2,
    give_back_space: 1,
    reopen: 1,
}
MORTAL: Final[Mapping[Step, int]] = {**WRITES, **WORK}
"""What a process may be killed in."""
STEPS: Final[Mapping[Step, int]] = {**MORTAL, killed: 3}


def drawn_steps(rng: Random, count: int) -> list[Step]:
    """Draw steps by their weight."""
    return rng.choices(list(STEPS), list(STEPS.values()), k=count)
