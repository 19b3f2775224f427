"""The catalog on a disk that loses power in any call: each operation happened, or it did not.

A history of operations is run with the power cut in one call of the disk. Whatever the disk kept,
opening gives the state after the last acknowledged operation or after the one under way, in both
stores alike, and going on from there leads to where an uncut history leads.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Final

from neve.catalog.kv_catalog import KVCatalog
from neve.errors import AlreadyExists, NotFound
from neve.storage.local_store import LocalStore
from neve.testing.disk_calls import CHANGES
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from neve.testing.simulated_disk import PowerCut, SimulatedDisk
from tests.conftest import Record
from tests.gates import Gate
from tests.unit.catalog.builders import a_table, with_renamed, without_column

ROOT: Final = "/srv/lake"
CHOICES_PER_CUT: Final = 4
# Far from every divisor of the number of calls, so that the cuts of a short gate are spread.
STRIDE: Final = 97

Step = Callable[[KVCatalog], None]
Observed = dict[str, object]


def create_orders(lake: KVCatalog) -> None:
    a_table(lake, "shop.orders", partition_by=["day(ts)"], sort_by=["id"])


def create_items(lake: KVCatalog) -> None:
    a_table(lake, "shop.items", properties={"owner": "anna"})


def write_files_of_items(lake: KVCatalog) -> None:
    paths = lake.load_table("shop.items").stored.paths
    for name in ("a", "b"):
        lake._stores.objects.put(paths.data_file(name), b"rows")


def rename_a_column(lake: KVCatalog) -> None:
    table = lake.load_table("shop.orders")
    table.update_schema(with_renamed(table.schema, "amount", "price"))


def change_partitions(lake: KVCatalog) -> None:
    lake.load_table("shop.orders").update_partition_spec(["bucket(4, id)"])


def drop_a_column(lake: KVCatalog) -> None:
    table = lake.load_table("shop.orders")
    table.update_schema(without_column(table.schema, "customer"))


def set_a_property(lake: KVCatalog) -> None:
    lake.load_table("shop.items").set_properties({"owner": "ben"})


def set_retention(lake: KVCatalog) -> None:
    lake.load_table("shop.items").set_properties({"neve.retention.versions": "9"})


def rename_orders(lake: KVCatalog) -> None:
    lake.rename_table("shop.orders", "eu.sales")


def drop_items_and_files(lake: KVCatalog) -> None:
    lake.drop_table("shop.items", purge=True)


def drop_orders(lake: KVCatalog) -> None:
    lake.drop_table("eu.sales")


def drop_the_namespace(lake: KVCatalog) -> None:
    lake.drop_namespace("eu")


STEPS: Final[tuple[Step, ...]] = (
    create_orders,
    create_items,
    write_files_of_items,
    rename_a_column,
    change_partitions,
    drop_a_column,
    set_a_property,
    set_retention,
    rename_orders,
    drop_items_and_files,
    drop_orders,
    drop_the_namespace,
    create_orders,
)


def open_lake(disk: SimulatedDisk, *, seed: int) -> KVCatalog:
    clock, ids = SimulatedClock(), SeededIds(seed)
    return KVCatalog(LocalStore(ROOT, disk=disk, clock=clock, ids=ids), clock=clock, ids=ids)


def observed(lake: KVCatalog) -> Observed:
    """Everything that an operation changes; both stores must tell the same."""
    seen: Observed = {"namespaces": lake.list_namespaces()}
    for name in lake.list_tables():
        table = lake.load_table(name)
        copy = lake._entries.meta(name)
        assert copy.schemas == table.schemas
        assert copy.specs == table.specs
        assert (copy.schema_version, copy.spec_id) == (table.schema.schema_id, table.spec.spec_id)
        assert (copy.sort_order, copy.retention) == (str(table.sort_order), table.retention)
        seen[name] = (
            table.table_id.partition("-")[0],
            table.version,
            table.schema.arrow_schema.names,
            [field.name for field in table.spec.fields],
            str(table.sort_order),
            table.properties,
        )
    return seen


def files_left(lake: KVCatalog, table: str) -> list[str]:
    return [info.path for info in lake._stores.objects.list(f"tables/{table}-")]


@dataclass(frozen=True)
class UncutHistory:
    """What is seen after each step, and which calls of the disk change something."""

    after: tuple[Observed, ...]
    changing_calls: tuple[int, ...]


@cache
def uncut_history() -> UncutHistory:
    disk = SimulatedDisk()
    lake = open_lake(disk, seed=0)
    opened_at = disk.calls
    after = [observed(lake)]
    for step in STEPS:
        step(lake)
        after.append(observed(lake))
    # Observing reads only, so the calls of a run without it are counted apart.
    plain = SimulatedDisk()
    run(plain)
    changing = [
        number
        for number, call in enumerate(plain.log, start=1)
        if call.kind in CHANGES and number > opened_at
    ]
    return UncutHistory(tuple(after), tuple(changing))


def run(disk: SimulatedDisk) -> int:
    """Take the steps until the power goes; gives how many were acknowledged."""
    done = 0
    with suppress(PowerCut):
        lake = open_lake(disk, seed=0)
        for step in STEPS:
            step(lake)
            done += 1
    return done


def check_survivor(disk: SimulatedDisk, done: int, *, seed: int) -> None:
    history = uncut_history()
    lake = open_lake(disk, seed=seed)
    after = observed(lake)
    allowed = history.after[done : done + 2]
    assert after in allowed, f"after {done} steps: {after} is none of {allowed}"
    report = lake.recover()
    assert not report.failures
    assert observed(lake) == after
    for number, step in enumerate(STEPS[done:], start=done):
        if number == done and after == history.after[done + 1] != history.after[done]:
            continue  # it was under way, and has happened
        with suppress(AlreadyExists, NotFound):
            step(lake)
    assert observed(lake) == history.after[-1]
    # Files that were deleted before the power went may come back: a store may do that.
    if "shop.items" in after or done < STEPS.index(drop_items_and_files):
        items = history.after[STEPS.index(create_items) + 1]["shop.items"]
        assert isinstance(items, tuple)
        assert files_left(lake, items[0]) == []


def test_an_operation_cut_by_power_loss_happened_or_did_not(scoreboard: Record) -> None:
    gate = Gate("R5 power cuts in operations of the catalog", aim=400, full=20_000)
    calls = uncut_history().changing_calls

    for seed in gate.seeds():
        cut_at = calls[seed * STRIDE % len(calls)]
        disk = SimulatedDisk().power_cut_at(cut_at)
        done = run(disk)
        assert done < len(STEPS)
        for choice in range(CHOICES_PER_CUT):
            survivor = disk.after_power_cut(Random(f"{seed}/{choice}"))
            try:
                check_survivor(survivor, done, seed=1_000 + choice)
            except AssertionError as violation:
                gate.violations += 1
                violation.add_note(f"seed {seed}, choice {choice}, cut in call {cut_at}")
                raise
            gate.cases += 1

    scoreboard(gate.line())


def test_an_uncut_history_ends_as_it_should() -> None:
    after = uncut_history().after[-1]

    assert after["namespaces"] == ["shop"]
    assert list(after) == ["namespaces", "shop.orders"]
    assert uncut_history().after[10] != uncut_history().after[9]
