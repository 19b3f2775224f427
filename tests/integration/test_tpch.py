"""All 22 queries of TPC-H on neve's tables return what DuckDB returns from Parquet files.

A tenth of the rows was written before with other values, and some of the rows are not flushed.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from benchmarks import tpch

SCALE = 0.01


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    return tpch.tables(SCALE)


@pytest.fixture(scope="module")
def lake(
    rows: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[neve.Lake]:
    with neve.open(tmp_path_factory.mktemp("tpch") / "lake") as lake:
        tpch.load(lake, rows)
        yield lake


@pytest.fixture(scope="module")
def files(
    rows: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        tpch.view_files(connection, rows, tmp_path_factory.mktemp("files"))
        yield connection


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-9)  # sums of floats depend on their order
    return left == right


@pytest.mark.parametrize("number", tpch.QUERIES)
def test_a_query_returns_what_duckdb_returns_from_parquet(
    lake: neve.Lake, files: duckdb.DuckDBPyConnection, number: int
) -> None:
    text = tpch.QUERIES[number]

    wanted = files.execute(text).fetchall()
    found = lake.sql(text).fetchall()

    assert wanted
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        assert all(map(same, mine, theirs)), (mine, theirs)


def test_the_tables_have_dead_rows_and_rows_in_memory(lake: neve.Lake) -> None:
    with lake.table("tpch.lineitem") as table:
        stats = table.stats()
        assert stats.memtable_rows > 0
        assert sum(row["deleted_count"] for row in table.files().to_pylist()) > 0


def test_the_files_are_what_was_loaded(rows: dict[str, pa.Table], tmp_path: Path) -> None:
    pq.write_table(rows["orders"], tmp_path / "orders.parquet")

    assert tpch.tables(SCALE)["orders"].equals(rows["orders"])
