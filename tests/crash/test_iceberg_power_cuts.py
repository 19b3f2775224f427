"""Publishing on a disk that loses power in any call: readers always find a whole Version.

A history of commits is run with the power cut in one call of the disk. Whatever the disk kept, the
document that the hint names shows the rows of one Version, and so does the newest document. Opening
the table and publishing leads to the table's own rows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from neve import TableOptions
from neve.catalog.kv_catalog import KVCatalog
from neve.catalog.table import Table
from neve.errors import NotFound
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.crash.engine_world import forget
from tests.gates import Gate
from tests.interop.iceberg_walk import read_metadata, walk
from tests.unit.iceberg.published_lake import SCHEMA

ROOT: Final = "/srv/my lake"
OPTIONS: Final = TableOptions(background=False)
CHOICES_PER_CUT: Final = 3
# Far from every divisor of the number of calls, so that the cuts of a short gate are spread.
STRIDE: Final = 97

Step = Callable[[Table], None]
Keys = list[tuple[int, str]]


def write(*keys: int, name: str) -> Step:
    def run(table: Table) -> None:
        table.upsert([{"id": key, "name": name} for key in keys])
        table.flush()

    return run


def delete(key: int) -> Step:
    def run(table: Table) -> None:
        table.delete(key)
        table.flush()

    return run


def add_column(table: Table) -> None:
    with table.evolve() as change:
        change.add_column("note", "string")


def compact(table: Table) -> None:
    table.compact(full=True)


def roll_back(table: Table) -> None:
    table.rollback(4)


def expire(table: Table) -> None:
    table.expire(keep_last=2)
    table.collect_garbage(dry_run=False)


STEPS: Final[tuple[Step, ...]] = (
    write(1, 2, 3, name="a"),
    write(2, 4, name="b"),
    delete(1),
    lambda table: table.tag("kept", 3),
    compact,
    add_column,
    write(3, 5, name="c"),
    roll_back,
    expire,
    write(6, name="d"),
)


def open_store(disk: SimulatedDisk, *, seed: int) -> LocalStore:
    return LocalStore(ROOT, disk=disk, clock=SimulatedClock(), ids=SeededIds(seed))


def open_table(store: LocalStore, *, seed: int) -> Table:
    lake = KVCatalog(store, clock=SimulatedClock(), ids=SeededIds(seed))
    if not lake.table_exists("shop.orders"):
        properties = {"format-version": "3" if seed % 2 else "2"}
        return lake.create_table(
            "shop.orders", SCHEMA, ["id"], properties=properties, options=OPTIONS
        )
    return lake.table("shop.orders", options=OPTIONS)


@contextmanager
def left_to_die() -> Iterator[list[Table]]:
    """Let nobody close tables that a dead process had open."""
    tables: list[Table] = []
    try:
        yield tables
    finally:
        for table in tables:
            forget(table)


def rows_of(table: Table) -> Keys:
    found = table.scan().to_arrow().to_pylist()
    return sorted((row["id"], row["name"]) for row in found)


@dataclass(frozen=True)
class UncutHistory:
    """Rows of every Version, and which calls of the disk change something."""

    rows: dict[int, Keys]
    changing_calls: tuple[int, ...]


@cache
def uncut_history(seed: int) -> UncutHistory:
    disk = SimulatedDisk()
    table = open_table(open_store(disk, seed=seed), seed=seed)
    opened_at = disk.calls
    rows = {table.version: rows_of(table)}
    for step in STEPS:
        step(table)
        for number in range(max(rows) + 1, table.version + 1):
            with table.at(number) as version:
                found = version.scan().to_arrow().to_pylist()
            rows[number] = sorted((row["id"], row["name"]) for row in found)
    forget(table)
    plain = SimulatedDisk()
    assert run(plain, seed=seed) == len(STEPS)
    changing = [
        number
        for number, call in enumerate(plain.log, start=1)
        if call.kind in CHANGES and number > opened_at
    ]
    return UncutHistory(rows, tuple(changing))


def run(disk: SimulatedDisk, *, seed: int) -> int:
    """Take the steps until the power goes; gives how many were acknowledged."""
    done = 0
    with suppress(PowerCut), left_to_die() as tables:
        table = open_table(open_store(disk, seed=seed), seed=seed)
        tables.append(table)
        for step in STEPS:
            step(table)
            done += 1
    return done


def published_rows(store: LocalStore, location: str) -> Keys:
    """Give what a reader of a document finds; everything that it reaches must be there."""

    def fetch(at: str) -> bytes:
        return store.get(at.removeprefix(f"file://{ROOT}/")).payload

    metadata = read_metadata(location, fetch)
    if not metadata["snapshots"]:
        return []
    rows = walk(metadata, metadata["current-snapshot-id"], fetch).rows({1: "id", 2: "name"})
    return sorted((row["id"], row["name"]) for row in rows.to_pylist())


def check_published(store: LocalStore, rows: dict[int, Keys]) -> int:
    """Check what the hint names, and the newest document; gives the number that the hint names."""
    names = [info.path for info in store.list("tables/")]
    documents = {
        int(name.rpartition("/v")[2].split(".")[0]): name
        for name in names
        if name.endswith(".metadata.json")
    }
    hint = next((name for name in names if name.endswith("version-hint.text")), None)
    named = 0 if hint is None else int(store.get(hint).payload)
    for number in {named, max(documents, default=0)} - {0}:
        found = published_rows(store, f"file://{ROOT}/{documents[number]}")
        assert found == rows[number], f"version {number}"
    return named


def check_survivor(disk: SimulatedDisk, *, seed: int, history: UncutHistory) -> None:
    check_published(open_store(disk, seed=seed), history.rows)
    store = open_store(disk, seed=seed + 1_000)
    with suppress(NotFound), left_to_die() as tables:
        table = open_table(store, seed=seed)
        tables.append(table)
        table.flush()
        assert check_published(store, {table.version: rows_of(table)}) == table.version
        write(7, name="e")(table)
        assert check_published(store, {table.version: rows_of(table)}) == table.version


def test_what_is_published_is_a_committed_version_whenever_the_power_goes(
    scoreboard: Record,
) -> None:
    gate = Gate("R5 power cuts in commit and publish", aim=300, full=20_000)

    for seed in gate.seeds():
        history = uncut_history(seed % 2)
        calls = history.changing_calls
        cut_at = calls[seed * STRIDE % len(calls)]
        disk = SimulatedDisk().power_cut_at(cut_at)
        done = run(disk, seed=seed % 2)
        assert done < len(STEPS)
        for choice in range(CHOICES_PER_CUT):
            survivor = disk.after_power_cut(Random(f"{seed}/{choice}"))
            try:
                check_survivor(survivor, seed=seed % 2, history=history)
            except AssertionError as violation:
                gate.violations += 1
                violation.add_note(f"seed {seed}, choice {choice}, cut in call {cut_at}")
                raise
            gate.cases += 1

    scoreboard(gate.line())


def test_an_uncut_history_is_published_in_both_formats() -> None:
    for seed in (0, 1):
        history = uncut_history(seed)

        assert history.rows[max(history.rows)][-1] == (6, "d")
        assert len(history.changing_calls) > 500
