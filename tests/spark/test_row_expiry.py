"""Rows that expire: Spark leaves them out, and its compaction removes them."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns

QUIET: Final = neve.TableOptions(background=False)
NAME: Final = "a.t"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    with neve.open(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: neve.Catalog) -> neve.Table:
    """Return a table in which row 1 has expired, and rows 2 and 3 have not."""
    fields = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
    ]
    table = lake.create_table(NAME, pa.schema(fields), ["id"], options=QUIET, ttl=("ts", "1 hour"))
    now = dt.datetime.now(dt.UTC)
    times = {1: now - dt.timedelta(hours=2), 2: now, 3: None}
    table.upsert([{"id": id_, "v": id_, "ts": each} for id_, each in times.items()])
    table.flush()
    return table


def test_reads_leave_expired_rows_out(
    spark: SparkSession, lake: neve.Catalog, table: neve.Table
) -> None:
    table.put({"id": 4, "v": 4, "ts": dt.datetime(2020, 1, 1, tzinfo=dt.UTC)})
    table.put({"id": 5, "v": 5, "ts": None})

    frame = ns.read(spark, lake.location, NAME, columns=["v"])
    fresh = ns.read(spark, lake.location, NAME, fresh=True, filter="v != 2")
    source = spark.read.format("neve").option("table", NAME).load(lake.location)

    assert sorted(row.v for row in frame.collect()) == [2, 3]
    assert frame.columns == ["v"]
    assert sorted(row.v for row in fresh.collect()) == [3, 5]
    assert sorted(row.v for row in source.select("v").collect()) == [2, 3]


def test_merges_count_expired_rows_as_absent_and_compaction_removes_them(
    spark: SparkSession, lake: neve.Catalog, table: neve.Table
) -> None:
    since = table.version
    given = spark.createDataFrame([(1, 10), (2, 20)], "id long, v long")
    ns.merge(given, lake.location, NAME, when_not_matched=None)
    table.refresh()
    assert {row["id"]: row["v"] for row in table.scan().to_pylist()} == {2: 20, 3: 3}

    ns.compact(spark, lake.location, NAME)  # leaves them to the live writer
    table.refresh()
    assert table.stats().row_count == 3
    table.close()
    ns.compact(spark, lake.location, NAME)

    with lake.table(NAME, read_only=True) as seen:
        assert seen.stats().row_count == 2
    feed = spark.read.format("neve").option("table", NAME).option("since", since)
    changes = feed.load(lake.location).where("_change_type = 'delete'").collect()
    assert [(row.id, row._expired) for row in changes] == [(1, True)]
