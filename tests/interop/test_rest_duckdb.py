"""DuckDB attaches a lake by name, and writes to it beside the live writer."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import neve
from tests.integration.rest_requests import cities, make_orders
from tests.interop.iceberg_readers import DuckDb, open_duckdb

STEPS = {
    "insert": "insert into lake.shop.orders select 100 + i, 'duck', 1.0 from range(20) r(i)",
    "insert of keys that exist": "insert into lake.shop.orders values (7, 'seven', 7.0)",
    "delete": "delete from lake.shop.orders where city = 'c1'",
    "update": "update lake.shop.orders set city = 'updated' where id between 10 and 20",
    "merge": """
        merge into lake.shop.orders o
        using (
            select * from (values (3, 'merged', 1.0), (900, 'merged', 2.0)) v(id, city, amount)
        ) s on o.id = s.id
        when matched then update set city = s.city
        when not matched then insert values (s.id, s.city, s.amount)""",
    "transaction": """
        begin; insert into lake.shop.orders values (901, 'both', 1.0);
        delete from lake.shop.orders where id = 2; commit""",
}


@pytest.fixture(scope="module")
def duck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DuckDb]:
    with open_duckdb(tmp_path_factory.mktemp("extensions")) as engine:
        yield engine


def attach(duck: DuckDb, url: str) -> None:
    duck.connection.execute(
        f"ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
    )


@pytest.mark.parametrize("format_version", ["2", "3"])
def test_duckdb_writes_and_both_sides_have_the_same_rows(
    tmp_path: Path, duck: DuckDb, format_version: str
) -> None:
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        table = make_orders(lake, properties={"format-version": format_version})
        table.upsert([{"id": key, "city": "again", "amount": 0.0} for key in range(0, 30, 7)])
        table.flush()
        attach(duck, server.url)
        try:
            expected = cities(table)
            for what, sql in STEPS.items():
                table.put({"id": 5, "city": what, "amount": 0.0})  # the live writer goes on
                duck.connection.execute(sql)
                mine = cities(table)
                table.flush()
                theirs = duck.query("select id, city from lake.shop.orders").to_pylist()
                assert sorted((each["id"], each["city"]) for each in theirs) == sorted(
                    mine.items()
                ), what
                assert mine[5] == what
            assert expected != mine
            assert (mine[7], mine[3], mine[900], mine[901]) == ("seven", "merged", "merged", "both")
            assert 2 not in mine
            assert "c1" not in mine.values()
            table.verify(independent=True)
        finally:
            duck.connection.execute("DETACH lake")


def test_duckdb_makes_changes_and_drops_guests(tmp_path: Path, duck: DuckDb) -> None:
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        attach(duck, server.url)
        try:
            for sql in (
                "create schema lake.more",
                "create table lake.more.plain (a integer, b varchar)",
                "insert into lake.more.plain values (1, 'x'), (1, 'x')",
                "create table lake.more.made as select i as a from range(5) r(i)",
                "alter table lake.more.plain add column c integer",
            ):
                duck.connection.execute(sql)
            assert lake.guests.names() == ["more.made", "more.plain"]
            assert duck.query("from lake.more.plain").num_rows == 2
            assert lake.guests.load("more.made").to_arrow().num_rows == 5
            duck.connection.execute("drop table lake.more.made")
            assert lake.guests.names() == ["more.plain"]
        finally:
            duck.connection.execute("DETACH lake")


def test_duckdb_shows_what_the_server_refused(tmp_path: Path, duck: DuckDb) -> None:
    with neve.open(tmp_path / "lake") as lake, lake.serve() as server:
        table = make_orders(lake)
        attach(duck, server.url)
        try:
            with pytest.raises(duckdb.Error, match="several rows of one key, such as 5"):
                duck.connection.execute(
                    "insert into lake.shop.orders values (5, 'a', 1.0), (5, 'b', 1.0)"
                )
            assert cities(table)[5] == "c2"
        finally:
            duck.connection.execute("DETACH lake")
