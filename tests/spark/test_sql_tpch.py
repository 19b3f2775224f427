"""Queries of TPC-H by name on Spark return what DuckDB returns from Parquet files.

All 22 in torture. A tenth of the rows is dead, and some rows are only in the log of the writer.
"""

import math
from collections.abc import Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from benchmarks import tpch
from neve import spark as ns
from tests.gates import TORTURE

SCALE = 0.01
# Outside of torture, those with the most different plans.
NUMBERS = tuple(tpch.QUERIES) if TORTURE else (2, 4, 9, 13, 15, 18, 21, 22)


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    return tpch.tables(SCALE)


@pytest.fixture(scope="module")
def files(
    rows: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        tpch.view_files(connection, rows, tmp_path_factory.mktemp("files"))
        yield connection


@pytest.fixture(scope="module")
def attached(
    spark: SparkSession, rows: dict[str, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("tpch") / "lake"
    with neve.open(folder) as lake:
        tpch.load(lake, rows)
        ns.attach(spark, folder, "bench", fresh=True)
        yield spark


def plain(value: object) -> object:
    """Return a number as a float: the engines divide decimals with different digits."""
    return float(value) if isinstance(value, Decimal | int) else value


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=1e-6, abs_tol=1e-6)
    return left == right


@pytest.mark.parametrize("number", NUMBERS)
def test_a_query_by_name_returns_what_duckdb_returns(
    attached: SparkSession, files: duckdb.DuckDBPyConnection, number: int
) -> None:
    text = tpch.QUERIES[number]

    wanted = [tuple(map(plain, row)) for row in files.execute(text).fetchall()]
    found = attached.sql(text.replace("tpch.", "bench.tpch."))

    mine = [tuple(map(plain, row)) for row in found.collect()]
    assert wanted
    assert len(mine) == len(wanted)
    for one, other in zip(mine, wanted, strict=True):
        assert all(map(same, one, other)), (one, other)
