"""Scans agree with a plain list of rows, whatever the files, vectors and memtables are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.model.data_file import ROW_FORMATS, FileFormat
from neve.model.predicate import col
from tests.unit.read.table_bench import NUMBERED, PLACED, TableBench, small_groups

Row = dict[str, object]
Keep = Callable[[Row], bool]

_IDS = st.integers(0, 60)
_MANY_IDS = st.lists(_IDS, max_size=25, unique=True)


@pytest.fixture(autouse=True, scope="module")
def _few_rows_a_group() -> Iterator[None]:
    with small_groups(4):
        yield


@dataclass(frozen=True)
class History:
    """What happened to a table, from the oldest to the newest."""

    is_numbered: bool
    formats: list[FileFormat]
    base: list[int]
    cuts: list[int]
    flushes: list[tuple[list[int], list[int]]]
    memtables: list[list[tuple[int, bool]]]


HISTORIES = st.builds(
    History,
    is_numbered=st.booleans(),
    formats=st.lists(st.sampled_from(ROW_FORMATS), min_size=8, max_size=8),
    base=_MANY_IDS,
    cuts=st.lists(_IDS, max_size=2),
    flushes=st.lists(st.tuples(_MANY_IDS, _MANY_IDS), max_size=3),
    memtables=st.lists(st.lists(st.tuples(_IDS, st.booleans()), max_size=15), max_size=2),
)


@dataclass
class Told:
    """A table with that history, and the rows it must have."""

    history: History
    bench: TableBench = field(init=False)
    model: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench = TableBench(NUMBERED if self.history.is_numbered else PLACED)
        formats = iter(self.history.formats)
        edges = [*sorted(set(self.history.cuts)), 1_000]
        low = -1
        for edge in edges:
            ids = [each for each in self.history.base if low <= each < edge]
            low = edge
            self._add(ids, level=1, file_format=next(formats))
        for written, deleted in self.history.flushes:
            self._supersede([*written, *deleted])
            for each in deleted:
                self.model.pop(each, None)
            self._add(written, level=0, file_format=next(formats))
        for changes in self.history.memtables:
            self.bench.begin_memtable()
            for number, is_put in changes:
                if is_put:
                    self.model[number] = self.row(number)
                    self.bench.put(self.model[number])
                else:
                    self.bench.delete(self.row(number))
                    self.model.pop(number, None)

    def row(self, number: int) -> Row:
        # A different one each time it is written.
        amount = None if number % 5 == 2 else (number * 7 + len(self.model)) % 23 / 2
        if self.history.is_numbered:
            return {"id": number, "name": f"n{number % 9}", "amount": amount, "day": None}
        return {"amount": amount, "shop": "xy"[: number // 20], "id": number}

    def _add(self, ids: list[int], *, level: int, file_format: FileFormat) -> None:
        if ids:
            rows = [self.row(number) for number in ids]
            self.model.update(zip(ids, rows, strict=True))
            self.bench.add(rows, level=level, file_format=file_format)

    def _supersede(self, ids: list[int]) -> None:
        if not ids:
            return
        keys = self.bench.keys(self.bench.batch(self.row(number) for number in ids))
        for file in list(self.bench.files.values()):
            positions = self.bench.open_files.positions_of(file, keys)
            vector = self.bench.open_files.vector(file)
            self.bench.mark(file, vector | positions)

    def ordered(self, *, reverse: bool = False) -> list[Row]:
        return [self.model[number] for number in sorted(self.model, reverse=reverse)]


def _amount(row: Row) -> float | None:
    amount = row["amount"]
    assert amount is None or isinstance(amount, float)
    return amount


def _id(row: Row) -> int:
    number = row["id"]
    assert isinstance(number, int)
    return number


def _filters(bound: int) -> list[tuple[object, Keep]]:
    half = bound / 2

    def is_above(row: Row) -> bool:
        amount = _amount(row)
        return amount is not None and amount > half

    return [
        (None, lambda _: True),
        (f"amount > {half}", is_above),
        (col("amount") > half, is_above),
        (pc.field("amount") > half, is_above),
        (f"not amount > {half}", lambda row: _amount(row) is not None and not is_above(row)),
        ("amount is null", lambda row: _amount(row) is None),
        (f"id >= {bound}", lambda row: _id(row) >= bound),
        (f"id = {bound} and amount is not null", lambda row: _id(row) == bound and is_there(row)),
        (
            f"id between 5 and {bound} or amount > {half}",
            lambda row: 5 <= _id(row) <= bound or is_above(row),
        ),
        (col("id").is_in([bound, 3, 40]), lambda row: _id(row) in (bound, 3, 40)),
        (f"{bound} > id and not (id in (3, 4))", lambda r: _id(r) < bound and _id(r) not in (3, 4)),
        ("false", lambda _: False),
    ]


def is_there(row: Row) -> bool:
    return _amount(row) is not None


def _by_id(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=_id)


@given(history=HISTORIES, bound=_IDS, chosen=st.integers(0, 11))
def test_a_filtered_scan_and_its_count_are_those_of_the_rows(
    history: History, bound: int, chosen: int
) -> None:
    told = Told(history)
    asked, keep = _filters(bound)[chosen]
    expected = [row for row in told.ordered() if keep(row)]

    scan = told.bench.scan(filter=asked)

    assert _by_id(scan.to_arrow().to_pylist()) == expected
    assert scan.count() == len(expected)
    assert sum(batch.num_rows for batch in scan.to_batches()) == len(expected)


@given(
    history=HISTORIES,
    low=st.none() | _IDS,
    high=st.none() | _IDS,
    reverse=st.booleans(),
    limit=st.none() | st.integers(0, 30),
    bound=_IDS,
    chosen=st.integers(0, 11),
)
def test_a_key_range_gives_its_rows_by_key_in_either_direction(
    *,
    history: History,
    low: int | None,
    high: int | None,
    reverse: bool,
    limit: int | None,
    bound: int,
    chosen: int,
) -> None:
    told = Told(history)
    if low is not None and high is not None and low > high:
        low, high = high, low
    asked, keep = _filters(bound)[chosen]
    expected = [
        row
        for row in told.ordered(reverse=reverse)
        if (low is None or _id(row) >= low) and (high is None or _id(row) < high) and keep(row)
    ][:limit]

    def key(number: int | None) -> object:
        if number is None or history.is_numbered:
            return number
        return told.row(number)["shop"], number

    scan = told.bench.scan(
        filter=asked, key_range=(key(low), key(high)), reverse=reverse, limit=limit
    )

    assert scan.to_arrow().to_pylist() == expected
    assert scan.count() == len(expected)


@given(history=HISTORIES, limit=st.integers(0, 40), reverse=st.booleans())
def test_chosen_columns_and_a_limit_cut_what_is_given_and_nothing_else(
    history: History, limit: int, reverse: bool
) -> None:
    told = Told(history)

    scan = told.bench.scan(columns=["amount", "id"], limit=limit, reverse=reverse)

    found = scan.to_arrow().to_pylist()
    assert scan.schema.names == ["amount", "id"]
    assert len(found) == min(limit, len(told.model)) == scan.count()
    assert all(told.model[row["id"]]["amount"] == row["amount"] for row in found)
    if reverse:
        assert [row["id"] for row in found] == sorted(told.model, reverse=True)[:limit]
