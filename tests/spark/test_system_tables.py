"""The system tables of a lake, read by Spark: the rows that `lake.system_table` has."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.catalog.system_tables import SYSTEM_TABLES, readable_rows


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    with neve.open(tmp_path / "lake") as opened:
        key = pa.field("id", pa.int64(), nullable=False)
        for name in ("shop.orders", "shop.more"):
            table = opened.create_table(
                name, pa.schema([key]), ["id"], options=neve.TableOptions(background=False)
            )
            table.put({"id": 1})
            table.flush()
            table.close()
        yield opened


@pytest.mark.parametrize("name", SYSTEM_TABLES)
def test_both_ways_to_read_give_the_rows_of_the_lake(
    spark: SparkSession, lake: neve.Catalog, name: str
) -> None:
    expected = readable_rows(name, lake.system_table(name)).to_pylist()

    read = ns.read(spark, lake.location, name)
    source = spark.read.format("neve").option("table", name).load(lake.location)

    assert [row.asDict() for row in read.collect()] == expected
    assert [row.asDict() for row in source.collect()] == expected
    assert read.schema == source.schema
    assert len(expected) >= 2


def test_columns_and_filters_are_those_of_a_table(spark: SparkSession, lake: neve.Catalog) -> None:
    filter_text = "table_name = 'shop.orders' and operation = 'APPEND'"

    read = ns.read(
        spark, lake.location, "__snapshots", columns=["summary", "snapshot_id"], filter=filter_text
    )
    source = (
        spark.read.format("neve")
        .option("table", "__snapshots")
        .option("columns", "snapshot_id")
        .option("filter", filter_text)
        .load(lake.location)
    )

    (row,) = read.collect()
    assert read.columns == ["summary", "snapshot_id"]
    assert json.loads(row["summary"])["added-records"] == "1"
    assert [found["snapshot_id"] for found in source.collect()] == [2]
    ns.view(spark, lake.location, "__files", "all_files")
    counted = spark.sql("select sum(record_count) as rows from all_files").collect()
    assert counted[0]["rows"] == 2


def test_versions_of_a_system_table_are_refused(spark: SparkSession, lake: neve.Catalog) -> None:
    with pytest.raises(neve.InvalidArgument, match="no versions"):
        ns.read(spark, lake.location, "__snapshots", version=1)
    with pytest.raises(neve.NotFound, match="no system table"):
        ns.read(spark, lake.location, "__snapshot")
    reader = spark.read.format("neve").option("table", "__snapshots").option("since", "0")
    with pytest.raises(Exception, match="no versions and no changes"):
        reader.load(lake.location)
