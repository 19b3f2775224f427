"""Conditional writes: a row is written if the table holds what the caller thinks it holds."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from math import nan

import pyarrow as pa
import pytest

import neve
from neve.errors import InvalidArgument, SchemaMismatch
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table

ROW = {"id": 1, "v": 1, "text": "one"}


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with a_catalog() as catalog:
        yield a_table(catalog)


def put_in_a_file(table: neve.Table, row: dict[str, object]) -> None:
    table.put(row)
    table.flush()


def test_a_row_whose_key_is_free_is_written(table: neve.Table) -> None:
    sequence = table.put_if_absent(ROW)

    assert sequence == table._open.engine.current.sequence
    assert table.get(1) == ROW


@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_row_whose_key_is_taken_is_not_written(table: neve.Table, place: str) -> None:
    table.put(ROW)
    if place == "file":
        table.flush()
    before = table._open.engine.current.sequence

    assert table.put_if_absent({**ROW, "v": 2}) is None

    assert table.get(1) == ROW
    assert table._open.engine.current.sequence == before


def test_the_key_of_a_deleted_row_is_free(table: neve.Table) -> None:
    put_in_a_file(table, ROW)
    table.delete(1)

    assert table.put_if_absent({**ROW, "v": 2}) is not None

    assert table.get(1) == {**ROW, "v": 2}


def test_a_key_that_another_committer_took_is_taken_once_the_version_is_shown(
    table: neve.Table,
) -> None:
    OtherCommitter(table).upsert([ROW])
    table.refresh()

    assert table.put_if_absent({**ROW, "v": 2}) is None


def test_a_row_replaces_the_one_that_is_expected(table: neve.Table) -> None:
    put_in_a_file(table, ROW)

    sequence = table.compare_and_put({**ROW, "v": 2}, ROW)

    assert sequence == table._open.engine.current.sequence
    assert table.get(1) == {**ROW, "v": 2}


@pytest.mark.parametrize(
    "expected",
    [None, {**ROW, "v": 7}, {"id": 1, "v": 1}],
    ids=["no row", "another value", "a value too few"],
)
def test_a_row_that_is_not_as_expected_stays(
    table: neve.Table, expected: dict[str, object] | None
) -> None:
    table.put(ROW)

    assert table.compare_and_put({**ROW, "v": 2}, expected) is None

    assert table.get(1) == ROW


def test_no_row_can_be_expected(table: neve.Table) -> None:
    assert table.compare_and_put(ROW, None) is not None
    assert table.compare_and_put({"id": 2, "v": 2, "text": "two"}, {"id": 2, "v": 1}) is None

    assert table.get(1) == ROW
    assert table.get(2) is None


def test_rows_are_compared_by_value_and_not_by_how_they_are_written() -> None:
    columns: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "share": pa.float64(),
        "at": pa.timestamp("us", tz="UTC"),
        "tags": pa.list_(pa.string()),
    }
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    with a_catalog() as catalog:
        table = a_table(catalog, columns=columns)
        table.put({"id": 1, "share": nan, "at": noon, "tags": ["a"]})
        table.put({"id": 2, "share": -0.0, "at": None, "tags": []})

        same = table.compare_and_put(
            {"id": 1, "share": 1},
            {
                "id": 1,
                "share": nan,
                "at": noon.astimezone(timezone(timedelta(hours=2))),
                "tags": ("a",),
            },
        )
        zero = table.compare_and_put({"id": 2, "share": 2}, {"id": 2, "share": 0, "tags": []})

        assert same is not None
        assert zero is not None


def test_zeros_and_nan_are_compared_in_each_column_and_inside_of_it() -> None:
    columns: dict[str, pa.DataType] = {
        "id": pa.int64(),
        "share": pa.float64(),
        "list": pa.list_(pa.float64()),
        "pair": pa.struct([("a", pa.float32()), ("b", pa.float64())]),
        "map": pa.map_(pa.string(), pa.float64()),
    }
    stored = {"share": -0.0, "list": [nan, 0.0], "pair": {"a": nan, "b": 0.0}, "map": {"k": nan}}
    same = {"share": 0.0, "list": [nan, -0.0], "pair": {"a": nan, "b": -0.0}, "map": {"k": nan}}
    with a_catalog() as catalog:
        table = a_table(catalog, columns=columns)
        for another in (
            {"share": 1.0},
            {"list": [nan]},
            {"list": [0.0, nan]},
            {"pair": {"a": nan, "b": nan}},
            {"map": {"k": 0.0}},
            {"map": None},
        ):
            table.put({"id": 1, **stored})
            assert table.compare_and_put({"id": 1}, {"id": 1, **same, **another}) is None

        assert table.compare_and_put({"id": 1}, {"id": 1, **same}) is not None


def test_a_row_of_another_key_cannot_be_expected(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="have different keys"):
        table.compare_and_put(ROW, {**ROW, "id": 2})


WRITES: dict[str, Callable[[neve.Table, dict[str, object]], int | None]] = {
    "put_if_absent": lambda table, row: table.put_if_absent(row),
    "compare_and_put": lambda table, row: table.compare_and_put(row, None),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_row_that_does_not_fit_is_refused_whatever_the_table_holds(
    table: neve.Table, write: str
) -> None:
    table.put(ROW)
    bad = {"id": 1, "v": "no number"}

    with pytest.raises(SchemaMismatch) as refused:
        WRITES[write](table, bad)

    assert refused.value.column == "v"


def test_threads_that_count_with_compare_and_put_lose_nothing(table: neve.Table) -> None:
    threads, each = 8, 40
    table.put({"id": 1, "v": 0, "text": ""})

    def count(_thread: int) -> int:
        tries = 0
        for _ in range(each):
            while True:
                tries += 1
                row = table.get(1)
                assert row is not None
                assert isinstance(row["v"], int)
                if table.compare_and_put({**row, "v": row["v"] + 1}, row) is not None:
                    break
        return tries

    with ThreadPoolExecutor(threads) as pool:
        tries = sum(pool.map(count, range(threads)))

    found = table.get(1)
    assert found is not None
    assert found["v"] == threads * each
    assert tries >= threads * each


def test_of_threads_that_put_if_absent_exactly_one_wins(table: neve.Table) -> None:
    with ThreadPoolExecutor(8) as pool:
        for key in range(20):
            rows = [{"id": key, "v": thread, "text": ""} for thread in range(8)]
            won = [each for each in pool.map(table.put_if_absent, rows) if each is not None]
            assert len(won) == 1


def test_a_conditional_write_survives_a_reopen() -> None:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.put_if_absent(ROW)
        table.compare_and_put({**ROW, "v": 2}, ROW)
        table.close()

        assert catalog.table("a.b").get(1) == {**ROW, "v": 2}
