"""Partial and conditional writes against a model, beside a committer that is not the writer.

The model is the definition: what the table holds is what was committed, in the order of commits,
with the writes that are not flushed over it, in theirs. A write of some columns changes these of
whatever row is there then.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import pyarrow as pa
import pytest

import neve
from neve.catalog.lake import Lake
from neve.storage.memory_store import MemoryStore
from neve.testing.model_table import Key, ModelTable, Row
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter

SEEDS: Final = 24
OPERATIONS: Final = 60
KEYS: Final = 12
OTHERS: Final = ("a", "b", "c")
COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "a": pa.int64(),
    "b": pa.string(),
    "c": pa.list_(pa.int64()),
}
PARTITIONS: Final[tuple[list[str], ...]] = ([], ["bucket(3, id)"], ["a"])
# A writer that has to wait for a flush would do it by itself, and the model would not know.
OPTIONS: Final = neve.TableOptions(background=False, frozen_memtables=OPERATIONS)

Change = Callable[[ModelTable], None]


class Machine:
    """A table with its model: what is committed, and the changes since, by memtable."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.objects = MemoryStore()
        self.clock = SimulatedClock()
        self.ids = SeededIds(seed)
        self.committed = ModelTable(["id"])
        self.waiting: list[list[Change]] = [[]]
        self.shown = ModelTable(["id"])
        """What was committed when the table last looked, without what is waiting."""
        self.lake = self._lake()
        self.table = self.lake.create_table(
            "a.b",
            pa.schema(COLUMNS),
            ["id"],
            partition_by=PARTITIONS[seed % len(PARTITIONS)],
            options=OPTIONS,
        )

    def _lake(self) -> Lake:
        return Lake(self.objects, clock=self.clock, ids=self.ids)

    def row(self, key: int) -> Row:
        rng = self.rng
        return {
            "id": key,
            "a": rng.choice((None, 0, 1, 2)),
            "b": rng.choice((None, "", "x", "y" * 9)),
            "c": rng.choice((None, [], [1, None])),
        }

    def some_keys(self) -> list[int]:
        return self.rng.sample(range(KEYS), self.rng.randint(1, 5))

    def change(self, change: Change) -> None:
        self.waiting[-1].append(change)

    def expected(self) -> ModelTable:
        """Return what the table shows now."""
        model = self.shown.copy()
        for memtable in self.waiting:
            for change in memtable:
                change(model)
        return model

    def flush_oldest(self) -> None:
        for change in self.waiting.pop(0):
            change(self.committed)
        self.waiting = self.waiting or [[]]
        self.shown = self.committed.copy()

    def check(self) -> None:
        expected = self.expected()
        scanned = {(row["id"],): row for row in self.table.scan().to_arrow().to_pylist()}
        assert scanned == expected.rows
        asked = self.table.get_many(list(range(KEYS)))
        assert {(row["id"],): row for row in asked.to_pylist()} == expected.rows
        key = self.rng.randrange(KEYS)
        assert self.table.get(key) == expected.rows.get((key,))


def put(machine: Machine) -> None:
    row = machine.row(machine.rng.randrange(KEYS))
    machine.table.put(row)
    machine.change(lambda model: model.put(row))


def upsert(machine: Machine) -> None:
    rows = [machine.row(key) for key in machine.some_keys()]
    machine.table.upsert(rows)
    machine.change(lambda model: model.upsert(rows))


def delete(machine: Machine) -> None:
    keys = machine.some_keys()
    machine.table.delete_many(keys)
    machine.change(lambda model: model.delete_many((key,) for key in keys))


def write_some_columns(machine: Machine) -> None:
    columns = machine.rng.sample(OTHERS, machine.rng.randint(1, 3))
    rows = [machine.row(key) for key in machine.some_keys()]
    given: neve.Rows = rows
    if machine.rng.random() < 0.5:
        given = pa.Table.from_pylist(rows, schema=pa.schema(COLUMNS))
    machine.table.upsert(given, columns=columns)
    machine.change(lambda model: model.upsert_columns(rows, columns))


def put_if_absent(machine: Machine) -> None:
    row = machine.row(machine.rng.randrange(KEYS))
    is_free = (row["id"],) not in machine.expected().rows
    assert (machine.table.put_if_absent(row) is not None) == is_free
    if is_free:
        machine.change(lambda model: model.put(row))


def compare_and_put(machine: Machine) -> None:
    row = machine.row(machine.rng.randrange(KEYS))
    key: Key = (row["id"],)
    found = machine.expected().rows.get(key)
    wrong = None if found is not None else machine.row(machine.rng.randrange(1)) | {"id": key[0]}
    assert machine.table.compare_and_put(row, wrong) is None
    assert machine.table.compare_and_put(row, found) is not None
    machine.change(lambda model: model.put(row))


def commit_beside(machine: Machine) -> None:
    other = OtherCommitter(machine.table)
    keys = machine.some_keys()
    if machine.rng.random() < 0.4:
        other.delete(keys)
        machine.committed.delete_many((key,) for key in keys)
    else:
        rows = [machine.row(key) for key in keys]
        other.upsert(rows)
        machine.committed.upsert(rows)
    if machine.rng.random() < 0.5:
        refresh(machine)


def refresh(machine: Machine) -> None:
    machine.table.refresh()
    machine.shown = machine.committed.copy()


def read_live(machine: Machine) -> None:
    """Do what a live feed says: it looks at the commits of others, and merges with them."""
    rows: dict[Key, Row] = {}
    for change in machine.table.changes(0, live=True).read_all().to_pylist():
        kind, key = change["_change_type"], (change["id"],)
        row = {name: change[name] for name in COLUMNS}
        if kind in {"delete", "update_preimage"}:
            assert rows.pop(key) == row
        else:
            assert key not in rows
            rows[key] = row
    machine.shown = machine.committed.copy()
    assert rows == machine.expected().rows


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
    # A flush without anything to write looks at nothing.
    machine.table.refresh()
    machine.shown = machine.committed.copy()


def compact(machine: Machine) -> None:
    flush(machine)
    machine.table.compact(full=machine.rng.random() < 0.5)


def reopen(machine: Machine) -> None:
    """Begin again with what is committed and what is in the log."""
    machine.lake.close()
    machine.lake = machine._lake()
    machine.table = machine.lake.table("a.b", options=OPTIONS)
    machine.waiting = [[change for memtable in machine.waiting for change in memtable]]
    machine.shown = machine.committed.copy()


STEPS: Final[dict[Callable[[Machine], None], int]] = {
    put: 3,
    upsert: 3,
    delete: 2,
    write_some_columns: 9,
    put_if_absent: 2,
    compare_and_put: 2,
    commit_beside: 4,
    refresh: 1,
    read_live: 4,
    roll: 2,
    flush_once: 2,
    flush: 2,
    compact: 1,
    reopen: 2,
}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_table_with_partial_writes_shows_what_its_model_shows(seed: int) -> None:
    machine = Machine(seed)
    names: list[str] = []
    try:
        for step in machine.rng.choices(list(STEPS), list(STEPS.values()), k=OPERATIONS):
            names.append(step.__name__)
            step(machine)
            machine.check()
        flush(machine)
        machine.check()
        assert not machine.table.verify().problems
    except BaseException as error:
        error.add_note(f"after {names[-12:]}")
        raise
    finally:
        machine.lake.close()
