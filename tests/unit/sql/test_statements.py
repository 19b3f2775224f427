"""Statements that change rows and definitions, and what each of them refuses."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

import neve
from neve import AlreadyExists, InvalidArgument, NeveError, NotFound, SchemaMismatch
from neve.storage.memory_store import forget_memory_stores

ROWS = [(1, "ada", 1.0), (2, "bob", 2.0), (3, "cleo", None)]


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with neve.open("memory://sql-statements") as lake:
        lake.sql(
            "create table shop.orders (id bigint primary key, name text not null, amount double)"
        )
        lake.sql("insert into shop.orders values (1, 'ada', 1), (2, 'bob', 2), (3, 'cleo', null)")
        yield lake
    forget_memory_stores()


def rows(lake: neve.Lake) -> list[tuple[object, ...]]:
    return lake.sql("select * from shop.orders order by id").fetchall()


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("insert into shop.orders values (1, 'x', 1)", AlreadyExists, "id=1"),
        ("insert into shop.orders values (8, 'x', 1), (8, 'y', 1)", AlreadyExists, "id=8"),
        ("insert into shop.orders values (8)", InvalidArgument, "3 columns"),
        ("insert into shop.orders (id) values (8)", SchemaMismatch, "name"),
        ("insert into shop.orders (name) values ('x')", InvalidArgument, "key column 'id'"),
        ("insert into shop.orders (idd) values (8)", NotFound, "Did you mean 'id'?"),
        ("insert into shop.orders values (null, 'x', 1)", NeveError, "id"),
        ("insert into shop.orders values (8, 'x', 'much')", InvalidArgument, "'much'"),
        ("insert into shop.orders values (8, 'x', default)", InvalidArgument, "DEFAULT"),
        ("insert into shop.order values (8, 'x', 1)", NotFound, "Did you mean 'shop.orders'?"),
        ("insert into orders values (8, 'x', 1)", InvalidArgument, "namespace"),
        ("insert into shop.orders values (8, 'x', 1) returning id", InvalidArgument, "RETURNING"),
        ("update shop.orders set amonut = 1", NotFound, "Did you mean 'amount'?"),
        ("update shop.orders set amount = 1, Amount = 2", InvalidArgument, "twice"),
        ("update shop.orders set name = null", SchemaMismatch, "name"),
        ("update shop.orders set id = 1 where id = 2", AlreadyExists, "id=1"),
        ("update shop.orders set id = 9", AlreadyExists, "id=9"),
        ("update shop.orders set amount = 1 where amonut = 1", NotFound, "amonut"),
        (
            "update shop.orders set amount = x from two where two.k = orders.id",
            InvalidArgument,
            "several",
        ),
        ("delete from shop.orders where nothing = 1", NotFound, "nothing"),
        ("delete from __tables", InvalidArgument, "not a table"),
        ("delete from shop.orders for version as of 1", InvalidArgument, "old version"),
        (
            "merge into shop.orders o using two t on o.id = t.k when matched then delete",
            InvalidArgument,
            "several",
        ),
        (
            (
                "merge into shop.orders o using two t on o.id = t.k when matched then update set "
                "id = 7"
            ),
            InvalidArgument,
            "key column",
        ),
        (
            (
                "merge into shop.orders o using two t on o.id = t.k + 7 when not matched then "
                "insert (id, name) values (k + 7, 'x')"
            ),
            AlreadyExists,
            "id=8",
        ),
        (
            (
                "merge into shop.orders o using two t on false when not matched and x = 5 then "
                "insert (id, name) values (k, 'x')"
            ),
            AlreadyExists,
            "id=1",
        ),
        (
            (
                "merge into shop.orders o using two t on o.id = t.k when matched then insert "
                "(id) values (1)"
            ),
            InvalidArgument,
            "WHEN MATCHED THEN INSERT",
        ),
        ("truncate table nothing", InvalidArgument, "nothing"),
    ],
)  # fmt: skip
def test_a_refused_change_changes_nothing(
    lake: neve.Lake, text: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as raised:
        lake.sql(text, two=pa.table({"k": [1, 1], "x": [5.0, 6.0]}))

    assert says in str(raised.value)
    assert rows(lake) == ROWS


def test_an_update_of_keys_moves_rows(lake: neve.Lake) -> None:
    moved = lake.sql("update shop.orders set id = id + 1")

    assert moved.count == 3
    assert [row[:2] for row in rows(lake)] == [(2, "ada"), (3, "bob"), (4, "cleo")]


def test_parameters_are_used_in_any_place(lake: neve.Lake) -> None:
    lake.sql("update shop.orders set amount = ? + amount where id = ?", [10, 2])
    lake.sql("insert into shop.orders values ($id, $name, 0)", {"id": 9, "name": "eve"})
    lake.sql("delete from shop.orders where id = $1", [1])

    assert rows(lake) == [(2, "bob", 12.0), (3, "cleo", None), (9, "eve", 0.0)]


def test_a_table_changes_itself_as_this(lake: neve.Lake) -> None:
    with lake.table("shop.orders") as table:
        assert table.sql("update this set amount = 5 where id = 3").count == 1
        assert table.sql("delete from this where this.id = 1").count == 1

    assert rows(lake) == [(2, "bob", 2.0), (3, "cleo", 5.0)]


def test_changes_are_durable_rows_of_one_transaction(lake: neve.Lake) -> None:
    with lake.table("shop.orders") as table:
        before = table.stats().sequence
        lake.sql("update shop.orders set amount = 0")
        assert table.stats().sequence > before
        table.flush()

    with neve.open("memory://sql-statements", read_only=True) as reader:
        assert reader.sql("select sum(amount) from shop.orders").fetchall() == [(0.0,)]


def test_a_lake_that_is_only_read_refuses_changes(lake: neve.Lake) -> None:
    lake.table("shop.orders").flush()
    with neve.open("memory://sql-statements", read_only=True) as reader:
        for text in (
            "delete from shop.orders",
            "insert into shop.orders values (9, 'x', 1)",
            "create table a.b (id int primary key)",
            "create namespace a",
            "drop table shop.orders",
            "alter table shop.orders add column x int",
            "call compact('shop.orders')",
        ):
            with pytest.raises(InvalidArgument, match="reading only"):
                reader.sql(text)

    assert rows(lake) == ROWS


def test_rows_of_a_table_that_merges_columns_keep_what_was_merged(lake: neve.Lake) -> None:
    table = lake.create_table(
        "shop.counts",
        {"id": "long", "total": "long", "note": "string"},
        primary_key="id",
        merge={"total": "sum"},
    )
    table.upsert([{"id": 1, "total": 5, "note": "a"}, {"id": 1, "total": 2, "note": "b"}])

    lake.sql("update shop.counts set note = 'c'")
    assert lake.sql("select * from shop.counts").fetchall() == [(1, 7, "c")]
    with pytest.raises(InvalidArgument, match="merged"):
        lake.sql("update shop.counts set total = 1")
    with pytest.raises(InvalidArgument, match="merged"):
        lake.sql(
            "merge into shop.counts c using (select 1 as id) s on c.id = s.id "
            "when matched then update set note = 'd'"
        )
    lake.sql("insert or replace into shop.counts values (1, 3, 'e')")
    assert lake.sql("select * from shop.counts").fetchall() == [(1, 10, "e")]


def test_tables_are_defined_and_described(lake: neve.Lake) -> None:
    lake.sql("create namespace eu.berlin")
    lake.sql(
        "create table eu.berlin.events (id bigint, at timestamptz, kind varchar default 'new', "
        "price decimal(9, 2), tags varchar[], place struct(x int, y double), u uuid, "
        "primary key (id, at)) partitioned by (day(at), bucket(4, id)) "
        "with ('write.parquet.compression-codec' = 'zstd')"
    )
    table = lake.table("eu.berlin.events")

    assert table.primary_key == ("id", "at")
    assert table.spec.texts(table.schema) == ["day(at)", "bucket(4, id)"]
    assert table.properties["write.parquet.compression-codec"] == "zstd"
    assert lake.sql("describe eu.berlin.events").to_pylist()[2] == {
        "column": "kind", "type": "string", "nullable": True, "key": None, "default": "new",
        "partition": None,
    }  # fmt: skip
    assert lake.sql("show tables in eu.berlin").fetchall() == [("eu.berlin", "events")]
    assert ("eu.berlin",) in lake.sql("show namespaces").fetchall()
    lake.sql(
        "insert into eu.berlin.events (id, at, price, tags, place, u) values (1, "
        "timestamptz '2024-01-01 00:00:00+00', 9.999, ['a'], {'x': 1, 'y': 2.5}, "
        "'00000000-0000-0000-0000-000000000001')"
    )
    assert lake.sql("select kind, price, place.y, u::varchar from eu.berlin.events").fetchall() == [
        ("new", pa.scalar("10.00").cast(pa.decimal128(9, 2)).as_py(), 2.5,
         "00000000-0000-0000-0000-000000000001")
    ]  # fmt: skip


def test_tables_are_altered(lake: neve.Lake) -> None:
    lake.sql("alter table shop.orders add column note text default 'none', add column small int")
    lake.sql("alter table shop.orders rename column note to notes")
    lake.sql("alter table shop.orders alter column small type bigint")
    lake.sql("alter table shop.orders alter column small set default 7")
    lake.sql("alter table shop.orders alter column name drop not null")
    lake.sql("alter table shop.orders drop column amount")
    lake.sql("insert into shop.orders (id) values (9)")

    assert lake.sql("select * from shop.orders where id in (1, 9)").fetchall() == [
        (1, "ada", "none", None),
        (9, None, "none", 7),
    ]
    lake.sql("alter table shop.orders rename to sales")
    assert lake.list_tables() == ["shop.sales"]


def test_a_table_is_made_from_a_query_and_dropped(lake: neve.Lake) -> None:
    made = lake.sql(
        "create table shop.big primary key (id) as select id, upper(name) as name from shop.orders"
    )

    assert made.count == 3
    assert lake.sql("select name from shop.big where id = 2").fetchall() == [("BOB",)]
    lake.sql("create table if not exists shop.big (id int primary key)")
    with pytest.raises(AlreadyExists):
        lake.sql("create table shop.big (id int primary key)")
    lake.sql("drop table shop.big purge")
    lake.sql("drop table if exists shop.big")
    lake.sql("create schema if not exists shop")
    lake.sql("create schema gone")
    lake.sql("drop namespace gone")
    lake.sql("drop schema if exists gone")


def test_tables_are_maintained(lake: neve.Lake) -> None:
    assert lake.sql("call flush('shop.orders')").fetchall() == [(2,)]
    lake.sql("delete from shop.orders")
    [(compacted,)] = lake.sql("CALL compact('shop.orders', full => true)").fetchall()
    [(back,)] = lake.sql("call rollback('shop.orders', 2)").fetchall()
    assert isinstance(compacted, int)
    assert isinstance(back, int)
    assert 2 < compacted < back
    assert rows(lake) == ROWS
    lake.sql("call tag('shop.orders', 'kept')")
    report = lake.sql("call expire('shop.orders', keep_last => 1)").to_pylist()[0]
    assert report["oldest_version"] > 2
    assert lake.sql("call collect_garbage('shop.orders', dry_run => false)").count == 1
    assert lake.sql("call verify('shop.orders')").count == 1


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("create table shop.t (id int)", InvalidArgument, "primary key"),
        ("create table shop.t (id int, primary key (idd))", NotFound, "Did you mean 'id'?"),
        ("create table shop.t (id nothing primary key)", NeveError, "nothing"),
        ("create table t (id int primary key)", InvalidArgument, "namespace"),
        (
            "create table shop.t (id int primary key, check (id > 1))",
            InvalidArgument,
            "not supported",
        ),
        ("create or replace table shop.orders (id int primary key)", InvalidArgument, "REPLACE"),
        ("alter table shop.orders drop column id", NeveError, "id"),
        ("alter table shop.orders add constraint x check (id > 1)", InvalidArgument, ""),
        ("alter table shop.nothing add column x int", NotFound, "shop.nothing"),
        ("drop namespace shop", InvalidArgument, "shop"),
        ("drop table shop.order", NotFound, "Did you mean 'shop.orders'?"),
        ("describe shop.order", NotFound, "Did you mean 'shop.orders'?"),
        ("call compakt('shop.orders')", NotFound, "Did you mean 'compact'?"),
        ("call compact('shop.orders', what => 1)", InvalidArgument, "'what'"),
        ("call compact('shop.orders', true, 1)", InvalidArgument, "too many"),
        ("call compact()", InvalidArgument, "needs a table"),
        ("call rollback('shop.orders', 99)", NotFound, "99"),
        ("call compact(1 + 1)", InvalidArgument, "literal"),
        ("show nothing", InvalidArgument, "SHOW"),
        ("explain delete from shop.orders", InvalidArgument, "EXPLAIN"),
    ],
)  # fmt: skip
def test_a_refused_definition_is_named(
    lake: neve.Lake, text: str, kind: type[Exception], says: str
) -> None:
    with pytest.raises(kind) as raised:
        lake.sql(text)

    assert says in str(raised.value)
    assert lake.list_tables() == ["shop.orders"]
    assert rows(lake) == ROWS


def test_columns_that_are_not_set_keep_every_bit(lake: neve.Lake) -> None:
    nanoseconds = 1_700_000_000_123_456_789
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "z": pa.array([nanoseconds] * 2, pa.timestamp("ns", "UTC")),
            "n": pa.array([nanoseconds] * 2, pa.timestamp("ns")),
            "u": pa.array([b"a" * 16] * 2, pa.uuid()),
            "many": pa.ListArray.from_arrays([0, 1, 2], pa.array([b"a" * 16] * 2, pa.uuid())),
            "fixed": pa.array([b"abc"] * 2, pa.binary(3)),
            "f": pa.array([-0.0, float("nan")]),
            "v": pa.array([1, 1]),
        }
    )
    table = lake.create_table("shop.exact", rows.schema, primary_key="id")
    table.upsert(rows)
    before = table.scan().to_arrow().sort_by("id").drop_columns(["id", "v"])

    for text in (
        "update shop.exact set v = 2",
        (
            "merge into shop.exact t using (select 1 as id) s on t.id = s.id "
            "when matched then update set v = 3 when not matched then insert (id) values (s.id) "
            "when not matched by source then update set v = 4"
        ),
        "insert into shop.exact (id, v) values (1, 5), (2, 5) on conflict do update set v = 9",
        "update shop.exact set id = id + 1",
    ):
        assert lake.sql(text).count == 2
        after = table.scan().to_arrow().sort_by("id")
        for name in before.column_names:
            assert (
                after.column(name)
                .cast(before.column(name).type)
                .combine_chunks()
                .equals(before.column(name).combine_chunks())
                or name == "f"
            )
        assert str(after.column("f").to_pylist()) == "[-0.0, nan]"
    with pytest.raises(SchemaMismatch, match="uuid"):
        lake.sql("insert into shop.exact (id, many) values (9, [uuid()])")


def test_names_that_differ_only_in_case_are_not_mixed_up(lake: neve.Lake) -> None:
    lake.create_table("shop.Orders", {"id": "long"}, primary_key="id").put({"id": 77})
    lake.create_table("shop.t", {"id": "long", "a": "long", "A": "long"}, primary_key="id")

    found = lake.sql("select max(o.id), max(p.id) from shop.orders o, shop.Orders p").fetchall()

    assert found == [(3, 77)]
    assert lake.sql("delete from shop.Orders").count == 1
    assert rows(lake) == ROWS
    for text in ("select * from shop.t", "update shop.t set a = 1", "delete from shop.t"):
        with pytest.raises(InvalidArgument, match="differ only in case"):
            lake.sql(text)
    with pytest.raises(NotFound):
        lake.sql("select * from SHOP.ORDERS")  # either could be meant


def test_a_frame_has_a_name_that_can_be_written(lake: neve.Lake) -> None:
    with pytest.raises(InvalidArgument, match="neve rows"):
        lake.sql("update shop.orders set amount = 1", None, **{"neve rows": pa.table({"id": [1]})})


def test_keys_that_duckdb_would_round_are_not_changed_by_sql(lake: neve.Lake) -> None:
    table = lake.create_table(
        "shop.moments", {"at": "timestamptz_ns", "n": "long"}, primary_key="at"
    )
    table.upsert(
        pa.table({"at": pa.array([1, 2], pa.timestamp("ns", "UTC")), "n": pa.array([1, 2])})
    )

    assert lake.sql("select sum(n) from shop.moments").fetchall() == [(3,)]
    for text in (
        "delete from shop.moments where n = 1",
        "update shop.moments set n = 5",
        "insert into shop.moments values (now(), 1)",
    ):
        with pytest.raises(InvalidArgument, match="nanoseconds"):
            lake.sql(text)
    assert table.scan().count() == 2


def test_a_default_of_bytes_is_written_as_these_bytes(lake: neve.Lake) -> None:
    lake.sql("create table shop.blobs (id bigint primary key, mark blob, note text)")
    with lake.table("shop.blobs") as table, table.evolve() as evolution:
        evolution.set_default("mark", b"a'\xff")

    lake.sql("insert into shop.blobs (id) values (1)")
    lake.sql(
        "merge into shop.blobs b using (select 2 as id) s on b.id = s.id "
        "when not matched then insert (id) values (s.id)"
    )

    assert lake.sql("select mark from shop.blobs").fetchall() == [(b"a'\xff",)] * 2
