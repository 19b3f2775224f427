"""What a memtable knows of rows that were written in part."""

import numpy as np
import pyarrow as pa

from neve.memtable.found_row import BatchRow, GivenColumns
from neve.memtable.memtable import Memtable
from tests.unit.memtable.builders import Bench

BENCH = Bench.of([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64())], ["id"])
A = GivenColumns(frozenset({2}), had_base=True, version=1)
B = GivenColumns(frozenset({3}), had_base=False, version=4)


def write(memtable: Memtable, *keys: int, given: GivenColumns | None = None) -> None:
    encoded, rows = BENCH.batch([{"id": key, "a": 0, "b": 0} for key in keys])
    memtable.upsert_batch(
        memtable.last_sequence + 1,
        encoded,
        rows,
        given=None if given is None else [given] * len(keys),
    )


def test_columns_that_are_given_one_after_the_other_add_up() -> None:
    memtable = BENCH.memtable()
    write(memtable, 1, given=A)

    both = memtable.given_with(BENCH.key(1), B)

    assert both == GivenColumns(frozenset({2, 3}), had_base=True, version=4)
    assert memtable.given_with(BENCH.key(2), B) == B


def test_a_row_that_is_whole_or_deleted_here_owes_nothing_to_its_base() -> None:
    memtable = BENCH.memtable()
    write(memtable, 1, 2, 3, given=A)
    write(memtable, 1)
    memtable.delete(memtable.last_sequence + 1, BENCH.key(2))
    memtable.put(memtable.last_sequence + 1, BENCH.key(3), BENCH.value({"id": 3, "a": 1, "b": 1}))

    assert [memtable.given_with(BENCH.key(key), A) for key in (1, 2, 3)] == [None, None, None]


def test_a_view_tells_which_of_its_rows_are_of_partial_writes() -> None:
    memtable = BENCH.memtable()
    memtable.put(1, BENCH.key(0), BENCH.value({"id": 0, "a": 1, "b": 1}))
    write(memtable, 5, 3, 1, given=A)
    write(memtable, 4, given=B)
    write(memtable, 3)
    memtable.delete(memtable.last_sequence + 1, BENCH.key(0))

    found = memtable.view(memtable.last_sequence).partial_rows()

    # Live rows are those of 1, 3, 4 and 5.
    assert {given: places.tolist() for given, places in found.items()} == {A: [0, 3], B: [2]}
    before = memtable.view(4).partial_rows()
    assert {given: places.tolist() for given, places in before.items()} == {A: [1, 2, 3]}


def test_a_view_that_ends_inside_a_batch_tells_of_the_rows_it_has() -> None:
    memtable = BENCH.memtable()
    write(memtable, 7, 8, 9, given=A)

    (places,) = memtable.view(2).partial_rows().values()

    assert np.array_equal(places, [0, 1])


def test_a_row_that_is_found_says_what_was_given_of_it() -> None:
    memtable = BENCH.memtable()
    write(memtable, 1)
    write(memtable, 1, given=A)

    newest, before = memtable.get(BENCH.key(1)), memtable.get_at(BENCH.key(1), 1)

    assert isinstance(newest, BatchRow)
    assert newest.given == A
    assert isinstance(before, BatchRow)
    assert before.given is None
