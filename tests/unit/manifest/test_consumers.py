"""Consumers of the change feed in a table's store: positions, and the history that they keep."""

import pytest

from neve.errors import Conflict, Corruption, InvalidArgument, NotFound
from neve.manifest.writer_state import CONSUMER_KEEP_MS, Consumer
from tests.unit.manifest.builders import TableBench, new_table, path_of

DAY_SECONDS = 24 * 60 * 60
KEEP_SECONDS = CONSUMER_KEEP_MS // 1_000


def rewritten(count: int) -> TableBench:
    """Return a table whose one file was rewritten often: Version n has the file `f<n>`."""
    bench = new_table()
    for number in range(2, count + 1):
        rewrite(bench, number)
    return bench


def rewrite(bench: TableBench, number: int) -> None:
    bench.objects.put(path_of(f"f{number}"), b"rows")
    if number == 2:
        bench.commit("f2")
    else:
        bench.replace_file(f"f{number - 1}", f"f{number}")


def consumers(bench: TableBench) -> dict[str, int]:
    work = bench.another(9).work
    return {each.name: each.position for each in work.consumers_in(bench.another(9).store.read())}


def retained(bench: TableBench) -> list[int]:
    return [version.number for version in bench.another(9).versions.list_versions()][::-1]


def stored(bench: TableBench) -> list[str]:
    return [found.path for found in bench.objects.list("data/")]


def at(bench: TableBench, name: str, position: int, *, keep_ms: int | None = None) -> Consumer:
    """Store a consumer that has read up to a Version."""
    return bench.work.begin_consumer(name, since=position, keep_ms=keep_ms)


# Positions


def test_a_new_consumer_begins_with_the_history_or_with_what_is_left_of_it() -> None:
    bench = rewritten(4)
    bench.work.begin_consumer("whole")
    bench.work.begin_consumer("given", since=2)
    bench.work.drop_consumer("whole")
    bench.expire()
    bench.work.begin_consumer("rest")

    assert consumers(bench) == {"given": 2, "rest": 2}
    assert retained(bench) == [2, 3, 4]


def test_a_consumer_that_exists_stays_where_it_is_when_it_begins() -> None:
    bench = rewritten(4)
    at(bench, "c", 3)
    segment = bench.segment()

    assert bench.work.begin_consumer("c").position == 3
    assert bench.work.begin_consumer("c", since=1).position == 3
    assert bench.work.begin_consumer("c", since=4).position == 3
    assert bench.segment() == segment


def test_a_position_only_moves_forward() -> None:
    bench = rewritten(5)
    begun = at(bench, "c", 1)

    bench.work.advance_consumer(begun, 4)
    bench.another().work.advance_consumer(begun, 3)

    assert consumers(bench) == {"c": 4}


def test_a_consumer_that_was_dropped_while_it_was_read_stays_dropped() -> None:
    bench = rewritten(4)
    begun = at(bench, "c", 2)
    bench.work.drop_consumer("c")

    bench.work.advance_consumer(begun, 4)

    assert consumers(bench) == {}


def test_an_old_reader_does_not_move_a_consumer_that_began_again_before_it() -> None:
    bench = rewritten(4)
    old = at(bench, "c", 2)
    bench.work.drop_consumer("c")
    at(bench, "c", 0)

    bench.work.advance_consumer(old, 4)

    assert consumers(bench) == {"c": 0}


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "\ud800", 5])
def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    bench = rewritten(2)

    with pytest.raises(InvalidArgument, match="consumer"):
        bench.work.begin_consumer(name)
    with pytest.raises(InvalidArgument, match="consumer"):
        bench.work.drop_consumer(name)


def test_dropping_a_consumer_that_is_not_there_names_a_similar_one() -> None:
    bench = rewritten(2)
    at(bench, "billing", 1)

    with pytest.raises(NotFound, match="Did you mean 'billing'"):
        bench.work.drop_consumer("biling")
    with pytest.raises(NotFound, match="`consumers"):
        bench.work.drop_consumer("zzz")


def test_no_consumer_begins_on_a_dropped_table() -> None:
    bench = rewritten(2)
    bench.work.drop()

    with pytest.raises(NotFound, match="dropped"):
        bench.work.begin_consumer("c")


@pytest.mark.parametrize("value", [b"", b"3", b'{"format":1,"position":-1}', b'{"format":9}'])
def test_a_damaged_consumer_is_corruption(value: bytes) -> None:
    bench = rewritten(3)
    bench.store.transact(lambda session: session.put("consumer/c", value))

    with pytest.raises(Corruption):
        bench.work.begin_consumer("c")
    with pytest.raises(Corruption):
        bench.expire()


def test_a_consumer_survives_a_checkpoint() -> None:
    bench = rewritten(3)
    at(bench, "c", 2)
    bench.checkpoint_and_collect()

    assert consumers(bench) == {"c": 2}


# What is kept


def test_every_version_from_the_position_on_stays_with_its_edit_and_files() -> None:
    bench = rewritten(8)
    at(bench, "c", 3)
    at(bench, "later", 6)

    bench.expire()
    bench.delete_garbage()

    assert retained(bench) == [3, 4, 5, 6, 7, 8]
    session = bench.another(9).store.read()
    assert [bench.versions.edit_in(session, number).base for number in range(4, 9)] == [
        *range(3, 8)
    ]
    assert stored(bench) == [path_of(f"f{number}") for number in range(3, 9)]


def test_history_goes_as_a_consumer_advances_and_when_it_is_dropped() -> None:
    bench = rewritten(6)
    begun = at(bench, "c", 2)
    bench.work.advance_consumer(begun, 5)
    bench.expire()
    bench.delete_garbage()
    assert retained(bench) == [5, 6]
    assert stored(bench) == [path_of("f5"), path_of("f6")]

    bench.work.drop_consumer("c")
    bench.expire()
    bench.delete_garbage()

    assert retained(bench) == [6]
    assert stored(bench) == [path_of("f6")]


def test_a_plan_names_the_consumers_without_which_more_would_go() -> None:
    bench = rewritten(6)
    for name, position in (("b", 4), ("a", 4), ("first", 2), ("current", 6)):
        at(bench, name, position)

    def named(keep_last: int) -> list[str]:
        plan = bench.garbage.compute_gc_plan(
            keep_last=keep_last, older_than_ms=bench.clock.now_ms() + 1
        )
        return [each.name for each in plan.consumers]

    assert named(1) == ["first", "a", "b"]
    assert named(4) == ["first"]
    assert named(5) == []


def test_a_consumer_that_began_after_the_plan_was_made_makes_it_a_conflict() -> None:
    bench = rewritten(6)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    at(bench.another(), "c", 4)

    with pytest.raises(Conflict):
        bench.garbage.apply_gc_plan(plan)

    bench.expire()
    assert retained(bench) == [4, 5, 6]


def test_a_consumer_that_moved_after_the_plan_was_made_is_not_in_its_way() -> None:
    bench = rewritten(6)
    begun = at(bench, "c", 4)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=bench.clock.now_ms() + 1)
    bench.work.advance_consumer(begun, 6)

    bench.garbage.apply_gc_plan(plan)

    assert retained(bench) == [4, 5, 6]


# For how long


def test_a_consumer_without_a_sign_of_life_keeps_history_for_a_while_only() -> None:
    bench = rewritten(5)
    at(bench, "c", 2)
    bench.clock.advance(KEEP_SECONDS - 1)
    bench.expire()
    assert retained(bench) == [2, 3, 4, 5]

    bench.clock.advance(1)
    bench.expire()
    bench.delete_garbage()

    assert retained(bench) == [5]
    assert stored(bench) == [path_of("f5")]
    assert consumers(bench) == {"c": 2}
    with pytest.raises(NotFound, match=r"after version 2 has expired.*drop_consumer\('c'\).*=5"):
        bench.work.begin_consumer("c")
    with pytest.raises(NotFound, match=r"drop_consumer\('c'\)"):
        bench.work.begin_consumer("c", since=4)


def test_a_consumer_that_fell_out_of_history_goes_on_where_it_is_said() -> None:
    bench = rewritten(5)
    at(bench, "c", 2, keep_ms=1_000)
    bench.clock.advance(1)
    bench.expire()

    begun = bench.work.begin_consumer("c", since=5)
    assert consumers(bench) == {"c": 2}, "a reader that has read nothing moves nothing"
    rewrite(bench, 6)
    bench.work.advance_consumer(begun, 6)

    assert consumers(bench) == {"c": 6}
    rewrite(bench, 7)
    bench.expire()
    assert retained(bench) == [6, 7]


def test_a_consumer_that_slept_too_long_reads_on_while_nothing_has_expired() -> None:
    bench = rewritten(5)
    at(bench, "c", 2, keep_ms=1_000)
    bench.clock.advance(60)

    begun = bench.work.begin_consumer("c")
    bench.work.advance_consumer(begun, 5)

    assert consumers(bench) == {"c": 5}


def test_reading_again_with_another_time_to_keep_stores_it_and_moves_nothing() -> None:
    bench = rewritten(3)
    before = at(bench, "c", 2)

    after = bench.work.begin_consumer("c", keep_ms=5_000)

    assert (after.keep_ms, after.position, after.updated_ms) == (5_000, 2, before.updated_ms)
    assert bench.work.begin_consumer("c").keep_ms == 5_000


def test_a_consumer_that_finds_nothing_new_shows_that_it_lives_now_and_then() -> None:
    bench = rewritten(3)
    begun = at(bench, "c", 3)
    written = bench.segment()
    for _ in range(4 * KEEP_SECONDS // DAY_SECONDS):
        for _ in range(10):
            bench.clock.advance(DAY_SECONDS / 10)
            bench.work.advance_consumer(begun, 3)

    assert bench.segment() - written <= 4 * 8
    rewrite(bench, 4)
    bench.expire()
    assert retained(bench) == [3, 4]


def test_a_sign_of_life_from_a_clock_far_ahead_keeps_nothing() -> None:
    bench = rewritten(4)
    now_ms = bench.clock.now_ms()
    bench.clock.set_now_ms(now_ms + 400 * DAY_SECONDS * 1_000)
    begun = at(bench, "c", 2)
    bench.clock.set_now_ms(now_ms)
    plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=now_ms + 1)
    assert plan.oldest_after == 4

    bench.work.advance_consumer(begun, 2)  # by a clock that is right again

    bench.expire()
    assert retained(bench) == [2, 3, 4]


def test_a_collector_whose_clock_is_a_little_ahead_or_far_back_keeps_history() -> None:
    for jump_ms in (-400 * DAY_SECONDS * 1_000, -60_000, 60_000):
        bench = rewritten(4)
        at(bench, "c", 2)
        bench.clock.set_now_ms(max(0, bench.clock.now_ms() + jump_ms))
        plan = bench.garbage.compute_gc_plan(keep_last=1, older_than_ms=1 << 60)
        bench.garbage.apply_gc_plan(plan)

        assert retained(bench) == [2, 3, 4]
