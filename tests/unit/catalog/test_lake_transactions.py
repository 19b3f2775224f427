"""Transactions over several tables: one decision, parts in each log, and what others see."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import neve
from neve.catalog.transaction import IsolationName, LakeTransaction
from neve.errors import Closed, Conflict, InvalidArgument, NotFound, OutcomeUnknown, Unavailable
from neve.manifest.decisions import Decisions
from neve.storage.memory_store import MemoryStore
from neve.testing.simulated_clock import SeededIds, SimulatedClock

QUIET = neve.TableOptions(background=False)


def a_lake(store: MemoryStore, seed: int = 0) -> neve.Lake:
    return neve.Lake(store, clock=SimulatedClock(), ids=SeededIds(seed))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def lake(store: MemoryStore) -> Iterator[neve.Lake]:
    with a_lake(store) as lake:
        held = []
        for name in ("s.a", "s.b", "s.c"):
            table = lake.create_table(name, {"id": "long", "v": "long"}, "id", options=QUIET)
            table.upsert([{"id": key, "v": 0} for key in range(4)])
            held.append(table)
        yield lake


def row(key: int, v: int) -> dict[str, object]:
    return {"id": key, "v": v}


def value(lake: neve.Lake, name: str, key: int = 1) -> int | None:
    found = lake.table(name).get(key)
    return None if found is None else found["v"]


def documents(lake: neve.Lake, prefix: str = "txn") -> list[str]:
    return [key for key, _ in lake._entries.store.read().scan(prefix)]


def write_both(tx: LakeTransaction, v: int, *names: str) -> None:
    for name in names or ("s.a", "s.b"):
        tx.table(name).put(row(1, v))


def test_several_tables_are_committed_together(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        write_both(tx, 5)
        tx.table("s.b").delete(2)
        assert tx.table("s.a").get(1) == row(1, 5)
        assert value(lake, "s.a") == 0

    assert (value(lake, "s.a"), value(lake, "s.b"), value(lake, "s.b", 2)) == (5, 5, None)


def test_a_block_that_raises_leaves_nothing(lake: neve.Lake) -> None:
    def fail() -> None:
        with lake.transaction() as tx:
            write_both(tx, 5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (value(lake, "s.a"), value(lake, "s.b")) == (0, 0)
    assert documents(lake) == []


def test_a_conflict_in_one_table_refuses_all(lake: neve.Lake) -> None:
    tx = lake.transaction()
    write_both(tx, 5)
    lake.table("s.b").put(row(1, 7))

    with pytest.raises(Conflict) as raised:
        tx.commit()

    assert raised.value.table == "s.b"
    assert (value(lake, "s.a"), value(lake, "s.b")) == (0, 7)
    assert documents(lake) == []


def test_a_transaction_of_one_table_needs_no_decision(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        tx.table("s.a").put(row(1, 5))
        tx.table("s.b").get(1)

    assert value(lake, "s.a") == 5
    assert documents(lake) == []


def test_all_tables_are_read_as_of_the_begin(lake: neve.Lake) -> None:
    with lake.transaction() as reader:
        assert reader.table("s.a").get(1) == row(1, 0)
        with lake.transaction() as tx:
            write_both(tx, 5)
        lake.table("s.b").flush()
        lake.table("s.c").put(row(1, 9))

        assert reader.table("s.b").get(1) == row(1, 0)
        assert reader.table("s.c").get(1) == row(1, 0)


def test_conflicts_are_found_in_tables_that_are_opened_late(lake: neve.Lake) -> None:
    tx = lake.transaction()
    tx.table("s.a").put(row(1, 5))
    lake.table("s.b").put(row(1, 7))
    lake.table("s.b").flush()
    tx.table("s.b").put(row(1, 5))

    with pytest.raises(Conflict, match=r"s\.b"):
        tx.commit()


def test_a_table_that_was_opened_and_written_since_is_a_conflict(store: MemoryStore) -> None:
    with a_lake(store) as lake:
        lake.create_table("s.a", {"id": "long", "v": "long"}, "id", options=QUIET)
    with a_lake(store, 1) as lake:
        tx = lake.transaction()
        assert tx.table("s.a").get(1) is None
        other = lake.transaction()
        lake.create_table("s.b", {"id": "long", "v": "long"}, "id", options=QUIET)
        assert other.table("s.b").get(1) is None
        lake.table("s.b").put(row(1, 1))

        with pytest.raises(Conflict, match="after the transaction began"):
            tx.table("s.b")


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_write_skew_over_two_tables(lake: neve.Lake, isolation: IsolationName) -> None:
    one, other = lake.transaction(isolation), lake.transaction(isolation)
    one.table("s.a").get(1)
    other.table("s.b").get(1)
    one.table("s.b").put(row(1, 1))
    other.table("s.a").put(row(1, 1))
    one.commit()

    if isolation == "snapshot":
        other.commit()
    else:
        with pytest.raises(Conflict, match=r"s\.b"):
            other.commit()


def test_a_decision_goes_when_every_part_is_in_files(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        write_both(tx, 5, "s.a", "s.b", "s.c")
    (session, decision) = documents(lake)
    assert decision.startswith("txn/")
    assert session.startswith("txn-session/")

    lake.table("s.a").flush()
    lake.table("s.b").flush()
    assert decision in documents(lake)
    lake.table("s.c").flush()

    assert documents(lake) == [session]


def test_a_dropped_table_keeps_no_decision(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        write_both(tx, 5)
    lake.table("s.a").flush()

    lake.drop_table("s.b")

    assert documents(lake, "txn/") == []


def test_a_lake_that_is_closed_ends_its_session(store: MemoryStore, lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        write_both(tx, 5)
    lake.close()

    with a_lake(store, 1) as again:
        assert documents(again, "txn-session") == []
        assert (value(again, "s.a"), value(again, "s.b")) == (5, 5)
        for name in ("s.a", "s.b"):
            again.table(name).flush()
        assert documents(again) == []


# A coordinator that dies, is slow, or cannot know


def test_parts_without_a_decision_are_dropped_and_cannot_be_decided_later(
    store: MemoryStore, lake: neve.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Decisions.decide
    seen: list[tuple[Decisions, str, dict[str, int]]] = []

    def die(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        seen.append((decisions, transaction, parts))
        raise KeyboardInterrupt

    def cannot(_decisions: Decisions, _transaction: str) -> bool:
        raise KeyboardInterrupt

    tx = lake.transaction()
    write_both(tx, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", die)
        patch.setattr(Decisions, "settle", cannot)
        with pytest.raises(KeyboardInterrupt):
            tx.commit()
    with pytest.raises(Closed):
        lake.table("s.a").put(row(3, 3))
    lake.table("s.a").close()
    lake._stores.live_tables.close()

    with a_lake(store, 1) as other:
        assert value(other, "s.a") == 0
        assert not decide(*seen[0])
        assert value(other, "s.b") == 0
        other.table("s.a").put(row(1, 8))
    with a_lake(store, 2) as other:
        assert (value(other, "s.a"), value(other, "s.b")) == (8, 0)


def test_an_answer_that_was_lost_is_found_out(
    lake: neve.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Decisions.decide

    def decide_and_lose(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        decide(decisions, transaction, parts)
        raise OutcomeUnknown("no answer")

    def lose(*_: object) -> bool:
        raise OutcomeUnknown("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", decide_and_lose)
        with lake.transaction() as tx:
            write_both(tx, 5)
        assert (value(lake, "s.a"), value(lake, "s.b")) == (5, 5)
        patch.setattr(Decisions, "decide", lose)
        tx = lake.transaction()
        write_both(tx, 6)
        with pytest.raises(Conflict):
            tx.commit()
    assert (value(lake, "s.a"), value(lake, "s.b")) == (5, 5)
    with lake.transaction() as tx:
        write_both(tx, 7)
    assert (value(lake, "s.a"), value(lake, "s.b")) == (7, 7)


def test_an_outcome_that_cannot_be_found_out_gives_up_the_logs(
    store: MemoryStore, lake: neve.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Decisions.decide

    def decide_and_lose(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        decide(decisions, transaction, parts)
        raise OutcomeUnknown("no answer")

    def unavailable(_decisions: Decisions, _transaction: str) -> bool:
        raise Unavailable("no answer")

    tx = lake.transaction()
    write_both(tx, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", decide_and_lose)
        patch.setattr(Decisions, "settle", unavailable)
        with pytest.raises(OutcomeUnknown, match="may or may not"):
            tx.commit()
    with pytest.raises(Closed):
        lake.table("s.a").put(row(1, 1))
    lake.close()

    with a_lake(store, 1) as again:
        assert (value(again, "s.a"), value(again, "s.b")) == (5, 5)


# What readers beside the writer see


@pytest.mark.parametrize("how", ["reopened", "refreshed"])
@pytest.mark.parametrize("outcome", ["decided", "dropped"])
def test_a_prepared_part_is_absent_until_it_is_decided(
    lake: neve.Lake, monkeypatch: pytest.MonkeyPatch, outcome: str, how: str
) -> None:
    decide = Decisions.decide
    reader = lake.table("s.a", read_only=True)
    assert reader.get(1) == row(1, 0)
    between: list[object] = []

    def look() -> neve.Table:
        if how == "refreshed":
            return reader.refresh()
        return a_lake(lake._stores.objects, 9).table("s.a", read_only=True)  # type: ignore[arg-type]

    def decide_slowly(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        between.append(look().get(1))
        if outcome == "dropped":
            raise OutcomeUnknown("no answer")
        is_decided = decide(decisions, transaction, parts)
        between.append(look().get(1))
        return is_decided

    tx = lake.transaction()
    write_both(tx, 5)
    with monkeypatch.context() as patch:
        patch.setattr(Decisions, "decide", decide_slowly)
        if outcome == "dropped":
            with pytest.raises(Conflict):
                tx.commit()
        else:
            tx.commit()

    expected = 0 if outcome == "dropped" else 5
    assert between[0] == row(1, 0)
    assert between[1:] == ([] if outcome == "dropped" else [row(1, 5)])
    assert look().get(1) == row(1, expected)
    lake.table("s.a").put(row(2, 2))
    assert look().get_many([1, 2]).column("v").to_pylist() == [expected, 2]
    lake.table("s.a").flush()
    assert look().get_many([1, 2]).column("v").to_pylist() == [expected, 2]


def test_the_change_feed_has_no_part_that_is_not_decided(
    lake: neve.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide = Decisions.decide
    table = lake.table("s.a")
    table.flush()
    since = table.version
    between: list[int] = []

    def live() -> list[int]:
        rows = table.changes(since, live=True).read_all().to_pylist()
        return [each["v"] for each in rows if each["_change_type"] != "update_preimage"]

    def decide_slowly(decisions: Decisions, transaction: str, parts: dict[str, int]) -> bool:
        between.extend(live())
        return decide(decisions, transaction, parts)

    monkeypatch.setattr(Decisions, "decide", decide_slowly)
    with lake.transaction() as tx:
        write_both(tx, 5)

    assert between == []
    assert live() == [5]


# Repeating


def test_a_function_is_called_again_on_conflict(lake: neve.Lake) -> None:
    calls = 0

    def move(tx: LakeTransaction) -> int:
        nonlocal calls
        calls += 1
        write_both(tx, calls)
        if calls < 3:
            lake.table("s.a").put(row(1, 100))
        return calls

    assert lake.retry(move) == 3
    assert (value(lake, "s.a"), value(lake, "s.b")) == (3, 3)


def test_the_last_conflict_is_raised(lake: neve.Lake) -> None:
    def lose(tx: LakeTransaction) -> None:
        write_both(tx, 1)
        lake.table("s.a").put(row(1, 100))

    with pytest.raises(Conflict):
        lake.retry(lose, attempts=2)
    with pytest.raises(InvalidArgument):
        lake.retry(lose, attempts=0)


def test_money_is_neither_made_nor_lost_over_two_tables(lake: neve.Lake) -> None:
    for name in ("s.a", "s.b"):
        lake.table(name).upsert([row(key, 100) for key in range(4)])

    def audit() -> int:
        with lake.transaction() as tx:
            return sum(
                each["v"] for name in ("s.a", "s.b") for each in tx.table(name).scan().to_pylist()
            )

    def work(number: int) -> None:
        def move(tx: LakeTransaction) -> None:
            first, second = tx.table("s.a"), tx.table("s.b")
            one, two = first.get(number % 4), second.get((number + 1) % 4)
            assert one is not None
            assert two is not None
            first.put({**one, "v": one["v"] - 1})
            second.put({**two, "v": two["v"] + 1})

        for turn in range(15):
            lake.retry(move, attempts=1_000)
            if turn % 5 == 0:
                assert audit() == 800
            if turn == 7:
                lake.table("s.a").flush()

    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(work, number) for number in range(4)]:
            each.result()

    assert audit() == 800
    assert sum(each["v"] for each in lake.table("s.b").scan().to_pylist()) == 460


def test_bad_use_is_refused(lake: neve.Lake) -> None:
    with lake.transaction() as tx:
        with pytest.raises(NotFound):
            tx.table("s.nothing")
        table = tx.table("s.a")
        table.put(row(1, 1))
    uses: list[Callable[[], object]] = [
        lambda: tx.table("s.a"),
        lambda: table.get(1),
        lambda: table.put(row(1, 2)),
        tx.commit,
    ]
    for use in uses:
        with pytest.raises(Closed, match="was committed"):
            use()
    tx.rollback()
    other = lake.transaction()
    with ThreadPoolExecutor(1) as pool, pytest.raises(InvalidArgument, match="another thread"):
        pool.submit(other.table, "s.a").result()
