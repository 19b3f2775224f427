"""`neve iceberg`: where a table is for other engines, and how they read it."""

from pathlib import Path

from pyiceberg.table import StaticTable  # noqa: F401 - the printed line names it

from tests.unit.cli.rows_lake import RowsLake


def test_it_says_where_the_metadata_is_and_how_to_read_it(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path)).orders((1, "ada", "2.50"))
    lake.ok("flush", "shop.orders")

    said = lake.json("iceberg", "shop.orders")

    assert said["metadata"].endswith("/metadata/v2.metadata.json")
    assert said["version"] == 2
    assert set(said["readers"]) == {"DuckDB", "PyIceberg", "Polars", "Spark", "Trino"}
    rows = eval(said["readers"]["PyIceberg"])  # noqa: S307 - a line for people to run
    assert rows.column("customer").to_pylist() == ["ada"]
    lines = lake.ok("iceberg", "shop.orders").splitlines()
    assert lines[0] == "shop.orders, version 2, as Iceberg format 3:"
    assert lines[1].strip() == said["metadata"]
    assert said["readers"]["DuckDB"].startswith("LOAD iceberg; ")
    assert "DuckDB, after INSTALL iceberg once" in lines
    assert "Spark, with the jar iceberg-spark-runtime of its version" in lines


def test_it_publishes_beside_a_writer_what_is_missing(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path)).orders()

    assert lake.json("iceberg", "shop.orders")["metadata"].endswith("/v1.metadata.json")


def test_an_unknown_table_is_not_found(tmp_path: Path) -> None:
    lake = RowsLake(str(tmp_path)).orders()

    assert "there is no table" in lake.run("iceberg", "shop.order").stderr.lower()
