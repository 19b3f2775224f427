"""A table with an order column or with merge functions beside its model, and steps of both.

With an order, the model keeps how new each key is, also after a delete. What is shown is what was
committed, with the writes that are not flushed over it, each of them unless it is older.

With merge functions, the model folds every change into the row that is there, oldest first. Jobs of
other processes fold into what is committed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pyarrow as pa

import neve
from neve.catalog.lake import Lake
from neve.storage.object_store import ObjectStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter

KEYS: Final = 12
# A write never has to wait for a flush, which the model would not know of.
OPTIONS: Final = neve.TableOptions(background=False, level0_files=2, frozen_memtables=100)
PARTITIONS: Final[tuple[list[str], ...]] = ([], ["bucket(3, id)"], ["part"])
COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "part": pa.int64(),
    "lsn": pa.int64(),
    "last": pa.string(),
    "total": pa.int64(),
    "least": pa.int64(),
    "first": pa.string(),
    "known": pa.string(),
    "all_of": pa.bool_(),
}
FUNCTIONS: Final = {
    "total": "sum",
    "least": "min",
    "first": "first",
    "known": "last_non_null",
    "all_of": "bool_and",
}

Row = dict[str, object]


@dataclass(frozen=True)
class Change:
    """A row to write, some columns of one, or without a row a delete."""

    key: int
    lsn: int
    row: Row | None
    columns: tuple[str, ...] = tuple(COLUMNS)
    merge: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Known:
    """What is known of a key: the row, if there is one, and how new it or its delete is."""

    lsn: int = -1
    row: Row | None = None

    def after(self, change: Change, *, is_ordered: bool) -> "Known":
        if is_ordered and change.lsn < self.lsn:
            return self
        if change.row is None:
            return Known(change.lsn, None)
        before = self.row or dict.fromkeys(COLUMNS)
        row = {
            name: change.row[name] if name in ("id", *change.columns) else before[name]
            for name in COLUMNS
        }
        if self.row is not None:
            for name, function in change.merge.items():
                if name in change.columns:
                    row[name] = fold(function, self.row[name], change.row[name])
        return Known(change.lsn, row)


def fold(function: str, old: object, new: object) -> object:
    """Fold a value into the one that is there, as the documentation says."""
    if function == "first":
        return old
    if old is None or new is None:
        return old if new is None else new
    if function == "last_non_null":
        return new
    assert isinstance(old, int)
    assert isinstance(new, int)
    if function == "bool_and":
        return bool(old and new)
    return old + new if function == "sum" else min(old, new)


State = dict[int, Known]


def rows_in(state: State) -> dict[int, Row]:
    """Return the rows of a state, by key."""
    return {key: each.row for key, each in state.items() if each.row is not None}


class Machine:
    """A table with its model: what is committed, and the changes since, by memtable."""

    def __init__(self, seed: int, objects: ObjectStore) -> None:
        self.rng = Random(seed)
        self.objects = objects
        self.clock = SimulatedClock()
        self.ids = SeededIds(seed)
        # In a table with an order, what partial writes and merge functions make of newer rows of
        # others depends on when those are seen: nothing is left in memory when others commit.
        kind = ("order", "order and columns", "merge", "order and merge")[seed % 4]
        self.is_ordered = kind != "merge"
        self.merge = FUNCTIONS if "merge" in kind else {}
        self.flushes_first = kind in ("order and columns", "order and merge")
        self.has_columns = kind != "order"
        self.has_batches = "merge" in kind
        self.state: State = {}
        self.waiting: list[list[Change]] = [[]]
        self.shown: State = {}
        self.batch = 0
        self.lsns = self.rng.sample(range(1_000), 1_000)
        self.past: list[Change] = []
        self.reader: neve.Table | None = None
        self.lake = self._lake()
        self.table = self.lake.create_table(
            "a.b",
            pa.schema(COLUMNS),
            ["id"],
            partition_by=PARTITIONS[seed % len(PARTITIONS)],
            order_by=["lsn"] if self.is_ordered else (),
            merge=self.merge,
            options=OPTIONS,
        )
        assert self.table.get(0) is None, "opened before others commit"

    def _lake(self) -> Lake:
        return Lake(self.objects, clock=self.clock, ids=self.ids)

    def some_changes(self, *, deletes: float = 0.3) -> list[Change]:
        """Return new changes, and some that were made before: of one age, there is one change."""
        found = [self.new_change(key, deletes) for key in self.some_keys()]
        if self.is_ordered and self.past and not self.merge and self.rng.random() < 0.4:
            found += self.rng.sample(self.past, min(3, len(self.past)))
        self.rng.shuffle(found)
        self.past += found
        return found

    def new_change(self, key: int, deletes: float = 0.0) -> Change:
        lsn = self.lsns.pop()
        row = None if self.rng.random() < deletes else self.row(key, lsn)
        return Change(key, lsn, row, merge=self.merge)

    def row(self, key: int, lsn: int) -> Row:
        rng = self.rng
        return {
            "id": key,
            "part": rng.choice((None, 0, 1, 2)),
            "lsn": lsn,
            "last": rng.choice((None, "", f"of {lsn}")),
            "total": rng.choice((None, 1, -3, lsn)),
            "least": rng.choice((None, 5, lsn)),
            "first": rng.choice((None, f"first {lsn}")),
            "known": rng.choice((None, f"known {lsn}")),
            "all_of": rng.choice((None, True, False)),
        }

    def some_keys(self) -> list[int]:
        return self.rng.choices(range(KEYS), k=self.rng.randint(1, 6))

    def made(self, changes: Sequence[Change]) -> None:
        self.waiting[-1] += changes

    def committed(self, changes: Sequence[Change]) -> None:
        """Note what another process has committed."""
        self.state = self.after(self.state, changes)

    def after(self, state: State, changes: Sequence[Change]) -> State:
        found = dict(state)
        for each in changes:
            before = found.get(each.key, Known())
            found[each.key] = before.after(each, is_ordered=self.is_ordered)
        return found

    def expected(self) -> State:
        return self.after(self.shown, [each for memtable in self.waiting for each in memtable])

    def durable(self) -> State:
        """Return what the table shows when it is opened again."""
        return self.after(self.state, [each for memtable in self.waiting for each in memtable])

    def flush_oldest(self) -> None:
        self.committed(self.waiting.pop(0))
        self.waiting = self.waiting or [[]]
        self.shown = self.state

    def check(self) -> None:
        """Compare what is shown, by scan and by key."""
        expected = rows_in(self.expected())
        scanned = {row["id"]: row for row in self.table.scan().to_arrow().to_pylist()}
        assert scanned == expected
        asked = self.table.get_many(list(range(KEYS)))
        assert {row["id"]: row for row in asked.to_pylist()} == expected
        key = self.rng.randrange(KEYS)
        assert self.table.get(key) == expected.get(key)
        if self.rng.random() < 0.2:
            self.check_reader(key)

    def check_reader(self, key: int) -> None:
        """Compare what another process reads: all that is durable."""
        expected = rows_in(self.durable())
        if self.reader is None or self.rng.random() < 0.3:
            self.reader = self._lake().table("a.b", read_only=True)
        self.reader.refresh()
        scanned = {row["id"]: row for row in self.reader.scan().to_arrow().to_pylist()}
        # It may miss a newer row of others until the writer has seen that.
        if self.shown is self.state:
            assert scanned == expected
            assert self.reader.get(key) == expected.get(key)


def event(change: Change) -> Row:
    if change.row is None:
        return {"op": "d", "id": change.key, "lsn": change.lsn}
    return {"op": "u", **change.row}


def feed(machine: Machine, changes: Sequence[Change]) -> neve.Rows:
    """Return changes as dicts or as Arrow."""
    events = list(map(event, changes))
    if machine.rng.random() < 0.5:
        return events
    columns = pa.schema({"op": pa.string(), **COLUMNS})
    return pa.Table.from_pylist(events, schema=columns)


def rows_of(changes: Sequence[Change]) -> list[Row]:
    return [each.row for each in changes if each.row is not None]


def put(machine: Machine) -> None:
    (change, *_) = machine.some_changes(deletes=0)
    if change.row is not None:
        machine.table.put(change.row)
        machine.made([change])


def upsert(machine: Machine) -> None:
    changes = [each for each in machine.some_changes(deletes=0) if each.row is not None]
    machine.table.upsert(rows_of(changes))
    machine.made(ordered(machine, changes))


def keyed_deletes(machine: Machine, state: State, keys: Sequence[int]) -> list[Change]:
    """Deletes by key are as new as the rows they find; without an order, they need none."""
    found = {key: state.get(key, Known()) for key in keys}
    return [
        Change(key, each.lsn, None)
        for key, each in found.items()
        if each.row is not None or not machine.is_ordered
    ]


def delete(machine: Machine) -> None:
    keys = machine.some_keys()
    changes = keyed_deletes(machine, machine.expected(), keys)
    if machine.rng.random() < 0.3:
        bound = machine.rng.randrange(1_000)
        wanted = [(key, each) for key, each in machine.expected().items() if each.row is not None]
        keys = [key for key, each in wanted if each.row is not None and each.lsn > bound]
        changes = keyed_deletes(machine, machine.expected(), keys)
        machine.table.delete_where(f"lsn > {bound}")
    elif machine.rng.random() < 0.5:
        machine.table.delete_many(keys)
    else:
        machine.table.delete(keys[0])
        changes = [each for each in changes if each.key == keys[0]]
    machine.made(changes)


def apply(machine: Machine) -> None:
    changes = machine.some_changes()
    if machine.has_batches:
        machine.batch += 1
        machine.table.apply(feed(machine, changes), app_id="a", batch=machine.batch)
        machine.table.apply(feed(machine, changes), app_id="a", batch=machine.batch)
    else:
        machine.table.apply(feed(machine, changes))
    machine.made(ordered(machine, changes))


def ordered(machine: Machine, changes: Sequence[Change]) -> list[Change]:
    """Return the changes of one call, oldest first."""
    return sorted(changes, key=lambda each: each.lsn) if machine.is_ordered else list(changes)


def write_some_columns(machine: Machine) -> None:
    if not machine.has_columns:
        return
    columns = machine.rng.sample(["last", "total", "least", "first", "known", "all_of"], 2)
    names = ("lsn", *columns)
    changes = [
        Change(each.key, each.lsn, each.row, names, machine.merge)
        for each in machine.some_changes(deletes=0)
        if each.row is not None
    ]
    rows: neve.Rows = rows_of(changes)
    if machine.rng.random() < 0.5:
        rows = pa.Table.from_pylist(rows_of(changes), schema=pa.schema(COLUMNS))
    machine.table.upsert(rows, columns=list(names))
    machine.made(ordered(machine, changes))


def put_if_absent(machine: Machine) -> None:
    change = machine.new_change(machine.rng.randrange(KEYS))
    known = machine.expected().get(change.key, Known())
    assert change.row is not None
    sequence = machine.table.put_if_absent(change.row)
    is_written = known.row is None and not (machine.is_ordered and change.lsn < known.lsn)
    assert (sequence is not None) == is_written
    if is_written:
        machine.made([change])


def compare_and_put(machine: Machine) -> None:
    change = machine.new_change(machine.rng.randrange(KEYS))
    known = machine.expected().get(change.key, Known())
    assert change.row is not None
    wrong = None if known.row is not None else machine.row(change.key, 0)
    assert machine.table.compare_and_put(change.row, wrong) is None
    is_newer = not (machine.is_ordered and change.lsn < known.lsn)
    assert (machine.table.compare_and_put(change.row, known.row) is not None) == is_newer
    if is_newer:
        machine.made([change])


def bulk(machine: Machine) -> None:
    """Commit beside the writer, which does not know of it."""
    if machine.flushes_first:
        flush(machine)
    with machine.lake.bulk("a.b") as job:
        made: list[Change] = []
        for _ in range(machine.rng.randint(1, 2)):
            changes = machine.some_changes()
            kind = machine.rng.choice(("upsert", "delete", "apply"))
            if kind == "upsert":
                changes = [each for each in changes if each.row is not None]
                job.upsert(rows_of(changes))
                made += changes
            elif kind == "delete":
                keys = machine.some_keys()
                made += keyed_deletes(
                    machine, machine.after(machine.state, ordered(machine, made)), keys
                )
                job.delete(keys)
            else:
                job.apply(feed(machine, changes))
                made += changes
    machine.committed(ordered(machine, made))
    if machine.flushes_first or machine.rng.random() < 0.5:
        refresh(machine)


def compact_beside(machine: Machine) -> None:
    OtherCommitter(machine.table).compact()


def refresh(machine: Machine) -> None:
    machine.table.refresh()
    machine.shown = machine.state


def roll(machine: Machine) -> None:
    if machine.table._open.engine.writer._buffer.roll():
        machine.waiting.append([])


def flush_once(machine: Machine) -> None:
    if machine.table._open.engine.writer.flush_once():
        machine.flush_oldest()


def flush(machine: Machine) -> None:
    machine.table.flush()
    while any(machine.waiting):
        machine.flush_oldest()
    machine.waiting = [[]]
    refresh(machine)


def compact(machine: Machine) -> None:
    flush(machine)
    machine.table.compact(full=machine.rng.random() < 0.5)


def clean_up(machine: Machine) -> None:
    machine.clock.advance(machine.rng.choice((1.0, 10_000.0)))
    refresh(machine)
    machine.table.expire(keep_last=1)
    machine.table.collect_garbage(dry_run=False)


def reopen(machine: Machine) -> None:
    """Begin again with what is committed and what is in the log."""
    machine.lake.close()
    machine.lake = machine._lake()
    machine.table = machine.lake.table("a.b", options=OPTIONS)
    machine.waiting = [[change for memtable in machine.waiting for change in memtable]]
    machine.shown = machine.state


STEPS: Final[dict[Callable[[Machine], None], int]] = {
    put: 4,
    upsert: 4,
    delete: 3,
    apply: 6,
    write_some_columns: 4,
    put_if_absent: 2,
    compare_and_put: 2,
    bulk: 5,
    compact_beside: 1,
    refresh: 1,
    roll: 2,
    flush_once: 2,
    flush: 2,
    compact: 1,
    clean_up: 1,
    reopen: 2,
}


def drawn_steps(machine: Machine, count: int) -> list[Callable[[Machine], None]]:
    """Draw steps by their weight."""
    return machine.rng.choices(list(STEPS), list(STEPS.values()), k=count)
