"""`ns.read`: the same rows as `table.scan`, from a plan of Spark's own."""

import datetime as dt
import importlib
import uuid
from collections.abc import Iterator
from decimal import Decimal
from functools import reduce
from operator import and_
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import neve
from neve import spark as ns
from neve.spark.reading import HELD_READS
from tests.spark.spark_rows import Row, rows_of

QUIET: Final = neve.TableOptions(background=False)
ID: Final = pa.field("id", pa.int64(), nullable=False)

LOCAL: Final = dt.datetime(2024, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC).replace(tzinfo=None)
# By name: mypy takes the signatures of its classes for others than they have.
iceberg: Any = importlib.import_module("pyiceberg.expressions")
FILTERS: Final[tuple[neve.Filter, ...]] = (
    "amount > 5",
    "amount >= 5 or amount is null",
    "amount <= 5",
    "amount != 5",
    "not (amount < 5)",
    "amount is nan",
    "amount is not nan",
    "amount in (1.0, 5.0)",
    "amount not in (1.0, 5.0)",
    "city like 'O%' and amount > 0",
    "city not like 'O%'",
    "city like '%o' and amount > '0.5'",
    "not (city like '_om%')",
    r"city like 'O\slo' or city like '%\%%'",
    iceberg.And(iceberg.StartsWith("city", "O"), iceberg.NotNaN("amount")),
    "city is null",
    "true",
    "false",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[neve.Catalog]:
    # Characters that mean something in a pattern, in a URL, and to Spark in a directory's name.
    with neve.open(tmp_path / "day=1 [a] %20") as opened:
        yield opened


def orders_in(lake: neve.Catalog, *, partition_by: tuple[str, ...] = ()) -> neve.Table:
    return lake.create_table(
        "shop.orders",
        with_columns(city=pa.string(), amount=pa.float64()),
        ["id"],
        partition_by=partition_by,
        options=QUIET,
    )


def with_columns(**columns: pa.DataType) -> pa.Schema:
    fields: list[pa.Field[pa.DataType]] = [pa.field(*each) for each in columns.items()]
    return pa.schema([ID, *fields])


def rows_both_ways(spark: SparkSession, lake: neve.Catalog, name: str, **asked: Any) -> list[Row]:  # noqa: ANN401 - of `ns.read`
    """Read a table through Spark's own scan and through Python; both return the same."""
    frames = [ns.read(spark, lake.location, name, native=each, **asked) for each in (True, False)]
    native, python = map(rows_of, frames)
    assert frames[0].schema.simpleString() == frames[1].schema.simpleString()
    assert native == python
    return native


def some(first: int, end: int, *, city: str = "Oslo") -> list[dict[str, object]]:
    return [{"id": n, "city": f"{city} {n % 5}", "amount": n / 4} for n in range(first, end)]


def test_a_table_without_rows_gives_none(spark: SparkSession, lake: neve.Catalog) -> None:
    orders_in(lake)

    found = ns.read(spark, lake.location, "shop.orders")

    assert found.columns == ["id", "city", "amount"]
    assert found.count() == 0


def test_updates_deletes_and_compaction_read_as_the_scan_does(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 200))
    orders.flush()
    orders.upsert(some(100, 300, city="Rome"))
    orders.delete_many(list(range(0, 250, 7)))
    orders.flush()
    marked = ns.read(spark, lake.location, "shop.orders")
    rows = rows_of(orders.scan().to_arrow())

    assert rows_of(marked) == rows
    assert marked.count() == len(rows)

    orders.compact(full=True)
    assert rows_of(ns.read(spark, lake.location, "shop.orders")) == rows
    # The first frame still shows what it was made from.
    assert rows_of(marked) == rows


def test_many_files_are_read_once_each(spark: SparkSession, lake: neve.Catalog) -> None:
    schema = {"id": "long!", "part": "long!"}
    table = lake.create_table("a.b", schema, ["id"], partition_by=["part"], options=QUIET)
    table.upsert([{"id": key, "part": key % 40} for key in range(80)])
    table.flush()

    found = ns.read(spark, lake.location, "a.b")

    assert len(found.inputFiles()) == 40
    assert sorted(row["id"] for row in found.collect()) == [*range(80)]


def test_marked_files_of_one_size_are_told_apart(spark: SparkSession, lake: neve.Catalog) -> None:
    plain = {"write.parquet.compression-codec": "none"}
    orders = lake.create_table(
        "shop.orders",
        with_columns(city=pa.string(), amount=pa.float64()),
        ["id"],
        properties=plain,
        options=QUIET,
    )
    for first in range(10_000, 16_000, 1_000):
        orders.upsert([{"id": first + n, "city": "Oslo", "amount": 0.0} for n in range(64)])
        orders.flush()
    sizes = set(orders.files()["file_size_bytes"].to_pylist())
    orders.delete_many([10_003, 11_005, 12_063, 14_000, 15_031])
    orders.flush()

    found = ns.read(spark, lake.location, "shop.orders")

    assert len(sizes) < 5
    assert rows_of(found) == rows_of(orders.scan().to_arrow())


def test_columns_are_found_by_their_id_whatever_they_are_called(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    table = lake.create_table(
        "a.b",
        with_columns(
            n=pa.int32(),
            f=pa.float32(),
            price=pa.decimal128(9, 2),
            inner=pa.struct([("x", pa.int32()), ("y", pa.string())]),
            gone=pa.string(),
        ),
        ["id"],
        options=QUIET,
    )
    old = {"n": 5, "f": 0.5, "price": Decimal("1.25"), "inner": {"x": 1, "y": "p"}, "gone": "g"}
    table.upsert([{"id": 1, **old}, {"id": 2, **old}])
    table.flush()
    with table.evolve() as e:
        e.rename_column("n", "number")
        e.widen_column("number", "long")
        e.widen_column("f", "double")
        e.widen_column("price", "decimal(20,2)")
        e.rename_column("inner.x", "xx")
        e.widen_column("inner.xx", "long")
        e.add_column("inner.new", "string")
        e.drop_column("gone")
        e.add_column("gone", "int")
        e.add_column("count", "int", default=42)
        e.add_column("day", "date", default=dt.date(2020, 1, 2))
        e.add_column("at", "timestamptz", default=dt.datetime(2020, 1, 2, tzinfo=dt.UTC))
        e.add_column("local", "timestamp", default=LOCAL)
        e.add_column("clock", "time", default=dt.time(1, 2, 3, 4))
        e.add_column("rate", "float", default=0.1)
        e.add_column("cost", "decimal(9,2)", default=Decimal("7.25"))
        e.add_column("text", "string", default="it's")
        e.add_column("raw", "binary", default=b"\x00ab")
        e.add_column("ref", "uuid", default=uuid.UUID(int=3))
        e.add_column("yes", "boolean", default=True)
    new = {"number": 2**40, "f": 0.1, "price": Decimal("12345678901.25"), "gone": 7, "count": None}
    table.upsert([{"id": 2, **new, "inner": {"xx": 2**40, "y": "q", "new": "w"}}])
    table.upsert([{"id": 3, **new, "inner": None}])
    table.flush()

    found = ns.read(spark, lake.location, "a.b")

    assert rows_both_ways(spark, lake, "a.b") == rows_of(table.scan().to_arrow())
    # Spark skips row groups by what it is asked for after the read.
    asked = {
        "count = 42": [1],
        "count is null": [2, 3],
        "number = 5": [1],
        "f = 0.5": [1],
        "price = 1.25": [1],
        "gone is null": [1],
        "inner.xx = 1": [1],
        "inner.new is null": [1, 3],
        "inner.y = 'p'": [1],
        "yes": [1, 2, 3],
    }
    chosen = {
        condition: sorted(row.id for row in found.where(condition).select("id").collect())
        for condition in asked
    }
    assert chosen == asked
    # Only a column that no file of the first flush has.
    only = ns.read(spark, lake.location, "a.b", columns=["count"], filter="id == 1")
    assert [row["count"] for row in only.collect()] == [42]


def test_columns_that_swapped_names_are_not_mixed_up(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("a", pa.int32()),
            pa.field("b", pa.int32()),
        ]
    )
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    table.upsert([{"id": n, "a": n, "b": -n} for n in range(10)])
    table.flush()
    with table.evolve() as e:
        e.rename_column("a", "c")
        e.rename_column("b", "a")
        e.rename_column("c", "b")

    found = ns.read(spark, lake.location, "a.b")

    assert [tuple(row) for row in found.where("a = -3").collect()] == [(3, 3, -3)]
    assert rows_of(found) == rows_of(table.scan().to_arrow())


def test_every_type_that_spark_has_comes_through(spark: SparkSession, lake: neve.Catalog) -> None:
    ref = uuid.UUID("0123456789abcdef0123456789abcdef")
    values: dict[str, tuple[pa.DataType, object]] = {
        "yes": (pa.bool_(), True),
        "i": (pa.int32(), -7),
        "f": (pa.float32(), 1.5),
        "d": (pa.float64(), -2.5),
        "small": (pa.decimal128(9, 2), Decimal("-1.25")),
        "large": (pa.decimal128(38, 4), Decimal("12345678901234567890.1234")),
        "day": (pa.date32(), dt.date(1969, 12, 31)),
        "clock": (pa.time64("us"), dt.time(1, 2, 3, 4)),
        "local": (pa.timestamp("us"), LOCAL),
        "at": (pa.timestamp("us", tz="UTC"), LOCAL.replace(tzinfo=dt.UTC)),
        "text": (pa.string(), "ä\n'"),
        "raw": (pa.binary(), b"\x00\xff"),
        "fixed": (pa.binary(4), b"abcd"),
        "ref": (pa.uuid(), ref),
        "numbers": (pa.list_(pa.int32()), [1, None, 2]),
        "inner": (pa.struct([("u", pa.uuid()), ("s", pa.string())]), {"u": ref, "s": "x"}),
        "refs": (pa.list_(pa.struct([("u", pa.uuid())])), [{"u": ref}, None, {"u": None}]),
        "by_name": (pa.map_(pa.string(), pa.uuid()), [("k", ref), ("n", None)]),
        "by_ref": (pa.map_(pa.uuid(), pa.time64("us")), [(ref, dt.time(5, 6))]),
    }
    schema = with_columns(**{name: arrow for name, (arrow, _) in values.items()})
    table = lake.create_table("all.types", schema, ["id"], options=QUIET)
    full = {name: value for name, (_, value) in values.items()}
    table.upsert([{"id": 1, **full}, {"id": 2, **dict.fromkeys(full)}])
    table.flush()
    table.upsert([{"id": 3, **full}, {"id": 4, **dict.fromkeys(full)}])

    found = rows_both_ways(spark, lake, "all.types", fresh=True)

    assert found == rows_of(table.scan().to_arrow())
    # One that is wrongly compared chooses nothing.
    nested = {"numbers", "inner", "refs", "by_name", "by_ref"}
    same = reduce(and_, (neve.col(name) == full[name] for name in values.keys() - nested))
    chosen = rows_both_ways(spark, lake, "all.types", columns=["id"], filter=same, fresh=True)
    assert chosen == [{"id": 1}, {"id": 3}]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_nanoseconds_are_refused_and_may_be_left_out(
    spark: SparkSession, lake: neve.Catalog, zone: str | None
) -> None:
    arrow = pa.timestamp("ns", tz=zone)
    schema = with_columns(at=arrow)
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    table.upsert([{"id": 1, "at": None}])
    table.flush()

    with pytest.raises(neve.SchemaMismatch, match="no type for column 'at'"):
        ns.read(spark, lake.location, "a.b")
    assert rows_of(ns.read(spark, lake.location, "a.b", columns=["id"])) == [{"id": 1}]


@pytest.mark.parametrize(
    ("keys", "arrow"),
    [
        (["a", "b", "é"], pa.string()),
        ([b"\x00", b"\x01"], pa.binary()),
        ([dt.date(2024, 1, day) for day in (1, 2, 3)], pa.date32()),
        ([Decimal("1.5"), Decimal("-2.5")], pa.decimal128(9, 1)),
        ([uuid.UUID(int=n) for n in (1, 2, 3)], pa.uuid()),
        ([1.5, -0.5], pa.float64()),
    ],
    ids=["string", "binary", "date", "decimal", "uuid", "double"],
)
def test_tables_of_every_kind_of_key_read_fresh(
    spark: SparkSession, lake: neve.Catalog, keys: list[object], arrow: pa.DataType
) -> None:
    schema = pa.schema([pa.field("id", arrow, nullable=False), pa.field("n", pa.int32())])
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    table.upsert([{"id": key, "n": 1} for key in keys])
    table.flush()
    table.put({"id": keys[0], "n": 2})
    table.delete(keys[-1])

    found = rows_both_ways(spark, lake, "a.b", fresh=True)

    assert found == rows_of(table.scan().to_arrow())


def test_a_filter_leaves_files_out_of_the_plan(spark: SparkSession, lake: neve.Catalog) -> None:
    orders = orders_in(lake, partition_by=("city",))
    for first, city in ((0, "Oslo"), (100, "Rome"), (200, "Bonn")):
        orders.upsert([{"id": first + n, "city": city, "amount": 1.0} for n in range(10)])
        orders.flush()
    orders.upsert([{"id": 1_000 + n, "city": "Oslo", "amount": 2.0} for n in range(10)])
    orders.flush()

    everything = ns.read(spark, lake.location, "shop.orders")
    by_partition = ns.read(spark, lake.location, "shop.orders", filter="city == 'Oslo'")
    by_key = ns.read(spark, lake.location, "shop.orders", filter=neve.col("id") >= 1_000)
    by_bounds = ns.read(spark, lake.location, "shop.orders", filter="amount > 1.5", columns=["id"])
    nothing = ns.read(spark, lake.location, "shop.orders", filter="amount > 3")

    assert len(everything.inputFiles()) == 4
    assert len(by_partition.inputFiles()) == 2
    assert len(by_key.inputFiles()) == len(by_bounds.inputFiles()) == 1
    assert len(nothing.inputFiles()) == 0
    assert rows_of(by_partition) == rows_of(orders.scan("city == 'Oslo'").to_arrow())
    assert by_bounds.columns == ["id"]
    assert by_bounds.count() == 10


def test_a_filter_chooses_the_rows_that_a_scan_chooses(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    orders = orders_in(lake)
    amounts = [float("nan"), None, 5.0, 1.0, 9.0, -1.0, float("inf")]
    cities = ["Oslo", "Rome", None]
    orders.upsert(
        [
            {"id": n, "city": cities[n % 3], "amount": amounts[n // 3]}
            for n in range(len(amounts) * len(cities))
        ]
    )
    orders.flush()

    for asked in FILTERS:
        found = ns.read(spark, lake.location, "shop.orders", filter=asked, columns=["id"])
        assert rows_of(found) == rows_of(orders.scan(asked, columns=["id"]).to_arrow()), asked
    assert rows_both_ways(spark, lake, "shop.orders", filter=iceberg.NotNaN("amount"))


def test_a_filter_looks_inside_of_a_struct(spark: SparkSession, lake: neve.Catalog) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    table = lake.create_table("a.b", with_columns(inner=inner), ["id"], options=QUIET)
    found = [{"x": 1, "y": "p"}, {"x": 2, "y": None}, None, {"x": None, "y": "q"}]
    table.upsert([{"id": n, "inner": value} for n, value in enumerate(found)])
    table.flush()
    with table.evolve() as e:
        e.rename_column("inner.x", "xx")
        e.widen_column("inner.xx", "long")

    for asked, due in {"inner.xx >= 1": [0, 1], "inner.y is null": [1, 2]}.items():
        rows = ns.read(spark, lake.location, "a.b", filter=asked).collect()
        assert sorted(row.id for row in rows) == due, asked


def test_fields_inside_of_structs_are_chosen_as_the_scan_chooses_them(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    deep = pa.struct([("u", pa.uuid()), ("gone", pa.string())])
    inner = pa.struct([("x", pa.int32()), ("y", pa.string()), ("deep", deep)])
    table = lake.create_table("a.b", with_columns(inner=inner, n=pa.int32()), ["id"], options=QUIET)
    ref = uuid.UUID("0123456789abcdef0123456789abcdef")
    values: list[object] = [
        {"x": 1, "y": "p", "deep": {"u": ref, "gone": "g"}},
        {"x": 2, "y": None, "deep": None},
        None,
        {"x": None, "y": "q", "deep": {"u": None, "gone": None}},
    ]
    table.upsert([{"id": n, "inner": value, "n": n} for n, value in enumerate(values)])
    table.flush()
    with table.evolve() as e:
        e.rename_column("inner.x", "xx")
        e.widen_column("inner.xx", "long")
        e.add_column("inner.new", "string")
    table.upsert([{"id": 9, "inner": {"xx": 1 << 40, "new": "n"}, "n": 9}])

    for columns in (
        ["id", "inner.xx"],
        ["n", "inner.deep.u", "id", "inner.new"],
        ["inner.deep", "inner.xx", "id"],
        ["id", "inner.y", "inner.xx", "inner.new", "inner.deep"],
    ):
        for asked in (None, "inner.y = 'p' or inner.new is not null"):
            found = ns.read(spark, lake.location, "a.b", columns=columns, filter=asked, fresh=True)
            due = table.scan(asked, columns=columns).to_arrow()
            assert rows_of(found) == rows_of(due), (columns, asked)
            assert found.columns == due.column_names
    rows_both_ways(spark, lake, "a.b", columns=columns, filter=asked, fresh=True)


def test_a_field_that_no_struct_has_is_refused(spark: SparkSession, lake: neve.Catalog) -> None:
    inner = pa.struct([("x", pa.int32())])
    lake.create_table("a.b", with_columns(inner=inner), ["id"], options=QUIET)

    with pytest.raises(neve.NotFound, match=r"inner\.z"):
        ns.read(spark, lake.location, "a.b", columns=["inner.z"])
    with pytest.raises(neve.InvalidArgument, match="twice"):
        ns.read(spark, lake.location, "a.b", columns=["inner", "inner.x"])


def test_old_versions_are_read_by_number_time_and_tag(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 10))
    first = orders.flush()
    orders.tag("first")
    when = orders.history()["timestamp"].to_pylist()[-1]
    old = rows_of(orders.scan().to_arrow())
    with orders.evolve() as e:
        e.rename_column("city", "town")
    orders.delete_many(list(range(5)))
    orders.flush()

    assert rows_of(ns.read(spark, lake.location, "shop.orders", version=first)) == old
    assert rows_of(ns.read(spark, lake.location, "shop.orders", tag="first")) == old
    assert rows_of(ns.read(spark, lake.location, "shop.orders", timestamp=when)) == old
    assert ns.read(spark, lake.location, "shop.orders").columns == ["id", "town", "amount"]


def test_fresh_rows_of_a_running_writer_are_there_when_asked_for(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 100))
    orders.flush()
    flushed = rows_of(orders.scan().to_arrow())
    orders.upsert(some(90, 120, city="Rome"))
    orders.delete(5)

    assert rows_of(ns.read(spark, lake.location, "shop.orders")) == flushed
    fresh = ns.read(spark, lake.location, "shop.orders", fresh=True)
    assert rows_of(fresh) == rows_of(orders.scan().to_arrow())
    few = ns.read(spark, lake.location, "shop.orders", fresh=True, filter="id in (5, 6, 95)")
    assert rows_of(few) == rows_of(orders.scan("id in (5, 6, 95)").to_arrow())


def test_a_view_answers_sql_and_moves_on_when_made_again(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 10))
    orders.flush()
    ns.view(spark, lake.location, "shop.orders")
    count = "select count(*) as n from shop_orders where id >= 5"

    before = spark.sql(count).collect()[0].n
    orders.upsert(some(10, 20))
    orders.flush()
    unmoved = spark.sql(count).collect()[0].n
    ns.view(spark, lake.location, "shop.orders")

    assert (before, unmoved, spark.sql(count).collect()[0].n) == (5, 5, 15)


def test_files_stay_while_the_frame_is_alive(spark: SparkSession, lake: neve.Catalog) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 50))
    orders.flush()
    frame = ns.read(spark, lake.location, "shop.orders")
    rows = rows_of(orders.scan().to_arrow())
    held = HELD_READS.count
    orders.compact(full=True)
    orders.upsert(some(50, 60))
    orders.compact(full=True)

    orders.expire(keep_last=1)
    orders.collect_garbage(dry_run=False)
    HELD_READS.renew_once()

    assert rows_of(frame) == rows
    del frame
    assert HELD_READS.count == held - 1


def test_what_is_not_there_is_told_before_a_job_starts(
    spark: SparkSession, lake: neve.Catalog, tmp_path: Path
) -> None:
    orders = orders_in(lake)
    orders.upsert(some(0, 10))
    old = orders.flush()
    orders.upsert(some(0, 5))
    orders.flush()
    orders.expire(keep_last=1)

    with pytest.raises(neve.NotFound, match=r"shop\.order"):
        ns.read(spark, lake.location, "shop.order")
    with pytest.raises(neve.NotFound):
        ns.read(spark, tmp_path / "nowhere", "shop.orders")
    with pytest.raises(neve.NotFound):
        ns.read(spark, lake.location, "shop.orders", version=old)
    with pytest.raises(neve.NotFound, match="amont"):
        ns.read(spark, lake.location, "shop.orders", columns=["amont"])
    with pytest.raises(neve.NotFound, match="amont"):
        ns.read(spark, lake.location, "shop.orders", filter="amont > 5")
    with pytest.raises(neve.InvalidArgument, match="no fresh rows"):
        ns.read(spark, lake.location, "shop.orders", version=old, fresh=True)
    with pytest.raises(neve.InvalidArgument, match="Arrow expression"):
        ns.read(spark, lake.location, "shop.orders", filter=pc.field("id") > 5)
    with pytest.raises(neve.InvalidArgument, match="in memory"):
        ns.read(spark, "memory://lake", "shop.orders")


def test_names_that_spark_cannot_tell_apart_are_refused(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    schema = with_columns(ID=pa.string())
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    table.upsert([{"id": 1, "ID": "x"}])
    table.flush()

    with pytest.raises(neve.SchemaMismatch, match="cannot distinguish column 'ID' from 'id'"):
        ns.read(spark, lake.location, "a.b")


def test_names_with_dots_and_the_name_of_sparks_own_column_are_taken_as_they_are(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    schema = with_columns(**{"a b`": pa.int32(), "_metadata": pa.int32()})
    table = lake.create_table("a.b", schema, ["id"], options=QUIET)
    table.upsert([{"id": n, "a b`": n, "_metadata": -n} for n in range(5)])
    table.flush()
    table.delete(3)
    table.flush()

    found = ns.read(spark, lake.location, "a.b")

    assert rows_of(found) == rows_of(table.scan().to_arrow())


def test_a_random_history_reads_as_the_scan_at_every_step(
    spark: SparkSession, lake: neve.Catalog
) -> None:
    random = Random(7)
    orders = orders_in(lake, partition_by=("bucket(2, id)",))
    columns = ["city", "amount"]

    for step in range(8):
        ids = random.sample(range(400), 60)
        orders.upsert(
            [{"id": n, columns[0]: f"c{step}", columns[1]: random.random()} for n in ids[:40]]
        )
        orders.delete_many(ids[40:])
        if step % 3 == 2:
            with orders.evolve() as e:
                e.rename_column(columns[0], f"city{step}")
                e.add_column(f"new{step}", "int", default=step)
            columns[0] = f"city{step}"
        if step == 5:
            orders.compact()
        if step % 2:
            orders.flush()

        if step == 7:
            rows_both_ways(spark, lake, "shop.orders")
            rows_both_ways(spark, lake, "shop.orders", fresh=True)
        found = ns.read(spark, lake.location, "shop.orders", fresh=True)
        assert rows_of(found) == rows_of(orders.scan().to_arrow()), step
