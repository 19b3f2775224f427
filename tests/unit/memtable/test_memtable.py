"""Memtable: the newest change of a key, now and at an earlier sequence."""

import gc
import tracemalloc
from collections.abc import Callable
from threading import Thread

import pyarrow as pa
import pytest

from neve.errors import Closed, InvalidArgument
from neve.memtable.found_row import DELETED
from neve.memtable.memtable import Memtable
from tests.unit.memtable.builders import (
    NAMED,
    NUMBERED,
    Bench,
    delete,
    live,
    numbered,
    put,
    text_of,
    upsert,
)

Write = Callable[[Memtable, int], None]
WRITES: dict[str, Write] = {
    "put": lambda memtable, sequence: put(memtable, sequence, 1, "a"),
    "delete": lambda memtable, sequence: delete(memtable, sequence, 1),
    "upsert_batch": lambda memtable, sequence: upsert(memtable, sequence, (1, "a")),
    "delete_batch": lambda memtable, sequence: memtable.delete_batch(
        sequence, NUMBERED.keys([[1]])
    ),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITES[request.param]


def test_a_frozen_memtable_refuses_every_write(write: Write) -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "kept")
    memtable.freeze()

    with pytest.raises(Closed, match="frozen"):
        write(memtable, 2)

    assert memtable.is_frozen
    assert memtable.last_sequence == 1
    assert live(memtable) == [(1, "kept")]


@pytest.mark.parametrize("sequence", [6, 7])
def test_a_sequence_that_does_not_rise_is_refused(write: Write, sequence: int) -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 7, 2, "b")

    with pytest.raises(InvalidArgument, match="after sequence 7"):
        write(memtable, sequence)

    assert memtable.row_count == 1


def test_a_sequence_before_the_first_is_refused(write: Write) -> None:
    memtable = NUMBERED.memtable(first_sequence=10)

    with pytest.raises(InvalidArgument):
        write(memtable, 9)

    assert memtable.is_empty


def test_an_empty_memtable_claims_no_sequence() -> None:
    memtable = NUMBERED.memtable(first_sequence=10)

    assert memtable.is_empty
    assert (memtable.last_sequence, memtable.row_count, memtable.byte_count) == (0, 0, 0)
    assert memtable.get(NUMBERED.key(1)) is None
    assert memtable.get_at(NUMBERED.key(1), 99) is None


def test_the_last_sequence_is_the_highest_applied(write: Write) -> None:
    memtable = NUMBERED.memtable(first_sequence=10)

    write(memtable, 12)

    assert memtable.last_sequence == 12
    assert not memtable.is_empty


def test_a_batch_takes_a_sequence_for_each_row() -> None:
    memtable = NUMBERED.memtable()

    upsert(memtable, 5, (1, "a"), (2, "b"), (3, "c"))

    assert memtable.last_sequence == 7
    with pytest.raises(InvalidArgument):
        put(memtable, 7, 4, "d")


def test_a_batch_of_nothing_changes_nothing() -> None:
    memtable = NUMBERED.memtable()

    memtable.upsert_batch(1, *NUMBERED.batch([]))
    memtable.delete_batch(1, NUMBERED.keys([]))

    assert memtable.is_empty
    assert memtable.byte_count == 0


def test_the_newest_change_wins_whichever_way_it_came() -> None:
    memtable = NUMBERED.memtable()
    seen: list[object] = []

    put(memtable, 1, 1, "row")
    seen.append(text_of(memtable, 1))
    upsert(memtable, 2, (1, "batch"), (2, "other"))
    seen.append(text_of(memtable, 1))
    delete(memtable, 4, 1)
    seen.append(text_of(memtable, 1))
    upsert(memtable, 5, (1, "batch again"))
    seen.append(text_of(memtable, 1))
    memtable.delete_batch(6, NUMBERED.keys([[1]]))
    seen.append(text_of(memtable, 1))
    put(memtable, 7, 1, "row again")
    seen.append(text_of(memtable, 1))

    wanted: list[object] = ["row", "batch", DELETED, "batch again", DELETED, "row again"]
    assert seen == wanted
    assert [text_of(memtable, 1, at=at) for at in (1, 2, 4, 5, 6, 7)] == wanted
    assert text_of(memtable, 2) == "other"
    assert text_of(memtable, 3) is None


def test_a_row_put_between_two_batches_hides_the_older_and_not_the_newer() -> None:
    memtable = NUMBERED.memtable()
    upsert(memtable, 1, (1, "older"), (2, "older"))
    put(memtable, 3, 1, "between")
    put(memtable, 4, 2, "between")
    upsert(memtable, 5, (2, "newer"), (3, "newer"))

    assert [text_of(memtable, number) for number in (1, 2, 3)] == ["between", "newer", "newer"]
    assert live(memtable) == [(1, "between"), (2, "newer"), (3, "newer")]


def test_the_later_row_of_one_batch_wins() -> None:
    memtable = NUMBERED.memtable()

    upsert(memtable, 1, (1, "first"), (2, "b"), (1, "second"))

    assert text_of(memtable, 1) == "second"
    assert text_of(memtable, 1, at=2) == "first"
    assert live(memtable) == [(1, "second"), (2, "b")]
    assert live(memtable, at=2) == [(1, "first"), (2, "b")]


def test_a_key_is_absent_before_its_first_change() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    upsert(memtable, 2, (2, "b"))

    assert text_of(memtable, 1, at=0) is None
    assert text_of(memtable, 2, at=1) is None


def test_a_batch_is_indexed_only_when_a_get_needs_it() -> None:
    memtable = NUMBERED.memtable()
    upsert(memtable, 1, (1, "a"), (2, "b"))
    put(memtable, 3, 1, "newer")

    assert text_of(memtable, 1) == "newer"
    assert live(memtable) == [(1, "newer"), (2, "b")]
    assert memtable._journal.indexed_batch_count == 0

    assert text_of(memtable, 2) == "b"
    assert memtable._journal.indexed_batch_count == 1


def test_keys_whose_hashes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neve.memtable.batch_index.hash", lambda _: 1, raising=False)
    memtable = NAMED.memtable()
    memtable.upsert_batch(1, *NAMED.batch([{"name": "a", "v": 1}, {"name": "b", "v": 2}]))
    memtable.upsert_batch(3, *NAMED.batch([{"name": "c", "v": 3}, {"name": "a", "v": 4}]))

    found = [NAMED.row(memtable.get(NAMED.key(name))) for name in "abcd"]

    assert found == [
        {"v": 4, "name": "a"},
        {"v": 2, "name": "b"},
        {"v": 3, "name": "c"},
        None,
    ]
    assert NAMED.row(memtable.get_at(NAMED.key("a"), 3)) == {"v": 1, "name": "a"}


def test_many_small_batches_stay_quick_to_search() -> None:
    memtable = NUMBERED.memtable()

    for number in range(200):
        upsert(memtable, number + 1, (number, f"v{number}"))
        assert text_of(memtable, number // 2) == f"v{number // 2}"

    assert len(memtable._journal._index._runs) < 8


def test_reclaiming_drops_what_nobody_can_see() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "new")
    once = memtable.byte_count
    for sequence in range(2, 10):
        put(memtable, sequence, 1, "new")
    delete(memtable, 10, 2)
    before = memtable.byte_count

    freed = memtable.reclaim(10)

    assert freed == before - memtable.byte_count > 0
    assert memtable.row_count == 2
    assert live(memtable) == [(1, "new")]
    delete(memtable, 11, 1)
    put(memtable, 12, 1, "new")
    memtable.reclaim(12)
    only_delete = NUMBERED.memtable()
    delete(only_delete, 1, 2)
    assert memtable.byte_count == once + only_delete.byte_count


def test_reclaiming_keeps_what_is_pinned_and_what_is_not_yet_visible() -> None:
    memtable = NUMBERED.memtable()
    for sequence in range(1, 9):
        put(memtable, sequence, 1, f"v{sequence}")
    assert memtable.pin(2)
    assert memtable.pin(5)

    memtable.reclaim(6)

    assert [text_of(memtable, 1, at=at) for at in (2, 5, 6, 7, 8)] == ["v2", "v5", "v6", "v7", "v8"]
    assert live(memtable, at=2) == [(1, "v2")]
    assert memtable.row_count == 5


def test_a_reclaimed_sequence_is_refused_and_never_answered_wrongly() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    put(memtable, 2, 1, "b")
    memtable.reclaim(2)

    with pytest.raises(InvalidArgument, match="no longer holds"):
        text_of(memtable, 1, at=1)
    with pytest.raises(InvalidArgument, match="no longer holds"):
        memtable.view(1)
    assert not memtable.pin(1)
    assert memtable.pin(2)


def test_a_sequence_stays_pinned_until_its_last_pin_ends() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    assert memtable.pin(1)
    assert memtable.pin(1)
    put(memtable, 2, 1, "b")

    memtable.unpin(1)
    assert memtable.reclaim(2) == 0
    assert text_of(memtable, 1, at=1) == "a"

    memtable.unpin(1)
    assert memtable.reclaim(2) > 0
    with pytest.raises(InvalidArgument, match="is not pinned"):
        memtable.unpin(1)
    assert not memtable.pin(1)


def test_a_view_outlives_what_is_reclaimed_under_it() -> None:
    memtable = NUMBERED.memtable()
    put(memtable, 1, 1, "a")
    view = memtable.view(1)
    put(memtable, 2, 1, "b")

    memtable.reclaim(2)

    assert view.live().to_pylist() == [numbered(1, "a")]


WIDE = Bench.of([("id", pa.int64()), ("v", pa.binary())], ["id"])


def rows_one_by_one(memtable: Memtable, *, count: int, size: int) -> None:
    for at in range(count):
        row = {"id": at, "v": bytes([at % 256]) * size}
        memtable.put(at + 1000, WIDE.key_of(row), WIDE.value(row))


def one_row_over_and_over(memtable: Memtable, *, count: int, size: int) -> None:
    for at in range(count):
        row = {"id": 7, "v": bytes([at % 256]) * size}
        memtable.put(at + 1000, WIDE.key_of(row), WIDE.value(row))


def rows_in_batches(memtable: Memtable, *, count: int, size: int) -> None:
    step = max(count // 4, 1)
    for start in range(0, count, step):
        rows: list[dict[str, object]] = [
            {"id": at, "v": bytes([at % 256]) * size} for at in range(start, start + step)
        ]
        memtable.upsert_batch(1000 + start, *WIDE.batch(rows))
    memtable.get(WIDE.key(0))


def arrow_bytes_and_python_bytes() -> int:
    gc.collect()
    return pa.total_allocated_bytes() + tracemalloc.get_traced_memory()[0]


@pytest.mark.parametrize("fill", [rows_one_by_one, one_row_over_and_over, rows_in_batches])
@pytest.mark.parametrize(("count", "size"), [(20_000, 0), (4_000, 200), (8, 1 << 20)])
def test_the_byte_count_is_near_the_memory_that_is_held(
    fill: Callable[..., None], count: int, size: int
) -> None:
    fill(WIDE.memtable(first_sequence=1000), count=8, size=1)
    memtable = WIDE.memtable(first_sequence=1000)
    tracemalloc.start()
    try:
        before = arrow_bytes_and_python_bytes()
        fill(memtable, count=count, size=size)
        held = arrow_bytes_and_python_bytes() - before
    finally:
        tracemalloc.stop()

    assert held / 2 < memtable.byte_count < held * 2


def test_a_small_slice_does_not_hold_the_large_batch_it_came_from() -> None:
    keys, rows = WIDE.batch([{"id": at, "v": b"x" * 100} for at in range(10_000)])
    memtable = WIDE.memtable()

    memtable.upsert_batch(1, keys.slice(5000, 10), rows.slice(5000, 10))

    assert memtable.byte_count < 10_000
    assert memtable._journal.batches[0].rows is not None
    assert memtable._journal.batches[0].rows.get_total_buffer_size() < 10_000
    assert WIDE.row(memtable.get(WIDE.key(5003))) == {"id": 5003, "v": b"x" * 100}


def test_readers_beside_a_writer_see_whole_batches_only() -> None:
    memtable, rounds, width = NUMBERED.memtable(), 150, 4
    batches = [
        NUMBERED.batch([numbered(at, f"{round_:04}") for at in range(width)])
        for round_ in range(rounds)
    ]
    visible, failures = [0], list[object]()

    def write() -> None:
        sequence = 1
        for at, (keys, rows) in enumerate(batches):
            if at % 2:
                memtable.upsert_batch(sequence, keys, rows)
                sequence += width
            else:
                # One write batch of single rows: its last sequence is told when all are applied.
                for number in range(width):
                    put(memtable, sequence, number, f"{at:04}")
                    sequence += 1
            visible[0] = sequence - 1
            memtable.reclaim(visible[0])

    def read() -> None:
        while visible[0] < rounds * width:
            sequence = visible[0]
            if not memtable.pin(sequence):
                continue
            try:
                texts = {text_of(memtable, number, at=sequence) for number in range(width)}
                rows = memtable.view(sequence).live()
                scanned = set(rows.column("v").to_pylist())
            finally:
                memtable.unpin(sequence)
            if sequence == 0:
                whole = texts == {None} and not scanned
            else:
                # Each round gives all rows its own number; its last sequence tells which it was.
                whole = texts == scanned == {f"{sequence // width - 1:04}"}
            if not whole:
                failures.append((sequence, texts, scanned))
                return

    readers = [Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    write()
    for reader in readers:
        reader.join()

    assert not failures
    assert live(memtable) == [(at, f"{rounds - 1:04}") for at in range(width)]
