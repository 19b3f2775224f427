"""Leases of readers of history: several Versions in a row, and every edit between them."""

import pytest

from neve.errors import Fenced
from neve.manifest.documents import Lease, decode_lease, encode_lease
from tests.unit.manifest.builders import TableBench, new_table, path_of

LEASE_SECONDS = 60.0


def rewritten(count: int) -> TableBench:
    """Give a table whose one file was rewritten again and again: Version n has the file `f<n>`."""
    bench = new_table()
    for number in range(2, count + 1):
        bench.objects.put(path_of(f"f{number}"), b"rows")
        if number == 2:
            bench.commit("f2")
        else:
            bench.replace_file(f"f{number - 1}", f"f{number}")
    return bench


def expire_all(bench: TableBench) -> None:
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    bench.garbage.apply_gc_plan(plan)


def retained(bench: TableBench) -> list[int]:
    return [version.number for version in bench.another(9).versions.list_versions()][::-1]


def stored(bench: TableBench) -> list[str]:
    return [found.path for found in bench.objects.list("data/")]


def test_every_version_from_the_first_one_on_stays_with_its_edit_and_files() -> None:
    bench = rewritten(8)
    bench.leases.take(3, last=5, seconds=LEASE_SECONDS)

    expire_all(bench)
    bench.delete_garbage()

    assert retained(bench) == [3, 4, 5, 6, 7, 8]
    session = bench.another(9).store.read()
    assert [bench.versions.edit_in(session, number).base for number in range(4, 9)] == [
        *range(3, 8)
    ]
    assert stored(bench) == [path_of(f"f{number}") for number in range(3, 9)]


def test_a_lease_on_one_version_keeps_that_one_alone() -> None:
    bench = rewritten(8)
    bench.leases.take(3, seconds=LEASE_SECONDS)

    expire_all(bench)

    assert retained(bench) == [8]
    assert bench.versions.version(3).number == 3


@pytest.mark.parametrize("how", ["released", "lapsed"])
def test_history_goes_when_its_reader_has_ended(how: str) -> None:
    bench = rewritten(6)
    lease = bench.leases.take(2, last=6, seconds=LEASE_SECONDS)
    if how == "released":
        lease.release()
    else:
        bench.clock.advance(LEASE_SECONDS + 1)

    expire_all(bench)
    bench.delete_garbage()

    assert retained(bench) == [6]
    assert stored(bench) == [path_of("f6")]
    with pytest.raises(Fenced):
        lease.check()


def test_a_lease_that_came_after_the_plan_holds_the_files_of_its_versions_back() -> None:
    bench = rewritten(6)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    bench.leases.take(4, last=6, seconds=LEASE_SECONDS)
    bench.garbage.apply_gc_plan(plan)

    assert bench.delete_garbage() == []


def test_a_renewed_lease_is_on_the_same_versions() -> None:
    bench = rewritten(4)
    lease = bench.leases.take(2, last=4, seconds=LEASE_SECONDS)

    lease.renew()

    (found,) = bench.leases.unexpired()
    assert list(found.versions) == [2, 3, 4]


def test_a_range_of_any_size_costs_nothing_to_look_at() -> None:
    bench = rewritten(3)
    huge = Lease(
        lease_id="f" * 32, version=2, expires_ms=bench.clock.now_ms() + 1_000, last_version=2**63
    )
    bench.objects.put(bench.leases.paths.lease(huge.lease_id), encode_lease(huge))

    expire_all(bench)

    assert retained(bench) == [2, 3]


@pytest.mark.parametrize("last", [None, 7, 3], ids=str)
def test_a_lease_is_read_as_it_was_written(last: int | None) -> None:
    lease = Lease(lease_id="a" * 32, version=3, expires_ms=9, last_version=last)

    assert decode_lease(encode_lease(lease), path="p") == lease
