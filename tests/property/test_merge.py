"""The merge gives what sorting all rows would, whatever the runs, windows and limit are."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import Corruption
from neve.keys import merge
from neve.keys.columns import KeyArray
from neve.keys.merge import Block, LoadBlock, Source, WindowSize
from neve.keys.order import RowKeys, SortKey


class Form(NamedTuple):
    """How the numbers of the tests are written as keys."""

    name: str
    key_of: Callable[[int], bytes]
    type: pa.DataType
    keeps_bytes: bool = False


def _text_key(number: int) -> bytes:
    # Lengths vary, some share more than a word, and zeros at the end matter.
    return b"user-of-some-length-%03d" % (number // 3) + b"\0" * (number % 3)


FORMS = [
    Form("words", lambda number: number.to_bytes(8), pa.binary(8)),
    Form("words that keep their bytes", lambda n: n.to_bytes(3), pa.binary(3), keeps_bytes=True),
    Form("wide", lambda number: b"wide" + number.to_bytes(16), pa.binary(20)),
    Form("variable", _text_key, pa.binary()),
]

# A run is files, a file is pieces, a piece is numbers; some of them are empty.
_NUMBERS = st.lists(st.integers(0, 400), unique=True, max_size=120)
_CUTS = st.lists(st.integers(0, 8), min_size=1, max_size=12)
_SIZES = st.builds(WindowSize, rows=st.integers(1, 60), bytes=st.sampled_from([1, 300, 1 << 20]))
# From cutting pieces wherever another one begins to sorting every window.
_STRETCHES = st.sampled_from([1, 3, 10, 1_024])
Run = list[list[list[int]]]


@st.composite
def _runs(draw: st.DrawFn, *, run_count: int = 6) -> list[Run]:
    """Numbers dealt out to runs, so that these overlap, and cut into files and pieces."""
    numbers = draw(_NUMBERS)
    runs: list[Run] = []
    for number in range(draw(st.integers(0, run_count))):
        chosen = draw(st.sets(st.sampled_from(numbers))) if numbers else set()
        mine = sorted(chosen.difference(*(each for run in runs for file in run for each in file)))
        del number
        files: Run = []
        rest = mine
        for cut in draw(_CUTS):
            pieces = [rest[:cut], rest[cut : 2 * cut]]
            rest = rest[2 * cut :]
            files.append(pieces)
        files.append([rest])
        runs.append(files)
    return runs


def _keys(numbers: list[int], form: Form) -> RowKeys:
    encoded = cast("KeyArray", pa.array([form.key_of(each) for each in numbers], form.type))
    if form.keeps_bytes or form.name != "words":
        return RowKeys.of(encoded)
    return RowKeys(np.array(numbers, np.uint64))


def _block(numbers: list[int], form: Form) -> Block | None:
    if not numbers:
        return None
    rows = pa.table({"n": pa.array(numbers, pa.int64()), "text": [f"row {n}" for n in numbers]})
    return rows, _keys(numbers, form)


def _sort_key(number: int, form: Form) -> SortKey:
    return number if form.name == "words" else form.key_of(number)


def _sources(run: Run, form: Form, *, descending: bool = False) -> list[Source]:
    sources: list[Source] = []
    for file in run:
        everything = [number for piece in file for number in piece]
        if everything:
            nearest = max(everything) if descending else min(everything)
            pieces: list[LoadBlock] = [partial(_block, piece, form) for piece in file]
            given_pieces = pieces[::-1] if descending else pieces
            sources.append((_sort_key(nearest, form), partial(iter, given_pieces)))
    return sources[::-1] if descending else sources


def _expected(runs: list[Run], *, descending: bool = False) -> list[int]:
    numbers = [number for run in runs for file in run for piece in file for number in piece]
    return sorted(numbers, reverse=descending)


forms = pytest.mark.parametrize("form", FORMS, ids=[form.name for form in FORMS])


@forms
@given(
    runs=_runs(),
    descending=st.booleans(),
    limit=st.none() | st.integers(1, 150),
    size=_SIZES,
    sorted_bytes_max=st.sampled_from([200, 1 << 20]),
    stretch_rows=_STRETCHES,
)
def test_rows_come_as_if_all_were_sorted(
    form: Form,
    *,
    runs: list[Run],
    descending: bool,
    limit: int | None,
    size: WindowSize,
    sorted_bytes_max: int,
    stretch_rows: int,
) -> None:
    sources = [_sources(run, form, descending=descending) for run in runs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "SORTED_BYTES_MAX", sorted_bytes_max)
        patch.setattr(merge, "_STRETCH_ROWS", stretch_rows)
        tables = list(merge.ordered_rows(sources, descending=descending, limit=limit, size=size))

    assert all(table.num_rows for table in tables)
    found = [number for table in tables for number in table.column("n").to_numpy().tolist()]
    assert found == _expected(runs, descending=descending)[:limit]
    assert [f"row {number}" for number in found] == [
        text for table in tables for text in table.column("text").to_pylist()
    ]


@forms
@given(runs=_runs(), size=_SIZES, stretch_rows=_STRETCHES)
def test_blocks_come_with_the_keys_of_their_rows(
    form: Form, *, runs: list[Run], size: WindowSize, stretch_rows: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_STRETCH_ROWS", stretch_rows)
        blocks = list(merge.ordered_blocks([_sources(run, form) for run in runs], size=size))

    assert [n for rows, _ in blocks for n in rows.column("n").to_numpy().tolist()] == _expected(
        runs
    )
    for rows, keys in blocks:
        assert len(keys) == rows.num_rows > 0
        for place, number in enumerate(rows.column("n").to_numpy().tolist()):
            assert keys.at(place) == _sort_key(number, form)


@forms
@given(left=_runs(run_count=3), right=_runs(run_count=3), size=_SIZES)
def test_a_key_that_several_runs_have_is_in_one_window(
    form: Form, *, left: list[Run], right: list[Run], size: WindowSize
) -> None:
    """As in a change feed: each side has a key once, and a key may be on both sides."""
    sources = [_sources(run, form) for run in (*left, *right)]
    windows = [
        [(number, rows.column("n").to_numpy().tolist()) for number, (rows, _) in window]
        for window in merge.ordered_windows(sources, size=size)
    ]

    given_numbers = [sorted(n for _, part in window for n in part) for window in windows]
    assert all(given_numbers), "no window is empty"
    for before, after in pairwise(given_numbers):
        assert before[-1] < after[0]
    for number, run in enumerate((*left, *right)):
        mine = [n for window in windows for each, part in window if each == number for n in part]
        assert mine == _expected([run]), "each run in its order"


@forms
@given(runs=_runs(), size=_SIZES, stretch_rows=_STRETCHES, data=st.data())
def test_a_key_twice_is_corruption(
    form: Form, *, runs: list[Run], size: WindowSize, stretch_rows: int, data: st.DataObject
) -> None:
    numbers = _expected(runs)
    if not numbers:
        return
    again = data.draw(st.sampled_from(numbers))
    sources = [*(_sources(run, form) for run in runs), _sources([[[again]]], form)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merge, "_STRETCH_ROWS", stretch_rows)
        with pytest.raises(Corruption, match="two live rows have the key"):
            list(merge.ordered_rows(sources, descending=False, limit=None, size=size))


def _interleaved(run_count: int, piece_count: int) -> Iterator[list[Source]]:
    """Runs all of which overlap: pieces of 40 rows, and keys dealt out one by one."""
    step = run_count
    for number in range(run_count):
        mine = number + step * np.arange(40 * piece_count, dtype=np.uint64)
        rows = pa.table({"n": mine.astype(np.int64)})
        pieces = [
            partial(tuple, [rows.slice(start, 40), RowKeys(mine[start : start + 40])])
            for start in range(0, len(mine), 40)
        ]
        yield [(int(mine[0]), cast("Callable[[], Iterator[LoadBlock]]", partial(iter, pieces)))]


def _calls(run_count: int, piece_count: int, *, descending: bool) -> int:
    """Count the functions that a merge calls, of Python and of C."""
    runs = list(_interleaved(run_count, piece_count))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        rows = sum(
            table.num_rows for table in merge.ordered_rows(runs, descending=descending, limit=None)
        )
    finally:
        sys.setprofile(None)
    assert rows == run_count * piece_count * 40
    return calls


@pytest.mark.parametrize("descending", [False, True], ids=["ascending", "descending"])
def test_the_work_grows_as_the_number_of_runs_does(*, descending: bool) -> None:
    few, many = (_calls(count, 1, descending=descending) for count in (180, 1_440))

    # Eight times as many, and the heap a little higher.
    assert many < 8 * few * 1.3


def test_the_work_grows_as_the_pieces_of_many_runs_do() -> None:
    few, many = (_calls(360, count, descending=False) for count in (2, 16))

    assert many < 8 * few * 1.3


@pytest.mark.parametrize("limit", [1, 10, 1_000])
def test_a_limit_reads_few_of_many_files_that_follow_each_other(limit: int) -> None:
    loaded: list[int] = []

    def load(number: int) -> Block:
        loaded.append(number)
        mine = np.arange(40 * number, 40 * number + 40, dtype=np.uint64)
        return pa.table({"n": mine.astype(np.int64)}), RowKeys(mine)

    runs: list[list[Source]] = [
        [(40 * number, partial(iter, [partial(load, number)]))] for number in range(1_440)
    ]
    tables = list(merge.ordered_rows(runs, descending=False, limit=limit))

    assert sum(table.num_rows for table in tables) == limit
    assert len(loaded) <= -(-limit // 40)
