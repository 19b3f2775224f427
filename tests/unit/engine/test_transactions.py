"""Transactions of one table: what they read, when they are in conflict, and what they leave."""

import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pyarrow as pa
import pytest

import neve
from neve.catalog.transaction import IsolationName
from neve.engine import background
from neve.errors import Closed, Conflict, InvalidArgument, SchemaMismatch
from neve.observability.metrics import TRANSACTION_CONFLICTS, TRANSACTIONS, Counters
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock
from tests.unit.engine.other_committer import OtherCommitter
from tests.unit.engine.tables import a_catalog, a_table, log_bytes, rows


@pytest.fixture
def table() -> Iterator[neve.Table]:
    with a_catalog() as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 10))
        table.flush()
        table.upsert(rows(10, 20))
        yield table


def row(key: int, v: int) -> dict[str, object]:
    return {"id": key, "v": v, "text": "t"}


def values(table: neve.Table | neve.Transaction) -> dict[int, int]:
    return {each["id"]: each["v"] for each in table.scan(columns=["id", "v"]).to_pylist()}


# What it reads


def test_a_transaction_reads_its_own_writes_and_others_do_not(table: neve.Table) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 7))
        tx.upsert(rows(12, 14, 8))
        tx.delete(2)
        tx.delete_many([3, 15])
        tx.upsert([{"id": 4, "v": 9}], columns=["v"])
        tx.delete_where("id >= 18")
        seen = {**dict.fromkeys(range(18), 0), 1: 7, 12: 8, 13: 8, 4: 9}
        for gone in (2, 3, 15):
            del seen[gone]

        assert values(tx) == seen
        assert [tx.get(key) is None for key in (1, 2, 3, 4, 15, 19)] == [
            False,
            True,
            True,
            False,
            True,
            True,
        ]
        assert tx.get_many([4, 2, 13]).column("v").to_pylist() == [9, 8]
        assert tx.get(4) == {"id": 4, "v": 9, "text": "t"}
        assert values(table) == dict.fromkeys(range(20), 0)

    assert values(table) == seen


@pytest.mark.parametrize("flushes", [False, True])
def test_a_transaction_reads_the_moment_it_began(table: neve.Table, flushes: bool) -> None:
    with table.transaction() as tx:
        table.put(row(1, 5))
        table.delete(11)
        table.upsert(rows(30, 32))
        if flushes:
            table.flush()
            table.put(row(2, 5))

        assert values(tx) == dict.fromkeys(range(20), 0)
        assert tx.get(11) == row(11, 0)
        assert tx.get(30) is None
        assert tx.get_many([1, 11, 30]).num_rows == 2


def test_a_transaction_reads_own_rows_by_key_whenever_they_were_written(
    table: neve.Table,
) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 1))
        assert tx.get(2) == row(2, 0)
        assert tx.get(1) == row(1, 1)
        tx.put(row(1, 2))
        tx.put(row(2, 1))
        tx.delete(3)
        assert [tx.get(key) for key in (1, 2, 3, 4)] == [row(1, 2), row(2, 1), None, row(4, 0)]

    assert [table.get(key) for key in (1, 2, 3)] == [row(1, 2), row(2, 1), None]


def test_rows_of_its_begin_stay_when_memory_is_reclaimed() -> None:
    options = neve.TableOptions(background=False, memtable_bytes=4_096)
    with a_catalog() as catalog:
        table = a_table(catalog, options=options)
        table.put(row(1, 0))
        with table.transaction() as tx:
            for number in range(200):
                table.put(row(1, number))

            assert tx.get(1) == row(1, 0)
            assert tx.get_many([1]).to_pylist() == [row(1, 0)]


def test_a_scan_shows_the_writes_before_it(table: neve.Table) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 1))
        scan = tx.scan("v > 0", columns=["id"])
        tx.put(row(2, 2))

        assert scan.to_pylist() == [{"id": 1}]
        assert tx.scan("v > 0").count() == 2
        assert [each["id"] for each in tx.scan(key_range=(5, 8), reverse=True).to_pylist()] == [
            7,
            6,
            5,
        ]


# What it leaves


def test_a_block_that_raises_leaves_nothing(table: neve.Table) -> None:
    before, logged = values(table), log_bytes(table)

    def fail() -> None:
        with table.transaction() as tx:
            tx.put(row(1, 1))
            tx.delete(2)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert values(table) == before
    assert log_bytes(table) == logged
    assert table.stats().open_snapshots == 0


def test_a_transaction_is_one_record_of_the_log(table: neve.Table) -> None:
    with table.transaction() as tx:
        for key in range(5):
            tx.put(row(key, 1))
        tx.delete(7)
        first = table._open.engine.current.sequence
        last = tx.commit()

    assert last == first + 6
    log = table._open.engine.writer._buffer.log
    assert log.next_sequence == last + 1


def test_a_reader_sees_all_writes_of_a_transaction_or_none(table: neve.Table) -> None:
    stop = False

    def write() -> None:
        for number in range(200):
            with table.transaction() as tx:
                tx.put(row(1, number))
                tx.put(row(12, number))

    def read() -> None:
        while not stop:
            got = table.get_many([1, 12]).column("v").to_pylist()
            assert got[0] == got[1]

    with ThreadPoolExecutor(2) as pool:
        reading = pool.submit(read)
        pool.submit(write).result()
        stop = True
        reading.result()


def test_commit_and_rollback_can_be_called_in_the_block(table: neve.Table) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 1))
        tx.commit()
    with table.transaction() as tx:
        tx.put(row(1, 2))
        tx.rollback()
        tx.rollback()

    assert table.get(1) == row(1, 1)


def test_a_transaction_that_only_read_commits_nothing(table: neve.Table) -> None:
    logged = log_bytes(table)

    with table.transaction("serializable") as tx:
        tx.get(1)
        table.put(row(1, 1))

    assert log_bytes(table) - logged < 100
    assert table.get(1) == row(1, 1)


def test_a_transaction_that_ended_leaves_no_work_for_the_garbage_collector(
    table: neve.Table,
) -> None:
    gc.collect()
    gc.disable()
    try:
        with table.transaction() as tx:
            tx.put(row(1, 1))
        ended = weakref.ref(tx._inner)
        del tx
        assert ended() is None
    finally:
        gc.enable()


def test_a_forgotten_transaction_releases_what_it_pinned(table: neve.Table) -> None:
    tx = table.transaction()
    tx.get(1)
    del tx
    background._settle()

    assert table.stats().open_snapshots == 0


# Conflicts


@pytest.mark.parametrize("place", ["memory", "kept"])
@pytest.mark.parametrize("change", ["put", "delete", "upsert", "partial", "conditional"])
def test_the_first_committer_wins(table: neve.Table, change: str, place: str) -> None:
    tx = table.transaction()
    tx.put(row(1, 100))
    match change:
        case "put":
            table.put(row(1, 5))
        case "delete":
            table.delete(1)
        case "upsert":
            table.upsert(rows(0, 100, 5))
        case "partial":
            table.upsert([{"id": 1, "v": 5}], columns=["v"])
        case _:
            table.compare_and_put(row(1, 5), row(1, 0))
    if place == "kept":
        table.flush()

    with pytest.raises(Conflict) as raised:
        tx.commit()

    assert raised.value.table == "a.b"
    assert raised.value.keys == ("1",)
    assert "key 1 changed since the transaction began" in str(raised.value)
    found = table.get(1)
    assert found is None if change == "delete" else found == row(1, 5)


def test_writes_of_other_keys_are_no_conflict(table: neve.Table) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 100))
        table.upsert(rows(2, 20, 5))
        table.flush()
        table.put(row(0, 5))

    assert values(table) == {**dict.fromkeys(range(20), 5), 1: 100}


def test_a_lost_update_is_refused_and_can_be_repeated(table: neve.Table) -> None:
    barrier = Barrier(8)

    def add_one() -> int:
        barrier.wait()
        conflicts = 0
        done = 0
        while done < 25:
            try:
                with table.transaction() as tx:
                    found = tx.get(1)
                    assert found is not None
                    tx.put({**found, "v": found["v"] + 1})
                done += 1
            except Conflict:
                conflicts += 1
        return conflicts

    with ThreadPoolExecutor(8) as pool:
        conflicts = [each.result() for each in [pool.submit(add_one) for _ in range(8)]]

    assert table.get(1) == row(1, 200)
    assert sum(conflicts) >= 0


def test_write_skew_is_refused_only_when_serializable(table: neve.Table) -> None:
    def skew(isolation: IsolationName) -> None:
        one = table.transaction(isolation)
        other = table.transaction(isolation)
        one.get(1)
        other.get(2)
        one.put(row(2, 1))
        other.put(row(1, 1))
        one.commit()
        other.commit()

    skew("snapshot")
    with pytest.raises(Conflict):
        skew("serializable")


@pytest.mark.parametrize("reads", ["range", "filter", "all"])
@pytest.mark.parametrize("flushes", [False, True])
def test_a_phantom_is_refused_when_serializable(
    table: neve.Table, reads: str, flushes: bool
) -> None:
    tx = table.transaction("serializable")
    match reads:
        case "range":
            tx.scan(key_range=(10, 30)).to_arrow()
        case "filter":
            tx.scan("id >= 10 and id < 30").to_arrow()
        case _:
            tx.scan("v = 9").to_arrow()
    tx.put(row(1, 1))
    table.put(row(25, 1))
    if flushes:
        table.flush()

    with pytest.raises(Conflict, match="key 25 changed"):
        tx.commit()


def test_a_change_outside_of_the_scanned_range_is_no_conflict(table: neve.Table) -> None:
    with table.transaction("serializable") as tx:
        tx.scan(key_range=(10, 30)).to_arrow()
        tx.put(row(1, 1))
        table.put(row(30, 1))
        table.upsert(rows(2, 5, 4))
        table.put(row(2, 5))

    assert table.get(1) == row(1, 1)


def test_a_range_is_checked_after_memory_was_reclaimed() -> None:
    options = neve.TableOptions(background=False, memtable_bytes=4_096)
    with a_catalog() as catalog:
        table = a_table(catalog, options=options)
        table.put(row(1, 0))
        tx = table.transaction("serializable")
        tx.scan(key_range=(1, 5)).to_arrow()
        tx.put(row(9, 1))
        table.put(row(1, 1))
        for number in range(200):
            table.put(row(7, number))

        with pytest.raises(Conflict, match="key 1 changed"):
            tx.commit()


def test_commits_of_other_processes_count_once_they_are_shown(table: neve.Table) -> None:
    tx = table.transaction()
    tx.put(row(1, 100))
    OtherCommitter(table).upsert([row(1, 5)])
    table.refresh()
    with pytest.raises(Conflict, match="key 1 changed"):
        tx.commit()
    with table.transaction() as tx:
        tx.put(row(1, 100))
        OtherCommitter(table).upsert([row(2, 5)])
        table.refresh()
        OtherCommitter(table).compact()
        table.refresh()

    assert table.get(1) == row(1, 100)
    assert table.get(2) == row(2, 5)


def test_a_scanned_range_is_in_conflict_with_any_commit_of_another_process(
    table: neve.Table,
) -> None:
    tx = table.transaction("serializable")
    tx.scan(key_range=(10, 12)).to_arrow()
    tx.put(row(1, 100))
    OtherCommitter(table).upsert([row(2, 5)])
    table.refresh()

    with pytest.raises(Conflict, match="another process committed version"):
        tx.commit()


def test_a_rollback_in_between_is_a_conflict(table: neve.Table) -> None:
    first = table.flush()
    table.upsert(rows(0, 3, 5))
    table.flush()
    one, other = table.transaction(), table.transaction()
    one.put(row(1, 100))
    other.put(row(9, 100))
    table.rollback(first)

    other.commit()
    with pytest.raises(Conflict, match="key 1 changed"):
        one.commit()
    assert table.get(1) == row(1, 0)


def test_memory_for_conflicts_is_bounded() -> None:
    options = neve.TableOptions(background=False, transaction_bytes=8_192)
    with a_catalog() as catalog:
        table = a_table(catalog, options=options)
        tx, other = table.transaction(), table.transaction()
        tx.put(row(1, 1))
        for number in range(5):
            table.upsert(rows(100 * number, 100 * number + 90, 5))
            table.flush()
            kept = table._open.engine.current.transactions.kept
            assert sum(each.byte_count for each in kept) <= 8_192

        with pytest.raises(Conflict, match="more was written than is kept"):
            tx.commit()
        other.rollback()
        assert table._open.engine.current.transactions.kept == ()
        with table.transaction() as tx:
            tx.put(row(1, 1))


def test_a_change_of_the_definition_is_a_conflict(table: neve.Table) -> None:
    tx = table.transaction()
    tx.put(row(1, 1))
    with table.evolve() as evolution:
        evolution.add_column("note", pa.string())

    assert tx.get(1) == row(1, 1)
    with pytest.raises(Conflict, match="definition"):
        tx.commit()


# Rules of tables


def test_the_order_of_a_table_holds_inside_a_transaction() -> None:
    with a_catalog() as catalog:
        table = catalog.create_table(
            "a.b",
            pa.schema({"id": pa.int64(), "at": pa.int64(), "v": pa.int64()}),
            ["id"],
            order_by=["at"],
            options=neve.TableOptions(background=False),
        )
        table.upsert([{"id": key, "at": 10, "v": 0} for key in range(4)])
        with table.transaction() as tx:
            tx.put({"id": 1, "at": 5, "v": 1})
            tx.put({"id": 2, "at": 15, "v": 1})
            tx.put({"id": 2, "at": 12, "v": 2})
            tx.delete(3)
            tx.put({"id": 3, "at": 11, "v": 1})
            inside = tx.scan().to_pylist()

        outside = table.scan().to_pylist()
        assert inside == outside
        assert {each["id"]: (each["at"], each["v"]) for each in outside} == {
            0: (10, 0),
            1: (10, 0),
            2: (15, 1),
            3: (11, 1),
        }


def test_merge_functions_hold_inside_a_transaction() -> None:
    store = MemoryStore()
    with a_catalog(store) as catalog:
        table = catalog.create_table(
            "a.b",
            pa.schema({"id": pa.int64(), "n": pa.int64()}),
            ["id"],
            merge={"n": "sum"},
            options=neve.TableOptions(background=False),
        )
        table.put({"id": 1, "n": 1})
        table.flush()
        table.put({"id": 1, "n": 1})
        with table.transaction() as tx:
            tx.put({"id": 1, "n": 5})
            tx.upsert([{"id": 1, "n": 7}, {"id": 2, "n": 1}])
            assert tx.get(1) == {"id": 1, "n": 14}
        assert table.get(1) == {"id": 1, "n": 14}
        tx = table.transaction()
        tx.put({"id": 1, "n": 5})
        table.put({"id": 1, "n": 100})
        with pytest.raises(Conflict):
            tx.commit()
        assert table.get(1) == {"id": 1, "n": 114}
    with a_catalog(store) as catalog:
        table = catalog.table("a.b")
        assert table.get(1) == {"id": 1, "n": 114}
        table.flush()
        assert table.scan().to_pylist() == [{"id": 1, "n": 114}, {"id": 2, "n": 1}]


def test_expired_rows_are_absent_inside_a_transaction() -> None:
    clock = SimulatedClock()
    with a_catalog(clock=clock) as catalog:
        table = catalog.create_table(
            "a.b",
            pa.schema({"id": pa.int64(), "ts": pa.timestamp("us", tz="UTC"), "v": pa.int64()}),
            ["id"],
            ttl=("ts", "1 hour"),
            options=neve.TableOptions(background=False),
        )
        now = datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)
        table.put({"id": 1, "ts": now - timedelta(minutes=59), "v": 1})
        table.put({"id": 2, "ts": now - timedelta(hours=2), "v": 1})
        with table.transaction() as tx:
            clock.sleep(120)
            assert tx.get(1) is not None
            assert tx.get(2) is None
            tx.upsert([{"id": 2, "ts": now, "v": 2}], columns=["ts", "v"])
            assert tx.scan("v = 2").count() == 1
        assert table.get(1) is None


# A partial write merges with what the transaction reads, also in the log


def test_partial_writes_of_a_transaction_survive_a_crash() -> None:
    store = MemoryStore()
    with a_catalog(store) as catalog:
        table = a_table(catalog)
        table.upsert(rows(0, 3))
        with table.transaction() as tx:
            tx.put(row(1, 1))
            tx.upsert([{"id": 1, "text": "new"}, {"id": 2, "text": "new"}], columns=["text"])
            tx.upsert([{"id": 2, "v": 2}], columns=["v"])
        expected = table.scan().to_pylist()
        reader = catalog.table("a.b", read_only=True)
        assert reader.scan().to_pylist() == expected
        with table.transaction() as tx:
            tx.put(row(0, 4))
            tx.upsert([{"id": 0, "text": "last"}], columns=["text"])
        expected = table.scan().to_pylist()
        assert reader.refresh().scan().to_pylist() == expected
    with a_catalog(store) as catalog:
        table = catalog.table("a.b")
        assert table.scan().to_pylist() == expected
        table.flush()
        assert sorted(table.scan().to_pylist(), key=lambda each: each["id"]) == expected


# Bad use


def test_a_transaction_that_ended_is_refused(table: neve.Table) -> None:
    with table.transaction() as tx:
        tx.put(row(1, 1))
        scan = tx.scan()
    for use in (
        lambda: tx.get(1),
        lambda: tx.put(row(1, 2)),
        tx.scan,
        scan.to_arrow,
        tx.commit,
    ):
        with pytest.raises(Closed, match="the transaction was committed"):
            use()
    assert table.get(1) == row(1, 1)


def test_another_thread_is_refused(table: neve.Table) -> None:
    tx = table.transaction()
    tx.put(row(1, 1))
    scan = tx.scan("v = 1")
    refused: list[Exception] = []
    counts: list[int] = []

    def use() -> None:
        for call in (lambda: tx.get(1), lambda: tx.put(row(1, 2)), tx.commit, tx.rollback):
            try:
                call()
            except InvalidArgument as error:
                refused.append(error)
        counts.append(scan.count())

    thread = Thread(target=use)
    thread.start()
    thread.join()

    assert len(refused) == 4
    assert counts == [1]
    tx.commit()
    assert table.get(1) == row(1, 1)


def test_bad_rows_and_names_are_refused_and_the_transaction_goes_on(table: neve.Table) -> None:
    with pytest.raises(InvalidArgument, match="isolation"):
        table.transaction("read committed")  # type: ignore[arg-type]
    with table.transaction() as tx:
        tx.put(row(1, 1))
        with pytest.raises(SchemaMismatch):
            tx.put({"id": 1, "v": "x"})
        with pytest.raises(SchemaMismatch):
            tx.upsert([row(1, 3), {"id": 2, "w": 1}])
        with pytest.raises(InvalidArgument):
            tx.delete_where(None)  # type: ignore[arg-type]
        assert tx.get(1) == row(1, 1)

    assert table.get(1) == row(1, 1)


def test_a_handle_that_only_reads_has_transactions_that_only_read() -> None:
    store = MemoryStore()
    with a_catalog(store) as catalog:
        a_table(catalog).put(row(1, 1))
        reader = catalog.table("a.b", read_only=True)
        with reader.transaction() as tx:
            assert tx.get(1) == row(1, 1)
            with pytest.raises(InvalidArgument, match="reading only"):
                tx.put(row(1, 2))


def test_transactions_are_counted() -> None:
    counters = Counters()
    lake = neve.Lake(MemoryStore(), clock=SimulatedClock(), ids=SeededIds(0), recorder=counters)
    with lake:
        table = a_table(lake)
        with table.transaction() as tx:
            tx.put(row(1, 1))
        tx = table.transaction()
        tx.put(row(1, 1))
        table.put(row(1, 2))
        with pytest.raises(Conflict):
            tx.commit()

    assert counters.total(TRANSACTIONS) == 1
    assert counters.total(TRANSACTION_CONFLICTS) == 1
