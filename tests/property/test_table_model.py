"""A table against its model: random operations, and the same rows after each.

Operations are those of a user, those of background work, and accidents: power cuts, kills, a second
process that reads, clean-up under a running scan; columns and partitions change in between. After
each operation that wrote, rows are read; after each that moved rows between memory and files,
everything is read by key and by scan, and every retained Version is read by a reader that knows
only Parquet and Puffin. The change feed is replayed, and gives every Version that it goes through;
live it gives what the table or another process shows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Final

import numpy as np
import pyarrow as pa
import pytest

from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.engine.snapshot import Snapshot
from neve.errors import NeveError, NotFound
from neve.jobs.maintenance import rollback_edit
from neve.manifest.leases import Leases
from neve.manifest.writer_state import Consumer
from neve.memtable.memtable import Memtable
from neve.model.arrow_buffers import Flags
from neve.model.bound_predicate import BoundPredicate
from neve.model.pruning import ColumnFacts, Match, match
from neve.model.row_rules import Cutoff
from neve.model.version import Version, VersionEdit
from neve.read.change_plan import CommitChanges, plan_changes
from neve.read.memory_rows import MemoryRows
from neve.storage.local_store import LocalStore
from neve.testing.model_table import Key, Row, Rows, scan_rows
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import SimulatedDisk
from neve.wal.write_ahead_log import WriteAheadLog
from tests.conftest import Record
from tests.crash import engine_steps
from tests.crash.disk_trouble import MortalDisk
from tests.crash.engine_rows import SHAPES, Violation, condition, expect, rows_by_key
from tests.crash.engine_steps import WRITES
from tests.crash.engine_world import NAME, OPTIONS, ROOT, World, forget
from tests.gates import Gate

OPERATIONS_PER_LIFE: Final = 120
SNAPSHOTS_MAX: Final = 3
LABELS: Final = frozenset({"_change_type", "_commit_version", "_commit_timestamp", "_expired"})
READS: Final = 6
GETS: Final = 20

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
        self._reader_lake: Lake | None = None

    def open_reader(self) -> Table:
        """Open the table for reading only, as another process does."""
        self.close_reader()
        ids = SeededIds(90_000 + self.operations)
        objects = LocalStore(ROOT, disk=self.disk, clock=self.clock, ids=ids)
        self._reader_lake = Lake(objects, clock=self.clock, ids=ids, create=False)
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
            read_one(self, view, rows, key)
        for read in rng.choices([read_many, read_filtered, read_range, count], k=2):
            read(self, view, rows, rng)
        self.operations += GETS + 2


# Reading


def key_names(view: View) -> tuple[str, ...]:
    return tuple(column.name for column in view.schema.key_columns)


def shown(view: View) -> Rows:
    """Read everything that a view shows."""
    return rows_by_key(view.scan().to_arrow(), key_names(view))


def read_one(machine: Machine, view: View, rows: Rows, key: Key) -> None:
    found = view.get(machine.shape.bare(key))
    if found != rows.get(key):
        raise Violation(f"get {key} gives {found}, not {rows.get(key)}")


def read_many(machine: Machine, view: View, rows: Rows, rng: Random) -> None:
    shape = machine.shape
    keys = rng.choices(shape.keys, k=rng.choice((0, 1, 7, 20)))
    with_missing = rng.random() < 0.5
    found = view.get_many([shape.bare(key) for key in keys], with_missing=with_missing)
    nothing: Row = dict.fromkeys(view.schema.arrow_schema.names)
    expected = [rows.get(key, nothing) for key in keys if with_missing or key in rows]
    check_list(found, expected, f"get_many with_missing={with_missing}")


def read_filtered(_machine: Machine, view: View, rows: Rows, rng: Random) -> None:
    text, matches = condition(view.schema, rng)
    names, key = view.schema.arrow_schema.names, key_names(view)
    some = [*key, *(name for name in names[::2] if name not in key)]
    columns = rng.choice([None, some, [*reversed(names)]])
    found = view.scan(text, columns=columns).to_arrow()
    expected = scan_rows(rows, matches)
    if columns is not None:
        expected = [{name: row[name] for name in columns} for row in expected]
    check_list(found, expected, f"scan {text}", key=key)


def read_range(machine: Machine, view: View, rows: Rows, rng: Random) -> None:
    shape = machine.shape
    low, high = sorted(rng.choices(shape.keys, k=2))
    first, end = rng.choice((None, low)), rng.choice((None, high))
    reverse = rng.random() < 0.4
    limit = rng.choice((None, None, 1, 5))
    text, matches = rng.choice([(None, None), condition(view.schema, rng)])
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


def count(_machine: Machine, view: View, rows: Rows, rng: Random) -> None:
    text, matches = rng.choice([(None, None), condition(view.schema, rng)])
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
        expect(shown(snapshot), rows, f"{snapshot}")
        machine.read(snapshot, rows, rng)


def overwrite_under_a_snapshot(machine: Machine, rng: Random) -> None:
    """Fill the memory with rows that a snapshot sees, and with others that replace them."""
    keys = rng.sample(machine.shape.keys, 3)
    engine_steps.put_often(machine, rng, keys, count=10)
    take_snapshot(machine, rng)
    engine_steps.put_often(machine, rng, keys, count=60)
    read_snapshots(machine, rng)


def read_table(machine: Machine, rng: Random) -> None:
    for _ in range(READS):
        machine.read(machine.table, machine.model.rows, rng)


def travel(machine: Machine, rng: Random) -> None:
    """Read an old Version by its number, and a tagged one by its tag."""
    machine.check_versions()
    number = rng.choice(sorted(machine.model.versions))
    seen = {version.number: machine.seen_at(version) for version in machine.retained()}
    with machine.table.at(version=number) as old:
        rows = seen[number]
        expect(shown(old), rows, f"at version {number}")
        machine.read(old, rows, rng)
    tagged = machine.model.tags.get("kept")
    if tagged is not None:
        with machine.table.at(tag="kept") as old:
            expect(shown(old), seen[tagged], "tag")
    with pytest.raises(NotFound):
        machine.table.at(tag="never given")


def read_beside(machine: Machine, rng: Random) -> None:
    """Another process reads what is committed and what is in the log, and keeps up."""
    if machine.reader is None or rng.random() < 0.3:
        machine.open_reader()
    reader = machine.reader
    assert reader is not None
    reader.refresh()
    expect(shown(reader), machine.model.rows, "read-only")
    machine.read(reader, machine.model.rows, rng)


def collect_under_a_scan(machine: Machine, rng: Random) -> None:
    """Rewrite, evolve, expire and delete everything while a scan is under way."""
    rows, key = machine.model.rows, machine.model.primary_key
    batches: Iterator[pa.RecordBatch] = iter(machine.table.scan().to_batches())
    first = next(batches, None)
    for step in (
        engine_steps.upsert,
        engine_steps.evolve,
        engine_steps.compact_full,
        engine_steps.expire,
        engine_steps.collect_garbage,
    ):
        step(machine, rng)
    if first is None:
        expect({}, rows, "scan under clean-up")
    else:
        found = pa.Table.from_batches([first, *batches])
        expect(rows_by_key(found, key), rows, "scan under clean-up")


def power_cut(machine: Machine, rng: Random) -> None:
    """Lose what was not synced, and recover, once or more often."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        machine.abandon()
        machine.simulated = machine.simulated.after_power_cut(rng)
        machine.disk = MortalDisk(machine.simulated)
        machine.check_found()


def replay_changes(machine: Machine, rng: Random) -> None:
    """Do to the rows of a Version what the feed says, and meet every Version on the way."""
    machine.check_versions()
    model, table = machine.model, machine.table
    oldest = table._open.stored.versions.head().oldest_version
    if oldest > 1:
        with pytest.raises(NotFound, match=f"since={oldest} on"):
            table.changes(oldest - 1)
    since = rng.choice([0 if oldest == 1 else oldest, rng.randint(oldest, model.version)])
    until = rng.choice([model.version, rng.randint(max(since, 1), model.version)])
    age = model.age_of(until)
    # The columns of a feed are those of its end, whenever a change happened.
    rows = {} if not since else model.evolved(model.at(since), since=model.age_of(since), until=age)
    replayed = Replayed(dict(rows), key_names_at(machine, until))
    changes = table.changes(since, until).read_all().to_pylist()
    operations = {row["version"]: row["operation"] for row in table.history().to_pylist()}
    for number in range(since + 1, until + 1):
        while changes and changes[0]["_commit_version"] == number:
            replayed.take(changes.pop(0))
            if operations[number] in {"CREATE", "EVOLVE", "REPLACE"}:
                raise Violation(f"{operations[number]} is told as a change of rows")
        then = model.evolved(model.at(number), since=model.age_of(number), until=age)
        expect(replayed.rows, then, f"changes after {since} replayed up to {number} of {until}")
    if changes:
        raise Violation(f"changes after {since} until {until} tell of {changes}")
    machine.operations += until - since


def replay_live(machine: Machine, rng: Random) -> None:
    """Do to the rows of a Version what a live feed says: the rows of now, here and beside."""
    machine.check_versions()
    model = machine.model
    since = rng.randint(machine.table._open.stored.versions.head().oldest_version, model.version)
    if machine.reader is None:
        machine.open_reader()
    assert machine.reader is not None
    for table in (machine.table, machine.reader):
        changes = table.changes(since, live=True).read_all().to_pylist()
        replayed = Replayed(dict(model.at_present(since)), key_names(table))
        is_live = False
        for change in changes:
            if is_live and change["_commit_version"] is not None:
                raise Violation("a live change comes before a committed one")
            is_live = change["_commit_version"] is None
            replayed.take(change)
        # A feed is of stored rows: it reports an expired one as deleted when it is removed.
        seen = machine.unexpired(replayed.rows)
        expect(seen, model.rows, f"live changes after {since} replayed")
    machine.operations += 2 * (model.version - since + 1)


def key_names_at(machine: Machine, version: int) -> tuple[str, ...]:
    with machine.table.at(version) as view:
        return key_names(view)


class Replayed:
    """Rows to which is done what a feed says, strictly."""

    def __init__(self, rows: Rows, primary_key: tuple[str, ...]) -> None:
        self.rows = rows
        self._primary_key = primary_key
        self._replaced: Key | None = None

    def take(self, change: Row) -> None:
        """Do one change; raises Violation when it cannot be."""
        row = {name: value for name, value in change.items() if name not in LABELS}
        key = tuple(row[name] for name in self._primary_key)
        kind = change["_change_type"]
        if kind in {"delete", "update_preimage"}:
            if self.rows.pop(key, None) != row:
                raise Violation(f"{kind} of {row}, which was not there")
        elif key in self.rows or (self._replaced == key) != (kind == "update_postimage"):
            raise Violation(f"{kind} of {row}, whose key is taken or was not given up before")
        else:
            self.rows[key] = row
        self._replaced = key if kind == "update_preimage" else None


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
    replay_changes: 3,
    replay_live: 3,
    collect_under_a_scan: 1,
    power_cut: 2,
    verify: 1,
}
OPERATIONS: Final[dict[Operation, int]] = {**OWN}
OPERATIONS.update(engine_steps.STEPS.items())


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
    assert gate.cases


# The checks themselves: bugs that are planted must be found.

LIVES_TO_FIND_A_BUG: Final = 30


def flushes_without_marking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.table.table_files.superseded_rows", lambda *_args, **_named: {})


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
        "neve.jobs.maintenance.rollback_edit",
        lambda current, wanted: replace(
            rollback_edit(current, wanted),
            added=tuple(
                replace(file, vector=None) for file in rollback_edit(current, wanted).added
            ),
        ),
    )


def leaves_new_columns_empty(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "neve.table.schema_mapping.constant_array",
        lambda column, _value, *, length: pa.nulls(length, column.type),
    )


def believes_what_is_expected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.engine.conditional_writes._is_same", lambda *_args: True)


def tells_of_compactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.read.change_plan._WITHOUT_CHANGES", frozenset())


def tells_of_no_deletes(patch: pytest.MonkeyPatch) -> None:
    def plan(before: Version | None, edit: VersionEdit, after: Version) -> CommitChanges | None:
        commit = plan_changes(before, edit, after)
        return None if commit is None or not commit.brought else commit

    patch.setattr("neve.engine.change_feed.plan_changes", plan)


def tells_live_of_rows_but_not_of_what_they_replace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryRows, "changed_keys", lambda _rows: [])


def expires_what_consumers_have_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consumer, "holds", lambda _consumer, _head, _now_ms: False)


def removes_rows_that_partial_writes_need(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("neve.engine.live_writer.partial_keys", lambda _memtables: [])


def merges_partial_writes_with_expired_rows(patch: pytest.MonkeyPatch) -> None:
    def none_expired(_cutoff: Cutoff, rows: pa.Table) -> Flags:
        return np.zeros(rows.num_rows, np.bool_)

    patch.setattr(Cutoff, "expired_flags", none_expired)


def removes_rows_with_the_others_of_their_file(patch: pytest.MonkeyPatch) -> None:
    def some(asked: BoundPredicate, facts: Mapping[int, ColumnFacts]) -> Match:
        return Match.ALWAYS if match(asked, facts) is not Match.NEVER else Match.NEVER

    patch.setattr("neve.engine.row_expiry.match", some)


OF_EXPIRY: Final = (
    removes_rows_that_partial_writes_need,
    merges_partial_writes_with_expired_rows,
    removes_rows_with_the_others_of_their_file,
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
    leaves_new_columns_empty,
    believes_what_is_expected,
    tells_of_compactions,
    tells_of_no_deletes,
    tells_live_of_rows_but_not_of_what_they_replace,
    expires_what_consumers_have_not_read,
    *OF_EXPIRY,
)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_a_table_with_a_planted_bug_does_not_agree_with_its_model(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    expiring = next(place for place, shape in enumerate(SHAPES) if shape.ttl is not None)
    first, pace = (expiring, len(SHAPES)) if bug in OF_EXPIRY else (0, 1)
    for seed in range(first, LIVES_TO_FIND_A_BUG, pace):
        machine = Machine(seed)
        try:
            live(machine, Random(seed), OPERATIONS_PER_LIFE)
        except (AssertionError, NeveError, pa.ArrowInvalid):
            return
        finally:
            machine.abandon()
    pytest.fail("nothing was noticed")
