"""The page about readers names the versions that the tests run with."""

import re
from importlib import metadata
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "iceberg.md"
INTEROP = Path(__file__).parents[2] / "requirements-interop.in"
READERS = {"PyIceberg": "pyiceberg", "DuckDB": "duckdb", "Polars": "polars",
           "DataFusion": "datafusion"}  # fmt: skip


def named_version(reader: str) -> str:
    found = re.search(rf"^\| {reader}[^|]*\| ([0-9.]+) \|", PAGE.read_text(), re.MULTILINE)
    assert found is not None, reader
    return found[1]


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_is_named_with_the_version_that_is_tested(reader: str) -> None:
    assert named_version(reader) == metadata.version(READERS[reader])


def test_spark_is_named_with_the_version_of_its_environment() -> None:
    assert f"pyspark=={named_version('Spark SQL')}" in INTEROP.read_text().splitlines()
