"""`ns.sql` does what the embedded engine does with the same statements, through Spark's jobs."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import neve
from neve import spark as ns
from neve.errors import AlreadyExists, InvalidArgument, NeveError, NotFound
from neve.spark import sql_changes, write_plan

TYPES: dict[str, pa.DataType] = {"id": pa.int64(), "city": pa.string(), "amount": pa.float64()}
SCHEMA = pa.schema(TYPES)
ROWS = [(1, "Rome", 1.0), (2, "Oslo", 2.0), (3, "Lima", 3.0), (4, None, 4.0)]
CHANGES = [(2, "Bern", 20.0), (3, "Quito", 30.0), (9, "Cairo", 90.0)]
CHANGED = [
    "insert into lake.shop.orders values (5, 'Kyoto', 5.5), (6, 'in {x}', null)",
    "insert or ignore into lake.shop.orders select * from changes",
    "insert or replace into lake.shop.orders (id, city) values (1, 'Milan'), (7, 'Turin')",
    (
        "insert into lake.shop.orders values (1, 'x', 9), (8, 'y', 8) "
        "on conflict (id) do update set amount = orders.amount + excluded.amount"
    ),
    (
        "update lake.shop.orders o set amount = o.amount * 2, city = c.city from changes c "
        "where c.id = o.id"
    ),
    "update lake.shop.orders set id = id + 1 where id >= 5",
    "delete from lake.shop.orders where id in (select id from changes where id < 3) or id = 4",
    (
        "merge into lake.shop.orders o using changes c on o.id = c.id "
        "when matched and c.id = 3 then delete "
        "when matched then update set city = c.city, amount = o.amount + c.amount "
        "when not matched then insert (id, city) values (c.id, upper(c.city)) "
        "when not matched by source and o.id = 6 then update set city = 'left' "
        "when not matched by source and o.id > 8 then delete"
    ),
    (
        "merge into lake.shop.orders o using (select * from changes) c on o.city = c.city "
        "when matched then update set amount = 0 when not matched and c.id = 3 then insert *"
    ),
]
MISTAKES = [
    "insert into lake.shop.orders values (1, 'x', 1)",
    "insert into lake.shop.orders values (10, 'x', 1), (10, 'y', 1)",
    "insert into lake.shop.orders (city) values ('x')",
    "insert into lake.shop.orders values (11, 'x')",
    "update lake.shop.orders set id = 2 where id = 1",
    "update lake.shop.orders set citty = 'x'",
    (
        "merge into lake.shop.orders o using changes c on o.amount < c.id "
        "when matched then update set city = c.city"
    ),
    (
        "merge into lake.shop.orders o using changes c on o.id = c.id "
        "when matched then update set id = 5"
    ),
    (
        "merge into lake.shop.orders o using changes c on o.id = c.id + 100 "
        "when not matched then insert (id) values (7)"
    ),
    "delete from lake.shop.ordres",
    "select *\nfrom lake.shop.orders wher id = 1 1",
    "copy lake.shop.orders to 'x'",
]


def arrow(rows: Sequence[tuple[int, str | None, float]]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in rows], schema=SCHEMA
    )


def fill(lake: neve.Lake) -> None:
    with lake.create_table("shop.orders", SCHEMA, primary_key="id") as table:
        table.upsert(arrow(ROWS))
        table.flush()


@pytest.fixture
def place(tmp_path: Path, spark: SparkSession) -> Path:
    """Make a lake that is attached, and the view of changes."""
    with neve.open(tmp_path / "lake") as lake:
        fill(lake)
    ns.attach(spark, tmp_path / "lake", "lake")
    spark.createDataFrame(CHANGES, "id bigint, city string, amount double").createOrReplaceTempView(
        "changes"
    )
    return tmp_path / "lake"


@pytest.fixture
def copy() -> Iterator[Callable[[str], Any]]:
    """Yield what runs a statement on a copy, with the embedded engine."""
    with neve.open("memory://spark-sql-copy") as lake:
        fill(lake)
        yield lambda text: lake.sql(text.replace("lake.shop.", "shop."), changes=arrow(CHANGES))
        lake.drop_table("shop.orders", purge=True)


def rows_of(found: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in found.collect()]


def all_rows(spark: SparkSession) -> list[tuple[Any, ...]]:
    return rows_of(ns.sql(spark, "select * from lake.shop.orders order by id"))


def changes_of(place: Path) -> int:
    """Return how many Versions changed rows: those of compaction only move them."""
    with neve.open(place, read_only=True) as lake:
        found = lake.system_table("__snapshots").to_pylist()
    return sum(row["operation"] != "REPLACE" for row in found)


def version_of(place: Path) -> int:
    with neve.open(place, read_only=True) as lake:
        return lake.load_table("shop.orders").current().version.number


def test_changes_do_what_the_embedded_engine_does_each_as_one_version(
    spark: SparkSession, place: Path, copy: Callable[[str], Any]
) -> None:
    for text in CHANGED:
        before = changes_of(place)

        done = rows_of(ns.sql(spark, text))

        wanted = copy(text)
        assert done == wanted.fetchall(), text
        every = copy("select * from lake.shop.orders order by id").fetchall()
        assert all_rows(spark) == every, text
        assert changes_of(place) == before + (1 if wanted.count else 0), text


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_the_same_error_as_embedded_and_changes_nothing(
    spark: SparkSession, place: Path, copy: Callable[[str], Any], text: str
) -> None:
    before = version_of(place)
    with pytest.raises(NeveError) as theirs:
        copy(text)

    with pytest.raises(type(theirs.value)) as mine:
        ns.sql(spark, text)

    if "\n" not in text:
        assert str(mine.value).replace("lake.shop.", "shop.") == str(theirs.value)
    else:
        assert "\nLINE 2: from lake.shop.orders wher id = 1 1\n" in str(mine.value)
        assert "^" in str(mine.value)
    assert version_of(place) == before


def test_a_query_has_tables_views_old_versions_and_changes(
    spark: SparkSession, place: Path
) -> None:
    old = version_of(place)
    with neve.open(place) as lake, lake.table("shop.orders") as table:
        table.put({"id": 1, "city": "Paris", "amount": 10.0})
        table.flush()

    joined = ns.sql(
        spark,
        "select o.id, lake.shop.orders.city, c.city from lake.shop.orders "
        f"join lake.shop.orders version as of {old} o on o.id = orders.id "
        "left join changes c on c.id = o.id where orders.id <= :most order by 1",
        {"most": 2},
    )

    assert rows_of(joined) == [(1, "Paris", None), (2, "Oslo", "Bern")]
    fed = ns.sql(spark, f"select * from table_changes('lake.shop.orders', {old})")
    assert [(row.id, row.city) for row in fed.collect()] == [(1, "Rome"), (1, "Paris")]
    plan = rows_of(ns.sql(spark, "explain select city from lake.shop.orders where id = ?", [1]))
    assert "FileScan parquet [id" in plan[0][0]
    assert "PushedFilters: [IsNotNull(id), EqualTo(id,1)]" in plan[0][0]


def test_the_name_of_a_table_in_a_literal_is_text(spark: SparkSession, place: Path) -> None:
    assert place.exists()
    text = "select '`lake.shop.orders`' as name from lake.shop.orders where id = 1 -- it's one"
    assert rows_of(ns.sql(spark, text)) == [("`lake.shop.orders`",)]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("select citi from lake.shop.orders", "city"),
        ("select * from lake.shop.order", "shop.orders"),
        ("select * from lakes.shop.orders", "lake"),
        ("select * from change", "changes"),
        ("call compakt('lake.shop.orders')", "compact"),
    ],
)
def test_an_unknown_name_is_answered_with_a_similar_one(
    spark: SparkSession, place: Path, text: str, hint: str
) -> None:
    assert place.exists()
    with pytest.raises(NotFound, match=f"Did you mean '{hint}'"):
        ns.sql(spark, text)


def test_tables_are_made_changed_shown_and_dropped(spark: SparkSession, place: Path) -> None:
    for text in (
        "create namespace lake.made",
        (
            "create table lake.made.things (id bigint, name string default 'none', at timestamp, "
            "primary key (id)) using neve partitioned by (bucket(4, id))"
        ),
        "alter table lake.made.things add columns (size int, colour string)",
        "alter table lake.made.things rename column name to title",
        (
            "create table if not exists lake.made.copied primary key (id) as "
            "select id, city from lake.shop.orders"
        ),
    ):
        assert rows_of(ns.sql(spark, text)) == []

    assert rows_of(ns.sql(spark, "show tables in lake.made")) == [
        ("made", "copied"),
        ("made", "things"),
    ]
    described = {row[0]: row[1:] for row in rows_of(ns.sql(spark, "describe lake.made.things"))}
    assert list(described) == ["id", "title", "at", "size", "colour"]
    assert described["id"] == ("long", False, 1, None, "bucket(4, id)")
    assert described["title"][3] == "none"
    assert rows_of(ns.sql(spark, "select count(*) from lake.made.copied")) == [(4,)]
    assert rows_of(ns.sql(spark, "call compact('lake.shop.orders', full => true)"))
    (verified,) = ns.sql(spark, "call verify('lake.shop.orders')").collect()
    assert verified.row_count == len(ROWS)
    ns.sql(spark, "drop table lake.made.copied; drop table lake.made.things purge")
    ns.sql(spark, "drop namespace lake.made")
    assert rows_of(ns.sql(spark, "show namespaces in lake")) == [("shop",)]
    with neve.open(place, read_only=True) as lake:
        assert lake.list_tables() == ["shop.orders"]


def test_a_table_from_rows_that_fail_does_not_exist(spark: SparkSession, place: Path) -> None:
    twice = "select 1 as id union all select 1 as id"
    with pytest.raises(NeveError, match="several rows of one key, such as 1"):
        ns.sql(spark, f"create table lake.shop.twice primary key (id) as {twice}")

    with neve.open(place, read_only=True) as lake:
        assert lake.list_tables() == ["shop.orders"]


@pytest.mark.parametrize(
    "text",
    [
        "delete from lake.shop.orders",
        "insert into lake.shop.orders values (9, 'x', 1)",
        "create table lake.a.b (id int primary key)",
        "create namespace lake.a",
        "drop table lake.shop.orders",
        "alter table lake.shop.orders add column x int",
        "call compact('lake.shop.orders')",
    ],
)
def test_a_lake_that_is_only_read_refuses_changes(
    spark: SparkSession, place: Path, text: str
) -> None:
    ns.attach(spark, place, "lake", read_only=True)
    before = version_of(place)

    with pytest.raises(InvalidArgument, match="reading only"):
        ns.sql(spark, text)

    assert version_of(place) == before


def test_a_change_is_decided_again_when_another_commit_was_first(
    spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = write_plan.change_plan
    calls: list[object] = []

    def later(*arguments: Any, **options: Any) -> DataFrame:  # noqa: ANN401 - as it is called
        calls.append(arguments)
        if len(calls) == 1:
            with neve.open(place) as lake, lake.table("shop.orders") as table:
                table.put({"id": 1, "city": "Paris", "amount": 100.0})
                table.flush()
        return plan(*arguments, **options)

    monkeypatch.setattr(sql_changes, "change_plan", later)

    ns.sql(spark, "update lake.shop.orders set amount = amount + 1 where id = 1")

    assert len(calls) == 2
    assert all_rows(spark)[0] == (1, "Paris", 101.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("begin", "commit of its own"),
        ("explain analyze select 1", "EXPLAIN ANALYZE"),
        ("", "no statement"),
        ("use lake", "not a statement"),
        ("insert overwrite lake.shop.orders select 1", "INSERT INTO"),
        ("call compact()", "needs a table"),
    ],
)
def test_what_spark_does_not_run_is_refused(
    spark: SparkSession, place: Path, text: str, words: str
) -> None:
    assert place.exists()
    with pytest.raises(InvalidArgument, match=words):
        ns.sql(spark, text)


def test_keys_that_merge_are_not_updated_on_spark(spark: SparkSession, place: Path) -> None:
    with neve.open(place) as lake:
        lake.create_table(
            "shop.counts",
            {"id": "long", "total": "long", "note": "string"},
            primary_key="id",
            merge={"total": "sum"},
        ).close()
    ns.sql(spark, "insert into lake.shop.counts values (1, 5, 'a')")
    ns.sql(spark, "insert or replace into lake.shop.counts values (1, 2, 'b')")

    for text in ("set total = 1", "set note = 'c'"):
        with pytest.raises(InvalidArgument, match="merge"):
            ns.sql(spark, f"update lake.shop.counts {text}")
    with pytest.raises(AlreadyExists):
        ns.sql(spark, "insert into lake.shop.counts values (1, 1, 'd')")
    assert rows_of(ns.sql(spark, "select * from lake.shop.counts")) == [(1, 7, "b")]
