"""Calls with swapped, missing or stopped arguments: said in words, before anything is opened."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import neve
from neve import spark as ns
from neve.spark.call_check import check_frame, check_session
from tests.spark.bulk_tables import DDL, NAME, current_version, make_table

ZONE = ", in the zone of spark.sql.session.timeZone"
Call = Callable[..., object]


def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, 1, "a")], DDL)


@pytest.mark.parametrize(
    "call", [ns.load, ns.upsert, ns.delete, ns.apply, ns.merge, ns.overwrite_partitions]
)
def test_rows_location_and_name_are_told_apart(
    spark: SparkSession, tmp_path: Path, call: Call
) -> None:
    make_table(tmp_path)
    rows = frame(spark)
    for given, message in (
        ((str(tmp_path), rows, NAME), "the location is a DataFrame"),
        ((rows, None, NAME), "the location is None"),
        ((rows, tmp_path, None), "the name of the table is None"),
        ((spark, tmp_path, NAME), "the rows are a SparkSession"),
        ((rows.toPandas(), tmp_path, NAME), "the rows are a DataFrame"),
        ((rows.toArrow(), tmp_path, NAME), "the rows are a Table"),
        ((None, tmp_path, NAME), "the rows are None"),
    ):
        with pytest.raises(neve.InvalidArgument, match=message) as failed:
            call(*given)
        assert "createDataFrame" in str(failed.value) or "The order is" in str(failed.value)
    assert current_version(tmp_path) == 1


@pytest.mark.parametrize(
    "call", [ns.read, ns.compact, ns.collect_garbage, ns.verify, ns.rebuild_indexes]
)
def test_session_location_and_name_are_told_apart(
    spark: SparkSession, tmp_path: Path, call: Call
) -> None:
    make_table(tmp_path)
    for given, message in (
        ((str(tmp_path), spark, NAME), "the session is a str"),
        ((None, tmp_path, NAME), "the session is None"),
        ((spark, spark, NAME), "the location is a SparkSession"),
        ((spark, tmp_path, 7), "the name of the table is a int"),
    ):
        with pytest.raises(neve.InvalidArgument, match=message):
            call(*given)
    with pytest.raises(neve.InvalidArgument, match="the location is None"):
        ns.expire(None, NAME)  # type: ignore[arg-type]
    with pytest.raises(neve.InvalidArgument, match="the source is a NoneType"):
        ns.migrate(spark, None, tmp_path, NAME, primary_key=["id"])  # type: ignore[arg-type]
    with pytest.raises(neve.InvalidArgument, match="the location is a DataFrame"):
        ns.upsert_batch(frame(spark), NAME, app_id="x")  # type: ignore[arg-type]


def test_a_session_that_was_stopped_is_said_to_be() -> None:
    # What is left of a session of this process, and of one on a server, when it was stopped.
    here = SimpleNamespace(createDataFrame=0, conf=0, sparkContext=SimpleNamespace(_jsc=None))
    server = SimpleNamespace(createDataFrame=0, conf=0, is_stopped=True)
    for stopped in (here, server):
        with pytest.raises(neve.Closed, match="was stopped"):
            check_session(stopped)
        rows = cast("DataFrame", SimpleNamespace(sparkSession=stopped, columns=["id"]))
        with pytest.raises(neve.Closed, match="of a session of Spark that was stopped"):
            check_frame(rows)


def test_a_stream_is_no_rows_to_write_once(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    stream = spark.readStream.format("rate").load().selectExpr("value id")
    for call in (ns.upsert, ns.delete, ns.merge, ns.load):
        with pytest.raises(neve.InvalidArgument, match="the rows are a stream") as failed:
            call(stream, tmp_path, NAME)
        assert "upsert_batch" in (failed.value.hint or "")


def test_a_column_of_another_type_is_told_how_to_be_cast_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {"id": pa.int64(), "the at": pa.timestamp("us", "UTC"), "n": pa.int32()}
    with neve.open(tmp_path) as catalog:
        catalog.create_table(NAME, pa.schema(columns), ["id"])
    rows = spark.sql("select '1' id, timestamp_ntz'2024-01-01 00:00:00' `the at`, 5L n")
    for name, hint in (
        ("id", "Cast it first: df.withColumn('id', col('`id`').cast('bigint'))"),
        (
            "the at",
            f"Cast it first: df.withColumn('the at', col('`the at`').cast('timestamp')){ZONE}",
        ),
    ):
        with pytest.raises(neve.SchemaMismatch) as failed:
            ns.upsert(rows, tmp_path, NAME)
        assert (failed.value.column, failed.value.hint) == (name, hint)
        rows = rows.withColumn(name, col(f"`{name}`").cast(hint.split("cast(")[1].split("'")[1]))
    ns.upsert(rows, tmp_path, NAME)  # a long that fits into an int is no other type
    with neve.open(tmp_path) as catalog, catalog.table(NAME) as table:
        at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "the at": at, "n": 5}]


def test_a_clause_that_sets_the_key_is_told_that_it_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    rows = frame(spark)
    for values, hint in (({"id": "1"}, "keeps its key"), ({"vv": "1"}, "Did you mean 'v'")):
        with pytest.raises(neve.InvalidArgument, match="a clause sets") as failed:
            ns.merge(rows, tmp_path, NAME, when_matched=ns.Clause("update", set=values))
        assert hint in (failed.value.hint or "")
    with pytest.raises(neve.InvalidArgument, match="a clause sets 5"):
        ns.merge(rows, tmp_path, NAME, when_matched=ns.Clause("update", set={5: "1"}))  # type: ignore[dict-item]


def test_a_value_of_another_type_is_told_how_to_be_cast_in_its_clause(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    with pytest.raises(neve.SchemaMismatch, match="string where long is expected") as failed:
        ns.merge(frame(spark), tmp_path, NAME, when_matched=ns.Clause("update", set={"v": "'x'"}))
    assert failed.value.hint == "Cast its value: cast(… as bigint)"
    with pytest.raises(neve.SchemaMismatch, match="column 'V' of the rows") as failed:
        ns.merge(frame(spark).withColumnRenamed("v", "V"), tmp_path, NAME)
    assert failed.value.hint == "Did you mean 'v'?"


def test_names_with_dots_quotes_and_blanks_go_through_every_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {name: pa.int64() for name in ("a.b", "the clé", "`q`", "x'y", "名 前")}
    with neve.open(tmp_path) as catalog:
        catalog.create_table(NAME, pa.schema(columns), ["a.b", "the clé"])
        catalog.create_table("a.parts", pa.schema(columns), ["a.b"], partition_by=["x'y"])
    rows = spark.range(1, 4).selectExpr(
        "id `a.b`", "id `the clé`", "id ```q```", "id `x'y`", "id `名 前`"
    )
    clause = ns.Clause("update", "target.`a.b` > 1", set={"`q`": "source.```q``` + target.`x'y`"})
    for name in (NAME, "a.parts"):
        ns.upsert(rows, tmp_path, name, order_by="a.b")
        ns.merge(rows, tmp_path, name, when_matched=clause)
        ns.upsert(rows.withColumn("名 前", col("`a.b`") * 10), tmp_path, name, columns=["名 前"])
        ns.delete(rows.where("`a.b` = 3"), tmp_path, name)
        ns.overwrite_partitions(rows.where("`a.b` = 1"), tmp_path, "a.parts")
        with neve.open(tmp_path) as catalog, catalog.table(name) as table:
            found = [list(row.values()) for row in table.scan().to_arrow().to_pylist()]
        assert max(found) == [2, 2, 4, 2, 20]


def test_odd_numbers_options_and_functions_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    rows = frame(spark)
    with pytest.raises(neve.InvalidArgument, match="is not a whole number"):
        ns.upsert_batch(tmp_path, NAME, app_id="x")(rows, "7")  # type: ignore[arg-type]
    with pytest.raises(neve.InvalidArgument, match="is not a number of tasks"):
        ns.upsert(rows, tmp_path, NAME, tasks=5_000_000_000)
    with pytest.raises(neve.InvalidArgument, match="progress is a int"):
        ns.upsert(rows, tmp_path, NAME, progress=5)  # type: ignore[arg-type]
    with pytest.raises(neve.InvalidArgument, match="the options are a dict"):
        ns.compact(spark, tmp_path, NAME, options={"level0_files": 2})  # type: ignore[arg-type]
    assert current_version(tmp_path) == 1


def test_what_is_no_parquet_and_a_warehouse_inside_the_source_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "a.parquet").write_bytes(b"no Parquet")
    with pytest.raises(neve.InvalidArgument, match=r"can be read: \[FAILED_READ"):
        ns.migrate(spark, source, tmp_path / "lake", NAME, primary_key=["id"])
    for inside in (source, f"{source}/", source / "lake"):
        with pytest.raises(neve.InvalidArgument, match="lies inside the source"):
            ns.migrate(spark, source, inside, NAME, primary_key=["id"])
    assert [path.name for path in source.iterdir()] == ["a.parquet"]
