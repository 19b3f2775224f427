"""A live table whose schema changes, on a disk that loses power in any call.

Rows are in the log, in young and in compacted files when columns come, go, change their names and
types, and when partitions change. Whatever the disk kept: the definition and the rows are those
after the last acknowledged step or after the one under way, old Versions read under the schema of
their day, and going on from there leads to where an uncut history leads.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

import pyarrow as pa

from neve.catalog.lake import Lake
from neve.catalog.table import Table
from neve.engine.table_options import TableOptions
from neve.errors import NotFound
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.crash.disk_trouble import check_survivors
from tests.crash.engine_world import forget
from tests.gates import Gate

ROOT: Final = "/srv/lake"
NAME: Final = "shop.orders"
OPTIONS: Final = TableOptions(background=False, log_bytes=32 << 10)
CHOICES_PER_CUT: Final = 4
# Far from every divisor of the number of calls, so that the cuts of a short gate are spread.
STRIDE: Final = 97
_COLUMNS: Final[dict[str, pa.DataType]] = {
    "id": pa.int64(),
    "count": pa.int32(),
    "place": pa.struct([("street", pa.string()), ("zip", pa.int32())]),
}

Step = Callable[[Table], object]
Observed = tuple[object, ...]


def a_row(key: int, **more: object) -> dict[str, object]:
    return {"id": key, "count": key * 2, "place": {"street": f"s{key}", "zip": key}} | more


def write_rows(table: Table) -> None:
    table.upsert([a_row(key) for key in range(6)])


def flush(table: Table) -> None:
    table.flush()


def write_one_more(table: Table) -> None:
    table.put(a_row(4, count=None))


def add_columns(table: Table) -> None:
    with table.evolve() as e:
        e.add_column("team", "string", default="red", nullable=False)
        e.add_column("place.city", "string")


def write_new_columns(table: Table) -> None:
    table.upsert([a_row(6) | {"team": "blue"}, a_row(1) | {"team": "green"}])


def rename_widen_and_divide(table: Table) -> None:
    with table.evolve() as e:
        e.rename_column("place.zip", "postcode")
        e.widen_column("count", "long")
        e.set_partition_by(["team"])
        e.set_sort_by(["id"])


def write_wide(table: Table) -> None:
    table.put({"id": 2, "count": 1 << 40, "place": {"postcode": 7}, "team": "blue"})


def compact(table: Table) -> None:
    table.compact(full=True)


def drop_and_add_again(table: Table) -> None:
    with table.evolve() as e:
        e.drop_column("count")
        e.add_column("count", "string", default="none")
        e.drop_column("team")
        e.set_partition_by(["bucket(2, id)"])
        e.set_sort_by([])


def delete_one(table: Table) -> None:
    table.delete(3)


STEPS: Final[tuple[Step, ...]] = (
    write_rows,
    flush,
    write_one_more,
    add_columns,
    write_new_columns,
    rename_widen_and_divide,
    write_wide,
    flush,
    drop_and_add_again,
    delete_one,
    compact,
)


def open_table(disk: SimulatedDisk, *, seed: int) -> Table:
    clock, ids = SimulatedClock(), SeededIds(seed)
    lake = Lake(LocalStore(ROOT, disk=disk, clock=clock, ids=ids), clock=clock, ids=ids)
    with suppress(NotFound):
        return lake.table(NAME, options=OPTIONS)
    table = lake.create_table(NAME, pa.schema(_COLUMNS), ["id"], options=OPTIONS)
    _ = table._open.engine
    return table


def observed(table: Table) -> Observed:
    """Everything that a step changes."""
    table.refresh()
    rows = table.scan(key_range=(None, None)).to_arrow()
    assert [table.get(row["id"]) for row in rows.to_pylist()] == rows.to_pylist()
    return (
        str(table.schema.arrow_schema),
        table.spec.texts(table.schema),
        str(table.sort_order),
        str(rows.to_pylist()),
    )


@dataclass(frozen=True)
class UncutHistory:
    """What is seen after each step, and which calls of the disk change something."""

    after: tuple[Observed, ...]
    changing_calls: tuple[int, ...]


@cache
def uncut_history() -> UncutHistory:
    table = open_table(SimulatedDisk(), seed=0)
    after = [observed(table)]
    for step in STEPS:
        step(table)
        after.append(observed(table))
    table.close()
    plain = SimulatedDisk()
    opened_at, _ = run(plain)
    calls = enumerate(plain.log, start=1)
    changing = [at for at, call in calls if call.kind in CHANGES and at > opened_at]
    return UncutHistory(tuple(after), tuple(changing))


def run(disk: SimulatedDisk) -> tuple[int, int]:
    """Take the steps until the power goes; gives the calls of opening, and the steps done."""
    table = open_table(disk, seed=0)
    opened_at, done = disk.calls, 0
    with suppress(PowerCut):
        for step in STEPS:
            step(table)
            done += 1
    forget(table)
    return opened_at, done


def check_survivor(disk: SimulatedDisk, done: int, *, seed: int) -> None:
    history = uncut_history()
    table = open_table(disk, seed=seed)
    after = observed(table)
    allowed = history.after[done : done + 2]
    assert after in allowed, f"after {done} steps: {after} is none of {allowed}"
    schemas = {str(schema.arrow_schema) for schema in table._open.schemas}
    for version in table.history().column("version").to_pylist():
        with table.at(version=version) as old:
            rows = old.scan().to_arrow()
            assert str(rows.schema) in schemas
            rows.validate(full=True)
    for number, step in enumerate(STEPS[done:], start=done):
        if number == done and after == history.after[done + 1] != history.after[done]:
            continue  # it was under way, and has happened
        step(table)
    assert observed(table) == history.after[-1]
    table.verify()
    table.close()


def test_a_change_of_a_live_table_cut_by_power_loss_happened_or_did_not(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 power cuts in evolutions of a live table", aim=400, full=20_000)
    calls = uncut_history().changing_calls

    for seed in gate.seeds():
        cut_at = calls[seed * STRIDE % len(calls)]
        disk = SimulatedDisk().power_cut_at(cut_at)
        _, done = run(disk)
        assert done < len(STEPS)

        def check(survivor: SimulatedDisk, choice: int, done: int = done) -> None:
            check_survivor(survivor, done, seed=1_000 + choice)

        check_survivors(gate, disk, check, seed=seed, cut_at=cut_at, choices=CHOICES_PER_CUT)

    scoreboard(gate.line())
    assert gate.cases


def test_an_uncut_history_of_changes_ends_as_it_should() -> None:
    schema, partition_by, _, rows = uncut_history().after[-1]

    assert "team" not in str(schema)
    assert partition_by == ["bucket(2, id)"]
    assert str(rows).count("'count': 'none'") == 6
    assert str(rows).count("'postcode'") == 6
