"""Leases of readers of history: several Versions in a row, and every edit between them."""

import pytest

from neve.errors import Fenced, NotFound
from neve.manifest.documents import Lease, decode_lease, encode_lease
from tests.unit.manifest.builders import TableBench, new_table, path_of

LEASE_SECONDS = 60.0


def rewritten(count: int) -> TableBench:
    """Return a table whose one file was rewritten often: Version n has the file `f<n>`."""
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


def holders(bench: TableBench, **asked: int) -> list[tuple[int, int]]:
    """Versions of the leases that a plan says hold history back."""
    horizon = bench.clock.now_ms() + 1
    plan = bench.garbage.compute_gc_plan(**{"keep_last": 1, "older_than_ms": horizon, **asked})
    return [(lease.versions[0], lease.versions[-1]) for lease in plan.leases]


def test_a_plan_names_the_leases_without_which_more_would_go() -> None:
    bench = rewritten(8)
    bench.leases.take(3, seconds=LEASE_SECONDS)
    bench.leases.take(5, last=6, seconds=LEASE_SECONDS)
    bench.leases.take(8, seconds=LEASE_SECONDS)

    assert holders(bench) == [(3, 3), (5, 6)], "the current Version stays without a lease"
    assert holders(bench, keep_last=4) == [(3, 3)], "so do those that retention keeps"


def test_a_lease_on_a_version_with_a_tag_is_not_what_keeps_it() -> None:
    bench = rewritten(4)
    bench.work.tag("release", 2)
    bench.leases.take(2, seconds=LEASE_SECONDS)

    assert holders(bench) == []


def test_a_lease_that_ended_holds_nothing() -> None:
    bench = rewritten(4)
    bench.leases.take(2, seconds=LEASE_SECONDS)
    bench.clock.advance(LEASE_SECONDS + 1)

    assert holders(bench) == []


def test_a_lease_says_who_took_it_and_when_however_often_it_is_renewed() -> None:
    bench = rewritten(3)
    taken_ms = bench.clock.now_ms()
    held = bench.leases.take(2, seconds=LEASE_SECONDS)
    bench.clock.advance(10)
    held.renew()

    (found,) = bench.leases.unexpired()
    assert found.holder == bench.ids.process()
    assert found.taken_ms == taken_ms
    assert found.expires_ms == bench.clock.now_ms() + int(LEASE_SECONDS * 1_000)


def test_a_lease_of_the_first_release_says_neither_and_is_honoured() -> None:
    bench = rewritten(4)
    older = Lease(lease_id="0" * 32, version=2, expires_ms=bench.clock.now_ms() + 1_000)
    bench.objects.put(bench.leases.paths.lease(older.lease_id), encode_lease(older))

    assert holders(bench) == [(2, 2)]
    assert next(bench.leases.unexpired()).holder == ""


def test_the_newest_version_is_leased_for_a_block() -> None:
    bench = rewritten(6)

    with bench.leases.leased_newest(bench.versions, seconds=LEASE_SECONDS) as lease:
        assert lease.version == bench.versions.head().current_version
        assert [each.version for each in bench.leases.unexpired()] == [lease.version]

    assert list(bench.leases.unexpired()) == []


def test_a_version_that_has_expired_is_not_held() -> None:
    bench = rewritten(6)
    expire_all(bench)

    for hold in (bench.leases.hold, bench.leases.hold_if_possible):
        with pytest.raises(NotFound):
            hold(1, bench.versions, seconds=LEASE_SECONDS)

    assert list(bench.leases.unexpired()) == []


def test_a_dropped_table_has_no_newest_version_to_lease() -> None:
    bench = rewritten(2)
    bench.work.drop()

    with pytest.raises(NotFound, match="dropped"):
        bench.leases.hold_newest(bench.versions, seconds=LEASE_SECONDS)


def test_any_process_ends_a_lease_by_its_id() -> None:
    bench = rewritten(2)
    lease = bench.leases.hold_newest(bench.versions, seconds=LEASE_SECONDS)

    bench.another().leases.end(lease.lease_id)

    assert list(bench.leases.unexpired()) == []


def test_expired_history_is_not_leased() -> None:
    bench = rewritten(4)
    expire_all(bench)
    oldest = bench.versions.head().oldest_version

    with pytest.raises(NotFound, match="the history after version 0 has expired") as caught:
        bench.leases.hold_history(0, bench.versions, seconds=LEASE_SECONDS)

    assert f"since={oldest}" in str(caught.value.hint)
    assert list(bench.leases.unexpired()) == []
