"""One parser and one statement model, for the dialects of DuckDB and of Spark."""

import pyarrow as pa
import pytest

from neve.errors import AlreadyExists, InvalidArgument
from neve.model.schema import TableSchema
from neve.sql.change_text import ChangeText, Clash, several_change_one
from neve.sql.parser import parse
from neve.sql.statements import (
    AlterTable,
    CreateTable,
    Delete,
    Dialect,
    Explain,
    Insert,
    Merge,
    Query,
    Statement,
    TableRelation,
    Target,
    Update,
)

SPARK = Dialect.SPARK
SAME = [
    "insert into shop.orders (id, city) values (1, 'x')",
    "insert or replace into shop.orders select * from news",
    "insert into shop.orders values (1) on conflict (id) do update set id = 2 where true",
    "update shop.orders as o set city = 'x' from news as n where n.id = o.id",
    "delete from shop.orders where id in (select id from news)",
    (
        "merge into shop.orders as o using news as n on o.id = n.id when matched then delete "
        "when not matched then insert * when not matched by source then update set city = 'x'"
    ),
    "create table shop.t (id bigint primary key, at date) partitioned by (bucket(4, id))",
    "alter table shop.t rename column id to key",
    "drop table if exists shop.t purge",
    "create namespace if not exists shop",
    "call compact('shop.orders', full => true)",
    "show tables in shop",
    "describe shop.orders",
    "begin",
]


def test_a_literal_of_bytes_is_bytes_in_both_dialects() -> None:
    assert Dialect.SPARK.literal(b"a'\xff") == "X'6127ff'"
    assert Dialect.DUCKDB.literal(b"a'\xff") == r"'\x61\x27\xFF'"


def one(text: str, dialect: Dialect = SPARK) -> Statement:
    (statement,) = parse(text, dialect)
    return statement


@pytest.mark.parametrize("text", SAME)
def test_a_statement_is_the_same_value_in_both_dialects(text: str) -> None:
    mine, theirs = one(text), one(text, Dialect.DUCKDB)

    assert type(mine) is type(theirs)
    assert repr(mine).replace("`", '"').replace("'\"", "'").replace("\"'", "'") == repr(
        theirs
    ).replace("'\"", "'").replace("\"'", "'")


def test_text_of_spark_stays_as_it_was_written() -> None:
    statement = one(
        "select o.id, `o`.`a b`, date_add(o.at, 3) from lake.shop.orders version as of 3 o "
        "lateral view explode(o.tags) t as tag"
    )

    assert statement == Query(
        text="select o.id, `o`.`a b`, date_add(o.at, 3) from `lake.shop.orders@3` o "
        "lateral view explode(o.tags) t as tag",
        relations=(("lake.shop.orders@3", TableRelation(table="lake.shop.orders", version=3)),),
    )


def test_parameters_have_numbers_that_spark_takes() -> None:
    statement = one("update lake.shop.orders set city = ? where id = ? and city <> :other")

    assert isinstance(statement, Update)
    assert statement.assignments == (("city", ":_1"),)
    assert statement.where == "id = :_2 AND city <> :other"


@pytest.mark.parametrize("dialect", Dialect)
def test_parameters_of_explained_queries_have_numbers(dialect: Dialect) -> None:
    statement = one("explain select * from shop.orders where id = ?", dialect)

    assert isinstance(statement, Explain)
    assert statement.query.text.endswith("id = :_1" if dialect is SPARK else "id = $1")


def test_types_and_defaults_are_duckdbs_whatever_the_dialect() -> None:
    made = one(
        "create table lake.shop.t (id bigint, s string default 'x', at timestamp, "
        "tags array<string>, primary key (id)) using neve tblproperties ('a' = 'b')"
    )

    assert isinstance(made, CreateTable)
    assert [column.type for column in made.columns] == ["BIGINT", "TEXT", "TIMESTAMPTZ", "TEXT[]"]
    assert made.primary_key == ("id",)
    assert made.properties == (("a", "b"),)
    altered = one("alter table lake.shop.t add columns (a int, b string)")
    assert isinstance(altered, AlterTable)
    assert [each.column for each in altered.alterations] == ["a", "b"]


def test_a_table_of_another_format_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not supported"):
        one("create table lake.shop.t (id bigint primary key) using parquet")


@pytest.mark.parametrize(
    ("dialect", "name", "text"),
    [
        (Dialect.DUCKDB, '"a""b`"', "'it''s \\'"),
        (SPARK, '`a"b```', "'it\\'s \\\\'"),
    ],
)
def test_names_and_texts_are_quoted_as_the_engine_does(
    dialect: Dialect, name: str, text: str
) -> None:
    assert dialect.quoted('a"b`') == name
    assert dialect.literal("it's \\") == text


def text_of(dialect: Dialect) -> ChangeText:
    columns: dict[str, pa.DataType] = {"id": pa.int64(), "city": pa.string()}
    schema = TableSchema.from_arrow(pa.schema(columns), primary_key=["id"])
    types = {"id": "BIGINT", "city": "STRING"}
    return ChangeText(Target(table="lake.shop.orders", alias="o"), schema, types, dialect)


def test_the_selects_of_changes_are_in_the_dialect() -> None:
    text = text_of(SPARK)
    update, delete = (
        one("update lake.shop.orders o set city = upper(city) where id > 1"),
        one("delete from lake.shop.orders o where id > 1"),
    )
    assert isinstance(update, Update)
    assert isinstance(delete, Delete)

    assert text.update(update) == (
        "SELECT `o`.`id` AS `id`, CAST(UPPER(city) AS STRING) AS `city`, `o`.`id` AS "
        "`neve old id` FROM `lake.shop.orders` AS `o` WHERE id > 1"
    )
    assert text.delete(delete) == (
        "SELECT DISTINCT `o`.`id` FROM `lake.shop.orders` AS `o` WHERE id > 1"
    )
    merge = one(
        "merge into lake.shop.orders o using v on o.id = v.id when matched then delete "
        "when not matched by source then delete"
    )
    assert isinstance(merge, Merge)
    matched, unmatched = text.merge(merge, ["id"], is_found=True)
    assert "LEFT JOIN (SELECT *, TRUE AS `neve matched` FROM `neve found`)" in matched
    assert "FROM `lake.shop.orders` AS `o` WHERE NOT EXISTS" in unmatched
    assert text.source_keys(merge) == (
        "SELECT DISTINCT v.id AS `id` FROM `neve source` AS `v` WHERE v.id IS NOT NULL"
    )


def test_errors_show_keys_and_not_too_many() -> None:
    keys = [{"id": number, "city": "x"} for number in range(9)]
    text = text_of(SPARK)

    error = text.exists(keys, Clash.MERGE_TWICE)

    assert isinstance(error, AlreadyExists)
    assert error.message == "MERGE would insert two rows with one key: id=0; id=1; id=2"
    assert "one row: id=4" in str(several_change_one([{"neve old id": 4}]))


def test_an_insert_without_its_key_is_refused() -> None:
    statement = one("insert into lake.shop.orders (city) values ('x')")
    assert isinstance(statement, Insert)

    with pytest.raises(InvalidArgument, match="leaves out the key column 'id'"):
        text_of(SPARK).inserted_columns(statement, ["col1"])
