"""LeaseBook: the leases of a handle, kept for the next reader and taken again when they lapsed."""

from collections.abc import Callable

import pytest

import neve
from neve.errors import Closed, Fenced
from neve.testing.simulated_clock import SimulatedClock
from tests.unit.engine.tables import a_catalog, a_table, rows

LEASE_SECONDS = neve.TableOptions().lease_seconds


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.scan().count(),
        lambda table: table.scan().to_arrow().num_rows,
        lambda table: table.snapshot().get_many(list(range(10))).num_rows,
        lambda table: table.at(2).scan().count(),
    ],
    ids=["count", "scan", "snapshot", "at"],
)
@pytest.mark.parametrize("read_only", [False, True], ids=["writer", "reader"])
def test_a_table_that_was_idle_for_longer_than_a_lease_is_read_again(
    read: Callable[[neve.Table], int], read_only: bool
) -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 10))
        table.flush()
        if read_only:
            table.close()
            table = catalog.table("a.b", read_only=True)
        assert read(table) == 10

        clock.advance(LEASE_SECONDS * 2)

        assert read(table) == 10
        assert read(table) == 10


def test_rows_are_deleted_by_a_filter_after_a_long_idle_time() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 10))
        table.flush()
        table.scan().count()
        clock.advance(LEASE_SECONDS * 2)

        table.delete_where("id < 4")

        assert table.scan().count() == 6


def test_a_snapshot_that_slept_is_fenced_beside_a_new_one_that_reads() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 10))
        table.flush()
        slept = table.snapshot()
        clock.advance(LEASE_SECONDS * 2)
        fresh = table.snapshot()

        assert fresh.scan().count() == 10
        with pytest.raises(Fenced):
            slept.scan().count()
        slept.close()
        assert fresh.scan().count() == 10
        fresh.close()
        assert table.stats().open_snapshots == 0


def test_a_lease_is_shared_by_the_readers_of_a_version_and_given_up_with_the_handle() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 10))
        table.flush()
        parts = table._open.engine.parts
        with table.snapshot(), table.snapshot():
            assert len(list(parts.leases.unexpired())) == 1
        table.close()
        assert list(parts.leases.unexpired()) == []


def test_a_version_that_was_let_go_by_a_close_has_no_lease() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.put({"id": 1, "v": 1, "text": "t"})
        leases = table._open.engine.leases
        snapshot = table.snapshot()
        table.close()

        assert leases.lease_of(snapshot.version) is None
        with pytest.raises(Closed):
            snapshot.get(1)
