"""Torn pairs of stores: each state a crash can leave, what opening makes of it, and repeats."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from neve.catalog.catalog_entries import ANNOUNCED_MS_MAX
from neve.catalog.catalog_table import CatalogTable
from neve.catalog.lake import Lake
from neve.catalog.settlement import Settled
from neve.catalog.table_request import TableRequest
from neve.errors import AlreadyExists, NeveError, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.leases import Leases
from neve.manifest.table_head import HeadChange
from neve.model.version import Operation, VersionEdit, VersionFacts
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.catalog.builders import ORDERS, a_table, with_renamed


@dataclass
class Bench:
    """A warehouse that is opened by one process after another."""

    objects: MemoryStore
    clock: SimulatedClock
    seeds: Iterator[int]

    def open(self) -> Lake:
        return Lake(self.objects, clock=self.clock, ids=SeededIds(next(self.seeds)))

    def announcements(self) -> int:
        return len(self.open()._entries.announcements())

    def catalog_segments(self) -> int:
        return len(list(self.objects.list("manifest/catalog/segments/")))


@pytest.fixture
def bench() -> Bench:
    return Bench(MemoryStore(), SimulatedClock(), iter(range(100)))


def cut_create(bench: Bench, name: str = "shop.orders") -> str:
    """Leave what a create leaves that is cut between its two commits; gives the table id."""
    catalog = bench.open()
    definition = TableRequest.of(
        name, ORDERS, ["id"], partition_by=["day(ts)"], properties={"owner": "anna"}
    )
    meta, _ = catalog._entries.add_table(definition, catalog._stores.ids.uuid())
    return meta.table_id


def evolve_behind_the_catalog(table: CatalogTable) -> None:
    """Commit a new schema to the version store alone."""
    schema = with_renamed(table.schema, "customer", "client")
    facts = VersionFacts(operation=Operation.EVOLVE, timestamp_ms=0, schema_id=1, spec_id=0)
    table.stored.versions.apply_version_edits(
        [VersionEdit(base=table.version, facts=facts)],
        HeadChange(schema_id=1, sort_order="-amount"),
        schema=schema.to_json().replace('"schema-id":0', '"schema-id":1'),
    )


# A name without a version store


def test_a_create_that_was_cut_is_finished_by_opening(bench: Bench) -> None:
    table_id = cut_create(bench)

    table = bench.open().load_table("shop.orders")

    assert (table.table_id, table.version) == (table_id, 1)
    assert table.current().operation is Operation.CREATE
    assert table.properties == {"owner": "anna"}
    assert [field.name for field in table.spec.fields] == ["ts_day"]


def test_a_create_that_was_cut_is_finished_by_whoever_uses_the_name(bench: Bench) -> None:
    opened_before = bench.open()
    cut_create(bench)

    assert opened_before.list_tables() == ["shop.orders"]
    assert opened_before.load_table("shop.orders").version == 1
    with pytest.raises(AlreadyExists):
        a_table(opened_before)


def test_a_create_that_was_cut_can_be_registered_dropped_and_renamed(bench: Bench) -> None:
    first = bench.open()
    cut_create(bench)
    assert (
        first.register_table(
            "shop.orders", ORDERS, ["id"], partition_by=["day(ts)"], properties={"owner": "anna"}
        ).version
        == 1
    )

    second = bench.open()
    table_id = cut_create(bench, "shop.cut")
    second.drop_table("shop.cut", purge=True)
    assert second._stores.stored_table(table_id).versions.head().dropped

    third = bench.open()
    cut_create(bench, "shop.other")
    third.rename_table("shop.other", "shop.renamed")
    assert bench.open().load_table("shop.renamed").version == 1


# A version store ahead of the catalog's copy


def test_a_schema_that_only_the_version_store_has_is_copied(bench: Bench) -> None:
    catalog = bench.open()
    evolve_behind_the_catalog(a_table(catalog))
    assert catalog._entries.meta("shop.orders").schema_version == 0

    table = bench.open().load_table("shop.orders")

    assert table.schema.schema_id == 1
    assert "client" in table.schema
    healed = bench.open()._entries.meta("shop.orders")
    assert (healed.schema_version, healed.sort_order) == (1, "-amount")
    assert [schema.schema_id for schema in healed.schemas] == [0, 1]
    assert healed.as_of_version == 2


def test_opening_the_catalog_copies_what_was_announced(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    catalog._entries.announce_change(table.table_id)
    evolve_behind_the_catalog(table)

    reopened = bench.open()

    assert reopened._entries.meta("shop.orders").schema_version == 1


def test_an_older_state_never_replaces_a_newer_copy(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    old = table.stored.load()
    table.update_sort_order(["id"])

    catalog._settlement.update_copy(old)

    assert catalog._entries.meta("shop.orders").sort_order == "id"


def test_commits_of_rows_leave_the_catalog_alone(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    before = bench.catalog_segments()

    for base in range(1, 6):
        facts = VersionFacts(operation=Operation.APPEND, timestamp_ms=0, schema_id=0, spec_id=0)
        table.commit([VersionEdit(base=base, facts=facts)])
    bench.open().load_table("shop.orders")

    assert bench.catalog_segments() == before


# A dropped mark without the removal of the name


def test_a_drop_that_was_cut_is_finished_by_opening(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    catalog._entries.announce_drop("shop.orders")
    table.stored.writer_state.drop()

    reopened = bench.open()

    assert reopened.list_tables() == []
    assert a_table(reopened).table_id != table.table_id


def test_a_dropped_table_that_nobody_announced_is_found_by_its_name(bench: Bench) -> None:
    catalog = bench.open()
    a_table(catalog).stored.writer_state.drop()

    reopened = bench.open()

    assert not reopened.table_exists("shop.orders")
    assert reopened.list_tables() == []


def test_dropping_a_table_again_after_a_cut_removes_its_name(bench: Bench) -> None:
    catalog = bench.open()
    a_table(catalog).stored.writer_state.drop()

    with pytest.raises(NotFound):
        catalog.drop_table("shop.orders")

    assert catalog.list_tables() == []


def test_a_dropped_table_is_not_in_system_tables(bench: Bench) -> None:
    catalog = bench.open()
    a_table(catalog).stored.writer_state.drop()
    a_table(catalog, "shop.alive")

    for name in ("__tables", "__snapshots"):
        assert set(catalog.system_table(name).column("table_name").to_pylist()) == {"shop.alive"}


# Purges


def test_a_purge_that_was_cut_is_finished_by_recovering_not_by_opening(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    path = table.stored.paths.data_file("a")
    bench.objects.put(path, b"rows")
    catalog._entries.announce_drop("shop.orders")
    table.stored.writer_state.drop(purge=True)

    reopened = bench.open()
    assert reopened.list_tables() == []
    assert bench.objects.get(path).payload == b"rows"
    # Its announcement outlives the time of others: the files are still there.
    bench.clock.advance(ANNOUNCED_MS_MAX / 1_000)
    assert bench.announcements() == 1

    report = bench.open().recover()

    assert report.with_outcome(Settled.PURGED) == (table.table_id,)
    with pytest.raises(NotFound):
        bench.objects.get(path)
    assert bench.announcements() == 0


def leases_of(bench: Bench, table: CatalogTable) -> Leases:
    return Leases(
        bench.objects,
        table.stored.paths.manifest,
        clock=bench.clock,
        ids=SeededIds(next(bench.seeds)),
    )


def test_a_purge_leaves_the_files_to_readers_until_their_leases_end(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    path = table.stored.paths.data_file("a")
    bench.objects.put(path, b"rows")
    leases = leases_of(bench, table)
    lease = leases.take(1, seconds=3_600)

    is_done = catalog.drop_table("shop.orders", purge=True)

    assert not is_done
    assert catalog.list_tables() == []
    with pytest.raises(NotFound, match="dropped"):
        table.refresh()
    assert a_table(catalog).table_id != table.table_id
    bench.clock.advance(1_800)
    lease.renew()
    held_back = bench.open().recover()
    assert held_back.with_outcome(Settled.UNPURGED) == (table.table_id,)
    assert bench.objects.get(path).payload == b"rows"

    bench.clock.advance(3_600)
    report = bench.open().recover()

    assert report.with_outcome(Settled.PURGED) == (table.table_id,)
    assert list(bench.objects.list(f"{table.stored.paths.root}/")) == []
    assert list(bench.objects.list(leases.paths.leases)) == []
    assert bench.announcements() == 0


def test_a_purge_goes_ahead_once_readers_have_given_their_leases_up(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    path = table.stored.paths.data_file("a")
    bench.objects.put(path, b"rows")
    lease = leases_of(bench, table).take(1, seconds=3_600)
    catalog.drop_table("shop.orders", purge=True)

    lease.release()
    report = catalog.recover()

    assert report.with_outcome(Settled.PURGED) == (table.table_id,)
    with pytest.raises(NotFound):
        bench.objects.get(path)


def test_a_purge_removes_the_leases_of_readers_that_died(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    leases = leases_of(bench, table)
    leases.take(1, seconds=60)
    bench.clock.advance(60)

    is_done = catalog.drop_table("shop.orders", purge=True)

    assert is_done
    assert list(bench.objects.list(leases.paths.leases)) == []


def test_a_purge_waits_longer_when_the_clock_jumps_back(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    path = table.stored.paths.data_file("a")
    bench.objects.put(path, b"rows")
    leases_of(bench, table).take(1, seconds=3_600)
    taken_ms = bench.clock.now_ms()
    bench.clock.set_now_ms(taken_ms - 30 * 24 * 3_600_000)

    assert not catalog.drop_table("shop.orders", purge=True)
    assert bench.objects.get(path).payload == b"rows"

    bench.clock.set_now_ms(taken_ms + 3_600_000)
    assert catalog.recover().with_outcome(Settled.PURGED) == (table.table_id,)


def test_a_purge_waits_for_a_lease_that_cannot_be_read(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    path = table.stored.paths.data_file("a")
    bench.objects.put(path, b"rows")
    damaged = leases_of(bench, table).paths.lease("0" * 32)
    bench.objects.put(damaged, b"damaged")

    assert not catalog.drop_table("shop.orders", purge=True)
    assert bench.objects.get(path).payload == b"rows"

    bench.objects.delete(damaged)
    assert catalog.recover().with_outcome(Settled.PURGED) == (table.table_id,)


def test_a_drop_without_purge_asks_for_no_leases(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    leases_of(bench, table).take(1, seconds=3_600)

    assert catalog.drop_table("shop.orders")
    assert bench.announcements() == 0


# Announcements


def test_nothing_is_announced_once_an_operation_is_done(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    table.update_sort_order(["id"])
    table.set_properties({"neve.retention.versions": "9"})
    catalog.rename_table("shop.orders", "shop.sales")
    catalog.drop_table("shop.sales", purge=True)

    assert bench.announcements() == 0


@pytest.mark.parametrize(
    ("failure", "left"),
    [(Unavailable("away"), 0), (OutcomeUnknown("lost"), 1)],
    ids=["no", "maybe"],
)
def test_an_announcement_goes_only_when_its_change_certainly_did_not_happen(
    bench: Bench, failure: NeveError, left: int
) -> None:
    catalog = bench.open()
    announcement = catalog._entries.announce_change(a_table(catalog).table_id)

    with (
        pytest.raises(type(failure)),
        catalog._settlement.withdrawn_on_failure(announcement),
    ):
        raise failure

    assert bench.announcements() == left


def test_an_announcement_of_somebody_else_stays_for_its_time(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    catalog._entries.announce_change(table.table_id)

    bench.clock.advance(ANNOUNCED_MS_MAX / 1_000 - 1)
    assert bench.announcements() == 1
    bench.clock.advance(1)
    assert bench.announcements() == 0


def test_an_announcement_from_before_the_clock_jumped_back_goes_too(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    catalog._entries.announce_change(table.table_id)

    bench.clock.set_now_ms(bench.clock.now_ms() - ANNOUNCED_MS_MAX)

    assert bench.announcements() == 0


def test_an_announcement_of_a_damaged_table_keeps_nobody_out(bench: Bench) -> None:
    catalog = bench.open()
    table = a_table(catalog)
    a_table(catalog, "shop.sound")
    catalog._entries.announce_change(table.table_id)
    bench.objects.put(f"{table.stored.paths.manifest}/HEAD", b"damage")
    bench.clock.advance(ANNOUNCED_MS_MAX / 1_000)

    reopened = bench.open()

    assert reopened.load_table("shop.sound").version == 1
    assert bench.announcements() == 1
    report = reopened.recover()
    assert list(report.failures) == [table.table_id]


# Recovery of everything


def test_recovering_settles_every_table_and_may_be_repeated(bench: Bench) -> None:
    catalog = bench.open()
    evolved, dropped = a_table(catalog, "shop.evolved"), a_table(catalog, "shop.dropped")
    sound = a_table(catalog, "shop.sound")
    cut_id = cut_create(bench, "shop.cut")
    evolve_behind_the_catalog(evolved)
    dropped.stored.writer_state.drop()

    report = catalog.recover()

    assert report.outcomes == {
        evolved.table_id: Settled.UPDATED,
        dropped.table_id: Settled.REMOVED,
        sound.table_id: Settled.NOTHING,
        cut_id: Settled.BEGUN,
    }
    assert not report.failures
    assert catalog.list_tables() == ["shop.cut", "shop.evolved", "shop.sound"]
    again = catalog.recover()
    assert set(again.outcomes.values()) == {Settled.NOTHING}


def test_settling_is_quiet_where_there_is_nothing(bench: Bench) -> None:
    catalog = bench.open()

    assert catalog._settlement.settle("t000009-000000000000", purge=True) is Settled.NOTHING
