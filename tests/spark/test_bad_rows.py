"""Rows and clauses that cannot be meant: a typed error says what, and nothing is committed."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from tests.spark.bulk_tables import DDL, NAME, clean_rows, current_version, make_table

UUID = "7b7a9b1e-3c55-4cf2-8f2e-0f6d2c3b8f01"


@pytest.mark.parametrize("text", [f"{{{UUID}}}", f"urn:uuid:{UUID}", UUID.replace("-", ""), "x"])
def test_a_uuid_is_written_in_one_way_only_for_rows_are_divided_by_its_text(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    with neve.open(tmp_path) as catalog:
        schema = pa.schema([pa.field("id", pa.uuid()), pa.field("v", pa.int64())])
        catalog.create_table(NAME, schema, ["id"])
    rows = spark.createDataFrame([(text, 1), (UUID, 2)], "id string, v long")

    with pytest.raises(neve.SchemaMismatch, match="text that is not a UUID") as failed:
        ns.upsert(rows, tmp_path, NAME, tasks=2)

    assert "8-4-4-4-12" in (failed.value.hint or "")
    assert current_version(tmp_path) == 1


def test_columns_that_are_there_twice_are_refused_by_every_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    twice = spark.sql("select 1L id, 1L v, 2L v")
    other_case = spark.sql("select 1L id, 1L v, 2L V")

    for rows in (twice, other_case):
        with pytest.raises(neve.SchemaMismatch, match="is there twice"):
            ns.upsert(rows, tmp_path, NAME)
        with pytest.raises(neve.SchemaMismatch, match="is there twice"):
            ns.upsert(rows, tmp_path, NAME, columns=["v"])
        with pytest.raises(neve.SchemaMismatch, match="is there twice"):
            ns.merge(rows, tmp_path, NAME)
    with pytest.raises(neve.SchemaMismatch, match="is there twice"):
        ns.upsert(spark.sql("select 1L id, 1L at, 2L at"), tmp_path, NAME, order_by="at")
    with pytest.raises(neve.SchemaMismatch, match="is there twice"):
        ns.delete(spark.sql("select 1L id, 2L ID"), tmp_path, NAME)
    assert current_version(tmp_path) == 1


def test_rows_that_have_no_order_are_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    rows = spark.sql("select 1L id, map('a', 1) m")

    with pytest.raises(neve.InvalidArgument, match="cannot be ordered by 'm'"):
        ns.upsert(rows, tmp_path, NAME, order_by="m")
    with pytest.raises(neve.InvalidArgument, match="the rows are a str"):
        ns.upsert("rows", tmp_path, NAME)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        (ns.Clause("update", set={"v": 5}), "the value of 'v' is 5"),  # type: ignore[dict-item]
        (ns.Clause("update", 5), "a condition is 5"),  # type: ignore[arg-type]
        (ns.Clause("update", set=["v"]), r"set=\['v'\]"),  # type: ignore[arg-type]
        (["update"], r"when_matched has \['update'\]"),
        (7, "when_matched has 7"),
    ],
)
def test_what_is_no_clause_is_refused_before_anything_runs(
    spark: SparkSession, tmp_path: Path, clause: object, message: str
) -> None:
    make_table(tmp_path)
    rows = spark.createDataFrame([(1, 1, "a")], DDL)

    with pytest.raises(neve.InvalidArgument, match=message):
        ns.merge(rows, tmp_path, NAME, when_matched=[clause])  # type: ignore[list-item]


def test_clauses_that_are_no_list_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    make_table(tmp_path)
    rows = spark.createDataFrame([(1, 1, "a")], DDL)

    with pytest.raises(neve.InvalidArgument, match="when_not_matched has 7"):
        ns.merge(rows, tmp_path, NAME, when_not_matched=7)  # type: ignore[arg-type]


def test_the_words_source_and_target_may_be_written_as_sql_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    ns.load(spark.createDataFrame([(1, 1, "a"), (2, 9, "b")], DDL), tmp_path, NAME)

    ns.merge(
        spark.createDataFrame([(1, 5, "x"), (2, 5, "x")], DDL),
        tmp_path,
        NAME,
        when_matched=ns.Clause("update", "SOURCE.v > Target.v"),
    )

    assert clean_rows(tmp_path) == {1: (1, 5, "x"), 2: (2, 9, "b")}


def test_a_merge_of_keys_alone_inserts_rows_of_defaults_and_leaves_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    make_table(tmp_path)
    ns.load(spark.createDataFrame([(1, 1, "a")], DDL), tmp_path, NAME)

    ns.merge(spark.range(1, 3), tmp_path, NAME)
    ns.merge(
        spark.createDataFrame([(1, 5, "x"), (3, 5, "x")], DDL),
        tmp_path,
        NAME,
        when_matched=None,
        when_not_matched=ns.Clause("insert", "source.v > 1", set={}),
    )

    assert clean_rows(tmp_path) == {1: (1, 1, "a"), 2: (2, None, None), 3: (3, None, None)}


def test_a_bad_row_is_named_by_its_key_for_its_number_says_nothing_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path) as catalog:
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int32(), nullable=False)])
        catalog.create_table(NAME, schema, ["id"])
    rows = spark.range(1_000)

    with pytest.raises(neve.SchemaMismatch) as without_key:
        ns.upsert(rows.selectExpr("nullif(id, 777) id", "1 v"), tmp_path, NAME)
    with pytest.raises(neve.SchemaMismatch) as too_large:
        ns.upsert(rows.selectExpr("id", "id * if(id = 777, 99999999, 1) v"), tmp_path, NAME)
    with pytest.raises(neve.SchemaMismatch) as deleted:
        ns.delete(rows.selectExpr("nullif(id, 777) id"), tmp_path, NAME)

    for failed in (without_key, deleted):
        assert failed.value.column == "id"
        assert "df.where('`id` IS NULL')" in str(failed.value)
        assert "row 0" not in str(failed.value)
    assert "in the row with id=777" in str(too_large.value)
    assert current_version(tmp_path) == 1
