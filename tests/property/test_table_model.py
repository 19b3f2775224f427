"""A table against its model: random operations, and the same rows after each.

Operations are those of a user, those of background work, and accidents: power cuts, kills, a second
process that reads, clean-up under a running scan. After each operation that wrote, the rows
it touched are read; after each that moved rows between memory and files, everything is read by key
and by scan, and every retained Version is read by a reader that knows only Parquet and Puffin.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Final

import pyarrow as pa
import pytest

from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.engine.rollback import rollback_edit
from neve.engine.snapshot import Snapshot
from neve.errors import NeveError, NotFound
from neve.manifest.leases import Leases
from neve.memtable.memtable import Memtable
from neve.read.memory_rows import MemoryRows
from neve.storage.local_store import LocalStore
from neve.testing.model_table import Key, Row, Rows, scan_rows
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from neve.wal.write_ahead_log import WriteAheadLog
from tests.conftest import Record
from tests.crash import engine_world
from tests.crash.engine_world import (
    NAME,
    OPTIONS,
    ROOT,
    SHAPES,
    WRITES,
    MortalDisk,
    Violation,
    World,
    expect,
    forget,
    rows_by_key,
)
from tests.gates import Gate

OPERATIONS_PER_LIFE: Final = 120
SNAPSHOTS_MAX: Final = 3
READS: Final = 6
GETS: Final = 20

Matches = Callable[[Row], bool]
View = Table | Snapshot


class Machine(World):
    """A world that also reads: its snapshots, and a second process that only reads."""

    def __init__(self, seed: int) -> None:
        self.simulated = SimulatedDisk(seed)
        shape = SHAPES[seed % len(SHAPES)]
        super().__init__(MortalDisk(self.simulated), shape, seed=seed, clock=SimulatedClock())
        self.snapshots: list[tuple[Snapshot, Rows]] = []
        self.reader: Table | None = None
        self.operations = 0
        self._reader_lake: KVCatalog | None = None

    def open_reader(self) -> Table:
        """Open the table for reading only, as another process does."""
        self.close_reader()
        ids = SeededIds(90_000 + self.operations)
        objects = LocalStore(ROOT, disk=self.disk, clock=self.clock, ids=ids)
        self._reader_lake = KVCatalog(objects, clock=self.clock, ids=ids, create=False)
        self.reader = self._reader_lake.table(NAME, read_only=True, options=OPTIONS)
        return self.reader

    def close_reader(self) -> None:
        if self.reader is not None and self._reader_lake is not None:
            self.reader.close()
            self._reader_lake.close()
        self.reader = self._reader_lake = None

    def abandon(self) -> None:
        for snapshot, _ in self.snapshots:
            snapshot._end.detach()
        self.snapshots.clear()
        if self.reader is not None:
            forget(self.reader)
            self.reader = self._reader_lake = None
        super().abandon()

    def close(self) -> None:
        for snapshot, _ in self.snapshots:
            snapshot.close()
        self.snapshots.clear()
        self.close_reader()
        super().close()

    def read(self, view: View, rows: Rows, rng: Random) -> None:
        """Read in many ways from a view that shows these rows."""
        for key in rng.choices(self.shape.keys, k=GETS):
            read_one(self.shape, view, rows, key)
        for read in rng.choices([read_many, read_filtered, read_range, count], k=2):
            read(self.shape, view, rows, rng)
        self.operations += GETS + 2


# Reading


def read_one(shape: engine_world.Shape, view: View, rows: Rows, key: Key) -> None:
    found = view.get(shape.bare(key))
    if found != rows.get(key):
        raise Violation(f"get {key} gives {found}, not {rows.get(key)}")


def read_many(shape: engine_world.Shape, view: View, rows: Rows, rng: Random) -> None:
    keys = rng.choices(shape.keys, k=rng.choice((0, 1, 7, 20)))
    with_missing = rng.random() < 0.5
    found = view.get_many([shape.bare(key) for key in keys], with_missing=with_missing)
    nothing: Row = dict.fromkeys(shape.schema.names)
    expected = [rows.get(key, nothing) for key in keys if with_missing or key in rows]
    check_list(found, expected, f"get_many with_missing={with_missing}")


def conditions(rng: Random) -> tuple[str, Matches]:
    """A filter as text and as a function, NULLs never matching a comparison."""
    least = rng.randrange(-55, 55)
    word = rng.choice(engine_world.WORDS[1:])

    def is_more(row: Row) -> bool:
        return isinstance(row["amount"], int) and row["amount"] > least

    def has_word(row: Row) -> bool:
        return row["word"] == word

    return rng.choice(
        [
            (f"amount > {least}", is_more),
            (f"word = '{word}'", has_word),
            ("share is null", lambda row: row["share"] is None),
            (f"amount > {least} and word = '{word}'", lambda row: is_more(row) and has_word(row)),
            (f"amount > {least} or share is null", lambda r: is_more(r) or r["share"] is None),
            (f"word in ('ab', '{word}')", lambda row: row["word"] in {"ab", word}),
        ]
    )


def read_filtered(shape: engine_world.Shape, view: View, rows: Rows, rng: Random) -> None:
    text, matches = conditions(rng)
    columns = rng.choice([None, [*shape.primary_key, "word"], [*reversed(shape.schema.names)]])
    found = view.scan(text, columns=columns).to_arrow()
    expected = scan_rows(rows, matches)
    if columns is not None:
        expected = [{name: row[name] for name in columns} for row in expected]
    check_list(found, expected, f"scan {text}", key=shape.primary_key)


def read_range(shape: engine_world.Shape, view: View, rows: Rows, rng: Random) -> None:
    low, high = sorted(rng.choices(shape.keys, k=2))
    first, end = rng.choice((None, low)), rng.choice((None, high))
    reverse = rng.random() < 0.4
    limit = rng.choice((None, None, 1, 5))
    text, matches = rng.choice([(None, None), conditions(rng)])
    key_range = tuple(None if key is None else shape.bare(key) for key in (first, end))
    scan = view.scan(
        text,
        key_range=(key_range[0], key_range[1]),
        reverse=reverse,
        limit=limit,
    )
    expected = scan_rows(rows, matches, key_range=(first, end), reverse=reverse)[:limit]
    what = f"scan {text} from {first} to {end} reverse={reverse} limit={limit}"
    check_list(scan.to_arrow(), expected, what)


def count(_shape: engine_world.Shape, view: View, rows: Rows, rng: Random) -> None:
    text, matches = rng.choice([(None, None), conditions(rng)])
    found = view.scan(text).count()
    expected = len(scan_rows(rows, matches))
    if found != expected:
        raise Violation(f"count of {text} is {found}, not {expected}")


def check_list(
    found: pa.Table, expected: list[Row], what: str, *, key: tuple[str, ...] | None = None
) -> None:
    rows: list[Row] = found.to_pylist()
    if key is not None:

        def key_of(row: Row) -> Key:
            return tuple(row[name] for name in key)

        rows, expected = sorted(rows, key=key_of), sorted(expected, key=key_of)
    if rows != expected:
        raise Violation(f"{what} gives {rows}, not {expected}")


# Operations beside those of every world


def take_snapshot(machine: Machine, _rng: Random) -> None:
    machine.snapshots.append((machine.table.snapshot(), machine.model.rows))
    if len(machine.snapshots) > SNAPSHOTS_MAX:
        snapshot, _ = machine.snapshots.pop(0)
        snapshot.close()


def read_snapshots(machine: Machine, rng: Random) -> None:
    for snapshot, rows in machine.snapshots:
        found = rows_by_key(snapshot.scan().to_arrow(), machine.shape)
        expect(found, rows, f"{snapshot}")
        machine.read(snapshot, rows, rng)


def overwrite_under_a_snapshot(machine: Machine, rng: Random) -> None:
    """Fill the memory with rows that a snapshot sees, and with others that replace them."""
    keys = rng.sample(machine.shape.keys, 3)
    engine_world.put_often(machine, rng, keys, count=10)
    take_snapshot(machine, rng)
    engine_world.put_often(machine, rng, keys, count=60)
    read_snapshots(machine, rng)


def read_table(machine: Machine, rng: Random) -> None:
    for _ in range(READS):
        machine.read(machine.table, machine.model.rows, rng)


def travel(machine: Machine, rng: Random) -> None:
    """Read an old Version by its number, and a tagged one by its tag."""
    machine.check_versions()
    number = rng.choice(sorted(machine.model.versions))
    with machine.table.at(version=number) as old:
        rows = machine.model.at(number)
        expect(rows_by_key(old.scan().to_arrow(), machine.shape), rows, f"at version {number}")
        machine.read(old, rows, rng)
    tagged = machine.model.tags.get("kept")
    if tagged is not None:
        with machine.table.at(tag="kept") as old:
            expect(
                rows_by_key(old.scan().to_arrow(), machine.shape), machine.model.at(tagged), "tag"
            )
    with pytest.raises(NotFound):
        machine.table.at(tag="never given")


def read_beside(machine: Machine, rng: Random) -> None:
    """Another process reads what is committed and what is in the log, and keeps up."""
    if machine.reader is None or rng.random() < 0.3:
        machine.open_reader()
    reader = machine.reader
    assert reader is not None
    reader.refresh()
    found = rows_by_key(reader.scan().to_arrow(), machine.shape)
    expect(found, machine.model.rows, "read-only")
    machine.read(reader, machine.model.rows, rng)


def collect_under_a_scan(machine: Machine, rng: Random) -> None:
    """Rewrite, expire and delete everything while a scan is under way."""
    rows = machine.model.rows
    batches: Iterator[pa.RecordBatch] = iter(machine.table.scan().to_batches())
    first = next(batches, None)
    for step in (
        engine_world.upsert,
        engine_world.compact_full,
        engine_world.expire,
        engine_world.collect_garbage,
    ):
        step(machine, rng)
    read = [] if first is None else [first, *batches]
    table = pa.Table.from_batches(read, schema=machine.shape.schema) if read else None
    found = {} if table is None else rows_by_key(table, machine.shape)
    expect(found, rows, "scan under clean-up")


def power_cut(machine: Machine, rng: Random) -> None:
    """Lose what was not synced, and recover, once or more often."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        machine.abandon()
        machine.simulated = machine.simulated.after_power_cut(rng)
        machine.disk = MortalDisk(machine.simulated)
        machine.check_found()


def verify(machine: Machine, _rng: Random) -> None:
    report = machine.table.verify()
    assert not report.problems


Operation = Callable[[Machine, Random], None]
OWN: Final[Mapping[Operation, int]] = {
    take_snapshot: 2,
    read_snapshots: 2,
    overwrite_under_a_snapshot: 1,
    read_table: 6,
    travel: 2,
    read_beside: 2,
    collect_under_a_scan: 1,
    power_cut: 2,
    verify: 1,
}
OPERATIONS: Final[dict[Operation, int]] = {**OWN}
OPERATIONS.update(engine_world.STEPS.items())


def live(machine: Machine, rng: Random, operations: int) -> None:
    """Take operations, each followed by its checks; the seed decides everything."""
    machine.open()
    names: list[str] = []
    drawn = rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=operations)
    try:
        for operation in drawn:
            names.append(operation.__name__)
            operation(machine, rng)
            machine.operations += 1
            if operation in WRITES:
                machine.read(machine.table, machine.model.rows, rng)
            elif operation not in OWN:
                machine.check_rows()
                machine.check_versions()
    except BaseException as error:
        error.add_note(f"after {names[-12:]}, operation {len(names)}, seed {machine.seed}")
        raise
    machine.check_rows()
    machine.check_versions()
    read_snapshots(machine, rng)
    machine.close()


def test_a_table_shows_what_its_model_shows_after_any_history(scoreboard: Record) -> None:
    gate = Gate("R12 operations against the model table: divergences", aim=200_000, full=5_000_000)

    for seed in gate.seeds():
        machine = Machine(seed)
        try:
            live(machine, Random(seed), OPERATIONS_PER_LIFE)
        finally:
            machine.abandon()
        gate.cases += machine.operations

    scoreboard(gate.line())


# The checks themselves: bugs that are planted must be found.

LIVES_TO_FIND_A_BUG: Final = 30


def flushes_without_marking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.engine.flush.superseded_rows", lambda *_args, **_named: {})


def compacts_over_marks_that_came_meanwhile(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.manifest.rebase._carry_marks_to_outputs", lambda *_args, **_named: None)


def lets_go_of_logs_too_soon(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteAheadLog, "floor_for", lambda log, _flushed: log.active_log_number)


def forgets_what_snapshots_see(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Memtable, "pin", lambda _memtable, _sequence: True)
    patch.setattr(Memtable, "unpin", lambda _memtable, _sequence: None)


def shows_rows_that_memory_replaced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryRows, "hidden", lambda _rows, _key_min, _key_max: [])


def collects_under_readers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "unexpired", lambda _leases, **_named: iter(()))


def sweeps_what_versions_reach(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.engine.upkeep.paths_of", lambda _version: set())


def forgets_the_vectors_of_a_rollback(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "neve.engine.maintenance.rollback_edit",
        lambda current, wanted: replace(
            rollback_edit(current, wanted),
            added=tuple(
                replace(file, vector=None) for file in rollback_edit(current, wanted).added
            ),
        ),
    )


BUGS: Final = (
    flushes_without_marking,
    compacts_over_marks_that_came_meanwhile,
    lets_go_of_logs_too_soon,
    forgets_what_snapshots_see,
    shows_rows_that_memory_replaced,
    collects_under_readers,
    sweeps_what_versions_reach,
    forgets_the_vectors_of_a_rollback,
)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_a_table_with_a_planted_bug_does_not_agree_with_its_model(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    for seed in range(LIVES_TO_FIND_A_BUG):
        machine = Machine(seed)
        try:
            live(machine, Random(seed), OPERATIONS_PER_LIFE)
        except (AssertionError, NeveError):
            return
        finally:
            machine.abandon()
    pytest.fail("nothing was noticed")
