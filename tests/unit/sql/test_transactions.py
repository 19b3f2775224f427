"""BEGIN … COMMIT, and SQL inside of transactions that Python began."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import neve
from neve import AlreadyExists, Conflict, InvalidArgument
from neve.sql.relations import Readers
from neve.sql.statements import TableRelation
from neve.storage.memory_store import forget_memory_stores

BOTH = "select (select sum(amount) from bank.a) + (select sum(amount) from bank.b)"


@pytest.fixture
def lake() -> Iterator[neve.Lake]:
    with neve.open("memory://sql-transactions") as lake:
        for name in ("bank.a", "bank.b"):
            lake.sql(f"create table {name} (id bigint primary key, amount bigint)")
            lake.sql(f"insert into {name} values (1, 100), (2, 100)")
        yield lake
    forget_memory_stores()


def total(lake: neve.Lake) -> tuple[object, ...]:
    return lake.sql(
        "select (select sum(amount) from bank.a), (select sum(amount) from bank.b)"
    ).fetchall()[0]


def test_statements_of_one_transaction_are_committed_together(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        session.sql("update bank.a set amount = amount - 30 where id = 1")
        session.sql("update bank.b set amount = amount + 30 where id = 1")
        assert session.sql("select sum(amount) from bank.a").fetchall() == [(170,)]
        assert total(lake) == (200, 200)
        session.sql("commit")

    assert total(lake) == (170, 230)


def test_one_text_may_hold_a_transaction(lake: neve.Lake) -> None:
    lake.sql(
        "begin; delete from bank.a where id = 2; insert into bank.b select id + 10, amount "
        "from bank.a; commit"
    )

    assert total(lake) == (100, 300)


def test_what_is_not_committed_is_rolled_back(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        session.sql("delete from bank.a")
        session.sql("rollback")
        session.sql("begin transaction")
        session.sql("delete from bank.b")
    lake.sql("begin; delete from bank.a")

    assert total(lake) == (200, 200)


def test_a_change_that_fails_ends_the_transaction(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        session.sql("update bank.a set amount = 0")
        with pytest.raises(AlreadyExists):
            session.sql("insert into bank.b values (9, 9), (1, 1)")
        with pytest.raises(InvalidArgument, match="no transaction"):
            session.sql("commit")

    assert total(lake) == (200, 200)


def test_the_first_committer_wins(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        session.sql("update bank.a set amount = amount + 1")
        lake.sql("update bank.a set amount = amount + 5 where id = 1")
        with pytest.raises(Conflict):
            session.sql("commit")

    assert total(lake) == (205, 200)


def test_a_transaction_reads_one_moment(lake: neve.Lake) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        assert session.sql("select sum(amount) from bank.a").fetchall() == [(200,)]
        lake.sql("delete from bank.a")
        assert session.sql("select sum(amount) from bank.a").fetchall() == [(200,)]
        session.sql("commit")


def test_sql_runs_in_a_transaction_of_python(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        tx.table("bank.a").put({"id": 3, "amount": 1})
        assert tx.sql("select count(*) from bank.a").fetchall() == [(3,)]
        assert tx.sql("update bank.b set amount = 7 where id = 1").count == 1
        with pytest.raises(InvalidArgument, match="Python"):
            tx.sql("commit")
        assert total(lake) == (200, 200)

    assert total(lake) == (201, 107)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("begin", "open already"),
        ("create table bank.c (id int primary key)", "not part of a transaction"),
        ("drop table bank.a", "not part of a transaction"),
        ("call compact('bank.a')", "not part of a transaction"),
        ("create table bank.c primary key (id) as from bank.a", "not part of a transaction"),
    ],
)
def test_what_is_not_part_of_a_transaction_is_refused(
    lake: neve.Lake, text: str, says: str
) -> None:
    with lake.sql_session() as session:
        session.sql("begin")
        with pytest.raises(InvalidArgument, match=says):
            session.sql(text)
        session.sql("delete from bank.a")
        session.sql("commit")

    assert lake.sql("select count(*) from bank.a").fetchall() == [(0,)]


@pytest.mark.parametrize("text", ["commit", "rollback"])
def test_there_is_nothing_to_end(lake: neve.Lake, text: str) -> None:
    with pytest.raises(InvalidArgument, match="no transaction"):
        lake.sql(text)


def test_sql_runs_in_a_transaction_of_one_table(lake: neve.Lake) -> None:
    with lake.table("bank.a") as table, table.transaction() as tx:
        tx.put({"id": 3, "amount": 1})
        assert tx.sql("select count(*) from this").fetchall() == [(3,)]
        assert tx.sql("update this set amount = amount + 1").count == 3
        assert tx.sql("select sum(a.amount), sum(b.amount) from bank.a a join bank.b b using (id)")
        with pytest.raises(InvalidArgument, match="several tables"):
            table.transaction().sql("delete from bank.b")
        assert total(lake) == (200, 200)

    assert total(lake) == (204, 200)
    with pytest.raises(neve.Closed):
        tx.sql("select 1")


def test_a_failed_change_ends_a_transaction_of_python(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        tx.sql("delete from bank.a")
        with pytest.raises(AlreadyExists):
            tx.sql("insert into bank.b values (1, 1)")
        with pytest.raises(neve.Closed):
            tx.sql("select 1")

    assert total(lake) == (200, 200)


def test_tables_of_one_query_are_read_as_of_one_moment(lake: neve.Lake) -> None:
    def move() -> None:
        for number in range(60):
            with lake.transaction() as tx:
                tx.table("bank.a").put({"id": 1, "amount": 100 - number})
                tx.table("bank.b").put({"id": 1, "amount": 100 + number})

    with ThreadPoolExecutor(1) as pool, lake.table("bank.a") as this, lake.table("bank.b"):
        moved = pool.submit(move)
        sums = set()
        while not moved.done():
            sums.add(lake.sql(BOTH).fetchall()[0][0])
            found = this.sql("select sum(a.amount + b.amount) from this a join bank.b b using (id)")
            sums.add(found.fetchall()[0][0])
        moved.result()

    assert sums == {400}


def test_a_commit_while_tables_are_opened_is_seen_in_all_of_them(
    lake: neve.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Readers.opened
    names: list[str] = []

    def open_and_move(self: Readers, asked: TableRelation, stack: ExitStack) -> neve.Table:
        table = opened(self, asked, stack)
        names.append(asked.table)
        if len(names) == 1:
            with lake.transaction() as tx:
                tx.table("bank.a").put({"id": 1, "amount": 0})
                tx.table("bank.b").put({"id": 1, "amount": 200})
        return table

    with lake.table("bank.a"), lake.table("bank.b"):
        monkeypatch.setattr(Readers, "opened", open_and_move)
        assert total(lake) == (100, 300)

    assert names == ["bank.a", "bank.b"]
