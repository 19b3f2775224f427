"""Queries: names, old versions, system tables, changes, parameters, frames, results, errors."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

import neve
from neve import InvalidArgument, NotFound
from neve.catalog.sql_door import Parameters
from neve.engine.snapshot import dictionary_columns
from neve.sql.database import Database
from neve.storage.memory_store import forget_memory_stores

FIELDS: "list[pa.Field[pa.DataType]]" = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("customer", pa.string()),
    pa.field("amount", pa.float64()),
]


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with neve.open("memory://sql-queries") as lake:
        orders = lake.create_table("shop.orders", pa.schema(FIELDS), primary_key=["id"])
        orders.upsert([{"id": n, "customer": f"c{n % 3}", "amount": float(n)} for n in range(10)])
        orders.flush()
        orders.put({"id": 3, "customer": "ada", "amount": 99.0})  # not flushed
        lake.create_table("eu.berlin.cities", {"city": "string"}, primary_key="city").put(
            {"city": "Mitte"}
        )
        yield lake
    forget_memory_stores()


def test_a_query_sees_rows_that_are_not_flushed(lake: neve.Lake) -> None:
    found = lake.sql("select customer, amount from shop.orders where id = 3")

    assert found.fetchall() == [("ada", 99.0)]
    assert found.count == len(found) == 1
    assert found.statement == "SELECT"


@pytest.mark.parametrize(
    "text",
    [
        "select count(*) from shop.orders",
        "SELECT count(*) FROM Shop.ORDERS",
        'select count(*) from "shop"."orders"',
        "select count(orders.id) from shop.orders",
        "select count(shop.orders.id) from shop.orders where shop.orders.id >= 0",
        "select count(*) from shop.orders as o where o.id >= 0",
        "with o as (from shop.orders) select count(*) from o",
        "select (select count(*) from shop.orders)",
        "select count(*) from (select 1 union all select 2) x(a) right join shop.orders on id = a",
        "/* shop.nothing */ select count(*) -- from shop.nothing\nfrom shop.orders;",
        "select count(*) from shop.orders where customer <> 'from shop.nothing'",
    ],
)
def test_tables_are_found_by_their_names(lake: neve.Lake, text: str) -> None:
    assert lake.sql(text).fetchall()[0][0] == 10


def test_a_table_of_a_nested_namespace_has_all_its_names(lake: neve.Lake) -> None:
    found = lake.sql("select cities.city from eu.berlin.cities")

    assert found.fetchall() == [("Mitte",)]


@pytest.mark.parametrize("clause", ["for version as of 2", "at (version => 2)", "VERSION AS OF 2"])
def test_an_old_version_is_read_beside_the_current_one(lake: neve.Lake, clause: str) -> None:
    found = lake.sql(
        f"select was.customer, orders.customer from shop.orders {clause} was "
        "join shop.orders on was.id = orders.id where was.id = 3"
    )

    assert found.fetchall() == [("c0", "ada")]


def test_a_version_is_found_by_time(lake: neve.Lake) -> None:
    table = lake.table("shop.orders")
    [moment] = table.history().slice(1).column("timestamp").to_pylist()
    assert moment is not None
    table.flush()

    for clause in (
        f"for timestamp as of '{moment.isoformat()}'",
        f"at (timestamp => timestamptz '{moment.isoformat()}')",
    ):
        found = lake.sql(f"select customer from shop.orders {clause} where id = 3")
        assert found.fetchall() == [("c0",)]


def test_system_tables_and_changes_are_relations(lake: neve.Lake) -> None:
    lake.table("shop.orders").flush()

    assert lake.sql(
        "select t.table_name, max(snapshot_id) from __tables t join __snapshots using (table_name) "
        "where t.table_name = 'shop.orders' group by 1"
    ).fetchall() == [("shop.orders", 3)]
    assert lake.sql(
        "select id, _change_type from table_changes('shop.orders', 2, 3) c order by 2"
    ).fetchall() == [(3, "update_postimage"), (3, "update_preimage")]


def test_parameters_are_values_by_place_or_name(lake: neve.Lake) -> None:
    text = "select id from shop.orders where id > {} and customer = {}"

    assert lake.sql(text.format("?", "?"), [3, "c2"]).fetchall() == [(5,), (8,)]
    assert lake.sql(text.format("$2", "$1"), ["c2", 3]).fetchall() == [(5,), (8,)]
    assert lake.sql(text.format("$n", "$c"), {"n": 3, "c": "c2"}).fetchall() == [(5,), (8,)]


@pytest.mark.parametrize(
    "make", [pa.table, pd.DataFrame, pl.DataFrame], ids=["Arrow", "pandas", "Polars"]
)
def test_frames_are_relations_by_name(lake: neve.Lake, make: type) -> None:
    frame = make({"id": [3, 77]})

    found = lake.sql(
        "select w.id, customer from wanted w left join shop.orders using (id)", wanted=frame
    )

    assert sorted(found.fetchall()) == [(3, "ada"), (77, None)]


def test_a_result_is_arrow_pandas_polars_and_rows(lake: neve.Lake) -> None:
    found = lake.sql("select id, amount from shop.orders where id < 2 order by id")

    assert found.to_arrow().to_pydict() == {"id": [0, 1], "amount": [0.0, 1.0]}
    assert list(found.to_pandas()["amount"]) == [0.0, 1.0]
    assert found.to_polars().shape == (2, 2)
    assert found.fetchall() == list(found) == [(0, 0.0), (1, 1.0)]
    assert found.to_pylist()[1] == {"id": 1, "amount": 1.0}
    assert pa.table(found).num_rows == 2


def test_a_table_is_called_this_in_its_own_queries(lake: neve.Lake) -> None:
    with lake.table("shop.orders") as table:
        assert table.sql("select max(this.amount) from this").fetchall() == [(99.0,)]
        assert table.sql("select count(*) from this join shop.orders using (id)").fetchall() == [
            (10,)
        ]


def test_columns_and_filters_are_pushed_into_the_scan(lake: neve.Lake) -> None:
    plan = lake.sql("explain analyze select amount from shop.orders where id = 4").to_pylist()

    [scan] = [each["text"] for each in plan if each["part"] == "shop.orders"]
    assert "filter     id == 4" in scan
    assert "customer" not in scan
    assert "keys" in scan


def test_a_query_beside_another_process_sees_what_it_wrote(lake: neve.Lake) -> None:
    lake.table("shop.orders").close()
    with neve.open("memory://sql-queries", read_only=True) as reader:
        text = "select count(*) from shop.orders"
        assert reader.sql(text).fetchall() == [(10,)]
        with lake.table("shop.orders") as table:
            table.put({"id": 100})
            assert reader.sql(text).fetchall() == [(11,)]
            table.flush()
        assert reader.sql(text).fetchall() == [(11,)]


@pytest.mark.usefixtures("lake")
def test_only_tables_that_are_named_are_opened() -> None:
    with neve.open("memory://sql-queries", read_only=True) as reader:
        reader.sql("select 1")
        assert not reader.table("shop.orders", read_only=True).leases()


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("selec 1", InvalidArgument, "LINE 1: selec 1\n              ^"),
        (
            "select *\nfrom shop.orders\nwhere )",
            InvalidArgument,
            "LINE 3: where )\n              ^",
        ),
        ("select 'a", InvalidArgument, "cannot be read"),
        ("select * from shop.order", NotFound, "Did you mean 'shop.orders'?"),
        ("select * from orders", NotFound, "Did you mean 'shop.orders'?"),
        ("select * from nothing_like_it", NotFound, "namespaces"),
        ("select amonut from shop.orders", NotFound, "Did you mean amount?"),
        ("select nofunction(1)", NotFound, "nofunction"),
        ("select cast('a' as int)", InvalidArgument, "Could not convert"),
        ("select * from shop.orders for version as of 99", NotFound, "99"),
        ("select * from table_changes('shop.orders')", InvalidArgument, "table_changes"),
        ("", InvalidArgument, "no statement"),
        (" ; ", InvalidArgument, "no statement"),
    ],
)
def test_a_mistake_is_named(lake: neve.Lake, text: str, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as raised:
        lake.sql(text)

    assert says in str(raised.value)


def test_odd_arguments_are_refused(lake: neve.Lake) -> None:
    with pytest.raises(InvalidArgument, match="text"):
        lake.sql(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="several statements"):
        lake.sql("select 1; select ?", [1])
    with pytest.raises(InvalidArgument, match="no rows"):
        lake.sql("select * from x", x=5)


def test_errors_of_a_scan_keep_their_kind(lake: neve.Lake) -> None:
    table = lake.table("shop.orders")
    with lake.sql_session() as session:
        assert session.sql("select 1").fetchall() == [(1,)]
    with pytest.raises(neve.Closed):
        session.sql("select 1")
    table.close()
    with pytest.raises(neve.Closed):
        table.sql("select 1")


def test_many_threads_query_and_change_at_once(lake: neve.Lake) -> None:
    def work(number: int) -> None:
        for step in range(5):
            lake.sql("insert into shop.orders values (?, 'x', 1)", [1_000 + 10 * number + step])
            lake.sql("select count(*) from shop.orders join f on f.id = orders.id", f=frame)
            lake.sql("select * from eu.berlin.cities")

    frame = pa.table({"id": [1, 2, 3]})
    lake.table("eu.berlin.cities").close()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    assert lake.sql("select count(*) from shop.orders").fetchall() == [(50,)]


def test_more_tables_are_read_than_are_kept_open(lake: neve.Lake) -> None:
    names = [f"many.t{number}" for number in range(20)]
    for name in names:
        lake.create_table(name, {"id": "long"}, primary_key="id").put({"id": 1})
    with neve.open("memory://sql-queries", read_only=True) as reader:
        for _ in range(2):
            for name in names:
                assert reader.sql(f"select count(*) from {name}").fetchall() == [(1,)]
        joined = " join ".join(f"{name} using (id)" if name != names[0] else name for name in names)
        assert reader.sql(f"select count(*) from {joined}").fetchall() == [(1,)]


# Queries for one key


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("select * from shop.orders where id = 3", None),
        ('SELECT id, "customer", amount FROM "shop".orders WHERE ID=3 limit 1;', None),
        ("select * from shop.orders where id = ?", [3]),
        ("select * from shop.orders where id = $1", (3,)),
        ("select * from shop.orders where id = $id", {"id": 3}),
        ("select * from this where id = 3", None),
    ],
)
def test_a_query_for_one_key_does_not_run_on_duckdb(
    lake: neve.Lake, monkeypatch: pytest.MonkeyPatch, text: str, params: Parameters | None
) -> None:
    monkeypatch.setattr(Database, "connection", pytest.fail)

    with lake.table("shop.orders") as table:
        found = table.sql(text, params)

    assert found.to_pylist() == [{"id": 3, "customer": "ada", "amount": 99.0}]
    assert (found.count, found.statement) == (1, "SELECT")


def test_a_query_for_one_key_sees_the_transaction_it_is_in(lake: neve.Lake) -> None:
    text = "select customer from shop.orders where id = {}"
    with lake.sql_session() as session:
        session.sql("begin")
        session.sql("update shop.orders set customer = 'eve' where id = 3")
        lake.sql("update shop.orders set customer = 'bob' where id = 4")

        assert session.sql(text.format(3)).fetchall() == [("eve",)]
        assert session.sql(text.format(4)).fetchall() == [("c1",)]
        assert lake.sql(text.format(3)).fetchall() == [("ada",)]


def test_a_query_for_a_key_that_has_expired_finds_nothing(lake: neve.Lake) -> None:
    lake.create_table(
        "shop.visits", {"id": "int64", "ts": "timestamptz"}, primary_key="id", ttl=("ts", "1 day")
    ).upsert([{"id": 1, "ts": datetime(2001, 1, 1, tzinfo=UTC)}])

    assert lake.sql("select * from shop.visits where id = 1").fetchall() == []


PRICES = [None if n % 7 == 0 else Decimal(n * 37 % 1000 - 500).scaleb(-2) for n in range(40_000)]
CITIES = [None if n % 11 == 0 else f"city {n % 90}" for n in range(40_000)]
SMALL = {"small": 3, "price": 4, "huge": 5}
COMPACT: "list[pa.Field[pa.DataType]]" = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("city", pa.string()),
    pa.field("note", pa.string()),
    pa.field("small", pa.decimal128(7, 2)),
    pa.field("price", pa.decimal128(15, 2)),
    pa.field("huge", pa.decimal128(30, 2)),
]


@pytest.fixture(scope="module")
def compact(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[tuple[neve.Table, pa.Table]]":
    """A table with files of two schemas, deleted and unflushed rows; and its rows, read plainly."""
    rows = pa.table(
        {
            "id": range(40_000),
            "city": CITIES,
            "note": [f"note {n}" for n in range(40_000)],
            **{name: pa.array(PRICES, COMPACT[at].type) for name, at in SMALL.items()},
        },
        schema=pa.schema(COMPACT),
    )
    options = neve.TableOptions(background=False, cache_bytes=1)
    with neve.open(tmp_path_factory.mktemp("compact")) as lake:
        table = lake.create_table("a.b", pa.schema(COMPACT), "id", options=options)
        table.upsert(rows)
        table.compact(full=True)
        with table.evolve() as change:
            change.rename_column("note", "remark")
            change.add_column("kind", pa.string(), default="old")
        renamed = rows.rename_columns(["id", "city", "remark", "small", "price", "huge"])
        newer = renamed.slice(0, 20_000).append_column("kind", pa.array(["new"] * 20_000))
        table.upsert(newer)
        table.compact()
        table.delete_many(list(range(0, 40_000, 13)))
        table.flush()
        table.upsert(newer.slice(100, 50))  # not flushed
        yield table, table.scan().to_arrow().sort_by("id")


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "city = 'city 3'",
        "city in ('city 3', 'city 4') and price > 1.5",
        "city is null or small < -1",
        "city > 'city 5' and remark like '%7' and kind = 'new'",
        "price between -0.5 and 0.5 and huge <> 0.25",
        "id >= 16000 and id < 17000 and city <> 'city 9'",
    ],
)
def test_text_and_decimals_are_the_same_in_compact_forms(
    compact: tuple[neve.Table, pa.Table], where: str
) -> None:
    table, rows = compact
    with duckdb.connect() as plain:
        plain.register("this", rows)
        expected = plain.execute(f"select * from this where {where} order by id").to_arrow_table()

    found = table.sql(f"select * from this where {where} order by id").to_arrow()

    assert expected.num_rows
    assert found.schema == expected.schema
    assert found.equals(expected)


def test_a_scan_by_key_has_compact_forms_too(tmp_path: Path) -> None:
    """Its key columns are encoded, which text is and a dictionary is not."""
    rows = [{"city": f"city {n % 90}", "id": n} for n in range(2_000)]
    with neve.open(tmp_path) as lake:
        options = neve.TableOptions(background=False)
        columns = {"city": "string", "id": "long"}
        table = lake.create_table("a.b", columns, ["city", "id"], options=options)
        table.upsert(rows)
        table.compact(full=True)
        with table.snapshot() as snapshot:
            names = dictionary_columns(snapshot)
            found = snapshot.scan(reverse=True).compact(names).to_arrow().to_pylist()

    assert names == {"city"}
    assert found == sorted(rows, key=lambda row: (row["city"], row["id"]), reverse=True)


def test_text_that_files_store_as_dictionaries_reaches_the_engine_so(
    compact: tuple[neve.Table, pa.Table],
) -> None:
    table, rows = compact
    with table.snapshot() as snapshot:
        names = dictionary_columns(snapshot)
        scan = snapshot.scan(columns=["id", "city", "small", "price", "huge"]).compact(names)
        found = scan.to_arrow().sort_by("id")

    assert "city" in names
    assert "remark" not in names
    kinds = [found.schema.field(name).type for name in ("city", *SMALL)]
    assert kinds == [
        pa.dictionary(pa.int32(), pa.string()),
        pa.decimal32(7, 2),
        pa.decimal64(15, 2),
        pa.decimal128(30, 2),
    ]
    for name in ("city", *SMALL):
        assert found.column(name).cast(rows.schema.field(name).type).equals(rows.column(name))
