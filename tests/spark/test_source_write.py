"""Writing through a data source of Spark: batches and streams are upserts, each committed once."""

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import neve
from neve.spark.source import NeveSource
from tests.spark.bulk_tables import DDL, NAME, Row, clean_rows, current_version, make_table

FORMAT = NeveSource.name()


@pytest.fixture(scope="module", autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(NeveSource)


def frame(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), DDL)


def writer(rows: DataFrame, **options: str) -> DataFrameWriter:
    return rows.write.format(FORMAT).option("table", NAME).options(**options).mode("append")


def test_an_append_is_an_upsert_and_a_job_id_makes_it_happen_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path, partition_by=["text"])
    writer(frame(spark, [(n, 0, "ab"[n % 2]) for n in range(10)])).save(str(tmp_path))
    assert current_version(tmp_path) == 2
    rows: list[Row] = [(9, 1, "a"), (10, 1, "b")]
    for _ in range(2):
        writer(frame(spark, rows), job_id="once").save(str(tmp_path))
    assert current_version(tmp_path) == 3
    expected = {n: (n, 0, "ab"[n % 2]) for n in range(9)} | {row[0]: row for row in rows}
    assert clean_rows(tmp_path) == expected
    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        # Neither run has left an intent, a lease, or a file that nobody reaches.
        work = table._open.stored.writer_state
        assert not list(work.intents_in(table._open.stored.store.read()))
        assert table.collect_garbage().file_count == 0
        assert table.verify().is_sound


def test_several_rows_of_one_key_are_refused_in_a_task_and_between_tasks(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    twice = frame(spark, [(7, 1, "a"), (8, 1, "a"), (7, 2, "b")])
    with pytest.raises(PySparkException, match="several rows of one key, such as 7"):
        writer(twice.coalesce(1)).save(str(tmp_path))
    apart = spark.range(0, 2, 1, 2).selectExpr("7L id", "id v", "'a' text")
    with pytest.raises(PySparkException, match="several rows of one key, such as 7"):
        writer(apart, order_by="v").save(str(tmp_path))
    assert current_version(tmp_path) == 1
    writer(apart.repartition("id"), order_by="v").save(str(tmp_path))
    assert clean_rows(tmp_path) == {7: (7, 1, "a")}


def test_what_cannot_be_written_is_said_before_anything_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    given = frame(spark, [(1, 1, "a")])
    with pytest.raises(PySparkException, match="overwrite_partitions"):
        writer(given).mode("overwrite").save(str(tmp_path))
    with pytest.raises(PySparkException, match="not in the table"):
        writer(given.withColumnRenamed("v", "w")).save(str(tmp_path))
    with pytest.raises(PySparkException, match="no table"):
        writer(given, table="a.c").save(str(tmp_path))
    with pytest.raises(PySparkException, match="NULL"):
        writer(given.selectExpr("cast(null as long) id", "v")).save(str(tmp_path))
    assert current_version(tmp_path) == 1


def test_a_stream_writes_each_batch_once_though_spark_forgot_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, source, checkpoint = (tmp_path / each for each in ("lake", "source", "checkpoint"))
    make_table(lake)
    source.mkdir()

    def add(place: int) -> None:
        numbers = list(range(place * 10, place * 10 + 15))
        rows = {"id": numbers, "v": [place] * 15, "text": ["s"] * 15}
        pq.write_table(pa.table(rows), source / f"{place}.parquet")
        # Files are read in the order of their times.
        os.utime(source / f"{place}.parquet", (1_700_000_000 + place,) * 2)

    def run() -> None:
        rows = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            rows.writeStream.format(FORMAT)
            .option("table", NAME)
            .option("path", str(lake))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    add(0)
    add(1)
    run()
    assert current_version(lake) == 3
    # As if the driver had died after the commit and before it was noted.
    (checkpoint / "commits" / "1").unlink()
    (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
    add(2)
    run()
    assert current_version(lake) == 4
    last = {n: min(n // 10, 2) for n in range(35)}
    assert clean_rows(lake) == {n: (n, place, "s") for n, place in last.items()}


def data_files(lake: Path) -> set[str]:
    return {path.name for path in lake.glob("tables/*/data/*/*.parquet")}


def test_a_stream_that_starts_over_under_a_used_name_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, source = tmp_path / "lake", tmp_path / "source"
    make_table(lake)
    source.mkdir()

    def run(checkpoint: str, files: int) -> None:
        for place in range(files):
            rows = pa.table({"id": [place], "v": [files], "text": ["s"]})
            pq.write_table(rows, source / f"{place}.parquet")
        rows_read = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        query = (
            rows_read.parquet(str(source))
            .writeStream.format(FORMAT)
            .option("table", NAME)
            .option("path", str(lake))
            .option("app_id", "one")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run("first", 2)
    written = data_files(lake)
    with pytest.raises(PySparkException, match="batch 0 of 'one' is older than batch 1"):
        run("second", 2)
    assert current_version(lake) == 3
    assert data_files(lake) == written
