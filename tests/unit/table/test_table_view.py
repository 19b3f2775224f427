"""Rows of many keys at once: the same as asked for one by one, however the keys come."""

from collections.abc import Iterable, Iterator, Mapping
from random import Random

import pyarrow as pa
import pytest

from neve.model.data_file import FileFormat
from tests.unit.read.table_bench import (
    FORMATS,
    NUMBERED,
    PLACED,
    TableBench,
    numbered,
    small_groups,
)


@pytest.fixture(autouse=True)
def _few_rows_a_group() -> Iterator[None]:
    with small_groups(16):
        yield


every_format = pytest.mark.parametrize("file_format", FORMATS.values(), ids=FORMATS)


def placed(ids: Iterable[int], amount: float = 1.0) -> list[dict[str, object]]:
    """Rows of PLACED, whose keys are hashed in an index."""
    return [{"amount": amount, "shop": f"shop {n % 5}", "id": n} for n in ids]


def asked_at_once(
    bench: TableBench, keys: list[Mapping[str, object]]
) -> list[dict[str, object] | None]:
    """Ask for the rows of keys; gives a row or None for each key, in their order."""
    names = bench.context.encoder.names
    columns = [[key[name] for key in keys] for name in names]
    types = [bench.schema.column(name).type for name in names]
    arrays = [pa.array(each, type_) for each, type_ in zip(columns, types, strict=True)]
    encoded = bench.context.encoder.encode_arrays(arrays)
    rows, places = bench.view().get_many(encoded, bench.sequence)
    found: list[dict[str, object] | None] = [None] * len(keys)
    assert len(set(places.tolist())) == len(places) == rows.num_rows
    for place, row in zip(places.tolist(), rows.to_pylist(), strict=True):
        found[place] = row
    return found


def asked_singly(
    bench: TableBench, keys: list[Mapping[str, object]]
) -> list[dict[str, object] | None]:
    view = bench.view()
    return [view.get_at(bench.key(key), bench.sequence) for key in keys]


@every_format
def test_keys_in_any_order_are_found_in_every_file_and_in_memory(file_format: FileFormat) -> None:
    bench = TableBench(NUMBERED)
    bench.add(numbered(range(0, 300, 2)), level=1, file_format=file_format, dead=[0, 7, 80])
    bench.add(numbered(range(301, 500)), level=1, file_format=file_format)
    bench.add(numbered([0, 14, 160, 700], "new "), level=0, file_format=file_format)
    bench.put(numbered([4], "newest ")[0])
    bench.delete({"id": 350})
    asked: list[Mapping[str, object]] = [{"id": n} for n in range(-5, 720)]
    Random(5).shuffle(asked)

    found = asked_at_once(bench, asked)

    assert found == asked_singly(bench, asked)
    assert sum(row is not None for row in found) == 149 + 198 + 2


@every_format
def test_hashed_keys_in_any_order_are_found_in_every_file(file_format: FileFormat) -> None:
    bench = TableBench(PLACED)
    bench.add(placed(range(120)), level=1, file_format=file_format, dead=[3, 44])
    bench.add(placed(range(100, 220), 2.0), level=0, file_format=file_format, dead=range(40))
    bench.add(placed(range(500, 540), 3.0), level=0, file_format=file_format)
    asked = [{"shop": f"shop {n % 5}", "id": n} for n in range(-5, 600)]
    Random(6).shuffle(asked)

    found = asked_at_once(bench, [*asked])

    # One key may have rows in two files here, of which either is a right answer.
    single = asked_singly(bench, [*asked])
    assert [row is None for row in found] == [row is None for row in single]
    for key, row in zip(asked, found, strict=True):
        assert row is None or {name: row[name] for name in key} == key


@every_format
def test_a_key_that_is_asked_for_twice_is_found_twice(file_format: FileFormat) -> None:
    bench = TableBench(NUMBERED)
    bench.add(numbered(range(100)), level=1, file_format=file_format)
    bench.put(numbered([200])[0])
    asked: list[Mapping[str, object]] = [{"id": n} for n in (7, 99, 7, 200, 7, 101, 200, 0)]

    found = asked_at_once(bench, asked)

    assert [row and row["id"] for row in found] == [7, 99, 7, 200, 7, None, 200, 0]


def test_what_was_found_is_not_looked_for_in_further_files() -> None:
    bench = TableBench(NUMBERED)
    bench.add(numbered(range(100)), level=1)
    bench.add(numbered(range(100, 200)), level=0)
    bench.add(numbered(range(50, 150), "second "), level=0, dead=range(100))

    found = asked_at_once(bench, [{"id": n} for n in range(200)])

    assert [row and row["name"] for row in found] == [str(n) for n in range(200)]
