"""Merging sorted runs: order, laziness, and what a limit saves."""

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pytest

from neve.errors import Corruption
from neve.keys.key_hashes import Hashes
from neve.keys.merge import Block, LoadBlock, Source, ordered_rows, rows_by_key
from neve.keys.order import RowKeys, SortKey

directions = pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])


class Runs:
    """Runs of pieces of numbers; notes which pieces were loaded."""

    def __init__(self, *, descending: bool, as_bytes: bool = False) -> None:
        self.descending = descending
        self.as_bytes = as_bytes
        self.loaded: list[list[int]] = []

    def source(self, *pieces: list[int]) -> Source:
        ordered = list(reversed(pieces)) if self.descending else list(pieces)
        everything = [number for piece in pieces for number in piece]
        nearest = max(everything) if self.descending else min(everything)
        loads: list[LoadBlock] = [self._load(piece) for piece in ordered]

        def given() -> Iterable[LoadBlock]:
            return loads

        return self._key(nearest), given

    def _key(self, number: int) -> SortKey:
        return number.to_bytes(4, "big") if self.as_bytes else number

    def _load(self, piece: list[int]) -> Callable[[], Block | None]:
        def load() -> Block | None:
            self.loaded.append(piece)
            if not piece:
                return None
            keys = RowKeys(np.array(piece, np.uint64))
            if self.as_bytes:
                keys = RowKeys(pa.array([number.to_bytes(4, "big") for number in piece]))
            return pa.table({"n": piece}), keys

        return load

    def merge(self, *runs: list[Source], limit: int | None = None) -> list[int]:
        arranged = [list(reversed(run)) if self.descending else run for run in runs]
        found: list[int] = []
        for table in ordered_rows(arranged, descending=self.descending, limit=limit):
            assert table.num_rows > 0
            found += table.column("n").to_numpy().tolist()
            if limit is not None and len(found) >= limit:
                break
        return found if limit is None else found[:limit]


@directions
@pytest.mark.parametrize("as_bytes", [False, True], ids=["words", "bytes"])
def test_interleaved_runs_become_one(*, descending: bool, as_bytes: bool) -> None:
    runs = Runs(descending=descending, as_bytes=as_bytes)

    found = runs.merge(
        [runs.source([1, 4], [9, 12]), runs.source([20, 21])],
        [runs.source([2, 3], [5, 6, 7], [30])],
        [runs.source([8, 22])],
    )

    expected = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 20, 21, 22, 30]
    assert found == (expected[::-1] if descending else expected)


@directions
def test_a_file_is_not_opened_before_its_keys_are_reached(*, descending: bool) -> None:
    runs = Runs(descending=descending)
    near, far = [1, 2, 3], [10, 11]
    if descending:
        near, far = far, near

    found = runs.merge([runs.source([1, 2, 3])], [runs.source([10, 11])], limit=2)

    assert found == (near[::-1] if descending else near)[:2]
    assert runs.loaded == [near]
    assert far not in runs.loaded


@directions
def test_pieces_without_wanted_rows_are_passed_over(*, descending: bool) -> None:
    runs = Runs(descending=descending)

    def source() -> Source:
        nearest, given = runs.source([5])
        return nearest, lambda: [lambda: None, *given(), lambda: None]

    assert runs.merge([source()], [runs.source([4])]) == ([5, 4] if descending else [4, 5])


@directions
def test_no_runs_give_no_rows(*, descending: bool) -> None:
    runs = Runs(descending=descending)

    assert runs.merge() == []
    assert runs.merge([], []) == []


@directions
@pytest.mark.parametrize("as_bytes", [False, True], ids=["words", "bytes"])
def test_a_key_in_two_runs_is_damage(*, descending: bool, as_bytes: bool) -> None:
    runs = Runs(descending=descending, as_bytes=as_bytes)

    with pytest.raises(Corruption, match="two live rows have the key"):
        runs.merge([runs.source([1, 5, 9])], [runs.source([2, 5, 7])])


@directions
def test_a_limit_cuts_each_piece_before_it_is_joined(*, descending: bool) -> None:
    runs = Runs(descending=descending)
    evens, odds = list(range(0, 1_000, 2)), list(range(1, 1_000, 2))
    tables = ordered_rows(
        [[runs.source(evens)], [runs.source(odds)]], descending=descending, limit=3
    )

    with_limit = [table.column("n").to_pylist() for table in tables]

    everything = sorted(evens + odds, reverse=descending)
    assert with_limit == [everything[:3]]


def _blocks(*parts: Hashes) -> list[Block]:
    return [(pa.table({"n": part.astype(np.int64)}), RowKeys(part)) for part in parts]


def _address(table: pa.Table) -> int:
    """Where the first value of a column of 64-bit numbers is in memory."""
    chunk = table.column("n").chunks[0]
    values = chunk.buffers()[1]
    assert values is not None
    return values.address + 8 * chunk.offset


def test_blocks_that_take_turns_in_long_stretches_are_not_copied() -> None:
    numbers = np.arange(60_000, dtype=np.uint64)
    is_new = (numbers // 10_000) % 3 == 1  # 10,000 to 20,000 and 40,000 to 50,000
    old, *new = _blocks(numbers[~is_new], numbers[10_000:20_000], numbers[40_000:50_000])

    tables = list(rows_by_key([old, *new]))

    assert pa.concat_tables(tables).column("n").to_pylist() == numbers.tolist()
    assert [table.num_rows for table in tables] == [10_000, 10_000, 20_000, 10_000, 10_000]
    start = _address(old[0])
    assert [_address(table) for table in tables[::2]] == [
        start,
        start + 8 * 10_000,
        start + 8 * 30_000,
    ]
    assert [_address(table) for table in tables[1::2]] == [_address(rows) for rows, _ in new]


@pytest.mark.parametrize("step", [2, 300], ids=["by rows", "by short stretches"])
def test_blocks_that_take_turns_often_become_one_table(step: int) -> None:
    numbers = np.arange(30_000, dtype=np.uint64)
    is_left = (numbers // (step // 2)) % 2 == 0

    (table,) = rows_by_key(_blocks(numbers[is_left], numbers[~is_left]))

    assert table.column("n").to_pylist() == numbers.tolist()
    assert table.column("n").num_chunks == 1
