"""`ns.attach`: tables of a lake by name in Spark's own SQL, on its native plan."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    UnsupportedOperationException,
)
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.errors import AlreadyExists, InvalidArgument, NotFound

COLUMNS = {"id": "long", "city": "string", "amount": "double"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Path]:
    """Make a lake with two Versions of a table, and attach it."""
    folder = tmp_path_factory.mktemp("by-name") / "lake"
    with neve.open(folder) as lake:
        lake.create_namespace("empty")
        with lake.create_table("shop.orders", COLUMNS, primary_key="id") as table:
            table.put({"id": 1, "city": "Rome", "amount": 1.0})
            table.put({"id": 2, "city": "Oslo", "amount": 2.0})
            table.flush()
            table.put({"id": 2, "city": "Bern", "amount": 20.0})
            table.flush()
        lake.create_table("shop.items", COLUMNS, primary_key="id").close()
    ns.attach(spark, folder, "lake")
    yield folder
    spark.sql("use spark_catalog.default")


def found(spark: SparkSession, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(text).collect()]


def test_tables_are_listed_described_and_used(spark: SparkSession, place: Path) -> None:
    assert place.exists()
    assert found(spark, "show namespaces in lake") == [("empty",), ("shop",)]
    tables = [("shop", "items", False), ("shop", "orders", False)]
    assert found(spark, "show tables in lake.shop") == tables
    described = [("id", "bigint"), ("city", "string"), ("amount", "double")]
    assert [row[:2] for row in found(spark, "describe lake.shop.orders")] == described
    spark.sql("use lake.shop")
    assert found(spark, "show tables") == tables
    assert found(spark, "select count(*) from orders") == [(2,)]
    assert [tuple(row) for row in ns.sql(spark, "select count(*) from shop.orders").collect()] == [
        (2,)
    ]
    spark.sql("use spark_catalog.default")


def test_a_file_is_read_by_its_path_after_use(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    assert place.exists()
    spark.range(3).write.parquet(str(tmp_path / "numbers"))
    spark.sql("use lake")
    try:
        assert found(spark, f"select count(*) from parquet.`{tmp_path}/numbers`") == [(3,)]
    finally:
        spark.sql("use spark_catalog.default")


def test_rows_are_joined_with_views_and_old_versions(spark: SparkSession, place: Path) -> None:
    assert place.exists()
    spark.range(2).createOrReplaceTempView("numbers")
    text = """
        select o.id, o.city, old.city, n.id from lake.shop.orders o
        join lake.shop.orders version as of 2 old on old.id = o.id
        left join numbers n on n.id = o.id order by 1
    """
    assert found(spark, text) == [(1, "Rome", "Rome", 1), (2, "Bern", "Oslo", None)]
    then = "select city from lake.shop.orders timestamp as of '2999-01-01' where id = 2"
    assert found(spark, then) == [("Bern",)]
    assert spark.table("lake.shop.orders").count() == 2


def test_the_plan_is_sparks_own_scan_with_its_filters(spark: SparkSession, place: Path) -> None:
    assert place.exists()
    for version in ("", "version as of 2"):
        text = f"explain select sum(amount) from lake.shop.orders {version} where id > 1"
        ((plan,),) = found(spark, text)
        assert "FileScan parquet [id" in plan
        assert "PushedFilters: [IsNotNull(id), GreaterThan(id,1)]" in plan
        assert "city" not in plan.partition("ReadSchema")[2]


def test_rows_are_inserted_as_one_version_with_defaults(
    spark: SparkSession, tmp_path: Path
) -> None:
    with neve.open(tmp_path / "lake") as lake:
        with (
            lake.create_table("shop.orders", COLUMNS, primary_key="id") as table,
            table.evolve() as evolution,
        ):
            evolution.set_default("city", "it's none")
        before = lake.load_table("shop.orders").current().version.number
    ns.attach(spark, tmp_path / "lake", "inserted")

    spark.sql("insert into inserted.shop.orders (amount, id) values (1.5, 1), (2.5, 2)")
    spark.range(3, 4).selectExpr("id", "'Lima' city", "cast(9 as double) amount").writeTo(
        "inserted.shop.orders"
    ).append()

    assert found(spark, "select * from inserted.shop.orders order by id") == [
        (1, "it's none", 1.5),
        (2, "it's none", 2.5),
        (3, "Lima", 9.0),
    ]
    with pytest.raises(IllegalArgumentException, match="AlreadyExists: INSERT of a row whose key"):
        spark.sql("insert into inserted.shop.orders values (3, 'x', 1), (4, 'y', 2)")
    with neve.open(tmp_path / "lake", read_only=True) as lake:
        assert lake.load_table("shop.orders").current().version.number == before + 2
        assert lake.load_table("shop.orders").current().version.row_count == 3


@pytest.mark.parametrize(
    "text",
    [
        "update lake.shop.orders set amount = 0",
        "delete from lake.shop.orders where id = 1",
        (
            "merge into lake.shop.orders o using (select 1L as id) s on o.id = s.id "
            "when matched then delete"
        ),
        "insert overwrite lake.shop.orders select * from lake.shop.orders",
        "create table lake.shop.made (id bigint) using neve",
        "create table lake.shop.made using neve as select 1 as id",
        "alter table lake.shop.orders add column x int",
    ],
)
def test_other_changes_are_refused_at_once_with_what_to_use(
    spark: SparkSession, place: Path, text: str
) -> None:
    with pytest.raises(UnsupportedOperationException, match=r"Use neve\.spark\.sql\(session, text"):
        spark.sql(text)

    with neve.open(place, read_only=True) as lake:
        assert lake.list_tables() == ["shop.items", "shop.orders"]


def test_what_does_not_exist_is_said(spark: SparkSession, place: Path) -> None:
    assert place.exists()
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("select * from lake.shop.nothing")
    for name in ("lake.orders", "lake.shop.`a/b`", "lake.`shop.orders`", "lake.shop.`or.ders`"):
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(f"select * from {name}")
        spark.sql(f"drop table if exists {name}")
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        spark.sql("select citi from lake.shop.orders")
    with pytest.raises(IllegalArgumentException, match="NotFound: version 99"):
        spark.sql("select * from lake.shop.orders version as of 99")
    with pytest.raises(IllegalArgumentException, match="is not a version"):
        spark.sql("select * from lake.shop.orders version as of 'last'")
    with pytest.raises(AnalysisException, match="nothing"):
        spark.sql("use lake.nothing")


def test_namespaces_and_tables_are_made_and_dropped(spark: SparkSession, place: Path) -> None:
    spark.sql("create namespace lake.more")
    with neve.open(place) as lake:
        lake.create_table("more.first", COLUMNS, primary_key="id").close()
    spark.sql("alter table lake.more.first rename to more.second")
    assert found(spark, "show tables in lake.more") == [("more", "second", False)]
    spark.sql("drop table lake.more.second")
    spark.sql("drop table if exists lake.more.second")
    spark.sql("drop namespace lake.more")
    assert found(spark, "show namespaces in lake") == [("empty",), ("shop",)]


def test_each_query_sees_what_is_committed_and_a_fresh_lake_what_is_logged(
    spark: SparkSession, tmp_path: Path
) -> None:
    with (
        neve.open(tmp_path / "lake") as lake,
        lake.create_table("shop.orders", COLUMNS, primary_key="id") as table,
    ):
        ns.attach(spark, tmp_path / "lake", "committed")
        ns.attach(spark, tmp_path / "lake", "logged", fresh=True)
        table.put({"id": 1, "city": "Rome", "amount": 1.0})
        assert found(spark, "select count(*) from committed.shop.orders") == [(0,)]
        assert found(spark, "select count(*) from logged.shop.orders") == [(1,)]
        table.flush()
        assert found(spark, "select count(*) from committed.shop.orders") == [(1,)]


def test_a_name_is_attached_again_and_only_in_its_session(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    with neve.open(tmp_path / "other") as lake:
        lake.create_table("there.things", COLUMNS, primary_key="id").close()
    ns.attach(spark, place, "again")
    assert found(spark, "show tables in again.shop")
    ns.attach(spark, tmp_path / "other", "again")
    assert found(spark, "show namespaces in again") == [("there",)]
    other = spark.newSession()
    with pytest.raises(NotFound, match="no lake for"):
        ns.sql(other, "select * from again.there.things")
    ns.attach(other, place, "again")
    assert other.sql("select count(*) from again.shop.orders").collect() == [(2,)]
    assert found(spark, "show namespaces in again") == [("there",)]


def test_what_cannot_be_attached_is_refused(
    spark: SparkSession, place: Path, tmp_path: Path
) -> None:
    for name in ("spark_catalog", "global_temp", "my lake", "a.b", ""):
        with pytest.raises(InvalidArgument, match="cannot be attached"):
            ns.attach(spark, place, name)
    with pytest.raises(NotFound):
        ns.attach(spark, tmp_path / "nowhere", "nowhere")
    with pytest.raises(InvalidArgument, match="in memory"):
        ns.attach(spark, "memory://lake", "memory")
    spark.conf.set("spark.sql.catalog.theirs", "com.example.Catalog")
    with pytest.raises(AlreadyExists, match="another catalog 'theirs'"):
        ns.attach(spark, place, "theirs")
    ns.attach(spark, place, "guarded", read_only=True)
    with pytest.raises(IllegalArgumentException, match="reading only"):
        spark.sql("insert into guarded.shop.orders values (9, 'x', 1)")
    with pytest.raises(IllegalArgumentException, match="reading only"):
        spark.sql("drop table guarded.shop.orders")
