"""`spark.read.format("neve")`: pinned at load, files chosen by filters, rows of the scan."""

import datetime as dt
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import datasource as spark_filters

import neve
from neve.spark.filters import pushed_predicate
from neve.spark.source import NeveSource
from neve.spark.source_reader import PiecePartition, SourceReader
from tests.spark.spark_rows import rows_of

QUIET: Final = neve.TableOptions(background=False)
ID: Final = pa.field("id", pa.int64(), nullable=False)
NAN: Final = float("nan")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    with neve.open(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def orders(lake: neve.Catalog) -> neve.Table:
    fields: list[pa.Field[pa.DataType]] = [
        pa.field("city", pa.string()),
        pa.field("amount", pa.float64()),
    ]
    schema = pa.schema([ID, *fields])
    table = lake.create_table("shop.orders", schema, ["id"], options=QUIET)
    for first in (0, 100, 200):
        rows = [{"id": first + n, "city": f"c{n % 3}", "amount": n / 4} for n in range(20)]
        table.upsert(rows)
        table.flush()
    table.delete_many([3, 105])
    table.flush()
    return table


def reading(spark: SparkSession, **options: object) -> DataFrameReader:
    reader = spark.read.format("neve").option("table", "shop.orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader


CREATED: Final = {
    "without columns": "create table {0} using neve options (path '{1}', table 'shop.orders')",
    "with a location": "create table {0} using neve options (table 'shop.orders') location '{1}'",
    "without options": "create table {0} using neve",
    "of a query": "create table {0} using neve options (path '{1}', table 'shop.orders') "
    "as select 1L as id",
}


@pytest.mark.parametrize("statement", CREATED.values(), ids=CREATED)
def test_a_table_in_the_catalog_of_spark_is_refused_at_once(
    spark: SparkSession, lake: neve.Catalog, orders: neve.Table, statement: str
) -> None:
    before = orders.scan().count()

    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql(statement.format("made", lake.location))

    assert not spark.catalog.tableExists("made")
    assert orders.refresh().scan().count() == before


def test_a_table_that_spark_made_without_asking_is_refused_with_what_to_write(
    spark: SparkSession, orders: neve.Table
) -> None:
    # A statement with columns asks no source for anything.
    spark.sql("create table made (id bigint) using neve")
    try:
        for statement in ("select * from made", "insert into made values (1)"):
            with pytest.raises(AnalysisException, match="drop it and write CREATE TEMPORARY VIEW"):
                spark.sql(statement).collect()
    finally:
        spark.sql("drop table made")
    assert orders.refresh().scan().count() == 58


def test_a_temporary_view_is_the_way_in_for_sql(
    spark: SparkSession, lake: neve.Catalog, orders: neve.Table
) -> None:
    spark.sql(
        f"create or replace temporary view orders_v using neve "
        f"options (path '{lake.location}', table 'shop.orders')"
    )

    found = spark.sql("select count(*) from orders_v where city like '%1'").collect()

    assert found[0][0] == orders.scan("city like '%1'").count() > 0


def test_rows_and_types_are_those_of_the_scan(spark: SparkSession, lake: neve.Catalog) -> None:
    ref = uuid.UUID("0123456789abcdef0123456789abcdef")
    values: dict[str, tuple[pa.DataType, object]] = {
        "price": (pa.decimal128(9, 2), Decimal("-1.25")),
        "day": (pa.date32(), dt.date(1969, 12, 31)),
        "clock": (pa.time64("us"), dt.time(1, 2, 3, 4)),
        "at": (pa.timestamp("us", tz="UTC"), dt.datetime(2024, 1, 2, tzinfo=dt.UTC)),
        "fixed": (pa.binary(4), b"abcd"),
        "ref": (pa.uuid(), ref),
        "refs": (pa.list_(pa.struct([("u", pa.uuid())])), [{"u": ref}, None, {"u": None}]),
        "by_ref": (pa.map_(pa.uuid(), pa.time64("us")), [(ref, dt.time(5, 6))]),
        "inner": (pa.struct([("u", pa.uuid()), ("s", pa.string())]), {"u": ref, "s": "x"}),
    }
    fields = [pa.field(name, arrow) for name, (arrow, _) in values.items()]
    table = lake.create_table("shop.orders", pa.schema([ID, *fields]), ["id"], options=QUIET)
    full = {name: value for name, (_, value) in values.items()}
    table.upsert([{"id": 1, **full}, {"id": 2, **dict.fromkeys(full)}, {"id": 3, **full}])
    table.flush()
    spark.conf.set("spark.sql.timeType.enabled", "true")

    found = reading(spark).load(lake.location)

    assert rows_of(found) == rows_of(table.scan().to_arrow())


def test_a_read_stays_with_the_version_it_was_loaded_at(
    spark: SparkSession, orders: neve.Table, lake: neve.Catalog
) -> None:
    before = rows_of(orders.scan().to_arrow())
    found = reading(spark).load(lake.location)
    first = found.count()
    orders.delete_many(list(range(10)))
    orders.flush()

    assert (first, found.count()) == (58, 58)
    assert rows_of(found) == before
    assert reading(spark).load(lake.location).count() == 49


def test_options_choose_version_columns_and_rows(
    spark: SparkSession, orders: neve.Table, lake: neve.Catalog
) -> None:
    orders.tag("two", 3)

    old = reading(spark, version=2).load(lake.location)
    tagged = reading(spark, tag="two", columns="city, id").load(lake.location)
    some = reading(spark, filter="id < 5", columns="id").load(lake.location)

    assert old.count() == 20
    assert tagged.columns == ["city", "id"]
    assert tagged.count() == 40
    assert sorted(row.id for row in some.collect()) == [0, 1, 2, 4]


def test_a_dotted_column_gives_a_field_of_a_struct(spark: SparkSession, lake: neve.Catalog) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    fields: list[pa.Field[pa.DataType]] = [ID, pa.field("inner", inner)]
    table = lake.create_table("shop.orders", pa.schema(fields), ["id"], options=QUIET)
    table.upsert([{"id": 1, "inner": {"x": 1, "y": "p"}}, {"id": 2, "inner": None}])
    table.flush()
    due = rows_of(table.scan(columns=["inner.y", "id"]).to_arrow())

    found = reading(spark, columns="inner.y, id").load(lake.location)
    feed = reading(spark, columns="inner.y, id", since=0).load(lake.location)

    assert rows_of(found) == due == [{"inner": {"y": "p"}, "id": 1}, {"inner": None, "id": 2}]
    assert rows_of(feed.select("inner", "id")) == due
    assert found.where("inner.y = 'p'").count() == 1


def test_a_view_answers_sql(spark: SparkSession, orders: neve.Table, lake: neve.Catalog) -> None:
    spark.sql(
        "create or replace temporary view sold using neve "
        f"options (path '{lake.location}', table 'shop.orders')"
    )

    found = spark.sql("select sum(amount) as total from sold where city = 'c1' and id >= 100")

    rows = orders.scan("city == 'c1' and id >= 100").to_arrow()
    assert found.collect()[0].total == pc.sum(rows["amount"]).as_py()


def test_filters_leave_files_out(orders: neve.Table, lake: neve.Catalog) -> None:
    def planned(*asked: spark_filters.Filter) -> int:
        source = NeveSource({"path": lake.location, "table": "shop.orders"})
        reader = source.reader(source.schema())
        assert isinstance(reader, SourceReader)
        assert list(reader.pushFilters(list(asked))) == list(asked)
        found = [each for each in reader.partitions() if isinstance(each, PiecePartition)]
        return sum(len(each.piece.files) for each in found)

    assert orders.files().num_rows == 3
    assert planned() == 3
    assert planned(spark_filters.GreaterThan(("id",), 150)) == 1
    assert planned(spark_filters.In(("id",), (5, 105))) == 2
    assert planned(spark_filters.EqualTo(("city",), "nowhere")) == 0
    assert planned(spark_filters.StringContains(("city",), "nowhere")) == 3


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (spark_filters.GreaterThan(("x",), 5.0), {"big", "nan"}),
        (spark_filters.GreaterThanOrEqual(("x",), 5.0), {"big", "five", "nan"}),
        (spark_filters.LessThan(("x",), 5.0), {"small"}),
        (spark_filters.LessThanOrEqual(("x",), 5.0), {"small", "five"}),
        (spark_filters.Not(spark_filters.EqualTo(("x",), 5.0)), {"big", "small", "nan"}),
        (spark_filters.Not(spark_filters.In(("x",), (5.0, 1.0))), {"big", "nan"}),
        (spark_filters.EqualNullSafe(("x",), None), {"none"}),
        (spark_filters.IsNotNull(("x",)), {"big", "small", "five", "nan"}),
        (spark_filters.StringEndsWith(("id",), "l"), {"small"}),
        (spark_filters.StringContains(("id",), "i"), {"big", "five"}),
        (spark_filters.StringContains(("id",), "%"), set()),
    ],
    ids=repr,
)
def test_a_pushed_filter_keeps_every_row_that_spark_would(
    lake: neve.Catalog, asked: spark_filters.Filter, kept: set[str]
) -> None:
    fields: list[pa.Field[pa.DataType]] = [pa.field("x", pa.float64())]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), *fields])
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    values = {"big": 9.0, "small": 1.0, "five": 5.0, "nan": NAN, "none": None}
    table.upsert([{"id": name, "x": value} for name, value in values.items()])

    predicate = pushed_predicate(asked, table.schema)

    assert predicate is not None
    assert {row["id"] for row in table.scan(predicate).to_arrow().to_pylist()} == kept


@pytest.mark.parametrize(
    "asked",
    [
        spark_filters.EqualTo(("x",), NAN),
        spark_filters.Not(spark_filters.In(("x",), (NAN,))),
        spark_filters.EqualTo(("x",), "text"),
        spark_filters.EqualTo(("x", "inner"), 1.0),
        spark_filters.LessThan(("ref",), "0123456789abcdef0123456789abcdef"),
        spark_filters.StringEndsWith(("ref",), "x"),
        spark_filters.Not(spark_filters.StringContains(("city",), "x")),
    ],
    ids=repr,
)
def test_what_neve_would_understand_otherwise_is_left_to_spark(
    lake: neve.Catalog, asked: spark_filters.Filter
) -> None:
    fields = [
        pa.field("x", pa.float64()),
        pa.field("ref", pa.uuid()),
        pa.field("city", pa.string()),
    ]
    table = lake.create_table("a.b", pa.schema([ID, *fields]), ["id"], options=QUIET)

    assert pushed_predicate(asked, table.schema) is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "shop.order"}, "NotFound"),
        ({"version": "99"}, "NotFound"),
        ({"version": "new"}, "InvalidArgument"),
        ({"columns": "amont"}, "NotFound"),
        ({"filter": "amont > 5"}, "NotFound"),
        ({"version": "2", "tag": "x"}, "InvalidArgument"),
        ({"path": None}, "InvalidArgument"),
        ({"versoin": "2"}, "InvalidArgument"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("orders")
def test_what_is_not_there_is_told_at_load(
    lake: neve.Catalog, options: dict[str, str | None], told: str
) -> None:
    asked = {"path": lake.location, "table": "shop.orders", **options}
    source = NeveSource({name: value for name, value in asked.items() if value is not None})

    with pytest.raises(neve.NeveError) as raised:
        source.schema()

    assert type(raised.value).__name__ == told


def test_spark_tells_of_it_before_a_job_starts(
    spark: SparkSession, orders: neve.Table, lake: neve.Catalog
) -> None:
    def load() -> DataFrame:
        return reading(spark, version=2).load(lake.location)

    load()
    orders.expire(keep_last=1)

    with pytest.raises(AnalysisException, match="NotFound"):
        load()
